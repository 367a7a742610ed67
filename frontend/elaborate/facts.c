/* facts.c -- notes the types of names and expressions while a model is lowered.
 *
 * A block is lowered once for each instance: the first one's types are kept, and others counted.
 */
#include "facts.h"
#include "instances.h"
#include "sizes.h"

#include <string.h>

/* Parts of the module, which may be freed before the facts. */
typedef struct Description {
    const Type *type;
    const Param *param;
    const struct Description *next; /* of another instance */
} Description;

const Fact *fact_at(const Facts *facts, Loc at)
{
    const Fact *fact = map_get(&facts->begin, facts->source->text + at.begin);
    while (fact && fact->at.end != at.end)
        fact = fact->next;
    return fact;
}

static bool is_noted(const Lower *l)
{
    const Facts *facts = l->options->facts;
    return facts && l->source == facts->source && (l->role == MODEL || l->matrix);
}

/* The fact of that place; *is_new: it has just been made. */
static Fact *make_fact(Lower *l, Loc at, bool *is_new)
{
    Facts *facts = l->options->facts;
    Fact *fact = (Fact *)fact_at(facts, at);
    *is_new = !fact;
    if (fact)
        return fact;
    const char *begin = facts->source->text + at.begin;
    fact = NEW(facts->arena, Fact);
    *fact = (Fact){ .at = at, .next = map_get(&facts->begin, begin), .older = facts->newest };
    facts->newest = fact;
    map_put(&facts->begin, begin, fact);
    return fact;
}

static const char *sizes_text(Arena *arena, const Type *type, Name batch)
{
    const char *text = "";
    for (int i = 0; i < type->rank; i++)
        if (type->dim[i].name != batch)
            text = arena_text(arena, "%s%s%s = %lld", text, *text ? ", " : "", type->dim[i].name,
                              (long long)type->dim[i].size);
    return text;
}

void note_type(Lower *l, Loc at, const Type *type)
{
    bool is_new;
    if (!is_noted(l))
        return;
    Fact *fact = make_fact(l, at, &is_new);
    if (fact->described) {
        fact->others += !type_equal(fact->described->type, type);
        return;
    }
    Arena *arena = l->options->facts->arena;
    Type *kept = NEW(l->arena, Type);
    Description *described = NEW(l->arena, Description);
    *kept = *type;
    described->type = kept;
    fact->described = described;
    fact->type = arena_text(arena, "%s", type_words(l, type));
    fact->sizes = sizes_text(arena, type, l->m->batch);
}

void note_operand(Lower *l, Loc at, Operand operand)
{
    bool is_new;
    if (operand.kind == TENSOR)
        note_type(l, at, &operand.value->type);
    if (operand.kind != NUMBER || !is_noted(l))
        return;
    Fact *fact = make_fact(l, at, &is_new);
    const char *text = constant_text(l->options->facts->arena, operand.number);
    if (is_new)
        fact->type = text, fact->sizes = "";
    else
        fact->others += strcmp(fact->type, text) != 0;
}

void note_value(Lower *l, const char *name, Loc at, Operand operand)
{
    note_operand(l, at, operand);
    Fact *fact = is_noted(l) ? (Fact *)fact_at(l->options->facts, at) : NULL;
    if (fact && !fact->path && operand.kind == TENSOR)
        fact->path = arena_text(l->options->facts->arena, "%s", join_path(l, l->path, name));
}

void note_param(Lower *l, Loc at, const Param *param, const Type *type)
{
    if (!is_noted(l))
        return;
    note_type(l, at, type);
    Fact *fact = (Fact *)fact_at(l->options->facts, at);
    Description *described = NEW(l->arena, Description);
    *described = (Description){ fact->described->type, param, fact->described };
    fact->described = described;
}

static void describe_param(const Facts *facts, Fact *fact, const Param *param)
{
    double elements = 1;
    for (int i = 0; i < param->type.rank; i++)
        elements *= (double)param->type.dim[i].size;
    fact->param.tensors += (int)tensor_count(param);
    fact->param.elements += elements;
    fact->param.decays |= param->decay;
    fact->param.path = arena_text(facts->arena, "%s", param->path); /* in the end, that of the first instance */
}

void finish_facts(Lower *l)
{
    Facts *facts = l->options->facts;
    l->role = MODEL;
    for (const Symbol *s = l->globals.newest; s; s = s->next)
        if (!s->wrong && (s->kind == S_CONST || (s->kind == S_DIM && s != l->batch && !s->is_slots)))
            note_operand(l, s->loc, (Operand){ .kind = NUMBER, .number = s->number });
    for (Fact *fact = facts->newest; fact; fact = fact->older) {
        for (const Description *d = fact->described; d; d = d->next)
            if (d->param)
                describe_param(facts, fact, d->param);
        fact->described = NULL;
    }
    facts->is_complete = l->diags->errors == 0;
}
