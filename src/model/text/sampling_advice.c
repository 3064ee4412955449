// sampling_advice.c — see sampling_advice.h. Numbers that no sampler could use are as if unsaid.
#include "model/text/sampling_advice.h"

#include "base/file.h"

#include <sys/param.h>

static const rn_sampling_advice none = {-1, -1, -1, -1, -1};

static float within(float value, float least, float most) {
    return value >= least && value <= most ? value : -1;
}

typedef struct spelling {
    const char *temperature, *top_p, *min_p, *repetition, *top_k;
} spelling;

static rn_status read_numbers(const rn_fields *f, const spelling *names, rn_sampling_advice *out) {
    float top_k = -1;
    RN_TRY(rn_fields_number(f, names->temperature, &out->temperature));
    RN_TRY(rn_fields_number(f, names->top_p, &out->top_p));
    RN_TRY(rn_fields_number(f, names->min_p, &out->min_p));
    RN_TRY(rn_fields_number(f, names->repetition, &out->repetition_penalty));
    RN_TRY(rn_fields_number(f, names->top_k, &top_k));
    out->temperature = within(out->temperature, 0, 2);
    out->top_p = within(out->top_p, 0.001f, 1);
    out->min_p = within(out->min_p, 0, 1);
    out->repetition_penalty = within(out->repetition_penalty, 0.1f, 10);
    out->top_k = (int32_t)within(top_k, 0, 1 << 20);
    return RN_OK;
}

rn_status rn_sampling_advice_from_gguf(const rn_fields *fields, rn_sampling_advice *out) {
    static const spelling names = {"general.sampling.temp", "general.sampling.top_p",
                                   "general.sampling.min_p", "general.sampling.penalty_repeat",
                                   "general.sampling.top_k"};
    *out = none;
    return read_numbers(fields, &names, out);
}

// Without "do_sample" the numbers are of no effect in the makers' own program.
static rn_status read_config(const rn_fields *f, rn_sampling_advice *out) {
    static const spelling names = {"temperature", "top_p", "min_p", "repetition_penalty", "top_k"};
    bool samples = false;
    RN_TRY(rn_fields_bool(f, "do_sample", &samples));
    return samples ? read_numbers(f, &names, out) : RN_OK;
}

rn_status rn_sampling_advice_from_folder(const char *folder, rn_sampling_advice *out) {
    char path[PATH_MAX];
    rn_fields fields;
    *out = none;
    RN_TRY(rn_path_join(folder, "generation_config.json", path, sizeof path));
    if (!rn_file_exists(path)) return RN_OK;
    rn_fields_init(&fields, path);
    rn_status s = rn_fields_read_file(&fields, path);
    if (s == RN_OK) s = read_config(&fields, out);
    rn_fields_free(&fields);
    return s;
}
