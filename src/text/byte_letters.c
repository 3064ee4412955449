// byte_letters.c — the 68 bytes without a printable character are 0..32, 127..160 and 173.
#include "text/byte_letters.h"

#include "text/utf8_step.h"

static uint32_t letter_of(uint8_t byte) {
    if (byte <= 32) return 256u + byte;
    if (byte >= 127 && byte <= 160) return 256u + 33 + (byte - 127u);
    return byte == 173 ? 323 : byte;
}

// -1: no letter.
static int byte_of(uint32_t letter) {
    if (letter >= 256 && letter <= 288) return (int)(letter - 256);
    if (letter >= 289 && letter <= 322) return (int)(letter - 289 + 127);
    if (letter == 323) return 173;
    return letter < 256 && letter_of((uint8_t)letter) == letter ? (int)letter : -1;
}

bool rn_letters_to_bytes(rn_str letters, char *out, size_t *out_bytes) {
    size_t count = 0;
    for (size_t at = 0, step; at < letters.bytes; at += step) {
        int byte = byte_of(rn_utf8_decode(letters.data + at, &step));
        if (byte < 0) return false;
        out[count++] = (char)byte;
    }
    *out_bytes = count;
    return true;
}

size_t rn_bytes_to_letters(rn_str bytes, char *out) {
    size_t count = 0;
    for (size_t i = 0; i < bytes.bytes; i++) {
        char letter[4];
        size_t length = rn_utf8_encode(letter_of((uint8_t)bytes.data[i]), letter);
        memcpy(out + count, letter, length);
        count += length;
    }
    return count;
}
