// share.h — a loop over threads whose tasks know a slot: the part of the workspace that is theirs.
#ifndef RN_BACKEND_CPU_SHARE_H
#define RN_BACKEND_CPU_SHARE_H

#include "graph/op.h"

typedef void (*rn_slot_task)(void *arg, uint32_t slot, size_t index);

// Runs fn(arg, slot, 0 .. count - 1) on the call's workers. slot < call->threads, and no two tasks
// that run at the same time have the same one. Indices are taken in order.
void rn_share(const rn_call *call, size_t count, rn_slot_task fn, void *arg);

// The same in another order: each slot takes its own run of neighbouring indices first, then what
// is left of the others'. Where indices are parts of an image from top to bottom, a part mostly
// stays with the core that made it, in one kernel after the other.
void rn_share_runs(const rn_call *call, size_t count, rn_slot_task fn, void *arg);

#endif
