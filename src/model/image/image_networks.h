// image_networks.h — the networks of image models, each a configuration and a recipe.
//
// Batches are RN_ROWS: pictures (or prompts) do not see each other, so a plan may take them one by
// one. Pictures and latents are f32 (N, H, W, C). A configuration comes from a component's
// config.json (diffusers, transformers); zeroed fields have the value that files leave out.
#ifndef RN_MODEL_IMAGE_NETWORKS_H
#define RN_MODEL_IMAGE_NETWORKS_H

#include "model/image/image_bands.h"
#include "model/text/fields.h"

enum { RN_IMAGE_LEVELS = 8 };

// For the files of the networks: a list of numbers (at most RN_IMAGE_LEVELS), and one that may also
// be a single number for all of `count`.
RN_MUST_USE rn_status rn_image_read_levels(const rn_fields *fields, const char *name, uint32_t *out,
                                           uint32_t *out_count);
RN_MUST_USE rn_status rn_image_read_each(const rn_fields *fields, const char *name, uint32_t count,
                                         uint32_t otherwise, uint32_t *out /* (count) */);

// ---- autoencoders -------------------------------------------------------------------------------

// AutoencoderKL: 4 channels of latents (Stable Diffusion), 16 (SD3, Flux).
typedef struct rn_vae_config {
    const rn_image_files *files;
    uint32_t levels, channels[RN_IMAGE_LEVELS]; // of each level, the finest first
    uint32_t layers;                            // resnets of a level of the encoder
    uint32_t latent_channels, image_channels;
    uint32_t groups; // of norms
    bool quant_conv, post_quant_conv;
    bool mid_attention;
    float scaling, shift;   // latents of the denoiser are (z - shift) * scaling
    uint32_t height, width; // of the latents
    rn_banding banding;     // {0}: whole
    uint32_t rows;
} rn_vae_config;
RN_MUST_USE rn_status rn_vae_config_read(const rn_fields *fields, rn_vae_config *out);
// How many pixels high and wide a latent is.
uint32_t rn_vae_factor(const rn_vae_config *config);
// The same into a graph that goes on: (N, h, w, latent_channels) -> (N, H, W, 3), and back to
// moments.
rn_value rn_vae_decode(rn_graph *g, const rn_vae_config *config, rn_value latent);
rn_value rn_vae_encode(rn_graph *g, const rn_vae_config *config, rn_value image);
// "latent" (ROWS, h, w, latent_channels) -> "image" (ROWS, H, W, 3), about -1 to 1.
RN_MUST_USE rn_status rn_vae_decoder_recipe(const rn_vae_config *config, rn_recipe *out);
// "image" -> "moments" (ROWS, h, w, 2 * latent_channels): means, then logarithms of variances.
RN_MUST_USE rn_status rn_vae_encoder_recipe(const rn_vae_config *config, rn_recipe *out);

// TAESD and its relatives: small autoencoders for the latents of others (AutoencoderTiny).
typedef struct rn_taesd_config {
    const rn_image_files *files;
    uint32_t latent_channels;
    uint32_t height, width; // of the latents; pictures are 8 times as high and wide
    uint32_t rows;
} rn_taesd_config;
RN_MUST_USE rn_status rn_taesd_config_read(const rn_fields *fields, rn_taesd_config *out);
// "latent" -> "image", 0 to 1 (not clamped); "image", 0 to 1 -> "latent".
RN_MUST_USE rn_status rn_taesd_decoder_recipe(const rn_taesd_config *config, rn_recipe *out);
RN_MUST_USE rn_status rn_taesd_encoder_recipe(const rn_taesd_config *config, rn_recipe *out);

// ---- denoisers ----------------------------------------------------------------------------------

// UNet2DConditionModel: Stable Diffusion 1.x, 2.x, XL, inpainting. A UNet without text
// (UNet2DModel) is one without cross attention.
typedef struct rn_unet_config {
    const rn_image_files *files;
    uint32_t in_channels, out_channels, levels, channels[RN_IMAGE_LEVELS];
    uint32_t layers;
    uint32_t depth[RN_IMAGE_LEVELS]; // transformer blocks of a level; 0: no attention there
    uint32_t heads[RN_IMAGE_LEVELS];
    uint32_t mid_depth;        // 0: no attention in the middle
    bool no_mid;               // no block in the middle at all
    uint32_t context_channels; // of the text
    uint32_t context_tokens;   // 77, or several times that
    bool linear_projection;    // of transformers: a matrix, not a 1x1 kernel; the same numbers
    uint32_t groups;
    float eps;                  // of resnets' norms; transformers' have 1e-6
    uint32_t added_channels;    // of "added": pooled text and sinusoids of sizes (XL); 0: none
    uint32_t added_time_dim;    // of each size's sinusoid
    uint32_t guidance_channels; // of "guidance", for models that were distilled; 0: none
    uint32_t height, width;     // of the latents
    uint32_t rows;
    // What the text's keys and values are, where rn_unet_text_recipe has made them: bf16, f16, f32.
    // They are states then, the rows are `rows` and nothing else, and there is no "context". 0:
    // each run makes them.
    rn_dtype text_type;
    // Values of the graph in the place of the inputs "context" and "added"; RN_NO_VALUE: inputs.
    rn_value context, added;
} rn_unet_config;
RN_MUST_USE rn_status rn_unet_config_read(const rn_fields *fields, rn_unet_config *out);
// "sample" (ROWS, h, w, in_channels), "time" (ROWS, channels[0]): its sinusoid, "context" (ROWS,
// context_tokens, context_channels), "added" (ROWS, added_channels), "guidance" (ROWS,
// guidance_channels): its sinusoid -> "noise" (ROWS, h, w, out_channels).
rn_forward rn_unet_forward(const rn_unet_config *config);
RN_MUST_USE rn_status rn_unet_recipe(const rn_unet_config *config, rn_recipe *out);
// Keys and values of the text in every attention that asks it, which are the same in all steps:
// "context" (ROWS, context_tokens, context_channels) -> "NAME.k", "NAME.v" (ROWS, context_tokens,
// channels), of the names and channels that rn_unet_text_layer lists (false: no more).
RN_MUST_USE rn_status rn_unet_text_recipe(const rn_unet_config *config, rn_recipe *out);
bool rn_unet_text_layer(const rn_unet_config *config, uint32_t index, rn_image_name *out_name,
                        uint64_t *out_channels);

// Flux.1: dev (with guidance) and schnell.
typedef struct rn_flux_config {
    const rn_image_files *files;
    uint32_t in_channels, out_channels; // of a patch: 64
    uint32_t double_blocks, single_blocks;
    uint32_t heads, head_dim;
    uint32_t context_channels, context_tokens, pooled_channels;
    uint32_t axes[3]; // of rope: dims of a head
    bool guidance;
    uint32_t height, width; // of the patches
    uint32_t rows;
    // What rn_flux_modulation_recipe has made is an input, "modulation" f32 (chunks, dim), in the
    // place of "pooled", "time" and "guidance"; the rows are one and nothing else.
    bool modulated;
    rn_value pooled; // a value of the graph in the place of that input; RN_NO_VALUE: the input
} rn_flux_config;
RN_MUST_USE rn_status rn_flux_config_read(const rn_fields *fields, rn_flux_config *out);
// "sample" (ROWS, h * w, in_channels): patches; "context" (ROWS, tokens, context_channels),
// "pooled" (ROWS, pooled_channels), "time" and "guidance" (ROWS, 256): sinusoids of 1000 times
// them; "positions" i32 (ROWS, tokens + h * w, 3) -> "velocity" (ROWS, h * w, out_channels).
rn_forward rn_flux_forward(const rn_flux_config *config);
RN_MUST_USE rn_status rn_flux_recipe(const rn_flux_config *config, rn_recipe *out);
// What scales, shifts and gates every block, for many times at once: "pooled", "time" and
// "guidance" as above -> "modulation.I" (ROWS, heads * head_dim) for each of so many chunks; those
// that scale with 1 added.
RN_MUST_USE rn_status rn_flux_modulation_recipe(const rn_flux_config *config, rn_recipe *out);
uint32_t rn_flux_chunks(const rn_flux_config *config);

// A small pixel-space network of the kind that beginners train: convolutions of 7x7, layer norms
// over whole pictures, a time embedding.
typedef struct rn_pixel_ddpm_config {
    const rn_image_files *files;
    uint32_t size, channels;
    uint32_t hidden[RN_IMAGE_LEVELS], hidden_count;
    uint32_t frequencies, time_hidden;
    uint32_t rows;
} rn_pixel_ddpm_config;
// "sample" (ROWS, size, size, channels), "time" (ROWS, 2 * frequencies): sines, then cosines - 1 of
// t * frequency -> "noise".
RN_MUST_USE rn_status rn_pixel_ddpm_recipe(const rn_pixel_ddpm_config *config, rn_recipe *out);

// ---- texts --------------------------------------------------------------------------------------

typedef enum rn_clip_activation { RN_CLIP_QUICK_GELU, RN_CLIP_GELU } rn_clip_activation;
// CLIP's text transformer: CLIP-L, OpenCLIP H and bigG.
typedef struct rn_clip_config {
    const rn_image_files *files;
    uint32_t layers, dim, heads, ffn, vocab, tokens;
    rn_clip_activation activation;
    float eps;
    uint32_t end_token;  // whose row is pooled
    uint32_t projection; // of the pooled row; 0: none
    uint32_t skip;       // "hidden" is what comes out so many layers before the end
    bool final_norm;     // and behind the last norm
    uint32_t rows;
} rn_clip_config;
RN_MUST_USE rn_status rn_clip_config_read(const rn_fields *fields, rn_clip_config *out);
// "tokens" i32 (ROWS, T), "pool" (ROWS, 1, T): 1 at the end token, else 0 -> "hidden" (ROWS, T,
// dim), "pooled" (ROWS, 1, projection or dim).
RN_MUST_USE rn_status rn_clip_recipe(const rn_clip_config *config, rn_recipe *out);
// The same within the graph of a training step, over `batch` texts: weights, blocks and inputs have
// `prefix` before their names. What is not asked for is RN_NO_VALUE, and layers for it alone are
// not there.
typedef struct rn_clip_answer {
    rn_value hidden, pooled;
} rn_clip_answer;
rn_clip_answer rn_clip_within(rn_graph *g, const rn_clip_config *config, uint32_t batch,
                              const char *prefix, bool hidden, bool pooled);

// T5 v1.1's encoder. Rows are tokens, of texts packed one behind the other.
typedef struct rn_t5_config {
    const rn_image_files *files;
    uint32_t layers, dim, heads, head_dim, ffn, vocab, buckets, farthest;
    float eps;
    uint32_t rows; // the longest text
} rn_t5_config;
RN_MUST_USE rn_status rn_t5_config_read(const rn_fields *fields, rn_t5_config *out);
// "tokens" i32 (ROWS), "span" i32 (ROWS, 2): the rows of a row's text -> "hidden" (ROWS, dim).
RN_MUST_USE rn_status rn_t5_recipe(const rn_t5_config *config, rn_recipe *out);

#endif
