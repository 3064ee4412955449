// python_packages.c — where Python packages lie.
#include "device/python_packages.h"

#include "base/file.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A search, and where it has been.
typedef struct search {
    const char *const *patterns;
    char *found, *looked;
    size_t found_bytes, looked_bytes;
} search;

// Takes the last of the files that fit the pattern: the newest Python's.
static bool look_for(search *s, const char *pattern) {
    glob_t matches = {0};
    bool found = glob(pattern, 0, NULL, &matches) == 0 && matches.gl_pathc > 0;
    if (found) {
        const char *path = matches.gl_pathv[matches.gl_pathc - 1];
        found = strlen(path) < s->found_bytes;
        if (found) strcpy(s->found, path);
    }
    globfree(&matches);
    return found;
}

static bool look_in(search *s, const char *packages) {
    char pattern[PATH_MAX + 128];
    size_t used = strlen(s->looked);
    snprintf(s->looked + used, s->looked_bytes - used, "%s%s", used ? ", " : "", packages);
    for (const char *const *file = s->patterns; *file; file++) {
        snprintf(pattern, sizeof pattern, "%s/%s", packages, *file);
        if (look_for(s, pattern)) return true;
    }
    return false;
}

// The packages of a Python installed in `prefix`.
static bool look_in_prefix(search *s, const char *prefix) {
    static const char *const folders[] = {
        "lib/python3*/site-packages", "lib/python3*/dist-packages", "lib/python3/dist-packages"};
    char packages[PATH_MAX + 64];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(packages, sizeof packages, "%s/%s", prefix, folders[i]);
        if (look_in(s, packages)) return true;
    }
    return false;
}

// The folder above bin/python3, as the first one in PATH has it and as its link has it.
static bool look_beside_python(search *s) {
    char path[PATH_MAX], real[PATH_MAX];
    const char *rest = getenv("PATH");
    while (rest && *rest) {
        size_t bytes = strcspn(rest, ":");
        snprintf(path, sizeof path, "%.*s/python3", (int)bytes, rest);
        if (bytes > 4 && rn_file_exists(path)) {
            snprintf(path, sizeof path, "%.*s/..", (int)bytes, rest);
            return realpath(path, real) && look_in_prefix(s, real);
        }
        rest += bytes + (rest[bytes] == ':');
    }
    return false;
}

static bool look(search *s) {
    const char *environment = getenv("VIRTUAL_ENV"), *path = getenv("PYTHONPATH");
    if (environment && environment[0] && look_in_prefix(s, environment)) return true;
    while (path && *path) {
        char folder[PATH_MAX];
        size_t bytes = strcspn(path, ":");
        snprintf(folder, sizeof folder, "%.*s", (int)bytes, path);
        if (bytes && look_in(s, folder)) return true;
        path += bytes + (path[bytes] == ':');
    }
    return look_in_prefix(s, "build/python") || look_beside_python(s) ||
           look_in_prefix(s, "/usr/local") || look_in_prefix(s, "/usr");
}

bool rn_python_find(const char *const *patterns, char *out, size_t bytes, char *looked,
                    size_t looked_bytes) {
    search s = {patterns, out, looked, bytes, looked_bytes};
    looked[0] = 0;
    return look(&s);
}
