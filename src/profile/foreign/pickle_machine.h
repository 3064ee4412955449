// pickle_machine.h — between pickle.c, the machine, and pickle_scalars.c, its numbers and texts.
#ifndef RN_PROFILE_PICKLE_MACHINE_H
#define RN_PROFILE_PICKLE_MACHINE_H

#include "profile/foreign/pickle_value.h"

// ---- pickle.c -----------------------------------------------------------------------------------

// RN_CORRUPT, with what is wrong and where.
RN_MUST_USE rn_status rn_pickle_fail(const rn_pickle *p, const char *what);
// The next bytes of the file: as they are; a little-endian number of up to 8 bytes; up to a line
// break, which is passed.
RN_MUST_USE rn_status rn_pickle_take(rn_pickle *p, uint64_t bytes, const uint8_t **out);
RN_MUST_USE rn_status rn_pickle_take_number(rn_pickle *p, int bytes, uint64_t *out);
RN_MUST_USE rn_status rn_pickle_take_line(rn_pickle *p, rn_str *out);
RN_MUST_USE rn_status rn_pickle_push(rn_pickle *p, rn_pickle_value value);
RN_MUST_USE rn_status rn_pickle_make_node(rn_pickle *p, rn_pickle_kind kind, rn_pickle_node **out);
RN_MUST_USE rn_status rn_pickle_push_node(rn_pickle *p, const rn_pickle_node *node);

// ---- pickle_scalars.c ---------------------------------------------------------------------------

// "-12": false for anything else, and for what is wider than 64 bits.
bool rn_pickle_decimal(rn_str text, bool *out_negative, uint64_t *out);

// Opcodes; the second argument is what the table of pickle.c says.
RN_MUST_USE rn_status rn_pickle_run_word(rn_pickle *p, int tag); // None, False, True
RN_MUST_USE rn_status rn_pickle_run_binint(rn_pickle *p, int bytes);
RN_MUST_USE rn_status rn_pickle_run_long(rn_pickle *p, int size_bytes);
RN_MUST_USE rn_status rn_pickle_run_int_line(rn_pickle *p, int is_long);
RN_MUST_USE rn_status rn_pickle_run_binfloat(rn_pickle *p, int unused);
RN_MUST_USE rn_status rn_pickle_run_float_line(rn_pickle *p, int unused);
RN_MUST_USE rn_status rn_pickle_run_text(rn_pickle *p, int size_bytes);
RN_MUST_USE rn_status rn_pickle_run_bytes(rn_pickle *p, int size_bytes);
RN_MUST_USE rn_status rn_pickle_run_text_line(rn_pickle *p, int unused);

#endif
