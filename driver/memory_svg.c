/* memory_svg.c -- memory over the step as one SVG, which a README or slides can show: the classes of tensors in use
 * while each line of the model runs.  It draws `memory_over_step` of mpc report --json; driver/page/page.js draws the
 * same in the page. */
#include "report.h"

#include "drawing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MARGIN = 16,
    LEFT = MARGIN + 64, /* the width of the amounts beside the chart */
    WIDTH = 960,        /* of the chart */
    TOP = 100,          /* head, and names of functions above the chart */
    HEIGHT = 250,
    TICKS = 5,
    LETTER = 7, /* the width of one */
    FOOT = 66   /* lines of the model, and the legend */
};

typedef struct {
    const Report *r;
    FILE *out;
    const cJSON *ops;
    int count;
    double scale; /* bytes at the top of the chart */
} Chart;

static double x_of(const Chart *c, int op) { return LEFT + (double)WIDTH * op / c->count; }
static double y_of(const Chart *c, double bytes) { return TOP + HEIGHT * (1 - bytes / c->scale); }

static const char *text_in(const cJSON *op, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(op, key));
}

/* Of one class; of all of them, if `class` is N_CLASSES. */
static double bytes_of(const cJSON *op, int class)
{
    const cJSON *bytes = cJSON_GetObjectItemCaseSensitive(op, "bytes");
    double sum = 0;
    for (int i = 0; i < N_CLASSES; i++)
        sum += class == N_CLASSES || class == i ? cJSON_GetArrayItem(bytes, i)->valuedouble : 0;
    return sum;
}

static const cJSON *highest_op(const Chart *c)
{
    const cJSON *op, *highest = c->ops->child;
    cJSON_ArrayForEach(op, c->ops) if (bytes_of(op, N_CLASSES) > bytes_of(highest, N_CLASSES)) highest = op;
    return highest;
}

static void write_text(const Chart *c, const char *style, double x, double y, const char *text)
{
    fprintf(c->out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", style, x, y);
    write_escaped(text, c->out);
    fputs("</text>\n", c->out);
}

static void write_head(const Chart *c, const char *rank_kind)
{
    Arena *arena = &c->r->run->arena;
    const cJSON *op = highest_op(c);
    const char *where = text_in(op, "where"), *whose = strcmp(rank_kind, "all") == 0 ? "a rank" : rank_kind;
    fputs("<style>\n", c->out);
    write_embedded(drawing_css, c->out);
    fputs("text{fill:var(--text);font:12px var(--font)}\n.title{font-size:18px;font-weight:650}\n"
          ".faint,.amount,.middle{fill:var(--faint)}.amount{text-anchor:end}.middle{text-anchor:middle}\n"
          ".grid{stroke:var(--line)}.band{fill:var(--card)}.paper{fill:var(--page)}\n</style>\n"
          "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
          c->out);
    write_text(c, "title", MARGIN, 30, picture_title(c->r));
    write_text(c, "faint", MARGIN, 50,
               arena_text(arena, "memory of %s over the step; peak %s while %s%s%s runs", whose,
                          bytes_text(arena, bytes_of(op, N_CLASSES)), text_in(op, "op"), *where ? ", " : "", where));
}

/* Neighbours in one function are a band: the body of a loop is there once. */
static void write_bands(const Chart *c)
{
    const cJSON *op = c->ops->child;
    for (int from = 0, to, band = 0; from < c->count; from = to, band++) {
        const char *name = text_in(op, "function");
        const double times = cJSON_GetObjectItemCaseSensitive(op, "times")->valuedouble;
        for (to = from; op && strcmp(text_in(op, "function"), name) == 0; to++)
            op = op->next;
        const char *label = times > 1 ? arena_text(&c->r->run->arena, "%s \xC3\x97%.0f", name, times) : name;
        const double width = x_of(c, to) - x_of(c, from);
        if (band % 2)
            fprintf(c->out, "<rect class=\"band\" x=\"%.1f\" width=\"%.1f\" y=\"%d\" height=\"%d\"/>\n", x_of(c, from),
                    width, TOP - 22, HEIGHT + 22);
        if (LETTER * (double)strlen(label) < width)
            write_text(c, "middle", x_of(c, from) + width / 2, TOP - 8, label);
    }
}

static void write_ticks(const Chart *c)
{
    const double step = tick_step(c->scale, TICKS);
    for (double tick = 0; tick <= c->scale; tick += step) {
        fprintf(c->out, "<path class=\"grid\" d=\"M%d,%.1fh%d\"/>\n", LEFT, y_of(c, tick), WIDTH);
        write_text(c, "amount", LEFT - 6, y_of(c, tick) + 4, tick > 0 ? bytes_text(&c->r->run->arena, tick) : "0");
    }
}

/* From the left along the top, and back along the floor, which is then the top of this class. */
static void write_class(const Chart *c, int class, double *floors)
{
    const cJSON *op = c->ops->child;
    fprintf(c->out, "<path style=\"fill:var(--k%d)\" d=\"M%d,%.1f", class, LEFT, y_of(c, floors[0]));
    double *tops = NEW_ARRAY(&c->r->run->arena, double, c->count);
    for (int i = 0; i < c->count; i++, op = op->next) {
        tops[i] = floors[i] + bytes_of(op, class);
        fprintf(c->out, "V%.1fH%.1f", y_of(c, tops[i]), x_of(c, i + 1));
    }
    for (int i = c->count - 1; i >= 0; i--)
        fprintf(c->out, "V%.1fH%.1f", y_of(c, floors[i]), x_of(c, i));
    fputs("Z\"/>\n", c->out);
    memcpy(floors, tops, (size_t)c->count * sizeof *floors);
}

static bool holds_any(const Chart *c, int class)
{
    const cJSON *op;
    cJSON_ArrayForEach(op, c->ops) if (bytes_of(op, class) > 0) return true;
    return false;
}

static void write_classes(const Chart *c)
{
    enum { SWATCH = 14, GAP = 26 };
    double *floors = NEW_ARRAY(&c->r->run->arena, double, c->count), x = LEFT;
    for (int class = 0; class < N_CLASSES; class ++) {
        if (!holds_any(c, class))
            continue;
        write_class(c, class, floors);
        fprintf(c->out, "<rect style=\"fill:var(--k%d)\" x=\"%.1f\" y=\"%d\" width=\"%d\" height=\"12\"/>\n", class, x,
                TOP + HEIGHT + 40, SWATCH);
        write_text(c, "faint", x + SWATCH + 6, TOP + HEIGHT + 50, class_name[class]);
        x += SWATCH + GAP + LETTER * (double)strlen(class_name[class]);
    }
}

/* The numbers of the lines, where they fit, below what runs. */
static void write_lines(const Chart *c)
{
    const char *before = "";
    double end = LEFT;
    const cJSON *op = c->ops->child;
    write_text(c, "amount", LEFT - 6, TOP + HEIGHT + 17, "line");
    for (int i = 0; i < c->count; i++, op = op->next) {
        const char *colon = strchr(text_in(op, "where"), ':');
        const char *line =
            colon ? arena_text(&c->r->run->arena, "%.*s", (int)strspn(colon + 1, "0123456789"), colon + 1) : "";
        const double middle = (x_of(c, i) + x_of(c, i + 1)) / 2, half = LETTER * (double)strlen(line) / 2 + 1;
        if (*line && strcmp(line, before) != 0 && middle - half >= end) {
            write_text(c, "middle", middle, TOP + HEIGHT + 17, line);
            end = middle + half;
            before = line;
        }
    }
}

static void write_chart(Chart *c, const char *rank_kind)
{
    enum { MOST_SCALE = 2 }; /* what a rank has is drawn if it is not more than so many peaks */
    const double peak = bytes_of(highest_op(c), N_CLASSES), room = memory_room(c->r);
    c->scale = room < MOST_SCALE * peak ? fmax(room, peak) : peak;
    fprintf(c->out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n",
            LEFT + WIDTH + MARGIN, TOP + HEIGHT + FOOT, LEFT + WIDTH + MARGIN, TOP + HEIGHT + FOOT);
    write_head(c, rank_kind);
    write_bands(c);
    write_ticks(c);
    write_classes(c);
    if (room <= c->scale)
        fprintf(c->out, "<path class=\"capacity\" d=\"M%d,%.1fh%d\"/>\n", LEFT, y_of(c, room), WIDTH);
    write_lines(c);
    fputs("</svg>\n", c->out);
}

bool write_memory_svg(const Report *r, const char *path)
{
    NewFile file;
    if (!open_new(r->run, &file, path))
        return false;
    cJSON *json = report_json(r), *over = cJSON_GetObjectItemCaseSensitive(json, "memory_over_step");
    Chart c = { .r = r, .out = file.out, .ops = cJSON_GetObjectItemCaseSensitive(over, "ops") };
    c.count = cJSON_GetArraySize(c.ops);
    write_chart(&c, text_in(over, "rank_kind"));
    cJSON_Delete(json);
    return close_new(r->run, &file);
}
