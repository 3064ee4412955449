// comm_tcp_hello.c — who is at the other end of a connection.
//
//     who listens  ── magic, nonce a ────────────────────────────▶  who comes
//                  ◀── magic, nonce b, rank ..., HMAC(a, hello) ──
//                  ── verdict, HMAC(b, a, rank) ─────────────────▶
//
// Both sides show that they know the secret; what either says is of use for this connection alone.
// Whoever listens serves all that come at the same time, so that one who says nothing delays
// nobody; when the list is full the oldest has to go.
#include "device/comm_tcp.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAGIC "rncomm2"

typedef struct welcome {
    uint32_t verdict; // WELCOME or UNKNOWN
    uint8_t mac[RN_SHA256_BYTES];
} welcome;
enum { WELCOME = 1, UNKNOWN = 2 };

// ---- waiting ------------------------------------------------------------------------------------

static int left_ms(uint64_t end_ns) {
    uint64_t now = rn_clock_ns(), ms = now < end_ns ? (end_ns - now + 999999) / 1000000 : 0;
    return ms < 3600000 ? (int)ms : 3600000;
}

bool rn_tcp_wait(int socket, short events, uint64_t end_ns) {
    struct pollfd poll_for = {.fd = socket, .events = events};
    int n;
    do
        n = poll(&poll_for, 1, left_ms(end_ns));
    while (n < 0 && errno == EINTR);
    return n > 0;
}

bool rn_tcp_move(int socket, void *data, size_t bytes, bool sends, uint64_t end_ns) {
    uint8_t *at = data;
    while (bytes) {
        if (!rn_tcp_wait(socket, sends ? POLLOUT : POLLIN, end_ns)) return false;
        ssize_t n = sends ? send(socket, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                          : recv(socket, at, bytes, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
        if (n < 0) continue;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

// ---- proofs -------------------------------------------------------------------------------------

static bool draw_nonce(uint8_t out[RN_TCP_NONCE]) {
    return getrandom(out, RN_TCP_NONCE, 0) == RN_TCP_NONCE;
}

// Of who comes: the challenge and all of its hello but the mac.
static void sign_hello(const rn_tcp_secret *secret, const rn_tcp_challenge *challenge,
                       const rn_tcp_hello *hello, uint8_t out[RN_SHA256_BYTES]) {
    struct {
        char role[8];
        rn_tcp_challenge challenge;
        rn_tcp_hello hello;
    } text = {"comes", *challenge, *hello};
    memset(text.hello.mac, 0, sizeof text.hello.mac);
    rn_hmac_sha256(secret->key, sizeof secret->key, &text, sizeof text, out);
}

// Of who listens: the hello, which holds the challenge's proof, and its rank.
static void sign_welcome(const rn_tcp_secret *secret, const rn_tcp_hello *hello, uint32_t rank,
                         uint8_t out[RN_SHA256_BYTES]) {
    struct {
        char role[8];
        rn_tcp_hello hello;
        uint32_t rank, none;
    } text = {"listens", *hello, rank, 0};
    rn_hmac_sha256(secret->key, sizeof secret->key, &text, sizeof text, out);
}

// ---- who comes ----------------------------------------------------------------------------------

rn_tcp_answer rn_tcp_greet(int socket, const rn_tcp_secret *secret, rn_tcp_hello *hello,
                           uint32_t to, uint64_t end_ns) {
    rn_tcp_challenge challenge;
    welcome answer;
    uint8_t expected[RN_SHA256_BYTES];
    if (!rn_tcp_move(socket, &challenge, sizeof challenge, false, end_ns) ||
        memcmp(challenge.magic, MAGIC, sizeof challenge.magic) != 0 || !draw_nonce(hello->nonce))
        return RN_TCP_NOBODY;
    memcpy(hello->magic, MAGIC, sizeof hello->magic);
    sign_hello(secret, &challenge, hello, hello->mac);
    if (!rn_tcp_move(socket, hello, sizeof *hello, true, end_ns) ||
        !rn_tcp_move(socket, &answer, sizeof answer, false, end_ns))
        return RN_TCP_NOBODY;
    if (answer.verdict == UNKNOWN) return RN_TCP_UNKNOWN;
    sign_welcome(secret, hello, to, expected);
    bool known = answer.verdict == WELCOME && rn_sha256_equal(answer.mac, expected);
    return known ? RN_TCP_WELCOME : RN_TCP_NOBODY;
}

// ---- who listens --------------------------------------------------------------------------------

static void forget_guest(rn_tcp_door *door, uint32_t i) {
    door->guest_count--;
    memmove(&door->guests[i], &door->guests[i + 1],
            (door->guest_count - i) * sizeof door->guests[0]);
}

static void close_guest(rn_tcp_door *door, uint32_t i) {
    close(door->guests[i].socket);
    forget_guest(door, i);
}

static void note_unknown(rn_tcp_door *door, const rn_tcp_guest *guest) {
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&guest->from;
    const struct sockaddr_in *four = (const struct sockaddr_in *)&guest->from;
    bool is_six = guest->from.ss_family == AF_INET6;
    const void *address = is_six ? (const void *)&six->sin6_addr : &four->sin_addr;
    door->unknown++;
    if (!inet_ntop(guest->from.ss_family, address, door->last, sizeof door->last))
        door->last[0] = 0;
}

static void let_in(rn_tcp_door *door) {
    rn_tcp_guest guest = {.end_ns = rn_clock_ns() + (uint64_t)RN_TCP_PATIENCE_S * 1000000000};
    socklen_t bytes = sizeof guest.from;
    guest.socket = accept4(door->listener, (struct sockaddr *)&guest.from, &bytes,
                           SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (guest.socket < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); // until others are closed
        return;
    }
    memcpy(guest.challenge.magic, MAGIC, sizeof guest.challenge.magic);
    // The first bytes of a connection always find room.
    if (!draw_nonce(guest.challenge.nonce) ||
        send(guest.socket, &guest.challenge, sizeof guest.challenge, MSG_NOSIGNAL) !=
            (ssize_t)sizeof guest.challenge) {
        close(guest.socket);
        return;
    }
    if (door->guest_count == RN_TCP_GUESTS) {
        door->strangers++;
        close_guest(door, 0);
    }
    door->guests[door->guest_count++] = guest;
}

static void answer(const rn_tcp_door *door, const rn_tcp_guest *guest, uint32_t verdict) {
    welcome reply = {.verdict = verdict};
    if (verdict == WELCOME) sign_welcome(door->secret, &guest->hello, door->rank, reply.mac);
    (void)!send(guest->socket, &reply, sizeof reply, MSG_NOSIGNAL);
}

// True: it has shown that it knows the secret.
static bool hear(rn_tcp_door *door, uint32_t i) {
    rn_tcp_guest *guest = &door->guests[i];
    uint8_t expected[RN_SHA256_BYTES];
    ssize_t n = recv(guest->socket, (uint8_t *)&guest->hello + guest->bytes,
                     sizeof guest->hello - guest->bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    guest->bytes += n > 0 ? (size_t)n : 0;
    size_t magic =
        guest->bytes < sizeof guest->hello.magic ? guest->bytes : sizeof guest->hello.magic;
    bool speaks = n > 0 && memcmp(guest->hello.magic, MAGIC, magic) == 0;
    if (!speaks) {
        door->strangers++;
        close_guest(door, i);
        return false;
    }
    if (guest->bytes < sizeof guest->hello) return false;
    sign_hello(door->secret, &guest->challenge, &guest->hello, expected);
    bool known = rn_sha256_equal(guest->hello.mac, expected);
    answer(door, guest, known ? WELCOME : UNKNOWN);
    if (known) return true;
    note_unknown(door, guest);
    close_guest(door, i);
    return false;
}

static void close_late(rn_tcp_door *door) {
    while (door->guest_count && door->guests[0].end_ns <= rn_clock_ns()) {
        door->strangers++;
        close_guest(door, 0);
    }
}

bool rn_tcp_door_wait(rn_tcp_door *door, uint64_t end_ns, rn_tcp_guest *out) {
    struct pollfd polls[RN_TCP_GUESTS + 1];
    do {
        uint32_t count = door->guest_count;
        uint64_t until = count && door->guests[0].end_ns < end_ns ? door->guests[0].end_ns : end_ns;
        for (uint32_t i = 0; i < count; i++)
            polls[i] = (struct pollfd){.fd = door->guests[i].socket, .events = POLLIN};
        polls[count] = (struct pollfd){.fd = door->listener, .events = POLLIN};
        if (poll(polls, count + 1, left_ms(until)) > 0) {
            for (uint32_t i = count; i-- > 0;) { // from behind: a guest may leave the list
                if (!polls[i].revents || !hear(door, i)) continue;
                *out = door->guests[i];
                forget_guest(door, i);
                return true;
            }
            if (polls[count].revents) let_in(door);
        }
        close_late(door);
    } while (rn_clock_ns() < end_ns);
    return false;
}

void rn_tcp_door_close(rn_tcp_door *door) {
    while (door->guest_count)
        close_guest(door, door->guest_count - 1);
    if (door->listener >= 0) close(door->listener);
    door->listener = -1;
}
