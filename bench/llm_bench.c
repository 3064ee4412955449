// llm_bench.c — one text model: prompt and token rates, what it held and what it read.
//
//     llm_bench MODEL [-p 512] [-n 128] [-t THREADS] [-r 1] [-b BUDGET] [-c CONTEXT] [-s] [-d 0]
//                     [-u ROWS] [-q 1] [-k] [-D DEVICE] [-B DEVICE_BUDGET] [-P TRACE]
//                     [-e auto|never|always] [-R ROUTES] [-L]
//     llm_bench MODEL -x
//     llm_bench bandwidth [-t THREADS]
//
// Prints one line of JSON. Tokens are made greedily from random prompts; -s allows speculation, -d
// puts so many tokens before what is timed, -q runs so many sequences side by side (each with its
// own prompt; rates are of all of them together), -k tells the time of decoding by kernel. -D is a
// device as `ration run --device` takes it; -B is for its own memory, then -b is for the host's.
// -P records one more round, which is not timed. -e: experts on demand (ration run --experts). -R:
// a routing trace takes the router's place, token by token, round and round; what is planned
// follows from it, too. -L: experts as others have them, for comparison: least recently used, and
// one read after the other before anything is computed. `bandwidth` reads a gigabyte of memory
// again and again and says how fast; -x reads the model's file past the page cache into a small
// buffer and says how fast: nothing on a disk runs ahead of that.
#include <ration/ration.h>

#include "base/alloc.h"
#include "generate/generate.h"
#include "io/route_trace.h"
#include "model_bench.h"
#include "runtime/session.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct job {
    const char *model;
    uint32_t prompt, tokens, rounds, context, depth, rows, sequences;
    uint64_t budget_bytes; // 0: none
    const char *device;    // NULL: the CPU
    const char *trace;     // NULL: none
    uint64_t device_bytes; // of its own memory; 0: nine tenths of what is free
    bool speculate;
    bool by_kernel;
    bool only_read; // the file, nothing else
    const char *routes;
    rn_experts_move experts;
    bool lru;
} job;

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

// ---- memory bandwidth ---------------------------------------------------------------------------

enum { READ_BYTES = 1 << 30, MAX_THREADS = 64 };

typedef struct reading {
    const uint64_t *words; // (count)
    size_t count;
    uint64_t sum;
} reading;

// Eight streams of cache lines, in vectors as wide as the machine has them: what is fastest here.
__attribute__((target_clones("avx512f", "avx2", "default"))) static uint64_t
sum_lines(const uint64_t *words, size_t count) {
    typedef uint64_t lanes __attribute__((vector_size(64)));
    lanes sums[8] = {0};
    size_t stream = count / 8;
    for (size_t i = 0; i < stream; i += 8)
        for (size_t k = 0; k < 8; k++)
            sums[k] += *(const lanes *)(words + k * stream + i);
    uint64_t sum = 0;
    for (size_t k = 0; k < 64; k++)
        sum += sums[k / 8][k % 8];
    return sum;
}

static void *sum_words(void *self) {
    reading *r = self;
    r->sum = sum_lines(r->words, r->count);
    return NULL;
}

static double read_once(const uint64_t *words) {
    pthread_t ids[MAX_THREADS];
    reading readings[MAX_THREADS];
    size_t each = READ_BYTES / 8 / threads / 64 * 64;
    double begin = seconds_now();
    for (uint32_t i = 0; i < threads; i++) {
        readings[i] = (reading){words + i * each, each, 0};
        pthread_create(&ids[i], NULL, sum_words, &readings[i]);
    }
    for (uint32_t i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    return (double)(each * 8 * threads) / (seconds_now() - begin);
}

static int print_bandwidth(void) {
    uint64_t *words = aligned_alloc(1 << 21, READ_BYTES);
    double best = 0;
    if (!words) return 1;
    madvise(words, READ_BYTES, MADV_HUGEPAGE);
    memset(words, 1, READ_BYTES);
    for (int i = 0; i < 6; i++) {
        double rate = read_once(words);
        if (rate > best) best = rate;
    }
    free(words);
    printf("{\"bytes_per_second\": %.0f}\n", best);
    return 0;
}

// ---- memory that is there -----------------------------------------------------------------------

// Writes so many bytes and gives them back: a hypervisor that took free memory away has returned it
// then (2 s a GiB on one), and what is measured next is not that.
static int touch(uint64_t bytes) {
    char *memory = aligned_alloc(1 << 21, bytes >> 21 << 21);
    if (!memory) return 1;
    madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 1, bytes >> 21 << 21);
    printf("{\"touched\": %d}\n", memory[bytes / 2]);
    free(memory);
    return 0;
}

// ---- disk bandwidth -----------------------------------------------------------------------------

static rn_status ignore(void *self, const rn_tensor_info *tensor, uint64_t offset, const void *data,
                        size_t bytes) {
    (void)tensor, (void)offset, (void)data;
    *(uint64_t *)self += bytes;
    return RN_OK;
}

static rn_status read_file(const rn_checkpoint *files, double *out_rate) {
    for (int i = 0; i < 3; i++) {
        uint64_t bytes = 0;
        double begin = seconds_now();
        RN_TRY(rn_checkpoint_stream(files, &(rn_stream_options){.buffer_bytes = 4 << 20}, ignore,
                                    &bytes));
        double rate = (double)bytes / (seconds_now() - begin);
        if (rate > *out_rate) *out_rate = rate;
    }
    return RN_OK;
}

static int print_disk(const char *model) {
    rn_checkpoint *files = NULL;
    double rate = 0;
    rn_status s = rn_checkpoint_open(model, &files);
    if (s == RN_OK) s = read_file(files, &rate);
    rn_checkpoint_close(files);
    if (s != RN_OK) return 1;
    printf("{\"bytes_per_second\": %.0f}\n", rate);
    return 0;
}

// ---- a model ------------------------------------------------------------------------------------

enum { MAX_SEQUENCES = 256 };

typedef struct run {
    const job *job;
    rn_model *model;
    rn_device *device;
    rn_generator *generator;
    rn_sequence *sequences[MAX_SEQUENCES];
    uint32_t *prompt; // (sequences, depth + prompt + 1)
    double load_seconds, prefill_seconds, token_seconds, first_seconds;
    uint64_t made, read_bytes;
    rn_expert_hits hits;
    rn_route_trace trace; // of -R
    uint64_t token;       // rows that it has routed in layer 0
    rn_session_facts before;
    rn_session_facts decoded; // of the last round's tokens, what was added
} run;

// ---- experts ------------------------------------------------------------------------------------

// Rows of a run are consecutive tokens of the trace.
static void force_routes(void *self, uint32_t layer, int32_t *ids, uint64_t count) {
    run *r = self;
    const rn_plan_expert_layer *of = &r->generator->plan->expert_layers[layer];
    uint64_t rows = count / of->chosen;
    if (layer == 0) r->token += rows;
    for (uint64_t row = 0; row < rows; row++) {
        uint32_t token = (uint32_t)((r->token - rows + row) % r->trace.tokens);
        const int32_t *want = rn_route_trace_at(&r->trace, token, layer % r->trace.layers);
        for (uint32_t i = 0; i < of->chosen && i < r->trace.k; i++)
            if (want[i] >= 0 && (uint32_t)want[i] < of->experts)
                ids[row * of->chosen + i] = want[i];
    }
}

static rn_status read_routes(run *r, rn_plan_options *plan) {
    plan->experts = r->job->experts;
    if (!r->job->routes) return RN_OK;
    RN_TRY(rn_route_trace_read(r->job->routes, &rn_system_allocator, &r->trace));
    RN_TRY(rn_expert_hits_read(r->job->routes, &r->hits));
    plan->expert_hits = &r->hits;
    return RN_OK;
}

static void set_experts(run *r) {
    rn_experts *experts = r->generator->session->experts;
    if (experts && r->job->routes) rn_experts_listen(experts, force_routes, r);
    if (experts && r->job->lru) rn_experts_use_rule(experts, RN_EXPERT_RULE_LRU);
}

static void note_facts(run *r, bool ends) {
    rn_session_facts now = rn_generator_get_facts(r->generator).session;
    if (!ends) r->before = now;
    if (!ends) return;
    r->decoded = now;
    r->decoded.experts_needed -= r->before.experts_needed;
    r->decoded.experts_missed -= r->before.experts_missed;
    r->decoded.expert_read_bytes -= r->before.expert_read_bytes;
}

static void print_experts(const run *r) {
    const job *j = r->job;
    const rn_plan_summary *p = rn_plan_get_summary(rn_generator_plan(r->generator));
    const rn_session_facts *f = &r->decoded;
    if (p->expert_layers == 0) return;
    double needed = (double)f->experts_needed, tokens = (double)j->sequences * j->tokens;
    printf("{\"expert_slots\": %u, \"experts\": %u, \"expert_slot_bytes\": %llu, "
           "\"hit_rate\": %.4f, \"expert_bytes_a_token\": %.0f, "
           "\"predicted_expert_bytes_a_token\": %llu, \"expert_bytes_second\": %.0f}\n",
           p->expert_slots, p->experts, (unsigned long long)p->expert_slot_bytes,
           needed > 0 ? 1 - (double)f->experts_missed / needed : 0,
           tokens > 0 ? (double)f->expert_read_bytes / tokens : 0,
           (unsigned long long)p->expert_read_bytes,
           r->token_seconds > 0 ? (double)f->expert_read_bytes / r->token_seconds : 0);
}

static rn_status open_run(run *r) {
    const job *j = r->job;
    rn_generator_options options = {.text = {.rows = j->rows,
                                             .context = j->context,
                                             .sequences = j->sequences,
                                             .prompt_tokens = j->prompt,
                                             .new_tokens = j->tokens},
                                    .speculation =
                                        j->speculate ? RN_SPECULATE_AUTO : RN_SPECULATE_NEVER};
    RN_TRY(rn_model_open(j->model, &(rn_model_options){.without_tokenizer = true}, &r->model));
    (void)rn_rates_use(threads);
    RN_TRY(rn_device_open(j->device ? j->device : "cpu", threads, &r->device));
    (void)rn_rates_apply(r->device);
    options.device_budget.bytes = j->device_bytes;
    if (j->by_kernel) r->device->caps.kernels = time_kernels();
    RN_TRY(rn_process_charge_unaccounted());
    options.session.device = r->device;
    options.plan.budget_bytes = j->budget_bytes;
    if (j->budget_bytes)
        options.plan.reserved_bytes =
            rn_ledger_read(RN_DEVICE_HOST, RN_PURPOSE_UNACCOUNTED).now_bytes + (4 << 20) +
            j->budget_bytes / 256;
    RN_TRY(read_routes(r, &options.plan));
    RN_TRY(rn_generator_create(r->model, &options, &r->generator));
    set_experts(r);
    for (uint32_t i = 0; i < j->sequences; i++)
        RN_TRY(rn_sequence_create(r->generator, &(rn_sampling){.without_logprob = true},
                                  &r->sequences[i]));
    return RN_OK;
}

// Tokens [first, first + count) of each sequence's prompt are read, and a token is made of each.
static rn_status take_first(run *r, uint32_t first, uint32_t count) {
    const job *j = r->job;
    rn_sample sample;
    for (uint32_t i = 0; i < j->sequences; i++)
        RN_TRY(rn_sequence_feed(r->sequences[i], r->prompt + i * (j->depth + j->prompt + 1) + first,
                                count));
    for (uint32_t i = 0; i < j->sequences; i++) {
        while (!rn_sequence_take(r->sequences[i], &sample))
            RN_TRY(rn_generator_step(r->generator));
        rn_sequence_pause(r->sequences[i]);
    }
    return RN_OK;
}

// As many tokens of each sequence, going on from a pause.
static rn_status take_tokens(run *r) {
    const job *j = r->job;
    uint32_t made[MAX_SEQUENCES] = {0}, done = 0;
    rn_sample sample;
    for (uint32_t i = 0; i < j->sequences; i++)
        RN_TRY(rn_sequence_feed(r->sequences[i], NULL, 0));
    while (done < j->sequences) {
        RN_TRY(rn_generator_step(r->generator));
        for (uint32_t i = 0; i < j->sequences; i++)
            while (made[i] < j->tokens && rn_sequence_take(r->sequences[i], &sample))
                done += ++made[i] == j->tokens;
    }
    return RN_OK;
}

static void keep_least(double *least, double seconds) {
    if (*least == 0 || seconds < *least) *least = seconds;
}

static rn_status time_tokens(run *r) {
    const job *j = r->job;
    if (!j->prompt && !j->depth) RN_TRY(take_first(r, 0, 1));
    uint64_t before = rn_generator_get_facts(r->generator).session.read_bytes;
    note_facts(r, false);
    begin_kinds();
    double begin = seconds_now();
    RN_TRY(take_tokens(r));
    keep_least(&r->token_seconds, seconds_now() - begin);
    end_kinds();
    note_facts(r, true);
    r->read_bytes = rn_generator_get_facts(r->generator).session.read_bytes - before;
    return RN_OK;
}

static rn_status time_round(run *r) {
    const job *j = r->job;
    for (uint32_t i = 0; i < j->sequences; i++)
        rn_sequence_rewind(r->sequences[i], 0);
    if (j->depth) RN_TRY(take_first(r, 0, j->depth));
    double begin = seconds_now();
    if (j->prompt) RN_TRY(take_first(r, j->depth, j->prompt));
    keep_least(&r->prefill_seconds, seconds_now() - begin);
    return j->tokens ? time_tokens(r) : RN_OK;
}

static rn_status make_prompt(run *r) {
    uint32_t vocab = rn_model_get_info(r->model)->vocab_size,
             count = r->job->sequences * (r->job->depth + r->job->prompt + 1);
    r->prompt = malloc(count * sizeof *r->prompt);
    if (!r->prompt) return rn_fail(RN_NO_MEMORY, "no memory");
    for (uint32_t i = 0; i < count; i++)
        r->prompt[i] = (uint32_t)(i * 2654435761u) % vocab;
    return RN_OK;
}

// After the timed rounds: what they were is kept.
static rn_status record_round(const run *r) {
    run again = *r;
    if (!r->job->trace) return RN_OK;
    RN_TRY(rn_profile_start(&(rn_profile_options){.path = r->job->trace}));
    rn_status s = time_round(&again);
    rn_status stopped = rn_profile_stop();
    return s == RN_OK ? stopped : s;
}

static rn_status time_model(run *r, double start) {
    RN_TRY(open_run(r));
    RN_TRY(make_prompt(r));
    r->load_seconds = seconds_now() - start;
    for (uint32_t i = 0; i < r->job->rounds; i++) {
        RN_TRY(time_round(r));
        if (i == 0) r->first_seconds = r->load_seconds + r->prefill_seconds;
    }
    return record_round(r);
}

// What one token reads: all tensors, but for an embedding table that is not the head as well.
static uint64_t pass_bytes(const run *r) {
    rn_checkpoint *files = NULL;
    uint64_t bytes = 0;
    if (rn_checkpoint_open(r->job->model, &files) != RN_OK) return 0;
    bytes = rn_checkpoint_total_bytes(files);
    const rn_tensor_info *table = rn_checkpoint_find(files, "token_embd.weight");
    if (!table) table = rn_checkpoint_find(files, "model.embed_tokens.weight");
    if (table && !rn_model_get_info(r->model)->tied_head) bytes -= table->bytes;
    rn_checkpoint_close(files);
    return bytes;
}

// All that is planned is taken at once: its peak is that of its lines.
static uint64_t planned_peak(rn_device_id id) {
    uint64_t sum = 0;
    for (int i = 0; i < RN_PURPOSE_COUNT; i++)
        if (i != RN_PURPOSE_UNACCOUNTED) sum += rn_ledger_read(id, (rn_purpose)i).peak_bytes;
    return sum;
}

static void print_run(const run *r) {
    const job *j = r->job;
    const rn_plan_summary *p = rn_plan_get_summary(rn_generator_plan(r->generator));
    rn_generator_facts facts = rn_generator_get_facts(r->generator);
    rn_device_id id = rn_device_number(r->device);
    uint64_t outside = rn_ledger_read(id, RN_PURPOSE_UNACCOUNTED).peak_bytes;
    uint64_t held = planned_peak(id);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"prompt_rate\": %.3f, \"token_rate\": %.3f, \"load_seconds\": %.4f, "
           "\"first_token_seconds\": %.4f, \"planned_bytes\": %llu, \"streamed_bytes\": %llu, "
           "\"read_bytes_a_token\": %.0f, \"resident_peak_bytes\": %llu, \"rows\": %llu, "
           "\"pass_bytes\": %llu, \"predicted_pass_seconds\": %.7f, \"accepted\": %llu, "
           "\"predicted_prompt_seconds\": %.7f, \"device_planned_peak_bytes\": %llu, "
           "\"device_peak_bytes\": %llu, \"host_weight_bytes\": %llu, \"weight_bytes\": %llu}\n",
           r->prefill_seconds > 0 && j->prompt ? j->sequences * j->prompt / r->prefill_seconds : 0,
           r->token_seconds > 0 ? j->sequences * j->tokens / r->token_seconds : 0, r->load_seconds,
           r->first_seconds, (unsigned long long)p->planned_bytes,
           (unsigned long long)p->streamed_bytes,
           j->tokens ? (double)r->read_bytes / (j->sequences * j->tokens) : 0,
           (unsigned long long)usage.ru_maxrss * 1024, (unsigned long long)p->rows,
           (unsigned long long)pass_bytes(r), p->decode_seconds,
           (unsigned long long)facts.accepted_tokens, p->prefill_seconds, (unsigned long long)held,
           (unsigned long long)(held + outside), (unsigned long long)p->host_weight_bytes,
           (unsigned long long)p->weight_bytes);
}

static void close_run(run *r) {
    rn_generator_destroy(r->generator);
    rn_device_destroy(r->device);
    rn_model_close(r->model);
    free(r->prompt);
    rn_route_trace_free(&r->trace);
}

static bool read_flags(int argc, char **argv, job *out) {
    int flag;
    while ((flag = getopt(argc, argv, "p:n:t:r:b:c:d:u:q:ksxD:B:P:e:R:L")) != -1) {
        uint32_t number = optarg ? (uint32_t)strtoul(optarg, NULL, 10) : 0;
        if (flag == 'p') out->prompt = number;
        if (flag == 'n') out->tokens = number;
        if (flag == 't') threads = number;
        if (flag == 'r') out->rounds = number;
        if (flag == 'c') out->context = number;
        if (flag == 'd') out->depth = number;
        if (flag == 'u') out->rows = number;
        if (flag == 'q') out->sequences = number;
        if (flag == 'k') out->by_kernel = true;
        if (flag == 's') out->speculate = true;
        if (flag == 'x') out->only_read = true;
        if (flag == '?') return false;
        if (flag == 'D') out->device = optarg;
        if (flag == 'P') out->trace = optarg;
        if (flag == 'R') out->routes = optarg;
        if (flag == 'L') out->lru = true;
        if (flag == 'e')
            out->experts = optarg[0] == 'n' && optarg[1] == 'e'   ? RN_EXPERTS_NEVER
                           : optarg[0] == 'a' && optarg[1] == 'l' ? RN_EXPERTS_ALWAYS
                                                                  : RN_EXPERTS_AS_NEEDED;
        uint64_t *size = flag == 'b' ? &out->budget_bytes : &out->device_bytes;
        if ((flag == 'b' || flag == 'B') &&
            rn_size_parse((rn_str){optarg, strlen(optarg)}, 0, size) != RN_OK)
            return false;
    }
    return optind + 1 == argc && out->rounds > 0 && out->sequences > 0 &&
           out->sequences <= MAX_SEQUENCES && threads > 0 && threads <= MAX_THREADS;
}

int main(int argc, char **argv) {
    job j = {.prompt = 512, .tokens = 128, .rounds = 1, .sequences = 1};
    double start = seconds_now();
    if (!read_flags(argc, argv, &j)) {
        fprintf(stderr,
                "usage: llm_bench MODEL|bandwidth [-p N] [-n N] [-t N] [-r N] [-b SIZE] [-c N] "
                "[-d N] [-u N] [-q N] [-k] [-s] [-x] [-D DEVICE] [-B SIZE] [-P FILE] "
                "[-e auto|never|always] [-R ROUTES] [-L]\n");
        return 2;
    }
    j.model = argv[optind];
    if (strcmp(j.model, "bandwidth") == 0) return print_bandwidth();
    if (strcmp(j.model, "touch") == 0) return touch(j.budget_bytes);
    if (j.only_read) return print_disk(j.model);
    if (j.context == 0) j.context = j.depth + j.prompt + j.tokens + 16;
    run r = {.job = &j};
    rn_status s = time_model(&r, start);
    if (s == RN_OK) print_run(&r);
    if (s == RN_OK) print_experts(&r);
    if (s == RN_OK && j.by_kernel) print_kinds();
    if (s != RN_OK) fprintf(stderr, "llm_bench: %s\n", rn_last_error()->message);
    close_run(&r);
    return s == RN_OK ? 0 : 1;
}
