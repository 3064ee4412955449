// page_cache.c — cachestat where the kernel has it, mincore where the file is ours.
//
// Both only look: neither reads a page nor changes its age. mincore answers "resident" for every
// page of a file that belongs to somebody else (so that nobody can spy on other people's reads),
// which is why it is used for our own files only. cachestat refuses such files openly on newer
// kernels.
#include "base/page_cache.h"
#include "base/checked.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// The system call is younger than the oldest C library that we build with; its number is the same
// on every architecture.
#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

#define MINCORE_PAGES 512 // asked for in one go; the answer lies on the stack

struct cache_range {
    uint64_t offset;
    uint64_t bytes;
};

struct cache_counts {
    uint64_t cached, dirty, writeback, evicted, recently_evicted; // pages
};

static bool count_cached(int fd, uint64_t offset, uint64_t bytes, uint64_t *out_pages) {
    struct cache_range range = {offset, bytes};
    struct cache_counts counts = {0};
    if (syscall(SYS_cachestat, fd, &range, &counts, 0) != 0) return false;
    *out_pages = counts.cached;
    return true;
}

static uint64_t page_bytes(void) {
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static bool mincore_holds(int fd, uint64_t begin, uint64_t end, uint64_t page) {
    unsigned char resident[MINCORE_PAGES];
    while (begin < end) {
        size_t bytes = rn_min_u64(end - begin, MINCORE_PAGES * page);
        void *window = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, (off_t)begin);
        if (window == MAP_FAILED) return false;
        bool all = mincore(window, bytes, resident) == 0;
        for (size_t i = 0; all && i < rn_div_up(bytes, page); i++)
            all = resident[i] & 1;
        munmap(window, bytes);
        if (!all) return false;
        begin += bytes;
    }
    return true;
}

rn_page_cache_view rn_page_cache_probe(int fd) {
    uint64_t pages;
    struct stat info;
    if (count_cached(fd, 0, 1, &pages)) return RN_PAGE_CACHE_CACHESTAT;
    if (fstat(fd, &info) == 0 && info.st_uid == geteuid()) return RN_PAGE_CACHE_MINCORE;
    return RN_PAGE_CACHE_HIDDEN;
}

bool rn_page_cache_holds(rn_page_cache_view view, int fd, uint64_t offset, uint64_t bytes) {
    uint64_t page = page_bytes(), pages;
    uint64_t begin = rn_round_down(offset, page), end = offset + bytes;
    switch (view) {
    case RN_PAGE_CACHE_CACHESTAT:
        return count_cached(fd, begin, end - begin, &pages) &&
               pages >= rn_div_up(end - begin, page);
    case RN_PAGE_CACHE_MINCORE:
        return mincore_holds(fd, begin, end, page);
    case RN_PAGE_CACHE_HIDDEN:
        break;
    }
    return false;
}
