// run_within.c — a chain of matrix products that is larger than its memory budget: made, planned
// and run within it, with the plan beside the facts.
//
//     run_within chain.safetensors 64MiB      (makes the file, 256 MiB, where it is missing)
//
// Everything here is the library's public API.
#include <ration/ration.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINKS = 64, WIDTH = 1024 }; // 64 weights of (1024, 1024) f32

// ---- a model file -------------------------------------------------------------------------------

static rn_status fill(rn_writer *writer) {
    static float row[WIDTH];
    for (int i = 0; i < LINKS * WIDTH; i++) { // each weight shifts its input by seven places
        memset(row, 0, sizeof row);
        row[(i + 7) % WIDTH] = 1;
        RN_TRY(rn_writer_append(writer, row, sizeof row));
    }
    return rn_writer_commit(writer);
}

static rn_status make_model(const char *path) {
    static const uint64_t dims[] = {WIDTH, WIDTH};
    rn_write_tensor tensors[LINKS];
    char names[LINKS][8];
    rn_writer *writer = NULL;
    for (int i = 0; i < LINKS; i++) {
        int bytes = snprintf(names[i], sizeof names[i], "w%d", i);
        tensors[i] = (rn_write_tensor){
            .name = {names[i], (size_t)bytes}, .dtype = RN_DTYPE_F32, .rank = 2, .dims = dims};
    }
    RN_TRY(rn_writer_create(path, tensors, LINKS, NULL, &writer));
    rn_status s = fill(writer);
    rn_writer_destroy(writer);
    return s;
}

// ---- a graph ------------------------------------------------------------------------------------

static rn_status build(void *self, const rn_recipe_options *options, rn_graph **out) {
    rn_graph *g = NULL;
    (void)self, (void)options;
    RN_TRY(rn_graph_create(&g));
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, WIDTH));
    for (int i = 0; i < LINKS; i++) {
        char name[24];
        snprintf(name, sizeof name, "link %d", i);
        rn_graph_block(g, name);
        snprintf(name, sizeof name, "w%d", i);
        rn_value w = rn_graph_weight(g, name, RN_DTYPE_F32, RN_SHAPE(WIDTH, WIDTH));
        x = rn_op_matmul(g, x, w, RN_NO_VALUE);
    }
    rn_graph_output(g, x, "y");
    rn_status s = rn_graph_finish(g);
    if (s == RN_OK)
        *out = g;
    else
        rn_graph_destroy(g);
    return s;
}

// ---- a run --------------------------------------------------------------------------------------

// x goes in, and comes out shifted by 7 * 64 places.
static rn_status run(rn_session *session, bool *out_right) {
    float x[WIDTH], y[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        x[i] = (float)i;
    for (int pass = 0; pass < 3; pass++) {
        RN_TRY(rn_session_set(session, "x", x, sizeof x));
        RN_TRY(rn_session_run(session, 1));
    }
    RN_TRY(rn_session_get(session, "y", y, sizeof y));
    *out_right = true;
    for (int i = 0; i < WIDTH; i++)
        *out_right = *out_right && y[i] == (float)((i + 7 * LINKS) % WIDTH);
    return RN_OK;
}

static void report(const rn_plan *plan, rn_session *session, uint64_t budget, bool right) {
    const rn_plan_summary *s = rn_plan_get_summary(plan);
    rn_session_facts facts = rn_session_get_facts(session);
    rn_process_info process;
    if (rn_process_read(&process) != RN_OK) return;
    printf("weights    %llu, read in each run %llu\n", (unsigned long long)s->weight_bytes,
           (unsigned long long)s->streamed_bytes);
    printf("live peak  predicted %llu, measured %llu\n", (unsigned long long)s->live_peak_bytes,
           (unsigned long long)facts.live_peak_bytes);
    printf("resident   peak %llu, budget %llu\n", (unsigned long long)process.resident_peak_bytes,
           (unsigned long long)budget);
    printf("answer     %s\n", right ? "right" : "wrong");
}

static rn_status run_plan(const rn_plan *plan, const char *path, uint64_t budget) {
    rn_checkpoint *model = NULL;
    rn_session *session = NULL;
    bool right = false;
    RN_TRY(rn_checkpoint_open(path, &model));
    rn_weight_source weights = {.checkpoint = model};
    rn_status s = rn_session_create(plan, &weights, &(rn_session_options){.audit = true}, &session);
    if (s == RN_OK) s = run(session, &right);
    if (s == RN_OK) report(plan, session, budget, right);
    rn_session_destroy(session);
    rn_checkpoint_close(model);
    return s;
}

static rn_status work(const char *path, const char *size) {
    rn_recipe recipe = {.name = "chain", .build = build, .rows = 1};
    rn_plan *plan = NULL;
    uint64_t budget = 0;
    RN_TRY(rn_size_parse((rn_str){size, strlen(size)}, 0, &budget));
    if (access(path, F_OK) != 0)
        return make_model(path); // another run: making it costs memory, too
    // What the process costs already, and some for its growth, is not the plan's.
    RN_TRY(rn_process_charge_unaccounted());
    uint64_t outside = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED).now_bytes;
    uint64_t beside = outside + (4u << 20) + budget / 1000 * 3;
    rn_plan_options options = {.budget_bytes = budget > beside ? budget - beside : 1};
    RN_TRY(rn_budget_set(RN_DEVICE_HOST, 0, budget));
    RN_TRY(rn_plan_make(&recipe, rn_cpu_caps(), &options, &plan));
    rn_status s = run_plan(plan, path, budget);
    rn_plan_destroy(plan);
    return s;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: run_within FILE.safetensors BUDGET\n");
        return 2;
    }
    rn_status s = work(argv[1], argv[2]);
    if (s == RN_OK) return 0;
    fprintf(stderr, "run_within: %s\n  hint: %s\n", rn_last_error()->message,
            rn_last_error()->hint);
    return s == RN_OVER_BUDGET ? 4 : 3;
}
