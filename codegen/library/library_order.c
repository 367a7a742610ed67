/* library_order.c -- the memory orders that the runtime's kernels support, and the order into which other operands are
 * copied. */
#include "library.h"

#include "ir/storage.h"

/* --- Orders that are always supported ------------------------------------------------------------------------ */

Names order_own(const Operands *o, int operand) { return dim_names(&o->value[operand]->type); }

static void add_those_of(const Value *value, Names *names, Name dim)
{
    if (dim && find_dim(&value->type, dim) >= 0)
        add_name(names, dim);
}

/* Of a gather: dims of the table before the row that the index lacks, those of both, the row or the index's own ones,
 * others. */
static Names gather_order(const Type *table, const Type *index, Name row, const Value *value)
{
    const int at = find_dim(table, row);
    Names names = { 0 };
    for (int i = 0; i < at; i++)
        if (find_dim(index, table->dim[i].name) < 0)
            add_those_of(value, &names, table->dim[i].name);
    for (int i = 0; i < table->rank; i++)
        if (i != at && find_dim(index, table->dim[i].name) >= 0)
            add_those_of(value, &names, table->dim[i].name);
    for (int i = 0; i < index->rank; i++)
        if (is_dim_of_index_alone(table, &index->dim[i], row))
            add_those_of(value, &names, index->dim[i].name);
    if (!has_name(&names, row))
        add_those_of(value, &names, row);
    for (int i = at + 1; i < table->rank; i++)
        if (find_dim(index, table->dim[i].name) < 0)
            add_those_of(value, &names, table->dim[i].name);
    return names;
}

Names order_gather(const Operands *o, int operand)
{
    return gather_order(&o->value[0]->type, &o->value[1]->type, o->op->attrs.dim, o->value[operand]);
}

Names order_scatter_add(const Operands *o, int operand)
{
    return gather_order(&o->value[o->count - 1]->type, &o->value[1]->type, o->op->attrs.dims.dim[0].name,
                        o->value[operand]);
}

Names rope_others(const Operands *o)
{
    const Attrs *a = &o->op->attrs;
    const Type *x = &o->value[0]->type;
    const Value *position = operand_named(o, OPERAND_position);
    Names names = { 0 };
    for (int alone = 0; alone < 2; alone++)
        for (int i = 0; i < x->rank; i++)
            if (x->dim[i].name != a->seq && x->dim[i].name != a->feature &&
                (!position || find_dim(&position->type, x->dim[i].name) < 0) == (alone == 1))
                add_name(&names, x->dim[i].name);
    return names;
}

/* These, then the sequence, then the feature. */
Names order_rope(const Operands *o, int operand)
{
    const Attrs *a = &o->op->attrs;
    const Names others = rope_others(o);
    Names names = { 0 };
    for (int i = 0; i < others.count; i++)
        add_those_of(o->value[operand], &names, others.name[i]);
    add_those_of(o->value[operand], &names, a->seq);
    add_those_of(o->value[operand], &names, a->feature);
    return names;
}

/* All other dims, then the one that is accumulated along. */
Names order_cumulative(const Operands *o, int operand)
{
    Names own = order_own(o, operand), names = { 0 };
    for (int i = 0; i < own.count; i++)
        if (own.name[i] != o->op->attrs.dim)
            add_name(&names, own.name[i]);
    add_name(&names, o->op->attrs.dim);
    return names;
}

/* Dims shared by q and k, dims of q alone, the sequence of queries, of keys, the feature. */
Names order_attend(const Operands *o, int operand)
{
    const Attrs *a = &o->op->attrs;
    const Type *q = &o->value[0]->type, *k = &o->value[1]->type;
    const Value *value = o->value[operand];
    Names names = { 0 };
    for (int alone = 0; alone < 2; alone++)
        for (int i = 0; i < q->rank; i++)
            if (q->dim[i].name != a->seq && q->dim[i].name != a->feature &&
                (find_dim(k, q->dim[i].name) < 0) == (alone == 1))
                add_those_of(value, &names, q->dim[i].name);
    add_those_of(value, &names, a->seq);
    add_those_of(value, &names, a->key);
    add_those_of(value, &names, a->feature);
    return names;
}

/* Other dims, then those of the queue, as in the result. */
Names order_place(const Operands *o, int operand)
{
    (void)operand;
    return order_own(o, 1);
}

/* As place lies; then dims of rows.  Rows by slot: dims of groups, experts, slots, dims of rows. */
Names order_route(const Operands *o, int operand)
{
    const Type *place = &o->value[2]->type, *own = &o->value[operand]->type;
    const Attrs *a = &o->op->attrs;
    const bool is_combine = a->key != NULL;
    Names names = { 0 };
    for (int i = 0; i < place->rank; i++)
        add_those_of(o->value[operand], &names, place->dim[i].name);
    add_those_of(o->value[operand], &names, is_combine ? a->dim : a->dims.dim[0].name);
    add_those_of(o->value[operand], &names, is_combine ? a->key : a->dims.dim[1].name);
    for (int i = 0; i < own->rank; i++)
        if (!has_name(&names, own->dim[i].name))
            add_name(&names, own->dim[i].name);
    return names;
}

/* --- Is the present order supported?
 * -------------------------------------------------------------------------------- */

static bool is_padded(const Type *type)
{
    for (int i = 0; i < type->rank; i++)
        if (!runs_over_padding(&type->dim[i]) && type->dim[i].padded > type->dim[i].size)
            return true;
    return false;
}

/* Tries other orders of operands first; then of results, then removal of padding between rows. */
bool library_accepts(Module *m, const Op *op, RequiredLayout wanted[])
{
    Operands o;
    int count = 0;
    if (!find_operands(m, op, &o))
        return true;
    o.asks = true;
    if (library_body(&o))
        return true;
    for (int i = 0; i < o.count; i++)
        wanted[i].order = i < op->args.count ? library_order(&o, i) : order_own(&o, i);
    for (int i = 0; i < op->args.count; i++)
        count += wanted[i].copied = !lies_in_order(m, o.value[i], &wanted[i].order);
    for (int i = op->args.count; i < o.count && !count; i++)
        wanted[i].copied = !is_row_major(m, o.value[i]);
    for (int i = op->args.count; i < o.count; i++)
        count += wanted[i].copied;
    for (int i = 0; i < op->args.count && !count; i++)
        wanted[i].copied = wanted[i].tight = is_padded(&o.value[i]->type);
    return false;
}
