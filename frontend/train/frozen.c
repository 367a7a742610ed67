/* frozen.c -- selects the parameters that are not trained: those declared `frozen`, those that match a pattern of
 * `freeze`, and those that match none of `trained`.
 *
 *   train {
 *       trained = "*.lora_a, *.lora_b"
 *   }
 *
 * A pattern is compared with the name as `mpc check` prints it, h.*.attn.wq: `*` stands for any text, also for the
 * number of a copy.  All copies of a parameter are frozen or none is: they are one tensor.
 */
#include "train.h"

#include <string.h>

/* Is `name` the pattern with something in place of each star? */
static bool matches(const char *pattern, const char *name)
{
    if (*pattern != '*')
        return *pattern == *name && (!*name || matches(pattern + 1, name + 1));
    return matches(pattern + 1, name) || (*name && matches(pattern, name + 1));
}

bool matches_any(const Pattern *pattern, const Param *param)
{
    for (; pattern; pattern = pattern->next)
        if (matches(pattern->text, param->path))
            return true;
    return false;
}

/* Of a list with commas; several stars in a row are one. */
static Pattern *split_list(Arena *arena, const char *list)
{
    Pattern *first = NULL, **last = &first;
    for (const char *rest = list; rest; rest = strchr(rest, ',') ? strchr(rest, ',') + 1 : NULL) {
        char *text = arena_text(arena, "%.*s", (int)strcspn(rest, ","), rest), *to = text;
        for (const char *from = text; *from; from++)
            if (*from != ' ' && !(*from == '*' && to > text && to[-1] == '*'))
                *to++ = *from;
        *to = '\0';
        *last = NEW(arena, Pattern);
        **last = (Pattern){ .text = text };
        last = &(*last)->next;
    }
    return first;
}

/* The pattern with a star in place of each number between dots: the copies of a repeat. */
static char *for_all_copies(Arena *arena, const char *pattern)
{
    char *text = arena_text(arena, "%s", pattern), *to = text;
    for (const char *from = pattern; *from;) {
        const size_t digits = from == pattern || from[-1] == '.' ? strspn(from, "0123456789") : 0;
        const bool is_number = digits && (from[digits] == '.' || !from[digits]);
        *to++ = is_number ? '*' : *from;
        from += is_number ? digits : 1;
    }
    *to = '\0';
    return text;
}

/* A pattern that matches nothing is a mistake. */
static void check_pattern(Lower *l, const Ast *list, const Pattern *pattern)
{
    const char *all = for_all_copies(l->arena, pattern->text), *help = NULL;
    NearMiss near = { .name = pattern->text };
    for (const Param *param = l->m->params; param; param = param->next) {
        if (matches(pattern->text, param->path))
            return;
        if (strcmp(all, pattern->text) != 0 && matches(all, param->path))
            help = arena_text(
                l->arena, "'%s' is of all copies, which are one tensor; some of them alone need a repeat of their own",
                all);
        offer(&near, param->path);
    }
    help = help ? help : did_you_mean(l->arena, &near);
    complain(l,
             (Where){ .at = list->name_loc.end ? list->name_loc : list->loc,
                      .help = help ? help : "`mpc check --verbose` prints the names; * is any text" },
             "'%s' matches no parameter", pattern->text);
}

const Pattern *list_patterns(Lower *l, const Ast *list)
{
    const Pattern *patterns = split_list(l->arena, list->name);
    for (const Pattern *pattern = patterns; pattern; pattern = pattern->next)
        check_pattern(l, list, pattern);
    return patterns;
}

/* The patterns of a setting; NULL: it is not given, or is wrong. */
static const Pattern *read_patterns(Lower *l, const char *key, const ValueOrigin *said)
{
    if (!said->value)
        return NULL;
    OtherText elsewhere;
    const Pattern *patterns = NULL;
    if (said->option)
        enter_other_text(l, &elsewhere, said->option, said->text);
    if (said->value->kind == A_STRING)
        patterns = list_patterns(l, said->value);
    else
        complain(l, (Where){ .at = said->value->loc, .help = "with commas; * is any text" },
                 "'%s' must be names of parameters in quotes", key);
    if (said->option)
        leave_other_text(l, &elsewhere);
    if (patterns)
        add_setting(l, arena_text(l->arena, "train.%s", key), said->value->name, "",
                    said->option ? "command line" : where_text(l, said->at));
    return patterns;
}

void freeze_params(Lower *l)
{
    const Pattern *freeze = read_patterns(l, "freeze", &l->optimizing->freeze),
                  *trained = read_patterns(l, "trained", &l->optimizing->trained);
    const Param *some = NULL, *frozen = NULL;
    for (Param *param = l->m->params; param; param = param->next) {
        param->frozen |= !param->state && (matches_any(freeze, param) || (trained && !matches_any(trained, param)));
        some = param->frozen || param->state ? some : param;
        frozen = param->frozen ? param : frozen;
    }
    for (const UpdateRule *ruled = l->noted.ruled; ruled; ruled = ruled->next)
        if (find_param(l->m, ruled->of)->frozen)
            complain(l, (Where){ .at = ruled->at, .help = "leave it out" },
                     "'%s' is frozen, so that no update changes it", find_param(l->m, ruled->of)->path);
    if (frozen && !some && !l->diags->errors)
        complain(l, (Where){ .at = l->model->name_loc, .help = "name fewer in freeze, or more in trained" },
                 "every parameter is frozen: there is nothing to train");
}
