/* ranks.c -- places on the mesh, counted with the last axis fastest. */
#include "ranks.h"

#include "codegen/text/names.h"

#include <inttypes.h>
#include <string.h>

int rank_count(const Module *m)
{
    int count = 1;
    for (int i = 0; i < m->naxes; i++)
        count *= (int)m->axis_size[i];
    return count;
}

static int64_t coordinate(const Module *m, int rank, int axis)
{
    int64_t step = 1;
    for (int i = m->naxes - 1; i > axis; i--)
        step *= m->axis_size[i];
    return rank / step % m->axis_size[axis];
}

/* Of more than two blocks of the r-th rank of the outermost axis; `block`: of all axes. */
static RtPart dealt_part(const Module *m, const Dim *dim, int64_t r, int64_t block)
{
    const int64_t n = m->axis_size[dim->split.axis[0]], piece = dim->padded / n / dim->zigzag;
    const int64_t begin = block * local_size(m, dim) - r * dim->zigzag * piece, back = (2 * n - 1 - r) * piece;
    return (RtPart){ .first = r * piece + begin,
                     .jump_from = piece,
                     .jump = back - (r + 1) * piece,
                     .begin = begin,
                     .period = 2 * piece,
                     .skip = 2 * n * piece - 2 * piece };
}

/* Like runtime/mesh/comm.c, but implemented independently. */
RtPart part_on_rank(const Module *m, const Dim *dim, int rank)
{
    int64_t block = 0, length = local_size(m, dim);
    for (int i = 0; i < dim->split.count; i++)
        block = block * m->axis_size[dim->split.axis[i]] + coordinate(m, rank, dim->split.axis[i]);
    int64_t n = dim->split.count ? m->axis_size[dim->split.axis[0]] : 1;
    block = dim->split.turn ? (block + dim->split.turn) % n : block; /* over one axis */
    if (dim->zigzag > 2)
        return dealt_part(m, dim, coordinate(m, rank, dim->split.axis[0]), block);
    if (dim->split.dealt) {
        const int64_t piece = length / dim->split.dealt;
        return (RtPart){
            .first = block * piece, .jump_from = piece, .period = piece, .skip = dim->padded / dim->split.dealt - piece
        };
    }
    if (!dim->zigzag)
        return (RtPart){ .first = block * length, .jump_from = length };
    int64_t r = dim->split.turn ? block : coordinate(m, rank, dim->split.axis[0]);
    int64_t piece = dim->padded / (2 * n), back = (2 * n - 1 - r) * piece;
    int64_t begin = block * length - r * 2 * piece; /* in the two pieces of r's, one behind the other */
    if (begin >= piece)
        return (RtPart){ .first = back + begin - piece, .jump_from = length };
    return (RtPart){ .first = r * piece + begin, .jump_from = piece - begin, .jump = back - (r + 1) * piece };
}

bool has_pending(const Module *m, const Type *type, int rank)
{
    for (int i = 0; i < m->naxes; i++)
        if (type->partial >> i & 1 && coordinate(m, rank, i) != 0)
            return false;
    return true;
}

bool holds_copy(const Module *m, const Type *type, int rank)
{
    Axes axes = type->partial;
    for (int i = 0; i < type->rank; i++)
        for (int j = 0; j < type->dim[i].split.count; j++)
            axes |= (Axes)1 << type->dim[i].split.axis[j];
    for (int i = 0; i < m->naxes; i++)
        if (!(axes >> i & 1) && coordinate(m, rank, i) != 0)
            return true;
    return false;
}

typedef struct {
    const char *name;
    const Dim *dim;
} Place;

enum { MAX_PLACES = 64 };

static void note_places(Module *m, const Values *values, const char *text, Place place[], int *count)
{
    for (int i = 0; i < values->count; i++)
        for (int d = 0; d < values->at[i]->type.rank; d++) {
            const Dim *dim = &values->at[i]->type.dim[d];
            const char *name = dim->split.count ? offset_variable(m, dim) : NULL;
            bool is_new = name && *count < MAX_PLACES && strstr(text, name);
            for (int p = 0; p < *count && is_new; p++)
                is_new = strcmp(place[p].name, name) != 0;
            if (is_new)
                place[(*count)++] = (Place){ name, dim };
        }
}

void write_ranks(Module *m, const char *text, FILE *out)
{
    Place place[MAX_PLACES];
    int count = 0;
    for (const Func *f = m->funcs; f; f = f->next) {
        note_places(m, &f->params, text, place, &count);
        for (const Op *op = f->first; op; op = op->next)
            note_places(m, &op->results, text, place, &count);
    }
    fprintf(out, "extern \"C\" void emulated_rank(int rank)\n{\n");
    for (int rank = 0; rank < rank_count(m); rank++)
        for (int i = 0; i < count; i++) {
            RtPart part = part_on_rank(m, place[i].dim, rank);
            fprintf(out,
                    "    if (rank == %d)\n        %s = { %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                    ", %" PRId64 " };\n",
                    rank, place[i].name, part.first, part.jump_from, part.jump, part.begin, part.period, part.skip);
        }
    fprintf(out, "}\n");
}
