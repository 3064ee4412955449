// json_profile_fuzz.c — any text as a JSON memory profile.
#include "profile_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return fuzz_profile(rn_json_profile_read, data, size);
}
