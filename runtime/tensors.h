/* tensors.h -- the tensors of a program as a checkpoint names them: each copy of a repeat one tensor, logical sizes,
 * no padding. */
#ifndef MPC_RUNTIME_TENSORS_H
#define MPC_RUNTIME_TENSORS_H

#include "rt.h"

typedef struct {
    char *name;             /* "h.3.attn.wq", "optimizer.m.h.3.attn.wq", "optimizer.loss_scale" */
    const RtTensor *tensor; /* that it is (a copy of) */
    bool is_state;          /* of the optimizer; else a parameter */
    RtType type;            /* in the arena */
    int rank;
    int64_t size[RT_MAX_RANK], stride[RT_MAX_RANK]; /* without the copies */
    int64_t offset;                                 /* bytes, in the arena */
    int64_t count;                                  /* of elements */
} RtView;

/* All of them, in the order of the program; the caller's, for rt_views_free. */
RtView *rt_views(const RtProgram *program, int *count);
void rt_views_free(RtView *views, int count);

/* In a file floats are f32 and integers i32: 4 bytes an element.  Element `first` + i, counted row by row, from or
 * to values[i] for i < count. */
RtType rt_view_file_type(const RtView *view);
void rt_view_read(const RtView *view, const char *arena, int64_t first, int64_t count, void *values);
void rt_view_write(const RtView *view, char *arena, int64_t first, int64_t count, const void *values);

/* --- init.c --------------------------------------------------------------------------------- */

/* Zeroes all tensors, padding included, and gives them their initial values; parameters that a file will fill stay
 * zero. */
void rt_init_tensors(const RtProgram *program, char *arena, uint32_t seed, bool with_parameters);

#endif
