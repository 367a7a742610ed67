/* tcp.h -- shared by the files of the TCP transport.
 *
 *   tcp_launch.c      rank, number of ranks, and the address of rank 0, from options and the environment
 *   tcp_socket.c      addresses; listening, connecting, reading and writing
 *   tcp_hello.c       how a process identifies itself
 *   tcp_handshake.c   two processes identify themselves to each other, and prove that they know the run's secret
 *   tcp_callers.c     incoming connections until they have done so
 *   tcp_rendezvous.c  all ranks connect to rank 0, and then to each other
 *   tcp_control.c     errors, dead and silent ranks, end of a run: over one connection between each two ranks
 *   tcp_peer.c        ends the process at the other end of a connection
 *   comm_tcp.c        messages of collectives over a second connection; the transport as a whole
 *
 * It needs no MPI; ranks may be started by mpirun, torchrun, srun, or a shell loop.  What a peer sends is checked
 * before it is used; in messages it is printed without control characters. */
#ifndef MPC_RUNTIME_TCP_H
#define MPC_RUNTIME_TCP_H

#include "mesh/comm.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/un.h>

/* --- tcp_launch.c --------------------------------------------------------------------------------- */

typedef struct {
    RtRank own;
    const char *host; /* of rank 0; or the path of a Unix socket; NULL for a single rank */
    int port;
    const char *secret; /* MPC_SECRET, or "" */
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

/* -1 and errno on failure.  No socket blocks; a connection is made when it can be written (POLLOUT). */
int rt_socket_listen(const RtAddress *address, int backlog);
int rt_socket_accept(int listener);
int rt_socket_connect(const RtAddress *address);
int rt_socket_error(int connection); /* errno if it could not be made, else 0 */

/* All bytes, or false and errno: ETIMEDOUT after the time `until` (of rt_seconds), 0 if the other side has closed. */
bool rt_socket_write(int socket, const void *bytes, size_t count, double until);
bool rt_socket_read(int socket, void *bytes, size_t count, double until);

int rt_milliseconds_until(double until); /* rounded up, for poll */

/* --- tcp_hello.c ---------------------------------------------------------------------------------- */

typedef struct {
    char host[64];
    uint64_t machine; /* equal for processes that share processors */
    int64_t pid;      /* for messages; what has this number here may be another process (tcp_peer.c) */
} RtProcess;

typedef enum { RT_HELLO_JOIN, RT_HELLO_CONTROL, RT_HELLO_DATA } RtHelloKind;

/* The first message of either side of a connection: to rank 0, to join; then from the higher rank to the lower. */
typedef struct {
    char magic[8];
    unsigned char nonce[32]; /* a random number, for this connection only */
    int32_t rank, ranks;
    uint16_t kind, port; /* port: for JOIN, the port on which this rank listens */
    uint32_t zero;
    uint64_t program, job; /* hash of the program; hash of the launcher's name for this run */
    RtProcess process;
} RtHello;

RtHello rt_hello_own(const RtLaunch *launch);                     /* without nonce, kind and port */
bool rt_hello_is_of_magic(const RtHello *hello, size_t received); /* as far as it has been received */
bool rt_hello_is_of_run(const RtHello *hello, const RtHello *own);

char *rt_process_text(const RtProcess *process); /* "process 17 on node3"; owned by the caller */

/* --- tcp_handshake.c ------------------------------------------------------------------------------ */

typedef struct {
    unsigned char bytes[32]; /* an HMAC-SHA256 */
} RtProof;

/* What both sides must know. */
typedef struct {
    const char *secret; /* to join */
    bool has_run;
    RtProof run; /* to connect to another rank: made from the secret and a random number of rank 0 */
} RtKeys;

/* The answer of the side that is called. */
typedef enum {
    RT_WELCOME,
    RT_HAS_NO_SECRET,
    RT_IS_OF_OTHER_RUN,
    RT_IS_OTHER_PROGRAM,
    RT_HAS_TAKEN_NUMBER,
    RT_VERDICTS
} RtVerdict;

typedef enum {
    RT_SHAKE_WAITS,   /* for the other side */
    RT_SHAKE_PROVEN,  /* both have proved what they know; the side that is called now gives its verdict */
    RT_SHAKE_CLOSED,  /* errno; 0: by the other side */
    RT_SHAKE_FOREIGN, /* the other side speaks another protocol */
    RT_SHAKE_FALSE,   /* or does not know the key */
    RT_SHAKE_REFUSED  /* this side has called, and `verdict` says why it is turned away */
} RtShakeState;

typedef enum { RT_STEP_HELLO, RT_STEP_PROOF, RT_STEP_VERDICT } RtShakeStep;

typedef struct {
    int socket;
    bool has_called;
    RtShakeStep step; /* the message that it waits for */
    size_t received;  /* bytes of it */
    RtHello caller, called;
    struct {
        int32_t verdict;
        RtProof proof;
    } last; /* message but the hello; of the caller, only its proof */
    RtVerdict verdict;
} RtHandshake;

/* `own`: the hello of this side, to which they add a nonce. */
RtHandshake rt_handshake_call(int socket, const RtHello *own);
RtHandshake rt_handshake_answer(int socket, const RtHello *own);

/* Reads what has come, and answers it. */
RtShakeState rt_handshake_progress(RtHandshake *h, const RtKeys *keys);

/* Of the side that is called, after PROVEN: false if the caller has gone. */
bool rt_handshake_decide(RtHandshake *h, const RtKeys *keys, RtVerdict verdict);

const char *rt_verdict_text(RtVerdict verdict); /* "belongs to another run", of the caller */

void rt_random(void *bytes, size_t count);
RtProof rt_proof_of(const void *key, size_t key_bytes, const void *bytes, size_t count);
RtProof rt_handshake_session(const RtHandshake *h, const RtKeys *keys); /* a key that only the two sides know */
bool rt_proofs_equal(const RtProof *a, const RtProof *b);

/* --- tcp_callers.c -------------------------------------------------------------------------------- */

enum { RT_MOST_CALLERS = 128 };

/* Zero-initialised, but for `listener` and `own`. */
typedef struct {
    int listener, count;
    const RtHello *own;
    int noted; /* dropped connections with a note */
    struct {
        RtHandshake handshake;
        double until;
        bool is_proven;
    } at[RT_MOST_CALLERS]; /* in the order of arrival */
} RtCallers;

/* Fills the poll list, of RT_MOST_CALLERS + 1 entries; returns their number, and lowers `until` to the next limit. */
int rt_callers_poll(const RtCallers *callers, struct pollfd list[], double *until);

/* Accepts and reads what has come, and drops who is none. */
void rt_callers_progress(RtCallers *callers, const RtKeys *keys);

bool rt_callers_take(RtCallers *callers,
                     RtHandshake *proven); /* the next one that is PROVEN; its owner is the caller */
void rt_callers_note(RtCallers *callers, const char *who, const char *why); /* of one that is dropped */
void rt_callers_close(RtCallers *callers);

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
    RT_FRAME_TABLE, /* the addresses of `value` ranks follow (tcp_rendezvous.c) */
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

/* The status with which a rank ends that has received ABORT. */
int rt_control_status(RtFrame frame);

/* A connection to this rank is broken (errno, or 0: closed): ends all ranks, unless one of them has reported why. */
void rt_control_lose(int rank, int reason);

/* --- tcp_peer.c ----------------------------------------------------------------------------------- */

/* Kills the process at the other end of a connection, if the kernel of this machine says that it is `process`, runs
 * this program, and belongs to this user; else does nothing and returns false. */
bool rt_peer_kill(int connection, const RtProcess *process);

#endif
