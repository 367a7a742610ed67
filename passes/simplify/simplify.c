/* simplify.c -- algebraic rules, common subexpressions, dead ops.
 *
 *   %1 = mul %one, %x                       (gone: %x)
 *   %2 = neg %y
 *   %3 = add %1, %2                %3 = sub %x, %y
 */
#include "cleanup.h"
#include "rewrite.h"
#include "uses.h"

/* Is it computed by copies that the layout divides, those of a pipeline? */
static bool is_of_copies(const Module *m, Map *seen, const Value *value)
{
    const Op *op = value->def;
    if (!op || map_get(seen, op))
        return false;
    map_put(seen, op, seen);
    bool any = false;
    for (const ShardRule *rule = m->rules; rule; rule = rule->next)
        any |= op->attrs.callee && op->attrs.dims.count && op->attrs.dims.dim[0].name == rule->dims.name[0];
    for (int i = 0; i < op->args.count && !any; i++)
        any = is_of_copies(m, seen, arg(op, i));
    return any;
}

/* A loop whose body does not read what it carries starts from zeros, not from a value that is computed for nothing;
 * but stages remain, which a layout counts.  Bodies come before their loops. */
static void drop_unread_starts(Module *m, Func *f)
{
    for (Op *op = f->first; op; op = op->next) {
        const Func *body = op->attrs.carried ? find_func(m, op->attrs.callee) : NULL;
        for (int i = 0; i < op->attrs.carried; i++) {
            Map seen = { .arena = &m->arena };
            if (is_zeros(arg(op, i)) || uses_in(body, body->params.at[i]) || is_of_copies(m, &seen, arg(op, i)))
                continue;
            Builder b = builder_at(m, f, op);
            op->args.at[i] = build_zeros(&b, &arg(op, i)->type);
        }
    }
}

void pass_simplify(Module *m);
void pass_simplify(Module *m)
{
    for (Func *f = m->funcs; f; f = f->next) {
        apply_rules(m, f);
        drop_unread_starts(m, f);
        share_equal(f);
        drop_dead(f);
    }
    drop_unreached(m);
}
