// run_ranks.c — ration run as one of several ranks: what they must have in common, and the table of
// what each has.
#include "rank_job.h"
#include "run.h"

#include <stdio.h>
#include <string.h>

// What each rank's plan follows from, as one text.
static void describe_options(const invocation *in, char *out, size_t bytes) {
    static const char *const names[] = {"ctx",         "kv",    "kv-page", "kv-pages", "chunk",
                                        "activations", "exact", "audit",   "split"};
    size_t used = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && used < bytes; i++) {
        const rn_option *o = rn_option_find((rn_str){names[i], strlen(names[i])});
        const rn_settings *s = in->settings;
        if (!o) continue;
        used += (size_t)snprintf(out + used, bytes - used, "%s--%s ", used ? " " : "", names[i]);
        if (used >= bytes) return;
        if (o->type == RN_OPTION_BOOL)
            used += (size_t)snprintf(out + used, bytes - used, "%d", rn_settings_bool(s, names[i]));
        else if (o->type == RN_OPTION_COUNT)
            used += (size_t)snprintf(out + used, bytes - used, "%llu",
                                     (unsigned long long)rn_settings_count(s, names[i]));
        else
            used += (size_t)snprintf(out + used, bytes - used, "%s", rn_settings_text(s, names[i]));
    }
}

rn_status open_model_ranks(const invocation *in, rn_comm **out) {
    char text[256] = "";
    *out = NULL;
    if (!has_ranks()) return RN_OK;
    RN_TRY(open_ranks(in, out));
    describe_options(in, text, sizeof text);
    rn_comm_item items[] = {{"the options", text}};
    rn_status s = rn_comm_compare(*out, items, 1);
    if (s == RN_OK) return RN_OK;
    s = close_ranks(*out, s);
    *out = NULL;
    return s;
}

// ---- the table ----------------------------------------------------------------------------------

static uint64_t of_others(const rn_rank_share *s) {
    uint64_t rest = s->planned_bytes;
    const rn_purpose named[] = {RN_PURPOSE_WEIGHTS, RN_PURPOSE_KV, RN_PURPOSE_ACTIVATIONS};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        rest -= s->purpose_bytes[named[i]];
    return rest;
}

static void print_share(FILE *file, const rn_rank_share *s, uint32_t count) {
    char blocks[72], budget[40] = "none";
    snprintf(blocks, sizeof blocks, "%s%s%s", s->first_name,
             s->end_block - s->first_block > 1 ? " to " : "",
             s->end_block - s->first_block > 1 ? s->last_name : "");
    if (s->split == RN_SPLIT_HEADS) snprintf(blocks, sizeof blocks, "1/%u of each", count);
    if (s->budget_bytes != RN_NO_LIMIT)
        snprintf(budget, sizeof budget, "%s", rn_size_format(s->budget_bytes).text);
    fprintf(file, "%4u  %-24s%-8s", s->rank, blocks, s->device);
    if (s->status != RN_OK)
        fprintf(file, "%12s%12s%12s%12s%12s%12s  no\n", "-", "-", "-", "-", budget,
                rn_size_format(s->smallest_budget_bytes).text);
    else
        fprintf(file, "%12s%12s%12s%12s%12s%12s  yes%s%s%s\n",
                rn_size_format(s->purpose_bytes[RN_PURPOSE_WEIGHTS]).text,
                rn_size_format(s->purpose_bytes[RN_PURPOSE_KV]).text,
                rn_size_format(s->purpose_bytes[RN_PURPOSE_ACTIVATIONS]).text,
                rn_size_format(of_others(s)).text, budget,
                rn_size_format(s->smallest_budget_bytes).text, s->streamed_bytes ? ", " : "",
                s->streamed_bytes ? rn_size_format(s->streamed_bytes).text : "",
                s->streamed_bytes ? " read in each run" : "");
}

void print_shares(FILE *file, const rn_rank_share *shares, uint32_t count) {
    fprintf(file, "%4s  %-24s%-8s%12s%12s%12s%12s%12s%12s  fits\n", "rank", "blocks", "device",
            "weights", "kv", "activations", "other", "budget", "smallest");
    for (uint32_t r = 0; r < count; r++)
        print_share(file, &shares[r], count);
}

void write_shares(rn_json *json, const char *key, const rn_rank_share *shares, uint32_t count) {
    rn_json_array(json, key);
    for (uint32_t r = 0; r < count; r++) {
        const rn_rank_share *s = &shares[r];
        rn_json_object(json, NULL);
        rn_json_u64(json, "rank", s->rank);
        rn_json_string(json, "split", s->split == RN_SPLIT_HEADS ? "heads" : "layers");
        rn_json_bool(json, "fits", s->status == RN_OK);
        rn_json_u64(json, "first_block", s->first_block);
        rn_json_u64(json, "end_block", s->end_block);
        rn_json_string(json, "first_block_name", s->first_name);
        rn_json_string(json, "last_block_name", s->last_name);
        rn_json_string(json, "device", s->device);
        rn_json_u64(json, "budget_bytes", s->budget_bytes == RN_NO_LIMIT ? 0 : s->budget_bytes);
        rn_json_u64(json, "smallest_budget_bytes", s->smallest_budget_bytes);
        rn_json_u64(json, "planned_bytes", s->planned_bytes);
        rn_json_u64(json, "streamed_bytes", s->streamed_bytes);
        rn_json_u64(json, "rows", s->rows);
        rn_json_f64(json, "prefill_seconds", s->prefill_seconds);
        rn_json_f64(json, "decode_seconds", s->decode_seconds);
        rn_json_object(json, "purposes");
        for (int i = 0; i < RN_PURPOSE_COUNT; i++)
            if (s->purpose_bytes[i])
                rn_json_u64(json, rn_purpose_name((rn_purpose)i), s->purpose_bytes[i]);
        rn_json_end(json);
        rn_json_end(json);
    }
    rn_json_end(json);
}

// Of rank 0, where it is not part of what the opening says: the job is refused.
void hear_shares(void *self, const rn_rank_share *shares, uint32_t count) {
    const runner *r = self;
    bool fits = true;
    for (uint32_t i = 0; i < count; i++)
        fits = fits && shares[i].status == RN_OK;
    if (!fits && rn_comm_rank(r->comm) == 0) print_shares(stderr, shares, count);
}
