/* offload.c -- puts state of the step, weights that the model reads, and activations into another tier of memory, and
 * moves them to the device where they are read.
 *
 *   func step @step(..., %m: f32[n:12, e])       func step @step(..., %m: f32[n:12, e] on disk)
 *     %1 = call %g, %m {callee=k}                  %2 = move %m : f32[n:12, e]
 *     return %1 as state(w, m)            =>       %1 = call %g, %2 {callee=k}
 *                                                  %3 = move %1, %m {tier=disk} : f32[n:12, e] on disk
 *                                                  return %3 as state(w, m)
 *
 * A function that is called with such a tensor, or in a loop with its slices, gets it as it is, and moves what it
 * reads: a layer has its own weights on the device and no others.  The pass `stacks` then runs the kernels over whole
 * stacks once a copy, with their moves.  What a model in a narrow precision reads are casts of its weights: these are
 * made once a step, and put away.  An activation of a repeat is put away where a layer's forward makes it, if nothing
 * but the layer's backward reads it:
 *
 *   func @h.fwd(%x, %w) {                                 func @h.fwd(%x, %w) {
 *     ...                                                   ...
 *     return %y, %x                             =>          %1 = move %x {tier=disk}
 *   }                                                       return %y, %1
 *                                                         }
 *   %y, %xs = loop %x, %ws {callee=h.fwd, ...}            %y, %xs = loop ... : ..., f32[h.copy:12, ...] on disk
 *   %dx = loop %dy, %ws, %xs {callee=h.bwd, ...}          (which moves its slice to the device)
 *
 * What stays: the smallest tensors, up to a budget, and weights outside of repeats, which the model needs all the time.
 * With `recompute auto` the activations that are put away are those of Module.saved that are to be.
 */
#include "map.h"
#include "rows.h"
#include "tier.h"
#include "uses.h"

#include <stdlib.h>

typedef struct {
    Module *m;
    Arena scratch;
    Map callers; /* Func -> the number of ops that call it */
} Offload;

static Func *plain_callee(const Offload *o, const Op *op)
{
    Func *callee = called_by(o->m, op);
    return callee && callee->role == PLAIN ? callee : NULL;
}

static void count_callers(Offload *o)
{
    o->callers.arena = &o->scratch;
    for (const Func *f = o->m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next) {
            const Func *callee = plain_callee(o, op);
            if (callee)
                map_put(&o->callers, callee, (void *)((intptr_t)map_get(&o->callers, callee) + 1));
        }
}

/* --- What is read where -------------------------------------------------------------------------------- */

/* May the function that is called get its i-th operand as it is? */
static bool passes_on(const Offload *o, const Op *op, int i)
{
    const Func *callee = plain_callee(o, op);
    return callee && i >= op->attrs.carried && (intptr_t)map_get(&o->callers, callee) == 1;
}

static Value *moved_before(Offload *o, Func *f, Op *op, Value *value)
{
    Builder b = builder_at(o->m, f, op);
    b.path = value->port.of ? value->port.of : b.path;
    return BUILD(&b, OP_move, NO_ATTRS, value);
}

/* The value is in that tier from now on: its readers in f get it moved, each in a program, all in a layer. */
static void put_away(Offload *o, Func *f, Value *value, Tier tier)
{
    Value *near = NULL;
    value->type.tier = tier;
    for (Op *op = f->first; op; op = op->next) {
        bool reads = false;
        for (int i = 0; i < op->args.count; i++)
            reads |= arg(op, i) == value && !passes_on(o, op, i);
        if (reads && !(info(op)->traits & CARRIES) && (!near || f->role != PLAIN))
            near = moved_before(o, f, op, value);
        for (int i = 0; i < op->args.count && !(info(op)->traits & CARRIES); i++) {
            if (arg(op, i) != value)
                continue;
            if (passes_on(o, op, i))
                put_away(o, plain_callee(o, op), plain_callee(o, op)->params.at[i], tier);
            else
                op->args.at[i] = near;
        }
    }
}

/* --- Whole programs ------------------------------------------------------------------------------------ */

static const Op *last_reader(const Func *f, const Value *value)
{
    const Op *last = NULL;
    for (const Op *op = f->first; op; op = op->next)
        last = index_of(&op->args, value) >= 0 ? op : last;
    return last;
}

static bool is_before(const Op *a, const Op *b)
{
    while (a && a != b)
        a = a->next;
    return a == b;
}

/* Puts new state where the old one was, when that has been read. */
static void put_back(Offload *o, Func *f, int result, Value *old)
{
    Value *new = f->results.at[result];
    if (new == old)
        return;
    const Op *reader = last_reader(f, old);
    Op *after = new->def && (!reader || is_before(reader, new->def)) ? new->def : (Op *)reader;
    Builder b = builder_at(o->m, f, after ? after->next : f->first);
    b.path = old->port.of ? old->port.of : b.path;
    f->results.at[result] = BUILD(&b, OP_move, ((Attrs){ .tier = old->type.tier }), new, old);
}

static void put_state_back(Offload *o, Func *f)
{
    const StepState state = state_of(f);
    for (int i = 0; i < state.count; i++)
        if (state.before[i]->type.tier)
            put_back(o, f, f->results.count - state.count + i, state.before[i]);
}

/* The port's parameter in the other programs, which share its memory. */
static void put_away_everywhere(Offload *o, Func *step, Value *state, Tier tier)
{
    for (Func *f = o->m->funcs; f; f = f->next) {
        const bool is_entry = is_program(f);
        Value *own = is_entry ? param_with(f, state->port) : NULL;
        if (own)
            put_away(o, f, own, tier);
    }
}

/* --- Which -------------------------------------------------------------------------------------------- */

/* Does the model read the parameter itself, rather than a cast of it?  If the update of the last step comes first, it
 * reads the new one. */
static bool is_read_by_model(const Offload *o, const Func *step, const Value *param)
{
    const Value *new = step->results.at[result_at(step, param->port)];
    bool is_read = false;
    for (const Op *op = step->first; op && !is_read; op = op->next)
        is_read = (index_of(&op->args, param) >= 0 || index_of(&op->args, new) >= 0) && plain_callee(o, op);
    return is_read;
}

/* The tier for a state of the step. */
static Tier tier_for(const Offload *o, const Func *step, const Value *state)
{
    const Train *t = &o->m->train;
    if (state->port.kind == PORT_OPTIMIZER)
        return t->offload_optimizer;
    if (state->port.kind != PORT_PARAM || !state->type.rank)
        return ON_DEVICE;
    if (!is_read_by_model(o, step, state))
        return t->offload_optimizer;
    return is_of_repeat(o->m, state->port) ? t->offload_params : ON_DEVICE;
}

typedef struct {
    Value *value;
    Tier tier;
    int64_t bytes;
    int number;
} Candidate;

static Candidate candidate(const Offload *o, Value *value, Tier tier, int number)
{
    return (Candidate){ value, tier, local_bytes(o->m, &value->type), number };
}

static int smaller_first(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1) : x->number - y->number;
}

/* How many of them stay: small ones do, since a transfer costs as much as some hundred kilobytes. */
static int count_kept(const Module *m, const Candidate *all, int count)
{
    enum { SMALL_PART = 256 };
    int64_t sum = 0, kept = 0;
    int n = 0;
    for (int i = 0; i < count; i++)
        sum += all[i].bytes;
    const int64_t budget = m->train.offload_keep > sum / SMALL_PART ? m->train.offload_keep : sum / SMALL_PART;
    while (n < count && kept + all[n].bytes <= budget)
        kept += all[n++].bytes;
    return n;
}

static int find_candidates(Offload *o, const Func *step, Candidate *all)
{
    int count = 0;
    for (int i = first_state(step); i < step->params.count; i++) {
        Value *state = step->params.at[i];
        const Tier tier = tier_for(o, step, state);
        if (tier)
            all[count++] = candidate(o, state, tier, i);
    }
    return count;
}

/* The weight of a repeat that a kernel reads and nothing else; NULL: it is another one. */
static const Value *weight_cast(const Offload *o, const Op *call)
{
    const Value *read = call->args.count == 1 && call->attrs.callee && !plain_callee(o, call) ? arg(call, 0) : NULL;
    const Value *weight = read && read->def && info(read->def)->traits & CARRIES ? arg(read->def, 0) : read;
    return weight && weight->port.kind == PORT_PARAM && is_of_repeat(o->m, weight->port) ? weight : NULL;
}

/* Do only functions read it, which can get it as it is? */
static bool is_only_passed_on(const Offload *o, const Func *f, const Value *value)
{
    bool only = index_of(&f->results, value) < 0;
    for (const Op *op = f->first; op && only; op = op->next)
        for (int i = 0; i < op->args.count && only; i++)
            only = arg(op, i) != value || passes_on(o, op, i);
    return only;
}

static int count_results(const Func *f)
{
    int results = 0;
    for (const Op *op = f->first; op; op = op->next)
        results += op->results.count;
    return results;
}

static int find_casts(Offload *o, const Func *f, Candidate *all)
{
    int count = 0;
    for (const Op *op = f->first; op; op = op->next) {
        const Value *weight = weight_cast(o, op);
        for (int i = 0; weight && i < op->results.count; i++) {
            Value *cast = op->results.at[i];
            if (same_dims(&cast->type, &weight->type) && is_only_passed_on(o, f, cast)) {
                all[count] = candidate(o, cast, o->m->train.offload_params, count);
                count++;
            }
        }
    }
    return count;
}

/* The functions that are called get what has been put away. */
static void put_cast_away(Offload *o, Func *f, Value *cast, Tier tier)
{
    Builder b = builder_at(o->m, f, cast->def->next);
    Value *far = BUILD(&b, OP_move, ((Attrs){ .tier = tier }), cast);
    for (Op *next = far->def->next; next; next = next->next)
        replace_value(&next->args, cast, far);
    put_away(o, f, far, tier);
}

/* --- Activations ----------------------------------------------------------------------------------------- */

/* Is it a residual that `recompute auto` has chosen to put away?  Without it, all are. */
static bool is_chosen(const Offload *o, const Func *f, const Value *stack)
{
    if (o->m->train.recompute != RECOMPUTE_AUTO)
        return true;
    for (const Op *op = f->first; op; op = op->next) {
        const Func *reader = index_of(&op->args, stack) >= 0 ? plain_callee(o, op) : NULL;
        const SavedValues *saved = reader && reader->forward ? saved_of(o->m, reader->forward) : NULL;
        const Port *port = reader ? &reader->params.at[index_of(&op->args, stack)]->port : NULL;
        for (int i = 0; saved && i < saved->count; i++)
            if (saved->away[i] && port->kind == PORT_FORWARD && port->of == saved->away[i])
                return true;
    }
    return false;
}

/* Is it a stack of a callee's results in a loop, and do only functions read it? */
static bool is_stack_for_later(const Offload *o, const Func *f, const Op *loop, int i)
{
    const Func *body = loop->attrs.dims.count ? plain_callee(o, loop) : NULL;
    return body && i >= loop->attrs.carried && (intptr_t)map_get(&o->callers, body) == 1 &&
           uses_in(f, loop->results.at[i]) > 0 && is_only_passed_on(o, f, loop->results.at[i]) &&
           is_chosen(o, f, loop->results.at[i]);
}

static int find_stacks(Offload *o, const Func *f, Candidate *all)
{
    int count = 0;
    for (const Op *op = f->first; op; op = op->next)
        for (int i = 0; i < op->results.count; i++)
            if (is_stack_for_later(o, f, op, i)) {
                all[count] = candidate(o, op->results.at[i], o->m->train.offload_activations, count);
                count++;
            }
    return count;
}

/* Behind the op that makes it; what the function is given, at its beginning. */
static void put_stack_away(Offload *o, Func *f, Value *stack, Tier tier)
{
    const Op *loop = stack->def;
    Func *body = plain_callee(o, loop);
    Value **slice = &body->results.at[index_of(&loop->results, stack)];
    Builder b = builder_at(o->m, body, (*slice)->def ? (*slice)->def->next : body->first);
    *slice = BUILD(&b, OP_move, ((Attrs){ .tier = tier }), *slice);
    put_away(o, f, stack, tier);
}

/* --- The whole program ------------------------------------------------------------------------------------ */

/* What `find` finds in f, but for the smallest, which stay. */
static void put_found_away(Offload *o, Func *f, int (*find)(Offload *, const Func *, Candidate *),
                           void (*put)(Offload *, Func *, Value *, Tier))
{
    Candidate *all = NEW_ARRAY(&o->scratch, Candidate, f->params.count + count_results(f) + 1);
    const int count = find(o, f, all);
    qsort(all, (size_t)count, sizeof *all, smaller_first);
    for (int i = count_kept(o->m, all, count); i < count; i++)
        put(o, f, all[i].value, all[i].tier);
}

void pass_offload(Module *m);
void pass_offload(Module *m)
{
    Func *step = func_with_role(m, STEP);
    if (!step || !far_tier(m))
        return;
    Offload o = { .m = m };
    count_callers(&o);
    put_found_away(&o, step, find_candidates, put_away_everywhere);
    for (Func *f = m->funcs; f; f = f->next)
        put_state_back(&o, f);
    for (Func *f = m->train.offload_params ? m->funcs : NULL; f; f = f->next)
        if (is_program(f))
            put_found_away(&o, f, find_casts, put_cast_away);
    for (Func *f = m->train.offload_activations ? m->funcs : NULL; f; f = f->next)
        if (f->role == STEP || f->role == PLAIN)
            put_found_away(&o, f, find_stacks, put_stack_away);
    see_rows_in_blocks(m);
    arena_free(&o.scratch);
}
