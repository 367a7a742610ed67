/* timeline_tiles.c -- the figures above the drawing in a page, and the tables below it. */
#include "timeline.h"

static void write_tile(FILE *out, const char *class, const char *name, const char *figure, const char *more)
{
    fprintf(out, "<div class=\"tile\"><span>%s</span><b%s>", name, class);
    write_escaped(figure, out);
    fprintf(out, "</b><span>");
    write_escaped(more, out);
    fprintf(out, "</span></div>\n");
}

/* --- The pipeline ---------------------------------------------------------------------------------- */

static const char *published_text(TimelineView *v)
{
    if (v->p->published_bubble < 0)
        return "share of the makespan that the busiest rank idles";
    return arena_text(&v->arena, "published formula: %.2f %%, if stages cost the same and messages nothing",
                      100 * v->p->published_bubble);
}

static const char *makespan_text(TimelineView *v)
{
    if (v->end <= v->t.makespan * (1 + 1e-9))
        return "from the first start to the last end";
    return arena_text(&v->arena, "of the slowest rank, from its first start; the last rank ends at %.4g %s",
                      in_units(v, v->end), v->unit_name);
}

static const char *capacity_text(TimelineView *v)
{
    const double capacity = v->p->capacity_bytes, peak = peak_of(v, v->fullest);
    const char *rank = arena_text(&v->arena, "on rank %d", v->fullest);
    if (capacity <= 0)
        return rank;
    if (peak > capacity)
        return arena_text(&v->arena, "%s: %s more than its %s", rank, bytes_text(&v->arena, peak - capacity),
                          bytes_text(&v->arena, capacity));
    return arena_text(&v->arena, "%s: %.1f %% of its %s", rank, 100 * peak / capacity, bytes_text(&v->arena, capacity));
}

static void write_pipeline_tiles(TimelineView *v, FILE *out)
{
    const double capacity = v->p->capacity_bytes, peak = peak_of(v, v->fullest);
    int most = 0;
    for (int rank = 0; rank < v->s->ranks; rank++)
        most = v->t.most_in_flight[rank] > v->t.most_in_flight[most] ? rank : most;
    write_tile(out, "", v->p->step ? "Makespan of the pipeline" : "Makespan",
               arena_text(&v->arena, "%.4g %s", v->t.makespan / v->unit, v->unit_name), makespan_text(v));
    write_tile(out, "", "Bubble", arena_text(&v->arena, "%.2f %%", 100 * v->t.bubble), published_text(v));
    write_tile(out, capacity > 0 && peak > capacity ? " class=\"over\"" : "", "Highest memory",
               bytes_text(&v->arena, peak), capacity_text(v));
    write_tile(
        out, "", "Most activations in flight", arena_text(&v->arena, "%d", v->t.most_in_flight[most]),
        arena_text(&v->arena, "on rank %d%s", most, v->s->chunks > 1 ? ", each of one micro-batch and one stage" : ""));
}

static void write_ranks_table(TimelineView *v, FILE *out)
{
    const double capacity = v->p->capacity_bytes;
    fprintf(out,
            "<div class=\"table\"><table>\n<tr><th>rank</th><th>idle</th><th>in flight</th><th>fixed</th>"
            "<th>peak</th>%s<th>stages</th></tr>\n",
            capacity > 0 ? "<th>of capacity</th>" : "");
    for (int rank = 0; rank < v->s->ranks; rank++) {
        const double peak = peak_of(v, rank);
        fprintf(out, "<tr><td>%d</td><td>%.1f %%</td><td>%d</td><td>%s</td><td>%s</td>", rank, 100 * v->idle[rank],
                v->t.most_in_flight[rank], bytes_text(&v->arena, v->p->fixed_bytes[rank]), bytes_text(&v->arena, peak));
        if (capacity > 0)
            fprintf(out, "<td%s>%.1f %%</td>", peak > capacity ? " class=\"over\"" : "", 100 * peak / capacity);
        fprintf(out, "<td>");
        write_escaped(stages_on_rank(v, rank), out);
        fprintf(out, "</td></tr>\n");
    }
    fprintf(out, "</table></div>\n");
}

/* --- The step on a machine -------------------------------------------------------------------------- */

static const char *of_rank(TimelineView *v)
{
    return v->s ? arena_text(&v->arena, "of rank %d, which ends last", v->p->step->last) : "of each rank";
}

static void write_step_tiles(TimelineView *v, FILE *out)
{
    const TimelineStep *step = v->p->step;
    double sent = 0;
    for (int i = 0; i < step->nmessages; i++)
        sent += step->messages[i].sent;
    write_tile(out, "", "Step", duration_text(v, step->seconds), step->rate);
    write_tile(out, "", "Waits for messages", arena_text(&v->arena, "%.1f %%", 100 * step->waited / step->seconds),
               arena_text(&v->arena, "%s %s; they take %s", duration_text(v, step->waited), of_rank(v),
                          duration_text(v, sent)));
}

static void write_messages_table(TimelineView *v, FILE *out)
{
    const TimelineStep *step = v->p->step;
    fprintf(out, "<div class=\"table\"><table class=\"lanes\">\n<tr><th>messages %s, over</th><th>number</th>",
            of_rank(v));
    fprintf(out, "<th>take</th><th>not hidden</th></tr>\n");
    for (int i = 0; i < step->nmessages; i++) {
        fprintf(out, "<tr><td>");
        write_escaped(step->messages[i].axes, out);
        fprintf(out, "</td><td>%.0f</td><td>%s</td><td>%s</td></tr>\n", step->messages[i].count,
                duration_text(v, step->messages[i].sent), duration_text(v, step->messages[i].waited));
    }
    fprintf(out, "</table></div>\n");
}

/* --- Both --------------------------------------------------------------------------------------------- */

void write_timeline_tiles(TimelineView *v, FILE *out)
{
    fprintf(out, "<div class=\"tiles\">\n");
    if (v->p->step)
        write_step_tiles(v, out);
    if (v->s)
        write_pipeline_tiles(v, out);
    fprintf(out, "</div>\n");
}

void write_timeline_tables(TimelineView *v, FILE *out)
{
    if (v->p->step && v->p->step->nmessages)
        write_messages_table(v, out);
    if (v->s)
        write_ranks_table(v, out);
}
