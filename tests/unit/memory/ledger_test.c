// The ledger on one thread: every number exact, in the table, in JSON and in events.
#include "support.h"
#include "json_check.h"
#include "base/json.h"
#include "base/buffer.h"
#include "base/fault.h"
#include "base/str.h"
#include "memory/account.h"
#include "memory/budget.h"
#include "memory/ledger.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

static const rn_account weights = {RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS, NULL};
static const rn_account kv = {RN_DEVICE_HOST, RN_PURPOSE_KV, NULL};

static int begin(void **state) {
    (void)state;
    rn_ledger_reset_peaks();
    return 0;
}

// Whatever a test did, nothing may be left of it.
static int end(void **state) {
    (void)state;
    for (size_t d = 0; d < rn_device_count(); d++) {
        rn_ledger_line total = rn_ledger_total((rn_device_id)d);
        if (total.now_bytes || total.count) return -1;
    }
    return rn_ledger_is_valid() ? 0 : -1;
}

static void expect_line(rn_ledger_line line, uint64_t now, uint64_t peak, uint64_t count) {
    assert_int_equal(now, line.now_bytes);
    assert_int_equal(peak, line.peak_bytes);
    assert_int_equal(count, line.count);
}

// ---- counting ----------------------------------------------------------------------------

static void charges_and_releases_are_counted_by_line(void **state) {
    (void)state;
    rn_ledger_charge(weights, NULL, 100);
    rn_ledger_charge(weights, NULL, 50);
    rn_ledger_charge(kv, NULL, 7);
    expect_line(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS), 150, 150, 2);
    expect_line(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_KV), 7, 7, 1);
    expect_line(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_IO), 0, 0, 0);
    expect_line(rn_ledger_total(RN_DEVICE_HOST), 157, 157, 3);
    assert_int_equal(157, rn_ledger_now(RN_DEVICE_HOST));
    rn_ledger_release(weights, NULL, 100);
    expect_line(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS), 50, 150, 1);
    rn_ledger_release(weights, NULL, 50);
    rn_ledger_release(kv, NULL, 7);
    expect_line(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS), 0, 150, 0);
    expect_line(rn_ledger_total(RN_DEVICE_HOST), 0, 157, 0);
}

static void peak_of_the_total_is_not_the_sum_of_peaks(void **state) {
    (void)state;
    rn_ledger_charge(weights, NULL, 100);
    rn_ledger_release(weights, NULL, 100);
    rn_ledger_charge(kv, NULL, 60);
    rn_ledger_release(kv, NULL, 60);
    assert_int_equal(100, rn_ledger_total(RN_DEVICE_HOST).peak_bytes);
    assert_int_equal(60, rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_KV).peak_bytes);
}

static void peaks_begin_anew_from_what_is_held(void **state) {
    (void)state;
    rn_ledger_charge(weights, NULL, 1000);
    rn_ledger_release(weights, NULL, 1000);
    rn_ledger_charge(weights, NULL, 10);
    rn_ledger_reset_peaks();
    expect_line(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS), 10, 10, 1);
    expect_line(rn_ledger_total(RN_DEVICE_HOST), 10, 10, 1);
    rn_ledger_charge(weights, NULL, 5);
    rn_ledger_release(weights, NULL, 5);
    assert_int_equal(15, rn_ledger_total(RN_DEVICE_HOST).peak_bytes);
    rn_ledger_release(weights, NULL, 10);
}

static void purposes_have_names(void **state) {
    (void)state;
    assert_string_equal("weights", rn_purpose_name(RN_PURPOSE_WEIGHTS));
    assert_string_equal("other", rn_purpose_name(RN_PURPOSE_OTHER));
    assert_string_equal("unknown", rn_purpose_name(RN_PURPOSE_COUNT));
    assert_string_equal("unknown", rn_purpose_name((rn_purpose)-1));
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        for (int q = 0; q < p; q++)
            assert_string_not_equal(rn_purpose_name((rn_purpose)p), rn_purpose_name((rn_purpose)q));
}

static void reservations_take_room_and_are_no_peak_until_counted(void **state) {
    (void)state;
    assert_false(rn_ledger_try_reserve(RN_DEVICE_HOST, 101, 100));
    assert_true(rn_ledger_try_reserve(RN_DEVICE_HOST, 60, 100));
    assert_false(rn_ledger_try_reserve(RN_DEVICE_HOST, 41, 100));
    assert_true(rn_ledger_try_reserve(RN_DEVICE_HOST, 40, 100));
    assert_false(rn_ledger_try_reserve(RN_DEVICE_HOST, UINT64_MAX, UINT64_MAX)); // would overflow
    assert_int_equal(100, rn_ledger_claimed(RN_DEVICE_HOST));
    expect_line(rn_ledger_total(RN_DEVICE_HOST), 0, 0, 0);
    rn_ledger_count(kv, NULL, 60);
    assert_int_equal(100, rn_ledger_claimed(RN_DEVICE_HOST));
    rn_ledger_unreserve(RN_DEVICE_HOST, 40);
    assert_true(rn_ledger_is_valid());
    expect_line(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_KV), 60, 60, 1);
    expect_line(rn_ledger_total(RN_DEVICE_HOST), 60, 60, 1);
    rn_ledger_release(kv, NULL, 60);
    assert_int_equal(0, rn_ledger_claimed(RN_DEVICE_HOST));
}

static void measured_lines_change_the_total_by_their_difference(void **state) {
    (void)state;
    rn_ledger_charge(weights, NULL, 10);
    rn_ledger_set(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED, 100);
    expect_line(rn_ledger_total(RN_DEVICE_HOST), 110, 110, 1);
    rn_ledger_set(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED, 30);
    expect_line(rn_ledger_total(RN_DEVICE_HOST), 40, 110, 1);
    expect_line(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED), 30, 100, 0);
    assert_true(rn_ledger_is_valid());
    rn_ledger_set(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED, 0);
    rn_ledger_release(weights, NULL, 10);
}

static void sums_that_do_not_agree_are_noticed(void **state) {
    (void)state;
    assert_true(rn_ledger_is_valid());
    assert_true(rn_ledger_try_reserve(RN_DEVICE_HOST, 1, UINT64_MAX)); // a charge half done
    assert_false(rn_ledger_is_valid());
    rn_ledger_unreserve(RN_DEVICE_HOST, 1);
    assert_true(rn_ledger_is_valid());
    rn_holder *holder; // a holder that says more than its line
    assert_ok(rn_holder_open(RN_DEVICE_HOST, RN_PURPOSE_KV, "liar", &holder));
    rn_account other = {RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS, holder};
    rn_ledger_charge(other, NULL, 5);
    assert_false(rn_ledger_is_valid());
    rn_ledger_release(other, NULL, 5);
    rn_holder_close(holder);
}

// ---- devices -------------------------------------------------------------------------------

static void devices_are_numbered_by_name(void **state) {
    (void)state;
    rn_device_id gpu, again, host;
    size_t before = rn_device_count();
    assert_ok(rn_device_add("gpu:0", &gpu));
    assert_int_equal(before + 1, rn_device_count());
    assert_ok(rn_device_add("gpu:0", &again));
    assert_int_equal(gpu, again);
    assert_int_equal(before + 1, rn_device_count());
    assert_ok(rn_device_add("host", &host));
    assert_int_equal(RN_DEVICE_HOST, host);
    assert_string_equal("gpu:0", rn_device_name(gpu));
    assert_string_equal("host", rn_device_name(RN_DEVICE_HOST));
    assert_string_equal("unknown", rn_device_name(RN_DEVICE_ANY));
    assert_fails(RN_INVALID, rn_device_add("", &again));
    assert_fails(RN_INVALID, rn_device_add("a name of 24 characters.", &again));
}

static void devices_are_counted_apart(void **state) {
    (void)state;
    rn_device_id gpu;
    assert_ok(rn_device_add("gpu:0", &gpu));
    rn_account there = {gpu, RN_PURPOSE_WEIGHTS, NULL};
    rn_ledger_charge(weights, NULL, 5);
    rn_ledger_charge(there, NULL, 9);
    assert_int_equal(5, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
    assert_int_equal(9, rn_ledger_total(gpu).now_bytes);
    rn_ledger_release(there, NULL, 9);
    rn_ledger_release(weights, NULL, 5);
}

// ---- holders ---------------------------------------------------------------------------------

typedef struct seen_holders {
    char text[512];
} seen_holders;

static bool note_holder(void *self, const char *name, rn_account account, uint64_t bytes) {
    seen_holders *seen = self;
    size_t at = strlen(seen->text);
    snprintf(seen->text + at, sizeof seen->text - at, "%s/%s/%llu ", name ? name : "-",
             rn_purpose_name((rn_purpose)account.purpose), (unsigned long long)bytes);
    return true;
}

static bool stop_at_once(void *self, const char *name, rn_account account, uint64_t bytes) {
    note_holder(self, name, account, bytes);
    return false;
}

static void holders_count_what_is_charged_through_them(void **state) {
    (void)state;
    rn_holder *llama, *cache, *idle;
    assert_ok(rn_holder_open(RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS, "llama", &llama));
    assert_ok(rn_holder_open(RN_DEVICE_HOST, RN_PURPOSE_KV, "cache", &cache));
    assert_ok(rn_holder_open(RN_DEVICE_HOST, RN_PURPOSE_KV, "idle", &idle));
    rn_account a = {RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS, llama};
    rn_account b = {RN_DEVICE_HOST, RN_PURPOSE_KV, cache};
    rn_ledger_charge(a, NULL, 100);
    rn_ledger_charge(a, NULL, 11);
    rn_ledger_charge(b, NULL, 20);
    rn_ledger_charge(weights, NULL, 3);
    assert_int_equal(111, rn_holder_bytes(llama));
    assert_int_equal(20, rn_holder_bytes(cache));
    assert_int_equal(0, rn_holder_bytes(idle));
    assert_true(rn_ledger_is_valid());
    seen_holders seen = {""};
    rn_ledger_visit_holders(RN_DEVICE_HOST, note_holder, &seen);
    assert_string_equal("cache/kv/20 llama/weights/111 -/weights/3 ", seen.text);
    seen.text[0] = '\0';
    rn_ledger_visit_holders(RN_DEVICE_HOST, stop_at_once, &seen);
    assert_string_equal("cache/kv/20 ", seen.text);
    rn_ledger_release(a, NULL, 100);
    rn_ledger_release(a, NULL, 11);
    rn_ledger_release(b, NULL, 20);
    rn_ledger_release(weights, NULL, 3);
    rn_holder_close(cache); // in any order
    rn_holder_close(llama);
    rn_holder_close(idle);
    rn_holder_close(NULL);
}

static void long_names_of_holders_are_cut(void **state) {
    (void)state;
    rn_holder *holder;
    char name[200];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_ok(rn_holder_open(RN_DEVICE_HOST, RN_PURPOSE_IO, name, &holder));
    rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_IO, holder};
    rn_ledger_charge(account, NULL, 1);
    seen_holders seen = {""};
    rn_ledger_visit_holders(RN_DEVICE_HOST, note_holder, &seen);
    assert_int_equal(63, strspn(seen.text, "n"));
    rn_ledger_release(account, NULL, 1);
    rn_holder_close(holder);
}

static void holder_without_memory_is_refused(void **state) {
    (void)state;
    rn_holder *holder = (rn_holder *)&holder;
    rn_fault_arm(RN_FAULT_ALLOC, 1);
    assert_fails(RN_NO_MEMORY, rn_holder_open(RN_DEVICE_HOST, RN_PURPOSE_IO, "n", &holder));
    assert_null(holder);
}

// ---- printing ----------------------------------------------------------------------------------

static rn_buffer out;

static void begin_output(void) {
    rn_buffer_free(&out);
    rn_buffer_init(&out, &rn_system_allocator, 1 << 16);
}

static int free_output(void **state) {
    (void)state;
    rn_buffer_free(&out);
    return 0;
}

// A holder of 2 MiB of weights; 1 KiB of kv that was 3 KiB.
static rn_account hold_some(rn_holder **out_holder) {
    assert_ok(rn_holder_open(RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS, "llama \"1b\"", out_holder));
    rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS, *out_holder};
    rn_ledger_charge(account, NULL, MIB);
    rn_ledger_charge(account, NULL, MIB);
    rn_ledger_charge(kv, NULL, KIB);
    rn_ledger_charge(kv, NULL, 2 * KIB);
    rn_ledger_release(kv, NULL, 2 * KIB);
    return account;
}

static void drop_some(rn_account account) {
    rn_ledger_release(account, NULL, MIB);
    rn_ledger_release(account, NULL, MIB);
    rn_ledger_release(kv, NULL, KIB);
    rn_holder_close(account.holder);
}

static void table_has_a_line_for_everything_used(void **state) {
    (void)state;
    rn_holder *holder;
    rn_account account = hold_some(&holder);
    begin_output();
    assert_ok(rn_ledger_print(rn_buffer_sink(&out)));
    assert_ok(rn_buffer_append(&out, "", 1));
    static const char *const lines[] = {
        "device     purpose               now         peak   blocks\n",
        "host       weights          2.00 MiB     2.00 MiB        2\n",
        "host       kv               1.00 KiB     3.00 KiB        1\n",
        "host       total            2.00 MiB     2.00 MiB        3\n",
        "           holder                now  name\n",
        "host       weights          2.00 MiB  llama \"1b\"\n",
    };
    const char *at = out.data;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) { // all of them, in this order
        at = strstr(at, lines[i]);
        if (!at) fail_msg("no line '%s' in\n%s", lines[i], out.data);
    }
    assert_null(strstr(out.data, "gradients")); // never used
    drop_some(account);
}

static void json_has_the_same_numbers(void **state) {
    (void)state;
    rn_holder *holder;
    rn_account account = hold_some(&holder);
    rn_json json;
    for (int pretty = 0; pretty < 2; pretty++) {
        begin_output();
        rn_json_begin(&json, rn_buffer_sink(&out), pretty);
        rn_json_object(&json, NULL);
        rn_json_check(&json, rn_ledger_json(rn_json_embed(&json, "ledger")));
        rn_json_end(&json);
        assert_ok(rn_json_finish(&json));
        assert_true(test_json_valid(out.data, out.bytes));
        static const struct {
            const char *path;
            uint64_t value;
        } numbers[] = {
            {"ledger/host/total/now_bytes", 2 * MIB + KIB},
            {"ledger/host/total/peak_bytes", 2 * MIB + 3 * KIB},
            {"ledger/host/total/count", 3},
            {"ledger/host/weights/now_bytes", 2 * MIB},
            {"ledger/host/weights/count", 2},
            {"ledger/host/kv/now_bytes", KIB},
            {"ledger/host/kv/peak_bytes", 3 * KIB},
            {"ledger/host/kv/count", 1},
            {"ledger/host/holders/0/bytes", 2 * MIB},
        };
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            assert_int_equal(numbers[i].value, test_json_u64(out.data, out.bytes, numbers[i].path));
        char text[64];
        assert_true(test_json_get(out.data, out.bytes, "ledger/host/holders/0/name", text, 64));
        assert_string_equal("llama \"1b\"", text);
        assert_true(test_json_get(out.data, out.bytes, "ledger/host/holders/0/purpose", text, 64));
        assert_string_equal("weights", text);
        assert_false(test_json_get(out.data, out.bytes, "ledger/host/gradients", text, 64));
        assert_false(test_json_get(out.data, out.bytes, "ledger/host/holders/1", text, 64));
    }
    drop_some(account);
}

static rn_status write_nothing(void *self, const char *text, size_t bytes) {
    (void)text;
    size_t *left = self;
    if (bytes > *left) return rn_fail(RN_IO, "full");
    *left -= bytes;
    return RN_OK;
}

static void failing_sink_ends_the_table(void **state) {
    (void)state;
    rn_holder *holder;
    rn_account account = hold_some(&holder);
    begin_output();
    assert_ok(rn_ledger_print(rn_buffer_sink(&out)));
    for (size_t room = 0; room < out.bytes; room += 7) {
        size_t left = room;
        assert_fails(RN_IO, rn_ledger_print((rn_sink){&left, write_nothing}));
    }
    drop_some(account);
}

// ---- events
// --------------------------------------------------------------------------------------

typedef struct recorder {
    rn_event events[16];
    size_t count;
    uint64_t total_at_last; // what the ledger said when the last event came
} recorder;

static void record(void *self, const rn_event *event) {
    recorder *r = self;
    assert_true(r->count < 16);
    r->events[r->count++] = *event;
    r->total_at_last = rn_ledger_now(RN_DEVICE_HOST);
}

static void expect_event(const rn_event *event, rn_event_kind kind, rn_account account,
                         const void *address, uint64_t bytes) {
    assert_int_equal(kind, event->kind);
    assert_int_equal(account.device, event->account.device);
    assert_int_equal(account.purpose, event->account.purpose);
    assert_ptr_equal(account.holder, event->account.holder);
    assert_ptr_equal(address, event->address);
    assert_int_equal(bytes, event->bytes);
}

static void listener_hears_everything_in_order_after_counting(void **state) {
    (void)state;
    recorder r = {.count = 0};
    rn_holder *holder;
    int a, b;
    assert_ok(rn_holder_open(RN_DEVICE_HOST, RN_PURPOSE_KV, "h", &holder));
    rn_account held = {RN_DEVICE_HOST, RN_PURPOSE_KV, holder};
    rn_ledger_listen(record, &r);
    rn_ledger_charge(weights, &a, 10);
    assert_int_equal(10, r.total_at_last);
    rn_ledger_charge(held, &b, 20);
    rn_ledger_release(weights, &a, 10);
    assert_int_equal(20, r.total_at_last);
    assert_ok(rn_budget_charge(weights, NULL, 1));
    rn_ledger_release(weights, NULL, 1);
    rn_ledger_release(held, &b, 20);
    rn_ledger_listen(NULL, NULL);
    rn_ledger_charge(weights, &a, 10); // nobody listens any more
    rn_ledger_release(weights, &a, 10);
    assert_int_equal(6, r.count);
    expect_event(&r.events[0], RN_EVENT_CHARGE, weights, &a, 10);
    expect_event(&r.events[1], RN_EVENT_CHARGE, held, &b, 20);
    expect_event(&r.events[2], RN_EVENT_RELEASE, weights, &a, 10);
    expect_event(&r.events[3], RN_EVENT_CHARGE, weights, NULL, 1);
    expect_event(&r.events[4], RN_EVENT_RELEASE, weights, NULL, 1);
    expect_event(&r.events[5], RN_EVENT_RELEASE, held, &b, 20);
    rn_holder_close(holder);
}

static void listener_hears_what_was_refused(void **state) {
    (void)state;
    recorder r = {.count = 0};
    void *block;
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, 1000));
    rn_ledger_listen(record, &r);
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(weights, NULL, 1001));
    assert_fails(RN_OVER_BUDGET, rn_alloc(RN_HOST_OTHER, 2000, &block));
    rn_refusal_keep(&(rn_refusal){.purpose = RN_PURPOSE_KV, .requested_bytes = 3000});
    rn_ledger_listen(NULL, NULL);
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, RN_NO_LIMIT));
    assert_int_equal(3, r.count);
    expect_event(&r.events[0], RN_EVENT_REFUSAL, weights, NULL, 1001);
    expect_event(&r.events[1], RN_EVENT_REFUSAL, (rn_account){0, RN_PURPOSE_OTHER, NULL}, NULL,
                 2000);
    expect_event(&r.events[2], RN_EVENT_REFUSAL, (rn_account){0, RN_PURPOSE_KV, NULL}, NULL, 3000);
}

static void listener_hears_what_was_measured(void **state) {
    (void)state;
    recorder r = {.count = 0};
    rn_account outside = {RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED, NULL};
    rn_ledger_listen(record, &r);
    rn_ledger_set(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED, 700);
    rn_ledger_set(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED, 700); // nothing new
    rn_ledger_set(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED, 900);
    rn_ledger_set(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED, 0);
    rn_ledger_listen(NULL, NULL);
    assert_int_equal(4, r.count);
    const void *address = r.events[0].address;
    assert_non_null(address);
    expect_event(&r.events[0], RN_EVENT_CHARGE, outside, address, 700);
    expect_event(&r.events[1], RN_EVENT_RELEASE, outside, address, 700);
    expect_event(&r.events[2], RN_EVENT_CHARGE, outside, address, 900);
    expect_event(&r.events[3], RN_EVENT_RELEASE, outside, address, 900);
}

static void second_listener_takes_the_place_of_the_first(void **state) {
    (void)state;
    recorder first = {.count = 0}, second = {.count = 0};
    rn_ledger_listen(record, &first);
    rn_ledger_charge(weights, NULL, 1);
    rn_ledger_listen(record, &second);
    rn_ledger_release(weights, NULL, 1);
    rn_ledger_listen(record, &first);
    rn_scope scope;
    rn_scope_begin(&scope, "named", RN_DEVICE_ANY);
    rn_scope_end(&scope);
    rn_ledger_listen(NULL, NULL);
    rn_ledger_listen(NULL, NULL);
    assert_int_equal(3, first.count);
    assert_int_equal(1, second.count);
    assert_int_equal(RN_EVENT_SCOPE_BEGIN, first.events[1].kind);
    assert_int_equal(RN_EVENT_SCOPE_END, first.events[2].kind);
    assert_string_equal("named", first.events[2].name);
}

// ---- allocators
// ------------------------------------------------------------------------------------

static void allocators_charge_what_was_asked_for(void **state) {
    (void)state;
    recorder r = {.count = 0};
    rn_holder *holder;
    void *block, *other;
    assert_ok(rn_holder_open(RN_DEVICE_HOST, RN_PURPOSE_STAGING, "h", &holder));
    rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_STAGING, holder};
    rn_allocator from = rn_account_allocator(&account);
    rn_ledger_listen(record, &r);
    assert_ok(rn_alloc(&from, 1000, &block));
    assert_ok(rn_alloc_zeroed(RN_HOST_IO, 3, 100000, &other));
    rn_ledger_listen(NULL, NULL);
    expect_event(&r.events[0], RN_EVENT_CHARGE, account, block, 1000);
    assert_ptr_equal(other, r.events[1].address);
    assert_int_equal(1000, rn_holder_bytes(holder));
    expect_line(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_STAGING), 1000, 1000, 1);
    expect_line(rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_IO), 300000, 300000, 1);
    rn_free(&from, block, 1000);
    rn_free(RN_HOST_IO, other, 300000);
    rn_holder_close(holder);
}

static void every_purpose_has_its_allocator(void **state) {
    (void)state;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++) {
        void *block;
        assert_ok(rn_alloc(&rn_host_allocators[p], 77, &block));
        assert_int_equal(77, rn_ledger_read(RN_DEVICE_HOST, (rn_purpose)p).now_bytes);
        rn_free(&rn_host_allocators[p], block, 77);
    }
}

static void memory_that_the_system_refuses_is_not_charged(void **state) {
    (void)state;
    recorder r = {.count = 0};
    void *block;
    rn_ledger_listen(record, &r);
    rn_fault_arm(RN_FAULT_ALLOC, 1);
    assert_fails(RN_NO_MEMORY, rn_alloc(RN_HOST_OTHER, 500, &block));
    rn_ledger_listen(NULL, NULL);
    assert_int_equal(1, r.count);
    expect_event(&r.events[0], RN_EVENT_NO_MEMORY, (rn_account){0, RN_PURPOSE_OTHER, NULL}, NULL,
                 500);
    expect_line(rn_ledger_total(RN_DEVICE_HOST), 0, 0, 0);
    assert_int_equal(0, rn_ledger_claimed(RN_DEVICE_HOST));
    assert_true(rn_ledger_is_valid());
}

// Runs last: the table of devices does not shrink.
static void table_of_devices_has_an_end(void **state) {
    (void)state;
    rn_device_id id;
    char name[16];
    while (rn_device_count() < RN_DEVICE_MAX) {
        snprintf(name, sizeof name, "gpu:%zu", rn_device_count());
        assert_ok(rn_device_add(name, &id));
        assert_int_equal(rn_device_count() - 1, id);
    }
    assert_fails(RN_INVALID, rn_device_add("one too many", &id));
    assert_ok(rn_device_add("gpu:0", &id)); // known ones stay known
    rn_account last = {RN_DEVICE_MAX - 1, RN_PURPOSE_COUNT - 1, NULL};
    rn_ledger_charge(last, NULL, 5);
    assert_int_equal(5, rn_ledger_total(RN_DEVICE_MAX - 1).now_bytes);
    rn_ledger_release(last, NULL, 5);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(charges_and_releases_are_counted_by_line),
        TEST(peak_of_the_total_is_not_the_sum_of_peaks),
        TEST(peaks_begin_anew_from_what_is_held),
        TEST(purposes_have_names),
        TEST(reservations_take_room_and_are_no_peak_until_counted),
        TEST(measured_lines_change_the_total_by_their_difference),
        TEST(sums_that_do_not_agree_are_noticed),
        TEST(table_has_a_line_for_everything_used),
        TEST(json_has_the_same_numbers),
        TEST(failing_sink_ends_the_table),
        TEST(devices_are_numbered_by_name),
        TEST(devices_are_counted_apart),
        TEST(holders_count_what_is_charged_through_them),
        TEST(long_names_of_holders_are_cut),
        TEST(holder_without_memory_is_refused),
        TEST(listener_hears_everything_in_order_after_counting),
        TEST(listener_hears_what_was_refused),
        TEST(listener_hears_what_was_measured),
        TEST(second_listener_takes_the_place_of_the_first),
        TEST(allocators_charge_what_was_asked_for),
        TEST(every_purpose_has_its_allocator),
        TEST(memory_that_the_system_refuses_is_not_charged),
        TEST(table_of_devices_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, free_output);
}
