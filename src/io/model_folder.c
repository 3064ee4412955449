// model_folder.c — which files of a folder are the model.
//
// In order: a shard index, model.safetensors (or diffusers' name), the only *.safetensors, the only
// *.gguf. An index names each tensor's file, and the files must agree with it:
//
//     {"metadata": {...}, "weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
#include "io/checkpoint.h"
#include "io/json_read.h"

#include "base/file.h"
#include "memory/account.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/param.h>

enum { MAX_INDEX_BYTES = 64 << 20, MAX_SHARDS = 4096 };

typedef struct shard_index {
    rn_checkpoint *checkpoint;
    char folder[PATH_MAX];
    rn_json_reader json;
    rn_map shards;   // file name -> its number
    rn_map expected; // tensor name -> shard number
} shard_index;

// A file name only: an index must not reach outside its folder.
static bool is_plain_name(rn_str name) {
    return name.bytes > 0 && name.bytes < 256 && !memchr(name.data, '/', name.bytes) &&
           !memchr(name.data, '\0', name.bytes) && name.data[0] != '.';
}

static rn_status add_shard(shard_index *index, rn_str name, uint64_t *out_number) {
    void *copy;
    if (rn_map_find(&index->shards, name, out_number)) return RN_OK;
    if (!is_plain_name(name))
        return rn_fail(RN_CORRUPT, "the index names '%.*s', which is no file of its folder",
                       RN_STR_ARG(name));
    if (index->shards.count == MAX_SHARDS)
        return rn_fail(RN_UNSUPPORTED, "the index has more than %d files", MAX_SHARDS);
    RN_TRY(rn_arena_copy(&index->checkpoint->arena, name.data, name.bytes, &copy));
    *out_number = index->shards.count;
    return rn_map_add(&index->shards, (rn_str){copy, name.bytes}, *out_number, NULL);
}

static rn_status read_weight_map(shard_index *index) {
    rn_json_item item;
    RN_TRY(rn_json_expect(&index->json, RN_JSON_OBJECT, NULL));
    while (true) {
        void *name;
        uint64_t number;
        bool existing;
        RN_TRY(rn_json_next(&index->json, &item));
        if (item.kind == RN_JSON_OBJECT_END) return RN_OK;
        rn_str key = item.text;
        RN_TRY(rn_arena_copy(&index->checkpoint->arena, key.data, key.bytes, &name));
        RN_TRY(rn_json_expect(&index->json, RN_JSON_STRING, &item));
        RN_TRY(add_shard(index, item.text, &number));
        key.data = name;
        RN_TRY(rn_map_add(&index->expected, key, number, &existing));
        if (existing)
            return rn_fail(RN_CORRUPT, "the index names tensor '%.*s' twice", RN_STR_ARG(key));
    }
}

static rn_status read_index_fields(shard_index *index) {
    rn_json_item item;
    bool found = false;
    RN_TRY(rn_json_expect(&index->json, RN_JSON_OBJECT, NULL));
    while (true) {
        RN_TRY(rn_json_next(&index->json, &item));
        if (item.kind == RN_JSON_OBJECT_END) break;
        bool is_map = rn_str_equal(item.text, RN_STR("weight_map"));
        if (is_map && found) return rn_fail(RN_CORRUPT, "weight_map is there twice");
        found |= is_map;
        RN_TRY(is_map ? read_weight_map(index) : rn_json_skip(&index->json));
    }
    RN_TRY(rn_json_expect(&index->json, RN_JSON_END, NULL));
    if (found && index->expected.count > 0) return RN_OK;
    return rn_fail(RN_CORRUPT, found ? "the index names no tensor" : "the index has no weight_map");
}

static rn_status parse_index(shard_index *index, const char *path) {
    rn_buffer text;
    rn_buffer_init(&text, RN_HOST_IO, MAX_INDEX_BYTES);
    rn_status s = rn_file_read_all(path, &text);
    rn_json_reader_init(&index->json, (rn_str){text.data, text.bytes}, RN_HOST_IO);
    if (s == RN_OK) s = read_index_fields(index);
    rn_json_reader_free(&index->json);
    rn_buffer_free(&text);
    return s == RN_OK ? s : rn_error_locate(s, path, rn_last_error()->offset);
}

static int compare_names(const void *left, const void *right) {
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

// Shards in the order of their names, which is the order of their numbers.
static rn_status read_shards(shard_index *index) {
    const char *names[MAX_SHARDS];
    size_t count = rn_map_keys(&index->shards, names, MAX_SHARDS);
    qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 0; i < count; i++) {
        char path[PATH_MAX];
        uint32_t file;
        RN_TRY(rn_path_join(index->folder, names[i], path, sizeof path));
        rn_status s = rn_checkpoint_add_file(index->checkpoint, path, &file);
        if (s != RN_OK) return rn_hint(s, "a shard that the index names is missing or unreadable");
        s = rn_safetensors_read(index->checkpoint, file);
        if (s != RN_OK) return rn_error_locate(s, path, rn_last_error()->offset);
    }
    return RN_OK;
}

// Every tensor is where the index says, and the index names no other.
static rn_status check_agreement(const shard_index *index) {
    const rn_checkpoint *checkpoint = index->checkpoint;
    for (size_t i = 0; i < checkpoint->tensor_count; i++) {
        const rn_tensor_info *tensor = &checkpoint->tensors[i];
        const char *path = checkpoint->files[tensor->file].info.path;
        uint64_t expected, actual;
        if (!rn_map_find(&index->expected, tensor->name, &expected))
            return rn_fail(RN_CORRUPT, "%s holds tensor '%.*s', which the index does not name",
                           path, RN_STR_ARG(tensor->name));
        const char *name = strrchr(path, '/') + 1;
        if (!rn_map_find(&index->shards, rn_str_from(name), &actual) || actual != expected)
            return rn_fail(RN_CORRUPT, "tensor '%.*s' is in %s, the index says otherwise",
                           RN_STR_ARG(tensor->name), path);
    }
    if (checkpoint->tensor_count == index->expected.count) return RN_OK;
    return rn_fail(RN_CORRUPT, "the index names %zu tensors, the files hold %zu",
                   index->expected.count, checkpoint->tensor_count);
}

rn_status rn_shard_index_read(rn_checkpoint *checkpoint, const char *path) {
    shard_index index = {.checkpoint = checkpoint};
    snprintf(index.folder, sizeof index.folder, "%s", path);
    char *slash = strrchr(index.folder, '/');
    if (slash)
        *slash = '\0';
    else
        snprintf(index.folder, sizeof index.folder, ".");
    rn_map_init(&index.shards, RN_HOST_IO);
    rn_map_init(&index.expected, RN_HOST_IO);
    rn_status s = parse_index(&index, path);
    if (s == RN_OK) s = read_shards(&index);
    if (s == RN_OK) s = check_agreement(&index);
    rn_map_free(&index.expected);
    rn_map_free(&index.shards);
    return s;
}

// ---- folders --------------------------------------------------------------------------

// The only file that ends so; *out_count says how many there are.
static rn_status find_only(const char *folder, rn_str suffix, char *out_path, size_t capacity,
                           size_t *out_count) {
    DIR *dir = opendir(folder);
    *out_count = 0;
    if (!dir) return rn_file_fail("open", folder);
    rn_status s = RN_OK;
    for (struct dirent *entry; s == RN_OK && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || !rn_str_ends(rn_str_from(entry->d_name), suffix)) continue;
        if ((*out_count)++ == 0) s = rn_path_join(folder, entry->d_name, out_path, capacity);
    }
    closedir(dir);
    return s;
}

static rn_status read_file(rn_checkpoint *checkpoint, const char *path, bool gguf) {
    uint32_t file;
    RN_TRY(rn_checkpoint_add_file(checkpoint, path, &file));
    return gguf ? rn_gguf_read(checkpoint, file) : rn_safetensors_read(checkpoint, file);
}

// Modules of Sentence Transformers behind a model: "2_Dense/model.safetensors", whose tensors are
// called "2_Dense.linear.weight".
static rn_status read_modules(rn_checkpoint *checkpoint, const char *folder) {
    char name[40], path[PATH_MAX];
    for (int i = 1; i <= 9; i++) {
        uint32_t file;
        snprintf(name, sizeof name, "%d_Dense/model.safetensors", i);
        RN_TRY(rn_path_join(folder, name, path, sizeof path));
        if (!rn_file_exists(path)) continue;
        RN_TRY(rn_checkpoint_add_file(checkpoint, path, &file));
        snprintf(name, sizeof name, "%d_Dense.", i);
        RN_TRY(rn_safetensors_read_as(checkpoint, file, rn_str_from(name)));
    }
    return RN_OK;
}

static rn_status read_model(rn_checkpoint *checkpoint, const char *folder) {
    static const char *const indices[] = {"model.safetensors.index.json",
                                          "diffusion_pytorch_model.safetensors.index.json"};
    static const char *const singles[] = {"model.safetensors",
                                          "diffusion_pytorch_model.safetensors"};
    char path[PATH_MAX];
    size_t count;
    for (size_t i = 0; i < 2; i++) {
        RN_TRY(rn_path_join(folder, indices[i], path, sizeof path));
        if (rn_file_exists(path)) return rn_shard_index_read(checkpoint, path);
        RN_TRY(rn_path_join(folder, singles[i], path, sizeof path));
        if (rn_file_exists(path)) return read_file(checkpoint, path, false);
    }
    for (int gguf = 0; gguf < 2; gguf++) {
        rn_str suffix = gguf ? RN_STR(".gguf") : RN_STR(".safetensors");
        RN_TRY(find_only(folder, suffix, path, sizeof path, &count));
        if (count == 1) return read_file(checkpoint, path, gguf);
        if (count > 1)
            return rn_hint(rn_fail(RN_INVALID, "%s holds %zu files *%s and no index", folder, count,
                                   suffix.data),
                           "name one of them");
    }
    return rn_hint(
        rn_error_locate(rn_fail(RN_NOT_FOUND, "%s holds no safetensors or GGUF file", folder),
                        folder, RN_NO_OFFSET),
        "a model folder has model.safetensors, or shards with model.safetensors.index.json");
}

rn_status rn_model_folder_read(rn_checkpoint *checkpoint, const char *folder) {
    RN_TRY(read_model(checkpoint, folder));
    bool gguf = checkpoint->container == RN_CONTAINER_GGUF;
    return gguf ? RN_OK : read_modules(checkpoint, folder);
}
