/* numbered.c -- `repeat 26 as i { ... }`: i is the number of the copy, known at compile time.  Copies for which all
 * numbers that depend on i are the same are alike, and a loop has alike copies only: so the repeat is cut into runs.
 *
 *   attend(..., window = if(i % 6 == 5, 0, 512))     =>     4 turns of copies 0 to 5, each with a body of its own,
 *                                                           then 2 turns of copy 24
 *
 * A parameter of a run is the stack of every sixth copy: see Param.first.  Names in checkpoints are those of one
 * repeat.
 */
#include "elaborate/instances.h"
#include "repeat.h"

#include <math.h>
#include <string.h>

/* --- Numbers that depend on the copy ------------------------------------------------------------------- */

typedef struct {
    Lower *l;
    int count, depth; /* depth: of calls */
    Constant *at;     /* of one copy; NULL: they are counted */
} Numbers;

enum { MOST_CALLS = 64 };

static bool depends(const Lower *l, const Ast *ast);

static bool any_depends(const Lower *l, const Ast *list)
{
    for (; list; list = list->next)
        if (depends(l, list))
            return true;
    return false;
}

/* Does it name the number of the copy, or what a call computes from it? */
static bool depends(const Lower *l, const Ast *ast)
{
    const Symbol *symbol = ast->kind == A_NAME ? find_symbol(l->scope, ast->name) : NULL;
    return (symbol && symbol->of_copy) || any_depends(l, ast->init) || any_depends(l, ast->child) ||
           any_depends(l, ast->type) || any_depends(l, ast->body);
}

/* One that has no value is unlike all others: the body with it reports the error. */
static Constant value_of_number(Lower *l, const Ast *ast)
{
    Constant number;
    if (ast->kind == A_BOOL)
        return integer_constant((int64_t)ast->number);
    return is_constant(l, ast) && constant_of(l, ast, &number) ? number : real_constant(NAN);
}

static void collect_numbers(Numbers *numbers, const Ast *ast);

static void collect_all(Numbers *numbers, const Ast *list)
{
    for (; list; list = list->next)
        collect_numbers(numbers, list);
}

static Symbol *bind_number(Lower *l, Scope *scope, const Ast *arg, const Ast *given)
{
    Symbol *symbol = declare(l, scope, S_CONST, arg->name, arg->name_loc);
    symbol->number = value_of_number(l, given);
    symbol->of_copy = depends(l, given);
    return symbol;
}

/* What a block makes of the numbers that it is given. */
static void collect_call(Numbers *numbers, const Ast *call, const Ast *block)
{
    Lower *l = numbers->l;
    Scope scope = { .outer = &l->globals }, *outer = l->scope;
    const Ast *given = call->child, *dim = call->dims;
    bool of_copy = false;
    for (const Ast *own = block->dims; own && dim; own = own->next, dim = dim->next)
        declare(l, &scope, S_DIM, own->name, own->name_loc)->meant = symbol_in_call(find_symbol(l->scope, dim->name));
    for (const Ast *arg = block->child; arg && given; arg = arg->next, given = given->next)
        if (arg->type)
            collect_numbers(numbers, given);
        else
            of_copy |= bind_number(l, &scope, arg, given)->of_copy;
    if (!of_copy || numbers->depth == MOST_CALLS)
        return;
    numbers->depth++;
    l->scope = &scope;
    collect_all(numbers, block->body);
    l->scope = outer;
    numbers->depth--;
}

/* The largest expressions in the tree that are numbers and depend on the copy. */
static void collect_numbers(Numbers *numbers, const Ast *ast)
{
    Lower *l = numbers->l;
    Symbol *called = ast->kind == A_CALL ? called_symbol(l, ast->name) : NULL;
    if (called) {
        collect_call(numbers, ast, block_called(called)->ast);
    } else if (names_instance(l, ast) && !find_symbol(l->scope, ast->child->name)) {
        NamedInstance *shared = NEW(l->arena, NamedInstance);
        shared->block = find_symbol_here(&l->globals, ast->init->name);
        declare(l, l->scope, S_INSTANCE, ast->child->name, ast->child->loc)->shared = shared;
    } else if (ast->kind <= A_INDEX && is_constant(l, ast)) {
        const bool counts = depends(l, ast);
        if (counts && numbers->at)
            numbers->at[numbers->count] = value_of_number(l, ast);
        numbers->count += counts;
    } else {
        collect_all(numbers, ast->init);
        collect_all(numbers, ast->child);
        collect_all(numbers, ast->type);
        collect_all(numbers, ast->body);
    }
}

static bool are_equal(const Constant *a, const Constant *b, int count)
{
    for (int i = 0; i < count; i++)
        if (a[i].real != b[i].real || a[i].integer != b[i].integer || !(a[i].value == b[i].value))
            return false;
    return true;
}

/* For each copy the first one that is like it. */
static const int *find_alike(Lower *l, const Ast *ast, int copies)
{
    Scope scope = { .outer = l->scope }, *outer = l->scope;
    Symbol *counter = declare(l, &scope, S_CONST, ast->as, ast->as_loc);
    Numbers numbers = { .l = l };
    int *alike = NEW_ARRAY(l->arena, int, copies);
    counter->of_copy = true;
    l->scope = &scope;
    collect_all(&numbers, ast->body);
    const int count = numbers.count;
    Constant *at = NEW_ARRAY(l->arena, Constant, (size_t)copies * count + 1);
    for (int copy = 0; copy < copies; copy++) {
        counter->number = integer_constant(copy);
        numbers.at = at + (size_t)copy * count;
        numbers.count = 0;
        collect_all(&numbers, ast->body);
        while (alike[copy] < copy && !are_equal(at + (size_t)alike[copy] * count, numbers.at, count))
            alike[copy]++;
    }
    l->scope = outer;
    return alike;
}

/* Errors are reported by the bodies. */
static const int *find_alike_silently(Lower *l, const Ast *ast, int copies)
{
    Diags silent = { .arena = l->arena, .source = l->diags->source, .out = open_discarding() }, *diags = l->diags,
          *of_types = l->m->diags;
    Complaint *reported = l->reports.reported;
    const FuncRole role = l->role;
    l->diags = l->m->diags = &silent;
    l->role = MODEL;
    const int *alike = find_alike(l, ast, copies);
    l->diags = diags;
    l->m->diags = of_types;
    l->reports.reported = reported;
    l->role = role;
    return alike;
}

/* --- Runs ---------------------------------------------------------------------------------------------- */

/* Of all ways to cut the copies from `first` on: the one with the fewest bodies and loops. */
typedef struct {
    int cost, bodies, turns;
} Cut;

/* `matches`: so many copies from `first` on are like those `bodies` later. */
static void try_turns(Cut *best, int first, int bodies, int matches)
{
    for (int turns = 1; turns <= 1 + matches / bodies; turns++) {
        const int cost = bodies + 1 + best[first + bodies * turns].cost;
        const bool is_turn = turns > 1 || bodies == 1; /* else two loops are as good, and can be apart */
        if (is_turn && (!best[first].turns || cost <= best[first].cost))
            best[first] = (Cut){ cost, bodies, turns };
    }
}

static Runs *runs_of(Lower *l, const Ast *ast, int copies)
{
    const int *alike = find_alike_silently(l, ast, copies);
    Cut *best = NEW_ARRAY(l->arena, Cut, copies + 1);
    int *matches = NEW_ARRAY(l->arena, int, copies + 1);
    Runs *first = NULL, **end = &first;
    for (int at = copies - 1; at >= 0; at--)
        for (int bodies = 1; bodies <= copies - at; bodies++) {
            const bool matching = at + bodies < copies && alike[at] == alike[at + bodies];
            matches[bodies] = matching ? matches[bodies] + 1 : 0;
            try_turns(best, at, bodies, matches[bodies]);
        }
    for (int at = 0; at < copies; end = &(*end)->next) {
        *end = NEW(l->arena, Runs);
        **end = (Runs){ .first = at, .bodies = best[at].bodies, .turns = best[at].turns };
        at += best[at].bodies * best[at].turns;
    }
    return first;
}

/* --- Copies -------------------------------------------------------------------------------------------- */

static void note_instances(Lower *l, Numbering *numbering)
{
    for (const Instance *i = *l->instances; i != numbering->before; i = i->next) {
        Instance *seen = NEW(l->arena, Instance);
        *seen = (Instance){ i->name, i->loc, i->has_params, numbering->seen };
        numbering->seen = seen;
    }
    *l->instances = numbering->before;
}

void lower_copy(Lower *l, const Ast *ast, Numbering *numbering, Body *body, const LoopValue *carried)
{
    Scope scope = { .outer = l->scope };
    Symbol *counter = declare(l, &scope, S_CONST, ast->as, ast->as_loc);
    counter->number = integer_constant(body->number);
    body->scope = &scope;
    l->scope = &scope;
    l->now.dropout_count = numbering->first_dropout;
    lower_statements(l, ast);
    l->scope = scope.outer;
    numbering->used |= counter->used;
    counter->used = true;
    pass_to_next_copy(l, &scope, carried);
    check_used(l, &scope);
    note_instances(l, numbering);
    if (l->now.dropout_count > numbering->last_dropout)
        numbering->last_dropout = l->now.dropout_count;
}

static bool may_number(Lower *l, const Ast *ast)
{
    const Symbol *other = find_symbol(l->scope, ast->as);
    const Body *around = l->frame;
    while (around->outer && around->scans)
        around = around->outer;
    if (other)
        complain(l, (Where){ .at = ast->as_loc }, "'%s' is already %s, declared at %s", ast->as,
                 symbol_noun(other->kind), position_text(l, other->loc));
    else if (around->outer)
        complain(l, (Where){ .at = ast->as_loc, .help = "number those of the outer one, or let it be one repeat" },
                 "a repeat inside another one cannot number its copies");
    return !other && !around->outer;
}

/* A loop for each run. */
void lower_numbered(Lower *l, const Ast *ast)
{
    const int64_t copies = copies_of(l, ast, MAX_NUMBERED);
    if (copies == 0) {
        note_unlowered(l, ast->body);
        return;
    }
    const bool good = may_number(l, ast) && copies > 0;
    Numbering numbering = { .before = *l->instances,
                            .first_dropout = l->now.dropout_count,
                            .last_dropout = l->now.dropout_count,
                            .used = !good };
    const Runs alone = { .bodies = 1, .turns = 1 };
    for (numbering.run = good ? runs_of(l, ast, (int)copies) : &alone; numbering.run;
         numbering.run = numbering.run->next)
        lower_loop(l, ast, &numbering);
    for (Instance *i = numbering.seen, *next; i; i = next) {
        next = i->next;
        i->next = *l->instances;
        *l->instances = i;
    }
    l->now.dropout_count = numbering.last_dropout;
    if (!numbering.used)
        complain_unused(l, (Where){ .at = ast->as_loc, .help = "leave it out" },
                        arena_text(l->arena, "'%s' is never used", ast->as));
}
