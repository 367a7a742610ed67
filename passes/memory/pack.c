/* pack.c -- which tensors should be adjacent in memory.
 *
 *   %q, %k, %v = call %x, %wq, %wk, %wv {callee=k.h.attn.q}     a kernel of three products
 *
 * needs rows of [wq | wk | wv] and of [q | k | v].  If the weights are slices of the caller's stacks, the stacks are
 * packed; if the results are residuals that a loop stacks, their stacks are.  Biases of such products are contiguous.
 */
#include "pack.h"

#include "epilogue.h"
#include "stages.h"

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
    return rows_until(m, pack, i) * dtype_bytes(pack->member[i]->type.dtype);
}

int64_t pack_bytes(const Module *m, const Pack *pack)
{
    int64_t bytes = 0;
    for (int i = 0; i < pack->count; i++)
        bytes += local_bytes(m, &pack->member[i]->type);
    return bytes;
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

/* --- Finding them -------------------------------------------------------------------------------- */

/* Do stages send it, as what their loop has carried? */
static bool leaves_stage(const Module *m, const Value *value)
{
    const Op *op = value->def;
    if (!op || !op->attrs.callee)
        return false;
    const int i = index_of(&op->results, value);
    return op->attrs.dims.count ? runs_in_stages(op) && i < op->attrs.carried
                                : leaves_stage(m, find_func(m, op->attrs.callee)->results.at[i]);
}

/* Does a message have it, here or in a callee?  Messages need row-major tensors. */
static bool is_sent(Module *m, const Func *f, const Value *value)
{
    if (leaves_stage(m, value))
        return true;
    for (const Op *op = f->first; op; op = op->next) {
        int at = index_of(&op->args, value);
        if (at < 0)
            continue;
        const Func *callee = op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
        if ((runs_in_stages(op) && at < op->attrs.carried) || info(op)->family == COLLECTIVE ||
            (info(op)->family == VIEW && is_sent(m, f, result(op))) ||
            (callee && callee->role != KERNEL && is_sent(m, callee, callee->params.at[at])))
            return true;
    }
    return false;
}

/* Are the first dims of all members the same, and can their storage be chosen? */
static bool is_possible(Module *m, const Func *f, const Pack *pack)
{
    const Type *like = &pack->member[0]->type;
    for (int i = 0; i < pack->count; i++) {
        const Value *value = pack->member[i];
        bool is_carried = value->def && index_of(&value->def->results, value) < value->def->attrs.carried;
        if (is_carried || value->type.dtype != like->dtype || value->type.rank < pack->prefix ||
            (value->def && info(value->def)->family != CONTROL) || member_of(pack, value) != i || is_sent(m, f, value))
            return false;
        if (value->def != pack->member[0]->def &&
            ((value->def && value->def->attrs.stages) || (pack->member[0]->def && pack->member[0]->def->attrs.stages)))
            return false; /* slots of several parts of a micro-batch */
        for (int d = 0; d < pack->prefix; d++)
            if (value->type.dim[d].name != like->dim[d].name || value->type.dim[d].padded != like->dim[d].padded)
                return false;
    }
    return true;
}

static void add_pack(Module *m, const Func *f, Pack **list, const Pack *pack)
{
    bool is_free = pack->count > 1 && is_possible(m, f, pack);
    for (const Pack *other = *list; other && is_free; other = other->next)
        for (int i = 0; i < pack->count; i++)
            is_free &= member_of(other, pack->member[i]) < 0;
    if (!is_free)
        return;
    Pack *added = NEW(&m->arena, Pack);
    *added = *pack;
    added->at = -1;
    added->next = *list;
    *list = added;
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

/* The packs of a kernel of several products: right operands, biases and results.  Results of f are placed by its
 * caller, others by f. */
static void find_in_kernel(Module *m, const Func *f, const Func *kernel, const Op *call, Pack **list)
{
    Pack right = { 0 }, bias = { 0 }, made[2] = { { 0 }, { 0 } };
    for (int i = 0; i < kernel->results.count; i++) {
        Epilogue epilogue;
        bool is_product = find_epilogue(kernel->results.at[i], &epilogue) && !epilogue.added && !epilogue.activation &&
                          !epilogue.slope;
        const Op *dot = epilogue.dot;
        int at = is_product ? index_of(&kernel->params, arg(dot, 1)) : -1;
        if (at < 0 || i == MAX_PACK)
            return;
        if (epilogue.bias)
            bias.member[bias.count++] = arg(call, index_of(&kernel->params, epilogue.bias));
        right.member[right.count++] = arg(call, at);
        Pack *own = &made[index_of(&f->results, call->results.at[i]) >= 0];
        own->member[own->count++] = call->results.at[i];
        right.prefix = shared_dims(arg(dot, 1), arg(dot, 0));
        made[0].prefix = made[1].prefix = shared_dims(result(dot), arg(dot, 0));
    }
    if (!right.prefix || !made[0].prefix)
        return;
    add_pack(m, f, list, &right);
    if (bias.count == right.count)
        add_pack(m, f, list, &bias);
    add_pack(m, f, list, &made[0]);
    add_pack(m, f, list, &made[1]);
}

/* The caller's value for a value of a called function: an operand or result that is not carried; else NULL. */
static Value *outside(const Op *call, const Func *callee, const Value *value)
{
    int param = index_of(&callee->params, value), result = index_of(&callee->results, value);
    if (!value->def)
        return param >= call->attrs.carried ? arg(call, param) : NULL;
    return result >= call->attrs.carried ? call->results.at[result] : NULL;
}

static void find_in_callee(Module *m, const Func *f, const Func *callee, const Op *call, Pack **list)
{
    Name looped = call->attrs.dims.count ? call->attrs.dims.dim[0].name : NULL;
    for (const Pack *inner = find_packs(m, callee); inner; inner = inner->next) {
        Pack pack = { .prefix = inner->prefix };
        for (int i = 0; i < inner->count; i++) {
            Value *value = outside(call, callee, inner->member[i]);
            if (value)
                pack.member[pack.count++] = value;
        }
        if (pack.count != inner->count)
            continue;
        pack.prefix += looped && find_dim(&pack.member[0]->type, looped) == 0;
        add_pack(m, f, list, &pack);
    }
}

Pack *find_packs(Module *m, const Func *f)
{
    Pack *list = NULL;
    for (const Op *op = f->first; op; op = op->next) {
        const Func *callee = op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
        if (callee && callee->role == KERNEL)
            find_in_kernel(m, f, callee, op, &list);
        else if (callee)
            find_in_callee(m, f, callee, op, &list);
    }
    return list;
}
