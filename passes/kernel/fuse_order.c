/* fuse_order.c -- the dependences between the ops of a function, and the new order, in which groups are contiguous.
 *
 * An op comes after those whose results it reads.  New state is written over the old state, so an update comes after
 * all readers of the old state or of a view of it.  Where such a reader needs the new state, as in an optimizer that
 * keeps the last gradient and reads the one before, or where two states change places, that is a circle: there new
 * state is a copy, which nothing needs, and which can wait for all readers.
 */
#include "fuse.h"
#include "simplify/cleanup.h"
#include "storage.h"

#include <stdlib.h>

void push_number(Arena *arena, Numbers *numbers, int number)
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

static int compare_numbers(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

void sort_numbers(Numbers *numbers)
{
    if (numbers->count)
        qsort(numbers->at, (size_t)numbers->count, sizeof *numbers->at, compare_numbers);
}

int first_from(const Numbers *sorted, int number)
{
    int low = 0, high = sorted ? sorted->count : 0;
    while (low < high) {
        const int at = low + (high - low) / 2;
        if (sorted->at[at] < number)
            low = at + 1;
        else
            high = at;
    }
    return low;
}

static void add_order(Fusion *p, int before, int after)
{
    push_number(&p->m->arena, &p->users[before], after);
    push_number(&p->m->arena, &p->needs[after], before);
}

static void add_reader(Fusion *p, Map *readers, const Value *value, int i)
{
    Numbers *list = map_get(readers, value);
    if (!list) {
        list = NEW(&p->m->arena, Numbers);
        map_put(readers, value, list);
    }
    if (!list->count || list->at[list->count - 1] != i)
        push_number(&p->m->arena, list, i);
}

static void order_before(Fusion *p, const Numbers *readers, int update)
{
    for (int k = 0; readers && k < readers->count; k++)
        if (readers->at[k] != update)
            add_order(p, readers->at[k], update);
}

/* New state is written over the old one: readers of the old one, or of a view of it, come first. */
static void order_updates(Fusion *p)
{
    const StepState state = state_of(p->f);
    for (int i = 0; i < state.count; i++) {
        Value *old = state.before[i];
        int update = op_number(p, state.after[i]->def);
        if (update < 0)
            continue;
        p->over[update] = old;
        if (p->group[update])
            p->group[update]->updates = true;
        order_before(p, map_get(&p->readers, old), update);
        order_before(p, map_get(&p->view_readers, old), update);
    }
}

void find_order(Fusion *p)
{
    for (int i = 0; i < p->n; i++)
        for (int j = 0; j < p->ops[i]->args.count; j++) {
            const Value *read = arg(p->ops[i], j), *root = shown_by(read);
            add_reader(p, &p->readers, read, i);
            if (root != read)
                add_reader(p, &p->view_readers, root, i);
            int def = op_number(p, arg(p->ops[i], j)->def);
            if (def >= 0)
                add_order(p, def, i);
        }
    order_updates(p);
}

/* For each op how many of those before it remain when each op is taken after all before it: 0, but in circles and
 * behind them. */
static int *remaining(Fusion *p)
{
    int *remains = NEW_ARRAY(&p->m->arena, int, p->n);
    Numbers taken = { 0 };
    for (int i = 0; i < p->n; i++)
        if (!(remains[i] = p->needs[i].count))
            push_number(&p->m->arena, &taken, i);
    for (int next = 0; next < taken.count; next++) {
        const Numbers *users = &p->users[taken.at[next]];
        for (int j = 0; j < users->count; j++)
            if (!--remains[users->at[j]])
                push_number(&p->m->arena, &taken, users->at[j]);
    }
    return remains;
}

bool copy_state(Fusion *p)
{
    const StepState state = state_of(p->f);
    const int *remains = state.count ? remaining(p) : NULL;
    bool copied = false;
    for (int i = 0; i < state.count; i++) {
        Value **new = &state.after[i];
        int update = op_number(p, (*new)->def);
        if (*new == state.before[i] || (update >= 0 && !remains[update]))
            continue;
        if (update < 0) /* the old value of another state, which is read before that is written */
            *new = stored(builder_at(p->m, p->f, NULL), *new);
        *new = stored(builder_at(p->m, p->f, NULL), *new);
        copied = true;
    }
    return copied;
}

/* --- Groups as wholes, each as early as the order of the ops allows ------------------------------------- */

/* Appends op i and what it needs first; the ops of a group stand together. */
static void place_op(Fusion *p, int i)
{
    const FusionGroup *g = final_group(p->group[i]);
    int first = g ? g->index : i;
    if (p->seen[first] == p->stamp)
        return;
    p->seen[first] = p->stamp;
    for (int k = first; k >= 0; k = g ? p->sibling[k] : -1)
        for (int j = 0; j < p->needs[k].count; j++)
            if (!g || final_group(p->group[p->needs[k].at[j]]) != g)
                place_op(p, p->needs[k].at[j]);
    Numbers *ops = &p->pool; /* in the original order */
    ops->count = 0;
    for (int k = first; k >= 0; k = g ? p->sibling[k] : -1)
        push_number(&p->m->arena, ops, k);
    sort_numbers(ops);
    for (int k = 0; k < ops->count; k++)
        insert_op(p->f, p->ops[ops->at[k]], NULL);
}

void gather_groups(Fusion *p)
{
    p->stamp++;
    for (int i = 0; i < p->n; i++)
        remove_op(p->f, p->ops[i]);
    for (int i = 0; i < p->n; i++)
        place_op(p, i);
}
