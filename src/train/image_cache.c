// image_cache.c — latents and text embeddings, made once and kept in a file.
//
//     cache/latents.safetensors   latent.N (h, w, 2 * channels): the moments of picture N, in the
//                                 order of buckets, so that each network comes once
//                                 text.K (tokens, channels): of every caption, once
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

typedef struct encoders {
    rn_recipe recipes[RN_PICTURE_BUCKETS + 1];
    rn_program_phase phases[RN_PICTURE_BUCKETS + 1];
    char names[RN_PICTURE_BUCKETS + 1][40];
    rn_checkpoint *vae_files, *text_files;
    rn_image_component vae, text; // recipes point into them
    uint32_t count;
} encoders;

static void close_encoders(encoders *e) {
    for (uint32_t i = 0; i <= RN_PICTURE_BUCKETS; i++)
        rn_recipe_destroy(&e->recipes[i]);
    rn_checkpoint_close(e->vae_files);
    rn_checkpoint_close(e->text_files);
}

static rn_status open_encoder(const rn_image_trainer *t, const char *part, rn_image_kind kind,
                              rn_checkpoint **out_files, rn_image_component *out) {
    RN_TRY(rn_image_part_weights(t->folder, part, out_files));
    if (!*out_files)
        return rn_hint(rn_fail(RN_NOT_FOUND, "the model's %s has no weights", part),
                       "a VAE is trained first, with --objective autoencoder; a text encoder must "
                       "have its own");
    return rn_image_component_open(out, part, kind, *out_files, "", NULL);
}

static rn_status open_encoders(rn_image_trainer *t, encoders *e) {
    const rn_pictures_info *info = rn_pictures_get_info(t->pictures);
    e->vae.config.vae = t->steps[0].vae;
    e->text.config.clip = t->clip;
    e->vae.config.vae.rows = e->text.config.clip.rows = 1;
    RN_TRY(open_encoder(t, "vae", RN_IMAGE_VAE, &e->vae_files, &e->vae));
    RN_TRY(open_encoder(t, "text_encoder", RN_IMAGE_CLIP, &e->text_files, &e->text));
    for (uint32_t i = 0; i < info->bucket_count; i++) {
        const rn_picture_bucket *b = &info->buckets[i];
        e->vae.config.vae.height = b->height / t->factor;
        e->vae.config.vae.width = b->width / t->factor;
        RN_TRY(rn_image_component_recipe(&e->vae, RN_IMAGE_ENCODER, &e->recipes[i]));
        snprintf(e->names[i], sizeof e->names[i], "encode %ux%u", b->width, b->height);
        e->phases[i] = (rn_program_phase){
            .name = e->names[i], .recipe = &e->recipes[i], .model = "vae", .runs = b->count};
    }
    e->count = info->bucket_count;
    RN_TRY(rn_image_component_recipe(&e->text, RN_IMAGE_FORWARD, &e->recipes[e->count]));
    e->phases[e->count] = (rn_program_phase){
        .name = "text", .recipe = &e->recipes[e->count], .model = "text", .runs = t->text_count};
    e->count++;
    return RN_OK;
}

static rn_status make_program(rn_image_trainer *t, encoders *e, rn_program **out) {
    const rn_trainer_options *o = &t->options.trainer;
    const rn_device_caps *caps = o->device ? rn_device_get_caps(o->device) : rn_cpu_caps();
    return rn_program_make(e->phases, e->count, caps, &o->plan, out);
}

rn_status rn_image_cache_plan(rn_image_trainer *t, rn_program **out) {
    encoders e = {.count = 0};
    rn_status s = open_encoders(t, &e);
    if (s == RN_OK) s = make_program(t, &e, out);
    close_encoders(&e);
    return s;
}

// ---- making -------------------------------------------------------------------------------------

typedef struct maker {
    rn_image_trainer *t;
    encoders encoders;
    rn_program *program;
    rn_program_run *run;
    rn_tokenizer *tokenizer;
    rn_writer *writer;
    float *image, *out; // of a picture; its moments, or a text
    uint64_t image_count, out_count;
    int32_t *tokens;
    float *pool;
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

// Begin, text, end; the rest is filled with the end token, as CLIP was trained.
static rn_status fill_tokens(maker *m, const char *text) {
    const rn_clip_config *c = &m->t->clip;
    const rn_tokenizer_info *info = rn_tokenizer_get_info(m->tokenizer);
    rn_tokens tokens = {0};
    rn_status s = rn_tokenizer_encode(m->tokenizer, rn_str_from(text), RN_ENCODE_PLAIN, &tokens);
    uint32_t at = 0;
    if (info->begin != RN_NO_TOKEN) m->tokens[at++] = (int32_t)info->begin;
    for (size_t i = 0; s == RN_OK && i < tokens.count && at + 1 < c->tokens; i++)
        m->tokens[at++] = (int32_t)tokens.ids[i];
    memset(m->pool, 0, c->tokens * sizeof *m->pool);
    m->pool[at] = 1;
    for (; at < c->tokens; at++)
        m->tokens[at] = (int32_t)c->end_token;
    rn_tokens_free(&tokens);
    return s;
}

static rn_status encode_texts(maker *m) {
    rn_image_trainer *t = m->t;
    const rn_clip_config *c = &t->clip;
    uint64_t bytes = (uint64_t)c->tokens * c->dim * sizeof(float);
    rn_session *s = rn_program_session(m->run, m->encoders.count - 1);
    for (uint64_t i = 0; i < t->text_count; i++) {
        RN_TRY(check_cancel(m));
        RN_TRY(fill_tokens(m, find_caption(t, i)));
        RN_TRY(rn_session_set(s, "tokens", m->tokens, c->tokens * sizeof(int32_t)));
        RN_TRY(rn_session_set(s, "pool", m->pool, c->tokens * sizeof(float)));
        RN_TRY(rn_session_run(s, 1));
        RN_TRY(rn_session_get(s, "hidden", m->out, bytes));
        RN_TRY(rn_writer_append(m->writer, m->out, bytes));
        tell(m, "text", i + 1, t->text_count);
    }
    return RN_OK;
}

static rn_status open_writer(maker *m, const char *path) {
    rn_image_trainer *t = m->t;
    uint64_t count = rn_pictures_get_info(t->pictures)->count, all = count + t->text_count;
    rn_arena memory;
    void *block = NULL;
    rn_arena_init(&memory, RN_HOST_IO, 0);
    rn_status s = rn_arena_array(&memory, all, sizeof(rn_write_tensor), &block);
    rn_write_tensor *tensors = block;
    for (uint64_t i = 0; s == RN_OK && i < all; i++) {
        char name[48];
        uint64_t *dims = NULL;
        bool is_text = i >= count;
        uint64_t number = is_text ? i - count : t->pictures->order[i];
        snprintf(name, sizeof name, is_text ? "text.%llu" : "latent.%llu",
                 (unsigned long long)number);
        s = rn_arena_array(&memory, 3, sizeof *dims, &block);
        dims = block;
        if (s == RN_OK) s = rn_arena_copy(&memory, name, strlen(name), &block);
        if (s != RN_OK) break;
        const rn_vae_config *v =
            &t->steps[is_text ? 0 : rn_pictures_get(t->pictures, number)->bucket].vae;
        dims[0] = is_text ? t->clip.tokens : v->height;
        dims[1] = is_text ? t->clip.dim : v->width;
        dims[2] = 2 * (uint64_t)v->latent_channels;
        tensors[i] = (rn_write_tensor){.name = rn_str_from(block),
                                       .dtype = RN_DTYPE_F32,
                                       .rank = is_text ? 2 : 3,
                                       .dims = dims};
    }
    rn_metadata made_of = {.key = RN_STR("made_of"),
                           .kind = RN_METADATA_TEXT,
                           .gguf_type = 8,
                           .text = rn_str_from(m->identity)};
    rn_writer_options options = {
        .metadata = &made_of, .metadata_count = 1, .buffer_bytes = 64 << 10};
    if (s == RN_OK) s = rn_writer_create(path, tensors, all, &options, &m->writer);
    rn_arena_free_all(&memory);
    return s;
}

static rn_status take_room(maker *m) {
    rn_image_trainer *t = m->t;
    void *block = NULL;
    m->out_count = (uint64_t)t->clip.tokens * t->clip.dim;
    for (uint32_t i = 0; i < t->pictures->info.bucket_count; i++) {
        const rn_picture_bucket *b = &t->pictures->info.buckets[i];
        m->image_count = rn_max_u64(m->image_count, (uint64_t)b->width * b->height * 3);
        m->out_count = rn_max_u64(m->out_count, latent_count(t, i));
    }
    RN_TRY(rn_arena_array(&t->memory, m->image_count, sizeof(float), &block));
    m->image = block;
    RN_TRY(rn_arena_array(&t->memory, m->out_count, sizeof(float), &block));
    m->out = block;
    RN_TRY(rn_arena_array(&t->memory, t->clip.tokens, sizeof(int32_t), &block));
    m->tokens = block;
    RN_TRY(rn_arena_array(&t->memory, t->clip.tokens, sizeof(float), &block));
    m->pool = block;
    return RN_OK;
}

static rn_status make_file(maker *m, const char *path) {
    rn_image_trainer *t = m->t;
    rn_weight_source weights[RN_PICTURE_BUCKETS + 1];
    rn_session_options options = {.device = t->options.trainer.device, .cancel = t->options.cancel};
    char tokenizer[RN_IMAGE_PATH];
    RN_TRY(rn_path_join(t->folder, "tokenizer", tokenizer, sizeof tokenizer));
    RN_TRY(rn_tokenizer_open(tokenizer, &m->tokenizer));
    RN_TRY(take_room(m));
    RN_TRY(open_encoders(t, &m->encoders));
    RN_TRY(make_program(t, &m->encoders, &m->program));
    for (uint32_t i = 0; i < m->encoders.count; i++)
        weights[i] = rn_image_component_weights(i + 1 == m->encoders.count ? &m->encoders.text
                                                                           : &m->encoders.vae);
    RN_TRY(rn_program_open(m->program, weights, &options, &m->run));
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

static void identify(maker *m) {
    static const char *const parts[][2] = {{"vae", "diffusion_pytorch_model.safetensors"},
                                           {"vae", "config.json"},
                                           {"text_encoder", "model.safetensors"},
                                           {"text_encoder", "config.json"}};
    const rn_image_trainer *t = m->t;
    const rn_pictures_info *info = rn_pictures_get_info(t->pictures);
    uint32_t pictures = 0, networks = 0;
    char path[RN_IMAGE_PATH];
    for (uint64_t i = 0; i < info->count; i++) {
        const rn_picture *p = rn_pictures_get(t->pictures, i);
        const rn_picture_bucket *b = &info->buckets[p->bucket];
        uint32_t sizes[3] = {b->width, b->height, p->validates};
        pictures = add_file(pictures, p->path);
        pictures = rn_crc32c(pictures, p->caption, strlen(p->caption) + 1);
        pictures = rn_crc32c(pictures, sizes, sizeof sizes);
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (rn_image_part_path(t->folder, parts[i][0], parts[i][1], path) == RN_OK)
            networks = add_file(networks, path);
    snprintf(m->identity, sizeof m->identity, "%llu pictures, %08x, %08x",
             (unsigned long long)info->count, pictures, networks);
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
    rn_tokenizer_close(m.tokenizer);
    close_encoders(&m.encoders);
    return s == RN_OK ? rn_checkpoint_open(path, &t->latents) : s;
}
