// alloc.c — malloc for small blocks, mmap for large ones. Nothing else in the library calls either.
#include "base/alloc.h"
#include "base/checked.h"
#include "base/fault.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// An alignment above a page's is found inside a larger mapping, whose ends go back at once.
static void *map_block(size_t bytes, size_t align) {
    size_t spare = align > RN_PAGE_BYTES ? align - RN_PAGE_BYTES : 0, whole;
    if (!rn_add_size(rn_round_up(bytes, RN_PAGE_BYTES), spare, &whole)) return NULL;
    char *begin = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) return NULL;
    size_t before = spare ? -(uintptr_t)begin & (align - 1) : 0;
    if (before) munmap(begin, before);
    if (spare > before) munmap(begin + whole - (spare - before), spare - before);
    return begin + before;
}

static void *system_alloc(void *self, size_t bytes, size_t align) {
    (void)self;
    void *block = NULL;
    if (!rn_fault_hit(RN_FAULT_ALLOC)) {
        size_t least = align < sizeof(void *) ? sizeof(void *) : align;
        if (bytes >= RN_MAP_THRESHOLD)
            block = map_block(bytes, align);
        else if (posix_memalign(&block, least, bytes) != 0)
            block = NULL;
    }
    if (!block) (void)rn_fail(RN_NO_MEMORY, "the system has no memory for %zu bytes", bytes);
    return block;
}

static void system_free(void *self, void *block, size_t bytes) {
    (void)self;
    if (bytes >= RN_MAP_THRESHOLD)
        munmap(block, bytes);
    else
        free(block);
}

const rn_allocator rn_system_allocator = {NULL, system_alloc, system_free};

rn_status rn_alloc_aligned(const rn_allocator *from, size_t bytes, size_t align, void **out) {
    *out = NULL;
    if (bytes == 0) return RN_OK;
    if (bytes > PTRDIFF_MAX)
        return rn_fail(RN_NO_MEMORY, "%zu bytes is no size for a block", bytes);
    *out = from->alloc(from->self, bytes, align);
    return *out ? RN_OK : rn_last_error()->status;
}

rn_status rn_alloc(const rn_allocator *from, size_t bytes, void **out) {
    return rn_alloc_aligned(from, bytes, 64, out);
}

rn_status rn_alloc_zeroed(const rn_allocator *from, size_t count, size_t item_bytes, void **out) {
    size_t bytes;
    *out = NULL;
    if (!rn_mul_size(count, item_bytes, &bytes))
        return rn_fail(RN_NO_MEMORY, "%zu items of %zu bytes overflow", count, item_bytes);
    RN_TRY(rn_alloc(from, bytes, out));
    if (*out && bytes < RN_MAP_THRESHOLD) memset(*out, 0, bytes); // mapped memory is zero already
    return RN_OK;
}

void rn_free(const rn_allocator *from, void *block, size_t bytes) {
    if (block) from->free(from->self, block, bytes);
}

void rn_alloc_trim(void) {
#if defined(__GLIBC__)
    (void)malloc_trim(0);
#endif
}
