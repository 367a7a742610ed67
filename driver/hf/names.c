/* names.c -- names with `*` and `{6*i+j}`. */
#include "bind.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *word_at(Arena *arena, const char **at)
{
    int length = 0;
    while (isalnum((unsigned char)(*at)[length]) || (*at)[length] == '_')
        length++;
    const char *word = arena_text(arena, "%.*s", length, *at);
    *at += length;
    return word;
}

const char *path_of(Arena *arena, const char *text, Vars *vars)
{
    const char *path = "";
    vars->count = 0;
    for (const char *c = text; *c;) {
        const bool is_named = *c == '{', is_var = is_named || *c == '*';
        path = arena_text(arena, "%s%c", path, is_var ? '*' : *c);
        c++;
        if (!is_var || vars->count == MAX_VARS)
            continue;
        vars->var[vars->count++] = (Var){ .name = is_named ? word_at(arena, &c) : NULL, .is_copy = true };
        if (is_named && *c == '}')
            c++;
    }
    return path;
}

int64_t number_at(const Var *var) { return var->first + var->step * var->value; }

static const Var *find_var(const Vars *vars, const char *name)
{
    for (int i = 0; i < vars->count; i++)
        if (vars->var[i].name && strcmp(vars->var[i].name, name) == 0)
            return &vars->var[i];
    return NULL;
}

/* The number of a name: of a variable, or one that the map sets. */
static bool number_of(const Vars *vars, const char *name, int64_t *number)
{
    const Var *var = find_var(vars, name);
    const size_t length = strlen(name);
    *number = var ? number_at(var) : 0;
    for (int i = 0; !var && i < vars->defines->count; i++)
        if (strncmp(vars->defines->at[i], name, length) == 0 && vars->defines->at[i][length] == '=') {
            *number = strtoll(vars->defines->at[i] + length + 1, NULL, 10);
            return true;
        }
    return var;
}

/* `6*i+j` up to the closing brace. */
static bool sum_of(Arena *arena, const char **at, const Vars *vars, int64_t *sum, const char **unknown)
{
    *sum = 0;
    for (;;) {
        int64_t factor = 1, number = 1;
        if (isdigit((unsigned char)**at)) {
            char *end;
            factor = strtoll(*at, &end, 10);
            *at = end;
        }
        const bool has_word = **at == '*' || isalpha((unsigned char)**at) || **at == '_';
        *at += **at == '*';
        *unknown = has_word ? word_at(arena, at) : "";
        if (has_word && !number_of(vars, *unknown, &number))
            return false;
        *sum += factor * number;
        if (**at != '+')
            break;
        ++*at;
    }
    *unknown = "";
    return *(*at)++ == '}';
}

/* The next `*` that stands for copies without a name. */
static const Var *next_star(const Vars *vars, int *at)
{
    for (; *at < vars->count; ++*at)
        if (!vars->var[*at].name)
            return &vars->var[(*at)++];
    return NULL;
}

const char *name_of(Arena *arena, const char *pattern, const Vars *vars, const char **unknown, int *stars)
{
    const char *name = "";
    int at = 0;
    *stars = 0;
    for (const char *c = pattern; *c;) {
        int64_t number;
        if (*c == '*') {
            const Var *var = next_star(vars, &at);
            *unknown = "*";
            if (!var)
                return NULL;
            ++*stars;
            name = arena_text(arena, "%s%lld", name, (long long)number_at(var));
            c++;
        } else if (*c == '{') {
            c++;
            if (!sum_of(arena, &c, vars, &number, unknown))
                return NULL;
            name = arena_text(arena, "%s%lld", name, (long long)number);
        } else {
            const int length = (int)strcspn(c, "*{");
            name = arena_text(arena, "%s%.*s", name, length, c);
            c += length;
        }
    }
    return name;
}

bool is_counted(Arena *arena, const char *pattern, const char *name)
{
    bool inside = false;
    for (const char *c = pattern; *c; c++) {
        inside = *c == '{' || (inside && *c != '}');
        if (!inside || !(isalpha((unsigned char)*c) || *c == '_'))
            continue;
        if (strcmp(word_at(arena, &c), name) == 0)
            return true;
        c--;
    }
    return false;
}

bool next_values(Vars *vars)
{
    for (int i = vars->count - 1; i >= 0; i--) {
        if (++vars->var[i].value < vars->var[i].size)
            return true;
        vars->var[i].value = 0;
    }
    return false;
}
