/* space.c -- the space of layouts: what the model's `parallel { }` can be with other sizes and options.
 *
 * The model says which dims an axis can split and which repeats can be a pipeline's; what it says of sizes, zero,
 * recompute, attend, schedule and chunks is replaced.  --keep fixes one of them. */
#include "planner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const attend_name[N_ATTENDS] = { [GATHER] = "gather", [RING] = "ring", [ALL_TO_ALL] = "all_to_all" };

/* --- The statements of the model ----------------------------------------------------------------------- */

PlanAxis *axis_named(Planner *p, const char *name)
{
    for (int i = 0; i < p->naxes; i++)
        if (strcmp(p->axis[i].name, name) == 0)
            return &p->axis[i];
    return NULL;
}

const Ast *statement(const Planner *p, AstKind kind)
{
    const Ast *ast = p->parallel->body;
    while (ast && ast->kind != kind)
        ast = ast->next;
    return ast;
}

static bool has_text(const Names *names, const char *text)
{
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->name[i], text) == 0)
            return true;
    return false;
}

static bool is_attended(const Module *m, const char *dim)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (op->attrs.key && op->attrs.feature && op->attrs.seq && strcmp(op->attrs.seq, dim) == 0)
                return true;
    return false;
}

static void note_heads(Planner *p, const Module *m)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            for (int i = 0; op->attrs.key && op->attrs.feature && i < arg(op, 0)->type.rank; i++) {
                const Name dim = arg(op, 0)->type.dim[i].name;
                if (dim != m->batch && dim != op->attrs.seq && dim != op->attrs.feature && !has_text(&p->heads, dim))
                    add_name(&p->heads, arena_text(p->arena, "%s", dim));
            }
}

static int64_t size_in(const Func *f, const char *dim)
{
    for (const Op *op = f->first; op; op = op->next)
        for (int i = 0; i < op->args.count + op->results.count; i++) {
            const Type *type = &arg_or_result(op, i)->type;
            for (int k = 0; k < type->rank; k++)
                if (strcmp(type->dim[k].name, dim) == 0)
                    return type->dim[k].padded;
        }
    return 0;
}

static void add_dim(Planner *p, const Module *m, const char *name)
{
    int64_t size = 0;
    for (int i = 0; i < p->ndims; i++)
        if (strcmp(p->dim[i].name, name) == 0)
            return;
    for (const Func *f = m->funcs; f && !size; f = f->next)
        size = size_in(f, name);
    p->dim[p->ndims++] = (PlanDim){ name, size };
}

static void read_shard(Planner *p, const Module *m, const Ast *shard)
{
    PlanAxis *axis = axis_named(p, shard->name);
    for (const Ast *item = shard->child; axis && item; item = item->next)
        for (const Ast *dim = item->kind == A_PAIR ? item->child : item; dim;
             dim = item->kind == A_PAIR ? dim->next : NULL) {
            axis->is_data |= m->batch && strcmp(dim->name, m->batch) == 0;
            axis->attends |= is_attended(m, dim->name);
            if (!m->batch || strcmp(dim->name, m->batch) != 0)
                add_dim(p, m, dim->name), axis->is_batch = false;
        }
    if (shard->init)
        add_dim(p, m, shard->init->name);
}

/* Without `zero`, as the option --zero: over all axes that split data. */
static void find_zero_axes(Planner *p)
{
    const Ast *zero = statement(p, A_ZERO);
    for (const Ast *name = zero ? zero->init : NULL; name; name = name->next) {
        PlanAxis *axis = axis_named(p, name->name);
        if (axis)
            axis->is_zero = true;
    }
    for (int i = 0; i < p->naxes && !(zero && zero->init); i++)
        p->axis[i].is_zero = p->axis[i].is_data || p->axis[i].attends;
}

static int count_dims(const Ast *parallel)
{
    int count = 0;
    for (const Ast *ast = parallel->body; ast; ast = ast->next)
        for (const Ast *dim = ast->kind == A_SHARD ? ast->child : NULL; dim; dim = dim->next)
            count += 2;
    return count;
}

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

static int64_t dim_size(const Planner *p, const char *name)
{
    for (int i = 0; i < p->ndims; i++)
        if (strcmp(p->dim[i].name, name) == 0)
            return p->dim[i].size;
    return 1;
}

/* The sizes of what an axis splits, once they are known. */
static void note_split(Planner *p, const Ast *shard)
{
    PlanAxis *axis = axis_named(p, shard->name);
    for (const Ast *item = axis ? shard->child : NULL; item; item = item->next)
        if (item->kind == A_NAME)
            axis->dealt = common_divisor(axis->dealt, dim_size(p, item->name));
        else if (item->kind == A_PAIR && !axis->pair)
            axis->pair = dim_size(p, item->child->name);
}

/* --- Reading ---------------------------------------------------------------------------------------------- */

static bool has_windows(const Module *m)
{
    bool has = false;
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            has |= info(op)->traits & IN_BLOCKS && op->attrs.window;
    return has;
}

bool read_space(Planner *p, const Module *m)
{
    const Ast *mesh = statement(p, A_MESH);
    p->dim = NEW_ARRAY(p->arena, PlanDim, count_dims(p->parallel) + MAX_NAMES + 1);
    for (const Ast *axis = mesh ? mesh->child : NULL; axis && p->naxes < MAX_AXES; axis = axis->next)
        p->axis[p->naxes++] = (PlanAxis){ .name = axis->name, .is_batch = true };
    for (const Ast *ast = p->parallel->body; ast; ast = ast->next)
        if (ast->kind == A_SHARD)
            read_shard(p, m, ast);
    find_copies_axis(p);
    find_zero_axes(p);
    note_heads(p, m);
    for (int i = 0; i < p->heads.count; i++)
        add_dim(p, m, p->heads.name[i]);
    for (const Ast *ast = p->parallel->body; ast; ast = ast->next)
        if (ast->kind == A_SHARD)
            note_split(p, ast);
    p->has_windows = has_windows(m);
    p->sequences = m->train.batch;
    return read_kept(p, m->train.abreast > 1 ? (int)m->train.abreast : 1);
}

/* --- Counts of a layout ------------------------------------------------------------------------------------- */

int64_t data_ranks(const Planner *p, const PlanLayout *layout)
{
    int64_t ranks = 1;
    for (int i = 0; i < p->naxes; i++)
        ranks *= p->axis[i].is_data ? layout->size[i] : 1;
    return ranks;
}

int64_t micro_batches(const Planner *p, const PlanLayout *layout)
{
    return p->sequences / data_ranks(p, layout) / layout->microbatch;
}

int64_t first_of_pair(const Planner *p, int axis, int64_t size)
{
    return p->axis[axis].pair ? common_divisor(p->axis[axis].pair, size) : size;
}

bool deals_blocks(const Planner *p, int axis, int64_t size)
{
    return p->axis[axis].attends && p->axis[axis].dealt % (2 * size) == 0;
}

/* Ranks of the axis that split the dim by that item of `shard`. */
static int64_t ranks_of_item(const Planner *p, const Ast *item, const char *dim, int64_t size)
{
    if (item->kind != A_PAIR)
        return strcmp(item->name, dim) == 0 ? size : 1;
    const int64_t first = common_divisor(dim_size(p, item->child->name), size);
    return strcmp(item->child->name, dim) == 0 ? first : strcmp(item->child->next->name, dim) == 0 ? size / first : 1;
}

static int64_t size_of_axis(const Planner *p, const PlanLayout *layout, const char *name)
{
    for (int i = 0; i < p->naxes; i++)
        if (strcmp(p->axis[i].name, name) == 0)
            return layout->size[i];
    return 1;
}

/* Ranks that have different parts of a dim. */
static int64_t ranks_along_dim(const Planner *p, const PlanLayout *layout, const char *dim)
{
    int64_t ranks = 1;
    for (const Ast *ast = p->parallel->body; ast; ast = ast->next) {
        const int64_t size = ast->kind == A_SHARD ? size_of_axis(p, layout, ast->name) : 1;
        for (const Ast *item = ast->kind == A_SHARD ? ast->child : NULL; item; item = item->next)
            ranks *= ranks_of_item(p, item, dim, size);
        ranks *= ast->kind == A_SHARD && ast->init && strcmp(ast->init->name, dim) == 0 ? size : 1;
    }
    return ranks;
}

bool divides(const Planner *p, const PlanLayout *layout)
{
    for (int i = 0; i < p->ndims; i++)
        if (p->dim[i].size % ranks_along_dim(p, layout, p->dim[i].name))
            return false;
    return p->sequences % data_ranks(p, layout) == 0 && have_copies(p, layout);
}

/* --- Enumeration ---------------------------------------------------------------------------------------------- */

/* Does an axis of that size divide what it splits, if it is alone, and the ranks, if there are no fewer? */
static bool may_have_size(const Planner *p, int axis, int64_t size)
{
    if (!p->is_elastic && p->ranks % size != 0)
        return false;
    PlanLayout alone = { .chunks = 1 };
    for (int i = 0; i < p->naxes; i++)
        alone.size[i] = i == axis ? size : 1;
    return (!p->axis[axis].kept || size == p->axis[axis].kept) && divides(p, &alone);
}

typedef struct {
    int count[MAX_AXES];
    int64_t *size[MAX_AXES]; /* that the axis may have, in order */
} AxisSizes;

static AxisSizes axis_sizes(const Planner *p)
{
    AxisSizes sizes = { 0 };
    for (int i = 0; i < p->naxes; i++) {
        for (int64_t size = 1; size <= p->ranks; size++)
            sizes.count[i] += may_have_size(p, i, size);
        sizes.size[i] = NEW_ARRAY(p->arena, int64_t, sizes.count[i] + 1);
        sizes.count[i] = 0;
        for (int64_t size = 1; size <= p->ranks; size++)
            if (may_have_size(p, i, size))
                sizes.size[i][sizes.count[i]++] = size;
    }
    return sizes;
}

/* `left`: ranks for this axis and those after it. */
static void visit_sizes(const Planner *p, const AxisSizes *sizes, PlanLayout *layout, int axis, int64_t left,
                        LayoutVisit visit, void *context)
{
    if (axis == p->naxes) {
        if (p->is_elastic || left == 1)
            visit(context, layout);
        return;
    }
    for (int i = 0; i < sizes->count[axis] && sizes->size[axis][i] <= left; i++) {
        const int64_t size = sizes->size[axis][i];
        layout->size[axis] = size;
        if (p->is_elastic || left % size == 0)
            visit_sizes(p, sizes, layout, axis + 1, left / size, visit, context);
    }
}

void visit_meshes(const Planner *p, LayoutVisit visit, void *context)
{
    const AxisSizes sizes = axis_sizes(p);
    PlanLayout layout = { .chunks = 1 };
    visit_sizes(p, &sizes, &layout, 0, p->ranks, visit, context);
}

static double count_with_size(const Planner *p, int axis, int64_t left, int64_t size)
{
    return p->axis[axis].kept && size != p->axis[axis].kept ? 0 : count_meshes(p, axis + 1, left / size);
}

double count_meshes(const Planner *p, int axis, int64_t left)
{
    double count = 0;
    if (axis == p->naxes)
        return left == 1;
    for (int64_t size = 1; size <= left / size; size++)
        if (left % size == 0) {
            count += count_with_size(p, axis, left, size);
            count += size < left / size ? count_with_size(p, axis, left, left / size) : 0;
        }
    return count;
}

int64_t ranks_on_axes(const Planner *p, const PlanLayout *layout, unsigned axes)
{
    int64_t ranks = 1;
    for (int i = 0; i < p->naxes; i++)
        ranks *= axes >> i & 1 ? layout->size[i] : 1;
    return ranks;
}

int64_t mesh_ranks(const Planner *p, const PlanLayout *layout)
{
    int64_t ranks = 1;
    for (int i = 0; i < p->naxes; i++)
        ranks *= layout->size[i];
    return ranks;
}

void visit_microbatches(const Planner *p, PlanLayout layout, LayoutVisit visit, void *context)
{
    const int64_t most = p->sequences / data_ranks(p, &layout);
    for (int64_t size = 1; size <= most; size++)
        if (most % size == 0 && (!p->mixes || size == most) && (!p->kept.microbatch || size == p->kept.microbatch)) {
            layout.microbatch = size;
            visit(context, &layout);
        }
}

bool attends_apart(const Planner *p, const PlanLayout *layout)
{
    for (int i = 0; i < p->naxes; i++)
        if (p->axis[i].attends && layout->size[i] > 1)
            return true;
    return false;
}

/* Attention exchanges parts of a sequence for parts of a dim of heads, which other axes may split, too. */
static bool has_heads(const Planner *p, const PlanLayout *layout)
{
    int64_t ranks = 1;
    for (int i = 0; i < p->naxes; i++)
        ranks *= p->axis[i].attends ? layout->size[i] : 1;
    for (int i = 0; i < p->heads.count; i++)
        if (dim_size(p, p->heads.name[i]) % (ranks * ranks_along_dim(p, layout, p->heads.name[i])) == 0)
            return true;
    return false;
}

/* A ring is as many turns as it has ranks, which are all in the program: not too many. */
static bool may_ring(const Planner *p, const PlanLayout *layout)
{
    enum { MOST = 64 };
    for (int i = 0; i < p->naxes; i++)
        if (p->axis[i].attends && layout->size[i] > MOST)
            return false;
    return true;
}

/* See check_overlap() in frontend/layout. */
bool can_cut(const Planner *p, const PlanLayout *layout, int pieces)
{
    bool any = false, can = true;
    for (const Ast *ast = p->parallel->body; ast; ast = ast->next) {
        const int64_t size = ast->kind == A_SHARD && ast->init ? size_of_axis(p, layout, ast->name) : 1;
        const PlanAxis *axis = size > 1 ? axis_named((Planner *)p, ast->name) : NULL;
        if (!axis)
            continue;
        const int64_t first = first_of_pair(p, (int)(axis - p->axis), size);
        any = true;
        can &= (first == size || first == 1) && ranks_along_dim(p, layout, ast->init->name) == size &&
               dim_size(p, ast->init->name) % (size * pieces) == 0;
    }
    return any && can;
}

bool has_pieces(const Planner *p, const PlanLayout *layout) { return can_cut(p, layout, 2); }

bool may_be_abreast(const Planner *p, const PlanLayout *layout) { return micro_batches(p, layout) > 1; }

int lanes_of(const PlanLayout *layout) { return layout->abreast > 1 ? layout->abreast : 1; }

int64_t turns_of(const Planner *p, const PlanLayout *layout) { return micro_batches(p, layout) / lanes_of(layout); }

bool hides(const PlanLayout *layout) { return layout->overlaps || layout->abreast > 1; }

/* Each number of them would be a space of its own, too. */
static void visit_abreast(const Planner *p, PlanLayout layout, LayoutVisit visit, void *context)
{
    layout.abreast = may_be_abreast(p, &layout) ? p->kept.abreast : 1;
    if (micro_batches(p, &layout) % layout.abreast == 0)
        visit(context, &layout);
}

/* Each number of pieces would be a space of its own: whole messages, unless --keep asks for others. */
static void visit_pieces(const Planner *p, PlanLayout layout, LayoutVisit visit, void *context)
{
    layout.pieces = has_pieces(p, &layout) ? p->kept.pieces : 1;
    if (layout.pieces == 1 || can_cut(p, &layout, layout.pieces))
        visit_abreast(p, layout, visit, context);
}

void visit_policies(const Planner *p, PlanLayout layout, LayoutVisit visit, void *context)
{
    static const Recompute policies[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
    const int attends = attends_apart(p, &layout) ? N_ATTENDS : 1;
    for (int i = 0; i < 3; i++)
        for (int attend = 0; attend < attends; attend++)
            if (is_kept(p->kept.recompute, (int)policies[i]) && (attend != RING || may_ring(p, &layout)) &&
                (attend != ALL_TO_ALL || has_heads(p, &layout)) && (attends == 1 || is_kept(p->kept.attend, attend))) {
                layout.recompute = policies[i];
                layout.attend = (PlanAttend)attend;
                visit_pieces(p, layout, visit, context);
            }
}

static int64_t zero_ranks(const Planner *p, const PlanLayout *layout)
{
    int64_t ranks = 1;
    for (int i = 0; i < p->naxes; i++)
        ranks *= p->axis[i].is_zero ? layout->size[i] : 1;
    return ranks;
}

/* With overlap.  Of one micro-batch, gradients that are reduced early are reduced layer by layer in any case. */
static bool is_as_zero_1(const Planner *p, const PlanLayout *layout)
{
    return layout->zero == 2 && p->kept.zero != 2 && micro_batches(p, layout) == 1;
}

void visit_zeros(const Planner *p, PlanLayout layout, LayoutVisit visit, void *context)
{
    layout.zero = -1, layout.overlaps = false;
    if (zero_ranks(p, &layout) == 1) {
        visit(context, &layout);
        return;
    }
    for (layout.zero = 0; layout.zero <= 3; layout.zero++)
        for (int overlaps = 0; overlaps < 2; overlaps++)
            if (is_kept(p->kept.zero, layout.zero) && is_kept(p->kept.overlaps, overlaps) &&
                !(overlaps && is_as_zero_1(p, &layout))) {
                layout.overlaps = overlaps;
                visit(context, &layout);
            }
}
