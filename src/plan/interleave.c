// interleave.c — an interleaved run: one side computes at a time, and the link copies meanwhile.
#include "plan/interleave.h"

// Groups of the CPU's blocks differ by one; the small ones come first, for before the first group
// the link has the end of the run before as well.
bool rn_interleave_streams(uint32_t block, uint32_t count, uint32_t streamed) {
    if (streamed == 0) return false;
    uint64_t most = count - 1 - streamed, shift = streamed - 1;
    if (shift > most) shift = most;
    uint64_t before = (uint64_t)block * streamed + shift;
    return (before + streamed) / count > before / count;
}

typedef struct course {
    const rn_interleave *interleave;
    uint32_t streamed;
    double now, link;                  // when each is done with what it has
    double ready[RN_INTERLEAVE_SLOTS]; // when what a slot is for is there
} course;

static double later(double a, double b) {
    return a > b ? a : b;
}

// Number `number` of those that are brought.
static const rn_interleave_block *find_brought(const course *c, uint32_t number) {
    uint32_t i = 0;
    for (uint32_t seen = 0;; i++)
        if (rn_interleave_streams(i, c->interleave->count, c->streamed) && seen++ == number) break;
    return &c->interleave->blocks[i];
}

// What follows a block in its place, in this run or the next.
static void bring_follower(course *c, uint32_t number) {
    uint32_t places = c->interleave->slots, place = number % places;
    bool here = number + places < c->streamed;
    const rn_interleave_block *next = find_brought(c, here ? number + places : place);
    c->link = later(c->link, c->now) + next->link_seconds;
    c->ready[place] = c->link;
}

// Slower while the link is at work.
static void compute_on_host(course *c, double seconds) {
    double share = c->interleave->host_share, beside = later(c->link - c->now, 0);
    if (beside * share >= seconds)
        c->now += seconds / share;
    else
        c->now += beside + (seconds - beside * share);
}

static void run_once(course *c) {
    const rn_interleave *w = c->interleave;
    bool on_device = false;
    for (uint32_t i = 0, brought = 0; i < w->count; i++) {
        const rn_interleave_block *block = &w->blocks[i];
        bool streams = rn_interleave_streams(i, w->count, c->streamed);
        if (streams && !on_device) c->now += RN_INTERLEAVE_CROSSING_SECONDS;
        if (streams) {
            c->now = later(c->now, c->ready[brought % w->slots]) + block->device_seconds;
            bring_follower(c, brought++);
        } else {
            compute_on_host(c, block->host_seconds);
        }
        on_device = streams;
    }
    c->now += w->tail_seconds;
}

// The third of three runs: by then the link is as far ahead as it will be in all that follow.
double rn_interleave_seconds(const rn_interleave *interleave, uint32_t streamed) {
    course c = {.interleave = interleave, .streamed = streamed};
    double sum = interleave->tail_seconds;
    for (uint32_t i = 0; i < interleave->count; i++)
        sum += interleave->blocks[i].host_seconds;
    if (streamed == 0) return sum;
    run_once(&c);
    run_once(&c);
    double begin = c.now;
    run_once(&c);
    return c.now - begin;
}

uint32_t rn_interleave_deal(const rn_interleave *interleave) {
    uint32_t best = 0;
    double least = rn_interleave_seconds(interleave, 0);
    for (uint32_t streamed = 1; interleave->slots && streamed < interleave->count; streamed++) {
        double seconds = rn_interleave_seconds(interleave, streamed);
        if (seconds >= least) continue;
        least = seconds;
        best = streamed;
    }
    return best;
}
