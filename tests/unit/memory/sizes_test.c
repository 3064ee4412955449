// Memory is the promise, so the library's own structures are weighed too. The caps are today's
// sizes on 64-bit machines: a structure that grows does so knowingly, by changing its line here.
#include "support.h"
#include "base/arena.h"
#include "base/buffer.h"
#include "base/extents.h"
#include "base/json.h"
#include "base/map.h"
#include "memory/offsets.h"
#include <ration/ration.h>

#define CAP(type, bytes)                                                                           \
    { #type, sizeof(type), bytes }

static void key_structures_stay_within_their_caps(void **state) {
    (void)state;
    if (sizeof(void *) != 8) skip_because("pointers of other than 8 bytes");
    static const struct {
        const char *name;
        size_t bytes, cap;
    } caps[] = {
        // One for each thread.
        CAP(rn_error_info, 2072),
        CAP(rn_refusal, 696),
        // One for each tensor, file, key or block: these add up.
        CAP(rn_str, 16),
        CAP(rn_tensor_info, 64),
        CAP(rn_metadata, 72),
        CAP(rn_checkpoint_file_info, 24),
        CAP(rn_write_tensor, 40),
        CAP(rn_extent, 32),
        CAP(rn_pool_block, 24),
        CAP(rn_offset_block, 16),
        // Passed by value or made for each charge.
        CAP(rn_account, 16),
        CAP(rn_ledger_line, 24),
        CAP(rn_event, 48),
        CAP(rn_scope, 64),
        CAP(rn_scope_stats, 32),
        CAP(rn_convert_row, 80),
        CAP(rn_size_text, 32),
        // On stacks and inside other structures.
        CAP(rn_json, 96),
        CAP(rn_budget_spec, 328),
        CAP(rn_process_info, 72),
        CAP(rn_allocator, 24),
        CAP(rn_arena, 32),
        CAP(rn_buffer, 40),
        CAP(rn_map, 40),
    };
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++)
        if (caps[i].bytes > caps[i].cap)
            fail_msg("%s has %zu bytes, its cap is %zu", caps[i].name, caps[i].bytes, caps[i].cap);
}

// ---- what the structures take as they fill -------------------------------------------------

static void *count_alloc(void *self, size_t bytes, size_t align) {
    *(size_t *)self += bytes;
    return rn_system_allocator.alloc(NULL, bytes, align);
}

static void count_free(void *self, void *block, size_t bytes) {
    *(size_t *)self -= bytes;
    rn_system_allocator.free(NULL, block, bytes);
}

static void map_takes_32_bytes_a_slot(void **state) {
    (void)state;
    size_t held = 0;
    rn_allocator from = {&held, count_alloc, count_free};
    rn_map map;
    rn_map_init(&map, &from);
    assert_int_equal(0, held);
    assert_ok(rn_map_reserve(&map, 768));
    assert_true(held <= 1024 * 32); // three quarters full
    rn_map_free(&map);
    assert_int_equal(0, held);
}

static void arena_takes_at_most_a_chunk_more_than_it_gives(void **state) {
    (void)state;
    size_t held = 0;
    rn_allocator from = {&held, count_alloc, count_free};
    rn_arena arena;
    void *block;
    rn_arena_init(&arena, &from, 4096);
    for (int i = 0; i < 10000; i++)
        assert_ok(rn_arena_alloc(&arena, 16, &block));
    assert_int_equal(held, arena.held_bytes);
    assert_true(held <= 160000 + 160000 / 4000 * 64 + 4096);
    rn_arena_free_all(&arena);
    assert_int_equal(0, held);
}

static void buffer_takes_at_most_twice_what_is_in_it(void **state) {
    (void)state;
    size_t held = 0;
    rn_allocator from = {&held, count_alloc, count_free};
    rn_buffer buffer;
    rn_buffer_init(&buffer, &from, 1 << 20);
    for (size_t i = 1; i <= 5000; i++) {
        assert_ok(rn_buffer_append(&buffer, "x", 1));
        assert_true(held <= (i < 128 ? 256 : 2 * i));
    }
    rn_buffer_free(&buffer);
    assert_int_equal(0, held);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_structures_stay_within_their_caps),
        cmocka_unit_test(map_takes_32_bytes_a_slot),
        cmocka_unit_test(arena_takes_at_most_a_chunk_more_than_it_gives),
        cmocka_unit_test(buffer_takes_at_most_twice_what_is_in_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
