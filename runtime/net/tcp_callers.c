/* tcp_callers.c -- incoming connections until they have proved to be ranks.
 *
 * Anybody may connect, say nothing, say it slowly, or come a thousand times.  So all are read at the same time, each
 * has a few seconds for its handshake, and there are at most RT_MOST_CALLERS: for a new one, the oldest of those that
 * have said least is dropped.  A rank that is dropped so connects again (tcp_rendezvous.c). */
#include "tcp.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

/* --- Dropping ---------------------------------------------------------------------------------------- */

static void take_out(RtCallers *callers, int i)
{
    memmove(&callers->at[i], &callers->at[i + 1], (size_t)(callers->count - i - 1) * sizeof *callers->at);
    callers->count--;
}

void rt_callers_note(RtCallers *callers, const char *who, const char *why)
{
    enum { MOST = 20 };
    if (callers->noted < MOST)
        rt_note("note: %s %s: dropped", who, why);
    if (callers->noted == MOST)
        rt_note("note: more connections are dropped; they are not listed");
    callers->noted++;
}

static void drop(RtCallers *callers, int i, const char *why)
{
    int connection = callers->at[i].handshake.socket;
    RtAddress from = rt_socket_peer(connection);
    char *address = rt_address_text(&from), *who = rt_text("a connection from %s", address);
    rt_callers_note(callers, who, why);
    free(who);
    free(address);
    close(connection);
    take_out(callers, i);
}

/* False if there is none. */
static bool drop_most_silent(RtCallers *callers)
{
    int chosen = -1;
    for (int i = 0; i < callers->count; i++)
        if (!callers->at[i].is_proven && (chosen < 0 || (callers->at[chosen].handshake.step > RT_STEP_HELLO &&
                                                         callers->at[i].handshake.step == RT_STEP_HELLO)))
            chosen = i;
    if (chosen >= 0)
        drop(callers, chosen, "does not identify itself");
    return chosen >= 0;
}

void rt_callers_close(RtCallers *callers)
{
    for (int i = 0; i < callers->count; i++)
        close(callers->at[i].handshake.socket);
    callers->count = 0;
}

/* --- Accepting and reading --------------------------------------------------------------------------- */

static bool has_room_after(RtCallers *callers, int reason)
{
    if (reason != EMFILE && reason != ENFILE && reason != ENOBUFS && reason != ENOMEM)
        return reason == ECONNABORTED || reason == EINTR; /* else no other connection has come */
    if (!drop_most_silent(callers))
        rt_fail("cannot accept a connection: %s; each rank needs more than two open files for each other rank (ulimit "
                "-n)",
                strerror(reason));
    return true;
}

/* A part of those that have come: those that are accepted are read first, so that none is dropped unread. */
static void accept_some(RtCallers *callers)
{
    enum { SOME = RT_MOST_CALLERS / 4 };
    const double patience = 5; /* seconds */
    for (int i = 0; i < SOME; i++) {
        int connection = rt_socket_accept(callers->listener);
        if (connection < 0) {
            if (has_room_after(callers, errno))
                continue;
            return;
        }
        if (callers->count == RT_MOST_CALLERS && !drop_most_silent(callers)) {
            close(connection);
            return;
        }
        callers->at[callers->count].handshake = rt_handshake_answer(connection, callers->own);
        callers->at[callers->count].until = rt_seconds() + patience;
        callers->at[callers->count++].is_proven = false;
    }
}

static const char *reason_of(RtShakeState state, const RtHandshake *h)
{
    return state == RT_SHAKE_FOREIGN ? "does not use the protocol of ranks"
           : state == RT_SHAKE_FALSE ? rt_verdict_text(h->verdict)
                                     : "does not identify itself";
}

/* Drops one, or passes on to the next; returns the index of that. */
static int progress(RtCallers *callers, int i, const RtKeys *keys)
{
    RtHandshake *h = &callers->at[i].handshake;
    if (callers->at[i].is_proven)
        return i + 1;
    RtShakeState state = rt_handshake_progress(h, keys);
    callers->at[i].is_proven = state == RT_SHAKE_PROVEN;
    if (state == RT_SHAKE_PROVEN || (state == RT_SHAKE_WAITS && rt_seconds() < callers->at[i].until))
        return i + 1;
    drop(callers, i, reason_of(state, h));
    return i;
}

void rt_callers_progress(RtCallers *callers, const RtKeys *keys)
{
    accept_some(callers);
    for (int i = 0; i < callers->count;)
        i = progress(callers, i, keys);
}

bool rt_callers_take(RtCallers *callers, RtHandshake *proven)
{
    for (int i = 0; i < callers->count; i++)
        if (callers->at[i].is_proven) {
            *proven = callers->at[i].handshake;
            take_out(callers, i);
            return true;
        }
    return false;
}

int rt_callers_poll(const RtCallers *callers, struct pollfd list[], double *until)
{
    int count = 0;
    list[count++] = (struct pollfd){ .fd = callers->listener, .events = POLLIN };
    for (int i = 0; i < callers->count; i++) {
        list[count++] = (struct pollfd){ .fd = callers->at[i].handshake.socket, .events = POLLIN };
        *until = fmin(*until, callers->at[i].until);
    }
    return count;
}
