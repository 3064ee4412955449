// onnx_checkpoint.c — the initializers of an ONNX file as the tensors of a checkpoint.
//
//     model.onnx           raw bytes: where they lie in the file
//     another file         external data: only a file of the model's folder, links followed
//     a file in memory     what has to be decoded first (numbers in typed fields, 4-bit integers)
//
// The file in memory is an anonymous one (memfd), so that streaming and mapping need no other way;
// its bytes are charged. Initializers without a type of ours (strings) are left out.
#include "io/checkpoint.h"

#include "base/checked.h"
#include "base/file.h"
#include "io/onnx.h"
#include "io/onnx_bytes.h"
#include "memory/account.h"
#include "memory/sort.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DECODED_ALIGN = 64 };

typedef struct reading {
    rn_checkpoint *checkpoint;
    uint32_t file;
    const char *origin;    // of the file's bytes
    char folder[PATH_MAX]; // of the model, links followed
    int decoded;           // the file in memory, or -1
    uint64_t decoded_bytes;
    rn_tensor_info *found; // (found_count): not sorted yet
    size_t found_count;
} reading;

// ---- files --------------------------------------------------------------------------------------

static rn_status find_folder(reading *r, const char *path) {
    if (!realpath(path, r->folder)) return rn_file_fail("open", path);
    char *slash = strrchr(r->folder, '/');
    if (slash) slash[slash == r->folder] = 0;
    return RN_OK;
}

static rn_status refuse_location(const rn_onnx_tensor *t, const char *why) {
    return rn_hint(rn_fail(RN_CORRUPT, "tensor '%.*s': its external data '%.*s' %s",
                           RN_STR_ARG(t->name), RN_STR_ARG(t->location), why),
                   "external data must lie in the model's folder");
}

// What the location is, links followed: a file of the model's folder, or it is refused.
static rn_status resolve(const reading *r, const rn_onnx_tensor *t, char out[PATH_MAX]) {
    char joined[PATH_MAX], name[PATH_MAX];
    size_t folder = strlen(r->folder);
    if (t->location.bytes == 0) return refuse_location(t, "has no name");
    if (t->location.bytes >= sizeof name || memchr(t->location.data, 0, t->location.bytes))
        return refuse_location(t, "is no file name");
    memcpy(name, t->location.data, t->location.bytes);
    name[t->location.bytes] = 0;
    if (name[0] == '/') return refuse_location(t, "is an absolute path");
    RN_TRY(rn_path_join(r->folder, name, joined, sizeof joined));
    if (!realpath(joined, out)) return rn_file_fail("open", joined);
    if (strncmp(out, r->folder, folder) != 0 || (out[folder] != '/' && folder > 1))
        return refuse_location(t, "lies outside of the model's folder");
    return RN_OK;
}

// A file that was opened before has its number already.
static rn_status open_external(reading *r, const rn_onnx_tensor *t, uint32_t *out) {
    char path[PATH_MAX];
    RN_TRY(resolve(r, t, path));
    for (size_t i = 0; i < r->checkpoint->file_count; i++)
        if (strcmp(r->checkpoint->files[i].info.path, path) == 0) {
            *out = (uint32_t)i;
            return RN_OK;
        }
    return rn_checkpoint_add_file(r->checkpoint, path, out);
}

// ---- tensors ------------------------------------------------------------------------------------

static rn_status find_external(reading *r, const rn_onnx_tensor *t, rn_tensor_info *out) {
    uint64_t bytes = 0, end = 0;
    RN_TRY(open_external(r, t, &out->file));
    const rn_checkpoint_file_info *file = &r->checkpoint->files[out->file].info;
    if (t->data_type == RN_ONNX_INT4 || t->data_type == RN_ONNX_UINT4)
        return rn_fail(RN_UNSUPPORTED, "tensor '%.*s': external data of type %s",
                       RN_STR_ARG(t->name), rn_onnx_type_name(t->data_type));
    if (!rn_onnx_tensor_bytes(t, &bytes) || (t->length != UINT64_MAX && t->length != bytes))
        return rn_fail(RN_CORRUPT, "tensor '%.*s' has %llu bytes, its external data %llu",
                       RN_STR_ARG(t->name), (unsigned long long)bytes,
                       (unsigned long long)t->length);
    if (!rn_add_u64(t->offset, bytes, &end) || end > file->bytes)
        return rn_error_locate(
            rn_fail(RN_CORRUPT, "tensor '%.*s' ends behind its file", RN_STR_ARG(t->name)),
            file->path, t->offset);
    out->offset = t->offset;
    return RN_OK;
}

static rn_status write_decoded(reading *r, const rn_onnx_tensor *t, rn_tensor_info *out) {
    uint64_t bytes = 0;
    void *data = NULL;
    if (!rn_onnx_tensor_bytes(t, &bytes))
        return rn_fail(RN_CORRUPT, "tensor '%.*s' has no size", RN_STR_ARG(t->name));
    if (r->decoded < 0) r->decoded = memfd_create("onnx", MFD_CLOEXEC);
    if (r->decoded < 0) return rn_fail(RN_IO, "no file in memory: %s", strerror(errno));
    RN_TRY(rn_alloc(RN_HOST_IO, bytes, &data));
    rn_status s = rn_onnx_tensor_decode(t, data, bytes);
    if (s == RN_OK)
        s = rn_file_write_at(r->decoded, "decoded initializers", r->decoded_bytes, data, bytes);
    rn_free(RN_HOST_IO, data, bytes);
    out->file = UINT32_MAX; // its number is known at the end
    out->offset = r->decoded_bytes;
    r->decoded_bytes = rn_round_up(r->decoded_bytes + bytes, DECODED_ALIGN);
    return s;
}

static rn_status find_tensor(reading *r, const rn_onnx_tensor *t, rn_tensor_info *out) {
    void *name = NULL;
    RN_TRY(rn_arena_copy(&r->checkpoint->arena, t->name.data, t->name.bytes, &name));
    *out = (rn_tensor_info){.name = {name, t->name.bytes},
                            .dtype = rn_onnx_dtype(t->data_type),
                            .rank = t->rank,
                            .dims = t->dims,
                            .file = r->file};
    if (t->external) return find_external(r, t, out);
    if (!rn_onnx_tensor_is_plain(t)) return write_decoded(r, t, out);
    out->offset = t->raw.data ? (uint64_t)(t->raw.data - r->origin) : 0;
    return RN_OK;
}

static int compare_places(const void *left, const void *right) {
    const rn_tensor_info *a = left, *b = right;
    if (a->file != b->file) return a->file < b->file ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static rn_status keep_decoded(reading *r) {
    uint32_t index = 0;
    if (r->decoded < 0) return RN_OK;
    RN_TRY(rn_checkpoint_add_memory(r->checkpoint, r->decoded, r->decoded_bytes, &index));
    r->decoded = -1;
    for (size_t i = 0; i < r->found_count; i++)
        if (r->found[i].file == UINT32_MAX) r->found[i].file = index;
    return RN_OK;
}

static rn_status add_tensors(reading *r, const rn_onnx_graph_proto *graph) {
    for (size_t i = 0; i < graph->initializer_count; i++)
        if (rn_onnx_dtype(graph->initializers[i].data_type) != RN_DTYPE_NONE)
            RN_TRY(find_tensor(r, &graph->initializers[i], &r->found[r->found_count++]));
    RN_TRY(keep_decoded(r));
    RN_TRY(rn_sort(r->found, r->found_count, sizeof *r->found, compare_places));
    for (size_t i = 0; i < r->found_count; i++)
        RN_TRY(rn_checkpoint_add_tensor(r->checkpoint, r->found[i]));
    return RN_OK;
}

static rn_status read_model(reading *r, rn_str bytes) {
    rn_onnx_model *model = NULL;
    void *found = NULL;
    RN_TRY(rn_onnx_parse(bytes, &model));
    size_t room = model->graph->initializer_count;
    rn_status s = rn_alloc_zeroed(RN_HOST_IO, room, sizeof *r->found, &found);
    r->found = found;
    if (s == RN_OK) s = add_tensors(r, model->graph);
    rn_free(RN_HOST_IO, found, room * sizeof *r->found);
    rn_onnx_free(model);
    return s;
}

rn_status rn_onnx_read(rn_checkpoint *checkpoint, uint32_t index) {
    rn_opened_file *file = &checkpoint->files[index];
    const char *path = file->info.path;
    rn_onnx_bytes bytes;
    reading r = {.checkpoint = checkpoint, .file = index, .decoded = -1};
    checkpoint->container = RN_CONTAINER_ONNX;
    snprintf(checkpoint->format, sizeof checkpoint->format, "onnx");
    RN_TRY(find_folder(&r, path));
    rn_status s = rn_onnx_bytes_read(file->fd, path, file->info.bytes, &bytes);
    r.origin = bytes.bytes.data;
    if (s == RN_OK) s = read_model(&r, bytes.bytes);
    rn_onnx_bytes_free(&bytes);
    if (r.decoded >= 0) close(r.decoded);
    return s;
}
