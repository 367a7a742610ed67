/* ir_test.h -- shared by the unit tests of the IR: modules from text, with captured messages. */
#ifndef MPC_IR_TEST_H
#define MPC_IR_TEST_H

#include "interp/interp.h"
#include "mir/mir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A module read from text.  Messages go to `messages`, which is complete after said(). */
typedef struct {
    Source source;
    Diags diags;
    Module *m;
    char *messages;
    size_t size;
} Text;

static inline Text *read_text(const char *text)
{
    Text *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->source = (Source){ .path = "test.mir", .text = text, .length = (int)strlen(text) };
    t->diags = (Diags){ .source = &t->source, .out = open_memstream(&t->messages, &t->size) };
    t->m = parse_module(&t->source, &t->diags);
    return t;
}

static inline const char *said(Text *t)
{
    fflush(t->diags.out);
    return t->messages;
}

static inline void free_text(Text *t)
{
    free_module(t->m);
    fclose(t->diags.out);
    free(t->messages);
    free(t);
}

/* A module that must be valid. */
static inline Text *good_text(const char *text)
{
    Text *t = read_text(text);
    if (t->diags.errors || !verify_module(t->m))
        fail_msg("%s", said(t));
    return t;
}

/* The type of a text; names belong to m. */
static inline Type type_of_text(Module *m, const char *text)
{
    const Source source = { .path = "type", .text = text, .length = (int)strlen(text) }, *outer = m->diags->source;
    Mir p = { .module = m, .source = &source };
    m->diags->source = &source;
    Type type = read_type(&p);
    m->diags->source = outer;
    if (p.failed)
        fail_msg("'%s' is not a type", text);
    return type;
}

static inline Attrs attrs_of_text(Module *m, OpKind op, const char *text)
{
    const Source source = { .path = "attributes", .text = text, .length = (int)strlen(text) },
                 *outer = m->diags->source;
    Mir p = { .module = m, .source = &source };
    Attrs attrs = { 0 };
    m->diags->source = &source;
    text_attrs(&p, op, &attrs);
    m->diags->source = outer;
    if (p.failed)
        fail_msg("'%s' are not attributes", text);
    return attrs;
}

/* A file of the tests; paths are from the root of the repository, where run.sh runs them. */
static inline char *read_file(const char *path)
{
    FILE *in = fopen(path, "rb");
    char *text = calloc(1, 1 << 16);
    if (!in || !text || fread(text, 1, (1 << 16) - 1, in) == 0)
        fail_msg("cannot read %s", path);
    fclose(in);
    return text;
}

#endif
