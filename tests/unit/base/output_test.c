// labels: threads
// The large file that appears whole or not at all: on a disk and in memory (/dev/shm), where
// opening without a name and writing past the page cache may or may not be possible.
#include "support.h"
#include "base/fault.h"
#include "base/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_FILE = 400000 };

// ---- places, and what is in them -------------------------------------------------------

static char folders[2][64];
static size_t folder_count;

static int make_folders(void **state) {
    (void)state;
    snprintf(folders[folder_count++], sizeof folders[0], "%s", test_folder());
    snprintf(folders[1], sizeof folders[1], "/dev/shm/ration-test-XXXXXX");
    folder_count += mkdtemp(folders[1]) != NULL;
    return 0;
}

static int remove_folders(void **state) {
    (void)state;
    return folder_count == 2 ? rmdir(folders[1]) : 0; // fails where a test left something
}

static char *path_in(const char *folder, const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static size_t count_entries(const char *folder) {
    size_t count = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static size_t below(uint64_t *state, size_t limit) {
    return (size_t)(next_random(state) >> 11) % limit;
}

// ---- one file ----------------------------------------------------------------------------

typedef struct plan {
    rn_output_options options;
    unsigned char *bytes; // (file_bytes), what the file shall hold
    uint64_t seed;        // of the sizes of the pieces
} plan;

static plan make_plan(uint64_t seed, size_t file_bytes, size_t stream_offset, size_t stream_bytes) {
    plan p = {.bytes = malloc(file_bytes + 1), .seed = seed};
    p.options = (rn_output_options){
        .file_bytes = file_bytes, .stream_offset = stream_offset, .stream_bytes = stream_bytes};
    uint64_t state = seed + 1;
    for (size_t i = 0; i < file_bytes; i++)
        p.bytes[i] = (unsigned char)(next_random(&state) >> 32);
    return p;
}

// Everything outside [begin, end) of the file, in pieces, from both sides at once.
static rn_status put_rest(rn_output *output, const plan *p, size_t from, size_t to,
                          uint64_t *state) {
    while (from < to) {
        size_t now = 1 + below(state, to - from);
        if (below(state, 2)) {
            RN_TRY(rn_output_put(output, from, p->bytes + from, now));
            from += now;
        } else {
            RN_TRY(rn_output_put(output, to - now, p->bytes + to - now, now));
            to -= now;
        }
    }
    return RN_OK;
}

// The stream's next bytes, filled in place.
static rn_status fill_spans(rn_output *output, const unsigned char *from, size_t bytes) {
    rn_output_span spans[2];
    RN_TRY(rn_output_reserve(output, bytes, spans));
    if (spans[0].bytes + spans[1].bytes != bytes)
        return rn_fail(RN_INTERNAL, "spans do not add up");
    memcpy(spans[0].data, from, spans[0].bytes);
    if (spans[1].bytes) memcpy(spans[1].data, from + spans[0].bytes, spans[1].bytes);
    rn_output_advance(output, bytes);
    return RN_OK;
}

static rn_status fill(rn_output *output, const plan *p) {
    uint64_t state = p->seed * 2 + 1;
    size_t at = p->options.stream_offset, end = at + p->options.stream_bytes;
    size_t span = p->options.buffer_bytes > 4096 ? p->options.buffer_bytes - 4096 : 0;
    RN_TRY(put_rest(output, p, 0, at, &state));
    while (at < end) {
        size_t most = below(&state, 4) ? 3000 : 60000;
        size_t now = below(&state, (end - at < most ? end - at : most) + 1);
        if (now > 0 && span > 0 && below(&state, 2)) {
            if (now > span) now = span;
            RN_TRY(fill_spans(output, p->bytes + at, now));
        } else {
            RN_TRY(rn_output_append(output, p->bytes + at, now));
        }
        at += now;
    }
    return put_rest(output, p, end, p->options.file_bytes, &state);
}

static rn_status write_file(const char *path, const plan *p, const rn_allocator *from) {
    rn_output *output;
    RN_TRY(rn_output_create(path, &p->options, from, &output));
    rn_status s = fill(output, p);
    if (s == RN_OK) s = rn_output_commit(output);
    rn_output_destroy(output);
    return s;
}

static bool holds(const char *path, const void *bytes, size_t count) {
    size_t found_bytes = 0;
    char *found = test_read(path, &found_bytes);
    bool same = found && found_bytes == count && memcmp(found, bytes, count) == 0;
    free(found);
    return same;
}

// A plan with ragged ends that takes a few buffers.
static plan sample_plan(void) {
    plan p = make_plan(5, 50000, 1234, 47000);
    p.options.buffer_bytes = 8192;
    return p;
}

// ---- writing -------------------------------------------------------------------------------

static void every_byte_lands_where_it_belongs(void **state) {
    (void)state;
    uint64_t random = 99;
    for (int round = 0; round < 120; round++) {
        size_t file = below(&random, round % 4 ? 30000 : MAX_FILE);
        size_t offset = below(&random, file + 1);
        size_t stream = round % 7 ? below(&random, file - offset + 1) : file - offset;
        if (round % 5 == 0) offset = offset / 4096 * 4096; // aligned, too
        plan p = make_plan((uint64_t)round, file, offset, stream);
        const size_t sizes[] = {1, 4096, 5000, 8192, 65536, 0};
        p.options.buffer_bytes = sizes[below(&random, 6)];
        p.options.buffer_count = below(&random, 12); // 0 is the default, more than 8 becomes 8
        for (size_t f = 0; f < folder_count; f++) {
            char *path = path_in(folders[f], "file");
            assert_ok(write_file(path, &p, &rn_system_allocator));
            if (!holds(path, p.bytes, file)) fail_msg("round %d in %s", round, folders[f]);
            assert_int_equal(1, count_entries(folders[f]));
            unlink(path);
        }
        free(p.bytes);
    }
}

static void stream_ends_may_stand_anywhere_in_a_block(void **state) {
    (void)state;
    const size_t around[] = {0, 1, 2, 4095, 4096, 4097, 8191, 8192, 8193};
    enum { AROUND = sizeof around / sizeof *around };
    for (size_t i = 0; i < AROUND; i++)
        for (size_t j = 0; j < AROUND; j++) {
            plan p = make_plan(i * AROUND + j, around[i] + around[j] + 10, around[i], around[j]);
            p.options.buffer_bytes = 4096;
            for (size_t f = 0; f < folder_count; f++) {
                char *path = path_in(folders[f], "file");
                assert_ok(write_file(path, &p, &rn_system_allocator));
                assert_true(holds(path, p.bytes, p.options.file_bytes));
                unlink(path);
            }
            free(p.bytes);
        }
}

static void files_of_nothing_are_files(void **state) {
    (void)state;
    plan p = make_plan(1, 0, 0, 0);
    for (size_t f = 0; f < folder_count; f++) {
        char *path = path_in(folders[f], "empty");
        assert_ok(write_file(path, &p, &rn_system_allocator));
        assert_true(holds(path, "", 0));
        unlink(path);
    }
    free(p.bytes);
}

static void path_may_be_a_bare_name(void **state) {
    (void)state;
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    plan p = sample_plan();
    assert_int_equal(0, chdir(folders[0]));
    assert_ok(write_file("bare", &p, &rn_system_allocator));
    assert_int_equal(0, chdir(before));
    assert_true(holds(path_in(folders[0], "bare"), p.bytes, p.options.file_bytes));
    unlink(path_in(folders[0], "bare"));
    free(p.bytes);
}

static void old_file_is_replaced_whole(void **state) {
    (void)state;
    plan p = sample_plan();
    for (size_t f = 0; f < folder_count; f++) {
        char *path = path_in(folders[f], "file");
        static char longer[100000];
        test_write(path, longer, sizeof longer);
        assert_ok(write_file(path, &p, &rn_system_allocator));
        assert_true(holds(path, p.bytes, p.options.file_bytes));
        assert_int_equal(1, count_entries(folders[f]));
        unlink(path);
    }
    free(p.bytes);
}

static void room_for_the_stream_is_bounded(void **state) {
    (void)state;
    plan p = make_plan(3, 30000, 77, 20000);
    p.options.buffer_bytes = 8192;
    rn_output *output;
    rn_output_span spans[2];
    assert_ok(
        rn_output_create(path_in(folders[0], "file"), &p.options, &rn_system_allocator, &output));
    assert_fails(RN_INTERNAL, rn_output_reserve(output, 4097, spans)); // more than a span may have
    assert_ok(rn_output_append(output, p.bytes + 77, 18000));
    assert_fails(RN_INTERNAL, rn_output_reserve(output, 2001, spans)); // more than was declared
    assert_ok(rn_output_reserve(output, 2000, spans));
    rn_output_destroy(output); // what was reserved and never filled is no one's
    assert_int_equal(0, count_entries(folders[0]));
    free(p.bytes);
}

// ---- memory and descriptors ----------------------------------------------------------------

typedef struct counted {
    size_t now, most, largest;
} counted;

static void *count_alloc(void *self, size_t bytes, size_t align) {
    counted *c = self;
    c->now += bytes;
    if (c->now > c->most) c->most = c->now;
    if (bytes > c->largest) c->largest = bytes;
    return rn_system_allocator.alloc(NULL, bytes, align);
}

static void count_free(void *self, void *block, size_t bytes) {
    ((counted *)self)->now -= bytes;
    rn_system_allocator.free(NULL, block, bytes);
}

static void buffers_take_what_was_said_and_everything_goes_back(void **state) {
    (void)state;
    const size_t sizes[] = {0, 1, 4096, 10000}, counts[] = {0, 1, 2, 8, 100};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t j = 0; j < sizeof counts / sizeof *counts; j++) {
            counted c = {0};
            plan p = sample_plan();
            p.options.buffer_bytes = sizes[i];
            p.options.buffer_count = counts[j];
            size_t least = (sizes[i] ? sizes[i] : (size_t)2 << 20) * (counts[j] == 0 ? 3 : 1);
            assert_true(rn_output_buffer_bytes(&p.options) >= least);
            char *path = path_in(folders[0], "file");
            assert_ok(write_file(path, &p, &(rn_allocator){&c, count_alloc, count_free}));
            unlink(path);
            assert_int_equal(0, c.now);
            assert_int_equal(rn_output_buffer_bytes(&p.options), c.largest);
            assert_true(c.most < rn_output_buffer_bytes(&p.options) + (64 << 10));
            free(p.bytes);
        }
    rn_output_options usual = {.stream_bytes = 1}, streamless = {.file_bytes = 100};
    size_t rest = rn_output_buffer_bytes(&streamless); // for what is not the stream
    assert_int_equal(2 << 20, rest);
    assert_int_equal(3 * (2 << 20) + rest, rn_output_buffer_bytes(&usual));
}

static void no_descriptor_stays_open(void **state) {
    (void)state;
    plan p = sample_plan();
    size_t before = count_entries("/proc/self/fd");
    char *path = path_in(folders[0], "file");
    for (int i = 0; i < 5; i++) {
        rn_output *output;
        assert_ok(write_file(path, &p, &rn_system_allocator));
        assert_ok(rn_output_create(path, &p.options, &rn_system_allocator, &output));
        rn_output_destroy(output);
        rn_fault_arm(RN_FAULT_ALLOC, 2);
        assert_fails(RN_NO_MEMORY,
                     rn_output_create(path, &p.options, &rn_system_allocator, &output));
    }
    assert_int_equal(before, count_entries("/proc/self/fd"));
    unlink(path);
    free(p.bytes);
}

// ---- nothing without a commit ----------------------------------------------------------------

static void nothing_remains_without_a_commit(void **state) {
    (void)state;
    plan p = sample_plan();
    for (size_t f = 0; f < folder_count; f++)
        for (int filled = 0; filled < 3; filled++) {
            rn_output *output;
            char *path = path_in(folders[f], "file");
            assert_ok(rn_output_create(path, &p.options, &rn_system_allocator, &output));
            if (filled == 1)
                assert_ok(rn_output_append(output, p.bytes + p.options.stream_offset, 20000));
            if (filled == 2) assert_ok(fill(output, &p));
            rn_output_destroy(output);
            assert_int_equal(0, count_entries(folders[f]));
        }
    rn_output_destroy(NULL);
    free(p.bytes);
}

static void stream_that_is_not_full_cannot_be_committed(void **state) {
    (void)state;
    plan p = sample_plan();
    rn_output *output;
    assert_ok(
        rn_output_create(path_in(folders[0], "file"), &p.options, &rn_system_allocator, &output));
    assert_fails(RN_INTERNAL, rn_output_commit(output));
    assert_ok(rn_output_append(output, p.bytes, p.options.stream_bytes - 1));
    assert_fails(RN_INTERNAL, rn_output_commit(output));
    assert_non_null(strstr(rn_last_error()->message, "file"));
    assert_int_equal(0, count_entries(folders[0]));
    assert_ok(rn_output_append(output, p.bytes, 1)); // the caller may still make it right
    assert_ok(rn_output_commit(output));
    assert_int_equal(1, count_entries(folders[0]));
    rn_output_destroy(output);
    unlink(path_in(folders[0], "file"));
    free(p.bytes);
}

static void writes_outside_their_place_are_refused(void **state) {
    (void)state;
    plan p = make_plan(1, 1000, 100, 800);
    rn_output *output;
    assert_ok(
        rn_output_create(path_in(folders[0], "file"), &p.options, &rn_system_allocator, &output));
    const uint64_t bad[][2] = {{99, 2},   {100, 1},        {500, 10},           {899, 1},
                               {899, 2},  {999, 2},        {1001, 0},           {0, 1001},
                               {50, 900}, {UINT64_MAX, 1}, {UINT64_MAX - 5, 10}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (rn_output_put(output, bad[i][0], p.bytes, (size_t)bad[i][1]) != RN_INTERNAL)
            fail_msg("%zu bytes at %zu were taken", (size_t)bad[i][1], (size_t)bad[i][0]);
    assert_ok(rn_output_put(output, 0, p.bytes, 100));
    assert_ok(rn_output_put(output, 900, p.bytes + 900, 100));
    assert_ok(rn_output_put(output, 1000, NULL, 0));
    assert_fails(RN_INTERNAL, rn_output_append(output, p.bytes + 100, 801));
    assert_ok(rn_output_append(output, p.bytes + 100, 800));
    assert_fails(RN_INTERNAL, rn_output_append(output, p.bytes, 1));
    assert_ok(rn_output_append(output, NULL, 0));
    assert_ok(rn_output_commit(output));
    rn_output_destroy(output);
    assert_true(holds(path_in(folders[0], "file"), p.bytes, 1000));
    unlink(path_in(folders[0], "file"));
    free(p.bytes);
}

// ---- failing -----------------------------------------------------------------------------------

// Fails the nth write for every n; `old` is what the path held before, or NULL.
static void fail_each_write(const char *folder, const char *old) {
    plan p = sample_plan();
    char *path = path_in(folder, "file");
    uint64_t failures = 0;
    for (uint64_t nth = 1;; nth++, failures++) {
        if (old) test_write(path, old, strlen(old));
        rn_fault_arm(RN_FAULT_WRITE, nth);
        rn_status s = write_file(path, &p, &rn_system_allocator);
        bool fired = rn_fault_fired(RN_FAULT_WRITE);
        rn_fault_arm(RN_FAULT_WRITE, 0);
        if (!fired) {
            assert_int_equal(RN_OK, s);
            break;
        }
        assert_int_equal(RN_IO, s);
        assert_memory_equal("cannot ", rn_last_error()->message, 7);
        assert_non_null(strstr(rn_last_error()->message, path));
        assert_string_equal(path, rn_last_error()->path);
        assert_int_equal(old != NULL, count_entries(folder));
        if (old) assert_true(holds(path, old, strlen(old)));
    }
    assert_true(failures > 8); // puts, buffers with their ragged ends, and the sync
    assert_true(holds(path, p.bytes, p.options.file_bytes));
    unlink(path);
    free(p.bytes);
}

static void every_failing_write_leaves_no_file(void **state) {
    (void)state;
    for (size_t f = 0; f < folder_count; f++)
        fail_each_write(folders[f], NULL);
}

static void old_file_survives_every_failing_write(void **state) {
    (void)state;
    for (size_t f = 0; f < folder_count; f++)
        fail_each_write(folders[f], "the old file");
}

static void failed_write_is_reported_again_and_again(void **state) {
    (void)state;
    plan p = sample_plan();
    rn_output *output;
    assert_ok(
        rn_output_create(path_in(folders[0], "file"), &p.options, &rn_system_allocator, &output));
    rn_fault_arm(RN_FAULT_WRITE, 1);
    rn_status s = RN_OK;
    for (size_t at = 0; at < p.options.stream_bytes && s == RN_OK; at += 1000)
        s = rn_output_append(output, p.bytes, 1000);
    assert_true(rn_fault_fired(RN_FAULT_WRITE));
    assert_int_equal(RN_IO, s);
    (void)rn_fail(RN_INVALID, "something else");
    assert_fails(RN_IO, rn_output_append(output, p.bytes, 1));
    assert_non_null(strstr(rn_last_error()->message, "No space left"));
    rn_output_destroy(output);
    assert_int_equal(0, count_entries(folders[0]));
    free(p.bytes);
}

static void every_failing_allocation_is_clean(void **state) {
    (void)state;
    plan p = sample_plan();
    for (size_t f = 0; f < folder_count; f++)
        for (uint64_t nth = 1;; nth++) {
            char *path = path_in(folders[f], "file");
            rn_fault_arm(RN_FAULT_ALLOC, nth);
            rn_status s = write_file(path, &p, &rn_system_allocator);
            bool fired = rn_fault_fired(RN_FAULT_ALLOC);
            rn_fault_arm(RN_FAULT_ALLOC, 0);
            assert_int_equal(fired ? RN_NO_MEMORY : RN_OK, s);
            assert_int_equal(!fired, count_entries(folders[f]));
            unlink(path);
            if (!fired) break;
        }
    free(p.bytes);
}

static void file_larger_than_the_file_system_is_refused_early(void **state) {
    (void)state;
    for (size_t f = 0; f < folder_count; f++) {
        struct statvfs info;
        rn_output *output = (rn_output *)&output;
        rn_output_options options = {.file_bytes = (uint64_t)1 << 60, .stream_bytes = 1 << 20};
        if (statvfs(folders[f], &info) == 0 && info.f_blocks == 0) continue; // it does not say
        assert_fails(RN_IO, rn_output_create(path_in(folders[f], "huge"), &options,
                                             &rn_system_allocator, &output));
        assert_null(output);
        assert_non_null(strstr(rn_last_error()->message, "needs 1.00 EiB"));
        assert_non_null(strstr(rn_last_error()->message, "left"));
        assert_non_null(strstr(rn_last_error()->hint, "free some space"));
        assert_int_equal(0, count_entries(folders[f]));
    }
}

static void places_that_are_none_are_refused(void **state) {
    (void)state;
    rn_output *output = (rn_output *)&output;
    rn_output_options options = {.file_bytes = 10};
    assert_fails(RN_NOT_FOUND, rn_output_create(path_in(folders[0], "no/such/file"), &options,
                                                &rn_system_allocator, &output));
    assert_null(output);
    assert_non_null(strstr(rn_last_error()->message, "no/such"));
    static char longer[5000];
    memset(longer, 'a', sizeof longer - 1);
    assert_fails(RN_INVALID, rn_output_create(longer, &options, &rn_system_allocator, &output));
    assert_null(output);
    // A folder of that name shows itself only in the end; it stays.
    assert_int_equal(0, mkdir(path_in(folders[0], "folder"), 0700));
    plan p = sample_plan();
    assert_fails(RN_IO, write_file(path_in(folders[0], "folder"), &p, &rn_system_allocator));
    assert_int_equal(1, count_entries(folders[0]));
    assert_int_equal(0, rmdir(path_in(folders[0], "folder")));
    free(p.bytes);
}

// ---- other processes
// -----------------------------------------------------------------------------

// A child that is killed after so many bytes of the stream.
static void be_killed_while_writing(const char *path, const plan *p, size_t after) {
    rn_output *output;
    if (rn_output_create(path, &p->options, &rn_system_allocator, &output) != RN_OK) _exit(1);
    if (rn_output_append(output, p->bytes, after) != RN_OK) _exit(1);
    kill(getpid(), SIGKILL);
}

static void killed_process_leaves_the_old_file_alone(void **state) {
    (void)state;
    plan p = sample_plan();
    for (size_t f = 0; f < folder_count; f++)
        for (size_t after = 0; after <= p.options.stream_bytes; after += 23500) {
            int status;
            char *path = path_in(folders[f], "file");
            test_write(path, "old", 3);
            pid_t child = fork();
            if (child == 0) be_killed_while_writing(path, &p, after);
            assert_int_equal(child, waitpid(child, &status, 0));
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
            assert_true(holds(path, "old", 3));
            assert_int_equal(1, count_entries(folders[f]));
            unlink(path);
        }
    free(p.bytes);
}

// From here on open() with O_TMPFILE fails, as it does on many file systems.
static bool forbid_unnamed_files(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, __O_TMPFILE),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __O_TMPFILE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// What a child checks; 0 is good, anything else the line that was not. No asserts: they would jump
// back into the parent's tests.
static int check_named_output(const char *path, const char *folder, const plan *p) {
    rn_output *output;
    if (open(folder, O_TMPFILE | O_RDWR, 0600) >= 0) return __LINE__;
    if (rn_output_create(path, &p->options, &rn_system_allocator, &output) != RN_OK)
        return __LINE__;
    if (count_entries(folder) != 1) return __LINE__; // a name ending in ".tmp"
    if (access(path, F_OK) == 0) return __LINE__;
    rn_output_destroy(output);
    if (count_entries(folder) != 0) return __LINE__;
    for (uint64_t nth = 1;; nth++) {
        rn_fault_arm(RN_FAULT_WRITE, nth);
        rn_status s = write_file(path, p, &rn_system_allocator);
        if (!rn_fault_fired(RN_FAULT_WRITE)) {
            if (s != RN_OK) return __LINE__;
            break;
        }
        if (s != RN_IO || count_entries(folder) != 0) return __LINE__;
    }
    return holds(path, p->bytes, p->options.file_bytes) && count_entries(folder) == 1 ? 0
                                                                                      : __LINE__;
}

static void file_systems_without_unnamed_files_serve_as_well(void **state) {
    (void)state;
    plan p = sample_plan();
    for (size_t f = 0; f < folder_count; f++) {
        int status;
        char *path = path_in(folders[f], "file");
        pid_t child = fork();
        if (child == 0)
            _exit(!forbid_unnamed_files() ? 255 : check_named_output(path, folders[f], &p) % 251);
        assert_int_equal(child, waitpid(child, &status, 0));
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 255) {
            free(p.bytes);
            skip_because("no seccomp filter can be set");
        }
        assert_int_equal(0, WEXITSTATUS(status));
        unlink(path);
    }
    free(p.bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_lands_where_it_belongs),
        cmocka_unit_test(stream_ends_may_stand_anywhere_in_a_block),
        cmocka_unit_test(files_of_nothing_are_files),
        cmocka_unit_test(path_may_be_a_bare_name),
        cmocka_unit_test(old_file_is_replaced_whole),
        cmocka_unit_test(room_for_the_stream_is_bounded),
        cmocka_unit_test(buffers_take_what_was_said_and_everything_goes_back),
        cmocka_unit_test(no_descriptor_stays_open),
        cmocka_unit_test(nothing_remains_without_a_commit),
        cmocka_unit_test(stream_that_is_not_full_cannot_be_committed),
        cmocka_unit_test(writes_outside_their_place_are_refused),
        cmocka_unit_test(every_failing_write_leaves_no_file),
        cmocka_unit_test(old_file_survives_every_failing_write),
        cmocka_unit_test(failed_write_is_reported_again_and_again),
        cmocka_unit_test(every_failing_allocation_is_clean),
        cmocka_unit_test(file_larger_than_the_file_system_is_refused_early),
        cmocka_unit_test(places_that_are_none_are_refused),
        cmocka_unit_test(killed_process_leaves_the_old_file_alone),
        cmocka_unit_test(file_systems_without_unnamed_files_serve_as_well),
    };
    return cmocka_run_group_tests(tests, make_folders, remove_folders);
}
