/* tcp.h -- shared by the files of the TCP transport.
 *
 *   tcp_launch.c      rank, number of ranks, and the address of rank 0, from options and the environment
 *   tcp_socket.c      addresses; listening, connecting, reading and writing with a time limit
 *   tcp_hello.c       identification of a process that connects, and proof that it knows the run's secret
 *   tcp_rendezvous.c  all ranks connect to rank 0, and then to each other
 *   tcp_control.c     errors, dead and silent ranks, end of a run: over one connection between each two ranks
 *   comm_tcp.c        messages of collectives over a second connection; the transport as a whole
 *
 * It needs no MPI; ranks may be started by mpirun, torchrun, srun, or a shell loop. */
#ifndef MPC_RUNTIME_TCP_H
#define MPC_RUNTIME_TCP_H

#include "mesh/comm.h"

#include <netinet/in.h>
#include <sys/un.h>

/* --- tcp_launch.c --------------------------------------------------------------------------------- */

typedef struct {
    RtRank own;
    const char *host; /* of rank 0; or the path of a Unix socket; NULL for a single rank */
    int port;
    const char *secret; /* MPC_SECRET, or NULL */
    uint64_t job;       /* equal for all ranks of a run, different for other runs; 0: unknown */
    double timeout;     /* seconds */
} RtLaunch;

RtLaunch rt_launch_read(int argc, char **argv); /* ends the trainer if something is missing or contradictory */
int rt_launch_rank(int argc, char **argv);      /* only the rank, 0 if not given; reports no errors */

uint64_t rt_launch_hash(uint64_t seed, const void *bytes, size_t count); /* FNV-1a; start with seed 0 */

/* --- tcp_socket.c --------------------------------------------------------------------------------- */

/* The port of an IPv6 address has the same offset as that of an IPv4 address: `v4.sin_port` is either. */
typedef union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un unix_path;
} RtAddress;

bool rt_address_resolve(const char *host, int port, RtAddress *address, const char **why); /* or a path */
char *rt_address_text(const RtAddress *address); /* "10.0.0.7:29500"; owned by the caller */
bool rt_address_is_loopback(const RtAddress *address);
RtAddress rt_socket_address(int socket); /* its own */
RtAddress rt_socket_peer(int socket);    /* the other end's */

/* -1 and errno on failure.  A listener does not block; connections do, within their time limit. */
int rt_socket_listen(const RtAddress *address, int backlog);
int rt_socket_accept(int listener, double until); /* a time of rt_seconds */
int rt_socket_connect(const RtAddress *address, double seconds);
void rt_socket_set_timeout(int socket, double seconds); /* of each read and write */

/* All bytes, or false and errno; 0 if the other side has closed. */
bool rt_socket_write(int socket, const void *bytes, size_t count);
bool rt_socket_read(int socket, void *bytes, size_t count);

/* --- tcp_hello.c ---------------------------------------------------------------------------------- */

typedef struct {
    char host[64];
    uint64_t machine;       /* equal for processes that share processors */
    uint64_t pid_namespace; /* equal for processes in one PID namespace */
    int64_t pid;
} RtProcess;

typedef enum { RT_HELLO_JOIN, RT_HELLO_CONTROL, RT_HELLO_DATA } RtHelloKind;

/* The first message on any connection: to rank 0, to join; then from the higher rank to the lower. */
typedef struct {
    char magic[8];
    int32_t rank;
    uint16_t kind, port;   /* port: for JOIN, the port on which this rank listens */
    uint64_t program, job; /* hash of the program; hash of the launcher's name for this run */
    uint64_t key;          /* rank 0's number for this run, sent to ranks that have joined; 0 before */
    RtProcess process;
    uint64_t proof; /* of all fields before it, keyed by the run's secret; 0 without a secret */
} RtHello;

RtHello rt_hello_own(const RtLaunch *launch);
bool rt_hello_send(int socket, RtHello *hello, const char *secret); /* signs it */

/* NULL, or why the peer is not a rank of the run. */
const char *rt_hello_receive(int socket, RtHello *hello, const char *secret);

char *rt_process_text(const RtProcess *process); /* "process 17 on node3"; owned by the caller */

/* --- tcp_rendezvous.c ----------------------------------------------------------------------------- */

typedef struct {
    int control, data; /* connections; -1 to itself */
    RtProcess process;
} RtPeer;

/* Fills peer[launch->own.ranks], and gives each `control` to rt_control_watch; or ends the trainer. */
void rt_rendezvous(const RtLaunch *launch, RtPeer peer[]);

/* --- tcp_control.c -------------------------------------------------------------------------------- */

/* The frames that ranks send over `control`, from the rendezvous on. */
typedef enum {
    RT_FRAME_TABLE, /* rank 0's key and the addresses of `value` ranks follow */
    RT_FRAME_ABORT, /* all end, with status `value` */
    RT_FRAME_CALL,
    RT_FRAME_ANSWER,
    RT_FRAME_CLAIM,
    RT_FRAME_BYE, /* the sender has finished without errors */
    RT_FRAME_KINDS
} RtFrameKind;

typedef struct {
    int32_t kind, value;
} RtFrame;

void rt_control_open(int rank, int ranks, const RtPeer peer[]); /* `peer` until rt_control_close */
void rt_control_watch(int rank);                                /* its `control` is connected from now on */
void rt_control_close(void);

void rt_control_call(int rank);
int rt_control_listen(void);
void rt_control_claim_word(void);
int rt_control_hear_claim(void);
_Noreturn void rt_control_abort(int status);

/* A connection to this rank is broken (errno, or 0: closed): ends all ranks, unless one of them has reported why. */
void rt_control_lose(int rank, int reason);

#endif
