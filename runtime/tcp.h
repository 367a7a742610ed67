/* tcp.h -- what the files of the TCP transport share.
 *
 *   tcp_launch.c    which rank this is, of how many, and where rank 0 waits: from options and the environment
 *   tcp_socket.c    listening, connecting, reading and writing with a deadline
 *   tcp_proof.c     who knows the secret of a run
 *   tcp_meet.c      all ranks meet at rank 0; then every two of them have two connections (tcp_meeting.c, tcp_door.c)
 *   tcp_control.c   the first of these: calls and answers, the last word, the end of all, a rank that dies
 *   comm_tcp.c      the second: messages of collectives; and the transport as a whole
 *
 * It needs no MPI, whoever starts the ranks: mpirun, torchrun, srun, or a loop of the shell. */
#ifndef MPC_RUNTIME_TCP_H
#define MPC_RUNTIME_TCP_H

#include "comm.h"

#include <sys/socket.h>

/* --- tcp_launch.c --------------------------------------------------------------------------------- */

typedef struct {
    int rank, ranks;
    int local_rank, local_ranks; /* on this machine, as the launcher counts; -1: it does not say */
    const char *host;            /* rank 0's; NULL for a single rank */
    int port;
    const char *file;   /* NULL; else rank 0 takes any port and writes it here, and the others wait for it */
    const char *secret; /* MPC_SECRET, or NULL: what rank 0 leaves in `file`, or none */
    uint64_t job;       /* the same for all ranks of a run, another for other runs; 0: nobody knows */
    double timeout;     /* seconds */
} RtLaunch;

RtLaunch rt_launch_read(int argc, char **argv); /* ends the trainer if something is missing or contradicts itself */
int rt_launch_rank(int argc, char **argv);      /* the rank alone, 0 where nobody says; looks for no mistakes */

uint64_t rt_launch_hash(uint64_t seed, const void *bytes, size_t count); /* FNV-1a; seed 0 begins */

/* --- tcp_socket.c --------------------------------------------------------------------------------- */

typedef struct {
    struct sockaddr_storage at;
    socklen_t length;
} RtAddress;

typedef struct {
    char text[80];
} RtAddressText;

bool rt_socket_resolve(const char *host, int port, RtAddress *address, const char **why);
RtAddressText rt_socket_text(const RtAddress *address); /* "10.0.0.7:29500" */
int rt_socket_port(const RtAddress *address);
void rt_socket_set_port(RtAddress *address, int port);
bool rt_socket_is_loopback(const RtAddress *address);
RtAddress rt_socket_wildcard(int family); /* all addresses of this machine */
RtAddress rt_socket_own(int socket);
RtAddress rt_socket_peer(int socket);

/* Sockets are nonblocking.  -1 and errno where it fails. */
int rt_socket_listen(const RtAddress *address, int backlog);
int rt_socket_connect(const RtAddress *address, double until);

/* `until` is a time of rt_seconds.  False and errno; 0 where the other side has closed. */
bool rt_socket_write(int socket, const void *bytes, size_t count, double until);
bool rt_socket_read(int socket, void *bytes, size_t count, double until);

/* --- tcp_meet.c ----------------------------------------------------------------------------------- */

typedef struct {
    char host[64];
    uint64_t machine;       /* the same for those that share processors */
    uint64_t process_space; /* the same for those that can name each other's processes */
    int64_t process;
} RtProcess;

typedef struct {
    int control, data; /* connections; -1 to itself */
    RtProcess process;
} RtPeer;

/* Between two ranks over `control`; also while they meet. */
typedef enum {
    RT_FRAME_TABLE = 1, /* rank 0's key and the places of so many ranks follow */
    RT_FRAME_STRANGER,  /* it belongs to another run */
    RT_FRAME_ABORT,     /* all end, with this status */
    RT_FRAME_CALL,
    RT_FRAME_ANSWER,
    RT_FRAME_WORD,
    RT_FRAME_BYE /* it closes the connection, and all is well */
} RtFrameKind;

typedef struct {
    int32_t kind, value;
} RtFrame;

/* Fills peer[launch->ranks], or ends the trainer. */
void rt_meet(const RtLaunch *launch, RtPeer peer[]);

/* --- tcp_control.c -------------------------------------------------------------------------------- */

void rt_control_open(int rank, int ranks, const RtPeer peer[]);
void rt_control_close(void);

void rt_control_call(int rank);
int rt_control_listen(void);
void rt_control_claim_word(void);
int rt_control_hear_claim(void);
_Noreturn void rt_control_abort(int status);

/* This connection to a rank is broken (errno, or 0: closed): after a moment all ranks end, unless another has said why.
 */
void rt_control_mourn(int rank, int reason);

#endif
