/* place.c -- which part of a split dim this rank has: variables of the program that are set when it starts.
 *
 *   static RtPart place_seq_8_over_cp;      the rank's part of seq begins with element place_seq_8_over_cp.first
 */
#include "names.h"

#include <inttypes.h>
#include <string.h>

const char *place_variable(Module *m, const Dim *dim)
{
    const char *axes = "";
    bool is_plain = !strstr(dim->name, "_over_"); /* can the name be read in one way only? */
    for (int i = 0; i < dim->split.count; i++) {
        is_plain &= !strchr(m->axis[dim->split.axis[i]], '_');
        axes = arena_text(&m->arena, "%s_%s", axes, m->axis[dim->split.axis[i]]);
    }
    const char *kind = dim->zigzag ? "zigzag" : "place";
    return hashed_identifier(m, arena_text(&m->arena, "%s_%s_%" PRId64 "_over%s", kind, dim->name, dim->padded, axes),
                             is_plain);
}

char *position_in_whole(Module *m, const Dim *dim, const char *index)
{
    if (dim->split.count == 0)
        return arena_text(&m->arena, "%s", index);
    const char *place = place_variable(m, dim);
    if (dim->zigzag)
        return arena_text(&m->arena, "rt_position(%s, %s)", place, index);
    return strcmp(index, "0") == 0 ? arena_text(&m->arena, "%s.first", place)
                                   : arena_text(&m->arena, "(%s.first + %s)", place, index);
}

char *split_initialiser(Module *m, const Dim *dim)
{
    char *axes = "";
    for (int i = 0; i < dim->split.count; i++)
        axes = arena_text(&m->arena, "%s%s%d", axes, i ? ", " : "", dim->split.axis[i]);
    return dim->split.count ? arena_text(&m->arena, "{ .count = %d, .axis = { %s }%s }", dim->split.count, axes,
                                         dim->zigzag ? ", .zigzag = true" : "")
                            : "{ .count = 0 }";
}

typedef struct {
    Module *m;
    const char *text;       /* of the program so far */
    int nseen, room, count; /* kinds of split dims; those of them that the text names */
    const Dim **seen;
    const char *storage;           /* "static", or CUDA's "__constant__" */
    FILE *declarations, *settings; /* NULL: only counted */
    FILE *table;                   /* of RtPartConstant; may be NULL */
} Places;

static bool same_place(const Dim *a, const Dim *b)
{
    return a->name == b->name && a->padded == b->padded && a->zigzag == b->zigzag && a->split.count == b->split.count &&
           memcmp(a->split.axis, b->split.axis, (size_t)a->split.count * sizeof *a->split.axis) == 0;
}

static void note_dim(Places *p, const Dim *dim)
{
    if (dim->split.count == 0)
        return;
    for (int i = 0; i < p->nseen; i++)
        if (same_place(p->seen[i], dim))
            return;
    if (p->nseen == p->room) {
        const Dim **more = NEW_ARRAY(&p->m->arena, const Dim *, p->room ? p->room *= 2 : (p->room = 32));
        for (int i = 0; i < p->nseen; i++)
            more[i] = p->seen[i];
        p->seen = more;
    }
    p->seen[p->nseen++] = dim;
    const char *name = place_variable(p->m, dim);
    if (!strstr(p->text, name))
        return;
    p->count++;
    if (p->table)
        fprintf(p->table, "    { \"%s\", %s, %" PRId64 " },\n", name, split_initialiser(p->m, dim), dim->padded);
    if (!p->declarations)
        return;
    fprintf(p->declarations, "%s RtPart %s;\n", p->storage, name);
    if (!p->settings)
        return;
    fprintf(p->settings, "    %s = rt_part(rt, (RtSplit)%s, %" PRId64 ");\n", name, split_initialiser(p->m, dim),
            dim->padded);
}

static void note_type(Places *p, const Type *type)
{
    for (int i = 0; i < type->rank; i++)
        note_dim(p, &type->dim[i]);
}

static void note_all(Places *p)
{
    for (const Func *f = p->m->funcs; f; f = f->next) {
        for (int i = 0; i < f->params.count; i++)
            note_type(p, &f->params.at[i]->type);
        for (const Op *op = f->first; op; op = op->next)
            for (int i = 0; i < op->results.count; i++)
                note_type(p, &op->results.at[i]->type);
    }
}

bool names_places(Module *m, const char *text)
{
    Places p = { .m = m, .text = text };
    note_all(&p);
    return p.count > 0;
}

void write_places(Module *m, const char *text, FILE *out)
{
    Text declarations, settings;
    if (!names_places(m, text))
        return;
    open_text(&declarations);
    open_text(&settings);
    Places p = {
        .m = m, .text = text, .storage = "static", .declarations = declarations.out, .settings = settings.out
    };
    note_all(&p);
    char *declared = close_text(&m->arena, &declarations), *set = close_text(&m->arena, &settings);
    fprintf(out,
            "/* --- Places: which part of a split dim this rank has --- */\n\n%s\nstatic void find_places(Rt "
            "*rt)\n{\n%s}\n\n",
            declared, set);
}

void write_place_constants(Module *m, const char *text, FILE *out)
{
    Places p = { .m = m, .text = text, .storage = "__constant__", .declarations = out };
    note_all(&p);
}

void write_place_table(Module *m, const char *text, FILE *out)
{
    Places p = { .m = m, .text = text, .table = out };
    if (!names_places(m, text))
        return;
    fputs("static const RtPartConstant parts[] = {\n", out);
    note_all(&p);
    fputs("};\n\n", out);
}
