/* cudnn.c -- replaces libcudnn.so.9: graphs of matmuls, pointwise operations, reductions and transpositions, one after
 * the other by loops, whatever they are graphs of.
 *
 * EMULATED_CUDNN=
 *   old      it is version 9.1
 *   none     it has no engine for any graph, or
 *   late     none of which it makes a plan
 *   wrong    query 1 sees key 0 alone: all indices of queries are 0
 *   varies   results depend on how often it has run
 *   slow     each run takes a million seconds, by events
 * EMULATED_CUDNN_BYTES=N   of workspace, which it writes (4096).
 */
#include "device.h"

#include "convert.h"
#include "cuda/cudnn.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

enum {
    ATTRIBUTES = 12,
    GRAPH = 40,
    TENSORS = 96,
    DIMS = RT_CUDNN_DIMS,
    REFUSED = 3000 /* CUDNN_STATUS_NOT_SUPPORTED */
};

typedef struct Descriptor Descriptor;

typedef struct {
    int name, type;
    int64_t count;
    void *values;
} Attribute;

struct Descriptor {
    int kind, count;
    bool is_final;
    Attribute attribute[ATTRIBUTES];
    const Descriptor *from; /* of an engine's configuration: the graph */
};

static bool is_said(const char *how)
{
    const char *said = getenv("EMULATED_CUDNN");
    return said && strcmp(said, how) == 0;
}

size_t cudnnGetVersion(void) { return is_said("old") ? 90100 : 91900; }

void cudnnGetLastErrorString(char *text, size_t room) { snprintf(text, room, "emulated cuDNN"); }

/* The handle is where its stream is kept. */
int cudnnCreate(void **handle)
{
    *handle = calloc(1, sizeof(cudaStream_t));
    return 0;
}

int cudnnDestroy(void *handle)
{
    free(handle);
    return 0;
}

int cudnnSetStream(void *handle, void *stream)
{
    memcpy(handle, &stream, sizeof stream);
    return 0;
}

/* --- Descriptors ---------------------------------------------------------------------------- */

int cudnnBackendCreateDescriptor(int kind, void **descriptor)
{
    Descriptor *d = calloc(1, sizeof *d);
    d->kind = kind;
    *descriptor = d;
    return 0;
}

int cudnnBackendDestroyDescriptor(void *descriptor)
{
    Descriptor *d = descriptor;
    for (int i = 0; i < d->count; i++)
        free(d->attribute[i].values);
    free(d);
    return 0;
}

static size_t bytes_of(int type)
{
    switch (type) {
    case RT_CUDNN_TYPE_INT64:
    case RT_CUDNN_TYPE_HANDLE:
    case RT_CUDNN_TYPE_VOID_PTR:
    case RT_CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    case RT_CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    default:
        return sizeof(int);
    }
}

int cudnnBackendSetAttribute(void *descriptor, int name, int type, int64_t count, const void *values)
{
    Descriptor *d = descriptor;
    if (d->is_final || d->count == ATTRIBUTES)
        return REFUSED;
    for (int64_t i = 0; type == RT_CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++)
        if (!((Descriptor *const *)values)[i]->is_final)
            return REFUSED;
    const size_t bytes = (size_t)count * bytes_of(type);
    d->attribute[d->count] = (Attribute){ name, type, count, malloc(bytes) };
    memcpy(d->attribute[d->count++].values, values, bytes);
    return 0;
}

static const Attribute *find(const Descriptor *d, int name)
{
    for (int i = 0; i < d->count; i++)
        if (d->attribute[i].name == name)
            return &d->attribute[i];
    return NULL;
}

static const Attribute *need(const Descriptor *d, int name)
{
    const Attribute *a = find(d, name);
    if (!a)
        emulated_fault("emulated cuDNN: a descriptor of kind %d lacks attribute %d", d->kind, name);
    return a;
}

static const Descriptor *descriptor_at(const Descriptor *d, int name)
{
    const Attribute *a = find(d, name);
    return a ? *(Descriptor *const *)a->values : NULL;
}

static int number_at(const Descriptor *d, int name) { return *(const int *)need(d, name)->values; }

int cudnnBackendFinalize(void *descriptor)
{
    Descriptor *d = descriptor;
    if (d->kind == RT_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        const Descriptor *config = descriptor_at(d, RT_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
        if (!config || is_said("late"))
            return REFUSED;
        d->from = config->from;
    }
    if (d->kind == RT_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
        need(d, RT_CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
    d->is_final = true;
    return 0;
}

int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t room, int64_t *count, void *values)
{
    const Descriptor *d = descriptor;
    (void)type;
    (void)room;
    *count = 1;
    if (name == RT_CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        Descriptor *config = ((Descriptor **)values)[0];
        *count = !is_said("none");
        config->from = descriptor_at(d, RT_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        config->is_final = true;
    } else if (name == RT_CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
        *count = 0;
    } else if (name == RT_CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
        *(int64_t *)values = emulated_number("EMULATED_CUDNN_BYTES", 4096);
    } else if (name != RT_CUDNN_ATTR_ENGINECFG_ENGINE) {
        return REFUSED;
    }
    return 0;
}

/* --- Tensors -------------------------------------------------------------------------------- */

typedef struct {
    int64_t number, dim[DIMS], stride[DIMS], size; /* elements, with gaps */
    int type;
    void *memory; /* of an operand */
    float value;  /* of a number */
    bool is_number;
    double *values; /* of a result between operations */
} Tensor;

/* A graph with operands, to be run whenever the stream comes to it. */
typedef struct {
    int noperations, ntensors;
    Descriptor operation[GRAPH]; /* copies: their attributes stay, as the plan owns them */
    Tensor tensor[TENSORS];
    char *workspace;
} Run;

static int64_t offset_of(const Tensor *t, const int64_t at[DIMS])
{
    int64_t offset = 0;
    for (int i = 0; i < DIMS; i++)
        offset += at[i] * t->stride[i];
    return offset;
}

static double get(const Tensor *t, int64_t offset)
{
    const uint16_t *bits = t->memory;
    if (t->is_number)
        return (double)t->value;
    if (t->values)
        return t->values[offset];
    return t->type == RT_CUDNN_DATA_FLOAT      ? (double)((const float *)t->memory)[offset]
           : t->type == RT_CUDNN_DATA_BFLOAT16 ? (double)rt_float_of_bf16(bits[offset])
                                               : (double)rt_float_of_f16(bits[offset]);
}

static void put(const Tensor *t, int64_t offset, double value)
{
    const float rounded = (float)value;
    uint16_t *bits = t->memory;
    if (t->values)
        t->values[offset] = t->type == RT_CUDNN_DATA_BFLOAT16 ? (double)rt_float_of_bf16(rt_bf16_of_float(rounded))
                            : t->type == RT_CUDNN_DATA_HALF   ? (double)rt_float_of_f16(rt_f16_of_float(rounded))
                                                              : (double)rounded;
    else if (t->type == RT_CUDNN_DATA_FLOAT)
        ((float *)t->memory)[offset] = rounded;
    else
        bits[offset] = t->type == RT_CUDNN_DATA_BFLOAT16 ? rt_bf16_of_float(rounded) : rt_f16_of_float(rounded);
}

static Tensor *tensor_of(Run *run, const Descriptor *d)
{
    const int64_t number = *(const int64_t *)need(d, RT_CUDNN_ATTR_TENSOR_UNIQUE_ID)->values;
    for (int i = 0; i < run->ntensors; i++)
        if (run->tensor[i].number == number)
            return &run->tensor[i];
    Tensor *t = &run->tensor[run->ntensors++];
    *t = (Tensor){ .number = number, .type = number_at(d, RT_CUDNN_ATTR_TENSOR_DATA_TYPE), .size = 1 };
    memcpy(t->dim, need(d, RT_CUDNN_ATTR_TENSOR_DIMENSIONS)->values, sizeof t->dim);
    memcpy(t->stride, need(d, RT_CUDNN_ATTR_TENSOR_STRIDES)->values, sizeof t->stride);
    for (int i = 0; i < DIMS; i++)
        t->size += (t->dim[i] - 1) * t->stride[i];
    return t;
}

/* Of an operation's tensor; its values are there from its first use on. */
static Tensor *operand(Run *run, const Descriptor *operation, int name)
{
    const Descriptor *d = descriptor_at(operation, name);
    Tensor *t = d ? tensor_of(run, d) : NULL;
    if (t && !t->memory && !t->is_number && !t->values) {
        if (!*(const bool *)need(d, RT_CUDNN_ATTR_TENSOR_IS_VIRTUAL)->values)
            emulated_fault("emulated cuDNN: tensor %d has no address", (int)t->number);
        t->values = calloc((size_t)t->size, sizeof *t->values);
    }
    return t;
}

/* The next place in these dims, row-major; false after the last. */
static bool next(int64_t at[DIMS], const int64_t dim[DIMS])
{
    for (int i = DIMS - 1; i >= 0; i--) {
        if (++at[i] < dim[i])
            return true;
        at[i] = 0;
    }
    return false;
}

/* The element of `t` that belongs to a place among `dim`: dims of fewer elements are shared by neighbours. */
static int64_t shared_offset(const Tensor *t, const int64_t at[DIMS], const int64_t dim[DIMS])
{
    int64_t own[DIMS];
    for (int i = 0; i < DIMS; i++)
        own[i] = at[i] * t->dim[i] / dim[i];
    return offset_of(t, own);
}

/* --- Operations ----------------------------------------------------------------------------- */

static void do_matmul(Run *run, const Descriptor *o)
{
    const Tensor *a = operand(run, o, RT_CUDNN_ATTR_OPERATION_MATMUL_ADESC),
                 *b = operand(run, o, RT_CUDNN_ATTR_OPERATION_MATMUL_BDESC),
                 *c = operand(run, o, RT_CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    int64_t at[DIMS] = { 0 };
    if (a->dim[3] != b->dim[2] || a->dim[2] != c->dim[2] || b->dim[3] != c->dim[3])
        emulated_fault("emulated cuDNN: operands of a product do not fit");
    do {
        double sum = 0;
        for (int64_t k = 0; k < a->dim[3]; k++) {
            const int64_t left[] = { at[0], at[1], at[2], k };
            const int64_t right[] = { at[0], at[1] * b->dim[1] / c->dim[1], k, at[3] };
            sum += get(a, offset_of(a, left)) * get(b, offset_of(b, right));
        }
        put(c, offset_of(c, at), sum);
    } while (next(at, c->dim));
}

static void do_reduction(Run *run, const Descriptor *o)
{
    const Tensor *x = operand(run, o, RT_CUDNN_ATTR_OPERATION_REDUCTION_XDESC),
                 *y = operand(run, o, RT_CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    const bool is_max = number_at(descriptor_at(o, RT_CUDNN_ATTR_OPERATION_REDUCTION_DESC),
                                  RT_CUDNN_ATTR_REDUCTION_OPERATOR) == RT_CUDNN_REDUCE_TENSOR_MAX;
    double *sum = malloc((size_t)y->size * sizeof *sum);
    int64_t at[DIMS] = { 0 };
    for (int64_t i = 0; i < y->size; i++)
        sum[i] = is_max ? -INFINITY : 0;
    do {
        double *of = &sum[shared_offset(y, at, x->dim)];
        const double value = get(x, offset_of(x, at));
        *of = !is_max ? *of + value : value > *of ? value : *of;
    } while (next(at, x->dim));
    do
        put(y, offset_of(y, at), sum[offset_of(y, at)]);
    while (next(at, y->dim));
    free(sum);
}

/* The strides of both are those of the same memory. */
static void do_reshape(Run *run, const Descriptor *o)
{
    const Tensor *x = operand(run, o, RT_CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
                 *y = operand(run, o, RT_CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
    int64_t at[DIMS] = { 0 };
    do
        put(y, offset_of(x, at), get(x, offset_of(x, at)));
    while (next(at, x->dim));
}

static double pointwise(int mode, double x, double b)
{
    switch (mode) {
    case RT_CUDNN_POINTWISE_ADD:
        return x + b;
    case RT_CUDNN_POINTWISE_SUB:
        return x - b;
    case RT_CUDNN_POINTWISE_MUL:
        return x * b;
    case RT_CUDNN_POINTWISE_DIV:
        return x / b;
    case RT_CUDNN_POINTWISE_EXP:
        return exp(x);
    case RT_CUDNN_POINTWISE_LOG:
        return log(x);
    case RT_CUDNN_POINTWISE_CMP_GT:
        return x > b;
    case RT_CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    default:
        emulated_fault("emulated cuDNN: no such pointwise operation is emulated: %d", mode);
    }
}

static void do_pointwise(Run *run, const Descriptor *o)
{
    const Descriptor *how = descriptor_at(o, RT_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const int mode = number_at(how, RT_CUDNN_ATTR_POINTWISE_MODE);
    const Attribute *axis = find(how, RT_CUDNN_ATTR_POINTWISE_AXIS);
    const Tensor *x = operand(run, o, RT_CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
                 *b = operand(run, o, RT_CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
                 *t = operand(run, o, RT_CUDNN_ATTR_OPERATION_POINTWISE_TDESC),
                 *y = operand(run, o, RT_CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    int64_t at[DIMS] = { 0 };
    do {
        double value = get(x, shared_offset(x, at, y->dim)), other = b ? get(b, shared_offset(b, at, y->dim)) : 0;
        if (mode == RT_CUDNN_POINTWISE_GEN_INDEX) {
            const int64_t along = *(const int64_t *)axis->values;
            value = along == 2 && is_said("wrong") ? 0 : (double)at[along];
        } else if (mode == RT_CUDNN_POINTWISE_BINARY_SELECT) {
            value = get(t, shared_offset(t, at, y->dim)) != 0 ? value : other;
        } else {
            value = pointwise(mode, value, other);
        }
        put(y, offset_of(y, at), value);
    } while (next(at, y->dim));
}

/* --- Execution ------------------------------------------------------------------------------ */

static void end_run(Run *run)
{
    static int times;
    for (int i = 0; i < run->ntensors; i++) {
        free(run->tensor[i].values);
        run->tensor[i].values = NULL;
    }
    memset(run->workspace, 0xA5, (size_t)emulated_number("EMULATED_CUDNN_BYTES", 4096));
    for (int i = 0; i < run->ntensors && is_said("varies"); i++)
        if (run->tensor[i].memory && run->tensor[i].number == 4) /* y */
            put(&run->tensor[i], 0, get(&run->tensor[i], 0) * (1 + 0.01 * ++times));
    if (is_said("slow"))
        emulated_take_longer(1e6);
}

static bool work_run(void *data)
{
    Run *run;
    memcpy(&run, data, sizeof run);
    for (int i = 0; i < run->noperations; i++) {
        const Descriptor *o = &run->operation[i];
        if (o->kind == RT_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
            do_matmul(run, o);
        else if (o->kind == RT_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
            do_reduction(run, o);
        else if (o->kind == RT_CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
            do_reshape(run, o);
        else
            do_pointwise(run, o);
    }
    end_run(run);
    return true;
}

/* The tensors that have addresses; numbers are read now. */
static void take_operands(Run *run, const Descriptor *pack)
{
    const Attribute *numbers = need(pack, RT_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                    *pointers = need(pack, RT_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (int i = 0; i < run->noperations; i++)
        for (int k = 0; k < run->operation[i].count; k++) {
            const Attribute *a = &run->operation[i].attribute[k];
            const Descriptor *d = *(Descriptor *const *)a->values;
            for (int64_t n = 0; d->kind == RT_CUDNN_BACKEND_TENSOR_DESCRIPTOR && n < numbers->count; n++)
                if (((const int64_t *)numbers->values)[n] ==
                    *(const int64_t *)need(d, RT_CUDNN_ATTR_TENSOR_UNIQUE_ID)->values) {
                    Tensor *t = tensor_of(run, d);
                    void *at = ((void *const *)pointers->values)[n];
                    t->is_number = *(const bool *)need(d, RT_CUDNN_ATTR_TENSOR_IS_BY_VALUE)->values;
                    t->memory = t->is_number ? NULL : at;
                    t->value = t->is_number ? *(const float *)at : 0;
                    if (!t->is_number && (uintptr_t)at % 16)
                        emulated_fault("emulated cuDNN: an operand is not aligned to 16 bytes");
                }
        }
}

int cudnnBackendExecute(void *handle, void *plan, void *pack)
{
    const Descriptor *graph = ((const Descriptor *)plan)->from;
    const Attribute *operations = need(graph, RT_CUDNN_ATTR_OPERATIONGRAPH_OPS);
    Run *run = calloc(1, sizeof *run); /* stays: a recorded graph runs it again */
    cudaStream_t stream;
    memcpy(&stream, handle, sizeof stream);
    run->noperations = (int)operations->count;
    for (int i = 0; i < run->noperations; i++)
        run->operation[i] = *((Descriptor *const *)operations->values)[i];
    memcpy(&run->workspace, need(pack, RT_CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->values, sizeof run->workspace);
    take_operands(run, pack);
    emulated_enqueue(stream, work_run, &run, sizeof run);
    return 0;
}
