/* plan_page.c -- the answer as a page that needs no other file: the picture, a table of the listed layouts with what
 * their time goes to, and for each one its block and the commands that use it. */
#include "planner.h"

#include "plot/plot.h"
#include "timeline.h"
#include "visible.h"

#include "charts.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const Planner *p;
    const Answer *answer;
    FILE *out;
} Page;

const char *const plan_part[PLAN_PARTS] = { "products", "attention", "kernels", "messages, not hidden",
                                            "waits for other stages" };

double part_seconds(const PlanResult *r, int part) { return part <= ITEM_MESSAGE ? r->parts[part] : r->idle; }

bool is_part(const PlanResult *r, int part)
{
    enum { LEAST = 2000 }; /* 0.05 % */
    return part_seconds(r, part) * LEAST >= r->seconds;
}

void write_lines(const char *text, FILE *out)
{
    for (;;) {
        const size_t length = strcspn(text, "\n");
        char *line = strndup(text, length);
        write_escaped(line, out);
        free(line);
        if (!text[length])
            return;
        fputc('\n', out);
        text += length + 1;
    }
}

static void put(const Page *page, const char *text) { write_lines(text, page->out); }

static void put_in(const Page *page, const char *open, const char *text, const char *close)
{
    fputs(open, page->out);
    put(page, text);
    fputs(close, page->out);
}

static void write_head(const Page *page)
{
    const Planner *p = page->p;
    const char *title =
        arena_text(p->arena, "%s: layouts of %s%s of %s", p->run->source.path, p->is_elastic ? "at most " : "",
                   counted(p->arena, p->ranks, "rank"), p->run->options->machine);
    write_page_head(title, plan_css, page->out);
    if (plan_without(p))
        put_in(page, "<p>", plan_without(p), "</p>\n");
    put_in(page, "<p>", plan_question(p), "</p>\n");
}

static void write_picture(const Page *page)
{
    if (!page->answer->ncompiled) {
        fputs("<p>No layout was compiled: by their bounds, none fits.</p>\n", page->out);
        return;
    }
    fputs("<div class=\"charts\"><div>\n", page->out);
    write_plan_chart(page->p, page->answer, page->out);
    fputs("</div></div>\n<pre class=\"about\">Each point is a layout that was compiled: point at it for its reasons. "
          ""
          "Those with a name are listed below, the fastest one of each mesh.</pre>\n",
          page->out);
}

/* --- Table --------------------------------------------------------------------------------------------- */

static void write_legend(const Page *page)
{
    fputs("<div class=\"legend\"><span>time of a step:</span>\n", page->out);
    for (int part = 0; part < PLAN_PARTS; part++)
        fprintf(page->out,
                "<span><svg viewBox=\"0 0 14 10\"><rect class=\"p%d\" width=\"14\" height=\"10\"/></svg>%s</span>\n",
                part, plan_part[part]);
    fputs("</div>\n", page->out);
}

/* Shares of the step, side by side. */
static void write_bar(const Page *page, const PlanResult *r)
{
    double at = 0;
    fputs("<td><svg class=\"bar\" viewBox=\"0 0 100 14\" preserveAspectRatio=\"none\">", page->out);
    for (int part = 0; part < PLAN_PARTS; part++) {
        const double share = 100 * part_seconds(r, part) / r->seconds;
        if (is_part(r, part))
            fprintf(
                page->out,
                "<rect class=\"p%d\" x=\"%.3f\" width=\"%.3f\" height=\"14\"><title>%s: %.4g s, %.1f %%</title></rect>",
                part, at, share, plan_part[part], part_seconds(r, part), share);
        at += share;
    }
    fputs("</svg></td>", page->out);
}

static void write_row(const Page *page, const PlanCells *cells, const char *place, const PlanResult *r,
                      const char *limits)
{
    put_in(page, "<tr><td>", place, "</td>");
    for (int k = 0; k < PLAN_COLUMNS; k++)
        put_in(page, k ? "<td>" : "<td class=\"layout\">", cells->text[k], "</td>");
    write_bar(page, r);
    put_in(page, "<td>", limits, "</td></tr>\n");
}

static void write_table(const Page *page)
{
    const Answer *answer = page->answer;
    int count;
    const PlanCells *rows = plan_rows(page->p, answer, &count);
    if (!count)
        return;
    write_legend(page);
    fputs("<div class=\"table\"><table>\n<tr><th></th>", page->out);
    for (int k = 0; k < PLAN_COLUMNS; k++)
        put_in(page, "<th>", plan_title[k], "</th>");
    fputs("<th>time</th><th>limited by</th></tr>\n", page->out);
    for (int i = 0; i < answer->count; i++) {
        const PlanResult *r = &answer->best[i];
        const char *tie = is_tie(page->p, answer, r) ? " ~" : "";
        write_row(page, &rows[i], arena_text(page->p->arena, "%d%s", i + 1, tie), r, limits_text(page->p, r));
    }
    if (count > answer->count)
        write_row(page, &rows[answer->count], "", answer->too_large, "does not fit");
    fputs("</table></div>\n", page->out);
}

/* --- Blocks and commands ------------------------------------------------------------------------------- */

static const char *with_word(Arena *arena, const char *text, const char *option, const char *value)
{
    return arena_text(arena, "%s %s %s", text, option, shell_word(arena, value));
}

const char *planned_model(const Planner *p)
{
    const Options *o = p->run->options;
    const TextList without_micro = sets_without(p->arena, &o->set, "train.microbatch");
    const TextList set = sets_without(p->arena, &without_micro, "train.abreast");
    const char *text = shell_word(p->arena, o->operand);
    for (int i = 0; i < o->define.count; i++)
        text = with_word(p->arena, text, "-D", o->define.at[i]);
    for (int i = 0; i < set.count; i++)
        text = with_word(p->arena, text, "--set", set.at[i]);
    return with_word(p->arena, text, "--target", o->target);
}

static const char *kept_words(const Planner *p, const PlanLayout *l)
{
    Arena *a = p->arena;
    const char *text = "";
    for (int i = 0; i < p->naxes; i++)
        text = arena_text(a, "%s --keep %s=%lld", text, p->axis[i].name, (long long)l->size[i]);
    text = arena_text(a, "%s --keep microbatch=%lld --keep recompute=%s", text, (long long)l->microbatch,
                      Recompute_words[l->recompute]);
    if (l->zero >= 0)
        text = arena_text(a, "%s --keep zero=%d --keep overlap=%d", text, l->zero, l->overlaps);
    for (int i = 0; i < p->naxes; i++)
        if (p->axis[i].attends && l->size[i] > 1)
            text = arena_text(a, "%s --keep attend=%s", text, attend_name[l->attend]);
    if (has_pieces(p, l))
        text = arena_text(a, "%s --keep pieces=%d", text, l->pieces);
    if (may_be_abreast(p, l))
        text = arena_text(a, "%s --keep abreast=%d", text, l->abreast);
    return has_schedule(p, l)
               ? arena_text(a, "%s --keep schedule=%s --keep chunks=%d", text, schedule_word[l->schedule], l->chunks)
               : text;
}

/* This layout into the model's file; then its step, and its trainer. */
static const char *commands(const Planner *p, const PlanLayout *l)
{
    const Options *o = p->run->options;
    Arena *a = p->arena;
    const char *model = planned_model(p), *machine = shell_word(a, o->machine);
    return arena_text(a,
                      "mpc plan %s \\\n    --ranks %lld --machine %s%s \\\n   %s --write\nmpc report %s --machine %s\n"
                      "mpc compile %s -o trainer",
                      model, (long long)mesh_ranks(p, l), machine,
                      o->memory ? with_word(a, "", "--memory", o->memory) : "", kept_words(p, l), model, machine,
                      model);
}

static void write_layout(const Page *page, int place)
{
    const Planner *p = page->p;
    const PlanLayout *l = &page->answer->best[place].layout;
    fprintf(page->out, "<details id=\"layout%d\"%s><summary>%d: ", place + 1, place ? "" : " open=\"open\"", place + 1);
    put(page, layout_name(p->arena, p, l));
    put_in(page, "</summary>\n<pre>", layout_block(p->arena, p, l), "</pre>\n");
    put_in(page, "<pre>", commands(p, l), "</pre></details>\n");
}

void write_plan_page(const Planner *p, const Answer *answer, FILE *out)
{
    const Page page = { p, answer, out };
    write_head(&page);
    write_picture(&page);
    write_table(&page);
    if (answer->count) {
        put_in(&page, "<p>", plan_error(p, answer), "</p>\n");
        put_in(&page, "<p>", plan_proof(p, answer), "</p>\n");
        if (p->run->options->refine)
            put_in(&page, "<p>", plan_refined(p, answer), "</p>\n");
    }
    put_in(&page, "<pre>", plan_space(p, answer), "</pre>\n");
    for (int i = 0; i < answer->count; i++)
        write_layout(&page, i);
    write_page_end(plan_js, out);
}
