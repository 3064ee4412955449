// train_images.h — training of image models: a folder of pictures with captions, and trainers of
// their parts.
//
//     rn_pictures *pictures;
//     RN_TRY(rn_pictures_open("cats", &(rn_picture_options){.width = 512, .height = 512},
//     &pictures)); RN_TRY(rn_image_trainer_create("sd15", pictures, &options, &trainer));
//     RN_TRY(rn_image_trainer_cache(trainer, NULL, NULL)); // latents and text embeddings, to disk
//     for (...)
//         RN_TRY(rn_image_trainer_step(trainer, rate, &loss));
//     RN_TRY(rn_image_trainer_export(trainer, "out"));
#ifndef RATION_TRAIN_IMAGES_H
#define RATION_TRAIN_IMAGES_H

#include <ration/train.h>

RN_BEGIN_DECLS

// ---- pictures with captions ---------------------------------------------------------------------

#define RN_PICTURE_BUCKETS 7 // at most

// Zeroed fields have the defaults.
typedef struct rn_picture_options {
    uint32_t width, height; // all pictures become as large as this, or as its area; 0: 512
    uint32_t multiple;      // sides are multiples of it; 0: 64, for pictures below 512 less, to 8
    // Aspect buckets: a picture is resized and cut to the bucket that is nearest to its shape. 1:
    // one, width x height; 0: RN_PICTURE_BUCKETS.
    uint32_t buckets;
    double validation; // this share of the pictures is not trained on
    uint64_t seed;     // of what is set apart, and of the order
    uint64_t reserved[4];
} rn_picture_options;

typedef struct rn_picture {
    const char *path, *caption; // "" where there is none
    uint32_t width, height;     // of the file
    uint32_t bucket;
    bool validates;
} rn_picture;

typedef struct rn_picture_bucket {
    uint32_t width, height;
    uint64_t count, validation_count; // pictures
} rn_picture_bucket;

typedef struct rn_pictures_info {
    uint64_t count, validation_count; // of all pictures, and of those that are set apart
    uint64_t without_caption;         // trained with an empty one
    uint64_t orphans;                 // captions without a picture
    uint32_t bucket_count;
    rn_picture_bucket buckets[RN_PICTURE_BUCKETS];
} rn_pictures_info;

typedef struct rn_pictures rn_pictures;

// PNG and JPEG files of a folder (not of folders in it) in the order of their names. Captions are
// NAME.txt beside NAME.png, or lines {"file_name": ..., "text": ...} of metadata.jsonl. Sizes are
// read from headers. RN_NOT_FOUND: no folder, or no picture in it; RN_CORRUPT names a file that is
// no picture, or a line of metadata.jsonl.
RN_API RN_MUST_USE rn_status rn_pictures_open(const char *folder, const rn_picture_options *options,
                                              rn_pictures **out);
RN_API void rn_pictures_close(rn_pictures *pictures); // NULL-safe
RN_API const rn_pictures_info *rn_pictures_get_info(const rn_pictures *pictures);
// By its number, from 0.
RN_API const rn_picture *rn_pictures_get(const rn_pictures *pictures, uint64_t number);
// Its pixels as a model takes them: resized and cut to its bucket, (height, width, 3), -1 to 1.
RN_API RN_MUST_USE rn_status rn_pictures_values(const rn_pictures *pictures, uint64_t number,
                                                float *out);
// The pictures of batch `step` (from 0): all of one bucket, each picture of the part once in an
// epoch, buckets as often as they have pictures; the last batch of a bucket is filled from its
// beginning. A function of the step, the batch and the seed alone. *out_bucket: theirs.
RN_API RN_MUST_USE rn_status rn_pictures_batch(const rn_pictures *pictures, bool validation,
                                               uint64_t step, uint32_t batch,
                                               uint64_t *out_numbers /* (batch) */,
                                               uint32_t *out_bucket);
// Batches of an epoch.
RN_API uint64_t rn_pictures_batches(const rn_pictures *pictures, bool validation, uint32_t batch);

// ---- trainers -----------------------------------------------------------------------------------

// Zeroed fields have the defaults; strings are borrowed for the call.
typedef struct rn_image_train_options {
    // "diffusion": the denoiser, on latents and text embeddings that are made once and kept in
    // `cache`; "autoencoder": the VAE, by the reconstruction's squared error and KL divergence.
    const char *objective;
    // batch, optimizer, beta1, beta2, momentum, weight_decay, max_norm, seed, plan, device,
    // activations (f32, bf16), evaluate_every, trained, frozen, undecayed; the others are 0.
    rn_trainer_options trainer;
    const rn_lora_options *lora; // of diffusion: additions to the denoiser; NULL: its own weights
    double min_snr;              // gamma of Min-SNR (5); 0: all times count alike
    double offset_noise;         // of noise that a whole channel shares (0.05); 0: none
    double caption_dropout;      // this share of the samples has an empty caption (0.1)
    double average;              // decay of an average of all weights (0.9999), which is what is
                                 // exported; 0: none
    double kl;                   // autoencoder: how much the KL divergence counts; 0: 1e-6
    bool uniform_times;          // flow: times are uniform, not logit-normal
    double guidance;             // that Flux.1 dev is told in training; 0: 1
    // Parts of a single file's model that it does not hold, or others than the folder's; or NULL.
    const char *vae, *text_encoder, *text_encoder_2, *tokenizer, *tokenizer_2;
    // CLIP's text encoders are trained with the denoiser (of `lora`): they are a part of each step.
    // T5 is not.
    bool text_encoders;
    const char *prediction; // as rn_diffusion_options has it; NULL: as the files say
    const char *denoiser;   // a folder in the place of the model's unet or transformer: quantised
    const char *cache;      // a folder, for diffusion
    const rn_flag *cancel;  // may be NULL
    void *self;
    // Of making latents and embeddings; may be NULL.
    void (*progress)(void *self, const char *phase, uint64_t done, uint64_t count);
    uint64_t reserved[4]; // zero
} rn_image_train_options;

typedef struct rn_image_trainer rn_image_trainer;

// What would be held and when, without loading anything. *out_cache: the phases "encode WxH" and
// "text", which end before the training begins; NULL where the objective has none. *out_train:
// "step", "save", "evaluate" (of each bucket). Both are to be destroyed.
RN_API RN_MUST_USE rn_status rn_image_train_plan(const char *model, const rn_pictures *pictures,
                                                 const rn_image_train_options *options,
                                                 rn_program **out_cache, rn_program **out_train);

// Opens a folder as diffusers writes it, or, for diffusion, a single file: Stable Diffusion 1.x,
// 2.x, XL, Flux.1. A part of a folder whose config.json is there without weights begins with random
// ones (the part that is trained). Makes latents and embeddings, unless the cache has them, then
// the trainer. The pictures must outlive it. RN_NOT_FOUND names a part that is missing;
// RN_UNSUPPORTED what is not built.
RN_API RN_MUST_USE rn_status rn_image_trainer_create(const char *model, const rn_pictures *pictures,
                                                     const rn_image_train_options *options,
                                                     rn_image_trainer **out);
RN_API void rn_image_trainer_destroy(rn_image_trainer *trainer); // NULL-safe
// Its program, steps, checkpoints (rn_trainer_save, rn_trainer_resume) and what its last step did.
RN_API rn_trainer *rn_image_trainer_get(rn_image_trainer *trainer);
// The batch that rn_trainer_batches says is next.
RN_API RN_MUST_USE rn_status rn_image_trainer_step(rn_image_trainer *trainer, double rate,
                                                   float *out_loss);
// The mean loss of all validation batches, with noise that is the same every time.
RN_API RN_MUST_USE rn_status rn_image_trainer_evaluate(rn_image_trainer *trainer, float *out_loss);
// A checkpoint of the trainer, and beside it ("PATH.average") the averages.
RN_API RN_MUST_USE rn_status rn_image_trainer_save(rn_image_trainer *trainer, const char *path);
RN_API RN_MUST_USE rn_status rn_image_trainer_resume(rn_image_trainer *trainer, const char *path);
// The model with the part that was trained in the place of the old one, as a folder that
// diffusers and `ration image` open. After an autoencoder vae/config.json has the scaling_factor
// that gives these pictures' latents a deviation of 1.
RN_API RN_MUST_USE rn_status rn_image_trainer_export(rn_image_trainer *trainer, rn_dtype dtype,
                                                     const char *folder);

RN_END_DECLS

#endif
