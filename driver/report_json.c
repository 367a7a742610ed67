/* report_json.c -- the figures of a report as JSON. */
#include "report.h"

#include "tier.h"

static void add_rank_kind(const Report *r, cJSON *object, int kind)
{
    add_text(object, "name", kind_name(r, kind));
    add_json_integer(object, "ranks", r->ranks / r->kinds->count);
}

static void add_mesh(const Report *r, cJSON *json)
{
    cJSON *mesh = cJSON_AddObjectToObject(json, "mesh");
    add_json_integer(mesh, "ranks", r->ranks);
    cJSON *axes = cJSON_AddObjectToObject(mesh, "axes");
    for (int i = 0; i < r->m->naxes; i++)
        add_json_integer(axes, r->m->axis[i], r->m->axis_size[i]);
    cJSON *kinds = cJSON_AddArrayToObject(json, "rank_kinds");
    for (int kind = 0; kind < r->kinds->count; kind++)
        add_rank_kind(r, add_json_entry(kinds), kind);
}

/* --- Memory ------------------------------------------------------------------------------------------ */

static void add_held(const Report *r, cJSON *list, const Stretch *held)
{
    const Param *param = held->value ? param_behind(&r->classes, held->value) : NULL;
    cJSON *entry = add_json_entry(list);
    add_text(entry, "name", held_tensor_name(r, held));
    add_text(entry, "value", held->value ? held->value->name : "scratch");
    add_text(entry, "where", held_tensor_place(r, held));
    add_text(entry, "parameter", param ? param->path : "");
    add_text(entry, "class", class_name[held->kind]);
    add_text(entry, "type", held->value ? type_text(r->m, &held->value->type) : "");
    add_json_integer(entry, "offset", held->begin);
    add_json_integer(entry, "bytes", bytes_of_held(r->m, held, kind_of_peak(r)));
}

/* A kind of rank, with its memory by what it is for. */
static void add_kind(const Report *r, cJSON *object, int kind)
{
    const MemoryUse *use = &r->of_kind[kind];
    const MemoryGroups groups = memory_groups(use);
    add_text(object, "name", kind_name(r, kind));
    add_json_integer(object, "arena", use->arena);
    add_json_integer(object, "weights", groups.weights);
    add_json_integer(object, "gradients", groups.gradients);
    add_json_integer(object, "optimizer", groups.optimizer);
    add_json_integer(object, "slots", groups.slots);
    add_json_integer(object, "rest", groups.rest);
    add_json_integer(object, "messages", r->messages_on[kind]);
}

cJSON *memory_json(const Report *r)
{
    const MemoryUse *use = &r->memory;
    cJSON *object = cJSON_CreateObject();
    add_text(object, "unit", "bytes");
    add_json_integer(object, "arena", use->arena);
    cJSON *classes = cJSON_AddObjectToObject(object, "classes");
    for (int i = 0; i < N_CLASSES; i++)
        add_json_integer(classes, class_name[i], use->bytes[i]);
    add_json_integer(object, "unused", use->unused);
    add_json_integer(object, "messages", r->messages);
    add_json_integer(object, "save_copy", r->copied);
    if (r->products)
        add_json_integer(object, "products", r->products);
    if (r->far) {
        cJSON *far = cJSON_AddObjectToObject(object, "offloaded");
        add_text(far, "tier", Tier_words[far_tier(r->m)]);
        add_json_integer(far, "bytes", r->far);
        add_json_integer(far, "buffers", r->far_buffers);
        add_json_integer(far, "read", (int64_t)r->fetched);
        add_json_integer(far, "written", (int64_t)r->offloaded);
    }
    cJSON *kinds = cJSON_AddArrayToObject(object, "kinds");
    for (int kind = 0; kind < r->kinds->count; kind++)
        add_kind(r, add_json_entry(kinds), kind);
    cJSON *peak = cJSON_AddObjectToObject(object, "peak");
    add_text(peak, "op", use->op->path ? use->op->path : info(use->op)->name);
    add_text(peak, "where", use->op->where);
    add_text(peak, "function", use->func->name);
    for (int i = 0; i < N_ROLES; i++)
        if (r->peak[i])
            add_json_integer(peak, role_name[i], r->peak[i]);
    return object;
}

static void add_memory(const Report *r, cJSON *json)
{
    cJSON *memory = memory_json(r);
    cJSON_AddItemToObject(json, "memory", memory);
    cJSON *tensors = cJSON_AddArrayToObject(memory, "tensors");
    for (int i = 0; i < r->memory.nheld; i++)
        add_held(r, tensors, &r->memory.held[i]);
}

/* --- Communication ------------------------------------------------------------------------------------- */

static void add_traffic_row(const Report *r, cJSON *list, const TrafficRow *row)
{
    Module *m = r->m;
    const Op *op = row->first;
    cJSON *entry = add_json_entry(list);
    add_text(entry, "axes", axes_list(&r->run->arena, m, row->axes));
    add_json_integer(entry, "group", count_ranks(m, row->axes));
    add_text(entry, "collective", row->name);
    add_text(entry, "class", class_name[row->kind]);
    add_text(entry, "dtype", dtype_name[row->from.dtype]);
    add_text(entry, "cause", row->cause);
    cJSON_AddNumberToObject(entry, "messages", row->messages);
    cJSON_AddNumberToObject(entry, "tensors", row->tensors);
    cJSON_AddNumberToObject(entry, "volume", row->volume);
    cJSON_AddNumberToObject(entry, "sent", row->sent);
    if (m->target->is_gpu)
        cJSON_AddNumberToObject(entry, "packed", row->packed);
    cJSON *first = cJSON_AddObjectToObject(entry, "first");
    add_text(first, "op", op->path);
    add_text(first, "where", op->where);
    add_text(first, "from", type_text(m, &row->from));
    add_text(first, "to", type_text(m, &row->to));
}

static void add_traffic(const Report *r, cJSON *json)
{
    cJSON *object = cJSON_AddObjectToObject(json, "communication");
    cJSON_AddBoolToObject(object, "overlap_grads", r->m->train.overlap_grads);
    cJSON_AddBoolToObject(object, "overlap_params", r->m->train.overlap_params);
    double volume = 0, sent = 0;
    add_text(object, "unit", "bytes a step, of one rank");
    cJSON *list = cJSON_AddArrayToObject(object, "collectives");
    for (int i = 0; i < r->nrows; i++) {
        add_traffic_row(r, list, &r->row[i]);
        volume += r->row[i].volume, sent += r->row[i].sent;
    }
    cJSON_AddNumberToObject(object, "volume", volume);
    cJSON_AddNumberToObject(object, "sent", sent);
}

/* --- Precision, work ------------------------------------------------------------------------------------ */

static void add_dtypes(cJSON *object, const char *key, unsigned set)
{
    cJSON *list = cJSON_AddArrayToObject(object, key);
    for (int i = 0; i < N_PRECISIONS; i++)
        if (set >> i & 1)
            cJSON_AddItemToArray(list, cJSON_CreateString(precision_name(i)));
}

static void add_precision(const Report *r, cJSON *json)
{
    cJSON *object = cJSON_AddObjectToObject(json, "precision");
    for (int i = 0; i < N_CLASSES; i++) {
        const Precisions *p = &r->precision[i];
        if (!p->stored)
            continue;
        cJSON *entry = cJSON_AddObjectToObject(object, class_name[i]);
        add_dtypes(entry, "stored", p->stored);
        add_dtypes(entry, "computed", p->computed);
        add_dtypes(entry, "added_up", p->summed);
        add_dtypes(entry, "sent", p->sent);
    }
}

static void add_work(const Report *r, cJSON *json)
{
    cJSON *object = cJSON_AddObjectToObject(json, "work");
    double rank = 0;
    add_text(object, "unit", "FLOPs a step");
    cJSON_AddNumberToObject(object, "model", r->totals.flops);
    add_text(object, "model_convention", FLOPS_CONVENTION);
    cJSON *parts = cJSON_AddObjectToObject(object, "rank_parts");
    for (int i = 0; i < N_WORKS; i++) {
        cJSON_AddNumberToObject(parts, work_name[i], r->work[i]);
        rank += r->work[i];
    }
    cJSON_AddNumberToObject(object, "rank", rank);
    cJSON_AddNumberToObject(object, "alike", r->alike_work);
    cJSON *list = cJSON_AddArrayToObject(object, "alike_ops");
    for (int i = 0; i < r->nalike; i++) {
        cJSON *entry = add_json_entry(list);
        add_text(entry, "op", r->alike[i].op->path);
        add_text(entry, "where", r->alike[i].op->where);
        add_text(entry, "axes", axes_list(&r->run->arena, r->m, r->alike[i].axes));
        cJSON_AddNumberToObject(entry, "flops", r->alike[i].flops);
    }
}

static void add_experts(const Report *r, cJSON *json)
{
    cJSON *list = r->nexperts ? cJSON_AddArrayToObject(json, "experts") : NULL;
    for (int i = 0; i < r->nexperts; i++) {
        const ExpertRow *row = &r->expert[i];
        cJSON *entry = add_json_entry(list);
        add_text(entry, "op", row->fills->path);
        add_text(entry, "where", row->fills->where);
        add_json_integer(entry, "choices", row->filled.choices);
        add_json_integer(entry, "experts", row->filled.experts);
        cJSON_AddNumberToObject(entry, "rows_balanced", (double)row->filled.choices / (double)row->filled.experts);
        add_json_integer(entry, "rows_planned", row->filled.slots * row->filled.rounds);
        add_json_integer(entry, "rounds", row->filled.rounds);
        add_json_integer(entry, "saved_bytes", row->saved);
        add_json_integer(entry, "other_bytes", row->passing);
        cJSON_AddNumberToObject(entry, "sent_bytes", row->sent);
        cJSON_AddNumberToObject(entry, "sent_bytes_balanced", row->sent_balanced);
    }
}

cJSON *report_json(const Report *r)
{
    cJSON *json = cJSON_CreateObject();
    add_text(json, "mpc", MPC_VERSION);
    add_text(json, "model", r->m->name);
    add_text(json, "source", r->m->source);
    add_json_integer(json, "parameters", r->totals.parameters);
    add_json_integer(json, "tokens", r->totals.micro * r->totals.batch * r->totals.seq);
    add_json_integer(json, "micro_batches", r->totals.micro);
    add_mesh(r, json);
    add_memory(r, json);
    add_traffic(r, json);
    add_precision(r, json);
    add_work(r, json);
    add_experts(r, json);
    add_pipeline_json(r, json);
    add_lines_json(r, json);
    if (r->time)
        cJSON_AddItemToObject(json, "time", time_json(r));
    if (r->remedies)
        cJSON_AddItemToObject(json, "does_not_fit", remedies_json(r));
    if (r->faster)
        cJSON_AddItemToObject(json, "faster", faster_json(r));
    return json;
}
