/* pipeline_names.c -- the repeats that `pipeline h, g over pp` names: by an instance in one or around it, or by the
 * const that is its number of copies. */
#include "parallel.h"

#include <string.h>

static const RepeatName *find_repeated(Layout *p, const Ast *ast)
{
    NearMiss near = { .name = ast->name };
    const RepeatName *found = NULL;
    for (const RepeatName *r = p->l->noted.repeated; r; r = r->next) {
        if (strcmp(r->name, ast->name) != 0) {
            offer(&near, r->name);
        } else if (found && found->whole != r->whole) {
            return complain(p->l,
                            (Where){ .at = ast->name_loc, .help = "name an instance that is in, or around, only one" },
                            "'%s' is in several repeats", ast->name),
                   NULL;
        } else if (!found || r->dim == r->whole) {
            found = r;
        }
    }
    if (found && found->dim == found->whole)
        return found;
    for (const RepeatName *r = p->l->noted.repeated; found && r; r = r->next) /* the name is one of a later run only */
        if (r->dim == found->whole)
            return r;
    if (p->is_model_wrong)
        return NULL;
    const char *any = p->l->noted.repeated ? arena_text(p->l->arena, "'%s' is one", p->l->noted.repeated->name)
                                           : "the model has no repeat with an instance: layer(x) as h";
    return complain(p->l, (Where){ .at = ast->name_loc, .help = near.best ? did_you_mean(p->l->arena, &near) : any },
                    "'%s' is neither an instance inside a repeat nor a repeat count", ast->name),
           NULL;
}

int place_in_model(const Module *m, Name copies)
{
    int place = 1;
    for (const Op *op = func_with_role(m, MODEL)->first; op; op = op->next, place++)
        if (op->attrs.dims.count && op->attrs.callee && op->attrs.dims.dim[0].name == copies)
            return place;
    return 0;
}

/* Repeats that share the stages follow each other in the model. */
static bool check_place(Layout *p, const Ast *ast, const Repeats *repeats, const RepeatName *next)
{
    Lower *l = p->l;
    const RepeatName *before = repeats->count ? repeats->at[repeats->count - 1] : NULL;
    const int place = p->is_model_wrong ? 1 : place_in_model(l->m, next->dim);
    if (!before || p->is_model_wrong)
        return true;
    if (!place || !place_in_model(l->m, before->dim))
        complain(l, (Where){ .at = ast->name_loc, .help = "name one repeat only" },
                 "the repeat of '%s' is inside another one, and cannot share stages",
                 place ? before->name : next->name);
    else if (place == place_in_model(l->m, before->dim))
        complain(l, (Where){ .at = ast->name_loc, .help = "name each repeat once" }, "'%s' and '%s' are of one repeat",
                 before->name, next->name);
    else if (place < place_in_model(l->m, before->dim))
        complain(l, (Where){ .at = ast->name_loc, .help = "name the repeats in the order of the model" },
                 "'%s' comes before '%s' in the model", next->name, before->name);
    else
        return true;
    return false;
}

/* The run of a repeat after this one; NULL: there is none.  Runs are listed last first, once for each name and function
 * of the model. */
static const RepeatName *run_after(const Module *m, const RepeatName *list, const RepeatName *run)
{
    const RepeatName *next = NULL;
    const int from = place_in_model(m, run->dim);
    for (const RepeatName *r = list; r; r = r->next)
        if (r->whole == run->whole && place_in_model(m, r->dim) > from &&
            (!next || place_in_model(m, r->dim) < place_in_model(m, next->dim)))
            next = r;
    return next;
}

bool check_repeats(Layout *p, const Ast *names, Repeats *repeats)
{
    Lower *l = p->l;
    *repeats = (Repeats){ .text = "" };
    for (const Ast *name = names; name; name = name->next) {
        const RepeatName *next = find_repeated(p, name);
        if (!next || !check_place(p, name, repeats, next))
            return false;
        repeats->text = arena_text(l->arena, "%s%s%s", repeats->text, *repeats->text ? ", " : "", next->name);
        for (; next; next = p->is_model_wrong ? NULL : run_after(l->m, l->noted.repeated, next)) {
            if (repeats->count == MAX_REPEATS)
                return complain(l, (Where){ .at = name->name_loc }, "a pipeline has at most %d repeats", MAX_REPEATS);
            repeats->at[repeats->count++] = next;
            repeats->copies += next->copies;
        }
    }
    return true;
}
