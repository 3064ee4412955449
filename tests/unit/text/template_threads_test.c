// labels: threads
// template_threads_test.c — one parsed template, rendered by several threads at once.
#include "support.h"

#include <ration/chat.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/str.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 50 };

typedef struct worker {
    pthread_t thread;
    const rn_chat_template *parsed;
    int number;
    size_t good;
} worker;

// Each thread has its own conversation, and expects its own text.
static void *render_often(void *self) {
    worker *own = self;
    char content[8], expected[32];
    int bytes = snprintf(content, sizeof content, "%d", own->number);
    rn_chat_message message = {.role = RN_STR("user"), .content = {content, (size_t)bytes}};
    rn_chat chat = {&message, 1, true, RN_STR("<s>"), RN_STR("</s>"), 0};
    snprintf(expected, sizeof expected, "<s>USER:%d|['%d']", own->number, own->number);
    for (int i = 0; i < ROUNDS; i++) {
        rn_buffer out;
        rn_buffer_init(&out, &rn_system_allocator, 1 << 20);
        rn_status s = rn_chat_template_render(own->parsed, &chat, rn_buffer_sink(&out));
        own->good +=
            s == RN_OK && rn_str_equal(rn_str_from(expected), (rn_str){out.data, out.bytes});
        rn_buffer_free(&out);
    }
    return NULL;
}

static void threads_share_a_template(void **state) {
    rn_chat_template *parsed;
    worker workers[THREADS];
    (void)state;
    assert_ok(rn_chat_template_parse(
        "t",
        RN_STR(
            "{% set ns = namespace(all=[]) %}{{ bos_token }}{% for m in messages %}{{ m.role|upper "
            "}}:{{ m.content }}|{% set ns.all = ns.all + [m.content] %}{% endfor %}{{ ns.all }}"),
        &parsed));
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.parsed = parsed, .number = i};
        assert_int_equal(0, pthread_create(&workers[i].thread, NULL, render_often, &workers[i]));
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(0, pthread_join(workers[i].thread, NULL));
        assert_int_equal(ROUNDS, workers[i].good);
    }
    rn_chat_template_free(parsed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_a_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
