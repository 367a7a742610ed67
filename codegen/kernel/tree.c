/* tree.c -- the steps of one row: values in the phases in which they can be computed, and the loops of each phase. */
#include "tree.h"

/* The loops of one phase: of a row, or of the dims of it that values have. */
typedef struct {
    RowKernel *k;
    const bool *has; /* by sink */
    DimSet inner;    /* of the row */
    DimSet dims;     /* ... and those of them that the loops have; 0: none, after all phases */
    bool is_shared;  /* by values of any of these dims */
    int phase;
    bool is_first, is_last; /* of the loops over a pack: in the first, sums of the phase that others wait for */
} Nest;

/* --- Steps ---------------------------------------------------------------------------------------- */

Step *add_step(Steps *to, Step step)
{
    Step *added = NEW(&to->k->m->arena, Step);
    *added = step;
    added->loop = step.loop ? step.loop : to->loop;
    *to->end = added;
    to->end = &added->next;
    return added;
}

Steps add_loop(Steps *to, Step loop)
{
    loop.kind = STEP_LOOP;
    Step *added = add_step(to, loop);
    return (Steps){ .k = to->k, .loop = added, .end = &added->body };
}

/* --- Which ---------------------------------------------------------------------------------------- */

static Node *source_of(const Sink *sink) { return sink->operand ? sink->operand : sink->node; }
static bool is_scalar(const Node *node) { return !node->dims && !node->phase && !node->is_column; }
static bool is_in_loops(const Nest *n, const Node *node) { return node->dims & n->inner; }

/* Do just these loops go through the elements of the node? */
static bool go_through(const Nest *n, const Node *node)
{
    return n->is_shared && n->dims ? is_in_loops(n, node) : (node->dims & n->inner) == n->dims;
}

void mark_wanted(RowKernel *k, const bool has[])
{
    for (int i = 0; i < k->nnodes; i++)
        k->node[i].is_wanted = false;
    for (int s = 0; s < k->nsinks; s++)
        if (!has || has[s])
            source_of(&k->sink[s])->is_wanted = true;
    for (int at = k->nnodes - 1; at >= 0; at--)
        for (int i = 0; k->node[at].is_wanted && i < 3; i++)
            if (k->node[at].operand[i])
                k->node[at].operand[i]->is_wanted = true;
}

/* A row reduction of the phase. */
static bool is_summed(const Nest *n, const Node *node)
{
    return node->is_reduction && node->is_wanted && node->phase == n->phase + 1 && go_through(n, node->operand[0]) &&
           (node->is_online ? n->is_last : n->is_first);
}

/* Stored, or added to a column, element by element. */
static bool is_drained(const Nest *n, int sink)
{
    const Sink *s = &n->k->sink[sink];
    return n->is_last && n->has[sink] && (!n->dims || s->phase == n->phase) && go_through(n, source_of(s));
}

/* Stored for later phases in memory of its own. */
static bool is_first_kept(const Nest *n, const Node *node)
{
    return n->is_last && node->kept_from == n->phase && node->kept_array < 0 && node->is_wanted && go_through(n, node);
}

static bool is_kept(const Nest *n, const Node *node) { return node->kept_from >= 0 && node->kept_from < n->phase; }

static bool is_needed(const Nest *n)
{
    bool any = false;
    for (int i = 0; i < n->k->nnodes; i++)
        any |= is_summed(n, &n->k->node[i]);
    for (int i = 0; i < n->k->nsinks; i++)
        any |= is_drained(n, i);
    return any;
}

/* How often the text of the loops names each value; 0: it is not computed. */
static void count_all_uses(const Nest *n)
{
    RowKernel *k = n->k;
    for (int i = 0; i < k->nnodes; i++)
        k->node[i].uses = 0;
    for (int i = 0; i < k->nsinks; i++)
        if (is_drained(n, i))
            source_of(&k->sink[i])->uses +=
                k->sink[i].operand ? count_uses(k->sink[i].node->op, 0) : uses_of_stored(k, k->sink[i].node);
    for (int i = k->nnodes - 1; i >= 0; i--) {
        Node *node = &k->node[i];
        node->uses += is_first_kept(n, node);
        if (!node->op || is_kept(n, node) || (!is_summed(n, node) && (!node->uses || !is_in_loops(n, node))))
            continue;
        for (int j = 0; j < node->op->args.count; j++)
            node->operand[j]->uses += is_copy(node) ? node->uses : count_uses(node->op, j);
    }
}

/* --- The row -------------------------------------------------------------------------------------- */

void add_scalars(Steps *to)
{
    for (Node *node = to->k->node; node < to->k->node + to->k->nnodes; node++)
        if (is_scalar(node) && node->is_wanted)
            add_step(to, (Step){ .kind = node->op ? STEP_LET : STEP_LOAD, .node = node });
}

/* Values with one element per row.  Sums have been started before the loop that adds to them. */
static void add_values(Steps *to, const Nest *n)
{
    for (Node *node = n->k->node; node < n->k->node + n->k->nnodes; node++)
        if (node->is_wanted && !is_in_loops(n, node) && node->phase == n->phase && !is_scalar(node) &&
            !node->is_reduction)
            add_step(to, (Step){ .kind = node->op ? STEP_LET : STEP_LOAD, .node = node });
}

static void add_sums(Steps *to, const Nest *n, StepKind kind)
{
    for (Node *node = n->k->node; node < n->k->node + n->k->nnodes; node++)
        if (is_summed(n, node))
            add_step(to, (Step){ .kind = kind, .node = node, .operand = node->operand[0] });
}

/* Stores are last: a result may have the storage of a parameter. */
static void add_sinks(Steps *to, const Nest *n)
{
    for (int stores = 0; stores <= 1; stores++)
        for (int i = 0; i < n->k->nsinks; i++) {
            Sink *sink = &n->k->sink[i];
            if (is_drained(n, i) && stores == !sink->operand)
                add_step(to, (Step){ .kind = stores ? STEP_STORE : STEP_ADD,
                                     .node = sink->node,
                                     .operand = sink->operand,
                                     .sink = sink });
        }
}

static void add_body(Steps *to, const Nest *n)
{
    count_all_uses(n);
    for (Node *node = n->k->node; node < n->k->node + n->k->nnodes; node++)
        if (node->uses && is_in_loops(n, node))
            add_step(to, (Step){ .kind = node->op && !is_kept(n, node) ? STEP_LET : STEP_LOAD,
                                 .node = node,
                                 .uses = node->uses });
    add_sums(to, n, STEP_ADD);
    for (Node *node = n->k->node; node < n->k->node + n->k->nnodes; node++)
        if (is_first_kept(n, node))
            add_step(to, (Step){ .kind = STEP_KEEP, .node = node });
    add_sinks(to, n);
}

static bool has_online(const Nest *n)
{
    bool any = false;
    for (const Node *node = n->k->node; node < n->k->node + n->k->nnodes; node++)
        any |= node->is_online && is_summed(n, node);
    return any;
}

/* The loops over a pack: the first finds the maxima of which the second subtracts what they are so far. */
static void add_packs(Steps *to, const Nest *n, Step row)
{
    Nest first = *n, last = *n;
    first.is_last = last.is_first = false;
    Steps row_body = add_loop(to, row);
    const Step pack = { .dims = n->dims, .runner = BY_PACK };
    Steps maxima = add_loop(&row_body, pack);
    add_body(&maxima, &first);
    for (Node *node = n->k->node; node < n->k->node + n->k->nnodes; node++)
        if (node->is_online && is_summed(n, node))
            add_step(&row_body, (Step){ .kind = STEP_RESCALE, .node = node, .operand = node->most });
    Steps sums = add_loop(&row_body, pack);
    add_body(&sums, &last);
    add_step(to, (Step){ .kind = STEP_COMBINE, .loop = maxima.loop });
    add_step(to, (Step){ .kind = STEP_COMBINE, .loop = sums.loop });
}

static void add_nest(Steps *to, const Nest *n, Step row)
{
    add_sums(to, n, STEP_START);
    row.dims = n->dims;
    if (has_online(n)) {
        add_packs(to, n, row);
        return;
    }
    Steps body = add_loop(to, row);
    add_body(&body, n);
    if (n->is_shared)
        add_step(to, (Step){ .kind = STEP_COMBINE, .loop = body.loop });
}

void add_row(Steps *to, const bool has[], Step row)
{
    RowKernel *k = to->k;
    Nest n = { .k = k, .has = has, .inner = row.dims, .is_shared = row.runner == BY_LANES };
    n.is_first = n.is_last = true;
    mark_wanted(k, has);
    for (Node *node = k->node; node < k->node + k->nnodes; node++)
        if (node->kept_from >= 0 && node->kept_array < 0 && node->is_wanted)
            add_step(to, (Step){ .kind = STEP_ROOM, .node = node });
    add_values(to, &n);
    for (int phase = 0; phase < k->nphases; phase++) {
        n.phase = phase;
        for (n.dims = n.inner; n.dims; n.dims = n.is_shared ? 0 : (n.dims - 1) & n.inner)
            if (is_needed(&n))
                add_nest(to, &n, row);
        n.phase = phase + 1;
        add_values(to, &n);
    }
    Steps once = add_loop(to, (Step){ .runner = row.runner });
    n.dims = 0;
    add_sinks(&once, &n);
}
