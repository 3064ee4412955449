// hook_table.h — which blocks are live, by address: what other code's allocations need, as their
// releases say no size.
#ifndef RN_PROFILE_HOOK_TABLE_H
#define RN_PROFILE_HOOK_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RN_HOOK_MOST_BYTES (((uint64_t)1 << 48) - 1)

typedef struct rn_hook_block {
    uint64_t bytes;  // above 0, at most RN_HOOK_MOST_BYTES
    uint8_t purpose; // as the recording was told
    uint8_t label;   // as it was called since
} rn_hook_block;

typedef enum rn_hook_put {
    RN_HOOK_NEW,
    RN_HOOK_REPLACED, // the address was there: its release was not seen
    RN_HOOK_NO_MEMORY // not remembered
} rn_hook_put;

// Any thread. `out_old` is set when it was replaced; `keep`: what is there stays (REPLACED).
rn_hook_put rn_hook_table_put(uint64_t address, rn_hook_block block, bool keep,
                              rn_hook_block *out_old);
// Whether it was there; removed by take.
bool rn_hook_table_take(uint64_t address, rn_hook_block *out);
bool rn_hook_table_find(uint64_t address, rn_hook_block *out);
// The same, and its label is this from now on.
bool rn_hook_table_label(uint64_t address, uint8_t label, rn_hook_block *out);

typedef struct rn_hook_table_counts {
    uint64_t live, total, total_bytes, missed;
} rn_hook_table_counts;
rn_hook_table_counts rn_hook_table_count(void);

// Calls `visit` for each live block, a part of the table locked at a time: it must not come back
// here.
void rn_hook_table_walk(void (*visit)(void *self, uint64_t address, rn_hook_block block),
                        void *self);
// Forgets every block; returns the sum of their bytes.
uint64_t rn_hook_table_forget(void);
// The same, the counts as well, and gives the memory back. For tests.
void rn_hook_table_clear(void);

#endif
