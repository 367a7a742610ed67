/* accumulator.c -- carried values that a loop only adds to. */
#include "accumulator.h"

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

/* Is it nothing but this result?  Else someone sees each sum on its way. */
static bool is_only_returned(const Func *f, const Value *value)
{
    int times = 0;
    for (const Op *op = f->first; op; op = op->next)
        times += index_of(&op->args, value) >= 0;
    for (int i = 0; i < f->results.count; i++)
        times += f->results.at[i] == value;
    return times == 1;
}

bool is_accumulator(const Func *f, int i)
{
    const Op *add = only_reader(f, f->params.at[i]);
    return add && is_addition(add) && result(add) == f->results.at[i] && is_only_returned(f, result(add)) &&
           arg(add, 0)->type.rank == arg(add, 1)->type.rank && arg(add, 0) != arg(add, 1);
}
