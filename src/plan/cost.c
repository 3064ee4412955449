// cost.c — seconds: of a node, of a read, of a run in which both go on side by side.
//
//     compute  |--0--|--1--|..wait..|---2---|          a node waits for the READ of its load,
//     read        |----load 2-----|--load 3--|           a READ for the EVICT that frees its slot
//     send                  |--offload--|                 what leaves for the host holds its place
//
// Rates are the device's, as measured; what a node takes is its back end's affair
// (device/call_cost.h). A device with memory of its own costs the host something in each run, too.
#include "plan/planner.h"

static double max_f64(double a, double b) {
    return a > b ? a : b;
}

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

// What comes out crosses the link, and one thread looks at every number of it: a sampler for the
// largest one. That was 0.21 ns a number on one CPU, 6.6 us for 32,000 logits.
double rn_cost_outputs(const rn_device_caps *caps, uint64_t bytes) {
    const double look_bytes_second = 19e9;
    if (caps->run_seconds <= 0) return 0;
    return caps->run_seconds +
           (double)bytes * (1 / caps->link_bytes_second + 1 / look_bytes_second);
}

double rn_cost_read(const rn_device_caps *caps, uint64_t file_bytes, uint64_t bytes,
                    bool from_host) {
    double disk = from_host ? 0 : (double)file_bytes / caps->disk_bytes_second;
    return caps->own_memory ? max_f64(disk, (double)bytes / caps->link_bytes_second) : disk;
}

double rn_cost_copy(const rn_device_caps *caps, uint64_t bytes) {
    return (double)bytes / caps->link_bytes_second + caps->step_seconds;
}

// ---- queues -------------------------------------------------------------------------------------

typedef struct queues {
    const rn_device_caps *caps;
    const rn_traffic *traffic;
    const rn_stream *stream;
    double compute, read, send;     // when each is done with what it has
    double *sent, *brought;         // (offloads): when that is done
    uint32_t away, gone, due, back; // of the orders of offloads, how many have come up
} queues;

static void submit_read(queues *q, uint32_t load, double earliest) {
    const rn_plan_group *group = &q->traffic->groups[q->stream->loads[load].group];
    q->read = max_f64(q->read, earliest) +
              rn_cost_read(q->caps, group->file_bytes, group->bytes, q->stream->from_host);
    q->traffic->ready[load] = q->read;
}

// Before the first run: the READs that a run makes for the next one.
static void fill_slots(queues *q) {
    for (uint32_t i = 0; i < q->stream->load_count; i++) {
        bool next_run = false;
        uint32_t follower = rn_stream_follower(q->stream, q->stream->by_last[i], &next_run);
        if (next_run) submit_read(q, follower, 0);
    }
}

// Whether an offload is made.
static bool is_made(const queues *q, uint32_t offload) {
    return !(q->traffic->no_homes && q->traffic->offloads->list[offload].home);
}

// Before the position: what is brought from here on, what must be there.
static void bring(queues *q, uint32_t position) {
    const rn_offloads *t = q->traffic->offloads;
    for (; q->due < t->count && t->list[t->by_due[q->due]].due == position; q->due++) {
        uint32_t offload = t->by_due[q->due];
        if (!is_made(q, offload)) continue;
        q->read = max_f64(q->read, q->compute) + rn_cost_copy(q->caps, t->list[offload].bytes);
        q->brought[offload] = q->read;
    }
    for (; q->back < t->count && t->list[t->by_back[q->back]].back == position; q->back++)
        if (is_made(q, t->by_back[q->back]))
            q->compute = max_f64(q->compute, q->brought[t->by_back[q->back]]);
}

// Behind it: what is sent from here on, what must have left.
static void send(queues *q, uint32_t position) {
    const rn_offloads *t = q->traffic->offloads;
    for (; q->away < t->count && t->list[t->by_away[q->away]].away == position; q->away++) {
        uint32_t offload = t->by_away[q->away];
        if (!is_made(q, offload)) continue;
        q->send = max_f64(q->send, q->compute) + rn_cost_copy(q->caps, t->list[offload].bytes);
        q->sent[offload] = q->send;
    }
    for (; q->gone < t->count && t->list[t->by_gone[q->gone]].gone == position; q->gone++)
        if (is_made(q, t->by_gone[q->gone]))
            q->compute = max_f64(q->compute, q->sent[t->by_gone[q->gone]]);
}

// The first position from `from` on where something begins or ends, or that many.
static uint32_t next_position(const queues *q, uint32_t begun, uint32_t evicted,
                              uint32_t positions) {
    const rn_stream *s = q->stream;
    const rn_offloads *t = q->traffic->offloads;
    uint32_t next = positions;
    if (begun < s->load_count) next = least(next, s->loads[begun].first);
    if (evicted < s->load_count) next = least(next, s->loads[s->by_last[evicted]].last);
    if (!t) return next;
    if (q->due < t->count) next = least(next, t->list[t->by_due[q->due]].due);
    if (q->back < t->count) next = least(next, t->list[t->by_back[q->back]].back);
    if (q->away < t->count) next = least(next, t->list[t->by_away[q->away]].away);
    if (q->gone < t->count) next = least(next, t->list[t->by_gone[q->gone]].gone);
    return next;
}

// Positions at which nothing else happens are passed over: they are nearly all.
static void run_once(queues *q, const double *until /* (positions + 1) */, uint32_t positions) {
    const rn_stream *s = q->stream;
    bool has_offloads = q->traffic->offloads && q->traffic->offloads->count;
    uint32_t begun = 0, evicted = 0, done = 0;
    q->away = q->gone = q->due = q->back = 0;
    for (uint32_t p; (p = next_position(q, begun, evicted, positions)) < positions; done = p + 1) {
        if (p > done) q->compute += until[p] - until[done];
        if (has_offloads) bring(q, p);
        for (; begun < s->load_count && s->loads[begun].first == p; begun++)
            q->compute = max_f64(q->compute, q->traffic->ready[begun]);
        q->compute += until[p + 1] - until[p];
        if (has_offloads) send(q, p);
        for (; evicted < s->load_count && s->loads[s->by_last[evicted]].last == p; evicted++) {
            bool next_run = false;
            submit_read(q, rn_stream_follower(s, s->by_last[evicted], &next_run), q->compute);
        }
    }
    q->compute += until[positions] - until[done];
}

// The third of three runs: by then reads of one run overlap the end of the one before, as they will
// in all that follow.
double rn_cost_run(const rn_device_caps *caps, const double *until, uint32_t positions,
                   const rn_traffic *traffic) {
    const rn_stream *stream = traffic->stream;
    uint32_t offloads = traffic->offloads ? traffic->offloads->count : 0;
    queues q = {.caps = caps,
                .traffic = traffic,
                .stream = stream,
                .sent = traffic->done,
                .brought = offloads ? traffic->done + offloads : NULL};
    double computing = until[positions], reading = 0;
    if (stream->slot_count == 0 && offloads == 0) return computing;
    for (uint32_t u = 0; stream->slot_count && u < stream->load_count; u++) {
        const rn_plan_group *group = &traffic->groups[stream->loads[u].group];
        reading += rn_cost_read(caps, group->file_bytes, group->bytes, stream->from_host);
    }
    fill_slots(&q);
    run_once(&q, until, positions);
    run_once(&q, until, positions);
    double begin = q.compute;
    run_once(&q, until, positions);
    // A run that waits for nothing takes just as long as its steps: sums of other orders differ in
    // their last bits, and would make equal plans look unequal.
    double run = max_f64(q.compute - begin, max_f64(computing, reading));
    return run < computing * (1 + 1e-9) ? computing : run;
}
