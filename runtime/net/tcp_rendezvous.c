/* tcp_rendezvous.c -- all ranks connect to rank 0, and then to each other.
 *
 *   1  each rank connects to rank 0, identifies itself, and says at which port it listens
 *   2  when all have joined, rank 0 sends to each the addresses of all ranks, and a random number for the key of the
 * run 3  each rank connects to the lower ranks, once for control and once for data
 *
 * Each connection begins with a handshake (tcp_handshake.c).  The connections of the first step are kept, as the
 * control connections with rank 0.  Control connections are watched as soon as both sides know each other
 * (tcp_control.c), so that a rank that fails or dies meanwhile ends all.  Connections that do not belong to the run are
 * dropped, with a note.
 *
 * All of it has one time limit, from the start of this rank on, and every wait is a poll with a time limit. */
#include "tcp.h"

#include "system_limits.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

/* The address on which a rank listens, and its process.  Family 0: on rank 0's machine, whose address depends on the
 * machine of the peer. */
typedef struct {
    unsigned char address[16];
    uint32_t scope;
    uint16_t family, port; /* AF_INET, AF_INET6 or 0; the port as a number */
    RtProcess process;
} Place;

/* The message of rank 0 after all have joined. */
typedef struct {
    RtFrame head;  /* RT_FRAME_TABLE, ranks */
    RtProof proof; /* of all behind it, by the key of the session of the rank that receives it */
    unsigned char random[32];
    Place place[];
} Table;

_Static_assert(sizeof(Table) == 72 && sizeof(Place) == 104, "a table has no padding, which would be sent and signed");

/* The connection that this rank is making. */
typedef struct {
    int number, rank, socket; /* socket -1: none now */
    RtHelloKind kind;
    bool is_made;
    double next;     /* time of the next attempt */
    const char *why; /* the last one failed */
    RtHandshake handshake;
} Call;

typedef struct {
    const RtLaunch *launch;
    RtPeer *peer;
    RtHello own; /* the hello of this rank */
    RtKeys keys;
    RtProof *session;   /* of rank 0: of the connection of each rank */
    RtAddress master;   /* the address on which rank 0 listens */
    RtAddress machine;  /* that of rank 0, without a port */
    int ranks, missing; /* connections that higher ranks have to make in this step */
    double until;
    RtCallers callers;
    Call call;
    Table *table;
    size_t table_bytes;
} Rendezvous;

enum { LATER = 5 }; /* seconds: those that only wait give up after those that know what is missing */

/* --- Incoming connections -------------------------------------------------------------------------- */

static void open_listener(Rendezvous *r)
{
    const char *host = r->launch->host;
    /* The name of rank 0's machine may resolve to 127.0.1.1, but only on that machine. */
    bool is_local = *host == '/' || !strncmp(host, "127.", 4) || !strcmp(host, "::1") || !strcmp(host, "localhost");
    RtAddress at = r->own.rank == 0 ? r->master : r->machine;
    if (!is_local && (r->own.rank > 0 || rt_address_is_loopback(&at))) /* listens on all addresses of this machine */
        at = (RtAddress){ .v4 = { .sin_family = at.any.sa_family, .sin_port = at.v4.sin_port } };
    if (at.any.sa_family == AF_UNIX)
        unlink(host);
    r->callers.listener = rt_socket_listen(&at, 2 * r->ranks + RT_MOST_CALLERS);
    if (r->callers.listener < 0)
        rt_fail("cannot listen at %s on %s: %s; rank 0 has to run on the machine of that address, and no other program "
                "may have the port (--master HOST:PORT)",
                rt_address_text(&at), r->own.process.host, strerror(errno));
    r->own.port = ntohs(rt_socket_address(r->callers.listener).v4.sin_port);
}

/* The peer's connection that the caller makes. */
static int *place_of(const Rendezvous *r, const RtHello *caller)
{
    RtPeer *peer = &r->peer[caller->rank];
    return caller->kind == RT_HELLO_DATA ? &peer->data : &peer->control;
}

static RtVerdict judge(const Rendezvous *r, const RtHello *caller)
{
    bool joins = caller->kind == RT_HELLO_JOIN;
    return !rt_hello_is_of_run(caller, &r->own) || joins == r->keys.has_run || caller->rank <= r->own.rank ||
                   caller->rank >= r->ranks || caller->port == 0
               ? RT_IS_OF_OTHER_RUN
           : caller->program != r->own.program ? RT_IS_OTHER_PROGRAM
           : *place_of(r, caller) >= 0         ? RT_HAS_TAKEN_NUMBER
                                               : RT_WELCOME;
}

/* Where the others reach this rank. */
static Place place_at(RtAddress from, const RtHello *hello)
{
    Place place = { .port = hello->port, .process = hello->process };
    if (rt_address_is_loopback(&from))
        return place;
    place.family = from.any.sa_family;
    if (place.family == AF_INET) {
        memcpy(place.address, &from.v4.sin_addr, sizeof from.v4.sin_addr);
    } else {
        memcpy(place.address, &from.v6.sin6_addr, sizeof from.v6.sin6_addr);
        place.scope = from.v6.sin6_scope_id;
    }
    return place;
}

static void admit(Rendezvous *r, RtHandshake *h)
{
    const RtHello *caller = &h->caller;
    RtVerdict verdict = judge(r, caller);
    if (verdict != RT_WELCOME) {
        char *process = rt_process_text(&caller->process);
        char *who = rt_text("rank %d (%s)", caller->rank, process);
        rt_callers_note(&r->callers, who, rt_verdict_text(verdict));
        free(who);
        free(process);
    }
    if (!rt_handshake_decide(h, &r->keys, verdict) || verdict != RT_WELCOME) {
        close(h->socket);
        return;
    }
    *place_of(r, caller) = h->socket;
    r->missing--;
    r->peer[caller->rank].process = caller->process;
    if (r->own.rank == 0 && caller->kind == RT_HELLO_JOIN) {
        r->session[caller->rank] = rt_handshake_session(h, &r->keys);
        r->table->place[caller->rank] = place_at(rt_socket_peer(h->socket), caller);
    }
    if (caller->kind != RT_HELLO_DATA)
        rt_control_watch(caller->rank);
}

/* "1, 4-7": the higher ranks that lack a connection. */
static char *missing_text(const Rendezvous *r)
{
    char *text = rt_text("%s", "");
    for (int q = r->own.rank + 1, first; q < r->ranks; q++) {
        for (first = q; q < r->ranks && (r->peer[q].control < 0 || (r->keys.has_run && r->peer[q].data < 0));)
            q++;
        if (q > first)
            rt_append(&text, "%s%d", *text ? ", " : "", first);
        if (q > first + 1)
            rt_append(&text, "-%d", q - 1);
    }
    return text;
}

/* --- Outgoing connections -------------------------------------------------------------------------- */

static Call call_of(int number, int rank, RtHelloKind kind)
{
    return (Call){ .number = number, .rank = rank, .kind = kind, .socket = -1, .why = "it does not answer" };
}

/* The connections to lower ranks: data of 0, control of 1, data of 1, control of 2, ... */
static Call call_of_number(int number)
{
    return call_of(number, (number + 1) / 2, number % 2 ? RT_HELLO_CONTROL : RT_HELLO_DATA);
}

static RtAddress address_of(const Rendezvous *r, int rank)
{
    const Place *place = &r->table->place[rank];
    RtAddress address = rank == 0 || !place->family ? r->machine : (RtAddress){ .any.sa_family = place->family };
    if (rank == 0)
        return r->master;
    if (place->family == AF_INET) {
        memcpy(&address.v4.sin_addr, place->address, sizeof address.v4.sin_addr);
    } else if (place->family == AF_INET6) {
        memcpy(&address.v6.sin6_addr, place->address, sizeof address.v6.sin6_addr);
        address.v6.sin6_scope_id = place->scope;
    }
    address.v4.sin_port = htons(place->port);
    return address;
}

static _Noreturn void refuse(const Rendezvous *r, const char *why)
{
    const RtAddress address = address_of(r, r->call.rank);
    if (r->call.kind != RT_HELLO_JOIN)
        rt_fail("cannot reach rank %d (%s) at %s: %s; all ranks must be able to reach each other", r->call.rank,
                rt_process_text(&r->peer[r->call.rank].process), rt_address_text(&address), why);
    if (r->call.is_made)
        rt_fail("reached %s (%s), but %s: check that rank 0 of this run is there, and see its messages",
                r->launch->host, rt_address_text(&address), why);
    rt_fail("tried for %.0f s to reach rank 0 at %s (%s): %s; check that rank 0 runs there; --timeout SECONDS waits "
            "longer",
            r->launch->timeout, r->launch->host, rt_address_text(&address), why);
}

/* Rank 0, or its network, may start later; and among many strangers it may have dropped this rank. */
static void try_later(Rendezvous *r, const char *why)
{
    const double pause = 0.05; /* seconds */
    if (r->call.socket >= 0)
        close(r->call.socket);
    r->call.socket = -1;
    r->call.is_made = false;
    r->call.why = why;
    r->call.next = rt_seconds() + pause;
}

/* Other ranks listen before they join rank 0. */
static void miss_call(Rendezvous *r, int reason)
{
    if (r->call.kind != RT_HELLO_JOIN)
        refuse(r, strerror(reason));
    try_later(r, strerror(reason));
}

static void begin_call(Rendezvous *r)
{
    const RtAddress address = address_of(r, r->call.rank);
    r->call.socket = rt_socket_connect(&address);
    if (r->call.socket < 0)
        miss_call(r, errno);
}

static void make_call(Rendezvous *r)
{
    int reason = rt_socket_error(r->call.socket);
    if (reason) {
        miss_call(r, reason);
        return;
    }
    RtHello own = r->own;
    own.kind = (uint16_t)r->call.kind;
    r->call.is_made = true;
    r->call.why = "it does not answer";
    r->call.handshake = rt_handshake_call(r->call.socket, &own);
}

static void end_call(Rendezvous *r)
{
    const RtHello *called = &r->call.handshake.called;
    if (called->rank != r->call.rank || !rt_hello_is_of_run(called, &r->own) || called->program != r->own.program)
        refuse(r, "another rank, or one of another run, is there");
    RtPeer *peer = &r->peer[r->call.rank];
    *(r->call.kind == RT_HELLO_DATA ? &peer->data : &peer->control) = r->call.socket;
    if (r->call.kind == RT_HELLO_CONTROL)
        rt_control_watch(r->call.rank);
    r->call.rank = -1;
}

static void progress_call(Rendezvous *r)
{
    RtShakeState state = rt_handshake_progress(&r->call.handshake, &r->keys);
    if (state == RT_SHAKE_PROVEN)
        end_call(r);
    if (state == RT_SHAKE_CLOSED)
        try_later(r, errno ? strerror(errno) : "it closes the connection");
    if (state == RT_SHAKE_FOREIGN)
        refuse(r, "it does not answer as a rank does");
    if (state == RT_SHAKE_FALSE)
        refuse(r, "it does not know the secret of this run (MPC_SECRET)");
    if (state == RT_SHAKE_REFUSED)
        refuse(r, rt_text("is turned away, since this rank %s", rt_verdict_text(r->call.handshake.verdict)));
}

/* --- Waiting --------------------------------------------------------------------------------------- */

/* Returns when something has come, a connection can be tried again, or at the time `until`. */
static void wait_for_any(const Rendezvous *r, double until)
{
    struct pollfd list[RT_MOST_CALLERS + 2];
    int count = r->missing > 0 ? rt_callers_poll(&r->callers, list, &until) : 0;
    if (r->call.rank >= 0 && r->call.socket >= 0)
        list[count++] = (struct pollfd){ .fd = r->call.socket, .events = r->call.is_made ? POLLIN : POLLOUT };
    else if (r->call.rank >= 0)
        until = fmin(until, r->call.next);
    poll(list, (nfds_t)count, rt_milliseconds_until(until));
}

static void progress_calls(Rendezvous *r)
{
    if (r->call.socket < 0 && rt_seconds() >= r->call.next)
        begin_call(r);
    struct pollfd ready = { .fd = r->call.socket, .events = POLLOUT };
    if (r->call.socket >= 0 && !r->call.is_made && poll(&ready, 1, 0) > 0)
        make_call(r);
    if (r->call.is_made)
        progress_call(r);
}

static void progress_callers(Rendezvous *r)
{
    RtHandshake proven;
    rt_callers_progress(&r->callers, &r->keys);
    while (r->missing > 0 && rt_callers_take(&r->callers, &proven))
        admit(r, &proven);
}

/* Until all higher ranks have connected to this one, and this one to `calls` more. */
static void connect_all(Rendezvous *r, int calls)
{
    const double patience = fmin(rt_seconds() + 15, r->until); /* until it says for whom it waits */
    bool has_said = false;
    while (r->missing > 0 || r->call.rank >= 0) {
        const double limit = r->call.rank >= 0 || r->own.rank == 0 ? r->until : r->until + LATER;
        const RtAddress at = rt_socket_address(r->callers.listener);
        wait_for_any(r, has_said ? limit : fmin(patience, limit));
        if (r->missing > 0)
            progress_callers(r);
        if (r->call.rank >= 0)
            progress_calls(r);
        if (r->call.rank < 0 && r->call.number + 1 < calls)
            r->call = call_of_number(r->call.number + 1);
        if (rt_seconds() >= limit && r->call.rank >= 0)
            refuse(r, r->call.why);
        if (rt_seconds() >= limit && r->missing > 0)
            rt_fail("waited %.0f s at %s for rank %s of %d: start it, or find out why it has ended or cannot connect; "
                    "--timeout SECONDS waits longer",
                    r->launch->timeout, rt_address_text(&at), missing_text(r), r->ranks);
        if (rt_seconds() >= patience && !has_said && r->missing > 0)
            rt_note("waiting at %s for rank %s of %d", rt_address_text(&at), missing_text(r), r->ranks);
        has_said = has_said || rt_seconds() >= patience;
    }
}

/* --- The three steps ------------------------------------------------------------------------------- */

static void sign(const Rendezvous *r, const RtProof *session, RtProof *proof)
{
    const char *behind = (const char *)r->table->random;
    *proof = rt_proof_of(session, sizeof *session, behind, r->table_bytes - offsetof(Table, random));
}

static void take_key(Rendezvous *r)
{
    r->keys.run = rt_proof_of(r->launch->secret, strlen(r->launch->secret), r->table->random, sizeof r->table->random);
    r->keys.has_run = true;
}

static void gather(Rendezvous *r)
{
    r->missing = r->ranks - 1;
    connect_all(r, 0);
    rt_random(r->table->random, sizeof r->table->random);
    r->table->head = (RtFrame){ RT_FRAME_TABLE, r->ranks };
    r->table->place[0].process = r->own.process;
    for (int q = 1; q < r->ranks; q++) {
        sign(r, &r->session[q], &r->table->proof);
        if (!rt_socket_write(r->peer[q].control, r->table, r->table_bytes, r->until))
            rt_control_lose(q, errno);
    }
    take_key(r);
}

static bool is_place(const Place *place)
{
    return place->port != 0 && (place->family == AF_INET || place->family == AF_INET6 || place->family == 0);
}

/* False and errno; or EPROTO.  If rank 0 fails, it announces its error message before it ends all ranks. */
static bool receive_table(Rendezvous *r, int first)
{
    const RtProof session = rt_handshake_session(&r->call.handshake, &r->keys);
    RtFrame *head = &r->table->head;
    RtProof expected;
    do
        if (!rt_socket_read(first, head, sizeof *head, r->until + LATER))
            return false;
    while (head->kind == RT_FRAME_CLAIM);
    if (head->kind == RT_FRAME_ABORT)
        exit(rt_control_status(*head));
    errno = EPROTO;
    if (head->kind != RT_FRAME_TABLE || head->value != r->ranks)
        return false;
    if (!rt_socket_read(first, &r->table->proof, r->table_bytes - offsetof(Table, proof), r->until + LATER))
        return false;
    sign(r, &session, &expected);
    bool is_good = rt_proofs_equal(&expected, &r->table->proof);
    for (int q = 1; q < r->ranks; q++)
        is_good = is_good && is_place(&r->table->place[q]);
    errno = EPROTO;
    return is_good;
}

static void join(Rendezvous *r)
{
    r->call = call_of(-1, 0, RT_HELLO_JOIN);
    connect_all(r, 0);
    if (!receive_table(r, r->peer[0].control))
        rt_fail("joined rank 0 at %s (%s), but %s: see its messages, and check that it still runs", r->launch->host,
                rt_address_text(&r->master),
                errno == EPROTO      ? "it does not answer as rank 0 does"
                : errno == ETIMEDOUT ? "it has fallen silent"
                : errno              ? strerror(errno)
                                     : "it has ended");
    take_key(r);
    for (int q = 0; q < r->own.rank; q++)
        r->peer[q].process = r->table->place[q].process;
    rt_control_watch(0);
}

static void meet(Rendezvous *r)
{
    open_listener(r);
    if (r->own.rank > 0)
        join(r);
    else
        gather(r);
    r->missing = r->own.rank == 0 ? r->ranks - 1 : 2 * (r->ranks - 1 - r->own.rank);
    r->call = r->own.rank > 0 ? call_of_number(0) : call_of(-1, -1, RT_HELLO_DATA);
    connect_all(r, 2 * r->own.rank - 1);
    rt_callers_close(&r->callers);
    close(r->callers.listener);
    if (r->own.rank == 0 && r->master.any.sa_family == AF_UNIX)
        unlink(r->launch->host);
}

/* --- The whole rendezvous -------------------------------------------------------------------------- */

void rt_rendezvous(const RtLaunch *launch, RtPeer peer[])
{
    Rendezvous r = { .launch = launch,
                     .peer = peer,
                     .own = rt_hello_own(launch),
                     .keys.secret = launch->secret,
                     .ranks = launch->own.ranks,
                     .call.rank = -1,
                     .until = rt_seconds() + launch->timeout };
    const char *why;
    peer[r.own.rank].process = r.own.process;
    if (r.ranks == 1)
        return;
    rt_files_raise();
    if (!rt_address_resolve(launch->host, launch->port, &r.master, &why))
        rt_fail("cannot find the machine '%s' of rank 0: %s; give another address with --master HOST:PORT",
                launch->host, why);
    r.machine = r.master;
    if (r.master.any.sa_family == AF_UNIX)
        r.machine.v4 = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    r.machine.v4.sin_port = 0;
    r.callers.own = &r.own;
    r.session = rt_allocate(r.ranks, sizeof *r.session);
    r.table_bytes = sizeof *r.table + (size_t)r.ranks * sizeof *r.table->place;
    r.table = rt_allocate(1, (int64_t)r.table_bytes);
    meet(&r);
    free(r.table);
    free(r.session);
}
