// place.c — ration place: where buffers with known lifetimes lie in one block of memory.
#include "command.h"

#include <stdio.h>
#include <time.h>

typedef struct view {
    const invocation *in;
    uint64_t capacity_bytes; // 0: none
    double deadline;
    double seconds;
    rn_place_table table;
    rn_placement placement;
} view;

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static rn_place_answer check(void *self) {
    const view *v = self;
    return seconds_now() < v->deadline ? RN_PLACE_CONTINUE : RN_PLACE_STOP;
}

// ---- results --------------------------------------------------------------------------

static void print_line(const char *name, uint64_t bytes) {
    printf("  %-12s %llu (%s)\n", name, (unsigned long long)bytes, rn_size_format(bytes).text);
}

static void print_view(const view *v) {
    const rn_placement *p = &v->placement;
    uint64_t gap = p->height_bytes - p->lower_bound_bytes;
    double percent = gap ? 100.0 * (double)gap / (double)p->lower_bound_bytes : 0;
    printf("%s: %zu buffers placed in %.2f s%s\n", v->in->words[0], v->table.count, v->seconds,
           p->optimal ? ", optimal" : "");
    print_line("height", p->height_bytes);
    print_line("lower bound", p->lower_bound_bytes);
    printf("  %-12s %llu (%.2f %%)%s\n", "gap", (unsigned long long)gap, percent,
           gap && p->optimal ? ": no placement is lower, all were tried" : "");
    if (v->capacity_bytes) print_line("capacity", v->capacity_bytes);
    if (p->stopped)
        printf("  the time limit has ended it: a longer --time may find a lower placement\n");
}

static rn_status write_view(const view *v) {
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "path", v->in->words[0]);
    rn_json_u64(&json, "buffers", v->table.count);
    rn_json_u64(&json, "height", v->placement.height_bytes);
    rn_json_u64(&json, "greedy_height", v->placement.greedy_bytes);
    rn_json_u64(&json, "lower_bound", v->placement.lower_bound_bytes);
    rn_json_bool(&json, "optimal", v->placement.optimal);
    rn_json_bool(&json, "stopped", v->placement.stopped);
    rn_json_f64(&json, "seconds", v->seconds);
    rn_json_u64(&json, "nodes", v->placement.node_count);
    if (v->capacity_bytes) {
        rn_json_u64(&json, "capacity", v->capacity_bytes);
        rn_json_bool(&json, "fits", v->placement.fits);
    }
    rn_json_end(&json);
    return rn_json_finish(&json);
}

static rn_status refuse(const view *v) {
    const rn_placement *p = &v->placement;
    unsigned long long capacity = v->capacity_bytes, height = p->height_bytes;
    if (p->lower_bound_bytes > v->capacity_bytes)
        return rn_hint(rn_fail(RN_OVER_BUDGET,
                               "%llu bytes are alive at once, the capacity is %llu bytes",
                               (unsigned long long)p->lower_bound_bytes, capacity),
                       "no placement fits; the best one found needs %llu bytes", height);
    if (p->hopeless)
        return rn_hint(
            rn_fail(RN_OVER_BUDGET, "no placement fits %llu bytes: all were tried", capacity),
            "the best one found needs %llu bytes", height);
    return rn_hint(rn_fail(RN_OVER_BUDGET,
                           "the best placement found in %.1f s needs %llu bytes, "
                           "the capacity is %llu bytes",
                           v->seconds, height, capacity),
                   "a longer --time may find a lower one: none is below %llu bytes",
                   (unsigned long long)p->lower_bound_bytes);
}

// ---- running --------------------------------------------------------------------------

static rn_status place(view *v) {
    double start = seconds_now();
    uint64_t limit = rn_settings_count(v->in->settings, "time");
    v->deadline = start + (double)limit;
    rn_place_options options = {
        .capacity_bytes = v->capacity_bytes,
        .effort = limit == 0          ? RN_PLACE_GREEDY
                  : v->capacity_bytes ? RN_PLACE_FIT
                                      : RN_PLACE_BEST,
        .node_limit = UINT64_MAX,
        .check = limit ? check : NULL, // the quick orders alone take what they take
        .check_self = v,
    };
    RN_TRY(rn_place(v->table.buffers, v->table.count, &options, v->table.offsets, &v->placement));
    v->seconds = seconds_now() - start;
    return v->placement.fits ? RN_OK : refuse(v);
}

static rn_status show(view *v) {
    const char *output = rn_settings_text(v->in->settings, "output");
    RN_TRY(place(v));
    if (output[0]) RN_TRY(rn_place_table_write(&v->table, output));
    if (v->in->json) return write_view(v);
    print_view(v);
    return RN_OK;
}

static rn_status run(const invocation *in) {
    view v = {.in = in, .capacity_bytes = rn_settings_size(in->settings, "capacity")};
    if (!v.capacity_bytes && rn_settings_text(in->settings, "capacity")[0])
        return rn_fail(RN_INVALID, "--capacity must be more than nothing");
    RN_TRY(rn_place_table_read(in->words[0], &v.table));
    rn_status s = show(&v);
    rn_place_table_free(&v.table);
    return s;
}

const command place_command = {
    .name = "place",
    .usage = "place FILE.csv [options]",
    .summary = "where buffers with known lifetimes lie in memory",
    .about =
        "Reads buffers (columns id, lower, upper, size; alive from lower to before upper) and "
        "gives\n"
        "each an offset such that no two that are alive together overlap, in as few bytes as it\n"
        "can. Several quick orders come first; then, with a capacity, a search until it fits, or\n"
        "without one, a search for the lowest height. Says \"optimal\" where there is none lower.\n"
        "Where the capacity is not met, the exit code is 4 and no file is written.",
    .example = "ration place buffers.csv --capacity 1MiB -o placed.csv",
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
