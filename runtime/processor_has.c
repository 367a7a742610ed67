/* processor_has.c -- see processor_has.h. */
#include "processor_has.h"

#include "processor_features.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    unsigned leaf, subleaf, word, bit, state;
} Feature;

#define ROW(macro, name, leaf, subleaf, word, bit, state) { (name), (leaf), (subleaf), (word), (bit), (state) },
static const Feature features[] = { RT_PROCESSOR_FEATURES(ROW){ 0 } };

#ifdef __x86_64__
#include <cpuid.h>

/* The kinds of registers that the system keeps. */
static unsigned kept_registers(void)
{
    enum { OSXSAVE = 1 << 27 };
    unsigned word[4] = { 0 }, low = 0, high = 0;
    if (__get_cpuid(1, &word[0], &word[1], &word[2], &word[3]) && (word[2] & OSXSAVE))
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool has(const Feature *feature)
{
    unsigned word[4] = { 0 };
    return __get_cpuid_count(feature->leaf, feature->subleaf, &word[0], &word[1], &word[2], &word[3]) &&
           (word[feature->word] >> feature->bit & 1) && (kept_registers() & feature->state) == feature->state;
}
#else
/* "Features : fp asimd sve ...", of the first processor.  Without such a line, nothing is known, and nothing refused.
 */
static bool has(const Feature *feature)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char *line = NULL, *word = NULL;
    size_t room = 0;
    bool is_listed = false, has_list = false;
    while (file && !has_list && getline(&line, &room, file) > 0)
        has_list = !strncmp(line, "Features", 8);
    for (char *at = has_list ? line : NULL; !is_listed && (word = strtok(at, " \t\n")); at = NULL)
        is_listed = !strcmp(word, feature->name);
    if (file)
        fclose(file);
    free(line);
    return is_listed || !has_list;
}
#endif

bool rt_processor_has(const char *name)
{
    const Feature *feature = features;
    while (feature->name && strcmp(feature->name, name))
        feature++;
    return feature->name && has(feature);
}
