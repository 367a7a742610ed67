/* plan_table.c -- the answer as a table. */
#include "planner.h"

#include <inttypes.h>
#include <string.h>

static const char *zero_text(const Planner *p, const PlanLayout *l)
{
    return l->zero < 0 ? "-" : arena_text(p->arena, "%d%s", l->zero, l->overlaps ? " overlap" : "");
}

static const char *schedule_text(const Planner *p, const PlanLayout *l)
{
    if (pipeline_ranks(p, l) == 1)
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

enum { COLUMNS = 9 };
typedef struct {
    const char *text[COLUMNS];
} Cells;

static const char *const titles[COLUMNS] = { "layout",    "micro-batch", "zero", "schedule", "attend",
                                             "recompute", "s/step",      "GB",   "MFU" };
static const bool is_to_the_right[COLUMNS] = { [1] = true, [6] = true, [7] = true, [8] = true };

static Cells cells_of(const Planner *p, const PlanResult *r)
{
    Cells cells;
    const char **cell = cells.text;
    const PlanLayout *l = &r->layout;
    cell[0] = layout_name(p->arena, p, l);
    cell[1] = arena_text(p->arena, "%" PRId64, l->microbatch);
    cell[2] = zero_text(p, l);
    cell[3] = schedule_text(p, l);
    cell[4] = attend_text(p, l);
    cell[5] = Recompute_words[l->recompute];
    cell[6] = arena_text(p->arena, r->seconds < 0.1 ? "%.5f" : "%.3f", r->seconds);
    cell[7] = arena_text(p->arena, "%.2f", (double)(r->arena + r->beside) / 1e9);
    cell[8] = arena_text(p->arena, "%.1f %%", 100 * r->mfu);
    return cells;
}

/* Columns in which no row says anything are left out. */
static void measure(const Cells *rows, int count, int width[COLUMNS])
{
    for (int k = 0; k < COLUMNS; k++) {
        bool says = false;
        width[k] = (int)strlen(titles[k]);
        for (int i = 0; i < count; i++) {
            const int length = (int)strlen(rows[i].text[k]);
            width[k] = length > width[k] ? length : width[k];
            says |= strcmp(rows[i].text[k], "-") != 0;
        }
        width[k] = says || count == 0 ? width[k] : 0;
    }
}

static void print_cells(const char *const cell[COLUMNS], const int width[COLUMNS], const char *mark, const char *last)
{
    printf("%s ", mark);
    for (int k = 0; k < COLUMNS; k++)
        if (width[k])
            printf("%*s  ", is_to_the_right[k] ? width[k] : -width[k], cell[k]);
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
    const bool larger = answer->too_large && answer->too_large->seconds < answer->best[0].seconds;
    const int count = answer->count + larger;
    Cells *rows = NEW_ARRAY(p->arena, Cells, count + 1);
    int width[COLUMNS];
    for (int i = 0; i < answer->count; i++)
        rows[i] = cells_of(p, &answer->best[i]);
    if (larger)
        rows[answer->count] = cells_of(p, answer->too_large);
    measure(rows, count, width);
    print_cells(titles, width, " ", "limited by");
    for (int i = 0; i < answer->count; i++)
        print_cells(rows[i].text, width, is_tie(p, answer, &answer->best[i]) ? "~" : " ",
                    limits_text(p, &answer->best[i]));
    if (larger)
        print_cells(rows[answer->count].text, width, " ", "does not fit");
}

static void print_space(const Planner *p, const Answer *answer)
{
    const Tally *t = &answer->tally;
    Arena *a = p->arena;
    printf("%s of %s; %s do not divide the model. The others have %s:\n",
           arena_text(a, "%s %s", grouped(a, (int64_t)t->meshes), t->meshes == 1 ? "mesh" : "meshes"),
           p->is_elastic ? "so many ranks or fewer" : "so many ranks", grouped(a, (int64_t)t->indivisible),
           counted(a, (int64_t)t->all, "layout"));
    printf(
        "  %s do not fit, %s of them by a bound; %s cannot be compiled; %s are slower than the best of their mesh or "
        "than all of these\n",
        grouped(a, (int64_t)t->too_large), grouped(a, (int64_t)t->bounded), grouped(a, (int64_t)t->refused),
        grouped(a, (int64_t)t->slower));
    printf("  %s were compiled\n", grouped(a, (int64_t)t->compiled));
}

static void print_proof(const Planner *p, const Answer *answer)
{
    if (p->run->options->exhaustive)
        puts("all layouts were compiled: none that fits is faster");
    else if (answer->overrun > 0)
        printf("not proved: a layout was %.2f %% faster than its bound\n", 100 * answer->overrun);
    else
        printf(
            "proved by bounds: no layout that fits is faster than the first (gap 0); the others are the best of their "
            "meshes to %.1f %%\n",
            100 * STRUCTURE_ERROR);
}

void print_plan(const Planner *p, const Answer *answer)
{
    const Options *o = p->run->options;
    const double error = machine_error(p);
    Arena *a = p->arena;
    printf("%s on %s%s of %s (%s), %s each; a step of %s\n", p->run->source.path, p->is_elastic ? "at most " : "",
           counted(a, p->ranks, "rank"), o->machine, p->machine->line[LINE_name].text, bytes_text(a, p->memory),
           counted(a, p->sequences, "sequence"));
    print_rows(p, answer);
    printf("GB are exact, for --target %s; times are those of the machine file%s\n", o->target,
           error > 0 ? arena_text(a, ", whose predictions were off by %.0f %%: a layout with ~ is as fast as the first",
                                  100 * error)
                     : "");
    print_proof(p, answer);
    print_space(p, answer);
}
