// labels: threads
// The budget: who is asked, what is refused, and that the hard limit holds whatever happens.
#include "support.h"
#include "json_check.h"
#include "base/buffer.h"
#include "base/str.h"
#include "memory/account.h"
#include "memory/budget.h"
#include "memory/ledger.h"

#include <pthread.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

static const rn_account weights = {RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS, NULL};
static const rn_account kv = {RN_DEVICE_HOST, RN_PURPOSE_KV, NULL};

static int begin(void **state) {
    (void)state;
    rn_ledger_reset_peaks();
    return rn_budget_set(RN_DEVICE_HOST, RN_NO_LIMIT, RN_NO_LIMIT) == RN_OK ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    begin(NULL);
    return rn_ledger_now(RN_DEVICE_HOST) == 0 && rn_ledger_is_valid() ? 0 : -1;
}

static void limit(uint64_t soft, uint64_t hard) {
    assert_ok(rn_budget_set(RN_DEVICE_HOST, soft, hard));
}

// ---- limits ------------------------------------------------------------------------------

static void limits_are_what_was_set(void **state) {
    (void)state;
    uint64_t soft, hard;
    rn_budget_get(RN_DEVICE_HOST, &soft, &hard);
    assert_true(soft == RN_NO_LIMIT && hard == RN_NO_LIMIT);
    limit(5, 10);
    rn_budget_get(RN_DEVICE_HOST, &soft, &hard);
    assert_int_equal(5, soft);
    assert_int_equal(10, hard);
    limit(0, 10); // soft 0 is the same as hard
    rn_budget_get(RN_DEVICE_HOST, &soft, &hard);
    assert_int_equal(10, soft);
    assert_fails(RN_INVALID, rn_budget_set(RN_DEVICE_HOST, 11, 10));
    assert_non_null(strstr(rn_last_error()->message, "soft limit (11 B)"));
    assert_fails(RN_INVALID, rn_budget_set(200, 1, 1));
    rn_budget_get(RN_DEVICE_HOST, &soft, &hard);
    assert_int_equal(10, hard); // refused settings change nothing
}

static void nothing_is_refused_without_a_limit(void **state) {
    (void)state;
    assert_int_equal(RN_FIT_NOW, rn_budget_ask(RN_DEVICE_HOST, (uint64_t)1 << 62));
    assert_ok(rn_budget_charge(weights, NULL, (uint64_t)1 << 62));
    assert_ok(rn_budget_charge(weights, NULL, (uint64_t)1 << 62));
    rn_ledger_release(weights, NULL, (uint64_t)1 << 62);
    rn_ledger_release(weights, NULL, (uint64_t)1 << 62);
}

static void charges_fit_up_to_the_last_byte(void **state) {
    (void)state;
    limit(0, 100);
    assert_ok(rn_budget_charge(weights, NULL, 60));
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(kv, NULL, 41));
    assert_int_equal(60, rn_ledger_now(RN_DEVICE_HOST)); // a refusal changes nothing
    assert_int_equal(0, rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_KV).peak_bytes);
    assert_ok(rn_budget_charge(kv, NULL, 40));
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(kv, NULL, 1));
    assert_ok(rn_budget_charge(kv, NULL, 0));
    rn_ledger_release(kv, NULL, 0);
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(kv, NULL, UINT64_MAX));
    assert_int_equal(100, rn_ledger_total(RN_DEVICE_HOST).peak_bytes);
    rn_ledger_release(weights, NULL, 60);
    rn_ledger_release(kv, NULL, 40);
}

static void devices_have_budgets_of_their_own(void **state) {
    (void)state;
    rn_device_id gpu;
    assert_ok(rn_device_add("gpu:0", &gpu));
    assert_ok(rn_budget_set(gpu, 0, 50));
    limit(0, 10);
    rn_account there = {gpu, RN_PURPOSE_WEIGHTS, NULL};
    assert_ok(rn_budget_charge(there, NULL, 50));
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(there, NULL, 1));
    assert_int_equal(gpu, rn_last_refusal()->device);
    assert_ok(rn_budget_charge(weights, NULL, 10));
    rn_ledger_release(there, NULL, 50);
    rn_ledger_release(weights, NULL, 10);
    assert_ok(rn_budget_set(gpu, RN_NO_LIMIT, RN_NO_LIMIT));
}

static void what_is_counted_without_asking_may_stand_above_the_limit(void **state) {
    (void)state;
    limit(0, 100);
    rn_ledger_charge(weights, NULL, 150); // it exists: counting it is all that is left
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(kv, NULL, 1));
    assert_int_equal(0, rn_last_refusal()->free_bytes);
    assert_int_equal(151, rn_last_refusal()->smallest_budget_bytes);
    assert_int_equal(RN_FIT_NEVER, rn_budget_ask(RN_DEVICE_HOST, 1));
    rn_ledger_release(weights, NULL, 150);
}

static void allocators_ask_the_budget(void **state) {
    (void)state;
    void *block, *second;
    limit(0, 1000);
    assert_ok(rn_alloc(RN_HOST_OTHER, 600, &block));
    assert_fails(RN_OVER_BUDGET, rn_alloc(RN_HOST_IO, 401, &second));
    assert_null(second);
    assert_int_equal(RN_PURPOSE_IO, rn_last_refusal()->purpose);
    assert_ok(rn_alloc(RN_HOST_IO, 400, &second));
    rn_free(RN_HOST_OTHER, block, 600);
    rn_free(RN_HOST_IO, second, 400);
}

// ---- reclaimers --------------------------------------------------------------------------------

typedef struct cache {
    rn_reclaimer reclaimer;
    rn_account account;
    uint64_t held;      // in pieces of one charge
    uint64_t most;      // gives at most so much at once
    uint64_t last_want; // what it was asked for
    int asked;
} cache;

static uint64_t cache_reclaimable(void *self) {
    return ((cache *)self)->held;
}

static uint64_t cache_release(void *self, uint64_t want) {
    cache *c = self;
    uint64_t give = want < c->held ? want : c->held;
    if (give > c->most) give = c->most;
    c->asked++;
    c->last_want = want;
    c->held -= give;
    if (give) rn_ledger_release(c->account, NULL, give);
    return give;
}

static void open_cache(cache *c, rn_device_id device, uint64_t bytes) {
    *c = (cache){.account = {device, RN_PURPOSE_KV, NULL}, .held = bytes, .most = UINT64_MAX};
    c->reclaimer = (rn_reclaimer){"cache", device, c, cache_reclaimable, cache_release};
    rn_ledger_charge(c->account, NULL, bytes);
    rn_budget_reclaimer_add(&c->reclaimer);
}

static void close_cache(cache *c) {
    rn_budget_reclaimer_remove(&c->reclaimer);
    rn_ledger_release(c->account, NULL, c->held);
}

static void answers_tell_what_would_help(void **state) {
    (void)state;
    cache c;
    limit(60, 100);
    open_cache(&c, RN_DEVICE_HOST, 40);
    rn_ledger_charge(weights, NULL, 10);
    assert_int_equal(RN_FIT_NOW, rn_budget_ask(RN_DEVICE_HOST, 0));
    assert_int_equal(RN_FIT_NOW, rn_budget_ask(RN_DEVICE_HOST, 10));
    assert_int_equal(RN_FIT_AFTER_EVICT, rn_budget_ask(RN_DEVICE_HOST, 11)); // above soft
    assert_int_equal(RN_FIT_AFTER_EVICT, rn_budget_ask(RN_DEVICE_HOST, 50));
    assert_int_equal(RN_FIT_AFTER_EVICT, rn_budget_ask(RN_DEVICE_HOST, 90)); // the cache goes
    assert_int_equal(RN_FIT_NEVER, rn_budget_ask(RN_DEVICE_HOST, 91));
    assert_int_equal(RN_FIT_NEVER, rn_budget_ask(RN_DEVICE_HOST, UINT64_MAX));
    assert_int_equal(0, c.asked); // asking is only asking
    close_cache(&c);
    rn_ledger_release(weights, NULL, 10);
}

static void reclaimers_are_left_alone_while_there_is_room(void **state) {
    (void)state;
    cache c;
    limit(80, 100);
    open_cache(&c, RN_DEVICE_HOST, 40);
    assert_ok(rn_budget_charge(weights, NULL, 40));
    assert_int_equal(0, c.asked);
    assert_int_equal(40, c.held);
    rn_ledger_release(weights, NULL, 40);
    close_cache(&c);
}

static void reclaimers_are_asked_for_what_is_missing(void **state) {
    (void)state;
    cache c;
    limit(80, 100);
    open_cache(&c, RN_DEVICE_HOST, 40);
    assert_ok(rn_budget_charge(weights, NULL, 55)); // 15 above soft
    assert_int_equal(1, c.asked);
    assert_int_equal(15, c.last_want);
    assert_int_equal(25, c.held);
    assert_int_equal(80, rn_ledger_now(RN_DEVICE_HOST));
    rn_ledger_release(weights, NULL, 55);
    close_cache(&c);
}

static void reclaimers_are_asked_one_after_another_until_it_is_enough(void **state) {
    (void)state;
    cache caches[4];
    limit(0, 100);
    for (int i = 0; i < 4; i++)
        open_cache(&caches[i], RN_DEVICE_HOST, 20);
    caches[0].most = 5;                             // has more than it gives
    assert_ok(rn_budget_charge(weights, NULL, 45)); // 25 are missing
    assert_int_equal(25, caches[0].last_want);
    assert_int_equal(20, caches[1].last_want);
    assert_int_equal(0, caches[1].held);
    assert_int_equal(0, caches[2].asked + caches[3].asked);
    assert_ok(rn_budget_charge(weights, NULL, 1));
    assert_int_equal(2, caches[0].asked); // the first is asked first again
    rn_ledger_release(weights, NULL, 45);
    rn_ledger_release(weights, NULL, 1);
    for (int i = 0; i < 4; i++)
        close_cache(&caches[i]);
}

static void reclaimers_of_other_devices_are_not_asked(void **state) {
    (void)state;
    rn_device_id gpu;
    cache here, there;
    assert_ok(rn_device_add("gpu:0", &gpu));
    limit(0, 100);
    open_cache(&there, gpu, 90);
    open_cache(&here, RN_DEVICE_HOST, 90);
    assert_ok(rn_budget_charge(weights, NULL, 50));
    assert_int_equal(0, there.asked);
    assert_int_equal(1, here.asked);
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(weights, NULL, 51));
    rn_ledger_release(weights, NULL, 50);
    close_cache(&here);
    close_cache(&there);
}

static void removed_reclaimers_are_not_asked(void **state) {
    (void)state;
    cache a, b;
    limit(0, 100);
    open_cache(&a, RN_DEVICE_HOST, 40);
    open_cache(&b, RN_DEVICE_HOST, 40);
    rn_budget_reclaimer_remove(&a.reclaimer);
    rn_budget_reclaimer_remove(&a.reclaimer); // once more does no harm
    assert_ok(rn_budget_charge(weights, NULL, 50));
    assert_int_equal(0, a.asked);
    assert_int_equal(30, b.last_want);
    rn_ledger_release(weights, NULL, 50);
    close_cache(&a);
    close_cache(&b);
}

static void room_between_soft_and_hard_is_used_where_nobody_gives(void **state) {
    (void)state;
    cache c;
    limit(50, 100);
    open_cache(&c, RN_DEVICE_HOST, 10);
    c.most = 0; // changed its mind
    assert_ok(rn_budget_charge(weights, NULL, 90));
    assert_int_equal(1, c.asked);
    assert_int_equal(10, c.last_want); // all there is: even that would not do
    assert_int_equal(100, rn_ledger_now(RN_DEVICE_HOST));
    rn_ledger_release(weights, NULL, 90);
    close_cache(&c);
}

static void caches_are_not_emptied_for_what_cannot_fit(void **state) {
    (void)state;
    cache c;
    limit(0, 100);
    open_cache(&c, RN_DEVICE_HOST, 40);
    rn_ledger_charge(weights, NULL, 30);
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(weights, NULL, 71)); // 30 cannot go
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(weights, NULL, 1000));
    assert_int_equal(0, c.asked);
    assert_int_equal(40, c.held);
    assert_ok(rn_budget_charge(weights, NULL, 70));
    assert_int_equal(0, c.held);
    rn_ledger_release(weights, NULL, 30);
    rn_ledger_release(weights, NULL, 70);
    close_cache(&c);
}

static void reclaimer_too_many_is_just_never_asked(void **state) {
    (void)state;
    static cache caches[70];
    limit(0, 100);
    for (int i = 0; i < 70; i++)
        open_cache(&caches[i], RN_DEVICE_HOST, 1);
    assert_ok(rn_budget_charge(weights, NULL, 94)); // all of the 64 that found a place
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(weights, NULL, 1));
    rn_ledger_release(weights, NULL, 94);
    for (int i = 69; i >= 0; i--)
        close_cache(&caches[i]);
}

// ---- refusals ----------------------------------------------------------------------------------

static void *look_at_first_refusal(void *out) {
    *(rn_refusal *)out = *rn_last_refusal();
    return NULL;
}

static void refusal_is_empty_before_the_first(void **state) {
    (void)state;
    rn_refusal refusal;
    pthread_t thread;
    assert_int_equal(0, pthread_create(&thread, NULL, look_at_first_refusal, &refusal));
    pthread_join(thread, NULL);
    assert_int_equal(0, refusal.requested_bytes);
    assert_int_equal(0, refusal.budget_bytes);
    assert_int_equal(0, refusal.holder_count);
}

static void refusal_says_everything(void **state) {
    (void)state;
    rn_holder *holder;
    assert_ok(rn_holder_open(RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS, "llama", &holder));
    rn_account held = {RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS, holder};
    limit(0, 10 * MIB);
    rn_ledger_charge(held, NULL, 6 * MIB);
    rn_ledger_charge(kv, NULL, 2 * MIB);
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(kv, NULL, 3 * MIB));
    const rn_refusal *r = rn_last_refusal();
    assert_int_equal(RN_DEVICE_HOST, r->device);
    assert_int_equal(RN_PURPOSE_KV, r->purpose);
    assert_int_equal(3 * MIB, r->requested_bytes);
    assert_int_equal(2 * MIB, r->free_bytes);
    assert_int_equal(10 * MIB, r->budget_bytes);
    assert_int_equal(11 * MIB, r->smallest_budget_bytes);
    assert_int_equal(2, r->holder_count);
    assert_string_equal("llama", r->holders[0].name);
    assert_int_equal(RN_PURPOSE_WEIGHTS, r->holders[0].purpose);
    assert_int_equal(6 * MIB, r->holders[0].bytes);
    assert_string_equal("(unnamed)", r->holders[1].name);
    assert_int_equal(2 * MIB, r->holders[1].bytes);
    const rn_error_info *story = rn_last_error();
    assert_string_equal("3.00 MiB for kv on host does not fit: 2.00 MiB of the budget of 10.0 MiB "
                        "is free",
                        story->message);
    assert_string_equal("the smallest budget that works is 11.0 MiB (11534336 bytes)", story->hint);
    rn_ledger_release(held, NULL, 6 * MIB);
    rn_ledger_release(kv, NULL, 2 * MIB);
    rn_holder_close(holder);
}

static void refusal_lists_the_largest_holders_first(void **state) {
    (void)state;
    enum { HOLDERS = 12 };
    static const uint64_t sizes[HOLDERS] = {30, 110, 20, 90, 10, 120, 70, 50, 100, 40, 80, 60};
    rn_holder *holders[HOLDERS];
    rn_account accounts[HOLDERS];
    uint64_t sum = 0;
    for (int i = 0; i < HOLDERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "holder %d", (int)sizes[i]);
        assert_ok(rn_holder_open(RN_DEVICE_HOST, RN_PURPOSE_IO, name, &holders[i]));
        accounts[i] = (rn_account){RN_DEVICE_HOST, RN_PURPOSE_IO, holders[i]};
        rn_ledger_charge(accounts[i], NULL, sizes[i]);
        sum += sizes[i];
    }
    limit(0, sum);
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(kv, NULL, 1));
    const rn_refusal *r = rn_last_refusal();
    assert_int_equal(RN_REFUSAL_HOLDERS, r->holder_count);
    for (size_t i = 0; i < RN_REFUSAL_HOLDERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "holder %d", 120 - (int)i * 10);
        assert_string_equal(name, r->holders[i].name);
        assert_int_equal(120 - i * 10, r->holders[i].bytes);
    }
    for (int i = 0; i < HOLDERS; i++) {
        rn_ledger_release(accounts[i], NULL, sizes[i]);
        rn_holder_close(holders[i]);
    }
}

static void smallest_budget_works_and_one_byte_less_does_not(void **state) {
    (void)state;
    uint64_t random = 3;
    for (int round = 0; round < 200; round++) {
        cache c;
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t held = (random >> 20) % 1000, cached = (random >> 40) % 500 * (round % 2);
        uint64_t request = 1 + (random >> 50);
        rn_ledger_charge(weights, NULL, held);
        open_cache(&c, RN_DEVICE_HOST, cached);
        limit(0, 1);
        rn_status s = rn_budget_charge(kv, NULL, request);
        if (held == 0 && request == 1) assert_ok(s);
        if (s == RN_OK) {
            rn_ledger_release(kv, NULL, request);
        } else {
            uint64_t smallest = rn_last_refusal()->smallest_budget_bytes;
            assert_int_equal(held + request, smallest);
            limit(0, smallest - 1);
            assert_fails(RN_OVER_BUDGET, rn_budget_charge(kv, NULL, request));
            assert_int_equal(smallest, rn_last_refusal()->smallest_budget_bytes);
            limit(0, smallest);
            assert_ok(rn_budget_charge(kv, NULL, request));
            rn_ledger_release(kv, NULL, request);
        }
        close_cache(&c);
        rn_ledger_release(weights, NULL, held);
    }
}

static void absurd_requests_have_no_budget(void **state) {
    (void)state;
    limit(0, 100);
    rn_ledger_charge(weights, NULL, 10);
    assert_fails(RN_OVER_BUDGET, rn_budget_charge(kv, NULL, UINT64_MAX));
    assert_true(rn_last_refusal()->smallest_budget_bytes == RN_NO_LIMIT);
    rn_ledger_release(weights, NULL, 10);
}

static void needs_known_beforehand_are_refused_alike(void **state) {
    (void)state;
    rn_ledger_charge(weights, NULL, 30);
    assert_fails(RN_OVER_BUDGET, rn_budget_refuse(kv, 500, 100, 530));
    const rn_refusal *r = rn_last_refusal();
    assert_int_equal(500, r->requested_bytes);
    assert_int_equal(100, r->budget_bytes);
    assert_int_equal(70, r->free_bytes);
    assert_int_equal(530, r->smallest_budget_bytes);
    assert_int_equal(1, r->holder_count);
    assert_non_null(strstr(rn_last_error()->hint, "(530 bytes)"));
    rn_ledger_release(weights, NULL, 30);
}

// ---- printing
// --------------------------------------------------------------------------------------

static const rn_refusal sample = {
    .device = RN_DEVICE_HOST,
    .purpose = RN_PURPOSE_KV,
    .requested_bytes = 3 * MIB,
    .free_bytes = 512,
    .budget_bytes = 10 * MIB,
    .smallest_budget_bytes = 13 * MIB,
    .holder_count = 2,
    .holders = {{"llama \"1b\"", RN_PURPOSE_WEIGHTS, 9 * MIB}, {"(unnamed)", RN_PURPOSE_IO, KIB}},
};

static void refusal_is_printed_as_a_table(void **state) {
    (void)state;
    rn_buffer out;
    rn_buffer_init(&out, &rn_system_allocator, 4096);
    assert_ok(rn_refusal_print(&sample, rn_buffer_sink(&out)));
    assert_ok(rn_buffer_append(&out, "", 1));
    assert_string_equal("requested        3.00 MiB\n"
                        "purpose          kv\n"
                        "device           host\n"
                        "budget           10.0 MiB\n"
                        "free             512 B\n"
                        "smallest budget  13.0 MiB\n"
                        "largest holders\n"
                        "      9.00 MiB  weights      llama \"1b\"\n"
                        "      1.00 KiB  io           (unnamed)\n",
                        out.data);
    rn_buffer_free(&out);
    rn_buffer_init(&out, &rn_system_allocator, 100);
    assert_fails(RN_INVALID, rn_refusal_print(&sample, rn_buffer_sink(&out)));
    rn_buffer_free(&out);
}

static void refusal_is_printed_as_json(void **state) {
    (void)state;
    rn_buffer out;
    char text[64];
    rn_buffer_init(&out, &rn_system_allocator, 4096);
    assert_ok(rn_refusal_json(&sample, rn_buffer_sink(&out)));
    assert_true(test_json_valid(out.data, out.bytes));
    assert_int_equal(3 * MIB, test_json_u64(out.data, out.bytes, "requested_bytes"));
    assert_int_equal(512, test_json_u64(out.data, out.bytes, "free_bytes"));
    assert_int_equal(10 * MIB, test_json_u64(out.data, out.bytes, "budget_bytes"));
    assert_int_equal(13 * MIB, test_json_u64(out.data, out.bytes, "smallest_budget_bytes"));
    assert_int_equal(9 * MIB, test_json_u64(out.data, out.bytes, "holders/0/bytes"));
    assert_int_equal(KIB, test_json_u64(out.data, out.bytes, "holders/1/bytes"));
    assert_true(test_json_get(out.data, out.bytes, "holders/0/name", text, sizeof text));
    assert_string_equal("llama \"1b\"", text);
    assert_true(test_json_get(out.data, out.bytes, "purpose", text, sizeof text));
    assert_string_equal("kv", text);
    assert_true(test_json_get(out.data, out.bytes, "device", text, sizeof text));
    assert_string_equal("host", text);
    assert_false(test_json_get(out.data, out.bytes, "holders/2", text, sizeof text));
    rn_buffer_free(&out);
}

// ---- threads
// -----------------------------------------------------------------------------------------

enum { THREADS = 8 };

typedef struct spender {
    uint64_t seed;
    int granted, refused, wrong;
} spender;

static void *spend(void *self) {
    spender *s = self;
    enum { SLOTS = 8 };
    uint64_t held[SLOTS] = {0};
    for (int i = 0; i < 4000; i++) {
        s->seed = s->seed * 6364136223846793005u + 1442695040888963407u;
        size_t slot = (s->seed >> 33) % SLOTS;
        uint64_t bytes = 1 + (s->seed >> 40) % 3000;
        if (held[slot]) {
            rn_ledger_release(weights, NULL, held[slot]);
            held[slot] = 0;
        } else if (rn_budget_charge(weights, NULL, bytes) == RN_OK) {
            held[slot] = bytes;
            s->granted++;
        } else {
            s->refused++;
            s->wrong += rn_last_error()->status != RN_OVER_BUDGET;
            s->wrong += rn_last_refusal()->requested_bytes != bytes;
        }
    }
    for (size_t slot = 0; slot < SLOTS; slot++)
        if (held[slot]) rn_ledger_release(weights, NULL, held[slot]);
    return NULL;
}

static void spend_together(uint64_t hard) {
    static spender spenders[THREADS];
    pthread_t threads[THREADS];
    int granted = 0, refused = 0;
    for (int i = 0; i < THREADS; i++) {
        spenders[i] = (spender){.seed = (uint64_t)i + 1};
        assert_int_equal(0, pthread_create(&threads[i], NULL, spend, &spenders[i]));
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        granted += spenders[i].granted;
        refused += spenders[i].refused;
        assert_int_equal(0, spenders[i].wrong);
    }
    assert_true(granted > 0 && refused > 0);
    assert_true(rn_ledger_total(RN_DEVICE_HOST).peak_bytes <= hard);
}

static void hard_limit_holds_under_many_threads(void **state) {
    (void)state;
    limit(2000, 5000); // one thread alone may want more than that
    spend_together(5000);
    assert_int_equal(0, rn_ledger_now(RN_DEVICE_HOST));
}

// A cache that refills itself from another thread while the others empty it.
typedef struct shared_cache {
    rn_reclaimer reclaimer;
    pthread_mutex_t mutex;
    uint64_t held;
    bool stop;
} shared_cache;

static uint64_t shared_reclaimable(void *self) {
    shared_cache *c = self;
    pthread_mutex_lock(&c->mutex);
    uint64_t held = c->held;
    pthread_mutex_unlock(&c->mutex);
    return held;
}

static uint64_t shared_release(void *self, uint64_t want) {
    shared_cache *c = self;
    pthread_mutex_lock(&c->mutex);
    uint64_t give = want < c->held ? want : c->held;
    c->held -= give;
    if (give) rn_ledger_release(kv, NULL, give);
    pthread_mutex_unlock(&c->mutex);
    return give;
}

static void *refill(void *self) {
    shared_cache *c = self;
    for (bool stop = false; !stop;) {
        bool charged = rn_budget_charge(kv, NULL, 100) == RN_OK;
        pthread_mutex_lock(&c->mutex);
        if (charged) c->held += 100;
        stop = c->stop;
        pthread_mutex_unlock(&c->mutex);
    }
    return NULL;
}

static void hard_limit_holds_while_caches_fill_and_empty(void **state) {
    (void)state;
    static shared_cache c = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;
    c.reclaimer = (rn_reclaimer){"shared", RN_DEVICE_HOST, &c, shared_reclaimable, shared_release};
    limit(3000, 5000);
    rn_budget_reclaimer_add(&c.reclaimer);
    assert_int_equal(0, pthread_create(&thread, NULL, refill, &c));
    spend_together(5000);
    pthread_mutex_lock(&c.mutex);
    c.stop = true;
    pthread_mutex_unlock(&c.mutex);
    pthread_join(thread, NULL);
    rn_budget_reclaimer_remove(&c.reclaimer);
    assert_int_equal(c.held, rn_ledger_now(RN_DEVICE_HOST));
    rn_ledger_release(kv, NULL, c.held);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(limits_are_what_was_set),
        TEST(nothing_is_refused_without_a_limit),
        TEST(charges_fit_up_to_the_last_byte),
        TEST(devices_have_budgets_of_their_own),
        TEST(what_is_counted_without_asking_may_stand_above_the_limit),
        TEST(allocators_ask_the_budget),
        TEST(answers_tell_what_would_help),
        TEST(reclaimers_are_left_alone_while_there_is_room),
        TEST(reclaimers_are_asked_for_what_is_missing),
        TEST(reclaimers_are_asked_one_after_another_until_it_is_enough),
        TEST(reclaimers_of_other_devices_are_not_asked),
        TEST(removed_reclaimers_are_not_asked),
        TEST(room_between_soft_and_hard_is_used_where_nobody_gives),
        TEST(caches_are_not_emptied_for_what_cannot_fit),
        TEST(reclaimer_too_many_is_just_never_asked),
        TEST(refusal_is_empty_before_the_first),
        TEST(refusal_says_everything),
        TEST(refusal_lists_the_largest_holders_first),
        TEST(smallest_budget_works_and_one_byte_less_does_not),
        TEST(absurd_requests_have_no_budget),
        TEST(needs_known_beforehand_are_refused_alike),
        TEST(refusal_is_printed_as_a_table),
        TEST(refusal_is_printed_as_json),
        TEST(hard_limit_holds_under_many_threads),
        TEST(hard_limit_holds_while_caches_fill_and_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
