/* test_syntax.c -- texts and their trees, written as lists; locations of names; columns. */
#include "syntax/ast.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- Trees as text ------------------------------------------------------------------------- */

static const char *const kinds[] = {
    [A_NUMBER] = "number", [A_STRING] = "text",         [A_BOOL] = "bool",         [A_NAME] = "name",
    [A_CALL] = "call",     [A_KEYWORD] = "=",           [A_ARROW] = "->",          [A_UNARY] = "unary",
    [A_BINARY] = "binary", [A_INDEX] = "index",         [A_TYPE] = "type",         [A_CONST] = "const",
    [A_DIM] = "dim",       [A_BLOCK] = "block",         [A_ARG] = "arg",           [A_MODEL] = "model",
    [A_TRAIN] = "train",   [A_PARAM] = "param",         [A_PARALLEL] = "parallel", [A_INPUT] = "input",
    [A_ASSIGN] = "let",    [A_REPEAT] = "repeat",       [A_RETURN] = "return",     [A_LOSS] = "loss",
    [A_SETTING] = "set",   [A_MESH] = "mesh",           [A_SHARD] = "shard",       [A_PAIR] = "pair",
    [A_ZERO] = "zero",     [A_RECOMPUTE] = "recompute", [A_PIPELINE] = "pipeline", [A_PARTS] = "parts",
    [A_JOIN] = "join",     [A_RANGE] = "range",         [A_SCAN] = "scan",         [A_YIELD] = "yield",
};

static void write_list(FILE *out, const char *before, const Ast *list);

static void write_tree(FILE *out, const Ast *ast)
{
    switch (ast->kind) {
    case A_NUMBER:
        fprintf(out, ast->is_integer ? "%.0f" : "%#g", ast->number);
        return;
    case A_STRING:
        fprintf(out, "\"%s\"", ast->name);
        return;
    case A_NAME:
        fputs(ast->name, out);
        return;
    default:
        fprintf(out, "(%s", kinds[ast->kind]);
    }
    if (ast->name && strcmp(ast->name, kinds[ast->kind]) != 0)
        fprintf(out, " %s", ast->name);
    if (ast->ellipsis)
        fputs(" ...", out);
    if (ast->dims) {
        write_list(out, " [", ast->dims);
        fputc(']', out);
    }
    if (ast->kind == A_ARG && !ast->type)
        fputs(" : const", out);
    write_list(out, " ", ast->child);
    write_list(out, " : ", ast->type);
    write_list(out, " := ", ast->init);
    write_list(out, " do ", ast->body);
    fprintf(out, "%s%s%s)",
            ast->no_decay ? " no_decay"
            : ast->frozen ? " frozen"
                          : "",
            ast->as ? " as " : "", ast->as ? ast->as : "");
}

static void write_list(FILE *out, const char *before, const Ast *list)
{
    for (; list; list = list->next, before = " ") {
        fputs(before, out);
        write_tree(out, list);
    }
}

typedef struct {
    Arena arena;
    Source source;
    Diags diags;
    char *messages;
    size_t size;
} Text;

static void begin(Text *t, const char *text)
{
    *t = (Text){ .source = { .path = "t.mdl", .text = text, .length = (int)strlen(text) } };
    t->diags = (Diags){ .arena = &t->arena, .source = &t->source, .out = open_memstream(&t->messages, &t->size) };
    assert_non_null(t->diags.out);
}

static void end(Text *t)
{
    fclose(t->diags.out);
    free(t->messages);
    arena_free(&t->arena);
}

/* --- Tests --------------------------------------------------------------------------------- */

typedef struct {
    const char *text, *tree;
} Case;

static void check_tree(const Case *it, Ast *(*parse)(const Source *, Diags *, Arena *))
{
    Text t;
    begin(&t, it->text);
    const Ast *ast = parse(&t.source, &t.diags, &t.arena);
    fflush(t.diags.out);
    assert_string_equal(t.messages, "");
    char *tree = NULL;
    size_t size;
    FILE *out = open_memstream(&tree, &size);
    assert_non_null(out);
    write_list(out, "", ast);
    fclose(out);
    assert_string_equal(tree, it->tree);
    free(tree);
    end(&t);
}

static void expressions(void **state)
{
    static const Case cases[] = {
        { "50_257", "50257" },
        { "6e-4", "0.000600000" },
        { "2.5", "2.50000" },
        { "true", "(bool true)" },
        { "\"a # b\"", "\"a # b\"" },
        { "1 + 2 * 3", "(binary + 1 (binary * 2 3))" },
        { "1 - 2 - 3", "(binary - (binary - 1 2) 3)" },
        { "1 / 2 % 3", "(binary % (binary / 1 2) 3)" },
        { "2 ^ 3 ^ 4", "(binary ^ 2 (binary ^ 3 4))" },
        { "-2 ^ 2", "(unary - (binary ^ 2 2))" },
        { "2 ^ -2", "(binary ^ 2 (unary - 2))" },
        { "-a * b", "(binary * (unary - a) b)" },
        { "a - -b", "(binary - a (unary - b))" },
        { "(1 + 2) * 3", "(binary * (binary + 1 2) 3)" },
        { "a + 1 <= b * 2", "(binary <= (binary + a 1) (binary * b 2))" },
        { "a != b", "(binary != a b)" },
        { "-x[d = i + 1]", "(unary - (index d x (binary + i 1)))" },
        { "x[d = 3][e = 4]", "(index e (index d x 3) 4)" },
        { "f()", "(call f)" },
        { "f(x, a, eps = 1)", "(call f x a (= eps 1))" },
        { "f(g(x) as h, 2 -> c)", "(call f (call g x as h) (-> c 2))" },
        { "f(x, d -> (a, b), (a, b, c) -> d)", "(call f x (parts a b := d) (join d a b c))" },
        { "x[d = 1 : n - 1 -> e]", "(index d x (range e 1 (binary - n 1)))" },
        { "x[d = 1 : 2]", "(index d x (range 1 2))" },
        { "x + f(y) as g * z", "(binary + x (binary * (call f y as g) z))" },
        { "f(\n  a, # first\n\n  b)\n", "(call f a b)" },
        { "1f1b", "1f1b" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_tree(&cases[i], parse_expression);
}

static void statements(void **state)
{
    static const Case cases[] = {
        { "", "" },
        { "\n\n # nothing\n", "" },
        { "const a = 3", "(const a 3)" },
        { "const a = 3\r\nconst b = 4\r\n", "(const a 3) (const b 4)" },
        { "\xEF\xBB\xBF"
          "const a = 3",
          "(const a 3)" },
        { "dim batch\ndim v = 7 padded 4", "(dim batch) (dim v 7 : 4)" },
        { "dim batch padded 4", "(dim batch : 4)" },
        { "block f(x: [a, b], y: i32[...]) {\n\n return x }",
          "(block f (arg x : (type a b)) (arg y : (type i32 ...)) do (return x))" },
        { "block f(x: [..., b]) { return x }", "(block f (arg x : (type ... b)) do (return x))" },
        { "block f[s, w](x: [b, s, w], n: const) {\n a, c = g[s, w](x, n) as h\n return a[w = g[s](c)], g[s](c)[w = 1] "
          "}",
          "(block f [s w] (arg x : (type b s w)) (arg n : const) do (let a c := (call g [s w] x n as h)) "
          "(return (index w a (call g [s] c)) (index w (call g [s] c) 1)))" },
        { "block f() { }", "(block f)" },
        { "block f() {\n param u : [a] = ones frozen\n}", "(block f do (param u : (type a) := ones frozen))" },
        { "block f() {\n param u, v : [a] = normal(0.02) no_decay\n param w : [] = ones\n}",
          "(block f do (param u v : (type a) := (call normal 0.0200000) no_decay) (param w : (type) := ones))" },
        { "model m {\n input t : i32[a]\n input l : i32[a] = next(t)\n loss l\n}",
          "(model m do (input t : (type i32 a)) (input l : (type i32 a) := (call next t)) (loss l))" },
        { "model m { repeat n - 1 { x = f(x) as h } }",
          "(model m do (repeat := (binary - n 1) do (let x := (call f x as h))))" },
        { "model m { repeat 2 * n as i { x = f(x, i) as h } }",
          "(model m do (repeat := (binary * 2 n) do (let x := (call f x i as h)) as i))" },
        { "model m { repeat minimum(n, 3) as i { x = f(x, i) } }",
          "(model m do (repeat := (call minimum n 3) do (let x := (call f x i)) as i))" },
        { "model m {\n scan s (reverse = true) { h = f(h)\n yield y : [a] = h }\n scan = yield\n}",
          "(model m do (scan s : (= reverse (bool true)) do (let h := (call f h)) (yield y : (type a) := h)) (let scan "
          ":= "
          "yield))" },
        { "model m {\n p, q = top_k(g, e, 2 -> c)\n q : [a] = p\n}",
          "(model m do (let p q := (call top_k g e (-> c 2))) (let q : (type a) := p))" },
        { "train {\n batch = 4\n optimizer = adamw(lr = 1e-3)\n}",
          "(train do (set batch 4) (set optimizer (call adamw (= lr 0.00100000))))" },
        { "parallel {\n mesh a = 2, b = 4\n shard d, (g, h) over a else e\n shard d over b\n}",
          "(parallel do (mesh (= a 2) (= b 4)) (shard a d (pair g h) := e) (shard b d))" },
        { "parallel {\n pipeline h over pp, schedule = 1f1b, chunks = 2\n zero 1\n zero 3 over dp (overlap_grads, "
          "bucket "
          "= 25)\n recompute auto(80)\n}",
          "(parallel do (pipeline h : (= schedule 1f1b) (= chunks 2) := pp) (zero 1) "
          "(zero 3 overlap_grads (= bucket 25) := dp) (recompute (call auto 80)))" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_tree(&cases[i], parse_mdl);
}

/* Checks the text at a location. */
static void assert_at(const Text *t, Loc loc, const char *wanted)
{
    const char *found = arena_text((Arena *)&t->arena, "%.*s", loc.end - loc.begin, t->source.text + loc.begin);
    assert_string_equal(found, wanted);
}

static void places(void **state)
{
    Text t;
    begin(&t, "# one\nmodel tiny {\n    y = norm(x + 1, eps = 2) as n # two\n}\n");
    const Ast *model = parse_mdl(&t.source, &t.diags, &t.arena), *let = model->body, *call = let->init;
    assert_int_equal(model->loc.begin, 6);
    assert_at(&t, model->name_loc, "tiny");
    assert_at(&t, let->loc, "y = norm(x + 1, eps = 2) as n");
    assert_at(&t, let->child->loc, "y");
    assert_at(&t, call->loc, "norm(x + 1, eps = 2) as n");
    assert_at(&t, call->name_loc, "norm");
    assert_at(&t, call->as_loc, "n");
    assert_at(&t, call->child->name_loc, "+");
    assert_at(&t, call->child->child->next->loc, "1");
    assert_at(&t, call->child->next->name_loc, "eps");
    int line, column;
    line_and_column(&t.source, call->as_loc.begin, &line, &column);
    assert_int_equal(line, 3);
    assert_int_equal(column, 33);
    end(&t);
}

static void refused(void **state)
{
    static const char *const texts[] = { "", "1.", "1 2", "a b", "f(", "1\n2", "a = 3", "a -> b", "f() as 3", "{" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Text t;
        begin(&t, texts[i]);
        assert_null(parse_expression(&t.source, &t.diags, &t.arena));
        assert_int_equal(t.diags.errors, 1);
        end(&t);
    }
}

/* A statement after a syntax error is parsed. */
static void recovery(void **state)
{
    static const struct {
        const char *text;
        int errors;
    } cases[] = {
        { "const = 1\nconst b = = 2", 2 },
        { "dim a = f(1,\ndim b = = 2", 2 },
        { "model m {\n x = = 1\n repeat 2 { x = (1 }\n x = y y\n}\nconst b = = 3", 4 },
        { "model m m {\n x = 1\n}\nconst b = = 3", 2 },
        { "model m {\n x = 1 2 }\n x = 3 4\n}\nconst b = = 3", 3 },
        { "model m {\n x = y{z}\n}\nconst b = = 3", 2 },
        { "model m {\n repeat 2 { x = y{z} }\n}\nconst b = = 3", 2 },
        { "model m {\n x = y{\n repeat 2 { x = z z }\n}\nconst b = = 3", 3 },
        { "model m {\n x = (1\n}\nconst b = = 3", 2 },
        { "model m {\n x = f(1", 1 },
        { "model m {\n repeat 3 3 { repeat 4 { x = 3 }\n }\n x = = 2\n}\nconst b = = 3", 3 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Text t;
        begin(&t, cases[i].text);
        parse_mdl(&t.source, &t.diags, &t.arena);
        fflush(t.diags.out);
        if (t.diags.errors != cases[i].errors)
            fail_msg("%s\n%s", cases[i].text, t.messages);
        end(&t);
    }
}

/* The first and last of each form of UTF-8, and what lies just outside. */
static void characters(void **state)
{
    static const struct {
        const char *text;
        int left, length;
    } cases[] = {
        { " ", 1, 1 },
        { "~", 1, 1 },
        { "\x1F", 1, 0 },
        { "\x7F", 1, 0 },
        { "\xC2\xA0", 2, 2 },
        { "\xDF\xBF", 2, 2 },
        { "\xC2\x9F", 2, 0 },
        { "\xC1\xBF", 2, 0 },
        { "\xC3\x80", 1, 0 },
        { "\xC3\xC0", 2, 0 },
        { "\xE0\xA0\x80", 3, 3 },
        { "\xE0\x9F\xBF", 3, 0 },
        { "\xED\x9F\xBF", 3, 3 },
        { "\xED\xA0\x80", 3, 0 },
        { "\xEF\xBF\xBD", 3, 3 },
        { "\xEF\xBF\x7F", 3, 0 },
        { "\xF0\x90\x80\x80", 4, 4 },
        { "\xF0\x8F\xBF\xBF", 4, 0 },
        { "\xF4\x8F\xBF\xBF", 4, 4 },
        { "\xF4\x90\x80\x80", 4, 0 },
        { "\xF5\x80\x80\x80", 4, 0 },
        { "\x80", 1, 0 },
        { "", 1, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(character_length(cases[i].text, cases[i].left), cases[i].length);
}

static void hidden(void **state)
{
    assert_int_equal(hidden_character("\xE2\x80\x8B", 3), 0x200B);
    assert_int_equal(hidden_character("\xE2\x80\xAE", 3), 0x202E);
    assert_int_equal(hidden_character("\xF3\xA0\x80\xA0", 4), 0xE0020);
    assert_int_equal(hidden_character("\xC2\xAD", 2), 0xAD);
    assert_int_equal(hidden_character("\xC3\xA9", 2), 0);
    assert_int_equal(hidden_character("\xE2\x86\x92", 3), 0);
    assert_int_equal(hidden_character("a", 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions), cmocka_unit_test(statements), cmocka_unit_test(places),
        cmocka_unit_test(refused),     cmocka_unit_test(recovery),   cmocka_unit_test(characters),
        cmocka_unit_test(hidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
