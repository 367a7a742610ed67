/* choices.c -- settings that are one of several names with arguments: cosine(warmup = 700), adamw(lr = 1e-3). */
#include "settings.h"

#include <math.h>
#include <string.h>

const char *read_choice_name(Lower *l, Choice *choice, const char *otherwise)
{
    const Ast *ast = choice->said->value;
    const char *list = "", *name = ast && (ast->kind == A_CALL || ast->kind == A_NAME) ? ast->name : "";
    NearMiss near = { .name = name };
    OtherText elsewhere;
    choice->name = ast ? NULL : otherwise;
    for (int i = 0; ast && i < choice->n; i++) {
        list = arena_text(l->arena, "%s%s%s", list, *list ? ", " : "", choice->names[i]);
        offer(&near, choice->names[i]);
        if (strcmp(choice->names[i], name) == 0)
            choice->name = choice->names[i];
    }
    const char *quotes = ast ? unquoted_help(l, ast) : NULL;
    const char *help = quotes ? quotes : help_with(l->arena, choice->idioms, &near);
    enter_origin(l, choice->said, &elsewhere);
    if (!choice->name)
        complain(l,
                 (Where){ .at = ast->name_loc.end ? ast->name_loc : ast->loc,
                          .help = help ? help : arena_text(l->arena, "one of %s", list) },
                 "%s is not a valid %s", quoted(l, ast), choice->setting);
    leave_origin(l, choice->said, &elsewhere);
    if (choice->name && !choice->has_no_sets)
        add_setting(l, arena_text(l->arena, "train.%s", choice->setting), choice->name, "", from_text(l, choice->said));
    return choice->name;
}

static const Row *find_row(const Rows *rows, const char *key)
{
    for (int i = 0; i < rows->count; i++)
        if (strcmp(rows->at[i].key, key) == 0)
            return &rows->at[i];
    return NULL;
}

/* The remedy for an argument that a choice does not have. */
static const char *argument_meant(Lower *l, const Choice *choice, const char *name)
{
    NearMiss near = { .name = name };
    const char *list = "";
    for (int i = 0; i < choice->rows.count; i++) {
        offer(&near, choice->rows.at[i].key);
        list = arena_text(l->arena, "%s%s%s", list, *list ? ", " : "", choice->rows.at[i].key);
    }
    const char *help = did_you_mean(l->arena, &near);
    return help || !*list ? help : arena_text(l->arena, "%s takes %s", choice->name, list);
}

static void check_arguments(Lower *l, const Choice *choice, const Ast *call)
{
    for (const Ast *ast = call->kind == A_CALL ? call->child : NULL; ast; ast = ast->next) {
        const char *help = argument_meant(l, choice, ast->kind == A_KEYWORD ? ast->name : "");
        if (ast->kind != A_KEYWORD)
            complain(l, (Where){ .at = ast->loc, .help = help }, "the arguments of %s must be named", choice->name);
        else if (!find_row(&choice->rows, ast->name))
            complain(l, (Where){ .at = ast->name_loc, .help = help }, "%s has no argument '%s'", choice->name,
                     ast->name);
        for (const Ast *other = call->child; other != ast && ast->kind == A_KEYWORD; other = other->next)
            if (other->kind == A_KEYWORD && strcmp(other->name, ast->name) == 0)
                complain(l, (Where){ .at = ast->name_loc }, "'%s' is given twice", ast->name);
    }
}

static void check_sets(Lower *l, const Choice *choice)
{
    const size_t length = strlen(choice->setting);
    for (int i = 0; i < l->options->nsets; i++) {
        const Override *set = &l->options->sets[i];
        const char *name = set->name + 6;
        if (strncmp(set->name, "train.", 6) != 0 || strncmp(name, choice->setting, length) != 0 || name[length] != '.')
            continue;
        if (!find_row(&choice->rows, name + length + 1))
            fail_command(l, set_text(l, set), argument_meant(l, choice, name + length + 1), "%s has no argument '%s'",
                         choice->name, name + length + 1);
        else if (choice->said->option && find_argument(choice->said->value, name + length + 1))
            fail_command(l, set_text(l, set), "leave it out, or there", "%s gives '%s', too", choice->said->option,
                         name + length + 1);
    }
}

bool check_choice(Lower *l, const Choice *choice)
{
    const int before = l->diags->errors;
    OtherText elsewhere;
    enter_origin(l, choice->said, &elsewhere);
    if (choice->said->value)
        check_arguments(l, choice, choice->said->value);
    leave_origin(l, choice->said, &elsewhere);
    if (!choice->has_no_sets)
        check_sets(l, choice);
    return l->diags->errors == before;
}

const Ast *find_argument(const Ast *call, const char *key)
{
    for (const Ast *ast = call && call->kind == A_CALL ? call->child : NULL; ast; ast = ast->next)
        if (ast->kind == A_KEYWORD && strcmp(ast->name, key) == 0)
            return ast;
    return NULL;
}

/* The last --set train.optimizer.lr=... */
static const Override *find_set(Lower *l, const Choice *choice, const Row *row)
{
    const char *name = arena_text(l->arena, "train.%s.%s", choice->setting, row->key);
    for (int i = l->options->nsets - 1; i >= 0 && !choice->has_no_sets; i--)
        if (strcmp(l->options->sets[i].name, name) == 0)
            return &l->options->sets[i];
    return NULL;
}

double read_argument(Lower *l, const Choice *choice, const Row *row, bool call_is_good, const char **from)
{
    const Override *set = find_set(l, choice, row);
    const Ast *argument = find_argument(choice->said->value, row->key);
    ValueOrigin own = *choice->said;
    OtherText elsewhere;
    double value = row->otherwise;
    if (set)
        own = origin_on_command_line(l, set);
    else
        own.value = argument ? argument->child : NULL;
    enter_origin(l, &own, &elsewhere);
    if (own.value)
        value = read_setting(l, row, own.value);
    else if (isnan(value) && call_is_good && !set)
        complain(l,
                 (Where){ .at = choice->said->value ? choice->said->value->loc : (Loc){ 0 },
                          .help = arena_text(l->arena, "%s(%s = ...)", choice->name, row->key) },
                 "%s needs '%s'", choice->name, row->key);
    leave_origin(l, &own, &elsewhere);
    if (argument && !set)
        own.at = argument->name_loc;
    *from = from_text(l, &own);
    return value;
}
