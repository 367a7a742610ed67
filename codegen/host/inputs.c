/* inputs.c -- the tables of inputs: what the trainer fills before it runs a function. */
#include "codegen.h"
#include "host_parts.h"

#include <inttypes.h>

static const Input *input_of(const Module *m, const Value *param)
{
    return param->port.kind == PORT_INPUT ? find_input(m, param->port.of) : NULL;
}

/* Is it a dim of a record, rather than the batch or the micro-batches? */
static bool is_of_record(const Module *m, const Input *input, const Dim *dim)
{
    return dim->name != m->batch && find_dim(&input->type, dim->name) >= 0;
}

static char *dim_text(Module *m, const Dim *dim)
{
    const char *split = dim->split.count ? arena_text(&m->arena, ", .split = %s", split_initialiser(m, dim)) : "";
    return arena_text(&m->arena, "{ .size = %" PRId64 ", .padded = %" PRId64 "%s }", dim->size, dim->padded, split);
}

/* The split of the batch, and the dims of a record. */
static void write_dims(Module *m, const Input *input, const Value *value, FILE *out)
{
    int rank = 0;
    for (int i = 0; i < value->type.rank; i++) {
        const Dim *dim = &value->type.dim[i];
        if (dim->name == m->batch && dim->split.count)
            fprintf(out, "        .batch = %s,\n", split_initialiser(m, dim));
        if (is_of_record(m, input, dim))
            fprintf(out, "        .dim[%d] = %s,\n", rank++, dim_text(m, dim));
    }
    if (rank)
        fprintf(out, "        .rank = %d,\n", rank);
}

static void write_input(Module *m, const Input *input, const Value *value, FILE *out)
{
    static const char *const types[N_DTYPES] = { [F32] = "RT_F32", [I32] = "RT_I32", [BOOL] = "RT_BOOL" };
    fprintf(out, "    {\n        .name = %s,\n        .of = %s,\n        .type = %s,\n", string_text(m, input->name),
            string_text(m, input->of), types[input->type.dtype]);
    fprintf(out, "        .offset = %" PRId64 ",\n        .shift = %" PRId64 ",\n        .vocab = %" PRId64 ",\n",
            value->storage->at, input->shift, input->vocab);
    if (input->may_ignore && is_fed_records(m))
        fprintf(out, "        .may_ignore = true,\n        .ignored = %" PRId64 ",\n", input->ignored);
    write_dims(m, input, value, out);
    fputs("    },\n", out);
}

int count_inputs(const Module *m, const Func *f)
{
    int count = 0;
    for (int i = 0; i < f->params.count; i++)
        count += input_of(m, f->params.at[i]) != NULL;
    return count;
}

void write_inputs(Module *m, const Func *f, const char *name, FILE *out)
{
    if (count_inputs(m, f) == 0)
        return;
    fprintf(out, "static const RtInput %s_inputs[] = {\n", name);
    for (int i = 0; i < f->params.count; i++) {
        const Input *input = input_of(m, f->params.at[i]);
        if (input)
            write_input(m, input, f->params.at[i], out);
    }
    fputs("};\n\n", out);
}

InputShape input_shape(const Module *m, const Func *f)
{
    InputShape shape = { 1, 1, 1 };
    for (int i = 0; i < f->params.count; i++) {
        const Value *value = f->params.at[i];
        const Input *input = input_of(m, value);
        for (int d = 0; input && d < value->type.rank; d++) {
            const Dim *dim = &value->type.dim[d];
            int64_t *of = find_dim(&input->type, dim->name) < 0 ? &shape.micro
                          : dim->name == m->batch               ? &shape.batch
                                                                : &shape.seq;
            *of = dim->size > *of ? dim->size : *of;
        }
    }
    if (is_fed_records(m))
        shape.seq = 1;
    return shape;
}
