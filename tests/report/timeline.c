/* timeline.c -- the picture of a pipeline schedule, for the tests: text or SVG, to the standard output.
 *
 *   timeline SCHEDULE RANKS CHUNKS MICROS FORM [NAME=VALUE ...]
 *
 * FORM is svg, or the width of the text.  NAMEs: forward, backward, weight, message (milliseconds), slope (how
 * much longer each further stage takes, as a share), fixed, activation, capacity (MB), title, stages (1: with texts).
 */
#include "timeline.h"

#include <stdlib.h>
#include <string.h>

static const char *option(int count, char **words, const char *name, const char *otherwise)
{
    const size_t length = strlen(name);
    for (int i = 0; i < count; i++)
        if (strncmp(words[i], name, length) == 0 && words[i][length] == '=')
            return words[i] + length + 1;
    return otherwise;
}

static double number(int count, char **words, const char *name, const char *otherwise)
{
    return strtod(option(count, words, name, otherwise), NULL);
}

/* A number for each stage, or for each rank. */
static double *all(Arena *arena, int count, double value, double slope)
{
    double *list = NEW_ARRAY(arena, double, count);
    for (int i = 0; i < count; i++)
        list[i] = value * (1 + slope * i);
    return list;
}

static const char **stage_texts(Arena *arena, int stages)
{
    const char **text = NEW_ARRAY(arena, const char *, stages);
    for (int i = 0; i < stages; i++)
        text[i] = arena_text(arena, "layers %d to %d%s%s", 4 * i, 4 * i + 3, i ? "" : ", embedding",
                             i + 1 < stages ? "" : ", loss & <logits>");
    return text;
}

int main(int argc, char **argv)
{
    Arena arena = { 0 };
    const char *why = "", *help = "";
    if (argc < 6)
        return fprintf(stderr, "timeline SCHEDULE RANKS CHUNKS MICROS FORM [NAME=VALUE ...]\n"), 2;
    PipelineSchedule *s = make_schedule(&arena, argv[1], atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), &why, &help);
    const int n = argc - 6;
    char **words = argv + 6;
    if (s)
        s->reduces = *option(n, words, "reduces", "");
    if (!s || !order_messages(&arena, s, &why))
        return fprintf(stderr, "%s; %s\n", why, help), 1;
    const int stages = stage_count(s);
    const double slope = number(n, words, "slope", "0");
    const Costs costs = { all(&arena, stages, number(n, words, "forward", "1") * 1e-3, slope),
                          all(&arena, stages, number(n, words, "backward", "1") * 1e-3, slope),
                          all(&arena, stages, number(n, words, "weight", "1") * 1e-3, slope),
                          number(n, words, "message", "0") * 1e-3 };
    const TimelinePicture picture = { .schedule = s,
                                      .costs = &costs,
                                      .title = option(n, words, "title", "gpt2.mdl, mesh pp=4,dp=2"),
                                      .axis = "pp",
                                      .stage_text =
                                          *option(n, words, "stages", "") ? stage_texts(&arena, stages) : NULL,
                                      .published_bubble = published_bubble(s->name, s->ranks, s->chunks, s->micros),
                                      .fixed_bytes = all(&arena, s->ranks, number(n, words, "fixed", "1000") * 1e6, 0),
                                      .activation_bytes =
                                          all(&arena, stages, number(n, words, "activation", "500") * 1e6, slope),
                                      .capacity_bytes = number(n, words, "capacity", "0") * 1e6 };
    if (strcmp(argv[5], "svg") == 0)
        write_timeline_svg(&picture, stdout);
    else
        write_timeline_text(&picture, atoi(argv[5]), stdout);
    arena_free(&arena);
    return 0;
}
