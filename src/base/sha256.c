// sha256.c — blocks of 64 bytes through 64 rounds, as FIPS 180-4 has them.
#include "base/sha256.h"

#include <string.h>

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, int by) {
    return x >> by | x << (32 - by);
}

static void take_block(rn_sha256 *hash, const uint8_t *block) {
    uint32_t words[64], s[8];
    for (int i = 0; i < 16; i++)
        words[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
                   (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = words[i - 15], b = words[i - 2];
        words[i] = words[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + words[i - 7] +
                   (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(s, hash->state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t first = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) +
                         ((s[4] & s[5]) ^ (~s[4] & s[6])) + constants[i] + words[i];
        uint32_t second = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) +
                          ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += first;
        s[0] = first + second;
    }
    for (int i = 0; i < 8; i++)
        hash->state[i] += s[i];
}

void rn_sha256_begin(rn_sha256 *hash) {
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    *hash = (rn_sha256){0};
    memcpy(hash->state, first, sizeof first);
}

void rn_sha256_add(rn_sha256 *hash, const void *data, size_t bytes) {
    const uint8_t *at = data;
    while (bytes) {
        size_t used = hash->bytes % RN_SHA256_BLOCK, room = RN_SHA256_BLOCK - used;
        size_t taken = bytes < room ? bytes : room;
        memcpy(hash->block + used, at, taken);
        hash->bytes += taken;
        at += taken;
        bytes -= taken;
        if (taken == room) take_block(hash, hash->block);
    }
}

void rn_sha256_end(rn_sha256 *hash, uint8_t out[RN_SHA256_BYTES]) {
    uint64_t bits = hash->bytes * 8;
    uint8_t end[8];
    rn_sha256_add(hash, "\x80", 1);
    while (hash->bytes % RN_SHA256_BLOCK != RN_SHA256_BLOCK - 8)
        rn_sha256_add(hash, "", 1);
    for (int i = 0; i < 8; i++)
        end[i] = (uint8_t)(bits >> (56 - 8 * i));
    rn_sha256_add(hash, end, sizeof end);
    for (int i = 0; i < RN_SHA256_BYTES; i++)
        out[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

// H(key ^ outer, H(key ^ inner, data)); a key longer than a block is its digest.
void rn_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t bytes,
                    uint8_t out[RN_SHA256_BYTES]) {
    uint8_t inner[RN_SHA256_BLOCK] = {0}, outer[RN_SHA256_BLOCK];
    rn_sha256 hash;
    if (key_bytes > sizeof inner) {
        rn_sha256_begin(&hash);
        rn_sha256_add(&hash, key, key_bytes);
        rn_sha256_end(&hash, inner);
    } else if (key_bytes) {
        memcpy(inner, key, key_bytes);
    }
    for (size_t i = 0; i < sizeof inner; i++) {
        outer[i] = inner[i] ^ 0x5c;
        inner[i] ^= 0x36;
    }
    rn_sha256_begin(&hash);
    rn_sha256_add(&hash, inner, sizeof inner);
    rn_sha256_add(&hash, data, bytes);
    rn_sha256_end(&hash, out);
    rn_sha256_begin(&hash);
    rn_sha256_add(&hash, outer, sizeof outer);
    rn_sha256_add(&hash, out, RN_SHA256_BYTES);
    rn_sha256_end(&hash, out);
}

bool rn_sha256_equal(const uint8_t a[RN_SHA256_BYTES], const uint8_t b[RN_SHA256_BYTES]) {
    uint8_t differ = 0;
    for (size_t i = 0; i < RN_SHA256_BYTES; i++)
        differ |= a[i] ^ b[i];
    return differ == 0;
}

void rn_sha256_text(const uint8_t digest[RN_SHA256_BYTES], char out[2 * RN_SHA256_BYTES + 1]) {
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < RN_SHA256_BYTES; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[2 * RN_SHA256_BYTES] = 0;
}
