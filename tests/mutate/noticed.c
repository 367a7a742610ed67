/* noticed.c -- compares the results of two programs with separate names. */
#include "noticed.h"

/* The same tensors, with the dims' names as `m` has interned them. */
static Observables renamed(Module *m, const Observables *observables)
{
    Observables copy = { .count = observables->count, .at = NEW_ARRAY(&m->arena, Observable, observables->count + 1) };
    for (int i = 0; i < observables->count; i++) {
        Type *type = &copy.at[i].tensor.type;
        copy.at[i] = observables->at[i];
        for (int d = 0; d < type->rank; d++)
            type->dim[d].name = intern_text(m, type->dim[d].name);
    }
    return copy;
}

bool is_noticed(Module *m, const Observables *right, bool exact)
{
    Observables before = renamed(m, right), after = { 0 };
    Difference difference;
    int at;
    bool noticed =
        !find_observables(m, exact, &after) || !same_observables(m, &before, &after, exact, &at, &difference);
    forget_observables(&after);
    return noticed;
}
