// painter_steps.c — noise, and the denoiser's steps through it.
#include "diffuse/painter.h"

#include "graph/philox.h"

#include <math.h>
#include <string.h>

enum { TIME = 256 };

// ---- noise --------------------------------------------------------------------------------------

// Of PyTorch's generator: one after the other as (batch, channels, high, wide).
static void make_torch_noise(rn_painter *p, float *out) {
    uint64_t pixels = (uint64_t)p->high * p->wide, all = p->drawing.batch * p->latent_count;
    float *made = p->output; // as large, and not in use between steps
    rn_torch_randn(&p->generator, made, all);
    for (uint64_t b = 0; b < p->drawing.batch; b++)
        for (uint64_t c = 0; c < p->channels; c++)
            for (uint64_t i = 0; i < pixels; i++)
                out[(b * pixels + i) * p->channels + c] = made[(b * p->channels + c) * pixels + i];
}

void rn_painter_make_noise(rn_painter *p, uint32_t stream, float *out) {
    if (p->drawing.torch_noise) {
        make_torch_noise(p, out);
        return;
    }
    for (uint64_t b = 0; b < p->drawing.batch; b++)
        for (uint64_t i = 0; i < p->latent_count; i++)
            out[b * p->latent_count + i] = rn_philox_normal(p->drawing.seed + b, stream, i);
}

// ---- rows ---------------------------------------------------------------------------------------

void rn_flux_pack(const float *x, uint64_t high, uint64_t wide, uint64_t channels, bool unpack,
                  float *out) {
    for (uint64_t y = 0; y < high; y++)
        for (uint64_t w = 0; w < wide; w++)
            for (uint64_t c = 0; c < channels; c++) {
                uint64_t plain = (y * wide + w) * channels + c;
                uint64_t packed =
                    (y / 2 * (wide / 2) + w / 2) * channels * 4 + c * 4 + y % 2 * 2 + w % 2;
                if (unpack)
                    out[plain] = x[packed];
                else
                    out[packed] = x[plain];
            }
}

static void pack(const rn_painter *p, const float *x, float *out, bool unpack) {
    rn_flux_pack(x, p->high, p->wide, p->channels, unpack, out);
}

// The sample that the denoiser is given, beside the mask and the masked picture where it takes
// them: all rows of a picture have the same.
static void fill_samples(rn_painter *p,
                         const float *x /* (batch, latents), as the step has them */) {
    bool flux = p->model->family == RN_FAMILY_FLUX;
    uint64_t pixels = (uint64_t)p->high * p->wide;
    uint64_t in = flux ? p->channels : p->denoiser.config.unet.in_channels;
    for (uint64_t row = 0; row < p->rows; row++) {
        const float *from = x + rn_painter_row_picture(p, row) * p->latent_count;
        float *to = p->input + row * pixels * in;
        if (flux) {
            pack(p, from, to, false);
            continue;
        }
        for (uint64_t i = 0; i < pixels; i++) {
            memcpy(to + i * in, from + i * p->channels, p->channels * sizeof *to);
            if (in == p->channels) continue;
            to[i * in + p->channels] = p->mask[i];
            memcpy(to + i * in + p->channels + 1, p->masked + i * p->channels,
                   p->channels * sizeof *to);
        }
    }
}

static void fill_times(rn_painter *p, double time) {
    bool flux = p->model->family == RN_FAMILY_FLUX;
    uint32_t dim = flux ? TIME : p->denoiser.config.unet.channels[0];
    for (uint64_t row = 0; row < p->rows; row++)
        rn_sinusoid((float)time, dim, p->times + row * dim);
}

// What stays the same in all steps.
static void fill_constants(rn_painter *p) {
    const rn_drawing *d = &p->drawing;
    bool flux = p->model->family == RN_FAMILY_FLUX;
    if (flux || p->guidances) {
        // Flux is told the guidance; a distilled UNet what is beyond 1.
        uint32_t dim = flux ? TIME : p->denoiser.config.unet.guidance_channels;
        float value = (float)(flux ? d->guidance : d->guidance - 1) * 1000;
        for (uint64_t row = 0; row < p->rows; row++)
            rn_sinusoid(value, dim, p->guidances + row * dim);
    }
    uint64_t patches = (uint64_t)p->high * p->wide / 4, tokens = p->context_tokens + patches;
    for (uint64_t i = 0; flux && i < p->rows * patches; i++) {
        int32_t *at = p->positions + ((i / patches) * tokens + p->context_tokens + i % patches) * 3;
        at[1] = (int32_t)(i % patches / (p->wide / 2));
        at[2] = (int32_t)(i % patches % (p->wide / 2));
    }
    if (!p->added) return;
    const rn_unet_config *u = &p->denoiser.config.unet;
    const float sizes[] = {(float)d->height, (float)d->width, 0, 0,
                           (float)d->height, (float)d->width};
    for (uint64_t row = 0; row < p->rows; row++) {
        float *to = p->added + row * u->added_channels;
        memcpy(to, p->pooled + row * p->pooled_channels, p->pooled_channels * sizeof *to);
        for (int i = 0; i < 6; i++)
            rn_sinusoid(sizes[i], u->added_time_dim,
                        to + p->pooled_channels + (uint64_t)i * u->added_time_dim);
    }
}

typedef struct row_input {
    const char *name;
    const void *data;
    uint64_t elements; // of a row, of 4 bytes each
} row_input;

static rn_status set_modulation(const rn_painter_task *task) {
    const rn_painter *p = task->painter;
    const uint32_t *step = task->self;
    const rn_flux_config *c = &p->denoiser.config.flux;
    return rn_session_set(task->session, "modulation", rn_painter_modulation(p, *step),
                          (uint64_t)rn_flux_chunks(c) * c->heads * c->head_dim * sizeof(float));
}

static rn_status set_rows(const rn_painter_task *task, uint64_t first, uint64_t count) {
    rn_painter *p = task->painter;
    const rn_unet_config *u = &p->denoiser.config.unet;
    const rn_flux_config *f = &p->denoiser.config.flux;
    bool flux = p->model->family == RN_FAMILY_FLUX;
    uint64_t pixels = (uint64_t)p->high * p->wide;
    const row_input inputs[] = {
        {"sample", p->input, flux ? p->latent_count : pixels * u->in_channels},
        {"time", p->times, flux ? TIME : u->channels[0]},
        {"context", p->context, (uint64_t)p->context_tokens * p->context_channels},
        {"added", p->added, p->added ? u->added_channels : 0},
        {"guidance", p->guidances,
         flux ? (f->guidance ? TIME : 0) : (uint64_t)u->guidance_channels},
        {"pooled", p->pooled, flux ? p->pooled_channels : 0},
        {"positions", p->positions, flux ? (p->context_tokens + pixels / 4) * 3 : 0}};
    const rn_graph *graph = rn_plan_graph(rn_program_plan(p->program, p->denoise_phase));
    if (flux && f->modulated) RN_TRY(set_modulation(task));
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (inputs[i].elements && rn_graph_find(graph, RN_ROLE_INPUT, inputs[i].name)) // else: made
            RN_TRY(rn_session_set(task->session, inputs[i].name,
                                  (const float *)inputs[i].data + first * inputs[i].elements,
                                  count * inputs[i].elements * sizeof(float)));
    return RN_OK;
}

static rn_status take_rows(const rn_painter_task *task, uint64_t first, uint64_t count) {
    rn_painter *p = task->painter;
    const char *name = p->model->family == RN_FAMILY_FLUX ? "velocity" : "noise";
    p->facts.runs++;
    return rn_session_get(task->session, name, p->output + first * p->latent_count,
                          count * p->latent_count * sizeof(float));
}

// One answer a picture, in the first rows of `output`.
static void guide(rn_painter *p) {
    uint64_t all = p->drawing.batch * p->latent_count;
    if (p->model->family == RN_FAMILY_FLUX) {
        for (uint64_t b = 0; b < p->drawing.batch; b++) {
            float *answer = p->output + b * p->latent_count;
            memcpy(p->input, answer, p->latent_count * sizeof *answer);
            pack(p, p->input, answer, true);
        }
        return;
    }
    float by = (float)p->drawing.guidance;
    for (uint64_t i = 0; p->guided && i < all; i++) {
        uint64_t b = i / p->latent_count, at = i % p->latent_count;
        uint64_t row = p->rows_at_once ? b * p->rows_at_once : b;
        uint64_t beside = p->rows_at_once ? 1 : p->drawing.batch; // the same picture with its text
        float without = p->output[row * p->latent_count + at];
        float with = p->output[(row + beside) * p->latent_count + at];
        p->output[i] = without + by * (with - without);
    }
}

// ---- steps --------------------------------------------------------------------------------------

// Outside of the mask a picture stays what it was, with the noise of the next step.
static void keep_outside(rn_painter *p, uint32_t step) {
    uint64_t pixels = (uint64_t)p->high * p->wide, all = p->drawing.batch * p->latent_count;
    rn_schedule_add_noise(&p->schedule, step + 1, p->start, p->noise, p->extra, all);
    for (uint64_t i = 0; i < all; i++) {
        float drawn = p->mask[i / p->channels % pixels];
        p->latents[i] = drawn * p->latents[i] + (1 - drawn) * p->extra[i];
    }
}

static rn_status take_step(rn_painter *p, uint32_t step) {
    rn_painter_task task = {.self = &step, .set = set_rows, .take = take_rows};
    uint64_t all = p->drawing.batch * p->latent_count;
    rn_schedule *s = &p->schedule;
    rn_schedule_input(s, step, p->latents, p->extra, all);
    fill_samples(p, p->extra);
    fill_times(p, s->times[step]);
    RN_TRY(rn_painter_run_rows(p, p->denoise_phase, p->rows, task));
    guide(p);
    if (p->preview.program)
        rn_schedule_clean(s, step, p->output, p->latents, p->preview.clean, p->latent_count);
    if (s->needs_noise) {
        // PyTorch's noise is made where the answer lies: that moves first.
        memcpy(p->input, p->output, all * sizeof(float));
        rn_painter_make_noise(p, 1 + step, p->extra);
        rn_schedule_step(s, step, p->input, p->extra, p->latents, all);
    } else {
        rn_schedule_step(s, step, p->output, NULL, p->latents, all);
    }
    if (p->mask && !p->model->info.inpaints) keep_outside(p, step);
    return RN_OK;
}

rn_status rn_painter_denoise(rn_painter *p) {
    rn_schedule *s = &p->schedule;
    uint64_t all = p->drawing.batch * p->latent_count;
    s->has_last = false;
    fill_constants(p);
    rn_painter_make_noise(p, 0, p->noise);
    if (s->first > 0 || (p->start && !p->model->info.inpaints)) {
        rn_schedule_add_noise(s, s->first, p->start, p->noise, p->latents, all);
    } else {
        for (uint64_t i = 0; i < all; i++)
            p->latents[i] = p->noise[i] * s->initial;
    }
    for (uint32_t step = s->first; step < s->steps; step++) {
        RN_TRY(take_step(p, step));
        if (p->drawing.on_step)
            RN_TRY(p->drawing.on_step(p->drawing.self, step + 1 - s->first, s->steps - s->first,
                                      p->latents));
    }
    return RN_OK;
}
