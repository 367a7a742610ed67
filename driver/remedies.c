/* remedies.c -- options that make a program fit.
 *
 * There are few kinds of remedies, each with levels, which are options of mpc: recompute more, smaller micro-batches.
 * The program is compiled with each level, since what it saves is known only from the plan: a loss in chunks saves
 * nothing where the peak is elsewhere.  Of a kind the first level that is enough counts, or else the strongest one.
 * Then all kinds together are tried, and each is weakened as far as memory allows, first the kind that alone takes the
 * longest: several may be faster than one, or only several be enough.  A program takes some hundredths of a second.
 */
#include "remedies.h"

#include "report.h"
#include "tier.h"

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

enum { MOST_LEVELS = 8 };

/* What is said in place of what the program says. */
typedef struct {
    const char *option; /* of the command line; a setting of --set */
    int count;
    const char *value[MOST_LEVELS + 1];
    bool has_finest; /* value[count]: between two levels, and found by compiling the program many times */
} Ladder;

typedef struct {
    int level[N_REMEDIES]; /* of each ladder; 0: as the program says */
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

static Options options_of(const Search *s, const Choice *choice)
{
    Options options = *s->question.options;
    for (int i = 0; i < N_REMEDIES; i++)
        if (choice->level[i])
            set_option(&s->run->arena, &options, &s->ladder[i], s->ladder[i].value[choice->level[i] - 1]);
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
        const char *value = ladder->value[choice->level[i] - 1];
        const char *word = is_setting(ladder) ? arena_text(arena, "--set %s=%s", ladder->option, value)
                                              : arena_text(arena, "--%s %s", ladder->option, shell_word(arena, value));
        text = text ? arena_text(arena, "%s %s", text, word) : word;
    }
    return text;
}

/* The model, lowered with these options and without messages; NULL: it cannot be. */
static Module *lower_silently(Run *own, Run *run, const Options *options, Settings *settings)
{
    *own = (Run){ .options = options, .source = run->source, .is_trial = true };
    own->diags = (Diags){ .arena = &own->arena, .source = &own->source, .out = nowhere() };
    Module *m = lower_source(own, 0, settings);
    own->diags.out = stderr;
    return m;
}

static double seconds_on(const Machine *machine, const Report *r)
{
    if (!machine || (r->far && isnan(machine_tier(machine, far_tier(r->m)))))
        return NAN;
    const StepCost cost = step_cost(r->m, &r->classes, &r->run->arena);
    return cost.unscheduled ? NAN : step_time(&cost, machine, &r->run->arena).seconds;
}

static Remedy measured(const Search *s, const Report *r)
{
    const RemedyQuestion *q = &s->question;
    Remedy made = { .bytes = q->is_of_arena ? (double)r->memory.arena : bytes_needed(r),
                    .seconds = seconds_on(q->machine, r),
                    .moved = r->fetched + r->offloaded };
    for (int i = 0; i < N_WORKS; i++)
        made.work += r->work[i];
    for (int i = 0; i < r->nrows; i++)
        made.moved += r->row[i].sent;
    made.fits = made.bytes <= q->room;
    return made;
}

/* False: it cannot be compiled so. */
static bool try_choice(const Search *s, const Choice *choice, Remedy *made)
{
    const Options options = options_of(s, choice);
    Run own;
    Module *m = lower_silently(&own, s->run, &options, NULL);
    const bool good = m && run_passes(m, &(PassOptions){ .unchecked = true });
    if (good) {
        const Report report = make_report(&own, m);
        *made = measured(s, &report);
        made->options = text_of(s, choice);
        made->rounds = choice->level[NARROW_GRADIENTS] > 0;
    }
    if (m)
        free_module(m);
    arena_free(&own.arena);
    return good;
}

/* --- The ladders --------------------------------------------------------------------------------------- */

static void add_level(Ladder *ladder, const char *value)
{
    if (ladder->count < MOST_LEVELS)
        ladder->value[ladder->count++] = value;
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
    ladder->has_finest = room >= 1 && count_ops(m) <= MOST_OPS;
    if (ladder->has_finest)
        ladder->value[ladder->count] =
            arena_text(&s->run->arena, "auto(%" PRId64 ")", (int64_t)(floor(room / unit) * unit));
}

/* What is offloaded, as bits: more of it than the program says, or all of that where some is kept. */
static void add_offload(Arena *arena, Ladder *ladder, const Train *train, Tier tier)
{
    enum { STATE = 1, PARAMS = 2, ACTIVATIONS = 4 };
    static const struct {
        int parts;
        const char *words;
    } all[] = { { STATE, "optimizer" },
                { ACTIVATIONS, "activations" },
                { STATE | PARAMS, "optimizer, params" },
                { STATE | ACTIVATIONS, "optimizer, activations" },
                { STATE | PARAMS | ACTIVATIONS, "optimizer, params, activations" } };
    const char *folder = train->offload_folder ? arena_text(arena, " \"%s\"", train->offload_folder) : "";
    const int said = (train->offload_optimizer ? STATE : 0) | (train->offload_params ? PARAMS : 0) |
                     (train->offload_activations ? ACTIVATIONS : 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if ((all[i].parts & said) == said && (all[i].parts != said || train->offload_keep))
            add_level(ladder, arena_text(arena, "%s to %s%s", all[i].words, Tier_words[tier], folder));
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
    add_offload(&s->run->arena, &s->ladder[OFFLOADED], train, is_cuda(s->question.options) ? ON_HOST : ON_DISK);
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
        *base = measured(s, &report);
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

/* Levels that are enough, with the finest one where that is less costly. */
static void refine(const Search *s, Choice choice, Remedy *enough)
{
    for (int kind = 0; kind < N_REMEDIES; kind++) {
        Remedy made;
        if (!choice.level[kind] || !s->ladder[kind].has_finest)
            continue;
        choice.level[kind] = s->ladder[kind].count + 1;
        const bool is_made = try_choice(s, &choice, &made) && made.fits;
        if (is_made && (isnan(made.seconds) ? made.work < enough->work : is_less_costly(&made, enough)))
            *enough = made;
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
