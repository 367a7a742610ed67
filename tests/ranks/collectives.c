/* collectives.c -- every kind of collective, run by the runtime over a transport (COMM) and compared with its meaning.
 *
 * Each rank can compute the whole tensor of each rank (a hash of the index), so it computes the expected results alone.
 * Usage: mpirun -n N collectives N, N = 2, 4 or 8; prints the number of comparisons, or ends with the first
 * difference. */
#include "collective_values.h"
#include "device.h"
#include "mesh/comm.h"
#include "mesh/workspace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CASES = 6000, CANARY = 16 };

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
