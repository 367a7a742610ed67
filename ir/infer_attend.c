/* infer_attend.c -- result types of attention and its gradient, and what their operands must agree on. */
#include "infer.h"
#include "operands.h"

#include <math.h>

/* A bias or sinks: f32, over some dims of the scores; sinks are by row, of heads. */
static bool check_logits(Module *m, const Op *op, int at, bool is_bias)
{
    const Type *x = &arg(op, at)->type, *q = &arg(op, 0)->type, *k = &arg(op, 1)->type;
    const Attrs *a = &op->attrs;
    if (a->axis || a->own)
        return REFUSE(NULL, "%s sees keys block by block, without a bias or sinks", info(op)->name);
    if (x->dtype != F32)
        return REFUSE("cast it", "%s: %%%s must be f32", info(op)->name, arg(op, at)->name);
    for (int i = 0; i < x->rank; i++) {
        const bool is_key = x->dim[i].name == a->key;
        const Type *of = is_key ? k : q;
        const int there = find_dim(of, x->dim[i].name);
        if (there < 0 || x->dim[i].name == a->feature || (!is_bias && x->dim[i].name == a->seq) ||
            !dim_equal(&x->dim[i], &of->dim[there]))
            return REFUSE("reshard one of them", "%s: %%%s and %%%s do not agree on '%s'", info(op)->name,
                          arg(op, is_key)->name, arg(op, at)->name, x->dim[i].name);
    }
    return true;
}

/* The segments of queries (operand 0) or keys (1): i32, over their sequence, and dims that q, k and v share. */
static bool check_segments(Module *m, const Op *op, int at, int of, Name seq)
{
    const Type *segment = &arg(op, at)->type;
    if (segment->dtype != I32 || find_dim(segment, seq) < 0)
        return REFUSE(NULL, "the segments %%%s must be i32, and have '%s'", arg(op, at)->name, seq);
    for (int i = 0; i < segment->rank; i++)
        for (int j = 0; j < 3; j++) {
            const bool is_own = segment->dim[i].name == seq;
            const int there = find_dim(&arg(op, j)->type, segment->dim[i].name);
            if (is_own && (j > 0) != of)
                continue;
            if (there < 0 || segment->dim[i].name == op->attrs.feature ||
                !dim_equal(&segment->dim[i], &arg(op, j)->type.dim[there]))
                return REFUSE("reshard one of them", "%s: %%%s and %%%s do not agree on '%s'", info(op)->name,
                              arg(op, j)->name, arg(op, at)->name, segment->dim[i].name);
        }
    return true;
}

/* Keys that pass by are split over one axis, like the queries over their first one: each block meets each. */
static bool check_blocks(Module *m, const Op *op)
{
    const Attrs *a = &op->attrs;
    const Type *q = &arg(op, 0)->type;
    const Dim *seq = &q->dim[find_dim(q, a->seq)];
    const Dim *k = &arg(op, 1)->type.dim[find_dim(&arg(op, 1)->type, a->key)];
    const Dim *v = &arg(op, 2)->type.dim[find_dim(&arg(op, 2)->type, a->key)];
    if (!a->axis && !a->own)
        return true;
    if (k->split.count != 1 || !dim_equal(k, v) || !seq->split.count || seq->split.axis[0] != k->split.axis[0] ||
        seq->zigzag != k->zigzag || seq->size != k->size || seq->padded != k->padded || seq->split.turn ||
        (a->axis && (split_axes(k->split) != a->axis || k->split.turn)))
        return REFUSE("split them alike", "%s sees keys block by block: '%s' and '%s' must be split over one axis",
                      info(op)->name, a->seq, a->key);
    if (k->padded != k->size)
        return REFUSE("use a size without padding", "%s sees keys block by block, and '%s' has padding", info(op)->name,
                      a->key);
    return true;
}

/* The operands of attend: q has seq and feature; k and v have key and feature, and all or some of the other dims of q
 * (missing ones broadcast). */
static bool check_attend(Module *m, const Op *op)
{
    const int plain = info(op)->results == 2 ? 3 : 6; /* operands that the op always has: attend gives two results */
    const Attrs *a = &op->attrs;
    const int bias = operand_at(op, OPERAND_bias), sinks = operand_at(op, OPERAND_sinks);
    const int query_segment = operand_at(op, OPERAND_query_segment), key_segment = operand_at(op, OPERAND_key_segment);
    if (op->args.count != plain + (bias >= 0) + (sinks >= 0) + (query_segment >= 0 ? 2 : 0))
        return REFUSE(NULL, "%s takes %d operands, then a bias%s, and two segments, if any, not %d operands",
                      info(op)->name, plain, plain > 3 ? "" : ", sinks", op->args.count);
    const Type *q = &arg(op, 0)->type;
    if (!a->seq || !a->key || !a->feature || find_dim(q, a->seq) < 0 || find_dim(q, a->feature) < 0)
        return REFUSE(NULL, "%s needs {seq, key, feature}, and q must have seq and feature", info(op)->name);
    if (!(a->softcap >= 0 && a->softcap < INFINITY))
        return REFUSE(NULL, "%s: {softcap} must be above 0", info(op)->name);
    for (int i = 1; i < 3; i++) {
        const Type *k = &arg(op, i)->type;
        if (find_dim(k, a->key) < 0 || find_dim(k, a->feature) < 0 || find_dim(k, a->seq) >= 0)
            return REFUSE(NULL, "%%%s must have '%s' and '%s', but not '%s'", arg(op, i)->name, a->key, a->feature,
                          a->seq);
        for (int j = 0; j < k->rank; j++) {
            int at = find_dim(q, k->dim[j].name);
            if (k->dim[j].name != a->key && (at < 0 || q->dim[at].size != k->dim[j].size ||
                                             split_axes(q->dim[at].split) != split_axes(k->dim[j].split)))
                return REFUSE("reshard one of them", "%s: q and %%%s do not agree on '%s'", info(op)->name,
                              arg(op, i)->name, k->dim[j].name);
        }
    }
    if (query_segment >= 0 &&
        (!check_segments(m, op, query_segment, 0, a->seq) || !check_segments(m, op, key_segment, 1, a->key)))
        return false;
    if ((bias >= 0 && !check_logits(m, op, bias, true)) || (sinks >= 0 && !check_logits(m, op, sinks, false)))
        return false;
    for (int i = 0; i < op->args.count; i++)
        if (arg(op, i)->type.partial)
            return REFUSE("all_reduce it first", "%s is not linear in %%%s, which is partial", info(op)->name,
                          arg(op, i)->name);
    return check_blocks(m, op);
}

/* One number for each query of each head: those of a head are neighbours, as libraries of GPUs have them. */
static Type rows_of(const Type *q, const Attrs *a)
{
    Type rows = without_dim(without_dim(*q, a->feature), a->seq);
    rows.dim[rows.rank++] = q->dim[find_dim(q, a->seq)];
    rows.dtype = F32;
    return rows;
}

INFER(attend)
{
    if (!check_attend(m, op))
        return false;
    results[0] = arg(op, 0)->type;
    results[1] = rows_of(&arg(op, 0)->type, &op->attrs);
    return true;
}

/* Has the type the dims of q, in any order? */
static bool has_dims_of(const Type *type, const Type *q)
{
    bool same = type->rank == q->rank;
    for (int i = 0; i < type->rank && same; i++) {
        int at = find_dim(q, type->dim[i].name);
        same = at >= 0 && dim_equal(&type->dim[i], &q->dim[at]);
    }
    return same;
}

/* The gradients of k and v are sums over the dims that only q has: a split of these leaves a sum pending, but for a
 * split of the keys too. */
INFER(attend_grad)
{
    if (!check_attend(m, op))
        return false;
    const Type *q = &arg(op, 0)->type;
    if (!has_dims_of(&arg(op, 3)->type, q) || !has_dims_of(&arg(op, 5)->type, q))
        return REFUSE(NULL, "attend_grad: y and dy must have the dims of q");
    const Dim *key = &arg(op, 1)->type.dim[find_dim(&arg(op, 1)->type, op->attrs.key)];
    for (int i = 0; i < 3; i++) {
        results[i] = arg(op, i)->type;
        for (int j = 0; i > 0 && j < q->rank; j++)
            if (find_dim(&results[i], q->dim[j].name) < 0)
                results[i].partial |= split_axes(q->dim[j].split) & ~split_axes(key->split);
    }
    return true;
}

/* A sum over the dims that the bias lacks. */
INFER(attend_bias_grad)
{
    if (!check_attend(m, op))
        return false;
    const int bias = operand_at(op, OPERAND_bias);
    const Type *q = &arg(op, 0)->type;
    const Type rows = rows_of(q, &op->attrs);
    if (bias < 0 || !has_dims_of(&arg(op, 5)->type, q) || !has_dims_of(&arg(op, 3)->type, &rows) ||
        !has_dims_of(&arg(op, 4)->type, &rows))
        return REFUSE(NULL, "attend_bias_grad needs a bias, dy with the dims of q, and a share and a sum of each row");
    results[0] = arg(op, bias)->type;
    for (int i = 0; i < q->rank; i++)
        if (find_dim(&results[0], q->dim[i].name) < 0)
            results[0].partial |= split_axes(q->dim[i].split);
    return true;
}
