/* tcp_socket.c -- addresses; listening, connecting, reading and writing.  No socket blocks: whoever waits, waits until
 * a time. */
#include "tcp.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
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

int rt_socket_accept(int listener)
{
    int connection = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connection >= 0)
        tune(connection);
    return connection;
}

int rt_socket_connect(const RtAddress *address)
{
    int connection = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connection < 0)
        return -1;
    tune(connection);
    if (connect(connection, &address->any, length_of(address)) && errno != EINPROGRESS)
        return fail_with(connection, errno);
    return connection;
}

/* If there is no listener, the kernel may choose the destination port as the local port. */
static bool is_to_itself(int connection)
{
    RtAddress own = rt_socket_address(connection), peer = rt_socket_peer(connection);
    return own.any.sa_family != AF_UNIX && !memcmp(&own, &peer, sizeof own);
}

int rt_socket_error(int connection)
{
    int reason = 0;
    getsockopt(connection, SOL_SOCKET, SO_ERROR, &reason, &(socklen_t){ sizeof reason });
    return reason ? reason : is_to_itself(connection) ? ECONNREFUSED : 0;
}

/* --- Waiting ---------------------------------------------------------------------------------------- */

int rt_milliseconds_until(double until)
{
    const double most = 1e9;
    double left = 1000 * (until - rt_seconds());
    return left <= 0 ? 0 : (int)fmin(left, most) + 1;
}

/* After a call that would have blocked: true if it can be repeated. */
static bool await(int socket, short events, double until)
{
    struct pollfd ready = { .fd = socket, .events = events };
    if (errno == EINTR)
        return true;
    if (errno != EAGAIN)
        return false;
    int count = poll(&ready, 1, rt_milliseconds_until(until));
    errno = count == 0 ? ETIMEDOUT : errno;
    return count > 0 || (count < 0 && errno == EINTR);
}

bool rt_socket_write(int socket, const void *bytes, size_t count, double until)
{
    const char *at = bytes;
    for (ssize_t some; count > 0; at += some, count -= (size_t)some)
        while ((some = send(socket, at, count, MSG_NOSIGNAL)) < 0)
            if (!await(socket, POLLOUT, until))
                return false;
    return true;
}

bool rt_socket_read(int socket, void *bytes, size_t count, double until)
{
    char *at = bytes;
    for (ssize_t some; count > 0; at += some, count -= (size_t)some) {
        while ((some = recv(socket, at, count, 0)) < 0)
            if (!await(socket, POLLIN, until))
                return false;
        if (some == 0) {
            errno = 0;
            return false;
        }
    }
    return true;
}
