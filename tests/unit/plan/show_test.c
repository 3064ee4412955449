// show_test.c — what a plan looks like: in words, as JSON, as a picture, as a page; and what
// becomes of it when nobody listens.
#include "plan_fixture.h"

#include "base/buffer.h"
#include "json_check.h"
#include "plan/plan_show.h"

#include <locale.h>

// Names as nobody should choose them.
#define HOSTILE "a<b>&\"c\"\x1b[31m\xff"
#define ESCAPED "a&lt;b&gt;&amp;&quot;c&quot;?[31m?"

static void write_layers(rn_graph *g, uint32_t unused) {
    (void)unused;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, 64));
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer %d", i);
        rn_graph_block(g, i == 2 ? HOSTILE : name);
        snprintf(name, sizeof name, "layers.%d.weight", i);
        rn_value w = rn_graph_weight(g, i == 2 ? HOSTILE : name, RN_DTYPE_F32, RN_SHAPE(64, 64));
        x = rn_op_relu(g, rn_op_matmul(g, x, w, RN_NO_VALUE));
    }
    rn_graph_output(g, x, "y");
}

static void write_training(rn_graph *g, uint32_t unused) {
    (void)unused;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(32, 64)), gradient = 0;
    rn_value w = rn_graph_weight(g, "w", RN_DTYPE_F32, RN_SHAPE(64, 64));
    rn_value loss = rn_op_mse(g, rn_op_matmul(g, x, w, RN_NO_VALUE), x);
    rn_graph_output(g, loss, "loss");
    assert_ok(rn_graph_gradient(g, loss, &w, 1, &gradient));
    rn_graph_output(g, gradient, "gradient");
}

static rn_plan *plan_of(write_graph write, uint64_t rows, rn_plan_options options) {
    paper_model model = {write};
    rn_recipe recipe = paper_recipe(&model);
    recipe.rows = rows;
    snprintf(recipe.name, sizeof recipe.name, "tom & jerry");
    rn_device_caps caps = paper_caps();
    rn_plan *plan;
    assert_ok(rn_plan_make(&recipe, &caps, &options, &plan));
    return plan;
}

// Four layers of 16 KiB; the tight one has room for about two of them.
static rn_plan *roomy_plan(void) {
    return plan_of(write_layers, 100, (rn_plan_options){0});
}
static rn_plan *tight_plan(void) {
    rn_plan *roomy = roomy_plan();
    rn_plan_options options = {.budget_bytes = roomy->summary.smallest_bytes + 1000,
                               .reserved_bytes = 1000};
    rn_plan_destroy(roomy);
    rn_plan *plan = plan_of(write_layers, 100, options);
    assert_true(plan->summary.streamed_bytes > 0);
    return plan;
}

typedef rn_status (*show)(const rn_plan *plan, rn_sink sink);

static rn_status show_json(const rn_plan *plan, rn_sink sink) {
    rn_json json;
    rn_json_begin(&json, sink, false);
    rn_plan_write_json(plan, &json, NULL);
    return rn_json_finish(&json);
}

// What is written, terminated. The caller frees the buffer.
static rn_buffer text_of(show write, const rn_plan *plan) {
    rn_buffer buffer;
    rn_buffer_init(&buffer, RN_HOST_OTHER, 1 << 20);
    assert_ok(write(plan, rn_buffer_sink(&buffer)));
    assert_ok(rn_buffer_append(&buffer, "", 1));
    return buffer;
}

static void assert_says(const rn_buffer *text, const char *part) {
    if (!strstr(text->data, part)) fail_msg("'%s' is not in: %s", part, text->data);
}

static uint32_t count(const char *text, const char *part) {
    uint32_t found = 0;
    for (; (text = strstr(text, part)); text++)
        found++;
    return found;
}

// ---- words --------------------------------------------------------------------------------------

static void words_say_what_is_held_and_why(void **state) {
    (void)state;
    rn_plan *plan = roomy_plan();
    rn_buffer text = text_of(rn_plan_print, plan);
    assert_says(&text, "tom & jerry on paper, 2 threads, 100 rows a run\n");
    assert_says(&text, "planned ");
    assert_says(&text, "  staging       4.00 MiB  through which weights are read\n");
    assert_says(&text, "read a run           0 B  of 64.0 KiB of weights, from disk\n");
    assert_says(&text, "predicted, for 100 rows: 1 run\n");
    assert_says(&text, "  weights       64.0 KiB");
    assert_says(&text, "nothing is read in a run");
    assert_says(&text, "  weights       16.0 KiB  layers.0.weight\n");
    assert_null(strstr(text.data, " (read in each run)"));
    rn_buffer_free(&text);
    rn_plan_destroy(plan);
}

static void words_of_a_tight_plan_name_its_share_of_the_budget(void **state) {
    (void)state;
    char part[128];
    rn_plan *plan = tight_plan();
    rn_buffer text = text_of(rn_plan_print, plan);
    const char *least = rn_size_format(plan->summary.smallest_bytes).text;
    snprintf(part, sizeof part, "of %s; the least that works is %s\n", least, least);
    assert_says(&text, part);
    assert_says(&text, " (read in each run)\n");
    assert_says(&text, "are read in each run, through");
    rn_buffer_free(&text);
    rn_plan_destroy(plan);
}

static void shares_by_purpose_add_up(void **state) {
    (void)state;
    rn_plan *plan = tight_plan();
    rn_buffer text = text_of(rn_plan_print, plan);
    double sum = 0;
    for (const char *at = text.data; (at = strstr(at, " %")); at++) {
        const char *digits = at;
        while (digits[-1] != ' ')
            digits--;
        sum += strtod(digits, NULL);
    }
    assert_true(sum > 99.5 && sum < 100.5);
    rn_buffer_free(&text);
    rn_plan_destroy(plan);
}

static void a_training_step_is_one_run_without_rows(void **state) {
    (void)state;
    rn_plan *plan = plan_of(write_training, 0, (rn_plan_options){0});
    rn_buffer text = text_of(rn_plan_print, plan);
    assert_says(&text, "tom & jerry on paper, 2 threads\n");
    assert_says(&text, "predicted, for one run\n");
    rn_buffer_free(&text);
    text = text_of(rn_plan_svg, plan);
    assert_says(&text, "backward, steps ");
    rn_buffer_free(&text);
    rn_plan_destroy(plan);
}

// Four layers, trained with momentum, on a device with its own memory and too little of it.
static void write_updates(rn_graph *g, uint32_t unused) {
    (void)unused;
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(64, 64)), y = x;
    rn_value w[4], gradients[4];
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer %d", i);
        rn_graph_block(g, name);
        w[i] = rn_graph_weight(g, name, RN_DTYPE_F32, RN_SHAPE(64, 64));
        y = rn_op_tanh(g, rn_op_matmul(g, y, w[i], RN_NO_VALUE));
    }
    rn_value loss = rn_op_mse(g, y, x);
    assert_ok(rn_graph_gradient(g, loss, w, 4, gradients));
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "velocity %d", i);
        rn_graph_set_place(g, rn_graph_value(g, w[i])->block, RN_PHASE_UPDATE);
        rn_op_sgd(g, w[i], gradients[i],
                  rn_graph_state(g, name, RN_DTYPE_F32, RN_SHAPE(64, 64), RN_PURPOSE_OPTIMIZER),
                  (rn_sgd_attrs){.rate = rn_graph_scalar(g, "rate"), .momentum = 0.9f});
    }
    rn_graph_output(g, loss, "loss");
}

static void what_is_on_the_host_for_a_while_is_said(void **state) {
    (void)state;
    paper_model model = {write_updates};
    rn_recipe recipe = paper_recipe(&model);
    rn_device_caps caps = paper_caps();
    rn_plan *plan;
    caps.own_memory = true;
    caps.link_bytes_second = 1e10;
    assert_ok(rn_plan_make(&recipe, &caps, &(rn_plan_options){0}, &plan));
    rn_plan_options options = {.budget_bytes = plan->summary.smallest_bytes};
    rn_plan_destroy(plan);
    assert_ok(rn_plan_make(&recipe, &caps, &options, &plan));
    assert_true(plan->summary.host_states == 4 && plan->summary.host_saved > 0);
    rn_buffer text = text_of(rn_plan_print, plan);
    assert_says(&text, "64.0 KiB states, ");
    assert_says(&text, "4 of the optimiser's states stay on the host: each step brings 64.0 KiB");
    assert_says(&text, "saved for the backward pass on the host: ");
    rn_buffer_free(&text);
    text = text_of(show_json, plan);
    assert_true(test_json_valid(text.data, text.bytes - 1));
    assert_int_equal(65536, test_json_u64(text.data, text.bytes - 1, "host_state_bytes"));
    assert_int_equal(plan->summary.host_saved,
                     test_json_u64(text.data, text.bytes - 1, "host_saved"));
    assert_int_equal(count(text.data, "\"kind\":\"offload\""), plan->offload_count);
    assert_int_equal(count(text.data, "\"kind\":\"prefetch\""), plan->offload_count);
    assert_int_equal(count(text.data, "\"kind\":\"wait\""), 2 * plan->offload_count);
    rn_buffer_free(&text);
    rn_plan_destroy(plan);
}

// ---- JSON ---------------------------------------------------------------------------------------

static uint64_t number(const rn_buffer *text, const char *path) {
    return test_json_u64(text->data, text->bytes - 1, path);
}

static void json_has_the_summary_and_every_buffer_and_step(void **state) {
    (void)state;
    rn_plan *plan = tight_plan();
    const rn_plan_summary *s = &plan->summary;
    char path[64], value[256];
    rn_buffer text = text_of(show_json, plan);
    assert_true(test_json_valid(text.data, text.bytes - 1));
    assert_int_equal(s->planned_bytes, number(&text, "planned_bytes"));
    assert_int_equal(s->arena_bytes, number(&text, "arena_bytes"));
    assert_int_equal(s->smallest_bytes, number(&text, "smallest_bytes"));
    assert_int_equal(s->smallest_bytes + 1000, number(&text, "budget_bytes"));
    assert_int_equal(1000, number(&text, "reserved_bytes"));
    assert_int_equal(s->streamed_bytes, number(&text, "streamed_bytes"));
    assert_int_equal(100, number(&text, "workload_rows"));
    assert_says(&text, "\"phases\":[{\"name\":\"prompt\",\"rows\":");
    assert_int_equal(100000000, number(&text, "rates/disk_bytes_second"));
    uint64_t purposes = 0;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
        snprintf(path, sizeof path, "purposes/%s", rn_purpose_name((rn_purpose)p));
        if (s->purpose_bytes[p]) purposes += number(&text, path);
    }
    assert_int_equal(s->planned_bytes, purposes);
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        snprintf(path, sizeof path, "buffers/%u/offset", i);
        assert_int_equal(plan->buffers[i].offset, number(&text, path));
    }
    for (uint32_t i = 0; i < plan->step_count; i++) {
        snprintf(path, sizeof path, "steps/%u/live_bytes", i);
        assert_int_equal(plan->steps[i].live_bytes, number(&text, path));
        snprintf(path, sizeof path, "steps/%u/kind", i);
        assert_true(test_json_get(text.data, text.bytes - 1, path, value, sizeof value));
        assert_string_equal(rn_plan_step_name(plan, &plan->steps[i]), value);
    }
    snprintf(path, sizeof path, "steps/%u", plan->step_count);
    assert_false(test_json_get(text.data, text.bytes - 1, path, value, sizeof value));
    rn_buffer_free(&text);
    rn_plan_destroy(plan);
}

static void json_without_a_budget_names_none(void **state) {
    (void)state;
    char value[64];
    rn_plan *plan = roomy_plan();
    rn_buffer text = text_of(show_json, plan);
    assert_false(test_json_get(text.data, text.bytes - 1, "budget_bytes", value, sizeof value));
    rn_buffer_free(&text);
    rn_plan_destroy(plan);
}

// ---- pictures -----------------------------------------------------------------------------------

static void a_picture_has_a_rectangle_for_every_buffer(void **state) {
    (void)state;
    rn_plan *plan = tight_plan();
    uint32_t drawn = 0;
    for (uint32_t i = 0; i < plan->buffer_count; i++)
        drawn += plan->buffers[i].bytes > 0;
    rn_buffer text = text_of(rn_plan_svg, plan);
    const char *buffers = strstr(text.data, "<g class=\"buffers\">"),
               *end = strstr(buffers, "</g>");
    assert_non_null(end);
    text.data[end - text.data] = 0;
    assert_int_equal(drawn, count(buffers, "<rect "));
    assert_int_equal(drawn, count(buffers, "</title></rect>"));
    rn_buffer_free(&text);
    rn_plan_destroy(plan);
}

static void a_picture_names_model_blocks_purposes_and_sizes(void **state) {
    (void)state;
    rn_plan *plan = tight_plan();
    rn_buffer text = text_of(rn_plan_svg, plan);
    assert_int_equal(0, strncmp(text.data, "<svg xmlns=", 11));
    assert_string_equal("</svg>\n", text.data + text.bytes - 1 - 7);
    assert_says(&text, ">tom &amp; jerry on paper: arena of ");
    assert_says(&text, ">layer 0</text>");
    assert_says(&text, ">activations</text>");
    assert_says(&text, ">weights read in each run</text>");
    assert_says(&text, ">0 B</text>");
    assert_says(&text, ">address in the arena</text>");
    rn_buffer_free(&text);
    rn_plan_destroy(plan);
}

static void names_are_escaped_in_pictures_and_pages(void **state) {
    (void)state;
    static const show shows[] = {rn_plan_svg, rn_plan_html};
    rn_plan *plan = roomy_plan();
    for (int i = 0; i < 2; i++) {
        rn_buffer text = text_of(shows[i], plan);
        assert_says(&text, ESCAPED);
        assert_null(strstr(text.data, "a<b"));
        assert_null(strchr(text.data, '\x1b'));
        assert_null(strchr(text.data, '\xff'));
        rn_buffer_free(&text);
    }
    rn_plan_destroy(plan);
}

// Whatever the program around the library has set: 12,5 is two numbers in a picture.
static void numbers_in_pictures_have_points(void **state) {
    (void)state;
    test_write_decimal_commas();
    rn_plan *plan = tight_plan();
    rn_buffer text = text_of(rn_plan_svg, plan);
    setlocale(LC_NUMERIC, "C");
    for (const char *at = text.data; (at = strstr(at, "=\"")); at++)
        for (const char *c = at + 2; *c != '"'; c++)
            assert_int_not_equal(',', *c);
    rn_buffer_free(&text);
    rn_plan_destroy(plan);
}

static void a_page_stands_alone(void **state) {
    (void)state;
    rn_plan *plan = tight_plan();
    rn_buffer text = text_of(rn_plan_html, plan);
    assert_int_equal(0, strncmp(text.data, "<!doctype html>", 15));
    assert_says(&text, "<title>ration plan: tom &amp; jerry</title>");
    assert_says(&text, "<svg xmlns=");
    assert_says(&text, "the least that works is"); // the words, too
    assert_says(&text, "</script></body></html>\n");
    assert_null(strstr(text.data, " src="));
    assert_null(strstr(text.data, "href"));
    assert_int_equal(1, count(text.data, "http")); // the name of SVG, which nobody fetches
    rn_buffer_free(&text);
    rn_plan_destroy(plan);
}

static void an_empty_arena_cannot_be_drawn(void **state) {
    (void)state;
    rn_plan *plan = roomy_plan();
    plan->summary.arena_bytes = 0;
    rn_buffer buffer;
    rn_buffer_init(&buffer, RN_HOST_OTHER, 1 << 20);
    assert_fails(RN_INVALID, rn_plan_svg(plan, rn_buffer_sink(&buffer)));
    assert_int_equal(0, buffer.bytes);
    rn_buffer_free(&buffer);
    rn_plan_destroy(plan);
}

// ---- refusals -----------------------------------------------------------------------------------

static void a_refusal_counts_what_is_held_beside_the_plan(void **state) {
    (void)state;
    rn_plan *plan = roomy_plan();
    uint64_t smallest = plan->summary.smallest_bytes, beside = 1 << 20;
    rn_plan_destroy(plan);
    paper_model model = {write_layers};
    rn_recipe recipe = paper_recipe(&model);
    recipe.rows = 100;
    rn_device_caps caps = paper_caps();
    rn_plan_options options = {.budget_bytes = smallest + beside - 1, .reserved_bytes = beside};
    assert_fails(RN_OVER_BUDGET, rn_plan_make(&recipe, &caps, &options, &plan));
    const rn_refusal *r = rn_last_refusal();
    assert_int_equal(smallest + beside, r->smallest_budget_bytes);
    assert_int_equal(smallest + beside - 1, r->budget_bytes);
    assert_int_equal(smallest, r->requested_bytes);
    assert_int_equal(smallest - 1, r->free_bytes);
    bool held = false;
    for (size_t i = 0; i < r->holder_count; i++)
        held |= r->holders[i].purpose == RN_PURPOSE_UNACCOUNTED && r->holders[i].bytes == beside;
    assert_true(held);
    assert_non_null(strstr(rn_last_error()->message, "beside it 1.00 MiB are held"));
    options.budget_bytes = r->smallest_budget_bytes;
    assert_ok(rn_plan_make(&recipe, &caps, &options, &plan));
    rn_plan_destroy(plan);
    options =
        (rn_plan_options){.budget_bytes = 1, .reserved_bytes = UINT64_MAX - 1}; // no sum wraps
    assert_fails(RN_OVER_BUDGET, rn_plan_make(&recipe, &caps, &options, &plan));
    assert_int_equal(0, rn_last_refusal()->free_bytes);
    assert_int_equal(RN_NO_LIMIT, rn_last_refusal()->smallest_budget_bytes);
}

// ---- nobody listens -----------------------------------------------------------------------------

typedef struct deaf {
    uint64_t left; // writes that still work
} deaf;

static rn_status write_deaf(void *self, const char *text, size_t bytes) {
    (void)text;
    (void)bytes;
    return ((deaf *)self)->left-- > 0 ? RN_OK : rn_fail(RN_IO, "nobody listens");
}

static void every_failing_write_is_told(void **state) {
    (void)state;
    static const show shows[] = {rn_plan_print, show_json, rn_plan_svg, rn_plan_html};
    rn_plan *plan = tight_plan();
    for (int i = 0; i < 4; i++) {
        rn_status s = RN_IO;
        for (uint64_t n = 0; s != RN_OK; n++) {
            deaf ear = {n};
            s = shows[i](plan, (rn_sink){&ear, write_deaf});
            if (s != RN_OK) assert_int_equal(RN_IO, s);
            if (s != RN_OK) assert_string_equal("nobody listens", rn_last_error()->message);
            if (s == RN_OK) assert_true(n > 10);
        }
    }
    rn_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_say_what_is_held_and_why),
        cmocka_unit_test(words_of_a_tight_plan_name_its_share_of_the_budget),
        cmocka_unit_test(shares_by_purpose_add_up),
        cmocka_unit_test(a_training_step_is_one_run_without_rows),
        cmocka_unit_test(what_is_on_the_host_for_a_while_is_said),
        cmocka_unit_test(json_has_the_summary_and_every_buffer_and_step),
        cmocka_unit_test(json_without_a_budget_names_none),
        cmocka_unit_test(a_picture_has_a_rectangle_for_every_buffer),
        cmocka_unit_test(a_picture_names_model_blocks_purposes_and_sizes),
        cmocka_unit_test(names_are_escaped_in_pictures_and_pages),
        cmocka_unit_test(numbers_in_pictures_have_points),
        cmocka_unit_test(a_page_stands_alone),
        cmocka_unit_test(an_empty_arena_cannot_be_drawn),
        cmocka_unit_test(a_refusal_counts_what_is_held_beside_the_plan),
        cmocka_unit_test(every_failing_write_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
