/* probe_messages.c -- --probe: messages by kind, size and number of ranks.
 *
 * The mesh has axes "machine", the slowest, and "rank" of those of a machine, each split into factors, so that groups
 * of 2, 4, ... ranks can be formed, all of which send at the same time, as in a step.  What is written is found by
 * turning the law of ir/cost/machine.h around: by it each measured message takes as long as it did. */
#include "probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The order of `kinds` is that of RtCollectiveKind. */
enum { KINDS = 6, BYTES = 4, MOST_LINKS = 2, MOST_GROUPS = 4 };
static const struct {
    const char *key;
    int rounds;         /* of a ring; 0: one step */
    bool by_neighbours; /* along one axis */
} kinds[KINDS] = { [RT_ALL_REDUCE] = { "all_reduce", 2, false },
                   [RT_ALL_GATHER] = { "all_gather", 1, false },
                   [RT_REDUCE_SCATTER] = { "reduce_scatter", 1, false },
                   [RT_ALL_TO_ALL] = { "all_to_all", 0, false },
                   [RT_SEND] = { "send", 0, true },
                   [RT_ROTATE] = { "rotate", 0, true } };

/* Of the bytes that a rank sends in a message: LEAST times powers of STEP. */
enum { SIZES = 8, LEAST = 1 << 10, STEP = 8 };

/* --- The mesh --------------------------------------------------------------------------------------------- */

static const char *const link_axes[MOST_LINKS] = { "machine", "rank" };

/* Axes of the program: factors of `ranks`, at most three. */
static int add_axes(RtAxis *axis, const char *name, int ranks)
{
    int count = 0;
    for (int factor = 2; ranks > 1 && count < 2; factor++)
        while (ranks % factor == 0 && count < 2) {
            axis[count++] = (RtAxis){ name, factor };
            ranks /= factor;
        }
    if (ranks > 1)
        axis[count++] = (RtAxis){ name, ranks };
    return count;
}

/* The groups of a link class: the last axis of its name, the last two, ...; their number. */
typedef struct {
    int naxes, axis[RT_MAX_AXES], ranks;
} Group;

static int groups_of(const RtProgram *program, int link, Group *group)
{
    int count = 0, ranks = 1;
    for (int i = program->naxes - 1; i >= 0; i--) {
        if (strcmp(program->axes[i].name, link_axes[link]))
            continue;
        ranks *= program->axes[i].size;
        group[count].naxes = count + 1;
        for (int k = 0; k <= count; k++)
            group[count].axis[k] = i + k;
        group[count++].ranks = ranks;
    }
    return count;
}

/* Elements of a rank's block, so that it sends so many bytes to the n - 1 others. */
static int64_t block_of(RtCollectiveKind kind, int64_t bytes, int n)
{
    const int64_t each = kinds[kind].by_neighbours ? bytes
                         : kind == RT_ALL_REDUCE   ? bytes * n / (2 * (n - 1))
                                                   : bytes / (n - 1);
    return each / BYTES > 0 ? each / BYTES : 1;
}

static RtCollective collective_of(RtCollectiveKind kind, int64_t bytes, const Group *group)
{
    RtPiece *piece = rt_allocate(1, sizeof *piece);
    const int64_t block = block_of(kind, bytes, group->ranks);
    *piece = kind == RT_ALL_TO_ALL ? (RtPiece){ .outer = 1, .block = 1, .middle = 1, .cut = 1, .inner = block }
                                   : (RtPiece){ .outer = 1, .block = block };
    RtCollective made = { .kind = kind,
                          .type = RT_F32,
                          .naxes = group->naxes,
                          .turn = kind == RT_ROTATE,
                          .name = "probe",
                          .where = "probe",
                          .cause = "--probe",
                          .piece = piece,
                          .npieces = 1 };
    memcpy(made.axis, group->axis, sizeof made.axis);
    return made;
}

/* Every kind, in every group, of each size: number ((link * MOST_GROUPS + group) * KINDS + kind) * SIZES + size. */
static int number_of(int link, int group, int kind, int size)
{
    return ((link * MOST_GROUPS + group) * KINDS + kind) * SIZES + size;
}

static int64_t size_bytes(int size)
{
    int64_t bytes = LEAST;
    while (size-- > 0)
        bytes *= STEP;
    return bytes;
}

/* Half of the arena is for sent tensors, half for received ones. */
static int sizes_of(int64_t arena_bytes)
{
    int count = 0;
    while (count < SIZES && 4 * size_bytes(count) <= arena_bytes / 2)
        count++;
    return count;
}

void rt_probe_mesh(RtProgram *program, int machines, int local_ranks, int64_t bytes)
{
    RtAxis *axes = rt_allocate(RT_MAX_AXES, sizeof *axes);
    RtCollective *collectives = rt_allocate(number_of(MOST_LINKS, 0, 0, 0), sizeof *collectives);
    program->axes = axes;
    program->naxes = add_axes(axes, link_axes[0], machines);
    program->naxes += add_axes(axes + program->naxes, link_axes[1], local_ranks);
    program->collectives = collectives;
    program->ncollectives = number_of(MOST_LINKS, 0, 0, 0);
    for (int link = 0; link < MOST_LINKS; link++) {
        Group group[RT_MAX_AXES], world = { .naxes = 1, .ranks = program->axes[0].size };
        const int count = groups_of(program, link, group);
        for (int g = 0; g < MOST_GROUPS; g++)
            for (int i = 0; i < KINDS * SIZES; i++) {
                const Group *of = g < count ? &group[kinds[i / SIZES].by_neighbours ? 0 : g] : &world;
                const int64_t most = i % SIZES < sizes_of(bytes) ? size_bytes(i % SIZES) : LEAST;
                collectives[number_of(link, g, i / SIZES, i % SIZES)] =
                    collective_of((RtCollectiveKind)(i / SIZES), g < count ? most : LEAST, of);
            }
    }
}

/* --- Time --------------------------------------------------------------------------------------------------- */

/* A message, or one forth and back. */
static void run_message(RtProbe *probe, const void *context)
{
    Rt *rt = probe->rt;
    const int number = *(const int *)context;
    const RtCollective *c = &rt->program->collectives[number];
    char *in = rt->arena, *out = rt->arena + rt_arena_bytes(rt) / 2;
    if (c->kind != RT_SEND) {
        rt_collective(rt, number, RT_IN(in), RT_OUT(out));
        return;
    }
    const int own = rt_coordinate(rt, c->axis[0]);
    if (own == 0) {
        rt_send(rt, number, 1, in);
        rt_receive(rt, number, 1, out);
    } else if (own == 1) {
        rt_receive(rt, number, 0, out);
        rt_send(rt, number, 0, in);
    }
}

/* Of what run_message() does. */
static int messages_run(const RtProbe *probe, int number)
{
    return probe->rt->program->collectives[number].kind == RT_SEND ? 2 : 1;
}

static double time_of(RtProbe *probe, int number)
{
    return rt_probe_mean(probe, run_message, number, &number) / messages_run(probe, number);
}

typedef struct {
    int link, count;
    Group group[RT_MAX_AXES];
    double start, step; /* seconds of any message, and of a step */
} Link;

static double latency(const Link *link, int kind, int ranks)
{
    return link->start + link->step * (kinds[kind].rounds ? kinds[kind].rounds * (ranks - 1) : 1);
}

/* Bytes a second of a message that took so long, without its latency. */
static double bandwidth(double bytes, double seconds, double latency)
{
    const double least = 0.05; /* of the time: the latency was of another moment */
    return bytes / fmax(seconds - latency, least * seconds);
}

/* The sizes of a kind, up to one that takes too long; those that are latency alone are left out. */
static RtCurve measure_kind(RtProbe *probe, const Link *link, int kind)
{
    const int last = kinds[kind].by_neighbours ? 0 : link->count - 1, ranks = link->group[last].ranks;
    const int sizes = sizes_of(probe->rt->program->arena_bytes);
    const double of_latency = latency(link, kind, ranks), some = 1.25;
    RtCurve curve = { 0 };
    double seconds = 0;
    for (int size = 1; size < sizes && (seconds * STEP < probe->longest || !curve.count); size++) {
        seconds = fmax(seconds, time_of(probe, number_of(link->link, last, kind, size)));
        const int64_t block = block_of((RtCollectiveKind)kind, size_bytes(size), ranks) * BYTES;
        const double sent = (double)block * (kinds[kind].by_neighbours ? 1
                                             : kind == RT_ALL_REDUCE   ? 2.0 * (ranks - 1) / ranks
                                                                       : ranks - 1);
        if (seconds > some * of_latency || size == sizes - 1)
            rt_curve_add(&curve, sent, bandwidth(sent, seconds, of_latency));
    }
    return curve;
}

/* --- What is written ------------------------------------------------------------------------------------------ */

/* Of the smallest message: an all_reduce of two ranks has a step more than an all_gather. */
static void measure_latency(RtProbe *probe, Link *link, double start)
{
    const double part = 0.1; /* of one step, at least: the difference is small where ranks share a memory */
    const double gather = time_of(probe, number_of(link->link, 0, RT_ALL_GATHER, 0));
    const double reduce = time_of(probe, number_of(link->link, 0, RT_ALL_REDUCE, 0));
    const int steps = link->group[0].ranks - 1;
    link->step = start > 0 ? fmax(gather - start, part * gather) / steps
                           : fmin(fmax(reduce - gather, part * gather) / steps, (1 - part) * gather / steps);
    link->start = start > 0 ? start : gather - steps * link->step;
}

/* The share of bandwidth that is left in groups of each number of ranks, of the best; returns that of all of them. */
static double measure_ranks(RtProbe *probe, const Link *link, int size, const char *key)
{
    RtCurve curve = { 0 };
    double best = 0;
    for (int g = 0; g < link->count; g++) {
        const int ranks = link->group[g].ranks;
        const double bytes = (double)(block_of(RT_ALL_GATHER, size_bytes(size), ranks) * BYTES * (ranks - 1));
        const double seconds = time_of(probe, number_of(link->link, g, RT_ALL_GATHER, size));
        rt_curve_add(&curve, ranks, bandwidth(bytes, seconds, latency(link, RT_ALL_GATHER, ranks)));
        best = fmax(best, curve.y[g]);
    }
    for (int g = 0; g < curve.count; g++)
        curve.y[g] /= best;
    if (curve.count > 1)
        rt_probe_curve(probe, key, &curve, "", "%");
    return curve.y[curve.count - 1];
}

/* The size whose all_gather was the largest that has been measured. */
static int size_of(const RtCurve *curve)
{
    int size = 0;
    while (size + 1 < SIZES && (double)size_bytes(size + 1) <= 1.01 * curve->x[curve->count - 1])
        size++;
    return size;
}

static void write_link(RtProbe *probe, Link *link, const char *name, const char *ranks_key)
{
    RtCurve curve[KINDS];
    char *key;
    for (int kind = 0; kind < KINDS; kind++)
        curve[kind] = measure_kind(probe, link, kind);
    const double share = measure_ranks(probe, link, size_of(&curve[RT_ALL_GATHER]), ranks_key);
    rt_probe_number(probe, key = rt_text("latency %s", name), link->step, "s");
    free(key);
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < curve[kind].count; i++)
            curve[kind].y[i] /= kinds[kind].by_neighbours ? 1 : share;
    rt_probe_curve(probe, name, &curve[RT_ALL_GATHER], "B", "B/s");
    for (int kind = 0; kind < KINDS; kind++)
        if (kind != RT_ALL_GATHER) {
            rt_probe_curve(probe, key = rt_text("%s %s", name, kinds[kind].key), &curve[kind], "B", "B/s");
            free(key);
        }
}

/* --- Overlap ------------------------------------------------------------------------------------------------------ */

typedef struct {
    int product, message, times; /* numbers; so many products take about as long as the message */
} Both;

static void run_products(RtProbe *probe, const void *context)
{
    const Both *both = context;
    for (int i = 0; i < both->times; i++)
        rt_probe_product(probe, both->product);
}

/* A collective, or what one rank sends and the other one receives. */
static void run_both(RtProbe *probe, const void *context)
{
    Rt *rt = probe->rt;
    const Both *both = context;
    const RtCollective *c = &rt->program->collectives[both->message];
    char *half = rt->arena + rt_arena_bytes(rt) / 2;
    const int own = rt_coordinate(rt, c->axis[0]);
    if (c->kind != RT_SEND) {
        rt_collective_start(rt, both->message, RT_IN(half), RT_OUT(half));
        run_products(probe, context);
        rt_collective_wait(rt, both->message);
        return;
    }
    const int64_t number = own == 0   ? rt_send_start(rt, both->message, 1, half)
                           : own == 1 ? rt_receive_start(rt, both->message, 0, half)
                                      : -1;
    run_products(probe, context);
    if (number >= 0)
        rt_message_wait(rt, both->message, number);
}

/* The size of the largest message of a kind that takes about as long as a measurement. */
static int timely_size(RtProbe *probe, const Link *link, int group, RtCollectiveKind kind)
{
    const int sizes = sizes_of(probe->rt->program->arena_bytes);
    int size = 1;
    while (size + 2 < sizes && time_of(probe, number_of(link->link, group, kind, size + 1)) < probe->seconds)
        size++;
    return size;
}

/* The part of a message's time that computation can use, at the rank that has less of it: a median, each of what was
 * measured one right after the other. */
static void measure_overlap(RtProbe *probe, const Link *link, RtCollectiveKind kind, const char *key)
{
    enum { PAIRS = 7 };
    const int group = kinds[kind].by_neighbours ? 0 : link->count - 1;
    Both both = { .message = number_of(link->link, group, kind, timely_size(probe, link, group, kind)), .times = 1 };
    const double message = time_of(probe, both.message);
    double hidden[PAIRS];
    both.product = rt_probe_largest(probe, RT_F32, message / 4);
    both.times = (int)fmax(message / rt_probe_time(probe, run_products, &both), 1);
    for (int i = 0; i < PAIRS; i++) {
        const double alone = rt_probe_time(probe, run_message, &both.message) / messages_run(probe, both.message);
        const double products = rt_probe_time(probe, run_products, &both);
        hidden[i] = (alone + products - rt_probe_time(probe, run_both, &both)) / fmin(alone, products);
    }
    rt_probe_sort(hidden, PAIRS);
    rt_probe_number(probe, key, fmin(fmax(hidden[PAIRS / 2], 0), 1), "%");
}

void rt_probe_messages(RtProbe *probe)
{
    static const char *const names[MOST_LINKS] = { "between", "within" };
    static const char *const ranks_keys[MOST_LINKS] = { "machines between", "ranks within" };
    double start = 0;
    for (int i = MOST_LINKS - 1; i >= 0; i--) {
        Link link = { .link = i };
        link.count = groups_of(probe->rt->program, i, link.group);
        if (link.count == 0)
            continue;
        measure_latency(probe, &link, start);
        if (start == 0) {
            start = link.start;
            rt_probe_number(probe, "message", start, "s");
            if (probe->round == RT_PROBE_ROUNDS) {
                measure_overlap(probe, &link, RT_ALL_REDUCE, "overlap");
                measure_overlap(probe, &link, RT_SEND, "overlap send");
            }
        }
        write_link(probe, &link, names[i], ranks_keys[i]);
    }
}
