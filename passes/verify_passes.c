/* verify_passes.c -- does a pass keep the meaning?  A small module is run through the interpreter before and
 * after each pass, on every virtual rank, in double precision, on the same weights, tokens and scalars; what
 * it computes (meaning.h) has to stay.  Where autodiff brings the step, its gradient is compared with the slope
 * of the loss along a random direction.
 */
#include "meaning.h"
#include "pass.h"

#include <math.h>
#include <string.h>

/* Central differences lose about h^2 and rounding / h: 1e-6 of the slope is above both for one of these steps, and
 * the shortest hardly ever reaches across a kink (of max, of relu). */
enum { SLOPES = 3 };
static const double step_length[SLOPES] = { 1e-5, 1e-6, 1e-7 };

static bool find_slopes(Module *m, double slope[SLOPES])
{
    bool good = true;
    for (int i = 0; i < SLOPES && good; i++)
        good = find_slope(m, step_length[i], &slope[i]);
    return good;
}

static bool slopes_agree(Module *m, const double slope[SLOPES], const Meaning *after, FILE *report)
{
    double gradient = slope_of_step(m, after);
    for (int i = 0; i < SLOPES; i++)
        if (fabs(gradient - slope[i]) <= 1e-6 * (fabs(slope[i]) + 1e-3))
            return true;
    fprintf(report, "mpc: the gradient is wrong: along a random direction it gives %.12g, the loss changes by %.12g\n",
            gradient, slope[SLOPES / 2]);
    return false;
}

static bool report_change(const Pass *pass, const Meaning *after, int at, Difference difference, FILE *report)
{
    fprintf(report, "mpc: pass '%s' changes the meaning: %s[%lld] was %.17g, is %.17g (relative %.2g)\n", pass->name,
            after->at[at].name, (long long)difference.at, difference.a, difference.b, difference.by);
    return false;
}

static bool verify_pass(Module *m, const Pass *pass, Meaning *before, FILE *report)
{
    Meaning after = { 0 };
    Difference difference;
    double slope[SLOPES] = { 0 };
    int at;
    bool differentiates = func_with_role(m, MODEL) && strcmp(m->train.optimizer, "adamw") == 0;
    bool good = !differentiates || strcmp(pass->name, "autodiff") != 0 || find_slopes(m, slope);
    good = good && run_passes(m, &(PassOptions){ .only = pass->name }) && find_meaning(m, &after);
    if (good && !same_meaning(before, &after, &at, &difference))
        good = report_change(pass, &after, at, difference, report);
    if (good && differentiates && !func_with_role(m, MODEL))
        good = slopes_agree(m, slope, &after, report);
    if (good)
        fprintf(report, "%-10s the same in %d tensors\n", pass->name, after.count);
    forget_meaning(before);
    *before = after;
    return good;
}

bool verify_passes(Module *m, const VerifyOptions *options)
{
    Meaning meaning = { 0 };
    bool good = find_meaning(m, &meaning);
    for (int i = options->start_after ? find_pass(options->start_after) + 1 : 0; i < npasses && good; i++)
        if (is_listed(options->only, passes[i].name))
            good = verify_pass(m, &passes[i], &meaning, options->report);
    forget_meaning(&meaning);
    return good;
}
