// painter_text.c — prompts to what the denoiser reads of them.
//
//     Stable Diffusion 1, 2   CLIP's rows
//     XL                      both CLIPs' rows side by side; the second one's pooled row
//     Flux                    T5's rows; CLIP's pooled row
//
#include "diffuse/painter.h"
#include "diffuse/prompt_cache.h"

#include "base/checked.h"
#include "memory/account.h"

#include <ration/device.h>

#include <stdio.h>
#include <string.h>

enum { PROMPTS = 2, MOST_TOKENS = 4096 };

typedef struct reading {
    const rn_image_component *c;
    int32_t tokens[PROMPTS][MOST_TOKENS];
    float pool[PROMPTS][MOST_TOKENS]; // 1 at the end token
    uint32_t length, count;           // of a prompt; prompts
    float *hidden;                    // (count, length, dim)
    float *pooled;                    // (count, pooled)
    uint64_t dim, pooled_dim;
} reading;

// ---- tokens -------------------------------------------------------------------------------------

static rn_status read_tokens(rn_painter *p, uint32_t index, reading *r) {
    const char *const texts[] = {p->drawing.negative, p->drawing.prompt};
    if (r->length > MOST_TOKENS)
        return rn_fail(RN_UNSUPPORTED, "prompts of %u tokens are too long", r->length);
    for (uint32_t i = 0; i < r->count; i++)
        RN_TRY(rn_diffusion_tokens(p->model, index, texts[r->count == 1 ? 1 : i], r->length,
                                   r->tokens[i], r->pool[i]));
    return RN_OK;
}

// ---- encoders -----------------------------------------------------------------------------------

static rn_status set_clip(const rn_painter_task *task, uint64_t first, uint64_t count) {
    const reading *r = task->self;
    // Prompts lie MOST_TOKENS apart.
    int32_t tokens[PROMPTS * MOST_TOKENS];
    float pool[PROMPTS * MOST_TOKENS];
    for (uint64_t i = 0; i < count; i++) {
        memcpy(tokens + i * r->length, r->tokens[first + i], r->length * sizeof *tokens);
        memcpy(pool + i * r->length, r->pool[first + i], r->length * sizeof *pool);
    }
    uint64_t bytes = count * r->length * sizeof(float);
    RN_TRY(rn_session_set(task->session, "tokens", tokens, bytes));
    return rn_session_set(task->session, "pool", pool, bytes);
}

static rn_status take_clip(const rn_painter_task *task, uint64_t first, uint64_t count) {
    reading *r = task->self;
    RN_TRY(rn_session_get(task->session, "hidden", r->hidden + first * r->length * r->dim,
                          count * r->length * r->dim * sizeof(float)));
    return rn_session_get(task->session, "pooled", r->pooled + first * r->pooled_dim,
                          count * r->pooled_dim * sizeof(float));
}

// A text is all rows of a run.
static rn_status run_t5(rn_painter *p, uint32_t phase, reading *r) {
    rn_session *session = rn_program_session(p->run, phase);
    int32_t span[MOST_TOKENS][2];
    for (uint32_t i = 0; i < r->length; i++)
        span[i][0] = 0, span[i][1] = (int32_t)r->length;
    for (uint32_t i = 0; i < r->count; i++) {
        RN_TRY(rn_session_set(session, "tokens", r->tokens[i], r->length * sizeof(int32_t)));
        RN_TRY(rn_session_set(session, "span", span, r->length * sizeof span[0]));
        RN_TRY(rn_session_run(session, r->length));
        RN_TRY(rn_session_get(session, "hidden", r->hidden + i * r->length * r->dim,
                              r->length * r->dim * sizeof(float)));
    }
    return RN_OK;
}

// ---- what the denoiser reads --------------------------------------------------------------------

static void fill_rows(rn_painter *p, uint32_t index, const reading *r) {
    bool flux = p->model->family == RN_FAMILY_FLUX, xl = p->model->family == RN_FAMILY_SDXL;
    uint64_t first = xl && index ? p->context_channels - r->dim : 0;
    bool has_context = !flux || index == 1, has_pooled = flux ? index == 0 : xl && index == 1;
    bool zero = xl && p->guided && p->model->zero_negative && !p->drawing.negative[0];
    for (uint64_t row = 0; row < p->rows; row++) {
        uint32_t prompt = rn_painter_row_prompt(p, row);
        bool empty = zero && prompt == 0;
        for (uint64_t t = 0; has_context && t < r->length; t++) {
            float *to = p->context + (row * p->context_tokens + t) * p->context_channels + first;
            const float *from = r->hidden + (prompt * (uint64_t)r->length + t) * r->dim;
            if (empty)
                memset(to, 0, r->dim * sizeof *to);
            else
                memcpy(to, from, r->dim * sizeof *to);
        }
        if (!has_pooled) continue;
        float *to = p->pooled + row * p->pooled_channels;
        if (empty)
            memset(to, 0, p->pooled_channels * sizeof *to);
        else
            memcpy(to, r->pooled + prompt * r->pooled_dim, p->pooled_channels * sizeof *to);
    }
}

// ---- on disk ------------------------------------------------------------------------------------

static rn_prompt prompt_at(const reading *r, uint32_t i) {
    uint64_t hidden = r->length * r->dim;
    return (rn_prompt){r->hidden + i * hidden, r->pooled + i * r->pooled_dim, hidden,
                       r->pooled_dim};
}

static const char *target_of(const rn_painter *p) {
    return p->options.session.device ? rn_device_target(p->options.session.device) : NULL;
}

// Whether all prompts are in the folder; then r has them.
static bool find_cached(const rn_painter *p, const rn_image_component *files, reading *r) {
    for (uint32_t i = 0; i < r->count; i++) {
        rn_prompt_key key = rn_prompt_key_of(files, target_of(p), r->tokens[i], r->length);
        rn_prompt prompt = prompt_at(r, i);
        if (!rn_prompt_load(p->drawing.cache, &key, &prompt)) return false;
    }
    return true;
}

static rn_status keep(const rn_painter *p, const rn_image_component *files, const reading *r) {
    for (uint32_t i = 0; i < r->count; i++) {
        rn_prompt_key key = rn_prompt_key_of(files, target_of(p), r->tokens[i], r->length);
        rn_prompt prompt = prompt_at(r, i);
        RN_TRY(rn_prompt_store(p->drawing.cache, &key, &prompt));
    }
    return RN_OK;
}

// ---- all ----------------------------------------------------------------------------------------

static rn_status encode_all(rn_painter *p, uint32_t index, reading *r) {
    rn_painter_task task = {.self = r, .set = set_clip, .take = take_clip};
    if (r->c->kind == RN_IMAGE_CLIP)
        RN_TRY(rn_painter_run_rows(p, p->text_phase[index], r->count, task));
    else
        RN_TRY(run_t5(p, p->text_phase[index], r));
    return p->drawing.cache ? keep(p, &p->model->text[index], r) : RN_OK;
}

// lookup: from the folder alone, before anything is planned.
static rn_status read_with(rn_painter *p, uint32_t index, reading *r, bool lookup) {
    RN_TRY(read_tokens(p, index, r));
    if (lookup && !find_cached(p, &p->model->text[index], r)) return RN_OK;
    if (!lookup) RN_TRY(encode_all(p, index, r));
    fill_rows(p, index, r);
    p->has_text[index] = true;
    p->prepared = false;
    if (lookup) p->cached_prompts += r->count;
    return RN_OK;
}

static rn_status read_prompts(rn_painter *p, uint32_t index, reading *r, bool lookup) {
    const rn_image_component *c = &p->text[index];
    bool clip = c->kind == RN_IMAGE_CLIP;
    void *hidden = NULL, *pooled = NULL;
    *r = (reading){.c = c, .count = p->guided ? 2 : 1};
    r->length = clip ? c->config.clip.tokens : p->context_tokens;
    r->dim = clip ? c->config.clip.dim : c->config.t5.dim;
    r->pooled_dim = clip && c->config.clip.projection ? c->config.clip.projection : r->dim;
    size_t hidden_count = (size_t)(r->count * (uint64_t)r->length * r->dim);
    size_t pooled_count = (size_t)(r->count * r->pooled_dim);
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, hidden_count, sizeof(float), &hidden));
    rn_status s = rn_alloc_zeroed(RN_HOST_OTHER, pooled_count, sizeof(float), &pooled);
    r->hidden = hidden;
    r->pooled = pooled;
    if (s == RN_OK) s = read_with(p, index, r, lookup);
    rn_free(RN_HOST_OTHER, hidden, hidden_count * sizeof(float));
    rn_free(RN_HOST_OTHER, pooled, pooled_count * sizeof(float));
    return s;
}

static rn_status read_all(rn_painter *p, bool lookup) {
    void *block = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(reading), &block));
    rn_status s = RN_OK;
    for (uint32_t i = 0; s == RN_OK && i < p->model->text_count; i++)
        if (!p->has_text[i]) s = read_prompts(p, i, block, lookup);
    rn_free(RN_HOST_OTHER, block, sizeof(reading));
    return s;
}

rn_status rn_painter_read_prompts(rn_painter *p) {
    return read_all(p, false);
}

rn_status rn_painter_find_prompts(rn_painter *p) {
    return p->drawing.cache && p->drawing.task == RN_DRAW ? read_all(p, true) : RN_OK;
}
