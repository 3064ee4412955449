// rates_link.c — the link from the host to a device: how fast it is alone, and what becomes of it
// and of the CPU while both read the host's memory, as in an interleaved run (plan/interleave.h).
//
//     CPU     | product | product | product | ... |
//     copies  | piece | piece | piece | piece | piece | piece |
//             ^ topped up before every product            ^ the rest is waited for, and not counted
//
// The CPU's products run in the thread that asks, so between two of them it sees to it that the
// link has enough to do until the next one ends, however slow that is.
#include "runtime/rates.h"

#include "base/checked.h"
#include "base/clock.h"
#include "memory/account.h"

enum { ROUNDS = 5, MOST_PASSES = 256, MOST_AT_ONCE = 16 };
#define LEAST_SHARE   0.1
#define SPARE         1.125 // the link may be a little faster than it was
#define MOST_SECONDS  0.6   // of all rounds
#define LEAST_SECONDS 1e-9

static double keep_share(double share) {
    return share >= 1 ? 1 : share > LEAST_SHARE ? share : LEAST_SHARE;
}

// ---- the CPU beside it --------------------------------------------------------------------------

typedef struct turn {
    const rn_beside *beside;
    uint32_t passes;
    double ahead_bytes; // that are to be under way when a product begins
    double link_bytes_second;
    uint64_t start;
    uint64_t submitted; // bytes
} turn;

static double since(const rn_beside *b, uint64_t start) {
    double seconds = (double)(b->now() - start) / 1e9;
    return seconds > LEAST_SECONDS ? seconds : LEAST_SECONDS;
}

static void submit_piece(turn *r) {
    const rn_beside *b = r->beside;
    uint64_t at = r->submitted % (b->bytes / b->piece_bytes * b->piece_bytes);
    rn_queue_copy_in(b->copies, b->device + at, b->host + at, b->piece_bytes);
    r->submitted += b->piece_bytes;
}

// At most what can have been copied by now has been. A queue that copies while it is submitted to
// never gets ahead: it has its limit.
static void top_up(turn *r) {
    const rn_beside *b = r->beside;
    double wanted = since(b, r->start) * r->link_bytes_second * SPARE + r->ahead_bytes;
    uint64_t most = r->submitted + MOST_AT_ONCE * b->bytes;
    while ((double)r->submitted < wanted && r->submitted < most)
        submit_piece(r);
}

// *out_seconds, of one pass.
static rn_status run_products(turn *r, bool with_link, double *out_seconds) {
    const rn_drill *drill = r->beside->drill;
    r->start = r->beside->now();
    for (uint32_t i = 0; i < r->passes * drill->count; i++) {
        const rn_call *call = &drill->calls[i % drill->count].call;
        if (with_link) top_up(r);
        rn_queue_launch(drill->queue, &drill->device->caps.kernels[call->op], call);
    }
    *out_seconds = since(r->beside, r->start) / r->passes;
    return rn_queue_finish(drill->queue);
}

// Both at once. What is copied behind the last product has the link for itself.
static rn_status run_beside(turn *r, double *out_seconds, double *out_link_share) {
    r->submitted = 0;
    rn_status s = run_products(r, true, out_seconds);
    uint64_t end = r->beside->now();
    rn_status copied = rn_queue_finish(r->beside->copies);
    double alone = (double)(r->beside->now() - end) / 1e9 * r->link_bytes_second;
    double meanwhile = ((double)r->submitted - alone) / (*out_seconds * r->passes);
    *out_link_share = keep_share(meanwhile / r->link_bytes_second);
    return s == RN_OK ? copied : s;
}

static void plan_turn(turn *r, double decode_seconds) {
    const rn_beside *b = r->beside;
    double passes = b->seconds / decode_seconds, product = decode_seconds / b->drill->count;
    r->passes = passes < 1 ? 1 : passes < MOST_PASSES ? (uint32_t)passes : MOST_PASSES;
    r->ahead_bytes =
        product / LEAST_SHARE * r->link_bytes_second * SPARE + 2 * (double)b->piece_bytes;
}

// The best of each kind counts, in turns: what disturbs one of them disturbs the other.
rn_status rn_beside_measure(const rn_beside *beside, const rn_rates_options *options,
                            rn_link_rates *rates) {
    turn r = {.beside = beside, .passes = 1, .link_bytes_second = rates->bytes_second};
    uint64_t start = beside->now();
    double alone = 0, both = 0;
    RN_TRY(run_products(&r, false, &alone)); // whatever is done once is done here
    RN_TRY(run_products(&r, false, &alone));
    plan_turn(&r, alone);
    for (int i = 0; i < ROUNDS && (i == 0 || since(beside, start) < MOST_SECONDS); i++) {
        double seconds = 0, beside_seconds = 0, share = 0;
        RN_TRY(rn_rates_check(options));
        RN_TRY(run_products(&r, false, &seconds));
        RN_TRY(run_beside(&r, &beside_seconds, &share));
        if (seconds < alone) alone = seconds;
        if (i > 0 && beside_seconds >= both) continue;
        both = beside_seconds;
        rates->link_share = share;
    }
    rates->host_share = keep_share(alone / both);
    return RN_OK;
}

// ---- the link -----------------------------------------------------------------------------------

typedef struct linking {
    rn_device *device, *cpu;
    const rn_rates_sizes *sizes;
    const rn_rates_options *options;
    rn_queue *copies;
    uint8_t *host;
    rn_device_memory memory;
    rn_link_rates *rates;
} linking;

static rn_status copy_pieces(void *self) {
    const linking *l = self;
    const rn_rates_sizes *sizes = l->sizes;
    for (uint64_t at = 0; at + sizes->piece_bytes <= sizes->link_bytes; at += sizes->piece_bytes)
        rn_queue_copy_in(l->copies, l->memory.base + at, l->host + at, sizes->piece_bytes);
    return rn_queue_finish(l->copies);
}

static rn_status time_copies(linking *l) {
    double seconds = 0;
    RN_TRY(rn_rates_time(l->options, copy_pieces, l, &seconds));
    uint64_t bytes = l->sizes->link_bytes / l->sizes->piece_bytes * l->sizes->piece_bytes;
    l->rates->bytes_second = (double)bytes / (seconds > LEAST_SECONDS ? seconds : LEAST_SECONDS);
    return RN_OK;
}

static rn_status time_beside(linking *l, rn_queue *products) {
    rn_drill drill = {0};
    rn_beside beside = {.drill = &drill,
                        .copies = l->copies,
                        .device = l->memory.base,
                        .host = l->host,
                        .bytes = l->sizes->link_bytes,
                        .piece_bytes = l->sizes->piece_bytes,
                        .seconds = l->sizes->seconds,
                        .now = rn_clock_ns};
    RN_TRY(rn_rates_tell(l->options, "the CPU beside the link"));
    rn_status s = rn_drill_begin_memory(&drill, l->cpu, products, l->sizes);
    if (s == RN_OK) s = rn_beside_measure(&beside, l->options, l->rates);
    rn_drill_end(&drill);
    return s;
}

static rn_status time_both(linking *l) {
    rn_queue *products = NULL;
    RN_TRY(time_copies(l));
    RN_TRY(l->cpu->open_queue(l->cpu, RN_QUEUE_COMPUTE, NULL, &products));
    rn_status s = time_beside(l, products);
    rn_queue_destroy(products);
    return s;
}

static rn_status time_with_memory(linking *l) {
    uint64_t purposes[RN_PURPOSE_COUNT] = {[RN_PURPOSE_OTHER] = l->sizes->link_bytes};
    RN_TRY(rn_device_memory_take(l->device, purposes, &l->memory));
    rn_status s = l->device->open_queue(l->device, RN_QUEUE_COPY, NULL, &l->copies);
    if (s == RN_OK) s = time_both(l);
    rn_queue_destroy(l->copies);
    rn_device_memory_release(&l->memory);
    return s;
}

rn_status rn_rates_measure_link(rn_device *device, rn_device *host, const rn_rates_sizes *sizes,
                                const rn_rates_options *options, rn_link_rates *out) {
    linking l = {.device = device, .cpu = host, .sizes = sizes, .options = options, .rates = out};
    void *block = NULL;
    RN_TRY(rn_rates_tell(options, "the link to the device"));
    RN_TRY(rn_device_host_take(device, RN_STAGING, sizes->link_bytes, &block));
    rn_drill_fill(block, sizes->link_bytes / sizeof(float));
    l.host = block;
    rn_status s = time_with_memory(&l);
    rn_device_host_release(device, RN_STAGING, block, sizes->link_bytes);
    return s;
}
