/* layout_text.c -- a layout as the text of a `parallel { }` block, and as a short name. */
#include "planner.h"

#include <string.h>

/* What the model says, as it says it. */
static const char *said(const Planner *p, Loc loc)
{
    return arena_text(p->arena, "%.*s", loc.end - loc.begin, p->layout_text + loc.begin);
}

static const char *mesh_line(Arena *arena, const Planner *p, const PlanLayout *layout)
{
    const char *text = "";
    for (int i = 0; i < p->naxes; i++)
        text = arena_text(arena, "%s%s %s = %lld", text, i ? "," : "", p->axis[i].name, (long long)layout->size[i]);
    return arena_text(arena, "    mesh %s\n", text);
}

const char *list_text(Arena *arena, const Ast *list)
{
    const char *text = "";
    for (const Ast *item = list; item; item = item->next)
        text = item->kind == A_PAIR ? arena_text(arena, "%s%s(%s, %s)", text, *text ? ", " : "", item->child->name,
                                                 item->child->next->name)
                                    : arena_text(arena, "%s%s%s", text, *text ? ", " : "", item->name);
    return text;
}

static const PlanAxis *axis_of(const Planner *p, const char *name, const PlanLayout *layout, int64_t *size)
{
    for (int i = 0; i < p->naxes; i++)
        if (strcmp(p->axis[i].name, name) == 0) {
            *size = layout->size[i];
            return &p->axis[i];
        }
    return NULL;
}

/* The options that the model gives, but those of these names. */
static const char *other_options(Arena *arena, const Planner *p, const Ast *options, const char *const names[])
{
    const char *text = "";
    for (const Ast *option = options; option; option = option->next) {
        bool is_replaced = false;
        for (int i = 0; names[i]; i++)
            is_replaced |= strcmp(option->name, names[i]) == 0;
        if (!is_replaced)
            text = arena_text(arena, "%s%s%s", text, *text ? ", " : "", said(p, option->loc));
    }
    return text;
}

static const char *shard_line(Arena *arena, const Planner *p, const PlanLayout *layout, const Ast *ast)
{
    static const char *const replaced[] = { "attend", "overlap", NULL };
    int64_t size = 1;
    const PlanAxis *axis = axis_of(p, ast->name, layout, &size);
    const char *options = other_options(arena, p, ast->type, replaced);
    const char *text = arena_text(arena, "    shard %s over %s", list_text(arena, ast->child), ast->name);
    if (ast->init)
        text = arena_text(arena, "%s else %s", text, ast->init->name);
    if (axis && axis->attends && size > 1)
        options = arena_text(arena, "attend = %s%s%s", attend_name[layout->attend], *options ? ", " : "", options);
    if (ast->init && size > 1 && layout->pieces > 1)
        options =
            arena_text(arena, "%soverlap = %d", *options ? arena_text(arena, "%s, ", options) : "", layout->pieces);
    return *options ? arena_text(arena, "%s (%s)\n", text, options) : arena_text(arena, "%s\n", text);
}

static const char *zero_line(Arena *arena, const Planner *p, const PlanLayout *layout, const Ast *ast)
{
    static const char *const replaced[] = { "overlap_grads", "overlap_params", "gather", NULL };
    const char *axes = "", *options = ast ? other_options(arena, p, ast->child, replaced) : "";
    for (int i = 0; i < p->naxes; i++)
        if (p->axis[i].is_zero)
            axes = arena_text(arena, "%s%s%s", axes, *axes ? ", " : "", p->axis[i].name);
    if (!*axes)
        return "";
    if (layout->zero >= 0)
        options = arena_text(arena, "%s%s%s", options, *options ? ", " : "",
                             layout->overlaps ? "overlap_grads, overlap_params"
                                              : "overlap_grads = false, overlap_params = false");
    return arena_text(arena, "    zero %d over %s%s%s%s\n", layout->zero < 0 ? 1 : layout->zero, axes,
                      *options ? " (" : "", options, *options ? ")" : "");
}

const char *layout_block(Arena *arena, const Planner *p, const PlanLayout *layout)
{
    const char *text = arena_text(arena, "parallel {\n%s", mesh_line(arena, p, layout));
    const Ast *zero = NULL;
    for (const Ast *ast = p->parallel->body; ast; ast = ast->next) {
        zero = ast->kind == A_ZERO ? ast : zero;
        text =
            arena_text(arena, "%s%s", text,
                       ast->kind == A_SHARD ? shard_line(arena, p, layout, ast) : schedule_line(arena, p, layout, ast));
    }
    return arena_text(arena, "%s%s    recompute %s\n%s}\n", text, zero_line(arena, p, layout, zero),
                      Recompute_words[layout->recompute],
                      p->offload ? arena_text(arena, "    offload %s\n", p->offload) : "");
}

const char *layout_name(Arena *arena, const Planner *p, const PlanLayout *layout)
{
    const char *text = "";
    for (int i = 0; i < p->naxes; i++)
        if (layout->size[i] > 1)
            text =
                arena_text(arena, "%s%s%s=%lld", text, *text ? "," : "", p->axis[i].name, (long long)layout->size[i]);
    return *text ? text : "one rank";
}
