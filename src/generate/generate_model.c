// generate_model.c — a generator of a model on disk.
#include "generate/generate.h"

static rn_status make_recipe(const void *self, const rn_text_options *options, rn_recipe *out) {
    return rn_model_make_recipe(self, options, out);
}

static rn_text_maker maker_of(const rn_model *model) {
    const rn_model_info *info = rn_model_get_info(model);
    uint32_t adapters = 0;
    while (rn_model_adapter_name(model, adapters))
        adapters++;
    return (rn_text_maker){.self = model,
                           .make = make_recipe,
                           .weights = rn_model_weights(model),
                           .vocab_size = info->vocab_size,
                           .context = info->context,
                           .window = info->window,
                           .recurrent = info->state_bytes > 0,
                           .adapters = adapters};
}

rn_status rn_generator_create(const rn_model *model, const rn_generator_options *options,
                              rn_generator **out) {
    rn_text_maker maker = maker_of(model);
    return rn_generator_create_from(&maker, options, out);
}

rn_status rn_generator_predict(const rn_model *model, const rn_generator_options *options,
                               rn_plan **out) {
    rn_text_maker maker = maker_of(model);
    return rn_generator_plan_from(&maker, options, out);
}

rn_status rn_generator_predict_shares(const rn_model *model, const rn_generator_options *options,
                                      uint32_t ranks, rn_rank_share *out) {
    rn_text_maker maker = maker_of(model);
    return rn_ranks_predict(&maker, options, ranks, out);
}
