/* host_loop.c -- loops: a C loop over the iterations, and carried values.
 *
 *   const float *x = x0;
 *   for (int64_t h_copy = 0; h_copy < 12; h_copy++) {
 *       float *x_next = (11 - h_copy) % 2 ? (float *)(frame + 4096) : x1;
 *       run_h(rt, frame + 8192, x, wq + h_copy * 589824, x_next);
 *       x = x_next;
 *   }
 *
 * Values carried in place are copied to their final storage before the loop.  All others alternate between two buffers,
 * so that the last iteration writes to the storage of the loop's result.
 */
#include "host_loop.h"

#include "extent.h"
#include "flight.h"
#include "micro.h"
#include "split_loop.h"

#include <inttypes.h>
#include <string.h>

/* Does the loop's text send the carried values to the next rank?  In an action of a schedule, the runtime sends them.
 */
static bool passes_on(const LoopText *l) { return is_split_loop(l->op) && !l->t->is_half; }

/* Do ranks run different numbers of iterations? */
static bool has_parts(const LoopText *l) { return is_split_loop(l->op) && l->op->attrs.dims.dim[0].split.parts; }

/* Does a rank that the loop passes have no iterations? */
static bool has_empty_part(const LoopText *l)
{
    const Dim *dim = &l->op->attrs.dims.dim[0];
    bool has = false;
    for (int rank = 0; has_parts(l) && rank < split_count(l->t->h->m, dim->split); rank++)
        has |= is_on(ranks_passed(l->t->h->m, l->op), rank) && part_size(l->t->h->m, dim, rank) == 0;
    return has;
}

static bool in_place(const LoopText *l, int i) { return is_carried_in_place(l->op, l->callee, i); }

/* --- Slices -------------------------------------------------------------------------------- */

/* The index of the last iteration. */
static const char *last_index(const LoopText *l)
{
    Arena *arena = &l->t->h->m->arena;
    return l->copies ? arena_text(arena, "%s - 1", l->copies) : arena_text(arena, "%" PRId64, l->iterations - 1);
}

/* The number of iterations after this one, or before it. */
static char *iterations(const LoopText *l, bool after)
{
    Arena *arena = &l->t->h->m->arena;
    return l->op->attrs.reverse == after ? arena_text(arena, "%s", l->index)
                                         : arena_text(arena, "(%s - %s)", last_index(l), l->index);
}

/* The pointer to a slice of a value, or to all of it if it does not have the loop's dim. */
static const char *slice_at(LoopText *l, const Value *here, const char *index)
{
    Arena *arena = &l->t->h->m->arena;
    const char *pointer = pointer_to(l->t, here);
    int at = l->dim ? find_dim(&here->type, l->dim) : -1;
    if (at < 0 || strcmp(index, "0") == 0)
        return pointer;
    int64_t stride = here->storage->stride[at];
    return stride == 1 ? arena_text(arena, "%s + %s", pointer, index)
                       : arena_text(arena, "%s + %s * %" PRId64, pointer, index, stride);
}

const char *slice_of(LoopText *l, const Value *value) { return slice_at(l, value, l->index); }

/* The next iteration's; the last has none. */
static const char *next_slice_of(LoopText *l, const Value *here, const Value *there)
{
    Arena *arena = &l->t->h->m->arena;
    const char *name = new_identifier(&l->t->names, there->name);
    fprintf(l->first.out, "const %s *%s = %s > 0 ? %s : NULL;\n", element_type(there->type.dtype), name,
            iterations(l, true),
            slice_at(l, here, arena_text(arena, "(%s %c 1)", l->index, l->op->attrs.reverse ? '-' : '+')));
    return name;
}

/* --- Ranks -------------------------------------------------------------------------------- */

/* Receives a carried value from the rank before, and sends it to the next one: the first iteration reads `at`, the
 * last one writes `left`. */
static void pass_on(LoopText *l, int i, const char *at, const char *left)
{
    FuncText *t = l->t;
    Module *m = t->h->m;
    const Value *value = l->op->results.at[i];
    const RankSet first = end_rank(m, l->op, false), last = end_rank(m, l->op, true);
    const RtCollective c = message_between(m, &value->type, first.axis);
    const char *cause = arena_text(&m->arena, "pipeline.%s: %s", l->callee->name, type_text(m, &arg(l->op, i)->type));
    const int id = add_message(t->h, &c, value->type.dtype, l->op, cause);
    const char *rank = own_rank(t, first.axis), *ahead = runs_to_last_rank(l->op) ? "+ 1" : "- 1",
               *behind = runs_to_last_rank(l->op) ? "- 1" : "+ 1";
    fprintf(l->before.out, "if (%s != %d)\n    rt_receive(rt, %d, %s %s, %s);\n", rank, __builtin_ctzll(first.at), id,
            rank, behind, at);
    fprintf(l->after.out, "if (%s != %d)\n    rt_send(rt, %d, %s %s, %s);\n", rank, __builtin_ctzll(last.at), id, rank,
            ahead, left);
}

/* --- Carried values ------------------------------------------------------------------------ */

void copy_initial(LoopText *l, const Value *from, const Value *to)
{
    if (have_same_address(from, to))
        return;
    Module *m = l->t->h->m;
    int64_t count = local_bytes(m, &to->type) / dtype_bytes(to->type.dtype);
    if (!holds(m, l->op, from, count) || !holds(m, l->op, to, count))
        return;
    const RankSet held = passes_on(l)           ? end_rank(m, l->op, false) /* others receive it */
                         : is_split_loop(l->op) ? (RankSet){ 0 }            /* all have received it */
                                                : from->type.on;
    if (held.at)
        fprintf(l->before.out, "if (%s)\n    ", ranks_condition(l->t, held));
    fputs(l->t->h->dialect->copy(m, pointer_to(l->t, to), pointer_to(l->t, from), own_bytes(l->t, &to->type)),
          l->before.out);
}

/* Without iterations, carried values leave as they came. */
static void copy_without_iterations(LoopText *l, const char *from, const Value *to)
{
    Module *m = l->t->h->m;
    if (has_empty_part(l))
        fprintf(l->before.out, "if (%s == 0 && %s != %s)\n    %s", l->copies, from, pointer_to(l->t, to),
                l->t->h->dialect->copy(m, pointer_to(l->t, to), from, own_bytes(l->t, &to->type)));
}

/* Declares the alternating pointers; returns the one that the callee reads and, in *next, the one that it writes. */
static const char *swap_buffers(LoopText *l, int i, const char **next)
{
    FuncText *t = l->t;
    Arena *arena = &t->h->m->arena;
    const Value *from = arg(l->op, i), *to = l->op->results.at[i], *param = l->callee->params.at[i];
    const char *type = element_type(to->type.dtype), *iteration = new_identifier(&t->names, param->name);
    *next = new_identifier(&t->names, arena_text(arena, "%s_next", iteration));
    const char *behind = typed_in_frame(t, type, l->buffer), *there = pointer_to(t, to);
    if (passes_on(l) && !to->type.in_flight) { /* what arrives lies where the first iteration does not write */
        const char *arrival = l->copies ? arena_text(arena, "(%s %% 2 ? %s : %s)", l->copies, behind, there)
                              : is_written_behind(l->op, i, -1, l->iterations) ? behind
                                                                               : there;
        fprintf(l->before.out, "const %s *%s = %s ? %s : %s;\n", type, iteration,
                ranks_condition(t, end_rank(t->h->m, l->op, false)), pointer_to(t, from), arrival);
        pass_on(l, i, arrival, there);
    } else {
        fprintf(l->before.out, "const %s *%s = %s;\n", type, iteration, pointer_to(t, from));
    }
    copy_without_iterations(l, iteration, to);
    if (to->type.in_flight) /* the last one starts nothing; see is_written_behind */
        fprintf(l->first.out, "%s *%s = %s == 0 ? NULL : %s %% 2 ? %s : %s;\n", type, *next, iterations(l, true),
                iterations(l, false), there, behind);
    else
        fprintf(l->first.out, "%s *%s = %s %% 2 ? %s : %s;\n", type, *next, iterations(l, true), behind, there);
    fprintf(l->last.out, "%s = %s;\n", iteration, *next);
    l->buffer += aligned_bytes(local_bytes(t->h->m, &to->type));
    return iteration;
}

/* --- The call in the loop ------------------------------------------------------------------ */

static void fill_pointers(LoopText *l, const char *pointers[])
{
    const Op *op = l->op;
    const bool *takes = l->c->takes;
    for (int i = 0; i < op->args.count; i++) {
        const Value *param = l->callee->params.at[i];
        if (i < op->attrs.carried && in_place(l, i)) {
            copy_initial(l, arg(op, i), op->results.at[i]);
            if (passes_on(l))
                pass_on(l, i, pointer_to(l->t, op->results.at[i]), pointer_to(l->t, op->results.at[i]));
            pointers[i] = takes[i] ? pointer_to(l->t, op->results.at[i]) : NULL;
        } else if (i < op->attrs.carried)
            pointers[i] = swap_buffers(l, i, &pointers[op->args.count + i]);
        else if (takes[i])
            pointers[i] = is_prefetched(op, i) ? next_slice_of(l, arg(op, i), param) : slice_of(l, arg(op, i));
    }
    for (int i = (int)op->attrs.carried; i < op->results.count; i++)
        if (takes[op->args.count + i])
            pointers[op->args.count + i] = slice_of(l, op->results.at[i]);
}

static char *call_text(LoopText *l, const char *const pointers[], int indent)
{
    Module *m = l->t->h->m;
    const char **items = NEW_ARRAY(&m->arena, const char *, l->c->npointers + 2);
    int count = 0;
    items[count++] = "rt";
    if (takes_frame(l->callee))
        items[count++] = in_frame(l->t, l->op->attrs.frame);
    for (int i = 0; i < l->c->npointers; i++)
        if (l->c->takes[i])
            items[count++] = pointers[i];
    return wrapped_list(m, arena_text(&m->arena, "%s(", l->c->name), count, items, ");\n", indent);
}

static char *loop_head(const LoopText *l)
{
    Arena *arena = &l->t->h->m->arena;
    if (l->op->attrs.reverse)
        return arena_text(arena, "for (int64_t %s = %s; %s >= 0; %s--) {", l->index, last_index(l), l->index, l->index);
    return arena_text(arena, "for (int64_t %s = 0; %s < %s; %s++) {", l->index, l->index,
                      l->copies ? l->copies : arena_text(arena, "%" PRId64, l->iterations), l->index);
}

/* Ranks with parts of different sizes: the number of iterations depends on the rank. */
static void count_copies(LoopText *l)
{
    const Dim *dim = &l->op->attrs.dims.dim[0];
    if (!has_parts(l))
        return;
    l->copies = new_identifier(&l->t->names, arena_text(&l->t->h->m->arena, "%s_count", dim->name));
    fprintf(l->before.out, "const int64_t %s = %s[%s];\n", l->copies, parts_initialiser(l->t->h->m, dim),
            own_rank(l->t, dim->split.axis[0]));
}

/* --- Tracing ------------------------------------------------------------------------------- */

/* A parameter of a loop: it says which copies of a repeat these are. */
static const Param *param_along(const Module *m, Name dim)
{
    const Param *param = m->params;
    while (param && find_dim(&param->type, dim) < 0)
        param = param->next;
    return param;
}

/* "h.copy" of "h.copy.at.24.chunk2": a trace counts the copies of all runs and chunks, and of all ranks, alike. */
static const char *traced_dim(const LoopText *l)
{
    Module *m = l->t->h->m;
    const MadeDim *copies = copies_dim(m, l->dim);
    return string_text(m, copies ? copies->name : l->dim);
}

static char *iteration_text(const LoopText *l)
{
    Module *m = l->t->h->m;
    const Param *param = param_along(m, l->dim);
    const char *number =
        is_split_loop(l->op) ? position_in_whole(m, &l->t->h->offsets, &l->op->attrs.dims.dim[0], l->index) : l->index;
    if (param && param->skips)
        number = arena_text(&m->arena, "%" PRId64 " * (%s)", 1 + param->skips, number);
    if (param && param->first)
        number = arena_text(&m->arena, "%" PRId64 " + %s", param->first, number);
    return arena_text(&m->arena, "RT_ITERATION(rt, %s, %s);", traced_dim(l), number);
}

static char *end_of_iterations(const LoopText *l)
{
    return arena_text(&l->t->h->m->arena, "RT_ITERATION(rt, %s, -1);", traced_dim(l));
}

/* --- The statement -------------------------------------------------------------------------- */

void write_loop(FuncText *t, const Op *op)
{
    Module *m = t->h->m;
    const Func *callee = find_func(m, op->attrs.callee);
    const bool is_interleaved = is_scheduled(op);
    LoopText l = { .t = t, .op = op, .callee = callee, .iterations = 1 };
    l.c = is_interleaved ? NULL : host_func(t->h, callee);
    l.buffer = op->attrs.frame + aligned_bytes(callee->frame);
    if (op->attrs.dims.count) {
        l.dim = op->attrs.dims.dim[0].name;
        l.iterations = rank_iterations(m, op);
        l.index = new_identifier(&t->names, l.dim);
    }
    open_text(&l.before);
    open_text(&l.first);
    open_text(&l.last);
    open_text(&l.after);
    if (is_interleaved) {
        write_scheduled(&l);
        write_statement(t, arena_text(&m->arena, "%s: @%s, in stages", place_text(m, op), callee->name),
                        close_text(&m->arena, &l.before));
        return;
    }
    const char **pointers = NEW_ARRAY(&m->arena, const char *, l.c->npointers + 1);
    count_copies(&l);
    fill_pointers(&l, pointers);
    const char *turn = l.dim ? turn_condition(&l) : NULL;
    char *call = call_text(&l, pointers, l.dim ? turn ? 12 : 8 : 4), *before = close_text(&m->arena, &l.before);
    char *first = close_text(&m->arena, &l.first), *last = close_text(&m->arena, &l.last);
    char *after = close_text(&m->arena, &l.after);
    const char *comment =
        arena_text(&m->arena, "%s: @%s, %s%" PRId64 " times%s", place_text(m, op), callee->name,
                   l.copies ? "at most " : "", l.iterations, op->attrs.reverse ? ", from the last to the first" : "");
    if (turn)
        call = FILLED(&m->arena, "if ($turn) {\n    $call\n    rt_turn_over(rt);\n}\n", { "turn", turn },
                      { "call", call });
    if (l.dim)
        call = FILLED(&m->arena, "$before\n$head\n    $iteration\n    $first\n    $call\n    $last\n}\n$over\n$after\n",
                      { "before", before }, { "head", loop_head(&l) }, { "iteration", iteration_text(&l) },
                      { "first", first }, { "call", call }, { "last", last }, { "over", end_of_iterations(&l) },
                      { "after", after });
    write_statement(t, comment, call);
}
