/* tcp_meet.c -- all ranks meet at rank 0; then every two of them have two connections.
 *
 *   1  each rank connects to rank 0 and says who it is and where it listens itself
 *   2  rank 0 sends all the same table when the last one has come; these connections stay, for control
 *   3  each rank connects to those below it, once for data and, but for rank 0, once for control
 *
 * Whoever finds that the ranks do not belong together says why and tells those it is connected with, who end quietly.
 */
#include "tcp_meet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* --- 1: rank 0 ------------------------------------------------------------------------------------- */

static void leave_port(RtMeeting *m)
{
    char *aside = rt_text("%s.%d", m->launch->file, (int)getpid());
    int file = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool good = file >= 0 && dprintf(file, "%d %s\n", rt_socket_port(&m->master), m->secret.text) > 0;
    if (file < 0 || close(file) || !good || rename(aside, m->launch->file))
        rt_meeting_give_up(
            m, rt_text("cannot write %s, where ranks look for the port of rank 0: %s; give --master HOST:PORT",
                       m->launch->file, strerror(errno)));
    free(aside);
}

/* Is it meant for this machine alone?  A name of the machine may stand for 127.0.1.1 on itself, and not elsewhere. */
static bool is_local_only(const RtLaunch *launch)
{
    return !strncmp(launch->host, "127.", 4) || !strcmp(launch->host, "::1") || !strcmp(launch->host, "localhost");
}

static int backlog_of(const RtLaunch *launch) { return 2 * launch->ranks + 64; }

static void check_address(const RtMeeting *m)
{
    RtAddress any_port = m->master;
    rt_socket_set_port(&any_port, 0);
    int test = rt_socket_listen(&any_port, 1);
    if (test < 0)
        rt_fail("rank 0 runs on %s, and %s is no address of that machine (%s): start it there, or give an address of "
                "rank 0's machine (--master HOST:PORT)",
                m->own.process.host, m->launch->host, strerror(errno));
    close(test);
}

static void listen_as_first(RtMeeting *m)
{
    check_address(m);
    RtAddress at = is_local_only(m->launch) ? m->master : rt_socket_wildcard(m->master.at.ss_family);
    rt_socket_set_port(&at, m->launch->port);
    int listener = rt_socket_listen(&at, backlog_of(m->launch));
    if (listener < 0)
        rt_fail(
            "rank 0 cannot listen at %s: %s; another program has this port, or an earlier run has not ended: choose "
            "another port with --master HOST:PORT",
            rt_socket_text(&at).text, strerror(errno));
    RtAddress got = rt_socket_own(listener);
    rt_socket_set_port(&m->master, rt_socket_port(&got));
    rt_door_open(&m->door, listener);
    if (m->launch->file && !m->secret.is_known)
        m->secret = rt_proof_new_secret(); /* for this user's eyes, as the file is */
    if (m->launch->file)
        leave_port(m);
}

/* Of another run: only it is told. */
static bool is_stranger(const RtMeeting *m, const RtHello *hello)
{
    return hello->kind != RT_HELLO_JOIN || (hello->job && m->own.job && hello->job != m->own.job);
}

static void turn_away(int socket, const RtHello *hello)
{
    char *who = rt_meeting_process_text(&hello->process);
    rt_note("note: %s belongs to another run: turned away", who);
    rt_meeting_send(socket, (RtFrame){ .kind = RT_FRAME_STRANGER });
    close(socket);
    free(who);
}

static void check_joining(RtMeeting *m, const RtHello *hello)
{
    int rank = hello->rank, ranks = m->launch->ranks;
    char *who = rt_meeting_process_text(&hello->process);
    if (hello->program != m->own.program)
        rt_meeting_give_up(
            m, rt_text("rank %d (%s) runs another program than rank 0: start the same file everywhere, or give each "
                       "run a port of its own (--master HOST:PORT)",
                       rank, who));
    if (hello->ranks != ranks)
        rt_meeting_give_up(
            m, rt_text("rank %d (%s) was told that there are %d ranks, and rank 0 that there are %d: tell all the "
                       "same (--ranks)",
                       rank, who, hello->ranks, ranks));
    if (rank < 1 || rank >= ranks || hello->port < 1 || hello->port > UINT16_MAX)
        rt_meeting_give_up(m, rt_text("%s says that it is rank %d of %d, which cannot be", who, rank, ranks));
    if (m->peer[rank].control >= 0)
        rt_meeting_give_up(m, rt_text("%s and %s both say that they are rank %d: number them differently (--rank)",
                                      rt_meeting_process_text(&m->peer[rank].process), who, rank));
    free(who);
}

static RtPlace place_of(const RtHello *hello, int socket)
{
    RtAddress from = rt_socket_peer(socket);
    RtPlace place = { .port = (uint16_t)hello->port, .process = hello->process };
    if (rt_socket_is_loopback(&from))
        return place;
    place.family = from.at.ss_family == AF_INET6 ? 6 : 4;
    if (place.family == 6)
        memcpy(place.address, &((const struct sockaddr_in6 *)&from.at)->sin6_addr, 16);
    else
        memcpy(place.address, &((const struct sockaddr_in *)&from.at)->sin_addr, 4);
    return place;
}

/* Who does not know the secret may be anyone, and what it says counts for nothing. */
static bool has_proof(const RtMeeting *m, int socket, const RtHello *hello)
{
    RtAddress from = rt_socket_peer(socket);
    if (rt_proof_is_good(&m->secret, hello))
        return true;
    rt_note("note: a connection from %s does not know the secret of this run (MPC_SECRET): dropped",
            rt_socket_text(&from).text);
    close(socket);
    return false;
}

static bool admit(RtMeeting *m, RtPlace place[])
{
    RtHello hello;
    int socket = rt_door_answer(&m->door, &hello);
    if (socket < 0 || !has_proof(m, socket, &hello))
        return false;
    if (is_stranger(m, &hello)) {
        turn_away(socket, &hello);
        return false;
    }
    m->newcomer = socket;
    check_joining(m, &hello);
    m->newcomer = -1;
    m->peer[hello.rank].control = socket;
    m->peer[hello.rank].process = hello.process;
    place[hello.rank] = place_of(&hello, socket);
    return true;
}

static void send_table(RtMeeting *m, const RtPlace place[])
{
    int ranks = m->launch->ranks;
    RtFrame head = { RT_FRAME_TABLE, ranks };
    for (int q = 1; q < ranks; q++) {
        int to = m->peer[q].control;
        if (!rt_socket_write(to, &head, sizeof head, m->until) ||
            !rt_socket_write(to, &m->own.key, sizeof m->own.key, m->until) ||
            !rt_socket_write(to, place, (size_t)ranks * sizeof *place, m->until))
            rt_meeting_mourn(m, q);
    }
}

static void gather_ranks(RtMeeting *m)
{
    enum { QUIET = 15 }; /* seconds that it waits without a word */
    RtPlace *place = rt_allocate(m->launch->ranks, sizeof *place);
    bool has_noted = false;
    place[0].process = m->own.process;
    for (int joined = 1; joined < m->launch->ranks;) {
        if (admit(m, place)) {
            joined++;
            continue;
        }
        if (rt_seconds() > m->until)
            rt_meeting_give_up(
                m, rt_text("rank 0 has waited %.0f s at %s for rank %s of %d: start it, or look why it has ended; "
                           "--timeout SECONDS waits longer",
                           m->launch->timeout, rt_socket_text(&m->master).text, rt_meeting_missing(m, false, 1),
                           m->launch->ranks));
        if (!has_noted && rt_seconds() - m->begin > QUIET) {
            rt_note("rank 0 waits at %s for rank %s of %d", rt_socket_text(&m->master).text,
                    rt_meeting_missing(m, false, 1), m->launch->ranks);
            has_noted = true;
        }
        rt_meeting_wait(m);
    }
    if (m->launch->file)
        unlink(m->launch->file);
    m->until = rt_seconds() + m->launch->timeout;
    send_table(m, place);
    free(place);
}

/* --- 1: the others --------------------------------------------------------------------------------- */

/* The port that rank 0 has written down, or 0; and the secret behind it, if there is one. */
static int port_left(const char *path, RtSecret *secret)
{
    int port = 0;
    char text[sizeof secret->text] = "";
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    int fields = fscanf(file, "%d %32s", &port, text);
    if (fields < 1 || port < 1 || port > UINT16_MAX)
        port = 0;
    if (fields == 2)
        *secret = rt_proof_secret(text);
    fclose(file);
    return port;
}

/* Rank 0 may start later, or be behind a network that comes up later. */
static void find_first(RtMeeting *m)
{
    const RtLaunch *launch = m->launch;
    int reason = ENOENT, link = -1;
    while (link < 0 && rt_seconds() < m->until) {
        if (launch->file)
            rt_socket_set_port(&m->master, port_left(launch->file, &m->secret));
        if (rt_socket_port(&m->master)) {
            link = rt_socket_connect(&m->master, m->until);
            reason = errno;
        }
        if (link < 0)
            nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    }
    if (link < 0 && !rt_socket_port(&m->master))
        rt_fail(
            "rank %d has waited %.0f s for rank 0 to write its port to %s: look whether rank 0 runs, or give --master "
            "HOST:PORT; --timeout SECONDS waits longer",
            launch->rank, launch->timeout, launch->file);
    if (link < 0)
        rt_fail(
            "rank %d has tried for %.0f s to reach rank 0 at %s (%s): %s; look whether rank 0 runs there; --timeout "
            "SECONDS waits longer",
            launch->rank, launch->timeout, launch->host, rt_socket_text(&m->master).text, strerror(reason));
    m->peer[0].control = link;
}

static void listen_as_other(RtMeeting *m)
{
    RtAddress at = is_local_only(m->launch) ? m->master : rt_socket_wildcard(m->master.at.ss_family);
    rt_socket_set_port(&at, 0);
    int listener = rt_socket_listen(&at, backlog_of(m->launch));
    if (listener < 0)
        rt_fail("rank %d cannot listen at %s: %s", m->launch->rank, rt_socket_text(&at).text, strerror(errno));
    RtAddress got = rt_socket_own(listener);
    m->own.port = rt_socket_port(&got);
    rt_door_open(&m->door, listener);
}

static _Noreturn void doubt_first(const RtMeeting *m, const char *what)
{
    rt_fail("rank %d has reached %s (%s), but %s: look whether rank 0 runs there, and what else uses this port",
            m->launch->rank, m->launch->host, rt_socket_text(&m->master).text, what);
}

/* Where all listen. */
static RtPlace *join(RtMeeting *m)
{
    enum { LATER = 5 }; /* rank 0 gives up before the others do, since it knows who is missing */
    int first = m->peer[0].control, ranks = m->launch->ranks;
    double until = m->until + LATER;
    RtFrame head = { 0 };
    RtPlace *place = rt_allocate(ranks, sizeof *place);
    rt_proof_sign(&m->secret, &m->own);
    if (!rt_socket_write(first, &m->own, sizeof m->own, until) || !rt_socket_read(first, &head, sizeof head, until))
        doubt_first(m, errno && errno != ECONNRESET ? strerror(errno)
                       : m->secret.is_known ? "it breaks off: it does not know the secret (MPC_SECRET), or is no rank"
                                            : "it breaks off");
    if (head.kind == RT_FRAME_ABORT)
        exit(head.value);
    if (head.kind == RT_FRAME_STRANGER)
        doubt_first(m, "it is rank 0 of another run");
    if (head.kind != RT_FRAME_TABLE || head.value != ranks)
        doubt_first(m, "it does not answer as rank 0 does");
    if (!rt_socket_read(first, &m->own.key, sizeof m->own.key, until) ||
        !rt_socket_read(first, place, (size_t)ranks * sizeof *place, until))
        rt_meeting_mourn(m, 0);
    return place;
}

/* --- 3: every two ---------------------------------------------------------------------------------- */

static RtAddress address_of(const RtMeeting *m, int rank, const RtPlace *place)
{
    RtAddress address = m->master;
    if (rank == 0)
        return address;
    if (place->family == 6) {
        address = rt_socket_wildcard(AF_INET6);
        memcpy(&((struct sockaddr_in6 *)&address.at)->sin6_addr, place->address, 16);
    } else if (place->family == 4) {
        address = rt_socket_wildcard(AF_INET);
        memcpy(&((struct sockaddr_in *)&address.at)->sin_addr, place->address, 4);
    }
    rt_socket_set_port(&address, place->port);
    return address;
}

static int connect_to(RtMeeting *m, int rank, const RtPlace *place, RtHelloKind kind)
{
    RtAddress address = address_of(m, rank, place);
    int link = rt_socket_connect(&address, m->until);
    m->own.kind = (int32_t)kind;
    rt_proof_sign(&m->secret, &m->own);
    if (link < 0 || !rt_socket_write(link, &m->own, sizeof m->own, m->until))
        rt_meeting_give_up(
            m, rt_text("rank %d cannot reach rank %d (%s) at %s: %s; all ranks must be able to reach each other",
                       m->launch->rank, rank, rt_meeting_process_text(&place->process), rt_socket_text(&address).text,
                       strerror(errno)));
    return link;
}

static void connect_to_lower(RtMeeting *m, const RtPlace place[])
{
    for (int q = 0; q < m->launch->rank; q++) {
        m->peer[q].process = place[q].process;
        m->peer[q].data = connect_to(m, q, &place[q], RT_HELLO_DATA);
        if (q > 0)
            m->peer[q].control = connect_to(m, q, &place[q], RT_HELLO_CONTROL);
    }
}

/* The connection of a higher rank that is still missing; all others are dropped. */
static bool accept_one(RtMeeting *m)
{
    RtHello hello;
    int socket = rt_door_answer(&m->door, &hello);
    if (socket < 0 || !has_proof(m, socket, &hello))
        return false;
    bool is_ours = hello.key == m->own.key && hello.program == m->own.program && hello.rank > m->launch->rank &&
                   hello.rank < m->launch->ranks && hello.kind != RT_HELLO_JOIN;
    RtPeer *peer = is_ours ? &m->peer[hello.rank] : NULL;
    int *link = !peer ? NULL : hello.kind == RT_HELLO_DATA ? &peer->data : &peer->control;
    if (!link || *link >= 0) {
        turn_away(socket, &hello);
        return false;
    }
    *link = socket;
    peer->process = hello.process;
    return true;
}

static void accept_higher(RtMeeting *m)
{
    int rank = m->launch->rank, missing = (m->launch->ranks - 1 - rank) * (rank == 0 ? 1 : 2);
    while (missing > 0) {
        if (accept_one(m)) {
            missing--;
            continue;
        }
        if (rt_seconds() > m->until)
            rt_meeting_give_up(
                m, rt_text("rank %d has waited %.0f s for the connections of rank %s: all ranks must be able to reach "
                           "each other",
                           rank, m->launch->timeout, rt_meeting_missing(m, true, rank + 1)));
        rt_meeting_wait(m);
    }
}

/* --- All of it ------------------------------------------------------------------------------------- */

/* Messages leave at once, and a machine that has gone without a word is noticed within a minute. */
static void tune(const RtPeer *peer)
{
    enum { IDLE = 20, EACH = 10, MOST = 4 }; /* seconds, seconds, how often */
    int on = 1, idle = IDLE, each = EACH, most = MOST;
    setsockopt(peer->data, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(peer->control, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(peer->control, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(peer->control, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(peer->control, IPPROTO_TCP, TCP_KEEPINTVL, &each, sizeof each);
    setsockopt(peer->control, IPPROTO_TCP, TCP_KEEPCNT, &most, sizeof most);
}

static void meet_others(RtMeeting *m)
{
    if (m->launch->rank == 0) {
        listen_as_first(m);
        if (getrandom(&m->own.key, sizeof m->own.key, 0) != sizeof m->own.key)
            rt_fail("this machine gives no random numbers");
        gather_ranks(m);
    } else {
        find_first(m);
        listen_as_other(m);
        RtPlace *place = join(m);
        m->until = rt_seconds() + m->launch->timeout;
        connect_to_lower(m, place);
        free(place);
    }
    accept_higher(m);
    rt_door_close(&m->door);
}

void rt_meet(const RtLaunch *launch, RtPeer peer[])
{
    RtMeeting m = { .launch = launch,
                    .peer = peer,
                    .own = rt_meeting_hello(launch),
                    .begin = rt_seconds(),
                    .newcomer = -1,
                    .secret = rt_proof_secret(launch->secret) };
    const char *why;
    for (int q = 0; q < launch->ranks; q++)
        peer[q] = (RtPeer){ .control = -1, .data = -1 };
    peer[launch->rank].process = m.own.process;
    if (launch->ranks == 1)
        return;
    rt_meeting_raise_file_limit(launch->ranks);
    if (!rt_socket_resolve(launch->host, launch->port, &m.master, &why))
        rt_fail("rank %d cannot find the machine '%s' of rank 0: %s; give another address with --master HOST:PORT",
                launch->rank, launch->host, why);
    m.until = m.begin + launch->timeout;
    m.ready = rt_allocate(RT_DOOR_SOCKETS + launch->ranks, sizeof *m.ready);
    meet_others(&m);
    free(m.ready);
    for (int q = 0; q < launch->ranks; q++)
        if (q != launch->rank)
            tune(&peer[q]);
}
