// ladder_parse.c — a list of targets as people write it.
#include "runtime/ladder.h"

#include "base/str.h"
#include "memory/account.h"

#include <stdio.h>

// Takes what stands before the next `mark` off the front, without spaces around it.
static rn_str take_part(rn_str *rest, char mark) {
    const char *end = rest->bytes ? memchr(rest->data, mark, rest->bytes) : NULL;
    size_t bytes = end ? (size_t)(end - rest->data) : rest->bytes;
    size_t used = end ? bytes + 1 : bytes;
    rn_str part = {rest->data, bytes};
    *rest = (rn_str){rest->data + used, rest->bytes - used};
    while (part.bytes && part.data[0] == ' ')
        part = (rn_str){part.data + 1, part.bytes - 1};
    while (part.bytes && part.data[part.bytes - 1] == ' ')
        part.bytes--;
    return part;
}

static rn_status parse_number(rn_str text, uint32_t *out) {
    uint32_t number = 0;
    if (text.bytes == 0 || text.bytes > 9)
        return rn_fail(RN_INVALID, "\"%.*s\" is no number", RN_STR_ARG(text));
    for (size_t i = 0; i < text.bytes; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return rn_fail(RN_INVALID, "\"%.*s\" is no number", RN_STR_ARG(text));
        number = number * 10 + (uint32_t)(text.data[i] - '0');
    }
    *out = number;
    return RN_OK;
}

// ---- kinds --------------------------------------------------------------------------------------

static rn_status bad_target(rn_str text, const char *why) {
    return rn_hint(rn_fail(RN_INVALID, "device \"%.*s\": %s", RN_STR_ARG(text), why),
                   "devices are auto, cpu, cuda, cuda:N, xla:PLUGIN and sim, separated by commas");
}

static rn_status parse_cuda(rn_str number, rn_target *out) {
    uint32_t ordinal = 0;
    if (number.data) RN_TRY(parse_number(number, &ordinal));
    if (ordinal > 1023) return rn_fail(RN_INVALID, "no machine has so many");
    out->ordinal = (int)ordinal;
    snprintf(out->name, sizeof out->name, "cuda:%u", ordinal);
    return RN_OK;
}

static rn_status parse_xla(rn_str plugin, rn_target *out) {
    if (plugin.bytes == 0 || plugin.bytes >= sizeof out->plugin)
        return rn_fail(RN_INVALID, "the plugin's file is missing, or its path too long");
    memcpy(out->plugin, plugin.data, plugin.bytes);
    const char *folder_end = strrchr(out->plugin, '/');
    snprintf(out->name, sizeof out->name, "xla:%.59s", folder_end ? folder_end + 1 : out->plugin);
    rn_str_clean(out->name);
    return RN_OK;
}

static rn_status parse_link(rn_str text, double *out) {
    uint64_t bytes = 0;
    RN_TRY(rn_size_parse(text, 0, &bytes));
    *out = (double)bytes;
    return RN_OK;
}

static rn_status parse_sim_option(rn_str key, rn_str value, rn_sim_options *out) {
    if (rn_str_equal(key, RN_STR("memory"))) return rn_size_parse(value, 0, &out->memory_bytes);
    if (rn_str_equal(key, RN_STR("link"))) return parse_link(value, &out->link_bytes_second);
    if (rn_str_equal(key, RN_STR("threads"))) return parse_number(value, &out->threads);
    if (rn_str_equal(key, RN_STR("fail_alloc"))) return parse_number(value, &out->fail_alloc);
    if (rn_str_equal(key, RN_STR("fail_allocs"))) return parse_number(value, &out->fail_allocs);
    if (rn_str_equal(key, RN_STR("fail_launch"))) return parse_number(value, &out->fail_launch);
    if (rn_str_equal(key, RN_STR("fail_copy"))) return parse_number(value, &out->fail_copy);
    return rn_fail(
        RN_INVALID,
        "\"%.*s\" is none of memory, link, threads, fail_alloc, fail_allocs, fail_launch, "
        "fail_copy",
        RN_STR_ARG(key));
}

static rn_status parse_sim(rn_str options, rn_target *out) {
    snprintf(out->name, sizeof out->name, "sim");
    while (options.bytes) {
        rn_str value = take_part(&options, ';');
        rn_str key = take_part(&value, '=');
        RN_TRY(parse_sim_option(key, value, &out->sim));
    }
    return RN_OK;
}

// Where there is no colon, `rest` has no data.
static rn_status parse_kind(rn_str kind, rn_str rest, rn_target *out) {
    if (rn_str_equal(kind, RN_STR("cpu")) && !rest.data) {
        out->kind = RN_TARGET_CPU;
        snprintf(out->name, sizeof out->name, "cpu");
        return RN_OK;
    }
    out->kind = rn_str_equal(kind, RN_STR("cuda")) ? RN_TARGET_CUDA : RN_TARGET_SIM;
    if (out->kind == RN_TARGET_CUDA) return parse_cuda(rest, out);
    if (rn_str_equal(kind, RN_STR("sim"))) return parse_sim(rest, out);
    out->kind = RN_TARGET_XLA;
    if (rn_str_equal(kind, RN_STR("xla"))) return parse_xla(rest, out);
    return rn_fail(RN_INVALID, "there is no such kind");
}

// ---- the list -----------------------------------------------------------------------------------

static rn_status add_target(rn_ladder *ladder, rn_str text, bool wanted) {
    if (ladder->count == RN_LADDER_TARGETS) return bad_target(text, "there are too many before it");
    rn_target *target = &ladder->targets[ladder->count];
    *target = (rn_target){.wanted = wanted};
    rn_str rest = text, kind = take_part(&rest, ':');
    if (kind.bytes == text.bytes) rest = (rn_str){0};
    if (parse_kind(kind, rest, target) != RN_OK) {
        rn_story why = *rn_last_story();
        return bad_target(text, why.message);
    }
    ladder->count++;
    return RN_OK;
}

static rn_status add_all(rn_ladder *ladder, rn_str text) {
    do {
        rn_str part = take_part(&text, ',');
        if (rn_str_equal(part, RN_STR("auto"))) {
            RN_TRY(add_target(ladder, RN_STR("cuda"), false));
            part = RN_STR("cpu");
        }
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
    ladder->rung = -1;
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
