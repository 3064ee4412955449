// pickle.h — reading Python pickles as plain data: nothing is ever looked up, called or built.
//
//     rn_pickle pickle;
//     rn_pickle_init(&pickle, allocator);
//     pickle.folder = (rn_pickle_folder){self, fold_dict, fold_list}; // optional
//     s = rn_pickle_read(&pickle, data, bytes, &value);
//     ...
//     rn_pickle_free(&pickle); // and every node with it
//
// Protocols 0 to 5, with None, bool, int (64 bits), float, str, bytes, list, tuple and dict.
// Opcodes that would import a name, call it or set its state (GLOBAL, REDUCE, BUILD, INST, ...) are
// refused by name with RN_UNSUPPORTED, so a hostile pickle is only ever wrong data. What breaks the
// format is RN_CORRUPT with its offset.
//
// A value is 8 bytes, an object 32; an object that the pickle names again is shared, not copied, so
// memory is linear in the file whatever it repeats. For the reader of many small dictionaries there
// is the folder: it sees each dictionary when it is complete and may put a record of its own in its
// place, so that keys and values are never stored.
#ifndef RN_PROFILE_PICKLE_H
#define RN_PROFILE_PICKLE_H

#include "base/arena.h"
#include "base/str.h"

typedef enum rn_pickle_kind {
    RN_PICKLE_NONE,
    RN_PICKLE_BOOL,
    RN_PICKLE_INT,
    RN_PICKLE_FLOAT,
    RN_PICKLE_TEXT,
    RN_PICKLE_BYTES,
    RN_PICKLE_LIST,
    RN_PICKLE_TUPLE,
    RN_PICKLE_DICT,
    RN_PICKLE_RECORD // a list or dictionary that the folder has taken
} rn_pickle_kind;

// None, False, True, a whole number of up to 60 bits, or a pointer to a node.
typedef struct rn_pickle_value {
    uint64_t word;
} rn_pickle_value;

typedef struct rn_pickle_chunk rn_pickle_chunk;
struct rn_pickle_chunk { // of the items of a list, tuple or dictionary (key, value, key, value...)
    rn_pickle_chunk *next;
    uint32_t count, capacity;
    rn_pickle_value items[]; // (capacity)
};

typedef struct rn_pickle_node {
    uint8_t kind;     // an rn_pickle_kind
    uint8_t type;     // RECORD: what the folder says it is
    bool is_negative; // INT
    uint32_t tag;     // the reader's own; 0 at first
    union {
        struct {
            rn_pickle_chunk *first, *last;
            uint64_t count; // items; a dictionary has two for each key
        };
        rn_str text; // TEXT, BYTES; most often in the file itself
        double number;
        uint64_t integer; // INT that is wider than 60 bits: without its sign
        void *record;
    };
} rn_pickle_node;

// Called when the items of a list or dictionary come, all at once, as Python's pickler writes them
// (up to RN_PICKLE_OFFER - 1; longer ones come in batches and are not offered). To take it, set
// kind = RN_PICKLE_RECORD, type and record; the items are then forgotten. Either may be NULL.
#define RN_PICKLE_OFFER 1000
typedef struct rn_pickle_folder {
    void *self;
    rn_status (*dict)(void *self, const rn_pickle_value *items, size_t count, rn_pickle_node *node);
    rn_status (*list)(void *self, const rn_pickle_value *items, size_t count, rn_pickle_node *node);
} rn_pickle_folder;

typedef struct rn_pickle {
    rn_pickle_folder folder;
    rn_arena arena; // of nodes; a folder may use it for its records
    const rn_allocator *from;
    const uint8_t *data; // (bytes)
    uint64_t bytes, at;
    rn_pickle_value *stack, *memo;
    size_t stack_count, stack_capacity, memo_count, memo_capacity;
    uint64_t *marks; // depths of the stack
    size_t mark_count, mark_capacity;
} rn_pickle;

void rn_pickle_init(rn_pickle *pickle, const rn_allocator *from);
void rn_pickle_free(rn_pickle *pickle);
// Reads one pickle up to its STOP; bytes after it are left alone. `data` must outlive the values.
RN_MUST_USE rn_status rn_pickle_read(rn_pickle *pickle, const uint8_t *data, uint64_t bytes,
                                     rn_pickle_value *out);
// Whether these bytes can be the beginning of a pickle of protocol 2 or later, or of a dictionary
// or list of an earlier one.
bool rn_pickle_is(const uint8_t *data, uint64_t bytes);

rn_pickle_kind rn_pickle_kind_of(rn_pickle_value value);
// NULL for what stands in the value itself: None, bool, an INT of up to 60 bits.
rn_pickle_node *rn_pickle_node_of(rn_pickle_value value);
// The text of a TEXT, else "".
rn_str rn_pickle_text_of(rn_pickle_value value);
// A whole number that is not negative, or a float that stands for one; false for anything else.
bool rn_pickle_u64_of(rn_pickle_value value, uint64_t *out);
bool rn_pickle_is_true(rn_pickle_value value);
// The value of a key in a DICT, the last one among its first 64 keys; None where there is none, or
// no DICT. What snapshots have has fewer, and a hostile pickle may name one huge DICT a million
// times.
rn_pickle_value rn_pickle_get(rn_pickle_value dict, rn_str key);

// Walks the items of a LIST, TUPLE or DICT.
typedef struct rn_pickle_walk {
    const rn_pickle_chunk *chunk;
    uint32_t at;
} rn_pickle_walk;
rn_pickle_walk rn_pickle_walk_begin(rn_pickle_value value); // nothing for other kinds
bool rn_pickle_walk_next(rn_pickle_walk *walk, rn_pickle_value *out);

#endif
