/* fuzz_mdl.c -- no text crashes or hangs the parser of .mdl or lowering.  For accepted texts, mpc fmt keeps tree and
 * comments and is idempotent; lowered modules pass the verifier.
 */
#include "format.h"
#include "lower.h"
#include "syntax/ast.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    Source source;
    Arena arena;
    Diags diags;
    const Ast *file;
} Parsed;

static bool parse(Parsed *p, const char *text, size_t length, FILE *sink)
{
    *p = (Parsed){ .source = { .path = "fuzz.mdl", .text = text, .length = (int)length } };
    p->diags = (Diags){ .arena = &p->arena, .source = &p->source, .out = sink };
    p->file = parse_mdl(&p->source, &p->diags, &p->arena);
    return p->diags.errors == 0;
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

/* All but the places. */
static bool same_tree(const Ast *a, const Ast *b)
{
    for (; a && b; a = a->next, b = b->next)
        if (a->kind != b->kind || !same_text(a->name, b->name) || a->number != b->number ||
            a->is_integer != b->is_integer || a->ellipsis != b->ellipsis || a->no_decay != b->no_decay ||
            !same_text(a->as, b->as) || !same_tree(a->child, b->child) || !same_tree(a->type, b->type) ||
            !same_tree(a->init, b->init) || !same_tree(a->body, b->body))
            return false;
    return a == b;
}

static char *formatted(const char *text, size_t length)
{
    char *out = NULL;
    size_t size;
    FILE *file = open_memstream(&out, &size);
    if (!file)
        abort();
    write_formatted(text, (int)length, file);
    fclose(file);
    return out;
}

/* Formatting changes only spaces: all other bytes are the same, in the same order. */
static bool same_but_spaces(const char *a, size_t length, const char *b)
{
    static const char spaces[] = " \t\r\n\v\f\xEF\xBB\xBF";
    const char *end = a + length;
    for (;;) {
        while (a < end && *a && strchr(spaces, *a))
            a++;
        while (*b && strchr(spaces, *b))
            b++;
        if (a == end || !*b || *a != *b)
            return a == end && !*b;
        a++, b++;
    }
}

static void check_canonical(const Parsed *p, FILE *sink)
{
    Parsed again;
    char *text = formatted(p->source.text, (size_t)p->source.length), *twice = formatted(text, strlen(text));
    bool is_read = parse(&again, text, strlen(text), sink);
    if (!is_read || !same_tree(p->file, again.file) || strcmp(text, twice) != 0 ||
        !same_but_spaces(p->source.text, (size_t)p->source.length, text)) {
        fprintf(stderr, "laid out (%d errors):\n%s\nagain:\n%s\n", again.diags.errors, text, twice);
        abort();
    }
    arena_free(&again.arena);
    free(text);
    free(twice);
}

/* A schedule that the model names as a file: there is none. */
static Source *read_nothing(void *context, const char *path, const char **why)
{
    (void)context, (void)path;
    *why = "no files here";
    return NULL;
}

static void check_lowering(Parsed *p)
{
    LowerOptions options = { .read_text = read_nothing };
    Module *m = lower_mdl(p->file, &p->source, &options, &p->diags, NULL);
    if (!m != (p->diags.errors > 0) || (m && !verify_module(m)))
        abort();
    if (m)
        free_module(m);
}

static void check_expression(const char *text, size_t size, FILE *sink)
{
    Arena arena = { 0 };
    Source source = { .path = "-D", .text = text, .length = (int)size };
    Diags diags = { .arena = &arena, .source = &source, .out = sink };
    const Ast *expression = parse_expression(&source, &diags, &arena);
    if (!expression != (diags.errors > 0))
        abort();
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *sink;
    if (!sink)
        sink = fopen("/dev/null", "w");
    char *text = malloc(size + 1);
    if (!sink || !text)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    Parsed p;
    if (parse(&p, text, size, sink)) {
        check_canonical(&p, sink);
        check_lowering(&p);
    }
    arena_free(&p.arena);
    check_expression(text, size, sink);
    free(text);
    return 0;
}
