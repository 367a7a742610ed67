/* repeat.c -- `repeat N { ... }` and `scan d { ... }`: the body becomes a function, called by one `loop` op.
 *
 * Existing names that the body assigns are carried from copy to copy; the parameters of its instances are stacked along
 * a new dim, one slice per copy.  For scans, whose copies are places, see recurrence.c.  `repeat N as i { ... }` is a
 * loop for each run of copies, see numbered.c, whose function has the body once for each copy of a turn.
 */
#include "repeat.h"
#include "arguments.h"
#include "elaborate/instances.h"

#include <string.h>

/* --- The name of the body ------------------------------------------------------------------- */

/* The name of the first instance in a tree, in source order. */
static const char *first_instance(const Lower *l, const Ast *ast)
{
    const Symbol *block = ast && ast->kind == A_CALL ? find_symbol_here(&l->globals, ast->name) : NULL;
    if (ast && names_instance(l, ast))
        return ast->child->name;
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

/* --- The loop ------------------------------------------------------------------------------- */

/* The numbers of the copies that have this one's body. */
static Value *copy_numbers(Lower *l, const Body *body, int first)
{
    const int bodies = body->run ? body->run->bodies : 1;
    Value *turns = emit_iota(l, body->copy);
    if (bodies > 1)
        turns = EMIT(l, OP_mul, NO_ATTRS, turns, emit_number(l, bodies, I32));
    return first ? EMIT(l, OP_add, NO_ATTRS, turns, emit_number(l, first, I32)) : turns;
}

/* The dropout key of each copy: that of the scope, folded with the number of the copy. */
static Value *copy_keys(Lower *l, const Body *body, int first)
{
    return EMIT(l, OP_fold_key, NO_ATTRS, dropout_key(l, l->frame), copy_numbers(l, body, first));
}

static Op *emit_loop(Lower *l, Body *body, const LoopValue *carried)
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
    for (int i = 0; i < body->keys.count; i++)
        push_value(l->arena, &args, copy_keys(l, body, body->numbers[i]));
    if (body->round)
        push_value(l->arena, &args, emit_iota(l, body->copy));
    for (int i = 0; i < body->sources.count; i++)
        push_value(l->arena, &args, body->scans ? stack_first(l, body, body->sources.at[i]) : body->sources.at[i]);
    finish_frame(l, body);
    append_func(l->m, body->func);
    return emit_op(l, OP_loop, attrs, args.count, args.at);
}

void lower_statements(Lower *l, const Ast *ast)
{
    for (const Ast *statement = ast->body; statement; statement = statement->next)
        lower_statement(l, statement);
}

/* Of the copy that was lowered last. */
static void keep_key(Lower *l, Body *body)
{
    if (!body->key)
        return;
    body->numbers[body->keys.count] = body->number;
    push_value(l->arena, &body->keys, body->key);
    body->key = NULL;
}

/* --- Bodies --------------------------------------------------------------------------------- */

static void lower_copies(Lower *l, const Ast *ast, Numbering *numbering, Body *body, const LoopValue *carried)
{
    const int bodies = numbering ? body->run->bodies : 1;
    body->numbers = NEW_ARRAY(l->arena, int, bodies);
    for (int i = 0; i < bodies; i++, keep_key(l, body)) {
        body->number = numbering ? body->run->first + i : 0;
        if (numbering)
            lower_copy(l, ast, numbering, body, carried);
        else
            lower_statements(l, ast);
    }
}

/* Lowers the body as a separate function; false if it has errors. */
static bool lower_body(Lower *l, const Ast *ast, Numbering *numbering, Body *body, LoopValue *carried)
{
    Body *outer = l->frame;
    Scope scope = { .outer = l->scope };
    Builder b = l->b;
    body->scope = &scope;
    l->frame = body;
    l->scope = &scope;
    l->b.func = body->func;
    enter_carried(l, carried);
    lower_copies(l, ast, numbering, body, carried);
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

static void note_repeated(Lower *l, const char *name, const Body *body)
{
    RepeatName *repeated = NEW(l->arena, RepeatName);
    *repeated = (RepeatName){ name, body->copy.name, body->whole, body->copy.size, l->noted.repeated };
    l->noted.repeated = repeated;
}

/* The const of the file that is the number of copies; that of a block stands for it. */
static void note_count(Lower *l, const Ast *count, const Body *body)
{
    const Symbol *symbol = count->kind == A_NAME ? symbol_in_call(find_symbol(l->scope, count->name)) : NULL;
    if (symbol && symbol == find_symbol_here(&l->globals, symbol->name))
        note_repeated(l, symbol->name, body);
}

/* The instances of blocks around a repeat: "enc" and "dec" of one block for two towers. */
static void note_instances_around(Lower *l, const Body *body)
{
    for (int i = 0; i < l->now.ncalls && !l->frame->outer; i++)
        note_repeated(l, l->now.calls[i].call->as ? l->now.calls[i].call->as : l->now.calls[i].call->name, body);
}

int64_t copies_of(Lower *l, const Ast *ast, int64_t most)
{
    int64_t copies;
    return integer_of(l, ast->init, "the number of copies", 0, most, &copies) ? copies : -1;
}

static int64_t shrunk(Lower *l, int64_t copies)
{
    return l->options->shrink && copies > l->shrunk_copies ? l->shrunk_copies : copies;
}

/* Does the dim count the copies of another repeat? */
static bool is_taken(const Lower *l, Name dim, Loc loc)
{
    const Loc *place = map_get(&l->copies.dims, dim);
    return place && place->begin != loc.begin;
}

/* The dim that counts the copies: "h.copy"; of a repeat directly inside another, or another one of that name,
 * "h.copy.2". */
static Name copy_name(Lower *l, Name instance, Loc loc)
{
    const Name place_name = intern_format(l->m, "%s at %d", instance, loc.begin);
    Name name = map_get(&l->copies.names, place_name);
    if (name)
        return name;
    intptr_t number = (intptr_t)map_get(&l->copies.numbers, instance);
    do
        name = ++number == 1 ? intern_format(l->m, "%s.copy", instance)
                             : intern_format(l->m, "%s.copy.%d", instance, (int)number);
    while (is_taken(l, name, loc));
    map_put(&l->copies.numbers, instance, (void *)number);
    map_put(&l->copies.names, place_name, (void *)name);
    Loc *place = NEW(l->arena, Loc);
    *place = loc;
    map_put(&l->copies.dims, name, place);
    return name;
}

/* "h.copy.at.5": of copies that have a body of their own, from that one on. */
static Name run_name(Lower *l, Name whole, int number)
{
    const Name name = intern_format(l->m, "%s.at.%d", whole, number);
    add_made_dim(l->m, name, MADE_RUN, whole);
    return name;
}

/* The copies of a repeat, or the turns of a run; false after an error. */
static bool begin_copies(Lower *l, int64_t copies, const Ast *ast, Body *body, Name name)
{
    body->prefix = name;
    body->whole = copy_name(l, name, ast->name_loc);
    add_made_dim(l->m, body->whole, MADE_COPIES, name);
    if (l->frame->number) /* it may have as many copies as that one says */
        body->whole = run_name(l, body->whole, l->frame->number);
    body->copy = (Dim){ .name = body->whole, .size = copies, .padded = copies };
    if (body->run && body->run->first)
        body->copy.name = run_name(l, body->whole, body->run->first);
    return copies > 0;
}

/* What `pipeline` may call the repeat. */
static void note_names(Lower *l, const Ast *ast, const Body *body, const Instance *before, const Instance *seen)
{
    for (const Instance *i = *l->instances; i && i != before; i = i->next)
        note_repeated(l, i->name, body);
    for (; seen; seen = seen->next)
        note_repeated(l, seen->name, body);
    if (body->run)
        note_repeated(l, body->prefix, body); /* a run may be without instances */
    note_count(l, ast->init, body);
    note_instances_around(l, body);
}

static bool read_direction(Lower *l, const Ast *option, bool *reverse)
{
    if (!option)
        return true;
    if (!option->next && option->kind == A_KEYWORD && strcmp(option->name, "reverse") == 0)
        return flag_argument(l, option, reverse);
    return complain(l, (Where){ .at = option->loc, .help = "reverse = true" }, "a scan has no option but 'reverse'");
}

void lower_loop(Lower *l, const Ast *ast, Numbering *numbering)
{
    const bool scans = ast->kind == A_SCAN;
    const int64_t copies = scans ? 0 : numbering ? numbering->run->turns : copies_of(l, ast, MAX_COPIES);
    if (!scans && copies == 0) {
        note_unlowered(l, ast->body);
        return;
    }
    LoopValue *carried = NULL;
    Name name = body_name(l, ast);
    const Instance *before = *l->instances;
    Body *body = NEW(l->arena, Body);
    *body = (Body){ .outer = l->frame, .run = numbering ? numbering->run : NULL };
    bool begun =
        scans ? begin_scan(l, ast, body) : begin_copies(l, copies > 0 ? shrunk(l, copies) : 0, ast, body, name);
    begun &= !scans || read_direction(l, ast->type, &body->reverse);
    collect_carried(l, ast->body, &carried);
    set_place(l, ast->name_loc);
    if (scans && begun)
        check_scanned(l, body, ast, carried);
    else if (!scans && carried)
        carry_observed(l, ast->name_loc, &carried);
    make_tensors(l, carried);
    body->func = NEW(l->arena, Func);
    bool good = lower_body(l, ast, numbering, body, carried) && begun;
    const bool is_idle = !carried && !body->yielded;
    if (is_idle && begun)
        complain(l, (Where){ .at = ast->name_loc }, "the body assigns no existing value%s",
                 scans ? " and yields none, so the scan does nothing" : ", so its copies do nothing");
    if (!scans)
        note_names(l, ast, body, before, numbering ? numbering->seen : NULL);
    const int first = body->run ? body->run->first : 0;
    body->func->name = free_function_name(l, first ? intern_format(l->m, "%s.at.%d", name, first) : name);
    set_place(l, ast->name_loc);
    Name path = l->b.path;
    l->b.path = name;
    Op *loop = good && !is_idle ? emit_loop(l, body, carried) : NULL;
    l->b.path = path;
    declare_carried(l, body, carried, loop);
    declare_yielded(l, body, loop);
}

void lower_repeat(Lower *l, const Ast *ast)
{
    if (ast->kind == A_REPEAT && ast->as)
        lower_numbered(l, ast);
    else
        lower_loop(l, ast, NULL);
}
