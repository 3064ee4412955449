// png_fuzz.c — any bytes as a PNG file: refused with a reason, or pixels that are all there. Bytes
// are also taken as a compressed stream alone, since checksums keep most changes from it.
#include "io/inflate.h"
#include "io/png.h"

#include "fuzz_file.h"

#include <stdlib.h>
#include <string.h>

static void inflate_alone(const uint8_t *data, size_t size) {
    static uint8_t out[1 << 16];
    size_t want = size ? (size_t)data[0] << 8 : 0;
    rn_status s = rn_inflate(data, size, out, want);
    require(s == RN_OK || s == RN_CORRUPT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rn_image image;
    uint8_t *exact = malloc(size + !size);
    if (size) memcpy(exact, data, size);
    inflate_alone(exact, size);
    rn_status s = rn_png_decode(exact, size, &image);
    if (s == RN_OK) {
        uint32_t sum = 0;
        for (uint64_t i = 0; i < (uint64_t)image.width * image.height * image.channels; i++)
            sum += image.pixels[i];
        require(sum < UINT32_MAX);
        rn_image_free(&image);
    } else {
        require(rn_last_error()->message[0] != 0);
    }
    free(exact);
    return 0;
}
