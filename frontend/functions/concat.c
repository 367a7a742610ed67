/* concat.c -- concat(d, a, b, ...): finds the dim of each piece that becomes a part of d, and joins the pieces along d.
 *
 * The dim is found by name.  If each piece has one dim that not all pieces have, it is that one.  If all have the same
 * dims, it is the one that `along` names; else the one of which d is declared as a multiple, independent of the sizes
 * (`dim wide = 2 * embed`, `dim wide = embed + embed`); else, if d is declared by a number, the only one whose size
 * fits.  Ambiguity is an error.
 */
#include "functions.h"

#include <math.h>
#include <string.h>

/* --- Declarations, independent of the sizes in this file -------------------------------------- */

static double trial_of(const Lower *l, const char *name, int trial)
{
    const Symbol *symbol = find_symbol_here(&l->globals, name);
    return !symbol || symbol == l->batch || symbol->is_slots ? NAN
           : symbol->kind == S_DIM                           ? symbol->trial[trial]
                                                             : symbol->number.value;
}

static double value_in_trial(const Lower *l, const Ast *ast, int trial)
{
    const char *op = ast->name ? ast->name : "";
    double a = ast->child ? value_in_trial(l, ast->child, trial) : 0;
    double b = ast->child && ast->child->next ? value_in_trial(l, ast->child->next, trial) : 0;
    if (ast->kind == A_NUMBER || ast->kind == A_NAME)
        return ast->kind == A_NUMBER ? ast->number : trial_of(l, op, trial);
    if (ast->kind == A_UNARY)
        return -a;
    switch (op[0]) {
    case '+':
        return a + b;
    case '-':
        return a - b;
    case '*':
        return a * b;
    case '/':
        return a / b;
    case '%':
        return fmod(a, b);
    case '^':
        return pow(a, b);
    default:
        return strcmp(op, "sqrt") == 0      ? sqrt(a)
               : strcmp(op, "minimum") == 0 ? fmin(a, b)
               : strcmp(op, "maximum") == 0 ? fmax(a, b)
                                            : NAN;
    }
}

static bool names_a_dim(const Lower *l, const Ast *expr, const char *only)
{
    const Symbol *symbol = expr->kind == A_NAME ? find_symbol_here(&l->globals, expr->name) : NULL;
    if (symbol && symbol->kind == S_DIM && (!only || strcmp(only, expr->name) == 0))
        return true;
    for (const Ast *child = expr->child; child; child = child->next)
        if (names_a_dim(l, child, only))
            return true;
    return false;
}

/* A dim declared by a number gets an arbitrary size, different in each trial; others follow from their expressions. */
void try_sizes(Lower *l, Symbol *symbol)
{
    for (int trial = 0; trial < TRIALS; trial++) {
        double size = 1009 + 7919 * (double)trial;
        for (const char *c = symbol->name; *c; c++)
            size = fmod(size * 263 + (unsigned char)*c, 1000003);
        bool follows = names_a_dim(l, symbol->ast->child, NULL);
        symbol->trial[trial] = follows ? value_in_trial(l, symbol->ast->child, trial) : size + 2;
    }
}

/* Is d declared as `times` this dim?  Expressions that agree in every trial are considered equal. */
static bool declared_as(const Lower *l, const char *d, int times, const char *dim)
{
    for (int trial = 0; trial < TRIALS; trial++) {
        double whole = trial_of(l, d, trial), parts = times * trial_of(l, dim, trial);
        if (!(fabs(whole - parts) <= 1e-9 * fabs(whole)))
            return false;
    }
    return true;
}

/* --- Choice of the dim ----------------------------------------------------------------------- */

/* The dims that all pieces have, except the micro-batch. */
static Names shared_dims(Lower *l, const Arguments *a)
{
    Names shared = { 0 };
    for (int d = 0; d < a->x[0]->type.rank; d++) {
        Name name = a->x[0]->type.dim[d].name;
        bool all = name != l->m->batch;
        for (int i = 1; all && i < a->count; i++)
            all = find_dim(&a->x[i]->type, name) >= 0;
        if (all)
            add_name(&shared, name);
    }
    return shared;
}

/* Those of `names` that d is declared as a multiple of; if several, the one that the declaration names. */
static Names fit_declaration(Lower *l, const Arguments *a, const Names *names)
{
    Names fit = { 0 }, named = { 0 };
    const Symbol *d = find_symbol_here(&l->globals, a->dims.name[0]);
    for (int i = 0; i < names->count; i++) {
        if (!declared_as(l, d->name, a->count, names->name[i]))
            continue;
        add_name(&fit, names->name[i]);
        if (names_a_dim(l, d->ast->child, names->name[i]))
            add_name(&named, names->name[i]);
    }
    return named.count == 1 ? named : fit;
}

static Names fit_size(Lower *l, const Arguments *a, const Names *names, const Dim *to)
{
    Names fit = { 0 };
    const Symbol *d = find_symbol_here(&l->globals, to->name);
    bool by_number = d->ast && d->ast->child && !names_a_dim(l, d->ast->child, NULL);
    for (int i = 0; by_number && i < names->count; i++)
        if (a->x[0]->type.dim[find_dim(&a->x[0]->type, names->name[i])].size * a->count == to->size)
            add_name(&fit, names->name[i]);
    return fit;
}

static void refuse_choice(Lower *l, const Arguments *a, const Names *fit, const Dim *to)
{
    const char *help = arena_text(l->arena, "%s(%s, ..., along = %s), or dim %s = %d * %s", a->call->name, to->name,
                                  fit->count ? fit->name[0] : "D", to->name, a->count, fit->count ? fit->name[0] : "D");
    Where at = { .at = a->dim_ast[0]->loc, .also = { a->ast[0]->loc, a->ast[1]->loc }, .help = help };
    const char *type = type_words(l, &a->x[0]->type);
    if (fit->count)
        complain(l, at,
                 "pieces %s can be joined along '%s' and along '%s': the declaration of '%s' does not determine which",
                 type, fit->name[0], fit->name[1], to->name);
    else
        complain(l, at, "along which dim are pieces %s joined? '%s' (%lld) is not declared as %d times one of them",
                 type, to->name, (long long)to->size, a->count);
}

/* All pieces have the same dims. */
static Name shared_stretch(Lower *l, const Arguments *a, const Dim *to)
{
    const Names shared = shared_dims(l, a);
    Names fit = fit_declaration(l, a, &shared);
    if (fit.count == 0)
        fit = fit_size(l, a, &shared, to);
    if (fit.count == 1)
        return fit.name[0];
    refuse_choice(l, a, &fit, to);
    return NULL;
}

/* The only dim of a piece that not all have. */
static Name own_stretch(Lower *l, const Arguments *a, int i)
{
    const Type *x = &a->x[i]->type;
    Name own = NULL;
    int count = 0;
    for (int d = 0; d < x->rank; d++)
        for (int other = 0; other < a->count; other++)
            if (find_dim(&a->x[other]->type, x->dim[d].name) < 0) {
                own = x->dim[d].name;
                count++;
                break;
            }
    if (count == 1 && own != l->m->batch)
        return own;
    return complain(l, (Where){ .at = a->ast[i]->loc, .also = { a->ast[i ? 0 : 1]->loc } },
                    count == 1 ? "cannot join %s and %s along the micro-batch"
                               : "cannot join %s with %s and the other pieces: more than one of its dims is missing "
                                 "from another piece",
                    type_words(l, x), type_words(l, &a->x[i ? 0 : 1]->type)),
           NULL;
}

/* The number of dims of pieces that the first one lacks;  -1 after reporting one that cannot be joined with it. */
static int dims_that_differ(Lower *l, const Arguments *a)
{
    const Type *first = &a->x[0]->type;
    int differ = 0;
    for (int i = 1; i < a->count; i++) {
        const Type *x = &a->x[i]->type;
        int own = dims_lacking(x, first).count;
        differ += own;
        if (own <= 1 && x->rank == first->rank && x->dtype == first->dtype)
            continue;
        return complain(
                   l,
                   (Where){ .at = a->ast[i]->loc,
                            .also = { a->ast[0]->loc },
                            .help = "all pieces must have the same dims, in any order, except one each; sum, index or "
                                    "rename the others" },
                   "cannot join %s and %s: they differ in more than one dim", type_words(l, first), type_words(l, x)),
               -1;
    }
    return differ;
}

/* The dim that `along` names, present in every piece. */
static bool along_argument(Lower *l, const Arguments *a, Name *along)
{
    const Ast *ast = a->keyword[0]->child;
    if (ast->kind != A_NAME)
        return complain(l, (Where){ .at = ast->loc }, "'along' must be the name of a dim");
    for (int i = 0; i < a->count; i++)
        if (!need_dim(l, a->x[i], a->ast[i], ast->name, ast->loc, along))
            return false;
    if (*along == l->m->batch)
        complain(l, (Where){ .at = ast->loc }, "'%s' is the micro-batch, along which tensors cannot be joined", *along);
    return *along != l->m->batch;
}

/* stretch[i] of piece i; false after reporting. */
static bool find_stretches(Lower *l, const Arguments *a, const Dim *to, Name stretch[])
{
    Name all = NULL;
    if (a->keyword[0] && !along_argument(l, a, &all))
        return false;
    int differ = dims_that_differ(l, a);
    if (differ < 0 || (!all && differ == 0 && !(all = shared_stretch(l, a, to))))
        return false;
    for (int i = 0; i < a->count; i++)
        if (!(stretch[i] = all ? all : own_stretch(l, a, i)))
            return false;
    return true;
}

/* --- Joining --------------------------------------------------------------------------------- */

static bool pieces_fit(Lower *l, const Arguments *a, const Name stretch[], const Dim *to)
{
    int64_t sum = 0;
    const Type kept = without_dim(a->x[0]->type, stretch[0]);
    for (int i = 0; i < a->count; i++) {
        const Type *x = &a->x[i]->type;
        const Type rest = without_dim(*x, stretch[i]);
        const Names odd = dims_lacking(&rest, &kept);
        Where at = { .at = a->ast[i]->loc, .also = { a->ast[0]->loc } };
        if (find_dim(x, to->name) >= 0)
            return complain(l, at, "%s already has the dim '%s'", type_words(l, x), to->name);
        if (odd.count)
            return complain(l, at, "the pieces are joined along '%s', but %s also has '%s', which %s lacks", stretch[i],
                            type_words(l, x), odd.name[0], type_words(l, &a->x[0]->type));
        sum += x->dim[find_dim(x, stretch[i])].size;
    }
    if (sum != to->size)
        complain(l, (Where){ .at = a->dim_ast[0]->loc }, "the pieces have %lld elements along '%s', which has %lld",
                 (long long)sum, to->name, (long long)to->size);
    return sum == to->size;
}

CALL(concat)
{
    Dim to, so_far = { 0 };
    Name *stretch = NEW_ARRAY(l->arena, Name, a->count);
    Value *y = NULL;
    find_dim_named(l, a->dims.name[0], a->dim_ast[0]->loc, &to);
    if (varies_by_micro_batch(l, to.name))
        return complain(l, (Where){ .at = a->dim_ast[0]->loc },
                        "'%s' is %sthe micro-batch, along which tensors cannot be joined", to.name,
                        to.name == l->m->batch ? "" : "a part of "),
               wrong;
    if (!find_stretches(l, a, &to, stretch) || !pieces_fit(l, a, stretch, &to))
        return wrong;
    for (int i = 0; i < a->count; i++) {
        Value *piece = EMIT(l, OP_rename, ((Attrs){ .dim = stretch[i], .to = to.name }), a->x[i]);
        if (!piece)
            return wrong;
        const Dim *part = &piece->type.dim[find_dim(&piece->type, to.name)];
        so_far.name = to.name;
        so_far.size = so_far.padded = so_far.size + part->size;
        if (i == 0)
            y = piece;
        else
            y = EMIT(l, OP_concat, ((Attrs){ .dims = { 1, { i + 1 < a->count ? so_far : to } } }), y,
                     reorder(l, piece, &y->type));
        if (!y)
            return wrong;
    }
    return tensor_operand(y);
}
