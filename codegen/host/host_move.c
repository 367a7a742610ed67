/* host_move.c -- moves between tiers of memory, and their waits.
 *
 *   rt_fetch_start(rt, 3, w_next, h_attn_wq_next, 2359296);
 *   rt_transfer_wait(rt, 3);
 *
 * Both sides are row-major.  A fetch that a loop carries has one number, that of the loop's callee.
 */
#include "flight.h"
#include "host_parts.h"

static int number_of(Host *h, const Op *start)
{
    const Op *continued = continued_by(h->m, start);
    const intptr_t known = (intptr_t)map_get(&h->started, continued);
    if (known)
        return (int)known - 1;
    map_put(&h->started, continued, (void *)(intptr_t)(h->ntransfers + 1));
    return h->ntransfers++;
}

void write_move(FuncText *t, const Op *op)
{
    Module *m = t->h->m;
    const char *from = pointer_to(t, arg(op, 0)), *to = pointer_to(t, result(op)),
               *bytes = own_bytes(t, &result(op)->type);
    const char *function =
        arena_text(&m->arena, "%s%s", op->attrs.tier ? "rt_offload" : "rt_fetch", op->attrs.started ? "_start" : "");
    const char *number = op->attrs.started ? arena_text(&m->arena, " %d,", number_of(t->h, op)) : "";
    const char *call = arena_text(&m->arena, "%s(rt,%s %s, %s, %s);\n", function, number, to, from, bytes);
    write_statement(t, place_text(m, op),
                    handed_on(t->f, op) < 0 ? call : arena_text(&m->arena, "if (%s)\n    %s", to, call));
}

void write_transfer_wait(FuncText *t, const Op *op)
{
    const int number = number_of(t->h, flight_start(t->f, arg(op, 0)));
    write_statement(t, place_text(t->h->m, op), arena_text(&t->h->m->arena, "rt_transfer_wait(rt, %d);\n", number));
}
