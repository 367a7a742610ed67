/* costs_json.c -- the items of the step as JSON: mpc report --costs. */
#include "report.h"

static void add_list(const Report *r, cJSON *object, const char *key, const CostList *list);

static void add_product(cJSON *entry, const CostItem *item)
{
    cJSON_AddStringToObject(entry, "dtype", precision_name(item->precision));
    add_json_integer(entry, "m", item->m);
    add_json_integer(entry, "n", item->n);
    add_json_integer(entry, "k", item->k);
    add_json_integer(entry, "count", item->count);
}

static void add_attention(cJSON *entry, const CostItem *item)
{
    cJSON_AddStringToObject(entry, "dtype", precision_name(item->precision));
    add_json_integer(entry, "queries", item->queries);
    add_json_integer(entry, "keys", item->keys);
    add_json_integer(entry, "features", item->features);
    add_json_integer(entry, "heads", item->heads);
    cJSON_AddBoolToObject(entry, "gradient", item->backward);
}

static void add_message(const Report *r, cJSON *entry, const CostItem *item)
{
    cJSON_AddStringToObject(entry, "collective", info(item->op)->name);
    cJSON_AddStringToObject(entry, "axes", axes_list(&r->run->arena, r->m, item->axes));
    add_json_integer(entry, "ranks", item->ranks);
    cJSON_AddNumberToObject(entry, "volume", item->volume);
    cJSON_AddNumberToObject(entry, "tensors", item->tensors);
    if (item->id)
        cJSON_AddNumberToObject(entry, "started", item->id);
    if (item->ahead)
        cJSON_AddBoolToObject(entry, "ahead", true);
    if (item->early)
        cJSON_AddNumberToObject(entry, "after_chunk", item->early - 1);
}

static void add_item(const Report *r, cJSON *list, const CostItem *item)
{
    static const char *const kind[N_ITEM_KINDS] = { "product", "attention", "kernel", "message", "wait", "repeat" };
    cJSON *entry = add_json_entry(list);
    const bool runs = item->kind < ITEM_MESSAGE;
    cJSON_AddStringToObject(entry, "kind", kind[item->kind]);
    if (item->kind < ITEM_WAIT) {
        cJSON_AddStringToObject(entry, "op", item->op->path ? item->op->path : info(item->op)->name);
        cJSON_AddStringToObject(entry, "where", item->op->where ? item->op->where : "");
        cJSON_AddStringToObject(entry, "phase", phase_name[item->phase]);
    }
    if (runs)
        cJSON_AddNumberToObject(entry, "flops", item->flops), cJSON_AddNumberToObject(entry, "bytes", item->bytes);
    if (item->kind == ITEM_PRODUCT)
        add_product(entry, item);
    else if (item->kind == ITEM_ATTENTION)
        add_attention(entry, item);
    else if (item->kind == ITEM_MESSAGE)
        add_message(r, entry, item);
    else if (item->kind == ITEM_WAIT)
        cJSON_AddNumberToObject(entry, "started", item->id);
    else if (item->kind == ITEM_REPEAT) {
        cJSON_AddNumberToObject(entry, "turns", item->turns);
        add_list(r, entry, "items", item->body);
    }
}

static void add_list(const Report *r, cJSON *object, const char *key, const CostList *list)
{
    cJSON *array = cJSON_AddArrayToObject(object, key);
    for (int i = 0; i < list->count; i++)
        add_item(r, array, &list->item[i]);
}

static void add_ranks(const Report *r, cJSON *json, const StepCost *cost)
{
    cJSON *ranks = cJSON_AddArrayToObject(json, "rank_kinds");
    for (int kind = 0; kind < cost->kinds; kind++) {
        cJSON *entry = add_json_entry(ranks);
        cJSON_AddStringToObject(entry, "name", kind_name(r, kind));
        add_json_integer(entry, "arena_bytes", r->of_kind[kind].arena);
        add_json_integer(entry, "message_bytes", r->messages_on[kind]);
        add_json_integer(entry, "product_bytes", r->products);
        add_list(r, entry, cost->schedule ? "before" : "step", &cost->before[kind]);
        if (cost->schedule)
            add_list(r, entry, "after", &cost->after[kind]);
    }
}

static void add_schedule(const Report *r, cJSON *json, const StepCost *cost)
{
    static const char *const letter[N_ACTION_KINDS] = { "F", "B", "W" };
    const PipelineSchedule *s = cost->schedule;
    cJSON *object = cJSON_AddObjectToObject(json, "pipeline");
    cJSON_AddStringToObject(object, "schedule", s->name);
    cJSON_AddNumberToObject(object, "micro_batches", s->micros);
    cJSON_AddNumberToObject(object, "message_bytes", cost->stage_message);
    cJSON *list = cJSON_AddArrayToObject(object, "actions");
    for (int stage = 0; stage < stage_count(s); stage++)
        for (int kind = 0; kind < (s->splits_backward ? N_ACTION_KINDS : WEIGHT_ACTION); kind++) {
            cJSON *entry = add_json_entry(list);
            cJSON_AddStringToObject(entry, "kind", letter[kind]);
            cJSON_AddNumberToObject(entry, "stage", stage);
            cJSON_AddNumberToObject(entry, "rank", rank_of_stage(s, stage));
            add_list(r, entry, "items", &cost->action[kind][stage]);
        }
}

bool write_costs(const Report *r, const char *path)
{
    const StepCost *cost = r->cost;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "mpc", MPC_VERSION);
    cJSON_AddStringToObject(json, "model", r->m->name);
    cJSON *axes = cJSON_AddObjectToObject(json, "axes");
    for (int i = 0; i < r->m->naxes; i++)
        add_json_integer(axes, r->m->axis[i], r->m->axis_size[i]);
    add_ranks(r, json, cost);
    if (cost->schedule)
        add_schedule(r, json, cost);
    Arena *arena = &r->run->arena;
    return write_new(r->run, path, arena_text(arena, "%s\n", json_text(arena, json, true)));
}
