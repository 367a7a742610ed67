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

Value *rewrite(Builder *b, const Rule *rules, int nrules, Op *op)
{
    for (int i = 0; i < nrules; i++) {
        Binding binding = { 0 };
        if (!match(rules[i].when, result(op), &binding))
            continue;
        Value *value = build_term(b, rules[i].write, &binding);
        if (type_equal(&value->type, &result(op)->type))
            return value;
    }
    return NULL;
}

/* Would the number, which takes the dtype of the other operand, change the dtype of a reader's result? */
static bool changes_readers(Module *m, const Op *op, Value *number)
{
    for (const Op *reader = op->next; reader; reader = reader->next) {
        Op with = *reader;
        if (index_of(&reader->args, result(op)) < 0)
            continue;
        with.args.at = NEW_ARRAY(&m->arena, Value *, reader->args.count);
        for (int i = 0; i < reader->args.count; i++)
            with.args.at[i] = arg(reader, i) == result(op) ? number : arg(reader, i);
        const Type *types = infer_results(m, &with);
        for (int i = 0; types && i < reader->results.count; i++)
            if (types[i].dtype != reader->results.at[i]->type.dtype)
                return true;
    }
    return false;
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
        if (simpler && !(is_any_number(simpler) && changes_readers(m, op, simpler)))
            map_put(&instead, result(op), simpler);
    }
    resolve_all(&instead, &f->results);
}
