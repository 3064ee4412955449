// offload.c — lists of names become constraints of a plan; a change of them is another plan and
// session.
//
//     stays     keep, and what was loaded on demand
//     does not  what was offloaded; after clear_inactive, all the rest
//
// The new plan is made before the old session goes, so a refusal changes nothing. Both sessions are
// never there together: states wait on the host meanwhile.
#include <ration/offload.h>

#include "base/checked.h"
#include "device/device.h"
#include "memory/account.h"
#include "plan/plan.h"
#include "runtime/recover.h"
#include "runtime/session.h"

#include <string.h>

#define FROM RN_HOST_OTHER

// Patterns with commas between them; NULL: none. Owned.
typedef struct constraints {
    char *keep, *loaded, *offload;
    bool only_kept; // nothing else stays
} constraints;

typedef struct saved_state {
    struct saved_state *next;
    char *name;
    void *data;
    uint64_t bytes;
} saved_state;

struct rn_offload_manager {
    const rn_recipe *recipe;
    rn_weight_source weights;
    rn_device *device; // or NULL
    rn_plan_options options;
    uint64_t lowered_bytes; // the budget while the device has less than that; 0: it has not
    constraints constraints;
    rn_plan *plan; // NULL where opening failed
    rn_session *session;
    saved_state *states; // of the session before, until another has them
};

// ---- lists --------------------------------------------------------------------------------------

static void drop_text(char *text) {
    if (text) rn_free(FROM, text, strlen(text) + 1);
}

// "a,b"; either may be NULL.
static rn_status join(const char *a, const char *b, char **out) {
    size_t a_bytes = a ? strlen(a) : 0, b_bytes = b ? strlen(b) : 0, comma = a_bytes && b_bytes;
    void *block = NULL;
    *out = NULL;
    if (a_bytes + b_bytes == 0) return RN_OK;
    RN_TRY(rn_alloc(FROM, a_bytes + comma + b_bytes + 1, &block));
    char *text = *out = block;
    if (a_bytes) memcpy(text, a, a_bytes);
    if (comma) text[a_bytes] = ',';
    if (b_bytes) memcpy(text + a_bytes + comma, b, b_bytes);
    text[a_bytes + comma + b_bytes] = 0;
    return RN_OK;
}

static void drop_constraints(constraints *w) {
    drop_text(w->keep);
    drop_text(w->loaded);
    drop_text(w->offload);
    *w = (constraints){0};
}

// To be dropped in any case.
static rn_status copy_constraints(const char *keep, const char *loaded, const char *offload,
                                  bool only_kept, constraints *out) {
    *out = (constraints){.only_kept = only_kept};
    RN_TRY(join(keep, NULL, &out->keep));
    RN_TRY(join(loaded, NULL, &out->loaded));
    return join(offload, NULL, &out->offload);
}

// ---- plans --------------------------------------------------------------------------------------

static rn_status check_recipe(const rn_graph *graph) {
    for (uint32_t n = 0; n < rn_graph_node_count(graph); n++)
        if (rn_graph_node(graph, n)->phase != RN_PHASE_FORWARD)
            return rn_hint(rn_fail(RN_UNSUPPORTED, "the recipe trains: its weights never leave"),
                           "a budget makes a training step smaller (rn_trainer_create)");
    return RN_OK;
}

static rn_status make_plan(const rn_offload_manager *m, const constraints *w, rn_plan **out) {
    const rn_device_caps *caps = m->device ? &m->device->caps : rn_cpu_caps();
    rn_plan_options options = m->options;
    char *keep = NULL;
    *out = NULL;
    RN_TRY(join(w->keep, w->loaded, &keep));
    options.keep = keep;
    options.offload = w->only_kept ? "*" : w->offload;
    if (m->lowered_bytes) options.budget_bytes = m->lowered_bytes;
    rn_status s = rn_plan_make(m->recipe, caps, &options, out);
    drop_text(keep);
    if (s == RN_OK) s = check_recipe(rn_plan_graph(*out));
    if (s == RN_OK) return RN_OK;
    rn_plan_destroy(*out);
    *out = NULL;
    return s;
}

// ---- states -------------------------------------------------------------------------------------

static void drop_states(rn_offload_manager *m) {
    while (m->states) {
        saved_state *state = m->states;
        m->states = state->next;
        drop_text(state->name);
        rn_free(FROM, state->data, state->bytes);
        rn_free(FROM, state, sizeof *state);
    }
}

static rn_status save_state(rn_offload_manager *m, const rn_value_info *info, rn_value value) {
    void *block = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(saved_state), &block));
    saved_state *state = block;
    state->next = m->states;
    m->states = state;
    RN_TRY(join(info->name, NULL, &state->name));
    uint64_t bytes = m->plan->places[value].bytes;
    RN_TRY(rn_alloc(FROM, bytes, &state->data));
    state->bytes = bytes;
    return rn_session_get(m->session, info->name, state->data, bytes);
}

// A failure leaves the session as it is, and nothing saved.
static rn_status save_states(rn_offload_manager *m) {
    if (!m->session) return RN_OK;
    const rn_graph *graph = rn_plan_graph(m->plan);
    rn_status s = RN_OK;
    for (rn_value v = 1; v <= rn_graph_value_count(graph) && s == RN_OK; v++) {
        const rn_value_info *info = rn_graph_value(graph, v);
        bool first = info->role == RN_ROLE_STATE && info->producer == RN_NO_NODE;
        if (first && rn_session_address(m->session, v)) s = save_state(m, info, v);
    }
    if (s != RN_OK) drop_states(m);
    return s;
}

static rn_status restore_states(rn_offload_manager *m) {
    for (const saved_state *state = m->states; state; state = state->next)
        RN_TRY(rn_session_put(m->session, state->name, state->data, state->bytes));
    drop_states(m);
    return RN_OK;
}

// ---- a session ----------------------------------------------------------------------------------

static void close_session(rn_offload_manager *m) {
    rn_session_destroy(m->session);
    m->session = NULL;
}

// The steps of runtime/recover.h. The first plan is there already.
static rn_status use_plan(void *self, const rn_plan **out) {
    rn_offload_manager *m = self;
    if (!m->plan) RN_TRY(make_plan(m, &m->constraints, &m->plan));
    *out = m->plan;
    return RN_OK;
}

static rn_status create_session(void *self) {
    rn_offload_manager *m = self;
    rn_session_options options = {.device = m->device};
    return rn_session_create(m->plan, &m->weights, &options, &m->session);
}

static void undo_plan(void *self) {
    rn_offload_manager *m = self;
    close_session(m);
    rn_plan_destroy(m->plan);
    m->plan = NULL;
}

static void lower_budget(void *self, uint64_t bytes) {
    rn_offload_manager *m = self;
    const rn_plan_options *o = &m->options;
    uint64_t total, budget = o->budget_bytes ? o->budget_bytes : RN_NO_LIMIT;
    if (!rn_add_u64(bytes, o->reserved_bytes, &total)) total = RN_NO_LIMIT;
    m->lowered_bytes = rn_max_u64(rn_min_u64(budget, total), 1);
}

static rn_status open_session(rn_offload_manager *m) {
    if (m->session) return RN_OK;
    rn_status s = rn_recover(&(rn_recovery){.device = m->device,
                                            .self = m,
                                            .plan = use_plan,
                                            .open = create_session,
                                            .undo = undo_plan,
                                            .lower = lower_budget});
    m->lowered_bytes = 0; // the next time there may be more
    RN_TRY(s);
    s = restore_states(m);
    if (s != RN_OK) close_session(m);
    return s;
}

// The constraints are taken over, or dropped.
static rn_status change(rn_offload_manager *m, constraints *new) {
    rn_plan *plan = NULL;
    rn_status s = make_plan(m, new, &plan);
    if (s == RN_OK) s = save_states(m);
    if (s != RN_OK) {
        rn_plan_destroy(plan);
        drop_constraints(new);
        return s;
    }
    undo_plan(m);
    drop_constraints(&m->constraints);
    m->plan = plan;
    m->constraints = *new;
    return open_session(m);
}

// ---- the manager --------------------------------------------------------------------------------

rn_status rn_offload_manager_create(const rn_recipe *recipe, const rn_weight_source *weights,
                                    rn_device *device, const rn_plan_options *options,
                                    rn_offload_manager **out) {
    void *block = NULL;
    constraints first;
    *out = NULL;
    RN_TRY(rn_alloc_zeroed(FROM, 1, sizeof(rn_offload_manager), &block));
    rn_offload_manager *m = block;
    m->recipe = recipe;
    m->weights = *weights;
    m->device = device;
    if (options) m->options = *options;
    rn_status s = copy_constraints(m->options.keep, NULL, m->options.offload, false, &first);
    if (s == RN_OK)
        s = change(m, &first);
    else
        drop_constraints(&first);
    if (s == RN_OK)
        *out = m;
    else
        rn_offload_manager_destroy(m);
    return s;
}

void rn_offload_manager_destroy(rn_offload_manager *m) {
    if (!m) return;
    undo_plan(m);
    drop_states(m);
    drop_constraints(&m->constraints);
    rn_free(FROM, m, sizeof *m);
}

rn_status rn_offload_weights(rn_offload_manager *m, const char *offload, const char *keep) {
    constraints new;
    rn_status s = copy_constraints(keep, m->constraints.loaded, offload, false, &new);
    if (s == RN_OK) return change(m, &new);
    drop_constraints(&new);
    return s;
}

rn_status rn_offload_load(rn_offload_manager *m, const char *names) {
    const constraints *now = &m->constraints;
    constraints new;
    char *loaded = NULL;
    RN_TRY(join(now->loaded, names, &loaded));
    rn_status s = copy_constraints(now->keep, loaded, now->offload, now->only_kept, &new);
    drop_text(loaded);
    if (s == RN_OK) return change(m, &new);
    drop_constraints(&new);
    return s;
}

static uint64_t held(rn_device_id device) {
    return rn_ledger_total(device).now_bytes;
}

rn_status rn_offload_clear_inactive(rn_offload_manager *m, rn_offload_given *out) {
    bool own = m->device && m->device->caps.own_memory;
    rn_device_id device = own ? m->device->caps.device : RN_DEVICE_HOST;
    uint64_t host = held(RN_DEVICE_HOST), before = held(device), cached = 0;
    constraints new;
    rn_status s = copy_constraints(m->constraints.keep, NULL, m->constraints.offload, true, &new);
    if (s != RN_OK) drop_constraints(&new);
    RN_TRY(s);
    RN_TRY(change(m, &new));
    if (m->device && m->device->release_caches) cached = m->device->release_caches(m->device);
    uint64_t now = held(device), host_now = held(RN_DEVICE_HOST);
    if (out)
        *out = (rn_offload_given){.device_bytes = before - rn_min_u64(before, now),
                                  .host_bytes = host - rn_min_u64(host, host_now),
                                  .cache_bytes = cached};
    return RN_OK;
}

rn_status rn_offload_session(rn_offload_manager *m, rn_session **out) {
    *out = NULL;
    RN_TRY(open_session(m));
    *out = m->session;
    return RN_OK;
}

const rn_plan *rn_offload_plan(const rn_offload_manager *m) {
    return m->plan;
}

// ---- facts --------------------------------------------------------------------------------------

rn_status rn_offload_is_resident(const rn_offload_manager *m, const char *name, bool *out) {
    *out = false;
    rn_value value = m->plan ? rn_graph_find(m->plan->graph, RN_ROLE_WEIGHT, name) : RN_NO_VALUE;
    if (value == RN_NO_VALUE) return rn_fail(RN_NOT_FOUND, "there is no weight '%s'", name);
    uint32_t group = m->plan->places[value].group;
    *out = group != RN_NO_LOAD && m->plan->groups[group].resident;
    return RN_OK;
}

rn_offload_info rn_offload_get_info(const rn_offload_manager *m) {
    rn_offload_info info = {.free_bytes = m->device ? rn_device_free_bytes(m->device) : 0};
    if (!m->plan) return info;
    for (uint32_t u = 0; u < m->plan->group_count; u++) {
        const rn_plan_group *group = &m->plan->groups[u];
        *(group->resident ? &info.resident_weights : &info.offloaded_weights) += group->value_count;
        *(group->resident ? &info.resident_bytes : &info.offloaded_bytes) += group->bytes;
    }
    info.ring_bytes = m->plan->slot_count * m->plan->slot_bytes;
    info.device_bytes = m->session ? m->plan->summary.planned_bytes : 0;
    info.host_bytes = m->session ? m->plan->summary.host_bytes : 0;
    return info;
}
