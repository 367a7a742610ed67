/* attention.h -- attention by cuDNN: attention_graph.c describes it, attention.c runs it, attention_choose.c compares
 * it with the program's kernels. */
#ifndef MPC_CUDA_ATTENTION_H
#define MPC_CUDA_ATTENTION_H

#include "cudnn.h"
#include "rt.h"

/* Numbers of the graphs' tensors: operand i of rt_attention is i + 1. */
enum {
    RT_ATTEND_Q = 1,
    RT_ATTEND_K,
    RT_ATTEND_V,
    RT_ATTEND_Y,
    RT_ATTEND_SUM, /* the log-sum-exp */
    RT_ATTEND_DY,
    RT_ATTEND_DQ,
    RT_ATTEND_DK,
    RT_ATTEND_DV,
    RT_ATTEND_SHARE, /* dy . y of each query */
    RT_ATTEND_SCALE,
    RT_ATTEND_LOWEST, /* the score of a key that is not seen */
    RT_ATTEND_WINDOW,
    RT_ATTEND_ONE,
    RT_ATTEND_END
};

/* One of the program's.  `graph` has a plan if cuDNN computes it. */
typedef struct {
    const RtAttentionShape *shape;
    RtCudnnGraph graph;
} RtAttention;

struct RtGpuAttentions {
    RtCudnn cudnn;
    size_t version; /* 0: there is no cuDNN that can be used */
    int count;
    RtAttention *attention;
    void *workspace;
};

static inline int rt_attention_operands(const RtAttentionShape *s)
{
    return s->is_gradient ? RT_ATTEND_SHARE : RT_ATTEND_SUM;
}

/* Has cuDNN a plan for it that needs at most so much memory?  Without one the graph is closed. */
bool rt_attention_plan(const struct RtGpuAttentions *all, RtAttention *attention, int64_t most_workspace);

/* Queues it by cuDNN, which has a plan; false if cuDNN refuses. */
bool rt_attention_by_cudnn(const RtAttention *attention, const void *const operands[], void *workspace);

/* The operations of attention, or of its gradient. */
void rt_attention_describe(RtCudnnGraph *g, const RtAttentionShape *s);

#endif
