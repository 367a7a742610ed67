/* sequences.c -- finds whether the loss of a lowered model is a sum over sequences, by types: it infers of every value
 * the type that it had if the batch were split over an axis of ranks.  A sum over sequences is then pending over it,
 * and an output of each sequence split.
 *
 * An op that mixes sequences has no type then.  Its result counts as whole, and must not be read by the loss, nor by a
 * sum that an update reads.  Nor must the loss read such a sum itself.  The program stays as it is.
 */
#include "sequences.h"

enum { SEQUENCES = MAX_AXES }; /* an axis of one rank, which no mesh has */

typedef struct {
    Lower *l;
    Module *m;
    Map types;   /* Value -> Type, where it is not the value's own */
    Names slots; /* of rows that depend on one sequence each: split as the batch is */
    Mixing *mixed, *last;
    Map mixes;     /* Value -> its Mixing */
    Values summed; /* what updates read */
    Map read;      /* Value -> anything */
} Look;

/* --- Types ---------------------------------------------------------------------------------------- */

static const Type *type_of(const Look *k, const Value *value)
{
    const Type *type = map_get(&k->types, value);
    return type ? type : &value->type;
}

static void set_type(Look *k, const Value *value, const Type *type)
{
    Type *own = NEW(k->l->arena, Type);
    *own = *type;
    map_put(&k->types, value, own);
}

static void split_dims(const Look *k, Dim dims[], int count)
{
    for (int i = 0; i < count; i++)
        if (dims[i].name == k->m->batch || has_name(&k->slots, dims[i].name))
            dims[i].split = (Split){ .count = 1, .axis = { SEQUENCES } };
}

/* The types of the results if the operands have these; NULL: it mixes sequences. */
static const Type *results_of(Look *k, const Op *op, const Type *const types[])
{
    Op other = *op;
    other.args = (Values){ 0 };
    for (int i = 0; i < op->args.count; i++) {
        Value *value = NEW(k->l->arena, Value);
        *value = *arg(op, i);
        value->type = *types[i];
        push_value(k->l->arena, &other.args, value);
    }
    split_dims(k, other.attrs.dims.dim, other.attrs.dims.count);
    return infer_results(k->m, &other);
}

/* --- Numbers beside a sum --------------------------------------------------------------------------- */

/* Is it zero, whatever the data are? */
static bool is_zero(const Value *value, int *steps)
{
    const Op *op = value->def;
    if (!op || --*steps < 0)
        return false;
    if (op->kind == OP_constant)
        return op->attrs.value == 0;
    const Linear linear = info(op)->linear;
    bool all = op->args.count > 0, any = false;
    for (int i = 0; i < op->args.count; i++) {
        const bool counts = linear == FIRST ? i == 0 : linear == REST ? i > 0 : linear != NEVER;
        const bool zero = counts && is_zero(arg(op, i), steps);
        any |= zero;
        all &= zero || !counts;
    }
    return any && (linear == EACH || all);
}

/* To a sum over sequences can be added: 0; and, if a batch is computed at once, what does not depend on it, a penalty
 * of weights say.  Such a term counts as one with the type of the sum. */
static const Type *sum_of(Look *k, const Op *op, const Type *types[])
{
    const bool whole = k->m->train.batch <= k->m->train.microbatch;
    const Value *sum = NULL;
    for (int i = 0; i < op->args.count; i++)
        sum = types[i]->partial ? arg(op, i) : sum;
    if (info(op)->linear != ALL || !sum)
        return NULL;
    for (int i = 0; i < op->args.count; i++) {
        if (types[i]->partial || !(whole || is_zero(arg(op, i), &(int){ 100 })))
            continue;
        const Op product = { .kind = OP_mul, .args = { 2, 2, (Value *[]){ arg(op, i), (Value *)sum } } };
        const Type *made = results_of(k, &product, (const Type *[]){ types[i], type_of(k, sum) });
        Type *term = made ? NEW(k->l->arena, Type) : NULL;
        if (term)
            *term = *made, types[i] = term;
    }
    return results_of(k, op, types);
}

/* A number is added to what is summed over sequences: to each of them it can be.  And a sum divides one by another. */
static const char *help_instead(const Look *k, const Op *op)
{
    bool sums = false, others = false;
    for (int i = 0; i < op->args.count; i++) {
        const Type *type = type_of(k, arg(op, i));
        if (type->rank)
            return NULL;
        sums |= type->partial != 0;
        others |= type->partial == 0;
    }
    if (op->kind == OP_div && sums && !others)
        return "of weights, mean(x, weight = w): it divides by those of the whole batch";
    return info(op)->linear == ALL && sums && others ? "add first and take the mean of all, as mean(a + b)" : NULL;
}

/* --- Ops -------------------------------------------------------------------------------------------- */

static void note_mixed(Look *k, const Value *value, Mixing noted)
{
    Mixing *mixed = NEW(k->l->arena, Mixing);
    *mixed = noted;
    mixed->value = value;
    mixed->next = NULL;
    *(k->last ? &k->last->next : &k->mixed) = mixed;
    k->last = mixed;
    map_put(&k->mixes, value, mixed);
}

/* Positions along the batch begin anew in each micro-batch, though each rank knows its own. */
static bool counts_sequences(const Look *k, const Op *op)
{
    const bool is_rope = op->attrs.base != 0 && op->args.count == 1; /* not where positions are given */
    return (op->attrs.causal || op->attrs.window || is_rope) && op->attrs.seq == k->m->batch;
}

/* Experts' rows, and back.  If nothing is dropped, a row depends on its own sequence, so that slots are split like the
 * batch; which slot it has does not matter. */
static bool is_of_rows(const Look *k, const Op *op)
{
    return (op->kind == OP_dispatch && has_name(&op->attrs.over, k->m->batch)) ||
           (op->kind == OP_combine && has_name(&k->slots, op->attrs.key));
}

static Type type_of_rows(Look *k, const Op *op)
{
    const bool dispatches = op->kind == OP_dispatch;
    const Type *x = type_of(k, arg(op, 0));
    const Name slots = dispatches ? op->attrs.dims.dim[1].name : op->attrs.key;
    const int from = find_dim(x, dispatches ? k->m->batch : slots);
    Type y = op->results.at[0]->type;
    const int to = find_dim(&y, dispatches ? slots : k->m->batch);
    if (dispatches && !has_name(&k->slots, slots))
        add_name(&k->slots, slots);
    if (from >= 0 && to >= 0)
        y.dim[to].split = x->dim[from].split;
    y.partial = x->partial;
    y.by = x->by;
    return y;
}

/* A sum over the batch needs no micro-batch of its own, whatever becomes of it in the update. */
static bool is_statistic(const Look *k, const Op *op, const Type *type)
{
    const Statistic *s = k->l->noted.statistics;
    while (s && s->at.begin != op->loc.begin)
        s = s->next;
    return s && type->partial;
}

static void look_at_op(Look *k, const Op *op)
{
    Type rows;
    const Mixing *mixed = map_get(&k->l->now.mixing, op->results.at[0]);
    const Type **types = NEW_ARRAY(k->l->arena, const Type *, op->args.count + 1), *made = NULL;
    for (int i = 0; i < op->args.count; i++)
        types[i] = type_of(k, arg(op, i));
    if (is_of_rows(k, op))
        rows = type_of_rows(k, op), made = &rows;
    else if (!counts_sequences(k, op) && !(made = results_of(k, op, types)))
        made = sum_of(k, op, types);
    const bool is_summed = made && !mixed && is_statistic(k, op, made);
    if (is_summed)
        push_value(k->l->arena, &k->summed, op->results.at[0]);
    for (int i = 0; i < op->results.count; i++)
        if (mixed)
            note_mixed(k, op->results.at[i], *mixed);
        else if (is_summed)
            note_mixed(k, op->results.at[i], (Mixing){ .at = op->loc, .by_itself = true });
        else if (!made)
            note_mixed(k, op->results.at[i], (Mixing){ .at = op->loc, .help = help_instead(k, op) });
        else
            set_type(k, op->results.at[i], &made[i]);
}

static void look_at_func(Look *k, const Func *f);

/* What the copies hand on has to have one type in all of them. */
static void look_at_loop(Look *k, const Op *loop)
{
    const Func *body = find_func(k->m, loop->attrs.callee);
    const Dim *copy = &loop->attrs.dims.dim[0];
    for (int i = 0; i < loop->args.count; i++) {
        Type type = *type_of(k, arg(loop, i));
        if (i >= loop->attrs.carried && find_dim(&type, copy->name) == 0)
            type = without_dim(type, copy->name);
        set_type(k, body->params.at[i], &type);
    }
    look_at_func(k, body);
    for (int i = 0; i < loop->results.count; i++) {
        const Type *type = type_of(k, body->results.at[i]);
        const bool carries = i < loop->attrs.carried;
        const Type stacked = carries ? *type : with_dim_first(*type, *copy);
        if (!carries || type_equal(type, type_of(k, arg(loop, i))))
            set_type(k, loop->results.at[i], &stacked);
        else
            note_mixed(k, body->results.at[i], k->mixed ? *k->mixed : (Mixing){ .at = loop->loc });
    }
}

static void look_at_func(Look *k, const Func *f)
{
    for (const Op *op = f->first; op; op = op->next)
        if (op->kind == OP_loop)
            look_at_loop(k, op);
        else
            look_at_op(k, op);
}

/* --- What is read ------------------------------------------------------------------------------------- */

static bool is_read(const Look *k, const Value *value) { return map_get(&k->read, value) != NULL; }
static void mark(Look *k, const Value *value) { map_put(&k->read, value, k); }

static bool is_split(const Type *type)
{
    bool split = type->partial != 0;
    for (int i = 0; i < type->rank; i++)
        split |= type->dim[i].split.count > 0;
    return split;
}

/* What of it can be what mixes: nothing that is right so far goes into an op that does. */
static void mark_operands(Look *k, const Op *op, const Mixing *mixed)
{
    const int count = is_of_rows(k, op) ? 1 : op->args.count;
    for (int i = 0; i < count; i++)
        if (!mixed || (!mixed->by_itself && !is_split(type_of(k, arg(op, i)))))
            mark(k, arg(op, i));
}

static void mark_func(Look *k, const Func *f);

/* What a turn of a loop reads, the one before it has left. */
static void mark_loop(Look *k, const Op *loop)
{
    const Func *body = find_func(k->m, loop->attrs.callee);
    for (int i = 0; i < loop->results.count; i++)
        if (is_read(k, loop->results.at[i]))
            mark(k, body->results.at[i]);
    for (bool again = true; again;) {
        again = false;
        mark_func(k, body);
        for (int i = 0; i < loop->attrs.carried; i++)
            if (is_read(k, body->params.at[i]) && !is_read(k, body->results.at[i])) {
                mark(k, body->results.at[i]);
                again = true;
            }
    }
    for (int i = 0; i < loop->args.count; i++)
        if (is_read(k, body->params.at[i]))
            mark(k, arg(loop, i));
}

/* The operands of ops with a result that is read. */
static void mark_func(Look *k, const Func *f)
{
    for (const Op *op = f->last; op; op = op->prev) {
        bool read = false;
        for (int i = 0; i < op->results.count && !read; i++)
            read = is_read(k, op->results.at[i]);
        if (op->kind == OP_loop)
            mark_loop(k, op);
        else if (read)
            mark_operands(k, op, map_get(&k->mixes, op->results.at[0]));
    }
}

static const Mixing *first_read(const Look *k)
{
    const Mixing *mixed = k->mixed;
    while (mixed && !is_read(k, mixed->value))
        mixed = mixed->next;
    return mixed;
}

/* --- All of it ------------------------------------------------------------------------------------------ */

/* What is read for the loss, and for updates, if they count. */
static const Mixing *find_mixed(Look *k, const Func *f, bool with_updates, Sequences *found)
{
    const Values *balances = &k->l->now.balances;
    mark(k, k->l->now.loss);
    mark_func(k, f);
    const Mixing *by_loss = first_read(k);
    for (int i = 0; i < balances->count && !found->auxiliary; i++)
        if (is_read(k, balances->at[i]))
            found->auxiliary = where_text(k->l, balances->at[i]->def->loc);
    for (int i = 0; i < k->summed.count && with_updates; i++)
        mark_operands(k, k->summed.at[i]->def, NULL);
    mark_func(k, f);
    const Mixing *mixed = by_loss || !with_updates ? by_loss : first_read(k);
    found->in_update = mixed && !by_loss;
    return mixed;
}

/* The types of all values of f.  What their inference would report is expected. */
static Look look_at_all(Lower *l, const Func *f)
{
    Module *m = l->m;
    Look k = { .l = l, .m = m, .types.arena = l->arena, .mixes.arena = l->arena, .read.arena = l->arena };
    Diags silent = { .arena = l->arena, .source = l->diags->source, .out = open_discarding() };
    m->diags = &silent;
    m->axis[SEQUENCES] = m->batch;
    m->axis_size[SEQUENCES] = 1;
    for (int i = 0; i < f->params.count; i++) {
        Type type = f->params.at[i]->type;
        split_dims(&k, type.dim, type.rank);
        set_type(&k, f->params.at[i], &type);
    }
    look_at_func(&k, f);
    m->diags = l->diags;
    return k;
}

Sequences find_sequences(Lower *l, const Func *f, bool with_updates)
{
    Look k = look_at_all(l, f);
    Sequences found = { .at = l->model->name_loc };
    const Mixing *mixed = find_mixed(&k, f, with_updates, &found);
    const Type *loss = type_of(&k, l->now.loss);
    if (mixed)
        found.at = mixed->at, found.help = mixed->help;
    found.mixes =
        mixed || ((loss->partial != 1u << SEQUENCES || loss->by != BY_SUM) && !is_zero(l->now.loss, &(int){ 100 }));
    return found;
}

bool mixes_sequences(Lower *l, const Func *f, const Value *result, Loc *at)
{
    Look k = look_at_all(l, f);
    mark(&k, result);
    mark_func(&k, f);
    const Mixing *mixed = first_read(&k);
    const bool is_pending = type_of(&k, result)->partial != 0;
    *at = mixed ? mixed->at : result->def ? result->def->loc : l->model->name_loc;
    return mixed || is_pending;
}
