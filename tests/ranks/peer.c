/* peer.c -- whom rt_peer_kill kills: the process at the other end of a connection, if it is of this program, and nobody
 * else. Prints a line for each case; ends with the first that is wrong. */
#include "net/tcp.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    int connection; /* this end */
    pid_t pid;      /* of a child, which has the other */
} Other;

static void expect(bool is_right, const char *what)
{
    printf("%s\n", what);
    fflush(stdout);
    if (!is_right)
        exit(1);
}

/* A child that connects to `listener`, as a Unix socket knows who has connected. */
static Other start(int listener, const RtAddress *address, bool is_other_program)
{
    RtAddress at = address->any.sa_family == AF_UNIX ? *address : rt_socket_address(listener);
    Other other = { .pid = fork() };
    struct pollfd ready = { .fd = listener, .events = POLLIN };
    if (other.pid == 0) {
        int connection = rt_socket_connect(&at);
        if (is_other_program && dup(connection) >= 0) /* the copy stays open */
            execlp("sleep", "sleep", "60", NULL);
        alarm(60);
        pause();
        _exit(0);
    }
    poll(&ready, 1, 30000);
    other.connection = rt_socket_accept(listener);
    return other;
}

static bool kills(int connection, int64_t pid)
{
    const RtProcess process = { .pid = pid };
    return rt_peer_kill(connection, &process);
}

static bool lives(Other other) { return waitpid(other.pid, NULL, WNOHANG) == 0; }

static void end(Other other)
{
    kill(other.pid, SIGKILL);
    waitpid(other.pid, NULL, 0);
    close(other.connection);
}

/* Has it become `sleep`?  Until then it is this program. */
static void await_other_program(pid_t pid)
{
    char path[32], name[8] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    while (strncmp(name, "sleep", 5)) {
        FILE *file = fopen(path, "r");
        if (!file || !fgets(name, sizeof name, file))
            exit(2);
        fclose(file);
    }
}

static void check(const RtAddress *address, const char *kind)
{
    int listener = rt_socket_listen(address, 8), status;
    if (listener < 0 && errno == EADDRNOTAVAIL)
        return;
    Other one = start(listener, address, false), another = start(listener, address, false);
    Other stranger = start(listener, address, true);
    await_other_program(stranger.pid);
    printf("%s: ", kind);
    expect(!kills(one.connection, another.pid) && lives(another), "not another process of the program");
    expect(!kills(one.connection, getpid()) && !kills(one.connection, getppid()), "not itself or its parent");
    expect(!kills(one.connection, ((int64_t)1 << 32) + one.pid) && lives(one), "not by a number of more bits");
    expect(!kills(stranger.connection, stranger.pid) && lives(stranger), "not another program");
    expect(kills(one.connection, one.pid) && waitpid(one.pid, &status, 0) == one.pid && WIFSIGNALED(status),
           "the other end");
    end(another);
    end(stranger);
    close(listener);
}

int main(int argc, char **argv)
{
    const RtAddress v4 = { .v4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) } };
    const RtAddress v6 = { .v6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT } };
    RtAddress path = { .unix_path.sun_family = AF_UNIX };
    if (argc != 2)
        return 2;
    snprintf(path.unix_path.sun_path, sizeof path.unix_path.sun_path, "%s", argv[1]);
    check(&v4, "IPv4");
    check(&v6, "IPv6");
    check(&path, "Unix");
    return 0;
}
