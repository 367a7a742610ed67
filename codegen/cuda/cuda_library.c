/* cuda_library.c -- gathers, rope and copies in CUDA: calls of the kernels in runtime/cuda/ with constant shapes. */
#include "cuda_library.h"

#include "cuda_row.h"
#include "storage.h"
#include "templates.h"

#include <inttypes.h>

enum { THREADS = 256, WARPS = 8, PACK_BYTES = 16, ROPE_ROWS = 8, ORDER_PLACES = 32 };

static int64_t blocks_of(int64_t items, int64_t at_once) { return (items + at_once - 1) / at_once; }

/* --- Packs ----------------------------------------------------------------------------------- */

static bool fits_width(const Operands *o, const Value *value, int width)
{
    int64_t bytes = (int64_t)width * dtype_bytes(value->type.dtype);
    const Storage *s = value->storage;
    if (bytes > PACK_BYTES || !is_address_aligned(o->m, o->op, value, bytes))
        return false;
    for (int i = 0; i < value->type.rank; i++)
        if (s->stride[i] != 1 && s->stride[i] % width && loop_size(o->m, &value->type.dim[i]) > 1)
            return false;
    return true;
}

int library_width(const Operands *o, int first, int end, int widest)
{
    int width = widest;
    for (int i = first; i < end; i++)
        while (width > 1 && !fits_width(o, o->value[i], width))
            width /= 2;
    return width;
}

/* --- Functions -------------------------------------------------------------------------------- */

void write_cuda_library(const Operands *o, CudaLaunch launch, const char *body, CudaLaunches *launches, FILE *out)
{
    const char *const *parameter;
    int count = library_parameters(o, cuda_library_scratch(o->m, o->op) > 0, &parameter);
    FILL(out, function_template,
         { "head",
           kernel_head(o->m, launch.name, cuda_bounds(o->m, launch.threads, launch.shared > 0), count, parameter) },
         { "body", body });
    add_launch(launches, launch, o->m);
}

void write_variant(Operands *o, const char *variant, CudaLaunch launch, CudaLaunches *launches, FILE *out)
{
    o->variant = variant;
    char *body = library_body(o);
    if (body)
        write_cuda_library(o, launch, body, launches, out);
}

static int64_t count_local(const Operands *o, const Value *value, int from, int end)
{
    int64_t count = 1;
    for (int i = from; i < end; i++)
        count *= loop_size(o->m, &value->type.dim[i]);
    return count;
}

/* Elements along the dims of a table after the indexed one, but for dims of the index. */
static int64_t row_length(const Operands *o, const Value *table, Name rows)
{
    int64_t length = 1;
    for (int i = find_dim(&table->type, rows) + 1; i < table->type.rank; i++)
        if (find_dim(&o->value[1]->type, table->type.dim[i].name) < 0)
            length *= loop_size(o->m, &table->type.dim[i]);
    return length;
}

/* Elements of the index along the dims that {over} names: the places of one table. */
static int64_t places(const Operands *o)
{
    int64_t count = 1;
    for (int i = 0; i < o->op->attrs.over.count; i++)
        count *= loop_size(o->m, &o->value[1]->type.dim[find_dim(&o->value[1]->type, o->op->attrs.over.name[i])]);
    return count;
}

int64_t library_bytes(const Operands *o, int first, int end)
{
    int64_t bytes = 0;
    for (int i = first; i < end; i++)
        bytes += value_bytes(o->m, o->value[i]);
    return bytes;
}

/* A gather reads as many rows as it writes. */
static void write_gather(Operands *o, const char *name, CudaLaunches *launches, FILE *out)
{
    const Value *picked = o->value[2];
    int width = library_width(o, 2, 3, library_width(o, 0, 1, 8));
    int64_t rows = count_local(o, picked, 0, picked->type.rank) / row_length(o, o->value[0], o->op->attrs.dim);
    write_variant(o, arena_text(&o->m->arena, "<%d>", width),
                  (CudaLaunch){ .name = name,
                                .blocks = blocks_of(rows, WARPS),
                                .threads = THREADS,
                                .bytes = library_bytes(o, 1, 3) + library_bytes(o, 2, 3) },
                  launches, out);
}

static void write_scatter_add(Operands *o, const char *name, CudaLaunches *launches, FILE *out)
{
    const Value *table = o->value[o->count - 1], *picked = o->value[0], *index = o->value[1], *sum = sum_before(o->op);
    int width = library_width(o, 2, o->count, library_width(o, 0, 1, 8));
    int64_t length = row_length(o, table, o->op->attrs.dims.dim[0].name);
    int64_t rows = count_local(o, table, 0, table->type.rank) / length;
    int64_t all = count_local(o, picked, 0, picked->type.rank) / length;
    const int64_t tables = count_local(o, index, 0, index->type.rank) / places(o);
    const int64_t sorted = cuda_library_scratch(o->m, o->op);
    const int64_t summed = all * length * dtype_bytes(table->type.dtype); /* if all indices differ */
    o->more = ", scratch";
    const char *names[] = { name, arena_text(&o->m->arena, "%s_2", name), arena_text(&o->m->arena, "%s_3", name) };
    int next = 0;
    if (!sum || !have_same_address(sum, table)) {
        write_variant(o, arena_text(&o->m->arena, "_begin<%d>", width),
                      (CudaLaunch){ .name = names[next++],
                                    .blocks = blocks_of(rows, WARPS),
                                    .threads = THREADS,
                                    .bytes = library_bytes(o, 2, o->count) },
                      launches, out);
        fputc('\n', out);
    }
    write_variant(o, "_order",
                  (CudaLaunch){ .name = names[next++],
                                .blocks = tables * blocks_of(places(o), ORDER_PLACES),
                                .threads = THREADS,
                                .shared = 5120,
                                .bytes = library_bytes(o, 1, 2) + sorted },
                  launches, out);
    fputc('\n', out);
    write_variant(o, arena_text(&o->m->arena, "<%d>", width),
                  (CudaLaunch){ .name = names[next],
                                .blocks = all * blocks_of(length, (int64_t)32 * width),
                                .threads = THREADS,
                                .shared = 1024 * width,
                                .bytes = library_bytes(o, 0, 1) + (sum ? 2 : 1) * summed + sorted },
                  launches, out);
}

/* A warp for each row. */
static void write_cumulative(Operands *o, const char *name, CudaLaunches *launches, FILE *out)
{
    const Value *x = o->value[0];
    const int64_t rows = count_local(o, x, 0, x->type.rank) / size_along(o, x, o->op->attrs.dim);
    write_variant(o, o->op->kind == OP_cummax ? "<true>" : "<false>",
                  (CudaLaunch){ .name = name,
                                .blocks = blocks_of(rows, WARPS),
                                .threads = THREADS,
                                .bytes = library_bytes(o, 0, o->count) },
                  launches, out);
}

/* The number of rows of rope with angles of their own: places of the sequence, or positions. */
static int64_t rope_rows(Module *m, const Op *op)
{
    const Type *x = &arg(op, 0)->type;
    int64_t rows = local_size(m, &x->dim[find_dim(x, op->attrs.seq)]);
    for (int i = 0; op->args.count > 1 && i < arg(op, 1)->type.rank; i++) {
        const Dim *dim = &arg(op, 1)->type.dim[i];
        rows *= dim->name == op->attrs.seq ? 1 : local_size(m, dim);
    }
    return rows;
}

/* Two launches: a table of angles, and the rotation.  A thread's pairs: neighbours, or half a row apart. */
static void write_rope(Operands *o, const char *name, CudaLaunches *launches, FILE *out)
{
    const Type *x = &o->value[0]->type;
    int64_t half = size_along(o, o->value[0], o->op->attrs.feature) / 2;
    int most = library_width(o, 0, 1, library_width(o, o->count - 1, o->count, 8)),
        width = o->op->attrs.interleaved ? most / 2 : most;
    while (width > 1 && half % width)
        width /= 2;
    const bool together = width > 0; /* else pairs begin at odd elements */
    width = together ? width : 1;
    int64_t seq = size_along(o, o->value[0], o->op->attrs.seq);
    int64_t rows = count_local(o, o->value[0], 0, x->rank) / (2 * half * seq);
    int64_t items = seq * blocks_of(rows, ROPE_ROWS) * (half / width);
    const int64_t angles = cuda_library_scratch(o->m, o->op);
    o->more = ", scratch";
    write_variant(o, "_angles",
                  (CudaLaunch){ .name = name,
                                .blocks = blocks_of(rope_rows(o->m, o->op) * half, THREADS),
                                .threads = THREADS,
                                .bytes = library_bytes(o, 1, o->count - 1) + angles },
                  launches, out);
    fputc('\n', out);
    write_variant(o, arena_text(&o->m->arena, "<%d, %s>", width, together ? "true" : "false"),
                  (CudaLaunch){ .name = arena_text(&o->m->arena, "%s_2", name),
                                .blocks = blocks_of(items, THREADS),
                                .threads = THREADS,
                                .bytes = angles + library_bytes(o, 0, 1) + library_bytes(o, o->count - 1, o->count) },
                  launches, out);
}

/* --- Copies ----------------------------------------------------------------------------------- */

/* The name of a result's dim in an operand: pad may rename the one that it makes longer. */
static Name name_in(const Operands *o, const Value *operand, Name dim)
{
    return find_dim(&operand->type, dim) < 0 && o->op->attrs.dim ? o->op->attrs.dim : dim;
}

static char *numbers(const Operands *o, const Value *whole, const Value *of)
{
    char *text = "";
    for (int i = 0; i < whole->type.rank; i++) {
        const Dim *dim = &whole->type.dim[i];
        const int64_t number = of ? stride_of(of, name_in(o, of, dim->name)) : loop_size(o->m, dim);
        text = arena_text(&o->m->arena, "%s%s%" PRId64, text, i ? ", " : "", number);
    }
    return arena_text(&o->m->arena, "{ %s }", text);
}

/* Operand `from`, from element `first` of the result along the op's dim. */
static char *box_text(const Operands *o, int from, int64_t first, const char *clears, const char *name)
{
    const Value *y = o->value[o->count - 1];
    Name dim = o->op->attrs.dims.dim[0].name;
    Text text;
    open_text(&text);
    FILL(text.out, cuda_box_template, { "name", name }, { "rank", arena_text(&o->m->arena, "%d", y->type.rank) },
         { "dim", arena_text(&o->m->arena, "%d", find_dim(&y->type, dim)) },
         { "first", arena_text(&o->m->arena, "%" PRId64, first) },
         { "count",
           arena_text(&o->m->arena, "%" PRId64, size_along(o, o->value[from], name_in(o, o->value[from], dim))) },
         { "sizes", numbers(o, y, NULL) }, { "to", numbers(o, y, y) }, { "from", numbers(o, y, o->value[from]) },
         { "operand", o->name[from] }, { "clears", clears });
    return close_text(&o->m->arena, &text);
}

static void write_copy(Operands *o, const char *name, CudaLaunches *launches, FILE *out)
{
    const Value *y = o->value[o->count - 1];
    Name dim = o->op->attrs.dims.dim[0].name;
    const bool pads = o->op->kind == OP_pad;
    char *body = pads ? box_text(o, 0, o->op->attrs.index, "true", "box") : "";
    for (int64_t i = 0, first = 0; i < o->op->args.count && !pads; i++) {
        const char *box = arena_text(&o->m->arena, "box_%s", o->name[i]);
        body = arena_text(&o->m->arena, "%s%s", body, box_text(o, (int)i, first, "false", box));
        first += size_along(o, o->value[i], dim);
    }
    int64_t items = count_local(o, y, 0, y->type.rank);
    write_cuda_library(o,
                       (CudaLaunch){ .name = name,
                                     .blocks = blocks_of(items, THREADS),
                                     .threads = THREADS,
                                     .bytes = library_bytes(o, 0, o->count) },
                       body, launches, out);
}

/* ---------------------------------------------------------------------------------------------- */

int64_t cuda_library_scratch(Module *m, const Op *op)
{
    if (op->kind == OP_scatter_add) {
        Type index = arg(op, 1)->type;
        return 2 * local_bytes(m, &index); /* the sorted indices, and their permutation */
    }
    if (op->kind == OP_rope) { /* a cosine and a sine for each pair */
        const Type *x = &arg(op, 0)->type;
        return rope_rows(m, op) * local_size(m, &x->dim[find_dim(x, op->attrs.feature)]) * dtype_bytes(F32);
    }
    return op->kind == OP_attend_grad ? cuda_attend_scratch(m, op) : 0;
}

static void (*const writer[N_OPS])(Operands *o, const char *name, CudaLaunches *launches,
                                   FILE *out) = { [OP_gather] = write_gather,
                                                  [OP_scatter_add] = write_scatter_add,
                                                  [OP_rope] = write_rope,
                                                  [OP_cumsum] = write_cumulative,
                                                  [OP_cummax] = write_cumulative,
                                                  [OP_top_k] = write_cuda_top_k,
                                                  [OP_place] = write_cuda_place,
                                                  [OP_dispatch] = write_cuda_route,
                                                  [OP_combine] = write_cuda_route,
                                                  [OP_collect] = write_cuda_collect,
                                                  [OP_pad] = write_copy,
                                                  [OP_concat] = write_copy,
                                                  [OP_attend] = write_cuda_attend,
                                                  [OP_attend_grad] = write_cuda_attend,
                                                  [OP_attend_bias_grad] = write_cuda_attend };

const char *emit_cuda_library(Module *m, const Op *op, const char *name, ShardOffsets *offsets, CudaLaunches *launches,
                              FILE *out)
{
    Operands o;
    if (!find_operands(m, op, &o))
        return "";
    o.offsets = offsets;
    if (writer[op->kind])
        writer[op->kind](&o, name, launches, out);
    else
        error_at(m->diags, (Where){ .at = op->loc }, "the CUDA back end has no kernel for %s", info(op)->name);
    return library_comment(&o);
}
