// page_bench.c — how long it takes to write the page of a timeline with many events, by default a
// million: page_bench [EVENTS [FILE]]. Half of the events are begins and ends of operations (three
// deep, on two threads and a queue), half allocations and releases, some of them in an arena.
#include "base/clock.h"
#include "base/str.h"
#include "profile/page/page.h"

#include <stdio.h>
#include <stdlib.h>

enum { LANES = 3, NAMES = 48, STEP_NS = 2000 };

typedef struct maker {
    rn_timeline *timeline;
    uint32_t names[NAMES];
    uint64_t random;
} maker;

static uint64_t next_random(maker *m) {
    m->random = m->random * 6364136223846793005u + 1442695040888963407u;
    return m->random >> 33;
}

static rn_status add_names(maker *m) {
    static const char *const kinds[] = {"matmul", "attention", "norm", "rope", "silu", "add"};
    uint32_t lane;
    uint8_t device;
    for (int i = 0; i < NAMES; i++) {
        char name[32], group[32];
        snprintf(name, sizeof name, "%s", kinds[i % 6]);
        snprintf(group, sizeof group, "layer %d", i / 6);
        RN_TRY(rn_timeline_add_name(m->timeline, rn_str_from(name), rn_str_from(group),
                                    RN_STR("f16 [4096, 4096] x f32 [1, 4096]"), &m->names[i]));
    }
    RN_TRY(rn_timeline_add_device(m->timeline, RN_STR("host"), &device));
    RN_TRY(rn_timeline_add_device(m->timeline, RN_STR("gpu 0"), &device));
    RN_TRY(rn_timeline_add_lane(m->timeline, RN_STR("main"), false, &lane));
    RN_TRY(rn_timeline_add_lane(m->timeline, RN_STR("worker"), false, &lane));
    return rn_timeline_add_lane(m->timeline, RN_STR("read queue"), true, &lane);
}

// An operation with two inside, the second with one of its own: eight events.
static rn_status add_operations(maker *m, uint64_t at) {
    uint32_t lane = (uint32_t)(next_random(m) % LANES);
    const uint64_t spans[][2] = {{0, 1900}, {100, 800}, {900, 1800}, {1000, 1400}};
    for (int i = 0; i < 4; i++) {
        rn_timeline_op op = {.begin_ns = at + spans[i][0],
                             .end_ns = at + spans[i][1],
                             .name = m->names[next_random(m) % NAMES],
                             .lane = lane};
        RN_TRY(rn_timeline_add_op(m->timeline, &op));
    }
    return RN_OK;
}

// Four allocations and their releases: eight events.
static rn_status add_allocations(maker *m, uint64_t at) {
    for (int i = 0; i < 4; i++) {
        uint64_t random = next_random(m), life = next_random(m) % (random % 16 ? 40000 : 4000000);
        bool inner = random % 4 == 0;
        uint64_t offset = next_random(m) % 900 << 20;
        rn_timeline_alloc alloc = {.begin_ns = at + 300 * (uint64_t)i + 17,
                                   .end_ns = at + 300 * (uint64_t)i + 17 + life,
                                   .address = (inner ? 0x7f0000000000 : 0x560000000000) + offset,
                                   .bytes = 64 + random % (1 << 20),
                                   .name = m->names[random % NAMES],
                                   .lane = (uint32_t)(random % LANES),
                                   .device = inner ? 0 : (uint8_t)(random >> 8 & 1),
                                   .purpose = (uint8_t)(random % 6),
                                   .inner = inner};
        RN_TRY(rn_timeline_add_alloc(m->timeline, &alloc));
    }
    return RN_OK;
}

static rn_status fill(maker *m, uint64_t events) {
    RN_TRY(add_names(m));
    RN_TRY(rn_timeline_add_alloc(m->timeline, &(rn_timeline_alloc){.end_ns = RN_STILL_LIVE,
                                                                   .address = 0x7f0000000000,
                                                                   .bytes = (uint64_t)1 << 30,
                                                                   .purpose = RN_PURPOSE_WEIGHTS}));
    for (uint64_t i = 0; i < events / 16; i++) {
        RN_TRY(add_operations(m, i * STEP_NS));
        RN_TRY(add_allocations(m, i * STEP_NS));
        if (i % 1000 == 0) {
            rn_timeline_counter counter = {
                .time_ns = i * STEP_NS, .value = (uint64_t)1 << 31, .kind = RN_COUNTER_BUDGET};
            RN_TRY(rn_timeline_add_counter(m->timeline, &counter));
        }
    }
    m->timeline->end_ns = events / 16 * STEP_NS;
    m->timeline->event_count = events;
    return rn_timeline_finish(m->timeline);
}

static rn_status count_bytes(void *self, const char *text, size_t bytes) {
    (void)text;
    *(uint64_t *)self += bytes;
    return RN_OK;
}

static rn_status write_to(const rn_timeline *t, const char *path) {
    FILE *file = fopen(path, "wb");
    if (!file) return rn_fail(RN_IO, "cannot make %s", path);
    rn_status s = rn_page_write(t, rn_sink_file(file));
    return fclose(file) == 0 ? s : rn_fail(RN_IO, "cannot write %s", path);
}

static rn_status measure(uint64_t events, const char *path) {
    maker m = {.random = 1};
    RN_TRY(rn_timeline_create("bench", "ration trace", &m.timeline));
    rn_status s = fill(&m, events);
    for (int round = 0; round < 3 && s == RN_OK; round++) {
        uint64_t bytes = 0, start = rn_clock_ns();
        s = rn_page_write(m.timeline, (rn_sink){&bytes, count_bytes});
        printf("page of %llu events: %.0f ms, %.1f MB\n", (unsigned long long)events,
               (double)(rn_clock_ns() - start) / 1e6, (double)bytes / 1e6);
    }
    if (s == RN_OK && path) s = write_to(m.timeline, path);
    rn_timeline_destroy(m.timeline);
    return s;
}

int main(int argc, char **argv) {
    uint64_t events = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    if (measure(events, argc > 2 ? argv[2] : NULL) == RN_OK) return 0;
    fprintf(stderr, "%s\n", rn_last_error()->message);
    return 1;
}
