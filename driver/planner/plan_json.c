/* plan_json.c -- the answer as JSON. */
#include "planner.h"
#include "report.h"

#include <cjson/cJSON.h>
#include <stdio.h>

static void add_layout(const Planner *p, cJSON *object, const PlanLayout *l)
{
    cJSON *mesh = cJSON_AddObjectToObject(object, "mesh");
    for (int i = 0; i < p->naxes; i++)
        add_json_integer(mesh, p->axis[i].name, l->size[i]);
    add_json_integer(object, "microbatch", l->microbatch);
    cJSON_AddStringToObject(object, "recompute", Recompute_words[l->recompute]);
    if (l->zero >= 0) {
        add_json_integer(object, "zero", l->zero);
        cJSON_AddBoolToObject(object, "overlap", l->overlaps);
    }
    for (int i = 0; i < p->naxes; i++)
        if (p->axis[i].attends && l->size[i] > 1)
            cJSON_AddStringToObject(object, "attend", attend_name[l->attend]);
    if (has_pieces(p, l))
        add_json_integer(object, "pieces", l->pieces);
    if (may_be_abreast(p, l))
        add_json_integer(object, "abreast", l->abreast);
    if (has_schedule(p, l)) {
        cJSON_AddStringToObject(object, "schedule", schedule_word[l->schedule]);
        add_json_integer(object, "chunks", l->chunks);
    }
    cJSON_AddStringToObject(object, "parallel", layout_block(p->arena, p, l));
}

static void add_plan(const Planner *p, cJSON *object, const PlanResult *r)
{
    add_layout(p, object, &r->layout);
    cJSON_AddNumberToObject(object, "seconds", r->seconds);
    cJSON_AddNumberToObject(object, "per_second", r->tokens);
    cJSON_AddNumberToObject(object, "mfu", r->mfu);
    add_json_integer(object, "arena_bytes", r->arena);
    add_json_integer(object, "beside_bytes", r->beside);
    cJSON_AddBoolToObject(object, "fits", (double)(r->arena + r->beside) <= p->memory);
    cJSON *parts = cJSON_AddObjectToObject(object, "parts");
    for (int i = 0; i <= ITEM_MESSAGE; i++)
        cJSON_AddNumberToObject(parts, item_name[i], r->parts[i]);
    cJSON_AddNumberToObject(parts, "idle", r->idle);
    cJSON_AddNumberToObject(object, "recomputed", r->recomputed);
    cJSON *exposed = cJSON_AddObjectToObject(object, "exposed");
    for (int i = 0; i < r->naxes; i++)
        cJSON_AddNumberToObject(exposed, r->exposed[i].axes, r->exposed[i].exposed);
    cJSON_AddNumberToObject(object, "bound", r->bound);
}

static void add_tally(const Answer *answer, cJSON *json)
{
    const Tally *t = &answer->tally;
    const struct {
        const char *key;
        double count;
    } counts[] = { { "meshes", t->meshes },      { "indivisible_meshes", t->indivisible },
                   { "layouts", t->all },        { "do_not_fit", t->too_large },
                   { "by_a_bound", t->bounded }, { "refused", t->refused },
                   { "slower", t->slower },      { "open", t->open },
                   { "compiled", t->compiled },  { "programs", t->programs } };
    cJSON *object = cJSON_AddObjectToObject(json, "space");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        add_json_integer(object, counts[i].key, (int64_t)counts[i].count);
}

static void add_refusals(const Planner *p, const Answer *answer, cJSON *json)
{
    cJSON *refusals = cJSON_AddArrayToObject(json, "refusals");
    for (const Refusal *r = answer->refusals; r; r = r->next) {
        cJSON *object = add_json_entry(refusals);
        cJSON_AddStringToObject(object, "reason", r->why);
        add_json_integer(object, "layouts", (int64_t)r->count);
        cJSON_AddStringToObject(object, "first", layout_name(p->arena, p, &r->first));
    }
}

void print_plan_json(const Planner *p, const Answer *answer, const PlanResult *all)
{
    const Options *o = p->run->options;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "mpc", MPC_VERSION);
    cJSON_AddStringToObject(json, "model", p->run->source.path);
    cJSON_AddStringToObject(json, "machine", o->machine);
    cJSON_AddStringToObject(json, "target", o->target);
    add_json_integer(json, "ranks", p->ranks);
    cJSON_AddNumberToObject(json, "memory", p->memory);
    add_json_integer(json, "sequences", p->sequences);
    cJSON_AddStringToObject(json, "offload", p->offload ? p->offload : "none");
    if (p->least_without > 0 && p->tried_without == 0)
        cJSON_AddNumberToObject(json, "least_without", p->least_without);
    cJSON_AddBoolToObject(json, "proved", answer->overrun <= 0 && answer->gap <= 0);
    cJSON_AddNumberToObject(json, "gap", answer->gap);
    if (p->run->options->refine)
        add_json_integer(json, "refined", answer->refined);
    cJSON_AddNumberToObject(json, "overrun", answer->overrun);
    cJSON_AddNumberToObject(json, "overrun_memory", answer->overrun_memory);
    add_tally(answer, json);
    add_refusals(p, answer, json);
    if (all)
        add_plan(p, cJSON_AddObjectToObject(json, "all_ranks"), all);
    cJSON *best = cJSON_AddArrayToObject(json, "best");
    for (int i = 0; i < answer->count; i++)
        add_plan(p, add_json_entry(best), &answer->best[i]);
    if (answer->too_large)
        add_plan(p, cJSON_AddObjectToObject(json, "too_large"), answer->too_large);
    puts(json_text(p->arena, json, true));
}
