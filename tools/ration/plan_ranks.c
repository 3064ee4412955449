// plan_ranks.c — ration plan --ranks N: the plan of one rank carried over to N of them by a model
// of the network, with what that model takes for granted.
#include "rank_job.h"
#include "run.h"

#include <ration/ranks.h>

#include <stdio.h>
#include <stdlib.h>

static void print_row(const rn_ranks_row *row, bool text, uint64_t room_bytes) {
    if (!row->possible) {
        printf("%-24s not possible: %s\n", row->name, row->why);
        return;
    }
    printf("%-24s%12s%12s%12s%12s", row->name, rn_size_format(row->rank_bytes).text,
           rn_size_format(row->traffic_bytes).text, rn_time_format(row->seconds).text,
           rn_time_format(row->least_seconds).text);
    if (text) printf("%12s", rn_time_format(row->prompt_seconds).text);
    printf("  %s\n", row->rank_bytes <= room_bytes ? "yes" : "no");
}

static void print_assumptions(const rn_link *link, bool text) {
    printf(
        "\nAssumed: every rank is like this machine; a link of %s a message and %s a second each "
        "way,\nthe same between all, nobody else on it, collectives as a %s. ",
        rn_time_format(link->latency_seconds).text,
        rn_size_format((uint64_t)link->bytes_per_second).text,
        link->topology == RN_TOPOLOGY_TREE ? "tree" : "ring");
    if (text)
        printf("All weights of a rank\nare resident, layers are alike. \"a token\": of one "
               "sequence; \"at "
               "best\": in a pipeline, with as many\nsequences as ranks.\n");
    else
        printf(
            "Each rank takes\nthe batch of this plan: N ranks take N times as much. All weights "
            "are trained; their gradients are\nheld until reduced. \"a step\": nothing overlaps; "
            "\"at best\": all communication behind computing.\n");
}

static void print_rows(const rn_ranks_row *rows, uint32_t count, const rn_link *link, bool text,
                       uint32_t ranks, uint64_t room_bytes) {
    printf("%u rank%s, on paper\n\n%-24s%12s%12s%12s%12s%s  fits\n", ranks, ranks > 1 ? "s" : "",
           "", "a rank", "it sends", text ? "a token" : "a step", "at best",
           text ? "    a prompt" : "");
    for (uint32_t i = 0; i < count; i++)
        print_row(&rows[i], text, room_bytes);
    print_assumptions(link, text);
}

// What each rank of a pipeline would really have (NULL: not known).
typedef struct parts {
    rn_rank_share *shares; // (count)
    uint32_t count;
    rn_error_info why_not; // where there are none
} parts;

static void print_parts(const parts *p) {
    if (p->shares) {
        printf("\nAs ration run would divide it over ranks like this process:\n\n");
        print_shares(stdout, p->shares, p->count);
    } else if (p->why_not.status != RN_OK) {
        printf("\nration run cannot divide it so: %s\n", p->why_not.message);
    }
}

static rn_status write_rows(const rn_ranks_row *rows, uint32_t count, const rn_link *link,
                            const parts *p, uint32_t ranks, uint64_t room_bytes) {
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), true);
    rn_json_object(&json, NULL);
    rn_json_u64(&json, "ranks", ranks);
    rn_json_u64(&json, "room_bytes", room_bytes);
    rn_json_f64(&json, "link_latency_seconds", link->latency_seconds);
    rn_json_f64(&json, "link_bytes_per_second", link->bytes_per_second);
    rn_json_string(&json, "topology", link->topology == RN_TOPOLOGY_TREE ? "tree" : "ring");
    rn_json_array(&json, "ways");
    for (uint32_t i = 0; i < count; i++) {
        rn_json_object(&json, NULL);
        rn_json_string(&json, "name", rows[i].name);
        rn_json_bool(&json, "possible", rows[i].possible);
        rn_json_string(&json, "why", rows[i].why);
        rn_json_u64(&json, "rank_bytes", rows[i].rank_bytes);
        rn_json_u64(&json, "traffic_bytes", rows[i].traffic_bytes);
        rn_json_f64(&json, "seconds", rows[i].seconds);
        rn_json_f64(&json, "least_seconds", rows[i].least_seconds);
        rn_json_f64(&json, "prompt_seconds", rows[i].prompt_seconds);
        rn_json_bool(&json, "fits", rows[i].possible && rows[i].rank_bytes <= room_bytes);
        rn_json_end(&json);
    }
    rn_json_end(&json);
    if (p->shares) write_shares(&json, "shares", p->shares, p->count);
    if (p->why_not.status != RN_OK) rn_json_string(&json, "no_shares", p->why_not.message);
    rn_json_end(&json);
    return rn_json_finish(&json);
}

// What stands in the way is part of the answer, but for memory.
static rn_status find_parts(const rn_model *model, const rn_generator_options *each, uint32_t ranks,
                            parts *out) {
    enum { MOST_RANKS = 1024 };
    *out = (parts){0};
    if (!model || ranks > MOST_RANKS) return RN_OK;
    out->shares = calloc(ranks, sizeof *out->shares);
    if (!out->shares) return rn_fail(RN_NO_MEMORY, "no memory");
    rn_status s = rn_generator_predict_shares(model, each, ranks, out->shares);
    out->count = ranks;
    if (s == RN_OK) return RN_OK;
    out->why_not = *rn_last_error();
    free(out->shares);
    out->shares = NULL;
    return s == RN_INVALID || s == RN_UNSUPPORTED ? RN_OK : s;
}

rn_status show_ranks(const invocation *in, const rn_plan *plan, const rn_model *model,
                     const rn_generator_options *each, uint64_t room_bytes) {
    uint32_t ranks = (uint32_t)rn_settings_count(in->settings, "ranks");
    rn_ranks_row rows[RN_RANKS_TRAIN_ROWS] = {0};
    uint32_t count = model ? RN_RANKS_TEXT_ROWS : RN_RANKS_TRAIN_ROWS;
    rn_link link;
    parts p;
    RN_TRY(rn_link_parse(rn_settings_text(in->settings, "link"), &link));
    if (model) {
        const rn_model_info *m = rn_model_get_info(model);
        rn_text_shape shape = {m->dim, m->ffn, m->layers, m->heads, m->kv_heads};
        RN_TRY(rn_ranks_for_text(plan, &shape, &link, ranks, rows));
    } else {
        RN_TRY(rn_ranks_for_training(plan, &link, ranks, rows));
    }
    RN_TRY(find_parts(model, each, ranks, &p));
    rn_status s = RN_OK;
    if (in->json)
        s = write_rows(rows, count, &link, &p, ranks, room_bytes);
    else
        print_rows(rows, count, &link, model, ranks, room_bytes), print_parts(&p);
    free(p.shares);
    return s;
}
