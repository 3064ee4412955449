// merge.c — a model's files with its adapters in their matrices: W + scale * B A, row by row.
//
//     row of W, as f32  +=  row of B (rank) times A (rank, in)
//     and of DoRA       *=  magnitude / its norm
//
// Matrices stay in the numbers of their file. Blocks of quantised kinds become f16, as llama.cpp's
// tool writes them: quantised a second time, a small addition would be lost in the rounding.
#include "model/bundle.h"

#include "base/checked.h"
#include "base/str.h"
#include "io/writer.h"
#include "memory/account.h"
#include "model/text/decoder.h"
#include "model/text/model_rewrite.h"
#include "model/text/text_network.h"

#include <math.h>
#include <string.h>

enum { PIECE_BYTES = 256 << 10, NAME_BYTES = 192 };

typedef struct merge {
    const rn_network *network;
    float *row;   // (columns of the widest matrix that is merged)
    uint8_t *raw; // as many in the file's numbers, at most f32's bytes
} merge;

static const rn_low_rank *addition_of(const merge *m, const rn_tensor_info *info, uint32_t index) {
    char name[NAME_BYTES];
    if (info->name.bytes >= sizeof name || info->rank != 2) return NULL;
    memcpy(name, info->name.data, info->name.bytes);
    name[info->name.bytes] = 0;
    return rn_adapters_addition(m->network->adapters, name, index);
}

static rn_rewrite_what look(void *self, const rn_tensor_info *info, rn_dtype *dtype) {
    const merge *m = self;
    if (!addition_of(m, info, 0)) return RN_REWRITE_COPY;
    if (!rn_dtype_get(info->dtype)->is_float) *dtype = RN_DTYPE_F16;
    return RN_REWRITE_WRITE;
}

// To the length that DoRA says; a row of zeros has no direction and stays.
static void stretch_row(const merge *m, const rn_low_rank *a, uint64_t row, uint64_t out,
                        uint64_t in) {
    const float *magnitude =
        rn_adapters_find(m->network->adapters, a->magnitude, out * sizeof *magnitude);
    double square = 0;
    for (uint64_t c = 0; c < in; c++)
        square += (double)m->row[c] * (double)m->row[c];
    float factor = magnitude && square > 0 ? (float)((double)magnitude[row] / sqrt(square)) : 1;
    for (uint64_t c = 0; c < in; c++)
        m->row[c] *= factor;
}

// Adds row `row` of every addition's B A.
static rn_status add_row(const merge *m, const rn_tensor_info *info, uint64_t row) {
    uint64_t out = info->dims[0], in = info->dims[1];
    const rn_low_rank *a;
    for (uint32_t n = 0; (a = addition_of(m, info, n)); n++) {
        const float *down =
            rn_adapters_find(m->network->adapters, a->down, a->rank * in * sizeof *down);
        const float *up = rn_adapters_find(m->network->adapters, a->up, out * a->rank * sizeof *up);
        if (!down || !up)
            return rn_fail(RN_UNSUPPORTED, "'%.*s' is stored the other way round than its adapter",
                           RN_STR_ARG(info->name));
        for (uint32_t r = 0; r < a->rank; r++) {
            float factor = up[row * a->rank + r];
            for (uint64_t c = 0; c < in; c++)
                m->row[c] += factor * down[r * in + c];
        }
        if (a->magnitude) stretch_row(m, a, row, out, in);
    }
    return RN_OK;
}

static rn_status check_finite(const merge *m, const rn_tensor_info *info) {
    for (uint64_t c = 0; c < info->dims[1]; c++)
        if (!isfinite(m->row[c]))
            return rn_fail(RN_INVALID, "'%.*s' with its addition is not finite",
                           RN_STR_ARG(info->name));
    return RN_OK;
}

static rn_status write(void *self, const rn_tensor_info *info, rn_dtype dtype, rn_writer *writer) {
    const merge *m = self;
    uint64_t in = info->dims[1], from_bytes = 0, to_bytes = 0;
    if (!rn_dtype_bytes(info->dtype, in, &from_bytes) || !rn_dtype_bytes(dtype, in, &to_bytes))
        return rn_fail(RN_UNSUPPORTED, "rows of '%.*s' are no whole blocks of %s",
                       RN_STR_ARG(info->name), rn_dtype_get(info->dtype)->name);
    for (uint64_t row = 0; row < info->dims[0]; row++) {
        RN_TRY(
            rn_checkpoint_read(m->network->checkpoint, info, row * from_bytes, m->raw, from_bytes));
        RN_TRY(rn_dtype_to_f32(info->dtype, m->raw, m->row, in));
        RN_TRY(add_row(m, info, row));
        RN_TRY(check_finite(m, info));
        RN_TRY(rn_dtype_from_f32(dtype, m->row, m->raw, in));
        RN_TRY(rn_writer_append(writer, m->raw, to_bytes));
    }
    return RN_OK;
}

// ---- all of it ----------------------------------------------------------------------------------

static uint64_t widest(const merge *m) {
    uint64_t most = 0;
    for (size_t i = 0; i < rn_checkpoint_count(m->network->checkpoint); i++) {
        const rn_tensor_info *info = rn_checkpoint_tensor(m->network->checkpoint, i);
        if (addition_of(m, info, 0)) most = rn_max_u64(most, info->dims[1]);
    }
    return most;
}

// Every addition must have found its matrix: some files name or cut them differently.
static rn_status check_all(const merge *m, size_t found) {
    size_t wanted = m->network->adapters->by_weight.count;
    if (wanted == 0)
        return rn_hint(rn_fail(RN_INVALID, "the model has no adapters to merge"),
                       "open it with some (rn_model_options.adapters)");
    if (found == wanted) return RN_OK;
    return rn_hint(rn_fail(RN_UNSUPPORTED,
                           "of %zu matrices with an addition the files have %zu under that name",
                           wanted, found),
                   "merge into the unquantised model that the files were made of");
}

static size_t count_found(const merge *m) {
    size_t found = 0;
    for (size_t i = 0; i < rn_checkpoint_count(m->network->checkpoint); i++)
        found += addition_of(m, rn_checkpoint_tensor(m->network->checkpoint, i), 0) != NULL;
    return found;
}

// GPT-2's files have their matrices the other way round.
static rn_status check_form(const merge *m) {
    const rn_llama_config *config = &rn_text_network_config(m->network)->llama;
    const rn_text_architecture *a = rn_text_architecture_of(config);
    for (int p = 0; p < RN_TEXT_PARTS; p++)
        if (a->parts[p].transposed && config->naming != RN_NAMES_GGUF)
            return rn_hint(
                rn_fail(RN_UNSUPPORTED, "adapters of %s folders are not merged", a->name),
                "merge into the GGUF file of the model");
    return RN_OK;
}

rn_status rn_model_merge(const rn_model *model, const char *path) {
    merge m = {.network = &model->networks[0]};
    void *row = NULL, *raw = NULL, *piece = NULL;
    if (m.network->in_memory || !m.network->checkpoint)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "a built-in model has no files to write it like"),
                       "merge into a folder or a GGUF file");
    if (!m.network->adapters) return check_all(&m, 0);
    RN_TRY(check_form(&m));
    RN_TRY(check_all(&m, count_found(&m)));
    uint64_t most = widest(&m);
    rn_status s = rn_alloc(RN_HOST_IO, most * sizeof(float), &row);
    if (s == RN_OK) s = rn_alloc(RN_HOST_IO, most * sizeof(float), &raw);
    if (s == RN_OK) s = rn_alloc(RN_HOST_IO, PIECE_BYTES, &piece);
    m.row = row;
    m.raw = raw;
    rn_rewrite rewrite = {.from = m.network->checkpoint,
                          .self = &m,
                          .look = look,
                          .write = write,
                          .writer_from = RN_HOST_IO,
                          .buffer_bytes = PIECE_BYTES,
                          .piece = piece,
                          .piece_bytes = PIECE_BYTES};
    if (s == RN_OK) s = rn_rewrite_model(&rewrite, path);
    rn_free(RN_HOST_IO, piece, PIECE_BYTES);
    rn_free(RN_HOST_IO, raw, most * sizeof(float));
    rn_free(RN_HOST_IO, row, most * sizeof(float));
    return s;
}

uint64_t rn_model_merge_bytes(const rn_model *model) {
    const rn_network *network = &model->networks[0];
    uint64_t most = 0;
    for (size_t i = 0; network->checkpoint && i < rn_checkpoint_count(network->checkpoint); i++) {
        const rn_tensor_info *info = rn_checkpoint_tensor(network->checkpoint, i);
        if (info->rank == 2) most = rn_max_u64(most, info->dims[1]);
    }
    rn_writer_options options = {.buffer_bytes = PIECE_BYTES};
    return 2 * most * sizeof(float) + PIECE_BYTES + rn_writer_buffers_bytes(&options);
}
