/* timeline_page.c -- the page around the drawing of a schedule: title, names of ranks, legend. */
#include "timeline.h"

typedef struct {
    TimelineView v;
    FILE *out;
} Page;

static void put(const Page *page, const char *text) { write_escaped(text, page->out); }

/* Printed pages are as wide as A3 and, if more is needed for all of the drawing, higher. */
static void write_print_size(const Page *page)
{
    enum { WIDTH = 420, HEIGHT = 297, MARGIN = 10, BESIDE = 330 /* pixels of title, figures and legend */ };
    const double pixels_of_mm = 96 / 25.4, needed = (lay_out_timeline(&page->v).height + BESIDE) / pixels_of_mm;
    fprintf(page->out, "@page{size:%dmm %.0fmm;margin:%dmm}", WIDTH,
            needed > HEIGHT - 2 * MARGIN ? needed + 2 * MARGIN : HEIGHT, MARGIN);
}

static void write_head(Page *page)
{
    fprintf(page->out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n");
    fprintf(page->out, "<meta name=\"viewport\" content=\"width=device-width\"/>\n<title>");
    put(page, page->v.p->title);
    fprintf(page->out, "</title>\n<style>\n");
    for (int i = 0; timeline_style[i]; i++)
        fputs(timeline_style[i], page->out);
    write_hues(&page->v, page->out);
    write_print_size(page);
    fprintf(page->out, "\n</style>\n</head>\n<body>\n<h1>");
    put(page, page->v.p->title);
    fprintf(page->out, "</h1>\n<p>");
    put(page, counts_text(&page->v));
    fprintf(page->out, "</p>\n");
}

/* --- The drawing, and what lies beside it ---------------------------------------------------------- */

/* No script: the style sheet widens the drawing by the choice that is checked. */
static void write_zooms(Page *page)
{
    const int finest = finest_zoom(&page->v);
    if (finest == 1)
        return;
    fprintf(page->out, "<span class=\"zooms\">zoom</span>\n");
    for (int zoom = 1; zoom <= finest; zoom *= 2)
        fprintf(
            page->out,
            "<input type=\"radio\" class=\"zoom\" name=\"zoom\" id=\"zoom%d\"%s/><label for=\"zoom%d\">%s</label>\n",
            zoom, zoom == 1 ? " checked=\"checked\"" : "", zoom,
            zoom == 1 ? "all" : arena_text(&page->v.arena, "%d&#215;", zoom));
}

/* What all names begin with: the box at the height of what is named. */
static void open_name(Page *page, double at, double height, int rank, const char *title)
{
    fprintf(page->out, "<div style=\"top:%.6gpx;height:%.6gpx\" title=\"", at, height);
    put(page, title);
    fprintf(page->out, "\"><b>%s</b>", row_name(&page->v, rank));
}

static void write_line(const Page *page, const char *class, const char *text)
{
    fprintf(page->out, "<span%s>", class);
    put(page, text);
    fprintf(page->out, "</span>");
}

static const char *stage_numbers(Page *page, int rank)
{
    const PipelineSchedule *s = page->v.s;
    const char *text = "";
    for (int stage = 0; stage < stage_count(s); stage++)
        if (rank_of_stage(s, stage) == rank)
            text = arena_text(&page->v.arena, "%s%s%d", text, *text ? ", " : "stages ", stage);
    return text;
}

/* A line for each stage, where so many fit; three are higher than the row, and may not come down to the lanes. */
static void write_stages(Page *page, const TimelineLayout *l, int rank)
{
    enum { RAISED = 4 };
    const PipelineSchedule *s = page->v.s;
    const bool fits = s->chunks <= (l->row < LOW_ROW ? 1 : 2);
    const double raised = page->v.p->step && fits && s->chunks > 1 ? RAISED : 0;
    open_name(page, row_at(l, rank) - raised, l->row, rank, stages_on_rank(&page->v, rank));
    for (int stage = 0; fits && stage < stage_count(s); stage++)
        if (rank_of_stage(s, stage) == rank)
            write_line(page, "", stage_name(&page->v, stage));
    if (!fits)
        write_line(page, "", stage_numbers(page, rank));
    fprintf(page->out, "</div>\n");
}

static void write_peak(Page *page, const TimelineLayout *l, int rank)
{
    TimelineView *v = &page->v;
    const double capacity = v->p->capacity_bytes, peak = peak_of(v, rank);
    const char *text = arena_text(&v->arena, "peak %s", bytes_text(&v->arena, peak));
    open_name(page, l->strips_at + rank * (l->strip + l->gap), l->strip, rank, text);
    write_line(page, capacity > 0 && peak > capacity ? " class=\"over\"" : "", text);
    fprintf(page->out, "</div>\n");
}

/* Beside each lane what its messages go over; where that has no room, in the legend. */
static void write_lane_names(Page *page, const TimelineLayout *l, int rank)
{
    const TimelineStep *step = page->v.p->step;
    for (int lane = 0; step && l->lane >= LOW_LANE && lane < step->nlanes; lane++) {
        fprintf(page->out, "<div class=\"lane\" style=\"top:%.6gpx;height:%.6gpx\">", lane_at(l, rank, lane), l->lane);
        write_line(page, "", step->lane[lane]);
        fprintf(page->out, "</div>\n");
    }
}

static void write_rank(Page *page, const TimelineLayout *l, int rank)
{
    if (page->v.s) {
        write_stages(page, l, rank);
    } else {
        open_name(page, row_at(l, rank), l->row, rank, "");
        fprintf(page->out, "<span>computes</span></div>\n");
    }
    write_lane_names(page, l, rank);
}

static void write_names(Page *page)
{
    enum { HEAD = 34 };
    TimelineView *v = &page->v;
    const TimelineLayout l = lay_out_timeline(v);
    fprintf(page->out, "<div class=\"names%s\">\n", l.row < LOW_ROW ? " low" : "");
    fprintf(page->out, "<div class=\"head\" style=\"top:0;height:%.6gpx\"><span>time in %s</span></div>\n", l.rows_at,
            v->unit_name);
    for (int rank = 0; rank < row_count(v); rank++)
        write_rank(page, &l, rank);
    if (v->s)
        fprintf(page->out, "<div class=\"head\" style=\"top:%.6gpx;height:%dpx\"><span>memory, 0 to %s</span></div>\n",
                l.strips_at - HEAD, HEAD, bytes_text(&v->arena, memory_scale(v)));
    for (int rank = 0; v->s && rank < v->s->ranks; rank++)
        write_peak(page, &l, rank);
    fprintf(page->out, "</div>\n");
}

/* --- Legend ---------------------------------------------------------------------------------------- */

static void write_swatch(const Page *page, const char *drawing, const char *meaning)
{
    fprintf(page->out, "<span><svg width=\"26\" height=\"16\">%s</svg>%s</span>\n", drawing, meaning);
}

/* The hues of all micro-batches, in order. */
static void write_hue_swatches(const Page *page)
{
    enum { WIDTH = 128 };
    const int micros = page->v.s->micros;
    fprintf(page->out, "<span>micro-batch 0 <svg width=\"%d\" height=\"16\">", WIDTH);
    for (int micro = 0; micro < micros; micro++)
        fprintf(page->out, "<g class=\"B m%d\"><rect x=\"%.5g\" width=\"%.5g\" height=\"16\"/></g>", micro,
                (double)WIDTH * micro / micros, (double)WIDTH / micros);
    fprintf(page->out, "</svg> %d</span>\n", micros - 1);
}

static void write_kind(Page *page, char letter, const char *meaning)
{
    const char *hatch = letter == 'W' ? "<rect class=\"hatch\" width=\"26\" height=\"16\"/>" : "";
    write_swatch(page,
                 arena_text(&page->v.arena,
                            "<g class=\"a %c m0\"><rect width=\"26\" height=\"16\"/>%s"
                            "<text x=\"13\" y=\"12\">%c</text></g>",
                            letter, hatch, letter),
                 meaning);
}

static void write_actions_legend(Page *page)
{
    const PipelineSchedule *s = page->v.s;
    write_kind(page, 'F', "forward");
    write_kind(page, 'B', s->splits_backward ? "backward, to activations" : "backward");
    if (s->splits_backward)
        write_kind(page, 'W', "backward, to weights");
    write_swatch(page, "<rect class=\"idle\" width=\"26\" height=\"16\"/>", "idle");
    if (s->reduces)
        write_swatch(page, "<svg class=\"reduction\"><path d=\"M13 5L8 10L18 10Z\"/></svg>",
                     "from there on, the gradients of the stage are reduced");
    if (s->chunks > 1)
        fprintf(page->out, "<span>lower boxes: later stages of the rank</span>\n");
    write_hue_swatches(page);
    if (s->ranks > 1) {
        write_swatch(page, "<line class=\"s F m0\" x1=\"0\" y1=\"8\" x2=\"26\" y2=\"8\"/>", "sends activations");
        write_swatch(page, "<line class=\"s B m0\" x1=\"0\" y1=\"8\" x2=\"26\" y2=\"8\"/>", "sends gradients");
    }
}

static void write_memory_legend(Page *page)
{
    const double capacity = page->v.p->capacity_bytes;
    write_swatch(page, "<rect class=\"fixed\" width=\"26\" height=\"16\"/>", "memory held all the step");
    write_swatch(page, "<rect class=\"flight\" width=\"26\" height=\"16\"/>", "activations in flight");
    if (capacity > 0)
        write_swatch(page, "<line class=\"capacity\" x1=\"0\" y1=\"8\" x2=\"26\" y2=\"8\"/>",
                     arena_text(&page->v.arena, "capacity, %s%s", bytes_text(&page->v.arena, capacity),
                                capacity < memory_scale(&page->v) ? "" : ": above the strips"));
    write_swatch(page, "<g class=\"memory\"><circle class=\"peak\" cx=\"13\" cy=\"8\" r=\"2.5\"/></g>", "peak");
}

static void write_lanes_legend(Page *page)
{
    const TimelineStep *step = page->v.p->step;
    const char *names = "";
    for (int i = 0; i < WORK_CLASSES; i++)
        if (step->class_name[i])
            write_swatch(page, arena_text(&page->v.arena, "<rect class=\"c%d\" width=\"26\" height=\"16\"/>", i),
                         step->class_name[i]);
    if (!step->nlanes)
        return;
    for (int i = 0; i < step->nlanes; i++)
        names = arena_text(&page->v.arena, "%s%s%s", names, i ? "; " : "", step->lane[i]);
    write_swatch(page, "<rect class=\"u0\" y=\"4\" width=\"26\" height=\"8\"/>",
                 arena_text(&page->v.arena, "a message is under way beside computation (%s%s)", names,
                            step->nlanes > 1 ? ", from above" : ""));
    write_swatch(page, "<rect class=\"w0\" y=\"4\" width=\"26\" height=\"8\"/>", "the rank waits for it");
    fprintf(page->out, "<span>short ones are one bar: its height is their share of its time</span>\n");
}

static void write_legend(Page *page)
{
    fprintf(page->out, "<div class=\"legend\">\n");
    if (page->v.s)
        write_actions_legend(page);
    if (page->v.p->step)
        write_lanes_legend(page);
    else
        fprintf(page->out, "<span>messages over other axes: with --machine</span>\n");
    if (page->v.s)
        write_memory_legend(page);
    fprintf(page->out, "</div>\n");
}

void write_timeline_html(const TimelinePicture *p, FILE *out)
{
    Page page = { .v = view_timeline(p), .out = out };
    write_head(&page);
    write_timeline_tiles(&page.v, out);
    write_zooms(&page);
    fprintf(out, "<div class=\"frame\">\n");
    write_names(&page);
    fprintf(out, "<div class=\"plot\">\n");
    draw_timeline(&page.v, out);
    fprintf(out, "</div>\n</div>\n");
    write_legend(&page);
    write_timeline_tables(&page.v, out);
    fprintf(out, "<script>\n%s</script>\n</body>\n</html>\n", timeline_script);
    arena_free(&page.v.arena);
}
