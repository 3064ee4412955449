// image_lora_file.c — additions to a denoiser and its text encoders as files.
//
//     pytorch_lora_weights.safetensors   unet.<module>.lora_A.weight (rank, in...), .lora_B.weight
//                                        (Flux: transformer.<module>; text_encoder.<module>,
//                                        text_encoder_2.<module>): diffusers; B has the scale
//                                        alpha / rank in it
//     lora_kohya.safetensors             lora_unet_<module>.lora_down.weight, .lora_up.weight,
//                                        .alpha, a module's parts joined by "_"; text encoders:
//                                        lora_te_<module>, of XL and Flux lora_te1_, lora_te2_
//
// kohya's Flux has Black Forest Labs' modules, in which q, k, v (and the feed-forward's first
// matrix) are one. Additions to several of them become one of so many times the rank: the first
// matrices stand one under the other, the second ones where their rows and columns are, with zeros
// elsewhere.
#include "train/image_trainer.h"

#include "base/file.h"
#include "base/str.h"
#include "memory/account.h"

#include <ration/writer.h>

#include <stdio.h>
#include <string.h>

enum { FUSED = 4 };

// A pair of tensors in a file: one addition, or several.
typedef struct record {
    const rn_image_lora *lora;
    char module[RN_IMAGE_NAME];
    uint32_t count, parts[FUSED]; // numbers of additions
    uint64_t first_rows[FUSED];   // of each in `out`
    uint64_t out;
} record;

typedef struct export_job {
    rn_image_trainer *trainer;
    rn_writer *writer;
    bool kohya;
    rn_arena memory;
    record *records; // (record_count)
    uint32_t record_count;
    rn_write_tensor *tensors;
    size_t count;
} export_job;

static const rn_trained *find_trained(const rn_image_trainer *t, const char *name) {
    for (uint32_t i = 0; i < t->trainer->weight_count; i++)
        if (strcmp(t->trainer->tensors[i].name, name) == 0) return &t->trainer->tensors[i];
    return NULL;
}

// ---- what goes together -------------------------------------------------------------------------

static record *find_record(export_job *e, const rn_image_lora *l, const char *module) {
    for (uint32_t i = e->record_count; i > 0; i--) {
        record *r = &e->records[i - 1];
        if (r->lora == l && strcmp(r->module, module) == 0) return r;
    }
    record *r = &e->records[e->record_count++];
    *r = (record){.lora = l};
    snprintf(r->module, sizeof r->module, "%s", module);
    return r;
}

static rn_status list_of(export_job *e, const rn_image_lora *l) {
    rn_image_names names = l->base->names;
    names.naming = RN_IMAGE_BFL;
    for (uint32_t i = 0; i < l->count; i++) {
        const rn_image_lora_part *p = &l->parts[i];
        rn_image_place place = {.tensor_rows = 0};
        bool fuses = e->kohya && l->base->kind == RN_IMAGE_FLUX &&
                     rn_image_rename(&names, p->module, &place) && !place.swapped;
        record *r = find_record(e, l, fuses ? place.tensor : p->module);
        if (r->count == FUSED)
            return rn_fail(RN_INTERNAL, "more than %d additions to '%s'", FUSED, r->module);
        r->out = fuses && place.tensor_rows ? place.tensor_rows : p->out;
        r->first_rows[r->count] = fuses ? place.first_row : 0;
        r->parts[r->count++] = i;
    }
    return RN_OK;
}

static rn_status list_records(export_job *e) {
    const rn_image_trainer *t = e->trainer;
    uint32_t count = 0;
    void *block = NULL;
    for (uint32_t i = 0; i < t->lora_count; i++)
        count += t->lora[i].count;
    RN_TRY(rn_arena_array(&e->memory, count, sizeof *e->records, &block));
    e->records = block;
    for (uint32_t i = 0; i < t->lora_count; i++)
        RN_TRY(list_of(e, &t->lora[i]));
    return RN_OK;
}

// ---- tensors ------------------------------------------------------------------------------------

// Before the modules of a network.
static const char *kohya_prefix(const rn_image_trainer *t, const rn_image_lora *l) {
    if (!l->text) return "lora_unet";
    if (t->model->text_count == 1) return "lora_te";
    return l->text == &t->text[0] ? "lora_te1" : "lora_te2";
}

static rn_status declare(export_job *e, const record *r, const char *ending, rn_shape shape) {
    char name[RN_IMAGE_NAME + 48];
    void *text = NULL, *dims = NULL;
    snprintf(name, sizeof name, "%s%s%s",
             e->kohya ? kohya_prefix(e->trainer, r->lora) : r->lora->base->name,
             e->kohya ? "_" : ".", r->module);
    for (char *c = name; e->kohya && *c; c++)
        if (*c == '.') *c = '_';
    size_t bytes = strlen(name);
    snprintf(name + bytes, sizeof name - bytes, ".%s", ending);
    RN_TRY(rn_arena_copy(&e->memory, name, strlen(name), &text));
    RN_TRY(rn_arena_array(&e->memory, shape.rank + 1, sizeof(uint64_t), &dims));
    memcpy(dims, shape.dims, shape.rank * sizeof(uint64_t));
    e->tensors[e->count++] = (rn_write_tensor){
        .name = rn_str_from(text), .dtype = RN_DTYPE_F32, .rank = shape.rank, .dims = dims};
    return RN_OK;
}

static rn_status declare_all(export_job *e) {
    void *block = NULL;
    RN_TRY(list_records(e));
    RN_TRY(rn_arena_array(&e->memory, 3 * (size_t)e->record_count, sizeof *e->tensors, &block));
    e->tensors = block;
    for (uint32_t i = 0; i < e->record_count; i++) {
        const record *r = &e->records[i];
        const rn_low_rank *low = &r->lora->parts[r->parts[0]].low_rank;
        const rn_trained *down = find_trained(e->trainer, low->down);
        const rn_trained *up = find_trained(e->trainer, low->up);
        if (!down || !up) return rn_fail(RN_INTERNAL, "'%s' was not trained", r->module);
        rn_shape of_down = down->shape, of_up = up->shape;
        of_down.dims[0] *= r->count;
        of_up.dims[0] = r->out;
        of_up.dims[1] *= r->count;
        RN_TRY(declare(e, r, e->kohya ? "lora_down.weight" : "lora_A.weight", of_down));
        RN_TRY(declare(e, r, e->kohya ? "lora_up.weight" : "lora_B.weight", of_up));
        if (e->kohya) RN_TRY(declare(e, r, "alpha", RN_SCALAR));
    }
    return RN_OK;
}

// ---- values -------------------------------------------------------------------------------------

// The second matrix of a part to its rows and columns of (out, count * rank).
static rn_status place_up(export_job *e, const record *r, uint32_t i, float *values, float *out) {
    rn_image_trainer *t = e->trainer;
    const rn_image_lora *l = r->lora;
    const rn_trained *up = find_trained(t, l->parts[r->parts[i]].low_rank.up);
    uint64_t rank = l->rank, wide = rank * r->count, rows = up->count / rank;
    float scale = e->kohya ? 1 : l->scale;
    RN_TRY(rn_session_get(t->trainer->session, up->name, values, up->bytes));
    if (r->first_rows[i] + rows > r->out)
        return rn_fail(RN_INTERNAL, "'%s' has no room for an addition", r->module);
    for (uint64_t row = 0; row < rows; row++)
        for (uint64_t k = 0; k < rank; k++)
            out[(r->first_rows[i] + row) * wide + i * rank + k] = scale * values[row * rank + k];
    return RN_OK;
}

// kohya's scale is alpha / rank; of rsLoRA the alpha that gives the same one is written.
static rn_status append_record(export_job *e, const record *r, const rn_trainer_scratch *scratch) {
    rn_image_trainer *t = e->trainer;
    const rn_image_lora *l = r->lora;
    uint64_t count = r->out * l->rank * r->count;
    float alpha = l->scale * (float)(l->rank * r->count);
    void *block = NULL;
    for (uint32_t i = 0; i < r->count; i++)
        RN_TRY(rn_trainer_write_tensor(t->trainer,
                                       find_trained(t, l->parts[r->parts[i]].low_rank.down),
                                       RN_DTYPE_F32, e->writer, scratch));
    RN_TRY(rn_alloc_zeroed(RN_HOST_IO, count, sizeof(float), &block));
    rn_status s = RN_OK;
    for (uint32_t i = 0; s == RN_OK && i < r->count; i++)
        s = place_up(e, r, i, scratch->values, block);
    if (s == RN_OK) s = rn_writer_append(e->writer, block, count * sizeof(float));
    rn_free(RN_HOST_IO, block, count * sizeof(float));
    if (s == RN_OK && e->kohya) s = rn_writer_append(e->writer, &alpha, sizeof alpha);
    return s;
}

static rn_status append_all(export_job *e, const rn_trainer_scratch *scratch) {
    for (uint32_t i = 0; i < e->record_count; i++)
        RN_TRY(append_record(e, &e->records[i], scratch));
    return rn_writer_commit(e->writer);
}

// ---- files --------------------------------------------------------------------------------------

static rn_metadata text_pair(const char *key, const char *text) {
    return (rn_metadata){.key = rn_str_from(key),
                         .kind = RN_METADATA_TEXT,
                         .gguf_type = 8,
                         .text = rn_str_from(text)};
}

static rn_status write_file(rn_image_trainer *t, bool kohya, const char *path) {
    export_job e = {.trainer = t, .kohya = kohya};
    rn_trainer_scratch scratch = {0};
    bool flux = t->lora->base->kind == RN_IMAGE_FLUX;
    char rank[16], alpha[32], steps[24];
    snprintf(rank, sizeof rank, "%u", t->lora->rank);
    snprintf(alpha, sizeof alpha, "%g", (double)(t->lora->scale * (float)t->lora->rank));
    snprintf(steps, sizeof steps, "%llu", (unsigned long long)t->trainer->steps);
    rn_metadata metadata[] = {
        text_pair("format", "pt"), text_pair("ss_network_dim", rank),
        text_pair("ss_network_alpha", alpha), text_pair("ss_steps", steps),
        text_pair("ss_network_module", flux ? "networks.lora_flux" : "networks.lora")};
    rn_writer_options options = {.metadata = metadata,
                                 .metadata_count = kohya ? 5 : 1,
                                 .buffer_bytes = rn_trainer_buffer_bytes(t->trainer->most)};
    rn_arena_init(&e.memory, RN_HOST_IO, 0);
    rn_status s = declare_all(&e);
    if (s == RN_OK) s = rn_trainer_scratch_take(t->trainer, &scratch);
    if (s == RN_OK) s = rn_writer_create(path, e.tensors, e.count, &options, &e.writer);
    if (s == RN_OK) s = append_all(&e, &scratch);
    rn_writer_destroy(e.writer);
    rn_trainer_scratch_free(&scratch);
    rn_arena_free_all(&e.memory);
    return s;
}

rn_status rn_image_lora_export(rn_image_trainer *t, const char *folder) {
    char path[RN_IMAGE_PATH];
    RN_TRY(rn_path_join(folder, "pytorch_lora_weights.safetensors", path, sizeof path));
    RN_TRY(write_file(t, false, path));
    RN_TRY(rn_path_join(folder, "lora_kohya.safetensors", path, sizeof path));
    return write_file(t, true, path);
}
