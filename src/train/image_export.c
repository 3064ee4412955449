// image_export.c — what an image trainer leaves: checkpoints with averages, and the model with the
// part that was trained.
#include "train/image_trainer.h"

#include "base/file.h"
#include "base/str.h"
#include "memory/account.h"

#include <ration/writer.h>

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

// ---- checkpoints --------------------------------------------------------------------------------

static rn_status name_average(const char *path, char out[RN_IMAGE_PATH]) {
    if ((size_t)snprintf(out, RN_IMAGE_PATH, "%s.average", path) < RN_IMAGE_PATH) return RN_OK;
    return rn_fail(RN_INVALID, "the path of a checkpoint is too long");
}

// With the number of the step, so that it cannot be taken for that of another one.
rn_status rn_image_trainer_save(rn_image_trainer *t, const char *path) {
    char name[RN_IMAGE_PATH], step[24];
    rn_writer *writer = NULL;
    if (t->average) {
        rn_write_tensor tensor = {
            .name = RN_STR("average"), .dtype = RN_DTYPE_F32, .rank = 1, .dims = &t->average_count};
        snprintf(step, sizeof step, "%llu", (unsigned long long)t->trainer->steps);
        rn_metadata at = {.key = RN_STR("step"),
                          .kind = RN_METADATA_TEXT,
                          .gguf_type = 8,
                          .text = rn_str_from(step)};
        rn_writer_options options = {
            .metadata = &at, .metadata_count = 1, .buffer_bytes = 64 << 10};
        RN_TRY(name_average(path, name));
        RN_TRY(rn_writer_create(name, &tensor, 1, &options, &writer));
        rn_status s = rn_writer_append(writer, t->average, t->average_count * sizeof(float));
        if (s == RN_OK) s = rn_writer_commit(writer);
        rn_writer_destroy(writer);
        RN_TRY(s);
    }
    return rn_trainer_save(t->trainer, path);
}

static rn_status read_average(rn_image_trainer *t, const rn_checkpoint *file) {
    const rn_tensor_info *info = rn_checkpoint_find(file, "average");
    char step[24];
    snprintf(step, sizeof step, "%llu", (unsigned long long)t->trainer->steps);
    bool same = info && info->elements == t->average_count && rn_checkpoint_metadata_count(file) &&
                rn_str_equal(rn_checkpoint_metadata(file, 0)->text, rn_str_from(step));
    if (!same) return rn_fail(RN_INVALID, "the averages are of another step or model");
    return rn_checkpoint_load(file, info, RN_DTYPE_F32, t->average,
                              t->average_count * sizeof(float));
}

rn_status rn_image_trainer_resume(rn_image_trainer *t, const char *path) {
    char name[RN_IMAGE_PATH];
    rn_checkpoint *file = NULL;
    RN_TRY(rn_trainer_resume(t->trainer, path));
    if (!t->average) return RN_OK;
    RN_TRY(name_average(path, name));
    RN_TRY(rn_checkpoint_open(name, &file));
    rn_status s = read_average(t, file);
    rn_checkpoint_close(file);
    return s == RN_OK ? RN_OK : rn_error_locate(s, name, RN_NO_OFFSET);
}

// ---- a folder -----------------------------------------------------------------------------------

static rn_status make_folder(const char *path) {
    if (mkdir(path, 0777) == 0 || errno == EEXIST) return RN_OK;
    return rn_file_fail("make", path);
}

static rn_status copy_bytes(FILE *in, const char *from, FILE *out, const char *to) {
    enum { PIECE = 256 << 10 };
    void *piece = NULL;
    rn_status s = rn_alloc(RN_HOST_IO, PIECE, &piece);
    for (size_t bytes; s == RN_OK && (bytes = fread(piece, 1, PIECE, in)) > 0;)
        if (fwrite(piece, 1, bytes, out) != bytes) s = rn_file_fail("write", to);
    if (s == RN_OK && ferror(in)) s = rn_file_fail("read", from);
    rn_free(RN_HOST_IO, piece, PIECE);
    return s;
}

// It appears whole: an earlier export may be in use.
static rn_status copy_file(const char *from, const char *to) {
    char part[RN_IMAGE_PATH];
    if ((size_t)snprintf(part, sizeof part, "%s.part", to) >= sizeof part)
        return rn_fail(RN_INVALID, "the path of a file is too long: %s", to);
    FILE *in = fopen(from, "rbe");
    if (!in) return rn_file_fail("open", from);
    FILE *out = fopen(part, "wbe");
    rn_status s = out ? copy_bytes(in, from, out, part) : rn_file_fail("write", part);
    fclose(in);
    if (out && fclose(out) != 0 && s == RN_OK) s = rn_file_fail("write", part);
    if (s == RN_OK && rename(part, to) != 0) s = rn_file_fail("write", to);
    if (s != RN_OK) remove(part);
    return s;
}

// The files of a folder; `left_out` (a part) has its configuration copied alone.
static rn_status copy_folder(const char *from, const char *to, const char *left_out, int depth) {
    DIR *list = opendir(from);
    if (!list) return rn_file_fail("open", from);
    rn_status s = make_folder(to);
    for (struct dirent *entry; s == RN_OK && (entry = readdir(list));) {
        char source[RN_IMAGE_PATH], target[RN_IMAGE_PATH];
        const char *name = entry->d_name;
        bool weights = rn_str_ends(rn_str_from(name), RN_STR(".safetensors")) ||
                       rn_str_ends(rn_str_from(name), RN_STR(".index.json"));
        if (name[0] == '.' || (depth == 1 && left_out && weights)) continue;
        s = rn_path_join(from, name, source, sizeof source);
        if (s == RN_OK) s = rn_path_join(to, name, target, sizeof target);
        if (s != RN_OK) break;
        if (!rn_file_is_folder(source))
            s = copy_file(source, target);
        else if (depth == 0)
            s = copy_folder(source, target, left_out && strcmp(name, left_out) == 0 ? name : NULL,
                            depth + 1);
    }
    closedir(list);
    return s;
}

// ---- the scale of latents -----------------------------------------------------------------------

// {"scaling_factor": 0.18215, ...}: the number alone is replaced; where there is none it comes
// first.
static rn_status write_scaling(const char *folder, double scaling) {
    static const char key[] = "\"scaling_factor\"";
    char path[RN_IMAGE_PATH], number[64];
    rn_buffer old, new;
    RN_TRY(rn_image_part_path(folder, "vae", "config.json", path));
    rn_buffer_init(&old, RN_HOST_IO, 1 << 20);
    rn_buffer_init(&new, RN_HOST_IO, 2 << 20);
    rn_status s = rn_file_read_all(path, &old);
    if (s == RN_OK) s = rn_buffer_append(&old, "", 1);
    const char *text = old.data, *at = s == RN_OK ? strstr(text, key) : NULL, *rest = NULL;
    snprintf(number, sizeof number, at ? "%s%.6g" : "{\n  \"scaling_factor\": %s%.6g,", "",
             scaling);
    if (at) {
        at += sizeof key - 1;
        at += strspn(at, " \t\r\n:");
        rest = at + strcspn(at, ",}\r\n");
    } else if (s == RN_OK) {
        at = text;
        rest = strchr(text, '{');
        if (!rest) s = rn_fail(RN_CORRUPT, "vae/config.json is no object");
        rest = rest ? rest + 1 : text;
    }
    if (s == RN_OK) s = rn_buffer_append(&new, text, (size_t)(at - text));
    if (s == RN_OK) s = rn_buffer_append(&new, number, strlen(number));
    if (s == RN_OK) s = rn_buffer_append(&new, rest, strlen(rest));
    if (s == RN_OK) s = rn_file_replace(path, new.data, new.bytes);
    rn_buffer_free(&old);
    rn_buffer_free(&new);
    return s;
}

// ---- the model ----------------------------------------------------------------------------------

static rn_status write_part(rn_image_trainer *t, rn_dtype dtype, const char *path) {
    RN_TRY(rn_image_swap_averages(t));
    rn_status s = rn_trainer_export(t->trainer, dtype, path);
    rn_status back = rn_image_swap_averages(t);
    return s == RN_OK ? back : s;
}

static rn_status export_additions(rn_image_trainer *t, const char *folder) {
    RN_TRY(make_folder(folder));
    RN_TRY(rn_image_swap_averages(t));
    rn_status s = rn_image_lora_export(t, folder);
    rn_status back = rn_image_swap_averages(t);
    return s == RN_OK ? back : s;
}

rn_status rn_image_trainer_export(rn_image_trainer *t, rn_dtype dtype, const char *folder) {
    const char *part = t->diffuses ? t->model->denoiser.name : "vae";
    if (t->lora_count) return export_additions(t, folder);
    char path[RN_IMAGE_PATH];
    struct stat from, to;
    RN_TRY(make_folder(folder));
    if (stat(t->folder, &from) == 0 && stat(folder, &to) == 0 && from.st_dev == to.st_dev &&
        from.st_ino == to.st_ino)
        return rn_fail(RN_INVALID, "the model would replace itself: name another folder");
    RN_TRY(copy_folder(t->folder, folder, part, 0));
    RN_TRY(rn_image_part_path(folder, part, "diffusion_pytorch_model.safetensors", path));
    RN_TRY(write_part(t, dtype, path));
    double deviation = sqrt(t->latent_square - t->latent_mean * t->latent_mean);
    return !t->diffuses && deviation > 0 && isfinite(deviation)
               ? write_scaling(folder, 1 / deviation)
               : RN_OK;
}
