// checkpoint_stream.c — many tensors in file order, a few requests ahead of the callback.
//
// Tensors are cut into chunks of whole blocks that each come from the reader in one piece, so that
// no element is ever cut in two.
#include "io/checkpoint.h"

#include "base/checked.h"
#include "base/file.h"
#include "base/reader.h"
#include "base/reserved.h"
#include "memory/account.h"

#include <stdlib.h>

enum { DEFAULT_BUFFER_BYTES = 16 << 20, MIN_BUFFER_BYTES = 256 << 10, SLACK_BYTES = 8192 };

typedef struct stream {
    const rn_checkpoint *checkpoint;
    rn_dtype dtype; // to convert to, or RN_DTYPE_NONE
    rn_stream_piece piece;
    void *self;
    const rn_tensor_info **tensors; // (tensor_count), in file order
    size_t tensor_count;
    size_t request_bytes;
    size_t chunk_bytes; // the most source bytes of one chunk
    rn_extent *extents; // (extent_count)
    uint32_t *owners;   // (extent_count): index into tensors
    size_t extent_count;
    void *converted; // (converted_bytes)
    size_t converted_bytes;
} stream;

static int compare_place(const void *left, const void *right) {
    const rn_tensor_info *a = *(const rn_tensor_info *const *)left;
    const rn_tensor_info *b = *(const rn_tensor_info *const *)right;
    if (a->file != b->file) return a->file < b->file ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static rn_status choose_tensors(stream *st, const rn_stream_options *options) {
    void *block;
    st->tensor_count = options->tensors ? options->tensor_count : st->checkpoint->tensor_count;
    RN_TRY(rn_alloc(RN_HOST_IO, st->tensor_count * sizeof *st->tensors, &block));
    st->tensors = block;
    for (size_t i = 0; i < st->tensor_count; i++)
        st->tensors[i] = options->tensors ? options->tensors[i] : &st->checkpoint->tensors[i];
    if (st->tensor_count > 1)
        qsort(st->tensors, st->tensor_count, sizeof *st->tensors, compare_place);
    return RN_OK;
}

// Source bytes of one chunk of this tensor: whole blocks of both types.
static uint64_t chunk_of(const stream *st, const rn_tensor_info *tensor) {
    const rn_dtype_info *from = rn_dtype_get(tensor->dtype);
    const rn_dtype_info *to = rn_dtype_get(st->dtype == RN_DTYPE_NONE ? tensor->dtype : st->dtype);
    // Block sizes are powers of two: the larger holds the smaller.
    uint64_t elements = rn_max_u64(from->block_elements, to->block_elements);
    uint64_t unit = elements / from->block_elements * from->block_bytes;
    return st->chunk_bytes / unit * unit;
}

static void cut_tensors(stream *st) {
    size_t at = 0;
    for (size_t i = 0; i < st->tensor_count; i++) {
        const rn_tensor_info *tensor = st->tensors[i];
        uint64_t chunk = chunk_of(st, tensor);
        for (uint64_t done = 0; done < tensor->bytes; done += chunk, at++) {
            st->owners[at] = (uint32_t)i;
            st->extents[at] = (rn_extent){.file = tensor->file,
                                          .offset = tensor->offset + done,
                                          .bytes = rn_min_u64(chunk, tensor->bytes - done)};
        }
    }
}

static rn_status make_extents(stream *st) {
    void *block;
    for (size_t i = 0; i < st->tensor_count; i++)
        st->extent_count += (size_t)rn_div_up(st->tensors[i]->bytes, chunk_of(st, st->tensors[i]));
    if (st->extent_count > UINT32_MAX) return rn_fail(RN_INVALID, "too many pieces");
    RN_TRY(rn_alloc(RN_HOST_IO, st->extent_count * sizeof *st->extents, &block));
    st->extents = block;
    RN_TRY(rn_alloc(RN_HOST_IO, st->extent_count * sizeof *st->owners, &block));
    st->owners = block;
    cut_tensors(st);
    return RN_OK;
}

// One request's worth of the buffer is for what is converted, however much longer that is than its
// source.
static rn_status make_buffer(stream *st, size_t *buffer_bytes) {
    if (st->dtype == RN_DTYPE_NONE) return RN_OK;
    if (rn_dtype_get(st->dtype)->block_bytes == 0)
        return rn_fail(RN_INVALID, "there is no type number %d to stream as", (int)st->dtype);
    st->converted_bytes = st->request_bytes;
    *buffer_bytes -= st->converted_bytes;
    return rn_alloc(RN_HOST_STAGING, st->converted_bytes, &st->converted);
}

// Converts `bytes` bytes that begin at `offset` of the tensor, as many at a time as the buffer
// holds.
static rn_status deliver_converted(stream *st, const rn_tensor_info *tensor, uint64_t offset,
                                   const uint8_t *data, size_t bytes) {
    const rn_dtype_info *from = rn_dtype_get(tensor->dtype), *to = rn_dtype_get(st->dtype);
    uint64_t unit = rn_max_u64(from->block_elements, to->block_elements);
    uint64_t most = st->converted_bytes / to->block_bytes * to->block_elements / unit * unit;
    uint64_t left = bytes / from->block_bytes * from->block_elements;
    uint64_t out_offset =
        offset / from->block_bytes * from->block_elements / to->block_elements * to->block_bytes;
    while (left > 0) {
        uint64_t now = rn_min_u64(left, most);
        uint64_t out_bytes = now / to->block_elements * to->block_bytes;
        RN_TRY(rn_dtype_convert(tensor->dtype, data, st->dtype, st->converted, now));
        RN_TRY(st->piece(st->self, tensor, out_offset, st->converted, (size_t)out_bytes));
        data += now / from->block_elements * from->block_bytes;
        out_offset += out_bytes;
        left -= now;
    }
    return RN_OK;
}

static rn_status deliver(stream *st, const rn_reader_piece *piece) {
    const rn_tensor_info *tensor = st->tensors[st->owners[piece->extent]];
    uint64_t offset = st->extents[piece->extent].offset - tensor->offset + piece->offset_in_extent;
    if (st->dtype == RN_DTYPE_NONE || st->dtype == tensor->dtype)
        return st->piece(st->self, tensor, offset, piece->data, piece->bytes);
    return deliver_converted(st, tensor, offset, piece->data, piece->bytes);
}

static rn_status pump(stream *st, rn_reader *reader) {
    RN_TRY(rn_reader_start(reader, st->extents, (uint32_t)st->extent_count));
    while (true) {
        rn_reader_piece piece;
        RN_TRY(rn_reader_next(reader, &piece));
        if (piece.bytes == 0) return rn_reader_check(reader);
        rn_status s = deliver(st, &piece);
        rn_reader_release(reader, &piece);
        RN_TRY(s);
    }
}

// What is read must still be what the headers were read of.
static rn_status check_content(const rn_checkpoint *checkpoint) {
    for (size_t i = 0; i < checkpoint->file_count; i++) {
        const rn_opened_file *file = &checkpoint->files[i];
        RN_TRY(rn_file_state_check(&file->state, file->fd, file->info.path));
    }
    return RN_OK;
}

static size_t list_bytes(const rn_checkpoint *checkpoint) {
    return checkpoint->file_count * sizeof(rn_reader_file);
}

// The caller frees the list (list_bytes).
static rn_status list_files(const rn_checkpoint *checkpoint, rn_reader_file **out) {
    void *block = NULL;
    RN_TRY(check_content(checkpoint));
    RN_TRY(rn_alloc(RN_HOST_IO, list_bytes(checkpoint), &block));
    *out = block;
    for (size_t i = 0; i < checkpoint->file_count; i++)
        (*out)[i] =
            (rn_reader_file){.path = checkpoint->files[i].info.path, .fd = checkpoint->files[i].fd};
    return RN_OK;
}

rn_status rn_checkpoint_open_reader(const rn_checkpoint *checkpoint,
                                    const rn_reader_options *options, rn_reader **out) {
    rn_reader_file *files = NULL;
    *out = NULL;
    RN_TRY(list_files(checkpoint, &files));
    rn_status s = rn_reader_create(files, (uint32_t)checkpoint->file_count, options, out);
    rn_free(RN_HOST_IO, files, list_bytes(checkpoint));
    return s;
}

rn_status rn_checkpoint_open_fetcher(const rn_checkpoint *checkpoint,
                                     const rn_reader_options *options, rn_fetcher **out) {
    rn_reader_file *files = NULL;
    *out = NULL;
    RN_TRY(list_files(checkpoint, &files));
    rn_status s = rn_fetcher_create(files, (uint32_t)checkpoint->file_count, options, out);
    rn_free(RN_HOST_IO, files, list_bytes(checkpoint));
    return s;
}

static rn_status run(stream *st, const rn_stream_options *options, size_t buffer_bytes) {
    rn_reader *reader;
    RN_TRY(choose_tensors(st, options));
    RN_TRY(make_extents(st));
    RN_TRY(make_buffer(st, &buffer_bytes));
    rn_reader_options reading = {.buffer_bytes = buffer_bytes,
                                 .request_bytes = st->request_bytes,
                                 .allocator = RN_HOST_STAGING,
                                 .cancel = (const _Atomic bool *)options->cancel};
    RN_TRY(rn_checkpoint_open_reader(st->checkpoint, &reading, &reader));
    rn_status s = pump(st, reader);
    rn_reader_destroy(reader);
    return s;
}

rn_status rn_checkpoint_stream(const rn_checkpoint *checkpoint, const rn_stream_options *options,
                               rn_stream_piece piece, void *self) {
    static const rn_stream_options defaults = {0};
    if (!options) options = &defaults;
    RN_TRY(rn_check_reserved(options->reserved, "rn_stream_options"));
    size_t buffer_bytes = options->buffer_bytes ? options->buffer_bytes : DEFAULT_BUFFER_BYTES;
    if (buffer_bytes < MIN_BUFFER_BYTES) buffer_bytes = MIN_BUFFER_BYTES;
    stream st = {.checkpoint = checkpoint, .dtype = options->dtype, .piece = piece, .self = self};
    st.request_bytes =
        (size_t)rn_round_down(rn_min_u64(buffer_bytes / 4, RN_READER_REQUEST_BYTES), RN_PAGE_BYTES);
    st.chunk_bytes = st.request_bytes - SLACK_BYTES;
    rn_status s = run(&st, options, buffer_bytes);
    rn_free(RN_HOST_STAGING, st.converted, st.converted_bytes);
    rn_free(RN_HOST_IO, st.owners, st.extent_count * sizeof *st.owners);
    rn_free(RN_HOST_IO, st.extents, st.extent_count * sizeof *st.extents);
    rn_free(RN_HOST_IO, st.tensors, st.tensor_count * sizeof *st.tensors);
    return s;
}
