/* timeline.c -- the time of a pipeline whose actions take given times, for pipelines.py: by the simulation of `mpc
 * report`.
 *
 *   timeline SCHEDULE RANKS CHUNKS MICROS MESSAGE F0 B0 W0 F1 B1 W1 ...
 *
 * Times in any unit, of each stage; W is 0 where B is not divided. */
#include "schedule/schedule.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    Arena arena = { 0 };
    Timeline t;
    const char *why = "", *help = "";
    const int ranks = argc > 3 ? atoi(argv[2]) : 0, chunks = argc > 3 ? atoi(argv[3]) : 0, stages = ranks * chunks;
    if (stages < 1 || argc != 6 + 3 * stages)
        return fprintf(stderr, "timeline SCHEDULE RANKS CHUNKS MICROS MESSAGE F0 B0 W0 F1 B1 W1 ...\n"), 2;
    double *time[3];
    for (int kind = 0; kind < 3; kind++) {
        time[kind] = NEW_ARRAY(&arena, double, stages);
        for (int stage = 0; stage < stages; stage++)
            time[kind][stage] = strtod(argv[6 + 3 * stage + kind], NULL);
    }
    const Costs costs = { time[0], time[1], time[2], strtod(argv[5], NULL) };
    const PipelineSchedule *s = make_schedule(&arena, argv[1], ranks, chunks, atoi(argv[4]), &why, &help);
    if (!s || !simulate_schedule(&arena, s, &costs, &t))
        return fprintf(stderr, "%s; %s\n", why, help), 1;
    printf("%.9g\n", t.makespan);
    arena_free(&arena);
    return 0;
}
