// train_images.c — ration train --objective diffusion|autoencoder: a part of a diffusers folder,
// trained on a folder of pictures with captions.
//
//     read the folder ─ encode pictures and captions to disk ─ steps ─ evaluate, save now and then
//     ─ write OUT/model
#include "training.h"

#include <ration/train_images.h>
#include <ration/train_log.h>

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, RECORD_BYTES = 512 << 10 };

typedef struct image_training {
    const invocation *in;
    const char *model;
    bool plans_only, quiet, terminal;
    rn_pictures *pictures;
    rn_ladder *ladder;
    rn_device *device;
    host_budget budget;
    constraint_texts constraints;
    rn_image_trainer *trainer;
    rn_program *cache, *program; // plans
    rn_train_log *log;
    rn_lora_options lora;
    char out[PATH_BYTES], checkpoint[PATH_BYTES];
    char denoiser[TRAIN_PATH_BYTES], single[TRAIN_PATH_BYTES]; // quantised; or ""
    uint64_t steps, warmup;
    uint32_t batch;
    float loss;
} image_training;

static uint64_t count_of(const image_training *t, const char *name) {
    return rn_settings_count(t->in->settings, name);
}

static double number_of(const image_training *t, const char *name) {
    return rn_settings_number(t->in->settings, name);
}

static const char *text_of(const image_training *t, const char *name) {
    return rn_settings_text(t->in->settings, name);
}

static bool is_set(const image_training *t, const char *name) {
    return rn_settings_bool(t->in->settings, name);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// ---- pictures -----------------------------------------------------------------------------------

static rn_status open_pictures(image_training *t) {
    const char *folder = text_of(t, "data");
    rn_picture_options o = {.buckets = (uint32_t)count_of(t, "buckets"),
                            .validation = number_of(t, "validation"),
                            .seed = count_of(t, "seed")};
    if (!folder[0])
        return rn_hint(rn_fail(RN_INVALID, "there is no data"),
                       "name a folder of pictures: --data FOLDER");
    RN_TRY(read_sides(text_of(t, "size"), &o.width, &o.height));
    return rn_pictures_open(folder, &o, &t->pictures);
}

static void print_pictures(const image_training *t) {
    const rn_pictures_info *i = rn_pictures_get_info(t->pictures);
    fprintf(stderr, "data: %llu pictures, %llu for validation", (unsigned long long)i->count,
            (unsigned long long)i->validation_count);
    if (i->without_caption)
        fprintf(stderr, ", %llu without a caption", (unsigned long long)i->without_caption);
    if (i->orphans)
        fprintf(stderr, ", %llu captions without a picture", (unsigned long long)i->orphans);
    fprintf(stderr, "\n");
    for (uint32_t b = 0; b < i->bucket_count; b++)
        fprintf(stderr, "      %u x %u: %llu\n", i->buckets[b].width, i->buckets[b].height,
                (unsigned long long)i->buckets[b].count);
}

// ---- planning -----------------------------------------------------------------------------------

static void show_cache(void *self, const char *phase, uint64_t done, uint64_t count) {
    const image_training *t = self;
    if (t->quiet) return;
    if (t->terminal)
        fprintf(stderr, "\r\033[K%s: %llu of %llu%s", phase, (unsigned long long)done,
                (unsigned long long)count, done == count ? "\n" : "");
    else if (done == count)
        fprintf(stderr, "%s: %llu done\n", phase, (unsigned long long)done);
}

static bool has_file(const char *folder, const char *part, const char *ending) {
    char path[PATH_BYTES];
    bool found = false;
    snprintf(path, sizeof path, "%.4000s/%s", folder, part);
    DIR *list = opendir(path);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        size_t a = strlen(entry->d_name), b = strlen(ending);
        found = found || (a >= b && strcmp(entry->d_name + a - b, ending) == 0);
    }
    if (list) closedir(list);
    return found;
}

// An autoencoder, and a denoiser without weights, is trained itself.
static bool is_full(const image_training *t) {
    bool begins = has_file(t->model, "", "model_index.json") &&
                  !has_file(t->model, "unet", ".safetensors") &&
                  !has_file(t->model, "transformer", ".safetensors");
    return begins || strcmp(text_of(t, "objective"), "autoencoder") == 0 ||
           strcmp(text_of(t, "method"), "full") == 0;
}

// Of the denoiser matrices alone: no embeddings of times, nothing of the autoencoder or the text
// encoders that a single file has beside it; and no kernels, which a UNet has under these names.
static const char *const kept[] = {"*embed*",       "*emb_*",       "*_emb*",
                                   "*norm_out*",    "proj_out.*",   "first_stage_*",
                                   "cond_*",        "conditioner*", "*_in.*",
                                   "*final_layer*", "*conv*",       "*.proj_in.*",
                                   "*in_layers*",   "*out_layers*", "*skip_connection*",
                                   "*.op.*",        "*.out.2.*",    "*input_blocks.0.0.*",
                                   "*.proj_out.*"};
enum { KEPT = sizeof kept / sizeof *kept };

// The denoiser's folder, or the file, quantised within --out.
static rn_status quantise_base(image_training *t) {
    static const char *const parts[] = {"unet", "transformer"};
    quantised_base base = {.in = t->in,
                           .of_images = true,
                           .model = t->model,
                           .out = t->out,
                           .part = "",
                           .exclude = kept,
                           .exclude_count = KEPT};
    char path[PATH_BYTES];
    if (strcmp(text_of(t, "method"), "qlora") != 0 || is_full(t)) return RN_OK;
    for (int i = 0; i < 2; i++)
        if (has_file(t->model, parts[i], ".safetensors")) {
            snprintf(path, sizeof path, "%.4000s/%s", t->model, parts[i]);
            base.model = path;
            base.part = parts[i];
            base.exclude_count = KEPT - (uint32_t)i; // the last one is a matrix of Flux's
            return make_quantised_base(&base, t->denoiser);
        }
    if (has_file(t->model, "", ".json")) // a folder: what is missing is said when it is opened
        return RN_OK;
    return make_quantised_base(&base, t->single);
}

// NULL: nobody has set it.
static const char *path_of(const image_training *t, const char *name) {
    const char *text = text_of(t, name);
    return text[0] ? text : NULL;
}

static rn_dtype compute_dtype(const image_training *t) {
    const char *name = text_of(t, "compute");
    bool gpu = strncmp(rn_device_target(t->device), "cuda", 4) == 0;
    if (strcmp(name, "bf16") == 0) return RN_DTYPE_BF16;
    if (strcmp(name, "f16") == 0) return RN_DTYPE_F16; // which the trainer refuses
    return strcmp(name, "auto") == 0 && gpu ? RN_DTYPE_BF16 : RN_DTYPE_F32;
}

static void read_parts(const image_training *t, rn_image_train_options *o) {
    o->vae = path_of(t, "vae");
    o->text_encoder = path_of(t, "text-encoder");
    o->text_encoder_2 = path_of(t, "text-encoder-2");
    o->tokenizer = path_of(t, "tokenizer");
    o->tokenizer_2 = path_of(t, "tokenizer-2");
    const char *prediction = text_of(t, "prediction");
    if (strcmp(prediction, "model") != 0) o->prediction = prediction;
    if (t->denoiser[0]) o->denoiser = t->denoiser;
}

static rn_status read_options(image_training *t, rn_image_train_options *o) {
    const char *const *targets = NULL;
    t->lora = (rn_lora_options){.rank = (uint32_t)count_of(t, "rank"),
                                .alpha = (float)number_of(t, "alpha"),
                                .by_root = is_set(t, "rslora"),
                                .dora = is_set(t, "dora")};
    t->lora.target_count = rn_settings_list(t->in->settings, "target", &targets);
    t->lora.targets = targets;
    *o = (rn_image_train_options){.objective = text_of(t, "objective"),
                                  .trainer = {.batch = t->batch,
                                              .optimizer = text_of(t, "optimizer"),
                                              .weight_decay = number_of(t, "weight-decay"),
                                              .max_norm = (float)number_of(t, "clip"),
                                              .seed = count_of(t, "seed"),
                                              .undecayed = "*norm*,*.bias",
                                              .activations = compute_dtype(t),
                                              .device = t->device},
                                  .lora = is_full(t) ? NULL : &t->lora,
                                  .text_encoders = is_set(t, "train-text-encoders"),
                                  .min_snr = number_of(t, "min-snr"),
                                  .offset_noise = number_of(t, "offset-noise"),
                                  .caption_dropout = number_of(t, "caption-dropout"),
                                  .average = number_of(t, "ema"),
                                  .guidance = number_of(t, "train-guidance"),
                                  .kl = number_of(t, "kl"),
                                  .cache = t->out,
                                  .cancel = &interrupt_flag,
                                  .self = t,
                                  .progress = show_cache};
    bool validates = rn_pictures_get_info(t->pictures)->validation_count > 0;
    o->trainer.evaluate_every = validates ? count_of(t, "evaluate-every") : 0;
    read_parts(t, o);
    use_budget(&t->budget, &o->trainer.plan);
    o->trainer.plan.exact = is_set(t, "exact");
    RN_TRY(read_moves(t->in, &t->constraints, &o->trainer.plan));
    return rn_plan_options_for(t->device, &t->budget.device, &o->trainer.plan);
}

static rn_status try_device(void *self, const rn_ladder_target *target) {
    image_training *t = self;
    rn_image_train_options o;
    const rn_pictures_info *info = rn_pictures_get_info(t->pictures);
    uint64_t beside = RECORD_BYTES;
    for (uint32_t b = 0; b < info->bucket_count; b++) // pixels, latents and texts of a batch
        beside += (uint64_t)t->batch * info->buckets[b].width * info->buckets[b].height * 16;
    t->device = target->device;
    (void)rn_rates_apply(t->device);
    RN_TRY(read_budget(t->in, t->device, beside, &t->budget));
    RN_TRY(read_options(t, &o));
    const char *model = t->single[0] ? t->single : t->model;
    if (t->plans_only) return rn_image_train_plan(model, t->pictures, &o, &t->cache, &t->program);
    return rn_image_trainer_create(model, t->pictures, &o, &t->trainer);
}

static void leave_device(void *self) {
    image_training *t = self;
    rn_program_destroy(t->cache);
    rn_program_destroy(t->program);
    rn_image_trainer_destroy(t->trainer);
    t->cache = t->program = NULL;
    t->trainer = NULL;
    t->device = NULL;
}

static rn_status make_trainer(image_training *t) {
    rn_ladder_load load = {.self = t, .attempt = try_device, .undo = leave_device};
    rn_ladder_options options = {.threads = (uint32_t)count_of(t, "threads"),
                                 .no_fallback = !is_set(t, "fallback")};
    rn_ladder_target target;
    end_opening();
    (void)use_rates(t->in, options.threads);
    RN_TRY(parse_devices(t->in, &t->ladder));
    return rn_ladder_start(t->ladder, &options, &load, &target);
}

static void print_program(const rn_program *program, FILE *to) {
    const rn_program_summary *all = rn_program_get_summary(program);
    for (uint32_t i = 0; i < all->phase_count; i++) {
        rn_program_phase_summary p = rn_program_get_phase(program, i);
        fprintf(to, "  %-16s %10s", p.name, rn_size_format(p.planned_bytes).text);
        if (p.seconds > 0) fprintf(to, "  %s", rn_time_format(p.seconds).text);
        fprintf(to, "\n");
    }
}

static rn_status print_plan(const image_training *t) {
    if (t->in->json) {
        rn_json json;
        rn_json_begin(&json, rn_sink_file(stdout), true);
        rn_json_object(&json, NULL);
        if (t->cache)
            rn_json_check(&json, rn_program_json(t->cache, rn_json_embed(&json, "cache")));
        rn_json_check(&json, rn_program_json(t->program, rn_json_embed(&json, "program")));
        rn_json_end(&json);
        return rn_json_finish(&json);
    }
    printf("phases, planned bytes and time of a run\n");
    if (t->cache) print_program(t->cache, stdout);
    print_program(t->program, stdout);
    printf("\n");
    fflush(stdout);
    return rn_program_print(t->program, rn_sink_file(stdout));
}

// ---- steps --------------------------------------------------------------------------------------

static void count_steps(image_training *t) {
    uint64_t batches = rn_pictures_batches(t->pictures, false, t->batch);
    double warmup = number_of(t, "warmup");
    t->steps = count_of(t, "steps");
    if (t->steps == 0) t->steps = (uint64_t)ceil(number_of(t, "epochs") * (double)batches);
    t->warmup = (uint64_t)(warmup < 1 ? ceil((double)t->steps * warmup) : warmup);
}

static double rate_at(const image_training *t, uint64_t step) {
    const char *schedule = text_of(t, "schedule");
    double rate = number_of(t, "rate"), warmup = (double)t->warmup;
    if (step < t->warmup) return rate * (double)(step + 1) / warmup;
    double rest = (double)t->steps - warmup > 1 ? (double)t->steps - warmup : 1;
    double done = ((double)step - warmup) / rest;
    if (strcmp(schedule, "cosine") == 0)
        return rate * 0.5 * (1 + cos(3.14159265358979323846 * done));
    return strcmp(schedule, "linear") == 0 ? rate * (1 - done) : rate;
}

static rn_status save(image_training *t) {
    char folder[PATH_BYTES + 8];
    snprintf(folder, sizeof folder, "%s%s", t->out, is_full(t) ? "/model" : "");
    RN_TRY(rn_image_trainer_save(t->trainer, t->checkpoint));
    return rn_image_trainer_export(t->trainer, RN_DTYPE_F16, folder);
}

static rn_status report(image_training *t, double rate, double seconds, float validation) {
    rn_trainer *trainer = rn_image_trainer_get(t->trainer);
    const rn_step_info *last = rn_trainer_last_step(trainer);
    uint64_t step = rn_trainer_steps(trainer);
    rn_train_point point = {.step = step,
                            .loss = t->loss,
                            .gradient_norm = last->gradient_norm,
                            .validation_loss = validation,
                            .rate = rate,
                            .tokens_per_second = (double)t->batch / seconds,
                            .memory_bytes = rn_ledger_total(RN_DEVICE_HOST).now_bytes};
    bool tells =
        !isnan(validation) || step == 1 || step == t->steps || step % count_of(t, "log-every") == 0;
    if (!t->quiet && (t->terminal || tells)) {
        fprintf(stderr, "%sstep %llu/%llu  loss %.4f", t->terminal ? "\r\033[K" : "",
                (unsigned long long)step, (unsigned long long)t->steps, (double)t->loss);
        if (!isnan(validation)) fprintf(stderr, "  validation %.4f", (double)validation);
        fprintf(stderr, "  rate %.2e  %.1f pictures/s%s", rate, (double)t->batch / seconds,
                t->terminal && !tells ? "" : "\n");
        fflush(stderr);
    }
    return rn_train_log_add(t->log, &point);
}

static rn_status take_step(image_training *t, uint64_t *bad) {
    rn_trainer *trainer = rn_image_trainer_get(t->trainer);
    double rate = rate_at(t, rn_trainer_steps(trainer)), begin = now();
    uint64_t every = count_of(t, "evaluate-every");
    bool validates = rn_pictures_get_info(t->pictures)->validation_count > 0 && every > 0;
    float validation = NAN;
    RN_TRY(rn_image_trainer_step(t->trainer, rate, &t->loss));
    const rn_step_info *last = rn_trainer_last_step(trainer);
    uint64_t step = rn_trainer_steps(trainer);
    if (last->effect == RN_STEP_NOT_FINITE) {
        fprintf(stderr, "batch %llu passed over: not finite%s%s\n",
                (unsigned long long)rn_trainer_batches(trainer), last->weight[0] ? ", " : "",
                last->weight);
        if (++*bad < count_of(t, "bad-steps")) return RN_OK;
        return rn_hint(
            rn_fail(RN_INVALID, "%llu steps in a row were not finite", (unsigned long long)*bad),
            "a smaller --rate, --compute f32");
    }
    *bad = 0;
    double seconds = now() - begin;
    if (validates && (step % every == 0 || step == t->steps))
        RN_TRY(rn_image_trainer_evaluate(t->trainer, &validation));
    return report(t, rate, seconds, validation);
}

static rn_status take_steps(image_training *t) {
    rn_trainer *trainer = rn_image_trainer_get(t->trainer);
    uint64_t save_every = count_of(t, "save-every"), bad = 0;
    while (rn_trainer_steps(trainer) < t->steps) {
        RN_TRY(take_step(t, &bad));
        uint64_t step = rn_trainer_steps(trainer);
        if (save_every && bad == 0 && step % save_every == 0 && step < t->steps) RN_TRY(save(t));
        if (!interrupted) continue;
        RN_TRY(save(t));
        return rn_hint(rn_fail(RN_CANCELLED, "stopped after step %llu, which is saved",
                               (unsigned long long)step),
                       "the same command with --resume goes on from there");
    }
    return save(t);
}

// ---- all of it ----------------------------------------------------------------------------------

static void name_run(image_training *t) {
    char text[1024];
    const rn_pictures_info *info = rn_pictures_get_info(t->pictures);
    snprintf(
        text, sizeof text,
        "objective=%s;rank=%llu;pictures=%llu;size=%s;buckets=%u;batch=%u;seed=%llu;optimizer=%s;"
        "min_snr=%g;offset_noise=%g;caption_dropout=%g;ema=%g;kl=%g%s",
        text_of(t, "objective"), (unsigned long long)(is_full(t) ? 0 : count_of(t, "rank")),
        (unsigned long long)info->count, text_of(t, "size"), info->bucket_count, t->batch,
        (unsigned long long)count_of(t, "seed"), text_of(t, "optimizer"), number_of(t, "min-snr"),
        number_of(t, "offset-noise"), number_of(t, "caption-dropout"), number_of(t, "ema"),
        number_of(t, "kl"), is_set(t, "train-text-encoders") ? ";text_encoders" : "");
    rn_trainer_set_run(rn_image_trainer_get(t->trainer), text);
}

// What says nothing of image models is not passed over in silence.
static rn_status refuse_options_of_text(const image_training *t) {
    static const char *const names[] = {"rank-pattern", "alpha-pattern",   "adapter-init", "merge",
                                        "accumulate",   "train-dtype",     "length",       "long",
                                        "unpacked",     "keep-checkpoints"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(rn_settings_origin(t->in->settings, names[i]), "--", 2) == 0)
            return rn_fail(RN_UNSUPPORTED, "--%s is not built for image models", names[i]);
    return RN_OK;
}

static rn_status open_all(image_training *t) {
    const char *base = text_of(t, "base");
    t->model = t->in->word_count ? t->in->words[0] : base;
    t->batch = (uint32_t)count_of(t, "batch-size");
    t->quiet = is_set(t, "quiet");
    t->terminal = isatty(2);
    snprintf(t->out, sizeof t->out, "%s", text_of(t, "out"));
    snprintf(t->checkpoint, sizeof t->checkpoint, "%.4000s/checkpoint.safetensors", t->out);
    if (!t->model[0])
        return rn_hint(rn_fail(RN_INVALID, "there is no image model that is built in"),
                       "name a folder as diffusers writes it, or a single file");
    if (!t->out[0])
        return rn_hint(rn_fail(RN_INVALID, "there is no place for what is learned"),
                       "name a folder: --out DIR");
    if (t->batch == 0 || t->batch > 1 << 12)
        return rn_fail(RN_INVALID, "batches of %u pictures are not possible", t->batch);
    RN_TRY(refuse_options_of_text(t));
    RN_TRY(open_pictures(t));
    count_steps(t);
    return quantise_base(t);
}

static rn_status begin(image_training *t) {
    bool exists = access(t->checkpoint, F_OK) == 0;
    if (mkdir(t->out, 0777) != 0 && errno != EEXIST)
        return rn_error_locate(rn_fail(RN_IO, "cannot make the folder"), t->out, RN_NO_OFFSET);
    if (exists && !is_set(t, "resume"))
        return rn_hint(rn_fail(RN_INVALID, "'%s' has a training already", t->out),
                       "--resume goes on with it; another --out begins anew");
    if (!t->quiet) print_pictures(t);
    RN_TRY(make_trainer(t));
    name_run(t);
    if (exists) RN_TRY(rn_image_trainer_resume(t->trainer, t->checkpoint));
    rn_trainer *trainer = rn_image_trainer_get(t->trainer);
    if (!t->quiet) {
        fprintf(stderr, "phases, planned bytes and time of a run\n");
        print_program(rn_trainer_program(trainer), stderr);
    }
    return rn_train_log_open(t->out, rn_trainer_steps(trainer), &t->log);
}

// What the plan decides: not descriptions, nor what is read through.
static bool is_planned(int purpose) {
    return purpose != RN_PURPOSE_IO && purpose != RN_PURPOSE_OTHER &&
           purpose != RN_PURPOSE_UNACCOUNTED && purpose != RN_PURPOSE_PROFILER &&
           purpose != RN_PURPOSE_STAGING;
}

static void print_end(const image_training *t) {
    rn_trainer *trainer = rn_image_trainer_get(t->trainer);
    rn_train_phase_info step = rn_train_get_phase(rn_trainer_program(trainer), RN_TRAIN_STEP);
    uint8_t device = t->budget.own_memory ? t->budget.device_number : RN_DEVICE_HOST;
    uint64_t taken = 0, planned = 0;
    for (int i = 0; i < RN_PURPOSE_COUNT; i++)
        if (is_planned(i)) {
            planned += step.bytes[i];
            taken += rn_ledger_read(device, (rn_purpose)i).now_bytes;
        }
    if (!t->quiet)
        fprintf(stderr, "planned %s, held %s\n%s in %s%s\n", rn_size_format(planned).text,
                rn_size_format(taken).text, is_full(t) ? "model" : "adapter", t->out,
                is_full(t) ? "/model" : "");
    if (!t->in->json) return;
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "out", t->out);
    rn_json_u64(&json, "steps", rn_trainer_steps(trainer));
    rn_json_f64(&json, "loss", (double)t->loss);
    rn_json_string(&json, "device", rn_device_target(t->device));
    rn_json_u64(&json, "planned_bytes", planned);
    rn_json_u64(&json, "held_bytes", taken);
    rn_json_end(&json);
    (void)!rn_json_finish(&json);
}

static void close_all(image_training *t) {
    rn_error_info error = *rn_last_error();
    rn_train_log_close(t->log);
    if (t->ladder && rn_ladder_leave(t->ladder, NULL) != RN_OK)
        fprintf(stderr, "ration: %s\n", rn_last_error()->message);
    rn_ladder_destroy(t->ladder);
    (void)rn_error_restore(&error);
    rn_pictures_close(t->pictures);
}

bool is_image_training(const invocation *in) {
    const char *objective = rn_settings_text(in->settings, "objective");
    return strcmp(objective, "diffusion") == 0 || strcmp(objective, "autoencoder") == 0;
}

rn_status plan_image_training(const invocation *in) {
    image_training t = {.in = in, .plans_only = true};
    rn_status s = open_all(&t);
    if (s == RN_OK) s = make_trainer(&t);
    if (s == RN_OK) s = print_plan(&t);
    close_all(&t);
    return s;
}

rn_status train_images(const invocation *in) {
    image_training t = {.in = in};
    rn_status s = open_all(&t);
    if (s == RN_OK) s = begin(&t);
    if (s == RN_OK) s = take_steps(&t);
    if (s == RN_OK) print_end(&t);
    close_all(&t);
    return s;
}
