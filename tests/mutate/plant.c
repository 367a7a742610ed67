/* plant.c -- faults in sharding. */
#include "plant.h"

#include <string.h>

/* --- Which ops ------------------------------------------------------------------------------------------ */

static bool reduces(Module *m, Func *f, Op *op) { return op->kind == OP_all_reduce || op->kind == OP_reduce_scatter; }
static bool all_reduces(Module *m, Func *f, Op *op) { return op->kind == OP_all_reduce; }
static bool is_sent(Module *m, Func *f, Op *op)
{
    return info(op)->family == COLLECTIVE && !(info(op)->traits & CARRIES);
}

static bool moves(Module *m, Func *f, Op *op) { return is_sent(m, f, op) && !reduces(m, f, op); }
static bool drops_out(Module *m, Func *f, Op *op) { return op->kind == OP_dropout; }
static bool is_zigzag(Module *m, Func *f, Op *op) { return is_sent(m, f, op) && op->attrs.zigzag; }

/* Pieces of a dim: see passes/layout/pieces.c. */
static bool is_piece(Module *m, Func *f, Op *op) { return op->kind == OP_slice && ends_with(op->attrs.dim, ".piece"); }
static bool joins_pieces(Module *m, Func *f, Op *op)
{
    return op->kind == OP_concat && arg(op, 0) != arg(op, 1) && type_equal(&arg(op, 0)->type, &arg(op, 1)->type);
}

/* The divisor of the loss of all sequences: a constant, or a count. */
static bool divides_loss(Module *m, Func *f, Op *op)
{
    if (op->kind == OP_constant)
        return is_scale(m, f, op) && op->path && strcmp(op->path, "loss") == 0;
    return op->kind == OP_div && strncmp(arg(op, 1)->name, "total.", 6) == 0;
}

static bool is_square_of_step(Module *m, Func *f, Op *op) { return f->role == STEP && op->kind == OP_square; }

static bool adds_micro_batches(Module *m, Func *f, Op *op) { return adds_terms(op) && ends_with(f->name, ".micro"); }
static bool adds_shares(Module *m, Func *f, Op *op) { return adds_terms(op) && !ends_with(f->name, ".micro"); }

/* --- Changes to ops --------------------------------------------------------------------------------------- */

static int ranks_of_group(const Module *m, const Op *op)
{
    int ranks = 1;
    for (int i = 0; i < m->naxes; i++)
        ranks *= op->attrs.axis >> i & 1 ? (int)m->axis_size[i] : 1;
    return ranks;
}

static bool sum_twice(Module *m, Func *f, Op *op) { return scale_result(m, f, op, ranks_of_group(m, op)); }
static bool average(Module *m, Func *f, Op *op) { return scale_result(m, f, op, 1.0 / ranks_of_group(m, op)); }
/* Every rank divides by its own count. */
static bool count_own_only(Module *m, Func *f, Op *op)
{
    double ranks = 1;
    for (int i = 0; i < m->naxes; i++)
        ranks *= (double)m->axis_size[i];
    return scale_result(m, f, op, ranks);
}

/* A second reduction of a value that is already whole. */
static bool reduce_again(Module *m, Func *f, Op *op)
{
    Value *y = arrived(op);
    if (!y)
        return false;
    Builder b = builder_at(m, f, y->def->next);
    Op *again = BUILD(&b, OP_stop_gradient, NO_ATTRS, y)->def;
    again->kind = OP_all_reduce;
    again->attrs = op->attrs;
    replace_uses(f, y, result(again));
    again->args.at[0] = y;
    return true;
}

static bool forget_constant(Module *m, Func *f, Op *op)
{
    op->attrs.value = 1;
    return true;
}

/* The origin of another rank or micro-batch. */
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

/* Exchanges the operands of two collectives of one type. */
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
    op->attrs.zigzag = 0;
    return true;
}

static bool swap_pieces(Module *m, Func *f, Op *op)
{
    Value *first = arg(op, 0);
    op->args.at[0] = arg(op, 1);
    op->args.at[1] = first;
    return true;
}

static bool repeat_piece(Module *m, Func *f, Op *op)
{
    op->args.at[1] = arg(op, 0);
    return true;
}

static bool next_piece(Module *m, Func *f, Op *op)
{
    const Type *type = &arg(op, 0)->type;
    op->attrs.index = (op->attrs.index + 1) % type->dim[find_dim(type, op->attrs.dim)].size;
    return true;
}

static bool is_put_back(const Func *f, const Value *value)
{
    for (const Op *op = f->first; op; op = op->next)
        if (info(op)->traits & CARRIES && op->args.count == 2 && arg(op, 0) == value)
            return true;
    return false;
}

/* Is this result of the kernel the step's, and nothing else? */
static bool is_new_state(const Module *m, const Func *kernel, const Value *value)
{
    const int at = index_of(&kernel->results, value);
    for (const Func *f = m->funcs; f && at >= 0; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (op->attrs.callee == kernel->name)
                return is_put_back(f, op->results.at[at]) ||
                       (f->role == STEP && index_of(&f->results, op->results.at[at]) >= 0);
    return false;
}

/* Does the mask only make new state finite?  The padding of state gets into no sum of this step. */
static bool masks_state(const Module *m, const Func *kernel, const Op *mask)
{
    bool only = true;
    for (const Op *op = mask->next; op; op = op->next)
        if (index_of(&op->args, result(mask)) >= 0)
            only = only && is_new_state(m, kernel, result(op));
    return only;
}

/* The mask of padding in a rank's part. */
static bool tells_padding(Module *m, Func *f, Op *op)
{
    const Op *index = op->kind == OP_lt ? arg(op, 0)->def : NULL;
    return f->role == KERNEL && !masks_state(m, f, op) && index && index->kind == OP_iota && arg(op, 1)->def &&
           arg(op, 1)->def->kind == OP_constant && result(index)->type.dim[0].split.count;
}

static bool take_padding_too(Module *m, Func *f, Op *op)
{
    arg(op, 1)->def->attrs.value = (double)arg(op, 0)->type.dim[0].padded;
    return true;
}

/* --- The table ------------------------------------------------------------------------------------------------ */

static const Plant plants[] = {
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
    { 'j', "a micro-batch replaces those before it", adds_micro_batches, lose_left },
    { 'j', "a micro-batch does not count", adds_micro_batches, lose_right },
    { 'k', "another group's collective", is_sent, other_group },
    { 'k', "two collectives send each other's tensors", is_sent, swap_operands },
    { 'l', "blocks are dealt straight, not forth and back", is_zigzag, deal_straight },
    { 'l', "padding gets into a sum", tells_padding, take_padding_too },
    { 'l', "two pieces are in each other's place", joins_pieces, swap_pieces },
    { 'l', "a piece is missed", joins_pieces, repeat_piece },
    { 'l', "a message has the next piece", is_piece, next_piece },
};
const PlantList plants_of_ranks = { sizeof plants / sizeof *plants, plants };
