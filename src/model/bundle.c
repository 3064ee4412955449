// bundle.c — see bundle.h: networks by name, their weights, the sizes of all.
#include "model/bundle.h"

#include "io/checkpoint.h"
#include "memory/account.h"

#include <string.h>

#define FROM RN_HOST_OTHER

enum { MAX_TEMPLATE_BYTES = 4 << 20 };

// ---- networks -----------------------------------------------------------------------------------

const rn_network *rn_model_network(const rn_model *model, const char *name) {
    for (size_t i = 0; i < model->network_count; i++)
        if (strcmp(model->networks[i].name, name) == 0) return &model->networks[i];
    return NULL;
}

static const void *find_weight(void *self, const char *name, rn_dtype dtype, uint64_t bytes) {
    const rn_network *n = self;
    const void *found = n->adapters ? rn_adapters_find(n->adapters, name, bytes) : NULL;
    if (found || !n->in_memory) return found;
    const rn_tensor_info *t = rn_checkpoint_find(n->checkpoint, name);
    bool fits = t && t->dtype == dtype && t->bytes == bytes;
    return fits ? rn_checkpoint_memory(n->checkpoint, t) : NULL;
}

rn_weight_source rn_network_weights(const rn_network *network) {
    return (rn_weight_source){.checkpoint = network->in_memory ? NULL : network->checkpoint,
                              .self = (void *)network,
                              .find = find_weight};
}

static void close_network(rn_network *n) {
    rn_checkpoint_close(n->checkpoint);
    if (n->mapped.bytes) rn_ledger_release(RN_NETWORK_MAPPED, n->mapped.data, n->mapped.bytes);
    rn_free(FROM, n->config, n->config_bytes);
}

// ---- the bundle ---------------------------------------------------------------------------------

static rn_status check_names(const rn_network_files *files, size_t count) {
    if (count == 0) return rn_fail(RN_INVALID, "a model has at least one network");
    for (size_t i = 0; i < count; i++) {
        if (strlen(files[i].name) >= sizeof((rn_network *)0)->name)
            return rn_fail(RN_INVALID, "the name of the network '%s' is too long", files[i].name);
        for (size_t j = 0; j < i; j++)
            if (strcmp(files[i].name, files[j].name) == 0)
                return rn_fail(RN_INVALID, "the network '%s' is there twice", files[i].name);
    }
    return RN_OK;
}

rn_status rn_bundle_create(const rn_network_files *files, size_t count, rn_model **out) {
    void *block = NULL, *networks = NULL;
    *out = NULL;
    RN_TRY(check_names(files, count));
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof **out, &block));
    rn_model *model = block;
    rn_adapters_init(&model->adapters);
    rn_buffer_init(&model->chat_template, FROM, MAX_TEMPLATE_BYTES);
    rn_status s = rn_alloc_zeroed(FROM, count, sizeof *model->networks, &networks);
    if (s != RN_OK) {
        rn_model_close(model);
        return s;
    }
    model->networks = networks;
    model->network_count = count;
    for (size_t i = 0; i < count; i++)
        memcpy(model->networks[i].name, files[i].name, strlen(files[i].name));
    *out = model;
    return RN_OK;
}

void rn_bundle_fill_info(rn_model *model) {
    model->info = model->networks[0].info;
    for (size_t i = 1; i < model->network_count; i++) {
        model->info.parameters += model->networks[i].info.parameters;
        model->info.weight_bytes += model->networks[i].info.weight_bytes;
    }
}

void rn_model_close(rn_model *model) {
    if (!model) return;
    rn_tokenizer_close(model->tokenizer);
    rn_buffer_free(&model->chat_template);
    rn_adapters_free(&model->adapters);
    for (size_t i = 0; i < model->network_count; i++)
        close_network(&model->networks[i]);
    rn_free(FROM, model->networks, model->network_count * sizeof *model->networks);
    rn_free(FROM, model, sizeof *model);
}

// ---- what everybody asks: of the first network --------------------------------------------------

const rn_model_info *rn_model_get_info(const rn_model *model) {
    return &model->info;
}

const char *rn_model_adapter_name(const rn_model *model, size_t index) {
    return index < model->adapters.named_count ? model->adapters.names[index] : NULL;
}

const rn_tokenizer *rn_model_tokenizer(const rn_model *model) {
    return model->tokenizer;
}

rn_str rn_model_chat_template(const rn_model *model) {
    return (rn_str){model->chat_template.data, model->chat_template.bytes};
}

rn_weight_source rn_model_weights(const rn_model *model) {
    return rn_network_weights(&model->networks[0]);
}

rn_status rn_model_make_recipe(const rn_model *model, const rn_text_options *options,
                               rn_recipe *out) {
    return model->networks[0].kind->make_recipe(&model->networks[0], options, out);
}

rn_status rn_model_make_embedding_recipe(const rn_model *model, const rn_embedding_options *options,
                                         rn_recipe *out) {
    return model->networks[0].kind->make_embedding(&model->networks[0], options, out);
}
