/* report.c -- mpc report: the cost of one training step on each rank of a mesh, computed from the compiled program. */
#include "report.h"

#include "tier.h"

#include "codegen/host/host.h"
#include "split_loop.h"

#include <stdlib.h>

const char *const work_name[N_WORKS] = {
    [PRODUCTS] = "products", [LIBRARIES] = "attention and gathers", [ELEMENTWISE] = "elementwise and sums"
};

const char *axes_list(Arena *arena, const Module *m, Axes axes)
{
    const char *text = axes || !far_tier(m) ? "" : Tier_words[far_tier(m)]; /* transfers are over none */
    for (int i = 0; i < m->naxes; i++)
        if (axes >> i & 1)
            text = arena_text(arena, "%s%s%s", text, *text ? "+" : "", m->axis[i]);
    return text;
}

/* --- Rows ---------------------------------------------------------------------------------------- */

/* The row of the same traffic, or a new one. */
static TrafficRow *traffic_row(Report *r, const TrafficRow *like)
{
    for (int i = 0; i < r->nrows; i++) {
        const TrafficRow *row = &r->row[i];
        if (row->name == like->name && row->axes == like->axes && row->cause == like->cause &&
            row->kind == like->kind && row->from.dtype == like->from.dtype)
            return &r->row[i];
    }
    GROW(&r->run->arena, r->row, r->nrows, r->row_room);
    r->row[r->nrows] = *like;
    return &r->row[r->nrows++];
}

static AlikeRow *alike_row(Report *r, const Op *op, Axes axes)
{
    for (int i = 0; i < r->nalike; i++)
        if (r->alike[i].op->path == op->path && r->alike[i].op->where == op->where && r->alike[i].axes == axes)
            return &r->alike[i];
    GROW(&r->run->arena, r->alike, r->nalike, r->alike_room);
    r->alike[r->nalike] = (AlikeRow){ .op = op, .axes = axes };
    return &r->alike[r->nalike++];
}

/* --- One op -------------------------------------------------------------------------------------- */

static void add_traffic(Report *r, const Op *op, double times)
{
    /* The class of a gathered or summed tensor is that of the result, which is known from its readers; scalars have
     * none. */
    const TrafficRow like = { .first = op,
                              .name = info(op)->name,
                              .axes = info(op)->traits & MOVES ? 1u << result(op)->type.on.axis : op->attrs.axis,
                              .cause = op->attrs.cause ? op->attrs.cause : intern_text(r->m, "program"),
                              .from = arg(op, 0)->type,
                              .to = result(op)->type,
                              .kind = class_of(&r->classes, result(op)) };
    Traffic traffic = op_traffic(r->m, op);
    Packing side[2];
    r->m->target->packing(r->m, op, side);
    TrafficRow *row = traffic_row(r, &like);
    row->tensors += times;
    row->messages += joins_message(op) ? 0 : times;
    row->volume += traffic.volume * times;
    row->sent += traffic.sent * times;
    row->packed += packed_bytes(side) * times;
}

/* What a split loop carries from each of its ranks but the last to the next one: the mean of its ranks. */
static void add_loop_traffic(Report *r, const Op *loop, double times)
{
    static const char name[] = "send";
    const Split split = loop->attrs.dims.dim[0].split;
    const double share = share_passing_on(r->m, loop) * times;
    for (int i = 0; i < loop->attrs.carried && share > 0; i++) {
        const Value *carried = loop->results.at[i];
        const TrafficRow like = { .first = loop,
                                  .name = name,
                                  .axes = 1u << split.axis[0],
                                  .cause = intern_format(r->m, "pipeline.%s", loop->attrs.callee),
                                  .from = carried->type,
                                  .to = carried->type,
                                  .kind = ACTIVATIONS };
        TrafficRow *row = traffic_row(r, &like);
        row->tensors += share;
        row->messages += share;
        row->volume += (double)local_bytes(r->m, &carried->type) * share;
        row->sent += (double)local_bytes(r->m, &carried->type) * share;
    }
}

static void add_work(Report *r, const Func *f, const Op *op, double times)
{
    Work work = op_work(r->m, f, op);
    int kind = info(op)->family == PRODUCT ? PRODUCTS : info(op)->family == LIBRARY ? LIBRARIES : ELEMENTWISE;
    r->work[kind] += work.rank * times;
    r->alike_work += work.alike * times;
    if (work.alike > 0)
        alike_row(r, op, work.axes)->flops += work.alike * times;
}

/* Kernels compute and sum in f32, independent of operands; products and attention use the dtype of their operands, or
 * what these were rounded to. */
static void add_precision(Report *r, const Op *op)
{
    Family family = info(op)->family;
    const bool is_by_operand = family == PRODUCT || family == LIBRARY;
    for (int i = 0; i < op->args.count; i++) {
        const Type *type = &arg(op, i)->type;
        Precisions *p = &r->precision[class_of(&r->classes, arg(op, i))];
        if (!is_float(type->dtype) || type->rank == 0)
            continue;
        bool adds_up = is_by_operand || family == REDUCTION;
        if (info(op)->traits & SENDS)
            p->sent |= 1u << type->dtype, p->summed |= type->partial & op->attrs.axis ? 1u << F32 : 0;
        else if (info(op)->flops)
            p->computed |= 1u << (op->attrs.fp8   ? E4M3
                                  : is_by_operand ? (int)type->dtype
                                                  : F32),
                p->summed |= adds_up ? 1u << F32 : 0;
    }
}

static void add_storage(Report *r, const Value *value)
{
    if (value->storage && value->type.rank > 0)
        r->precision[class_of(&r->classes, value)].stored |= 1u << value->type.dtype;
}

static void add_op(void *context, const Func *f, const Op *op, double times)
{
    Report *r = context;
    if (info(op)->traits & SENDS)
        add_traffic(r, op, times);
    if (is_split_loop(op))
        add_loop_traffic(r, op, times);
    if (info(op)->traits & CARRIES)
        *(op->attrs.tier ? &r->offloaded : &r->fetched) += (double)local_bytes(r->m, &result(op)->type) * times;
    add_work(r, f, op, times);
    add_precision(r, op);
    for (int i = 0; i < op->results.count; i++)
        add_storage(r, op->results.at[i]);
}

/* --- The whole report ------------------------------------------------------------------------------- */

static int more_sent_first(const void *a, const void *b)
{
    const TrafficRow *x = a, *y = b;
    return (x->sent < y->sent) - (x->sent > y->sent);
}

static int more_work_first(const void *a, const void *b)
{
    const AlikeRow *x = a, *y = b;
    return (x->flops < y->flops) - (x->flops > y->flops);
}

static void find_memory(Report *r)
{
    r->kinds = rank_kinds(r->m);
    r->of_kind = NEW_ARRAY(&r->run->arena, MemoryUse, r->kinds->count);
    for (int kind = 0; kind < r->kinds->count; kind++)
        r->of_kind[kind] = memory_use(&r->classes, r->kinds, kind);
    r->memory = r->of_kind[kind_of_peak(r)];
    for (FuncRole role = 0; role < N_ROLES; role++)
        if (func_with_role(r->m, role) && is_program(func_with_role(r->m, role)))
            r->peak[role] = program_peak(&r->classes, r->kinds, kind_of_peak(r), role);
}

int kind_of_peak(const Report *r)
{
    int fullest = 0;
    for (int kind = 1; kind < r->kinds->count; kind++)
        fullest = r->of_kind[kind].arena > r->of_kind[fullest].arena ? kind : fullest;
    return fullest;
}

static void find_message_space(Report *r)
{
    r->messages_on = NEW_ARRAY(&r->run->arena, int64_t, r->kinds->count);
    message_space(r->m, r->kinds->count, r->messages_on);
    for (int kind = 0; kind < r->kinds->count; kind++)
        r->messages = r->messages_on[kind] > r->messages ? r->messages_on[kind] : r->messages;
}

/* What is on disk is not copied. */
static int64_t copied_state(const Report *r)
{
    const KindFrame *frame = kind_frame(r->kinds, func_with_role(r->m, STEP));
    int64_t most = 0;
    for (int kind = 0; kind < r->kinds->count; kind++) {
        const int64_t bytes = place_on(frame, kind, state_bytes(r->m));
        most = bytes > most ? bytes : most;
    }
    return most + (r->m->target->is_gpu ? r->far : 0);
}

MemoryGroups memory_groups(const MemoryUse *use)
{
    const int64_t *bytes = use->bytes;
    MemoryGroups groups = { .weights = bytes[MASTER_WEIGHTS] + bytes[WEIGHTS],
                            .gradients = bytes[GRADIENTS],
                            .optimizer = bytes[OPTIMIZER_STATE],
                            .slots = use->slots };
    groups.rest = use->arena - groups.weights - groups.gradients - groups.optimizer - groups.slots;
    return groups;
}

const char *kind_name(const Report *r, int kind)
{
    return r->kinds->axis < 0 ? "all" : arena_text(&r->run->arena, "%s=%d", r->m->axis[r->kinds->axis], kind);
}

Report make_report(Run *run, Module *m)
{
    Report r = {
        .run = run,
        .m = m,
        .totals = program_totals(m),
        .classes = classify_tensors(m),
        .axis = m->kind_axis,
    };
    const Func *step = func_with_role(m, STEP);
    find_memory(&r);
    find_message_space(&r);
    r.far = far_bytes(m);
    r.far_buffers = transfer_space(m);
    r.copied = copied_state(&r);
    r.products = product_space(m);
    r.ranks = count_ranks(m, ~0u);
    for (int i = 0; i < step->params.count; i++)
        add_storage(&r, step->params.at[i]);
    visit_program(m, step, add_op, &r);
    find_experts(&r, step);
    if (r.nrows)
        qsort(r.row, (size_t)r.nrows, sizeof *r.row, more_sent_first);
    if (r.nalike)
        qsort(r.alike, (size_t)r.nalike, sizeof *r.alike, more_work_first);
    return r;
}

const char *held_tensor_name(const Report *r, const Stretch *held)
{
    const Param *param = held->value ? param_behind(&r->classes, held->value) : NULL;
    if (param)
        return param->path;
    if (!held->op)
        return held->value->name;
    const Op *op = held->value ? origin_of(r->m, held->value) : held->op;
    return op->path ? op->path : info(op)->name;
}

const char *held_tensor_place(const Report *r, const Stretch *held)
{
    const Op *op = held->op && held->value ? origin_of(r->m, held->value) : held->op;
    const Param *param = held->value ? param_behind(&r->classes, held->value) : NULL;
    const char *where = param ? param->where : op ? op->where : NULL;
    return where ? where : "";
}
