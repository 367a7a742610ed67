/* tcp_hello.c -- the message by which a process identifies itself when it connects. */
#include "tcp.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <unistd.h>

#define MAGIC "mpcrank4" /* eight letters; the number is the version of the protocol */

_Static_assert(sizeof(RtHello) == 152, "a hello has no padding, which would be sent and signed");

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

RtHello rt_hello_own(const RtLaunch *launch)
{
    RtHello hello = { .rank = launch->own.rank, .ranks = launch->own.ranks, .job = launch->job };
    memcpy(hello.magic, MAGIC, sizeof hello.magic); /* without the end of the string */
    RtProcess *own = &hello.process;
    gethostname(own->host, sizeof own->host - 1);
    own->machine = hash_of_file("/proc/sys/kernel/random/boot_id");
    if (!own->machine)
        own->machine = rt_launch_hash(0, own->host, sizeof own->host);
    own->pid = getpid();
    hello.program = hash_of_file("/proc/self/exe");
    if (!hello.program)
        rt_fail("cannot read /proc/self/exe, by which ranks tell that they run the same program: is /proc mounted?");
    return hello;
}

bool rt_hello_is_of_magic(const RtHello *hello, size_t received)
{
    return memcmp(hello->magic, MAGIC, received < sizeof hello->magic ? received : sizeof hello->magic) == 0;
}

bool rt_hello_is_of_run(const RtHello *hello, const RtHello *own)
{
    bool has_job = hello->job && own->job;
    return hello->ranks == own->ranks && (!has_job || hello->job == own->job);
}

/* The host name from a peer is untrusted. */
char *rt_process_text(const RtProcess *process)
{
    char *text = rt_text("process %lld on %.*s", (long long)process->pid, (int)sizeof process->host, process->host);
    for (char *c = text; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    return text;
}
