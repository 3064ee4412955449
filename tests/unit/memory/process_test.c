// The process as the system sees it: made-up systems of many kinds, and the one we run on.
#include "support.h"
#include "memory/ledger.h"
#include "memory/process.h"

#include <sys/mman.h>
#include <sys/stat.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

// ---- made-up systems ---------------------------------------------------------------------

static char root[128];

// A new system with a /proc, 64 GiB of memory of which 48 are available, and no cgroups.
static void make_system(void) {
    static int number;
    char name[32];
    snprintf(name, sizeof name, "system-%d", number++);
    snprintf(root, sizeof root, "%s", test_path(name));
    assert_int_equal(0, mkdir(root, 0700));
}

static void put(const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    test_write(full, text, strlen(text));
}

static void put_number(const char *path, uint64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)value);
    put(path, text);
}

static void put_proc(void) {
    put("/proc/self/status", "Name:\tration\nVmPeak:\t  999999 kB\nVmHWM:\t    3000 kB\n"
                             "VmRSS:\t    2000 kB\nVmPTE:\t      48 kB\n");
    put("/proc/meminfo", "MemTotal:       67108864 kB\nMemFree:         1000000 kB\n"
                         "MemAvailable:   50331648 kB\n");
}

static rn_process_info read_system(void) {
    rn_process_info info;
    assert_ok(rn_process_read_under(root, &info));
    return info;
}

static void expect_cgroup(rn_process_info info, int version, uint64_t limit, uint64_t used,
                          uint64_t room) {
    assert_int_equal(version, info.cgroup_version);
    assert_true(limit == info.cgroup_limit_bytes);
    assert_int_equal(used, info.cgroup_used_bytes);
    assert_true(room == info.cgroup_free_bytes);
}

static const char v2_mount[] =
    "22 1 0:20 / /proc rw,nosuid - proc proc rw\n"
    "30 22 0:26 / /sys/fs/cgroup rw,nosuid,nodev shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

static void process_and_machine_are_read(void **state) {
    (void)state;
    make_system();
    put_proc();
    rn_process_info info = read_system();
    assert_int_equal(2000 * KIB, info.resident_bytes);
    assert_int_equal(3000 * KIB, info.resident_peak_bytes);
    assert_int_equal(48 * KIB, info.page_table_bytes);
    assert_int_equal(64 * GIB, info.machine_bytes);
    assert_int_equal(48 * GIB, info.machine_available_bytes);
    expect_cgroup(info, 0, RN_NO_LIMIT, 0, RN_NO_LIMIT);
    assert_int_equal(64 * GIB, rn_process_whole_bytes(&info));
    assert_int_equal(48 * GIB, rn_process_free_bytes(&info));
}

static void container_with_version_2(void **state) {
    (void)state;
    make_system();
    put_proc();
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo", v2_mount);
    put_number("/sys/fs/cgroup/memory.max", 2 * GIB);
    put_number("/sys/fs/cgroup/memory.current", 512 * MIB);
    rn_process_info info = read_system();
    expect_cgroup(info, 2, 2 * GIB, 512 * MIB, 2 * GIB - 512 * MIB);
    assert_int_equal(2 * GIB, rn_process_whole_bytes(&info));
    assert_int_equal(2 * GIB - 512 * MIB, rn_process_free_bytes(&info));
}

static void version_2_on_the_host_looks_at_all_ancestors(void **state) {
    (void)state;
    make_system();
    put_proc();
    put("/proc/self/cgroup", "0::/user.slice/app.scope\n");
    put("/proc/self/mountinfo", v2_mount);
    put("/sys/fs/cgroup/user.slice/app.scope/memory.max", "max\n");
    put_number("/sys/fs/cgroup/user.slice/app.scope/memory.current", 100 * MIB);
    put_number("/sys/fs/cgroup/user.slice/memory.max", 4 * GIB);
    put_number("/sys/fs/cgroup/user.slice/memory.current", 3 * GIB);
    rn_process_info info = read_system(); // the root has no such files
    expect_cgroup(info, 2, 4 * GIB, 100 * MIB, GIB);
}

// A tight limit with much room within a wide one that is nearly used up.
static void least_room_may_be_above_the_smallest_limit(void **state) {
    (void)state;
    make_system();
    put_proc();
    put("/proc/self/cgroup", "0::/pod/container\n");
    put("/proc/self/mountinfo", v2_mount);
    put_number("/sys/fs/cgroup/pod/container/memory.max", GIB);
    put_number("/sys/fs/cgroup/pod/container/memory.current", 200 * MIB);
    put_number("/sys/fs/cgroup/pod/memory.max", 2 * GIB);
    put_number("/sys/fs/cgroup/pod/memory.current", 2 * GIB - 100 * MIB);
    rn_process_info info = read_system();
    expect_cgroup(info, 2, GIB, 200 * MIB, 100 * MIB);
    assert_int_equal(GIB, rn_process_whole_bytes(&info));
    assert_int_equal(100 * MIB, rn_process_free_bytes(&info));
}

static void idle_page_cache_counts_as_free(void **state) {
    (void)state;
    make_system();
    put_proc();
    put("/proc/self/cgroup", "0::/app\n");
    put("/proc/self/mountinfo", v2_mount);
    put_number("/sys/fs/cgroup/app/memory.max", GIB);
    put_number("/sys/fs/cgroup/app/memory.current", 900 * MIB);
    put("/sys/fs/cgroup/app/memory.stat", "anon 1048576\ninactive_file 629145600\nactive_file 7\n");
    rn_process_info info = read_system();
    expect_cgroup(info, 2, GIB, 900 * MIB, GIB - 300 * MIB);
}

static void usage_above_the_limit_leaves_no_room(void **state) {
    (void)state;
    make_system();
    put_proc();
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo", v2_mount);
    put_number("/sys/fs/cgroup/memory.max", GIB);
    put_number("/sys/fs/cgroup/memory.current", GIB + 4096);
    rn_process_info info = read_system();
    assert_int_equal(0, rn_process_free_bytes(&info));
}

// Without a cgroup namespace the process sees its path from the host's root, but only its own part
// is mounted.
static void container_sees_a_part_of_the_hierarchy(void **state) {
    (void)state;
    const char *const groups[] = {"0::/docker/abc\n", "0::/docker/abc/\n",
                                  "0::/docker/abc/worker\n", "0::/docker/abcdef\n",
                                  "0::/elsewhere\n"};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        make_system();
        put_proc();
        put("/proc/self/cgroup", groups[i]);
        put("/proc/self/mountinfo",
            "30 22 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n");
        put_number("/sys/fs/cgroup/memory.max", 3 * GIB);
        put_number("/sys/fs/cgroup/memory.current", GIB);
        put_number("/sys/fs/cgroup/worker/memory.current", 300 * MIB);
        put_number("/sys/fs/cgroupdef/memory.max", 7); // what a careless reader would find
        bool worker = strstr(groups[i], "worker") != NULL;
        expect_cgroup(read_system(), 2, 3 * GIB, worker ? 300 * MIB : GIB, 2 * GIB);
    }
}

static const char v1_groups[] = "9:name=systemd:/\n8:pids:/a/b\n4:memory:/a/b\n1:cpu,cpuacct:/x\n";
static const char v1_mounts[] =
    "31 22 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    "32 22 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

static void version_1_with_limits_inside_limits(void **state) {
    (void)state;
    make_system();
    put_proc();
    put("/proc/self/cgroup", v1_groups);
    put("/proc/self/mountinfo", v1_mounts);
    const char *unlimited = "9223372036854771712\n";
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", unlimited);
    put_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", 9 * GIB);
    put_number("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", 5 * GIB);
    put_number("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", 4 * GIB);
    put_number("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", 8 * GIB);
    put_number("/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", 2 * GIB);
    rn_process_info info = read_system();
    expect_cgroup(info, 1, 5 * GIB, 2 * GIB, GIB);
    put_number("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", 2 * GIB + 100 * MIB);
    expect_cgroup(read_system(), 1, 2 * GIB + 100 * MIB, 2 * GIB, 100 * MIB);
}

// Both versions mounted, memory still with version 1.
static void hybrid_systems_use_the_version_that_knows_memory(void **state) {
    (void)state;
    make_system();
    put_proc();
    put("/proc/self/cgroup", "4:memory:/\n1:cpu:/\n0::/\n");
    put("/proc/self/mountinfo", "32 22 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                                "33 22 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/unified/cgroup.procs", "1\n");
    put_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", 6 * GIB);
    put_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", GIB);
    expect_cgroup(read_system(), 1, 6 * GIB, GIB, 5 * GIB);
}

static void groups_without_limits_are_unlimited(void **state) {
    (void)state;
    make_system();
    put_proc();
    put("/proc/self/cgroup", "0::/a\n");
    put("/proc/self/mountinfo", v2_mount);
    put("/sys/fs/cgroup/a/memory.max", "max\n");
    put_number("/sys/fs/cgroup/a/memory.current", GIB);
    rn_process_info info = read_system();
    expect_cgroup(info, 2, RN_NO_LIMIT, GIB, RN_NO_LIMIT);
    assert_int_equal(64 * GIB, rn_process_whole_bytes(&info));
    assert_int_equal(48 * GIB, rn_process_free_bytes(&info));

    make_system();
    put_proc();
    put("/proc/self/cgroup", v1_groups);
    put("/proc/self/mountinfo", v1_mounts);
    put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
    put_number("/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", GIB);
    expect_cgroup(read_system(), 1, RN_NO_LIMIT, GIB, RN_NO_LIMIT);
}

static void limit_above_the_machine_does_not_count(void **state) {
    (void)state;
    make_system();
    put_proc();
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo", v2_mount);
    put_number("/sys/fs/cgroup/memory.max", 128 * GIB);
    put_number("/sys/fs/cgroup/memory.current", GIB);
    rn_process_info info = read_system();
    assert_int_equal(64 * GIB, rn_process_whole_bytes(&info));
    assert_int_equal(48 * GIB, rn_process_free_bytes(&info));
}

static void missing_and_odd_files_are_no_limits(void **state) {
    (void)state;
    make_system(); // groups, but no mounts
    put_proc();
    put("/proc/self/cgroup", "0::/a\n");
    expect_cgroup(read_system(), 0, RN_NO_LIMIT, 0, RN_NO_LIMIT);
    make_system(); // mounts, but no groups
    put_proc();
    put("/proc/self/mountinfo", v2_mount);
    expect_cgroup(read_system(), 0, RN_NO_LIMIT, 0, RN_NO_LIMIT);
    make_system(); // lines that are none, empty files
    put_proc();
    put("/proc/self/cgroup", "\n:\n0\n0:\n0::/a\n");
    put("/proc/self/mountinfo", "\n - \nx - cgroup2\n30 22 0:26 - cgroup2 x rw\n");
    expect_cgroup(read_system(), 0, RN_NO_LIMIT, 0, RN_NO_LIMIT);
    make_system();
    put_proc();
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo", v2_mount);
    put("/sys/fs/cgroup/memory.max", "");
    put("/sys/fs/cgroup/memory.current", "");
    expect_cgroup(read_system(), 0, RN_NO_LIMIT, 0, RN_NO_LIMIT);
    make_system(); // a process without numbers
    put("/proc/meminfo", "MemTotal: 1024 kB\n");
    rn_process_info info = read_system();
    assert_int_equal(0, info.resident_bytes);
    assert_int_equal(MIB, info.machine_bytes);
    assert_int_equal(0, info.machine_available_bytes);
}

static void long_lines_and_paths_are_survived(void **state) {
    (void)state;
    static char text[6000];
    make_system();
    put_proc();
    memset(text, 'x', sizeof text - 1);
    memcpy(text, "0::/", 4);
    put("/proc/self/cgroup", text);
    put("/proc/self/mountinfo", v2_mount);
    expect_cgroup(read_system(), 0, RN_NO_LIMIT, 0, RN_NO_LIMIT);
    memset(text, 'y', 4);
    put("/proc/self/mountinfo", text);
    expect_cgroup(read_system(), 0, RN_NO_LIMIT, 0, RN_NO_LIMIT);
}

static void system_without_proc_is_a_failure(void **state) {
    (void)state;
    rn_process_info info;
    make_system();
    assert_fails(RN_IO, rn_process_read_under(root, &info));
    assert_non_null(strstr(rn_last_error()->message, "/proc/meminfo"));
    assert_non_null(strstr(rn_last_error()->hint, "mounted"));
}

// ---- this system ---------------------------------------------------------------------------

static void this_system_is_sane(void **state) {
    (void)state;
    rn_process_info info;
    assert_ok(rn_process_read(&info));
    assert_true(info.resident_bytes > 100 * KIB);
    assert_true(info.resident_peak_bytes >= info.resident_bytes);
    assert_true(info.page_table_bytes > 0);
    assert_true(info.machine_bytes >= info.resident_bytes);
    assert_true(info.machine_available_bytes <= info.machine_bytes);
    assert_in_range(info.cgroup_version, 0, 2);
    assert_true(info.cgroup_limit_bytes == RN_NO_LIMIT || info.cgroup_version != 0);
    assert_true(rn_process_whole_bytes(&info) <= info.machine_bytes);
    assert_true(rn_process_free_bytes(&info) <= info.machine_available_bytes);
}

static void touched_memory_is_resident(void **state) {
    (void)state;
    rn_process_info before, after;
    size_t bytes = 64 * MIB;
    assert_ok(rn_process_read(&before));
    char *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(block != MAP_FAILED);
    memset(block, 1, bytes);
    assert_ok(rn_process_read(&after));
    munmap(block, bytes);
    assert_true(after.resident_bytes >= before.resident_bytes + bytes - 4 * MIB);
    assert_true(after.resident_peak_bytes >= after.resident_bytes);
}

static uint64_t unaccounted_now(void) {
    assert_ok(rn_process_charge_unaccounted());
    assert_true(rn_ledger_is_valid());
    return rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED).now_bytes;
}

static void what_is_not_ours_is_measured(void **state) {
    (void)state;
    rn_account weights = {RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS, NULL};
    rn_process_info info;
    uint64_t first = unaccounted_now(), second = unaccounted_now();
    assert_ok(rn_process_read(&info));
    uint64_t resident = info.resident_bytes + info.page_table_bytes;
    assert_in_range(first, resident / 2, resident * 2);
    assert_in_range(second, first / 2, first * 3 / 2); // measured anew, not added
    assert_int_equal(second, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
    // What is ours already is not charged again: charged bytes are taken off.
    uint64_t ours = second / 2;
    rn_ledger_charge(weights, NULL, ours);
    uint64_t third = unaccounted_now();
    assert_in_range(third, second / 4, second * 3 / 4);
    assert_int_equal(third + ours, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
    // More charged than is resident: nothing is left for the rest.
    rn_ledger_charge(weights, NULL, 1024 * GIB);
    assert_int_equal(0, unaccounted_now());
    rn_ledger_release(weights, NULL, 1024 * GIB);
    rn_ledger_release(weights, NULL, ours);
    assert_true(unaccounted_now() > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(process_and_machine_are_read),
        cmocka_unit_test(container_with_version_2),
        cmocka_unit_test(version_2_on_the_host_looks_at_all_ancestors),
        cmocka_unit_test(least_room_may_be_above_the_smallest_limit),
        cmocka_unit_test(idle_page_cache_counts_as_free),
        cmocka_unit_test(usage_above_the_limit_leaves_no_room),
        cmocka_unit_test(container_sees_a_part_of_the_hierarchy),
        cmocka_unit_test(version_1_with_limits_inside_limits),
        cmocka_unit_test(hybrid_systems_use_the_version_that_knows_memory),
        cmocka_unit_test(groups_without_limits_are_unlimited),
        cmocka_unit_test(limit_above_the_machine_does_not_count),
        cmocka_unit_test(missing_and_odd_files_are_no_limits),
        cmocka_unit_test(long_lines_and_paths_are_survived),
        cmocka_unit_test(system_without_proc_is_a_failure),
        cmocka_unit_test(this_system_is_sane),
        cmocka_unit_test(touched_memory_is_resident),
        cmocka_unit_test(what_is_not_ours_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
