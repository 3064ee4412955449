// backend.c — sim's descriptor: sim, sim:memory=64MiB;fail_launch=3, sim:compile=1.
#include "backend/sim/sim.h"

#include <ration/memory.h>

#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(rn_sim_options) <= RN_TARGET_OWN_BYTES, "a target holds the options");

static rn_status parse_link(rn_str text, double *out) {
    uint64_t bytes = 0;
    RN_TRY(rn_size_parse(text, 0, &bytes));
    *out = (double)bytes;
    return RN_OK;
}

static rn_status parse_option(rn_str key, rn_str value, rn_sim_options *out) {
    if (rn_str_equal(key, RN_STR("memory"))) return rn_size_parse(value, 0, &out->memory_bytes);
    if (rn_str_equal(key, RN_STR("link"))) return parse_link(value, &out->link_bytes_second);
    if (rn_str_equal(key, RN_STR("threads"))) return rn_target_number(value, &out->threads);
    if (rn_str_equal(key, RN_STR("fail_alloc"))) return rn_target_number(value, &out->fail_alloc);
    if (rn_str_equal(key, RN_STR("fail_allocs"))) return rn_target_number(value, &out->fail_allocs);
    if (rn_str_equal(key, RN_STR("fail_launch"))) return rn_target_number(value, &out->fail_launch);
    if (rn_str_equal(key, RN_STR("fail_copy"))) return rn_target_number(value, &out->fail_copy);
    if (rn_str_equal(key, RN_STR("compile"))) return rn_target_number(value, &out->compiles);
    return rn_fail(RN_INVALID,
                   "\"%.*s\" is none of memory, link, threads, compile, fail_alloc, fail_allocs, "
                   "fail_launch, fail_copy",
                   RN_STR_ARG(key));
}

static rn_status parse(rn_str text, rn_target *out) {
    rn_sim_options options = {0};
    snprintf(out->name, sizeof out->name, "sim");
    while (text.bytes) {
        rn_str value = rn_target_take(&text, ';');
        rn_str key = rn_target_take(&value, '=');
        RN_TRY(parse_option(key, value, &options));
    }
    memcpy(out->own, &options, sizeof options);
    return RN_OK;
}

static rn_status open_sim(const rn_target *target, uint32_t threads, rn_device **out) {
    rn_sim_options options;
    (void)threads; // its own option
    memcpy(&options, target->own, sizeof options);
    return rn_sim_device_create(&options, out);
}

static const rn_error_row error_rows[] = {
    RN_ERROR_TEXT("injected_fault", "sim: this * is to fail",
                  "a fault that was asked for: the sim device was told to fail here",
                  "leave fail_alloc, fail_launch and fail_copy out of --device sim"),
};

static const rn_error_table errors = {error_rows, sizeof error_rows / sizeof *error_rows};

const rn_backend rn_sim_backend = {
    .name = "sim",
    .syntax = "sim",
    .parse = parse,
    .open = open_sim,
    .errors = &errors,
    .estimate = rn_sim_estimate,
};
