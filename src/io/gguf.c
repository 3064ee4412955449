// gguf.c — reading the header of a GGUF file, version 2 or 3.
//
//     | "GGUF" | u32 version | i64 tensors | i64 pairs | pairs | tensor infos | padding | data |
//
//     string  u64 length, bytes
//     pair    string key, u32 type, value
//     array   u32 element type, u64 count, elements (no arrays of arrays)
//     tensor  string name, u32 rank, i64 dims[rank] (innermost first), u32 ggml type, u64 offset
//
// The header's length is not written anywhere, so it is read through a window, and every count is
// held against the bytes that are left before anything is allocated for it.
#include "io/checkpoint.h"
#include "io/gguf.h"

#include "base/checked.h"
#include "base/file.h"
#include "memory/account.h"

#include <stdio.h>

enum {
    WINDOW_BYTES = 64 << 10,
    MAX_NAME_BYTES = 63,
    MAX_LONG_NAME_BYTES = 127,
    MAX_RANK = 4,
    DEFAULT_ALIGNMENT = 32
};
enum { MIN_PAIR_BYTES = 8 + 4 + 1, MIN_TENSOR_BYTES = 8 + 4 + 4 + 8 };

typedef struct gguf_reader {
    rn_checkpoint *checkpoint;
    rn_opened_file *file;
    uint32_t index;
    uint64_t at;         // offset in the file of the next byte
    uint64_t window_at;  // offset of window[0]
    size_t window_bytes; // filled
    char *window;        // (WINDOW_BYTES)
    int64_t tensor_count, pair_count;
    rn_map keys;
} gguf_reader;

static const uint8_t type_bytes[RN_GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

size_t rn_gguf_type_bytes(uint32_t type) {
    return type < RN_GGUF_TYPES ? type_bytes[type] : 0;
}

// ---- bytes ----------------------------------------------------------------------------

static uint64_t left(const gguf_reader *reader) {
    return reader->file->info.bytes - reader->at;
}

static rn_status cut_short(const gguf_reader *reader, const char *what) {
    rn_status s = rn_fail(RN_CORRUPT, "the file ends inside %s", what);
    return rn_error_locate(s, reader->file->info.path, reader->at);
}

static rn_status take(gguf_reader *reader, void *target, uint64_t bytes, const char *what) {
    char *to = target;
    if (bytes > left(reader)) return cut_short(reader, what);
    while (bytes > 0) {
        if (reader->at - reader->window_at >= reader->window_bytes) {
            reader->window_at = reader->at;
            reader->window_bytes = (size_t)rn_min_u64(WINDOW_BYTES, left(reader));
            RN_TRY(rn_file_read_at(reader->file->fd, reader->file->info.path, reader->at,
                                   reader->window, reader->window_bytes));
        }
        size_t from = (size_t)(reader->at - reader->window_at);
        size_t now = (size_t)rn_min_u64(bytes, reader->window_bytes - from);
        memcpy(to, reader->window + from, now);
        to += now;
        reader->at += now;
        bytes -= now;
    }
    return RN_OK;
}

static rn_status take_u32(gguf_reader *reader, uint32_t *out, const char *what) {
    return take(reader, out, sizeof *out, what);
}

static rn_status take_u64(gguf_reader *reader, uint64_t *out, const char *what) {
    return take(reader, out, sizeof *out, what);
}

// `bytes` bytes into the arena; held against the file's rest before the memory is taken.
static rn_status take_text(gguf_reader *reader, uint64_t bytes, rn_str *out, const char *what) {
    void *copy;
    if (bytes > left(reader)) return cut_short(reader, what);
    RN_TRY(rn_arena_alloc(&reader->checkpoint->arena, (size_t)bytes + 1, &copy));
    *out = (rn_str){copy, (size_t)bytes};
    return take(reader, copy, bytes, what);
}

static rn_status take_string(gguf_reader *reader, rn_str *out, const char *what) {
    uint64_t bytes = 0;
    RN_TRY(take_u64(reader, &bytes, what));
    return take_text(reader, bytes, out, what);
}

// ---- values ---------------------------------------------------------------------------

void rn_gguf_decode(uint32_t type, const char *raw, rn_metadata *out) {
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        float f32;
        uint64_t u64;
        int64_t i64;
        double f64;
    } bits;
    memcpy(&bits, raw, rn_gguf_type_bytes(type));
    out->gguf_type = type;
    switch (type) {
    case RN_GGUF_U8:
        out->kind = RN_METADATA_U64, out->value.u64 = bits.u8;
        break;
    case RN_GGUF_I8:
        out->kind = RN_METADATA_I64, out->value.i64 = bits.i8;
        break;
    case RN_GGUF_U16:
        out->kind = RN_METADATA_U64, out->value.u64 = bits.u16;
        break;
    case RN_GGUF_I16:
        out->kind = RN_METADATA_I64, out->value.i64 = bits.i16;
        break;
    case RN_GGUF_U32:
        out->kind = RN_METADATA_U64, out->value.u64 = bits.u32;
        break;
    case RN_GGUF_I32:
        out->kind = RN_METADATA_I64, out->value.i64 = bits.i32;
        break;
    case RN_GGUF_F32:
        out->kind = RN_METADATA_F64, out->value.f64 = (double)bits.f32;
        break;
    case RN_GGUF_BOOL:
        out->kind = RN_METADATA_BOOL, out->value.boolean = bits.u8 != 0;
        break;
    case RN_GGUF_U64:
        out->kind = RN_METADATA_U64, out->value.u64 = bits.u64;
        break;
    case RN_GGUF_I64:
        out->kind = RN_METADATA_I64, out->value.i64 = bits.i64;
        break;
    default:
        out->kind = RN_METADATA_F64, out->value.f64 = bits.f64;
        break;
    }
}

static rn_status bad_type(const gguf_reader *reader, rn_str key, uint32_t type) {
    rn_status s = rn_fail(RN_CORRUPT, "key '%.*s' has value type %u, which does not exist",
                          RN_STR_ARG(key), type);
    return rn_error_locate(s, reader->file->info.path, reader->at);
}

// Walks over the strings to learn where they end; their bytes are copied afterwards in one piece.
static rn_status measure_strings(gguf_reader *reader, uint64_t count, uint64_t *out_bytes) {
    uint64_t start = reader->at;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bytes;
        RN_TRY(take_u64(reader, &bytes, "an array of strings"));
        if (bytes > left(reader)) return cut_short(reader, "an array of strings");
        reader->at += bytes;
    }
    *out_bytes = reader->at - start;
    reader->at = start;
    reader->window_bytes = 0; // the window may lie behind us
    return RN_OK;
}

static rn_status read_array(gguf_reader *reader, rn_metadata *pair) {
    uint64_t bytes = 0;
    RN_TRY(take_u32(reader, &pair->gguf_type, "an array"));
    RN_TRY(take_u64(reader, &pair->count, "an array"));
    pair->kind = RN_METADATA_ARRAY;
    if (pair->gguf_type == RN_GGUF_ARRAY || pair->gguf_type >= RN_GGUF_TYPES)
        return bad_type(reader, pair->key, pair->gguf_type);
    if (pair->gguf_type == RN_GGUF_STRING) {
        if (pair->count > left(reader) / 8) return cut_short(reader, "an array of strings");
        RN_TRY(measure_strings(reader, pair->count, &bytes));
    } else if (!rn_mul_u64(pair->count, rn_gguf_type_bytes(pair->gguf_type), &bytes)) {
        return cut_short(reader, "an array");
    }
    return take_text(reader, bytes, &pair->raw, "an array");
}

static rn_status read_value(gguf_reader *reader, uint32_t type, rn_metadata *pair) {
    char raw[8];
    if (type >= RN_GGUF_TYPES) return bad_type(reader, pair->key, type);
    if (type == RN_GGUF_ARRAY) return read_array(reader, pair);
    if (type == RN_GGUF_STRING) {
        pair->kind = RN_METADATA_TEXT;
        pair->gguf_type = type;
        return take_string(reader, &pair->text, "a string");
    }
    RN_TRY(take(reader, raw, rn_gguf_type_bytes(type), "a value"));
    rn_gguf_decode(type, raw, pair);
    return RN_OK;
}

static rn_status read_alignment(gguf_reader *reader, const rn_metadata *pair) {
    if (!rn_str_equal(pair->key, RN_STR("general.alignment"))) return RN_OK;
    uint64_t value = pair->value.u64;
    if (pair->kind != RN_METADATA_U64 || pair->gguf_type != RN_GGUF_U32)
        return rn_fail(RN_CORRUPT, "general.alignment is not a u32");
    if (value == 0 || (value & (value - 1)))
        return rn_fail(RN_CORRUPT, "general.alignment is %llu, not a power of two",
                       (unsigned long long)value);
    reader->checkpoint->alignment = value;
    return RN_OK;
}

static rn_status read_pair(gguf_reader *reader) {
    rn_metadata pair = {.count = 0};
    uint32_t type;
    bool existing;
    RN_TRY(take_string(reader, &pair.key, "a key"));
    if (pair.key.bytes == 0) return rn_fail(RN_CORRUPT, "a metadata key is empty"); // ggml aborts
    RN_TRY(take_u32(reader, &type, "a value's type"));
    RN_TRY(rn_map_add(&reader->keys, pair.key, 0, &existing));
    if (existing) return rn_fail(RN_CORRUPT, "key '%.*s' is there twice", RN_STR_ARG(pair.key));
    RN_TRY(read_value(reader, type, &pair));
    RN_TRY(read_alignment(reader, &pair));
    return rn_checkpoint_add_metadata(reader->checkpoint, &pair);
}

// ---- tensors --------------------------------------------------------------------------

static rn_status read_dims(gguf_reader *reader, rn_tensor_info *tensor, uint64_t *dims) {
    RN_TRY(take_u32(reader, &tensor->rank, "a tensor's shape"));
    if (tensor->rank > MAX_RANK)
        return rn_fail(RN_CORRUPT, "tensor '%.*s' has %u dimensions, at most %d are allowed",
                       RN_STR_ARG(tensor->name), tensor->rank, MAX_RANK);
    for (uint32_t i = 0; i < tensor->rank; i++) {
        uint64_t dim;
        RN_TRY(take_u64(reader, &dim, "a tensor's shape"));
        if (dim > INT64_MAX)
            return rn_fail(RN_CORRUPT, "tensor '%.*s' has a negative dimension",
                           RN_STR_ARG(tensor->name));
        dims[tensor->rank - 1 - i] = dim;
    }
    return RN_OK;
}

// Types that ggml had once, and what to do about their files.
static const char *removed_type(uint32_t type) {
    static const struct {
        uint32_t type;
        const char *name;
    } removed[] = {{4, "q4_2"},      {5, "q4_3"},        {31, "q4_0_4_4"},   {32, "q4_0_4_8"},
                   {33, "q4_0_8_8"}, {36, "iq4_nl_4_4"}, {37, "iq4_nl_4_8"}, {38, "iq4_nl_8_8"}};
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++)
        if (removed[i].type == type) return removed[i].name;
    return NULL;
}

// ggml's names have 63 bytes at most; stable-diffusion.cpp is built for 127, and writes files
// without any metadata.
static uint64_t most_name_bytes(const gguf_reader *reader) {
    return reader->pair_count == 0 ? MAX_LONG_NAME_BYTES : MAX_NAME_BYTES;
}

// The bytes from a tensor's offset to the next one's; false where that cannot be read.
static bool measure_unknown(gguf_reader *reader, uint64_t *out_bytes) {
    uint64_t dims[MAX_RANK], name_bytes = 0, offset, next;
    rn_tensor_info after = {0};
    uint32_t type;
    bool read = take_u64(reader, &offset, "a tensor's offset") == RN_OK &&
                take_u64(reader, &name_bytes, "a tensor's name") == RN_OK &&
                name_bytes <= most_name_bytes(reader) &&
                take_text(reader, name_bytes, &after.name, "a tensor's name") == RN_OK &&
                read_dims(reader, &after, dims) == RN_OK &&
                take_u32(reader, &type, "a tensor's type") == RN_OK &&
                take_u64(reader, &next, "a tensor's offset") == RN_OK && next > offset;
    *out_bytes = read ? next - offset : 0;
    return read;
}

static rn_status unknown_type(gguf_reader *reader, const rn_tensor_info *tensor, uint32_t type) {
    const char *name = removed_type(type);
    uint64_t bytes = 0, at = reader->at;
    char size[40] = "";
    if (measure_unknown(reader, &bytes))
        snprintf(size, sizeof size, " (%llu bytes)", (unsigned long long)bytes);
    rn_status s = rn_fail(RN_CORRUPT, "tensor '%.*s' has type %u%s%s%s, which ration does not know",
                          RN_STR_ARG(tensor->name), type, name ? ", " : "", name ? name : "", size);
    return rn_hint(rn_error_locate(s, reader->file->info.path, at),
                   name ? "ggml has dropped this kind: take a file of a newer conversion"
                        : "the file is damaged, or its kind is newer than this ration");
}

static rn_status read_type(gguf_reader *reader, rn_tensor_info *tensor) {
    uint32_t type;
    RN_TRY(take_u32(reader, &type, "a tensor's type"));
    tensor->dtype = rn_dtype_from_ggml(type);
    return tensor->dtype != RN_DTYPE_NONE ? RN_OK : unknown_type(reader, tensor, type);
}

// Offsets are relative to the data section and must be the running, padded sum of sizes.
static rn_status read_tensor(gguf_reader *reader, uint64_t *expected_offset) {
    rn_checkpoint *checkpoint = reader->checkpoint;
    uint64_t dims[MAX_RANK], name_bytes = 0;
    rn_tensor_info tensor = {.file = reader->index, .dims = dims};
    RN_TRY(take_u64(reader, &name_bytes, "a tensor's name"));
    if (name_bytes > most_name_bytes(reader))
        return rn_error_locate(
            rn_fail(RN_CORRUPT, "a tensor's name has %llu bytes, at most %llu are allowed",
                    (unsigned long long)name_bytes, (unsigned long long)most_name_bytes(reader)),
            reader->file->info.path, reader->at);
    RN_TRY(take_text(reader, name_bytes, &tensor.name, "a tensor's name"));
    RN_TRY(read_dims(reader, &tensor, dims));
    RN_TRY(read_type(reader, &tensor));
    RN_TRY(take_u64(reader, &tensor.offset, "a tensor's offset"));
    if (tensor.offset != *expected_offset)
        return rn_fail(RN_CORRUPT, "tensor '%.*s' is at offset %llu, %llu is expected",
                       RN_STR_ARG(tensor.name), (unsigned long long)tensor.offset,
                       (unsigned long long)*expected_offset);
    RN_TRY(rn_checkpoint_add_tensor(checkpoint, tensor));
    uint64_t padded;
    if (!rn_align_u64(checkpoint->tensors[checkpoint->tensor_count - 1].bytes,
                      checkpoint->alignment, &padded) ||
        !rn_add_u64(*expected_offset, padded, expected_offset))
        return rn_fail(RN_CORRUPT, "the tensors' sizes overflow");
    return RN_OK;
}

static rn_status place_tensors(gguf_reader *reader, uint64_t data_bytes) {
    rn_checkpoint *checkpoint = reader->checkpoint;
    uint64_t data, end;
    if (!rn_align_u64(reader->at, checkpoint->alignment, &data) ||
        !rn_add_u64(data, data_bytes, &end))
        return rn_fail(RN_CORRUPT, "the tensors' sizes overflow");
    if (data_bytes > 0 && end > reader->file->info.bytes) {
        rn_status s =
            rn_fail(RN_CORRUPT, "the tensors end at byte %llu, the file at %llu",
                    (unsigned long long)end, (unsigned long long)reader->file->info.bytes);
        return rn_hint(rn_error_locate(s, reader->file->info.path, reader->at),
                       "was it downloaded completely?");
    }
    reader->file->info.data_offset = data;
    for (size_t i = 0; i < checkpoint->tensor_count; i++)
        checkpoint->tensors[i].offset += data;
    return RN_OK;
}

// ---- the file -------------------------------------------------------------------------

static rn_status read_prologue(gguf_reader *reader) {
    char magic[4];
    uint32_t version;
    RN_TRY(take(reader, magic, sizeof magic, "the magic"));
    if (memcmp(magic, "GGUF", 4) != 0)
        return rn_error_locate(rn_fail(RN_CORRUPT, "it does not begin with \"GGUF\""),
                               reader->file->info.path, 0);
    RN_TRY(take_u32(reader, &version, "the version"));
    if (version != 0 && (version & 0xFFFF) == 0)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "the file is big-endian"),
                       "use the little-endian form of this model");
    if (version != 2 && version != 3)
        return rn_fail(RN_UNSUPPORTED, "GGUF version %u; ration reads 2 and 3", version);
    snprintf(reader->checkpoint->format, sizeof reader->checkpoint->format, "gguf v%u", version);
    RN_TRY(take(reader, &reader->tensor_count, 8, "the header"));
    RN_TRY(take(reader, &reader->pair_count, 8, "the header"));
    if (reader->tensor_count < 0 ||
        (uint64_t)reader->tensor_count > left(reader) / MIN_TENSOR_BYTES)
        return rn_fail(RN_CORRUPT, "%lld tensors cannot be in this file",
                       (long long)reader->tensor_count);
    if (reader->pair_count < 0 || (uint64_t)reader->pair_count > left(reader) / MIN_PAIR_BYTES)
        return rn_fail(RN_CORRUPT, "%lld metadata pairs cannot be in this file",
                       (long long)reader->pair_count);
    return RN_OK;
}

static rn_status read_all(gguf_reader *reader) {
    uint64_t data_bytes = 0;
    RN_TRY(read_prologue(reader));
    for (int64_t i = 0; i < reader->pair_count; i++)
        RN_TRY(read_pair(reader));
    for (int64_t i = 0; i < reader->tensor_count; i++)
        RN_TRY(read_tensor(reader, &data_bytes));
    return place_tensors(reader, data_bytes);
}

rn_status rn_gguf_read(rn_checkpoint *checkpoint, uint32_t index) {
    void *window;
    gguf_reader reader = {
        .checkpoint = checkpoint, .file = &checkpoint->files[index], .index = index};
    checkpoint->container = RN_CONTAINER_GGUF;
    checkpoint->alignment = DEFAULT_ALIGNMENT;
    RN_TRY(rn_alloc(RN_HOST_IO, WINDOW_BYTES, &window));
    reader.window = window;
    rn_map_init(&reader.keys, RN_HOST_IO);
    rn_status s = read_all(&reader);
    rn_map_free(&reader.keys);
    rn_free(RN_HOST_IO, window, WINDOW_BYTES);
    if (s == RN_OK || rn_last_error()->path[0]) return s;
    return rn_error_locate(s, reader.file->info.path, reader.at);
}

bool rn_metadata_next(const rn_metadata *array, uint64_t *cursor, rn_metadata *out_element) {
    *out_element = (rn_metadata){.gguf_type = array->gguf_type};
    if (array->kind != RN_METADATA_ARRAY || *cursor >= array->raw.bytes) return false;
    const char *at = array->raw.data + *cursor;
    if (array->gguf_type != RN_GGUF_STRING) {
        rn_gguf_decode(array->gguf_type, at, out_element);
        *cursor += rn_gguf_type_bytes(array->gguf_type);
        return true;
    }
    uint64_t bytes; // within `raw`: checked when the array was read
    memcpy(&bytes, at, sizeof bytes);
    out_element->kind = RN_METADATA_TEXT;
    out_element->text = (rn_str){at + sizeof bytes, (size_t)bytes};
    *cursor += sizeof bytes + bytes;
    return true;
}
