// hf_quantization.c — "quantization_config" of config.json: which tool quantised the weights, and
// how.
//
// What the tensors say themselves is not read here (io/weight_forms.c); what they cannot say, and
// what changes the meaning of a product, is.
#include "model/text/hf_quantization.h"

#include "base/str.h"

#include <stdio.h>

#define CONFIG "quantization_config."

static rn_status refuse(const rn_fields *f, const char *what, rn_str value) {
    return rn_hint(rn_fail(RN_UNSUPPORTED, "%s: weights quantised with %s '%.*s' cannot be read",
                           f->source, what, RN_STR_ARG(value)),
                   "take the model's original weights, or a GGUF file");
}

static rn_status refuse_method(const rn_fields *f, rn_str method) {
    return rn_hint(rn_fail(RN_UNSUPPORTED, "%s: weights quantised by '%.*s' cannot be read",
                           f->source, RN_STR_ARG(method)),
                   "fp8, fbgemm_fp8, compressed-tensors, gptq, awq, modelopt, mxfp4, quanto and "
                   "bitsandbytes are known; take the model's original weights, or a GGUF file");
}

// The text must be one of `known` (NULL at the end), or absent.
static rn_status expect(const rn_fields *f, const char *field, const char *const *known) {
    rn_str value = {0};
    RN_TRY(rn_fields_text(f, field, &value));
    if (value.bytes == 0) return RN_OK;
    for (; *known; known++)
        if (rn_str_equal_ignoring_case(value, rn_str_from(*known))) return RN_OK;
    return refuse(f, field, value);
}

// -1 stands for a whole row.
static rn_status read_group(const rn_fields *f, const char *field, uint32_t *out) {
    const rn_field *found = rn_fields_find(f, field);
    if (found && found->kind == RN_FIELD_NUMBER && found->number == -1) return RN_OK;
    RN_TRY(rn_fields_u32(f, field, out));
    if (!found || *out > 0) return RN_OK;
    return rn_fail(RN_CORRUPT, "%s: %s cannot be 0", f->source, field);
}

static rn_status read_tile(const rn_fields *f, const char *field, uint32_t tile[2]) {
    char name[96];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s.%d", field, i);
        if (!rn_fields_find(f, name)) continue;
        RN_TRY(rn_fields_u32(f, name, &tile[i]));
        if (tile[i] == 0) return rn_fail(RN_CORRUPT, "%s: %s cannot be 0", f->source, name);
    }
    return RN_OK;
}

static rn_status read_gptq(const rn_fields *f, rn_forms_config *out) {
    static const char *const formats[] = {"gptq", "gptq_v2", NULL};
    rn_str format = RN_STR("gptq");
    bool marlin = false;
    RN_TRY(expect(f, CONFIG "checkpoint_format", formats));
    RN_TRY(rn_fields_text(f, CONFIG "checkpoint_format", &format));
    RN_TRY(rn_fields_bool(f, CONFIG "is_marlin_format", &marlin));
    if (marlin) return refuse(f, "is_marlin_format", RN_STR("true"));
    out->zeros_are_true = rn_str_equal_ignoring_case(format, RN_STR("gptq_v2"));
    out->bits = 4;
    RN_TRY(rn_fields_u32(f, CONFIG "bits", &out->bits));
    RN_TRY(read_group(f, CONFIG "group_size", &out->group));
    return rn_fields_bool(f, CONFIG "sym", &out->symmetric);
}

static rn_status read_awq(const rn_fields *f, rn_forms_config *out) {
    static const char *const versions[] = {"gemm", NULL};
    out->bits = 4;
    RN_TRY(expect(f, CONFIG "version", versions));
    RN_TRY(rn_fields_u32(f, CONFIG "bits", &out->bits));
    return read_group(f, CONFIG "group_size", &out->group);
}

// With several groups of layers, the tensors alone say what is which.
static rn_status read_compressed(const rn_fields *f, rn_forms_config *out) {
#define WEIGHTS CONFIG "config_groups.group_0.weights."
    static const char *const formats[] = {"dense",
                                          "naive-quantized",
                                          "int-quantized",
                                          "float-quantized",
                                          "pack-quantized",
                                          "nvfp4-pack-quantized",
                                          "mxfp4-pack-quantized",
                                          "mixed-precision",
                                          NULL};
    static const char *const dense[] = {"dense", NULL};
    const rn_field *groups = rn_fields_find(f, CONFIG "config_groups");
    const rn_field *transforms = rn_fields_find(f, CONFIG "transform_config");
    RN_TRY(expect(f, CONFIG "format", formats));
    RN_TRY(expect(f, CONFIG "sparsity_config.format", dense));
    if (transforms && transforms->count) return refuse(f, "transform_config", RN_STR("rotations"));
    if (groups && groups->count > 1) return RN_OK;
    RN_TRY(read_tile(f, WEIGHTS "block_structure", out->tile));
    rn_str strategy = {0};
    RN_TRY(rn_fields_text(f, WEIGHTS "strategy", &strategy));
    if (!rn_str_equal(strategy, RN_STR("group"))) return RN_OK;
    RN_TRY(rn_fields_u32(f, WEIGHTS "num_bits", &out->bits));
    return read_group(f, WEIGHTS "group_size", &out->group);
#undef WEIGHTS
}

static rn_status read_fp8(const rn_fields *f, rn_forms_config *out) {
    static const char *const formats[] = {"e4m3", "float8_e4m3fn", NULL};
    RN_TRY(expect(f, CONFIG "fmt", formats));
    return read_tile(f, CONFIG "weight_block_size", out->tile);
}

static rn_status read_nothing(const rn_fields *f, rn_forms_config *out) {
    (void)f, (void)out;
    return RN_OK;
}

rn_status rn_text_json_quantization(const rn_fields *f, rn_forms_config *out) {
    static const struct {
        const char *name;
        rn_forms_method method;
        rn_status (*read)(const rn_fields *f, rn_forms_config *out);
    } methods[] = {
        {"quanto", RN_FORMS_NONE, read_nothing},
        {"bitsandbytes", RN_FORMS_NONE, read_nothing},
        {"fp8", RN_FORMS_FP8, read_fp8},
        {"fbgemm_fp8", RN_FORMS_FP8, read_nothing},
        {"compressed-tensors", RN_FORMS_COMPRESSED_TENSORS, read_compressed},
        {"gptq", RN_FORMS_GPTQ, read_gptq},
        {"awq", RN_FORMS_AWQ, read_awq},
        {"modelopt", RN_FORMS_MODELOPT, read_nothing},
        {"mxfp4", RN_FORMS_MXFP4, read_nothing},
    };
    rn_str method = {0};
    *out = (rn_forms_config){0};
    if (!rn_fields_find(f, "quantization_config")) return RN_OK;
    RN_TRY(rn_fields_need_text(f, CONFIG "quant_method", &method));
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (rn_str_equal_ignoring_case(method, rn_str_from(methods[i].name))) {
            out->method = methods[i].method;
            return methods[i].read(f, out);
        }
    return refuse_method(f, method);
}
