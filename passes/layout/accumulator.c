/* accumulator.c -- carried values that a loop only adds to. */
#include "accumulator.h"

#include "uses.h"

static const Op *only_reader(const Func *f, const Value *value)
{
    const Op *reader = NULL;
    for (const Op *op = f->first; op; op = op->next)
        if (index_of(&op->args, value) >= 0) {
            if (reader)
                return NULL;
            reader = op;
        }
    return index_of(&f->results, value) < 0 ? reader : NULL;
}

/* The sum is nothing but this result, or this is the sum rounded: else someone sees it on its way. */
const Op *accumulating(const Func *f, int i)
{
    const Op *add = only_reader(f, f->params.at[i]);
    const Value *sum = f->results.at[i];
    if (sum->def && info(sum->def)->traits & CASTS && uses_in(f, sum) == 1)
        sum = arg(sum->def, 0);
    const bool accumulates = add && is_addition(add) && result(add) == sum && uses_in(f, sum) == 1 &&
                             arg(add, 0)->type.rank == arg(add, 1)->type.rank && arg(add, 0) != arg(add, 1);
    return accumulates ? add : NULL;
}
