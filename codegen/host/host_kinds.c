/* host_kinds.c -- places in frames that differ between kinds of ranks.
 *
 *   static const RtGap run_step_kinds_0[] = {
 *       { 4096, 512 }, { 0, 0 },
 *   };
 *   static const RtKinds run_step_kinds = {
 *       .axis = 1, .gap = (const RtGap *const[]){ run_step_kinds_0, run_step_kinds_0, run_step_kinds_2 },
 *   };
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
        if (frame->alike[kind] == kind)
            write_gaps(h, frame, name, kind);
        gaps = arena_text(&h->m->arena, "%s%s%s_%d", gaps, kind ? ", " : "", name, frame->alike[kind]);
    }
    FILL(h->frame_tables.out,
         "const RtKinds $name = {\n    .axis = $axis,\n    .gap = (const RtGap *const[]){ $gaps },\n};\n\n",
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
        if (frame->alike[kind] == kind && place_on(frame, kind, offset) != at)
            return arena_text(arena, "%s + rt_at(rt, &%s, %" PRId64 ")", base, kinds_name(h, f), offset);
    return at ? arena_text(arena, "%s + %" PRId64, base, at) : base;
}

/* `whole`, which counts the copies of the rank that has most, for those of this rank. */
static const char *of_own_copies(FuncText *t, const Type *type, int64_t whole)
{
    const Module *m = t->h->m;
    Arena *arena = &t->h->m->arena;
    const Dim *dim = type->rank ? &type->dim[0] : NULL;
    const char *parts = "";
    if (!dim || !dim->split.parts)
        return arena_text(arena, "%" PRId64, whole);
    for (int kind = 0; kind < t->h->kinds->count; kind++)
        parts = arena_text(arena, "%s%s%" PRId64, parts, kind ? ", " : "",
                           whole / local_size(m, dim) * part_size(m, dim, kind));
    return arena_text(arena, "(const int64_t[]){ %s }[%s]", parts, own_rank(t, t->h->kinds->axis));
}

const char *own_bytes(FuncText *t, const Type *type) { return of_own_copies(t, type, local_bytes(t->h->m, type)); }

const char *own_rows(FuncText *t, const Type *type, int64_t rows) { return of_own_copies(t, type, rows); }
