/* collectives.c -- every kind of collective, run by the runtime over a transport (COMM) and compared with its meaning.
 *
 * Each rank can compute the whole tensor of each rank (a hash of the index), so it computes the expected results alone.
 * place_of below defines splits, from the description in rt.h, independent of exchange.c.  Usage: mpirun -n N
 * collectives N, N = 2, 4 or 8; prints the number of comparisons, or ends with the first difference. */
#include "convert.h"
#include "device.h"
#include "mesh/comm.h"
#include "mesh/workspace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CASES = 6000, MAX_PIECES = 3, CANARY = 16 };

typedef struct {
    RtPiece piece[MAX_PIECES];
    int n;                                           /* ranks in the group */
    int own;                                         /* which one this is */
    unsigned char *in[MAX_PIECES], *out[MAX_PIECES]; /* between canaries; the same where in_place */
    int64_t sent;                                    /* expected bytes sent */
    bool in_place;
} Case;

static RtCollective collectives[MAX_CASES];
static Case cases[MAX_CASES];
static int ncases;
static Rt rt;
static int64_t compared, order_matters, skipped;

#define EXPECT(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rank %d: ", rt.rank);                                                                     \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            rt_fail("collectives are wrong");                                                                          \
        }                                                                                                              \
    } while (0)

/* --- Contents of tensors ---------------------------------------------------------------------------- */

static int64_t bytes_of(RtType type) { return type == RT_BOOL ? 1 : type == RT_F32 || type == RT_I32 ? 4 : 2; }

static uint32_t hash(int64_t a, int64_t b, int64_t c)
{
    uint64_t x =
        (uint64_t)a * 0x9E3779B97F4A7C15u + (uint64_t)b * 0xC2B2AE3D27D4EB4Fu + (uint64_t)c * 0x165667B19E3779F9u;
    x ^= x >> 31;
    x *= 0xD6E8FEB86659FD93u;
    return (uint32_t)(x >> 32);
}

/* Element `at` of the tensor that rank `source` has (source -1: the one tensor that is gathered), in f32 or i32. */
static float float_at(int number, int source, int64_t at, bool maximum)
{
    uint32_t bits = hash(number, source, at);
    if (maximum && bits % 61 == 0)
        return rt_float_of_bits(0x7FC00000);                /* a NaN, which must be preserved */
    float scale = rt_float_of_bits((118 + bits % 8) << 23); /* 2^-9 to 2^-2: sums depend on their order */
    return scale * ((float)(bits >> 8) / (1 << 24) - 0.5f);
}

static int32_t integer_at(int number, int source, int64_t at) { return (int32_t)hash(number, source, at) >> 8; }

static uint32_t bits_of(RtType type, float value)
{
    return type == RT_F32    ? rt_bits_of_float(value)
           : type == RT_BF16 ? rt_bf16_of_float(value)
                             : rt_f16_of_float(value);
}

static float rounded(RtType type, float value)
{
    uint32_t bits = bits_of(type, value);
    return type == RT_F32    ? value
           : type == RT_BF16 ? rt_float_of_bf16((uint16_t)bits)
                             : rt_float_of_f16((uint16_t)bits);
}

/* Rows of zeros, of each rank its own. */
static bool is_gap(const RtCollective *c, int number, int source, int64_t at)
{
    return c->gaps && hash(number, source, at / 5 + 99991) % 4;
}

static uint32_t bits_at(const RtCollective *c, int number, int source, int64_t at)
{
    if (is_gap(c, number, source, at))
        return 0;
    if (c->type == RT_I32 || c->type == RT_BOOL)
        return c->type == RT_BOOL ? hash(number, source, at) & 1 : (uint32_t)integer_at(number, source, at);
    return bits_of(c->type, float_at(number, source, at, c->maximum));
}

/* Over the ranks of a group, in their order. */
static uint32_t reduced(const RtCollective *c, const Case *k, int number, int64_t at, bool backwards)
{
    int64_t whole = 0;
    uint32_t any = 0;
    float sum = 0;
    for (int i = 0; i < k->n; i++) {
        int q = backwards ? k->n - 1 - i : i;
        if (c->type == RT_BOOL) {
            any |= bits_at(c, number, q, at);
            continue;
        }
        const bool gap = is_gap(c, number, q, at);
        int32_t integer = gap ? 0 : integer_at(number, q, at);
        float value = c->type == RT_I32 || gap ? 0 : rounded(c->type, float_at(number, q, at, c->maximum));
        if (c->maximum) {
            whole = i == 0 || integer > whole ? integer : whole;
            sum = i == 0 || value > sum || value != value ? value : sum;
        } else {
            whole += integer;
            sum = i == 0 ? value : sum + value;
        }
    }
    if (c->type == RT_BOOL)
        return any;
    return c->type == RT_I32 ? (uint32_t)(int32_t)whole : bits_of(c->type, sum);
}

/* --- Where elements are ----------------------------------------------------------------------------- */

/* The number in the whole dim of element i of the `length` that rank q of n holds. */
static int64_t place_of(int zigzag, int n, int q, int64_t length, int64_t i)
{
    if (!zigzag)
        return q * length + i;
    const int64_t piece = length / zigzag;
    int64_t row = i / piece, column = row % 2 ? n - 1 - q : q; /* forth and back */
    return (row * n + column) * piece + i % piece;
}

/* A tensor [outer, a, middle, b, inner] of which one rank holds all, or its part of a or of b. */
typedef struct {
    int64_t size[5];
    bool split_a, split_b;
    int zigzag;
} Shape;

static int64_t count_of(const Shape *s) { return s->size[0] * s->size[1] * s->size[2] * s->size[3] * s->size[4]; }

/* The number in the whole tensor of element i of the part of rank q. */
static int64_t whole_index(const Shape *s, int n, int q, int64_t i)
{
    int64_t x[5], size[5];
    for (int d = 4; d >= 0; d--) {
        x[d] = i % s->size[d];
        i /= s->size[d];
        size[d] = s->size[d];
    }
    int split = s->split_a ? 1 : s->split_b ? 3 : -1;
    if (split >= 0) {
        x[split] = place_of(s->zigzag, n, q, s->size[split], x[split]);
        size[split] *= n;
    }
    return (((x[0] * size[1] + x[1]) * size[2] + x[2]) * size[3] + x[3]) * size[4] + x[4];
}

static Shape shape_of(const RtCollective *c, const RtPiece *p, int n, bool after)
{
    Shape s = { .size = { p->outer, p->block, 1, 1, 1 } };
    if (c->kind == RT_ALL_GATHER || c->kind == RT_REDUCE_SCATTER) {
        s.split_a = after == (c->kind == RT_REDUCE_SCATTER);
        s.zigzag = p->zigzag ? 2 : 0;
        s.size[1] *= s.split_a ? 1 : n;
    }
    s.split_a |= c->kind == RT_ROTATE;
    if (c->kind != RT_ALL_TO_ALL)
        return s;
    int64_t gathered = after ? n * p->block : p->block, split = after ? p->cut : n * p->cut;
    s.split_a = p->gathers_first != after;
    s.split_b = !s.split_a;
    s.zigzag = (after ? p->zigzag_cut : p->zigzag) ? 2 : 0;
    s.size[1] = p->gathers_first ? gathered : split;
    s.size[2] = p->middle;
    s.size[3] = p->gathers_first ? split : gathered;
    s.size[4] = p->inner;
    return s;
}

static bool reduces(const RtCollective *c) { return c->kind == RT_ALL_REDUCE || c->kind == RT_REDUCE_SCATTER; }

/* --- One collective --------------------------------------------------------------------------------- */

static unsigned char *guarded(int64_t bytes)
{
    unsigned char *memory = malloc((size_t)bytes + 2 * CANARY);
    memset(memory, 0xA5, (size_t)bytes + 2 * CANARY);
    return memory + CANARY;
}

static void check_canaries(const unsigned char *at, int64_t bytes, int number)
{
    for (int i = 0; i < CANARY; i++)
        EXPECT(at[-1 - i] == 0xA5 && at[bytes + i] == 0xA5, "collective %d wrote outside of its tensor", number);
}

static int64_t bytes_of_piece(const RtCollective *c, const Case *k, int i, bool after)
{
    Shape s = shape_of(c, &k->piece[i], k->n, after);
    return count_of(&s) * bytes_of(c->type);
}

static void fill(int number, int round)
{
    const RtCollective *c = &collectives[number];
    Case *k = &cases[number];
    for (int i = 0; i < c->npieces; i++) {
        Shape s = shape_of(c, &k->piece[i], k->n, false);
        for (int64_t e = 0; e < count_of(&s); e++) {
            int64_t at = whole_index(&s, k->n, k->own, e);
            uint32_t bits = bits_at(c, number + 7919 * i + round, reduces(c) ? k->own : -1, at);
            memcpy(k->in[i] + e * bytes_of(c->type), &bits, (size_t)bytes_of(c->type)); /* little-endian */
        }
        if (!k->in_place)
            memset(k->out[i], 0x5A, (size_t)bytes_of_piece(c, k, i, true));
    }
}

static uint32_t expected_at(int number, int piece, int round, int64_t at)
{
    const RtCollective *c = &collectives[number];
    int seed = number + 7919 * piece + round;
    if (!reduces(c))
        return bits_at(c, seed, -1, at);
    uint32_t bits = reduced(c, &cases[number], seed, at, false);
    if (round == 0)
        order_matters += bits != reduced(c, &cases[number], seed, at, true);
    return bits;
}

static void check(int number, int round)
{
    const RtCollective *c = &collectives[number];
    const Case *k = &cases[number];
    for (int i = 0; i < c->npieces; i++) {
        Shape s = shape_of(c, &k->piece[i], k->n, true);
        for (int64_t e = 0; e < count_of(&s); e++) {
            const int holder = (k->own + c->turn) % k->n;
            uint32_t expected = expected_at(number, i, round, whole_index(&s, k->n, holder, e)), bits = 0;
            memcpy(&bits, k->out[i] + e * bytes_of(c->type), (size_t)bytes_of(c->type));
            EXPECT(bits == expected,
                   "collective %d (kind %d, type %d, maximum %d, %d ranks), piece %d, element %lld: %08x, not %08x",
                   number, c->kind, c->type, c->maximum, k->n, i, (long long)e, bits, expected);
        }
        check_canaries(k->out[i], bytes_of_piece(c, k, i, true), number);
        check_canaries(k->in[i], bytes_of_piece(c, k, i, false), number);
    }
    compared++;
}

/* --- The list --------------------------------------------------------------------------------------- */

static int64_t due_bytes(const RtCollective *c, const Case *k)
{
    int64_t count = 0, element = bytes_of(c->type);
    for (int i = 0; i < c->npieces; i++)
        count += bytes_of_piece(c, k, i, false) / element;
    switch (c->kind) {
    case RT_ALL_REDUCE: { /* all but its own n-th of the terms, then its own n-th of the sum to all others */
        int64_t own = count * (k->own + 1) / k->n - count * k->own / k->n;
        return (count - own + (k->n - 1) * own) * element;
    }
    case RT_ALL_GATHER:
        return count * (k->n - 1) * element;
    case RT_ROTATE:
        return count * element;
    case RT_REDUCE_SCATTER:
    case RT_ALL_TO_ALL:
    case RT_SEND: /* between two ranks: tests/ranks/test_pipelines.py */
        break;
    }
    return count / k->n * (k->n - 1) * element;
}

static void add(RtCollective c, int count, const RtPiece pieces[], bool in_place)
{
    Case *k = &cases[ncases];
    *k = (Case){ .n = 1, .in_place = in_place };
    EXPECT(ncases < MAX_CASES, "MAX_CASES is too small");
    for (int i = 0; i < c.naxes; i++)
        k->n *= rt.program->axes[c.axis[i]].size;
    memcpy(k->piece, pieces, (size_t)count * sizeof *pieces);
    c.piece = k->piece;
    c.npieces = count;
    c.name = "x";
    c.where = "x.mdl:1:1";
    c.cause = "test";
    collectives[ncases++] = c;
}

/* After the rank is known. */
static void prepare(const RtCollective *c, Case *k)
{
    for (int i = 0; i < c->naxes; i++)
        k->own = k->own * rt.program->axes[c->axis[i]].size + rt_coordinate(&rt, c->axis[i]);
    for (int i = 0; i < c->npieces; i++) {
        k->in[i] = guarded(bytes_of_piece(c, k, i, false));
        k->out[i] = k->in_place ? k->in[i] : guarded(bytes_of_piece(c, k, i, true));
    }
    k->sent = due_bytes(c, k);
}

static void free_buffers(const RtCollective *c, const Case *k)
{
    for (int i = 0; i < c->npieces; i++) {
        free(k->in[i] - CANARY);
        if (!k->in_place)
            free(k->out[i] - CANARY);
    }
}

static RtPiece piece_of(RtPiece flags, int64_t outer, int64_t block, int64_t middle, int64_t cut, int64_t inner)
{
    flags.outer = outer;
    flags.block = block;
    flags.middle = middle;
    flags.cut = cut;
    flags.inner = inner;
    return flags;
}

/* One tensor, several, and one that is smaller than the group. */
static void add_shapes(RtCollective c, RtPiece flags)
{
    RtPiece pieces[] = { piece_of(flags, 1, 6, 3, 4, 5), piece_of(flags, 3, 10, 1, 2, 1),
                         piece_of(flags, 1, 1030, 1, 2, 1) };
    RtPiece least = piece_of(flags, 1, flags.zigzag ? 2 : 1, 1, flags.zigzag_cut ? 2 : 1, 1);
    for (int in_place = 0; in_place <= (c.kind == RT_ALL_REDUCE); in_place++) {
        add(c, 1, &pieces[0], in_place);
        add(c, 1, &pieces[2], in_place);
        add(c, 1, &least, in_place);
        add(c, 3, pieces, in_place);
        add(c, 2, &pieces[1], in_place);
    }
}

static void add_kinds(const RtProgram *program, RtCollective c)
{
    int ranks = 1;
    for (int i = 0; i < c.naxes; i++)
        ranks *= program->axes[c.axis[i]].size;
    for (int maximum = 0; maximum <= (c.type != RT_BOOL); maximum++) {
        c.maximum = maximum;
        c.kind = RT_ALL_REDUCE;
        add_shapes(c, (RtPiece){ 0 });
        c.kind = RT_REDUCE_SCATTER;
        for (int zigzag = 0; zigzag <= 1; zigzag++)
            add_shapes(c, (RtPiece){ .zigzag = zigzag });
        c.gaps = true;
        add_shapes(c, (RtPiece){ .zigzag = maximum });
        c.gaps = false;
    }
    c.maximum = false;
    for (int zigzag = 0; zigzag <= 1; zigzag++) {
        c.kind = RT_ALL_GATHER;
        add_shapes(c, (RtPiece){ .zigzag = zigzag });
        c.gaps = true;
        add_shapes(c, (RtPiece){ .zigzag = zigzag });
        c.gaps = false;
        c.kind = RT_ALL_TO_ALL;
        for (int cut = 0; cut <= 1; cut++)
            for (int first = 0; first <= 1; first++)
                for (int gaps = 0; gaps <= 1; gaps++) {
                    c.gaps = gaps;
                    add_shapes(c, (RtPiece){ .zigzag = zigzag, .zigzag_cut = cut, .gathers_first = first });
                }
        c.gaps = false;
    }
    c.kind = RT_ROTATE;
    for (c.turn = 1; c.turn < ranks; c.turn++)
        add_shapes(c, (RtPiece){ 0 });
}

/* Over each axis, all of them, and the outermost two in either order. */
static void add_groups(const RtProgram *program)
{
    for (RtType type = RT_F32; type <= RT_BOOL; type++) {
        for (int axis = 0; axis < program->naxes; axis++)
            add_kinds(program, (RtCollective){ .type = type, .naxes = 1, .axis = { axis } });
        if (program->naxes > 1) {
            add_kinds(program, (RtCollective){ .type = type, .naxes = 2, .axis = { 0, 1 } });
            add_kinds(program, (RtCollective){ .type = type, .naxes = 2, .axis = { 1, 0 } });
        }
        if (program->naxes > 2)
            add_kinds(program, (RtCollective){ .type = type, .naxes = 3, .axis = { 2, 0, 1 } });
    }
}

/* --- Ways to run them ------------------------------------------------------------------------------- */

static void start_case(int i)
{
    rt_collective_start(&rt, i, (const void *const *)cases[i].in, (void *const *)cases[i].out);
}
static void run_case(int i) { rt_collective(&rt, i, (const void *const *)cases[i].in, (void *const *)cases[i].out); }

/* With exactly the stated workspace of each. */
static void run_alone(void)
{
    for (int i = 0; i < ncases; i++) {
        int64_t bytes = rt_exchange_workspace(&collectives[i], cases[i].n);
        unsigned char *workspace = guarded(bytes);
        fill(i, 0);
        int64_t sent = rt_exchange(&rt, &collectives[i], (const void *const *)cases[i].in, (void *const *)cases[i].out,
                                   (char *)workspace);
        check(i, 0);
        check_canaries(workspace, bytes, i);
        const int64_t most = cases[i].sent + (collectives[i].gaps ? cases[i].sent / 32 + 8 * cases[i].n : 0);
        skipped += collectives[i].gaps ? cases[i].sent - sent : 0;
        EXPECT(collectives[i].gaps ? sent <= most : sent == most, "collective %d sent %lld bytes, not %lld", i,
               (long long)sent, (long long)cases[i].sent);
        free(workspace - CANARY);
    }
}

/* Several at a time in the background, waited for from the last to the first; one while they run, and one after. */
static void run_in_background(void)
{
    enum { AT_ONCE = 7 };
    for (int first = 0; first < ncases; first += AT_ONCE) {
        int end = first + AT_ONCE < ncases ? first + AT_ONCE : ncases;
        for (int i = first; i < end; i++)
            fill(i, 1);
        for (int i = first; i < end - 1; i++)
            start_case(i);
        run_case(end - 1);
        for (int i = end - 2; i >= first; i--)
            rt_collective_wait(&rt, i);
        for (int i = first; i < end; i++)
            check(i, 1);
        fill(first, 2);
        run_case(first);
        check(first, 2);
    }
}

/* All are in the queue at the same time. */
static void run_all_started(void)
{
    for (int i = 0; i < ncases; i++)
        fill(i, 3);
    for (int i = 0; i < ncases; i++)
        start_case(i);
    for (int i = 0; i < ncases; i++) {
        rt_collective_wait(&rt, i);
        check(i, 3);
    }
}

/* --- Parts of split dims ---------------------------------------------------------------------------- */

/* Of a dim split over several axes, the ranks hold each element once, and in the order that rt.h says. */
static void check_part(RtSplit split, int64_t padded)
{
    int64_t length = padded, start = 0;
    const RtAxis *axes = rt.program->axes;
    for (int i = split.zigzag > 0; i < split.count; i++) {
        length /= axes[split.axis[i]].size;
        start = start * axes[split.axis[i]].size + rt_coordinate(&rt, split.axis[i]);
    }
    int n = split.zigzag ? axes[split.axis[0]].size : 1, r = split.zigzag ? rt_coordinate(&rt, split.axis[0]) : 0;
    length /= n;
    RtPart part = rt_part(&rt, split, padded);
    EXPECT(rt_part_size(&rt, split, padded) == length, "a part has the wrong size");
    const int64_t block = split.dealt ? length / split.dealt : length;
    for (int64_t i = 0; i < length; i++) {
        int64_t expected = start * length + i;
        if (split.zigzag)
            expected = place_of(split.zigzag, n, r, padded / n, expected);
        if (split.dealt) /* of all blocks of one size, every so many-th */
            expected = (i / block * (padded / length) + start) * block + i % block;
        EXPECT(rt_position(part, i) == expected, "element %lld of a part is %lld, not %lld", (long long)i,
               (long long)rt_position(part, i), (long long)expected);
    }
    double sum = 0;
    for (int64_t i = 0; i < length; i++)
        sum += (double)rt_position(part, i);
    int copies = rt.ranks / (int)(padded / length);
    EXPECT(rt_comm_sum(&rt, sum) == copies * (double)(padded * (padded - 1)) / 2, "parts do not make up the whole");
    EXPECT(rt_comm_max(&rt, (double)rt.rank) == rt.ranks - 1, "rt_comm_max");
}

static void check_parts(void)
{
    int naxes = rt.program->naxes;
    for (int zigzag = 0; zigzag <= 8; zigzag = zigzag ? 2 * zigzag : 2)
        for (int a = 0; a < naxes; a++) {
            check_part((RtSplit){ .count = 1, .axis = { a }, .zigzag = zigzag }, 192);
            if (zigzag)
                check_part((RtSplit){ .count = 1, .axis = { a }, .dealt = zigzag / 2 + 1 }, 240);
            for (int b = 0; b < naxes; b++)
                if (a != b)
                    check_part((RtSplit){ .count = 2, .axis = { a, b }, .zigzag = zigzag }, 192);
        }
    if (naxes == 3)
        for (int zigzag = 2; zigzag <= 8; zigzag *= 2)
            check_part((RtSplit){ .count = 3, .axis = { 1, 2, 0 }, .zigzag = zigzag }, 192);
}

/* --- Start and end ---------------------------------------------------------------------------------- */

static const RtAxis *mesh_of(int ranks)
{
    static const RtAxis two[] = { { "a", 2 } }, four[] = { { "a", 2 }, { "b", 2 } };
    static const RtAxis eight[] = { { "a", 2 }, { "b", 2 }, { "c", 2 } };
    return ranks == 2 ? two : ranks == 4 ? four : eight;
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 0;
    RtProgram program = { .name = "collectives",
                          .axes = mesh_of(ranks),
                          .naxes = ranks == 2   ? 1
                                   : ranks == 4 ? 2
                                                : 3,
                          .comm = &COMM,
                          .collectives = collectives };
    rt.program = &program;
    add_groups(&program);
    program.ncollectives = ncases;
    rt_comm_open(&rt, &argc, &argv);
    rt_traffic_open(&rt, 60);
    rt_collectives_open(&rt);
    for (int i = 0; i < ncases; i++)
        prepare(&collectives[i], &cases[i]);
    check_parts();
    run_alone();
    run_in_background();
    run_all_started();
    EXPECT(RT_UNIT > 8 || skipped > 0, "no zeros are left out");
    EXPECT((order_matters > 0) == (ranks > 2), "no sum depends on its order: these numbers test nothing");
    for (int i = 0; i < ncases; i++)
        free_buffers(&collectives[i], &cases[i]);
    rt_comm_close(&rt);
    rt_collectives_close(&rt);
    rt_traffic_close(&rt);
    if (rt.rank == 0)
        printf("%lld compared\n", (long long)compared);
    return 0;
}
