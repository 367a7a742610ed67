/* pack.c -- tensors that should be adjacent in memory.
 *
 *   %q, %k, %v = call %x, %wq, %wk, %wv {callee=k.h.attn.q}     a kernel of three products
 *
 * needs rows of [wq | wk | wv] and of [q | k | v].  If the weights are slices of the caller's stacks, the stacks are
 * packed; if the results are residuals that a loop stacks, their stacks are.  Biases of such products are contiguous.
 *
 *   %dx = call %dv, %wv, %dk, %wk, %dq, %wq {callee=k.h.attn.v}    a sum of three products
 *
 * needs rows of [dq | dk | dv] and of [wq | wk | wv].
 *
 *   %dwv, %dwk, %dwq = call %dv, %x, %dk, %dq {callee=k.h.attn.v.2}
 *
 * needs dwq, dwk and dwv at equal distances, and so dq, dk and dv, and their sums, the gradients of biases.  These
 * gradients may be stacks that messages have and loops carry, so they are not interleaved.
 */
#include "pack.h"

#include "epilogue.h"
#include "memory.h"
#include "micro.h"
#include "split_loop.h"
#include "storage.h"
#include "uses.h"

int member_of(const Pack *pack, const Value *value)
{
    for (int i = 0; i < pack->count; i++)
        if (pack->member[i] == value)
            return i;
    return -1;
}

/* Elements of a member in one row. */
static int64_t row_of(const Module *m, const Pack *pack, int i)
{
    const Type *type = &pack->member[i]->type;
    int64_t count = 1;
    for (int d = pack->prefix; d < type->rank; d++)
        count *= local_size(m, &type->dim[d]);
    return count;
}

static int64_t rows_until(const Module *m, const Pack *pack, int end)
{
    int64_t sum = 0;
    for (int i = 0; i < end; i++)
        sum += row_of(m, pack, i);
    return sum;
}

int64_t pack_offset(const Module *m, const Pack *pack, int i)
{
    if (pack->whole)
        return i * (pack->distance ? pack->distance : aligned_bytes(local_bytes(m, &pack->member[0]->type)));
    return rows_until(m, pack, i) * dtype_bytes(pack->member[i]->type.dtype);
}

int64_t pack_bytes(const Module *m, const Pack *pack)
{
    int64_t bytes = 0;
    for (int i = 0; i < pack->count; i++)
        bytes += local_bytes(m, &pack->member[i]->type);
    return pack->whole ? pack_offset(m, pack, pack->count) : bytes;
}

Storage *pack_storage(Module *m, const Pack *pack, int i, int64_t at)
{
    const Type *type = &pack->member[i]->type;
    Storage *storage = NEW(&m->arena, Storage);
    storage->at = at;
    int64_t stride = 1;
    for (int d = type->rank - 1; d >= 0; d--) {
        if (d == pack->prefix - 1)
            stride = rows_until(m, pack, pack->count);
        storage->stride[d] = stride;
        stride *= local_size(m, &type->dim[d]);
    }
    return storage;
}

/* Has member i the right offset in the pack, relative to member 0? */
static bool is_in_place(const Module *m, const Pack *pack, int i)
{
    const Storage *first = pack->member[0]->storage, *own = pack->member[i]->storage;
    const Storage *wanted = pack_storage((Module *)m, pack, i, 0);
    bool good = same_base(first, own);
    for (int d = 0; d < pack->member[i]->type.rank; d++)
        good &= own->stride[d] == wanted->stride[d];
    return good && own->at - first->at == pack_offset(m, pack, i);
}

Placed how_placed(const Module *m, Pack *pack)
{
    int placed = 0, good = 0;
    for (int i = 0; i < pack->count; i++)
        placed += pack->member[i]->storage != NULL;
    if (pack->whole && placed == pack->count && pack->count > 1)
        pack->distance = pack->member[1]->storage->at - pack->member[0]->storage->at;
    for (int i = 0; i < pack->count && placed == pack->count; i++)
        good += is_in_place(m, pack, i);
    return good == pack->count ? PLACED : placed ? PLACED_OTHERWISE : NOT_PLACED;
}

/* --- Finding them -------------------------------------------------------------------------------- */

typedef struct {
    Module *m;
    const Func *f;
    const Map *apart; /* see plan_memory() */
    Map lifetimes;    /* of functions that it calls: see lifetimes_of() */
    Map uses;         /* of functions: Uses */
    Pack *list;
    Map left; /* what a step leaves to the next one, which takes it as dense */
} Search;

/* Do ranks send it, as what their loop has carried? */
static bool leaves_rank(const Module *m, const Value *value)
{
    const Op *op = value->def;
    if (!op || !op->attrs.callee)
        return false;
    const int i = index_of(&op->results, value);
    return op->attrs.dims.count ? is_split_loop(op) && i < op->attrs.carried
                                : leaves_rank(m, find_func(m, op->attrs.callee)->results.at[i]);
}

static const Users *readers_in(Search *s, const Func *f, const Value *value)
{
    Uses *uses = map_get(&s->uses, f);
    if (!uses) {
        uses = NEW(&s->m->arena, Uses);
        *uses = find_uses(&s->m->arena, f);
        map_put(&s->uses, f, uses);
    }
    return users_of(uses, value);
}

/* Does a message have it, here or in a callee?  Messages need row-major tensors. */
static bool is_sent(Search *s, const Func *f, const Value *value)
{
    const Users *readers = readers_in(s, f, value);
    bool is = leaves_rank(s->m, value);
    for (int i = 0; i < readers->count && !is; i++) {
        const Op *op = readers->op[i];
        const int at = index_of(&op->args, value);
        const Func *callee = function_called_by(s->m, op);
        is = (is_split_loop(op) && at < op->attrs.carried) || info(op)->family == COLLECTIVE ||
             (info(op)->family == VIEW && is_sent(s, f, result(op))) ||
             (callee && is_sent(s, callee, callee->params.at[at]));
    }
    return is;
}

/* Is what a loop carries written in place?  Then the loop leaves it where it is. */
static bool stays(Search *s, const Op *loop, int i)
{
    const Func *callee = called_by(s->m, loop);
    return callee && !map_get(s->apart, callee->results.at[i]->def) &&
           may_return_over(s->m, &s->lifetimes, callee, callee->results.at[i], callee->params.at[i]);
}

/* May the value be placed where the pack has it? */
static bool is_movable(Search *s, const Pack *pack, const Value *value)
{
    const Op *op = value->def;
    const int at = op ? index_of(&op->results, value) : 0;
    if (map_get(s->apart, value) || (!pack->whole && (is_sent(s, s->f, value) || map_get(&s->left, value))))
        return false;
    return !op || ((info(op)->family == CONTROL || info(op)->family == LIBRARY) &&
                   (at >= op->attrs.carried || (pack->whole && stays(s, op, at))));
}

/* Are the first dims of all members the same, and can their storage be chosen? */
static bool is_possible(Search *s, const Pack *pack)
{
    const Type *like = &pack->member[0]->type;
    for (int i = 0; i < pack->count; i++) {
        const Value *value = pack->member[i];
        if (value->type.dtype != like->dtype || value->type.rank < pack->prefix || member_of(pack, value) != i ||
            !is_movable(s, pack, value) || (pack->whole && !type_equal(&value->type, like)))
            return false;
        if (value->def != pack->member[0]->def && (is_in_schedule(value->def) || is_in_schedule(pack->member[0]->def)))
            return false; /* slots of several parts of a micro-batch */
        for (int d = 0; d < pack->prefix; d++)
            if (local_size(s->m, &value->type.dim[d]) != local_size(s->m, &like->dim[d]))
                return false;
    }
    return true;
}

/* Are the members next to each other in another pack, in this order? */
static bool is_part_of(const Pack *pack, const Pack *other)
{
    const int first = member_of(other, pack->member[0]);
    bool good = first >= 0 && pack->prefix == other->prefix && pack->whole == other->whole;
    for (int i = 1; i < pack->count && good; i++)
        good = member_of(other, pack->member[i]) == first + i;
    return good;
}

/* Is it one of the packs now, or part of one?  Stages of a pipeline leave out parts of whole tensors, which then lie at
 * other distances (ir/kinds/kinds.c). */
static bool add_pack(Search *s, const Pack *pack)
{
    bool is_free = pack->count > 1 && is_possible(s, pack) && !(pack->whole && s->m->kind_axis >= 0);
    for (const Pack *other = s->list; other && is_free; other = other->next)
        for (int i = 0; i < pack->count; i++)
            is_free &= member_of(other, pack->member[i]) < 0;
    for (const Pack *other = s->list; other && !is_free; other = other->next)
        if (is_part_of(pack, other))
            return true;
    if (!is_free)
        return false;
    Pack *added = NEW(&s->m->arena, Pack);
    *added = *pack;
    added->next = s->list;
    s->list = added;
    return true;
}

/* Adds `others`, which are of use only where `first` lie, or can be placed, as that pack has them. */
static void add_both(Search *s, Pack *first, const Pack *others)
{
    const Placed placed = how_placed(s->m, first);
    if (placed == PLACED || (placed == NOT_PLACED && add_pack(s, first)))
        add_pack(s, others);
}

/* The number of leading dims of a value that are dims of the product's left operand; 0 if others are between them. */
static int shared_dims(const Value *value, const Value *left)
{
    int count = 0, all = 0;
    for (int i = 0; i < value->type.rank; i++) {
        bool shared = find_dim(&left->type, value->type.dim[i].name) >= 0;
        count += shared && count == i;
        all += shared;
    }
    return count == all ? count : 0;
}

/* The packs of a kernel of several products of one left operand: right operands, biases and results.  Results of f are
 * placed by its caller, others by f. */
static void find_columns(Search *s, const Func *kernel, const Op *call)
{
    Pack right = { 0 }, bias = { 0 }, made[2] = { { 0 }, { 0 } };
    for (int i = 0; i < kernel->results.count; i++) {
        const Epilogue epilogue = epilogue_of(kernel->results.at[i]);
        const Op *dot = epilogue.dot;
        const int at = dot && !epilogue.added && !epilogue.activation && !epilogue.slope
                           ? index_of(&kernel->params, arg(dot, 1))
                           : -1;
        if (at < 0 || i == MAX_PACK)
            return;
        if (epilogue.bias)
            bias.member[bias.count++] = arg(call, index_of(&kernel->params, epilogue.bias));
        right.member[right.count++] = arg(call, at);
        Pack *own = &made[index_of(&s->f->results, call->results.at[i]) >= 0];
        own->member[own->count++] = call->results.at[i];
        right.prefix = shared_dims(arg(dot, 1), arg(dot, 0));
        made[0].prefix = made[1].prefix = shared_dims(result(dot), arg(dot, 0));
    }
    if (!right.prefix || !made[0].prefix)
        return;
    add_pack(s, &right);
    if (bias.count == right.count)
        add_pack(s, &bias);
    add_pack(s, &made[0]);
    add_pack(s, &made[1]);
}

/* --- Sums of products ------------------------------------------------------------------------------ */

/* What has the memory of the value: behind views with other names for its dims. */
static Value *renamed(const Module *m, Value *value)
{
    const Op *op = value->def;
    bool same = op && info(op)->family == VIEW && !(info(op)->traits & (WAITS | MOVES)) &&
                arg(op, 0)->type.rank == value->type.rank;
    for (int i = 0; same && i < value->type.rank; i++)
        same = local_size(m, &arg(op, 0)->type.dim[i]) == local_size(m, &value->type.dim[i]);
    return same ? renamed(m, arg(op, 0)) : value;
}

/* The number of leading dims that are kept, all others being summed; 0 if these lead; -1 if they are elsewhere. */
static int rows_of(const Value *value, const Names *over)
{
    int changes = 0, kept = 0;
    for (int i = 0; i < value->type.rank; i++) {
        const bool is_summed = has_name(over, value->type.dim[i].name);
        changes += i > 0 && is_summed != has_name(over, value->type.dim[i - 1].name);
        kept += !is_summed && changes == 0;
    }
    return changes > 1 ? -1 : kept;
}

static void swap_members(Pack *pack, int i, int k)
{
    Value *const other = pack->member[i];
    pack->member[i] = pack->member[k];
    pack->member[k] = other;
}

/* Puts both members of each pair into the order in which those of `by` lie, as far as that is known. */
static void sort_pairs(Pack *by, Pack *others)
{
    for (int i = 1; i < by->count; i++)
        for (int k = i; k > 0; k--) {
            const Storage *a = by->member[k - 1]->storage, *b = by->member[k]->storage;
            if (!a || !b || !same_base(a, b) || a->at <= b->at)
                break;
            swap_members(by, k - 1, k);
            swap_members(others, k - 1, k);
        }
}

/* The packs of a kernel that adds products up: both operands.  Without an order of the right ones it is that of the
 * products in the forward pass, which is the reverse of that of their gradients. */
static void find_sum(Search *s, const Func *kernel, const Op *call)
{
    Epilogue term[MAX_TERMS];
    const int count = kernel->results.count == 1 ? terms_of(kernel->results.at[0], term) : 0;
    Pack left = { 0 }, right = { 0 };
    for (int i = count - 1; i >= 0; i--) {
        const Op *dot = term[i].dot;
        const int a = index_of(&kernel->params, arg(dot, 0)), b = index_of(&kernel->params, arg(dot, 1));
        if (a < 0 || b < 0)
            return;
        left.member[left.count++] = renamed(s->m, arg(call, a));
        right.member[right.count++] = renamed(s->m, arg(call, b));
        if (i < count - 1 && (left.prefix != rows_of(arg(dot, 0), &dot->attrs.over) ||
                              right.prefix != rows_of(arg(dot, 1), &dot->attrs.over)))
            return;
        left.prefix = rows_of(arg(dot, 0), &dot->attrs.over);
        right.prefix = rows_of(arg(dot, 1), &dot->attrs.over);
    }
    if (count < 2 || left.prefix < 0 || right.prefix < 0)
        return;
    sort_pairs(&right, &left);
    add_both(s, &right, &left);
}

/* --- Sums over the rows of one operand --------------------------------------------------------------- */

/* Puts both members of each pair into the order of the first ones in a pack that there is. */
static void sort_as_packed(const Search *s, Pack *by, Pack *others)
{
    for (const Pack *pack = s->list; pack; pack = pack->next)
        for (int i = 1; i < by->count; i++)
            for (int k = i; k > 0 && member_of(pack, by->member[k]) >= 0 &&
                            member_of(pack, by->member[k]) < member_of(pack, by->member[k - 1]);
                 k--) {
                swap_members(by, k - 1, k);
                swap_members(others, k - 1, k);
            }
}

/* The packs of a kernel of several such products: left operands, interleaved as for a sum of products that reads them
 * too, and results, or the running sums that become results. */
static void find_matrices(Search *s, const Func *kernel, const Op *call)
{
    const int count = kernel->results.count;
    Pack left = { 0 }, made = { .whole = true };
    const Value *right = NULL;
    for (int i = 0; i < count; i++) {
        Epilogue term[MAX_TERMS];
        if (count == 1 || count > MAX_PACK || terms_of(kernel->results.at[i], term) != 1)
            return;
        const Op *dot = term[0].dot;
        const Value *added = term[0].added;
        const int a = index_of(&kernel->params, arg(dot, 0));
        if (a < 0 || (right && arg(dot, 1) != right))
            return;
        right = arg(dot, 1);
        left.member[left.count++] = renamed(s->m, arg(call, a));
        made.member[made.count++] = added ? arg(call, index_of(&kernel->params, added)) : call->results.at[i];
        while (left.prefix < arg(dot, 0)->type.rank &&
               has_name(&dot->attrs.over, arg(dot, 0)->type.dim[left.prefix].name))
            left.prefix++;
    }
    sort_pairs(&made, &left);
    sort_as_packed(s, &left, &made);
    add_both(s, &made, &left);
}

/* The pack of a kernel that only sums left operands of such products: where these are as packed, the sums are so, too,
 * since a library may compute them with the products. */
static void find_sums_beside(Search *s, const Op *call)
{
    const Op *sum = sums_beside(s->m, call);
    Pack summed = { 0 }, made = { .whole = true };
    for (int i = 0; sum && i < call->results.count && call->results.count <= MAX_PACK; i++) {
        summed.member[summed.count++] = renamed(s->m, arg(call, i));
        made.member[made.count++] = call->results.at[i];
    }
    sort_as_packed(s, &summed, &made);
    if (made.count > 1)
        add_pack(s, &made);
}

/* --- In a function --------------------------------------------------------------------------------- */

/* The caller's value for a value of a called function: an operand or result; NULL: it is one that moves from iteration
 * to iteration, or neither. */
static Value *outside(Search *s, const Op *call, const Func *callee, const Pack *pack, const Value *value)
{
    const int param = index_of(&callee->params, value), result = index_of(&callee->results, value);
    const int at = value->def ? result : param;
    if (at >= 0 && at < call->attrs.carried)
        return pack->whole && stays(s, call, at) ? call->results.at[at] : NULL;
    return at < 0 ? NULL : value->def ? call->results.at[at] : arg(call, at);
}

/* Slices move from iteration to iteration, what all iterations read does not: one pointer cannot be for both. */
static void find_in_callee(Search *s, const Func *callee, const Op *call)
{
    for (const Pack *inner = find_packs(s->m, callee, s->apart); inner; inner = inner->next) {
        Pack pack = { .prefix = inner->prefix, .whole = inner->whole };
        for (int i = 0; i < inner->count; i++) {
            Value *value = outside(s, call, callee, inner, inner->member[i]);
            if (value && (!pack.count || is_passed_in_slices(call, value) == is_passed_in_slices(call, pack.member[0])))
                pack.member[pack.count++] = value;
        }
        if (pack.count != inner->count)
            continue;
        pack.prefix += !pack.whole && is_passed_in_slices(call, pack.member[0]);
        add_pack(s, &pack);
    }
}

Pack *find_packs(Module *m, const Func *f, const Map *apart)
{
    Search s = {
        .m = m, .f = f, .apart = apart, .lifetimes.arena = &m->arena, .uses.arena = &m->arena, .left.arena = &m->arena
    };
    note_left(&s.left, f);
    for (const Op *op = f->first; op; op = op->next) {
        const Func *callee = called_by(m, op);
        if (callee && callee->role == KERNEL) {
            find_columns(&s, callee, op);
            find_sum(&s, callee, op);
            find_matrices(&s, callee, op);
            find_sums_beside(&s, op);
        } else if (callee) {
            find_in_callee(&s, callee, op);
        }
    }
    return s.list;
}
