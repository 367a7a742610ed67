/* tcp_handshake.c -- two processes identify themselves to each other, and prove that they know the run's secret.
 *
 *   1  caller -> called    its hello, with a nonce
 *   2  called -> caller    its hello, with a nonce
 *   3  caller -> called    HMAC(key, "caller" hellos)
 *   4  called -> caller    verdict, HMAC(key, "called" hellos)
 *
 * HMAC is HMAC-SHA256 (RFC 2104, FIPS 180-4) of OpenSSL's libcrypto; "hellos" are the messages 1 and 2 as sent; labels
 * have eight bytes.  Both nonces are new for each connection, so that what was recorded proves nothing; the labels and
 * the ranks within the hellos differ, so that no side can be made to prove for the other.  The caller proves first: who
 * can only connect, and not listen at a rank's address, gets nothing with which to try secrets.
 *
 * The key is the secret, to join rank 0; for connections after that HMAC(secret, random number of rank 0).  Without a
 * secret the first is empty, and proves only that both speak the protocol; the second is known to those who joined. */
#include "tcp.h"

#if !__has_include(<openssl/hmac.h>)
#error "the headers of OpenSSL's libcrypto are missing: install libssl-dev (Debian, Ubuntu) or openssl-devel (Fedora)"
#endif

#include <errno.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

/* --- Proofs ------------------------------------------------------------------------------------------ */

void rt_random(void *bytes, size_t count)
{
    if (getrandom(bytes, count, 0) != (ssize_t)count)
        rt_fail("the system provides no random numbers");
}

RtProof rt_proof_of(const void *key, size_t key_bytes, const void *bytes, size_t count)
{
    RtProof proof;
    unsigned int length = sizeof proof.bytes;
    if (!HMAC(EVP_sha256(), key, (int)key_bytes, bytes, count, proof.bytes, &length))
        rt_fail("OpenSSL's libcrypto cannot compute HMAC-SHA256: is its configuration (openssl.cnf) broken?");
    return proof;
}

/* Takes a time that does not depend on where the two differ. */
bool rt_proofs_equal(const RtProof *a, const RtProof *b) { return CRYPTO_memcmp(a, b, sizeof *a) == 0; }

static RtProof proof_of(const RtHandshake *h, const RtKeys *keys, const char *label)
{
    struct {
        char label[8];
        RtHello caller, called;
    } said = { .caller = h->caller, .called = h->called };
    memcpy(said.label, label, strlen(label));
    return h->caller.kind == RT_HELLO_JOIN ? rt_proof_of(keys->secret, strlen(keys->secret), &said, sizeof said)
                                           : rt_proof_of(&keys->run, sizeof keys->run, &said, sizeof said);
}

RtProof rt_handshake_session(const RtHandshake *h, const RtKeys *keys) { return proof_of(h, keys, "session"); }

const char *rt_verdict_text(RtVerdict verdict)
{
    static const char *const texts[] = { "is welcome", "does not know the secret of this run (MPC_SECRET)",
                                         "belongs to another run",
                                         "runs another program: start the same file everywhere",
                                         "has the number of another rank: give each its own (--rank)" };
    return texts[verdict];
}

/* --- Messages ---------------------------------------------------------------------------------------- */

/* A new connection has room for the few short messages. */
static bool send_message(const RtHandshake *h, const void *bytes, size_t count)
{
    return send(h->socket, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)count;
}

RtHandshake rt_handshake_call(int socket, const RtHello *own)
{
    RtHandshake h = { .socket = socket, .has_called = true, .caller = *own };
    rt_random(h.caller.nonce, sizeof h.caller.nonce);
    send_message(&h, &h.caller, sizeof h.caller); /* if it fails, reading fails */
    return h;
}

RtHandshake rt_handshake_answer(int socket, const RtHello *own)
{
    RtHandshake h = { .socket = socket, .called = *own };
    rt_random(h.called.nonce, sizeof h.called.nonce);
    return h;
}

bool rt_handshake_decide(RtHandshake *h, const RtKeys *keys, RtVerdict verdict)
{
    h->verdict = verdict;
    h->last.verdict = (int32_t)verdict;
    h->last.proof = verdict == RT_WELCOME ? proof_of(h, keys, "called") : (RtProof){ { 0 } };
    return send_message(h, &h->last, sizeof h->last);
}

/* --- Steps ------------------------------------------------------------------------------------------- */

static RtShakeState take_hello(RtHandshake *h, const RtKeys *keys)
{
    if (h->has_called) {
        RtProof proof = proof_of(h, keys, "caller");
        h->step = RT_STEP_VERDICT;
        return send_message(h, &proof, sizeof proof) ? RT_SHAKE_WAITS : RT_SHAKE_CLOSED;
    }
    if (h->caller.kind > RT_HELLO_DATA)
        return RT_SHAKE_FOREIGN;
    h->step = RT_STEP_PROOF;
    return send_message(h, &h->called, sizeof h->called) ? RT_SHAKE_WAITS : RT_SHAKE_CLOSED;
}

static RtShakeState take_proof(RtHandshake *h, const RtKeys *keys)
{
    bool joins = h->caller.kind == RT_HELLO_JOIN, has_key = joins || keys->has_run;
    RtProof expected = proof_of(h, keys, "caller");
    if (has_key && rt_proofs_equal(&h->last.proof, &expected))
        return RT_SHAKE_PROVEN;
    rt_handshake_decide(h, keys, joins ? RT_HAS_NO_SECRET : RT_IS_OF_OTHER_RUN);
    return RT_SHAKE_FALSE;
}

static RtShakeState take_verdict(RtHandshake *h, const RtKeys *keys)
{
    RtProof expected = proof_of(h, keys, "called");
    if (h->last.verdict < 0 || h->last.verdict >= RT_VERDICTS)
        return RT_SHAKE_FOREIGN;
    h->verdict = (RtVerdict)h->last.verdict;
    if (h->verdict != RT_WELCOME)
        return RT_SHAKE_REFUSED;
    return rt_proofs_equal(&h->last.proof, &expected) ? RT_SHAKE_PROVEN : RT_SHAKE_FALSE;
}

RtShakeState rt_handshake_progress(RtHandshake *h, const RtKeys *keys)
{
    static RtShakeState (*const take[])(RtHandshake *, const RtKeys *) = { take_hello, take_proof, take_verdict };
    RtHello *hello = h->has_called ? &h->called : &h->caller;
    RtShakeState state = RT_SHAKE_WAITS;
    while (state == RT_SHAKE_WAITS) {
        char *message = h->step == RT_STEP_HELLO   ? (char *)hello
                        : h->step == RT_STEP_PROOF ? (char *)&h->last.proof
                                                   : (char *)&h->last;
        size_t bytes = h->step == RT_STEP_HELLO   ? sizeof *hello
                       : h->step == RT_STEP_PROOF ? sizeof h->last.proof
                                                  : sizeof h->last;
        ssize_t some = recv(h->socket, message + h->received, bytes - h->received, MSG_DONTWAIT);
        if (some < 0 && (errno == EAGAIN || errno == EINTR))
            return RT_SHAKE_WAITS;
        if (some <= 0) {
            errno = some ? errno : 0;
            return RT_SHAKE_CLOSED;
        }
        h->received += (size_t)some;
        if (h->step == RT_STEP_HELLO && !rt_hello_is_of_magic(hello, h->received))
            return RT_SHAKE_FOREIGN;
        if (h->received < bytes)
            continue;
        h->received = 0;
        state = take[h->step](h, keys);
    }
    return state;
}
