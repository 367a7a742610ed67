/* product_order.c -- the memory orders that products want.
 *
 * A product whose dims are no matrices where its operands lie is computed by plain loops, tens of times more slowly
 * than by a library.  An operand with the summed dims next to each other, outermost or innermost, makes it one of
 * matrices, and a copy of it is worth its time if each of its elements is multiplied often:
 *
 *   y[row, col, out] = sum of x[row, ky, col, kx, in] * w[ky, kx, in, out]      x as [row, col, ky, kx, in]
 */
#include "product.h"

#include "ir/epilogue.h"
#include "ir/storage.h"

#include <string.h>

enum { LEAST_MULTIPLIED = 8 }; /* times, for which an element is worth a copy */

/* --- The order of a copy --------------------------------------------------------------------------------- */

static int64_t stride_in_memory(const Value *value, Name dim)
{
    return value->storage->stride[find_dim(&value->type, dim)];
}

/* Those of the names that... as they lie in `like`, outermost first. */
static Names sorted_as_in(const Value *like, Names names)
{
    for (int i = 1; i < names.count; i++)
        for (int k = i; k > 0 && stride_in_memory(like, names.name[k - 1]) < stride_in_memory(like, names.name[k]);
             k--) {
            const Name other = names.name[k];
            names.name[k] = names.name[k - 1];
            names.name[k - 1] = other;
        }
    return names;
}

/* The other dims, in the order of the type, by which the dims of the result are ordered, and the summed ones as they
 * lie in `like`; first those that the innermost dim is not one of, so that rows are copied as they are. */
static Names order_of_matrix(const Value *x, const Value *like, const Names *over)
{
    const Names summed = sorted_as_in(like, *over);
    Names others = { 0 };
    bool is_summed_inside = true;
    for (int i = 0; i < x->type.rank; i++)
        if (!has_name(over, x->type.dim[i].name)) {
            add_name(&others, x->type.dim[i].name);
            is_summed_inside &= x->type.dim[i].size == 1 || x->storage->stride[i] != 1;
        }
    const Names *first = is_summed_inside ? &others : &summed, *last = is_summed_inside ? &summed : &others;
    Names order = *first;
    for (int i = 0; i < last->count; i++)
        add_name(&order, last->name[i]);
    return order;
}

/* A value as its copy in that order lies. */
static Value *copy_in_order(Module *m, const Value *x, const Names *order)
{
    Value *copy = NEW(&m->arena, Value);
    *copy = *x;
    Storage *storage = NEW(&m->arena, Storage);
    int64_t stride = 1;
    for (int i = order->count - 1; i >= 0; i--) {
        Dim *dim = &copy->type.dim[i];
        *dim = x->type.dim[find_dim(&x->type, order->name[i])];
        if (!runs_over_padding(dim))
            dim->padded = dim->size;
        storage->stride[i] = stride;
        stride *= local_size(m, dim);
    }
    copy->storage = storage;
    return copy;
}

/* --- Copies that make matrices ---------------------------------------------------------------------------- */

static int64_t elements(const Module *m, const Type *type)
{
    int64_t count = 1;
    for (int i = 0; i < type->rank; i++)
        count *= local_size(m, &type->dim[i]);
    return count;
}

/* Of multiplications of the dot on one rank. */
static int64_t multiplications(const Module *m, const Value *a, const Value *b)
{
    int64_t count = elements(m, &a->type);
    for (int i = 0; i < b->type.rank; i++)
        if (find_dim(&a->type, b->type.dim[i].name) < 0)
            count *= local_size(m, &b->type.dim[i]);
    return count;
}

/* Several products of a kernel may read one operand: how many of them are naive where the operands of the call lie so?
 */
static int count_naive(Module *m, const Func *kernel, const Op *call, const Product planned[], Value *const lying[])
{
    int count = 0;
    for (int i = 0; i < kernel->results.count; i++) {
        Product p = planned[i];
        if (!p.dot)
            continue;
        p.naive = false;
        shape_product(
            m, &p, &(ProductValues){ lying[p.a], lying[p.b], call->results.at[i], p.bias < 0 ? NULL : lying[p.bias] });
        count += p.naive;
    }
    return count;
}

/* The cheapest copies, of one operand or of both, that make a matrix product of it; false: there are none. */
static bool find_copies(Module *m, const Func *kernel, const Op *call, const Product planned[], const Product *p,
                        Wanted wanted[])
{
    const int at[] = { p->a, p->b };
    const Value *x[] = { arg(call, p->a), arg(call, p->b) };
    const int smaller = elements(m, &x[0]->type) > elements(m, &x[1]->type);
    const int choices[] = { 1 << smaller, 1 << !smaller, 3 };
    const int naive = count_naive(m, kernel, call, planned, call->args.at);
    for (int i = 0; i < 3 && p->a != p->b; i++) {
        Names order[2] = { { 0 } };
        int64_t count = 0;
        Value **lying = NEW_ARRAY(&m->arena, Value *, call->args.count);
        memcpy(lying, call->args.at, (size_t)call->args.count * sizeof *lying);
        for (int side = 0; side < 2; side++)
            if (choices[i] & 1 << side) {
                order[side] = order_of_matrix(x[side], choices[i] == 3 ? x[1] : x[!side], &p->dot->attrs.over);
                lying[at[side]] = copy_in_order(m, x[side], &order[side]);
                count += elements(m, &x[side]->type);
            }
        if (count > multiplications(m, x[0], x[1]) / LEAST_MULTIPLIED ||
            count_naive(m, kernel, call, planned, lying) >= naive)
            continue;
        for (int side = 0; side < 2; side++)
            if (order[side].count)
                wanted[at[side]] = (Wanted){ .copied = true, .order = order[side], .tight = true };
        return true;
    }
    return false;
}

static bool want_matrices(Module *m, const Func *kernel, const Op *call, Wanted wanted[])
{
    Product *planned = NEW_ARRAY(&m->arena, Product, kernel->results.count + 1);
    for (int i = 0; i < kernel->results.count; i++)
        if (!is_kept_operand(kernel, kernel->results.at[i]) && !plan_product(m, kernel, call, i, &planned[i]))
            return true; /* an error, which is reported */
    for (int i = 0; i < kernel->results.count; i++)
        if (planned[i].dot && planned[i].naive && find_copies(m, kernel, call, planned, &planned[i], wanted))
            return false; /* the other products are looked at again with these copies */
    return true;
}

/* --- Running sums ------------------------------------------------------------------------------------------ */

static bool want_running_sums(const Module *m, const Func *kernel, const Op *call, Wanted wanted[])
{
    bool good = true;
    for (int i = 0; i < kernel->results.count; i++) {
        Epilogue epilogue;
        if (!find_epilogue(kernel->results.at[i], &epilogue) || !epilogue.added)
            continue;
        int at = index_of(&kernel->params, epilogue.added), to = call->args.count + i;
        if (product_goes_on(m, arg(call, at), call->results.at[i]))
            continue;
        wanted[at].copied = !is_row_major(m, arg(call, at));
        wanted[to].copied = !is_row_major(m, call->results.at[i]);
        good = false;
    }
    return good;
}

bool products_take(Module *m, const Func *kernel, const Op *call, Wanted wanted[])
{
    return want_running_sums(m, kernel, call, wanted) && want_matrices(m, kernel, call, wanted);
}
