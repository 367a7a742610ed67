/* relays.c -- what takes little time between a message and the next one, as a norm between a sum and a gather.
 *
 * If a product is computed beside the first message, the second one may start beside the next product, as soon as the
 * first has come; the longer the function waits for it, the less is left beside the second.  This needs work for both
 * messages, which a function has if another such pair of messages is independent of this one: that of another
 * micro-batch (train.abreast).  Elsewhere an early wait exposes the rest of a long message.
 */
#include "map.h"
#include "overlap.h"
#include "uses.h"

static bool is_short(const Unit *unit)
{
    return !unit->works && !unit->starts && !(info(unit->op[0])->traits & (SENDS | CARRIES));
}

/* Of an activation: gradients and weights are under way for longer than one product, and nothing needs them soon. */
static bool waits_for_activation(const Op *op)
{
    const Op *start = info(op)->traits & WAITS ? arg(op, 0)->def : NULL;
    return start && !start->attrs.purpose;
}

static bool reads_any_of(const Op *op, const Map *ops)
{
    bool any = false;
    for (int i = 0; i < op->args.count && !any; i++)
        any = arg(op, i)->def && map_get(ops, arg(op, i)->def);
    return any;
}

/* The first message that the reader of a value starts, or leads to by short ops; 0: none. */
static int next_message(const List *list, const Op *user)
{
    const Unit *unit = unit_of(list, user);
    const bool is_start = user->attrs.started && info(user)->traits & SENDS;
    return is_start ? (int)(unit - list->unit) + 1 : unit->next;
}

/* From a wait to a start with nothing between that takes time. */
static void find_short_ways(List *list)
{
    Map from_wait = { .arena = &list->m->arena };
    for (const Op *op = list->f->first; op; op = op->next)
        if ((waits_for_activation(op) || reads_any_of(op, &from_wait)) && is_short(unit_of(list, op)))
            map_put(&from_wait, op, list);
    for (const Op *op = list->f->last; op; op = op->prev)
        for (int i = 0; map_get(&from_wait, op) && i < op->results.count; i++) {
            const Users *users = users_of(&list->uses, op->results.at[i]);
            for (int j = 0; j < users->count; j++) {
                const int next = next_message(list, users->op[j]);
                Unit *unit = unit_of(list, op);
                unit->next = next && (!unit->next || next < unit->next) ? next : unit->next;
            }
        }
}

/* --- Independent ones ------------------------------------------------------------------------------------ */

/* What depends on the ways to one message. */
typedef struct {
    int next;
    Map ops;
} Way;

static Way way_to(const List *list, int next)
{
    Way way = { .next = next, .ops.arena = &list->m->arena };
    for (const Op *op = list->f->first; op; op = op->next)
        if (unit_of(list, op)->next == next || reads_any_of(op, &way.ops))
            map_put(&way.ops, op, way.ops.arena);
    return way;
}

static bool leads_to(const List *list, const Way *way, int next)
{
    const Unit *unit = &list->unit[next - 1];
    bool any = false;
    for (int i = 0; i < unit->count && !any; i++)
        any = map_get(&way->ops, unit->op[i]);
    return any;
}

void find_relays(List *list)
{
    int n = 0;
    Map known = { .arena = &list->m->arena };
    Way *ways = NEW_ARRAY(&list->m->arena, Way, list->n);
    find_short_ways(list);
    for (Unit *unit = list->unit; unit < list->unit + list->n; unit++)
        if (unit->next && !map_get(&known, &list->unit[unit->next - 1])) {
            map_put(&known, &list->unit[unit->next - 1], list);
            ways[n++] = way_to(list, unit->next);
        }
    for (Unit *unit = list->unit; unit < list->unit + list->n; unit++)
        for (int i = 0, own = 0; unit->next && i < n && !unit->relays; i++) {
            while (ways[own].next != unit->next)
                own++;
            unit->relays = !leads_to(list, &ways[own], ways[i].next) && !leads_to(list, &ways[i], unit->next);
        }
}
