/* verify_passes.c -- checks that a pass preserves the result.  A small module is run through the interpreter before and
 * after each pass, on every virtual rank, in double precision, on the same weights, tokens and scalars; its observables
 * (meaning.h) must agree.  After autodiff, gradients are compared with slopes of the loss (slopes.h).
 */
#include "meaning.h"
#include "pass.h"
#include "slopes.h"

#include <stdlib.h>
#include <string.h>

/* What a module computes, in each kind of number that is asked for. */
typedef struct {
    bool exactly;
    Meaning real, exact;
} Meanings;

static bool find_meanings(Module *m, bool exactly, Meanings *found)
{
    *found = (Meanings){ .exactly = exactly };
    return find_meaning(m, false, &found->real) && (!exactly || find_meaning(m, true, &found->exact));
}

static void forget_meanings(Meanings *meanings)
{
    forget_meaning(&meanings->real);
    forget_meaning(&meanings->exact);
}

static bool is_same(const Pass *pass, const Meaning *before, const Meaning *after, bool exact, FILE *report)
{
    Difference difference;
    int at;
    if (same_meaning(before, after, exact, &at, &difference))
        return true;
    fprintf(report, "mpc: pass '%s' changes the result%s: %s[%lld] was %.17g, is %.17g", pass->name,
            exact ? ", modulo a prime" : "", after->at[at].name, (long long)difference.at, difference.a, difference.b);
    if (!exact)
        fprintf(report, " (relative %.2g)", difference.by);
    fputc('\n', report);
    return false;
}

/* Runs the program that a pass has left behind, and compares; what is found takes the place of what was before. */
static bool compare_meanings(Module *m, const Pass *pass, Meanings *before, FILE *report)
{
    Meanings after;
    bool good = find_meanings(m, before->exactly, &after) && is_same(pass, &before->real, &after.real, false, report) &&
                is_same(pass, &before->exact, &after.exact, true, report);
    forget_meanings(before);
    *before = after;
    return good;
}

static bool verify_pass(Module *m, const Pass *pass, Meanings *meanings, FILE *report)
{
    Slopes slopes = { 0 };
    bool differentiates = func_with_role(m, MODEL) && strcmp(pass->name, "autodiff") == 0;
    char *before = module_text(m);
    bool good = !differentiates || find_slopes(m, &slopes);
    good = good && run_passes(m, &(PassOptions){ .only = pass->name });
    char *after = module_text(m);
    if (good && strcmp(before, after) != 0) /* else it is the same program */
        good = compare_meanings(m, pass, meanings, report);
    if (good && differentiates)
        good = slopes_agree(m, &slopes, before, report);
    if (good)
        fprintf(report, "%-10s the same in %d tensors%s\n", pass->name, meanings->real.count,
                meanings->exactly ? ", exactly" : "");
    free(before);
    free(after);
    return good;
}

/* NULL if the program can be run, else what is wrong, to be freed. */
static char *what_stops(Module *m, bool exact)
{
    Diags *diags = m->diags, silent = *diags;
    char *why = NULL;
    size_t length;
    Meaning meaning = { 0 };
    silent.out = open_memory(&why, &length);
    m->diags = &silent;
    bool good = find_meaning(m, exact, &meaning);
    m->diags = diags;
    fclose(silent.out);
    forget_meaning(&meaning);
    if (!good)
        return why;
    free(why);
    return NULL;
}

bool can_be_run(Module *m)
{
    char *why = what_stops(m, false);
    free(why);
    return !why;
}

/* A program may do what residues cannot stand for: then reals have to do, and the report says why. */
static bool can_be_exact(Module *m, FILE *report)
{
    char *why = what_stops(m, true);
    if (why)
        fprintf(report, "not exact, since this cannot be modelled modulo a prime:\n%s", why);
    free(why);
    return !why;
}

bool verify_passes(Module *m, const VerifyOptions *options)
{
    Meanings meanings = { 0 };
    bool good = find_meanings(m, options->exact && can_be_exact(m, options->report), &meanings);
    for (int i = options->start_after ? find_pass(options->start_after) + 1 : 0; i < npasses && good; i++)
        if (is_listed(options->only, passes[i].name))
            good = verify_pass(m, &passes[i], &meanings, options->report);
    forget_meanings(&meanings);
    return good;
}
