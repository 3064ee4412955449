// labels: threads
// reader_test.c — the reader against plain reads, on both engines, on a disk and in memory.
//
// Thread sanitizers do not see what the kernel writes into io_uring's rings and buffers, so on that
// engine they watch our own accesses only; on the threads engine pread's writes are seen and
// ordered by its lock.
#include "support.h"
#include "base/alloc.h"
#include "base/fault.h"
#include "base/page_cache.h"
#include "base/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILE_COUNT 4
#define LIST_MAX   300

// ---- files with known bytes --------------------------------------------------------------------

typedef struct sample {
    char path[256];
    uint8_t *bytes; // (size), what the file holds
    size_t size;
} sample;

static const size_t sizes[FILE_COUNT] = {1, 4096, 100001, (1 << 20) + 4097};
static sample disk[FILE_COUNT], memory[FILE_COUNT];
static char memory_folder[] = "/dev/shm/ration-test-XXXXXX";
static bool have_memory;

static uint64_t draw(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void make_sample(const char *folder, int index, sample *out) {
    uint64_t state = (uint64_t)index;
    snprintf(out->path, sizeof out->path, "%s/sample-%d", folder, index);
    out->size = sizes[index];
    out->bytes = malloc(out->size);
    for (size_t i = 0; i < out->size; i++)
        out->bytes[i] = (uint8_t)draw(&state);
    test_write(out->path, out->bytes, out->size);
}

static int make_samples(void **state) {
    (void)state;
    have_memory = mkdtemp(memory_folder) != NULL;
    for (int i = 0; i < FILE_COUNT; i++) {
        make_sample(test_folder(), i, &disk[i]);
        if (have_memory) make_sample(memory_folder, i, &memory[i]);
    }
    return 0;
}

static int remove_samples(void **state) {
    (void)state;
    for (int i = 0; i < FILE_COUNT; i++) {
        free(disk[i].bytes);
        free(memory[i].bytes);
        if (have_memory) unlink(memory[i].path);
    }
    if (have_memory) rmdir(memory_folder);
    return 0;
}

// False where the file system keeps its pages.
static bool drop_pages(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    bool dropped = !rn_page_cache_holds(rn_page_cache_probe(fd), fd, 0, 1);
    close(fd);
    return dropped;
}

static bool any_cached(const sample *file) {
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    rn_page_cache_view view = rn_page_cache_probe(fd);
    bool any = false;
    for (size_t at = 0; at < file->size; at += 4096)
        any |= rn_page_cache_holds(view, fd, at, 1);
    close(fd);
    return any;
}

// ---- an allocator that counts ------------------------------------------------------------------

typedef struct counts {
    size_t live_bytes, peak_bytes;
    size_t shift_bytes; // moves large blocks off their alignment, which direct reads refuse
} counts;

static void *count_alloc(void *self, size_t bytes, size_t align) {
    counts *count = self;
    size_t shift = bytes >= RN_MAP_THRESHOLD ? count->shift_bytes : 0;
    uint8_t *block = rn_system_allocator.alloc(NULL, bytes + shift, align);
    if (!block) return NULL;
    count->live_bytes += bytes;
    if (count->live_bytes > count->peak_bytes) count->peak_bytes = count->live_bytes;
    return block + shift;
}

static void count_free(void *self, void *block, size_t bytes) {
    counts *count = self;
    size_t shift = bytes >= RN_MAP_THRESHOLD ? count->shift_bytes : 0;
    count->live_bytes -= bytes;
    rn_system_allocator.free(NULL, (uint8_t *)block - shift, bytes + shift);
}

// ---- reading a list and comparing it -----------------------------------------------------------

typedef struct expected {
    const sample *files;
    const rn_extent *list;
    uint32_t count;
    uint32_t extent; // the next piece must begin here
    uint64_t offset;
    uint64_t total_bytes;
} expected;

static void check_piece(expected *expect, const rn_reader_piece *piece, size_t request_bytes) {
    while (expect->extent < expect->count && expect->offset == expect->list[expect->extent].bytes) {
        expect->extent++;
        expect->offset = 0;
    }
    if (piece->bytes == 0) {
        assert_int_equal(expect->extent, expect->count);
        assert_null(piece->data);
        return;
    }
    assert_int_equal(piece->extent, expect->extent);
    assert_int_equal(piece->offset_in_extent, expect->offset);
    const rn_extent *extent = &expect->list[piece->extent];
    assert_true(piece->bytes <= extent->bytes - expect->offset);
    if (extent->bytes + 4096 <= request_bytes) assert_int_equal(piece->bytes, extent->bytes);
    uint64_t from = extent->offset + expect->offset;
    assert_int_equal((uintptr_t)piece->data % 4096, from % 4096);
    assert_memory_equal(piece->data, expect->files[extent->file].bytes + from, piece->bytes);
    expect->offset += piece->bytes;
    expect->total_bytes += piece->bytes;
}

static rn_status open_reader(const sample *files, const rn_reader_options *options,
                             rn_reader **out) {
    rn_reader_file names[FILE_COUNT] = {0};
    for (int i = 0; i < FILE_COUNT; i++)
        names[i].path = files[i].path;
    return rn_reader_create(names, FILE_COUNT, options, out);
}

// Reads to the end or the first failure, comparing; holds no more than one piece.
static rn_status read_list(rn_reader *reader, const sample *files, const rn_extent *list,
                           uint32_t count) {
    expected expect = {.files = files, .list = list, .count = count};
    size_t request_bytes = rn_reader_get_stats(reader).request_bytes;
    rn_reader_piece piece;
    RN_TRY(rn_reader_start(reader, list, count));
    do {
        RN_TRY(rn_reader_next(reader, &piece));
        check_piece(&expect, &piece, request_bytes);
        rn_reader_release(reader, &piece);
    } while (expect.extent < expect.count);
    return RN_OK;
}

static bool have_engine(rn_reader_engine engine) {
    rn_reader *reader;
    rn_status status = rn_reader_create(NULL, 0, &(rn_reader_options){.engine = engine}, &reader);
    rn_reader_destroy(reader);
    return status == RN_OK;
}

// Runs a test body on each engine that the system allows.
static void on_each_engine(void (*body)(rn_reader_engine engine)) {
    if (have_engine(RN_READER_URING)) body(RN_READER_URING);
    body(RN_READER_THREADS);
}

// ---- random lists ------------------------------------------------------------------------------

static uint64_t draw_bytes(uint64_t *state, uint64_t left) {
    uint64_t kind = draw(state) % 8, most = left;
    if (kind == 0) return 0;
    if (kind < 4) most = 200;
    if (kind < 6) most = 20000;
    if (kind == 7) return left; // to the end of the file
    return draw(state) % ((most < left ? most : left) + 1);
}

// Neighbours, near neighbours and leaps, in several files.
static uint32_t draw_list(uint64_t *state, rn_extent *out) {
    uint32_t count = (uint32_t)(draw(state) % LIST_MAX);
    uint32_t file = 0;
    uint64_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t kind = draw(state) % 10;
        if (kind == 0) file = (uint32_t)(draw(state) % FILE_COUNT);
        if (kind < 2 || at > sizes[file]) at = draw(state) % (sizes[file] + 1);
        if (kind < 5) at += draw(state) % 3000;
        if (at > sizes[file]) at = sizes[file];
        out[i] = (rn_extent){file, at, draw_bytes(state, sizes[file] - at)};
        at += out[i].bytes;
    }
    return count;
}

// A consumer that keeps a few pieces and gives them back in any order.
static void read_holding(rn_reader *reader, expected *expect, uint64_t *state) {
    rn_reader_stats stats = rn_reader_get_stats(reader);
    rn_reader_piece held[8];
    uint32_t most = stats.slot_count < 9 ? stats.slot_count - 1 : 8, count = 0;
    assert_ok(rn_reader_start(reader, expect->list, expect->count));
    for (;;) {
        rn_reader_piece piece;
        assert_ok(rn_reader_next(reader, &piece));
        check_piece(expect, &piece, stats.request_bytes);
        if (piece.bytes == 0) break;
        if (most == 0) {
            rn_reader_release(reader, &piece);
            continue;
        }
        if (count == most) {
            uint32_t which = (uint32_t)(draw(state) % count);
            rn_reader_release(reader, &held[which]);
            held[which] = held[--count];
        }
        held[count++] = piece;
    }
    while (count > 0)
        rn_reader_release(reader, &held[--count]);
}

static void read_random(const sample *files, rn_reader_options options, uint64_t seed) {
    static rn_extent list[LIST_MAX];
    counts count = {0};
    rn_allocator allocator = {&count, count_alloc, count_free};
    uint64_t state = seed;
    options.request_bytes = 4096 * (1 + draw(&state) % 20);
    options.buffer_bytes = options.request_bytes * (1 + draw(&state) % 12) + draw(&state) % 4096;
    options.allocator = &allocator;
    rn_reader *reader;
    assert_ok(open_reader(files, &options, &reader));
    for (int turn = 0; turn < 2; turn++) {
        expected expect = {.files = files, .list = list, .count = draw_list(&state, list)};
        read_holding(reader, &expect, &state);
        rn_reader_stats stats = rn_reader_get_stats(reader);
        assert_true(stats.direct_bytes + stats.cached_bytes + stats.plain_bytes <=
                    stats.request_count * stats.request_bytes);
        assert_int_equal(stats.engine, options.engine);
    }
    assert_ok(rn_reader_check(reader));
    rn_reader_destroy(reader);
    // The slots, and little beside them.
    assert_true(count.peak_bytes <= options.buffer_bytes + 12000);
    assert_int_equal(count.live_bytes, 0);
}

static void read_random_lists(rn_reader_engine engine) {
    for (uint64_t seed = 0; seed < 40; seed++) {
        rn_reader_options options = {
            .engine = engine,
            .ignore_page_cache = seed & 1,
            .avoid_direct = (seed & 6) == 6,
        };
        if (seed & 8) drop_pages(disk[3].path);
        read_random(disk, options, seed);
        if (have_memory) read_random(memory, options, seed);
    }
}

static void reader_gives_random_lists_in_order(void **state) {
    (void)state;
    on_each_engine(read_random_lists);
}

// ---- lists of particular shapes ----------------------------------------------------------------

static void read_with_defaults(rn_reader_engine engine) {
    rn_reader *reader;
    assert_ok(open_reader(disk, &(rn_reader_options){.engine = engine}, &reader));
    rn_reader_stats stats = rn_reader_get_stats(reader);
    assert_int_equal(stats.request_bytes, RN_READER_REQUEST_BYTES);
    assert_int_equal(stats.slot_count, RN_READER_BUFFER_BYTES / RN_READER_REQUEST_BYTES);
    rn_extent whole[FILE_COUNT];
    for (uint32_t i = 0; i < FILE_COUNT; i++)
        whole[i] = (rn_extent){i, 0, sizes[i]};
    assert_ok(read_list(reader, disk, whole, FILE_COUNT));
    rn_reader_destroy(reader);
}

static void reader_reads_whole_files_with_default_options(void **state) {
    (void)state;
    on_each_engine(read_with_defaults);
}

static void reader_serves_thousands_of_tiny_extents_with_few_requests(void **state) {
    (void)state;
    static rn_extent list[5000];
    for (uint32_t i = 0; i < 5000; i++)
        list[i] = (rn_extent){3, 200 * (uint64_t)i, 100};
    rn_reader *reader;
    rn_reader_options options = {.buffer_bytes = 1 << 20, .request_bytes = 256 << 10};
    assert_ok(open_reader(disk, &options, &reader));
    assert_ok(read_list(reader, disk, list, 5000));
    assert_int_equal(rn_reader_get_stats(reader).request_count, 4); // 1,000,000 bytes
    rn_reader_destroy(reader);
}

static void reader_ends_at_once_where_there_is_nothing_to_read(void **state) {
    (void)state;
    const rn_extent empty[] = {{0, 0, 0}, {0, 1, 0}, {3, 77, 0}};
    rn_reader *reader;
    rn_reader_piece piece;
    assert_ok(open_reader(disk, NULL, &reader));
    assert_ok(rn_reader_next(reader, &piece)); // no list yet
    assert_int_equal(piece.bytes, 0);
    assert_ok(read_list(reader, disk, NULL, 0));
    assert_ok(read_list(reader, disk, empty, 3));
    assert_ok(rn_reader_next(reader, &piece));
    assert_int_equal(piece.bytes, 0);
    rn_reader_release(reader, &piece);
    assert_int_equal(rn_reader_get_stats(reader).request_count, 0);
    rn_reader_destroy(reader);
}

static void reader_says_when_every_slot_is_held(void **state) {
    (void)state;
    rn_reader *reader;
    rn_reader_piece held[3], piece;
    rn_reader_options options = {.buffer_bytes = 12288, .request_bytes = 4096};
    rn_extent list = {2, 0, 20000};
    assert_ok(open_reader(disk, &options, &reader));
    assert_ok(rn_reader_start(reader, &list, 1));
    for (int i = 0; i < 3; i++)
        assert_ok(rn_reader_next(reader, &held[i]));
    assert_fails(RN_INVALID, rn_reader_next(reader, &piece));
    // It goes on once one is back, whichever.
    rn_reader_release(reader, &held[1]);
    assert_ok(rn_reader_next(reader, &piece));
    assert_int_equal(piece.offset_in_extent, 12288);
    assert_memory_equal(held[0].data, disk[2].bytes, 4096);
    rn_reader_destroy(reader);
}

static void start_over(rn_reader_engine engine) {
    rn_reader *reader;
    rn_reader_piece piece;
    rn_reader_options options = {.engine = engine, .buffer_bytes = 65536, .request_bytes = 8192};
    rn_extent list = {3, 5, sizes[3] - 5};
    assert_ok(open_reader(disk, &options, &reader));
    for (int i = 0; i < 20; i++) {
        assert_ok(rn_reader_start(reader, &list, 1));
        for (int k = 0; k < i % 7; k++)
            assert_ok(rn_reader_next(reader, &piece)); // kept, never released
    }
    assert_ok(read_list(reader, disk, &list, 1));
    assert_ok(rn_reader_start(reader, &list, 1));
    assert_ok(rn_reader_next(reader, &piece));
    rn_reader_destroy(reader); // with requests in flight and a piece held
}

static void reader_may_be_started_again_in_the_middle(void **state) {
    (void)state;
    on_each_engine(start_over);
}

typedef struct handover {
    rn_reader *reader;
    const rn_extent *list;
} handover;

static void *start_and_leave(void *argument) {
    handover *over = argument;
    rn_status status = rn_reader_start(over->reader, over->list, 1);
    return status == RN_OK ? over : NULL;
}

// io_uring takes back what a thread has in flight when it ends.
static void read_after_thread_ended(rn_reader_engine engine) {
    rn_reader *reader;
    rn_reader_options options = {
        .engine = engine, .buffer_bytes = 256 << 10, .request_bytes = 8192};
    rn_extent list = {3, 0, sizes[3]};
    assert_ok(open_reader(disk, &options, &reader));
    for (int i = 0; i < 30; i++) {
        if (i & 1) drop_pages(disk[3].path);
        handover over = {reader, &list};
        expected expect = {.files = disk, .list = &list, .count = 1};
        rn_reader_piece piece;
        pthread_t thread;
        void *started;
        assert_int_equal(pthread_create(&thread, NULL, start_and_leave, &over), 0);
        pthread_join(thread, &started);
        assert_non_null(started);
        do {
            assert_ok(rn_reader_next(reader, &piece));
            check_piece(&expect, &piece, options.request_bytes);
            rn_reader_release(reader, &piece);
        } while (expect.extent < 1);
    }
    rn_reader_destroy(reader);
}

static void reader_outlives_the_thread_that_started_a_list(void **state) {
    (void)state;
    on_each_engine(read_after_thread_ended);
}

// ---- the page cache ----------------------------------------------------------------------------

static rn_reader_stats read_third(rn_reader_options options) {
    rn_reader *reader;
    rn_extent list = {3, 0, sizes[3]};
    assert_ok(open_reader(disk, &options, &reader));
    assert_ok(read_list(reader, disk, &list, 1));
    rn_reader_stats stats = rn_reader_get_stats(reader);
    rn_reader_destroy(reader);
    return stats;
}

static void read_cold_and_warm(rn_reader_engine engine) {
    rn_reader_options options = {.engine = engine, .buffer_bytes = 1 << 20};
    if (!drop_pages(disk[3].path)) skip_because("the folder for tests is in memory");
    rn_reader_stats stats = read_third(options);
    if (stats.plain_bytes > 0) skip_because("no O_DIRECT in the folder for tests");
    assert_int_equal(stats.direct_bytes, sizes[3]);
    assert_int_equal(stats.cached_bytes, 0);
    assert_false(any_cached(&disk[3]));

    size_t bytes;
    free(test_read(disk[3].path, &bytes)); // into the cache
    stats = read_third(options);
    assert_int_equal(stats.direct_bytes, 0);
    assert_int_equal(stats.cached_bytes, sizes[3]);
    options.ignore_page_cache = true;
    stats = read_third(options);
    assert_int_equal(stats.direct_bytes, sizes[3]);
    assert_int_equal(stats.cached_bytes, 0);
}

static void reader_takes_cached_pages_and_leaves_the_cache_alone(void **state) {
    (void)state;
    on_each_engine(read_cold_and_warm);
}

static void read_plainly(rn_reader_engine engine) {
    rn_reader_options options = {.engine = engine, .avoid_direct = true};
    if (!drop_pages(disk[3].path)) skip_because("the folder for tests is in memory");
    rn_reader_stats stats = read_third(options);
    assert_int_equal(stats.plain_bytes, sizes[3]);
    assert_int_equal(stats.direct_bytes, 0);
    assert_false(any_cached(&disk[3]));
}

static void reader_without_direct_reads_drops_the_pages_it_brought(void **state) {
    (void)state;
    on_each_engine(read_plainly);
}

// Memory off its alignment makes the kernel refuse direct reads, as some file systems do after
// opening.
static void read_refused(rn_reader_engine engine) {
    counts count = {.shift_bytes = 4096 + 2};
    rn_allocator allocator = {&count, count_alloc, count_free};
    rn_reader_options options = {
        .engine = engine, .allocator = &allocator, .ignore_page_cache = true};
    rn_reader *reader;
    rn_reader_piece piece;
    rn_extent list = {3, 0, sizes[3]};
    uint64_t total = 0;
    assert_ok(open_reader(disk, &options, &reader));
    assert_ok(rn_reader_start(reader, &list, 1));
    for (;;) {
        assert_ok(rn_reader_next(reader, &piece));
        if (piece.bytes == 0) break;
        assert_memory_equal(piece.data, disk[3].bytes + total, piece.bytes);
        total += piece.bytes;
        rn_reader_release(reader, &piece);
    }
    assert_int_equal(total, sizes[3]);
    rn_reader_stats stats = rn_reader_get_stats(reader);
    assert_int_equal(stats.direct_bytes + stats.plain_bytes + stats.cached_bytes, sizes[3]);
    rn_reader_destroy(reader);
    assert_int_equal(count.live_bytes, 0);
}

static void reader_falls_back_where_direct_reads_are_refused(void **state) {
    (void)state;
    on_each_engine(read_refused);
}

// ---- failures ----------------------------------------------------------------------------------

static void fail_each_read(rn_reader_engine engine) {
    rn_reader *reader;
    rn_reader_options options = {.engine = engine, .buffer_bytes = 65536, .request_bytes = 16384};
    rn_extent list[] = {{2, 10, 90000}, {3, 0, 50000}, {1, 0, 4096}};
    bool fired = true;
    uint64_t n;
    assert_ok(open_reader(disk, &options, &reader));
    for (n = 1; fired; n++) {
        rn_fault_arm(RN_FAULT_READ, n);
        rn_status status = read_list(reader, disk, list, 3);
        fired = rn_fault_fired(RN_FAULT_READ);
        rn_fault_arm(RN_FAULT_READ, 0);
        assert_int_equal(status, fired ? RN_IO : RN_OK);
        if (!fired) break;
        const sample *file = n <= 6 ? &disk[2] : n <= 10 ? &disk[3] : &disk[1];
        assert_string_equal(rn_last_error()->path, file->path);
        assert_true(rn_last_error()->offset < file->size);
        rn_reader_piece piece;
        assert_fails(RN_IO, rn_reader_next(reader, &piece)); // the same again
        assert_string_equal(rn_last_error()->path, file->path);
    }
    assert_int_equal(n, 12); // 6 + 4 + 1 requests
    rn_reader_destroy(reader);
}

static void reader_reports_every_failed_read(void **state) {
    (void)state;
    on_each_engine(fail_each_read);
}

static void hand_out_before_failure(rn_reader_engine engine) {
    rn_reader *reader;
    rn_reader_piece first, second;
    rn_reader_options options = {.engine = engine, .buffer_bytes = 65536, .request_bytes = 16384};
    rn_extent list = {2, 0, 60000};
    assert_ok(open_reader(disk, &options, &reader));
    rn_fault_arm(RN_FAULT_READ, 2);
    assert_ok(rn_reader_start(reader, &list, 1));
    assert_ok(rn_reader_next(reader, &first));
    assert_fails(RN_IO, rn_reader_next(reader, &second));
    assert_int_equal(rn_last_error()->offset, 16384);
    assert_memory_equal(first.data, disk[2].bytes, first.bytes); // still held
    rn_reader_release(reader, &first);
    rn_reader_destroy(reader);
}

static void reader_hands_out_what_came_before_a_failure(void **state) {
    (void)state;
    on_each_engine(hand_out_before_failure);
}

static void cut_file(rn_reader_engine engine) {
    for (int mode = 0; mode < 3; mode++) {
        const char *path = test_path("cut");
        test_write(path, disk[2].bytes, disk[2].size);
        rn_reader *reader;
        rn_reader_options options = {
            .engine = engine,
            .buffer_bytes = 65536,
            .request_bytes = 16384,
            .ignore_page_cache = mode == 0,
            .avoid_direct = mode == 1,
        };
        rn_extent list = {0, 0, disk[2].size};
        assert_ok(rn_reader_create(&(rn_reader_file){.path = path}, 1, &options, &reader));
        assert_int_equal(truncate(path, 70001), 0);
        assert_fails(RN_IO, read_list(reader, &disk[2], &list, 1));
        assert_string_equal(rn_last_error()->path, path);
        assert_int_equal(rn_last_error()->offset, 70001);
        assert_fails(RN_IO, rn_reader_check(reader));
        rn_reader_destroy(reader);
    }
}

static void reader_notices_a_file_cut_short(void **state) {
    (void)state;
    on_each_engine(cut_file);
}

static void reader_refuses_extents_outside_their_file(void **state) {
    (void)state;
    const rn_extent bad[] = {
        {2, 0, 100002}, {2, 100002, 0}, {2, UINT64_MAX, 2}, {0, 1, UINT64_MAX}};
    rn_reader *reader;
    rn_reader_piece piece;
    assert_ok(open_reader(disk, NULL, &reader));
    for (int i = 0; i < 4; i++) {
        rn_extent list[] = {{3, 0, 10}, bad[i]};
        assert_fails(RN_CORRUPT, rn_reader_start(reader, list, 2));
        assert_string_equal(rn_last_error()->path, disk[bad[i].file].path);
        assert_true(rn_last_error()->offset == bad[i].offset);
        assert_fails(RN_CORRUPT, rn_reader_next(reader, &piece));
    }
    assert_fails(RN_INVALID, rn_reader_start(reader, &(rn_extent){FILE_COUNT, 0, 1}, 1));
    assert_ok(read_list(reader, disk, &(rn_extent){2, 100001, 0}, 1));
    rn_reader_destroy(reader);
}

static void cancel_reading(rn_reader_engine engine) {
    _Atomic bool cancel = false;
    rn_reader *reader;
    rn_reader_piece piece;
    rn_reader_options options = {
        .engine = engine, .buffer_bytes = 65536, .request_bytes = 8192, .cancel = &cancel};
    rn_extent list = {3, 0, sizes[3]};
    assert_ok(open_reader(disk, &options, &reader));
    assert_ok(rn_reader_start(reader, &list, 1));
    assert_ok(rn_reader_next(reader, &piece));
    atomic_store(&cancel, true);
    assert_fails(RN_CANCELLED, rn_reader_next(reader, &(rn_reader_piece){0}));
    assert_memory_equal(piece.data, disk[3].bytes, piece.bytes);
    rn_reader_release(reader, &piece);
    assert_fails(RN_CANCELLED, read_list(reader, disk, &list, 1));
    atomic_store(&cancel, false);
    assert_ok(read_list(reader, disk, &list, 1));
    assert_ok(rn_reader_start(reader, &list, 1));
    atomic_store(&cancel, true);
    rn_reader_destroy(reader); // with requests in flight
}

static void reader_stops_when_cancelled(void **state) {
    (void)state;
    on_each_engine(cancel_reading);
}

static void fail_each_allocation(rn_reader_engine engine) {
    rn_extent list = {3, 0, sizes[3]};
    bool fired = true;
    for (uint64_t n = 1; fired; n++) {
        counts count = {0};
        rn_allocator allocator = {&count, count_alloc, count_free};
        rn_reader_options options = {.engine = engine, .allocator = &allocator};
        rn_reader *reader;
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status status = open_reader(disk, &options, &reader);
        if (status == RN_OK) status = read_list(reader, disk, &list, 1);
        fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(status, fired ? RN_NO_MEMORY : RN_OK);
        rn_reader_destroy(reader);
        assert_int_equal(count.live_bytes, 0);
        assert_true(n < 50);
    }
}

static void reader_survives_every_failed_allocation(void **state) {
    (void)state;
    on_each_engine(fail_each_allocation);
}

// ---- opening and identity ----------------------------------------------------------------------

static void reader_opens_regular_files_only(void **state) {
    (void)state;
    rn_reader *reader;
    const char *missing = test_path("missing"), *pipe = test_path("pipe");
    assert_fails(RN_NOT_FOUND,
                 rn_reader_create(&(rn_reader_file){.path = missing}, 1, NULL, &reader));
    assert_null(reader);
    assert_string_equal(rn_last_error()->path, missing);
    assert_fails(RN_UNSUPPORTED,
                 rn_reader_create(&(rn_reader_file){.path = test_folder()}, 1, NULL, &reader));
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_fails(RN_UNSUPPORTED,
                 rn_reader_create(&(rn_reader_file){.path = pipe}, 1, NULL, &reader));
}

static void reader_refuses_options_that_make_no_sense(void **state) {
    (void)state;
    const rn_reader_options bad[] = {
        {.buffer_bytes = 4095},
        {.request_bytes = 5000},
        {.buffer_bytes = 8192, .request_bytes = 12288},
        {.buffer_bytes = SIZE_MAX, .request_bytes = (size_t)2 << 30},
    };
    rn_reader *reader;
    for (int i = 0; i < 4; i++)
        assert_fails(RN_INVALID, open_reader(disk, &bad[i], &reader));
    // The smallest that works.
    assert_ok(open_reader(disk, &(rn_reader_options){.buffer_bytes = 4096}, &reader));
    assert_ok(read_list(reader, disk, &(rn_extent){2, 1, 100000}, 1));
    rn_reader_destroy(reader);
}

static void reader_check_notices_new_content(void **state) {
    (void)state;
    const char *path = test_path("changing");
    rn_reader *reader;
    test_write(path, "abc", 3);
    assert_ok(rn_reader_create(&(rn_reader_file){.path = path}, 1, NULL, &reader));
    assert_ok(rn_reader_check(reader));
    test_write(path, "abcd", 4);
    assert_fails(RN_IO, rn_reader_check(reader));
    assert_string_equal(rn_last_error()->path, path);
    rn_reader_destroy(reader);

    // In place and of the same size; touched before and after.
    int fd = open(path, O_WRONLY);
    assert_ok(rn_reader_create(&(rn_reader_file){.path = path}, 1, NULL, &reader));
    assert_int_equal(utimensat(AT_FDCWD, path, NULL, 0), 0);
    assert_int_equal(pwrite(fd, "x", 1, 2), 1);
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[2]){{1, 0}, {1, 0}}, 0), 0);
    assert_fails(RN_IO, rn_reader_check(reader));
    rn_reader_destroy(reader);
    close(fd);
}

static void reader_check_takes_what_was_touched_renamed_or_removed(void **state) {
    (void)state;
    const char *path = test_path("touched"), *other = test_path("other");
    static const struct timespec times[2] = {{1, 0}, {1, 0}};
    rn_reader *reader, *second;
    test_write(path, "abc", 3);
    assert_ok(rn_reader_create(&(rn_reader_file){.path = path}, 1, NULL, &reader));
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_ok(rn_reader_check(reader));
    // Two of them look at the same file, and one goes.
    assert_ok(rn_reader_create(&(rn_reader_file){.path = path}, 1, NULL, &second));
    rn_reader_destroy(reader);
    assert_int_equal(utimensat(AT_FDCWD, path, NULL, 0), 0);
    assert_ok(rn_reader_check(second));
    test_write(other, "xyz", 3);
    assert_int_equal(rename(other, path), 0);
    assert_ok(rn_reader_check(second));
    rn_reader_destroy(second);

    assert_ok(rn_reader_create(&(rn_reader_file){.path = path}, 1, NULL, &reader));
    unlink(path);
    assert_ok(rn_reader_check(reader)); // gone from the folder, whole behind the descriptor
    rn_reader_destroy(reader);
}

// ---- engines -----------------------------------------------------------------------------------

// Makes io_uring_setup fail with EPERM in this process, as containers do.
static bool forbid_uring(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

enum { CHILD_GOOD, CHILD_BAD, CHILD_CANNOT };

static int read_forbidden(void) {
    rn_reader *reader;
    rn_extent list = {3, 0, sizes[3]};
    if (!forbid_uring()) return CHILD_CANNOT;
    rn_status status = open_reader(disk, &(rn_reader_options){.engine = RN_READER_URING}, &reader);
    if (status != RN_UNSUPPORTED || reader) return CHILD_BAD;
    if (open_reader(disk, NULL, &reader) != RN_OK) return CHILD_BAD;
    rn_reader_stats stats = rn_reader_get_stats(reader);
    if (stats.engine != RN_READER_THREADS) return CHILD_BAD;
    if (!strstr(stats.engine_reason, strerror(EPERM))) return CHILD_BAD;
    if (read_list(reader, disk, &list, 1) != RN_OK) return CHILD_BAD;
    rn_reader_destroy(reader);
    return CHILD_GOOD;
}

static void reader_uses_threads_where_io_uring_is_forbidden(void **state) {
    (void)state;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(read_forbidden());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CHILD_CANNOT) skip_because("no seccomp filter can be set");
    assert_int_equal(WEXITSTATUS(status), CHILD_GOOD);
}

static void reader_says_which_engine_is_at_work(void **state) {
    (void)state;
    rn_reader *reader;
    assert_ok(open_reader(disk, &(rn_reader_options){.engine = RN_READER_THREADS}, &reader));
    assert_int_equal(rn_reader_get_stats(reader).engine, RN_READER_THREADS);
    rn_reader_destroy(reader);
    bool uring = have_engine(RN_READER_URING);
    assert_ok(open_reader(disk, NULL, &reader));
    assert_int_equal(rn_reader_get_stats(reader).engine,
                     uring ? RN_READER_URING : RN_READER_THREADS);
    assert_true(strlen(rn_reader_get_stats(reader).engine_reason) > 0);
    rn_reader_destroy(reader);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reader_gives_random_lists_in_order),
        cmocka_unit_test(reader_reads_whole_files_with_default_options),
        cmocka_unit_test(reader_serves_thousands_of_tiny_extents_with_few_requests),
        cmocka_unit_test(reader_ends_at_once_where_there_is_nothing_to_read),
        cmocka_unit_test(reader_says_when_every_slot_is_held),
        cmocka_unit_test(reader_may_be_started_again_in_the_middle),
        cmocka_unit_test(reader_outlives_the_thread_that_started_a_list),
        cmocka_unit_test(reader_takes_cached_pages_and_leaves_the_cache_alone),
        cmocka_unit_test(reader_without_direct_reads_drops_the_pages_it_brought),
        cmocka_unit_test(reader_falls_back_where_direct_reads_are_refused),
        cmocka_unit_test(reader_reports_every_failed_read),
        cmocka_unit_test(reader_hands_out_what_came_before_a_failure),
        cmocka_unit_test(reader_notices_a_file_cut_short),
        cmocka_unit_test(reader_refuses_extents_outside_their_file),
        cmocka_unit_test(reader_stops_when_cancelled),
        cmocka_unit_test(reader_survives_every_failed_allocation),
        cmocka_unit_test(reader_opens_regular_files_only),
        cmocka_unit_test(reader_refuses_options_that_make_no_sense),
        cmocka_unit_test(reader_check_notices_new_content),
        cmocka_unit_test(reader_check_takes_what_was_touched_renamed_or_removed),
        cmocka_unit_test(reader_uses_threads_where_io_uring_is_forbidden),
        cmocka_unit_test(reader_says_which_engine_is_at_work),
    };
    return cmocka_run_group_tests(tests, make_samples, remove_samples);
}
