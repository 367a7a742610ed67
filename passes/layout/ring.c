/* ring.c -- lowers attention with {axis}, whose keys are split like its queries, to steps (Liu et al., "Ring attention
 * with blockwise transformers", arXiv 2310.01889).
 *
 *   %y, %l = attend %q, %k, %v {axis=cp}                   keys and values travel: after step s, each rank has the
 *                                                          block of the rank s behind it
 *   =>  %y0, %l0 = attend %q, %k, %v {own}
 *       %k1 = rotate %k {dim=key, axis=cp, index=1}        %v1 likewise: they start before the attend above
 *       %y1, %l1 = attend %q, %k1, %v1 {own}
 *       %l = lse_add %l0, %l1                              the merged sum of exponentials, in f32
 *       %s = lse_share %l0, %l
 *       %y = %y0 * %s + %y1 * (1 - %s)
 *
 * In the gradient, dk and dv of a block travel with it, each rank adds its term, and a last turn brings them home.
 * Blocks that no rank sees, with a window, are left out: the next turn is longer.
 */
#include "ring.h"
#include "simplify/cleanup.h"

typedef struct {
    Builder b;
    const Op *op;
    Value *keys[3]; /* k, v, segments: of the block at hand; NULL: none */
    int turn;       /* of this block */
    int64_t *steps; /* of the function so far */
} Ring;

static int64_t ranks_around(const Ring *r)
{
    return r->b.module
        ->axis_size[arg(r->op, 1)->type.dim[find_dim(&arg(r->op, 1)->type, r->op->attrs.key)].split.axis[0]];
}

/* --- Which blocks meet ------------------------------------------------------------------------------- */

typedef struct {
    int64_t begin, end;
} Stretch;

static int blocks_of(const Dim *dim) { return dim->zigzag ? dim->zigzag : 1; } /* of a rank */

/* The elements of a rank's block of that number. */
static Stretch stretch_of(const Dim *dim, int64_t ranks, int64_t rank, int number)
{
    const int64_t length = dim->size / (blocks_of(dim) * ranks);
    const int64_t block = number * ranks + (number % 2 ? ranks - 1 - rank : rank); /* dealt forth and back */
    return (Stretch){ block * length, (block + 1) * length };
}

static bool stretches_meet(const Attrs *a, Stretch queries, Stretch keys)
{
    const int64_t least = queries.begin - (keys.end - 1),
                  most = queries.end - 1 - keys.begin; /* keys lie that far back */
    return (!a->causal || most >= 0) && (!a->window || (least < a->window && -most < a->window));
}

/* Does some rank see a key of the block that it has after this turn? */
static bool is_seen(const Ring *r, int turn)
{
    const Value *k = arg(r->op, 1);
    const Dim *dim = &k->type.dim[find_dim(&k->type, r->op->attrs.key)];
    const int64_t ranks = ranks_around(r);
    bool seen = false;
    for (int64_t rank = 0; rank < ranks; rank++)
        for (int i = 0; i < blocks_of(dim); i++)
            for (int j = 0; j < blocks_of(dim); j++)
                seen |= stretches_meet(&r->op->attrs, stretch_of(dim, ranks, rank, i),
                                       stretch_of(dim, ranks, (rank + turn) % ranks, j));
    return seen;
}

/* --- Steps ------------------------------------------------------------------------------------------- */

static Value *rotated(Ring *r, Value *block, int by)
{
    const Attrs attrs = { .dim = r->op->attrs.key,
                          .axis = r->op->attrs.axis,
                          .index = by,
                          .cause = intern_text(r->b.module, "shard.attend") };
    return block && by ? BUILD(&r->b, OP_rotate, attrs, block) : block;
}

/* Rotates the keys on to the next turn whose block is seen; returns by how much, 0: there is none. */
static int next_block(Ring *r)
{
    int turn = r->turn + 1;
    const int ranks = (int)ranks_around(r);
    while (turn < ranks && !is_seen(r, turn))
        turn++;
    const int by = turn < ranks ? turn - r->turn : 0;
    for (int i = 0; i < 3 && by; i++)
        r->keys[i] = rotated(r, r->keys[i], by);
    r->turn += by;
    return by;
}

/* The op on the block at hand. */
static Op *see_block(Ring *r)
{
    Attrs attrs = r->op->attrs;
    Values args = { 0 };
    attrs.axis = 0;
    attrs.own = true;
    for (int i = 0; i < r->op->args.count; i++)
        push_value(&r->b.module->arena, &args, arg(r->op, i));
    args.at[1] = r->keys[0], args.at[2] = r->keys[1];
    if (r->keys[2])
        args.at[args.count - 1] = r->keys[2];
    return build(&r->b, r->op->kind, attrs, args.count, args.at);
}

/* The result takes the place of the op's i-th. */
static void put_result(Ring *r, int i, Value *value)
{
    Value *old = r->op->results.at[i];
    value = build_cast(&r->b, old->type.dtype, value);
    value->name = old->name;
    replace_uses(r->b.func, old, value);
}

/* The term of another block is merged into y and lse. */
static void merge(Ring *r, Value **y, Value **lse, const Op *step)
{
    Builder *b = &r->b;
    const Attrs at = { .step = ++*r->steps };
    Value *of_both = BUILD(b, OP_lse_add, at, *lse, step->results.at[1]);
    Value *share = BUILD(b, OP_lse_share, at, *lse, of_both);
    /* Not the share of the other sum: rounded, the two would not add up to 1, and the gradient would show it. */
    Value *own = BUILD(b, OP_sub, at, build_number(b, 1), share);
    *y = BUILD(b, OP_add, at, BUILD(b, OP_mul, at, *y, share), BUILD(b, OP_mul, at, result(step), own));
    *lse = of_both;
}

static void attend_around(Ring *r)
{
    const Op *step = see_block(r);
    Value *y = result(step), *lse = step->results.at[1];
    while (next_block(r))
        merge(r, &y, &lse, see_block(r));
    put_result(r, 0, y);
    put_result(r, 1, lse);
}

static void attend_back_around(Ring *r)
{
    Op *step = see_block(r);
    Value *sum[3]; /* of dq, dk, dv */
    for (int i = 0; i < 3; i++)
        sum[i] = step->results.at[i];
    for (int by; (by = next_block(r));) {
        const Attrs at = { .step = ++*r->steps };
        step = see_block(r);
        for (int i = 0; i < 3; i++)
            sum[i] =
                BUILD(&r->b, OP_add, at, build_cast(&r->b, F32, rotated(r, sum[i], i ? by : 0)), step->results.at[i]);
    }
    const int home = r->turn ? (int)ranks_around(r) - r->turn : 0;
    for (int i = 0; i < 3; i++)
        put_result(r, i, rotated(r, sum[i], i ? home : 0));
}

void split_keys(const Module *m, Op *op, Type *space)
{
    const int at = op->attrs.seq ? find_dim(space, op->attrs.seq) : -1;
    const int keys = op->attrs.key ? find_dim(space, op->attrs.key) : -1; /* of nine dims it is not there */
    for (const ShardRule *rule = m->rules; rule && at >= 0 && keys >= 0; rule = rule->next) {
        const Dim *seq = &space->dim[at];
        if (!passes_keys_around(m, op, rule) || !seq->split.count || seq->split.axis[0] != rule->axis)
            continue;
        Dim *key = &space->dim[keys];
        key->split = (Split){ .count = 1, .axis = { seq->split.axis[0] } };
        key->zigzag = seq->zigzag;
        op->attrs.axis = 1u << rule->axis;
    }
}

void lower_rings(Module *m, Func *f)
{
    int64_t steps = 0;
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        if (!(info(op)->traits & IN_BLOCKS) || !op->attrs.axis)
            continue;
        const bool is_gradient = op->results.count == 3;
        const int plain = is_gradient ? 6 : 3;
        Ring ring = { .b = builder_at(m, f, op), .op = op, .keys = { arg(op, 1), arg(op, 2) }, .steps = &steps };
        ring.keys[2] = op->args.count > plain ? arg(op, op->args.count - 1) : NULL;
        (is_gradient ? attend_back_around : attend_around)(&ring);
        remove_op(f, op);
    }
    drop_dead(f);
}
