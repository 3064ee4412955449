// diffuse.h — pictures from diffusion models, within a budget.
//
//     rn_diffusion *model;
//     RN_TRY(rn_diffusion_open("models/sdxl", NULL, &model));
//     rn_drawing drawing = {.prompt = "a lighthouse at night", .seed = 7};
//     rn_painter *painter;
//     RN_TRY(rn_painter_create(model, &drawing, &(rn_painter_options){0}, &painter));
//     rn_image image;
//     RN_TRY(rn_painter_draw(painter, &image));
//
// A drawing is a program (program.h): text encoders, the denoiser times its steps, the decoder, in
// one arena, so the budget holds for the largest of them and not for their sum. Weights that do not
// fit are streamed. The same seed gives the same picture at every budget.
//
// Models: Stable Diffusion 1.x, 2.x and XL, Flux.1, from a diffusers folder or a single file.
#ifndef RATION_DIFFUSE_H
#define RATION_DIFFUSE_H

#include <ration/image.h>
#include <ration/program.h>

RN_BEGIN_DECLS

typedef struct rn_diffusion rn_diffusion;
typedef struct rn_painter rn_painter;

typedef enum rn_scheduler {
    RN_SCHEDULER_MODEL, // as the model's files say
    RN_SCHEDULER_EULER,
    RN_SCHEDULER_EULER_A,
    RN_SCHEDULER_DDIM,
    RN_SCHEDULER_DPMPP_2M,
    RN_SCHEDULER_DPMPP_2M_KARRAS,
    RN_SCHEDULER_LCM,
    RN_SCHEDULER_FLOW,
    RN_SCHEDULERS
} rn_scheduler;
// "euler_a". RN_INVALID lists them.
RN_API RN_MUST_USE rn_status rn_scheduler_parse(rn_str text, rn_scheduler *out);
RN_API const char *rn_scheduler_name(rn_scheduler scheduler);

// ---- a model ------------------------------------------------------------------------------------

typedef struct rn_diffusion_adapter {
    const char *path;
    float weight;
} rn_diffusion_adapter;

typedef struct rn_diffusion_options {
    // Parts from elsewhere: a component's folder or file. NULL: the model's own. A file that holds
    // a denoiser alone needs all of its others.
    const char *vae, *text_encoder, *text_encoder_2, *tokenizer, *tokenizer_2;
    const rn_diffusion_adapter *adapters; // LoRA files, applied in this order
    size_t adapter_count;
    // "epsilon", "v_prediction", "sample": what the denoiser says, where the files do not tell it
    // (single files); NULL: as they say.
    const char *prediction;
    const char *preview;  // a decoder for previews: TAESD's file or folder, or "own": the model's
                          // autoencoder; NULL: none
    uint64_t reserved[4]; // zero
} rn_diffusion_options;

// A diffusers folder (model_index.json), or one .safetensors or .gguf file. RN_NOT_FOUND names a
// part that is missing, RN_INVALID an adapter that nothing belongs to.
RN_API RN_MUST_USE rn_status rn_diffusion_open(const char *path,
                                               const rn_diffusion_options *options,
                                               rn_diffusion **out);
RN_API void rn_diffusion_close(rn_diffusion *model);
// Whether `path` looks like one: a folder with model_index.json, or a file with a denoiser's names.
RN_API bool rn_diffusion_is(const char *path);

typedef struct rn_diffusion_part {
    const char *name, *kind; // "unet", "UNet"
    uint64_t parameters, weight_bytes;
} rn_diffusion_part;
enum { RN_DIFFUSION_PARTS = 4 };

typedef struct rn_diffusion_info {
    const char *name, *family; // the files' own name; "Stable Diffusion XL"
    rn_diffusion_part parts[RN_DIFFUSION_PARTS];
    uint32_t part_count;
    uint64_t parameters, weight_bytes;
    uint32_t size;     // of the pictures it was trained with
    uint32_t multiple; // of which heights and widths must be
    uint32_t factor;   // pixels a latent, high and wide
    uint32_t channels; // of latents
    rn_scheduler scheduler;
    uint32_t steps; // usual ones
    double guidance;
    bool inpaints;             // it was trained with masks
    uint32_t adapters;         // additions to weights
    uint32_t adapter_leftover; // tensors of adapters that belong to no weight
} rn_diffusion_info;
RN_API const rn_diffusion_info *rn_diffusion_get_info(const rn_diffusion *model);

// The tokens of a prompt, with its beginning and its end, and how many the text encoder has room
// for, that whose rows the denoiser reads: what is behind them is left out of a drawing.
RN_API RN_MUST_USE rn_status rn_diffusion_count_tokens(const rn_diffusion *model,
                                                       const char *prompt, uint32_t *out_tokens,
                                                       uint32_t *out_room);

// ---- a drawing ----------------------------------------------------------------------------------

typedef enum rn_drawing_task {
    RN_DRAW,
    RN_ENCODE, // `init` becomes latents
    RN_DECODE  // `latents` become pictures
} rn_drawing_task;

typedef struct rn_drawing {
    rn_drawing_task task;
    const char *prompt, *negative; // NULL: ""
    uint32_t width, height;        // 0: the model's size; else multiples of info->multiple
    uint32_t batch;                // pictures; 0: 1. Picture i has the seed `seed` + i
    uint32_t steps;                // 0: the model's
    double guidance;               // 0: the model's; 1: none
    rn_scheduler scheduler;
    uint64_t seed;
    bool torch_noise;       // from PyTorch's generator, one for the whole batch, as diffusers
    const rn_image *init;   // image-to-image; resized to the size. Borrowed until the drawing ends
    double strength;        // of the noise over it; 0: 0.8
    const rn_image *mask;   // inpainting: white is drawn anew; of init's size
    const float *latents;   // RN_DECODE: (batch, height / factor, width / factor, channels)
    const char *cache;      // a folder for encoded prompts; NULL: none
    uint32_t tile, overlap; // decode in blended tiles of so many pixels, as diffusers; 0: whole
    uint32_t preview;       // pixels of a preview's longer side, at most; 0: none
    // Called behind each step, from the drawing thread. Latents (batch, h, w, channels) are
    // borrowed. Another status than RN_OK ends the drawing with it.
    rn_status (*on_step)(void *self, uint32_t step, uint32_t steps, const float *latents);
    void *self;
    uint64_t reserved[4]; // zero
} rn_drawing;

typedef struct rn_painter_options {
    rn_plan_options plan;           // the budget, as for rn_plan_make
    rn_session_options session;     // device, cancel, audit
    rn_device_budget device_budget; // of a device with its own memory
    uint64_t reserved[4];           // zero
} rn_painter_options;

// Plans. RN_OVER_BUDGET: with the phase that does not fit and the smallest budget.
RN_API RN_MUST_USE rn_status rn_painter_create(const rn_diffusion *model, const rn_drawing *drawing,
                                               const rn_painter_options *options, rn_painter **out);
RN_API void rn_painter_destroy(rn_painter *painter);
// Another drawing with the same plan, sessions and memory. RN_INVALID: it needs a plan of its own
// (another task, size, batch, or one with guidance, a picture, a mask or a cache where the last had
// none), and the painter is as before.
RN_API RN_MUST_USE rn_status rn_painter_renew(rn_painter *painter, const rn_drawing *drawing);
// The next drawing has other noise and the same texts, which are not encoded again.
RN_API void rn_painter_set_seed(rn_painter *painter, uint64_t seed);
RN_API const rn_program *rn_painter_program(const rn_painter *painter);
// The drawing with its defaults filled in.
RN_API const rn_drawing *rn_painter_drawing(const rn_painter *painter);
// What picture `index` was drawn by, as text for a PNG's "parameters": prompts, steps, seed, ...
RN_API RN_MUST_USE rn_status rn_painter_describe(const rn_painter *painter, uint32_t index,
                                                 rn_sink sink);
// (batch) pictures, which the caller frees. DRAW and DECODE.
RN_API RN_MUST_USE rn_status rn_painter_draw(rn_painter *painter, rn_image *out_images);
// From on_step: the first picture as the denoiser thinks it will be, by the decoder for previews
// and small (the drawing's `preview`), which the caller frees. Always on the CPU; what it takes is
// planned beside the program.
RN_API RN_MUST_USE rn_status rn_painter_preview(rn_painter *painter, rn_image *out);
// Bytes that are planned for it.
RN_API uint64_t rn_painter_preview_bytes(const rn_painter *painter);
// The latents of the last drawing or of RN_ENCODE: (batch, h, w, channels), the painter's.
RN_API const float *rn_painter_latents(const rn_painter *painter, rn_shape *out_shape);
RN_API RN_MUST_USE rn_status rn_painter_encode(rn_painter *painter);

typedef struct rn_painter_facts {
    uint64_t read_bytes; // from disk
    double text_seconds, denoise_seconds, decode_seconds, encode_seconds;
    uint32_t runs; // of the denoiser
    uint32_t cached_prompts;
    uint64_t live_peak_bytes, planned_peak_bytes; // audit: of the phase that had the most
    bool as_planned;                              // audit: they were equal at every step
} rn_painter_facts;
RN_API rn_painter_facts rn_painter_get_facts(const rn_painter *painter);

RN_END_DECLS

#endif
