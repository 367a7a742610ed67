/* instructions.c -- refuses a processor without the instructions that the trainer is compiled with.  Else it would end
 * with SIGILL somewhere in its first step. */
#include "instructions.h"

#include "processor_features.h"
#include "processor_has.h"
#include "state.h"

#include <stddef.h>

#define NAME(macro, name, leaf, subleaf, word, bit, state) name,
static const char *const features[] = { RT_PROCESSOR_FEATURES(NAME) NULL };

#ifdef __x86_64__
static const char for_most[] = "x86-64-v3";
#else
static const char for_most[] = "armv8.2-a";
#endif

void rt_instructions_check(const RtProgram *program)
{
    char *lacking = NULL;
    for (unsigned i = 0; features[i]; i++)
        if (((program->needed && program->needed[i]) || rt_needed[i]) && !rt_processor_has(features[i])) {
            if (lacking)
                rt_append(&lacking, ", %s", features[i]);
            else
                lacking = rt_text("%s", features[i]);
        }
    if (lacking)
        rt_fail(
            "this processor lacks what the trainer is compiled for: %s; compile the model on this machine, or for a "
            "processor that all machines are (mpc compile --march=%s, for instance)",
            lacking, for_most);
}
