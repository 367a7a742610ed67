/* slots.c -- two questions about a whole file: the dims of slots, whose sizes calls of dispatch compute, and whether
 * the model is fed records. */
#include "slots.h"

#include <string.h>

const Ast *argument_of(const Ast *call, const char *function, int number)
{
    const Ast *at = call->kind == A_CALL && strcmp(call->name, function) == 0 ? call->child : NULL;
    for (int i = 0; at && i < number; i++)
        at = at->next;
    return at;
}

static bool dispatches_to(const Lower *l, Map *seen, const Ast *ast, const char *name);

/* Is it given to a block that dispatches to it?  Names in brackets that were looked at are in `seen`: blocks that call
 * themselves are reported later. */
static bool gives_slots(const Lower *l, Map *seen, const Ast *call, const char *name)
{
    const Ast *block = call->dims ? l->file : NULL;
    while (block && (block->kind != A_BLOCK || strcmp(block->name, call->name) != 0))
        block = block->next;
    const Ast *own = block ? block->dims : NULL;
    for (const Ast *given = call->dims; given && own; given = given->next, own = own->next) {
        if ((name && strcmp(given->name, name) != 0) || map_get(seen, own))
            continue;
        map_put(seen, own, seen);
        if (dispatches_to(l, seen, block, own->name))
            return true;
    }
    return false;
}

static bool dispatches_to(const Lower *l, Map *seen, const Ast *ast, const char *name)
{
    const Ast *slots = argument_of(ast, "dispatch", 3);
    if (slots && slots->kind == A_NAME && (!name || strcmp(slots->name, name) == 0))
        return true;
    if (ast->kind == A_CALL && gives_slots(l, seen, ast, name))
        return true;
    const Ast *const lists[] = { ast->init, ast->child, ast->body };
    for (int i = 0; i < 3; i++)
        for (const Ast *child = lists[i]; child; child = child->next)
            if (dispatches_to(l, seen, child, name))
                return true;
    return false;
}

bool holds_slots(const Lower *l, const char *name)
{
    Map seen = { .arena = l->arena };
    for (const Ast *ast = l->file; ast; ast = ast->next)
        if (dispatches_to(l, &seen, ast, name))
            return true;
    return false;
}

void forget_slots(Lower *l)
{
    for (Symbol *s = l->globals.newest; s; s = s->next)
        if (s->is_slots)
            s->number = integer_constant(0), s->padded = 0, s->choices.count = 0, s->rounds = NULL;
}

bool declares_records(const Lower *l)
{
    const int most = 1 + (l->m->batch != NULL);
    const char *sequence = NULL;
    for (const Ast *ast = l->model->body; ast; ast = ast->next) {
        if (ast->kind != A_INPUT)
            continue;
        int rank = 0;
        const char *last = NULL;
        for (const Ast *dim = ast->type->child; dim; dim = dim->next)
            rank++, last = dim->name;
        if (!ast->type->name || strcmp(ast->type->name, "i32") != 0 || rank > most ||
            (rank == most && sequence && strcmp(sequence, last) != 0))
            return true;
        sequence = rank == most ? last : sequence;
    }
    return false;
}
