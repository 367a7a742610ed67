/* tcp_socket.c -- addresses; listening, connecting, reading and writing with a time limit. */
#include "tcp.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/time.h>
#include <unistd.h>

/* --- Addresses ------------------------------------------------------------------------------------- */

/* IPv4 if the host has it, so that all ranks choose the same. */
bool rt_address_resolve(const char *host, int port, RtAddress *address, const char **why)
{
    struct addrinfo *found = NULL;
    int status = EAI_NONAME;
    *address = (RtAddress){ .unix_path.sun_family = AF_UNIX };
    if (*host == '/') {
        memcpy(address->unix_path.sun_path, host, strnlen(host, sizeof address->unix_path.sun_path - 1));
        return true;
    }
    for (int i = 0; i < 2 && status; i++) {
        struct addrinfo hints = { .ai_family = i ? AF_INET6 : AF_INET, .ai_socktype = SOCK_STREAM };
        status = getaddrinfo(host, NULL, &hints, &found);
    }
    if (status) {
        *why = status == EAI_SYSTEM ? strerror(errno) : gai_strerror(status);
        return false;
    }
    memcpy(address, found->ai_addr, found->ai_addrlen);
    address->v4.sin_port = htons((uint16_t)port);
    freeaddrinfo(found);
    return true;
}

static socklen_t length_of(const RtAddress *address)
{
    return address->any.sa_family == AF_INET    ? sizeof address->v4
           : address->any.sa_family == AF_INET6 ? sizeof address->v6
                                                : sizeof address->unix_path;
}

char *rt_address_text(const RtAddress *address)
{
    char host[80], port[8];
    if (address->any.sa_family == AF_UNIX)
        return rt_text("%s", *address->unix_path.sun_path ? address->unix_path.sun_path : "this machine");
    if (getnameinfo(&address->any, length_of(address), host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV))
        return rt_text("an unknown address");
    return rt_text(strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

bool rt_address_is_loopback(const RtAddress *address)
{
    sa_family_t family = address->any.sa_family;
    return family == AF_UNIX || (family == AF_INET && ntohl(address->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET) ||
           (family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr));
}

RtAddress rt_socket_address(int socket)
{
    RtAddress address = { 0 };
    getsockname(socket, &address.any, &(socklen_t){ sizeof address });
    return address;
}

RtAddress rt_socket_peer(int socket)
{
    RtAddress address = { 0 };
    getpeername(socket, &address.any, &(socklen_t){ sizeof address });
    return address;
}

/* --- Connections ----------------------------------------------------------------------------------- */

static int fail_with(int socket, int reason)
{
    close(socket);
    errno = reason;
    return -1;
}

/* Sends messages immediately, and detects a failed machine within a minute.  Not applicable to Unix sockets, where it
 * fails. */
static void tune(int socket)
{
    static const int options[][3] = {
        { IPPROTO_TCP, TCP_NODELAY, 1 },    { SOL_SOCKET, SO_KEEPALIVE, 1 }, { IPPROTO_TCP, TCP_KEEPIDLE, 20 },
        { IPPROTO_TCP, TCP_KEEPINTVL, 10 }, { IPPROTO_TCP, TCP_KEEPCNT, 4 },
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        setsockopt(socket, options[i][0], options[i][1], &options[i][2], sizeof(int));
}

int rt_socket_listen(const RtAddress *address, int backlog)
{
    int listener = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (listener < 0)
        return -1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, &address->any, length_of(address)) || listen(listener, backlog))
        return fail_with(listener, errno);
    return listener;
}

static int milliseconds_until(double until)
{
    const double most = 1e9;
    double left = 1000 * (until - rt_seconds());
    return left <= 0 ? 0 : (int)fmin(left, most) + 1;
}

int rt_socket_accept(int listener, double until)
{
    struct pollfd ready = { .fd = listener, .events = POLLIN };
    do {
        int count = poll(&ready, 1, milliseconds_until(until));
        int connection = count > 0 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (connection >= 0) {
            tune(connection);
            return connection;
        }
        if (count > 0 && errno == EMFILE)
            rt_fail("too many open files: raise the limit (ulimit -n) to more than two for each rank");
    } while (rt_seconds() < until);
    return -1;
}

/* If there is no listener, the kernel may choose the destination port as the local port. */
static bool is_to_itself(int connection)
{
    RtAddress own = rt_socket_address(connection), peer = rt_socket_peer(connection);
    return !memcmp(&own, &peer, sizeof own);
}

int rt_socket_connect(const RtAddress *address, double seconds)
{
    int connection = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0)
        return -1;
    tune(connection);
    rt_socket_set_timeout(connection, seconds);
    if (connect(connection, &address->any, length_of(address)))
        return fail_with(connection, errno == EINPROGRESS ? ETIMEDOUT : errno);
    return is_to_itself(connection) ? fail_with(connection, ECONNREFUSED) : connection;
}

void rt_socket_set_timeout(int socket, double seconds)
{
    const double least = 0.001, most = 1e6; /* 0 would be infinite */
    double bounded = fmin(fmax(seconds, least), most);
    struct timeval limit = { .tv_sec = (time_t)bounded, .tv_usec = (suseconds_t)(fmod(bounded, 1) * 1e6) };
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/* Has a blocking call transferred all bytes?  Fewer mean the end of the connection. */
static bool has_moved(ssize_t some, size_t count)
{
    errno = some >= 0 ? 0 : errno == EAGAIN ? ETIMEDOUT : errno;
    return some == (ssize_t)count;
}

bool rt_socket_write(int socket, const void *bytes, size_t count)
{
    ssize_t some;
    do
        some = send(socket, bytes, count, MSG_NOSIGNAL);
    while (some < 0 && errno == EINTR);
    return has_moved(some, count);
}

bool rt_socket_read(int socket, void *bytes, size_t count)
{
    ssize_t some;
    do
        some = recv(socket, bytes, count, MSG_WAITALL);
    while (some < 0 && errno == EINTR);
    return has_moved(some, count);
}
