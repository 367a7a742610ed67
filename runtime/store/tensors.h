/* tensors.h -- the tensors of a program as named in checkpoints: one tensor for each copy of a repeat, logical sizes,
 * no padding. */
#ifndef MPC_RUNTIME_TENSORS_H
#define MPC_RUNTIME_TENSORS_H

#include "rt.h"

typedef struct {
    char *name;             /* "h.3.attn.wq", "optimizer.m.h.3.attn.wq", "optimizer.loss_scale" */
    const RtTensor *tensor; /* the program's tensor, of which this may be one copy */
    bool is_state;          /* state of the optimizer; else a parameter */
    RtType type;            /* in the arena */
    int rank;
    int64_t whole[RT_MAX_RANK];                     /* sizes, without the copies */
    int64_t count;                                  /* of elements of the whole */
    int64_t size[RT_MAX_RANK], stride[RT_MAX_RANK]; /* of this rank's part, with the padding of split dims */
    RtPart part[RT_MAX_RANK];
    int64_t offset; /* bytes, in the arena */
    uint32_t hash;  /* of the name by which initial values are drawn */
    bool is_held;   /* by this rank; else it has no part of it */
    bool is_owner;  /* of the ranks that hold the same part, the one that writes it to files */
} RtView;

/* `count` elements that are consecutive in the whole tensor, from element `whole` on, and in this rank's part, from
 * element `own` on; both are counted row by row. */
typedef struct {
    int64_t own, whole, count;
} RtRange;

/* An iterator over the ranges of this rank's part, in order: without padding, as few as possible. */
typedef struct {
    const RtView *view;
    int split;     /* the last dim that is split, or -1 */
    int64_t inner; /* elements per index of it */
    int64_t next;  /* the index of its first element, without `inner` */
} RtRanges;

RtRanges rt_ranges(const RtView *view);
bool rt_next_range(RtRanges *ranges, RtRange *range);

/* All tensors, in the order of the program; freed with rt_views_free. */
RtView *rt_views(const Rt *rt, int *count);
RtView rt_view_of_result(const Rt *rt, const RtFunction *f, const RtTensor *result); /* one of f->results */
void rt_views_free(RtView *views, int count);

/* Does this rank have a part of it, and is it `number`, mod their count, of the ranks that have the same?  0: the
 * owner. */
bool rt_view_falls_to(const Rt *rt, const RtView *view, int number);

/* The extent of its elements in the arena, from view->offset on, including gaps. */
int64_t rt_view_bytes(const RtView *view);

/* Opens its bytes of the arena for rt_view_read and rt_view_write; rt_view_close writes them back, if changed.  NULL if
 * this rank has no part of it: its arena may end before view->offset. */
char *rt_view_open(const Rt *rt, const RtView *view);
void rt_view_close(const Rt *rt, const RtView *view, char *window, bool is_changed);

/* In a file floats are f32 and integers i32, bool, too: 4 bytes per element.  Copies element `first` + i of this rank's
 * part, counted row by row, from or to values[i] for i < count. */
RtType rt_view_file_type(const RtView *view);
void rt_view_read(const RtView *view, const char *window, int64_t first, int64_t count, void *values);
const void *rt_view_as_in_file(const RtView *view, const char *window, int64_t first); /* all in a row; else NULL */
void rt_view_write(const RtView *view, char *window, int64_t first, int64_t count, const void *values);

/* --- init.c --------------------------------------------------------------------------------- */

/* Zeroes all tensors, including padding, and sets their initial values; parameters only if with_parameters. */
void rt_init_tensors(Rt *rt, uint32_t seed, bool with_parameters);

#endif
