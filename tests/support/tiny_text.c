#include "tiny_text.h"
#include "support.h"

#include <ration/convert.h>
#include <ration/writer.h>

#include "base/str.h"
#include "graph/philox.h"
#include "model/text/text_weights.h"

#include <math.h>
#include <unistd.h>

enum { MOST_WEIGHTS = 128 };

// ---- the model ----------------------------------------------------------------------------------

static bool is_random(const tiny_text *tiny) {
    return tiny->weights_as == RN_DTYPE_Q4_K;
}

// As the file has them; before there is one, as it is to be written.
static rn_dtype dtype_of(const void *self, const char *weight) {
    const tiny_text *tiny = self;
    if (tiny->checkpoint) return rn_text_weight_dtype(tiny->checkpoint, weight);
    if (!is_random(tiny) || strstr(weight, "norm") || strstr(weight, "embed")) return RN_DTYPE_F32;
    bool more = strstr(weight, "v_proj") || strstr(weight, "down") || strstr(weight, "lm_head");
    return more ? RN_DTYPE_Q6_K : RN_DTYPE_Q4_K;
}

static const rn_low_rank *no_addition(const void *self, const char *weight, uint32_t index) {
    (void)self, (void)weight, (void)index;
    return NULL;
}

static rn_status make(const void *self, const rn_text_options *options, rn_recipe *out) {
    const tiny_text *tiny = self;
    RN_TRY(rn_llama_recipe(
        &(rn_llama_config){.layers = tiny->layers,
                           .dim = tiny->dim,
                           .heads = 4,
                           .kv_heads = 2,
                           .ffn = 2 * tiny->dim,
                           .vocab = tiny->vocab,
                           .weight_dtype = RN_DTYPE_F32,
                           .files = tiny->weights_as ? &tiny->files : NULL,
                           .unquantised_activations = options->unquantised_activations,
                           .window = tiny->window,
                           .window_period = tiny->period,
                           .rolling_windows = options->rolling_windows,
                           .kv_dtype = tiny->kv_dtype ? tiny->kv_dtype : RN_DTYPE_F32,
                           .context = options->context,
                           .page_tokens = options->page_tokens,
                           .pages = options->pages,
                           .sequences = options->sequences,
                           .logit_rows = options->logit_rows,
                           .largest = options->largest,
                           .rows = options->rows},
        out));
    out->workload_rows = options->prompt_tokens;
    out->decode_steps = options->new_tokens;
    return RN_OK;
}

// Weights of q4_k and q6_k of about that size: scales of a block differ, its values are anything.
static void fill_blocks(rn_dtype dtype, float size, uint32_t number, uint8_t *out, uint64_t count) {
    const rn_dtype_info *type = rn_dtype_get(dtype);
    bool is_q4_k = dtype == RN_DTYPE_Q4_K;
    for (uint64_t block = 0; block < count; block++, out += type->block_bytes) {
        float unit = 0.5f + rn_philox_unit(rn_philox_word(12, number, block));
        float scale = size * unit / (is_q4_k ? 250 : 1366), offset = 7.5f * scale;
        for (uint32_t i = 0; i < type->block_bytes; i++)
            out[i] = (uint8_t)rn_philox_word(13, number, block * type->block_bytes + i);
        assert_ok(rn_dtype_from_f32(RN_DTYPE_F16, &scale, out + (is_q4_k ? 0 : 208), 1));
        if (is_q4_k) assert_ok(rn_dtype_from_f32(RN_DTYPE_F16, &offset, out + 2, 1));
    }
}

static void append_blocks(rn_writer *writer, const tiny_text *tiny, const rn_value_info *info,
                          uint32_t number) {
    const rn_dtype_info *type = rn_dtype_get(info->dtype);
    uint64_t count = rn_shape_elements(info->shape, 1) / type->block_elements;
    uint8_t *blocks = malloc(count * type->block_bytes);
    fill_blocks(info->dtype, 0.6f / sqrtf((float)tiny->dim), number, blocks, count);
    assert_ok(rn_writer_append(writer, blocks, count * type->block_bytes));
    free(blocks);
}

static void append_weight(rn_writer *writer, const tiny_text *tiny, const rn_value_info *info,
                          uint32_t number) {
    uint64_t count = rn_shape_elements(info->shape, 1);
    float *values = malloc(count * sizeof *values);
    // Layers that say little beside the embedding: a text soon repeats itself, but not for ever.
    bool is_layer = strstr(info->name, "layers") != NULL;
    float scale = info->shape.rank == 1 ? 0.1f : (is_layer ? 0.6f : 1) / sqrtf((float)tiny->dim);
    for (uint64_t i = 0; i < count; i++)
        values[i] = (info->shape.rank == 1) + scale * rn_philox_normal(11, number, i);
    if (tiny->damaged && number == 5) values[0] = NAN;
    if (strstr(info->name, "embed_tokens"))
        for (uint32_t i = 0; tiny->bad_token && i < tiny->dim; i++)
            values[(size_t)tiny->bad_token * tiny->dim + i] = NAN;
    assert_ok(rn_writer_append(writer, values, count * sizeof *values));
    free(values);
}

static void write_weights(const tiny_text *tiny, const rn_graph *graph, const char *path) {
    rn_write_tensor tensors[MOST_WEIGHTS];
    rn_value weights[MOST_WEIGHTS];
    uint32_t count = 0;
    rn_writer *writer;
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        if (info->role != RN_ROLE_WEIGHT) continue;
        assert_true(count < MOST_WEIGHTS);
        tensors[count] = (rn_write_tensor){.name = rn_str_from(info->name),
                                           .dtype = info->dtype,
                                           .rank = info->shape.rank,
                                           .dims = info->shape.dims};
        weights[count++] = v;
    }
    assert_ok(rn_writer_create(path, tensors, count, NULL, &writer));
    for (uint32_t i = 0; i < count; i++)
        (rn_graph_value(graph, weights[i])->dtype == RN_DTYPE_F32 ? append_weight : append_blocks)(
            writer, tiny, rn_graph_value(graph, weights[i]), i);
    assert_ok(rn_writer_commit(writer));
    rn_writer_destroy(writer);
}

// By way of a file in f32, where they are not to stay that.
static void write_model(const tiny_text *tiny, const rn_graph *graph, const char *path) {
    rn_convert_options options = {.to = tiny->weights_as, .thread_count = 1};
    rn_convert_result result;
    char first[512];
    if (!tiny->weights_as || is_random(tiny)) {
        write_weights(tiny, graph, path);
        return;
    }
    snprintf(first, sizeof first, "%s.f32.safetensors", path);
    write_weights(tiny, graph, first);
    assert_ok(rn_convert(first, path, &options, &result));
    unlink(first);
}

void tiny_text_open(tiny_text *tiny, const char *path) {
    rn_recipe recipe;
    rn_graph *graph;
    tiny->checkpoint = NULL;
    tiny->files = (rn_llama_files){tiny, dtype_of, no_addition};
    assert_ok(make(
        tiny,
        &(rn_text_options){
            .context = 8, .page_tokens = 8, .pages = 1, .sequences = 1, .logit_rows = 1, .rows = 1},
        &recipe));
    assert_ok(recipe.build(recipe.self, &(rn_recipe_options){0}, &graph));
    write_model(tiny, graph, path);
    rn_graph_destroy(graph);
    rn_recipe_destroy(&recipe);
    assert_ok(rn_checkpoint_open(path, &tiny->checkpoint));
    tiny->maker = (rn_text_maker){.self = tiny,
                                  .make = make,
                                  .weights = {.checkpoint = tiny->checkpoint},
                                  .vocab_size = tiny->vocab,
                                  .window = tiny->window,
                                  .context = 128};
}

void tiny_text_close(tiny_text *tiny) {
    rn_checkpoint_close(tiny->checkpoint);
}

rn_generator *tiny_text_generator(const tiny_text *tiny, const rn_generator_options *options) {
    rn_generator *generator;
    assert_ok(rn_generator_create_from(&tiny->maker, options, &generator));
    return generator;
}

// ---- what it says -------------------------------------------------------------------------------

void story_prompt(uint32_t seed, uint32_t vocab, uint32_t count, uint32_t *out) {
    for (uint32_t i = 0; i < count; i++)
        out[i] = rn_philox_word(seed, 3, i) % vocab;
}

void story_take(story *s, rn_sequence *sequence, uint32_t most) {
    while (s->count < most && rn_sequence_take(sequence, &s->samples[s->count]))
        s->count++;
}

rn_status story_tell(rn_generator *generator, const rn_sampling *sampling, uint32_t seed,
                     uint32_t prompt, uint32_t count, story *out) {
    rn_sequence *sequence;
    uint32_t ids[STORY_MOST];
    story_prompt(seed, generator->vocab_size, prompt, ids);
    *out = (story){0};
    RN_TRY(rn_sequence_create(generator, sampling, &sequence));
    rn_status s = rn_sequence_feed(sequence, ids, prompt);
    while (s == RN_OK && out->count < count) {
        s = rn_generator_step(generator);
        if (s == RN_OK) story_take(out, sequence, count);
        const rn_error_info *failure = rn_sequence_failure(sequence);
        if (s == RN_OK && failure) s = rn_error_restore(failure);
    }
    rn_sequence_destroy(sequence);
    return s;
}

void story_expect(const story *got, const story *wanted) {
    assert_int_equal(got->count, wanted->count);
    for (uint32_t i = 0; i < got->count; i++) {
        const rn_sample *a = &got->samples[i], *b = &wanted->samples[i];
        assert_int_equal(a->token, b->token);
        assert_true(a->logprob == b->logprob);
        assert_int_equal(a->top_count, b->top_count);
        assert_memory_equal(a->top, b->top, a->top_count * sizeof a->top[0]);
    }
}
