// ladder.c — one attempt after the other. Each begins on a ledger that the one before has left as
// it was: an attempt on top of a leak would fail for its predecessor's sake, and nobody would see.
#include "runtime/ladder.h"

#include "base/clock.h"
#include "base/reserved.h"
#include "memory/stage.h"

#include <stdio.h>
#include <string.h>

// One search for a target that works: where it began, and what its attempts left to say.
typedef struct target_search {
    rn_ladder *ladder;
    size_t first;        // target
    rn_stage_name stage; // before the first attempt
    int opened;          // the last target whose device could be opened, or -1
    char opened_hint[512];
    char failures[512]; // of those before the last: "cuda:0 (cuda_no_driver), "
    bool leaked;
} target_search;

// ---- releasing --------------------------------------------------------------------------------

static rn_status report_leak(const rn_held_more *left, const rn_attempt *attempt,
                             const rn_error_info *cause) {
    return rn_hint(rn_fail(RN_INTERNAL,
                           "the attempt on %s left %s of %s on %s behind (%llu bytes in all)%s%s",
                           attempt->target, rn_size_format(left->line_bytes).text,
                           rn_purpose_name(left->purpose), rn_device_name(left->device),
                           (unsigned long long)left->bytes, cause ? "; it had failed: " : "",
                           cause ? cause->message : ""),
                   "this is a mistake in ration: report it");
}

// Undoes the attempt and closes its device. RN_INTERNAL: not everything came back.
static rn_status release(rn_ladder *ladder, rn_device *device, const rn_held *before,
                         const rn_error_info *cause, rn_attempt *attempt) {
    uint64_t taken = rn_held_compare(before).bytes;
    if (device) ladder->load.undo(ladder->load.self);
    rn_device_destroy(device);
    rn_held_more left = rn_held_compare(before);
    attempt->returned_bytes = taken > left.bytes ? taken - left.bytes : 0;
    return left.bytes ? report_leak(&left, attempt, cause) : RN_OK;
}

static void write_failure(rn_attempt *attempt, const rn_error_info *error) {
    attempt->state = RN_ATTEMPT_FAILED;
    attempt->status = error->status;
    attempt->failure = rn_error_classify(error);
    snprintf(attempt->message, sizeof attempt->message, "%s", error->message);
    snprintf(attempt->hint, sizeof attempt->hint, "%s", rn_error_hint(error));
}

// ---- one target
// -----------------------------------------------------------------------------------

// An attempt that forgot to tell must not be given somebody else's error.
static rn_error_info take_error(rn_status status, const char *target) {
    if (rn_last_error()->status != status)
        (void)rn_fail(status, "%s failed without saying why", target);
    return *rn_last_error();
}

static bool has_next(const rn_ladder *ladder, size_t target, rn_status status) {
    return status != RN_CANCELLED && !ladder->options.no_fallback && target + 1 < ladder->count;
}

// A failure that is the end is returned, and whoever gets it tells it: here it would be told twice.
// A target that nobody asked for may be missing without a word of failure.
static void tell_failure(const rn_ladder *ladder, const rn_ladder_target *target, const char *stage,
                         const rn_error_info *error) {
    if (!has_next(ladder, target->index, error->status)) {
        rn_stage_failed_on(target->name, RN_LOG_DEBUG, stage, error);
    } else if (target->device || ladder->targets[target->index].wanted) {
        rn_stage_failed_on(target->name, RN_LOG_WARNING, stage, error);
    } else {
        rn_log(RN_LOG_INFO, "ladder", "%s is not used: %s; trying %s", target->name,
               rn_error_classify(error)->meaning, ladder->targets[target->index + 1].name);
    }
}

// Whether somebody who waited for another device would want to know.
static bool is_last_resort(const rn_ladder *ladder, const rn_ladder_target *target) {
    bool disappointed = false;
    for (size_t i = 0; i < target->index; i++)
        disappointed |= ladder->targets[i].wanted && !ladder->targets[i].backend->is_host;
    return disappointed && ladder->targets[target->index].backend->is_host;
}

// Loads on an open device; the most it took there goes into the record.
static rn_status load_on(rn_ladder *ladder, const rn_ladder_target *target, rn_attempt *attempt) {
    rn_scope scope;
    rn_stage_on(target->name, "device_ready");
    rn_scope_begin(&scope, target->name, rn_device_get_caps(target->device)->device);
    rn_status s = ladder->load.attempt(ladder->load.self, target);
    attempt->peak_bytes = rn_scope_end(&scope).peak_allocated;
    return s;
}

static void keep_target(rn_ladder *ladder, const rn_ladder_target *target, const rn_held *before,
                        rn_attempt *attempt) {
    ladder->device = target->device;
    ladder->before = *before;
    attempt->state = RN_ATTEMPT_IN_USE;
    if (is_last_resort(ladder, target))
        rn_log(RN_LOG_WARNING, "ladder", "%s is in use, as the last resort", target->name);
    rn_ladder_put_latest(ladder, attempt, (int)target->index);
}

static void note_failure(target_search *search, const rn_ladder_target *target,
                         const rn_attempt *attempt) {
    size_t used = strlen(search->failures);
    if (target->index + 1 < search->ladder->count)
        snprintf(search->failures + used, sizeof search->failures - used, "%s (%s), ", target->name,
                 attempt->failure->name);
    if (!target->device) return;
    search->opened = (int)target->index;
    memcpy(search->opened_hint, attempt->hint, sizeof search->opened_hint);
}

static rn_status drop_target(target_search *search, const rn_ladder_target *target,
                             const rn_held *before, rn_error_info *error, rn_attempt *attempt) {
    rn_ladder *ladder = search->ladder;
    tell_failure(ladder, target, attempt->stage, error);
    search->leaked = release(ladder, target->device, before, error, attempt) != RN_OK;
    if (search->leaked) *error = *rn_last_error();
    write_failure(attempt, error);
    note_failure(search, target, attempt);
    return error->status;
}

static rn_status try_target(target_search *search, size_t index, rn_ladder_target *out,
                            rn_error_info *error) {
    rn_ladder *ladder = search->ladder;
    const rn_target *target = &ladder->targets[index];
    uint64_t start_ns = rn_clock_ns();
    rn_scope scope;
    rn_held before;
    rn_attempt attempt;
    rn_ladder_begin_attempt(ladder, index);
    rn_scope_begin(&scope, "ladder", RN_DEVICE_ANY);
    rn_ladder_get_latest(ladder, &attempt);
    rn_held_read(ladder->options.others, &before);
    *out = (rn_ladder_target){index, target->name, NULL};
    rn_status s = target->backend->open(target, ladder->options.threads, &out->device);
    if (s == RN_OK) s = load_on(ladder, out, &attempt);
    if (s != RN_OK) *error = take_error(s, out->name);
    rn_stage_name stage = out->device ? rn_stage_last() : search->stage;
    memcpy(attempt.stage, stage.text, sizeof attempt.stage);
    if (s != RN_OK) s = drop_target(search, out, &before, error, &attempt);
    uint64_t most = rn_scope_end(&scope).peak_allocated; // also what it gave back by itself
    if (s != RN_OK && !search->leaked) attempt.returned_bytes = most;
    attempt.seconds = (double)(rn_clock_ns() - start_ns) * 1e-9;
    if (s == RN_OK)
        keep_target(ladder, out, &before, &attempt);
    else
        rn_ladder_put_latest(ladder, &attempt, -1);
    return s;
}

// ---- all of them --------------------------------------------------------------------------------

static bool is_the_end(const target_search *search, rn_status status) {
    return status == RN_CANCELLED || search->leaked || search->ladder->options.no_fallback;
}

// The hint of the target that came furthest: what to do about a budget helps more than that there
// is no driver.
static rn_status summarise(const target_search *search, const rn_error_info *last) {
    const rn_ladder *ladder = search->ladder;
    const char *last_name = ladder->targets[ladder->count - 1].name;
    rn_status s =
        rn_fail(last->status, "none of %zu targets works: %s%s: %s", ladder->count - search->first,
                search->failures, last_name, last->message);
    if (last->path[0]) s = rn_error_locate(s, last->path, last->offset);
    if (search->opened >= 0 && (size_t)search->opened + 1 < ladder->count)
        return rn_hint(s, "%s: %s", ladder->targets[search->opened].name, search->opened_hint);
    return rn_hint(s, "%s", rn_error_hint(last));
}

static rn_status try_targets(target_search *search, rn_ladder_target *out) {
    rn_ladder *ladder = search->ladder;
    rn_error_info error = {0};
    for (size_t i = search->first; i < ladder->count; i++) {
        rn_status s = try_target(search, i, out, &error);
        if (s == RN_OK) return RN_OK;
        *out = (rn_ladder_target){0};
        if (is_the_end(search, s)) return rn_error_restore(&error);
    }
    if (ladder->count - search->first == 1) return rn_error_restore(&error);
    return summarise(search, &error);
}

rn_status rn_ladder_start_from(rn_ladder *ladder, size_t first, const rn_ladder_options *options,
                               const rn_ladder_load *load, rn_ladder_target *out) {
    *out = (rn_ladder_target){0};
    RN_TRY(rn_check_reserved(options->reserved, "rn_ladder_options"));
    if (ladder->device) return rn_fail(RN_INVALID, "a target of the ladder is in use already");
    if (first >= ladder->count)
        return rn_fail(RN_INVALID, "the ladder has %zu targets; there is no number %zu",
                       ladder->count, first);
    ladder->options = *options;
    ladder->load = *load;
    target_search begun = {
        .ladder = ladder, .first = first, .stage = rn_stage_last(), .opened = -1};
    return try_targets(&begun, out);
}

rn_status rn_ladder_start(rn_ladder *ladder, const rn_ladder_options *options,
                          const rn_ladder_load *load, rn_ladder_target *out) {
    return rn_ladder_start_from(ladder, 0, options, load, out);
}

// ---- leaving ------------------------------------------------------------------------------------

// The attempt's seconds and peak stay those of its beginning.
static rn_status leave(rn_ladder *ladder, const rn_error_info *failure) {
    rn_attempt attempt;
    rn_ladder_get_latest(ladder, &attempt);
    attempt.state = RN_ATTEMPT_LEFT;
    if (failure) {
        rn_stage_name stage = rn_stage_last();
        memcpy(attempt.stage, stage.text, sizeof attempt.stage);
        tell_failure(ladder,
                     &(rn_ladder_target){attempt.target_index, attempt.target, ladder->device},
                     stage.text, failure);
    }
    rn_status s = release(ladder, ladder->device, &ladder->before, failure, &attempt);
    ladder->device = NULL;
    if (s != RN_OK || failure) write_failure(&attempt, s != RN_OK ? rn_last_error() : failure);
    rn_ladder_put_latest(ladder, &attempt, -1);
    return s;
}

rn_status rn_ladder_leave(rn_ladder *ladder, const rn_error_info *failure) {
    if (!ladder->device) return RN_OK;
    if (!failure) return leave(ladder, NULL);
    rn_error_info error = *failure; // it may be the thread's own, which undoing passes over
    return leave(ladder, &error);
}

rn_status rn_ladder_advance(rn_ladder *ladder, const rn_error_info *failure,
                            rn_ladder_target *out) {
    rn_error_info error = *failure;
    *out = (rn_ladder_target){0};
    if (!ladder->device) return rn_fail(RN_INVALID, "no target of the ladder is in use");
    size_t next = (size_t)rn_ladder_target_index(ladder) + 1;
    RN_TRY(leave(ladder, &error));
    if (!has_next(ladder, next - 1, error.status)) return rn_error_restore(&error);
    rn_ladder_options options = ladder->options;
    rn_ladder_load load = ladder->load;
    return rn_ladder_start_from(ladder, next, &options, &load, out);
}
