/* timeline.c -- how long a pipeline takes whose actions take so long, for pipelines.py: by the simulation of `mpc
 * report`.
 *
 *   timeline SCHEDULE RANKS MICROS MESSAGE F0 B0 W0 F1 B1 W1 ...
 *
 * Times in any unit, of each stage; W is 0 where B is not divided. */
#include "schedule/schedule.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    Arena arena = { 0 };
    Timeline t;
    const char *why = "", *help = "";
    const int ranks = argc > 2 ? atoi(argv[2]) : 0;
    if (ranks < 1 || argc != 5 + 3 * ranks)
        return fprintf(stderr, "timeline SCHEDULE RANKS MICROS MESSAGE F0 B0 W0 F1 B1 W1 ...\n"), 2;
    double *time[3];
    for (int kind = 0; kind < 3; kind++) {
        time[kind] = NEW_ARRAY(&arena, double, ranks);
        for (int rank = 0; rank < ranks; rank++)
            time[kind][rank] = strtod(argv[5 + 3 * rank + kind], NULL);
    }
    const Costs costs = { time[0], time[1], time[2], strtod(argv[4], NULL) };
    const PipelineSchedule *s = make_schedule(&arena, argv[1], ranks, 1, atoi(argv[3]), &why, &help);
    if (!s || !simulate_schedule(&arena, s, &costs, &t))
        return fprintf(stderr, "%s; %s\n", why, help), 1;
    printf("%.9g\n", t.makespan);
    arena_free(&arena);
    return 0;
}
