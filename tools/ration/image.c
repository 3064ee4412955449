// image.c — ration image: pictures from diffusion models, within a budget.
//
//     open the model ─ read pictures ─ plan ─ draw ─ write PNG files, plan beside fact
//
// `ration image encode` and `ration image decode` are the autoencoder alone.
#include "preview.h"
#include "run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct image_run {
    const invocation *in;
    const char *model_path;
    const char *picture; // encode, decode: the file
    rn_diffusion_adapter adapters[MAX_ADAPTERS];
    char adapter_paths[MAX_ADAPTERS][4096];
    rn_diffusion *model;
    rn_drawing drawing;
    rn_image init, mask;
    npy_array latents;
    host_budget budget;
    constraint_texts constraints;
    rn_ladder *ladder;
    rn_device *device;
    rn_painter_options options;
    rn_painter *painter;
    preview preview;
    rn_image *images; // (batch)
    char output[4096];
    double started, first_step, last_step; // seconds of the clock: the command; ends of steps
    uint32_t steps;                        // that were taken
} image_run;

// Of a step behind the first, with which weights come and kernels are set up; 0: there is none.
static double step_seconds(const image_run *r) {
    return r->steps > 1 ? (r->last_step - r->first_step) / (r->steps - 1) : 0;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// NULL: nobody has set it.
static const char *given(const invocation *in, const char *name) {
    const char *text = rn_settings_text(in->settings, name);
    bool is_default = strcmp(rn_settings_origin(in->settings, name), "default") == 0;
    return !is_default && text[0] ? text : NULL;
}

static const char *text_of(const image_run *r, const char *name) {
    return given(r->in, name);
}

// ---- options ------------------------------------------------------------------------------------

static rn_status read_loras(const invocation *in, rn_diffusion_adapter *adapters,
                            char (*paths)[4096], rn_diffusion_options *out) {
    const char *const *items = NULL;
    size_t count = rn_settings_list(in->settings, "lora", &items);
    if (count > MAX_ADAPTERS)
        return rn_fail(RN_INVALID, "--lora: at most %d adapters", MAX_ADAPTERS);
    for (size_t i = 0; i < count; i++) {
        const char *colon = strrchr(items[i], ':');
        char *end = NULL;
        double weight = colon ? strtod(colon + 1, &end) : 1;
        bool scaled = colon && end != colon + 1 && *end == '\0';
        size_t bytes = scaled ? (size_t)(colon - items[i]) : strlen(items[i]);
        if (bytes >= sizeof paths[0]) return rn_fail(RN_INVALID, "--lora: the path is too long");
        memcpy(paths[i], items[i], bytes);
        adapters[i] = (rn_diffusion_adapter){paths[i], (float)(scaled ? weight : 1)};
    }
    out->adapters = adapters;
    out->adapter_count = count;
    return RN_OK;
}

rn_status read_image_parts(const invocation *in, rn_diffusion_adapter *adapters,
                           char (*paths)[4096], rn_diffusion_options *out) {
    *out = (rn_diffusion_options){.vae = given(in, "vae"),
                                  .text_encoder = given(in, "text-encoder"),
                                  .text_encoder_2 = given(in, "text-encoder-2"),
                                  .tokenizer = given(in, "tokenizer"),
                                  .tokenizer_2 = given(in, "tokenizer-2"),
                                  .prediction = given(in, "prediction"),
                                  .preview = given(in, "preview")};
    return read_loras(in, adapters, paths, out);
}

static rn_status open_model(image_run *r) {
    rn_diffusion_options options;
    RN_TRY(read_image_parts(r->in, r->adapters, r->adapter_paths, &options));
    RN_TRY(rn_diffusion_open(r->model_path, &options, &r->model));
    const rn_diffusion_info *info = rn_diffusion_get_info(r->model);
    if (info->adapter_leftover)
        fprintf(stderr,
                "ration: warning: %u tensors of the adapters belong to no weight of the model\n",
                info->adapter_leftover);
    return RN_OK;
}

rn_status read_sides(const char *text, uint32_t *out_width, uint32_t *out_height) {
    size_t first = strspn(text, "0123456789");
    const char *more = text[first] == 'x' ? text + first + 1 : text;
    size_t second = strspn(more, "0123456789");
    *out_width = *out_height = 0;
    if (first - 1 < 5 && second - 1 < 5 && more[second] == '\0') {
        *out_width = (uint32_t)strtoul(text, NULL, 10);
        *out_height = (uint32_t)strtoul(more, NULL, 10);
    }
    if (*out_width && *out_height) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "--size %s is no size", text), "512, or 768x512");
}

static uint32_t round_side(uint32_t side, uint32_t multiple) {
    uint32_t rounded = (side + multiple / 2) / multiple * multiple;
    return rounded ? rounded : multiple;
}

// "768x512" or "512". What is no multiple of what the model needs is rounded, with a word.
static rn_status read_size(image_run *r) {
    const char *text = text_of(r, "size");
    uint32_t multiple = rn_diffusion_get_info(r->model)->multiple, wide = 0, high = 0;
    if (!text) return RN_OK;
    RN_TRY(read_sides(text, &wide, &high));
    r->drawing.width = round_side(wide, multiple);
    r->drawing.height = round_side(high, multiple);
    if (r->drawing.width == wide && r->drawing.height == high) return RN_OK;
    if (rn_settings_bool(r->in->settings, "exact"))
        return rn_hint(
            rn_fail(RN_INVALID, "--size %s: sides must be multiples of %u", text, multiple),
            "%ux%u is near", r->drawing.width, r->drawing.height);
    fprintf(stderr, "ration: sides must be multiples of %u: the picture is %ux%u\n", multiple,
            r->drawing.width, r->drawing.height);
    return RN_OK;
}

static rn_status read_count(const image_run *r, const char *name, uint32_t most, uint32_t *out) {
    const char *text = rn_settings_text(r->in->settings, name);
    char *end = NULL;
    unsigned long value = strtoul(text, &end, 10);
    if (end == text || *end || value > most)
        return rn_fail(RN_INVALID, "--%s %s is no number up to %u", name, text, most);
    *out = (uint32_t)value;
    return RN_OK;
}

static rn_status read_tile(image_run *r) {
    const char *text = rn_settings_text(r->in->settings, "vae-tile");
    unsigned tile = 0, overlap = 0;
    int end = 0, more = 0;
    if (!text[0]) return RN_OK;
    if (sscanf(text, "%5u%n", &tile, &end) != 1 || tile == 0)
        return rn_hint(rn_fail(RN_INVALID, "--vae-tile %s is no size", text),
                       "for example 512,128");
    overlap = tile / 4 / 8 * 8;
    if (text[end] == ',' && sscanf(text + end + 1, "%5u%n", &overlap, &more) == 1) end += 1 + more;
    if (text[end]) return rn_fail(RN_INVALID, "--vae-tile %s is no size and overlap", text);
    r->drawing.tile = tile;
    r->drawing.overlap = overlap;
    return RN_OK;
}

static rn_status read_pictures(image_run *r) {
    const char *init = r->drawing.task == RN_ENCODE ? r->picture : text_of(r, "init");
    const char *mask = text_of(r, "mask");
    if (init) {
        RN_TRY(rn_image_read(init, &r->init));
        r->drawing.init = &r->init;
    }
    if (mask) {
        RN_TRY(rn_image_read(mask, &r->mask));
        r->drawing.mask = &r->mask;
    }
    // A picture keeps its size, unless one is given.
    uint32_t multiple = rn_diffusion_get_info(r->model)->multiple;
    if (!init || text_of(r, "size")) return RN_OK;
    r->drawing.width = round_side(r->init.width, multiple);
    r->drawing.height = round_side(r->init.height, multiple);
    if (r->drawing.width != r->init.width || r->drawing.height != r->init.height)
        fprintf(stderr, "ration: sides must be multiples of %u: the picture is resized to %ux%u\n",
                multiple, r->drawing.width, r->drawing.height);
    return RN_OK;
}

// (N, h, w, channels) f32.
static rn_status read_latents(image_run *r) {
    if (r->drawing.task != RN_DECODE) return RN_OK;
    RN_TRY(read_npy(r->picture, &r->latents));
    rn_shape s = r->latents.shape;
    if (r->latents.dtype != RN_DTYPE_F32 || s.rank != 4 || s.dims[0] == 0 || s.dims[0] > 1024 ||
        s.dims[1] > 4096 || s.dims[2] > 4096)
        return rn_hint(rn_fail(RN_INVALID, "%s holds no latents: f32 (N, height, width, channels)",
                               r->picture),
                       "ration image encode writes such a file");
    const rn_diffusion_info *info = rn_diffusion_get_info(r->model);
    if (s.dims[3] != info->channels)
        return rn_fail(RN_INVALID, "%s: latents of %llu channels, the model's have %u", r->picture,
                       (unsigned long long)s.dims[3], info->channels);
    r->drawing.batch = (uint32_t)s.dims[0];
    r->drawing.height = (uint32_t)s.dims[1] * info->factor;
    r->drawing.width = (uint32_t)s.dims[2] * info->factor;
    r->drawing.latents = (const float *)(const void *)r->latents.file.data;
    return RN_OK;
}

// What a text encoder has no room for is left out, with a word.
static rn_status tell_length(const image_run *r, const char *name, const char *prompt) {
    uint32_t tokens, room;
    RN_TRY(rn_diffusion_count_tokens(r->model, prompt, &tokens, &room));
    if (tokens > room)
        fprintf(stderr,
                "ration: warning: the %s has %u tokens, the text encoder takes %u: its end is left "
                "out\n",
                name, tokens, room);
    return RN_OK;
}

static rn_status read_drawing(image_run *r) {
    const rn_settings *s = r->in->settings;
    rn_drawing *d = &r->drawing;
    const char *scheduler = rn_settings_text(s, "scheduler");
    d->prompt = rn_settings_text(s, "prompt");
    d->negative = rn_settings_text(s, "negative");
    d->steps = (uint32_t)rn_settings_count(s, "steps");
    d->guidance = rn_settings_number(s, "guidance");
    d->strength = rn_settings_number(s, "strength");
    d->seed = rn_settings_count(s, "seed");
    d->cache = text_of(r, "prompt-cache");
    d->preview = text_of(r, "preview") && d->task == RN_DRAW ? PREVIEW_SIDE : 0;
    if (text_of(r, "strength") && d->strength <= 0)
        return rn_hint(
            rn_fail(RN_INVALID, "a strength of %g leaves the picture as it is", d->strength),
            "up to 1: nothing is left of --init");
    if (text_of(r, "strength") && !text_of(r, "init") &&
        strncmp(rn_settings_origin(s, "strength"), "--", 2) == 0)
        return rn_hint(rn_fail(RN_INVALID, "--strength is of a picture to begin with"),
                       "name one with --init");
    d->torch_noise = strcmp(rn_settings_text(s, "seed-compat"), "torch") == 0;
    RN_TRY(rn_scheduler_parse((rn_str){scheduler, strlen(scheduler)}, &d->scheduler));
    RN_TRY(read_count(r, "batch", 1024, &d->batch));
    if (d->task == RN_DRAW) RN_TRY(tell_length(r, "prompt", d->prompt));
    if (d->task == RN_DRAW) RN_TRY(tell_length(r, "negative prompt", d->negative));
    RN_TRY(read_size(r));
    RN_TRY(read_tile(r));
    RN_TRY(read_pictures(r));
    return read_latents(r);
}

static const char *ending_of(const image_run *r) {
    return r->drawing.task == RN_ENCODE ? ".npy" : ".png";
}

static rn_status read_output(image_run *r) {
    const char *text = rn_settings_text(r->in->settings, "output"), *ending = ending_of(r);
    if (!text[0]) text = r->drawing.task == RN_ENCODE ? "latents.npy" : "image.png";
    size_t bytes = strlen(text), last = strlen(ending);
    if (bytes + 16 > sizeof r->output) return rn_fail(RN_INVALID, "--output: the path is too long");
    if (bytes <= last || strcmp(text + bytes - last, ending) != 0)
        return rn_fail(RN_INVALID, "--output %s must end in %s", text, ending);
    memcpy(r->output, text, bytes + 1);
    // Where nothing can be written nothing is drawn first.
    const char *slash = strrchr(text, '/');
    char folder[sizeof r->output];
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - text + 1) : 1,
             slash ? text : ".");
    if (access(folder, W_OK | X_OK) == 0) return RN_OK;
    return rn_fail(RN_IO, "cannot write %s: %s", text, strerror(errno));
}

// ---- drawing ------------------------------------------------------------------------------------

static rn_status show_step(void *self, uint32_t step, uint32_t steps, const float *latents) {
    image_run *r = self;
    (void)latents;
    r->last_step = now();
    r->steps = step;
    if (step == 1) r->first_step = r->last_step;
    if (!rn_settings_bool(r->in->settings, "quiet") && !r->in->json && isatty(2))
        fprintf(stderr, "\rstep %u of %u%s", step, steps, step == steps ? "\n" : "");
    if (!preview_is_due(&r->preview, step, steps)) return RN_OK;
    rn_image image;
    RN_TRY(rn_painter_preview(r->painter, &image));
    rn_status s = preview_show(&r->preview, &image);
    rn_image_free(&image);
    return s;
}

static rn_status try_device(void *self, const rn_ladder_target *target) {
    image_run *r = self;
    uint64_t room = 512 << 10;
    // The pictures themselves, and floats of one while it is encoded.
    uint64_t pixels = (uint64_t)(r->drawing.width ? r->drawing.width : 1024) *
                      (r->drawing.height ? r->drawing.height : 1024);
    room += pixels * 3 * (r->drawing.batch ? r->drawing.batch : 1);
    if (r->drawing.init) room += pixels * 4 * sizeof(float);
    if (r->drawing.preview) room += 4 * 3 * PREVIEW_SIDE * PREVIEW_SIDE; // and as a terminal has it
    r->device = r->options.session.device = target->device;
    (void)rn_rates_apply(r->device);
    RN_TRY(read_budget(r->in, r->device, room, &r->budget));
    use_budget(&r->budget, &r->options.plan);
    r->options.plan.exact = rn_settings_bool(r->in->settings, "exact");
    r->options.device_budget = r->budget.device;
    return rn_painter_create(r->model, &r->drawing, &r->options, &r->painter);
}

static void leave_device(void *self) {
    image_run *r = self;
    rn_painter_destroy(r->painter);
    r->painter = NULL;
    r->device = NULL;
}

static rn_status open_painter(image_run *r) {
    uint32_t threads = (uint32_t)rn_settings_count(r->in->settings, "threads");
    rn_ladder_load load = {.self = r, .attempt = try_device, .undo = leave_device};
    rn_ladder_options ladder = {.threads = threads,
                                .no_fallback = !rn_settings_bool(r->in->settings, "fallback")};
    rn_ladder_target target;
    (void)use_rates(r->in, threads);
    r->options.session.audit = rn_settings_bool(r->in->settings, "audit");
    r->options.session.cancel = &interrupt_flag;
    r->drawing.on_step = show_step;
    r->drawing.self = r;
    RN_TRY(read_constraints(r->in, &r->constraints, &r->options.plan));
    end_opening();
    RN_TRY(parse_devices(r->in, &r->ladder));
    return rn_ladder_start(r->ladder, &ladder, &load, &target);
}

// ---- files --------------------------------------------------------------------------------------

// image.png, or of several image-1.png, image-2.png, ...
static void name_picture(const image_run *r, uint32_t index, char *out, size_t capacity) {
    size_t stem = strlen(r->output) - strlen(ending_of(r));
    if (rn_painter_drawing(r->painter)->batch == 1)
        snprintf(out, capacity, "%s", r->output);
    else
        snprintf(out, capacity, "%.*s-%u%s", (int)stem, r->output, index + 1, ending_of(r));
}

static rn_status describe_lora(const rn_diffusion_adapter *adapter, text_buffer *out) {
    const char *slash = strrchr(adapter->path, '/');
    char text[400];
    int bytes = snprintf(text, sizeof text, ", Lora: %.300s:%g", slash ? slash + 1 : adapter->path,
                         (double)adapter->weight);
    return append_text(out, text, (size_t)bytes);
}

static rn_status write_picture(const image_run *r, uint32_t index) {
    char path[4200];
    text_buffer all = {0};
    bool draws = r->drawing.task == RN_DRAW;
    rn_status s =
        draws ? rn_painter_describe(r->painter, index, (rn_sink){&all, append_text}) : RN_OK;
    for (size_t i = 0; s == RN_OK && draws && i < MAX_ADAPTERS && r->adapters[i].path; i++)
        s = describe_lora(&r->adapters[i], &all);
    const rn_image_text texts[] = {{"Software", "ration"}, {"parameters", all.data}};
    name_picture(r, index, path, sizeof path);
    if (s == RN_OK) s = rn_image_write_with(path, &r->images[index], texts, draws ? 2 : 1);
    free_text(&all);
    return s;
}

static rn_status draw(image_run *r) {
    uint32_t batch = rn_painter_drawing(r->painter)->batch;
    r->images = calloc(batch, sizeof *r->images);
    if (!r->images) return rn_fail(RN_NO_MEMORY, "no memory");
    RN_TRY(rn_painter_draw(r->painter, r->images));
    for (uint32_t i = 0; i < batch; i++)
        RN_TRY(write_picture(r, i));
    return RN_OK;
}

static rn_status encode(image_run *r) {
    rn_shape shape;
    RN_TRY(rn_painter_encode(r->painter));
    const float *latents = rn_painter_latents(r->painter, &shape);
    return write_npy(r->output, RN_DTYPE_F32, shape, latents,
                     rn_shape_elements(shape, 1) * sizeof *latents);
}

// ---- reporting ----------------------------------------------------------------------------------

static void print_drawing(const image_run *r) {
    const rn_diffusion_info *info = rn_diffusion_get_info(r->model);
    const rn_drawing *d = rn_painter_drawing(r->painter);
    const rn_program_summary *p = rn_program_get_summary(rn_painter_program(r->painter));
    fprintf(stderr, "%s: %s, %s parameters (%s)%s\n", info->name, info->family,
            rn_count_format(info->parameters).text, rn_size_format(info->weight_bytes).text,
            info->adapters ? ", with adapters" : "");
    if (d->task == RN_DRAW)
        fprintf(stderr, "%ux%u, %u steps of %s, guidance %g, seed %llu%s\n", d->width, d->height,
                d->steps, rn_scheduler_name(d->scheduler), d->guidance, (unsigned long long)d->seed,
                d->torch_noise ? " (torch's)" : "");
    uint64_t budget = r->budget.own_memory ? r->budget.device.bytes : r->budget.total_bytes;
    if (budget)
        fprintf(stderr, "%s planned of a budget of %s\n", rn_size_format(p->planned_bytes).text,
                rn_size_format(budget).text);
    else
        fprintf(stderr, "%s planned of what is free on %s\n", rn_size_format(p->planned_bytes).text,
                rn_device_target(r->device));
    for (uint32_t i = 0; i < p->phase_count; i++) {
        rn_program_phase_summary s = rn_program_get_phase(rn_painter_program(r->painter), i);
        fprintf(stderr, "  %-8s %10s", s.name, rn_size_format(s.planned_bytes).text);
        if (s.streamed_bytes)
            fprintf(stderr, ", %s of weights read for every run",
                    rn_size_format(s.streamed_bytes).text);
        fprintf(stderr, "\n");
    }
    uint64_t beside = rn_painter_preview_bytes(r->painter);
    if (beside)
        fprintf(stderr, "  %-8s %10s, beside the phases, of the host's memory\n", "preview",
                rn_size_format(beside).text);
}

// Of a device with its own memory: what the ledger has seen there, the driver's part apart.
static void print_device(const image_run *r) {
    rn_device_id id = rn_device_number(r->device);
    uint64_t all = rn_ledger_total(id).peak_bytes;
    uint64_t driver = rn_ledger_read(id, RN_PURPOSE_UNACCOUNTED).peak_bytes;
    uint64_t planned = rn_program_get_summary(rn_painter_program(r->painter))->planned_bytes;
    fprintf(stderr, "on %s at most %s", rn_device_target(r->device), rn_size_format(all).text);
    if (r->budget.device.bytes)
        fprintf(stderr, " of a budget of %s", rn_size_format(r->budget.device.bytes).text);
    fprintf(stderr, ": %s planned, the driver's context and code %s\n",
            rn_size_format(planned).text, rn_size_format(driver).text);
}

static void print_facts(const image_run *r) {
    rn_painter_facts f = rn_painter_get_facts(r->painter);
    const rn_drawing *d = rn_painter_drawing(r->painter);
    if (d->task == RN_DRAW)
        fprintf(stderr, "text %s, %u runs of the denoiser %s, ",
                rn_time_format(f.text_seconds).text, f.runs,
                rn_time_format(f.denoise_seconds).text);
    if (d->init) fprintf(stderr, "encoding %s, ", rn_time_format(f.encode_seconds).text);
    if (d->task != RN_ENCODE)
        fprintf(stderr, "decoding %s, ", rn_time_format(f.decode_seconds).text);
    fprintf(stderr, "%s read\n", rn_size_format(f.read_bytes).text);
    if (f.live_peak_bytes)
        fprintf(stderr, "in use at the peak: planned %s, found %s\n",
                rn_size_format(f.planned_peak_bytes).text, rn_size_format(f.live_peak_bytes).text);
    if (r->first_step > 0)
        fprintf(stderr, "first step %s after the start, then %s a step\n",
                rn_time_format(r->first_step - r->started).text,
                rn_time_format(step_seconds(r)).text);
    if (r->budget.own_memory) print_device(r);
    for (uint32_t i = 0; d->task != RN_ENCODE && i < d->batch; i++) {
        char path[4200];
        name_picture(r, i, path, sizeof path);
        fprintf(stderr, "%s\n", path);
    }
    if (d->task == RN_ENCODE) fprintf(stderr, "%s\n", r->output);
}

static void write_files(const image_run *r, rn_json *json) {
    const rn_drawing *d = rn_painter_drawing(r->painter);
    rn_json_array(json, "files");
    for (uint32_t i = 0; i < (d->task == RN_ENCODE ? 1 : d->batch); i++) {
        char path[4200];
        name_picture(r, i, path, sizeof path);
        rn_json_string(json, NULL, d->task == RN_ENCODE ? r->output : path);
    }
    rn_json_end(json);
}

static void write_device(const image_run *r, rn_json *json) {
    rn_device_id id = rn_device_number(r->device);
    rn_json_object(json, "device");
    rn_json_u64(json, "budget_bytes", r->budget.device.bytes);
    rn_json_u64(json, "peak_bytes", rn_ledger_total(id).peak_bytes);
    rn_json_u64(json, "driver_bytes", rn_ledger_read(id, RN_PURPOSE_UNACCOUNTED).peak_bytes);
    rn_json_end(json);
}

static rn_status write_facts(const image_run *r) {
    const rn_diffusion_info *info = rn_diffusion_get_info(r->model);
    const rn_drawing *d = rn_painter_drawing(r->painter);
    const rn_program *program = rn_painter_program(r->painter);
    const rn_program_summary *p = rn_program_get_summary(program);
    rn_painter_facts f = rn_painter_get_facts(r->painter);
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "model", info->name);
    rn_json_string(&json, "family", info->family);
    rn_json_u64(&json, "parameters", info->parameters);
    rn_json_string(&json, "device", rn_device_target(r->device));
    rn_json_u64(&json, "width", d->width);
    rn_json_u64(&json, "height", d->height);
    rn_json_u64(&json, "batch", d->batch);
    if (d->task == RN_DRAW) {
        rn_json_string(&json, "prompt", d->prompt);
        rn_json_u64(&json, "seed", d->seed);
        rn_json_u64(&json, "steps", d->steps);
        rn_json_f64(&json, "guidance", d->guidance);
        rn_json_string(&json, "scheduler", rn_scheduler_name(d->scheduler));
    }
    write_files(r, &json);
    rn_json_object(&json, "seconds");
    rn_json_f64(&json, "text", f.text_seconds);
    rn_json_f64(&json, "encode", f.encode_seconds);
    rn_json_f64(&json, "denoise", f.denoise_seconds);
    rn_json_f64(&json, "decode", f.decode_seconds);
    if (r->first_step > 0) rn_json_f64(&json, "to_first_step", r->first_step - r->started);
    if (r->steps > 1) rn_json_f64(&json, "step", step_seconds(r));
    rn_json_end(&json);
    rn_json_u64(&json, "denoiser_runs", f.runs);
    rn_json_u64(&json, "cached_prompts", f.cached_prompts);
    rn_json_u64(&json, "read_bytes", f.read_bytes);
    rn_json_object(&json, "memory");
    rn_json_u64(&json, "budget_bytes", r->budget.total_bytes);
    rn_json_u64(&json, "planned_bytes", p->planned_bytes);
    rn_json_u64(&json, "preview_bytes", rn_painter_preview_bytes(r->painter));
    rn_json_u64(&json, "smallest_budget_bytes", p->smallest_budget_bytes);
    if (r->budget.own_memory) write_device(r, &json);
    if (f.live_peak_bytes) {
        rn_json_u64(&json, "planned_live_peak_bytes", f.planned_peak_bytes);
        rn_json_u64(&json, "live_peak_bytes", f.live_peak_bytes);
        rn_json_bool(&json, "as_planned", f.as_planned);
    }
    rn_json_array(&json, "phases");
    for (uint32_t i = 0; i < p->phase_count; i++) {
        rn_program_phase_summary s = rn_program_get_phase(program, i);
        rn_json_object(&json, NULL);
        rn_json_string(&json, "name", s.name);
        rn_json_u64(&json, "planned_bytes", s.planned_bytes);
        rn_json_u64(&json, "streamed_bytes", s.streamed_bytes);
        rn_json_u64(&json, "runs", s.runs);
        rn_json_end(&json);
    }
    rn_json_end(&json);
    rn_json_check(&json, rn_ledger_json(rn_json_embed(&json, "ledger")));
    rn_json_end(&json);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

// ---- the command --------------------------------------------------------------------------------

static rn_status read_words(image_run *r) {
    const invocation *in = r->in;
    const char *first = in->words[0];
    bool encodes = strcmp(first, "encode") == 0, decodes = strcmp(first, "decode") == 0;
    r->model_path = first;
    if (!encodes && !decodes) {
        if (in->word_count > 1)
            return rn_hint(rn_fail(RN_INVALID, "'%s' is one word too many", in->words[1]),
                           "the text to draw is --prompt's");
        return RN_OK;
    }
    if (in->word_count != 3)
        return rn_fail(RN_INVALID, "ration image %s MODEL %s", first,
                       encodes ? "PICTURE.png" : "LATENTS.npy");
    r->drawing.task = encodes ? RN_ENCODE : RN_DECODE;
    r->model_path = in->words[1];
    r->picture = in->words[2];
    return RN_OK;
}

static rn_status close_run(image_run *r) {
    uint32_t batch = r->painter ? rn_painter_drawing(r->painter)->batch : 0;
    for (uint32_t i = 0; r->images && i < batch; i++)
        rn_image_free(&r->images[i]);
    free(r->images);
    rn_status s = r->ladder ? rn_ladder_leave(r->ladder, NULL) : RN_OK;
    rn_ladder_destroy(r->ladder);
    rn_diffusion_close(r->model);
    rn_image_free(&r->init);
    rn_image_free(&r->mask);
    free_text(&r->latents.file);
    return s;
}

static rn_status run(const invocation *in) {
    image_run *r = calloc(1, sizeof *r); // a few paths: too large for the stack
    if (!r) return rn_fail(RN_NO_MEMORY, "no memory");
    r->in = in;
    r->started = now();
    rn_status s = read_words(r);
    if (s == RN_OK) s = read_output(r);
    if (s == RN_OK) s = open_model(r);
    if (s == RN_OK) s = read_drawing(r);
    if (s == RN_OK) s = preview_begin(in, r->output, &r->preview);
    if (s == RN_OK) s = open_painter(r);
    bool talks = s == RN_OK && !in->json && !rn_settings_bool(in->settings, "quiet");
    if (talks) print_drawing(r);
    if (s == RN_OK) s = r->drawing.task == RN_ENCODE ? encode(r) : draw(r);
    preview_end(&r->preview);
    if (s == RN_OK && in->json) s = write_facts(r);
    if (s == RN_OK && talks) print_facts(r);
    rn_error_info error = *rn_last_error();
    rn_status closed = close_run(r);
    free(r);
    return s == RN_OK ? closed : rn_error_restore(&error);
}

// ---- planning -----------------------------------------------------------------------------------

typedef rn_status program_writer(const rn_program *program, rn_sink sink);

static rn_status write_to(const rn_program *program, const char *path, program_writer *write) {
    if (!path[0]) return RN_OK;
    if (strcmp(path, "-") == 0) return write(program, rn_sink_file(stdout));
    FILE *file = fopen(path, "w");
    if (!file) return rn_fail(RN_IO, "cannot write %s", path);
    rn_status s = write(program, rn_sink_file(file));
    if (fclose(file) != 0 && s == RN_OK) s = rn_fail(RN_IO, "cannot write %s", path);
    return s;
}

static rn_status show_program(const image_run *r) {
    const rn_program *program = rn_painter_program(r->painter);
    const char *svg = rn_settings_text(r->in->settings, "svg");
    const char *html = rn_settings_text(r->in->settings, "html");
    RN_TRY(write_to(program, svg, rn_program_svg));
    RN_TRY(write_to(program, html, rn_program_html));
    if (r->in->json) return rn_program_json(program, rn_sink_file(stdout));
    if (strcmp(svg, "-") == 0 || strcmp(html, "-") == 0) return RN_OK;
    return rn_program_print(program, rn_sink_file(stdout));
}

rn_status plan_image(const invocation *in) {
    image_run *r = calloc(1, sizeof *r);
    if (!r) return rn_fail(RN_NO_MEMORY, "no memory");
    r->in = in;
    r->model_path = in->words[0];
    rn_status s = open_model(r);
    if (s == RN_OK) s = read_drawing(r);
    if (s == RN_OK) s = open_painter(r);
    if (s == RN_OK) s = show_program(r);
    rn_error_info error = *rn_last_error();
    rn_status closed = close_run(r);
    free(r);
    return s == RN_OK ? closed : rn_error_restore(&error);
}

const command image_command = {
    .name = "image",
    .usage = "image MODEL -p TEXT [options]\n"
             "       ration image encode MODEL PICTURE.png\n"
             "       ration image decode MODEL LATENTS.npy",
    .summary = "pictures from diffusion models, within a memory budget",
    .about =
        "MODEL is a diffusers folder (Stable Diffusion 1.x, 2.x, XL, Flux.1) or a single file\n"
        "of one: .safetensors or .gguf; then --tokenizer names CLIP's vocabulary. Text encoders,\n"
        "denoiser and decoder are phases of one plan: the budget is for the largest of them, and\n"
        "weights that do not fit are streamed. The same --seed gives the same picture at every\n"
        "budget. --init and --strength begin with a picture, --mask draws into it; --lora adds\n"
        "adapters. `encode` writes a picture's latents as .npy, `decode` makes a picture of them.",
    .example = "ration image models/sdxl -p \"a lighthouse at night\" --seed 7 --budget 4GiB",
    .min_words = 1,
    .max_words = 3,
    .limits_memory = true,
    .run = run,
};
