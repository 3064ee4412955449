// find.c — the file of a plugin by its name, among the packages of the Pythons that are at hand.
//
// $RATION_XLA_PLUGIN (and $NEURON_LIBRARY_PATH for Neuron) is a file. Otherwise packages are looked
// through: those of the active virtual environment, of this source tree's build/python, of the
// python3 that is first in PATH, and the system's. No Python is started.
#include "backend/pjrt/pjrt.h"

#include "base/file.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct kind {
    const char *name;
    const char *variable; // a file
    const char *files[5]; // below a folder of packages; patterns
} kind;

static const kind kinds[] = {
    {"cpu", "RATION_XLA_PLUGIN", {"xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"}},
    {"cuda",
     "RATION_XLA_CUDA_PLUGIN",
     {"jax_plugins/xla_cuda13/xla_cuda_plugin.so", "jax_plugins/xla_cuda12/xla_cuda_plugin.so",
      "xla_plugins/xla_cuda13_pjrt/*.so", "xla_plugins/xla_cuda12_pjrt/*.so"}},
    {"rocm", "RATION_XLA_ROCM_PLUGIN", {"jax_plugins/xla_rocm*/xla_rocm_plugin.so"}},
    {"tpu", "TPU_LIBRARY_PATH", {"libtpu/libtpu.so"}},
    {"neuron", "NEURON_LIBRARY_PATH", {"libneuronxla/libneuronpjrt.so"}},
};

// A search, and where it has been.
typedef struct search {
    const kind *of;
    char found[PATH_MAX];
    char looked[700]; // folders, for the refusal
} search;

// Takes the last of the files that fit the pattern: the newest Python's.
static bool look_for(search *s, const char *pattern) {
    glob_t matches = {0};
    bool found = glob(pattern, 0, NULL, &matches) == 0 && matches.gl_pathc > 0;
    if (found) snprintf(s->found, sizeof s->found, "%s", matches.gl_pathv[matches.gl_pathc - 1]);
    globfree(&matches);
    return found;
}

static bool look_in(search *s, const char *packages) {
    char pattern[PATH_MAX + 128];
    size_t used = strlen(s->looked);
    snprintf(s->looked + used, sizeof s->looked - used, "%s%s", used ? ", " : "", packages);
    for (size_t i = 0; i < sizeof s->of->files / sizeof *s->of->files && s->of->files[i]; i++) {
        snprintf(pattern, sizeof pattern, "%s/%s", packages, s->of->files[i]);
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

static rn_status refuse(const search *s) {
    return rn_hint(
        rn_fail(RN_NOT_FOUND, "there is no PJRT plugin for %s in %s", s->of->name, s->looked),
        "set %s to its file, name it with xla:FILE, or install its package (xla:cpu is "
        "in xla-cpu-pjrt, xla:cuda in jax-cuda13-plugin, neuron in libneuronxla)",
        s->of->variable);
}

rn_status rn_pjrt_find(const char *name, char *out, size_t bytes) {
    search s = {0};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0) s.of = &kinds[i];
    if (!s.of)
        return rn_hint(rn_fail(RN_NOT_FOUND, "no PJRT plugin is known as \"%s\"", name),
                       "xla:cpu, xla:cuda, xla:rocm, xla:tpu, or the plugin's file");
    const char *told = getenv(s.of->variable);
    if (told && told[0])
        snprintf(s.found, sizeof s.found, "%s", told);
    else if (!look(&s))
        return refuse(&s);
    if (strlen(s.found) >= bytes) return rn_fail(RN_INVALID, "the path %s is too long", s.found);
    strcpy(out, s.found);
    return RN_OK;
}

rn_status rn_pjrt_cache_path(const char *name, char *out, size_t bytes) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[400];
    if (cache && cache[0] == '/')
        snprintf(folder, sizeof folder, "%s", cache);
    else if (home && home[0] == '/')
        snprintf(folder, sizeof folder, "%s/.cache", home);
    else
        return rn_fail(RN_NOT_FOUND, "there is no cache folder");
    (void)!mkdir(folder, 0700);
    size_t used = strlen(folder);
    snprintf(folder + used, sizeof folder - used, "/ration");
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) return rn_file_fail("make", folder);
    return rn_path_join(folder, name, out, bytes);
}
