// model_names.c — see model_names.h.
#include "support/model_names.h"

#include "base/file.h"
#include "base/str.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

// ---- names --------------------------------------------------------------------------------------

static bool is_part(const char *text, size_t bytes) {
    if (bytes == 0 || bytes >= RN_NAME_BYTES || text[0] == '.' || text[0] == '-') return false;
    for (size_t i = 0; i < bytes; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("._-+", text[i])) return false;
    return true;
}

static void copy(char *out, const char *text, size_t bytes) {
    memcpy(out, text, bytes);
    out[bytes] = 0;
}

rn_status rn_model_name_parse(const char *text, rn_model_name *out) {
    const char *colon = strchr(text, ':'), *end = colon ? colon : text + strlen(text);
    const char *slash = memchr(text, '/', (size_t)(end - text));
    const char *name = slash ? slash + 1 : text;
    memset(out, 0, sizeof *out);
    if (strstr(text, ".."))
        return rn_fail(RN_INVALID, "'%.200s' is no name of a model: it has '..'", text);
    if ((slash && !is_part(text, (size_t)(slash - text))) || !is_part(name, (size_t)(end - name)) ||
        (colon && (strlen(colon + 1) >= RN_NAME_BYTES || !rn_path_is_inside(colon + 1))))
        return rn_hint(rn_fail(RN_INVALID, "'%.200s' is no name of a model", text),
                       "a name is org/name, org/name:file or name:file");
    if (slash) copy(out->organisation, text, (size_t)(slash - text));
    copy(out->name, name, (size_t)(end - name));
    if (colon) copy(out->file, colon + 1, strlen(colon + 1));
    return RN_OK;
}

bool rn_path_is_inside(const char *path) {
    if (!path[0] || path[0] == '/' || strchr(path, '\\')) return false;
    for (const char *at = path; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL)
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || !at[2])) return false;
    return true;
}

static bool ends_with(const char *text, const char *end) {
    size_t bytes = strlen(text), end_bytes = strlen(end);
    return bytes >= end_bytes && strcasecmp(text + bytes - end_bytes, end) == 0;
}

static void to_lower(char *text) {
    for (; *text; text++)
        *text = (char)tolower((unsigned char)*text);
}

// "Qwen2.5-Coder-1.5B-Instruct-GGUF" -> "qwen2.5-coder-1.5b-instruct".
static void shorten(const char *name, char out[RN_NAME_BYTES]) {
    snprintf(out, RN_NAME_BYTES, "%s", name);
    to_lower(out);
    if (ends_with(out, "-gguf")) out[strlen(out) - 5] = 0;
}

// "x.gguf", "x-00001-of-00003.gguf" -> "x".
static void find_stem(const char *file, char out[RN_NAME_BYTES]) {
    snprintf(out, RN_NAME_BYTES, "%.*s", (int)(strlen(file) - 5), file);
    char *of = strstr(out, "-of-");
    if (of && of - out > 6 && of[-6] == '-') of[-6] = 0;
}

// "x-q4_k_m.gguf" -> "q4_k_m": what is behind the last '-' or '.', or the whole where there is
// none.
static void find_tag(const char *file, char out[RN_NAME_BYTES]) {
    char text[RN_NAME_BYTES];
    find_stem(file, text);
    const char *dash = strrchr(text, '-'), *point = strrchr(text, '.');
    const char *tag = dash > point ? dash : point;
    snprintf(out, RN_NAME_BYTES, "%s", tag ? tag + 1 : text);
    to_lower(out);
}

// Whether it names how weights are kept, as GGUF files' names end: q4_k_m, iq4_xs, bf16, mxfp4.
static bool is_kind(const char *tag) {
    static const char *const whole[] = {"f16", "f32", "bf16", "mxfp4", "nvfp4"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (strcmp(tag, whole[i]) == 0) return true;
    tag += tag[0] == 'i' || tag[0] == 't';
    return tag[0] == 'q' && isdigit((unsigned char)tag[1]);
}

// "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf" -> "qwen2.5-coder-1.5b-instruct:q4_k_m", as where it
// lies in a repository of that name.
static void label_file(const char *file, char out[RN_NAME_BYTES]) {
    char tag[RN_NAME_BYTES];
    find_stem(file, out);
    to_lower(out);
    find_tag(file, tag);
    size_t bytes = strlen(out), tag_bytes = strlen(tag);
    if (is_kind(tag) && bytes > tag_bytes + 1) out[bytes - tag_bytes - 1] = ':';
}

// ---- folders ------------------------------------------------------------------------------------

typedef struct walk {
    bool (*each)(void *self, const rn_found_model *model);
    void *self;
    bool ended;
    rn_found_model model;
    const char *short_name; // of the repository
} walk;

static bool is_folder(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static uint64_t file_bytes(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode) ? (uint64_t)s.st_size : 0;
}

// Entries of a folder but those that begin with '.', in the order of their names.
typedef struct entries {
    struct dirent **items;
    int count;
} entries;

static int is_visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static entries read_folder(const char *path) {
    entries e = {NULL, 0};
    e.count = scandir(path, &e.items, is_visible, alphasort);
    if (e.count < 0) e.count = 0;
    return e;
}

static void free_entries(entries *e) {
    for (int i = 0; i < e->count; i++)
        free(e->items[i]);
    free(e->items);
}

static void tell(walk *w) {
    if (!w->ended && !w->each(w->self, &w->model)) w->ended = true;
}

// The first of several files ("-00001-of-00003") stands for all.
static bool is_later_part(const char *name) {
    const char *of = strstr(name, "-of-");
    return of && of - name >= 6 && strncmp(of - 5, "00001", 5) != 0;
}

static bool join(char out[RN_PATH_BYTES], const char *folder, const char *name) {
    return snprintf(out, RN_PATH_BYTES, "%s/%s", folder, name) < RN_PATH_BYTES;
}

static void tell_file(walk *w, const char *short_name, const char *name, const char *path) {
    char tag[RN_NAME_BYTES];
    find_tag(name, tag);
    snprintf(w->model.label, sizeof w->model.label, "%s:%s", short_name, tag);
    snprintf(w->model.path, sizeof w->model.path, "%s", path);
    w->model.bytes = file_bytes(path);
    tell(w);
}

// What a repository's folder can be run as: a folder of safetensors, and each GGUF file; these may
// lie in folders of their own, a kind each.
static void walk_repository(walk *w, const char *folder, const char *short_name, bool inner) {
    char path[RN_PATH_BYTES];
    entries e = read_folder(folder);
    bool config = false;
    uint64_t weights = 0;
    for (int i = 0; i < e.count && !w->ended; i++) {
        const char *name = e.items[i]->d_name;
        if (!join(path, folder, name) || strlen(name) >= RN_NAME_BYTES) continue;
        config |= strcmp(name, "config.json") == 0;
        if (ends_with(name, ".safetensors")) weights += file_bytes(path);
        if (ends_with(name, ".gguf") && !is_later_part(name) && file_bytes(path))
            tell_file(w, short_name, name, path);
        else if (!inner && is_folder(path))
            walk_repository(w, path, short_name, true);
    }
    if (config && weights && !inner && !w->ended) {
        snprintf(w->model.label, sizeof w->model.label, "%s", short_name);
        snprintf(w->model.path, sizeof w->model.path, "%s", folder);
        w->model.bytes = weights;
        tell(w);
    }
    free_entries(&e);
}

// `repository`: "org/name", or a name alone.
static void walk_named(walk *w, const char *repository, const char *folder) {
    char short_name[RN_NAME_BYTES];
    const char *slash = strrchr(repository, '/');
    snprintf(w->model.repository, sizeof w->model.repository, "%s", repository);
    shorten(slash ? slash + 1 : repository, short_name);
    walk_repository(w, folder, short_name, false);
}

static bool has_file(const char *folder, const char *name) {
    char path[RN_PATH_BYTES];
    return join(path, folder, name) && file_bytes(path) > 0;
}

static bool has_models(const char *folder) {
    entries e = read_folder(folder);
    bool found = false;
    for (int i = 0; i < e.count; i++)
        found |=
            ends_with(e.items[i]->d_name, ".gguf") || ends_with(e.items[i]->d_name, ".safetensors");
    free_entries(&e);
    return found;
}

// A folder of ours: files and folders of models, and folders of organisations that have these.
static void walk_ours(walk *w, const char *root) {
    char path[RN_PATH_BYTES], inner[RN_PATH_BYTES];
    entries e = read_folder(root);
    for (int i = 0; i < e.count && !w->ended; i++) {
        const char *name = e.items[i]->d_name;
        if (!join(path, root, name) || strlen(name) >= RN_NAME_BYTES) continue;
        w->model.repository[0] = 0;
        if (ends_with(name, ".gguf") && !is_later_part(name) && file_bytes(path)) {
            label_file(name, w->model.label);
            snprintf(w->model.path, sizeof w->model.path, "%s", path);
            w->model.bytes = file_bytes(path);
            tell(w);
        } else if (is_folder(path) && has_models(path)) {
            walk_named(w, name, path);
        } else if (is_folder(path) && !has_file(path, "model_index.json")) { // of an image model
            entries inside = read_folder(path);
            for (int k = 0; k < inside.count && !w->ended; k++) {
                const char *own = inside.items[k]->d_name;
                char repository[2 * RN_NAME_BYTES + 2];
                if (!join(inner, path, own) || !is_folder(inner)) continue;
                snprintf(repository, sizeof repository, "%.255s/%.255s", name, own);
                walk_named(w, repository, inner);
            }
            free_entries(&inside);
        }
    }
    free_entries(&e);
}

// models--org--name/snapshots/COMMIT; refs/main has the commit, else the last one will do.
static bool find_snapshot(const char *repository, char out[RN_PATH_BYTES]) {
    char snapshots[RN_PATH_BYTES], main_file[RN_PATH_BYTES], commit[128] = "";
    if (!join(snapshots, repository, "snapshots") || !join(main_file, repository, "refs/main"))
        return false;
    FILE *file = fopen(main_file, "r");
    if (file) {
        if (!fgets(commit, sizeof commit, file)) commit[0] = 0;
        fclose(file);
        commit[strcspn(commit, "\r\n")] = 0;
    }
    if (commit[0] && rn_path_is_inside(commit) && join(out, snapshots, commit) && is_folder(out))
        return true;
    entries e = read_folder(snapshots);
    bool found = e.count > 0 && join(out, snapshots, e.items[e.count - 1]->d_name);
    free_entries(&e);
    return found;
}

static void walk_hub(walk *w, const char *root) {
    char path[RN_PATH_BYTES], snapshot[RN_PATH_BYTES];
    entries e = read_folder(root);
    for (int i = 0; i < e.count && !w->ended; i++) {
        const char *name = e.items[i]->d_name;
        if (strncmp(name, "models--", 8) != 0 || !join(path, root, name)) continue;
        if (!find_snapshot(path, snapshot)) continue;
        const char *organisation = name + 8, *dashes = strstr(organisation, "--");
        char repository[2 * RN_NAME_BYTES + 2];
        if (dashes)
            snprintf(repository, sizeof repository, "%.*s/%.255s", (int)(dashes - organisation),
                     organisation, dashes + 2);
        else
            snprintf(repository, sizeof repository, "%.255s", organisation);
        walk_named(w, repository, snapshot);
    }
    free_entries(&e);
}

// ---- places -------------------------------------------------------------------------------------

static bool cache_path(const char *below, char out[RN_PATH_BYTES]) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && cache[0] == '/') return join(out, cache, below);
    if (!home || !home[0]) return false;
    return snprintf(out, RN_PATH_BYTES, "%s/.cache/%s", home, below) < RN_PATH_BYTES;
}

rn_status rn_models_folder(char out[RN_PATH_BYTES]) {
    if (cache_path("ration/models", out)) return RN_OK;
    return rn_hint(rn_fail(RN_NOT_FOUND, "there is no folder for models: $HOME is not set"),
                   "set HOME or XDG_CACHE_HOME");
}

static bool hub_path(char out[RN_PATH_BYTES]) {
    const char *hub = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME");
    if (hub && hub[0]) return snprintf(out, RN_PATH_BYTES, "%s", hub) < RN_PATH_BYTES;
    if (home && home[0]) return join(out, home, "hub");
    return cache_path("huggingface/hub", out);
}

static void walk_given(walk *w, const char *list) {
    char root[RN_PATH_BYTES];
    while (*list && !w->ended) {
        size_t bytes = strcspn(list, ":");
        if (bytes && bytes < sizeof root) {
            copy(root, list, bytes);
            walk_ours(w, root);
        }
        list += bytes + (list[bytes] == ':');
    }
}

rn_status rn_models_list(bool (*each)(void *self, const rn_found_model *model), void *self) {
    static walk w; // a few paths
    char root[RN_PATH_BYTES];
    const char *given = getenv("RATION_MODELS");
    w = (walk){.each = each, .self = self};
    w.model.place = "RATION_MODELS";
    if (given) walk_given(&w, given);
    w.model.place = "ration";
    if (cache_path("ration/models", root)) walk_ours(&w, root);
    w.model.place = "Hugging Face";
    if (hub_path(root)) walk_hub(&w, root);
    return RN_OK;
}

// ---- finding one --------------------------------------------------------------------------------

// How a name may differ from the model's own: not at all (but for case); by "-GGUF"; by what models
// for talk are called.
typedef enum match { EXACT, SHORT, ABBREVIATED, MATCHES } match;

typedef struct search {
    rn_model_name name;
    match match;
    uint32_t count; // of those that match
    bool
        preferred; // what was kept is a folder, or just the kind that is wanted: nobody need choose
    char several[512];
    rn_found_model *out;
} search;

static bool contains(const char *text, const char *part) {
    return strcasestr(text, part) != NULL;
}

// own: in the short form.
static bool is_called(const search *s, const char *repository, const char *own) {
    char wanted[RN_NAME_BYTES];
    if (s->match == EXACT && repository[0]) return strcasecmp(s->name.name, repository) == 0;
    shorten(s->name.name, wanted);
    size_t bytes = strlen(wanted);
    if (strncmp(own, wanted, bytes) != 0) return false;
    const char *rest = own + bytes;
    if (s->match != ABBREVIATED) return !*rest;
    return strcmp(rest, "-instruct") == 0 || strcmp(rest, "-it") == 0 || strcmp(rest, "-chat") == 0;
}

static bool matches(const search *s, const rn_found_model *m) {
    char own[RN_NAME_BYTES];
    const char *slash = strrchr(m->repository, '/');
    if (s->name.organisation[0]) {
        size_t bytes = strlen(s->name.organisation);
        if (!slash || (size_t)(slash - m->repository) != bytes ||
            strncasecmp(m->repository, s->name.organisation, bytes) != 0)
            return false;
    }
    snprintf(own, sizeof own, "%.*s", (int)strcspn(m->label, ":"), m->label);
    if (!is_called(s, slash ? slash + 1 : m->repository, own)) return false;
    const char *file = strrchr(m->path, '/');
    return !s->name.file[0] || contains(file ? file + 1 : m->path, s->name.file) ||
           contains(m->path, s->name.file);
}

// The first place that has it counts; of one repository's GGUF files q4_k_m where none is named.
static bool take(void *self, const rn_found_model *m) {
    search *s = self;
    if (!matches(s, m)) return true;
    bool other = s->out->place != m->place || strcmp(s->out->repository, m->repository) != 0;
    if (s->count && other) return true;
    const char *tag = strchr(m->label, ':');
    bool preferred = !tag || strcasecmp(tag + 1, s->name.file[0] ? s->name.file : "q4_k_m") == 0;
    size_t bytes = strlen(s->several);
    snprintf(s->several + bytes, sizeof s->several - bytes, "%s%s", bytes ? ", " : "", m->label);
    if (!s->count || (preferred && !s->preferred)) *s->out = *m;
    s->preferred |= preferred;
    s->count++;
    return true;
}

// What only a path can be: it has an ending of a file, or is said to lie somewhere.
static bool is_path(const char *word) {
    static const char *const endings[] = {".gguf", ".safetensors", ".onnx",
                                          ".json", ".toml",        ".pt"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends_with(word, endings[i])) return true;
    return word[0] == '/' || word[0] == '.' || word[0] == '~' || word[strlen(word) - 1] == '/';
}

rn_status rn_model_find(const char *word, rn_found_model *out) {
    search s = {.out = out};
    struct stat exists;
    *out = (rn_found_model){.place = ""};
    if (snprintf(out->path, sizeof out->path, "%s", word) >= (int)sizeof out->path || !word[0] ||
        stat(word, &exists) == 0 || is_path(word))
        return RN_OK;
    rn_status parsed = rn_model_name_parse(word, &s.name);
    if (parsed != RN_OK) return strchr(word, '/') ? parsed : RN_OK; // a file of this folder?
    for (s.match = EXACT; s.match < MATCHES && s.count == 0; s.match++)
        RN_TRY(rn_models_list(take, &s));
    if (s.count == 0)
        return rn_hint(
            rn_fail(RN_NOT_FOUND, "there is no file and no model '%s' on this machine", word),
            s.name.organisation[0]
                ? "`ration pull %s` downloads it; `ration models` lists what is here"
                : "`ration models` lists what is here; `ration pull org/%s` downloads",
            word);
    if (s.count > 1 && !s.preferred)
        return rn_hint(rn_fail(RN_INVALID, "'%s' has several files: %.300s", word, s.several),
                       "name one of them behind ':'");
    return RN_OK;
}
