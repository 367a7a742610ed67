/* keep.c -- mpc plan --keep: what all layouts of the space have. */
#include "planner.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool bad_keep(Planner *p, const char *said, const char *why)
{
    const char *axes = "";
    for (int i = 0; i < p->naxes; i++)
        axes = arena_text(p->arena, "%s%s=N, ", axes, p->axis[i].name);
    report_error(
        stderr,
        arena_text(
            p->arena,
            "%smicrobatch=N, zero=0|1|2|3, overlap=0|1, recompute=none|selective|full, "
            "attend=gather|ring|all_to_all, pieces=1|2|4, abreast=1|2|3|4, schedule=1f1b|interleaved|zb, chunks=N",
            axes),
        "--keep=%s: %s", said, why);
    p->run->diags.errors++;
    return false;
}

static int word_in(const char *const words[], int count, const char *word)
{
    for (int i = 0; i < count; i++)
        if (words[i] && strcmp(words[i], word) == 0)
            return i;
    return -1;
}

/* The number of a word, or of an option with that name; -1: it has no such value. */
static int64_t kept_value(const char *name, const char *value)
{
    static const struct {
        const char *name;
        int64_t least, most;
    } numbers[] = { { "zero", 0, 3 },
                    { "overlap", 0, 1 },
                    { "pieces", 1, 4 },
                    { "abreast", 1, MAX_ABREAST },
                    { "chunks", 1, MAX_CHUNKS } };
    int64_t least = 1, most = INT32_MAX;
    char *end = NULL;
    const int64_t number = strtoll(value, &end, 10);
    if (strcmp(name, "recompute") == 0)
        return word_in(Recompute_words, RECOMPUTE_AUTO, value);
    if (strcmp(name, "attend") == 0)
        return word_in(attend_name, N_ATTENDS, value);
    if (strcmp(name, "schedule") == 0)
        return word_in(schedule_word, N_SCHEDULES, value);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(name, numbers[i].name) == 0)
            least = numbers[i].least, most = numbers[i].most;
    const bool is_bad = end == value || *end || number < least || number > most;
    return is_bad || (strcmp(name, "pieces") == 0 && number == 3) ? -1 : number; /* powers of two */
}

static bool keep(Planner *p, const char *said)
{
    const char *equals = strchr(said, '=');
    const char *name = equals ? arena_text(p->arena, "%.*s", (int)(equals - said), said) : said;
    Kept *kept = &p->kept;
    PlanAxis *axis = axis_named(p, name);
    const struct {
        const char *name;
        int *field;
    } fields[] = { { "zero", &kept->zero },     { "overlap", &kept->overlaps },  { "recompute", &kept->recompute },
                   { "attend", &kept->attend }, { "schedule", &kept->schedule }, { "chunks", &kept->chunks },
                   { "pieces", &kept->pieces }, { "abreast", &kept->abreast } };
    const int64_t value = equals ? kept_value(name, equals + 1) : -1;
    if (value < 0)
        return bad_keep(p, said, equals ? "that is no value of it" : "a name and a value are needed");
    if (axis)
        axis->kept = value;
    else if (strcmp(name, "microbatch") == 0)
        kept->microbatch = value;
    for (size_t i = 0; !axis && i < sizeof fields / sizeof *fields; i++)
        if (strcmp(fields[i].name, name) == 0) {
            *fields[i].field = (int)value;
            return true;
        }
    return axis || strcmp(name, "microbatch") == 0 || bad_keep(p, said, "there is nothing of that name");
}

/* --set train.microbatch=N is --keep microbatch=N. */
static bool keep_set(Planner *p, const char *said)
{
    static const char train[] = "train.", key[] = "train.microbatch=";
    return strncmp(said, key, strlen(key)) != 0 || keep(p, said + strlen(train));
}

/* What nothing in the model's layout has. */
static const char *without_effect(const Planner *p)
{
    bool attends = false, splits_copies = false, has_zero = false, has_else = false;
    for (const Ast *ast = p->parallel->body; ast; ast = ast->next)
        has_else |= ast->kind == A_SHARD && ast->init;
    for (int i = 0; i < p->naxes; i++) {
        attends |= p->axis[i].attends;
        splits_copies |= p->axis[i].splits_copies;
        has_zero |= p->axis[i].is_zero;
    }
    return p->kept.attend >= 0 && !attends                                    ? "attend"
           : (p->kept.schedule >= 0 || p->kept.chunks >= 0) && !splits_copies ? "schedule and chunks"
           : (p->kept.zero >= 0 || p->kept.overlaps >= 0) && !has_zero        ? "zero and overlap"
           : p->kept.pieces > 1 && !has_else                                  ? "pieces"
                                                                              : NULL;
}

/* In some of the layouts.  Those with a single micro-batch have none abreast. */
static bool accepts_abreast(Planner *p)
{
    const int abreast = p->kept.abreast;
    return p->sequences % abreast == 0 ||
           run_failed(p->run, "--keep abreast=%d: it does not divide the %" PRId64 " sequences of a step", abreast,
                      p->sequences);
}

bool read_kept(Planner *p, int abreast)
{
    const TextList *set = &p->run->options->set, *said = &p->run->options->keep;
    p->kept = (Kept){ 0, -1, -1, -1, -1, -1, -1, 1, abreast };
    for (int i = 0; i < set->count; i++)
        if (!keep_set(p, set->at[i]))
            return false;
    for (int i = 0; i < said->count; i++)
        if (!keep(p, said->at[i]))
            return false;
    const char *what = without_effect(p);
    return what ? run_failed(p->run, "--keep of %s has no effect: no axis of the layout has any", what)
                : accepts_abreast(p);
}
