// onnx_bytes.h — the bytes of an ONNX file without those of its large initializers.
//
// A model is one message, with the weights in the middle of it. Of the file's address range only
// the pages that hold something else are read and become memory; the others stay empty, so every
// offset is the file's own and the parser need not know. (A mapping of the file would not do:
// touching one byte may make megabytes around it resident.)
#ifndef RN_IO_ONNX_BYTES_H
#define RN_IO_ONNX_BYTES_H

#include <ration/text.h>

typedef struct rn_onnx_bytes {
    rn_str bytes;   // as long as the file; bytes of initializers beyond RN_ONNX_LOADED are 0
    uint64_t units; // on the ledger, for the pages that were read
} rn_onnx_bytes;

// Initializers up to this size are there.
#define RN_ONNX_LOADED 4096

// RN_CORRUPT, with the offset, where the file is cut short. To be freed also after a failure.
RN_MUST_USE rn_status rn_onnx_bytes_read(int fd, const char *path, uint64_t file_bytes,
                                         rn_onnx_bytes *out);
void rn_onnx_bytes_free(rn_onnx_bytes *bytes);

#endif
