/* idioms.c -- looks names of other frameworks up in idioms.def. */
#include "idioms.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

typedef struct {
    IdiomKind kind;
    const char *names, *help;
} Idiom;

static const Idiom idioms[] = {
#define IDIOM(kind, names, help) { IDIOM_##kind, names, help },
#include "idioms.def"
};

static const char *const functions[] = {
#define BUILTIN(name, ...) #name,
#include "builtins.def"
};

/* Compares what stands behind the last point with the first `length` letters of `other`. */
static bool is_spelled(const char *name, const char *other, size_t length)
{
    const char *point = strrchr(name, '.'), *end = other + length;
    for (name = point && point[1] ? point + 1 : name;;) {
        name += strspn(name, "_");
        while (other < end && *other == '_')
            other++;
        if (other == end || !*name)
            return other == end && !*name;
        if (tolower((unsigned char)*name++) != tolower((unsigned char)*other++))
            return false;
    }
}

void offer_spelled(NearMiss *near, const char *name)
{
    if (is_spelled(near->name, name, strlen(name)))
        *near = (NearMiss){ .name = near->name, .best = name };
    else
        offer(near, name);
}

void offer_functions(NearMiss *near)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        offer_spelled(near, functions[i]);
}

const char *find_idiom(IdiomKind kind, const char *name)
{
    for (size_t i = 0; i < sizeof idioms / sizeof idioms[0]; i++)
        for (const char *word = idioms[i].names; idioms[i].kind == kind && *word; word += strspn(word, " ")) {
            const size_t length = strcspn(word, " ");
            if (is_spelled(name, word, length))
                return idioms[i].help;
            word += length;
        }
    return NULL;
}

const char *help_with(Arena *arena, IdiomKind kind, const NearMiss *near)
{
    const bool is_known = near->best && near->distance == 0;
    const char *idiom = is_known ? NULL : find_idiom(kind, near->name);
    return idiom ? idiom : did_you_mean(arena, near);
}

const char *help_with_function(Arena *arena, const char *name)
{
    NearMiss near = { .name = name };
    offer_functions(&near);
    return near.best && near.distance == 0
               ? arena_text(arena, "a function stands before its arguments: %s(...)", near.best)
               : help_with(arena, IDIOM_FUNCTION, &near);
}
