// record_names.c — texts become numbers once; after that an event carries four bytes.
//
// A record in the log is what the file's NAMES block has, and behind its number it is the key of
// the map at the same time: the three texts, each with its length.
#include "profile/record/record.h"

#include "base/map.h"
#include "base/str.h"
#include "memory/account.h"

#include <stdio.h>

enum {
    MAX_NAMES = 1 << 20,
    MAX_NAME_BYTES = 1000,
    MAX_DETAIL_BYTES = 6000,
    MAX_LANE_CHUNKS = 128,
    MAX_LANE_BYTES = 200,
    MAX_QUEUES = 256,
};

rn_record_log rn_names_log, rn_lanes_log;
pthread_mutex_t rn_names_lock = PTHREAD_MUTEX_INITIALIZER;

static rn_map ids; // key: where its record lies. Under rn_names_lock, as what follows
static uint32_t name_count;
static struct queue {
    uint32_t lane;
    char name[MAX_LANE_BYTES + 1];
} queues[MAX_QUEUES];
static size_t queue_count;
static bool lanes_open; // between rn_lanes_begin and rn_lanes_end
static _Atomic uint32_t lane_count;

// ---- names --------------------------------------------------------------------------------------

typedef struct text_record {
    char data[4 * sizeof(uint32_t) + 2 * MAX_NAME_BYTES + MAX_DETAIL_BYTES];
    uint32_t bytes;
} text_record;

static void add_u32(text_record *record, uint32_t value) {
    memcpy(record->data + record->bytes, &value, sizeof value);
    record->bytes += sizeof value;
}

static void add_text(text_record *record, rn_str text, uint32_t most) {
    uint32_t bytes = text.bytes < most ? (uint32_t)text.bytes : most;
    add_u32(record, bytes);
    if (bytes) memcpy(record->data + record->bytes, text.data, bytes);
    record->bytes += bytes;
}

// The record in the log that says the same, or a new one; NULL where there is no room.
static const char *find_or_add(text_record *record) {
    uint64_t at;
    uint32_t next = name_count + 1;
    rn_str key = {record->data + sizeof next, record->bytes - sizeof next};
    if (!ids.from) rn_map_init(&ids, &rn_host_allocators[RN_PURPOSE_PROFILER]);
    if (rn_map_find(&ids, key, &at)) return (const char *)(uintptr_t)at;
    if (next > MAX_NAMES || rn_map_reserve(&ids, next) != RN_OK) return NULL;
    memcpy(record->data, &next, sizeof next);
    key.data = rn_record_log_append(&rn_names_log, record->data, record->bytes, RN_LOG_CHUNKS);
    if (!key.data) return NULL;
    name_count = next;
    at = (uintptr_t)key.data;
    key.data += sizeof next;
    return rn_map_add(&ids, key, at, NULL) == RN_OK ? (const char *)(uintptr_t)at : NULL;
}

static const char *find_or_add_quietly(text_record *record) {
    rn_told told;
    rn_aside before = rn_aside_begin();
    rn_told_keep(&told);
    pthread_mutex_lock(&rn_names_lock);
    const char *at = find_or_add(record);
    pthread_mutex_unlock(&rn_names_lock);
    if (!at) rn_told_restore(&told);
    rn_aside_end(before);
    return at;
}

uint32_t rn_name_intern(rn_str name, rn_str group, rn_str detail, rn_str *out_text) {
    text_record record;
    uint32_t id = 0, bytes;
    record.bytes = 0;
    add_u32(&record, 0); // the number, when it is known
    add_text(&record, name, MAX_NAME_BYTES);
    add_text(&record, group, MAX_NAME_BYTES);
    add_text(&record, detail, MAX_DETAIL_BYTES);
    // While the recorder allocates, its lock is taken already: such an event has no name.
    const char *at = rn_this_recording.busy ? NULL : find_or_add_quietly(&record);
    if (!at) return 0;
    memcpy(&id, at, sizeof id);
    memcpy(&bytes, at + sizeof id, sizeof bytes);
    if (out_text) *out_text = (rn_str){at + 2 * sizeof id, bytes};
    return id;
}

// A text is known by its address, and believed only if it still says the same: buffers are used
// again, and so is the memory of holders.
static bool slot_says(const rn_name_slot *slot, const char *name) {
    return slot->key == name && strncmp(name, slot->text.data, slot->text.bytes) == 0 &&
           name[slot->text.bytes] == '\0';
}

static size_t slot_of(const char *name) {
    return (size_t)(((uintptr_t)name * 0x9e3779b97f4a7c15u) >> 58);
}
_Static_assert(RN_NAME_CACHE == 64, "slot_of takes the upper 6 bits");

static void remember(const char *name, rn_str text, uint32_t id) {
    rn_recording_thread *thread = &rn_this_recording;
    if (!id || !rn_recording_enter(thread)) return;
    thread->ring->names[slot_of(name)] = (rn_name_slot){name, text, id};
    rn_recording_leave(thread);
}

uint32_t rn_name_cached(const char *name) {
    rn_recording_thread *thread = &rn_this_recording;
    rn_str text = {0};
    if (!name || !*name) return 0;
    if (rn_recording_enter(thread)) {
        const rn_name_slot *slot = &thread->ring->names[slot_of(name)];
        uint32_t id = slot_says(slot, name) ? slot->id : 0;
        rn_recording_leave(thread);
        if (id) return id;
    }
    uint32_t id = rn_name_intern(rn_str_from(name), (rn_str){0}, (rn_str){0}, &text);
    remember(name, text, id);
    return id;
}

uint32_t rn_profile_name(const char *name) {
    return rn_profile_is_on() ? rn_name_cached(name) : 0;
}

uint32_t rn_profile_label(const char *name, const char *group, const char *detail) {
    if (!rn_profile_is_on()) return 0;
    if (!group && !detail) return rn_name_cached(name);
    return rn_name_intern(rn_str_from(name), rn_str_from(group), rn_str_from(detail), NULL);
}

// ---- lanes --------------------------------------------------------------------------------------

uint32_t rn_lane_next(void) {
    return atomic_fetch_add(&lane_count, 1) + 1;
}

// Under rn_names_lock. A lane without a record has no name in the file, no more than that.
static void call_lane(uint32_t lane, uint32_t kind, const char *name) {
    text_record record;
    if (!lanes_open) return;
    record.bytes = 0;
    add_u32(&record, lane);
    add_u32(&record, kind);
    add_text(&record, rn_str_from(name), MAX_LANE_BYTES);
    rn_told told;
    rn_aside before = rn_aside_begin();
    rn_told_keep(&told);
    if (!rn_record_log_append(&rn_lanes_log, record.data, record.bytes, MAX_LANE_CHUNKS))
        rn_told_restore(&told);
    rn_aside_end(before);
}

void rn_lane_call(uint32_t lane, const char *name) {
    pthread_mutex_lock(&rn_names_lock);
    call_lane(lane, 0, name);
    pthread_mutex_unlock(&rn_names_lock);
}

void rn_profile_thread_name(const char *name) {
    if (!name || !rn_profile_is_on()) return;
    uint32_t lane = rn_recording_lane();
    if (lane) rn_lane_call(lane, name);
}

static uint32_t find_or_add_queue(const char *name) {
    for (size_t i = 0; i < queue_count; i++)
        if (strncmp(queues[i].name, name, MAX_LANE_BYTES) == 0) return queues[i].lane;
    if (queue_count == MAX_QUEUES) return 0;
    struct queue *queue = &queues[queue_count++];
    snprintf(queue->name, sizeof queue->name, "%s", name);
    queue->lane = rn_lane_next();
    call_lane(queue->lane, 1, queue->name);
    return queue->lane;
}

uint32_t rn_profile_lane(const char *name) {
    if (!name) return 0;
    pthread_mutex_lock(&rn_names_lock);
    uint32_t lane = find_or_add_queue(name);
    pthread_mutex_unlock(&rn_names_lock);
    return lane;
}

void rn_lanes_begin(void) {
    pthread_mutex_lock(&rn_names_lock);
    lanes_open = true;
    for (size_t i = 0; i < queue_count; i++)
        call_lane(queues[i].lane, 1, queues[i].name);
    pthread_mutex_unlock(&rn_names_lock);
}

void rn_lanes_end(void) {
    pthread_mutex_lock(&rn_names_lock);
    lanes_open = false;
    rn_aside before = rn_aside_begin();
    rn_record_log_free(&rn_lanes_log);
    rn_aside_end(before);
    pthread_mutex_unlock(&rn_names_lock);
}
