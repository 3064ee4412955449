// trainer_file.c — a trainer's tensors to a file and back.
//
// A checkpoint holds every weight with its optimiser's states ("<weight>.m" and "<weight>.v"
// of AdamW), the number of steps as text under "step", of batches under "batch", f16's factor and
// the steps since it changed under "scale", the optimiser's name under "optimizer", what
// training it is of under "run", and the checksum of all tensors under "crc32c"; an export only the
// weights. A checkpoint counts as saved when it was read again and its checksum is right.
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/crc32c.h"
#include "base/str.h"
#include "io/writer.h"
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
    RN_TRY(rn_trainer_get_tensor(t, tensor, scratch->values));
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

// What other ranks have of a divided tensor comes from them, which do not know of a failure here:
// all of it is asked for in any case. Those that do not write have no writer.
static rn_status write_tensors(rn_trainer *t, uint32_t count, rn_dtype dtype, rn_writer *writer,
                               const rn_trainer_scratch *scratch, rn_status status) {
    for (uint32_t i = 0; i < count; i++) {
        rn_error_info error = *rn_last_error();
        const rn_trained *tensor = &t->tensors[i];
        if (status == RN_OK && writer)
            status =
                rn_trainer_write_tensor(t, tensor, dtype ? dtype : tensor->dtype, writer, scratch);
        else if (tensor->row && rn_trainer_get_tensor(t, tensor, scratch->values) != RN_OK)
            return status == RN_OK ? rn_last_error()->status : rn_error_restore(&error);
    }
    return status == RN_OK && writer ? rn_writer_commit(writer) : status;
}

// The first `count` tensors. path NULL: another rank writes.
static rn_status write_file(rn_trainer *t, uint32_t count, rn_dtype dtype,
                            const rn_writer_options *options, const char *path) {
    rn_arena memory;
    rn_write_tensor *tensors = NULL;
    rn_writer *writer = NULL;
    rn_trainer_scratch scratch = {0};
    rn_arena_init(&memory, RN_HOST_IO, 0);
    rn_status s = rn_trainer_scratch_take(t, &scratch), taken = s;
    if (s == RN_OK) s = declare(t, count, dtype, &memory, &tensors);
    if (s == RN_OK && path)
        s = rn_writer_create_in(path, tensors, count, options, &scratch.from, &writer);
    if (taken == RN_OK) s = write_tensors(t, count, dtype, writer, &scratch, s);
    rn_writer_destroy(writer);
    rn_trainer_scratch_free(&scratch);
    rn_arena_free_all(&memory);
    return s;
}

// Of all tensors, one behind the other.
static rn_status sum_tensors(rn_trainer *t, void *values, uint32_t *out) {
    *out = 0;
    for (uint32_t i = 0; i < t->tensor_count; i++) {
        RN_TRY(rn_trainer_get_tensor(t, &t->tensors[i], values));
        *out = rn_crc32c(*out, values, t->tensors[i].bytes);
    }
    return RN_OK;
}

static rn_metadata text_pair(const char *key, const char *text) {
    return (rn_metadata){.key = rn_str_from(key),
                         .kind = RN_METADATA_TEXT,
                         .gguf_type = 8,
                         .text = rn_str_from(text)};
}

// Ranks that compute the same have the same bits: another processor might not.
static rn_status compare_sums(rn_trainer *t, const char *sum) {
    const rn_comm_item item = {"what they have trained (its checksum)", sum};
    rn_status s = rn_comm_compare(t->options.comm, &item, 1);
    return s == RN_INVALID ? rn_hint(s, "ranks must be machines of one kind: these do not compute "
                                        "the same numbers")
                           : s;
}

rn_status rn_trainer_save(rn_trainer *trainer, const char *path) {
    char steps[24], batches[24], scale[64], sum[16];
    rn_trainer_scratch scratch = {0};
    uint32_t crc = 0;
    bool writes = rn_comm_rank(trainer->options.comm) == 0;
    RN_TRY(rn_trainer_scratch_take(trainer, &scratch));
    rn_status s = sum_tensors(trainer, scratch.values, &crc);
    rn_trainer_scratch_free(&scratch);
    RN_TRY(s);
    snprintf(steps, sizeof steps, "%llu", (unsigned long long)trainer->steps);
    snprintf(batches, sizeof batches, "%llu", (unsigned long long)trainer->batches);
    snprintf(scale, sizeof scale, "%.0f %llu", trainer->scale,
             (unsigned long long)trainer->clean_steps);
    snprintf(sum, sizeof sum, "%08x", crc);
    if (trainer->share.ranks > 1) RN_TRY(compare_sums(trainer, sum));
    rn_metadata metadata[] = {
        text_pair("step", steps),  text_pair("batch", batches),
        text_pair("scale", scale), text_pair("optimizer", trainer->options.optimizer),
        text_pair("crc32c", sum),  text_pair("run", trainer->identity)};
    rn_writer_options options = {.metadata = metadata,
                                 .metadata_count = trainer->identity[0] ? 6 : 5,
                                 .buffer_bytes = rn_trainer_buffer_bytes(trainer->most)};
    s = write_file(trainer, trainer->tensor_count, RN_DTYPE_NONE, &options, writes ? path : NULL);
    if (s == RN_OK && writes) s = rn_trainer_verify(trainer, path);
    return rn_comm_agree(trainer->options.comm, s);
}

rn_status rn_trainer_export(rn_trainer *trainer, rn_dtype dtype, const char *path) {
    rn_metadata metadata = {.key = RN_STR("format"),
                            .kind = RN_METADATA_TEXT,
                            .gguf_type = 8,
                            .text = RN_STR("pt")}; // what Hugging Face's loader asks for
    rn_writer_options options = {.metadata = &metadata,
                                 .metadata_count = 1,
                                 .buffer_bytes = rn_trainer_buffer_bytes(trainer->most)};
    if (dtype != RN_DTYPE_F32 && dtype != RN_DTYPE_F16 && dtype != RN_DTYPE_BF16)
        return rn_fail(RN_UNSUPPORTED, "weights are exported as f32, f16 or bf16, not %s",
                       rn_dtype_get(dtype)->name);
    return write_file(trainer, trainer->weight_count, dtype, &options, path);
}

// ---- reading ------------------------------------------------------------------------------------

// The text under a key; {0}: there is none.
static rn_str find_text(const rn_checkpoint *from, const char *key) {
    for (size_t i = 0; i < rn_checkpoint_metadata_count(from); i++)
        if (rn_str_equal(rn_checkpoint_metadata(from, i)->key, rn_str_from(key)))
            return rn_checkpoint_metadata(from, i)->text;
    return (rn_str){NULL, 0};
}

static rn_status find_tensor(const rn_checkpoint *from, const rn_trained *own,
                             const rn_tensor_info **out) {
    *out = rn_checkpoint_find(from, own->name);
    if (*out && (*out)->elements == own->count) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "'%s' is %s the checkpoint", own->name,
                           *out ? "of another size in" : "not in"),
                   "go on with the sizes that the checkpoint was made with");
}

static rn_status read_tensor(const rn_checkpoint *from, const rn_trained *own, void *values) {
    const rn_tensor_info *info = NULL;
    RN_TRY(find_tensor(from, own, &info));
    return rn_checkpoint_load(from, info, own->dtype, values, own->bytes);
}

// Rank 0 reads, and all get it: the others do not know of a failure there, and are told once all
// has been sent.
static rn_status read_tensors(rn_trainer *t, const rn_checkpoint *from, void *values) {
    rn_comm *comm = t->options.comm;
    rn_status s = RN_OK;
    for (uint32_t i = 0; i < t->tensor_count; i++) {
        const rn_trained *own = &t->tensors[i];
        if (from && s == RN_OK) s = read_tensor(from, own, values);
        rn_error_info error = *rn_last_error();
        RN_TRY(rn_comm_broadcast(comm, 0, values, own->bytes));
        if (s == RN_OK)
            s = rn_trainer_put_tensor(t, own, values);
        else
            s = rn_error_restore(&error);
    }
    return rn_comm_agree(comm, s);
}

// A whole number; false: there is none.
static bool read_number(const rn_checkpoint *from, const char *key, uint64_t *out) {
    rn_str found = find_text(from, key);
    char text[24] = "", *end = text;
    if (found.bytes == 0 || found.bytes >= sizeof text) return false;
    memcpy(text, found.data, found.bytes);
    *out = strtoull(text, &end, 10);
    return end != text && *end == 0;
}

// What a checkpoint of an earlier version does not say is as it was there.
static rn_status read_steps(rn_trainer *t, const rn_checkpoint *from) {
    rn_str scale = find_text(from, "scale");
    char text[64] = "";
    unsigned long long clean = 0;
    double factor = 0;
    if (!read_number(from, "step", &t->steps))
        return rn_fail(RN_INVALID, "the checkpoint does not say at which step it was made");
    if (!read_number(from, "batch", &t->batches)) t->batches = t->steps;
    if (scale.bytes < sizeof text) memcpy(text, scale.data ? scale.data : "", scale.bytes);
    if (!t->scaled || sscanf(text, "%lf %llu", &factor, &clean) != 2) return RN_OK;
    int power = 0;
    if (frexp(factor, &power) != 0.5 || power < 1 || power > 25)
        return rn_fail(RN_CORRUPT, "the checkpoint's factor of the loss is %g", factor);
    t->scale = factor;
    t->clean_steps = clean;
    return RN_OK;
}

// A checkpoint of another optimiser may have states of the same names: it is refused. One that does
// not say was written by AdamW, when there was no other.
static rn_status check_optimizer(const rn_trainer *t, const rn_checkpoint *from) {
    rn_str name = find_text(from, "optimizer");
    if (!name.bytes) name = RN_STR("adamw");
    if (rn_str_equal(name, rn_str_from(t->options.optimizer))) return RN_OK;
    return rn_hint(rn_fail(RN_INVALID, "the checkpoint is of the optimizer '%.*s', not '%s'",
                           RN_STR_ARG(name), t->options.optimizer),
                   "go on with the optimizer that the checkpoint was made with");
}

// Names the first setting that differs: identities are "key=value;key=value".
static rn_status differs(rn_str other, rn_str own) {
    size_t at = 0, begin = 0;
    while (at < other.bytes && at < own.bytes && other.data[at] == own.data[at])
        if (own.data[at++] == ';') begin = at;
    rn_str longer = at == own.bytes ? other : own; // it may have a setting more
    if (at < longer.bytes && longer.data[at] == ';' && (at == own.bytes || at == other.bytes))
        begin = at + 1;
    size_t there = rn_min_u64(begin, other.bytes), here = rn_min_u64(begin, own.bytes);
    size_t there_begin = there, here_begin = here;
    while (there < other.bytes && other.data[there] != ';')
        there++;
    while (here < own.bytes && own.data[here] != ';')
        here++;
    return rn_hint(rn_fail(RN_INVALID,
                           "the checkpoint is of another training: '%.*s' there, '%.*s' here",
                           (int)(there - there_begin), other.data + there_begin,
                           (int)(here - here_begin), own.data + here_begin),
                   "go on with the settings that it was made with, or begin anew elsewhere");
}

// One that does not say what it is of is taken.
static rn_status check_identity(const rn_trainer *t, const rn_checkpoint *from) {
    rn_str own = rn_str_from(t->identity), other = find_text(from, "run");
    return !own.bytes || !other.bytes || rn_str_equal(own, other) ? RN_OK : differs(other, own);
}

// Reads all tensors. RN_CORRUPT: the checksum is another.
static rn_status check_sum(const rn_trainer *t, const rn_checkpoint *from, const char *path,
                           void *values) {
    rn_str sum = find_text(from, "crc32c");
    char text[16] = "";
    uint32_t crc = 0;
    if (sum.bytes != 8) return RN_OK; // of an earlier version
    memcpy(text, sum.data, sum.bytes);
    for (uint32_t i = 0; i < t->tensor_count; i++) {
        const rn_tensor_info *info = NULL;
        RN_TRY(find_tensor(from, &t->tensors[i], &info));
        RN_TRY(rn_checkpoint_load(from, info, t->tensors[i].dtype, values, t->tensors[i].bytes));
        crc = rn_crc32c(crc, values, t->tensors[i].bytes);
    }
    if (strtoul(text, NULL, 16) == crc) return RN_OK;
    return rn_hint(rn_error_locate(rn_fail(RN_CORRUPT,
                                           "the checkpoint is damaged: its checksum "
                                           "is %08x instead of %s",
                                           crc, text),
                                   path, RN_NO_OFFSET),
                   "an earlier one may be whole");
}

// Opens a checkpoint of this training that is whole.
static rn_status open_whole(rn_trainer *t, const char *path, const rn_trainer_scratch *scratch,
                            rn_checkpoint **out) {
    RN_TRY(rn_checkpoint_open(path, out));
    rn_status s = check_identity(t, *out);
    if (s == RN_OK) s = check_optimizer(t, *out);
    if (s == RN_OK) s = check_sum(t, *out, path, scratch->values);
    if (s == RN_OK) return RN_OK;
    rn_checkpoint_close(*out);
    *out = NULL;
    return s;
}

rn_status rn_trainer_verify(rn_trainer *trainer, const char *path) {
    rn_checkpoint *from = NULL;
    rn_trainer_scratch scratch = {0};
    RN_TRY(rn_trainer_scratch_take(trainer, &scratch));
    rn_status s = open_whole(trainer, path, &scratch, &from);
    rn_trainer_scratch_free(&scratch);
    rn_checkpoint_close(from);
    return s;
}

typedef struct progress {
    uint64_t steps, batches, clean_steps;
    double scale;
} progress;

// The numbers that rank 0 has read.
static rn_status share_progress(rn_trainer *t) {
    progress p = {t->steps, t->batches, t->clean_steps, t->scale};
    RN_TRY(rn_comm_broadcast(t->options.comm, 0, &p, sizeof p));
    t->steps = p.steps;
    t->batches = p.batches;
    t->clean_steps = p.clean_steps;
    t->scale = p.scale;
    return RN_OK;
}

rn_status rn_trainer_resume(rn_trainer *trainer, const char *path) {
    rn_comm *comm = trainer->options.comm;
    rn_checkpoint *from = NULL;
    rn_trainer_scratch scratch = {0};
    RN_TRY(rn_trainer_scratch_take(trainer, &scratch));
    rn_status s = RN_OK;
    if (rn_comm_rank(comm) == 0) {
        s = open_whole(trainer, path, &scratch, &from);
        if (s == RN_OK) s = read_steps(trainer, from);
    }
    s = rn_comm_agree(comm, s);
    if (s == RN_OK) s = share_progress(trainer);
    if (s == RN_OK) s = read_tensors(trainer, from, scratch.values);
    rn_trainer_scratch_free(&scratch);
    rn_checkpoint_close(from);
    return s;
}

void rn_trainer_set_run(rn_trainer *trainer, const char *identity) {
    snprintf(trainer->identity, sizeof trainer->identity, "%s", identity);
}
