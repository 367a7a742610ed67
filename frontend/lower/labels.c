/* labels.c -- the labels of a cross_entropy, by which a mean of it divides, also where a repeat carries or reads it.
 *
 * A carried value has its initial value in the first copy, and the result of the copy before in the others.  A mean
 * of it inside must have the same divisor in all of them. */
#include "emit.h"

Entropy *note_labels(Lower *l, Entropy labelled)
{
    Entropy *noted = NEW(l->arena, Entropy);
    *noted = labelled;
    map_put(&l->now.labelled, noted->entropy, noted);
    return noted;
}

Entropy *find_labelled(const Lower *l, const Value *value) { return value ? map_get(&l->now.labelled, value) : NULL; }

void note_import(Lower *l, const Value *outside, const Value *inside)
{
    Entropy *known = find_labelled(l, outside);
    if (!known)
        return;
    Entropy own = *known;
    own.entropy = inside;
    own.from = known;
    note_labels(l, own);
}

/* --- What a repeat carries ------------------------------------------------------------------------------ */

Entropy *enter_labels(Lower *l, const Value *before, const Value *inside)
{
    const Entropy *known = find_labelled(l, before);
    Entropy own = known ? *known : (Entropy){ .is_plain = true };
    own.entropy = inside;
    own.from = NULL;
    own.is_averaged = false;
    return note_labels(l, own);
}

/* The labels where they are computed: outside of the bodies that only read them. */
static Entropy at_source(Entropy labelled)
{
    int at;
    while (labelled.labels && labelled.frame->outer &&
           (at = index_of(&labelled.frame->captured, labelled.labels)) >= 0) {
        if (labelled.labels->type.rank != labelled.frame->sources.at[at]->type.rank)
            break; /* of one place of a scan */
        labelled.labels = labelled.frame->sources.at[at];
        labelled.frame = labelled.frame->outer;
    }
    return labelled;
}

static bool same_labels(const Entropy *a, const Entropy *b)
{
    const bool plain = !b || b->is_plain;
    if (a->is_plain || plain)
        return a->is_plain == plain;
    return at_source(*a).labels == at_source(*b).labels && a->ignore == b->ignore;
}

bool leave_labels(Lower *l, Entropy *entered, const Value *after, const char *name, Loc at)
{
    if (!entered || same_labels(entered, find_labelled(l, after)))
        return true;
    if (entered->is_averaged)
        return complain(
            l, (Where){ .at = at, .help = "take the mean before the repeat, or after it" },
            "a mean of '%s' would count labels in some copies only: it is not the same cross_entropy in all", name);
    entered->is_plain = false;
    entered->labels = NULL; /* where it is handed on, nobody knows them */
    return true;
}

void keep_labels(Lower *l, const Body *body, const Value *inside, const Value *handed_on)
{
    const Entropy *known = find_labelled(l, inside);
    if (!known || known->is_plain)
        return;
    Entropy own = at_source(*known);
    if (own.frame == body)
        own.labels = NULL;
    own.entropy = handed_on;
    own.from = NULL;
    note_labels(l, own);
}

void stack_labels(Lower *l, const Body *body, const Value *inside, const Value *stacked)
{
    const Entropy *known = find_labelled(l, inside);
    if (!known || known->is_plain)
        return;
    Entropy own = at_source(*known);
    const int at = own.labels && own.frame == body ? index_of(&body->captured, own.labels) : -1;
    own.labels = at >= 0 ? body->sources.at[at] : NULL;
    own.frame = body->outer;
    own.entropy = stacked;
    own.from = NULL;
    note_labels(l, own);
}
