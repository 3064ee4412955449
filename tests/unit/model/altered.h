// altered.h — for the tests of src/model: copies of a small model with one thing wrong.
#ifndef RN_TEST_ALTERED_H
#define RN_TEST_ALTERED_H

#include "support.h"

#include <ration/writer.h>

#include "base/str.h"

#define TEXT "tests/golden/text/"

// How a copy differs; what is NULL stays.
typedef struct alteration {
    const char *drop;           // without this tensor
    const char *rename, *as;    // one tensor under another name
    const char *flatten;        // this one as a vector
    const char *strip;          // names without this beginning
    const char *copy, *copy_as; // this one a second time
    const char *only, *and_not; // just the tensors that match; without those that match
    const char *metadata_key;   // GGUF: this one is ...
    rn_metadata metadata;       // ... that
} alteration;

static inline bool is_named(const rn_tensor_info *t, const char *name) {
    return name && rn_str_equal(t->name, rn_str_from(name));
}

static inline bool is_kept(const rn_tensor_info *t, const alteration *a) {
    if (is_named(t, a->drop)) return false;
    if (a->only && !rn_str_matches(t->name, rn_str_from(a->only))) return false;
    return !a->and_not || !rn_str_matches(t->name, rn_str_from(a->and_not));
}

enum { MOST_ITEMS = 256 };

static inline size_t list_tensors(const rn_checkpoint *c, const alteration *a, rn_write_tensor *out,
                                  const rn_tensor_info **sources) {
    size_t count = 0;
    for (size_t i = 0; i < rn_checkpoint_count(c); i++) {
        const rn_tensor_info *t = rn_checkpoint_tensor(c, i);
        if (!is_kept(t, a)) continue;
        assert_true(count < MOST_ITEMS);
        out[count] = (rn_write_tensor){t->name, t->dtype, t->rank, t->dims, false};
        if (is_named(t, a->rename)) out[count].name = rn_str_from(a->as);
        if (a->strip && rn_str_starts(t->name, rn_str_from(a->strip)))
            out[count].name =
                (rn_str){t->name.data + strlen(a->strip), t->name.bytes - strlen(a->strip)};
        if (is_named(t, a->copy)) {
            out[count + 1] = out[count];
            out[count].name = rn_str_from(a->copy_as);
            sources[count++] = t;
        }
        if (is_named(t, a->flatten)) {
            out[count].rank = 1;
            out[count].dims = &t->elements;
        }
        sources[count++] = t;
    }
    return count;
}

static inline size_t list_metadata(const rn_checkpoint *c, const alteration *a, rn_metadata *out) {
    size_t count = 0;
    for (size_t i = 0; i < rn_checkpoint_metadata_count(c); i++) {
        const rn_metadata *m = rn_checkpoint_metadata(c, i);
        if (a->metadata_key && rn_str_equal(m->key, rn_str_from(a->metadata_key))) continue;
        assert_true(count < MOST_ITEMS);
        out[count++] = *m;
    }
    if (a->metadata_key && a->metadata.gguf_type != UINT32_MAX) {
        out[count] = a->metadata;
        out[count++].key = rn_str_from(a->metadata_key);
    }
    return count;
}

// Copies a model's file; the ending of `to` says which format.
static inline void alter(const char *from, const char *to, const alteration *a) {
    static rn_write_tensor tensors[MOST_ITEMS];
    static const rn_tensor_info *sources[MOST_ITEMS];
    static rn_metadata metadata[MOST_ITEMS];
    rn_checkpoint *c;
    rn_writer *w;
    assert_ok(rn_checkpoint_open(from, &c));
    size_t count = list_tensors(c, a, tensors, sources);
    rn_writer_options options = {.metadata = metadata,
                                 .metadata_count = list_metadata(c, a, metadata)};
    assert_ok(rn_writer_create(to, tensors, count, &options, &w));
    for (size_t i = 0; i < count; i++) {
        void *data = malloc(sources[i]->bytes);
        assert_non_null(data);
        assert_ok(rn_checkpoint_read(c, sources[i], 0, data, sources[i]->bytes));
        assert_ok(rn_writer_append(w, data, sources[i]->bytes));
        free(data);
    }
    assert_ok(rn_writer_commit(w));
    rn_writer_destroy(w);
    rn_checkpoint_close(c);
}

static inline void copy_file(const char *from, const char *to) {
    size_t bytes;
    void *data = test_read(from, &bytes);
    test_write(to, data, bytes);
    free(data);
}

static inline void write_text(const char *path, const char *text) {
    test_write(path, text, strlen(text));
}

static inline void assert_story(const char *part) {
    const rn_error_info *story = rn_last_error();
    if (!strstr(story->message, part)) fail_msg("'%s' is not in '%s'", part, story->message);
}

#endif
