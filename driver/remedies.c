/* remedies.c -- options that make a program fit.
 *
 * There are few kinds of remedies, each with levels, which are options of mpc: recompute more, smaller micro-batches.
 * The program is compiled with each level, since what it saves is known only from the plan: a loss in chunks saves
 * nothing where the peak is elsewhere.  Of a kind the first level that is enough counts, or else the strongest one.
 * Then all kinds together are tried, and each is weakened as far as memory allows, first the kind that alone takes the
 * longest: several may be faster than one, or only several be enough.  A program takes some hundredths of a second.
 */
#include "remedies.h"

#include "trial.h"
#include "ways.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The least costly one first: nothing, messages, smaller products, up to a third more work, slow transfers, rounding.
 */
typedef enum {
    LOSS_IN_CHUNKS,
    MORE_ZERO,
    SMALLER_MICRO,
    MORE_RECOMPUTED,
    OFFLOADED,
    NARROW_GRADIENTS,
    N_REMEDIES
} Kind;

enum { MOST_LEVELS = 16, MOST_VARIATIONS = N_AWAY * MOST_WAITS };

/* What is said in place of what the program says. */
typedef struct {
    const char *option; /* of the command line; a setting of --set */
    int count;
    const char *value[MOST_LEVELS];
    int nvariations; /* of levels: they need more memory, and may be faster */
    struct {
        int of; /* a level; 0: of any */
        const char *value;
    } variation[MOST_VARIATIONS];
} Ladder;

typedef struct {
    int level[N_REMEDIES]; /* of each ladder; 0: as the program says; behind the levels: variations */
} Choice;

typedef struct {
    Run *run;
    RemedyQuestion question;
    Ladder ladder[N_REMEDIES];
} Search;

/* --- A program with other options -------------------------------------------------------------------- */

static bool is_setting(const Ladder *ladder) { return strncmp(ladder->option, "train.", strlen("train.")) == 0; }

static void set_option(Arena *arena, Options *o, const Ladder *ladder, const char *value)
{
    if (is_setting(ladder)) {
        o->set = sets_without(arena, &o->set, ladder->option);
        o->set.at[o->set.count++] = arena_text(arena, "%s=%s", ladder->option, value);
        return;
    }
    for (int i = 0; i < noptions; i++)
        if (strcmp(option_table[i].field, ladder->option) == 0)
            *(const char **)((char *)o + option_table[i].at) = value;
}

static const char *value_of(const Ladder *ladder, int level)
{
    return level > ladder->count ? ladder->variation[level - ladder->count - 1].value : ladder->value[level - 1];
}

static Options options_of(const Search *s, const Choice *choice)
{
    Options options = *s->question.options;
    for (int i = 0; i < N_REMEDIES; i++)
        if (choice->level[i])
            set_option(&s->run->arena, &options, &s->ladder[i], value_of(&s->ladder[i], choice->level[i]));
    return options;
}

/* As they are typed. */
static const char *text_of(const Search *s, const Choice *choice)
{
    Arena *arena = &s->run->arena;
    const char *text = NULL;
    for (int i = 0; i < N_REMEDIES; i++) {
        const Ladder *ladder = &s->ladder[i];
        if (!choice->level[i])
            continue;
        const char *value = value_of(ladder, choice->level[i]);
        const char *word = is_setting(ladder) ? arena_text(arena, "--set %s=%s", ladder->option, value)
                                              : arena_text(arena, "--%s %s", ladder->option, shell_word(arena, value));
        text = text ? arena_text(arena, "%s %s", text, word) : word;
    }
    return text;
}

/* False: it cannot be compiled so. */
static bool try_choice(const Search *s, const Choice *choice, Remedy *made)
{
    const Options options = options_of(s, choice);
    const bool good = try_options(s->run, &s->question, &options, made);
    made->options = good ? text_of(s, choice) : NULL;
    made->rounds = choice->level[NARROW_GRADIENTS] > 0;
    return good;
}

/* --- The ladders --------------------------------------------------------------------------------------- */

static void add_level(Ladder *ladder, const char *value)
{
    if (ladder->count < MOST_LEVELS)
        ladder->value[ladder->count++] = value;
}

static void add_variation(Ladder *ladder, int of, const char *value)
{
    if (ladder->nvariations < MOST_VARIATIONS) {
        ladder->variation[ladder->nvariations].of = of;
        ladder->variation[ladder->nvariations++].value = value;
    }
}

/* Halves of the sequences that a rank has in a micro-batch. */
static void add_micros(Arena *arena, Ladder *ladder, const Settings *settings)
{
    long long each = 1;
    for (int i = 0; i < settings->count; i++)
        if (strcmp(settings->at[i].name, ladder->option) == 0)
            each = strtoll(settings->at[i].value, NULL, 10);
    while ((each /= 2) > 0)
        add_level(ladder, arena_text(arena, "%lld", each));
}

static int count_ops(const Module *m)
{
    int count = 0;
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            count++;
    return count;
}

/* Two policies; and what recomputes as little as fits, where `beside` are the bytes that a rank needs beside its arena.
 */
static void add_recompute(const Search *s, Ladder *ladder, const Module *m, double beside)
{
    enum { MOST_OPS = 10000 }; /* of a program that is quickly compiled many times */
    const double room = s->question.room - beside, unit = pow(10, floor(log10(room)) - 3);
    if (m->train.recompute == RECOMPUTE_FULL || s->question.is_of_arena) /* of an arena: it was tried */
        return;
    if (m->train.recompute == RECOMPUTE_NONE)
        add_level(ladder, "selective");
    add_level(ladder, "full");
    if (room >= 1 && count_ops(m) <= MOST_OPS)
        add_variation(ladder, 0, arena_text(&s->run->arena, "auto(%" PRId64 ")", (int64_t)(floor(room / unit) * unit)));
}

/* The parts that the program offloads, in less and less memory: nothing of them stays, fewer forward passes run with
 * the updates. */
static void add_own_ways(Arena *arena, Ladder *ladder, const Module *m)
{
    Way way = way_of(&m->train);
    if (way.away && way.keep) {
        way.keep = 0;
        add_level(ladder, way_text(arena, m, &way));
    }
    while (way.forwards) {
        way.forwards /= 2;
        add_level(ladder, way_text(arena, m, &way));
    }
}

/* More than the program offloads, with updates at once; variations have them wait. */
static void add_offload(Arena *arena, Ladder *ladder, const Module *m)
{
    const int said = way_of(&m->train).away;
    add_own_ways(arena, ladder, m);
    for (int i = 0; i < N_AWAY; i++) {
        int64_t forwards[MOST_WAITS];
        const int count = list_waits(m, away_sets[i], forwards);
        if (away_sets[i] == said || (away_sets[i] & said) != said)
            continue;
        add_level(ladder, way_text(arena, m, &(Way){ .away = away_sets[i] }));
        for (int k = 0; k < count; k++) {
            const Way way = { .away = away_sets[i], .forwards = forwards[k] };
            add_variation(ladder, ladder->count, way_text(arena, m, &way));
        }
    }
}

static void add_ladders(Search *s, const Module *m, const Settings *settings, double beside)
{
    static const char *const zeros[] = { "1", "2", "3" };
    static const char *const options[N_REMEDIES] = {
        [LOSS_IN_CHUNKS] = "train.loss_chunks", [MORE_ZERO] = "zero",    [SMALLER_MICRO] = "train.microbatch",
        [MORE_RECOMPUTED] = "recompute",        [OFFLOADED] = "offload", [NARROW_GRADIENTS] = "train.grad_storage",
    };
    const Train *train = &m->train;
    for (int i = 0; i < N_REMEDIES; i++)
        s->ladder[i].option = options[i];
    if (!train->loss_chunks)
        add_level(&s->ladder[LOSS_IN_CHUNKS], "auto");
    for (int zero = (int)train->zero; zero < 3 && count_ranks(m, ~0u) > 1; zero++)
        add_level(&s->ladder[MORE_ZERO], zeros[zero]);
    add_micros(&s->run->arena, &s->ladder[SMALLER_MICRO], settings);
    add_recompute(s, &s->ladder[MORE_RECOMPUTED], m, beside);
    add_offload(&s->run->arena, &s->ladder[OFFLOADED], m);
    if (!train->grad_storage)
        add_level(&s->ladder[NARROW_GRADIENTS], "bf16");
}

/* The program as it is, and what can be changed of it. */
static bool read_program(Search *s, Remedy *base)
{
    Settings settings = { 0 };
    Run own;
    Module *m = lower_silently(&own, s->run, s->question.options, &settings);
    const bool good = m && run_passes(m, &(PassOptions){ .unchecked = true });
    if (good) {
        const Report report = make_report(&own, m);
        *base = remedy_without_options(&s->question, &report);
        add_ladders(s, m, &settings, base->bytes - (double)report.memory.arena);
    }
    if (m)
        free_module(m);
    arena_free(&own.arena);
    return good;
}

/* --- The search ---------------------------------------------------------------------------------------- */

static bool is_less_costly(const Remedy *a, const Remedy *b)
{
    return a->rounds == b->rounds ? a->seconds < b->seconds : b->rounds;
}

/* Without times: less work, for about as much fewer bytes that are moved, then less memory. */
static bool is_better(const Remedy *made, const Remedy *than)
{
    const double SAME = 0.01; /* updates that wait select between old and new weights */
    if (!isnan(made->seconds) || !isnan(than->seconds))
        return is_less_costly(made, than);
    if (fabs(made->work - than->work) > SAME * than->work)
        return made->work < than->work;
    return made->moved == than->moved ? made->bytes < than->bytes : made->moved < than->moved;
}

/* Levels that are enough, or the best variation of them that still is.  What updates leave is then for recomputation.
 */
static void refine(const Search *s, Choice choice, Remedy *enough)
{
    for (int kind = N_REMEDIES - 1; kind >= 0; kind--) {
        const Ladder *ladder = &s->ladder[kind];
        const int level = choice.level[kind];
        int best = level;
        for (int i = 0; level && i < ladder->nvariations; i++) {
            Remedy made;
            choice.level[kind] = ladder->count + 1 + i;
            if (ladder->variation[i].of && ladder->variation[i].of != level)
                continue;
            if (try_choice(s, &choice, &made) && made.fits && is_better(&made, enough))
                best = choice.level[kind], *enough = made;
        }
        choice.level[kind] = best;
    }
}

/* The first level that is enough, or the strongest that can be compiled; 0: none. */
static int level_alone(const Search *s, Kind kind, Remedy *found)
{
    int best = 0;
    for (int level = 1; level <= s->ladder[kind].count && !(best && found->fits); level++) {
        Remedy made;
        Choice choice = { 0 };
        choice.level[kind] = level;
        if (try_choice(s, &choice, &made))
            best = level, *found = made;
        if (best == level && made.fits)
            refine(s, choice, found);
    }
    return best;
}

/* Sorted by insertion; without times they stay in the order of their kinds. */
static void add_remedy(Remedies *all, Remedy *list, const Remedy *remedy)
{
    int at = all->count++;
    for (; at > 0 && is_less_costly(remedy, &list[at - 1]); at--)
        list[at] = list[at - 1];
    list[at] = *remedy;
}

/* As weak as still needs no more than `most` bytes; `order`: of kinds. */
static Remedy weakened(const Search *s, Choice *choice, Remedy strongest, double most, const Kind *order)
{
    for (int i = 0; i < N_REMEDIES; i++) {
        const Kind kind = order[i];
        const int full = choice->level[kind];
        bool is_enough = false;
        for (int level = 0; level < full && !is_enough; level++) {
            Remedy made;
            choice->level[kind] = level;
            is_enough = try_choice(s, choice, &made) && made.bytes <= most;
            if (is_enough)
                strongest = made;
        }
        choice->level[kind] = is_enough ? choice->level[kind] : full;
    }
    return strongest;
}

/* The most costly kind first; without times, as they are numbered. */
static void order_kinds(const Remedy *alone, Kind *order)
{
    for (int i = 0; i < N_REMEDIES; i++) {
        const Kind kind = N_REMEDIES - 1 - i;
        int at = i;
        for (; at > 0 && is_less_costly(&alone[order[at - 1]], &alone[kind]); at--)
            order[at] = order[at - 1];
        order[at] = kind;
    }
}

static Remedy all_together(const Search *s, Choice *choice, const Remedy *alone)
{
    Remedy made = { 0 };
    Kind order[N_REMEDIES];
    order_kinds(alone, order);
    if (!try_choice(s, choice, &made) || !made.options)
        return (Remedy){ 0 };
    made = weakened(s, choice, made, made.fits ? s->question.room : made.bytes, order);
    if (made.fits)
        refine(s, *choice, &made);
    return made;
}

Remedies find_remedies(Run *run, RemedyQuestion question)
{
    enum { SHARE_OF_HELP = 100 }; /* less than that of what is missing is no help */
    Search search = { .run = run, .question = question };
    Remedy *list = NEW_ARRAY(&run->arena, Remedy, N_REMEDIES), *enough = NEW_ARRAY(&run->arena, Remedy, N_REMEDIES);
    Remedies some = { .at = list }, all = { .at = enough };
    Choice strongest = { 0 };
    Remedy base, alone[N_REMEDIES] = { 0 };
    if (!read_program(&search, &base))
        return some;
    for (Kind kind = 0; kind < N_REMEDIES; kind++) {
        strongest.level[kind] = level_alone(&search, kind, &alone[kind]);
        if (!strongest.level[kind])
            continue;
        if (alone[kind].fits)
            add_remedy(&all, enough, &alone[kind]);
        else if (SHARE_OF_HELP * (base.bytes - alone[kind].bytes) >= base.bytes - question.room)
            list[some.count++] = alone[kind];
    }
    Remedies *told = all.count ? &all : &some;
    const Remedy together = all_together(&search, &strongest, alone);
    if (together.options && (!all.count || is_less_costly(&together, &enough[0])))
        told->together = together;
    return *told;
}
