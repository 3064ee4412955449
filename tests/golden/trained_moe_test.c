// trained_moe_test.c — a small mixture of experts that learnt to tell stories, against PyTorch:
// logits behind every character, the likeliest text, from either container and as a packed file.
// scripts/reference/trained_moe.py trains it.
#include "text_run.h"

#include <ration/convert.h>

#define FOLDER "tests/golden/text/trained_moe"
enum { BEGINNING = 20, MADE = 200, COUNT = BEGINNING + MADE, VOCAB = 128 };

static int32_t tokens[COUNT];
static float expected[COUNT * VOCAB], logits[COUNT * VOCAB];

static void read_golden(void) {
    rn_checkpoint *c;
    assert_ok(rn_checkpoint_open(FOLDER "/golden.safetensors", &c));
    assert_ok(rn_checkpoint_load(c, rn_checkpoint_find(c, "tokens"), RN_DTYPE_I32, tokens,
                                 sizeof tokens));
    assert_ok(rn_checkpoint_load(c, rn_checkpoint_find(c, "logits"), RN_DTYPE_F32, expected,
                                 sizeof expected));
    rn_checkpoint_close(c);
}

static const rn_text_options text = {.context = 256, .page_tokens = 16, .rows = 32};

// All at once, and one by one with the likeliest after each.
static void check(const char *path) {
    text_run *run = text_run_open(path, NULL, &text);
    text_run_logits(run, tokens, COUNT, logits);
    text_run_close(run);
    double difference = text_run_difference(logits, expected, COUNT * VOCAB);
    print_message("%s: logits within %.0e\n", path, difference);
    if (!(difference <= 1e-4)) fail_msg("%s: off by %g", path, difference);
    run = text_run_open(path, NULL, &text);
    text_run_logits(run, tokens, BEGINNING, logits);
    int32_t next = text_run_best(logits + (BEGINNING - 1) * VOCAB, VOCAB);
    for (int i = BEGINNING; i < COUNT; i++) {
        if (next != tokens[i]) fail_msg("%s: character %d is %d, not %d", path, i, next, tokens[i]);
        text_run_logits(run, &next, 1, logits);
        next = text_run_best(logits, VOCAB);
    }
    text_run_close(run);
}

// ---- choices ------------------------------------------------------------------------------------

enum { LAYERS = 2, CHOSEN = 2 };

// The model's graph with what its routers choose as outputs.
static rn_status build_showing_choices(void *self, const rn_recipe_options *options,
                                       rn_graph **out) {
    const rn_recipe *inner = self;
    uint32_t layer = 0;
    RN_TRY(inner->build(inner->self, options, out));
    for (uint32_t i = 0; i < rn_graph_node_count(*out); i++) {
        const rn_node *node = rn_graph_node(*out, i);
        char name[16];
        if (node->op != RN_OP_ROUTE) continue;
        snprintf(name, sizeof name, "chosen.%u", layer++);
        (void)rn_graph_output(*out, node->outputs[0], name);
    }
    return RN_OK;
}

static rn_recipe inner_recipe;

static rn_status make_showing_choices(const void *self, const rn_text_options *options,
                                      rn_recipe *out) {
    const rn_model *model = self;
    RN_TRY(rn_model_make_recipe(model, options, &inner_recipe));
    *out = inner_recipe;
    out->self = &inner_recipe;
    out->build = build_showing_choices;
    out->destroy = NULL;
    return RN_OK;
}

static void every_token_goes_to_pytorchs_experts(void **state) {
    (void)state;
    static int32_t must[LAYERS * COUNT * CHOSEN], is[COUNT * CHOSEN];
    rn_model *model;
    rn_checkpoint *c;
    rn_model_options quiet = {.without_tokenizer = true};
    rn_text_options whole = text;
    read_golden();
    assert_ok(rn_checkpoint_open(FOLDER "/golden.safetensors", &c));
    assert_ok(
        rn_checkpoint_load(c, rn_checkpoint_find(c, "experts"), RN_DTYPE_I32, must, sizeof must));
    rn_checkpoint_close(c);
    assert_ok(rn_model_open(FOLDER, &quiet, &model));
    rn_text_maker maker = {.self = model,
                           .make = make_showing_choices,
                           .weights = rn_model_weights(model),
                           .vocab_size = VOCAB,
                           .context = whole.context};
    whole.rows = COUNT;
    text_run *run = text_run_open_made(NULL, &maker, &whole, 0);
    text_run_logits(run, tokens, COUNT, logits);
    for (int layer = 0; layer < LAYERS; layer++) {
        char name[16];
        snprintf(name, sizeof name, "chosen.%d", layer);
        assert_ok(rn_session_get(run->session, name, is, sizeof is));
        for (int i = 0; i < COUNT; i++) {
            const int32_t *a = is + CHOSEN * i, *b = must + CHOSEN * (layer * COUNT + i);
            if ((a[0] != b[0] || a[1] != b[1]) && (a[0] != b[1] || a[1] != b[0]))
                fail_msg("layer %d, token %d: %d and %d, not %d and %d", layer, i, a[0], a[1], b[0],
                         b[1]);
        }
    }
    text_run_close(run);
    rn_recipe_destroy(&inner_recipe);
    rn_model_close(model);
}

static void it_tells_what_pytorch_tells(void **state) {
    (void)state;
    char file[300], packed[300];
    rn_convert_result result;
    rn_convert_options plain = {0}, records = {.packed = true};
    read_golden();
    snprintf(file, sizeof file, "%s/trained.gguf", test_folder());
    snprintf(packed, sizeof packed, "%s/packed.gguf", test_folder());
    check(FOLDER);
    assert_ok(rn_convert(FOLDER, file, &plain, &result));
    check(file);
    assert_ok(rn_convert(FOLDER, packed, &records, &result));
    check(packed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_goes_to_pytorchs_experts),
        cmocka_unit_test(it_tells_what_pytorch_tells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
