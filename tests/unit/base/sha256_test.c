// SHA-256 of FIPS 180-4's own examples, whatever pieces they come in.
#include "support.h"

#include "base/sha256.h"

static void expect(const char *data, size_t bytes, size_t piece, const char *expected) {
    uint8_t digest[RN_SHA256_BYTES];
    char text[2 * RN_SHA256_BYTES + 1];
    rn_sha256 hash;
    rn_sha256_begin(&hash);
    for (size_t at = 0; at < bytes; at += piece)
        rn_sha256_add(&hash, data + at, bytes - at < piece ? bytes - at : piece);
    rn_sha256_end(&hash, digest);
    rn_sha256_text(digest, text);
    assert_string_equal(expected, text);
}

static void examples_of_the_standard(void **state) {
    (void)state;
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    static char million[1000000];
    memset(million, 'a', sizeof million);
    expect("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect("abc", 3, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    for (size_t piece = 1; piece < 60; piece += 13)
        expect(two_blocks, sizeof two_blocks - 1, piece,
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    expect(million, sizeof million, 4099,
           "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void expect_keyed(const void *key, size_t key_bytes, const char *data,
                         const char *expected) {
    uint8_t digest[RN_SHA256_BYTES];
    char text[2 * RN_SHA256_BYTES + 1];
    rn_hmac_sha256(key, key_bytes, data, strlen(data), digest);
    rn_sha256_text(digest, text);
    assert_string_equal(expected, text);
}

// RFC 4231's cases 2 and 6, and no key at all.
static void keyed_examples_of_the_standard(void **state) {
    (void)state;
    uint8_t long_key[131];
    memset(long_key, 0xaa, sizeof long_key);
    expect_keyed("Jefe", 4, "what do ya want for nothing?",
                 "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    expect_keyed(long_key, sizeof long_key,
                 "Test Using Larger Than Block-Size Key - Hash Key First",
                 "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    expect_keyed("", 0, "", "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

static void digests_that_differ_in_a_bit_are_not_equal(void **state) {
    (void)state;
    uint8_t a[RN_SHA256_BYTES] = {1, 2, 3}, b[RN_SHA256_BYTES] = {1, 2, 3};
    assert_true(rn_sha256_equal(a, b));
    b[RN_SHA256_BYTES - 1] ^= 0x80;
    assert_false(rn_sha256_equal(a, b));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_of_the_standard),
        cmocka_unit_test(keyed_examples_of_the_standard),
        cmocka_unit_test(digests_that_differ_in_a_bit_are_not_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
