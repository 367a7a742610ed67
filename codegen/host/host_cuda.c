/* host_cuda.c -- the CUDA dialect: kernels are launched from a text embedded in trainer.c.
 *
 *   RT_RUN(rt, 2, RT_LAUNCH(rt, kernel_h_ln_1, x, h_ln_1_gain, v6));
 *
 * The name of a kernel is the number of its first launch in a table; one call may be several launches.
 */
#include "cuda/cuda_sums.h"
#include "host_parts.h"

#include <inttypes.h>
#include <string.h>

/* --- Launches ---------------------------------------------------------------------------------- */

static const LaunchText *find_launched(FuncText *t, const CudaCall *call, int operands)
{
    Host *h = t->h;
    for (int i = 0; i < h->nlaunched; i++)
        if (h->launched[i].launches == call->launches)
            return &h->launched[i];
    GROW(&h->m->arena, h->launched, h->nlaunched, h->launched_room);
    const LaunchText *last = h->nlaunched ? &h->launched[h->nlaunched - 1] : NULL;
    LaunchText *launched = &h->launched[h->nlaunched++];
    *launched = (LaunchText){ .place = place_text(h->m, call->op[0]),
                              .launches = call->launches,
                              .first = last ? last->first + last->launches->count : 0,
                              .operands = operands };
    return launched;
}

/* RT_LAUNCH(rt, kernel, operands), or RT_ATTEND(rt, 0, operands) */
static Statement launch_statement(FuncText *t, const CudaCall *call, int count, const char *const operands[])
{
    Module *m = t->h->m;
    const char **items = NEW_ARRAY(&m->arena, const char *, count + 2);
    const LaunchText *launched = find_launched(t, call, count);
    const char *attention = call->count == 1 ? cuda_attention_text(m, call->op[0], launched->launches) : NULL;
    items[0] = "rt";
    items[1] =
        attention ? integer_text(m, row_with_text(m, &t->h->attentions, attention)) : launched->launches->at[0].name;
    memcpy(items + 2, operands, (size_t)count * sizeof *operands);
    return (Statement){ .function = attention ? "RT_ATTEND" : "RT_LAUNCH", .count = count + 2, .operand = items };
}

static int group_of(const Host *h, const Op *const *op, const Op *const **group)
{
    const CudaCall *call = cuda_call(h->cuda, *op);
    *group = call ? call->op : NULL;
    return call && !call->is_in_product ? call->count : 0;
}

static Statement kernel_statement(FuncText *t, const Op *first)
{
    Module *m = t->h->m;
    const CudaCall *call = cuda_call(t->h->cuda, first);
    int count = 0, room = 0;
    for (int i = 0; i < call->count; i++)
        room += call->op[i]->args.count + call->op[i]->results.count + 1;
    const char **items = NEW_ARRAY(&m->arena, const char *, room);
    for (int i = 0; i < call->count; i++) {
        const Op *op = call->op[i];
        const char **operands = operands_of(t, op);
        for (int k = 0; k < op->args.count + op->results.count; k++)
            items[count++] = operands[k];
        if (cuda_scratch_bytes(m, op))
            items[count++] = typed_in_frame(t, "float", op->attrs.frame);
    }
    return launch_statement(t, call, count, items);
}

static Statement naive_product_statement(FuncText *t, const Op *op, int number, const Product *product,
                                         const char *const operands[])
{
    const char *items[MAX_PRODUCT_OPERANDS];
    int at[MAX_PRODUCT_OPERANDS], count = product_operands(product, op, items, at);
    for (int i = 0; i < count; i++)
        items[i] = operands[at[i]];
    return launch_statement(t, cuda_product_call(t->h->cuda, op, number), count, items);
}

/* The launch of the sums that a product computes for the op before it. */
static const char *sums_launch(FuncText *t, const CudaCall *call, const ProductSums *sums, Product *p)
{
    const Op *op = call->op[0];
    const bool has_scratch = cuda_scratch_bytes(t->h->m, op) > 0;
    p->shape.sums = sums->of;
    p->shape.between_sums = sums->between;
    p->shape.sums_reverse = sums->reverse;
    p->sums = pointer_to(t, sums->first);
    p->scratch = has_scratch ? typed_in_frame(t, "float", op->attrs.frame) : NULL;
    return find_launched(t, call, 2 * op->args.count + has_scratch)->launches->at[0].name;
}

enum { COUNTED_OPERANDS = 4 }; /* with an array for counts */

static const char *unfused_launch(FuncText *t, const Op *op, int number, Product *p)
{
    ProductSums sums;
    const Op *before = number == 0 ? sums_before(t->h->m, op, p, &sums) : NULL;
    const CudaCall *call = before ? cuda_call(t->h->cuda, before) : NULL;
    if (call && call->is_in_product)
        return sums_launch(t, call, &sums, p);
    call = cuda_product_call(t->h->cuda, op, number);
    if (!call || !call->product)
        p->shape.counted = RT_NOT_COUNTED;
    if (!call || p->naive)
        return NULL;
    const Op *first = call->op[0];
    const int operands = call->product ? COUNTED_OPERANDS : first->args.count + first->results.count;
    return find_launched(t, call, operands)->launches->at[0].name;
}

static bool rounds_operands(const Host *h, const Op *op, int number, const Product *p)
{
    ProductSums sums;
    return (number || !sums_before(h->m, op, p, &sums)) && cuda_rounds_operands(h->m, op, p);
}

static char *copy_statement(Module *m, const char *to, const char *from, const char *bytes)
{
    return arena_text(&m->arena, "rt_copy_bytes(rt, %s, %s, %s);\n", to, from, bytes);
}

static char *zero_statement(Module *m, const char *at, const char *bytes)
{
    return arena_text(&m->arena, "rt_zero_bytes(rt, %s, %s);\n", at, bytes);
}

static char *copy_rows_statement(Module *m, const RowsCopy *copy)
{
    return arena_text(&m->arena, "rt_copy_rows(rt, %s, %" PRId64 ", %s, %" PRId64 ",\n    %" PRId64 ", %s);\n",
                      copy->to, copy->to_row * copy->element, copy->from, copy->from_row * copy->element,
                      copy->row * copy->element, copy->rows);
}

/* --- The file ------------------------------------------------------------------------------------ */

/* Fields that are zero are left out. */
static void write_launch(const Host *h, const LaunchText *l, int i, FILE *out)
{
    const CudaLaunch *launch = &l->launches->at[i];
    const int64_t small = launch->shared_small ? launch->shared_small : launch->shared;
    const char *shared =
        launch->shared
            ? arena_text(&h->m->arena, ".shared = %" PRId64 ",\n.shared_small = %" PRId64 ",\n", launch->shared, small)
            : "";
    FILL(out,
         "    {\n"
         "        .name = \"$name\",\n"
         "        .where = $place,\n"
         "        .blocks = $blocks,\n"
         "        $shared\n"
         "        .threads = $threads,\n"
         "        .operands = $operands,\n"
         "        $more\n"
         "    },\n",
         { "name", launch->name }, { "place", string_text(h->m, l->place) },
         { "blocks", arena_text(&h->m->arena, "%" PRId64, launch->blocks) }, { "shared", shared },
         { "threads", arena_text(&h->m->arena, "%d", launch->threads) },
         { "operands", arena_text(&h->m->arena, "%d", l->operands) },
         { "more", i + 1 < l->launches->count ? ".more = true,\n" : "" });
}

static void write_attentions(const Host *h, FILE *out)
{
    if (h->attentions.count == 0)
        return;
    open_table("RtAttentionShape", "attentions", out);
    for (int i = 0; i < h->attentions.count; i++)
        FILL(out, "    {\n        $fields\n    },\n", { "fields", h->attentions.at[i] });
    close_table(out);
}

static void write_kernels(Host *h, FILE *out)
{
    fputs("/* --- Kernels: their text, the number of the first launch of each, and all launches --- */\n\n"
          "RT_EMBED(kernels_text, \"kernels.cu\");\n\nenum {\n",
          out);
    for (int i = 0; i < h->nlaunched; i++)
        fprintf(out, "    %s = %d,\n", h->launched[i].launches->at[0].name, h->launched[i].first);
    fputs("};\n\nstatic const RtKernelLaunch launches[] = {\n", out);
    for (int i = 0; i < h->nlaunched; i++)
        for (int k = 0; k < h->launched[i].launches->count; k++)
            write_launch(h, &h->launched[i], k, out);
    fputs("};\n\n", out);
    write_attentions(h, out);
    const ShardOffsets *offsets = cuda_program_offsets(h->cuda);
    write_offset_table(h->m, offsets, out);
    FILL(out,
         "static const RtCode code = {\n"
         "    .text = kernels_text,\n"
         "    .launches = launches,\n"
         "    .nlaunches = sizeof launches / sizeof *launches,\n"
         "$parts"
         "$attentions"
         "};\n\n",
         { "parts", offsets->count ? "    .parts = parts,\n    .nparts = sizeof parts / sizeof *parts,\n" : "" },
         { "attentions",
           h->attentions.count
               ? "    .attentions = attentions,\n    .nattentions = sizeof attentions / sizeof *attentions,\n"
               : "" });
}

static const char *code_field(Host *h) { return "    .code = &code,\n"; }

const Dialect cuda_dialect = {
    .kernels = "in kernels.cu: CUDA C++, compiled when the trainer starts",
    .includes = "\n#include <stddef.h>\n",
    .group = group_of,
    .kernel = kernel_statement,
    .naive_product = naive_product_statement,
    .unfused = unfused_launch,
    .rounds = rounds_operands,
    .adds_apart = true,
    .copy = copy_statement,
    .zero = zero_statement,
    .copy_rows = copy_rows_statement,
    .records_turns = true,
    .write_kernels = write_kernels,
    .fields = code_field,
};
