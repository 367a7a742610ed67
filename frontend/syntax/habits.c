/* habits.c -- remedies for syntax of other languages: how this language writes it. */
#include "habits.h"
#include "idioms.h"

#include <ctype.h>
#include <string.h>

/* The help of idioms.def for a word in the text. */
static const char *find(IdiomKind kind, const char *word, int length)
{
    char name[32];
    if (length <= 0 || length >= (int)sizeof name)
        return NULL;
    memcpy(name, word, (size_t)length);
    name[length] = '\0';
    return find_idiom(kind, name);
}

static int word_length(const char *text)
{
    int n = 0;
    while (isalnum((unsigned char)text[n]) || text[n] == '_')
        n++;
    return n;
}

static int skip_blanks(const char *text, int at)
{
    while (text[at] == ' ' || text[at] == '\t')
        at++;
    return at;
}

static int before_blanks(const char *text, int at)
{
    while (at > 0 && (text[at - 1] == ' ' || text[at - 1] == '\t'))
        at--;
    return at;
}

static int line_start(const char *text, int at)
{
    while (at > 0 && text[at - 1] != '\n')
        at--;
    return skip_blanks(text, at);
}

/* x[0] and x[:, 0], or the type [embed, 8] */
static const char *bracket_habit(const char *text, int at)
{
    int open = before_blanks(text, at);
    if (open == 0 || !strchr("[,", text[open - 1]) ||
        (!isdigit((unsigned char)text[at + (text[at] == '-')]) && text[at] != ':'))
        return NULL;
    while (open > 0 && text[open - 1] != '[' && text[open - 1] != '\n')
        open--;
    if (open == 0 || text[open - 1] != '[')
        return NULL;
    const int before = before_blanks(text, open - 1);
    const bool is_type =
        before > 0 && (text[before - 1] == ':' || (before > 2 && !memcmp(text + before - 3, "f32", 3)) ||
                       (before > 2 && !memcmp(text + before - 3, "i32", 3)));
    if (is_type && text[at] != ':')
        return "a dim has a name: with `dim d = 8` in the file, [d]";
    return is_type ? NULL
                   : "x[d = 0] is the first element along d, x[d = d - 1] the last, x[d = 0 : 2 -> e] the first two";
}

/* `not x` and `if c then a`: the sign's help for the word before. */
static const char *word_habit(const char *text, int at)
{
    const int end = before_blanks(text, at);
    int start = end;
    while (start > 0 && isalpha((unsigned char)text[start - 1]))
        start--;
    const bool is_not = end - start == 3 && !strncmp(text + start, "not", 3);
    const bool is_if = end - start == 2 && !strncmp(text + start, "if", 2);
    return is_not ? find_idiom(IDIOM_SIGN, "!") : is_if ? find_idiom(IDIOM_SIGN, "?") : NULL;
}

static const char *operator_habit(const char *text, int at)
{
    const char here = text[at], before = at > 0 ? text[at - 1] : ' ';
    if (!here)
        return NULL;
    if (before == '\r')
        return "lines end with \\n or \\r\\n, and not with \\r alone";
    if (here == '*' && before == '*')
        return "a ^ b is a power";
    if (here == '/' && (before == '/' || text[at + 1] == '*' || text[at + 1] == '/'))
        return "a comment begins with #";
    if (strchr("+-*/", here) && text[at + 1] == '=')
        return "x = x + y: the value is computed anew";
    if (here == '=' && text[at + 1] == '=')
        return "'==' compares; an assignment is x = y";
    if (here == '[' && before != ']' && !isalnum((unsigned char)before))
        return "there are no lists: tensors are arguments one by one";
    return NULL;
}

bool brace_below(const char *text, int at) { return text[at] == '\n' && text[skip_blanks(text, at + 1)] == '{'; }

/* Is it `name =`? */
static bool is_assigned_at(const char *text, int at)
{
    const int start = skip_blanks(text, at), length = word_length(text + start),
              after = skip_blanks(text, start + length);
    return length && text[after] == '=' && text[after + 1] != '=';
}

/* A sign in a line of the layout or of a setting, or between [ ], that another one should precede or follow. */
static const char *sign_habit(const char *text, int at, const char *first, int length)
{
    const char *over = strstr(first, " over ");
    if (text[at] == ',' && length == 5 && !strncmp(first, "shard", 5) && over && over < text + at)
        return "a line for each axis: shard d over a, and below it shard d over b";
    if (text[at] == ',' && is_assigned_at(text, at + 1))
        return "a line for each: a statement ends with its line";
    if (text + at > first && length == 5 && !strncmp(first, "group", 5) && isalpha((unsigned char)text[at]))
        return "names of parameters stand in quotes: group \"wte, *.bias\" (lr = 1e-4)";
    if (!strncmp(text + at, "->", 2) && text[before_blanks(text, at) - 1] == ':')
        return "a range has an end: x[d = 2 : d -> e]";
    if (text[at] == '(' && first == text + at)
        return "several results have no parentheses: a, b = f(x)";
    return NULL;
}

/* The end of the line, or of an argument, where more is needed. */
static const char *missing_habit(const char *text, int at, const char *first, int length)
{
    if (brace_below(text, at))
        return "the '{' stands at the end of this line";
    if (text[at] == '\n' && length == 5 && (!strncmp(first, "param", 5) || !strncmp(first, "state", 5)))
        return "how it begins: = zeros, ones, normal(std), uniform(low, high) or constant(c)";
    if (strchr("),", text[at]) && text[at] && length == 5 && !strncmp(first, "block", 5))
        return "an argument has a type, x: [batch, seq, embed], or is a number, n: const";
    return NULL;
}

const char *syntax_habit(const char *text, int at)
{
    const char *sign = operator_habit(text, at), *help = sign ? sign : bracket_habit(text, at);
    const int start = line_start(text, at), length = word_length(text + start), here = word_length(text + at);
    const int after = skip_blanks(text, start + length);
    const bool is_assigned = is_assigned_at(text, start);
    help = help ? help : sign_habit(text, at, text + start, length);
    help = help ? help : missing_habit(text, at, text + start, length);
    if (!help && after == at && is_assigned)
        help = find(IDIOM_STATED, text + start, length);
    if (!help && !is_assigned && start != at)
        help = find(IDIOM_STATEMENT, text + start, length);
    if (!help && (!strncmp(text + at, "if", 2) || !strncmp(text + at, "else", 4)) && (here == 2 || here == 4))
        help = find_idiom(IDIOM_SIGN, "?");
    if (!help)
        help = word_habit(text, at);
    if (!help && (!strncmp(text + at, "and", 3) || !strncmp(text + at, "or", 2)))
        help = find(IDIOM_FUNCTION, text + at, here);
    if (!help && here == 2 && !strncmp(text + at, "in", 2) && !strncmp(text + start, "repeat", 6))
        help = "repeat N as i { ... }";
    if (!help && here == 3 && !strncmp(text + at, "dim", 3) && text[skip_blanks(text, at + 3)] == '=')
        help = "a dim has no keyword: softmax(x, embed)";
    if (!help && text[at] == ':' && text[skip_blanks(text, at + 1)] == '\n')
        help = "a body stands in { }";
    return help;
}
