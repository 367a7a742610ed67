/* plans.c -- has the real cuDNN plans for attention on a GPU that is not here?  Its properties are given as text, and
 * cuDNN compiles for it; what would load the result is a driver that says that it did (test_cudnn.py makes one).
 *
 *   plans VERSION [SHAPE ...]      of compute capability, as 900: prints for each of these shapes, or for all, how many
 *                                  engines there are, and the workspace
 */
#include "cuda/attention.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define SAME(name, value) _Static_assert((int)CUDNN_##name == (value), "as in cuDNN's header");
RT_CUDNN_CONSTANTS(SAME)
#endif

static const char properties[] =
    "{\"deviceVer\": %d, \"driverVer\": 13000, \"deviceName\": \"a GPU\", \"cudaDeviceId\": 0, \"pciDeviceId\": 0, "
    "\"multiProcessorCount\": 132, \"warpSize\": 32, \"totalGlobalMem\": 85000000000, \"l2CacheSize\": 52428800, "
    "\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, "
    "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": %d, \"reservedSharedMemoryPerBlock\": 1024, "
    "\"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, "
    "\"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"smClockRateKHz\": 1980000, \"memClockRateKHz\": 2619000}";

/* As mpc lays out GPT-2's attention (q, k and v in one tensor), Llama's, BERT's. */
typedef struct {
    const char *name;
    int64_t batch, length, heads, key_heads, feature, window;
    bool causal, together;
    RtType type;
} Shape;

static const Shape shapes[] = {
    { "gpt2", 8, 1024, 12, 12, 64, 0, true, true, RT_BF16 },
    { "gpt2, f16", 8, 1024, 12, 12, 64, 0, true, true, RT_F16 },
    { "llama", 1, 2048, 32, 8, 128, 0, true, false, RT_BF16 },
    { "bert", 16, 512, 12, 12, 64, 0, false, false, RT_BF16 },
    { "one head", 8, 1024, 1, 1, 64, 0, true, false, RT_BF16 },
    { "window", 2, 4096, 32, 8, 128, 1024, true, false, RT_BF16 },
    { "odd length", 2, 1000, 8, 8, 96, 0, true, false, RT_BF16 },
    { "gemma", 1, 1024, 8, 4, 256, 0, true, false, RT_BF16 },
};

static RtAttentionShape shape_of(const Shape *s, bool is_gradient)
{
    const int64_t q = s->heads * s->feature, k = s->key_heads * s->feature, row = s->together ? 3 * q : 0;
    const RtHeads queries = { s->length * q, q, s->feature }, keys = { s->length * k, k, s->feature };
    const RtHeads packed = { s->length * row, row, s->feature };
    return (RtAttentionShape){ .batch = s->batch,
                               .queries = s->length,
                               .keys = s->length,
                               .heads = s->heads,
                               .key_heads = s->key_heads,
                               .feature = s->feature,
                               .q = s->together ? packed : queries,
                               .k = s->together ? packed : keys,
                               .v = s->together ? packed : keys,
                               .y = queries,
                               .dy = queries,
                               .dq = queries,
                               .dk = keys,
                               .dv = keys,
                               .type = s->type,
                               .causal = s->causal,
                               .window = s->window,
                               .scale = 0.125f,
                               .is_gradient = is_gradient };
}

static bool open_cudnn(RtCudnn *cudnn, int version)
{
    void *library = dlopen("libcudnn.so.9", RTLD_NOW);
    char text[sizeof properties + 32];
    const int bytes = snprintf(text, sizeof text, properties, version, version == 800 ? 166912 : 232448);
    for (size_t i = 0; i < sizeof rt_cudnn_names / sizeof *rt_cudnn_names && library; i++)
        if (!(cudnn->call.at[i] = dlsym(library, rt_cudnn_names[i])))
            return false;
    return library &&
           cudnn->call.cudnnBackendCreateDescriptor(RT_CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &cudnn->device) == 0 &&
           cudnn->call.cudnnBackendSetAttribute(cudnn->device, RT_CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                                RT_CUDNN_TYPE_CHAR, bytes, text) == 0 &&
           cudnn->call.cudnnBackendFinalize(cudnn->device) == 0;
}

/* Are these words, NULL after the last, none, or is this one of them? */
static bool is_among(char *const words[], const char *word)
{
    int i = 0;
    while (words[i] && strcmp(words[i], word) != 0)
        i++;
    return !words[0] || words[i];
}

int main(int argc, char **argv)
{
    RtCudnn cudnn = { .handle = NULL };
    if (argc < 2 || !open_cudnn(&cudnn, atoi(argv[1]))) {
        fprintf(stderr, "plans: cuDNN does not take the properties of a GPU\n");
        return 1;
    }
    printf("cuDNN %zu\n", cudnn.call.cudnnGetVersion());
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        if (!is_among(argv + 2, shapes[i / 2].name))
            continue;
        const RtAttentionShape s = shape_of(&shapes[i / 2], i % 2);
        RtCudnnGraph graph = rt_cudnn_graph(&cudnn);
        rt_attention_describe(&graph, &s);
        const bool has_plan = rt_cudnn_plan(&graph, INT64_MAX);
        printf("%s%s: %s, %d engines, %lld bytes\n", shapes[i / 2].name, i % 2 ? ", gradient" : "",
               has_plan ? "a plan" : "no plan", graph.nengines, (long long)graph.workspace);
        rt_cudnn_close(&graph);
    }
    return 0;
}
