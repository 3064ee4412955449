// page_cache.h — asks whether a range of a file is in the page cache, without touching it.
#ifndef RN_BASE_PAGE_CACHE_H
#define RN_BASE_PAGE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

// How the kernel lets this process see a file's cached pages.
typedef enum rn_page_cache_view {
    RN_PAGE_CACHE_HIDDEN,    // not at all: every range counts as not cached
    RN_PAGE_CACHE_CACHESTAT, // cachestat(2), Linux 6.5 and later
    RN_PAGE_CACHE_MINCORE,   // mincore(2) on a mapping; tells the truth only to the file's owner
} rn_page_cache_view;

// The best view of an open regular file.
rn_page_cache_view rn_page_cache_probe(int fd);

// Whether every page of [offset, offset + bytes) is cached at this moment; the range must end
// inside the file and bytes > 0. Doubts (an error, a hidden view) are answered with false.
bool rn_page_cache_holds(rn_page_cache_view view, int fd, uint64_t offset, uint64_t bytes);

#endif
