// painter_preview.c — a picture while it is drawn: what the denoiser thinks that it will be,
// averaged to few latents and decoded by a small network.
//
// The decoder runs on the CPU with a plan of its own, beside the program: within its arena the
// denoiser's weights would have to leave for every look. What it takes is reserved before the
// program is planned, so the budget holds for both.
#include "diffuse/painter.h"

#include "base/checked.h"
#include "memory/account.h"

#include "device/device.h"

#include <math.h>

uint64_t rn_painter_preview_bytes(const rn_painter *painter) {
    const rn_painter_previewer *v = &painter->preview;
    return v->program ? rn_program_get_summary(v->program)->planned_bytes : 0;
}

void rn_painter_leave_preview(rn_painter *p) {
    rn_painter_previewer *v = &p->preview;
    rn_program_close(v->run);
    rn_program_destroy(v->program);
    if (v->program) rn_recipe_destroy(&v->recipe);
    v->run = NULL;
    v->program = NULL;
}

static rn_status make_program(rn_painter_previewer *v, const rn_plan_options *plan) {
    rn_program_phase phase = {.name = "preview", .recipe = &v->recipe, .model = "preview"};
    return rn_program_make(&phase, 1, rn_cpu_caps(), plan, &v->program);
}

rn_status rn_painter_plan_preview(rn_painter *p, bool tight) {
    rn_painter_previewer *v = &p->preview;
    uint64_t least = 0;
    if (!p->drawing.preview || p->drawing.task != RN_DRAW) return RN_OK;
    if (tight && v->program) least = rn_program_get_summary(v->program)->smallest_budget_bytes;
    rn_painter_leave_preview(p);
    uint32_t longer = (uint32_t)rn_max_u64(p->high, p->wide);
    uint64_t pixels = (uint64_t)longer * rn_decoder_factor(&p->model->preview);
    v->pool = (uint32_t)rn_div_up(pixels, p->drawing.preview);
    v->pool = (uint32_t)rn_min_u64(v->pool, rn_min_u64(p->high, p->wide));
    v->high = p->high / v->pool;
    v->wide = p->wide / v->pool;
    v->decoder = p->model->preview;
    rn_painter_size_vae(&v->decoder, v->high, v->wide);
    RN_TRY(rn_image_component_recipe(&v->decoder, RN_IMAGE_FORWARD, &v->recipe));
    rn_status s = make_program(v, &(rn_plan_options){.budget_bytes = least});
    if (s != RN_OK) rn_recipe_destroy(&v->recipe);
    return s;
}

// (high, wide, channels), as the decoder takes them.
static void average(const rn_painter *p, float *out) {
    const rn_painter_previewer *v = &p->preview;
    bool tiny = v->decoder.kind == RN_IMAGE_TINY_VAE;
    float scaling = tiny ? 1 : v->decoder.config.vae.scaling;
    float shift = tiny ? 0 : v->decoder.config.vae.shift;
    float count = (float)v->pool * (float)v->pool;
    for (uint64_t y = 0; y < v->high; y++)
        for (uint64_t x = 0; x < v->wide; x++)
            for (uint64_t k = 0; k < p->channels; k++) {
                float sum = 0;
                for (uint64_t i = 0; i < v->pool; i++)
                    for (uint64_t j = 0; j < v->pool; j++)
                        sum +=
                            v->clean[((y * v->pool + i) * p->wide + x * v->pool + j) * p->channels +
                                     k];
                *out++ = sum / count / scaling + shift;
            }
}

static rn_status open_run(rn_painter *p) {
    rn_painter_previewer *v = &p->preview;
    rn_weight_source weights = rn_image_component_weights(&v->decoder);
    rn_device *device = p->options.session.device;
    rn_session_options options = {.cancel = p->options.session.cancel};
    if (device && !rn_device_get_caps(device)->own_memory && !rn_device_get_caps(device)->compiles)
        options.device = device; // the CPU, with its threads
    return v->run ? RN_OK : rn_program_open(v->program, &weights, &options, &v->run);
}

rn_status rn_painter_preview(rn_painter *painter, rn_image *out) {
    rn_painter *p = painter;
    rn_painter_previewer *v = &p->preview;
    bool tiny = v->decoder.kind == RN_IMAGE_TINY_VAE;
    uint64_t factor = rn_decoder_factor(&v->decoder), got = 0;
    uint64_t high = v->high * factor, wide = v->wide * factor;
    *out = (rn_image){0};
    if (!v->program) return rn_fail(RN_INVALID, "the drawing has no previews");
    RN_TRY(open_run(p));
    rn_session *session = rn_program_session(v->run, 0);
    average(p, p->extra);
    RN_TRY(rn_session_set(session, "latent", p->extra,
                          (uint64_t)v->high * v->wide * p->channels * sizeof(float)));
    RN_TRY(rn_session_run(session, 1));
    const float *made = rn_session_output(session, "image", &got);
    if (!made || got != high * wide * 3 * sizeof(float))
        return rn_fail(RN_INTERNAL, "the decoder made no picture");
    RN_TRY(rn_image_create((uint32_t)wide, (uint32_t)high, 3, out));
    for (uint64_t i = 0; i < high * wide * 3; i++) {
        float value = tiny ? made[i] : made[i] * 0.5f + 0.5f;
        out->pixels[i] = (uint8_t)nearbyintf(fminf(fmaxf(value, 0), 1) * 255);
    }
    return RN_OK;
}
