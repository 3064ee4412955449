// block_swapper.c — a manager whose limit is given once, and the plan's steps read as a timetable.
#include <ration/offload.h>

#include "memory/account.h"
#include "base/json.h"
#include "plan/plan.h"

#include <stdio.h>

#define FROM RN_HOST_OTHER

struct rn_block_swapper {
    rn_offload_manager *manager;
    rn_session *session;
};

// ---- life ---------------------------------------------------------------------------------------

rn_status rn_block_swapper_create(const rn_recipe *recipe, const rn_weight_source *weights,
                                  rn_device *device, const rn_plan_options *options,
                                  rn_block_swapper **out) {
    void *block = NULL;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(rn_block_swapper), &block));
    rn_block_swapper *swapper = block;
    rn_status s = rn_offload_manager_create(recipe, weights, device, options, &swapper->manager);
    if (s == RN_OK) s = rn_offload_session(swapper->manager, &swapper->session);
    if (s == RN_OK)
        *out = swapper;
    else
        rn_block_swapper_destroy(swapper);
    return s;
}

void rn_block_swapper_destroy(rn_block_swapper *swapper) {
    if (!swapper) return;
    rn_offload_manager_destroy(swapper->manager);
    rn_free(FROM, swapper, sizeof *swapper);
}

rn_session *rn_block_swapper_session(const rn_block_swapper *swapper) {
    return swapper->session;
}

const rn_plan *rn_block_swapper_plan(const rn_block_swapper *swapper) {
    return rn_offload_plan(swapper->manager);
}

rn_status rn_block_swapper_forward(rn_block_swapper *swapper, uint64_t rows) {
    return rn_session_run(swapper->session, rows);
}

// ---- the timetable ------------------------------------------------------------------------------

static bool reads(const rn_plan *plan, const rn_plan_step *step, uint32_t group) {
    if (step->kind != RN_STEP_COMPUTE) return false;
    const rn_node *node = rn_graph_node(plan->graph, step->node);
    for (uint32_t i = 0; i < node->input_count; i++)
        if (node->inputs[i] && plan->places[node->inputs[i]].group == group) return true;
    return false;
}

static uint32_t first_reader(const rn_plan *plan, uint32_t group, uint32_t from) {
    while (from < plan->step_count && !reads(plan, &plan->steps[from], group))
        from++;
    return from;
}

static rn_swap describe(const rn_plan *plan, uint32_t number) {
    const rn_plan_group *group = &plan->groups[number];
    rn_value first = plan->group_values[group->first_value];
    return (rn_swap){.block = rn_graph_block_name(plan->graph, group->block),
                     .weight = rn_graph_value(plan->graph, first)->name,
                     .weights = group->value_count,
                     .bytes = group->bytes,
                     .resident = group->resident};
}

// What was brought in the run before is needed from the first step on; else from its READ on.
static rn_swap describe_load(const rn_plan *plan, const rn_plan_load *load) {
    rn_swap swap = describe(plan, load->group);
    swap.slot = load->slot;
    swap.brought_step = load->read_step;
    swap.brought_before = plan->steps[load->read_step].next_run;
    swap.needed_step = first_reader(plan, load->group, swap.brought_before ? 0 : load->read_step);
    swap.freed_step = load->evict_step;
    return swap;
}

// By insertion, in the order of need.
static void insert(rn_swap *rows, uint32_t count, rn_swap swap) {
    uint32_t at = count;
    for (; at > 0 && rows[at - 1].needed_step > swap.needed_step; at--)
        rows[at] = rows[at - 1];
    rows[at] = swap;
}

static uint32_t count_rows(const rn_plan *plan) {
    uint32_t count = plan->load_count;
    for (uint32_t u = 0; u < plan->group_count; u++)
        count += plan->groups[u].resident;
    return count;
}

static void write_rows(const rn_plan *plan, rn_swap *rows) {
    uint32_t count = 0;
    for (uint32_t u = 0; u < plan->group_count; u++) {
        if (!plan->groups[u].resident) continue;
        rn_swap swap = describe(plan, u);
        swap.needed_step = first_reader(plan, u, 0);
        insert(rows, count++, swap);
    }
    for (uint32_t u = 0; u < plan->load_count; u++)
        insert(rows, count++, describe_load(plan, &plan->loads[u]));
}

// The caller frees count_rows of them.
static rn_status make_rows(const rn_plan *plan, rn_swap **out, uint32_t *out_count) {
    void *block = NULL;
    *out_count = count_rows(plan);
    RN_TRY(rn_alloc_zeroed(FROM, *out_count, sizeof **out, &block));
    *out = block;
    write_rows(plan, *out);
    return RN_OK;
}

rn_status rn_block_swapper_schedule(const rn_block_swapper *swapper, rn_swap *out, uint32_t room,
                                    uint32_t *out_count) {
    rn_swap *rows = NULL;
    RN_TRY(make_rows(rn_block_swapper_plan(swapper), &rows, out_count));
    for (uint32_t i = 0; i < *out_count && i < room; i++)
        out[i] = rows[i];
    rn_free(FROM, rows, *out_count * sizeof *rows);
    return RN_OK;
}

// ---- showing it ---------------------------------------------------------------------------------

static rn_status print_row(const rn_swap *r, rn_sink sink) {
    rn_size_text size = rn_size_format(r->bytes);
    char where[16] = "stays", brought[24] = "when loaded", freed[16] = "-";
    if (!r->resident) {
        snprintf(where, sizeof where, "slot %u", r->slot);
        snprintf(brought, sizeof brought, "%u%s", r->brought_step,
                 r->brought_before ? " of the run before" : "");
        snprintf(freed, sizeof freed, "%u", r->freed_step);
    }
    return rn_sink_print(sink, "%-24.24s %10s  %-8s %-24s%8u %8s\n", r->block, size.text, where,
                         brought, r->needed_step, freed);
}

static rn_status print_rows(const rn_swap *rows, uint32_t count, rn_sink sink) {
    RN_TRY(rn_sink_print(sink, "%-24s %10s  %-8s %-24s%8s %8s\n", "block", "size", "where",
                         "brought at step", "needed", "freed"));
    for (uint32_t i = 0; i < count; i++)
        RN_TRY(print_row(&rows[i], sink));
    return RN_OK;
}

rn_status rn_block_swapper_print(const rn_block_swapper *swapper, rn_sink sink) {
    rn_swap *rows = NULL;
    uint32_t count = 0;
    RN_TRY(make_rows(rn_block_swapper_plan(swapper), &rows, &count));
    rn_status s = print_rows(rows, count, sink);
    rn_free(FROM, rows, count * sizeof *rows);
    return s;
}

static void write_row(const rn_swap *r, rn_json *json) {
    rn_json_object(json, NULL);
    rn_json_string(json, "block", r->block);
    rn_json_string(json, "weight", r->weight);
    rn_json_u64(json, "weights", r->weights);
    rn_json_u64(json, "bytes", r->bytes);
    rn_json_bool(json, "resident", r->resident);
    if (!r->resident) {
        rn_json_u64(json, "slot", r->slot);
        rn_json_u64(json, "brought_step", r->brought_step);
        rn_json_bool(json, "brought_before", r->brought_before);
        rn_json_u64(json, "freed_step", r->freed_step);
    }
    rn_json_u64(json, "needed_step", r->needed_step);
    rn_json_end(json);
}

rn_status rn_block_swapper_json(const rn_block_swapper *swapper, rn_sink sink) {
    rn_swap *rows = NULL;
    uint32_t count = 0;
    rn_json json;
    RN_TRY(make_rows(rn_block_swapper_plan(swapper), &rows, &count));
    rn_json_begin(&json, sink, true);
    rn_json_array(&json, NULL);
    for (uint32_t i = 0; i < count; i++)
        write_row(&rows[i], &json);
    rn_json_end(&json);
    rn_free(FROM, rows, count * sizeof *rows);
    return rn_json_finish(&json);
}
