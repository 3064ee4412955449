// base64.c — six bits a character.
#include "text/base64.h"

static int digit_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool rn_base64_decode(rn_str text, char *out, size_t *out_bytes) {
    uint32_t bits = 0;
    size_t held = 0, count = 0;
    for (int padding = 0; padding < 2 && rn_str_ends(text, RN_STR("=")); padding++)
        text.bytes--;
    if (text.bytes % 4 == 1) return false;
    for (size_t i = 0; i < text.bytes; i++) {
        int digit = digit_of(text.data[i]);
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held < 8) continue;
        held -= 8;
        out[count++] = (char)(bits >> held);
    }
    *out_bytes = count;
    return true;
}

void rn_base64_encode(rn_str bytes, char *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < bytes.bytes; i += 3, out += 4) {
        size_t left = bytes.bytes - i;
        uint32_t bits = 0;
        for (size_t k = 0; k < 3; k++)
            bits = bits << 8 | (k < left ? (uint8_t)bytes.data[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            out[k] = k <= left ? digits[bits >> (18 - 6 * k) & 63] : '=';
    }
}
