// train_bench.c — a training step of a small Llama (forward, backward, AdamW), beside PyTorch.
//
//     train_bench [THREADS [SECONDS [eager | planned [BUDGET MiB]] [ops]]]
//
// "train step" is the best of many steps; peer_torch.py's "train" prints the same names. Peaks are
// what was resident at most, above what was resident before the model existed (for the plan, what
// it predicted stands beside it); eager and planned are then to be run one by one. "ops" prints
// where the time goes: for each op the best sum over a step.
#include "train/train_recipe.h"
#include "model_bench.h"

enum { BATCH = 4, TOKENS = 256, VOCAB = 4096 };

static const rn_llama_config config = {.layers = 2,
                                       .dim = 512,
                                       .heads = 8,
                                       .kv_heads = 4,
                                       .ffn = 1536,
                                       .vocab = VOCAB,
                                       .weight_dtype = RN_DTYPE_F32,
                                       .tokens = TOKENS};
static const rn_train_options options = {.weight_decay = 0.01f};

static int32_t tokens[BATCH * TOKENS], targets[BATCH * TOKENS];
static double seconds = 3;
static bool show_ops;
static bool alone; // one of the two ways only: then the process's peak is its own

static void make_data(void) {
    for (uint32_t i = 0; i < BATCH * TOKENS; i++) {
        tokens[i] = (int32_t)(i * 2654435761u % VOCAB);
        targets[i] = (int32_t)((i + 1) * 2654435761u % VOCAB);
    }
}

typedef struct run {
    void (*step)(struct run *run, double number);
    const rn_graph *graph;
    rn_eager *eager;
    rn_session *session;
} run;

static void step_eager(run *r, double number) {
    set_eager_scalar(r->eager, r->graph, "step", number);
    must(rn_eager_run(r->eager));
}

static void step_planned(run *r, double number) {
    must(rn_session_set(r->session, "tokens", tokens, sizeof tokens));
    must(rn_session_set(r->session, "targets", targets, sizeof targets));
    must(rn_session_set_scalar(r->session, "step", number));
    must(rn_session_run(r->session, 0));
}

static void measure(run *r, const char *name, double before) {
    double begin = wall_seconds(), best = 1e9;
    for (int n = 0; n < 3 || wall_seconds() - begin < seconds; n++) {
        double start = step_seconds();
        begin_kinds();
        r->step(r, n + 1);
        double passed = step_seconds() - start;
        end_kinds();
        best = passed < best ? passed : best;
    }
    printf("train step, %-16s: %9.3f ms\n", name, best * 1e3);
    if (alone) printf("train peak, %-16s: %9.3f MiB\n", name, resident_peak_mib() - before);
    if (show_ops) print_kinds();
}

static void run_eager(const rn_recipe *recipe, const rn_kernel *kernels, numbers *from) {
    rn_workers *workers = NULL;
    rn_graph *graph = NULL;
    double before = resident_mib();
    must(rn_workers_create(threads, &rn_system_allocator, &workers));
    must(recipe->build(recipe->self, &(rn_recipe_options){0}, &graph));
    run r = {.step = step_eager, .graph = graph};
    r.eager = open_eager(graph, kernels, workers, 0, from);
    must(rn_eager_set(r.eager, rn_graph_find(graph, RN_ROLE_INPUT, "tokens"), tokens,
                      sizeof tokens));
    must(rn_eager_set(r.eager, rn_graph_find(graph, RN_ROLE_INPUT, "targets"), targets,
                      sizeof targets));
    set_eager_scalar(r.eager, graph, "rate", 1e-4);
    set_eager_scalar(r.eager, graph, "loss_scale", 1.0 / (BATCH * TOKENS));
    measure(&r, "eager", before);
    rn_eager_destroy(r.eager);
    rn_graph_destroy(graph);
    rn_workers_destroy(workers);
}

static void run_planned(const rn_recipe *recipe, const rn_kernel *kernels, numbers *from,
                        uint64_t budget_bytes) {
    double before = resident_mib();
    planned p = open_planned(recipe, kernels, budget_bytes, from);
    const rn_plan_summary *s = rn_plan_get_summary(p.plan);
    run r = {.step = step_planned, .session = p.session};
    must(rn_session_set_scalar(p.session, "rate", 1e-4));
    must(rn_session_set_scalar(p.session, "loss_scale", 1.0 / (BATCH * TOKENS)));
    measure(&r, "planned", before);
    printf("planned: predicted peak %.3f MiB (live %.3f), smallest %.3f MiB, recomputed %u of %u "
           "blocks, %u micro-batches\n",
           (double)s->planned_bytes * MIB, (double)s->live_peak_bytes * MIB,
           (double)s->smallest_bytes * MIB, s->recomputed_blocks, s->block_count, s->micro_batches);
    close_planned(&p);
}

int main(int argc, char **argv) {
    const char *mode = argc > 3 ? argv[3] : "";
    uint64_t budget = 0;
    alone = strcmp(mode, "eager") == 0 || strcmp(mode, "planned") == 0;
    if (argc > 1) threads = (uint32_t)atoi(argv[1]);
    if (argc > 2) seconds = atof(argv[2]);
    for (int i = 4; i < argc; i++)
        if (atof(argv[i]) > 0) budget = (uint64_t)(atof(argv[i]) * (1 << 20));
    for (int i = 3; i < argc; i++)
        show_ops |= strcmp(argv[i], "ops") == 0;
    const rn_kernel *kernels = show_ops ? time_kernels() : rn_cpu_kernels;
    rn_recipe recipe;
    numbers from = make_numbers((uint64_t)VOCAB * config.dim * sizeof(float));
    make_data();
    must(rn_train_recipe(rn_llama_forward(&config), BATCH, &options, &recipe));
    if (strcmp(mode, "planned") != 0) run_eager(&recipe, kernels, &from);
    kind_count = 0;
    if (strcmp(mode, "eager") != 0) run_planned(&recipe, kernels, &from, budget);
    rn_recipe_destroy(&recipe);
}
