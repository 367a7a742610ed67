/* fuse_order.c -- which op of a function has to come before which, and the new order, in which groups stand together.
 *
 * An op comes behind those whose results it reads.  New state is written where the old one is, so an update comes
 * behind all that read the old state, or a view of it.
 */
#include "cleanup.h"
#include "fuse.h"
#include "storage.h"

#include <string.h>

static void push_number(Arena *arena, Numbers *numbers, int number)
{
    if (numbers->count == numbers->room) {
        int room = numbers->room ? numbers->room * 2 : 4, *more = NEW_ARRAY(arena, int, room);
        for (int i = 0; i < numbers->count; i++)
            more[i] = numbers->at[i];
        numbers->at = more;
        numbers->room = room;
    }
    numbers->at[numbers->count++] = number;
}

static void add_order(Plan *p, int before, int after)
{
    push_number(&p->m->arena, &p->users[before], after);
    push_number(&p->m->arena, &p->needs[after], before);
}

/* Of the value itself, or of what is a view of it. */
static bool reads_memory_of(const Op *op, const Value *value)
{
    for (int i = 0; i < op->args.count; i++)
        if (shown_by(arg(op, i)) == value)
            return true;
    return false;
}

/* New state is written where the old one is: whoever reads the old one comes first. */
static void order_updates(Plan *p)
{
    int nstate = p->f->role == STEP ? p->f->results.count - 2 : 0; /* but loss and norm */
    for (int i = 0; i < nstate; i++) {
        Value *old = p->f->params.at[p->f->params.count - nstate + i];
        int update = op_number(p, p->f->results.at[2 + i]->def);
        if (update >= 0)
            p->over[update] = old;
        if (update >= 0 && p->group[update])
            p->group[update]->updates = true;
        for (int k = 0; k < p->n && update >= 0; k++)
            if (k != update && reads_memory_of(p->ops[k], old))
                add_order(p, k, update);
    }
}

static void add_reader(Plan *p, const Value *value, int i)
{
    Numbers *readers = map_get(&p->readers, value);
    if (!readers) {
        readers = NEW(&p->m->arena, Numbers);
        map_put(&p->readers, value, readers);
    }
    if (!readers->count || readers->at[readers->count - 1] != i)
        push_number(&p->m->arena, readers, i);
}

void find_order(Plan *p)
{
    for (int i = 0; i < p->n; i++)
        for (int j = 0; j < p->ops[i]->args.count; j++) {
            add_reader(p, arg(p->ops[i], j), i);
            int def = op_number(p, arg(p->ops[i], j)->def);
            if (def >= 0)
                add_order(p, def, i);
        }
    order_updates(p);
}

/* --- Groups as wholes, each as early as the order of the ops allows ------------------------------------- */

/* Appends op i and what it needs first; the ops of a group stand together. */
static void place_op(Plan *p, int i)
{
    const Group *g = final_group(p->group[i]);
    int first = g ? g->index : i;
    if (p->seen[first])
        return;
    p->seen[first] = true;
    for (int k = first; k >= 0; k = g ? p->sibling[k] : -1)
        for (int j = 0; j < p->needs[k].count; j++)
            if (!g || final_group(p->group[p->needs[k].at[j]]) != g)
                place_op(p, p->needs[k].at[j]);
    for (int k = 0; k < p->n; k++) /* in their old order */
        if (k == i || (g && final_group(p->group[k]) == g))
            insert_op(p->f, p->ops[k], NULL);
}

void gather_groups(Plan *p)
{
    memset(p->seen, 0, (size_t)p->n * sizeof *p->seen);
    for (int i = 0; i < p->n; i++)
        remove_op(p->f, p->ops[i]);
    for (int i = 0; i < p->n; i++)
        place_op(p, i);
}
