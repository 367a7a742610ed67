/* rows.c -- splits a table in another tier of memory that belongs to no repeat, such as a table of words, into blocks
 * of rows.  The pass `stacks` then runs what updates or casts it block by block, as it does with copies of a layer: no
 * more than two blocks are on the device, and transfers of one hide behind those of another.
 *
 *   %1 = move %m : f32[vocab:50257~50304, e]           %0 = split %m {dim=vocab, dims=[vocab.block:12, vocab.row:4192]}
 *   %2 = call %g, %1 {callee=k}                  =>    %1 = move %0 : f32[vocab.block:12, vocab.row:4192, e]
 *   %3 = move %2, %m {tier=disk}                       %2 = call (split %g), %1 {callee=k}
 *                                                      %3 = merge (move %2, %0 {tier=disk}) {dims=[vocab:50257~50304]}
 *
 * Each element is computed as before; so is what is in the padding, which nothing reads.
 */
#include "rows.h"

#include "infer.h"
#include "ports.h"
#include "tier.h"

enum { MOST_BLOCKS = 16 };

typedef struct {
    Module *m;
    Func *f;
    Op *call;
    Func *kernel;
    Dim rows;      /* the dim of the table */
    Dim part[2];   /* blocks, and the rows of one */
    Values whole;  /* what the call reads and replaces */
    Values blocks; /* each of these as blocks */
} Table;

/* The move of a result over the old state in another tier; NULL: the result stays. */
static Op *put_back_of(const Func *f, const Value *made)
{
    Op *move = move_away_of(f, made);
    return move && move->args.count == 2 ? move : NULL;
}

/* The state whose rows the call reads, and can read in blocks; NULL: none. */
static const Value *table_of(const Module *m, const Func *f, const Op *call)
{
    for (int i = 0; i < call->args.count; i++) {
        const Op *fetch = fetch_of(f, arg(call, i));
        const Value *state = fetch ? arg(fetch, 0) : NULL;
        if (state && !state->def && state->type.rank > 1 && !is_of_repeat(m, state->port) &&
            !runs_over_padding(&state->type.dim[0]))
            return state;
    }
    return NULL;
}

/* As many blocks as divide the rows, with their padding, but no more than some; 0: the rows are not divisible. */
static int64_t count_blocks(const Dim *rows)
{
    int64_t count = MOST_BLOCKS;
    while (count > 1 && rows->padded % count)
        count--;
    return count > 1 ? count : 0;
}

static bool has_rows(const Table *t, const Type *type) { return find_dim(type, t->rows.name) >= 0; }

/* Does each block of rows of its results depend on this block of its operands? */
static bool runs_on_block(const Table *t, const Op *op)
{
    bool is_without = true, good = info(op)->family == POINTWISE && !(info(op)->traits & POSITIONAL);
    for (int i = 0; i < op->args.count + op->results.count; i++) {
        const Type *type = &arg_or_result(op, i)->type;
        const int at = find_dim(type, t->rows.name);
        is_without &= at < 0;
        good &= at < 0 || (at == 0 && dim_equal(&type->dim[0], &t->rows) && type->rank < MAX_RANK);
    }
    return is_without || (good && !op->attrs.order.count);
}

static bool can_see_blocks(const Table *t)
{
    bool good = true;
    for (const Op *op = t->kernel->first; op && good; op = op->next)
        good = runs_on_block(t, op);
    for (int i = 0; i < t->kernel->results.count && good; i++)
        good = has_rows(t, &t->kernel->results.at[i]->type);
    return good;
}

/* --- The kernel of all blocks ------------------------------------------------------------------------ */

static Type in_blocks(const Table *t, Type type)
{
    if (!has_rows(t, &type))
        return type;
    type.dim[0] = t->part[1];
    return with_dim_first(type, t->part[0]);
}

static void see_blocks_in_attrs(const Table *t, Dims *dims)
{
    const Dims old = *dims;
    dims->count = 0;
    for (int i = 0; i < old.count; i++) {
        const bool is_rows = old.dim[i].name == t->rows.name;
        if (is_rows)
            dims->dim[dims->count++] = t->part[0];
        dims->dim[dims->count++] = is_rows ? t->part[1] : old.dim[i];
    }
}

static void see_blocks_in_kernel(const Table *t)
{
    for (int i = 0; i < t->kernel->inner.count; i++)
        if (t->kernel->inner.name[i] == t->rows.name) {
            t->kernel->inner.name[i] = t->part[1].name;
            add_name(&t->kernel->inner, t->part[0].name);
        }
    for (int i = 0; i < t->kernel->params.count; i++)
        t->kernel->params.at[i]->type = in_blocks(t, t->kernel->params.at[i]->type);
    for (Op *op = t->kernel->first; op; op = op->next) {
        see_blocks_in_attrs(t, &op->attrs.dims);
        for (int i = 0; i < op->results.count; i++)
            op->results.at[i]->type = in_blocks(t, op->results.at[i]->type);
    }
}

/* --- What it reads and makes ------------------------------------------------------------------------- */

static Value *known_blocks(const Table *t, const Value *whole)
{
    const int known = index_of(&t->whole, whole);
    if (known >= 0)
        return t->blocks.at[known];
    const Op *op = t->f->first; /* of other tables */
    while (!whole->def && info(op)->traits & FOLDS && (arg(op, 0) != whole || op->attrs.dim != t->rows.name))
        op = op->next;
    return !whole->def && info(op)->traits & FOLDS ? result(op) : NULL;
}

/* Of what the program is given, at its beginning: loops of several tables may be one. */
static Value *split_before(Table *t, Op *op, Value *whole)
{
    Value *known = known_blocks(t, whole);
    if (known)
        return known;
    Builder b = builder_at(t->m, t->f, op);
    b.before = whole->def ? op : t->f->first;
    const Attrs attrs = { .dim = t->rows.name, .dims = { .count = 2, .dim = { t->part[0], t->part[1] } } };
    push_value(&t->m->arena, &t->whole, whole);
    push_value(&t->m->arena, &t->blocks, BUILD(&b, OP_split, attrs, whole));
    return t->blocks.at[t->blocks.count - 1];
}

static void read_blocks(Table *t, int i)
{
    Value *read = arg(t->call, i);
    Op *fetch = fetch_of(t->f, read);
    if (!has_rows(t, &read->type))
        return;
    if (!fetch) {
        t->call->args.at[i] = split_before(t, t->call, read);
        return;
    }
    fetch->args.at[0] = split_before(t, fetch, arg(fetch, 0));
    read->type = in_blocks(t, read->type);
}

/* Its readers read it as rows again. */
static void make_blocks(Table *t, Value *made)
{
    Op *back = put_back_of(t->f, made);
    Value *blocks = back ? result(back) : made;
    made->type = in_blocks(t, made->type);
    if (back) {
        back->args.at[1] = split_before(t, back, arg(back, 1));
        blocks->type = in_blocks(t, blocks->type);
    }
    Attrs attrs = { .dims = { .count = 1, .dim = { t->rows } } };
    add_name(&attrs.over, t->part[0].name), add_name(&attrs.over, t->part[1].name);
    Builder b = builder_at(t->m, t->f, blocks->def->next);
    b.loc = blocks->def->loc, b.path = blocks->def->path, b.where = blocks->def->where;
    Value *rows = BUILD(&b, OP_merge, attrs, blocks);
    replace_uses(t->f, blocks, rows);
    rows->def->args.at[0] = blocks;
}

static void see_blocks(Table *t)
{
    const int64_t count = count_blocks(&t->rows), size = t->rows.padded / count;
    const char *name = t->rows.name;
    t->part[0] = (Dim){ intern_format(t->m, "%s.block%lld", name, (long long)count), .size = count, .padded = count };
    t->part[1] = (Dim){ intern_format(t->m, "%s.row%lld", name, (long long)size), .size = size, .padded = size };
    see_blocks_in_kernel(t);
    for (int i = 0; i < t->call->args.count; i++)
        read_blocks(t, i);
    for (int i = 0; i < t->call->results.count; i++)
        make_blocks(t, t->call->results.at[i]);
}

void see_rows_in_blocks(Module *m)
{
    for (Func *f = m->funcs; f; f = f->next)
        for (Op *op = is_program(f) ? f->first : NULL; op; op = op->next) {
            Table t = { .m = m, .f = f, .call = op, .kernel = kernel_called_by(m, op) };
            const Value *state = t.kernel ? table_of(m, f, op) : NULL;
            if (state)
                t.rows = state->type.dim[0];
            if (state && count_blocks(&t.rows) && can_see_blocks(&t))
                see_blocks(&t);
        }
}
