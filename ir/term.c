/* term.c -- parses, matches and builds algebraic terms. */
#include "term.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    char symbol;
    OpKind kind;
    int binds;
} infix[] = {
    { '+', OP_add, 1 },
    { '-', OP_sub, 1 },
    { '*', OP_mul, 2 },
    { '/', OP_div, 2 },
};

static Term *make(Arena *arena, Term term)
{
    Term *made = NEW(arena, Term);
    *made = term;
    return made;
}

static Term *read_sum(Arena *arena, const char **at, int binds);

static char skip_spaces(const char **at)
{
    while (**at == ' ')
        ++*at;
    return **at;
}

static void expect(const char **at, char wanted)
{
    if (skip_spaces(at) != wanted)
        abort();
    ++*at;
}

static Term *read_variable(Arena *arena, const char **at)
{
    if (!islower((unsigned char)**at))
        abort();
    return make(arena, (Term){ .is = VARIABLE, .letter = *(*at)++ });
}

static Term *read_call(Arena *arena, const char **at)
{
    OpKind kind = 0;
    size_t length = strspn(*at, "abcdefghijklmnopqrstuvwxyz_0123456789");
    while (kind < N_OPS && (strlen(op_table[kind].name) != length || memcmp(op_table[kind].name, *at, length) != 0))
        kind++;
    if (kind == N_OPS)
        abort();
    *at += length;
    Term *call = make(arena, (Term){ .is = OP, .kind = kind });
    for (int i = 0; i < op_table[kind].args; i++) {
        expect(at, i ? ',' : '(');
        call->arg[i] = read_sum(arena, at, 0);
    }
    expect(at, ')');
    return call;
}

static Term *read_operand(Arena *arena, const char **at)
{
    char c = skip_spaces(at);
    if (c == '(') {
        ++*at;
        Term *inner = read_sum(arena, at, 0);
        expect(at, ')');
        return inner;
    }
    if (c == '-' && !isdigit((unsigned char)(*at)[1])) {
        ++*at;
        return make(arena, (Term){ .is = OP, .kind = OP_neg, .arg = { read_operand(arena, at) } });
    }
    if (c == '-' || isdigit((unsigned char)c)) {
        char *end;
        double number = strtod(*at, &end);
        *at = end;
        return make(arena, (Term){ .is = NUMBER, .number = number });
    }
    return isalpha((unsigned char)(*at)[1]) ? read_call(arena, at) : read_variable(arena, at);
}

/* Precedence climbing: reads operators that bind tighter than `binds`. */
static Term *read_sum(Arena *arena, const char **at, int binds)
{
    Term *left = read_operand(arena, at);
    for (;;) {
        size_t i = 0, n = sizeof infix / sizeof *infix;
        char symbol = skip_spaces(at);
        while (i < n && (infix[i].symbol != symbol || infix[i].binds <= binds))
            i++;
        if (i == n)
            return left;
        ++*at;
        Term *right = read_sum(arena, at, infix[i].binds);
        left = make(arena, (Term){ .is = OP, .kind = infix[i].kind, .arg = { left, right } });
    }
}

Term *read_term(Arena *arena, const char *text)
{
    Term *term = read_sum(arena, &text, 0);
    if (*text)
        abort();
    return term;
}

/* All operands in order; with `swapped`, the first two exchanged. */
static bool match_args(const Term *term, const Op *def, bool swapped, Binding *binding)
{
    Binding before = *binding;
    for (int i = 0; i < def->args.count; i++)
        if (!match(term->arg[i], arg(def, swapped && i < 2 ? 1 - i : i), binding)) {
            *binding = before;
            return false;
        }
    return true;
}

bool match(const Term *term, Value *value, Binding *binding)
{
    if (term->is == VARIABLE) {
        Value **bound = &binding->value[term->letter - 'a'];
        if (!*bound)
            *bound = value;
        return *bound == value;
    }
    if (term->is == NUMBER)
        return is_number(value, term->number);
    const Op *def = value->def;
    if (!def || def->kind != term->kind)
        return false;
    return match_args(term, def, false, binding) ||
           (info(def)->traits & COMMUTES && match_args(term, def, true, binding));
}

Value *build_term(Builder *b, const Term *term, const Binding *binding)
{
    if (term->is == VARIABLE)
        return binding->value[term->letter - 'a'];
    if (term->is == NUMBER)
        return build_number(b, term->number);
    Value *args[3] = { NULL };
    for (int i = 0; i < op_table[term->kind].args; i++)
        args[i] = build_term(b, term->arg[i], binding);
    return build_op(b, term->kind, NO_ATTRS, op_table[term->kind].args, args);
}
