/* parts.c -- see parts.h. */
#include "parts.h"

#include "micro.h"
#include "split_loop.h"
#include "uses.h"

/* --- Parts by their loops --------------------------------------------------------------------------- */

/* Does the micro-batch pass the stages in it?  A loop that carries nothing forward is a kernel, run once for each copy
 * of a stack (passes/kernel/stacks.c). */
static bool is_of_part(const Op *op) { return is_split_loop(op) && (op->attrs.carried > 0 || op->attrs.reverse); }

/* Those that are the op, or in the part that it calls; -1: too many. */
static int loops_within(const Module *m, Op *op, Op *loop[])
{
    int count = 0;
    if (is_of_part(op)) {
        loop[0] = op;
        return 1;
    }
    for (Op *inner = op->attrs.stages ? find_func(m, op->attrs.callee)->first : NULL; inner; inner = inner->next) {
        if (!is_of_part(inner))
            continue;
        if (count == MAX_REPEATS)
            return -1;
        loop[count++] = inner;
    }
    return count;
}

static bool loops_along(const StagePart *part, Name dim)
{
    for (int i = 0; i < part->nloops; i++)
        if (part->loop[i]->attrs.dims.dim[0].name == dim)
            return true;
    return false;
}

static StagePart *new_part(MicroParts *parts, ActionKind kind, int chunk)
{
    if (kind == N_ACTION_KINDS || chunk == MAX_CHUNKS)
        return NULL;
    StagePart *part = &parts->part[parts->count++];
    *part = (StagePart){ .kind = kind, .chunk = chunk };
    parts->chunks += kind == FORWARD_ACTION;
    return part;
}

/* Does the loop begin a chunk of its own?  It continues that of `before` if it runs in the same direction, and begins
 * on the stage where `before` ends. */
static bool begins_chunk(const Module *m, const Op *before, const Op *loop)
{
    return runs_to_last_rank(before) != runs_to_last_rank(loop) ||
           !same_ranks(end_rank(m, before, true), end_rank(m, loop, false));
}

/* The part to which such a loop belongs; NULL: there can be none. */
static StagePart *part_for(MicroParts *parts, const Op *loop)
{
    const StagePart *first = NULL, *last_forward = NULL;
    ActionKind kind = FORWARD_ACTION;
    for (int i = 0; i < parts->count; i++) {
        const StagePart *part = &parts->part[i];
        last_forward = part->kind == FORWARD_ACTION ? part : last_forward;
        if (!loops_along(part, loop->attrs.dims.dim[0].name))
            continue;
        first = first ? first : part;
        kind++;
    }
    if ((kind == FORWARD_ACTION) == loop->attrs.reverse)
        return NULL;
    const bool goes_on =
        !first && last_forward && !begins_chunk(parts->m, last_forward->loop[last_forward->nloops - 1], loop);
    const int chunk = first ? first->chunk : goes_on ? last_forward->chunk : parts->chunks;
    const StagePart *known = part_doing(parts, kind, chunk);
    return known ? &parts->part[known - parts->part] : new_part(parts, kind, chunk);
}

static bool add_loops(MicroParts *parts, Op *op)
{
    Op *loop[MAX_REPEATS];
    const int count = loops_within(parts->m, op, loop);
    StagePart *part = count > 0 ? part_for(parts, loop[0]) : NULL;
    if (count <= 0)
        return count == 0;
    if (!part || part->call || part->nloops + count > MAX_REPEATS)
        return false;
    part->call = is_of_part(op) ? NULL : op;
    for (int i = 0; i < count; i++)
        part->loop[part->nloops++] = loop[i];
    return true;
}

/* Carried by the loop over micro-batches. */
static int count_sums(const Module *m, const Func *micro)
{
    for (const Func *f = m->funcs; f; f = f->next)
        for (const Op *op = f->first; op; op = op->next)
            if (op->attrs.callee == micro->name)
                return (int)op->attrs.carried;
    return 0;
}

bool find_parts(Module *m, const Func *micro, MicroParts *parts)
{
    *parts = (MicroParts){ .m = m, .micro = micro, .sums = count_sums(m, micro), .of.arena = &m->arena };
    parts->part = NEW_ARRAY(&m->arena, StagePart, N_ACTION_KINDS * MAX_CHUNKS);
    bool good = true;
    for (Op *op = micro->first; op && good; op = op->next)
        good = add_loops(parts, op);
    for (int chunk = 0; chunk < parts->chunks && good; chunk++) {
        const StagePart *backward = part_doing(parts, BACKWARD_ACTION, chunk);
        good = backward && backward->nloops == part_doing(parts, FORWARD_ACTION, chunk)->nloops;
    }
    return good && parts->chunks > 0;
}

Op *scheduled_parts(Module *m, MicroParts *parts)
{
    Op *loop = scheduled_loop(m);
    return loop && find_parts(m, find_func(m, loop->attrs.callee), parts) ? loop : NULL;
}

int part_number(const MicroParts *parts, ActionKind kind, int chunk)
{
    return (int)kind * parts->chunks + (kind == FORWARD_ACTION ? chunk : parts->chunks - 1 - chunk);
}

const StagePart *part_doing(const MicroParts *parts, ActionKind kind, int chunk)
{
    for (int i = 0; i < parts->count; i++)
        if (parts->part[i].kind == kind && parts->part[i].chunk == chunk)
            return &parts->part[i];
    return NULL;
}

const StagePart *part_numbered(const MicroParts *parts, int number)
{
    const ActionKind kind = (ActionKind)(number / parts->chunks);
    const int at = number % parts->chunks;
    return part_doing(parts, kind, kind == FORWARD_ACTION ? at : parts->chunks - 1 - at);
}

const StagePart *part_called(const MicroParts *parts, const Op *call)
{
    for (int i = 0; i < parts->count && call; i++)
        if (parts->part[i].call == call)
            return &parts->part[i];
    return NULL;
}

/* The dim that it is a chunk of, or itself. */
static Name without_chunk(const Module *m, Name dim)
{
    const MadeDim *chunk = made_dim(m, dim, MADE_CHUNK);
    return chunk ? chunk->of : dim;
}

static int64_t copies_before(const MicroParts *parts, Name dim, int chunk)
{
    const Module *m = parts->m;
    int64_t copies = 0;
    for (int before = 0; before < chunk; before++) {
        const StagePart *part = part_doing(parts, FORWARD_ACTION, before);
        for (int i = 0; i < part->nloops; i++) {
            const Dim *other = &part->loop[i]->attrs.dims.dim[0];
            copies += without_chunk(m, dim) == without_chunk(m, other->name) ? other->size : 0;
        }
    }
    return copies;
}

StageCopies stage_copies(const MicroParts *parts, int chunk, int number, int rank)
{
    const Module *m = parts->m;
    const Dim *dim = &part_doing(parts, FORWARD_ACTION, chunk)->loop[number]->attrs.dims.dim[0];
    const MadeDim *copies = copies_dim(m, dim->name);
    const Param *param = m->params;
    while (param && find_dim(&param->type, dim->name) < 0)
        param = param->next;
    const int64_t bodies = param ? 1 + param->skips : 1;
    const int64_t before = param ? param->first : copies_before(parts, dim->name, chunk);
    return (StageCopies){ .name = copies ? copies->of : without_chunk(m, dim->name),
                          .is_instance = copies,
                          .first = before + bodies * part_first(m, dim, rank),
                          .count = bodies * part_size(m, dim, rank) };
}

const Op *crossing_loop(const Module *m, const StagePart *part, int from, int to)
{
    for (int i = 0; i < part->nloops; i++)
        if (crosses_ranks(m, part->loop[i], from, to))
            return part->loop[i];
    return NULL;
}

/* --- Other ops ------------------------------------------------------------------------------------- */

int part_of(const MicroParts *parts, const Op *op) { return (int)(intptr_t)map_get(&parts->of, op) - 1; }

static void set_part(MicroParts *parts, const Op *op, int number)
{
    map_put(&parts->of, op, (void *)(intptr_t)(number + 1));
}

static int number_of(const MicroParts *parts, const StagePart *part)
{
    return part_number(parts, part->kind, part->chunk);
}

/* The op of the micro-batch that runs the loop. */
static const Op *runner(const StagePart *part, int i) { return part->call ? part->call : part->loop[i]; }

/* What stands between two chunks, on the stage where the former ends, is of the former: what is sent from there. */
static void assign_before_chunk(MicroParts *parts, const Map *needed, int chunk)
{
    Map sent = { .arena = &parts->m->arena };
    for (const Op *op = parts->micro->first; op; op = op->next)
        if (map_get(needed, op) && part_of(parts, op) < 0 && is_send(op) && arg(op, 0)->def)
            note_with_operands(&sent, arg(op, 0)->def);
    for (const Op *op = parts->micro->first; op; op = op->next)
        if (map_get(&sent, op) && part_of(parts, op) < 0)
            set_part(parts, op, part_number(parts, FORWARD_ACTION, chunk - 1));
}

/* What a forward loop needs is of its part. */
static void assign_forward(MicroParts *parts)
{
    for (int chunk = 0; chunk < parts->chunks; chunk++) {
        const StagePart *part = part_doing(parts, FORWARD_ACTION, chunk);
        Map needed = { .arena = &parts->m->arena };
        for (int i = 0; i < part->nloops; i++)
            note_with_operands(&needed, runner(part, i));
        if (chunk)
            assign_before_chunk(parts, &needed, chunk);
        for (const Op *op = parts->micro->first; op; op = op->next)
            if (map_get(&needed, op) && part_of(parts, op) < 0)
                set_part(parts, op, number_of(parts, part));
    }
}

/* The part of loops, and of what they carry at first, if nothing else reads it; of other ops: the first of the backward
 * ones. */
static void assign_loops(MicroParts *parts)
{
    for (const Op *op = parts->micro->first; op; op = op->next)
        if (part_of(parts, op) < 0)
            set_part(parts, op, parts->chunks);
    for (int number = parts->chunks; number < N_ACTION_KINDS * parts->chunks; number++) {
        const StagePart *part = part_numbered(parts, number);
        for (int k = 0; part && k < part->nloops; k++) {
            set_part(parts, runner(part, k), number);
            for (int i = 0; i < part->loop[k]->attrs.carried && !part->call; i++) {
                const Value *given = arg(part->loop[k], i);
                if (given->def && part_of(parts, given->def) >= parts->chunks && uses_in(parts->micro, given) == 1)
                    set_part(parts, given->def, number);
            }
        }
    }
}

/* The part that updates a sum over micro-batches, which other micro-batches may do between two parts of this one; -1:
 * it is none. */
static int part_of_update(const MicroParts *parts, const Value *value)
{
    const int i = index_of(&parts->micro->params, value);
    const Value *after = i >= 0 && i < parts->sums ? parts->micro->results.at[i] : NULL;
    return after && after->def ? part_of(parts, after->def) : -1;
}

/* The latest part among its operands, and the updates of sums that it reads. */
static int latest_operand(const MicroParts *parts, const Op *op)
{
    int latest = -1;
    for (int i = 0; i < op->args.count; i++) {
        const int part = arg(op, i)->def ? part_of(parts, arg(op, i)->def) : part_of_update(parts, arg(op, i));
        latest = part > latest ? part : latest;
    }
    return latest;
}

const Op *assign_parts(MicroParts *parts)
{
    assign_forward(parts);
    assign_loops(parts);
    for (bool again = true; again;) {
        again = false;
        for (const Op *op = parts->micro->first; op; op = op->next) {
            const int own = part_of(parts, op);
            int latest = latest_operand(parts, op);
            if (own < parts->chunks)
                continue;
            if (is_of_part(op) && latest > own)
                return op;
            if (is_send(op) && latest >= own && latest % parts->chunks < parts->chunks - 1)
                latest++; /* where it arrives */
            if (latest > own)
                set_part(parts, op, latest), again = true;
        }
    }
    return NULL;
}
