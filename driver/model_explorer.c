/* model_explorer.c -- a program as a picture for Google's Model Explorer: a graph of each function, in JSON.
 *
 * An op is a node in the group of its path, with its type, where it comes from, and what it costs; a call or loop links
 * to the graph of its function.  Parameters and results of functions are nodes, too.
 */
#include "model_explorer.h"

#include "cost/cost.h"
#include "json.h"

#include <string.h>

typedef struct {
    Module *m;
    Arena *arena;
    Map node; /* a value -> its Output */
    Map runs; /* an op -> how often a step runs it: Runs */
} Picture;

/* The node and the result of it that a value is. */
typedef struct {
    const char *id, *output;
} Output;

typedef struct {
    double times;
} Runs;

/* --- JSON --------------------------------------------------------------------------------------- */

static cJSON *add_object(cJSON *list)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddItemToArray(list, object);
    return object;
}

static void add_attribute(cJSON *list, const char *key, const char *value)
{
    cJSON *attribute = add_object(list);
    cJSON_AddStringToObject(attribute, "key", key);
    cJSON_AddStringToObject(attribute, "value", value);
}

static cJSON *add_node(cJSON *nodes, const char *id, const char *label, const char *namespace)
{
    cJSON *node = add_object(nodes);
    cJSON_AddStringToObject(node, "id", id);
    cJSON_AddStringToObject(node, "label", label);
    cJSON_AddStringToObject(node, "namespace", namespace);
    return node;
}

/* The type of a result, under the key that the tool shows beside an edge. */
static void add_output(Picture *p, cJSON *outputs, const Value *value, const char *id, int number)
{
    cJSON *output = add_object(outputs);
    Output *of = NEW(p->arena, Output);
    *of = (Output){ id, arena_text(p->arena, "%d", number) };
    map_put(&p->node, value, of);
    cJSON_AddStringToObject(output, "id", of->output);
    cJSON *attributes = cJSON_AddArrayToObject(output, "attrs");
    add_attribute(attributes, "__tensor_tag", value->name ? value->name : "");
    add_attribute(attributes, "tensor_shape", type_text(p->m, &value->type));
}

static void add_inputs(Picture *p, cJSON *node, const Values *values)
{
    cJSON *edges = cJSON_AddArrayToObject(node, "incomingEdges");
    for (int i = 0; i < values->count; i++) {
        const Output *from = map_get(&p->node, values->at[i]);
        cJSON *edge = add_object(edges);
        cJSON_AddStringToObject(edge, "sourceNodeId", from->id);
        cJSON_AddStringToObject(edge, "sourceNodeOutputId", from->output);
        cJSON_AddStringToObject(edge, "targetNodeInputId", arena_text(p->arena, "%d", i));
    }
}

/* --- Nodes -------------------------------------------------------------------------------------- */

static void count_runs(void *context, const Func *f, const Op *op, double times)
{
    Picture *p = context;
    Runs *runs = map_get(&p->runs, op);
    if (!runs) {
        runs = NEW(p->arena, Runs);
        map_put(&p->runs, op, runs);
    }
    runs->times += times;
}

static void add_costs(Picture *p, cJSON *attributes, const Func *f, const Op *op)
{
    const Runs *runs = map_get(&p->runs, op);
    const double times = runs ? runs->times : 0, flops = op_work(p->m, f, op).rank * times;
    if (runs)
        add_attribute(attributes, "times a step", arena_text(p->arena, "%g", times));
    if (flops > 0)
        add_attribute(attributes, "FLOPs a step", arena_text(p->arena, "%.0f", flops));
    if (info(op)->traits & SENDS)
        add_attribute(attributes, "bytes sent a step", arena_text(p->arena, "%.0f", op_traffic(p->m, op).sent * times));
}

/* "h.attn.q" as groups in each other: "h/attn/q". */
static const char *group_text(Arena *arena, const char *path)
{
    char *text = arena_text(arena, "%s", path ? path : "");
    for (char *at = text; (at = strchr(at, '.')); at++)
        *at = '/';
    return text;
}

static void add_op(Picture *p, cJSON *nodes, const Func *f, const Op *op, int number)
{
    const char *id = arena_text(p->arena, "%d", number);
    cJSON *node = add_node(nodes, id, info(op)->name, group_text(p->arena, op->path));
    cJSON *attributes = cJSON_AddArrayToObject(node, "attrs");
    if (op->where)
        add_attribute(attributes, "where", op->where);
    add_costs(p, attributes, f, op);
    if (op->attrs.callee)
        cJSON_AddItemToArray(cJSON_AddArrayToObject(node, "subgraphIds"), cJSON_CreateString(op->attrs.callee));
    add_inputs(p, node, &op->args);
    cJSON *outputs = cJSON_AddArrayToObject(node, "outputsMetadata");
    for (int i = 0; i < op->results.count; i++)
        add_output(p, outputs, op->results.at[i], id, i);
}

static void add_function(Picture *p, cJSON *graphs, const Func *f)
{
    cJSON *graph = add_object(graphs), *nodes;
    int number = 0;
    cJSON_AddStringToObject(graph, "id", f->name);
    nodes = cJSON_AddArrayToObject(graph, "nodes");
    for (int i = 0; i < f->params.count; i++) {
        const char *id = arena_text(p->arena, "%d", number++);
        cJSON *node = add_node(nodes, id, f->params.at[i]->name, "parameters");
        add_output(p, cJSON_AddArrayToObject(node, "outputsMetadata"), f->params.at[i], id, 0);
    }
    for (const Op *op = f->first; op; op = op->next)
        add_op(p, nodes, f, op, number++);
    add_inputs(p, add_node(nodes, arena_text(p->arena, "%d", number), "results", ""), &f->results);
}

/* --- The file ----------------------------------------------------------------------------------- */

static const Func *entry_of(const Module *m)
{
    const Func *step = func_with_role(m, STEP);
    return step ? step : func_with_role(m, MODEL);
}

bool write_model_explorer(Run *run, Module *m, const char *path)
{
    Picture p = { .m = m, .arena = &run->arena, .node.arena = &run->arena, .runs.arena = &run->arena };
    const Func *entry = entry_of(m);
    cJSON *file = cJSON_CreateObject(), *graphs;
    cJSON_AddStringToObject(file, "label", m->name);
    graphs = cJSON_AddArrayToObject(file, "graphs");
    if (entry) {
        visit_program(m, entry, count_runs, &p);
        add_function(&p, graphs, entry); /* the graph that is shown first */
    }
    for (const Func *f = m->funcs; f; f = f->next)
        if (f != entry)
            add_function(&p, graphs, f);
    return write_new(run, path, json_text(&run->arena, file, false));
}
