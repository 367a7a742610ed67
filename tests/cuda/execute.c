/* execute.c -- runs every CUDA kernel of a program on the emulator, and compares it with the interpreter.
 *
 *     execute [-e] FILE.mir
 *
 * FILE.mir has been through the memory pass, or is a file of tests/codegen whose @main calls kernels.  Each call of a
 * kernel, and each LIBRARY op, of every function runs separately or with its group: on random operands, in memory where
 * only the operands may be accessed and results are uninitialised.  Equal calls run once. -e: only writes the CUDA
 * text, to stdout.
 */
#include "codegen/cuda/cuda.h"
#include "machine.h"
#include "memory.h"
#include "moved.h"
#include "ranks.h"
#include "tests/codegen/files.h"

#include <inttypes.h>
#include <math.h>

enum { MAX_CALLS = 1024 };

/* The tested calls: each kernel once. */
static const CudaCall *calls[MAX_CALLS];
static int ncalls;

/* --- Programs ----------------------------------------------------------------------------------- */

static void place_all(Module *m)
{
    for (Func *f = m->funcs; f; f = f->next)
        if (f->role != KERNEL)
            place_values(m, f);
}

static bool same_types(const Values *a, const Values *b)
{
    bool same = a->count == b->count;
    for (int i = 0; same && i < a->count; i++)
        same = type_equal(&a->at[i]->type, &b->at[i]->type);
    return same;
}

/* One kernel may be called with operands of several types: it has to fit all. */
static bool same_call(const CudaCall *a, const CudaCall *b)
{
    bool same = a->launches == b->launches && a->count == b->count;
    for (int i = 0; same && i < a->count; i++)
        same = same_types(&a->op[i]->args, &b->op[i]->args) && same_types(&a->op[i]->results, &b->op[i]->results);
    return same;
}

static bool is_new(const CudaCall *call)
{
    for (int i = 0; i < ncalls; i++)
        if (same_call(calls[i], call))
            return false;
    return true;
}

static void add_call(const CudaCall *call)
{
    if (call && ncalls < MAX_CALLS && is_new(call))
        calls[ncalls++] = call;
}

static void write_program(Module *m, FILE *out)
{
    ncalls = 0;
    const CudaProgram *program = emit_cuda_program(m);
    if (!program)
        return;
    fprintf(out, "%s\n#ifndef EMULATED\n#define EMULATED(name)\n#endif\n", cuda_program_text(program));
    write_ranks(m, cuda_program_text(program), out);
    const CudaKernel *kernel;
    for (int i = 0; (kernel = cuda_kernel(program, i)); i++)
        for (int j = 0; j < kernel->launches->count; j++)
            fprintf(out, "EMULATED(%s)\n", kernel->launches->at[j].name);
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->role == KERNEL ? NULL : f->first; op; op = op->next) {
            add_call(cuda_call(program, op));
            const Func *callee = op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
            Product *products;
            const int count = callee && is_product_kernel(callee) ? plan_products(m, callee, op, &products) : 0;
            for (int i = 0; i < count; i++) {
                const CudaCall *rest = cuda_product_call(program, op, i);
                if (rest && !rest->product)
                    add_call(rest);
            }
        }
}

/* --- Operands ------------------------------------------------------------------------------------- */

/* Is it a divisor, or under a root or a logarithm, alone or in a sum? */
static bool must_be_positive(const Func *f, const Value *value)
{
    for (const Op *op = f->first; op; op = op->next) {
        bool root = op->kind == OP_sqrt || op->kind == OP_rsqrt || op->kind == OP_log;
        if ((root && arg(op, 0) == value) || (op->kind == OP_div && arg(op, 1) == value))
            return true;
        if (op->kind == OP_add && index_of(&op->args, value) >= 0 && must_be_positive(f, result(op)))
            return true;
        if (op->kind == OP_mul && arg(op, 1)->def && arg(op, 1)->def->kind == OP_constant && arg(op, 0) == value &&
            must_be_positive(f, result(op)))
            return true;
    }
    return strncmp(value->name, "pos", 3) == 0;
}

/* An index is below the size of the dim. */
static double bound_of(const Module *m, const Func *f)
{
    for (const Op *op = f->first; op; op = op->next) {
        if (op->kind == OP_iota)
            return (double)op->attrs.dims.dim[0].size;
        if (op->kind == OP_gather)
            return (double)arg(op, 0)->type.dim[find_dim(&arg(op, 0)->type, op->attrs.dim)].size;
        if (op->kind == OP_scatter_add || op->kind == OP_place || op->kind == OP_dispatch)
            return (double)op->attrs.dims.dim[0].size;
        if (op->kind == OP_combine || op->kind == OP_collect)
            return (double)arg(op, 0)->type.dim[find_dim(&arg(op, 0)->type, op->attrs.dim)].size;
    }
    return m->vocab ? 16 : 8;
}

static void round_tensor(Tensor *tensor, DType dtype)
{
    for (int64_t i = 0; i < element_count(&tensor->type); i++)
        tensor->data[i] = rounded(tensor->data[i], dtype);
}

/* Documents that follow each other along the second dim. */
static Tensor documents(const Value *value)
{
    enum { LENGTH = 37 };
    Tensor tensor = new_tensor(&value->type);
    const Type *type = &value->type;
    int64_t inner = 1;
    for (int i = 2; i < type->rank; i++)
        inner *= type->dim[i].size;
    for (int64_t i = 0; i < element_count(type); i++)
        tensor.data[i] = (double)(i / inner % type->dim[1].size / LENGTH);
    return tensor;
}

/* No two rows have one place: each has another one, of which some are dropped. */
static Tensor distinct_places(const Type *type)
{
    Tensor tensor = new_tensor(type);
    for (int64_t i = 0; i < element_count(type); i++)
        tensor.data[i] = (double)i - 1;
    return tensor;
}

static bool are_places(const Func *f, const Value *value)
{
    for (const Op *op = f->first; op; op = op->next)
        if (info(op)->traits & SKIPS && arg(op, 2) == value)
            return true;
    return false;
}

static Tensor random_operand(const Module *m, const Func *f, int param)
{
    const Value *value = f->params.at[param];
    if (strncmp(value->name, "documents", 9) == 0)
        return documents(value);
    if (are_places(f, value))
        return distinct_places(&value->type);
    if (value->type.dtype == I32)
        return random_tensor(value->name, &value->type, strncmp(value->name, "labels", 6) == 0 ? -1 : 0,
                             bound_of(m, f));
    Tensor tensor = random_tensor(value->name, &value->type, must_be_positive(f, value) ? 0.5 : -1, 1.5);
    round_tensor(&tensor, value->type.dtype);
    return tensor;
}

/* A function of one op. */
static Func *function_of(Module *m, const Op *op)
{
    Func *f = NEW(&m->arena, Func);
    Op *copy = NEW(&m->arena, Op);
    *copy = *op;
    copy->prev = copy->next = NULL;
    copy->args = copy->results = (Values){ 0 };
    *f = (Func){ .name = intern_text(m, "one"), .first = copy, .last = copy };
    for (int i = 0; i < op->args.count; i++) {
        Value *value = NEW(&m->arena, Value);
        *value = (Value){ .name = arg(op, i)->name, .type = arg(op, i)->type };
        push_value(&m->arena, &f->params, value);
        push_value(&m->arena, &copy->args, value);
    }
    for (int i = 0; i < op->results.count; i++) {
        Value *value = NEW(&m->arena, Value);
        *value = (Value){ .name = op->results.at[i]->name, .type = op->results.at[i]->type, .def = copy };
        push_value(&m->arena, &f->results, value);
        push_value(&m->arena, &copy->results, value);
    }
    return f;
}

/* --- Comparison ------------------------------------------------------------------------------------- */

/* Relative to a number, or to the root mean square of its tensor: a chain of some dozen f32 operations, each a few
 * units in the last place, and sums of N terms whose roundings, being random, add up to sqrt(N) units; the result is
 * rounded once to its type, to another neighbour than the true one if it lies next to the middle.  Attention rounds the
 * weights too, as tensor cores take them: the sum over keys, smaller than its terms, is off by about as much again;
 * its gradients are sums of products with weights, and of slopes, which are rounded differences: four units.  What a
 * kernel rounds on the way (`roundings`) it rounds to another neighbour where f32 and reals lie on two sides of the
 * middle. */
static double tolerance(const Type *type, const Op *op, double points, double roundings)
{
    double f32 = 0x1p-24 * (128 + 4 * sqrt(points)), times = op->kind == OP_attend ? 2 : 1;
    times = op->kind == OP_attend_grad ? 4 : times;
    return f32 + roundings + times * (type->dtype == BF16 ? 0x1p-8 : type->dtype == F16 ? 0x1p-10 : 0);
}

static double points_of(const Func *f)
{
    double most = 1;
    for (const Op *op = f->first; op; op = op->next)
        for (int i = 0; i < op->args.count; i++)
            most = fmax(most, (double)element_count(&arg(op, i)->type));
    return most;
}

/* One unit of the first value that is rounded, and as much again for what becomes of it. */
static double roundings_of(const Func *f)
{
    double most = 0;
    for (const Op *op = f->first; op; op = op->next)
        most = fmax(most, op->kind == OP_round_bf16 ? 0x1p-6 : op->kind == OP_round_f16 ? 0x1p-9 : 0);
    return most;
}

static double usual_size(const double *x, int64_t count)
{
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += x[i] * x[i];
    return sqrt(squares / (double)count);
}

/* Of attention's gradients each row has a size of its own, since early keys weigh more than late ones.  What is next to
 * nothing, as for the first query, which sees but one key, is held against a quarter of the usual size. */
static Difference difference_by_rows(const Tensor *expected, const Tensor *got)
{
    Difference worst = { .at = -1 };
    int64_t width = expected->type.dim[expected->type.rank - 1].size, count = element_count(&expected->type);
    double least = usual_size(expected->data, count);
    for (int64_t i = 0; i < count; i++) {
        double x = expected->data[i], y = got->data[i];
        double usual = fmax(usual_size(expected->data + i / width * width, width), least);
        double by = x == y ? 0 : fabs(x - y) / fmax(fabs(x), usual);
        if (worst.at < 0 || !(by <= worst.by))
            worst = (Difference){ .by = by, .at = i, .a = x, .b = y };
        if (isnan(by))
            break;
    }
    return worst;
}

static bool check_result(const Value *value, const Tensor *expected, const Tensor *got, const Op *op, const Func *f)
{
    const bool by_rows = op->kind == OP_attend_grad || op->kind == OP_attend_bias_grad;
    Difference d = by_rows ? difference_by_rows(expected, got) : tensor_difference(expected, got, 0);
    double most = tolerance(&value->type, op, points_of(f), roundings_of(f));

    if (!(d.by <= most))
        printf("    %%%s: differs by %.3g (of %.3g) at %" PRId64 ": expected %.9g, got %.9g\n", value->name, d.by, most,
               d.at, d.a, d.b);
    return d.by <= most;
}

/* --- One call ----------------------------------------------------------------------------------------- */

/* READS=1: how often a launch reads its operands. */
static void show_reads(const CudaLaunch *launch)
{
    if (getenv("READS"))
        printf("  %s reads %.1f times\n", launch->name, emulator_times_read());
}

static bool launch_all(const Module *m, const CudaCall *call, void *library, void **arguments, int count)
{
    const CudaLaunches *launches = call->launches;
    for (int i = 0; i < launches->count; i++) {
        const CudaLaunch *launch = &launches->at[i];
        EmulatorKernel *kernel = machine_kernel(library, launch->name);
        if (!kernel ||
            !emulator_launch(launch->name, kernel, arguments, count, launch->blocks, launch->threads,
                             getenv("SMALL_SHARED") && launch->shared_small ? launch->shared_small : launch->shared) ||
            !moves_what_is_said(m, launch, call))
            return false;
        show_reads(launch);
    }
    return true;
}

/* One call on all ranks: its whole operands, and the assembled results. */
typedef struct {
    Module *m;
    const CudaCall *call;
    Operands operands;
    Func **f;                     /* by op: what it does, as a function */
    int first[MAX_OPERANDS_HERE]; /* by op: its first operand */
    Tensor *tensor;               /* by operand */
} Run;

/* The first operand that is the same value: several ops of a group may read it. */
static int first_of(const Operands *o, int operand)
{
    int i = 0;
    while (o->value[i] != o->value[operand])
        i++;
    return i;
}

/* Attention's gradient takes what attention makes of the same q, k and v: y, and the logarithms of sums.  That of a
 * bias takes any shares in place of y. */
static void attend_first(Run *run, int n)
{
    enum { TAKEN = 3, MADE = 2, GIVEN = TAKEN + MADE + 1, MORE = 3 }; /* a bias and segments */
    Module *m = run->m;
    const Op *gradient = run->call->op[n];
    const int more = gradient->args.count - GIVEN;
    Tensor *of = run->tensor + run->first[n], taken[TAKEN + MORE], made[MADE];
    Op *attend = NEW(&m->arena, Op);
    Func *f = NEW(&m->arena, Func);
    *attend = (Op){ .kind = OP_attend, .attrs = gradient->attrs };
    *f = (Func){ .name = intern_text(m, "attend"), .first = attend, .last = attend };
    for (int i = 0; i < TAKEN + MADE; i++) {
        Value *value = NEW(&m->arena, Value);
        *value =
            (Value){ .name = arg(gradient, i)->name, .type = arg(gradient, i)->type, .def = i < TAKEN ? NULL : attend };
        value->type = i == TAKEN ? arg(gradient, 0)->type : value->type;
        push_value(&m->arena, i < TAKEN ? &f->params : &f->results, value);
        push_value(&m->arena, i < TAKEN ? &attend->args : &attend->results, value);
    }
    for (int i = 0; i < more; i++) {
        Value *value = NEW(&m->arena, Value);
        *value = (Value){ .name = arg(gradient, GIVEN + i)->name, .type = arg(gradient, GIVEN + i)->type };
        push_value(&m->arena, &f->params, value);
        push_value(&m->arena, &attend->args, value);
    }
    for (int i = 0; i < TAKEN + more; i++)
        taken[i] = of[i < TAKEN ? i : GIVEN + i - TAKEN];
    if (!interpret(m, f, taken, made))
        abort();
    for (int i = 0; i < MADE; i++) {
        const bool is_taken = i > 0 || gradient->kind == OP_attend_grad;
        free_tensors(is_taken ? &of[TAKEN + i] : &made[i], 1);
        if (!is_taken)
            continue;
        of[TAKEN + i] = made[i];
        round_tensor(&of[TAKEN + i], arg(gradient, TAKEN + i)->type.dtype);
    }
}

static void open_run(Run *run)
{
    Module *m = run->m;
    Operands *o = &run->operands;
    run->f = NEW_ARRAY(&m->arena, Func *, run->call->count);
    run->tensor = NEW_ARRAY(&m->arena, Tensor, MAX_OPERANDS_HERE);
    for (int n = 0; n < run->call->count; n++) {
        const Op *op = run->call->op[n];
        run->f[n] = op->kind == OP_call ? find_func(m, op->attrs.callee) : function_of(m, op);
        run->first[n] = o->count;
        for (int i = 0; i < op->args.count; i++) {
            int at = o->count++;
            o->value[at] = arg(op, i);
            int same = first_of(o, at);
            run->tensor[at] = same < at ? run->tensor[same] : random_operand(m, run->f[n], i);
        }
        for (int i = 0; i < op->results.count; i++) {
            o->value[o->count] = op->results.at[i];
            run->tensor[o->count++] = new_tensor(&op->results.at[i]->type);
        }
        if (op->kind == OP_attend_grad || op->kind == OP_attend_bias_grad)
            attend_first(run, n);
    }
}

/* Copies a rank's results to the tensors of results. */
static bool take_results(Run *run, int rank)
{
    bool ok = true;
    for (int n = 0; n < run->call->count; n++) {
        const Op *op = run->call->op[n];
        for (int i = 0; i < op->results.count; i++) {
            int at = run->first[n] + op->args.count + i;
            bool written = take_part(run->m, &run->operands, at, &run->tensor[at], rank);
            if (!written)
                printf("    %%%s: not all of it is written\n", op->results.at[i]->name);
            ok &= written;
        }
    }
    return ok;
}

static void put_operands(const Run *run, int rank)
{
    for (int n = 0; n < run->call->count; n++) {
        const Op *op = run->call->op[n];
        for (int i = 0; i < op->args.count + op->results.count; i++) {
            allow_operand(run->m, &run->operands, run->first[n] + i, i < op->args.count);
            if (i < op->args.count)
                put_on_rank(run->m, &run->operands, run->first[n] + i, &run->tensor[run->first[n] + i], rank);
        }
    }
}

static int64_t scratch_of(const Run *run, int n)
{
    return run->call->product ? 0 : cuda_scratch_bytes(run->m, run->call->op[n]);
}

/* Scratch of each op, with inaccessible gaps in between. */
static char *lay_out_scratch(const Run *run)
{
    int64_t all = GAP;
    for (int n = 0; n < run->call->count; n++)
        all += (scratch_of(run, n) + 2 * GAP - 1) / GAP * GAP;
    char *scratch = aligned_alloc(GAP, (size_t)all);
    emulator_add_memory("scratch", scratch, all);
    return scratch;
}

static bool run_rank(Run *run, void *library, int rank)
{
    enum { MOST = 2 * MAX_OPERANDS_HERE };
    Operands *o = &run->operands;
    void *arguments[MOST];
    int count = 0;
    lay_out(run->m, o);
    char *scratch = lay_out_scratch(run), *at = scratch;
    emulator_add_memory("the operands", o->memory, o->bytes);
    machine_set_rank(library, rank);
    for (int n = 0; n < run->call->count; n++) {
        const Op *op = run->call->op[n];
        for (int i = 0; i < op->args.count + op->results.count; i++)
            arguments[count++] = o->memory + o->at[run->first[n] + i];
        int64_t bytes = scratch_of(run, n);
        if (bytes) {
            emulator_allow(at, bytes, false);
            arguments[count++] = at;
        }
        at += (bytes + 2 * GAP - 1) / GAP * GAP;
    }
    put_operands(run, rank);
    bool ok = launch_all(run->m, run->call, library, arguments, count) && take_results(run, rank);
    emulator_forget_memory();
    free(o->memory);
    free(scratch);
    return ok;
}

static bool check_op(const Run *run, int n)
{
    Module *m = run->m;
    const Op *op = run->call->op[n];
    Tensor *of = run->tensor + run->first[n], *expected = NEW_ARRAY(&m->arena, Tensor, op->results.count + 1);
    bool ok = interpret_with(m, run->f[n], of, expected, &(RunOptions){ .rounds = true });
    for (int i = 0; i < op->results.count && ok; i++)
        ok &= check_result(op->results.at[i], &expected[i], &of[op->args.count + i], op, run->f[n]);
    return ok;
}

static bool run_call(Module *m, const CudaCall *call, void *library)
{
    Run *run = NEW(&m->arena, Run);
    *run = (Run){ .m = m, .call = call };
    open_run(run);
    bool ok = true;
    for (int rank = 0; rank < rank_count(m) && ok; rank++)
        ok = run_rank(run, library, rank);
    for (int n = 0; n < call->count && ok; n++)
        ok = check_op(run, n);
    return ok;
}

/* --- All calls ---------------------------------------------------------------------------------------- */

static void *build_library(Module *m, const char *directory)
{
    char *source = arena_text(&m->arena, "%s/kernels.cpp", directory);
    FILE *out = fopen(source, "w");
    machine_write_head(out);
    write_program(m, out);
    machine_write_tail(out);
    fclose(out);
    return m->diags->errors ? NULL : machine_load(source, directory);
}

static bool run_all(Module *m, const char *directory)
{
    void *library = build_library(m, directory);
    if (!library) {
        printf("  kernels cannot be compiled or loaded\n");
        return false;
    }
    int failed = 0;
    for (int i = 0; i < ncalls; i++)
        if (!run_call(m, calls[i], library)) {
            printf("  %s fails\n", calls[i]->launches->at[0].name);
            failed++;
        }
    machine_unload(library);
    printf("%d kernels: ", ncalls);
    return failed == 0 && ncalls > 0;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    return execute_files(argc, argv, &(Execution){ place_all, write_program, run_all });
}
