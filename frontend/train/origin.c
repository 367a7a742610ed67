/* origin.c -- values of settings: from the file or the command line. */
#include "lower/expr.h"
#include "settings.h"

#include <math.h>

const char *from_text(Lower *l, const ValueOrigin *said)
{
    return !said->value ? "default" : said->option ? "command line" : where_text(l, said->at);
}

/* Messages between these two refer to the location of the value. */
void enter_origin(Lower *l, const ValueOrigin *said, OtherText *elsewhere)
{
    if (said->option)
        enter_other_text(l, elsewhere, said->option, said->text);
}

void leave_origin(Lower *l, const ValueOrigin *said, OtherText *elsewhere)
{
    if (said->option)
        leave_other_text(l, elsewhere);
}

const char *set_text(Lower *l, const Override *set)
{
    return arena_text(l->arena, "--set %s=%s", set->name, set->value);
}

ValueOrigin origin_on_command_line(Lower *l, const Override *set)
{
    OtherText elsewhere;
    ValueOrigin said = { .option = arena_text(l->arena, "--set %s", set->name), .text = set->value };
    enter_other_text(l, &elsewhere, said.option, said.text);
    said.value = parse_expression(l->source, l->diags, l->arena);
    leave_other_text(l, &elsewhere);
    return said;
}

/* The number of an expression for a row; NAN after reporting. */
double read_setting(Lower *l, const Row *row, const Ast *ast)
{
    Constant c;
    if (row->flag && ast->kind == A_BOOL)
        return ast->number;
    if (row->flag)
        return complain(l, (Where){ .at = ast->loc }, "'%s' must be true or false", row->key), NAN;
    if (!constant_of(l, ast, &c))
        return NAN;
    if (row->whole && c.real)
        return complain(l, (Where){ .at = ast->loc }, "'%s' must be a whole number, not %s", row->key,
                        constant_text(l->arena, c)),
               NAN;
    if (!(c.value >= row->least && c.value <= row->most) || (row->below && (float)c.value >= row->most)) {
        const char *range = c.value < row->least ? arena_text(l->arena, "at least %.15g", row->least)
                                                 : arena_text(l->arena, "from %.15g to %s%.15g", row->least,
                                                              row->below ? "below " : "", row->most);
        return complain(l, (Where){ .at = ast->loc }, "'%s' must be %s, not %s", row->key, range,
                        constant_text(l->arena, c)),
               NAN;
    }
    return c.value;
}
