// rates_link_test.c — the CPU beside a link, by a clock that only products and copies move: what
// each has of its speed is found, and the link never idles while the CPU computes.
#include "support.h"

#include "memory/account.h"
#include "runtime/rates.h"

#include <math.h>

enum { PIECE = 1000, PIECES = 16 };

// A machine on paper. Bytes a nanosecond are as many GB/s.
static struct {
    uint64_t now;            // ns
    uint64_t alone, beside;  // ns of a product, without and with copies under way
    double link, slow_link;  // bytes a ns, alone and beside a product
    double under_way;        // bytes
    uint64_t copied, idle;   // pieces; products during which the link had nothing left to do
    uint64_t next;           // offset of the piece that is to come
    uint64_t copies_to_fail; // the n-th from 1 does
    bool is_wrong;
} paper;

static uint8_t host_block[PIECE * PIECES + 7], device_block[PIECE * PIECES + 7];

static uint64_t paper_now(void) {
    return paper.now;
}

static rn_status multiply(const rn_call *call) {
    (void)call;
    bool both = paper.under_way > 0;
    paper.now += both ? paper.beside : paper.alone;
    if (!both) return RN_OK;
    paper.under_way -= (double)paper.beside * paper.slow_link;
    if (paper.under_way >= 0) return RN_OK;
    paper.under_way = 0;
    paper.idle++;
    return RN_OK;
}

static void submit(rn_queue *queue, const rn_command *command) {
    (void)queue;
    const uint8_t *source = command->as.copy.source;
    if (command->kind != RN_COMMAND_COPY_IN || command->as.copy.bytes != PIECE ||
        source != host_block + paper.next ||
        command->as.copy.target != (void *)(device_block + paper.next))
        paper.is_wrong = true;
    paper.next = (paper.next + PIECE) % (PIECE * PIECES);
    paper.under_way += PIECE;
    paper.copied++;
}

static rn_status finish(rn_queue *queue) {
    (void)queue;
    paper.now += (uint64_t)(paper.under_way / paper.link);
    paper.under_way = 0;
    paper.next = 0;
    if (paper.copies_to_fail && paper.copied >= paper.copies_to_fail)
        return rn_fail(RN_DEVICE, "this copy is to fail");
    return RN_OK;
}

static rn_status measure(double seconds, const rn_rates_options *options, rn_link_rates *rates) {
    static const rn_kernel kernels[RN_OP_COUNT] = {[RN_OP_MATMUL] = {.run = multiply}};
    static const rn_rates_sizes sizes = {.narrow = 16, .wide = 48, .k = 64, .weights = 3};
    rn_queue copies = {.submit = submit, .finish = finish}, *products;
    rn_drill drill;
    rn_device *cpu;
    assert_ok(rn_cpu_device_create(1, &cpu));
    cpu->caps.kernels = kernels;
    assert_ok(cpu->open_queue(cpu, RN_QUEUE_COMPUTE, NULL, &products));
    assert_ok(rn_drill_begin_memory(&drill, cpu, products, &sizes));
    assert_int_equal(4, drill.count);
    rn_beside beside = {.drill = &drill,
                        .copies = &copies,
                        .device = device_block,
                        .host = host_block,
                        .bytes = sizeof host_block, // the rest is not copied
                        .piece_bytes = PIECE,
                        .seconds = seconds,
                        .now = paper_now};
    *rates = (rn_link_rates){.bytes_second = paper.link * 1e9};
    rn_status s = rn_beside_measure(&beside, options, rates);
    rn_drill_end(&drill);
    rn_queue_destroy(products);
    rn_device_destroy(cpu);
    return s;
}

static const rn_rates_options quiet = {0};

static void measure_well(double seconds, rn_link_rates *rates) {
    paper.now = 5;
    paper.copied = paper.idle = paper.next = 0;
    paper.under_way = 0;
    assert_ok(measure(seconds, &quiet, rates));
    assert_false(paper.is_wrong);
    assert_true(paper.copied > 0);
    assert_int_equal(0, paper.idle);
}

static void assert_near(double expected, double found) {
    if (fabs(found / expected - 1) > 0.01) fail_msg("%g, not %g", found, expected);
}

// ---- shares -------------------------------------------------------------------------------------

static void what_each_has_beside_the_other_is_found(void **state) {
    (void)state;
    static const double seconds[] = {0, 1e-4, 1e-3};
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        rn_link_rates rates;
        paper.alone = 3000;
        paper.beside = 4000;
        paper.link = 5;
        paper.slow_link = 4;
        measure_well(seconds[i], &rates);
        assert_near(0.75, rates.host_share);
        assert_near(0.8, rates.link_share);
        assert_near(5e9, rates.bytes_second);
    }
}

static void neither_disturbs_the_other(void **state) {
    (void)state;
    rn_link_rates rates;
    paper.alone = paper.beside = 3000;
    paper.link = paper.slow_link = 5;
    measure_well(1e-4, &rates);
    assert_near(1, rates.host_share);
    assert_near(1, rates.link_share);
    paper.beside = 2000; // which cannot be
    measure_well(1e-4, &rates);
    assert_true(rates.host_share == 1);
}

// Even then the link has enough to do: a product takes nearly ten times as long as it was.
static void a_share_has_a_least(void **state) {
    (void)state;
    rn_link_rates rates;
    paper.alone = 3000;
    paper.beside = 29000;
    paper.link = paper.slow_link = 5;
    measure_well(1e-4, &rates);
    assert_near(3.0 / 29, rates.host_share);
    paper.beside = 300000;
    paper.slow_link = 0.01;
    measure_well(1e-4, &rates);
    assert_true(rates.host_share == 0.1);
    assert_true(rates.link_share == 0.1);
}

// ---- failures -----------------------------------------------------------------------------------

static void a_copy_that_fails_is_told(void **state) {
    (void)state;
    rn_link_rates rates;
    uint64_t held = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    paper.copied = 0;
    paper.copies_to_fail = 3;
    assert_fails(RN_DEVICE, measure(0, &quiet, &rates));
    paper.copies_to_fail = 0;
    assert_int_equal(held, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
}

static void it_can_be_stopped(void **state) {
    (void)state;
    static const volatile bool stop = true;
    rn_link_rates rates;
    rn_rates_options options = {.cancel = &stop};
    assert_fails(RN_CANCELLED, measure(0, &options, &rates));
}

// ---- the drill ----------------------------------------------------------------------------------

// Each weight by itself and in the CPU's layout: no two of them share bytes that a cache could
// hold.
static void weights_of_the_cpus_drill_lie_apart(void **state) {
    (void)state;
    static const rn_rates_sizes sizes = {.narrow = 16, .wide = 48, .k = 64, .weights = 6};
    rn_device *cpu;
    rn_queue *queue;
    rn_drill drill;
    assert_ok(rn_cpu_device_create(1, &cpu));
    assert_ok(cpu->open_queue(cpu, RN_QUEUE_COMPUTE, NULL, &queue));
    assert_ok(rn_drill_begin_memory(&drill, cpu, queue, &sizes));
    assert_int_equal(9, drill.count);
    uint64_t bytes = 0;
    const uint8_t *end = drill.memory.base;
    for (uint32_t i = 0; i < drill.count; i++) {
        const rn_tensor *w = &drill.calls[i].tensors[1];
        assert_int_equal(RN_DTYPE_F16, w->dtype);
        assert_int_equal(RN_LAYOUT_PANELS, w->layout);
        assert_int_equal(i % 2 ? 48 : 16, w->shape.dims[0]);
        assert_true((const uint8_t *)w->data >= end);
        end = (const uint8_t *)w->data + rn_tensor_bytes(w);
        bytes += rn_tensor_bytes(w);
    }
    assert_true(end <= drill.memory.base + drill.memory.bytes);
    assert_int_equal(bytes, rn_drill_weight_bytes(&drill));
    rn_drill_end(&drill);
    rn_queue_destroy(queue);
    rn_device_destroy(cpu);
}

// What is measured is to be more than any cache: as long as there is room for it.
static void the_usual_drill_is_a_gigabyte(void **state) {
    (void)state;
    const rn_rates_sizes *s = &rn_rates_usual;
    uint64_t count = 2 * s->weights * s->wide / (s->narrow + s->wide);
    assert_in_range(count, 2, RN_DRILL_CALLS);
    assert_true(count / 2 * (s->narrow + s->wide) * s->k * 2 >= 1000000000);
    assert_true(s->link_bytes >= (uint64_t)256 << 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_each_has_beside_the_other_is_found),
        cmocka_unit_test(neither_disturbs_the_other),
        cmocka_unit_test(a_share_has_a_least),
        cmocka_unit_test(a_copy_that_fails_is_told),
        cmocka_unit_test(it_can_be_stopped),
        cmocka_unit_test(weights_of_the_cpus_drill_lie_apart),
        cmocka_unit_test(the_usual_drill_is_a_gigabyte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
