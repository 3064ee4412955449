// train_recipe.c — training steps as recipes: of any forward pass, and of builtin models by name.
#include "train/train_recipe.h"

#include "base/str.h"
#include "graph/activations.h"
#include "memory/account.h"
#include "train/optimizer.h"

#include <stdio.h>
#include <string.h>

#define FROM RN_HOST_OTHER

typedef struct held {
    rn_model_writer write;
    rn_train_options options; // its strings: the optimiser's row's, and behind the configuration
    size_t bytes;             // of this block
    uint32_t batch;
    rn_dtype activations;
    bool evaluates; // there is no backward pass
    _Alignas(16) unsigned char config[];
} held;

static rn_status check_cut(const held *h, uint32_t micro_batches, bool exact) {
    if (exact && micro_batches != h->batch)
        return rn_fail(RN_INVALID, "exact sums of a batch of %u are over %u samples, not %u",
                       h->batch, h->batch, micro_batches);
    if (h->batch % micro_batches == 0) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "a batch of %u cannot be cut into %u equal micro-batches",
                           h->batch, micro_batches),
                   "use a number that divides the batch");
}

// Logits that are watched are made after all.
static rn_value write_loss(const held *h, rn_graph *graph, rn_forward_values *values,
                           uint32_t micro_batches) {
    if (values->loss != RN_NO_VALUE)
        return micro_batches > 1 ? rn_op_scale(graph, values->loss, 1.0f / (float)micro_batches, 0)
                                 : values->loss;
    if (values->hidden != RN_NO_VALUE && !h->options.watch)
        return rn_graph_linear_loss(graph, values->hidden, values->head, values->targets);
    if (values->hidden != RN_NO_VALUE)
        values->logits = rn_op_matmul_as(graph, values->hidden, values->head, RN_NO_VALUE,
                                         (rn_matmul_attrs){.unquantised_activations = true});
    return rn_graph_loss(graph, "cross_entropy", values->logits, values->targets, micro_batches);
}

static rn_status write(const held *h, uint32_t micro_batches, bool exact, rn_graph *graph) {
    rn_forward_values values = {0};
    rn_train_options options = h->options;
    options.micro_batches = micro_batches;
    options.exact = exact;
    options.share.exact &= exact || h->batch == 1; // planners look at graphs of whole batches, too
    RN_TRY(h->write(graph, h->config, h->batch / micro_batches, &values));
    rn_value loss = write_loss(h, graph, &values, micro_batches);
    if (h->evaluates) {
        rn_graph_output_loss(graph, loss, &options, RN_NO_VALUE);
        return rn_graph_finish(graph);
    }
    if (options.watch && values.logits != RN_NO_VALUE)
        rn_graph_output(graph, values.logits, "logits");
    return rn_graph_train(graph, loss, &options);
}

static rn_status build(void *self, const rn_recipe_options *options, rn_graph **out) {
    const held *h = self;
    uint32_t micro_batches = options && options->micro_batches ? options->micro_batches : 1;
    rn_graph *graph = NULL;
    *out = NULL;
    RN_TRY(check_cut(h, micro_batches, options && options->exact));
    RN_TRY(rn_graph_create(&graph));
    rn_status s = write(h, micro_batches, options && options->exact, graph);
    bool halves = options && options->halves;
    if (s == RN_OK) s = rn_graph_hold_activations_in(&graph, h->activations, halves);
    if (s == RN_OK)
        *out = graph;
    else
        rn_graph_destroy(graph);
    return s;
}

static void destroy(void *self) {
    held *h = self;
    rn_free(FROM, h, h->bytes);
}

rn_status rn_train_recipe(rn_forward forward, uint32_t batch, const rn_train_options *options,
                          rn_recipe *out) {
    static const rn_train_options usual = {0};
    const rn_train_options *o = options ? options : &usual;
    const char *texts[] = {o->frozen ? o->frozen : "", o->trained ? o->trained : "*",
                           o->undecayed ? o->undecayed : ""};
    const rn_optimizer *optimizer = NULL;
    void *block = NULL;
    *out = (rn_recipe){0};
    if (batch == 0) return rn_fail(RN_INVALID, "a training step needs at least one sample");
    RN_TRY(rn_optimizer_find(o->optimizer, &optimizer));
    if (forward.check) RN_TRY(forward.check(forward.config, true));
    size_t all = sizeof(held) + forward.config_bytes;
    for (size_t i = 0; i < 3; i++)
        all += strlen(texts[i]) + 1;
    RN_TRY(rn_alloc_zeroed(FROM, 1, all, &block));
    held *h = block;
    *h = (held){.write = forward.write,
                .options = *o,
                .bytes = all,
                .batch = batch,
                .activations = forward.activations};
    memcpy(h->config, forward.config, forward.config_bytes);
    char *text = (char *)h->config + forward.config_bytes;
    for (size_t i = 0; i < 3; i++) {
        memcpy(text, texts[i], strlen(texts[i]) + 1);
        texts[i] = text;
        text += strlen(text) + 1;
    }
    h->options.frozen = texts[0];
    h->options.trained = texts[1];
    h->options.undecayed = texts[2];
    h->options.optimizer = optimizer->name;
    *out = (rn_recipe){.self = h,
                       .build = build,
                       .destroy = destroy,
                       .max_micro_batches = batch,
                       .batch_statistics = forward.batch_statistics};
    return RN_OK;
}

rn_status rn_evaluate_recipe(rn_forward forward, uint32_t batch, const rn_train_share *share,
                             rn_recipe *out) {
    rn_train_options options = {.share = *share};
    if (forward.batch_statistics)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "a model with batch statistics has another forward "
                                               "pass in training"),
                       "evaluate it as inference does");
    RN_TRY(rn_train_recipe(forward, batch, &options, out));
    ((held *)out->self)->evaluates = true;
    return RN_OK;
}

// ---- builtin models -----------------------------------------------------------------------------

// Cuts ":train" or ":train=OPTIMIZER" off the end of a name.
static bool take_train(rn_str *name, rn_str *out_optimizer) {
    static const rn_str mark = {":train", sizeof ":train" - 1};
    *out_optimizer = (rn_str){NULL, 0};
    for (size_t at = 0; at + mark.bytes <= name->bytes; at++) {
        rn_str rest = {name->data + at, name->bytes - at};
        if (!rn_str_starts(rest, mark)) continue;
        bool named = rest.bytes > mark.bytes && rest.data[mark.bytes] == '=';
        if (rest.bytes > mark.bytes && !named) continue;
        if (named)
            *out_optimizer = (rn_str){rest.data + mark.bytes + 1, rest.bytes - mark.bytes - 1};
        name->bytes = at;
        return true;
    }
    return false;
}

// PyTorch's defaults for AdamW, whose weight decay serves all.
static rn_status make_training(const rn_builtin *builtin, rn_str optimizer, rn_recipe *out) {
    char name[32];
    if (optimizer.data) snprintf(name, sizeof name, "%.*s", RN_STR_ARG(optimizer));
    rn_train_options options = {.optimizer = optimizer.data ? name : NULL, .weight_decay = 0.01};
    return rn_train_recipe(builtin->forward, builtin->batch, &options, out);
}

// Cuts ":evaluate" off the end of a name.
static bool take_evaluate(rn_str *name) {
    if (!rn_str_ends(*name, RN_STR(":evaluate"))) return false;
    name->bytes -= sizeof ":evaluate" - 1;
    return true;
}

rn_status rn_builtin_recipe(const char *name, rn_recipe *out) {
    static const rn_train_share alone = {0};
    rn_str model = rn_str_from(name), optimizer;
    rn_builtin builtin;
    *out = (rn_recipe){0};
    bool training = take_train(&model, &optimizer), evaluates = !training && take_evaluate(&model);
    RN_TRY(rn_builtin_find(model, &builtin));
    if (evaluates)
        RN_TRY(rn_evaluate_recipe(builtin.forward, builtin.batch, &alone, out));
    else
        RN_TRY(training ? make_training(&builtin, optimizer, out)
                        : rn_model_recipe(builtin.forward, out));
    snprintf(out->name, sizeof out->name, "%s", name);
    return RN_OK;
}
