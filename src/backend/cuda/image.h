// image.h — the kernels as they lie in the library: fatbins, one a file of kernels/.
#ifndef RN_BACKEND_CUDA_IMAGE_H
#define RN_BACKEND_CUDA_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct rn_cuda_image {
    const char *name; // of its source: "attend"
    const void *data; // what cuModuleLoadData takes; it knows its length
} rn_cuda_image;

enum { RN_CUDA_IMAGES_MOST = 48 };

typedef struct rn_cuda_images {
    const rn_cuda_image *items; // (count)
    size_t count;               // 0: built without nvcc
    bool lacks_90a;             // built without code for sm_90a
} rn_cuda_images;

rn_cuda_images rn_cuda_images_get(void);
// For tests: others in their place from now on; NULL: the library's own again.
void rn_cuda_images_replace(const rn_cuda_images *images);

#endif
