/* tcp_meeting.c -- what both sides of a meeting need: who this process is, waiting, and the end of a meeting that
 * fails. */
#include "tcp_meet.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- This process ---------------------------------------------------------------------------------- */

static uint64_t hash_of_file(const char *path)
{
    static char block[1 << 16];
    FILE *file = fopen(path, "rb");
    uint64_t hash = 0;
    if (!file)
        return 0;
    for (size_t count; (count = fread(block, 1, sizeof block, file)) > 0;)
        hash = rt_launch_hash(hash, block, count);
    fclose(file);
    return hash;
}

static RtProcess this_process(void)
{
    RtProcess own = { .process = getpid() };
    struct stat space = { 0 };
    gethostname(own.host, sizeof own.host - 1);
    own.machine = hash_of_file("/proc/sys/kernel/random/boot_id");
    if (!own.machine)
        own.machine = rt_launch_hash(0, own.host, sizeof own.host);
    stat("/proc/self/ns/pid", &space); /* 0 where there is none */
    own.process_space = rt_launch_hash(own.machine, &space.st_ino, sizeof space.st_ino);
    return own;
}

RtHello rt_meeting_hello(const RtLaunch *launch)
{
    RtHello hello = { .rank = launch->rank, .ranks = launch->ranks, .job = launch->job, .process = this_process() };
    memcpy(hello.magic, RT_HELLO_MAGIC, sizeof hello.magic);
    hello.program = hash_of_file("/proc/self/exe");
    if (!hello.program)
        rt_fail("cannot read /proc/self/exe, by which ranks tell that they run the same program: is /proc mounted?");
    return hello;
}

/* Two connections to each other rank, and some for files. */
void rt_meeting_raise_file_limit(int ranks)
{
    enum { OTHERS = 256 };
    rlim_t wanted = (rlim_t)ranks * 2 + RT_DOOR_SOCKETS + OTHERS;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < (rlim_t)ranks * 2 + OTHERS)
        rt_fail("%d ranks need %d open files each, but the limit is %lld: raise it (ulimit -n)", ranks,
                2 * ranks + OTHERS, (long long)limit.rlim_cur);
}

/* --- The end of a meeting that fails ---------------------------------------------------------------- */

void rt_meeting_send(int socket, RtFrame frame)
{
    if (socket >= 0) {
        send(socket, &frame, sizeof frame, MSG_NOSIGNAL); /* a new connection has room for it; else it sees the end */
        shutdown(socket, SHUT_WR);
    }
}

/* Who comes to rank 0 within a moment is told, too: it would look for rank 0 until its time is over. */
static void tell_latecomers(RtMeeting *m, int status)
{
    enum { SECONDS = 2, MOMENT = 50 }; /* MOMENT: ms */
    for (double begin = rt_seconds(); m->door.caller && rt_seconds() - begin < SECONDS;) {
        RtHello hello;
        int socket = rt_door_answer(&m->door, &hello);
        if (socket >= 0)
            rt_meeting_send(socket, (RtFrame){ RT_FRAME_ABORT, status });
        else
            poll(m->ready, (nfds_t)rt_door_fill(&m->door, m->ready), MOMENT);
    }
}

static _Noreturn void end_all(RtMeeting *m, int status)
{
    bool is_missed = false;
    rt_meeting_send(m->newcomer, (RtFrame){ RT_FRAME_ABORT, status });
    for (int q = 0; q < m->launch->ranks; q++) {
        rt_meeting_send(m->peer[q].control, (RtFrame){ RT_FRAME_ABORT, status });
        is_missed = is_missed || (q > 0 && m->peer[q].control < 0);
    }
    if (m->launch->rank == 0 && is_missed)
        tell_latecomers(m, status);
    if (m->launch->rank == 0 && m->launch->file)
        unlink(m->launch->file);
    exit(status);
}

_Noreturn void rt_meeting_give_up(RtMeeting *m, char *text)
{
    rt_note("error: %s", text);
    end_all(m, RT_EXIT_ERROR);
}

/* What others send is not trusted to be letters. */
char *rt_meeting_process_text(const RtProcess *process)
{
    char host[sizeof process->host];
    memcpy(host, process->host, sizeof host);
    host[sizeof host - 1] = '\0';
    for (char *c = host; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    return rt_text("process %lld on %s", (long long)process->process, host);
}

/* --- Waiting --------------------------------------------------------------------------------------- */

/* A rank that was there has gone. */
_Noreturn void rt_meeting_mourn(RtMeeting *m, int rank)
{
    RtFrame frame[64];
    ssize_t count = recv(m->peer[rank].control, frame, sizeof frame, MSG_PEEK | MSG_DONTWAIT);
    for (ssize_t i = 0; i < count / (ssize_t)sizeof *frame; i++)
        if (frame[i].kind == RT_FRAME_ABORT)
            end_all(m, frame[i].value); /* it has said why */
    rt_meeting_give_up(m, rt_text("rank %d (%s) has ended while the ranks met", rank,
                                  rt_meeting_process_text(&m->peer[rank].process)));
}

/* Until someone calls, or for a moment.  Of the ranks that are there it only looks whether they still are: what they
 * send is for later. */
void rt_meeting_wait(RtMeeting *m)
{
    enum { MOMENT = 200 }; /* ms */
    int callers = rt_door_fill(&m->door, m->ready), count = callers, ranks = m->launch->ranks;
    for (int q = 0; q < ranks; q++)
        m->ready[count++] = (struct pollfd){ .fd = m->peer[q].control, .events = POLLRDHUP };
    if (poll(m->ready, (nfds_t)count, MOMENT) <= 0)
        return;
    for (int q = 0; q < ranks; q++)
        if (m->ready[callers + q].revents)
            rt_meeting_mourn(m, q);
}

/* "1, 4-7 and 9" of those that lack a connection of this kind. */
char *rt_meeting_missing(const RtMeeting *m, bool of_data, int first)
{
    int ranks = m->launch->ranks;
    char *text = rt_text("%s", "");
    for (int q = first; q < ranks; q++) {
        int begin = q;
        while (q < ranks && (of_data ? m->peer[q].data : m->peer[q].control) < 0)
            q++;
        if (q == begin)
            continue;
        rt_append(&text, "%s%d", *text ? ", " : "", begin);
        if (q - begin > 1)
            rt_append(&text, "-%d", q - 1);
    }
    return text;
}
