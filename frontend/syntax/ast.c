/* ast.c -- builds the tree, and checks the context of each statement. */
#include "build_ast.h"

#include <stdlib.h>
#include <string.h>

static int depth_of(const Ast *list)
{
    int depth = 0;
    for (; list; list = list->next)
        depth = list->depth > depth ? list->depth : depth;
    return depth;
}

static bool is_operation(const Ast *ast)
{
    return ast->kind == A_CALL || ast->kind == A_UNARY || ast->kind == A_BINARY || ast->kind == A_INDEX;
}

/* What reads trees calls itself for what is below: of an operation that is too deep, nothing is left that is. */
Ast *make_ast(Reading *r, Loc loc, Ast ast)
{
    Ast *made = NEW(r->arena, Ast);
    int below = depth_of(ast.child), body = depth_of(ast.body), init = depth_of(ast.init);
    below = body > below ? body : below;
    const int depth = 1 + (init > below ? init : below);
    *made = depth >= MAX_DEPTH && is_operation(&ast) ? (Ast){ .kind = A_NUMBER, .name_loc = loc } : ast;
    made->loc = loc;
    made->depth = depth;
    if (depth == MAX_DEPTH)
        error_at(r->diags, (Where){ .at = loc, .help = "give a part of it a name" }, "nested deeper than %d levels",
                 MAX_DEPTH);
    return made;
}

Ast *append_ast(Ast *list, Ast *more)
{
    if (!list || !more)
        return list ? list : more;
    Ast *end = list->last ? list->last : list;
    end->next = more;
    list->last = more->last ? more->last : more;
    return list;
}

Ast *type_of(Reading *r, Loc loc, const char *dtype, Ast *dims)
{
    Ast *type = make_ast(r, loc, (Ast){ .kind = A_TYPE, .name_loc = loc, .name = dtype, .child = dims });
    if (dims && strcmp(dims->name, "...") == 0) {
        type->ellipsis = true;
        type->child = dims->next;
    }
    for (const Ast *dim = type->child; dim; dim = dim->next)
        if (strcmp(dim->name, "...") == 0)
            error_at(r->diags, (Where){ .at = dim->loc }, "'...' must come before all other dims");
    return type;
}

Ast *output_of(Reading *r, Loc loc, Ast *name, Ast *type, Ast *init)
{
    Ast output = { .kind = A_OUTPUT, .name_loc = name->loc, .name = name->name };
    if (init)
        output.body =
            make_ast(r, (Loc){ name->loc.begin, init->loc.end },
                     (Ast){ .kind = A_ASSIGN, .name_loc = name->loc, .child = name, .type = type, .init = init });
    else
        output.child = name;
    return make_ast(r, loc, output);
}

Ast *take_number(Ast *repeat)
{
    Ast *count = repeat->init;
    if (count->kind == A_CALL && !count->parenthesised) {
        repeat->as = count->as;
        repeat->as_loc = count->as_loc;
        count->as = NULL;
    }
    return repeat;
}

double number_of(Reading *r, const char *from)
{
    char *text = arena_text(r->arena, "%s", from), *to = text;
    for (; *from; from++)
        if (*from != '_') /* strtod alone would stop at it */
            *to++ = *from;
    *to = '\0';
    return strtod(text, NULL);
}

/* --- Permitted contexts of statements -------------------------------------------------------- */

typedef enum {
    IN_FILE = 1,
    IN_BLOCK = 2,
    IN_MODEL = 4,
    IN_REPEAT = 8,
    IN_TRAIN = 16,
    IN_PARALLEL = 32,
    IN_OPTIMIZER = 64,
    IN_SCAN = 128,
    IN_ROUNDS = 256 /* a repeat in an optimizer */
} Place;

static const struct {
    AstKind kind;
    unsigned places;
    const char *belongs;
} statements[] = {
    { A_CONST, IN_FILE, "at the top of the file" },
    { A_DIM, IN_FILE, "at the top of the file" },
    { A_BLOCK, IN_FILE, "at the top of the file" },
    { A_MODEL, IN_FILE, "at the top of the file" },
    { A_TRAIN, IN_FILE, "at the top of the file" },
    { A_PARALLEL, IN_FILE, "at the top of the file" },
    { A_PARAM, IN_BLOCK | IN_MODEL, "in a block or the model, outside of repeat and scan" },
    { A_UPDATE, IN_BLOCK | IN_MODEL, "in the block or model that declares the state, outside of repeat and scan" },
    { A_MEAN, IN_BLOCK | IN_MODEL | IN_REPEAT | IN_SCAN, "in a block or the model" },
    { A_INPUT, IN_MODEL, "in the model" },
    { A_OPTIMIZER, IN_FILE, "at the top of the file" },
    { A_STATE, IN_OPTIMIZER, "in an optimizer" },
    { A_UPDATED, IN_OPTIMIZER, "at the end of an optimizer" },
    { A_GROUP, IN_TRAIN, "in train" },
    { A_ASSIGN, IN_BLOCK | IN_MODEL | IN_REPEAT | IN_SCAN | IN_TRAIN | IN_OPTIMIZER | IN_ROUNDS,
      "in a block, the model, a repeat, a scan, an optimizer or train" },
    { A_REPEAT, IN_BLOCK | IN_MODEL | IN_REPEAT | IN_SCAN | IN_OPTIMIZER | IN_ROUNDS,
      "in a block, the model, a repeat, a scan or an optimizer" },
    { A_SCAN, IN_BLOCK | IN_MODEL | IN_REPEAT | IN_SCAN, "in a block, the model, a repeat or a scan" },
    { A_YIELD, IN_SCAN, "in a scan" },
    { A_RETURN, IN_BLOCK, "at the end of a block" },
    { A_LOSS, IN_MODEL, "at the end of the model" },
    { A_OUTPUT, IN_MODEL, "in the model, outside of repeat and scan" },
    { A_MESH, IN_PARALLEL, "in parallel" },
    { A_SHARD, IN_PARALLEL, "in parallel" },
    { A_PIPELINE, IN_PARALLEL, "in parallel" },
    { A_ZERO, IN_PARALLEL, "in parallel" },
    { A_RECOMPUTE, IN_PARALLEL, "in parallel" },
    { A_OFFLOAD, IN_PARALLEL, "in parallel" },
};

static Place place_in(const Ast *parent, Place place)
{
    switch (parent->kind) {
    case A_BLOCK:
        return IN_BLOCK;
    case A_MODEL:
    case A_OUTPUT:
        return IN_MODEL;
    case A_REPEAT:
        return place == IN_OPTIMIZER || place == IN_ROUNDS ? IN_ROUNDS : IN_REPEAT;
    case A_SCAN:
        return IN_SCAN;
    case A_TRAIN:
        return IN_TRAIN;
    case A_OPTIMIZER:
        return IN_OPTIMIZER;
    default:
        return IN_PARALLEL;
    }
}

/* `name = value` is a setting in train, an assignment elsewhere. */
static void make_setting(Reading *r, Ast *assign)
{
    if (r->tells_places && (assign->child->next || assign->type))
        error_at(r->diags, (Where){ .at = assign->loc }, "a setting consists of one name and its value");
    *assign = (Ast){ .kind = A_SETTING,
                     .loc = assign->loc,
                     .name_loc = assign->child->loc,
                     .name = assign->child->name,
                     .child = assign->init,
                     .next = assign->next,
                     .last = assign->last,
                     .depth = assign->depth };
}

static const char *help_for(const Ast *ast, Place place)
{
    const bool is_param = ast->kind == A_PARAM;
    return is_param && place == IN_REPEAT
               ? "a block has params of its own in each repetition: repeat N { x = layer(x) as h }"
           : is_param && place == IN_SCAN                  ? "declare it before the scan: all positions share it"
           : ast->kind == A_ASSIGN && place == IN_PARALLEL ? "the axes of the mesh: mesh dp = 2, tp = 4"
           : ast->kind == A_ASSIGN && place == IN_FILE
               ? "const N = 3 names a number, dim d = 3 a dim, and train { ... } has settings"
               : NULL;
}

/* The calls that no expression evaluates: settings, initialisers, next(tokens). */
static void check_no_dims(Reading *r, const Ast *ast)
{
    const bool has_init = ast->kind == A_PARAM || ast->kind == A_STATE || ast->kind == A_INPUT,
               has_setting = ast->kind == A_SETTING || ast->kind == A_GROUP || ast->kind == A_RECOMPUTE;
    const Ast *call = has_init ? ast->init : has_setting ? ast->child : NULL;
    if (call && call->dims && r->tells_places)
        error_at(r->diags, (Where){ .at = call->dims->loc, .help = "only a call of a block gives dims in brackets" },
                 "'%s' has no dims in brackets", call->name);
}

static bool may_stand(Reading *r, const Ast *ast, Place place)
{
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (statements[i].kind == ast->kind && !(statements[i].places & place)) {
            if (r->tells_places)
                error_at(r->diags, (Where){ .at = ast->name_loc, .help = help_for(ast, place) }, "this belongs %s",
                         statements[i].belongs);
            return false;
        }
    return true;
}

/* The list without statements in invalid contexts. */
static Ast *keep_placed(Reading *r, Ast *list, Place place)
{
    Ast *kept = NULL, **end = &kept;
    for (Ast *ast = list; ast; ast = ast->next) {
        if (ast->kind == A_PARAM && ast->is_state && place == IN_OPTIMIZER)
            ast->kind = A_STATE;
        const bool stands = may_stand(r, ast, place);
        if (ast->kind == A_ASSIGN && place == IN_TRAIN)
            make_setting(r, ast);
        check_no_dims(r, ast);
        if (ast->body)
            ast->body = keep_placed(r, ast->body, place_in(ast, place));
        if (stands)
            *end = ast, end = &ast->next;
    }
    *end = NULL;
    return kept;
}

/* After a syntax error, the head of a body may be missing, and its statements are none of the author's mistakes. */
Ast *check_places(Reading *r, Ast *file)
{
    r->tells_places = r->diags->errors == 0;
    return keep_placed(r, file, IN_FILE);
}

/* --- What is open ------------------------------------------------------------------------------------ */

const char *open_help(Reading *r, Loc open)
{
    int line, column;
    line_and_column(r->source, open.begin, &line, &column);
    return arena_text(r->arena, "the '%c' at %d:%d is still open", r->source->text[open.begin], line, column);
}

const char *open_brace_help(Reading *r)
{
    if (r->outer.end == 0)
        return open_help(r, r->braces[r->nbraces - 1]);
    int line, column;
    line_and_column(r->source, r->outer.begin, &line, &column);
    return arena_text(r->arena, "%s where '%.*s' begins at %d:%d", open_help(r, r->around),
                      r->outer.end - r->outer.begin, r->source->text + r->outer.begin, line, column);
}
