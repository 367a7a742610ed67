/* host_kinds.c -- places in frames that differ between kinds of ranks, which are the stages of a pipeline.
 *
 *   static const RtGap run_step_kinds_0[] = {
 *       { 4096, 512 }, { 0, 0 },
 *   };
 *   static const RtKinds run_step_kinds = { .axis = 1, .gap = (const RtGap *const[]){ run_step_kinds_0,
 * run_step_kinds_1 } };
 *
 *   float *x = (float *)(arena + rt_at(rt, &run_step_kinds, 8192));
 *
 * What is at the same place on all of them is a number.
 */
#include "host_parts.h"

#include <inttypes.h>

static void write_gaps(Host *h, const KindFrame *frame, const char *name, int kind)
{
    enum { IN_ROW = 5 };
    FILE *out = h->frame_tables.out;
    fprintf(out, "static const RtGap %s_%d[] = {", name, kind);
    for (int i = 0; i <= frame->count[kind]; i++) {
        const Gap gap = i < frame->count[kind] ? frame->gap[kind][i] : (Gap){ 0 };
        fprintf(out, "%s{ %" PRId64 ", %" PRId64 " },", i % IN_ROW ? " " : "\n    ", gap.at, gap.bytes);
    }
    fputs("\n};\n", out);
}

static const char *kinds_name(Host *h, const Func *f)
{
    const KindFrame *frame = kind_frame(h->kinds, f);
    const char *name = map_get(&h->frames, frame), *gaps = "";
    if (name)
        return name;
    name = arena_text(&h->m->arena, "%s_kinds", function_name(h, f));
    map_put(&h->frames, frame, (void *)(uintptr_t)name);
    for (int kind = 0; kind < h->kinds->count; kind++) {
        write_gaps(h, frame, name, kind);
        gaps = arena_text(&h->m->arena, "%s%s%s_%d", gaps, kind ? ", " : "", name, kind);
    }
    FILL(h->frame_tables.out,
         "static const RtKinds $name = {\n    .axis = $axis,\n    .gap = (const RtGap *const[]){ $gaps },\n};\n\n",
         { "name", name }, { "axis", arena_text(&h->m->arena, "%d", h->kinds->axis) }, { "gaps", gaps });
    return name;
}

const char *kinds_of(Host *h, const Func *f)
{
    return h->kinds->axis < 0 ? "NULL" : arena_text(&h->m->arena, "&%s", kinds_name(h, f));
}

const char *in_frame_of(Host *h, const Func *f, const char *base, int64_t offset)
{
    Arena *arena = &h->m->arena;
    const KindFrame *frame = kind_frame(h->kinds, f);
    const int64_t at = place_on(frame, 0, offset);
    for (int kind = 1; kind < h->kinds->count; kind++)
        if (place_on(frame, kind, offset) != at)
            return arena_text(arena, "%s + rt_at(rt, &%s, %" PRId64 ")", base, kinds_name(h, f), offset);
    return at ? arena_text(arena, "%s + %" PRId64, base, at) : base;
}
