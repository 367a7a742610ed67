/* emit.c -- builds ops with source locations, reports errors, and adds parameters of functions.
 *
 * A `repeat` body is a separate function.  An outer value becomes a parameter at its first use, in every function in
 * between; finish_frame orders the parameters.
 */
#include "instances.h"
#include "sequences.h"
#include "sizes.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* --- Messages ------------------------------------------------------------------------------ */

static bool already_reported(Lower *l, Loc at, const char *message)
{
    for (const Reported *r = l->reported; r; r = r->next)
        if (r->at.begin == at.begin && strcmp(r->message, message) == 0)
            return true;
    if (l->nreported++ > MAX_MESSAGES) /* it is only counted */
        return false;
    Reported *r = NEW(l->arena, Reported);
    *r = (Reported){ at, message, l->reported };
    l->reported = r;
    return false;
}

void complain(Lower *l, Where where, const char *format, ...)
{
    if (l->variant == AS_CHECK) {
        note_complaint(l, where);
        return;
    }
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    size_t length = (size_t)vsnprintf(NULL, 0, format, args);
    char *message = arena_alloc(l->arena, length + 1, 1);
    vsnprintf(message, length + 1, format, again);
    va_end(again);
    va_end(args);
    where.label = where.label ? where.label : instance_text(l);
    if (!already_reported(l, where.at, message))
        error_at(l->diags, where, "%s", message);
}

const char *position_text(Lower *l, Loc loc)
{
    int line, column;
    if (l->lines.of != l->source)
        l->lines = find_lines(l->source, l->arena);
    place_in_lines(&l->lines, loc.begin, &line, &column);
    return arena_text(l->arena, "%d:%d", line, column);
}

Name where_text(Lower *l, Loc loc)
{
    const char *slash = strrchr(l->source->path, '/');
    return intern_format(l->m, "%s:%s", slash ? slash + 1 : l->source->path, position_text(l, loc));
}

const char *dims_text(Lower *l, const Type *type)
{
    const char *text = "[";
    for (int i = 0; i < type->rank; i++)
        text = arena_text(l->arena, "%s%s%s", text, i ? ", " : "", type->dim[i].name);
    return arena_text(l->arena, "%s]", text);
}

const char *type_words(Lower *l, const Type *type)
{
    return arena_text(l->arena, "%s%s", is_float(type->dtype) ? "" : dtype_name[type->dtype], dims_text(l, type));
}

/* --- Ops ----------------------------------------------------------------------------------- */

/* Rejects more elements than any machine can hold: later code may multiply sizes without overflow checks. */
bool too_large(Lower *l, const Type *type, Loc at)
{
    double count = 1;
    for (int i = 0; i < type->rank; i++)
        count *= (double)type->dim[i].padded;
    if (count > (double)MAX_ELEMENTS)
        complain(l, (Where){ .at = at }, "%s has %.3g elements, which no machine can hold", dims_text(l, type), count);
    return count > (double)MAX_ELEMENTS;
}

/* Residuals and operands of an iteration get one more dim for each enclosing repeat. */
bool too_many_dims(Lower *l, const Type *type, Loc at)
{
    int repeats = 0;
    for (const Body *frame = l->frame; frame && frame->outer; frame = frame->outer)
        repeats++;
    if (repeats == 0 || type->rank + repeats <= MAX_RANK)
        return false;
    if (repeats > MAX_RANK) {
        complain(l, (Where){ .at = at },
                 "at most %d repeats can be inside of each other, not %d: each adds a dim that counts its copies",
                 MAX_RANK, repeats);
        return true;
    }
    complain(l, (Where){ .at = at },
             "inside of %d repeat%s a tensor has at most %d dims, not %s: each repeat adds one that counts its copies",
             repeats, repeats == 1 ? "" : "s", MAX_RANK - repeats, dims_text(l, type));
    return true;
}

/* In a scan, tensors have no dim of its name: they could not be read by place, or stacked. */
static bool has_scanned_dim(Lower *l, const Type *type, Loc at)
{
    for (int i = 0; i < type->rank; i++)
        if (scan_along(l, type->dim[i].name)) {
            complain(l, (Where){ .at = at, .help = "give it another name, with a dim of its own" },
                     "inside of 'scan %s' no tensor has the dim '%s': each is its slice at one position",
                     type->dim[i].name, type->dim[i].name);
            return true;
        }
    return false;
}

static bool reported_here(const Lower *l)
{
    for (const Reported *r = l->reported; r; r = r->next)
        if (r->at.begin == l->b.loc.begin)
            return true;
    return false;
}

Op *emit_op(Lower *l, OpKind kind, Attrs attrs, int nargs, Value *const args[])
{
    for (int i = 0; i < nargs; i++)
        if (!args[i])
            return NULL;
    if (l->variant == AS_MODEL && reported_here(l))
        return NULL; /* another instance of the block has an error here; so has this one */
    if (l->matrix && exceeds_rank(nargs, args)) {
        l->matrix->refused = true; /* reported where the optimizer is chosen */
        return NULL;
    }
    const bool counts = l->variant == AS_CHECK && counts_sequences(l, &attrs, nargs);
    Op *op = counts ? NULL : try_build(&l->b, kind, attrs, nargs, args);
    if (!op && l->variant == AS_CHECK)
        op = checked_op(l, kind, attrs, nargs, args);
    for (int i = 0; op && i < op->results.count; i++) {
        const Type *type = &op->results.at[i]->type;
        if (too_large(l, type, l->b.loc) || too_many_dims(l, type, l->b.loc) || has_scanned_dim(l, type, l->b.loc))
            return NULL;
    }
    return op;
}

Value *emit(Lower *l, OpKind kind, Attrs attrs, int nargs, Value *const args[])
{
    Op *op = emit_op(l, kind, attrs, nargs, args);
    return op && l->variant == AS_CHECK ? checked_statistic(l, result(op)) : op ? result(op) : NULL;
}

Value *emit_number(Lower *l, double value, DType dtype)
{
    Attrs attrs = { .value = value, .dtype = dtype == F32 ? NULL : intern_text(l->m, dtype_name[dtype]) };
    return emit(l, OP_constant, attrs, 0, NULL);
}

/* In a scan along the dim, the number of the place: what the body has of the positions outside. */
Value *emit_iota(Lower *l, Dim dim)
{
    Body *scan = scan_along(l, dim.name), *here = l->frame;
    const Builder b = l->b;
    if (!scan)
        return emit(l, OP_iota, (Attrs){ .dims = { 1, { dim } } }, 0, NULL);
    l->frame = scan->outer;
    l->b = scan->around;
    Value *positions = emit_iota(l, dim);
    l->frame = here;
    l->b = b;
    return import_value(l, here, positions, scan->outer);
}

Value *emit_cast(Lower *l, Value *x, DType dtype)
{
    if (!x || x->type.dtype == dtype)
        return x;
    return EMIT(l, OP_cast, (Attrs){ .dtype = intern_text(l->m, dtype_name[dtype]) }, x);
}

Value *emit_in_order(Lower *l, Value *x, Names order)
{
    bool is_so = true;
    for (int i = 0; x && i < x->type.rank; i++)
        is_so &= order.name[i] == x->type.dim[i].name;
    return is_so ? x : EMIT(l, OP_reorder, (Attrs){ .order = order }, x);
}

Value *emit_f32(Lower *l, Value *x)
{
    const bool is_number = x && x->def && info(x->def)->traits & WEAK;
    if (!x || x->type.dtype != F32 || is_number || l->m->train.precision <= PRECISION_FP32)
        return emit_cast(l, x, F32);
    return EMIT(l, OP_cast, (Attrs){ .dtype = intern_text(l->m, dtype_name[F32]) }, x);
}

static void note_read(Map *read, const Values *values)
{
    for (int i = 0; i < values->count; i++)
        map_put(read, values->at[i], values->at[i]);
}

/* Backwards: readers of a value come after its op. */
void remove_dead_ops(Func *f, Map *read)
{
    note_read(read, &f->results);
    for (Op *op = f->last, *before; op; op = before) {
        before = op->prev;
        bool used = false;
        for (int i = 0; i < op->results.count && !used; i++)
            used = map_get(read, op->results.at[i]) != NULL;
        if (used)
            note_read(read, &op->args);
        else
            remove_op(f, op);
    }
}

/* --- Names of values ----------------------------------------------------------------------- */

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

/* --- Parameters of functions --------------------------------------------------------------- */

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

static void push_all(Lower *l, Values *to, const Values *from)
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
    push_all(l, params, &frame->totals);
    if (!frame->outer)
        push_all(l, params, &frame->params);
    push_all(l, params, &frame->captured);
}
