/* row_nest.c -- what a nest of loops computes in one phase, for both targets: the values that sinks need, the sums and
 * stores of these loops, and how often their text names each value. */
#include "row.h"

static Node *source_of(const Sink *sink) { return sink->operand ? sink->operand : sink->node; }
bool is_scalar(const Node *node) { return !node->dims && !node->phase && !node->is_column; }
bool is_in_loops(const Nest *n, const Node *node) { return node->dims & n->inner; }

/* Do just these loops go through the elements of the node? */
static bool go_through(const Nest *n, const Node *node)
{
    return n->dims == ANY_DIMS ? is_in_loops(n, node) : (node->dims & n->inner) == n->dims;
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

bool is_summed(const Nest *n, const Node *node)
{
    return node->is_reduction && node->is_wanted && node->phase == n->phase + 1 &&
           go_through(n, find_node(n->k, arg(node->op, 0)));
}

bool is_drained(const Nest *n, int sink)
{
    const Sink *s = &n->k->sink[sink];
    return n->has[sink] && (n->all_phases || s->phase == n->phase) && go_through(n, source_of(s));
}

bool is_first_kept(const Nest *n, const Node *node)
{
    return node->kept_from == n->phase && node->kept_array < 0 && node->is_wanted && go_through(n, node);
}

bool is_needed(const Nest *n)
{
    bool any = false;
    for (int i = 0; i < n->k->nnodes; i++)
        any |= is_summed(n, &n->k->node[i]);
    for (int i = 0; i < n->k->nsinks; i++)
        any |= is_drained(n, i);
    return any;
}

void count_all_uses(const Nest *n)
{
    RowKernel *k = n->k;
    for (int i = 0; i < k->nnodes; i++)
        k->node[i].uses = 0;
    for (int i = 0; i < k->nsinks; i++)
        if (is_drained(n, i))
            find_node(k, source_of(&k->sink[i])->value)->uses +=
                k->sink[i].operand ? count_uses(k->sink[i].node->op, 0) : uses_of_stored(k, k->sink[i].node);
    for (int i = k->nnodes - 1; i >= 0; i--) {
        Node *node = &k->node[i];
        node->uses += is_first_kept(n, node);
        node->is_loaded = node->kept_from >= 0 && node->kept_from < n->phase;
        if (!node->op || node->is_loaded || (!is_summed(n, node) && (!node->uses || !is_in_loops(n, node))))
            continue;
        for (int j = 0; j < node->op->args.count; j++)
            find_node(k, arg(node->op, j))->uses += is_copy(node) ? node->uses : count_uses(node->op, j);
    }
}

/* --- Text that both targets have ------------------------------------------------------------------- */

void write_scalars(RowKernel *k, FILE *out)
{
    static const Region nowhere = { 0 };
    for (int i = 0; i < k->nnodes; i++)
        if (is_scalar(&k->node[i]) && k->node[i].is_wanted)
            write_node(k, &nowhere, &k->node[i], out);
}

void write_accumulators(const Nest *n, FILE *out)
{
    for (int i = 0; i < n->k->nnodes; i++) {
        const Node *node = &n->k->node[i];
        if (is_summed(n, node))
            FILL(out, "$type $name = $start;\n", { "type", local_type(node->value->type.dtype) },
                 { "name", node->name }, { "start", start_of(node) });
    }
}

const char *stored_text(const RowKernel *k, const Sink *sink)
{
    const Node *node = sink->node;
    return is_constant(node->op) ? c_number(k->m, node->op->attrs.value, !is_float(node->value->type.dtype))
                                 : node->text;
}

void write_result(const RowKernel *k, const Region *region, const Sink *sink, const char *text, FILE *out)
{
    const Array *array = &k->array[k->f->params.count + sink->result];
    write_store(k, array->value->type.dtype, array->name, index_text(k, region, array->dims, array->stride), text, out);
}
