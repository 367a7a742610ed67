/* verify_memory.c -- checks that no value is overwritten before its last use.
 *
 * Each program is traversed with the addresses assigned by the memory pass, including called functions and the first,
 * second and last iteration of each loop.  At each op, what it writes is compared with all live memory: values with a
 * later reader, operands, what callers still need, what the other iterations of a loop need, buffers that collectives
 * are writing.  No values are computed, so every plan is checked in every compilation; the interpreter
 * (interp_storage.c) checks the same byte by byte, on small programs.
 *
 * A kernel may overwrite an operand whose last use it is, element by element: see may_write_over.
 */
#include "flight.h"
#include "last_readers.h"
#include "map.h"
#include "micro.h"
#include "needed.h"
#include "scene.h"
#include "split_loop.h"
#include "storage.h"
#include "tier.h"
#include "uses.h"

typedef struct {
    Module *m;
    const Func *program;
    int64_t bytes, far_end; /* of the arena; behind it: of other tiers */
    LastReaders readers;
    Map placed;  /* value -> itself: it has a place */
    Map scratch; /* see scratch_bytes() */
    LivingPool living;
} Check;

static const int64_t NOWHERE = INT64_MIN / 2;

/* The addresses of one call of a function. */
typedef struct {
    const Func *f;
    int64_t base;           /* of its frame */
    const int64_t *pointer; /* its pointer arguments */
    const Region *source;   /* by parameter: what the message that it waits for reads; NULL: it is called once */
} Place;

static int64_t address_of(const Place *place, const Value *value)
{
    const Storage *storage = value->storage;
    return base_address(storage, place->base, place->pointer) + storage->at;
}

/* The bytes that a reader of the value reads. */
static Region region_at(const Check *c, const Place *place, const Value *value)
{
    return region_of(c->m, value, address_of(place, value), false);
}

static Region written_at(const Check *c, const Place *place, const Value *value)
{
    return region_of(c->m, value, address_of(place, value), true);
}

/* --- What may be overwritten --------------------------------------------------------------------------- */

/* A kernel may if both have the same storage layout and the operand is read element by element; so may some
 * collectives. */
static bool may_write_over(const Check *c, const Op *op, const Value *operand, const Value *written)
{
    const Func *kernel = called_by(c->m, op);
    if (!have_same_strides(c->m, operand, written))
        return false;
    if (!kernel)
        return sum_before(op) == operand ||
               (info(op)->traits & IN_PLACE && (!op->attrs.started || replaces(op, operand)));
    return !is_read_after_results(&c->m->arena, kernel, kernel->params.at[index_of(&op->args, operand)]);
}

/* --- One op --------------------------------------------------------------------------------------------- */

#define BROKEN(...) (error_at(c->m->diags, (Where){ .at = op->loc }, __VA_ARGS__), false)

static bool is_harmless(const Check *c, const Place *place, const Op *op, const Living *other, const Value *written)
{
    int at = index_of(&op->args, other->value);
    return at >= 0 && written && address_of(place, other->value) == address_of(place, written) &&
           may_write_over(c, op, other->value, written);
}

/* What an op writes; `written` is NULL for scratch. */
typedef struct {
    const Check *c;
    const Place *place;
    const Scene *scene;
    const Op *op;
    const Value *written;
    const Region *region;
} Write;

/* Would it be overwritten, and is it still read? */
static bool is_harmed(const void *data, const Scene *scene, const Living *other)
{
    const Write *w = data;
    const bool dies = other->last == scene->now,
               is_own = other->value == w->written; /* arrives early, into its buffers */
    if (is_own || other->last < scene->now || (scene != w->scene && dies))
        return false;
    if (w->written && !(w->scene->ranks & ranks_written(w->c->m, w->written) & ranks_written(w->c->m, other->value)))
        return false;
    return regions_meet(w->region, &other->region) && !(dies && is_harmless(w->c, w->place, w->op, other, w->written));
}

static bool may_write(const Check *c, const Place *place, const Scene *scene, const Op *op, const Value *written,
                      const Region *region)
{
    const char *name = written ? written->name : "scratch";
    const int64_t end = region_end(region);
    const bool is_far = written && written->type.tier;
    if (is_far != (region->at >= far_begin(c->bytes)) && region->width)
        return BROKEN("internal: @%s writes %%%s to byte %lld, which is not in its tier", place->f->name, name,
                      (long long)region->at);
    if (region->at < 0 || end > (is_far ? c->far_end : c->bytes))
        return BROKEN("internal: @%s writes %%%s to byte %lld of an arena of %lld", place->f->name, name,
                      (long long)end, (long long)c->bytes);
    const Write write = { c, place, scene, op, written, region };
    for (const Scene *s = scene; s; s = s->around) {
        const Living *harmed = find_living(s, region->at, end, is_harmed, &write);
        if (harmed)
            return BROKEN("internal: @%s writes %%%s over %%%s, which is still read", place->f->name, name,
                          harmed->value->name);
    }
    return true;
}

static bool has_places(Check *c, const Func *f, const Op *op, const Values *values)
{
    for (int i = 0; i < values->count; i++) {
        const Value *value = values->at[i];
        if (map_get(&c->placed, value))
            continue;
        if (!value->storage)
            return BROKEN("internal: %%%s of @%s has no storage", value->name, f->name);
        if (!lies_apart(c->m, value))
            return BROKEN("internal: the rows of %%%s of @%s overlap", value->name, f->name);
        map_put(&c->placed, value, (void *)value);
    }
    return true;
}

/* A view has the address of its first element in the operand, and the strides of its dims there. */
static bool check_view(const Check *c, const Place *place, const Op *op)
{
    const Value *x = arg(op, 0), *y = result(op);
    int at = op->attrs.dim ? find_dim(&x->type, op->attrs.dim) : -1;
    int64_t first = at < 0 ? 0 : op->attrs.index * x->storage->stride[at] * dtype_bytes(x->type.dtype);
    bool good = address_of(place, y) == address_of(place, x) + first;
    if (info(op)->traits & FOLDS)
        return (good && has_strides_of_fold(c->m, op)) ||
               BROKEN("internal: %%%s is not at the address of its part of %%%s", y->name, x->name);
    for (int i = 0; i < y->type.rank; i++) {
        int own = find_dim(&x->type, y->type.dim[i].name), from = own < 0 ? at : own;
        good &=
            from >= 0 && (local_size(c->m, &y->type.dim[i]) <= 1 || y->storage->stride[i] == x->storage->stride[from]);
    }
    return good || BROKEN("internal: %%%s is not at the address of its part of %%%s", y->name, x->name);
}

static bool check_op(Check *c, const Place *place, Scene *scene, const Op *op)
{
    bool good = info(op)->family != VIEW || check_view(c, place, op);
    int64_t beside = scratch_bytes(c->m, &c->scratch, op);
    Living **written = NEW_ARRAY(&c->m->arena, Living *, op->results.count);
    int count = 0;
    const bool writes = info(op)->family != VIEW && !lies_in_place(c->m, op);
    for (int i = 0; good && i < op->results.count && writes; i++) {
        Region region = written_at(c, place, op->results.at[i]);
        good = may_write(c, place, scene, op, op->results.at[i], &region);
        written[count++] = add_living(scene, op->results.at[i], region, scene->now); /* with the op's other results */
    }
    Region scratch = plain_region(place->base + op->attrs.frame, beside);
    good = good && (!beside || may_write(c, place, scene, op, NULL, &scratch));
    while (count > 0)
        remove_living(scene, written[--count]);
    return good;
}

/* --- Calls and loops ------------------------------------------------------------------------------------- */

static bool check_func(Check *c, const Place *place, const Scene *around);

/* One iteration of a loop, or a call. */
typedef struct {
    const Place *place; /* of the caller */
    const Op *op;
    const Func *callee;
    const Dim *dim; /* NULL: a call */
    int64_t iterations, frame;
    int64_t *carried; /* address of each carried operand of the next iteration */
} Iterations;

static int64_t slice_address(const Iterations *t, const Value *value, int64_t at)
{
    int64_t stride = is_passed_in_slices(t->op, value) ? value->storage->stride[0] : 0;
    return address_of(t->place, value) + at * stride * dtype_bytes(value->type.dtype);
}

static int64_t iteration_index(const Iterations *t, int64_t iteration)
{
    return t->op->attrs.reverse ? t->iterations - 1 - iteration : iteration;
}

/* The slices of the iterations from `iteration` on, or of those before it. */
static Region slices(const Check *c, const Iterations *t, const Value *value, int64_t iteration, bool later)
{
    int64_t count = later ? t->iterations - iteration : iteration;
    bool at_front = later == t->op->attrs.reverse;
    return stretch_of(c->m, value, address_of(t->place, value), at_front ? 0 : t->iterations - count, count);
}

/* Adds the values of the other iterations of a loop: operands of later ones, results of earlier ones. */
static void add_other_iterations(Check *c, Scene *scene, const Iterations *t, int64_t iteration)
{
    for (int i = (int)t->op->attrs.carried; i < t->op->args.count; i++) {
        const Value *value = arg(t->op, i);
        if (is_passed_in_slices(t->op, value))
            add_living(scene, value, slices(c, t, value, iteration + 1, true), 1);
        else if (iteration + 1 < t->iterations)
            add_living(scene, value, region_at(c, t->place, value), 1);
    }
    for (int i = (int)t->op->attrs.carried; i < t->op->results.count; i++)
        if (last_reader(&c->readers, t->op->results.at[i]) >= 0)
            add_living(scene, t->op->results.at[i], slices(c, t, t->op->results.at[i], iteration, false), 1);
}

/* Has the callee the same address as the caller for its i-th parameter or (after these) result? */
static bool is_where_handed(const Check *c, const Place *inner, const Op *op, int i, int64_t address)
{
    const Func *callee = inner->f;
    const Value *there = i < op->args.count ? callee->params.at[i] : callee->results.at[i - op->args.count];
    if (address_of(inner, there) == address)
        return true;
    return BROKEN("internal: @%s has its %%%s at byte %lld, its caller at %lld", callee->name, there->name,
                  (long long)address_of(inner, there), (long long)address);
}

/* What the messages read that this iteration waits for, up to the wait: its slices of prefetched operands; or what the
 * first one has sent before the loop.  Of other iterations, that is a parameter. */
static const Region *find_sources(const Check *c, const Iterations *t, int64_t iteration)
{
    const int64_t at = iteration_index(t, iteration);
    Region *source = NEW_ARRAY(&c->m->arena, Region, t->op->args.count + 1);
    for (int i = 0; i < t->op->attrs.carried; i++) {
        const Op *next = arg(t->op, i)->type.in_flight ? flight_start(t->callee, t->callee->params.at[i]) : NULL;
        const int ahead = next ? index_of(&t->callee->params, arg(next, 0)) : -1;
        if (ahead >= 0 && is_passed_in_slices(t->op, arg(t->op, ahead)))
            source[i] = region_of(c->m, t->callee->params.at[ahead], slice_address(t, arg(t->op, ahead), at), false);
        else if (next && iteration == 0)
            source[i] = region_at(c, t->place, arg(arg(t->op, i)->def, 0));
    }
    return source;
}

/* A value made in place ends in the storage of the loop's result, independent of its pointer. */
static int64_t where_wanted(const Iterations *t, int result, int64_t at, int64_t pointer)
{
    bool is_carried = result < t->op->attrs.carried;
    return is_carried ? pointer : slice_address(t, t->op->results.at[result], at);
}

static bool check_iteration(Check *c, const Scene *scene, Iterations *t, int64_t iteration)
{
    const Op *op = t->op;
    const int nargs = op->args.count, nresults = op->results.count;
    const int64_t at = iteration_index(t, iteration), next = iteration_index(t, iteration + 1);
    const bool is_last = iteration + 1 == t->iterations; /* it has no slices of a next one */
    int64_t *pointer = NEW_ARRAY(&c->m->arena, int64_t, nargs + nresults + 1);
    int64_t buffer = t->frame + aligned_bytes(t->callee->frame);
    Scene others = scene_in(&c->living, scene);
    for (int i = 0; i < nargs; i++)
        pointer[i] = i < op->attrs.carried   ? t->carried[i]
                     : !is_prefetched(op, i) ? slice_address(t, arg(op, i), at)
                     : is_last               ? NOWHERE
                                             : slice_address(t, arg(op, i), next);
    for (int i = 0; i < nresults; i++) {
        const Value *value = op->results.at[i];
        bool is_carried = i < op->attrs.carried, swaps = is_carried && !is_carried_in_place(op, t->callee, i);
        pointer[nargs + i] = !is_carried ? slice_address(t, value, at)
                             : swaps && is_written_behind(op, i, iteration, t->iterations)
                                 ? buffer
                                 : address_of(t->place, value);
        buffer += swaps ? aligned_bytes(local_bytes(c->m, &value->type)) : 0;
    }
    for (int i = 0; i < op->attrs.carried; i++)
        t->carried[i] = pointer[nargs + i];
    const Place inner = { t->callee, t->frame, pointer, op->attrs.carried ? find_sources(c, t, iteration) : NULL };
    bool good = true;
    for (int i = 0; good && i < nargs + nresults; i++)
        good = is_where_handed(c, &inner, op, i, i < nargs ? pointer[i] : where_wanted(t, i - nargs, at, pointer[i]));
    others.ranks &= ranks_calling(c->m, op).at ? ranks_calling(c->m, op).at : UINT64_MAX;
    add_other_iterations(c, &others, t, iteration);
    good = good && check_func(c, &inner, &others);
    end_scene(&others);
    return good;
}

/* Values carried in place are copied to their final storage, one after the other, before the first iteration. */
static bool check_initial_copies(Check *c, const Scene *scene, Iterations *t)
{
    const Op *op = t->op;
    const Scene none = scene_in(&c->living, scene);
    Scene others = none;
    Living **operand = NEW_ARRAY(&c->m->arena, Living *, op->args.count);
    bool good = true;
    for (int i = 0; i < op->args.count && op->attrs.carried; i++)
        operand[i] = add_living(&others, arg(op, i), region_at(c, t->place, arg(op, i)), 1);
    for (int i = 0; good && i < op->attrs.carried; i++) {
        const int64_t from = t->carried[i] = address_of(t->place, arg(op, i));
        if (!is_carried_in_place(op, t->callee, i))
            continue;
        t->carried[i] = address_of(t->place, op->results.at[i]);
        operand[i]->last = -1; /* already copied */
        Region to = written_at(c, t->place, op->results.at[i]);
        good = may_write(c, t->place, from == t->carried[i] ? &none : &others, op, op->results.at[i], &to);
    }
    end_scene(&others);
    return good;
}

/* The frame of the callee and the buffers after it overlap no live value. */
static bool check_frame(Check *c, const Scene *scene, const Iterations *t)
{
    Scene others = scene_in(&c->living, scene);
    for (int i = 0; i < t->op->args.count; i++)
        add_living(&others, arg(t->op, i), region_at(c, t->place, arg(t->op, i)), 1);
    for (int i = 0; i < t->op->results.count; i++)
        add_living(&others, t->op->results.at[i], region_at(c, t->place, t->op->results.at[i]), 1);
    Region frame = plain_region(t->frame, aligned_bytes(t->callee->frame) + iteration_buffers(c->m, t->op, t->callee));
    const bool good = may_write(c, t->place, &others, t->op, NULL, &frame);
    end_scene(&others);
    return good;
}

/* Has the argument the strides that the callee expects, except for the loop's dim? */
static bool lies_as_expected(const Check *c, const Iterations *t, const Value *here, const Value *there)
{
    const Op *op = t->op;
    int skipped = is_passed_in_slices(t->op, here) && there->type.rank < here->type.rank;
    for (int i = 0; i < there->type.rank; i++)
        if (local_size(c->m, &there->type.dim[i]) > 1 &&
            there->storage->stride[i] != here->storage->stride[i + skipped])
            return BROKEN("internal: %%%s has other strides than @%s expects of its %%%s", here->name, t->callee->name,
                          there->name);
    return true;
}

static bool lie_as_expected(const Check *c, const Iterations *t)
{
    bool good = true;
    for (int i = 0; good && i < t->op->args.count; i++)
        good = lies_as_expected(c, t, arg(t->op, i), t->callee->params.at[i]);
    for (int i = 0; good && i < t->op->results.count; i++)
        good = lies_as_expected(c, t, t->op->results.at[i], t->callee->results.at[i]);
    return good;
}

static bool alternates_buffers(const Check *c, const Op *op, const Func *callee)
{
    return iteration_buffers(c->m, op, callee) > op->attrs.slots;
}

/* Those next to the first and the last one are checked, and where buffers alternate, with each of them in either. */
static int64_t next_checked(int64_t iteration, int64_t iterations, bool alternates)
{
    const int64_t last = iterations - 1, skipped = alternates ? last - (iterations % 2 == 0) : last;
    return iteration == 1 && skipped > 2 ? skipped : iteration + 1;
}

/* The first `checked` of them. */
static bool check_iterations(Check *c, const Place *place, const Scene *scene, const Op *op, const Func *callee,
                             int64_t iterations, int64_t checked)
{
    const Dim *dim = op->attrs.dims.count ? &op->attrs.dims.dim[0] : NULL;
    Iterations t = { place, op, callee, dim, iterations, place->base + op->attrs.frame, NULL };
    t.carried = NEW_ARRAY(&c->m->arena, int64_t, op->args.count + 1);
    bool good = has_places(c, callee, op, &callee->params) && has_places(c, callee, op, &callee->results) &&
                lie_as_expected(c, &t) && check_frame(c, scene, &t) && check_initial_copies(c, scene, &t);
    const bool alternates = alternates_buffers(c, op, callee);
    for (int64_t i = 0; good && i < iterations && i < checked; i = next_checked(i, t.iterations, alternates))
        good = check_iteration(c, scene, &t, i);
    return good;
}

/* Where buffers alternate, they do so that the last iteration writes to the result: ranks with an odd and with an even
 * number of iterations differ in where the first one reads and writes, and behind the second one in nothing. */
static bool check_call(Check *c, const Place *place, const Scene *scene, const Op *op, const Func *callee)
{
    const int64_t most = rank_iterations(c->m, op);
    bool good = check_iterations(c, place, scene, op, callee, most, most), differ = false;
    for (int64_t rank = 0; alternates_buffers(c, op, callee) && is_split_loop(op) &&
                           rank < split_count(c->m, op->attrs.dims.dim[0].split);
         rank++)
        differ |= (most - part_size(c->m, &op->attrs.dims.dim[0], rank)) % 2 != 0;
    return good && (!differ || check_iterations(c, place, scene, op, callee, most - 1, 2));
}

/* --- Functions ------------------------------------------------------------------------------------------- */

/* An op, call or loop; its results are then in memory. */
static bool check_any(Check *c, const Place *place, Scene *scene, const Op *op)
{
    const Func *callee = function_called_by(c->m, op);
    const bool good = callee ? check_call(c, place, scene, op, callee) : check_op(c, place, scene, op);
    for (int i = 0; good && i < op->results.count; i++) {
        const Value *value = op->results.at[i];
        add_living(scene, value, region_at(c, place, value), last_reader(&c->readers, value));
    }
    return good;
}

/* Early ops, which have no memory but their results, run while the loop before them does. */
static bool check_early(Check *c, const Place *place, Scene *scene, const Op *loop)
{
    bool good = true;
    for (const Op *op = loop->next; op && good; op = op->next) {
        if (!op->attrs.early)
            continue;
        if (scratch_bytes(c->m, &c->scratch, op))
            return BROKEN("internal: %%%s is early, but has scratch", result(op)->name);
        good = has_places(c, place->f, op, &op->results) && check_any(c, place, scene, op);
    }
    return good;
}

static bool check_func(Check *c, const Place *place, const Scene *around)
{
    const Func *f = place->f;
    Scene scene = scene_of(&c->living, around, f);
    bool good = has_places(c, f, f->first, &f->params);
    find_last_readers(&c->readers, f);
    for (int i = 0; good && i < f->params.count; i++)
        add_living(&scene, f->params.at[i], region_at(c, place, f->params.at[i]),
                   last_reader(&c->readers, f->params.at[i]));
    for (int i = 0; place->source && i < f->params.count; i++)
        if (place->source[i].width)
            add_living(&scene, f->params.at[i], place->source[i], last_reader(&c->readers, f->params.at[i]));
    for (const Op *op = f->first; good && op; op = op->next, next_op(&scene)) {
        const bool runs_schedule = is_scheduled(op);
        if (!op->attrs.early) /* else with its loop */
            good = has_places(c, f, op, &op->results) && (!runs_schedule || check_early(c, place, &scene, op)) &&
                   check_any(c, place, &scene, op);
    }
    end_scene(&scene);
    return good;
}

/* State of the step is live while another program runs, but for what it leaves to the next one: FINISH runs before. */
static void add_state(Check *c, Scene *scene, const Func *step)
{
    const ParamIndex own = index_params(&c->m->arena, c->program);
    for (int i = first_state(step); i < step->params.count; i++) {
        const Value *state = step->params.at[i];
        if (state->storage && state->port.kind != PORT_LEFT && !indexed_param(&own, state->port))
            add_living(scene, state, region_of(c->m, state, state->storage->at, false), 1);
    }
}

static bool params_are_apart(Check *c, const Place *place)
{
    const Op *op = place->f->first;
    Scene scene = scene_in(&c->living, NULL);
    bool good = has_places(c, place->f, op, &place->f->params);
    for (int i = 0; good && i < place->f->params.count; i++) {
        const Value *param = place->f->params.at[i];
        Region region = written_at(c, place, param);
        good = may_write(c, place, &scene, op, param, &region);
        add_living(&scene, param, region, 1);
    }
    return good;
}

/* New state must be in the storage of the old one. */
static bool state_stays(const Check *c, const Func *f)
{
    const Op *op = f->last;
    const StepState state = state_of(f);
    for (int i = 0; i < state.count; i++) {
        const Value *old = state.before[i], *new = state.after[i];
        if (old->storage->at != new->storage->at || !have_same_strides(c->m, old, new))
            return BROKEN("internal: the new %%%s is at byte %lld, the old one at %lld", old->name,
                          (long long)new->storage->at, (long long)old->storage->at);
    }
    return true;
}

bool verify_memory(Module *m)
{
    const Func *step = func_with_role(m, STEP);
    bool good = true;
    for (int i = 0; i < N_PROGRAMS; i++) {
        const Func *f = func_with_role(m, programs[i]);
        if (!f || !f->first || !f->params.count || !f->params.at[0]->storage)
            continue;
        Check c = { .m = m, .program = f, .bytes = f->frame };
        c.far_end = far_begin(f->frame) + far_bytes(m);
        c.readers.last.arena = c.readers.seen.arena = c.placed.arena = c.scratch.arena = c.living.arena = &m->arena;
        const Place place = { .f = f };
        const bool are_apart = params_are_apart(&c, &place); /* before there are others on the stack */
        Scene outside = scene_in(&c.living, NULL);
        if (step && f != step)
            add_state(&c, &outside, step);
        good &= are_apart && check_func(&c, &place, &outside) && state_stays(&c, f);
    }
    return good;
}
