// Training data: every form of a sample, what of it is learned, what is wrong with it by line; its
// file is made once; sequences hold every sample once.
#include "support.h"

#include <ration/memory.h>
#include <ration/train_data.h>

#include <dirent.h>

enum { TOKENS = 64, MOST = 16 };

static rn_tokenizer *tokenizer;

static int open_tokenizer(void **state) {
    (void)state;
    return rn_tokenizer_open("models/default", &tokenizer) != RN_OK;
}

static int close_tokenizer(void **state) {
    (void)state;
    rn_tokenizer_close(tokenizer);
    return 0;
}

#define CHAT                                                                                       \
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"                          \
    "{% if add_generation_prompt %}[assistant]{% endif %}"
// An answer changes once another one follows.
#define REWRITES "{% for m in messages %}{{ m.content if loop.last else 'x' }} {% endfor %}"

static rn_train_data_options options_with(const char *chat_template) {
    return (rn_train_data_options){.tokenizer = tokenizer,
                                   .chat_template = {chat_template, strlen(chat_template)},
                                   .tokens = TOKENS,
                                   .seed = 3};
}

static rn_status open_text(const char *text, const rn_train_data_options *o, rn_train_data **out) {
    test_write(test_own_path("data.jsonl"), text, strlen(text));
    return rn_train_data_open(test_own_path("data.jsonl"), o, out);
}

static void decode(const int32_t *ids, size_t count, char *out, size_t bytes) {
    out[0] = 0;
    for (size_t i = 0; i < count; i++) {
        rn_str text = rn_tokenizer_bytes(tokenizer, (uint32_t)ids[i], false);
        snprintf(out + strlen(out), bytes - strlen(out), "%.*s", RN_STR_ARG(text));
    }
}

// The text of all targets of the only sequence.
static void expect_learned(const char *line, const char *must) {
    rn_train_data_options o = options_with(CHAT);
    rn_train_data *data = NULL;
    int32_t tokens[TOKENS], targets[TOKENS], documents[TOKENS], learned[TOKENS];
    char text[1024];
    size_t count = 0;
    assert_ok(open_text(line, &o, &data));
    assert_int_equal(rn_train_data_get_info(data)->sequences, 1);
    assert_ok(rn_train_data_batch(data, RN_DATA_TRAIN, 0, 1, tokens, targets, documents));
    for (int i = 0; i < TOKENS; i++) {
        if (targets[i] == -100) continue;
        assert_int_equal(targets[i], tokens[i + 1]);
        learned[count++] = targets[i];
    }
    decode(learned, count, text, sizeof text);
    if (!strstr(text, must) || strlen(text) > strlen(must) + 2)
        fail_msg("'%s' is learned of %s", text, line);
    rn_train_data_close(data);
}

static void the_answers_are_learned(void **state) {
    (void)state;
    expect_learned("{\"text\": \"Tom saw a red bird.\"}\n", "Tom saw a red bird.");
    expect_learned("{\"prompt\": \"Tom saw\", \"completion\": \" a red bird.\"}", " a red bird.");
    expect_learned("\n{\"messages\": [{\"role\": \"user\", \"content\": \"Tom?\"}, {\"role\": "
                   "\"assistant\", \"content\": \"He saw a bird.\"}]}\n",
                   " He saw a bird.");
    expect_learned("{\"id\": {\"n\": [1]}, \"conversations\": [{\"from\": \"human\", \"value\": "
                   "\"Tom?\"}, {\"from\": \"gpt\", \"value\": \"He ran.\"}]}",
                   " He ran.");
    expect_learned("{\"instruction\": \"Tell.\", \"input\": \"Tom\", \"output\": \"He sat.\"}",
                   " He sat.");
}

// ---- as transformers has it ---------------------------------------------------------------------

// The numbers of a list in a line of JSON, which begins behind `key`.
static size_t read_list(const char *line, const char *key, int32_t *out) {
    const char *at = strstr(line, key);
    size_t count = 0;
    assert_non_null(at);
    for (at += strlen(key); *at != ']' && count < TOKENS; at += *at == ',') {
        char *end;
        out[count++] = (int32_t)strtol(at, &end, 10);
        at = end;
    }
    return count;
}

// Ids and masks of apply_chat_template (scripts/reference/data_golden.py), with and without its
// marks of answers.
static void chats_are_those_of_transformers(void **state) {
    (void)state;
#define GOLDEN(SAYS)                                                                               \
    "{% for m in messages %}[{{ m['role'] }}]" SAYS "{% endfor %}"                                 \
    "{% if add_generation_prompt %}[assistant]{% endif %}"
    static const char *const templates[] = {
        GOLDEN(" {{ m['content'] }}"),
        GOLDEN("{% if m['role'] == 'assistant' %}{% generation %} {{ m['content'] }}"
               "{% endgeneration %}{% else %} {{ m['content'] }}{% endif %}")};
    size_t bytes = 0;
    char *text = test_read("tests/golden/train_chats.jsonl", &bytes);
    text[bytes - 1] = 0;
    for (int i = 0; i < 2; i++) {
        rn_train_data_options o = options_with(templates[i]);
        rn_train_data *data;
        int32_t tokens[TOKENS], targets[TOKENS], documents[TOKENS], ids[TOKENS], mask[TOKENS];
        size_t found = 0;
        o.unpacked = true;
        o.cache = test_own_folder;
        assert_ok(rn_train_data_open("tests/golden/train_chats.jsonl", &o, &data));
        assert_int_equal(rn_train_data_get_info(data)->sequences, 3);
        for (uint64_t n = 0; n < 3; n++) {
            assert_ok(rn_train_data_batch(data, RN_DATA_TRAIN, n, 1, tokens, targets, documents));
            for (const char *line = text; line; line = strchr(line, '\n')) {
                line += *line == '\n';
                size_t count = read_list(line, "\"ids\": [", ids);
                assert_int_equal(read_list(line, "\"mask\": [", mask), count);
                if (memcmp(ids, tokens, count * sizeof *ids) != 0) continue;
                for (size_t t = 0; t + 1 < count; t++)
                    assert_int_equal(targets[t], mask[t + 1] ? ids[t + 1] : -100);
                assert_int_equal(documents[count], count);
                found++;
            }
        }
        assert_int_equal(found, 3);
        rn_train_data_close(data);
    }
    free(text);
}

// Marks are heeded where rendering up to an answer would be refused, and may mark anything.
static void marks_of_the_template_come_first(void **state) {
    (void)state;
    static const char line[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Tom?\"}, "
                               "{\"role\": \"assistant\", \"content\": \"He ran.\"}]}";
    static const struct {
        const char *source, *learned, *refused;
    } rows[] = {
        {"{% for m in messages %}{{ m.content if not loop.last else '' }}{% generation %}"
         "{{ m.content if loop.last else '' }}{% endgeneration %} end{% endfor %}",
         "He ran.", NULL},
        {"{% macro say(m) %}{% generation %}{{ m.content }}{% endgeneration %}{% endmacro %}"
         "{% for m in messages %}{{ say(m) }}{% endfor %}",
         NULL, "in a macro"},
        {"{% set all %}{% generation %}{{ messages[1].content }}{% endgeneration %}{% endset %}"
         "{{ all }}",
         NULL, "in a macro"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rn_train_data_options o = options_with(rows[i].source);
        rn_train_data *data = NULL;
        int32_t tokens[TOKENS], targets[TOKENS], documents[TOKENS], learned[TOKENS];
        char text[256];
        size_t count = 0;
        rn_status s = open_text(line, &o, &data);
        if (rows[i].refused) {
            assert_int_equal(s, RN_UNSUPPORTED);
            assert_non_null(strstr(rn_last_error()->message, rows[i].refused));
            continue;
        }
        assert_ok(s);
        assert_ok(rn_train_data_batch(data, RN_DATA_TRAIN, 0, 1, tokens, targets, documents));
        for (int t = 0; t < TOKENS; t++)
            if (targets[t] != -100) learned[count++] = targets[t];
        decode(learned, count, text, sizeof text);
        assert_string_equal(text, rows[i].learned);
        rn_train_data_close(data);
    }
}

// ---- what is wrong ------------------------------------------------------------------------------

static void what_is_wrong_is_named_with_its_line(void **state) {
    (void)state;
#define GOOD          "{\"text\": \"Tom saw a bird.\"}\n"
#define M(ROLE, SAYS) "{\"role\": \"" ROLE "\", \"content\": \"" SAYS "\"}"
    static const struct {
        const char *text;
        rn_status status;
        const char *part;
    } cases[] = {
        {GOOD GOOD "{\"text\": \n", RN_CORRUPT, "line 3: "},
        {GOOD "[1]\n", RN_CORRUPT, "line 2: "},
        {GOOD "{\"text\": \"\xff\"}\n", RN_CORRUPT, "line 2: "},
        {GOOD "{\"text\": 7}\n", RN_INVALID, "line 2: 'text' is no text"},
        {"{\"body\": \"x\"}", RN_INVALID, "line 1: the line has no sample"},
        {"{\"messages\": [" M("assistant", "Hi") "]}", RN_INVALID, "answers nobody"},
        {"{\"messages\": [" M("user", "Hi") "," M("system", "Hi") "]}", RN_INVALID, "stands first"},
        {"{\"messages\": [" M("user", "Hi") "]}", RN_INVALID, "says nothing in this chat"},
        {"{\"messages\": [" M("user", "Hi") "," M("robot", "Hi") "]}", RN_INVALID,
         "message 2 is of 'robot'"},
        {"{\"messages\": [" M("user", "Hi") "," M("assistant", "") "]}", RN_INVALID,
         "message 2: the assistant says nothing"},
        {"{\"messages\": [" M("user", "a") "," M("assistant", "b") "," M("assistant", "c") "]}",
         RN_INVALID, "speaks twice"},
        {"{\"messages\": [{\"content\": \"Hi\"}]}", RN_INVALID, "has no role"},
        {"{\"messages\": [3]}", RN_INVALID, "is no object"},
        {"{\"prompt\": \"a\", \"completion\": \"\"}", RN_INVALID, "completion is empty"},
        {"\n\n", RN_INVALID, "nothing to learn"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rn_train_data_options o = options_with(CHAT);
        rn_train_data *data;
        assert_fails(cases[i].status, open_text(cases[i].text, &o, &data));
        if (!strstr(rn_last_error()->message, cases[i].part))
            fail_msg("case %zu: %s", i, rn_last_error()->message);
    }
    rn_train_data *data;
    rn_train_data_options o = options_with(REWRITES);
    assert_fails(
        RN_UNSUPPORTED,
        open_text("{\"messages\": [" M("user", "a") "," M("assistant", "b") "]}", &o, &data));
    o.chat_template = (rn_str){0};
    assert_fails(
        RN_UNSUPPORTED,
        open_text("{\"messages\": [" M("user", "a") "," M("assistant", "b") "]}", &o, &data));
}

// ---- lengths ------------------------------------------------------------------------------------

static void long_samples_go_where_they_are_told(void **state) {
    (void)state;
    static char text[4096] = GOOD "{\"text\": \"";
    for (int i = 0; i < 40; i++)
        strcat(text, "Tom saw a bird. ");
    strcat(text, "\"}\n");
    rn_train_data_options o = options_with(CHAT);
    rn_train_data *data;
    assert_fails(RN_INVALID, open_text(text, &o, &data));
    assert_non_null(strstr(rn_last_error()->message, "line 2: the sample has"));
    static const struct {
        rn_long_samples what;
        uint64_t truncated, dropped, split;
    } cases[] = {{RN_LONG_TRUNCATE, 1, 0, 0}, {RN_LONG_DROP, 0, 1, 0}, {RN_LONG_SPLIT, 0, 0, 1}};
    for (size_t i = 0; i < 3; i++) {
        o.too_long = cases[i].what;
        assert_ok(open_text(text, &o, &data));
        const rn_train_data_info *info = rn_train_data_get_info(data);
        assert_int_equal(info->truncated, cases[i].truncated);
        assert_int_equal(info->dropped, cases[i].dropped);
        assert_int_equal(info->split, cases[i].split);
        assert_true(info->longest > TOKENS);
        assert_int_equal(info->samples,
                         1 + cases[i].truncated +
                             (cases[i].split ? (info->longest + TOKENS - 1) / TOKENS : 0));
        rn_train_data_close(data);
    }
}

// ---- packing, and the file ----------------------------------------------------------------------

static void write_many(void) {
    static char text[1 << 16];
    text[0] = 0;
    for (int i = 0; i < 60; i++) {
        strcat(text, "{\"text\": \"");
        for (int n = 0; n <= i % 13; n++)
            snprintf(text + strlen(text), 32, "Tom saw %d. ", i);
        strcat(text, "\"}\n");
    }
    test_write(test_own_path("many.jsonl"), text, strlen(text));
}

static size_t count_files(void) {
    DIR *folder = opendir(test_own_folder);
    size_t count = 0;
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count - 2;
}

// Every sample is in one sequence, whole; an epoch has every sequence once.
static void sequences_hold_every_sample_once(void **state) {
    (void)state;
    rn_train_data_options o = options_with(CHAT);
    rn_train_data *data;
    int32_t tokens[TOKENS], targets[TOKENS], documents[TOKENS];
    uint64_t ledger = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    write_many();
    o.too_long = RN_LONG_TRUNCATE;
    o.validation = 0.2;
    for (int again = 0; again < 2; again++) {
        assert_ok(rn_train_data_open(test_own_path("many.jsonl"), &o, &data));
        const rn_train_data_info *info = rn_train_data_get_info(data);
        assert_int_equal(info->reused, again);
        assert_int_equal(info->samples + info->validation_samples, 60);
        assert_true(info->validation_samples > 4 && info->validation_samples < 24);
        uint64_t sums[2] = {0}, found[2] = {0};
        const uint64_t sequences[2] = {info->sequences, info->validation_sequences};
        for (rn_data_part part = RN_DATA_TRAIN; part <= RN_DATA_VALIDATION; part++)
            for (uint64_t i = 0; i < sequences[part]; i++) {
                assert_ok(rn_train_data_batch(data, part, i, 1, tokens, targets, documents));
                for (int t = 0; t < TOKENS; t++) {
                    assert_true(documents[t] <= t && (t == 0 || documents[t] >= documents[t - 1]));
                    bool last = t + 1 == TOKENS || documents[t + 1] != documents[t];
                    assert_true(!last || targets[t] == -100);
                    sums[part] += targets[t] != -100;
                    found[part] += documents[t] == t && targets[t] != -100;
                }
            }
        assert_int_equal(sums[0] + sums[1], info->targets);
        assert_int_equal(found[0], info->samples);
        assert_int_equal(found[1], info->validation_samples);
        // Best fit: less than one of the shortest samples' room is left on average.
        assert_true(info->sequences * TOKENS < 2 * info->tokens);
        rn_train_data_close(data);
    }
    assert_int_equal(count_files(), 2);
    o.tokens = TOKENS / 2; // another setting, another file
    assert_ok(rn_train_data_open(test_own_path("many.jsonl"), &o, &data));
    assert_false(rn_train_data_get_info(data)->reused);
    rn_train_data_close(data);
    assert_int_equal(count_files(), 3);
    assert_int_equal(rn_ledger_total(RN_DEVICE_HOST).now_bytes, ledger);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_answers_are_learned, test_make_folder),
        cmocka_unit_test_setup(chats_are_those_of_transformers, test_make_folder),
        cmocka_unit_test_setup(marks_of_the_template_come_first, test_make_folder),
        cmocka_unit_test_setup(what_is_wrong_is_named_with_its_line, test_make_folder),
        cmocka_unit_test_setup(long_samples_go_where_they_are_told, test_make_folder),
        cmocka_unit_test_setup(sequences_hold_every_sample_once, test_make_folder),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
