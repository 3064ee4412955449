// torch_allocator.c — pointers to blocks, streams to pools, and frees that have to wait.
//
//     malloc(S) ──▶ pool of S ──▶ live ──free──▶ used on other streams? ──no──▶ pool of S
//                                                        │yes
//                                                events on those streams ──passed──▶ pool of S
//
// A pool's blocks are its stream's: what is freed there may be handed out at once, for the stream's
// work is in order. Free memory changes streams only through the device, by trimming, and the
// source waits for the stream before it lets go (source.c).
//
// Locks: a device's lock guards its tables; it is taken before a pool's, and never held while a
// pool grows.
#include "backend/cuda/torch_allocator.h"
#include "backend/cuda/blocks.h"
#include "backend/cuda/source.h"
#include "backend/cuda/torch_raise.h"
#include "base/checked.h"
#include "memory/account.h"
#include "memory/ledger.h"
#include "memory/pool.h"

#include <stdio.h>

#define MAX_DEVICES (RN_DEVICE_MAX - 1) // the ledger's first one is the host
#define MAX_UNREADY 16 // frees that wait, looked at by each allocation: the others are younger

typedef struct stream_pool {
    struct stream_pool *next;
    rn_cuda_source source;
    rn_pool *pool;
} stream_pool;

typedef struct waiting { // a free for which other streams are not ready
    struct waiting *next;
    rn_cuda_block block;
} waiting;

typedef struct torch_device {
    pthread_mutex_t lock; // guards what follows
    bool is_open;
    rn_cuda_device cuda;
    stream_pool *pools; // never removed, so a pool may be used without the lock
    rn_cuda_blocks live;
    waiting *first, **end; // oldest first
    rn_torch_cuda_stats stats;
} torch_device;

static torch_device devices[MAX_DEVICES] = {
    [0 ... MAX_DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

// ---- devices and pools ------------------------------------------------------------------------

static rn_status check_number(int device) {
    if (device >= 0 && device < MAX_DEVICES) return RN_OK;
    return rn_fail(RN_INVALID, "there is no CUDA device %d: 0 to %d can be used", device,
                   MAX_DEVICES - 1);
}

static rn_status open_device(int number, torch_device *device) {
    if (device->is_open) return RN_OK;
    RN_TRY(rn_cuda_device_open(number, &device->cuda));
    device->live = (rn_cuda_blocks){.from = RN_HOST_OTHER};
    device->first = NULL;
    device->end = &device->first;
    device->is_open = true;
    return RN_OK;
}

static void destroy_pool(stream_pool *pool) {
    rn_pool_destroy(pool->pool);
    rn_cuda_source_close(&pool->source);
    rn_free(RN_HOST_OTHER, pool, sizeof *pool);
}

static rn_status create_pool(torch_device *device, void *stream, stream_pool **out) {
    void *memory;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(stream_pool), &memory));
    stream_pool *pool = memory;
    rn_status status = rn_cuda_source_open(&device->cuda, stream, RN_HOST_OTHER, &pool->source);
    if (status != RN_OK) {
        rn_free(RN_HOST_OTHER, pool, sizeof *pool);
        return status;
    }
    status = rn_pool_create_in(RN_HOST_OTHER, rn_cuda_source_functions(&pool->source), NULL,
                               &pool->pool);
    if (status != RN_OK) {
        destroy_pool(pool);
        return status;
    }
    pool->next = device->pools;
    device->pools = *out = pool;
    return RN_OK;
}

static rn_status find_pool(torch_device *device, void *stream, stream_pool **out) {
    for (stream_pool *pool = device->pools; pool; pool = pool->next)
        if (pool->source.stream == stream) {
            *out = pool;
            return RN_OK;
        }
    return create_pool(device, stream, out);
}

// ---- frees that wait --------------------------------------------------------------------------

static void drop_use(torch_device *device, rn_cuda_block *block) {
    rn_cuda_use *use = block->uses;
    block->uses = use->next;
    if (use->event) (void)device->cuda.driver->event_destroy(use->event);
    rn_free(RN_HOST_OTHER, use, sizeof *use);
}

// Whether the block's other streams have come past its free. An event that cannot be asked (the
// context is lost) has passed. The context is entered.
static bool is_ready(torch_device *device, rn_cuda_block *block, bool wait) {
    const rn_cuda_driver *driver = device->cuda.driver;
    while (block->uses) {
        rn_cu_event event = block->uses->event; // NULL: its stream was waited for
        if (event && wait)
            (void)driver->event_synchronize(event);
        else if (event && driver->event_query(event) == RN_CU_NOT_READY)
            return false;
        drop_use(device, block);
    }
    return true;
}

static void give_to_pool(const rn_cuda_block *block) {
    rn_pool_free(((stream_pool *)block->pool)->pool, block->block);
}

// Gives the blocks whose streams are ready to their pools. The lock is held.
static void settle(torch_device *device, bool wait) {
    if (!device->first || rn_cuda_enter(&device->cuda) != RN_OK) return;
    size_t unready = 0;
    waiting **at = &device->first;
    while (*at && unready < MAX_UNREADY) {
        waiting *one = *at;
        if (!is_ready(device, &one->block, wait)) {
            unready++;
            at = &one->next;
            continue;
        }
        *at = one->next;
        if (!*at) device->end = at;
        device->stats.pending_bytes -= one->block.block.bytes;
        give_to_pool(&one->block);
        rn_free(RN_HOST_OTHER, one, sizeof *one);
    }
    rn_cuda_leave(&device->cuda);
}

// Marks this moment on every other stream of the block; what cannot be marked is waited for. The
// context is entered.
static void mark_uses(torch_device *device, rn_cuda_block *block) {
    const rn_cuda_driver *driver = device->cuda.driver;
    if (block->used_unknown) (void)driver->ctx_synchronize();
    for (rn_cuda_use *use = block->uses; use; use = use->next) {
        if (driver->event_create(&use->event, RN_CU_EVENT_DISABLE_TIMING) == RN_CU_SUCCESS &&
            driver->event_record(use->event, use->stream) == RN_CU_SUCCESS)
            continue;
        (void)driver->stream_synchronize(use->stream);
    }
}

static void wait_or_give(torch_device *device, rn_cuda_block block) {
    void *memory = NULL;
    if (!block.uses && !block.used_unknown) {
        give_to_pool(&block);
        return;
    }
    if (rn_cuda_enter(&device->cuda) != RN_OK) return; // lost with the context
    mark_uses(device, &block);
    if (rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(waiting), &memory) != RN_OK)
        (void)is_ready(device, &block, true);
    rn_cuda_leave(&device->cuda);
    if (!memory) {
        give_to_pool(&block);
        return;
    }
    waiting *one = memory;
    one->block = block;
    *device->end = one;
    device->end = &one->next;
    device->stats.pending_bytes += block.block.bytes;
}

// ---- allocating -------------------------------------------------------------------------------

static rn_status begin_alloc(int number, void *stream, torch_device **out_device,
                             stream_pool **out_pool) {
    RN_TRY(check_number(number));
    torch_device *device = *out_device = &devices[number];
    pthread_mutex_lock(&device->lock);
    rn_status status = open_device(number, device);
    if (status == RN_OK) {
        settle(device, false);
        status = find_pool(device, stream, out_pool);
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}

static void release_all(torch_device *device) {
    pthread_mutex_lock(&device->lock);
    if (device->is_open) settle(device, true);
    stream_pool *pools = device->pools;
    pthread_mutex_unlock(&device->lock);
    for (stream_pool *pool = pools; pool; pool = pool->next)
        rn_pool_trim(pool->pool, 0);
}

static rn_status end_alloc(torch_device *device, stream_pool *pool, rn_pool_block block) {
    pthread_mutex_lock(&device->lock);
    rn_torch_cuda_stats *stats = &device->stats;
    rn_status status =
        rn_cuda_blocks_add(&device->live, (rn_cuda_block){.block = block, .pool = pool});
    if (status == RN_OK) {
        stats->allocated_bytes += block.bytes;
        stats->peak_allocated_bytes =
            rn_max_u64(stats->peak_allocated_bytes, stats->allocated_bytes);
        stats->alloc_count++;
    }
    pthread_mutex_unlock(&device->lock);
    if (status != RN_OK) rn_pool_free(pool->pool, block);
    return status;
}

static rn_status take(size_t bytes, int number, void *stream, uint64_t *out_address) {
    torch_device *device;
    stream_pool *pool = NULL;
    rn_pool_block block = {0};
    RN_TRY(begin_alloc(number, stream, &device, &pool));
    rn_status status = rn_pool_alloc(pool->pool, bytes, 0, &block);
    if (status == RN_OVER_BUDGET || status == RN_NO_MEMORY) {
        release_all(device);
        status = rn_pool_alloc(pool->pool, bytes, 0, &block);
    }
    if (status == RN_OK) status = end_alloc(device, pool, block);
    *out_address = block.address;
    return status;
}

// ---- refusing ---------------------------------------------------------------------------------

static void count_refusal(int number, size_t bytes) {
    torch_device *device = &devices[number];
    pthread_mutex_lock(&device->lock);
    device->stats.oom_count++;
    rn_device_id id = device->cuda.id;
    bool is_open = device->is_open;
    pthread_mutex_unlock(&device->lock);
    rn_account account = {id, RN_PURPOSE_OTHER, NULL};
    if (is_open)
        rn_ledger_emit(&(rn_event){.kind = RN_EVENT_NO_MEMORY, .account = account, .bytes = bytes});
}

static void *refuse(rn_status status, size_t bytes, int number) {
    bool out_of_memory = status == RN_OVER_BUDGET || status == RN_NO_MEMORY;
    rn_error_info error = *rn_last_error();
    if (out_of_memory) count_refusal(number, bytes);
    (void)rn_error_restore(&error);
    char message[sizeof error.message + sizeof error.hint + 128];
    snprintf(message, sizeof message, "%s. Tried to allocate %s on device %d: %s (%s)",
             out_of_memory ? "CUDA out of memory" : "CUDA memory", rn_size_format(bytes).text,
             number, error.message, error.hint);
    rn_torch_raise(out_of_memory, message);
    return NULL;
}

// ---- what PyTorch calls -----------------------------------------------------------------------

void *rn_torch_cuda_malloc(ssize_t size, int device, void *stream) {
    if (size <= 0) return NULL;
    uint64_t address = 0;
    rn_status status = take((size_t)size, device, stream, &address);
    if (status != RN_OK) return refuse(status, (size_t)size, device);
    return (void *)(uintptr_t)address;
}

void rn_torch_cuda_free(void *p, ssize_t size, int device, void *stream) {
    (void)size, (void)stream; // the table knows both
    if (!p || device < 0 || device >= MAX_DEVICES) return;
    torch_device *owner = &devices[device];
    pthread_mutex_lock(&owner->lock);
    rn_cuda_block *found = rn_cuda_blocks_find(&owner->live, (uintptr_t)p);
    if (found) {
        rn_cuda_block block = *found;
        rn_cuda_blocks_remove(&owner->live, found);
        owner->stats.allocated_bytes -= block.block.bytes;
        owner->stats.free_count++;
        wait_or_give(owner, block);
    }
    pthread_mutex_unlock(&owner->lock);
}

void rn_torch_cuda_init(int device_count) {
    const rn_cuda_driver *driver;
    if (device_count > 0) (void)!rn_cuda_driver_get(&driver);
}

void rn_torch_cuda_reset(void) {
    for (int i = 0; i < MAX_DEVICES; i++)
        release_all(&devices[i]);
}

void rn_torch_cuda_memory_fraction(double fraction, int device) {
    if (check_number(device) != RN_OK || !(fraction >= 0)) return;
    torch_device *owner = &devices[device];
    pthread_mutex_lock(&owner->lock);
    uint64_t total = open_device(device, owner) == RN_OK ? owner->cuda.total_bytes : 0;
    pthread_mutex_unlock(&owner->lock);
    // A fraction of 0 is a limit, too; that of set_limit means none.
    if (total)
        (void)!rn_torch_cuda_set_limit(
            device, fraction >= 1 ? 0 : rn_max_u64((uint64_t)(fraction * (double)total), 1));
}

static bool add_use(rn_cuda_block *block, void *stream) {
    for (rn_cuda_use *use = block->uses; use; use = use->next)
        if (use->stream == stream) return true;
    void *memory;
    if (rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_cuda_use), &memory) != RN_OK) return false;
    rn_cuda_use *use = memory;
    *use = (rn_cuda_use){.next = block->uses, .stream = stream};
    block->uses = use;
    return true;
}

// PyTorch does not say of which device the block is.
void rn_torch_cuda_record_stream(void *p, void *stream) {
    for (int i = 0; i < MAX_DEVICES; i++) {
        pthread_mutex_lock(&devices[i].lock);
        rn_cuda_block *found = rn_cuda_blocks_find(&devices[i].live, (uintptr_t)p);
        bool own = found && ((stream_pool *)found->pool)->source.stream == stream;
        if (found && !own && !add_use(found, stream)) found->used_unknown = true;
        pthread_mutex_unlock(&devices[i].lock);
        if (found) return;
    }
}

void *rn_torch_cuda_base_alloc(void *p, size_t *out_bytes) {
    const rn_cuda_driver *driver;
    rn_cu_address base = (uintptr_t)p;
    size_t bytes = 0;
    if (rn_cuda_driver_get(&driver) != RN_OK ||
        driver->mem_get_address_range(&base, &bytes, (uintptr_t)p) != RN_CU_SUCCESS) {
        base = (uintptr_t)p;
        bytes = 0;
    }
    if (out_bytes) *out_bytes = bytes;
    return (void *)(uintptr_t)base;
}

void rn_torch_cuda_begin_pool(int device, uint64_t id, uint64_t id_of_user, void *filter) {
    (void)device, (void)id, (void)id_of_user, (void)filter;
    (void)rn_fail(RN_UNSUPPORTED, "CUDA graphs and torch.cuda.use_mem_pool cannot be used together "
                                  "with ration's pool");
    rn_torch_raise(false, rn_last_error()->message);
}

// ---- what it lacks ----------------------------------------------------------------------------

rn_status rn_torch_cuda_set_limit(int device, uint64_t bytes) {
    rn_device_id id;
    RN_TRY(check_number(device));
    RN_TRY(rn_cuda_device_id(device, &id));
    return rn_budget_set(id, 0, bytes ? bytes : RN_NO_LIMIT);
}

rn_status rn_torch_cuda_get_stats(int device, rn_torch_cuda_stats *out) {
    rn_device_id id;
    uint64_t soft;
    *out = (rn_torch_cuda_stats){0};
    RN_TRY(check_number(device));
    RN_TRY(rn_cuda_device_id(device, &id));
    torch_device *owner = &devices[device];
    pthread_mutex_lock(&owner->lock);
    if (owner->is_open) settle(owner, false);
    *out = owner->stats;
    out->reserved_bytes = atomic_load(&owner->cuda.reserved_bytes);
    out->peak_reserved_bytes = atomic_load(&owner->cuda.peak_reserved_bytes);
    pthread_mutex_unlock(&owner->lock);
    rn_budget_get(id, &soft, &out->limit_bytes);
    return RN_OK;
}

rn_status rn_torch_cuda_reset_peak(int device) {
    RN_TRY(check_number(device));
    torch_device *owner = &devices[device];
    pthread_mutex_lock(&owner->lock);
    owner->stats.peak_allocated_bytes = owner->stats.allocated_bytes;
    atomic_store(&owner->cuda.peak_reserved_bytes, atomic_load(&owner->cuda.reserved_bytes));
    pthread_mutex_unlock(&owner->lock);
    return RN_OK;
}

// ---- for tests --------------------------------------------------------------------------------

static void drop_blocks(torch_device *device) {
    for (size_t i = 0; i < device->live.capacity; i++)
        while (device->live.slots[i].uses)
            drop_use(device, &device->live.slots[i]);
    rn_cuda_blocks_free(&device->live);
}

static void close_device(torch_device *device) {
    settle(device, true);
    drop_blocks(device);
    while (device->pools) {
        stream_pool *pool = device->pools;
        device->pools = pool->next;
        destroy_pool(pool);
    }
    rn_cuda_device_close(&device->cuda);
    device->cuda = (rn_cuda_device){0};
    device->stats = (rn_torch_cuda_stats){0};
    device->is_open = false;
}

void rn_torch_cuda_clear(void) {
    for (int i = 0; i < MAX_DEVICES; i++)
        if (devices[i].is_open) close_device(&devices[i]);
}

bool rn_torch_cuda_is_valid(void) {
    bool valid = true;
    for (int i = 0; i < MAX_DEVICES; i++)
        for (stream_pool *pool = devices[i].pools; pool; pool = pool->next)
            valid = valid && rn_pool_is_valid(pool->pool);
    return valid;
}
