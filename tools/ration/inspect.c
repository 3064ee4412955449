// inspect.c — ration inspect: what is in a model's files, from their headers alone.
#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_ITEMS = 4 }; // of a metadata array

typedef struct view {
    const invocation *in;
    const rn_checkpoint *checkpoint;
    rn_summary summary;
    const rn_tensor_info **tensors; // (count): those to show, in order
    size_t count;
    uint64_t charged_bytes; // for them
} view;

static const rn_account list_account = {.device = RN_DEVICE_HOST, .purpose = RN_PURPOSE_IO};

// ---- choosing -------------------------------------------------------------------------

static bool is_wanted(const view *v, const rn_tensor_info *tensor) {
    const char *const *patterns;
    size_t count = rn_settings_list(v->in->settings, "filter", &patterns);
    for (size_t i = 0; i < count; i++)
        if (rn_str_matches(tensor->name, (rn_str){patterns[i], strlen(patterns[i])})) return true;
    return count == 0;
}

static int by_name(const void *left, const void *right) {
    const rn_tensor_info *a = *(const rn_tensor_info *const *)left;
    const rn_tensor_info *b = *(const rn_tensor_info *const *)right;
    return rn_natural_compare(a->name, b->name);
}

static int by_size(const void *left, const void *right) {
    const rn_tensor_info *a = *(const rn_tensor_info *const *)left;
    const rn_tensor_info *b = *(const rn_tensor_info *const *)right;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return by_name(left, right);
}

static int by_dtype(const void *left, const void *right) {
    const rn_tensor_info *a = *(const rn_tensor_info *const *)left;
    const rn_tensor_info *b = *(const rn_tensor_info *const *)right;
    if (a->dtype != b->dtype) return a->dtype < b->dtype ? -1 : 1;
    return by_name(left, right);
}

static rn_status choose(view *v) {
    size_t total = rn_checkpoint_count(v->checkpoint);
    const char *order = rn_settings_text(v->in->settings, "sort");
    uint64_t limit = rn_settings_count(v->in->settings, "limit");
    // The list, and what qsort takes: as much again.
    RN_TRY(rn_budget_charge(list_account, NULL, 2 * total * sizeof *v->tensors));
    v->charged_bytes = 2 * total * sizeof *v->tensors;
    v->tensors = malloc((total ? total : 1) * sizeof *v->tensors);
    if (!v->tensors) return rn_fail(RN_NO_MEMORY, "no memory for %zu tensors", total);
    for (size_t i = 0; i < total; i++) {
        const rn_tensor_info *tensor = rn_checkpoint_tensor(v->checkpoint, i);
        if (is_wanted(v, tensor)) v->tensors[v->count++] = tensor;
    }
    int (*compare)(const void *, const void *) = strcmp(order, "name") == 0    ? by_name
                                                 : strcmp(order, "size") == 0  ? by_size
                                                 : strcmp(order, "dtype") == 0 ? by_dtype
                                                                               : NULL;
    if (compare) qsort(v->tensors, v->count, sizeof *v->tensors, compare);
    if (limit && limit < v->count) v->count = (size_t)limit;
    return RN_OK;
}

// ---- metadata -------------------------------------------------------------------------

static void print_scalar(const rn_metadata *m) {
    switch (m->kind) {
    case RN_METADATA_TEXT:
        printf("\"%s\"", make_safe(m->text).text);
        break;
    case RN_METADATA_U64:
        printf("%llu", (unsigned long long)m->value.u64);
        break;
    case RN_METADATA_I64:
        printf("%lld", (long long)m->value.i64);
        break;
    case RN_METADATA_F64:
        printf("%.9g", m->value.f64);
        break;
    case RN_METADATA_BOOL:
        printf("%s", m->value.boolean ? "true" : "false");
        break;
    default:
        break;
    }
}

static void print_metadata(const rn_metadata *m) {
    rn_metadata item;
    uint64_t cursor = 0;
    printf("  %-40s ", make_safe(m->key).text);
    if (m->kind != RN_METADATA_ARRAY) {
        print_scalar(m);
    } else {
        printf("%llu items: [", (unsigned long long)m->count);
        for (int i = 0; i < SHOWN_ITEMS && rn_metadata_next(m, &cursor, &item); i++) {
            printf("%s", i ? ", " : "");
            print_scalar(&item);
        }
        printf("%s]", m->count > SHOWN_ITEMS ? ", ..." : "");
    }
    printf("\n");
}

static void write_metadata(rn_json *json, const rn_metadata *m) {
    rn_json_key(json, m->key);
    switch (m->kind) {
    case RN_METADATA_TEXT:
        rn_json_text(json, NULL, m->text);
        break;
    case RN_METADATA_U64:
        rn_json_u64(json, NULL, m->value.u64);
        break;
    case RN_METADATA_I64:
        rn_json_i64(json, NULL, m->value.i64);
        break;
    case RN_METADATA_F64:
        rn_json_f64(json, NULL, m->value.f64);
        break;
    case RN_METADATA_BOOL:
        rn_json_bool(json, NULL, m->value.boolean);
        break;
    case RN_METADATA_ARRAY: // its size only: a vocabulary would drown everything else
        rn_json_object(json, NULL);
        rn_json_u64(json, "count", m->count);
        rn_json_u64(json, "bytes", m->raw.bytes);
        rn_json_end(json);
        break;
    }
}

// ---- tables ---------------------------------------------------------------------------

static void print_lines(const char *title, const rn_summary_line *lines, size_t count) {
    printf("\n%-44s %8s %16s %12s\n", title, "tensors", "elements", "bytes");
    for (size_t i = 0; i < count; i++)
        printf("%-44s %8llu %16llu %12s\n", make_safe(lines[i].name).text,
               (unsigned long long)lines[i].tensors, (unsigned long long)lines[i].elements,
               rn_size_format(lines[i].bytes).text);
}

static void print_tensors(const view *v) {
    size_t width = 12;
    for (size_t i = 0; i < v->count; i++)
        if (v->tensors[i]->name.bytes > width) width = v->tensors[i]->name.bytes;
    if (width > 72) width = 72;
    printf("\n%-*s %-8s %-22s %12s\n", (int)width, "tensor", "dtype", "shape", "bytes");
    for (size_t i = 0; i < v->count; i++) {
        const rn_tensor_info *t = v->tensors[i];
        printf("%-*s %-8s %-22s %12s\n", (int)width, make_safe(t->name).text,
               rn_dtype_get(t->dtype)->name, format_shape(t).text, rn_size_format(t->bytes).text);
    }
}

static void print_view(const view *v) {
    size_t files = rn_checkpoint_file_count(v->checkpoint);
    printf("%s: %s, %zu file%s, %zu tensors, %llu elements, %s\n", v->in->words[0],
           rn_checkpoint_format(v->checkpoint), files, files == 1 ? "" : "s",
           rn_checkpoint_count(v->checkpoint), (unsigned long long)v->summary.elements,
           rn_size_format(v->summary.bytes).text);
    size_t metadata = rn_checkpoint_metadata_count(v->checkpoint);
    if (metadata && rn_settings_bool(v->in->settings, "metadata")) {
        printf("\nmetadata\n");
        for (size_t i = 0; i < metadata; i++)
            print_metadata(rn_checkpoint_metadata(v->checkpoint, i));
    }
    print_tensors(v);
    print_lines("by block", v->summary.blocks, v->summary.block_count);
    print_lines("by dtype", v->summary.dtypes, v->summary.dtype_count);
}

// ---- JSON -----------------------------------------------------------------------------

static void write_lines(rn_json *json, const char *key, const rn_summary_line *lines,
                        size_t count) {
    rn_json_array(json, key);
    for (size_t i = 0; i < count; i++) {
        rn_json_object(json, NULL);
        rn_json_text(json, "name", lines[i].name);
        rn_json_u64(json, "tensors", lines[i].tensors);
        rn_json_u64(json, "elements", lines[i].elements);
        rn_json_u64(json, "bytes", lines[i].bytes);
        rn_json_end(json);
    }
    rn_json_end(json);
}

static void write_tensor(rn_json *json, const rn_tensor_info *t) {
    rn_json_object(json, NULL);
    rn_json_text(json, "name", t->name);
    rn_json_string(json, "dtype", rn_dtype_get(t->dtype)->name);
    rn_json_array(json, "shape");
    for (uint32_t i = 0; i < t->rank; i++)
        rn_json_u64(json, NULL, t->dims[i]);
    rn_json_end(json);
    rn_json_u64(json, "elements", t->elements);
    rn_json_u64(json, "bytes", t->bytes);
    rn_json_u64(json, "file", t->file);
    rn_json_u64(json, "offset", t->offset);
    rn_json_end(json);
}

static void write_files(rn_json *json, const rn_checkpoint *checkpoint) {
    rn_json_array(json, "files");
    for (size_t i = 0; i < rn_checkpoint_file_count(checkpoint); i++) {
        const rn_checkpoint_file_info *file = rn_checkpoint_file(checkpoint, i);
        rn_json_object(json, NULL);
        rn_json_string(json, "path", file->path);
        rn_json_u64(json, "bytes", file->bytes);
        rn_json_u64(json, "data_offset", file->data_offset);
        rn_json_end(json);
    }
    rn_json_end(json);
}

static rn_status write_view(const view *v) {
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_object(&json, NULL);
    rn_json_string(&json, "path", v->in->words[0]);
    rn_json_string(&json, "format", rn_checkpoint_format(v->checkpoint));
    rn_json_u64(&json, "tensor_count", rn_checkpoint_count(v->checkpoint));
    rn_json_u64(&json, "elements", v->summary.elements);
    rn_json_u64(&json, "bytes", v->summary.bytes);
    write_files(&json, v->checkpoint);
    rn_json_object(&json, "metadata");
    for (size_t i = 0; i < rn_checkpoint_metadata_count(v->checkpoint); i++)
        write_metadata(&json, rn_checkpoint_metadata(v->checkpoint, i));
    rn_json_end(&json);
    rn_json_array(&json, "tensors");
    for (size_t i = 0; i < v->count; i++)
        write_tensor(&json, v->tensors[i]);
    rn_json_end(&json);
    write_lines(&json, "blocks", v->summary.blocks, v->summary.block_count);
    write_lines(&json, "dtypes", v->summary.dtypes, v->summary.dtype_count);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

static rn_status show(view *v) {
    RN_TRY(rn_summary_make(v->checkpoint, &v->summary));
    RN_TRY(choose(v));
    if (v->in->json) return write_view(v);
    print_view(v);
    return RN_OK;
}

static rn_status run(const invocation *in) {
    rn_checkpoint *checkpoint;
    RN_TRY(rn_checkpoint_open(in->words[0], &checkpoint));
    view v = {.in = in, .checkpoint = checkpoint};
    rn_status s = show(&v);
    free(v.tensors);
    if (v.charged_bytes) rn_ledger_release(list_account, NULL, v.charged_bytes);
    rn_summary_free(&v.summary);
    rn_checkpoint_close(checkpoint);
    return s;
}

const command inspect_command = {
    .takes_model = true,
    .name = "inspect",
    .usage = "inspect PATH [options]",
    .summary = "what is in a model file or folder",
    .about =
        "Prints the tensors of a safetensors, GGUF or ONNX file, of shards with an index, or of\n"
        "a Hugging Face model folder: names, dtypes, shapes, bytes, totals by block and dtype.\n"
        "Only headers are read. A file that breaks its format's rules is refused with exit\n"
        "code 3.",
    .example = "ration inspect model.safetensors --sort size --limit 10",
    .min_words = 1,
    .max_words = 1,
    .limits_memory = true,
    .run = run,
};
