/* sized_read.c -- reads from a module how what it costs depends on sizes: see sized.h.
 *
 * Bytes are those of types, whose dims say which axes split them.  Matrices, keys and turns are products of sizes: each
 * is looked at again with twice as many sequences, and with one rank in place of those of each axis.  What is neither
 * as large as before nor as many times as large is irregular; so are bytes that are not what their terms say. */
#include "sized_read.h"

#include "flight.h"
#include "room.h"
#include "storage.h"

#include <math.h>
#include <string.h>

/* --- Terms ------------------------------------------------------------------------------------------------------ */

Scale scale_of_type(const Reader *r, const Type *type)
{
    Scale scale = { 0 };
    for (int i = 0; i < type->rank && !r->is_fixed; i++) {
        const Dim *dim = &type->dim[i];
        scale.grows |= grows_with_batch(r->m, dim->name);
        for (int k = 0; k < dim->split.count && !dim->split.parts; k++)
            scale.divided |= 1u << dim->split.axis[k];
    }
    return scale;
}

/* Of one sequence on one rank. */
static double alone(const Reader *r, double value, Scale scale)
{
    return value * (double)count_ranks(r->m, scale.divided) * (double)count_ranks(r->m, scale.twice) /
           (scale.grows ? (double)r->s->sequences : 1);
}

void add_term(Reader *r, Range *sum, double value, Scale scale)
{
    Sized *s = r->s;
    const double own = alone(r, value, scale);
    for (int i = 0; i < sum->count; i++) {
        Term *like = &s->term[sum->first + i];
        if (like->scale.divided == scale.divided && like->scale.grows == scale.grows) {
            like->value += own;
            return;
        }
    }
    s->term = room_for(r->arena, s->term, sizeof *s->term, s->terms, 1, &r->term_room);
    sum->first = sum->count ? sum->first : s->terms;
    s->term[s->terms++] = (Term){ own, scale };
    sum->count++;
}

typedef struct {
    Reader *r;
    Range *sum;
} Adding;

static void add_type(void *context, const Type *type)
{
    const Adding *adding = context;
    add_term(adding->r, adding->sum, (double)local_bytes(adding->r->m, type), scale_of_type(adding->r, type));
}

/* On the rank of the item that is read: others may have no part of it. */
static void add_type_on(void *context, const Type *type)
{
    const Adding *adding = context;
    Reader *r = adding->r;
    const double whole = (double)local_bytes(r->m, type);
    const double own = r->m->kind_axis < 0 ? whole : (double)part_bytes(r->m, type, r->item[r->read - 1].rank);
    if (own > 0)
        add_term(r, adding->sum, own, scale_of_type(r, type));
}

static bool is_close(double a, double b) { return fabs(a - b) <= 0.01 * fmax(fabs(a), fabs(b)); }

/* A sum with other sizes. */
static double probed(const Reader *r, Range sum, const Probe *probe)
{
    double all = 0;
    for (int i = 0; i < sum.count; i++) {
        const Term *term = &r->s->term[sum.first + i];
        const bool depends =
            probe && (probe->scale.grows ? term->scale.grows : (term->scale.divided & probe->scale.divided) != 0);
        all += term->value / alone(r, 1, term->scale) * (depends ? probe->times : 1);
    }
    return all;
}

static double probed_bytes(const Reader *r, const SizedItem *item, const Probe *probe)
{
    return probed(r, item->sum[SUM_BYTES], probe) +
           fmin(probed(r, item->sum[SUM_TABLE], probe), probed(r, item->sum[SUM_WRITTEN], probe));
}

/* A quantity that is a product of sizes. */
static Term term_of(Reader *r, double value, const double *by)
{
    Scale scale = { 0 };
    for (int i = 0; i < r->probes; i++) {
        const Probe *probe = &r->probe[i];
        if (is_close(by[i], value))
            continue;
        const bool is_twice = probe->scale.divided && is_close(by[i], value * probe->times * probe->times);
        r->s->is_irregular |= !is_twice && !is_close(by[i], value * probe->times);
        scale.grows |= probe->scale.grows;
        scale.divided |= probe->scale.divided;
        scale.twice |= is_twice ? probe->scale.divided : 0;
    }
    return (Term){ alone(r, value, scale), scale };
}

/* --- Items ------------------------------------------------------------------------------------------------------ */

static double quantity(const CostItem *item, int which)
{
    return which == SIZED_M         ? (double)item->m
           : which == SIZED_N       ? (double)item->n
           : which == SIZED_K       ? (double)item->k
           : which == SIZED_COUNT   ? (double)item->count
           : which == SIZED_QUERIES ? (double)item->queries
           : which == SIZED_KEYS    ? (double)item->keys
           : which == SIZED_HEADS   ? (double)item->heads
                                    : item->flops;
}

static bool computes(const Reader *r, const CostItem *item) { return item->kind != ITEM_KERNEL || kernels_compute(r); }

static void read_terms(Reader *r, SizedItem *to, const CostItem *item, const CostItem *const *other)
{
    double by[MAX_AXES + 1];
    for (int which = 0; which < N_SIZED; which++) {
        for (int i = 0; i < r->probes; i++)
            by[i] = quantity(other[i], which);
        if (which != SIZED_FLOPS || computes(r, item))
            to->term[which] = term_of(r, quantity(item, which), by);
    }
}

static void read_bytes(Reader *r, SizedItem *to, const CostItem *item, const CostItem *const *other)
{
    const Type *table = item->bytes > 0 ? picked_table(item->op) : NULL;
    if (item->bytes > 0)
        visit_moved(r->m, item->op, add_type_on, &(Adding){ r, &to->sum[SUM_BYTES] });
    if (table)
        add_type_on(&(Adding){ r, &to->sum[SUM_TABLE] }, table);
    for (int i = 0; i < item->op->results.count; i++)
        add_type_on(&(Adding){ r, &to->sum[SUM_WRITTEN] }, &item->op->results.at[i]->type);
    r->s->is_irregular |= !is_close(probed_bytes(r, to, NULL), item->bytes);
    for (int i = 0; i < r->probes; i++)
        r->s->is_irregular |= !is_close(probed_bytes(r, to, &r->probe[i]), other[i]->bytes);
}

static bool splits_batch(const Reader *r, const Type *type, Axes axes)
{
    const int batch = find_dim(type, r->m->batch);
    bool splits = false;
    for (int i = 0; batch >= 0 && i < type->dim[batch].split.count; i++)
        splits |= axes >> type->dim[batch].split.axis[i] & 1;
    return splits;
}

/* Ranks that share a sequence also send what all of them have of the batch: rows of experts. */
static bool is_of_keys(const Reader *r, const CostItem *item)
{
    Axes attended = 0;
    for (int i = 0; i < r->s->naxes; i++)
        attended |= r->p->axis[r->s->axis[i]].attends ? 1u << i : 0;
    const Axes along = item->axes & attended;
    return along && !splits_batch(r, &arg(item->op, 0)->type, along) &&
           !splits_batch(r, &item->op->results.at[0]->type, along);
}

/* Of the repeat, or of a chunk of it: "h.copy", "h.copy.chunk2". */
static int repeat_of(const Reader *r, Name dim)
{
    const MadeDim *chunk = made_dim(r->m, dim, MADE_CHUNK);
    for (int i = 0; i < MAX_REPEATS && r->copies[i]; i++)
        if (r->copies[i] == (chunk ? chunk->of : dim))
            return i;
    return -1;
}

/* Is it of what no loop returns, even before a kernel that casts it? */
static bool is_late(const Op *message)
{
    const Op *from = arg(message, 0)->def;
    if (from && from->attrs.callee && !from->attrs.dims.count && from->args.count == 1)
        from = arg(from, 0)->def;
    return !from || !from->attrs.dims.count;
}

static int repeat_of_type(const Reader *r, const Type *type)
{
    int repeat = -1;
    for (int i = 0; i < type->rank && repeat < 0; i++)
        repeat = repeat_of(r, type->dim[i].name);
    return repeat;
}

static const SentTensor *sent_by(const CostItem *message, const Op *op)
{
    const SentTensor *sent = message->sent;
    while (sent->op != op)
        sent = sent->next;
    return sent;
}

/* Where rows or their bytes are no products of sizes, it counts as nothing; as for zero, whose dims depend on sizes. */
static void read_packing(Reader *r, SizedItem *to, const SentTensor *sent, const CostItem *const *other, int side)
{
    Sized *s = r->s;
    const Packing *packing = &sent->side[side];
    double rows[MAX_AXES + 1], row_bytes[MAX_AXES + 1];
    const bool was_irregular = s->is_irregular;
    for (int i = 0; i < r->probes; i++) {
        const Packing *by = &sent_by(other[i], sent->op)->side[side];
        rows[i] = (double)by->rows, row_bytes[i] = (double)by->row_bytes;
    }
    s->is_irregular = false;
    const Term all = term_of(r, (double)packing->rows, rows), each = term_of(r, (double)packing->row_bytes, row_bytes);
    if (packing->rows > 0 && !s->is_irregular) {
        s->packing = room_for(r->arena, s->packing, sizeof *s->packing, s->packings, 1, &r->packing_room);
        to->packing.first = to->packing.count ? to->packing.first : s->packings;
        s->packing[s->packings++] = (SizedPacking){ all, each, packing->long_row };
        to->packing.count++;
    }
    s->is_irregular = was_irregular;
}

/* Of all tensors that are joined in it. */
static void read_message(Reader *r, SizedItem *to, const CostItem *item, const CostItem *const *other)
{
    const Op *op = item->op;
    const int rank = r->item[r->read - 1].rank;
    for (int i = 0; i < item->tensors && op; i++, op = op->next) {
        const Type *from = &arg(op, 0)->type, *result = &op->results.at[0]->type;
        const Type *larger = local_bytes(r->m, from) > local_bytes(r->m, result) ? from : result;
        const double volume = message_item(r->m, r->arena, op, rank).volume;
        const int repeat = repeat_of_type(r, from);
        add_term(r, &to->sum[SUM_VOLUME], volume, scale_of_type(r, larger));
        if (repeat >= 0 && item->volume > 0)
            to->of_copies[repeat] += volume / item->volume;
    }
    r->s->is_irregular |= !is_close(probed(r, to->sum[SUM_VOLUME], NULL), item->volume);
    for (int i = 0; i < r->probes; i++)
        r->s->is_irregular |= !is_close(probed(r, to->sum[SUM_VOLUME], &r->probe[i]), other[i]->volume);
    to->meets = !r->is_fixed && item->ranks == count_ranks(r->m, item->axes);
    to->is_zero = item->op->attrs.purpose != ANY_PURPOSE;
    for (const SentTensor *sent = to->is_zero ? NULL : item->sent; sent; sent = sent->next)
        for (int side = 0; side < 2; side++)
            read_packing(r, to, sent, other, side);
    to->is_of_keys = !to->is_zero && is_of_keys(r, item);
    to->is_late = is_late(item->op);
}

/* Also several abreast. */
static bool runs_micros(const Op *loop)
{
    const char *dim = loop->attrs.dims.dim[0].name;
    return strcmp(dim, "micro") == 0 || strncmp(dim, "micro.", 6) == 0;
}

/* What stages hand on: with them, no message crosses the border of iterations, nor what it is of. */
static int count_handed_on(const Module *m, const Op *loop)
{
    const Func *f = find_func(m, loop->attrs.callee);
    int count = (int)loop->attrs.carried;
    while (count > 0 && f->params.at[count - 1]->type.in_flight) {
        const Value *sent = sent_before(f, f->params.at[--count]);
        count -= count > 0 && sent == f->params.at[count - 1];
    }
    return count;
}

static void read_loop(Reader *r, SizedItem *to, const CostItem *item)
{
    const Op *op = item->op;
    to->repeat = repeat_of(r, op->attrs.dims.dim[0].name);
    to->copies = op->attrs.dims.dim[0].size;
    to->reverse = op->attrs.reverse;
    to->is_micro = runs_micros(op);
    if (to->repeat >= 0 && to->reverse)
        read_scratch(r, op, add_type, &(Adding){ r, &to->sum[SUM_SCRATCH] }, &(Adding){ r, &to->sum[SUM_FLIGHTS] });
    for (int i = 0; i < count_handed_on(r->m, op); i++)
        add_type(&(Adding){ r, &to->sum[SUM_CARRIED] }, &op->results.at[i]->type);
    for (int i = (int)op->attrs.carried; i < op->results.count; i++)
        add_type(&(Adding){ r, &to->sum[SUM_SAVED] }, &op->results.at[i]->type);
}

static bool grows(const Reader *r, const Op *op)
{
    bool any = false;
    for (int i = 0; i < op->results.count; i++)
        for (int k = 0; k < op->results.at[i]->type.rank; k++)
            any |= grows_with_batch(r->m, op->results.at[i]->type.dim[k].name);
    return any;
}

static void read_item(Reader *r, SizedItem *to, const CostItem *item)
{
    const CostItem *other[MAX_AXES + 1];
    for (int i = 0; i < r->probes; i++)
        other[i] = &r->probe[i].item[r->read];
    r->read++;
    *to = (SizedItem){ .item = *item, .repeat = -1 };
    to->item.op = NULL, to->item.body = NULL;
    for (int i = 0; i < r->probes; i++)
        r->s->is_irregular |= other[i]->kind != item->kind || other[i]->turns != item->turns;
    if (item->kind < ITEM_MESSAGE) {
        to->grows = grows(r, item->op);
        read_terms(r, to, item, other);
        read_bytes(r, to, item, other);
    } else if (item->kind == ITEM_MESSAGE) {
        read_message(r, to, item, other);
    } else if (item->kind == ITEM_REPEAT) {
        read_loop(r, to, item);
    }
}

Range read_items(Reader *r, const CostList *list)
{
    Sized *s = r->s;
    const Range range = { s->items, list->count };
    s->item = room_for(r->arena, s->item, sizeof *s->item, s->items, list->count, &r->item_room);
    s->items += list->count;
    for (int i = 0; i < list->count && (r->is_fixed || !s->is_irregular); i++) {
        read_item(r, &s->item[range.first + i], &list->item[i]);
        if (list->item[i].kind == ITEM_REPEAT && (r->is_fixed || !s->is_irregular)) {
            const Range within = read_items(r, list->item[i].body); /* it may move the items */
            s->item[range.first + i].body = within;
        }
    }
    return range;
}

/* --- The program -------------------------------------------------------------------------------------------------- */

static void note_dim(Reader *r, const Dim *dim, bool is_once)
{
    Sized *s = r->s;
    SizedDim added = { .size = dim->padded, .is_once = is_once };
    for (int i = 0; i < dim->split.count && !dim->split.parts; i++)
        added.scale.divided |= 1u << dim->split.axis[i];
    if (!added.scale.divided)
        return;
    added.scale.grows = grows_with_batch(r->m, dim->name);
    for (int i = 0; i < s->dims; i++)
        if (s->dim[i].size == added.size && s->dim[i].scale.divided == added.scale.divided &&
            s->dim[i].scale.grows == added.scale.grows && s->dim[i].is_once == is_once)
            return;
    s->dim = room_for(r->arena, s->dim, sizeof *s->dim, s->dims, 1, &r->dim_room);
    s->dim[s->dims++] = added;
}

static void note_dims(Reader *r, const Values *values, bool is_once)
{
    for (int i = 0; i < values->count; i++)
        for (int k = 0; k < values->at[i]->type.rank; k++)
            note_dim(r, &values->at[i]->type.dim[k], is_once);
}

/* --- Bytes -------------------------------------------------------------------------------------------------------- */

/* Micro-batches abreast get a parameter of the step as a view. */
static bool is_split_param(const Value *value)
{
    return value->def && value->def->kind == OP_split && !arg(value->def, 0)->def;
}

static void add_held(const Adding *held, const Type *type, int repeat)
{
    if (repeat_of_type(held->r, type) == repeat)
        add_type((void *)held, type);
}

/* Weights are read as other values, too, which are away with them. */
static bool stays(const Reader *r, const Value *value)
{
    return !(r->p->away.away & AWAY_PARAMS) && !is_away(r->p, class_of(r->classes, value));
}

/* What is in memory when the last micro-batch ends: what the loop has read, its sums, and the state.  Of one
 * micro-batch alone: the state.  repeat: whose copies have it; -1: none. */
static void read_held(Reader *r, const Func *step, const Op *micro, int repeat)
{
    const Adding held = { r, repeat < 0 ? &r->s->held : &r->s->held_of[repeat] };
    for (int i = 0; i < step->params.count; i++)
        if ((!micro || index_of(&micro->args, step->params.at[i]) < 0) && stays(r, step->params.at[i]))
            add_held(&held, &step->params.at[i]->type, repeat);
    for (int i = micro ? micro->attrs.carried : 0; micro && i < micro->args.count; i++)
        if (index_of(&micro->args, arg(micro, i)) == i && !is_split_param(arg(micro, i)) && stays(r, arg(micro, i)))
            add_held(&held, &arg(micro, i)->type, repeat);
    for (int i = 0; micro && i < micro->results.count; i++)
        add_held(&held, &micro->results.at[i]->type, repeat);
}

static void read_alone(Reader *r)
{
    const CostList *step = &r->cost.before[0];
    const Op *micro = NULL;
    number_list(r, step, 0);
    probe_sizes(r);
    r->s->list[0] = read_items(r, step);
    for (int i = 0; i < step->count; i++)
        if (step->item[i].kind == ITEM_REPEAT && runs_micros(step->item[i].op))
            micro = step->item[i].op;
    for (int repeat = -1; repeat < MAX_REPEATS; repeat++)
        read_held(r, func_with_role(r->m, STEP), micro, repeat);
}

/* The dims that count copies are found by their names in the program with stages. */
void read_sized(const Planner *p, Sized *s, Module *m, const Classes *classes, bool is_fixed, Arena *arena)
{
    Reader r = { .p = p, .s = s, .m = m, .classes = classes, .arena = arena, .is_fixed = is_fixed };
    const RepeatLoads *weights = loads_of(p, s->key.recompute);
    Map in_micro = { .arena = arena };
    mark_micro(m, &in_micro);
    s->naxes = m->naxes;
    for (int i = 0; i < m->naxes; i++)
        s->axis[i] = plan_axis(p, m->axis[i]);
    for (int i = 0; i < weights->repeats; i++)
        r.copies[i] = intern_text(m, weights->dim[i]);
    r.cost = step_cost(m, classes, arena);
    s->messages = r.cost.messages;
    if (!has_actions(p, s))
        read_alone(&r);
    else if (r.cost.schedule)
        read_scheduled(&r);
    else
        s->refused = "it has no schedule";
    for (const Func *f = m->funcs; f && !is_fixed; f = f->next) {
        const bool is_once = !map_get(&in_micro, f);
        note_dims(&r, &f->params, is_once);
        for (const Op *op = f->first; op; op = op->next)
            note_dims(&r, &op->results, is_once);
    }
}
