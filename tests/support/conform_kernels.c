// conform_kernels.c — each node by a back end's kernel and by the reference loop, from the same
// inputs, so that no error hides behind another. The first trial works alone; the others must
// repeat its bits with workers, in place, without a result that nobody reads, and attention in
// slices.
#include "conform_trial.h"

#include "support.h"

// ---- the trials of a node -----------------------------------------------------------------------

// Another way to run what `first` has run: the same bits.
static bool try_again(const conform_trial *first, conform_trial again, const char *how,
                      conform_why *why) {
    conform_why what = {{0}};
    bool same = conform_try(&again, first->tensors, conform_same, &what);
    conform_trial_close(&again);
    if (!same) snprintf(why->text, sizeof why->text, "%s: %.400s", how, what.text);
    return same;
}

static conform_trial repeat(const conform_trial *first) {
    return conform_trial_make(first->run, first->number, first->before, first->target);
}

static bool may_overwrite(const conform_trial *t, uint32_t output) {
    if (t->aliases[output].kind != RN_ALIAS_KIND_MAY) return false;
    uint32_t input = t->aliases[output].input;
    const rn_tensor *to = &t->tensors[t->node->input_count + output];
    return input < t->node->input_count && rn_tensor_given(&t->tensors[input]) &&
           t->tensors[input].layout == RN_LAYOUT_PLAIN &&
           rn_tensor_bytes(&t->tensors[input]) == rn_tensor_bytes(to);
}

static bool try_in_place(const conform_trial *first, conform_why *why) {
    for (uint32_t i = 0; i < first->node->output_count; i++) {
        conform_trial again = repeat(first);
        again.in_place = i;
        if (may_overwrite(first, i) && !try_again(first, again, "in place", why)) return false;
    }
    return true;
}

// What lies in an input is there whether somebody reads it or not.
static bool may_be_unread(const conform_trial *t, uint32_t output) {
    return (rn_op_get(t->node->op)->optional_outputs >> output & 1) &&
           t->aliases[output].kind <= RN_ALIAS_KIND_MAY;
}

static bool try_unread(const conform_trial *first, conform_why *why) {
    for (uint32_t i = 0; i < first->node->output_count; i++) {
        conform_trial again = repeat(first);
        again.unread = i;
        if (may_be_unread(first, i) &&
            !try_again(first, again, "with a result that nobody reads", why))
            return false;
    }
    return true;
}

static bool try_slices(const conform_trial *first, conform_why *why) {
    rn_op op = first->node->op;
    bool sliced = op == RN_OP_ATTENTION || op == RN_OP_ATTENTION_GRAD ||
                  op == RN_OP_PAGED_ATTENTION || op == RN_OP_ATTEND || op == RN_OP_VARLEN_ATTENTION;
    for (uint32_t rows = 1; sliced && rows <= 4; rows += 3) {
        conform_trial again = repeat(first);
        again.slice_rows = rows;
        if (!try_again(first, again, "in slices", why)) return false;
    }
    return true;
}

static bool try_workers(const conform_trial *first, conform_why *why) {
    conform_trial again = repeat(first);
    again.workers = first->target->workers;
    again.threads = first->target->threads;
    return !again.workers || try_again(first, again, "with workers", why);
}

static bool try_node(conform_trial *first, const rn_tensor *must, conform_fact near,
                     conform_why *why) {
    bool good = conform_try(first, must, near, why) && try_workers(first, why) &&
                try_in_place(first, why) && try_unread(first, why) && try_slices(first, why);
    conform_trial_close(first);
    return good;
}

// ---- the nodes of a row -------------------------------------------------------------------------

// A row's bits are those of its op itself; the gradients of a product may be products, too.
static conform_fact fact_of(const conform_row *row, const rn_node *node) {
    bool itself = node->op == row->op && node->phase == RN_PHASE_FORWARD;
    return row->bits && itself ? conform_same : conform_facts[node->op];
}

static bool refuses(const conform_trial *first) {
    conform_trial trial = *first;
    bool refused = conform_refuses(&trial);
    conform_trial_close(&trial);
    return refused;
}

// Runs the node by the reference, and then by the kernel on what the reference has read.
static bool check_node(const conform_row *row, test_run *run, uint32_t number,
                       conform_target *target, conform_why *why) {
    const rn_node *node = rn_graph_node(run->graph, number);
    test_guard before[TEST_MAX_TENSORS];
    rn_tensor must[TEST_MAX_TENSORS];
    rn_call call;
    bool good = true;
    conform_snapshot(run, number, before);
    test_run_node(run, number);
    test_run_bind(run, number, must, &call);
    conform_trial first = conform_trial_make(run, number, before, target);
    if (!conform_is_view(run, number)) {
        if (target->kernels[node->op].run && !(row->partial && refuses(&first)))
            good = try_node(&first, must, fact_of(row, node), why);
        else
            target->missing[node->op]++;
    }
    conform_snapshot_free(before);
    return good;
}

bool conform_kernels(const conform_row *row, conform_target *target, conform_why *why) {
    conform_case c;
    test_run run;
    conform_why what = {{0}};
    bool good = true;
    conform_open(&c, row, true);
    conform_run_open(&c, row->rows, &run);
    for (uint32_t n = 0; good && n < rn_graph_node_count(c.graph); n++) {
        good = check_node(row, &run, n, target, &what);
        if (!good)
            snprintf(why->text, sizeof why->text, "%s, %s: %s: %.300s", rn_op_name(row->op),
                     row->what, rn_graph_node(c.graph, n)->name, what.text);
    }
    test_run_close(&run);
    conform_close(&c);
    return good;
}
