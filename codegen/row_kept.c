/* row_kept.c -- which values of a row are kept for later phases, and which are computed again.
 *
 * A row that is gone over twice is in the cache the second time, so that loading an operand again
 * and subtracting costs less than storing the difference; an exponential is worth keeping.
 */
#include "row.h"

#include <stdlib.h>

static bool in_row(const RowKernel *k, const Node *node) { return node->dims & k->inner; }

/* Of computing a value from what lies in memory.  Shared parts count twice: they are few. */
static int cost(const RowKernel *k, const Node *node)
{
    if (!in_row(k, node))
        return 0;
    if (!node->op)
        return 1;
    int flops = info(node->op)->flops;
    for (int i = 0; i < node->op->args.count; i++)
        flops += cost(k, find_node(k, arg(node->op, i)));
    return flops;
}

/* The result in whose memory a value can be kept, or -1: it must be stored in its own phase, as it is. */
static int result_that_holds(const RowKernel *k, const Node *node, int phase)
{
    for (int i = 0; i < k->nsinks; i++) {
        int array = k->f->params.count + k->sink[i].result;
        if (k->sink[i].node == node && k->sink[i].phase == phase && !k->array[array].shared &&
            node->value->type.dtype == F32)
            return array;
    }
    return -1;
}

static void keep(RowKernel *k, Node *node, int phase)
{
    int array = result_that_holds(k, node, phase);
    if (array < 0 && count_points(k, k->inner) > ROW_BUFFER)
        return;
    node->kept_from = phase;
    node->kept_array = array;
    node->kept_in = array >= 0 ? k->array[array].name
                               : new_identifier(&k->names, arena_text(&k->m->arena, "%s_stored", node->name));
}

/* `phase` needs a value; first[] says which phases needed what before. */
static void need(RowKernel *k, Node *node, int phase, int *first)
{
    if (!node->op || !in_row(k, node))
        return;
    int *seen = &first[node - k->node];
    bool whole = (node->dims & k->inner) == k->inner && is_float(node->value->type.dtype);
    if (*seen >= 0 && *seen < phase && node->kept_from < 0 && whole && !is_copy(node) && cost(k, node) > CHEAP_FLOPS)
        keep(k, node, *seen);
    if (node->kept_from >= 0 && node->kept_from < phase)
        return;
    *seen = *seen < 0 ? phase : *seen;
    for (int i = 0; i < node->op->args.count; i++)
        need(k, find_node(k, arg(node->op, i)), phase, first);
}

void plan_kept(RowKernel *k)
{
    int *first = NEW_ARRAY(&k->m->arena, int, k->nnodes);
    for (int i = 0; i < k->nnodes; i++)
        first[i] = -1;
    for (int phase = 0; phase < k->nphases && k->nregions == 1; phase++) {
        for (int i = 0; i < k->nnodes; i++) {
            Node *operand = k->node[i].is_reduction ? find_node(k, arg(k->node[i].op, 0)) : NULL;
            if (operand && k->node[i].phase == phase + 1 && (operand->dims & k->inner) == k->inner)
                need(k, operand, phase, first);
        }
        for (int i = 0; i < k->nsinks; i++) {
            Node *source = k->sink[i].operand ? k->sink[i].operand : k->sink[i].node;
            if (k->sink[i].phase == phase && (source->dims & k->inner) == k->inner)
                need(k, source, phase, first);
        }
    }
}
