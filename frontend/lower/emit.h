/* emit.h -- building IR: functions, ops, operands, labels. */
#ifndef MPC_EMIT_H
#define MPC_EMIT_H

#include "elaborate/lowering.h"

/* --- frame.c: functions, their parameters and names ----------------------------------------------- */

Body *scan_along(const Lower *l, Name dim); /* the body of the scan along that dim around this; NULL: there is none */
bool is_in_scan(const Lower *l);
Name free_function_name(Lower *l, Name name);
void name_value(Lower *l, Value *value, Name path); /* if the name is free in the function */
Value *import_value(Lower *l, Body *frame, Value *value, Body *defined_in);
/* What a captured value is where it is computed: there, `frame` is.  Without `scans`, at most where it has no dim more.
 */
Value *outside_bodies(Body **frame, Value *value, bool scans);
Value *import_param(Lower *l, const Use *use, Body *frame, Name name, Type type, Port port); /* use: those around */
Value *dropout_key(Lower *l, Body *frame);
Value *dropout_origin(Lower *l);
void finish_frame(Lower *l, Body *frame); /* orders the parameters of a function */
void push_all(Lower *l, Values *to, const Values *from);
void push_named(Lower *l, Body *frame, Values *values, Value *value); /* to one of the frame's lists */
Value *new_port(Lower *l, Name name, Type type, Port port);           /* a parameter of the model */
Value *new_value(Lower *l, Name name, Type type);

/* --- emit.c: ops ------------------------------------------------------------------------------------ */

/* The op at l->b.  NULL if an operand is, or after reporting. */
Value *emit(Lower *l, OpKind kind, Attrs attrs, int nargs, Value *const args[]);
#define EMIT(l, kind, attrs, ...)                                                                                      \
    emit((l), (kind), (attrs), (int)(sizeof((Value *[]){ __VA_ARGS__ }) / sizeof(Value *)), (Value *[]){ __VA_ARGS__ })
static inline Value *one(Lower *l, OpKind kind, Value *a) { return EMIT(l, kind, NO_ATTRS, a); }
static inline Value *two(Lower *l, OpKind kind, Value *a, Value *b) { return EMIT(l, kind, NO_ATTRS, a, b); }
Op *emit_op(Lower *l, OpKind kind, Attrs attrs, int nargs, Value *const args[]); /* of several results */
Value *emit_number(Lower *l, double value, DType dtype);
Value *emit_iota(Lower *l, Dim dim);
Value *emit_cast(Lower *l, Value *x, DType dtype);
Value *emit_gather(Lower *l, Value *x, Name dim, Value *index); /* of any type */
Value *emit_in_order(Lower *l, Value *x, Names order);          /* all dims of x; x itself if they are in that order */
Value *emit_f32(Lower *l, Value *x);                            /* f32 for every train.precision */
Value *reorder(Lower *l, Value *value, const Type *like);       /* to the order of the dims of like */
bool too_large(Lower *l, const Type *type, Loc at);             /* reports a tensor too large for any machine */
bool too_many_dims(Lower *l, const Type *type, Loc at);         /* reports one with no dims left for copies */

/* --- operands.c --------------------------------------------------------------------------------------- */

void set_place(Lower *l, Loc loc);                          /* of the ops that follow */
Operand tensor_operand(Value *value);                       /* WRONG if NULL */
Value *value_of(Lower *l, Operand operand, DType dtype);    /* a number as a scalar of that dtype */
Operand scalar_of(Lower *l, Operand operand, DType stated); /* the same; of i32 or bool where that is stated and fits */
bool is_finite(Lower *l, Constant number, Loc at, const char *what); /* in f32; else reports that `what` must be */

/* Broadcast by name: one operand has all the dims, unless all are i32 or bool. */
bool dims_fit(Lower *l, Loc at, const char *verb, int n, const Ast *const asts[], Value *const values[]);
/* Brings two operands of arithmetic to one dtype. */
bool unify(Lower *l, Loc at, const char *verb, const Ast *const asts[2], const Operand operands[2], Value *values[2]);
Operand combine(Lower *l, OpKind kind, Loc at, const char *verb, const Ast *const asts[2], const Operand operands[2]);

bool is_new(Lower *l, const Value *x, Name dim, Loc at); /* reports a dim that x has already */
/* A dim of x; reports an error if x lacks it. */
bool need_dim(Lower *l, const Value *x, const Ast *at, const char *name, Loc loc, Name *dim);

bool has_no_positions(Lower *l, Name dim, Loc at); /* reports a dim of which none may be named */

/* --- indices.c ---------------------------------------------------------------------------------------- */

Input *input_viewed_by(Lower *l, Value *value); /* the input that the value is a view of; NULL: none */
/* Notes that inputs used as an index of a dim are below its size; false after reporting a number that is not. */
bool index_fits(Lower *l, Value *index, const Dim *dim, const Constant *ignored, Loc at);

/* --- labels.c: the divisor of a mean of cross_entropy ------------------------------------------------ */

Entropy *note_labels(Lower *l, Entropy labelled);
Entropy *find_labelled(const Lower *l, const Value *value); /* NULL: it is no cross_entropy */
void note_import(Lower *l, const Value *outside, const Value *inside);

/* Of what a scan yields: its labels at all places, if all of them come from outside. */
void stack_labels(Lower *l, const Body *body, const Value *inside, const Value *stacked);

/* Of a value that a repeat carries: before the body, after it (false after an error), and after the repeat. */
Entropy *enter_labels(Lower *l, const Value *before, const Value *inside);
bool leave_labels(Lower *l, Entropy *entered, const Value *after, const char *name, Loc at);
void keep_labels(Lower *l, const Body *body, const Value *inside, const Value *handed_on);

#endif
