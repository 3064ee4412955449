// ladder_attempts.c — the record: written by the thread that starts the ladder, read by whoever
// asks.
#include "runtime/ladder.h"

#include "base/error_class.h"

#include <string.h>

static void lock(const rn_ladder *ladder) {
    pthread_mutex_lock((pthread_mutex_t *)&ladder->lock);
}

static void unlock(const rn_ladder *ladder) {
    pthread_mutex_unlock((pthread_mutex_t *)&ladder->lock);
}

static uint64_t first_kept(uint64_t count) {
    return count > RN_LADDER_ATTEMPTS ? count - RN_LADDER_ATTEMPTS : 0;
}

const char *rn_attempt_state_name(rn_attempt_state state) {
    static const char *const names[] = {"running", "in_use", "failed", "left"};
    return names[state];
}

_Static_assert(sizeof((rn_attempt){0}.target) == sizeof((rn_target){0}.name), "copied whole");

// ---- writing ------------------------------------------------------------------------------------

void rn_ladder_begin_attempt(rn_ladder *ladder, size_t index) {
    lock(ladder);
    rn_attempt *attempt = &ladder->attempts[ladder->attempt_count++ % RN_LADDER_ATTEMPTS];
    *attempt = (rn_attempt){.target_index = index, .state = RN_ATTEMPT_RUNNING};
    memcpy(attempt->target, ladder->targets[index].name, sizeof attempt->target);
    unlock(ladder);
}

void rn_ladder_get_latest(const rn_ladder *ladder, rn_attempt *out) {
    lock(ladder);
    *out = ladder->attempts[(ladder->attempt_count - 1) % RN_LADDER_ATTEMPTS];
    unlock(ladder);
}

void rn_ladder_put_latest(rn_ladder *ladder, const rn_attempt *attempt, int target_index) {
    lock(ladder);
    ladder->attempts[(ladder->attempt_count - 1) % RN_LADDER_ATTEMPTS] = *attempt;
    ladder->target_index = target_index;
    unlock(ladder);
}

// ---- reading ------------------------------------------------------------------------------------

uint64_t rn_ladder_attempt_count(const rn_ladder *ladder) {
    lock(ladder);
    uint64_t count = ladder->attempt_count;
    unlock(ladder);
    return count;
}

size_t rn_ladder_attempts(const rn_ladder *ladder, rn_attempt out[RN_LADDER_ATTEMPTS]) {
    size_t copied = 0;
    lock(ladder);
    for (uint64_t n = first_kept(ladder->attempt_count); n < ladder->attempt_count; n++)
        out[copied++] = ladder->attempts[n % RN_LADDER_ATTEMPTS];
    unlock(ladder);
    return copied;
}

int rn_ladder_target_index(const rn_ladder *ladder) {
    lock(ladder);
    int index = ladder->target_index;
    unlock(ladder);
    return index;
}

// ---- JSON ---------------------------------------------------------------------------------------

static bool begins_path(const char *text) {
    return strncmp(text, "/", 1) == 0 || strncmp(text, "./", 2) == 0 ||
           strncmp(text, "../", 3) == 0 || strncmp(text, "~/", 2) == 0;
}

// "/srv/models/x.gguf: damaged" becomes "x.gguf: damaged".
static void hide_folders(char *text) {
    static const char edges[] = " \n\"'`()[]<>=:;,";
    char *to = text;
    for (const char *from = text; *from;) {
        size_t bytes = strcspn(from, edges);
        const char *base = bytes > 1 && begins_path(from) ? memrchr(from, '/', bytes) : NULL;
        if (base) bytes -= (size_t)(base + 1 - from), from = base + 1;
        bytes += strspn(from + bytes, edges);
        memmove(to, from, bytes);
        to += bytes, from += bytes;
    }
    *to = '\0';
}

static void put_attempt(rn_json *json, const rn_attempt *attempt) {
    rn_json_object(json, NULL);
    rn_json_u64(json, "target_index", attempt->target_index);
    rn_json_string(json, "target", attempt->target);
    rn_json_string(json, "state", rn_attempt_state_name(attempt->state));
    bool running = attempt->state == RN_ATTEMPT_RUNNING;
    rn_json_string(json, "stage", running ? rn_stage_last().text : attempt->stage);
    if (attempt->failure) {
        rn_error_info error = {.status = attempt->status};
        memcpy(error.message, attempt->message, sizeof error.message);
        memcpy(error.hint, attempt->hint, sizeof error.hint);
        hide_folders(error.message);
        hide_folders(error.hint);
        rn_error_json(&error, json);
    }
    rn_json_f64(json, "seconds", attempt->seconds);
    rn_json_u64(json, "peak_bytes", attempt->peak_bytes);
    rn_json_u64(json, "returned_bytes", attempt->returned_bytes);
    rn_json_end(json);
}

// Attempt number `n`; false once it is forgotten.
static bool copy_attempt(const rn_ladder *ladder, uint64_t n, rn_attempt *out) {
    lock(ladder);
    bool kept = n >= first_kept(ladder->attempt_count);
    if (kept) *out = ladder->attempts[n % RN_LADDER_ATTEMPTS];
    unlock(ladder);
    return kept;
}

static void put_in_use(rn_json *json, const rn_ladder *ladder) {
    int index = rn_ladder_target_index(ladder);
    if (index >= 0) {
        rn_json_u64(json, "target_index", (uint64_t)index);
        rn_json_string(json, "target", ladder->targets[index].name);
    } else {
        rn_json_null(json, "target_index");
        rn_json_null(json, "target");
    }
}

void rn_ladder_write_json(const rn_ladder *ladder, rn_json *json, const char *key) {
    uint64_t count = rn_ladder_attempt_count(ladder);
    rn_attempt attempt;
    rn_json_object(json, key);
    rn_json_array(json, "targets");
    for (size_t i = 0; i < ladder->count; i++)
        rn_json_string(json, NULL, ladder->targets[i].name);
    rn_json_end(json);
    put_in_use(json, ladder);
    rn_json_array(json, "attempts");
    for (uint64_t n = first_kept(count); n < count; n++)
        if (copy_attempt(ladder, n, &attempt)) put_attempt(json, &attempt);
    rn_json_end(json);
    rn_json_end(json);
}

rn_status rn_ladder_json(const rn_ladder *ladder, rn_sink sink) {
    rn_json json;
    rn_json_begin(&json, sink, true);
    rn_ladder_write_json(ladder, &json, NULL);
    return rn_json_finish(&json);
}
