/* execute.c -- runs the output of the C back end, and compares it with the interpreter.
 *
 *     execute [-e] FILE.mir...
 *
 * A file holds a function @main, whose ops are calls of KERNEL functions and LIBRARY ops, and the kernels.  Values
 * without storage in the file are placed densely, one after the other.  The ops of @main become C, a compiler makes a
 * shared library of it, and it runs on random operands with 1, 2 and 3 threads: all memory must be bitwise equal, and
 * the results of @main close to the interpreter's. -e: only writes the C, to stdout.
 */
#include "codegen/codegen.h"
#include "codegen/text/names.h"
#include "ir/interp/interp.h"
#include "runtime/convert.h"
#include "tests/codegen/files.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <omp.h>

enum { MAX_SHAPES = 64 };

static RtProductShape shapes[MAX_SHAPES];
static int nshapes;

/* --- The runtime's product, plainly --------------------------------------------------------------- */

static double element(const void *memory, RtType type, int64_t at)
{
    if (type == RT_F32)
        return ((const float *)memory)[at];
    uint16_t half = ((const uint16_t *)memory)[at];
    return type == RT_BF16 ? rt_float_of_bf16(half) : rt_float_of_f16(half);
}

static void set_element(void *memory, RtType type, int64_t at, double value)
{
    if (type == RT_F32)
        ((float *)memory)[at] = (float)value;
    else if (type == RT_BF16)
        ((uint16_t *)memory)[at] = rt_bf16_of_float((float)value);
    else if (type == RT_F16)
        ((uint16_t *)memory)[at] = rt_f16_of_float((float)value);
    else if (type == RT_I32)
        ((int32_t *)memory)[at] = (int32_t)value;
    else
        ((bool *)memory)[at] = value != 0;
}

static double get_element(const void *memory, RtType type, int64_t at)
{
    if (type == RT_I32)
        return ((const int32_t *)memory)[at];
    return type == RT_BOOL ? ((const bool *)memory)[at] : element(memory, type, at);
}

void rt_product_create(Rt *rt, int id, RtProductShape shape)
{
    if ((shape.a.row != 1 && shape.a.column != 1) || (shape.b.row != 1 && shape.b.column != 1)) {
        fprintf(stderr, "product %d: no stride of a or b is 1\n", id);
        exit(1);
    }
    shapes[id] = shape;
    nshapes = id + 1 > nshapes ? id + 1 : nshapes;
}

static double activated(RtActivation activation, double x)
{
    if (activation == RT_RELU)
        return x > 0 ? x : 0;
    return activation == RT_GELU_TANH ? 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))) : x;
}

void rt_product_with(Rt *rt, int id, const void *a, const void *b, const void *bias, void *before, void *c)
{
    const RtProductShape *s = &shapes[id];
    for (int64_t x = 0; x < s->batch; x++)
        for (int64_t i = 0; i < s->m; i++)
            for (int64_t j = 0; j < s->n; j++) {
                int64_t to = x * s->c.batch + i * s->c.row + j * s->c.column;
                double sum = s->accumulate ? element(c, s->c.type, to) : 0;
                for (int64_t l = 0; l < s->k; l++)
                    sum += element(a, s->a.type, x * s->a.batch + i * s->a.row + l * s->a.column) *
                           element(b, s->b.type, x * s->b.batch + l * s->b.row + j * s->b.column);
                sum += s->has_bias ? element(bias, s->c.type, j) : 0;
                if (s->keeps_before)
                    set_element(before, s->c.type, to, sum);
                set_element(c, s->c.type, to, activated(s->activation, sum));
            }
}

void rt_product(Rt *rt, int id, const void *a, const void *b, void *c) { rt_product_with(rt, id, a, b, NULL, NULL, c); }

static double slope(double x)
{
    const double inner = 0.7978845608028654 * (x + 0.044715 * x * x * x), t = tanh(inner);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

void rt_product_slope(Rt *rt, int id, const void *a, const void *b, const void *at, void *c)
{
    const RtProductShape *s = &shapes[id];
    rt_product(rt, id, a, b, c);
    for (int64_t x = 0; x < s->batch; x++)
        for (int64_t i = 0; i < s->m; i++)
            for (int64_t j = 0; j < s->n; j++) {
                int64_t to = x * s->c.batch + i * s->c.row + j * s->c.column;
                set_element(c, s->c.type, to, element(c, s->c.type, to) * slope(element(at, s->c.type, to)));
            }
}

/* --- A frame for @main ------------------------------------------------------------------------------ */

static Func *main_of(Module *m)
{
    Func *f = find_func(m, intern_text(m, "main"));
    if (!f)
        fprintf(stderr, "%s has no function @main\n", m->diags->source->path), exit(1);
    return f;
}

static void place_main(Module *m) { place_values(m, main_of(m)); }

/* Between the frame, where the value lies, and a tensor. */
static void copy_tensor(char *frame, const Value *value, Tensor *tensor, bool into_frame)
{
    const Type *type = &value->type;
    RtType element_type = element_rt_type(type->dtype);
    int64_t index[MAX_RANK] = { 0 }, count = element_count(type);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0;
        for (int j = 0; j < type->rank; j++)
            at += index[j] * value->storage->stride[j];
        if (into_frame) {
            set_element(frame + value->storage->at, element_type, at, tensor->data[i]);
            tensor->data[i] = get_element(frame + value->storage->at, element_type, at); /* as rounded */
        } else {
            tensor->data[i] = get_element(frame + value->storage->at, element_type, at);
        }
        for (int j = type->rank - 1; j >= 0 && ++index[j] == type->dim[j].size; j--)
            index[j] = 0;
    }
}

/* --- The C ------------------------------------------------------------------------------------------ */

static const char **operand_texts(Module *m, const Op *op)
{
    int count = op->args.count + op->results.count;
    const char **text = NEW_ARRAY(&m->arena, const char *, count + 1);
    for (int i = 0; i < count; i++) {
        const Value *value = i < op->args.count ? arg(op, i) : op->results.at[i - op->args.count];
        text[i] = arena_text(&m->arena, "at(frame, %" PRId64 ")", value->storage->at);
    }
    return text;
}

static int64_t scratch_bytes;

static void write_kernel(Module *m, FunctionText text, const char *name, FILE *out)
{
    if (text.body)
        fprintf(out, "%s%s\n", text.comment, function_code(m, &text, name));
}

static void write_run(Module *m, Statement statement, FILE *out)
{
    fprintf(out, "%s\n", statement_text(m, &statement));
}

static void write_op(Module *m, const Op *op, int number, FILE *functions, FILE *create, FILE *run)
{
    const char *const *operands = operand_texts(m, op);
    const Func *kernel = op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
    const char *name =
        arena_text(&m->arena, "%s_%d", c_identifier(m, kernel ? kernel->name : info(op)->name, 30), number);
    int64_t scratch = 0;
    if (!kernel) {
        scratch = library_scratch(m, op);
        write_kernel(m, library_kernel_text(m, op, NULL), name, functions);
        write_run(m, kernel_call(m, op, name, operands, scratch ? "scratch" : NULL), run);
    } else if (!is_product_kernel(kernel)) {
        scratch = row_kernel_scratch(m, kernel);
        write_kernel(m, row_kernel_text(m, kernel, op, NULL, false), name, functions);
        write_run(m, kernel_call(m, op, name, operands, scratch ? "scratch" : NULL), run);
    } else {
        Product *products;
        int count = plan_products(m, kernel, op, &products);
        for (int i = 0; i < count; i++) {
            const char *product = arena_text(&m->arena, "%s_%d", name, i);
            int id = number * 4 + i;
            if (products[i].copied >= 0)
                fprintf(run, "memcpy(%s, %s, %" PRId64 ");\n", operands[op->args.count + products[i].c],
                        operands[products[i].copied], local_bytes(m, &op->results.at[products[i].c]->type));
            products[i].copied = -1;
            if (products[i].naive) {
                write_kernel(m, naive_product_text(m, &products[i], op), product, functions);
                write_run(m, naive_product_call(m, &products[i], product, op, operands), run);
                continue;
            }
            open_table("RtProductShape", arena_text(&m->arena, "shape_%d", id), create);
            fprintf(create, "%s", product_shape_text(m, &products[i].shape, NULL));
            close_table(create);
            fprintf(create, "rt_product_create(rt, %d, shape_%d[0]);\n", id, id);
            write_run(m, product_call(m, &products[i], id, op, operands), run);
        }
    }
    scratch_bytes = scratch > scratch_bytes ? scratch : scratch_bytes;
}

static const char program[] = "#include \"runtime/rt.h\"\n"
                              "\n"
                              "#include \"runtime/kernels/kernels.h\"\n"
                              "\n"
                              "static inline void *at(char *frame, int64_t offset) { return frame + offset; }\n"
                              "\n"
                              "$functions\n"
                              "void create(Rt *rt);\n"
                              "void create(Rt *rt)\n"
                              "{\n"
                              "    $create\n"
                              "    (void)rt;\n"
                              "    (void)at;\n"
                              "}\n"
                              "\n"
                              "void run(Rt *rt, char *frame, float *scratch);\n"
                              "void run(Rt *rt, char *frame, float *scratch)\n"
                              "{\n"
                              "    $run\n"
                              "    (void)rt;\n"
                              "    (void)scratch;\n"
                              "}\n";

static void write_program(Module *m, FILE *out)
{
    const Func *f = main_of(m);
    Text functions, create, run;
    open_text(&functions);
    open_text(&create);
    open_text(&run);
    int number = 0;
    scratch_bytes = 64;
    for (const Op *op = f->first; op; op = op->next)
        write_op(m, op, number++, functions.out, create.out, run.out);
    FILL(out, program, { "functions", close_text(&m->arena, &functions) }, { "create", close_text(&m->arena, &create) },
         { "run", close_text(&m->arena, &run) });
}

/* --- Running ------------------------------------------------------------------------------------------ */

typedef void Create(Rt *);
typedef void Run(Rt *, char *, float *);

static void *build_library(Module *m, const char *directory)
{
    char *source = arena_text(&m->arena, "%s/kernels.c", directory),
         *library = arena_text(&m->arena, "%s/kernels.so", directory);
    const char *flags = getenv("KERNEL_FLAGS"), *cc = getenv("KERNEL_CC");
    FILE *out = fopen(source, "w");
    write_program(m, out);
    fclose(out);
    char *command = arena_text(
        &m->arena, "%s -std=gnu17 -shared -fPIC -fopenmp -Wall -Wextra -Werror %s -I%s -o %s %s %s -lm", cc ? cc : "cc",
        flags ? flags : "-O3 -march=native -fno-math-errno -fno-trapping-math", MPC_ROOT, library, source, MPC_LIBRARY);
    if (m->diags->errors || system(command) != 0)
        return NULL;
    return dlopen(library, RTLD_NOW);
}

/* i32 operands stay below the size of dim `vocab`, where there is one, and reach -1 if they may be ignored. */
static Tensor random_operand(const Value *value, int64_t vocab)
{
    if (value->type.dtype == I32)
        return random_tensor(value->name, &value->type, strncmp(value->name, "labels", 6) == 0 ? -1 : 0, (double)vocab);
    return random_tensor(value->name, &value->type, strncmp(value->name, "pos", 3) == 0 ? 0.5 : -1, 1);
}

static int64_t find_vocab(const Module *m, const Func *f)
{
    for (int i = 0; i < f->params.count; i++)
        for (int j = 0; j < f->params.at[i]->type.rank; j++)
            if (strcmp(f->params.at[i]->type.dim[j].name, "vocab") == 0)
                return f->params.at[i]->type.dim[j].size;
    return 8;
}

static double tolerance(DType dtype) { return dtype == BF16 ? 8e-3 : dtype == F16 ? 2e-3 : 3e-5; }

static bool check_results(Module *m, const Func *f, char *frame, Tensor args[])
{
    Tensor expected[64];
    if (!interpret_with(m, f, args, expected, &(RunOptions){ .rounds = true }))
        return false;
    bool ok = true;
    for (int i = 0; i < f->results.count; i++) {
        const Value *value = f->results.at[i];
        Tensor got = new_tensor(&value->type);
        copy_tensor(frame, value, &got, false);
        Difference d = tensor_difference(&expected[i], &got, 0);
        if (!(d.by <= tolerance(value->type.dtype))) {
            printf("  %%%s: differs by %.3g at %" PRId64 ": expected %.9g, got %.9g\n", value->name, d.by, d.at, d.a,
                   d.b);
            ok = false;
        }
        free_tensors(&got, 1);
    }
    free_tensors(expected, f->results.count);
    return ok;
}

static bool run_file(Module *m, const char *directory)
{
    const Func *f = main_of(m);
    void *library = build_library(m, directory);
    if (!library) {
        printf("  cannot be compiled or loaded\n");
        return false;
    }
    Create *create = (Create *)(intptr_t)dlsym(library, "create");
    Run *run = (Run *)(intptr_t)dlsym(library, "run");
    create(NULL);
    char *frame[4];
    Tensor args[64];
    size_t bytes = (size_t)(f->frame + 4095) / 4096 * 4096;
    bool ok = true;
    for (int threads = 1; threads <= 3; threads++) {
        frame[threads] = aligned_alloc(4096, bytes);
        float *scratch = aligned_alloc(4096, (size_t)(scratch_bytes + 4095) / 4096 * 4096);
        memset(frame[threads], 0x7f, bytes);
        for (int i = 0; i < f->params.count; i++) {
            args[i] = random_operand(f->params.at[i], find_vocab(m, f));
            copy_tensor(frame[threads], f->params.at[i], &args[i], true);
            if (threads < 3)
                free_tensors(&args[i], 1);
        }
        omp_set_num_threads(threads);
        run(NULL, frame[threads], scratch);
        free(scratch);
        if (memcmp(frame[1], frame[threads], bytes) != 0) {
            printf("  %d threads do not give what 1 gives\n", threads);
            ok = false;
        }
    }
    ok &= check_results(m, f, frame[3], args);
    free_tensors(args, f->params.count);
    for (int threads = 1; threads <= 3; threads++)
        free(frame[threads]);
    dlclose(library);
    return ok;
}

int main(int argc, char **argv)
{
    return execute_files(argc, argv, &(Execution){ place_main, write_program, run_file });
}
