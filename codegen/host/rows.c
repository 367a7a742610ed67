/* rows.c -- tables of texts, each once: the shapes of products. */
#include "host_parts.h"

#include <string.h>

int row_with_text(Module *m, Texts *rows, const char *text)
{
    for (int i = 0; i < rows->count; i++)
        if (strcmp(rows->at[i], text) == 0)
            return i;
    GROW(&m->arena, rows->at, rows->count, rows->room);
    rows->at[rows->count] = text;
    return rows->count++;
}

int product_number(FuncText *t, const Op *op, int number, Product *p)
{
    Host *h = t->h;
    p->shape.unrounded = h->dialect->rounds && h->dialect->rounds(h, op, number, p);
    const char *unfused = h->dialect->unfused(t, op, number, p);
    return p->naive ? -1 : row_with_text(h->m, &h->products, product_shape_text(h->m, &p->shape, unfused));
}
