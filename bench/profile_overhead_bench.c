// profile_overhead_bench.c — what recording costs those who are recorded: decoding with a model,
// and a training step of ResNet-18, with and without.
//
//     profile_overhead_bench [THREADS [ROUNDS [MODEL]]]
//
// Both run in one process, in turns of a few passes, recorded and not, the order changing from
// round to round; a figure is the best of the rounds, beside the median of what each round says (on
// a busy machine neither is worth much). Beginning and ending a recording is not timed. MODEL is a
// GGUF file or a folder; without one the story teller that is part of the library, whose passes are
// so short that its ratio says what an operation costs, not what a real model feels.
#include <ration/generate.h>
#include <ration/model.h>
#include <ration/profile.h>

#include "train/train_recipe.h"
#include "model_bench.h"

#include <unistd.h>

enum { MOST_ROUNDS = 1000, PASSES = 8, IMAGE_SIZE = 64, BATCH = 4 };

static uint32_t rounds = 6;
static char trace[64];

// ---- in turns -----------------------------------------------------------------------------------

typedef struct job {
    const char *name;
    void *self;
    void (*pass)(void *self);
    uint32_t passes; // a turn
} job;

static double turn(const job *j, bool recorded, uint64_t *out_events) {
    rn_profile_facts facts;
    if (recorded) must(rn_profile_start(&(rn_profile_options){.path = trace}));
    j->pass(j->self); // names are made, pages touched
    double begin = step_seconds();
    for (uint32_t i = 0; i < j->passes; i++)
        j->pass(j->self);
    double passed = step_seconds() - begin;
    if (recorded) must(rn_profile_stop());
    rn_profile_get_facts(&facts);
    *out_events = facts.event_count / (j->passes + 1);
    return passed / j->passes;
}

static double least(double a, double b) {
    return a < b ? a : b;
}

static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void compare(const job *j) {
    double best[2] = {1e9, 1e9}, ratios[MOST_ROUNDS];
    uint64_t events = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        double took[2] = {0};
        for (uint32_t half = 0; half < 2; half++) {
            bool recorded = (i + half) % 2;
            took[recorded] = turn(j, recorded, &events);
            best[recorded] = least(best[recorded], took[recorded]);
        }
        ratios[i] = took[1] / took[0];
    }
    qsort(ratios, rounds, sizeof *ratios, order);
    printf("%s: %.3f ms, recorded %.3f ms, %+.2f %% (median of the rounds %+.2f %%), %llu events\n",
           j->name, best[0] * 1e3, best[1] * 1e3, (best[1] / best[0] - 1) * 100,
           (ratios[rounds / 2] - 1) * 100, (unsigned long long)events);
    unlink(trace);
}

// ---- decoding -----------------------------------------------------------------------------------

typedef struct decoding {
    rn_generator *generator;
    rn_sequence *sequence;
} decoding;

static void decode(void *self) {
    decoding *d = self;
    rn_sample sample;
    must(rn_generator_step(d->generator));
    while (rn_sequence_take(d->sequence, &sample))
        continue;
}

static void compare_decoding(const char *path) {
    rn_model *model = NULL;
    rn_device *device = NULL;
    decoding d = {0};
    const uint32_t prompt[] = {1, 2, 3, 4};
    must(rn_cpu_device_create(threads, &device));
    must(rn_model_open(path, NULL, &model));
    rn_generator_options options = {.speculation = RN_SPECULATE_NEVER,
                                    .text = {.context = 2 * rounds * (PASSES + 1) + 16},
                                    .session = {.device = device}};
    must(rn_generator_create(model, &options, &d.generator));
    must(rn_sequence_create(d.generator, NULL, &d.sequence));
    must(rn_sequence_feed(d.sequence, prompt, 4));
    decode(&d);
    compare(&(job){"decode, a pass", &d, decode, PASSES});
    rn_generator_destroy(d.generator);
    rn_model_close(model);
    rn_device_destroy(device);
}

// ---- training -----------------------------------------------------------------------------------

static float *plain; // bytes of any weight or input

static const void *find_plain(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    (void)self;
    (void)name;
    (void)dtype;
    (void)bytes;
    return plain;
}

static void train(void *self) {
    rn_session *session = self;
    const int32_t labels[BATCH] = {0};
    must(rn_session_set(session, "x", plain, (uint64_t)BATCH * IMAGE_SIZE * IMAGE_SIZE * 3 * 4));
    must(rn_session_set(session, "targets", labels, sizeof labels));
    must(rn_session_set_scalar(session, "rate", 1e-3));
    must(rn_session_set_scalar(session, "step", 1));
    must(rn_session_run(session, 0));
}

static void compare_training(void) {
    rn_recipe recipe;
    rn_plan *plan = NULL;
    rn_session *session = NULL;
    rn_device *device = NULL;
    rn_resnet_config config = {.size = IMAGE_SIZE, .classes = 100};
    plain = calloc((size_t)4 << 20, sizeof *plain);
    for (uint32_t i = 0; plain && i < (uint32_t)4 << 20; i++)
        plain[i] = 0.01f + (float)(i % 7) * 0.001f;
    must(rn_cpu_device_create(threads, &device));
    must(rn_train_recipe(rn_resnet_forward(&config), BATCH, NULL, &recipe));
    must(rn_plan_make(&recipe, rn_device_get_caps(device), NULL, &plan));
    must(rn_session_create(plan, &(rn_weight_source){.find = find_plain},
                           &(rn_session_options){.device = device}, &session));
    compare(&(job){"resnet18, a training step", session, train, 1});
    rn_session_destroy(session);
    rn_plan_destroy(plan);
    rn_recipe_destroy(&recipe);
    rn_device_destroy(device);
    free(plain);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1) threads = (uint32_t)atoi(argv[1]);
    if (argc > 2) rounds = (uint32_t)atoi(argv[2]);
    if (rounds < 1 || rounds > MOST_ROUNDS) rounds = 6;
    snprintf(trace, sizeof trace, "profile_overhead_%d.rntrace", (int)getpid());
    compare_decoding(argc > 3 ? argv[3] : NULL);
    compare_training();
}
