/* experts.c -- mixtures of experts: the built-in functions top_k, dispatch, combine and balance.
 *
 * A token's place in the queue of its expert is a value of its own, which dispatch and combine share.  Tokens queue in
 * row-major order of `chosen`, the batch outermost: whether a token finds a slot does not depend on later tokens.
 */
#include "functions.h"

#include <math.h>

/* --- top_k -------------------------------------------------------------------------------------- */

CALL(top_k)
{
    const Type *x = &a->x[0]->type;
    const Dim *from = &x->dim[find_dim(x, a->dims.name[0])];
    Dim to;
    if (!find_dim_named(l, a->dims.name[1], a->dim_ast[1]->loc, &to))
        return wrong;
    Where at = { .at = a->dim_ast[1]->loc, .also = { a->ast[0]->loc } };
    if (varies_by_micro_batch(l, from->name) || varies_by_micro_batch(l, to.name))
        complain(l, at, "a model cannot depend on positions in the micro-batch");
    else if (find_dim(x, to.name) >= 0)
        complain(l, at, "%s already has a dim '%s'", type_words(l, x), to.name);
    else if (to.size > from->size)
        complain(l, at, "'%s' has %lld elements, of which %lld cannot be chosen", from->name, (long long)from->size,
                 (long long)to.size);
    else
        return tensor_operand(EMIT(l, OP_top_k, ((Attrs){ .dim = from->name, .dims = { 1, { to } } }), a->x[0]));
    return wrong;
}

/* --- Queues ------------------------------------------------------------------------------------- */

static bool are_chosen(Lower *l, const Arguments *a)
{
    bool good = a->x[1]->type.dtype == I32;
    if (!good)
        complain(l, (Where){ .at = a->ast[1]->loc, .help = "top_k gives them" }, "the chosen experts are i32, not %s",
                 type_words(l, &a->x[1]->type));
    return good;
}

/* The dims of the queue, the batch first: those of `chosen` but for the ones in `kept`. */
static Names queue_dims(const Lower *l, const Type *chosen, const Type *kept)
{
    Names over = { 0 };
    for (int batch = 1; batch >= 0; batch--)
        for (int i = 0; i < chosen->rank; i++)
            if ((chosen->dim[i].name == l->m->batch) == batch && find_dim(kept, chosen->dim[i].name) < 0)
                add_name(&over, chosen->dim[i].name);
    return over;
}

static Value *places(Lower *l, Value *chosen, Names over, Dim experts)
{
    return EMIT(l, OP_place, ((Attrs){ .over = over, .dims = { 1, { experts } } }), chosen);
}

/* Of a value of this body or of one around it: where it is computed. */
static const Value *source_of(const Body *frame, const Value *value)
{
    for (int at; frame && frame->outer && !value->def; frame = frame->outer)
        value = (at = index_of(&frame->captured, value)) < 0 ? value : frame->sources.at[at];
    return value;
}

/* How many rows one expert can get at most?  The choices of a token differ. */
static double longest_queue(const Lower *l, const Value *chosen, const Names *over)
{
    double tokens = 1;
    const Op *made = source_of(l->frame, chosen)->def;
    made = made && made->kind == OP_top_k ? made : NULL;
    for (int i = 0; i < chosen->type.rank; i++)
        if (has_name(over, chosen->type.dim[i].name) &&
            !(made && made->attrs.dims.dim[0].name == chosen->type.dim[i].name))
            tokens *= (double)chosen->type.dim[i].size;
    return tokens;
}

/* --- dispatch ----------------------------------------------------------------------------------- */

/* `capacity = 1.25`; infinite if nothing is dropped. */
static bool read_capacity(Lower *l, const Ast *keyword, double *capacity)
{
    Constant number = real_constant(INFINITY);
    if (keyword && !constant_of(l, keyword->child, &number))
        return false;
    *capacity = number.value;
    if (number.value > 0)
        return true;
    return complain(l, (Where){ .at = keyword->child->loc, .help = "capacity = 1.25; capacity = none drops no token" },
                    "the capacity must be above 0");
}

/* `rounds = true`: the copies of a repeat take turns, each with the next slots of the queues.  How many turns; 0 after
 * reporting. */
static int64_t read_rounds(Lower *l, const Ast *keyword)
{
    bool rounds;
    if (!flag_argument(l, keyword, &rounds))
        return 0;
    if (!rounds)
        return 1;
    if (l->frame->outer && !l->frame->run)
        return l->frame->copy.size;
    return complain(l, (Where){ .at = keyword->loc, .help = "repeat 4 { ... y = y + combine(...) }" },
                    l->frame->outer ? "the copies of a repeat that numbers them cannot be rounds"
                                    : "rounds are the copies of a repeat around the dispatch"),
           0;
}

/* In a repeat: the number of the copy. */
static Value *round_number(Lower *l)
{
    Body *body = l->frame;
    if (!body->round)
        body->round = new_port(l, intern_text(l->m, "round"), scalar_type(I32), (Port){ .kind = PORT_NONE });
    return body->round;
}

/* The place among the slots of this round; below 0 in earlier ones. */
static Value *place_in_round(Lower *l, Value *place, double slots)
{
    Value *first = EMIT(l, OP_mul, NO_ATTRS, round_number(l), emit_number(l, slots, I32));
    return EMIT(l, OP_sub, NO_ATTRS, place, first);
}

/* `within = d`: a queue for each element of d. */
static bool read_within(Lower *l, const Arguments *a, const Ast *keyword, Type *kept)
{
    Name name;
    *kept = (Type){ 0 };
    if (!keyword)
        return true;
    const Ast *at = keyword->child;
    if (at->kind != A_NAME)
        return complain(l, (Where){ .at = at->loc }, "the name of a dim is needed here");
    for (int i = 0; i < 2; i++)
        if (!need_dim(l, a->x[i], a->ast[i], at->name, at->loc, &name))
            return false;
    kept->dim[kept->rank++] = a->x[0]->type.dim[find_dim(&a->x[0]->type, name)];
    return true;
}

static bool dims_are_free(Lower *l, const Arguments *a, const Type *kept)
{
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < 2; d++)
            if (find_dim(&a->x[i]->type, a->dims.name[d]) >= 0)
                return complain(l, (Where){ .at = a->dim_ast[d]->loc, .also = { a->ast[i]->loc } },
                                "%s already has the dim '%s'", type_words(l, &a->x[i]->type), a->dims.name[d]);
    bool queues = a->x[1]->type.rank > kept->rank;
    if (!queues)
        complain(l, (Where){ .at = a->ast[1]->loc }, "%s has no tokens to dispatch", type_words(l, &a->x[1]->type));
    return queues;
}

/* Sets the size of the dim; it has one size in the whole model. */
static bool set_slots(Lower *l, const Arguments *a, double size, Dim *slots)
{
    Symbol *symbol = find_symbol_here(&l->globals, a->dims.name[1]);
    Loc at = a->dim_ast[1]->loc;
    if (!symbol->is_slots)
        return complain(l, (Where){ .at = at, .help = arena_text(l->arena, "dim %s, without a size", symbol->name) },
                        "the size of '%s' is computed by dispatch", symbol->name);
    if (size > INT32_MAX || (symbol->number.integer && (double)symbol->number.integer != size))
        return complain(
            l, (Where){ .at = at, .help = "declare another dim for these slots; a block takes it in its brackets" },
            "'%s' has %lld elements, not %.0f", symbol->name, (long long)symbol->number.integer, size);
    if (!symbol->number.integer && l->role == MODEL)
        add_setting(l, arena_text(l->arena, "dim.%s", symbol->name), arena_text(l->arena, "%.0f", size), "elements",
                    "dispatch");
    symbol->number = integer_constant((int64_t)size);
    symbol->padded = (int64_t)size;
    symbol->experts = a->dims.name[0];
    return find_dim_named(l, symbol->name, at, slots);
}

/* Slots are of one micro-batch, and counts of their load of one step. */
static bool has_queues(Lower *l, const Arguments *a)
{
    if (is_in_scan(l))
        complain(l, (Where){ .at = a->call->name_loc, .help = "route all positions at once, before or after the scan" },
                 "experts have no queues inside of a scan");
    return !is_in_scan(l);
}

CALL(dispatch)
{
    double capacity, queue = 1;
    int64_t rounds;
    Type kept;
    Dim experts, slots;
    if (!has_queues(l, a) || !are_chosen(l, a) || !read_capacity(l, a->keyword[0], &capacity) ||
        !read_within(l, a, a->keyword[1], &kept) || !(rounds = read_rounds(l, a->keyword[2])) ||
        !dims_are_free(l, a, &kept) || !find_dim_named(l, a->dims.name[0], a->dim_ast[0]->loc, &experts) ||
        !index_fits(l, a->x[1], &experts, NULL, a->ast[1]->loc))
        return wrong;
    Value *chosen = a->x[1];
    const Names over = queue_dims(l, &chosen->type, &kept);
    for (int i = 0; i < over.count; i++)
        queue *= (double)chosen->type.dim[find_dim(&chosen->type, over.name[i])].size;
    const double most = longest_queue(l, chosen, &over), in_round = ceil(most / (double)rounds);
    const double size = fmin(in_round, ceil(capacity * queue / (double)experts.size));
    const bool drops = size < in_round;
    if (!set_slots(l, a, size, &slots))
        return wrong;
    Symbol *symbol = find_symbol_here(&l->globals, slots.name);
    push_value(l->arena, &symbol->choices, chosen);
    symbol->rounds = rounds > 1 ? l->frame : NULL;
    Attrs attrs = { .over = over, .dims = { 2, { experts, slots } }, .rounds = rounds > 1 ? rounds : 0 };
    Value *place = places(l, chosen, over, experts);
    count_load(l, chosen, place, experts, size * (double)rounds, slots.name, rounds > 1, drops);
    place = rounds > 1 ? place_in_round(l, place, size) : place;
    Value *rows = EMIT(l, OP_dispatch, attrs, build_rows(&l->b, a->x[0], place, &over), chosen, place);
    const bool has_batch = l->m->batch && find_dim(&a->x[0]->type, l->m->batch) >= 0;
    const char *help = has_batch ? arena_text(l->arena, "within = %s, capacity = none", l->m->batch) : NULL;
    if (rows && has_name(&over, l->m->batch) && (drops || !has_batch)) /* else each row depends on its own sequence */
        note_mixing(l, rows, (Where){ .at = a->call->name_loc, .help = help });
    return tensor_operand(rows);
}

/* --- combine ------------------------------------------------------------------------------------ */

/* The experts and slots of y: as given, else its only slots, and those whose slots they are. */
static bool find_rows(Lower *l, Arguments *a)
{
    const Type *y = &a->x[0]->type;
    Names found = { 0 };
    for (int i = 0; i < y->rank && a->dims.count == 0; i++) {
        const Symbol *symbol = find_symbol_here(&l->globals, y->dim[i].name);
        if (symbol && symbol->is_slots && find_dim(y, symbol->experts) >= 0) {
            add_name(&found, symbol->experts);
            add_name(&found, y->dim[i].name);
        }
    }
    if (a->dims.count == 0 && found.count == 2) {
        a->dims = found;
        a->dim_ast[0] = a->dim_ast[1] = a->ast[0];
    }
    if (a->dims.count == 2)
        return true;
    return complain(
        l, (Where){ .at = a->call->name_loc, .also = { a->ast[0]->loc }, .help = "combine(y, chosen, experts, slots)" },
        "%s has %s experts with slots", type_words(l, y), found.count ? "several" : "no");
}

/* Do both have the same numbers: are they one value, or the same op of such values? */
static bool are_same(const Body *frame, const Value *a, const Value *b, int *steps)
{
    a = source_of(frame, a), b = source_of(frame, b);
    const Op *x = a->def, *y = b->def;
    bool same = a == b || (x && y && --*steps > 0 && x->kind == y->kind && x->args.count == y->args.count &&
                           attrs_equal(&x->attrs, &y->attrs) && index_of(&x->results, a) == index_of(&y->results, b));
    for (int i = 0; same && a != b && i < x->args.count; i++)
        same = are_same(frame, arg(x, i), arg(y, i), steps);
    return same;
}

/* Which row is in a slot depends on the choice by which rows were dispatched: of another one, the result would depend
 * on micro-batches and the layout. */
static bool were_dispatched_by(Lower *l, const Arguments *a, const Values *choices)
{
    enum { MOST_STEPS = 4096 }; /* what both compute may be a graph with many paths */
    bool found = false;
    for (int i = 0; i < choices->count && !found; i++)
        found = are_same(l->frame, choices->at[i], a->x[1], &(int){ MOST_STEPS });
    if (!found)
        complain(l,
                 (Where){ .at = a->ast[1]->loc,
                          .also = { a->ast[0]->loc },
                          .help = "assign it to a name, chosen = top_k(...), and give this to both" },
                 "combine needs the choice that dispatched these rows, and this is another one");
    return found;
}

CALL(combine)
{
    const Type *y = &a->x[0]->type;
    Value *chosen = a->x[1];
    if (!has_queues(l, a) || !are_chosen(l, a) || !find_rows(l, a))
        return wrong;
    const Name experts = a->dims.name[0], slots = a->dims.name[1];
    for (int d = 0; d < 2; d++)
        if (find_dim(&chosen->type, a->dims.name[d]) >= 0)
            return complain(l, (Where){ .at = a->dim_ast[d]->loc, .also = { a->ast[1]->loc } },
                            "%s already has the dim '%s'", type_words(l, &chosen->type), a->dims.name[d]),
                   wrong;
    if (!were_dispatched_by(l, a, &find_symbol_here(&l->globals, slots)->choices))
        return wrong;
    const Symbol *symbol = find_symbol_here(&l->globals, slots);
    if (symbol->rounds && symbol->rounds != l->frame)
        return complain(l, (Where){ .at = a->call->name_loc, .help = "y = y + combine(...), in the repeat" },
                        "rows of '%s' are those of one round, in which they have to be combined", slots),
               wrong;
    const Names over = queue_dims(l, &chosen->type, y);
    Value *place = places(l, chosen, over, y->dim[find_dim(y, experts)]);
    place = symbol->rounds ? place_in_round(l, place, (double)y->dim[find_dim(y, slots)].size) : place;
    return tensor_operand(EMIT(l, OP_combine, ((Attrs){ .dim = experts, .key = slots }), a->x[0], chosen, place));
}

/* --- balance ------------------------------------------------------------------------------------ */

/* The number of experts times the sum over them of (share of the choices) * (mean gate): Fedus et al., "Switch
 * Transformers", arXiv 2101.03961, equation 4; for several choices their shares are added. */
CALL(balance)
{
    const Name experts = a->dims.name[0];
    Names tokens = { 0 };
    if (!are_chosen(l, a))
        return wrong;
    Value *gate = emit_f32(l, a->x[0]), *chosen = a->x[1];
    for (int i = 0; i < gate->type.rank; i++) {
        const Name dim = gate->type.dim[i].name;
        if (dim != experts && (a->dims.count == 1 || has_name(&a->dims, dim)))
            add_name(&tokens, dim);
        if (dim != experts && find_dim(&chosen->type, dim) < 0)
            return complain(l, (Where){ .at = a->ast[1]->loc, .also = { a->ast[0]->loc } }, "%s has no dim '%s'",
                            type_words(l, &chosen->type), dim),
                   wrong;
    }
    const Dim along = gate->type.dim[find_dim(&gate->type, experts)];
    Value *is_chosen = emit_cast(l, EMIT(l, OP_eq, NO_ATTRS, chosen, emit_iota(l, along)), F32);
    Value *share = mean_over(l, sum_over(l, is_chosen, dims_lacking(&chosen->type, &gate->type)), tokens);
    Value *product = EMIT(l, OP_mul, NO_ATTRS, share, mean_over(l, gate, tokens));
    Value *loss = EMIT(l, OP_mul, NO_ATTRS, sum_over(l, product, (Names){ 1, { experts } }),
                       emit_number(l, (double)along.size, F32));
    if (loss)
        push_value(l->arena, &l->now.balances, loss);
    return tensor_operand(loss);
}
