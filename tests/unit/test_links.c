/* test_links.c -- messages that share links, against times that are worked out by hand. */
#include "cost/links.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { DP = 1, TP = 2 };

/* When it has arrived, by the number of its item. */
typedef struct {
    double start[8], end[8];
} Seen;

static void note(void *context, const CostItem *item, double start, double end)
{
    Seen *seen = context;
    seen->start[item->id] = start;
    seen->end[item->id] = end;
}

static CostItem message(int id, Axes axes, int link, double seconds)
{
    return (CostItem){ .kind = ITEM_MESSAGE, .id = id, .axes = axes, .link = link, .seconds = seconds };
}

typedef struct {
    Arena arena;
    Seen seen;
    Links links;
} Case;

static void begin(Case *c)
{
    *c = (Case){ 0 };
    c->links = (Links){ .arrived = note, .context = &c->seen, .arena = &c->arena };
}

static void end(Case *c)
{
    while (c->links.count)
        run_until_arrived(&c->links, c->links.flight[0].item);
}

static void near(double x, double expected) { assert_float_equal(x, expected, 1e-12); }

static void test_one_communicator(void **state)
{
    Case c;
    const CostItem a = message(1, DP, WITHIN, 3), b = message(2, DP, WITHIN, 2);
    begin(&c);
    start_message(&c.links, &a, 1);
    start_message(&c.links, &b, 2);
    end(&c);
    near(c.seen.start[1], 1), near(c.seen.end[1], 4);
    near(c.seen.start[2], 4), near(c.seen.end[2], 6);
    arena_free(&c.arena);
}

/* From 2 on both have half: so the second one, which takes 1, ends at 4, and the first one has 1 left. */
static void test_shared_links(void **state)
{
    Case c;
    const CostItem a = message(1, DP, WITHIN, 4), b = message(2, TP, WITHIN, 1);
    begin(&c);
    start_message(&c.links, &a, 0);
    start_message(&c.links, &b, 2);
    run_until_arrived(&c.links, &b);
    near(c.links.now, 4);
    end(&c);
    near(c.seen.end[2], 4);
    near(c.seen.start[1], 0), near(c.seen.end[1], 5);
    arena_free(&c.arena);
}

/* A third of a link each, and one that waits for the first of them. */
static void test_three_and_one_that_waits(void **state)
{
    Case c;
    const CostItem a = message(1, DP, BETWEEN, 1), b = message(2, TP, BETWEEN, 1), d = message(3, DP | TP, BETWEEN, 2),
                   e = message(4, DP, BETWEEN, 1);
    begin(&c);
    start_message(&c.links, &a, 0);
    start_message(&c.links, &b, 0);
    start_message(&c.links, &d, 0);
    start_message(&c.links, &e, 0);
    end(&c);
    near(c.seen.end[1], 3), near(c.seen.end[2], 3);
    near(c.seen.start[4], 3), near(c.seen.end[4], 5), near(c.seen.end[3], 5); /* two halves of 2 */
    arena_free(&c.arena);
}

/* Links of other classes are others; other tiers of memory have one queue for all. */
static void test_other_links(void **state)
{
    Case c;
    const CostItem a = message(1, DP, BETWEEN, 4), b = message(2, TP, WITHIN, 1), d = message(3, DP, TO_TIERS, 2),
                   e = message(4, TP, TO_TIERS, 2);
    begin(&c);
    start_message(&c.links, &a, 0);
    start_message(&c.links, &b, 0);
    start_message(&c.links, &d, 0);
    start_message(&c.links, &e, 0);
    end(&c);
    near(c.seen.end[1], 4), near(c.seen.end[2], 1), near(c.seen.end[3], 2), near(c.seen.end[4], 4);
    arena_free(&c.arena);
}

/* What is under way, is so after a loop's turns that were not run, too. */
static void test_put_off(void **state)
{
    Case c;
    const CostItem a = message(1, DP, WITHIN, 4);
    begin(&c);
    start_message(&c.links, &a, 0);
    run_links(&c.links, 1);
    put_off(&c.links, 10);
    run_links(&c.links, 13);
    near(c.seen.end[1], 0);
    run_until_arrived(&c.links, &a);
    run_until_arrived(&c.links, &a); /* it has arrived */
    near(c.seen.start[1], 10), near(c.seen.end[1], 14);
    arena_free(&c.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_communicator),
        cmocka_unit_test(test_shared_links),
        cmocka_unit_test(test_three_and_one_that_waits),
        cmocka_unit_test(test_other_links),
        cmocka_unit_test(test_put_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
