// pinned.c — first the limit, then the budget, then the driver, then the charge.
//
// The driver's own allocation clears a block page by page in one thread, about a second for 2 GB.
// So a large one is mapped here in huge pages, which several threads touch, and then registered.
#include "backend/cuda/pinned.h"
#include "base/checked.h"
#include "memory/account.h"
#include "memory/budget.h"
#include "memory/ledger.h"

#include <ration/cuda.h>

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic uint64_t limit_bytes; // 0: the default
static _Atomic uint64_t pinned_bytes;

// ---- the limit --------------------------------------------------------------------------------

void rn_cuda_set_pinned_limit(uint64_t bytes) {
    atomic_store(&limit_bytes, bytes);
}

uint64_t rn_cuda_pinned_limit(void) {
    rn_process_info info;
    uint64_t limit = atomic_load(&limit_bytes);
    if (limit == 0 && rn_process_read(&info) == RN_OK) limit = rn_process_whole_bytes(&info) / 2;
    return limit;
}

uint64_t rn_cuda_pinned_bytes(void) {
    return atomic_load(&pinned_bytes);
}

static rn_status reserve(rn_account account, uint64_t bytes) {
    uint64_t limit = rn_cuda_pinned_limit(), now = atomic_load(&pinned_bytes);
    do
        if (bytes > limit || now > limit - bytes)
            return rn_hint(rn_budget_refuse(account, bytes, limit, now + rn_min_u64(bytes, ~now)),
                           "this is the limit of pinned memory, of which %s are held; "
                           "rn_cuda_set_pinned_limit changes it",
                           rn_size_format(now).text);
    while (!atomic_compare_exchange_weak(&pinned_bytes, &now, now + bytes));
    return RN_OK;
}

// ---- blocks -----------------------------------------------------------------------------------

// Large blocks that are ours and registered, so that they are given back as they were taken.
enum { MAPPED_MOST = 64, TOUCHERS_MOST = 16 };
#define MAPPED_LEAST ((uint64_t)256 << 20)
#define HUGE_PAGE    ((size_t)2 << 20)
static pthread_mutex_t mapped_lock = PTHREAD_MUTEX_INITIALIZER;
static void *mapped[MAPPED_MOST]; // NULL: free

static bool note_mapped(void *old, void *block) {
    bool found = false;
    pthread_mutex_lock(&mapped_lock);
    for (int i = 0; i < MAPPED_MOST && !found; i++)
        if (mapped[i] == old) mapped[i] = block, found = true;
    pthread_mutex_unlock(&mapped_lock);
    return found;
}

typedef struct toucher {
    pthread_t thread;
    volatile uint8_t *from, *to;
    bool runs;
} toucher;

static void *touch(void *arg) {
    toucher *t = arg;
    for (volatile uint8_t *at = t->from; at < t->to; at += RN_PAGE_BYTES)
        *at = 0;
    return NULL;
}

// Pages come into being where they are first written: in huge pages, by several threads.
static void touch_all(uint8_t *block, uint64_t bytes) {
    toucher touchers[TOUCHERS_MOST];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t count = rn_max_u64(rn_min_u64(cpus > 0 ? (uint64_t)cpus : 1, TOUCHERS_MOST), 1);
    uint64_t each = rn_round_up(rn_div_up(bytes, count), HUGE_PAGE);
    (void)madvise(block, bytes, MADV_HUGEPAGE);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t from = rn_min_u64(i * each, bytes), to = rn_min_u64(from + each, bytes);
        touchers[i] = (toucher){.from = block + from, .to = block + to};
        touchers[i].runs = pthread_create(&touchers[i].thread, NULL, touch, &touchers[i]) == 0;
        if (!touchers[i].runs) touch(&touchers[i]);
    }
    for (uint64_t i = 0; i < count; i++)
        if (touchers[i].runs) (void)pthread_join(touchers[i].thread, NULL);
}

// False: the driver is to allocate it.
static bool map_large(const rn_cuda_driver *driver, uint64_t bytes, void **out) {
    if (bytes < MAPPED_LEAST || !driver->mem_host_register || !driver->mem_host_unregister)
        return false;
    void *block = rn_system_allocator.alloc(rn_system_allocator.self, bytes, HUGE_PAGE);
    if (!block) return false;
    touch_all(block, bytes);
    bool pinned = driver->mem_host_register(block, bytes, RN_CU_HOST_PORTABLE) == RN_CU_SUCCESS;
    if (pinned && note_mapped(NULL, block)) {
        *out = block;
        return true;
    }
    if (pinned) (void)driver->mem_host_unregister(block);
    rn_system_allocator.free(rn_system_allocator.self, block, bytes);
    return false;
}

static rn_status allocate(const rn_cuda_driver *driver, uint64_t bytes, void **out) {
    if (map_large(driver, bytes, out)) return RN_OK;
    return rn_cuda_check(driver, driver->mem_host_alloc(out, bytes, RN_CU_HOST_PORTABLE),
                         "pinning host memory");
}

static rn_status pin(const rn_cuda_driver *driver, rn_account account, uint64_t bytes, void **out) {
    RN_TRY(rn_budget_reserve(account, bytes));
    rn_status status = allocate(driver, bytes, out);
    if (status == RN_OK)
        rn_ledger_count(account, *out, bytes);
    else
        rn_ledger_give_up(account, bytes);
    return status;
}

rn_status rn_cuda_pinned_take(const rn_cuda_driver *driver, rn_account account, uint64_t bytes,
                              void **out) {
    *out = NULL;
    RN_TRY(reserve(account, bytes));
    rn_status status = pin(driver, account, bytes, out);
    if (status != RN_OK) atomic_fetch_sub(&pinned_bytes, bytes);
    return status;
}

void rn_cuda_pinned_release(const rn_cuda_driver *driver, rn_account account, void *block,
                            uint64_t bytes) {
    rn_ledger_release(account, block, bytes);
    if (bytes >= MAPPED_LEAST && note_mapped(block, NULL)) {
        (void)driver->mem_host_unregister(block);
        rn_system_allocator.free(rn_system_allocator.self, block, bytes);
    } else {
        (void)driver->mem_free_host(block);
    }
    atomic_fetch_sub(&pinned_bytes, bytes);
}

// ---- words ------------------------------------------------------------------------------------

enum { WORD_BYTES = 64, SLAB_WORDS = 64, SLAB_BYTES = WORD_BYTES * SLAB_WORDS };

struct rn_cuda_word_slab {
    rn_cuda_word_slab *next;
    uint8_t *block; // (SLAB_BYTES), pinned
    uint64_t taken; // bit i: word i
};

static const rn_account account = {.device = RN_DEVICE_HOST, .purpose = RN_PURPOSE_OTHER};

void rn_cuda_words_open(const rn_cuda_driver *driver, rn_cuda_words *out) {
    *out = (rn_cuda_words){.driver = driver};
    pthread_mutex_init(&out->lock, NULL);
}

void rn_cuda_words_close(rn_cuda_words *words) {
    while (words->slabs) {
        rn_cuda_word_slab *slab = words->slabs;
        words->slabs = slab->next;
        rn_cuda_pinned_release(words->driver, account, slab->block, SLAB_BYTES);
        rn_free(RN_HOST_OTHER, slab, sizeof *slab);
    }
    pthread_mutex_destroy(&words->lock);
}

static rn_status add_slab(rn_cuda_words *words) {
    void *memory = NULL, *block = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_cuda_word_slab), &memory));
    rn_status status = rn_cuda_pinned_take(words->driver, account, SLAB_BYTES, &block);
    if (status != RN_OK) {
        rn_free(RN_HOST_OTHER, memory, sizeof(rn_cuda_word_slab));
        return status;
    }
    rn_cuda_word_slab *slab = memory;
    *slab = (rn_cuda_word_slab){.next = words->slabs, .block = block};
    words->slabs = slab;
    return RN_OK;
}

static rn_status take_word(rn_cuda_words *words, rn_cuda_word **out) {
    rn_cuda_word_slab *slab = words->slabs;
    while (slab && slab->taken == UINT64_MAX)
        slab = slab->next;
    if (!slab) RN_TRY(add_slab(words));
    if (!slab) slab = words->slabs;
    int free_one = __builtin_ctzll(~slab->taken);
    slab->taken |= (uint64_t)1 << free_one;
    *out = (rn_cuda_word *)(void *)(slab->block + (size_t)free_one * WORD_BYTES);
    atomic_store(*out, 0);
    return RN_OK;
}

rn_status rn_cuda_words_take(rn_cuda_words *words, rn_cuda_word **out) {
    pthread_mutex_lock(&words->lock);
    rn_status status = take_word(words, out);
    pthread_mutex_unlock(&words->lock);
    return status;
}

void rn_cuda_words_release(rn_cuda_words *words, rn_cuda_word *word) {
    const uint8_t *at = (const uint8_t *)word;
    pthread_mutex_lock(&words->lock);
    for (rn_cuda_word_slab *slab = words->slabs; slab; slab = slab->next)
        if ((uintptr_t)at - (uintptr_t)slab->block < SLAB_BYTES)
            slab->taken &= ~((uint64_t)1 << (size_t)(at - slab->block) / WORD_BYTES);
    pthread_mutex_unlock(&words->lock);
}
