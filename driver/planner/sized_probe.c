/* sized_probe.c -- the items of a program with other sizes: with twice as many sequences, and with one rank in place of
 * those of each axis.  Only the items are looked at again: which ops run, and in which order, sizes do not change. */
#include "sized_read.h"

#include "room.h"
#include "split_loop.h"

bool kernels_compute(const Reader *r)
{
    return fused_seconds(r->p->machine, 1, 1e30, 1) > fused_seconds(r->p->machine, 1, 0, 1);
}

void number_list(Reader *r, const CostList *list, int rank)
{
    for (int i = 0; i < list->count; i++) {
        r->item = room_for(r->arena, r->item, sizeof *r->item, r->numbered, 1, &r->number_room);
        r->item[r->numbered++] = (Numbered){ &list->item[i], rank };
        if (list->item[i].kind == ITEM_REPEAT)
            number_list(r, list->item[i].body, rank);
    }
}

/* A message of several tensors, whose ops follow each other. */
static CostItem message_again(const Reader *r, const Numbered *n)
{
    const Op *op = n->item->op;
    CostItem item = message_item(r->m, r->arena, op, n->rank);
    for (int i = 1; i < n->item->tensors; i++) {
        op = op->next;
        const CostItem joined = message_item(r->m, r->arena, op, n->rank);
        item.volume += joined.volume;
        SentTensor *sent = NEW(r->arena, SentTensor);
        *sent = *joined.sent;
        sent->next = item.sent;
        item.sent = sent;
    }
    return item;
}

static CostItem repeat_again(const Reader *r, const Numbered *n)
{
    CostItem item = *n->item;
    item.turns = iterations_on(r->m, item.op, n->rank);
    return item;
}

/* A kernel may have several items, one after the other. */
static void probe_items(const Reader *r, Probe *probe)
{
    CostList own = { 0 };
    const Op *op = NULL;
    int at = 0;
    probe->item = NEW_ARRAY(r->arena, CostItem, r->numbered + 1);
    for (int i = 0; i < r->numbered; i++) {
        const Numbered *n = &r->item[i];
        const bool is_work = n->item->kind < ITEM_MESSAGE;
        if (is_work && n->item->op != op) {
            own = (CostList){ 0 };
            push_cost(r->m, r->arena, &own, n->item->op, n->rank, kernels_compute(r));
            at = 0;
        }
        op = is_work ? n->item->op : NULL;
        probe->is_other |= is_work && !own.count;
        probe->item[i] = is_work && own.count            ? own.item[at++ % own.count]
                         : n->item->kind == ITEM_MESSAGE ? message_again(r, n)
                         : n->item->kind == ITEM_REPEAT  ? repeat_again(r, n)
                                                         : *n->item;
    }
}

static void probe(Reader *r, Scale scale, double times)
{
    Probe *probe = &r->probe[r->probes++];
    *probe = (Probe){ .scale = scale, .times = times };
    probe_items(r, probe);
    r->s->is_irregular |= probe->is_other;
}

void probe_sizes(Reader *r)
{
    Module *m = r->m;
    const int64_t sequences = r->s->sequences;
    if (r->is_fixed)
        return;
    set_sequences(m, sequences, 2 * sequences, NULL);
    probe(r, (Scale){ .grows = true }, 2);
    set_sequences(m, 2 * sequences, sequences, NULL);
    for (int i = 0; i < m->naxes; i++) {
        const int64_t size = m->axis_size[i];
        const PlanAxis *axis = &r->p->axis[r->s->axis[i]];
        const bool is_ring = axis->attends && r->s->key.attend == RING;
        if (size == 1 || axis->splits_copies || (is_ring && !serves_more_turns(r->s->key.axis[r->s->axis[i]])))
            continue; /* as it is in all layouts */
        m->axis_size[i] = 1;
        probe(r, (Scale){ .divided = 1u << i }, (double)size);
        m->axis_size[i] = size;
    }
}
