/* timeline_text.c -- the picture of a schedule as text: a row for each rank, a scale of time, a table. */
#include "timeline.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

enum { LEAST_COLUMNS = 20, LONGEST_LABEL = 16 };

typedef struct {
    TimelineView v;
    FILE *out;
    int margin;        /* characters before the rows */
    int columns;       /* of the rows */
    double per_second; /* columns */
    bool labelled;
} TextPicture;

/* Of the rank's first chunk in upper case, of its others in lower case. */
static char letter(const TextPicture *text, Action a)
{
    const char c = action_letter[a.kind];
    return chunk_of(&text->v, a.stage) ? (char)tolower(c) : c;
}

/* --- The scale ------------------------------------------------------------------------------------- */

static int column(const TextPicture *text, double at) { return (int)lround(at * text->per_second); }

/* Is each action as wide as its label? */
static bool labels_fit(const TextPicture *text)
{
    const PipelineSchedule *s = text->v.s;
    for (int rank = 0; rank < s->ranks; rank++)
        for (int i = 0; i < s->nactions[rank]; i++)
            if (column(text, text->v.t.end[rank][i]) - column(text, text->v.t.start[rank][i]) <
                snprintf(NULL, 0, "F%d", s->action[rank][i].micro))
                return false;
    return true;
}

/* A whole number of columns for the shortest action, so that equal actions are equally wide; where there is no room for
 * one, a fraction. */
static void choose_scale(TextPicture *text, int width)
{
    const TimelineView *v = &text->v;
    text->margin = snprintf(NULL, 0, "  rank %d  ", v->s->ranks - 1);
    text->columns = width - text->margin > LEAST_COLUMNS ? width - text->margin : LEAST_COLUMNS;
    text->per_second = v->end > 0 ? text->columns / v->end : 0;
    const double whole = floor(text->per_second * v->shortest + 1e-9);
    if (whole >= 1)
        text->per_second = whole / v->shortest;
    text->labelled = labels_fit(text);
    text->columns = column(text, v->end);
}

/* --- The rows -------------------------------------------------------------------------------------- */

static void fill_labels(const TextPicture *text, int rank, char *row)
{
    const PipelineSchedule *s = text->v.s;
    for (int i = 0; i < s->nactions[rank]; i++) {
        const int begin = column(text, text->v.t.start[rank][i]), end = column(text, text->v.t.end[rank][i]);
        char label[LONGEST_LABEL];
        int length = snprintf(label, sizeof label, "%c%d", letter(text, s->action[rank][i]), s->action[rank][i].micro);
        memset(row + begin, '-', (size_t)(end - begin));
        row[end - 1] = ' ';
        memcpy(row + begin, label, (size_t)length);
    }
}

typedef struct {
    double share[128], owed[128]; /* by letter: of this column, and of all so far that is not yet shown */
} Shares;

/* Each letter of this column gets its due: that to which most is owed is shown.  So letters are as many as their time
 * is long, over several columns. */
static char next_letter(Shares *shares)
{
    char shown = '.';
    for (int c = 0; c < 128; c++) {
        shares->owed[c] = shares->share[c] > 0 ? shares->owed[c] + shares->share[c] : 0;
        if (shares->owed[c] > shares->owed[(int)shown] + 1e-9)
            shown = (char)c;
    }
    shares->owed[(int)shown] -= 1;
    memset(shares->share, 0, sizeof shares->share);
    return shown;
}

static void fill_letters(const TextPicture *text, int rank, char *row)
{
    const TimelineView *v = &text->v;
    Shares shares = { 0 };
    int i = 0;
    for (int c = 0; c < text->columns; c++) {
        double idle = 1;
        for (; i < v->s->nactions[rank] && v->t.start[rank][i] * text->per_second < c + 1; i++) {
            double begin = fmax(v->t.start[rank][i] * text->per_second, c),
                   end = fmin(v->t.end[rank][i] * text->per_second, c + 1);
            shares.share[(int)letter(text, v->s->action[rank][i])] += end - begin;
            idle -= end - begin;
            if (v->t.end[rank][i] * text->per_second > c + 1)
                break;
        }
        shares.share['.'] = idle > 1e-9 ? idle : 0;
        row[c] = next_letter(&shares);
    }
}

/* Where the reductions of a stage's gradients start: in the last column of its last action, which has no label. */
static void fill_reductions(const TextPicture *text, int rank, char *row)
{
    const PipelineSchedule *s = text->v.s;
    for (int i = 0; i < s->nactions[rank] && s->reduces; i++) {
        const int end = column(text, text->v.t.end[rank][i]);
        if (ends_stage(s, rank, i))
            row[end ? end - 1 : 0] = chunk_of(&text->v, s->action[rank][i].stage) ? 'r' : 'R';
    }
}

static void print_row(TextPicture *text, int rank)
{
    char *row = NEW_ARRAY(&text->v.arena, char, text->columns + 1);
    memset(row, '.', (size_t)text->columns);
    (text->labelled ? fill_labels : fill_letters)(text, rank, row);
    fill_reductions(text, rank, row);
    int length = text->columns;
    while (length && row[length - 1] == ' ')
        length--;
    fprintf(text->out, "%-*s%.*s\n", text->margin, arena_text(&text->v.arena, "  rank %d", rank), length, row);
}

static void print_scale(const TextPicture *text)
{
    enum { ROOM = 10 }; /* columns of a number at least */
    const TimelineView *v = &text->v;
    const double step = tick_step(v->end / v->unit, text->columns / ROOM), last = v->end / v->unit + step * 1e-9;
    int at = 0;
    fprintf(text->out, "%*s", text->margin, "");
    for (int tick = 0; tick * step <= last; tick++)
        at += fprintf(text->out, "%*s|", column(text, tick * step * v->unit) - at, "");
    fprintf(text->out, "\n%*s", text->margin, "");
    at = 0;
    for (int tick = 0; tick * step <= last; tick++)
        at += fprintf(text->out, "%*s%.4g", column(text, tick * step * v->unit) - at, "", tick * step);
    fprintf(text->out, " %s\n", v->unit_name);
}

static void print_legend(const TextPicture *text)
{
    const PipelineSchedule *s = text->v.s;
    const char *number = text->labelled ? " of the micro-batch with this number" : "";
    fprintf(text->out, "  F forward, B backward%s%s; . idle\n", s->splits_backward ? ", W weight gradients" : "",
            number);
    if (s->reduces)
        fprintf(text->out, "  R: from there on, the gradients of the stage are reduced\n");
    if (s->chunks > 1)
        fprintf(text->out, "  upper case: the rank's first stage; lower case: its %s\n",
                s->chunks == 2 ? "second" : "others");
    if (!text->labelled && text->columns > 0)
        fprintf(text->out, "  a column is %.3g %s; letters are in proportion to their time\n",
                text->v.end / text->columns / text->v.unit, text->v.unit_name);
}

/* --- The figures ----------------------------------------------------------------------------------- */

static void print_bubble(const TextPicture *text)
{
    const TimelineView *v = &text->v;
    fprintf(text->out, "  makespan %.4g %s", v->t.makespan / v->unit, v->unit_name);
    if (v->end > v->t.makespan * (1 + 1e-9))
        fprintf(text->out, " of the slowest rank (the last one ends at %.4g %s)", v->end / v->unit, v->unit_name);
    fprintf(text->out, ", bubble %.2f %%\n", 100 * v->t.bubble);
    if (v->p->published_bubble >= 0)
        fprintf(text->out, "  published formula: bubble %.2f %%, if stages cost the same and messages nothing\n",
                100 * v->p->published_bubble);
}

static void print_table(TextPicture *text)
{
    TimelineView *v = &text->v;
    const double capacity = v->p->capacity_bytes;
    fprintf(text->out, "%*s%6s  %9s  %12s  %12s%s\n", text->margin, "", "idle", "in flight", "fixed", "peak",
            capacity > 0 ? arena_text(&v->arena, "  of %s", bytes_text(&v->arena, capacity)) : "");
    for (int rank = 0; rank < v->s->ranks; rank++) {
        const double peak = peak_of(v, rank);
        fprintf(text->out, "%-*s%4.1f %%  %9d  %12s  %12s", text->margin, arena_text(&v->arena, "  rank %d", rank),
                100 * v->idle[rank], v->t.most_in_flight[rank], bytes_text(&v->arena, v->p->fixed_bytes[rank]),
                bytes_text(&v->arena, peak));
        if (capacity > 0)
            fprintf(text->out, "  %*.1f %%", (int)strlen(bytes_text(&v->arena, capacity)) + 1, 100 * peak / capacity);
        if (capacity > 0 && peak > capacity)
            fprintf(text->out, "  %s too much", bytes_text(&v->arena, peak - capacity));
        fprintf(text->out, "  %s\n", stages_on_rank(v, rank));
    }
}

void write_timeline_text(const TimelinePicture *p, int width, FILE *out)
{
    TextPicture text = { .v = view_timeline(p), .out = out };
    choose_scale(&text, width);
    fprintf(out, "%s: %s\n", p->title, counts_text(&text.v));
    for (int rank = 0; rank < p->schedule->ranks; rank++)
        print_row(&text, rank);
    print_scale(&text);
    print_legend(&text);
    print_bubble(&text);
    print_table(&text);
    arena_free(&text.v.arena);
}
