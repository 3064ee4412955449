// engine_draw.c — an engine whose model draws pictures: one job at a time, each in the memory that
// the plan of the last one had, or in a plan of its own within the same budget.
//
//     enter: sizes, bytes of the answer ─▶ queue ─▶ admit: plan, outbox ─▶ draw: steps, files
//
// The pictures of a job are drawn one behind the other: picture k has the k-th seed, so each can be
// had again alone, and one plan serves any number of them.
#include "server/engine_parts.h"

#include "base/checked.h"
#include "base/clock.h"
#include "io/png.h"
#include "memory/account.h"

#include <ration/log.h>
#include <ration/profile.h>

#include <stdio.h>
#include <string.h>

// In the outbox: so many steps that nobody has read yet; later ones are left out.
enum { STEPS_KEPT = 64 };

// ---- sizes --------------------------------------------------------------------------------------

static const rn_request_image *image_of(const rn_job *job) {
    return &job->request.image;
}

static uint64_t pixel_bytes(const rn_job *job) {
    return (uint64_t)image_of(job)->width * image_of(job)->height * 3;
}

// Of the text in a picture's file, and of its prompts in it.
static uint64_t text_bytes(const rn_job *job) {
    const char *negative = image_of(job)->negative;
    return strlen(image_of(job)->prompt) + (negative ? strlen(negative) : 0) + 1024;
}

// A file is not compressed: every line has a chunk of its own, of at most 64 KiB.
static uint64_t file_bytes(const rn_job *job) {
    const uint64_t chunk = 17, most = 65535;
    uint64_t line = (uint64_t)image_of(job)->width * 3 + 1;
    return image_of(job)->height * (line + chunk * rn_div_up(line, most)) + text_bytes(job) + 512;
}

// Of a picture, in the outbox.
static uint64_t pieces_bytes(const rn_job *job) {
    uint64_t slices = rn_div_up(file_bytes(job), RN_PICTURE_PIECE_BYTES) + 1;
    return file_bytes(job) + slices * rn_piece_bytes(0, 0);
}

static uint64_t outbox_bytes(const rn_job *job) {
    return job->request.n * pieces_bytes(job) +
           STEPS_KEPT * rn_piece_bytes(sizeof(rn_drawing_step), 0);
}

// A picture while it becomes a file, with the text that is put in it.
static uint64_t work_bytes(const rn_job *job) {
    return pixel_bytes(job) + 2 * text_bytes(job);
}

static void draw_seed(rn_request *request) {
    if (request->has_seed) return;
    rn_request_draw_seed(request);
    request->sampling.seed &= UINT32_MAX; // that people can type, and JavaScript's numbers hold
}

bool rn_engine_read_drawing(rn_engine *e, rn_job *job, rn_problem *out) {
    const rn_diffusion_info *info = rn_diffusion_get_info(e->diffusion);
    rn_request_image *image = &job->request.image;
    if (!image->width) image->width = image->height = info->size;
    uint64_t need = outbox_bytes(job) + work_bytes(job);
    if (need > e->answers->total_bytes) {
        return rn_problem_set(out, 400, "too_large", "size",
                              "%u of %ux%u can be %s, all answers together have %s: ask "
                              "for fewer, or start the server with more (--request-memory)",
                              job->request.n, image->width, image->height,
                              rn_size_format(need).text,
                              rn_size_format(e->answers->total_bytes).text);
    }
    draw_seed(&job->request);
    job->answer_bytes = (size_t)outbox_bytes(job);
    return true;
}

// ---- a plan -------------------------------------------------------------------------------------

static void set_painter(rn_engine *e, rn_painter *painter) {
    pthread_mutex_lock(&e->plan_lock);
    e->painter = painter;
    pthread_mutex_unlock(&e->plan_lock);
}

void rn_engine_leave_painter(rn_engine *e) {
    rn_painter *painter = e->painter;
    set_painter(e, NULL);
    rn_painter_destroy(painter);
}

static void publish_plan(rn_engine *e, uint64_t own_bytes) {
    const rn_program_summary *s = rn_program_get_summary(rn_painter_program(e->painter));
    const rn_generator_options *o = &e->generator_options;
    uint64_t streamed = 0;
    for (uint32_t i = 0; i < s->phase_count; i++)
        streamed = rn_max_u64(
            streamed, rn_program_get_phase(rn_painter_program(e->painter), i).streamed_bytes);
    pthread_mutex_lock(&e->lock);
    e->facts.predicted_bytes =
        (e->has_own_memory ? s->host_bytes : s->planned_bytes) + own_bytes + o->plan.reserved_bytes;
    e->facts.streamed_bytes = streamed;
    pthread_mutex_unlock(&e->lock);
}

static rn_status create_painter(rn_engine *e, const rn_drawing *drawing, rn_painter **out) {
    rn_painter_options options = {.plan = e->generator_options.plan,
                                  .session = e->generator_options.session,
                                  .device_budget = e->generator_options.device_budget};
    options.session.cancel = &e->cut_drawing;
    return rn_painter_create(e->diffusion, drawing, &options, out);
}

// Within the budget of the last one, whose memory is given back before.
static rn_status plan_anew(rn_engine *e, const rn_drawing *drawing) {
    rn_painter *painter = NULL;
    rn_engine_leave_painter(e);
    uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes;
    RN_TRY(create_painter(e, drawing, &painter));
    uint64_t after = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes;
    set_painter(e, painter);
    publish_plan(e, after > before ? after - before : 0);
    return RN_OK;
}

static rn_status plan_drawing(rn_engine *e, const rn_drawing *drawing) {
    if (e->painter && rn_painter_renew(e->painter, drawing) == RN_OK) return RN_OK;
    return plan_anew(e, drawing);
}

// ---- drawing ------------------------------------------------------------------------------------

typedef struct drawing_job {
    rn_engine *engine;
    rn_job *job;
    uint32_t index;      // of the picture
    size_t picture_left; // bytes of the outbox that pictures still need
    char slice[RN_PICTURE_PIECE_BYTES];
    size_t slice_bytes;
} drawing_job;

static rn_status put_piece(drawing_job *d, rn_piece_kind kind, rn_str text, rn_finish finish) {
    rn_piece piece = {.choice = d->index, .kind = kind, .text = text, .finish = finish};
    if (rn_job_put(d->job, &piece)) return RN_OK;
    return rn_fail(RN_INTERNAL, "a picture is larger than was reckoned");
}

static rn_status put_slice(drawing_job *d) {
    size_t bytes = d->slice_bytes;
    d->slice_bytes = 0;
    return bytes ? put_piece(d, RN_PIECE_PICTURE, (rn_str){d->slice, bytes}, RN_FINISH_NONE)
                 : RN_OK;
}

static rn_status write_file(void *self, const char *from, size_t bytes) {
    drawing_job *d = self;
    while (bytes) {
        size_t count = rn_min_u64(bytes, sizeof d->slice - d->slice_bytes);
        memcpy(d->slice + d->slice_bytes, from, count);
        d->slice_bytes += count;
        from += count;
        bytes -= count;
        if (d->slice_bytes == sizeof d->slice) RN_TRY(put_slice(d));
    }
    return RN_OK;
}

static rn_status put_picture(drawing_job *d, const rn_image *picture) {
    rn_buffer text;
    rn_buffer_init(&text, RN_HOST_IO, (size_t)text_bytes(d->job));
    rn_status s = rn_painter_describe(d->engine->painter, 0, rn_buffer_sink(&text));
    if (s == RN_OK) s = rn_buffer_append(&text, "", 1);
    const rn_image_text texts[] = {{"Software", "ration"}, {"parameters", text.data}};
    d->slice_bytes = 0;
    if (s == RN_OK) s = rn_png_encode(picture, texts, 2, (rn_sink){d, write_file});
    if (s == RN_OK) s = put_slice(d);
    rn_buffer_free(&text);
    RN_TRY(s);
    return put_piece(d, RN_PIECE_PICTURE, (rn_str){0}, RN_FINISH_STOP);
}

// Who has left ends the drawing; who waits too long is told.
static rn_status after_step(void *self, uint32_t step, uint32_t steps, const float *latents) {
    drawing_job *d = self;
    rn_drawing_step at = {step, steps};
    (void)latents;
    rn_metrics_add(d->engine->metrics, RN_COUNT_STEPS, 1);
    rn_engine_sweep(d->engine);
    if (rn_job_is_cancelled(d->job) || atomic_load(&d->engine->cut))
        return rn_fail(RN_CANCELLED, "the client is gone, or the server ends");
    size_t bytes = rn_piece_bytes(sizeof at, 0);
    if (!d->job->request.stream || rn_job_free_bytes(d->job) < d->picture_left + bytes)
        return RN_OK;
    return put_piece(d, RN_PIECE_STEP, (rn_str){(const char *)&at, sizeof at}, RN_FINISH_NONE);
}

static rn_drawing drawing_of(const rn_job *job, drawing_job *d) {
    const rn_request_image *image = image_of(job);
    return (rn_drawing){.prompt = image->prompt,
                        .negative = image->negative,
                        .width = image->width,
                        .height = image->height,
                        .batch = 1,
                        .steps = image->steps,
                        .guidance = image->guidance,
                        .scheduler = image->scheduler,
                        .seed = job->request.sampling.seed,
                        .on_step = after_step,
                        .self = d};
}

static rn_status draw_pictures(drawing_job *d) {
    rn_painter *painter = d->engine->painter;
    uint32_t count = d->job->request.n;
    size_t each = (size_t)pieces_bytes(d->job);
    for (; d->index < count; d->index++) {
        rn_image picture = {0};
        d->picture_left = each * (count - d->index);
        rn_painter_set_seed(painter, d->job->request.sampling.seed + d->index);
        RN_TRY(rn_painter_draw(painter, &picture));
        rn_status s = put_picture(d, &picture);
        rn_image_free(&picture);
        RN_TRY(s);
    }
    return RN_OK;
}

// ---- a job --------------------------------------------------------------------------------------

// A drawing that no plan can have is the request's fault, not the server's.
static void refuse_plan(rn_problem *out) {
    rn_error_info error = *rn_last_error();
    rn_problem_from_error(out, &error);
    if (error.status == RN_OVER_BUDGET)
        (void)rn_problem_set(out, 400, "too_large", "size", "%.480s", error.message);
}

rn_admission rn_engine_admit_drawing(rn_engine *e, rn_job *job, rn_problem *out) {
    drawing_job d = {.engine = e, .job = job};
    rn_status s = RN_OK;
    if (e->running) return RN_NOT_NOW;
    if (!job->outbox && !rn_job_open_outbox(job, e->answers, job->answer_bytes, &s)) {
        if (s == RN_OK) return RN_NOT_NOW; // answers on their way have it
        rn_problem_from_error(out, rn_last_error());
        return RN_NEVER;
    }
    rn_drawing drawing = drawing_of(job, &d);
    atomic_store(&e->cut_drawing, false);
    if (plan_drawing(e, &drawing) == RN_OK) return RN_ADMITTED;
    refuse_plan(out);
    return RN_NEVER;
}

static void end_drawing(rn_engine *e, rn_job *job, rn_status s) {
    rn_problem problem = rn_engine_closing();
    if (s != RN_OK && s != RN_CANCELLED) rn_problem_from_error(&problem, rn_last_error());
    rn_job_state state = s == RN_OK                 ? RN_JOB_DONE
                         : rn_job_is_cancelled(job) ? RN_JOB_CANCELLED
                                                    : RN_JOB_FAILED;
    rn_engine_end(e, job, state, state == RN_JOB_FAILED ? &problem : NULL);
}

// The job that was admitted, from its first step to its end.
rn_status rn_engine_draw(rn_engine *e) {
    rn_job *job = e->running;
    drawing_job d = {.engine = e, .job = job};
    uint64_t work = work_bytes(job);
    if (!rn_request_memory_take(e->answers, work)) return RN_OK; // later
    rn_profile_begin(rn_profile_name("draw"));
    rn_drawing drawing = drawing_of(job, &d);
    rn_status s = plan_drawing(e, &drawing);
    if (s == RN_OK) s = draw_pictures(&d);
    rn_profile_end();
    rn_request_memory_release(e->answers, work);
    atomic_store(&e->cut_drawing, atomic_load(&e->cut));
    if (s == RN_DEVICE) return s;
    end_drawing(e, job, s);
    return RN_OK;
}

// ---- loading ------------------------------------------------------------------------------------

rn_status rn_engine_open_images(rn_engine *e) {
    const rn_diffusion_options *o = &e->options->image;
    RN_TRY(rn_diffusion_open(e->options->model_path, o, &e->diffusion));
    snprintf(e->name, sizeof e->name, "%s", rn_diffusion_get_info(e->diffusion)->name);
    return RN_OK;
}

// A plan for a picture of the model's own size, then one step of the smallest picture: that the
// device can do it is known before anybody asks.
rn_status rn_engine_try_drawing(rn_engine *e) {
    const rn_diffusion_info *info = rn_diffusion_get_info(e->diffusion);
    rn_drawing usual = {.batch = 1},
               smallest = {
                   .width = info->multiple, .height = info->multiple, .batch = 1, .steps = 1};
    rn_painter *painter = NULL;
    rn_image picture = {0};
    if (e->generator_options.planned)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "a server of pictures plans each by its size"),
                       "ration plan MODEL --for image --size WxH shows such a plan");
    atomic_store(&e->cut_drawing, false);
    if (info->inpaints)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "this model draws into masked pictures"),
                       "ration image MODEL --init PICTURE --mask MASK does; a server cannot be "
                       "sent pictures");
    RN_TRY(plan_anew(e, &usual)); // no memory for it yet: that comes with the first drawing
    RN_TRY(create_painter(e, &smallest, &painter));
    rn_status s = rn_painter_draw(painter, &picture);
    rn_image_free(&picture);
    rn_painter_destroy(painter);
    return s;
}

void rn_engine_leave_images(rn_engine *e) {
    rn_engine_leave_painter(e);
    rn_diffusion_close(e->diffusion);
    e->diffusion = NULL;
}
