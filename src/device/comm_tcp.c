// comm_tcp.c — messages between processes by sockets: a size (8 bytes), then the bytes.
//
// A message is moved as far as the sockets allow whenever one of its direction is looked at;
// notices have connections of their own, so that they never wait behind a message.
#include "device/comm_tcp.h"

#include "base/clock.h"
#include "memory/account.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define FROM RN_HOST_IO
enum { HEAD_BYTES = 8 };

// ---- life ---------------------------------------------------------------------------------------

static rn_status open_tcp(rn_comm *comm, const rn_comm_options *options) {
    rn_comm_launch launch = rn_comm_find_launch();
    void *block = NULL;
    (void)options;
    if (strcmp(launch.kind, "tcp") != 0)
        return rn_hint(rn_fail(RN_INVALID, "nothing says which rank this is"),
                       "start the ranks with `ration launch -n N ...` or torchrun, or set "
                       "RATION_RANK, RATION_RANKS and RATION_MASTER=HOST:PORT");
    comm->rank = launch.rank;
    comm->size = launch.ranks;
    if (comm->rank >= comm->size)
        return rn_fail(RN_INVALID, "%s says that this is rank %u of %u", launch.launcher,
                       comm->rank, comm->size);
    RN_TRY(rn_alloc_zeroed(FROM, comm->size, sizeof(rn_tcp_peer), &block));
    rn_tcp_peer *peers = comm->own = block;
    for (uint32_t r = 0; r < comm->size; r++)
        peers[r].sockets[RN_TCP_DATA] = peers[r].sockets[RN_TCP_NOTICES] = -1;
    RN_TRY(rn_tcp_join(comm, peers));
    snprintf(comm->described, sizeof comm->described, "%s, %u ranks by sockets", launch.launcher,
             comm->size);
    return RN_OK;
}

// A socket that is closed with bytes unread is reset, and what was last said on it is lost on the
// other side: so notices are ended first, and read until the others have ended theirs, for a
// second.
static void end_notices(const rn_comm *comm, const rn_tcp_peer *peers) {
    uint64_t end = rn_clock_ns() + 1000000000;
    uint8_t unread[4096];
    for (uint32_t r = 0; r < comm->size; r++)
        if (peers[r].sockets[RN_TCP_NOTICES] >= 0)
            (void)shutdown(peers[r].sockets[RN_TCP_NOTICES], SHUT_WR);
    for (uint32_t r = 0; r < comm->size; r++) {
        int s = peers[r].sockets[RN_TCP_NOTICES];
        while (s >= 0 && rn_tcp_wait(s, POLLIN, end) && recv(s, unread, sizeof unread, 0) > 0)
            continue;
    }
}

static void close_tcp(rn_comm *comm) {
    rn_tcp_peer *peers = comm->own;
    if (!peers) return;
    end_notices(comm, peers);
    for (uint32_t r = 0; r < comm->size; r++)
        for (int c = 0; c < RN_TCP_CHANNELS; c++)
            if (peers[r].sockets[c] >= 0) close(peers[r].sockets[c]);
    rn_free(FROM, peers, comm->size * sizeof(rn_tcp_peer));
}

// ---- messages -----------------------------------------------------------------------------------

static rn_tcp_peer *peer_of(const rn_comm *comm, uint32_t rank) {
    return &((rn_tcp_peer *)comm->own)[rank];
}

// own[0]: bytes of the size that were moved; own[1]: the size.
static rn_status begin(rn_comm *comm, rn_message *message) {
    rn_tcp_peer *peer = peer_of(comm, message->peer);
    rn_message **at = message->sends ? &peer->sends : &peer->receives;
    message->next = NULL;
    message->moved = message->own[0] = 0;
    message->own[1] = message->sends ? message->bytes : 0;
    while (*at)
        at = &(*at)->next;
    *at = message;
    return RN_OK;
}

static rn_status fail_as_lost(rn_comm *comm, uint32_t rank) {
    comm->culprit = rank;
    return rn_fail(RN_DEVICE, "the connection to rank %u is closed", rank);
}

// Adds what was moved; false: not all of it is.
static bool count_moved(rn_message *m, size_t bytes) {
    size_t head = bytes < HEAD_BYTES - m->own[0] ? bytes : HEAD_BYTES - (size_t)m->own[0];
    m->own[0] += head;
    m->moved += bytes - head;
    return m->own[0] == HEAD_BYTES && m->moved == m->bytes;
}

static rn_status send_some(rn_comm *comm, rn_tcp_peer *peer, bool *out_moved) {
    rn_message *m = peer->sends;
    struct iovec parts[] = {{(uint8_t *)&m->own[1] + m->own[0], HEAD_BYTES - (size_t)m->own[0]},
                            {m->data + m->moved, (size_t)(m->bytes - m->moved)}};
    struct msghdr head = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t n = sendmsg(peer->sockets[RN_TCP_DATA], &head, MSG_NOSIGNAL | MSG_DONTWAIT);
    *out_moved = n > 0;
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        return fail_as_lost(comm, m->peer);
    if (n <= 0 || !count_moved(m, (size_t)n)) return RN_OK;
    peer->sends = m->next;
    m->done = true;
    return RN_OK;
}

static rn_status receive_some(rn_comm *comm, rn_tcp_peer *peer, bool *out_moved) {
    rn_message *m = peer->receives;
    bool head = m->own[0] < HEAD_BYTES;
    uint8_t *at = head ? (uint8_t *)&m->own[1] + m->own[0] : m->data + m->moved;
    size_t room = head ? HEAD_BYTES - (size_t)m->own[0] : (size_t)(m->bytes - m->moved);
    ssize_t n = recv(peer->sockets[RN_TCP_DATA], at, room, MSG_DONTWAIT);
    *out_moved = n > 0;
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        return fail_as_lost(comm, m->peer);
    if (n <= 0) return RN_OK;
    bool whole = count_moved(m, (size_t)n);
    if (m->own[0] == HEAD_BYTES && m->own[1] != m->bytes)
        return rn_fail(RN_INVALID, "a message of %llu bytes was waited for as one of %llu",
                       (unsigned long long)m->own[1], (unsigned long long)m->bytes);
    if (!whole) return RN_OK;
    peer->receives = m->next;
    m->done = true;
    return RN_OK;
}

static rn_status test(rn_comm *comm, rn_message *message) {
    rn_tcp_peer *peer = peer_of(comm, message->peer);
    bool moved = true;
    while (moved && !message->done)
        RN_TRY(message->sends ? send_some(comm, peer, &moved) : receive_some(comm, peer, &moved));
    return RN_OK;
}

// ---- notices ------------------------------------------------------------------------------------

static void flush(rn_tcp_peer *peer) {
    int to = peer->sockets[RN_TCP_NOTICES];
    ssize_t n =
        peer->out_bytes ? send(to, peer->out, peer->out_bytes, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    if (n <= 0) return;
    peer->out_bytes -= (size_t)n;
    memmove(peer->out, peer->out + n, peer->out_bytes);
}

static void notify(rn_comm *comm, uint32_t to, const rn_notice *notice) {
    rn_tcp_peer *peer = peer_of(comm, to);
    if (sizeof peer->out - peer->out_bytes >= sizeof *notice) {
        memcpy(peer->out + peer->out_bytes, notice, sizeof *notice);
        peer->out_bytes += sizeof *notice;
    }
    flush(peer);
}

// A process that ends without a word has its connection closed by the system.
static bool look(rn_comm *comm, uint32_t from, rn_notice *out) {
    rn_tcp_peer *peer = peer_of(comm, from);
    flush(peer);
    if (peer->ended) return false;
    ssize_t n = recv(peer->sockets[RN_TCP_NOTICES], peer->in + peer->in_bytes,
                     sizeof peer->in - peer->in_bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
    if (n <= 0) {
        peer->ended = true;
        *out = (rn_notice){.kind = RN_NOTICE_GONE, .about = from};
        return true;
    }
    peer->in_bytes += (size_t)n;
    if (peer->in_bytes < sizeof peer->in) return false;
    memcpy(out, peer->in, sizeof *out);
    peer->in_bytes = 0;
    peer->ended = out->kind == RN_NOTICE_BYE || out->kind == RN_NOTICE_FAILED;
    return true;
}

const rn_comm_table rn_comm_tcp = {"tcp", open_tcp, close_tcp, begin, test, notify, look, NULL};
