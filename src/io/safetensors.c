// safetensors.c — reading one file's header.
//
//     | u64 N (little-endian) | N bytes of JSON, spaces at the end | the tensors' bytes |
//
//     {"__metadata__": {"key": "text"},
//      "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
//
// The rules are those of the reference implementation: N at most 100,000,000; sorted
// by offset the tensors follow each other without gap or overlap and end where the file ends. Where
// the reference is lax we follow the format's text and refuse: unknown or repeated fields, and
// white space in front of the header. The text says that it must begin with '{' and that blanks may
// follow it; in a format without a magic number that byte is what a file is known by. The
// reference's writer makes no others.
#include "io/checkpoint.h"
#include "io/json_read.h"

#include "base/checked.h"
#include "base/file.h"
#include "memory/account.h"
#include "memory/sort.h"

#include <endian.h>
#include <stdio.h>

enum { MAX_HEADER_BYTES = 100000000 };

enum { FIELD_DTYPE = 1, FIELD_SHAPE = 2, FIELD_OFFSETS = 4, ALL_FIELDS = 7 };

typedef struct header_reader {
    rn_checkpoint *checkpoint;
    uint32_t file;
    rn_str prefix; // of names
    rn_json_reader json;
    uint64_t data_offset;
} header_reader;

// While the header is read, `offset` is the begin within the data section and `bytes` is checked
// against the end.
typedef struct entry {
    rn_tensor_info tensor;
    uint64_t dims[RN_MAX_FILE_RANK];
    uint64_t begin, end;
    unsigned seen; // FIELD_* bits
} entry;

static rn_status read_dtype(header_reader *reader, entry *e) {
    rn_json_item item;
    RN_TRY(rn_json_expect(&reader->json, RN_JSON_STRING, &item));
    e->tensor.dtype = rn_dtype_from_safetensors(item.text);
    if (e->tensor.dtype != RN_DTYPE_NONE) return RN_OK;
    return rn_fail(RN_CORRUPT, "tensor '%.*s': unknown dtype '%.*s'", RN_STR_ARG(e->tensor.name),
                   RN_STR_ARG(item.text));
}

static rn_status read_shape(header_reader *reader, entry *e) {
    rn_json_item item;
    RN_TRY(rn_json_expect(&reader->json, RN_JSON_ARRAY, NULL));
    while (true) {
        RN_TRY(rn_json_next(&reader->json, &item));
        if (item.kind == RN_JSON_ARRAY_END) return RN_OK;
        if (e->tensor.rank == RN_MAX_FILE_RANK)
            return rn_fail(RN_UNSUPPORTED, "tensor '%.*s' has more than %d dimensions",
                           RN_STR_ARG(e->tensor.name), RN_MAX_FILE_RANK);
        RN_TRY(rn_json_u64_of(&item, &e->dims[e->tensor.rank++]));
    }
}

static rn_status read_offsets(header_reader *reader, entry *e) {
    rn_json_item item;
    RN_TRY(rn_json_expect(&reader->json, RN_JSON_ARRAY, NULL));
    RN_TRY(rn_json_next(&reader->json, &item));
    RN_TRY(rn_json_u64_of(&item, &e->begin));
    RN_TRY(rn_json_next(&reader->json, &item));
    RN_TRY(rn_json_u64_of(&item, &e->end));
    return rn_json_expect(&reader->json, RN_JSON_ARRAY_END, NULL);
}

static rn_status read_field(header_reader *reader, rn_str key, entry *e) {
    unsigned field = rn_str_equal(key, RN_STR("dtype"))          ? FIELD_DTYPE
                     : rn_str_equal(key, RN_STR("shape"))        ? FIELD_SHAPE
                     : rn_str_equal(key, RN_STR("data_offsets")) ? FIELD_OFFSETS
                                                                 : 0;
    if (field == 0 || e->seen & field)
        return rn_fail(RN_CORRUPT, "tensor '%.*s': field '%.*s' is %s", RN_STR_ARG(e->tensor.name),
                       RN_STR_ARG(key), field ? "there twice" : "unknown");
    e->seen |= field;
    if (field == FIELD_DTYPE) return read_dtype(reader, e);
    return field == FIELD_SHAPE ? read_shape(reader, e) : read_offsets(reader, e);
}

static rn_status check_entry(const header_reader *reader, const entry *e,
                             const rn_tensor_info *tensor) {
    uint64_t data_bytes = reader->checkpoint->files[reader->file].info.bytes - reader->data_offset;
    if (e->end < e->begin || e->end > data_bytes)
        return rn_fail(RN_CORRUPT, "tensor '%.*s': bytes %llu to %llu of a data section of %llu",
                       RN_STR_ARG(tensor->name), (unsigned long long)e->begin,
                       (unsigned long long)e->end, (unsigned long long)data_bytes);
    if (e->end - e->begin != tensor->bytes)
        return rn_fail(RN_CORRUPT, "tensor '%.*s': its shape needs %llu bytes, it has %llu",
                       RN_STR_ARG(tensor->name), (unsigned long long)tensor->bytes,
                       (unsigned long long)(e->end - e->begin));
    return RN_OK;
}

static rn_status read_fields(header_reader *reader, entry *e) {
    rn_json_item item;
    RN_TRY(rn_json_expect(&reader->json, RN_JSON_OBJECT, NULL));
    while (true) {
        RN_TRY(rn_json_next(&reader->json, &item));
        if (item.kind == RN_JSON_OBJECT_END) break;
        RN_TRY(read_field(reader, item.text, e));
    }
    if (e->seen == ALL_FIELDS) return RN_OK;
    return rn_fail(RN_CORRUPT, "tensor '%.*s' lacks %s", RN_STR_ARG(e->tensor.name),
                   !(e->seen & FIELD_DTYPE)   ? "dtype"
                   : !(e->seen & FIELD_SHAPE) ? "shape"
                                              : "data_offsets");
}

static rn_status read_tensor(header_reader *reader, rn_str name) {
    void *copy;
    entry e = {.seen = 0};
    // The name may live in the JSON reader's scratch, which the next string overwrites.
    size_t before = reader->prefix.bytes, bytes = before + name.bytes;
    RN_TRY(rn_arena_alloc(&reader->checkpoint->arena, bytes + 1, &copy));
    if (before) memcpy(copy, reader->prefix.data, before);
    memcpy((char *)copy + before, name.data, name.bytes);
    ((char *)copy)[bytes] = '\0';
    e.tensor.name = (rn_str){copy, bytes};
    e.tensor.file = reader->file;
    RN_TRY(read_fields(reader, &e));
    if (!rn_add_u64(reader->data_offset, e.begin, &e.tensor.offset))
        return rn_fail(RN_CORRUPT, "tensor '%.*s': its offset overflows",
                       RN_STR_ARG(e.tensor.name));
    e.tensor.dims = e.dims;
    rn_checkpoint *checkpoint = reader->checkpoint;
    RN_TRY(rn_checkpoint_add_tensor(checkpoint, e.tensor));
    return check_entry(reader, &e, &checkpoint->tensors[checkpoint->tensor_count - 1]);
}

// Every shard of a model brings its own metadata, mostly the same: of a key, the first file's value
// stands. One file must not have it twice.
static rn_status add_metadata(header_reader *reader, const rn_metadata *metadata) {
    rn_map *keys = &reader->checkpoint->by_key;
    uint64_t file = reader->file;
    bool existing;
    RN_TRY(rn_map_add(keys, metadata->key, file, &existing));
    if (!existing) return rn_checkpoint_add_metadata(reader->checkpoint, metadata);
    if (!rn_map_find(keys, metadata->key, &file) || file != reader->file) return RN_OK;
    return rn_fail(RN_CORRUPT, "metadata '%.*s' is there twice", RN_STR_ARG(metadata->key));
}

static rn_status read_metadata(header_reader *reader) {
    rn_arena *arena = &reader->checkpoint->arena;
    rn_json_item item;
    RN_TRY(rn_json_next(&reader->json, &item));
    if (item.kind == RN_JSON_NULL) return RN_OK; // MLX writes it, the reference reads it
    if (item.kind != RN_JSON_OBJECT)
        return rn_fail(RN_CORRUPT, "__metadata__ is %s where an object is expected",
                       rn_json_kind_name(item.kind));
    while (true) {
        void *key, *text;
        RN_TRY(rn_json_next(&reader->json, &item));
        if (item.kind == RN_JSON_OBJECT_END) return RN_OK;
        rn_metadata metadata = {.kind = RN_METADATA_TEXT, .gguf_type = 8};
        RN_TRY(rn_arena_copy(arena, item.text.data, item.text.bytes, &key));
        metadata.key = (rn_str){key, item.text.bytes};
        RN_TRY(rn_json_expect(&reader->json, RN_JSON_STRING, &item));
        RN_TRY(rn_arena_copy(arena, item.text.data, item.text.bytes, &text));
        metadata.text = (rn_str){text, item.text.bytes};
        RN_TRY(add_metadata(reader, &metadata));
    }
}

static rn_status read_header(header_reader *reader) {
    rn_json_item item;
    bool seen_metadata = false;
    RN_TRY(rn_json_expect(&reader->json, RN_JSON_OBJECT, NULL));
    while (true) {
        RN_TRY(rn_json_next(&reader->json, &item));
        if (item.kind == RN_JSON_OBJECT_END) break;
        if (!rn_str_equal(item.text, RN_STR("__metadata__"))) {
            RN_TRY(read_tensor(reader, item.text));
            continue;
        }
        if (seen_metadata) return rn_fail(RN_CORRUPT, "__metadata__ is there twice");
        seen_metadata = true;
        RN_TRY(read_metadata(reader));
    }
    return rn_json_expect(&reader->json, RN_JSON_END, NULL);
}

// By place in the file; an empty tensor comes before the one whose offset it shares.
static int compare_place(const void *left, const void *right) {
    const rn_tensor_info *a = left, *b = right;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return 0;
}

static rn_status check_holes(const header_reader *reader, size_t first) {
    const rn_checkpoint *checkpoint = reader->checkpoint;
    uint64_t at = reader->data_offset;
    for (size_t i = first; i < checkpoint->tensor_count; i++) {
        const rn_tensor_info *tensor = &checkpoint->tensors[i];
        if (tensor->offset != at)
            return rn_fail(RN_CORRUPT, "tensor '%.*s' %s: it begins at byte %llu, %llu is expected",
                           RN_STR_ARG(tensor->name),
                           tensor->offset < at ? "overlaps another" : "leaves a hole",
                           (unsigned long long)tensor->offset, (unsigned long long)at);
        at += tensor->bytes;
    }
    uint64_t file_bytes = checkpoint->files[reader->file].info.bytes;
    if (at != file_bytes)
        return rn_fail(RN_CORRUPT, "the tensors end at byte %llu, the file at %llu",
                       (unsigned long long)at, (unsigned long long)file_bytes);
    return RN_OK;
}

// Sorting moves tensors, so the map from names is made anew.
static rn_status sort_tensors(rn_checkpoint *checkpoint, size_t first) {
    size_t count = checkpoint->tensor_count;
    bool sorted = true;
    for (size_t i = first; i + 1 < count && sorted; i++)
        sorted = compare_place(&checkpoint->tensors[i], &checkpoint->tensors[i + 1]) <= 0;
    if (sorted) return RN_OK;
    RN_TRY(rn_sort(checkpoint->tensors + first, count - first, sizeof *checkpoint->tensors,
                   compare_place));
    rn_map_free(&checkpoint->by_name);
    for (size_t i = 0; i < count; i++)
        RN_TRY(rn_map_add(&checkpoint->by_name, checkpoint->tensors[i].name, i, NULL));
    return RN_OK;
}

static rn_status parse_header(header_reader *reader, rn_str header) {
    size_t first = reader->checkpoint->tensor_count;
    if (header.bytes == 0 || header.data[0] != '{')
        return rn_hint(rn_fail(RN_CORRUPT, "the header does not begin with '{'"),
                       header.bytes && memchr(" \t\r\n", header.data[0], 4)
                           ? "the format allows blanks behind the header, not in front of it: load "
                             "the file with the safetensors library and save it again"
                           : "is it a safetensors file?");
    rn_json_reader_init(&reader->json, header, RN_HOST_IO);
    reader->json.base = sizeof(uint64_t);
    rn_status s = read_header(reader);
    rn_json_reader_free(&reader->json);
    if (s == RN_OK) s = sort_tensors(reader->checkpoint, first);
    if (s == RN_OK) s = check_holes(reader, first);
    return s;
}

rn_status rn_safetensors_read(rn_checkpoint *checkpoint, uint32_t index) {
    return rn_safetensors_read_as(checkpoint, index, (rn_str){0});
}

rn_status rn_safetensors_read_as(rn_checkpoint *checkpoint, uint32_t index, rn_str prefix) {
    rn_opened_file *file = &checkpoint->files[index];
    uint64_t length;
    void *header;
    checkpoint->container = RN_CONTAINER_SAFETENSORS;
    snprintf(checkpoint->format, sizeof checkpoint->format, "safetensors");
    if (file->info.bytes < sizeof length)
        return rn_fail(RN_CORRUPT, "%s is too short for a safetensors file", file->info.path);
    RN_TRY(rn_opened_file_read(file, 0, &length, sizeof length));
    length = le64toh(length);
    if (length > MAX_HEADER_BYTES || length > file->info.bytes - sizeof length)
        return rn_fail(
            RN_CORRUPT, "%s: a header of %llu bytes in a file of %llu (is it safetensors?)",
            file->info.path, (unsigned long long)length, (unsigned long long)file->info.bytes);
    file->info.data_offset = sizeof length + length;
    header_reader reader = {.checkpoint = checkpoint,
                            .file = index,
                            .prefix = prefix,
                            .data_offset = file->info.data_offset};
    RN_TRY(rn_alloc(RN_HOST_IO, (size_t)length, &header));
    rn_status s = rn_opened_file_read(file, sizeof length, header, (size_t)length);
    if (s == RN_OK) s = parse_header(&reader, (rn_str){header, (size_t)length});
    rn_free(RN_HOST_IO, header, (size_t)length);
    return s;
}
