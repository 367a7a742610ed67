/* fuse_epilogue.c -- which ops after a product are its epilogue (ir/epilogue.h) rather than part of a loop.
 *
 *   %1 = dot %y, %w             func kernel @k.h.attn(%y, %w, %b, %x) {
 *   %2 = add %1, %b      =>       ...
 *   %3 = add %x, %2             }
 *   ...                         %3 = call %y, %w, %b, %x {callee=k.h.attn}
 */
#include "epilogue.h"
#include "fuse.h"

/* --- Running sums ----------------------------------------------------------------------------------- */

static int count_readers(const Fusion *p, const Value *value)
{
    const Numbers *readers = map_get(&p->readers, value);
    return (readers ? readers->count : 0) + (map_get(&p->returned, value) != NULL);
}

/* Is each intermediate value from the product to `op` read only by the next op? */
static bool is_chain(const Fusion *p, const Op *op, const Epilogue *epilogue)
{
    while (op != epilogue->dot) {
        op = op_before(epilogue, op);
        if (count_readers(p, result(op)) != 1)
            return false;
    }
    return true;
}

/* A sum that only this op reads, and whose new value the function returns: memory.c can update it in place. */
static bool is_running_sum(const Fusion *p, const Value *sum, const Op *op)
{
    const Numbers *readers = map_get(&p->readers, sum);
    return readers->count == 1 && p->ops[readers->at[0]] == op && !map_get(&p->returned, sum) &&
           map_get(&p->returned, result(op));
}

/* Op i adds a product to a running sum: C += A B. */
static void take_running_sum(Fusion *p, int i)
{
    Epilogue epilogue;
    const Op *op = p->ops[i];
    if (op->results.count != 1 || !find_epilogue(result(op), &epilogue) || !epilogue.added || epilogue.bias ||
        !is_running_sum(p, epilogue.added, op) || !is_chain(p, op, &epilogue))
        return;
    for (const Op *part = op; part != epilogue.dot;)
        if (!merge_after(p, part = op_before(&epilogue, part), op))
            return;
    group_of(p, op)->epilogue = true;
}

/* --- Residuals -------------------------------------------------------------------------------------- */

/* Is it in memory, whichever loops become one kernel?  Those before and after a product do not. */
static bool is_stored(const Fusion *p, const Value *value)
{
    const Numbers *readers = map_get(&p->readers, value);
    bool stored = !value->def || !is_fusible(value->def) || map_get(&p->returned, value);
    for (int i = 0; readers && i < readers->count && !stored; i++)
        stored = !is_fusible(p->ops[readers->at[i]]);
    for (int i = readers ? readers->at[0] : p->n; i < p->n && i < readers->at[readers->count - 1] && !stored; i++)
        stored = info(p->ops[i])->family == PRODUCT;
    return stored;
}

/* If the sum is stored anyway, the product writes it instead of its own result, and a kernel reads one tensor instead
 * of two.  (Else as much is moved as before.)  New state is written over the old one, of which a product may read all.
 */
static bool is_worth_adding(const Fusion *p, const Tail *tail)
{
    return is_stored(p, result(tail->added)) && is_stored(p, tail->residual) && !group_of(p, tail->added)->updates;
}

/* --- Tails ------------------------------------------------------------------------------------------ */

/* Adds to the group what multiplies the product by a slope.  No path leads around: the slope's only reader is the
 * product's. */
static void take_slope(Fusion *p, const Op *dot, const Tail *tail)
{
    const uint64_t stages = group_of(p, dot)->stages;
    if (group_of(p, tail->slope)->stages == stages && group_of(p, tail->multiplied)->stages == stages &&
        merge_after(p, dot, tail->slope))
        merge_after(p, dot, tail->multiplied);
}

/* Adds bias and activation, or bias and residual, to the group: C = activation(A B + bias), C = A B + bias + x. */
static void take_tail(Fusion *p, const Uses *uses, const Op *dot)
{
    Tail tail = find_tail(p->m, p->f, uses, dot);
    if (tail.added && !is_worth_adding(p, &tail))
        tail.sum = tail.added = NULL;
    if (tail.sum && !merge_after(p, dot, tail.sum))
        return;
    if (tail.added && merge_after(p, dot, tail.added))
        group_of(p, dot)->epilogue = true;
    if (tail.activation)
        merge_after(p, dot, tail.activation);
    if (tail.slope)
        take_slope(p, dot, &tail);
}

void take_epilogues(Fusion *p)
{
    const Uses uses = find_uses(&p->m->arena, p->f);
    for (int i = 0; i < p->n; i++)
        take_running_sum(p, i);
    for (int i = 0; i < p->n; i++)
        if (info(p->ops[i])->family == PRODUCT && !group_of(p, p->ops[i])->epilogue)
            take_tail(p, &uses, p->ops[i]);
}
