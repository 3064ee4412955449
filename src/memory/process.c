// process.c — /proc and the cgroup files. Missing files are no error: a field stays at "unknown" or
// "no limit".
//
// cgroups: /proc/self/cgroup names the group, /proc/self/mountinfo says where that hierarchy is
// mounted and which part of it is visible. Limits hold for all ancestors, so the smallest on the
// way up counts.
#include "memory/process.h"
#include "memory/ledger.h"

#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct cgroup_place {
    int version;
    char mount[256]; // where the hierarchy is mounted
    char path[512];  // the group's path below the mount, "" for its root
} cgroup_place;

static FILE *open_under(const char *root, const char *path) {
    char full[1024];
    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full) return NULL;
    return fopen(full, "re");
}

// "Name:   123 kB" lines of /proc/self/status and /proc/meminfo.
static uint64_t read_kib_field(FILE *file, const char *name) {
    char line[256];
    size_t length = strlen(name);
    rewind(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, length) == 0 && line[length] == ':')
            return strtoull(line + length + 1, NULL, 10) * 1024;
    return 0;
}

static void read_process(const char *root, rn_process_info *out) {
    FILE *file = open_under(root, "/proc/self/status");
    if (!file) return;
    out->resident_bytes = read_kib_field(file, "VmRSS");
    out->resident_peak_bytes = read_kib_field(file, "VmHWM");
    out->page_table_bytes = read_kib_field(file, "VmPTE");
    fclose(file);
}

static void read_machine(const char *root, rn_process_info *out) {
    FILE *file = open_under(root, "/proc/meminfo");
    if (!file) return;
    out->machine_bytes = read_kib_field(file, "MemTotal");
    out->machine_available_bytes = read_kib_field(file, "MemAvailable");
    fclose(file);
}

// Finds "N:controllers:path"; version 2 is "0::path".
static bool find_group(const char *root, int version, char *out_path, size_t capacity) {
    char line[1024];
    bool found = false;
    FILE *file = open_under(root, "/proc/self/cgroup");
    if (!file) return false;
    while (!found && fgets(line, sizeof line, file)) {
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        found = version == 2 ? controllers[1] == '\0' : strstr(controllers + 1, "memory") != NULL;
        if (found) snprintf(out_path, capacity, "%s", path);
    }
    fclose(file);
    return found;
}

// mountinfo: "id parent dev ROOT MOUNT options ... - TYPE source SUPEROPTIONS"
static bool parse_mount(char *line, int version, char *out_root, char *out_mount) {
    char *dash = strstr(line, " - ");
    char type[32], super[256];
    if (!dash || sscanf(dash + 3, "%31s %*s %255s", type, super) != 2) return false;
    if (version == 2 ? strcmp(type, "cgroup2") != 0
                     : strcmp(type, "cgroup") != 0 || !strstr(super, "memory"))
        return false;
    return sscanf(line, "%*s %*s %*s %255s %255s", out_root, out_mount) == 2;
}

static bool find_mount(const char *root, int version, char *out_root, char *out_mount) {
    char line[2048];
    bool found = false;
    FILE *file = open_under(root, "/proc/self/mountinfo");
    if (!file) return false;
    while (!found && fgets(line, sizeof line, file))
        found = parse_mount(line, version, out_root, out_mount);
    fclose(file);
    return found;
}

static bool find_cgroup(const char *root, int version, cgroup_place *out) {
    char group[512], mount_root[256];
    if (!find_group(root, version, group, sizeof group)) return false;
    if (!find_mount(root, version, mount_root, out->mount)) return false;
    // In a container the mount shows only a part of the hierarchy; the group's path may begin above
    // it.
    size_t hidden = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
    bool below = strncmp(group, mount_root, hidden) == 0 &&
                 (hidden == 0 || group[hidden] == '/' || group[hidden] == '\0');
    snprintf(out->path, sizeof out->path, "%s", below ? group + hidden : "");
    if (strcmp(out->path, "/") == 0) out->path[0] = '\0';
    out->version = version;
    return true;
}

// "max" and v1's huge number mean no limit.
static bool read_value(const char *root, const cgroup_place *place, const char *name,
                       uint64_t *out) {
    char path[1024], text[64];
    snprintf(path, sizeof path, "%s%s/%s", place->mount, place->path, name);
    FILE *file = open_under(root, path);
    if (!file) return false;
    bool found = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    if (!found) return false;
    *out = strncmp(text, "max", 3) == 0 ? RN_NO_LIMIT : strtoull(text, NULL, 10);
    if (*out >= (uint64_t)1 << 62) *out = RN_NO_LIMIT;
    return true;
}

// Page cache that nobody has used lately: the system gives it up before it refuses anybody.
static uint64_t read_reclaimable(const char *root, const cgroup_place *place) {
    static const char *const names[] = {NULL, "total_inactive_file ", "inactive_file "};
    char path[1024], line[128];
    const char *name = names[place->version];
    uint64_t bytes = 0;
    snprintf(path, sizeof path, "%s%s/memory.stat", place->mount, place->path);
    FILE *file = open_under(root, path);
    if (!file) return 0;
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0) bytes = strtoull(line + strlen(name), NULL, 10);
    fclose(file);
    return bytes;
}

static void read_cgroup(const char *root, int version, rn_process_info *out) {
    cgroup_place place;
    uint64_t value;
    if (!find_cgroup(root, version, &place)) return;
    const char *usage = version == 2 ? "memory.current" : "memory.usage_in_bytes";
    const char *maximum = version == 2 ? "memory.max" : "memory.limit_in_bytes";
    for (bool own = true;; own = false) {
        uint64_t used = 0;
        if (read_value(root, &place, usage, &used)) out->cgroup_version = version;
        if (own) out->cgroup_used_bytes = used;
        if (read_value(root, &place, maximum, &value) && value != RN_NO_LIMIT) {
            // The tightest limit and the fullest group need not be the same.
            uint64_t cache = read_reclaimable(root, &place);
            uint64_t kept = used > cache ? used - cache : 0;
            uint64_t room = value > kept ? value - kept : 0;
            if (value < out->cgroup_limit_bytes) out->cgroup_limit_bytes = value;
            if (room < out->cgroup_free_bytes) out->cgroup_free_bytes = room;
        }
        char *slash = strrchr(place.path, '/');
        if (!slash) break;
        *slash = '\0';
    }
}

rn_status rn_process_read_under(const char *root, rn_process_info *out) {
    *out = (rn_process_info){.cgroup_limit_bytes = RN_NO_LIMIT, .cgroup_free_bytes = RN_NO_LIMIT};
    read_process(root, out);
    read_machine(root, out);
    read_cgroup(root, 2, out);
    if (out->cgroup_limit_bytes == RN_NO_LIMIT) read_cgroup(root, 1, out);
    if (out->machine_bytes == 0)
        return rn_hint(rn_fail(RN_IO, "cannot read /proc/meminfo"), "is /proc mounted?");
    return RN_OK;
}

rn_status rn_process_read(rn_process_info *out) {
    return rn_process_read_under("", out);
}

uint64_t rn_process_whole_bytes(const rn_process_info *info) {
    return info->cgroup_limit_bytes < info->machine_bytes ? info->cgroup_limit_bytes
                                                          : info->machine_bytes;
}

uint64_t rn_process_free_bytes(const rn_process_info *info) {
    return info->cgroup_free_bytes < info->machine_available_bytes ? info->cgroup_free_bytes
                                                                   : info->machine_available_bytes;
}

// Charged memory need not be resident yet, so this is a lower bound once much is charged; measured
// early, before anything large is allocated, it is what the process image costs.
rn_status rn_process_charge_unaccounted(void) {
    rn_process_info info;
    RN_TRY(rn_process_read(&info));
    uint64_t resident = info.resident_bytes + info.page_table_bytes;
    uint64_t outside = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED).now_bytes;
    uint64_t ours = rn_ledger_total(RN_DEVICE_HOST).now_bytes - outside;
    rn_ledger_set(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED, resident > ours ? resident - ours : 0);
    return RN_OK;
}
