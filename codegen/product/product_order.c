/* product_order.c -- the memory orders in which a product is one of matrices.
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

enum { LEAST_MULTIPLIED = 8 }; /* times, for which an element is worth a copy */

/* --- The order of a copy --------------------------------------------------------------------------------- */

static int64_t stride_in_memory(const Value *value, Name dim)
{
    return value->storage->stride[find_dim(&value->type, dim)];
}

/* The names as they lie in `like`, outermost first. */
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
 * lie in `like`, innermost or outermost. */
static Names order_of_matrix(const Value *x, const Value *like, const Names *over, bool inside)
{
    const Names summed = sorted_as_in(like, *over);
    Names order = inside ? (Names){ 0 } : summed;
    for (int i = 0; i < x->type.rank; i++)
        if (!has_name(over, x->type.dim[i].name))
            add_name(&order, x->type.dim[i].name);
    for (int i = 0; i < summed.count && inside; i++)
        add_name(&order, summed.name[i]);
    return order;
}

/* Is the innermost dim in memory one of those? */
static bool lies_inside(const Value *x, const Names *names)
{
    for (int i = 0; i < x->type.rank; i++)
        if (x->type.dim[i].size > 1 && x->storage->stride[i] == 1)
            return has_name(names, x->type.dim[i].name);
    return true;
}

/* The dims of a that are kept, then the columns. */
static Names order_of_result(const Value *a, const Value *b, const Value *c)
{
    const Value *operand[] = { a, b };
    Names order = { 0 };
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < operand[side]->type.rank; i++) {
            const Name dim = operand[side]->type.dim[i].name;
            if (find_dim(&c->type, dim) >= 0 && !has_name(&order, dim))
                add_name(&order, dim);
        }
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
        storage->stride[i] = stride;
        stride *= local_size(m, dim);
    }
    copy->storage = storage;
    return copy;
}

/* --- Copies that make matrices ---------------------------------------------------------------------------- */

enum { SIDE_A, SIDE_B, SIDE_C, N_SIDES };

/* A product, and which of its operands and result are copied. */
typedef struct {
    Module *m;
    const Func *kernel;
    const Op *call;
    const Product *planned; /* all products of the kernel */
    int count;
    const Value *value[N_SIDES];
    int at[N_SIDES]; /* in the arguments, then the results, of the call */
    const Names *over;
    int64_t multiplications; /* on one rank */
} Matrices;

static int64_t local_elements(const Module *m, const Type *type)
{
    return local_bytes(m, type) / dtype_bytes(type->dtype);
}

static int64_t count_multiplications(const Module *m, const Value *a, const Value *b)
{
    int64_t count = local_elements(m, &a->type);
    for (int i = 0; i < b->type.rank; i++)
        if (find_dim(&a->type, b->type.dim[i].name) < 0)
            count *= local_size(m, &b->type.dim[i]);
    return count;
}

static int64_t copied_elements(const Matrices *x, int sides)
{
    int64_t count = 0;
    for (int side = 0; side < N_SIDES; side++)
        count += sides & 1 << side ? local_elements(x->m, &x->value[side]->type) : 0;
    return count;
}

/* Several products of a kernel may read one operand: how many of them are naive where its values have these orders?
 * Without an order a value stays as it is. */
static int count_naive(const Matrices *x, const Names order[N_SIDES])
{
    const int nargs = x->call->args.count, nresults = x->call->results.count;
    const Value **lying = NEW_ARRAY(&x->m->arena, const Value *, nargs + nresults);
    int count = 0;
    for (int i = 0; i < nargs + nresults; i++)
        lying[i] = arg_or_result(x->call, i);
    for (int side = 0; side < N_SIDES; side++)
        if (order[side].count)
            lying[x->at[side]] = copy_in_order(x->m, x->value[side], &order[side]);
    for (int i = 0; i < x->count; i++) {
        Product p = x->planned[i];
        p.naive = false;
        shape_product(
            x->m, &p,
            &(ProductValues){ lying[p.a], lying[p.b], lying[nargs + p.c], p.bias < 0 ? NULL : lying[p.bias] });
        count += p.naive;
    }
    return count;
}

/* The orders of these copies.  Rows are copied as they are, or else `turned`. */
static void find_orders(const Matrices *x, int sides, bool turned, Names order[N_SIDES])
{
    const Value *const *v = x->value;
    for (int side = 0; side < N_SIDES; side++) {
        order[side] = (Names){ 0 };
        if (!(sides & 1 << side))
            continue;
        const Value *like = v[sides & 1 << SIDE_B && sides & 1 << SIDE_A ? SIDE_B : !side];
        order[side] = side == SIDE_C ? order_of_result(v[SIDE_A], v[SIDE_B], v[SIDE_C])
                                     : order_of_matrix(v[side], like, x->over, lies_inside(v[side], x->over) != turned);
    }
}

/* Are fewer products naive with these copies?  Then it asks for them. */
static bool copies_help(const Matrices *x, int sides, bool turned, int naive, RequiredLayout wanted[])
{
    Names order[N_SIDES];
    find_orders(x, sides, turned, order);
    if (count_naive(x, order) >= naive)
        return false;
    for (int side = 0; side < N_SIDES; side++)
        if (order[side].count)
            wanted[x->at[side]] = (RequiredLayout){ .copied = true, .order = order[side] };
    return true;
}

/* The cheapest copies that make a matrix product of it; false: there are none that are worth it. */
static bool find_copies(const Matrices *x, RequiredLayout wanted[])
{
    static const Names as_they_are[N_SIDES];
    const int naive = count_naive(x, as_they_are);
    const int first = x->kernel->first == x->kernel->last ? N_SIDES : SIDE_C; /* only a dot alone writes other orders */
    const int64_t most = x->multiplications / LEAST_MULTIPLIED;
    for (int64_t elements = 0, more; elements <= most; elements = more) { /* copies of so many, then of more */
        more = INT64_MAX;
        for (int sides = 1; sides < 1 << first; sides++) {
            const int64_t count = copied_elements(x, sides);
            if (count == elements &&
                (copies_help(x, sides, false, naive, wanted) || copies_help(x, sides, true, naive, wanted)))
                return true;
            more = count > elements && count < more ? count : more;
        }
    }
    return false;
}

static bool want_matrices(Module *m, const Func *kernel, const Op *call, RequiredLayout wanted[])
{
    Product *planned;
    const int count = plan_each_product(m, kernel, call, &planned); /* 0: an error, which is reported */
    for (int i = 0; i < count; i++) {
        const Product *p = &planned[i];
        if (!p->naive || p->a == p->b)
            continue;
        const Value *a = arg(call, p->a), *b = arg(call, p->b);
        const Matrices x = { .m = m,
                             .kernel = kernel,
                             .call = call,
                             .planned = planned,
                             .count = count,
                             .value = { a, b, call->results.at[p->c] },
                             .at = { p->a, p->b, call->args.count + p->c },
                             .over = &p->dot->attrs.over,
                             .multiplications = count_multiplications(m, a, b) };
        if (find_copies(&x, wanted))
            return false; /* the other products are looked at again with these copies */
    }
    return true;
}

/* --- Running sums ------------------------------------------------------------------------------------------ */

static bool want_running_sums(const Module *m, const Func *kernel, const Op *call, RequiredLayout wanted[])
{
    bool good = true;
    for (int i = 0; i < kernel->results.count; i++) {
        Epilogue term[MAX_TERMS];
        if (!terms_of(kernel->results.at[i], term) || !term[0].added)
            continue;
        int at = index_of(&kernel->params, term[0].added), to = call->args.count + i;
        if (sums_in_result(m, arg(call, at), call->results.at[i]))
            continue;
        wanted[at].copied = !is_row_major(m, arg(call, at));
        wanted[to].copied = !is_row_major(m, call->results.at[i]);
        good = false;
    }
    return good;
}

bool products_accept(Module *m, const Func *kernel, const Op *call, RequiredLayout wanted[])
{
    return want_running_sums(m, kernel, call, wanted) && want_matrices(m, kernel, call, wanted);
}
