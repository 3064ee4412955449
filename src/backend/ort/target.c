// target.c — the descriptor of ort, and what its targets say.
#include "backend/ort/ort.h"

#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(rn_ort_target) <= RN_TARGET_OWN_BYTES, "a target holds the options");

static rn_status parse_option(rn_str key, rn_str value, rn_ort_target *out) {
    if (rn_str_equal(key, RN_STR("threads"))) return rn_target_number(value, &out->threads);
    if (rn_str_equal(key, RN_STR("seq"))) return rn_target_number(value, &out->most_rows);
    if (rn_str_equal(key, RN_STR("pack"))) {
        uint32_t packs = 0;
        RN_TRY(rn_target_number(value, &packs));
        out->packs = packs == 1;
        return packs <= 1 ? RN_OK : rn_fail(RN_INVALID, "pack is 0 or 1");
    }
    if (rn_str_equal(key, RN_STR("opt"))) {
        if (value.bytes && (*value.data == 'O' || *value.data == 'o'))
            value = (rn_str){value.data + 1, value.bytes - 1};
        RN_TRY(rn_target_number(value, &out->level));
        if (out->level <= 3) return RN_OK;
        return rn_fail(RN_INVALID, "opt is 0 to 3");
    }
    return rn_fail(RN_INVALID, "\"%.*s\" is none of opt, threads, seq, pack", RN_STR_ARG(key));
}

// "", "?opt=1", "FILE", "FILE?opt=1"
static rn_status parse(rn_str text, rn_target *out) {
    rn_ort_target own = {.level = 2, .packs = true};
    rn_str rest = text, library = rn_target_take(&rest, '?');
    if (library.bytes >= sizeof own.library)
        return rn_fail(RN_INVALID, "the library's path is too long");
    memcpy(own.library, library.bytes ? library.data : "", library.bytes);
    snprintf(out->name, sizeof out->name, "ort%s%.*s", rest.bytes ? "?" : "",
             (int)(rest.bytes < 50 ? rest.bytes : 50), rest.bytes ? rest.data : "");
    rn_str_clean(out->name);
    while (rest.bytes) {
        rn_str value = rn_target_take(&rest, '&');
        rn_str key = rn_target_take(&value, '=');
        RN_TRY(parse_option(key, value, &own));
    }
    memcpy(out->own, &own, sizeof own);
    return RN_OK;
}

const rn_backend rn_ort_backend = {
    .name = "ort",
    .syntax = "ort",
    .parse = parse,
    .open = rn_ort_open,
    .errors = &rn_ort_errors,
    .estimate = rn_ort_estimate,
    .describe_numbers = rn_ort_describe_numbers,
    .has_frugal = true,
    .cost = rn_ort_cost,
};
