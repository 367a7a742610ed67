/* phases.c -- the traversal of a row in which each value is computed.
 *
 * A reduction is added up in one phase, and read in the next.  A sum of exponentials is an exception: while it is added
 * up, what it subtracts may be the largest element so far, its base.  Where that grows from b to c, the sum so far is
 * multiplied by exp(b - c) (Milakov and Gimelshein, arXiv 1805.02867):
 *
 *     max = max x                     for all packs of a row
 *     sum = sum exp(x - max)              max = max(max, x)
 *                                         sum = sum * exp(base - max), base = max
 *                                         sum = sum + exp(x - base)
 *
 * The maximum and the sum then take one phase.  In units of 2^-24, each of the P packs of a thread, and the step from
 * its maximum to the row's, may add an error of 4 by the exponential, and of 1 by the product, where the maximum grows;
 * where it does not, both are exact.  Roundings of b - c are within the size of b - c, and add up to that of max - x,
 * as the rounding of x - max has in two phases: it counts for terms that are not next to nothing beside exp(0), of n
 * elements up to log n.  The sum of one phase is within 5 (P + 1) + log n units of that of reals, besides the roundings
 * of terms and sums that two phases have, too: 1.3e-5 for 40 packs.
 *
 * A base is never infinite, so a row that begins with minus infinity has a sum.  Of a row of nothing else, and of one
 * with infinity, the sum is NaN, as in two phases.
 */
#include "kernel.h"

#include "ir/uses.h"

/* The value whose elements it has. */
static Node *copied_by(Node *node)
{
    while (node && is_copy(node))
        node = node->operand[0];
    return node;
}

static bool reduces(const Node *node, Role over)
{
    return node && node->is_reduction && info(node->op)->over == over && is_float(node->value->type.dtype);
}

static bool is_exponential(const Node *node) { return node->op && info(node->op)->traits & IS_EXP; }

static bool chooses(const Node *node) { return node->op && info(node->op)->traits & CHOOSES; }

/* Where the sum has exp(x - most), has the maximum that x, too?  Then no term is above exp(0), with any base. */
static bool is_among(const Node *x, const Node *is, const Node *most)
{
    const Node *y = copied_by(most->operand[0]);
    return y == x || (is && chooses(y) && y->operand[0] == is && copied_by(y->operand[1]) == x);
}

/* Of a sum of exp(x - most), or of `is ? exp(x - most) : 0`, as without the padding of a dim. */
static Node *most_of(const Node *sum)
{
    const Node *power = reduces(sum, SUM) ? copied_by(sum->operand[0]) : NULL, *is = NULL;
    if (power && chooses(power) && is_zeros(power->operand[2]->value)) {
        is = power->operand[0];
        power = copied_by(power->operand[1]);
    }
    const Node *below = power && is_exponential(power) ? copied_by(power->operand[0]) : NULL;
    if (!below || !below->op || !is_difference(below->op))
        return NULL;
    Node *most = copied_by(below->operand[1]);
    const bool is_of_same = reduces(most, MAX) && most->dims == sum->dims &&
                            is_among(copied_by(below->operand[0]), is, most) &&
                            sum->operand[0]->dims == most->operand[0]->dims;
    return is_of_same ? most : NULL;
}

void find_most(RowKernel *k)
{
    for (Node *node = k->node; node < k->node + k->nnodes; node++)
        node->most = most_of(node);
}

static void find_phases(RowKernel *k, bool online)
{
    k->nphases = 1;
    for (Node *node = k->node; node < k->node + k->nnodes; node++) {
        node->phase = 0;
        node->kept_from = node->kept_array = -1;
        node->is_online = online && node->most;
        for (int i = 0; node->op && i < node->op->args.count; i++) {
            const int phase = node->operand[i]->phase + (node->is_reduction && !node->is_online);
            node->phase = phase > node->phase ? phase : node->phase;
        }
        if (node->is_reduction && node->phase > k->nphases)
            k->nphases = node->phase;
    }
    for (int i = 0; i < k->nsinks; i++) {
        Sink *sink = &k->sink[i];
        const Node *from = sink->operand ? sink->operand : sink->node;
        sink->phase = from->phase;
        if (from->dims & k->inner && sink->phase + 1 > k->nphases)
            k->nphases = sink->phase + 1;
    }
    for (int i = 0; i < k->nsinks; i++)
        k->sink[i].phase = k->sink[i].is_late ? k->nphases - 1 : k->sink[i].phase;
}

void plan_phases(RowKernel *k, bool online)
{
    find_phases(k, false);
    const int usual = k->nphases;
    if (online)
        find_phases(k, true);
    if (k->nphases == usual)
        find_phases(k, false);
}
