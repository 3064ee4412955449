// comm_threads.c — ranks as threads of one process: a message is copied from the sender's memory
// to the receiver's once both have begun it.
//
// For every pair (from, to) there are two lists, of messages that were begun to be sent and to be
// received. Whoever looks at one of its messages copies for all pairs of heads that are there.
#include "device/comm.h"

#include "memory/account.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define FROM RN_HOST_IO
enum { NOTICES = 4 }; // of a pair that wait to be looked at

typedef struct pair {
    rn_message *sends, *receives; // oldest first
    rn_notice notices[NOTICES];
    uint32_t notice_count;
} pair;

typedef struct room {
    pthread_mutex_t lock;
    uint32_t ranks, open;
    pair pairs[]; // (ranks, ranks): from, to
} room;

static pair *pair_of(room *all, uint32_t from, uint32_t to) {
    return &all->pairs[(size_t)from * all->ranks + to];
}

static pair *pair_of_message(const rn_comm *comm, const rn_message *m) {
    return m->sends ? pair_of(comm->own, comm->rank, m->peer)
                    : pair_of(comm->own, m->peer, comm->rank);
}

static rn_status open_threads(rn_comm *comm, const rn_comm_options *options) {
    (void)comm;
    (void)options;
    return rn_fail(RN_UNSUPPORTED, "ranks as threads are opened together");
}

static size_t room_bytes(uint32_t ranks) {
    return sizeof(room) + (size_t)ranks * ranks * sizeof(pair);
}

static void forget_locked(rn_comm *comm) {
    room *all = comm->own;
    for (uint32_t r = 0; r < all->ranks; r++) {
        pair_of(all, comm->rank, r)->sends = NULL;
        pair_of(all, r, comm->rank)->receives = NULL;
    }
}

// The other threads would go on with them.
static void forget(rn_comm *comm) {
    room *all = comm->own;
    pthread_mutex_lock(&all->lock);
    forget_locked(comm);
    pthread_mutex_unlock(&all->lock);
}

// Messages that this rank leaves behind are forgotten: it has failed.
static void close_threads(rn_comm *comm) {
    room *all = comm->own;
    if (!all) return;
    pthread_mutex_lock(&all->lock);
    forget_locked(comm);
    bool last = --all->open == 0;
    pthread_mutex_unlock(&all->lock);
    if (!last) return;
    pthread_mutex_destroy(&all->lock);
    rn_free(FROM, all, room_bytes(all->ranks));
}

static rn_status begin(rn_comm *comm, rn_message *message) {
    room *all = comm->own;
    pair *p = pair_of_message(comm, message);
    rn_message **at = message->sends ? &p->sends : &p->receives;
    pthread_mutex_lock(&all->lock);
    message->next = NULL;
    while (*at)
        at = &(*at)->next;
    *at = message;
    pthread_mutex_unlock(&all->lock);
    return RN_OK;
}

static rn_status copy_heads(pair *p) {
    while (p->sends && p->receives) {
        rn_message *from = p->sends, *to = p->receives;
        if (from->bytes != to->bytes)
            return rn_fail(RN_INVALID, "a message of %llu bytes was waited for as one of %llu",
                           (unsigned long long)from->bytes, (unsigned long long)to->bytes);
        memcpy(to->data, from->data, from->bytes);
        p->sends = from->next;
        p->receives = to->next;
        from->own[0] = to->own[0] = 1;
    }
    return RN_OK;
}

static rn_status test(rn_comm *comm, rn_message *message) {
    room *all = comm->own;
    pthread_mutex_lock(&all->lock);
    rn_status s = copy_heads(pair_of_message(comm, message));
    message->done = message->own[0] != 0;
    pthread_mutex_unlock(&all->lock);
    return s;
}

static void notify(rn_comm *comm, uint32_t to, const rn_notice *notice) {
    room *all = comm->own;
    pair *p = pair_of(all, comm->rank, to);
    pthread_mutex_lock(&all->lock);
    if (p->notice_count < NOTICES) p->notices[p->notice_count++] = *notice;
    pthread_mutex_unlock(&all->lock);
}

static bool look(rn_comm *comm, uint32_t from, rn_notice *out) {
    room *all = comm->own;
    pair *p = pair_of(all, from, comm->rank);
    pthread_mutex_lock(&all->lock);
    bool found = p->notice_count > 0;
    if (found) {
        *out = p->notices[0];
        memmove(p->notices, p->notices + 1, --p->notice_count * sizeof(rn_notice));
    }
    pthread_mutex_unlock(&all->lock);
    return found;
}

const rn_comm_table rn_comm_threads = {"threads", open_threads, close_threads, begin,
                                       test,      notify,       look,          forget};

static rn_status open_one(room *all, uint32_t rank, const rn_comm_options *options, rn_comm **out) {
    RN_TRY(rn_comm_create(&rn_comm_threads, options, out));
    (*out)->rank = rank;
    (*out)->size = all->ranks;
    (*out)->own = all;
    all->open++;
    snprintf((*out)->described, sizeof(*out)->described, "%u ranks as threads", all->ranks);
    return rn_comm_prepare(*out);
}

rn_status rn_comm_open_threads(uint32_t ranks, double timeout_seconds, rn_comm **out) {
    rn_comm_options options = {.timeout_seconds = timeout_seconds};
    void *block = NULL;
    if (ranks == 0 || ranks > 256) return rn_fail(RN_INVALID, "%u ranks as threads", ranks);
    memset(out, 0, ranks * sizeof *out);
    RN_TRY(rn_alloc_zeroed(FROM, 1, room_bytes(ranks), &block));
    room *all = block;
    all->ranks = ranks;
    pthread_mutex_init(&all->lock, NULL);
    rn_status s = RN_OK;
    for (uint32_t r = 0; s == RN_OK && r < ranks; r++)
        s = open_one(all, r, &options, &out[r]);
    if (s == RN_OK) return RN_OK;
    if (all->open == 0) {
        pthread_mutex_destroy(&all->lock);
        rn_free(FROM, all, room_bytes(ranks));
    }
    for (uint32_t r = 0; r < ranks; r++) {
        rn_comm_drop(out[r]);
        out[r] = NULL;
    }
    return s;
}
