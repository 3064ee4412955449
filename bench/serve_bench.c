// serve_bench.c — load for a server that speaks /v1/completions, ours or another: so many streams
// at once, and what their users see: time to the first token, between tokens, to the end.
//
//     serve_bench HOST:PORT [--streams 8] [--requests 32 | --for SECONDS] [--tokens 64] ...
//
// One thread and epoll. Each stream asks, reads its answer (server-sent events) to the end, and
// asks again on the same connection. Prompts are made of short English words, other ones for every
// request unless --shared says how many they have in common. Tokens are counted by the server's
// `usage`, where it sends one. Beside the streams there may be idle connections, clients that read
// a byte a second, and streams that hang up. The exit code is 1 where an expectation did not hold.
#include "serve_ask.h"
#include "serve_reply.h"

#include "base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS 1000000ull
#define S  (1000 * MS)
enum { READ_BYTES = 64 << 10, EVENTS = 256, STATUSES = 600, STORY_BYTES = 200 };

typedef struct samples {
    uint32_t *us; // (capacity)
    size_t count, capacity;
} samples;

typedef enum client_kind { STREAM, IDLE, SLOW } client_kind;
typedef enum client_state { RESTING, SENDING, READING, FINISHED } client_state;

typedef struct client {
    client_kind kind;
    client_state state;
    int fd;          // -1: not connected
    bool is_used;    // the connection has had an answer already
    uint64_t number; // of the request
    rn_buffer request;
    size_t sent;
    uint64_t due, begun, latest; // ns
    reply reply;
} client;

typedef struct load {
    settings set;
    struct addrinfo *address;
    int poll;
    client *clients; // (client_count)
    size_t client_count;
    uint64_t begun, latest; // ns: of the first request, of the last answer's end
    uint64_t next, running;
    samples first, between, whole;
    uint64_t statuses[STATUSES];
    uint64_t complete, short_answers, incomplete, unconnected, broken, late, dropped;
    uint64_t unadvised; // refused with 429 and no Retry-After
    uint64_t tokens, prompt_tokens, events;
    uint64_t idle_closed, slow_closed, slow_bytes;
    char story[STORY_BYTES]; // what the first bad answer said
} load;

// ---- samples ------------------------------------------------------------------------------------

static void add_sample(samples *all, uint64_t ns) {
    if (all->count == all->capacity) {
        all->capacity = all->capacity ? 2 * all->capacity : 1024;
        all->us = realloc(all->us, all->capacity * sizeof *all->us);
        if (!all->us) die("no memory for samples");
    }
    all->us[all->count++] = (uint32_t)(ns / 1000);
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

// Of sorted samples, in ms: the smallest that so many percent are not above.
static double percentile(const samples *all, double percent) {
    if (all->count == 0) return 0;
    size_t rank = (size_t)((double)all->count * percent / 100 + 0.999999);
    return all->us[rank > 0 ? rank - 1 : 0] / 1e3;
}

// ---- connections --------------------------------------------------------------------------------

static void watch(load *l, client *c, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(l->poll, EPOLL_CTL_MOD, c->fd, &event) && errno == ENOENT)
        (void)epoll_ctl(l->poll, EPOLL_CTL_ADD, c->fd, &event);
}

static void hang_up(client *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    c->is_used = false;
}

static bool dial(load *l, client *c) {
    int on = 1, small = 1;
    c->fd = socket(l->address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) return false;
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (c->kind == SLOW) (void)setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (connect(c->fd, l->address->ai_addr, l->address->ai_addrlen) && errno != EINPROGRESS) {
        hang_up(c);
        return false;
    }
    return true;
}

static void rest(load *l, client *c, uint64_t until) {
    if (c->kind == STREAM && c->state != RESTING) l->running--;
    c->state = RESTING;
    c->due = until;
    if (c->fd >= 0) watch(l, c, EPOLLIN | EPOLLRDHUP);
}

static void fail(load *l, client *c, uint64_t *counter) {
    ++*counter;
    hang_up(c);
    rest(l, c, rn_clock_ns() + l->set.pause_ms * MS);
}

// ---- the end of an answer -----------------------------------------------------------------------

static bool is_allowed(size_t status) {
    return status == 200 || status == 429 || status == 503;
}

static void keep_story(load *l, const client *c) {
    if (l->story[0]) return;
    const reply *r = &c->reply;
    const char *why = r->is_bad                 ? ", not JSON"
                      : r->is_error             ? ", an error"
                      : r->part == REPLY_BROKEN ? ", cut off"
                                                : ", no end";
    snprintf(l->story, sizeof l->story, "request %llu, status %d%s: %s",
             (unsigned long long)c->number, r->status, why, r->note);
}

static void take_complete(load *l, const client *c, uint64_t now) {
    const reply *r = &c->reply;
    uint64_t tokens = r->tokens ? r->tokens : r->texts;
    l->complete++;
    l->tokens += tokens;
    l->prompt_tokens += r->prompt_tokens;
    l->events += r->texts;
    if (tokens != l->set.tokens) l->short_answers++;
    add_sample(&l->whole, now - c->begun);
}

static void end_answer(load *l, client *c) {
    uint64_t now = rn_clock_ns();
    const reply *r = &c->reply;
    l->latest = now;
    l->statuses[r->status > 0 && r->status < STATUSES ? r->status : 0]++;
    if (reply_is_complete(r))
        take_complete(l, c, now);
    else if (r->status == 200)
        l->incomplete++;
    if (r->status == 429 && !r->has_retry_after) l->unadvised++;
    bool is_refusal = r->status != 200 && is_allowed((size_t)r->status);
    if (!reply_is_complete(r) && !is_refusal) keep_story(l, c);
    c->is_used = true;
    if (r->closes || r->part == REPLY_BROKEN) hang_up(c);
    rest(l, c, r->status == 200 ? now : now + l->set.pause_ms * MS);
}

// ---- reading ------------------------------------------------------------------------------------

static void begin_request(load *l, client *c);

// A kept connection may have been closed by the server just before the request: asked again.
static void lose(load *l, client *c) {
    bool nothing_came = c->reply.part == REPLY_HEAD && c->reply.line.bytes == 0;
    bool was_used = c->is_used;
    hang_up(c);
    if (nothing_came && was_used) {
        l->running--;
        c->state = RESTING;
        begin_request(l, c);
        return;
    }
    reply_close(&c->reply);
    if (c->reply.part == REPLY_END || c->reply.status == 200) {
        end_answer(l, c);
        return;
    }
    keep_story(l, c);
    fail(l, c, &l->broken);
}

static void take_texts(load *l, client *c, uint64_t before) {
    uint64_t now = rn_clock_ns(), more = c->reply.texts - before;
    if (more == 0) return;
    if (before == 0)
        add_sample(&l->first, now - c->begun);
    else
        add_sample(&l->between, now - c->latest);
    for (uint64_t i = 1; i < more; i++) // arrived together
        add_sample(&l->between, 0);
    c->latest = now;
}

static bool is_dropped(const load *l, const client *c) {
    return l->set.drop && c->number % l->set.drop == l->set.drop - 1 && c->reply.texts > 0;
}

static void read_answer(load *l, client *c) {
    static char bytes[READ_BYTES];
    ssize_t got = recv(c->fd, bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
        lose(l, c);
        return;
    }
    uint64_t before = c->reply.texts;
    reply_feed(&c->reply, bytes, (size_t)got);
    take_texts(l, c, before);
    if (c->reply.part == REPLY_END || c->reply.part == REPLY_BROKEN)
        end_answer(l, c);
    else if (is_dropped(l, c))
        fail(l, c, &l->dropped);
}

// ---- writing ------------------------------------------------------------------------------------

static void send_request(load *l, client *c) {
    size_t left = c->request.bytes - c->sent;
    ssize_t put = send(c->fd, c->request.data + c->sent, left, MSG_NOSIGNAL);
    if (put < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) {
        watch(l, c, EPOLLOUT);
        return;
    }
    if (put < 0 && !c->is_used && errno != EPIPE && errno != ECONNRESET) {
        fail(l, c, &l->unconnected);
        return;
    }
    if (put < 0) { // the refusal of a body that the server does not want to read may lie there
        c->state = READING;
        watch(l, c, EPOLLIN | EPOLLRDHUP);
        return;
    }
    c->sent += (size_t)put;
    bool is_sent = c->sent == c->request.bytes;
    if (is_sent) c->state = READING;
    watch(l, c, is_sent && c->kind == SLOW ? 0 : is_sent ? EPOLLIN | EPOLLRDHUP : EPOLLOUT);
}

static void begin_request(load *l, client *c) {
    uint64_t now = rn_clock_ns();
    c->begun = c->latest = now;
    c->sent = 0;
    reply_begin(&c->reply);
    c->state = SENDING;
    if (c->kind == STREAM) l->running++;
    if (c->fd < 0 && !dial(l, c)) {
        fail(l, c, &l->unconnected);
        return;
    }
    send_request(l, c);
}

// ---- the clients beside the streams -------------------------------------------------------------

static void open_idle(load *l, client *c) {
    if (!dial(l, c)) {
        fail(l, c, &l->unconnected);
        return;
    }
    c->state = READING;
    watch(l, c, EPOLLIN | EPOLLRDHUP);
}

// The server may end it when it likes; then another takes its place.
static void idle_spoke(load *l, client *c) {
    int error = 0;
    socklen_t bytes = sizeof error;
    (void)getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
    fail(l, c, error == ECONNREFUSED ? &l->unconnected : &l->idle_closed);
}

static void read_slowly(load *l, client *c, uint64_t now) {
    char byte;
    if (now < c->latest + S) return;
    c->latest = now;
    ssize_t got = recv(c->fd, &byte, 1, 0);
    if (got == 1) l->slow_bytes++;
    if (got == 0 || (got < 0 && errno != EAGAIN)) fail(l, c, &l->slow_closed);
}

// ---- the loop -----------------------------------------------------------------------------------

static bool is_over(const load *l, uint64_t now) {
    if (l->set.seconds) return now >= l->begun + l->set.seconds * S;
    return l->next >= l->set.requests;
}

static void start_stream(load *l, client *c, uint64_t now) {
    if (is_over(l, now)) {
        c->state = FINISHED;
        hang_up(c);
        return;
    }
    c->number = l->next++;
    make_request(&l->set, c->number, &c->request);
    begin_request(l, c);
}

static void start(load *l, client *c, uint64_t now) {
    if (c->kind == STREAM) start_stream(l, c, now);
    if (c->kind == IDLE) open_idle(l, c);
    if (c->kind == SLOW) {
        make_request(&l->set, c->number, &c->request);
        begin_request(l, c);
    }
}

static void check_time(load *l, client *c, uint64_t now) {
    bool is_asking = c->kind == STREAM && (c->state == SENDING || c->state == READING);
    if (is_asking && now > c->latest + l->set.timeout_s * S) fail(l, c, &l->late);
    if (c->kind == SLOW && c->state == READING) read_slowly(l, c, now);
    if (c->state == RESTING && now >= c->due) start(l, c, now);
}

static void handle(load *l, client *c) {
    if (c->fd < 0) return;
    if (c->kind == IDLE)
        idle_spoke(l, c);
    else if (c->state == SENDING)
        send_request(l, c);
    else if (c->kind == SLOW)
        fail(l, c, &l->slow_closed);
    else if (c->state == READING)
        read_answer(l, c);
    else
        hang_up(c); // closed, or bytes that nobody asked for, between two requests
}

static bool is_busy(const load *l, uint64_t now) {
    return l->running > 0 || !is_over(l, now);
}

static void run(load *l) {
    struct epoll_event events[EVENTS];
    l->begun = l->latest = rn_clock_ns();
    for (size_t i = 0; i < l->set.streams; i++)
        l->clients[i].due = l->begun + i * l->set.stagger_ms * MS;
    uint64_t checked = 0;
    for (uint64_t now = l->begun; is_busy(l, now); now = rn_clock_ns()) {
        // Streams go on at once; whoever waits for the time is looked at every millisecond.
        for (size_t i = 0; i < l->set.streams; i++)
            if (l->clients[i].state == RESTING && now >= l->clients[i].due)
                start(l, &l->clients[i], now);
        for (size_t i = 0; now >= checked + MS && i < l->client_count; i++)
            check_time(l, &l->clients[i], now);
        if (now >= checked + MS) checked = now;
        int count = epoll_wait(l->poll, events, EVENTS, 1);
        for (int i = 0; i < count; i++)
            handle(l, events[i].data.ptr);
    }
}

// ---- the report ---------------------------------------------------------------------------------

static double seconds(const load *l) {
    return (double)(l->latest - l->begun) / 1e9;
}

static uint64_t count_unexpected(const load *l) {
    uint64_t count = 0;
    for (size_t i = 0; i < STATUSES; i++)
        count += is_allowed(i) ? 0 : l->statuses[i];
    return count + l->incomplete + l->unconnected + l->broken + l->late + l->unadvised;
}

static void put_times(rn_json *json, const char *key, const samples *all) {
    rn_json_object(json, key);
    rn_json_u64(json, "count", all->count);
    rn_json_f64(json, "p50", percentile(all, 50));
    rn_json_f64(json, "p90", percentile(all, 90));
    rn_json_f64(json, "p99", percentile(all, 99));
    rn_json_f64(json, "most", percentile(all, 100));
    rn_json_end(json);
}

static void put_statuses(rn_json *json, const load *l) {
    char name[24];
    rn_json_object(json, "statuses");
    for (size_t i = 0; i < STATUSES; i++) {
        if (l->statuses[i] == 0) continue;
        snprintf(name, sizeof name, "%zu", i);
        rn_json_u64(json, name, l->statuses[i]);
    }
    rn_json_end(json);
}

static void put_counts(rn_json *json, const load *l) {
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {{"complete", l->complete},
                  {"short", l->short_answers},
                  {"incomplete", l->incomplete},
                  {"unconnected", l->unconnected},
                  {"broken", l->broken},
                  {"late", l->late},
                  {"dropped", l->dropped},
                  {"unadvised", l->unadvised},
                  {"unexpected", count_unexpected(l)},
                  {"tokens", l->tokens},
                  {"prompt_tokens", l->prompt_tokens},
                  {"events", l->events},
                  {"idle_closed", l->idle_closed},
                  {"slow_closed", l->slow_closed},
                  {"slow_bytes", l->slow_bytes}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        rn_json_u64(json, counts[i].name, counts[i].value);
}

static void report_json(const load *l) {
    rn_json json;
    rn_json_begin(&json, rn_sink_file(stdout), false);
    rn_json_object(&json, NULL);
    rn_json_f64(&json, "seconds", seconds(l));
    rn_json_f64(&json, "tokens_per_second", (double)l->tokens / seconds(l));
    rn_json_f64(&json, "requests_per_second", (double)l->complete / seconds(l));
    put_times(&json, "first_token_ms", &l->first);
    put_times(&json, "between_tokens_ms", &l->between);
    put_times(&json, "end_to_end_ms", &l->whole);
    put_counts(&json, l);
    put_statuses(&json, l);
    rn_json_string(&json, "story", l->story);
    rn_json_end(&json);
    must(rn_json_finish(&json));
}

static void print_times(const char *name, const samples *all) {
    printf("%-16s p50 %9.2f ms   p90 %9.2f   p99 %9.2f   most %9.2f\n", name, percentile(all, 50),
           percentile(all, 90), percentile(all, 99), percentile(all, 100));
}

static void report_text(const load *l) {
    printf("%llu complete answers in %.2f s: %llu prompt tokens, %llu tokens in %llu events\n",
           (unsigned long long)l->complete, seconds(l), (unsigned long long)l->prompt_tokens,
           (unsigned long long)l->tokens, (unsigned long long)l->events);
    printf("%-16s %.2f tokens/s, %.2f requests/s\n", "rate", (double)l->tokens / seconds(l),
           (double)l->complete / seconds(l));
    print_times("first token", &l->first);
    print_times("between tokens", &l->between);
    print_times("end to end", &l->whole);
    printf("%-16s", "statuses");
    for (size_t i = 0; i < STATUSES; i++)
        if (l->statuses[i]) printf(" %zu: %llu", i, (unsigned long long)l->statuses[i]);
    printf("\n%-16s %llu short, %llu incomplete, %llu unconnected, %llu broken, %llu late, "
           "%llu dropped by us, %llu refused without Retry-After\n",
           "answers", (unsigned long long)l->short_answers, (unsigned long long)l->incomplete,
           (unsigned long long)l->unconnected, (unsigned long long)l->broken,
           (unsigned long long)l->late, (unsigned long long)l->dropped,
           (unsigned long long)l->unadvised);
    if (l->set.idle || l->set.slow)
        printf("%-16s %llu idle and %llu slow ones closed by the server; %llu bytes read slowly\n",
               "connections", (unsigned long long)l->idle_closed,
               (unsigned long long)l->slow_closed, (unsigned long long)l->slow_bytes);
    if (l->story[0]) printf("%-16s %s\n", "first bad answer", l->story);
}

static int report(load *l) {
    samples *all[] = {&l->first, &l->between, &l->whole};
    for (size_t i = 0; i < 3; i++)
        if (all[i]->count) qsort(all[i]->us, all[i]->count, sizeof *all[i]->us, compare);
    if (l->set.as_json)
        report_json(l);
    else
        report_text(l);
    bool holds = !l->set.must_complete || (count_unexpected(l) == 0 && l->complete > 0);
    return holds && !(l->set.must_fill && l->short_answers) ? 0 : 1;
}

// ---- main ---------------------------------------------------------------------------------------

static void find_server(load *l) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    if (getaddrinfo(l->set.host, l->set.port, &hints, &l->address)) die("no such host or port");
}

static void make_clients(load *l) {
    const settings *set = &l->set;
    l->client_count = set->streams + set->idle + set->slow;
    l->clients = calloc(l->client_count, sizeof *l->clients);
    if (!l->clients) die("no memory for so many clients");
    for (size_t i = 0; i < l->client_count; i++) {
        client *c = &l->clients[i];
        c->kind = i < set->streams ? STREAM : i < set->streams + set->idle ? IDLE : SLOW;
        c->fd = -1;
        rn_buffer_init(&c->request, &rn_system_allocator, 2 * (size_t)BODY_CAP_BYTES);
    }
}

static void free_load(load *l) {
    for (size_t i = 0; i < l->client_count; i++) {
        hang_up(&l->clients[i]);
        rn_buffer_free(&l->clients[i].request);
        reply_free(&l->clients[i].reply);
    }
    free(l->clients), free(l->first.us), free(l->between.us), free(l->whole.us);
    rn_buffer_free(&l->set.prompt);
    freeaddrinfo(l->address);
    close(l->poll);
}

int main(int argc, char **argv) {
    static load l;
    l.set = read_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    l.poll = epoll_create1(EPOLL_CLOEXEC);
    find_server(&l);
    make_clients(&l);
    run(&l);
    int code = report(&l);
    free_load(&l);
    return code;
}
