/* cuda.c -- the CUDA text of a program: selects the ops that are kernels of mpc, and emits each distinct text once. */
#include "cuda.h"

#include "cuda_epilogue.h"
#include "cuda_group.h"
#include "cuda_library.h"
#include "cuda_row.h"
#include "cuda_sums.h"
#include "map.h"
#include "needed.h"
#include "templates.h"

#include <string.h>

/* Is the op a kernel of mpc, and not a product of the library? */
static bool is_cuda_kernel(Module *m, const Op *op) { return info(op)->family == LIBRARY || row_kernel_of(m, op); }

/* kernels_accept, and the requirements of several launches of one kernel. */
static bool cuda_takes(Module *m, const Op *op, RequiredLayout wanted[])
{
    const Func *kernel = row_kernel_of(m, op);
    return kernels_accept(m, op, wanted) && (!kernel || cuda_row_accepts(m, kernel, op, wanted));
}

int64_t cuda_scratch_bytes(Module *m, const Op *op)
{
    const Func *kernel = row_kernel_of(m, op);
    return kernel ? cuda_row_scratch(m, kernel) : info(op)->family == LIBRARY ? cuda_library_scratch(m, op) : 0;
}

const Target cuda_target = {
    .name = "cuda",
    .is_gpu = true,
    .largest_head = CUDA_LARGEST_HEAD,
    .scratch_bytes = cuda_scratch_bytes,
    .scratch_stays = cuda_scratch_stays,
    .takes = cuda_takes,
    .packing = nccl_packing,
    .kept_row = CUDA_KEPT_ROW,
    /* cuBLASLt writes the operand of gelu besides its result, and reads it for gelu's slope, but for relu only a mask
     * of the positive elements. */
    .keeps_before = IS_GELU_TANH | IS_GELU_TANH_SLOPE,
    .adds_residuals = true,
    .rounds_operands = true,
    .fills_padding = true,
};

/* --- Programs ------------------------------------------------------------------------------------- */

typedef struct {
    CudaKernel kernel;
    const char *code; /* without names of its own */
} KernelText;

struct CudaProgram {
    Module *m;
    int count, room;
    KernelText *at;
    Map names;       /* names of functions */
    Map calls;       /* Op -> CudaCall */
    Map products;    /* Op -> CudaCall *[]: of each product */
    bool has_blocks; /* products of numbers of 8 bits */
    const char *text;
    ShardOffsets offsets; /* offsets that the text uses */
};

/* Writes the functions of a kernel and sets their launches.  Their names are `name` and, for further ones, `name` with
 * a suffix; NULL: anonymous, so that equal kernels have equal text.  Returns the comment above them. */
static const char *emit_kernel(CudaProgram *program, const CudaCall *call, const char *name, CudaLaunches *launches,
                               FILE *out)
{
    Module *m = program->m;
    ShardOffsets *offsets = &program->offsets;
    bool anonymous = !name;
    const Op *op = call->op[0];
    const Func *kernel = row_kernel_of(m, op);
    name = name ? name : "kernel";
    launches->count = 0;
    launches->hopper = (CudaLaunch){ .name = NULL };
    return call->product && !call->product->naive ? emit_cuda_counted(m, call->product, op, name, launches, out)
           : call->product                        ? emit_cuda_product(m, call->product, op, name, launches, out)
           : call->count > 1 ? emit_cuda_group(m, call->count, call->op, name, anonymous, offsets, launches, out)
           : kernel          ? emit_cuda_row(m, kernel, op, name, anonymous, offsets, launches, out)
                             : emit_cuda_library(m, op, name, offsets, launches, out);
}

static char *code_of(CudaProgram *program, const CudaCall *call, const char *name, CudaLaunches *launches,
                     const char **comment)
{
    Text text;
    open_text(&text);
    *comment = emit_kernel(program, call, name, launches, text.out);
    return close_text(&program->m->arena, &text);
}

/* NAME, NAME_2, NAME_3, ...: of further launches, or of members of a group. */
static Name nth_name(Module *m, const char *name, int number)
{
    return number == 1 ? intern_text(m, name) : intern_format(m, "%s_%d", name, number);
}

static bool is_taken(const CudaProgram *program, const char *name, int names)
{
    for (int i = 1; i <= names; i++)
        if (map_get(&program->names, nth_name(program->m, name, i)))
            return true;
    return false;
}

static void take_names(CudaProgram *program, const char *name, int names)
{
    for (int i = 1; i <= names; i++) {
        Name own = nth_name(program->m, name, i);
        map_put(&program->names, own, (void *)(uintptr_t)own);
    }
}

/* "k.h.attn.q.2" becomes kernel_h_attn_q_2, with a number if another text has that name. */
static const char *name_of(const CudaProgram *program, const CudaCall *call, int names)
{
    Arena *arena = &program->m->arena;
    const Op *op = call->op[0];
    const Func *kernel = op->attrs.callee ? find_func(program->m, op->attrs.callee) : NULL;
    const char *path =
        kernel ? kernel_path(kernel) : arena_text(arena, "%s.%s", op->path ? op->path : "", info(op)->name);
    const char *base = arena_text(arena, "kernel_%s%s", c_identifier(program->m, path, 48),
                                  call->count > 1 ? "_and_others" : ""),
               *name = base;
    for (int i = 2; is_taken(program, name, names); i++)
        name = arena_text(arena, "%s_v%d", base, i);
    return name;
}

static KernelText *new_kernel(CudaProgram *program)
{
    GROW(&program->m->arena, program->at, program->count, program->room);
    return &program->at[program->count++];
}

/* Bytes of the operands and results of a call, each once; of tables from which rows are taken, at most those rows. */
static int64_t least_bytes(Module *m, const CudaCall *call)
{
    int64_t bytes = 0;
    for (int n = 0; n < call->count; n++) {
        const Op *op = call->op[n];
        int noperands = op->args.count + op->results.count, at[MAX_PRODUCT_OPERANDS];
        const char *name[MAX_PRODUCT_OPERANDS];
        if (call->product)
            noperands = product_operands(call->product, op, name, at);
        for (int i = 0; i < noperands; i++) {
            int operand = call->product ? at[i] : i;
            const Value *value = arg_or_result(op, operand);
            int64_t all = value_bytes(m, value);
            if (op->kind == OP_gather && operand == 0 && all > value_bytes(m, result(op)))
                all = value_bytes(m, result(op));
            if (operand >= op->args.count || index_of(&op->args, value) == operand)
                bytes += all;
        }
    }
    return bytes;
}

/* Kernels with equal text, except for names and comment, and equal launches are emitted once. */
static const CudaLaunches *add_kernel(CudaProgram *program, const CudaCall *call, FILE *out)
{
    Module *m = program->m;
    const Op *op = call->op[0];
    CudaLaunches *launches = NEW(&m->arena, CudaLaunches);
    const char *comment, *code = code_of(program, call, NULL, launches, &comment);
    for (int i = 0; i < program->count; i++)
        if (strcmp(program->at[i].code, code) == 0 && same_launches(program->at[i].kernel.launches, launches))
            return program->at[i].kernel.launches;
    int names = launches->count > call->count ? launches->count : call->count + 1;
    const char *name = name_of(program, call, names);
    const char *named = code_of(program, call, name, launches, &comment);
    take_names(program, name, names);
    fprintf(out, "%s%s\n", comment, named);
    *new_kernel(program) = (KernelText){ .kernel = { op->path ? op->path : name, op->where ? op->where : "", launches,
                                                     least_bytes(m, call) },
                                         .code = code };
    return launches;
}

/* Adds the kernel of an op and of those in its group; returns the last of these. */
static const Op *add_call(CudaProgram *program, const Op *op, FILE *out)
{
    Module *m = program->m;
    const Op **group = NEW_ARRAY(&m->arena, const Op *, MAX_GROUP);
    CudaCall *call = NEW(&m->arena, CudaCall);
    *call = (CudaCall){ .count = find_cuda_group(m, op, group), .op = group };
    call->is_in_product = call->count == 1 && is_run_by_product(m, op);
    call->launches = add_kernel(program, call, out);
    map_put(&program->calls, op, call);
    return group[call->count - 1];
}

/* Adds kernels for the products of an op that cuBLASLt does not support, or of which it would compute too much, and
 * epilogues for the others. */
static void add_products(CudaProgram *program, const Op *op, const Func *kernel, FILE *out)
{
    Module *m = program->m;
    Product *products;
    const Op **only = NEW(&m->arena, const Op *);
    *only = op;
    int count = plan_products(m, kernel, op, &products);
    CudaCall **calls = NEW_ARRAY(&m->arena, CudaCall *, count + 1); /* NULL after the last */
    for (int i = 0; i < count; i++) {
        const Product *p = &products[i];
        program->has_blocks |= p->shape.block > 0;
        const bool is_own = p->naive || is_cuda_counted(m, p, op);
        if (!is_own && !p->shape.has_bias && !p->shape.activation)
            continue;
        calls[i] = NEW(&m->arena, CudaCall);
        *calls[i] = is_own ? (CudaCall){ .count = 1, .op = only, .product = p }
                           : (CudaCall){ .count = 1, .op = unfused_epilogue(m, op, p) };
        calls[i]->launches = add_kernel(program, calls[i], out);
    }
    map_put(&program->products, op, calls);
}

/* Kernels that the runtime launches: for messages between ranks, and initial values. */
static void add_messages(CudaProgram *program, FILE *out)
{
    static CudaLaunch messages[] = { { .name = "rt_messages", .blocks = 1, .threads = 256 },
                                     { .name = "rt_progress", .blocks = 1, .threads = 1 } };
    static const CudaLaunches launches = { .count = 2, .at = messages };
    fputs(cuda_messages_template, out);
    *new_kernel(program) = (KernelText){ .kernel = { "messages", "", &launches, 0 }, .code = "" };
}

static void add_initial_values(CudaProgram *program, FILE *out)
{
    static CudaLaunch initial = { .name = "rt_initial_values", .blocks = 1, .threads = 256 };
    static const CudaLaunches launches = { .count = 1, .at = &initial };
    fputs(cuda_initial_template, out);
    *new_kernel(program) = (KernelText){ .kernel = { "initial values", "", &launches, 0 }, .code = "" };
}

static void add_encoding(CudaProgram *program, FILE *out)
{
    static CudaLaunch encoding = { .name = "rt_encode_by_terms", .blocks = 1, .threads = 256 };
    static const CudaLaunches launches = { .count = 1, .at = &encoding };
    fputs(cuda_encode_template, out);
    *new_kernel(program) = (KernelText){ .kernel = { "8 bits", "", &launches, 0 }, .code = "" };
}

static const char *kernels_text(CudaProgram *program)
{
    Text text;
    open_text(&text);
    for (const Func *f = program->m->funcs; f; f = f->next)
        for (const Op *op = f->role == KERNEL ? NULL : f->first; op; op = op->next) {
            const Func *callee = op->kind == OP_call ? find_func(program->m, op->attrs.callee) : NULL;
            if (is_cuda_kernel(program->m, op))
                op = add_call(program, op, text.out);
            else if (callee && callee->role == KERNEL && is_product_kernel(callee))
                add_products(program, op, callee, text.out);
        }
    if (program->m->naxes)
        add_messages(program, text.out);
    add_initial_values(program, text.out);
    if (program->has_blocks)
        add_encoding(program, text.out);
    return close_text(&program->m->arena, &text);
}

CudaProgram *emit_cuda_program(Module *m)
{
    int errors = m->diags->errors;
    CudaProgram *program = NEW(&m->arena, CudaProgram);
    note_ranks(m);
    *program = (CudaProgram){ .m = m, .names.arena = &m->arena, .calls.arena = &m->arena, .products.arena = &m->arena };
    const char *kernels = kernels_text(program);
    Text text, offsets;
    open_text(&text);
    open_text(&offsets);
    write_offset_declarations(m, &program->offsets, "__constant__", offsets.out);
    if (program->offsets.count)
        fputc('\n', offsets.out);
    FILL(text.out, cuda_program_template, { "model", m->name },
         { "source", comment_text(m, m->source ? m->source : "IR") }, { "offsets", close_text(&m->arena, &offsets) },
         { "kernels", kernels });
    program->text = close_text(&m->arena, &text);
    return m->diags->errors == errors ? program : NULL;
}

const char *cuda_program_text(const CudaProgram *program) { return program->text; }
const ShardOffsets *cuda_program_offsets(const CudaProgram *program) { return &program->offsets; }
const CudaCall *cuda_call(const CudaProgram *program, const Op *op) { return map_get(&program->calls, op); }

const CudaCall *cuda_product_call(const CudaProgram *program, const Op *op, int number)
{
    CudaCall *const *calls = map_get(&program->products, op);
    return calls ? calls[number] : NULL;
}

const CudaKernel *cuda_kernel(const CudaProgram *program, int number)
{
    return number < program->count ? &program->at[number].kernel : NULL;
}
