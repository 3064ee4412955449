// model_file.c — a model whose own weights were trained, written as its files were
// (model/text/model_rewrite.h), the trained tensors with their new values.
#include "train/trainer.h"

#include "base/checked.h"
#include "base/str.h"
#include "io/writer.h"
#include "model/text/model_rewrite.h"

typedef struct export_job {
    rn_trainer *trainer;
    rn_trainer_scratch scratch;
} export_job;

static const rn_trained *find_trained(const rn_trainer *t, const rn_tensor_info *info) {
    for (uint32_t i = 0; i < t->weight_count; i++)
        if (rn_str_equal(info->name, rn_str_from(t->tensors[i].name))) return &t->tensors[i];
    return NULL;
}

// A tied head is the embedding: a second copy of it would be the old one.
static rn_rewrite_what look(void *self, const rn_tensor_info *info, rn_dtype *dtype) {
    const rn_trainer *t = ((const export_job *)self)->trainer;
    (void)dtype; // the file's
    if (t->config.tied && rn_str_matches(info->name, RN_STR("*lm_head.weight")))
        return RN_REWRITE_LEAVE_OUT;
    return find_trained(t, info) ? RN_REWRITE_WRITE : RN_REWRITE_COPY;
}

static rn_status write(void *self, const rn_tensor_info *info, rn_dtype dtype, rn_writer *writer) {
    const export_job *e = self;
    return rn_trainer_write_tensor(e->trainer, find_trained(e->trainer, info), dtype, writer,
                                   &e->scratch);
}

static rn_status check(const rn_trainer *t) {
    if (!t->full)
        return rn_hint(rn_fail(RN_INVALID, "this trainer does not train a model's own weights"),
                       t->lora ? "rn_trainer_export_adapter writes its additions"
                               : "rn_trainer_export writes its weights");
    if (t->network->in_memory)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "a built-in model has no files to write it like"),
                       "rn_trainer_export writes its weights");
    return RN_OK;
}

rn_status rn_trainer_export_model(rn_trainer *trainer, const char *path) {
    RN_TRY(check(trainer));
    export_job e = {.trainer = trainer};
    RN_TRY(rn_trainer_scratch_take(trainer, &e.scratch));
    rn_rewrite rewrite = {.from = trainer->network->checkpoint,
                          .self = &e,
                          .look = look,
                          .write = write,
                          .writer_from = &e.scratch.from,
                          .buffer_bytes = rn_trainer_buffer_bytes(trainer->most),
                          .piece = e.scratch.chunk,
                          .piece_bytes =
                              (size_t)rn_min_u64(trainer->most, RN_TRAINER_CHUNK) * sizeof(float)};
    rn_status s = rn_rewrite_model(&rewrite, path);
    rn_trainer_scratch_free(&e.scratch);
    return s;
}
