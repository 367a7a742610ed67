/* codegen.h -- interfaces between the parts of the C back end.
 *
 * host.c writes the program around the kernels; row.c, product.c and library.c write one op or kernel as C.
 *
 * An operand's pointer is given as the text of a C expression of type `void *` (or a pointer to the element), in the
 * order of call->args and then call->results: the kernel emitters use it, the host emitter determines it.
 */
#ifndef MPC_CODEGEN_H
#define MPC_CODEGEN_H

#include "ir/ir.h"
#include "runtime/rt.h"

/* takes.c, for Module.takes: does a kernel for the op exist that works on memory as it lies? */
bool kernels_accept(Module *m, const Op *op, RequiredLayout wanted[]);

/* --- names.c: texts that several parts use -------------------------------------------------- */

/* The C type of one element in memory: "float", "rt_bf16", "rt_f16", "int32_t", "rt_bool". */
const char *element_type(DType dtype);

/* The RtType constant of a dtype: "RT_F32". */
const char *element_constant(DType dtype);
RtType element_rt_type(DType dtype);

/* `text` as a C identifier of at most `room` characters: other characters become '_', leading components of a path that
 * is too long are dropped, and a leading digit is preceded by a letter. */
char *c_identifier(Module *m, const char *text, int room);

/* An identifier unique to `text`, without a name table: a text that is not an identifier, too long for one, or not
 * `is_plain`, gets a hash appended. */
char *hashed_identifier(Module *m, const char *text, bool is_plain);

/* The number of iterations of a loop over the dim: of a split dim all elements of the rank, including padding, since
 * the start of padding depends on the rank, and of a full one, too (passes/layout/padding.c keeps it out of sums). */
int64_t loop_size(const Module *m, const Dim *dim);
int64_t value_bytes(const Module *m, const Value *value); /* of its elements, in loops over all its dims */

/* --- shard_offset.c: this rank's part of a split dim ----------------------------------------------- */

/* The split dims whose offset a text uses: emitters add those that they use.  NULL: they are not collected. */
typedef struct ShardOffsets {
    int count, room;
    Dim *at;
} ShardOffsets;

const char *offset_variable(Module *m, const Dim *dim); /* of a split dim: an RtPart, set when the program starts */
const char *use_offset(Module *m, ShardOffsets *offsets, const Dim *dim); /* the same, added */

/* The index in the whole dim of a local element, where `index` is the C text of the local one. */
char *position_in_whole(Module *m, ShardOffsets *offsets, const Dim *dim, const char *index);

char *split_initialiser(Module *m, const Dim *dim); /* of an RtSplit */
char *parts_initialiser(Module *m, const Dim *dim); /* the elements of each rank */

void write_offset_declarations(Module *m, const ShardOffsets *offsets, const char *storage, FILE *out);

/* Their C variables, and a function that sets them. */
void write_offsets(Module *m, const ShardOffsets *offsets, const char *storage, FILE *out);

void write_offset_table(Module *m, const ShardOffsets *offsets, FILE *out); /* parts[], of RtPartConstant */

/* --- function.c: functions and statements of the program, before they are text --------------- */

/* A void function, without its name. */
typedef struct {
    const char *comment; /* the comment above it */
    int nparameters;
    const char *const *parameter; /* "const float *restrict x" */
    const char *body;             /* lines at the left margin; NULL after an error */
} FunctionText;

char *function_comment(Module *m, const char *title, const char *operands);     /* of lines "* x: f32[seq:8]" */
char *function_code(Module *m, const FunctionText *function, const char *name); /* without its comment */

/* A call, in loops over dims outside of the function. */
typedef struct {
    const char *function;
    int count;
    const char *const *operand;
    int nloops;
    struct {
        const char *index;
        int64_t count;
    } loop[MAX_RANK];
} Statement;

/* Lines, wrapped for an indentation of four columns; a hole of fill.h indents them all. */
char *statement_text(Module *m, const Statement *statement);
char *loop_text(Module *m, const char *pragma, const char *index, const char *low, const char *high, const char *body);

/* --- row.c: kernels made of pointwise ops, reductions and leaves ------------------------------ */

const Func *row_kernel_of(const Module *m, const Op *op); /* called by op; NULL: no kernel, or of products */

/* The C function of a row kernel for `call`: sizes from the kernel's types, strides from the storage of call's
 * operands.
 *
 *     static void NAME(const float *restrict x, ..., float *restrict y, ..., float *restrict scratch)
 *
 * Pointers to the elements of the kernel's parameters in order, then of its results; `scratch` is there iff
 * row_kernel_scratch() is not 0.  A result may have exactly the storage of a parameter with the same dims.  anonymous:
 * names depend only on positions; two calls with equal anonymous code share one function. */
FunctionText row_kernel_text(Module *m, const Func *kernel, const Op *call, ShardOffsets *offsets, bool anonymous);

/* Bytes of scratch that one call of the kernel needs, for the sums of its column reductions; 0 for most.  Depends only
 * on types: the memory pass needs it before storage is known. */
int64_t row_kernel_scratch(Module *m, const Func *kernel);

/* The statement that calls it, or the kernel of a library op: "NAME(x, y, scratch);".  NULL: no scratch. */
Statement kernel_call(Module *m, const Op *op, const char *name, const char *const operand[], const char *scratch);

/* For kernels_accept: does no result overwrite an operand before its last read? */
bool row_kernel_accepts(Module *m, const Func *kernel, const Op *call, RequiredLayout wanted[]);
bool row_kernel_shares(const Module *m, const Op *call); /* may a result be where an operand is?  Else it takes all */

/* --- product.c: kernels made of dots ---------------------------------------------------------- */

bool is_product_kernel(const Func *kernel);

/* One C = A B of a product kernel, or several that are one.  `a`, `b`, `bias`, `at` (where the slope is taken), `from`
 * are indices into call->args; `c` and `before` into call->results; -1: none.  Dims that fit neither the shape's m, n,
 * k nor its batch are loops around it. */
typedef struct {
    RtProductShape shape;
    int a, b, c, bias, at, before;
    int from[2]; /* a and b before they were rounded to 8 bits, which may be read in their place; -1: there are none */
    int terms;   /* products that are added up in it: one with a longer sum */
    int copied; /* index into call->args: initial value of C += A B, to be copied to C first, unless the library adds to
                   it where it is; -1: none */
    int nloops;
    struct {
        Name dim;
        int64_t count, a, b, c, bias; /* iterations, and strides in elements */
    } loop[MAX_RANK];
    bool naive;                         /* operand order not supported by rt_product: emit_naive_product writes loops */
    const Op *dot, *activation, *slope; /* the latter NULL: none */
    const char *sums, *scratch;         /* texts of pointers, for the shape's sums; NULL: none */
} Product;

/* The products of a kernel: one for each dot, or fewer where they lie side by side (product_join.c); several with one
 * result are in the order in which they are added up.  Returns their number; 0 after an error. */
int plan_products(Module *m, const Func *kernel, const Op *call, Product **products);

/* For kernels_accept: the layout required of a running sum that is updated in the result. */
bool products_accept(Module *m, const Func *kernel, const Op *call, RequiredLayout wanted[]);

/* --- product_text.c: the same as text ------------------------------------------------------------ */

/* The initialiser of an RtProductShape, on lines of their own: "{", "  .m = 8192," ..., "}".  `unfused` names the
 * launch that computes bias and activation if cuBLASLt does not; NULL: none. */
char *product_shape_text(Module *m, const RtProductShape *shape, const char *unfused);

/* The statement that runs it: "rt_product(rt, 7, x, w, y);", in loops if needed. */
Statement product_call(Module *m, const Product *product, int id, const Op *call, const char *const operand[]);

/* For naive ones: void NAME(const A *restrict a, const B *restrict b, const C *restrict bias, const C *restrict at, C
 * *restrict before, C *restrict c), without absent ones. */
enum { MAX_PRODUCT_OPERANDS = 6 };
int product_operands(const Product *product, const Op *call, const char *name[],
                     int at[]); /* at: in args, then results */
int product_parameters(Module *m, const Product *product, const Op *call, const char *qualifier, const char *text[]);
FunctionText naive_product_text(Module *m, const Product *product, const Op *call);
/* The statements for one element of the result; the variable index_name(dim) is the index of each dim. */
char *naive_product_point(Module *m, const Product *product, const Op *call);
char *index_name(Module *m, Name dim);
Statement naive_product_call(Module *m, const Product *product, const char *name, const Op *call,
                             const char *const operand[]);

/* --- library.c: ops implemented by kernels of runtime/kernels/ ---------------------------------- */

/* A C function that runs a LIBRARY op by calling the runtime's kernel for these types and strides:
 *
 *     static void NAME(const float *q, ..., float *y, ..., float *scratch)
 *
 * Pointers to operands, then results; `scratch` is there iff library_scratch() is not 0.  No body after an error at the
 * op, if no kernel supports these types or strides. */
FunctionText library_kernel_text(Module *m, const Op *op, ShardOffsets *offsets);
int64_t library_scratch(Module *m, const Op *op); /* bytes; depends only on types */

#endif
