// train_tiny.c — makes the model that comes with the program, from nothing: tells stories
// (train_tiny_stories.h), learns a tokenizer from some of them (train_tiny_bpe.h), trains a small
// Llama on others, no story twice, and writes a folder as Hugging Face has it.
//
//     train_tiny --out DIR --steps N [--threads T]     the same N, the same weights
//     train_tiny --out DIR --minutes M                 N is what M minutes allow; it is printed
//     train_tiny --out DIR --steps N --minutes M       pauses after M minutes
//     train_tiny --stories COUNT                       prints some
//
// DIR/checkpoint.safetensors is renewed every minute and at the end; if it is there, training goes
// on from it.
#include <ration/ration.h>
#include <ration/train.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "train_tiny_bpe.h"
#include "train_tiny_stories.h"

enum {
    LAYERS = 4,
    DIM = 192,
    HEADS = 6,
    KV_HEADS = 2,
    FFN = 416,
    VOCAB = 1536,
    TOKENS = 288,           // of a row: a story, and the beginning of another
    COUNTED_STORIES = 5000, // of which the tokenizer is made
    WARM_UP = 100           // steps
};

typedef struct settings {
    const char *out;
    uint64_t steps, stories, seed;
    double minutes, rate;
    uint32_t threads, batch;
} settings;

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// ---- files --------------------------------------------------------------------------------------

typedef rn_status (*write_text)(const void *self, rn_sink sink);

static const char *join(const settings *s, const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", s->out, name);
    return path;
}

// Under another name until it is complete.
static rn_status write_file(const settings *s, const char *name, write_text text,
                            const void *self) {
    char temporary[4096 + 8];
    snprintf(temporary, sizeof temporary, "%s.part", join(s, name));
    FILE *file = fopen(temporary, "w");
    if (!file) return rn_fail(RN_IO, "%s: %s", temporary, strerror(errno));
    rn_status status = text(self, rn_sink_file(file));
    if (fclose(file) != 0 && status == RN_OK)
        status = rn_fail(RN_IO, "%s: %s", temporary, strerror(errno));
    if (status == RN_OK && rename(temporary, join(s, name)) != 0)
        status = rn_fail(RN_IO, "%s: %s", temporary, strerror(errno));
    if (status != RN_OK) unlink(temporary);
    return status;
}

static rn_status write_config(const void *self, rn_sink sink) {
    (void)self;
    return rn_sink_print(sink,
                         "{\n"
                         "  \"architectures\": [\"LlamaForCausalLM\"],\n"
                         "  \"model_type\": \"llama\",\n"
                         "  \"hidden_size\": %d,\n"
                         "  \"intermediate_size\": %d,\n"
                         "  \"num_hidden_layers\": %d,\n"
                         "  \"num_attention_heads\": %d,\n"
                         "  \"num_key_value_heads\": %d,\n"
                         "  \"vocab_size\": %d,\n"
                         "  \"max_position_embeddings\": %d,\n"
                         "  \"hidden_act\": \"silu\",\n"
                         "  \"rms_norm_eps\": 1e-05,\n"
                         "  \"rope_theta\": 10000.0,\n"
                         "  \"attention_bias\": false,\n"
                         "  \"mlp_bias\": false,\n"
                         "  \"tie_word_embeddings\": false,\n"
                         "  \"bos_token_id\": %d,\n"
                         "  \"eos_token_id\": %d,\n"
                         "  \"torch_dtype\": \"float16\"\n"
                         "}\n",
                         DIM, FFN, LAYERS, HEADS, KV_HEADS, VOCAB, TOKENS, BPE_END, BPE_END);
}

static rn_status write_tokenizer(const void *self, rn_sink sink) {
    return bpe_write(self, sink);
}

static rn_status write_tokenizer_config(const void *self, rn_sink sink) {
    (void)self;
    return rn_sink_print(sink,
                         "{\n"
                         "  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                         "  \"bos_token\": \"<|endoftext|>\",\n"
                         "  \"eos_token\": \"<|endoftext|>\",\n"
                         "  \"clean_up_tokenization_spaces\": false,\n"
                         "  \"model_max_length\": %d\n"
                         "}\n",
                         TOKENS);
}

// ---- data ---------------------------------------------------------------------------------------

// Seed 0 is the tokenizer's, so that no story of a training was counted for it.
static void learn_tokenizer(bpe *b) {
    static story s;
    bpe_begin(b);
    for (uint64_t i = 0; i < COUNTED_STORIES; i++) {
        story_make(&s, 0, i);
        bpe_count(b, s.text);
    }
    bpe_learn(b, VOCAB);
}

// A row begins with <|endoftext|> and goes on with stories, each of them ended by one.
static void fill_row(bpe *b, uint64_t seed, uint64_t number, int32_t *tokens, int32_t *targets) {
    static story s;
    int32_t all[TOKENS + 1];
    size_t count = 0;
    all[count++] = BPE_END;
    for (uint64_t i = 0; count <= TOKENS; i++) {
        story_make(&s, seed, number * TOKENS + i);
        count += bpe_encode(b, s.text, all + count, TOKENS + 1 - count);
        if (count <= TOKENS) all[count++] = BPE_END;
    }
    memcpy(tokens, all, TOKENS * sizeof *all);
    memcpy(targets, all + 1, TOKENS * sizeof *all);
}

// ---- training -----------------------------------------------------------------------------------

// Up in a straight line, down along a cosine to a hundredth.
static double rate_at(const settings *s, uint64_t step) {
    if (step < WARM_UP) return s->rate * (double)(step + 1) / WARM_UP;
    double passed =
        (double)(step - WARM_UP) / (double)(s->steps > WARM_UP ? s->steps - WARM_UP : 1);
    return s->rate * (0.01 + 0.99 * 0.5 * (1 + cos(3.14159265358979 * passed)));
}

typedef struct progress {
    double begin, last_save, last_line;
    uint64_t first_step; // of this run
    double loss;         // smoothed
    bool measured;
} progress;

// While the rate still rises, the number of steps does not matter: it is found out.
static void choose_steps(settings *s, progress *p, uint64_t done) {
    uint64_t here = done - p->first_step;
    if (p->measured || here < WARM_UP / 2) return;
    double each = (seconds_now() - p->begin) / (double)here;
    s->steps = p->first_step + (uint64_t)(0.96 * s->minutes * 60 / each);
    if (s->steps < WARM_UP) s->steps = WARM_UP;
    p->measured = true;
    printf("%.3f s a step: --steps %llu\n", each, (unsigned long long)s->steps);
}

static void show(const settings *s, progress *p, uint64_t done, double loss, bool last) {
    double now = seconds_now(), passed = now - p->begin;
    p->loss = p->loss > 0 ? 0.95 * p->loss + 0.05 * loss : loss;
    if (!last && now - p->last_line < 5) return;
    double tokens = (double)(done - p->first_step) * s->batch * TOKENS;
    printf("step %6llu of %llu  loss %.4f  rate %.2e  %.0f tokens/s  %.0f s\n",
           (unsigned long long)done, (unsigned long long)s->steps, p->loss, rate_at(s, done - 1),
           tokens / passed, passed);
    fflush(stdout);
    p->last_line = now;
}

static rn_status save(const settings *s, progress *p, rn_trainer *trainer) {
    p->last_save = seconds_now();
    return rn_trainer_save(trainer, join(s, "checkpoint.safetensors"));
}

static rn_status step(const settings *s, bpe *b, rn_trainer *trainer, int32_t *tokens,
                      int32_t *targets, float *out_loss) {
    uint64_t number = rn_trainer_steps(trainer);
    for (uint32_t row = 0; row < s->batch; row++)
        fill_row(b, s->seed, number * s->batch + row, tokens + row * TOKENS,
                 targets + row * TOKENS);
    return rn_trainer_step(trainer, tokens, targets, rate_at(s, number), out_loss);
}

static rn_status train(settings *s, bpe *b, rn_trainer *trainer) {
    size_t rows = (size_t)s->batch * TOKENS;
    int32_t *tokens = calloc(2 * rows, sizeof *tokens);
    if (!tokens) return rn_fail(RN_NO_MEMORY, "no memory for a batch");
    progress p = {.begin = seconds_now(),
                  .last_save = seconds_now(),
                  .first_step = rn_trainer_steps(trainer),
                  .measured = s->steps > 0};
    bool timed = s->steps > 0 && s->minutes > 0;
    float loss = 0;
    rn_status status = RN_OK;
    for (uint64_t done = p.first_step; status == RN_OK && (!p.measured || done < s->steps);) {
        if (timed && seconds_now() - p.begin > 60 * s->minutes) break;
        status = step(s, b, trainer, tokens, tokens + rows, &loss);
        if (status != RN_OK) break;
        choose_steps(s, &p, ++done);
        show(s, &p, done, (double)loss, done == s->steps);
        if (seconds_now() - p.last_save > 60) status = save(s, &p, trainer);
    }
    if (status == RN_OK) status = save(s, &p, trainer);
    free(tokens);
    return status;
}

static rn_status write_model(const settings *s, const bpe *b, rn_trainer *trainer) {
    RN_TRY(rn_trainer_export(trainer, RN_DTYPE_F16, join(s, "model.safetensors")));
    RN_TRY(write_file(s, "config.json", write_config, NULL));
    RN_TRY(write_file(s, "tokenizer.json", write_tokenizer, b));
    RN_TRY(write_file(s, "tokenizer_config.json", write_tokenizer_config, NULL));
    printf("%s after %llu steps\n", s->out, (unsigned long long)rn_trainer_steps(trainer));
    return RN_OK;
}

static rn_status work(settings *s) {
    static bpe tokenizer;
    rn_device *device = NULL;
    rn_trainer *trainer = NULL;
    learn_tokenizer(&tokenizer);
    if (mkdir(s->out, 0777) != 0 && errno != EEXIST)
        return rn_fail(RN_IO, "%s: %s", s->out, strerror(errno));
    RN_TRY(rn_cpu_device_create(s->threads, &device));
    rn_trainer_options options = {.layers = LAYERS,
                                  .dim = DIM,
                                  .heads = HEADS,
                                  .kv_heads = KV_HEADS,
                                  .ffn = FFN,
                                  .vocab_size = VOCAB,
                                  .tokens = TOKENS,
                                  .batch = s->batch,
                                  .beta2 = 0.98,
                                  .weight_decay = 0.01,
                                  .max_norm = 1,
                                  .init_deviation = 0.04f,
                                  .seed = s->seed,
                                  .plan = {.exact = true},
                                  .device = device};
    rn_status status = rn_trainer_create(&options, &trainer);
    if (status == RN_OK && access(join(s, "checkpoint.safetensors"), F_OK) == 0)
        status = rn_trainer_resume(trainer, join(s, "checkpoint.safetensors"));
    if (status == RN_OK) status = train(s, &tokenizer, trainer);
    if (status == RN_OK) status = write_model(s, &tokenizer, trainer);
    rn_trainer_destroy(trainer);
    rn_device_destroy(device);
    return status;
}

// ---- the command line ---------------------------------------------------------------------------

static int print_stories(const settings *s) {
    static story one;
    for (uint64_t i = 0; i < s->stories; i++) {
        story_make(&one, s->seed, i);
        printf("%s%s\n", i ? "\n---\n\n" : "", one.text);
    }
    return 0;
}

static bool take(settings *s, const char *flag, const char *value) {
    char *end = NULL;
    if (strcmp(flag, "--out") == 0) return s->out = value, true;
    double number = strtod(value, &end);
    if (*end || end == value || !(number >= 0)) return false;
    if (strcmp(flag, "--steps") == 0) return s->steps = (uint64_t)number, true;
    if (strcmp(flag, "--stories") == 0) return s->stories = (uint64_t)number, true;
    if (strcmp(flag, "--seed") == 0) return s->seed = (uint64_t)number, true;
    if (strcmp(flag, "--minutes") == 0) return s->minutes = number, true;
    if (strcmp(flag, "--rate") == 0) return s->rate = number, true;
    if (strcmp(flag, "--threads") == 0) return s->threads = (uint32_t)number, true;
    if (strcmp(flag, "--batch") == 0) return s->batch = (uint32_t)number, true;
    return false;
}

int main(int argc, char **argv) {
    settings s = {.seed = 1, .batch = 32, .rate = 3e-3};
    bool good = argc > 2 && argc % 2 == 1;
    for (int i = 1; good && i < argc; i += 2)
        good = take(&s, argv[i], argv[i + 1]);
    if (good && s.stories > 0) return print_stories(&s);
    if (!good || !s.out || (s.steps == 0 && s.minutes == 0)) {
        fprintf(stderr, "usage: train_tiny --out DIR (--steps N | --minutes M) [--threads T] "
                        "[--seed S] [--batch B] [--rate R]\n"
                        "       train_tiny --stories COUNT [--seed S]\n");
        return 2;
    }
    if (work(&s) == RN_OK) return 0;
    fprintf(stderr, "train_tiny: %s\n", rn_last_error()->message);
    return 3;
}
