// reader_uring.c — reads by io_uring, through the system calls themselves.
//
// Two rings shared with the kernel: we write a read into the submission ring and tell the kernel
// with io_uring_enter; it writes results into the completion ring. Each side owns one end of each
// ring:
//
//     submission:  we move tail (release), the kernel moves head
//     completion:  the kernel moves tail (we acquire), we move head (release)
//
// One read is submitted at a call, so the submission ring never fills. The completion ring is twice
// as long as the depth. The ring is not bound to one thread (no IORING_SETUP_SINGLE_ISSUER), since
// the reader's consumer may change.
//
// Thread sanitizers see neither the kernel's writes into the rings nor those into the buffers, so
// there is nothing for them to report; the order is given by the acquire and release marks below.
#include "base/read_engine.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Present since Linux 5.6: one mapping for both rings, no lost completions, IORING_OP_READ.
#define NEEDED_FEATURES (IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS)
#define BUSY_LIMIT      1000 // pauses of a millisecond before a submission is given up

typedef struct uring {
    rn_read_engine engine; // first: the engine is the ring
    const rn_allocator *allocator;
    int fd;
    void *rings; // (rings_bytes)
    size_t rings_bytes;
    struct io_uring_sqe *entries; // (entries_bytes)
    size_t entries_bytes;
    // Inside `rings`.
    uint32_t *submit_tail, *submit_indices, submit_mask;
    uint32_t *complete_head, *complete_tail, complete_mask;
    struct io_uring_cqe *completions;
} uring;

static int enter(const uring *ring, unsigned submit, unsigned wait) {
    unsigned flags = wait ? IORING_ENTER_GETEVENTS : 0;
    return (int)syscall(SYS_io_uring_enter, ring->fd, submit, wait, flags, NULL, 0);
}

static void pause_briefly(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

// The kernel may be short of memory for the moment (EAGAIN, EBUSY): then the entry stays in the
// ring. It looks there only during this call, so a caller that gives up may take the entry out
// again.
static int submit_one(const uring *ring) {
    for (int turn = 0; turn < BUSY_LIMIT; turn++) {
        int count = enter(ring, 1, 0);
        if (count == 1) return 0;
        if (count < 0 && errno != EINTR && errno != EAGAIN && errno != EBUSY) return errno;
        pause_briefly();
    }
    return EBUSY;
}

static int uring_push(rn_read_engine *self, const rn_read *read) {
    uring *ring = (uring *)self;
    uint32_t tail = *ring->submit_tail; // ours alone
    uint32_t index = tail & ring->submit_mask;
    struct io_uring_sqe *entry = &ring->entries[index];
    memset(entry, 0, sizeof *entry);
    entry->opcode = IORING_OP_READ;
    entry->fd = read->fd;
    entry->addr = (uint64_t)(uintptr_t)read->buffer;
    entry->len = (uint32_t)read->bytes;
    entry->off = read->offset;
    entry->user_data = read->tag;
    // A copy from the page cache would be made here and now, on the consumer's time: the kernel's
    // own workers make it instead.
    if (read->cached) entry->flags = IOSQE_ASYNC;
    ring->submit_indices[index] = index;
    __atomic_store_n(ring->submit_tail, tail + 1, __ATOMIC_RELEASE);
    int error = submit_one(ring);
    if (error) __atomic_store_n(ring->submit_tail, tail, __ATOMIC_RELEASE);
    return error;
}

static rn_read_result uring_pop(rn_read_engine *self) {
    uring *ring = (uring *)self;
    uint32_t head = *ring->complete_head; // ours alone
    while (head == __atomic_load_n(ring->complete_tail, __ATOMIC_ACQUIRE))
        if (enter(ring, 0, 1) < 0 && errno != EINTR) pause_briefly();
    const struct io_uring_cqe *entry = &ring->completions[head & ring->complete_mask];
    rn_read_result result = {(uint32_t)entry->user_data, entry->res};
    __atomic_store_n(ring->complete_head, head + 1, __ATOMIC_RELEASE);
    return result;
}

static void uring_destroy(rn_read_engine *self) {
    uring *ring = (uring *)self;
    if (ring->entries) munmap(ring->entries, ring->entries_bytes);
    if (ring->rings) munmap(ring->rings, ring->rings_bytes);
    if (ring->fd >= 0) close(ring->fd);
    rn_free(ring->allocator, ring, sizeof *ring);
}

static rn_status setup(uring *ring, uint32_t depth, struct io_uring_params *params) {
    *params = (struct io_uring_params){.flags = IORING_SETUP_CLAMP};
    ring->fd = (int)syscall(SYS_io_uring_setup, depth, params);
    if (ring->fd < 0)
        return rn_fail(RN_UNSUPPORTED, "the system refuses io_uring: %s", strerror(errno));
    if ((params->features & NEEDED_FEATURES) != NEEDED_FEATURES)
        return rn_fail(RN_UNSUPPORTED, "io_uring of this kernel is too old (Linux 5.6 is needed)");
    if (params->cq_entries < depth)
        return rn_fail(RN_UNSUPPORTED, "io_uring offers %u entries, %u are needed",
                       params->cq_entries, depth);
    return RN_OK;
}

static rn_status map_ring(const uring *ring, size_t bytes, uint64_t offset, void **out) {
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd,
                     (off_t)offset);
    if (map == MAP_FAILED)
        return rn_fail(RN_UNSUPPORTED, "cannot map io_uring's rings: %s", strerror(errno));
    *out = map;
    return RN_OK;
}

static rn_status map_rings(uring *ring, const struct io_uring_params *params) {
    size_t submit_bytes = params->sq_off.array + params->sq_entries * sizeof(uint32_t);
    size_t complete_bytes = params->cq_off.cqes + params->cq_entries * sizeof(struct io_uring_cqe);
    ring->rings_bytes = submit_bytes > complete_bytes ? submit_bytes : complete_bytes;
    ring->entries_bytes = params->sq_entries * sizeof(struct io_uring_sqe);
    RN_TRY(map_ring(ring, ring->rings_bytes, IORING_OFF_SQ_RING, &ring->rings));
    RN_TRY(map_ring(ring, ring->entries_bytes, IORING_OFF_SQES, (void **)&ring->entries));

    char *base = ring->rings;
    ring->submit_tail = (uint32_t *)(base + params->sq_off.tail);
    ring->submit_indices = (uint32_t *)(base + params->sq_off.array);
    ring->submit_mask = params->sq_entries - 1;
    ring->complete_head = (uint32_t *)(base + params->cq_off.head);
    ring->complete_tail = (uint32_t *)(base + params->cq_off.tail);
    ring->complete_mask = params->cq_entries - 1;
    ring->completions = (struct io_uring_cqe *)(base + params->cq_off.cqes);
    return RN_OK;
}

rn_status rn_read_engine_uring(const rn_allocator *allocator, uint32_t depth,
                               rn_read_engine **out) {
    uring *ring;
    struct io_uring_params params;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(allocator, 1, sizeof *ring, (void **)&ring));
    ring->engine = (rn_read_engine){uring_push, uring_pop, uring_destroy};
    ring->allocator = allocator;
    rn_status status = setup(ring, depth, &params);
    if (status == RN_OK) status = map_rings(ring, &params);
    if (status == RN_OK)
        *out = &ring->engine;
    else
        uring_destroy(&ring->engine);
    return status;
}
