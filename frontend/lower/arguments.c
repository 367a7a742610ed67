/* arguments.c -- calls of the functions of the language: their arguments, by the letters of each. */
#include "arguments.h"
#include "syntax/idioms.h"

#include <string.h>

static const Builtin *find_builtin(const Lower *l, const char *name)
{
    const Builtin *f = l->functions;
    while (f->name && strcmp(f->name, name) != 0)
        f++;
    return f->name ? f : NULL;
}

bool is_function(const Lower *l, const char *name) { return find_builtin(l, name) != NULL; }

/* Is this argument one without a name, as p in dropout(x, p)? */
static bool is_positional(const Builtin *f, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = strstr(f->usage + 1, name); at; at = strstr(at + 1, name))
        if (strchr("( ", at[-1]) && strchr(",)", at[length]))
            return true;
    return false;
}

static bool bind_keyword(Lower *l, const Builtin *f, const Ast *ast, Arguments *a)
{
    NearMiss near = { .name = ast->name };
    for (int i = 0; i < MOST_KEYWORDS && f->keywords[i]; i++) {
        offer(&near, f->keywords[i]);
        if (strcmp(f->keywords[i], ast->name) != 0)
            continue;
        if (a->keyword[i])
            complain(l, (Where){ .at = ast->name_loc }, "'%s' is given twice", ast->name);
        a->keyword[i] = ast;
        return true;
    }
    const char *help = is_positional(f, ast->name) ? arena_text(l->arena, "leave out '%s =': %s", ast->name, f->usage)
                                                   : did_you_mean(l->arena, &near);
    return complain(l, (Where){ .at = ast->name_loc, .help = help ? help : f->usage }, "%s has no argument '%s'",
                    f->name, ast->name);
}

static bool bind_tensor(Lower *l, const Builtin *f, char letter, const Ast *ast, Arguments *a)
{
    Operand operand = lower_expr(l, ast);
    int i = a->count++;
    a->ast[i] = ast;
    a->operand[i] = operand;
    if (operand.kind == WRONG || letter == 'o')
        return operand.kind != WRONG;
    a->x[i] = scalar_of(l, operand, letter == 'i' ? I32 : F32).value;
    if (!a->x[i])
        return false;
    if (letter == 'f' && !is_float(a->x[i]->type.dtype)) {
        const bool has_others = strpbrk(f->args, "ti") != NULL; /* as labels, in the place of which it may be */
        complain(l, (Where){ .at = ast->loc, .help = has_others ? f->usage : "cast(..., f32)" },
                 "%s takes floating-point numbers, not %s", f->name, type_words(l, &a->x[i]->type));
        a->x[i] = NULL; /* no one asks for its dims */
        return false;
    }
    return true;
}

/* Has x this dim, which a name of several stands for? */
bool has_one_of(Lower *l, const Value *x, Name dim, const Ast *name)
{
    const bool has = find_dim(&x->type, dim) >= 0;
    if (!has)
        complain(l, (Where){ .at = name->loc }, "%s has no dim of '%s'", type_words(l, &x->type), name->name);
    return has;
}

/* `in` or `out` of a parameter. */
static bool bind_dims(Lower *l, const Symbol *several, const Ast *ast, Arguments *a)
{
    for (int i = 0; i < several->dims.count; i++) {
        if (a->x[0] && !has_one_of(l, a->x[0], several->dims.name[i], ast))
            return false;
        if (!has_name(&a->dims, several->dims.name[i])) {
            a->dim_ast[a->dims.count] = ast;
            add_name(&a->dims, several->dims.name[i]);
        }
    }
    return true;
}

/* Where there is no dim: max(x, y) may be meant as maximum(x, y). */
static const char *dim_help(const Builtin *f)
{
    const char *idiom = find_idiom(IDIOM_REDUCTION, f->name);
    return idiom ? idiom : f->usage;
}

static bool bind_dim(Lower *l, const Builtin *f, char letter, const Ast *ast, Arguments *a)
{
    Dim declared;
    Constant size;
    Name name;
    a->names_dims = true;
    if (letter == 'a' && ast->kind == A_ARROW && ast->child->kind == A_NAME) {
        a->renaming = ast;
        ast = ast->child;
    }
    const Symbol *several = ast->kind == A_NAME ? find_symbol(l->scope, ast->name) : NULL;
    const bool takes_several = letter == 'd' ? strpbrk(f->args, "*+") != NULL : strcmp(f->args, "D") == 0;
    if (several && several->kind == S_DIMS && takes_several)
        return bind_dims(l, several, ast, a);
    if (ast->kind != A_NAME && !(letter == 'k' && ast->kind == A_ARROW))
        return complain(l, (Where){ .at = ast->loc, .help = dim_help(f) }, "the name of a dim is needed here");
    Symbol *named = find_symbol(l->scope, ast->name);
    const Symbol *symbol = symbol_in_call(named);
    const bool is_tensor = symbol && (symbol->kind == S_LOCAL || symbol->kind == S_ARGUMENT ||
                                      symbol->kind == S_PARAM || symbol->kind == S_INPUT);
    if (is_tensor) {
        named->used = true;
        return complain(l, (Where){ .at = ast->loc, .help = dim_help(f) }, "'%s' is %s, not a dim", ast->name,
                        symbol_noun(symbol->kind));
    }
    if (letter == 's' && symbol && symbol->is_slots) { /* which may have no size yet */
        named->used = true;
        declared.name = intern_text(l->m, symbol->name);
    } else if (ast->kind == A_ARROW ? !constant_of(l, ast->child, &size) || !find_choice_dim(l, ast, size, &declared)
                                    : !find_dim_named(l, ast->name, ast->loc, &declared))
        return false;
    name = declared.name;
    if ((letter == 'd' || letter == 'a') && a->x[0] && !need_dim(l, a->x[0], a->ast[0], ast->name, ast->loc, &name))
        return false;
    if (has_name(&a->dims, name))
        return complain(l, (Where){ .at = ast->loc }, "'%s' is given twice", name);
    if (a->dims.count == MAX_NAMES)
        return complain(l, (Where){ .at = ast->loc }, "a tensor has at most %d dims", MAX_RANK);
    a->dim_ast[a->dims.count] = ast;
    add_name(&a->dims, name);
    return true;
}

/* A word, or dims with an arrow between them. */
static bool bind_word(Lower *l, const Builtin *f, const Ast *ast, AstKind kind, const Ast **word)
{
    *word = ast;
    const Ast *from = kind == A_ARROW ? ast->child : ast->init;
    if (ast->kind == kind && ((kind != A_ARROW && kind != A_PARTS) || from->kind == A_NAME))
        return true;
    return complain(l, (Where){ .at = ast->loc, .help = f->usage }, "%s is needed here",
                    kind == A_ARROW   ? "a renaming"
                    : kind == A_PARTS ? "a dim and its parts"
                    : kind == A_JOIN  ? "a list of dims and the one that they become"
                                      : "the name of a type");
}

static bool bind_window(Lower *l, const Builtin *f, const Ast *ast, Arguments *a)
{
    if (ast->kind != A_PARTS)
        return bind_dim(l, f, 'd', ast, a);
    if (a->nwindows == MAX_RANK)
        return complain(l, (Where){ .at = ast->loc }, "a tensor has at most %d dims", MAX_RANK);
    return bind_word(l, f, ast, A_PARTS, &a->window[a->nwindows++]);
}

static bool bind(Lower *l, const Builtin *f, char letter, const Ast *ast, Arguments *a)
{
    switch (letter) {
    case 'a':
    case 'd':
    case 'D':
    case 'k':
    case 's':
        return bind_dim(l, f, letter, ast, a);
    case 'n':
        a->number_ast = ast;
        return constant_of(l, ast, &a->number);
    case 'w':
        return bind_word(l, f, ast, A_NAME, &a->word);
    case 'r':
        return bind_word(l, f, ast, A_ARROW, &a->renaming);
    case 'p':
        return bind_word(l, f, ast, A_PARTS, &a->renaming);
    case 'm':
        return bind_word(l, f, ast, A_JOIN, &a->renaming);
    case 'c':
        return bind_window(l, f, ast, a);
    default:
        return bind_tensor(l, f, letter, ast, a);
    }
}

/* Matches the letters of the row with the arguments; checks all of them, even after an error. */
static bool bind_all(Lower *l, const Builtin *f, Arguments *a)
{
    const char *letter = f->args;
    bool good = true, named = true;
    int count = 0;
    for (const Ast *ast = a->call->child; ast; ast = ast->next) {
        if (ast->kind == A_KEYWORD) {
            named &= bind_keyword(l, f, ast, a);
            continue;
        }
        if (!*letter)
            return complain(l, (Where){ .at = ast->loc, .help = f->usage }, "too many arguments for %s", f->name);
        count++;
        good &= bind(l, f, *letter, ast, a);
        if (letter[1] != '+' && letter[1] != '*')
            letter++;
    }
    bool enough = !*letter || letter[1] == '*' || (letter[1] == '+' && count >= (int)strlen(f->args) - 1);
    if (!enough && named) /* else the one that is missing has a name that it should not have */
        complain(l, (Where){ .at = a->call->name_loc, .help = f->usage }, "too few arguments for %s", f->name);
    return good && named && enough;
}

bool number_argument(Lower *l, const Ast *keyword, double otherwise, double *number)
{
    Constant c;
    *number = otherwise;
    if (!keyword)
        return true;
    if (!constant_of(l, keyword->child, &c) || !is_finite(l, c, keyword->child->loc, quoted(l, keyword)))
        return false;
    *number = c.value;
    return true;
}

bool flag_argument(Lower *l, const Ast *keyword, bool *flag)
{
    *flag = keyword && keyword->child->number != 0;
    if (!keyword || keyword->child->kind == A_BOOL)
        return true;
    Constant number = integer_constant(-1);
    if (keyword->child->kind != A_NUMBER && !constant_of(l, keyword->child, &number))
        return false;
    *flag = number.value == 1;
    if (number.value == 0 || number.value == 1)
        return true;
    return complain(l, (Where){ .at = keyword->child->loc }, "'%s' must be true or false", keyword->name);
}

bool is_constant(const Lower *l, const Ast *ast)
{
    const Symbol *symbol = ast->kind == A_NAME ? find_symbol(l->scope, ast->name) : NULL;
    if (symbol)
        return symbol->kind == S_CONST || symbol->kind == S_DIM || symbol->kind == S_DIMS ||
               symbol->operand.kind == NUMBER;
    if (ast->kind != A_UNARY && ast->kind != A_BINARY &&
        !(ast->kind == A_CALL && (may_be_folded(ast->name) || strcmp(ast->name, "if") == 0)))
        return ast->kind == A_NUMBER;
    for (const Ast *child = ast->child; child; child = child->next)
        if (!is_constant(l, child))
            return false;
    return true;
}

/* A function of numbers is a number: sqrt(2 * layers). */
static bool fold_call(Lower *l, const Ast *call, Operand *operand)
{
    Constant numbers[2];
    int n = 0;
    if (!is_constant(l, call))
        return false;
    for (const Ast *ast = call->child; ast; ast = ast->next, n++) {
        if (n == 2)
            return false;
        Operand argument = lower_expr(l, ast);
        if (argument.kind != NUMBER) {
            *operand = wrong;
            return argument.kind == WRONG;
        }
        numbers[n] = argument.number;
    }
    const char *problem = fold_constants(l->arena, call->name, n, numbers, &operand->number);
    operand->kind = problem ? WRONG : NUMBER;
    if (problem)
        complain(l, (Where){ .at = call->loc }, "%s", problem);
    return true;
}

static Arguments arguments_of(Lower *l, const Ast *call)
{
    int count = 3; /* no function uses more of them */
    for (const Ast *ast = call->child; ast; ast = ast->next)
        count++;
    return (Arguments){ .call = call,
                        .ast = NEW_ARRAY(l->arena, const Ast *, count),
                        .operand = NEW_ARRAY(l->arena, Operand, count),
                        .x = NEW_ARRAY(l->arena, Value *, count) };
}

Operand call_function(Lower *l, const Ast *call)
{
    Arguments a = arguments_of(l, call);
    Operand operand;
    const Builtin *f = find_builtin(l, call->name);
    if (fold_call(l, call, &operand))
        return operand;
    if (!l->frame)
        return complain(l, (Where){ .at = call->loc }, "'%s' is not allowed in a constant expression", call->name),
               wrong;
    if (!bind_all(l, f, &a))
        return wrong;
    set_place(l, call->name_loc);
    return f->lower(l, &a);
}
