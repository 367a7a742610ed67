/* attention.h -- attention by cuDNN (attention_graph.c describes it, attention.c runs it) and by the program's kernel
 * for Hopper (attention_hopper.c): attention_choose.c compares them with the program's general kernels. */
#ifndef MPC_CUDA_ATTENTION_H
#define MPC_CUDA_ATTENTION_H

#include "cudnn.h"
#include "rt.h"

#include <cuda_runtime_api.h>
#include <cudaTypedefs.h>

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

/* Who computes it; the general kernels can always, the others are candidates where they are there. */
typedef enum { RT_BY_KERNELS, RT_BY_HOPPER, RT_BY_CUDNN, RT_ATTENTION_KINDS } RtAttentionKind;

/* One of the program's. */
typedef struct {
    const RtAttentionShape *shape;
    RtAttentionKind by;
    cudaKernel_t hopper; /* NULL: it is no candidate */
    RtCudnnGraph graph;  /* has a plan if cuDNN computes it */
} RtAttention;

struct RtGpuAttentions {
    RtCudnn cudnn;
    size_t version;                           /* 0: there is no cuDNN that can be used */
    PFN_cuTensorMapEncodeTiled_v12000 encode; /* NULL: the kernels for Hopper cannot be used */
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

/* Finds the kernels for Hopper; false if they cannot be used here. */
bool rt_attention_open_hopper(Rt *rt, struct RtGpuAttentions *all);

/* Queues that kernel, which is there; false if it cannot be. */
bool rt_attention_by_hopper(Rt *rt, const RtAttention *attention, const void *const operands[]);

/* The operations of attention, or of its gradient. */
void rt_attention_describe(RtCudnnGraph *g, const RtAttentionShape *s);

#endif
