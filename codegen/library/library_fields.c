/* library_fields.c -- the initialisers of shape arguments of the runtime's kernels. */
#include "library.h"
#include "templates.h"

#include <inttypes.h>
#include <string.h>

/* Lines of an initialiser. */
void put_number(Text *fields, const char *name, int64_t value)
{
    fprintf(fields->out, ".%s = %" PRId64 ",\n", name, value);
}

void put_text(Text *fields, const char *name, const char *value) { fprintf(fields->out, ".%s = %s,\n", name, value); }

void put_flag(Text *fields, const char *name, bool value) { put_text(fields, name, value ? "true" : "false"); }

void put_strides(const Operands *o, Text *fields, int operand, const char *name, int shown, Access loops)
{
    check_operand(o, operand, &loops);
    fprintf(fields->out, ".%s = { ", name);
    for (int i = 0; i < shown; i++)
        fprintf(fields->out, "%s%" PRId64, i ? ", " : "", loops.stride[i]);
    fputs(" },\n", fields->out);
}

char *call_with_shape(const Operands *o, const char *type, const char *function, const char *operands, Text *fields)
{
    return FILLED(&o->m->arena, library_call_template, { "type", type }, { "fields", close_text(&o->m->arena, fields) },
                  { "function", arena_text(&o->m->arena, "%s%s", function, o->variant) }, { "operands", operands });
}

/* Without a division where there is one period at most; else by a constant. */
void put_part(const Operands *o, Text *fields, const Dim *dim, const char *name)
{
    if (dim->split.count == 0)
        return;
    Module *m = o->m;
    const char *of = use_offset(m, o->offsets, dim);
    const char *text = arena_text(&m->arena, "{ .first = %s.first }", of);
    if (dim->zigzag)
        text = arena_text(&m->arena, "{ %s.first, %s.jump_from, %s.jump, %s.begin }", of, of, of, of);
    if (dim->zigzag > 2 || dim->split.dealt)
        text = arena_text(&m->arena, "{ %s.first, %s.jump_from, %s.jump, %s.begin, %" PRId64 ", %s.skip }", of, of, of,
                          of, (dim->zigzag ? 2 : 1) * dim->padded / dealt_blocks(m, dim), of);
    put_text(fields, name, text);
}

void put_dim(const Operands *o, Text *fields, const Dim *dim)
{
    const char *name = arena_text(&o->m->arena, "%.*s", (int)strcspn(dim->name, "."), dim->name);
    put_text(fields, "dim", string_text(o->m, name));
}

/* The bound of an index, and the error text for larger ones. */
void put_bound(const Operands *o, Text *fields, const Dim *dim)
{
    put_number(fields, "size", dim->size);
    put_dim(o, fields, dim);
    put_text(fields, "where", string_text(o->m, o->op->where ? o->op->where : "?"));
}
