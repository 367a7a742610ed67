/* place.c -- shard offsets: which part of a split dim this rank has, in variables that are set when the program starts.
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

char *split_initialiser(Module *m, const Dim *dim)
{
    char *axes = "";
    for (int i = 0; i < dim->split.count; i++)
        axes = arena_text(&m->arena, "%s%s%d", axes, i ? ", " : "", dim->split.axis[i]);
    return dim->split.count ? arena_text(&m->arena, "{ .count = %d, .axis = { %s }%s }", dim->split.count, axes,
                                         dim->zigzag ? ", .zigzag = true" : "")
                            : "{ .count = 0 }";
}

/* --- Those that a program names ------------------------------------------------------------- */

static bool same_place(const Dim *a, const Dim *b)
{
    return a->name == b->name && a->padded == b->padded && a->zigzag == b->zigzag && a->split.count == b->split.count &&
           memcmp(a->split.axis, b->split.axis, (size_t)a->split.count * sizeof *a->split.axis) == 0;
}

static bool is_noted(const Places *places, const Dim *dim)
{
    for (int i = 0; i < places->count; i++)
        if (same_place(&places->at[i], dim))
            return true;
    return false;
}

static void note_place(Module *m, Places *places, const Dim *dim)
{
    if (places->count == places->room) {
        Dim *more = NEW_ARRAY(&m->arena, Dim, places->room = places->room ? 2 * places->room : 16);
        for (int i = 0; i < places->count; i++)
            more[i] = places->at[i];
        places->at = more;
    }
    places->at[places->count++] = *dim;
}

const char *use_place(Module *m, const Dim *dim)
{
    if (m->places && !is_noted(m->places, dim))
        note_place(m, m->places, dim);
    return place_variable(m, dim);
}

char *position_in_whole(Module *m, const Dim *dim, const char *index)
{
    if (dim->split.count == 0)
        return arena_text(&m->arena, "%s", index);
    const char *place = use_place(m, dim);
    if (dim->zigzag)
        return arena_text(&m->arena, "rt_position(%s, %s)", place, index);
    return strcmp(index, "0") == 0 ? arena_text(&m->arena, "%s.first", place)
                                   : arena_text(&m->arena, "(%s.first + %s)", place, index);
}

void write_place_declarations(Module *m, const Places *places, const char *storage, FILE *out)
{
    for (int i = 0; i < places->count; i++)
        fprintf(out, "%s RtPart %s;\n", storage, place_variable(m, &places->at[i]));
}

void write_places(Module *m, const Places *places, FILE *out)
{
    if (!places->count)
        return;
    fputs("/* --- Places: which part of a split dim this rank has --- */\n\n", out);
    write_place_declarations(m, places, "static", out);
    fputs("\nstatic void find_places(Rt *rt)\n{\n", out);
    for (int i = 0; i < places->count; i++)
        fprintf(out, "    %s = rt_part(rt, (RtSplit)%s, %" PRId64 ");\n", place_variable(m, &places->at[i]),
                split_initialiser(m, &places->at[i]), places->at[i].padded);
    fputs("}\n\n", out);
}

void write_place_table(Module *m, const Places *places, FILE *out)
{
    if (!places->count)
        return;
    fputs("static const RtPartConstant parts[] = {\n", out);
    for (int i = 0; i < places->count; i++)
        fprintf(out, "    { \"%s\", %s, %" PRId64 " },\n", place_variable(m, &places->at[i]),
                split_initialiser(m, &places->at[i]), places->at[i].padded);
    fputs("};\n\n", out);
}
