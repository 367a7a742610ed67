/* tcp_proof.c -- SipHash-2-4 (J.-P. Aumasson, D. J. Bernstein, INDOCRYPT 2012) of what a rank says of itself: only who
 * knows the secret can make it, and a hello without it is dropped, however well it is formed. */
#include "tcp_meet.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <sys/random.h>

static uint64_t turned(uint64_t x, int by) { return x << by | x >> (64 - by); }

static void round_of(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = turned(v[1], 13) ^ v[0];
    v[3] = turned(v[3], 16) ^ v[2];
    v[0] = turned(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = turned(v[1], 17) ^ v[2];
    v[3] = turned(v[3], 21) ^ v[0];
    v[2] = turned(v[2], 32);
}

static void take_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    round_of(v);
    round_of(v);
    v[0] ^= word;
}

static uint64_t siphash(const uint64_t key[2], const void *bytes, size_t count)
{
    const char *from = bytes;
    uint64_t v[4] = { key[0] ^ 0x736F6D6570736575u, key[1] ^ 0x646F72616E646F6Du, key[0] ^ 0x6C7967656E657261u,
                      key[1] ^ 0x7465646279746573u };
    uint64_t last = (uint64_t)count << 56, word;
    for (; count >= 8; count -= 8, from += 8) {
        memcpy(&word, from, 8);
        take_word(v, word);
    }
    word = 0;
    memcpy(&word, from, count);
    take_word(v, last | word);
    v[2] ^= 0xFF;
    for (int i = 0; i < 4; i++)
        round_of(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

RtSecret rt_proof_secret(const char *text)
{
    static const uint64_t to_words[2][2] = { { 1, 2 }, { 3, 4 } }; /* a text of any length becomes a key of two words */
    RtSecret secret = { .is_known = text != NULL };
    for (int i = 0; text && i < 2; i++)
        secret.key[i] = siphash(to_words[i], text, strlen(text));
    return secret;
}

RtSecret rt_proof_new_secret(void)
{
    uint64_t random[2];
    char text[sizeof((RtSecret *)0)->text];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        rt_fail("this machine gives no random numbers");
    snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
    RtSecret secret = rt_proof_secret(text);
    memcpy(secret.text, text, sizeof text);
    return secret;
}

static uint64_t proof_of(const RtSecret *secret, const RtHello *hello)
{
    return secret->is_known ? siphash(secret->key, hello, offsetof(RtHello, proof)) : 0;
}

void rt_proof_sign(const RtSecret *secret, RtHello *hello) { hello->proof = proof_of(secret, hello); }

bool rt_proof_is_good(const RtSecret *secret, const RtHello *hello)
{
    return !secret->is_known || hello->proof == proof_of(secret, hello);
}
