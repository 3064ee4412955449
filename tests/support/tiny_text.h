// tiny_text.h — a tiny Llama with made-up weights in a file, and what it says.
#ifndef RN_TEST_TINY_TEXT_H
#define RN_TEST_TINY_TEXT_H

#include "generate/generate.h"
#include "model/model.h"

typedef struct tiny_text {
    uint32_t layers, dim, vocab; // given
    bool damaged;                // a weight is NaN
    uint32_t bad_token;          // whose embedding is NaN; 0: none
    uint32_t window, period;     // of attention, but for every period-th layer; 0: none
    rn_dtype kv_dtype;           // 0: f32
    // Weights of products; 0: f32. What rn_convert takes and `path` can hold (q8_0, q4_0: .gguf),
    // or q4_k (.gguf): blocks at random, and those of v, down and the head q6_k.
    rn_dtype weights_as;
    rn_checkpoint *checkpoint;
    rn_llama_files files;
    rn_text_maker maker;
} tiny_text;

// Writes the weights to `path` and opens it.
void tiny_text_open(tiny_text *tiny, const char *path);
void tiny_text_close(tiny_text *tiny);
// A generator of it, which must come about.
rn_generator *tiny_text_generator(const tiny_text *tiny, const rn_generator_options *options);

// What a sequence said: tokens, and the best logprobs of each, to the bit.
enum { STORY_MOST = 256 };
typedef struct story {
    uint32_t count;
    rn_sample samples[STORY_MOST];
} story;

// Takes what there is, up to `most` in all.
void story_take(story *s, rn_sequence *sequence, uint32_t most);
// Feeds a prompt of `prompt` tokens that `seed` makes up, steps until `count` tokens are there.
rn_status story_tell(rn_generator *generator, const rn_sampling *sampling, uint32_t seed,
                     uint32_t prompt, uint32_t count, story *out);
// A made-up prompt.
void story_prompt(uint32_t seed, uint32_t vocab, uint32_t count, uint32_t *out);
void story_expect(const story *got, const story *wanted);

#endif
