/* rewrite.c -- applies the rules of rules.def. */
#include "rewrite.h"

#include "cleanup.h"

Rule *read_rules(Arena *arena, int *count)
{
    static const char *const texts[][2] = {
#define RULE(when, write) { when, write },
#include "rules.def"
    };
    *count = sizeof texts / sizeof *texts;
    Rule *rules = NEW_ARRAY(arena, Rule, *count);
    for (int i = 0; i < *count; i++) {
        const char *when = texts[i][0], *write = texts[i][1];
        rules[i] = (Rule){ { when, write }, read_term(arena, when), read_term(arena, write) };
    }
    return rules;
}

/* Readers of a number take the dtype of their other operands; those of what is computed from numbers do not. */
static bool is_any_number(const Value *value) { return value->def && info(value->def)->traits & WEAK; }

Value *rewrite(Builder *b, const Rule *rules, int nrules, Op *op)
{
    for (int i = 0; i < nrules; i++) {
        Binding binding = { 0 };
        if (!match(rules[i].when, result(op), &binding))
            continue;
        Value *value = construct(b, rules[i].write, &binding);
        if (type_equal(&value->type, &result(op)->type) && !is_any_number(value))
            return value;
    }
    return NULL;
}

void apply_rules(Module *m, Func *f)
{
    int nrules;
    const Rule *rules = read_rules(&m->arena, &nrules);
    Map instead = { .arena = &m->arena };
    for (Op *op = f->first; op; op = op->next) {
        resolve_all(&instead, &op->args);
        if (op->results.count != 1)
            continue;
        Builder b = builder_at(m, f, op);
        Value *simpler = rewrite(&b, rules, nrules, op);
        if (simpler)
            map_put(&instead, result(op), simpler);
    }
    resolve_all(&instead, &f->results);
}
