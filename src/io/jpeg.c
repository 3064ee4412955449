// jpeg.c — see jpeg.h. Declarations of TurboJPEG's functions are ours: its interface has had them
// since libjpeg-turbo 1.4.
#include "io/jpeg.h"

#include <dlfcn.h>
#include <pthread.h>

enum { TURBO_RGB = 0, MOST_SIDE = 1 << 16 };

typedef struct turbo {
    void *(*create)(void);
    int (*header)(void *handle, const unsigned char *data, unsigned long bytes, int *width,
                  int *height, int *subsampling, int *space);
    int (*decode)(void *handle, const unsigned char *data, unsigned long bytes, unsigned char *out,
                  int width, int pitch, int height, int format, int flags);
    int (*destroy)(void *handle);
    char *(*message)(void);
} turbo;

static turbo library;
static bool is_here;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_library(void) {
    void *handle = dlopen("libturbojpeg.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!handle) return;
    *(void **)&library.create = dlsym(handle, "tjInitDecompress");
    *(void **)&library.header = dlsym(handle, "tjDecompressHeader3");
    *(void **)&library.decode = dlsym(handle, "tjDecompress2");
    *(void **)&library.destroy = dlsym(handle, "tjDestroy");
    *(void **)&library.message = dlsym(handle, "tjGetErrorStr");
    is_here =
        library.create && library.header && library.decode && library.destroy && library.message;
}

bool rn_jpeg_is(const void *data, uint64_t bytes) {
    const uint8_t *d = data;
    return bytes >= 3 && d[0] == 0xFF && d[1] == 0xD8 && d[2] == 0xFF;
}

static rn_status refuse(const char *what, uint64_t at) {
    return rn_error_locate(rn_fail(RN_CORRUPT, "%s", what), "", at);
}

rn_status rn_jpeg_size(const void *data, uint64_t bytes, uint32_t *out_width,
                       uint32_t *out_height) {
    const uint8_t *d = data;
    *out_width = *out_height = 0;
    if (!rn_jpeg_is(data, bytes)) return refuse("no JPEG file", 0);
    for (uint64_t at = 2; at + 9 <= bytes;) {
        uint8_t marker = d[at + 1];
        if (d[at] != 0xFF) return refuse("a JPEG marker is missing", at);
        if (marker == 0xFF) { // filling
            at++;
            continue;
        }
        uint64_t length = (uint64_t)d[at + 2] << 8 | d[at + 3];
        // A frame begins: SOF0 to SOF15 but for DHT, JPG and DAC.
        if (marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 &&
            marker != 0xCC) {
            *out_height = (uint32_t)d[at + 5] << 8 | d[at + 6];
            *out_width = (uint32_t)d[at + 7] << 8 | d[at + 8];
            if (*out_width && *out_height) return RN_OK;
            return refuse("a JPEG frame without a size", at);
        }
        if (length < 2) return refuse("a JPEG segment without a length", at);
        at += 2 + length;
    }
    return refuse("a JPEG file without a frame", bytes);
}

static rn_status decode_with(void *handle, const void *data, uint64_t bytes, rn_image *out) {
    int width = 0, height = 0, subsampling, space;
    if (library.header(handle, data, bytes, &width, &height, &subsampling, &space) != 0 ||
        width < 1 || height < 1 || width > MOST_SIDE || height > MOST_SIDE)
        return rn_fail(RN_CORRUPT, "a JPEG file that cannot be read: %.200s", library.message());
    RN_TRY(rn_image_create((uint32_t)width, (uint32_t)height, 3, out));
    if (library.decode(handle, data, bytes, out->pixels, width, 3 * width, height, TURBO_RGB, 0) ==
        0)
        return RN_OK;
    rn_image_free(out);
    return rn_fail(RN_CORRUPT, "a JPEG file that cannot be read: %.200s", library.message());
}

rn_status rn_jpeg_decode(const void *data, uint64_t bytes, rn_image *out) {
    *out = (rn_image){0};
    pthread_once(&once, open_library);
    if (!is_here)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "JPEG needs libturbojpeg.so.0, which is not here"),
                       "install libjpeg-turbo's TurboJPEG library (Debian: libturbojpeg0), or "
                       "convert the pictures to PNG");
    void *handle = library.create();
    if (!handle) return rn_fail(RN_NO_MEMORY, "libturbojpeg has no memory");
    rn_status s = decode_with(handle, data, bytes, out);
    library.destroy(handle);
    return s;
}
