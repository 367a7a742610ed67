/* host_func.c -- one function of the program in C: a list of statements.
 *
 * Every value is a pointer into the frame, declared with its shape before the first statement that uses it.  The
 * parameters of a function are those that its statements use, so they are known after its body.  Callers are written
 * after their callees.
 */
#include "host_parts.h"

#include "amount.h"
#include "needed.h"
#include "storage.h"
#include "tier.h"

#include <inttypes.h>
#include <string.h>

bool internal_error(Module *m, const Op *op, const char *what)
{
    error_at(m->diags, (Where){ .at = op->loc }, "internal: %s '%s': %s", info(op)->name, op->path ? op->path : "",
             what);
    return false;
}

/* Passes add ops that belong to no line of the model, such as sums of gradients. */
const char *place_text(Module *m, const Op *op)
{
    const Func *callee = op->attrs.callee ? find_func(m, op->attrs.callee) : NULL;
    const char *path = op->path ? op->path : info(callee && callee->first ? callee->first : op)->name;
    return comment_text(m, op->where ? arena_text(&m->arena, "%s, %s", path, op->where) : path);
}

/* --- Pointers ------------------------------------------------------------------------------ */

const Value *viewed(const Value *value)
{
    while (value->def && info(value->def)->family == VIEW && have_same_address(value, arg(value->def, 0)))
        value = arg(value->def, 0);
    return value;
}

/* The name of that parameter, in a statement. */
static const char *parameter(const FuncText *t, int number)
{
    t->c->takes[number] = true;
    return t->pointer[number];
}

/* Prefixes of functions of the file: a pointer must not shadow them. */
static const char *local_name(FuncText *t, const char *text)
{
    char *name = c_identifier(t->h->m, text, 20);
    bool hides = strncmp(name, "kernel_", 7) == 0 || strncmp(name, "run_", 4) == 0;
    return new_identifier(&t->names, hides ? arena_text(&t->h->m->arena, "v_%s", name) : text);
}

static Local *find_local(FuncText *t, const Value *value)
{
    Local *local = map_get(&t->locals, value);
    if (local)
        return local;
    local = NEW(&t->h->m->arena, Local);
    *local = (Local){ .name = local_name(t, readable_name(t->h->m, t->f, value)), .value = value };
    t->locals.arena = &t->h->m->arena;
    map_put(&t->locals, value, local);
    return local;
}

const char *pointer_to(FuncText *t, const Value *value)
{
    value = viewed(value);
    const Storage *s = value->storage;
    if (s->base == BY_POINTER && s->at == 0)
        return parameter(t, s->pointer);
    Local *local = find_local(t, value);
    if (!local->declared) {
        GROW(&t->h->m->arena, t->fresh, t->nfresh, t->fresh_room);
        t->fresh[t->nfresh++] = local;
        local->declared = true;
    }
    return local->name;
}

const char *in_frame(FuncText *t, int64_t offset) { return in_frame_of(t->h, t->f, t->frame, offset); }

/* A pointer to elements of `type` at this offset. */
const char *typed_in_frame(FuncText *t, const char *type, int64_t offset)
{
    Arena *arena = &t->h->m->arena;
    const char *place = in_frame(t, offset);
    return strchr(place, ' ') ? arena_text(arena, "(%s *)(%s)", type, place)
                              : arena_text(arena, "(%s *)%s", type, place);
}

/* --- Declarations -------------------------------------------------------------------------- */

/* "[batch 8, seq 1024, vocab 50257 in 50304]" */
static char *shape_text(Module *m, const Type *type)
{
    char *text = "[";
    for (int i = 0; i < type->rank; i++) {
        const Dim *dim = &type->dim[i];
        text = arena_text(&m->arena, "%s%s%s %" PRId64, text, i ? ", " : "", dim->name, dim->size);
        if (dim->padded != dim->size)
            text = arena_text(&m->arena, "%s in %" PRId64, text, dim->padded);
    }
    return arena_text(&m->arena, "%s]", text);
}

static char *declaration(FuncText *t, const Local *local)
{
    Arena *arena = &t->h->m->arena;
    const Value *value = local->value;
    const Storage *s = value->storage;
    const char *type = element_type(value->type.dtype);
    if (s->base == IN_TIER && t->f->role == PLAIN)
        return arena_text(arena, "%s *%s = rt_far_address(rt, %" PRId64 ");", type, local->name, s->at);
    if (s->base != BY_POINTER)
        return arena_text(arena, "%s *%s = %s;", type, local->name, typed_in_frame(t, type, s->at));
    const int number = s->pointer;
    const int64_t offset = s->at / dtype_bytes(value->type.dtype);
    return arena_text(arena, "%s%s *%s = %s %c %" PRId64 ";", t->c->written[number] ? "" : "const ", type, local->name,
                      parameter(t, number), offset < 0 ? '-' : '+', offset < 0 ? -offset : offset);
}

/* Declares the pointers that a statement uses first: with their shapes after them, in one column, or above. */
static void write_declarations(FuncText *t)
{
    enum { WIDTH = 116 };
    Module *m = t->h->m;
    int code = 0, shape = 0;
    for (int i = 0; i < t->nfresh; i++) {
        int c = (int)strlen(declaration(t, t->fresh[i])), s = (int)strlen(shape_text(m, &t->fresh[i]->value->type)) + 6;
        code = c > code ? c : code;
        shape = s > shape ? s : shape;
    }
    for (int i = 0; i < t->nfresh; i++) {
        const char *text = declaration(t, t->fresh[i]), *comment = shape_text(m, &t->fresh[i]->value->type);
        if (code + 1 + shape <= WIDTH)
            fprintf(t->body.out, "%-*s /* %s */\n", code, text, comment);
        else
            fprintf(t->body.out, "/* %s */\n%s\n", comment, text);
    }
    t->nfresh = 0;
}

/* --- Statements ---------------------------------------------------------------------------- */

void write_statement(FuncText *t, const char *comment, const char *text)
{
    const bool is_guarded = t->ranks != ALL_RANKS;
    FILE *out = is_guarded ? t->guarded.out : t->body.out;
    if (is_guarded)
        write_declarations(t); /* before the guard: later statements may use them, too */
    if (!t->comment || strcmp(comment, t->comment) != 0)
        fprintf(out, "%s/* %s */\n", t->comment ? "\n" : "", comment);
    t->comment = comment;
    write_declarations(t);
    fputs(text, out);
}

/* --- Some ranks -------------------------------------------------------------------------------- */

const char *own_rank(FuncText *t, int axis)
{
    if (!t->own_rank)
        t->own_rank = new_identifier(&t->names, "stage");
    t->own_axis = axis;
    return t->own_rank;
}

/* "stage == 0"; of several: "stage >= 1 && stage <= 3", else by a set. */
char *ranks_condition(FuncText *t, RankSet on)
{
    Arena *arena = &t->h->m->arena;
    const char *rank = own_rank(t, on.axis);
    const int first = __builtin_ctzll(on.at), last = 63 - __builtin_clzll(on.at);
    if (first == last)
        return arena_text(arena, "%s == %d", rank, first);
    if (on.at >> first == ALL_RANKS >> (63 - (last - first)))
        return arena_text(arena, "%s >= %d && %s <= %d", rank, first, rank, last);
    return arena_text(arena, "0x%llx >> %s & 1", (unsigned long long)on.at, rank);
}

/* Ends the statements of some ranks, and begins those of others.  What no rank needs is left out. */
void write_for_ranks(FuncText *t, uint64_t ranks)
{
    Module *m = t->h->m;
    if (ranks == t->ranks)
        return;
    if (t->ranks != ALL_RANKS) {
        char *guarded = close_text(&m->arena, &t->guarded);
        const RankSet before = { t->ranks, t->h->m->kind_axis };
        if (before.at)
            FILL(t->body.out, "\nif ($condition) {\n    $guarded\n}\n", { "condition", ranks_condition(t, before) },
                 { "guarded", guarded });
    }
    t->ranks = ranks;
    t->comment = NULL;
    if (ranks != ALL_RANKS)
        open_text(&t->guarded);
    else
        fputs("\n", t->body.out);
}

/* --- The function -------------------------------------------------------------------------- */

static void name_pointer(FuncText *t, int64_t number, const Value *of, const char *name, bool written)
{
    t->c->written[number] |= written;
    if (t->c->of[number])
        return;
    t->c->of[number] = of;
    t->pointer[number] = local_name(t, name);
}

static void name_pointers(FuncText *t)
{
    const Func *f = t->f;
    HostFunc *c = t->c;
    Arena *arena = &t->h->m->arena;
    c->npointers = f->params.count + f->results.count;
    c->takes = NEW_ARRAY(arena, bool, c->npointers + 1);
    c->written = NEW_ARRAY(arena, bool, c->npointers + 1);
    c->of = NEW_ARRAY(arena, const Value *, c->npointers + 1);
    t->pointer = NEW_ARRAY(arena, const char *, c->npointers + 1);
    for (int i = 0; i < c->npointers; i++) {
        bool is_result = i >= f->params.count;
        const Value *value = is_result ? f->results.at[i - f->params.count] : f->params.at[i];
        if (value->storage->base == BY_POINTER)
            name_pointer(t, value->storage->pointer, value, readable_name(t->h->m, t->f, value), is_result);
    }
}

/* Entry functions have one type; other functions have no frame parameter if the frame is empty. */
bool takes_frame(const Func *f) { return f->role != PLAIN || f->frame > 0; }

static char *function_head(const FuncText *t)
{
    Module *m = t->h->m;
    const HostFunc *c = t->c;
    const char **items = NEW_ARRAY(&m->arena, const char *, c->npointers + 2);
    int count = 0;
    items[count++] = "Rt *rt";
    if (takes_frame(t->f))
        items[count++] = arena_text(&m->arena, "char *%s", t->frame);
    for (int i = 0; i < c->npointers; i++)
        if (c->takes[i])
            items[count++] = arena_text(&m->arena, "%s%s *%s", c->written[i] ? "" : "const ",
                                        element_type(c->of[i]->type.dtype), t->pointer[i]);
    const char *storage = t->f->role == PLAIN ? "static " : ""; /* else the runtime calls it: see units.c */
    return wrapped_list(m, arena_text(&m->arena, "%svoid %s(", storage, c->name), count, items, ")", 0);
}

static const char *description(const FuncText *t)
{
    Arena *arena = &t->h->m->arena;
    switch (t->f->role) {
    case STEP:
        return "One training step, on inputs, scalars and state in the arena.";
    case EVAL:
        return "The loss of one batch, without dropout.";
    case PREDICT:
        return "The logits of one sequence, without dropout.";
    case OUTPUTS:
        return "The outputs of one micro-batch, without dropout.";
    case FINISH:
        return "The update that the last step has left for the next one.";
    case BEGIN:
        return "Reads what a step has read for the next one, where there was none before it.";
    default:
        return arena_text(arena, "One iteration of @%s; its frame takes %s.", t->f->name,
                          bytes_text(arena, (double)t->f->frame));
    }
}

const Op *write_one(FuncText *t, const Op *op)
{
    const Func *callee = called_by(t->h->m, op);
    if (info(op)->family == COLLECTIVE)
        return write_collective(t, op);
    if (info(op)->traits & WAITS)
        write_wait(t, op);
    if (info(op)->family == VIEW || lies_in_place(t->h->m, op))
        return op;
    if (info(op)->family == CONTROL && callee->role != KERNEL)
        write_loop(t, op);
    else if (info(op)->family == CONTROL || info(op)->family == LIBRARY)
        write_call(t, op);
    else
        internal_error(t->h->m, op, "it is not in a kernel");
    return op;
}

/* Names of functions may differ in characters that identifiers cannot have: the first one gets the plain name. */
void note_identifiers(Host *h)
{
    for (const Func *f = h->m->funcs; f; f = f->next) {
        const Name own = intern_text(h->m, c_identifier(h->m, f->name, 60));
        if (f->role != KERNEL && !map_get(&h->identifiers, own))
            map_put(&h->identifiers, own, (void *)(uintptr_t)f);
    }
}

char *function_name(Host *h, const Func *f)
{
    Module *m = h->m;
    const char *own = c_identifier(m, f->name, 60);
    const bool is_first = map_get(&h->identifiers, intern_text(m, own)) == f;
    return arena_text(&m->arena, "run_%s", is_first ? own : hashed_identifier(m, f->name, false));
}

const char *own_rank_text(const FuncText *t)
{
    return t->own_rank ? arena_text(&t->h->m->arena, "const int %s = rt_coordinate(rt, %d);", t->own_rank, t->own_axis)
                       : "";
}

/* Before the step first changes what outlives it.  Offloaded tensors are written in the loops of functions that it
 * calls: then at its start. */
static void announce_changes(FuncText *t, const Op *op)
{
    if (!returns_state(t->f) || t->announced || (!far_bytes(t->h->m) && !changes_state(t, op)))
        return;
    write_for_ranks(t, ALL_RANKS);
    write_statement(t, "what outlives the step", "rt_state_changes(rt);\n");
    t->announced = true;
}

HostFunc *host_func(Host *h, const Func *f)
{
    HostFunc *c = map_get(&h->funcs, f);
    if (c)
        return c;
    Module *m = h->m;
    c = NEW(&m->arena, HostFunc);
    c->name = function_name(h, f);
    map_put(&h->funcs, f, c);
    FuncText t = {
        .h = h, .f = f, .c = c, .names.module = m, .frame = f->role == PLAIN ? "frame" : "arena", .ranks = ALL_RANKS
    };
    t.is_half = map_get(&h->halves, f) != NULL;
    new_identifier(&t.names, "rt");
    new_identifier(&t.names, t.frame);
    name_pointers(&t);
    open_text(&t.body);
    for (const Op *op = f->first; op; op = op->next) {
        if (op->attrs.early) /* host_pipeline.c writes it */
            continue;
        announce_changes(&t, op);
        if (info(op)->traits & WAITS || (info(op)->family != VIEW && !lies_in_place(m, op)))
            write_for_ranks(&t, ranks_running(m, op));
        op = write_one(&t, op);
    }
    write_for_ranks(&t, ALL_RANKS);
    char *body = close_text(&m->arena, &t.body);
    FILL(h->functions.out, "/* $what */\n$head\n{\n    $stage\n    $body\n}\n\n", { "what", description(&t) },
         { "head", function_head(&t) }, { "stage", own_rank_text(&t) }, { "body", body });
    return c;
}

HostFunc *host_half(Host *h, const Func *f)
{
    map_put(&h->halves, f, h);
    return host_func(h, f);
}
