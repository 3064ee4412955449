// train_save.c — a training's files: checkpoints that are verified before older ones go, and the
// adapter.
//
//     checkpoint-120.safetensors    weights, moments, the step: --keep-checkpoints of them, the
//     newest last adapter_*, adapter.gguf       what is learned, of the last save
//
// A file appears whole or not at all. Killed at any moment, there is the checkpoint before, or the
// new one; one that is damaged later is passed over for the one before it.
#include "training.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

// Whether a name is a checkpoint's, and of which step.
static bool read_name(const char *name, uint64_t *out_step) {
    static const char begin[] = "checkpoint-";
    char *end = NULL;
    if (strncmp(name, begin, sizeof begin - 1) != 0) return false;
    const char *digits = name + sizeof begin - 1;
    if (digits[0] < '0' || digits[0] > '9') return false;
    errno = 0;
    *out_step = strtoull(digits, &end, 10);
    return errno == 0 && strcmp(end, ".safetensors") == 0;
}

static int newest_first(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

// Steps of the checkpoints in --out, the newest first.
static size_t list_checkpoints(const training *t, uint64_t out[TRAIN_MOST_CHECKPOINTS]) {
    DIR *folder = opendir(t->out);
    size_t count = 0;
    for (struct dirent *entry;
         folder && count < TRAIN_MOST_CHECKPOINTS && (entry = readdir(folder));)
        if (read_name(entry->d_name, &out[count])) count++;
    if (folder) closedir(folder);
    qsort(out, count, sizeof *out, newest_first);
    return count;
}

static rn_status checkpoint_path(const training *t, uint64_t step, char out[TRAIN_PATH_BYTES]) {
    char name[64];
    snprintf(name, sizeof name, "checkpoint-%llu.safetensors", (unsigned long long)step);
    return train_path(t, name, out);
}

bool has_checkpoint(const training *t) {
    uint64_t steps[TRAIN_MOST_CHECKPOINTS];
    return list_checkpoints(t, steps) > 0;
}

// ---- room ---------------------------------------------------------------------------------------

// For --keep-checkpoints checkpoints and one more, and what else is written.
rn_status check_space(training *t) {
    rn_train_phase_info save = rn_train_get_phase(rn_trainer_program(t->trainer), RN_TRAIN_SAVE);
    uint64_t steps[TRAIN_MOST_CHECKPOINTS], there = list_checkpoints(t, steps);
    uint64_t keep = train_count(t, "keep-checkpoints") + 1, more = keep > there ? keep - there : 1;
    struct statvfs disk;
    if (statvfs(t->out, &disk) != 0) return RN_OK; // a save will say
    uint64_t left = (uint64_t)disk.f_bavail * disk.f_frsize, need = 0;
    if (__builtin_mul_overflow(save.file_bytes, more, &need)) need = UINT64_MAX;
    if (left >= need) return RN_OK;
    return rn_hint(
        rn_error_locate(rn_fail(RN_IO, "the disk has %s left, and %llu checkpoints take up to %s",
                                rn_size_format(left).text, (unsigned long long)more,
                                rn_size_format(need).text),
                        t->out, RN_NO_OFFSET),
        "make room, or take a smaller --keep-checkpoints");
}

// ---- going on -----------------------------------------------------------------------------------

typedef struct checkpoint_list {
    uint64_t count, steps[TRAIN_MOST_CHECKPOINTS];
} checkpoint_list;

// All ranks go on from what rank 0 finds.
rn_status resume_training(training *t) {
    checkpoint_list list = {0};
    char path[TRAIN_PATH_BYTES];
    if (t->rank == 0) list.count = list_checkpoints(t, list.steps);
    RN_TRY(from_first(t, &list, sizeof list));
    rn_status s = rn_fail(RN_NOT_FOUND, "'%s' has no checkpoint", t->out);
    for (size_t i = 0; i < list.count; i++) {
        RN_TRY(checkpoint_path(t, list.steps[i], path));
        begin_phase(t, RN_TRAIN_RESUME);
        s = rn_trainer_resume(t->trainer, path);
        end_phase(t);
        if (s == RN_OK) t->saved_step = list.steps[i];
        if (s != RN_CORRUPT) return s;
        if (t->rank == 0)
            fprintf(stderr, "ration: %s: %s; it is passed over\n", path, rn_last_error()->message);
    }
    return s;
}

// ---- saving -------------------------------------------------------------------------------------

// Checkpoints of this training beyond --keep-checkpoints, where the newest is whole.
static void remove_older(training *t, uint64_t newest) {
    uint64_t steps[TRAIN_MOST_CHECKPOINTS], kept = 0, keep = train_count(t, "keep-checkpoints");
    size_t count = list_checkpoints(t, steps);
    char path[TRAIN_PATH_BYTES];
    for (size_t i = 0; i < count; i++) {
        if (steps[i] > newest || kept++ < keep) continue;
        if (checkpoint_path(t, steps[i], path) != RN_OK) continue;
        rn_status s = rn_trainer_verify(t->trainer, path);
        if (s == RN_OK || s == RN_CORRUPT) unlink(path); // never another training's
    }
}

static rn_status export_adapter(const training *t) {
    const char *base = t->in->word_count ? t->in->words[0] : train_text(t, "base");
    char path[TRAIN_PATH_BYTES];
    RN_TRY(rn_trainer_export_adapter(t->trainer, base[0] ? base : NULL, t->out));
    RN_TRY(train_path(t, "adapter.gguf", path));
    rn_status s = rn_trainer_export_adapter(t->trainer, NULL, path);
    return s == RN_UNSUPPORTED ? RN_OK : s; // modules that GGUF files have no names for
}

// All weights, once, at the end.
static rn_status export_model(const training *t) {
    char path[TRAIN_PATH_BYTES];
    if (rn_trainer_steps(t->trainer) < t->steps) return RN_OK;
    size_t bytes = strlen(t->base);
    bool gguf = bytes > 5 && strcmp(t->base + bytes - 5, ".gguf") == 0;
    RN_TRY(train_path(t, gguf ? "model.gguf" : "model", path));
    return rn_trainer_export_model(t->trainer, path);
}

static rn_status export_all(training *t) {
    RN_TRY(is_method(t, "full") ? export_model(t) : export_adapter(t));
    remove_older(t, rn_trainer_steps(t->trainer));
    return RN_OK;
}

static rn_status export_page(training *t) {
    return write_page(t);
}

rn_status save_training(training *t) {
    uint64_t step = rn_trainer_steps(t->trainer);
    char path[TRAIN_PATH_BYTES];
    begin_phase(t, RN_TRAIN_SAVE);
    RN_TRY(checkpoint_path(t, step, path));
    if (t->saved_step != step) RN_TRY(rn_trainer_save(t->trainer, path));
    t->saved_step = step;
    RN_TRY(only_first(t, export_all));
    end_phase(t);
    return only_first(t, export_page);
}

// ---- merging ------------------------------------------------------------------------------------

rn_status merge_model(const training *t, const char *model) {
    rn_adapter adapter = {.path = t->out, .scale = 1};
    rn_model_options options = {
        .adapters = &adapter, .adapter_count = 1, .without_tokenizer = true};
    rn_model *opened = NULL;
    char path[TRAIN_PATH_BYTES];
    size_t bytes = strlen(model);
    bool gguf = bytes > 5 && strcmp(model + bytes - 5, ".gguf") == 0;
    RN_TRY(train_path(t, gguf ? "merged.gguf" : "merged", path));
    rn_ledger_reset_peaks();
    RN_TRY(rn_model_open(model, &options, &opened));
    rn_status s = rn_model_merge(opened, path);
    rn_model_close(opened);
    if (s == RN_OK && !train_bool(t, "quiet"))
        fprintf(stderr, "  merge     planned      %12s %12s\nmerged model in %s\n",
                rn_size_format(t->merge_bytes).text,
                rn_size_format(rn_ledger_total(RN_DEVICE_HOST).peak_bytes).text, path);
    return s;
}
