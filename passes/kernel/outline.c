/* outline.c -- turns a group of ops that fuse has formed into a function with the role KERNEL and a call of it. */
#include "epilogue.h"
#include "fuse.h"
#include "simplify/cleanup.h"

FusionGroup *final_group(FusionGroup *g)
{
    while (g && g->merged) {
        if (g->merged->merged)
            g->merged = g->merged->merged; /* path compression */
        g = g->merged;
    }
    return g;
}

int op_number(const Fusion *p, const Op *op) { return op ? (int)(intptr_t)map_get(&p->number, op) - 1 : -1; }

FusionGroup *group_of(const Fusion *p, const Op *op)
{
    int number = op_number(p, op);
    return number < 0 ? NULL : final_group(p->group[number]);
}

/* Inner dims of a loop without reductions: the last ones, enough for a vector loop. */
static Names trailing_dims(const Type *space)
{
    enum { WORTH = 512 };
    Names names = { 0 };
    int64_t size = 1;
    for (int i = space->rank - 1; i >= 0 && size < WORTH; i--) {
        add_name(&names, space->dim[i].name);
        size *= space->dim[i].size;
    }
    return names;
}

/* Is the value read by an op of the group (`inside`), or by another one? */
static bool is_read(const Fusion *p, const Value *value, const FusionGroup *g, bool inside)
{
    const Numbers *readers = map_get(&p->readers, value);
    for (int i = 0; readers && i < readers->count; i++)
        if ((final_group(p->group[readers->at[i]]) == g) == inside)
            return true;
    return false;
}

static bool used_inside(const Fusion *p, const Value *value, const FusionGroup *g)
{
    return is_read(p, value, g, true);
}

static bool used_outside(const Fusion *p, const Value *value, const FusionGroup *g)
{
    return is_read(p, value, g, false) || map_get(&p->returned, value);
}

static bool is_in_either(const Fusion *p, const Op *op, const FusionGroup *a, const FusionGroup *b)
{
    const FusionGroup *g = group_of(p, op);
    return g && (g == a || g == b);
}

static bool is_result(const Fusion *p, const Value *value, const FusionGroup *a, const FusionGroup *b)
{
    const Numbers *readers = map_get(&p->readers, value);
    bool found = map_get(&p->returned, value);
    for (int i = 0; readers && i < readers->count && !found; i++)
        found = !is_in_either(p, p->ops[readers->at[i]], a, b);
    return found;
}

bool is_free(const Op *op)
{
    if (info(op)->family == LEAF)
        return true;
    bool is_free = info(op)->traits & COMPARES;
    for (int i = 0; is_free && i < op->args.count; i++)
        is_free = arg(op, i)->def && info(arg(op, i)->def)->family == LEAF;
    for (int i = 0; is_free && i < result(op)->type.rank; i++)
        is_free = !result(op)->type.dim[i].split.parts; /* see stacks.c: where in the stack a copy is, its kernel cannot
                                                           tell */
    return is_free;
}

static bool is_computed_in(const Fusion *p, const Value *value, const FusionGroup *a, const FusionGroup *b)
{
    return value->def && (is_free(value->def) || is_in_either(p, value->def, a, b));
}

/* The operands of the ops of a group, each once. */
static Values operands_of(Arena *arena, const Fusion *p, const FusionGroup *g)
{
    Map seen = { .arena = arena };
    Values operands = { 0 };
    for (int i = g->index; i >= 0; i = p->sibling[i])
        for (int j = 0; j < p->ops[i]->args.count; j++) {
            Value *value = arg(p->ops[i], j);
            if (map_get(&seen, value))
                continue;
            map_put(&seen, value, value);
            push_value(arena, &operands, value);
        }
    return operands;
}

int count_values(const Fusion *p, const FusionGroup *g)
{
    Arena scratch = { 0 };
    const Values operands = operands_of(&scratch, p, g);
    int count = 0;
    for (int i = 0; i < operands.count; i++)
        count += !is_computed_in(p, operands.at[i], g, g);
    for (int i = g->index; i >= 0; i = p->sibling[i])
        for (int j = 0; j < p->ops[i]->results.count; j++)
            count += is_result(p, p->ops[i]->results.at[j], g, g);
    arena_free(&scratch);
    return count;
}

/* Does the group read it?  Asks the readers around op number `near` first: of a value with many, these are likely to.
 */
static bool reads_near(const Fusion *p, const Value *value, const FusionGroup *g, int near)
{
    const Numbers *readers = map_get(&p->readers, value);
    const int count = readers ? readers->count : 0;
    int before = first_from(readers, near), after = before;
    while (before > 0 || after < count) {
        if (before > 0 && final_group(p->group[readers->at[--before]]) == g)
            return true;
        if (after < count && final_group(p->group[readers->at[after++]]) == g)
            return true;
    }
    return false;
}

/* An operand of the smaller group: one more, unless the larger one has it; a result of that may no longer be one. */
static int count_operand(const Fusion *p, const FusionGroup *large, const FusionGroup *small, const Value *value)
{
    if (value->def && is_in_either(p, value->def, large, large))
        return is_result(p, value, large, small) ? 0 : -1;
    return !is_computed_in(p, value, small, small) && !reads_near(p, value, large, small->index);
}

int count_values_added(const Fusion *p, const FusionGroup *large, const FusionGroup *small)
{
    Arena scratch = { 0 };
    const Values operands = operands_of(&scratch, p, small);
    int count = 0;
    for (int i = 0; i < operands.count; i++)
        count += count_operand(p, large, small, operands.at[i]);
    for (int i = small->index; i >= 0; i = p->sibling[i])
        for (int j = 0; j < p->ops[i]->results.count; j++) {
            const Value *value = p->ops[i]->results.at[j];
            count += is_result(p, value, large, small) - used_inside(p, value, large);
        }
    arena_free(&scratch);
    return count;
}

/* An operand inside the kernel: the result of a clone, something free built here, or a parameter. */
static Value *inside(Builder *b, Map *map, Values *args, Value *value)
{
    Value *own = map_get(map, value);
    if (own)
        return own;
    if (value->def && is_free(value->def)) {
        const Op *op = value->def;
        Value **operands = NEW_ARRAY(&b->module->arena, Value *, op->args.count + 1);
        for (int i = 0; i < op->args.count; i++)
            operands[i] = inside(b, map, args, arg(op, i));
        own = build_op(b, op->kind, op->attrs, op->args.count, operands);
    } else {
        own = add_param(b->module, b->func, value->name, value->type);
        push_value(&b->module->arena, args, value);
    }
    map_put(map, value, own);
    return own;
}

/* A kernel computes in f32, but rounds its own bf16 and f16 values before reading them, whether they are stored or not.
 * So a value has the precision of its type, independent of grouping, in the forward pass and when recomputed: in `x -
 * mean(x)` both x are equal, and x == max(x) is true for at least one element.  (Exceptions: the library passes the sum
 * of a product to its epilogue unrounded, and a term of a sum over ranks is not rounded.) */
static Value *as_typed(Fusion *p, Builder *b, const FusionGroup *g, const Op *clone, Value *value)
{
    Value *own = result(clone);
    const bool is_copy = info(clone)->traits & COPIES && is_half(arg(clone, 0)->type.dtype);
    if (g->product || is_copy || value->type.partial || !is_half(value->type.dtype) || !used_inside(p, value, g))
        return own;
    Builder at = *b;
    at.loc = clone->loc, at.path = clone->path, at.where = clone->where;
    Value *rounded = build_rounded(&at, value->type.dtype, own);
    rounded->name = own->name;
    own->name = fresh_name(p->m);
    return rounded;
}

/* Turns the group, the ops from `first` to `last`, into a kernel and a call of it. */
static void outline(Fusion *p, Op *first, Op *last, const FusionGroup *g, Map *instead)
{
    Module *m = p->m;
    Func *kernel = add_func(m, free_kernel_name(m, first, ""), KERNEL);
    Builder b = { .module = m, .func = kernel, .path = first->path, .where = first->where };
    Map map = { .arena = &m->arena };
    Values args = { 0 }, outputs = { 0 };
    if (!g->product)
        kernel->inner = g->has_inner ? g->inner : trailing_dims(&g->space);
    for (Op *op = first; op != last->next; op = op->next) {
        for (int i = 0; i < op->args.count; i++)
            inside(&b, &map, &args, arg(op, i));
        const Op *clone = clone_mapped(&b, op, &map);
        map_put(&map, result(op), as_typed(p, &b, g, clone, result(op)));
    }
    for (Op *op = first; op != last->next; op = op->next)
        for (int i = 0; i < op->results.count; i++)
            if (used_outside(p, op->results.at[i], g)) {
                push_value(&m->arena, &kernel->results, map_get(&map, op->results.at[i]));
                push_value(&m->arena, &outputs, op->results.at[i]);
            }
    share_equal(kernel); /* casts: see widen.c */
    if (g->product)
        note_epilogues(kernel);
    Builder at = builder_at(m, p->f, first);
    Op *call = build(&at, OP_call, (Attrs){ .callee = kernel->name }, args.count, args.at);
    for (int i = 0; i < outputs.count; i++) {
        call->results.at[i]->name = outputs.at[i]->name;
        map_put(instead, outputs.at[i], call->results.at[i]);
    }
    for (Op *op = first, *next; op != last->next; op = next) {
        next = op->next;
        remove_op(p->f, op);
        if (op == last)
            break;
    }
}

void outline_groups(Fusion *p)
{
    Map instead = { .arena = &p->m->arena };
    for (Op *op = p->f->first, *next; op; op = next) {
        FusionGroup *g = group_of(p, op);
        Op *last = op;
        resolve_all(&instead, &op->args);
        while (g && last->next && group_of(p, last->next) == g) {
            last = last->next;
            resolve_all(&instead, &last->args);
        }
        next = last->next;
        if (g)
            outline(p, op, last, g, &instead);
    }
    resolve_all(&instead, &p->f->results);
}
