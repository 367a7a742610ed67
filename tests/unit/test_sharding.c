/* test_sharding.c -- the sharding rule of every op against what its ranks compute.
 *
 * Every op is tested with many layouts of its operands on a mesh of four ranks: dims split over one or two axes, in
 * either order, in zig-zag, with padding; sums and maxima pending.  Layouts that type inference accepts are run on all
 * ranks, and must give the tensor that one rank computes alone.  Rejected ones are not run; a check below ensures that
 * not all are rejected.
 */
#include "infer.h"
#include "op_cases.h"

#include <math.h>

/* Layouts at random, beside each split of each dim; fewer where each takes ten times as long (run.sh). */
#ifdef SLOW
enum { TRIES = 150 };
#else
enum { TRIES = 600 };
#endif
enum { MOST_DIMS = 8 };

#define OVER(axes, ...)                                                                                                \
    {                                                                                                                  \
        .count = (axes), .axis = { __VA_ARGS__ }                                                                       \
    }

/* Splits of a dim, and pending sums. */
static const struct {
    Split split;
    int zigzag;
} holding[] = {
    { OVER(0, 0), 0 },
    { OVER(1, 0), 0 },
    { OVER(1, 1), 0 },
    { OVER(2, 0, 1), 0 },
    { OVER(2, 1, 0), 0 },
    { OVER(1, 0), 2 },
    { OVER(1, 1), 2 },
    { OVER(2, 1, 0), 2 },
    { OVER(1, 0), 4 },
    { OVER(2, 0, 1), 4 },
    { { .count = 1, .axis = { 0 }, .dealt = 2 }, 0 },
    { { .count = 1, .axis = { 1 }, .dealt = 2 }, 0 },
};
static const struct {
    Axes axes;
    Reduce by;
} terms[] = { { 0, BY_SUM }, { 1, BY_SUM }, { 2, BY_SUM }, { 3, BY_SUM }, { 1, BY_MAX }, { 3, BY_MAX } };

enum { HOLDINGS = sizeof holding / sizeof *holding, TERMS = sizeof terms / sizeof *terms };

static uint64_t seed;
static int pick(int n) { return (int)(hashed_number(17, seed++) * n); }

/* The dims of a trial by name, with their present splits. */
typedef struct {
    int dims, of_dim[MOST_DIMS], of_operand[MOST_OPERANDS];
    Name name[MOST_DIMS];
    int stray, stray_dim, stray_to; /* one operand may split a dim differently; -1: none */
    Axes axis;
} Layout;

static void collect(Layout *l, const Dim *dims, int count)
{
    for (int i = 0; i < count; i++) {
        int n = 0;
        while (n < l->dims && l->name[n] != dims[i].name)
            n++;
        if (n == l->dims && n < MOST_DIMS)
            l->name[l->dims++] = dims[i].name;
    }
}

static void hold_dims(const Layout *l, int operand, Dim *dims, int count)
{
    for (int i = 0; i < count; i++)
        for (int n = 0; n < l->dims; n++)
            if (dims[i].name == l->name[n]) {
                int how = operand == l->stray && n == l->stray_dim ? l->stray_to : l->of_dim[n];
                dims[i].split = holding[how].split;
                dims[i].zigzag = holding[how].zigzag;
            }
}

/* A type that could be written: blocks come out even, and an axis has one use. */
static bool is_possible(const Module *m, const Type *type)
{
    Axes seen = type->partial;
    for (int i = 0; i < type->rank; i++) {
        const Dim *dim = &type->dim[i];
        int64_t pieces = dim->zigzag && dim->split.count ? dim->zigzag * m->axis_size[dim->split.axis[0]] : 1;
        if (dim->padded % split_count(m, dim->split) || dim->padded % pieces)
            return false;
        if (dim->split.dealt && (dim->padded != dim->size || dim->size % dealt_blocks(m, dim)))
            return false;
        for (int j = 0; j < dim->split.count; j++) {
            Axes axis = 1u << dim->split.axis[j];
            if (seen & axis)
                return false;
            seen |= axis;
        }
    }
    return true;
}

/* What was tried of each op. */
static struct {
    int run, refused, split, partial;
} count[N_OPS];

static void note(OpKind kind, const Trial *t)
{
    bool split = false, partial = false;
    for (int i = 0; i < t->operands; i++) {
        partial |= t->type[i].partial != 0;
        for (int d = 0; d < t->type[i].rank; d++)
            split |= t->type[i].dim[d].split.count > 0;
    }
    count[kind].run++;
    count[kind].split += split;
    count[kind].partial += partial;
}

static const char *layout_text(Trial *t)
{
    const char *text = "";
    for (int i = 0; i < t->operands; i++)
        text = intern_format(t->m, "%s %s", text, type_text(t->m, &t->type[i]));
    return text;
}

/* Computes the results on one rank, from whole operands. */
static void compute_alone(const Case *c, const Tensor args[], Tensor results[])
{
    if (op_table[c->kind].family == COLLECTIVE) {
        results[0] = new_tensor(&args[0].type);
        memcpy(results[0].data, args[0].data, (size_t)element_count(&args[0].type) * sizeof(double));
        return;
    }
    Trial t = begin_trial(c, "module @m { batch batch }");
    Op *op;
    Func *f = make_func(&t, c, "f", &op);
    if (!f || !interpret(t.m, f, args, results))
        fail_msg("%s: %s", op_table[c->kind].name, said(t.text));
    for (int i = 0; i < f->results.count; i++) /* names of the module that goes away */
        for (int d = 0; d < results[i].type.rank; d++)
            results[i].type.dim[d].name = NULL;
    free_text(t.text);
}

/* Compares by position: the two modules' names differ, the order of dims does not. */
static double worst_difference(const Tensor *a, const Tensor *b)
{
    int64_t n = element_count(&a->type);
    double worst = n == element_count(&b->type) ? 0 : INFINITY;
    for (int64_t i = 0; i < n && worst < INFINITY; i++) {
        double x = a->data[i], y = b->data[i], off = x == y ? 0 : fabs(x - y) / fmax(1, fabs(x));
        worst = isnan(off) && !(isnan(x) && isnan(y)) ? INFINITY : off > worst ? off : worst;
    }
    return worst;
}

/* Sets the types of operands and attributes by the layout; false if such types are impossible. */
static bool lay_out(Trial *t, const Case *c, Layout *l)
{
    for (int i = 0; i < t->operands; i++)
        collect(l, t->type[i].dim, t->type[i].rank);
    collect(l, t->attrs.dims.dim, t->attrs.dims.count);
    bool possible = true;
    for (int i = 0; i < t->operands; i++) {
        hold_dims(l, i, t->type[i].dim, t->type[i].rank);
        if (t->type[i].dtype != BOOL) { /* which is no sum */
            t->type[i].partial = terms[l->of_operand[i]].axes;
            t->type[i].by = terms[l->of_operand[i]].by;
        }
        possible &= is_possible(t->m, &t->type[i]);
    }
    hold_dims(l, -2, t->attrs.dims.dim, t->attrs.dims.count);
    Type attribute = { .rank = t->attrs.dims.count };
    for (int i = 0; i < attribute.rank; i++)
        attribute.dim[i] = t->attrs.dims.dim[i];
    t->attrs.axis = op_table[c->kind].family == COLLECTIVE && !(op_table[c->kind].traits & CARRIES) ? l->axis : 0;
    return possible && is_possible(t->m, &attribute);
}

/* A split dim is pending in a result if its role is a reduction, and in none if it is kept. */
static void check_roles(Trial *t, const Op *op)
{
    Axes pending = 0;
    for (int i = 0; i < op->results.count; i++)
        pending |= op->results.at[i]->type.partial;
    for (int i = 0; i < op->args.count && info(op)->family != COLLECTIVE; i++)
        for (int j = 0; j < arg(op, i)->type.rank; j++) {
            const Dim *dim = &arg(op, i)->type.dim[j];
            const bool is_pending = pending & split_axes(dim->split), is_kept = op_role(op, dim->name) == KEEP;
            if (dim->split.count && (is_pending == is_kept || needs_whole(op, dim->name)))
                fail_msg("%s of%s is accepted as %s, but the role of '%s' is another", info(op)->name, layout_text(t),
                         type_text(t->m, &result(op)->type), dim->name);
        }
}

/* Runs an accepted layout. */
static void run_on_ranks(Trial *t, const Case *c, const Func *f, const Op *op)
{
    Tensor args[MOST_OPERANDS], alone[3], together[3];
    check_roles(t, op);
    random_operands(t, c, args);
    compute_alone(c, args, alone);
    if (!interpret(t->m, f, args, together))
        fail_msg("%s of%s is accepted as %s, but: %s", info(op)->name, layout_text(t),
                 type_text(t->m, &result(op)->type), said(t->text));
    for (int i = 0; i < op->results.count; i++) {
        const Type *type = &op->results.at[i]->type;
        if (!is_possible(t->m, type))
            fail_msg("%s of%s gives the impossible %s", info(op)->name, layout_text(t), type_text(t->m, type));
        double off = worst_difference(&alone[i], &together[i]);
        if (!(off < 1e-9))
            fail_msg("%s of%s is accepted as %s, but off by %g", info(op)->name, layout_text(t), type_text(t->m, type),
                     off);
    }
    free_tensors(args, t->operands);
    free_tensors(alone, op->results.count);
    free_tensors(together, op->results.count);
}

static void try_layout(const Case *c, Layout *l)
{
    Trial t = begin_trial(c, "module @m { mesh dp=2, tp=2 batch batch }");
    Op *op;
    if (lay_out(&t, c, l)) {
        const Func *f = make_func(&t, c, "f", &op);
        if (f) {
            run_on_ranks(&t, c, f, op);
            note(c->kind, &t);
        } else {
            count[c->kind].refused++;
        }
    }
    free_text(t.text);
}

static Layout whole(void) { return (Layout){ .stray = -1, .axis = 1 + (Axes)pick(3) }; }

/* One dim split in each way, with each pending term in each operand; then all at random. */
static void try_layouts(const Case *c)
{
    Layout first = whole();
    try_layout(c, &first); /* and learn how many dims there are */
    for (int dim = 0; dim < first.dims; dim++)
        for (int how = 0; how < HOLDINGS; how++)
            for (int operand = 0; operand < 3; operand++)
                for (int term = operand > 0; term < TERMS; term++) {
                    Layout l = whole();
                    l.of_dim[dim] = how;
                    l.of_operand[operand] = term;
                    try_layout(c, &l);
                }
    for (int i = 0; i < TRIES; i++) {
        Layout l = whole();
        for (int n = 0; n < MOST_DIMS; n++)
            l.of_dim[n] = pick(2) ? pick(HOLDINGS) : 0;
        bool pending = pick(2);
        int common = pick(2) ? pick(TERMS) : 0;
        for (int n = 0; pending && n < MOST_OPERANDS; n++)
            l.of_operand[n] = pick(4) ? common : pick(TERMS);
        if (pick(4) == 0) {
            l.stray = pick(4);
            l.stray_dim = pick(4);
            l.stray_to = pick(HOLDINGS);
        }
        try_layout(c, &l);
    }
}

/* Ops that take no split or no pending operand, though they have dims or are linear. */
static bool may_refuse_all(OpKind kind)
{
    return kind == OP_constant || kind == OP_iota || kind == OP_wait || is_between_stages(kind);
}

static void test_sharding(void **state)
{
    int run = 0, refused = 0;
    each_case(try_layouts);
    for (int kind = 0; kind < N_OPS; kind++) {
        const OpInfo *row = &op_table[kind];
        run += count[kind].run;
        refused += count[kind].refused;
        if (row->family == CONTROL || may_refuse_all((OpKind)kind))
            continue;
        if (!count[kind].split && kind != OP_all_reduce)
            fail_msg("%s: no layout with a split dim is accepted", row->name);
        if ((row->linear == NEVER) != (count[kind].partial == 0))
            fail_msg("%s: %d layouts with a partial operand are accepted", row->name, count[kind].partial);
    }
    for (int kind = 0; kind < N_OPS; kind++)
        if (op_table[kind].family != CONTROL)
            print_message("  %-16s %5d run (%d split, %d partial), %d refused\n", op_table[kind].name, count[kind].run,
                          count[kind].split, count[kind].partial, count[kind].refused);
    print_message("%d layouts run on four ranks, %d refused\n", run, refused);
}

/* A unary additive op, f(x + y) = f(x) + f(y), must accept a partial operand: otherwise each use would need a
 * collective. */
static void test_additivity(const Case *c)
{
    Trial t = begin_trial(c, "module @m { batch batch }");
    if (t.operands != 1 || !is_float(t.type[0].dtype) || op_table[c->kind].family == COLLECTIVE) {
        free_text(t.text);
        return;
    }
    Op *op;
    Func *f = make_func(&t, c, "f", &op);
    Tensor x[3] = { random_tensor("x", &t.type[0], 0.1, 0.4), random_tensor("y", &t.type[0], 0.1, 0.4),
                    new_tensor(&t.type[0]) };
    Tensor y[3];
    for (int64_t i = 0; i < element_count(&t.type[0]); i++)
        x[2].data[i] = x[0].data[i] + x[1].data[i];
    for (int i = 0; i < 3; i++)
        assert_true(interpret(t.m, f, &x[i], &y[i]));
    bool adds_up = is_float(y[0].type.dtype) && c->kind != OP_relu && c->kind != OP_abs; /* which do on one side of 0 */
    adds_up &=
        c->kind != OP_round_bf16 && c->kind != OP_round_f16 && c->kind != OP_round_e4m3; /* which do without rounding */
    for (int64_t i = 0; i < element_count(&y[0].type); i++)
        adds_up &= fabs(y[0].data[i] + y[1].data[i] - y[2].data[i]) < 1e-9;
    if (adds_up && op_table[c->kind].linear == NEVER)
        fail_msg("%s adds up, but its row does not say so", op_table[c->kind].name);
    free_tensors(x, 3);
    free_tensors(y, 3);
    free_text(t.text);
}

static void test_linearity(void **state) { each_case(test_additivity); }

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sharding), cmocka_unit_test(test_linearity) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
