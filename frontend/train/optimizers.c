/* optimizers.c -- the optimizer that updates each parameter, with its arguments.
 *
 *   train {
 *       optimizer = adamw(lr = 6e-4)
 *       group "*.bias, *.gain" (lr = 1e-3)          # other arguments
 *       group "wte" sgd(lr = 0.1)                   # another optimizer
 *   }
 *
 * An optimizer is declared in the file or in one of mpc's own texts, both in the same language.  A parameter belongs to
 * the last group that names it.
 */
#include "optimizers.h"
#include "lower/expr.h"
#include "settings.h"

#include <math.h>
#include <string.h>

#define LARGEST 3e38

static const struct {
    const char *name, *text;
} shipped[] = {
#define OPTIMIZER(name) { #name, name##_template },
#include "optimizers.def"
};
enum { N_SHIPPED = sizeof shipped / sizeof shipped[0] };

static const struct {
    const char *of, *argument;
    double least, most;
    bool below;
} bounds[] = {
#define BOUNDS(of, argument, least, most, below) { #of, #argument, least, most, below },
#include "optimizers.def"
};

/* --- Declarations ---------------------------------------------------------------------------- */

/* -1 */
static int argument_at(const Ast *optimizer, const char *name)
{
    int i = 0;
    for (const Ast *ast = optimizer->child; ast; ast = ast->next, i++)
        if ((ast->kind == A_KEYWORD || ast->kind == A_NAME) && strcmp(ast->name, name) == 0)
            return i;
    return -1;
}

static int count_arguments(const Ast *optimizer)
{
    int n = 0;
    for (const Ast *ast = optimizer->child; ast; ast = ast->next)
        n++;
    return n;
}

static void check_declared(Lower *l, const Ast *optimizer)
{
    for (const Ast *other = l->file; other != optimizer; other = other->next)
        if (other->kind == A_OPTIMIZER && strcmp(other->name, optimizer->name) == 0)
            complain(l, (Where){ .at = optimizer->name_loc }, "'%s' is already an optimizer, declared at %s",
                     optimizer->name, position_text(l, other->name_loc));
    int i = 0;
    for (const Ast *ast = optimizer->child; ast; ast = ast->next, i++)
        if (ast->kind != A_KEYWORD && ast->kind != A_NAME)
            complain(l, (Where){ .at = ast->loc, .help = "beta = 0.9, or beta" },
                     "an argument of an optimizer is a name, with or without a default");
        else if (argument_at(optimizer, ast->name) != i)
            complain(l, (Where){ .at = ast->loc }, "'%s' is given twice", ast->name);
    if (argument_at(optimizer, "lr") < 0)
        complain(l,
                 (Where){ .at = optimizer->name_loc, .help = arena_text(l->arena, "%s(lr = 1e-3)", optimizer->name) },
                 "an optimizer needs the argument 'lr': the rate that the schedule sets");
}

static const Ast *declared_in_file(const Lower *l, const char *name)
{
    const Ast *ast = l->file;
    while (ast && (ast->kind != A_OPTIMIZER || strcmp(ast->name, name) != 0))
        ast = ast->next;
    return ast;
}

/* One of mpc's own; sets its text. */
static const Ast *declared_by_mpc(Lower *l, const char *name, Source **text)
{
    int i = 0;
    while (i < N_SHIPPED && strcmp(shipped[i].name, name) != 0)
        i++;
    Source *source = NEW(l->arena, Source);
    *source = (Source){ arena_text(l->arena, "%s.mdl", name), shipped[i].text, (int)strlen(shipped[i].text) };
    Diags diags = { .arena = l->arena, .source = source, .out = l->diags->out };
    *text = source;
    return parse_mdl(source, &diags, l->arena);
}

/* --- Arguments ------------------------------------------------------------------------------- */

static Row row_of(Lower *l, const Ast *optimizer, const Ast *argument)
{
    const Ast *otherwise = argument->kind == A_KEYWORD ? argument->child : NULL;
    const bool is_rate = strcmp(argument->name, "lr") == 0 || strcmp(argument->name, "weight_decay") == 0;
    Constant c = { 0 };
    Row row = { .setting = "optimizer",
                .of = optimizer->name,
                .key = argument->name,
                .flag = otherwise && otherwise->kind == A_BOOL,
                .otherwise = NAN,
                .least = is_rate ? 0 : -LARGEST,
                .most = LARGEST,
                .unit = "" };
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
        if (strcmp(bounds[i].of, row.of) == 0 && strcmp(bounds[i].argument, row.key) == 0)
            row.least = bounds[i].least, row.most = bounds[i].most, row.below = bounds[i].below;
    if (row.flag)
        row.otherwise = otherwise->number;
    else if (otherwise && constant_of(l, otherwise, &c))
        row.otherwise = c.value;
    return row;
}

/* A group without an optimizer's name takes what it does not state from that of all parameters. */
static Row *rows_of(Lower *l, const Group *group, const Group *base)
{
    Row *rows = NEW_ARRAY(l->arena, Row, count_arguments(group->declared) + 1);
    int i = 0;
    for (const Ast *ast = group->declared->child; ast; ast = ast->next, i++) {
        rows[i] = row_of(l, group->declared, ast);
        if (base)
            rows[i].otherwise = base->argument[i].value;
    }
    return rows;
}

static const char *value_text(Lower *l, const Row *row, double value)
{
    return row->flag ? (value != 0 ? "true" : "false") : arena_text(l->arena, "%.15g", value);
}

/* Whole, if the default is one and the value too. */
static Constant constant_like(const Ast *argument, double value)
{
    const bool is_whole = argument->kind == A_KEYWORD && argument->child->is_integer && value == floor(value);
    return is_whole && fabs(value) < 0x1p53 ? integer_constant((int64_t)value) : real_constant(value);
}

static void read_arguments(Lower *l, Group *group, Choice *choice, const Row *rows)
{
    choice->rows = (Rows){ rows, count_arguments(group->declared) };
    group->argument = NEW_ARRAY(l->arena, Constant, choice->rows.count + 1);
    const bool good = check_choice(l, choice);
    const char *prefix = group->ast ? arena_text(l->arena, "train.group[%s]", group->ast->name) : "train.optimizer";
    const Ast *argument = group->declared->child;
    for (int i = 0; i < choice->rows.count; i++) {
        const char *from;
        const double value = read_argument(l, choice, &rows[i], good, &from);
        group->argument[i] = constant_like(argument, value);
        argument = argument->next;
        if (!isnan(value) && (!group->ast || find_argument(choice->said->value, rows[i].key)))
            add_setting(l, arena_text(l->arena, "%s.%s", prefix, rows[i].key), value_text(l, &rows[i], value), "",
                        from);
    }
}

/* --- Groups ---------------------------------------------------------------------------------- */

void add_group(Lower *l, const Ast *ast)
{
    Group *group = NEW(l->arena, Group), **end = &l->optimizing->groups;
    *group = (Group){ .ast = ast };
    while (*end)
        end = &(*end)->next;
    *end = group;
}

static void read_group(Lower *l, Group *group, const ValueOrigin *said, const char *otherwise)
{
    int declared_here = 0;
    for (const Ast *ast = l->file; ast; ast = ast->next)
        declared_here += ast->kind == A_OPTIMIZER;
    const char **names = NEW_ARRAY(l->arena, const char *, N_SHIPPED + declared_here);
    Choice choice = { .setting = "optimizer",
                      .idioms = IDIOM_OPTIMIZER,
                      .said = said,
                      .names = names,
                      .has_no_sets = group->ast != NULL };
    const Group *base = group->ast && !*group->ast->child->name ? l->optimizing->groups : NULL;
    for (int i = 0; i < N_SHIPPED; i++)
        names[choice.n++] = shipped[i].name;
    for (const Ast *ast = l->file; ast; ast = ast->next)
        if (ast->kind == A_OPTIMIZER)
            names[choice.n++] = ast->name;
    if (base)
        choice.name = base->declared ? base->declared->name : NULL;
    else
        read_choice_name(l, &choice, otherwise);
    if (!choice.name)
        return;
    const Ast *in_file = declared_in_file(l, choice.name);
    const Ast *declared = in_file ? in_file : declared_by_mpc(l, choice.name, &group->text);
    if (argument_at(declared, "lr") < 0)
        return; /* reported */
    group->declared = declared;
    read_arguments(l, group, &choice, rows_of(l, group, base));
    group->sets_decay = group->ast && find_argument(said->value, "weight_decay");
}

double rate_argument(const Group *group) { return group->argument[argument_at(group->declared, "lr")].value; }

static void check_rate(Lower *l, const Group *group)
{
    const Group *all = l->optimizing->groups;
    if (group->declared && all->declared && rate_argument(all) == 0 && rate_argument(group) > 0)
        complain(l, (Where){ .at = group->ast->name_loc, .help = "an lr above 0 for the optimizer of all others" },
                 "the rate of a group is in proportion to that of the optimizer, which is 0");
}

void read_optimizers(Lower *l, const ValueOrigin *said, const char *otherwise)
{
    Group *all = NEW(l->arena, Group);
    *all = (Group){ .next = l->optimizing->groups };
    l->optimizing->groups = all;
    for (const Ast *ast = l->file; ast; ast = ast->next)
        if (ast->kind == A_OPTIMIZER)
            check_declared(l, ast);
    read_group(l, all, said, otherwise);
    for (Group *group = all->next; group; group = group->next) {
        const ValueOrigin own = { .value = group->ast->child, .at = group->ast->name_loc };
        read_group(l, group, &own, NULL);
        check_rate(l, group);
    }
    if (!all->declared)
        return;
    l->m->train.optimizer = intern_text(l->m, all->declared->name);
    l->m->train.lr = rate_argument(all);
}

Group *group_for(const Lower *l, const Param *param)
{
    Group *found = l->optimizing->groups;
    for (Group *group = l->optimizing->groups; group; group = group->next)
        if (matches_any(group->patterns, param))
            found = group;
    return found;
}

void match_groups(Lower *l)
{
    for (Group *group = l->optimizing->groups; group; group = group->next)
        if (group->ast)
            group->patterns = list_patterns(l, group->ast);
    for (Param *param = l->m->params; param; param = param->next) {
        const Group *group = group_for(l, param);
        if (group->declared && group->sets_decay)
            param->decay = group->argument[argument_at(group->declared, "weight_decay")].value > 0;
    }
}
