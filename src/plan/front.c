// front.c — keep or recompute, block by block: the choices worth looking at.
//
// A block that is recomputed costs the time of its forward nodes once more and saves the bytes of
// what they made for the backward pass. Which blocks to take for so many bytes is a knapsack: a
// dynamic programme over blocks and quantised bytes gives the least time for each sum, and the sums
// that no other one beats in both are the front. The grain depends on the graph, never on a budget.
// Among equals the earlier block is taken: what it keeps lives longest.
//
//     seconds |           .x all
//             |      .x
//             |  .x
//             x------------------ bytes saved
//           nothing
#include "plan/planner.h"

#include "base/checked.h"

enum { GRAINS_OF_LARGEST = 8, MOST_GRAINS = 512 };

typedef struct block_cost {
    uint64_t bytes; // that recomputing saves
    double seconds; // that it costs
    uint32_t grains;
} block_cost;

typedef struct knapsack {
    const rn_graph *graph;
    const rn_plan_order *order;
    const rn_binding *binding;
    block_cost *costs; // (blocks)
    uint32_t block_count;
    bool *repeated;        // (nodes)
    bool *kept, *boundary; // (values + 1), by root
    uint32_t size;         // grains of all blocks
    double *least;         // (size + 1): seconds for just so many grains, or < 0: impossible
    bool *taken;           // (blocks, size + 1)
} knapsack;

// ---- what a block costs -------------------------------------------------------------------------

// The node of the same block that would be repeated to make the value again, or RN_NO_NODE.
static uint32_t find_maker(const knapsack *k, rn_value value, uint32_t block) {
    if (value == RN_NO_VALUE) return RN_NO_NODE;
    const rn_value_info *info = rn_graph_value(k->graph, value);
    if (info->role != RN_ROLE_INTERMEDIATE) return RN_NO_NODE;
    const rn_node *maker = rn_graph_node(k->graph, info->producer);
    bool again = maker->phase == RN_PHASE_FORWARD && maker->block == block &&
                 !k->order->changes[info->producer];
    return again ? info->producer : RN_NO_NODE;
}

// From the last node to the first: what backward nodes need, and what that needs.
static void mark(knapsack *k) {
    for (uint32_t n = k->order->count; n-- > 0;) {
        const rn_node *node = rn_graph_node(k->graph, n);
        for (uint32_t i = 0; i < node->input_count; i++) {
            rn_value root = k->order->roots[node->inputs[i]];
            uint32_t maker = find_maker(k, node->inputs[i], node->block);
            bool backward = node->phase == RN_PHASE_BACKWARD;
            if (maker == RN_NO_NODE) k->boundary[root] = true;
            if (maker == RN_NO_NODE || !(backward || k->repeated[n])) continue;
            k->repeated[maker] = true;
            k->kept[root] |= backward;
        }
    }
}

static rn_status add_costs(knapsack *k) {
    for (uint32_t p = 0; p < k->order->count; p++) {
        uint32_t n = k->order->nodes[p];
        if (k->repeated[n])
            k->costs[rn_graph_node(k->graph, n)->block].seconds += k->binding->seconds[0][p];
    }
    for (rn_value v = 1; v <= rn_graph_value_count(k->graph); v++) {
        const rn_value_info *info = rn_graph_value(k->graph, v);
        uint64_t bytes = 0;
        if (!k->kept[v] || k->boundary[v] || info->role != RN_ROLE_INTERMEDIATE) continue;
        RN_TRY(rn_plan_value_bytes(k->graph, v, k->binding->rows, RN_LAYOUT_PLAIN, &bytes));
        k->costs[info->block].bytes += bytes;
    }
    return RN_OK;
}

static void quantize(knapsack *k) {
    uint64_t largest = 0, all = 0;
    for (uint32_t b = 0; b < k->block_count; b++) {
        largest = rn_max_u64(largest, k->costs[b].bytes);
        all += k->costs[b].bytes;
    }
    uint64_t grain = rn_max_u64(rn_div_up(largest, GRAINS_OF_LARGEST), all / MOST_GRAINS + 1);
    for (uint32_t b = 0; b < k->block_count; b++) {
        k->costs[b].grains = (uint32_t)rn_div_up(k->costs[b].bytes, grain);
        k->size += k->costs[b].grains;
    }
}

// ---- the dynamic programme ----------------------------------------------------------------------

static rn_status take_blocks(knapsack *k) {
    size_t row = (size_t)k->size + 1;
    for (uint32_t q = 1; q <= k->size; q++)
        k->least[q] = -1;
    for (uint32_t b = 0; b < k->block_count; b++) {
        const block_cost *c = &k->costs[b];
        RN_TRY(rn_stop_try(k->size));
        for (uint32_t q = k->size; c->grains && q >= c->grains; q--) {
            double without = k->least[q], with = k->least[q - c->grains];
            if (with < 0 || (without >= 0 && without <= with + c->seconds)) continue;
            k->least[q] = with + c->seconds;
            k->taken[b * row + q] = true;
        }
    }
    return RN_OK;
}

static void write_point(const knapsack *k, uint32_t q, rn_front *out) {
    size_t row = (size_t)k->size + 1;
    uint32_t point = out->count++;
    out->seconds[point] = k->least[q];
    for (uint32_t b = k->block_count; b-- > 0;) {
        if (!k->taken[b * row + q]) continue;
        out->recompute[point * k->block_count + b] = true;
        out->blocks[point]++;
        out->bytes[point] += k->costs[b].bytes;
        q -= k->costs[b].grains;
    }
}

// Sums that no larger one beats, at most RN_PLAN_POINTS of them at even distances.
static void write_front(const knapsack *k, uint32_t *sums /* (size + 1) */, rn_front *out) {
    uint32_t count = 0;
    double least = -1;
    for (uint32_t q = k->size + 1; q-- > 0;)
        if (k->least[q] >= 0 && (least < 0 || k->least[q] < least)) {
            least = k->least[q];
            sums[count++] = q; // from the largest sum to 0
        }
    uint32_t points = count < RN_PLAN_POINTS ? count : RN_PLAN_POINTS;
    for (uint32_t i = 0; i < points; i++) {
        uint32_t at = points == 1 ? 0 : (uint32_t)((uint64_t)i * (count - 1) / (points - 1));
        write_point(k, sums[count - 1 - at], out);
    }
}

// ---- all of it ----------------------------------------------------------------------------------

static rn_status allocate(rn_arena *memory, knapsack *k, rn_front *out) {
    uint32_t values = rn_graph_value_count(k->graph) + 1;
    RN_TRY(rn_arena_array(memory, k->block_count, sizeof *k->costs, (void **)&k->costs));
    RN_TRY(rn_arena_array(memory, k->order->count, sizeof *k->repeated, (void **)&k->repeated));
    RN_TRY(rn_arena_array(memory, values, sizeof *k->kept, (void **)&k->kept));
    RN_TRY(rn_arena_array(memory, values, sizeof *k->boundary, (void **)&k->boundary));
    return rn_arena_array(memory, (size_t)RN_PLAN_POINTS * k->block_count, sizeof(bool),
                          (void **)&out->recompute);
}

rn_status rn_front_make(rn_arena *memory, const rn_graph *graph, const rn_plan_order *order,
                        const rn_binding *binding, rn_front *out) {
    knapsack k = {.graph = graph,
                  .order = order,
                  .binding = binding,
                  .block_count = rn_graph_block_count(graph)};
    uint32_t *sums;
    *out = (rn_front){0};
    RN_TRY(allocate(memory, &k, out));
    mark(&k);
    RN_TRY(add_costs(&k));
    quantize(&k);
    size_t row = (size_t)k.size + 1;
    RN_TRY(rn_arena_array(memory, row, sizeof *k.least, (void **)&k.least));
    RN_TRY(rn_arena_array(memory, row, sizeof *sums, (void **)&sums));
    RN_TRY(rn_arena_array(memory, row * k.block_count, sizeof *k.taken, (void **)&k.taken));
    RN_TRY(take_blocks(&k));
    write_front(&k, sums, out);
    return RN_OK;
}
