/* plant_outputs.c -- faults in what the model names an `output`: it is computed by a program of its own, and is neither
 * in the loss nor in gradients. */
#include "plant.h"

#include <string.h>

/* The program of outputs, and the functions that are outlined from it. */
static bool is_of_outputs(const Func *f) { return f->role == OUTPUTS || strncmp(f->name, "outputs.", 8) == 0; }

static bool ends_outputs(Module *m, Func *f, Op *op) { return f->role == OUTPUTS && !op->next; }

/* Values that have no place yet: later two of them may have one place, one after the other. */
static bool ends_unplaced(Module *m, Func *f, Op *op) { return ends_outputs(m, f, op) && !f->results.at[0]->storage; }

static bool is_sent(Module *m, Func *f, Op *op)
{
    return is_of_outputs(f) && info(op)->family == COLLECTIVE && !(info(op)->traits & CARRIES);
}

static bool adds(Module *m, Func *f, Op *op) { return is_of_outputs(f) && adds_terms(op); }
static bool is_loop(Module *m, Func *f, Op *op) { return is_of_outputs(f) && op->kind == OP_loop; }

static bool swap_outputs(Module *m, Func *f, Op *op)
{
    for (int i = 0; i < f->results.count; i++)
        for (int j = 0; j < i; j++)
            if (f->results.at[i] != f->results.at[j] && type_equal(&f->results.at[i]->type, &f->results.at[j]->type)) {
                Value *moved = f->results.at[i];
                f->results.at[i] = f->results.at[j];
                f->results.at[j] = moved;
                return true;
            }
    return false;
}

/* Names what is computed before the value, or what the value is computed from. */
static bool name_another(Module *m, Func *f, Op *op)
{
    for (int i = 0; i < f->results.count; i++)
        for (const Op *from = f->results.at[i]->def; from; from = from->prev)
            for (int k = 0; k < from->args.count; k++)
                if (arg(from, k)->def != from && arg(from, k) != f->results.at[i] &&
                    type_equal(&arg(from, k)->type, &f->results.at[i]->type)) {
                    f->results.at[i] = arg(from, k);
                    return true;
                }
    return false;
}

/* The value before the copies of a repeat. */
static bool skip_copies(Module *m, Func *f, Op *op)
{
    const int carried = op->attrs.carried;
    for (int i = 0; i < carried; i++)
        replace_uses(f, op->results.at[i], arg(op, i));
    return carried > 0;
}

static const Plant plants[] = {
    { 'v', "two outputs are in each other's place", ends_outputs, swap_outputs },
    { 'v', "an output is a value of its type that is computed before", ends_unplaced, name_another },
    { 'v', "an output lacks a message", is_sent, leave_out },
    { 'v', "an output lacks the first term of a sum", adds, lose_left },
    { 'v', "an output lacks the second term of a sum", adds, lose_right },
    { 'v', "an output lacks the copies of a repeat", is_loop, skip_copies },
};
const PlantList plants_of_outputs = { sizeof plants / sizeof *plants, plants };
