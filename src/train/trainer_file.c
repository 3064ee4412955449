// trainer_file.c — a trainer's tensors to a file and back.
//
// A checkpoint holds every weight with its optimiser's states ("<weight>.m" and "<weight>.v" of
// AdamW), each in its own dtype, the number of steps as text under "step" and the optimiser's name
// under "optimizer"; an export only the weights.
#include "train/trainer.h"

#include <ration/writer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/str.h"
#include "memory/account.h"

// ---- writing ------------------------------------------------------------------------------------

// dtype NONE: each tensor's own.
static rn_status declare(const rn_trainer *t, uint32_t count, rn_dtype dtype, rn_arena *memory,
                         rn_write_tensor **out) {
    void *block = NULL;
    RN_TRY(rn_arena_array(memory, count, sizeof **out, &block));
    *out = block;
    for (uint32_t i = 0; i < count; i++)
        (*out)[i] = (rn_write_tensor){.name = rn_str_from(t->tensors[i].name),
                                      .dtype = dtype ? dtype : t->tensors[i].dtype,
                                      .rank = t->tensors[i].shape.rank,
                                      .dims = t->tensors[i].shape.dims};
    return RN_OK;
}

// In another dtype chunk by chunk, so that a second copy of the largest tensor is not needed.
rn_status rn_trainer_write_tensor(rn_trainer *t, const rn_trained *tensor, rn_dtype dtype,
                                  rn_writer *writer, const rn_trainer_scratch *scratch) {
    const uint8_t *values = (const uint8_t *)scratch->values;
    uint64_t n = 0;
    RN_TRY(rn_session_get(t->session, tensor->name, scratch->values, tensor->bytes));
    if (dtype == tensor->dtype) return rn_writer_append(writer, values, tensor->bytes);
    for (uint64_t at = 0; at < tensor->count; at += n) {
        uint64_t bytes = 0;
        n = rn_min_u64(tensor->count - at, RN_TRAINER_CHUNK);
        if (!rn_dtype_bytes(dtype, n, &bytes))
            return rn_fail(RN_UNSUPPORTED, "%s cannot hold '%s'", rn_dtype_get(dtype)->name,
                           tensor->name);
        RN_TRY(rn_dtype_convert(tensor->dtype, values + tensor->bytes / tensor->count * at, dtype,
                                scratch->chunk, n));
        RN_TRY(rn_writer_append(writer, scratch->chunk, bytes));
    }
    return RN_OK;
}

static rn_status write_tensors(rn_trainer *t, uint32_t count, rn_dtype dtype, rn_writer *writer,
                               const rn_trainer_scratch *scratch) {
    for (uint32_t i = 0; i < count; i++)
        RN_TRY(rn_trainer_write_tensor(t, &t->tensors[i], dtype ? dtype : t->tensors[i].dtype,
                                       writer, scratch));
    return rn_writer_commit(writer);
}

// The first `count` tensors.
static rn_status write_file(rn_trainer *t, uint32_t count, rn_dtype dtype,
                            const rn_writer_options *options, const char *path) {
    rn_arena memory;
    rn_write_tensor *tensors = NULL;
    rn_writer *writer = NULL;
    rn_trainer_scratch scratch = {0};
    rn_arena_init(&memory, RN_HOST_IO, 0);
    rn_status s = declare(t, count, dtype, &memory, &tensors);
    if (s == RN_OK) s = rn_trainer_scratch_take(t, &scratch);
    if (s == RN_OK) s = rn_writer_create(path, tensors, count, options, &writer);
    if (s == RN_OK) s = write_tensors(t, count, dtype, writer, &scratch);
    rn_writer_destroy(writer);
    rn_trainer_scratch_free(&scratch);
    rn_arena_free_all(&memory);
    return s;
}

rn_status rn_trainer_save(rn_trainer *trainer, const char *path) {
    char steps[24];
    int bytes = snprintf(steps, sizeof steps, "%llu", (unsigned long long)trainer->steps);
    rn_metadata metadata[] = {{.key = RN_STR("step"),
                               .kind = RN_METADATA_TEXT,
                               .gguf_type = 8,
                               .text = {steps, (size_t)bytes}},
                              {.key = RN_STR("optimizer"),
                               .kind = RN_METADATA_TEXT,
                               .gguf_type = 8,
                               .text = rn_str_from(trainer->options.optimizer)}};
    rn_writer_options options = {.metadata = metadata, .metadata_count = 2};
    return write_file(trainer, trainer->tensor_count, RN_DTYPE_NONE, &options, path);
}

rn_status rn_trainer_export(rn_trainer *trainer, rn_dtype dtype, const char *path) {
    rn_metadata metadata = {.key = RN_STR("format"),
                            .kind = RN_METADATA_TEXT,
                            .gguf_type = 8,
                            .text = RN_STR("pt")}; // what Hugging Face's loader asks for
    rn_writer_options options = {.metadata = &metadata, .metadata_count = 1};
    if (dtype != RN_DTYPE_F32 && dtype != RN_DTYPE_F16 && dtype != RN_DTYPE_BF16)
        return rn_fail(RN_UNSUPPORTED, "weights are exported as f32, f16 or bf16, not %s",
                       rn_dtype_get(dtype)->name);
    return write_file(trainer, trainer->weight_count, dtype, &options, path);
}

// ---- reading ------------------------------------------------------------------------------------

static rn_status read_tensors(rn_trainer *t, const rn_checkpoint *from, void *values) {
    for (uint32_t i = 0; i < t->tensor_count; i++) {
        const rn_trained *own = &t->tensors[i];
        const rn_tensor_info *info = rn_checkpoint_find(from, own->name);
        if (!info || info->elements != own->count)
            return rn_hint(rn_fail(RN_INVALID, "'%s' is %s the checkpoint", own->name,
                                   info ? "of another size in" : "not in"),
                           "go on with the sizes that the checkpoint was made with");
        RN_TRY(rn_checkpoint_load(from, info, own->dtype, values, own->bytes));
        RN_TRY(rn_session_put(t->session, own->name, values, own->bytes));
    }
    return RN_OK;
}

static rn_status read_steps(rn_trainer *t, const rn_checkpoint *from) {
    for (size_t i = 0; i < rn_checkpoint_metadata_count(from); i++) {
        const rn_metadata *m = rn_checkpoint_metadata(from, i);
        char text[24] = "", *end = text;
        if (!rn_str_equal(m->key, RN_STR("step")) || m->text.bytes >= sizeof text) continue;
        memcpy(text, m->text.data, m->text.bytes);
        t->steps = strtoull(text, &end, 10);
        if (end != text && *end == 0) return RN_OK;
    }
    return rn_fail(RN_INVALID, "the checkpoint does not say at which step it was made");
}

// A checkpoint of another optimiser may have states of the same names: it is refused. One that does
// not say was written by AdamW, when there was no other.
static rn_status check_optimizer(const rn_trainer *t, const rn_checkpoint *from) {
    rn_str name = RN_STR("adamw");
    for (size_t i = 0; i < rn_checkpoint_metadata_count(from); i++) {
        const rn_metadata *m = rn_checkpoint_metadata(from, i);
        if (rn_str_equal(m->key, RN_STR("optimizer"))) name = m->text;
    }
    if (rn_str_equal(name, rn_str_from(t->options.optimizer))) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "the checkpoint is of the optimizer '%.*s', not '%s'",
                           RN_STR_ARG(name), t->options.optimizer),
                   "go on with the optimizer that the checkpoint was made with");
}

rn_status rn_trainer_resume(rn_trainer *trainer, const char *path) {
    rn_checkpoint *from = NULL;
    rn_trainer_scratch scratch = {0};
    RN_TRY(rn_checkpoint_open(path, &from));
    rn_status s = rn_trainer_scratch_take(trainer, &scratch);
    if (s == RN_OK) s = check_optimizer(trainer, from);
    if (s == RN_OK) s = read_steps(trainer, from);
    if (s == RN_OK) s = read_tensors(trainer, from, scratch.values);
    rn_trainer_scratch_free(&scratch);
    rn_checkpoint_close(from);
    return s;
}
