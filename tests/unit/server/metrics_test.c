// labels: threads alone
// The text of /metrics is read by a strict parser: every line is HELP, TYPE or a sample; families
// come once, with HELP and TYPE before their samples; names and labels are lawful; histograms rise.
#include "fake_engine.h"

#include "base/clock.h"

#include <ctype.h>
#include <math.h>
#include <pthread.h>

// ---- a strict parser ----------------------------------------------------------------------------

enum { MOST = 512 };

typedef struct sample {
    char name[128], labels[256]; // labels as they stand
    double value;
} sample;

typedef struct family {
    char name[128], type[16];
    size_t first, count; // samples
} family;

static struct {
    sample samples[MOST];
    family families[MOST];
    size_t sample_count, family_count;
} seen;

static const char *read_name(const char *at, char out[128]) {
    size_t bytes = 0;
    assert_true(isalpha((unsigned char)*at) || *at == '_' || *at == ':');
    while (isalnum((unsigned char)at[bytes]) || at[bytes] == '_' || at[bytes] == ':')
        bytes++;
    assert_true(bytes < 128);
    memcpy(out, at, bytes);
    out[bytes] = '\0';
    return at + bytes;
}

// "name="value",..." up to the closing brace; only \\ \" \n are escapes.
static const char *read_labels(const char *at) {
    char name[128];
    for (;;) {
        at = read_name(at, name);
        assert_true(at[0] == '=' && at[1] == '"');
        for (at += 2; *at != '"'; at++) {
            assert_true(*at != '\n' && *at);
            if (*at == '\\') {
                at++;
                assert_true(*at == '\\' || *at == '"' || *at == 'n');
            }
        }
        if (*++at == '}') return at + 1;
        assert_int_equal(',', *at++);
    }
}

static void read_sample(const char *line) {
    assert_true(seen.sample_count < MOST && seen.family_count);
    sample *s = &seen.samples[seen.sample_count++];
    family *f = &seen.families[seen.family_count - 1];
    char *end;
    const char *at = read_name(line, s->name), *labels = at;
    if (*at == '{') at = read_labels(at + 1);
    assert_true((size_t)(at - labels) < sizeof s->labels);
    memcpy(s->labels, labels, (size_t)(at - labels));
    assert_int_equal(' ', *at);
    s->value = strtod(at + 1, &end);
    assert_true(end > at + 1 && *end == '\0' && isfinite(s->value));
    size_t bytes = strlen(f->name);
    assert_int_equal(0, strncmp(s->name, f->name, bytes));
    if (strcmp(f->type, "histogram") == 0)
        assert_true(strcmp(s->name + bytes, "_bucket") == 0 ||
                    strcmp(s->name + bytes, "_sum") == 0 || strcmp(s->name + bytes, "_count") == 0);
    else
        assert_string_equal("", s->name + bytes);
    f->count++;
}

static void read_help(const char *line) {
    char name[128];
    const char *at = read_name(line, name);
    assert_true(*at == ' ' && at[1] && at[strlen(at) - 1] == '.');
    for (size_t i = 0; i < seen.family_count; i++)
        assert_string_not_equal(name, seen.families[i].name);
    assert_true(seen.family_count < MOST);
    family *f = &seen.families[seen.family_count++];
    *f = (family){.first = seen.sample_count};
    strcpy(f->name, name);
}

static void read_type(const char *line) {
    char name[128];
    family *f = &seen.families[seen.family_count - 1];
    const char *at = read_name(line, name);
    assert_string_equal(f->name, name);
    assert_true(strcmp(at, " counter") == 0 || strcmp(at, " gauge") == 0 ||
                strcmp(at, " histogram") == 0);
    assert_int_equal(0, f->count);
    strcpy(f->type, at + 1);
    if (strcmp(f->type, "counter") == 0)
        assert_string_equal("_total", name + strlen(name) - strlen("_total"));
}

static void read_text(char *text) {
    size_t bytes = strlen(text);
    memset(&seen, 0, sizeof seen);
    assert_true(bytes > 0 && text[bytes - 1] == '\n');
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "# HELP ", 7) == 0)
            read_help(line + 7);
        else if (strncmp(line, "# TYPE ", 7) == 0)
            read_type(line + 7);
        else
            read_sample(line);
    }
}

static const sample *find(const char *name, const char *labels) {
    const sample *found = NULL;
    for (size_t i = 0; i < seen.sample_count; i++) {
        const sample *s = &seen.samples[i];
        if (strcmp(s->name, name) != 0 || strcmp(s->labels, labels) != 0) continue;
        assert_null(found); // a sample comes once
        found = s;
    }
    if (!found) fail_msg("there is no %s%s", name, labels);
    return found;
}

static double value(const char *name, const char *labels) {
    return find(name, labels)->value;
}

static void read_metrics(rn_server *server) {
    rn_http_answer answer = fake_ask(server, rn_handle_metrics, "/metrics", "");
    assert_string_equal("text/plain; version=0.0.4; charset=utf-8", answer.type);
    read_text(answer.body.data);
    rn_buffer_free(&answer.body);
}

// ---- tests --------------------------------------------------------------------------------------

static rn_server server;

static void the_text_is_well_formed_and_complete(void **state) {
    (void)state;
    fake_begin(&server);
    server.metrics.connections_now = 3;
    rn_metrics_add(&server.metrics, RN_COUNT_REQUESTS, 5);
    rn_metrics_add(&server.metrics, RN_COUNT_REFUSED_429, 2);
    fake.facts.running = 4;
    fake.facts.generator.kv_pages_total = 64;
    fake.facts.generator.kv_pages = 7;
    fake.facts.predicted_bytes = 1 << 30;
    fake.facts.budget_bytes = (uint64_t)2 << 30;
    read_metrics(&server);
    for (size_t i = 0; i < seen.family_count; i++)
        if (seen.families[i].count == 0) fail_msg("%s has no sample", seen.families[i].name);
    assert_true(value("ration_requests_total", "") == 5);
    assert_true(value("ration_requests_refused_total", "{code=\"429\"}") == 2);
    assert_true(value("ration_requests_refused_total", "{code=\"4xx\"}") == 0);
    assert_true(value("ration_requests_running", "") == 4);
    assert_true(value("ration_connections", "") == 3);
    assert_true(value("ration_kv_pages_used", "") == 7);
    assert_true(value("ration_kv_pages_max", "") == 64);
    assert_true(value("ration_ready", "") == 1);
    assert_true(value("ration_start_time_seconds", "") == 1700000000);
    assert_true(value("ration_memory_predicted_peak_bytes", "") == 1 << 30);
    assert_true(value("ration_memory_budget_bytes", "{device=\"host\"}") == 2147483648.0);
    assert_true(value("ration_resident_bytes", "") > 0);
}

static void names_may_hold_anything(void **state) {
    (void)state;
    fake_begin(&server);
    fake.name = "a \"quoted\" \\ back\nline \xff byte, \xc3\xbc";
    fake.facts.target_index = 1;
    read_metrics(&server);
    const sample *info = &seen.samples[0];
    assert_string_equal("ration_info", info->name);
    assert_string_equal(",model=\"a \\\"quoted\\\" \\\\ back\\nline \xEF\xBF\xBD byte, \xc3\xbc\","
                        "device=\"cpu\",target_index=\"1\"}",
                        strstr(info->labels, ",model"));
}

static void the_ledger_is_told_by_device_and_purpose(void **state) {
    (void)state;
    rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_KV, NULL};
    fake_begin(&server);
    rn_ledger_charge(account, &server, 12345);
    read_metrics(&server);
    assert_true(value("ration_memory_bytes", "{device=\"host\",purpose=\"kv\"}") == 12345);
    rn_ledger_release(account, &server, 12345);
    read_metrics(&server);
    assert_true(value("ration_memory_bytes", "{device=\"host\",purpose=\"kv\"}") == 0);
    assert_true(value("ration_memory_peak_bytes", "{device=\"host\",purpose=\"kv\"}") == 12345);
    assert_true(value("ration_memory_device_peak_bytes", "{device=\"host\"}") >= 12345);
}

static void a_time_is_in_every_bucket_from_its_own_on(void **state) {
    (void)state;
    fake_begin(&server);
    rn_metrics_time(&server.metrics, RN_SPAN_FIRST, 1000000);      // 1 ms: the bound belongs to it
    rn_metrics_time(&server.metrics, RN_SPAN_FIRST, 40000000);     // 40 ms
    rn_metrics_time(&server.metrics, RN_SPAN_FIRST, 500000000000); // beyond all
    read_metrics(&server);
    const char *name = "ration_time_to_first_token_seconds_bucket";
    assert_true(value(name, "{le=\"0.001\"}") == 1);
    assert_true(value(name, "{le=\"0.03\"}") == 1);
    assert_true(value(name, "{le=\"0.05\"}") == 2);
    assert_true(value(name, "{le=\"120\"}") == 2);
    assert_true(value(name, "{le=\"+Inf\"}") == 3);
    assert_true(value("ration_time_to_first_token_seconds_count", "") == 3);
    assert_true(fabs(value("ration_time_to_first_token_seconds_sum", "") - 500.041) < 1e-6);
    assert_true(value("ration_queue_seconds_count", "") == 0);
}

static void buckets_rise_from_a_millisecond_to_two_minutes(void **state) {
    (void)state;
    assert_true(rn_bucket_seconds[0] == .001 && rn_bucket_seconds[RN_BUCKETS - 2] == 120);
    for (size_t i = 1; i < RN_BUCKETS - 1; i++)
        assert_true(rn_bucket_seconds[i] > rn_bucket_seconds[i - 1]);
}

static void a_rate_is_of_the_last_three_seconds(void **state) {
    (void)state;
    const uint64_t second = 1000000000, start = 1000 * second;
    rn_rate rate = {0};
    assert_true(rn_rate_get(&rate, start) == 0);
    for (uint64_t at = start; at < start + 3 * second; at += second / 10)
        rn_rate_add(&rate, at, 5);
    assert_true(rn_rate_get(&rate, start + 3 * second) == 50);
    assert_true(rn_rate_get(&rate, start + 6 * second) == 0);
    assert_true(rn_rate_get(&rate, start + 4 * second + second / 2) == 25);
    rn_rate_add(&rate, start + 7 * second, 6); // its slot had another number before
    assert_true(rn_rate_get(&rate, start + 7 * second + second / 4) == 2);
    assert_true(rn_rate_get(&rate, 0) == 0);
}

static void *count_for_a_while(void *self) {
    rn_metrics *metrics = self;
    for (int i = 0; i < 20000; i++) {
        rn_metrics_add(metrics, RN_COUNT_NEW_TOKENS, 1);
        rn_metrics_time(metrics, RN_SPAN_BETWEEN, (uint64_t)i * 1000);
    }
    return NULL;
}

static void nothing_is_lost_between_threads(void **state) {
    (void)state;
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    fake_begin(&server);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(0, pthread_create(&threads[i], NULL, count_for_a_while, &server.metrics));
    read_metrics(&server); // well-formed while others count
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    read_metrics(&server);
    assert_true(value("ration_generated_tokens_total", "") == THREADS * 20000);
    assert_true(value("ration_time_between_tokens_seconds_count", "") == THREADS * 20000);
}

static void a_full_buffer_is_a_status(void **state) {
    (void)state;
    fake_begin(&server);
    rn_http_request request = {.method = "GET", .path = "/metrics"};
    rn_http_answer answer = {.file = -1};
    rn_buffer_init(&answer.body, RN_HOST_IO, 1000);
    assert_int_not_equal(RN_OK, rn_handle_metrics(&server, &request, &answer));
    rn_buffer_free(&answer.body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_is_well_formed_and_complete),
        cmocka_unit_test(names_may_hold_anything),
        cmocka_unit_test(the_ledger_is_told_by_device_and_purpose),
        cmocka_unit_test(a_time_is_in_every_bucket_from_its_own_on),
        cmocka_unit_test(buckets_rise_from_a_millisecond_to_two_minutes),
        cmocka_unit_test(a_rate_is_of_the_last_three_seconds),
        cmocka_unit_test(nothing_is_lost_between_threads),
        cmocka_unit_test(a_full_buffer_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
