/* machine.c -- finds a machine by name or file: `--machine h100`, `--machine my.machine`; and mpc check FILE.machine.
 */
#include "machine.h"

#include <string.h>

/* One that mpc has, unless the name is that of a file: with a slash or a dot in it. */
static const Source *find_machine(Run *run, const char *name)
{
    Arena *arena = &run->arena;
    NearMiss near = { .name = name };
    const char *text = strpbrk(name, "/.") ? NULL : shipped_machine(name, &near), *why;
    if (text) {
        Source *source = NEW(arena, Source);
        *source = (Source){ arena_text(arena, "%s.machine", name), text, (int)strlen(text) };
        return source;
    }
    const Source *source = read_text(run, name, &why);
    if (source)
        return source;
    const char *help = did_you_mean(arena, &near);
    report_error(
        stderr,
        help ? help
             : arena_text(arena, "mpc has %s; for another one write a file (docs/plan.md)", shipped_machines(arena)),
        "cannot read the machine %s: %s", name, why);
    run->diags.errors++;
    return NULL;
}

const Machine *read_machine(Run *run, const char *name)
{
    const Source *source = find_machine(run, name);
    if (!source)
        return NULL;
    Source own = *source;
    Diags diags = { .arena = &run->arena, .source = &own, .out = stderr };
    const Machine *machine = parse_machine(&run->arena, &diags);
    run->diags.errors += diags.errors;
    return machine;
}

int check_machine(Run *run)
{
    Arena *arena = &run->arena;
    const Machine *machine = read_machine(run, run->options->operand);
    if (!machine)
        return STATUS_FAILED;
    printf("%s: ok: %s: %s on a machine, with %s each; products %s/s in bf16\n", run->options->operand,
           machine->line[LINE_name].text, counted(arena, ranks_of_machine(machine), "rank"),
           bytes_text(arena, machine_memory(machine)), flops_text(arena, machine_flops(machine, BF16)));
    return STATUS_OK;
}
