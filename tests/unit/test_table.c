/* test_table.c -- pipeline schedules as tables of text: read, written, and what is said of wrong ones. */
#include "schedule/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    Arena arena;
    Source source;
    Diags diags;
    char *said;
    size_t size;
    PipelineSchedule *s;
} Reading;

static void begin_reading(Reading *r, const char *text, int ranks, int chunks, int micros)
{
    *r = (Reading){ .source = { .path = "pipeline.csv", .text = text, .length = (int)strlen(text) } };
    r->diags = (Diags){ .arena = &r->arena, .source = &r->source, .out = open_memory(&r->said, &r->size) };
    r->s = read_schedule(&r->arena, &r->diags, ranks, chunks, micros);
    fflush(r->diags.out);
    assert_int_equal(!r->s, r->diags.errors > 0);
}

static void end_reading(Reading *r)
{
    arena_free(&r->arena);
    fclose(r->diags.out);
    free(r->said);
}

static PipelineSchedule *make(Arena *arena, const char *name, int ranks, int chunks, int micros)
{
    const char *why, *help;
    PipelineSchedule *s = make_schedule(arena, name, ranks, chunks, micros, &why, &help);
    if (!s)
        fail_msg("%s: %s", name, why);
    return s;
}

static void check_round_trip(const PipelineSchedule *s)
{
    Reading r;
    char *text;
    size_t size;
    const char *why = "";
    FILE *out = open_memory(&text, &size);
    write_schedule(s, out);
    fclose(out);
    begin_reading(&r, text, s->ranks, s->chunks, s->micros);
    if (!r.s || !order_messages(&r.arena, r.s, &why) || !certify_schedule(&r.arena, r.s, &why))
        fail_msg("%s\n%s%s", text, r.said, why);
    assert_true(r.s->placement == s->placement || s->ranks == 1); /* one rank has all stages anyway */
    assert_int_equal(r.s->splits_backward, s->splits_backward);
    for (int rank = 0; rank < s->ranks; rank++) {
        assert_int_equal(r.s->nactions[rank], s->nactions[rank]);
        for (int i = 0; i < s->nactions[rank]; i++)
            assert_string_equal(action_text(&r.arena, r.s->action[rank][i]), action_text(&r.arena, s->action[rank][i]));
    }
    end_reading(&r);
    free(text);
}

static void test_round_trip(void **state)
{
    static const struct {
        const char *name;
        int chunks;
    } cases[] = { { "naive", 1 },       { "naive", 2 },       { "gpipe", 1 }, { "gpipe", 3 }, { "1f1b", 1 },
                  { "interleaved", 2 }, { "interleaved", 4 }, { "zb-h1", 1 }, { "zb-v", 2 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int ranks = 1; ranks <= 4; ranks++) {
            Arena arena = { 0 };
            check_round_trip(make(&arena, cases[i].name, ranks, cases[i].chunks, 2 * ranks));
            arena_free(&arena);
        }
}

/* Tables of 2 ranks with 1 chunk and 2 micro-batches; NULL: a good one. */
static void test_tables(void **state)
{
    static const struct {
        const char *text, *said, *help;
    } cases[] = {
        { "F0.0,F0.1,B0.0,B0.1\nF1.0,B1.0,F1.1,B1.1\n", NULL, NULL },
        { "# by hand\r\n\n F0.0 ,\tF0.1,,,B0.0,,B0.1 # rank 0\r\n,F1.0,B1.0,F1.1,B1.1", NULL, NULL },
        { "F0.0,F0.1,B0.0,B0.1\nF1.0,B1.0,X1.1,B1.1\n", "pipeline.csv:2:11: error: this is no action",
          "F, B or W, then the stage" },
        { "F0.0,F01,B0.0,B0.1\nF1.0,B1.0,F1.1,B1.1\n", "pipeline.csv:1:6: error: this is no action",
          "F, B or W, then the stage" },
        { "F0.0,F0.,B0.0,B0.1\nF1.0,B1.0,F1.1,B1.1\n", "pipeline.csv:1:6: error: this is no action",
          "F, B or W, then the stage" },
        { "F0.0,F0.1,B0.0,B0.1\nF1.0,B1.0,F1.1,B1.1x\n", "pipeline.csv:2:16: error: this is no action",
          "F, B or W, then the stage" },
        { "F0.0,F0.1 B0.0,B0.1\nF1.0,B1.0,F1.1,B1.1\n", "pipeline.csv:1:6: error: this is no action",
          "F, B or W, then the stage" },
        { "F0.0,F0.1,B0.0,F-1.1\nF1.0,B1.0,F1.1,B1.1\n", "pipeline.csv:1:16: error: this is no action",
          "F, B or W, then the stage" },
        { "F0.0,F0.1,B0.0,B0.1\nF1.0,B2.0,F1.1,B1.1\n", "pipeline.csv:2:6: error: there is no stage 2",
          "2 ranks with 1 chunk each have the stages 0 to 1" },
        { "F0.0,F0.2,B0.0,B0.1\nF1.0,B1.0,F1.1,B1.1\n", "pipeline.csv:1:6: error: there is no micro-batch 2",
          "numbered from 0 to 1" },
        { "F0.0,F0.99999999999,B0.0,B0.1\nF1.0,B1.0,F1.1,B1.1\n", "pipeline.csv:1:6: error: there is no micro-batch",
          "" },
        { "F0.0,F0.1,B0.0\nF1.0,B1.0,F1.1,B1.1\n", "pipeline.csv:1:1: error: rank 0 lacks B0.1\n", "needs F and B" },
        { "F0.0,F0.1,B0.0,B0.1\n\n  F1.0\n", "pipeline.csv:3:3: error: rank 1 lacks F1.1, and 2 more\n", "" },
        { "F0.0,F0.1,B0.0,B0.1,W0.0\nF1.0,B1.0,F1.1,B1.1\n", "pipeline.csv:1:1: error: rank 0 lacks W0.1\n",
          "W for all, or for none" },
        { "F0.0,F0.1,B0.0,B0.1,F0.1\nF1.0,B1.0,F1.1,B1.1\n", "pipeline.csv:1:21: error: rank 0 does F0.1 a second time",
          "remove one of the cells" },
        { "F0.0,F0.1,B0.0,B0.1\nF1.0,B1.0,F1.1,B0.1\n",
          "pipeline.csv:2:16: error: B0.1 is in the line of rank 1, but stage 0 is on rank 0",
          "move it to the line of rank 0" },
        { "F0.0,F0.1,B0.0,B0.1\n", "pipeline.csv:1:1: error: 1 line of actions for 2 ranks", "a line for each rank" },
        { "", "pipeline.csv:1:1: error: 0 lines of actions for 2 ranks", "a line for each rank" },
        { "F0.0,F0.1,B0.0,B0.1\nF1.0,B1.0,F1.1,B1.1\nF0.0\nF0.0\n",
          "pipeline.csv:3:1: error: 4 lines of actions for 2 ranks", "a line for each rank" },
        { "F0.0,F0.1,B0.0,B0.1\nB1.0,F1.0,F1.1,B1.1\n",
          "pipeline.csv:2:1: error: ranks wait for each other forever: rank 1 waits before B1.0 for F1.0 of rank 1\n",
          "" },
        { "F0.0,B0.0,F0.1,B0.1\nF1.0,F1.1,B1.0,B1.1\n",
          "rank 0 waits before B0.0 for B1.0 of rank 1, rank 1 waits before F1.1 for F0.1 of rank 0\n",
          "let one of these ranks do first" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Reading r;
        begin_reading(&r, cases[i].text, 2, 1, 2);
        if (cases[i].said ? !strstr(r.said, cases[i].said) || !strstr(r.said, cases[i].help) : !r.s)
            fail_msg("case %zu: %s", i, r.said);
        end_reading(&r);
    }
}

/* A circle that no reader of tables has refused, and counts that no table can have. */
static void test_impossible(void **state)
{
    Reading r;
    const char *why;
    begin_reading(&r, "F0.0", 2, -1, 2);
    assert_non_null(strstr(r.said, "chunks = -1"));
    PipelineSchedule *s = make(&r.arena, "1f1b", 2, 1, 2);
    s->action[1][0] = (Action){ BACKWARD_ACTION, 1, 0 };
    s->action[1][1] = (Action){ FORWARD_ACTION, 1, 0 };
    assert_false(order_messages(&r.arena, s, &why));
    assert_string_equal(why, "ranks wait for each other forever: rank 1 waits before B1.0 for F1.0 of rank 1");
    end_reading(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_round_trip), cmocka_unit_test(test_tables),
                                        cmocka_unit_test(test_impossible) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
