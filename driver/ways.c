/* ways.c -- see ways.h. */
#include "ways.h"

#include "target.h"

#include <inttypes.h>

enum { MOST_FORWARDS = 64 }; /* of just_in_time: see frontend/layout/offload.c */

const int away_sets[N_AWAY] = { AWAY_STATE, AWAY_ACTIVATIONS, AWAY_STATE | AWAY_PARAMS, AWAY_STATE | AWAY_ACTIVATIONS,
                                AWAY_STATE | AWAY_PARAMS | AWAY_ACTIVATIONS };

static Tier tier_of(const Module *m)
{
    const Train *t = &m->train;
    const Tier said = (Tier)(t->offload_optimizer | t->offload_params | t->offload_activations);
    return said ? said : m->target->is_gpu ? ON_HOST : ON_DISK;
}

Way way_of(const Train *t)
{
    return (Way){ .away = (t->offload_optimizer ? AWAY_STATE : 0) | (t->offload_params ? AWAY_PARAMS : 0) |
                          (t->offload_activations ? AWAY_ACTIVATIONS : 0),
                  .forwards = t->offload_together ? t->offload_together : t->offload_just_in_time,
                  .keep = t->offload_keep };
}

/* "20e9", "2000" */
static const char *bytes_word(Arena *arena, int64_t bytes)
{
    enum { MILLION = 1000000 };
    return bytes % MILLION || bytes < 1000 * MILLION ? arena_text(arena, "%" PRId64, bytes)
                                                     : arena_text(arena, "%.9ge9", (double)bytes / 1e9);
}

const char *way_text(Arena *arena, const Module *m, const Way *way)
{
    static const char *const words[] = { "optimizer", "params", "activations" };
    const char *text = "", *folder = m->train.offload_folder;
    for (int i = 0; i < 3; i++)
        if (way->away >> i & 1)
            text = arena_text(arena, "%s%s%s", text, *text ? ", " : "", words[i]);
    if (!way->away)
        return "none";
    text = arena_text(arena, "%s to %s", text, Tier_words[tier_of(m)]);
    if (folder)
        text = arena_text(arena, "%s \"%s\"", text, folder);
    if (way->keep)
        text = arena_text(arena, "%s keep %s", text, bytes_word(arena, way->keep));
    if (way->forwards)
        text = arena_text(arena, "%s just_in_time", text);
    return way->forwards > 1 ? arena_text(arena, "%s %" PRId64, text, way->forwards) : text;
}

int list_waits(const Module *m, int away, int64_t forwards[MOST_WAITS])
{
    const int64_t micros = m->train.abreast > 1 ? 1 : m->train.batch / m->train.microbatch; /* abreast run together */
    int count = 0;
    if (!(away & AWAY_STATE) || away & AWAY_PARAMS)
        return 0;
    for (int64_t n = micros < MOST_FORWARDS ? micros : MOST_FORWARDS; n > 0; n /= 2)
        forwards[count++] = n;
    return count;
}
