// run_report.c — what was planned beside what happened.
#include "rank_job.h"
#include "run.h"

#include <stdio.h>
#include <string.h>

static double rate(uint64_t count, double seconds) {
    return seconds > 0 ? (double)count / seconds : 0;
}

static uint8_t device_of(const runner *r) {
    return r->budget.own_memory ? r->budget.device_number : RN_DEVICE_HOST;
}

static void print_budget(const runner *r) {
    const host_budget *b = &r->budget;
    uint64_t bytes = b->own_memory ? b->device.bytes : b->total_bytes;
    bool measured = b->own_memory ? bytes == 0 : b->measured;
    fprintf(stderr, "%s, ", rn_device_target(r->device));
    if (measured && b->own_memory)
        fprintf(stderr, "budget nine tenths of what is free: ");
    else
        fprintf(stderr, "budget %s%s: ", rn_size_format(bytes).text,
                measured ? " (nine tenths of what is free)" : "");
}

static void print_sampling(const runner *r) {
    const rn_sampling *s = &r->sampling;
    if (s->temperature == 0) return;
    fprintf(stderr, "sampling: seed %llu, temperature %g", (unsigned long long)s->seed,
            (double)s->temperature);
    if (s->top_k) fprintf(stderr, ", top-k %u", s->top_k);
    if (s->top_p > 0 && s->top_p < 1) fprintf(stderr, ", top-p %g", (double)s->top_p);
    if (s->min_p > 0) fprintf(stderr, ", min-p %g", (double)s->min_p);
    if (s->repetition_penalty > 0 && s->repetition_penalty != 1)
        fprintf(stderr, ", repetition penalty %g", (double)s->repetition_penalty);
    fprintf(stderr, "%s\n", r->advised ? " (as the model's files advise)" : "");
}

void print_opening(const runner *r) {
    const rn_model_info *m = rn_model_get_info(r->model);
    const rn_plan_summary *p = rn_plan_get_summary(rn_generator_plan(r->generator));
    fprintf(stderr, "%s: %s, %s parameters, %s (%s)\n", m->name, m->architecture,
            rn_count_format(m->parameters).text, m->weights, rn_size_format(m->weight_bytes).text);
    print_budget(r);
    fprintf(stderr, "%s planned", rn_size_format(p->planned_bytes).text);
    if (p->streamed_bytes)
        fprintf(stderr, "; %u of %u blocks stay, %s are %s for every step", p->resident_blocks,
                p->block_count, rn_size_format(p->streamed_bytes).text,
                p->host_weight_bytes ? "brought from the host's memory" : "read from disk");
    else
        fprintf(stderr, p->expert_layers ? "; all weights but experts stay" : "; all weights stay");
    if (p->expert_layers)
        fprintf(stderr, ", %u of %u experts of each of %u layers have slots", p->expert_slots,
                p->experts, p->expert_layers);
    if (p->host_blocks && p->streaming_seconds == 0)
        fprintf(stderr, ", and the CPU computes the first %u blocks", p->host_blocks);
    else if (p->host_blocks)
        fprintf(stderr, " of more than %llu rows; else the CPU computes the first %u blocks",
                (unsigned long long)p->host_rows, p->host_blocks);
    if (p->interleaved_blocks)
        fprintf(stderr, ", but for %u that are brought meanwhile", p->interleaved_blocks);
    fprintf(stderr, "; context %s%zu, prompts %llu tokens at once\n", r->grows ? "grows to " : "",
            rn_generator_context(r->generator), (unsigned long long)p->rows);
    uint32_t ranks = 0;
    const rn_rank_share *shares = rn_generator_shares(r->generator, &ranks);
    if (shares) print_shares(stderr, shares, ranks);
    print_sampling(r);
    fprintf(stderr, "\n");
}

// ---- for people ---------------------------------------------------------------------------------

static void print_sizes(const char *what, uint64_t planned, uint64_t found) {
    char a[40];
    snprintf(a, sizeof a, "%s", rn_size_format(planned).text);
    fprintf(stderr, "  %-26s %14s %14s\n", what, a, rn_size_format(found).text);
}

static void print_times(const char *what, double planned, double found) {
    char a[40];
    snprintf(a, sizeof a, "%s", rn_time_format(planned).text);
    fprintf(stderr, "  %-26s %14s %14s\n", what, a, rn_time_format(found).text);
}

// What is planned of a KV cache that grows: the pages that the text has reached.
static uint64_t planned_bytes(const runner *r, const rn_plan_summary *p,
                              const rn_generator_facts *f, int purpose) {
    uint64_t bytes = p->purpose_bytes[purpose];
    if (purpose != RN_PURPOSE_KV || !r->grows) return bytes;
    return bytes - (f->kv_pages_total - f->kv_pages_peak) * f->kv_page_bytes;
}

static void print_purposes(const runner *r, const rn_plan_summary *p, const rn_generator_facts *f) {
    char name[40];
    for (int i = 0; i < RN_PURPOSE_COUNT; i++) {
        if (p->purpose_bytes[i] == 0 || i == RN_PURPOSE_OTHER)
            continue; // alignment; and tables, which come and go
        snprintf(name, sizeof name, "%s", rn_purpose_name((rn_purpose)i));
        if (i == RN_PURPOSE_KV && r->grows)
            snprintf(name, sizeof name, "kv, %llu of %llu pages",
                     (unsigned long long)f->kv_pages_peak, (unsigned long long)f->kv_pages_total);
        print_sizes(name, planned_bytes(r, p, f, i),
                    rn_ledger_read(device_of(r), (rn_purpose)i).peak_bytes);
    }
}

// What is planned is taken and released at once: its peak is that of its lines. (The device's
// total also knows what was asked for and refused.)
static uint64_t planned_peak(const runner *r) {
    uint64_t sum = 0;
    for (int p = 0; p < RN_PURPOSE_COUNT; p++)
        if (p != RN_PURPOSE_UNACCOUNTED)
            sum += rn_ledger_read(device_of(r), (rn_purpose)p).peak_bytes;
    return sum;
}

// The device's share, with the driver's; and what the plan holds on the host for it.
static void print_device(const runner *r, const rn_plan_summary *p) {
    const rn_device_budget *b = &r->budget.device;
    uint64_t outside = rn_ledger_read(device_of(r), RN_PURPOSE_UNACCOUNTED).peak_bytes;
    print_sizes("all that is planned", p->planned_bytes, planned_peak(r));
    print_sizes("the driver's context", r->budget.device_held_bytes, outside);
    if (b->bytes) print_sizes("budget, peak on the device", b->bytes, planned_peak(r) + outside);
    print_sizes("weights on the host", p->host_weight_bytes,
                rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_WEIGHTS).peak_bytes);
}

static void print_memory(const runner *r, const rn_generator_facts *f) {
    const rn_plan_summary *p = rn_plan_get_summary(rn_generator_plan(r->generator));
    rn_process_info process;
    print_purposes(r, p, f);
    if (r->budget.own_memory) print_device(r, p);
    if (f->session.live_peak_bytes)
        print_sizes("in use at the peak", p->live_peak_bytes, f->session.live_peak_bytes);
    if (r->budget.planned_only && !r->budget.own_memory)
        print_sizes("budget (planned bytes)", r->budget.total_bytes, p->planned_bytes);
    else if (rn_process_read(&process) == RN_OK)
        print_sizes(r->budget.own_memory ? "the host's budget, resident" : "budget, peak resident",
                    r->budget.total_bytes, process.resident_peak_bytes + process.page_table_bytes);
}

static double decode_seconds(const rn_generator_facts *f) {
    uint64_t steps = f->steps > f->prefill_steps ? f->steps - f->prefill_steps : 0;
    return steps ? f->new_seconds / (double)steps : 0;
}

static double hit_rate(const rn_session_facts *s) {
    if (s->experts_needed == 0) return 0;
    return 1 - (double)s->experts_missed / (double)s->experts_needed;
}

// Rows of prompts and of text alike. What is planned is for rows one by one.
static void print_experts(const rn_plan_summary *p, const rn_generator_facts *f) {
    uint64_t rows = f->prompt_tokens + f->new_tokens;
    double planned = p->expert_token_bytes
                         ? 1 - (double)p->expert_read_bytes / (double)p->expert_token_bytes
                         : 0;
    char a[40];
    if (p->expert_layers == 0) return;
    snprintf(a, sizeof a, "%.1f %%", 100 * planned);
    fprintf(stderr, "  %-26s %14s %12.1f %%\n", "experts that were there", a,
            100 * hit_rate(&f->session));
    print_sizes("experts read a token", p->expert_read_bytes,
                rows ? f->session.expert_read_bytes / rows : 0);
}

void print_report(const runner *r) {
    rn_generator_facts f = rn_generator_get_facts(r->generator);
    const rn_plan_summary *p = rn_plan_get_summary(rn_generator_plan(r->generator));
    uint64_t read = f.steps ? (f.session.read_bytes - r->loaded_bytes) / f.steps : 0;
    fprintf(stderr, "\n  %-26s %14s %14s\n", "", "plan", "fact");
    print_memory(r, &f);
    uint64_t from_disk = p->host_weight_bytes ? 0 : p->streamed_bytes;
    if (from_disk || read)
        print_sizes("read from disk a pass",
                    from_disk + (p->expert_layers ? p->expert_read_bytes : 0), read);
    print_experts(p, &f);
    if (p->workload_rows && f.prompt_tokens)
        print_times("a prompt's token", p->prefill_seconds / (double)p->workload_rows,
                    f.prefill_seconds / (double)f.prompt_tokens);
    if (decode_seconds(&f) > 0)
        print_times(r->grows ? "a decode step (plan: full)" : "a decode step", p->decode_seconds,
                    decode_seconds(&f));
    fprintf(stderr, "  prompt: %llu tokens in %s (%.1f a second); ",
            (unsigned long long)f.prompt_tokens, rn_time_format(f.prefill_seconds).text,
            rate(f.prompt_tokens, f.prefill_seconds));
    fprintf(stderr, "text: %llu tokens in %s (%.1f a second)", (unsigned long long)f.new_tokens,
            rn_time_format(f.new_seconds).text, rate(f.decoded_tokens, f.new_seconds));
    if (f.hybrid_steps)
        fprintf(stderr, "; in %llu steps the CPU had its share, %llu KV pages moved",
                (unsigned long long)f.hybrid_steps, (unsigned long long)f.moved_pages);
    if (f.speculated_tokens)
        fprintf(stderr, "; %llu of %llu guessed tokens were right",
                (unsigned long long)f.accepted_tokens, (unsigned long long)f.speculated_tokens);
    fprintf(stderr, "\n");
    if (r->rates != RN_RATES_CALIBRATED)
        fprintf(stderr, "  planned times follow from %s; ration calibrate measures this machine\n",
                r->rates == RN_RATES_QUICK ? "a tenth of a second of measuring" : "guesses");
}

// ---- for programs -------------------------------------------------------------------------------

static void write_model(const rn_model_info *m, rn_json *json) {
    rn_json_object(json, "model");
    rn_json_string(json, "name", m->name);
    rn_json_string(json, "architecture", m->architecture);
    rn_json_string(json, "weights", m->weights);
    rn_json_u64(json, "parameters", m->parameters);
    rn_json_u64(json, "weight_bytes", m->weight_bytes);
    rn_json_end(json);
}

static void write_plan(const runner *r, rn_json *json) {
    const rn_plan_summary *p = rn_plan_get_summary(rn_generator_plan(r->generator));
    rn_json_object(json, "plan");
    rn_json_string(json, "device", rn_device_target(r->device));
    rn_json_u64(json, "budget_bytes",
                r->budget.own_memory ? r->budget.device.bytes : r->budget.total_bytes);
    rn_json_u64(json, "unaccounted_bytes", r->budget.unaccounted_bytes);
    rn_json_u64(json, "reserve_bytes", r->budget.reserve_bytes);
    rn_json_u64(json, "planned_bytes", p->planned_bytes);
    rn_json_u64(json, "live_peak_bytes", p->live_peak_bytes);
    rn_json_u64(json, "smallest_budget_bytes", p->smallest_budget_bytes);
    rn_json_u64(json, "context", rn_generator_context(r->generator));
    rn_json_u64(json, "rows", p->rows);
    rn_json_u64(json, "blocks", p->block_count);
    rn_json_u64(json, "resident_blocks", p->resident_blocks);
    rn_json_u64(json, "streamed_bytes", p->streamed_bytes);
    if (p->expert_layers) {
        rn_json_u64(json, "expert_layers", p->expert_layers);
        rn_json_u64(json, "experts", p->experts);
        rn_json_u64(json, "expert_slots", p->expert_slots);
        rn_json_u64(json, "expert_slot_bytes", p->expert_slot_bytes);
        rn_json_u64(json, "expert_transit_bytes", p->expert_transit_bytes);
        rn_json_u64(json, "expert_token_bytes", p->expert_token_bytes);
        rn_json_u64(json, "expert_read_bytes", p->expert_read_bytes);
        rn_json_f64(json, "decode_least_seconds", p->decode_least_seconds);
        rn_json_f64(json, "decode_most_seconds", p->decode_most_seconds);
    }
    rn_json_u64(json, "host_bytes", p->host_bytes);
    rn_json_u64(json, "host_weight_bytes", p->host_weight_bytes);
    rn_json_u64(json, "host_blocks", p->host_blocks);
    rn_json_u64(json, "interleaved_blocks", p->interleaved_blocks);
    rn_json_f64(json, "prefill_seconds", p->prefill_seconds);
    rn_json_u64(json, "workload_rows", p->workload_rows);
    rn_json_f64(json, "decode_seconds", p->decode_seconds);
    rn_json_bool(json, "rates_measured", r->rates != RN_RATES_GUESSED);
    rn_json_string(json, "rates_source", rn_rates_source_name(r->rates));
    rn_json_object(json, "purposes");
    for (int i = 0; i < RN_PURPOSE_COUNT; i++)
        if (p->purpose_bytes[i])
            rn_json_u64(json, rn_purpose_name((rn_purpose)i), p->purpose_bytes[i]);
    rn_json_end(json);
    rn_json_end(json);
}

static void write_facts(const runner *r, rn_json *json) {
    rn_generator_facts f = rn_generator_get_facts(r->generator);
    rn_process_info process;
    rn_json_object(json, "facts");
    rn_json_f64(json, "open_seconds", r->opened_seconds);
    rn_json_u64(json, "steps", f.steps);
    rn_json_u64(json, "prompt_tokens", f.prompt_tokens);
    rn_json_f64(json, "prefill_seconds", f.prefill_seconds);
    rn_json_u64(json, "new_tokens", f.new_tokens);
    rn_json_f64(json, "new_seconds", f.new_seconds);
    rn_json_f64(json, "tokens_per_second", rate(f.decoded_tokens, f.new_seconds));
    rn_json_f64(json, "decode_seconds", decode_seconds(&f));
    rn_json_u64(json, "hybrid_steps", f.hybrid_steps);
    rn_json_u64(json, "moved_pages", f.moved_pages);
    rn_json_u64(json, "speculated_tokens", f.speculated_tokens);
    rn_json_u64(json, "accepted_tokens", f.accepted_tokens);
    rn_json_u64(json, "read_bytes", f.session.read_bytes);
    rn_json_u64(json, "read_bytes_after_load", f.session.read_bytes - r->loaded_bytes);
    if (f.session.experts_needed) {
        rn_json_u64(json, "experts_needed", f.session.experts_needed);
        rn_json_u64(json, "experts_missed", f.session.experts_missed);
        rn_json_f64(json, "expert_hit_rate", hit_rate(&f.session));
        rn_json_u64(json, "expert_read_bytes", f.session.expert_read_bytes);
    }
    rn_json_u64(json, "kv_pages_peak", f.kv_pages_peak);
    rn_json_u64(json, "kv_page_bytes", f.kv_page_bytes);
    if (f.session.live_peak_bytes) rn_json_u64(json, "live_peak_bytes", f.session.live_peak_bytes);
    if (rn_process_read(&process) == RN_OK) {
        rn_json_u64(json, "resident_peak_bytes", process.resident_peak_bytes);
        rn_json_u64(json, "page_table_bytes", process.page_table_bytes);
    }
    if (r->budget.own_memory) {
        uint64_t outside = rn_ledger_read(device_of(r), RN_PURPOSE_UNACCOUNTED).peak_bytes;
        rn_json_u64(json, "device_peak_bytes", planned_peak(r) + outside);
        rn_json_u64(json, "device_unaccounted_bytes", outside);
        rn_json_u64(json, "device_planned_peak_bytes", planned_peak(r));
    }
    rn_json_check(json, rn_ledger_json(rn_json_embed(json, "ledger")));
    rn_json_end(json);
}

void write_report(const runner *r, rn_json *json) {
    rn_json_u64(json, "seed", r->sampling.seed);
    rn_json_check(json, rn_ladder_json(r->ladder, rn_json_embed(json, "ladder")));
    uint32_t ranks = 0;
    const rn_rank_share *shares = rn_generator_shares(r->generator, &ranks);
    if (shares) write_shares(json, "ranks", shares, ranks);
    write_model(rn_model_get_info(r->model), json);
    write_plan(r, json);
    write_facts(r, json);
}
