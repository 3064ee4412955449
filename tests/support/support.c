// support.c — files and folders for tests.
#include "support.h"

#include "base/fault.h"

#include <ration/memory.h>

#include <ftw.h>
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

const char *test_data(const char *name) {
    static char paths[4][512];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    const char *root = getenv("RATION_DATA");
    snprintf(path, sizeof paths[0], "%s/%s", root ? root : "../shared/data", name);
    return access(path, R_OK) == 0 ? path : NULL;
}

const char *test_data_or_skip(const char *name) {
    const char *path = test_data(name);
    if (!path) skip_because("no test data: %s", name);
    return path;
}

const char *test_model_or_skip(const char *name) {
    static char path[512];
    const char *root = getenv("RATION_MODELS");
    snprintf(path, sizeof path, "%s/%s", root ? root : "../models", name);
    if (access(path, R_OK) != 0) skip_because("no model %s in ../models or RATION_MODELS", name);
    return path;
}

void test_write_decimal_commas(void) {
    const char *made = getenv("RATION_TEST_LOCALES"); // by scripts/test
    if (made) setenv("LOCPATH", made, 1);
    const char *set = setlocale(LC_NUMERIC, "de_DE.UTF-8");
    if (made) unsetenv("LOCPATH");
    if (!set) skip_because("no locale de_DE.UTF-8");
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)info, (void)type, (void)walk;
    return remove(path);
}

static void remove_folder(void) {
    nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

const char *test_folder(void) {
    if (folder[0]) return folder;
    snprintf(folder, sizeof folder, "/tmp/ration-test-XXXXXX");
    if (!mkdtemp(folder)) {
        perror(folder);
        exit(1);
    }
    atexit(remove_folder);
    return folder;
}

const char *test_path(const char *name) {
    static char paths[8][256];
    static unsigned turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", test_folder(), name);
    return path;
}

char test_own_folder[256];

int test_make_folder(void **state) {
    static int number;
    (void)state;
    snprintf(test_own_folder, sizeof test_own_folder, "%s/%d", test_folder(), ++number);
    return mkdir(test_own_folder, 0755);
}

const char *test_own_path(const char *name) {
    static char paths[4][512];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", test_own_folder, name);
    return path;
}

void test_write(const char *path, const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

void *test_read(const char *path, size_t *out_bytes) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    long bytes = ftell(file);
    rewind(file);
    char *data = malloc((size_t)bytes + 1);
    *out_bytes = fread(data, 1, (size_t)bytes, file);
    data[*out_bytes] = '\0';
    fclose(file);
    return data;
}
