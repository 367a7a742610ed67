/* host_collective.c -- collectives: the table of RtCollective, and the statements that run them.
 *
 *   rt_collective(rt, 3, RT_IN(v27), RT_OUT(v1118));
 *
 * Operands and results are row-major in memory.  Adjacent ops of one bucket are one collective, with a piece for each
 * tensor.  A local_slice is a copy, without communication.
 */
#include "host_parts.h"

#include "extent.h"
#include "flight.h"
#include "ranks.h"

#include <inttypes.h>
#include <string.h>

/* --- The table ------------------------------------------------------------------------------------- */

/* ", .copies = (const int64_t[]){ 3, 4 }, .along = 1" */
static char *copies_text(const Module *m, Arena *arena, const RtPiece *p)
{
    char *text = "";
    for (int64_t i = 0; p->copies && i < m->axis_size[p->along]; i++)
        text = arena_text(arena, "%s%s%" PRId64, text, i ? ", " : "", p->copies[i]);
    return *text ? arena_text(arena, ", .copies = (const int64_t[]){ %s }, .along = %d", text, p->along) : text;
}

static char *piece_text(Module *m, const RtPiece *p)
{
    Arena *arena = &m->arena;
    const char *zigzag = arena_text(arena, "%s%s", p->zigzag ? ", .zigzag = true" : "", copies_text(m, arena, p)),
               *cut = p->zigzag_cut ? ", .zigzag_cut = true" : "";
    if (p->inner == 0) /* not all_to_all */
        return arena_text(arena, "{ .outer = %" PRId64 ", .block = %" PRId64 "%s }", p->outer, p->block, zigzag);
    return arena_text(arena,
                      "{ .outer = %" PRId64 ", .block = %" PRId64 ", .middle = %" PRId64 ", .cut = %" PRId64
                      ", .inner = %" PRId64 ", .gathers_first = %s%s%s }",
                      p->outer, p->block, p->middle, p->cut, p->inner, p->gathers_first ? "true" : "false", zigzag,
                      cut);
}

static char *axes_text(Arena *arena, const RtCollective *c)
{
    char *text = "";
    for (int i = 0; i < c->naxes; i++)
        text = arena_text(arena, "%s%s%d", text, i ? ", " : "", c->axis[i]);
    return text;
}

static char *type_change(Module *m, const Op *op)
{
    Type landed = result(op)->type;
    landed.in_flight = false;
    return arena_text(&m->arena, "%s: %s to %s", op->attrs.cause ? op->attrs.cause : "program",
                      type_text(m, &arg(op, 0)->type), type_text(m, &landed));
}

int add_message(Host *h, const RtCollective *c, DType dtype, const Op *op, const char *cause)
{
    Module *m = h->m;
    Text pieces;
    open_text(&pieces);
    for (int i = 0; i < c->npieces; i++)
        fprintf(pieces.out, "    %s,\n", piece_text(m, &c->piece[i]));
    const Field fields[] = {
        { "kind", collective_kinds[c->kind].constant },
        { "type", element_constant(dtype) },
        { "maximum", c->maximum ? "true" : NULL },
        { "naxes", arena_text(&m->arena, "%d", c->naxes) },
        { "axis", arena_text(&m->arena, "{ %s }", axes_text(&m->arena, c)) },
        { "stages", c->stages ? arena_text(&m->arena, "0x%llx", (unsigned long long)c->stages) : NULL },
        { "turn", c->turn ? arena_text(&m->arena, "%d", c->turn) : NULL },
        { "gaps", c->gaps ? "true" : NULL },
        { "name", string_text(m, op->path ? op->path : info(op)->name) },
        { "where", string_text(m, op->where ? op->where : "") },
        { "cause", string_text(m, cause) },
        { "piece", arena_text(&m->arena, "pieces + %d", h->npieces) },
        { "npieces", arena_text(&m->arena, "%d", c->npieces) },
        { NULL, NULL },
    };
    h->npieces += c->npieces;
    GROW(&m->arena, h->collective, h->ncollectives, h->collective_room);
    h->collective[h->ncollectives] = (CollectiveText){ close_text(&m->arena, &pieces), initialiser_text(m, fields) };
    return h->ncollectives++;
}

static int add_collective(Host *h, const Op *const ops[], int count)
{
    const RtCollective c = collective_of(h->m, ops, count, -1);
    return add_message(h, &c, arg(ops[0], 0)->type.dtype, ops[0], type_change(h->m, ops[0]));
}

void write_collectives(Host *h, FILE *out)
{
    if (h->ncollectives == 0)
        return;
    fputs("static RtPiece pieces[] = {\n", out);
    for (int i = 0; i < h->ncollectives; i++)
        fputs(h->collective[i].pieces, out);
    fputs("};\n\n", out);
    open_table("RtCollective", "collectives", out);
    for (int i = 0; i < h->ncollectives; i++)
        fprintf(out, "%s,\n", h->collective[i].row);
    close_table(out);
}

/* --- Statements -------------------------------------------------------------------------------------- */

/* "rt_collective_start(rt, 3, RT_IN(...), RT_OUT(...));\n" */
static char *collective_text(Module *m, const Op *op, int id, int count, const char *const in[],
                             const char *const out[])
{
    enum { WIDTH = 116 };
    const char *function = op->attrs.started ? "rt_collective_start" : "rt_collective";
    char *from = wrapped_list(m, "RT_IN(", count, in, ")", 4), *to = wrapped_list(m, "RT_OUT(", count, out, ")", 4);
    char *line = arena_text(&m->arena, "%s(rt, %d, %s, %s);\n", function, id, from, to);
    bool fits = strlen(line) <= WIDTH && !strchr(from, '\n') && !strchr(to, '\n');
    return fits ? line : arena_text(&m->arena, "%s(rt, %d,\n    %s,\n    %s);\n", function, id, from, to);
}

/* The last iteration, which has no place for what a next one receives, starts nothing. */
static char *run_text(FuncText *t, int id, int count, const Op *const ops[])
{
    Module *m = t->h->m;
    const char **in = NEW_ARRAY(&m->arena, const char *, count), **out = NEW_ARRAY(&m->arena, const char *, count);
    for (int i = 0; i < count; i++) {
        in[i] = pointer_to(t, arg(ops[i], 0));
        out[i] = pointer_to(t, result(ops[i]));
    }
    char *text = collective_text(m, ops[0], id, count, in, out);
    if (handed_on(t->f, ops[0]) < 0)
        return text;
    return FILLED(&m->arena, "if ($next) {\n    $start\n}\n", { "next", out[0] }, { "start", text });
}

/* A copy of this rank's block: of a dim that was whole, its part; else a block of its own block. */
static void write_local_slice(FuncText *t, const Op *op)
{
    Module *m = t->h->m;
    Arena *arena = &m->arena;
    const Value *x = arg(op, 0), *y = result(op);
    int at = find_dim(&y->type, op->attrs.dim), bytes = dtype_bytes(y->type.dtype);
    const Dim *dim = &y->type.dim[at], *old = &x->type.dim[at];
    int64_t outer = count_between(m, &y->type, 0, at), inner = count_between(m, &y->type, at + 1, y->type.rank);
    int64_t size = local_size(m, dim);
    const char *from = pointer_to(t, x), *to = pointer_to(t, y);
    char *text = "";
    const int pieces = dim->zigzag && !old->zigzag ? dim->zigzag : 1;
    for (int piece = 0; piece < pieces; piece++) {
        int64_t rows = size / pieces;
        const char *first = NULL;
        if (old->split.count == 0)
            first = position_in_whole(m, &t->h->offsets, dim, arena_text(arena, "%" PRId64, piece * rows));
        else
            first = arena_text(arena, "rt_coordinate(rt, %d) * INT64_C(%" PRId64 ")",
                               dim->split.axis[dim->split.count - 1], size);
        const RowsCopy copy = { .to = arena_text(arena, "%s + %" PRId64, to, piece * rows * inner),
                                .from = arena_text(arena, "%s + %s * %" PRId64, from, first, inner),
                                .element = bytes,
                                .rows = at > 0 ? own_rows(t, &y->type, outer) : arena_text(arena, "%" PRId64, outer),
                                .row = rows * inner,
                                .to_row = size * inner,
                                .from_row = local_size(m, old) * inner };
        text = arena_text(arena, "%s%s", text, t->h->dialect->copy_rows(m, &copy));
    }
    write_statement(t, place_text(m, op), text);
}

static int first_of(RankSet on) { return __builtin_ctzll(on.at); }

/* The message from one rank to another. */
static void write_send(FuncText *t, const Op *op)
{
    Module *m = t->h->m;
    const Value *x = arg(op, 0), *y = result(op);
    const RtCollective c = collective_of(m, &op, 1, -1);
    if (t->is_half)
        return; /* the schedule sends it, see host_pipeline.c */
    const int id = add_message(t->h, &c, x->type.dtype, op, type_change(m, op)), from = first_of(x->type.on);
    write_statement(t, place_text(m, op),
                    arena_text(&m->arena,
                               "if (%s == %d)\n    rt_send(rt, %d, %d, %s);\nelse\n    rt_receive(rt, %d, %d, %s);\n",
                               own_rank(t, x->type.on.axis), from, id, first_of(y->type.on), pointer_to(t, x), id, from,
                               pointer_to(t, y)));
}

/* Each rank's term, which may be in its place already, or zeros on ranks that have none. */
static void write_pend(FuncText *t, const Op *op)
{
    Module *m = t->h->m;
    const Value *y = result(op);
    const char *to = pointer_to(t, y), *bytes = own_bytes(t, &y->type), *before = "";
    RankSet without = y->type.on.at ? y->type.on : (RankSet){ ALL_RANKS, arg(op, 0)->type.on.axis };
    without.at &= ranks_of_axis(m, without.axis);
    char *text = "";
    for (int i = 0; i < op->args.count; i++) {
        const RankSet own = arg(op, i)->type.on;
        const char *from = pointer_to(t, arg(op, i));
        without.at &= ~own.at;
        if (strcmp(from, to) == 0)
            continue;
        text = arena_text(&m->arena, "%s%sif (%s)\n    %s", text, before, ranks_condition(t, own),
                          t->h->dialect->copy(m, to, from, bytes));
        before = "else ";
    }
    if (without.at)
        text = arena_text(&m->arena, "%s%sif (%s)\n    %s", text, before, ranks_condition(t, without),
                          t->h->dialect->zero(m, to, bytes));
    if (*text)
        write_statement(t, place_text(m, op), text);
}

/* Guaranteed by passes/memory/order.c. */
static bool are_in_order(FuncText *t, const Op *op)
{
    Module *m = t->h->m;
    for (int i = 0; i < op->args.count + op->results.count; i++) {
        const Value *value = arg_or_result(op, i);
        if (!is_row_major(m, value))
            return internal_error(m, op, "an operand is not row-major in memory");
        if (!holds(m, op, value, count_between(m, &value->type, 0, value->type.rank)))
            return false;
    }
    return true;
}

/* The number of a started collective. */
static int number_of(Host *h, const Op *op)
{
    const Op *ops[MOST_PIECES], *continued = continued_by(h->m, op);
    intptr_t known = (intptr_t)map_get(&h->started, continued);
    if (known)
        return (int)known - 1;
    int count = find_bucket(continued, ops), id = add_collective(h, ops, count);
    for (int i = 0; i < count; i++)
        map_put(&h->started, ops[i], (void *)(intptr_t)(id + 1));
    return id;
}

const Op *write_collective(FuncText *t, const Op *op)
{
    Module *m = t->h->m;
    const Op *ops[MOST_PIECES];
    if (info(op)->traits & CARRIES) {
        if (are_in_order(t, op))
            write_move(t, op);
        return op;
    }
    if (!(info(op)->traits & SENDS) || info(op)->traits & MOVES) {
        if (are_in_order(t, op))
            (info(op)->traits & MOVES ? info(op)->traits & SENDS ? write_send : write_pend : write_local_slice)(t, op);
        return op;
    }
    int count = find_bucket(op, ops);
    for (int i = 0; i < count; i++)
        if (!are_in_order(t, ops[i]))
            return ops[count - 1];
    const int id = op->attrs.started ? number_of(t->h, op) : add_collective(t->h, ops, count);
    write_statement(t, place_text(m, op), run_text(t, id, count, ops));
    return ops[count - 1];
}

/* Has the wait before this one waited for the message of collective `id`, too? */
static bool is_awaited_by(const FuncText *t, const Op *before, int id)
{
    const Op *start = before && info(before)->traits & WAITS ? flight_start(t->f, arg(before, 0)) : NULL;
    return start && !(info(start)->traits & CARRIES) && number_of(t->h, start) == id; /* transfers have other numbers */
}

void write_wait(FuncText *t, const Op *op)
{
    Module *m = t->h->m;
    const Op *start = flight_start(t->f, arg(op, 0));
    if (info(start)->traits & CARRIES) {
        write_transfer_wait(t, op);
        return;
    }
    const int id = number_of(t->h, start);
    if (!is_awaited_by(t, op->prev, id))
        write_statement(t, place_text(m, op), arena_text(&m->arena, "rt_collective_wait(rt, %d);\n", id));
}
