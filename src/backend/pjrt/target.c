// target.c — the descriptors of xla and neuron, and what their targets say:
//
//     xla:cpu  xla:cuda?seq=64&opt=0  xla:/path/plugin.so?device=1&xla_gpu_autotune_level=0
//     neuron  neuron:0-1?opt=1
#include "backend/pjrt/pjrt.h"

#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(rn_pjrt_target) <= RN_TARGET_OWN_BYTES, "a target holds the options");

static rn_status parse_dtype(rn_str text, uint8_t *out) {
    static const struct {
        const char *name;
        rn_dtype dtype;
    } known[] = {{"f32", RN_DTYPE_F32}, {"bf16", RN_DTYPE_BF16}, {"f16", RN_DTYPE_F16}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (rn_str_equal(text, rn_str_from(known[i].name))) {
            *out = (uint8_t)known[i].dtype;
            return RN_OK;
        }
    return rn_fail(RN_INVALID, "\"%.*s\" is none of f32, bf16, f16", RN_STR_ARG(text));
}

// An option of XLA itself, passed through.
static rn_status add_flag(rn_str key, rn_str value, rn_pjrt_target *out) {
    size_t used = strlen(out->flags), room = sizeof out->flags - used;
    int count = snprintf(out->flags + used, room, "%s%.*s=%.*s", used ? "&" : "", RN_STR_ARG(key),
                         RN_STR_ARG(value));
    if (count < 0 || (size_t)count >= room)
        return rn_fail(RN_INVALID, "there are too many options of the compiler");
    return RN_OK;
}

// A word of Neuron's compiler: one of those in `known`, which ends with NULL.
static rn_status parse_word(rn_str key, rn_str value, const char *const *known, char *out,
                            size_t bytes) {
    for (; *known; known++)
        if (rn_str_equal(value, rn_str_from(*known))) {
            snprintf(out, bytes, "%s", *known);
            return RN_OK;
        }
    return rn_fail(RN_INVALID, "\"%.*s\" is no %.*s that Neuron's compiler has", RN_STR_ARG(value),
                   RN_STR_ARG(key));
}

// *out_known is false where it is no option of Neuron's compiler alone.
static rn_status parse_neuron_option(rn_str key, rn_str value, rn_pjrt_target *out,
                                     bool *out_known) {
    static const char *const models[] = {"generic", "transformer", "unet-inference", NULL};
    static const char *const casts[] = {"none", "matmult", "all", NULL};
    static const char *const types[] = {"bf16", "fp16", "tf32", "fp8_e4m3", NULL};
    *out_known = strcmp(out->plugin, "neuron") == 0;
    if (!*out_known) return RN_OK;
    if (rn_str_equal(key, RN_STR("model_type")))
        return parse_word(key, value, models, out->model_type, sizeof out->model_type);
    if (rn_str_equal(key, RN_STR("auto_cast")))
        return parse_word(key, value, casts, out->auto_cast, sizeof out->auto_cast);
    if (rn_str_equal(key, RN_STR("auto_cast_type")))
        return parse_word(key, value, types, out->auto_cast_type, sizeof out->auto_cast_type);
    *out_known = false;
    return RN_OK;
}

static rn_status parse_option(rn_str key, rn_str value, rn_pjrt_target *out) {
    uint32_t number = 0;
    bool known = false;
    RN_TRY(parse_neuron_option(key, value, out, &known));
    if (known) return RN_OK;
    if (rn_str_starts(key, RN_STR("xla_"))) return add_flag(key, value, out);
    if (rn_str_equal(key, RN_STR("products"))) return parse_dtype(value, &out->products);
    if (rn_str_equal(key, RN_STR("weights"))) return parse_dtype(value, &out->widened);
    if (rn_str_equal(key, RN_STR("seq"))) return rn_target_number(value, &out->most_rows);
    if (rn_str_equal(key, RN_STR("device"))) return rn_target_number(value, &out->device);
    if (rn_str_equal(key, RN_STR("donate"))) {
        RN_TRY(rn_target_number(value, &number));
        out->keeps_states = number == 0;
        return RN_OK;
    }
    if (rn_str_equal(key, RN_STR("opt"))) {
        RN_TRY(rn_target_number(value, &number));
        if (number > 3) return rn_fail(RN_INVALID, "opt is 0 to 3");
        out->level = (int32_t)number;
        return RN_OK;
    }
    if (rn_str_equal(key, RN_STR("cores"))) {
        RN_TRY(rn_target_number(value, &number));
        if (number < 1 || number > RN_PJRT_MOST_CORES)
            return rn_fail(RN_INVALID, "cores is 1 to %d", RN_PJRT_MOST_CORES);
        if (out->core_count && number > out->core_count)
            return rn_fail(RN_INVALID, "the target has %u cores", out->core_count);
        out->core_count = number;
        return RN_OK;
    }
    return rn_fail(
        RN_INVALID,
        "\"%.*s\" is none of seq, cores, opt, device, donate, products, weights, xla_..., and "
        "for neuron model_type, auto_cast, auto_cast_type",
        RN_STR_ARG(key));
}

// What stands behind the question mark; it is a part of the name.
static rn_status parse_options(rn_str text, rn_pjrt_target *out, char *name, size_t bytes) {
    size_t used = strlen(name);
    if (text.bytes) snprintf(name + used, bytes - used, "?%.*s", RN_STR_ARG(text));
    while (text.bytes) {
        rn_str value = rn_target_take(&text, '&');
        rn_str key = rn_target_take(&value, '=');
        RN_TRY(parse_option(key, value, out));
    }
    return RN_OK;
}

static bool is_path(rn_str text) {
    return memchr(text.data, '/', text.bytes) || memchr(text.data, '.', text.bytes);
}

static rn_status parse_xla(rn_str text, rn_target *out) {
    rn_pjrt_target own = {.level = -1};
    rn_str rest = text, plugin = rn_target_take(&rest, '?');
    if (plugin.bytes == 0 || plugin.bytes >= sizeof own.plugin)
        return rn_fail(RN_INVALID, "the plugin's file is missing, or its path too long");
    memcpy(own.plugin, plugin.data, plugin.bytes);
    own.by_name = !is_path(plugin);
    const char *folder_end = strrchr(own.plugin, '/');
    snprintf(out->name, sizeof out->name, "xla:%.59s", folder_end ? folder_end + 1 : own.plugin);
    RN_TRY(parse_options(rest, &own, out->name, sizeof out->name));
    rn_str_clean(out->name);
    memcpy(out->own, &own, sizeof own);
    return RN_OK;
}

// "0-1", "3" or "0,2"'s first part: commas separate targets.
static rn_status parse_cores(rn_str text, rn_pjrt_target *out) {
    rn_str rest = text, first = rn_target_take(&rest, '-');
    uint32_t low = 0, high = 0;
    RN_TRY(rn_target_number(first, &low));
    high = low;
    if (rest.bytes) RN_TRY(rn_target_number(rest, &high));
    if (high < low || high > 4095 || high - low >= RN_PJRT_MOST_CORES)
        return rn_fail(RN_INVALID, "cores are N or N-M, %d at most", RN_PJRT_MOST_CORES);
    if (low == high)
        snprintf(out->cores, sizeof out->cores, "%u", low);
    else
        snprintf(out->cores, sizeof out->cores, "%u-%u", low, high);
    out->core_count = high - low + 1;
    return RN_OK;
}

static rn_status parse_neuron(rn_str text, rn_target *out) {
    rn_pjrt_target own = {.level = -1, .plugin = "neuron", .by_name = true};
    rn_str rest = text, cores = rn_target_take(&rest, '?');
    if (cores.bytes) RN_TRY(parse_cores(cores, &own));
    snprintf(out->name, sizeof out->name, "neuron%s%s", own.cores[0] ? ":" : "", own.cores);
    RN_TRY(parse_options(rest, &own, out->name, sizeof out->name));
    memcpy(out->own, &own, sizeof own);
    return RN_OK;
}

const rn_backend rn_xla_backend = {
    .name = "xla",
    .syntax = "xla:cpu, xla:cuda, xla:PLUGIN",
    .parse = parse_xla,
    .open = rn_pjrt_open,
    .errors = &rn_pjrt_errors,
    .estimate = rn_pjrt_estimate,
    .describe_numbers = rn_pjrt_describe_numbers,
    .host_bytes = rn_pjrt_count_host,
};

const rn_backend rn_neuron_backend = {
    .name = "neuron",
    .syntax = "neuron:N-M",
    .parse = parse_neuron,
    .open = rn_pjrt_open,
    .estimate = rn_pjrt_estimate,
    .describe_numbers = rn_pjrt_describe_numbers,
    .host_bytes = rn_pjrt_count_host,
};
