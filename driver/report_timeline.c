/* report_timeline.c -- the picture of the step as JSON, which the script of a page draws: driver/page/timeline.js. */
#include "report.h"

/* A list of numbers as short as they are told apart: pages have thousands. */
static void add_row(cJSON *list, const char *text) { cJSON_AddItemToArray(list, cJSON_CreateRaw(text)); }

typedef struct {
    TimelineView v;
    Module *m;
    cJSON *texts;
    Map number; /* of a text, + 1 */
    int count;
} TimelineJson;

static int text_number(TimelineJson *t, const char *text)
{
    const Name name = intern_text(t->m, text); /* bars of several messages often say the same */
    intptr_t number = (intptr_t)map_get(&t->number, name);
    if (!number) {
        number = ++t->count;
        map_put(&t->number, name, (void *)number);
        cJSON_AddItemToArray(t->texts, cJSON_CreateString(text));
    }
    return (int)number - 1;
}

static void add_bars(TimelineJson *t, cJSON *list, const TimelineBars *bars)
{
    cJSON *rows = cJSON_CreateArray();
    cJSON_AddItemToArray(list, rows);
    for (int i = 0; bars && i < bars->count; i++) {
        const TimelineBar *bar = &bars->bar[i];
        add_row(rows, arena_text(&t->v.arena, "[%d,%d,%.7g,%.7g,%.7g,%d]", bar->kind, bar->lane, bar->start, bar->end,
                                 bar->seconds, text_number(t, bar->text)));
    }
}

static void add_level(TimelineJson *t, cJSON *levels, const TimelineLevel *level)
{
    const int stages = t->v.s ? stage_count(t->v.s) : 0;
    cJSON *object = add_json_entry(levels), *before = cJSON_AddArrayToObject(object, "before");
    cJSON *after = cJSON_AddArrayToObject(object, "after"), *actions = cJSON_AddArrayToObject(object, "action");
    for (int rank = 0; rank < row_count(&t->v); rank++) {
        add_bars(t, before, &level->before[rank]);
        add_bars(t, after, &level->after[rank]);
    }
    for (int kind = 0; t->v.s && kind < N_ACTION_KINDS; kind++) {
        cJSON *by_stage = cJSON_CreateArray();
        cJSON_AddItemToArray(actions, by_stage);
        for (int stage = 0; stage < stages; stage++)
            add_bars(t, by_stage, level->action[kind] ? &level->action[kind][stage] : NULL);
    }
}

static void add_names(cJSON *json, const char *key, const char *const *name, int count)
{
    cJSON *list = cJSON_AddArrayToObject(json, key);
    for (int i = 0; i < count; i++)
        cJSON_AddItemToArray(list, name[i] ? cJSON_CreateString(name[i]) : cJSON_CreateNull());
}

static void add_step(TimelineJson *t, cJSON *json, const TimelineStep *step)
{
    cJSON_AddStringToObject(json, "rate", step->rate);
    add_names(json, "lanes", step->lane, step->nlanes);
    add_names(json, "classes", step->class_name, WORK_CLASSES);
    cJSON *levels = cJSON_AddArrayToObject(json, "levels");
    t->texts = cJSON_AddArrayToObject(json, "texts");
    for (int i = 0; i < step->nlevels; i++)
        add_level(t, levels, &step->level[i]);
}

static void add_rank(TimelineJson *t, cJSON *object, int rank)
{
    TimelineView *v = &t->v;
    cJSON *actions = cJSON_AddArrayToObject(object, "actions"), *memory = cJSON_AddArrayToObject(object, "memory");
    cJSON_AddStringToObject(object, "name", row_name(v, rank));
    cJSON_AddStringToObject(object, "holds", v->s ? stages_on_rank(v, rank) : "computes");
    cJSON_AddNumberToObject(object, "fixed_bytes", v->p->fixed_bytes[rank]);
    for (int i = 0; v->s && i < v->s->nactions[rank]; i++) {
        const Action a = v->s->action[rank][i];
        add_row(actions, arena_text(&v->arena, "[%d,%d,%d,%.7g,%.7g]", a.kind, a.stage, a.micro, v->t.start[rank][i],
                                    v->t.end[rank][i]));
    }
    for (int i = 0; v->s && i < v->memory[rank].count; i++)
        add_row(memory,
                arena_text(&v->arena, "[%.7g,%.0f]", v->memory[rank].level[i].at, v->memory[rank].level[i].bytes));
}

void add_timeline_json(const Report *r, cJSON *json)
{
    TimelineJson t = { .v = view_timeline(r->picture), .m = r->m };
    TimelineView *v = &t.v;
    cJSON *object = cJSON_AddObjectToObject(json, "timeline");
    t.number.arena = &v->arena;
    cJSON_AddStringToObject(object, "subject", counts_text(v));
    cJSON_AddStringToObject(object, "unit", v->unit_name);
    cJSON_AddNumberToObject(object, "unit_seconds", v->unit);
    cJSON_AddNumberToObject(object, "from", v->from);
    cJSON_AddNumberToObject(object, "to", v->to);
    if (v->s) {
        cJSON_AddNumberToObject(object, "micro_batches", v->s->micros);
        cJSON_AddNumberToObject(object, "chunks", v->s->chunks);
        cJSON_AddNumberToObject(object, "message", v->p->costs->message);
        cJSON_AddBoolToObject(object, "splits_backward", v->s->splits_backward);
        cJSON_AddBoolToObject(object, "reduces", v->s->reduces);
    }
    cJSON *ranks = cJSON_AddArrayToObject(object, "ranks");
    for (int rank = 0; rank < row_count(v); rank++)
        add_rank(&t, add_json_entry(ranks), rank);
    if (v->p->step)
        add_step(&t, object, v->p->step);
    arena_free(&v->arena);
}
