/* structure.c -- a program compiled once, and its sizes set to those of other layouts.
 *
 * Which axes there are, how attention gets its keys, what is recomputed and what zero does decide what a program does;
 * how many ranks an axis has and how many sequences a micro-batch has are sizes of its types.  So one compilation
 * serves all layouts that differ in sizes alone, unless a size does not divide a dim that is split.  A ring has as many
 * turns as ranks, so each of its sizes is another program. */
#include "structure.h"

#include "filled.h"
#include "memory/memory.h"

#include <string.h>

struct Structure {
    PlanProgram key;
    PlanLayout layout; /* that was compiled */
    Run run;
    Module *m; /* NULL: it cannot be compiled, and why */
    const char *why;
    Classes classes;
    Map in_micro;      /* see mark_micro() */
    int64_t sequences; /* of a micro-batch, in the types */
    Structure *next;
};

/* --- Which structure ----------------------------------------------------------------------------------------- */

enum { OF_DEALT = 4, OF_TURN = 8 }; /* in the kind of an axis */

/* 0: one rank.  Else which dims of a pair it splits, whether its blocks go forth and back, and in a ring its size. */
static int64_t kind_of_axis(const Planner *p, const PlanLayout *layout, int axis)
{
    const int64_t size = layout->size[axis], first = first_of_pair(p, axis, size);
    const int64_t pair = first == size ? 1 : first == 1 ? 2 : 3;
    if (size == 1)
        return 0;
    const bool is_ring = p->axis[axis].attends && layout->attend == RING;
    return pair + OF_DEALT * deals_blocks(p, axis, size) + (is_ring ? OF_TURN * size : 0);
}

bool serves_more_turns(int64_t kind)
{
    return kind & OF_DEALT && (kind / OF_TURN == FEW_TURNS || kind / OF_TURN == MORE_TURNS);
}

/* A dim of one element is moved for nothing: whether a micro-batch is one sequence on a rank, and whether in all. */
static int singles_of(const Planner *p, const PlanLayout *layout)
{
    return layout->microbatch > 1 ? 0 : data_ranks(p, layout) > 1 ? 1 : 2;
}

/* Pieces of several sequences have dims of their own, so such a program is for one number of them alone. */
static bool cut_sequences(const PlanLayout *layout) { return layout->pieces > 1 && layout->microbatch > 1; }

PlanProgram structure_key(const Planner *p, const PlanLayout *layout, BlockOf of)
{
    PlanProgram key;
    memset(&key, 0, sizeof key);
    for (int i = 0; i < p->naxes; i++)
        key.axis[i] = kind_of_axis(p, layout, i);
    key.attend = layout->attend, key.recompute = layout->recompute;
    key.zero = layout->zero, key.overlaps = layout->overlaps;
    key.schedule = layout->schedule;
    key.singles = singles_of(p, layout);
    key.pieces = layout->pieces;
    key.cut = cut_sequences(layout) ? in_micro_batch(p, layout) : 0;
    key.abreast = lanes_of(layout);
    key.micros = (of.is_summed ? 2 : 1) * key.abreast;
    return key;
}

int64_t in_micro_batch(const Planner *p, const PlanLayout *layout)
{
    return layout->microbatch * data_ranks(p, layout);
}

/* Without the copies for readers that need another memory order: they are in no memory of their own for long. */
static void plan_once(Module *m)
{
    const Map apart = { .arena = &m->arena };
    Map scratch = { .arena = &m->arena };
    plan_memory(m, &apart, &scratch);
}

static Structure *compiled_structure(const Planner *p, const PlanLayout *layout, const PlanProgram *key)
{
    Structure *s = NEW(p->arena, Structure);
    const bool divides = divides_backward(layout); /* what has memory of its own is asked */
    const PassOptions passes = { .unchecked = true, .stop_after = "overlap" };
    *s = (Structure){ .key = *key, .layout = *layout, .run.trains_alone = true };
    s->sequences = in_micro_batch(p, layout);
    s->m = compile_layout(p, layout, key->micros * s->sequences, &passes, &s->run, &s->why);
    if (!s->m)
        s->why = arena_text(p->arena, "%s", s->why);
    if (s->m) {
        if (divides)
            plan_once(s->m);
        rank_kinds(s->m); /* it notes which stages run what */
        s->classes = classify_tensors(s->m);
        s->in_micro.arena = &s->run.arena;
        mark_micro(s->m, &s->in_micro);
    }
    return s;
}

/* --- Sizes ----------------------------------------------------------------------------------------------------- */

int plan_axis(const Planner *p, Name axis)
{
    for (int i = 0; i < p->naxes; i++) {
        const size_t length = strlen(p->axis[i].name);
        if (strncmp(axis, p->axis[i].name, length) == 0 && (!axis[length] || axis[length] == '.'))
            return i;
    }
    return -1;
}

RankMesh mesh_around(const Planner *p, const PlanLayout *layout, int naxes, const int *axis)
{
    RankMesh mesh = { 0 };
    for (int i = 0, next = 0; i < p->naxes; i++) {
        int parts = 0, first = mesh.count;
        while (next < naxes && axis[next] == i)
            mesh.of[next++] = first + parts++;
        const int64_t outer = parts == 2 ? first_of_pair(p, i, layout->size[i]) : layout->size[i];
        mesh.size[mesh.count++] = outer;
        if (parts == 2)
            mesh.size[mesh.count++] = layout->size[i] / outer;
    }
    return mesh;
}

/* Of a pair the first module axis has what its dim can be split in, the second one the rest. */
static void set_axes(const Planner *p, Structure *s, const PlanLayout *layout)
{
    Module *m = s->m;
    for (int i = 0; i < m->naxes; i++) {
        const int axis = plan_axis(p, m->axis[i]);
        const bool is_second = i > 0 && plan_axis(p, m->axis[i - 1]) == axis;
        const bool is_first = i + 1 < m->naxes && plan_axis(p, m->axis[i + 1]) == axis;
        const int64_t first = is_first || is_second ? first_of_pair(p, axis, layout->size[axis]) : 1;
        m->axis_size[i] = is_first ? first : layout->size[axis] / first;
    }
}

bool grows_with_batch(const Module *m, Name dim)
{
    const Op *fills = filled_by((Module *)m, dim);
    return dim == m->batch || (fills && find_dim(&result(fills)->type, m->batch) < 0);
}

typedef struct {
    const Module *m;
    int64_t from, to; /* sequences of a micro-batch */
} Growth;

static bool set_dim(const Growth *g, Dim *dim)
{
    if (g->from != g->to && grows_with_batch(g->m, dim->name)) {
        dim->size = dim->size * g->to / g->from;
        dim->padded = dim->padded * g->to / g->from;
    }
    return !dim->split.count || dim->split.parts || dim->padded % split_count(g->m, dim->split) == 0;
}

static bool set_type(const Growth *g, Type *type)
{
    bool divides = true;
    for (int i = 0; i < type->rank; i++)
        divides &= set_dim(g, &type->dim[i]);
    return divides;
}

static bool set_func(const Growth *g, Func *f)
{
    bool divides = true;
    for (int i = 0; i < f->params.count; i++)
        divides &= set_type(g, &f->params.at[i]->type);
    for (Op *op = f->first; op; op = op->next) {
        for (int i = 0; i < op->results.count; i++)
            divides &= set_type(g, &op->results.at[i]->type);
        for (int i = 0; i < op->attrs.dims.count; i++)
            set_dim(g, &op->attrs.dims.dim[i]);
    }
    return divides;
}

bool set_sequences(Module *m, int64_t from, int64_t to, const Map *in)
{
    const Growth g = { m, from, to };
    bool divides = true;
    for (Func *f = m->funcs; f; f = f->next)
        divides &= set_func(&g, f) || (in && !map_get(in, f));
    return divides;
}

static void mark_func(Module *m, const Func *f, Map *in_micro)
{
    if (map_get(in_micro, f))
        return;
    map_put(in_micro, f, (void *)f);
    for (const Op *op = f->first; op; op = op->next)
        if (op->attrs.callee)
            mark_func(m, find_func(m, op->attrs.callee), in_micro);
}

/* Kernels of the step itself are of zero and of the optimizer, or of a micro-batch whose dims are split anyway. */
void mark_micro(Module *m, Map *in_micro)
{
    for (const Op *op = func_with_role(m, STEP)->first; op; op = op->next) {
        const Func *callee = op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
        if (callee && callee->role != KERNEL)
            mark_func(m, callee, in_micro);
    }
}

static bool set_sizes(const Planner *p, Structure *s, const PlanLayout *layout, BlockOf of)
{
    const int64_t sequences = in_micro_batch(p, layout);
    set_axes(p, s, layout);
    const bool divides = set_sequences(s->m, s->sequences, sequences, of.with_zero ? NULL : &s->in_micro);
    s->sequences = sequences;
    return divides;
}

/* With as many data-parallel ranks as there can be: dims that zero splits over them can be split over fewer, too. */
static PlanLayout widest(const Planner *p, const PlanLayout *layout)
{
    PlanLayout wide = *layout;
    int64_t most = 1, ranks = p->ranks;
    if (cut_sequences(layout))
        return wide;
    wide.microbatch = layout->microbatch > 1 ? 2 : 1;
    for (int i = 0; i < p->naxes; i++)
        ranks /= splits_micro_batch(&p->axis[i]) ? layout->size[i] : 1;
    for (int64_t size = 1; size <= p->sequences && size <= ranks; size++)
        most = p->sequences % size == 0 ? size : most;
    for (int i = 0; i < p->naxes; i++)
        if (p->axis[i].is_batch && wide.size[i] > 1)
            wide.size[i] = most;
    return wide;
}

/* --- Structures ------------------------------------------------------------------------------------------------- */

static void drop(Structure *s)
{
    if (s->m)
        free_module(s->m);
    arena_free(&s->run.arena);
}

/* The last ones that were used are kept, first the last. */
static void keep_few(Planner *p)
{
    enum { MOST = 4 }; /* of some 10 MB each */
    int count = 0;
    for (Structure **at = &p->structures; *at;)
        if (++count > MOST) {
            drop(*at);
            *at = (*at)->next;
        } else {
            at = &(*at)->next;
        }
}

/* Of the layout, unless a wider one serves it, too. */
static Structure *new_structure(const Planner *p, const PlanLayout *layout, const PlanLayout *wide,
                                const PlanProgram *key, BlockOf of)
{
    Structure *s = compiled_structure(p, wide, key);
    if (!s->m || set_sizes(p, s, layout, of))
        return s;
    drop(s);
    return compiled_structure(p, layout, key);
}

static Structure *move_to_front(Planner *p, Structure **at)
{
    Structure *s = *at;
    *at = s->next;
    s->next = p->structures;
    return p->structures = s;
}

/* One that could not be compiled is for its own sizes alone. */
static bool serves(const Planner *p, Structure *s, const PlanLayout *layout, const PlanLayout *wide, BlockOf of)
{
    return s->m ? set_sizes(p, s, layout, of) : memcmp(s->layout.size, wide->size, sizeof wide->size) == 0;
}

/* Which dims zero splits depends on sizes, so there may be several with one key. */
static Structure *find_structure(Planner *p, const PlanLayout *layout, const PlanProgram *key, BlockOf of)
{
    const PlanLayout wide = widest(p, layout);
    for (Structure **at = &p->structures; *at; at = &(*at)->next)
        if (memcmp(&(*at)->key, key, sizeof *key) == 0 && serves(p, *at, layout, &wide, of))
            return move_to_front(p, at);
    Structure *s = new_structure(p, layout, &wide, key, of);
    s->next = p->structures;
    p->structures = s;
    keep_few(p);
    return s;
}

void with_structure(Planner *p, const PlanLayout *layout, BlockOf of, StructureVisit visit, void *context)
{
    const PlanProgram key = structure_key(p, layout, of);
    Structure *s = find_structure(p, layout, &key, of);
    visit(context, s->m, &s->classes, s->why);
}

void with_new_structure(Planner *p, const PlanLayout *layout, BlockOf of, StructureVisit visit, void *context)
{
    const PlanProgram key = structure_key(p, layout, of);
    const PlanLayout wide = widest(p, layout);
    Structure *s = new_structure(p, layout, &wide, &key, of);
    visit(context, s->m, &s->classes, s->why);
    drop(s);
}

void free_structures(Planner *p)
{
    for (Structure *s = p->structures; s; s = s->next)
        drop(s);
    p->structures = NULL;
}
