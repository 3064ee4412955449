// train_pictures.c — captioned pictures, and an image model without weights that learns them.
//
//     train_pictures draw FOLDER COUNT [SEED]   shapes as 32 x 32 PNG files, captions as .txt
//     train_pictures begin FOLDER               a diffusers folder: configurations of a small VAE
//                                               and UNet, a tokenizer, a text encoder
//
// docs/images.md has the commands that train the model with `ration train`. The text encoder is a
// small CLIP whose weights are random and stay so: what it makes of a caption tells the words and
// their places apart, which is all that the denoiser's cross attention needs.
#include <ration/image.h>
#include <ration/writer.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "train_pictures_model.h"

enum { SIDE = 32, TOKENS = 16, DIM = 64, FFN = 128 };

static const char *const sizes[] = {"small", "large"};
static const char *const colours[] = {"red", "green", "blue", "yellow", "purple", "orange"};
static const unsigned char inks[][3] = {{214, 39, 40},  {44, 160, 44},  {31, 119, 200},
                                        {240, 200, 20}, {148, 60, 189}, {255, 127, 14}};
static const char *const shapes[] = {"circle", "square", "triangle", "ring", "cross"};
static const char *const grounds[] = {"white", "black", "grey"};
static const unsigned char papers[][3] = {{255, 255, 255}, {12, 12, 12}, {128, 128, 128}};
static const char *const rows[] = {"top", "", "bottom"};
static const char *const columns[] = {"left", "", "right"};
static const char *const others[] = {"a", "at", "the", "in", "centre", "on"};

#define COUNT_OF(list) (sizeof(list) / sizeof *(list))

// ---- random numbers -----------------------------------------------------------------------------

static unsigned long long state;

static double uniform(void) { // in [0, 1)
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    unsigned long long x = state ^ state >> 29;
    return (double)(x * 0x9E3779B97F4A7C15ull >> 11) * 0x1p-53;
}

static unsigned choose(size_t count) {
    return (unsigned)(uniform() * (double)count);
}

static float normal(void) {
    double radius = sqrt(-2 * log(1 - uniform()));
    return (float)(radius * cos(6.283185307179586 * uniform()));
}

// ---- pictures -----------------------------------------------------------------------------------

// Within a shape of radius 1 around 0.
static int is_inside(unsigned shape, double x, double y) {
    double distance = sqrt(x * x + y * y);
    switch (shape) {
    case 0:
        return distance < 1;
    case 1:
        return fabs(x) < 0.85 && fabs(y) < 0.85;
    case 2:
        return y < 0.8 && y > 2 * fabs(x) - 1;
    case 3:
        return distance < 1 && distance > 0.55;
    default:
        return (fabs(x) < 0.3 && fabs(y) < 1) || (fabs(y) < 0.3 && fabs(x) < 1);
    }
}

typedef struct scene {
    unsigned size, colour, shape, ground, row, column;
    double x, y, radius;
} scene;

static scene draw_scene(void) {
    scene s = {.size = choose(2), .colour = choose(COUNT_OF(colours))};
    s.shape = choose(COUNT_OF(shapes));
    s.ground = choose(COUNT_OF(grounds));
    s.row = choose(3);
    s.column = choose(3);
    s.radius = SIDE * ((s.size ? 0.22 : 0.13) + 0.02 * uniform());
    s.x = SIDE * (0.26 + 0.24 * s.column + 0.03 * (uniform() - 0.5));
    s.y = SIDE * (0.26 + 0.24 * s.row + 0.03 * (uniform() - 0.5));
    return s;
}

// 4 x 4 samples a pixel.
static void paint(const scene *s, rn_image *image) {
    for (unsigned y = 0; y < SIDE; y++)
        for (unsigned x = 0; x < SIDE; x++) {
            int inside = 0;
            for (int i = 0; i < 16; i++)
                inside += is_inside(s->shape, (x + (i % 4 + 0.5) / 4 - s->x) / s->radius,
                                    (y + (i / 4 + 0.5) / 4 - s->y) / s->radius);
            for (int c = 0; c < 3; c++) {
                int ink = inks[s->colour][c] * inside, paper = papers[s->ground][c] * (16 - inside);
                image->pixels[(y * SIDE + x) * 3 + (unsigned)c] =
                    (unsigned char)((ink + paper + 8) / 16);
            }
        }
}

static void describe(const scene *s, char *out, size_t bytes) {
    char place[32] = "in the centre";
    const char *row = rows[s->row], *column = columns[s->column];
    if (*row || *column)
        snprintf(place, sizeof place, "at the %s%s%s", row, *row && *column ? " " : "", column);
    snprintf(out, bytes, "a %s %s %s %s on %s", sizes[s->size], colours[s->colour],
             shapes[s->shape], place, grounds[s->ground]);
}

static rn_status write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "we");
    if (file && fputs(text, file) >= 0 && fclose(file) == 0) return RN_OK;
    return rn_fail(RN_IO, "cannot write %s: %s", path, strerror(errno));
}

static rn_status make_folder(const char *path) {
    if (mkdir(path, 0777) == 0 || errno == EEXIST) return RN_OK;
    return rn_fail(RN_IO, "cannot make %s: %s", path, strerror(errno));
}

static rn_status draw(const char *folder, unsigned long count) {
    rn_image image;
    RN_TRY(make_folder(folder));
    RN_TRY(rn_image_create(SIDE, SIDE, 3, &image));
    rn_status s = RN_OK;
    for (unsigned long i = 0; s == RN_OK && i < count; i++) {
        char path[4096], caption[160];
        scene what = draw_scene();
        paint(&what, &image);
        describe(&what, caption, sizeof caption);
        snprintf(path, sizeof path, "%s/%05lu.png", folder, i);
        s = rn_image_write(path, &image);
        snprintf(path, sizeof path, "%s/%05lu.txt", folder, i);
        if (s == RN_OK) s = write_text(path, caption);
    }
    rn_image_free(&image);
    return s;
}

// ---- a tokenizer --------------------------------------------------------------------------------
//
// CLIP's: bytes, those that end a word with "</w>", and pairs that are joined in the order in which
// they were learned: the most frequent first, until every word is one token.

enum { MOST_WORDS = 64, MOST_PIECES = 16, MOST_MERGES = 512 };

typedef struct word {
    char pieces[MOST_PIECES][24];
    int count;
} word;
static word words[MOST_WORDS];
static int word_count;
static char merges[MOST_MERGES][2][24];
static int merge_count;

static void add_words(const char *const *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        word *w = &words[word_count];
        for (const char *at = list[i]; *at; at++)
            snprintf(w->pieces[w->count++], sizeof w->pieces[0], "%c%s", *at, at[1] ? "" : "</w>");
        word_count += w->count > 0;
    }
}

static int count_pair(const char *a, const char *b) {
    int found = 0;
    for (int i = 0; i < word_count; i++)
        for (int k = 0; k + 1 < words[i].count; k++)
            found += strcmp(words[i].pieces[k], a) == 0 && strcmp(words[i].pieces[k + 1], b) == 0;
    return found;
}

static void join(const char *a, const char *b) {
    for (int i = 0; i < word_count; i++) {
        word *w = &words[i];
        for (int k = 0; k + 1 < w->count; k++) {
            if (strcmp(w->pieces[k], a) != 0 || strcmp(w->pieces[k + 1], b) != 0) continue;
            strncat(w->pieces[k], w->pieces[k + 1], sizeof w->pieces[k] - 1 - strlen(w->pieces[k]));
            memmove(w->pieces[k + 1], w->pieces[k + 2],
                    (size_t)(w->count - k - 2) * sizeof w->pieces[0]);
            w->count--;
        }
    }
}

static void learn_merges(void) {
    add_words(sizes, COUNT_OF(sizes));
    add_words(colours, COUNT_OF(colours));
    add_words(shapes, COUNT_OF(shapes));
    add_words(grounds, COUNT_OF(grounds));
    add_words(rows, COUNT_OF(rows));
    add_words(columns, COUNT_OF(columns));
    add_words(others, COUNT_OF(others));
    while (merge_count < MOST_MERGES) {
        const char *best[2] = {NULL, NULL};
        int most = 0;
        for (int i = 0; i < word_count; i++)
            for (int k = 0; k + 1 < words[i].count; k++) {
                int found = count_pair(words[i].pieces[k], words[i].pieces[k + 1]);
                if (found <= most) continue;
                most = found;
                best[0] = words[i].pieces[k];
                best[1] = words[i].pieces[k + 1];
            }
        if (!most) return;
        for (int i = 0; i < 2; i++)
            memcpy(merges[merge_count][i], best[i], strlen(best[i]) + 1);
        merge_count++;
        join(merges[merge_count - 1][0], merges[merge_count - 1][1]);
    }
}

// The character that stands for a byte in such vocabularies: itself where it can be seen.
static int letter_of(int byte) {
    int next = 256;
    for (int b = 0; b < 256; b++) {
        int seen = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        if (b == byte) return seen ? b : next;
        next += !seen;
    }
    return 0;
}

static int write_letter(FILE *to, int letter) {
    if (letter == '"' || letter == '\\') return fprintf(to, "\\%c", letter);
    return letter < 128 ? fprintf(to, "%c", letter) : fprintf(to, "\\u%04x", (unsigned)letter);
}

static rn_status write_merges(const char *folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer/merges.txt", folder);
    FILE *to = fopen(path, "we");
    if (!to) return rn_fail(RN_IO, "cannot write %s", path);
    fprintf(to, "#version: 0.2\n");
    for (int i = 0; i < merge_count; i++)
        fprintf(to, "%s %s\n", merges[i][0], merges[i][1]);
    return fclose(to) == 0 ? RN_OK : rn_fail(RN_IO, "cannot write %s", path);
}

static rn_status write_vocab(const char *folder, int *out_count) {
    char path[4096];
    int id = 0;
    snprintf(path, sizeof path, "%s/tokenizer/vocab.json", folder);
    FILE *to = fopen(path, "we");
    if (!to) return rn_fail(RN_IO, "cannot write %s", path);
    fprintf(to, "{");
    for (int i = 0; i < 512; i++) {
        fprintf(to, "%s\"", id ? ", " : "");
        write_letter(to, letter_of(i % 256));
        fprintf(to, "%s\": %d", i < 256 ? "" : "</w>", id++);
    }
    for (int i = 0; i < merge_count; i++)
        fprintf(to, ", \"%s%s\": %d", merges[i][0], merges[i][1], id++);
    fprintf(to, ", \"<|startoftext|>\": %d, \"<|endoftext|>\": %d}\n", id, id + 1);
    *out_count = id + 2;
    return fclose(to) == 0 ? write_merges(folder) : rn_fail(RN_IO, "cannot write %s", path);
}

// ---- a text encoder -----------------------------------------------------------------------------

typedef struct tensor {
    const char *name;
    uint64_t dims[2];
    float deviation; // 0: zeros; -1: ones
} tensor;

#define LAYER "text_model.encoder.layers.0."
enum { TENSORS = 20 };

static rn_status append_all(rn_writer *writer, const tensor *tensors) {
    for (int i = 0; i < TENSORS; i++) {
        uint64_t all = tensors[i].dims[0] * (tensors[i].dims[1] ? tensors[i].dims[1] : 1);
        for (uint64_t k = 0; k < all; k++) {
            float d = tensors[i].deviation, value = d < 0 ? 1 : d * normal();
            RN_TRY(rn_writer_append(writer, &value, sizeof value));
        }
    }
    return rn_writer_commit(writer);
}

static rn_status write_encoder(const char *folder, int vocab) {
    const tensor tensors[TENSORS] = {
        {"text_model.embeddings.token_embedding.weight", {(uint64_t)vocab, DIM}, 0.5f},
        {"text_model.embeddings.position_embedding.weight", {TOKENS, DIM}, 0.2f},
        {LAYER "self_attn.q_proj.weight", {DIM, DIM}, 0.125f},
        {LAYER "self_attn.q_proj.bias", {DIM, 0}, 0},
        {LAYER "self_attn.k_proj.weight", {DIM, DIM}, 0.125f},
        {LAYER "self_attn.k_proj.bias", {DIM, 0}, 0},
        {LAYER "self_attn.v_proj.weight", {DIM, DIM}, 0.06f},
        {LAYER "self_attn.v_proj.bias", {DIM, 0}, 0},
        {LAYER "self_attn.out_proj.weight", {DIM, DIM}, 0.06f},
        {LAYER "self_attn.out_proj.bias", {DIM, 0}, 0},
        {LAYER "layer_norm1.weight", {DIM, 0}, -1},
        {LAYER "layer_norm1.bias", {DIM, 0}, 0},
        {LAYER "mlp.fc1.weight", {FFN, DIM}, 0.06f},
        {LAYER "mlp.fc1.bias", {FFN, 0}, 0},
        {LAYER "mlp.fc2.weight", {DIM, FFN}, 0.06f},
        {LAYER "mlp.fc2.bias", {DIM, 0}, 0},
        {LAYER "layer_norm2.weight", {DIM, 0}, -1},
        {LAYER "layer_norm2.bias", {DIM, 0}, 0},
        {"text_model.final_layer_norm.weight", {DIM, 0}, -1},
        {"text_model.final_layer_norm.bias", {DIM, 0}, 0}};
    rn_write_tensor declared[TENSORS];
    char path[4096];
    rn_writer *writer;
    for (int i = 0; i < TENSORS; i++)
        declared[i] = (rn_write_tensor){.name = {tensors[i].name, strlen(tensors[i].name)},
                                        .dtype = RN_DTYPE_F32,
                                        .rank = tensors[i].dims[1] ? 2 : 1,
                                        .dims = tensors[i].dims};
    rn_metadata format = {.key = {"format", 6}, .kind = RN_METADATA_TEXT, .text = {"pt", 2}};
    rn_writer_options options = {.metadata = &format, .metadata_count = 1};
    snprintf(path, sizeof path, "%s/text_encoder/model.safetensors", folder);
    RN_TRY(rn_writer_create(path, declared, TENSORS, &options, &writer));
    rn_status s = append_all(writer, tensors);
    rn_writer_destroy(writer);
    return s;
}

// ---- the model ----------------------------------------------------------------------------------

static rn_status write_into(const char *folder, const char *name, const char *text) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return write_text(path, text);
}

static rn_status begin(const char *folder) {
    static const char *const parts[] = {"",           "/unet",     "/vae", "/text_encoder",
                                        "/tokenizer", "/scheduler"};
    char path[4096], text[1024];
    int vocab = 0;
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        snprintf(path, sizeof path, "%s%s", folder, parts[i]);
        RN_TRY(make_folder(path));
    }
    learn_merges();
    RN_TRY(write_vocab(folder, &vocab));
    RN_TRY(write_into(folder, "model_index.json", index_json));
    RN_TRY(write_into(folder, "scheduler/scheduler_config.json", scheduler_json));
    RN_TRY(write_into(folder, "vae/config.json", vae_json));
    RN_TRY(write_into(folder, "unet/config.json", unet_json));
    RN_TRY(write_into(folder, "tokenizer/tokenizer_config.json", tokenizer_json));
    snprintf(text, sizeof text, text_encoder_json, DIM, FFN, TOKENS, vocab, vocab - 2, vocab - 1,
             vocab - 1);
    RN_TRY(write_into(folder, "text_encoder/config.json", text));
    return write_encoder(folder, vocab);
}

int main(int argc, char **argv) {
    rn_status s;
    if (argc >= 4 && strcmp(argv[1], "draw") == 0) {
        state = argc > 4 ? strtoull(argv[4], NULL, 10) : 1;
        s = draw(argv[2], strtoul(argv[3], NULL, 10));
    } else if (argc == 3 && strcmp(argv[1], "begin") == 0) {
        state = 7;
        s = begin(argv[2]);
    } else {
        fprintf(stderr, "usage: train_pictures draw FOLDER COUNT [SEED] | begin FOLDER\n");
        return 2;
    }
    if (s != RN_OK) fprintf(stderr, "train_pictures: %s\n", rn_last_error()->message);
    return s == RN_OK ? 0 : 1;
}
