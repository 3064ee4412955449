// load_tensor.c — introduces opening a checkpoint, finding a tensor and loading it as f32 under a
// budget.
//
//     load_tensor MODEL TENSOR
#include <ration/ration.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static rn_status show(const rn_checkpoint *model, const char *name) {
    const rn_tensor_info *tensor = rn_checkpoint_find(model, name);
    if (!tensor) return rn_fail(RN_NOT_FOUND, "no tensor '%s'", name);
    size_t bytes = (size_t)tensor->elements * sizeof(float);
    rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS, NULL};
    RN_TRY(rn_budget_charge(account, NULL, bytes)); // our own memory, on the same ledger
    float *values = malloc(bytes ? bytes : 1);
    rn_status s = values ? rn_checkpoint_load(model, tensor, RN_DTYPE_F32, values, bytes)
                         : rn_fail(RN_NO_MEMORY, "no memory");
    double sum = 0, square = 0;
    for (uint64_t i = 0; s == RN_OK && i < tensor->elements; i++) {
        sum += (double)values[i];
        square += (double)values[i] * (double)values[i];
    }
    if (s == RN_OK && tensor->elements)
        printf("%s: %llu values, mean %.6g, root mean square %.6g\n", name,
               (unsigned long long)tensor->elements, sum / (double)tensor->elements,
               sqrt(square / (double)tensor->elements));
    free(values);
    rn_ledger_release(account, NULL, bytes);
    return s;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: load_tensor MODEL TENSOR\n");
        return 2;
    }
    rn_checkpoint *model = NULL;
    rn_status s = rn_budget_set(RN_DEVICE_HOST, 0, (uint64_t)1 << 30);
    if (s == RN_OK) s = rn_checkpoint_open(argv[1], &model);
    if (s == RN_OK) s = show(model, argv[2]);
    if (s == RN_OK) s = rn_ledger_print(rn_sink_file(stdout));
    rn_checkpoint_close(model);
    if (s == RN_OK) return 0;
    fprintf(stderr, "load_tensor: %s\n  %s\n", rn_last_error()->message, rn_last_error()->hint);
    return 1;
}
