/* remark.c -- remarks: printed to where diagnostics go. */
#include "remark.h"

#include <stdarg.h>
#include <string.h>

bool tells_remarks(const Module *m)
{
    const Remarks *remarks = &m->diags->remarks;
    return remarks->of && (strcmp(remarks->of, "all") == 0 || strcmp(remarks->of, remarks->pass) == 0);
}

void remark(Module *m, const Op *op, const char *format, ...)
{
    if (!tells_remarks(m))
        return;
    m->diags->remarks.count++;
    va_list args;
    va_start(args, format);
    Arena arena = { 0 };
    const char *text = arena_vtext(&arena, format, args);
    va_end(args);
    print_visible(m->diags->out, arena_text(&arena, "%s: remark: %s: %s: %s", op && op->where ? op->where : m->name,
                                            m->diags->remarks.pass, op && op->path ? op->path : "", text));
    fputc('\n', m->diags->out);
    arena_free(&arena);
}
