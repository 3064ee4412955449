// printed.c — one buffer for a test program.
#include "printed.h"
#include "json_check.h"
#include "support.h"

rn_buffer printed;

int printed_begin(void **state) {
    (void)state;
    rn_buffer_init(&printed, &rn_system_allocator, 16 << 20);
    return 0;
}

int printed_free(void **state) {
    (void)state;
    rn_buffer_free(&printed);
    return 0;
}

rn_sink printed_sink(void) {
    printed.bytes = 0;
    return rn_buffer_sink(&printed);
}

void printed_end(void) {
    assert_ok(rn_buffer_append(&printed, "", 1));
}

void printed_json_check(void) {
    assert_true(test_json_valid(printed.data, printed.bytes));
}

void assert_printed(const char *words) {
    if (!strstr(printed.data, words)) fail_msg("\"%s\" is not in:\n%s", words, printed.data);
}
