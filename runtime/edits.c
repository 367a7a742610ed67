/* edits.c -- the Levenshtein distance, row by row: see edits.h. */
#include "edits.h"

#include "state.h"

#include <stdlib.h>
#include <string.h>

static int least(int a, int b) { return a < b ? a : b; }

int rt_edits(const char *a, const char *b)
{
    const int length = (int)strlen(b);
    int *row = rt_allocate(length + 1, sizeof *row);
    for (int j = 0; j <= length; j++)
        row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= length; j++) {
            const int replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = least(replaced, least(row[j], row[j - 1]) + 1);
        }
    }
    const int distance = row[length];
    free(row);
    return distance;
}
