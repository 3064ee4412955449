// labels: threads
// Who is let in by a rank that listens: whoever knows the job's secret, and nobody else, however
// many come.
#include "support.h"

#include "base/clock.h"
#include "device/comm_tcp.h"

#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MANY = 300 };

static const rn_tcp_secret right = {{1, 2, 3}}, wrong = {{1, 2, 4}};
static struct sockaddr_in place;

static uint64_t in_ms(uint64_t ms) {
    return rn_clock_ns() + ms * 1000000;
}

static rn_tcp_door *open_door(void) {
    static rn_tcp_door door;
    socklen_t bytes = sizeof place;
    door = (rn_tcp_door){.rank = 3, .secret = &right};
    door.listener = socket(AF_INET, SOCK_STREAM, 0);
    place = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(door.listener, (struct sockaddr *)&place, sizeof place), 0);
    assert_int_equal(listen(door.listener, 2 * MANY), 0);
    assert_int_equal(getsockname(door.listener, (struct sockaddr *)&place, &bytes), 0);
    return &door;
}

static int come(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(s >= 0);
    assert_int_equal(connect(s, (struct sockaddr *)&place, sizeof place), 0);
    return s;
}

// A rank that comes while the test listens.
typedef struct caller {
    const rn_tcp_secret *secret;
    uint32_t to;
    rn_tcp_hello hello; // as it was sent
    rn_tcp_answer answer;
    pthread_t thread;
} caller;

static void *call(void *self) {
    caller *c = self;
    int s = come();
    c->hello = (rn_tcp_hello){.rank = 5, .ranks = 8, .channel = 1, .port = 4242};
    c->answer = rn_tcp_greet(s, c->secret, &c->hello, c->to, in_ms(60000));
    close(s);
    return NULL;
}

static bool meet(rn_tcp_door *door, caller *c, uint64_t ms, rn_tcp_guest *out) {
    assert_int_equal(pthread_create(&c->thread, NULL, call, c), 0);
    bool met = rn_tcp_door_wait(door, in_ms(ms), out);
    if (!met) rn_tcp_door_close(door); // else it waits for an answer
    pthread_join(c->thread, NULL);
    return met;
}

static void whoever_knows_the_secret_is_let_in(void **state) {
    (void)state;
    rn_tcp_door *door = open_door();
    rn_tcp_guest guest;
    caller c = {.secret = &right, .to = 3};
    assert_true(meet(door, &c, 60000, &guest));
    assert_int_equal(c.answer, RN_TCP_WELCOME);
    assert_int_equal(guest.hello.rank, 5);
    assert_int_equal(guest.hello.ranks, 8);
    assert_int_equal(guest.hello.channel, 1);
    assert_int_equal(guest.hello.port, 4242);
    close(guest.socket);
    rn_tcp_door_close(door);
}

static void another_secret_is_refused_and_told_so(void **state) {
    (void)state;
    rn_tcp_door *door = open_door();
    rn_tcp_guest guest;
    caller c = {.secret = &wrong, .to = 3};
    assert_false(meet(door, &c, 1000, &guest));
    assert_int_equal(c.answer, RN_TCP_UNKNOWN);
    assert_int_equal(door->unknown, 1);
    assert_string_equal(door->last, "127.0.0.1");
}

// The rank that answers is not the one that was looked for.
static void whoever_listens_has_to_show_its_rank(void **state) {
    (void)state;
    rn_tcp_door *door = open_door();
    rn_tcp_guest guest;
    caller c = {.secret = &right, .to = 4};
    assert_true(meet(door, &c, 60000, &guest));
    assert_int_equal(c.answer, RN_TCP_NOBODY);
    close(guest.socket);
    rn_tcp_door_close(door);
}

// A hello of another connection is of no use in this one.
static void what_was_heard_before_opens_nothing(void **state) {
    (void)state;
    rn_tcp_door *door = open_door();
    rn_tcp_guest guest;
    caller c = {.secret = &right, .to = 3};
    assert_true(meet(door, &c, 60000, &guest));
    close(guest.socket);
    int s = come();
    assert_int_equal(send(s, &c.hello, sizeof c.hello, 0), sizeof c.hello);
    assert_false(rn_tcp_door_wait(door, in_ms(500), &guest));
    assert_int_equal(door->unknown, 1);
    close(s);
    rn_tcp_door_close(door);
}

// Silent ones, ones that speak another protocol, ones that go away: all at once.
static void strangers_keep_nobody_out(void **state) {
    (void)state;
    static int strangers[MANY];
    rn_tcp_door *door = open_door();
    rn_tcp_guest guest;
    caller c = {.secret = &right, .to = 3};
    for (int i = 0; i < MANY; i++) {
        static const char http[] = "GET / HTTP/1.1\r\n\r\n";
        strangers[i] = come();
        if (i % 3 == 1) send(strangers[i], http, sizeof http - 1, MSG_NOSIGNAL);
        if (i % 3 == 2) close(strangers[i]);
    }
    assert_true(meet(door, &c, 60000, &guest));
    assert_int_equal(c.answer, RN_TCP_WELCOME);
    assert_true(door->guest_count <= RN_TCP_GUESTS);
    assert_true(door->strangers >= MANY - RN_TCP_GUESTS);
    for (int i = 0; i < MANY; i++)
        if (i % 3 != 2) close(strangers[i]);
    close(guest.socket);
    rn_tcp_door_close(door);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_knows_the_secret_is_let_in),
        cmocka_unit_test(another_secret_is_refused_and_told_so),
        cmocka_unit_test(whoever_listens_has_to_show_its_rank),
        cmocka_unit_test(what_was_heard_before_opens_nothing),
        cmocka_unit_test(strangers_keep_nobody_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
