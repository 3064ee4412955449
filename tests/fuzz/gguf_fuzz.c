// gguf_fuzz.c — any bytes as a GGUF file.
#include "model_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t file[1 << 20];
    if (size > sizeof file - 4) return 0;
    memcpy(file, "GGUF", 4); // the rest is the fuzzer's
    if (size) memcpy(file + 4, data, size);
    return fuzz_model(file, size + 4);
}
