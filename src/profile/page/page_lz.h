// page_lz.h — bytes that repeat, written once. A model runs the same steps for every token, so most
// columns are one period over and over.
//
// Packed bytes are a list of runs, numbers in the form "v" of page_columns.h:
//     literals   how many bytes follow, then these
//     length     of a match, less RN_PAGE_LZ_LEAST
//     distance   how far back it begins, from 1; it may reach into itself
// The list ends where all bytes are there, perhaps behind literals.
#ifndef RN_PROFILE_PAGE_LZ_H
#define RN_PROFILE_PAGE_LZ_H

#include <stddef.h>
#include <stdint.h>

#define RN_PAGE_LZ_LEAST 4
#define RN_PAGE_LZ_SLOTS ((size_t)1 << 16)

// Packs `bytes` bytes (below 4 GiB) into `to`; `slots` (RN_PAGE_LZ_SLOTS) is scratch memory. The
// bytes written, or 0 where they would be more than `capacity`.
size_t rn_page_lz_pack(const uint8_t *from, size_t bytes, uint8_t *to, size_t capacity,
                       uint32_t *slots);

#endif
