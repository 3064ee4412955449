// resnet_bench.c — the forward pass of ResNet-18 for 1 and for 8 images, beside PyTorch
// and ONNX Runtime.
//
//     resnet_bench [THREADS [SECONDS [eager | planned] [ops]]]
//
// The best of many runs; peer_torch.py's "resnet" prints the same names: PyTorch's eager mode
// beside ours, and the best of eager, torch.compile and ONNX Runtime beside "planned". "ops" prints
// where the time goes.
#include "model/model.h"
#include "model_bench.h"

enum { SIZE = 224, MOST = 8, IMAGE = SIZE * SIZE * 3 };

static float *images; // (MOST, SIZE, SIZE, 3)
static double seconds = 3;
static bool show_ops;

typedef struct run {
    rn_eager *eager;
    rn_session *session;
    uint64_t rows;
} run;

static void forward(const run *r) {
    if (r->eager) {
        must(rn_eager_run(r->eager));
        return;
    }
    must(rn_session_set(r->session, "x", images, r->rows * IMAGE * sizeof(float)));
    must(rn_session_run(r->session, r->rows));
}

static void measure(const run *r, const char *name) {
    double begin = wall_seconds(), best = 1e9;
    for (int n = 0; n < 3 || wall_seconds() - begin < seconds; n++) {
        double start = step_seconds();
        begin_kinds();
        forward(r);
        double passed = step_seconds() - start;
        end_kinds();
        best = passed < best ? passed : best;
    }
    printf("resnet18 b%llu, %-15s: %9.3f ms\n", (unsigned long long)r->rows, name, best * 1e3);
    if (show_ops) print_kinds();
    kind_count = 0;
}

static void run_eager(const rn_recipe *recipe, const rn_kernel *kernels, numbers *from,
                      uint64_t rows) {
    rn_workers *workers = NULL;
    rn_graph *graph = NULL;
    must(rn_workers_create(threads, &rn_system_allocator, &workers));
    must(recipe->build(recipe->self, &(rn_recipe_options){0}, &graph));
    run r = {.eager = open_eager(graph, kernels, workers, rows, from), .rows = rows};
    must(rn_eager_set(r.eager, rn_graph_find(graph, RN_ROLE_INPUT, "x"), images,
                      rows * IMAGE * sizeof(float)));
    measure(&r, "eager");
    rn_eager_destroy(r.eager);
    rn_graph_destroy(graph);
    rn_workers_destroy(workers);
}

static void run_planned(const rn_recipe *recipe, const rn_kernel *kernels, numbers *from,
                        uint64_t rows) {
    planned p = open_planned(recipe, kernels, 0, from);
    run r = {.session = p.session, .rows = rows};
    measure(&r, "planned");
    close_planned(&p);
}

int main(int argc, char **argv) {
    const char *mode = argc > 3 ? argv[3] : "";
    if (argc > 1) threads = (uint32_t)atoi(argv[1]);
    if (argc > 2) seconds = atof(argv[2]);
    for (int i = 3; i < argc; i++)
        show_ops |= strcmp(argv[i], "ops") == 0;
    const rn_kernel *kernels = show_ops ? time_kernels() : rn_cpu_kernels;
    numbers from = make_numbers((uint64_t)512 * 512 * 9 * sizeof(float));
    images = malloc(MOST * IMAGE * sizeof(float));
    for (uint32_t i = 0; images && i < MOST * IMAGE; i++)
        images[i] = from.small[i % 1000003] * 10;
    for (uint32_t rows = 1; rows <= MOST; rows += MOST - 1) {
        rn_recipe recipe;
        must(rn_resnet_recipe(&(rn_resnet_config){.size = SIZE, .classes = 1000, .rows = rows},
                              &recipe));
        if (strcmp(mode, "planned") != 0) run_eager(&recipe, kernels, &from, rows);
        if (strcmp(mode, "eager") != 0) run_planned(&recipe, kernels, &from, rows);
        rn_recipe_destroy(&recipe);
    }
}
