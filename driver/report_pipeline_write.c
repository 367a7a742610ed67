/* report_pipeline_write.c -- the pipeline of a report as text, and as JSON. */
#include "report.h"

static const char *bytes(const Report *r, double count) { return bytes_text(&r->run->arena, count); }
static const char *flops(const Report *r, double count) { return flops_text(&r->run->arena, count); }

static void print_stages(const Report *r)
{
    const PipelineReport *p = r->pipeline;
    const bool splits = p->picture.schedule->splits_backward;
    printf("    %-5s %14s %14s%s %9s %12s  %s\n", "stage", "forward", "backward", splits ? "        weights" : "",
           "share", "in flight", "holds");
    for (int stage = 0; stage < stage_count(p->picture.schedule); stage++) {
        printf("    %-5d %14s %14s", stage, flops(r, p->forward[stage]), flops(r, p->backward[stage]));
        if (splits)
            printf(" %14s", flops(r, p->weight[stage]));
        printf(" %7.2f %% %12s  %s\n", 100 * stage_share(p, stage), bytes(r, p->picture.activation_bytes[stage]),
               p->contents[stage]);
    }
    printf("    a stage sends %s to the next one, and as much back\n", bytes(r, p->message_bytes));
    if (p->handed_on_bytes > 0)
        printf("    of these, %s are handed on as they have come, for later stages to read\n",
               bytes(r, p->handed_on_bytes));
}

void print_pipeline(const Report *r)
{
    enum { WIDTH = 120 };
    if (r->no_picture)
        printf("pipeline: no picture: %s\n", r->no_picture);
    if (!r->pipeline)
        return;
    printf("pipeline over %s: one micro-batch, of one rank\n", r->pipeline->picture.axis);
    print_stages(r);
    write_timeline_text(&r->pipeline->picture, WIDTH, stdout);
}

/* --- JSON --------------------------------------------------------------------------------------------- */

/* With --machine: what the actions of a stage wait for messages over other axes. */
static void add_waits(const Report *r, cJSON *entry, int stage)
{
    static const char *const key[N_ACTION_KINDS] = { "forward_waits", "backward_waits", "weight_waits" };
    for (int kind = 0; r->time && kind < N_ACTION_KINDS; kind++)
        cJSON_AddNumberToObject(entry, key[kind], r->time->time.waits[kind][stage]);
}

static void add_stages(const Report *r, cJSON *object)
{
    const PipelineReport *p = r->pipeline;
    cJSON *list = cJSON_AddArrayToObject(object, "stages");
    for (int stage = 0; stage < stage_count(p->picture.schedule); stage++) {
        cJSON *entry = add_json_entry(list);
        add_text(entry, "holds", p->contents[stage]);
        cJSON_AddNumberToObject(entry, "rank", rank_of_stage(p->picture.schedule, stage));
        cJSON_AddNumberToObject(entry, "forward_flops", p->forward[stage]);
        cJSON_AddNumberToObject(entry, "backward_flops", p->backward[stage]);
        cJSON_AddNumberToObject(entry, "weight_flops", p->weight[stage]);
        cJSON_AddNumberToObject(entry, "share", stage_share(p, stage));
        cJSON_AddNumberToObject(entry, "forward_time", p->costs.forward[stage]);
        cJSON_AddNumberToObject(entry, "backward_time", p->costs.backward[stage]);
        cJSON_AddNumberToObject(entry, "weight_time", p->costs.weight[stage]);
        add_waits(r, entry, stage);
        cJSON_AddNumberToObject(entry, "in_flight_bytes", p->picture.activation_bytes[stage]);
    }
}

static void add_actions(const TimelineView *v, cJSON *entry, int rank)
{
    cJSON *list = cJSON_AddArrayToObject(entry, "actions");
    for (int i = 0; i < v->s->nactions[rank]; i++) {
        const Action a = v->s->action[rank][i];
        cJSON *action = add_json_entry(list);
        add_text(action, "kind", a.kind == FORWARD_ACTION ? "F" : a.kind == BACKWARD_ACTION ? "B" : "W");
        cJSON_AddNumberToObject(action, "stage", a.stage);
        cJSON_AddNumberToObject(action, "micro_batch", a.micro);
        cJSON_AddNumberToObject(action, "start", v->t.start[rank][i]);
        cJSON_AddNumberToObject(action, "end", v->t.end[rank][i]);
    }
}

void add_pipeline_json(const Report *r, cJSON *json)
{
    const TimelinePicture *picture = r->pipeline ? &r->pipeline->picture : NULL;
    if (!picture)
        return;
    TimelineView v = view_timeline(picture);
    cJSON *object = cJSON_AddObjectToObject(json, "pipeline");
    add_text(object, "schedule", v.s->name);
    add_text(object, "axis", picture->axis);
    cJSON_AddNumberToObject(object, "micro_batches", v.s->micros);
    add_text(object, "time_unit", picture->unit ? picture->unit : "s");
    cJSON_AddNumberToObject(object, "makespan", v.t.makespan);
    cJSON_AddNumberToObject(object, "bubble", v.t.bubble);
    if (picture->published_bubble >= 0)
        cJSON_AddNumberToObject(object, "published_bubble", picture->published_bubble);
    cJSON_AddNumberToObject(object, "message_bytes", r->pipeline->message_bytes);
    cJSON_AddNumberToObject(object, "handed_on_bytes", r->pipeline->handed_on_bytes);
    cJSON_AddNumberToObject(object, "message_time", r->pipeline->costs.message);
    if (picture->capacity_bytes > 0)
        cJSON_AddNumberToObject(object, "capacity_bytes", picture->capacity_bytes);
    add_stages(r, object);
    cJSON *ranks = cJSON_AddArrayToObject(object, "ranks");
    for (int rank = 0; rank < v.s->ranks; rank++) {
        cJSON *entry = add_json_entry(ranks);
        cJSON_AddNumberToObject(entry, "idle", v.idle[rank]);
        cJSON_AddNumberToObject(entry, "in_flight", v.t.most_in_flight[rank]);
        cJSON_AddNumberToObject(entry, "fixed_bytes", picture->fixed_bytes[rank]);
        cJSON_AddNumberToObject(entry, "peak_bytes", peak_of(&v, rank));
        if (r->run->options->actions)
            add_actions(&v, entry, rank);
    }
    arena_free(&v.arena);
}
