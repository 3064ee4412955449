// writer.c — lays tensors out, writes the header, then keeps track of the stream so that padding
// can be put between its tensors.
//
//     header | random, wide elements | streamed: t0 pad t1 pad ... | random, narrow elements
//
// Wide before narrow keeps every tensor on a boundary of its own element size (of 4 bytes for those
// of 8) when the caller streams wide ones first.
#include "io/writer.h"
#include "io/gguf.h"
#include "io/layout.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/map.h"
#include "base/output.h"
#include "base/reserved.h"
#include "base/str.h"
#include "memory/account.h"

enum { MAX_HEADER_BYTES = 1 << 30, PARTS = 3, STREAMED = 1, STREAMED_SMALL_BYTES = 8 << 10 };

struct rn_writer {
    rn_arena arena;
    const rn_allocator *buffers; // of the output
    rn_output *output;
    uint64_t *bytes, *padded, *offsets; // (count); offsets from the start of the data
    uint64_t *filled;                   // (count)
    uint32_t *order;                    // (count): tensors by offset
    size_t count;
    uint64_t header_bytes, file_bytes;
    size_t current, stream_end; // in `order`: the streamed tensor being filled, the end of them
    uint64_t part_offset[PARTS + 1]; // where each part begins, from the start of the data
};

static bool is_gguf(const char *path) {
    return rn_str_ends(rn_str_from(path), RN_STR(".gguf"));
}

static rn_status measure(const rn_write_tensor *tensor, uint64_t alignment, uint64_t *out_bytes,
                         uint64_t *out_padded) {
    const rn_dtype_info *dtype = rn_dtype_get(tensor->dtype);
    uint64_t elements = 1;
    bool fits = true;
    for (uint32_t i = 0; i < tensor->rank && fits; i++)
        fits = rn_mul_u64(elements, tensor->dims[i], &elements);
    uint64_t row = tensor->rank ? tensor->dims[tensor->rank - 1] : 1;
    if (fits && dtype->block_elements) fits = row % dtype->block_elements == 0 || dtype->ggml < 0;
    if (fits && rn_dtype_bytes(tensor->dtype, elements, out_bytes) &&
        rn_align_u64(*out_bytes, alignment, out_padded))
        return RN_OK;
    return rn_fail(RN_INVALID, "tensor '%.*s' cannot be written as %s: its size is not whole",
                   RN_STR_ARG(tensor->name), dtype->name);
}

static rn_status allocate_tables(rn_writer *writer) {
    void *block;
    RN_TRY(rn_arena_array(&writer->arena, writer->count, sizeof(uint64_t), &block));
    writer->bytes = block;
    RN_TRY(rn_arena_array(&writer->arena, writer->count, sizeof(uint64_t), &block));
    writer->padded = block;
    RN_TRY(rn_arena_array(&writer->arena, writer->count, sizeof(uint64_t), &block));
    writer->offsets = block;
    RN_TRY(rn_arena_array(&writer->arena, writer->count, sizeof(uint64_t), &block));
    writer->filled = block;
    RN_TRY(rn_arena_array(&writer->arena, writer->count, sizeof(uint32_t), &block));
    writer->order = block;
    return RN_OK;
}

static int part_of(const rn_write_tensor *tensor) {
    if (!tensor->random) return STREAMED;
    return rn_dtype_get(tensor->dtype)->block_bytes >= 4 ? 0 : 2;
}

// Assigns offsets part by part, in the order given.
static rn_status lay_out(rn_writer *writer, const rn_write_tensor *tensors) {
    uint64_t at = 0;
    uint32_t placed = 0;
    for (int part = 0; part < PARTS; part++) {
        writer->part_offset[part] = at;
        if (part == STREAMED) writer->current = placed;
        for (size_t i = 0; i < writer->count; i++) {
            if (part_of(&tensors[i]) != part) continue;
            writer->order[placed++] = (uint32_t)i;
            writer->offsets[i] = at;
            if (!rn_add_u64(at, writer->padded[i], &at))
                return rn_fail(RN_INVALID, "the tensors' sizes overflow");
        }
        if (part == STREAMED) writer->stream_end = placed;
    }
    writer->part_offset[PARTS] = at;
    return RN_OK;
}

// As JSON writes it; GGUF needs no more.
static uint64_t written_bytes(rn_str text) {
    uint64_t bytes = text.bytes;
    for (size_t i = 0; i < text.bytes; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c < 0x20 || c == '"' || c == '\\' || c == 0x7F) bytes += 5;
    }
    return bytes;
}

uint64_t rn_writer_opening_bytes(const rn_write_tensor *tensors, size_t tensor_count,
                                 const rn_metadata *metadata, size_t metadata_count) {
    enum { ENTRY_BYTES = 112, DIM_BYTES = 24, PAIR_BYTES = 32, TABLE_BYTES = 152 };
    uint64_t header = 64;
    for (size_t i = 0; i < tensor_count; i++)
        header += written_bytes(tensors[i].name) + ENTRY_BYTES + tensors[i].rank * DIM_BYTES;
    for (size_t i = 0; i < metadata_count; i++)
        header += written_bytes(metadata[i].key) + written_bytes(metadata[i].text) +
                  metadata[i].raw.bytes + PAIR_BYTES;
    // A buffer that doubles holds up to twice its text, and half of that again while it grows.
    return 3 * header + (uint64_t)tensor_count * TABLE_BYTES;
}

static rn_output_options output_of(const rn_writer_options *options) {
    return (rn_output_options){.stream_bytes = 1, .buffer_bytes = options->buffer_bytes};
}

size_t rn_writer_held_bytes(const rn_writer_options *options) {
    rn_output_options output = output_of(options);
    return rn_output_buffer_bytes(&output);
}

size_t rn_writer_buffers_bytes(const rn_writer_options *options) {
    rn_output_options output = output_of(options);
    output.small_bytes = STREAMED_SMALL_BYTES;
    return rn_output_held_bytes(&output);
}

static rn_status open_output(rn_writer *writer, const char *path, const rn_writer_options *options,
                             const rn_buffer *header) {
    const uint64_t *parts = writer->part_offset;
    writer->header_bytes = header->bytes;
    if (!rn_add_u64(header->bytes, parts[PARTS], &writer->file_bytes) ||
        writer->file_bytes > INT64_MAX)
        return rn_fail(RN_INVALID, "the file would be too large");
    rn_output_options output = {.file_bytes = writer->file_bytes,
                                .stream_offset = header->bytes + parts[STREAMED],
                                .stream_bytes = parts[STREAMED + 1] - parts[STREAMED],
                                .buffer_bytes = options->buffer_bytes};
    if (writer->buffers != RN_HOST_STAGING) output.small_bytes = STREAMED_SMALL_BYTES;
    RN_TRY(rn_output_create(path, &output, writer->buffers, &writer->output));
    return rn_output_put(writer->output, 0, header->data, header->bytes);
}

// A file with a name twice is one that no reader takes. `items` (count, each item_bytes long) begin
// with their names.
static rn_status check_names(const void *items, size_t count, size_t item_bytes, const char *what) {
    rn_map names;
    rn_map_init(&names, RN_HOST_IO);
    rn_status s = rn_map_reserve(&names, count);
    for (size_t i = 0; s == RN_OK && i < count; i++) {
        rn_str name;
        bool existing = false;
        memcpy(&name, (const char *)items + i * item_bytes, sizeof name);
        s = rn_map_add(&names, name, i, &existing);
        if (existing)
            s = rn_fail(RN_UNSUPPORTED, "two %s would be called '%.*s'", what, RN_STR_ARG(name));
    }
    rn_map_free(&names);
    return s;
}
_Static_assert(offsetof(rn_write_tensor, name) == 0 && offsetof(rn_metadata, key) == 0,
               "the name comes first");

static uint64_t find_alignment(const char *path, const rn_writer_options *options) {
    if (!is_gguf(path)) return 1;
    for (size_t i = 0; i < options->metadata_count; i++)
        if (rn_str_equal(options->metadata[i].key, RN_STR("general.alignment")) &&
            options->metadata[i].kind == RN_METADATA_U64 &&
            options->metadata[i].value.u64 == RN_GGUF_PACKED_ALIGNMENT)
            return RN_GGUF_PACKED_ALIGNMENT;
    return RN_GGUF_WRITE_ALIGNMENT;
}

static rn_status prepare(rn_writer *writer, const char *path, const rn_write_tensor *tensors,
                         const rn_writer_options *options) {
    static const rn_writer_options defaults = {0};
    if (!options) options = &defaults;
    uint64_t alignment = find_alignment(path, options);
    RN_TRY(check_names(tensors, writer->count, sizeof *tensors, "tensors"));
    RN_TRY(check_names(options->metadata, options->metadata_count, sizeof *options->metadata,
                       "metadata keys"));
    RN_TRY(allocate_tables(writer));
    for (size_t i = 0; i < writer->count; i++)
        RN_TRY(measure(&tensors[i], alignment, &writer->bytes[i], &writer->padded[i]));
    RN_TRY(lay_out(writer, tensors));
    rn_layout layout = {.tensors = tensors,
                        .bytes = writer->bytes,
                        .offsets = writer->offsets,
                        .count = writer->count,
                        .order = writer->order,
                        .metadata = options->metadata,
                        .metadata_count = options->metadata_count,
                        .alignment = alignment};
    rn_buffer header;
    rn_buffer_init(&header, RN_HOST_IO, MAX_HEADER_BYTES);
    rn_status s =
        is_gguf(path) ? rn_gguf_header(&layout, &header) : rn_safetensors_header(&layout, &header);
    if (s == RN_OK) s = open_output(writer, path, options, &header);
    rn_buffer_free(&header);
    return s;
}

rn_status rn_writer_create(const char *path, const rn_write_tensor *tensors, size_t tensor_count,
                           const rn_writer_options *options, rn_writer **out) {
    return rn_writer_create_in(path, tensors, tensor_count, options, RN_HOST_STAGING, out);
}

rn_status rn_writer_create_in(const char *path, const rn_write_tensor *tensors, size_t tensor_count,
                              const rn_writer_options *options, const rn_allocator *buffers,
                              rn_writer **out) {
    void *block;
    *out = NULL;
    if (options) RN_TRY(rn_check_reserved(options->reserved, "rn_writer_options"));
    if (tensor_count > UINT32_MAX) return rn_fail(RN_INVALID, "too many tensors");
    RN_TRY(rn_alloc_zeroed(RN_HOST_IO, 1, sizeof **out, &block));
    rn_writer *writer = block;
    writer->count = tensor_count;
    writer->buffers = buffers;
    rn_arena_init(&writer->arena, RN_HOST_IO, 0);
    rn_status s = prepare(writer, path, tensors, options);
    if (s == RN_OK)
        *out = writer;
    else
        rn_writer_destroy(writer);
    return s;
}

// Steps over finished tensors (empty ones too), writing their padding.
static rn_status finish_tensors(rn_writer *writer) {
    static const char zeros[RN_GGUF_PACKED_ALIGNMENT];
    for (; writer->current < writer->stream_end; writer->current++) {
        uint32_t tensor = writer->order[writer->current];
        if (writer->filled[tensor] < writer->bytes[tensor]) return RN_OK;
        size_t padding = (size_t)(writer->padded[tensor] - writer->bytes[tensor]);
        RN_TRY(rn_output_append(writer->output, zeros, padding));
    }
    return RN_OK;
}

// The streamed tensor that takes the next `bytes` bytes.
static rn_status find_current(rn_writer *writer, size_t bytes, uint32_t *out_tensor) {
    RN_TRY(finish_tensors(writer));
    if (writer->current == writer->stream_end)
        return rn_fail(RN_INVALID, "more bytes than the tensors have");
    *out_tensor = writer->order[writer->current];
    if (bytes > writer->bytes[*out_tensor] - writer->filled[*out_tensor])
        return rn_fail(RN_INVALID, "bytes for two tensors in one call");
    return RN_OK;
}

rn_status rn_writer_append(rn_writer *writer, const void *data, size_t bytes) {
    uint32_t tensor = 0;
    if (bytes == 0) return RN_OK;
    RN_TRY(find_current(writer, bytes, &tensor));
    RN_TRY(rn_output_append(writer->output, data, bytes));
    writer->filled[tensor] += bytes;
    return finish_tensors(writer);
}

rn_status rn_writer_reserve(rn_writer *writer, size_t bytes, rn_output_span spans[2]) {
    uint32_t tensor = 0;
    RN_TRY(find_current(writer, bytes, &tensor));
    return rn_output_reserve(writer->output, bytes, spans);
}

rn_status rn_writer_advance(rn_writer *writer, size_t bytes) {
    rn_output_advance(writer->output, bytes);
    writer->filled[writer->order[writer->current]] += bytes;
    return finish_tensors(writer);
}

rn_status rn_writer_put(rn_writer *writer, size_t tensor, uint64_t offset, const void *data,
                        size_t bytes) {
    if (tensor >= writer->count || offset > writer->bytes[tensor] ||
        bytes > writer->bytes[tensor] - offset)
        return rn_fail(RN_INVALID, "a write outside tensor %zu", tensor);
    uint64_t place = writer->offsets[tensor] + offset;
    if (bytes > 0 && place >= writer->part_offset[STREAMED] &&
        place < writer->part_offset[STREAMED + 1])
        return rn_fail(RN_INVALID, "tensor %zu is not a random one", tensor);
    RN_TRY(rn_output_put(writer->output, writer->header_bytes + place, data, bytes));
    writer->filled[tensor] += bytes;
    return RN_OK;
}

rn_status rn_writer_commit(rn_writer *writer) {
    RN_TRY(finish_tensors(writer));
    for (size_t i = 0; i < writer->count; i++)
        if (writer->filled[i] != writer->bytes[i])
            return rn_fail(RN_INVALID, "tensor %zu is not complete", i);
    return rn_output_commit(writer->output);
}

void rn_writer_destroy(rn_writer *writer) {
    if (!writer) return;
    rn_output_destroy(writer->output);
    rn_arena_free_all(&writer->arena);
    rn_free(RN_HOST_IO, writer, sizeof *writer);
}

uint64_t rn_writer_file_bytes(const rn_writer *writer) {
    return writer->file_bytes;
}
