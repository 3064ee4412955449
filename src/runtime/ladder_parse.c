// ladder_parse.c — a list of targets as people write it.
#include "runtime/ladder.h"

#include "memory/account.h"

static rn_status bad_target(rn_str text, const char *why) {
    char targets[256];
    rn_backend_list_targets(targets, sizeof targets);
    return rn_hint(rn_fail(RN_INVALID, "device \"%.*s\": %s", RN_STR_ARG(text), why),
                   "devices are auto, %s, separated by commas", targets);
}

// "cpu", "cuda:1", "ort?opt=1": a back end gets what stands behind the colon, or the options with
// their question mark. Where there is neither, `rest` has no data.
static rn_status parse_target(rn_str text, rn_target *out) {
    rn_str before = text, head = rn_target_take(&before, '?');
    rn_str rest = text, kind = rn_target_take(&rest, ':');
    if (head.bytes < kind.bytes) {
        kind = head;
        rest = (rn_str){before.data - 1, before.bytes + 1};
    } else if (kind.bytes == text.bytes) {
        rest = (rn_str){0};
    }
    out->backend = rn_backend_find(kind);
    if (!out->backend) return rn_fail(RN_INVALID, "there is no such kind");
    return out->backend->parse(rest, out);
}

static rn_status add_target(rn_ladder *ladder, rn_str text, bool wanted) {
    if (ladder->count == RN_LADDER_TARGETS) return bad_target(text, "there are too many before it");
    rn_target *target = &ladder->targets[ladder->count];
    *target = (rn_target){.wanted = wanted};
    if (parse_target(text, target) != RN_OK) {
        rn_error_info why = *rn_last_error();
        return bad_target(text, why.message);
    }
    ladder->count++;
    return RN_OK;
}

// What "auto" tries was asked for by nobody, but for the last: something must run.
static rn_status add_auto(rn_ladder *ladder) {
    const rn_backend *backend;
    for (uint32_t rank = 1; (backend = rn_backend_auto(rank)); rank++)
        RN_TRY(add_target(ladder, rn_str_from(backend->name), !rn_backend_auto(rank + 1)));
    return RN_OK;
}

static rn_status add_all(rn_ladder *ladder, rn_str text) {
    do {
        rn_str part = rn_target_take(&text, ',');
        if (rn_str_equal(part, RN_STR("auto")))
            RN_TRY(add_auto(ladder));
        else
            RN_TRY(add_target(ladder, part, true));
    } while (text.bytes);
    return RN_OK;
}

rn_status rn_ladder_parse(rn_str text, rn_ladder **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_ladder), &block));
    rn_ladder *ladder = block;
    pthread_mutex_init(&ladder->lock, NULL);
    ladder->target_index = -1;
    rn_status s = add_all(ladder, text);
    if (s == RN_OK)
        *out = ladder;
    else
        rn_ladder_destroy(ladder);
    return s;
}

void rn_ladder_destroy(rn_ladder *ladder) {
    if (!ladder) return;
    pthread_mutex_destroy(&ladder->lock);
    rn_free(RN_HOST_OTHER, ladder, sizeof *ladder);
}

size_t rn_ladder_count(const rn_ladder *ladder) {
    return ladder->count;
}

const char *rn_ladder_name(const rn_ladder *ladder, size_t index) {
    return ladder->targets[index].name;
}
