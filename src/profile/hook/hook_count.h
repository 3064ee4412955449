// hook_count.h — what the replaced functions (hook_calls.c) tell the counting (hooks.c).
#ifndef RN_PROFILE_HOOK_COUNT_H
#define RN_PROFILE_HOOK_COUNT_H

#include <ration/hooks.h>

// Before an allocation: false where the limit forbids it. *out_wanted: whether the block is one to
// record; then the room is taken, and is what rn_hook_saw_alloc counts, or is given back.
bool rn_hook_take_room(uint64_t bytes, uint64_t align, bool *out_wanted);
void rn_hook_give_room(uint64_t bytes);
// After the allocation, for which room was taken.
void rn_hook_saw_alloc(const void *address, uint64_t bytes);
// Before the release, of any address. Returns the block's bytes; 0 where it is not known.
uint64_t rn_hook_saw_free(const void *address);

// Nobody hears of releases any more: no block is live, as far as is known.
void rn_hook_forget(void);

// hook_calls.c
size_t rn_hook_slot_count(void);
bool rn_hook_is_wrapped(void);

#endif
