// train_base.c — the frozen base of QLoRA: a folder of safetensors, or an image model's file,
// quantised once to nf4 or int8.
//
//     OUT/base-nf4_dq/model.safetensors    every matrix of the layers so, the rest as it was
//     OUT/base-nf4_dq/source.txt           what it was made of; written last
//
// A training that finds the same source there uses it again. nf4's scales, one for 64 weights, are
// quantised, too (--double-quant: 4.127 bits a weight), or f32 (4.5). int8 has one f32 a row.
#include "training.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SOURCE_BYTES = 16 << 10, COPY_BYTES = 64 << 10 };

static bool ends_in(const char *name, const char *ending) {
    size_t a = strlen(name), b = strlen(ending);
    return a >= b && strcmp(name + a - b, ending) == 0;
}

static rn_status join(const char *folder, const char *name, char out[TRAIN_PATH_BYTES]) {
    if ((size_t)snprintf(out, TRAIN_PATH_BYTES, "%s/%s", folder, name) < TRAIN_PATH_BYTES)
        return RN_OK;
    return rn_fail(RN_INVALID, "the path '%.60s...' is too long", folder);
}

static rn_status fail_at(const char *what, const char *path) {
    return rn_error_locate(rn_fail(RN_IO, "%s: %s", what, strerror(errno)), path, RN_NO_OFFSET);
}

typedef struct file_sums {
    uint64_t files, bytes, times;
} file_sums;

static void add_source(file_sums *s, const char *path) {
    struct stat file;
    if (stat(path, &file) != 0) return;
    s->files++;
    s->bytes += (uint64_t)file.st_size;
    s->times += (uint64_t)file.st_mtim.tv_sec * 1000000007u + (uint64_t)file.st_mtim.tv_nsec;
}

// Names, sizes and times of the weights' files, in no certain order: summed.
static rn_status describe(const quantised_base *base, const char *dtype, char out[SOURCE_BYTES]) {
    file_sums s = {0};
    char path[TRAIN_PATH_BYTES];
    DIR *folder = opendir(base->model);
    if (!folder && ends_in(base->model, ".safetensors")) add_source(&s, base->model);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (ends_in(entry->d_name, ".safetensors") &&
            join(base->model, entry->d_name, path) == RN_OK)
            add_source(&s, path);
    if (folder) closedir(folder);
    snprintf(out, SOURCE_BYTES, "%s of %s: %llu files, %llu bytes, %llu\n", dtype, base->model,
             (unsigned long long)s.files, (unsigned long long)s.bytes, (unsigned long long)s.times);
    if (s.files) return RN_OK;
    return rn_hint(rn_fail(RN_UNSUPPORTED, "'%s' has no safetensors to quantise", base->model),
                   "a GGUF file is trained over as it is: --method lora");
}

static bool is_there(const char *marker, const char *source) {
    char text[SOURCE_BYTES] = "";
    FILE *file = fopen(marker, "r");
    if (!file) return false;
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[bytes] = 0;
    return strcmp(text, source) == 0;
}

static rn_status copy_file(const char *from, const char *to) {
    char chunk[COPY_BYTES];
    FILE *in = fopen(from, "rb"), *out = in ? fopen(to, "wb") : NULL;
    size_t bytes = 0;
    bool good = out != NULL;
    while (good && (bytes = fread(chunk, 1, sizeof chunk, in)) > 0)
        good = fwrite(chunk, 1, bytes, out) == bytes;
    good = good && !ferror(in);
    if (in) fclose(in);
    if (out && fclose(out) != 0) good = false;
    return good ? RN_OK : fail_at("cannot copy", from);
}

// Configuration, tokenizer and templates.
static rn_status copy_companions(const char *model, const char *to) {
    static const char *const endings[] = {".json", ".txt", ".model", ".jinja"};
    DIR *folder = opendir(model);
    char from[TRAIN_PATH_BYTES], path[TRAIN_PATH_BYTES];
    rn_status s = folder ? RN_OK : fail_at("cannot read the folder", model);
    for (struct dirent *entry; s == RN_OK && (entry = readdir(folder));) {
        bool wanted = false;
        for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
            wanted |= ends_in(entry->d_name, endings[i]);
        if (!wanted || ends_in(entry->d_name, ".index.json")) continue;
        s = join(model, entry->d_name, from);
        if (s == RN_OK) s = join(to, entry->d_name, path);
        if (s == RN_OK) s = copy_file(from, path);
    }
    if (folder) closedir(folder);
    return s;
}

static rn_status write_marker(const char *path, const char *source) {
    FILE *file = fopen(path, "w");
    bool good = file && fputs(source, file) >= 0;
    if (file && fclose(file) != 0) good = false;
    return good ? RN_OK : fail_at("cannot write", path);
}

static rn_status quantise(const quantised_base *base, rn_dtype to, const char *folder) {
    char path[TRAIN_PATH_BYTES];
    uint64_t all = base->in->budget.total_bytes; // nothing of the training is there yet
    rn_convert_options options = {.to = to,
                                  .exclude = base->exclude,
                                  .exclude_count = base->exclude_count,
                                  .no_default_excludes = base->exclude != NULL,
                                  .budget_bytes = all < 256 << 20 ? all : 256 << 20,
                                  .thread_count = rn_settings_count(base->in->settings, "threads"),
                                  .cancel = &interrupted};
    rn_convert_result result = {0};
    RN_TRY(join(folder, "model.safetensors", path));
    rn_ledger_reset_peaks();
    uint64_t before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    RN_TRY(rn_convert(base->model, path, &options, &result));
    if (!rn_settings_bool(base->in->settings, "quiet"))
        fprintf(stderr,
                "quantise: %zu matrices to %s in %.1f s, buffers %s, at most %s on the ledger; "
                "kept in %s\n",
                result.converted_count, rn_dtype_get(to)->name, result.seconds,
                rn_size_format(result.buffer_bytes).text,
                rn_size_format(rn_ledger_total(RN_DEVICE_HOST).peak_bytes - before).text, folder);
    return ends_in(base->model, ".safetensors") ? RN_OK : copy_companions(base->model, folder);
}

static rn_status make_folders(const quantised_base *base, const char *folder) {
    const char *const both[] = {base->out, folder};
    for (int i = 0; i < 2; i++)
        if (mkdir(both[i], 0777) != 0 && errno != EEXIST)
            return fail_at("cannot make the folder", both[i]);
    return RN_OK;
}

rn_dtype quantised_base_dtype(const invocation *in) {
    if (strcmp(rn_settings_text(in->settings, "base-dtype"), "int8") == 0) return RN_DTYPE_INT8;
    return rn_settings_bool(in->settings, "double-quant") ? RN_DTYPE_NF4_DQ : RN_DTYPE_NF4;
}

rn_status make_quantised_base(const quantised_base *base, char out_path[TRAIN_PATH_BYTES]) {
    char source[SOURCE_BYTES], marker[TRAIN_PATH_BYTES], name[64], folder[TRAIN_PATH_BYTES];
    rn_dtype to = quantised_base_dtype(base->in);
    if (base->of_images && to == RN_DTYPE_NF4_DQ) to = RN_DTYPE_NF4;
    if (!base->model)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "--method qlora quantises a folder of safetensors"),
                       "a GGUF file is trained over as it is: --method lora");
    RN_TRY(describe(base, rn_dtype_get(to)->name, source));
    snprintf(name, sizeof name, "base-%s%s%s", rn_dtype_get(to)->name, base->part[0] ? "-" : "",
             base->part);
    RN_TRY(join(base->out, name, folder));
    RN_TRY(join(folder, "source.txt", marker));
    if (!is_there(marker, source)) {
        RN_TRY(make_folders(base, folder));
        unlink(marker);
        RN_TRY(quantise(base, to, folder));
        RN_TRY(write_marker(marker, source));
    }
    if (ends_in(base->model, ".safetensors")) return join(folder, "model.safetensors", out_path);
    snprintf(out_path, TRAIN_PATH_BYTES, "%s", folder);
    return RN_OK;
}
