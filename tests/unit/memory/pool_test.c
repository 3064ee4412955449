// labels: threads
// The pool over a device that does not exist (numbers only) and over host memory (bytes are written
// and read back).
#include "support.h"
#include "base/fault.h"
#include "memory/pool.h"
#include <ration/memory.h>

#include <pthread.h>
#include <sys/mman.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static rn_pool *make(rn_pool_source source, size_t chunk_bytes, size_t cap_bytes) {
    rn_pool *pool;
    rn_pool_options options = {.chunk_bytes = chunk_bytes, .cap_bytes = cap_bytes};
    // The books are not on the ledger here, so that budgets count chunks alone.
    assert_ok(rn_pool_create_in(&rn_system_allocator, source, &options, &pool));
    return pool;
}

static rn_pool_block take(rn_pool *pool, size_t bytes) {
    rn_pool_block block;
    assert_ok(rn_pool_alloc(pool, bytes, 0, &block));
    assert_true(rn_pool_is_valid(pool));
    return block;
}

static rn_status try(rn_pool *pool, size_t bytes) {
    rn_pool_block block;
    rn_status status = rn_pool_alloc(pool, bytes, 0, &block);
    assert_true(rn_pool_is_valid(pool));
    return status;
}

static rn_pool_stats stats_of(rn_pool *pool) {
    rn_pool_stats stats;
    rn_pool_get_stats(pool, &stats);
    return stats;
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static void pool_takes_nothing_before_it_is_asked(void **state) {
    (void)state;
    rn_fake_device device = {0};
    rn_pool *pool;
    assert_ok(rn_pool_create(rn_pool_source_fake(&device), NULL, &pool));
    rn_pool_block empty;
    assert_ok(rn_pool_alloc(pool, 0, 0, &empty));
    assert_int_equal(0, empty.bytes);
    rn_pool_free(pool, empty);
    assert_int_equal(0, device.used_bytes);
    take(pool, 1);
    assert_int_equal(64 * MIB, device.used_bytes);
    rn_pool_destroy(pool);
    assert_int_equal(0, device.used_bytes);
    rn_pool_destroy(NULL);
}

static void pool_counts_what_it_gives(void **state) {
    (void)state;
    rn_fake_device device = {0};
    rn_pool *pool = make(rn_pool_source_fake(&device), 1 * MIB, 0);
    rn_pool_block a = take(pool, 1000), b = take(pool, 256);
    rn_pool_stats stats = stats_of(pool);
    assert_int_equal(1256, stats.allocated_bytes);
    assert_int_equal(1280, stats.active_bytes);
    assert_int_equal(1 * MIB, stats.reserved_bytes);
    rn_pool_free(pool, a);
    rn_pool_free(pool, b);
    stats = stats_of(pool);
    assert_int_equal(0, stats.active_bytes);
    assert_int_equal(0, stats.block_count);
    assert_int_equal(2, stats.alloc_count);
    assert_int_equal(1256, stats.peak_bytes);
    assert_int_equal(1 * MIB, stats.peak_reserved_bytes);
    rn_pool_destroy(pool);
}

static void pool_gives_a_large_request_a_chunk_of_its_own(void **state) {
    (void)state;
    rn_fake_device device = {0};
    rn_pool *pool = make(rn_pool_source_fake(&device), 8 * MIB, 0);
    rn_pool_block block = take(pool, 20 * MIB + 1);
    assert_int_equal(22 * MIB, device.used_bytes); // rounded to 2 MiB
    take(pool, 1 * MIB);                           // fits behind it
    assert_int_equal(22 * MIB, device.used_bytes);
    assert_int_equal(20 * MIB + 1, block.bytes);
    rn_pool_destroy(pool);
}

static void pool_aligns_as_asked_even_in_a_new_chunk(void **state) {
    (void)state;
    for (size_t align = 1; align <= 64 * MIB; align *= 2) {
        rn_fake_device device = {.next_address = 4096};
        rn_pool *pool = make(rn_pool_source_fake(&device), 1 * MIB, 0);
        rn_pool_block block;
        for (int i = 0; i < 3; i++) {
            assert_ok(rn_pool_alloc(pool, 100 * KIB, align, &block));
            assert_int_equal(0, block.address % align);
        }
        assert_true(rn_pool_is_valid(pool));
        rn_pool_destroy(pool);
    }
}

static void pool_rejects_options_that_make_no_sense(void **state) {
    (void)state;
    rn_fake_device device = {0};
    rn_pool_source source = rn_pool_source_fake(&device);
    rn_pool *pool;
    assert_fails(RN_INVALID,
                 rn_pool_create(source, &(rn_pool_options){.granule_bytes = 300}, &pool));
    assert_fails(RN_INVALID,
                 rn_pool_create(source, &(rn_pool_options){.chunk_bytes = SIZE_MAX}, &pool));
    source.part_bytes = 128; // less than the granule
    assert_fails(RN_INVALID, rn_pool_create(source, NULL, &pool));
    assert_null(pool);
    pool = make(rn_pool_source_fake(&device), 0, 0);
    rn_pool_block block;
    assert_fails(RN_INVALID, rn_pool_alloc(pool, 100, 3, &block));
    assert_fails(RN_NO_MEMORY, rn_pool_alloc(pool, SIZE_MAX, 0, &block));
    assert_fails(RN_NO_MEMORY, rn_pool_alloc(pool, 1, (size_t)1 << 63, &block));
    assert_int_equal(0, device.used_bytes);
    rn_pool_destroy(pool);
}

// ---- releasing
// ---------------------------------------------------------------------------------

static void pool_trims_chunks_that_are_wholly_free(void **state) {
    (void)state;
    rn_fake_device device = {0};
    rn_pool *pool = make(rn_pool_source_fake(&device), 1 * MIB, 0);
    rn_pool_block blocks[80];
    for (int i = 0; i < 80; i++)
        blocks[i] = take(pool, 1 * MIB);
    for (int i = 0; i < 80; i++)
        if (i != 40) rn_pool_free(pool, blocks[i]);
    assert_int_equal(70 * MIB, rn_pool_trim(pool, 10 * MIB));
    assert_int_equal(10 * MIB, device.used_bytes);
    assert_int_equal(9 * MIB, rn_pool_trim(pool, 0)); // one block is live
    assert_true(rn_pool_is_valid(pool));
    rn_pool_free(pool, blocks[40]);
    assert_int_equal(1 * MIB, rn_pool_trim(pool, 0));
    assert_int_equal(0, device.used_bytes);
    take(pool, 1 * MIB); // and it goes on
    rn_pool_destroy(pool);
}

static bool is_mapped(rn_pool_block block) {
    unsigned char residence;
    return mincore((void *)(uintptr_t)block.address, 1, &residence) == 0;
}

static void pool_trims_parts_of_flat_memory_around_what_lives(void **state) {
    (void)state;
    rn_pool *pool = make(rn_pool_source_host(NULL, false), 8 * MIB, 0);
    rn_pool_block low = take(pool, 3 * MIB), middle = take(pool, 1 * MIB),
                  high = take(pool, 4 * MIB);
    assert_int_equal(8 * MIB, stats_of(pool).reserved_bytes);
    memset((void *)(uintptr_t)middle.address, 0x5a, middle.bytes);
    rn_pool_free(pool, low);
    rn_pool_free(pool, high);
    assert_true(is_mapped(low) && is_mapped(middle) && is_mapped(high));
    assert_int_equal(7 * MIB, rn_pool_trim(pool, 0));
    assert_true(!is_mapped(low) && is_mapped(middle) && !is_mapped(high));
    assert_true(rn_pool_is_valid(pool));
    for (size_t i = 0; i < middle.bytes; i++)
        assert_int_equal(0x5a, ((uint8_t *)(uintptr_t)middle.address)[i]);
    rn_pool_free(pool, middle);
    assert_int_equal(1 * MIB, rn_pool_trim(pool, 0));
    assert_int_equal(0, stats_of(pool).reserved_bytes);
    rn_pool_destroy(pool);
}

// Six chunks of a size that nothing fits any more must not stay while larger ones are taken.
static void pool_gives_back_before_it_reaches_a_new_peak(void **state) {
    (void)state;
    rn_fake_device device = {0};
    rn_pool *pool = make(rn_pool_source_fake(&device), 1 * MIB, 0);
    for (size_t step = 2; step < 8; step++) {
        rn_pool_block blocks[6];
        for (int i = 0; i < 6; i++)
            blocks[i] = take(pool, step * MIB);
        for (int i = 0; i < 6; i++)
            rn_pool_free(pool, blocks[i]);
    }
    rn_pool_stats stats = stats_of(pool);
    assert_int_equal(6 * 7 * MIB, stats.peak_bytes);
    assert_in_range(stats.peak_reserved_bytes, 42 * MIB, 48 * MIB); // rounded to 2 MiB; not 162
    rn_pool_destroy(pool);
}

// ---- refusals
// ------------------------------------------------------------------------------------

static void pool_refuses_what_its_cap_forbids(void **state) {
    (void)state;
    rn_fake_device device = {0};
    rn_pool *pool = make(rn_pool_source_fake(&device), 8 * MIB, 10 * MIB);
    rn_pool_block first = take(pool, 8 * MIB);
    take(pool, 1 * MIB); // a chunk of the 2 MiB that are left
    assert_int_equal(10 * MIB, device.used_bytes);
    assert_fails(RN_OVER_BUDGET, try(pool, 2 * MIB));
    assert_non_null(strstr(rn_last_error()->message, "capped at 10"));
    rn_pool_free(pool, first);
    take(pool, 4 * MIB);
    assert_fails(RN_OVER_BUDGET, try(pool, 5 * MIB));
    assert_int_equal(10 * MIB, stats_of(pool).peak_reserved_bytes);
    rn_pool_destroy(pool);
}

static void pool_gives_back_before_its_cap_refuses(void **state) {
    (void)state;
    rn_fake_device device = {0};
    rn_pool *pool = make(rn_pool_source_fake(&device), 2 * MIB, 8 * MIB);
    rn_pool_block blocks[4];
    for (int i = 0; i < 4; i++)
        blocks[i] = take(pool, 2 * MIB);
    for (int i = 0; i < 4; i++)
        rn_pool_free(pool, blocks[i]);
    take(pool, 7 * MIB); // fits no chunk that there is
    assert_int_equal(8 * MIB, device.used_bytes);
    rn_pool_destroy(pool);
}

static void pool_takes_the_least_where_the_source_is_short(void **state) {
    (void)state;
    rn_fake_device device = {.limit_bytes = 10 * MIB};
    rn_pool *pool = make(rn_pool_source_fake(&device), 8 * MIB, 0);
    rn_pool_block first = take(pool, 8 * MIB);
    take(pool, 1 * MIB);
    assert_int_equal(9 * MIB, device.used_bytes);
    assert_fails(RN_NO_MEMORY, try(pool, 8 * MIB));
    rn_pool_free(pool, first);
    take(pool, 9 * MIB); // after the free chunk went back
    assert_int_equal(10 * MIB, device.used_bytes);
    rn_pool_destroy(pool);
}

static rn_status broken_grow(void *self, size_t bytes, uint64_t *out_address) {
    (void)self, (void)bytes, (void)out_address;
    return rn_fail(RN_DEVICE, "the device fell off the bus");
}

static void pool_passes_on_what_its_source_says(void **state) {
    (void)state;
    rn_pool *pool = make((rn_pool_source){.grow = broken_grow}, 0, 0);
    assert_fails(RN_DEVICE, try(pool, 100));
    assert_string_equal("the device fell off the bus", rn_last_error()->message);
    rn_pool_destroy(pool);
}

static void pool_returns_a_chunk_that_lies_off_the_granule(void **state) {
    (void)state;
    rn_fake_device device = {.next_address = 8};
    rn_pool *pool = make(rn_pool_source_fake(&device), 0, 0);
    assert_fails(RN_INVALID, try(pool, 100));
    assert_int_equal(0, device.used_bytes);
    rn_pool_destroy(pool);
}

typedef struct trimming_source {
    rn_fake_device device;
    rn_pool *pool;
    size_t trimmed_bytes;
} trimming_source;

static rn_status trimming_grow(void *self, size_t bytes, uint64_t *out_address) {
    trimming_source *source = self;
    source->trimmed_bytes += rn_pool_trim(source->pool, 0);
    return rn_pool_source_fake(&source->device).grow(&source->device, bytes, out_address);
}

static void trimming_release(void *self, uint64_t address, size_t bytes) {
    trimming_source *source = self;
    rn_pool_source_fake(&source->device).release(&source->device, address, bytes);
}

static void pool_lets_its_source_trim_while_it_grows(void **state) {
    (void)state;
    trimming_source source = {0};
    source.pool = make((rn_pool_source){&source, trimming_grow, trimming_release, 0}, 1 * MIB, 0);
    rn_pool_block small[4];
    for (int i = 0; i < 4; i++)
        small[i] = take(source.pool, 1 * MIB);
    for (int i = 0; i < 4; i++)
        rn_pool_free(source.pool, small[i]);
    rn_pool_block large = take(source.pool, 2 * MIB); // 2 go for the peak, 2 in the source
    assert_int_equal(2 * MIB, source.trimmed_bytes);
    assert_int_equal(2 * MIB, source.device.used_bytes);
    rn_pool_free(source.pool, large);
    rn_pool_destroy(source.pool);
}

// ---- sources
// -------------------------------------------------------------------------------------

static void pool_charges_its_account_for_what_it_holds(void **state) {
    (void)state;
    static const rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_ACTIVATIONS, NULL};
    rn_ledger_line before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_ACTIVATIONS);
    rn_pool *pool = make(rn_pool_source_host(&account, true), 4 * MIB, 0);
    rn_pool_block block = take(pool, 1 * MIB), other = take(pool, 6 * MIB);
    memset((void *)(uintptr_t)other.address, 1, other.bytes);
    rn_ledger_line line = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_ACTIVATIONS);
    assert_int_equal(stats_of(pool).reserved_bytes, line.now_bytes - before.now_bytes);
    assert_int_equal(stats_of(pool).reserved_bytes / (256 * KIB), line.count - before.count);
    rn_pool_free(pool, other);
    rn_pool_trim(pool, 0);
    line = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_ACTIVATIONS);
    assert_int_equal(1 * MIB, line.now_bytes - before.now_bytes);
    assert_int_equal(4, line.count - before.count);
    rn_pool_free(pool, block);
    rn_pool_destroy(pool);
    line = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_ACTIVATIONS);
    assert_int_equal(before.now_bytes, line.now_bytes);
    assert_int_equal(before.count, line.count);
    assert_true(rn_ledger_is_valid());
}

static void pool_stays_within_the_budget_of_its_account(void **state) {
    (void)state;
    static const rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_ACTIVATIONS, NULL};
    uint64_t held = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, held + 6 * MIB));
    rn_pool *pool = make(rn_pool_source_host(&account, false), 4 * MIB, 0);
    rn_pool_block first = take(pool, 3 * MIB);
    take(pool, 2 * MIB); // a chunk of 4 is refused, one of 2 is not
    assert_fails(RN_OVER_BUDGET, try(pool, 2 * MIB));
    rn_pool_free(pool, first);
    take(pool, 4 * MIB);
    assert_int_equal(6 * MIB, stats_of(pool).reserved_bytes);
    rn_pool_destroy(pool);
    assert_ok(rn_budget_set(RN_DEVICE_HOST, 0, RN_NO_LIMIT));
}

typedef struct counting {
    size_t bytes, blocks;
    bool refuses;
} counting;

static void *counting_alloc(void *self, size_t bytes, size_t align) {
    counting *count = self;
    if (count->refuses) return (void)rn_fail(RN_NO_MEMORY, "nothing left for the books"), NULL;
    void *block = rn_system_allocator.alloc(NULL, bytes, align);
    if (block) count->bytes += bytes, count->blocks++;
    return block;
}

static void counting_free(void *self, void *block, size_t bytes) {
    counting *count = self;
    count->bytes -= bytes, count->blocks--;
    rn_system_allocator.free(NULL, block, bytes);
}

static void pool_takes_and_returns_whole_blocks_of_an_allocator(void **state) {
    (void)state;
    counting count = {0}, books = {0};
    rn_allocator chunks = {&count, counting_alloc, counting_free};
    rn_allocator from = {&books, counting_alloc, counting_free};
    rn_pool *pool;
    rn_pool_options options = {.chunk_bytes = 1 * MIB};
    assert_ok(rn_pool_create_in(&from, rn_pool_source_allocator(&chunks), &options, &pool));
    rn_pool_block blocks[10];
    for (size_t i = 0; i < 10; i++)
        blocks[i] = take(pool, 700 * KIB);
    assert_int_equal(10, count.blocks);
    for (size_t i = 0; i < 10; i++)
        rn_pool_free(pool, blocks[i]);
    rn_pool_trim(pool, 3 * MIB);
    assert_int_equal(3, count.blocks);
    assert_int_equal(3 * MIB, count.bytes);
    assert_true(books.bytes > 0);
    rn_pool_destroy(pool);
    assert_int_equal(0, count.bytes);
    assert_int_equal(0, books.bytes);
}

typedef struct breaking_source {
    rn_fake_device device;
    bool is_broken;
} breaking_source;

static rn_status breaking_grow(void *self, size_t bytes, uint64_t *out_address) {
    breaking_source *source = self;
    if (source->is_broken) return broken_grow(NULL, bytes, out_address);
    return rn_pool_source_fake(&source->device).grow(&source->device, bytes, out_address);
}

static void breaking_release(void *self, uint64_t address, size_t bytes) {
    breaking_source *source = self;
    rn_pool_source_fake(&source->device).release(&source->device, address, bytes);
}

// For some number of blocks the nodes are used up, and trimming the free chunk fails before the
// source does.
static void pool_tells_its_source_s_story_even_if_trimming_failed(void **state) {
    (void)state;
    size_t untrimmed = 0;
    for (int count = 1; count < 100; count++) {
        counting books = {0};
        breaking_source source = {0};
        rn_allocator from = {&books, counting_alloc, counting_free};
        rn_pool_source broken = {&source, breaking_grow, breaking_release, 0};
        rn_pool_options options = {.chunk_bytes = 64 * KIB};
        rn_pool *pool;
        assert_ok(rn_pool_create_in(&from, broken, &options, &pool));
        rn_pool_block idle = take(pool, 1 * MIB);
        for (int i = 0; i < count; i++)
            take(pool, 256);
        rn_pool_free(pool, idle);
        books.refuses = source.is_broken = true;
        assert_fails(RN_DEVICE, try(pool, 2 * MIB));
        assert_string_equal("the device fell off the bus", rn_last_error()->message);
        untrimmed += stats_of(pool).reserved_bytes > 64 * KIB;
        rn_pool_destroy(pool);
        assert_int_equal(0, source.device.used_bytes);
    }
    assert_true(untrimmed > 0); // else this has tested nothing
}

// ---- random operations
// ---------------------------------------------------------------------------

enum { LIVE_MAX = 64 };

typedef struct player {
    rn_pool *pool;
    uint64_t random;
    bool writes; // there is memory behind the addresses
    int rounds;
    rn_pool_block live[LIVE_MAX];
    uint8_t marks[LIVE_MAX];
    int failures;
    pthread_t thread;
} player;

// Marks both ends and the middle: an overlap with anybody else's block changes one of them.
static uint8_t *spot(rn_pool_block block, int which) {
    size_t at = which == 0 ? 0 : which == 1 ? block.bytes / 2 : block.bytes - 1;
    return (uint8_t *)(uintptr_t)block.address + at;
}

static void play_take(player *p, int i) {
    size_t bytes = 1 + next_random(&p->random) % ((size_t)1 << (next_random(&p->random) % 21));
    size_t align = (size_t)1 << (next_random(&p->random) % 13);
    if (rn_pool_alloc(p->pool, bytes, align, &p->live[i]) != RN_OK) {
        p->failures += rn_last_error()->status != RN_OVER_BUDGET;
        return;
    }
    p->failures += p->live[i].address % align != 0;
    p->marks[i] = (uint8_t)next_random(&p->random);
    for (int k = 0; p->writes && k < 3; k++)
        *spot(p->live[i], k) = p->marks[i];
}

static void play_give(player *p, int i) {
    for (int k = 0; p->writes && k < 3; k++)
        p->failures += *spot(p->live[i], k) != p->marks[i];
    rn_pool_free(p->pool, p->live[i]);
    p->live[i] = (rn_pool_block){0};
}

static void *play(void *self) {
    player *p = self;
    for (int round = 0; round < p->rounds; round++) {
        int i = (int)(next_random(&p->random) % LIVE_MAX);
        if (p->live[i].bytes > 0)
            play_give(p, i);
        else
            play_take(p, i);
        if (round % 97 == 0) rn_pool_trim(p->pool, next_random(&p->random) % (64 * MIB));
        if (round % 61 == 0) p->failures += !rn_pool_is_valid(p->pool);
    }
    for (int i = 0; i < LIVE_MAX; i++)
        if (p->live[i].bytes > 0) play_give(p, i);
    return NULL;
}

static void play_alone(rn_pool_source source, bool writes, size_t cap_bytes) {
    rn_pool *pool = make(source, 2 * MIB, cap_bytes);
    player p = {.pool = pool, .random = 88172645463325252ull, .writes = writes, .rounds = 8000};
    play(&p);
    assert_int_equal(0, p.failures);
    assert_int_equal(0, stats_of(pool).active_bytes);
    uint64_t reserved_bytes = stats_of(pool).reserved_bytes;
    assert_int_equal(reserved_bytes, rn_pool_trim(pool, 0));
    assert_true(rn_pool_is_valid(pool));
    rn_pool_destroy(pool);
}

static void pool_stays_valid_under_random_operations(void **state) {
    (void)state;
    rn_fake_device device = {0};
    play_alone(rn_pool_source_fake(&device), false, 0);
    play_alone(rn_pool_source_fake(&device), false, 4 * MIB);
    assert_int_equal(0, device.used_bytes);
    play_alone(rn_pool_source_host(NULL, false), true, 0);
    play_alone(rn_pool_source_host(NULL, false), true, 4 * MIB);
    play_alone(rn_pool_source_allocator(&rn_system_allocator), true, 0);
}

static void pool_serves_many_threads(void **state) {
    (void)state;
    enum { THREADS = 4 };
    rn_pool *pool = make(rn_pool_source_host(NULL, false), 1 * MIB, 48 * MIB);
    player players[THREADS];
    for (int i = 0; i < THREADS; i++) {
        players[i] =
            (player){.pool = pool, .random = 77u + (uint64_t)i, .writes = true, .rounds = 4000};
        assert_int_equal(0, pthread_create(&players[i].thread, NULL, play, &players[i]));
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(players[i].thread, NULL);
        assert_int_equal(0, players[i].failures);
    }
    assert_int_equal(0, stats_of(pool).active_bytes);
    assert_true(stats_of(pool).peak_reserved_bytes <= 48 * MIB);
    assert_true(rn_pool_is_valid(pool));
    rn_pool_destroy(pool);
}

// ---- faults
// --------------------------------------------------------------------------------------

static rn_status use_pool(rn_pool_source source) {
    rn_pool *pool;
    rn_pool_options options = {.chunk_bytes = 256 * KIB};
    RN_TRY(rn_pool_create(source, &options, &pool));
    rn_pool_block blocks[100];
    rn_status status = RN_OK;
    int count = 0;
    while (count < 100 && status == RN_OK) {
        status = rn_pool_alloc(pool, count % 3 ? 40 * KIB : 256 * KIB, 0, &blocks[count]);
        assert_true(rn_pool_is_valid(pool));
        if (status == RN_OK) count++;
    }
    for (int i = 0; i < count; i += 2)
        rn_pool_free(pool, blocks[i]);
    rn_pool_trim(pool, 0);
    assert_true(rn_pool_is_valid(pool));
    rn_pool_destroy(pool);
    return status;
}

// A chunk that the source fails to give once is asked for again in the least size, so a fault may
// pass unseen.
static void survive_faults(rn_pool_source source) {
    int refusals = 0;
    for (uint64_t n = 1;; n++) {
        rn_fault_arm(RN_FAULT_ALLOC, n);
        rn_status status = use_pool(source);
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_true(status == RN_OK || (fired && status == RN_NO_MEMORY));
        refusals += status != RN_OK;
        if (!fired) break;
    }
    assert_true(refusals >= 4);
}

typedef struct part_log {
    rn_event parts[8];
    size_t count;
} part_log;

static void hear_parts(void *self, const rn_event *event) {
    part_log *log = self;
    if (event->kind != RN_EVENT_PART_CHARGE && event->kind != RN_EVENT_PART_RELEASE) return;
    assert_true(log->count < 8);
    log->parts[log->count++] = *event;
}

static void pool_tells_a_listener_of_the_blocks_it_hands_out(void **state) {
    (void)state;
    static const rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_ACTIVATIONS, NULL};
    part_log log = {.count = 0};
    rn_pool *pool = make(rn_pool_source_host(&account, false), 4 * MIB, 0);
    rn_pool_block a, b;
    rn_ledger_listen(hear_parts, &log);
    assert_ok(rn_pool_alloc(pool, 1000, 0, &a));
    assert_ok(rn_pool_alloc(pool, 0, 0, &b)); // nothing is nothing
    assert_ok(rn_pool_alloc(pool, 5000, 0, &b));
    rn_pool_free(pool, a);
    rn_ledger_listen(NULL, NULL);
    rn_pool_free(pool, b);
    assert_int_equal(3, log.count);
    const rn_pool_block blocks[] = {a, b, a};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(i < 2 ? RN_EVENT_PART_CHARGE : RN_EVENT_PART_RELEASE, log.parts[i].kind);
        assert_int_equal(RN_PURPOSE_ACTIVATIONS, log.parts[i].account.purpose);
        assert_int_equal(blocks[i].address, (uintptr_t)log.parts[i].address);
        assert_int_equal(blocks[i].bytes, log.parts[i].bytes);
    }
    rn_pool_destroy(pool);
}

static void pool_survives_every_failing_allocation(void **state) {
    (void)state;
    rn_fake_device device = {0};
    survive_faults(rn_pool_source_fake(&device));
    assert_int_equal(0, device.used_bytes);
    survive_faults(rn_pool_source_host(NULL, false));
    survive_faults(rn_pool_source_allocator(&rn_system_allocator));
    static const rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_ACTIVATIONS, NULL};
    uint64_t held = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    survive_faults(rn_pool_source_host(&account, false));
    assert_int_equal(held, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
    assert_true(rn_ledger_is_valid());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_takes_nothing_before_it_is_asked),
        cmocka_unit_test(pool_counts_what_it_gives),
        cmocka_unit_test(pool_gives_a_large_request_a_chunk_of_its_own),
        cmocka_unit_test(pool_aligns_as_asked_even_in_a_new_chunk),
        cmocka_unit_test(pool_rejects_options_that_make_no_sense),
        cmocka_unit_test(pool_trims_chunks_that_are_wholly_free),
        cmocka_unit_test(pool_trims_parts_of_flat_memory_around_what_lives),
        cmocka_unit_test(pool_gives_back_before_it_reaches_a_new_peak),
        cmocka_unit_test(pool_refuses_what_its_cap_forbids),
        cmocka_unit_test(pool_gives_back_before_its_cap_refuses),
        cmocka_unit_test(pool_takes_the_least_where_the_source_is_short),
        cmocka_unit_test(pool_passes_on_what_its_source_says),
        cmocka_unit_test(pool_returns_a_chunk_that_lies_off_the_granule),
        cmocka_unit_test(pool_lets_its_source_trim_while_it_grows),
        cmocka_unit_test(pool_charges_its_account_for_what_it_holds),
        cmocka_unit_test(pool_stays_within_the_budget_of_its_account),
        cmocka_unit_test(pool_takes_and_returns_whole_blocks_of_an_allocator),
        cmocka_unit_test(pool_tells_its_source_s_story_even_if_trimming_failed),
        cmocka_unit_test(pool_stays_valid_under_random_operations),
        cmocka_unit_test(pool_tells_a_listener_of_the_blocks_it_hands_out),
        cmocka_unit_test(pool_serves_many_threads),
        cmocka_unit_test(pool_survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
