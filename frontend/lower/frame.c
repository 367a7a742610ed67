/* frame.c -- functions in lowering: their parameters, names of their values, what they read of those around.
 *
 * A `repeat` body is a separate function.  An outer value becomes a parameter at its first use, in every function in
 * between; finish_frame orders the parameters.
 */
#include "elaborate/instances.h"
#include "emit.h"

#include <string.h>

Body *scan_along(const Lower *l, Name dim)
{
    Body *frame = l->frame;
    while (frame && !(frame->scans && frame->copy.name == dim))
        frame = frame->outer;
    return frame;
}

bool is_in_scan(const Lower *l)
{
    const Body *frame = l->frame;
    while (frame && !frame->scans)
        frame = frame->outer;
    return frame != NULL;
}

Name free_function_name(Lower *l, Name name)
{
    static const FuncRole reserved[] = { STEP, EVAL, PREDICT, OUTPUTS, TOTALS };
    if (l->role != MODEL)
        name = intern_format(l->m, "%s.%s", role_name[l->role], name);
    bool is_reserved = strcmp(name, l->model->name) == 0;
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
        is_reserved |= strcmp(name, role_name[reserved[i]]) == 0;
    return is_reserved || find_func(l->m, name) ? free_func_name(l->m, intern_format(l->m, "%s.body", name)) : name;
}

/* --- Names of values ---------------------------------------------------------------------------- */

static bool is_taken(const Lower *l, const Body *frame, Name name)
{
    return map_get(&frame->names, name) || find_param(l->m, name);
}

static void take_name(Lower *l, Body *frame, Value *value)
{
    frame->names.arena = l->arena;
    map_put(&frame->names, value->name, value);
}

void push_named(Lower *l, Body *frame, Values *values, Value *value)
{
    push_value(l->arena, values, value);
    take_name(l, frame, value);
}

static bool is_fresh(Name name) { return name[0] >= '0' && name[0] <= '9'; }

/* The path relative to the body: "attn.q" for h.attn.q in the body of the repeat of h. */
static Name path_inside(Lower *l, const Body *frame, Name path)
{
    for (; frame; frame = frame->outer) {
        size_t length = frame->prefix ? strlen(frame->prefix) : 0;
        if (length && strncmp(path, frame->prefix, length) == 0 && path[length] == '.')
            return intern_text(l->m, path + length + 1);
    }
    return path;
}

void name_value(Lower *l, Value *value, Name path)
{
    Name name = path_inside(l, l->frame, path);
    if (!value->def || !is_fresh(value->name) || is_taken(l, l->frame, name))
        return;
    value->name = name;
    take_name(l, l->frame, value);
}

/* --- Parameters of functions -------------------------------------------------------------------- */

Value *new_value(Lower *l, Name name, Type type)
{
    Value *value = NEW(l->arena, Value);
    *value = (Value){ .name = name, .type = type };
    return value;
}

Value *new_port(Lower *l, Name name, Type type, Port port)
{
    Value *value = new_value(l, name, type);
    value->port = port;
    return value;
}

Value *import_value(Lower *l, Body *frame, Value *value, Body *defined_in)
{
    if (!value || frame == defined_in)
        return value;
    Value *outside = import_value(l, frame->outer, value, defined_in);
    int at = index_of(&frame->sources, outside);
    if (at >= 0)
        return frame->captured.at[at];
    Name name = is_taken(l, frame, outside->name) || is_fresh(outside->name) ? fresh_name(l->m) : outside->name;
    push_value(l->arena, &frame->sources, outside);
    Value *inside = new_value(l, name, frame->scans ? without_dim(outside->type, frame->copy.name) : outside->type);
    push_named(l, frame, &frame->captured, inside);
    note_import(l, outside, inside);
    return inside;
}

Value *outside_bodies(Body **frame, Value *value, bool scans)
{
    int at;
    while (!value->def && (*frame)->outer && (scans || !(*frame)->scans) &&
           (at = index_of(&(*frame)->captured, value)) >= 0) {
        value = (*frame)->sources.at[at];
        *frame = (*frame)->outer;
    }
    return value;
}

/* The tensor of this name, which another use of the instance may have added to the function; NULL: none has. */
static Value *known_param(const Body *frame, Name name, Port port)
{
    Value *known = map_get(&frame->names, name);
    return known && same_port(known->port, port) ? known : NULL;
}

/* Adds a tensor of this type that each copy has, and its stack outside of each repeat.  All places of a scan have one,
 * and all uses of an instance with a name have that of the function in which it is named. */
Value *import_param(Lower *l, const Use *use, Body *frame, Name name, Type type, Port port)
{
    use = instance_around(use);
    if (use && frame == use->at) {
        Value *own = import_param(l, use->outer, use->of->frame, name, type, port);
        return import_value(l, frame, own, use->of->frame);
    }
    if (frame->scans)
        return import_value(l, frame, import_param(l, use, frame->outer, name, type, port), frame->outer);
    Value *known = known_param(frame, name, port);
    if (known)
        return known;
    Value *value = new_port(l, name, type, port);
    if (frame->outer)
        push_value(l->arena, &frame->stacks,
                   import_param(l, use, frame->outer, name, with_dim_first(type, frame->copy), port));
    push_named(l, frame, &frame->params, value);
    return value;
}

/* In a body the key is that of its iteration: the caller folds the iteration's number into its own key. */
Value *dropout_key(Lower *l, Body *frame)
{
    if (frame->outer)
        dropout_key(l, frame->outer);
    if (!frame->key)
        frame->key = new_port(l, intern_text(l->m, "key"), scalar_type(I32),
                              (Port){ .kind = frame->outer ? PORT_NONE : PORT_DROPOUT_KEY });
    return frame->key;
}

Value *dropout_origin(Lower *l)
{
    Body *model = l->frame;
    while (model->outer)
        model = model->outer;
    if (!model->origin)
        model->origin = new_port(l, intern_text(l->m, "origin"), scalar_type(I32), (Port){ .kind = PORT_ORIGIN });
    return import_value(l, l->frame, model->origin, model);
}

/* --- The end of a function ---------------------------------------------------------------------- */

void push_all(Lower *l, Values *to, const Values *from)
{
    for (int i = 0; i < from->count; i++)
        push_value(l->arena, to, from->at[i]);
}

/* Adds a fed number under a free name. */
static void push_fed(Lower *l, Body *frame, Values *params, Value *value)
{
    if (!value)
        return;
    if (is_taken(l, frame, value->name))
        value->name = fresh_name(l->m);
    push_named(l, frame, params, value);
}

/* The model: inputs, key, origin, totals, params.  A body: carried, params, keys, captured. */
void finish_frame(Lower *l, Body *frame)
{
    Values *params = &frame->func->params;
    push_all(l, params, &frame->inputs);
    push_all(l, params, &frame->carried);
    if (frame->outer)
        push_all(l, params, &frame->params);
    if (!frame->outer)
        push_fed(l, frame, params, frame->key);
    for (int i = 0; i < frame->keys.count; i++)
        push_fed(l, frame, params, frame->keys.at[i]);
    push_fed(l, frame, params, frame->round);
    push_fed(l, frame, params, frame->origin);
    push_fed(l, frame, params, frame->position);
    push_all(l, params, &frame->totals);
    if (!frame->outer)
        push_all(l, params, &frame->params);
    push_all(l, params, &frame->captured);
}
