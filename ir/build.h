/* build.h -- building and replacing ops of a function; part of ir.h, which includes it. */
#ifndef MPC_BUILD_H
#define MPC_BUILD_H

#include "ir.h"

/* Aborts: a pass has built an invalid op. */
_Noreturn void report_ill_typed(Module *m, const Func *f, OpKind kind, int nargs, Value *const args[]);
/* An ill-typed op is a bug of the caller: build() reports it and aborts.  For operands from user input, use
 * try_build. */
Op *build(Builder *b, OpKind kind, Attrs attrs, int nargs, Value *const args[]);
Op *try_build(Builder *b, OpKind kind, Attrs attrs, int nargs, Value *const args[]);   /* NULL after reporting */
Value *build_op(Builder *b, OpKind kind, Attrs attrs, int nargs, Value *const args[]); /* its only result */
#define BUILD(b, kind, attrs, ...)                                                                                     \
    build_op((b), (kind), (attrs), (int)(sizeof((Value *[]){ __VA_ARGS__ }) / sizeof(Value *)),                        \
             (Value *[]){ __VA_ARGS__ })
#define NO_ATTRS ((Attrs){ 0 })
Value *build_number(Builder *b, double value);             /* a weak f32 constant */
Value *build_zeros(Builder *b, const Type *type);          /* broadcast */
bool same_order(const Type *a, const Type *b);             /* in memory; of the same dims */
Value *build_like(Builder *b, Value *x, const Type *like); /* x, spread over the dims of `like`, in their order */
Value *build_cast(Builder *b, DType dtype, Value *x);      /* x itself, if it has the dtype */
Value *build_rounded(Builder *b, DType dtype, Value *x);   /* x, rounded to the dtype */
/* The rows x of a queue, spread over those of its dims `over` that stand before one of x's in `place`: what dispatches
 * them walks over dims that they have, then over choices that share a row. */
Value *build_rows(Builder *b, Value *x, const Value *place, const Names *over);
Op *clone_op(Builder *b, const Op *op, Value *const args[]); /* same kind, attributes, location and names */
/* The same, on what `own` has in the place of the op's operands; the clone's results are then in the place of its. */
Op *clone_mapped(Builder *b, const Op *op, struct Map *own);
Name free_kernel_name(Module *m, const Op *op,
                      const char *suffix);   /* an unused one for a kernel of the op: "k.h.mlp" */
const char *kernel_path(const Func *kernel); /* without what that has before the path: "h.mlp" */
/* A copy of a function and of those that it calls: each loop has a body of its own. */
Func *copy_func(Module *m, const Func *f, const char *suffix);
Builder builder_at(Module *m, Func *f, Op *before); /* takes location and path of `before` */
void replace_value(Values *values, const Value *old, Value *with);
void replace_uses(Func *f, const Value *old, Value *with);
void insert_op(Func *f, Op *op, Op *before);
void remove_op(Func *f, Op *op);
void note_read(struct Map *read, const Values *values); /* each value -> itself */
void remove_dead_ops(Func *f, struct Map *read);        /* adds remaining ops and their operands to `read` */
bool is_used(const Func *f, const Value *value);
bool is_zeros(const Value *value); /* the number 0, or copies of it */

#endif
