/* simplify.c -- algebraic rules, common subexpressions, dead ops.
 *
 *   %1 = mul %one, %x                       (gone: %x)
 *   %2 = neg %y
 *   %3 = add %1, %2                %3 = sub %x, %y
 */
#include "cleanup.h"
#include "rewrite.h"

void pass_simplify(Module *m);
void pass_simplify(Module *m)
{
    for (Func *f = m->funcs; f; f = f->next) {
        apply_rules(m, f);
        share_equal(f);
        drop_dead(f);
    }
    drop_unreached(m);
}
