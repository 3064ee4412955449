// hook_count.h — what the replaced functions (hook_calls.c) tell the counting (hooks.c).
#ifndef RN_PROFILE_HOOK_COUNT_H
#define RN_PROFILE_HOOK_COUNT_H

#include <ration/hooks.h>

typedef enum rn_hook_room {
    RN_HOOK_REFUSED,  // the limit forbids it
    RN_HOOK_UNWANTED, // not one to record
    RN_HOOK_WANTED,   // is counted when it is there
    RN_HOOK_TAKEN     // there is a limit: it is counted already
} rn_hook_room;
// Before an allocation.
rn_hook_room rn_hook_take_room(uint64_t bytes, uint64_t align);
// After it: `address` is NULL where it failed.
void rn_hook_saw_alloc(const void *address, uint64_t bytes, rn_hook_room room);
// Before the release, of any address. Returns the block's bytes; 0 where it is not known.
uint64_t rn_hook_saw_free(const void *address);

// Nobody hears of releases any more: no block is live, as far as is known.
void rn_hook_forget(void);

// hook_calls.c
size_t rn_hook_slot_count(void);
bool rn_hook_is_wrapped(void);

#endif
