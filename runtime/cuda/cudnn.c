/* cudnn.c -- graphs of cuDNN's backend API: descriptors with attributes, made, finalized, and made a plan of.
 *
 * https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/cudnn-graph-library.html */
#include "cudnn.h"

#include <string.h>

const char *const rt_cudnn_names[11] = {
    "cudnnGetVersion",
    "cudnnGetLastErrorString",
    "cudnnCreate",
    "cudnnDestroy",
    "cudnnSetStream",
    "cudnnBackendCreateDescriptor",
    "cudnnBackendDestroyDescriptor",
    "cudnnBackendFinalize",
    "cudnnBackendSetAttribute",
    "cudnnBackendGetAttribute",
    "cudnnBackendExecute",
};

/* --- Descriptors ---------------------------------------------------------------------------- */

typedef struct {
    int name, type;
    int64_t count;
    const void *values;
} Attribute;

#define DESCRIPTOR(name, descriptor)                                                                                   \
    (Attribute) { RT_CUDNN_ATTR_##name, RT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &(descriptor) }
#define ONE(name, type, value)                                                                                         \
    (Attribute) { RT_CUDNN_ATTR_##name, RT_CUDNN_TYPE_##type, 1, &(value) }
#define NONE ((Attribute){ .count = 0 })

/* NULL after an error. */
static void *create(RtCudnnGraph *g, int kind)
{
    void *descriptor = NULL;
    g->failed = g->failed || g->nmade == sizeof g->made / sizeof *g->made ||
                g->cudnn->call.cudnnBackendCreateDescriptor(kind, &descriptor) != 0;
    if (!g->failed)
        g->made[g->nmade++] = descriptor;
    return g->failed ? NULL : descriptor;
}

static bool set_all(const RtCudnnGraph *g, void *descriptor, int count, const Attribute attributes[])
{
    for (const Attribute *a = attributes; a < attributes + count; a++)
        if (a->count > 0 &&
            g->cudnn->call.cudnnBackendSetAttribute(descriptor, a->name, a->type, a->count, a->values) != 0)
            return false;
    return g->cudnn->call.cudnnBackendFinalize(descriptor) == 0;
}

static void *make(RtCudnnGraph *g, int kind, int count, const Attribute attributes[])
{
    void *descriptor = create(g, kind);
    g->failed = g->failed || !set_all(g, descriptor, count, attributes);
    return descriptor;
}

static void add_operation(RtCudnnGraph *g, int kind, int count, const Attribute attributes[])
{
    void *operation = make(g, kind, count, attributes);
    g->failed = g->failed || g->noperations == sizeof g->operation / sizeof *g->operation;
    if (!g->failed)
        g->operation[g->noperations++] = operation;
}

RtCudnnGraph rt_cudnn_graph(const RtCudnn *cudnn)
{
    return (RtCudnnGraph){ .cudnn = cudnn, .next = RT_CUDNN_OPERANDS };
}

void rt_cudnn_close(RtCudnnGraph *g)
{
    while (g->nmade > 0)
        g->cudnn->call.cudnnBackendDestroyDescriptor(g->made[--g->nmade]);
    g->plan = NULL;
}

/* --- Tensors -------------------------------------------------------------------------------- */

static RtCudnnTensor make_tensor(RtCudnnGraph *g, int64_t number, RtCudnnTensor t, bool is_virtual, bool is_number)
{
    const int64_t alignment = is_number ? sizeof(float) : 16;
    const Attribute attributes[] = {
        ONE(TENSOR_DATA_TYPE, DATA_TYPE, t.type),
        { RT_CUDNN_ATTR_TENSOR_DIMENSIONS, RT_CUDNN_TYPE_INT64, RT_CUDNN_DIMS, t.dim },
        { RT_CUDNN_ATTR_TENSOR_STRIDES, RT_CUDNN_TYPE_INT64, RT_CUDNN_DIMS, t.stride },
        ONE(TENSOR_UNIQUE_ID, INT64, number),
        ONE(TENSOR_BYTE_ALIGNMENT, INT64, alignment),
        ONE(TENSOR_IS_VIRTUAL, BOOLEAN, is_virtual),
        ONE(TENSOR_IS_BY_VALUE, BOOLEAN, is_number),
    };
    t.descriptor = make(g, RT_CUDNN_BACKEND_TENSOR_DESCRIPTOR, sizeof attributes / sizeof *attributes, attributes);
    return t;
}

RtCudnnTensor rt_cudnn_operand(RtCudnnGraph *g, int number, int type, const int64_t dim[], const int64_t stride[])
{
    RtCudnnTensor t = { .type = type };
    memcpy(t.dim, dim, sizeof t.dim);
    memcpy(t.stride, stride, sizeof t.stride);
    return make_tensor(g, number, t, false, false);
}

RtCudnnTensor rt_cudnn_number(RtCudnnGraph *g, int number)
{
    const RtCudnnTensor t = { .type = RT_CUDNN_DATA_FLOAT, .dim = { 1, 1, 1, 1 }, .stride = { 1, 1, 1, 1 } };
    return make_tensor(g, number, t, false, true);
}

RtCudnnTensor rt_cudnn_value(RtCudnnGraph *g, int type, const int64_t dim[])
{
    RtCudnnTensor t = { .type = type };
    int64_t stride = 1;
    for (int i = RT_CUDNN_DIMS - 1; i >= 0; i--) {
        t.dim[i] = dim[i];
        t.stride[i] = stride;
        stride *= dim[i];
    }
    return make_tensor(g, g->next++, t, true, false);
}

/* --- Operations ----------------------------------------------------------------------------- */

RtCudnnTensor rt_cudnn_transpose(RtCudnnGraph *g, RtCudnnTensor x, int type)
{
    RtCudnnTensor y = x;
    y.type = type;
    for (int i = 2; i < RT_CUDNN_DIMS; i++) {
        y.dim[i] = x.dim[5 - i];
        y.stride[i] = x.stride[5 - i];
    }
    y = make_tensor(g, g->next++, y, true, false);
    const Attribute attributes[] = { DESCRIPTOR(OPERATION_RESHAPE_XDESC, x.descriptor),
                                     DESCRIPTOR(OPERATION_RESHAPE_YDESC, y.descriptor) };
    add_operation(g, RT_CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 2, attributes);
    return y;
}

void rt_cudnn_matmul(RtCudnnGraph *g, RtCudnnTensor a, RtCudnnTensor b, RtCudnnTensor y)
{
    const int type = RT_CUDNN_DATA_FLOAT;
    void *how = make(g, RT_CUDNN_BACKEND_MATMUL_DESCRIPTOR, 1, &ONE(MATMUL_COMP_TYPE, DATA_TYPE, type));
    const Attribute attributes[] = { DESCRIPTOR(OPERATION_MATMUL_ADESC, a.descriptor),
                                     DESCRIPTOR(OPERATION_MATMUL_BDESC, b.descriptor),
                                     DESCRIPTOR(OPERATION_MATMUL_CDESC, y.descriptor),
                                     DESCRIPTOR(OPERATION_MATMUL_DESC, how) };
    add_operation(g, RT_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 4, attributes);
}

void rt_cudnn_reduce(RtCudnnGraph *g, int operator, RtCudnnTensor x, RtCudnnTensor y)
{
    const int type = RT_CUDNN_DATA_FLOAT;
    const Attribute settings[] = { ONE(REDUCTION_COMP_TYPE, DATA_TYPE, type),
                                   ONE(REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, operator) };
    void *how = make(g, RT_CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 2, settings);
    const Attribute attributes[] = { DESCRIPTOR(OPERATION_REDUCTION_XDESC, x.descriptor),
                                     DESCRIPTOR(OPERATION_REDUCTION_YDESC, y.descriptor),
                                     DESCRIPTOR(OPERATION_REDUCTION_DESC, how) };
    add_operation(g, RT_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 3, attributes);
}

static void add_point(RtCudnnGraph *g, int mode, int64_t axis, RtCudnnTensor x, const RtCudnnTensor *b,
                      const RtCudnnTensor *condition, RtCudnnTensor y)
{
    const int type = y.type == RT_CUDNN_DATA_BOOLEAN ? RT_CUDNN_DATA_BOOLEAN : RT_CUDNN_DATA_FLOAT;
    const Attribute settings[] = { ONE(POINTWISE_MODE, POINTWISE_MODE, mode), ONE(POINTWISE_MATH_PREC, DATA_TYPE, type),
                                   axis >= 0 ? ONE(POINTWISE_AXIS, INT64, axis) : NONE };
    void *how = make(g, RT_CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 3, settings);
    const Attribute attributes[] = { DESCRIPTOR(OPERATION_POINTWISE_PW_DESCRIPTOR, how),
                                     DESCRIPTOR(OPERATION_POINTWISE_XDESC, x.descriptor),
                                     b ? DESCRIPTOR(OPERATION_POINTWISE_BDESC, b->descriptor) : NONE,
                                     condition ? DESCRIPTOR(OPERATION_POINTWISE_TDESC, condition->descriptor) : NONE,
                                     DESCRIPTOR(OPERATION_POINTWISE_YDESC, y.descriptor) };
    add_operation(g, RT_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 5, attributes);
}

void rt_cudnn_point_to(RtCudnnGraph *g, int mode, RtCudnnTensor x, const RtCudnnTensor *b, RtCudnnTensor y)
{
    add_point(g, mode, -1, x, b, NULL, y);
}

RtCudnnTensor rt_cudnn_point(RtCudnnGraph *g, int mode, int type, RtCudnnTensor x, const RtCudnnTensor *b)
{
    const RtCudnnTensor y = rt_cudnn_value(g, type, x.dim);
    add_point(g, mode, -1, x, b, NULL, y);
    return y;
}

RtCudnnTensor rt_cudnn_index(RtCudnnGraph *g, int axis, RtCudnnTensor like)
{
    const RtCudnnTensor y = rt_cudnn_value(g, RT_CUDNN_DATA_INT32, like.dim);
    add_point(g, RT_CUDNN_POINTWISE_GEN_INDEX, axis, like, NULL, NULL, y);
    return y;
}

RtCudnnTensor rt_cudnn_select(RtCudnnGraph *g, RtCudnnTensor is_x, RtCudnnTensor x, RtCudnnTensor otherwise)
{
    const RtCudnnTensor y = rt_cudnn_value(g, x.type, x.dim);
    add_point(g, RT_CUDNN_POINTWISE_BINARY_SELECT, -1, x, &otherwise, &is_x, y);
    return y;
}

/* --- Plans ---------------------------------------------------------------------------------- */

/* Does it say of itself that the same operands may give other bits? */
static bool varies(RtCudnnGraph *g, void *engine_config)
{
    int note[16] = { 0 };
    int64_t count = 0;
    void *engine = create(g, RT_CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (!engine ||
        g->cudnn->call.cudnnBackendGetAttribute(engine_config, RT_CUDNN_ATTR_ENGINECFG_ENGINE,
                                                RT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine) != 0 ||
        g->cudnn->call.cudnnBackendGetAttribute(engine, RT_CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                RT_CUDNN_TYPE_NUMERICAL_NOTE, 16, &count, note) != 0)
        return true;
    for (int64_t i = 0; i < count; i++)
        if (note[i] == RT_CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return true;
    return false;
}

static bool take_plan(RtCudnnGraph *g, void *engine_config, int64_t most_workspace)
{
    void *plan = create(g, RT_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t count = 0, workspace = 0;
    const Attribute attributes[] = { g->cudnn->handle ? ONE(EXECUTION_PLAN_HANDLE, HANDLE, g->cudnn->handle)
                                                      : DESCRIPTOR(EXECUTION_PLAN_DEVICEPROP, g->cudnn->device),
                                     DESCRIPTOR(EXECUTION_PLAN_ENGINE_CONFIG, engine_config) };
    if (!plan || !set_all(g, plan, 2, attributes) ||
        g->cudnn->call.cudnnBackendGetAttribute(plan, RT_CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, RT_CUDNN_TYPE_INT64,
                                                1, &count, &workspace) != 0 ||
        workspace > most_workspace)
        return false;
    g->workspace = workspace;
    g->plan = plan;
    return true;
}

bool rt_cudnn_plan(RtCudnnGraph *g, int64_t most_workspace)
{
    const int mode = RT_CUDNN_HEUR_MODE_A;
    void *config[RT_CUDNN_ENGINES];
    int64_t count = 0;
    const Attribute operations[] = { { RT_CUDNN_ATTR_OPERATIONGRAPH_OPS, RT_CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                       g->noperations, g->operation },
                                     g->cudnn->handle ? ONE(OPERATIONGRAPH_HANDLE, HANDLE, g->cudnn->handle) : NONE };
    void *graph = make(g, RT_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 2, operations);
    const Attribute question[] = { DESCRIPTOR(ENGINEHEUR_OPERATION_GRAPH, graph), ONE(ENGINEHEUR_MODE, HEUR_MODE, mode),
                                   g->cudnn->handle ? NONE : DESCRIPTOR(ENGINEHEUR_DEVICEPROP, g->cudnn->device) };
    void *heuristic = make(g, RT_CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 3, question);
    for (int i = 0; i < RT_CUDNN_ENGINES; i++)
        config[i] = create(g, RT_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->failed || g->cudnn->call.cudnnBackendGetAttribute(heuristic, RT_CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                             RT_CUDNN_TYPE_BACKEND_DESCRIPTOR, RT_CUDNN_ENGINES, &count,
                                                             config) != 0)
        return false;
    g->nengines = (int)count;
    for (int i = 0; i < count && !g->plan; i++)
        if (!varies(g, config[i]))
            take_plan(g, config[i], most_workspace);
    return g->plan != NULL;
}

bool rt_cudnn_run(const RtCudnnGraph *g, int count, const int64_t numbers[], void *const at[], void *workspace)
{
    void *pack = NULL;
    const Attribute attributes[] = {
        { RT_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, RT_CUDNN_TYPE_INT64, count, numbers },
        { RT_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, RT_CUDNN_TYPE_VOID_PTR, count, at },
        ONE(VARIANT_PACK_WORKSPACE, VOID_PTR, workspace),
    };
    if (g->cudnn->call.cudnnBackendCreateDescriptor(RT_CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack) != 0)
        return false;
    const bool is_queued =
        set_all(g, pack, 3, attributes) && g->cudnn->call.cudnnBackendExecute(g->cudnn->handle, g->plan, pack) == 0;
    g->cudnn->call.cudnnBackendDestroyDescriptor(pack);
    return is_queued;
}
