// byte_letters.h — GPT-2's alphabet: every byte as a printable character.
//
// Vocabularies of byte-level BPE are spelled in it ("Ġthe" is " the"). Printable Latin-1 characters
// stand for themselves, the other 68 bytes for U+0100 and up, in order.
#ifndef RN_TEXT_BYTE_LETTERS_H
#define RN_TEXT_BYTE_LETTERS_H

#include "base/str.h"

// The bytes that `letters` (UTF-8) spell; `out` has room for letters.bytes. False where a character
// is none of the alphabet.
bool rn_letters_to_bytes(rn_str letters, char *out, size_t *out_bytes);
// The other way; `out` has room for twice bytes.bytes. Returns what was written.
size_t rn_bytes_to_letters(rn_str bytes, char *out);

#endif
