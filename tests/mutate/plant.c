/* plant.c -- mistakes, one function each: what they do to one op of a program. */
#include "plant.h"

#include <float.h>
#include <string.h>

/* --- Which ops ------------------------------------------------------------------------------------------ */

static bool reduces(Module *m, Func *f, Op *op) { return op->kind == OP_all_reduce || op->kind == OP_reduce_scatter; }
static bool all_reduces(Module *m, Func *f, Op *op) { return op->kind == OP_all_reduce; }
static bool is_sent(Module *m, Func *f, Op *op) { return info(op)->family == COLLECTIVE; }
static bool moves(Module *m, Func *f, Op *op) { return is_sent(m, f, op) && !reduces(m, f, op); }
static bool drops_out(Module *m, Func *f, Op *op) { return op->kind == OP_dropout; }
static bool is_zigzag(Module *m, Func *f, Op *op) { return is_sent(m, f, op) && op->attrs.zigzag; }

/* A constant that counts: what stands for "less than all" behind the end of a dim may be any such number. */
static bool is_scale(Module *m, Func *f, Op *op)
{
    double value = op->attrs.value;
    return op->kind == OP_constant && is_float(result(op)->type.dtype) && value != 0 && value != 1 && value > -FLT_MAX;
}

/* What the loss of all sequences is divided by: a constant, or what has been counted. */
static bool divides_loss(Module *m, Func *f, Op *op)
{
    if (op->kind == OP_constant)
        return is_scale(m, f, op) && op->path && strcmp(op->path, "loss") == 0;
    return op->kind == OP_div && strncmp(arg(op, 1)->name, "total.", 6) == 0;
}

static bool is_square_of_step(Module *m, Func *f, Op *op) { return f->role == STEP && op->kind == OP_square; }

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static bool adds_terms(const Op *op)
{
    return op->kind == OP_add && is_float(result(op)->type.dtype) && type_equal(&arg(op, 0)->type, &arg(op, 1)->type) &&
           arg(op, 0) != arg(op, 1);
}

static bool adds_micro_batches(Module *m, Func *f, Op *op) { return adds_terms(op) && ends_with(f->name, ".micro"); }
static bool adds_shares(Module *m, Func *f, Op *op) { return adds_terms(op) && !ends_with(f->name, ".micro"); }

/* --- What is done to them --------------------------------------------------------------------------------- */

/* As if somebody had done it already: the type says so, the value is what went in. */
static bool leave_out(Module *m, Func *f, Op *op)
{
    op->kind = OP_stop_gradient;
    op->attrs = NO_ATTRS;
    return true;
}

/* The result times `factor`, for whoever reads it. */
static bool scale_result(Module *m, Func *f, Op *op, double factor)
{
    Builder b = builder_at(m, f, op->next);
    Value *y = result(op);
    Value *scaled = BUILD(&b, OP_mul, NO_ATTRS, y, build_number(&b, factor));
    Op *mul = scaled->def;
    replace_uses(f, y, scaled);
    mul->args.at[0] = y;
    return true;
}

static int ranks_of_group(const Module *m, const Op *op)
{
    int ranks = 1;
    for (int i = 0; i < m->naxes; i++)
        ranks *= op->attrs.axis >> i & 1 ? (int)m->axis_size[i] : 1;
    return ranks;
}

static bool sum_twice(Module *m, Func *f, Op *op) { return scale_result(m, f, op, ranks_of_group(m, op)); }
static bool average(Module *m, Func *f, Op *op) { return scale_result(m, f, op, 1.0 / ranks_of_group(m, op)); }
static bool double_it(Module *m, Func *f, Op *op) { return scale_result(m, f, op, 2); }

/* As if every rank divided by what it has itself. */
static bool count_own_only(Module *m, Func *f, Op *op)
{
    double ranks = 1;
    for (int i = 0; i < m->naxes; i++)
        ranks *= (double)m->axis_size[i];
    return scale_result(m, f, op, ranks);
}

/* A second reduction of what is whole already. */
static bool reduce_again(Module *m, Func *f, Op *op)
{
    Builder b = builder_at(m, f, op->next);
    Value *y = result(op);
    Op *again = BUILD(&b, OP_stop_gradient, NO_ATTRS, y)->def;
    again->kind = OP_all_reduce;
    again->attrs = op->attrs;
    replace_uses(f, y, result(again));
    again->args.at[0] = y;
    return true;
}

static bool double_constant(Module *m, Func *f, Op *op)
{
    op->attrs.value *= 2;
    return true;
}

static bool forget_constant(Module *m, Func *f, Op *op)
{
    op->attrs.value = 1;
    return true;
}

static bool other_instance(Module *m, Func *f, Op *op)
{
    op->attrs.instance++;
    return true;
}

/* Every rank, or every micro-batch, counts from where another one does. */
static bool other_origin(Module *m, Func *f, Op *op)
{
    Builder b = builder_at(m, f, op);
    Value *one = build_op(&b, OP_constant, (Attrs){ .value = 1, .dtype = intern_text(m, "i32") }, 0, NULL);
    op->args.at[2] = BUILD(&b, OP_add, NO_ATTRS, arg(op, 2), one);
    return true;
}

static bool origin_for_key(Module *m, Func *f, Op *op)
{
    op->args.at[1] = arg(op, 2);
    return true;
}

static bool lose_left(Module *m, Func *f, Op *op)
{
    replace_uses(f, result(op), arg(op, 1));
    return true;
}

static bool lose_right(Module *m, Func *f, Op *op)
{
    replace_uses(f, result(op), arg(op, 0));
    return true;
}

/* The group of another axis. */
static bool other_group(Module *m, Func *f, Op *op)
{
    Axes other = 0;
    for (int i = 0; i < m->naxes && !other; i++)
        other = op->attrs.axis >> i & 1 ? 0 : 1u << i;
    op->attrs.axis = other;
    return other != 0;
}

static bool comes_before(const Op *op, const Op *other)
{
    while (op && op != other)
        op = op->next;
    return op != NULL;
}

/* Two collectives that send tensors of one type send each other's. */
static bool swap_operands(Module *m, Func *f, Op *op)
{
    for (Op *other = op->next; other; other = other->next) {
        Value *x = arg(op, 0), *y = other->args.count ? arg(other, 0) : NULL;
        if (other->kind != op->kind || x == y || !type_equal(&x->type, &y->type) ||
            (y->def && !comes_before(y->def, op)))
            continue;
        op->args.at[0] = y;
        other->args.at[0] = x;
        return true;
    }
    return false;
}

static bool deal_straight(Module *m, Func *f, Op *op)
{
    op->attrs.zigzag = false;
    return true;
}

/* --- After the memory pass ---------------------------------------------------------------------------------- */

static bool reads(const Op *op, const Value *value) { return index_of(&op->args, value) >= 0; }

static bool is_read_after(const Op *op, const Value *value)
{
    for (op = op->next; op; op = op->next)
        if (reads(op, value))
            return true;
    return false;
}

/* A value with bytes of its own in this function's frame; made of something, since zeros may share theirs. */
static bool lies_in_frame(const Op *op)
{
    return op->args.count && info(op)->family != VIEW && op->results.count && result(op)->storage &&
           result(op)->storage->at >= 0;
}

/* Made before `op`, and read after it. */
static const Value *living_across(const Op *op)
{
    for (const Op *above = op->prev; above; above = above->prev)
        if (lies_in_frame(above) && is_read_after(op, result(above)))
            return result(above);
    return NULL;
}

static bool is_placed(Module *m, Func *f, Op *op)
{
    return f->role != KERNEL && lies_in_frame(op) && living_across(op) && is_read_after(op, result(op));
}

static bool is_framed(Module *m, Func *f, Op *op)
{
    const Func *callee = op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
    return callee && callee->role != KERNEL && callee->frame && living_across(op);
}

/* What a collective reads that has been started before `op` and is waited for after it. */
static const Value *on_its_way(const Op *op)
{
    for (const Op *above = op->prev; above; above = above->prev)
        if (above->attrs.started && is_read_after(op, result(above)) && arg(above, 0)->storage->at >= 0)
            return arg(above, 0);
    return NULL;
}

static bool is_beside_message(Module *m, Func *f, Op *op)
{
    return f->role != KERNEL && lies_in_frame(op) && !op->attrs.started && on_its_way(op);
}

static bool is_wait(Module *m, Func *f, Op *op) { return op->kind == OP_wait; }

/* Which elements of a rank's part are none of the dim's. */
static bool tells_padding(Module *m, Func *f, Op *op)
{
    const Op *index = op->kind == OP_lt ? arg(op, 0)->def : NULL;
    return f->role == KERNEL && index && index->kind == OP_iota && arg(op, 1)->def &&
           arg(op, 1)->def->kind == OP_constant && result(index)->type.dim[0].split.count;
}

static bool has_rows(Module *m, Func *f, Op *op)
{
    const Type *type = op->results.count ? &result(op)->type : NULL;
    return is_placed(m, f, op) && type->rank > 1 && local_size(m, &type->dim[0]) > 1 &&
           local_size(m, &type->dim[1]) > 1;
}

static bool share_memory(Module *m, Func *f, Op *op)
{
    result(op)->storage->at = living_across(op)->storage->at;
    return true;
}

static bool write_over_message(Module *m, Func *f, Op *op)
{
    result(op)->storage->at = on_its_way(op)->storage->at;
    return true;
}

static bool take_padding_too(Module *m, Func *f, Op *op)
{
    arg(op, 1)->def->attrs.value = (double)arg(op, 0)->type.dim[0].padded;
    return true;
}

static bool share_frame(Module *m, Func *f, Op *op)
{
    op->attrs.frame = living_across(op)->storage->at;
    return true;
}

/* Rows lie half over each other. */
static bool narrow_rows(Module *m, Func *f, Op *op)
{
    int64_t *stride = &result(op)->storage->stride[0];
    bool is_wide = *stride > 1;
    *stride -= is_wide;
    return is_wide;
}

/* --- The table ------------------------------------------------------------------------------------------------ */

const Plant plants[] = {
    { 'a', "a reduction is left out", reduces, leave_out },
    { 'b', "a sum over ranks counts each of them as often as there are ranks", reduces, sum_twice },
    { 'b', "what is whole is reduced again", all_reduces, reduce_again },
    { 'c', "a mean over ranks in place of a sum", reduces, average },
    { 'c', "a scale is twice as large", is_scale, double_constant },
    { 'c', "a scale is forgotten", is_scale, forget_constant },
    { 'd', "what is split is taken for whole, or the other way round", moves, leave_out },
    { 'e', "the norm of the gradient counts a tensor twice", is_square_of_step, double_it },
    { 'f', "the loss is divided by what one rank has", divides_loss, count_own_only },
    { 'g', "a dropout draws another one's numbers", drops_out, other_instance },
    { 'g', "a dropout counts from elsewhere", drops_out, other_origin },
    { 'g', "a dropout does not look at its key", drops_out, origin_for_key },
    { 'h', "a sum loses its first term", adds_shares, lose_left },
    { 'h', "a sum loses its second term", adds_shares, lose_right },
    { 'i', "two values that live at one time share memory", is_placed, share_memory },
    { 'i', "a called function's frame lies over a living value", is_framed, share_frame },
    { 'i', "what is on its way is written over", is_beside_message, write_over_message },
    { 'i', "nobody waits for a message", is_wait, leave_out },
    { 'i', "rows lie over each other", has_rows, narrow_rows },
    { 'j', "a micro-batch replaces those before it", adds_micro_batches, lose_left },
    { 'j', "a micro-batch does not count", adds_micro_batches, lose_right },
    { 'k', "another group's collective", is_sent, other_group },
    { 'k', "two collectives send each other's tensors", is_sent, swap_operands },
    { 'l', "blocks are dealt straight, not forth and back", is_zigzag, deal_straight },
    { 'l', "padding gets into a sum", tells_padding, take_padding_too },
};
const int nplants = sizeof plants / sizeof *plants;
