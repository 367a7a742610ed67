/* tcp_socket.c -- listening, connecting, reading and writing with a deadline. */
#include "tcp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

/* --- Addresses ------------------------------------------------------------------------------------- */

/* Of the older family if there is one, so that all ranks take the same. */
bool rt_socket_resolve(const char *host, int port, RtAddress *address, const char **why)
{
    struct addrinfo *found = NULL;
    int status = EAI_NONAME;
    for (int i = 0; i < 2 && status; i++) {
        struct addrinfo hints = { .ai_family = i ? AF_INET6 : AF_INET, .ai_socktype = SOCK_STREAM };
        status = getaddrinfo(host, NULL, &hints, &found);
    }
    if (status) {
        *why = status == EAI_SYSTEM ? strerror(errno) : gai_strerror(status);
        return false;
    }
    *address = (RtAddress){ .length = found->ai_addrlen };
    memcpy(&address->at, found->ai_addr, found->ai_addrlen);
    rt_socket_set_port(address, port);
    freeaddrinfo(found);
    return true;
}

RtAddressText rt_socket_text(const RtAddress *address)
{
    char host[NI_MAXHOST];
    RtAddressText text;
    if (getnameinfo((const struct sockaddr *)&address->at, address->length, host, sizeof host, NULL, 0, NI_NUMERICHOST))
        snprintf(host, sizeof host, "an unknown address");
    snprintf(text.text, sizeof text.text, strchr(host, ':') ? "[%.64s]:%d" : "%.64s:%d", host, rt_socket_port(address));
    return text;
}

int rt_socket_port(const RtAddress *address)
{
    return ntohs(address->at.ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)&address->at)->sin6_port
                                                   : ((const struct sockaddr_in *)&address->at)->sin_port);
}

void rt_socket_set_port(RtAddress *address, int port)
{
    if (address->at.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&address->at)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)&address->at)->sin_port = htons((uint16_t)port);
}

bool rt_socket_is_loopback(const RtAddress *address)
{
    if (address->at.ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)&address->at)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)&address->at)->sin_addr.s_addr) >> 24 == 127;
}

RtAddress rt_socket_wildcard(int family)
{
    RtAddress address = { .at.ss_family = (sa_family_t)family };
    address.length = family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    return address; /* the address of all zeros */
}

RtAddress rt_socket_own(int socket)
{
    RtAddress address = { .length = sizeof address.at };
    getsockname(socket, (struct sockaddr *)&address.at, &address.length);
    return address;
}

RtAddress rt_socket_peer(int socket)
{
    RtAddress address = { .length = sizeof address.at };
    getpeername(socket, (struct sockaddr *)&address.at, &address.length);
    return address;
}

/* --- Connections ----------------------------------------------------------------------------------- */

static int fail_with(int socket, int reason)
{
    close(socket);
    errno = reason;
    return -1;
}

int rt_socket_listen(const RtAddress *address, int backlog)
{
    int listener = socket(address->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (listener < 0)
        return -1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (const struct sockaddr *)&address->at, address->length) || listen(listener, backlog))
        return fail_with(listener, errno);
    return listener;
}

/* Waits for `events` of one socket; false with errno. */
static bool await(int socket, short events, double until)
{
    for (;;) {
        double left = until - rt_seconds();
        struct pollfd ready = { .fd = socket, .events = events };
        int count = poll(&ready, 1, left <= 0 ? 0 : left > 1000 ? 1000000 : (int)(1000 * left) + 1);
        if (count > 0)
            return true;
        if (count == 0 && left <= 0) {
            errno = ETIMEDOUT;
            return false;
        }
        if (count < 0 && errno != EINTR)
            return false;
    }
}

/* Where nobody listens, a port that the kernel picks for this end may be the very one that is called. */
static bool is_to_itself(int link)
{
    RtAddress own = rt_socket_own(link), peer = rt_socket_peer(link);
    return own.length == peer.length && !memcmp(&own.at, &peer.at, own.length);
}

int rt_socket_connect(const RtAddress *address, double until)
{
    int link = socket(address->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), reason = 0;
    socklen_t length = sizeof reason;
    if (link < 0)
        return -1;
    if (connect(link, (const struct sockaddr *)&address->at, address->length)) {
        if (errno != EINPROGRESS && errno != EINTR)
            return fail_with(link, errno);
        if (!await(link, POLLOUT, until))
            return fail_with(link, errno);
        if (getsockopt(link, SOL_SOCKET, SO_ERROR, &reason, &length))
            return fail_with(link, errno);
        if (reason)
            return fail_with(link, reason);
    }
    if (is_to_itself(link))
        return fail_with(link, ECONNREFUSED);
    return link;
}

bool rt_socket_write(int socket, const void *bytes, size_t count, double until)
{
    for (size_t done = 0; done < count;) {
        ssize_t some = send(socket, (const char *)bytes + done, count - done, MSG_NOSIGNAL);
        if (some > 0)
            done += (size_t)some;
        else if (errno == EAGAIN ? !await(socket, POLLOUT, until) : errno != EINTR)
            return false;
    }
    return true;
}

bool rt_socket_read(int socket, void *bytes, size_t count, double until)
{
    for (size_t done = 0; done < count;) {
        ssize_t some = recv(socket, (char *)bytes + done, count - done, 0);
        if (some == 0)
            errno = 0;
        if (some > 0)
            done += (size_t)some;
        else if (some == 0 || (errno == EAGAIN ? !await(socket, POLLIN, until) : errno != EINTR))
            return false;
    }
    return true;
}
