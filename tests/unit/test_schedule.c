/* test_schedule.c -- pipeline schedules: what is published of them, and what the proofs refuse. */
#include "schedule/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "schedule_test.h"

/* Fewer where each takes ten times as long (run.sh). */
#ifdef SLOW
enum { MOST_MICROS = 16 };
#else
enum { MOST_MICROS = 32 };
#endif

static int smaller(int a, int b) { return a < b ? a : b; }
static int larger(int a, int b) { return a > b ? a : b; }

/* --- What is published: bubbles, and activations held --------------------------------------------- */

/* Of equal F, B and W, and messages that cost nothing; -1: no formula. */
static double naive_bubble(int p, int v, int m) { return (p - 1.0) / p; }
static double chunked_bubble(int p, int v, int m) { return v == 1 || m >= p ? (p - 1.0) / (v * m + p - 1) : -1; }
static double zb_h1_bubble(int p, int v, int m) { return m >= p ? (p - 1.0) / (3 * m + p - 1) : -1; }

static double zb_v_bubble(int p, int v, int m)
{
    double idle = larger(0, 2 * (2 * p - 1 - m));
    return idle / (6 * m + idle);
}

/* The most activations that rank i holds; negative: no formula, but so many at most. */
static int naive_held(int p, int v, int m, int i) { return v; }
static int gpipe_held(int p, int v, int m, int i) { return v * m; }
static int one_f_one_b_held(int p, int v, int m, int i) { return smaller(m, p - i); }
static int zb_h1_held(int p, int v, int m, int i) { return smaller(m, p); }
static int zb_v_held(int p, int v, int m, int i) { return m >= 2 * p - 1 ? 2 * p : -2 * smaller(m, p); }

static int interleaved_held(int p, int v, int m, int i) { return smaller(v * m, 2 * (p - 1 - i) + (v - 1) * p + 1); }

static const struct {
    const char *name;
    int fewest_chunks, most_chunks;
    bool multiple;
    double (*bubble)(int p, int v, int m);
    int (*held)(int p, int v, int m, int i);
} schedules[] = {
    { "naive", 1, 4, false, naive_bubble, naive_held },
    { "gpipe", 1, 4, false, chunked_bubble, gpipe_held },
    { "1f1b", 1, 1, false, chunked_bubble, one_f_one_b_held },
    { "interleaved", 2, 4, true, chunked_bubble, interleaved_held },
    { "zb-h1", 1, 1, false, zb_h1_bubble, zb_h1_held },
    { "zb-v", 2, 2, false, zb_v_bubble, zb_v_held },
};

static void check_schedule(size_t n, int p, int v, int m)
{
    Arena arena = { 0 };
    const char *why;
    Timeline t;
    PipelineSchedule *s = make(&arena, schedules[n].name, p, v, m);
    if (!certify_schedule(&arena, s, &why))
        fail_msg("%s, %d ranks, %d chunks, %d micro-batches: %s", s->name, p, v, m, why);
    assert_true(simulate_schedule(&arena, s, NULL, &t));
    double published = schedules[n].bubble(p, v, m);
    if (published >= 0 && (t.bubble < published - 1e-12 || t.bubble > published + 1e-12))
        fail_msg("%s, %d ranks, %d chunks, %d micro-batches: bubble %.6f, published %.6f", s->name, p, v, m, t.bubble,
                 published);
    for (int rank = 0; rank < p; rank++) {
        const int held = schedules[n].held(p, v, m, rank), found = t.most_in_flight[rank];
        if (held < 0 ? found > -held : found != held)
            fail_msg("%s, %d ranks, %d chunks, %d micro-batches: rank %d holds %d, not %d", s->name, p, v, m, rank,
                     found, held);
    }
    for (int stage = 0; v == 1 && stage < p; stage++)
        assert_int_equal(s->activations[stage], t.most_in_flight[stage]);
    arena_free(&arena);
}

static void test_every_schedule(void **state)
{
    for (size_t n = 0; n < COUNT(schedules); n++)
        for (int p = 1; p <= 8; p++)
            for (int v = schedules[n].fewest_chunks; v <= schedules[n].most_chunks; v++)
                for (int m = 1; m <= MOST_MICROS; m++)
                    if (!schedules[n].multiple || m % p == 0)
                        check_schedule(n, p, v, m);
}

/* Qi et al., arXiv 2401.10241, tables of the appendix: measured milliseconds, and the bubbles that follow from them. */
static const struct {
    int ranks, micros, chunks; /* chunks: interleaved, one layer each, if embedding and head count as one */
    double forward, backward, weight, message, one_f_one_b, interleaved, zb_h1;
} measured[] = {
    { 8, 24, 3, 18.522, 18.086, 9.337, 0.601, 0.2431, 0.1055, 0.1585 },
    { 8, 32, 3, 18.513, 18.086, 9.331, 0.626, 0.1985, 0.0818, 0.1242 },
    { 8, 64, 3, 18.546, 18.097, 9.321, 0.762, 0.1240, 0.0443, 0.0674 },
    { 8, 24, 4, 29.718, 29.444, 19.927, 0.527, 0.2347, 0.0808, 0.1323 },
    { 8, 32, 4, 29.802, 29.428, 19.530, 0.577, 0.1898, 0.0628, 0.1045 },
    { 8, 64, 4, 29.935, 29.621, 19.388, 0.535, 0.1091, 0.0320, 0.0554 },
    { 16, 48, 3, 11.347, 11.248, 8.132, 0.377, 0.2552, 0.1104, 0.1397 },
    { 16, 64, 3, 11.307, 11.254, 8.101, 0.379, 0.2082, 0.0852, 0.1088 },
    { 16, 128, 3, 11.325, 11.308, 8.109, 0.378, 0.1251, 0.0445, 0.0576 },
    { 32, 96, 2, 10.419, 10.207, 7.715, 0.408, 0.2646, 0.1493, 0.1421 },
    { 32, 128, 2, 10.408, 10.204, 7.703, 0.408, 0.2168, 0.1164, 0.1106 },
    { 32, 256, 2, 10.402, 10.248, 7.698, 0.460, 0.1352, 0.0624, 0.0594 },
};

/* The bubble of a row's pipeline, if its longest path had `fewer` messages less. */
static double bubble_of_row(size_t i, const char *name, int chunks, int fewer)
{
    enum { MOST = 64 };
    double forward[MOST], backward[MOST], weight[MOST];
    assert_true(measured[i].ranks * chunks <= MOST);
    for (int stage = 0; stage < measured[i].ranks * chunks; stage++) {
        forward[stage] = measured[i].forward / chunks;
        backward[stage] = measured[i].backward / chunks;
        weight[stage] = measured[i].weight / chunks;
    }
    const Costs costs = { forward, backward, weight, measured[i].message };
    Arena arena = { 0 };
    Timeline t;
    assert_true(
        simulate_schedule(&arena, make(&arena, name, measured[i].ranks, chunks, measured[i].micros), &costs, &t));
    const double busy = t.makespan * (1 - t.bubble);
    arena_free(&arena);
    return 1 - busy / (t.makespan - fewer * measured[i].message);
}

static void expect_bubble(size_t row, const char *name, double bubble, double published)
{
    if (bubble < published - 0.00005 || bubble > published + 0.00005)
        fail_msg("row %zu: %s has bubble %.5f, published %.4f", row, name, bubble, published);
}

/* The paper's interleaved pipelines wait for 2 (p v - 1) - p messages, in all rows.  Ours wait for p more: F and B pass
 * p v stages, one after the other, and each border between two costs a message; where the paper saves p of them, it
 * does not say. */
static void test_published_bubbles(void **state)
{
    for (size_t i = 0; i < COUNT(measured); i++) {
        expect_bubble(i, "1f1b", bubble_of_row(i, "1f1b", 1, 0), measured[i].one_f_one_b);
        expect_bubble(i, "zb-h1", bubble_of_row(i, "zb-h1", 1, 0), measured[i].zb_h1);
        expect_bubble(i, "interleaved", bubble_of_row(i, "interleaved", measured[i].chunks, measured[i].ranks),
                      measured[i].interleaved);
    }
}

/* Three activations of 10 leave a stage in 30, whenever they are made: the last is there at 31 and read by 32, and the
 * gradients of 2 each, from then on, make another 30 from 34 to 64. */
static void test_long_messages(void **state)
{
    const Costs costs = { .message = 10 };
    Arena arena = { 0 };
    Timeline t;
    assert_true(simulate_schedule(&arena, make(&arena, "gpipe", 2, 1, 3), &costs, &t));
    assert_float_equal(t.makespan, 66, 1e-9);
    arena_free(&arena);
}

/* Beside a message, each of its ranks computes half as fast.  Rank 0: F of 1 at 0 and at 1, where the first activation
 * is under way from 1 to 4, so that it ends at 3.  Rank 1: F at 4, beside the second one from 4 to 7, until 6; F from 7
 * to 8; B of 2 from 8 to 10; B at 10, beside the first gradient until 13, to 13.5.  Rank 0: B at 13, beside the second
 * gradient from 13.5 to 16.5, until then; B until 18.5. */
static void test_messages_beside_actions(void **state)
{
    const Costs costs = { .message = 3, .lost = 0.5 };
    Arena arena = { 0 };
    Timeline t;
    assert_true(simulate_schedule(&arena, make(&arena, "gpipe", 2, 1, 2), &costs, &t));
    assert_float_equal(t.end[0][1], 3, 1e-2);
    assert_float_equal(t.end[1][0], 6, 1e-2);
    assert_float_equal(t.end[1][3], 13.5, 1e-2);
    assert_float_equal(t.makespan, 18.5, 1e-2);
    arena_free(&arena);
}

/* --- What a generator refuses ------------------------------------------------------------------------ */

static void test_refusals(void **state)
{
    static const struct {
        const char *name;
        int ranks, chunks, micros;
        const char *why, *help;
    } cases[] = {
        { "1fb1", 4, 1, 8, "no pipeline schedule '1fb1'", "did you mean '1f1b'?" },
        { "pipedream", 4, 1, 8, "no pipeline schedule", "schedules are naive, gpipe, 1f1b, interleaved, zb-h1, zb-v" },
        { "1f1b", 4, 2, 8, "1f1b has exactly 1 chunk on each rank, not 2", "or choose interleaved" },
        { "interleaved", 4, 1, 8, "interleaved has at least 2 chunks on each rank, not 1", "or choose 1f1b" },
        { "zb-v", 4, 3, 8, "zb-v has exactly 2 chunks on each rank, not 3", "cut the model in 2 chunks" },
        { "interleaved", 4, 2, 10, "a multiple of its 4 ranks, which 10 is not", "8 and 12 are the nearest that work" },
        { "interleaved", 4, 2, 3, "a multiple of its 4 ranks, which 3 is not", "4 is the nearest that works" },
        { "gpipe", 4, 1, 0, "micro-batches = 0", "one or more of each" },
        { "gpipe", -1, 1, 1, "ranks = -1", "one or more of each" },
        { "gpipe", 1 << 20, 1 << 20, 1 << 20, "too large", "their product may be" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        Arena arena = { 0 };
        const char *why = "", *help = "";
        assert_null(
            make_schedule(&arena, cases[i].name, cases[i].ranks, cases[i].chunks, cases[i].micros, &why, &help));
        if (!strstr(why, cases[i].why) || !strstr(help, cases[i].help))
            fail_msg("case %zu: %s; help: %s", i, why, help);
        arena_free(&arena);
    }
}

/* --- What the proofs refuse ------------------------------------------------------------------------ */

/* "F0.3" is an action, ">F0.3" sends its result, "<F0.3" receives it; "+B0.3" reduces gradients after it. */
static Event event_of_text(const char *text)
{
    Event e = { .is_message = *text == '<' || *text == '>', .reduces = *text == '+', .sends = *text == '>' };
    char kind;
    int stage, micro;
    if (sscanf(text + !is_action(&e), "%c%d.%d", &kind, &stage, &micro) != 3)
        fail_msg("'%s' is no event", text);
    if (e.is_message)
        e.message = (Message){ kind == 'B', stage, micro };
    else
        e.action = (Action){ (ActionKind)(strchr("FBW", kind) - "FBW"), stage, micro };
    return e;
}

static bool is_same_event(const Event *a, const Event *b)
{
    if (a->is_message != b->is_message || a->reduces != b->reduces)
        return false;
    if (!a->is_message)
        return a->action.kind == b->action.kind && a->action.stage == b->action.stage &&
               a->action.micro == b->action.micro;
    return a->sends == b->sends && a->message.backward == b->message.backward && a->message.stage == b->message.stage &&
           a->message.micro == b->message.micro;
}

static Event *find_event(const PipelineSchedule *s, int rank, const char *text)
{
    const Event wanted = event_of_text(text);
    for (int i = 0; i < s->nevents[rank]; i++)
        if (is_same_event(&s->event[rank][i], &wanted))
            return &s->event[rank][i];
    fail_msg("rank %d has no event %s", rank, text);
    return NULL;
}

/* The actions become those of the events. */
static void take_actions_from_events(PipelineSchedule *s, int rank)
{
    s->nactions[rank] = 0;
    for (int i = 0; i < s->nevents[rank]; i++)
        if (is_action(&s->event[rank][i]))
            s->action[rank][s->nactions[rank]++] = s->event[rank][i].action;
}

static void swap(Event *a, Event *b)
{
    const Event kept = *a;
    *a = *b;
    *b = kept;
}

/* "A~B": two events of a rank in each other's place; "A=B": B in the place of A; "A-": A is left out. */
static void change(PipelineSchedule *s, int rank, const char *how)
{
    char a[16] = "", b[16] = "", what = 0;
    sscanf(how, "%15[^~=-]%c%15s", a, &what, b);
    Event *at = find_event(s, rank, a);
    if (what == '~')
        swap(at, find_event(s, rank, b));
    else if (what == '=')
        *at = event_of_text(b);
    else
        memmove(at, at + 1, (size_t)(s->event[rank] + s->nevents[rank]-- - at - 1) * sizeof *at);
}

typedef struct {
    const char *name;
    int rank;
    const char *changes[3];
    const char *said;
} Planted;

/* Schedules of one chunk have 4 ranks here and 8 micro-batches, those of two have 2 and 4. */
/* 1f1b, rank 0: F0.0 >F0.0 F0.1 >F0.1 F0.2 >F0.2 F0.3 >F0.3 <B1.0 B0.0 F0.4 >F0.4 <B1.1 B0.1 */
/* 1f1b, rank 1: <F0.0 F1.0 <F0.1 >F1.0 F1.1 <F0.2 >F1.1 F1.2 <F0.3 >F1.2 <B2.0 B1.0 >B1.0 F1.3 >F1.3 <B2.1 B1.1 */
/* interleaved, rank 0: >F0.1 <F1.0 F2.0 >F2.0 <F1.1 F2.1 >F2.1 F0.2 >F0.2 <B3.0 B2.0 */
/* interleaved, rank 1: F1.0 <F0.1 >F1.0 F1.1 <F2.0 >F1.1 F3.0 <F2.1 B3.0 <F0.2 >B3.0 F3.1 B3.1 <B2.0 <F0.3 >B3.1 */
static const Planted messages_planted[] = {
    /* Both sides send first: the first interleaving of pytorch issue 172668 ... */
    { "interleaved",
      1,
      { "<F0.1~>F1.0" },
      "deadlock: rank 0 sends F0 of micro-batch 1 to rank 1, which first sends F1 of micro-batch 0 to rank 0" },
    /* ... and the second one, in which one of them has exchanged both. */
    { "interleaved",
      1,
      { "<F0.2~>B3.0", "<F0.2~F3.1", "<F0.2~B3.1" },
      "deadlock: rank 0 sends F0 of micro-batch 2 to rank 1, which first sends B3 of micro-batch 0 to rank 0" },
    { "1f1b",
      1,
      { "<F0.4~>B1.1" },
      "deadlock: rank 0 sends F0 of micro-batch 4 to rank 1, which first sends B1 of micro-batch 1 to rank 0" },
    { "1f1b",
      0,
      { "F0.3~<B1.0", ">F0.3~B0.0" }, /* one warm-up too few */
      "deadlock: rank 0 receives B1 of micro-batch 0 from rank 1, which first receives F0 of micro-batch 3 from rank "
      "0" },
    { "interleaved",
      1,
      { "<F2.1~<F0.2" },
      "rank 1 receives F0 of micro-batch 2 where rank 0 sends F2 of micro-batch 1" },
    { "1f1b",
      1,
      { ">B1.6~B1.7", "B1.7~<B2.7", ">B1.6~>B1.7" },
      "rank 0 receives B1 of micro-batch 6 where rank 1 sends B1 of micro-batch 7" },
    { "1f1b", 0, { ">F0.4-" }, "rank 0 never sends F0.4 to rank 1" },
    { "1f1b", 1, { "<F0.4-" }, "rank 1 never receives F0.4 from rank 0, which F1.4 reads" },
    { "1f1b", 0, { "F0.0~>F0.0" }, "rank 0 does not yet have what it sends: F0.0 to rank 1" },
    { "1f1b", 1, { "<F0.0~F1.0" }, "rank 1 does F1.0 before it receives F0.0 from rank 0" },
    { "1f1b", 1, { "<F0.1=<F0.0" }, "rank 1 receives F0 of micro-batch 0 from rank 0 twice" },
    { "1f1b",
      2,
      { "<F1.1=<F0.1" },
      "rank 2 receives F0 of micro-batch 1 from rank 0, which goes from rank 0 to rank 1" },
    { "1f1b", 3, { ">B3.0=>F3.0" }, "a message between stages that there are not" },
    { "zb-v", 1, { "<F0.1=<F1.1" }, "which goes from rank 1 to rank 1" },
};

static const Planted actions_planted[] = {
    { "1f1b", 2, { "F2.7-" }, "rank 2 lacks F2.7" },
    { "1f1b", 2, { "F2.7=F2.6" }, "rank 2 does F2.6 twice" },
    { "1f1b", 3, { "F3.0~B3.0" }, "rank 3 does B3.0 before F3.0" },
    { "zb-h1", 1, { "B1.0~W1.0" }, "rank 1 does W1.0 before B1.0" },
    { "zb-h1", 1, { "W1.6~W1.7" }, "rank 1 does W1.7 before W1.6" },
    { "zb-v", 1, { "F1.0~F2.0" }, "rank 1 does F2.0 before F1.0, which it reads" },
    { "1f1b", 0, { "F0.0=F1.0" }, "rank 0 does F1.0, but stage 1 is on rank 1" },
    { "1f1b", 0, { "B0.0=W0.0" }, "rank 0 does W0.0, though this schedule does not split B" },
    { "1f1b", 0, { "B0.0=B0.8" }, "its action number 4 is of no stage and micro-batch" },
};

/* These are changed among the events alone. */
static const Planted differences_planted[] = {
    { "1f1b", 0, { "F0.3~F0.2" }, "rank 0 does F0.3 among its messages, where its actions have F0.2" },
    { "1f1b", 0, { "B0.7-" }, "rank 0 lacks B0.7 among its messages" },
};

static const Planted reductions_planted[] = {
    { "1f1b", 0, { "+B0.7-" }, "rank 0 never reduces the gradients of stage 0" },
    { "1f1b", 1, { "+B1.7=+B0.7" }, "rank 1 reduces the gradients of stage 0, which is not on it" },
    { "zb-h1", 0, { "+W0.7~W0.7" }, "rank 0 reduces the gradients of stage 0 before W0.7" },
    { "interleaved", 1, { "+B3.3~B3.3" }, "rank 1 reduces the gradients of stage 3 before B3.3" },
    { "interleaved", 0, { "+B0.3=+B2.3" }, "rank 0 reduces the gradients of stage 2 twice" },
};

static void refuse_planted(const Planted *p, bool only_events)
{
    Arena arena = { 0 };
    const char *why = "";
    const bool two = strcmp(p->name, "interleaved") == 0 || strcmp(p->name, "zb-v") == 0;
    PipelineSchedule *s = make(&arena, p->name, two ? 2 : 4, two ? 2 : 1, two ? 4 : 8);
    for (size_t k = 0; k < COUNT(p->changes) && p->changes[k]; k++)
        change(s, p->rank, p->changes[k]);
    if (!only_events)
        take_actions_from_events(s, p->rank);
    bool accepted = certify_schedule(&arena, s, &why);
    if (accepted || !strstr(why, p->said))
        fail_msg("%s: %s: %s", p->changes[0], accepted ? "accepted" : "refused", why);
    arena_free(&arena);
}

/* --- Slots -------------------------------------------------------------------------------------------- */

/* As many slots as are counted are enough, and one fewer is refused. */
static void check_slots(Arena *arena, const PipelineSchedule *s, int rank, Lifetime life)
{
    const char *why = "";
    const int slots = slots_needed(s, rank, &life);
    if (!certify_slots(arena, s, rank, &life, slots, &why))
        fail_msg("%s, %d ranks, %d chunks, %d micro-batches: %s", s->name, s->ranks, s->chunks, s->micros, why);
    if (slots > 1) {
        assert_false(certify_slots(arena, s, rank, &life, slots - 1, &why));
        assert_non_null(strstr(why, "into the slot that micro-batch"));
    }
}

/* Of all values that one part may make, or get from another rank, and a later part may read. */
static void check_lifetimes(Arena *arena, const PipelineSchedule *s, int rank, int chunk)
{
    const ActionKind last = s->splits_backward ? WEIGHT_ACTION : BACKWARD_ACTION;
    const int stage = stage_on_rank(s, rank, chunk);
    const bool from_before = stage > 0 && rank_of_stage(s, stage - 1) != rank;
    const bool from_after = stage + 1 < stage_count(s) && rank_of_stage(s, stage + 1) != rank;
    assert_int_equal(rank_of_stage(s, stage), rank);
    const Lifetime saved = { FORWARD_ACTION, last, chunk, chunk, false };
    assert_int_equal(slots_needed(s, rank, &saved), s->activations[stage]);
    for (int later = chunk; later < s->chunks; later++)
        for (int arrives = 0; arrives <= from_before; arrives++) {
            check_slots(arena, s, rank, (Lifetime){ FORWARD_ACTION, FORWARD_ACTION, chunk, later, arrives });
            check_slots(arena, s, rank, (Lifetime){ FORWARD_ACTION, last, chunk, later, arrives });
        }
    for (int later = chunk; later >= 0; later--)
        for (int arrives = 0; arrives <= from_after; arrives++)
            check_slots(arena, s, rank, (Lifetime){ BACKWARD_ACTION, last, chunk, later, arrives });
}

static void test_slots(void **state)
{
    for (size_t n = 0; n < COUNT(schedules); n++)
        for (int p = 1; p <= 5; p++)
            for (int v = schedules[n].fewest_chunks; v <= schedules[n].most_chunks; v++)
                for (int m = 1; m < MOST_MICROS / 2; m++) {
                    if (schedules[n].multiple && m % p)
                        continue;
                    Arena arena = { 0 };
                    const PipelineSchedule *s = make(&arena, schedules[n].name, p, v, m);
                    for (int rank = 0; rank < p; rank++)
                        for (int chunk = 0; chunk < v; chunk++)
                            check_lifetimes(&arena, s, rank, chunk);
                    arena_free(&arena);
                }
}

static void test_planted(void **state)
{
    for (size_t i = 0; i < COUNT(messages_planted); i++)
        refuse_planted(&messages_planted[i], false);
    for (size_t i = 0; i < COUNT(actions_planted); i++)
        refuse_planted(&actions_planted[i], false);
    for (size_t i = 0; i < COUNT(reductions_planted); i++)
        refuse_planted(&reductions_planted[i], true);
    for (size_t i = 0; i < COUNT(differences_planted); i++)
        refuse_planted(&differences_planted[i], true);
}

/* Counts of activations are exact: one less is refused.  Of what has its own lifetime, see test_slots. */
static void test_a_slot_too_few(void **state)
{
    for (size_t n = 0; n < COUNT(schedules); n++) {
        Arena arena = { 0 };
        const char *why;
        PipelineSchedule *s = make(&arena, schedules[n].name, 4, schedules[n].fewest_chunks, 8);
        for (int stage = 0; stage < stage_count(s); stage++) {
            s->activations[stage]--;
            assert_false(certify_schedule(&arena, s, &why));
            const char *who = arena_text(&arena, "rank %d ", rank_of_stage(s, stage)),
                       *what = arena_text(&arena, "of stage %d: it has %d slot", stage, s->activations[stage]);
            if (strncmp(why, who, strlen(who)) != 0 || !strstr(why, what))
                fail_msg("%s: %s", s->name, why);
            s->activations[stage]++;
        }
        assert_true(certify_schedule(&arena, s, &why));
        arena_free(&arena);
    }
}

/* Two events of a rank in each other's place: if that is certified, then the actions can be done. */
static void test_random_swaps(void **state)
{
    unsigned random = 1;
    int refused = 0, accepted = 0;
    for (size_t n = 0; n < COUNT(schedules); n++)
        for (int i = 0; i < 300; i++) {
            Arena arena = { 0 };
            const char *why;
            Timeline t;
            PipelineSchedule *s = make(&arena, schedules[n].name, 4, schedules[n].fewest_chunks, 8);
            const int rank = (int)((random = random * 1664525 + 1013904223) >> 16) % 4, events = s->nevents[rank];
            const int a = (int)((random = random * 1664525 + 1013904223) >> 16) % (events - 3);
            swap(&s->event[rank][a], &s->event[rank][a + 1 + i % 3]);
            take_actions_from_events(s, rank);
            const bool good = certify_schedule(&arena, s, &why);
            *(good ? &accepted : &refused) += 1;
            assert_true(!good || simulate_schedule(&arena, s, NULL, &t));
            arena_free(&arena);
        }
    assert_true(accepted > 100 && refused > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_schedule), cmocka_unit_test(test_published_bubbles),
        cmocka_unit_test(test_long_messages),  cmocka_unit_test(test_messages_beside_actions),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_slots),
        cmocka_unit_test(test_planted),        cmocka_unit_test(test_a_slot_too_few),
        cmocka_unit_test(test_random_swaps)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
