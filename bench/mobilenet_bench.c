// mobilenet_bench.c — the forward pass of MobileNetV2 for one image, as ONNX exports have it (norms
// folded into convolutions, relu6 behind them); beside ONNX Runtime.
//
//     mobilenet_bench [THREADS [SECONDS [ops]]]
//
// The best of many runs; "ops" prints where the time goes.
#include "model_bench.h"

enum { SIZE = 224, IMAGE = SIZE * SIZE * 3 };

static uint32_t weights;

static rn_value weight(rn_graph *g, rn_shape shape) {
    char name[32];
    snprintf(name, sizeof name, "w%u", weights++);
    return rn_graph_weight(g, name, RN_DTYPE_F32, shape);
}

static rn_value conv(rn_graph *g, rn_value x, uint64_t outputs, uint32_t size, uint32_t stride,
                     bool depthwise) {
    uint64_t channels = rn_graph_value(g, x)->shape.dims[3];
    uint32_t pad = size / 2;
    rn_conv_attrs attrs = {.groups = depthwise ? (uint32_t)channels : 1,
                           .stride = {stride, stride},
                           .pad_before = {pad, pad},
                           .pad_after = {pad, pad}};
    rn_value w = weight(g, RN_SHAPE(outputs, depthwise ? 1 : channels, size, size));
    return rn_op_conv(g, x, w, weight(g, RN_SHAPE(outputs)), attrs);
}

static rn_value relu6(rn_graph *g, rn_value x) {
    return rn_op_clamp(g, x, 0, 6);
}

static rn_value bottleneck(rn_graph *g, rn_value x, uint64_t outputs, uint32_t expand,
                           uint32_t stride) {
    uint64_t channels = rn_graph_value(g, x)->shape.dims[3], inner = channels * expand;
    rn_value y = x;
    if (expand > 1) y = relu6(g, conv(g, y, inner, 1, 1, false));
    y = relu6(g, conv(g, y, inner, 3, stride, true));
    y = conv(g, y, outputs, 1, 1, false);
    return stride == 1 && channels == outputs ? rn_op_add(g, x, y) : y;
}

static rn_status build(void *self, const rn_recipe_options *options, rn_graph **out) {
    static const uint32_t layers[][4] = {// expand, outputs, times, stride
                                         {1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2},
                                         {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2},
                                         {6, 320, 1, 1}};
    rn_graph *g;
    (void)self, (void)options;
    RN_TRY(rn_graph_create(&g));
    weights = 0;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, SIZE, SIZE, 3));
    x = relu6(g, conv(g, x, 32, 3, 2, false));
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (uint32_t n = 0; n < layers[i][2]; n++)
            x = bottleneck(g, x, layers[i][1], layers[i][0], n ? 1 : layers[i][3]);
    x = relu6(g, conv(g, x, 1280, 1, 1, false));
    x = rn_op_mean(g, x, 6, false);
    x = rn_op_matmul(g, x, weight(g, RN_SHAPE(1000, 1280)), weight(g, RN_SHAPE(1000)));
    rn_graph_output(g, x, "y");
    *out = g;
    return rn_graph_finish(g);
}

int main(int argc, char **argv) {
    if (argc > 1) threads = (uint32_t)atoi(argv[1]);
    double seconds = argc > 2 ? atof(argv[2]) : 3, best = 1e9;
    bool show_ops = argc > 3;
    numbers from = make_numbers((uint64_t)1280 * 1000 * sizeof(float));
    rn_recipe recipe = {.name = "mobilenet_v2", .build = build, .rows = 1};
    planned p = open_planned(&recipe, show_ops ? time_kernels() : rn_cpu_kernels, 0, &from);
    for (double begin = wall_seconds(); wall_seconds() - begin < seconds;) {
        double start = step_seconds();
        begin_kinds();
        must(rn_session_set(p.session, "x", from.small, IMAGE * sizeof(float)));
        must(rn_session_run(p.session, 1));
        double passed = step_seconds() - start;
        end_kinds();
        best = passed < best ? passed : best;
    }
    printf("mobilenet_v2 b1, %u threads: %9.3f ms\n", threads, best * 1e3);
    if (show_ops) print_kinds();
    close_planned(&p);
}
