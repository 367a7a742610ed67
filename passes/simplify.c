/* simplify.c -- fewer ops that mean the same: algebraic rules, shared values, no dead ones.
 *
 *   %1 = mul %one, %x                       (gone: %x)
 *   %2 = neg %y
 *   %3 = add %1, %2                %3 = sub %x, %y
 */
#include "cleanup.h"
#include "rewrite.h"

static void apply_rules(Module *m, Func *f, const Rule *rules, int nrules)
{
    for (Op *op = f->first; op; op = op->next) {
        if (op->results.count != 1)
            continue;
        Builder b = builder_at(m, f, op);
        Value *simpler = rewrite(&b, rules, nrules, op);
        if (simpler)
            replace_uses(f, result(op), simpler);
    }
}

void pass_simplify(Module *m);
void pass_simplify(Module *m)
{
    int nrules;
    Rule *rules = read_rules(&m->arena, &nrules);
    for (Func *f = m->funcs; f; f = f->next) {
        apply_rules(m, f, rules, nrules);
        share_equal(f);
        drop_dead(f);
    }
    drop_unreached(m);
}
