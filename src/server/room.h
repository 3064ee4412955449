// room.h — the bytes that all requests together may take: bodies, prompts, answers. A request takes
// its share before it allocates anything, so that what is promised can be kept.
#ifndef RN_SERVER_ROOM_H
#define RN_SERVER_ROOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct rn_room {
    uint64_t total_bytes;
    _Atomic uint64_t taken_bytes, peak_bytes;
} rn_room;

void rn_room_init(rn_room *room, uint64_t total_bytes);
// From any thread. False: not now.
bool rn_room_take(rn_room *room, uint64_t bytes);
void rn_room_give_back(rn_room *room, uint64_t bytes);

#endif
