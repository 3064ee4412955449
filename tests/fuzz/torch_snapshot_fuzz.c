// torch_snapshot_fuzz.c — any bytes as a PyTorch memory snapshot.
#include "profile_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return fuzz_profile(rn_torch_snapshot_read, data, size);
}
