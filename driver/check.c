/* check.c -- mpc check: is a model right, and how large is it? */
#include "driver.h"

#include "codegen/facts.h"

#include <inttypes.h>

static void print_facts(Run *run, Module *m)
{
    Facts facts = program_facts(m);
    Arena *arena = &run->arena;
    printf("%s: ok: model %s, %s parameters in %d tensors, %.4g GFLOP a step of %s tokens (%s x %s)\n",
           run->source.path, m->name, grouped(arena, facts.parameters), facts.tensors, facts.flops / 1e9,
           grouped(arena, facts.micro * facts.batch * facts.seq), grouped(arena, facts.micro * facts.batch),
           grouped(arena, facts.seq));
}

int run_check(Run *run)
{
    Module *m = read_source(run, run->options->operand) ? lower_source(run, 0, NULL) : NULL;
    if (!m)
        return STATUS_FAILED;
    print_facts(run, m);
    free_module(m);
    return STATUS_OK;
}
