/* words.c -- words, options and axes in the statements of `parallel { }`. */
#include "parallel.h"

#include <string.h>

bool is_word(const char *const words[], const char *word, NearMiss *near)
{
    for (int i = 0; words[i]; i++) {
        offer(near, words[i]);
        if (strcmp(words[i], word) == 0)
            return true;
    }
    return false;
}

const char *word_list(Lower *l, const char *const words[])
{
    const char *list = words[0];
    for (int i = 1; words[i]; i++)
        list = arena_text(l->arena, "%s%s%s", list, words[i + 1] ? ", " : " or ", words[i]);
    return list;
}

const char *override_text(Lower *l, const char *option, const char *value)
{
    return arena_text(l->arena, "%s %s", option, value);
}

const char *read_word(Lower *l, const char *what, const char *const words[], const Ast *ast, const char *option,
                      const char *said)
{
    const char *word = said ? said : ast && (ast->kind == A_NAME || ast->kind == A_ZERO) ? ast->name : "";
    NearMiss near = { .name = word };
    if (is_word(words, word, &near))
        return word;
    const char *help = did_you_mean(l->arena, &near);
    help = help ? help : word_list(l, words);
    if (said)
        fail_command(l, override_text(l, option, said), help, "'%s' is not a valid %s", said, what);
    else
        complain(l, (Where){ .at = ast->kind == A_ZERO ? ast->name_loc : ast->loc, .help = help },
                 "%s is not a valid %s", quoted(l, ast), what);
    return NULL;
}

void note_policy(Lower *l, const char *name, const char *value, const Ast *ast, bool said)
{
    add_setting(l, name, value, "", said ? "command line" : ast ? where_text(l, ast->loc) : "default");
}

/* Rejects repeated options. */
void check_given_once(Lower *l, const Ast *options)
{
    for (const Ast *option = options; option; option = option->next)
        for (const Ast *before = options; before != option; before = before->next)
            if (strcmp(before->name, option->name) == 0)
                complain(l, (Where){ .at = option->loc }, "'%s' is already specified at %s", option->name,
                         position_text(l, before->loc));
}

/* --- Axes --------------------------------------------------------------------------------------- */

MeshAxis *find_axis(Layout *p, const char *name)
{
    for (int i = 0; i < p->naxes; i++)
        if (strcmp(p->axis[i].name, name) == 0)
            return &p->axis[i];
    return NULL;
}

/* That the axis which is meant is unused is the same mistake. */
const char *axis_help(Layout *p, const char *name, const char *new)
{
    NearMiss near = { .name = name };
    for (int i = 0; i < p->naxes; i++)
        offer(&near, p->axis[i].name);
    if (near.best)
        find_axis(p, near.best)->used = true;
    return near.best ? did_you_mean(p->l->arena, &near) : new;
}

MeshAxis *use_axis(Layout *p, const Ast *name)
{
    MeshAxis *axis = find_axis(p, name->name);
    if (axis)
        axis->used = true;
    else
        complain(p->l,
                 (Where){ .at = name->loc,
                          .help = axis_help(p, name->name, arena_text(p->l->arena, "mesh %s = 2", name->name)) },
                 "the mesh has no axis '%s'", name->name);
    return axis;
}

Axes axes_over(const Module *m, Name dim, bool otherwise)
{
    Axes axes = 0;
    for (const ShardRule *rule = m->rules; rule; rule = rule->next)
        if (has_name(&rule->dims, dim) || (otherwise && rule->otherwise == dim))
            axes |= 1u << rule->axis;
    return axes;
}

const Ast *only_statement(Layout *p, AstKind kind)
{
    const Ast *found = NULL;
    for (const Ast *ast = p->parallel ? p->parallel->body : NULL; ast; ast = ast->next) {
        if (ast->kind == kind && found)
            complain(p->l, (Where){ .at = ast->loc }, "already specified at %s", position_text(p->l, found->loc));
        else if (ast->kind == kind)
            found = ast;
    }
    return found;
}
