/* cuda_experts.c -- mixtures of experts in CUDA: calls of the kernels in runtime/cuda/experts.cuh. */
#include "cuda_library.h"

enum { THREADS = 256, WARPS = 8, PLACES = 32 };

static int64_t blocks_of(int64_t items, int64_t at_once) { return (items + at_once - 1) / at_once; }

/* Elements along the dims that `in` has, or, with `lacks`, that it lacks. */
static int64_t count_along(const Operands *o, const Value *value, const Value *in, bool lacks)
{
    int64_t count = 1;
    for (int i = 0; i < value->type.rank; i++)
        if ((find_dim(&in->type, value->type.dim[i].name) < 0) == lacks)
            count *= loop_size(o->m, &value->type.dim[i]);
    return count;
}

void write_cuda_top_k(Operands *o, const char *name, CudaLaunches *launches, FILE *out)
{
    int64_t rows = count_along(o, o->value[0], o->value[1], false);
    write_variant(o, "",
                  (CudaLaunch){ .name = name,
                                .blocks = blocks_of(rows, THREADS),
                                .threads = THREADS,
                                .bytes = library_bytes(o, 0, o->count) },
                  launches, out);
}

void write_cuda_place(Operands *o, const char *name, CudaLaunches *launches, FILE *out)
{
    const Type *place = &o->value[1]->type;
    int64_t groups = 1, count = 1;
    for (int i = 0; i < place->rank; i++)
        *(has_name(&o->op->attrs.over, place->dim[i].name) ? &count : &groups) *= loop_size(o->m, &place->dim[i]);
    write_variant(o, "",
                  (CudaLaunch){ .name = name,
                                .blocks = groups * blocks_of(count, PLACES),
                                .threads = THREADS,
                                .shared = 5120,
                                .bytes = library_bytes(o, 0, o->count) },
                  launches, out);
}

void write_cuda_route(Operands *o, const char *name, CudaLaunches *launches, FILE *out)
{
    const bool to_slots = o->op->kind == OP_dispatch;
    const Value *by_token = o->value[to_slots ? 0 : 3], *by_slot = o->value[to_slots ? 3 : 0], *place = o->value[2];
    const int width = library_width(o, 3, 4, library_width(o, 0, 1, 8));
    const int64_t rows = count_along(o, place, place, false), post = count_along(o, by_token, place, true);
    const int64_t slots = count_along(o, by_slot, by_slot, false) / post;
    const char *variant = arena_text(&o->m->arena, "<%d>", width);
    if (to_slots) {
        write_variant(
            o, arena_text(&o->m->arena, "_clear%s", variant),
            (CudaLaunch){
                .name = name, .blocks = blocks_of(slots, WARPS), .threads = THREADS, .bytes = library_bytes(o, 3, 4) },
            launches, out);
        fputc('\n', out);
        name = arena_text(&o->m->arena, "%s_2", name);
    }
    write_variant(o, variant,
                  (CudaLaunch){ .name = name,
                                .blocks = blocks_of(rows, WARPS),
                                .threads = THREADS,
                                .bytes = library_bytes(o, 0, o->count) },
                  launches, out);
}

/* A warp for each token. */
void write_cuda_collect(Operands *o, const char *name, CudaLaunches *launches, FILE *out)
{
    const Value *y = o->value[o->count - 1];
    const int width = library_width(o, o->count - 1, o->count, library_width(o, 0, 1, 8));
    write_variant(o, arena_text(&o->m->arena, "<%d>", width),
                  (CudaLaunch){ .name = name,
                                .blocks = blocks_of(count_along(o, y, o->value[2], false), WARPS),
                                .threads = THREADS,
                                .bytes = library_bytes(o, 0, o->count) },
                  launches, out);
}
