// optimizer.c — the rows: AdamW, SGD without and with momentum, Lion.
#include "train/optimizer.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

static void update_adamw(const rn_update *with) {
    rn_adamw_attrs attrs = {.beta1 = with->beta1,
                            .beta2 = with->beta2,
                            .eps = with->eps,
                            .weight_decay = with->weight_decay,
                            .rate = with->rate,
                            .step = with->step};
    rn_op_adamw(with->graph, with->weight, with->gradient, with->states[0], with->states[1], attrs);
}

// Without a velocity states[0] is RN_NO_VALUE and momentum 0.
static void update_sgd(const rn_update *with) {
    rn_sgd_attrs attrs = {.momentum = (float)with->momentum,
                          .weight_decay = (float)with->weight_decay,
                          .rate = with->rate};
    rn_op_sgd(with->graph, with->weight, with->gradient, with->states[0], attrs);
}

static void update_lion(const rn_update *with) {
    rn_lion_attrs attrs = {.beta1 = with->beta1,
                           .beta2 = with->beta2,
                           .weight_decay = with->weight_decay,
                           .rate = with->rate};
    rn_op_lion(with->graph, with->weight, with->gradient, with->states[0], attrs);
}

// The defaults are PyTorch's (Lion's: its authors'), but for weight decay, which is 0 for all.
static const rn_optimizer optimizers[] = {
    {.name = "adamw",
     .states = {{"m", RN_DTYPE_F32, NULL}, {"v", RN_DTYPE_F32, NULL}},
     .state_count = 2,
     .needs_step = true,
     .beta1 = 0.9,
     .beta2 = 0.999,
     .eps = 1e-8,
     .update = update_adamw},
    {.name = "sgd", .update = update_sgd},
    {.name = "momentum",
     .states = {{"velocity", RN_DTYPE_F32, NULL}},
     .state_count = 1,
     .momentum = 0.9,
     .update = update_sgd},
    {.name = "lion",
     .states = {{"m", RN_DTYPE_F32, NULL}},
     .state_count = 1,
     .beta1 = 0.9,
     .beta2 = 0.99,
     .update = update_lion},
};
enum { COUNT = sizeof optimizers / sizeof *optimizers };

const char *rn_optimizer_name(size_t index) {
    return index < COUNT ? optimizers[index].name : NULL;
}

static void list_names(char *out, size_t bytes) {
    size_t used = 0;
    for (size_t i = 0; i < COUNT && used < bytes; i++)
        used +=
            (size_t)snprintf(out + used, bytes - used, "%s%s", i ? ", " : "", optimizers[i].name);
}

rn_status rn_optimizer_find(const char *name, const rn_optimizer **out) {
    char names[160] = "";
    *out = &optimizers[0];
    if (!name) return RN_OK;
    for (size_t i = 0; i < COUNT; i++) {
        *out = &optimizers[i];
        if (strcmp(name, optimizers[i].name) == 0) return RN_OK;
    }
    *out = NULL;
    list_names(names, sizeof names);
    return rn_hint(rn_fail(RN_INVALID, "there is no optimizer '%s'", name), "there are %s", names);
}

rn_status rn_optimizer_state_name(const char *weight, const char *suffix, char *out, size_t bytes) {
    int length = snprintf(out, bytes, "%s.%s", weight, suffix);
    if (length >= 0 && (size_t)length < bytes) return RN_OK;
    return rn_fail(RN_INVALID, "the weight's name '%.40s...' is too long to train", weight);
}
