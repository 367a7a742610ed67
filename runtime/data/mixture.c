/* mixture.c -- sequences of several sources in proportion to their weights. */
#include "mixture.h"

#include "order.h"
#include "state.h"

#include <stdlib.h>

void rt_mixture_quotas(RtPortion *portion, int count)
{
    double all = 0;
    int64_t left = RT_ROUND;
    for (int i = 0; i < count; i++)
        all += portion[i].weight;
    for (int i = 0; i < count; i++)
        left -= portion[i].quota = (int64_t)(portion[i].weight / all * RT_ROUND);
    for (; left > 0; left--) { /* to those that lack most */
        int most = 0;
        double lacks = -1;
        for (int i = 0; i < count; i++) {
            const double own = portion[i].weight / all * RT_ROUND - (double)portion[i].quota;
            if (own > lacks) {
                most = i;
                lacks = own;
            }
        }
        portion[most].quota++;
    }
}

RtMixture *rt_mixture_open(const RtPortion *portion, int count, uint32_t seed, bool in_order)
{
    RtMixture *mixture = rt_allocate(1, sizeof *mixture);
    *mixture = (RtMixture){ .portion = portion, .count = count, .seed = seed, .in_order = in_order, .round = -1 };
    mixture->source = rt_allocate(RT_ROUND, sizeof *mixture->source);
    mixture->among_own = rt_allocate(RT_ROUND, sizeof *mixture->among_own);
    return mixture;
}

void rt_mixture_close(RtMixture *mixture)
{
    if (!mixture)
        return;
    free(mixture->source);
    free(mixture->among_own);
    free(mixture);
}

static void deal_round(RtMixture *mixture, int64_t round)
{
    static const uint32_t of_rounds = 0x6D697874; /* another order than that of sequences */
    int64_t *dealt = rt_allocate(mixture->count, sizeof *dealt);
    for (int at = 0; at < RT_ROUND; at++) {
        int64_t card = rt_order_permute(RT_ROUND, mixture->seed ^ of_rounds, round, at);
        int i = 0;
        while (card >= mixture->portion[i].quota)
            card -= mixture->portion[i++].quota;
        mixture->source[at] = i;
        mixture->among_own[at] = dealt[i]++;
    }
    free(dealt);
    mixture->round = round;
}

/* Entry `at` of the endless list of the sequences from `first` on. */
static int64_t in_epochs(const RtMixture *mixture, int64_t first, int64_t count, uint32_t seed, int64_t at)
{
    return first + (mixture->in_order ? at % count : rt_order_permute(count, seed, at / count, at % count));
}

int64_t rt_mixture_at(RtMixture *mixture, int64_t position)
{
    static const uint32_t apart = 0x9E3779B9; /* the seeds of two sources */
    const int64_t round = position / RT_ROUND, entry = position % RT_ROUND;
    if (mixture->portion->weight <= 0) {
        const RtPortion *last = &mixture->portion[mixture->count - 1];
        return in_epochs(mixture, 0, last->first + last->count, mixture->seed, position);
    }
    if (mixture->round != round)
        deal_round(mixture, round);
    const int i = mixture->source[entry];
    const RtPortion *own = &mixture->portion[i];
    return in_epochs(mixture, own->first, own->count, mixture->seed + apart * (uint32_t)i,
                     round * own->quota + mixture->among_own[entry]);
}
