/* probe_write.c -- the lines of a machine file: key, value, where it is from. */
#include "probe.h"

#include <stdlib.h>
#include <string.h>

enum { KEY = 30, POINTS_IN_LINE = 5 };
static const char origin[] = "measured  trainer --probe";

static void write_text(const RtProbe *probe, char *text)
{
    if (probe->output)
        rt_output_write(probe->output, text, (int64_t)strlen(text));
    free(text);
}

/* "12.35GB/s", with `gap` before the unit; a share as "64.8%". */
static char *quantity(double number, const char *gap, const char *unit)
{
    static const char *const prefixes[] = { "n", "u", "m", "", "k", "M", "G", "T", "P" };
    int prefix = 3;
    if (!strcmp(unit, "%"))
        return rt_text("%.4g%s%%", 100 * number, gap);
    if (!*unit)
        return rt_text("%.0f", number);
    for (; number >= 999.95 && prefix < 8; number /= 1000)
        prefix++;
    for (; number < 0.99995 && prefix > 0; number *= 1000)
        prefix--;
    return rt_text("%.4g%s%s%s", number, gap, prefixes[prefix], unit);
}

void rt_probe_words(const RtProbe *probe, const char *key, const char *words)
{
    write_text(probe, rt_text("%-*s%s\n", KEY, key, words));
}

void rt_probe_number(const RtProbe *probe, const char *key, double number, const char *unit)
{
    char *text = quantity(number, " ", unit);
    write_text(probe, rt_text("%-*s%s  %s\n", KEY, key, text, origin));
    free(text);
}

void rt_probe_curve(const RtProbe *probe, const char *key, const RtCurve *curve, const char *x, const char *y)
{
    char *line = rt_text("%-*s", KEY, key);
    for (int i = 0; i < curve->count; i++) {
        char *at = quantity(curve->x[i], "", x), *value = quantity(curve->y[i], "", y);
        if (i > 0 && i % POINTS_IN_LINE == 0)
            rt_append(&line, "\n%*s", KEY, "");
        rt_append(&line, "%s%s:%s", i % POINTS_IN_LINE ? " " : "", at, value);
        free(at);
        free(value);
    }
    rt_append(&line, "  %s\n", origin);
    if (curve->count)
        write_text(probe, line);
    else
        free(line);
}

void rt_curve_add(RtCurve *curve, double x, double y)
{
    if (curve->count == RT_CURVE_POINTS)
        return;
    curve->x[curve->count] = x;
    curve->y[curve->count++] = y;
}
