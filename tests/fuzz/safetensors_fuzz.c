// safetensors_fuzz.c — the input is the header's JSON, then a byte 0xFF, then the data; or, where
// it begins with 0xFE, a whole file as it stands. Lengths written by the harness let mutations
// reach the JSON.
#include "model_fuzz.h"

enum { SPLIT = 0xFF, WHOLE = 0xFE };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t file[1 << 20];
    if (size > sizeof file - 8) return 0;
    if (size > 0 && data[0] == WHOLE) return fuzz_model(data + 1, size - 1);
    const uint8_t *split = size ? memchr(data, SPLIT, size) : NULL;
    uint64_t header = split ? (uint64_t)(split - data) : size;
    size_t rest = split ? size - (size_t)header - 1 : 0;
    memcpy(file, &header, 8);
    if (header) memcpy(file + 8, data, header);
    if (rest) memcpy(file + 8 + header, split + 1, rest);
    return fuzz_model(file, 8 + header + rest);
}
