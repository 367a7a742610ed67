/* suggest_split.c -- finds dims for a remedy that an axis could split, where the file names none. */
#include "parallel.h"

#include <string.h>

/* Dims by the weights that have them, as bits of their numbers. */
enum { MOST_WEIGHTS = 64, MOST_DIMS = 32, MOST_SAID = 3 };

typedef struct {
    const char *dim[MOST_DIMS];
    uint64_t weights[MOST_DIMS];
    int dims, count; /* count: of weights */
} Uses;

static void add_use(Uses *uses, const char *dim, uint64_t weights)
{
    int i = 0;
    while (i < uses->dims && strcmp(uses->dim[i], dim) != 0)
        i++;
    if (i == MOST_DIMS)
        return;
    uses->dim[i] = dim;
    uses->weights[i] |= weights;
    uses->dims += i == uses->dims;
}

static void find_weights(Uses *uses, const Ast *list)
{
    for (const Ast *ast = list; ast; ast = ast->next) {
        if (ast->kind == A_PARAM && !ast->is_state && ast->type) {
            uint64_t own = 0;
            for (const Ast *name = ast->child; name && uses->count < MOST_WEIGHTS; name = name->next)
                own |= 1ull << uses->count++;
            for (const Ast *dim = ast->type->child; dim; dim = dim->next)
                add_use(uses, dim->name, own);
        }
        if (ast->body)
            find_weights(uses, ast->body);
    }
}

/* Is there an earlier dim of all weights that have this one, and so never a weight that is split along this one? */
static bool is_hidden(const Uses *uses, int dim, int widest)
{
    for (int i = 0; i < dim; i++)
        if (i != widest && !(uses->weights[dim] & ~uses->weights[i]))
            return true;
    return false;
}

/* Most weights have the dim that layers pass on, and splitting it would need messages for each norm.  The others are
 * made from it by products; prefer those of more than one weight, since a second one sums over them. */
const char *dims_to_split(Lower *l)
{
    Uses uses = { 0 };
    find_weights(&uses, l->file);
    int widest = 0, said = 0;
    const char *text = "";
    for (int i = 0; i < uses.dims; i++)
        if (__builtin_popcountll(uses.weights[i]) > __builtin_popcountll(uses.weights[widest]))
            widest = i;
    for (int least = 2; least > 0 && !said; least--)
        for (int i = 0; i < uses.dims && said < MOST_SAID; i++)
            if (i != widest && __builtin_popcountll(uses.weights[i]) >= least && !is_hidden(&uses, i, widest))
                text = arena_text(l->arena, "%s%s%s", text, said++ ? ", " : "", uses.dim[i]);
    return said ? text : "D";
}
