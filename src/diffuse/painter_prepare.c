// painter_prepare.c — what of the denoiser is the same in all steps, or known before them: made
// once by a phase of its own.
//
//     UNet   context ─▶ keys and values of the text ─▶ states of the denoiser
//     Flux   times of all steps, guidance, pooled text ─▶ modulations ─▶ an input of each step
//
// The weights that make them are a seventh of SDXL's and a quarter of Flux's: they are not there,
// or brought, in any step. Only where runs have a fixed number of rows (rows_at_once).
#include "diffuse/painter.h"

#include "base/checked.h"
#include "memory/account.h"

#include <string.h>

enum { TIME = 256, STEPS_AT_ONCE = 32 };

static bool is_flux(const rn_painter *p) {
    return p->model->family == RN_FAMILY_FLUX;
}

static uint32_t count_steps(const rn_painter *p) {
    return p->schedule.steps - p->schedule.first;
}

static uint64_t modulation_count(const rn_painter *p) {
    const rn_flux_config *c = &p->denoiser.config.flux;
    return (uint64_t)rn_flux_chunks(c) * c->heads * c->head_dim;
}

// A UNet without attention has nothing to prepare.
bool rn_painter_prepares(const rn_painter *p) {
    rn_image_name name;
    uint64_t channels;
    if (p->rows_at_once == 0 || p->drawing.task != RN_DRAW) return false;
    return is_flux(p) || rn_unet_text_layer(&p->denoiser.config.unet, 0, &name, &channels);
}

void rn_painter_settle_preparation(rn_painter *p) {
    p->prepare = p->denoiser;
    if (!rn_painter_prepares(p)) return;
    if (is_flux(p)) {
        uint64_t rows = rn_min_u64(count_steps(p), STEPS_AT_ONCE);
        p->prepare.config.flux.rows = (uint32_t)rn_max_u64(rows, 1);
        p->denoiser.config.flux.modulated = true;
    } else {
        rn_unet_config *c = &p->denoiser.config.unet;
        c->text_type = rn_image_halves(c->files, "conv_in.weight");
    }
}

uint64_t rn_painter_modulation_count(const rn_painter *p) {
    return rn_painter_prepares(p) && is_flux(p) ? count_steps(p) * modulation_count(p) : 0;
}

// ---- Flux ---------------------------------------------------------------------------------------

static rn_status set_times(const rn_painter_task *task, uint64_t first, uint64_t count) {
    rn_painter *p = task->painter;
    const rn_flux_config *c = &p->denoiser.config.flux;
    const rn_schedule *s = &p->schedule;
    float times[STEPS_AT_ONCE][TIME], guidances[STEPS_AT_ONCE][TIME];
    void *pooled = NULL;
    uint64_t row = c->pooled_channels * sizeof(float);
    for (uint64_t i = 0; i < count; i++) {
        rn_sinusoid((float)s->times[s->first + first + i], TIME, times[i]);
        rn_sinusoid((float)p->drawing.guidance * 1000, TIME, guidances[i]);
    }
    RN_TRY(rn_session_set(task->session, "time", times, count * sizeof times[0]));
    if (c->guidance)
        RN_TRY(rn_session_set(task->session, "guidance", guidances, count * sizeof times[0]));
    RN_TRY(rn_alloc(RN_HOST_OTHER, count * row, &pooled));
    for (uint64_t i = 0; i < count; i++)
        memcpy((char *)pooled + i * row, p->pooled, row);
    rn_status status = rn_session_set(task->session, "pooled", pooled, count * row);
    rn_free(RN_HOST_OTHER, pooled, count * row);
    return status;
}

static rn_status take_modulations(const rn_painter_task *task, uint64_t first, uint64_t count) {
    rn_painter *p = task->painter;
    const rn_flux_config *c = &p->denoiser.config.flux;
    uint64_t dim = (uint64_t)c->heads * c->head_dim, all = modulation_count(p), got = 0;
    for (uint32_t chunk = 0; chunk < rn_flux_chunks(c); chunk++) {
        const float *made =
            rn_session_output(task->session, rn_image_named("modulation.%u", chunk).text, &got);
        if (!made || got != count * dim * sizeof *made)
            return rn_fail(RN_INTERNAL, "there is no modulation %u", chunk);
        for (uint64_t i = 0; i < count; i++)
            memcpy(p->modulations + (first + i) * all + chunk * dim, made + i * dim,
                   dim * sizeof *made);
    }
    return RN_OK;
}

const float *rn_painter_modulation(const rn_painter *p, uint32_t step) {
    return p->modulations + (step - p->schedule.first) * modulation_count(p);
}

// ---- UNets --------------------------------------------------------------------------------------

// All pictures have the same texts.
static rn_status set_context(const rn_painter_task *task, uint64_t first, uint64_t count) {
    const rn_painter *p = task->painter;
    uint64_t row = (uint64_t)p->context_tokens * p->context_channels;
    return rn_session_set(task->session, "context", p->context + first * row,
                          count * row * sizeof(float));
}

static rn_status put_text(const rn_painter_task *task, const char *name, uint64_t elements,
                          void *scratch) {
    rn_painter *p = task->painter;
    rn_dtype type = p->denoiser.config.unet.text_type;
    uint64_t got = 0;
    const float *made = rn_session_output(task->session, name, &got);
    if (!made || got != elements * sizeof *made)
        return rn_fail(RN_INTERNAL, "there is no '%s'", name);
    RN_TRY(rn_dtype_convert(RN_DTYPE_F32, made, type, scratch, elements));
    return rn_session_put(rn_program_session(p->run, p->denoise_phase), name, scratch,
                          elements * sizeof(uint16_t));
}

static rn_status take_text(const rn_painter_task *task, uint64_t first, uint64_t count) {
    const rn_unet_config *c = &task->painter->denoiser.config.unet;
    rn_image_name name;
    uint64_t channels, tokens = count * c->context_tokens;
    (void)first;
    for (uint32_t i = 0; rn_unet_text_layer(c, i, &name, &channels); i++) {
        void *scratch = NULL;
        uint64_t bytes = tokens * channels * sizeof(uint16_t);
        RN_TRY(rn_alloc(RN_HOST_OTHER, bytes, &scratch));
        rn_status s =
            put_text(task, rn_image_named("%s.k", name.text).text, tokens * channels, scratch);
        if (s == RN_OK)
            s = put_text(task, rn_image_named("%s.v", name.text).text, tokens * channels, scratch);
        rn_free(RN_HOST_OTHER, scratch, bytes);
        RN_TRY(s);
    }
    return RN_OK;
}

rn_status rn_painter_prepare(rn_painter *p) {
    rn_painter_task flux = {.set = set_times, .take = take_modulations};
    rn_painter_task unet = {.set = set_context, .take = take_text};
    if (p->prepare_phase == RN_NO_PHASE || p->prepared) return RN_OK;
    RN_TRY(rn_painter_run_rows(p, p->prepare_phase, is_flux(p) ? count_steps(p) : p->rows_at_once,
                               is_flux(p) ? flux : unet));
    p->prepared = true;
    return RN_OK;
}
