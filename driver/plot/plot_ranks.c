/* plot_ranks.c -- a table of all ranks, with how long the others waited for each. */
#include "plot/plot.h"
#include "timeline.h"

#include <string.h>

static const char *const lists[PLOT_RANK_TIMES] = { [PLOT_WAITED] = "rank_wait_ms", [PLOT_LATE] = "rank_late_ms" };

static void make_room(Arena *arena, PlotRun *log, int ranks)
{
    for (int i = 0; i < PLOT_RANK_TIMES && ranks > log->nranks; i++) {
        double *sums = NEW_ARRAY(arena, double, ranks);
        if (log->nranks)
            memcpy(sums, log->rank_ms[i], (size_t)log->nranks * sizeof *sums);
        log->rank_ms[i] = sums;
    }
    log->nranks = ranks > log->nranks ? ranks : log->nranks;
}

void take_ranks(Arena *arena, PlotRun *log, const cJSON *line)
{
    const cJSON *list[PLOT_RANK_TIMES], *number;
    for (int i = 0; i < PLOT_RANK_TIMES; i++) {
        list[i] = cJSON_GetObjectItemCaseSensitive(line, lists[i]);
        make_room(arena, log, cJSON_GetArraySize(list[i]));
    }
    log->steps_with_ranks += cJSON_GetArraySize(list[PLOT_WAITED]) > 0;
    for (int i = 0; i < PLOT_RANK_TIMES; i++) {
        double *sum = log->rank_ms[i];
        cJSON_ArrayForEach(number, list[i]) *sum++ += cJSON_IsNumber(number) ? number->valuedouble : 0;
    }
}

void write_ranks(const Plot *plot, FILE *out)
{
    bool begun = false;
    for (const PlotRun *log = plot->runs; log < plot->runs + plot->nruns; log++)
        for (int rank = 0; rank < log->nranks; rank++) {
            if (!begun)
                fputs("<div class=\"table\"><table>\n<tr><th>run</th><th>rank</th><th>waited, ms of a step</th>"
                      "<th>made others wait, ms of a step</th></tr>\n",
                      out);
            begun = true;
            fputs("<tr><td>", out);
            write_escaped(log->name, out);
            fprintf(out, "</td><td>%d</td><td>%.1f</td><td>%.1f</td></tr>\n", rank,
                    log->rank_ms[PLOT_WAITED][rank] / log->steps_with_ranks,
                    log->rank_ms[PLOT_LATE][rank] / log->steps_with_ranks);
        }
    if (begun)
        fputs("</table></div>\n", out);
}
