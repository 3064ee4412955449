// constraints.c — weights by name that shall stay or shall not, and how much may stay at most.
//
// A constraint narrows the list of candidates and is no mechanism of its own. What is to be kept is
// a weight group that never leaves, like one that is trained; what is to be offloaded stands last
// among the weight groups of a level, behind the most that may stay; a limit shortens that part of
// the list. What never leaves by its nature (trained, or used in several blocks) counts for the
// bytes, but is no resident block.
#include "plan/planner.h"

#include "base/checked.h"
#include "base/str.h"

#include <string.h>

#define SIZE(bytes) rn_size_format(bytes).text

// ---- names --------------------------------------------------------------------------------------

// The next of patterns separated by commas; false behind the last.
static bool next_pattern(const char **at, rn_str *out) {
    while (*at && **at == ',')
        ++*at;
    if (!*at || !**at) return false;
    *out = (rn_str){*at, strcspn(*at, ",")};
    *at += out->bytes;
    return true;
}

static bool is_listed(const char *patterns, const char *name) {
    rn_str pattern;
    while (next_pattern(&patterns, &pattern))
        if (rn_str_matches(rn_str_from(name), pattern)) return true;
    return false;
}

rn_constraint rn_constraint_of(const rn_plan_options *options, const char *name) {
    if (!options) return RN_CONSTRAINT_NONE;
    if (is_listed(options->keep, name)) return RN_CONSTRAINT_KEEP;
    return is_listed(options->offload, name) ? RN_CONSTRAINT_OFFLOAD : RN_CONSTRAINT_NONE;
}

// ---- names that mean nothing --------------------------------------------------------------------

// A weight that matches; *out_leaves: one of those that do could leave, or is not held at all.
static const char *find_match(const rn_case *c, rn_str pattern, bool *out_leaves) {
    const char *found = NULL;
    for (rn_value v = 1; v <= rn_graph_value_count(c->graph); v++) {
        const rn_value_info *info = rn_graph_value(c->graph, v);
        uint32_t group = c->groups.group_of[v];
        if (info->role != RN_ROLE_WEIGHT ||
            !rn_str_matches(rn_str_from(rn_weight_tensor(info)), pattern))
            continue;
        if (!found) found = info->name;
        *out_leaves |= group == RN_NO_LOAD || !c->groups.groups[group].resident ||
                       c->groups.constraints[group] != RN_CONSTRAINT_NONE;
    }
    return found;
}

// Whether another phase of the program has such a weight.
static bool is_elsewhere(const rn_program_values *values, rn_str pattern) {
    for (uint32_t i = 0; values && i < values->count; i++)
        if (values->list[i].role == RN_ROLE_WEIGHT &&
            rn_str_matches(rn_str_from(values->list[i].tensor), pattern))
            return true;
    return false;
}

static rn_status check_patterns(const rn_case *c, const rn_program_values *values,
                                const char *patterns, bool offload) {
    rn_str pattern;
    while (next_pattern(&patterns, &pattern)) {
        bool leaves = false;
        const char *found = find_match(c, pattern, &leaves);
        if (!found && is_elsewhere(values, pattern)) continue;
        if (!found)
            return rn_hint(rn_fail(RN_INVALID, "no weight is called '%.*s'", RN_STR_ARG(pattern)),
                           "'*' is any run of characters, '?' any one; ration inspect lists names");
        if (offload && !leaves)
            return rn_hint(rn_fail(RN_INVALID, "'%s' cannot be offloaded", found),
                           "it is trained, or read in several blocks: it stays in any case");
    }
    return RN_OK;
}

rn_status rn_constraints_check(const rn_plan_options *options, const rn_case *c,
                               const rn_program_values *values) {
    RN_TRY(check_patterns(c, values, options->keep, false));
    return check_patterns(c, values, options->offload, true);
}

// ---- limits -------------------------------------------------------------------------------------

static uint32_t most_blocks(const rn_plan_options *o) {
    if (o->resident_blocks == RN_NO_BLOCKS) return 0;
    return o->resident_blocks ? o->resident_blocks : UINT32_MAX;
}

static uint64_t most_bytes(const rn_plan_options *o) {
    return o->resident_bytes ? o->resident_bytes : RN_NO_LIMIT;
}

// Whether it stays whatever the level's list says, but not by its nature.
static bool stays(const rn_group_table *t, uint32_t group, uint64_t largest) {
    if (t->groups[group].resident) return t->constraints[group] == RN_CONSTRAINT_KEEP;
    return t->slot_bytes[group] > largest;
}

static bool has_offloaded(const rn_group_table *t, uint64_t above) {
    for (uint32_t u = 0; u < t->group_count; u++)
        if (t->constraints[u] == RN_CONSTRAINT_OFFLOAD && t->slot_bytes[u] > above) return true;
    return false;
}

// Marks the blocks of weight groups that stay with slots of this size; how many.
static uint32_t mark_blocks(const rn_group_table *t, uint64_t largest, bool *marks) {
    uint32_t count = 0;
    for (uint32_t u = 0; u < t->group_count; u++) {
        uint32_t block = t->groups[u].block;
        if (!stays(t, u, largest) || marks[block]) continue;
        marks[block] = true;
        count++;
    }
    return count;
}

void rn_constraints_sort(const rn_group_table *t, rn_level *level) {
    uint32_t last = level->count;
    for (uint32_t i = level->count; i-- > 0;) {
        uint32_t group = level->groups[i];
        if (t->constraints[group] != RN_CONSTRAINT_OFFLOAD) continue;
        last--;
        memmove(&level->groups[i], &level->groups[i + 1], (last - i) * sizeof *level->groups);
        level->groups[last] = group;
    }
}

rn_status rn_constraints_limit(const rn_plan_options *o, rn_case *c, uint64_t largest,
                               rn_level *level) {
    const rn_group_table *t = &c->groups;
    uint32_t k = 0, most = most_blocks(o);
    bool *marks; // (blocks)
    RN_TRY(
        rn_arena_array(&c->memory, rn_graph_block_count(c->graph), sizeof *marks, (void **)&marks));
    uint32_t blocks = mark_blocks(t, largest, marks);
    level->choices = 0;
    if (has_offloaded(t, largest) || blocks > most || level->resident_bytes[0] > most_bytes(o))
        return RN_OK;
    for (; k + 1 < level->count && level->resident_bytes[k + 1] <= most_bytes(o); k++) {
        uint32_t group = level->groups[k], block = t->groups[group].block;
        if (t->constraints[group] == RN_CONSTRAINT_OFFLOAD || blocks + !marks[block] > most) break;
        blocks += !marks[block];
        marks[block] = true;
    }
    level->choices = k + 1;
    return RN_OK;
}

rn_status rn_constraints_allow_all(const rn_plan_options *o, rn_case *c) {
    bool *marks; // (blocks)
    RN_TRY(
        rn_arena_array(&c->memory, rn_graph_block_count(c->graph), sizeof *marks, (void **)&marks));
    c->all_may_stay = c->group_bytes <= most_bytes(o) && !has_offloaded(&c->groups, 0) &&
                      mark_blocks(&c->groups, 0, marks) <= most_blocks(o);
    return RN_OK;
}

// ---- telling ------------------------------------------------------------------------------------

uint64_t rn_constraints_kept(const rn_plan *plan, const rn_plan_options *options,
                             const char **out_name, uint32_t *out_count) {
    uint64_t bytes = 0;
    *out_count = 0;
    for (uint32_t u = 0; u < plan->group_count; u++) {
        const rn_plan_group *group = &plan->groups[u];
        const rn_value *values = plan->group_values + group->first_value;
        const char *name = rn_weight_tensor(rn_graph_value(plan->graph, values[0]));
        if (!group->resident || group->shared ||
            rn_constraint_of(options, name) != RN_CONSTRAINT_KEEP)
            continue;
        if (*out_count == 0) *out_name = name;
        *out_count += group->value_count;
        bytes += group->bytes;
    }
    return bytes;
}

rn_status rn_plan_refuse_constraints(const rn_planner *p) {
    const rn_plan_options *o = &p->options;
    rn_status s =
        rn_fail(RN_INVALID,
                "no plan of '%s' keeps what is to be kept%s%s%s and no more "
                "than may stay",
                p->recipe->name, o->keep ? " ('" : "", o->keep ? o->keep : "", o->keep ? "')" : "");
    return rn_hint(s, "a shorter keep list, or more resident blocks or bytes; weights that pass "
                      "through need at least two units of them");
}
