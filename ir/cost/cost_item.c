/* cost_item.c -- the items of one op: matrices of a product, keys that attention sees, bytes of kernels and messages.
 */
#include "step_cost.h"

#include "blocks.h"
#include "filled.h"
#include "flight.h"
#include "ranks.h"
#include "storage.h"
#include "target.h"

const char *const item_name[N_ITEM_KINDS] = {
    [ITEM_PRODUCT] = "products", [ITEM_ATTENTION] = "attention", [ITEM_KERNEL] = "kernels",
    [ITEM_MESSAGE] = "messages", [ITEM_WAIT] = "waits",          [ITEM_REPEAT] = "repeats",
};

const char *const phase_name[N_PHASES] = {
    [FORWARD] = "forward", [BACKWARD] = "backward", [RECOMPUTED] = "recomputed", [UPDATED] = "update"
};

CostItem *push_item(Arena *arena, CostList *list, CostItem item)
{
    if (list->count == list->room) {
        CostItem *grown = NEW_ARRAY(arena, CostItem, list->room = list->room ? 2 * list->room : 2);
        for (int i = 0; i < list->count; i++)
            grown[i] = list->item[i];
        list->item = grown;
    }
    list->item[list->count] = item;
    return &list->item[list->count++];
}

/* --- Bytes ---------------------------------------------------------------------------------------- */

/* The bytes on one kind of rank: ranks may have parts of different sizes. */
static double bytes_on(const Module *m, const Type *type, int rank)
{
    return (double)(m->kind_axis >= 0 ? part_bytes(m, type, rank) : local_bytes(m, type));
}

static bool is_first(const Op *op, int operand) { return index_of(&op->args, arg(op, operand)) == operand; }

const Type *picked_table(const Op *op) { return info(op)->over == PICK ? &arg(op, 0)->type : NULL; }

void visit_moved(const Module *m, const Op *op, TypeVisit visit, void *context)
{
    const Func *rounding = kernel_rounding(m, op);
    for (int i = 0; i < op->results.count; i++)
        visit(context, &op->results.at[i]->type);
    for (int i = picked_table(op) ? 1 : 0; i < op->args.count; i++)
        if (is_first(op, i) && !is_read_instead(rounding, i))
            visit(context, &arg(op, i)->type);
}

typedef struct {
    const Module *m;
    int rank;
    double bytes;
} ByteSum;

static void add_bytes(void *context, const Type *type)
{
    ByteSum *sum = context;
    sum->bytes += bytes_on(sum->m, type, sum->rank);
}

static double bytes_moved(const Module *m, const Op *op, int rank)
{
    const Type *table = picked_table(op);
    ByteSum sum = { m, rank, 0 };
    double written = 0;
    visit_moved(m, op, add_bytes, &sum);
    for (int i = 0; i < op->results.count; i++)
        written += bytes_on(m, &op->results.at[i]->type, rank);
    const double read = table ? bytes_on(m, table, rank) : 0;
    return sum.bytes + (read < written ? read : written);
}

/* --- Products -------------------------------------------------------------------------------------- */

/* The share of the elements along a dim that are computed: of rows that a dispatch fills, those of a balanced router.
 */
static double share_filled(Module *m, const Dim *dim)
{
    const Op *fills = filled_by(m, dim->name);
    return fills ? filled_share(fills) : 1;
}

static int64_t rows_along(Module *m, const Dim *dim)
{
    const double rows = (double)local_size(m, dim) * share_filled(m, dim);
    return rows < 1 ? 1 : (int64_t)(rows + 0.5);
}

/* The matrices of one op: dims of both operands that the result keeps are their number. */
static CostItem shape_of(Module *m, const Op *op)
{
    const Type *a = &arg(op, 0)->type, *b = &arg(op, 1)->type;
    CostItem item = { .kind = ITEM_PRODUCT, .m = 1, .n = 1, .k = 1, .count = 1 };
    for (int i = 0; i < a->rank; i++) {
        const Name name = a->dim[i].name;
        int64_t *size = op_role(op, name) != KEEP ? &item.k : find_dim(b, name) >= 0 ? &item.count : &item.m;
        *size *= rows_along(m, &a->dim[i]);
    }
    for (int i = 0; i < b->rank; i++)
        if (find_dim(a, b->dim[i].name) < 0)
            *(op_role(op, b->dim[i].name) == KEEP ? &item.n : &item.k) *= rows_along(m, &b->dim[i]);
    item.precision = op->attrs.fp8 ? E4M3 : (int)a->dtype;
    return item;
}

static bool same_rows(const CostItem *a, const CostItem *b)
{
    return a->count == b->count && a->precision == b->precision && a->m == b->m;
}

/* Adds to a product one that the same kernel computes: more columns of one operand's, q, k, v of one x; a longer sum,
 * as the gradient of that x; or another matrix.  Else it is a product of its own. */
static bool join_product(CostItem *item, const Op *first, const Op *op, const CostItem *other, bool is_sum)
{
    const bool same = same_rows(item, other), square = same && item->n == other->n;
    if (is_sum && square)
        item->k += other->k;
    else if (same && item->k == other->k && arg(first, 0) == arg(op, 0))
        item->n += other->n;
    else if (square && item->k == other->k)
        item->count += other->count;
    else
        return false;
    return true;
}

/* Do products of a kernel with one matrix as result end in one sum? */
static bool adds_products(const Func *kernel)
{
    int matrices = 0;
    for (int i = 0; i < kernel->results.count; i++)
        matrices += kernel->results.at[i]->type.rank > 1;
    return matrices == 1;
}

static bool push_products(Module *m, Arena *arena, CostList *list, const Op *call, const Func *kernel, int rank)
{
    const Op *first = NULL;
    CostItem *item = NULL;
    for (const Op *op = kernel->first; op; op = op->next) {
        if (info(op)->family != PRODUCT)
            continue;
        const CostItem own = shape_of(m, op);
        if (!item || !join_product(item, first, op, &own, adds_products(kernel))) {
            item = push_item(arena, list, own);
            item->op = call;
            item->bytes = first ? 0 : bytes_moved(m, call, rank); /* those of the kernel, once */
            first = op;
        }
        item->flops += 2.0 * (double)own.m * (double)own.n * (double)own.k * (double)own.count;
    }
    return item;
}

/* --- Attention ------------------------------------------------------------------------------------- */

/* Sum of the numbers of keys that queries from `begin` to `end` see, of all before them or `window` of these. */
static double keys_seen(double begin, double end, double window)
{
    const double ramp = end < window ? end : begin > window ? begin : window; /* from there on all see the window */
    return (ramp * (ramp + 1) - begin * (begin + 1)) / 2 + (end - ramp) * window;
}

/* Of all pairs of a query and a key, the share that the rank which has most of them computes.  In zig-zag all have as
 * many; else the last block sees most. */
static double share_seen(const Module *m, const Op *op)
{
    const Type *q = &arg(op, 0)->type, *k = &arg(op, 1)->type;
    const Dim *seq = &q->dim[find_dim(q, op->attrs.seq)];
    const double all = (double)seq->size, keys = (double)k->dim[find_dim(k, op->attrs.key)].size;
    const double window = op->attrs.window ? (double)op->attrs.window : keys;
    const double begin = seq->split.count && !seq->zigzag ? all - (double)local_size(m, seq) : 0;
    if (op->attrs.causal)
        return keys_seen(begin < 0 ? 0 : begin, all, window) / ((all - begin) * keys);
    return 2 * window - 1 < keys ? (2 * window - 1) / keys : 1;
}

/* The gradients have one result for each of q, k, v; attention itself has y and its sums of exponentials. */
static CostItem attention_item(Module *m, const Op *op)
{
    const Type *q = &arg(op, 0)->type, *k = &arg(op, 1)->type;
    CostItem item = {
        .kind = ITEM_ATTENTION, .precision = (int)q->dtype, .heads = 1, .backward = op->results.count != 2
    };
    for (int i = 0; i < q->rank; i++) {
        const Name name = q->dim[i].name;
        int64_t *size = name == op->attrs.seq ? &item.queries : name == op->attrs.feature ? &item.features : NULL;
        *(size ? size : &item.heads) = (size ? 1 : item.heads) * local_size(m, &q->dim[i]);
    }
    item.keys = local_size(m, &k->dim[find_dim(k, op->attrs.key)]);
    item.flops = op_work(m, NULL, op).rank * share_seen(m, op);
    return item;
}

/* --- Messages -------------------------------------------------------------------------------------- */

/* What goes from rank to rank is sent by one of them. */
static double bytes_sent(const Op *op, Traffic traffic, int rank)
{
    const uint64_t senders = arg(op, 0)->type.on.at;
    return !is_send(op) ? traffic.sent : senders >> rank & 1 ? traffic.volume : 0;
}

/* Bytes from or to another tier of memory. */
static CostItem transfer_item(Module *m, Arena *arena, const Op *op, int rank)
{
    SentTensor *moved = NEW(arena, SentTensor);
    *moved = (SentTensor){ .op = op, .bytes = bytes_on(m, &result(op)->type, rank) };
    return (CostItem){ .kind = ITEM_MESSAGE,
                       .op = op,
                       .collective = op->kind,
                       .volume = moved->bytes,
                       .ranks = 1,
                       .tensors = 1,
                       .sent = moved };
}

CostItem message_item(Module *m, Arena *arena, const Op *op, int rank)
{
    if (info(op)->traits & CARRIES)
        return transfer_item(m, arena, op, rank);
    const Traffic traffic = op_traffic(m, op);
    const Type *type = &arg(op, 0)->type;
    const double most = (double)local_bytes(m, type), share = most > 0 ? bytes_on(m, type, rank) / most : 0;
    SentTensor *sent = NEW(arena, SentTensor);
    *sent = (SentTensor){ .op = op, .bytes = bytes_sent(op, traffic, rank) * share };
    m->target->packing(m, op, sent->side);
    return (CostItem){ .kind = ITEM_MESSAGE,
                       .op = op,
                       .collective = op->kind,
                       .volume = traffic.volume * share,
                       .bytes = 2 * packed_bytes(sent->side) * share, /* read and written */
                       .axes = info(op)->traits & MOVES ? 1u << result(op)->type.on.axis : op->attrs.axis,
                       .ranks = traffic.ranks,
                       .tensors = 1,
                       .sent = sent };
}

/* --- One op ---------------------------------------------------------------------------------------- */

/* Attention has keys and features; other library ops move bytes. */
static bool is_attention(const Op *op) { return op->attrs.key && op->attrs.feature; }

/* Before tensors have places, what may lie in its result does: so a bound of mpc plan is one. */
static bool is_in_place(const Module *m, const Op *op)
{
    return lies_in_place(m, op) || (joins_in_order(m, op) && !result(op)->storage);
}

void push_cost(Module *m, Arena *arena, CostList *list, const Op *op, int rank, bool computes)
{
    const Func *kernel = op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
    const Family family = info(op)->family;
    CostItem item = { .kind = ITEM_KERNEL };
    if (family == VIEW || family == COLLECTIVE || is_in_place(m, op) ||
        (kernel && push_products(m, arena, list, op, kernel, rank)))
        return;
    if (is_attention(op))
        item = attention_item(m, op);
    item.op = op;
    item.bytes = bytes_moved(m, op, rank);
    if (item.kind == ITEM_KERNEL && computes)
        item.flops = kernel ? flops_run(m, kernel) : op_work(m, NULL, op).rank;
    push_item(arena, list, item);
}
