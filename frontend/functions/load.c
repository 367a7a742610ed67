/* load.c -- counts of a dispatch: the choices of each expert, and those that find no slot.
 *
 *   %chosen : i32[batch, seq, choice]
 *   %load   : f32[experts.load]         how many choices are equal to each number
 *   %beyond : f32[]                     how many have a place beyond the slots
 *
 * They are statistics of the batch as those of updates are (state.c), of tensors that the step feeds with zeros: it
 * returns what their gradients say.  The counts have a dim of their own, so that no layout splits them.
 */
#include "functions.h"

static bool is_counted(const Lower *l, const Value *chosen, Name slots)
{
    const Queue *c = l->noted.counted;
    while (c && (c->chosen != chosen || c->slots != slots))
        c = c->next;
    return c != NULL;
}

/* Of each element of `of`, if it has any: how often it `is`. */
static Value *count(Lower *l, Value *is, const Type *of)
{
    return sum_over(l, emit_cast(l, is, F32), dims_lacking(&is->type, of));
}

static void measure(Lower *l, Body *body, PortKind kind, Name of, Value *count)
{
    const Name name = intern_format(l->m, "%s.%s", of, port_word(kind));
    Value *zeros = import_param(l, NULL, body, name, count->type, (Port){ .kind = kind, .of = of });
    zeros = import_value(l, l->frame, zeros, body);
    add_statistic(l, zeros, EMIT(l, OP_stop_gradient, NO_ATTRS, zeros), count);
}

void count_load(Lower *l, Value *chosen, Value *place, Dim experts, double room, Name slots, bool rounds, bool drops)
{
    int number = 1;
    if (l->role != MODEL || is_counted(l, chosen, slots))
        return;
    Queue *counted = NEW(l->arena, Queue);
    *counted = (Queue){ chosen, slots, l->noted.counted };
    for (const Queue *c = l->noted.counted; c; c = c->next)
        number++;
    l->noted.counted = counted;
    experts.name = intern_format(l->m, "%s.load", experts.name);
    const Type of = { .rank = 1, .dim = { experts } };
    const Name at = intern_format(l->m, "%s.%d", l->path ? l->path : l->m->name, number); /* no name of the file */
    Body *body = rounds ? l->frame->outer : l->frame; /* each round counts the same: their sums are one layer's */
    measure(l, body, PORT_LOAD, at, count(l, EMIT(l, OP_eq, NO_ATTRS, chosen, emit_iota(l, experts)), &of));
    if (drops) {
        Value *end = emit_number(l, room, I32);
        measure(l, body, PORT_DROPPED, at, count(l, EMIT(l, OP_ge, NO_ATTRS, place, end), &(Type){ 0 }));
    }
}
