// painter.c — see painter.h: sizes, memory, the program, and the phases one behind the other.
#include "diffuse/painter.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/reserved.h"
#include "graph/fuse.h"
#include "memory/account.h"
#include "plan/plan.h"

#include <ration/device.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FROM RN_HOST_OTHER
enum { MOST_SIDE = 1 << 14, MOST_BATCH = 1024, FLUX_TIME = 256, BAND_ROWS = 64 };

// ---- sizes --------------------------------------------------------------------------------------

static rn_status check_drawing(const rn_painter *p) {
    const rn_drawing *d = &p->drawing;
    const rn_diffusion_info *info = &p->model->info;
    RN_TRY(rn_check_reserved(d->reserved, "rn_drawing"));
    if (d->width % info->multiple || d->height % info->multiple || d->width == 0 ||
        d->height == 0 || d->width > MOST_SIDE || d->height > MOST_SIDE)
        return rn_fail(RN_INVALID, "%ux%u: sides must be multiples of %u, up to %d", d->width,
                       d->height, info->multiple, (int)MOST_SIDE);
    if (d->batch > MOST_BATCH) return rn_fail(RN_INVALID, "%u pictures are too many", d->batch);
    if (!(d->guidance >= 0 && d->guidance < 1000))
        return rn_fail(RN_INVALID, "a guidance of %g cannot be", d->guidance);
    if (d->tile && (d->tile % rn_diffusion_factor(p->model) || d->overlap >= d->tile ||
                    d->overlap % rn_diffusion_factor(p->model)))
        return rn_fail(RN_INVALID,
                       "tiles of %u that overlap by %u: both must be multiples of %u, "
                       "the overlap smaller than a tile",
                       d->tile, d->overlap, rn_diffusion_factor(p->model));
    if (d->mask && !d->init)
        return rn_hint(rn_fail(RN_INVALID, "a mask needs a picture that it is for"),
                       "name one with --init");
    if (d->mask && (d->mask->width != d->init->width || d->mask->height != d->init->height))
        return rn_fail(RN_INVALID, "the mask is %ux%u, the picture %ux%u", d->mask->width,
                       d->mask->height, d->init->width, d->init->height);
    if (d->task == RN_DRAW && info->inpaints && !d->mask)
        return rn_hint(rn_fail(RN_INVALID, "this model draws into a masked picture"),
                       "bring --init PICTURE and --mask MASK");
    if (d->preview && !p->model->has_preview)
        return rn_fail(RN_INVALID, "the model was opened without a decoder for previews");
    if (d->task == RN_ENCODE && !d->init) return rn_fail(RN_INVALID, "there is nothing to encode");
    if (d->task == RN_DECODE && !d->latents)
        return rn_fail(RN_INVALID, "there is nothing to decode");
    return RN_OK;
}

static void fill_defaults(rn_painter *p) {
    rn_drawing *d = &p->drawing;
    const rn_diffusion_info *info = &p->model->info;
    if (!d->prompt) d->prompt = "";
    if (!d->negative) d->negative = "";
    if (!d->width) d->width = info->size;
    if (!d->height) d->height = info->size;
    if (!d->batch) d->batch = 1;
    if (!d->steps) d->steps = info->steps;
    if (d->guidance == 0) d->guidance = info->guidance;
    if (d->scheduler == RN_SCHEDULER_MODEL) d->scheduler = info->scheduler;
    if (d->strength == 0) d->strength = 0.8;
    if (!d->init || p->model->info.inpaints) d->strength = 1;
}

static const rn_device_caps *caps_of(const rn_painter *p) {
    rn_device *device = p->options.session.device;
    return device ? rn_device_get_caps(device) : rn_cpu_caps();
}

// Where products of 16 bits are a library's, a row's bits depend on how many there are: runs then
// always have those of one picture, whatever the budget and the batch.
static bool fixes_rows(const rn_painter *p) {
    return (caps_of(p)->fusions & RN_FUSE_HALVES) != 0;
}

void rn_painter_size_vae(rn_image_component *c, uint32_t high, uint32_t wide) {
    if (c->kind == RN_IMAGE_TINY_VAE) {
        c->config.taesd.height = high, c->config.taesd.width = wide, c->config.taesd.rows = 1;
    } else {
        c->config.vae.height = high, c->config.vae.width = wide, c->config.vae.rows = 1;
        c->config.vae.banding.rows = BAND_ROWS;
    }
}

// Twice as many rows: a UNet that no guidance was distilled into, and one that changes something.
static bool is_guided(const rn_painter *p, const rn_drawing *d) {
    return p->model->family != RN_FAMILY_FLUX &&
           !p->model->denoiser.config.unet.guidance_channels && d->guidance != 1;
}

static rn_status make_schedule(rn_painter *p) {
    const rn_drawing *d = &p->drawing;
    uint32_t tokens = p->model->family == RN_FAMILY_FLUX ? p->high * p->wide / 4 : 0;
    return rn_schedule_make(&p->model->schedule, d->scheduler, d->steps, d->strength, tokens,
                            &p->schedule);
}

static rn_status settle(rn_painter *p) {
    const rn_diffusion *m = p->model;
    rn_drawing *d = &p->drawing;
    bool flux = m->family == RN_FAMILY_FLUX;
    uint32_t factor = rn_diffusion_factor(m);
    fill_defaults(p);
    RN_TRY(check_drawing(p));
    p->high = d->height / factor;
    p->wide = d->width / factor;
    p->channels = rn_diffusion_channels(m);
    p->latent_count = (uint64_t)p->high * p->wide * p->channels;
    p->guided = is_guided(p, d);
    p->rows = d->batch * (p->guided ? 2 : 1);
    if (fixes_rows(p)) p->rows_at_once = p->guided ? 2 : 1;
    uint32_t rows = p->rows_at_once ? p->rows_at_once : p->rows;
    p->denoiser = m->denoiser;
    p->vae = p->encoder = m->vae;
    if (flux) {
        rn_flux_config *c = &p->denoiser.config.flux;
        c->height = p->high / 2, c->width = p->wide / 2, c->rows = rows;
        c->context_tokens = c->guidance ? 512 : 256;
        p->context_tokens = c->context_tokens;
        p->context_channels = c->context_channels;
        p->pooled_channels = c->pooled_channels;
    } else {
        rn_unet_config *c = &p->denoiser.config.unet;
        c->height = p->high, c->width = p->wide, c->rows = rows;
        c->context_tokens = m->text[0].config.clip.tokens;
        p->context_tokens = c->context_tokens;
        p->context_channels = c->context_channels;
        if (c->added_channels) {
            uint32_t pooled = m->text[1].config.clip.projection;
            p->pooled_channels = pooled ? pooled : m->text[1].config.clip.dim;
            if (p->pooled_channels + 6 * c->added_time_dim != c->added_channels)
                return rn_fail(RN_INVALID, "a pooled text of %u channels does not suit this UNet",
                               p->pooled_channels);
        }
    }
    for (uint32_t i = 0; i < m->text_count; i++) {
        p->text[i] = m->text[i];
        if (p->text[i].kind == RN_IMAGE_CLIP)
            p->text[i].config.clip.rows = p->guided ? 2 : 1;
        else
            p->text[i].config.t5.rows = p->context_tokens;
    }
    uint32_t tile = d->tile ? d->tile / factor : 0;
    rn_painter_size_vae(&p->encoder, p->high, p->wide);
    rn_painter_size_vae(&p->vae, tile && tile < p->high ? tile : p->high,
                        tile && tile < p->wide ? tile : p->wide);
    if (d->task != RN_DRAW) return RN_OK;
    RN_TRY(make_schedule(p));
    rn_painter_settle_preparation(p);
    return RN_OK;
}

uint64_t rn_painter_row_picture(const rn_painter *p, uint64_t row) {
    return p->rows_at_once ? row / p->rows_at_once : row % p->drawing.batch;
}

uint32_t rn_painter_row_prompt(const rn_painter *p, uint64_t row) {
    if (!p->guided) return 0;
    return p->rows_at_once ? (uint32_t)(row % p->rows_at_once) : row >= p->drawing.batch;
}

// ---- memory -------------------------------------------------------------------------------------

static rn_status take(rn_painter *p, uint64_t count, float **out) {
    void *block = NULL;
    uint64_t bytes;
    if (!rn_mul_u64(count, sizeof(float), &bytes) || bytes > SIZE_MAX)
        return rn_fail(RN_INVALID, "these pictures are more than memory can hold");
    RN_TRY(rn_arena_array(&p->memory, count, sizeof(float), &block));
    *out = block;
    return RN_OK;
}

static rn_status take_memory(rn_painter *p) {
    const rn_diffusion *m = p->model;
    const rn_drawing *d = &p->drawing;
    bool flux = m->family == RN_FAMILY_FLUX;
    uint64_t all = d->batch * p->latent_count, rows = p->rows;
    RN_TRY(take(p, all, &p->latents));
    RN_TRY(take(p, all, &p->extra));
    if (d->init) RN_TRY(take(p, all, &p->start));
    if (d->task != RN_DRAW) return RN_OK;
    if (d->preview) RN_TRY(take(p, p->latent_count, &p->preview.clean));
    uint64_t in =
        flux ? p->latent_count : (uint64_t)p->high * p->wide * p->denoiser.config.unet.in_channels;
    RN_TRY(take(p, all, &p->noise));
    RN_TRY(take(p, all, &p->last));
    RN_TRY(take(p, rows * in, &p->input));
    RN_TRY(take(p, rows * p->latent_count, &p->output));
    RN_TRY(take(p, rows * p->context_tokens * p->context_channels, &p->context));
    RN_TRY(take(p, rows * (p->pooled_channels ? p->pooled_channels : 1), &p->pooled));
    uint64_t times = flux ? FLUX_TIME : p->denoiser.config.unet.channels[0];
    RN_TRY(take(p, rows * times, &p->times));
    uint32_t guidance = flux ? FLUX_TIME : p->denoiser.config.unet.guidance_channels;
    if (guidance) RN_TRY(take(p, rows * guidance, &p->guidances));
    if (!flux && p->denoiser.config.unet.added_channels)
        RN_TRY(take(p, rows * p->denoiser.config.unet.added_channels, &p->added));
    uint64_t modulations = rn_painter_modulation_count(p);
    if (modulations) RN_TRY(take(p, modulations, &p->modulations));
    p->modulation_room = modulations;
    if (d->mask) {
        RN_TRY(take(p, (uint64_t)p->high * p->wide, &p->mask));
        RN_TRY(take(p, p->latent_count, &p->masked));
    }
    if (flux) {
        float *block = NULL;
        uint64_t tokens = p->context_tokens + (uint64_t)p->high * p->wide / 4;
        RN_TRY(take(p, rows * tokens * 3, &block));
        p->positions = (int32_t *)(void *)block;
    }
    p->schedule.last = p->last;
    return RN_OK;
}

// ---- the program --------------------------------------------------------------------------------

static rn_status add_phase(rn_painter *p, const char *name, const rn_image_component *c,
                           const rn_image_component *files, rn_image_part part, uint64_t runs,
                           uint32_t *out) {
    uint32_t i = p->phase_count;
    RN_TRY(rn_image_component_recipe(c, part, &p->recipes[i]));
    snprintf(p->recipes[i].name, sizeof p->recipes[i].name, "%s", name);
    p->phases[i] = (rn_program_phase){
        .name = name, .recipe = &p->recipes[i], .model = files->name, .runs = runs};
    p->weights[i] = rn_image_component_weights(files);
    *out = p->phase_count++;
    return RN_OK;
}

static rn_status add_denoiser(rn_painter *p) {
    uint64_t runs = p->schedule.steps - p->schedule.first;
    if (p->rows_at_once) runs *= p->rows / p->rows_at_once;
    if (rn_painter_prepares(p)) {
        RN_TRY(add_phase(p, "prepare", &p->prepare, &p->model->denoiser, RN_IMAGE_PREPARE, 1,
                         &p->prepare_phase));
        p->recipes[p->prepare_phase].least_rows = p->recipes[p->prepare_phase].rows;
    }
    RN_TRY(add_phase(p, "denoise", &p->denoiser, &p->model->denoiser, RN_IMAGE_FORWARD, runs,
                     &p->denoise_phase));
    rn_recipe *recipe = &p->recipes[p->denoise_phase];
    recipe->least_rows = recipe->rows ? p->rows_at_once : 0;
    return RN_OK;
}

static rn_status list_phases(rn_painter *p) {
    static const char *const names[] = {"text", "text 2"};
    const rn_diffusion *m = p->model;
    const rn_drawing *d = &p->drawing;
    p->encode_phase = p->denoise_phase = p->decode_phase = p->prepare_phase = RN_NO_PHASE;
    p->text_phase[0] = p->text_phase[1] = RN_NO_PHASE;
    bool draws = d->task == RN_DRAW;
    for (uint32_t i = 0; draws && i < m->text_count; i++)
        if (!p->has_text[i])
            RN_TRY(add_phase(p, names[i], &p->text[i], &m->text[i], RN_IMAGE_FORWARD, 1,
                             &p->text_phase[i]));
    if (d->init)
        RN_TRY(add_phase(p, "encode", &p->encoder, &m->vae, RN_IMAGE_ENCODER,
                         d->task == RN_ENCODE || !d->mask ? 1 : 2, &p->encode_phase));
    if (draws) RN_TRY(add_denoiser(p));
    if (d->task != RN_ENCODE)
        RN_TRY(
            add_phase(p, "decode", &p->vae, &m->vae, RN_IMAGE_FORWARD, d->batch, &p->decode_phase));
    return RN_OK;
}

// The painter's own memory is beside the plan, and so are the tables of its plans and sessions,
// which no plan can plan, where the budget is the process's.
static rn_status count_beside(const rn_painter *p, rn_plan_options *out) {
    uint64_t own = p->memory.held_bytes + sizeof *p + rn_painter_preview_bytes(p);
    *out = p->options.plan;
    for (uint32_t i = 0; out->reserved_bytes && i < p->phase_count; i++) {
        rn_graph *graph = NULL;
        RN_TRY(p->recipes[i].build(p->recipes[i].self, &(rn_recipe_options){0}, &graph));
        own += rn_plan_table_bytes(graph);
        rn_graph_destroy(graph);
    }
    if (!rn_add_u64(out->reserved_bytes, own, &out->reserved_bytes))
        return rn_fail(RN_INVALID, "too many bytes beside the plan");
    rn_device *device = p->options.session.device;
    return device ? rn_plan_options_for(device, &p->options.device_budget, out) : RN_OK;
}

static void forget_phases(rn_painter *p) {
    for (uint32_t i = 0; i < p->phase_count; i++)
        rn_recipe_destroy(&p->recipes[i]);
    p->phase_count = 0;
}

static rn_status make_program(rn_painter *p, bool in_bands, bool again) {
    rn_plan_options plan;
    if (p->vae.kind == RN_IMAGE_VAE)
        p->vae.config.vae.banding.cut = p->encoder.config.vae.banding.cut = in_bands;
    if (p->vae.kind == RN_IMAGE_VAE) p->vae.config.vae.banding.again = again;
    forget_phases(p);
    RN_TRY(list_phases(p));
    RN_TRY(count_beside(p, &plan));
    return rn_program_make(p->phases, p->phase_count, caps_of(p), &plan, &p->program);
}

// The autoencoder takes pictures whole where there is room, else in bands, and where that is not
// enough it computes some of them again: the same bits, more work. In 16 bits a whole picture's are
// others than the bands': then it is bands, always.
static rn_status choose_program(rn_painter *p) {
    bool has_bands = p->vae.kind == RN_IMAGE_VAE &&
                     rn_banding_count(&p->vae.config.vae.banding, p->drawing.height) > 1;
    bool never_whole = has_bands && fixes_rows(p);
    rn_status s = never_whole ? RN_OVER_BUDGET : make_program(p, false, false);
    for (int again = 0; s == RN_OVER_BUDGET && has_bands && again < 2; again++)
        s = make_program(p, true, again);
    return s;
}

// Previews that leave no room for the drawing are planned again, as small as they can be.
static rn_status choose_programs(rn_painter *p) {
    RN_TRY(rn_painter_plan_preview(p, false));
    rn_status s = choose_program(p);
    if (s != RN_OVER_BUDGET || !p->preview.program) return s;
    RN_TRY(rn_painter_plan_preview(p, true));
    return choose_program(p);
}

rn_status rn_painter_create(const rn_diffusion *model, const rn_drawing *drawing,
                            const rn_painter_options *options, rn_painter **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(rn_painter), &block));
    rn_painter *p = block;
    p->model = model;
    p->drawing = *drawing;
    if (options) p->options = *options;
    rn_arena_init(&p->memory, FROM, RN_PAGE_BYTES);
    rn_status s = rn_check_reserved(p->options.reserved, "rn_painter_options");
    if (s == RN_OK) s = settle(p);
    if (s == RN_OK) s = take_memory(p);
    if (s == RN_OK) s = rn_painter_find_prompts(p);
    if (s == RN_OK) s = choose_programs(p);
    if (s == RN_OK)
        *out = p;
    else
        rn_painter_destroy(p);
    return s;
}

void rn_painter_destroy(rn_painter *painter) {
    if (!painter) return;
    rn_program_close(painter->run);
    rn_program_destroy(painter->program);
    rn_painter_leave_preview(painter);
    forget_phases(painter);
    rn_arena_free_all(&painter->memory);
    rn_free(FROM, painter, sizeof *painter);
}

// ---- another drawing ----------------------------------------------------------------------------

static bool has_same_plan(const rn_painter *p, const rn_drawing *d) {
    const rn_drawing *o = &p->drawing;
    return d->task == o->task && d->width == o->width && d->height == o->height &&
           d->batch == o->batch && d->tile == o->tile && d->overlap == o->overlap &&
           d->preview == o->preview && !d->init == !o->init && !d->mask == !o->mask && !d->cache &&
           !o->cache;
}

rn_status rn_painter_renew(rn_painter *painter, const rn_drawing *drawing) {
    rn_painter *p = painter;
    rn_drawing before = p->drawing;
    rn_schedule schedule = p->schedule;
    bool was_guided = p->guided;
    p->drawing = *drawing;
    fill_defaults(p);
    rn_drawing next = p->drawing;
    p->drawing = before;
    if (!has_same_plan(p, &next) || was_guided != is_guided(p, &next))
        return rn_fail(RN_INVALID, "this drawing needs a plan of its own");
    p->drawing = next;
    rn_status s = check_drawing(p);
    if (s == RN_OK && next.task == RN_DRAW) s = make_schedule(p);
    if (s == RN_OK && rn_painter_modulation_count(p) > p->modulation_room)
        s = rn_fail(RN_INVALID, "this drawing has more steps, and needs a plan of its own");
    if (s != RN_OK) {
        p->drawing = before;
        p->schedule = schedule;
        return s;
    }
    p->schedule.last = p->last;
    for (uint32_t i = 0; i < RN_TEXT_ENCODERS; i++)
        p->has_text[i] = false;
    return RN_OK;
}

void rn_painter_set_seed(rn_painter *painter, uint64_t seed) {
    painter->drawing.seed = seed;
}

rn_status rn_painter_describe(const rn_painter *painter, uint32_t index, rn_sink sink) {
    const rn_drawing *d = &painter->drawing;
    char text[768];
    RN_TRY(sink.write(sink.self, d->prompt, strlen(d->prompt)));
    if (d->negative[0]) {
        RN_TRY(sink.write(sink.self, "\nNegative prompt: ", 18));
        RN_TRY(sink.write(sink.self, d->negative, strlen(d->negative)));
    }
    // As the pages that people share pictures on read it.
    int bytes = snprintf(
        text, sizeof text,
        "\nSteps: %u, Sampler: %s, CFG scale: %g, Seed: %llu, Size: %ux%u, Model: %.300s%s",
        d->steps, rn_scheduler_name(d->scheduler), d->guidance,
        (unsigned long long)(d->seed + (d->torch_noise ? 0 : index)), d->width, d->height,
        painter->model->info.name, d->torch_noise ? ", Noise: torch" : "");
    size_t end = (size_t)bytes;
    if (d->init)
        bytes += snprintf(text + end, sizeof text - end, ", Denoising strength: %g", d->strength);
    return sink.write(sink.self, text, (size_t)bytes);
}

const rn_program *rn_painter_program(const rn_painter *painter) {
    return painter->program;
}

const rn_drawing *rn_painter_drawing(const rn_painter *painter) {
    return &painter->drawing;
}

// ---- running ------------------------------------------------------------------------------------

rn_status rn_painter_run_rows(rn_painter *p, uint32_t phase, uint64_t rows, rn_painter_task task) {
    const rn_plan_summary *summary = rn_plan_get_summary(rn_program_plan(p->program, phase));
    // A graph without rows is of a run's.
    bool fixed = !rn_graph_has_rows(rn_plan_graph(rn_program_plan(p->program, phase)));
    uint64_t most = fixed ? p->rows_at_once : rn_max_u64(summary->rows, 1);
    task.painter = p;
    task.session = rn_program_session(p->run, phase);
    for (uint64_t first = 0; first < rows; first += most) {
        uint64_t count = rn_min_u64(most, rows - first);
        RN_TRY(task.set(&task, first, count));
        RN_TRY(rn_session_run(task.session, fixed ? 0 : count));
        RN_TRY(task.take(&task, first, count));
    }
    rn_session_facts facts = rn_session_get_facts(task.session);
    if (facts.live_peak_bytes > p->facts.live_peak_bytes) {
        p->facts.live_peak_bytes = facts.live_peak_bytes;
        p->facts.planned_peak_bytes = summary->live_peak_bytes;
    }
    if (facts.live_mismatch_step != UINT64_MAX) p->facts.as_planned = false;
    return RN_OK;
}

static void add_reads(rn_painter *p) {
    p->facts.read_bytes = 0;
    for (uint32_t i = 0; i < p->phase_count; i++) {
        rn_session *session = rn_program_session(p->run, i);
        if (session) p->facts.read_bytes += rn_session_get_facts(session).read_bytes;
    }
}

static rn_status open_run(rn_painter *p) {
    p->facts = (rn_painter_facts){.as_planned = p->options.session.audit,
                                  .cached_prompts = p->cached_prompts};
    if (p->run) return RN_OK;
    return rn_program_open(p->program, p->weights, &p->options.session, &p->run);
}

static double now(void) {
    return (double)rn_clock_ns() / 1e9;
}

static rn_status draw(rn_painter *p, rn_image *out) {
    const rn_drawing *d = &p->drawing;
    RN_TRY(open_run(p));
    rn_torch_generator_seed(&p->generator, d->seed);
    double start = now();
    if (d->task == RN_DRAW) {
        RN_TRY(rn_painter_read_prompts(p));
        p->facts.text_seconds = now() - start, start = now();
        if (d->init) RN_TRY(rn_painter_encode_init(p));
        p->facts.encode_seconds = now() - start, start = now();
        RN_TRY(rn_painter_prepare(p));
        RN_TRY(rn_painter_denoise(p));
        p->facts.denoise_seconds = now() - start, start = now();
    } else {
        memcpy(p->latents, d->latents, d->batch * p->latent_count * sizeof(float));
    }
    RN_TRY(rn_painter_decode(p, out));
    p->facts.decode_seconds = now() - start;
    add_reads(p);
    return RN_OK;
}

rn_status rn_painter_draw(rn_painter *painter, rn_image *out_images) {
    rn_painter *p = painter;
    memset(out_images, 0, p->drawing.batch * sizeof *out_images);
    if (p->drawing.task == RN_ENCODE) return rn_fail(RN_INVALID, "this painter only encodes");
    rn_status s = draw(p, out_images);
    for (uint32_t i = 0; s != RN_OK && i < p->drawing.batch; i++)
        rn_image_free(&out_images[i]);
    return s;
}

rn_status rn_painter_encode(rn_painter *painter) {
    rn_painter *p = painter;
    if (p->drawing.task != RN_ENCODE) return rn_fail(RN_INVALID, "this painter does not encode");
    RN_TRY(open_run(p));
    rn_torch_generator_seed(&p->generator, p->drawing.seed);
    double start = now();
    RN_TRY(rn_painter_encode_init(p));
    memcpy(p->latents, p->start, p->drawing.batch * p->latent_count * sizeof(float));
    p->facts.encode_seconds = now() - start;
    add_reads(p);
    return RN_OK;
}

const float *rn_painter_latents(const rn_painter *painter, rn_shape *out_shape) {
    const rn_painter *p = painter;
    *out_shape = RN_SHAPE(p->drawing.batch, p->high, p->wide, p->channels);
    return p->latents;
}

rn_painter_facts rn_painter_get_facts(const rn_painter *painter) {
    return painter->facts;
}
