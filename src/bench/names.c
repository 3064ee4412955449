// names.c — ENGINE[:DEVICE][+WEIGHTS][+aDTYPE][+MODE...], read and written; the tiers.
#include "bench/names.h"

#include "device/registry.h"

#include <ration/device.h>
#include <ration/ladder.h>
#include <ration/tensor.h>

#include <stdio.h>
#include <stdlib.h>

// ---- words --------------------------------------------------------------------------------------

// Modes, and the engines that know them.
static const struct mode {
    const char *name, *engines;
} modes[] = {
    {"graph", "cuda"},
    {"nograph", "cuda"},
    {"O0", "ort xla"},
    {"O1", "ort xla"},
    {"O2", "ort xla"},
    {"O3", "ort xla"},
    {"avx512", "ration eager"},
    {"avx2", "ration eager"},
    {"portable", "ration eager"},
    {"stream", "ration cuda"},
    {"least", "ration"},
    {"compile", "torch"},
    {"reduce-overhead", "torch"},
    {"max-autotune", "torch"},
    {"export", "torch"},
    {"aot", "torch"},
    {"trace", "torch"},
    {"script", "torch"},
};

// Engines that are no device of ration's.
static const char *const own_engines[] = {"eager", "reference", "empty", "torch"};

static bool knows(const char *engines, const char *engine) {
    const char *at = strstr(engines, engine);
    return at != NULL;
}

static rn_status read_engine(rn_str text, rn_bench_name *out) {
    rn_str head = text, rest = {0};
    for (size_t i = 0; i < text.bytes; i++)
        if (text.data[i] == ':') {
            head.bytes = i;
            rest = (rn_str){text.data + i + 1, text.bytes - i - 1};
            break;
        }
    for (size_t i = 0; i < sizeof own_engines / sizeof *own_engines; i++)
        if (rn_str_equal(head, rn_str_from(own_engines[i]))) {
            snprintf(out->engine, sizeof out->engine, "%s", own_engines[i]);
            if (rest.bytes)
                snprintf(out->target, sizeof out->target, "%.*s", RN_STR_ARG(rest));
            else
                snprintf(out->target, sizeof out->target, "cpu");
            return RN_OK;
        }
    rn_ladder *ladder = NULL;
    if (text.bytes == 0 || memchr(text.data, ',', text.bytes) ||
        rn_str_equal(text, RN_STR("auto")) || text.bytes >= sizeof out->target)
        return RN_NOT_FOUND;
    if (rn_ladder_parse(text, &ladder) != RN_OK) return RN_NOT_FOUND;
    rn_ladder_destroy(ladder);
    const rn_backend *backend = NULL;
    snprintf(out->target, sizeof out->target, "%.*s", RN_STR_ARG(text));
    backend = rn_backend_of(out->target);
    snprintf(out->engine, sizeof out->engine, "%s",
             !backend || backend->is_host ? "ration" : backend->name);
    return RN_OK;
}

static bool add_mode(rn_str word, rn_bench_name *out) {
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (!rn_str_equal(word, rn_str_from(modes[i].name))) continue;
        if (!knows(modes[i].engines, out->engine)) return false;
        size_t used = strlen(out->mode);
        if (used + word.bytes + 2 > sizeof out->mode) return false;
        snprintf(out->mode + used, sizeof out->mode - used, "%s%s", used ? "+" : "", modes[i].name);
        return true;
    }
    return false;
}

// A dtype that weights can have: rn_dtype's names, and what others call them.
static const char *read_dtype(rn_str word) {
    static const char *const others[][2] = {{"fp16", "f16"}, {"half", "f16"}, {"fp32", "f32"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (rn_str_equal(word, rn_str_from(others[i][0]))) return others[i][1];
    rn_dtype dtype = rn_dtype_parse(word);
    return dtype == RN_DTYPE_NONE ? NULL : rn_dtype_get(dtype)->name;
}

static bool read_word(rn_str word, rn_bench_name *out) {
    const char *dtype = read_dtype(word);
    if (dtype && !out->weights[0]) {
        snprintf(out->weights, sizeof out->weights, "%s", dtype);
        return true;
    }
    if (word.bytes > 1 && word.data[0] == 'a' && !out->activations[0]) {
        dtype = read_dtype((rn_str){word.data + 1, word.bytes - 1});
        if (dtype) {
            snprintf(out->activations, sizeof out->activations, "%s", dtype);
            return true;
        }
    }
    return add_mode(word, out);
}

// False: it is too long for a name.
static bool write_name(rn_bench_name *out) {
    char text[256];
    bool own = false;
    for (size_t i = 0; i < sizeof own_engines / sizeof *own_engines; i++)
        own |= strcmp(out->engine, own_engines[i]) == 0;
    bool plain = !own || strcmp(out->target, "cpu") == 0;
    snprintf(text, sizeof text, "%s%s%s%s%s%s%s%s%s", own ? out->engine : out->target,
             plain ? "" : ":", plain ? "" : out->target, out->weights[0] ? "+" : "", out->weights,
             out->activations[0] ? "+a" : "", out->activations, out->mode[0] ? "+" : "", out->mode);
    if (strlen(text) >= sizeof out->name) return false;
    memcpy(out->name, text, strlen(text) + 1);
    return true;
}

static bool read_canonical(rn_str text, rn_bench_name *out) {
    *out = (rn_bench_name){.name = ""};
    for (bool first = true;; first = false) {
        rn_str word = text;
        for (size_t i = 0; i < text.bytes; i++)
            if (text.data[i] == '+') {
                word.bytes = i;
                break;
            }
        if (first ? read_engine(word, out) != RN_OK : !read_word(word, out)) return false;
        if (word.bytes == text.bytes) break;
        text.data += word.bytes + 1;
        text.bytes -= word.bytes + 1;
    }
    return write_name(out);
}

// ---- unknown ones -------------------------------------------------------------------------------

enum { MOST_LETTERS = 80, NEAREST = 3 };

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

// Edits from one to the other, letters' case apart; a part of a longer name is near to it: OPENVINO
// to COMPILE_OPENVINO.
static size_t distance(rn_str a, rn_str b) {
    size_t row[MOST_LETTERS + 1];
    if (a.bytes > MOST_LETTERS || b.bytes > MOST_LETTERS) return MOST_LETTERS;
    for (size_t j = 0; j <= b.bytes; j++)
        row[j] = j;
    for (size_t i = 1; i <= a.bytes; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.bytes; j++) {
            size_t change = diagonal + (lower(a.data[i - 1]) != lower(b.data[j - 1]));
            diagonal = row[j];
            size_t best = row[j - 1] < row[j] ? row[j - 1] : row[j];
            row[j] = change < best + 1 ? change : best + 1;
        }
    }
    bool within = false;
    for (size_t at = 0; !within && a.bytes >= 4 && at + a.bytes <= b.bytes; at++)
        within = rn_str_equal_ignoring_case(a, (rn_str){b.data + at, a.bytes});
    return within ? 1 + (b.bytes - a.bytes) / 8 : row[b.bytes];
}

static const char *const examples[] = {
    "cpu",     "cpu+int8", "cpu+bf16", "cpu+f16",   "cpu+q4_0",     "cpu+stream", "cpu+least",
    "eager",   "ort",      "ort+O3",   "reference", "cuda",         "cuda+graph", "cuda+bf16+graph",
    "xla:cpu", "xla:cuda", "empty",    "torch",     "torch+compile"};

typedef struct near_name {
    char name[MOST_LETTERS];
    size_t distance;
} near_name;

static void keep_near(near_name *nearest, rn_str text, const char *name) {
    near_name now = {.distance = distance(text, rn_str_from(name))};
    snprintf(now.name, sizeof now.name, "%s", name);
    for (int i = 0; i < NEAREST; i++)
        if (now.distance < nearest[i].distance) {
            near_name other = nearest[i];
            nearest[i] = now;
            now = other;
        }
}

static rn_status refuse(rn_str text) {
    near_name nearest[NEAREST] = {{"", 99}, {"", 99}, {"", 99}};
    const char *meaning, *reason, *name;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
        keep_near(nearest, text, examples[i]);
    for (size_t i = 0; (name = rn_bench_alias(i, &meaning, &reason)); i++)
        keep_near(nearest, text, name);
    return rn_hint(rn_fail(RN_NOT_FOUND, "there is no variant '%.*s'",
                           (int)(text.bytes < 80 ? text.bytes : 80), text.data),
                   "the nearest are %s, %s and %s", nearest[0].name, nearest[1].name,
                   nearest[2].name);
}

rn_status rn_bench_name_parse(rn_str text, rn_bench_name *out) {
    const char *meaning = NULL, *reason = NULL;
    char number[8] = "";
    if (text.bytes && text.bytes < 3 && text.data[0] >= '0' && text.data[0] <= '9') {
        snprintf(number, sizeof number, "%.*s", RN_STR_ARG(text));
        unsigned long index = strtoul(number, NULL, 10);
        const char *name = index < 50 ? rn_bench_alias(index, &meaning, &reason) : NULL;
        if (name) text = rn_str_from(name);
    }
    if (meaning || reason || rn_bench_find_alias(text, &meaning, &reason)) {
        if (!meaning)
            return rn_hint(
                rn_fail(RN_UNSUPPORTED, "alma's '%.*s' has no meaning here", RN_STR_ARG(text)),
                "%s", reason);
        text = rn_str_from(meaning);
    }
    if (read_canonical(text, out)) return RN_OK;
    return refuse(text);
}

// ---- tiers --------------------------------------------------------------------------------------

static const struct tier_row {
    uint32_t tier;
    bool text;   // for text models, too
    bool graphs; // for models that are no text
    const char *name;
} tier_rows[] = {
    {1, false, true, "eager"},
    {1, true, true, "cpu"},
    {1, true, true, "cpu+stream"},
    {1, false, true, "cpu+avx2"},
    {1, true, true, "ort"},
    {1, false, true, "ort+O3"},
    {1, true, true, "xla:cpu"},
    {1, true, true, "cuda"},
    {1, true, true, "xla:cuda"},
    {2, false, true, "cpu+f16"},
    {2, false, true, "cpu+bf16"},
    {2, true, true, "cpu+int8"},
    {2, true, false, "cpu+q4_0"},
    {2, false, true, "eager+bf16"},
    {2, false, true, "cuda+nograph"},
    {2, false, true, "cuda+f16"},
    {2, false, true, "cuda+bf16"},
    {2, true, true, "cuda+int8"},
    {3, true, true, "cpu+avx2"},
    {3, false, true, "cpu+portable"},
    {3, false, true, "cpu+int8+af32"},
    {3, true, true, "cpu+q8_0"},
    {3, false, true, "cpu+f8_e4m3"},
    {3, false, true, "ort+O0"},
    {3, false, true, "ort+O1"},
    {3, false, true, "cuda+stream"},
    {3, false, true, "reference"},
    {3, true, true, "neuron"},
};

// Whether a device can be opened; each is asked once.
static bool is_here(const char *target) {
    static _Thread_local struct {
        char target[64];
        bool here;
    } known[8];
    for (size_t i = 0; i < 8; i++) {
        if (strcmp(known[i].target, target) == 0) return known[i].here;
        if (known[i].target[0]) continue;
        rn_device *device = NULL;
        rn_error_info error = *rn_last_error();
        snprintf(known[i].target, sizeof known[i].target, "%s", target);
        known[i].here = rn_device_open(target, 1, &device) == RN_OK;
        rn_device_destroy(device);
        (void)rn_error_restore(&error);
        return known[i].here;
    }
    return false;
}

size_t rn_bench_tier(uint32_t tier, const char *device, bool is_text, rn_bench_name *out_names,
                     size_t capacity) {
    size_t count = 0;
    for (size_t i = 0; i < sizeof tier_rows / sizeof *tier_rows && count < capacity; i++) {
        const struct tier_row *row = &tier_rows[i];
        rn_bench_name *name = &out_names[count];
        if (row->tier > tier || !(is_text ? row->text : row->graphs)) continue;
        if (!read_canonical(rn_str_from(row->name), name)) continue;
        size_t known = 0;
        while (known < count && strcmp(out_names[known].name, name->name) != 0)
            known++;
        bool wanted = !device || !*device || strcmp(device, name->target) == 0 ||
                      (strncmp(device, name->target, strlen(name->target)) == 0 &&
                       device[strlen(name->target)] == ':');
        if (known == count && wanted && is_here(name->target)) count++;
    }
    return count;
}
