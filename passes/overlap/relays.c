/* relays.c -- finds relays, messages whose result leads to the next message through little work, such as a norm between
 * a sum and a gather; and marks the ops that messages need.
 *
 * The second message of a relay may start as soon as the first one has come; the longer the function waits for it, the
 * less is left to be computed beside the second.
 */
#include "map.h"
#include "overlap.h"
#include "uses.h"

static bool is_short(const Unit *unit)
{
    return unit->work == 0 && !unit->starts && !(info(unit->op[0])->traits & (SENDS | CARRIES));
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

static bool starts_message(const Op *op) { return op->attrs.started && info(op)->traits & SENDS; }

bool starts_activation(const Op *op) { return starts_message(op) && !op->attrs.purpose; }

/* Does a reader of the value start a message, but for a weight, or lead to one?  A gradient's message is under way for
 * long where links are slow, and should start early, too. */
static bool is_urgent(const List *list, const Value *value)
{
    const Users *users = users_of(&list->uses, value);
    bool urgent = false;
    for (int i = 0; i < users->count && !urgent; i++) {
        const Op *op = users->op[i];
        urgent =
            (op->attrs.started && info(op)->traits & SENDS && op->attrs.purpose != WEIGHT) || unit_of(list, op)->urgent;
    }
    return urgent;
}

/* What a message needs: of this iteration of a loop or, by what is carried, of the next one.  Outside
 * of loops all is urgent: a function may have all layers, or the update of all weights, and ops that another order
 * keeps for later keep their operands. */
static void find_urgent(List *list)
{
    const Func *f = list->f;
    for (int i = 0; i < list->n; i++)
        list->unit[i].urgent = !list->loop;
    for (int round = 0; list->loop && round < 2; round++) {
        for (int i = 0; round && i < list->loop->attrs.carried; i++)
            if (f->results.at[i]->def && is_urgent(list, f->params.at[i]))
                unit_of(list, f->results.at[i]->def)->urgent = true;
        for (Op *op = f->last; op; op = op->prev)
            for (int i = 0; i < op->results.count; i++)
                unit_of(list, op)->urgent |= is_urgent(list, op->results.at[i]);
    }
}

/* The first message that the reader of a value starts, or leads to by short ops; 0: none. */
static int next_message(const List *list, const Op *user, const int *next)
{
    const int number = (int)(unit_of(list, user) - list->unit);
    return starts_message(user) ? number + 1 : next[number];
}

/* Of each unit, what next_message() says of its readers: from a wait to a start with nothing between that takes time.
 */
static int *find_short_ways(List *list)
{
    Map from_wait = { .arena = &list->m->arena };
    int *next = NEW_ARRAY(&list->m->arena, int, list->n + 1);
    for (const Op *op = list->f->first; op; op = op->next)
        if ((waits_for_activation(op) || reads_any_of(op, &from_wait)) && is_short(unit_of(list, op)))
            map_put(&from_wait, op, list);
    for (const Op *op = list->f->last; op; op = op->prev)
        for (int i = 0; map_get(&from_wait, op) && i < op->results.count; i++) {
            const Users *users = users_of(&list->uses, op->results.at[i]);
            for (int j = 0; j < users->count; j++) {
                const int of_user = next_message(list, users->op[j], next);
                int *own = &next[unit_of(list, op) - list->unit];
                *own = of_user && (!*own || of_user < *own) ? of_user : *own;
            }
        }
    return next;
}

/* Of each op the relays that it depends on, and of each relay the work that does not. */
static void find_dependents(List *list)
{
    Map after = { .arena = &list->m->arena }; /* of an op */
    const int words = (list->relays + 63) / 64;
    for (const Op *op = list->f->first; op && words; op = op->next) {
        Unit *unit = unit_of(list, op);
        uint64_t *own = NEW_ARRAY(&list->m->arena, uint64_t, words);
        for (int i = 0; i < op->args.count; i++) {
            const uint64_t *of_operand = arg(op, i)->def ? map_get(&after, arg(op, i)->def) : NULL;
            for (int k = 0; of_operand && k < words; k++)
                own[k] |= of_operand[k];
        }
        if (unit->relay)
            own[(unit->relay - 1) / 64] |= UINT64_C(1) << (unit->relay - 1) % 64;
        map_put(&after, op, own);
        if (op != unit->op[0])
            continue;
        unit->after = own;
        for (int i = 0; i < list->relays && unit->work > 0; i++)
            list->relay[i].work += own[i / 64] >> i % 64 & 1 ? 0 : unit->work;
    }
}

void find_relays(List *list)
{
    find_urgent(list);
    const int *next = find_short_ways(list);
    int *number = NEW_ARRAY(&list->m->arena, int, list->n + 1); /* of the relay, by its message */
    list->relay = NEW_ARRAY(&list->m->arena, Relay, list->n + 1);
    for (int i = 0; i < list->n; i++)
        if (next[i]) {
            if (!number[next[i] - 1]) {
                list->relay[list->relays++].next = next[i];
                number[next[i] - 1] = list->relays;
            }
            list->unit[i].relay = number[next[i] - 1];
        }
    find_dependents(list);
}
