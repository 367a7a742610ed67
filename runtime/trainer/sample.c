/* sample.c -- samples text from a byte model: from the prediction after the last `seq` bytes, a byte is drawn and
 * appended. */
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
    double logit;
    int byte;
} Choice;

static int by_logit(const void *a, const void *b)
{
    const Choice *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit) - (x->logit > y->logit) : x->byte - y->byte;
}

/* Which bytes may be drawn: the k most likely, and of these the fewest that have at least the share p of the
 * probability.
 */
typedef struct {
    double temperature, p;
    int k;
} Range;

/* Draws a byte for u in (0, 1), with probability softmax(logits / temperature) among those. */
static int draw(const float *logits, const Range *range, double u)
{
    Choice choices[BYTES];
    for (int i = 0; i < BYTES; i++)
        choices[i] = (Choice){ .logit = (double)logits[i], .byte = i };
    qsort(choices, BYTES, sizeof *choices, by_logit);
    if (range->temperature == 0)
        return choices[0].byte;
    double weight[BYTES], sum = 0, most = 0;
    for (int i = 0; i < range->k; i++)
        sum += weight[i] = exp((choices[i].logit - choices[0].logit) / range->temperature);
    int count = 0;
    while (count < range->k && (count == 0 || most < range->p * sum))
        most += weight[count++];
    double left = u * most;
    for (int i = 0; i < count - 1; i++)
        if ((left -= weight[i]) < 0)
            return choices[i].byte;
    return choices[count - 1].byte;
}

/* Copies the end of the text to the first sequence of the inputs; the rest is 0. */
static void fill(Rt *rt, const RtFunction *f, const unsigned char *text, int64_t length)
{
    for (const RtInput *input = f->inputs; input < f->inputs + f->ninputs; input++) {
        const RtInputDim dim = input->rank ? input->dim[0] : (RtInputDim){ .size = 1, .padded = 1 };
        RtPart batch = rt_part(rt, input->batch, f->batch), seq = rt_part(rt, dim.split, dim.padded);
        int64_t rows = rt_part_size(rt, input->batch, f->batch), columns = rt_part_size(rt, dim.split, dim.padded);
        int64_t bytes = f->micro * rows * columns * (int64_t)sizeof(int32_t);
        int32_t *to = rt_stage(rt, rt_own_place(rt, input->offset), bytes); /* [micro, batch, seq] of this rank */
        memset(to, 0, (size_t)bytes);
        for (int64_t s = 0; s < columns && rt_position(batch, 0) == 0; s++)
            if (rt_position(seq, s) + input->shift < length)
                to[s] = text[rt_position(seq, s) + input->shift];
    }
}

static int predict(RtRun *run, const unsigned char *text, int64_t length, uint32_t seed, uint32_t number)
{
    const RtFunction *f = &run->rt.program->predict;
    int64_t seen = length < f->seq ? length : f->seq;
    fill(&run->rt, f, text + length - seen, seen);
    rt_set_scalars(run, &f->scalars);
    rt_run(&run->rt, f);
    float logits[BYTES];
    rt_download(&run->rt, logits, rt_place_in(&run->rt, f, f->logits) + 4 * (seen - 1) * f->logits_stride,
                sizeof logits);
    const RtOptions *o = &run->options;
    const Range range = { .temperature = o->temperature, .p = o->top_p, .k = o->given.top_k ? (int)o->top_k : BYTES };
    double u = rt_unit(rt_philox(seed, RT_STREAM_SAMPLE, number, 0, 0, 0).x[0]);
    return draw(logits, &range, u);
}

void rt_sample(RtRun *run)
{
    bool has_prompt = run->options.prompt && *run->options.prompt;
    const char *prompt = has_prompt ? run->options.prompt : "\n";
    int64_t length = (int64_t)strlen(prompt);
    uint32_t seed = run->options.given.seed ? (uint32_t)run->options.seed : run->place.seed;
    unsigned char *text = rt_allocate(length + run->options.sample, 1);
    memcpy(text, prompt, (size_t)length);
    bool prints = run->rt.rank == 0;
    if (has_prompt && prints)
        fputs(prompt, stdout);
    for (int64_t i = 0; i < run->options.sample; i++) {
        text[length] = (unsigned char)predict(run, text, length, seed, (uint32_t)i);
        if (prints)
            putchar(text[length]);
        length++;
        fflush(stdout);
        if (rt_is_interrupted(run))
            break;
    }
    if (prints)
        putchar('\n');
    free(text);
}
