/* host_rounded.c -- kernels that are skipped where products round their operands themselves.
 *
 *   if (!rt_product_in_8(rt, 0) || !rt_product_in_8(rt, 1))
 *       RT_RUN(rt, 3, RT_LAUNCH(rt, kernel_h_attn_q, h_attn_norm, h_attn_q));
 *
 * The results of such a kernel are read only as operands of products that may read others in their place, or by kernels
 * whose own results are read so. */
#include "blocks.h"
#include "host_parts.h"

#include "map.h"
#include "uses.h"

/* Readers of rounded operands in one function. */
typedef struct RoundedReaders {
    bool has_any; /* products that round them */
    Uses uses;
} RoundedReaders;

typedef struct {
    FuncText *t;
    const Uses *uses;
    Texts products; /* that read it: their numbers */
    int depth;
} Readers;

static bool is_left_out(Readers *r, const Op *op);

/* The products of the op read the value as an operand that has another in its place, and as nothing else. */
static bool read_by_products(Readers *r, const Op *op, const Func *kernel, const Value *value)
{
    Module *m = r->t->h->m;
    Product *products;
    const int count = plan_products(m, kernel, op, &products);
    for (int i = 0; i < count; i++) {
        Product *p = &products[i];
        const int others[] = { p->bias, p->at, p->copied };
        for (int k = 0; k < 3; k++)
            if (others[k] >= 0 && arg(op, others[k]) == value)
                return false;
        const int at[] = { p->a, p->b };
        bool is_read = false;
        for (int k = 0; k < 2; k++) {
            if (p->from[k] >= 0 && arg(op, p->from[k]) == value)
                return false;
            is_read |= arg(op, at[k]) == value;
        }
        if (is_read && (!r->t->h->dialect->rounds(r->t->h, op, i, p)))
            return false;
        if (is_read)
            row_with_text(m, &r->products, arena_text(&m->arena, "%d", product_number(r->t, op, i, p)));
    }
    return count > 0;
}

static bool is_left_out_by(Readers *r, const Op *reader, const Value *value)
{
    const Func *kernel = reader->attrs.callee ? find_func(r->t->h->m, reader->attrs.callee) : NULL;
    if (info(reader)->family != VIEW && kernel && kernel->role == KERNEL && is_product_kernel(kernel))
        return read_by_products(r, reader, kernel, value);
    return (info(reader)->family == VIEW || (kernel && kernel->role == KERNEL)) && is_left_out(r, reader);
}

/* Is it read, but by nothing else? */
static bool is_left_out(Readers *r, const Op *op)
{
    enum { DEEPEST = 12 }; /* a maximum, a scale, a product with it, and views */
    bool good = !op->attrs.early && ++r->depth < DEEPEST, any = false;
    for (int i = 0; i < op->results.count && good; i++) {
        const Value *value = op->results.at[i];
        const Users *users = users_of(r->uses, value);
        good = index_of(&r->t->f->results, value) < 0;
        for (int k = 0; k < users->count && good; k++)
            good = is_left_out_by(r, users->op[k], value);
        any |= users->count > 0;
    }
    r->depth--;
    return good && any;
}

static const RoundedReaders *rounded_readers(FuncText *t)
{
    Module *m = t->h->m;
    RoundedReaders *readers = NEW(&m->arena, RoundedReaders);
    for (const Op *op = t->h->dialect->rounds ? t->f->first : NULL; op && !readers->has_any; op = op->next)
        readers->has_any = kernel_rounding(m, op) != NULL;
    if (readers->has_any)
        readers->uses = find_uses(&m->arena, t->f);
    return readers;
}

const char *rounding_condition(FuncText *t, const Op *const ops[], int count)
{
    Module *m = t->h->m;
    if (!t->rounded)
        t->rounded = rounded_readers(t);
    Readers r = { .t = t, .uses = &t->rounded->uses };
    bool good = t->rounded->has_any;
    for (int i = 0; i < count && good; i++)
        good = is_left_out(&r, ops[i]);
    const char *text = NULL;
    for (int i = 0; i < r.products.count && good; i++)
        text = arena_text(&m->arena, "%s%s!rt_product_in_8(rt, %s)", text ? text : "", text ? " || " : "",
                          r.products.at[i]);
    return text;
}
