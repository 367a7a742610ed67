/* ends.c -- do all passes together preserve the results of a program?  As mpc opt --verify-passes, which compares them
 * after each pass, but only at the ends: before autodiff, behind it, where gradients are compared with slopes, and
 * after the last pass, in the form that runs.  What a pass does wrong is still wrong there, unless a later one makes it
 * right again.
 *
 *   ends FILE.mir      says how many results are the same, or, with status 1, what differs
 */
#include "manager/observables.h"
#include "manager/pass.h"
#include "manager/slopes.h"

#include <stdlib.h>
#include <string.h>

static bool fail(const char *path, const char *why)
{
    fprintf(stderr, "ends: %s: %s\n", path, why);
    return false;
}

static char *read_text(const char *path)
{
    FILE *in = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;
    const bool good = in && getdelim(&text, &size, '\0', in) >= 0;
    if (in)
        fclose(in);
    return good ? text : NULL;
}

/* Of the passes from one up to another, which `run_passes` takes with commas. */
static bool run_from(Module *m, int first, int end)
{
    char names[1024] = "";
    for (int i = first; i < end; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i > first ? "," : "", passes[i].name);
    return run_passes(m, &(PassOptions){ .only = names });
}

/* The results of the module, which must be those of `before`; they replace these. */
static bool same_results(Module *m, Observables *before, const char *where)
{
    Observables after = { 0 };
    Difference difference;
    int at;
    if (!find_observables(m, false, &after))
        return fail(where, "it cannot be run");
    const bool same = same_observables(m, before, &after, false, &at, &difference);
    if (!same)
        fprintf(stderr, "ends: %s: %s[%lld] was %.17g, is %.17g (relative %.2g)\n", where, after.at[at].name,
                (long long)difference.at, difference.a, difference.b, difference.by);
    forget_observables(before);
    *before = after;
    return same;
}

static bool differentiates(Module *m, int autodiff)
{
    Slopes slopes = { 0 };
    char *before = module_text(m);
    const bool good =
        find_slopes(m, &slopes) && run_from(m, autodiff, autodiff + 1) && slopes_agree(m, &slopes, before, stderr);
    free(before);
    return good;
}

static bool preserves(Module *m)
{
    const int autodiff = find_pass("autodiff");
    Observables results = { 0 };
    const bool good = (find_observables(m, false, &results) || fail("the program", "it cannot be run")) &&
                      run_from(m, 0, autodiff) && differentiates(m, autodiff) &&
                      same_results(m, &results, "autodiff") && run_from(m, autodiff + 1, npasses) &&
                      same_results(m, &results, "the last pass");
    if (good)
        printf("the same in %d tensors\n", results.count);
    forget_observables(&results);
    return good;
}

int main(int argc, char **argv)
{
    char *text = argc == 2 ? read_text(argv[1]) : NULL;
    if (!text) {
        fprintf(stderr, "ends FILE.mir: %s\n", argc == 2 ? "cannot read it" : "one file is needed");
        return 1;
    }
    Source source = { .path = argv[1], .text = text, .length = (int)strlen(text) };
    Diags diags = { .source = &source, .out = stderr };
    Module *m = parse_module(&source, &diags);
    const bool good = diags.errors == 0 && verify_module(m) && preserves(m);
    free_module(m);
    free(text);
    return !good;
}
