/* format.c -- mpc fmt: writes a .mdl file with standard indentation and spaces.
 *
 *   indentation   four columns per brace; inside ( ) and [ ] aligned with the text after the bracket
 *   in a line     one space around operators, after ',' and ':'; none inside brackets
 *   kept          the order and text of tokens, comments, line ends; spaces beyond the first that align columns:
 *                 before '=', ':' and a comment, and between two words
 *   between lines at most one empty line, none at the ends of the file
 */
#include "format.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { INDENT = 4, DEEPEST = 256 };

typedef enum { NOTHING, WORD, OPERATOR, OPENING, CLOSING, BRACE, COMMA, COLON, COMMENT } TokenKind;

typedef struct {
    TokenKind kind;
    const char *text;
    int length, spaces; /* before it, in the line */
    bool is_unary;      /* an operator without a left operand */
} Token;

typedef struct {
    const char *at, *end;
    FILE *out;
    int braces, nopen, open[DEEPEST]; /* start columns of lines inside open brackets */
    int column;
    Token first, before, last; /* of the line; `before` stands before the last */
} Layout;

/* --- Tokens -------------------------------------------------------------------------------- */

static bool is_name_byte(char c) { return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80; }

static bool is_later_byte(char c) { return is_name_byte(c) || c == '\''; /* in' */ }

static const char *end_of_number(const char *at, const char *end)
{
    while (at < end && (is_name_byte(*at) || (*at == '.' && at + 1 < end && isdigit((unsigned char)at[1])))) {
        bool is_exponent = (*at == 'e' || *at == 'E') && at + 2 < end && (at[1] == '+' || at[1] == '-') &&
                           isdigit((unsigned char)at[2]);
        at += is_exponent ? 2 : 1;
    }
    return at;
}

static const char *end_of_symbol(const char *at, const char *end)
{
    static const char *const symbols[] = { "...", "->", "<=", ">=", "==", "!=" };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        size_t length = strlen(symbols[i]);
        if ((size_t)(end - at) >= length && memcmp(at, symbols[i], length) == 0)
            return at + length;
    }
    return at + 1;
}

static TokenKind kind_of(char c)
{
    switch (c) {
    case '(':
    case '[':
        return OPENING;
    case ')':
    case ']':
        return CLOSING;
    case '{':
    case '}':
        return BRACE;
    case ',':
        return COMMA;
    case ':':
        return COLON;
    default:
        return OPERATOR;
    }
}

static const char *skip_to(const char *at, const char *end, char stop)
{
    while (at < end && *at != stop && *at != '\n')
        at++;
    return at;
}

/* The next token of the line; NOTHING at its end. */
static Token next_token(Layout *l)
{
    Token token = { .kind = NOTHING };
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\t' || *l->at == '\r'))
        l->at++, token.spaces++;
    const char *begin = l->at, *end = begin;
    if (begin == l->end || *begin == '\n')
        return token;
    if (*begin == '#') {
        token.kind = COMMENT;
        end = skip_to(begin, l->end, '\n');
        while (isspace((unsigned char)end[-1]))
            end--;
    } else if (*begin == '"') {
        token.kind = WORD;
        end = skip_to(begin + 1, l->end, '"') + 1;
    } else if (isdigit((unsigned char)*begin)) {
        token.kind = WORD;
        end = end_of_number(begin, l->end);
    } else if (is_name_byte(*begin)) {
        token.kind = WORD;
        while (end < l->end && is_later_byte(*end))
            end++;
    } else {
        end = end_of_symbol(begin, l->end);
        token.kind = *begin == '.' ? WORD : kind_of(*begin);
    }
    token.text = begin;
    token.length = (int)(end - begin);
    l->at = token.kind == COMMENT ? skip_to(begin, l->end, '\n') : end;
    return token;
}

/* --- Spaces -------------------------------------------------------------------------------- */

static bool is_text(const Token *token, const char *text)
{
    return (int)strlen(text) == token->length && memcmp(token->text, text, (size_t)token->length) == 0;
}

/* Words after which a bracket opens an expression, a pair or a type, not a call or index. */
static bool is_keyword(const Token *token)
{
    static const char *const keywords[] = { "return", "loss", "shard", "over", "else", "as", "repeat", "padded" };
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (is_text(token, keywords[i]))
            return true;
    return false;
}

static bool ends_operand(const Token *token)
{
    return (token->kind == WORD && !is_keyword(token)) || token->kind == CLOSING;
}

/* Options of a statement, (reverse = true) of `scan d`, and a value in parentheses: no arguments of the word before. */
static bool stands_apart(const Layout *l)
{
    static const char *const words[] = { "scan", "over", "else", "of" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_text(&l->before, words[i]))
            return true;
    const bool begins = l->before.kind == NOTHING || is_text(&l->before, "{");
    return !l->nopen && (is_text(&l->first, "zero") || *l->last.text == '"' || (begins && is_text(&l->last, "update")));
}

static int at_least(int least, int spaces) { return spaces > least ? spaces : least; }

static int spaces_between(const Layout *l, const Token *right)
{
    const Token *left = &l->last;
    if (right->kind == COMMENT)
        return at_least(1, right->spaces);
    if (right->kind == COLON)
        return right->spaces;
    if (left->kind == OPENING || right->kind == CLOSING || right->kind == COMMA || left->is_unary)
        return 0;
    if (right->kind == OPENING && ends_operand(left))
        return stands_apart(l);
    if ((right->kind == OPERATOR && is_text(right, "=")) || (left->kind == WORD && right->kind == WORD))
        return at_least(1, right->spaces);
    return 1;
}

/* --- Lines --------------------------------------------------------------------------------- */

static void open_bracket(Layout *l, bool ends_line)
{
    int outside = l->nopen ? l->open[l->nopen - 1] : l->braces * INDENT;
    if (l->nopen < DEEPEST)
        l->open[l->nopen++] = ends_line ? outside + INDENT : l->column;
}

static bool ends_line(const Layout *l)
{
    const char *at = l->at;
    while (at < l->end && (*at == ' ' || *at == '\t' || *at == '\r'))
        at++;
    return at == l->end || *at == '\n' || *at == '#';
}

/* Columns count characters, not bytes. */
static int width_of(const Token *token)
{
    int width = 0;
    for (int i = 0; i < token->length; i++)
        width += ((unsigned char)token->text[i] & 0xC0) != 0x80;
    return width;
}

static int indentation(const Layout *l, const Token *first)
{
    bool closes = is_text(first, "}");
    return l->nopen ? l->open[l->nopen - 1] : (l->braces - (closes && l->braces > 0)) * INDENT;
}

static void put_token(Layout *l, Token *token)
{
    bool is_first = l->last.kind == NOTHING;
    int spaces = is_first ? indentation(l, token) : spaces_between(l, token);
    token->is_unary = token->kind == OPERATOR && is_text(token, "-") && !(ends_operand(&l->last) && !is_first);
    fprintf(l->out, "%*s%.*s", spaces, "", token->length, token->text);
    l->column += spaces + width_of(token);
    if (token->kind == OPENING)
        open_bracket(l, ends_line(l));
    else if (token->kind == CLOSING && l->nopen)
        l->nopen--;
    else if (token->kind == BRACE)
        l->braces += is_text(token, "{") ? 1 : l->braces ? -1 : 0;
    l->first = is_first ? *token : l->first;
    l->before = l->last;
    l->last = *token;
}

/* One line; false if it was empty. */
static bool put_line(Layout *l)
{
    l->first = l->before = l->last = (Token){ .kind = NOTHING };
    l->column = 0;
    for (Token token = next_token(l); token.kind != NOTHING; token = next_token(l))
        put_token(l, &token);
    if (l->last.kind != NOTHING)
        fputc('\n', l->out);
    return l->last.kind != NOTHING;
}

void write_formatted(const char *text, int length, FILE *out)
{
    Layout l = { .at = text, .end = text + length, .out = out };
    bool any = false, empty = false;
    for (; l.at < l.end; l.at += l.at < l.end) {
        const char *begin = l.at;
        while (l.at < l.end && *l.at != '\n' && isspace((unsigned char)*l.at))
            l.at++;
        if (l.at == l.end || *l.at == '\n') {
            empty = true;
            continue;
        }
        if (any && empty)
            fputc('\n', out);
        l.at = begin;
        any |= put_line(&l);
        empty = false;
    }
}
