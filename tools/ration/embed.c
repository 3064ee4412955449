// embed.c — ration embed: embeddings of texts, within a budget.
//
//     read all texts ─ find the longest ─ plan, load ─ a few hundred texts at a time: compute,
//     write
//
// The longest text decides how many tokens the plan must have room for in one run. With --rerank
// a text is a pair, the query's and its own, and its embedding one number.
#include "run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { AT_ONCE = 512 };

typedef struct embedding_run {
    const invocation *in;
    rn_model *model;
    rn_adapter adapters[MAX_ADAPTERS];
    char adapter_paths[MAX_ADAPTERS][4096];
    text_buffer input;   // what was read
    text_buffer list;    // rn_str, one a text
    text_buffer results; // floats: (AT_ONCE, dim), or of all texts for their similarity
    size_t count;
    rn_str query;     // --rerank; {0}: embeddings
    uint32_t longest; // tokens of the longest text, with the query's
    host_budget budget;
    constraint_texts constraints;
    rn_ladder *ladder;
    rn_device *device;
    rn_embedder_options options;
    rn_embedder *embedder;
    rn_json json;
    FILE *npy;
    rn_writer *writer; // safetensors
} embedding_run;

static const rn_writer_options writer_options = {.buffer_bytes = 64 << 10};

static const rn_str *texts_of(const embedding_run *r) {
    return (const rn_str *)(const void *)r->list.data;
}

// ---- texts --------------------------------------------------------------------------------------

static rn_status add_text(embedding_run *r, rn_str text) {
    r->count++;
    return append_text(&r->list, (const char *)&text, sizeof text);
}

// A text a line; the last one may end without a line break.
static rn_status split_lines(embedding_run *r) {
    const char *at = r->input.data, *end = at + r->input.bytes;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        size_t bytes = (size_t)(stop - at);
        if (bytes && at[bytes - 1] == '\r') bytes--;
        RN_TRY(add_text(r, (rn_str){at, bytes}));
        at = stop + 1;
    }
    return RN_OK;
}

static rn_status read_texts(embedding_run *r) {
    const char *file = rn_settings_text(r->in->settings, "file");
    size_t words = r->in->word_count;
    if (file[0] && words > 1) return rn_fail(RN_INVALID, "texts and --file: one of them is enough");
    for (size_t i = 1; i < words; i++)
        RN_TRY(add_text(r, (rn_str){r->in->words[i], strlen(r->in->words[i])}));
    if (words > 1) return RN_OK;
    RN_TRY(read_text(file[0] ? file : "-", &r->input));
    RN_TRY(split_lines(r));
    return r->count ? RN_OK : rn_fail(RN_INVALID, "there are no texts");
}

static rn_status measure_texts(embedding_run *r) {
    const rn_tokenizer *tokenizer = rn_model_tokenizer(r->model);
    rn_tokens tokens = {0};
    rn_status s = RN_OK;
    if (r->query.data) s = rn_tokenizer_encode(tokenizer, r->query, RN_ENCODE_FIRST, &tokens);
    size_t first = tokens.count;
    for (size_t i = 0; s == RN_OK && i < r->count; i++) {
        tokens.count = first;
        s = rn_tokenizer_encode(tokenizer, texts_of(r)[i],
                                r->query.data ? RN_ENCODE_SECOND : RN_ENCODE_BEGIN, &tokens);
        if (tokens.count > r->longest)
            r->longest = tokens.count < UINT32_MAX ? (uint32_t)tokens.count : UINT32_MAX;
    }
    rn_tokens_free(&tokens);
    return s;
}

// ---- opening ------------------------------------------------------------------------------------

static rn_status open_model(embedding_run *r) {
    const char *tokenizer = rn_settings_text(r->in->settings, "tokenizer");
    rn_model_options options = {.adapters = r->adapters,
                                .tokenizer_path = tokenizer[0] ? tokenizer : NULL};
    RN_TRY(read_adapters(r->in, r->adapters, r->adapter_paths, &options.adapter_count));
    RN_TRY(rn_model_open(r->in->words[0], &options, &r->model));
    if (rn_model_tokenizer(r->model)) return RN_OK;
    return rn_hint(rn_fail(RN_NOT_FOUND, "the model comes without a tokenizer"),
                   "name one with --tokenizer PATH");
}

// Before texts are waited for.
static rn_status check_reranker(const embedding_run *r) {
    if (!rn_model_get_info(r->model)->ranks)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "%s is no reranker", r->in->words[0]),
                       "--rerank needs a model whose files have a classifier of one label "
                       "(bge-reranker, ms-marco-MiniLM)");
    if (rn_tokenizer_get_info(rn_model_tokenizer(r->model))->joins_pairs) return RN_OK;
    return rn_fail(RN_UNSUPPORTED, "the tokenizer does not say what stands between two texts");
}

static rn_status read_options(embedding_run *r) {
    const rn_settings *s = r->in->settings;
    const rn_model_info *info = rn_model_get_info(r->model);
    rn_embedder_options *o = &r->options;
    bool chosen = strcmp(rn_settings_origin(s, "normalize"), "default") != 0;
    uint32_t most = info->embedding.text_tokens;
    rn_text_options text;
    RN_TRY(read_text_options(r->in, &text));
    RN_TRY(read_embedding_form(r->in, &o->form));
    o->text = (rn_embedding_options){.rows = text.rows,
                                     .unquantised_activations = text.unquantised_activations,
                                     .scores = r->query.data != NULL};
    if (chosen)
        o->form.norm =
            rn_settings_bool(s, "normalize") ? RN_EMBEDDING_NORM_L2 : RN_EMBEDDING_NORM_NONE;
    if (text.context > most)
        return rn_fail(RN_INVALID, "--ctx %u: the model's texts have at most %u tokens",
                       text.context, most);
    if (text.context) most = text.context;
    o->text.text_tokens = r->longest < most ? r->longest : most;
    if (o->text.text_tokens == 0) o->text.text_tokens = 1;
    if (r->longest <= most) return RN_OK;
    if (o->form.refuse_long)
        return rn_fail(RN_INVALID, "a text has %u tokens, more than %u", r->longest, most);
    fprintf(stderr, "ration: warning: the longest text has %u tokens; of each %u count\n",
            r->longest, most);
    return RN_OK;
}

static size_t held_texts(const embedding_run *r) {
    bool all = rn_settings_bool(r->in->settings, "similarity") || r->query.data;
    return all || r->count < AT_ONCE ? r->count : AT_ONCE;
}

static rn_status try_device(void *self, const rn_ladder_target *target) {
    embedding_run *r = self;
    rn_embedder_options *o = &r->options;
    uint64_t room = 512 << 10; // for a line of input, a line of output, tables
    if (rn_settings_text(r->in->settings, "output")[0])
        room += rn_writer_held_bytes(&writer_options);
    r->device = o->session.device = target->device;
    (void)rn_rates_apply(r->device);
    RN_TRY(read_budget(r->in, r->device, room, &r->budget));
    use_budget(&r->budget, &o->plan);
    o->device_budget = r->budget.device;
    return rn_embedder_create(r->model, o, &r->embedder);
}

static void leave_device(void *self) {
    embedding_run *r = self;
    rn_embedder_destroy(r->embedder);
    r->embedder = NULL;
    r->device = NULL;
}

static rn_status open_embedder(embedding_run *r) {
    uint32_t threads = (uint32_t)rn_settings_count(r->in->settings, "threads");
    rn_ladder_load load = {.self = r, .attempt = try_device, .undo = leave_device};
    rn_ladder_options ladder = {.threads = threads,
                                .no_fallback = !rn_settings_bool(r->in->settings, "fallback")};
    rn_ladder_target target;
    r->options.measure_rates = use_rates(r->in, threads);
    r->options.session.audit = rn_settings_bool(r->in->settings, "audit");
    r->options.session.cancel = &interrupt_flag;
    RN_TRY(read_constraints(r->in, &r->constraints, &r->options.plan));
    size_t dim = rn_model_get_info(r->model)->dim, texts = held_texts(r);
    if (texts > SIZE_MAX / sizeof(float) / dim) return rn_fail(RN_INVALID, "too many texts");
    RN_TRY(reserve_text(&r->results, texts * dim * sizeof(float)));
    end_opening();
    RN_TRY(parse_devices(r->in, &r->ladder));
    return rn_ladder_start(r->ladder, &ladder, &load, &target);
}

static rn_status close_run(embedding_run *r) {
    rn_writer_destroy(r->writer);
    rn_status s = r->ladder ? rn_ladder_leave(r->ladder, NULL) : RN_OK;
    rn_ladder_destroy(r->ladder);
    rn_model_close(r->model);
    if (r->npy) fclose(r->npy);
    free_text(&r->input);
    free_text(&r->list);
    free_text(&r->results);
    return s;
}

// ---- files --------------------------------------------------------------------------------------

static bool ends_with(const char *path, const char *ending) {
    size_t bytes = strlen(path), last = strlen(ending);
    return bytes > last && strcmp(path + bytes - last, ending) == 0;
}

static rn_status fail_output(const char *path) {
    return rn_fail(RN_IO, "cannot write %s: %s", path, strerror(errno));
}

static rn_status begin_npy(embedding_run *r, const char *path) {
    r->npy = fopen(path, "wb");
    if (!r->npy) return fail_output(path);
    return rn_npy_write_header(r->npy, path, RN_DTYPE_F32,
                               RN_SHAPE(r->count, rn_embedder_dimensions(r->embedder)));
}

static rn_status begin_output(embedding_run *r, const char *path) {
    uint64_t dims[] = {r->count, rn_embedder_dimensions(r->embedder)};
    rn_write_tensor tensor = {
        .name = {"embeddings", 10}, .dtype = RN_DTYPE_F32, .rank = 2, .dims = dims};
    if (ends_with(path, ".npy")) return begin_npy(r, path);
    if (ends_with(path, ".safetensors"))
        return rn_writer_create(path, &tensor, 1, &writer_options, &r->writer);
    return rn_hint(rn_fail(RN_INVALID, "--output %s: its ending says no format", path),
                   "end it in .safetensors or .npy");
}

static rn_status end_output(embedding_run *r, const char *path) {
    if (r->writer) return rn_writer_commit(r->writer);
    int failed = fclose(r->npy);
    r->npy = NULL;
    return failed ? fail_output(path) : RN_OK;
}

// ---- writing ------------------------------------------------------------------------------------

// Little-endian f32, as OpenAI's encoding_format base64.
static void write_base64(const float *x, uint32_t dimensions, FILE *out) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *bytes = (const unsigned char *)x;
    size_t count = dimensions * sizeof *x;
    for (size_t i = 0; i < count; i += 3) {
        size_t left = count - i;
        uint32_t word = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                        (left > 2 ? bytes[i + 2] : 0);
        fputc(letters[word >> 18], out);
        fputc(letters[word >> 12 & 63], out);
        fputc(left > 1 ? letters[word >> 6 & 63] : '=', out);
        fputc(left > 2 ? letters[word & 63] : '=', out);
    }
}

static void write_json_base64(embedding_run *r, const float *x, uint32_t dimensions) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (memory) {
        write_base64(x, dimensions, memory);
        fclose(memory);
        rn_json_text(&r->json, "embedding", (rn_str){text, bytes});
    }
    free(text);
}

static void write_json_row(embedding_run *r, size_t index, const float *x, uint32_t dimensions) {
    rn_json_object(&r->json, NULL);
    rn_json_u64(&r->json, "index", index);
    if (rn_settings_bool(r->in->settings, "base64")) {
        write_json_base64(r, x, dimensions);
    } else {
        rn_json_array(&r->json, "embedding");
        for (uint32_t d = 0; d < dimensions; d++)
            rn_json_f64(&r->json, NULL, (double)x[d]);
        rn_json_end(&r->json);
    }
    rn_json_end(&r->json);
}

static void print_row(const embedding_run *r, const float *x, uint32_t dimensions) {
    if (rn_settings_bool(r->in->settings, "base64"))
        write_base64(x, dimensions, stdout);
    else
        for (uint32_t d = 0; d < dimensions; d++)
            printf("%s%.9g", d ? " " : "", (double)x[d]);
    printf("\n");
}

// Rows [first, first + count), to wherever they are wanted.
static rn_status write_rows(embedding_run *r, size_t first, size_t count, const float *rows) {
    uint32_t dimensions = rn_embedder_dimensions(r->embedder);
    size_t bytes = count * dimensions * sizeof *rows;
    if (r->writer) return rn_writer_append(r->writer, rows, bytes);
    if (r->npy)
        return fwrite(rows, 1, bytes, r->npy) == bytes
                   ? RN_OK
                   : fail_output(rn_settings_text(r->in->settings, "output"));
    for (size_t i = 0; i < count; i++)
        if (r->in->json)
            write_json_row(r, first + i, rows + i * dimensions, dimensions);
        else
            print_row(r, rows + i * dimensions, dimensions);
    return RN_OK;
}

// Each text against each.
static void write_similarity(embedding_run *r, const float *rows) {
    uint32_t dimensions = rn_embedder_dimensions(r->embedder);
    for (size_t i = 0; i < r->count; i++) {
        if (r->in->json) rn_json_array(&r->json, NULL);
        for (size_t j = 0; j < r->count; j++) {
            double cosine =
                rn_embedding_cosine(rows + i * dimensions, rows + j * dimensions, dimensions);
            if (r->in->json)
                rn_json_f64(&r->json, NULL, cosine);
            else
                printf("%s%8.5f", j ? " " : "", cosine);
        }
        if (r->in->json)
            rn_json_end(&r->json);
        else
            printf("\n");
    }
}

// ---- ranking ------------------------------------------------------------------------------------

typedef struct ranked {
    float score;
    size_t index;
} ranked;

// Best first, of equal ones the first.
static int compare_ranked(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void write_ranked(embedding_run *r, const ranked *item) {
    bool raw = rn_settings_bool(r->in->settings, "raw-scores");
    double score = raw ? (double)item->score : 1 / (1 + exp(-(double)item->score));
    rn_str text = texts_of(r)[item->index];
    if (!r->in->json) {
        printf("%8.5f  %.*s\n", score, (int)text.bytes, text.data);
        return;
    }
    rn_json_object(&r->json, NULL);
    rn_json_u64(&r->json, "index", item->index);
    rn_json_f64(&r->json, "relevance_score", score);
    rn_json_text(&r->json, "text", text);
    rn_json_end(&r->json);
}

static rn_status write_ranking(embedding_run *r, const float *scores) {
    ranked *items = malloc(r->count * sizeof *items);
    if (!items) return rn_fail(RN_NO_MEMORY, "no memory");
    for (size_t i = 0; i < r->count; i++)
        items[i] = (ranked){scores[i], i};
    qsort(items, r->count, sizeof *items, compare_ranked);
    for (size_t i = 0; i < r->count; i++)
        write_ranked(r, &items[i]);
    free(items);
    return RN_OK;
}

// ---- reporting ----------------------------------------------------------------------------------

static void print_facts(const embedding_run *r, double seconds) {
    const rn_model_info *info = rn_model_get_info(r->model);
    const rn_plan_summary *p = rn_plan_get_summary(rn_embedder_plan(r->embedder));
    rn_embedder_facts f = rn_embedder_get_facts(r->embedder);
    fprintf(stderr, "%s: %s, %s; %s of %u dimensions\n", info->name, info->architecture,
            info->weights,
            rn_pooling_name(r->options.form.pooling ? r->options.form.pooling
                                                    : info->embedding.pooling),
            rn_embedder_dimensions(r->embedder));
    fprintf(stderr, "%s planned of a budget of %s; %llu tokens a run, %s\n",
            rn_size_format(p->planned_bytes).text, rn_size_format(r->budget.total_bytes).text,
            (unsigned long long)p->rows,
            p->streamed_bytes ? "weights read from disk for every run" : "all weights stay");
    if (f.session.live_peak_bytes)
        fprintf(stderr, "in use at the peak: planned %s, found %s\n",
                rn_size_format(p->live_peak_bytes).text,
                rn_size_format(f.session.live_peak_bytes).text);
    fprintf(stderr, "%llu texts, %llu tokens in %llu runs, %s: %.1f texts/s\n",
            (unsigned long long)f.texts, (unsigned long long)f.tokens, (unsigned long long)f.runs,
            rn_time_format(seconds).text, seconds > 0 ? (double)f.texts / seconds : 0);
    if (f.cut_texts)
        fprintf(stderr, "%llu texts were cut to %u tokens\n", (unsigned long long)f.cut_texts,
                rn_embedder_text_tokens(r->embedder));
}

static void write_facts(embedding_run *r, double seconds) {
    const rn_model_info *info = rn_model_get_info(r->model);
    const rn_plan_summary *p = rn_plan_get_summary(rn_embedder_plan(r->embedder));
    rn_embedder_facts f = rn_embedder_get_facts(r->embedder);
    rn_json *json = &r->json;
    rn_json_string(json, "model", info->name);
    rn_json_string(json, "architecture", info->architecture);
    rn_json_string(json, "pooling",
                   rn_pooling_name(r->options.form.pooling ? r->options.form.pooling
                                                           : info->embedding.pooling));
    rn_json_u64(json, "dimensions", rn_embedder_dimensions(r->embedder));
    rn_json_u64(json, "text_tokens", rn_embedder_text_tokens(r->embedder));
    rn_json_u64(json, "texts", f.texts);
    rn_json_u64(json, "tokens", f.tokens);
    rn_json_u64(json, "cut_texts", f.cut_texts);
    rn_json_u64(json, "runs", f.runs);
    rn_json_f64(json, "seconds", seconds);
    rn_json_object(json, "memory");
    rn_json_u64(json, "budget_bytes", r->budget.total_bytes);
    rn_json_u64(json, "planned_bytes", p->planned_bytes);
    rn_json_u64(json, "smallest_budget_bytes", p->smallest_budget_bytes);
    rn_json_u64(json, "rows", p->rows);
    rn_json_u64(json, "streamed_bytes", p->streamed_bytes);
    if (f.session.live_peak_bytes) {
        rn_json_u64(json, "planned_live_peak_bytes", p->live_peak_bytes);
        rn_json_u64(json, "live_peak_bytes", f.session.live_peak_bytes);
    }
    rn_json_check(json, rn_ledger_json(rn_json_embed(json, "ledger")));
    rn_json_end(json);
}

// ---- running ------------------------------------------------------------------------------------

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

// A device that fails before anything was written is left for the next one.
static rn_status embed_some(embedding_run *r, size_t first, size_t count, float *out) {
    for (;;) {
        rn_ladder_target target;
        const rn_str *texts = texts_of(r) + first;
        rn_status s = r->query.data ? rn_embedder_score(r->embedder, r->query, texts, count, out)
                                    : rn_embedder_embed(r->embedder, texts, count, out);
        if (s != RN_DEVICE || first > 0) return s;
        RN_TRY(rn_ladder_advance(r->ladder, rn_last_error(), &target));
    }
}

static rn_status embed_all(embedding_run *r, double *out_seconds) {
    bool similarity = rn_settings_bool(r->in->settings, "similarity");
    float *results = (float *)(void *)r->results.data;
    uint32_t dimensions = rn_embedder_dimensions(r->embedder);
    for (size_t first = 0, count; first < r->count; first += count) {
        count = r->count - first < AT_ONCE ? r->count - first : AT_ONCE;
        bool keep = similarity || r->query.data;
        float *rows = keep ? results + first * dimensions : results;
        double start = seconds_now();
        RN_TRY(embed_some(r, first, count, rows));
        *out_seconds += seconds_now() - start;
        if (!keep) RN_TRY(write_rows(r, first, count, rows));
    }
    if (r->query.data) return write_ranking(r, results);
    if (similarity) write_similarity(r, results);
    return RN_OK;
}

static rn_status tell(embedding_run *r) {
    const char *output = rn_settings_text(r->in->settings, "output");
    bool similarity = rn_settings_bool(r->in->settings, "similarity");
    double seconds = 0;
    if (output[0]) RN_TRY(begin_output(r, output));
    if (r->in->json) {
        rn_json_begin(&r->json, rn_sink_file(stdout), true);
        rn_json_object(&r->json, NULL);
        const char *what = r->query.data ? "results" : similarity ? "similarity" : "data";
        if (!output[0]) rn_json_array(&r->json, what);
    }
    rn_status s = embed_all(r, &seconds);
    if (s == RN_OK && output[0]) s = end_output(r, output);
    if (r->in->json) {
        if (!output[0]) rn_json_end(&r->json);
        if (s == RN_OK) write_facts(r, seconds);
        rn_json_end(&r->json);
        RN_TRY(s);
        return rn_json_finish(&r->json);
    }
    if (s == RN_OK && !rn_settings_bool(r->in->settings, "quiet")) print_facts(r, seconds);
    return s;
}

static rn_status check_options(const invocation *in) {
    bool output = rn_settings_text(in->settings, "output")[0];
    if (output &&
        (rn_settings_bool(in->settings, "similarity") || rn_settings_bool(in->settings, "base64")))
        return rn_fail(RN_INVALID, "--output takes neither --similarity nor --base64");
    if (rn_settings_text(in->settings, "rerank")[0] &&
        (output || rn_settings_bool(in->settings, "similarity") ||
         rn_settings_bool(in->settings, "base64")))
        return rn_fail(RN_INVALID, "--rerank takes neither --similarity, --base64 nor --output");
    return RN_OK;
}

static rn_status run(const invocation *in) {
    embedding_run *r = calloc(1, sizeof *r); // a few paths: too large for the stack
    if (!r) return rn_fail(RN_NO_MEMORY, "no memory");
    r->in = in;
    rn_status s = check_options(in);
    if (s == RN_OK) s = open_model(r);
    const char *query = rn_settings_text(in->settings, "rerank");
    if (query[0]) r->query = (rn_str){query, strlen(query)};
    if (s == RN_OK && query[0]) s = check_reranker(r);
    if (s == RN_OK) s = read_texts(r);
    if (s == RN_OK) s = measure_texts(r);
    if (s == RN_OK) s = read_options(r);
    if (s == RN_OK) s = open_embedder(r);
    if (s == RN_OK) s = tell(r);
    rn_error_info error = *rn_last_error();
    rn_status closed = close_run(r);
    free(r);
    return s == RN_OK ? closed : rn_error_restore(&error);
}

const command embed_command = {
    .takes_model = true,
    .name = "embed",
    .usage = "embed MODEL [TEXT...] [options]",
    .summary = "embeddings of texts, within a memory budget",
    .about =
        "MODEL is a Hugging Face or Sentence Transformers folder, or a GGUF file: an encoder\n"
        "(BERT, MiniLM, bge, e5, MPNet, nomic-bert, ModernBERT), Qwen3-Embedding, or any text\n"
        "model. Without TEXT, each line of --file or of standard input is one. A line of numbers\n"
        "a text goes to standard output (with --base64 its f32 bytes), or all of them to "
        "--output;\n"
        "--similarity prints the cosines of all texts to each other instead. Pooling and length\n"
        "are as the model's files say. Many texts are computed in one run; an embedding has the\n"
        "same bits whatever is computed beside it and at every budget. A text longer than the\n"
        "model allows is cut, with a warning.\n"
        "With a reranker (bge-reranker, ms-marco-MiniLM) --rerank QUERY prints the texts, best\n"
        "answer first, each behind its score from 0 to 1.",
    .example = "ration embed models/minilm \"a cat\" \"a kitten\" \"a car\" --similarity",
    .min_words = 1,
    .max_words = MAX_WORDS,
    .limits_memory = true,
    .run = run,
};
