/* matches.c -- stores values that are compared with their own maximum or minimum, before that.
 *
 *   %y = max %x {over=d}                    the gradient of the maximum goes to where x is y
 *   %is = eq %x, %y
 *
 * A kernel that computes x again for the comparison may differ from the one that found y in the last bit: one loop has
 * vectors, the other has not, or fuses a product with a sum.  Then no element would be the largest, so the comparison
 * is in no kernel that computes x: both read it from memory.
 */
#include "fuse.h"
#include "uses.h"

/* The op of a group that computes what op i compares with its extreme; -1: there is none. */
static int made_of_match(const Fusion *p, const Op *op)
{
    for (int side = 0; side < 2; side++)
        if (is_extreme_of(arg(op, !side), arg(op, side))) {
            const Value *x = value_before_casts(arg(op, side));
            return x->def ? op_number(p, x->def) : -1;
        }
    return -1;
}

void find_matches(Fusion *p)
{
    for (int i = 0; i < p->n; i++) {
        const int made = info(p->ops[i])->traits & COMPARES ? made_of_match(p, p->ops[i]) : -1;
        if (made >= 0 && p->group[made] && p->group[i]) {
            push_number(&p->m->arena, &p->matches, made);
            push_number(&p->m->arena, &p->matches, i);
        }
    }
}

bool hides_match(const Fusion *p, const FusionGroup *a, const FusionGroup *b)
{
    for (int i = 0; i < p->matches.count; i += 2) {
        const FusionGroup *made = final_group(p->group[p->matches.at[i]]);
        const FusionGroup *compared = final_group(p->group[p->matches.at[i + 1]]);
        if ((made == a && compared == b) || (made == b && compared == a))
            return true;
    }
    return false;
}
