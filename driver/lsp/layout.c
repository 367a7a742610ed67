/* layout.c -- compiles a model for its mesh, and reads off splits and messages, as JSON. */
#include "layout.h"

#include "amount.h"
#include "manager/pass.h"
#include "split_loop.h"

#include "cost/cost.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    Module *m;
    cJSON *list;
    Map forward;     /* ops of the forward pass */
    Map of_path;     /* a path -> PathOp */
    Classes classes; /* of the final program */
    Arena *arena;
} Search;

/* The last op of a path, in the first function that has one: the value of that name. */
typedef struct {
    const Func *func;
    const Op *op;
    cJSON *entry;
} PathOp;

static void describe_tensor(Search *s, cJSON *entry, const char *path, const Type *type)
{
    cJSON_AddStringToObject(entry, "path", path);
    cJSON_AddStringToObject(entry, "type", type_text(s->m, type));
    cJSON_AddNumberToObject(entry, "bytes", (double)local_bytes(s->m, type));
}

static void find_value(void *context, const Func *f, const Op *op, double times)
{
    Search *s = context;
    if (!op->path || !op->results.count || !map_get(&s->forward, op))
        return;
    PathOp *found = map_get(&s->of_path, op->path);
    if (!found) {
        found = NEW(s->arena, PathOp);
        *found = (PathOp){ .func = f, .op = op, .entry = cJSON_CreateObject() };
        map_put(&s->of_path, op->path, found);
        cJSON_AddItemToArray(s->list, found->entry);
    } else if (found->func == f) {
        found->op = op;
        cJSON *anew = cJSON_CreateObject();
        cJSON_ReplaceItemViaPointer(s->list, found->entry, anew);
        found->entry = anew;
    } else {
        return;
    }
    describe_tensor(s, found->entry, op->path, &result(op)->type);
}

/* Types once collectives are chosen, and before kernels hide values. */
static cJSON *list_tensors(Module *m, Arena *arena)
{
    Search s = { .m = m, .list = cJSON_CreateArray(), .forward.arena = arena, .of_path.arena = arena, .arena = arena };
    const Func *step = func_with_role(m, STEP);
    for (const Param *param = m->params; param; param = param->next) {
        cJSON *entry = cJSON_CreateObject();
        describe_tensor(&s, entry, param->path, &param->type);
        cJSON_AddItemToArray(s.list, entry);
    }
    mark_forward(m, &s.forward, result_for(step, PORT_LOSS));
    visit_program(m, step, find_value, &s);
    return s.list;
}

/* Messages of a parameter and its gradient are its declaration's. */
static int line_that_causes(const Search *s, const Op *op)
{
    const Param *behind = param_behind(&s->classes, result(op)),
                *param = behind ? behind : param_behind(&s->classes, arg(op, 0));
    const char *where = param ? param->where : op->where, *colon = where ? strchr(where, ':') : NULL;
    return colon ? atoi(colon + 1) : 0;
}

static void add_caused(Search *s, const Op *op, const char *name, Axes axes, double messages, double bytes)
{
    const int line = line_that_causes(s, op);
    if (bytes <= 0)
        return;
    cJSON *entry = cJSON_CreateObject();
    const char *list = "";
    for (int i = 0; i < s->m->naxes; i++)
        if (axes >> i & 1)
            list = arena_text(s->arena, "%s%s%s", list, *list ? "+" : "", s->m->axis[i]);
    cJSON_AddNumberToObject(entry, "line", line);
    cJSON_AddStringToObject(entry, "name", name);
    cJSON_AddStringToObject(entry, "axes", list);
    cJSON_AddNumberToObject(entry, "messages", messages);
    cJSON_AddNumberToObject(entry, "bytes", bytes);
    cJSON_AddItemToArray(s->list, entry);
}

/* As mpc report counts it. */
static void find_caused(void *context, const Func *f, const Op *op, double times)
{
    Search *s = context;
    if (info(op)->traits & SENDS)
        add_caused(s, op, info(op)->name, info(op)->traits & MOVES ? 1u << result(op)->type.on.axis : op->attrs.axis,
                   joins_message(op) ? 0 : times, op_traffic(s->m, op).sent * times);
    if (!is_split_loop(op))
        return;
    const double share = share_passing_on(s->m, op) * times;
    for (int i = 0; i < op->attrs.carried && share > 0; i++)
        add_caused(s, op, "send", 1u << op->attrs.dims.dim[0].split.axis[0], share,
                   (double)local_bytes(s->m, &op->results.at[i]->type) * share);
}

static cJSON *list_caused(Module *m, Arena *arena)
{
    Search s = { .m = m, .list = cJSON_CreateArray(), .classes = classify_tensors(m), .arena = arena };
    rank_kinds(m); /* which ranks run what */
    visit_program(m, func_with_role(m, STEP), find_caused, &s);
    return s.list;
}

cJSON *list_layout(Run *run)
{
    static const char chosen[] = "collectives";
    Module *m = lower_source(run, 0, NULL);
    if (!m)
        return NULL;
    cJSON *found = cJSON_CreateObject();
    if (run_passes(m, &(PassOptions){ .stop_after = chosen, .unchecked = true })) {
        cJSON_AddItemToObject(found, "tensors", list_tensors(m, &run->arena));
        if (run_passes(m, &(PassOptions){ .start_after = chosen, .unchecked = true }))
            cJSON_AddItemToObject(found, "caused", list_caused(m, &run->arena));
    }
    return found;
}
