/* tcp_meet.h -- what ranks say to each other while they meet (tcp_meet.c, tcp_meeting.c, tcp_door.c). */
#ifndef MPC_RUNTIME_TCP_MEET_H
#define MPC_RUNTIME_TCP_MEET_H

#include "tcp.h"

#include <poll.h>

#define RT_HELLO_MAGIC "mpcrank2" /* eight letters; the number changes with the layout of what is sent */

typedef enum { RT_HELLO_JOIN, RT_HELLO_CONTROL, RT_HELLO_DATA } RtHelloKind;

/* The first thing on any connection: to rank 0, to join; then from the higher rank to the lower. */
typedef struct {
    char magic[8];
    int32_t kind, rank, ranks, port; /* port: where this rank listens, for JOIN */
    uint64_t program, job;           /* hash of the program; of the launcher's name for this run */
    uint64_t key;                    /* rank 0's number for this run: tells its connections from strays; not for JOIN */
    RtProcess process;
    uint64_t proof; /* of all before it, by the secret of the run; 0 where there is none.  The last field. */
} RtHello;

/* How to reach a rank, as rank 0 tells it to all. */
typedef struct {
    uint16_t family; /* 4, 6; 0: at the address of rank 0 */
    uint16_t port;
    uint8_t address[16];
    RtProcess process;
} RtPlace;

typedef struct {
    int socket;
    size_t count; /* bytes of the hello that have come */
    double since;
    RtHello hello;
} RtCaller;

typedef struct {
    int listener;
    RtCaller *caller;
    int callers;
} RtDoor;

enum { RT_DOOR_SOCKETS = 1025 };

void rt_door_open(RtDoor *door, int listener);
void rt_door_close(RtDoor *door);
int rt_door_fill(const RtDoor *door, struct pollfd ready[]); /* what to poll for, RT_DOOR_SOCKETS at most */
int rt_door_answer(RtDoor *door, RtHello *hello);            /* a rank's connection and hello, or -1 */

/* --- tcp_proof.c ---------------------------------------------------------------------------------- */

/* What the ranks of a run share and a stranger does not know. */
typedef struct {
    bool is_known; /* else hellos are believed */
    uint64_t key[2];
    char text[33]; /* that it was made from, where rank 0 has made it up; "" */
} RtSecret;

RtSecret rt_proof_secret(const char *text); /* NULL: none */
RtSecret rt_proof_new_secret(void);         /* of random letters */
void rt_proof_sign(const RtSecret *secret, RtHello *hello);
bool rt_proof_is_good(const RtSecret *secret, const RtHello *hello);

/* --- tcp_meeting.c -------------------------------------------------------------------------------- */

typedef struct {
    const RtLaunch *launch;
    RtPeer *peer;
    RtDoor door;
    RtHello own; /* what this rank says */
    RtSecret secret;
    RtAddress master; /* rank 0's */
    double begin, until;
    struct pollfd *ready;
    int newcomer; /* at rank 0: who has just joined; -1 */
} RtMeeting;

RtHello rt_meeting_hello(const RtLaunch *launch); /* what this process says of itself */
void rt_meeting_raise_file_limit(int ranks);
void rt_meeting_send(int socket, RtFrame frame); /* the last that goes this way; socket -1: nothing */

/* End all ranks: say why, or that rank `rank` has gone, unless it has said why itself. */
_Noreturn void rt_meeting_give_up(RtMeeting *m, char *text); /* takes the text */
_Noreturn void rt_meeting_mourn(RtMeeting *m, int rank);

void rt_meeting_wait(RtMeeting *m); /* until someone calls, or for a moment */
char *rt_meeting_process_text(const RtProcess *process);
char *rt_meeting_missing(const RtMeeting *m, bool of_data, int first); /* "1, 4-7": from rank `first` on */

#endif
