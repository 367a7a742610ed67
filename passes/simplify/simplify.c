/* simplify.c -- algebraic rules, common subexpressions, dead ops.
 *
 *   %1 = mul %one, %x                       (gone: %x)
 *   %2 = neg %y
 *   %3 = add %1, %2                %3 = sub %x, %y
 */
#include "cleanup.h"
#include "layout/accumulator.h"
#include "rewrite.h"
#include "uses.h"

/* A loop whose body does not read what it carries starts from zeros, not from a value that is computed for nothing.
 * Bodies come before their loops. */
static void drop_unread_starts(Module *m, Func *f)
{
    for (Op *op = f->first; op; op = op->next)
        for (int i = 0; i < op->attrs.carried; i++) {
            const Func *body = find_func(m, op->attrs.callee);
            if (uses_in(body, body->params.at[i]) || is_zeros(arg(op, i)))
                continue;
            Builder b = builder_at(m, f, op);
            op->args.at[i] = build_zeros(&b, &arg(op, i)->type);
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
