/* cuda_attend.c -- attention in CUDA: selects the kernel in runtime/cuda/attend*.cuh and its block size. */
#include "cuda_library.h"
#include "cuda_row.h"
#include "runtime/cuda/hopper.h"
#include "templates.h"

#include <inttypes.h>

enum { ALIGNED = 8, PLAIN_THREADS = 256, SHARE_ROWS = 8 };

/* Tile parameters, equal to the structs Rt...Tiles in the kernels' headers. */
typedef struct {
    int threads, key_threads;
    int64_t queries, keys; /* of a block's tile */
    int64_t shared, shared_small;
} Tiles;

static int64_t wide(int64_t d) { return (d + 15) / 16 * 16; }

static int64_t plain_tile(int64_t d) { return d <= 64 ? 64 : d <= 176 ? 32 : 16; }

static Tiles forward_tiles(int64_t d, bool plain, int widest)
{
    int64_t tile = plain_tile(d);
    if (plain)
        return (Tiles){ PLAIN_THREADS, 0, tile, tile, (3 * tile * (d + 1) + tile * (tile + 1)) * 4, 0 };
    int64_t queries = d <= widest ? 128 : 64, keys = d <= 128 ? 64 : 32;
    return (Tiles){ 128, 0, queries, keys, (queries + 2 * keys) * (wide(d) + 8) * 2, 0 };
}

static Tiles backward_tiles(int64_t d, bool plain)
{
    int64_t tile = plain_tile(d), others = d <= 64 ? 64 : 32, pitch = (wide(d) + 8) * 2;
    if (plain)
        return (Tiles){ PLAIN_THREADS, PLAIN_THREADS, tile, tile, (4 * tile * (d + 1) + 2 * tile * (tile + 1)) * 4, 0 };
    return (Tiles){
        128, d > 128 ? 256 : 128, 64, 64, (128 + 4 * others) * pitch + 16 * others, d > 176 ? (128 + 4 * 16) * pitch : 0
    };
}

/* As RtHopperTiles. */
static Tiles hopper_tiles(int64_t d)
{
    const int64_t queries = 2 * RT_HOPPER_ROWS, keys = RT_HOPPER_KEYS(d), boundary = 1024, slots = 4;
    const int64_t features = (d + RT_HOPPER_BOX - 1) / RT_HOPPER_BOX * RT_HOPPER_BOX, barriers = (1 + 2 * slots) * 8;
    const int64_t shared = boundary + (queries * (features + 8) + slots * keys * features) * 2 + barriers;
    return (Tiles){ 384, 0, queries, keys, shared, 0 };
}

/* The size of all but two dims of q: heads of all sequences; `of_keys`: only dims that k has too. */
static int64_t heads_of(const Operands *o, bool of_keys)
{
    const Attrs *a = &o->op->attrs;
    const Type *q = &o->value[0]->type;
    int64_t count = 1;
    for (int i = 0; i < q->rank; i++)
        if (q->dim[i].name != a->seq && q->dim[i].name != a->feature &&
            (!of_keys || find_dim(&o->value[1]->type, q->dim[i].name) >= 0))
            count *= loop_size(o->m, &q->dim[i]);
    return count;
}

static bool check_attend(const Operands *o, int64_t d)
{
    int errors = o->m->diags->errors;
    if (d > CUDA_LARGEST_HEAD)
        refuse_layout(o, "its head size is %" PRId64 ", and %d is the largest", d, CUDA_LARGEST_HEAD);
    if (!(o->op->attrs.scale > 0))
        refuse_layout(o, "its scale is %g, and must be above 0", o->op->attrs.scale);
    return o->m->diags->errors == errors;
}

static void add(Operands *o, const char *variant, CudaLaunch launch, CudaLaunches *launches, FILE *out)
{
    if (launches->count)
        fputc('\n', out);
    o->variant = variant;
    char *body = library_body(o);
    if (body)
        write_cuda_library(o, launch, body, launches, out);
}

/* The kernel for Hopper, which takes tensor maps of what it reads: left out of the text for other GPUs. */
static void write_hopper(Operands *o, const char *name, int64_t d, CudaLaunches *launches, FILE *out)
{
    Arena *arena = &o->m->arena;
    const Tiles t = hopper_tiles(d);
    const int64_t queries = size_along(o, o->value[0], o->op->attrs.seq);
    const char *const *parameter;
    const int count = library_parameters(o, false, &parameter), maps = 3; /* of q, k and v */
    const char **items = NEW_ARRAY(arena, const char *, count);
    for (int i = 0; i < count; i++)
        items[i] = i < maps ? arena_text(arena, "RT_TENSOR_MAP %s", o->name[i]) : parameter[i];
    launches->hopper = (CudaLaunch){ arena_text(arena, "%s_hopper", name),
                                     heads_of(o, false) * ((queries + t.queries - 1) / t.queries),
                                     t.threads,
                                     t.shared,
                                     0,
                                     library_bytes(o, 0, o->count) };
    o->variant = arena_text(arena, "_hopper<%" PRId64 ">", d);
    fputs("\n#ifdef RT_HOPPER\n", out);
    FILL(out, function_template,
         { "head", kernel_head(o->m, launches->hopper.name, cuda_bounds(o->m, t.threads, 1), count, items) },
         { "body", library_body(o) });
    fputs("#endif\n", out);
}

/* A block for each tile of the bias. */
static void write_bias_gradient(Operands *o, const char *name, int64_t d, CudaLaunches *launches, FILE *out)
{
    const Value *bias = operand_named(o, OPERAND_dbias);
    const Attrs *a = &o->op->attrs;
    const Tiles t = backward_tiles(d, true);
    int64_t blocks = 1;
    for (int i = 0; i < bias->type.rank; i++) {
        const int64_t size = loop_size(o->m, &bias->type.dim[i]);
        const Name dim = bias->type.dim[i].name;
        blocks *= dim == a->seq || dim == a->key ? (size + t.queries - 1) / t.queries : size;
    }
    add(o, arena_text(&o->m->arena, "<%" PRId64 ">", d),
        (CudaLaunch){ name, blocks, t.threads, t.shared, 0, library_bytes(o, 0, o->count) }, launches, out);
}

void write_cuda_attend(Operands *o, const char *name, CudaLaunches *launches, FILE *out)
{
    Arena *arena = &o->m->arena;
    int64_t d = size_along(o, o->value[0], o->op->attrs.feature);
    int64_t queries = size_along(o, o->value[0], o->op->attrs.seq), keys = size_along(o, o->value[1], o->op->attrs.key);
    bool plain = o->value[0]->type.dtype == F32, is_gradient = o->op->kind == OP_attend_grad;
    bool async = d % ALIGNED == 0;
    const bool shapes = operand_named(o, OPERAND_bias) || o->op->attrs.softcap != 0;
    const int widest = shapes ? 64 : operand_named(o, OPERAND_query_segment) ? 96 : 128;
    for (int i = 0; i < o->count; i++)
        async = async && (find_dim(&o->value[i]->type, o->op->attrs.feature) < 0 || /* lse, bias, segments */
                          library_width(o, i, i + 1, ALIGNED) == ALIGNED);
    const char *head = plain ? "_plain" : "";
    const char *arguments = plain ? arena_text(arena, "<%" PRId64 ">", d)
                                  : arena_text(arena, "<%" PRId64 ", %s%s>", d, async ? "true" : "false",
                                               widest < 128 && !is_gradient ? arena_text(arena, ", %d", widest) : "");
    if (!check_attend(o, d))
        return;
    if (o->op->kind == OP_attend_bias_grad) {
        write_bias_gradient(o, name, d, launches, out);
        return;
    }
    Tiles t = is_gradient ? backward_tiles(d, plain) : forward_tiles(d, plain, widest);
    int64_t query_blocks = heads_of(o, false) * ((queries + t.queries - 1) / t.queries);
    if (!is_gradient) {
        add(o, arena_text(arena, "%s%s", head, arguments),
            (CudaLaunch){ name, query_blocks, t.threads, t.shared, t.shared_small, library_bytes(o, 0, o->count) },
            launches, out);
        if (is_cuda_attention(o->m, o->op))
            write_hopper(o, name, d, launches, out);
        return;
    }
    /* Of q, k, v, y, lse, dy, segments, and dq, dk, dv: the first launch reads y and dy, the others all but y. */
    int64_t shares = heads_of(o, false) * queries, share_bytes = cuda_attend_scratch(o->m, o->op);
    int64_t both = library_bytes(o, 0, 3) + library_bytes(o, 4, o->count - 3) + share_bytes;
    add(o, arena_text(arena, "%s_share%s", head, arguments),
        (CudaLaunch){ name, (shares + SHARE_ROWS - 1) / SHARE_ROWS, PLAIN_THREADS, 0, 0,
                      library_bytes(o, 3, 4) + library_bytes(o, 5, 6) + share_bytes },
        launches, out);
    add(o, arena_text(arena, "%s_keys%s", head, arguments),
        (CudaLaunch){ arena_text(arena, "%s_2", name), heads_of(o, true) * ((keys + t.keys - 1) / t.keys),
                      t.key_threads, t.shared, t.shared_small, both + library_bytes(o, o->count - 2, o->count) },
        launches, out);
    add(o, arena_text(arena, "%s_queries%s", head, arguments),
        (CudaLaunch){ arena_text(arena, "%s_3", name), query_blocks, t.threads, t.shared, t.shared_small,
                      both + library_bytes(o, o->count - 3, o->count - 2) },
        launches, out);
}

int64_t cuda_attend_scratch(Module *m, const Op *op)
{
    Type lse = arg(op, 4)->type; /* of q, k, v, y, lse, dy */
    return local_bytes(m, &lse); /* one number for each query of each head */
}
