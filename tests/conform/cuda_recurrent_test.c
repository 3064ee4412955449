// labels: gpu
// cuda_recurrent_test.c — small models whose layers keep states on the first GPU: the CPU's logits,
// nearly; the same bits one by one and in chunks.
#include "support.h"

#include "gpu.h"

#include "text_run.h"

#include <math.h>

enum { TOKENS = 40, VOCAB = 128 };

static test_gpu gpu;

static int open_gpu(void **state) {
    (void)state;
    return test_gpu_open(&gpu, 0);
}

static int close_gpu(void **state) {
    (void)state;
    return test_gpu_close(&gpu);
}

static void compute(rn_device *device, const char *path, uint32_t rows, float *out) {
    rn_text_options text = {.context = 64, .page_tokens = 8, .rows = rows};
    text_run *run = text_run_open_on(device, path, NULL, &text, 0);
    int32_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (i * 37 + 5) % VOCAB;
    text_run_logits(run, tokens, TOKENS, out);
    text_run_close(run);
}

// Products round to 16 bits there: 1 % of all logits together.
static void states_are_as_on_the_cpu(void **state) {
    (void)state;
    static const char *const models[] = {"lfm2", "qwen35", "qwen35_seeing"};
    static float must[TOKENS * VOCAB], is[TOKENS * VOCAB], again[TOKENS * VOCAB];
    test_gpu_want(&gpu);
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        char path[64];
        double apart = 0, size = 0;
        snprintf(path, sizeof path, "tests/golden/text/%s", models[m]);
        compute(NULL, path, 16, must);
        compute(gpu.device, path, 16, is);
        for (int i = 0; i < TOKENS * VOCAB; i++) {
            apart += ((double)is[i] - (double)must[i]) * ((double)is[i] - (double)must[i]);
            size += (double)must[i] * (double)must[i];
        }
        print_message("%s: off by %.2g of all\n", models[m], sqrt(apart / size));
        assert_true(apart <= 1e-4 * size);
        for (uint32_t rows = 1; rows <= 7; rows += 6) {
            compute(gpu.device, path, rows, again);
            assert_memory_equal(is, again, sizeof is);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(states_are_as_on_the_cpu)};
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
