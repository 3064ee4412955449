// programs.c — compiled programs in a folder: $RATION_PROGRAMS, or ration/programs in the user's
// cache folder. One file a program, named by the hash of all that it depends on:
//
//     "ration program 1\n" | hash of the rest (32) | the plugin's bytes
//
// The text of a program has no weights, so neither has the name. A file that is damaged is as good
// as none.
#include "backend/pjrt/pjrt.h"

#include "base/file.h"
#include "base/sha256.h"

#include <ration/log.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "ration program 1\n"
enum { MAGIC_BYTES = sizeof MAGIC - 1, HEAD_BYTES = MAGIC_BYTES + RN_SHA256_BYTES };

// Fields are told apart by their lengths.
static void add_field(rn_sha256 *hash, const void *data, uint64_t bytes) {
    rn_sha256_add(hash, &bytes, sizeof bytes);
    rn_sha256_add(hash, data, bytes);
}

static void add_text(rn_sha256 *hash, const char *text) {
    add_field(hash, text, strlen(text));
}

rn_pjrt_key rn_pjrt_program_key(const rn_pjrt_device *device, rn_str text, rn_str options) {
    uint8_t digest[RN_SHA256_BYTES];
    struct stat file = {0};
    rn_pjrt_key key = {{0}};
    rn_sha256 hash;
    (void)!stat(device->plugin->path, &file);
    int64_t identity[] = {file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec,
                          device->plugin->api->version.minor};
    const char *flags = getenv("XLA_FLAGS"), *neuron = getenv("NEURON_CC_FLAGS");
    rn_sha256_begin(&hash);
    add_field(&hash, text.data, text.bytes);
    add_field(&hash, options.data, options.bytes);
    add_field(&hash, identity, sizeof identity);
    add_text(&hash, device->platform_version);
    add_text(&hash, device->kind);
    add_text(&hash, flags ? flags : "");
    add_text(&hash, neuron ? neuron : "");
    rn_sha256_end(&hash, digest);
    rn_sha256_text(digest, key.text);
    return key;
}

static rn_status find_file(const rn_pjrt_key *key, char *out, size_t bytes) {
    const char *told = getenv("RATION_PROGRAMS");
    char folder[4096], name[80];
    if (told && told[0])
        snprintf(folder, sizeof folder, "%s", told);
    else
        RN_TRY(rn_pjrt_cache_path("programs", folder, sizeof folder));
    if (mkdir(folder, 0755) != 0 && errno != EEXIST) return rn_file_fail("make", folder);
    snprintf(name, sizeof name, "%s.pjrt", key->text);
    return rn_path_join(folder, name, out, bytes);
}

static void hash_of(const void *data, size_t bytes, uint8_t out[RN_SHA256_BYTES]) {
    rn_sha256 hash;
    rn_sha256_begin(&hash);
    rn_sha256_add(&hash, data, bytes);
    rn_sha256_end(&hash, out);
}

bool rn_pjrt_program_read(const rn_pjrt_key *key, rn_buffer *out) {
    char path[4300];
    uint8_t digest[RN_SHA256_BYTES];
    if (find_file(key, path, sizeof path) != RN_OK || !rn_file_exists(path)) return false;
    if (rn_file_read_all(path, out) != RN_OK) {
        rn_log(RN_LOG_WARNING, "xla", "%s cannot be read: %s", path, rn_last_error()->message);
        return false;
    }
    bool whole = out->bytes > HEAD_BYTES && memcmp(out->data, MAGIC, MAGIC_BYTES) == 0;
    if (whole) {
        hash_of(out->data + HEAD_BYTES, out->bytes - HEAD_BYTES, digest);
        whole = memcmp(out->data + MAGIC_BYTES, digest, sizeof digest) == 0;
    }
    if (!whole) {
        rn_log(RN_LOG_WARNING, "xla", "%s is damaged: the program is compiled again", path);
        return false;
    }
    out->bytes -= HEAD_BYTES;
    memmove(out->data, out->data + HEAD_BYTES, out->bytes);
    return true;
}

bool rn_pjrt_program_write(const rn_pjrt_key *key, const void *data, size_t bytes) {
    char path[4300];
    uint8_t digest[RN_SHA256_BYTES];
    rn_buffer file;
    rn_buffer_init(&file, &rn_system_allocator, bytes + HEAD_BYTES);
    hash_of(data, bytes, digest);
    rn_status s = find_file(key, path, sizeof path);
    if (s == RN_OK) s = rn_buffer_append(&file, MAGIC, MAGIC_BYTES);
    if (s == RN_OK) s = rn_buffer_append(&file, digest, sizeof digest);
    if (s == RN_OK) s = rn_buffer_append(&file, data, bytes);
    if (s == RN_OK) s = rn_file_replace(path, file.data, file.bytes);
    rn_buffer_free(&file);
    if (s != RN_OK)
        rn_log(RN_LOG_WARNING, "xla", "the program is not kept: %s", rn_last_error()->message);
    return s == RN_OK;
}

void rn_pjrt_program_remove(const rn_pjrt_key *key) {
    char path[4300];
    if (find_file(key, path, sizeof path) == RN_OK) (void)!unlink(path);
}
