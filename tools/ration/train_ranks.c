// train_ranks.c — ration train as one of several ranks: who does what, whether all are of one mind,
// and the table of what each of them holds.
#include "rank_job.h"
#include "training.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- together -----------------------------------------------------------------------------------

rn_status open_train_ranks(training *t) {
    t->ranks = 1;
    if (!has_ranks()) return RN_OK;
    RN_TRY(open_ranks(t->in, &t->comm));
    t->rank = rn_comm_rank(t->comm);
    t->ranks = rn_comm_size(t->comm);
    return RN_OK;
}

rn_status close_train_ranks(training *t, rn_status status) {
    rn_comm *comm = t->comm;
    t->comm = NULL;
    return comm ? close_ranks(comm, status) : status;
}

rn_status only_first(training *t, rn_status (*act)(training *t)) {
    return rn_comm_agree(t->comm, t->rank == 0 ? act(t) : RN_OK);
}

rn_status take_turns(training *t, rn_status (*act)(training *t)) {
    RN_TRY(only_first(t, act));
    return t->ranks > 1 ? rn_comm_agree(t->comm, t->rank == 0 ? RN_OK : act(t)) : RN_OK;
}

rn_status from_first(training *t, void *data, uint64_t bytes) {
    return rn_comm_broadcast(t->comm, 0, data, bytes);
}

rn_status agree_to_stop(training *t, bool *out) {
    int32_t asked = interrupted;
    RN_TRY(rn_comm_all_reduce(t->comm, &asked, 1, RN_DTYPE_I32));
    *out = asked > 0;
    return RN_OK;
}

// ---- of one mind --------------------------------------------------------------------------------

// What a rank may have of its own: budgets, threads, where files are, what is printed.
static bool is_own(const char *name) {
    static const char *const own[] = {"budget", "threads",  "device",    "data",   "out",
                                      "base",   "quiet",    "json",      "config", "log-level",
                                      "rates",  "fallback", "log-format"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(name, own[i]) == 0) return true;
    return strncmp(name, "profile", 7) == 0;
}

static rn_status compare_options(training *t) {
    for (size_t i = 0; i < rn_option_count(); i++) {
        const rn_option *option = rn_option_at(i);
        const char *const *list = NULL;
        char text[2048] = "", name[64];
        size_t at = 0;
        if (!rn_option_is_for(option, "train") || is_own(option->name)) continue;
        size_t count = option->type == RN_OPTION_LIST
                           ? rn_settings_list(t->in->settings, option->name, &list)
                           : 0;
        for (size_t k = 0; k < count && at < sizeof text; k++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s ", list[k]);
        if (option->type != RN_OPTION_LIST)
            snprintf(text, sizeof text, "%s", rn_settings_text(t->in->settings, option->name));
        snprintf(name, sizeof name, "--%s", option->name);
        RN_TRY(rn_comm_compare(t->comm, &(rn_comm_item){name, text}, 1));
    }
    return RN_OK;
}

rn_status compare_ranks(training *t) {
    const rn_comm_item data = {"the data", rn_train_data_get_info(t->data)->key};
    if (t->ranks == 1) return RN_OK;
    RN_TRY(rn_comm_compare(t->comm, &data, 1));
    return compare_options(t);
}

// ---- the table of ranks -------------------------------------------------------------------------

static rank_row describe_rank(const training *t) {
    rank_row row = {.budget_bytes = t->budget.total_bytes};
    uint64_t batch = t->batch; // as the library divides it
    row.sequences = (uint32_t)(batch * (t->rank + 1) / t->ranks - batch * t->rank / t->ranks);
    (void)gethostname(row.host, sizeof row.host - 1);
    return row;
}

static void add_program(const training *t, const rn_program *program, rank_row *row) {
    for (int i = 0; i < RN_TRAIN_PHASE_COUNT; i++) {
        if (i == RN_TRAIN_EVALUATE && rn_program_get_summary(program)->phase_count < 3) continue;
        rn_train_phase_info p = rn_train_get_phase(program, (rn_train_phase)i);
        uint64_t planned = planned_bytes(p.bytes);
        if (planned > row->planned_bytes) row->planned_bytes = planned;
        uint64_t held = planned + host_bytes(t, &p);
        if (held > row->held_bytes) row->held_bytes = held;
        row->states_bytes = p.bytes[RN_PURPOSE_OPTIMIZER];
    }
}

rank_row rank_row_of(const training *t) {
    rank_row row = describe_rank(t);
    add_program(t, rn_trainer_program(t->trainer), &row);
    for (int i = 0; i < RN_TRAIN_PHASE_COUNT; i++) {
        uint64_t fact = t->facts[i].runs ? planned_bytes(t->facts[i].peaks) : 0;
        if (fact > row.fact_bytes) row.fact_bytes = fact;
    }
    return row;
}

rn_status gather_rows(training *t, const rank_row *own, rank_row **out) {
    *out = calloc(t->ranks, sizeof **out);
    if (!*out) return rn_fail(RN_NO_MEMORY, "no memory for a table of %u ranks", t->ranks);
    (*out)[t->rank] = *own;
    rn_status s = rn_comm_all_gather(t->comm, *out, sizeof **out);
    for (uint32_t r = 0; r < t->ranks; r++)
        (*out)[r].host[sizeof(*out)[r].host - 1] = 0;
    return s;
}

static void print_bytes(uint64_t bytes, FILE *to) {
    fprintf(to, " %11s", bytes ? rn_size_format(bytes).text : "-");
}

void print_rank_rows(const training *t, const rank_row *rows, FILE *to) {
    bool ran = false, refused = false;
    for (uint32_t r = 0; r < t->ranks; r++) {
        ran |= rows[r].fact_bytes > 0;
        refused |= rows[r].refused;
    }
    fprintf(to, "  %4s %-16s %9s %11s %11s %11s %11s%s\n", "rank", "host", "sequences", "planned",
            "of states", "with beside", "budget",
            refused ? "  smallest"
            : ran   ? "        fact"
                    : "");
    for (uint32_t r = 0; r < t->ranks; r++) {
        const rank_row *row = &rows[r];
        fprintf(to, "  %4u %-16.16s %9u", r, row->host, row->sequences);
        print_bytes(row->planned_bytes, to);
        print_bytes(row->states_bytes, to);
        print_bytes(row->held_bytes, to);
        print_bytes(row->budget_bytes, to);
        if (refused)
            fprintf(to, "  %s", row->refused ? rn_size_format(row->smallest_bytes).text : "fits");
        else if (ran)
            fprintf(to, " %11s%s", rn_size_format(row->fact_bytes).text,
                    row->fact_bytes == row->planned_bytes ? "" : "  differ");
        fprintf(to, "\n");
    }
}

void write_rank_rows(const training *t, const rank_row *rows, rn_json *json) {
    rn_json_array(json, "ranks");
    for (uint32_t r = 0; r < t->ranks; r++) {
        rn_json_object(json, NULL);
        rn_json_u64(json, "rank", r);
        rn_json_string(json, "host", rows[r].host);
        rn_json_u64(json, "sequences", rows[r].sequences);
        rn_json_u64(json, "planned_bytes", rows[r].planned_bytes);
        rn_json_u64(json, "states_bytes", rows[r].states_bytes);
        rn_json_u64(json, "held_bytes", rows[r].held_bytes);
        rn_json_u64(json, "budget_bytes", rows[r].budget_bytes);
        rn_json_u64(json, "fact_bytes", rows[r].fact_bytes);
        rn_json_end(json);
    }
    rn_json_end(json);
}

// A rank whose own plan fits says what it would be; with states divided, as far as that goes.
rn_status refuse_ranks(training *t, const rn_trainer_options *options,
                       const rn_lora_options *lora) {
    rn_error_info error = *rn_last_error();
    rank_row own = describe_rank(t), *rows = NULL;
    rn_trainer_options o = *options;
    rn_program *program = NULL;
    if (o.zero == RN_ZERO_AUTO) o.zero = RN_ZERO_STATES;
    own.refused = rn_finetune_plan(t->model, &o, lora, &program) != RN_OK;
    if (own.refused)
        own.smallest_bytes = rn_last_refusal()->smallest_budget_bytes;
    else
        add_program(t, program, &own);
    rn_program_destroy(program);
    rn_status s = gather_rows(t, &own, &rows);
    if (s == RN_OK && t->rank == 0) print_rank_rows(t, rows, stderr);
    free(rows);
    return s == RN_OK ? rn_error_restore(&error) : s;
}
