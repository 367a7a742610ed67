/* sample.c -- samples text: from the prediction after the last `seq` tokens, a token is drawn and appended.  Text is
 * bytes for a model of 256 tokens, and numbers with blanks between them for others, whose tokenizer the trainer does
 * not know. */
#include "device.h"
#include "mesh/comm.h"
#include "philox.h"
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 256 };

typedef struct {
    double logit, weight;
    int32_t token;
} Choice;

static int by_logit(const void *a, const void *b)
{
    const Choice *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit) - (x->logit > y->logit) : x->token - y->token;
}

/* Which tokens may be drawn: the k most likely, and of these the fewest that have at least the share p of the
 * probability.
 */
typedef struct {
    double temperature, p;
    int k;
} Range;

/* Draws a token for u in (0, 1), with probability softmax(logits / temperature) among those. */
static int32_t draw(Choice *choices, int vocab, const Range *range, double u)
{
    qsort(choices, (size_t)vocab, sizeof *choices, by_logit);
    if (range->temperature == 0)
        return choices[0].token;
    double sum = 0, most = 0;
    for (int i = 0; i < range->k; i++)
        sum += choices[i].weight = exp((choices[i].logit - choices[0].logit) / range->temperature);
    int count = 0;
    while (count < range->k && (count == 0 || most < range->p * sum))
        most += choices[count++].weight;
    double left = u * most;
    for (int i = 0; i < count - 1; i++)
        if ((left -= choices[i].weight) < 0)
            return choices[i].token;
    return choices[count - 1].token;
}

/* Copies the end of the text to the first sequence of the inputs; the rest is 0. */
static void fill(Rt *rt, const RtFunction *f, const int32_t *text, int64_t length)
{
    for (const RtInput *input = f->inputs; input < f->inputs + f->ninputs; input++) {
        const RtInputDim dim = input->rank ? input->dim[0] : (RtInputDim){ .size = 1, .padded = 1 };
        RtPart batch = rt_part(rt, input->batch, f->batch), seq = rt_part(rt, dim.split, dim.padded);
        int64_t rows = rt_part_size(rt, input->batch, f->batch), columns = rt_part_size(rt, dim.split, dim.padded);
        int64_t bytes = f->micro * rows * columns * (int64_t)sizeof(int32_t);
        int32_t *to =
            rt_upload_place(rt, rt_own_place(rt, input->offset), bytes); /* [micro, batch, seq] of this rank */
        memset(to, 0, (size_t)bytes);
        for (int64_t s = 0; s < columns && rt_position(batch, 0) == 0; s++)
            if (rt_position(seq, s) + input->shift < length)
                to[s] = text[rt_position(seq, s) + input->shift];
    }
}

static int32_t predict(RtRun *run, const int32_t *text, int64_t length, uint32_t seed, uint32_t number)
{
    const RtFunction *f = &run->rt.program->predict;
    int64_t seen = length < f->seq ? length : f->seq;
    fill(&run->rt, f, text + length - seen, seen);
    rt_set_scalars(run, &f->scalars);
    rt_set_position(run, seen - 1);
    rt_run(&run->rt, f);
    const int64_t tokens = run->rt.program->vocab;
    const int vocab = (int)(f->choices < tokens ? f->choices : tokens); /* which the model takes, and has logits of */
    float *logits = rt_allocate(vocab, sizeof *logits);
    Choice *choices = rt_allocate(vocab, sizeof *choices);
    rt_download(&run->rt, logits, rt_place_in(&run->rt, f, f->logits), vocab * (int64_t)sizeof *logits);
    for (int i = 0; i < vocab; i++)
        choices[i] = (Choice){ .logit = (double)logits[i], .token = i };
    const RtOptions *o = &run->options;
    const bool is_limited = o->given.top_k && o->top_k < vocab;
    const Range range = { .temperature = o->temperature, .p = o->top_p, .k = is_limited ? (int)o->top_k : vocab };
    double u = rt_unit(rt_philox(seed, RT_STREAM_SAMPLE, number, 0, 0, 0).x[0]);
    const int32_t token = draw(choices, vocab, &range, u);
    free(logits);
    free(choices);
    return token;
}

/* The prompt's tokens, with room for `more`. */
static int32_t *read_prompt(const char *prompt, int vocab, int64_t more, int64_t *length)
{
    int32_t *text = rt_allocate((int64_t)strlen(prompt) + more, sizeof *text);
    *length = 0;
    if (vocab == BYTES) {
        for (; *prompt; prompt++)
            text[(*length)++] = (unsigned char)*prompt;
        return text;
    }
    for (char *at = (char *)prompt; *at; at += strspn(at, " "))
        text[(*length)++] = (int32_t)strtol(at, &at, 10); /* they are checked with the other options */
    return text;
}

static void print_token(int32_t token, int vocab, const char *before)
{
    if (vocab == BYTES)
        putchar(token);
    else
        printf("%s%d", before, token);
}

void rt_sample(RtRun *run)
{
    bool has_prompt = run->options.prompt && *run->options.prompt;
    const char *prompt = has_prompt ? run->options.prompt : "\n";
    const int vocab = (int)run->rt.program->vocab;
    int64_t length;
    int32_t *text = read_prompt(prompt, vocab, run->options.sample, &length);
    uint32_t seed = run->options.given.seed ? (uint32_t)run->options.seed : run->place.seed;
    bool prints = run->rt.rank == 0;
    if (has_prompt && prints)
        fputs(prompt, stdout);
    for (int64_t i = 0; i < run->options.sample; i++) {
        text[length] = predict(run, text, length, seed, (uint32_t)i);
        if (prints)
            print_token(text[length], vocab, " ");
        length++;
        fflush(stdout);
        if (rt_is_interrupted(run))
            break;
    }
    if (prints)
        putchar('\n');
    free(text);
}
