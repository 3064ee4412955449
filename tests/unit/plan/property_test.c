// property_test.c — what holds for any graph and any budget: a plan is valid; with more bytes it is
// never refused where it was not, and never slower; the same question has the same answer.
#include "plan_fixture.h"

#include "graph/repeat.h"

// ---- random graphs ------------------------------------------------------------------------------

static uint64_t seed; // of the graph that is written now
enum { WIDTH = 96, MOST_VALUES = 64 };
static uint64_t width = WIDTH;               // of everything
static rn_dtype matrix_dtype = RN_DTYPE_F32; // of weights of products
static rn_residency_rule rule;               // of the plans that are made
static bool momentum;                        // updates have states

typedef struct author {
    uint64_t random;
    rn_graph *g;
    rn_value pool[MOST_VALUES]; // (rows, width)
    uint32_t count, weights;
    rn_value first_weight; // tied to, now and then
} author;

// One of the last few, so that most of the graph leads to its end.
static rn_value pick(author *a) {
    uint32_t few = a->count < 4 ? a->count : 4;
    return a->pool[a->count - 1 - random_below(&a->random, few)];
}

static rn_value add_weight(author *a, rn_dtype dtype, rn_shape shape) {
    char name[32];
    snprintf(name, sizeof name, "w%u", a->weights++);
    return rn_graph_weight(a->g, name, dtype, shape);
}

static rn_value add_matrix(author *a) {
    if (a->first_weight && random_below(&a->random, 8) == 0) return a->first_weight;
    rn_value w = add_weight(a, matrix_dtype, RN_SHAPE(width, width));
    if (!a->first_weight) a->first_weight = w;
    return w;
}

static rn_value write_node(author *a) {
    rn_graph *g = a->g;
    rn_value x = pick(a);
    switch (random_below(&a->random, 9)) {
    case 0:
        return rn_op_relu(g, x);
    case 1:
        return rn_op_tanh(g, x);
    case 2:
        return rn_op_add(g, x, pick(a));
    case 3:
        return rn_op_mul(g, x, pick(a));
    case 4:
        return rn_op_rmsnorm(g, x, add_weight(a, RN_DTYPE_F32, RN_SHAPE(width)), 1e-5f);
    case 5:
        return rn_op_softmax(g, x);
    default:
        return rn_op_matmul(g, x, add_matrix(a), RN_NO_VALUE);
    }
}

static void write_body(author *a, uint64_t rows) {
    uint32_t nodes = 4 + (uint32_t)random_below(&a->random, 40);
    a->pool[a->count++] = rn_graph_input(a->g, "x", RN_DTYPE_F32, RN_SHAPE(rows, width));
    for (uint32_t i = 0; i < nodes; i++) {
        char block[32];
        snprintf(block, sizeof block, "block %u", i / 5);
        rn_graph_block(a->g, block);
        rn_value made = write_node(a);
        a->pool[a->count++] = made;
    }
}

// Some values are outputs, whoever reads them; the last one always.
static void write_inference(rn_graph *g, uint32_t unused) {
    (void)unused;
    author a = {.random = seed, .g = g};
    write_body(&a, RN_ROWS);
    rn_graph_output(g, a.pool[a.count - 1], "last");
    uint32_t other = 1 + (uint32_t)random_below(&a.random, a.count - 1);
    if (other < a.count - 1) rn_graph_output(g, a.pool[other], "other");
}

// A training step of half of the weights; with micro-batches of their sums.
static void write_training(rn_graph *g, uint32_t micro_batches) {
    author a = {.random = seed, .g = g};
    rn_value wanted[MOST_VALUES], gradients[MOST_VALUES];
    uint32_t count = 0, rows = 256 / (micro_batches ? micro_batches : 1);
    write_body(&a, rows);
    rn_value target = rn_graph_input(g, "t", RN_DTYPE_F32, RN_SHAPE(rows, width));
    rn_value loss = rn_op_mse(g, a.pool[a.count - 1], target);
    for (rn_value v = 1; v <= rn_graph_value_count(g); v++)
        if (rn_graph_value(g, v)->role == RN_ROLE_WEIGHT && v % 2 == seed % 2) wanted[count++] = v;
    assert_ok(rn_graph_gradient(g, loss, wanted, count, gradients));
    for (uint32_t i = 0; i < count; i++) {
        char name[32];
        if (gradients[i] == RN_NO_VALUE) continue;
        uint32_t block = rn_graph_value(g, wanted[i])->block;
        snprintf(name, sizeof name, "sum %u", i);
        rn_graph_set_place(g, block, RN_PHASE_BACKWARD);
        if (micro_batches > 1)
            gradients[i] = rn_op_accumulate(g,
                                            rn_graph_state(g, name, RN_DTYPE_F32,
                                                           rn_graph_value(g, wanted[i])->shape,
                                                           RN_PURPOSE_GRADIENTS),
                                            gradients[i]);
        rn_graph_set_place(g, block, RN_PHASE_UPDATE);
        snprintf(name, sizeof name, "velocity %u", i);
        rn_value velocity =
            momentum ? rn_graph_state(g, name, RN_DTYPE_F32, rn_graph_value(g, wanted[i])->shape,
                                      RN_PURPOSE_OPTIMIZER)
                     : RN_NO_VALUE;
        rn_op_sgd(
            g, wanted[i], gradients[i], velocity,
            (rn_sgd_attrs){.rate = rn_graph_scalar(g, "rate"), .momentum = momentum ? 0.9f : 0});
    }
    rn_graph_set_place(g, 0, RN_PHASE_BACKWARD);
    rn_graph_output(g, loss, "loss");
}

// ---- properties ---------------------------------------------------------------------------------

static paper_model model;
// Plans that did so: the tests must see them all.
static uint32_t streamed, chunked, recomputed, cut, file_layout, copied, uncopied, states, saved;

static void note_moves(const rn_plan *plan, const rn_recipe *recipe) {
    streamed += plan->slot_count > 0;
    chunked += plan->summary.rows < recipe->rows;
    recomputed += plan->summary.recomputed_blocks > 0;
    cut += plan->summary.micro_batches > 1;
    states += plan->summary.host_states > 0;
    saved += plan->summary.host_saved > 0;
    for (rn_value v = 1; v <= plan->value_count; v++)
        file_layout += plan->places[v].file_layout;
}

static rn_recipe random_recipe(bool training) {
    model.write = training ? write_training : write_inference;
    rn_recipe recipe = paper_recipe(&model);
    recipe.rows = training ? 0 : 24;
    recipe.workload_rows = training ? 0 : 100;
    recipe.max_micro_batches = training ? 8 : 0;
    return recipe;
}

static rn_layout panels_for_products(const rn_call *call, uint32_t input) {
    return call->op == RN_OP_MATMUL && input == 1 ? RN_LAYOUT_PANELS : RN_LAYOUT_PLAIN;
}

// A plain weight is packed as it is used.
static uint64_t product_workspace(const rn_call *call) {
    return call->inputs[1].layout == RN_LAYOUT_PLAIN ? 2 * 16 * width * 4 : 64;
}

static const rn_kernel *packing_kernels(void) {
    static rn_kernel kernels[RN_OP_COUNT];
    memcpy(kernels, paper_kernels(), sizeof kernels);
    kernels[RN_OP_MATMUL].workspace = product_workspace;
    return kernels;
}

// Rates that make computing, reading or neither the slower part; streamed weights that are packed
// or file_layout.
static rn_device_caps random_caps(uint64_t *random) {
    rn_device_caps caps = paper_caps();
    const double disks[] = {1e6, 1e8, 1e10};
    caps.disk_bytes_second = disks[random_below(random, 3)];
    if (random_below(random, 2)) {
        caps.kernels = packing_kernels();
        caps.weight_layout = panels_for_products;
        caps.file_layout_bytes = 1;
    }
    return caps;
}

// The parts of the time are the whole.
static void check_times(const rn_plan_summary *s, const rn_recipe *recipe) {
    double sum = s->prefill_seconds + (double)s->decode_steps * s->decode_seconds;
    assert_int_equal(s->decode_steps, recipe->decode_steps);
    assert_true(sum > 0.999999 * s->seconds && sum < 1.000001 * s->seconds);
    assert_int_equal(s->decode_seconds > 0, recipe->rows > 0);
    assert_true(s->decode_seconds <= s->seconds);
}

// Plans for budgets from below the floor to more than is needed.
static void check_budgets(const rn_recipe *recipe, const rn_device_caps *caps,
                          const rn_plan_options *options) {
    rn_plan *roomy, *plan;
    rn_plan_options o = *options;
    o.budget_bytes = 0;
    assert_ok(rn_plan_make_alone(recipe, caps, &o, &rule, &roomy));
    assert_true(rn_plan_is_valid(roomy));
    uint64_t low = roomy->summary.smallest_bytes, high = roomy->summary.planned_bytes;
    double seconds = roomy->summary.seconds;
    rn_plan_destroy(roomy);
    assert_true(low <= high);
    for (int i = 24; i >= 0; i--) { // downwards: slower and slower, and in the end refused
        o.budget_bytes = low + (high - low) * (uint64_t)i / 24;
        assert_ok(rn_plan_make_alone(recipe, caps, &o, &rule, &plan));
        assert_true(rn_plan_is_valid(plan));
        assert_true(plan->summary.planned_bytes <= o.budget_bytes);
        assert_int_equal(plan->summary.smallest_bytes, low);
        assert_true(plan->summary.seconds >= seconds);
        check_times(&plan->summary, recipe);
        seconds = plan->summary.seconds;
        note_moves(plan, recipe);
        rn_plan_destroy(plan);
    }
    for (uint64_t less = 1; less < low; less *= 4) {
        o.budget_bytes = low - less;
        assert_fails(RN_OVER_BUDGET, rn_plan_make_alone(recipe, caps, &o, &rule, &plan));
        assert_int_equal(rn_last_refusal()->smallest_budget_bytes, low);
    }
}

static void inference_is_never_slower_with_more_bytes(void **state) {
    (void)state;
    uint64_t random = 1;
    rn_recipe recipe = random_recipe(false);
    for (int i = 0; i < 12; i++) {
        rn_device_caps caps = random_caps(&random);
        seed = 1000 + (uint64_t)i;
        recipe.decode_steps = (uint64_t)i % 3 * 50;
        check_budgets(&recipe, &caps, &(rn_plan_options){0});
    }
    assert_true(streamed > 20 && chunked > 20 && file_layout > 20);
}

// ---- two memories -------------------------------------------------------------------------------

static rn_layout tiles_for_products(const rn_call *call, uint32_t input) {
    return call->op == RN_OP_MATMUL && input == 1 ? RN_LAYOUT_TILES : RN_LAYOUT_PLAIN;
}

static rn_device_caps random_device(uint64_t *random) {
    rn_device_caps caps = random_caps(random);
    const double links[] = {3e6, 1e8, 1e10};
    caps.own_memory = true;
    caps.device = RN_DEVICE_HOST + 1;
    caps.link_bytes_second = links[random_below(random, 3)];
    caps.run_seconds = random_below(random, 2) ? 1e-3 : 0;
    if (matrix_dtype != RN_DTYPE_F32) caps.weight_layout = tiles_for_products;
    return caps;
}

static rn_plan *plan_for_host(const rn_recipe *recipe, const rn_device_caps *caps,
                              rn_plan_options options, uint64_t host_bytes) {
    rn_plan *plan;
    options.host_budget_bytes = host_bytes;
    assert_ok(rn_plan_make_alone(recipe, caps, &options, &rule, &plan));
    assert_true(rn_plan_is_valid(plan));
    assert_true(plan->summary.host_bytes <= host_bytes);
    assert_true(plan->summary.planned_bytes <= options.budget_bytes);
    return plan;
}

// With less and less on the host, at one budget of the device: slower and slower, and in the end
// refused, with the smallest that is not.
static void check_host_budgets(const rn_recipe *recipe, const rn_device_caps *caps,
                               rn_plan_options options) {
    rn_plan *plan = plan_for_host(recipe, caps, options, RN_NO_LIMIT);
    uint64_t high = plan->summary.host_bytes;
    double seconds = plan->summary.seconds;
    rn_plan_destroy(plan);
    options.host_budget_bytes = 1;
    assert_fails(RN_OVER_BUDGET, rn_plan_make_alone(recipe, caps, &options, &rule, &plan));
    assert_int_equal(rn_last_refusal()->device, RN_DEVICE_HOST);
    uint64_t low = rn_last_refusal()->smallest_budget_bytes;
    options.host_budget_bytes = low - 1;
    assert_fails(RN_OVER_BUDGET, rn_plan_make_alone(recipe, caps, &options, &rule, &plan));
    rn_plan_options any = options;
    any.budget_bytes = RN_NO_LIMIT; // the leanest for the host may be larger on the device
    rn_plan_destroy(plan_for_host(recipe, caps, any, low));
    for (int i = 8; i >= 0; i--) {
        options.host_budget_bytes = low + (high - low) * (uint64_t)i / 8;
        rn_status s = rn_plan_make_alone(recipe, caps, &options, &rule, &plan);
        if (s == RN_OVER_BUDGET) return;
        assert_ok(s);
        assert_true(plan->summary.host_bytes <= options.host_budget_bytes);
        assert_true(plan->summary.seconds >= seconds);
        seconds = plan->summary.seconds;
        copied += plan->from_host;
        uncopied += plan->slot_count > 0 && !plan->from_host;
        rn_plan_destroy(plan);
    }
}

static void two_memories_are_never_slower_with_more_of_either(void **state) {
    (void)state;
    uint64_t random = 3;
    rn_recipe recipe = random_recipe(false);
    for (int i = 0; i < 12; i++) {
        seed = 5000 + (uint64_t)i;
        matrix_dtype = i % 2 ? RN_DTYPE_INT4 : RN_DTYPE_F32;
        width = i % 2 ? 352 : WIDTH; // int4 in groups of 32: tiles are smaller than the file
        recipe.decode_steps = (uint64_t)i % 3 * 50;
        rn_device_caps caps = random_device(&random);
        rn_plan_options options = {0};
        rule = (rn_residency_rule){.suffix = i % 4 > 1, .host_bytes_second = i % 8 > 5 ? 1e8 : 0};
        rn_plan *roomy = plan_for_host(&recipe, &caps,
                                       (rn_plan_options){.budget_bytes = RN_NO_LIMIT}, RN_NO_LIMIT);
        uint64_t low = roomy->summary.smallest_bytes, high = roomy->summary.planned_bytes;
        uint64_t host = roomy->summary.host_bytes;
        rn_plan_destroy(roomy);
        for (int part = 0; part <= 4; part++) {
            options.budget_bytes = low + (high - low) * (uint64_t)part / 4;
            check_host_budgets(&recipe, &caps, options);
        }
        options.host_budget_bytes = host + (high - low) / 2;
        check_budgets(&recipe, &caps, &options);
    }
    rule = (rn_residency_rule){0};
    matrix_dtype = RN_DTYPE_F32;
    width = WIDTH;
    assert_true(copied > 20 && uncopied > 20);
}

static void training_is_never_slower_with_more_bytes(void **state) {
    (void)state;
    uint64_t random = 2;
    rn_recipe recipe = random_recipe(true);
    for (int i = 0; i < 6; i++) {
        rn_device_caps caps = random_caps(&random);
        seed = 2000 + (uint64_t)i;
        check_budgets(&recipe, &caps, &(rn_plan_options){.exact = i % 3 == 2});
    }
    assert_true(recomputed > 10 && cut > 10);
}

// Where the host has another memory, states and saved values may be there: with more of either
// memory, a step is never slower.
static void training_in_two_memories_is_never_slower_with_more_of_either(void **state) {
    (void)state;
    uint64_t random = 4;
    rn_recipe recipe = random_recipe(true);
    momentum = true;
    recipe.weights_in_memory = true;
    states = saved = 0;
    for (int i = 0; i < 3; i++) {
        seed = 6000 + (uint64_t)i;
        rn_device_caps caps = random_device(&random);
        rn_plan_options options = {.exact = i % 2};
        rn_plan *roomy = plan_for_host(&recipe, &caps,
                                       (rn_plan_options){.budget_bytes = RN_NO_LIMIT}, RN_NO_LIMIT);
        uint64_t low = roomy->summary.smallest_bytes, high = roomy->summary.planned_bytes;
        assert_int_equal(roomy->offload_count, 0);
        rn_plan_destroy(roomy);
        options.budget_bytes = low + (high - low) / 3;
        options.exact = false;
        check_host_budgets(&recipe, &caps, options);
        options.exact = i % 2;
        check_budgets(&recipe, &caps, &options);
    }
    momentum = false;
    assert_true(states > 10 && saved > 10);
}

// ---- what is cheap ------------------------------------------------------------------------------

static uint64_t peak_of(rn_graph *graph) {
    worked w;
    uint64_t peak;
    work_out(&w, graph, 0);
    assert_ok(rn_binding_peak(&w.memory, &w.binding, NULL, 0, false, w.order.count, &peak));
    worked_free(&w);
    return peak;
}

// The graph is destroyed.
static rn_graph *repeat_all(rn_graph *graph) {
    bool recompute[MOST_VALUES];
    rn_graph *again;
    memset(recompute, true, sizeof recompute);
    assert_true(rn_graph_block_count(graph) <= MOST_VALUES);
    assert_ok(rn_graph_recompute(graph, recompute, &again));
    rn_graph_destroy(graph);
    return again;
}

// Whether it needs less. The graph is destroyed.
static bool expect_no_more_bytes(rn_graph *graph) {
    rn_graph *cheap;
    assert_ok(rn_graph_recompute_cheap(graph, &cheap));
    uint64_t before = peak_of(graph), after = peak_of(cheap);
    assert_true(after <= before);
    return after < before;
}

static void what_is_made_again_because_it_is_cheap_never_needs_more_bytes(void **state) {
    (void)state;
    uint32_t fewer = 0, fewer_with_blocks = 0;
    for (int i = 0; i < 60; i++) {
        seed = 4000 + (uint64_t)i;
        fewer += expect_no_more_bytes(paper_graph(write_training));
        fewer_with_blocks += expect_no_more_bytes(repeat_all(paper_graph(write_training)));
    }
    assert_true(fewer > 10 && fewer_with_blocks > 5);
}

static uint32_t count_again(const rn_graph *graph) {
    uint32_t count = 0;
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++)
        count += rn_graph_node(graph, n)->recomputes != RN_NO_NODE;
    return count;
}

static void what_is_cheap_is_kept_where_the_peak_stays_as_it_is(void **state) {
    (void)state;
    rn_recipe recipe = random_recipe(true);
    rn_device_caps caps = paper_caps();
    uint32_t kept = 0, made_again = 0;
    for (int i = 0; i < 40; i++) {
        rn_graph *cheap, *plain;
        rn_plan *plan;
        seed = 2000 + (uint64_t)i;
        plain = paper_graph(write_training);
        assert_ok(rn_graph_recompute_cheap(plain, &cheap));
        bool possible = count_again(cheap) > 0;
        rn_graph_destroy(cheap);
        bool lower = expect_no_more_bytes(plain);
        assert_ok(
            rn_plan_make_alone(&recipe, &caps, &(rn_plan_options){.exact = true}, &rule, &plan));
        if (!lower) assert_int_equal(count_again(plan->graph), 0);
        kept += possible && !lower;
        made_again += count_again(plan->graph) > 0;
        rn_plan_destroy(plan);
    }
    assert_true(kept > 0 && made_again > 10);
}

// ---- purity -------------------------------------------------------------------------------------

static void expect_same(const rn_plan *a, const rn_plan *b) {
    assert_memory_equal(&a->summary, &b->summary, sizeof a->summary);
    assert_int_equal(a->buffer_count, b->buffer_count);
    assert_int_equal(a->load_count, b->load_count);
    assert_int_equal(a->reason_count, b->reason_count);
    assert_memory_equal(a->buffers, b->buffers, a->buffer_count * sizeof *a->buffers);
    assert_memory_equal(a->steps, b->steps, a->step_count * sizeof *a->steps);
    assert_memory_equal(a->places, b->places, (a->value_count + 1) * sizeof *a->places);
    assert_memory_equal(a->groups, b->groups, a->group_count * sizeof *a->groups);
    if (a->load_count) assert_memory_equal(a->loads, b->loads, a->load_count * sizeof *a->loads);
    for (uint32_t i = 0; i < a->reason_count; i++)
        assert_string_equal(a->reasons[i].text, b->reasons[i].text);
}

static void the_same_question_has_the_same_answer(void **state) {
    (void)state;
    rn_device_caps caps = paper_caps();
    for (int i = 0; i < 8; i++) {
        rn_recipe recipe = random_recipe(i % 2);
        rn_plan *first, *second;
        rn_plan_options options = {0};
        seed = 3000 + (uint64_t)i;
        for (int tight = 0; tight < 2; tight++) {
            assert_ok(rn_plan_make_alone(&recipe, &caps, &options, &rule, &first));
            assert_ok(rn_plan_make_alone(&recipe, &caps, &options, &rule, &second));
            expect_same(first, second);
            options.budget_bytes = first->summary.smallest_bytes;
            rn_plan_destroy(first);
            rn_plan_destroy(second);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inference_is_never_slower_with_more_bytes),
        cmocka_unit_test(two_memories_are_never_slower_with_more_of_either),
        cmocka_unit_test(training_is_never_slower_with_more_bytes),
        cmocka_unit_test(training_in_two_memories_is_never_slower_with_more_of_either),
        cmocka_unit_test(what_is_made_again_because_it_is_cheap_never_needs_more_bytes),
        cmocka_unit_test(what_is_cheap_is_kept_where_the_peak_stays_as_it_is),
        cmocka_unit_test(the_same_question_has_the_same_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
