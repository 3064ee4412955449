// aliases.c — alma's names, and what they are here: a variant of ours, or why there is none.
#include "bench/names.h"

#include <stdio.h>
#include <string.h>

typedef struct alias {
    const char *name, *meaning, *reason;
} alias;

static const char no_tvm[] = "TVM is no engine here: xla:cpu and xla:cuda compile graphs";
static const char no_tensorrt[] = "TensorRT is no engine here: cuda and xla:cuda run on its GPUs";
static const char no_openvino[] =
    "OpenVINO is no engine here: cpu, ort and xla:cpu run on its CPUs";
static const char no_fake[] = "fake quantisation computes in f32 what int8 would give: a step of "
                              "training, not an engine; cpu+int8 computes in int8";
static const char no_autoquant[] = "torchao chooses kinds layer by layer while it measures: name "
                                   "the kind, for example cpu+int8";

// alma's numbers 0 to 49.
static const alias table[] = {
    {"EAGER", "eager", NULL},
    {"EXPORT+EAGER", "eager", NULL},
    {"ONNX_CPU", "ort", NULL},
    {"ONNX_GPU", NULL, "ONNX Runtime is used with its CPU provider only: cuda, xla:cuda"},
    {"ONNX+DYNAMO_EXPORT", "ort", NULL},
    {"COMPILE_CUDAGRAPHS", "cuda+graph", NULL},
    {"COMPILE_INDUCTOR_DEFAULT", "torch+compile", NULL},
    {"COMPILE_INDUCTOR_REDUCE_OVERHEAD", "torch+reduce-overhead", NULL},
    {"COMPILE_INDUCTOR_MAX_AUTOTUNE", "torch+max-autotune", NULL},
    {"COMPILE_INDUCTOR_EAGER_FALLBACK", "torch+compile", NULL},
    {"COMPILE_ONNXRT", "ort", NULL},
    {"COMPILE_OPENXLA", "xla:cuda", NULL},
    {"COMPILE_TVM", NULL, no_tvm},
    {"EXPORT+AI8WI8_FLOAT_QUANTIZED", NULL, no_fake},
    {"EXPORT+AI8WI8_FLOAT_QUANTIZED+RUN_DECOMPOSITION", NULL, no_fake},
    {"EXPORT+AI8WI8_STATIC_QUANTIZED", "cpu+int8", NULL},
    {"EXPORT+AI8WI8_STATIC_QUANTIZED+RUN_DECOMPOSITION", "cpu+int8", NULL},
    {"EXPORT+AOT_INDUCTOR", "torch+aot", NULL},
    {"EXPORT+COMPILE_CUDAGRAPHS", "cuda+graph", NULL},
    {"EXPORT+COMPILE_INDUCTOR_DEFAULT", "torch+export+compile", NULL},
    {"EXPORT+COMPILE_INDUCTOR_REDUCE_OVERHEAD", "torch+export+reduce-overhead", NULL},
    {"EXPORT+COMPILE_INDUCTOR_MAX_AUTOTUNE", "torch+export+max-autotune", NULL},
    {"EXPORT+COMPILE_INDUCTOR_DEFAULT_EAGER_FALLBACK", "torch+export+compile", NULL},
    {"EXPORT+COMPILE_ONNXRT", "ort", NULL},
    {"EXPORT+COMPILE_OPENXLA", "xla:cuda", NULL},
    {"EXPORT+COMPILE_TVM", NULL, no_tvm},
    {"NATIVE_CONVERT_AI8WI8_STATIC_QUANTIZED", "cpu+int8", NULL},
    {"NATIVE_FAKE_QUANTIZED_AI8WI8_STATIC", NULL, no_fake},
    {"COMPILE_TENSORRT", NULL, no_tensorrt},
    {"EXPORT+COMPILE_TENSORRT", NULL, no_tensorrt},
    {"COMPILE_OPENVINO", NULL, no_openvino},
    {"JIT_TRACE", "torch+trace", NULL},
    {"TORCH_SCRIPT", "torch+script", NULL},
    {"OPTIMUM_QUANTO_AI8WI8", "cpu+int8", NULL},
    {"OPTIMUM_QUANTO_AI8WI4", "cpu+q4_0", NULL},
    {"OPTIMUM_QUANTO_AI8WI2", "cpu+q2_k", NULL},
    {"OPTIMUM_QUANTO_WI8", "cpu+int8+af32", NULL},
    {"OPTIMUM_QUANTO_WI4", "cpu+q4_0+af32", NULL},
    {"OPTIMUM_QUANTO_WI2", "cpu+q2_k+af32", NULL},
    {"OPTIMUM_QUANTO_Wf8E4M3N", "cpu+f8_e4m3", NULL},
    {"OPTIMUM_QUANTO_Wf8E4M3NUZ", NULL, "a form of AMD's GPUs; f8_e4m3 has the same precision"},
    {"OPTIMUM_QUANTO_Wf8E5M2", "cpu+f8_e5m2", NULL},
    {"OPTIMIM_QUANTO_Wf8E5M2+COMPILE_CUDAGRAPHS", "cuda+f8_e5m2+graph", NULL},
    {"FP16+EAGER", "eager+f16", NULL},
    {"BF16+EAGER", "eager+bf16", NULL},
    {"COMPILE_INDUCTOR_MAX_AUTOTUNE+TORCHAO_AUTOQUANT_DEFAULT", NULL, no_autoquant},
    {"COMPILE_INDUCTOR_MAX_AUTOTUNE+TORCHAO_AUTOQUANT_NONDEFAULT", NULL, no_autoquant},
    {"COMPILE_CUDAGRAPHS+TORCHAO_AUTOQUANT_DEFAULT", NULL, no_autoquant},
    {"COMPILE_INDUCTOR_MAX_AUTOTUNE+TORCHAO_QUANT_I4_WEIGHT_ONLY", "cpu+q4_0+af32", NULL},
    {"TORCHAO_QUANT_I4_WEIGHT_ONLY", "cpu+q4_0+af32", NULL},
};

// With FP16+ and BF16+ before them: numbers 50 to 93.
static const struct half_alias {
    const char *name, *fp16, *bf16, *reason;
} halves[] = {
    {"COMPILE_CUDAGRAPHS", "cuda+f16+graph", "cuda+bf16+graph", NULL},
    {"COMPILE_INDUCTOR_DEFAULT", "torch+f16+compile", "torch+bf16+compile", NULL},
    {"COMPILE_INDUCTOR_REDUCE_OVERHEAD", "torch+f16+reduce-overhead", "torch+bf16+reduce-overhead",
     NULL},
    {"COMPILE_INDUCTOR_MAX_AUTOTUNE", "torch+f16+max-autotune", "torch+bf16+max-autotune", NULL},
    {"COMPILE_INDUCTOR_EAGER_FALLBACK", "torch+f16+compile", "torch+bf16+compile", NULL},
    {"COMPILE_ONNXRT", "ort+f16", "ort+bf16", NULL},
    {"COMPILE_OPENXLA", "xla:cuda+f16", "xla:cuda+bf16", NULL},
    {"COMPILE_TVM", NULL, NULL, no_tvm},
    {"COMPILE_TENSORRT", NULL, NULL, no_tensorrt},
    {"COMPILE_OPENVINO", NULL, NULL, no_openvino},
    {"EXPORT+COMPILE_CUDAGRAPHS", "cuda+f16+graph", "cuda+bf16+graph", NULL},
    {"EXPORT+COMPILE_INDUCTOR_DEFAULT", "torch+f16+export+compile", "torch+bf16+export+compile",
     NULL},
    {"EXPORT+COMPILE_INDUCTOR_REDUCE_OVERHEAD", "torch+f16+export+reduce-overhead",
     "torch+bf16+export+reduce-overhead", NULL},
    {"EXPORT+COMPILE_INDUCTOR_MAX_AUTOTUNE", "torch+f16+export+max-autotune",
     "torch+bf16+export+max-autotune", NULL},
    {"EXPORT+COMPILE_INDUCTOR_DEFAULT_EAGER_FALLBACK", "torch+f16+export+compile",
     "torch+bf16+export+compile", NULL},
    {"EXPORT+COMPILE_ONNXRT", "ort+f16", "ort+bf16", NULL},
    {"EXPORT+COMPILE_OPENXLA", "xla:cuda+f16", "xla:cuda+bf16", NULL},
    {"EXPORT+COMPILE_TVM", NULL, NULL, no_tvm},
    {"EXPORT+COMPILE_TENSORRT", NULL, NULL, no_tensorrt},
    {"EXPORT+EAGER", "eager+f16", "eager+bf16", NULL},
    {"JIT_TRACE", "torch+f16+trace", "torch+bf16+trace", NULL},
    {"TORCH_SCRIPT", "torch+f16+script", "torch+bf16+script", NULL},
};

enum {
    NAMED = sizeof table / sizeof *table,
    HALVES = sizeof halves / sizeof *halves,
};

const char *rn_bench_alias(size_t number, const char **out_meaning, const char **out_reason) {
    static _Thread_local char name[80];
    *out_meaning = *out_reason = NULL;
    if (number < NAMED) {
        *out_meaning = table[number].meaning;
        *out_reason = table[number].reason;
        return table[number].name;
    }
    size_t rest = number - NAMED;
    if (rest >= 2 * HALVES) return NULL;
    const struct half_alias *half = &halves[rest % HALVES];
    *out_meaning = rest < HALVES ? half->fp16 : half->bf16;
    *out_reason = half->reason;
    snprintf(name, sizeof name, "%s+%s", rest < HALVES ? "FP16" : "BF16", half->name);
    return name;
}

// alma spells number 42 in two ways, of which it understands neither.
bool rn_bench_find_alias(rn_str text, const char **out_meaning, const char **out_reason) {
    const char *name;
    if (rn_str_equal(text, RN_STR("OPTIMUM_QUANTO_Wf8E5M2+COMPILE_CUDAGRAPHS")))
        text = RN_STR("OPTIMIM_QUANTO_Wf8E5M2+COMPILE_CUDAGRAPHS");
    for (size_t i = 0; (name = rn_bench_alias(i, out_meaning, out_reason)); i++)
        if (rn_str_equal_ignoring_case(text, rn_str_from(name))) return true;
    return false;
}
