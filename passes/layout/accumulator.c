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

/* The sum is nothing but this result: else someone sees it on its way. */
bool is_accumulator(const Func *f, int i)
{
    const Op *add = only_reader(f, f->params.at[i]);
    return add && is_addition(add) && result(add) == f->results.at[i] && uses_in(f, result(add)) == 1 &&
           arg(add, 0)->type.rank == arg(add, 1)->type.rank && arg(add, 0) != arg(add, 1);
}
