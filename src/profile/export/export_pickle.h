// export_pickle.h — writing a pickle of dictionaries, lists, texts and numbers.
//
// Protocol 4, and of it only what PyTorch's viewer (MemoryViz.js) reads: no LONG4, no BINUNICODE8,
// no bytes, no integer of more than eight bytes, no frames, and at most RN_PICKLER_BATCH items
// between a mark and its APPENDS (the viewer passes them as arguments of one call).
//
//     rn_pickler_begin(&p, &out);
//     rn_pickler_dict(&p);            // }(
//     rn_pickler_text(&p, key);       // keys and values in turn
//     rn_pickler_list(&p, &list);     // ](
//     rn_pickler_item(&p, &list);     // before each item
//     rn_pickler_u64(&p, 7);
//     rn_pickler_list_end(&p);        // e
//     rn_pickler_dict_end(&p);        // u
//     rn_pickler_end(&p);
//
// What is written again is remembered: rn_pickler_keep gives the value on top a number, and
// rn_pickler_again writes it by that number.
#ifndef RN_PROFILE_EXPORT_PICKLE_H
#define RN_PROFILE_EXPORT_PICKLE_H

#include "profile/export/export.h"

#define RN_PICKLER_BATCH 1000

typedef struct rn_pickler {
    rn_out *out;
    uint32_t kept_count;
} rn_pickler;

typedef struct rn_pickler_list_state {
    size_t count; // since the mark
} rn_pickler_list_state;

void rn_pickler_begin(rn_pickler *p, rn_out *out);
void rn_pickler_end(rn_pickler *p);
// Not more than RN_PICKLER_BATCH pairs.
void rn_pickler_dict(rn_pickler *p);
void rn_pickler_dict_end(rn_pickler *p);
void rn_pickler_list(rn_pickler *p, rn_pickler_list_state *list);
void rn_pickler_item(rn_pickler *p, rn_pickler_list_state *list);
void rn_pickler_list_end(rn_pickler *p);
// Valid UTF-8 of less than 4 GiB.
void rn_pickler_text(rn_pickler *p, rn_str text);
// 2^63 and above become 2^63 - 1.
void rn_pickler_u64(rn_pickler *p, uint64_t value);
void rn_pickler_f64(rn_pickler *p, double value);
void rn_pickler_bool(rn_pickler *p, bool value);
// The two values written last become a tuple.
void rn_pickler_pair(rn_pickler *p);

// Numbers for rn_pickler_again are 1 and up; 0 is "not kept".
uint32_t rn_pickler_keep(rn_pickler *p);
void rn_pickler_again(rn_pickler *p, uint32_t number);
// A text that is written once: *number is 0 the first time.
void rn_pickler_text_once(rn_pickler *p, uint32_t *number, rn_str text);

#endif
