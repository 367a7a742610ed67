/* sized.c -- programs with sizes as variables: finds them, and sets the sizes.  See sized.h. */
#include "sized.h"

#include <math.h>
#include <string.h>

/* --- Sizes ----------------------------------------------------------------------------------------------------- */

static double value_of(const Sizing *z, const Term *term)
{
    return term->value * (term->scale.grows ? z->sequences : 1) * z->inverse[term->scale.divided] *
           z->inverse[term->scale.twice];
}

static int64_t whole_of(const Sizing *z, const Term *term)
{
    const double value = value_of(z, term);
    return value < 1 ? (int64_t)(term->value > 0) : (int64_t)(value + 0.5);
}

double sum_of(const Sizing *z, Range terms)
{
    double sum = 0;
    for (int i = 0; i < terms.count; i++)
        sum += value_of(z, &z->s->term[terms.first + i]);
    return sum;
}

double packed_by(const Sizing *z, const SizedPacking *packing)
{
    return !z->packs
               ? 0
               : bytes_of_packing(value_of(z, &packing->rows), value_of(z, &packing->row_bytes), packing->long_row);
}

static bool has_axis(const Sized *s, int axis)
{
    for (int i = 0; i < s->naxes; i++)
        if (s->axis[i] == axis)
            return true;
    return false;
}

/* Where a layout has more data-parallel ranks than a program that has none, others have their sequences. */
void start_sizing(Sizing *z, const Planner *p, const Sized *s, const PlanLayout *like, Arena *arena)
{
    *z = (Sizing){ .s = s, .arena = arena, .mesh = mesh_around(p, like, s->naxes, s->axis) };
    z->packs = (like->microbatch == 1) == (s->key.singles > 0); /* a single sequence needs no order of dims */
    z->sequences = (double)like->microbatch;
    for (int i = 0; i < p->naxes; i++)
        z->sequences *= p->axis[i].is_data && has_axis(s, i) ? (double)like->size[i] : 1;
    z->inverse[0] = 1;
    for (int axis = 0; axis < s->naxes; axis++)
        for (int set = 0; set < 1 << axis; set++)
            z->inverse[set | 1 << axis] = z->inverse[set] / (double)z->mesh.size[z->mesh.of[axis]];
    z->cost = (StepCost){ .arena = arena, .messages = s->messages, .mesh = &z->mesh };
}

CostItem sized_item(const Sizing *z, const SizedItem *from)
{
    CostItem item = from->item;
    item.m = whole_of(z, &from->term[SIZED_M]);
    item.n = whole_of(z, &from->term[SIZED_N]);
    item.k = whole_of(z, &from->term[SIZED_K]);
    item.count = whole_of(z, &from->term[SIZED_COUNT]);
    item.queries = whole_of(z, &from->term[SIZED_QUERIES]);
    item.keys = whole_of(z, &from->term[SIZED_KEYS]);
    item.heads = whole_of(z, &from->term[SIZED_HEADS]);
    item.flops = value_of(z, &from->term[SIZED_FLOPS]);
    item.bytes = sum_of(z, from->sum[SUM_BYTES]);
    if (from->sum[SUM_TABLE].count)
        item.bytes += fmin(sum_of(z, from->sum[SUM_TABLE]), sum_of(z, from->sum[SUM_WRITTEN]));
    item.volume = sum_of(z, from->sum[SUM_VOLUME]);
    for (int i = 0; i < from->packing.count; i++)
        item.bytes += 2 * packed_by(z, &z->s->packing[from->packing.first + i]);
    if (from->meets)
        item.ranks = (int64_t)(1 / z->inverse[item.axes] + 0.5);
    return item;
}

CostList *sized_list(const Sizing *z, Range items)
{
    CostList *list = NEW(z->arena, CostList);
    *list = (CostList){ items.count, items.count, NEW_ARRAY(z->arena, CostItem, items.count + 1) };
    for (int i = 0; i < items.count; i++) {
        const SizedItem *from = &z->s->item[items.first + i];
        list->item[i] = sized_item(z, from);
        if (from->item.kind == ITEM_REPEAT)
            list->item[i].body = sized_list(z, from->body);
    }
    return list;
}

bool has_actions(const Planner *p, const Sized *s)
{
    bool has = false;
    for (int i = 0; i < p->naxes; i++)
        has |= p->axis[i].splits_copies && s->key.axis[i];
    return has;
}

/* --- Programs --------------------------------------------------------------------------------------------------- */

static Sized **list_of(const Planner *p, const PlanProgram *key)
{
    const unsigned char *byte = (const unsigned char *)key;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *key; i++)
        hash = (hash ^ byte[i]) * 1099511628211u;
    return &p->blocks->sized[(hash >> 32) % PROGRAM_LISTS];
}

static bool divides_all(const Planner *p, const Sized *s, const PlanLayout *layout, BlockOf of)
{
    const RankMesh mesh = mesh_around(p, layout, s->naxes, s->axis);
    const int64_t sequences = in_micro_batch(p, layout);
    for (int i = 0; i < s->dims; i++) {
        const SizedDim *dim = &s->dim[i];
        if (dim->is_once && !of.with_zero)
            continue;
        int64_t size = dim->scale.grows ? dim->size * sequences / s->sequences : dim->size;
        for (int axis = 0; axis < s->naxes; axis++)
            if (dim->scale.divided >> axis & 1 && size % mesh.size[mesh.of[axis]] != 0)
                return false;
            else if (dim->scale.divided >> axis & 1)
                size /= mesh.size[mesh.of[axis]];
    }
    return true;
}

/* Which dims zero splits depends on sizes, so there may be several with one key.  One that could not be compiled is for
 * its own sizes alone. */
bool serves_sizes(const Planner *p, const Sized *s, const PlanLayout *layout, BlockOf of)
{
    return s->refused        ? memcmp(s->layout.size, layout->size, sizeof layout->size) == 0
           : s->is_irregular ? true
                             : divides_all(p, s, layout, of);
}

const Sized *known_sized(const Planner *p, const PlanLayout *layout, BlockOf of)
{
    const PlanProgram key = structure_key(p, layout, of);
    for (const Sized *s = *list_of(p, &key); s; s = s->next)
        if (memcmp(&s->key, &key, sizeof key) == 0 && serves_sizes(p, s, layout, of))
            return s;
    return NULL;
}

static void *copied(Arena *arena, const void *from, int count, size_t size)
{
    void *to = arena_alloc(arena, (size_t)count + 1, size);
    return count ? memcpy(to, from, size * (size_t)count) : to;
}

static const Sized *add_sized(Planner *p, const Sized *s)
{
    Sized *added = NEW(p->arena, Sized), **first = list_of(p, &s->key);
    *added = *s;
    added->item = copied(p->arena, s->item, s->items, sizeof *s->item);
    added->term = copied(p->arena, s->term, s->terms, sizeof *s->term);
    added->packing = copied(p->arena, s->packing, s->packings, sizeof *s->packing);
    added->dim = copied(p->arena, s->dim, s->dims, sizeof *s->dim);
    added->refused = s->refused ? arena_text(p->arena, "%s", s->refused) : NULL;
    added->next = *first;
    p->programs++;
    return *first = added;
}

void keep_sized(Planner *p, const Sized *s) { add_sized(p, s); }

typedef struct {
    Planner *p;
    const PlanLayout *layout;
    BlockOf of;
    bool is_fixed;
    const Sized *found;
    SizedVisit visit;
    void *context;
} Finding;

/* Of the module, which goes when this returns. */
static void look_at(void *context, Module *m, const Classes *classes, const char *why)
{
    Finding *finding = context;
    Planner *p = finding->p;
    Arena arena = { 0 };
    Sized s = { .key = structure_key(p, finding->layout, finding->of),
                .layout = *finding->layout,
                .sequences = in_micro_batch(p, finding->layout),
                .refused = why };
    if (m)
        read_sized(p, &s, m, classes, finding->is_fixed, &arena);
    if (finding->is_fixed)
        finding->visit(finding->context, &s);
    else
        finding->found = add_sized(p, &s);
    arena_free(&arena);
}

const Sized *find_sized(Planner *p, const PlanLayout *layout, BlockOf of)
{
    const Sized *known = known_sized(p, layout, of);
    Finding finding = { .p = p, .layout = layout, .of = of };
    if (!known)
        with_new_structure(p, layout, of, look_at, &finding);
    return known ? known : finding.found;
}

void with_sized(Planner *p, const PlanLayout *layout, BlockOf of, SizedVisit visit, void *context)
{
    const Sized *s = find_sized(p, layout, of);
    Finding finding = { p, layout, of, true, NULL, visit, context };
    if (s->is_irregular)
        with_structure(p, layout, of, look_at, &finding);
    else
        visit(context, s);
}
