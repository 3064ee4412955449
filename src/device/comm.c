// comm.c — collectives from messages, in the order of ranks; timeouts; who is missing.
//
// Whoever waits looks at its messages and at what the others say. Shortly before the timeout it
// says for whom it waits, which makes all others that wait say the same; a rank that says nothing
// in the two seconds after that is the one that is missing. Ranks that only wait for others that
// wait are so never blamed.
#include "device/comm.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/reserved.h"
#include "memory/account.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define FROM RN_HOST_IO

const rn_comm_table *const rn_comm_tables[] = {&rn_comm_self, &rn_comm_mpi, &rn_comm_tcp, NULL};

// ---- life ---------------------------------------------------------------------------------------

rn_status rn_comm_create(const rn_comm_table *table, const rn_comm_options *options,
                         rn_comm **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(rn_comm), &block));
    rn_comm *comm = block;
    comm->table = table;
    comm->size = 1;
    comm->culprit = RN_NO_RANK;
    comm->timeout_seconds = options->timeout_seconds > 0 ? options->timeout_seconds : 300;
    *out = comm;
    return RN_OK;
}

rn_status rn_comm_prepare(rn_comm *comm) {
    void *heard = NULL;
    if (comm->size == 0 || comm->size > RN_COMM_RANKS || comm->rank >= comm->size)
        return rn_fail(RN_INVALID, "there is no rank %u of %u", comm->rank, comm->size);
    RN_TRY(rn_alloc_zeroed(FROM, comm->size, sizeof(rn_notice), &heard));
    comm->heard = heard;
    return RN_OK;
}

void rn_comm_drop(rn_comm *comm) {
    if (!comm) return;
    comm->table->close(comm);
    rn_free(FROM, comm->heard, comm->size * sizeof(rn_notice));
    rn_free(FROM, comm, sizeof *comm);
}

static const rn_comm_table *find_table(const char *kind) {
    for (size_t i = 0; rn_comm_tables[i]; i++)
        if (strcmp(rn_comm_tables[i]->name, kind) == 0) return rn_comm_tables[i];
    return NULL;
}

rn_status rn_comm_open(const rn_comm_options *options, rn_comm **out) {
    static const rn_comm_options usual = {0};
    const rn_comm_options *o = options ? options : &usual;
    const char *kind = o->kind && strcmp(o->kind, "auto") != 0 ? o->kind : NULL;
    rn_comm *comm = NULL;
    *out = NULL;
    RN_TRY(rn_check_reserved(o->reserved, "rn_comm_options"));
    if (!kind) kind = rn_comm_find_launch().kind;
    const rn_comm_table *table = find_table(kind);
    if (!table)
        return rn_hint(
            rn_fail(RN_INVALID, "there is no communicator '%s'", kind),
            "there are auto, self, mpi and tcp: start the ranks with mpirun or ration launch");
    RN_TRY(rn_comm_create(table, o, &comm));
    rn_status s = table->open(comm, o);
    if (s == RN_OK) s = rn_comm_prepare(comm);
    if (s == RN_OK)
        *out = comm;
    else
        rn_comm_drop(comm);
    return s;
}

uint32_t rn_comm_rank(const rn_comm *comm) {
    return comm ? comm->rank : 0;
}

uint32_t rn_comm_size(const rn_comm *comm) {
    return comm ? comm->size : 1;
}

const char *rn_comm_kind(const rn_comm *comm) {
    return comm ? comm->table->name : "self";
}

const char *rn_comm_describe(const rn_comm *comm) {
    return comm ? comm->described : "1 rank";
}

// ---- who is missing -----------------------------------------------------------------------------

static double since(uint64_t begin_ns) {
    return (double)(rn_clock_ns() - begin_ns) * 1e-9;
}

static void rest(uint32_t *turns) {
    static const long naps[] = {20000, 50000, 200000, 1000000};
    uint32_t turn = (*turns)++;
    if (turn < 200) {
        sched_yield();
        return;
    }
    uint32_t nap = turn < 1000 ? 0 : turn < 3000 ? 1 : turn < 6000 ? 2 : 3;
    nanosleep(&(struct timespec){.tv_nsec = naps[nap]}, NULL);
}

static void tell_all(rn_comm *comm, rn_notice_kind kind, uint32_t about, const char *text) {
    rn_notice notice = {.kind = kind, .about = about};
    // Messages may be longer than a notice, which has their beginning.
    if (text) memcpy(notice.text, text, strnlen(text, sizeof notice.text - 1));
    for (uint32_t r = 0; r < comm->size; r++)
        if (r != comm->rank) comm->table->notify(comm, r, &notice);
}

// True: somebody began to ask who is there.
static bool listen_to_all(rn_comm *comm) {
    bool asked = false;
    for (uint32_t r = 0; r < comm->size; r++) {
        rn_notice notice;
        while (r != comm->rank && comm->table->look(comm, r, &notice)) {
            notice.text[sizeof notice.text - 1] = 0;
            comm->heard[r] = notice;
            asked = asked || notice.kind == RN_NOTICE_WAITS;
        }
    }
    return asked;
}

static uint32_t find_heard(const rn_comm *comm, rn_notice_kind kind) {
    for (uint32_t r = 0; r < comm->size; r++)
        if (r != comm->rank && comm->heard[r].kind == (uint32_t)kind) return r;
    return RN_NO_RANK;
}

// A rank that failed for a reason of its own, not because it lost another.
static uint32_t find_cause(const rn_comm *comm) {
    for (uint32_t r = 0; r < comm->size; r++)
        if (r != comm->rank && comm->heard[r].kind == RN_NOTICE_FAILED && comm->heard[r].about == r)
            return r;
    return RN_NO_RANK;
}

static bool heard_of_failure(const rn_comm *comm) {
    return find_heard(comm, RN_NOTICE_FAILED) != RN_NO_RANK ||
           find_heard(comm, RN_NOTICE_GONE) != RN_NO_RANK;
}

static rn_status keep(rn_comm *comm, rn_status status) {
    if (comm->hint[0] && rn_last_error()->hint[0] == 0) status = rn_hint(status, "%s", comm->hint);
    comm->failure = *rn_last_error();
    if (comm->table->forget) comm->table->forget(comm);
    return status;
}

// The last error, which is about rank `about`, is how this rank ends. The others hear it in these
// words, so that all say the same, and nobody takes this one's end for the beginning.
static rn_status give_up(rn_comm *comm, uint32_t about, rn_status status) {
    tell_all(comm, RN_NOTICE_FAILED, about, rn_last_error()->message);
    return keep(comm, status);
}

static rn_status fail_as_told(rn_comm *comm, uint32_t rank) {
    const rn_notice *heard = &comm->heard[rank];
    uint32_t about = heard->about < comm->size ? heard->about : rank;
    if (about != rank) return give_up(comm, about, rn_fail(RN_DEVICE, "%s", heard->text));
    return give_up(comm, about,
                   rn_fail(RN_DEVICE, "rank %u of %u failed%s%s", rank, comm->size,
                           heard->text[0] ? ": " : "", heard->text));
}

static rn_status fail_as_gone(rn_comm *comm, uint32_t rank) {
    return give_up(
        comm, rank,
        rn_fail(RN_DEVICE, "rank %u of %u is gone: its connection was closed", rank, comm->size));
}

// When one rank fails all others do, one after the other, and each hears of several. It is the
// first one that is to be named: whoever failed by itself, which may be heard of a little later
// than those that lost it; else a rank that went without a word; else what others say they lost.
static rn_status fail_as_known(rn_comm *comm) {
    uint32_t turns = 0, lost = comm->culprit;
    uint64_t begin = rn_clock_ns();
    while (find_cause(comm) == RN_NO_RANK && since(begin) < 0.3) {
        listen_to_all(comm);
        rest(&turns);
    }
    uint32_t cause = find_cause(comm), gone = find_heard(comm, RN_NOTICE_GONE);
    uint32_t told = find_heard(comm, RN_NOTICE_FAILED);
    if (cause != RN_NO_RANK) return fail_as_told(comm, cause);
    if (gone == RN_NO_RANK && lost != RN_NO_RANK && comm->heard[lost].kind != RN_NOTICE_FAILED)
        gone = lost;
    return gone != RN_NO_RANK ? fail_as_gone(comm, gone) : fail_as_told(comm, told);
}

static rn_status fail_as_missing(rn_comm *comm, uint32_t peer) {
    char list[200] = "";
    size_t used = 0;
    uint32_t missing = 0, first = RN_NO_RANK;
    for (uint32_t r = 0; r < comm->size; r++) {
        if (r == comm->rank || comm->heard[r].kind == RN_NOTICE_WAITS) continue;
        if (missing++ == 0) first = r;
        if (used < sizeof list - 16)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%u", used ? ", " : "", r);
    }
    if (missing)
        return give_up(comm, first,
                       rn_fail(RN_DEVICE,
                               "rank%s %s of %u did not come to collective %llu within "
                               "%g s",
                               missing == 1 ? "" : "s", list, comm->size,
                               (unsigned long long)comm->calls, comm->timeout_seconds));
    return keep(comm,
                rn_fail(RN_DEVICE,
                        "all %u ranks wait for each other (this one for rank %u, that one for rank "
                        "%u): they do not call the same collectives",
                        comm->size, peer, comm->heard[peer].about));
}

static const rn_message *first_open(const rn_message *messages, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (!messages[i].done) return &messages[i];
    return NULL;
}

static rn_status test_all(rn_comm *comm, rn_message *messages, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (!messages[i].done && comm->table->test(comm, &messages[i]) != RN_OK)
            return comm->culprit == RN_NO_RANK ? keep(comm, rn_last_error()->status)
                                               : fail_as_known(comm);
    return RN_OK;
}

// The last seconds of the timeout, in which all that wait say so.
static double asking_seconds(const rn_comm *comm) {
    return comm->timeout_seconds < 4 ? comm->timeout_seconds / 2 : 2;
}

// Before the timeout is over, or once somebody asks.
static rn_status find_missing(rn_comm *comm, rn_message *messages, uint32_t count) {
    uint32_t turns = 0, peer = first_open(messages, count)->peer;
    uint64_t begin = rn_clock_ns();
    tell_all(comm, RN_NOTICE_WAITS, peer, NULL);
    while (since(begin) < asking_seconds(comm)) {
        RN_TRY(test_all(comm, messages, count));
        listen_to_all(comm);
        if (heard_of_failure(comm)) return fail_as_known(comm);
        rest(&turns);
    }
    return fail_as_missing(comm, peer);
}

rn_status rn_comm_begin(rn_comm *comm, rn_message *message) {
    if (comm->failure.status != RN_OK) return rn_error_restore(&comm->failure);
    message->done = message->bytes == 0;
    if (message->done) return RN_OK;
    rn_status s = comm->table->begin(comm, message);
    if (s == RN_OK) return RN_OK;
    return comm->culprit == RN_NO_RANK ? keep(comm, s) : fail_as_known(comm);
}

// Whoever asks hears that this rank waits, too; so it is not the one that is missing.
static void answer_idle(rn_comm *comm, uint32_t peer) {
    tell_all(comm, RN_NOTICE_WAITS, peer, NULL);
}

static rn_status wait_for(rn_comm *comm, rn_message *messages, uint32_t count, bool idle) {
    uint32_t turns = 0;
    uint64_t begin = rn_clock_ns();
    if (comm->failure.status != RN_OK) return rn_error_restore(&comm->failure);
    for (;;) {
        RN_TRY(test_all(comm, messages, count));
        const rn_message *open = first_open(messages, count);
        if (!open) return RN_OK;
        if (turns > 200) { // rarely, while messages come quickly
            bool asked = listen_to_all(comm);
            if (heard_of_failure(comm)) return fail_as_known(comm);
            if (comm->heard[open->peer].kind == RN_NOTICE_BYE)
                return give_up(comm, open->peer,
                               rn_fail(RN_DEVICE, "rank %u of %u has ended before this one",
                                       open->peer, comm->size));
            bool late = since(begin) > comm->timeout_seconds - asking_seconds(comm);
            if (idle && asked) answer_idle(comm, open->peer);
            if (!idle && (asked || late)) return find_missing(comm, messages, count);
        }
        rest(&turns);
    }
}

rn_status rn_comm_wait(rn_comm *comm, rn_message *messages, uint32_t count) {
    return wait_for(comm, messages, count, false);
}

void rn_comm_abort(rn_comm *comm, const char *why) {
    if (!comm) return;
    if (comm->failure.status == RN_OK) tell_all(comm, RN_NOTICE_FAILED, comm->rank, why);
    rn_comm_drop(comm);
}

void rn_comm_close(rn_comm *comm) {
    uint32_t turns = 0;
    uint64_t begin = rn_clock_ns();
    if (!comm) return;
    if (comm->failure.status == RN_OK) tell_all(comm, RN_NOTICE_BYE, 0, NULL);
    while (comm->failure.status == RN_OK && since(begin) < comm->timeout_seconds) {
        listen_to_all(comm);
        uint32_t gone = 0;
        for (uint32_t r = 0; r < comm->size; r++)
            gone += r == comm->rank || comm->heard[r].kind == RN_NOTICE_BYE ||
                    comm->heard[r].kind == RN_NOTICE_FAILED ||
                    comm->heard[r].kind == RN_NOTICE_GONE;
        if (gone == comm->size) break;
        rest(&turns);
    }
    rn_comm_drop(comm);
}

// ---- collectives --------------------------------------------------------------------------------

rn_status rn_comm_send(rn_comm *comm, uint32_t to, const void *data, uint64_t bytes) {
    rn_message m = {.peer = to, .sends = true, .data = (uint8_t *)(uintptr_t)data, .bytes = bytes};
    if (to >= rn_comm_size(comm) || to == rn_comm_rank(comm))
        return rn_fail(RN_INVALID, "there is no other rank %u", to);
    RN_TRY(rn_comm_begin(comm, &m));
    return rn_comm_wait(comm, &m, 1);
}

static rn_status receive(rn_comm *comm, uint32_t from, void *data, uint64_t bytes, bool idle) {
    rn_message m = {.peer = from, .data = data, .bytes = bytes};
    if (from >= rn_comm_size(comm) || from == rn_comm_rank(comm))
        return rn_fail(RN_INVALID, "there is no other rank %u", from);
    RN_TRY(rn_comm_begin(comm, &m));
    return wait_for(comm, &m, 1, idle);
}

rn_status rn_comm_receive(rn_comm *comm, uint32_t from, void *data, uint64_t bytes) {
    return receive(comm, from, data, bytes, false);
}

rn_status rn_comm_receive_idle(rn_comm *comm, uint32_t from, void *data, uint64_t bytes) {
    return receive(comm, from, data, bytes, true);
}

rn_status rn_comm_look(rn_comm *comm) {
    if (rn_comm_size(comm) == 1) return RN_OK;
    if (comm->failure.status != RN_OK) return rn_error_restore(&comm->failure);
    listen_to_all(comm);
    return heard_of_failure(comm) ? fail_as_known(comm) : RN_OK;
}

// Messages of a collective: one a rank and direction at most.
static rn_status take_messages(const rn_comm *comm, rn_message **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, 2 * (size_t)comm->size, sizeof(rn_message), &block));
    *out = block;
    return RN_OK;
}

static void free_messages(const rn_comm *comm, rn_message *messages) {
    rn_free(FROM, messages, 2 * (size_t)comm->size * sizeof(rn_message));
}

static rn_status post(rn_comm *comm, rn_message *messages, uint32_t *count, rn_message m) {
    messages[*count] = m;
    return rn_comm_begin(comm, &messages[(*count)++]);
}

rn_status rn_comm_broadcast(rn_comm *comm, uint32_t root, void *data, uint64_t bytes) {
    rn_message *messages = NULL;
    uint32_t count = 0;
    if (root >= rn_comm_size(comm)) return rn_fail(RN_INVALID, "there is no rank %u", root);
    if (rn_comm_size(comm) == 1) return RN_OK;
    comm->calls++;
    if (comm->rank != root) return rn_comm_receive(comm, root, data, bytes);
    RN_TRY(take_messages(comm, &messages));
    rn_status s = RN_OK;
    for (uint32_t r = 0; s == RN_OK && r < comm->size; r++)
        if (r != root)
            s = post(comm, messages, &count,
                     (rn_message){.peer = r, .sends = true, .data = data, .bytes = bytes});
    if (s == RN_OK) s = rn_comm_wait(comm, messages, count);
    free_messages(comm, messages);
    return s;
}

rn_status rn_comm_all_gather(rn_comm *comm, void *data, uint64_t bytes) {
    rn_message *messages = NULL;
    uint32_t count = 0;
    if (rn_comm_size(comm) == 1) return RN_OK;
    comm->calls++;
    RN_TRY(take_messages(comm, &messages));
    rn_status s = RN_OK;
    for (uint32_t n = 1; s == RN_OK && n < comm->size; n++) {
        uint32_t to = (comm->rank + n) % comm->size,
                 from = (comm->rank + comm->size - n) % comm->size;
        s = post(
            comm, messages, &count,
            (rn_message){.peer = from, .data = (uint8_t *)data + from * bytes, .bytes = bytes});
        if (s != RN_OK) break;
        s = post(comm, messages, &count,
                 (rn_message){.peer = to,
                              .sends = true,
                              .data = (uint8_t *)data + comm->rank * bytes,
                              .bytes = bytes});
    }
    if (s == RN_OK) s = rn_comm_wait(comm, messages, count);
    free_messages(comm, messages);
    return s;
}

rn_status rn_comm_barrier(rn_comm *comm) {
    uint8_t *here = NULL;
    void *block = NULL;
    if (rn_comm_size(comm) == 1) return RN_OK;
    RN_TRY(rn_alloc_zeroed(FROM, comm->size, 1, &block));
    here = block;
    here[comm->rank] = 1;
    rn_status s = rn_comm_all_gather(comm, here, 1);
    rn_free(FROM, block, comm->size);
    return s;
}

#define ADD_AS(type)                                                                               \
    do {                                                                                           \
        type *a = data;                                                                            \
        const type *b = other;                                                                     \
        for (uint64_t i = 0; i < count; i++)                                                       \
            a[i] += b[i];                                                                          \
        return RN_OK;                                                                              \
    } while (0)

// Each sum is rounded, as those of samples are (graph/op/tree_sum.c).
static rn_status add_bf16(uint8_t *data, const uint8_t *other, uint64_t count) {
    enum { PIECE = 256 };
    float a[PIECE], b[PIECE];
    for (uint64_t at = 0, n = 0; at < count; at += n) {
        n = rn_min_u64(count - at, PIECE);
        RN_TRY(rn_dtype_to_f32(RN_DTYPE_BF16, data + 2 * at, a, n));
        RN_TRY(rn_dtype_to_f32(RN_DTYPE_BF16, other + 2 * at, b, n));
        for (uint64_t i = 0; i < n; i++)
            a[i] += b[i];
        RN_TRY(rn_dtype_from_f32(RN_DTYPE_BF16, a, data + 2 * at, n));
    }
    return RN_OK;
}

rn_status rn_comm_add(rn_dtype dtype, void *data, const void *other, uint64_t count) {
    switch (dtype) {
    case RN_DTYPE_F32:
        ADD_AS(float);
    case RN_DTYPE_F64:
        ADD_AS(double);
    case RN_DTYPE_BF16:
        return add_bf16(data, other, count);
    case RN_DTYPE_I32:
        ADD_AS(uint32_t);
    case RN_DTYPE_I64:
        ADD_AS(uint64_t);
    default:
        return rn_fail(RN_UNSUPPORTED, "ranks cannot sum %s", rn_dtype_get(dtype)->name);
    }
}

// One piece of a row: this rank's row from every rank, into (size, bytes) at `rows`, while the
// others get theirs.
static rn_status exchange_rows(rn_comm *comm, uint8_t *data, uint64_t stride, uint64_t bytes,
                               uint8_t *rows, rn_message *messages) {
    uint32_t count = 0;
    for (uint32_t n = 1; n < comm->size; n++) {
        uint32_t to = (comm->rank + n) % comm->size,
                 from = (comm->rank + comm->size - n) % comm->size;
        RN_TRY(post(comm, messages, &count,
                    (rn_message){.peer = from, .data = rows + from * bytes, .bytes = bytes}));
        RN_TRY(post(
            comm, messages, &count,
            (rn_message){.peer = to, .sends = true, .data = data + to * stride, .bytes = bytes}));
    }
    return rn_comm_wait(comm, messages, count);
}

// Rows are moved in pieces, so that what is taken for them is bounded.
enum { PIECE_BYTES = 1 << 20 };

static rn_status reduce_pieces(rn_comm *comm, uint8_t *data, uint64_t count, rn_dtype dtype,
                               uint8_t *out, uint8_t *rows, uint64_t piece, rn_message *messages) {
    uint64_t size = rn_dtype_get(dtype)->block_bytes;
    for (uint64_t at = 0; at < count; at += piece) {
        uint64_t n = rn_min_u64(piece, count - at), bytes = n * size;
        uint8_t *mine = data + (comm->rank * count + at) * size;
        RN_TRY(exchange_rows(comm, data + at * size, count * size, bytes, rows, messages));
        memcpy(rows + comm->rank * bytes, mine, bytes);
        for (uint32_t r = 1; r < comm->size; r++)
            RN_TRY(rn_comm_add(dtype, rows, rows + r * bytes, n));
        memcpy(out + at * size, rows, bytes);
    }
    return RN_OK;
}

rn_status rn_comm_reduce_scatter(rn_comm *comm, void *data, uint64_t count, rn_dtype dtype,
                                 void *out) {
    uint64_t size = rn_dtype_get(dtype)->block_bytes;
    uint64_t piece = rn_min_u64(count, rn_max_u64(PIECE_BYTES / size, 1));
    rn_message *messages = NULL;
    void *rows = NULL;
    if (rn_comm_size(comm) == 1) {
        if (out != data) memcpy(out, data, count * size);
        return RN_OK;
    }
    comm->calls++;
    size_t bytes = (size_t)(comm->size * piece * size);
    RN_TRY(rn_comm_add(dtype, NULL, NULL, 0));
    RN_TRY(take_messages(comm, &messages));
    rn_status s = rn_alloc(FROM, bytes, &rows);
    if (s == RN_OK) s = reduce_pieces(comm, data, count, dtype, out, rows, piece, messages);
    rn_free(FROM, rows, rows ? bytes : 0);
    free_messages(comm, messages);
    return s;
}

// Short ones: every rank gets all and adds them up.
static rn_status all_reduce_short(rn_comm *comm, void *data, uint64_t count, rn_dtype dtype) {
    uint64_t bytes = count * rn_dtype_get(dtype)->block_bytes;
    void *block = NULL;
    RN_TRY(rn_alloc(FROM, (size_t)(comm->size * bytes), &block));
    uint8_t *rows = block;
    memcpy(rows + comm->rank * bytes, data, bytes);
    rn_status s = rn_comm_all_gather(comm, rows, bytes);
    for (uint32_t r = 1; s == RN_OK && r < comm->size; r++)
        s = rn_comm_add(dtype, rows, rows + r * bytes, count);
    if (s == RN_OK) memcpy(data, rows, bytes);
    rn_free(FROM, block, (size_t)(comm->size * bytes));
    return s;
}

rn_status rn_comm_all_reduce(rn_comm *comm, void *data, uint64_t count, rn_dtype dtype) {
    enum { SHORT = 4096 };
    RN_TRY(rn_comm_add(dtype, NULL, NULL, 0));
    if (rn_comm_size(comm) == 1 || count == 0) return RN_OK;
    uint64_t size = rn_dtype_get(dtype)->block_bytes, row = count / comm->size;
    uint64_t rest_count = count % comm->size;
    uint8_t *tail = (uint8_t *)data + comm->size * row * size;
    if (count <= SHORT) return all_reduce_short(comm, data, count, dtype);
    uint8_t *mine = (uint8_t *)data + comm->rank * row * size;
    RN_TRY(rn_comm_reduce_scatter(comm, data, row, dtype, mine));
    RN_TRY(rn_comm_all_gather(comm, data, row * size));
    return rest_count ? all_reduce_short(comm, tail, rest_count, dtype) : RN_OK;
}
