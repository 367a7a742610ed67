/* slopes.c -- compares gradients with slopes of the loss.
 *
 * A gradient g of the loss l with respect to a parameter w is correct if the slope of l along u is the sum of u_i g_i,
 * for every u.  A wrong gradient fails for almost every u: one random direction per parameter reveals it, unless its
 * error is below rounding.
 *
 * Slopes are computed from the model before autodiff, in the interpreter's forward mode; gradients are those of the
 * step that autodiff builds, summed over micro-batches as for the optimizer.
 */
#include "slopes.h"

#include "mir/mir.h"
#include "observables.h"

#include <math.h>
#include <string.h>

typedef struct Slope {
    const Param *param;
    double slope;
} Slope;

/* Has it a gradient that is a slope?  The largest statistic of several micro-batches is no sum of theirs. */
static bool has_slope(const Param *param, const Func *model)
{
    return !param->frozen && !param->most && param_for(model, PORT_PARAM, param->name);
}

bool find_slopes(Module *m, Slopes *slopes)
{
    bool good = true;
    const Func *model = func_with_role(m, MODEL);
    *slopes = (Slopes){ 0 };
    for (const Param *param = m->params; param; param = param->next)
        slopes->count += has_slope(param, model);
    slopes->at = NEW_ARRAY(&m->arena, Slope, slopes->count + 1);
    Slope *next = slopes->at;
    for (const Param *param = m->params; param && good; param = param->next)
        if (has_slope(param, model)) {
            next->param = param;
            good = find_slope(m, param->name, &(Shaking){ 0 }, &next++->slope);
        }
    return good;
}

/* --- The total gradients ------------------------------------------------------------------------------ */

typedef struct {
    Module *m;
    const Slopes *slopes;
    double *given;      /* slopes by the gradients */
    double *terms;      /* the sum of the absolute values of its terms; -1: there is no gradient */
    const Op *infinite; /* the first of the forward pass with an infinite or NaN element; or NULL */
} GradientCheck;

static void note_infinite(GradientCheck *g, const Observation *seen)
{
    const Tensor *value = &seen->value;
    if (g->infinite || seen->func->forward || !is_float(value->type.dtype))
        return;
    for (int64_t i = 0; i < element_count(&value->type) && !g->infinite; i++)
        g->infinite = isfinite(value->data[i]) ? NULL : seen->op;
}

/* In fp16 they are multiplied by the loss scale. */
static void see_gradient(void *context, const Observation *seen)
{
    GradientCheck *g = context;
    note_infinite(g, seen);
    const Name callee = seen->op->attrs.callee;
    const Port port = callee ? result_port(find_func(g->m, callee), seen->result) : (Port){ 0 };
    if (seen->func->role != STEP || port.kind != PORT_GRADIENT)
        return;
    for (int i = 0; i < g->slopes->count; i++) {
        const Param *param = g->slopes->at[i].param;
        if (param->name != port.of)
            continue;
        Tensor way = direction_of(g->m, param->name, &seen->value.type);
        g->given[i] = g->terms[i] = 0;
        for (int64_t k = 0; k < element_count(&way.type); k++) {
            double term = way.data[k] * seen->value.data[k] / loss_scale_of(g->m);
            g->given[i] += term;
            g->terms[i] += fabs(term);
        }
        free_tensors(&way, 1);
    }
}

static bool find_given(Module *m, const Slopes *slopes, GradientCheck *given)
{
    *given = (GradientCheck){ m, slopes, NEW_ARRAY(&m->arena, double, slopes->count + 1),
                              NEW_ARRAY(&m->arena, double, slopes->count + 1), NULL };
    for (int i = 0; i < slopes->count; i++)
        given->terms[i] = -1;
    return watch_step(m, &(Observer){ see_gradient, given });
}

/* --- Comparing --------------------------------------------------------------------------------------------- */

/* The rounding error of a slope.  If terms cancel (a bias that adds the same number to all scores of a softmax), only
 * their rounding errors are left: see SHAKINGS.  The errors are of intermediate derivatives. */
static bool find_rounding(const char *before, const Slope *slope, double *rounding)
{
    Source source = { .path = "before", .text = before, .length = (int)strlen(before) };
    Diags diags = { .source = &source, .out = stderr };
    Module *m = parse_module(&source, &diags);
    bool good = diags.errors == 0;
    double shaken;
    *rounding = 0;
    for (int i = 1; i <= SHAKINGS && good; i++) {
        good = find_slope(m, slope->param->name, &(Shaking){ SHAKEN_BY, (uint64_t)i }, &shaken);
        *rounding = fmax(*rounding, rounding_after(fabs(shaken - slope->slope)));
    }
    free_module(m);
    return good;
}

/* If all terms cancel, the rest is rounding error, too: `nothing`, relative to the largest slope. */
static bool agrees(const Slope *slope, double given, double terms, double nothing, const char *before)
{
    double off = fabs(given - slope->slope), rounding;
    return off <= nothing || off <= 1e-9 * terms || (find_rounding(before, slope, &rounding) && off <= rounding);
}

static double largest(const Slopes *slopes)
{
    double largest = 0;
    for (int i = 0; i < slopes->count; i++)
        largest = isfinite(slopes->at[i].slope) ? fmax(largest, fabs(slopes->at[i].slope)) : largest;
    return largest;
}

static void report_no_number(const Param *param, const Op *infinite, FILE *report)
{
    fprintf(report,
            "mpc: the gradient of '%s' (%s) is not a number for these weights, though the loss has a slope: a value "
            "that 'where' does not select, or that is multiplied by 0, is infinite or NaN",
            param->name, param->where ? param->where : "");
    if (infinite)
        fprintf(report, ", as %%%s is (%s)", result(infinite)->name, infinite->where ? infinite->where : "");
    fputs("; keep it finite\n", report);
}

static bool compare_slope(const Slope *slope, double given, double terms, double nothing, const char *before,
                          const Op *infinite, FILE *report)
{
    const Param *param = slope->param;
    const char *where = param->where ? param->where : "";
    if (isfinite(slope->slope) && isfinite(given) && terms >= 0 && agrees(slope, given, terms, nothing, before))
        return true;
    if (!isfinite(slope->slope)) {
        fprintf(report, "not compared: the gradient of '%s' (%s), since it does not exist for these weights\n",
                param->name, where);
        return true;
    }
    if (!isfinite(given))
        report_no_number(param, infinite, report);
    else if (terms < 0)
        fprintf(report, "mpc: pass 'autodiff' gives no gradient of '%s' (%s)\n", param->name, where);
    else
        fprintf(report,
                "mpc: pass 'autodiff' gives a wrong gradient of '%s' (%s): along a random direction the loss changes "
                "by %.12g, the gradient says by %.12g\n",
                param->name, where, slope->slope, given);
    return false;
}

bool slopes_agree(Module *m, const Slopes *slopes, const char *before, FILE *report)
{
    GradientCheck given;
    if (!find_given(m, slopes, &given))
        return false;
    int wrong = 0;
    double nothing = 1e-14 * largest(slopes);
    for (int i = 0; i < slopes->count; i++)
        wrong +=
            !compare_slope(&slopes->at[i], given.given[i], given.terms[i], nothing, before, given.infinite, report);
    return wrong == 0;
}
