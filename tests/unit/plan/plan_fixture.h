// plan_fixture.h — a device that exists on paper only, and graphs to plan for it.
#ifndef RN_TEST_PLAN_FIXTURE_H
#define RN_TEST_PLAN_FIXTURE_H

#include "support.h"

#include "graph/graph_internal.h"
#include "memory/account.h"
#include "plan/planner.h"

static inline rn_status never_run(const rn_call *call) {
    (void)call;
    return rn_fail(RN_INTERNAL, "planning runs nothing");
}

// Every op, with the workspace of its reference loop.
static inline const rn_kernel *paper_kernels(void) {
    static rn_kernel kernels[RN_OP_COUNT];
    for (int i = 0; i < RN_OP_COUNT; i++)
        kernels[i] = (rn_kernel){never_run, rn_op_get((rn_op)i)->workspace};
    return kernels;
}

// 1 Gflop/s, 1 GB/s of memory, 100 MB/s of disk, a microsecond a step.
static inline rn_device_caps paper_caps(void) {
    return (rn_device_caps){.name = "paper",
                            .device = RN_DEVICE_HOST,
                            .threads = 2,
                            .kernels = paper_kernels(),
                            .flops = 1e9,
                            .quantized_flops = 2e9,
                            .memory_bytes_second = 1e9,
                            .disk_bytes_second = 1e8,
                            .link_bytes_second = 1e9,
                            .step_seconds = 1e-6};
}

// A recipe around a function that writes a graph.
typedef void (*write_graph)(rn_graph *graph, uint32_t micro_batches);

typedef struct paper_model {
    write_graph write;
} paper_model;

static inline rn_status paper_build(void *self, const rn_recipe_options *options, rn_graph **out) {
    rn_graph *graph;
    *out = NULL;
    RN_TRY(rn_graph_create(&graph));
    ((paper_model *)self)->write(graph, options->micro_batches);
    rn_status s = rn_graph_finish(graph);
    if (s == RN_OK)
        *out = graph;
    else
        rn_graph_destroy(graph);
    return s;
}

static inline rn_recipe paper_recipe(paper_model *model) {
    return (rn_recipe){.name = "paper model", .self = model, .build = paper_build};
}

static inline rn_graph *paper_graph(write_graph write) {
    rn_graph *graph;
    assert_ok(rn_graph_create(&graph));
    write(graph, 1);
    assert_ok(rn_graph_finish(graph));
    return graph;
}

// Everything that is worked out before a budget is looked at.
typedef struct worked {
    rn_arena memory;
    rn_graph *graph;
    rn_device_caps caps;
    rn_plan_order order;
    rn_group_table groups;
    rn_binding binding;
} worked;

static inline void work_out(worked *w, rn_graph *graph, uint64_t rows) {
    w->graph = graph;
    w->caps = paper_caps();
    rn_arena_init(&w->memory, RN_HOST_OTHER, 0);
    assert_ok(rn_plan_order_make(&w->memory, graph, &w->order));
    assert_ok(
        rn_group_table_make(&w->memory, graph, &w->caps, &w->order, NULL, NULL, false, &w->groups));
    assert_ok(rn_binding_make(&w->memory, graph, &w->caps, &w->order, &w->groups, rows,
                              (rn_workload){0}, &w->binding));
    assert_ok(rn_binding_trace(&w->memory, graph, &w->caps, &w->order, &w->groups, &w->binding));
}

static inline void worked_free(worked *w) {
    rn_arena_free_all(&w->memory);
    rn_graph_destroy(w->graph);
}

static inline uint64_t random_below(uint64_t *state, uint64_t limit) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % limit;
}

#endif
