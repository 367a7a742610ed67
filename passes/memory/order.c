/* order.c -- copies values into the memory order that their reader needs.
 *
 *   %3 = slice %2 {dim=seq, index=3}                 rows of it are far apart
 *   %4 = all_reduce %3 {axis=tp}             =>      %9 = call %3 {callee=k.loss.copy}
 *                                                    %4 = all_reduce %9 {axis=tp}
 *
 * The strides of a value are known when memory is planned: a slice has those of its tensor, an operand of a loop those
 * of the caller, a member of a pack has the other members between its rows.  Collectives and carried values need dense
 * tensors; the target reports what its kernels accept (Module.takes).  On a mismatch, the op reads or writes a copy,
 * and memory is planned again.  Most programs need no copies and are planned once.
 */
#include "flight.h"
#include "infer.h"
#include "memory.h"
#include "remark.h"
#include "sizes.h"
#include "storage.h"
#include "target.h"
#include "uses.h"

#include <string.h>

enum { MOST_PLANS = 12 };

/* --- Requirements of ops -------------------------------------------------------------------------- */

/* Has the argument the strides of the callee's parameter? */
static bool lies_as(const Op *call, const Value *here, const Value *there)
{
    Name looped = call->attrs.dims.count ? call->attrs.dims.dim[0].name : NULL;
    bool good = true;
    for (int i = 0; i < here->type.rank; i++) {
        int at = find_dim(&there->type, here->type.dim[i].name);
        if (here->type.dim[i].name != looped && here->type.dim[i].padded > 1)
            good &= at >= 0 && there->storage->stride[at] == here->storage->stride[i];
    }
    return good;
}

/* Carried values alternate between dense buffers; other arguments keep their layout. */
static void want_carried(const Module *m, const Map *calls, const Op *op, RequiredLayout wanted[])
{
    const Func *callee = find_func(m, op->attrs.callee);
    bool alone = map_get(calls, callee->name) == op;
    for (int i = 0; i < op->args.count + op->results.count; i++) {
        int number = i < op->args.count ? i : i - op->args.count;
        const Value *there = i < op->args.count ? callee->params.at[number] : callee->results.at[number];
        bool as_it_lies = alone && number >= op->attrs.carried && lies_as(op, arg_or_result(op, i), there);
        wanted[i].copied =
            (!as_it_lies && !is_row_major(m, arg_or_result(op, i))) || padding_overhangs(m, arg_or_result(op, i));
    }
}

/* Messages include padding. */
static void want_sent(const Module *m, const Op *op, RequiredLayout wanted[])
{
    for (int i = 0; i < op->args.count + op->results.count; i++)
        wanted[i].copied = !is_row_major(m, arg_or_result(op, i)) || padding_overhangs(m, arg_or_result(op, i));
}

/* Dims that become one are nested in memory. */
static void want_viewed(const Module *m, const Op *op, RequiredLayout wanted[])
{
    int64_t stride[MAX_RANK];
    wanted[0].copied = !strides_of_view(m, op, stride);
}

static bool any_copied(int count, const RequiredLayout wanted[])
{
    for (int i = 0; i < count; i++)
        if (wanted[i].copied)
            return true;
    return false;
}

/* False: the op accepts all layouts as they are. */
static bool find_wanted(Module *m, const Map *calls, const Op *op, RequiredLayout wanted[])
{
    if (function_called_by(m, op))
        want_carried(m, calls, op, wanted);
    else if (info(op)->family == COLLECTIVE)
        want_sent(m, op, wanted);
    else if (info(op)->family == VIEW)
        want_viewed(m, op, wanted);
    else if ((kernel_called_by(m, op) || info(op)->family == LIBRARY) && m->target->takes(m, op, wanted))
        return false;
    return any_copied(op->args.count + op->results.count, wanted);
}

/* --- Copies --------------------------------------------------------------------------------------- */

static bool gives(const Op *op, Name dim)
{
    const Dims *dims = &op->attrs.dims;
    int i = 0;
    while (i < dims->count && dims->dim[i].name != dim)
        i++;
    return i < dims->count;
}

/* A dim that the op itself gives, as scatter_add that of its rows, keeps the op's padding. */
static Type wanted_type(const Op *op, const Value *value, const RequiredLayout *wanted)
{
    Type type = value->type;
    for (int i = 0; i < wanted->order.count; i++)
        type.dim[i] = value->type.dim[find_dim(&value->type, wanted->order.name[i])];
    for (int i = 0; i < type.rank && wanted->tight; i++)
        if (!runs_over_padding(&type.dim[i]) && !gives(op, type.dim[i].name))
            type.dim[i].padded = type.dim[i].size;
    return type;
}

static Attrs reorder_attrs(const Type *from, const Type *to)
{
    Attrs attrs = { 0 };
    for (int i = 0; i < to->rank; i++) {
        const Dim *dim = &to->dim[i];
        add_name(&attrs.order, dim->name);
        if (from->dim[find_dim(from, dim->name)].padded != dim->padded)
            attrs.dims.dim[attrs.dims.count++] = *dim;
    }
    return attrs;
}

/* A call, before `before`, of a new kernel that copies x into a tensor of the type; it has the names of `op`. */
static Op *add_copy(Module *m, Func *f, const Op *op, Op *before, Value *x, const Type *type)
{
    Func *kernel = add_func(m, free_kernel_name(m, op, ".copy"), KERNEL);
    Builder b = { .module = m, .func = kernel, .loc = op->loc, .path = op->path, .where = op->where };
    Value *own = add_param(m, kernel, intern_text(m, "x"), x->type);
    push_value(&m->arena, &kernel->results, build_op(&b, OP_reorder, reorder_attrs(&x->type, type), 1, &own));
    if (type->rank)
        add_name(&kernel->inner, type->dim[type->rank - 1].name);
    b.func = f;
    b.before = before;
    return build(&b, OP_call, (Attrs){ .callee = kernel->name }, 1, &x);
}

/* --- Operands and results --------------------------------------------------------------------------- */

/* The collectives of a message are contiguous: copies of operands go before all of them, copies of results after
 * all. */
static Op *first_of_message(Op *op)
{
    while (op->prev && is_one_message(op->prev, op))
        op = op->prev;
    return op;
}

static Op *last_of_message(Op *op)
{
    while (op->next && is_one_message(op, op->next))
        op = op->next;
    return op;
}

/* A copy already made for an earlier op. */
static Value *find_copy(const Module *m, const Op *before, const Value *x, const Type *type)
{
    for (const Op *op = before->prev; op; op = op->prev) {
        const Func *kernel = kernel_called_by(m, op);
        if (kernel && kernel->first == kernel->last && info(kernel->first)->traits & COPIES && arg(op, 0) == x &&
            type_equal(&result(op)->type, type))
            return result(op);
    }
    return NULL;
}

static void copy_operand(Module *m, Func *f, Op *op, int i, const RequiredLayout *wanted)
{
    Value *x = arg(op, i);
    Type type = wanted_type(op, x, wanted);
    remark(m, op, "copies %%%s: %s requires %s, row-major", x->name, info(op)->name, type_text(m, &type));
    Value *copy = find_copy(m, first_of_message(op), x, &type);
    op->args.at[i] = copy ? copy : result(add_copy(m, f, op, first_of_message(op), x, &type));
    const Func *kernel = kernel_called_by(m, op);
    if (kernel)
        kernel->params.at[i]->type = type;
}

/* The op writes a new value, of its inferred type; the other ops read a copy of it. */
static void copy_result(Module *m, Func *f, Op *op, int i, const Type *own)
{
    remark(m, op, "copies its result %%%s: %s writes only %s, row-major", op->results.at[i]->name, info(op)->name,
           type_text(m, own));
    if (op->attrs.started) /* available after the wait */
        op = flight_end(op);
    Op *last = last_of_message(op);
    while (last->next && info(last)->traits & info(last->next)->traits & WAITS) /* waits of a message are contiguous */
        last = last->next;
    Value *old = op->results.at[i], *fresh = NEW(&m->arena, Value);
    *fresh = (Value){ .name = fresh_name(m), .type = *own, .def = op };
    fresh->type.in_flight = old->type.in_flight;
    op->results.at[i] = fresh;
    Op *copy = add_copy(m, f, op, last->next, fresh, &old->type);
    copy->results.at[0] = old;
    old->def = copy;
}

/* The kernel, whose last op has a memory order of its own, writes this one. */
static void write_in_order(const Module *m, const Op *call, int i, const Type *type)
{
    Value *own = find_func(m, call->attrs.callee)->results.at[i];
    own->type = *type;
    own->def->attrs.order = (Names){ 0 };
    for (int k = 0; k < type->rank; k++)
        add_name(&own->def->attrs.order, type->dim[k].name);
}

static void give_copies(Module *m, Func *f, Op *op, const RequiredLayout wanted[])
{
    enum { MOST_RESULTS = 16 }; /* of a LIBRARY op */
    Type types[MOST_RESULTS];
    bool is_library = info(op)->family == LIBRARY;
    for (int i = 0; i < op->args.count; i++)
        if (wanted[i].copied)
            copy_operand(m, f, op, i, &wanted[i]);
    if (is_library && !infer_op(m, op, types))
        report_ill_typed(m, f, op->kind, op->args.count, op->args.at);
    for (int i = 0; i < op->results.count; i++) {
        Type type = is_library ? types[i] : wanted_type(op, op->results.at[i], &wanted[op->args.count + i]);
        if (!is_library && !type_equal(&type, &op->results.at[i]->type))
            write_in_order(m, op, i, &type);
        if (wanted[op->args.count + i].copied || !type_equal(&type, &op->results.at[i]->type))
            copy_result(m, f, op, i, &type);
    }
}

/* --- The pass ----------------------------------------------------------------------------------------- */

/* A copy that dies where it is read may itself be overwritten there.  So results are kept apart from operands first;
 * where a result is in other memory of the caller's choice, copies follow.  Likewise with results of a library's
 * kernel, which is not for products to choose: they leave their pack first. */
static void keep_apart(Map *apart, const Op *op, RequiredLayout wanted[])
{
    const bool is_apart = map_get(apart, op);
    for (int i = 0; i < op->args.count + op->results.count; i++) {
        const bool is_made = i >= op->args.count && info(op)->family == LIBRARY;
        const void *const kept = is_made ? (const void *)op->results.at[i - op->args.count] : op;
        if (is_made ? wanted[i].copied && !map_get(apart, kept) : wanted[i].apart && !is_apart) {
            wanted[i].copied = false;
            map_put(apart, kept, apart);
        }
    }
}

/* Is it a copy that this plan does not have, as behind the wait for a message, or a reader of one? */
static bool is_new(const Op *op)
{
    bool is_planned = true;
    for (int i = 0; i < op->args.count + op->results.count; i++)
        is_planned &= arg_or_result(op, i)->storage != NULL;
    return !is_planned;
}

/* For one op after the other. */
typedef struct {
    Arena arena;
    int room;
    RequiredLayout *at;
} WantedRoom;

static RequiredLayout *empty_wanted(WantedRoom *room, const Op *op)
{
    const int count = op->args.count + op->results.count + 1;
    if (count > room->room)
        room->at = NEW_ARRAY(&room->arena, RequiredLayout, room->room = 2 * count);
    return memset(room->at, 0, (size_t)count * sizeof *room->at);
}

/* What the rounds of planning know. */
typedef struct {
    Map apart;   /* see plan_memory() */
    Map scratch; /* likewise */
} Planning;

/* For views, or for all other ops. */
static bool copy_for_func(Module *m, Func *f, const Map *calls, Planning *known, bool views, WantedRoom *room)
{
    bool changed = false;
    for (Op *op = f->first, *next; op; op = next) {
        next = op->next;
        if (is_new(op) || (info(op)->family == VIEW) != views)
            continue;
        RequiredLayout *wanted = empty_wanted(room, op);
        if (!find_wanted(m, calls, op, wanted))
            continue;
        keep_apart(&known->apart, op, wanted);
        give_copies(m, f, op, wanted);
        forget_scratch(&known->scratch, op);
        changed = true;
    }
    return changed;
}

static bool copy_for_all(Module *m, Planning *known, bool views)
{
    const Map calls = note_callers(m);
    WantedRoom room = { 0 };
    bool changed = false;
    for (Func *f = m->funcs; f; f = f->next)
        changed |= f->role != KERNEL && copy_for_func(m, f, &calls, known, views, &room);
    arena_free(&room.arena);
    return changed;
}

/* Readers of a view are looked at once what it shows has a place. */
static bool copy_where_wanted(Module *m, Planning *known)
{
    return copy_for_all(m, known, true) || copy_for_all(m, known, false);
}

static void forget_plan(Module *m)
{
    for (Func *f = m->funcs; f; f = f->next) {
        f->frame = 0;
        for (int i = 0; i < f->params.count; i++)
            f->params.at[i]->storage = NULL;
        for (Op *op = f->first; op; op = op->next) {
            op->attrs.frame = 0;
            for (int i = 0; i < op->results.count; i++)
                op->results.at[i]->storage = NULL;
        }
    }
}

/* Addresses are sums of sizes. */
static bool check_sizes(Module *m)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            for (int i = 0; i < op->results.count; i++) {
                const Type *type = &op->results.at[i]->type;
                if (checked_bytes(m, type) <= MAX_BYTES)
                    continue;
                error_at(m->diags, (Where){ .at = op->loc, .label = origin_text(m, op), .help = "make a dim smaller" },
                         "%%%s : %s takes more than %lld bytes on a rank, which no machine can hold",
                         op->results.at[i]->name, type_text(m, type), (long long)MAX_BYTES);
                return false;
            }
    return true;
}

void pass_memory(Module *m);
void pass_memory(Module *m)
{
    Planning known = { .apart = { .arena = &m->arena }, .scratch = { .arena = &m->arena } };
    if (!check_sizes(m))
        return;
    plan_memory(m, &known.apart, &known.scratch);
    for (int plans = 1; plans < MOST_PLANS && copy_where_wanted(m, &known); plans++) {
        forget_plan(m);
        plan_memory(m, &known.apart, &known.scratch);
    }
}
