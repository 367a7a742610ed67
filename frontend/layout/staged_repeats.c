/* staged_repeats.c -- the repeats of a model that `pipeline` can divide, and a name of each.
 *
 * Micro-batches pass the stages forward and backward: so gradients must pass the copies, from each to the one before,
 * and there must be some.  They pass what depends on a trained parameter by floating-point numbers alone, through ops
 * that have a gradient.
 */
#include "parallel.h"

#include <string.h>

/* --- Gradients --------------------------------------------------------------------------------------------------- */

static void follow(const Module *m, const Func *f, Map *reached);

static void reach(Map *reached, Value *value)
{
    if (is_float(value->type.dtype))
        map_put(reached, value, value);
}

/* Does a gradient of the results pass to an operand?  A MAP has a formula for each. */
static bool has_gradient(const Op *op, int operand) { return !info(op)->forward || info(op)->gradient[operand]; }

/* What a loop carries reaches the next turn, too. */
static bool carries_back(const Op *op, const Func *callee, Map *reached)
{
    bool more = false;
    for (int i = 0; i < (int)op->attrs.carried; i++)
        if (map_get(reached, callee->results.at[i]) && !map_get(reached, callee->params.at[i])) {
            reach(reached, callee->params.at[i]);
            more = true;
        }
    return more;
}

static void follow_call(const Module *m, const Op *op, Map *reached)
{
    const Func *callee = find_func(m, op->attrs.callee);
    for (int i = 0; i < op->args.count; i++)
        if (map_get(reached, arg(op, i)))
            reach(reached, callee->params.at[i]);
    do
        follow(m, callee, reached);
    while (carries_back(op, callee, reached));
    for (int i = 0; i < op->results.count; i++)
        if (map_get(reached, callee->results.at[i]))
            reach(reached, op->results.at[i]);
}

/* Adds the ops that depend on reached ones. */
static void follow(const Module *m, const Func *f, Map *reached)
{
    for (const Op *op = f->first; op; op = op->next) {
        if (op->attrs.callee)
            follow_call(m, op, reached);
        for (int i = 0; i < op->args.count && !op->attrs.callee; i++)
            for (int j = 0; j < op->results.count && has_gradient(op, i) && map_get(reached, arg(op, i)); j++)
                reach(reached, op->results.at[j]);
    }
}

/* Do copies pass gradients of trained parameters to the copies before? */
static bool hands_on(const Module *m, const Op *loop, const Map *trained, Arena *arena)
{
    Map reached = { .arena = arena };
    bool any = false;
    const Func *copy = find_func(m, loop->attrs.callee);
    for (int i = 0; i < (int)loop->attrs.carried; i++)
        if (map_get(trained, copy->params.at[i]))
            reach(&reached, copy->params.at[i]);
    follow(m, copy, &reached);
    for (int i = 0; i < (int)loop->attrs.carried; i++)
        any |= map_get(&reached, copy->results.at[i]) != NULL;
    return any;
}

/* Does the divisor of the loss depend on the copies?  It is computed before the stages begin. */
static bool counts_for_loss(const Module *m, Name copies)
{
    const Func *totals = func_with_role(m, TOTALS);
    for (const Op *op = totals ? totals->first : NULL; op; op = op->next)
        if (op->attrs.callee && op->attrs.dims.count && op->attrs.dims.dim[0].name == copies)
            return true;
    return false;
}

/* --- Names ------------------------------------------------------------------------------------------------------- */

static bool is_of_one_repeat(const Lower *l, const RepeatName *named)
{
    for (const RepeatName *r = l->noted.repeated; r; r = r->next)
        if (strcmp(r->name, named->name) == 0 && r->whole != named->whole)
            return false;
    return true;
}

/* A run without instances is noted as its function is called. */
static bool is_word_of_file(const char *name) { return !strchr(name, '.') && strcmp(name, "repeat") != 0; }

/* A name of the repeat whose copies a loop runs; NULL: there is none.  Of several that which was noted last: the
 * instance around the repeat, else the const, else its first instance. */
static const RepeatName *name_of_loop(const Lower *l, const Op *loop)
{
    const RepeatName *r = l->noted.repeated;
    while (r && (r->dim != loop->attrs.dims.dim[0].name || !is_word_of_file(r->name) || !is_of_one_repeat(l, r)))
        r = r->next;
    return r;
}

void name_repeats(Lower *l)
{
    Module *m = l->m;
    Map trained = { .arena = l->arena };
    int loops = 0;
    const Func *model = func_with_role(m, MODEL);
    for (int i = 0; i < model->params.count; i++)
        if (model->params.at[i]->port.kind == PORT_PARAM && is_trained(m, model->params.at[i]->port))
            reach(&trained, model->params.at[i]);
    follow(m, model, &trained);
    for (const Op *op = model->first; op; op = op->next) {
        const Dim *dim = op->attrs.callee && op->attrs.dims.count && !op->attrs.scan ? &op->attrs.dims.dim[0] : NULL;
        const bool divides = dim && hands_on(m, op, &trained, l->arena) && !counts_for_loss(m, dim->name);
        const RepeatName *r = divides ? name_of_loop(l, op) : NULL;
        if (r)
            add_name(&m->repeats, intern_text(m, r->name)); /* once: all runs of a repeat have the same name */
        m->copies += r ? dim->size : 0;
        loops += r != NULL;
    }
    if (loops > MAX_REPEATS)
        m->repeats.count = 0;
}
