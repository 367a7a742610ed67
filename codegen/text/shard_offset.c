/* shard_offset.c -- this rank's part of a split dim, in variables set when the program starts.
 *
 *   static RtPart offset_seq_8_over_cp;      the rank's part of seq begins with element offset_seq_8_over_cp.first
 */
#include "names.h"

#include <inttypes.h>
#include <string.h>

const char *offset_variable(Module *m, const Dim *dim)
{
    const char *axes = "";
    bool is_plain = !strstr(dim->name, "_over_"); /* is the identifier unambiguous? */
    for (int i = 0; i < dim->split.count; i++) {
        is_plain &= !strchr(m->axis[dim->split.axis[i]], '_');
        axes = arena_text(&m->arena, "%s_%s", axes, m->axis[dim->split.axis[i]]);
    }
    const char *kind = dim->zigzag > 2    ? arena_text(&m->arena, "zigzag%d", dim->zigzag)
                       : dim->zigzag      ? "zigzag"
                       : dim->split.dealt ? arena_text(&m->arena, "dealt%d", dim->split.dealt)
                       : dim->split.parts ? "uneven"
                                          : "offset";
    const char *turned = dim->split.turn ? arena_text(&m->arena, "_turned_%d", dim->split.turn) : "";
    return hashed_identifier(
        m, arena_text(&m->arena, "%s_%s_%" PRId64 "_over%s%s", kind, dim->name, dim->padded, axes, turned), is_plain);
}

char *parts_initialiser(Module *m, const Dim *dim)
{
    char *parts = "";
    for (int64_t i = 0; i < split_count(m, dim->split); i++)
        parts = arena_text(&m->arena, "%s%s%" PRId64, parts, i ? ", " : "", part_size(m, dim, i));
    return arena_text(&m->arena, "(const int64_t[]){ %s }", parts);
}

char *split_initialiser(Module *m, const Dim *dim)
{
    char *axes = "";
    for (int i = 0; i < dim->split.count; i++)
        axes = arena_text(&m->arena, "%s%s%d", axes, i ? ", " : "", dim->split.axis[i]);
    if (dim->split.parts)
        return arena_text(&m->arena, "{ .count = 1, .axis = { %s }, .parts = %s%s }", axes, parts_initialiser(m, dim),
                          dim->split.reversed ? ", .reversed = true" : "");
    const char *turn = dim->split.turn ? arena_text(&m->arena, ", .turn = %d", dim->split.turn) : "";
    const char *zigzag = dim->zigzag ? arena_text(&m->arena, ", .zigzag = %d", dim->zigzag) : "";
    const char *dealt = dim->split.dealt ? arena_text(&m->arena, ", .dealt = %d", dim->split.dealt) : "";
    return dim->split.count ? arena_text(&m->arena, "{ .count = %d, .axis = { %s }%s%s%s }", dim->split.count, axes,
                                         zigzag, dealt, turn)
                            : "{ .count = 0 }";
}

/* --- Offsets used by a program -------------------------------------------------------------- */

static bool same_offset(const Dim *a, const Dim *b)
{
    return a->name == b->name && a->padded == b->padded && a->zigzag == b->zigzag && split_equal(a->split, b->split);
}

static bool is_noted(const ShardOffsets *offsets, const Dim *dim)
{
    for (int i = 0; i < offsets->count; i++)
        if (same_offset(&offsets->at[i], dim))
            return true;
    return false;
}

static void note_offset(Module *m, ShardOffsets *offsets, const Dim *dim)
{
    GROW(&m->arena, offsets->at, offsets->count, offsets->room);
    offsets->at[offsets->count++] = *dim;
}

const char *use_offset(Module *m, ShardOffsets *offsets, const Dim *dim)
{
    if (offsets && !is_noted(offsets, dim))
        note_offset(m, offsets, dim);
    return offset_variable(m, dim);
}

char *position_in_whole(Module *m, ShardOffsets *offsets, const Dim *dim, const char *index)
{
    if (dim->split.count == 0)
        return arena_text(&m->arena, "%s", index);
    const char *offset = use_offset(m, offsets, dim);
    if (dim->zigzag || dim->split.dealt || dim->split.parts)
        return arena_text(&m->arena, "rt_position(%s, %s)", offset, index);
    return strcmp(index, "0") == 0 ? arena_text(&m->arena, "%s.first", offset)
                                   : arena_text(&m->arena, "(%s.first + %s)", offset, index);
}

void write_offset_declarations(Module *m, const ShardOffsets *offsets, const char *storage, FILE *out)
{
    for (int i = 0; i < offsets->count; i++)
        fprintf(out, "%s%sRtPart %s;\n", storage, *storage ? " " : "", offset_variable(m, &offsets->at[i]));
}

void write_offsets(Module *m, const ShardOffsets *offsets, const char *storage, FILE *out)
{
    if (!offsets->count)
        return;
    fputs("/* --- Parts of split dims that this rank has --- */\n\n", out);
    write_offset_declarations(m, offsets, storage, out);
    fputs("\nstatic void find_offsets(Rt *rt)\n{\n", out);
    for (int i = 0; i < offsets->count; i++)
        fprintf(out, "    %s = rt_part(rt, (RtSplit)%s, %" PRId64 ");\n", offset_variable(m, &offsets->at[i]),
                split_initialiser(m, &offsets->at[i]), offsets->at[i].padded);
    fputs("}\n\n", out);
}

void write_offset_table(Module *m, const ShardOffsets *offsets, FILE *out)
{
    if (!offsets->count)
        return;
    fputs("static const RtPartConstant parts[] = {\n", out);
    for (int i = 0; i < offsets->count; i++)
        fprintf(out, "    { \"%s\", %s, %" PRId64 " },\n", offset_variable(m, &offsets->at[i]),
                split_initialiser(m, &offsets->at[i]), offsets->at[i].padded);
    fputs("};\n\n", out);
}
