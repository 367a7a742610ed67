/* pipeline_kept.c -- the number of times that a rank keeps the residuals of a forward function.
 *
 * The stages of a pipeline differ in both their copies and their micro-batches in flight.  The answer is that of the
 * rank that keeps the most, a bound for all ranks: if the function saves B bytes less, the peak falls by at most B
 * times this number.
 */
#include "pipeline_kept.h"

#include "micro.h"
#include "schedule/slots.h"

#include <string.h>

ResidualCopies kept_in(Arena *arena, Module *compiled)
{
    ResidualCopies kept = { .compiled = compiled,
                            .abreast = compiled->train.abreast > 1 ? compiled->train.abreast : 1 };
    MicroParts *parts = NEW(arena, MicroParts);
    const Op *loop = scheduled_parts(compiled, parts);
    if (loop) {
        kept.schedule = schedule_of_loop(compiled, loop, loop->attrs.stages, parts->chunks);
        kept.parts = parts;
    }
    return kept;
}

/* Micro-batches between the forward action of a chunk and the last one that may read what it saves. */
static int in_flight(const PipelineSchedule *s, int rank, int chunk)
{
    const ActionKind last = s->splits_backward ? WEIGHT_ACTION : BACKWARD_ACTION;
    return slots_needed(s, rank, &(Lifetime){ FORWARD_ACTION, last, chunk, chunk, false });
}

double times_kept_once(const ResidualCopies *kept)
{
    int most = 1;
    for (int rank = 0; kept->schedule && rank < kept->schedule->ranks; rank++)
        for (int chunk = 0; chunk < kept->schedule->chunks; chunk++) {
            const int count = in_flight(kept->schedule, rank, chunk);
            most = count > most ? count : most;
        }
    return most * (double)kept->abreast;
}

double times_kept_in_flight(const ResidualCopies *kept, const char *name)
{
    int64_t most = 0;
    for (int i = 0; kept->schedule && i < kept->parts->count; i++) {
        const StagePart *part = &kept->parts->part[i];
        for (int k = 0; k < part->nloops; k++)
            for (int rank = 0; rank < kept->schedule->ranks && !strcmp(part->loop[k]->attrs.callee, name); rank++) {
                const int64_t own = part_size(kept->compiled, &part->loop[k]->attrs.dims.dim[0], rank) *
                                    in_flight(kept->schedule, rank, part->chunk);
                most = own > most ? own : most;
            }
    }
    return (double)most * (double)kept->abreast;
}
