/* chunks.c -- cuts a repeat in several loops, the chunks of a pipeline whose ranks have several stages each.
 *
 *   %y = loop %x, %w {dims=[h.copy:8], callee=h}           %1 = loop %x, %w {dims=[h.copy:4], callee=h}
 *                                                     =>   %y = loop %1, %w.chunk2 {dims=[h.copy.chunk2:4],
 * callee=h.chunk2}
 *
 * The stacked parameters are cut, too; a checkpoint has them copy by copy, so it does not depend on chunks.  Each chunk
 * is a loop as others are: autodiff, layouts and verification know nothing of it.
 */
#include "map.h"
#include "parallel.h"

typedef struct {
    Module *m;
    Name dim;             /* that counts the copies of the whole repeat */
    const Dim *part;      /* by chunk: the dim that counts its copies */
    const int64_t *first; /* by chunk: its first copy */
    int count;
    Map values; /* value with the dim -> its parts, by chunk */
} Chunks;

static const char *suffix_of(Module *m, int chunk) { return arena_text(&m->arena, ".chunk%d", chunk + 1); }

static Name chunk_name(Module *m, Name name, int chunk)
{
    return chunk ? intern_format(m, "%s%s", name, suffix_of(m, chunk)) : name;
}

static bool is_stacked(const Chunks *c, const Type *type) { return type->rank && find_dim(type, c->dim) >= 0; }

static Type part_type(const Chunks *c, Type type, int chunk)
{
    type.dim[find_dim(&type, c->dim)] = c->part[chunk];
    return type;
}

static Value *part_of(const Chunks *c, Value *value, int chunk)
{
    Value *const *parts = map_get(&c->values, value);
    return parts ? parts[chunk] : value;
}

static Value **new_parts(Chunks *c, const Value *value)
{
    Value **parts = NEW_ARRAY(&c->m->arena, Value *, c->count);
    map_put(&c->values, value, parts);
    return parts;
}

/* --- Parameters ----------------------------------------------------------------------------------------- */

static void cut_param(const Chunks *c, Param *param)
{
    const Type whole = param->type;
    Param *last = param;
    for (int chunk = 1; chunk < c->count; chunk++) {
        Param *part = NEW(&c->m->arena, Param);
        *part = *param;
        part->name = chunk_name(c->m, param->name, chunk);
        part->first = param->first + c->first[chunk] * (1 + param->skips);
        part->type = part_type(c, whole, chunk);
        insert_param(c->m, last, part);
        last = part;
    }
    param->type = part_type(c, whole, 0);
}

static void cut_params_of(Chunks *c, Func *f)
{
    for (int i = 0; i < f->params.count; i++) {
        Value *whole = f->params.at[i];
        if (!is_stacked(c, &whole->type))
            continue;
        Value **parts = new_parts(c, whole);
        for (int chunk = 0; chunk < c->count; chunk++) {
            const Name name = chunk_name(c->m, whole->name, chunk);
            parts[chunk] = NEW(&c->m->arena, Value);
            const Name of = whole->port.of ? chunk_name(c->m, whole->port.of, chunk) : NULL;
            *parts[chunk] =
                (Value){ name, part_type(c, whole->type, chunk), .port = { .kind = whole->port.kind, .of = of } };
            if (chunk)
                insert_value(&c->m->arena, &f->params, i + chunk, parts[chunk]);
        }
        f->params.at[i] = parts[0];
    }
}

/* --- Ops ------------------------------------------------------------------------------------------------ */

static bool is_loop_over(const Op *op, Name dim)
{
    return info(op)->family == CONTROL && op->attrs.dims.count && op->attrs.dims.dim[0].name == dim;
}

static Op *copy_op(const Chunks *c, Builder *b, const Op *op, int chunk)
{
    Value **args = NEW_ARRAY(&c->m->arena, Value *, op->args.count + 1);
    Attrs attrs = op->attrs;
    for (int i = 0; i < op->args.count; i++)
        args[i] = part_of(c, arg(op, i), chunk);
    for (int i = 0; i < attrs.dims.count; i++)
        if (attrs.dims.dim[i].name == c->dim)
            attrs.dims.dim[i] = c->part[chunk];
    return build(b, op->kind, attrs, op->args.count, args);
}

/* The chunks run one after the other, each with what the one before has left. */
static void cut_loop(Chunks *c, Func *f, Op *op)
{
    const Func *body = find_func(c->m, op->attrs.callee);
    const Op *before = NULL;
    for (int chunk = 0; chunk < c->count; chunk++) {
        Builder b = builder_at(c->m, f, op);
        Op whole = *op;
        Values args = { 0 };
        for (int i = 0; i < op->args.count; i++)
            push_value(&c->m->arena, &args, before && i < op->attrs.carried ? before->results.at[i] : arg(op, i));
        whole.args = args;
        whole.attrs.callee = chunk ? copy_func(c->m, body, suffix_of(c->m, chunk))->name : body->name;
        before = copy_op(c, &b, &whole, chunk);
    }
    for (int i = 0; i < op->results.count; i++) {
        before->results.at[i]->name = op->results.at[i]->name;
        replace_uses(f, op->results.at[i], before->results.at[i]);
    }
    remove_op(f, op);
}

/* What counts the copies goes on where the chunk before ends. */
static Value *from_first(const Chunks *c, Builder *b, const Op *op, Value *part, int chunk)
{
    if (op->kind != OP_iota || !chunk)
        return part;
    const Attrs number = { .value = (double)c->first[chunk], .dtype = intern_text(c->m, dtype_name[I32]) };
    return BUILD(b, OP_add, NO_ATTRS, part, build_op(b, OP_constant, number, 0, NULL));
}

static void cut_op(Chunks *c, Func *f, Op *op)
{
    Value **parts = new_parts(c, result(op));
    for (int chunk = 0; chunk < c->count; chunk++) {
        Builder b = builder_at(c->m, f, op);
        parts[chunk] = from_first(c, &b, op, result(copy_op(c, &b, op, chunk)), chunk);
    }
    remove_op(f, op);
}

/* A function with the role UPDATE returns the parts of its state. */
static void cut_results(Chunks *c, Func *f)
{
    const Values whole = f->results;
    const Port port = result_port(f, 0);
    if (f->role != UPDATE || !is_stacked(c, &whole.at[0]->type))
        return;
    f->results = (Values){ 0 };
    f->returns = (Ports){ 0 };
    for (int chunk = 0; chunk < c->count; chunk++)
        add_result(c->m, f, part_of(c, whole.at[0], chunk),
                   (Port){ .kind = port.kind, .of = chunk_name(c->m, port.of, chunk) });
}

static void cut_func(Chunks *c, Func *f)
{
    cut_params_of(c, f);
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        if (is_loop_over(op, c->dim))
            cut_loop(c, f, op);
        else if (op->results.count == 1 && is_stacked(c, &result(op)->type))
            cut_op(c, f, op);
    }
    cut_results(c, f);
}

/* --- The repeat ----------------------------------------------------------------------------------------- */

void cut_repeat(Module *m, Name dim, const int64_t *copies, int count, Name *names)
{
    Dim *part = NEW_ARRAY(&m->arena, Dim, count);
    int64_t *first = NEW_ARRAY(&m->arena, int64_t, count);
    Chunks c = { .m = m, .dim = dim, .part = part, .first = first, .count = count, .values.arena = &m->arena };
    for (int chunk = 0; chunk < count; chunk++) {
        names[chunk] = chunk_name(m, dim, chunk);
        part[chunk] = (Dim){ .name = names[chunk], .size = copies[chunk], .padded = copies[chunk] };
        if (chunk)
            add_made_dim(m, names[chunk], MADE_CHUNK, dim);
        first[chunk] = chunk ? first[chunk - 1] + copies[chunk - 1] : 0;
    }
    for (Param *param = m->params; param; param = param->next)
        if (is_stacked(&c, &param->type))
            cut_param(&c, param);
    const Func *last = m->funcs;
    while (last->next)
        last = last->next;
    for (Func *f = m->funcs; f; f = f == last ? NULL : f->next) /* without those that it adds */
        cut_func(&c, f);
}
