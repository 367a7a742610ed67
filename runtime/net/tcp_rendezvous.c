/* tcp_rendezvous.c -- all ranks connect to rank 0, and then to each other.
 *
 *   1  each rank connects to rank 0 and sends its identity and the address on which it listens
 *   2  when all have joined, rank 0 sends to each the addresses of all ranks, and a key
 *   3  each rank connects to the lower ranks, once for control and once for data, and sends the key
 *
 * The connections of the first step are kept, as the control connections with rank 0.  Control connections are watched
 * as soon as both sides know each other (tcp_control.c), so that a rank that fails or dies meanwhile ends all.
 * Connections that do not belong to the run are dropped, with a note. */
#include "tcp.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

/* The address on which a rank listens.  Family AF_UNSPEC, with a port: on rank 0's machine, whose address depends on
 * the machine of the peer. */
typedef struct {
    RtAddress address;
    RtProcess process;
} Place;

/* The message of rank 0 after all have joined. */
typedef struct {
    RtFrame head; /* RT_FRAME_TABLE, ranks */
    uint64_t key;
    Place place[];
} Table;

typedef struct {
    const RtLaunch *launch;
    RtPeer *peer;
    RtHello own;       /* the hello of this rank */
    RtAddress master;  /* the address on which rank 0 listens */
    RtAddress machine; /* that of rank 0, without a port */
    int ranks, listener;
    double until;
    Table *table;
    size_t table_bytes;
} Rendezvous;

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
    r->listener = rt_socket_listen(&at, 2 * r->ranks + 64);
    if (r->listener < 0)
        rt_fail("cannot listen at %s on %s: %s; rank 0 has to run on the machine of that address, and no other program "
                "may have the port (--master HOST:PORT)",
                rt_address_text(&at), r->own.process.host, strerror(errno));
    r->own.port = ntohs(rt_socket_address(r->listener).v4.sin_port);
}

/* The slot of a connection, or NULL and the reason to drop it.  The key is set once all have joined. */
static int *place_of(Rendezvous *r, const RtHello *hello, const char **why)
{
    bool has_job = hello->job && r->own.job, joins = hello->kind == RT_HELLO_JOIN;
    if (hello->key != r->own.key || joins != (r->own.key == 0) || (has_job && hello->job != r->own.job) ||
        hello->rank <= r->own.rank || hello->rank >= r->ranks) {
        *why = "belongs to another run";
        return NULL;
    }
    RtPeer *peer = &r->peer[hello->rank];
    int *place = hello->kind == RT_HELLO_DATA ? &peer->data : &peer->control;
    *why = hello->program != r->own.program ? "runs another program: start the same file everywhere"
           : *place >= 0                    ? "has the number of another rank: give each its own (--rank)"
                                            : NULL;
    return *why ? NULL : place;
}

static void admit(Rendezvous *r, int connection)
{
    RtHello hello;
    RtAddress from = rt_socket_peer(connection);
    const char *why = rt_hello_receive(connection, &hello, r->launch->secret);
    bool is_rank = !why;
    int *place = is_rank ? place_of(r, &hello, &why) : NULL;
    if (!place) {
        char *who = is_rank ? rt_process_text(&hello.process) : rt_address_text(&from);
        if (is_rank)
            rt_note("note: rank %d (%s) %s: dropped", hello.rank, who, why);
        else
            rt_note("note: a connection from %s %s: dropped", who, why);
        free(who);
        close(connection);
        return;
    }
    rt_socket_set_timeout(connection, r->launch->timeout);
    *place = connection;
    r->peer[hello.rank].process = r->table->place[hello.rank].process = hello.process;
    if (hello.kind != RT_HELLO_DATA)
        rt_control_watch(hello.rank);
    if (rt_address_is_loopback(&from))
        from.any.sa_family = AF_UNSPEC;
    from.v4.sin_port = htons(hello.port);
    r->table->place[hello.rank].address = from;
}

/* "1, 4-7": the higher ranks that lack a connection. */
static char *missing_text(const Rendezvous *r)
{
    char *text = rt_text("%s", "");
    for (int q = r->own.rank + 1, first; q < r->ranks; q++) {
        for (first = q; q < r->ranks && (r->peer[q].control < 0 || (r->own.key && r->peer[q].data < 0));)
            q++;
        if (q > first)
            rt_append(&text, "%s%d", *text ? ", " : "", first);
        if (q > first + 1)
            rt_append(&text, "-%d", q - 1);
    }
    return text;
}

static void accept_higher(Rendezvous *r)
{
    const double patience = 15; /* seconds without a new connection */
    RtAddress at = rt_socket_address(r->listener);
    double next = fmin(rt_seconds() + patience, r->until);
    char *missing = missing_text(r);
    while (*missing) {
        int connection = rt_socket_accept(r->listener, next);
        if (connection >= 0) {
            admit(r, connection);
        } else {
            if (next == r->until)
                rt_fail(
                    "waited %.0f s at %s for rank %s of %d: start it, or find out why it has ended or cannot connect; "
                    "--timeout SECONDS waits longer",
                    r->launch->timeout, rt_address_text(&at), missing, r->ranks);
            rt_note("waiting at %s for rank %s of %d", rt_address_text(&at), missing, r->ranks);
            next = r->until;
        }
        free(missing);
        missing = missing_text(r);
    }
    free(missing);
}

/* --- The three steps ------------------------------------------------------------------------------- */

static void gather(Rendezvous *r)
{
    accept_higher(r);
    if (getrandom(&r->own.key, sizeof r->own.key, 0) != sizeof r->own.key)
        rt_fail("the system provides no random numbers");
    r->table->head = (RtFrame){ RT_FRAME_TABLE, r->ranks };
    r->table->key = r->own.key;
    r->table->place[0].process = r->own.process;
    for (int q = 1; q < r->ranks; q++)
        if (!rt_socket_write(r->peer[q].control, r->table, r->table_bytes))
            rt_control_lose(q, errno);
}

/* Rank 0, or its network, may start later. */
static void find_first(Rendezvous *r)
{
    while ((r->peer[0].control = rt_socket_connect(&r->master, r->until - rt_seconds())) < 0) {
        if (rt_seconds() > r->until)
            rt_fail("tried for %.0f s to reach rank 0 at %s (%s): %s; check that rank 0 runs there; --timeout "
                    "SECONDS waits longer",
                    r->launch->timeout, r->launch->host, rt_address_text(&r->master), strerror(errno));
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    }
}

/* If rank 0 fails, it announces its error message before it ends all ranks. */
static void join(Rendezvous *r)
{
    enum { LATER = 5 }; /* rank 0 gives up first, since it knows which ranks are missing */
    const int first = r->peer[0].control;
    RtFrame *head = &r->table->head;
    rt_socket_set_timeout(first, r->launch->timeout + LATER);
    bool has_come = rt_hello_send(first, &r->own, r->launch->secret);
    do
        has_come = has_come && rt_socket_read(first, head, sizeof *head);
    while (has_come && head->kind == RT_FRAME_CLAIM);
    if (has_come && head->kind == RT_FRAME_ABORT)
        exit(head->value);
    if (!has_come || head->kind != RT_FRAME_TABLE || head->value != r->ranks ||
        !rt_socket_read(first, &r->table->key, r->table_bytes - offsetof(Table, key)))
        rt_fail("reached %s (%s), but %s: check that rank 0 of this run is there, and see its messages",
                r->launch->host, rt_address_text(&r->master),
                has_come             ? "it does not answer as rank 0 does"
                : errno == ETIMEDOUT ? "it does not answer"
                                     : "is turned away");
    r->own.key = r->table->key;
}

static int connect_to(Rendezvous *r, int rank, RtHelloKind kind)
{
    const Place *place = &r->table->place[rank];
    RtAddress address = rank == 0 ? r->master : place->address;
    if (address.any.sa_family == AF_UNSPEC) {
        address = r->machine;
        address.v4.sin_port = place->address.v4.sin_port;
    }
    int connection = rt_socket_connect(&address, r->until - rt_seconds());
    r->own.kind = (uint16_t)kind;
    if (connection < 0 || !rt_hello_send(connection, &r->own, r->launch->secret))
        rt_fail("cannot reach rank %d (%s) at %s: %s; all ranks must be able to reach each other", rank,
                rt_process_text(&place->process), rt_address_text(&address), strerror(errno));
    return connection;
}

static void connect_to_lower(Rendezvous *r)
{
    for (int q = 0; q < r->own.rank; q++) {
        r->peer[q].process = r->table->place[q].process;
        if (q > 0)
            r->peer[q].control = connect_to(r, q, RT_HELLO_CONTROL);
        rt_control_watch(q);
        r->peer[q].data = connect_to(r, q, RT_HELLO_DATA);
    }
}

/* --- The whole rendezvous -------------------------------------------------------------------------- */

static void raise_file_limit(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void meet(Rendezvous *r)
{
    enum { LATER = 5 }; /* ranks that cannot reach this one have a better message */
    if (r->own.rank > 0)
        find_first(r);
    open_listener(r);
    if (r->own.rank > 0)
        join(r);
    else
        gather(r);
    r->until = rt_seconds() + r->launch->timeout;
    connect_to_lower(r);
    r->until += LATER;
    accept_higher(r);
    close(r->listener);
    if (r->own.rank == 0 && r->master.any.sa_family == AF_UNIX)
        unlink(r->launch->host);
}

void rt_rendezvous(const RtLaunch *launch, RtPeer peer[])
{
    Rendezvous r = { .launch = launch, .peer = peer, .own = rt_hello_own(launch), .ranks = launch->own.ranks };
    const char *why;
    peer[r.own.rank].process = r.own.process;
    if (r.ranks == 1)
        return;
    raise_file_limit();
    if (!rt_address_resolve(launch->host, launch->port, &r.master, &why))
        rt_fail("cannot find the machine '%s' of rank 0: %s; give another address with --master HOST:PORT",
                launch->host, why);
    r.machine = r.master;
    if (r.master.any.sa_family == AF_UNIX)
        r.machine.v4 = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    r.machine.v4.sin_port = 0;
    r.until = rt_seconds() + launch->timeout;
    r.table_bytes = sizeof *r.table + (size_t)r.ranks * sizeof *r.table->place;
    r.table = rt_allocate(1, (int64_t)r.table_bytes);
    meet(&r);
    free(r.table);
}
