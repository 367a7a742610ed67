/* verify_passes.c -- checks that passes preserve results.  A small module is run through the interpreter before and
 * after each pass, on every virtual rank, in double precision, on the same weights, tokens and scalars; its observables
 * (observables.h) must agree.  After autodiff, gradients are compared with slopes of the loss (slopes.h).
 */
#include "observables.h"
#include "pass.h"
#include "slopes.h"

#include <stdlib.h>
#include <string.h>

/* The observables of a module, in each requested kind of numbers. */
typedef struct {
    bool exactly;
    Observables real, exact;
} BothObservables;

static bool find_both(Module *m, bool exactly, BothObservables *found)
{
    *found = (BothObservables){ .exactly = exactly };
    return find_observables(m, false, &found->real) && (!exactly || find_observables(m, true, &found->exact));
}

static void forget_both(BothObservables *observables)
{
    forget_observables(&observables->real);
    forget_observables(&observables->exact);
}

static bool is_same(Module *m, const Pass *pass, const Observables *before, const Observables *after, bool exact,
                    FILE *report)
{
    Difference difference;
    int at;
    if (same_observables(m, before, after, exact, &at, &difference))
        return true;
    fprintf(report, "mpc: pass '%s' changes the result%s: %s[%lld] was %.17g, is %.17g", pass->name,
            exact ? ", modulo a prime" : "", after->at[at].name, (long long)difference.at, difference.a, difference.b);
    if (!exact)
        fprintf(report, " (relative %.2g)", difference.by);
    fputc('\n', report);
    return false;
}

/* Runs the program after a pass and compares; the new observables replace `before`. */
static bool compare_observables(Module *m, const Pass *pass, BothObservables *before, FILE *report)
{
    BothObservables after;
    bool good = find_both(m, before->exactly, &after) && is_same(m, pass, &before->real, &after.real, false, report) &&
                is_same(m, pass, &before->exact, &after.exact, true, report);
    forget_both(before);
    *before = after;
    return good;
}

/* `text`: of the program, before and after. */
static bool verify_pass(Module *m, const Pass *pass, BothObservables *observables, char **text, FILE *report)
{
    Slopes slopes = { 0 };
    bool differentiates = func_with_role(m, MODEL) && strcmp(pass->name, "autodiff") == 0;
    char *before = *text;
    *text = NULL;
    bool good = !differentiates || find_slopes(m, &slopes);
    good = good && run_passes(m, &(PassOptions){ .only = pass->name, .before = before, .after = text });
    if (good && strcmp(before, *text) != 0) /* else it is the same program */
        good = compare_observables(m, pass, observables, report);
    if (good && differentiates)
        good = slopes_agree(m, &slopes, before, report);
    if (good)
        fprintf(report, "%-10s the same in %d tensors%s\n", pass->name, observables->real.count,
                observables->exactly ? ", exactly" : "");
    free(before);
    return good;
}

/* The observables, or why the program cannot be run: NULL, or the error, to be freed. */
static char *what_stops(Module *m, bool exact, Observables *observables)
{
    Diags *diags = m->diags, silent = *diags;
    char *why = NULL;
    size_t length;
    silent.out = open_memory(&why, &length);
    m->diags = &silent;
    bool good = find_observables(m, exact, observables);
    m->diags = diags;
    fclose(silent.out);
    if (!good)
        return why;
    free(why);
    return NULL;
}

static bool can_be_run(Module *m, Name *outside)
{
    Observables observables = { 0 };
    char *why = what_stops(m, false, &observables);
    *outside = observables.outside;
    forget_observables(&observables);
    free(why);
    return !why;
}

/* False if none is left that has more numbers; where no bound is known, two are drawn. */
static bool halve_vocabularies(Module *m, int64_t fewest)
{
    bool any = false;
    for (Input *input = m->inputs; input; input = input->next) {
        const int64_t vocab = input->vocab ? input->vocab : 2;
        if (input->type.dtype == I32 && vocab > fewest) {
            input->vocab = (vocab + 1) / 2;
            any = true;
        }
    }
    return any;
}

bool make_runnable(Module *m, int64_t fewest, Name *outside)
{
    do
        if (can_be_run(m, outside))
            return true;
    while (halve_vocabularies(m, fewest));
    return false;
}

/* A program may use operations that residues cannot represent: then only reals are compared, and the report gives the
 * reason. */
static bool find_exact(Module *m, Observables *observables, FILE *report)
{
    char *why = what_stops(m, true, observables);
    if (why) {
        fprintf(report, "not exact, since this cannot be modelled modulo a prime:\n%s", why);
        forget_observables(observables);
    }
    free(why);
    return !why;
}

bool verify_passes(Module *m, const VerifyOptions *options)
{
    BothObservables observables = { 0 };
    char *text = module_text(m);
    observables.exactly = options->exact && find_exact(m, &observables.exact, options->report);
    bool good = find_observables(m, false, &observables.real);
    for (int i = options->start_after ? find_pass(options->start_after) + 1 : 0; i < npasses && good; i++)
        if (is_listed(options->only, passes[i].name))
            good = verify_pass(m, &passes[i], &observables, &text, options->report);
    free(text);
    forget_both(&observables);
    return good;
}
