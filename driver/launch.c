/* launch.c -- processes of ranks: start, signals, ends. */
#define _GNU_SOURCE /* for prctl */
#include "launch.h"

#include "runtime/process.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    int count, living;
    pid_t *pid; /* 0: it has ended */
    const Launcher *launcher;
    Ended ended;
    time_t failed; /* when the first failed, by the monotonic clock; 0: none did */
    int told;      /* the others, since then: by SIGTERM 1, by SIGKILL 2 */
} Ranks;

/* --- Start --------------------------------------------------------------------------------- */

/* One that is free now; 0 after an error. */
static int free_port(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool good = file >= 0 && bind(file, (struct sockaddr *)&address, sizeof address) == 0 &&
                      getsockname(file, (struct sockaddr *)&address, &size) == 0;
    if (file >= 0)
        close(file);
    return good ? ntohs(address.sin_port) : 0;
}

/* Other users of this machine can connect, too.  Each start has its own. */
static bool set_secret(const Launcher *launcher, Arena *arena)
{
    unsigned char bytes[16];
    char *text = NEW_ARRAY(arena, char, 2 * sizeof bytes + 1);
    if (launcher->has_secret)
        return true;
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
    return setenv("MPC_SECRET", text, true) == 0;
}

static bool set_number(const char *name, int number)
{
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    return setenv(name, text, true) == 0;
}

static bool set_meeting(Run *run, const Launcher *launcher, int ranks)
{
    const int port = free_port();
    return (port && set_secret(launcher, &run->arena) && setenv("MASTER_ADDR", "127.0.0.1", true) == 0 &&
            set_number("MASTER_PORT", port) && set_number("WORLD_SIZE", ranks) &&
            set_number("LOCAL_WORLD_SIZE", ranks)) ||
           run_failed(run, "cannot prepare ranks that communicate by TCP: %s", strerror(errno));
}

/* In the new process. */
static void become_rank(const Ranks *ranks, const char *const argv[], int rank, bool over_tcp, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) /* it has ended already */
        _exit(STATUS_FAILED);
    sigprocmask(SIG_SETMASK, &ranks->launcher->before, NULL);
    if (!over_tcp || (set_number("RANK", rank) && set_number("LOCAL_RANK", rank)))
        execvp(argv[0], (char *const *)argv);
    fprintf(stderr, "mpc run: error: cannot start %s: %s\n", argv[0], strerror(errno));
    _exit(STATUS_FAILED);
}

static bool start_ranks(Run *run, Ranks *ranks, const char *const argv[], bool over_tcp)
{
    const pid_t parent = getpid();
    for (int i = 0; i < ranks->count; i++) {
        ranks->pid[i] = fork();
        if (ranks->pid[i] == 0)
            become_rank(ranks, argv, i, over_tcp, parent);
        if (ranks->pid[i] < 0) {
            ranks->pid[i] = 0;
            return run_failed(run, "cannot start rank %d: %s", i, strerror(errno));
        }
        ranks->living++;
    }
    return true;
}

/* --- Signals and ends ---------------------------------------------------------------------- */

/* Seconds of the monotonic clock, never 0. */
static time_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1;
}

static void send_to_all(const Ranks *ranks, int signal)
{
    for (int i = 0; i < ranks->count; i++)
        if (ranks->pid[i])
            kill(ranks->pid[i], signal);
}

static void note_end(Ranks *ranks, pid_t pid, int status)
{
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    for (int i = 0; i < ranks->count; i++) {
        if (ranks->pid[i] != pid)
            continue;
        ranks->pid[i] = 0;
        ranks->living--;
        if (code && !ranks->failed) {
            ranks->failed = now();
            ranks->ended.status = code;
            ranks->ended.rank = i;
        }
    }
}

static void collect_ended(Ranks *ranks)
{
    pid_t pid;
    int status;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        note_end(ranks, pid, status);
}

/* Ranks notice that another one has failed, and end; one that has not met the others yet may wait for it. */
static void end_others(Ranks *ranks)
{
    enum { PATIENCE = 15 }; /* seconds */
    static const int signals[] = { SIGTERM, SIGKILL };
    if (ranks->failed && ranks->told < 2 && now() - ranks->failed >= PATIENCE * (ranks->told + 1))
        send_to_all(ranks, signals[ranks->told++]);
}

/* A terminal sends its signals to the ranks as well. */
static void wait_for_ranks(Ranks *ranks)
{
    while (ranks->living) {
        siginfo_t info;
        const int signal = sigtimedwait(&ranks->launcher->watched, &info, &(struct timespec){ .tv_sec = 1 });
        if (signal > 0 && signal != SIGCHLD) {
            ranks->ended.signal = signal;
            if (info.si_code != SI_KERNEL)
                send_to_all(ranks, signal);
        }
        collect_ended(ranks);
        end_others(ranks);
    }
}

/* --- The interface ------------------------------------------------------------------------- */

void launch_open(Launcher *launcher)
{
    static const int watched[] = { SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };
    launcher->has_secret = getenv("MPC_SECRET");
    launcher->watched = rt_signal_set(watched, sizeof watched / sizeof *watched);
    sigprocmask(SIG_BLOCK, &launcher->watched, &launcher->before);
}

void launch_close(const Launcher *launcher) { sigprocmask(SIG_SETMASK, &launcher->before, NULL); }

Ended launch(Run *run, Launcher *launcher, const char *const argv[], int count, bool over_tcp)
{
    static const Ended not_started = { .status = STATUS_FAILED, .rank = -1 };
    Ranks ranks = { .count = count, .pid = NEW_ARRAY(&run->arena, pid_t, count), .launcher = launcher };
    if (over_tcp && !set_meeting(run, launcher, count))
        return not_started;
    fflush(stdout);
    const bool started = start_ranks(run, &ranks, argv, over_tcp);
    if (!started)
        send_to_all(&ranks, SIGKILL);
    wait_for_ranks(&ranks);
    return started ? ranks.ended : not_started;
}

int launch_pause(const Launcher *launcher, int seconds)
{
    enum { MOMENTS = 10 }; /* a second has so many */
    static const struct timespec moment = { .tv_nsec = 1000000000 / MOMENTS };
    for (int i = 0; i < seconds * MOMENTS; i++) {
        const int signal = sigtimedwait(&launcher->watched, NULL, &moment);
        if (signal > 0 && signal != SIGCHLD)
            return signal;
    }
    return 0;
}
