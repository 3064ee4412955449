// comm_sum.c — collectives of a step: sums of parts that ranks hold, weights that they share out.
//
//     each rank        parts ──▶ the row of each rank, to that rank     (reduce-scatter)
//     rank r           joins all parts of its row
//                      row r ──▶ all ranks                              (all-gather)
//
// Small tensors go whole to all ranks, which join them alike: one way instead of two. Either way a
// sum is made of the same parts in the same order, on one rank or on all.
#include "device/comm.h"

#include "base/checked.h"
#include "graph/op/rank_sum.h"
#include "memory/account.h"

#include <string.h>

#define FROM RN_HOST_IO

typedef struct sum {
    rn_comm *comm;
    const rn_rank_parts *parts;
    uint64_t size;        // bytes of an element
    uint32_t own, all;    // parts of this rank, of all
    rn_sum_node *nodes;   // (all), from left to right; with samples
    uint32_t *first;      // (ranks + 1): rank r has parts first[r] to first[r + 1]
    rn_message *messages; // (most)
    uint32_t count, most; // of messages
    uint8_t **stack;      // (all)
    void *block;          // all of these
    size_t block_bytes;
} sum;

// ---- parts --------------------------------------------------------------------------------------

static void list_parts(sum *s) {
    uint64_t samples = s->parts->samples;
    for (uint32_t r = 0; r < s->comm->size; r++) {
        rn_sum_node nodes[RN_SUM_PARTS];
        uint32_t count = 1;
        if (samples) count = rn_sum_tree_parts(rn_sum_tree_share(samples, r, s->comm->size), nodes);
        if (samples) memcpy(s->nodes + s->first[r], nodes, count * sizeof *nodes);
        s->first[r + 1] = s->first[r] + count;
    }
}

static rn_status prepare(sum *s) {
    uint32_t ranks = s->comm->size;
    s->all = rn_rank_parts_count(s->parts->samples, ranks);
    s->own = rn_rank_parts_of(s->parts->samples, s->comm->rank, ranks);
    s->most = s->all + ranks * s->own; // what comes, and what goes to each
    size_t messages = s->most * sizeof(rn_message), stack = s->all * sizeof(uint8_t *);
    size_t nodes = s->all * sizeof(rn_sum_node);
    s->block_bytes = messages + stack + nodes + (ranks + 1) * sizeof(uint32_t);
    RN_TRY(rn_alloc_zeroed(FROM, 1, s->block_bytes, &s->block));
    s->messages = s->block;
    s->stack = (uint8_t **)((uint8_t *)s->block + messages);
    s->nodes = (rn_sum_node *)((uint8_t *)s->stack + stack);
    s->first = (uint32_t *)((uint8_t *)s->nodes + nodes);
    list_parts(s);
    return RN_OK;
}

static uint8_t *own_part(const sum *s, uint32_t part) {
    if (part == 0) return s->parts->first;
    return (uint8_t *)s->parts->rest + (part - 1) * s->parts->count * s->size;
}

static rn_status post(sum *s, uint32_t peer, bool sends, uint8_t *data, uint64_t bytes) {
    rn_message *m = &s->messages[s->count++];
    *m = (rn_message){.peer = peer, .sends = sends, .data = data, .bytes = bytes};
    return rn_comm_begin(s->comm, m);
}

static rn_status finish(sum *s) {
    rn_status status = rn_comm_wait(s->comm, s->messages, s->count);
    s->count = 0;
    return status;
}

// All parts of some elements lie in `rows` (all, count), one behind the other: their sum, which is
// in one of the rows.
static rn_status join(sum *s, uint8_t *rows, uint64_t count, uint8_t **out) {
    rn_sum_node *nodes = s->nodes, top[RN_SUM_PARTS];
    uint32_t height = 0;
    for (uint32_t i = 0; i < s->all; i++) {
        s->stack[height] = rows + i * count * s->size;
        top[height++] = nodes[i]; // no higher than the tree
        while (height > 1 &&
               (!s->parts->samples ||
                rn_sum_tree_joins(top[height - 2], top[height - 1], s->parts->samples))) {
            RN_TRY(rn_comm_add(s->parts->dtype, s->stack[height - 2], s->stack[height - 1], count));
            top[height - 2].end = top[height - 1].end;
            height--;
        }
    }
    *out = s->stack[0];
    return height == 1
               ? RN_OK
               : rn_fail(RN_INTERNAL, "parts of %u ranks leave %u sums", s->comm->size, height);
}

// ---- small ones ---------------------------------------------------------------------------------

static rn_status sum_small(sum *s) {
    uint64_t bytes = s->parts->count * s->size;
    uint8_t *rows = s->parts->workspace, *whole = NULL;
    uint32_t rank = s->comm->rank;
    for (uint32_t n = 1; n < s->comm->size; n++) {
        uint32_t to = (rank + n) % s->comm->size, from = (rank + s->comm->size - n) % s->comm->size;
        uint32_t parts = s->first[from + 1] - s->first[from];
        for (uint32_t i = 0; i < parts; i++)
            RN_TRY(post(s, from, false, rows + (s->first[from] + i) * bytes, bytes));
        for (uint32_t i = 0; i < s->own; i++)
            RN_TRY(post(s, to, true, own_part(s, i), bytes));
    }
    for (uint32_t i = 0; i < s->own; i++)
        memcpy(rows + (s->first[rank] + i) * bytes, own_part(s, i), bytes);
    RN_TRY(finish(s));
    RN_TRY(join(s, rows, s->parts->count, &whole));
    memcpy(s->parts->first, whole, bytes);
    return RN_OK;
}

// ---- large ones ---------------------------------------------------------------------------------

// Elements [at, at + piece) of a rank's row, as far as there are any.
static rn_rank_range piece_of(const sum *s, uint32_t rank, uint64_t at, uint64_t piece) {
    uint64_t elements = rn_rank_row(s->parts->count, s->comm->size);
    rn_rank_range row = rn_rank_range_of(s->parts->count, elements, rank);
    uint64_t begin = rn_min_u64(row.begin + at, row.end);
    return (rn_rank_range){begin, rn_min_u64(begin + piece, row.end)};
}

static rn_status sum_piece(sum *s, uint64_t at, uint64_t piece) {
    uint32_t rank = s->comm->rank, ranks = s->comm->size;
    rn_rank_range mine = piece_of(s, rank, at, piece);
    uint64_t count = mine.end - mine.begin, bytes = count * s->size;
    uint8_t *rows = s->parts->workspace, *whole = NULL;
    for (uint32_t n = 1; n < ranks; n++) {
        uint32_t to = (rank + n) % ranks, from = (rank + ranks - n) % ranks;
        rn_rank_range theirs = piece_of(s, to, at, piece);
        for (uint32_t i = s->first[from]; i < s->first[from + 1]; i++)
            RN_TRY(post(s, from, false, rows + i * bytes, bytes));
        for (uint32_t i = 0; i < s->own; i++)
            RN_TRY(post(s, to, true, own_part(s, i) + theirs.begin * s->size,
                        (theirs.end - theirs.begin) * s->size));
    }
    for (uint32_t i = 0; i < s->own; i++)
        memcpy(rows + (s->first[rank] + i) * bytes, own_part(s, i) + mine.begin * s->size, bytes);
    RN_TRY(finish(s));
    if (count == 0) return RN_OK;
    RN_TRY(join(s, rows, count, &whole));
    memcpy((uint8_t *)s->parts->first + mine.begin * s->size, whole, bytes);
    return RN_OK;
}

// Each rank has its own row, and gets those of the others.
static rn_status gather_rows(rn_comm *comm, uint8_t *data, uint64_t count, uint64_t elements,
                             uint64_t size, rn_message *messages) {
    rn_rank_range mine = rn_rank_range_of(count, elements, comm->rank);
    uint32_t used = 0;
    for (uint32_t n = 1; n < comm->size; n++) {
        uint32_t to = (comm->rank + n) % comm->size;
        uint32_t from = (comm->rank + comm->size - n) % comm->size;
        rn_rank_range row = rn_rank_range_of(count, elements, from);
        messages[used] = (rn_message){
            .peer = from, .data = data + row.begin * size, .bytes = (row.end - row.begin) * size};
        RN_TRY(rn_comm_begin(comm, &messages[used++]));
        messages[used] = (rn_message){.peer = to,
                                      .sends = true,
                                      .data = data + mine.begin * size,
                                      .bytes = (mine.end - mine.begin) * size};
        RN_TRY(rn_comm_begin(comm, &messages[used++]));
    }
    return rn_comm_wait(comm, messages, used);
}

static rn_status gather(void *self, void *data, uint64_t count, uint64_t row, uint64_t bytes) {
    rn_comm *comm = self;
    void *messages = NULL;
    size_t most = 2 * (size_t)comm->size;
    comm->calls++;
    RN_TRY(rn_alloc_zeroed(FROM, most, sizeof(rn_message), &messages));
    rn_status s = gather_rows(comm, data, count, row, bytes, messages);
    rn_free(FROM, messages, most * sizeof(rn_message));
    return s;
}

static rn_status sum_parts(void *self, const rn_rank_parts *parts) {
    sum s = {.comm = self, .parts = parts, .size = rn_dtype_get(parts->dtype)->block_bytes};
    uint64_t row = rn_rank_row(parts->count, s.comm->size), piece = RN_RANK_PIECE_BYTES / s.size;
    RN_TRY(prepare(&s));
    s.comm->calls++;
    rn_status status = RN_OK;
    bool small = parts->count * s.size <= RN_RANK_SMALL_BYTES;
    if (small) status = sum_small(&s);
    for (uint64_t at = 0; !small && status == RN_OK && at < row; at += piece)
        status = sum_piece(&s, at, piece);
    rn_free(FROM, s.block, s.block_bytes);
    if (small || status != RN_OK) return status;
    return gather(self, parts->first, parts->count, row, s.size);
}

rn_call_ranks rn_comm_call_ranks(rn_comm *comm) {
    return (rn_call_ranks){.self = comm,
                           .rank = rn_comm_rank(comm),
                           .ranks = rn_comm_size(comm),
                           .sum = sum_parts,
                           .gather = gather};
}
