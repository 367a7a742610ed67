/* derive.c -- a layout for a model without one: which dims each axis of the mesh can split, by what ops do to them.
 *
 * Tensor parallelism is that of Megatron-LM (Shoeybi et al., arXiv 1909.08053): a product makes a dim from a weight,
 * which is split over its columns, and a later one sums over it, with a weight that is split over its rows:
 *
 *   dot x[batch, seq, embed], w_up[embed, ff]      makes ff: each rank has some of its columns
 *   dot gelu[batch, seq, ff], w_down[ff, embed]    sums over ff: a pending sum, one message
 *
 * So `ff` is a candidate, and the heads of attention are.  A dim that a repeat carries is none: each norm would need
 * messages.  Neither is one that an op needs whole, nor, of two dims of which one product sums over the one and makes
 * the other, that which splits less work: its ranks would exchange what they have for what they need.
 */
#include "derive.h"

#include "dims.h"

#include <string.h>

/* Dims with the same elements, which are split alike. */
typedef struct {
    DimSet dims;
    int first;    /* of them in DimUses */
    double flops; /* of the products that make or sum them */
    bool chosen;
} Candidate;

typedef struct {
    Arena *arena;
    const Module *m;
    const DimUses *uses;
    int count;
    Candidate at[MAX_DIM_USES];
    DimSet chosen;                   /* all that tensor parallelism splits, but tables */
    DimSet tables;                   /* rows of them, and the classes of the loss */
    const char *mesh, *rules, *zero; /* of the block: "dp = 1, tp = 1"; a line for each axis; "dp, cp" */
} Choice;

/* A table is worth a message if it holds one parameter of so many. */
enum { LARGE_TABLE = 16 };

static const DimUse *use(const Choice *c, int dim) { return &c->uses->at[dim]; }
static bool is_in(DimSet set, int dim) { return set >> dim & 1; }

/* --- Candidates ------------------------------------------------------------------------------------------------- */

/* The dims with the same elements as `dim`. */
static DimSet same_as(const Choice *c, int dim)
{
    DimSet set = 0;
    for (int i = 0; i < c->uses->count; i++)
        set |= (DimSet)(use(c, i)->same == use(c, dim)->same) << i;
    return set;
}

static bool is_made(const Choice *c, DimSet dims)
{
    const Product *product = c->uses->products;
    while (product && !(product->made & dims))
        product = product->next;
    return product;
}

static bool is_summed(const Choice *c, DimSet dims)
{
    const Product *product = c->uses->products;
    while (product && !(product->summed & dims))
        product = product->next;
    return product;
}

/* Has none of the dims a purpose that needs it on each rank, or on other axes? */
static bool is_free(const Choice *c, DimSet dims)
{
    for (int i = 0; i < c->uses->count; i++) {
        const DimUse *u = use(c, i);
        if (is_in(dims, i) && (u->whole || u->scanned || u->attended || u->fed))
            return false;
    }
    return true;
}

static bool is_carried(const Choice *c, DimSet dims)
{
    for (int i = 0; i < c->uses->count; i++)
        if (is_in(dims, i) && use(c, i)->residual > 0)
            return true;
    return false;
}

static bool is_fed(const Choice *c, DimSet dims)
{
    for (int i = 0; i < c->uses->count; i++)
        if (is_in(dims, i) && use(c, i)->fed)
            return true;
    return false;
}

/* Can two ranks share each of the dims? */
static bool is_even(const Choice *c, DimSet dims)
{
    for (int i = 0; i < c->uses->count; i++)
        if (is_in(dims, i) && use(c, i)->size % 2)
            return false;
    return true;
}

static double flops_of(const Choice *c, DimSet dims)
{
    double flops = 0;
    for (const Product *product = c->uses->products; product; product = product->next)
        flops += (product->made | product->summed) & dims ? product->flops : 0;
    return flops;
}

static void find_candidates(Choice *c)
{
    for (int i = 0; i < c->uses->count; i++) {
        const DimSet dims = same_as(c, i);
        if (use(c, i)->same == i && is_made(c, dims) && is_summed(c, dims) && is_free(c, dims) && !is_carried(c, dims))
            c->at[c->count++] = (Candidate){ .dims = dims, .first = i, .flops = flops_of(c, dims) };
    }
}

/* Does a product sum over the one and make the other? */
static bool excludes(const Choice *c, DimSet one, DimSet other)
{
    for (const Product *product = c->uses->products; product; product = product->next)
        if ((product->summed & one && product->made & other) || (product->summed & other && product->made & one))
            return true;
    return false;
}

/* Has each weight with the one the other, too? */
static bool implies(const Choice *c, const Candidate *one, const Candidate *other)
{
    for (const Product *product = c->uses->products; product; product = product->next)
        if (product->dims & one->dims && !(product->dims & other->dims))
            return false;
    return true;
}

/* Is `inner` split only where `outer` is?  Of two that are always together, the one that is declared first is outside.
 */
static bool is_inside(const Choice *c, const Candidate *inner, const Candidate *outer)
{
    return inner != outer && implies(c, inner, outer) && !excludes(c, inner->dims, outer->dims) &&
           (inner->first > outer->first || !implies(c, outer, inner));
}

static bool is_nested(const Choice *c, const Candidate *inner)
{
    for (int i = 0; i < c->count; i++)
        if (is_inside(c, inner, &c->at[i]))
            return true;
    return false;
}

static bool is_single(const Choice *c, const Candidate *candidate)
{
    return candidate->dims == (DimSet)1 << candidate->first;
}

/* The dim that can share an axis with this one, as `group` with `kv_heads`; NULL: none.  Of several inside of each
 * other, the outer one splits more. */
static const Candidate *second_of(const Choice *c, const Candidate *outer)
{
    const Candidate *second = NULL;
    for (int i = 0; i < c->count; i++)
        if (is_inside(c, &c->at[i], outer) && (!second || c->at[i].flops > second->flops))
            second = &c->at[i];
    return second && is_single(c, outer) && is_single(c, second) ? second : NULL;
}

/* --- Choice ------------------------------------------------------------------------------------------------------ */

static bool may_choose(const Choice *c, const Candidate *candidate)
{
    const Candidate *second = second_of(c, candidate);
    if (candidate->chosen || is_nested(c, candidate) || excludes(c, candidate->dims, c->chosen))
        return false;
    return is_even(c, candidate->dims) || (second && is_even(c, second->dims));
}

/* The most work first. */
static void choose_pairs(Choice *c)
{
    for (Candidate *best = c->at; best;) {
        best = NULL;
        for (int i = 0; i < c->count; i++)
            if (may_choose(c, &c->at[i]) && (!best || c->at[i].flops > best->flops))
                best = &c->at[i];
        if (best) {
            best->chosen = true;
            c->chosen |= best->dims;
        }
    }
}

/* Where there are no such pairs: what products make of weights and repeats carry, as the state of an LSTM. */
static void choose_carried(Choice *c)
{
    for (int i = 0; i < c->uses->count; i++) {
        const DimSet dims = same_as(c, i);
        if (is_made(c, (DimSet)1 << i) && is_free(c, dims) && is_carried(c, dims) && is_even(c, dims) &&
            !use(c, i)->reduced)
            c->chosen |= (DimSet)1 << i;
    }
}

static void choose_tables(Choice *c)
{
    for (int i = 0; i < c->uses->count; i++) {
        const DimSet dims = same_as(c, i);
        const bool is_large = use(c, i)->rows * LARGE_TABLE > c->uses->parameters;
        const bool is_class = use(c, i)->name == c->m->vocab && (is_made(c, dims) || use(c, i)->rows > 0);
        if ((is_large || is_class) && is_free(c, dims) && !is_carried(c, dims) && is_even(c, dims))
            c->tables |= dims & ~c->chosen;
    }
}

/* --- The other axes ---------------------------------------------------------------------------------------------- */

static DimSet experts_of(const Choice *c)
{
    DimSet set = 0;
    for (int i = 0; i < c->uses->count; i++)
        set |= (DimSet)(use(c, i)->experts && !use(c, i)->scanned && use(c, i)->size % 2 == 0) << i;
    return set;
}

/* Sequences along which attention runs, and no scan. */
static DimSet attended_in(const Choice *c)
{
    DimSet set = 0;
    for (int i = 0; i < c->uses->count; i++) {
        const DimUse *u = use(c, i);
        const bool is_sequence = u->attended && !u->scanned && (u->fed || u->residual > 0);
        set |= (DimSet)(is_sequence && u->size % 2 == 0) << i;
    }
    return set;
}

/* The one along which tensors without a dim of tensor parallelism are split; NULL: none.  What several sequences read
 * of each other, and what is scanned, would be gathered again and again. */
static const char *only_sequence(const Choice *c)
{
    const char *only = NULL;
    for (int i = 0; i < c->uses->count; i++) {
        const DimUse *u = use(c, i);
        if (!u->residual || !u->attended)
            continue;
        if (only || u->scanned || u->size % 2)
            return NULL;
        only = u->name;
    }
    return only;
}

/* --- The block --------------------------------------------------------------------------------------------------- */

static const char *joined(Choice *c, const char *list, const char *more)
{
    return arena_text(c->arena, "%s%s%s", list, *list ? ", " : "", more);
}

static const char *names_of(Choice *c, DimSet dims)
{
    const char *names = "";
    for (int i = 0; i < c->uses->count; i++)
        names = is_in(dims, i) ? joined(c, names, use(c, i)->name) : names;
    return names;
}

/* "(kv_heads, group)": ranks that are more than the key-value heads share the rest of the queries. */
static const char *item_of(Choice *c, int dim)
{
    for (int i = 0; i < c->count; i++) {
        const Candidate *second = c->at[i].first == dim ? second_of(c, &c->at[i]) : NULL;
        if (second)
            return arena_text(c->arena, "(%s, %s)", use(c, dim)->name, use(c, second->first)->name);
    }
    return use(c, dim)->name;
}

static void add_line(Choice *c, const char *what, const char *axis, const char *otherwise)
{
    c->rules = arena_text(c->arena, "%s    %s over %s%s\n", c->rules, what, axis, otherwise);
}

/* An axis of one rank.  is_data: its ranks have other sequences, or other parts of them. */
static void add_axis(Choice *c, const char *axis, bool is_data)
{
    c->mesh = joined(c, c->mesh, arena_text(c->arena, "%s = 1", axis));
    c->zero = is_data ? joined(c, c->zero, axis) : c->zero;
}

/* One `shard` has at most so many dims: MAX_NAMES. */
static void add_tensor_axis(Choice *c, const char *otherwise)
{
    const char *list = "";
    int count = 0;
    add_axis(c, "tp", false);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < c->uses->count; i++) {
            if (!is_in(pass ? c->tables : c->chosen, i))
                continue;
            if (count && count % MAX_NAMES == 0) {
                add_line(c, arena_text(c->arena, "shard %s", list), "tp", "");
                list = "";
            }
            list = joined(c, list, pass ? use(c, i)->name : item_of(c, i));
            count++;
        }
    add_line(c, arena_text(c->arena, "shard %s", list), "tp", otherwise);
}

/* Has it means of weights of a repeat?  Stages cannot divide these. */
static bool has_means_of_copies(const Module *m)
{
    for (const Param *mean = m->params; mean; mean = mean->next) {
        const Param *of = mean->like ? find_param(m, mean->like) : NULL;
        if (of && of->type.rank > 0 && copies_dim(m, of->type.dim[0].name))
            return true;
    }
    return false;
}

/* Axes in the order of the mesh, whose last one has the nearest ranks. */
static void add_axes(Choice *c, const char *otherwise, bool may_share)
{
    const Names *repeats = &c->m->repeats;
    const char *batch = c->m->inputs ? c->m->batch : NULL;
    const DimSet experts = batch ? experts_of(c) : 0, sequences = attended_in(c);
    const bool shares_copies = may_share && repeats->count && c->m->copies > 1 && !has_means_of_copies(c->m);
    if (shares_copies)
        add_axis(c, "pp", false);
    if (batch) {
        add_axis(c, "dp", true);
        add_line(c, arena_text(c->arena, "shard %s", batch), "dp", "");
    }
    if (experts) {
        add_axis(c, "ep", true);
        add_line(c, arena_text(c->arena, "shard %s, %s", names_of(c, experts), batch), "ep", "");
    }
    if (sequences) {
        add_axis(c, "cp", is_fed(c, sequences));
        add_line(c, arena_text(c->arena, "shard %s", names_of(c, sequences)), "cp", "");
    }
    if (c->chosen | c->tables)
        add_tensor_axis(c, otherwise);
    if (shares_copies) {
        const char *names = "";
        for (int i = 0; i < repeats->count; i++)
            names = joined(c, names, repeats->name[i]);
        add_line(c, arena_text(c->arena, "pipeline %s", names), "pp", "");
    }
}

static const char *block_of(Choice *c)
{
    return arena_text(c->arena, "parallel {\n    mesh  %s\n%s%s    recompute none\n}\n", c->mesh, c->rules,
                      *c->zero ? arena_text(c->arena, "    zero 1 over %s\n", c->zero) : "");
}

const char *derive_layout(Arena *arena, const Ast *file, const Module *m, bool may_share)
{
    Choice c = {
        .arena = arena, .m = m, .uses = find_dim_uses(arena, file, (Module *)m), .mesh = "", .rules = "", .zero = ""
    };
    find_candidates(&c);
    choose_pairs(&c);
    const char *sequence = c.chosen ? only_sequence(&c) : NULL;
    if (!c.chosen)
        choose_carried(&c);
    choose_tables(&c);
    add_axes(&c, sequence ? arena_text(arena, " else %s", sequence) : "", may_share);
    return *c.mesh ? block_of(&c) : NULL;
}
