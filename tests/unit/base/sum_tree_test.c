// The tree of sums: which slots, which order, and the same bits however samples are shared out.
#include "support.h"

#include "base/sum_tree.h"

// Numbers whose sums depend on their order.
static float value_of(uint64_t sample) {
    return (float)(sample * 2654435761u % 1000003) * (sample % 3 ? 0.37f : 1e-4f);
}

// By the definition: halves, of those samples that there are.
static float sum_of(uint64_t begin, uint64_t size, uint64_t count) {
    if (size == 1) return value_of(begin);
    float left = sum_of(begin, size / 2, count);
    if (begin + size / 2 >= count) return left;
    return left + sum_of(begin + size / 2, size / 2, count);
}

static float whole(uint64_t count) {
    uint64_t size = 1;
    while (size < count)
        size *= 2;
    return sum_of(0, size, count);
}

enum { MOST = 100 };

typedef struct part {
    rn_sum_node node;
    float sum;
} part;

// Computes some samples and appends what is left in the slots.
static uint32_t compute(rn_sum_tree tree, part *out) {
    float slots[RN_SUM_PARTS];
    rn_sum_node nodes[RN_SUM_PARTS];
    uint32_t room = rn_sum_tree_slots(tree), last = 0;
    for (uint64_t i = tree.begin; i < tree.end; i++) {
        rn_sum_step step = rn_sum_tree_add(tree, i);
        float sum = value_of(i);
        assert_true(step.into + step.adds <= room && step.into < room);
        for (uint32_t n = step.adds; n-- > 0;)
            sum = slots[step.into + n] + sum;
        slots[step.into] = sum;
        last = step.into;
    }
    uint32_t count = rn_sum_tree_parts(tree, nodes);
    if (tree.begin < tree.end) assert_int_equal(last + 1, count);
    for (uint32_t i = 0; i < count; i++)
        out[i] = (part){nodes[i], slots[i]};
    return count;
}

static float join(const part *parts, uint32_t count, uint64_t samples) {
    part stack[RN_SUM_PARTS];
    uint32_t held = 0;
    for (uint32_t i = 0; i < count; i++) {
        stack[held++] = parts[i];
        while (held > 1 && rn_sum_tree_joins(stack[held - 2].node, stack[held - 1].node, samples)) {
            stack[held - 2].sum = stack[held - 2].sum + stack[held - 1].sum;
            stack[held - 2].node.end = stack[held - 1].node.end;
            held--;
        }
    }
    assert_int_equal(1, held);
    return stack[0].sum;
}

static void any_number_of_samples(void **state) {
    (void)state;
    for (uint64_t count = 1; count <= MOST; count++) {
        part parts[RN_SUM_PARTS];
        assert_int_equal(1, compute((rn_sum_tree){0, count, count}, parts));
        float want = whole(count);
        assert_memory_equal(&want, &parts[0].sum, sizeof want);
    }
}

// However samples are shared out among up to eight, in runs of any length, some of them empty.
static void any_ranks(void **state) {
    (void)state;
    uint32_t random = 12345;
    for (uint64_t count = 1; count <= MOST; count++) {
        float want = whole(count);
        for (uint32_t ranks = 1; ranks <= 8; ranks++) {
            part parts[8 * 16];
            uint32_t held = 0;
            uint64_t begin = 0;
            for (uint32_t rank = 0; rank < ranks; rank++) {
                uint64_t even = count * (rank + 1) / ranks, end = even;
                random = random * 1664525 + 1013904223;
                if (count % 2 && rank + 1 < ranks) end = begin + random % (count - begin + 1);
                held += compute((rn_sum_tree){begin, end, count}, parts + held);
                begin = end;
            }
            float got = join(parts, held, count);
            assert_memory_equal(&want, &got, sizeof want);
        }
    }
}

static void slots_are_few(void **state) {
    (void)state;
    static const struct {
        rn_sum_tree tree;
        uint32_t slots;
    } cases[] = {{{0, 1, 1}, 1}, {{0, 2, 2}, 1}, {{0, 3, 3}, 1},          {{0, 4, 4}, 2},
                 {{0, 5, 5}, 2}, {{0, 8, 8}, 3}, {{0, 64, 64}, 6},        {{3, 6, 8}, 2},
                 {{6, 8, 8}, 1}, {{1, 8, 8}, 4}, {{0, 65536, 65536}, 16}, {{5, 5, 8}, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(cases[i].slots, rn_sum_tree_slots(cases[i].tree));
}

static void halves(void **state) {
    (void)state;
    rn_sum_node parts[RN_SUM_PARTS];
    assert_int_equal(3, rn_sum_tree_parts((rn_sum_tree){1, 6, 7}, parts));
    rn_sum_node want[] = {{1, 2}, {2, 4}, {4, 6}};
    assert_memory_equal(want, parts, sizeof want);
    assert_int_equal(1, rn_sum_tree_parts((rn_sum_tree){4, 7, 7}, parts)); // its right half is one
    assert_true(rn_sum_tree_joins((rn_sum_node){4, 6}, (rn_sum_node){6, 7}, 7));
    assert_false(rn_sum_tree_joins((rn_sum_node){4, 6}, (rn_sum_node){6, 7}, 8));
    assert_false(rn_sum_tree_joins((rn_sum_node){2, 4}, (rn_sum_node){4, 6}, 8));
    assert_false(rn_sum_tree_joins((rn_sum_node){0, 2}, (rn_sum_node){3, 4}, 8));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_samples),
        cmocka_unit_test(any_ranks),
        cmocka_unit_test(slots_are_few),
        cmocka_unit_test(halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
