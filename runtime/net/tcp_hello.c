/* tcp_hello.c -- the handshake: how a process identifies itself when it connects, and proves that it knows the run's
 * secret.
 *
 * The proof is SipHash-2-4 (J.-P. Aumasson, D. J. Bernstein, INDOCRYPT 2012) of all other fields of the hello, with the
 * secret as key.  A connection without a valid proof is dropped. */
#include "tcp.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "mpcrank3" /* eight letters; the number is the version of the protocol */

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

RtHello rt_hello_own(const RtLaunch *launch)
{
    RtHello hello = { .rank = launch->own.rank, .job = launch->job };
    memcpy(hello.magic, MAGIC, sizeof hello.magic); /* without the end of the string */
    RtProcess *own = &hello.process;
    struct stat space = { 0 };
    gethostname(own->host, sizeof own->host - 1);
    own->machine = hash_of_file("/proc/sys/kernel/random/boot_id");
    if (!own->machine)
        own->machine = rt_launch_hash(0, own->host, sizeof own->host);
    stat("/proc/self/ns/pid", &space); /* 0 if there is none */
    own->pid_namespace = rt_launch_hash(own->machine, &space.st_ino, sizeof space.st_ino);
    own->pid = getpid();
    hello.program = hash_of_file("/proc/self/exe");
    if (!hello.program)
        rt_fail("cannot read /proc/self/exe, by which ranks tell that they run the same program: is /proc mounted?");
    return hello;
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

/* --- Proof ----------------------------------------------------------------------------------------- */

static uint64_t rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

static void sip_rounds(uint64_t v[4], int count)
{
    for (int i = 0; i < count; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

static uint64_t siphash(const uint64_t key[2], const void *bytes, size_t count)
{
    uint64_t v[4] = { key[0] ^ 0x736F6D6570736575u, key[1] ^ 0x646F72616E646F6Du, key[0] ^ 0x6C7967656E657261u,
                      key[1] ^ 0x7465646279746573u };
    for (size_t at = 0; at <= count; at += 8) { /* the last word: remaining bytes, and the count in its last byte */
        uint64_t word = 0;
        memcpy(&word, (const char *)bytes + at, count - at < 8 ? count - at : 8);
        word |= count - at < 8 ? (uint64_t)count << 56 : 0;
        v[3] ^= word;
        sip_rounds(v, 2);
        v[0] ^= word;
    }
    v[2] ^= 0xFF;
    sip_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static uint64_t proof_of(const RtHello *hello, const char *secret)
{
    static const uint64_t first[] = { 1, 2 }, second[] = { 3, 4 }; /* hashes the secret to a key of two words */
    if (!secret)
        return 0;
    uint64_t key[] = { siphash(first, secret, strlen(secret)), siphash(second, secret, strlen(secret)) };
    return siphash(key, hello, offsetof(RtHello, proof));
}

/* --- Sending and receiving ------------------------------------------------------------------------- */

bool rt_hello_send(int socket, RtHello *hello, const char *secret)
{
    hello->proof = proof_of(hello, secret);
    return rt_socket_write(socket, hello, sizeof *hello);
}

/* Reads the magic first, so that it does not wait for more after a short line in another protocol. */
const char *rt_hello_receive(int socket, RtHello *hello, const char *secret)
{
    enum { PATIENCE = 5 }; /* seconds, during which others wait */
    const size_t first = sizeof hello->magic;
    rt_socket_set_timeout(socket, PATIENCE);
    if (!rt_socket_read(socket, hello, first))
        return "does not identify itself";
    if (memcmp(hello->magic, MAGIC, first))
        return "does not use the protocol of ranks";
    if (!rt_socket_read(socket, (char *)hello + first, sizeof *hello - first))
        return "does not identify itself";
    if (secret && hello->proof != proof_of(hello, secret))
        return "does not know the secret of this run (MPC_SECRET)";
    return NULL;
}
