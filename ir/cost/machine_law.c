/* machine_law.c -- the time of single items on a machine. */
#include "cost.h"
#include "machine.h"

#include <math.h>

/* --- Lines ------------------------------------------------------------------------------------------ */

bool is_said(const Machine *machine, LineId line) { return machine->line[line].origin != NOT_GIVEN; }

double machine_number(const Machine *machine, LineId line) { return machine->line[line].point[0].y; }

static double number_or(const Machine *machine, LineId line, double other)
{
    return is_said(machine, line) ? machine_number(machine, line) : other;
}

/* y at x: of two points a power of x, outside of all the nearest one's. */
static double value_at(const Machine *machine, LineId line, double x)
{
    const MachineLine *curve = &machine->line[line];
    const Point *point = curve->point;
    int behind = 0;
    while (behind < curve->count && point[behind].x <= x)
        behind++;
    if (behind == 0 || behind == curve->count)
        return point[behind ? behind - 1 : 0].y;
    const Point a = point[behind - 1], b = point[behind];
    return a.y * pow(b.y / a.y, log(x / a.x) / log(b.x / a.x));
}

static double share_or_all(const Machine *machine, LineId line, double x)
{
    return is_said(machine, line) ? value_at(machine, line, x) : 1;
}

int64_t ranks_of_machine(const Machine *machine) { return (int64_t)machine_number(machine, LINE_ranks); }

double machine_memory(const Machine *machine)
{
    return machine_number(machine, LINE_memory) - number_or(machine, LINE_taken, 0);
}

double machine_overlap(const Machine *machine) { return number_or(machine, LINE_overlap, 1); }

double machine_overlap_of_send(const Machine *machine)
{
    return number_or(machine, LINE_overlap_send, machine_overlap(machine));
}

double machine_tier(const Machine *machine, Tier tier)
{
    const LineId line = tier == ON_HOST ? LINE_host : LINE_disk;
    return is_said(machine, line) ? machine_number(machine, line) : NAN;
}

bool connects(const Machine *machine, int64_t ranks)
{
    return ranks == 1 || (is_said(machine, LINE_message) &&
                          is_said(machine, ranks > ranks_of_machine(machine) ? LINE_between : LINE_within));
}

/* --- Products ---------------------------------------------------------------------------------------- */

/* By precision: the lines, and the precision that a trainer uses where they are not given. */
static const struct {
    LineId flops, products;
    int other;
    int bytes; /* of an element */
} precisions[N_PRECISIONS] = {
    [F32] = { LINE_flops_f32, LINE_products_f32, F32, 4 },  [BF16] = { LINE_flops_bf16, LINE_products_bf16, F32, 2 },
    [F16] = { LINE_flops_f16, LINE_products_f16, BF16, 2 }, [I32] = { LINE_flops_f32, LINE_products_f32, F32, 4 },
    [BOOL] = { LINE_flops_f32, LINE_products_f32, F32, 1 }, [E4M3] = { LINE_flops_e4m3, LINE_products_e4m3, BF16, 1 },
};

static int known_precision(const Machine *machine, int precision)
{
    while (!is_said(machine, precisions[precision].flops) && precisions[precision].other != precision)
        precision = precisions[precision].other;
    return precision;
}

double machine_flops(const Machine *machine, int precision)
{
    return machine_number(machine, precisions[known_precision(machine, precision)].flops);
}

static double launch(const Machine *machine) { return machine_number(machine, LINE_launch); }

/* FLOP/s of products of so many FLOPs. */
static double product_rate(const Machine *machine, int precision, double flops)
{
    const int known = known_precision(machine, precision);
    return machine_flops(machine, known) * value_at(machine, precisions[known].products, flops) *
           number_or(machine, LINE_sustained, 1);
}

static double seconds_in(const Machine *machine, int precision, int64_t m, int64_t n, int64_t k, int64_t count)
{
    const int known = known_precision(machine, precision);
    const double matrices = (double)count, rows = (double)m, columns = (double)n, terms = (double)k;
    const double flops = 2 * matrices * rows * columns * terms;
    const double bytes = matrices * precisions[known].bytes * (rows * terms + terms * columns + rows * columns);
    return fmax(fmax(flops / product_rate(machine, known, flops), bytes / value_at(machine, LINE_copy, bytes)),
                launch(machine));
}

/* A trainer takes 8 or 16 bits, whichever is faster. */
double product_seconds(const Machine *machine, int precision, int64_t m, int64_t n, int64_t k, int64_t count)
{
    const double seconds = seconds_in(machine, precision, m, n, k, count);
    return precision == E4M3 ? fmin(seconds, seconds_in(machine, BF16, m, n, k, count)) : seconds;
}

double product_least_seconds(const Machine *machine, int precision, double flops)
{
    const double narrow = flops / product_rate(machine, precision, flops);
    const double seconds = precision == E4M3 ? fmin(narrow, flops / product_rate(machine, BF16, flops)) : narrow;
    return fmax(seconds, launch(machine));
}

/* --- Attention --------------------------------------------------------------------------------------- */

/* The lines of attention lie by width of heads from the first one on. */
static const int widths[] = { 32, 64, 128, 256 };
enum { N_WIDTHS = sizeof widths / sizeof *widths };

static bool has_width(const Machine *machine, LineId first)
{
    for (int i = 0; i < N_WIDTHS; i++)
        if (is_said(machine, first + (LineId)i))
            return true;
    return false;
}

/* FLOP/s, between the rates of the next narrower and wider heads that are given: a power of the width. */
static double rate_of_width(const Machine *machine, LineId first, double keys, int64_t features)
{
    int below = -1, above = -1;
    for (int i = 0; i < N_WIDTHS; i++)
        if (is_said(machine, first + (LineId)i)) {
            below = widths[i] <= features ? i : below;
            above = widths[i] >= features && above < 0 ? i : above;
        }
    const int low = below < 0 ? above : below, high = above < 0 ? below : above;
    const double a = value_at(machine, first + (LineId)low, keys);
    const double b = value_at(machine, first + (LineId)high, keys);
    return low == high ? a
                       : a * pow(b / a, log((double)features / widths[low]) / log((double)widths[high] / widths[low]));
}

double attention_seconds(const Machine *machine, int precision, double flops, int64_t queries, int64_t keys,
                         int64_t features, bool backward)
{
    const LineId in_f32 = backward ? LINE_attention_backward_f32_32 : LINE_attention_forward_f32_32;
    const LineId in_16_bits = backward ? LINE_attention_backward_32 : LINE_attention_forward_32;
    const int known = precisions[precision].bytes == 4 ? F32 : BF16; /* 8 bits are for products alone */
    const LineId own = known == F32 ? in_f32 : in_16_bits, other = known == F32 ? in_16_bits : in_f32;
    const LineId line = has_width(machine, own) ? own : other;
    if (!has_width(machine, line))
        return fmax(flops / product_rate(machine, known, flops), launch(machine));
    const double of_other = machine_flops(machine, known) / machine_flops(machine, known == F32 ? BF16 : F32);
    const double rate = rate_of_width(machine, line, sqrt((double)queries * (double)keys), features);
    const double sustained = number_or(machine, LINE_attention_sustained, 1);
    return fmax(flops / (rate * sustained * (line == own ? 1 : of_other)), launch(machine));
}

/* --- Kernels ------------------------------------------------------------------------------------------- */

double fused_seconds(const Machine *machine, double bytes, double flops, int launches)
{
    const double each = launches > 0 ? bytes / launches : bytes;
    const double moving = bytes / (value_at(machine, LINE_copy, each) * number_or(machine, LINE_kernels, 1));
    return fmax(moving, flops / number_or(machine, LINE_elementwise, INFINITY)) + launches * launch(machine);
}

double kernel_seconds(const Machine *machine, double bytes, int launches)
{
    return fused_seconds(machine, bytes, 0, launches);
}

/* --- Messages ------------------------------------------------------------------------------------------ */

typedef enum { RING, PAIRS, NEIGHBOURS } Algorithm;

static const struct {
    OpKind kind;
    Algorithm algorithm;
    int rounds; /* of the ring */
    int line;   /* from LINE_within and LINE_between on */
} messages[] = {
    { OP_all_reduce, RING, 2, LINE_within_all_reduce - LINE_within },
    { OP_all_gather, RING, 1, LINE_within_all_gather - LINE_within },
    { OP_reduce_scatter, RING, 1, LINE_within_reduce_scatter - LINE_within },
    { OP_all_to_all, PAIRS, 1, LINE_within_all_to_all - LINE_within },
    { OP_send, NEIGHBOURS, 1, LINE_within_send - LINE_within },
    { OP_rotate, NEIGHBOURS, 1, LINE_within_rotate - LINE_within },
};
enum { N_MESSAGES = sizeof messages / sizeof *messages };

typedef struct {
    const Machine *machine;
    int line;
    double n, r, machines;
} Ranks;

/* Seconds of bytes on one link; those of a kind that the file does not have are as the others'.  On links of which it
 * says nothing, they are for ever: see connects(). */
static double link_seconds(const Machine *machine, LineId all, int line, double bytes)
{
    const LineId own = is_said(machine, all + (LineId)line) ? all + (LineId)line : all;
    return bytes <= 0 ? 0 : is_said(machine, own) ? bytes / value_at(machine, own, bytes) : INFINITY;
}

static double seconds_within(const Ranks *ranks, double bytes)
{
    return link_seconds(ranks->machine, LINE_within, ranks->line, bytes) /
           share_or_all(ranks->machine, LINE_ranks_within, ranks->r);
}

static double seconds_between(const Ranks *ranks, double bytes)
{
    return link_seconds(ranks->machine, LINE_between, ranks->line, bytes) /
           share_or_all(ranks->machine, LINE_machines_between, ranks->machines);
}

static double ring_latency(const Ranks *ranks, int rounds, double within, double between)
{
    const double ring = rounds * ((ranks->n - ranks->machines) * within + (ranks->machines - 1) * between);
    const double tree = 2 * ((ranks->r - 1) * within + ceil(log2(ranks->machines)) * between);
    return rounds == 2 ? fmin(ring, tree) : ring;
}

double message_seconds(const Machine *machine, int kind, double volume, Group group)
{
    const double n = (double)group.ranks, r = fmin((double)group.on_one_machine, n);
    Ranks ranks = { .machine = machine, .n = n, .r = r, .machines = ceil(n / r) };
    const bool spans = ranks.machines > 1, is_inside = r > 1;
    const double within = number_or(machine, LINE_latency_within, 0);
    const double between = number_or(machine, LINE_latency_between, 0);
    const double start = number_or(machine, LINE_message, 0), step = spans ? between : within;
    int i = 0;
    while (i < N_MESSAGES - 1 && (int)messages[i].kind != kind)
        i++;
    ranks.line = messages[i].line;
    const double sent = volume * (n - 1) / n;
    if (n < 2)
        return 0;
    if (messages[i].algorithm == RING)
        return start + ring_latency(&ranks, messages[i].rounds, within, between) +
               fmax(is_inside ? seconds_within(&ranks, sent) : 0, spans ? seconds_between(&ranks, sent / r) : 0);
    if (messages[i].algorithm == PAIRS)
        return start + step +
               fmax(seconds_within(&ranks, volume * (r - 1) / n),
                    spans ? seconds_between(&ranks, volume * (n - r) / n) : 0);
    return start + step + link_seconds(machine, spans ? LINE_between : LINE_within, ranks.line, volume);
}
