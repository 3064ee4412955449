// base64.h — RFC 4648's alphabet, padding allowed.
#ifndef RN_TEXT_BASE64_H
#define RN_TEXT_BASE64_H

#include "base/str.h"

// `out` has room for text.bytes / 4 * 3 + 3. False: a character is none of the alphabet, or the
// length cannot be.
bool rn_base64_decode(rn_str text, char *out, size_t *out_bytes);

// `out` has room for (bytes + 2) / 3 * 4, all of which is written.
void rn_base64_encode(rn_str bytes, char *out);

#endif
