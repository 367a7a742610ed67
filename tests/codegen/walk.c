/* walk.c -- walks the steps of row kernels, and compares what they compute with the interpreter.
 *
 *     walk FILE.mir...
 *
 * Each kernel is walked with the loops of C, and with lanes that share a row, as on a GPU, also with sums of
 * exponentials beside their maxima.  No text is involved: what differs is an error of codegen/kernel/ or of a planner,
 * not of a printer.  A result that the plan puts in the place of a parameter is there in the walk, too.
 */
#include "codegen/row/row.h"
#include "ir/interp/interp.h"
#include "ir/interp/interp_number.h"
#include "tests/codegen/files.h"

#include <float.h>
#include <math.h>

typedef struct {
    RowKernel *k;
    Tensor *args, *results;
    double *value;        /* by node: the latest, or the sum of a row */
    double *base;         /* by node: of a sum of exponentials that is added up beside their maximum */
    Tensor *kept;         /* by node: for later phases, or the sums of a column */
    int64_t at[MAX_RANK]; /* by dim of the space */
    int undefined;        /* values that were read before they were there */
} Walk;

static int number_of(const Walk *w, const Node *node) { return (int)(node - w->k->node); }

static int64_t position(const Walk *w, Name name)
{
    for (int i = 0; i < w->k->ndims; i++)
        if (w->k->dim[i].name == name)
            return w->at[i];
    return 0;
}

static double *element(const Walk *w, const Tensor *tensor, const Type *type)
{
    int64_t at = 0;
    for (int i = 0; i < type->rank; i++)
        at = at * type->dim[i].size + position(w, type->dim[i].name);
    return &tensor->data[at];
}

/* --- Values --------------------------------------------------------------------------------------- */

static double value_of(Walk *w, const Node *node)
{
    const double x = is_constant(node->op) ? node->op->attrs.value : w->value[number_of(w, node)];
    w->undefined += isnan(x);
    return x;
}

static double operand(Walk *w, const Node *node, int i) { return node->operand[i] ? value_of(w, node->operand[i]) : 0; }

static double dropped(Walk *w, const Node *node)
{
    int64_t stride[MAX_RANK] = { 0 }, at = 0;
    const Type *type = &node->value->type;
    const int64_t sequence = position_strides(w->k, type, stride);
    for (int i = 0; i < type->rank; i++)
        at += stride[i] * position(w, type->dim[i].name);
    if (w->k->m->batch && find_dim(type, w->k->m->batch) >= 0)
        at += sequence * (int64_t)operand(w, node, 2);
    const double rate = node->op->attrs.rate;
    const uint32_t key = (uint32_t)(int32_t)operand(w, node, 1);
    return is_dropped(key, (uint32_t)node->op->attrs.instance, (uint64_t)at, rate) ? 0
                                                                                   : operand(w, node, 0) / (1 - rate);
}

static double computed(Walk *w, const Node *node)
{
    const Op *op = node->op;
    if (info(op)->family == LEAF)
        return is_constant(op) ? op->attrs.value : (double)position(w, node->value->type.dim[0].name);
    if (info(op)->family == REDUCTION) /* over dims of one element */
        return operand(w, node, 0);
    return is_masking(op) ? dropped(w, node)
                          : number_map(&reals, op->kind, node->value->type.dtype, arg(op, 0)->type.dtype,
                                       operand(w, node, 0), operand(w, node, 1), operand(w, node, 2));
}

static double loaded(const Walk *w, const Node *node)
{
    const Tensor *from = !node->op              ? &w->args[node->array]
                         : node->kept_array < 0 ? &w->kept[number_of(w, node)]
                                                : &w->results[node->kept_array - w->k->f->params.count];
    return *element(w, from, &node->value->type);
}

/* --- Steps ---------------------------------------------------------------------------------------- */

static void walk(Walk *w, const Step *steps);

static void fill_tensor(const Tensor *tensor, double value)
{
    for (int64_t i = 0; i < element_count(&tensor->type); i++)
        tensor->data[i] = value;
}

/* Of lanes that share a value, the first one adds or stores it. */
static bool is_first(const Walk *w, const Step *step, const Node *node)
{
    bool first = true;
    const bool is_shared = step->loop && (step->loop->runner == BY_LANES || step->loop->runner == BY_PACK);
    for (int i = 0; i < w->k->ndims && is_shared; i++)
        first &= !(step->loop->dims >> i & 1) || node->dims >> i & 1 || w->at[i] == 0;
    return first;
}

static void walk_add(Walk *w, const Step *step)
{
    const Type *type = &step->node->value->type;
    double *sum =
        step->sink ? element(w, &w->kept[number_of(w, step->node)], type) : &w->value[number_of(w, step->node)];
    const double x =
        is_constant(step->operand->op) ? step->operand->op->attrs.value : w->value[number_of(w, step->operand)];
    if (is_first(w, step, step->operand))
        *sum = number_reduce(&reals, step->node->op->kind, type->dtype, *sum, x);
}

static void walk_store(Walk *w, const Step *step)
{
    const int node = number_of(w, step->node);
    const Type *type = &step->node->value->type;
    const double x = step->sink->operand ? *element(w, &w->kept[node], type) : value_of(w, step->node);
    if (is_first(w, step, step->node))
        *element(w, &w->results[step->sink->result], type) = x;
}

static void rescale(Walk *w, const Node *sum, double base)
{
    w->value[number_of(w, sum)] *= exp(w->base[number_of(w, sum)] - base);
    w->base[number_of(w, sum)] = base;
}

/* A pack is one element, that of the loop over the row. */
static void walk_loop(Walk *w, const Step *step, int dim)
{
    while (dim < w->k->ndims && (!(step->dims >> dim & 1) || step->runner == BY_PACK))
        dim++;
    if (dim == w->k->ndims) {
        walk(w, step->body);
        return;
    }
    for (w->at[dim] = 0; w->at[dim] < w->k->dim[dim].size; w->at[dim]++)
        walk_loop(w, step, dim + 1);
    w->at[dim] = 0;
}

static void walk_step(Walk *w, const Step *step)
{
    const int node = step->node ? number_of(w, step->node) : -1;
    switch (step->kind) {
    case STEP_LOAD:
        w->value[node] = loaded(w, step->node);
        break;
    case STEP_LET:
        w->value[node] = computed(w, step->node);
        break;
    case STEP_KEEP:
        if (!step->sink)
            *element(w, &w->kept[node], &step->node->value->type) = w->value[node];
        break;
    case STEP_START:
        w->value[node] = number_start(step->node->op->kind, step->node->value->type.dtype);
        w->base[node] = -DBL_MAX;
        if (step->sink)
            fill_tensor(&w->kept[node], w->value[node]);
        break;
    case STEP_ADD:
        walk_add(w, step);
        break;
    case STEP_RESCALE:
        rescale(w, step->node, fmax(w->value[number_of(w, step->operand)], -DBL_MAX));
        break;
    case STEP_COMBINE: /* there is one block, and one lane */
        if (step->sink)
            walk_store(w, step);
        for (const Step *add = step->loop ? step->loop->body : NULL; add; add = add->next)
            if (add->kind == STEP_ADD && add->node->is_online)
                rescale(w, add->node, w->value[number_of(w, add->node->most)]);
        break;
    case STEP_STORE:
        walk_store(w, step);
        break;
    case STEP_LOOP:
        walk_loop(w, step, 0);
        break;
    default:
        break;
    }
}

static void walk(Walk *w, const Step *steps)
{
    for (const Step *step = steps; step; step = step->next)
        walk_step(w, step);
}

/* --- Kernels -------------------------------------------------------------------------------------- */

/* One loop over rows, whose lanes share each: the plan of no target, but with the steps of CUDA. */
static void add_lanes(Steps *to, int region)
{
    RowKernel *k = to->k;
    const Region *r = &k->region[region];
    bool *has = NEW_ARRAY(&k->m->arena, bool, k->nsinks + 1);
    for (int i = 0; i < k->nsinks; i++)
        has[i] = k->sink[i].region == region;
    for (int i = 0; i < k->nsinks; i++)
        if (has[i] && k->sink[i].operand)
            add_step(to, (Step){ .kind = STEP_START, .node = k->sink[i].node, .sink = &k->sink[i] });
    Steps rows = add_loop(to, (Step){ .dims = r->dims & ~r->inner, .runner = BY_BLOCKS });
    add_row(&rows, has, (Step){ .dims = r->inner, .runner = BY_LANES });
    for (int i = 0; i < k->nsinks; i++)
        if (has[i] && k->sink[i].operand) {
            Steps elements = add_loop(to, (Step){ .dims = k->sink[i].node->dims });
            add_step(&elements, (Step){ .kind = STEP_COMBINE, .node = k->sink[i].node, .sink = &k->sink[i] });
        }
}

static void run_steps(Walk *w, bool by_lanes)
{
    Step *scalars = NULL;
    mark_wanted(w->k, NULL);
    add_scalars(&(Steps){ .k = w->k, .end = &scalars });
    walk(w, scalars);
    for (int i = 0; i < w->k->nregions; i++) {
        Step *steps = NULL;
        (by_lanes ? add_lanes : add_region)(&(Steps){ .k = w->k, .end = &steps }, w->k->region_order[i]);
        walk(w, steps);
    }
}

static bool is_equal(const Tensor *expected, const Tensor *got, const char *kernel, const char *way, Name name)
{
    const Difference d = tensor_difference(expected, got, 0);
    if (!(d.by <= 1e-9))
        printf("  %s, %s, %%%s: differs by %.3g at %lld: expected %.9g, got %.9g\n", kernel, way, name, d.by,
               (long long)d.at, d.a, d.b);
    return d.by <= 1e-9;
}

/* The memory of a result, or of a parameter that the plan puts in the same place. */
static Tensor result_memory(const Walk *w, const Op *call, int result)
{
    const Value *value = w->k->f->results.at[result];
    for (int i = 0; i < call->args.count; i++)
        if (arg(call, i)->storage->at == call->results.at[result]->storage->at)
            return (Tensor){ value->type, w->args[i].data };
    Tensor memory = new_tensor(&value->type);
    fill_tensor(&memory, NAN);
    return memory;
}

static const char *const ways[] = { "by vectors", "by lanes", "online" };
enum { BY_VECTORS_OF_C, LANES, ONLINE, N_WAYS };

static bool run_kernel(Module *m, const Func *kernel, const Op *call, int way)
{
    Tensor args[64], results[64], expected[64];
    Walk w = { .k = plan_for_c(m, kernel, call, false), .args = args, .results = results };
    if (way == ONLINE)
        plan_phases(w.k, true);
    w.value = NEW_ARRAY(&m->arena, double, w.k->nnodes);
    w.base = NEW_ARRAY(&m->arena, double, w.k->nnodes);
    w.kept = NEW_ARRAY(&m->arena, Tensor, w.k->nnodes);
    for (int i = 0; i < kernel->params.count; i++) {
        const bool is_integer = kernel->params.at[i]->type.dtype == I32;
        args[i] = random_tensor(kernel->params.at[i]->name, &kernel->params.at[i]->type, is_integer ? 1 : 0.1, 5);
    }
    if (!interpret(m, kernel, args, expected))
        return false;
    for (int i = 0; i < kernel->results.count; i++)
        results[i] = result_memory(&w, call, i);
    for (int i = 0; i < w.k->nnodes; i++) {
        w.value[i] = NAN;
        w.kept[i] = new_tensor(&w.k->node[i].value->type);
        fill_tensor(&w.kept[i], NAN);
    }
    run_steps(&w, way != BY_VECTORS_OF_C);
    bool good = !w.undefined;
    if (!good)
        printf("  %s, %s: %d values are read before they are computed\n", kernel->name, ways[way], w.undefined);
    for (int i = 0; i < kernel->results.count; i++)
        good &= is_equal(&expected[i], &results[i], kernel->name, ways[way], kernel->results.at[i]->name);
    for (int i = 0; i < kernel->results.count; i++)
        for (int j = 0; j < kernel->params.count; j++)
            if (results[i].data == args[j].data)
                results[i].data = NULL;
    free_tensors(args, kernel->params.count);
    free_tensors(results, kernel->results.count);
    free_tensors(w.kept, w.k->nnodes);
    free_tensors(expected, kernel->results.count);
    return good;
}

static bool run_file(Module *m, const char *directory)
{
    bool good = true;
    (void)directory;
    for (const Op *op = find_func(m, intern_text(m, "main"))->first; op; op = op->next) {
        const Func *kernel = row_kernel_of(m, op);
        for (int way = 0; kernel && way < N_WAYS; way++)
            good &= run_kernel(m, kernel, op, way);
    }
    return good && !m->diags->errors;
}

static void place_main(Module *m) { place_values(m, find_func(m, intern_text(m, "main"))); }

int main(int argc, char **argv) { return execute_files(argc, argv, &(Execution){ place_main, NULL, run_file }); }
