// routers_test.c — who is chosen, and with which weight: the op `route` with the settings of each
// family against transformers' own routers, at the shapes of published models. The golden file is
// made by scripts/reference/routers.py.
#include "graph/op.h"
#include "support.h"

#include <ration/checkpoint.h>

#include <math.h>

#define GOLDEN "tests/golden/routers.safetensors"
enum { ROWS = 8, MOST = 512, MOST_CHOSEN = 16 };

static const struct {
    const char *name;
    uint32_t experts;
    rn_route_attrs attrs;
} routers[] = {
    {"mixtral", 8, {.chosen = 2, .norm = true}},
    {"qwen2_moe", 60, {.chosen = 4}},
    {"qwen3_moe", 128, {.chosen = 8, .norm = true}},
    {"olmoe", 64, {.chosen = 8}},
    {"gpt_oss", 128, {.chosen = 4, .gating = RN_GATING_SOFTMAX_CHOSEN}},
    {"deepseek_v2",
     160,
     {.chosen = 6, .groups = 8, .groups_chosen = 3, .group_by_max = true, .scale = 16}},
    {"deepseek_v2_lite", 64, {.chosen = 6}},
    {"deepseek_v3",
     256,
     {.chosen = 8,
      .gating = RN_GATING_SIGMOID,
      .groups = 8,
      .groups_chosen = 4,
      .norm = true,
      .scale = 2.5f}},
    {"glm4_moe", 128, {.chosen = 8, .gating = RN_GATING_SIGMOID, .norm = true}},
    {"glm4_moe_lite", 64, {.chosen = 4, .gating = RN_GATING_SIGMOID, .norm = true, .scale = 1.8f}},
    {"gemma4", 128, {.chosen = 8, .norm = true}},
    {"qwen3_next", 512, {.chosen = 10, .norm = true}},
    {"qwen35_moe", 256, {.chosen = 8, .norm = true}},
};

// False: the family has no such tensor.
static bool load(const rn_checkpoint *c, const char *name, const char *what, rn_dtype dtype,
                 void *out, uint64_t elements) {
    char text[64];
    snprintf(text, sizeof text, "%s.%s", name, what);
    const rn_tensor_info *t = rn_checkpoint_find(c, text);
    if (!t) return false;
    assert_int_equal(t->elements, elements);
    assert_ok(rn_checkpoint_load(c, t, dtype, out, elements * 4));
    return true;
}

// What the op says, by rising number of the expert.
static void route(const rn_route_attrs *attrs, uint64_t experts, float *logits, float *bias,
                  float *scale, int32_t *ids, float *weights) {
    float room[2 * MOST];
    const rn_tensor none = {.dtype = RN_DTYPE_NONE};
    rn_tensor in[] = {
        {.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(1, experts), .data = logits}, none, none};
    rn_tensor out[] = {
        {.dtype = RN_DTYPE_I32, .shape = RN_SHAPE(1, attrs->chosen), .data = ids},
        {.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(1, attrs->chosen), .data = weights}};
    if (bias) in[1] = (rn_tensor){.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(experts), .data = bias};
    if (scale)
        in[2] = (rn_tensor){.dtype = RN_DTYPE_F32, .shape = RN_SHAPE(experts), .data = scale};
    rn_call call = {.op = RN_OP_ROUTE,
                    .attrs = attrs,
                    .inputs = in,
                    .outputs = out,
                    .input_count = 3,
                    .output_count = 2,
                    .workspace = room,
                    .workspace_bytes = sizeof room,
                    .threads = 1};
    assert_ok(rn_op_get(RN_OP_ROUTE)->reference(&call));
    for (uint32_t i = 0; i < attrs->chosen; i++)
        for (uint32_t k = i + 1; k < attrs->chosen; k++)
            if (ids[k] < ids[i]) {
                int32_t id = ids[i];
                float weight = weights[i];
                ids[i] = ids[k];
                weights[i] = weights[k];
                ids[k] = id;
                weights[k] = weight;
            }
}

static void every_router_chooses_as_transformers_does(void **state) {
    (void)state;
    static float logits[ROWS * MOST], bias[MOST], scale[MOST], weights[ROWS * MOST_CHOSEN];
    static int32_t ids[ROWS * MOST_CHOSEN];
    rn_checkpoint *c;
    assert_ok(rn_checkpoint_open(GOLDEN, &c));
    for (size_t i = 0; i < sizeof routers / sizeof *routers; i++) {
        const char *name = routers[i].name;
        uint32_t experts = routers[i].experts, chosen = routers[i].attrs.chosen;
        double most = 0;
        assert_true(load(c, name, "logits", RN_DTYPE_F32, logits, (uint64_t)ROWS * experts));
        assert_true(load(c, name, "ids", RN_DTYPE_I32, ids, (uint64_t)ROWS * chosen));
        assert_true(load(c, name, "weights", RN_DTYPE_F32, weights, (uint64_t)ROWS * chosen));
        bool has_bias = load(c, name, "bias", RN_DTYPE_F32, bias, experts);
        bool has_scale = load(c, name, "scale", RN_DTYPE_F32, scale, experts);
        assert_int_equal(has_bias, routers[i].attrs.gating == RN_GATING_SIGMOID);
        assert_int_equal(has_scale, strcmp(name, "gemma4") == 0);
        for (uint32_t row = 0; row < ROWS; row++) {
            int32_t is[MOST_CHOSEN];
            float w[MOST_CHOSEN];
            route(&routers[i].attrs, experts, logits + row * experts, has_bias ? bias : NULL,
                  has_scale ? scale : NULL, is, w);
            assert_memory_equal(is, ids + row * chosen, chosen * sizeof *is);
            for (uint32_t k = 0; k < chosen; k++)
                most = fmax(most, fabs((double)w[k] - (double)weights[row * chosen + k]));
        }
        print_message("%-17s %u of %u: weights within %.0e\n", name, chosen, experts, most);
        if (!(most <= 1e-6 * fmax(1, (double)routers[i].attrs.scale)))
            fail_msg("%s: weights are off by %g", name, most);
    }
    rn_checkpoint_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_router_chooses_as_transformers_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
