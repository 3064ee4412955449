// image_parts.h — what networks of images are made of: weights by name, convolutions, norms,
// linear layers with their additions, attention, embeddings of time.
//
//     rn_image_builder b = {.g = graph, .files = config->files};
//     rn_value y = rn_image_conv(&b, x, "conv_in", in, out, RN_CONV_3);
//
// Names are those of diffusers (of text encoders: transformers'), whatever the files call a tensor:
// rn_image_files says where a weight lies there. Images are (N, H, W, C), texts (N, T, C).
#ifndef RN_MODEL_IMAGE_PARTS_H
#define RN_MODEL_IMAGE_PARTS_H

#include "model/model.h"

enum { RN_IMAGE_NAME = 192 };

typedef struct rn_image_name {
    char text[RN_IMAGE_NAME];
} rn_image_name;
rn_image_name rn_image_named(const char *format, ...) RN_PRINTF(1, 2);

// Where a weight lies in its files.
typedef struct rn_image_place {
    rn_dtype dtype;
    char tensor[RN_IMAGE_NAME]; // the file's name for it, or for what it is some rows of
    uint64_t first_row;
    uint64_t tensor_rows; // of that tensor; 0: the weight is all of it
    bool turned;          // a matrix that lies there as (in, out)
    bool swapped;         // its second half comes first there
} rn_image_place;

// What a graph must know of its weights' files. They outlive the recipe.
typedef struct rn_image_files {
    const void *self;
    // False: there is no such weight.
    bool (*place)(const void *self, const char *weight, rn_image_place *out);
    // The addition number `index` (0, 1, ...) to a weight; NULL: there are no more.
    const rn_low_rank *(*addition)(const void *self, const char *weight, uint32_t index);
    bool trained; // all weights may be trained: each is one value of the graph, in f32
} rn_image_files;

typedef struct rn_image_builder {
    rn_graph *g;
    const rn_image_files *files; // NULL: all is f32 under its own name, and may be trained
    const char *prefix;          // before the names of weights in the graph; NULL: nothing
    bool
        trains; // products with quantised weights do not round x: gradients are of what is computed
} rn_image_builder;

// ---- weights ------------------------------------------------------------------------------------

// Whether the files have it; true without files.
bool rn_image_has(const rn_image_builder *b, const char *name);
// As the file has it.
rn_value rn_image_weight(rn_image_builder *b, const char *name, rn_shape shape);
// Of a convolution, which takes f32, f16 and bf16: what is quantised is widened.
rn_value rn_image_kernel(rn_image_builder *b, const char *name, rn_shape shape);
// f32, cast where the file has less. `name`.`part`.
rn_value rn_image_vector(rn_image_builder *b, const char *name, const char *part, rn_shape shape);

// The 16-bit type of activations on a device whose kernels take them: that of the weight in its
// file, or bf16.
rn_dtype rn_image_halves(const rn_image_files *files, const char *weight);

// ---- layers -------------------------------------------------------------------------------------

typedef enum rn_image_bias { RN_IMAGE_NO_BIAS, RN_IMAGE_BIAS } rn_image_bias;

// Kernel, stride, padding: RN_CONV_3 keeps the size, RN_CONV_HALVE is of stride 2 and pads by 1,
// RN_CONV_HALVE_BEHIND pads right and below alone, as encoders of autoencoders do.
typedef enum rn_image_conv_kind {
    RN_CONV_1,
    RN_CONV_3,
    RN_CONV_7,
    RN_CONV_HALVE,
    RN_CONV_HALVE_BEHIND
} rn_image_conv_kind;
// "<name>.weight" (out, in, K, K) and, where there is one, "<name>.bias" (out).
rn_value rn_image_conv(rn_image_builder *b, rn_value x, const char *name, uint64_t in, uint64_t out,
                       rn_image_conv_kind kind);
// The same with a bias or without, as it says.
rn_value rn_image_conv_as(rn_image_builder *b, rn_value x, const char *name, uint64_t in,
                          uint64_t out, rn_image_conv_kind kind, rn_image_bias bias);
// x (..., in) by "<name>.weight" (out, in).
rn_value rn_image_linear(rn_image_builder *b, rn_value x, const char *name, uint64_t in,
                         uint64_t out, rn_image_bias bias);
// Columns [first, first + count) of that product alone: rows of the weight.
rn_value rn_image_linear_part(rn_image_builder *b, rn_value x, const char *name, uint64_t in,
                              uint64_t out, uint64_t first, uint64_t count, rn_image_bias bias);
rn_value rn_image_group_norm(rn_image_builder *b, rn_value x, const char *name, uint64_t channels,
                             rn_group_norm_attrs attrs);
rn_value rn_image_layer_norm(rn_image_builder *b, rn_value x, const char *name, uint64_t channels,
                             float eps);
rn_value rn_image_rms_norm(rn_image_builder *b, rn_value x, const char *name, uint64_t channels,
                           float eps);
// linear_1, SiLU, linear_2 under `name`: embeddings of times, texts, sizes.
rn_value rn_image_embed(rn_image_builder *b, rn_value x, const char *name, const char *first,
                        const char *second, uint64_t in, uint64_t out);

// (N, T, heads * D) -> (N, T, heads, D), and back.
rn_value rn_image_split_heads(rn_image_builder *b, rn_value x, uint64_t heads);
rn_value rn_image_join_heads(rn_image_builder *b, rn_value x);
// Of q, k, v (N, T, heads * D): every query sees every key.
rn_value rn_image_attend(rn_image_builder *b, rn_value q, rn_value k, rn_value v, uint64_t heads,
                         rn_attention_attrs attrs);

// ---- shapes -------------------------------------------------------------------------------------

rn_shape rn_image_shape(const rn_image_builder *b, rn_value value); // {0} of none

// ---- times --------------------------------------------------------------------------------------

// The embedding of a time (or any number) in sinusoids: cosines, then sines, of t * frequency, with
// frequencies from 1 down to 1 / 10000. out: (dim). Computed in f32, as diffusers does.
void rn_sinusoid(float t, uint32_t dim, float *out);

#endif
