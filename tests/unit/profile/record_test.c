// The recorder on one thread: what is in the file is what happened, whatever goes wrong meanwhile.
#include "record_reading.h"
#include "base/fault.h"
#include "memory/account.h"
#include "memory/ledger.h"

#include <ration/log.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB ((uint64_t)1 << 10)

static const rn_account kv = {RN_DEVICE_HOST, RN_PURPOSE_KV, NULL};
static char path[512];

static int begin(void **state) {
    (void)state;
    snprintf(path, sizeof path, "%s", test_path("a.rntrace"));
    unlink(path);
    return 0;
}

static int end(void **state) {
    (void)state;
    rn_fault_arm(RN_FAULT_WRITE, 0);
    rn_fault_arm(RN_FAULT_ALLOC, 0);
    rn_log_set((rn_sink){0}, RN_LOG_TEXT, RN_LOG_OFF);
    return rn_profile_stop() == RN_OK && rn_ledger_is_valid() ? 0 : -1;
}

static void start(rn_profile_options options) {
    options.path = path;
    options.leave_signals = true;
    assert_ok(rn_profile_start(&options));
    assert_true(rn_profile_is_on());
}

static reading *stop(void) {
    assert_ok(rn_profile_stop());
    assert_false(rn_profile_is_on());
    return read_trace(path);
}

// ---- events ------------------------------------------------------------------------------------

static void nothing_is_recorded_unless_asked(void **state) {
    (void)state;
    assert_false(rn_profile_is_on());
    assert_int_equal(0, rn_profile_name("a name"));
    assert_int_equal(0, rn_profile_label("a name", "a group", NULL));
    rn_profile_begin(1);
    rn_profile_end();
    rn_profile_alloc(kv, 1, 2, 3, 0);
    rn_profile_checkpoint("here");
    rn_profile_flush();
    assert_ok(rn_profile_stop());
}

static void events_come_back_in_order(void **state) {
    (void)state;
    start((rn_profile_options){.command = "a \"command\""});
    uint32_t name = rn_profile_label("matmul", "layer 3", "f16 [4, 4]");
    uint32_t queue = rn_profile_lane("read queue");
    rn_profile_begin(name);
    rn_profile_alloc(kv, 4096, 100, name, RN_PROFILE_INNER);
    rn_profile_free(kv, 4096, 100, RN_PROFILE_INNER);
    rn_profile_end();
    rn_profile_move(RN_DEVICE_ANY, RN_DEVICE_HOST, 8192, 7, name);
    rn_profile_counter(RN_COUNTER_PREDICTED, RN_DEVICE_HOST, name, 99);
    uint64_t now = rn_profile_now();
    rn_profile_span(queue, name, now, now + 5);
    rn_profile_checkpoint("after the first");
    reading *r = stop();
    assert_int_equal(0, r->damaged);
    assert_int_equal(RN_TRACE_PREAMBLE, r->blocks[0]->kind);
    assert_non_null(strstr(payload_of(r->blocks[0]), "\"command\":\"a \\\"command\\\"\""));
    assert_non_null(strstr(payload_of(r->blocks[0]), "\"mode\":\"spill\""));
    const rn_trace_event *event = find_event(r, RN_TRACE_BEGIN, -1, 0);
    assert_string_equal("matmul", name_of(r, event->name));
    assert_string_equal("layer 3", find_text(r, RN_TRACE_NAMES, event->name, 1));
    assert_string_equal("f16 [4, 4]", find_text(r, RN_TRACE_NAMES, event->name, 2));
    assert_int_equal(RN_TRACE_ALLOC, event[1].kind);
    assert_int_equal(4096, event[1].address);
    assert_int_equal(100, event[1].bytes);
    assert_int_equal(RN_PURPOSE_KV, event[1].purpose);
    assert_int_equal(RN_PROFILE_INNER, event[1].flags);
    assert_int_equal(RN_TRACE_FREE, event[2].kind);
    assert_int_equal(RN_TRACE_FINISH, event[3].kind);
    assert_int_equal(RN_TRACE_MOVE, event[4].kind);
    assert_int_equal(RN_DEVICE_ANY, event[4].purpose);
    assert_int_equal(RN_TRACE_COUNTER, event[5].kind);
    assert_int_equal(99, event[5].bytes);
    assert_int_equal(RN_TRACE_SPAN, event[6].kind);
    assert_int_equal(queue, event[6].address);
    assert_int_equal(5, event[6].bytes);
    assert_int_equal(RN_TRACE_MARK, event[7].kind);
    assert_string_equal("after the first", name_of(r, event[7].name));
    for (int i = 1; i < 8; i++)
        assert_true(event[i].time_ns >= event[i - 1].time_ns);
    assert_string_equal("read queue", find_text(r, RN_TRACE_LANES, queue, 0));
    assert_string_equal("host", find_text(r, RN_TRACE_DEVICES, 0, 0));
    assert_non_null(strstr(end_of(r), "\"stopped\""));
    assert_non_null(strstr(end_of(r), "\"dropped\": 0"));
    close_reading(r);
}

static void threads_have_the_names_they_are_given(void **state) {
    (void)state;
    start((rn_profile_options){0});
    rn_profile_checkpoint("as main");
    reading *r;
    rn_profile_flush();
    r = read_trace(path);
    event_search s = {.kind = RN_TRACE_MARK, .purpose = RN_MARK_CHECKPOINT};
    each_event(r, search_event, &s);
    assert_string_equal("main", find_text(r, RN_TRACE_LANES, s.lane, 0));
    close_reading(r);
    rn_profile_thread_name("the boss");
    rn_profile_checkpoint("as the boss");
    uint32_t lane = s.lane;
    r = stop();
    assert_string_equal("the boss", find_text(r, RN_TRACE_LANES, lane, 0));
    close_reading(r);
}

static void the_same_text_has_the_same_number_in_every_recording(void **state) {
    (void)state;
    char buffer[32] = "first";
    start((rn_profile_options){0});
    rn_profile_checkpoint("so that there is a ring");
    uint32_t first = rn_profile_name(buffer), queue = rn_profile_lane("queue");
    assert_int_not_equal(0, first);
    assert_int_equal(first, rn_profile_name(buffer));
    assert_int_equal(first, rn_profile_name("first"));
    assert_int_equal(first, rn_profile_label("first", NULL, NULL));
    assert_int_equal(first, rn_profile_label("first", "", ""));
    snprintf(buffer, sizeof buffer, "second");
    assert_int_not_equal(first, rn_profile_name(buffer));
    snprintf(buffer, sizeof buffer, "firs");
    assert_int_not_equal(first, rn_profile_name(buffer));
    assert_int_not_equal(first, rn_profile_label("first", "group", NULL));
    assert_int_equal(0, rn_profile_name(""));
    assert_int_equal(0, rn_profile_name(NULL));
    close_reading(stop());
    start((rn_profile_options){0});
    assert_int_equal(first, rn_profile_name("first"));
    assert_int_equal(queue, rn_profile_lane("queue"));
    reading *r = stop();
    assert_string_equal("first", name_of(r, first)); // though no event of this one has it
    assert_string_equal("queue", find_text(r, RN_TRACE_LANES, queue, 0));
    close_reading(r);
}

static void long_names_are_cut(void **state) {
    (void)state;
    char *text = calloc(1, 100001);
    memset(text, 'x', 100000);
    start((rn_profile_options){0});
    uint32_t id = rn_profile_label(text, text, text);
    assert_int_equal(id, rn_profile_label(text, text, text));
    rn_profile_begin(id);
    reading *r = stop();
    assert_int_equal(1000, strlen(name_of(r, id)));
    close_reading(r);
    free(text);
}

// ---- the ledger --------------------------------------------------------------------------------

static void the_ledger_is_recorded_with_what_it_held_before(void **state) {
    (void)state;
    rn_holder *holder;
    assert_ok(rn_holder_open(RN_DEVICE_HOST, RN_PURPOSE_KV, "cache", &holder));
    rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_KV, holder};
    rn_ledger_charge(account, (void *)0x10000, 300);
    rn_ledger_charge(kv, (void *)0x20000, 11);
    start((rn_profile_options){0});
    rn_ledger_charge(account, (void *)0x30000, 50);
    rn_ledger_release(account, (void *)0x10000, 300);
    reading *r = stop();
    rn_ledger_release(account, (void *)0x30000, 50);
    rn_ledger_release(kv, (void *)0x20000, 11);
    rn_holder_close(holder);
    const rn_trace_event *before = find_event(r, RN_TRACE_ALLOC, RN_PURPOSE_KV, 0);
    assert_string_equal("cache", name_of(r, before[0].name));
    assert_int_equal(300, before[0].bytes);
    assert_int_equal(0, before[0].time_ns);
    assert_true(before[0].address && before[0].address < RN_TRACE_FIRST_ADDRESS);
    assert_string_equal("before the recording", name_of(r, before[1].name));
    assert_int_equal(11, before[1].bytes);
    const rn_trace_event *mark = find_event(r, RN_TRACE_MARK, RN_MARK_START, 0);
    assert_true(mark > before); // the same block
    const rn_trace_event *alloc = find_event(r, RN_TRACE_ALLOC, RN_PURPOSE_KV, 2);
    assert_string_equal("cache", name_of(r, alloc->name));
    assert_int_equal(0x30000, alloc->address);
    assert_int_equal(0x10000, find_event(r, RN_TRACE_FREE, RN_PURPOSE_KV, 0)->address);
    assert_int_equal(61, last_total(r, RN_DEVICE_HOST, RN_PURPOSE_KV).bytes);
    close_reading(r);
}

static void a_holder_in_the_memory_of_another_has_its_own_name(void **state) {
    (void)state;
    start((rn_profile_options){0});
    for (int i = 0; i < 4; i++) {
        char name[16];
        rn_holder *holder;
        snprintf(name, sizeof name, "holder %d", i);
        assert_ok(rn_holder_open(RN_DEVICE_HOST, RN_PURPOSE_KV, name, &holder));
        rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_KV, holder};
        rn_ledger_charge(account, NULL, 1);
        rn_ledger_release(account, NULL, 1);
        rn_holder_close(holder);
    }
    reading *r = stop();
    for (size_t i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "holder %zu", i);
        assert_string_equal(name,
                            name_of(r, find_event(r, RN_TRACE_ALLOC, RN_PURPOSE_KV, i)->name));
    }
    close_reading(r);
}

static void scopes_and_stages_are_recorded(void **state) {
    (void)state;
    rn_scope scope;
    start((rn_profile_options){0});
    rn_scope_begin(&scope, "load", RN_DEVICE_ANY);
    rn_stage("model_loaded_cpu");
    rn_scope_stats stats = rn_scope_end(&scope);
    assert_int_equal(0, stats.num_allocations); // the recorder's own are not the program's
    reading *r = stop();
    assert_string_equal("load", name_of(r, find_event(r, RN_TRACE_BEGIN, -1, 0)->name));
    assert_string_equal("model_loaded_cpu",
                        name_of(r, find_event(r, RN_TRACE_MARK, RN_MARK_STAGE, 0)->name));
    assert_int_equal(1, count_events(r, RN_TRACE_FINISH, -1));
    close_reading(r);
}

static void a_refusal_is_in_the_file_at_once(void **state) {
    (void)state;
    uint64_t held = rn_ledger_now(RN_DEVICE_HOST);
    start((rn_profile_options){0});
    rn_profile_checkpoint("so that there is a ring");
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, held + (1 << 20)));
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(kv, NULL, 1 << 21));
    reading *r = read_trace(path);
    assert_int_equal(1 << 21, find_event(r, RN_TRACE_MARK, RN_MARK_REFUSAL, 0)->bytes);
    close_reading(r);
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, RN_NO_LIMIT));
    close_reading(stop());
}

static void budgets_and_resident_memory_are_counters(void **state) {
    (void)state;
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, 123456789));
    start((rn_profile_options){0});
    rn_profile_flush();
    reading *r = stop();
    assert_int_equal(123456789, find_event(r, RN_TRACE_COUNTER, RN_COUNTER_BUDGET, 0)->bytes);
    assert_true(find_event(r, RN_TRACE_COUNTER, RN_COUNTER_RESIDENT, 0)->bytes > 100000);
    close_reading(r);
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, RN_NO_LIMIT));
}

// Nobody calls the recorder here: its thread comes round by itself, sooner or later.
static void the_writer_looks_at_budgets_and_the_clock(void **state) {
    (void)state;
    bool seen = false;
    start((rn_profile_options){.snapshot_seconds = 0.001});
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, (uint64_t)1 << 40));
    for (int i = 0; i < 1000 && !seen; i++) {
        usleep(10000);
        reading *r = read_trace(path);
        const rn_trace_event *budget = find_event(r, RN_TRACE_COUNTER, RN_COUNTER_BUDGET, 0);
        seen = budget && budget->bytes == (uint64_t)1 << 40 &&
               count_events(r, RN_TRACE_MARK, RN_MARK_PERIODIC) > 1;
        close_reading(r);
    }
    assert_true(seen);
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, RN_NO_LIMIT));
    close_reading(stop());
}

static void totals_are_what_is_held_and_peaks_what_was(void **state) {
    (void)state;
    rn_device_id device;
    assert_ok(rn_device_add("test:0", &device));
    rn_account account = {device, RN_PURPOSE_WORKSPACE, NULL};
    start((rn_profile_options){.ring_bytes = 4096});
    for (uint64_t i = 1; i <= 1000; i++) {
        rn_profile_alloc(account, i << 12, 10, 0, 0);
        if (i % 4 == 0) rn_profile_free(account, i << 12, 10, 0);
        rn_profile_alloc(account, i << 12 | 64, 1000, 0, RN_PROFILE_INNER);
        rn_profile_alloc(account, i << 12, 1000, 0, RN_PROFILE_RELABEL);
    }
    reading *r = stop();
    total_record held = last_total(r, device, RN_PURPOSE_WORKSPACE);
    assert_int_equal(7500, held.bytes);
    assert_int_equal(750, held.blocks);
    assert_int_equal(7510, last_total(r, device, RN_PURPOSE_COUNT).bytes);
    assert_string_equal("test:0", find_text(r, RN_TRACE_DEVICES, device, 0));
    close_reading(r);
}

// ---- rings and limits --------------------------------------------------------------------------

static void a_full_ring_drops_nothing(void **state) {
    (void)state;
    start((rn_profile_options){.ring_bytes = 1});
    for (uint64_t i = 0; i < 10000; i++)
        rn_profile_counter(RN_COUNTER_OTHER, RN_DEVICE_HOST, 0, i);
    reading *r = stop();
    assert_int_equal(10000, count_events(r, RN_TRACE_COUNTER, RN_COUNTER_OTHER));
    for (size_t i = 0; i < 10000; i += 999)
        assert_int_equal(i, find_event(r, RN_TRACE_COUNTER, RN_COUNTER_OTHER, i)->bytes);
    close_reading(r);
}

typedef struct log_lines {
    size_t count;
    char last[512];
} log_lines;

static rn_status keep_line(void *self, const char *text, size_t bytes) {
    log_lines *lines = self;
    if (bytes == 1 && text[0] == '\n') return RN_OK;
    lines->count++;
    snprintf(lines->last, sizeof lines->last, "%.*s", (int)bytes, text);
    return RN_OK;
}

static void at_its_limit_a_recording_ends_and_says_so(void **state) {
    (void)state;
    log_lines lines = {0};
    rn_log_set((rn_sink){&lines, keep_line}, RN_LOG_TEXT, RN_LOG_WARNING);
    start((rn_profile_options){.limit_bytes = 256 * KIB});
    for (uint64_t i = 0; i < 100000; i++)
        rn_profile_counter(RN_COUNTER_OTHER, RN_DEVICE_HOST, 0, i);
    assert_false(rn_profile_is_on());
    reading *r = stop();
    assert_int_equal(1, lines.count);
    assert_non_null(strstr(lines.last, "limit"));
    assert_true(r->bytes <= 256 * KIB && r->bytes > 250 * KIB);
    assert_int_equal(0, r->damaged);
    assert_non_null(strstr(end_of(r), "\"limit\""));
    assert_null(strstr(end_of(r), "\"dropped\": 0}"));
    close_reading(r);
}

static rn_status record_a_lot(void *self, const char *text, size_t bytes) {
    for (uint64_t i = 0; i < 20000; i++)
        rn_profile_counter(RN_COUNTER_OTHER, RN_DEVICE_HOST, 0, i);
    return keep_line(self, text, bytes);
}

// The log's lock is held while the recording ends: who holds it must not log.
static void a_log_that_records_may_reach_the_limit(void **state) {
    (void)state;
    log_lines lines = {0};
    rn_log_set((rn_sink){&lines, record_a_lot}, RN_LOG_TEXT, RN_LOG_WARNING);
    start((rn_profile_options){.limit_bytes = 256 * KIB});
    rn_log(RN_LOG_WARNING, "test", "a line");
    assert_false(rn_profile_is_on());
    close_reading(stop());
    assert_int_equal(2, lines.count);
    assert_non_null(strstr(lines.last, "limit"));
}

static void after_its_limit_another_recording_may_start(void **state) {
    (void)state;
    start((rn_profile_options){.limit_bytes = 256 * KIB});
    for (uint64_t i = 0; i < 20000; i++)
        rn_profile_counter(RN_COUNTER_OTHER, RN_DEVICE_HOST, 0, i);
    assert_false(rn_profile_is_on());
    start((rn_profile_options){0});
    rn_profile_checkpoint("again");
    reading *r = stop();
    assert_int_equal(0, count_events(r, RN_TRACE_COUNTER, RN_COUNTER_OTHER));
    assert_int_equal(1, count_events(r, RN_TRACE_MARK, RN_MARK_CHECKPOINT));
    close_reading(r);
}

static void a_budget_is_in_every_lap(void **state) {
    (void)state;
    assert_ok(rn_budget_set(RN_DEVICE_HOST, RN_NO_LIMIT - 1, RN_NO_LIMIT - 1));
    start((rn_profile_options){.limit_bytes = 256 * KIB, .keep_newest = true});
    rn_profile_counter(RN_COUNTER_PREDICTED_PEAK, RN_DEVICE_HOST, rn_profile_name("plan"), 12345);
    for (uint64_t i = 0; i < 50000; i++)
        rn_profile_counter(RN_COUNTER_OTHER, RN_DEVICE_HOST, 0, i);
    reading *r = stop();
    assert_ok(rn_budget_set(RN_DEVICE_HOST, RN_NO_LIMIT, RN_NO_LIMIT));
    assert_int_equal(RN_NO_LIMIT - 1, find_event(r, RN_TRACE_COUNTER, RN_COUNTER_BUDGET, 0)->bytes);
    const rn_trace_event *peak = find_event(r, RN_TRACE_COUNTER, RN_COUNTER_PREDICTED_PEAK, 0);
    assert_int_equal(12345, peak->bytes);
    assert_string_equal("plan", name_of(r, peak->name));
    assert_true(count_events(r, RN_TRACE_COUNTER, RN_COUNTER_RESIDENT) > 0);
    close_reading(r);
}

typedef struct lap_sum {
    uint64_t from_sequence, newest;
    int64_t bytes;
} lap_sum;

static void add_to_sum(void *self, const rn_trace_block *block, const rn_trace_event *event) {
    lap_sum *sum = self;
    if (block->sequence < sum->from_sequence || event->purpose != RN_PURPOSE_KV) return;
    if (event->kind > RN_TRACE_FREE) return;
    if (event->kind == RN_TRACE_ALLOC) sum->bytes += (int64_t)event->bytes;
    if (event->kind == RN_TRACE_FREE) sum->bytes -= (int64_t)event->bytes;
    sum->newest = event->address;
}

// The totals of any round and the events behind it give what is held at the end.
static void expect_sums_from_every_round(const reading *r, int64_t held, uint64_t newest) {
    size_t rounds = 0;
    for (size_t i = 1; i < r->count; i++) {
        if (r->blocks[i]->kind != RN_TRACE_TOTALS || i + 2 >= r->count) continue;
        const total_record *records = payload_of(r->blocks[i]);
        lap_sum sum = {.from_sequence = r->blocks[i]->sequence};
        for (size_t t = 0; t < r->blocks[i]->payload_bytes / sizeof *records; t++)
            if (records[t].device == 0 && records[t].purpose == RN_PURPOSE_KV)
                sum.bytes += records[t].bytes;
        each_event(r, add_to_sum, &sum);
        assert_int_equal(held, sum.bytes);
        assert_true(sum.newest == newest || sum.newest == 0); // 0: counters only
        rounds += sum.newest != 0;
    }
    assert_true(rounds > 5);
}

static void a_ring_file_keeps_the_newest_and_the_sums(void **state) {
    (void)state;
    enum { COUNT = 60000 };
    start((rn_profile_options){
        .limit_bytes = 256 * KIB, .keep_newest = true, .ring_bytes = 16 * KIB});
    uint32_t name = rn_profile_name("in the first lap");
    for (uint64_t i = 1; i <= COUNT; i++) {
        rn_profile_alloc(kv, i << 12, 64, name, 0);
        if (i % 2) rn_profile_free(kv, i << 12, 64, 0);
    }
    reading *r = stop();
    assert_true(r->bytes <= 256 * KIB && r->bytes > 200 * KIB);
    assert_true(r->damaged * RN_TRACE_ALIGN <= 32 * KIB); // a block that is half overwritten
    assert_int_equal(0, count_events(r, RN_TRACE_MARK, RN_MARK_START));
    assert_string_equal("in the first lap", name_of(r, name));
    assert_non_null(strstr(end_of(r), "\"stopped\""));
    for (size_t i = 2; i < r->count; i++) // without a gap but for what is half overwritten
        assert_int_equal(r->blocks[i - 1]->sequence + 1, r->blocks[i]->sequence);
    expect_sums_from_every_round(r, COUNT / 2 * 64, (uint64_t)COUNT << 12);
    close_reading(r);
}

static void a_ring_file_with_more_names_than_room_keeps_events(void **state) {
    (void)state;
    start((rn_profile_options){.limit_bytes = 256 * KIB, .keep_newest = true});
    for (uint64_t i = 1; i <= 20000; i++) {
        char text[64];
        snprintf(text, sizeof text, "a name that is not short, number %d", (int)i);
        rn_profile_counter(RN_COUNTER_OTHER, 0, i % 8 ? 0 : rn_profile_name(text), i);
    }
    reading *r = stop();
    size_t count = count_events(r, RN_TRACE_COUNTER, RN_COUNTER_OTHER);
    assert_true(count > 1000);
    assert_int_equal(20000, find_event(r, RN_TRACE_COUNTER, RN_COUNTER_OTHER, count - 1)->bytes);
    assert_true(r->bytes <= 256 * KIB);
    close_reading(r);
}

// ---- files -------------------------------------------------------------------------------------

static void a_second_recording_is_refused_with_the_first_ones_path(void **state) {
    (void)state;
    start((rn_profile_options){0});
    assert_fails(RN_INVALID, rn_profile_start(&(rn_profile_options){.path = test_path("b")}));
    assert_non_null(strstr(rn_last_error()->message, path));
    assert_int_not_equal(0, access(test_path("b"), F_OK));
    rn_profile_checkpoint("goes on");
    reading *r = stop();
    assert_int_equal(1, count_events(r, RN_TRACE_MARK, RN_MARK_CHECKPOINT));
    close_reading(r);
}

static void an_older_file_is_replaced(void **state) {
    (void)state;
    char *old = calloc(1, 1 << 20);
    test_write(path, old, 1 << 20);
    free(old);
    start((rn_profile_options){0});
    reading *r = stop();
    assert_true(r->bytes < 1 << 20);
    assert_int_equal(0, r->damaged);
    close_reading(r);
}

static void what_is_no_file_is_refused(void **state) {
    (void)state;
    const char *fifo = test_path("fifo");
    assert_int_equal(0, mkfifo(fifo, 0600));
    assert_fails(RN_INVALID, rn_profile_start(&(rn_profile_options){.path = fifo}));
    assert_fails(RN_INVALID, rn_profile_start(&(rn_profile_options){.path = test_folder()}));
    assert_fails(RN_IO, rn_profile_start(&(rn_profile_options){.path = test_path("no/where")}));
    assert_fails(RN_INVALID,
                 rn_profile_start(&(rn_profile_options){.path = path, .limit_bytes = 1000}));
    assert_false(rn_profile_is_on());
}

static void without_a_path_the_file_is_named_by_the_time(void **state) {
    (void)state;
    char *folder = getcwd(NULL, 0);
    rn_profile_facts facts;
    assert_int_equal(0, chdir(test_folder()));
    assert_ok(rn_profile_start(NULL));
    rn_profile_get_facts(&facts);
    assert_true(facts.on);
    assert_ok(rn_profile_stop());
    assert_int_equal(0, strncmp(facts.path, "ration_2", 8));
    assert_int_equal(0, unlink(facts.path));
    assert_int_equal(0, chdir(folder));
    free(folder);
}

static void facts_are_told(void **state) {
    (void)state;
    rn_profile_facts facts;
    start((rn_profile_options){.ring_bytes = 64 * KIB});
    rn_profile_checkpoint("a");
    rn_profile_flush();
    rn_profile_get_facts(&facts);
    assert_true(facts.on);
    assert_string_equal(path, facts.path);
    assert_true(facts.event_count >= 1);
    assert_int_equal(0, facts.dropped_count);
    assert_true(facts.ring_bytes >= 96 * KIB && facts.ring_bytes < 104 * KIB);
    close_reading(stop());
    rn_profile_get_facts(&facts);
    assert_false(facts.on);
    assert_int_equal(0, facts.ring_bytes);
    struct stat info;
    assert_int_equal(0, stat(path, &info));
    assert_int_equal(info.st_size, facts.file_bytes);
}

static void another_programs_recording_is_left_alone(void **state) {
    (void)state;
    struct stat info;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(5, write(fd, "trace", 5));
    assert_int_equal(0, flock(fd, LOCK_EX | LOCK_NB));
    assert_fails(RN_INVALID, rn_profile_start(&(rn_profile_options){.path = path}));
    assert_non_null(strstr(rn_last_error()->message, "another program"));
    assert_int_equal(0, stat(path, &info));
    assert_int_equal(5, info.st_size);
    close(fd);
    start((rn_profile_options){0});
    close_reading(stop());
}

static void a_full_disk_at_the_start_is_an_error(void **state) {
    (void)state;
    if (access("/dev/full", W_OK) != 0) skip_because("no /dev/full");
    assert_fails(RN_IO, rn_profile_start(&(rn_profile_options){.path = "/dev/full"}));
    assert_string_equal("/dev/full", rn_last_error()->path);
    assert_false(rn_profile_is_on());
}

// Each write in turn fails: the program goes on, is told once, and the file is readable.
static void a_write_that_fails_ends_the_recording_only(void **state) {
    (void)state;
    bool started = false;
    for (uint64_t nth = 1;; nth++) {
        log_lines lines = {0};
        rn_log_set((rn_sink){&lines, keep_line}, RN_LOG_TEXT, RN_LOG_WARNING);
        rn_fault_arm(RN_FAULT_WRITE, nth);
        rn_status s = rn_profile_start(&(rn_profile_options){.path = path});
        assert_int_equal(s == RN_OK, rn_profile_is_on());
        assert_true(s == RN_OK || (s == RN_IO && !started && lines.count == 0));
        if (s != RN_OK) continue;
        started = true;
        rn_profile_checkpoint("one");
        rn_profile_flush();
        rn_profile_checkpoint("two");
        rn_profile_flush();
        bool fired_before = rn_fault_fired(RN_FAULT_WRITE);
        assert_int_equal(!fired_before, rn_profile_is_on());
        s = rn_profile_stop();
        bool fired = rn_fault_fired(RN_FAULT_WRITE);
        assert_int_equal(fired ? RN_IO : RN_OK, s);
        assert_int_equal(fired, lines.count);
        reading *r = read_trace(path);
        assert_int_equal(RN_TRACE_PREAMBLE, r->blocks[0]->kind);
        assert_int_equal(!fired, strstr(end_of(r), "stopped") != NULL);
        close_reading(r);
        if (!fired) break;
        assert_string_equal(path, rn_last_error()->path);
    }
}

static void run_into_the_file_size_limit(void) {
    struct rlimit limit = {1000000, 1000000};
    bool good = setrlimit(RLIMIT_FSIZE, &limit) == 0 &&
                rn_profile_start(&(rn_profile_options){.path = path}) == RN_OK;
    for (uint64_t i = 0; i < 100000; i++)
        rn_profile_counter(RN_COUNTER_OTHER, RN_DEVICE_HOST, 0, i);
    good = good && !rn_profile_is_on() && rn_profile_stop() == RN_IO;
    _exit(good ? 0 : 1);
}

static void a_file_size_limit_does_not_end_the_program(void **state) {
    (void)state;
    int status;
    pid_t child = fork();
    if (child == 0) run_into_the_file_size_limit();
    assert_int_equal(child, waitpid(child, &status, 0));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    reading *r = read_trace(path);
    assert_int_equal(RN_TRACE_PREAMBLE, r->blocks[0]->kind);
    close_reading(r);
}

// ---- memory ------------------------------------------------------------------------------------

// A thread that gets no ring still has its memory recorded; a start that fails leaves nothing.
static void no_allocation_of_the_recorder_is_needed_twice(void **state) {
    (void)state;
    for (uint64_t nth = 1;; nth++) {
        char text[32];
        uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes;
        snprintf(text, sizeof text, "torture %d", (int)nth);
        rn_fault_arm(RN_FAULT_ALLOC, nth);
        rn_status s = rn_profile_start(&(rn_profile_options){.path = path, .leave_signals = true});
        if (s == RN_OK) {
            rn_profile_begin(rn_profile_name(text));
            rn_ledger_charge(kv, (void *)0x5000, 77);
            rn_ledger_release(kv, (void *)0x5000, 77);
            rn_profile_end();
            reading *r = stop();
            assert_int_equal(1, count_events(r, RN_TRACE_ALLOC, RN_PURPOSE_KV));
            assert_int_equal(0, last_total(r, RN_DEVICE_HOST, RN_PURPOSE_KV).bytes);
            close_reading(r);
        } else {
            assert_int_equal(RN_NO_MEMORY, s);
            assert_int_equal(RN_NO_MEMORY, rn_last_error()->status);
        }
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_false(rn_profile_is_on());
        uint64_t after = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_PROFILER).now_bytes;
        assert_true(after == before || s == RN_OK); // names stay
        if (!fired) break;
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_recorded_unless_asked),
        TEST(events_come_back_in_order),
        TEST(threads_have_the_names_they_are_given),
        TEST(the_same_text_has_the_same_number_in_every_recording),
        TEST(long_names_are_cut),
        TEST(the_ledger_is_recorded_with_what_it_held_before),
        TEST(a_holder_in_the_memory_of_another_has_its_own_name),
        TEST(scopes_and_stages_are_recorded),
        TEST(a_refusal_is_in_the_file_at_once),
        TEST(budgets_and_resident_memory_are_counters),
        TEST(the_writer_looks_at_budgets_and_the_clock),
        TEST(totals_are_what_is_held_and_peaks_what_was),
        TEST(a_full_ring_drops_nothing),
        TEST(at_its_limit_a_recording_ends_and_says_so),
        TEST(a_log_that_records_may_reach_the_limit),
        TEST(after_its_limit_another_recording_may_start),
        TEST(a_budget_is_in_every_lap),
        TEST(a_ring_file_keeps_the_newest_and_the_sums),
        TEST(a_ring_file_with_more_names_than_room_keeps_events),
        TEST(a_second_recording_is_refused_with_the_first_ones_path),
        TEST(an_older_file_is_replaced),
        TEST(what_is_no_file_is_refused),
        TEST(without_a_path_the_file_is_named_by_the_time),
        TEST(facts_are_told),
        TEST(another_programs_recording_is_left_alone),
        TEST(a_full_disk_at_the_start_is_an_error),
        TEST(a_write_that_fails_ends_the_recording_only),
        TEST(a_file_size_limit_does_not_end_the_program),
        TEST(no_allocation_of_the_recorder_is_needed_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
