/* overrides.c -- values from the command line: expressions of the language, with messages that
 * show the option instead of a line of the file. */
#include "lowering.h"

#include <stdarg.h>
#include <string.h>

void fail_command(Lower *l, const char *said, const char *help, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report_error(l->diags->out, help, "%s: %s", said, arena_vtext(l->arena, format, args));
    va_end(args);
    l->diags->errors++;
}

void go_elsewhere(Lower *l, Elsewhere *elsewhere, const char *what, const char *text)
{
    elsewhere->text = (Source){ .path = what, .text = text, .length = (int)strlen(text) };
    elsewhere->diags = (Diags){ .arena = l->arena, .source = &elsewhere->text, .out = l->diags->out };
    elsewhere->outer = l->diags;
    elsewhere->file = l->source;
    elsewhere->around = l->elsewhere;
    l->elsewhere = elsewhere;
    l->diags = &elsewhere->diags;
    l->source = &elsewhere->text;
}

void come_back(Lower *l, Elsewhere *elsewhere)
{
    elsewhere->outer->errors += elsewhere->diags.errors;
    l->diags = elsewhere->outer;
    l->source = elsewhere->file;
    l->elsewhere = elsewhere->around;
    l->reported = NULL; /* locations in the option's text are not in the file */
}

bool constant_of_text(Lower *l, const char *option, const char *text, Constant *number)
{
    Elsewhere elsewhere;
    go_elsewhere(l, &elsewhere, option, text);
    Ast *expr = parse_expression(l->source, l->diags, l->arena);
    bool good = expr && constant_of(l, expr, number);
    come_back(l, &elsewhere);
    return good;
}
