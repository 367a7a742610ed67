/* table.c -- a pipeline schedule as a table of text: a line per rank, a cell per action. */
#include "schedule.h"

#include <limits.h>
#include <string.h>

const char action_letter[] = { [FORWARD_ACTION] = 'F', [BACKWARD_ACTION] = 'B', [WEIGHT_ACTION] = 'W', '\0' };

const char *action_text(Arena *arena, Action a)
{
    return arena_text(arena, "%c%d.%d", action_letter[a.kind], a.stage, a.micro);
}

void write_schedule(const PipelineSchedule *s, FILE *out)
{
    fprintf(out, "# %s: ranks %d, chunks %d, micro-batches %d\n", s->name, s->ranks, s->chunks, s->micros);
    for (int rank = 0; rank < s->ranks; rank++)
        for (int i = 0; i < s->nactions[rank]; i++) {
            const Action a = s->action[rank][i];
            fprintf(out, "%c%d.%d%c", action_letter[a.kind], a.stage, a.micro, i + 1 < s->nactions[rank] ? ',' : '\n');
        }
}

/* --- Text to cells ---------------------------------------------------------------------------------- */

typedef struct {
    Arena *arena;
    Diags *diags;
    PipelineSchedule *s;
    Loc *line, **loc; /* by rank; by rank and action */
    bool *seen;       /* by kind, stage, micro-batch */
} Table;

static void wrong(const Table *t, Loc at, const char *help, const char *what)
{
    error_at(t->diags, (Where){ .at = at, .help = help }, "%s", what);
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static Loc trim(const char *text, Loc loc)
{
    while (loc.begin < loc.end && is_blank(text[loc.begin]))
        loc.begin++;
    while (loc.begin < loc.end && is_blank(text[loc.end - 1]))
        loc.end--;
    return loc;
}

/* The line that begins at *at, without its comment; *at goes to the next. */
static Loc next_line(const Source *source, int *at)
{
    Loc line = { *at, *at };
    while (*at < source->length && source->text[*at] != '\n')
        ++*at;
    while (line.end < *at && source->text[line.end] != '#')
        line.end++;
    *at += *at < source->length;
    return trim(source->text, line);
}

/* Reads digits; a number too large for an int becomes INT_MAX.  false: there are none. */
static bool read_count(const char *text, int *at, int end, int *count)
{
    const int begin = *at;
    for (*count = 0; *at < end && text[*at] >= '0' && text[*at] <= '9'; ++*at) {
        int digit = text[*at] - '0';
        *count = *count > (INT_MAX - digit) / 10 ? INT_MAX : *count * 10 + digit;
    }
    return *at > begin;
}

static bool read_cell(const Table *t, Loc loc, Action *a)
{
    const char *text = t->diags->source->text, *kind = strchr(action_letter, text[loc.begin]);
    int at = loc.begin + 1;
    bool good = kind && *kind && read_count(text, &at, loc.end, &a->stage) && at < loc.end && text[at] == '.';
    at++;
    if (!good || !read_count(text, &at, loc.end, &a->micro) || at != loc.end) {
        wrong(t, loc, "a cell is F, B or W, then the stage, a dot and the micro-batch: F0.3", "this is no action");
        return false;
    }
    a->kind = (ActionKind)(kind - action_letter);
    return true;
}

static bool is_in_range(const Table *t, Loc loc, Action a)
{
    const PipelineSchedule *s = t->s;
    if (a.stage >= stage_count(s))
        wrong(t, loc,
              arena_text(t->arena, "%d rank%s with %d chunk%s each have the stages 0 to %d", s->ranks,
                         s->ranks == 1 ? "" : "s", s->chunks, s->chunks == 1 ? "" : "s", stage_count(s) - 1),
              arena_text(t->arena, "there is no stage %d", a.stage));
    else if (a.micro >= s->micros)
        wrong(t, loc, arena_text(t->arena, "micro-batches are numbered from 0 to %d", s->micros - 1),
              arena_text(t->arena, "there is no micro-batch %d", a.micro));
    return a.stage < stage_count(s) && a.micro < s->micros;
}

static void read_line(Table *t, int rank, Loc line)
{
    const char *text = t->diags->source->text;
    PipelineSchedule *s = t->s;
    int cells = 1;
    for (int i = line.begin; i < line.end; i++)
        cells += text[i] == ',';
    s->action[rank] = NEW_ARRAY(t->arena, Action, cells);
    t->loc[rank] = NEW_ARRAY(t->arena, Loc, cells);
    t->line[rank] = line;
    for (int begin = line.begin, end; begin <= line.end; begin = end + 1) {
        for (end = begin; end < line.end && text[end] != ',';)
            end++;
        Loc loc = trim(text, (Loc){ begin, end });
        Action a;
        if (loc.begin == loc.end || !read_cell(t, loc, &a) || !is_in_range(t, loc, a))
            continue;
        s->splits_backward |= a.kind == WEIGHT_ACTION;
        t->loc[rank][s->nactions[rank]] = loc;
        s->action[rank][s->nactions[rank]++] = a;
    }
}

static void read_lines(Table *t)
{
    const Source *source = t->diags->source;
    const int ranks = t->s->ranks;
    int rank = 0;
    Loc last = { 0 };
    for (int at = 0; at < source->length;) {
        Loc line = next_line(source, &at);
        if (line.begin == line.end)
            continue;
        if (rank < ranks)
            read_line(t, rank, line);
        if (rank++ <= ranks)
            last = line; /* of those that there should be, or the first one more */
    }
    if (rank != ranks)
        wrong(t, last, "the table has a line for each rank",
              arena_text(t->arena, "%d line%s of actions for %d rank%s", rank, rank == 1 ? "" : "s", ranks,
                         ranks == 1 ? "" : "s"));
}

/* --- Is it a schedule? ------------------------------------------------------------------------------ */

static int count_fitting(const PipelineSchedule *s, Placement placement)
{
    PipelineSchedule as = *s;
    int fitting = 0;
    as.placement = placement;
    for (int rank = 0; rank < s->ranks; rank++)
        for (int i = 0; i < s->nactions[rank]; i++)
            fitting += rank_of_stage(&as, s->action[rank][i].stage) == rank;
    return fitting;
}

/* Two chunks may lie either way. */
static Placement placement_of(const PipelineSchedule *s)
{
    if (s->chunks == 2 && count_fitting(s, VEE) > count_fitting(s, CYCLIC))
        return VEE;
    return s->chunks == 1 ? LINEAR : CYCLIC;
}

static bool *seen(const Table *t, Action a)
{
    return &t->seen[((size_t)a.kind * (size_t)stage_count(t->s) + (size_t)a.stage) * (size_t)t->s->micros +
                    (size_t)a.micro];
}

static void check_cells(const Table *t, int rank)
{
    const PipelineSchedule *s = t->s;
    for (int i = 0; i < s->nactions[rank]; i++) {
        const Action a = s->action[rank][i];
        const int home = rank_of_stage(s, a.stage);
        const char *text = action_text(t->arena, a);
        if (home != rank)
            wrong(t, t->loc[rank][i], arena_text(t->arena, "move it to the line of rank %d", home),
                  arena_text(t->arena, "%s is in the line of rank %d, but stage %d is on rank %d", text, rank, a.stage,
                             home));
        else if (*seen(t, a))
            wrong(t, t->loc[rank][i], "each action is done once: remove one of the cells",
                  arena_text(t->arena, "rank %d does %s a second time", rank, text));
        *seen(t, a) = true;
    }
}

/* Sums over micro-batches are added in their order, and slots are taken in it. */
static void check_micros(const Table *t, int rank)
{
    const PipelineSchedule *s = t->s;
    for (int i = 0; i < s->nactions[rank]; i++) {
        const Action a = s->action[rank][i];
        for (int j = i + 1; j < s->nactions[rank]; j++) {
            const Action later = s->action[rank][j];
            if (later.kind != a.kind || later.stage != a.stage || later.micro > a.micro)
                continue;
            wrong(t, t->loc[rank][j], "micro-batches pass a stage in order",
                  arena_text(t->arena, "rank %d does %s after %s", rank, action_text(t->arena, later),
                             action_text(t->arena, a)));
            return;
        }
    }
}

/* All that is missing of a rank is one error. */
static void check_missing(const Table *t, int rank)
{
    const PipelineSchedule *s = t->s;
    const char *first = NULL;
    int missing = 0;
    for (ActionKind kind = 0; kind < (s->splits_backward ? WEIGHT_ACTION + 1 : WEIGHT_ACTION); kind++)
        for (int stage = 0; stage < stage_count(s); stage++)
            for (int micro = 0; rank_of_stage(s, stage) == rank && micro < s->micros; micro++) {
                const Action a = { kind, stage, micro };
                if (!*seen(t, a) && !missing++)
                    first = action_text(t->arena, a);
            }
    if (missing)
        wrong(t, t->line[rank],
              s->splits_backward ? "each micro-batch needs F, B and W on each stage; W for all, or for none"
                                 : "each micro-batch needs F and B on each stage",
              arena_text(t->arena, "rank %d lacks %s%s", rank, first,
                         missing > 1 ? arena_text(t->arena, ", and %d more", missing - 1) : ""));
}

static void check_order(const Table *t)
{
    Timeline timeline;
    int rank;
    if (simulate_schedule(t->arena, t->s, NULL, &timeline))
        return;
    const char *circle = circle_text(t->arena, t->s, &timeline, &rank);
    wrong(t, t->loc[rank][timeline.done[rank]], "let one of these ranks do first what the other waits for",
          arena_text(t->arena, "ranks wait for each other forever: %s", circle));
}

/* Its cells, in range, and the placement of its stages. */
static Table read_cells(Arena *arena, Diags *diags, int ranks, int chunks, int micros)
{
    PipelineSchedule *s = NEW(arena, PipelineSchedule);
    *s = (PipelineSchedule){ .name = "table", .ranks = ranks, .chunks = chunks, .micros = micros };
    s->nactions = NEW_ARRAY(arena, int, ranks);
    s->action = NEW_ARRAY(arena, Action *, ranks);
    Table t = { .arena = arena,
                .diags = diags,
                .s = s,
                .line = NEW_ARRAY(arena, Loc, ranks),
                .loc = NEW_ARRAY(arena, Loc *, ranks) };
    read_lines(&t);
    s->placement = placement_of(s);
    return t;
}

Placement table_placement(Arena *arena, Diags *diags, int ranks, int chunks)
{
    return read_cells(arena, diags, ranks, chunks, INT_MAX).s->placement;
}

PipelineSchedule *read_schedule(Arena *arena, Diags *diags, int ranks, int chunks, int micros)
{
    const char *why, *help;
    if (!check_counts(arena, ranks, chunks, micros, &why, &help)) {
        error_at(diags, (Where){ .help = help }, "%s", why);
        return NULL;
    }
    const int errors = diags->errors;
    Table t = read_cells(arena, diags, ranks, chunks, micros);
    PipelineSchedule *s = t.s;
    if (diags->errors > errors)
        return NULL;
    t.seen = NEW_ARRAY(arena, bool, N_ACTION_KINDS *stage_count(s) * micros);
    for (int rank = 0; rank < ranks; rank++)
        check_cells(&t, rank);
    for (int rank = 0; diags->errors == errors && rank < ranks; rank++)
        check_missing(&t, rank);
    for (int rank = 0; diags->errors == errors && rank < ranks; rank++)
        check_micros(&t, rank);
    if (diags->errors == errors)
        check_order(&t);
    return diags->errors > errors ? NULL : s;
}
