/* near.c -- finds the existing name that is nearest to an unknown one. */
#include "near.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int smaller(int a, int b) { return a < b ? a : b; }

/* The number of letters to insert, delete, change, or swap with their neighbour (optimal string alignment distance); a
 * capital is no change.  More than `most` if it is known to be: at once where the lengths differ by more, so that
 * 100,000 names are offered quickly.  Names longer than a row count as distant. */
static int edit_distance(const char *a, const char *b, int most)
{
    enum { LONGEST = 64 };
    int row[3][LONGEST + 1], n = (int)strlen(a), m = (int)strlen(b);
    if (n > LONGEST || m > LONGEST || abs(n - m) > most)
        return most + 1;
    for (int i = 0; i <= n; i++) {
        int *now = row[i % 3], *before = row[(i + 2) % 3], *earlier = row[(i + 1) % 3], least = LONGEST;
        for (int j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                now[j] = i + j;
                least = smaller(least, now[j]);
                continue;
            }
            int change = before[j - 1] + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));
            now[j] = smaller(change, smaller(before[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = smaller(now[j], earlier[j - 2] + 1);
            least = smaller(least, now[j]);
        }
        if (least > most) /* and so are all later rows */
            return most + 1;
    }
    return row[n % 3][m];
}

/* A third of the letters may be wrong; of a name of one letter, none. */
void offer(NearMiss *near, const char *name)
{
    const int most = (int)(strlen(near->name) + 1) / 3, distance = edit_distance(near->name, name, most);
    if (distance <= most && (!near->best || distance < near->distance)) {
        near->best = name;
        near->distance = distance;
    }
}

static const char before_name[] = "did you mean '", after_name[] = "'?";

const char *did_you_mean(Arena *arena, const NearMiss *near)
{
    return near->best ? arena_text(arena, "%s%s%s", before_name, near->best, after_name) : NULL;
}

const char *name_meant(Arena *arena, const char *help)
{
    const size_t length = strlen(help), before = strlen(before_name), after = strlen(after_name);
    const bool is_such = length > before + after && strncmp(help, before_name, before) == 0 &&
                         strcmp(help + length - after, after_name) == 0;
    return is_such ? arena_text(arena, "%.*s", (int)(length - before - after), help + before) : NULL;
}
