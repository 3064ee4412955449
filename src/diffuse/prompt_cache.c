// prompt_cache.c — see prompt_cache.h.
#include "diffuse/prompt_cache.h"

#include "base/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct head {
    char magic[16];
    uint64_t hidden_count, pooled_count;
} head;
static const char magic[16] = "ration prompt 1";

// ---- keys ---------------------------------------------------------------------------------------

// A file is known by its size and the time of its last change.
static void add_files(rn_sha256 *hash, const rn_checkpoint *checkpoint) {
    for (size_t i = 0; i < rn_checkpoint_file_count(checkpoint); i++) {
        const rn_checkpoint_file_info *file = rn_checkpoint_file(checkpoint, i);
        struct stat s;
        if (stat(file->path, &s) != 0) memset(&s, 0, sizeof s);
        const int64_t facts[] = {(int64_t)file->bytes, (int64_t)s.st_mtim.tv_sec,
                                 (int64_t)s.st_mtim.tv_nsec};
        rn_sha256_add(hash, facts, sizeof facts);
        rn_sha256_add(hash, file->path, strlen(file->path) + 1);
    }
}

static void add_adapters(rn_sha256 *hash, const rn_image_component *c) {
    for (uint32_t i = 0; c->adapters && i < c->adapters->count; i++) {
        const rn_image_addition *a = &c->adapters->list[i];
        if (strcmp(a->component, c->name) != 0) continue;
        rn_sha256_add(hash, a->weight, strlen(a->weight) + 1);
        rn_sha256_add(hash, &a->low_rank.scale, sizeof a->low_rank.scale);
        rn_sha256_add(hash, a->down, a->down_bytes);
        rn_sha256_add(hash, a->up, a->up_bytes);
    }
}

static void add_sizes(rn_sha256 *hash, const rn_image_component *c) {
    uint32_t sizes[8] = {(uint32_t)c->kind};
    if (c->kind == RN_IMAGE_CLIP) {
        const rn_clip_config *t = &c->config.clip;
        const uint32_t own[] = {t->layers,    t->dim,        t->heads,
                                t->skip,      t->projection, (uint32_t)t->activation,
                                t->final_norm};
        memcpy(sizes + 1, own, sizeof own);
    } else {
        const rn_t5_config *t = &c->config.t5;
        const uint32_t own[] = {t->layers, t->dim, t->heads, t->buckets, t->farthest};
        memcpy(sizes + 1, own, sizeof own);
    }
    rn_sha256_add(hash, sizes, sizeof sizes);
}

rn_prompt_key rn_prompt_key_of(const rn_image_component *encoder, const char *target,
                               const int32_t *tokens, uint32_t count) {
    const char *device = target ? target : "cpu";
    rn_sha256 hash;
    uint8_t digest[RN_SHA256_BYTES];
    rn_prompt_key key = {0};
    rn_sha256_begin(&hash);
    rn_sha256_add(&hash, magic, sizeof magic);
    rn_sha256_add(&hash, device, strcspn(device, ":"));
    rn_sha256_add(&hash, encoder->prefix, strlen(encoder->prefix) + 1);
    add_sizes(&hash, encoder);
    add_files(&hash, encoder->checkpoint);
    add_adapters(&hash, encoder);
    rn_sha256_add(&hash, tokens, count * sizeof *tokens);
    rn_sha256_end(&hash, digest);
    rn_sha256_text(digest, key.text);
    return key;
}

// ---- files --------------------------------------------------------------------------------------

static void digest_numbers(const rn_prompt *p, uint8_t out[RN_SHA256_BYTES]) {
    rn_sha256 hash;
    rn_sha256_begin(&hash);
    rn_sha256_add(&hash, p->hidden, p->hidden_count * sizeof(float));
    rn_sha256_add(&hash, p->pooled, p->pooled_count * sizeof(float));
    rn_sha256_end(&hash, out);
}

static bool name_file(const char *folder, const rn_prompt_key *key, char out[PATH_MAX]) {
    return snprintf(out, PATH_MAX, "%s/%s.prompt", folder, key->text) < PATH_MAX;
}

static bool read_file(FILE *file, const rn_prompt *out) {
    head h;
    uint8_t digest[RN_SHA256_BYTES], must[RN_SHA256_BYTES];
    if (fread(&h, sizeof h, 1, file) != 1 || memcmp(h.magic, magic, sizeof magic) != 0 ||
        h.hidden_count != out->hidden_count || h.pooled_count != out->pooled_count)
        return false;
    if (fread(out->hidden, sizeof(float), h.hidden_count, file) != h.hidden_count ||
        fread(out->pooled, sizeof(float), h.pooled_count, file) != h.pooled_count ||
        fread(must, sizeof must, 1, file) != 1)
        return false;
    digest_numbers(out, digest);
    return memcmp(digest, must, sizeof must) == 0;
}

bool rn_prompt_load(const char *folder, const rn_prompt_key *key, const rn_prompt *out) {
    char path[PATH_MAX];
    FILE *file = name_file(folder, key, path) ? fopen(path, "rb") : NULL;
    if (!file) return false;
    bool found = read_file(file, out);
    fclose(file);
    return found;
}

static bool write_file(FILE *file, const rn_prompt *p) {
    head h = {.hidden_count = p->hidden_count, .pooled_count = p->pooled_count};
    uint8_t digest[RN_SHA256_BYTES];
    memcpy(h.magic, magic, sizeof magic);
    digest_numbers(p, digest);
    return fwrite(&h, sizeof h, 1, file) == 1 &&
           fwrite(p->hidden, sizeof(float), p->hidden_count, file) == p->hidden_count &&
           fwrite(p->pooled, sizeof(float), p->pooled_count, file) == p->pooled_count &&
           fwrite(digest, sizeof digest, 1, file) == 1;
}

rn_status rn_prompt_store(const char *folder, const rn_prompt_key *key, const rn_prompt *prompt) {
    char path[PATH_MAX], temporary[PATH_MAX];
    int fd = -1;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return rn_fail(RN_IO, "cannot make %s: %s", folder, strerror(errno));
    if (!name_file(folder, key, path))
        return rn_fail(RN_INVALID, "the path of the prompts' folder is too long");
    RN_TRY(rn_temporary_create(path, 0600, temporary, sizeof temporary, &fd));
    FILE *file = fdopen(fd, "wb");
    bool written = file && write_file(file, prompt) && fflush(file) == 0;
    rn_status s = RN_OK;
    if (!written || rename(temporary, path) != 0) {
        s = rn_fail(RN_IO, "cannot write %s: %s", path, strerror(errno));
        unlink(temporary);
    }
    if (file)
        fclose(file);
    else
        close(fd);
    return s;
}
