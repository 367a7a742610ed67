/* messages.c -- errors, each once for a place and a message; texts of places and types; and messages about the command
 * line, whose expressions are of the language and have no line of the file. */
#include "lowering.h"

#include <stdarg.h>
#include <string.h>

const char *position_text(Lower *l, Loc loc)
{
    int line, column;
    if (l->reports.lines.of != l->source)
        l->reports.lines = find_lines(l->source, l->arena);
    place_in_lines(&l->reports.lines, loc.begin, &line, &column);
    return arena_text(l->arena, "%d:%d", line, column);
}

Name where_text(Lower *l, Loc loc)
{
    return intern_format(l->m, "%s:%s", file_name(l->arena, l->source), position_text(l, loc));
}

const char *dims_text(Lower *l, const Type *type)
{
    const char *text = "[";
    for (int i = 0; i < type->rank; i++)
        text = arena_text(l->arena, "%s%s%s", text, i ? ", " : "", type->dim[i].name);
    return arena_text(l->arena, "%s]", text);
}

const char *type_words(Lower *l, const Type *type)
{
    return arena_text(l->arena, "%s%s", is_float(type->dtype) ? "" : dtype_name[type->dtype], dims_text(l, type));
}

const char *quoted(Lower *l, const Ast *ast) { return ast->name ? arena_text(l->arena, "'%s'", ast->name) : "this"; }

const char *unquoted_help(Lower *l, const Ast *ast)
{
    return ast->kind == A_STRING ? arena_text(l->arena, "without quotes: %s", ast->name) : NULL;
}

/* "in attention[seq, embed], called at 30:9": of a block over dims; else NULL */
static const char *instance_text(Lower *l)
{
    const Call *last = l->now.ncalls ? &l->now.calls[l->now.ncalls - 1] : NULL;
    if (!last || !last->block->dims)
        return NULL;
    const char *dims = "";
    for (const Ast *own = last->block->dims; own; own = own->next) {
        const Symbol *dim = symbol_in_call(find_symbol(l->scope, own->name));
        dims = arena_text(l->arena, "%s%s%s", dims, *dims ? ", " : "", dim ? dim->name : own->name);
    }
    return arena_text(l->arena, "in %s[%s], called at %s", last->block->name, dims, position_text(l, last->call->loc));
}

/* --- Errors ------------------------------------------------------------------------------------- */

static bool already_reported(Lower *l, Loc at, const char *message)
{
    for (const Complaint *r = l->reports.reported; r; r = r->next)
        if (r->at.begin == at.begin && strcmp(r->message, message) == 0)
            return true;
    if (l->reports.nreported++ > MAX_MESSAGES) /* it is only counted */
        return false;
    Complaint *r = NEW(l->arena, Complaint);
    *r = (Complaint){ at, message, l->reports.reported };
    l->reports.reported = r;
    return false;
}

bool complain(Lower *l, Where where, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    size_t length = (size_t)vsnprintf(NULL, 0, format, args);
    char *message = arena_alloc(l->arena, length + 1, 1);
    vsnprintf(message, length + 1, format, again);
    va_end(again);
    va_end(args);
    where.label = where.label ? where.label : instance_text(l);
    if (!already_reported(l, where.at, message))
        error_at(l->diags, where, "%s", message);
    return false;
}

void complain_unused(Lower *l, Where where, const char *message)
{
    const int errors = l->diags->errors;
    if (l->incomplete || errors > l->reports.nunused)
        return;
    complain(l, where, "%s", message);
    l->reports.nunused += l->diags->errors - errors;
}

/* --- The command line --------------------------------------------------------------------------- */

void fail_command(Lower *l, const char *said, const char *help, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report_error(l->diags->out, help, "%s: %s", said, arena_vtext(l->arena, format, args));
    va_end(args);
    l->diags->errors++;
}

void enter_other_text(Lower *l, OtherText *elsewhere, const char *what, const char *text)
{
    elsewhere->text = (Source){ .path = what, .text = text, .length = (int)strlen(text) };
    elsewhere->diags = (Diags){ .arena = l->arena, .source = &elsewhere->text, .out = l->diags->out };
    elsewhere->outer = l->diags;
    elsewhere->file = l->source;
    elsewhere->around = l->reports.elsewhere;
    l->reports.elsewhere = elsewhere;
    l->diags = &elsewhere->diags;
    l->source = &elsewhere->text;
}

void leave_other_text(Lower *l, OtherText *elsewhere)
{
    elsewhere->outer->errors += elsewhere->diags.errors;
    l->diags = elsewhere->outer;
    l->source = elsewhere->file;
    l->reports.elsewhere = elsewhere->around;
    l->reports.reported = NULL; /* locations in the option's text are not in the file */
}
