/* tcp_peer.c -- ends the process at the other end of a connection.
 *
 * A peer's own word for its number is no reason to kill what has that number here.  The kernel of this machine is
 * asked: of a Unix socket it knows the other end's process; of a TCP connection whose other end is on this machine it
 * lists the other socket (/proc/net/tcp), and which process holds that (/proc/PID/fd).  The process must also run the
 * program that this one runs, for the same user.  It is held by a file descriptor meanwhile, since its number may be
 * given to another as soon as it has ended. */
#include "tcp.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of Linux 5.3; the headers may be older. */
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* --- Which socket is at the other end ---------------------------------------------------------------- */

/* "0100007F:7532", as in /proc/net/tcp: words of 32 bits as numbers. */
static void write_address(const RtAddress *address, char text[48])
{
    uint32_t word[4] = { address->v4.sin_addr.s_addr };
    int words = address->any.sa_family == AF_INET ? 1 : 4;
    if (words == 4)
        memcpy(word, &address->v6.sin6_addr, sizeof word);
    for (int i = 0; i < words; i++)
        text += sprintf(text, "%08X", (unsigned)word[i]);
    sprintf(text, ":%04X", (unsigned)ntohs(address->v4.sin_port));
}

/* The inode of the socket from whose side the connection goes from `from` to `to`; 0: not on this machine. */
static unsigned long inode_of(const RtAddress *from, const RtAddress *to)
{
    char wanted[2][48], line[512], local[64], remote[64];
    unsigned long inode = 0, found;
    FILE *file = fopen(from->any.sa_family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6", "re");
    write_address(from, wanted[0]);
    write_address(to, wanted[1]);
    while (file && !inode && fgets(line, sizeof line, file))
        if (sscanf(line, "%*s %63s %63s %*s %*s %*s %*s %*s %*s %lu", local, remote, &found) == 3 &&
            !strcmp(local, wanted[0]) && !strcmp(remote, wanted[1]))
            inode = found;
    if (file)
        fclose(file);
    return inode;
}

/* --- Which process holds it -------------------------------------------------------------------------- */

static bool holds(pid_t pid, unsigned long inode)
{
    char folder[64], path[PATH_MAX], target[64], wanted[64];
    bool has = false;
    snprintf(folder, sizeof folder, "/proc/%d/fd", (int)pid);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *listing = opendir(folder);
    for (struct dirent *entry; listing && !has && (entry = readdir(listing));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        has = !strcmp(target, wanted);
    }
    if (listing)
        closedir(listing);
    return has;
}

static bool is_at_other_end(int connection, pid_t pid)
{
    RtAddress own = rt_socket_address(connection), peer = rt_socket_peer(connection);
    struct ucred who = { 0 };
    if (own.any.sa_family == AF_UNIX)
        return !getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &who, &(socklen_t){ sizeof who }) && who.pid == pid;
    unsigned long inode = inode_of(&peer, &own);
    return inode && holds(pid, inode);
}

static bool is_same_program(pid_t pid)
{
    char path[64];
    struct stat own, other, user;
    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    if (stat("/proc/self/exe", &own) || stat(path, &other))
        return false;
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    return own.st_dev == other.st_dev && own.st_ino == other.st_ino && !stat(path, &user) && user.st_uid == geteuid();
}

bool rt_peer_kill(int connection, const RtProcess *process)
{
    if (process->pid <= 1 || process->pid > INT_MAX || process->pid == getpid())
        return false;
    pid_t pid = (pid_t)process->pid;
    int held = (int)syscall(SYS_pidfd_open, pid, 0);
    bool is_killed = held >= 0 && is_at_other_end(connection, pid) && is_same_program(pid) &&
                     !syscall(SYS_pidfd_send_signal, held, SIGKILL, NULL, 0);
    if (held >= 0)
        close(held);
    return is_killed;
}
