// sha256.h — SHA-256 (FIPS 180-4), for names of what was made from given bytes; and with a secret
// (HMAC, RFC 2104), for whoever has to show that it knows one.
//
//     rn_sha256 hash;
//     rn_sha256_begin(&hash);
//     rn_sha256_add(&hash, data, bytes);
//     rn_sha256_end(&hash, digest);
#ifndef RN_BASE_SHA256_H
#define RN_BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RN_SHA256_BYTES = 32, RN_SHA256_BLOCK = 64 };

typedef struct rn_sha256 {
    uint32_t state[8];
    uint64_t bytes;                 // so far
    uint8_t block[RN_SHA256_BLOCK]; // its first bytes % 64 are filled
} rn_sha256;

void rn_sha256_begin(rn_sha256 *hash);
void rn_sha256_add(rn_sha256 *hash, const void *data, size_t bytes);
void rn_sha256_end(rn_sha256 *hash, uint8_t out[RN_SHA256_BYTES]);
// What only those can make who know `key`.
void rn_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t bytes,
                    uint8_t out[RN_SHA256_BYTES]);
// In a time that does not depend on where they differ.
bool rn_sha256_equal(const uint8_t a[RN_SHA256_BYTES], const uint8_t b[RN_SHA256_BYTES]);
// 64 lower-case digits and a terminator.
void rn_sha256_text(const uint8_t digest[RN_SHA256_BYTES], char out[2 * RN_SHA256_BYTES + 1]);

#endif
