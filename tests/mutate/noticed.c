/* noticed.c -- two programs compared by what they compute, each with names of its own. */
#include "noticed.h"

/* The same tensors, with the dims' names as `m` has interned them. */
static Meaning renamed(Module *m, const Meaning *meaning)
{
    Meaning copy = { .count = meaning->count, .at = NEW_ARRAY(&m->arena, Named, meaning->count + 1) };
    for (int i = 0; i < meaning->count; i++) {
        Type *type = &copy.at[i].tensor.type;
        copy.at[i] = meaning->at[i];
        for (int d = 0; d < type->rank; d++)
            type->dim[d].name = intern_text(m, type->dim[d].name);
    }
    return copy;
}

bool is_noticed(Module *m, const Meaning *right, bool exact)
{
    Meaning before = renamed(m, right), after = { 0 };
    Difference difference;
    int at;
    bool noticed = !find_meaning(m, exact, &after) || !same_meaning(&before, &after, exact, &at, &difference);
    forget_meaning(&after);
    return noticed;
}
