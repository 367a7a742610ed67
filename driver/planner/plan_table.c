/* plan_table.c -- the answer as a table, and its texts, which the page has too. */
#include "planner.h"

#include <inttypes.h>
#include <string.h>

static const char *zero_text(const Planner *p, const PlanLayout *l)
{
    return l->zero < 0 ? "-" : arena_text(p->arena, "%d%s", l->zero, l->overlaps ? " overlap" : "");
}

static const char *schedule_text(const Planner *p, const PlanLayout *l)
{
    if (!has_schedule(p, l))
        return "-";
    return l->chunks > 1 ? arena_text(p->arena, "%s %d", schedule_word[l->schedule], l->chunks)
                         : schedule_word[l->schedule];
}

static const char *attend_text(const Planner *p, const PlanLayout *l)
{
    for (int i = 0; i < p->naxes; i++)
        if (p->axis[i].attends && l->size[i] > 1)
            return attend_name[l->attend];
    return "-";
}

static const char *add_share(const Planner *p, const char *text, const char *name, double share)
{
    enum { LEAST = 200 }; /* 0.5 % */
    return share * LEAST < 1 ? text
                             : arena_text(p->arena, "%s%s%s %.0f %%", text, *text ? ", " : "", name, 100 * share);
}

/* "tp+cp 7 %, idle 1 %": what a step waits for and repeats. */
const char *limits_text(const Planner *p, const PlanResult *r)
{
    const char *text = "";
    for (int i = 0; i < r->naxes; i++)
        text = add_share(p, text, r->exposed[i].axes, r->exposed[i].exposed / r->seconds);
    text = add_share(p, text, "idle", r->idle / r->seconds);
    return add_share(p, text, "recomputed", r->recomputed / r->seconds);
}

/* --- Columns --------------------------------------------------------------------------------------------- */

const char *const plan_title[PLAN_COLUMNS] = {
    [COLUMN_LAYOUT] = "layout",   [COLUMN_MICRO_BATCH] = "micro-batch",
    [COLUMN_ZERO] = "zero",       [COLUMN_SCHEDULE] = "schedule",
    [COLUMN_ATTEND] = "attend",   [COLUMN_PIECES] = "pieces",
    [COLUMN_ABREAST] = "abreast", [COLUMN_RECOMPUTE] = "recompute",
    [COLUMN_SECONDS] = "s/step",  [COLUMN_MEMORY] = "GB",
    [COLUMN_MFU] = "MFU",
};

static bool is_to_the_right(PlanColumn column)
{
    return column == COLUMN_MICRO_BATCH || column == COLUMN_PIECES || column == COLUMN_ABREAST ||
           column >= COLUMN_SECONDS;
}

PlanCells plan_cells(const Planner *p, const PlanResult *r)
{
    PlanCells cells;
    const char **cell = cells.text;
    const PlanLayout *l = &r->layout;
    cell[COLUMN_LAYOUT] = layout_name(p->arena, p, l);
    cell[COLUMN_MICRO_BATCH] = arena_text(p->arena, "%" PRId64, l->microbatch);
    cell[COLUMN_ZERO] = zero_text(p, l);
    cell[COLUMN_SCHEDULE] = schedule_text(p, l);
    cell[COLUMN_ATTEND] = attend_text(p, l);
    cell[COLUMN_PIECES] = l->pieces > 1 ? arena_text(p->arena, "%d", l->pieces) : "-";
    cell[COLUMN_ABREAST] = l->abreast > 1 ? arena_text(p->arena, "%d", l->abreast) : "-";
    cell[COLUMN_RECOMPUTE] = Recompute_words[l->recompute];
    cell[COLUMN_SECONDS] = arena_text(p->arena, r->seconds < 0.1 ? "%.5f" : "%.3f", r->seconds);
    cell[COLUMN_MEMORY] = arena_text(p->arena, "%.2f", (double)(r->arena + r->beside) / 1e9);
    cell[COLUMN_MFU] = arena_text(p->arena, "%.1f %%", 100 * r->mfu);
    return cells;
}

PlanCells *plan_rows(const Planner *p, const Answer *answer, int *count)
{
    const bool larger = answer->too_large && (!answer->count || answer->too_large->seconds < answer->best[0].seconds);
    PlanCells *rows = NEW_ARRAY(p->arena, PlanCells, answer->count + 1);
    for (int i = 0; i < answer->count; i++)
        rows[i] = plan_cells(p, &answer->best[i]);
    if (larger)
        rows[answer->count] = plan_cells(p, answer->too_large);
    *count = answer->count + larger;
    return rows;
}

/* Columns in which no row says anything are left out. */
static void measure(const PlanCells *rows, int count, int width[PLAN_COLUMNS])
{
    for (int k = 0; k < PLAN_COLUMNS; k++) {
        bool says = false;
        width[k] = (int)strlen(plan_title[k]);
        for (int i = 0; i < count; i++) {
            const int length = (int)strlen(rows[i].text[k]);
            width[k] = length > width[k] ? length : width[k];
            says |= strcmp(rows[i].text[k], "-") != 0;
        }
        width[k] = says || count == 0 ? width[k] : 0;
    }
}

static void print_cells(const char *const cell[PLAN_COLUMNS], const int width[PLAN_COLUMNS], const char *mark,
                        const char *last)
{
    printf("%s ", mark);
    for (int k = 0; k < PLAN_COLUMNS; k++)
        if (width[k])
            printf("%*s  ", is_to_the_right((PlanColumn)k) ? width[k] : -width[k], cell[k]);
    puts(last);
}

/* --- The answer -------------------------------------------------------------------------------------------- */

static double machine_error(const Planner *p)
{
    return is_said(p->machine, LINE_error) ? machine_number(p->machine, LINE_error) : 0;
}

bool is_tie(const Planner *p, const Answer *answer, const PlanResult *r)
{
    return r != &answer->best[0] && r->seconds <= answer->best[0].seconds * (1 + machine_error(p));
}

static void print_rows(const Planner *p, const Answer *answer)
{
    int count, width[PLAN_COLUMNS];
    const PlanCells *rows = plan_rows(p, answer, &count);
    measure(rows, count, width);
    print_cells(plan_title, width, " ", "limited by");
    for (int i = 0; i < answer->count; i++)
        print_cells(rows[i].text, width, is_tie(p, answer, &answer->best[i]) ? "~" : " ",
                    limits_text(p, &answer->best[i]));
    if (count > answer->count)
        print_cells(rows[answer->count].text, width, " ", "does not fit");
}

/* --- What is said of the answer ----------------------------------------------------------------------------- */

const char *plan_question(const Planner *p)
{
    Arena *a = p->arena;
    return arena_text(a, "%s%s of %s (%s), %s each; a step of %s%s%s", p->is_elastic ? "at most " : "",
                      counted(a, p->ranks, "rank"), p->run->options->machine, p->machine->line[LINE_name].text,
                      bytes_text(a, p->memory), counted(a, p->sequences, "sequence"), p->offload ? "; offload " : "",
                      p->offload ? p->offload : "");
}

const char *plan_without(const Planner *p)
{
    Arena *a = p->arena;
    if (p->least_without == 0)
        return NULL;
    return p->tried_without > 0
               ? arena_text(a, "nothing was found that fits without 'offload': %s were compiled, others not looked at",
                            counted(a, (int64_t)p->tried_without, "layout"))
               : arena_text(a, "nothing fits without 'offload': each layout needs %s or more",
                            bytes_text(a, p->least_without));
}

static bool has_ties(const Planner *p, const Answer *answer)
{
    return answer->count > 1 && is_tie(p, answer, &answer->best[1]);
}

const char *plan_error(const Planner *p, const Answer *answer)
{
    const double error = machine_error(p);
    Arena *a = p->arena;
    return arena_text(a, "GB are exact, for --target %s; times are predictions by the machine file%s%s",
                      p->run->options->target,
                      error > 0 ? arena_text(a, ", which were up to %.0f %% off", 100 * error) : "",
                      has_ties(p, answer) ? ";\na layout with ~ is as fast as the first" : "");
}

const char *plan_proof(const Planner *p, const Answer *answer)
{
    if (p->mixes)
        return "all layouts were compiled, as the loss mixes the sequences of a batch: none that fits is faster; they "
               "have one\nmicro-batch, and so no pipeline";
    if (p->run->options->exhaustive)
        return arena_text(p->arena, "all layouts were compiled: none that fits is faster%s",
                          answer->overrun > 0 || answer->overrun_memory > 0 ? "; but a bound is wrong: see --json"
                                                                            : "");
    if (answer->overrun > 0)
        return arena_text(p->arena, "not proved: a layout was %.2f %% faster than its bound", 100 * answer->overrun);
    if (answer->gap > 0)
        return arena_text(p->arena,
                          "not proved: bounds are far from what layouts need here, so the search ended early; a layout "
                          "that was not\nlooked at may take up to %.1f %% less than the first",
                          100 * answer->gap);
    if (p->run->options->refine)
        return "proved by bounds, with whole messages and one micro-batch after the other (gap 0)";
    return arena_text(p->arena, "proved by bounds: no layout that fits is faster than the first (gap 0)%s",
                      answer->tally.open > 0 ? "; the search ended early: others may be better in their meshes"
                      : answer->count > 1 ? arena_text(p->arena, "; the others are the best of their meshes to %.1f %%",
                                                       100 * STRUCTURE_ERROR)
                                          : "");
}

const char *plan_refined(const Planner *p, const Answer *answer)
{
    return arena_text(
        p->arena, "of those that are listed, %s more %s compiled, with messages in pieces and micro-batches abreast",
        counted(p->arena, answer->refined, "layout"), answer->refined == 1 ? "was" : "were");
}

/* Lines. */
static const char *refusals_text(const Planner *p, const Answer *answer)
{
    Arena *a = p->arena;
    const char *text = "";
    for (const Refusal *r = answer->refusals; r; r = r->next) {
        const char *others =
            r->count > 1 ? arena_text(a, "%s, the first ", counted(a, (int64_t)r->count, "layout")) : "";
        text = arena_text(a, "%s    %s%s: %s\n", text, others, layout_name(a, p, &r->first), r->why);
    }
    return text;
}

const char *plan_space(const Planner *p, const Answer *answer)
{
    const Tally *t = &answer->tally;
    Arena *a = p->arena;
    return arena_text(a,
                      "%s %s of so many ranks%s; %s do not divide the model. The others have %s:\n"
                      "  %s do not fit, %s of them by a bound; %s cannot be compiled%s\n%s"
                      "  %s are slower than the best of their mesh or than all of these%s\n"
                      "  %s were compiled",
                      grouped(a, (int64_t)t->meshes), t->meshes == 1 ? "mesh" : "meshes",
                      p->is_elastic ? " or fewer" : "", grouped(a, (int64_t)t->indivisible),
                      counted(a, (int64_t)t->all, "layout"), grouped(a, (int64_t)t->too_large),
                      grouped(a, (int64_t)t->bounded), grouped(a, (int64_t)t->refused), answer->refusals ? ":" : ";",
                      refusals_text(p, answer), grouped(a, (int64_t)t->slower),
                      t->open > 0 ? arena_text(a, "; %s were not looked at", grouped(a, (int64_t)t->open)) : "",
                      grouped(a, (int64_t)t->compiled));
}

void print_plan(const Planner *p, const Answer *answer)
{
    if (plan_without(p))
        puts(plan_without(p));
    printf("%s on %s\n", shown_path(p->run), plan_question(p));
    print_rows(p, answer);
    puts(plan_error(p, answer));
    puts(plan_proof(p, answer));
    if (p->run->options->refine)
        puts(plan_refined(p, answer));
    puts(plan_space(p, answer));
    if (p->least_without > 0)
        puts("'mpc report' of a layout lists faster ways to offload");
    if (!p->run->options->write && strcmp(p->run->options->operand, "-") != 0)
        printf("next: the same with --write, which puts the first layout into %s; then\n      mpc compile %s -o OUT\n",
               shown_path(p->run), planned_model(p));
}
