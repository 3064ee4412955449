// gguf.h — the value types of GGUF's metadata, for its reader and its writer.
#ifndef RN_IO_GGUF_H
#define RN_IO_GGUF_H

#include <ration/checkpoint.h>

// Of tensors in files that are written: the usual one, and that of files with an expert a record.
#define RN_GGUF_WRITE_ALIGNMENT  32
#define RN_GGUF_PACKED_ALIGNMENT 4096

enum {
    RN_GGUF_U8,
    RN_GGUF_I8,
    RN_GGUF_U16,
    RN_GGUF_I16,
    RN_GGUF_U32,
    RN_GGUF_I32,
    RN_GGUF_F32,
    RN_GGUF_BOOL,
    RN_GGUF_STRING,
    RN_GGUF_ARRAY,
    RN_GGUF_U64,
    RN_GGUF_I64,
    RN_GGUF_F64,
    RN_GGUF_TYPES
};

// Bytes of a scalar of this type; 0 for strings, arrays and unknown types.
size_t rn_gguf_type_bytes(uint32_t type);
// Sets kind, type and value from a scalar's bytes.
void rn_gguf_decode(uint32_t type, const char *raw, rn_metadata *out);

#endif
