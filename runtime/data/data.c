/* data.c -- copies sequences of tokens, or records, from mapped files into the inputs of a program's function. */
#include "data.h"

#include "device.h"
#include "mesh/comm.h"
#include "store/map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- Which numbers an input gets --------------------------------------------------------------- */

/* This rank's part of an input. */
struct RtFeed {
    const RtColumn *column; /* of records; NULL: tokens, which are in any array */
    RtPart batch;
    int64_t rows, record; /* numbers from one sequence or record to the next */
    int64_t *place;       /* where in a record its elements are, in the order of memory; -1: padding */
    int64_t count, vocab;
    char *fetched; /* the part of the next call, as in the arena; NULL: none has been fetched */
};

/* The bound of tokens: the minimum of the program's vocabulary, the input's, and the range of i32. */
static int64_t vocab_of(const RtData *data, const RtProgram *program, const RtInput *input)
{
    int64_t vocab = (int64_t)INT32_MAX + 1;
    if (!data->is_records && program->vocab > 0 && program->vocab < vocab)
        vocab = program->vocab;
    return input->vocab > 0 && input->vocab < vocab ? input->vocab : vocab;
}

static const RtColumn *column_of(const RtData *data, const RtInput *input)
{
    for (const RtColumn *column = data->column; column < data->column + data->columns; column++)
        if (!strcmp(column->input, input->of))
            return column;
    return NULL;
}

/* Elements of a record of the array from one to the next along dim d of the input; -1: from record to record. */
static int64_t stride_of(const RtData *data, const RtColumn *column, const RtInput *input, int d)
{
    int64_t stride = 1;
    const RtArray *array = column ? &data->array[column->first] : NULL;
    for (int i = input->rank - 1; i > d; i--)
        stride *= array ? array->size[array->rank - input->rank + i] : input->dim[i].size;
    return stride;
}

static void find_places(RtFeed *part, const RtData *data, const Rt *rt, const RtInput *input)
{
    part->count = 1;
    for (int d = 0; d < input->rank; d++)
        part->count *= rt_part_size(rt, input->dim[d].split, input->dim[d].padded);
    part->place = rt_allocate(part->count, sizeof *part->place);
    for (int64_t i = 0; i < part->count; i++)
        part->place[i] = input->shift;
    int64_t inner = 1;
    for (int d = input->rank - 1; d >= 0; d--) {
        const RtInputDim *dim = &input->dim[d];
        const int64_t length = rt_part_size(rt, dim->split, dim->padded);
        const int64_t stride = stride_of(data, part->column, input, d);
        const RtPart own = rt_part(rt, dim->split, dim->padded);
        for (int64_t i = 0; i < part->count; i++) {
            const int64_t at = rt_position(own, i / inner % length);
            if (at >= dim->size || part->place[i] < 0)
                part->place[i] = -1;
            else
                part->place[i] += at * stride;
        }
        inner *= length;
    }
}

static RtFeed feed_of(const RtData *data, const Rt *rt, const RtInput *input)
{
    const RtColumn *column = column_of(data, input);
    const int64_t batch = data->f->batch;
    RtFeed part = { .column = column,
                    .batch = rt_part(rt, input->batch, batch),
                    .rows = rt_part_size(rt, input->batch, batch),
                    .record = column ? stride_of(data, column, input, -1) : data->f->seq,
                    .vocab = vocab_of(data, rt->program, input) };
    find_places(&part, data, rt, input);
    return part;
}

/* --- Opening --------------------------------------------------------------------------------- */

static RtFeed *feeds_of(const RtData *data, const Rt *rt)
{
    RtFeed *feed = rt_allocate(data->f->ninputs, sizeof *feed);
    for (int i = 0; i < data->f->ninputs; i++)
        feed[i] = feed_of(data, rt, &data->f->inputs[i]);
    return feed;
}

/* Is any value of the option INPUT=FILE?  If so, all must be; rt_records_open says which is not. */
static bool names_inputs(const char *const *given, const RtFunction *f)
{
    for (; *given; given++)
        if (rt_records_file(f, *given))
            return true;
    return false;
}

RtData *rt_data_open(const Rt *rt, RtDataGiven given, const RtFunction *f)
{
    RtData *data = rt_allocate(1, sizeof *data);
    data->option = given.option;
    data->f = f;
    data->all = &rt->program->step;
    data->share = given.share;
    data->fraction = given.fraction;
    data->least = given.least;
    data->is_records = rt->program->takes_records || names_inputs(given.given, data->all);
    if (data->is_records && given.format)
        rt_end(RT_EXIT_USAGE, "--data-format is that of tokens, and has no effect on records: leave it out");
    if (data->is_records)
        rt_records_open(data, given.given, f);
    else
        rt_stream_open(data, given, rt->program->vocab);
    data->feed = feeds_of(data, rt);
    return data;
}

void rt_data_close(RtData *data)
{
    if (!data)
        return;
    for (int i = 0; i < data->count; i++)
        rt_unmap_file(data->array[i].map, data->array[i].bytes);
    for (int i = 0; i < data->f->ninputs; i++) {
        free(data->feed[i].place);
        free(data->feed[i].fetched);
    }
    for (int i = 0; i < data->sources; i++)
        rt_source_free(&data->source[i]);
    free(data->feed);
    free(data->array);
    free(data->shard);
    free(data->source);
    free(data->portion);
    free(data->column);
    free(data);
}

int64_t rt_data_sequences(const RtData *data)
{
    const RtPortion *last = &data->portion[data->portions - 1];
    return last->first + last->count;
}

/* Where the numbers of a sequence, or of a record for this input, begin. */
typedef struct {
    const RtArray *array;
    int64_t begin;
} Spot;

/* The last shard that begins at or before this sequence or record: of those without any, several begin there. */
static int rt_shard_with(const RtShard *shard, int count, int64_t number)
{
    int low = 0, high = count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (shard[middle].first <= number)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static Spot spot_of(const RtData *data, const RtFeed *part, int64_t sequence)
{
    const RtColumn all = { .count = data->count }, column = part->column ? *part->column : all;
    const int64_t number = part->column ? rt_records_at(data, sequence) : sequence;
    const int i = column.first + rt_shard_with(data->shard + column.first, column.count, number);
    return (Spot){ &data->array[i], (data->shard[i].begin + number - data->shard[i].first) * part->record };
}

char *rt_data_words(const RtData *data, int i)
{
    return data->is_records ? rt_records_words(data) : rt_stream_words(data, i);
}

char *rt_data_weights(const RtData *data)
{
    char *text = rt_text("%s", "");
    for (int i = 0; i < data->portions && data->portion->weight > 0; i++)
        rt_append(&text, "%s%g", i ? " " : "", data->portion[i].weight);
    return text;
}

/* The sequence or record that row n of this rank's [micro, batch] gets. */
static int64_t sequence_of(const RtFunction *f, const RtFeed *part, const int64_t *sequence, int64_t n)
{
    return sequence[n / part->rows * f->batch + rt_position(part->batch, n % part->rows)];
}

/* --- Errors in data ------------------------------------------------------------------------------ */

static bool is_good(const RtInput *input, const RtFeed *part, const RtArray *array, int64_t at)
{
    if (input->type == RT_F32)
        return isfinite((float)rt_real_at(array, at));
    const int64_t number = rt_integer_at(array, at);
    if (input->type == RT_BOOL)
        return number == 0 || number == 1;
    if (input->may_ignore && part->column && number == input->ignored)
        return true;
    const bool may_be_negative = part->column && input->vocab == 0;
    return number < part->vocab && number >= (may_be_negative ? INT32_MIN : 0);
}

/* "[3, 0, 2]": where a number of a record is in its array. */
static char *index_text(const RtArray *array, int64_t at)
{
    int64_t index[RT_DATA_RANK];
    char *text = rt_text("[");
    for (int d = array->rank - 1; d >= 0; d--) {
        index[d] = at % array->size[d];
        at /= array->size[d];
    }
    for (int d = 0; d < array->rank; d++)
        rt_append(&text, "%s%lld", d ? ", " : "", (long long)index[d]);
    rt_append(&text, "]");
    return text;
}

static char *fault_text(const RtData *data, const RtInput *input, const RtFeed *part, const RtArray *array, int64_t at)
{
    const bool is_real = rt_number_is_real(array->type);
    char *number = is_real ? rt_text("%g", rt_real_at(array, at)) : rt_integer_text(array, at), *text;
    char *where = index_text(array, at);
    if (!data->is_records)
        text = rt_text("%s %s: token %s at position %lld is not in the vocabulary of %lld; "
                       "were the data made with the tokenizer of this model, and are they %s? (--data-format says so)",
                       data->option, array->path, number, (long long)at, (long long)part->vocab, array->format);
    else if (input->type == RT_F32)
        text = rt_text("%s %s=%s: %s at %s is not a finite number of f32; where values are missing, "
                       "write 0, and let an input of bool say which are known",
                       data->option, input->of, array->path, number, where);
    else if (input->type == RT_BOOL)
        text = rt_text("%s %s=%s: %s at %s is neither 0 nor 1", data->option, input->of, array->path, number, where);
    else
        text = rt_text("%s %s=%s: %s at %s is not from %s to %lld", data->option, input->of, array->path, number, where,
                       input->vocab > 0 ? "0" : "-2147483648", (long long)part->vocab - 1);
    free(number);
    free(where);
    return text;
}

/* --- Reading, and filling the arena ------------------------------------------------------------------ */

static void store(RtType type, char *to, int64_t i, const RtArray *array, int64_t at)
{
    if (type == RT_F32)
        ((float *)to)[i] = at < 0 ? 0 : (float)rt_real_at(array, at);
    else if (type == RT_I32)
        ((int32_t *)to)[i] = at < 0 ? 0 : (int32_t)rt_integer_at(array, at);
    else
        to[i] = at >= 0 && rt_integer_at(array, at) != 0;
}

static int64_t bytes_of(const RtData *data, int i)
{
    const RtFeed *part = &data->feed[i];
    return data->f->micro * part->rows * part->count * (data->f->inputs[i].type == RT_BOOL ? 1 : 4);
}

/* The error in this rank's part of an input, or NULL; writes the part to `to`, unless that is NULL. */
static char *read_input(const RtData *data, int i, const int64_t *sequence, char *to)
{
    const RtInput *input = &data->f->inputs[i];
    const RtFeed *part = &data->feed[i];
    for (int64_t n = 0; n < data->f->micro * part->rows; n++) {
        const Spot spot = spot_of(data, part, sequence_of(data->f, part, sequence, n));
        for (int64_t k = 0; k < part->count; k++) {
            const int64_t at = part->place[k] < 0 ? -1 : spot.begin + part->place[k];
            if (at >= 0 && !is_good(input, part, spot.array, at))
                return fault_text(data, input, part, spot.array, at);
            if (to)
                store(input->type, to, n * part->count + k, spot.array, at);
        }
    }
    return NULL;
}

char *rt_data_fault(const RtData *data, const int64_t *sequence)
{
    char *fault = NULL;
    for (int i = 0; i < data->f->ninputs && !fault; i++)
        fault = read_input(data, i, sequence, NULL);
    return fault;
}

char *rt_data_fetch(RtData *data, const int64_t *sequence)
{
    char *fault = NULL;
    for (int i = 0; i < data->f->ninputs && !fault; i++) {
        RtFeed *part = &data->feed[i];
        if (!part->fetched)
            part->fetched = rt_allocate(bytes_of(data, i), 1);
        fault = read_input(data, i, sequence, part->fetched);
    }
    return fault;
}

static char *place_of(const RtData *data, Rt *rt, int i)
{
    return rt_upload_place(rt, rt_own_place(rt, data->f->inputs[i].offset), bytes_of(data, i));
}

void rt_data_put(const RtData *data, Rt *rt)
{
    for (int i = 0; i < data->f->ninputs; i++)
        memcpy(place_of(data, rt, i), data->feed[i].fetched, (size_t)bytes_of(data, i));
}

void rt_data_fill(const RtData *data, Rt *rt, const int64_t *sequence)
{
    for (int i = 0; i < data->f->ninputs; i++) {
        const char *fault = read_input(data, i, sequence, place_of(data, rt, i));
        if (fault)
            rt_fail("%s; it was not so when the file was checked: it has been changed since", fault);
    }
}
