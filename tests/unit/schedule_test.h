/* schedule_test.h -- schedules to test; included after cmocka.h. */
#ifndef MPC_SCHEDULE_TEST_H
#define MPC_SCHEDULE_TEST_H

#include "schedule/schedule.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static inline PipelineSchedule *make(Arena *arena, const char *name, int ranks, int chunks, int micros)
{
    const char *why, *help;
    PipelineSchedule *s = make_schedule(arena, name, ranks, chunks, micros, &why, &help);
    if (s)
        s->reduces = true;
    if (!s || !order_messages(arena, s, &why))
        fail_msg("%s, %d ranks, %d chunks, %d micro-batches: %s", name, ranks, chunks, micros, why);
    return s;
}

#endif
