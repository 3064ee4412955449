// png.h — PNG files in memory (ISO/IEC 15948): the pictures of <ration/image.h>.
#ifndef RN_IO_PNG_H
#define RN_IO_PNG_H

#include <ration/image.h>

// `data` (bytes) is used as scratch memory. RN_CORRUPT has the byte's offset; RN_UNSUPPORTED names
// a chunk that must be understood and is not.
RN_MUST_USE rn_status rn_png_decode(uint8_t *data, size_t bytes, rn_image *out);

// The bytes of a file with these pixels and texts, through `sink`, not compressed.
RN_MUST_USE rn_status rn_png_encode(const rn_image *image, const rn_image_text *texts,
                                    size_t text_count, rn_sink sink);

#endif
