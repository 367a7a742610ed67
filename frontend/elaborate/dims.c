/* dims.c -- dims by name, and stated types. */
#include "lowering.h"

#include <string.h>

bool varies_by_micro_batch(const Lower *l, Name dim)
{
    const Symbol *symbol = find_symbol_here(&l->globals, dim);
    return dim == l->m->batch || (symbol && (symbol->is_slots || symbol->is_others));
}

bool find_dim_named(Lower *l, const char *name, Loc loc, Dim *dim)
{
    Symbol *symbol = find_symbol(l->scope, name);
    if (symbol)
        symbol->used = true;
    symbol = symbol_in_call(symbol);
    if (!symbol || symbol->kind != S_DIM) {
        NearMiss near = { .name = name };
        for (const Symbol *s = l->globals.newest; s; s = s->next)
            if (s->kind == S_DIM)
                offer(&near, s->name);
        if (symbol)
            complain(l, (Where){ .at = loc }, "'%s' is %s, not a dim", name, symbol_noun(symbol->kind));
        else
            complain(l, (Where){ .at = loc, .help = did_you_mean(l->arena, &near) }, "no dim is named '%s'", name);
        return false;
    }
    *dim = (Dim){ .name = intern_text(l->m, symbol->name), .size = symbol->number.integer, .padded = symbol->padded };
    if (symbol == l->batch || symbol->is_others)
        dim->size = dim->padded = l->batch_size;
    if (symbol->is_slots && dim->size == 0)
        return complain(l, (Where){ .at = loc, .help = "first dispatch(x, chosen, experts, slots)" },
                        "the size of '%s' is computed by dispatch", name);
    return !symbol->wrong;
}

static bool stated_dtype(Lower *l, const Ast *type, DType *dtype)
{
    *dtype = type->name ? dtype_named(type->name) : F32;
    if (*dtype == N_DTYPES) {
        NearMiss near = { .name = type->name };
        for (int i = 0; i < N_DTYPES; i++)
            offer(&near, dtype_name[i]);
        complain(l, (Where){ .at = type->name_loc, .help = did_you_mean(l->arena, &near) }, "no type is named '%s'",
                 type->name);
    } else if (is_half(*dtype)) {
        complain(l, (Where){ .at = type->name_loc, .help = "leave the type out" },
                 "'%s': train.precision determines how floating-point tensors are stored", type->name);
    }
    return *dtype != N_DTYPES && !is_half(*dtype);
}

bool type_of_ast(Lower *l, const Ast *ast, Type *type)
{
    *type = (Type){ 0 };
    bool good = stated_dtype(l, ast, &type->dtype);
    for (const Ast *name = ast->child; name; name = name->next) {
        Dim dim;
        if (strcmp(name->name, "...") == 0) {
            good = false; /* wrong position: reported by the parser */
            continue;
        }
        if (!find_dim_named(l, name->name, name->loc, &dim)) {
            good = false;
            continue;
        }
        if (find_dim(type, dim.name) >= 0) {
            complain(l, (Where){ .at = name->loc, .help = "declare a second dim of that size" },
                     "'%s' occurs twice: the dims of a tensor must be distinct", dim.name);
            good = false;
        } else if (type->rank == MAX_RANK) {
            return complain(l, (Where){ .at = name->loc }, "a tensor has at most %d dims", MAX_RANK);
        } else {
            type->dim[type->rank++] = dim;
        }
    }
    return good;
}

/* Has it a size that is the same for every micro-batch? */
bool is_constant_size(Lower *l, Name name, Loc at)
{
    const bool good = !varies_by_micro_batch(l, name);
    if (!good)
        complain(l, (Where){ .at = at }, "the size of '%s' %s the micro-batch: it cannot be split or merged", name,
                 name == l->m->batch ? "is" : "depends on");
    return good;
}

/* --- Dims that are declared where they are made ------------------------------------------------- */

void excuse_dim(Lower *l, const Ast *made)
{
    if (!made->name || find_symbol(l->scope, made->name))
        return;
    Symbol *symbol = declare(l, &l->globals, S_DIM, made->name, made->name_loc);
    symbol->ast = made;
    symbol->wrong = true;
}

bool find_made_dim(Lower *l, const Ast *made, Constant size, Dim *dim)
{
    if (find_symbol(l->scope, made->name))
        return find_dim_named(l, made->name, made->name_loc, dim);
    const char *help = arena_text(l->arena, "dim %s = %s, in the file", made->name, constant_text(l->arena, size));
    complain(l, (Where){ .at = made->name_loc, .help = help },
             "no dim is named '%s': with numbers of a call or a copy, none is declared here", made->name);
    excuse_dim(l, made);
    return false;
}

/* Does the expression name what no declaration of the file does: an argument of a block, the number of a copy? */
bool is_local(const Lower *l, const Ast *expr)
{
    if (expr->kind == A_NAME && !find_symbol_here(&l->globals, expr->name))
        return true;
    for (const Ast *child = expr->child; child; child = child->next)
        if (is_local(l, child))
            return true;
    return false;
}

/* Is the number other than that of the dim?  Where the file has both, that was compared; sizes that shrink are chosen
 * anew. */
static bool differs(const Lower *l, const Ast *choice, Constant size, const Dim *dim)
{
    const bool is_of_file = !find_symbol(l->scope, choice->name)->meant && !is_local(l, choice->child);
    return !is_of_file && !l->options->shrink && size.value != (double)dim->size;
}

bool find_choice_dim(Lower *l, const Ast *choice, Constant size, Dim *dim)
{
    if (!find_made_dim(l, choice, size, dim))
        return false;
    const bool good = !differs(l, choice, size, dim);
    if (!good)
        complain(l, (Where){ .at = choice->loc }, "'%s' has %lld elements, not %s", dim->name, (long long)dim->size,
                 constant_text(l->arena, size));
    return good;
}
