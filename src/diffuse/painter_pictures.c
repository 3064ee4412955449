// painter_pictures.c — pictures to latents and back.
#include "diffuse/painter.h"

#include "base/checked.h"
#include "memory/account.h"

#include <math.h>
#include <string.h>

// ---- encoding -----------------------------------------------------------------------------------

static bool is_tiny(const rn_painter *p) {
    return p->vae.kind == RN_IMAGE_TINY_VAE;
}

// The picture as the encoder takes it: -1 to 1, of a tiny one 0 to 1.
static rn_status read_pixels(const rn_painter *p, const rn_image *image, float *out) {
    rn_image_form form = {.height = p->drawing.height,
                          .width = p->drawing.width,
                          .channels_last = true,
                          .stretch = true,
                          .scale = is_tiny(p) ? 1.0f / 255 : 1.0f / 127.5f};
    for (int i = 0; i < 3; i++)
        form.mean[i] = is_tiny(p) ? 0 : 1, form.std[i] = 1;
    return rn_image_values(image, &form, out);
}

// Means, or with PyTorch's noise a sample, as diffusers draws it.
static void sample_latents(rn_painter *p, const float *moments, float *out) {
    const rn_vae_config *c = &p->vae.config.vae;
    uint64_t channels = p->channels, pixels = (uint64_t)p->high * p->wide;
    float *noise = p->extra;
    bool sampled = p->drawing.torch_noise && p->drawing.task == RN_DRAW;
    if (sampled) rn_torch_randn(&p->generator, noise, p->latent_count);
    for (uint64_t i = 0; i < pixels; i++)
        for (uint64_t k = 0; k < channels; k++) {
            float z = moments[i * 2 * channels + k];
            float log_variance = fminf(fmaxf(moments[i * 2 * channels + channels + k], -30), 20);
            if (sampled) z += expf(0.5f * log_variance) * noise[k * pixels + i];
            out[i * channels + k] = (z - c->shift) * c->scaling;
        }
}

static rn_status encode(rn_painter *p, const float *pixels, float *out /* latents of a picture */) {
    rn_session *session = rn_program_session(p->run, p->encode_phase);
    uint64_t bytes = (uint64_t)p->drawing.height * p->drawing.width * 3 * sizeof(float), got = 0;
    RN_TRY(rn_session_set(session, "image", pixels, bytes));
    RN_TRY(rn_session_run(session, 1));
    if (is_tiny(p)) return rn_session_get(session, "latent", out, p->latent_count * sizeof(float));
    void *moments = NULL;
    got = 2 * p->latent_count * sizeof(float);
    RN_TRY(rn_alloc(RN_HOST_OTHER, got, &moments));
    rn_status s = rn_session_get(session, "moments", moments, got);
    if (s == RN_OK) sample_latents(p, moments, out);
    rn_free(RN_HOST_OTHER, moments, got);
    return s;
}

// White, of half and more, is drawn anew. Latents take the pixel in their corner, as "nearest"
// does.
static rn_status read_mask(rn_painter *p, float *pixels /* (height, width, 3): the picture */) {
    uint32_t high = p->drawing.height, wide = p->drawing.width, factor = high / p->high;
    void *block = NULL;
    uint64_t bytes = (uint64_t)high * wide * sizeof(float);
    rn_image_form form = {
        .height = high, .width = wide, .channels = 1, .channels_last = true, .stretch = true};
    RN_TRY(rn_alloc(RN_HOST_OTHER, bytes, &block));
    float *mask = block;
    rn_status s = rn_image_values(p->drawing.mask, &form, mask);
    for (uint64_t i = 0; s == RN_OK && i < (uint64_t)high * wide; i++) {
        mask[i] = mask[i] >= 0.5f;
        for (int c = 0; c < 3; c++)
            if (mask[i] > 0) pixels[i * 3 + (uint64_t)c] = is_tiny(p) ? 0.5f : 0;
    }
    for (uint64_t y = 0; s == RN_OK && y < p->high; y++)
        for (uint64_t x = 0; x < p->wide; x++)
            p->mask[y * p->wide + x] = mask[y * factor * wide + x * factor];
    rn_free(RN_HOST_OTHER, block, bytes);
    return s;
}

rn_status rn_painter_encode_init(rn_painter *p) {
    void *block = NULL;
    uint64_t bytes = (uint64_t)p->drawing.height * p->drawing.width * 3 * sizeof(float);
    RN_TRY(rn_alloc(RN_HOST_OTHER, bytes, &block));
    rn_status s = read_pixels(p, p->drawing.init, block);
    if (s == RN_OK) s = encode(p, block, p->start);
    for (uint32_t b = 1; s == RN_OK && b < p->drawing.batch; b++)
        memcpy(p->start + b * p->latent_count, p->start, p->latent_count * sizeof(float));
    if (s == RN_OK && p->mask) s = read_mask(p, block);
    if (s == RN_OK && p->mask) s = encode(p, block, p->masked);
    rn_free(RN_HOST_OTHER, block, bytes);
    return s;
}

// ---- decoding -----------------------------------------------------------------------------------

static uint8_t to_byte(float x) {
    return (uint8_t)nearbyintf(fminf(fmaxf(x, 0), 1) * 255);
}

// A tile's latents as the decoder takes them, from (y, x) on.
static void cut_latents(const rn_painter *p, const float *latents, uint64_t y, uint64_t x,
                        uint64_t high, uint64_t wide, float *out) {
    float scaling = is_tiny(p) ? 1 : p->vae.config.vae.scaling;
    float shift = is_tiny(p) ? 0 : p->vae.config.vae.shift;
    for (uint64_t i = 0; i < high; i++)
        for (uint64_t j = 0; j < wide * p->channels; j++)
            out[i * wide * p->channels + j] =
                latents[((y + i) * p->wide + x) * p->channels + j] / scaling + shift;
}

// How much a tile counts at its place `at` of `size`: it rises over the overlap, where there is
// another before it, and falls where one comes behind.
static float ramp(uint64_t at, uint64_t size, uint64_t overlap, bool before, bool behind) {
    float weight = 1;
    if (before && at < overlap) weight *= ((float)at + 0.5f) / (float)overlap;
    if (behind && size - 1 - at < overlap)
        weight *= ((float)(size - 1 - at) + 0.5f) / (float)overlap;
    return weight;
}

typedef struct canvas {
    float *sums; // (height, width, 4): colours and weights; NULL: one tile is the picture
    rn_image *out;
    uint64_t overlap; // in pixels
} canvas;

static void add_tile(const rn_painter *p, const canvas *c, const float *made, uint64_t y,
                     uint64_t x, uint64_t high, uint64_t wide) {
    float scale = is_tiny(p) ? 1 : 0.5f, offset = is_tiny(p) ? 0 : 0.5f;
    uint64_t all_high = p->drawing.height, all_wide = p->drawing.width;
    for (uint64_t i = 0; i < high; i++)
        for (uint64_t j = 0; j < wide; j++) {
            const float *from = made + (i * wide + j) * 3;
            uint64_t at = (y + i) * all_wide + x + j;
            if (!c->sums) {
                for (uint64_t k = 0; k < 3; k++)
                    c->out->pixels[at * 3 + k] = to_byte(from[k] * scale + offset);
                continue;
            }
            float weight = ramp(i, high, c->overlap, y > 0, y + high < all_high) *
                           ramp(j, wide, c->overlap, x > 0, x + wide < all_wide);
            for (uint64_t k = 0; k < 3; k++)
                c->sums[at * 4 + k] += weight * (from[k] * scale + offset);
            c->sums[at * 4 + 3] += weight;
        }
}

static void finish(const rn_painter *p, const canvas *c) {
    uint64_t count = (uint64_t)p->drawing.height * p->drawing.width;
    for (uint64_t i = 0; c->sums && i < count; i++)
        for (uint64_t k = 0; k < 3; k++)
            c->out->pixels[i * 3 + k] = to_byte(c->sums[i * 4 + k] / c->sums[i * 4 + 3]);
}

static rn_status decode_tiles(rn_painter *p, const float *latents, const canvas *c) {
    rn_session *session = rn_program_session(p->run, p->decode_phase);
    bool tiny = is_tiny(p);
    uint64_t high = tiny ? p->vae.config.taesd.height : p->vae.config.vae.height;
    uint64_t wide = tiny ? p->vae.config.taesd.width : p->vae.config.vae.width;
    uint64_t factor = p->drawing.height / p->high, overlap = c->overlap / factor;
    uint64_t bytes = high * wide * p->channels * sizeof(float);
    for (uint64_t y = 0;; y += high - overlap) {
        if (y + high > p->high) y = p->high - high;
        for (uint64_t x = 0;; x += wide - overlap) {
            uint64_t got = 0;
            if (x + wide > p->wide) x = p->wide - wide;
            cut_latents(p, latents, y, x, high, wide, p->extra);
            RN_TRY(rn_session_set(session, "latent", p->extra, bytes));
            RN_TRY(rn_session_run(session, 1));
            const float *made = rn_session_output(session, "image", &got);
            if (!made || got != high * wide * factor * factor * 3 * sizeof(float))
                return rn_fail(RN_INTERNAL, "the decoder made no picture");
            add_tile(p, c, made, y * factor, x * factor, high * factor, wide * factor);
            if (x + wide >= p->wide) break;
        }
        if (y + high >= p->high) break;
    }
    rn_session_facts facts = rn_session_get_facts(session);
    const rn_plan_summary *plan = rn_plan_get_summary(rn_program_plan(p->program, p->decode_phase));
    if (facts.live_peak_bytes > p->facts.live_peak_bytes) {
        p->facts.live_peak_bytes = facts.live_peak_bytes;
        p->facts.planned_peak_bytes = plan->live_peak_bytes;
    }
    if (facts.live_mismatch_step != UINT64_MAX) p->facts.as_planned = false;
    return RN_OK;
}

static rn_status decode_one(rn_painter *p, const float *latents, rn_image *out) {
    void *sums = NULL;
    uint64_t bytes = (uint64_t)p->drawing.height * p->drawing.width * 4 * sizeof(float);
    bool tiled =
        p->drawing.tile && p->drawing.tile < rn_max_u64(p->drawing.height, p->drawing.width);
    RN_TRY(rn_image_create(p->drawing.width, p->drawing.height, 3, out));
    if (tiled) RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, bytes, &sums));
    canvas c = {.sums = sums, .out = out, .overlap = tiled ? p->drawing.overlap : 0};
    rn_status s = decode_tiles(p, latents, &c);
    if (s == RN_OK) finish(p, &c);
    rn_free(RN_HOST_OTHER, sums, bytes);
    return s;
}

rn_status rn_painter_decode(rn_painter *p, rn_image *out_images) {
    for (uint32_t b = 0; b < p->drawing.batch; b++)
        RN_TRY(decode_one(p, p->latents + b * p->latent_count, &out_images[b]));
    return RN_OK;
}
