// onnx_bench.c — a run of an ONNX model of tensors on the CPU, and where its time goes.
//
//     onnx_bench MODEL.onnx [THREADS [SECONDS [ops]]]
//
// The best of many runs; symbols in shapes are 1, floats among the inputs are within 0 and 1,
// everything else is 0. "ops" prints the time by op and shape.
#include "model_bench.h"

#include <ration/onnx.h>

static void set_inputs(rn_session *session, const rn_graph *graph) {
    for (rn_value v = 1; v <= rn_graph_value_count(graph); v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        uint64_t count = rn_shape_elements(info->shape, 1), bytes;
        if (info->role != RN_ROLE_INPUT) continue;
        if (!rn_dtype_bytes(info->dtype, count, &bytes)) exit(1);
        float *data = calloc(1, bytes + 1);
        for (uint64_t i = 0; data && info->dtype == RN_DTYPE_F32 && i < count; i++)
            data[i] = (float)(i % 97) / 97;
        must(rn_session_set(session, info->name, data, bytes));
        free(data);
    }
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    if (argc > 2) threads = (uint32_t)atoi(argv[2]);
    double seconds = argc > 3 ? atof(argv[3]) : 3, best = 1e9;
    bool show_ops = argc > 4;
    rn_onnx *model;
    rn_recipe recipe;
    planned p = {0};
    must(rn_onnx_open(argv[1], &(rn_onnx_options){0}, &model));
    must(rn_onnx_make_recipe(model, 0, &recipe));
    rn_weight_source weights = rn_onnx_weights(model);
    must(rn_cpu_device_create(threads, &p.device));
    p.device->caps.kernels = show_ops ? time_kernels() : rn_cpu_kernels;
    must(rn_plan_make(&recipe, &p.device->caps, &(rn_plan_options){0}, &p.plan));
    must(
        rn_session_create(p.plan, &weights, &(rn_session_options){.device = p.device}, &p.session));
    const rn_graph *graph = rn_onnx_graph(model);
    for (double begin = wall_seconds(); wall_seconds() - begin < seconds;) {
        set_inputs(p.session, graph);
        double start = step_seconds();
        begin_kinds();
        must(rn_session_run(p.session, rn_graph_has_rows(graph) ? 1 : 0));
        double passed = step_seconds() - start;
        end_kinds();
        best = passed < best ? passed : best;
    }
    printf("%s, %u threads: %9.3f ms\n", argv[1], threads, best * 1e3);
    if (show_ops) print_kinds();
    close_planned(&p);
    rn_recipe_destroy(&recipe);
    rn_onnx_close(model);
}
