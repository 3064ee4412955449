// Routing traces: both forms, and files that are none.
#include "support.h"

#include "io/route_trace.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static rn_status read_text(const char *text, rn_route_trace *out) {
    char path[] = "/tmp/route_trace_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    rn_status s = rn_route_trace_read(path, &rn_system_allocator, out);
    unlink(path);
    return s;
}

static void lines_and_tables_say_the_same(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{\"tok\": 1, \"layers\": [[6, 8], [7, 1]]}\n{\"layers\": [[0, 3]], \"more\": [1, {}]}\n",
        "# a comment\nturn,step,layer,slot,expert,weight\n0,0,0,0,6,0.5\n0,0,0,1,8,0.5\r\n"
        "0,0,1,0,7,1\n0,0,1,1,1,1\n0,1,0,0,0,1\n0,1,0,1,3,1\n"};
    for (size_t i = 0; i < 2; i++) {
        rn_route_trace t;
        assert_int_equal(read_text(texts[i], &t), RN_OK);
        assert_int_equal(t.tokens, 2);
        assert_int_equal(t.layers, 2);
        assert_int_equal(t.k, 2);
        assert_int_equal(t.experts, 9);
        assert_int_equal(rn_route_trace_at(&t, 0, 1)[0], 7);
        assert_int_equal(rn_route_trace_at(&t, 1, 0)[1], 3);
        assert_int_equal(rn_route_trace_at(&t, 1, 1)[0], -1);
        rn_route_trace_free(&t);
    }
}

static void what_is_no_trace_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "{\"layers\": []}\n",
        "{\"layers\": [[5000]]}\n",
        "{\"layers\": [[-1]]}\n",
        "{\"layers\": [3]}\n",
        "{\"layers\": [[1]]\n",
        "step,layer,slot\n0,0,0\n",
        "step,layer,slot,expert\n0,0,0\n",
        "step,layer,slot,expert\n0,0,0,x\n",
        "step,layer,slot,expert\n99999999,0,0,1\n",
        "step,layer,slot,expert\n0,0,0,99999999999999999999\n",
        "step,layer,slot,expert\n1048575,1023,255,1\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        rn_route_trace t;
        assert_int_equal(read_text(texts[i], &t), RN_CORRUPT);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_and_tables_say_the_same),
        cmocka_unit_test(what_is_no_trace_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
