// image_cache.c — latents and text embeddings, made once and kept in a file.
//
//     cache/latents.safetensors   latent.N (h, w, 2 * channels): the moments of picture N, in the
//                                 order of buckets, so that each network comes once
//                                 text.K (tokens, channels): of every caption, once, where its
//                                 encoder is not trained
//
// The file says under "made_of" what it was made of: pictures, captions, sizes, and the files of
// both encoders by size and time. One of anything else is made anew.
#include "train/image_trainer.h"

#include "base/checked.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/str.h"
#include "memory/account.h"
#include "model/image/image_component.h"

#include <ration/writer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// ---- texts --------------------------------------------------------------------------------------

typedef struct caption {
    const char *text;
    uint64_t picture; // the number of pictures: the empty one
} caption;

static int by_text(const void *a, const void *b) {
    return strcmp(((const caption *)a)->text, ((const caption *)b)->text);
}

rn_status rn_image_cache_texts(rn_image_trainer *t) {
    uint64_t count = rn_pictures_get_info(t->pictures)->count;
    void *block = NULL;
    RN_TRY(rn_arena_array(&t->memory, count + 1, sizeof *t->text_of, &block));
    t->text_of = block;
    caption *all = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, count + 1, sizeof *all, &block));
    all = block;
    for (uint64_t i = 0; i < count; i++)
        all[i] = (caption){rn_pictures_get(t->pictures, i)->caption, i};
    all[count] = (caption){"", count};
    qsort(all, count + 1, sizeof *all, by_text);
    for (uint64_t i = 0; i <= count; i++) {
        if (i == 0 || strcmp(all[i].text, all[i - 1].text) != 0) t->text_count++;
        t->text_of[all[i].picture] = t->text_count - 1;
    }
    rn_free(RN_HOST_OTHER, all, (count + 1) * sizeof *all);
    return RN_OK;
}

// The caption of text number `text`.
static const char *find_caption(const rn_image_trainer *t, uint64_t text) {
    uint64_t count = rn_pictures_get_info(t->pictures)->count;
    for (uint64_t i = 0; i < count; i++)
        if (t->text_of[i] == text) return rn_pictures_get(t->pictures, i)->caption;
    return "";
}

// ---- planning -----------------------------------------------------------------------------------

enum { PHASES = RN_PICTURE_BUCKETS + RN_TEXT_ENCODERS };

typedef struct encoders {
    rn_recipe recipes[PHASES];
    rn_program_phase phases[PHASES];
    rn_weight_source weights[PHASES];
    char names[RN_PICTURE_BUCKETS][40];
    rn_image_component vae, text[RN_TEXT_ENCODERS]; // with these sizes; files are the model's
    uint32_t buckets, count, text_phase[RN_TEXT_ENCODERS];
} encoders;

static void close_encoders(encoders *e) {
    for (uint32_t i = 0; i < PHASES; i++)
        rn_recipe_destroy(&e->recipes[i]);
    e->count = 0;
}

static rn_status add_phase(encoders *e, const char *name, const rn_image_component *c,
                           rn_image_part part, const rn_image_component *files, uint64_t runs) {
    uint32_t i = e->count++;
    e->phases[i] = (rn_program_phase){
        .name = name, .recipe = &e->recipes[i], .model = files->name, .runs = runs};
    e->weights[i] = rn_image_component_weights(files);
    return rn_image_component_recipe(c, part, &e->recipes[i]);
}

// in_bands: pictures are encoded band by band, in less memory and to the same bits.
static rn_status open_encoders(rn_image_trainer *t, bool in_bands, encoders *e) {
    static const char *const texts[] = {"text", "text 2"};
    const rn_diffusion *m = t->model;
    const rn_pictures_info *info = rn_pictures_get_info(t->pictures);
    close_encoders(e);
    e->vae = m->vae;
    e->vae.config.vae.rows = 1;
    e->vae.config.vae.banding.cut = in_bands;
    e->buckets = info->bucket_count;
    for (uint32_t i = 0; i < info->bucket_count; i++) {
        const rn_picture_bucket *b = &info->buckets[i];
        e->vae.config.vae.height = b->height / t->factor;
        e->vae.config.vae.width = b->width / t->factor;
        snprintf(e->names[i], sizeof e->names[i], "encode %ux%u", b->width, b->height);
        RN_TRY(add_phase(e, e->names[i], &e->vae, RN_IMAGE_ENCODER, &m->vae, b->count));
    }
    for (uint32_t i = 0; i < m->text_count; i++) {
        if (t->text[i].trained) continue;
        e->text[i] = m->text[i];
        e->text_phase[i] = e->count;
        if (e->text[i].kind == RN_IMAGE_CLIP)
            e->text[i].config.clip.rows = 1;
        else
            e->text[i].config.t5.rows = t->text[i].length;
        RN_TRY(add_phase(e, texts[i], &e->text[i], RN_IMAGE_FORWARD, &m->text[i], t->text_count));
    }
    return RN_OK;
}

// Pictures whole, or where the budget has no room for that in bands.
static rn_status make_program(rn_image_trainer *t, encoders *e, rn_program **out) {
    const rn_trainer_options *o = &t->options.trainer;
    const rn_device_caps *caps = o->device ? rn_device_get_caps(o->device) : rn_cpu_caps();
    rn_plan_options plan = o->plan; // what it says of weights is of the denoiser's
    plan.keep = plan.offload = NULL;
    plan.resident_blocks = 0;
    plan.resident_bytes = 0;
    plan.micro_batches = 0;
    plan.recompute = plan.host_states = plan.host_activations = RN_MOVE_AS_NEEDED;
    RN_TRY(open_encoders(t, false, e));
    rn_status s = rn_program_make(e->phases, e->count, caps, &plan, out);
    if (s != RN_OVER_BUDGET) return s;
    RN_TRY(open_encoders(t, true, e));
    return rn_program_make(e->phases, e->count, caps, &plan, out);
}

rn_status rn_image_cache_plan(rn_image_trainer *t, rn_program **out) {
    encoders e = {.count = 0};
    rn_status s = make_program(t, &e, out);
    close_encoders(&e);
    return s;
}

// ---- making -------------------------------------------------------------------------------------

typedef struct maker {
    rn_image_trainer *t;
    encoders encoders;
    rn_program *program;
    rn_program_run *run;
    rn_writer *writer;
    float *image, *out; // of a picture; its moments, or a text
    float *pool;        // (tokens)
    int32_t *tokens;    // (tokens)
    int32_t *span;      // (tokens, 2)
    char identity[64];
} maker;

static void tell(const maker *m, const char *phase, uint64_t done, uint64_t count) {
    const rn_image_train_options *o = &m->t->options;
    if (o->progress) o->progress(o->self, phase, done, count);
}

static rn_status check_cancel(const maker *m) {
    const rn_flag *cancel = m->t->options.cancel;
    return cancel && *cancel ? rn_fail(RN_CANCELLED, "cancelled") : RN_OK;
}

static uint64_t latent_count(const rn_image_trainer *t, uint32_t bucket) {
    const rn_vae_config *v = &t->steps[bucket].vae;
    return (uint64_t)v->height * v->width * 2 * v->latent_channels;
}

static rn_status encode_pictures(maker *m) {
    rn_image_trainer *t = m->t;
    uint64_t count = rn_pictures_get_info(t->pictures)->count;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t number = t->pictures->order[i];
        uint32_t bucket = rn_pictures_get(t->pictures, number)->bucket;
        const rn_picture_bucket *b = &t->pictures->info.buckets[bucket];
        rn_session *s = rn_program_session(m->run, bucket);
        uint64_t pixels = (uint64_t)b->width * b->height * 3, values = latent_count(t, bucket);
        RN_TRY(check_cancel(m));
        RN_TRY(rn_pictures_values(t->pictures, number, m->image));
        RN_TRY(rn_session_set(s, "image", m->image, pixels * sizeof(float)));
        RN_TRY(rn_session_run(s, 1));
        RN_TRY(rn_session_get(s, "moments", m->out, values * sizeof(float)));
        RN_TRY(rn_writer_append(m->writer, m->out, values * sizeof(float)));
        tell(m, m->encoders.names[bucket], i + 1, count);
    }
    return RN_OK;
}

// What the denoiser reads of a text: its rows, then the pooled one.
static rn_status encode_text(maker *m, uint32_t encoder, const char *words) {
    rn_image_trainer *t = m->t;
    const rn_image_embedding *text = &t->text[encoder];
    rn_session *s = rn_program_session(m->run, m->encoders.text_phase[encoder]);
    bool clip = t->model->text[encoder].kind == RN_IMAGE_CLIP;
    uint64_t length = text->length, bytes = length * text->dim * sizeof(float);
    RN_TRY(rn_diffusion_tokens(t->model, encoder, words, text->length, m->tokens, m->pool));
    for (uint64_t i = 0; i < length; i++)
        m->span[2 * i] = 0, m->span[2 * i + 1] = (int32_t)length;
    RN_TRY(rn_session_set(s, "tokens", m->tokens, length * sizeof(int32_t)));
    if (clip)
        RN_TRY(rn_session_set(s, "pool", m->pool, length * sizeof(float)));
    else
        RN_TRY(rn_session_set(s, "span", m->span, 2 * length * sizeof(int32_t)));
    RN_TRY(rn_session_run(s, clip ? 1 : length));
    if (text->gives_context) {
        RN_TRY(rn_session_get(s, "hidden", m->out, bytes));
        RN_TRY(rn_writer_append(m->writer, m->out, bytes));
    }
    if (!text->gives_pooled) return RN_OK;
    RN_TRY(rn_session_get(s, "pooled", m->out, text->pooled * sizeof(float)));
    return rn_writer_append(m->writer, m->out, text->pooled * sizeof(float));
}

static rn_status encode_texts(maker *m) {
    rn_image_trainer *t = m->t;
    for (uint32_t e = 0; e < t->model->text_count; e++)
        for (uint64_t i = 0; !t->text[e].trained && i < t->text_count; i++) {
            RN_TRY(check_cancel(m));
            RN_TRY(encode_text(m, e, find_caption(t, i)));
            tell(m, m->encoders.phases[m->encoders.text_phase[e]].name, i + 1, t->text_count);
        }
    return RN_OK;
}

// ---- its tensors --------------------------------------------------------------------------------

typedef struct listing {
    rn_arena memory;
    rn_write_tensor *tensors;
    size_t count;
} listing;

static rn_status list_tensor(listing *l, const char *kind, uint64_t number, uint32_t rank,
                             const uint64_t dims[3]) {
    char name[48];
    void *text = NULL, *copy = NULL;
    snprintf(name, sizeof name, "%s.%llu", kind, (unsigned long long)number);
    RN_TRY(rn_arena_copy(&l->memory, name, strlen(name), &text));
    RN_TRY(rn_arena_array(&l->memory, 3, sizeof *dims, &copy));
    memcpy(copy, dims, 3 * sizeof *dims);
    l->tensors[l->count++] = (rn_write_tensor){
        .name = rn_str_from(text), .dtype = RN_DTYPE_F32, .rank = rank, .dims = copy};
    return RN_OK;
}

// In the order in which they are made.
static rn_status list_tensors(const rn_image_trainer *t, listing *l) {
    uint64_t count = rn_pictures_get_info(t->pictures)->count;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t number = t->pictures->order[i];
        const rn_vae_config *v = &t->steps[rn_pictures_get(t->pictures, number)->bucket].vae;
        uint64_t dims[3] = {v->height, v->width, 2 * (uint64_t)v->latent_channels};
        RN_TRY(list_tensor(l, "latent", number, 3, dims));
    }
    for (uint32_t e = 0; e < t->model->text_count; e++)
        for (uint64_t i = 0; !t->text[e].trained && i < t->text_count; i++) {
            const rn_image_embedding *text = &t->text[e];
            uint64_t rows[3] = {text->length, text->dim, 0}, pooled[3] = {text->pooled, 0, 0};
            if (text->gives_context) RN_TRY(list_tensor(l, e ? "text_2" : "text", i, 2, rows));
            if (text->gives_pooled) RN_TRY(list_tensor(l, "pooled", i, 1, pooled));
        }
    return RN_OK;
}

static rn_status open_writer(maker *m, const char *path) {
    rn_image_trainer *t = m->t;
    uint64_t all = rn_pictures_get_info(t->pictures)->count + 4 * t->text_count;
    listing l = {.count = 0};
    void *block = NULL;
    rn_arena_init(&l.memory, RN_HOST_IO, 0);
    rn_status s = rn_arena_array(&l.memory, all, sizeof *l.tensors, &block);
    l.tensors = block;
    if (s == RN_OK) s = list_tensors(t, &l);
    rn_metadata made_of = {.key = RN_STR("made_of"),
                           .kind = RN_METADATA_TEXT,
                           .gguf_type = 8,
                           .text = rn_str_from(m->identity)};
    rn_writer_options options = {
        .metadata = &made_of, .metadata_count = 1, .buffer_bytes = 64 << 10};
    if (s == RN_OK) s = rn_writer_create(path, l.tensors, l.count, &options, &m->writer);
    rn_arena_free_all(&l.memory);
    return s;
}

static rn_status take_room(maker *m) {
    rn_image_trainer *t = m->t;
    uint64_t image = 0, out = 0, length = 0;
    void *block = NULL;
    for (uint32_t i = 0; i < t->model->text_count; i++) {
        const rn_image_embedding *text = &t->text[i];
        length = rn_max_u64(length, text->length);
        out = rn_max_u64(out, rn_max_u64((uint64_t)text->length * text->dim, text->pooled));
    }
    for (uint32_t i = 0; i < t->pictures->info.bucket_count; i++) {
        const rn_picture_bucket *b = &t->pictures->info.buckets[i];
        image = rn_max_u64(image, (uint64_t)b->width * b->height * 3);
        out = rn_max_u64(out, latent_count(t, i));
    }
    RN_TRY(rn_arena_array(&t->memory, image, sizeof(float), &block));
    m->image = block;
    RN_TRY(rn_arena_array(&t->memory, out, sizeof(float), &block));
    m->out = block;
    RN_TRY(rn_arena_array(&t->memory, length, sizeof(float), &block));
    m->pool = block;
    RN_TRY(rn_arena_array(&t->memory, length, sizeof(int32_t), &block));
    m->tokens = block;
    RN_TRY(rn_arena_array(&t->memory, 2 * length, sizeof(int32_t), &block));
    m->span = block;
    return RN_OK;
}

static rn_status make_file(maker *m, const char *path) {
    rn_image_trainer *t = m->t;
    rn_session_options options = {.device = t->options.trainer.device, .cancel = t->options.cancel};
    RN_TRY(take_room(m));
    RN_TRY(make_program(t, &m->encoders, &m->program));
    RN_TRY(rn_program_open(m->program, m->encoders.weights, &options, &m->run));
    RN_TRY(open_writer(m, path));
    RN_TRY(encode_pictures(m));
    RN_TRY(encode_texts(m));
    return rn_writer_commit(m->writer);
}

// ---- the file -----------------------------------------------------------------------------------

static uint32_t add_file(uint32_t crc, const char *path) {
    struct stat info;
    uint64_t facts[3] = {0};
    if (stat(path, &info) == 0) {
        facts[0] = (uint64_t)info.st_size;
        facts[1] = (uint64_t)info.st_mtim.tv_sec;
        facts[2] = (uint64_t)info.st_mtim.tv_nsec;
    }
    crc = rn_crc32c(crc, path, strlen(path));
    return rn_crc32c(crc, facts, sizeof facts);
}

// What latents and embeddings are made of: pictures, captions, the encoders' files.
static void identify(maker *m) {
    const rn_image_trainer *t = m->t;
    const rn_pictures_info *info = rn_pictures_get_info(t->pictures);
    uint32_t pictures = 0, networks = 0;
    for (uint64_t i = 0; i < info->count; i++) {
        const rn_picture *p = rn_pictures_get(t->pictures, i);
        const rn_picture_bucket *b = &info->buckets[p->bucket];
        uint32_t sizes[3] = {b->width, b->height, p->validates};
        pictures = add_file(pictures, p->path);
        pictures = rn_crc32c(pictures, p->caption, strlen(p->caption) + 1);
        pictures = rn_crc32c(pictures, sizes, sizeof sizes);
    }
    const rn_image_component *parts[] = {&t->model->vae, &t->model->text[0], &t->model->text[1]};
    for (uint32_t i = 0; i < 1 + t->model->text_count; i++)
        for (size_t k = 0; k < rn_checkpoint_file_count(parts[i]->checkpoint); k++)
            networks = add_file(networks, rn_checkpoint_file(parts[i]->checkpoint, k)->path);
    snprintf(m->identity, sizeof m->identity, "2: %llu pictures, %08x, %08x%s",
             (unsigned long long)info->count, pictures, networks,
             t->options.text_encoders ? ", without CLIP" : "");
}

static bool is_made_of(const rn_checkpoint *file, const char *identity) {
    for (size_t i = 0; i < rn_checkpoint_metadata_count(file); i++) {
        const rn_metadata *m = rn_checkpoint_metadata(file, i);
        if (rn_str_equal(m->key, RN_STR("made_of")))
            return rn_str_equal(m->text, rn_str_from(identity));
    }
    return false;
}

rn_status rn_image_cache_open(rn_image_trainer *t) {
    maker m = {.t = t};
    char path[RN_IMAGE_PATH];
    if (!t->cache[0]) return rn_fail(RN_INVALID, "latents and embeddings need a folder: `cache`");
    RN_TRY(rn_path_join(t->cache, "latents.safetensors", path, sizeof path));
    identify(&m);
    if (rn_file_exists(path)) {
        RN_TRY(rn_checkpoint_open(path, &t->latents));
        if (is_made_of(t->latents, m.identity)) return RN_OK;
        rn_checkpoint_close(t->latents);
        t->latents = NULL;
    }
    rn_status s = make_file(&m, path);
    rn_writer_destroy(m.writer);
    rn_program_close(m.run);
    rn_program_destroy(m.program);
    close_encoders(&m.encoders);
    return s == RN_OK ? rn_checkpoint_open(path, &t->latents) : s;
}
