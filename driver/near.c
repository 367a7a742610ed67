/* near.c -- insertions, deletions and replacements that lead from one word to another (Levenshtein). */
#include "near.h"

#include <string.h>

enum { LONGEST = 63, ENOUGH = 2 }; /* three letters wrong are another word */

static int least(int a, int b) { return a < b ? a : b; }

static int count_edits(const char *a, const char *b)
{
    int row[LONGEST + 1], length = (int)strlen(b);
    for (int j = 0; j <= length; j++)
        row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= length; j++) {
            int replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = least(replaced, least(row[j], row[j - 1]) + 1);
        }
    }
    return row[length];
}

void near_offer(Near *near, const char *candidate)
{
    if (strlen(candidate) > LONGEST)
        return;
    int edits = count_edits(near->word, candidate);
    if (edits <= ENOUGH && edits < (int)strlen(candidate) && (!near->best || edits < near->edits)) {
        near->best = candidate;
        near->edits = edits;
    }
}
