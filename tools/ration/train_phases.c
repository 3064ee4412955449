// train_phases.c — the phases of a training: planned bytes by purpose, and beside them the peaks of
// the ledger while each ran.
//
// What the plan decides (weights, activations, gradients, moments, workspace, staging) must agree
// to the byte. Descriptions (the model's, the plan's, tables of sessions and of files) are beside
// it: they are counted when the plan is made, with a bound for tables that come later.
#include "training.h"

#include <math.h>
#include <string.h>

static uint8_t device_of(const training *t) {
    return t->budget.own_memory ? t->budget.device_number : RN_DEVICE_HOST;
}

static bool is_table(int purpose) {
    return purpose == RN_PURPOSE_IO || purpose == RN_PURPOSE_OTHER ||
           purpose == RN_PURPOSE_UNACCOUNTED || purpose == RN_PURPOSE_PROFILER;
}

uint64_t train_held(const training *t) {
    return rn_ledger_total(device_of(t)).now_bytes;
}

uint64_t read_tables(void) {
    return rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_IO).now_bytes +
           rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes;
}

// ---- facts --------------------------------------------------------------------------------------

void begin_phase(training *t, rn_train_phase phase) {
    if (t->trainer && phase != t->phase) rn_trainer_rest(t->trainer);
    t->phase = phase;
    rn_ledger_reset_peaks();
    t->phase_begin = train_clock();
}

static void raise_to(uint64_t *most, uint64_t bytes) {
    if (bytes > *most) *most = bytes;
}

void end_phase(training *t) {
    phase_fact *f = &t->facts[t->phase];
    f->runs++;
    f->seconds += train_clock() - t->phase_begin;
    for (int i = 0; i < RN_PURPOSE_COUNT; i++)
        raise_to(&f->peaks[i], rn_ledger_read(device_of(t), (rn_purpose)i).peak_bytes);
    raise_to(&f->tables_bytes, rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_IO).peak_bytes +
                                   rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).peak_bytes);
    raise_to(&f->total_bytes, rn_ledger_total(device_of(t)).peak_bytes);
    if (t->budget.own_memory) raise_to(&f->host_bytes, rn_ledger_total(RN_DEVICE_HOST).peak_bytes);
}

uint64_t planned_bytes(const uint64_t bytes[RN_PURPOSE_COUNT]) {
    uint64_t sum = 0;
    for (int i = 0; i < RN_PURPOSE_COUNT; i++)
        if (!is_table(i)) sum += bytes[i];
    return sum;
}

// ---- plans --------------------------------------------------------------------------------------

static uint64_t runs_of(const training *t, rn_train_phase phase) {
    uint64_t save_every = train_count(t, "save-every"), every = train_count(t, "evaluate-every");
    uint64_t sequences = t->data ? rn_train_data_get_info(t->data)->validation_sequences : 0;
    switch (phase) {
    case RN_TRAIN_STEP:
        return t->steps;
    case RN_TRAIN_SAVE:
        return save_every ? (t->steps + save_every - 1) / save_every : 1;
    case RN_TRAIN_EVALUATE: // batches
        return every ? (t->steps + every - 1) / every * ((sequences + t->batch - 1) / t->batch) : 0;
    default:
        return 1;
    }
}

// Of the arena, what has a purpose that descriptions have, too.
static uint64_t tables_in(const rn_train_phase_info *p) {
    return p->bytes[RN_PURPOSE_IO] + p->bytes[RN_PURPOSE_OTHER];
}

// Of the host: descriptions, and the process; and the plan's own where the arena is elsewhere.
uint64_t host_bytes(const training *t, const rn_train_phase_info *p) {
    uint64_t process = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED).now_bytes;
    uint64_t arena = t->budget.own_memory ? 0 : tables_in(p);
    return t->held_bytes + TRAIN_RECORD_BYTES + arena + p->tables_bytes + p->host_bytes + process;
}

// In the memory that the device computes in: a GPU has its driver's context there.
static uint64_t beside_of(const training *t, const rn_train_phase_info *p) {
    return t->budget.own_memory ? t->budget.device_held_bytes + tables_in(p) : host_bytes(t, p);
}

static bool has_phase(const rn_program *program, rn_train_phase phase) {
    return phase != RN_TRAIN_EVALUATE || rn_program_get_summary(program)->phase_count > 2;
}

static double seconds_of(const training *t, const rn_program *program) {
    double sum = 0;
    for (int i = 0; i < RN_TRAIN_PHASE_COUNT; i++)
        if (has_phase(program, (rn_train_phase)i))
            sum += (double)runs_of(t, (rn_train_phase)i) *
                   rn_train_get_phase(program, (rn_train_phase)i).seconds;
    return sum;
}

// Of the host, when the trainer is gone: the model's description, twice as large as when it was
// opened first at most (headers are read again), the adapter's matrices, pieces of the files.
uint64_t merge_bytes(const training *t, const rn_program *program) {
    enum { STAGE = 4 << 20 };
    uint64_t adapter = rn_train_get_phase(program, RN_TRAIN_SAVE).file_bytes / 2;
    uint64_t process = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED).now_bytes;
    return process + t->held_bytes + adapter + rn_model_merge_bytes(t->model) + STAGE;
}

static void print_row(const training *t, const char *name, const rn_train_phase_info *p,
                      const bool shown[RN_PURPOSE_COUNT], uint64_t runs, FILE *to) {
    uint64_t beside = beside_of(t, p);
    fprintf(to, "%-11s %10s", name, rn_size_format(planned_bytes(p->bytes) + beside).text);
    for (int i = 0; i < RN_PURPOSE_COUNT; i++)
        if (shown[i]) fprintf(to, " %11s", rn_size_format(p->bytes[i]).text);
    fprintf(to, " %10s", rn_size_format(beside).text);
    if (t->budget.own_memory) fprintf(to, " %10s", rn_size_format(host_bytes(t, p)).text);
    fprintf(to, " %9s %7llu\n", p->seconds > 0 ? rn_time_format(p->seconds).text : "-",
            (unsigned long long)runs);
}

void print_phases(const training *t, const rn_program *program, FILE *to) {
    bool shown[RN_PURPOSE_COUNT] = {false};
    rn_train_phase_info all[RN_TRAIN_PHASE_COUNT];
    for (int p = 0; p < RN_TRAIN_PHASE_COUNT; p++) {
        all[p] = rn_train_get_phase(program, (rn_train_phase)p);
        for (int i = 0; i < RN_PURPOSE_COUNT; i++)
            shown[i] |= !is_table(i) && all[p].bytes[i] > 0;
    }
    fprintf(to, "%-11s %10s", "phase", t->budget.own_memory ? rn_device_target(t->device) : "peak");
    for (int i = 0; i < RN_PURPOSE_COUNT; i++)
        if (shown[i]) fprintf(to, " %11s", rn_purpose_name((rn_purpose)i));
    fprintf(to, " %10s", "beside");
    if (t->budget.own_memory) fprintf(to, " %10s", "host");
    fprintf(to, " %9s %7s\n", "time/run", "runs");
    print_row(t, "load", &all[RN_TRAIN_LOAD], shown, 1, to);
    print_row(t, "first step", &all[RN_TRAIN_STEP], shown, 1, to);
    print_row(t, "step", &all[RN_TRAIN_STEP], shown, runs_of(t, RN_TRAIN_STEP), to);
    if (has_phase(program, RN_TRAIN_EVALUATE))
        print_row(t, "evaluate", &all[RN_TRAIN_EVALUATE], shown, runs_of(t, RN_TRAIN_EVALUATE), to);
    print_row(t, "save", &all[RN_TRAIN_SAVE], shown, runs_of(t, RN_TRAIN_SAVE), to);
    print_row(t, "resume", &all[RN_TRAIN_RESUME], shown, 1, to);
    if (train_bool(t, "merge"))
        fprintf(to, "%-11s %10s on the host, when all else is gone\n", "merge",
                rn_size_format(merge_bytes(t, program)).text);
    double seconds = all[RN_TRAIN_STEP].seconds;
    if (seconds > 0)
        fprintf(
            to, "predicted: %.0f tokens/s, %.2f hours for %llu steps; up to %s of files\n",
            (double)t->batch * t->tokens / seconds, seconds_of(t, program) / 3600,
            (unsigned long long)t->steps,
            rn_size_format(all[RN_TRAIN_SAVE].file_bytes * (train_count(t, "keep-checkpoints") + 1))
                .text);
}

// ---- plan and fact ------------------------------------------------------------------------------

static void print_pair(const char *what, const char *part, uint64_t plan, uint64_t fact,
                       const char *note) {
    char a[40];
    snprintf(a, sizeof a, "%s", rn_size_format(plan).text);
    fprintf(stderr, "  %-9s %-12s %12s %12s%s\n", what, part, a, rn_size_format(fact).text, note);
}

void print_facts(const training *t) {
    const rn_program *program = rn_trainer_program(t->trainer);
    fprintf(stderr, "\n  %-9s %-12s %12s %12s\n", "phase", "", "plan", "fact");
    for (int i = 0; i < RN_TRAIN_PHASE_COUNT; i++) {
        const phase_fact *f = &t->facts[i];
        rn_train_phase_info p = rn_train_get_phase(program, (rn_train_phase)i);
        if (f->runs == 0) continue;
        uint64_t plan = planned_bytes(p.bytes), fact = planned_bytes(f->peaks);
        print_pair(p.name, "planned", plan, fact, plan == fact ? "" : "  differ");
        for (int n = 0; n < RN_PURPOSE_COUNT; n++)
            if (!is_table(n) && p.bytes[n] != f->peaks[n])
                print_pair("", rn_purpose_name((rn_purpose)n), p.bytes[n], f->peaks[n], "");
        print_pair("", "with beside", plan + beside_of(t, &p), f->total_bytes, "");
        if (t->budget.own_memory) print_pair("", "host", host_bytes(t, &p), f->host_bytes, "");
    }
    if (t->budget.own_memory)
        print_pair("budget", rn_device_target(t->device), t->budget_bytes,
                   t->budget.device.planned_only ? planned_bytes(t->facts[RN_TRAIN_LOAD].peaks)
                                                 : t->facts[RN_TRAIN_LOAD].total_bytes,
                   "");
    else if (t->budget.planned_only)
        print_pair("budget", "(planned)", t->budget.total_bytes,
                   planned_bytes(t->facts[RN_TRAIN_LOAD].peaks), "");
    else
        print_pair("budget", "", t->budget.total_bytes, t->facts[RN_TRAIN_LOAD].total_bytes, "");
}

static void copy_planned(const uint64_t from[RN_PURPOSE_COUNT], uint64_t to[RN_PURPOSE_COUNT]) {
    for (int i = 0; i < RN_PURPOSE_COUNT; i++)
        to[i] = is_table(i) ? 0 : from[i];
}

rn_status write_page(const training *t) {
    rn_train_phase_fact facts[RN_TRAIN_PHASE_COUNT];
    size_t count = 0;
    char title[512];
    for (int i = 0; i < RN_TRAIN_PHASE_COUNT; i++) {
        if (t->facts[i].runs == 0) continue;
        rn_train_phase_info p =
            rn_train_get_phase(rn_trainer_program(t->trainer), (rn_train_phase)i);
        facts[count].name = p.name;
        copy_planned(p.bytes, facts[count].plan_bytes);
        copy_planned(t->facts[i].peaks, facts[count++].fact_bytes);
    }
    snprintf(title, sizeof title, "%s: %s on %s, step %llu of %llu, within %s",
             rn_model_get_info(t->model)->name, train_text(t, "method"),
             rn_device_target(t->device), (unsigned long long)rn_trainer_steps(t->trainer),
             (unsigned long long)t->steps, rn_size_format(t->budget_bytes).text);
    return rn_train_log_page(t->log, title, facts, count);
}

static void write_bytes(rn_json *json, const char *name, const uint64_t bytes[RN_PURPOSE_COUNT]) {
    rn_json_object(json, name);
    for (int i = 0; i < RN_PURPOSE_COUNT; i++)
        if (!is_table(i) && bytes[i]) rn_json_u64(json, rn_purpose_name((rn_purpose)i), bytes[i]);
    rn_json_end(json);
}

void write_phases(const training *t, const rn_program *program, rn_json *json) {
    if (train_bool(t, "merge")) rn_json_u64(json, "merge_bytes", merge_bytes(t, program));
    rn_json_u64(json, "steps", t->steps);
    rn_json_f64(json, "seconds", seconds_of(t, program));
    rn_json_array(json, "phases");
    for (int i = 0; i < RN_TRAIN_PHASE_COUNT; i++) {
        const phase_fact *f = &t->facts[i];
        if (!has_phase(program, (rn_train_phase)i)) continue;
        rn_train_phase_info p = rn_train_get_phase(program, (rn_train_phase)i);
        rn_json_object(json, NULL);
        rn_json_string(json, "name", p.name);
        rn_json_u64(json, "runs", runs_of(t, (rn_train_phase)i));
        rn_json_f64(json, "seconds", p.seconds);
        rn_json_u64(json, "planned_bytes", planned_bytes(p.bytes));
        write_bytes(json, "plan", p.bytes);
        rn_json_u64(json, "beside_bytes", beside_of(t, &p));
        if (t->budget.own_memory) rn_json_u64(json, "host_bytes", host_bytes(t, &p));
        rn_json_u64(json, "file_bytes", p.file_bytes);
        if (f->runs) {
            rn_json_u64(json, "fact_runs", f->runs);
            rn_json_u64(json, "fact_bytes", planned_bytes(f->peaks));
            write_bytes(json, "fact", f->peaks);
            rn_json_u64(json, "fact_total_bytes", f->total_bytes);
            if (t->budget.own_memory) rn_json_u64(json, "fact_host_bytes", f->host_bytes);
        }
        rn_json_end(json);
    }
    rn_json_end(json);
}
