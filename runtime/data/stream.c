/* stream.c -- tokens: sources of one or more files, each file cut into sequences, some of which are held out of
 * training. */
#include "data.h"
#include "state.h"

#include <string.h>

/* Tokens needed after a sequence: at least one, so that all models have the same sequences. */
static int64_t further_tokens(const RtFunction *f)
{
    int64_t further = 1;
    for (const RtInput *input = f->inputs; input < f->inputs + f->ninputs; input++)
        if (input->shift > further)
            further = input->shift;
    return further;
}

/* --- Opening --------------------------------------------------------------------------------- */

static void open_files(RtData *data, RtDataGiven given, int64_t vocab)
{
    int files = 0;
    while (given.given[data->portions])
        data->portions++;
    data->source = rt_allocate(data->sources = data->portions, sizeof *data->source);
    for (int i = 0; i < data->portions; i++) {
        data->source[i] = rt_source_of(given.given[i], given.option);
        files += data->source[i].files;
    }
    data->array = rt_allocate(files, sizeof *data->array);
    for (int i = 0; i < data->portions; i++)
        for (int k = 0; k < data->source[i].files; k++)
            data->array[data->count++] = rt_tokens_open(data->source[i].file[k], given.option, given.format, vocab);
}

static void check_weights(const RtData *data)
{
    int weighted = 0;
    for (int i = 0; i < data->portions; i++)
        weighted += data->source[i].weight > 0;
    if (weighted == 0)
        return;
    if (data->portions == 1)
        rt_end(RT_EXIT_USAGE, "%s %s: a weight has no effect on a single one: leave it out", data->option,
               data->source->name);
    if (strcmp(data->option, "--data"))
        rt_end(RT_EXIT_USAGE, "%s: it is read in order, so that weights have no effect: leave them out", data->option);
    for (int i = 0; i < data->portions; i++)
        if (data->source[i].weight <= 0)
            rt_end(RT_EXIT_USAGE, "%s %s: the others have a weight: give this one, too, as in %s:0.3", data->option,
                   data->source[i].name, data->source[i].name);
}

/* The end of each file is held out: neighbours are often of one document.  Rounded so that many small files hold out
 * the fraction of them all; `before`: sequences of the files before it. */
static int64_t held_out(const RtData *data, int64_t before, int64_t count)
{
    return (int64_t)(data->fraction * (double)(before + count) + 0.5) -
           (int64_t)(data->fraction * (double)before + 0.5);
}

static void cut(RtData *data)
{
    const int64_t further = further_tokens(data->f);
    int64_t before = 0, first = 0;
    data->shard = rt_allocate(data->count, sizeof *data->shard);
    for (int i = 0; i < data->count; i++) {
        const int64_t tokens = data->array[i].count, all = tokens > further ? (tokens - further) / data->f->seq : 0;
        const int64_t held = data->share == RT_ALL ? 0 : held_out(data, before, all);
        data->shard[i] = (RtShard){ .first = first, .count = all - held };
        if (data->share == RT_HELD_OUT)
            data->shard[i] = (RtShard){ .first = first, .count = held, .begin = all - held };
        before += all;
        first += data->shard[i].count;
    }
}

static void find_portions(RtData *data)
{
    data->portion = rt_allocate(data->portions, sizeof *data->portion);
    const RtShard *shard = data->shard;
    int64_t first = 0;
    for (int i = 0; i < data->portions; i++) {
        data->portion[i] = (RtPortion){ .first = first, .weight = data->source[i].weight };
        for (int k = 0; k < data->source[i].files; k++)
            data->portion[i].count += shard++->count;
        first += data->portion[i].count;
    }
    if (data->share == RT_HELD_OUT) /* is read in order */
        for (int i = 0; i < data->portions; i++)
            data->portion[i].weight = 0;
    if (data->portion->weight <= 0)
        return;
    rt_mixture_quotas(data->portion, data->portions);
    for (int i = 0; i < data->portions; i++)
        if (data->portion[i].quota == 0 || data->portion[i].count == 0)
            rt_fail(data->portion[i].count
                        ? "%s %s: its weight is below a ten-thousandth of all: leave it out, or give "
                          "a larger one"
                        : "%s %s: it has no whole sequence, but a weight: leave it out",
                    data->option, data->source[i].name);
}

static void require(const RtData *data)
{
    const RtFunction *f = data->f;
    const RtArray *first = data->array;
    const int64_t least = data->least, has = rt_data_sequences(data), further = further_tokens(f);
    const char *who = least == 1 ? "it" : "one batch", *remedy = least == 1 ? "" : " or a smaller batch";
    if (has >= least)
        return;
    if (data->share == RT_HELD_OUT)
        rt_fail("--eval-fraction %g: it holds out %lld sequences of %s, but %s needs %lld; give a larger fraction or "
                "more data",
                data->fraction, (long long)has, data->option, who, (long long)least);
    if (data->share == RT_TRAINED || data->count > 1)
        rt_fail("%s: %s needs %lld sequences of %lld tokens, but there are %lld%s; give more data%s", data->option, who,
                (long long)least, (long long)f->seq, (long long)has,
                data->share == RT_TRAINED ? " beside what is held out" : "", remedy);
    rt_fail("%s %s: %s needs %lld tokens (%lld sequence%s of %lld, and %lld), but it has %lld (%s); give more data%s",
            data->option, first->path, who, (long long)(least * f->seq + further), (long long)least,
            least == 1 ? "" : "s", (long long)f->seq, (long long)further, (long long)first->count, first->format,
            remedy);
}

void rt_stream_open(RtData *data, RtDataGiven given, int64_t vocab)
{
    open_files(data, given, vocab);
    check_weights(data);
    cut(data);
    find_portions(data);
    require(data);
}

/* --- Words ----------------------------------------------------------------------------------- */

char *rt_stream_words(const RtData *data, int i)
{
    int first = 0;
    int64_t tokens = 0;
    for (int k = 0; k < i; k++)
        first += data->source[k].files;
    for (int k = first; k < first + data->source[i].files; k++)
        tokens += data->array[k].count;
    char *text = rt_text("%s", "");
    if (data->source[i].files > 1)
        rt_append(&text, "%d files, ", data->source[i].files);
    rt_append(&text, "%s (%s), %s", rt_count_text(tokens, "token").text, data->array[first].format,
              rt_count_text(data->portion[i].count, "sequence").text);
    if (data->share == RT_TRAINED)
        rt_append(&text, " without those held out");
    if (data->portion[i].weight > 0)
        rt_append(&text, ": %.4g %% of what is read", 100.0 * (double)data->portion[i].quota / RT_ROUND);
    else if (data->portions > 1)
        rt_append(&text, ": %.4g %% of all", 100.0 * (double)data->portion[i].count / (double)rt_data_sequences(data));
    return text;
}
