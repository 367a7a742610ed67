/* type_text.c -- types as text, and the words of settings: as characters, since messages and generated code name many.
 */
#include "type_text.h"

#include <inttypes.h>
#include <string.h>

#define KIND(kind, unsaid) const char *const kind##_words[] = { [unsaid] = NULL,
#define WORD(name, text) [name] = (text),
#define END(kind)                                                                                                      \
    }                                                                                                                  \
    ;
#include "words.def"

static size_t dim_room(const Module *m, const Dim *dim)
{
    size_t room = strlen(dim->name) + 64 + (dim->split.parts ? strlen(dim->split.parts) : 0);
    for (int i = 0; i < dim->split.count; i++)
        room += strlen(m->axis[dim->split.axis[i]]) + 1;
    return room;
}

static char *put(char *end, const char *text)
{
    size_t length = strlen(text);
    memcpy(end, text, length + 1);
    return end + length;
}

/* vocab:50257~50304/tp: logical size, size in memory (~~: loops run over padding), axes; a `z` marks zigzag blocks,
 * `8z`: eight for each rank; `4d`: four dealt straight; (3+9): the parts of ranks; -pp: from the last rank to the
 * first; cp@1: the blocks have been rotated by one rank. */
static char *put_dim(const Module *m, const Dim *dim, char *end)
{
    end = put(end, dim->name);
    end += sprintf(end, ":%" PRId64, dim->size);
    if (dim->padded != dim->size)
        end += sprintf(end, dim->full ? "~~%" PRId64 : "~%" PRId64, dim->padded);
    if (dim->split.count && dim->zigzag > 2)
        end += sprintf(end, "/%dz", dim->zigzag);
    if (dim->split.dealt)
        end += sprintf(end, "/%dd", dim->split.dealt);
    for (int i = 0; i < dim->split.count; i++)
        end = put(put(end, i                     ? "+"
                           : dim->zigzag == 2    ? "/z/"
                           : dim->split.reversed ? "/-"
                                                 : "/"),
                  m->axis[dim->split.axis[i]]);
    if (dim->split.turn)
        end += sprintf(end, "@%d", dim->split.turn);
    return dim->split.parts ? put(put(put(end, "("), dim->split.parts), ")") : end;
}

static size_t axes_room(const Module *m)
{
    size_t room = 1;
    for (int i = 0; i < m->naxes; i++)
        room += strlen(m->axis[i]) + 1;
    return room;
}

static char *put_axes(const Module *m, Axes axes, char *end)
{
    for (int i = 0, n = 0; i < m->naxes; i++)
        if (axes & 1u << i)
            end = put(put(end, n++ ? "+" : ""), m->axis[i]);
    return end;
}

char *text_of_dim(Module *m, const Dim *dim)
{
    char *text = NEW_ARRAY(&m->arena, char, dim_room(m, dim));
    put_dim(m, dim, text);
    return text;
}

char *text_of_axes(Module *m, Axes axes)
{
    char *text = NEW_ARRAY(&m->arena, char, axes_room(m));
    put_axes(m, axes, text);
    return text;
}

enum { RANKS_ROOM = 64 * 4 };

/* pp=0+3 */
static char *put_ranks(const Module *m, RankSet on, char *end)
{
    end = put(put(end, m->axis[on.axis]), "=");
    const char *before = "";
    for (int rank = 0; rank < MAX_SET_RANKS; rank++)
        if (on.at >> rank & 1) {
            end += sprintf(end, "%s%d", before, rank);
            before = "+";
        }
    return end;
}

char *ranks_text(Module *m, RankSet on)
{
    char *text = NEW_ARRAY(&m->arena, char, axes_room(m) + RANKS_ROOM);
    put_ranks(m, on, text);
    return text;
}

char *type_text(Module *m, const Type *type)
{
    size_t room = 64 + 2 * axes_room(m) + RANKS_ROOM;
    for (int i = 0; i < type->rank; i++)
        room += dim_room(m, &type->dim[i]) + 2;
    char *text = NEW_ARRAY(&m->arena, char, room), *end = put(put(text, dtype_name[type->dtype]), "[");
    for (int i = 0; i < type->rank; i++)
        end = put_dim(m, &type->dim[i], put(end, i ? ", " : ""));
    end = put(end, "]");
    if (type->partial)
        end = put(put_axes(m, type->partial, put(end, type->by == BY_MAX ? " partial_max(" : " partial(")), ")");
    if (type->on.at)
        end = put(put_ranks(m, type->on, put(end, " on(")), ")");
    if (type->tier)
        end = put(put(end, " on "), Tier_words[type->tier]);
    put(end, type->in_flight ? " in_flight" : "");
    return text;
}
