// serve_ask.h — what a load generator is told to do, and the requests it makes of that: prompts of
// short English words, as HTTP. For serve_bench.c.
#ifndef RN_BENCH_SERVE_ASK_H
#define RN_BENCH_SERVE_ASK_H

#include "base/buffer.h"

#include "base/json.h"

#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BODY_CAP_BYTES = 1 << 20 };

typedef struct settings {
    const char *host, *port, *path, *key, *fields;
    uint64_t streams, requests, tokens, words, shared, stagger_ms, pause_ms, timeout_s;
    uint64_t seconds; // 0: as many requests as said, however long they take
    uint64_t idle, slow, drop, seed;
    rn_buffer prompt; // from a file; empty: made of words
    bool is_whole;    // one JSON text instead of events
    bool must_complete, must_fill, as_json;
} settings;

static inline void die(const char *what) {
    fprintf(stderr, "serve_bench: %s\n", what);
    exit(2);
}

static inline void must(rn_status s) {
    if (s != RN_OK) die(rn_last_error()->message);
}

// ---- requests -----------------------------------------------------------------------------------

// One token each in most vocabularies.
static const char *const words[] = {
    "time",  "year",  "people", "way",    "day",   "man",    "thing", "woman",
    "life",  "child", "world",  "house",  "state", "family", "night", "point",
    "home",  "water", "room",   "mother", "area",  "money",  "story", "fact",
    "month", "book",  "eye",    "job",    "word",  "side",   "kind",  "head"};
enum { WORDS = sizeof words / sizeof *words };

static inline uint64_t next_random(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline void put(rn_buffer *text, const char *more) {
    must(rn_buffer_append(text, more, strlen(more)));
}

static inline void put_prompt(const settings *set, uint64_t number, rn_buffer *out) {
    uint64_t common = set->seed, own = set->seed + (number + 1) * 1000003;
    for (uint64_t i = 0; i < set->words; i++) {
        if (i > 0) put(out, " ");
        put(out, words[next_random(i < set->shared ? &common : &own) % WORDS]);
    }
}

static inline void put_json_text(rn_buffer *out, rn_str text) {
    rn_json json;
    rn_json_begin(&json, rn_buffer_sink(out), false);
    rn_json_text(&json, NULL, text);
    must(rn_json_finish(&json));
}

static inline void put_body(const settings *set, uint64_t number, rn_buffer *out) {
    char rest[160];
    rn_buffer prompt;
    rn_buffer_init(&prompt, &rn_system_allocator, BODY_CAP_BYTES);
    if (set->prompt.bytes == 0) put_prompt(set, number, &prompt);
    rn_str text = {prompt.data, prompt.bytes};
    if (set->prompt.bytes > 0) text = (rn_str){set->prompt.data, set->prompt.bytes};
    put(out, "{");
    if (set->fields) put(out, set->fields), put(out, ",");
    put(out, "\"prompt\":");
    put_json_text(out, text);
    snprintf(rest, sizeof rest, ",\"max_tokens\":%llu,\"temperature\":0%s}",
             (unsigned long long)set->tokens,
             set->is_whole ? "" : ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    put(out, rest);
    rn_buffer_free(&prompt);
}

// The whole request, head and body, in the place of what the buffer held.
static inline void make_request(const settings *set, uint64_t number, rn_buffer *out) {
    char head[1024];
    rn_buffer body;
    rn_buffer_init(&body, &rn_system_allocator, 2 * (size_t)BODY_CAP_BYTES);
    put_body(set, number, &body);
    snprintf(head, sizeof head,
             "POST %s HTTP/1.1\r\nHost: %s:%s\r\nContent-Type: application/json\r\n"
             "%s%s%sContent-Length: %zu\r\n\r\n",
             set->path, set->host, set->port, set->key ? "Authorization: Bearer " : "",
             set->key ? set->key : "", set->key ? "\r\n" : "", body.bytes);
    out->bytes = 0;
    put(out, head);
    must(rn_buffer_append(out, body.data, body.bytes));
    rn_buffer_free(&body);
}

// ---- options ------------------------------------------------------------------------------------

static const char usage[] =
    "usage: serve_bench HOST:PORT [options]\n\n"
    "  --streams N       requests at once [8]\n"
    "  --requests N      in all [4 a stream]\n"
    "  --for SECONDS     begin requests for so long instead\n"
    "  --tokens N        max_tokens of each [64]\n"
    "  --words N         words of a prompt, other ones for each request [64]\n"
    "  --shared N        the first N words are the same in all [0]\n"
    "  --seed N          other words [1]\n"
    "  --prompt FILE     this prompt for all\n"
    "  --stagger MS      each stream begins so much later than the one before [0]\n"
    "  --pause MS        a stream's pause after a refusal or failure [100]\n"
    "  --timeout SECONDS without a token: late [120]\n"
    "  --path PATH       [/v1/completions]\n"
    "  --key KEY         sent as a bearer token\n"
    "  --fields JSON     more fields of the request: '\"ignore_eos\":true'\n"
    "  --whole           no stream: one JSON text an answer\n"
    "  --idle N          hold so many connections that ask nothing\n"
    "  --slow N          so many clients that read a byte a second\n"
    "  --drop N          every Nth request hangs up after its first token\n"
    "  --expect-complete fail unless all answers are complete, or refused with 429\n"
    "                    (and Retry-After) or 503\n"
    "  --expect-full     fail unless all complete answers have max_tokens tokens\n"
    "  --json            one JSON object instead of lines\n";

typedef struct option_row {
    const char *name;
    char kind; // n: number, s: text, b: switch, p: the prompt's file
    size_t offset;
} option_row;

static const option_row rows[] = {
    {"streams", 'n', offsetof(settings, streams)},
    {"requests", 'n', offsetof(settings, requests)},
    {"for", 'n', offsetof(settings, seconds)},
    {"tokens", 'n', offsetof(settings, tokens)},
    {"words", 'n', offsetof(settings, words)},
    {"shared", 'n', offsetof(settings, shared)},
    {"seed", 'n', offsetof(settings, seed)},
    {"prompt", 'p', offsetof(settings, prompt)},
    {"stagger", 'n', offsetof(settings, stagger_ms)},
    {"pause", 'n', offsetof(settings, pause_ms)},
    {"timeout", 'n', offsetof(settings, timeout_s)},
    {"path", 's', offsetof(settings, path)},
    {"key", 's', offsetof(settings, key)},
    {"fields", 's', offsetof(settings, fields)},
    {"whole", 'b', offsetof(settings, is_whole)},
    {"idle", 'n', offsetof(settings, idle)},
    {"slow", 'n', offsetof(settings, slow)},
    {"drop", 'n', offsetof(settings, drop)},
    {"expect-complete", 'b', offsetof(settings, must_complete)},
    {"expect-full", 'b', offsetof(settings, must_fill)},
    {"json", 'b', offsetof(settings, as_json)},
};
enum { ROWS = sizeof rows / sizeof *rows };

static inline void read_prompt(const char *path, rn_buffer *out) {
    FILE *file = fopen(path, "rb");
    char bytes[4096];
    if (!file) die("the prompt's file cannot be read");
    for (size_t got; (got = fread(bytes, 1, sizeof bytes, file)) > 0;)
        must(rn_buffer_append(out, bytes, got));
    fclose(file);
}

static inline void set_option(settings *set, const option_row *row, const char *value) {
    char *field = (char *)set + row->offset, *end = NULL;
    if (row->kind == 'b') *(bool *)field = true;
    if (row->kind == 's') *(const char **)field = value;
    if (row->kind == 'p') read_prompt(value, (rn_buffer *)field);
    if (row->kind != 'n') return;
    *(uint64_t *)field = strtoull(value, &end, 10);
    if (end == value || *end) die("an option wants a number");
}

static inline void split_address(settings *set, char *text) {
    char *colon = strrchr(text, ':');
    if (!colon) die("the server is HOST:PORT");
    *colon = '\0';
    set->host = text;
    set->port = colon + 1;
}

static inline settings read_options(int argc, char **argv) {
    settings set = {.path = "/v1/completions",
                    .streams = 8,
                    .tokens = 64,
                    .words = 64,
                    .pause_ms = 100,
                    .timeout_s = 120,
                    .seed = 1};
    struct option options[ROWS + 1] = {0};
    rn_buffer_init(&set.prompt, &rn_system_allocator, BODY_CAP_BYTES);
    for (int i = 0; i < ROWS; i++)
        options[i] = (struct option){rows[i].name, rows[i].kind != 'b', NULL, i};
    int row = 0, got;
    while ((got = getopt_long(argc, argv, "", options, &row)) != -1) {
        if (got == '?') die(usage);
        set_option(&set, &rows[got], optarg);
    }
    if (optind != argc - 1) die(usage);
    split_address(&set, argv[optind]);
    if (set.requests == 0) set.requests = 4 * set.streams;
    return set;
}

#endif
