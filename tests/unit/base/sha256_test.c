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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(examples_of_the_standard)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
