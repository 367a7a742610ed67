/* resolve.c -- goes through a tree, and finds what each name refers to. */
#include "resolve.h"

#include "builtin_table.h"

#include <stdlib.h>
#include <string.h>

static void walk_expression(Walk *w, const Ast *ast);
static void walk_statements(Walk *w, const Ast *list);

/* --- Expressions -------------------------------------------------------------------------------- */

/* Arguments, options and settings whose value is a word, and no name of the file. */
static bool takes_word(const char *key)
{
    static const char *const keys[] = { "style",     "attend",       "gather",      "grad_dtype", "schedule",
                                        "precision", "grad_storage", "loss_chunks", "optimizer" };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

static void walk_type(Walk *w, const Ast *type)
{
    if (type && type->name)
        add_mention(w, M_WORD, type->name_loc, type->name, NULL);
    use_dims(w, type ? type->child : NULL);
}

static void walk_list(Walk *w, const Ast *list)
{
    for (const Ast *ast = list; ast; ast = ast->next)
        walk_expression(w, ast);
}

static void word(Walk *w, const Ast *ast) { add_mention(w, M_WORD, ast->name_loc, ast->name, NULL); }

/* NAME = VALUE in a call or among options. */
static void walk_keyword(Walk *w, const Ast *keyword, const char *whose)
{
    add_mention(w, M_KEYWORD, keyword->name_loc, keyword->name, NULL)->whose = whose;
    if (keyword->child->kind == A_NAME && takes_word(keyword->name))
        word(w, keyword->child);
    else
        walk_expression(w, keyword->child);
}

static void walk_arguments(Walk *w, const Ast *call)
{
    const bool is_cast = strcmp(call->name, "cast") == 0;
    for (const Ast *ast = call->child; ast; ast = ast->next)
        if (ast->kind == A_KEYWORD)
            walk_keyword(w, ast, call->name);
        else if (is_cast && ast != call->child && ast->kind == A_NAME)
            word(w, ast); /* cast(x, f32) */
        else
            walk_expression(w, ast);
}

/* The branches of an if() may have instances of one name. */
static void name_instance(Walk *w, const Ast *call)
{
    const Level here = { .newest = w->level->newest };
    Declaration *other = find_name(&here, call->as, INSTANCES);
    if (other)
        declares(w, call->as_loc, other);
    else
        declare_name(w, w->level, N_INSTANCE, call->as, call->as_loc, call);
}

static void walk_call(Walk *w, const Ast *call)
{
    if (*call->name && !use_name(w, call->name, call->name_loc, 1 << N_BLOCK | OPTIMIZERS))
        add_mention(w, find_builtin(call->name) ? M_FUNCTION : M_WORD, call->name_loc, call->name, NULL);
    use_dims(w, call->dims);
    walk_arguments(w, call);
    if (call->as)
        name_instance(w, call);
}

static void walk_expression(Walk *w, const Ast *ast)
{
    switch (ast->kind) {
    case A_NAME:
        if (!use_name(w, ast->name, ast->loc, ANY_VALUE))
            word(w, ast);
        break;
    case A_CALL:
        walk_call(w, ast);
        break;
    case A_ARROW: /* a -> b, or 2 -> k */
        walk_expression(w, ast->child);
        use_or_make_dim(w, ast);
        break;
    case A_PARTS:
        walk_expression(w, ast->init);
        use_dims(w, ast->child);
        break;
    case A_JOIN:
        use_dims(w, ast->child);
        use_dim(w, ast->name, ast->name_loc);
        break;
    case A_RANGE:
        walk_list(w, ast->child);
        use_or_make_dim(w, ast);
        break;
    case A_INDEX:
        walk_list(w, ast->child);
        use_dim(w, ast->name, ast->name_loc);
        break;
    case A_KEYWORD:
        walk_keyword(w, ast, NULL);
        break;
    default:
        walk_list(w, ast->child);
    }
}

/* --- Statements --------------------------------------------------------------------------------- */

static void walk_options(Walk *w, const Ast *options, const char *whose)
{
    for (const Ast *ast = options; ast; ast = ast->next)
        if (ast->kind == A_KEYWORD)
            walk_keyword(w, ast, whose);
        else
            add_mention(w, M_KEYWORD, ast->loc, ast->name, NULL)->whose = whose;
}

static void walk_body(Walk *w, const Ast *ast)
{
    Level level = { .range = ast->loc, .outer = w->level };
    w->level = &level;
    if (ast->kind == A_REPEAT && ast->as)
        declare_name(w, &level, N_NUMBER, ast->as, ast->as_loc, ast);
    walk_statements(w, ast->body);
    w->level = level.outer;
}

/* A block, the model or an optimizer, which sees the names of the file. */
static void walk_function(Walk *w, const Ast *ast)
{
    Level level = { .range = ast->loc, .outer = w->level };
    w->level = &level;
    w->holder = ast->name;
    w->in_optimizer = ast->kind == A_OPTIMIZER;
    w->statement = NULL;
    for (const Ast *dim = ast->dims; dim; dim = dim->next)
        declare_name(w, &level, N_DIM, dim->name, dim->loc, dim);
    for (const Ast *arg = ast->child; arg; arg = arg->next) {
        walk_type(w, arg->type);
        if (arg->kind == A_KEYWORD)
            walk_expression(w, arg->child);
        const bool is_tensor = arg->kind == A_ARG && arg->type;
        declare_name(w, &level, is_tensor ? N_ARGUMENT : N_NUMBER, arg->name, arg->name_loc, arg);
    }
    walk_statements(w, ast->body);
    w->level = level.outer;
    w->holder = "";
    w->in_optimizer = false;
}

static void walk_params(Walk *w, const Ast *ast)
{
    walk_type(w, ast->type);
    if (ast->kind == A_PARAM && ast->init->kind == A_NAME)
        word(w, ast->init); /* zeros */
    else
        walk_expression(w, ast->init);
    const NameKind kind = ast->kind == A_STATE || ast->is_state ? N_STATE : N_PARAM;
    for (const Ast *name = ast->child; name; name = name->next)
        declare_name(w, w->level, kind, name->name, name->loc, ast);
}

static void walk_setting(Walk *w, const Ast *ast)
{
    add_mention(w, M_SETTING, ast->name_loc, ast->name, NULL);
    if (ast->child->kind == A_NAME && takes_word(ast->name))
        word(w, ast->child);
    else
        walk_expression(w, ast->child);
}

/* An instance in the model, or the const that is the number of copies of a repeat. */
static void use_instance(Walk *w, const Ast *ast)
{
    Declaration *found = NULL;
    for (Declaration *n = w->names->newest; n; n = n->older)
        if (n->kind == N_INSTANCE && strcmp(n->name, ast->name) == 0 && w->model &&
            w->model->loc.begin <= n->at.begin && n->at.end <= w->model->loc.end)
            found = n; /* the first one in the text */
    if (found)
        add_mention(w, M_USES, ast->loc, ast->name, found);
    else
        use_name(w, ast->name, ast->loc, NUMBERS);
}

/* Of parallel { }. */
static void walk_layout(Walk *w, const Ast *ast)
{
    switch (ast->kind) {
    case A_MESH:
        for (const Ast *axis = ast->child; axis; axis = axis->next) {
            walk_expression(w, axis->child);
            declare_name(w, w->level, N_AXIS, axis->name, axis->name_loc, axis);
        }
        break;
    case A_SHARD:
        use_list(w, ast->child, DIMS);
        use_name(w, ast->name, ast->name_loc, AXES);
        use_list(w, ast->init, DIMS);
        walk_options(w, ast->type, "shard");
        break;
    case A_PIPELINE:
        for (const Ast *name = ast->child; name; name = name->next)
            use_instance(w, name);
        use_list(w, ast->init, AXES);
        walk_options(w, ast->type, "pipeline");
        break;
    case A_ZERO:
        use_list(w, ast->init, AXES);
        walk_options(w, ast->child, "zero");
        break;
    case A_RECOMPUTE:
        word(w, ast->child);
        walk_list(w, ast->child->child);
        break;
    default: /* A_OFFLOAD */
        for (const Ast *name = ast->child; name; name = name->next)
            word(w, name);
        walk_options(w, ast->type, "offload");
    }
}

static void walk_statement(Walk *w, const Ast *ast)
{
    switch (ast->kind) {
    case A_BLOCK:
    case A_MODEL:
    case A_OPTIMIZER:
        walk_function(w, ast);
        break;
    case A_CONST:
    case A_DIM:
        walk_list(w, ast->child);
        if (ast->type)
            walk_expression(w, ast->type);
        break;
    case A_TRAIN:
    case A_PARALLEL:
        walk_statements(w, ast->body);
        break;
    case A_PARAM:
    case A_STATE:
        walk_params(w, ast);
        break;
    case A_INPUT:
        walk_type(w, ast->type);
        if (ast->init)
            walk_expression(w, ast->init);
        declare_name(w, w->level, N_INPUT, ast->name, ast->name_loc, ast);
        break;
    case A_ASSIGN:
        walk_expression(w, ast->init);
        walk_type(w, ast->type);
        for (const Ast *name = ast->child; name; name = name->next)
            assign(w, w->level, name->name, name->loc);
        break;
    case A_YIELD:
        walk_expression(w, ast->init);
        walk_type(w, ast->type);
        assign(w, w->level->outer, ast->name, ast->name_loc);
        break;
    case A_UPDATE:
        walk_expression(w, ast->init);
        use_name(w, ast->name, ast->name_loc, 1 << N_STATE);
        break;
    case A_REPEAT:
        walk_expression(w, ast->init);
        walk_body(w, ast);
        break;
    case A_SCAN:
        use_dim(w, ast->name, ast->name_loc);
        walk_options(w, ast->type, "scan");
        walk_body(w, ast);
        break;
    case A_SETTING:
        walk_setting(w, ast);
        break;
    case A_OUTPUT:
        walk_list(w, ast->child);
        walk_statements(w, ast->body);
        break;
    case A_RETURN:
    case A_LOSS:
    case A_UPDATED:
    case A_GROUP:
        walk_list(w, ast->child);
        break;
    default:
        walk_layout(w, ast);
    }
}

static void walk_statements(Walk *w, const Ast *list)
{
    for (const Ast *ast = list; ast; ast = ast->next) {
        w->statement = ast;
        walk_statement(w, ast);
    }
}

/* --- The file ----------------------------------------------------------------------------------- */

static void declare_globals(Walk *w, const Ast *file)
{
    static const struct {
        AstKind kind;
        NameKind name;
    } declarations[] = {
        { A_CONST, N_CONST },         { A_DIM, N_DIM }, { A_BLOCK, N_BLOCK }, { A_MODEL, N_MODEL },
        { A_OPTIMIZER, N_OPTIMIZER },
    };
    for (const Ast *ast = file; ast; ast = ast->next)
        for (size_t i = 0; i < sizeof declarations / sizeof declarations[0]; i++)
            if (ast->kind == declarations[i].kind)
                declare_name(w, w->level, declarations[i].name, ast->name, ast->name_loc, ast);
    for (const Ast *ast = file; ast; ast = ast->next)
        w->model = ast->kind == A_MODEL ? ast : w->model;
}

/* The dims that `top_k(x, d, 2 -> k)` and `x[d = a : b -> e]` declare, before any block is looked at: those that
 * neither the file has nor, in its brackets, the block. */
static void declare_made(Walk *w, const Ast *ast, const Ast *block)
{
    const bool is_choice = ast->kind == A_CALL && strcmp(ast->name, "top_k") == 0;
    for (const Ast *child = ast->child; child; child = child->next) {
        const bool makes = child->name && (child->kind == A_RANGE || (is_choice && child->kind == A_ARROW));
        bool is_given = false;
        for (const Ast *dim = block->dims; dim; dim = dim->next)
            is_given |= makes && strcmp(dim->name, child->name) == 0;
        if (makes && !is_given && !find_name(w->level, child->name, DIMS))
            declare_name(w, w->level, N_DIM, child->name, child->name_loc, child);
    }
    const Ast *const lists[] = { ast->init, ast->child, ast->body };
    for (int i = 0; i < 3; i++)
        for (const Ast *child = lists[i]; child; child = child->next)
            declare_made(w, child, block);
}

/* What the layout names stands in the blocks and the model: it is looked at last. */
static void walk_file(Walk *w, const Ast *file)
{
    for (int last = 0; last < 2; last++)
        for (const Ast *ast = file; ast; ast = ast->next)
            if ((ast->kind == A_PARALLEL) == last) {
                w->statement = ast;
                walk_statement(w, ast);
            }
}

static int by_place(const void *a, const void *b)
{
    const Mention *first = a, *second = b;
    return (first->at.begin > second->at.begin) - (first->at.begin < second->at.begin);
}

void find_names(NameTable *names, const Ast *file, int length)
{
    Level globals = { .range = { 0, length } };
    Walk walk = { .names = names, .level = &globals, .holder = "" };
    declare_globals(&walk, file);
    for (const Ast *ast = file; ast; ast = ast->next)
        declare_made(&walk, ast, ast);
    walk_file(&walk, file);
    if (names->count)
        qsort(names->mention, (size_t)names->count, sizeof *names->mention, by_place);
}
