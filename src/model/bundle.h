// bundle.h — a model as a bundle: named networks, each with its configuration and its checkpoint,
// and what they share.
//
//     rn_model ─┬─ networks: "decoder" { kind, configuration, checkpoint }, ...
//               ├─ adapters, of the first network
//               └─ tokenizer, chat template
//
// A text model is a bundle of one network, "decoder"; with a draft for speculative decoding it has
// two. Each network makes recipes of its own and is planned and loaded by itself. Nothing of an
// open bundle changes or moves: recipes and weight sources point into it.
#ifndef RN_MODEL_BUNDLE_H
#define RN_MODEL_BUNDLE_H

#include <ration/model.h>

#include "base/buffer.h"
#include "model/text/adapters.h"

typedef struct rn_network rn_network;

// What rn_network.mapped is charged to.
#define RN_NETWORK_MAPPED ((rn_account){.device = RN_DEVICE_HOST, .purpose = RN_PURPOSE_IO})

// What a network computes.
typedef struct rn_network_kind {
    const char *name; // "text decoder"
    // `options` are of the kind, or NULL: for a text decoder rn_text_options. The network outlives
    // the recipe.
    rn_status (*make_recipe)(const rn_network *network, const void *options, rn_recipe *out);
    rn_status (*make_embedding)(const rn_network *network, const rn_embedding_options *options,
                                rn_recipe *out);
} rn_network_kind;

struct rn_network {
    const rn_network_kind *kind;
    char name[32];  // in its bundle
    char title[64]; // for people: the files' own name
    rn_checkpoint *checkpoint;
    bool in_memory; // the weights are the library's own
    rn_str mapped;  // these: pages of its file, which become resident
    void *config;   // (config_bytes) of the kind
    size_t config_bytes;
    const rn_adapters *adapters; // of the bundle, where they are for this network; or NULL
    rn_model_info info;          // of this network alone
};

struct rn_model {
    rn_network *networks; // (network_count); the first is what rn_model_make_recipe is about
    size_t network_count;
    rn_model_info info;   // of the first, with the parameters and bytes of all
    rn_adapters adapters; // of the first
    rn_tokenizer *tokenizer;
    rn_buffer chat_template;
};

// One to be opened: a name (up to 31 bytes) and the path of its files as in rn_model_open.
typedef struct rn_network_files {
    const char *name, *path;
} rn_network_files;
// Text decoders from their files. The options (adapters, tokenizer) are of the first; a tokenizer
// must suit all. RN_INVALID: a name is too long or
// there twice, or there is no network.
RN_MUST_USE rn_status rn_model_open_networks(const rn_network_files *files, size_t count,
                                             const rn_model_options *options, rn_model **out);

// By its name; NULL: there is none.
const rn_network *rn_model_network(const rn_model *model, const char *name);
// For a session, while the model is open.
rn_weight_source rn_network_weights(const rn_network *network);

// For whoever opens: zeroed networks with their names; the sizes of all, once they are open.
RN_MUST_USE rn_status rn_bundle_create(const rn_network_files *files, size_t count, rn_model **out);
void rn_bundle_fill_info(rn_model *model);

#endif
