/* agree.c -- the options and data of a rank as texts and hashes: hashes are compared first; texts are sent only if they
 * differ. */
#include "agree.h"

#include "comm.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    char text[120]; /* truncated, for messages */
} OptionText;

static uint64_t hash_of(uint64_t hash, const char *bytes, int64_t count)
{
    for (int64_t i = 0; i < count; i++) /* FNV-1a */
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001B3u;
    return hash;
}

static const uint64_t BEGIN = 0xCBF29CE484222325u;

/* Is the number equal on all ranks? */
static bool all_have(Rt *rt, uint64_t number, uint64_t *all)
{
    bool same = true;
    rt_comm_gather(rt, &number, sizeof number, (char *)all);
    for (int q = 1; q < rt->ranks; q++)
        same &= all[q] == all[0];
    return same;
}

static _Noreturn void refuse(const char *name, const uint64_t *all, const OptionText *said, int ranks)
{
    enum { MOST = 4 };
    char *others = rt_text("%s", "");
    int named = 0, differing = 0;
    for (int q = 1; q < ranks; q++) {
        if (all[q] == all[0])
            continue;
        if (differing++ < MOST) {
            rt_append(&others, "%srank %d: %s", named ? ", " : "", q, said[q].text);
            named++;
        }
    }
    if (differing > named)
        rt_append(&others, ", and %d more", differing - named);
    rt_fail("the ranks differ in %s: rank 0: %s, %s; start all of them with the same", name, said[0].text, others);
}

static void agree(Rt *rt, const char *name, uint64_t hash, const char *text)
{
    uint64_t *all = rt_allocate(rt->ranks, sizeof *all);
    if (!all_have(rt, hash, all)) {
        OptionText own = { { 0 } }, *said = rt_allocate(rt->ranks, sizeof *said);
        strncpy(own.text, text, sizeof own.text - 1);
        rt_comm_gather(rt, &own, sizeof own, (char *)said);
        for (int q = 0; q < rt->ranks; q++)
            rt_comm_clean(said[q].text, sizeof said[q].text);
        refuse(name, all, said, rt->ranks);
    }
    free(all);
}

static uint64_t hash_of_text(uint64_t hash, const char *text) { return hash_of(hash, text, (int64_t)strlen(text) + 1); }

/* MPI may start different programs; they are distinguished by their plans. */
static uint64_t hash_of_program(const RtProgram *program)
{
    uint64_t hash = hash_of_text(hash_of_text(BEGIN, program->name), program->plan ? program->plan : "");
    return hash_of(hash, (const char *)&program->arena_bytes, sizeof program->arena_bytes);
}

void rt_agree_on_program(Rt *rt)
{
    char *text = rt_text("model '%s' of %s", rt->program->name, rt->program->source);
    agree(rt, "the program that they run", hash_of_program(rt->program), text);
    free(text);
}

void rt_agree_on_options(Rt *rt, const RtOptions *options)
{
    if (rt->ranks == 1)
        return;
    RtSharedOption shared[RT_MOST_SHARED];
    int count = rt_options_shared(options, shared);
    uint64_t *all = rt_allocate(rt->ranks, sizeof *all), hash = BEGIN;
    for (int i = 0; i < count; i++)
        hash = hash_of_text(hash, shared[i].value);
    bool is_same = all_have(rt, hash, all);
    for (int i = 0; i < count; i++) {
        char *name = rt_text("--%s", shared[i].name);
        if (!is_same)
            agree(rt, name, hash_of_text(BEGIN, shared[i].value), shared[i].value);
        free(name);
        free(shared[i].value);
    }
    free(all);
}

void rt_agree_on_text(Rt *rt, const char *what, const char *text)
{
    if (rt->ranks > 1)
        agree(rt, what, hash_of_text(BEGIN, text), text);
}

/* A hash of the whole, or in a large file of equidistant samples, including the first and the last bytes. */
static uint64_t hash_of_content(const char *map, int64_t bytes)
{
    enum { SAMPLES = 64, SAMPLE = 4096, WHOLE = 16 << 20 };
    uint64_t hash = hash_of(BEGIN, (const char *)&bytes, sizeof bytes);
    if (bytes <= WHOLE)
        return hash_of(hash, map, bytes);
    for (int i = 0; i < SAMPLES; i++)
        hash = hash_of(hash, map + (bytes - SAMPLE) / (SAMPLES - 1) * i, SAMPLE);
    return hash_of(hash, map + bytes - SAMPLE, SAMPLE);
}

void rt_agree_on_file(Rt *rt, const char *option, const char *path, const char *kind, const char *map, int64_t bytes)
{
    if (rt->ranks == 1)
        return;
    uint64_t hash = hash_of_text(hash_of_content(map, bytes), kind);
    char *text = rt_text("%s (%s, %lld bytes, hash %08x)", path, kind, (long long)bytes, (unsigned)(hash ^ hash >> 32));
    char *name = rt_text("the content of %s", option);
    agree(rt, name, hash, text);
    free(name);
    free(text);
}
