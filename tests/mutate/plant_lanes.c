/* plant_lanes.c -- faults in micro-batches that are computed beside each other: passes/overlap/abreast.c calls the
 * value
 * `%x` of the second one `%x.b`.
 */
#include "plant.h"

#include <string.h>

/* What op can read by that name; NULL: nothing. */
static Value *find_value(const Func *f, const Op *op, Name name)
{
    for (op = op->prev; op; op = op->prev)
        for (int i = 0; i < op->results.count; i++)
            if (op->results.at[i]->name == name)
                return op->results.at[i];
    return param_named(f, name);
}

/* What the first micro-batch calls a value of the second one; NULL: it is none. */
static Name first_name(Module *m, const Value *value)
{
    const int length = (int)strlen(value->name) - 2;
    return length > 0 && strcmp(value->name + length, ".b") == 0 ? intern(m, value->name, length) : NULL;
}

/* The operand that is a value of the second micro-batch alone, of which the first has its own; -1: none. */
static int operand_of_second(Module *m, const Func *f, const Op *op)
{
    for (int i = 0; f->role == PLAIN && i < op->args.count; i++) {
        const Value *given = arg(op, i);
        const Name first = first_name(m, given);
        if (first && !given->type.in_flight && find_value(f, op, first))
            return i;
    }
    return -1;
}

static bool reads_second(Module *m, Func *f, Op *op) { return operand_of_second(m, f, op) >= 0; }

static bool read_first(Module *m, Func *f, Op *op)
{
    const int at = operand_of_second(m, f, op);
    Value *first = find_value(f, op, first_name(m, arg(op, at)));
    const bool fits = type_equal(&arg(op, at)->type, &first->type);
    op->args.at[at] = first;
    return fits;
}

/* The operand to which the second micro-batch adds what the first one has made; -1: it is no such sum. */
static int operand_gone_on_with(Module *m, const Func *f, const Op *op)
{
    for (int i = 0; f->role == PLAIN && i < op->args.count; i++)
        for (int j = 0; j < op->results.count; j++)
            if (arg(op, i)->def && arg(op, i)->name == first_name(m, op->results.at[j]))
                return i;
    return -1;
}

static bool goes_on(Module *m, Func *f, Op *op) { return operand_gone_on_with(m, f, op) >= 0; }

static bool lose_first(Module *m, Func *f, Op *op)
{
    const int at = operand_gone_on_with(m, f, op);
    const Op *first = arg(op, at)->def;
    op->args.at[at] = arg(first, at);
    return true;
}

static const Plant plants[] = {
    { 'u', "a micro-batch reads a value of the one beside it", reads_second, read_first },
    { 'u', "the sum of the micro-batch beside it is lost", goes_on, lose_first },
};
const PlantList plants_of_lanes = { sizeof plants / sizeof *plants, plants };
