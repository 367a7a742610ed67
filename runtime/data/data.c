/* data.c -- maps the data files and copies sequences of tokens into the inputs of a program's function. */
#include "data.h"

#include "device.h"
#include "mesh/comm.h"
#include "store/map.h"

#include <stdlib.h>
#include <string.h>

RtData *rt_data_open(const char *path, const char *option, const char *format, int64_t vocab)
{
    RtData *data = rt_allocate(1, sizeof *data);
    data->path = path;
    data->option = option;
    data->map = rt_map_file(path, option, &data->bytes);
    rt_data_recognise(data, format, vocab);
    return data;
}

void rt_data_close(RtData *data)
{
    if (data)
        rt_unmap_file(data->map, data->bytes);
    free(data);
}

/* Tokens needed after a sequence: at least one, so that all models have the same sequences. */
static int64_t further_tokens(const RtFunction *f)
{
    int64_t further = 1;
    for (const RtInput *input = f->inputs; input < f->inputs + f->ninputs; input++)
        if (input->shift > further)
            further = input->shift;
    return further;
}

int64_t rt_data_sequences(const RtData *data, const RtFunction *f)
{
    int64_t further = further_tokens(f);
    return data->count > further ? (data->count - further) / f->seq : 0;
}

void rt_data_require(const RtData *data, const RtFunction *f)
{
    int64_t sequences = f->micro * f->batch, further = further_tokens(f), needed = sequences * f->seq + further;
    if (data->count < needed)
        rt_fail("%s %s: one batch needs %lld tokens (%lld sequences of %lld, and %lld), but it has %lld (%s); "
                "give more data or a smaller batch",
                data->option, data->path, (long long)needed, (long long)sequences, (long long)f->seq,
                (long long)further, (long long)data->count, data->format);
}

/* Loads at any address: tokens need not be aligned. */
#define LOAD(type)                                                                                                     \
    do {                                                                                                               \
        type value;                                                                                                    \
        memcpy(&value, data->tokens + position * (int64_t)sizeof value, sizeof value);                                 \
        return value;                                                                                                  \
    } while (0)

static int64_t token_at(const RtData *data, int64_t position)
{
    switch (data->type) {
    case RT_U8:
        LOAD(uint8_t);
    case RT_I8:
        LOAD(int8_t);
    case RT_U16:
        LOAD(uint16_t);
    case RT_I16:
        LOAD(int16_t);
    case RT_U32:
        LOAD(uint32_t);
    case RT_I32_TOKEN:
        LOAD(int32_t);
    case RT_I64:
        LOAD(int64_t);
    }
    return -1; /* no such type */
}

/* The bound of tokens: the minimum of the program's vocabulary, the input's, and the range of i32. */
static int64_t vocab_of(const RtProgram *program, const RtInput *input)
{
    int64_t vocab = (int64_t)INT32_MAX + 1;
    if (program->vocab > 0 && program->vocab < vocab)
        vocab = program->vocab;
    return input->vocab > 0 && input->vocab < vocab ? input->vocab : vocab;
}

/* This rank's part of an input. */
typedef struct {
    RtPart batch, seq;
    int64_t rows, length, vocab;
} Part;

static Part part_of(const Rt *rt, const RtFunction *f, const RtInput *input)
{
    return (Part){ .batch = rt_part(rt, input->batch, f->batch),
                   .seq = rt_part(rt, input->seq, input->padded),
                   .rows = rt_part_size(rt, input->batch, f->batch),
                   .length = rt_part_size(rt, input->seq, input->padded),
                   .vocab = vocab_of(rt->program, input) };
}

/* The position in the data of row n of this rank's [micro, batch]. */
static int64_t begin_of(const RtFunction *f, const RtInput *input, const Part *part, const int64_t *sequence, int64_t n)
{
    return sequence[n / part->rows * f->batch + rt_position(part->batch, n % part->rows)] * f->seq + input->shift;
}

/* The position of the first token of a row that is not in the vocabulary, or -1. */
static int64_t find_bad(const RtData *data, const RtInput *input, const Part *part, int64_t begin)
{
    for (int64_t s = 0; s < part->length; s++) {
        int64_t at = rt_position(part->seq, s), token = at < input->length ? token_at(data, begin + at) : 0;
        if (token < 0 || token >= part->vocab)
            return begin + at;
    }
    return -1;
}

char *rt_data_fault(const RtData *data, const Rt *rt, const RtFunction *f, const int64_t *sequence)
{
    for (const RtInput *input = f->inputs; input < f->inputs + f->ninputs; input++) {
        Part part = part_of(rt, f, input);
        for (int64_t n = 0; n < f->micro * part.rows; n++) {
            int64_t bad = find_bad(data, input, &part, begin_of(f, input, &part, sequence, n));
            if (bad >= 0)
                return rt_text("%s %s: token %lld at position %lld is not in the vocabulary of %lld; "
                               "were the data made with the tokenizer of this model, and are they %s? (--data-format "
                               "says so)",
                               data->option, data->path, (long long)token_at(data, bad), (long long)bad,
                               (long long)part.vocab, data->format);
        }
    }
    return NULL;
}

void rt_data_fill(const RtData *data, Rt *rt, const RtFunction *f, const int64_t *sequence)
{
    for (const RtInput *input = f->inputs; input < f->inputs + f->ninputs; input++) {
        Part part = part_of(rt, f, input);
        int32_t *to =
            rt_stage(rt, rt_own_place(rt, input->offset), f->micro * part.rows * part.length * (int64_t)sizeof *to);
        for (int64_t n = 0; n < f->micro * part.rows; n++) {
            int64_t begin = begin_of(f, input, &part, sequence, n);
            for (int64_t s = 0; s < part.length; s++) {
                int64_t at = rt_position(part.seq, s);
                *to++ = at < input->length ? (int32_t)token_at(data, begin + at) : 0;
            }
        }
    }
}
