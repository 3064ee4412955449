// tokenizer_bench.c — tokenizers: time to open, bytes held, MB/s of English text encoded and
// decoded on one core, and a megabyte without a blank. Best of several rounds; target: 20 MB/s for
// byte-level BPE.
//
//     tokenizer_bench [TOKENIZER...] [--text FILE]
//
// Without arguments: those of the shared data (run from the project's root, or with RATION_DATA).
#include <ration/memory.h>
#include <ration/tokenizer.h>

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 5, TEXT_BYTES = 4 << 20, WORD_BYTES = 1 << 20 };

// The thread's own time: what else the machine does is not counted.
static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static rn_status drop(void *self, const char *text, size_t bytes) {
    (void)text;
    *(size_t *)self += bytes;
    return RN_OK;
}

static rn_status decode(const rn_tokenizer *tokenizer, const rn_tokens *tokens, size_t *bytes) {
    rn_decoder decoder;
    rn_sink sink = {bytes, drop};
    rn_decoder_begin(&decoder, tokenizer, false);
    for (size_t i = 0; i < tokens->count; i++)
        RN_TRY(rn_decoder_put(&decoder, tokens->ids[i], sink));
    return rn_decoder_end(&decoder, sink);
}

typedef struct speeds {
    double encode, decode; // MB/s
    size_t tokens;
} speeds;

static rn_status measure(const rn_tokenizer *tokenizer, rn_str text, int rounds, speeds *out) {
    rn_tokens tokens = {0};
    rn_status s = RN_OK;
    *out = (speeds){0};
    for (int round = 0; s == RN_OK && round < rounds; round++) {
        size_t bytes = 0;
        tokens.count = 0;
        uint64_t start = now_ns();
        s = rn_tokenizer_encode(tokenizer, text, RN_ENCODE_PLAIN, &tokens);
        uint64_t middle = now_ns();
        if (s == RN_OK) s = decode(tokenizer, &tokens, &bytes);
        uint64_t end = now_ns();
        double encode = (double)text.bytes * 1e3 / (double)(middle - start);
        double decoded = (double)bytes * 1e3 / (double)(end - middle);
        if (encode > out->encode) out->encode = encode;
        if (decoded > out->decode) out->decode = decoded;
        out->tokens = tokens.count;
    }
    rn_tokens_free(&tokens);
    return s;
}

static rn_status bench(const char *path, rn_str text, rn_str word) {
    rn_tokenizer *tokenizer = NULL;
    double open_ms = 1e9;
    uint64_t before = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes;
    for (int round = 0; round < 3; round++) {
        rn_tokenizer_close(tokenizer);
        uint64_t start = now_ns();
        RN_TRY(rn_tokenizer_open(path, &tokenizer));
        double ms = (double)(now_ns() - start) / 1e6;
        if (ms < open_ms) open_ms = ms;
    }
    uint64_t held = rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_OTHER).now_bytes - before;
    speeds english, blankless;
    rn_status s = measure(tokenizer, text, ROUNDS, &english);
    if (s == RN_OK) s = measure(tokenizer, word, 2, &blankless);
    if (s == RN_OK)
        printf("%-24s %7u %8.1f %8.2f %9.1f %9.1f %7.2f %9.1f\n",
               rn_tokenizer_get_info(tokenizer)->kind, rn_tokenizer_get_info(tokenizer)->vocab_size,
               open_ms, (double)held / (1 << 20), english.encode, english.decode,
               (double)text.bytes / (double)english.tokens, blankless.encode);
    rn_tokenizer_close(tokenizer);
    return s;
}

static char *repeat(const char *from, size_t bytes, size_t target) {
    char *text = malloc(target);
    for (size_t at = 0; text && at < target; at++)
        text[at] = from[at % bytes];
    return text;
}

static const char *shared(const char *name) {
    static char paths[8][1024];
    static int next;
    const char *data = getenv("RATION_DATA");
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", data ? data : "../shared/data", name);
    return path;
}

static int run(const char *text_path, const char *const *paths, int count) {
    rn_buffer file;
    rn_buffer_init(&file, &rn_system_allocator, 1 << 30);
    if (rn_file_read_all(text_path, &file) != RN_OK || file.bytes == 0) {
        printf("skipped: no text at %s\n", text_path);
        return 0;
    }
    char *text = repeat(file.data, file.bytes, TEXT_BYTES);
    char *word = repeat("abcdefghijklmnopqrstuvwxyzetaoinshrdlu", 38, WORD_BYTES);
    printf("%-24s %7s %8s %8s %9s %9s %7s %9s\n", "kind", "tokens", "open ms", "MiB", "encode",
           "decode", "B/token", "blankless");
    for (int i = 0; i < count; i++) {
        printf("%s\n", paths[i]);
        if (bench(paths[i], (rn_str){text, TEXT_BYTES}, (rn_str){word, WORD_BYTES}) != RN_OK)
            printf("  %s\n", rn_last_error()->message);
    }
    free(text);
    free(word);
    rn_buffer_free(&file);
    return 0;
}

int main(int argc, char **argv) {
    const char *paths[16] = {0}, *text = shared("tokenizers/sentencepiece/botchan.txt");
    int count = 0;
    for (int i = 1; i < argc && count < 16; i++) {
        if (strcmp(argv[i], "--text") == 0 && i + 1 < argc)
            text = argv[++i];
        else
            paths[count++] = argv[i];
    }
    if (count == 0) {
        paths[count++] = shared("tokenizers/gpt2");
        paths[count++] = shared("tokenizers/llama3");
        paths[count++] = shared("vocab/qwen.tiktoken");
        paths[count++] = shared("tokenizers/phi-3");
        paths[count++] = shared("tokenizers/llama2");
        paths[count++] = shared("tokenizers/t5-small");
    }
    return run(text, paths, count);
}
