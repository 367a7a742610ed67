/* faster.c -- finds faster ways to offload.  If a step waits for transfers, the program is compiled with other options
 * of offload, and without any; those that fit and take less time are listed. */
#include "trial.h"
#include "ways.h"

#include <math.h>

/* Of a step: less is not worth an option. */
static const double LEAST_SHARE = 0.01;

typedef struct {
    Run *run;
    const RemedyQuestion *question;
    const Module *m;
    Remedy now;
    int count;
    Remedy *list; /* the least time first */
    Way *way;     /* of each */
} Ways;

static double share_of_waits(const Report *r)
{
    const StepTime *t = &r->time->time;
    double waits = 0;
    for (int i = 0; i < t->naxes; i++)
        waits += t->axes[i].axes ? 0 : t->axes[i].exposed;
    return waits / t->seconds;
}

/* Another one takes no longer, and no more memory. */
static bool is_beaten(const Ways *w, const Remedy *made)
{
    bool beaten = false;
    for (int i = 0; i < w->count; i++)
        beaten |= w->list[i].seconds <= made->seconds && w->list[i].bytes <= made->bytes;
    return beaten;
}

static void insert(Ways *w, const Remedy *made, const Way *way)
{
    int kept = 0;
    for (int i = 0; i < w->count; i++)
        if (w->list[i].seconds < made->seconds || w->list[i].bytes < made->bytes)
            w->list[kept] = w->list[i], w->way[kept++] = w->way[i];
    w->count = kept;
    int at = w->count++;
    for (; at > 0 && made->seconds < w->list[at - 1].seconds; at--)
        w->list[at] = w->list[at - 1], w->way[at] = w->way[at - 1];
    w->list[at] = *made, w->way[at] = *way;
}

static void try_way(Ways *w, const Way *way)
{
    Arena *arena = &w->run->arena;
    Options options = *w->run->options;
    Remedy made;
    options.offload = way_text(arena, w->m, way);
    if (!try_options(w->run, w->question, &options, &made) || !made.fits || isnan(made.seconds))
        return;
    made.options = arena_text(arena, "--offload %s", shell_word(arena, options.offload));
    if (made.seconds <= (1 - LEAST_SHARE) * w->now.seconds && !is_beaten(w, &made))
        insert(w, &made, way);
}

/* The way with as much near as there is room for, to four digits; tensors that are near as a whole may take more. */
static void try_with_rest(Ways *w, const Way *way, double bytes)
{
    const double rest = w->question->room - bytes, unit = pow(10, floor(log10(rest)) - 3);
    if (!way->away || !(rest >= LEAST_SHARE * bytes) || isinf(rest))
        return;
    try_way(w, &(Way){ way->away, way->forwards, way->keep + (int64_t)(floor(rest / unit) * unit) });
}

/* No more than the program offloads. */
static void try_all(Ways *w)
{
    const Way own = way_of(&w->m->train);
    try_way(w, &(Way){ 0 });
    for (int i = 0; i < N_AWAY; i++) {
        int64_t forwards[MOST_WAITS];
        const int count = list_waits(w->m, away_sets[i], forwards);
        if ((away_sets[i] & own.away) != away_sets[i])
            continue;
        try_way(w, &(Way){ .away = away_sets[i], .keep = own.keep });
        for (int k = 0; k < count; k++)
            try_way(w, &(Way){ away_sets[i], forwards[k], own.keep });
    }
    try_with_rest(w, &own, w->now.bytes);
    if (w->count)
        try_with_rest(w, &w->way[0], w->list[0].bytes);
}

Remedies find_faster(const Report *r, RemedyQuestion question)
{
    enum { MOST = 2 * N_AWAY * (MOST_WAITS + 1) };
    Arena *arena = &r->run->arena;
    Ways ways = { .run = r->run, .question = &question, .m = r->m, .now = remedy_without_options(&question, r) };
    ways.list = NEW_ARRAY(arena, Remedy, MOST), ways.way = NEW_ARRAY(arena, Way, MOST);
    if (share_of_waits(r) >= LEAST_SHARE)
        try_all(&ways);
    return (Remedies){ .count = ways.count, .at = ways.list };
}
