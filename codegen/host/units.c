/* units.c -- a trainer for processors as translation units: the functions, some kernels each, and the tables.
 *
 * What is static in trainer.c and used by several units is hidden in the program instead.  The tables have all that
 * changes most often: the learning rate, the options of mpc. */
#include "host_parts.h"

#include <string.h>

/* Compiling such a unit takes a third of a second, several times as long as starting the compiler and reading the
 * headers. */
enum { UNIT_BYTES = 32 << 10 };

/* The head of a kernel's function, without "static". */
static char *prototype(Module *m, const KernelText *kernel)
{
    const char *head = kernel->code + strlen("static ");
    return arena_text(&m->arena, "%.*s;\n", (int)strcspn(head, "{"), head);
}

static void open_unit(Text *unit, const FileParts *parts)
{
    open_text(unit);
    fprintf(unit->out, "%s#pragma GCC visibility push(hidden)\n", parts->includes);
}

/* A unit of kernels from *first on; *first is then the first of the next unit. */
static char *kernels_unit(Host *h, const FileParts *parts, int *first, int *line)
{
    Text unit;
    open_unit(&unit, parts);
    write_offset_declarations(h->m, &h->offsets, "extern", unit.out);
    fprintf(unit.out, "#line %d \"trainer.c\"\n", *line);
    size_t bytes = 0;
    for (; *first < h->nkernels && bytes < UNIT_BYTES; ++*first) {
        const KernelText *kernel = &h->kernel[*first];
        fprintf(unit.out, "%s%s\n", kernel->comment, kernel->code + strlen("static "));
        bytes += strlen(kernel->comment) + strlen(kernel->code);
        *line += count_lines(kernel->comment) + count_lines(kernel->code) + 1;
    }
    return close_text(&h->m->arena, &unit);
}

static char *functions_unit(Host *h, const FileParts *parts)
{
    Text unit;
    open_unit(&unit, parts);
    write_offset_declarations(h->m, &h->offsets, "extern", unit.out);
    for (int i = 0; i < h->nkernels; i++)
        fputs(prototype(h->m, &h->kernel[i]), unit.out);
    fprintf(unit.out, "#line %d \"trainer.c\"\n%s", parts->functions_line, parts->functions);
    return close_text(&h->m->arena, &unit);
}

/* The functions that the runtime calls, and the tables of their frames. */
static void declare_entries(Host *h, FILE *out)
{
    for (int i = 0; i < N_PROGRAMS; i++) {
        const Func *f = func_with_role(h->m, programs[i]);
        if (!f)
            continue;
        fprintf(out, "void %s(Rt *rt, char *arena);\n", host_func(h, f)->name);
        if (h->kinds->axis >= 0)
            fprintf(out, "extern const RtKinds %s;\n", kinds_of(h, f) + strlen("&"));
    }
}

static char *program_unit(Host *h, const FileParts *parts)
{
    Text unit;
    open_unit(&unit, parts);
    write_offsets(h->m, &h->offsets, "", unit.out);
    declare_entries(h, unit.out);
    fprintf(unit.out, "#line %d \"trainer.c\"\n%s", parts->products_line, parts->products);
    fprintf(unit.out, "#line %d \"trainer.c\"\n%s", parts->program_line, parts->program);
    return close_text(&h->m->arena, &unit);
}

Units units_of(Host *h, const FileParts *parts)
{
    Units units = { .text = NEW_ARRAY(&h->m->arena, const char *, h->nkernels + 2) };
    int line = parts->kernels_line + count_lines("/* --- Kernels --- */\n\n");
    units.text[units.count++] = functions_unit(h, parts);
    for (int first = 0; first < h->nkernels;)
        units.text[units.count++] = kernels_unit(h, parts, &first, &line);
    units.text[units.count++] = program_unit(h, parts);
    return units;
}
