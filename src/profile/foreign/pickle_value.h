// pickle_value.h — how a value lies in its 8 bytes: between the files of the reader.
//
//     | node's address ......................... 0000 |   nodes are aligned to 16 bytes
//     | whole number, signed, 60 bits .......... 0100 |
#ifndef RN_PROFILE_PICKLE_VALUE_H
#define RN_PROFILE_PICKLE_VALUE_H

#include "profile/foreign/pickle.h"

enum { TAG_NODE, TAG_NONE, TAG_FALSE, TAG_TRUE, TAG_INT, TAG_BITS = 4 };

static inline unsigned rn_pickle_tag(rn_pickle_value value) {
    return (unsigned)(value.word & ((1u << TAG_BITS) - 1));
}

#endif
