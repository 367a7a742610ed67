/* interp_walk.c -- iteration over a space of named dims with several tensors at once. */
#include "interp_shards.h"

/* Unless the space has it already.  All dims come first, then the tensors. */
static void walk_dim(Walk *w, Name name, int64_t size)
{
    for (int i = 0; i < w->dims; i++)
        if (name && w->name[i] == name)
            return;
    w->name[w->dims] = name;
    w->size[w->dims++] = size;
}

static void walk_dims(Walk *w, const Sharded *x, int rank)
{
    for (int i = 0; i < x->type->rank; i++)
        walk_dim(w, x->type->dim[i].name, x->shard[rank].size[i]);
}

void walk_rest(Walk *w, const Sharded *x, int rank, Name but, Name and_but)
{
    for (int i = 0; i < x->type->rank; i++)
        if (x->type->dim[i].name != but && x->type->dim[i].name != and_but)
            walk_dim(w, x->type->dim[i].name, x->shard[rank].size[i]);
    walk_dim(w, NULL, 1);
}

int walk_tensor(Walk *w, const Sharded *x, int rank)
{
    for (int i = 0; i < w->dims; i++) {
        int at = w->name[i] ? find_dim(x->type, w->name[i]) : -1;
        w->stride[w->walkers][i] = at < 0 ? 0 : x->shard[rank].stride[at];
    }
    w->data[w->walkers] = x->shard[rank].data;
    return w->walkers++;
}

Walk walk_over(int rank, const Sharded *dims, const Sharded *more, const Sharded *const walked[])
{
    Walk w = { 0 };
    walk_dims(&w, dims, rank);
    if (more)
        walk_dims(&w, more, rank);
    for (int t = 0; walked[t]; t++)
        walk_tensor(&w, walked[t], rank);
    return w;
}

bool walk_begin(Walk *w)
{
    if (w->dims == 0)
        walk_dim(w, NULL, 1); /* a scalar is one point */
    int last = w->dims - 1;
    w->row = w->size[last];
    for (int t = 0; t < w->walkers; t++)
        w->step[t] = w->stride[t][last];
    for (int i = 0; i < w->dims; i++)
        if (w->size[i] == 0)
            return false;
    return true;
}

bool walk_next(Walk *w)
{
    for (int i = w->dims - 2; i >= 0; i--) {
        bool wraps = ++w->at[i] == w->size[i];
        for (int t = 0; t < w->walkers; t++)
            w->offset[t] += wraps ? -w->stride[t][i] * (w->size[i] - 1) : w->stride[t][i];
        if (!wraps)
            return true;
        w->at[i] = 0;
    }
    return false;
}
