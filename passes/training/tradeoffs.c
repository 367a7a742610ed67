/* tradeoffs.c -- which sets of residuals can be saved, what each takes and what it costs.
 *
 * A forward function is looked at from its end.  What the backward reads is needed.  A value that is needed is saved,
 * which takes bytes; or it is computed again, which takes FLOPs, and then the operands of its op are needed too.  Of
 * the partial choices that need the same of the rest only those stay that no other one beats in bytes and in FLOPs.  At
 * the beginning nothing is needed any more, and what has stayed is all that is worth trying.  Nothing is left out,
 * unless there are more than MOST_PARTIAL partial choices at a time (fewer where a function has many values, LARGEST
 * together): then they are thinned out evenly by bytes.
 *
 * Parameters that a loop does not carry are at hand.  Ops that may not run again (see family_for_cost), and calls, save
 * their results.  Several functions: all sums of their choices, thinned out in the same way.
 */
#include "tradeoffs.h"

#include "cost/cost.h"
#include "map.h"
#include "recompute.h"
#include "residuals.h"
#include "uses.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PARTIAL = 2048, LARGEST = 1 << 19, LEAST_PARTIAL = 64, MOST_OF_FUNCTION = 128, MOST_TOGETHER = 256 };

/* --- What there is to choose --------------------------------------------------------------------- */

/* An op, or a parameter that is carried. */
typedef struct {
    Op *op;              /* NULL: a parameter */
    int first, count;    /* its results among the values */
    double flops;        /* over all layers */
    bool repeats, saves; /* may it run again?  May its results be saved? */
} Choice;

typedef struct {
    Func *fwd;
    int nvalues, nchoices, words; /* 64 values a word */
    Value **value;
    double *bytes; /* of each value, over all layers */
    Choice *choice;
    Map number; /* of a value, + 1 */
    Labels labels;
    uint64_t *wanted; /* what the backward reads */
} Space;

static bool has(const uint64_t *set, int number) { return set[number / 64] >> number % 64 & 1; }
static void put(uint64_t *set, int number) { set[number / 64] |= (uint64_t)1 << number % 64; }
static void drop(uint64_t *set, int number) { set[number / 64] &= ~((uint64_t)1 << number % 64); }

static int number_of(const Space *space, const Value *value)
{
    return (int)(intptr_t)map_get(&space->number, value) - 1;
}

static bool has_backward(const Module *m, const Func *f)
{
    const Func *bwd = m->funcs;
    while (bwd && bwd->forward != f->name)
        bwd = bwd->next;
    return bwd != NULL;
}

/* How often a micro-batch runs f: the layers, and those that hold them. */
static double times_run(const Module *m, const Func *f)
{
    Func *caller;
    const Op *call = call_of(m, f, &caller);
    if (!call || !has_backward(m, caller))
        return 1;
    return times_run(m, caller) * (call->attrs.dims.count ? (double)call->attrs.dims.dim[0].size : 1);
}

/* The values of a function by their names. */
static Map named_values(Arena *arena, const Func *f)
{
    Map named = { .arena = arena };
    for (int i = 0; i < f->params.count; i++)
        map_put(&named, f->params.at[i]->name, f->params.at[i]);
    for (const Op *op = f->first; op; op = op->next)
        for (int i = 0; i < op->results.count; i++)
            map_put(&named, op->results.at[i]->name, op->results.at[i]);
    return named;
}

/* The values of f as the ranks hold them: by name, of `split`. */
static Map split_values(Arena *arena, Module *split, const Func *f)
{
    Func *same = find_func(split, intern_text(split, f->name));
    return same ? named_values(arena, same) : (Map){ .arena = arena };
}

static void add_values(Space *space, const Stages *stages, const Map *split, const Values *values, double times)
{
    for (int i = 0; i < values->count; i++) {
        Value *held = map_get(split, intern_text(stages->split, values->at[i]->name));
        const Module *m = held ? stages->split : stages->whole;
        space->value[space->nvalues] = values->at[i];
        space->bytes[space->nvalues] = times * (double)local_bytes(m, held ? &held->type : &values->at[i]->type);
        map_put(&space->number, values->at[i], (void *)(intptr_t)++space->nvalues);
    }
}

static double flops_of(const Stages *stages, const Map *split, const Op *op)
{
    Value *held = op->results.count ? map_get(split, intern_text(stages->split, result(op)->name)) : NULL;
    bool same = held && held->def && held->def->kind == op->kind;
    return same ? op_work(stages->split, held->def).rank : op_work(stages->whole, op).rank;
}

static void add_op(Space *space, const Stages *stages, const Map *split, const Uses *uses, Op *op, double times)
{
    Module *m = stages->whole;
    Family family = family_for_cost(space->fwd, uses, op);
    bool costly = family == PRODUCT || family == LIBRARY;
    Choice *choice = &space->choice[space->nchoices++];
    *choice = (Choice){ op,
                        space->nvalues,
                        op->results.count,
                        times * flops_of(stages, split, op),
                        family != CONTROL && (!costly || is_layer(m, space->fwd)),
                        true };
    if (family == PRODUCT && info(op)->family != PRODUCT && choice->repeats)
        for (int i = 0; i < op->args.count; i++) { /* the product stores the sum alone */
            int number = number_of(space, arg(op, i));
            for (int j = 0; j < space->nchoices && number >= 0; j++)
                if (space->choice[j].op && arg(op, i)->def == space->choice[j].op)
                    space->choice[j].saves = false;
        }
    if (family == LEAF)
        choice->flops = 0, choice->saves = false;
    add_values(space, stages, split, &op->results, times);
    const Func *callee = op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
    for (int i = callee ? first_residual(callee) : op->results.count; i < op->results.count; i++)
        space->bytes[choice->first + i] = 0; /* counted in the callee */
}

/* The values that a backward reads: of this stage or a later one. */
static void note_read_values(const Space *space, Module *whole, const Func *bwd, uint64_t *read)
{
    Arena scratch = { 0 };
    const Map named = named_values(&scratch, space->fwd);
    for (int i = 0; i < bwd->params.count; i++) {
        const Port port = bwd->params.at[i]->port;
        const Value *value = port.kind == PORT_FORWARD ? map_get(&named, intern_text(whole, port.of)) : NULL;
        int number = value ? number_of(space, value) : -1;
        if (number >= 0)
            put(read, number);
    }
    arena_free(&scratch);
}

static Space space_of(Arena *arena, const Stages *stages, Func *fwd, const Func *bwd)
{
    Space space = { .fwd = fwd, .number.arena = arena, .labels = label_values(arena, stages->whole, fwd) };
    const double times = times_run(stages->whole, fwd);
    const Map split = split_values(arena, stages->split, fwd);
    const Uses uses = find_uses(arena, fwd);
    const int carried = carried_of(stages->whole, fwd);
    int most = carried, ops = carried;
    for (const Op *op = fwd->first; op; op = op->next, ops++)
        most += op->results.count;
    space.value = NEW_ARRAY(arena, Value *, most + 1);
    space.bytes = NEW_ARRAY(arena, double, most + 1);
    space.choice = NEW_ARRAY(arena, Choice, ops + 1);
    space.words = most / 64 + 1;
    space.wanted = NEW_ARRAY(arena, uint64_t, space.words);
    for (int i = 0; i < carried; i++) {
        space.choice[space.nchoices++] = (Choice){ NULL, space.nvalues, 1, 0, false, true };
        add_values(&space, stages, &split, &(Values){ 1, 1, &fwd->params.at[i] }, times);
    }
    for (Op *op = fwd->first; op; op = op->next)
        add_op(&space, stages, &split, &uses, op, times);
    note_read_values(&space, stages->whole, bwd, space.wanted);
    return space;
}

/* --- Partial choices ------------------------------------------------------------------------------ */

typedef struct {
    double bytes, flops;
    uint64_t *sets; /* what is needed of the rest; behind it what is saved */
    int words;
} Partial;

typedef struct {
    Arena arena;
    int count;
    Partial *at;
} Partials;

static int by_number(double a, double b) { return (a > b) - (a < b); }

static int by_need(const void *a, const void *b)
{
    const Partial *x = a, *y = b;
    int order = memcmp(x->sets, y->sets, (size_t)x->words * sizeof *x->sets);
    order = order ? order : by_number(x->bytes, y->bytes);
    return order ? order : by_number(x->flops, y->flops);
}

static int by_bytes(const void *a, const void *b)
{
    const Partial *x = a, *y = b;
    int order = by_number(x->bytes, y->bytes);
    order = order ? order : by_number(x->flops, y->flops);
    return order ? order : memcmp(x->sets, y->sets, 2 * (size_t)x->words * sizeof *x->sets);
}

/* Of those that need the same, those stay that no other beats. */
static void drop_beaten(Partials *all)
{
    int kept = 0;
    if (all->count)
        qsort(all->at, (size_t)all->count, sizeof *all->at, by_need);
    for (int i = 0; i < all->count; i++) {
        const Partial *here = &all->at[i], *best = kept ? &all->at[kept - 1] : NULL;
        bool alike = best && memcmp(best->sets, here->sets, (size_t)here->words * sizeof *here->sets) == 0;
        if (!alike || here->flops < best->flops)
            all->at[kept++] = *here;
    }
    all->count = kept;
}

/* At most `most`, evenly; the first and the last of them stay. */
static void thin_out(Partials *all, int most)
{
    if (all->count <= most)
        return;
    qsort(all->at, (size_t)all->count, sizeof *all->at, by_bytes);
    for (int i = 0; i < most; i++)
        all->at[i] = all->at[(int64_t)i * (all->count - 1) / (most - 1)];
    all->count = most;
}

static Partial *add_partial(Partials *to, const Partial *from)
{
    Partial *added = &to->at[to->count++];
    *added = *from;
    added->sets = NEW_ARRAY(&to->arena, uint64_t, 2 * from->words);
    memcpy(added->sets, from->sets, 2 * (size_t)from->words * sizeof *from->sets);
    return added;
}

/* One more op is decided on: `from` as it goes on. */
static void decide(const Space *space, const Choice *choice, Partials *to, const Partial *from)
{
    const int end = choice->first + choice->count;
    bool needed = false;
    for (int i = choice->first; i < end; i++)
        needed |= has(from->sets, i);
    if (!needed) {
        add_partial(to, from);
        return;
    }
    if (choice->saves || !choice->repeats) {
        Partial *save = add_partial(to, from);
        for (int i = choice->first; i < end; i++)
            if (has(from->sets, i)) {
                drop(save->sets, i);
                put(save->sets + space->words, i);
                save->bytes += space->bytes[i];
            }
    }
    if (choice->repeats) {
        Partial *repeat = add_partial(to, from);
        for (int i = choice->first; i < end; i++)
            drop(repeat->sets, i);
        for (int i = 0; i < choice->op->args.count; i++)
            if (number_of(space, arg(choice->op, i)) >= 0)
                put(repeat->sets, number_of(space, arg(choice->op, i)));
        repeat->flops += choice->flops;
    }
}

/* In the arena of the result; nothing is needed any more. */
static Partials best_of_function(const Space *space)
{
    const int room = LARGEST / (space->nvalues + 1);
    const int most = room > MOST_PARTIAL ? MOST_PARTIAL : room < LEAST_PARTIAL ? LEAST_PARTIAL : room;
    Partials now = { .count = 1 };
    now.at = NEW(&now.arena, Partial);
    now.at[0] = (Partial){ .words = space->words, .sets = NEW_ARRAY(&now.arena, uint64_t, 2 * space->words) };
    memcpy(now.at[0].sets, space->wanted, (size_t)space->words * sizeof *space->wanted);
    for (int i = space->nchoices - 1; i >= 0; i--) {
        Partials next = { 0 };
        next.at = NEW_ARRAY(&next.arena, Partial, 2 * now.count);
        for (int j = 0; j < now.count; j++)
            decide(space, &space->choice[i], &next, &now.at[j]);
        arena_free(&now.arena);
        drop_beaten(&next);
        thin_out(&next, most);
        now = next;
    }
    thin_out(&now, MOST_OF_FUNCTION);
    return now;
}

/* --- All functions together ------------------------------------------------------------------------ */

static int fewer_bytes_first(const void *a, const void *b)
{
    const Tradeoff *x = a, *y = b;
    int order = by_number(x->bytes, y->bytes);
    return order ? order : by_number(x->flops, y->flops);
}

/* What no other beats, at most `most`: with steps of equal size in bytes between them. */
static void keep_best(Tradeoffs *all, int most)
{
    int kept = 0;
    if (all->count)
        qsort(all->at, (size_t)all->count, sizeof *all->at, fewer_bytes_first);
    for (int i = 0; i < all->count; i++)
        if (!kept || all->at[i].flops < all->at[kept - 1].flops)
            all->at[kept++] = all->at[i];
    for (int i = 0; i < kept / 2; i++) { /* fewer FLOPs first */
        const Tradeoff swapped = all->at[i];
        all->at[i] = all->at[kept - 1 - i], all->at[kept - 1 - i] = swapped;
    }
    const double step = kept ? (all->at[0].bytes - all->at[kept - 1].bytes) / (most - 2) : 0;
    all->count = 0;
    for (int i = 0; i < kept; i++)
        if (!i || i == kept - 1 || all->at[all->count - 1].bytes - all->at[i].bytes >= step)
            all->at[all->count++] = all->at[i];
}

static Saved *saved_by(Arena *arena, const Space *space, const Partial *choice, Saved *before)
{
    Saved *saved = NEW(arena, Saved);
    *saved = (Saved){ .func = space->fwd->name, .next = before };
    for (int i = 0; i < space->nvalues; i++) {
        const Op *op = space->value[i]->def;
        if (has(choice->sets + space->words, i) && !(op && info(op)->family == CONTROL)) /* calls save anyway */
            add_saved(arena, saved, map_get(&space->labels.label, space->value[i]));
    }
    return saved->count ? saved : before;
}

static Tradeoffs combine(Arena *arena, const Tradeoffs *others, const Space *space, const Partials *choices)
{
    Tradeoffs all = { 0, NEW_ARRAY(arena, Tradeoff, others->count * choices->count) };
    for (int i = 0; i < others->count; i++)
        for (int j = 0; j < choices->count; j++) {
            const Tradeoff *other = &others->at[i];
            const Partial *choice = &choices->at[j];
            all.at[all.count++] = (Tradeoff){ saved_by(arena, space, choice, other->saved),
                                              other->bytes + choice->bytes, other->flops + choice->flops };
        }
    keep_best(&all, MOST_TOGETHER);
    return all;
}

/* --- Policies -------------------------------------------------------------------------------------- */

/* What a function saves, and what has to run again for the rest. */
static void add_function(Tradeoff *sum, const Space *space, const uint64_t *saved, uint64_t *needed)
{
    for (int i = space->nchoices - 1; i >= 0; i--) {
        const Choice *choice = &space->choice[i];
        bool again = false;
        for (int j = choice->first; j < choice->first + choice->count; j++) {
            sum->bytes += has(saved, j) ? space->bytes[j] : 0;
            again |= has(needed, j) && !has(saved, j) && choice->op;
        }
        sum->flops += again ? choice->flops : 0;
        for (int j = 0; again && j < choice->op->args.count; j++)
            if (number_of(space, arg(choice->op, j)) >= 0)
                put(needed, number_of(space, arg(choice->op, j)));
    }
}

/* Of all functions, or of those around the layers. */
static Tradeoff sum_of_policy(Arena *arena, const Stages *stages, const Module *recomputed, bool layers)
{
    Tradeoff sum = { 0 };
    prune_interfaces(stages->whole);
    for (const Func *bwd = stages->whole->funcs; bwd; bwd = bwd->next) {
        Func *fwd = bwd->forward ? find_func(stages->whole, bwd->forward) : NULL;
        const Func *after = recomputed->funcs;
        while (fwd && after && !(after->forward && strcmp(after->forward, fwd->name) == 0))
            after = after->next;
        if (!fwd || !after || (!layers && is_layer(stages->whole, fwd)))
            continue;
        const Space space = space_of(arena, stages, fwd, bwd);
        Partial policy = { .words = space.words, .sets = NEW_ARRAY(arena, uint64_t, 2 * space.words) };
        note_read_values(&space, stages->whole, after, policy.sets + space.words);
        sum.saved = saved_by(arena, &space, &policy, sum.saved);
        add_function(&sum, &space, policy.sets + space.words, space.wanted);
    }
    return sum;
}

Tradeoff tradeoff_of_policy(Arena *arena, Stages stages, const Module *recomputed)
{
    return sum_of_policy(arena, &stages, recomputed, true);
}

/* --- All that is worth trying ---------------------------------------------------------------------- */

Tradeoffs find_tradeoffs(Arena *arena, Stages stages, const Module *around, int most)
{
    Tradeoffs best = { 1, NEW(arena, Tradeoff) };
    best.at[0] = sum_of_policy(arena, &stages, around, false);
    for (const Func *bwd = stages.whole->funcs; bwd; bwd = bwd->next) {
        Func *fwd = bwd->forward ? find_func(stages.whole, bwd->forward) : NULL;
        if (!fwd || !is_layer(stages.whole, fwd))
            continue;
        const Space space = space_of(arena, &stages, fwd, bwd);
        Partials choices = best_of_function(&space);
        best = combine(arena, &best, &space, &choices);
        arena_free(&choices.arena);
    }
    keep_best(&best, most);
    return best;
}
