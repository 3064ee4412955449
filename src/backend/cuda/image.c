// image.c — the fatbins become bytes of the library: the assembler includes them where the build
// put them. cuda_images.inc is of CMake's making: a row RN_CUDA_IMAGE(name, path) each.
#include "backend/cuda/image.h"

#ifdef RATION_CUDA

#define RN_CUDA_IMAGE(image, path)                                                                 \
    __asm__(".pushsection .rodata\n"                                                               \
            ".balign 64\n"                                                                         \
            "rn_cuda_image_" #image ":\n"                                                          \
            ".incbin \"" path "\"\n"                                                               \
            ".popsection\n");                                                                      \
    extern const char rn_cuda_image_##image[];
#include <cuda_images.inc>
#undef RN_CUDA_IMAGE

static const rn_cuda_image items[] = {
#define RN_CUDA_IMAGE(image, path) {#image, rn_cuda_image_##image},
#include <cuda_images.inc>
#undef RN_CUDA_IMAGE
};
_Static_assert(sizeof items / sizeof *items <= RN_CUDA_IMAGES_MOST, "a module for each");
#ifdef RATION_CUDA_WITHOUT_90A
#define LACKS_90A true
#else
#define LACKS_90A false
#endif
static const rn_cuda_images own = {items, sizeof items / sizeof *items, LACKS_90A};

#else

static const rn_cuda_images own;

#endif

static const rn_cuda_images *current = &own;

rn_cuda_images rn_cuda_images_get(void) {
    return *current;
}

void rn_cuda_images_replace(const rn_cuda_images *images) {
    current = images ? images : &own;
}
