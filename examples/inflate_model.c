// inflate_model.c — makes a large model that says the same as a small one, bit for bit.
//
// Layers are added whose output projections are zero, so that each adds 0 to what goes through it;
// and all feed-forwards are made wider by units whose outputs are multiplied by zero, behind the
// others, so that every sum begins as before and ends with zeros. The other new weights are random:
// they have to be read and multiplied like any others.
//
//     inflate_model FOLDER OUT 512MiB
//
// FOLDER is a Llama as Hugging Face has it, with f16 weights. Memory stays at a few MiB whatever
// the size.
#include <ration/ration.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME_BYTES = 80, MOST_COLUMNS = 1 << 17, WIDER = 8 };

static const char layer_0[] = "model.layers.0.";

// A tensor of the large model: one of the small model's, or of an added layer.
typedef struct part {
    char name[NAME_BYTES];
    const rn_tensor_info *from; // of an added layer: the one of layer 0 that it resembles
    bool added;
    uint64_t dims[2]; // rows, columns; a vector is one row
} part;

typedef struct inflation {
    const rn_checkpoint *model;
    uint64_t layers, added_layers, ffn; // ffn: of the large model
    part *parts;                        // (part_count), in the order of use
    size_t part_count;
} inflation;

static bool has(const rn_tensor_info *tensor, const char *text) {
    return strstr(tensor->name.data, text) != NULL;
}

static uint64_t columns_of(const rn_tensor_info *tensor) {
    return tensor->dims[tensor->rank - 1];
}

static uint64_t rows_of(const rn_tensor_info *tensor) {
    return tensor->rank == 2 ? tensor->dims[0] : 1;
}

// ---- what goes in -------------------------------------------------------------------------------

static part *add_part(inflation *n, const rn_tensor_info *from) {
    part *p = &n->parts[n->part_count++];
    *p = (part){.from = from, .dims = {rows_of(from), columns_of(from)}};
    snprintf(p->name, sizeof p->name, "%s", from->name.data);
    if (has(from, "gate_proj.") || has(from, "up_proj.")) p->dims[0] *= WIDER;
    if (has(from, "down_proj.")) n->ffn = p->dims[1] *= WIDER;
    return p;
}

static void add_layer(inflation *n, uint64_t number) {
    for (size_t i = 0; i < rn_checkpoint_count(n->model); i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(n->model, i);
        if (!has(t, layer_0)) continue;
        part *p = add_part(n, t);
        p->added = true;
        snprintf(p->name, sizeof p->name, "model.layers.%llu.%s", (unsigned long long)number,
                 t->name.data + sizeof layer_0 - 1);
    }
}

static rn_status check(const rn_tensor_info *t) {
    if (t->dtype != RN_DTYPE_F16 || t->rank < 1 || t->rank > 2 ||
        WIDER * columns_of(t) > MOST_COLUMNS || t->name.bytes >= NAME_BYTES)
        return rn_fail(RN_UNSUPPORTED, "'%s' is not an f16 matrix or vector of a Llama",
                       t->name.data);
    return RN_OK;
}

// Counts the layers; *out_bytes: the large model's without added ones, *out_layer: a layer's.
static rn_status measure(inflation *n, uint64_t *out_bytes, uint64_t *out_layer) {
    *out_bytes = *out_layer = 0;
    for (size_t i = 0; i < rn_checkpoint_count(n->model); i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(n->model, i);
        RN_TRY(check(t));
        uint64_t bytes = t->bytes * (has(t, ".mlp.") ? WIDER : 1);
        *out_bytes += bytes;
        *out_layer += has(t, layer_0) ? bytes : 0;
        n->layers += has(t, ".input_layernorm.");
    }
    if (*out_layer == 0) return rn_fail(RN_UNSUPPORTED, "there is no tensor '%s...'", layer_0);
    return RN_OK;
}

// The added layers come behind the last one, before the final norm and the head.
static rn_status choose(inflation *n, uint64_t target_bytes) {
    uint64_t bytes = 0, layer_bytes = 0;
    size_t count = rn_checkpoint_count(n->model);
    RN_TRY(measure(n, &bytes, &layer_bytes));
    n->added_layers = target_bytes > bytes ? (target_bytes - bytes) / layer_bytes : 0;
    n->parts = calloc((n->added_layers + 1) * count, sizeof *n->parts);
    if (!n->parts) return rn_fail(RN_NO_MEMORY, "no memory for the list of tensors");
    for (size_t i = 0; i < count; i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(n->model, i);
        if (has(t, "model.norm."))
            for (uint64_t k = 0; k < n->added_layers; k++)
                add_layer(n, n->layers + k);
        add_part(n, t);
    }
    return RN_OK;
}

// ---- weights ------------------------------------------------------------------------------------

static uint64_t random_state = 88172645463325252u;

// Numbers between 2^-7 and 2^-5 of both signs: sign and fraction are random, and one bit of the
// exponent.
static void fill_random(uint16_t *out, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        if (i % 4 == 0) {
            random_state ^= random_state << 13;
            random_state ^= random_state >> 7;
            random_state ^= random_state << 17;
        }
        out[i] = (uint16_t)((random_state >> 16 * (i % 4) & 0x87ff) | 8 << 10);
    }
}

static void fill_ones(uint16_t *out, uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        out[i] = 15 << 10;
}

// A row that the small model does not have.
static void fill(const part *p, uint16_t *row) {
    if (has(p->from, "o_proj.") || has(p->from, "down_proj."))
        memset(row, 0, p->dims[1] * sizeof *row);
    else if (p->from->rank == 1)
        fill_ones(row, p->dims[1]); // the scale of a norm
    else
        fill_random(row, p->dims[1]);
}

static rn_status write_part(const inflation *n, const part *p, rn_writer *writer) {
    static uint16_t row[MOST_COLUMNS];
    uint64_t bytes = columns_of(p->from) * sizeof *row; // of a row of the small model
    for (uint64_t i = 0; i < p->dims[0]; i++) {
        if (p->added || i >= rows_of(p->from))
            fill(p, row);
        else {
            RN_TRY(rn_checkpoint_read(n->model, p->from, i * bytes, row, bytes));
            memset((char *)row + bytes, 0, p->dims[1] * sizeof *row - bytes);
        }
        RN_TRY(rn_writer_append(writer, row, p->dims[1] * sizeof *row));
    }
    return RN_OK;
}

static void show(size_t done, size_t all) {
    if (done * 20 / all != (done + 1) * 20 / all) fputc('.', stderr);
    if (done + 1 == all) fputc('\n', stderr);
}

static rn_status write_parts(const inflation *n, rn_writer *writer) {
    for (size_t i = 0; i < n->part_count; i++) {
        RN_TRY(write_part(n, &n->parts[i], writer));
        show(i, n->part_count);
    }
    return rn_writer_commit(writer);
}

static rn_status write_weights(const inflation *n, const char *path) {
    rn_writer *writer = NULL;
    rn_write_tensor *tensors = calloc(n->part_count, sizeof *tensors);
    if (!tensors) return rn_fail(RN_NO_MEMORY, "no memory for the list of tensors");
    for (size_t i = 0; i < n->part_count; i++) {
        const part *p = &n->parts[i];
        tensors[i] = (rn_write_tensor){.name = {p->name, strlen(p->name)},
                                       .dtype = RN_DTYPE_F16,
                                       .rank = p->from->rank,
                                       .dims = p->dims + (2 - p->from->rank)};
    }
    rn_status s = rn_writer_create(path, tensors, n->part_count, NULL, &writer);
    free(tensors);
    if (s == RN_OK) s = write_parts(n, writer);
    if (s == RN_OK)
        printf("%s: %s, %llu layers of which %llu are idle\n", path,
               rn_size_format(rn_writer_file_bytes(writer)).text,
               (unsigned long long)(n->layers + n->added_layers),
               (unsigned long long)n->added_layers);
    rn_writer_destroy(writer);
    return s;
}

// ---- the other files ----------------------------------------------------------------------------

static const char *join(const char *folder, const char *name) {
    static char paths[2][4096];
    static int turn;
    turn ^= 1;
    snprintf(paths[turn], sizeof paths[turn], "%s/%s", folder, name);
    return paths[turn];
}

// A small file as NUL-terminated text, in a static buffer.
static rn_status read_text(const char *path, char **out) {
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    if (!file) return rn_fail(RN_NOT_FOUND, "%s: %s", path, strerror(errno));
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    *out = text;
    return RN_OK;
}

static rn_status copy(const char *from, const char *to) {
    char *text = NULL;
    RN_TRY(read_text(from, &text));
    FILE *file = fopen(to, "w");
    if (!file) return rn_fail(RN_IO, "%s: %s", to, strerror(errno));
    fputs(text, file);
    return fclose(file) == 0 ? RN_OK : rn_fail(RN_IO, "%s: %s", to, strerror(errno));
}

// Writes *rest up to the number behind `key` and `value` in its place; *rest goes on behind it.
static bool replace(FILE *file, char **rest, const char *key, uint64_t value) {
    char *at = strstr(*rest, key), *end = NULL;
    if (!at) return false;
    at += strlen(key);
    strtoul(at, &end, 10);
    fprintf(file, "%.*s %llu", (int)(at - *rest), *rest, (unsigned long long)value);
    *rest = end;
    return true;
}

static rn_status write_config(const inflation *n, const char *from, const char *to) {
    char *rest = NULL;
    RN_TRY(read_text(from, &rest));
    FILE *file = fopen(to, "w");
    if (!file) return rn_fail(RN_IO, "%s: %s", to, strerror(errno));
    bool good = replace(file, &rest, "\"intermediate_size\":", n->ffn) &&
                replace(file, &rest, "\"num_hidden_layers\":", n->layers + n->added_layers);
    fputs(rest, file);
    if (fclose(file) != 0) return rn_fail(RN_IO, "%s: %s", to, strerror(errno));
    return good ? RN_OK
                : rn_fail(RN_UNSUPPORTED, "%s: intermediate_size, then num_hidden_layers", from);
}

static rn_status inflate(const char *from, const char *to, uint64_t bytes) {
    rn_checkpoint *model = NULL;
    if (mkdir(to, 0777) != 0 && errno != EEXIST)
        return rn_fail(RN_IO, "%s: %s", to, strerror(errno));
    RN_TRY(rn_checkpoint_open(from, &model));
    inflation n = {.model = model};
    rn_status s = choose(&n, bytes);
    if (s == RN_OK) s = write_weights(&n, join(to, "model.safetensors"));
    if (s == RN_OK) s = write_config(&n, join(from, "config.json"), join(to, "config.json"));
    if (s == RN_OK) s = copy(join(from, "tokenizer.json"), join(to, "tokenizer.json"));
    if (s == RN_OK)
        s = copy(join(from, "tokenizer_config.json"), join(to, "tokenizer_config.json"));
    free(n.parts);
    rn_checkpoint_close(model);
    return s;
}

int main(int argc, char **argv) {
    uint64_t bytes;
    if (argc != 4) {
        fprintf(stderr, "usage: inflate_model FOLDER OUT SIZE\n");
        return 2;
    }
    rn_status s = rn_size_parse((rn_str){argv[3], strlen(argv[3])}, 0, &bytes);
    if (s == RN_OK) s = inflate(argv[1], argv[2], bytes);
    if (s == RN_OK) return 0;
    fprintf(stderr, "inflate_model: %s\n", rn_last_error()->message);
    return 1;
}
