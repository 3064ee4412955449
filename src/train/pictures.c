// pictures.c — a folder of pictures with captions.
//
// Names are sorted, so that nothing depends on the order in which a file system lists them; sizes
// come from headers, so that a folder of thousands opens at once. A picture is decoded when its
// latent is made.
#include "train/pictures.h"

#include "base/file.h"
#include "base/reserved.h"
#include "base/str.h"
#include "io/jpeg.h"
#include "io/json_read.h"
#include "memory/account.h"

#include <ration/image.h>

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_PICTURES = 1 << 20,
    MOST_CAPTION = 64 << 10,
    MOST_METADATA = 256 << 20,
    HEAD_BYTES = 256 << 10 // a JPEG's frame may stand behind a preview
};

// ---- names --------------------------------------------------------------------------------------

static bool has_ending(const char *name, const char *ending) {
    size_t bytes = strlen(name), end = strlen(ending);
    return bytes > end &&
           rn_str_equal_ignoring_case((rn_str){name + bytes - end, end}, (rn_str){ending, end});
}

static bool is_picture(const char *name) {
    return has_ending(name, ".png") || has_ending(name, ".jpg") || has_ending(name, ".jpeg");
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const rn_picture *)a)->path, ((const rn_picture *)b)->path);
}

typedef struct listing {
    rn_pictures *pictures;
    const char *folder;
    uint64_t room;
    uint64_t texts; // .txt files
} listing;

static rn_status add_picture(listing *l, const char *name) {
    rn_pictures *p = l->pictures;
    char path[PATH_MAX];
    void *block = NULL;
    if (p->info.count == MOST_PICTURES)
        return rn_fail(RN_UNSUPPORTED, "more than %d pictures in a folder", MOST_PICTURES);
    if (p->info.count == l->room) {
        l->room = l->room ? 2 * l->room : 64;
        RN_TRY(rn_arena_array(&p->memory, l->room, sizeof *p->items, &block));
        if (p->info.count) memcpy(block, p->items, p->info.count * sizeof *p->items);
        p->items = block;
    }
    RN_TRY(rn_path_join(l->folder, name, path, sizeof path));
    RN_TRY(rn_arena_copy(&p->memory, path, strlen(path), &block));
    p->items[p->info.count++] = (rn_picture){.path = block, .caption = ""};
    return RN_OK;
}

static rn_status list_folder(listing *l) {
    DIR *dir = opendir(l->folder);
    if (!dir) return rn_file_fail("open", l->folder);
    rn_status s = RN_OK;
    for (struct dirent *entry; s == RN_OK && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        if (is_picture(entry->d_name)) s = add_picture(l, entry->d_name);
        l->texts += has_ending(entry->d_name, ".txt");
    }
    closedir(dir);
    if (s == RN_OK && l->pictures->info.count == 0)
        s = rn_hint(rn_error_locate(rn_fail(RN_NOT_FOUND, "there is no PNG or JPEG file"),
                                    l->folder, RN_NO_OFFSET),
                    "pictures lie in the folder itself, captions beside them as NAME.txt or in "
                    "metadata.jsonl");
    if (s == RN_OK) qsort(l->pictures->items, l->pictures->info.count, sizeof(rn_picture), by_name);
    return s;
}

// ---- captions -----------------------------------------------------------------------------------

static rn_status keep_caption(rn_pictures *p, rn_picture *picture, rn_str text) {
    void *block = NULL;
    while (text.bytes && strchr(" \t\r\n", text.data[text.bytes - 1]))
        text.bytes--;
    while (text.bytes && strchr(" \t\r\n", text.data[0])) {
        text.data++;
        text.bytes--;
    }
    if (!rn_utf8_valid(text) || memchr(text.data, 0, text.bytes))
        return rn_fail(RN_CORRUPT, "a caption that is no UTF-8 text");
    RN_TRY(rn_arena_copy(&p->memory, text.data, text.bytes, &block));
    picture->caption = block;
    return RN_OK;
}

// NAME.txt beside NAME.png. *out: there is one.
static rn_status read_text(rn_pictures *p, rn_picture *picture, bool *out) {
    char path[PATH_MAX];
    rn_buffer file;
    size_t stem = (size_t)(strrchr(picture->path, '.') - picture->path);
    *out = false;
    if (stem + 5 > sizeof path) return RN_OK;
    memcpy(path, picture->path, stem);
    memcpy(path + stem, ".txt", 5);
    if (!rn_file_exists(path)) return RN_OK;
    *out = true;
    rn_buffer_init(&file, RN_HOST_IO, MOST_CAPTION);
    rn_status s = rn_file_read_all(path, &file);
    if (s == RN_OK) s = keep_caption(p, picture, (rn_str){file.data, file.bytes});
    rn_buffer_free(&file);
    return s == RN_OK ? RN_OK : rn_error_locate(s, path, rn_last_error()->offset);
}

static rn_picture *find_picture(rn_pictures *p, const char *folder, rn_str name) {
    char path[PATH_MAX], file[NAME_MAX + 1];
    if (name.bytes > NAME_MAX) return NULL;
    memcpy(file, name.data, name.bytes);
    file[name.bytes] = 0;
    if (rn_path_join(folder, file, path, sizeof path) != RN_OK) return NULL;
    rn_picture key = {.path = path};
    return bsearch(&key, p->items, p->info.count, sizeof key, by_name);
}

// {"file_name": ..., "text": ...}; "caption" is taken for "text".
static rn_status read_line(listing *l, rn_str line) {
    rn_json_reader reader;
    rn_json_item item, value;
    rn_picture *picture = NULL;
    rn_buffer text;
    bool named = false;
    rn_buffer_init(&text, RN_HOST_IO, MOST_CAPTION);
    rn_json_reader_init(&reader, line, RN_HOST_IO);
    rn_status s = rn_json_expect(&reader, RN_JSON_OBJECT, NULL);
    while (s == RN_OK) {
        s = rn_json_next(&reader, &item);
        if (s != RN_OK || item.kind == RN_JSON_OBJECT_END) break;
        bool is_name = rn_str_equal(item.text, RN_STR("file_name"));
        bool is_text =
            rn_str_equal(item.text, RN_STR("text")) || rn_str_equal(item.text, RN_STR("caption"));
        if (is_name || is_text)
            s = rn_json_expect(&reader, RN_JSON_STRING, &value);
        else
            s = rn_json_skip(&reader);
        if (s == RN_OK && is_name) {
            named = true;
            picture = find_picture(l->pictures, l->folder, value.text);
        }
        text.bytes = s == RN_OK && is_text ? 0 : text.bytes;
        if (s == RN_OK && is_text) s = rn_buffer_append(&text, value.text.data, value.text.bytes);
    }
    if (s == RN_OK && !named) s = rn_fail(RN_CORRUPT, "a line without 'file_name'");
    if (s == RN_OK && !picture) l->pictures->info.orphans++;
    if (s == RN_OK && picture)
        s = keep_caption(l->pictures, picture, (rn_str){text.data, text.bytes});
    rn_json_reader_free(&reader);
    rn_buffer_free(&text);
    return s;
}

static rn_status read_metadata(listing *l) {
    char path[PATH_MAX];
    rn_buffer file;
    RN_TRY(rn_path_join(l->folder, "metadata.jsonl", path, sizeof path));
    if (!rn_file_exists(path)) return RN_OK;
    rn_buffer_init(&file, RN_HOST_IO, MOST_METADATA);
    rn_status s = rn_file_read_all(path, &file);
    uint64_t number = 1;
    for (size_t at = 0; s == RN_OK && at < file.bytes; number++) {
        const char *end = memchr(file.data + at, '\n', file.bytes - at);
        size_t bytes = end ? (size_t)(end - file.data) - at : file.bytes - at;
        rn_str line = {file.data + at, bytes};
        if (line.bytes && strspn(line.data, " \t\r") < line.bytes) s = read_line(l, line);
        if (s != RN_OK)
            s = rn_hint(rn_error_locate(s, path, at), "line %llu", (unsigned long long)number);
        at += bytes + 1;
    }
    rn_buffer_free(&file);
    return s;
}

static rn_status read_captions(listing *l) {
    rn_pictures *p = l->pictures;
    uint64_t texts = 0;
    RN_TRY(read_metadata(l));
    for (uint64_t i = 0; i < p->info.count; i++) {
        bool found = false;
        if (!p->items[i].caption[0]) RN_TRY(read_text(p, &p->items[i], &found));
        texts += found;
        p->info.without_caption += !p->items[i].caption[0];
    }
    if (l->texts > texts) p->info.orphans += l->texts - texts;
    return RN_OK;
}

// ---- sizes --------------------------------------------------------------------------------------

static rn_status read_head(const uint8_t *head, size_t bytes, rn_picture *picture) {
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    if (rn_jpeg_is(head, bytes))
        return rn_jpeg_size(head, bytes, &picture->width, &picture->height);
    if (bytes < 24 || memcmp(head, png, sizeof png) != 0 || memcmp(head + 12, "IHDR", 4) != 0)
        return rn_fail(RN_CORRUPT, "neither PNG nor JPEG");
    for (int i = 0; i < 4; i++) {
        picture->width = picture->width << 8 | head[16 + i];
        picture->height = picture->height << 8 | head[20 + i];
    }
    if (picture->width && picture->height) return RN_OK;
    return rn_fail(RN_CORRUPT, "a picture without pixels");
}

static rn_status read_sizes(rn_pictures *p) {
    void *head = NULL;
    rn_status s = rn_alloc(RN_HOST_IO, HEAD_BYTES, &head);
    for (uint64_t i = 0; s == RN_OK && i < p->info.count; i++) {
        int fd = -1;
        uint64_t bytes = 0;
        s = rn_file_open(p->items[i].path, &fd, &bytes);
        if (s != RN_OK) break;
        if (bytes > HEAD_BYTES) bytes = HEAD_BYTES;
        s = rn_file_read_at(fd, p->items[i].path, 0, head, bytes);
        close(fd);
        if (s == RN_OK) s = read_head(head, bytes, &p->items[i]);
        if (s != RN_OK) s = rn_error_locate(s, p->items[i].path, rn_last_error()->offset);
    }
    rn_free(RN_HOST_IO, head, HEAD_BYTES);
    return s;
}

// ---- the folder ---------------------------------------------------------------------------------

static rn_status check_options(rn_picture_options *o) {
    RN_TRY(rn_check_reserved(o->reserved, "rn_picture_options"));
    if (!o->width) o->width = o->height ? o->height : 512;
    if (!o->height) o->height = o->width;
    if (!o->buckets) o->buckets = RN_PICTURE_BUCKETS;
    uint32_t least = o->width < o->height ? o->width : o->height;
    if (!o->multiple) // an eighth of small pictures, so that they have buckets, too
        for (o->multiple = 64; o->multiple > 8 && (least % o->multiple || 8 * o->multiple > least);)
            o->multiple /= 2;
    if (o->width > 1 << 14 || o->height > 1 << 14 || o->width % o->multiple ||
        o->height % o->multiple)
        return rn_fail(RN_INVALID, "pictures of %u x %u: sides are multiples of %u up to 16384",
                       o->width, o->height, o->multiple);
    if (o->buckets > RN_PICTURE_BUCKETS)
        return rn_fail(RN_INVALID, "%u buckets, at most %d can be", o->buckets, RN_PICTURE_BUCKETS);
    if (!(o->validation >= 0 && o->validation < 1))
        return rn_fail(RN_INVALID, "a share of %g for validation", o->validation);
    return RN_OK;
}

rn_status rn_pictures_open(const char *folder, const rn_picture_options *options,
                           rn_pictures **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(RN_HOST_OTHER, 1, sizeof(rn_pictures), &block));
    rn_pictures *p = block;
    listing l = {.pictures = p, .folder = folder};
    if (options) p->options = *options;
    rn_arena_init(&p->memory, RN_HOST_OTHER, 0);
    rn_status s = check_options(&p->options);
    if (s == RN_OK) s = list_folder(&l);
    if (s == RN_OK) s = read_captions(&l);
    if (s == RN_OK) s = read_sizes(p);
    if (s == RN_OK) s = rn_pictures_sort(p);
    if (s == RN_OK)
        *out = p;
    else
        rn_pictures_close(p);
    return s;
}

void rn_pictures_close(rn_pictures *pictures) {
    if (!pictures) return;
    rn_arena_free_all(&pictures->memory);
    rn_free(RN_HOST_OTHER, pictures, sizeof *pictures);
}

const rn_pictures_info *rn_pictures_get_info(const rn_pictures *pictures) {
    return &pictures->info;
}

const rn_picture *rn_pictures_get(const rn_pictures *pictures, uint64_t number) {
    return number < pictures->info.count ? &pictures->items[number] : NULL;
}

rn_status rn_pictures_values(const rn_pictures *pictures, uint64_t number, float *out) {
    const rn_picture *picture = rn_pictures_get(pictures, number);
    rn_image image;
    if (!picture)
        return rn_fail(RN_INVALID, "there is no picture %llu", (unsigned long long)number);
    const rn_picture_bucket *b = &pictures->info.buckets[picture->bucket];
    rn_image_form form = {.height = b->height,
                          .width = b->width,
                          .channels = 3,
                          .channels_last = true,
                          .scale = 2.0f / 255,
                          .mean = {1, 1, 1},
                          .std = {1, 1, 1}};
    RN_TRY(rn_image_read(picture->path, &image));
    rn_status s = rn_image_values(&image, &form, out);
    rn_image_free(&image);
    return s;
}
