/* report_lines.c -- the figures of a report by line of the model: work and messages, and memory over the step. */
#include "report.h"

#include <string.h>

/* All ops of one path and line: of the forward pass, the backward pass and the update. */
typedef struct {
    const Op *first;
    const Type *type; /* of the last tensor in the forward pass, if there is one, else of the first */
    bool is_forward;
    double times, flops, sent; /* in a step; times: of the op that runs most often */
    const char *messages;      /* "all_gather over tp, reduce_scatter over tp" */
} LineRow;

typedef struct {
    const Report *r;
    Arena *arena;
    Map forward, rows, times; /* rows: by path and line; times: of an op, as a double */
    bool in_forward;          /* the kernel whose ops follow */
    int count, room;
    LineRow **row;
} LineRows;

static Name line_key(const LineRows *l, const Op *op)
{
    return intern_format(l->r->m, "%s %s", op->path ? op->path : "", op->where);
}

static LineRow *line_of(LineRows *l, const Op *op)
{
    const Name key = line_key(l, op);
    LineRow *row = map_get(&l->rows, key);
    if (row)
        return row;
    GROW(l->arena, l->row, l->count, l->room);
    row = NEW(l->arena, LineRow);
    *row = (LineRow){ .first = op, .messages = "" };
    map_put(&l->rows, key, row);
    return l->row[l->count++] = row;
}

static void add_sent(LineRows *l, LineRow *row, const Op *op, double times)
{
    const Axes over = info(op)->traits & MOVES ? 1u << result(op)->type.on.axis : op->attrs.axis;
    const char *axes = axes_list(l->arena, l->r->m, over);
    const char *message = arena_text(l->arena, "%s over %s", info(op)->name, axes);
    row->sent += op_traffic(l->r->m, op).sent * times;
    if (!strstr(row->messages, message))
        row->messages = arena_text(l->arena, "%s%s%s", row->messages, *row->messages ? ", " : "", message);
}

/* Ops of a kernel follow its call. */
static void add_op(void *context, const Func *f, const Op *op, double times)
{
    LineRows *l = context;
    double *runs = map_get(&l->times, op);
    if (!runs)
        map_put(&l->times, op, runs = NEW(l->arena, double));
    *runs += times;
    if (f->role != KERNEL)
        l->in_forward = map_get(&l->forward, op);
    if (!op->where || times <= 0)
        return;
    LineRow *row = line_of(l, op);
    if (op->results.count && (!row->type || (result(op)->type.rank && (l->in_forward || !row->type->rank))))
        row->type = &result(op)->type;
    row->is_forward |= l->in_forward;
    row->times = times > row->times ? times : row->times;
    row->flops += op_work(l->r->m, f, op).rank * times;
    if (info(op)->traits & SENDS)
        add_sent(l, row, op, times);
}

static void add_row(const LineRows *l, cJSON *list, const LineRow *row)
{
    cJSON *entry = add_json_entry(list);
    cJSON_AddStringToObject(entry, "op", row->first->path ? row->first->path : "");
    cJSON_AddStringToObject(entry, "where", row->first->where);
    cJSON_AddStringToObject(entry, "type", row->type ? type_text(l->r->m, row->type) : "");
    cJSON_AddBoolToObject(entry, "forward", row->is_forward);
    cJSON_AddNumberToObject(entry, "times", row->times);
    cJSON_AddNumberToObject(entry, "flops", row->flops);
    cJSON_AddNumberToObject(entry, "sent", row->sent);
    cJSON_AddStringToObject(entry, "messages", row->messages);
}

static void add_weights(const Report *r, cJSON *json)
{
    cJSON *list = cJSON_AddArrayToObject(json, "weights");
    for (const Param *param = r->m->params; param; param = param->next) {
        cJSON *entry = add_json_entry(list);
        cJSON_AddStringToObject(entry, "name", param->path);
        cJSON_AddStringToObject(entry, "where", param->where ? param->where : "");
        cJSON_AddStringToObject(entry, "type", type_text(r->m, &param->type));
        cJSON_AddBoolToObject(entry, "trained", !param->frozen && !param->state);
    }
}

/* --- Memory over the step --------------------------------------------------------------------------- */

/* Neighbours of one path and line are one row: the moment at which most is held. */
typedef struct {
    LineRows *lines;
    cJSON *list;
    const Func *func;
    const Op *op;
    int64_t bytes[N_CLASSES], total;
} MemoryRows;

static bool is_same_line(const MemoryRows *m, const Func *f, const Op *op)
{
    const char *here = op->where ? op->where : "", *there = m->op && m->op->where ? m->op->where : "";
    return m->op && m->func == f && m->op->path == op->path && strcmp(here, there) == 0;
}

static void end_row(MemoryRows *m)
{
    if (!m->op)
        return;
    const double *times = map_get(&m->lines->times, m->op);
    cJSON *entry = add_json_entry(m->list);
    cJSON_AddStringToObject(entry, "op", m->op->path ? m->op->path : info(m->op)->name);
    cJSON_AddStringToObject(entry, "where", m->op->where ? m->op->where : "");
    cJSON_AddStringToObject(entry, "function", m->func->name);
    cJSON_AddNumberToObject(entry, "times", times ? *times : 0);
    cJSON *bytes = cJSON_AddArrayToObject(entry, "bytes");
    for (int i = 0; i < N_CLASSES; i++)
        cJSON_AddItemToArray(bytes, cJSON_CreateNumber((double)m->bytes[i]));
}

static void add_moment(void *context, const Func *f, const Op *op, const int64_t bytes[N_CLASSES])
{
    MemoryRows *m = context;
    int64_t total = 0;
    for (int i = 0; i < N_CLASSES; i++)
        total += bytes[i];
    if (!is_same_line(m, f, op)) {
        end_row(m);
        m->total = -1;
    }
    if (total <= m->total)
        return;
    m->func = f, m->op = op, m->total = total;
    memcpy(m->bytes, bytes, sizeof m->bytes);
}

static void add_memory_over_step(LineRows *l, cJSON *json)
{
    const Report *r = l->r;
    cJSON *object = cJSON_AddObjectToObject(json, "memory_over_step");
    cJSON_AddStringToObject(object, "unit", "bytes");
    cJSON_AddStringToObject(object, "rank_kind", kind_name(r, kind_of_peak(r)));
    cJSON *classes = cJSON_AddArrayToObject(object, "classes");
    for (int i = 0; i < N_CLASSES; i++)
        cJSON_AddItemToArray(classes, cJSON_CreateString(class_name[i]));
    MemoryRows rows = { .lines = l, .list = cJSON_AddArrayToObject(object, "ops") };
    visit_memory((Classes *)&r->classes, r->kinds, kind_of_peak(r), add_moment, &rows);
    end_row(&rows);
}

void add_lines_json(const Report *r, cJSON *json)
{
    Arena *arena = &r->run->arena;
    LineRows l = { .r = r, .arena = arena, .forward.arena = arena, .rows.arena = arena, .times.arena = arena };
    const Func *step = func_with_role(r->m, STEP);
    mark_forward(r->m, &l.forward, result_for(step, PORT_LOSS));
    visit_program(r->m, step, add_op, &l);
    cJSON *list = cJSON_AddArrayToObject(json, "lines");
    for (int i = 0; i < l.count; i++)
        add_row(&l, list, l.row[i]);
    add_weights(r, json);
    add_memory_over_step(&l, json);
}
