/* row_kept.c -- the choice of values of a row that are kept for later phases; others are recomputed.
 *
 * A row that is traversed twice is in the cache the second time, so that loading an operand again and subtracting costs
 * less than storing the difference; an exponential is worth keeping.
 */
#include "row.h"

#include <limits.h>

static bool in_row(const RowKernel *k, const Node *node) { return node->dims & k->inner; }

/* The costs of computing each value from memory.  Shared parts count twice: they are rare. */
static void find_costs(RowKernel *k)
{
    for (Node *node = k->node; node < k->node + k->nnodes; node++) {
        int64_t flops = node->op ? info(node->op)->flops : 1;
        for (int i = 0; i < 3 && node->operand[i]; i++)
            flops += node->operand[i]->cost;
        node->cost = !in_row(k, node) ? 0 : flops < INT_MAX ? (int)flops : INT_MAX;
    }
}

/* The result in whose memory a value can be kept, or -1: it must be stored unchanged, in the phase that computes it. */
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

/* Is it a result of which the largest or the smallest element is found, too?  Whoever compares them
 * (passes/kernel/matches.c) must see the numbers of which that is one: recomputed ones may differ in the last bit. */
static bool has_extreme(const RowKernel *k, const Node *node)
{
    bool is_result = false, is_compared = false;
    for (int i = 0; i < k->nsinks; i++)
        is_result |= k->sink[i].node == node;
    for (int i = 0; i < k->nnodes && is_result; i++) {
        const Op *op = k->node[i].is_reduction ? k->node[i].op : NULL;
        is_compared |= op && (info(op)->over == MAX || info(op)->over == MIN) && arg(op, 0) == node->value;
    }
    return is_compared;
}

/* The first and the last phase that need a value. */
typedef struct {
    int first, last; /* -1: none */
} PhaseRange;

static void need(RowKernel *k, Node *node, int phase, PhaseRange *needed)
{
    PhaseRange *own = &needed[node - k->node];
    if (!node->op || !in_row(k, node) || own->last == phase)
        return;
    int *seen = &own->first;
    own->last = phase;
    bool whole = (node->dims & k->inner) == k->inner && is_float(node->value->type.dtype);
    if (*seen >= 0 && *seen < phase && node->kept_from < 0 && whole && !is_copy(node) &&
        (node->cost > CHEAP_FLOPS || has_extreme(k, node)))
        keep(k, node, *seen);
    if (node->kept_from >= 0 && node->kept_from < phase)
        return;
    *seen = *seen < 0 ? phase : *seen;
    for (int i = 0; i < node->op->args.count; i++)
        need(k, node->operand[i], phase, needed);
}

void plan_kept(RowKernel *k)
{
    PhaseRange *needed = NEW_ARRAY(&k->m->arena, PhaseRange, k->nnodes);
    for (int i = 0; i < k->nnodes; i++)
        needed[i] = (PhaseRange){ -1, -1 };
    find_costs(k);
    for (int phase = 0; phase < k->nphases && k->nregions == 1; phase++) {
        for (int i = 0; i < k->nnodes; i++) {
            Node *operand = k->node[i].is_reduction ? k->node[i].operand[0] : NULL;
            if (operand && k->node[i].phase == phase + 1 && (operand->dims & k->inner) == k->inner)
                need(k, operand, phase, needed);
        }
        for (int i = 0; i < k->nsinks; i++) {
            Node *source = k->sink[i].operand ? k->sink[i].operand : k->sink[i].node;
            if (k->sink[i].phase == phase && (source->dims & k->inner) == k->inner)
                need(k, source, phase, needed);
        }
    }
}
