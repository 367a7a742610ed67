/* names.c -- the names of a text: where they are declared and used, and questions about them. */
#include "resolve.h"

#include <string.h>

/* --- Names and mentions ------------------------------------------------------------------------- */

Mention *add_mention(Walk *w, MentionKind kind, Loc at, const char *name, Declaration *of)
{
    NameTable *names = w->names;
    GROW(names->arena, names->mention, names->count, names->room);
    Mention *mention = &names->mention[names->count++];
    *mention = (Mention){ .kind = kind, .at = at, .name = name, .of = of };
    return mention;
}

Declaration *find_name(const Level *level, const char *name, int kinds)
{
    for (; level; level = level->outer)
        for (Declaration *n = level->newest; n; n = n->before)
            if (kinds & 1 << n->kind && strcmp(n->name, name) == 0)
                return n;
    return NULL;
}

void declares(Walk *w, Loc at, Declaration *named)
{
    Mention *mention = add_mention(w, M_DECLARES, at, named->name, named);
    mention->since = w->statement ? w->statement->loc.end : at.end;
    mention->has_type = w->statement && (w->statement->type || w->statement->kind == A_YIELD);
}

Declaration *declare_name(Walk *w, Level *level, NameKind kind, const char *name, Loc at, const Ast *declared)
{
    Declaration *named = NEW(w->names->arena, Declaration);
    *named = (Declaration){ .kind = kind,
                            .name = name,
                            .at = at,
                            .scope = level->range,
                            .declared = declared,
                            .holder = w->holder,
                            .older = w->names->newest,
                            .before = level->newest };
    level->newest = w->names->newest = named;
    declares(w, at, named);
    return named;
}

bool use_name(Walk *w, const char *name, Loc at, int kinds)
{
    Declaration *of = find_name(w->level, name, kinds);
    if (of)
        add_mention(w, M_USES, at, name, of);
    return of != NULL;
}

void use_dim(Walk *w, const char *name, Loc at)
{
    if (!use_name(w, name, at, DIMS) && w->in_optimizer)
        add_mention(w, M_WORD, at, name, NULL); /* `in` and its like */
}

void use_list(Walk *w, const Ast *list, int kinds)
{
    for (const Ast *ast = list; ast; ast = ast->next)
        if (ast->kind == A_PAIR)
            use_list(w, ast->child, kinds);
        else if (ast->name)
            use_name(w, ast->name, ast->loc, kinds);
}

void use_dims(Walk *w, const Ast *list)
{
    for (const Ast *ast = list; ast; ast = ast->next)
        use_dim(w, ast->name, ast->loc);
}

void use_or_make_dim(Walk *w, const Ast *ast)
{
    const Declaration *of = ast->name ? find_name(w->level, ast->name, DIMS) : NULL;
    if (ast->name && (!of || of->at.begin != ast->name_loc.begin))
        use_dim(w, ast->name, ast->name_loc);
}

void assign(Walk *w, Level *level, const char *name, Loc at)
{
    Declaration *named = find_name(level, name, ANY_VALUE);
    if (!named)
        declare_name(w, level, N_VALUE, name, at, w->statement);
    else if (LOCALS & 1 << named->kind)
        declares(w, at, named);
    else
        add_mention(w, M_USES, at, name, named); /* an error */
}

/* --- Questions ---------------------------------------------------------------------------------- */

const Mention *mention_at(const NameTable *names, int offset)
{
    int first = 0, behind = names->count;
    while (first < behind) { /* the first that ends at the offset or later */
        const int middle = (first + behind) / 2;
        if (names->mention[middle].at.end < offset)
            first = middle + 1;
        else
            behind = middle;
    }
    const Mention *mention = first < names->count ? &names->mention[first] : NULL;
    if (mention && mention->at.end == offset && first + 1 < names->count && mention[1].at.begin == offset)
        mention++;
    return mention && mention->at.begin <= offset ? mention : NULL;
}

const Declaration *same_name(const NameTable *names, const Declaration *named)
{
    const Declaration *other = names->newest;
    while (other && (other->kind != named->kind || strcmp(other->name, named->name) != 0 ||
                     strcmp(other->holder, named->holder) != 0))
        other = other->older;
    return other;
}

Loc definition_of(const NameTable *names, const Mention *mention)
{
    const Mention *found = mention->kind == M_DECLARES ? mention : NULL;
    for (int i = 0; i < names->count && mention->kind == M_USES; i++) {
        const Mention *other = &names->mention[i];
        const bool is_before =
            other->of == mention->of && other->kind == M_DECLARES && other->since <= mention->at.begin;
        if (is_before && (!found || other->since >= found->since))
            found = other;
    }
    return found ? found->at : mention->of->at;
}
