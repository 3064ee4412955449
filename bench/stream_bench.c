// stream_bench.c — a chain of matrix products larger than its budget: how near the session comes to
// the disk.
//
// 64 weights of (4096, 4096) f32, 4 GiB, in one file (or, by arguments, another number of another
// dtype: `stream_bench FOLDER 448 q4_0`); the budget is 600 MiB, the process image
// included. Each round reads as much as one pass of the chain reads, what is not resident, three
// times: with the bare direct reader, into 4 MiB that nobody looks at, which is the limit; into two
// slots of a weight each, which is what memory makes of that limit; and the chain itself. The
// disk's speed changes from second to second, so they are timed in turn and the best rounds are
// compared. Then what was predicted beside what was measured.
#include <ration/ration.h>

#include "base/clock.h"
#include "base/fetcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { WIDTH = 4096, ROUNDS = 6 };
#define BUDGET_BYTES ((uint64_t)600 << 20)

static int links = 64; // weights of the chain
static rn_dtype dtype = RN_DTYPE_F32;
static uint64_t row_bytes; // of a weight
static char path[512];
static uint64_t file_bytes;

static void check(rn_status s) {
    if (s == RN_OK) return;
    fprintf(stderr, "stream_bench: %s\n", rn_last_error()->message);
    unlink(path);
    exit(1);
}

// ---- the file -----------------------------------------------------------------------------------

static void write_chain(void) {
    static const uint64_t dims[] = {WIDTH, WIDTH};
    rn_write_tensor *tensors = calloc((size_t)links, sizeof *tensors);
    char(*names)[16] = calloc((size_t)links, sizeof *names);
    float *row = calloc(WIDTH, sizeof *row);
    uint8_t *narrow = calloc(1, row_bytes);
    rn_writer *writer = NULL;
    for (int i = 0; i < links; i++) {
        int bytes = snprintf(names[i], sizeof names[i], "w%d", i);
        tensors[i] = (rn_write_tensor){
            .name = {names[i], (size_t)bytes}, .dtype = dtype, .rank = 2, .dims = dims};
    }
    check(rn_writer_create(path, tensors, (size_t)links, NULL, &writer));
    for (int64_t i = 0; i < (int64_t)links * WIDTH; i++) {
        memset(row, 0, WIDTH * sizeof *row);
        row[(i * 7) % WIDTH] = 1.0f; // a permutation: values stay what they are
        check(rn_dtype_from_f32(dtype, row, narrow, WIDTH));
        check(rn_writer_append(writer, narrow, row_bytes));
    }
    check(rn_writer_commit(writer));
    file_bytes = rn_writer_file_bytes(writer);
    rn_writer_destroy(writer);
    free(row), free(narrow), free(names), free(tensors);
}

// ---- the graph ----------------------------------------------------------------------------------

static rn_status build(void *self, const rn_recipe_options *options, rn_graph **out) {
    rn_graph *g = NULL;
    (void)self, (void)options;
    RN_TRY(rn_graph_create(&g));
    rn_value x = rn_graph_input(g, "x", RN_DTYPE_F32, RN_SHAPE(RN_ROWS, WIDTH));
    for (int i = 0; i < links; i++) {
        char name[24];
        snprintf(name, sizeof name, "link %d", i);
        rn_graph_block(g, name);
        snprintf(name, sizeof name, "w%d", i);
        rn_value w = rn_graph_weight(g, name, dtype, RN_SHAPE(WIDTH, WIDTH));
        x = rn_op_matmul(g, x, w, RN_NO_VALUE);
    }
    rn_graph_output(g, x, "y");
    rn_status s = rn_graph_finish(g);
    if (s == RN_OK)
        *out = g;
    else
        rn_graph_destroy(g);
    return s;
}

// ---- the two contenders -------------------------------------------------------------------------

// Bytes a second of the bare reader over the last `bytes` of the file.
static double read_plainly(uint64_t bytes) {
    rn_reader *reader = NULL;
    rn_reader_piece piece = {0};
    rn_extent extent = {.file = 0, .offset = file_bytes - bytes, .bytes = bytes};
    check(rn_reader_create(&(rn_reader_file){.path = path}, 1,
                           &(rn_reader_options){.ignore_page_cache = true}, &reader));
    uint64_t start = rn_clock_ns();
    check(rn_reader_start(reader, &extent, 1));
    for (;;) {
        check(rn_reader_next(reader, &piece));
        if (piece.bytes == 0) break;
        rn_reader_release(reader, &piece);
    }
    double seconds = (double)(rn_clock_ns() - start) / 1e9;
    rn_reader_destroy(reader);
    return (double)bytes / seconds;
}

// The same into two slots of a weight each, in turn, the next one begun before the last one ends.
static double fetch_to_slots(uint64_t bytes) {
    const uint64_t each = WIDTH * row_bytes, room = rn_fetch_room(each);
    const uint64_t first = file_bytes - bytes, count = bytes / each;
    rn_fetcher *fetcher = NULL;
    rn_fetch items[2];
    static rn_fetch_batch batches[2];
    static uint8_t *slots;
    if (!slots) {
        slots = aligned_alloc(2 << 20, (2 * room + (2 << 20) - 1) >> 21 << 21);
        madvise(slots, 2 * room, MADV_HUGEPAGE);
        memset(slots, 1, 2 * room);
    }
    check(rn_fetcher_create(&(rn_reader_file){.path = path}, 1,
                            &(rn_reader_options){.ignore_page_cache = true}, &fetcher));
    uint64_t start = rn_clock_ns();
    for (uint64_t i = 0; i <= count; i++) {
        rn_fetch_batch *next = &batches[i % 2], *now = &batches[1 - i % 2];
        items[i % 2] = (rn_fetch){0, first + i * each, i < count ? each : 0, slots + i % 2 * room};
        *next = (rn_fetch_batch){.items = &items[i % 2], .count = 1};
        rn_fetcher_begin(fetcher, next);
        while (i > 0 && !rn_fetcher_is_done(now)) {
            rn_fetcher_feed(fetcher, now);
            if (rn_fetcher_is_fed(now)) rn_fetcher_feed(fetcher, next);
            rn_fetcher_wait(fetcher);
        }
        if (i > 0) check(rn_fetcher_status(now));
    }
    double seconds = (double)(rn_clock_ns() - start) / 1e9;
    rn_fetcher_destroy(fetcher);
    return (double)bytes / seconds;
}

static double run_once(rn_session *session, float *x) {
    uint64_t before = rn_session_get_facts(session).read_bytes;
    check(rn_session_set(session, "x", x, WIDTH * sizeof *x));
    uint64_t start = rn_clock_ns();
    check(rn_session_run(session, 1));
    double seconds = (double)(rn_clock_ns() - start) / 1e9;
    return (double)(rn_session_get_facts(session).read_bytes - before) / seconds;
}

// Processor seconds of this process so far: its own, and the system's for it.
static void read_clocks(double clocks[2]) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    clocks[0] = (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6;
    clocks[1] = (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6;
}

static double largest(const double *x, int n) {
    double most = 0;
    for (int i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

static void compare(rn_session *session, const rn_plan_summary *plan) {
    float *x = calloc(WIDTH, sizeof *x);
    double disk[ROUNDS], slots[ROUNDS], chain[ROUNDS], waited[ROUNDS], begin[2], end[2],
        busy[2] = {0};
    for (int i = 0; i < WIDTH; i++)
        x[i] = (float)i;
    run_once(session, x); // the first run primes the ring
    for (int i = 0; i < ROUNDS; i++) {
        disk[i] = read_plainly(plan->streamed_bytes);
        slots[i] = fetch_to_slots(plan->streamed_bytes);
        read_clocks(begin);
        chain[i] = run_once(session, x);
        read_clocks(end);
        waited[i] = rn_session_get_facts(session).wait_seconds;
        for (int k = 0; k < 2; k++)
            busy[k] += (end[k] - begin[k]) / ROUNDS;
    }
    for (int i = 0; i < ROUNDS; i++)
        printf("round %d              reads %.2f GB/s, into slots %.2f GB/s, the chain %.2f GB/s: "
               "%.0f "
               "%%, waited %.2f s for reads\n",
               i + 1, disk[i] / 1e9, slots[i] / 1e9, chain[i] / 1e9, 100 * chain[i] / disk[i],
               waited[i]);
    printf("direct reads alone   %.2f GB/s\n", largest(disk, ROUNDS) / 1e9);
    printf("into slots           %.2f GB/s, %.0f %% of it\n", largest(slots, ROUNDS) / 1e9,
           100 * largest(slots, ROUNDS) / largest(disk, ROUNDS));
    printf("the chain            %.2f GB/s from disk, %.0f %% of it (target: 90)\n",
           largest(chain, ROUNDS) / 1e9, 100 * largest(chain, ROUNDS) / largest(disk, ROUNDS));
    printf("a run                %.2f s, predicted %.2f s\n",
           (double)plan->streamed_bytes / largest(chain, ROUNDS), plan->seconds);
    printf("processor            %.2f s a run, and %.2f s of the system's\n", busy[0], busy[1]);
    free(x);
}

// ---- facts --------------------------------------------------------------------------------------

static void print_facts(rn_session *session, const rn_plan_summary *plan) {
    rn_process_info info;
    check(rn_process_read(&info));
    uint64_t live = rn_session_get_facts(session).live_peak_bytes;
    printf("live peak            %s, %.6f of what was predicted\n", rn_size_format(live).text,
           (double)live / (double)plan->live_peak_bytes);
    printf("peak resident        %s, %.3f of the budget\n",
           rn_size_format(info.resident_peak_bytes).text,
           (double)info.resident_peak_bytes / (double)BUDGET_BYTES);
}

// One session that counts live bytes at each step, which takes time itself; then, when what the
// process held has been read, one for the time.
static void run_plan(const rn_plan *plan) {
    const rn_plan_summary *summary = rn_plan_get_summary(plan);
    rn_checkpoint *model = NULL;
    rn_session *session = NULL;
    float x[WIDTH] = {1};
    check(rn_checkpoint_open(path, &model));
    rn_weight_source source = {.checkpoint = model};
    check(rn_session_create(plan, &source, &(rn_session_options){.audit = true}, &session));
    run_once(session, x);
    run_once(session, x);
    print_facts(session, summary);
    rn_session_destroy(session);
    check(rn_session_create(plan, &source, NULL, &session));
    compare(session, summary);
    rn_session_destroy(session);
    rn_checkpoint_close(model);
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : ".";
    if (argc > 2) links = atoi(argv[2]);
    for (int i = 1; argc > 3 && i < RN_DTYPE_COUNT; i++)
        if (strcmp(rn_dtype_get((rn_dtype)i)->name, argv[3]) == 0) dtype = (rn_dtype)i;
    if (!rn_dtype_bytes(dtype, WIDTH, &row_bytes)) return 2;
    snprintf(path, sizeof path, "%s/stream_bench.%d.gguf", folder, (int)getpid());
    write_chain();
    bool measured = rn_rates_use(0) != RN_RATES_GUESSED;
    check(rn_process_charge_unaccounted());
    uint64_t outside = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED).now_bytes;
    uint64_t reserve = (4u << 20) + BUDGET_BYTES / 1000 * 3;
    rn_recipe recipe = {.name = "chain", .build = build, .rows = 1};
    rn_plan_options options = {.budget_bytes = BUDGET_BYTES - outside - reserve};
    rn_plan *plan = NULL;
    check(rn_plan_make(&recipe, rn_cpu_caps(), &options, &plan));
    printf("streaming: %s of weights within %s%s\n",
           rn_size_format(rn_plan_get_summary(plan)->weight_bytes).text,
           rn_size_format(BUDGET_BYTES).text,
           measured ? "" : " (times are guesses: ration calibrate)");
    run_plan(plan);
    rn_plan_destroy(plan);
    unlink(path);
    return 0;
}
