/* function.c -- functions of the program, and statements that call them, as data before they are written. */
#include "names.h"
#include "templates.h"

#include <inttypes.h>
#include <string.h>

enum { WIDTH = 120 };

char *function_comment(Module *m, const char *title, const char *operands)
{
    return FILLED(&m->arena, comment_template, { "title", title }, { "operands", operands });
}

/* A body of one short line is on the line of the head, as in clang-format. */
char *function_code(Module *m, const FunctionText *f, const char *name)
{
    char *head = wrapped_list(m, arena_text(&m->arena, "static void %s(", name), f->nparameters, f->parameter, ")", 0);
    size_t line = strcspn(f->body, "\n"), room = strlen(head) + line + strlen(" {  }");
    if (f->body[line] && !f->body[line + 1] && room <= WIDTH)
        return arena_text(&m->arena, "%s { %.*s }\n", head, (int)line, f->body);
    return FILLED(&m->arena, function_template, { "head", head }, { "body", f->body });
}

char *loop_text(Module *m, const char *pragma, const char *index, const char *low, const char *high, const char *body)
{
    return FILLED(&m->arena, loop_template, { "pragma", pragma }, { "index", index }, { "low", low }, { "high", high },
                  { "body", body });
}

char *statement_text(Module *m, const Statement *s)
{
    char *text =
        wrapped_list(m, arena_text(&m->arena, "%s(", s->function), s->count, s->operand, ");", 4 + 4 * s->nloops);
    for (int i = s->nloops - 1; i >= 0; i--)
        text = loop_text(m, "", s->loop[i].index, "0", arena_text(&m->arena, "%" PRId64, s->loop[i].count),
                         arena_text(&m->arena, "%s\n", text));
    return text;
}
