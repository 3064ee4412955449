// checkpoint.c — deciding what a path is, and the tables that every format fills.
#include "io/checkpoint.h"

#include "base/checked.h"
#include "base/file.h"
#include "memory/account.h"

#include <stdio.h>
#include <unistd.h>

// Grows *array to hold one more item.
static rn_status grow(void **array, size_t *capacity, size_t count, size_t item_bytes) {
    if (count < *capacity) return RN_OK;
    size_t wanted = *capacity ? *capacity * 2 : 16;
    void *block;
    RN_TRY(rn_alloc_zeroed(RN_HOST_IO, wanted, item_bytes, &block));
    if (count) memcpy(block, *array, count * item_bytes);
    rn_free(RN_HOST_IO, *array, *capacity * item_bytes);
    *array = block;
    *capacity = wanted;
    return RN_OK;
}

// Room for one more, which counts once file_count says so.
static rn_status prepare_file(rn_checkpoint *checkpoint, const char *path, rn_opened_file **out) {
    void *copy, *files = checkpoint->files;
    rn_status s =
        grow(&files, &checkpoint->file_capacity, checkpoint->file_count, sizeof *checkpoint->files);
    checkpoint->files = files;
    RN_TRY(s);
    RN_TRY(rn_arena_copy(&checkpoint->arena, path, strlen(path), &copy));
    *out = &checkpoint->files[checkpoint->file_count];
    **out = (rn_opened_file){.info.path = copy, .fd = -1};
    return RN_OK;
}

rn_status rn_checkpoint_add_file(rn_checkpoint *checkpoint, const char *path, uint32_t *out_index) {
    rn_opened_file *file;
    RN_TRY(prepare_file(checkpoint, path, &file));
    RN_TRY(rn_file_open(path, &file->fd, &file->info.bytes));
    *out_index = (uint32_t)checkpoint->file_count++; // closed with the checkpoint from here on
    return rn_file_state_take(file->fd, path, &file->state);
}

static const rn_account memory_account = {RN_DEVICE_HOST, RN_PURPOSE_IO, NULL};

rn_status rn_checkpoint_add_memory(rn_checkpoint *checkpoint, int fd, uint64_t bytes,
                                   uint32_t *out_index) {
    rn_opened_file *file;
    RN_TRY(prepare_file(checkpoint, "decoded initializers", &file));
    RN_TRY(rn_file_state_take(fd, file->info.path, &file->state));
    RN_TRY(rn_budget_charge(memory_account, NULL, bytes));
    file->fd = fd;
    file->info.bytes = file->charged_bytes = bytes;
    *out_index = (uint32_t)checkpoint->file_count++;
    return RN_OK;
}

rn_status rn_opened_file_read(const rn_opened_file *file, uint64_t offset, void *target,
                              size_t bytes) {
    if (!file->memory) return rn_file_read_at(file->fd, file->info.path, offset, target, bytes);
    if (offset > file->info.bytes || bytes > file->info.bytes - offset)
        return rn_fail(RN_CORRUPT, "%s ends before byte %llu", file->info.path,
                       (unsigned long long)offset + bytes);
    if (bytes) memcpy(target, file->memory + offset, bytes);
    return RN_OK;
}

// elements and bytes, multiplied from the left so that an overflow is seen even if a zero follows.
static rn_status measure(rn_tensor_info *tensor) {
    uint64_t elements = 1;
    bool fits = true;
    for (uint32_t i = 0; i < tensor->rank && fits; i++)
        fits = rn_mul_u64(elements, tensor->dims[i], &elements);
    const rn_dtype_info *dtype = rn_dtype_get(tensor->dtype);
    uint64_t row = tensor->rank ? tensor->dims[tensor->rank - 1] : 1;
    if (fits && dtype->ggml >= 0 && dtype->block_elements > 1 && row % dtype->block_elements)
        return rn_fail(RN_CORRUPT, "tensor '%.*s': rows of %llu are not whole blocks of %s",
                       RN_STR_ARG(tensor->name), (unsigned long long)row, dtype->name);
    uint64_t bits;
    fits = fits && rn_mul_u64(elements, 64, &bits); // no dtype is wider: bit counts fit, too
    if (!fits)
        return rn_fail(RN_CORRUPT, "tensor '%.*s': its size overflows", RN_STR_ARG(tensor->name));
    if (!rn_dtype_bytes(tensor->dtype, elements, &tensor->bytes))
        return rn_fail(RN_CORRUPT, "tensor '%.*s': %llu elements of %s are not whole bytes",
                       RN_STR_ARG(tensor->name), (unsigned long long)elements, dtype->name);
    tensor->elements = elements;
    return RN_OK;
}

static rn_status copy_dims(rn_checkpoint *checkpoint, rn_tensor_info *tensor) {
    void *dims;
    RN_TRY(rn_arena_array(&checkpoint->arena, tensor->rank, sizeof(uint64_t), &dims));
    if (tensor->rank) memcpy(dims, tensor->dims, tensor->rank * sizeof(uint64_t));
    tensor->dims = dims;
    return RN_OK;
}

rn_status rn_checkpoint_add_tensor(rn_checkpoint *checkpoint, rn_tensor_info tensor) {
    bool existing;
    void *tensors = checkpoint->tensors;
    RN_TRY(measure(&tensor));
    rn_status s = grow(&tensors, &checkpoint->tensor_capacity, checkpoint->tensor_count,
                       sizeof *checkpoint->tensors);
    checkpoint->tensors = tensors;
    RN_TRY(s);
    RN_TRY(copy_dims(checkpoint, &tensor));
    RN_TRY(rn_map_add(&checkpoint->by_name, tensor.name, checkpoint->tensor_count, &existing));
    if (existing)
        return rn_fail(RN_CORRUPT, "tensor '%.*s' is there twice", RN_STR_ARG(tensor.name));
    if (!rn_add_u64(checkpoint->total_bytes, tensor.bytes, &checkpoint->total_bytes))
        return rn_fail(RN_CORRUPT, "the tensors' sizes overflow");
    checkpoint->tensors[checkpoint->tensor_count++] = tensor;
    return RN_OK;
}

rn_status rn_checkpoint_add_metadata(rn_checkpoint *checkpoint, const rn_metadata *metadata) {
    void *array = checkpoint->metadata;
    rn_status s = grow(&array, &checkpoint->metadata_capacity, checkpoint->metadata_count,
                       sizeof *checkpoint->metadata);
    checkpoint->metadata = array;
    RN_TRY(s);
    checkpoint->metadata[checkpoint->metadata_count++] = *metadata;
    return RN_OK;
}

// ---- opening --------------------------------------------------------------------------

// Formats that people have at hand and that are not ours get a plain word instead of a parse error.
static rn_status refuse_foreign(const char *path, const unsigned char *head) {
    const char *what = NULL;
    if (memcmp(head, "PK\3\4", 4) == 0)
        what = "a zip archive (a PyTorch .pt or .bin file?)";
    else if (head[0] == 0x80 && head[1] >= 2 && head[1] <= 5)
        what = "a Python pickle";
    else if (memcmp(head, "GGML", 4) == 0 || memcmp(head, "lmgg", 4) == 0 ||
             memcmp(head, "tjgg", 4) == 0)
        what = "a ggml file from before GGUF";
    else if (memcmp(head, "\x89HDF", 4) == 0)
        what = "an HDF5 file";
    if (!what) return RN_OK;
    rn_status s =
        rn_fail(RN_UNSUPPORTED, "%s is %s; ration reads safetensors, GGUF and ONNX", path, what);
    return rn_hint(rn_error_locate(s, path, 0),
                   "convert it to safetensors with the tool that made it");
}

static rn_status open_single(rn_checkpoint *checkpoint, const char *path) {
    unsigned char head[8] = {0};
    uint32_t index;
    RN_TRY(rn_checkpoint_add_file(checkpoint, path, &index));
    rn_opened_file *file = &checkpoint->files[index];
    size_t bytes = file->info.bytes < sizeof head ? (size_t)file->info.bytes : sizeof head;
    RN_TRY(rn_file_read_at(file->fd, path, 0, head, bytes));
    if (memcmp(head, "GGUF", 4) == 0 || rn_str_ends(rn_str_from(path), RN_STR(".gguf")))
        return rn_gguf_read(checkpoint, index);
    if (rn_str_ends(rn_str_from(path), RN_STR(".onnx"))) return rn_onnx_read(checkpoint, index);
    if (!rn_str_ends(rn_str_from(path), RN_STR(".safetensors"))) RN_TRY(refuse_foreign(path, head));
    return rn_safetensors_read(checkpoint, index);
}

static rn_status open_path(rn_checkpoint *checkpoint, const char *path) {
    if (rn_file_is_folder(path)) return rn_model_folder_read(checkpoint, path);
    if (rn_str_ends(rn_str_from(path), RN_STR(".index.json")))
        return rn_shard_index_read(checkpoint, path);
    return open_single(checkpoint, path);
}

// A reader may fail without knowing the file's name (a JSON error); the error gets it here.
static rn_status blame_missing_path(rn_checkpoint *checkpoint, const char *path, rn_status s) {
    if (s == RN_OK || rn_last_error()->path[0]) return s;
    size_t last = checkpoint->file_count;
    return rn_error_locate(s, last ? checkpoint->files[last - 1].info.path : path,
                           rn_last_error()->offset);
}

static rn_status create(rn_checkpoint **out) {
    void *block;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_IO, 1, sizeof **out, &block));
    rn_checkpoint *checkpoint = block;
    rn_arena_init(&checkpoint->arena, RN_HOST_IO, 0);
    rn_map_init(&checkpoint->by_name, RN_HOST_IO);
    rn_map_init(&checkpoint->by_key, RN_HOST_IO);
    *out = checkpoint;
    return RN_OK;
}

static rn_status finish(rn_checkpoint *checkpoint, const char *path, rn_status s,
                        rn_checkpoint **out) {
    s = blame_missing_path(checkpoint, path, s);
    if (s != RN_OK) {
        rn_checkpoint_close(checkpoint);
        *out = NULL;
    }
    return s;
}

rn_status rn_checkpoint_open(const char *path, rn_checkpoint **out) {
    RN_TRY(create(out));
    return finish(*out, path, open_path(*out, path), out);
}

static rn_status read_memory(rn_checkpoint *checkpoint, const char *name, const void *data,
                             size_t bytes) {
    rn_opened_file *file;
    RN_TRY(prepare_file(checkpoint, name, &file));
    file->memory = data;
    file->info.bytes = bytes;
    return rn_safetensors_read(checkpoint, (uint32_t)checkpoint->file_count++);
}

rn_status rn_checkpoint_open_memory(const char *name, const void *data, size_t bytes,
                                    rn_checkpoint **out) {
    RN_TRY(create(out));
    return finish(*out, name, read_memory(*out, name, data, bytes), out);
}

static rn_status join_tensor(rn_checkpoint *checkpoint, const char *prefix, uint32_t first_file,
                             rn_tensor_info tensor) {
    size_t bytes = strlen(prefix);
    void *name = NULL;
    RN_TRY(rn_arena_array(&checkpoint->arena, bytes + tensor.name.bytes + 1, 1, &name));
    memcpy(name, prefix, bytes);
    memcpy((char *)name + bytes, tensor.name.data, tensor.name.bytes);
    tensor.name = (rn_str){name, bytes + tensor.name.bytes};
    tensor.file += first_file;
    return rn_checkpoint_add_tensor(checkpoint, tensor);
}

static rn_status join_part(rn_checkpoint *checkpoint, const rn_checkpoint *part,
                           const char *prefix) {
    uint32_t first_file = (uint32_t)checkpoint->file_count, index;
    if (part->forms)
        return rn_fail(RN_UNSUPPORTED, "weights of several tensors cannot be joined with others");
    for (size_t i = 0; i < part->file_count; i++) {
        const rn_opened_file *file = &part->files[i];
        if (file->fd < 0)
            return rn_fail(RN_UNSUPPORTED, "%s is in memory: it cannot be joined with others",
                           file->info.path);
        RN_TRY(rn_checkpoint_add_file(checkpoint, file->info.path, &index));
    }
    for (size_t i = 0; i < part->tensor_count; i++)
        RN_TRY(join_tensor(checkpoint, prefix, first_file, part->tensors[i]));
    return RN_OK;
}

rn_status rn_checkpoint_join(const rn_checkpoint *const *parts, const char *const *prefixes,
                             size_t count, rn_checkpoint **out) {
    rn_status s = RN_OK;
    RN_TRY(create(out));
    if (count) (*out)->container = parts[0]->container;
    for (size_t i = 0; s == RN_OK && i < count; i++)
        s = join_part(*out, parts[i], prefixes[i]);
    return finish(*out, count ? prefixes[0] : "", s, out);
}

const void *rn_checkpoint_memory(const rn_checkpoint *checkpoint, const rn_tensor_info *tensor) {
    const uint8_t *memory = checkpoint->files[tensor->file].memory;
    return memory ? memory + tensor->offset : NULL;
}

void rn_checkpoint_close(rn_checkpoint *checkpoint) {
    if (!checkpoint) return;
    for (size_t i = 0; i < checkpoint->file_count; i++) {
        rn_file_state_end(&checkpoint->files[i].state);
        if (checkpoint->files[i].fd >= 0) close(checkpoint->files[i].fd);
        if (checkpoint->files[i].charged_bytes)
            rn_ledger_release(memory_account, NULL, checkpoint->files[i].charged_bytes);
    }
    rn_free(RN_HOST_IO, checkpoint->files, checkpoint->file_capacity * sizeof *checkpoint->files);
    rn_free(RN_HOST_IO, checkpoint->tensors,
            checkpoint->tensor_capacity * sizeof *checkpoint->tensors);
    rn_free(RN_HOST_IO, checkpoint->metadata,
            checkpoint->metadata_capacity * sizeof *checkpoint->metadata);
    rn_weight_forms_close(checkpoint->forms);
    rn_map_free(&checkpoint->by_name);
    rn_map_free(&checkpoint->by_key);
    rn_arena_free_all(&checkpoint->arena);
    rn_free(RN_HOST_IO, checkpoint, sizeof *checkpoint);
}

// ---- looking --------------------------------------------------------------------------

rn_container rn_checkpoint_container(const rn_checkpoint *checkpoint) {
    return checkpoint->container;
}

const char *rn_checkpoint_format(const rn_checkpoint *checkpoint) {
    return checkpoint->format;
}

size_t rn_checkpoint_count(const rn_checkpoint *checkpoint) {
    return checkpoint->tensor_count;
}

const rn_tensor_info *rn_checkpoint_tensor(const rn_checkpoint *checkpoint, size_t index) {
    return index < checkpoint->tensor_count ? &checkpoint->tensors[index] : NULL;
}

const rn_tensor_info *rn_checkpoint_find(const rn_checkpoint *checkpoint, const char *name) {
    uint64_t index;
    bool found = rn_map_find(&checkpoint->by_name, rn_str_from(name), &index);
    return found ? &checkpoint->tensors[index] : NULL;
}

uint64_t rn_checkpoint_total_bytes(const rn_checkpoint *checkpoint) {
    return checkpoint->total_bytes;
}

size_t rn_checkpoint_file_count(const rn_checkpoint *checkpoint) {
    return checkpoint->file_count;
}

const rn_checkpoint_file_info *rn_checkpoint_file(const rn_checkpoint *checkpoint, size_t index) {
    return index < checkpoint->file_count ? &checkpoint->files[index].info : NULL;
}

size_t rn_checkpoint_metadata_count(const rn_checkpoint *checkpoint) {
    return checkpoint->metadata_count;
}

const rn_metadata *rn_checkpoint_metadata(const rn_checkpoint *checkpoint, size_t index) {
    return index < checkpoint->metadata_count ? &checkpoint->metadata[index] : NULL;
}
