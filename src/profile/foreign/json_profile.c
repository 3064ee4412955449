// json_profile.c — a memory_profile_*.json (the documented form, pie's, or ration's own export) as
// a timeline.
//
// The file is read once, as a stream; what it says is collected with times since the epoch, and
// put into the timeline when the first of them is known. Where the lives of tensors were tracked,
// begins and ends move from the snapshots to when they happened: always ends, but begins only
// where every end between the same two snapshots is known. Otherwise what has ended is still drawn
// beside what has begun, and the curve would have peaks that were not there.
#include "profile/foreign/json_profile.h"

#include "base/checked.h"
#include "memory/account.h"
#include "profile/foreign/foreign.h"

// ---- reading ------------------------------------------------------------------------------------

static rn_status read_metadata(rn_json_profile *p) {
    rn_foreign_text command = {.bytes = 0};
    rn_str text = {"", 0};
    rn_json_word word;
    bool more;
    RN_TRY(rn_jp_enter(p, RN_JSON_OBJECT, &more));
    while (more) {
        RN_TRY(rn_jp_next_word(p, &word, &more));
        if (!more) break;
        if (word == RN_JP_STARTED_AT)
            RN_TRY(rn_jp_time(p, &p->started_ns));
        else if (word == RN_JP_COMMAND)
            RN_TRY(rn_jp_text(p, &text));
        else
            RN_TRY(rn_jp_skip(p));
    }
    rn_foreign_append(&command, text);
    size_t bytes = rn_min_u64(command.bytes, sizeof p->timeline->command - 1);
    memcpy(p->timeline->command, command.data, bytes);
    p->timeline->command[bytes] = '\0';
    return RN_OK;
}

static rn_status read_section(rn_json_profile *p, rn_json_word word) {
    switch (word) {
    case RN_JP_METADATA:
        return read_metadata(p);
    case RN_JP_SNAPSHOTS:
        return rn_jp_snapshots(p);
    case RN_JP_OPERATION_ALLOCATIONS:
        return rn_jp_operation_allocations(p);
    case RN_JP_OPERATION_SUMMARY:
        return rn_jp_operation_summary(p);
    case RN_JP_OPERATION_LOG:
        return rn_jp_operation_log(p);
    case RN_JP_TENSOR_LIFECYCLE:
        return rn_jp_tensor_lifecycle(p);
    case RN_JP_PYTORCH_OPERATIONS:
        return rn_jp_pytorch_operations(p);
    default:
        return rn_jp_skip(p);
    }
}

static rn_status read_sections(rn_json_profile *p) {
    rn_json_word word;
    bool more;
    RN_TRY(rn_json_expect(&p->json, RN_JSON_OBJECT, NULL));
    for (;;) {
        RN_TRY(rn_jp_next_word(p, &word, &more));
        if (!more) break;
        RN_TRY(read_section(p, word));
    }
    RN_TRY(rn_json_expect(&p->json, RN_JSON_END, NULL));
    RN_TRY(rn_jp_end_snapshots(p));
    if (p->has_snapshots || p->has_operations) return RN_OK;
    return rn_hint(rn_fail(RN_CORRUPT, "no memory profile: neither snapshots nor operations"),
                   "a profile has the keys \"snapshots\" or \"operation_allocations\"; "
                   "ration profile export --format json writes one");
}

// ---- times --------------------------------------------------------------------------------------

static void see(int64_t *first_ns, int64_t time_ns) {
    if (time_ns != RN_NO_TIME && (*first_ns == RN_NO_TIME || time_ns < *first_ns))
        *first_ns = time_ns;
}

static int64_t first_time(const rn_json_profile *p) {
    int64_t first_ns = p->started_ns;
    for (size_t i = 0; i < p->snapshots.count; i++)
        see(&first_ns, p->snapshots.items[i].time_ns);
    for (size_t i = 0; i < p->operations.count; i++)
        see(&first_ns, p->operations.items[i].time_ns);
    for (size_t i = 0; i < p->tracked.count; i++)
        see(&first_ns, p->tracked.items[i].begin_ns);
    return first_ns;
}

static void shift(int64_t *time_ns, int64_t first_ns) {
    if (*time_ns != RN_NO_TIME) *time_ns -= first_ns;
}

// Times since the beginning. Snapshots keep their order: stamps may be whole seconds, so that
// several share one.
static void set_times(rn_json_profile *p) {
    int64_t first_ns = first_time(p), last_ns = -1;
    bool known = first_ns != RN_NO_TIME;
    if (!known) first_ns = 0;
    if (!known && p->snapshots.count)
        rn_timeline_note(p->timeline, "snapshots have no times: only their order is known");
    p->timeline->start_unix_ns = first_ns > 0 ? (uint64_t)first_ns : 0;
    for (size_t i = 0; i < p->snapshots.count; i++) {
        int64_t *time_ns = &p->snapshots.items[i].time_ns;
        shift(time_ns, first_ns);
        if (*time_ns <= last_ns) *time_ns = last_ns + 1;
        last_ns = *time_ns;
    }
    for (size_t i = 0; i < p->tracked.count; i++) {
        shift(&p->tracked.items[i].begin_ns, first_ns);
        shift(&p->tracked.items[i].end_ns, first_ns);
    }
    for (size_t i = 0; i < p->operations.count; i++)
        shift(&p->operations.items[i].time_ns, first_ns);
}

static int64_t snapshot_time(const rn_json_profile *p, size_t snapshot) {
    return snapshot < p->snapshots.count ? p->snapshots.items[snapshot].time_ns : INT64_MAX;
}

// ---- lives --------------------------------------------------------------------------------------

// The last life of this id that was tracked to begin until `until_ns`, or NULL.
static rn_json_tracked *find_tracked(rn_json_profile *p, const rn_map *ids, rn_str id,
                                     int64_t until_ns) {
    uint64_t first;
    if (!id.bytes || !rn_map_find(ids, id, &first)) return NULL;
    size_t low = first, high = first + p->tracked.items[first].count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->tracked.items[middle].begin_ns <= until_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low > first ? &p->tracked.items[low - 1] : NULL;
}

static rn_status index_tracked(rn_json_profile *p, rn_map *ids) {
    size_t first = 0;
    for (size_t i = 0; i < p->tracked.count; i++) {
        if (!i || p->tracked.items[i].id.data != p->tracked.items[i - 1].id.data) {
            first = i;
            RN_TRY(rn_map_add(ids, p->tracked.items[i].id, i, NULL));
        }
        p->tracked.items[first].count++;
    }
    return RN_OK;
}

// When a life ended, if that was tracked: behind the last snapshot that has it, and not after the
// first that does not.
static bool tracked_end(const rn_json_profile *p, const rn_json_life *life,
                        const rn_json_tracked *tracked, int64_t *out_ns) {
    int64_t seen_ns = snapshot_time(p, life->last);
    *out_ns = tracked ? tracked->end_ns : RN_NO_TIME;
    if (*out_ns == RN_NO_TIME || *out_ns < seen_ns) return false;
    if (*out_ns == seen_ns) ++*out_ns; // stamps are cut to microseconds
    return *out_ns <= snapshot_time(p, (size_t)life->last + 1);
}

// Between which snapshots all ends are known.
static void find_exact(rn_json_profile *p, const rn_map *ids) {
    int64_t end_ns;
    for (size_t i = 0; i < p->snapshots.count; i++)
        p->snapshots.items[i].is_exact = true;
    for (size_t i = 0; i < p->lives.count; i++) {
        const rn_json_life *life = &p->lives.items[i];
        rn_json_tracked *tracked = find_tracked(p, ids, life->id, snapshot_time(p, life->last));
        if (tracked) tracked->is_used = true;
        if (life->last + 1 < p->snapshots.count && !tracked_end(p, life, tracked, &end_ns))
            p->snapshots.items[life->last].is_exact = false;
    }
}

// Whether begins between snapshot `first` - 1 and `first` may be taken as tracked.
static bool is_exact_before(const rn_json_profile *p, size_t first) {
    return first == 0 || p->snapshots.items[first - 1].is_exact;
}

static rn_status add_life(rn_json_profile *p, const rn_map *ids, const rn_json_life *life) {
    rn_timeline_alloc alloc = {.begin_ns = (uint64_t)snapshot_time(p, life->first),
                               .end_ns = RN_STILL_LIVE,
                               .bytes = life->bytes,
                               .name = life->name,
                               .device = life->device,
                               .purpose = life->purpose};
    rn_json_tracked *first = find_tracked(p, ids, life->id, snapshot_time(p, life->first));
    rn_json_tracked *last = find_tracked(p, ids, life->id, snapshot_time(p, life->last));
    int64_t before_ns = life->first ? snapshot_time(p, life->first - 1) : -1, end_ns;
    if (first && first->begin_ns >= before_ns && is_exact_before(p, life->first))
        alloc.begin_ns = (uint64_t)(first->begin_ns == before_ns ? before_ns + 1 : first->begin_ns);
    if (tracked_end(p, life, last, &end_ns))
        alloc.end_ns = (uint64_t)end_ns;
    else if (life->last + 1 < p->snapshots.count)
        alloc.end_ns = (uint64_t)snapshot_time(p, life->last + 1);
    return rn_timeline_add_alloc(p->timeline, &alloc);
}

// The first snapshot that is not before `time_ns`.
static size_t snapshot_from(const rn_json_profile *p, int64_t time_ns) {
    size_t low = 0, high = p->snapshots.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->snapshots.items[middle].time_ns < time_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// A life that no snapshot has: it must lie between two, else a snapshot's total has it unlisted.
static rn_status add_between(rn_json_profile *p, const rn_json_tracked *life) {
    rn_timeline_alloc alloc = {.begin_ns = (uint64_t)life->begin_ns,
                               .end_ns = (uint64_t)life->end_ns,
                               .bytes = life->bytes,
                               .name = life->name,
                               .device = life->device,
                               .purpose = life->purpose};
    if (life->is_used || life->begin_ns < 0 || life->end_ns < life->begin_ns) return RN_OK;
    size_t next = snapshot_from(p, life->begin_ns);
    int64_t next_ns = snapshot_time(p, next);
    if (next_ns < life->end_ns || next_ns == life->begin_ns || !is_exact_before(p, next))
        return RN_OK;
    if (life->device == RN_DEVICE_ANY) RN_TRY(rn_jp_device(p, (rn_str){"", 0}, &alloc.device));
    return rn_timeline_add_alloc(p->timeline, &alloc);
}

static rn_status add_lives(rn_json_profile *p, rn_map *ids) {
    RN_TRY(index_tracked(p, ids));
    find_exact(p, ids);
    for (size_t i = 0; i < p->lives.count; i++)
        RN_TRY(add_life(p, ids, &p->lives.items[i]));
    for (size_t i = 0; i < p->tracked.count; i++)
        RN_TRY(add_between(p, &p->tracked.items[i]));
    return RN_OK;
}

// ---- the rest -----------------------------------------------------------------------------------

static rn_status add_marks(rn_json_profile *p) {
    for (size_t i = 0; i < p->snapshots.count; i++) {
        const rn_json_snapshot *snapshot = &p->snapshots.items[i];
        rn_timeline_mark mark = {.time_ns = (uint64_t)snapshot->time_ns,
                                 .name = snapshot->name,
                                 .kind = snapshot->kind,
                                 .device = RN_DEVICE_ANY};
        RN_TRY(rn_timeline_add_mark(p->timeline, &mark));
    }
    return RN_OK;
}

// Whether the log has what operation_allocations has, and more.
static bool is_log_better(const rn_json_profile *p) {
    for (size_t i = 0; i < p->operations.count; i++)
        if (p->operations.items[i].is_log && p->operations.items[i].has_duration) return true;
    return false;
}

// ration's own exports list each operation twice, both times in the order of time: the k-th of a
// name in the log is the k-th of that name in operation_allocations, which has the bytes.
static rn_status give_deltas(rn_json_profile *p, rn_map *firsts) {
    size_t count = p->operations.count;
    uint64_t first;
    for (size_t i = 0; i < count; i++) {
        const rn_json_operation *op = &p->operations.items[i];
        if (!op->is_log && !rn_map_find(firsts, op->key, &first))
            RN_TRY(rn_map_add(firsts, op->key, i, NULL));
    }
    for (size_t i = 0; i < count; i++) {
        rn_json_operation *log = &p->operations.items[i];
        if (!log->is_log || !rn_map_find(firsts, log->key, &first)) continue;
        uint64_t at = first + p->operations.items[first].taken;
        if (at >= count || p->operations.items[at].is_log) continue;
        const rn_json_operation *twin = &p->operations.items[at];
        if (!rn_str_equal(twin->key, log->key)) continue;
        p->operations.items[first].taken++;
        log->has_delta = twin->has_delta;
        log->delta_bytes = twin->delta_bytes;
        log->pre_bytes = twin->pre_bytes;
        log->alloc_count = twin->alloc_count;
        log->free_count = twin->free_count;
    }
    return RN_OK;
}

static rn_status add_operation(rn_json_profile *p, const rn_json_operation *operation) {
    rn_timeline_op op = {.name = operation->name,
                         .lane = operation->lane,
                         .told = operation->has_delta,
                         .alloc_count = operation->alloc_count,
                         .free_count = operation->free_count,
                         .delta_bytes = operation->delta_bytes,
                         .pre_bytes = operation->pre_bytes};
    op.begin_ns = operation->time_ns > 0 ? (uint64_t)operation->time_ns : 0;
    op.end_ns = op.begin_ns + operation->duration_ns;
    return rn_timeline_add_op(p->timeline, &op);
}

static rn_status add_operations(rn_json_profile *p) {
    bool log_only = is_log_better(p), all_known = true;
    if (log_only) {
        rn_map firsts;
        rn_map_init(&firsts, p->from);
        rn_status s = give_deltas(p, &firsts);
        rn_map_free(&firsts);
        RN_TRY(s);
    }
    for (size_t i = 0; i < p->operations.count; i++) {
        const rn_json_operation *operation = &p->operations.items[i];
        if (log_only && !operation->is_log) continue;
        all_known &= operation->has_duration;
        RN_TRY(add_operation(p, operation));
    }
    if (!all_known)
        rn_timeline_note(p->timeline, "how long operations took is not in the file: each is drawn "
                                      "as the moment at which it ended");
    return RN_OK;
}

static void note_sums(const rn_json_profile *p) {
    const rn_timeline *t = p->timeline;
    uint64_t told = 0;
    for (uint32_t i = 0; i < t->sum_count; i++)
        if (!rn_add_u64(told, t->sums[i].count, &told)) return;
    if (told > t->op_count)
        rn_timeline_note(p->timeline,
                         "operation_summary counts %llu operations, of which %u are listed: counts "
                         "and changes are the summary's",
                         (unsigned long long)told, t->op_count);
}

static rn_status fill_timeline(rn_json_profile *p) {
    rn_map ids;
    set_times(p);
    rn_map_init(&ids, p->from);
    rn_status s = add_lives(p, &ids);
    rn_map_free(&ids);
    if (s == RN_OK) s = add_marks(p);
    if (s == RN_OK) s = add_operations(p);
    if (p->is_inconsistent)
        rn_timeline_note(p->timeline,
                         "some snapshots list more bytes than their totals: the lists are drawn");
    note_sums(p);
    p->timeline->event_count = p->snapshots.count + p->operations.count;
    p->timeline->has_end = true;
    return s;
}

// ---- all of it ----------------------------------------------------------------------------------

#define FREE_ARRAY(p, array)                                                                       \
    rn_free((p)->from, (p)->array.items, (p)->array.capacity * sizeof *(p)->array.items)

static void init(rn_json_profile *p, const uint8_t *data, uint64_t bytes) {
    rn_str text = {(const char *)data, bytes};
    p->started_ns = RN_NO_TIME;
    if (rn_str_starts(text, RN_STR("\xef\xbb\xbf"))) // a byte order mark
        text = (rn_str){text.data + 3, text.bytes - 3};
    rn_json_reader_init(&p->json, text, p->from);
    rn_arena_init(&p->texts, p->from, 0);
    rn_map_init(&p->text_ids, p->from);
    rn_map_init(&p->tensor_ids, p->from);
    rn_map_init(&p->lane_ids, p->from);
    rn_buffer_init(&p->key, p->from, SIZE_MAX / 4);
    rn_buffer_init(&p->shape, p->from, SIZE_MAX / 4);
}

static void clear(rn_json_profile *p) {
    rn_json_reader_free(&p->json);
    rn_map_free(&p->text_ids);
    rn_map_free(&p->tensor_ids);
    rn_map_free(&p->lane_ids);
    rn_buffer_free(&p->key);
    rn_buffer_free(&p->shape);
    FREE_ARRAY(p, snapshots);
    FREE_ARRAY(p, tensors);
    FREE_ARRAY(p, live);
    FREE_ARRAY(p, lives);
    FREE_ARRAY(p, tracked);
    FREE_ARRAY(p, operations);
    rn_arena_free_all(&p->texts);
}

rn_status rn_json_profile_read(const char *path, const uint8_t *data, uint64_t bytes,
                               rn_timeline **out) {
    *out = NULL;
    uint32_t lane;
    rn_json_profile p = {.from = &rn_host_allocators[RN_PURPOSE_PROFILER]};
    RN_TRY(rn_timeline_create(path, "memory profile", &p.timeline));
    init(&p, data, bytes);
    rn_status s = rn_timeline_add_lane(p.timeline, RN_STR("snapshots"), false, &lane);
    if (s == RN_OK) s = read_sections(&p);
    if (s == RN_OK) s = fill_timeline(&p);
    clear(&p);
    if (s == RN_OK)
        *out = p.timeline;
    else
        rn_timeline_destroy(p.timeline);
    return s;
}
