// place_shelf.h — the items put down so far, by offset, and the lowest gap for the next one.
#ifndef RN_PLAN_PLACE_SHELF_H
#define RN_PLAN_PLACE_SHELF_H

#include "plan/place.h"

typedef struct rn_place_shelf rn_place_shelf;

// Room for exactly these items, each put down at most once.
RN_MUST_USE rn_status rn_place_shelf_create(const rn_allocator *from, const rn_place_item *items,
                                            size_t count, rn_place_shelf **out);
void rn_place_shelf_destroy(rn_place_shelf *shelf);
// Takes everything up again.
void rn_place_shelf_clear(rn_place_shelf *shelf);
// Puts the item into the lowest gap that it fits (or, with `tight`, the one that leaves least over)
// and says where. False where the thread's stops do not let it go on: the shelf must be cleared.
RN_MUST_USE bool rn_place_shelf_put(rn_place_shelf *shelf, const rn_place_item *item, bool tight,
                                    uint64_t *out_offset);

#endif
