/* cut_pipeline.c -- the repeats of a pipeline whose ranks have several stages: a loop for each chunk, and its rule.
 *
 *   pipeline enc, dec over pp, chunks = 2, stages = [2, 2, 1, 2]       of 3 and 4 copies
 *   =>
 *   first chunk    enc.copy:3 over pp(2+1), dec.copy:1 over pp(-+1)
 *   second chunk   dec.copy.chunk2:3 over pp(1+2)
 */
#include "parallel.h"
#include "stages.h"

/* What a chunk has of the repeats, one after the other. */
typedef struct {
    int count, repeat[MAX_REPEATS];
    int64_t copies[MAX_REPEATS];
    Name dim[MAX_REPEATS]; /* of these copies */
} Chunk;

/* The copies of each chunk: as said, or evenly. */
static int64_t copies_of(const Pipeline *pipeline, int ranks, int chunk)
{
    int64_t copies = 0;
    if (!pipeline->parts.count)
        return pipeline->copies / pipeline->chunks + (chunk < pipeline->copies % pipeline->chunks);
    for (int i = 0; i < ranks; i++)
        copies += pipeline->parts.part[chunk * ranks + i];
    return copies;
}

static void share_repeats(const Pipeline *pipeline, int ranks, Chunk *chunks)
{
    const int64_t *copies = pipeline->repeat_copies;
    int repeat = 0;
    int64_t left = copies[0];
    for (int i = 0; i < pipeline->chunks; i++) {
        Chunk *c = &chunks[i];
        for (int64_t room = copies_of(pipeline, ranks, i); room > 0; c->count++) {
            while (!left)
                left = copies[++repeat];
            const int64_t taken = left < room ? left : room;
            c->repeat[c->count] = repeat;
            c->copies[c->count] = taken;
            room -= taken;
            left -= taken;
        }
    }
}

/* Cuts one repeat where chunks begin, and notes the dims of its parts. */
static void cut_in_chunks(Module *m, Chunk *chunks, int count, int repeat, Name dim)
{
    int64_t copies[MAX_CHUNKS];
    Name dims[MAX_CHUNKS];
    int parts = 0;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < chunks[i].count; k++)
            if (chunks[i].repeat[k] == repeat)
                copies[parts++] = chunks[i].copies[k];
    dims[0] = dim;
    if (parts > 1)
        cut_repeat(m, dim, copies, parts, dims);
    parts = 0;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < chunks[i].count; k++)
            if (chunks[i].repeat[k] == repeat)
                chunks[i].dim[k] = dims[parts++];
}

/* --- Rules ---------------------------------------------------------------------------------------------- */

/* The copies of each rank, in the order of ranks. */
static Name parts_of_ranks(Module *m, const int64_t *stage, int ranks, bool reversed)
{
    int64_t part[MAX_SET_RANKS];
    for (int i = 0; i < ranks; i++)
        part[reversed ? ranks - 1 - i : i] = stage[i];
    return parts_text(m, part, ranks);
}

static void take_rule(Module *m, const ShardRule *rule)
{
    ShardRule **at = &m->rules;
    while (*at != rule)
        at = &(*at)->next;
    *at = rule->next;
}

/* The rules of a chunk: its repeats share the stages. */
static void split_chunk(Module *m, const Pipeline *pipeline, const Chunk *c, int number, int axis)
{
    const int ranks = (int)m->axis_size[axis];
    const bool reversed = pipeline->placement == VEE && number % 2, is_said = pipeline->parts.count > 0;
    int64_t part[MAX_REPEATS][MAX_SET_RANKS];
    if (is_said)
        cut_repeats(c->copies, c->count, &pipeline->parts.part[number * ranks], part);
    for (int k = 0; k < c->count; k++) {
        ShardRule *rule = split_layers(m, c->dim[k], axis, NULL);
        rule->parts = is_said ? parts_of_ranks(m, part[k], ranks, reversed) : NULL;
        rule->reversed = reversed;
        rule->joined = k > 0;
    }
}

/* A mean of weights of the stages would be on all ranks, or be in stages of its own. */
static void refuse_means(Lower *l, Name dim)
{
    const Ast *ast = only_statement(l->layout, A_PIPELINE);
    for (const Param *mean = l->m->params; mean; mean = mean->next) {
        const Param *of = mean->like ? find_param(l->m, mean->like) : NULL;
        if (of && (find_dim(&of->type, dim) >= 0 || find_dim(&mean->type, dim) >= 0)) {
            complain(l, (Where){ .at = ast->name_loc, .help = "another axis: shard over it, or zero 3 over dp" },
                     "a pipeline cannot divide a repeat with means of its weights: '%s' is one of '%s'", mean->path,
                     of->path);
            return;
        }
    }
}

void cut_pipeline(Lower *l)
{
    Module *m = l->m;
    const Pipeline *pipeline = &l->layout->pipeline;
    Chunk chunks[MAX_CHUNKS] = { { 0 } };
    Name dims[MAX_REPEATS];
    for (int i = 0; i < pipeline->repeats; i++)
        refuse_means(l, dims[i] = pipeline->rule[i]->dims.name[0]);
    if (pipeline->repeats > 1)
        carry_through(m, dims, pipeline->repeats);
    if (!pipeline->repeats || pipeline->chunks == 1)
        return;
    const int axis = pipeline->rule[0]->axis;
    share_repeats(pipeline, (int)m->axis_size[axis], chunks);
    for (int i = 0; i < pipeline->repeats; i++) {
        cut_in_chunks(m, chunks, pipeline->chunks, i, dims[i]);
        take_rule(m, pipeline->rule[i]);
    }
    for (int i = 0; i < pipeline->chunks; i++)
        split_chunk(m, pipeline, &chunks[i], i, axis);
}
