/* tcp_control.c -- what ranks tell each other beside the messages: calls and answers, the last word, the end.
 *
 * A thread of its own reads these connections, so that a rank that dies or ends all is noticed at once, whatever the
 * other threads do.  But calls are answered by rt_control_listen, in the thread that waits for messages: an answer says
 * that this thread is alive.  A rank that ends all stays until the others have gone, and kills those on its machine
 * that are stuck; whoever is ended by it passes the word on before it closes its connections, so that nobody takes it
 * for dead. */
#include "tcp.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

typedef struct {
    RtPeer peer;
    unsigned char got[sizeof(RtFrame)];                         /* of the next frame */
    size_t count;                                               /* bytes of it */
    bool has_called, has_answered, has_word, has_left, is_gone; /* left: said goodbye; gone: the connection is closed */
} Link;

static struct {
    int own, count;
    Link *link;
    int wake; /* tells the thread that all is over */
    bool is_open, is_mourning, is_ending;
    pthread_t thread;
    pthread_mutex_t lock; /* of all of it */
} control = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* What a thread of its own is told. */
typedef struct {
    int rank, reason; /* mourning: who, and errno; ending: the status */
} Errand;

/* --- Sending --------------------------------------------------------------------------------------- */

/* Frames are few and short: where there is no room for one, the other has read none for very long, and does not answer
 * anyway. */
static void send_frame(Link *link, RtFrameKind kind, int value)
{
    RtFrame frame = { (int32_t)kind, value };
    if (!link->is_gone && link->peer.control >= 0)
        send(link->peer.control, &frame, sizeof frame, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void send_to_all(RtFrameKind kind, int value)
{
    for (int q = 0; q < control.count; q++)
        send_frame(&control.link[q], kind, value);
}

/* --- Ending all ------------------------------------------------------------------------------------ */

static void rest(void) { nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL); }

static void await_all(bool is_so(const Link *), double seconds)
{
    for (double begin = rt_seconds();; rest()) {
        int count = 0;
        pthread_mutex_lock(&control.lock);
        for (int q = 0; q < control.count; q++)
            count += q == control.own || is_so(&control.link[q]);
        pthread_mutex_unlock(&control.lock);
        if (count == control.count || rt_seconds() - begin > seconds)
            return;
    }
}

static bool is_gone(const Link *link) { return link->is_gone; }
static bool has_left(const Link *link) { return link->has_left || link->is_gone; }

static bool is_neighbour(int rank)
{
    const RtProcess *own = &control.link[control.own].peer.process, *other = &control.link[rank].peer.process;
    return own->process_space == other->process_space;
}

/* Waits for the others to end, and kills neighbours that do not: their connections are open, so the numbers of their
 * processes are still theirs. */
static _Noreturn void end_neighbours(int status)
{
    enum { SECONDS = 2 };
    await_all(is_gone, SECONDS);
    pthread_mutex_lock(&control.lock);
    for (int q = 0; q < control.count; q++)
        if (q != control.own && !control.link[q].is_gone && is_neighbour(q))
            kill((pid_t)control.link[q].peer.process.process, SIGKILL);
    _Exit(status);
}

/* With the lock.  False where this rank ends already. */
static bool pass_on(int status)
{
    if (control.is_ending)
        return false;
    control.is_ending = true;
    send_to_all(RT_FRAME_ABORT, status);
    for (int q = 0; q < control.count; q++)
        if (q != control.own)
            shutdown(control.link[q].peer.control, SHUT_WR);
    return true;
}

_Noreturn void rt_control_abort(int status)
{
    pthread_mutex_lock(&control.lock);
    bool is_first = control.is_open && pass_on(status);
    bool is_ending = control.is_ending;
    pthread_mutex_unlock(&control.lock);
    if (is_first)
        end_neighbours(status);
    while (is_ending) /* another thread does it */
        rest();
    _Exit(status);
}

/* --- A thread for what takes time -------------------------------------------------------------------- */

static void run_errand(void *run(void *), int rank, int reason)
{
    pthread_t thread;
    Errand *errand = rt_allocate(1, sizeof *errand);
    *errand = (Errand){ rank, reason };
    if (pthread_create(&thread, NULL, run, errand))
        _Exit(RT_EXIT_ERROR);
    pthread_detach(thread);
}

static void *end_for_another(void *argument)
{
    end_neighbours(((Errand *)argument)->reason);
    return NULL;
}

/* Gives the word of another that ends all a moment to come: then this is no news. */
static void *mourn(void *argument)
{
    const Errand *errand = argument;
    const RtProcess *process = &control.link[errand->rank].peer.process;
    nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
    rt_fail(
        "rank %d (process %lld on %.63s) has gone without a word (%s): it was killed, ran out of memory or crashed, or "
        "its machine or network failed: look at what it or its machine has written",
        errand->rank, (long long)process->process, process->host,
        errand->reason ? strerror(errand->reason) : "its connections are closed");
}

/* With the lock. */
static void begin_mourning(int rank, int reason)
{
    if (control.is_mourning || control.is_ending || !control.is_open)
        return;
    control.is_mourning = true;
    run_errand(mourn, rank, reason);
}

void rt_control_mourn(int rank, int reason)
{
    pthread_mutex_lock(&control.lock);
    if (!control.link[rank].has_left)
        begin_mourning(rank, reason);
    pthread_mutex_unlock(&control.lock);
}

/* --- Receiving ------------------------------------------------------------------------------------- */

/* The first of its machine takes care of it, unless the one who ends all is there. */
static bool takes_care(int of)
{
    if (is_neighbour(of))
        return false;
    for (int q = 0; q < control.own; q++)
        if (is_neighbour(q))
            return false;
    return true;
}

static void be_ended(int by, int status)
{
    if (!pass_on(status))
        return;
    if (!takes_care(by))
        _Exit(status);
    run_errand(end_for_another, by, status);
}

static void handle(int rank, RtFrame frame)
{
    Link *link = &control.link[rank];
    switch ((RtFrameKind)frame.kind) {
    case RT_FRAME_ABORT:
        be_ended(rank, frame.value);
        break;
    case RT_FRAME_CALL:
        link->has_called = true;
        break;
    case RT_FRAME_ANSWER:
        link->has_answered = true;
        break;
    case RT_FRAME_WORD:
        link->has_word = true;
        break;
    case RT_FRAME_BYE:
        link->has_left = true;
        break;
    case RT_FRAME_TABLE:
    case RT_FRAME_STRANGER:
    default:
        begin_mourning(rank, EBADMSG);
    }
}

/* One that has said that it ends all, and then is gone, has ended all. */
static void lose(int rank, int reason)
{
    Link *link = &control.link[rank];
    link->is_gone = true;
    if (link->has_word && !link->has_left)
        be_ended(rank, RT_EXIT_ERROR);
    else if (!link->has_left)
        begin_mourning(rank, reason);
}

static void receive(int rank)
{
    Link *link = &control.link[rank];
    while (!link->is_gone) {
        ssize_t some = recv(link->peer.control, link->got + link->count, sizeof link->got - link->count, MSG_DONTWAIT);
        if (some < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (some <= 0) {
            lose(rank, some < 0 ? errno : 0);
            return;
        }
        link->count += (size_t)some;
        if (link->count < sizeof link->got)
            continue;
        RtFrame frame;
        memcpy(&frame, link->got, sizeof frame);
        link->count = 0;
        handle(rank, frame);
    }
}

static void *watch(void *argument)
{
    struct pollfd *ready = argument;
    for (;;) {
        for (int q = 0; q < control.count; q++) {
            bool is_there = q != control.own && !control.link[q].is_gone;
            ready[q] = (struct pollfd){ .fd = is_there ? control.link[q].peer.control : -1, .events = POLLIN };
        }
        ready[control.count] = (struct pollfd){ .fd = control.wake, .events = POLLIN };
        if (poll(ready, (nfds_t)control.count + 1, -1) < 0)
            continue;
        if (ready[control.count].revents)
            break;
        pthread_mutex_lock(&control.lock);
        for (int q = 0; q < control.count; q++)
            if (ready[q].revents)
                receive(q);
        pthread_mutex_unlock(&control.lock);
    }
    free(ready);
    return NULL;
}

/* --- What the runtime calls -------------------------------------------------------------------------- */

void rt_control_call(int rank)
{
    pthread_mutex_lock(&control.lock);
    send_frame(&control.link[rank], RT_FRAME_CALL, 0);
    pthread_mutex_unlock(&control.lock);
}

int rt_control_listen(void)
{
    int answered = -1;
    pthread_mutex_lock(&control.lock);
    for (int q = 0; q < control.count; q++) {
        Link *link = &control.link[q];
        if (link->has_called)
            send_frame(link, RT_FRAME_ANSWER, 0);
        link->has_called = false;
        if (link->has_answered && answered < 0) {
            link->has_answered = false;
            answered = q;
        }
    }
    pthread_mutex_unlock(&control.lock);
    return answered;
}

void rt_control_claim_word(void)
{
    pthread_mutex_lock(&control.lock);
    send_to_all(RT_FRAME_WORD, 0);
    pthread_mutex_unlock(&control.lock);
}

/* Where the end has come already, rank 0 stands for who has brought it. */
int rt_control_hear_claim(void)
{
    pthread_mutex_lock(&control.lock);
    int first = control.is_ending ? 0 : -1;
    for (int q = 0; q < control.count && first < 0; q++)
        first = control.link[q].has_word ? q : -1;
    pthread_mutex_unlock(&control.lock);
    return first;
}

/* Signals are for the threads of the trainer. */
static void start_thread(void)
{
    sigset_t all, before;
    struct pollfd *ready = rt_allocate(control.count + 1, sizeof *ready);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int status = pthread_create(&control.thread, NULL, watch, ready);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status)
        rt_fail("cannot start the thread that watches the other ranks: %s", strerror(status));
}

void rt_control_open(int rank, int ranks, const RtPeer peer[])
{
    control.own = rank;
    control.count = ranks;
    control.link = rt_allocate(ranks, sizeof *control.link);
    for (int q = 0; q < ranks; q++)
        control.link[q].peer = peer[q];
    control.wake = eventfd(0, EFD_CLOEXEC);
    if (control.wake < 0)
        rt_fail("cannot make an eventfd: %s", strerror(errno));
    control.is_open = true;
    start_thread();
}

/* All have come to their end; who closes first waits until the others know that it is one. */
void rt_control_close(void)
{
    enum { SECONDS = 10 };
    pthread_mutex_lock(&control.lock);
    control.is_open = false;
    send_to_all(RT_FRAME_BYE, 0);
    pthread_mutex_unlock(&control.lock);
    await_all(has_left, SECONDS);
    if (write(control.wake, &(uint64_t){ 1 }, sizeof(uint64_t)) != sizeof(uint64_t))
        return; /* the thread ends with the process */
    pthread_join(control.thread, NULL);
    for (int q = 0; q < control.count; q++)
        if (q != control.own)
            close(control.link[q].peer.control);
    close(control.wake);
    free(control.link);
    control.link = NULL;
    control.count = 0;
}
