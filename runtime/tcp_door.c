/* tcp_door.c -- lets ranks in that call, and drops all others.
 *
 * Whoever connects must say a whole RtHello within a few seconds, with the magic word from its first byte on.  What a
 * hello says is judged by tcp_meet.c; here it is bytes of a known length. */
#include "tcp_meet.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <poll.h>
#include <unistd.h>

enum { PATIENCE = 10, MOST_CALLERS = 1024 }; /* seconds; connections that have said nothing whole yet */

static void drop(RtDoor *door, int i, const char *why)
{
    RtAddress from = rt_socket_peer(door->caller[i].socket);
    if (why)
        rt_note("note: a connection from %s %s: dropped, since it is no rank", rt_socket_text(&from).text, why);
    close(door->caller[i].socket);
    door->caller[i] = door->caller[--door->callers];
}

static void let_in(RtDoor *door)
{
    int socket;
    while ((socket = accept4(door->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (door->callers == MOST_CALLERS)
            drop(door, 0, "has others behind it");
        door->caller[door->callers++] = (RtCaller){ .socket = socket, .since = rt_seconds() };
    }
}

/* Reads on; true when the hello is whole.  A caller that is none is dropped. */
static bool hear(RtDoor *door, int i)
{
    RtCaller *caller = &door->caller[i];
    ssize_t some =
        recv(caller->socket, (char *)&caller->hello + caller->count, sizeof caller->hello - caller->count, 0);
    if (some < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (some <= 0) {
        drop(door, i, "said no word and left");
        return false;
    }
    caller->count += (size_t)some;
    size_t seen = caller->count < sizeof caller->hello.magic ? caller->count : sizeof caller->hello.magic;
    if (memcmp(caller->hello.magic, RT_HELLO_MAGIC, seen)) {
        drop(door, i, "says something else");
        return false;
    }
    return caller->count == sizeof caller->hello;
}

static void drop_the_silent(RtDoor *door)
{
    for (int i = door->callers - 1; i >= 0; i--)
        if (rt_seconds() - door->caller[i].since > PATIENCE)
            drop(door, i, "says nothing");
}

void rt_door_open(RtDoor *door, int listener)
{
    *door = (RtDoor){ .listener = listener, .caller = rt_allocate(MOST_CALLERS, sizeof *door->caller) };
}

void rt_door_close(RtDoor *door)
{
    while (door->callers > 0)
        drop(door, door->callers - 1, NULL);
    free(door->caller);
    close(door->listener);
}

int rt_door_fill(const RtDoor *door, struct pollfd ready[])
{
    ready[0] = (struct pollfd){ .fd = door->listener, .events = POLLIN };
    for (int i = 0; i < door->callers; i++)
        ready[1 + i] = (struct pollfd){ .fd = door->caller[i].socket, .events = POLLIN };
    return 1 + door->callers;
}

int rt_door_answer(RtDoor *door, RtHello *hello)
{
    drop_the_silent(door);
    let_in(door);
    for (int i = door->callers - 1; i >= 0; i--)
        if (hear(door, i)) {
            int socket = door->caller[i].socket;
            *hello = door->caller[i].hello;
            door->caller[i] = door->caller[--door->callers];
            return socket;
        }
    return -1;
}
