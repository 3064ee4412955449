// painter.h — a drawing under way: its program, the sizes it has, and what it keeps on the host
// between phases.
//
//     tokens ─ text encoders ─▶ context, pooled ─┐
//     [init ─ encoder ─▶ latents] ─ noise ───────┴─ [prepare] ─ denoiser x steps ─▶ latents ─
//     decoder ─▶ pictures
//
// What passes from phase to phase lies here, not in the arena: a few MiB, taken before the plan is
// made and counted beside it.
#ifndef RN_DIFFUSE_PAINTER_H
#define RN_DIFFUSE_PAINTER_H

#include "base/arena.h"
#include "diffuse/diffusion.h"
#include "diffuse/noise.h"

#define RN_NO_PHASE UINT32_MAX
enum { RN_PAINTER_PHASES = 6 };

// Of previews: a decoder of its own on the CPU, with its own plan, beside the program's.
typedef struct rn_painter_previewer {
    rn_image_component decoder; // with the preview's sizes
    uint32_t pool;              // latents are averaged over pool * pool
    uint32_t high, wide;        // of what is decoded
    rn_recipe recipe;
    rn_program *program; // NULL: there are no previews
    rn_program_run *run;
    float *clean; // (high, wide, channels) of the painter: the first picture without its noise
} rn_painter_previewer;

struct rn_painter {
    const rn_diffusion *model;
    rn_drawing drawing; // with defaults filled in
    rn_painter_options options;
    rn_schedule schedule;
    // Components with the drawing's sizes; their files are the model's.
    rn_image_component text[RN_TEXT_ENCODERS], denoiser, prepare;
    rn_image_component vae, encoder; // decoding in tiles, encoding whole
    bool guided;                     // twice as many rows: without the text and with it
    uint32_t rows;                   // of the denoiser
    // Of a run of it: a picture's, without the text and with it, in this order. 0: as many as its
    // plan has room for; those of all pictures without the text are before those with it.
    uint32_t rows_at_once;
    uint32_t high, wide;     // of the latents
    uint32_t channels;       // of the latents
    uint64_t latent_count;   // of a picture: high * wide * channels
    uint32_t context_tokens; // of a row
    uint32_t context_channels, pooled_channels;

    rn_recipe recipes[RN_PAINTER_PHASES];
    rn_program_phase phases[RN_PAINTER_PHASES];
    rn_weight_source weights[RN_PAINTER_PHASES];
    uint32_t phase_count, text_phase[RN_TEXT_ENCODERS], encode_phase, denoise_phase, decode_phase;
    uint32_t prepare_phase;
    rn_program *program;
    rn_program_run *run;
    rn_painter_previewer preview;

    rn_arena memory;                 // all that follows
    float *latents;                  // (batch, high, wide, channels)
    float *start;                    // the same: of `init`
    float *noise, *extra;            // the same: the first noise; of a step, or scratch
    float *last;                     // the same: the schedule's
    float *input, *output;           // (rows, ...) of the denoiser
    float *context;                  // (rows, tokens, channels)
    float *pooled;                   // (rows, pooled_channels)
    float *added;                    // (rows, added_channels), XL
    float *times;                    // (rows, time channels)
    float *guidances;                // (rows, 256), of distilled models
    float *mask, *masked;            // (high, wide), (high, wide, channels)
    int32_t *positions;              // (rows, tokens + patches, 3), Flux
    float *modulations;              // (steps, chunks, dim), where Flux's are prepared
    uint64_t modulation_room;        // so many elements
    bool has_text[RN_TEXT_ENCODERS]; // its part of context and pooled is there
    bool prepared;                   // for these texts
    uint32_t cached_prompts;         // that were read from the cache
    rn_torch_generator generator;
    rn_painter_facts facts;
};

// Encodes the prompts that are not known yet: context and pooled of all rows (painter_text.c).
RN_MUST_USE rn_status rn_painter_read_prompts(rn_painter *p);
// Those that are in the drawing's cache: their encoders need no phase.
RN_MUST_USE rn_status rn_painter_find_prompts(rn_painter *p);
// start, from init (painter_pictures.c); mask and masked, from the mask.
RN_MUST_USE rn_status rn_painter_encode_init(rn_painter *p);
RN_MUST_USE rn_status rn_painter_decode(rn_painter *p, rn_image *out_images);
// Whether there is something to prepare (painter_prepare.c); the components' configurations for it;
// what it keeps on the host.
bool rn_painter_prepares(const rn_painter *p);
void rn_painter_settle_preparation(rn_painter *p);
uint64_t rn_painter_modulation_count(const rn_painter *p);
RN_MUST_USE rn_status rn_painter_prepare(rn_painter *p);
const float *rn_painter_modulation(const rn_painter *p, uint32_t step); // (chunks, dim)
// Which picture a row of the denoiser is of, and whether of its text (1) or without it (0).
uint64_t rn_painter_row_picture(const rn_painter *p, uint64_t row);
uint32_t rn_painter_row_prompt(const rn_painter *p, uint64_t row);
// The drawing's steps (painter_steps.c).
RN_MUST_USE rn_status rn_painter_denoise(rn_painter *p);
// An autoencoder for latents of that size.
void rn_painter_size_vae(rn_image_component *c, uint32_t high, uint32_t wide);
// Plans previews (painter_preview.c), as small as can be where `tight`.
RN_MUST_USE rn_status rn_painter_plan_preview(rn_painter *p, bool tight);
void rn_painter_leave_preview(rn_painter *p);
// Standard normal noise for all pictures, in their layout. `stream`: another one each time.
void rn_painter_make_noise(rn_painter *p, uint32_t stream, float *out);

// One run of a phase over `rows` rows in chunks that its plan has room for; `set` brings rows
// [first, first + count), `take` has them.
typedef struct rn_painter_task {
    rn_painter *painter;
    rn_session *session;
    void *self;
    rn_status (*set)(const struct rn_painter_task *task, uint64_t first, uint64_t count);
    rn_status (*take)(const struct rn_painter_task *task, uint64_t first, uint64_t count);
} rn_painter_task;
RN_MUST_USE rn_status rn_painter_run_rows(rn_painter *p, uint32_t phase, uint64_t rows,
                                          rn_painter_task task);

#endif
