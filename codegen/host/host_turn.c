/* host_turn.c -- the loop over micro-batches on a GPU, which records one iteration and replays it for all.
 *
 *   if (rt_turn(rt, micro, 64, 2, (const RtSlice[]){ { tokens, 32768 }, { labels, 32768 } })) {
 *       run_micro(rt, arena + 4096, loss, grad_wte, tokens + micro * 8192, labels + micro * 8192);
 *       rt_turn_over(rt);
 *   }
 *
 * A recorded turn has the addresses of the first one, so later slices are copied over the first slice.  That is
 * possible where all else is the same in every turn, and nothing needs the first slice afterwards: it is of an input,
 * which is fed anew for each run, or of a value of the run.
 */
#include "host_loop.h"

#include <inttypes.h>

static bool is_used_from(const Op *op, const Value *value)
{
    for (; op; op = op->next)
        for (int i = 0; i < op->args.count; i++)
            if (viewed(op->args.at[i]) == value)
                return true;
    return false;
}

/* What has been started before the loop may end only after it: a recorded turn stands between the two. */
static bool anything_in_flight(const Func *f, const Op *loop)
{
    int open = 0;
    for (const Op *op = f->first; op && op != loop->next; op = op->next) {
        for (int i = 0; i < op->args.count; i++)
            open -= op->args.at[i]->type.in_flight && op != loop;
        for (int i = 0; i < op->results.count; i++)
            open += op->results.at[i]->type.in_flight;
    }
    return open > 0;
}

static bool is_returned(const Func *f, const Value *value)
{
    for (int i = 0; i < f->results.count; i++)
        if (viewed(f->results.at[i]) == value)
            return true;
    return false;
}

/* May the first slice be overwritten?  Slices follow each other without gaps. */
static bool may_overwrite(const LoopText *l, const Value *here, const Value *there)
{
    const Value *whole = viewed(here);
    const Func *f = l->t->f;
    int at = find_dim(&here->type, l->dim);
    int64_t slice = here->storage->stride[at] * dtype_bytes(here->type.dtype);
    return (whole->def || whole->port.kind == PORT_INPUT) && slice == local_bytes(l->t->h->m, &there->type) &&
           !is_used_from(l->op->next, whole) && !is_returned(f, whole);
}

static bool is_sliced(const LoopText *l, const Value *here) { return find_dim(&here->type, l->dim) >= 0; }

static bool is_same_in_all_turns(const LoopText *l)
{
    const Op *op = l->op;
    if (l->copies || op->attrs.reverse || op->results.count != op->attrs.carried || anything_in_flight(l->t->f, op))
        return false;
    for (int i = 0; i < op->args.count; i++) {
        const Value *here = op->args.at[i], *there = l->callee->params.at[i];
        if (i < op->attrs.carried ? !is_carried_in_place(op, l->callee, i)
                                  : is_sliced(l, here) && !may_overwrite(l, here, there))
            return false;
    }
    return true;
}

/* The condition of the turn; NULL: turns are not recorded. */
const char *turn_condition(LoopText *l)
{
    Arena *arena = &l->t->h->m->arena;
    const Func *f = l->t->f;
    char *slices = "";
    int count = 0;
    if (!l->t->h->dialect->records_turns || (f->role != STEP && f->role != EVAL) || !is_same_in_all_turns(l))
        return NULL;
    for (int i = (int)l->op->attrs.carried; i < l->op->args.count; i++)
        if (is_sliced(l, l->op->args.at[i]) && l->c->takes[i])
            slices = arena_text(arena, "%s%s{ %s, %" PRId64 " }", slices, count++ ? ", " : "",
                                pointer_to(l->t, l->op->args.at[i]),
                                local_bytes(l->t->h->m, &l->callee->params.at[i]->type));
    return arena_text(arena, "rt_turn(rt, %s, %" PRId64 ", %d, %s)", l->index, l->iterations, count,
                      count ? arena_text(arena, "(const RtSlice[]){ %s }", slices) : "NULL");
}

/* The inputs of which a recorded action of a pipeline reads the first slice, as a list of RtFed; NULL: actions are not
 * recorded.  Unlike turns, actions come back to earlier slices, which are then fed again: so all are of inputs. */
const char *fed_slices(LoopText *l, int *count)
{
    Module *m = l->t->h->m;
    char *list = "";
    *count = 0;
    if (!l->t->h->dialect->records_turns || anything_in_flight(l->t->f, l->op))
        return NULL;
    for (int i = (int)l->op->attrs.carried; i < l->op->args.count; i++) {
        const Value *here = l->op->args.at[i], *there = l->callee->params.at[i];
        if (!is_sliced(l, here))
            continue;
        if (viewed(here)->def || here->storage->base == BY_POINTER || !may_overwrite(l, here, there))
            return NULL;
        list = arena_text(&m->arena, "%s%s{ %" PRId64 ", %" PRId64 " }", list, (*count)++ ? ", " : "",
                          here->storage->at, local_bytes(m, &there->type));
    }
    return list;
}
