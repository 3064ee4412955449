// block_swap.c — a model of twelve blocks of which a few stay on a device; the others are brought
// while those before them compute. Then by name: offloaded, loaded on demand, cleared.
//
//     block_swap sim 4        (sim is a device that is not there; cpu, cuda:0)
//
// Everything here is the library's public API.
#include <ration/offload.h>
#include <ration/ration.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 12, WIDTH = 256 };

// ---- a model ------------------------------------------------------------------------------------

static float matrix[WIDTH][WIDTH]; // the weight of every block: it shifts its input by three places

static const void *find_weight(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    (void)self, (void)name;
    return dtype == RN_DTYPE_F32 && bytes == sizeof matrix ? matrix : NULL;
}

static rn_status build(void *self, const rn_recipe_options *options, rn_graph **out) {
    rn_graph *g = NULL;
    (void)self, (void)options;
    RN_TRY(rn_graph_create(&g));
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, WIDTH));
    for (int i = 0; i < BLOCKS; i++) {
        char name[32];
        snprintf(name, sizeof name, "block %d", i);
        rn_graph_block(g, name);
        snprintf(name, sizeof name, "blocks.%d.weight", i);
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

static const rn_recipe recipe = {
    .name = "blocks", .build = build, .rows = 1, .weights_in_memory = true};
static const rn_weight_source weights = {.find = find_weight};

// ---- runs ---------------------------------------------------------------------------------------

static rn_status set_input(rn_session *session) {
    float x[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        x[i] = (float)i;
    return rn_session_set(session, "x", x, sizeof x);
}

static rn_status check_output(rn_session *session) {
    float y[WIDTH];
    RN_TRY(rn_session_get(session, "y", y, sizeof y));
    for (int i = 0; i < WIDTH; i++)
        if (y[i] != (float)((i + 3 * BLOCKS) % WIDTH)) return rn_fail(RN_INTERNAL, "y[%d]", i);
    return RN_OK;
}

static rn_status swap_blocks(rn_device *device, uint32_t blocks) {
    rn_plan_options options = {.resident_blocks = blocks ? blocks : RN_NO_BLOCKS};
    rn_block_swapper *swapper = NULL;
    RN_TRY(rn_block_swapper_create(&recipe, &weights, device, &options, &swapper));
    rn_session *session = rn_block_swapper_session(swapper);
    rn_status s = rn_block_swapper_print(swapper, rn_sink_file(stdout));
    for (int i = 0; i < 3 && s == RN_OK; i++) {
        s = set_input(session);
        if (s == RN_OK) s = rn_block_swapper_forward(swapper, 1);
        if (s == RN_OK) s = check_output(session);
    }
    rn_block_swapper_destroy(swapper);
    return s;
}

// ---- names --------------------------------------------------------------------------------------

static rn_status show(rn_offload_manager *manager, const char *what) {
    rn_session *session;
    rn_offload_info info = rn_offload_get_info(manager);
    printf("%-16s %2u weights stay (%s), %2u do not\n", what, info.resident_weights,
           rn_size_format(info.resident_bytes).text, info.offloaded_weights);
    RN_TRY(rn_offload_session(manager, &session));
    RN_TRY(set_input(session));
    RN_TRY(rn_session_run(session, 1));
    return check_output(session);
}

static rn_status manage(rn_offload_manager *manager) {
    rn_offload_given given;
    RN_TRY(show(manager, "all"));
    RN_TRY(rn_offload_weights(manager, "blocks.*", "blocks.0.*,blocks.11.*"));
    RN_TRY(show(manager, "offloaded"));
    RN_TRY(rn_offload_load(manager, "blocks.5.*"));
    RN_TRY(show(manager, "loaded"));
    RN_TRY(rn_offload_clear_inactive(manager, &given));
    RN_TRY(show(manager, "cleared"));
    return RN_OK;
}

static rn_status work(const char *target, uint32_t blocks) {
    rn_device *device = NULL;
    rn_offload_manager *manager = NULL;
    for (int i = 0; i < WIDTH; i++)
        matrix[i][(i + 3) % WIDTH] = 1;
    RN_TRY(rn_device_open(target, 1, &device));
    rn_status s = swap_blocks(device, blocks);
    if (s == RN_OK) s = rn_offload_manager_create(&recipe, &weights, device, NULL, &manager);
    if (s == RN_OK) s = manage(manager);
    rn_offload_manager_destroy(manager);
    rn_device_destroy(device);
    return s;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: block_swap DEVICE BLOCKS\n");
        return 2;
    }
    rn_status s = work(argv[1], (uint32_t)strtoul(argv[2], NULL, 10));
    if (s == RN_OK) printf("answer           right\n");
    if (s == RN_OK) return 0;
    fprintf(stderr, "block_swap: %s\n  hint: %s\n", rn_last_error()->message,
            rn_last_error()->hint);
    return 3;
}
