/* not_finite.h -- numbers of a checkpoint that are nan or infinite. */
#ifndef RT_NOT_FINITE_H
#define RT_NOT_FINITE_H

#include "safetensors.h"

/* How many of these elements are: those with all bits of the exponent.  Of other types than F32, BF16, F16: none. */
uint64_t rt_count_not_finite(const RtStored *stored, int64_t first, int64_t count);

/* Names the tensors that have any: a note, since a model may have such a constant, as a mask of -inf.  counts: by
 * tensor of the file. */
void rt_note_not_finite(const RtSafetensors *file, const uint64_t *counts);

#endif
