/* messages.c -- messages between two ranks, run by the runtime over a transport (COMM): in both directions at once, and
 * beside collectives.  Each case waits forever, until the time-out ends it, if one message waits for another that it
 * need not wait for.  Usage: mpirun -n 4 messages; prints the number of tensors that have come. */
#include "device.h"
#include "mesh/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ALONG_A, ALONG_B, SHORT, SUM, COUNT };  /* collectives */
enum { FEW = 3, MANY = 70000, MESSAGES = 12 }; /* elements */

static RtPiece few = { .outer = 1, .block = FEW }, many = { .outer = 1, .block = MANY };
static const RtCollective collectives[] = {
    [ALONG_A] = { .kind = RT_SEND, .type = RT_F32, .naxes = 1, .axis = { 0 }, .piece = &many, .npieces = 1 },
    [ALONG_B] = { .kind = RT_SEND, .type = RT_F32, .naxes = 1, .axis = { 1 }, .piece = &many, .npieces = 1 },
    [SHORT] = { .kind = RT_SEND, .type = RT_F32, .naxes = 1, .axis = { 0 }, .piece = &few, .npieces = 1 },
    [SUM] = { .kind = RT_ALL_REDUCE, .type = RT_F32, .naxes = 1, .axis = { 1 }, .piece = &many, .npieces = 1 },
};
static Rt rt;
static float to[MESSAGES][MANY], from[MESSAGES][MANY], sum[MANY];
static int compared;

static float element(int sender, int number, int at) { return (float)((at * 7 + number * 31 + sender * 101) % 4096); }

static void fill(int number)
{
    for (int i = 0; i < MANY; i++)
        to[number][i] = element(rt.rank, number, i);
}

static void compare(const float *found, int count, int sender, int number)
{
    for (int i = 0; i < count; i++)
        if (found[i] != element(sender, number, i))
            rt_fail("element %d of message %d from rank %d is %g", i, number, sender, (double)found[i]);
    compared++;
}

static int64_t send_to(int id, int number)
{
    return rt_send_start(&rt, id, 1 - rt_coordinate(&rt, id == ALONG_B), to[number]);
}

static int64_t receive_from(int id, int number)
{
    return rt_receive_start(&rt, id, 1 - rt_coordinate(&rt, id == ALONG_B), from[number]);
}

static void pause_for_long(void) { nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL); }

/* Both receive first. */
static void cross(void)
{
    const int64_t in = receive_from(ALONG_A, 0), out = send_to(ALONG_A, 0);
    rt_message_wait(&rt, ALONG_A, out);
    rt_message_wait(&rt, ALONG_A, in);
    compare(from[0], MANY, rt.rank ^ 2, 0);
}

/* Several of two sizes, and waits in the other order. */
static void cross_often(void)
{
    int64_t in[MESSAGES], out[MESSAGES];
    for (int i = 0; i < MESSAGES; i++) {
        const int id = i % 3 == 1 ? SHORT : ALONG_A;
        in[i] = receive_from(id, i);
        if (i == MESSAGES / 2 && rt.rank > 1)
            pause_for_long();
        out[i] = send_to(id, i);
    }
    for (int i = MESSAGES - 1; i >= 0; i--) {
        const int id = i % 3 == 1 ? SHORT : ALONG_A;
        rt_message_wait(&rt, id, in[i]);
        rt_message_wait(&rt, id, out[i]);
        compare(from[i], i % 3 == 1 ? FEW : MANY, rt.rank ^ 2, i);
    }
}

static void check_sum(void)
{
    for (int i = 0; i < MANY; i++)
        if (sum[i] != element(rt.rank & 2, 0, i) + element(rt.rank | 1, 0, i))
            rt_fail("element %d of the sum is %g", i, (double)sum[i]);
    compared++;
}

/* Rank 1 starts its part of the sum of 0 and 1 when a message has come around from 0, which has started its part
 * before: 0 to 2 to 3 to 1. */
static void go_around(void)
{
    const bool is_last = rt.rank == 1;
    if (!is_last)
        rt_collective_start(&rt, SUM, RT_IN(to[0]), RT_OUT(sum));
    if (rt.rank == 0) {
        rt_message_wait(&rt, ALONG_A, send_to(ALONG_A, 0));
    } else if (rt.rank == 2) {
        rt_message_wait(&rt, ALONG_A, receive_from(ALONG_A, 0));
        compare(from[0], MANY, 0, 0);
        rt_message_wait(&rt, ALONG_B, send_to(ALONG_B, 1));
    } else if (rt.rank == 3) {
        rt_message_wait(&rt, ALONG_B, receive_from(ALONG_B, 1));
        compare(from[1], MANY, 2, 1);
        rt_message_wait(&rt, ALONG_A, send_to(ALONG_A, 2));
    } else {
        rt_message_wait(&rt, ALONG_A, receive_from(ALONG_A, 2));
        compare(from[2], MANY, 3, 2);
        rt_collective_start(&rt, SUM, RT_IN(to[0]), RT_OUT(sum));
    }
    rt_collective_wait(&rt, SUM);
    check_sum();
}

/* A message between members of a sum that is under way comes behind it, at whatever time it is started. */
static void keep_order(void)
{
    rt_collective_start(&rt, SUM, RT_IN(to[0]), RT_OUT(sum));
    if (rt.rank % 2)
        pause_for_long();
    const int64_t out = send_to(ALONG_B, 1), in = receive_from(ALONG_B, 1);
    rt_message_wait(&rt, ALONG_B, in);
    rt_message_wait(&rt, ALONG_B, out);
    rt_collective_wait(&rt, SUM);
    compare(from[1], MANY, rt.rank ^ 1, 1);
    check_sum();
}

int main(int argc, char **argv)
{
    static const RtAxis axes[] = { { "a", 2 }, { "b", 2 } };
    RtProgram program = {
        .name = "messages", .axes = axes, .naxes = 2, .comm = &COMM, .collectives = collectives, .ncollectives = COUNT
    };
    rt.program = &program;
    rt_comm_open(&rt, &argc, &argv);
    rt_traffic_open(&rt, 30);
    rt_collectives_open(&rt);
    for (int i = 0; i < MESSAGES; i++)
        fill(i);
    cross();
    cross_often();
    keep_order();
    go_around();
    const int all = (int)rt_comm_sum(&rt, compared);
    rt_comm_close(&rt);
    rt_collectives_close(&rt);
    rt_traffic_close(&rt);
    if (rt.rank == 0)
        printf("%d have come\n", all);
    return 0;
}
