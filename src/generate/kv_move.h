// kv_move.h — pages of the KV cache from one session's states to another's.
//
// Two sessions may compute different layers of one text, or the same layers at different times: the
// host's some of the first ones, a device all of them. They share one page table, so a page has one
// number in both.
#ifndef RN_RUNTIME_KV_MOVE_H
#define RN_RUNTIME_KV_MOVE_H

#include <ration/session.h>

// Copies these pages of every KV state that both graphs have (by name; their shapes are equal), and
// waits. At least one of the sessions has its states in the host's memory. Pages that follow each
// other in `pages` and in number are one copy. A failure is the other one's: it must be reset.
RN_MUST_USE rn_status rn_kv_move(rn_session *from, rn_session *to,
                                 const int32_t *pages /* (count) */, uint32_t count);

#endif
