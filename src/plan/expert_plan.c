// expert_plan.c — experts on demand: how many slots a layer has, what they take, what a run waits
// for.
//
//     layer 0   | e | e | e |        the same number of slots a layer; what is left over gives the
//     layer 1   | e | e | e |        first layers one more. An expert of a layer has the same bytes
//     layer 2   | e | e |            in each of its slots; other layers may have other sizes.
//     transit   | m | m | m | p |    places for single matrices, which all layers share
//
// A matrix lands in a place of transit as the file has it, with the pages around it, and is packed
// from there into a slot; without a slot into the last place of transit (p), until it has been
// used.
//
// How many of a row's k experts are there already depends on the text: it is said by a curve over
// the share of a layer's experts that have slots (rn_plan_options.expert_hits), or, where none is
// known, is that of chance: of n slots for E experts, n / E. A run of many rows needs nearly every
// expert, whatever the text: chance again.
//
//     misses = k (1 - hits) of one row, (E - n) (1 - (1 - k/E)^rows) of several
//
// Reading a layer's misses goes on beside the products of its experts, and beside nothing else.
#include "plan/planner.h"

#include "base/checked.h"
#include "base/fetcher.h"

#include <math.h>

// Where matrices land: enough for the disk to go on while one is packed and multiplied with.
enum { LANDING_BYTES = 8 << 20, LEAST_LANDING = 3, MOST_LANDING = 8 };

// ---- the table ----------------------------------------------------------------------------------

static rn_plan_expert_layer *find_layer(rn_group_table *t, rn_value ids) {
    for (uint32_t i = t->expert_layer_count; i-- > 0;)
        if (t->expert_layers[i].ids == ids) return &t->expert_layers[i];
    return NULL;
}

// Stacks are layer after layer: one of a layer that is not the last moves those behind it up.
static uint32_t insert_stack(rn_group_table *t, const rn_plan_expert_layer *layer) {
    uint32_t at = layer->first_stack + layer->stack_count;
    for (uint32_t i = t->stack_count++; i > at; i--)
        t->stacks[i] = t->stacks[i - 1];
    for (uint32_t i = 0; i < t->expert_layer_count; i++)
        if (&t->expert_layers[i] != layer && t->expert_layers[i].first_stack >= at)
            t->expert_layers[i].first_stack++;
    for (uint32_t u = 0; u < t->group_count; u++)
        if (t->groups[u].on_demand && t->groups[u].stack >= at && u + 1 < t->group_count)
            t->groups[u].stack++;
    return at;
}

void rn_experts_add(rn_group_table *t, rn_value weight, uint32_t block, rn_value ids,
                    uint32_t experts, uint32_t chosen, uint64_t file_bytes, uint64_t bytes) {
    rn_plan_expert_layer *layer = find_layer(t, ids);
    if (!layer) {
        layer = &t->expert_layers[t->expert_layer_count++];
        *layer = (rn_plan_expert_layer){.ids = ids,
                                        .block = block,
                                        .experts = experts,
                                        .chosen = chosen,
                                        .first_stack = t->stack_count};
    }
    uint64_t matrix = file_bytes / experts;
    uint32_t at = insert_stack(t, layer);
    t->stacks[at] = (rn_plan_stack){.weight = weight,
                                    .layer = (uint32_t)(layer - t->expert_layers),
                                    .matrix_bytes = matrix,
                                    .place_bytes = rn_round_up(bytes / experts, RN_PLAN_ALIGN),
                                    .buffer = RN_NO_BUFFER};
    t->groups[t->group_count - 1].stack = at;
    layer->stack_count++;
    layer->expert_bytes += matrix;
    layer->slot_bytes += t->stacks[at].place_bytes;
}

// ---- bytes --------------------------------------------------------------------------------------

uint32_t rn_experts_slots(const rn_group_table *t, uint32_t total, uint32_t layer) {
    uint32_t layers = t->expert_layer_count;
    uint32_t share = total / layers + (layer < total % layers);
    uint32_t experts = t->expert_layers[layer].experts;
    return share < experts ? share : experts;
}

uint32_t rn_experts_most(const rn_group_table *t) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < t->expert_layer_count; i++)
        if (t->expert_layers[i].experts > most) most = t->expert_layers[i].experts;
    return most * t->expert_layer_count;
}

uint32_t rn_experts_transit(const rn_group_table *t, uint64_t *out_place_bytes) {
    uint64_t largest = 0;
    for (uint32_t i = 0; i < t->stack_count; i++) {
        largest = rn_max_u64(largest, rn_fetch_room(t->stacks[i].matrix_bytes));
        largest = rn_max_u64(largest, t->stacks[i].place_bytes);
    }
    *out_place_bytes = largest = rn_round_up(largest, RN_PLAN_SLOT_ALIGN);
    if (largest == 0) return 0;
    uint64_t places = rn_max_u64(LANDING_BYTES / largest, LEAST_LANDING);
    return (uint32_t)rn_min_u64(places, MOST_LANDING) + 1;
}

uint64_t rn_experts_bytes(const rn_group_table *t, uint32_t total) {
    uint64_t place = 0, bytes = rn_experts_transit(t, &place);
    bytes *= place;
    for (uint32_t i = 0; i < t->expert_layer_count; i++)
        bytes += rn_experts_slots(t, total, i) * t->expert_layers[i].slot_bytes;
    return bytes;
}

uint32_t rn_experts_fit(const rn_group_table *t, uint64_t bytes) {
    uint32_t low = 0, high = rn_experts_most(t);
    if (rn_experts_bytes(t, 0) > bytes) return UINT32_MAX;
    while (low < high) { // `low` fits, all above `high` do not
        uint32_t middle = low + (high - low + 1) / 2;
        if (rn_experts_bytes(t, middle) <= bytes)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

// ---- time ---------------------------------------------------------------------------------------

static double read_curve(const rn_expert_hits *hits, rn_expert_guess guess, double share) {
    const double *curve = guess == RN_GUESS_LOW    ? hits->low
                          : guess == RN_GUESS_HIGH ? hits->high
                                                   : hits->expected;
    double at = share * (RN_EXPERT_POINTS - 1);
    uint32_t point = (uint32_t)at;
    if (point + 1 >= RN_EXPERT_POINTS) return curve[RN_EXPERT_POINTS - 1];
    return curve[point] + (curve[point + 1] - curve[point]) * (at - point);
}

// Of a row's experts, the part that is there.
static double hit_rate(const rn_expert_hits *hits, const rn_plan_expert_layer *layer,
                       uint32_t slots, rn_expert_guess guess) {
    double chance = (double)slots / layer->experts;
    if (hits) return fmin(fmax(read_curve(hits, guess, chance), 0), 1);
    return guess == RN_GUESS_HIGH && slots >= layer->chosen ? 1 : chance;
}

// Several rows miss no more than one after the other would.
static double layer_bytes(const rn_group_table *t, const rn_plan_options *options, uint32_t total,
                          uint32_t layer, uint64_t rows, rn_expert_guess guess) {
    const rn_plan_expert_layer *l = &t->expert_layers[layer];
    uint32_t slots = rn_experts_slots(t, total, layer);
    double experts = l->experts, part = l->chosen / experts;
    double one = l->chosen * (1 - hit_rate(options->expert_hits, l, slots, guess));
    double several = (experts - slots) * (1 - pow(1 - part, (double)rows));
    double misses = rows > 1 ? fmin(several, (double)rows * one) : one;
    return misses * (double)l->expert_bytes;
}

double rn_experts_read(const rn_group_table *t, const rn_plan_options *options, uint32_t total,
                       uint64_t rows, rn_expert_guess guess) {
    double bytes = 0;
    for (uint32_t i = 0; i < t->expert_layer_count; i++)
        bytes += layer_bytes(t, options, total, i, rows, guess);
    return bytes;
}

// Readers of a layer follow each other.
double rn_experts_wait(const rn_group_table *t, const rn_plan_options *options,
                       const rn_device_caps *caps, uint32_t total, uint64_t rows,
                       const double *seconds, rn_expert_guess guess) {
    double sum = 0;
    for (uint32_t i = 0, at = 0; i < t->expert_layer_count; i++) {
        double computing = 0;
        for (; at < t->demand_count && t->demands[at].group == i; at++)
            computing += seconds[t->demands[at].position];
        double reading =
            layer_bytes(t, options, total, i, rows, guess) / caps->disk_bytes_second - computing;
        if (reading > 0) sum += reading;
    }
    return sum;
}
