/* tradeoffs.c -- the sets of residuals that are worth trying, with the bytes and FLOPs of each.
 *
 * A forward function is traversed from its end.  The values that the backward reads are needed.  A needed value is
 * either saved, which costs bytes, or saved away from the device, which costs FLOPs, a price for each byte, or
 * recomputed, which costs FLOPs and makes the operands of its op needed.  Of the partial choices with the same needed
 * values, only those remain that no other one beats in bytes and FLOPs.  At the beginning of the function nothing is
 * needed, and the remaining choices are the Pareto front: exactly, unless there are more than MOST_PARTIAL partial
 * choices at a time (fewer in functions with many values: LARGEST bounds their total). These are thinned out evenly by
 * bytes.
 *
 * Parameters that a loop does not carry are available.  Ops that may not be recomputed (see family_for_cost), and
 * calls, save their results.  Choices for several functions are combined by adding them, and thinned out in the same
 * way.
 */
#include "tradeoffs.h"

#include "cost/cost.h"
#include "epilogue.h"
#include "map.h"
#include "recompute.h"
#include "residuals.h"
#include "uses.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PARTIAL = 2048, LARGEST = 1 << 19, LEAST_PARTIAL = 64, MOST_OF_FUNCTION = 256 };

/* --- What can be chosen -------------------------------------------------------------------------- */

/* An op, or a carried parameter. */
typedef struct {
    Op *op;              /* NULL: a parameter */
    int first, count;    /* its results among the values */
    double flops;        /* over all layers */
    bool repeats, saves; /* may it be recomputed?  May its results be saved? */
} Choice;

typedef struct {
    Func *fwd;
    int nvalues, nchoices, words; /* of sets: 64 values per word */
    Value **value;
    double kept;   /* how often a rank has the values of fwd */
    double *bytes; /* of each value, that often */
    Choice *choice;
    Map number; /* value -> its index + 1 */
    Labels labels;
    uint64_t *wanted; /* the values that the backward reads */
    double price;     /* of a byte that is away, in FLOPs */
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

/* Calls of f per micro-batch: the number of layers, times that of the layers around them. */
static double times_run(const Module *m, const Func *f)
{
    Func *caller;
    const Op *call = call_of(m, f, &caller);
    if (!call || !has_backward(m, caller))
        return 1;
    return times_run(m, caller) * (call->attrs.dims.count ? (double)call->attrs.dims.dim[0].size : 1);
}

/* How often a rank has what f saves, at most. */
static double times_kept(const Programs *programs, const Func *f)
{
    Func *caller;
    const Op *call = call_of(programs->whole, f, &caller);
    const double in_flight = times_kept_in_flight(&programs->kept, f->name);
    if (in_flight > 0)
        return in_flight;
    if (!call || !has_backward(programs->whole, caller))
        return times_kept_once(&programs->kept);
    return times_kept(programs, caller) * (call->attrs.dims.count ? (double)call->attrs.dims.dim[0].size : 1);
}

/* The values of a function, by name. */
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

/* A function as a rank runs it: its values by name, and their readers. */
typedef struct {
    Module *m;
    Map named;
    Uses uses;
} RankFunc;

static RankFunc rank_func(Arena *arena, Module *m, const Func *f)
{
    const Func *same = find_func(m, intern_text(m, f->name));
    if (!same)
        return (RankFunc){ m, { .arena = arena }, { { .arena = arena } } };
    return (RankFunc){ m, named_values(arena, same), find_uses(arena, same) };
}

static const Value *rank_value(const RankFunc *split, const Value *value)
{
    return map_get(&split->named, intern_text(split->m, value->name));
}

/* A pending sum is reduced before it is saved. */
static int64_t saved_bytes(const RankFunc *split, const Value *held)
{
    const Users *users = held->type.partial ? users_of(&split->uses, held) : NULL;
    for (int i = 0; users && i < users->count; i++)
        if (info(users->op[i])->traits & WISHES)
            return local_bytes(split->m, &result(users->op[i])->type);
    return local_bytes(split->m, &held->type);
}

static void add_values(Space *space, const Module *whole, const RankFunc *split, const Values *values)
{
    for (int i = 0; i < values->count; i++) {
        const Value *value = values->at[i], *held = rank_value(split, value);
        space->value[space->nvalues] = values->at[i];
        space->bytes[space->nvalues] =
            space->kept * (double)(held ? saved_bytes(split, held) : local_bytes(whole, &value->type));
        map_put(&space->number, value, (void *)(intptr_t)++space->nvalues);
    }
}

static double flops_of(Module *whole, const RankFunc *split, const Op *op)
{
    const Value *held = op->results.count ? rank_value(split, result(op)) : NULL;
    bool same = held && held->def && held->def->kind == op->kind;
    return same ? op_work(split->m, NULL, held->def).rank : op_work(whole, NULL, op).rank;
}

static void add_op(Space *space, Module *m, const RankFunc *split, const Uses *uses, Op *op, double times)
{
    Family family = family_for_cost(space->fwd, uses, op);
    bool costly = family == PRODUCT || family == LIBRARY;
    Choice *choice = &space->choice[space->nchoices++];
    *choice = (Choice){ op,
                        space->nvalues,
                        op->results.count,
                        times * flops_of(m, split, op),
                        family != CONTROL && (!costly || is_layer(m, space->fwd)),
                        true };
    const Op *before = choice->repeats ? product_before(space->fwd, uses, op) : NULL;
    for (int j = 0; j < space->nchoices && before; j++)
        if (space->choice[j].op == before)
            space->choice[j].saves = false; /* the product stores only the sum */
    if (family == LEAF)
        choice->flops = 0, choice->saves = false;
    add_values(space, m, split, &op->results);
    const Func *callee = called_by(m, op);
    for (int i = callee ? first_residual(callee) : op->results.count; i < op->results.count; i++)
        space->bytes[choice->first + i] = 0; /* counted in the callee */
}

/* Adds the values that a backward reads, after autodiff or after recompute. */
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

static Space space_of(Arena *arena, const Programs *programs, Func *fwd, const Func *bwd)
{
    Space space = { .fwd = fwd, .number.arena = arena, .labels = label_values(arena, programs->whole, fwd) };
    const double times = times_run(programs->whole, fwd);
    space.kept = times_kept(programs, fwd);
    const RankFunc split = rank_func(arena, programs->split, fwd);
    const Uses uses = find_uses(arena, fwd);
    const int carried = carried_of(programs->whole, fwd);
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
        add_values(&space, programs->whole, &split, &(Values){ 1, 1, &fwd->params.at[i] });
    }
    for (Op *op = fwd->first; op; op = op->next)
        add_op(&space, programs->whole, &split, &uses, op, times);
    note_read_values(&space, programs->whole, bwd, space.wanted);
    return space;
}

/* --- Partial choices ------------------------------------------------------------------------------ */

typedef struct {
    double bytes, moved, flops; /* `flops`: with the price of moved bytes */
    uint64_t *sets;             /* the values that are still needed, the saved ones, and those of these that are away */
    int words;
} Partial;

enum { SETS = 3 };

typedef struct {
    Arena *arena;
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
    return order ? order : memcmp(x->sets, y->sets, SETS * (size_t)x->words * sizeof *x->sets);
}

/* Keeps, of those with the same needed values, the Pareto front. */
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

/* Keeps at most `most`, evenly distributed, with the first and the last. */
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
    added->sets = NEW_ARRAY(to->arena, uint64_t, SETS * from->words);
    memcpy(added->sets, from->sets, SETS * (size_t)from->words * sizeof *from->sets);
    return added;
}

/* The results that are needed are saved, on the device or away. */
static void save(const Space *space, const Choice *choice, Partials *to, const Partial *from, bool away)
{
    Partial *save = add_partial(to, from);
    for (int i = choice->first; i < choice->first + choice->count; i++) {
        if (!has(from->sets, i))
            continue;
        drop(save->sets, i);
        put(save->sets + space->words, i);
        if (away)
            put(save->sets + 2 * space->words, i);
        save->bytes += away ? 0 : space->bytes[i];
        save->moved += away ? space->bytes[i] : 0;
        save->flops += away ? space->bytes[i] * space->price : 0;
    }
}

/* Adds the continuations of `from`, after the decision on one more op. */
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
    if (choice->saves || !choice->repeats)
        save(space, choice, to, from, false);
    if (space->price != STAYS && choice->saves && !(choice->op && info(choice->op)->family == CONTROL))
        save(space, choice, to, from, true);
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

/* The choices for a whole function. */
static Partials best_of_function(Arena *arena, const Space *space)
{
    const int room = LARGEST / (space->nvalues + 1);
    const int most = room > MOST_PARTIAL ? MOST_PARTIAL : room < LEAST_PARTIAL ? LEAST_PARTIAL : room;
    Arena memory = { 0 };
    Partials now = { &memory, 1, NEW(&memory, Partial) };
    now.at[0] = (Partial){ .words = space->words, .sets = NEW_ARRAY(&memory, uint64_t, SETS * space->words) };
    memcpy(now.at[0].sets, space->wanted, (size_t)space->words * sizeof *space->wanted);
    for (int i = space->nchoices - 1; i >= 0; i--) {
        Arena later = { 0 };
        Partials next = { &later, 0, NEW_ARRAY(&later, Partial, SETS * now.count) };
        for (int j = 0; j < now.count; j++)
            decide(space, &space->choice[i], &next, &now.at[j]);
        drop_beaten(&next);
        thin_out(&next, most);
        arena_free(&memory);
        memory = later;
        now = (Partials){ &memory, next.count, next.at };
    }
    thin_out(&now, MOST_OF_FUNCTION);
    Partials best = { arena, 0, NEW_ARRAY(arena, Partial, now.count) };
    for (int i = 0; i < now.count; i++)
        add_partial(&best, &now.at[i]);
    arena_free(&memory);
    return best;
}

/* --- All functions together ------------------------------------------------------------------------ */

/* The choices for several functions: `choice` for the last of them, the rest in `others`. */
typedef struct Sum {
    double bytes, moved, flops;
    const struct Sum *others;
    const Space *space;
    const Partial *choice; /* NULL: no function */
} Sum;

typedef struct {
    int count;
    Sum *at; /* fewer FLOPs first, each with fewer bytes than the one before */
} Sums;

static int fewer_bytes_first(const void *a, const void *b)
{
    const Sum *x = a, *y = b;
    int order = by_number(x->bytes, y->bytes);
    return order ? order : by_number(x->flops, y->flops);
}

/* Keeps the Pareto front; if it has more than `most`, with steps of equal size in bytes. */
static void keep_best(Sums *all, int most)
{
    int kept = 0;
    qsort(all->at, (size_t)all->count, sizeof *all->at, fewer_bytes_first);
    for (int i = 0; i < all->count; i++)
        if (!kept || all->at[i].flops < all->at[kept - 1].flops)
            all->at[kept++] = all->at[i];
    for (int i = 0; i < kept / 2; i++) { /* fewer FLOPs first */
        const Sum swapped = all->at[i];
        all->at[i] = all->at[kept - 1 - i], all->at[kept - 1 - i] = swapped;
    }
    const double step = kept > most ? (all->at[0].bytes - all->at[kept - 1].bytes) / (most - 2) : 0;
    all->count = 0;
    for (int i = 0; i < kept; i++)
        if (!i || i == kept - 1 || all->at[all->count - 1].bytes - all->at[i].bytes >= step)
            all->at[all->count++] = all->at[i];
}

static Sums combine(Arena *arena, const Sums *others, const Space *space, const Partials *choices, int most)
{
    Arena scratch = { 0 };
    Sums all = { 0, NEW_ARRAY(&scratch, Sum, others->count * choices->count) };
    for (int i = 0; i < others->count; i++)
        for (int j = 0; j < choices->count; j++) {
            const Sum *other = &others->at[i];
            const Partial *choice = &choices->at[j];
            all.at[all.count++] = (Sum){ other->bytes + choice->bytes,
                                         other->moved + choice->moved,
                                         other->flops + choice->flops,
                                         other,
                                         space,
                                         choice };
        }
    keep_best(&all, most);
    Sums best = { all.count, NEW_ARRAY(arena, Sum, all.count) };
    memcpy(best.at, all.at, (size_t)all.count * sizeof *all.at);
    arena_free(&scratch);
    return best;
}

static SavedValues *saved_by(Arena *arena, const Space *space, const Partial *choice, SavedValues *before)
{
    SavedValues *saved = NEW(arena, SavedValues);
    *saved = (SavedValues){ .func = space->fwd->name, .next = before };
    for (int i = 0; i < space->nvalues; i++) {
        const Op *op = space->value[i]->def;
        if (has(choice->sets + space->words, i) && !(op && info(op)->family == CONTROL)) /* calls always save */
            add_saved(arena, saved, map_get(&space->labels.label, space->value[i]),
                      has(choice->sets + 2 * space->words, i) ? "" : NULL);
    }
    return saved->count ? saved : before;
}

/* --- Policies -------------------------------------------------------------------------------------- */

/* Adds the bytes of the saved values of a function, and the FLOPs of recomputing the other needed ones. */
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

/* Sums over all functions, or only over those that are not layers. */
static Tradeoff sum_of_policy(Arena *arena, const Programs *programs, const Module *recomputed, bool layers)
{
    Tradeoff sum = { 0 };
    prune_interfaces(programs->whole);
    for (const Func *bwd = programs->whole->funcs; bwd; bwd = bwd->next) {
        Func *fwd = bwd->forward ? find_func(programs->whole, bwd->forward) : NULL;
        const Func *after = recomputed->funcs;
        while (fwd && after && !(after->forward && strcmp(after->forward, fwd->name) == 0))
            after = after->next;
        if (!fwd || !after || (!layers && is_layer(programs->whole, fwd)))
            continue;
        const Space space = space_of(arena, programs, fwd, bwd);
        Partial policy = { .words = space.words, .sets = NEW_ARRAY(arena, uint64_t, SETS * space.words) };
        note_read_values(&space, programs->whole, after, policy.sets + space.words);
        sum.saved = saved_by(arena, &space, &policy, sum.saved);
        add_function(&sum, &space, policy.sets + space.words, space.wanted);
    }
    return sum;
}

Tradeoff tradeoff_of_policy(Arena *arena, Programs programs, const Module *recomputed)
{
    return sum_of_policy(arena, &programs, recomputed, true);
}

/* --- All that is worth trying ---------------------------------------------------------------------- */

static Tradeoffs tradeoffs_of(Arena *arena, const Sums *sums, Tradeoff around, double price)
{
    Tradeoffs all = { sums->count, NEW_ARRAY(arena, Tradeoff, sums->count), 0 };
    for (int i = 0; i < sums->count; i++) {
        const double flops = sums->at[i].flops - price * sums->at[i].moved;
        all.at[i] =
            (Tradeoff){ around.saved, around.bytes + sums->at[i].bytes, around.flops + flops, sums->at[i].moved };
        for (const Sum *sum = &sums->at[i]; sum->choice; sum = sum->others)
            all.at[i].saved = saved_by(arena, sum->space, sum->choice, all.at[i].saved);
    }
    return all;
}

Tradeoffs find_tradeoffs(Arena *arena, Programs programs, const Module *around, double price, int most)
{
    Arena scratch = { 0 };
    double forward = 0;
    const Tradeoff fixed = sum_of_policy(arena, &programs, around, false);
    Sums best = { 1, NEW(&scratch, Sum) };
    for (const Func *bwd = programs.whole->funcs; bwd; bwd = bwd->next) {
        Func *fwd = bwd->forward ? find_func(programs.whole, bwd->forward) : NULL;
        if (!fwd || !is_layer(programs.whole, fwd))
            continue;
        Space *space = NEW(&scratch, Space);
        *space = space_of(&scratch, &programs, fwd, bwd);
        space->price = price;
        for (int i = 0; i < space->nchoices; i++)
            forward += space->choice[i].flops;
        const Partials choices = best_of_function(&scratch, space);
        best = combine(&scratch, &best, space, &choices, most);
    }
    Tradeoffs found = tradeoffs_of(arena, &best, fixed, price);
    found.forward = forward;
    arena_free(&scratch);
    return found;
}
