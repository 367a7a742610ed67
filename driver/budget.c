/* budget.c -- recompute auto(BYTES): chooses the values to save, so that the memory of a rank fits into BYTES and as
 * little as possible is recomputed.
 *
 * How much memory a set of residuals takes is known after the memory pass.  So sets are tried: the model is compiled
 * with each, and the plan read.  `none` is tried first, since it only recomputes inside the kernels that read the
 * values; then the Pareto fronts of bytes and FLOPs (tradeoffs.h) with selective and full, fewer FLOPs first; a
 * policy is tried, and chosen, as what it is, since passes before `recompute` follow it, too.  A set is
 * skipped if memory would not fit even if all bytes that it saves less than `none` came off the peak.  Of a long front
 * samples are tried first, and once one of them fits, the sets before it that are next to it on their front.  The
 * samples do not depend on BYTES, so more BYTES never choose a set with more FLOPs.  If nothing fits, messages of zero
 * no longer overlap with computation, unless the file says so, and all is tried again.
 *
 * These FLOPs are counted before kernels are made.  The final programs of the policies that fit are compared with that
 * of the chosen set, so that no policy that fits needs fewer FLOPs.
 *
 * If the layout offloads activations, a value may also be saved away from the device.  What its transfers cost depends
 * on all others: they take time as far as they do not hide behind the layers.  So fronts are found with several prices
 * of a byte, up to that of transfers which nothing hides, and the cost of a set is its FLOPs, with those that a rank
 * could compute in the time that transfers cost.  Of what a policy saves, all is away or nothing.
 */
#include "driver.h"
#include "remedies.h"

#include "cost/cost.h"
#include "kinds/kinds.h"
#include "training/residuals.h"
#include "training/tradeoffs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OF_POLICY = 256, SAMPLES = 24, PRICES = 4 };

/* Of the price of a byte that is moved one way: out and back, one of them, less, and what hides. */
#define HIDDEN (1.0 / 16)
static const double part_of_price[PRICES] = { 2, 1, 0.25, HIDDEN };

/* What a rank computes, and the bytes that it moves one way, in a second.  Stated, and the same for all machines, so
 * that a report is that of the program which others compile. */
typedef struct {
    double flops, bytes;
} Rates;

static const Rates of_gpu = { 400e12, 50e9 }, of_processors = { 100e9, 2e9 };

typedef struct {
    Recompute policy; /* AUTO: a set */
    Recompute front;  /* that it is on: of the policy that holds outside of layers */
    bool is_sample;   /* tried before those between the samples */
    bool puts_away;   /* a policy: all that it saves */
    Tradeoff what;
    double moving;  /* FLOPs of the time that transfers of a micro-batch cost */
    int64_t memory; /* of a rank; 0: not tried */
    double flops;   /* of a rank in a step, with those of the time that transfers cost */
} Candidate;

typedef struct {
    Run *run;
    const Ast *file;
    int64_t budget;
    bool offloads;          /* activations */
    double forward;         /* FLOPs of the layers' forward, in a micro-batch */
    double price;           /* of a byte that is moved one way, in FLOPs */
    const Candidate *least; /* the tried one with the least memory; NULL: none could be compiled */
} Search;

static bool is_policy(const Candidate *candidate) { return candidate->policy != RECOMPUTE_AUTO; }

typedef struct {
    Recompute policy;
    const char *last; /* of the passes; NULL: all run */
    const SavedValues *saved;
    bool puts_away;
} Setup;

static void set_saved(Module *m, const SavedValues *saved)
{
    SavedValues **end = &m->saved;
    for (*end = NULL; saved; saved = saved->next, end = &(*end)->next) {
        *end = NEW(&m->arena, SavedValues);
        (*end)->func = intern_text(m, saved->func);
        for (int i = 0; i < saved->count; i++)
            add_saved(&m->arena, *end, intern_text(m, saved->value[i]),
                      saved->away[i] ? intern_text(m, saved->away[i]) : NULL);
    }
}

/* Sets which values the module saves and offloads: a set says it value by value; under a policy all saved values are
 * offloaded, or none. */
static void settle(Module *m, Setup setup)
{
    m->train.recompute = setup.policy;
    if (setup.policy != RECOMPUTE_AUTO && !setup.puts_away)
        m->train.offload_activations = ON_DEVICE;
    set_saved(m, setup.saved);
}

/* Compiles the model again, without messages: the compilation of the model itself reports them. */
static Module *compile_again(Run *run, const Ast *file, int64_t shrink, Setup setup)
{
    Arena arena = { 0 };
    Diags silent = { .arena = &arena, .source = &run->source, .out = open_discarding() };
    Module *m = lower_ast(run, file, shrink, NULL, &silent);
    if (m) {
        settle(m, setup);
        if (!run_passes(m, &(PassOptions){ .stop_after = setup.last })) {
            free_module(m);
            m = NULL;
        }
    }
    arena_free(&arena);
    if (m)
        m->diags = &run->diags;
    return m;
}

static const SavedValues *set_of(const Candidate *candidate)
{
    return is_policy(candidate) ? NULL : candidate->what.saved;
}

/* Does it fit? */
static bool try_candidate(Search *search, Candidate *candidate)
{
    Module *m = compile_again(search->run, search->file, 0,
                              (Setup){ candidate->policy, NULL, set_of(candidate), candidate->puts_away });
    if (!m)
        return false;
    const Func *step = func_with_role(m, STEP);
    candidate->memory = largest_arena(m);
    candidate->flops = flops_run(m, step) + candidate->moving * (double)program_totals(m).micro;
    free_module(m);
    const Candidate *least = search->least;
    if (!least || candidate->memory < least->memory ||
        (candidate->memory == least->memory && is_policy(candidate) && !is_policy(least)))
        search->least = candidate;
    return candidate->memory <= search->budget;
}

/* --- The candidates ---------------------------------------------------------------------------------- */

static double cost_of(const Candidate *candidate) { return candidate->what.flops + candidate->moving; }

static int lower_cost_first(const void *a, const void *b)
{
    const Tradeoff *x = &((const Candidate *)a)->what, *y = &((const Candidate *)b)->what;
    if (cost_of(a) != cost_of(b))
        return cost_of(a) < cost_of(b) ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return is_policy(b) - is_policy(a);
}

/* What is moved hides behind the forward of the layers on its way out, and on its way back behind their backward, which
 * is twice as long, and what that recomputes.  Even then it takes some of the memory's time. */
static double flops_moving(const Search *search, const Tradeoff *what)
{
    const double moved = what->moved * search->price;
    const double out = moved - search->forward, back = moved - 2 * search->forward - what->flops;
    return HIDDEN * moved + (out > 0 ? out : 0) + (back > 0 ? back : 0);
}

static int add_front(Search *search, Programs programs, const Module *around, double price, Candidate *all)
{
    const Tradeoffs best = find_tradeoffs(&search->run->arena, programs, around, price, MOST_OF_POLICY);
    const int step = 1 + best.count / SAMPLES;
    search->forward = best.forward;
    for (int i = 0; i < best.count; i++)
        all[i] = (Candidate){ .policy = RECOMPUTE_AUTO,
                              .front = around->train.recompute,
                              .is_sample = i % step == 0 || i == best.count - 1,
                              .what = best.at[i],
                              .moving = flops_moving(search, &best.at[i]) };
    return best.count;
}

/* All that the policy saves is away. */
static Candidate policy_away(const Search *search, const Candidate *policy)
{
    Candidate away = *policy;
    away.puts_away = true;
    away.what.moved = away.what.bytes;
    away.what.bytes = 0;
    away.moving = flops_moving(search, &away.what);
    return away;
}

/* The policy itself, and the fronts for layers where it applies outside of them; there, full is selective. */
static int add_candidates(Search *search, Programs programs, Recompute policy, Candidate *all)
{
    Arena *arena = &search->run->arena;
    Module *m = compile_again(search->run, search->file, 0, (Setup){ .policy = policy, .last = "recompute" });
    int count = 0;
    if (!m)
        return 0;
    all[count++] = (Candidate){
        .policy = policy, .front = policy, .is_sample = true, .what = tradeoff_of_policy(arena, programs, m)
    };
    for (int i = 0; i < PRICES && policy != RECOMPUTE_FULL && (i == 0 || search->offloads); i++)
        count +=
            add_front(search, programs, m, search->offloads ? search->price * part_of_price[i] : STAYS, all + count);
    if (search->offloads)
        all[count++] = policy_away(search, &all[0]);
    free_module(m);
    return count;
}

/* `none` first, the others by FLOPs; returns their number. */
static int find_candidates(Search *search, Programs programs, Candidate *all)
{
    static const Recompute policies[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
    int count = 0;
    for (int i = 0; i < 3; i++)
        count += add_candidates(search, programs, policies[i], &all[count]);
    if (count > 1)
        qsort(all + 1, (size_t)count - 1, sizeof *all, lower_cost_first);
    return count;
}

/* The memory if all bytes that are saved less than by `none` came off the peak. */
static double bound_of(const Candidate *none, const Candidate *candidate)
{
    return (double)none->memory - (none->what.bytes - candidate->what.bytes);
}

static bool may_fit(const Search *search, const Candidate *all, int i)
{
    return is_policy(&all[i]) || bound_of(&all[0], &all[i]) <= (double)search->budget;
}

/* Is it no sample, with no sample of its front between it and the one at `at`? */
static bool is_near(const Candidate *all, int i, int at)
{
    bool near = !all[i].is_sample;
    for (int k = (i < at ? i : at) + 1; k < (i < at ? at : i); k++)
        near &= !all[k].is_sample || all[k].front != all[i].front;
    return near;
}

/* NULL: no sample fits. */
static const Candidate *first_that_fits(Search *search, Candidate *all, int count)
{
    int at = 0;
    while (at < count && !(all[at].is_sample && may_fit(search, all, at) && try_candidate(search, &all[at])))
        at++;
    for (int i = 0; i < at && at < count; i++)
        if (is_near(all, i, at) && may_fit(search, all, i) && try_candidate(search, &all[i]))
            return &all[i];
    return at < count ? &all[at] : NULL;
}

/* Tries it if it may take less memory than those that have been tried. */
static void try_for_less(Search *search, Candidate *all, int i)
{
    if (!all[i].memory && search->least && bound_of(&all[0], &all[i]) < (double)search->least->memory)
        try_candidate(search, &all[i]);
}

/* If no sample fits, for the message: the one with the least memory, of the samples and of those near it.  It may even
 * fit. */
static const Candidate *find_least(Search *search, Candidate *all, int count)
{
    for (int i = 1; i < count; i++)
        if (all[i].is_sample)
            try_for_less(search, all, i);
    const int at = search->least ? (int)(search->least - all) : 0;
    for (int i = 1; i < count; i++)
        if (is_near(all, i, at))
            try_for_less(search, all, i);
    return search->least && search->least->memory <= search->budget ? search->least : NULL;
}

/* A policy that fits and needs fewer FLOPs than the chosen one; else the chosen one. */
static const Candidate *cheapest_policy(Search *search, Candidate *all, int count, const Candidate *chosen)
{
    for (int i = 0; i < count; i++) {
        const bool other = is_policy(&all[i]) && &all[i] != chosen;
        if (other && !all[i].memory)
            try_candidate(search, &all[i]);
        if (other && all[i].memory && all[i].memory <= search->budget && all[i].flops < chosen->flops)
            chosen = &all[i];
    }
    return chosen;
}

/* --- The command ------------------------------------------------------------------------------------- */

/* A copy with names in the arena of the run, which outlives all modules. */
static const SavedValues *copied(Run *run, const SavedValues *saved)
{
    SavedValues *first = NULL;
    for (SavedValues **end = &first; saved; saved = saved->next, end = &(*end)->next) {
        *end = NEW(&run->arena, SavedValues);
        (*end)->func = arena_text(&run->arena, "%s", saved->func);
        for (int i = 0; i < saved->count; i++)
            add_saved(&run->arena, *end, arena_text(&run->arena, "%s", saved->value[i]), saved->away[i] ? "" : NULL);
    }
    return first;
}

void apply_saved_choice(Module *m, const Run *run)
{
    settle(m, (Setup){ .policy = run->policy, .saved = run->saved, .puts_away = run->puts_away });
}

/* Removes the values that `known` does not have. */
static void drop_unknown(SavedValues *saved, Module *known)
{
    Arena scratch = { 0 };
    const Func *f = find_func(known, intern_text(known, saved->func));
    const Labels labels =
        f ? label_values(&scratch, known, f) : (Labels){ { .arena = &scratch }, { .arena = &scratch } };
    int kept = 0;
    for (int i = 0; i < saved->count; i++)
        if (map_get(&labels.value, intern_text(known, saved->value[i])))
            saved->value[kept] = saved->value[i], saved->away[kept++] = saved->away[i];
    saved->count = kept;
    arena_free(&scratch);
}

void set_saved_of_small(Run *run, const Ast *file, int64_t shrink, Module *m)
{
    Module *known = compile_again(run, file, shrink, (Setup){ .policy = RECOMPUTE_NONE, .last = "autodiff" });
    apply_saved_choice(m, run);
    for (SavedValues *saved = m->saved; saved && known; saved = saved->next)
        drop_unknown(saved, known);
    if (known)
        free_module(known);
}

static const Ast *recompute_statement(const Ast *file)
{
    while (file && file->kind != A_PARALLEL)
        file = file->next;
    const Ast *ast = file ? file->body : NULL;
    while (ast && ast->kind != A_RECOMPUTE)
        ast = ast->next;
    return ast;
}

/* "--offload 'optimizer to disk', ": what fits if nothing more than this policy is saved. */
static const char *remedies_text(Search *search, Recompute policy)
{
    Run *run = search->run;
    const char *text = "";
    if (run->is_trial)
        return text;
    Options options = *run->options;
    options.recompute = Recompute_words[policy];
    const RemedyQuestion question = { .options = &options, .room = (double)search->budget, .is_of_arena = true };
    const Remedies some = find_remedies(run, question);
    for (int i = 0; i < some.count && some.at[i].fits; i++)
        text = arena_text(&run->arena, "%s%s, ", text, some.at[i].options);
    return some.together.fits ? arena_text(&run->arena, "%s, ", some.together.options) : text;
}

static void tell_least(Search *search)
{
    Run *run = search->run;
    const Candidate *least = search->least;
    const Recompute policy = is_policy(least) ? least->policy : RECOMPUTE_FULL;
    const char *with =
        is_policy(least) ? arena_text(&run->arena, "recompute %s", Recompute_words[policy]) : "other residuals";
    const char *help = arena_text(&run->arena, "%sauto(%" PRId64 ") or more, or more ranks",
                                  remedies_text(search, policy), least->memory);
    const char *what = arena_text(&run->arena, "no choice fits into %s bytes: a rank needs at least %s bytes, with %s",
                                  grouped(&run->arena, search->budget), grouped(&run->arena, least->memory), with);
    if (run->options->recompute) {
        report_error(run->diags.out, help, "--recompute %s: %s", run->options->recompute, what);
        run->diags.errors++;
    } else {
        error_at(&run->diags, (Where){ .at = recompute_statement(search->file)->name_loc, .help = help }, "%s", what);
    }
}

static bool choose_with(Search *search, Programs programs)
{
    Arena *arena = &search->run->arena;
    Candidate *all = NEW_ARRAY(arena, Candidate, 2 * PRICES * MOST_OF_POLICY + 6);
    const int count = find_candidates(search, programs, all);
    const Candidate *chosen = first_that_fits(search, all, count);
    chosen = chosen ? cheapest_policy(search, all, count, chosen) : find_least(search, all, count);
    if (chosen) {
        search->run->policy = chosen->policy;
        search->run->saved = copied(search->run, set_of(chosen));
    }
    return chosen || !search->least;
}

/* If an instance cannot be compiled, the model itself cannot, and the caller finds the errors. */
static bool choose_in(Search *search)
{
    static const char *const last[] = { "autodiff", "layout", "pipeline" };
    Module *until[3];
    bool good = true;
    search->run->policy = RECOMPUTE_AUTO;
    search->least = NULL;
    for (int i = 0; i < 3; i++)
        good &= (until[i] = compile_again(search->run, search->file, 0,
                                          (Setup){ .policy = RECOMPUTE_NONE, .last = last[i] })) != NULL;
    const bool chosen =
        !good || choose_with(search, (Programs){ until[0], until[1], kept_in(&search->run->arena, until[2]) });
    for (int i = 0; i < 3; i++)
        if (until[i])
            free_module(until[i]);
    return chosen;
}

/* Does it fit if messages of zero overlap with computation only where the file says so?  Where they do anyway, their
 * tensors take memory: those of a layer. */
static bool choose_without_overlap(Search *search, const Module *m)
{
    const bool overlaps = m->train.overlap_grads || m->train.overlap_params;
    if (!overlaps || search->run->no_overlap)
        return false;
    search->run->no_overlap = true;
    return choose_in(search);
}

bool choose_saved(Run *run, const Ast *file, const Module *m)
{
    const Rates rates = m->target->is_gpu ? of_gpu : of_processors;
    Search search = { .run = run,
                      .file = file,
                      .budget = m->train.recompute_budget,
                      .offloads = m->train.offload_activations != ON_DEVICE,
                      .price = rates.flops / rates.bytes };
    const bool chosen = choose_in(&search) || choose_without_overlap(&search, m);
    if (!chosen)
        tell_least(&search);
    return chosen;
}
