/* repeat.c -- `repeat N { ... }` and `scan d { ... }`: the body becomes a function, called by one `loop` op.
 *
 * Existing names that the body assigns are carried from copy to copy; the parameters of its instances are stacked along
 * a new dim, one slice per copy.  For scans, whose copies are places, see recurrence.c.
 */
#include "layout.h"
#include "lowering.h"

#include <string.h>

/* --- The name of the body ------------------------------------------------------------------- */

/* The name of the first instance in a tree, in source order. */
static const char *first_instance(const Lower *l, const Ast *ast)
{
    const Symbol *block = ast && ast->kind == A_CALL ? find_symbol_here(&l->globals, ast->name) : NULL;
    if (block && block->kind == S_BLOCK)
        return ast->as ? ast->as : ast->name;
    const Ast *const lists[] = { ast ? ast->init : NULL, ast ? ast->child : NULL, ast ? ast->body : NULL };
    for (int i = 0; i < 3; i++)
        for (const Ast *child = lists[i]; child; child = child->next) {
            const char *found = first_instance(l, child);
            if (found)
                return found;
        }
    return NULL;
}

static Name body_name(Lower *l, const Ast *ast)
{
    const char *found = NULL;
    for (const Ast *statement = ast->body; statement && !found; statement = statement->next)
        found = first_instance(l, statement);
    found = found ? found : ast->kind == A_SCAN ? "scan" : "repeat";
    return l->path ? intern_format(l->m, "%s.%s", l->path, found) : intern_text(l->m, found);
}

Name free_function_name(Lower *l, Name name)
{
    static const char *const of_variant[] = {
        [AS_MODEL] = "", [AS_TOTALS] = "totals.", [AS_EVAL] = "eval.", [AS_PREDICT] = "predict.", [AS_CHECK] = "check."
    };
    static const char *const reserved[] = { "step", "eval", "predict", "totals" };
    name = intern_format(l->m, "%s%s", of_variant[l->variant], name);
    bool is_reserved = strcmp(name, l->model->name) == 0;
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
        is_reserved |= strcmp(name, reserved[i]) == 0;
    while (is_reserved || find_func(l->m, name)) {
        name = intern_format(l->m, "%s.body", name);
        is_reserved = false;
    }
    return name;
}

/* --- Carried values ------------------------------------------------------------------------- */

typedef struct Carried {
    const char *name;
    Loc loc;          /* of the last assignment */
    Operand before;   /* outside */
    Symbol *after;    /* inside, at the end */
    bool read;        /* inside: read in the same iteration or the next one */
    Labelled *labels; /* inside, at the beginning */
    struct Carried *next;
} Carried;

static const char observed[] = "the statistics of updates"; /* no name that a file can have */

static Carried *find_carried(Carried *list, const char *name)
{
    while (list && strcmp(list->name, name) != 0)
        list = list->next;
    return list;
}

static void note_assigned(Lower *l, const char *name, Loc loc, Carried **list)
{
    Symbol *symbol = find_symbol(l->scope, name);
    Carried *known = find_carried(*list, name);
    if (known)
        known->loc = loc;
    if (known || !symbol || (symbol->kind != S_LOCAL && symbol->kind != S_ARGUMENT))
        return;
    Carried **end = list;
    while (*end)
        end = &(*end)->next;
    *end = NEW(l->arena, Carried);
    **end = (Carried){ .name = name, .loc = loc };
    symbol->used = true;
    (*end)->before = symbol->operand;
    if (symbol->operand.kind == TENSOR)
        (*end)->before.value = import_value(l, l->frame, symbol->operand.value, symbol->frame);
}

/* The existing values that these statements assign, in order.  What a scan yields, it assigns outside of it. */
static void collect_carried(Lower *l, const Ast *body, Carried **list)
{
    for (const Ast *ast = body; ast; ast = ast->next) {
        if (ast->kind == A_REPEAT || ast->kind == A_SCAN)
            collect_carried(l, ast->body, list);
        for (const Ast *y = ast->kind == A_SCAN ? ast->body : NULL; y; y = y->next)
            if (y->kind == A_YIELD)
                note_assigned(l, y->name, y->name_loc, list);
        for (const Ast *target = ast->kind == A_ASSIGN ? ast->child : NULL; target; target = target->next)
            note_assigned(l, target->name, target->loc, list);
    }
}

/* Of a scan: what it carries is of one place, and has one name afterwards. */
static void check_scanned(Lower *l, const Body *body, const Ast *ast, Carried *carried)
{
    for (; carried; carried = carried->next) {
        const bool is_tensor = carried->before.kind == TENSOR && carried->before.value;
        if (is_tensor && find_dim(&carried->before.value->type, body->copy.name) >= 0) {
            complain(
                l, (Where){ .at = carried->loc, .help = "give it another name here, and yield it" },
                "'%s' exists before the scan and has the dim '%s', so that it cannot be carried from place to place",
                carried->name, body->copy.name);
            carried->before = (Operand){ .kind = WRONG };
        }
        for (const Ast *y = ast->body; y; y = y->next)
            if (y->kind == A_YIELD && strcmp(y->name, carried->name) == 0)
                complain(l, (Where){ .at = y->name_loc, .help = "yield it under another name" },
                         "after the scan '%s' is what is carried, at the last place", y->name);
    }
}

/* Of a model with updates or experts: the statistics of the body and of what it calls. */
static void carry_observed(Lower *l, Loc at, Carried **list)
{
    if (l->variant != AS_MODEL || (!has_updates(l, NULL) && !holds_slots(l, NULL)))
        return;
    Value *before = l->frame->observed ? l->frame->observed : emit_number(l, 0, F32);
    while (*list)
        list = &(*list)->next;
    *list = NEW(l->arena, Carried);
    **list = (Carried){ .name = observed, .loc = at, .before = tensor_operand(before) };
}

/* A carried number becomes a scalar, outside of the loop. */
static void make_tensors(Lower *l, Carried *carried)
{
    for (; carried; carried = carried->next)
        if (carried->before.kind == NUMBER)
            carried->before = tensor_operand(value_of(l, carried->before, F32));
}

static void enter_carried(Lower *l, Carried *carried)
{
    for (; carried; carried = carried->next) {
        Symbol *symbol = declare(l, l->scope, S_LOCAL, carried->name, carried->loc);
        symbol->from_before = true;
        if (carried->before.kind != TENSOR)
            continue;
        const Name name = carried->name == observed ? fresh_name(l->m) : intern_text(l->m, carried->name);
        Value *value = new_value(l, name, carried->before.value->type);
        push_named(l, l->frame, &l->frame->carried, value);
        symbol->operand = tensor_operand(value);
        carried->labels = enter_labels(l, carried->before.value, value);
        if (carried->name == observed)
            l->frame->observed = value;
    }
}

static bool is_read(const Scope *scope, const char *name)
{
    for (const Symbol *symbol = scope->newest; symbol; symbol = symbol->next)
        if (symbol->used && strcmp(symbol->name, name) == 0)
            return true;
    return false;
}

/* Carried results have the type of the carried parameters; only the memory order may differ. */
static bool leave_carried(Lower *l, Carried *carried)
{
    bool good = true;
    for (; carried; carried = carried->next) {
        carried->after = find_symbol_here(l->scope, carried->name);
        carried->read = is_read(l->scope, carried->name);
        carried->after->used = true;
        Operand after = carried->after->operand;
        if (after.kind == WRONG || carried->before.kind == WRONG || !l->frame->copy.name) {
            good = false;
            continue;
        }
        set_place(l, carried->loc);
        const Type *before = &carried->before.value->type;
        Value *value = scalar_of(l, after, before->dtype).value;
        if (value && (value->type.dtype != before->dtype || dims_lacking(&value->type, before).count ||
                      dims_lacking(before, &value->type).count)) {
            complain(l, (Where){ .at = carried->loc }, "each %s gets '%s' as %s, but this one returns %s",
                     l->frame->scans ? "place" : "copy", carried->name, type_words(l, before),
                     type_words(l, &value->type));
            good = false;
            continue;
        }
        good &= leave_labels(l, carried->labels, value, carried->name, carried->loc);
        value = value ? reorder(l, value, before) : NULL;
        good &= value != NULL;
        if (value)
            push_value(l->arena, &l->frame->func->results, value);
    }
    return good;
}

/* --- The loop ------------------------------------------------------------------------------- */

static void push_all(Lower *l, Values *to, const Values *from)
{
    for (int i = 0; i < from->count; i++)
        push_value(l->arena, to, from->at[i]);
}

/* The dropout key of each copy: that of the scope, folded with the number of the copy. */
static Value *copy_keys(Lower *l, const Body *body)
{
    return EMIT(l, OP_fold_key, NO_ATTRS, dropout_key(l, l->frame), emit_iota(l, body->copy));
}

static Op *emit_loop(Lower *l, Body *body, const Carried *carried)
{
    Values args = { 0 };
    for (; carried; carried = carried->next)
        push_value(l->arena, &args, carried->before.value);
    Attrs attrs = { .callee = body->func->name,
                    .dims = { 1, { body->copy } },
                    .carried = args.count,
                    .scan = body->scans,
                    .reverse = body->reverse };
    push_all(l, &args, &body->stacks);
    if (body->key)
        push_value(l->arena, &args, copy_keys(l, body));
    for (int i = 0; i < body->sources.count; i++)
        push_value(l->arena, &args, body->scans ? stack_first(l, body, body->sources.at[i]) : body->sources.at[i]);
    finish_frame(l, body);
    append_func(l->m, body->func);
    return emit_op(l, OP_loop, attrs, args.count, args.at);
}

static void lower_statements(Lower *l, const Ast *ast)
{
    for (const Ast *statement = ast->body; statement; statement = statement->next)
        lower_statement(l, statement);
}

/* Lowers the body as a separate function; false if it has errors. */
static bool lower_body(Lower *l, const Ast *ast, Body *body, Carried *carried)
{
    Body *outer = l->frame;
    Scope scope = { .outer = l->scope };
    Builder b = l->b;
    body->scope = &scope;
    l->frame = body;
    l->scope = &scope;
    l->b.func = body->func;
    enter_carried(l, carried);
    lower_statements(l, ast);
    if (body->observed && !body->scans)
        declare(l, l->scope, S_LOCAL, observed, ast->name_loc)->operand = tensor_operand(body->observed);
    bool good = leave_carried(l, carried);
    good &= leave_yielded(l, body);
    if (carried || body->yielded)
        check_used(l, &scope);
    l->frame = outer;
    l->scope = scope.outer;
    l->b = b;
    return good;
}

static void note_repeated(Lower *l, const char *name, const Dim *copies)
{
    Repeated *repeated = NEW(l->arena, Repeated);
    *repeated = (Repeated){ name, copies->name, copies->size, l->repeated };
    l->repeated = repeated;
}

/* The const of the file that is the number of copies; that of a block stands for it. */
static void note_count(Lower *l, const Ast *count, const Dim *copies)
{
    const Symbol *symbol = count->kind == A_NAME ? meant_by(find_symbol(l->scope, count->name)) : NULL;
    if (symbol && symbol == find_symbol_here(&l->globals, symbol->name))
        note_repeated(l, symbol->name, copies);
}

/* The instances of blocks around a repeat: "enc" and "dec" of one block for two towers. */
static void note_instances_around(Lower *l, const Dim *copies)
{
    for (int i = 0; i < l->ncalls && !l->frame->outer; i++)
        note_repeated(l, l->calls[i].call->as ? l->calls[i].call->as : l->calls[i].block->name, copies);
}

static int64_t copies_of(Lower *l, const Ast *ast)
{
    int64_t copies = 1;
    if (!integer_of(l, ast->init, "the number of copies", 0, MAX_COPIES, &copies))
        return -1;
    return l->options->shrink && copies > shrunk_copies(l) ? shrunk_copies(l) : copies;
}

/* Does the dim count the copies of another repeat? */
static bool is_taken(const Lower *l, Name dim, Loc loc)
{
    for (const CopyDim *copies = l->copy_dims; copies; copies = copies->next)
        if (copies->dim == dim && copies->loc.begin != loc.begin)
            return true;
    return false;
}

/* The dim that counts the copies: "h.copy"; of a repeat directly inside another, or another one of that name,
 * "h.copy.2". */
static Name copy_name(Lower *l, Name instance, Loc loc)
{
    Name name = intern_format(l->m, "%s.copy", instance);
    for (int number = 2; is_taken(l, name, loc); number++)
        name = intern_format(l->m, "%s.copy.%d", instance, number);
    CopyDim *copies = NEW(l->arena, CopyDim);
    *copies = (CopyDim){ name, loc, l->copy_dims };
    l->copy_dims = copies;
    return name;
}

/* The copies of a repeat; false after an error. */
static bool begin_copies(Lower *l, int64_t copies, const Ast *ast, Body *body, Name name)
{
    body->prefix = name;
    body->copy = (Dim){ .name = copy_name(l, name, ast->name_loc), .size = copies, .padded = copies };
    return copies > 0;
}

/* What is carried has its last value after the loop. */
static void declare_carried(Lower *l, const Body *body, const Carried *carried, const Op *loop)
{
    for (int i = 0; carried; carried = carried->next, i++) {
        if (carried->name == observed) {
            l->frame->observed = loop ? loop->results.at[i] : NULL;
            continue;
        }
        Symbol *symbol = declare(l, l->scope, S_LOCAL, carried->name, carried->loc);
        symbol->operand = tensor_operand(loop ? loop->results.at[i] : NULL);
        const Operand after = carried->after->operand;
        if (loop)
            keep_labels(l, body, after.kind == TENSOR ? after.value : NULL, loop->results.at[i]);
        symbol->used = carried->read;
    }
}

void lower_repeat(Lower *l, const Ast *ast)
{
    const bool scans = ast->kind == A_SCAN;
    const int64_t copies = scans ? 0 : copies_of(l, ast);
    if (!scans && copies == 0) {
        note_unlowered(l, ast->body);
        return;
    }
    Carried *carried = NULL;
    Name name = body_name(l, ast);
    const Instance *before = *l->instances;
    Body *body = NEW(l->arena, Body);
    *body = (Body){ .outer = l->frame };
    const bool begun = scans ? begin_scan(l, ast, body) : begin_copies(l, copies > 0 ? copies : 0, ast, body, name);
    collect_carried(l, ast->body, &carried);
    set_place(l, ast->name_loc);
    if (scans && begun)
        check_scanned(l, body, ast, carried);
    else if (!scans && carried)
        carry_observed(l, ast->name_loc, &carried);
    make_tensors(l, carried);
    body->func = NEW(l->arena, Func);
    bool good = lower_body(l, ast, body, carried) && begun;
    const bool is_idle = !carried && !body->yielded;
    if (is_idle && begun)
        complain(l, (Where){ .at = ast->name_loc }, "the body assigns nothing that existed before, %s",
                 scans ? "and yields nothing, so its places do nothing" : "so its copies do nothing");
    for (const Instance *i = *l->instances; !scans && i && i != before; i = i->next)
        note_repeated(l, i->name, &body->copy);
    if (!scans) {
        note_count(l, ast->init, &body->copy);
        note_instances_around(l, &body->copy);
    }
    body->func->name = free_function_name(l, name);
    set_place(l, ast->name_loc);
    Name path = l->b.path;
    l->b.path = name;
    Op *loop = good && !is_idle ? emit_loop(l, body, carried) : NULL;
    l->b.path = path;
    declare_carried(l, body, carried, loop);
    declare_yielded(l, body, loop);
}
