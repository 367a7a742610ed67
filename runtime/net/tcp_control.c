/* tcp_control.c -- errors, dead and silent ranks, the end of a run.
 *
 * Every two ranks have a separate connection for this.  A dedicated thread reads these connections as soon as they are
 * made, so that a rank that dies or ends all ranks is noticed at once, independent of other threads.  But calls are
 * answered by rt_control_listen, in the thread that waits for messages: an answer means that this thread is alive.
 *
 * A leaving rank sends the reason (BYE or ABORT), closes its side of each connection, and stays until the others have
 * done the same, so that it is not taken for dead.  A rank that receives ABORT forwards it to all others.  A rank that
 * does not leave in time after ABORT is stuck: the ranks on its machine kill it, if the kernel confirms which process
 * it is (tcp_peer.c), or else say which it is. */
#include "tcp.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

typedef struct {
    atomic_bool has_sent[RT_FRAME_KINDS];
    atomic_bool is_made, is_connected; /* the latter until the peer has closed its side */
    RtFrame frame;                     /* as far as it has been received */
    size_t received;                   /* bytes of it */
} Link;

static struct {
    int own, count;
    const RtPeer *peer;
    Link *link;
    pthread_t thread;
    atomic_bool has_left, is_mourned; /* this rank has left; another rank is lost */
    atomic_int status;                /* exit status of all ranks; 0: not ending */
    _Atomic double until;             /* time until which it waits for others to leave */
    int lost, reason;                 /* that rank, and errno */
} control;

/* --- Sending --------------------------------------------------------------------------------------- */

/* Frames are few and short: if there is no room for one, the peer has not read for very long. */
static void send_frame(int rank, RtFrameKind kind, int value)
{
    RtFrame frame = { (int32_t)kind, value };
    if (control.link[rank].is_made)
        send(control.peer[rank].control, &frame, sizeof frame, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* --- The end ---------------------------------------------------------------------------------------- */

/* Also to a peer that has said it first: it waits for this. */
static void say_goodbye(int rank)
{
    if (!control.link[rank].is_made)
        return;
    send_frame(rank, control.status ? RT_FRAME_ABORT : RT_FRAME_BYE, control.status);
    shutdown(control.peer[rank].control, SHUT_WR);
}

/* `status`: all ranks end with it; 0: this rank has finished.  Only the first call counts. */
static void leave(int status)
{
    enum { PATIENCE = 5, PATIENCE_AT_CLOSE = 10 }; /* seconds */
    atomic_compare_exchange_strong(&control.status, &(int){ 0 }, status);
    if (atomic_exchange(&control.has_left, true))
        return;
    control.until = rt_seconds() + (status ? PATIENCE : PATIENCE_AT_CLOSE);
    for (int q = 0; q < control.count; q++)
        say_goodbye(q);
}

/* The control thread ends the process, if it still runs. */
_Noreturn void rt_control_abort(int status)
{
    leave(status);
    while (control.count > 0)
        pause();
    _Exit(status);
}

/* One rank, the lowest that is not stuck itself, says what all see; past the rank's own messages, which may be locked.
 */
static void tell_stuck(int rank)
{
    for (int q = 0; q < control.own; q++)
        if (!control.link[q].is_connected)
            return;
    char *text = rt_process_text(&control.peer[rank].process);
    dprintf(STDERR_FILENO, "note: rank %d (%s) does not end: end it there (kill -9 %lld)\n", rank, text,
            (long long)control.peer[rank].process.pid);
    free(text);
}

static void end_those_stuck(void)
{
    for (int q = 0; q < control.count; q++)
        if (control.link[q].is_connected && !rt_peer_kill(control.peer[q].control, &control.peer[q].process))
            tell_stuck(q);
}

/* Waits a moment for an ABORT from another rank: then the loss need not be reported. */
static void *mourn(void *unused)
{
    (void)unused;
    nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
    rt_fail("rank %d (%s) ended without a message (%s): it was killed, ran out of memory or crashed, or its machine or "
            "network failed: see its messages and the logs of its machine",
            control.lost, rt_process_text(&control.peer[control.lost].process),
            control.reason ? strerror(control.reason) : "its connections are closed");
}

void rt_control_lose(int rank, int reason)
{
    pthread_t thread;
    if (control.has_left || control.link[rank].has_sent[RT_FRAME_BYE] || atomic_exchange(&control.is_mourned, true))
        return;
    control.lost = rank;
    control.reason = reason;
    if (pthread_create(&thread, NULL, mourn, NULL))
        rt_control_abort(RT_EXIT_ERROR);
    pthread_detach(thread);
}

/* --- Receiving ------------------------------------------------------------------------------------- */

/* If the lost rank had announced a final error message, it has printed it. */
static void lose_link(int rank, int reason)
{
    Link *link = &control.link[rank];
    link->is_connected = false;
    if (link->has_sent[RT_FRAME_CLAIM] && !link->has_sent[RT_FRAME_BYE])
        leave(RT_EXIT_ERROR);
    else
        rt_control_lose(rank, reason);
}

/* 0 would be success, and a status has eight bits. */
int rt_control_status(RtFrame frame) { return frame.value > 0 && frame.value < 256 ? frame.value : RT_EXIT_ERROR; }

/* False if it is none that a rank sends after the rendezvous. */
static bool take_frame(int rank, RtFrame frame)
{
    if (frame.kind <= RT_FRAME_TABLE || frame.kind >= RT_FRAME_KINDS)
        return false;
    control.link[rank].has_sent[frame.kind] = true;
    if (frame.kind == RT_FRAME_ABORT)
        leave(rt_control_status(frame));
    return true;
}

/* Reads what has come of a frame. */
static void receive(int rank)
{
    Link *link = &control.link[rank];
    char *at = (char *)&link->frame + link->received;
    ssize_t some = recv(control.peer[rank].control, at, sizeof link->frame - link->received, MSG_DONTWAIT);
    if (some < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (some <= 0) {
        lose_link(rank, some ? errno : 0);
        return;
    }
    link->received += (size_t)some;
    if (link->received < sizeof link->frame)
        return;
    link->received = 0;
    if (!take_frame(rank, link->frame))
        lose_link(rank, EPROTO);
}

/* Fills the poll list; returns the number of connected ranks. */
static int fill(struct pollfd ready[])
{
    int connected = 0;
    for (int q = 0; q < control.count; q++) {
        bool is_connected = control.link[q].is_connected;
        ready[q] = (struct pollfd){ .fd = is_connected ? control.peer[q].control : -1, .events = POLLIN };
        connected += is_connected;
    }
    return connected;
}

/* Reads one frame of each rank that has sent one within `patience` (ms); returns how many have. */
static int receive_ready(struct pollfd ready[], int patience)
{
    int count = poll(ready, (nfds_t)control.count, patience);
    for (int q = 0; count > 0 && q < control.count; q++)
        if (ready[q].revents)
            receive(q);
    return count;
}

/* Runs until this rank and all others have left, or have been given up: if this thread had to wait for a processor, not
 * before it has read what they sent meanwhile. */
static void *watch(void *argument)
{
    enum { TICK = 100 }; /* ms: interval for checking changes by other threads */
    struct pollfd *ready = argument;
    while (fill(ready) > 0 || !control.has_left)
        if (rt_seconds() < control.until)
            receive_ready(ready, TICK);
        else if (receive_ready(ready, 0) <= 0)
            break;
    free(ready);
    if (!control.status)
        return NULL;
    end_those_stuck();
    _Exit(control.status);
}

/* --- What the runtime calls -------------------------------------------------------------------------- */

void rt_control_call(int rank) { send_frame(rank, RT_FRAME_CALL, 0); }

int rt_control_listen(void)
{
    int answered = -1;
    for (int q = 0; q < control.count; q++) {
        Link *link = &control.link[q];
        if (atomic_exchange(&link->has_sent[RT_FRAME_CALL], false))
            send_frame(q, RT_FRAME_ANSWER, 0);
        if (answered < 0 && atomic_exchange(&link->has_sent[RT_FRAME_ANSWER], false))
            answered = q;
    }
    return answered;
}

void rt_control_claim_word(void)
{
    for (int q = 0; q < control.count; q++)
        send_frame(q, RT_FRAME_CLAIM, 0);
}

/* If all ranks are already ending, returns rank 0. */
int rt_control_hear_claim(void)
{
    if (control.status)
        return 0;
    for (int q = 0; q < control.count; q++)
        if (control.link[q].has_sent[RT_FRAME_CLAIM])
            return q;
    return -1;
}

/* Signals are handled by the trainer's other threads. */
void rt_control_open(int rank, int ranks, const RtPeer peer[])
{
    sigset_t all, before;
    control.own = rank;
    control.count = ranks;
    control.peer = peer;
    control.link = rt_allocate(ranks, sizeof *control.link);
    control.until = INFINITY;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int status = pthread_create(&control.thread, NULL, watch, rt_allocate(ranks, sizeof(struct pollfd)));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status)
        rt_fail("cannot start the thread that watches the other ranks: %s", strerror(status));
}

void rt_control_watch(int rank)
{
    control.link[rank].is_connected = true;
    control.link[rank].is_made = true;
    if (control.has_left)
        say_goodbye(rank);
}

/* All ranks have finished. */
void rt_control_close(void)
{
    leave(0);
    pthread_join(control.thread, NULL);
    free(control.link);
    control.count = 0;
}
