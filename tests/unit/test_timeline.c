/* test_timeline.c -- the picture of a pipeline schedule as text; memory over time; published bubbles. */
#include "timeline.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "schedule_test.h"

/* --- Text ------------------------------------------------------------------------------------------ */

static const double milliseconds[] = { 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3 },
                    fixed[] = { 1e9, 1e9, 1e9, 1.5e9 }, activations[] = { 5e8, 5e8, 5e8, 5e8, 5e8, 5e8, 5e8, 5e8 };

static void check_text(TimelinePicture p, const char *name, int chunks, int width, const char *expected)
{
    Arena arena = { 0 };
    const Costs costs = { milliseconds, milliseconds, milliseconds, 0 };
    char *text;
    size_t size;
    FILE *out = open_memory(&text, &size);
    PipelineSchedule *schedule = make(&arena, name, 4, chunks, 8);
    schedule->reduces = false;
    p.schedule = schedule;
    p.costs = &costs;
    p.title = "m.mdl";
    p.axis = "pp";
    p.fixed_bytes = fixed;
    p.activation_bytes = activations;
    write_timeline_text(&p, width, out);
    fclose(out);
    assert_string_equal(text, expected);
    free(text);
    arena_free(&arena);
}

/* clang-format off */
static const char spaced[] =
    "m.mdl: 1f1b, 4 ranks along pp, 8 micro-batches, 4 stages\n"
    "  rank 0  F0 F1 F2 F3 ..................B0--- F4 B1--- F5 B2--- F6 B3--- F7 B4--- ...B5--- ...B6--- ...B7---\n"
    "  rank 1  ...F0 F1 F2 ............B0--- F3 B1--- F4 B2--- F5 B3--- F6 B4--- F7 B5--- ...B6--- ...B7--- ......\n"
    "  rank 2  ......F0 F1 ......B0--- F2 B1--- F3 B2--- F4 B3--- F5 B4--- F6 B5--- F7 B6--- ...B7--- ............\n"
    "  rank 3  .........F0 B0--- F1 B1--- F2 B2--- F3 B3--- F4 B4--- F5 B5--- F6 B6--- F7 B7--- ..................\n"
    "          |              |              |              |              |              |              |\n"
    "          0              5              10             15             20             25             30 ms\n"
    "  F forward, B backward of the micro-batch with this number; . idle\n"
    "  makespan 33 ms, bubble 27.27 %\n"
    "  published formula: bubble 27.27 %, if stages cost the same and messages nothing\n"
    "            idle  in flight         fixed          peak\n"
    "  rank 0  27.3 %          4       1.00 GB       3.00 GB  stage 0: layers 0 to 2, embedding\n"
    "  rank 1  27.3 %          3       1.00 GB       2.50 GB  stage 1\n"
    "  rank 2  27.3 %          2       1.00 GB       2.00 GB  stage 2: layers 6 to 8\n"
    "  rank 3  27.3 %          1       1.50 GB       2.00 GB  stage 3: layer 9\n";

static const char tight[] =
    "m.mdl: 1f1b, 4 ranks along pp, 8 micro-batches, 4 stages\n"
    "  rank 0  F0F1F2F3............B0- F4B1- F5B2- F6B3- F7B4- ..B5- ..B6- ..B7-\n"
    "  rank 1  ..F0F1F2........B0- F3B1- F4B2- F5B3- F6B4- F7B5- ..B6- ..B7- ....\n"
    "  rank 2  ....F0F1....B0- F2B1- F3B2- F4B3- F5B4- F6B5- F7B6- ..B7- ........\n"
    "  rank 3  ......F0B0- F1B1- F2B2- F3B3- F4B4- F5B5- F6B6- F7B7- ............\n"
    "          |                   |                   |                   |\n"
    "          0                   10                  20                  30 ms\n"
    "  F forward, B backward of the micro-batch with this number; . idle\n"
    "  makespan 33 ms, bubble 27.27 %\n"
    "            idle  in flight         fixed          peak  of 2.40 GB\n"
    "  rank 0  27.3 %          4       1.00 GB       3.00 GB     125.0 %  600.00 MB too much  stage 0\n"
    "  rank 1  27.3 %          3       1.00 GB       2.50 GB     104.2 %  100.00 MB too much  stage 1\n"
    "  rank 2  27.3 %          2       1.00 GB       2.00 GB      83.3 %  stage 2\n"
    "  rank 3  27.3 %          1       1.50 GB       2.00 GB      83.3 %  stage 3\n";

static const char letters[] =
    "m.mdl: 1f1b, 4 ranks along pp, 8 micro-batches, 4 stages\n"
    "  rank 0  FFFF......BBFBBFBBFBBFBB.BB.BB.BB\n"
    "  rank 1  .FFF....BBFBBFBBFBBFBBFBB.BB.BB..\n"
    "  rank 2  ..FF..BBFBBFBBFBBFBBFBBFBB.BB....\n"
    "  rank 3  ...FBBFBBFBBFBBFBBFBBFBBFBB......\n"
    "          |                   |\n"
    "          0                   20 ms\n"
    "  F forward, B backward; . idle\n"
    "  a column is 1 ms; letters are in proportion to their time\n"
    "  makespan 33 ms, bubble 27.27 %\n"
    "            idle  in flight         fixed          peak\n"
    "  rank 0  27.3 %          4       1.00 GB       3.00 GB  stage 0\n"
    "  rank 1  27.3 %          3       1.00 GB       2.50 GB  stage 1\n"
    "  rank 2  27.3 %          2       1.00 GB       2.00 GB  stage 2\n"
    "  rank 3  27.3 %          1       1.50 GB       2.00 GB  stage 3\n";

static const char interleaved[] =
    "m.mdl: interleaved, 4 ranks along pp, 8 micro-batches, 8 stages\n"
    "  rank 0  F0F1F2F3f0f1f2f3F4F5F6......b0- F7b1- ..f4b2- f5b3- f6B0- f7B1- B2- ..B3- ..b4- ..b5- ..b6- ..b7- B4- B5- B6- B7-\n"
    "  rank 1  ..F0F1F2F3f0f1f2f3F4....b0- F5b1- F6b2- F7b3- f4B0- f5B1- f6B2- f7B3- ..b4- ..b5- ..b6- ..b7- B4- B5- B6- B7- ....\n"
    "  rank 2  ....F0F1F2F3f0f1f2..b0- f3b1- F4b2- F5b3- F6B0- F7B1- f4B2- f5B3- f6b4- f7b5- ..b6- ..b7- B4- B5- B6- B7- ........\n"
    "  rank 3  ......F0F1F2F3f0b0- f1b1- f2b2- f3b3- F4B0- F5B1- F6B2- F7B3- f4b4- f5b5- f6b6- f7b7- B4- B5- B6- B7- ............\n"
    "          |                   |                   |                   |                   |                   |\n"
    "          0                   10                  20                  30                  40                  50 ms\n"
    "  F forward, B backward of the micro-batch with this number; . idle\n"
    "  upper case: the rank's first stage; lower case: its second\n"
    "  makespan 57 ms, bubble 15.79 %\n"
    "  published formula: bubble 15.79 %, if stages cost the same and messages nothing\n"
    "            idle  in flight         fixed          peak\n"
    "  rank 0  15.8 %         11       1.00 GB       6.50 GB  stage 0; stage 4\n"
    "  rank 1  15.8 %          9       1.00 GB       5.50 GB  stage 1; stage 5\n"
    "  rank 2  15.8 %          7       1.00 GB       4.50 GB  stage 2; stage 6\n"
    "  rank 3  15.8 %          5       1.50 GB       4.00 GB  stage 3; stage 7\n";

static const char zb_v[] =
    "m.mdl: zb-v, 4 ranks along pp, 8 micro-batches, 8 stages\n"
    "  rank 0  F0F1F2F3F4F5F6f0b0w0f1b1w1f2b2w2f3b3w3F7B0W0f4b4w4B1W1f5b5w5B2W2f6b6w6B3W3f7b7w7B4W4B5W5B6W6B7W7......\n"
    "  rank 1  ..F0F1F2F3F4f0F5f1b0w0f2b1w1f3b2w2F6B0W0f4b3w3F7B1W1f5b4w4B2W2f6b5w5B3W3f7b6w6B4b7B5W4B6W5B7W6w7W7....\n"
    "  rank 2  ....F0F1F2f0F3f1F4f2b0w0f3b1w1F5B0W0f4b2w2F6B1W1f5b3w3F7B2W2f6b4w4B3W3f7b5w5B4b6B5b7B6W4B7W5w6w7W6W7..\n"
    "  rank 3  ......F0f0F1f1F2f2F3f3b0w0F4B0W0f4b1w1F5B1W1f5b2w2F6B2W2f6b3w3F7B3W3f7b4w4B4b5B5b6B6b7B7W4w5w6w7W5W6W7\n"
    "          |                   |                   |                   |                   |                   |\n"
    "          0                   10                  20                  30                  40                  50 ms\n"
    "  F forward, B backward, W weight gradients of the micro-batch with this number; . idle\n"
    "  upper case: the rank's first stage; lower case: its second\n"
    "  makespan 48 ms of the slowest rank (the last one ends at 51 ms), bubble 0.00 %\n"
    "  published formula: bubble 0.00 %, if stages cost the same and messages nothing\n"
    "            idle  in flight         fixed          peak\n"
    "  rank 0   0.0 %          8       1.00 GB       5.00 GB  stage 0; stage 7\n"
    "  rank 1   0.0 %          8       1.00 GB       5.00 GB  stage 1; stage 6\n"
    "  rank 2   0.0 %          8       1.00 GB       5.00 GB  stage 2; stage 5\n"
    "  rank 3   0.0 %          8       1.50 GB       5.50 GB  stage 3; stage 4\n";
/* clang-format on */

static void test_1f1b(void **state)
{
    static const char *const stages[] = { "layers 0 to 2, embedding", NULL, "layers 6 to 8", "layer 9" };
    check_text((TimelinePicture){ .published_bubble = 3 / 11.0, .stage_text = stages }, "1f1b", 1, 110, spaced);
    check_text((TimelinePicture){ .published_bubble = -1, .capacity_bytes = 2.4e9 }, "1f1b", 1, 80, tight);
    check_text((TimelinePicture){ .published_bubble = -1 }, "1f1b", 1, 50, letters);
}

static void test_interleaved(void **state)
{
    check_text((TimelinePicture){ .published_bubble = 3 / 19.0 }, "interleaved", 2, 130, interleaved);
}

static void test_zb_v(void **state) { check_text((TimelinePicture){ .published_bubble = 0 }, "zb-v", 2, 120, zb_v); }

/* Stages and messages that cost nothing, as in a model without work. */
static void test_no_time(void **state)
{
    static const double none[8] = { 0 };
    Arena arena = { 0 };
    const Costs costs = { none, none, none, 0 };
    const TimelinePicture p = { .schedule = make(&arena, "zb-v", 4, 2, 8),
                                .costs = &costs,
                                .title = "m.mdl",
                                .axis = "pp",
                                .published_bubble = -1,
                                .fixed_bytes = none,
                                .activation_bytes = none };
    char *text;
    size_t size;
    FILE *out = open_memory(&text, &size);
    write_timeline_text(&p, 80, out);
    write_timeline_svg(&p, out);
    fclose(out);
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf%"));
    free(text);
    arena_free(&arena);
}

static void test_tick_steps(void **state)
{
    static const struct {
        double span;
        int most;
        double step;
    } rows[] = { { 10, 10, 1 },    { 10, 9, 2 }, { 33, 7, 5 },    { 33, 3, 20 },
                 { 0.9, 10, 0.1 }, { 0, 5, 1 },  { 7e5, 14, 5e4 } };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_true(fabs(tick_step(rows[i].span, rows[i].most) / rows[i].step - 1) < 1e-9);
}

/* --- Memory ---------------------------------------------------------------------------------------- */

static double time_of(const PipelineSchedule *s, const Timeline *t, Action a, bool ends)
{
    const int rank = rank_of_stage(s, a.stage);
    for (int i = 0; i < s->nactions[rank]; i++)
        if (s->action[rank][i].kind == a.kind && s->action[rank][i].stage == a.stage &&
            s->action[rank][i].micro == a.micro)
            return ends ? t->end[rank][i] : t->start[rank][i];
    fail_msg("rank %d lacks %c%d.%d", rank, "FBW"[a.kind], a.stage, a.micro);
    return 0;
}

/* Bytes of a rank at a time, by looking at every micro-batch of every stage. */
static double held_at(const PipelineSchedule *s, const Timeline *t, int rank, double at, const double *bytes)
{
    const ActionKind last = s->splits_backward ? WEIGHT_ACTION : BACKWARD_ACTION;
    double held = 0;
    for (int stage = 0; stage < stage_count(s); stage++)
        for (int micro = 0; rank_of_stage(s, stage) == rank && micro < s->micros; micro++)
            if (time_of(s, t, (Action){ FORWARD_ACTION, stage, micro }, false) <= at &&
                at < time_of(s, t, (Action){ last, stage, micro }, true))
                held += bytes[stage];
    return held;
}

static void check_curve(const PipelineSchedule *s, const Timeline *t, int rank, const double *bytes)
{
    Arena arena = { 0 };
    const MemoryCurve curve = memory_over_time(&arena, s, t, rank, 7, bytes);
    double peak = 7;
    for (int i = 0; i < curve.count; i++) {
        const MemoryLevel *level = &curve.level[i];
        if (i + 1 < curve.count && level[1].at <= level->at) { /* replaced at once */
            assert_true(level[1].at == level->at);
            continue;
        }
        assert_true(level->bytes == 7 + held_at(s, t, rank, level->at, bytes));
        peak = fmax(peak, level->bytes);
    }
    assert_true(curve.level[curve.peak].bytes == peak);
    assert_true(curve.level[curve.count - 1].bytes == 7);
    arena_free(&arena);
}

static void test_memory(void **state)
{
    static const struct {
        const char *name;
        int chunks;
    } rows[] = { { "naive", 1 }, { "gpipe", 2 }, { "1f1b", 1 }, { "interleaved", 2 }, { "zb-h1", 1 }, { "zb-v", 2 } };
    const double forward[] = { 1, 3, 2, 4, 1, 2, 5, 1 }, backward[] = { 2, 2, 3, 1, 4, 1, 2, 2 };
    const double one[] = { 1, 1, 1, 1, 1, 1, 1, 1 }, powers[] = { 1, 2, 4, 8, 16, 32, 64, 128 };
    const Costs costs = { forward, backward, NULL, 0.5 };
    for (size_t i = 0; i < COUNT(rows); i++) {
        Arena arena = { 0 };
        Timeline t;
        PipelineSchedule *s = make(&arena, rows[i].name, 4, rows[i].chunks, 8);
        assert_true(simulate_schedule(&arena, s, &costs, &t));
        for (int rank = 0; rank < 4; rank++) {
            check_curve(s, &t, rank, powers);
            const MemoryCurve curve = memory_over_time(&arena, s, &t, rank, 0, one);
            assert_true(curve.level[curve.peak].bytes == t.most_in_flight[rank]);
        }
        arena_free(&arena);
    }
}

/* --- Published bubbles ----------------------------------------------------------------------------- */

static void test_published(void **state)
{
    static const struct {
        const char *name;
        int ranks, chunks, micros;
        double bubble;
    } rows[] = {
        { "naive", 4, 1, 8, 3 / 4.0 },  { "gpipe", 4, 1, 8, 3 / 11.0 },
        { "1f1b", 8, 1, 64, 7 / 71.0 }, { "1f1b", 8, 1, 2, 7 / 9.0 },
        { "1f1b", 1, 1, 5, 0 },         { "interleaved", 4, 2, 8, 3 / 19.0 },
        { "gpipe", 4, 3, 4, 3 / 15.0 }, { "gpipe", 4, 3, 3, -1 },
        { "zb-h1", 4, 1, 8, 3 / 27.0 }, /* a third of 1F1B's idle time */
        { "zb-h1", 4, 1, 3, -1 },       { "zb-v", 4, 2, 7, 0 },
        { "zb-v", 4, 2, 6, -1 },        { "table", 4, 1, 8, -1 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        double found = published_bubble(rows[i].name, rows[i].ranks, rows[i].chunks, rows[i].micros);
        if (fabs(found - rows[i].bubble) > 1e-12)
            fail_msg("row %zu, %s: %.6f, not %.6f", i, rows[i].name, found, rows[i].bubble);
    }
}

/* The formulas are those of the schedules that we make. */
static void test_published_and_simulated(void **state)
{
    static const struct {
        const char *name;
        int fewest, most; /* chunks */
    } rows[] = { { "naive", 1, 3 },       { "gpipe", 1, 3 }, { "1f1b", 1, 1 },
                 { "interleaved", 2, 3 }, { "zb-h1", 1, 1 }, { "zb-v", 2, 2 } };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int p = 1; p <= 5; p++)
            for (int v = rows[i].fewest; v <= rows[i].most; v++)
                for (int m = 1; m <= 12; m++) {
                    const double published = published_bubble(rows[i].name, p, v, m);
                    if (published < 0 || (strcmp(rows[i].name, "interleaved") == 0 && m % p))
                        continue;
                    Arena arena = { 0 };
                    Timeline t;
                    assert_true(simulate_schedule(&arena, make(&arena, rows[i].name, p, v, m), NULL, &t));
                    if (fabs(t.bubble - published) > 1e-12)
                        fail_msg("%s %d %d %d: bubble %.6f, published %.6f", rows[i].name, p, v, m, t.bubble,
                                 published);
                    arena_free(&arena);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_1f1b),       cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_zb_v),       cmocka_unit_test(test_no_time),
        cmocka_unit_test(test_tick_steps), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_published),  cmocka_unit_test(test_published_and_simulated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
