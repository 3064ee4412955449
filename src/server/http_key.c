// http_key.c — keys are compared in full, all of them, padded to one length: how long it takes says
// neither how much of a key was right nor how long it is.
#include "server/http_parts.h"

#include "base/str.h"
#include "memory/account.h"

#define FROM RN_HOST_IO

static rn_status check(const char *key) {
    size_t bytes = strlen(key);
    if (bytes == 0) return rn_fail(RN_INVALID, "an API key is empty");
    if (bytes >= RN_KEY_BYTES)
        return rn_fail(RN_INVALID, "an API key has %zu bytes, more than %d", bytes,
                       RN_KEY_BYTES - 1);
    bool sendable = key[0] != ' ' && key[bytes - 1] != ' ';
    for (size_t i = 0; i < bytes; i++)
        sendable &= key[i] >= ' ' && key[i] <= '~';
    if (!sendable)
        return rn_hint(rn_fail(RN_INVALID, "an API key cannot be sent in a header"),
                       "letters, digits and punctuation will do, and blanks between them");
    return RN_OK;
}

rn_status rn_keys_open(const char *const *keys, size_t count, rn_keys *out) {
    void *block = NULL;
    *out = (rn_keys){0};
    for (size_t i = 0; i < count; i++)
        RN_TRY(check(keys[i]));
    RN_TRY(rn_alloc_zeroed(FROM, count, RN_KEY_BYTES, &block));
    *out = (rn_keys){block, count};
    for (size_t i = 0; i < count; i++)
        memcpy(out->keys[i], keys[i], strlen(keys[i]));
    return RN_OK;
}

void rn_keys_close(rn_keys *keys) {
    rn_free(FROM, keys->keys, keys->count * RN_KEY_BYTES);
    *keys = (rn_keys){0};
}

static bool is_equal(const char a[RN_KEY_BYTES], const char b[RN_KEY_BYTES]) {
    volatile unsigned char difference = 0; // volatile: no early end by the compiler
    for (size_t i = 0; i < RN_KEY_BYTES; i++)
        difference |= (unsigned char)(a[i] ^ b[i]);
    return difference == 0;
}

bool rn_keys_match(const rn_keys *keys, rn_str value, size_t *out_index) {
    static const rn_str scheme = RN_STR("Bearer ");
    char given[RN_KEY_BYTES] = {0};
    bool found = false;
    *out_index = 0;
    if (value.bytes > scheme.bytes && value.bytes - scheme.bytes < RN_KEY_BYTES &&
        rn_str_equal_ignoring_case((rn_str){value.data, scheme.bytes}, scheme))
        memcpy(given, value.data + scheme.bytes, value.bytes - scheme.bytes);
    for (size_t i = 0; i < keys->count; i++) {
        bool same = is_equal(given, keys->keys[i]);
        if (same) *out_index = i;
        found |= same;
    }
    return found;
}
