/* cudnn.h -- graphs of cuDNN's backend API (cudnn.c), which cuDNN makes one or a few kernels of: attention.c has two.
 *
 * cuDNN is not a part of CUDA, so neither it nor its headers are needed to build mpc, nor to run a trainer: what is
 * used of them is declared here.  tests/device/test_cudnn.c compares the constants with those of the headers.
 */
#ifndef MPC_CUDA_CUDNN_H
#define MPC_CUDA_CUDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of cudnn_graph.h, cuDNN 9: CUDNN_DATA_FLOAT is RT_CUDNN_DATA_FLOAT here. */
#define RT_CUDNN_CONSTANTS(C)                                                                                          \
    C(DATA_FLOAT, 0)                                                                                                   \
    C(DATA_HALF, 2)                                                                                                    \
    C(DATA_INT32, 4)                                                                                                   \
    C(DATA_BFLOAT16, 9)                                                                                                \
    C(DATA_BOOLEAN, 11)                                                                                                \
    C(TYPE_HANDLE, 0)                                                                                                  \
    C(TYPE_DATA_TYPE, 1)                                                                                               \
    C(TYPE_BOOLEAN, 2)                                                                                                 \
    C(TYPE_INT64, 3)                                                                                                   \
    C(TYPE_VOID_PTR, 6)                                                                                                \
    C(TYPE_HEUR_MODE, 8)                                                                                               \
    C(TYPE_NUMERICAL_NOTE, 11)                                                                                         \
    C(TYPE_POINTWISE_MODE, 14)                                                                                         \
    C(TYPE_BACKEND_DESCRIPTOR, 15)                                                                                     \
    C(TYPE_REDUCTION_OPERATOR_TYPE, 18)                                                                                \
    C(TYPE_CHAR, 24)                                                                                                   \
    C(BACKEND_POINTWISE_DESCRIPTOR, 0)                                                                                 \
    C(BACKEND_ENGINE_DESCRIPTOR, 2)                                                                                    \
    C(BACKEND_ENGINECFG_DESCRIPTOR, 3)                                                                                 \
    C(BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                                                                                \
    C(BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                                                                            \
    C(BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)                                                                      \
    C(BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                                                                           \
    C(BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                                                                             \
    C(BACKEND_TENSOR_DESCRIPTOR, 17)                                                                                   \
    C(BACKEND_MATMUL_DESCRIPTOR, 18)                                                                                   \
    C(BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)                                                                         \
    C(BACKEND_REDUCTION_DESCRIPTOR, 21)                                                                                \
    C(BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)                                                                      \
    C(BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31)                                                                        \
    C(BACKEND_DEVICEPROP_DESCRIPTOR, 38)                                                                               \
    C(ATTR_POINTWISE_MODE, 0)                                                                                          \
    C(ATTR_POINTWISE_MATH_PREC, 1)                                                                                     \
    C(ATTR_POINTWISE_AXIS, 9)                                                                                          \
    C(ATTR_ENGINEHEUR_MODE, 200)                                                                                       \
    C(ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                                                                            \
    C(ATTR_ENGINEHEUR_RESULTS, 202)                                                                                    \
    C(ATTR_ENGINEHEUR_DEVICEPROP, 204)                                                                                 \
    C(ATTR_ENGINECFG_ENGINE, 300)                                                                                      \
    C(ATTR_EXECUTION_PLAN_HANDLE, 400)                                                                                 \
    C(ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)                                                                          \
    C(ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)                                                                         \
    C(ATTR_EXECUTION_PLAN_DEVICEPROP, 407)                                                                             \
    C(ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)                                                                     \
    C(ATTR_OPERATION_POINTWISE_XDESC, 751)                                                                             \
    C(ATTR_OPERATION_POINTWISE_BDESC, 752)                                                                             \
    C(ATTR_OPERATION_POINTWISE_YDESC, 753)                                                                             \
    C(ATTR_OPERATION_POINTWISE_TDESC, 758)                                                                             \
    C(ATTR_OPERATIONGRAPH_HANDLE, 800)                                                                                 \
    C(ATTR_OPERATIONGRAPH_OPS, 801)                                                                                    \
    C(ATTR_TENSOR_BYTE_ALIGNMENT, 900)                                                                                 \
    C(ATTR_TENSOR_DATA_TYPE, 901)                                                                                      \
    C(ATTR_TENSOR_DIMENSIONS, 902)                                                                                     \
    C(ATTR_TENSOR_STRIDES, 903)                                                                                        \
    C(ATTR_TENSOR_UNIQUE_ID, 906)                                                                                      \
    C(ATTR_TENSOR_IS_VIRTUAL, 907)                                                                                     \
    C(ATTR_TENSOR_IS_BY_VALUE, 908)                                                                                    \
    C(ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                                                                              \
    C(ATTR_VARIANT_PACK_DATA_POINTERS, 1001)                                                                           \
    C(ATTR_VARIANT_PACK_WORKSPACE, 1003)                                                                               \
    C(ATTR_ENGINE_NUMERICAL_NOTE, 1303)                                                                                \
    C(ATTR_MATMUL_COMP_TYPE, 1500)                                                                                     \
    C(ATTR_OPERATION_MATMUL_ADESC, 1520)                                                                               \
    C(ATTR_OPERATION_MATMUL_BDESC, 1521)                                                                               \
    C(ATTR_OPERATION_MATMUL_CDESC, 1522)                                                                               \
    C(ATTR_OPERATION_MATMUL_DESC, 1523)                                                                                \
    C(ATTR_REDUCTION_OPERATOR, 1600)                                                                                   \
    C(ATTR_REDUCTION_COMP_TYPE, 1601)                                                                                  \
    C(ATTR_OPERATION_REDUCTION_XDESC, 1610)                                                                            \
    C(ATTR_OPERATION_REDUCTION_YDESC, 1611)                                                                            \
    C(ATTR_OPERATION_REDUCTION_DESC, 1612)                                                                             \
    C(ATTR_OPERATION_RESHAPE_XDESC, 2200)                                                                              \
    C(ATTR_OPERATION_RESHAPE_YDESC, 2201)                                                                              \
    C(ATTR_DEVICEPROP_JSON_REPRESENTATION, 2702)                                                                       \
    C(POINTWISE_ADD, 0)                                                                                                \
    C(POINTWISE_MUL, 1)                                                                                                \
    C(POINTWISE_DIV, 6)                                                                                                \
    C(POINTWISE_SUB, 9)                                                                                                \
    C(POINTWISE_EXP, 13)                                                                                               \
    C(POINTWISE_LOG, 15)                                                                                               \
    C(POINTWISE_CMP_GT, 302)                                                                                           \
    C(POINTWISE_CMP_GE, 303)                                                                                           \
    C(POINTWISE_GEN_INDEX, 501)                                                                                        \
    C(POINTWISE_BINARY_SELECT, 601)                                                                                    \
    C(REDUCE_TENSOR_ADD, 0)                                                                                            \
    C(REDUCE_TENSOR_MAX, 3)                                                                                            \
    C(HEUR_MODE_A, 3)                                                                                                  \
    C(NUMERICAL_NOTE_NONDETERMINISTIC, 4)

#define RT_CUDNN_CONSTANT(name, value) RT_CUDNN_##name = (value),
enum { RT_CUDNN_CONSTANTS(RT_CUDNN_CONSTANT) };
#undef RT_CUDNN_CONSTANT

/* Functions return a status, 0 for success. */
typedef union {
    struct {
        size_t (*cudnnGetVersion)(void); /* 91900 is 9.19.0 */
        void (*cudnnGetLastErrorString)(char *text, size_t room);
        int (*cudnnCreate)(void **handle);
        int (*cudnnDestroy)(void *handle);
        int (*cudnnSetStream)(void *handle, void *stream);
        int (*cudnnBackendCreateDescriptor)(int kind, void **descriptor);
        int (*cudnnBackendDestroyDescriptor)(void *descriptor);
        int (*cudnnBackendFinalize)(void *descriptor);
        int (*cudnnBackendSetAttribute)(void *descriptor, int name, int type, int64_t count, const void *values);
        int (*cudnnBackendGetAttribute)(void *descriptor, int name, int type, int64_t room, int64_t *count,
                                        void *values);
        int (*cudnnBackendExecute)(void *handle, void *plan, void *pack);
    };
    void *at[11];
} RtCudnnFunctions;

extern const char *const rt_cudnn_names[11]; /* of the functions, in this order */

typedef struct {
    RtCudnnFunctions call;
    void *handle; /* or, where plans are only made: NULL, and a descriptor of the device */
    void *device;
} RtCudnn;

enum { RT_CUDNN_DIMS = 4, RT_CUDNN_ENGINES = 16 };

typedef struct {
    void *descriptor;
    int type;
    int64_t dim[RT_CUDNN_DIMS], stride[RT_CUDNN_DIMS];
} RtCudnnTensor;

/* After the first error nothing more is asked of cuDNN, and there is no plan.  Owns all descriptors. */
typedef struct {
    const RtCudnn *cudnn;
    int noperations, nmade, nengines;
    void *operation[32], *made[160];
    int64_t next; /* the number of the next tensor between operations */
    bool failed;
    int64_t workspace; /* bytes that the plan needs */
    void *plan;        /* NULL: there is none */
} RtCudnnGraph;

/* Tensors in memory, and numbers of f32, are named by numbers from 1 on, in rt_cudnn_run too. */
enum { RT_CUDNN_OPERANDS = 32 };

RtCudnnGraph rt_cudnn_graph(const RtCudnn *cudnn);
void rt_cudnn_close(RtCudnnGraph *graph);

RtCudnnTensor rt_cudnn_operand(RtCudnnGraph *g, int number, int type, const int64_t dim[], const int64_t stride[]);
RtCudnnTensor rt_cudnn_number(RtCudnnGraph *g, int number);

/* A result between operations, row-major. */
RtCudnnTensor rt_cudnn_value(RtCudnnGraph *g, int type, const int64_t dim[]);

RtCudnnTensor rt_cudnn_transpose(RtCudnnGraph *g, RtCudnnTensor x, int type); /* exchanges the last two dims */
void rt_cudnn_matmul(RtCudnnGraph *g, RtCudnnTensor a, RtCudnnTensor b, RtCudnnTensor y);
void rt_cudnn_reduce(RtCudnnGraph *g, int operator, RtCudnnTensor x, RtCudnnTensor y);

/* y = mode(x, b), element by element; b: broadcast along dims of one element, or NULL.  The second has a result of x's
 * dims. */
void rt_cudnn_point_to(RtCudnnGraph *g, int mode, RtCudnnTensor x, const RtCudnnTensor *b, RtCudnnTensor y);
RtCudnnTensor rt_cudnn_point(RtCudnnGraph *g, int mode, int type, RtCudnnTensor x, const RtCudnnTensor *b);
RtCudnnTensor rt_cudnn_index(RtCudnnGraph *g, int axis, RtCudnnTensor like); /* i32: the element's place along it */
RtCudnnTensor rt_cudnn_select(RtCudnnGraph *g, RtCudnnTensor is_x, RtCudnnTensor x, RtCudnnTensor otherwise);

/* Makes a plan of the first engine that gives the same bits each time and needs no larger workspace.  False if cuDNN
 * has none. */
bool rt_cudnn_plan(RtCudnnGraph *g, int64_t most_workspace);

/* Queues it; operands are addresses on the device, numbers on the host.  False if cuDNN refuses. */
bool rt_cudnn_run(const RtCudnnGraph *g, int count, const int64_t numbers[], void *const at[], void *workspace);

#endif
