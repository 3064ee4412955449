// backend.c — the descriptor of NVIDIA's GPUs: cuda, cuda:N.
#include "backend/cuda/cost.h"
#include "backend/cuda/cuda.h"

#include <ration/cuda.h>
#include <ration/error_class.h>

#include <stdio.h>
#include <string.h>

enum { MOST_ORDINAL = 1023 };

static rn_status parse(rn_str text, rn_target *out) {
    uint32_t ordinal = 0;
    if (text.data) RN_TRY(rn_target_number(text, &ordinal));
    if (ordinal > MOST_ORDINAL) return rn_fail(RN_INVALID, "no machine has so many");
    memcpy(out->own, &ordinal, sizeof ordinal);
    snprintf(out->name, sizeof out->name, "cuda:%u", ordinal);
    return RN_OK;
}

// A driver or a GPU that is not there is a matter of the device, not of a file or of this build.
static rn_status open_cuda(const rn_target *target, uint32_t threads, rn_device **out) {
    uint32_t ordinal;
    memcpy(&ordinal, target->own, sizeof ordinal);
    rn_status s = rn_cuda_device_create((int)ordinal, threads, out);
    rn_error_info error = *rn_last_error();
    if (s != RN_NOT_FOUND && s != RN_UNSUPPORTED) return s;
    const char *class = rn_error_classify(&error)->name;
    if (strcmp(class, "cuda_no_driver") != 0 && strcmp(class, "cuda_no_device") != 0) return s;
    error.status = RN_DEVICE;
    return rn_error_restore(&error);
}

const rn_backend rn_cuda_backend = {
    .name = "cuda",
    .syntax = "cuda, cuda:N",
    .auto_rank = 1,
    .parse = parse,
    .open = open_cuda,
    .errors = &rn_cuda_errors,
    .cost = rn_cuda_cost,
    .rates = rn_cuda_rates,
    .rate_count = RN_CUDA_RATES,
};
