// fake_cuda.c — CUDA's driver over host memory: see fake_cuda.h. One lock, small tables.
#include "fake_internal.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_RANGES = 65536, MAX_KERNELS = 256, MAX_EVENTS = 4096, MAX_HANDLES = 64 };

typedef struct range {
    uint64_t address;
    size_t bytes;
    bool flat; // mapped, not allocated
} range;
typedef struct kernel {
    void *stream;
    uint64_t ticket, address;
    size_t bytes;
} kernel;
typedef struct event {
    bool alive;
    void *stream;
    uint64_t ticket;
} event;
typedef struct stream_state {
    void *stream;
    bool known;
    uint64_t launched, done;
} stream_state;
typedef struct location {
    int type, id;
} location;
typedef struct memory_kind {
    int type, handle_types;
    location where;
    void *metadata;
    unsigned char flags[8];
} memory_kind;
typedef struct access_description {
    location where;
    int flags;
} access_description;

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static range ranges[MAX_RANGES];
static size_t range_count;
static kernel kernels[MAX_KERNELS];
static size_t kernel_count;
static event events[MAX_EVENTS];
static stream_state streams[FAKE_STREAMS];
static size_t handles[MAX_HANDLES]; // bytes of a created memory that is not mapped; handle - 1
static _Thread_local int depth;
static void launch(void *stream, uint64_t address, size_t bytes);
static void finish(void *stream);
static bool is_busy(uint64_t address, size_t bytes);
static bool is_backed(uint64_t address, size_t bytes);
HIDDEN void fake_hold(bool on);
static void die(int code);
static int dead; // the code of all calls, or 0
fake_cuda fake = {.capacity_bytes = (uint64_t)1 << 30,
                  .device_count = 1,
                  .has_vmm = true,
                  .granularity = (size_t)2 << 20,
                  .fail_code = NO_MEMORY,
                  .launch = launch,
                  .finish = finish,
                  .is_busy = is_busy,
                  .is_backed = is_backed,
                  .capability = 90,
                  .has_words = true,
                  .hold = fake_hold,
                  .die = die};

EXPORT fake_cuda *fake_cuda_get(void);
fake_cuda *fake_cuda_get(void) {
    return &fake;
}

// ---- streams ----------------------------------------------------------------------------------

static stream_state *state_of(void *stream) {
    size_t i = 0;
    while (i < FAKE_STREAMS - 1 && streams[i].known && streams[i].stream != stream)
        i++;
    streams[i].stream = stream;
    streams[i].known = true;
    return &streams[i];
}

static void run_until(stream_state *state, uint64_t ticket) {
    if (ticket <= state->done) return;
    state->done = ticket;
    size_t kept = 0;
    for (size_t i = 0; i < kernel_count; i++)
        if (kernels[i].stream != state->stream || kernels[i].ticket > ticket)
            kernels[kept++] = kernels[i];
    kernel_count = kept;
}

static void launch(void *stream, uint64_t address, size_t bytes) {
    pthread_mutex_lock(&fake_lock);
    uint64_t ticket = ++state_of(stream)->launched;
    if (kernel_count < MAX_KERNELS)
        kernels[kernel_count++] = (kernel){stream, ticket, address, bytes};
    pthread_mutex_unlock(&fake_lock);
}

static void finish(void *stream) {
    pthread_mutex_lock(&fake_lock);
    run_until(state_of(stream), state_of(stream)->launched);
    pthread_mutex_unlock(&fake_lock);
}

static bool touches(uint64_t address, size_t bytes) {
    for (size_t i = 0; i < kernel_count; i++)
        if (kernels[i].address < address + bytes && address < kernels[i].address + kernels[i].bytes)
            return true;
    return fake_streams_touch(address, bytes);
}

static bool is_busy(uint64_t address, size_t bytes) {
    pthread_mutex_lock(&fake_lock);
    bool busy = touches(address, bytes);
    pthread_mutex_unlock(&fake_lock);
    return busy;
}

// ---- memory -----------------------------------------------------------------------------------

static bool is_backed(uint64_t address, size_t bytes) {
    uint64_t seen = 0;
    pthread_mutex_lock(&fake_lock);
    for (size_t i = 0; i < range_count; i++) {
        uint64_t begin = ranges[i].address, end = begin + ranges[i].bytes;
        if (begin < address) begin = address;
        if (end > address + bytes) end = address + bytes;
        if (begin < end) seen += end - begin;
    }
    pthread_mutex_unlock(&fake_lock);
    return seen == bytes;
}

// Whether the call is to fail, or is made outside of a context. The lock is held.
int fake_enter_call(void) {
    fake.calls++;
    if (depth == 0) fake.violations++;
    if (dead) return dead;
    if (fake.fail_at == 0 || --fake.fail_at != 0) return OK;
    return fake.fail_code;
}

static int add_range(uint64_t address, size_t bytes, bool flat) {
    if (range_count == MAX_RANGES) return NO_MEMORY;
    ranges[range_count++] = (range){address, bytes, flat};
    return OK;
}

static int remove_range(uint64_t address, bool flat, size_t *out_bytes) {
    size_t i = range_count;
    while (i-- > 0)
        if (ranges[i].address == address && ranges[i].flat == flat) break;
    if (i == SIZE_MAX) return INVALID;
    *out_bytes = ranges[i].bytes;
    if (touches(address, *out_bytes)) fake.violations++;
    ranges[i] = ranges[--range_count];
    fake.used_bytes -= *out_bytes;
    return OK;
}

int fake_take(size_t bytes) {
    fake.take_count++;
    if (bytes > fake.capacity_bytes - fake.used_bytes) return NO_MEMORY;
    fake.used_bytes += bytes;
    return OK;
}

// The memory goes with the device; mappings of the test's own process stay, empty.
static void die(int code) {
    pthread_mutex_lock(&fake_lock);
    dead = code;
    if (code == 0) {
        range_count = kernel_count = 0;
        fake.used_bytes = fake.reserved_address_bytes = 0;
    }
    pthread_cond_broadcast(&fake_progress);
    pthread_mutex_unlock(&fake_lock);
}

int fake_dead(void) {
    return dead;
}

bool fake_has_event(void *e, void **out_stream, uint64_t *out_ticket) {
    *out_stream = ((event *)e)->stream;
    *out_ticket = ((event *)e)->ticket;
    return ((event *)e)->alive;
}

static void *map(size_t bytes, int rights) {
    return mmap(NULL, bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

// ---- the driver's functions ---------------------------------------------------------------------

static int alive(void) {
    return dead;
}

CUDA(cuGetErrorName, int code, const char **out) {
    *out = code == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : NULL;
    return *out ? OK : INVALID;
}
CUDA(cuGetErrorString, int code, const char **out) {
    *out = code == NO_MEMORY ? "out of memory" : NULL;
    return *out ? OK : INVALID;
}
CUDA(cuInit, unsigned flags) {
    (void)flags;
    return fake.device_count ? OK : NO_DEVICE;
}
CUDA(cuDriverGetVersion, int *out) {
    *out = 12040;
    return OK;
}
CUDA(cuDeviceGet, int *out, int ordinal) {
    *out = ordinal;
    return ordinal >= 0 && ordinal < fake.device_count ? OK : BAD_DEVICE;
}
CUDA(cuDeviceGetCount, int *out) {
    *out = fake.device_count;
    return OK;
}
CUDA(cuDeviceGetName, char *out, int bytes, int device) {
    snprintf(out, (size_t)bytes, "fake %d", device);
    return OK;
}
CUDA(cuDeviceTotalMem_v2, size_t *out, int device) {
    (void)device;
    *out = fake.capacity_bytes;
    return OK;
}
CUDA(cuDeviceGetAttribute, int *out, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case 13: // kHz
    case 36:
        *out = 1000000;
        return OK;
    case 16:
        *out = 4;
        return OK;
    case 37:
        *out = 1024;
        return OK;
    case 75:
        *out = fake.capability / 10;
        return OK;
    case 76:
        *out = fake.capability % 10;
        return OK;
    case 97:
        *out = fake_shared_most();
        return OK;
    case 102:
        *out = fake.has_vmm;
        return OK;
    case 122:
        *out = fake.has_words;
        return OK;
    default:
        *out = 0;
        return INVALID;
    }
}
CUDA(cuDevicePrimaryCtxRetain, void **out, int device) {
    (void)device;
    fake.context_count++;
    *out = &fake;
    return OK;
}
CUDA(cuDevicePrimaryCtxRelease_v2, int device) {
    (void)device;
    fake.context_count--;
    return OK;
}
static int push(void) {
    if (dead) return dead;
    depth++;
    fake.pushed_count++;
    return OK;
}
CUDA(cuCtxPushCurrent_v2, void *context) {
    (void)context;
    LOCKED(push());
}
CUDA(cuCtxPopCurrent_v2, void **out) {
    *out = &fake;
    depth--;
    LOCKED((fake.pushed_count--, OK));
}
static int synchronize_all(void) {
    fake.synchronize_count++;
    for (size_t i = 0; i < FAKE_STREAMS; i++)
        run_until(&streams[i], streams[i].launched);
    return fake_wait_all();
}
CUDA(cuCtxSynchronize, void) {
    LOCKED(synchronize_all());
}

static int allocate(unsigned long long *out, size_t bytes) {
    int code = fake_enter_call();
    if (code == OK) code = fake_take(bytes);
    if (code != OK) return code;
    void *block = map(bytes, PROT_READ | PROT_WRITE);
    *out = (uintptr_t)block;
    return add_range(*out, bytes, false);
}
CUDA(cuMemAlloc_v2, unsigned long long *out, size_t bytes) {
    LOCKED(allocate(out, bytes));
}
static int release(unsigned long long address) {
    size_t bytes;
    if (depth == 0) fake.violations++;
    int code = remove_range(address, false, &bytes);
    if (code == OK) munmap((void *)(uintptr_t)address, bytes);
    return code;
}
CUDA(cuMemFree_v2, unsigned long long address) {
    LOCKED(release(address));
}
CUDA(cuMemGetInfo_v2, size_t *out_free, size_t *out_total) {
    pthread_mutex_lock(&fake_lock);
    *out_total = fake.capacity_bytes;
    *out_free = fake.capacity_bytes - fake.used_bytes;
    int code = alive();
    pthread_mutex_unlock(&fake_lock);
    return code;
}
static int find_base(unsigned long long *base, size_t *bytes, unsigned long long address) {
    for (size_t i = 0; i < range_count; i++)
        if (address - ranges[i].address < ranges[i].bytes) {
            *base = ranges[i].address;
            *bytes = ranges[i].bytes;
            return OK;
        }
    return INVALID;
}
CUDA(cuMemGetAddressRange_v2, unsigned long long *base, size_t *bytes, unsigned long long address) {
    LOCKED(find_base(base, bytes, address));
}

static int synchronize(void *stream) {
    fake.synchronize_count++;
    if (depth == 0) fake.violations++;
    if (fake_runs(stream)) return fake_wait_done(stream, fake_submitted(stream));
    stream_state *state = state_of(stream);
    run_until(state, state->launched);
    return dead;
}
static int query(void *stream) {
    if (dead) return dead;
    if (fake_runs(stream))
        return fake_check_capture(stream)                     ? CAPTURE_BROKEN
               : fake_is_done(stream, fake_submitted(stream)) ? OK
                                                              : NOT_READY;
    return state_of(stream)->done < state_of(stream)->launched ? NOT_READY : OK;
}
CUDA(cuStreamSynchronize, void *stream) {
    LOCKED(synchronize(stream));
}
CUDA(cuStreamQuery, void *stream) {
    LOCKED(query(stream));
}
static int create_event(void **out) {
    int code = fake_enter_call();
    for (size_t i = 0; code == OK && i < MAX_EVENTS; i++)
        if (!events[i].alive) {
            events[i] = (event){.alive = true};
            *out = &events[i];
            fake.event_count++;
            fake.take_count++;
            return OK;
        }
    return code == OK ? NO_MEMORY : code;
}
CUDA(cuEventCreate, void **out, unsigned flags) {
    (void)flags;
    LOCKED(create_event(out));
}
static int record_event(event *e, void *stream) {
    int code = fake_enter_call();
    if (code != OK) return code;
    e->stream = stream;
    e->ticket = fake_runs(stream) ? fake_submitted(stream) : state_of(stream)->launched;
    return OK;
}
static int query_event(const event *e) {
    if (dead) return dead;
    if (fake_runs(e->stream)) return fake_is_done(e->stream, e->ticket) ? OK : NOT_READY;
    return state_of(e->stream)->done < e->ticket ? NOT_READY : OK;
}
static int synchronize_event(const event *e) {
    if (fake_runs(e->stream)) return fake_wait_done(e->stream, e->ticket);
    run_until(state_of(e->stream), e->ticket);
    return dead;
}
CUDA(cuEventRecord, void *e, void *stream) {
    LOCKED(record_event(e, stream));
}
CUDA(cuEventQuery, void *e) {
    LOCKED(query_event(e));
}
CUDA(cuEventSynchronize, void *e) {
    LOCKED(synchronize_event(e));
}
CUDA(cuEventDestroy_v2, void *e) {
    LOCKED((((event *)e)->alive = false, fake.event_count--, OK));
}

CUDA(cuMemGetAllocationGranularity, size_t *out, const memory_kind *kind, int option) {
    (void)option;
    *out = fake.granularity;
    return kind->type == 1 && kind->where.type == 1 ? OK : INVALID;
}
static int reserve(unsigned long long *out, size_t bytes, size_t align) {
    int code = fake_enter_call();
    if (code != OK) return code;
    char *block = map(bytes + align, PROT_NONE);
    if (block == MAP_FAILED) return NO_MEMORY;
    char *begin = (char *)(((uintptr_t)block + align - 1) & ~(uintptr_t)(align - 1));
    if (begin > block) munmap(block, (size_t)(begin - block));
    munmap(begin + bytes, (size_t)(block + align - begin));
    *out = (uintptr_t)begin;
    fake.reserved_address_bytes += bytes;
    return OK;
}
CUDA(cuMemAddressReserve, unsigned long long *out, size_t bytes, size_t align,
     unsigned long long constraint, unsigned long long flags) {
    (void)constraint, (void)flags;
    LOCKED(reserve(out, bytes, align));
}
CUDA(cuMemAddressFree, unsigned long long address, size_t bytes) {
    munmap((void *)(uintptr_t)address, bytes);
    LOCKED((fake.reserved_address_bytes -= dead ? 0 : bytes, alive()));
}
static int create(unsigned long long *out, size_t bytes, const memory_kind *kind) {
    int code = fake_enter_call();
    if (code == OK && (kind->type != 1 || bytes % fake.granularity)) code = INVALID;
    size_t i = 0;
    while (i < MAX_HANDLES && handles[i])
        i++;
    if (code == OK) code = i < MAX_HANDLES ? fake_take(bytes) : NO_MEMORY;
    if (code != OK) return code;
    handles[i] = bytes;
    *out = i + 1;
    return OK;
}
CUDA(cuMemCreate, unsigned long long *out, size_t bytes, const memory_kind *kind,
     unsigned long long flags) {
    (void)flags;
    LOCKED(create(out, bytes, kind));
}
#define MAPPED SIZE_MAX // of a handle: its bytes are the mapping's now
static int let_go(unsigned long long handle) {
    if (handles[handle - 1] != MAPPED) fake.used_bytes -= handles[handle - 1];
    handles[handle - 1] = 0;
    return OK;
}
CUDA(cuMemRelease, unsigned long long handle) {
    LOCKED(let_go(handle));
}
static int map_memory(unsigned long long address, size_t bytes, unsigned long long handle) {
    int code = fake_enter_call();
    if (code == OK && handles[handle - 1] != bytes) code = INVALID;
    if (code == OK) code = add_range(address, bytes, true);
    if (code == OK) handles[handle - 1] = MAPPED;
    return code;
}
CUDA(cuMemMap, unsigned long long address, size_t bytes, size_t offset, unsigned long long handle,
     unsigned long long flags) {
    (void)offset, (void)flags;
    LOCKED(map_memory(address, bytes, handle));
}
static int unmap_memory(unsigned long long address, size_t bytes) {
    size_t had = 0;
    if (depth == 0) fake.violations++;
    int code = remove_range(address, true, &had);
    if (code != OK || had != bytes) { // only whole mappings can be unmapped
        fake.violations++;
        return INVALID;
    }
    mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return OK;
}
CUDA(cuMemUnmap, unsigned long long address, size_t bytes) {
    LOCKED(unmap_memory(address, bytes));
}
static int allow(unsigned long long address, size_t bytes, const access_description *access) {
    int code = fake_enter_call();
    if (code == OK && (access->flags != 3 || access->where.type != 1)) code = INVALID;
    if (code == OK) mprotect((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE);
    return code;
}
CUDA(cuMemSetAccess, unsigned long long address, size_t bytes, const access_description *access,
     size_t count) {
    (void)count;
    LOCKED(allow(address, bytes, access));
}
