// jpeg.h — JPEG files, by libjpeg-turbo's TurboJPEG interface, which is found at run time.
#ifndef RN_IO_JPEG_H
#define RN_IO_JPEG_H

#include <ration/image.h>

// By the first bytes.
bool rn_jpeg_is(const void *data, uint64_t bytes);
// From the frame header; nothing is loaded. RN_CORRUPT.
RN_MUST_USE rn_status rn_jpeg_size(const void *data, uint64_t bytes, uint32_t *out_width,
                                   uint32_t *out_height);
// As RGB. RN_UNSUPPORTED: the library is not here (the hint names it).
RN_MUST_USE rn_status rn_jpeg_decode(const void *data, uint64_t bytes, rn_image *out);

#endif
