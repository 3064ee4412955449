// labels: threads
// A queue over a CUDA stream, over a driver of our own: order, fences both ways, poison that shows
// early or late, recordings, cancelling, a device that disappears.
#include "support.h"
#include "../../fake_cuda/fake_cuda.h"
#include "backend/cuda/kernels/rows_args.h"
#include "backend/cuda/queue.h"
#include "base/fault.h"

#include <sched.h>
#include <stdatomic.h>

#define MIB ((uint64_t)1 << 20)

static fake_cuda *fake;
static const rn_cuda_image image = {"test", "an image"};
static const rn_cuda_images with_kernels = {&image, 1};
static rn_device *device;
static rn_device_memory memory;
static uint64_t host_before;
static rn_queue *compute, *copy;

static int start(void **state) {
    (void)state;
    fake = fake_cuda_open(RN_BIN_DIR "/../lib/fake_cuda.so");
    rn_cuda_images_replace(&with_kernels);
    return fake ? 0 : -1;
}

static int each(void **state) {
    (void)state;
    uint64_t purposes[RN_PURPOSE_COUNT] = {[RN_PURPOSE_ACTIVATIONS] = 2 * MIB};
    fake->has_words = true;
    fake->fail_at = 0;
    fake->fail_code = 719;
    fake->args_bytes = 0;
    fake->on_launch = NULL;
    fake->maps_host = false;
    fake->launch_count = fake->early_count = fake->word_count = 0;
    host_before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    if (rn_cuda_device_create(0, 1, &device) != RN_OK) return -1;
    if (rn_device_memory_take(device, purposes, &memory) != RN_OK) return -1;
    if (device->open_queue(device, RN_QUEUE_COMPUTE, NULL, &compute) != RN_OK) return -1;
    return device->open_queue(device, RN_QUEUE_COPY, NULL, &copy) == RN_OK ? 0 : -1;
}

static int clean(void **state) {
    (void)state;
    rn_queue_destroy(copy);
    rn_queue_destroy(compute);
    rn_device_memory_release(&memory);
    rn_device_destroy(device);
    fake->die(0);
    rn_fault_arm(RN_FAULT_ALLOC, 0);
    bool is_clean = fake->used_bytes == 0 && fake->event_count == 0 && fake->context_count == 0 &&
                    fake->pushed_count == 0 && fake->violations == 0 && fake->stream_count == 0 &&
                    fake->module_count == 0 && fake->graph_count == 0 && fake->pinned_bytes == 0 &&
                    rn_ledger_is_valid() &&
                    rn_ledger_total(RN_DEVICE_HOST).now_bytes == host_before;
    return is_clean ? 0 : -1;
}

// ---- kernels ------------------------------------------------------------------------------------

// Adds `more` to a number on the device.
typedef struct add_args {
    uint64_t *number;
    uint64_t more;
    uint64_t rest;
} add_args;
_Static_assert(sizeof(add_args) == sizeof(rn_port_args), "the hook keeps as much of either");

static void on_launch(void *self, const fake_launch *launch) {
    add_args args;
    (void)self;
    memcpy(&args, launch->args, sizeof args);
    *args.number += args.more;
}

typedef struct add_attrs {
    uint64_t more;
    bool early;
} add_attrs;

static rn_status run_add(const rn_call *call) {
    const add_attrs *attrs = call->attrs;
    add_args args = {call->outputs[0].data, attrs->more, 0};
    return rn_cuda_launch(call, (rn_cuda_kernel)0,
                          (rn_cuda_grid){1, 1, 1, .threads = 32, .early = attrs->early}, &args);
}

static const rn_kernel add = {run_add, NULL};

static void submit_add(rn_queue *queue, const rn_tensor *number, const add_attrs *attrs) {
    rn_call call = {.op = RN_OP_ADD, .attrs = attrs, .outputs = number, .output_count = 1};
    rn_queue_launch(queue, &add, &call);
}

static uint64_t *numbers(void) {
    fake->args_bytes = sizeof(add_args);
    fake->on_launch = on_launch;
    return (uint64_t *)(void *)memory.base;
}

static rn_tensor tensor_of(void *data) {
    return (rn_tensor){data, RN_DTYPE_I32, RN_LAYOUT_PLAIN, RN_SHAPE(2)};
}

// ---- order --------------------------------------------------------------------------------------

static void commands_run_in_order(void **state) {
    (void)state;
    uint64_t *number = numbers(), in = 5, out = 0;
    rn_tensor tensor = tensor_of(number);
    const add_attrs seven = {7, false};
    rn_queue_zero(compute, number, 16);
    rn_queue_copy_in(compute, number, &in, sizeof in);
    submit_add(compute, &tensor, &seven);
    submit_add(compute, &tensor, &seven);
    rn_queue_copy_out(compute, &out, number, sizeof out);
    assert_ok(rn_queue_finish(compute));
    assert_int_equal(19, out);
    assert_int_equal(0, number[1]);
}

typedef struct journal {
    uint32_t items[2048];
    _Atomic uint32_t count;
    uint32_t fail_at, noted_poisoned;
} journal;

static rn_status write_item(void *self, uint32_t index) {
    journal *j = self;
    if (j->fail_at && index == j->fail_at) return rn_fail(RN_IO, "item %u is to fail", index);
    j->items[j->count++] = index;
    return RN_OK;
}

static void note_item(void *self, uint32_t index, bool poisoned) {
    journal *j = self;
    j->noted_poisoned += poisoned;
    j->items[j->count++] = index;
}

static void functions_of_the_host_run_in_order_and_in_any_number(void **state) {
    (void)state;
    static journal j;
    j = (journal){0};
    for (uint32_t i = 0; i < 1000; i += 2) {
        rn_queue_call(compute, write_item, &j, i);
        rn_queue_note(compute, note_item, &j, i + 1);
    }
    assert_ok(rn_queue_finish(compute));
    assert_int_equal(1000, j.count);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(i, j.items[i]);
    assert_int_equal(0, j.noted_poisoned);
}

// ---- poison -------------------------------------------------------------------------------------

static void call_that_fails_shows_at_finish_and_what_follows_is_skipped(void **state) {
    (void)state;
    static journal j;
    j = (journal){.fail_at = 2};
    fake->hold(true); // all of it is submitted before anything runs
    rn_queue_call(compute, write_item, &j, 1);
    rn_queue_call(compute, write_item, &j, 2);
    rn_queue_call(compute, write_item, &j, 3);
    rn_queue_note(compute, note_item, &j, 4);
    fake->hold(false);
    assert_fails(RN_IO, rn_queue_finish(compute));
    assert_string_equal("item 2 is to fail", rn_last_error()->message);
    assert_int_equal(2, j.count);
    assert_int_equal(4, j.items[1]); // notes are always taken
    assert_int_equal(1, j.noted_poisoned);
    (void)rn_fail(RN_CORRUPT, "another");
    assert_fails(RN_IO, rn_queue_finish(compute)); // it is kept
    rn_queue_reset(compute);
    rn_queue_call(compute, write_item, &j, 5);
    assert_ok(rn_queue_finish(compute));
    assert_int_equal(5, j.items[2]);
}

static void submission_that_fails_poisons_but_what_was_before_it_runs(void **state) {
    (void)state;
    static journal j;
    j = (journal){0};
    uint64_t *number = numbers(), in = 1;
    fake->hold(true);
    rn_queue_call(compute, write_item, &j, 1);
    fake->fail_at = 1;
    rn_queue_copy_in(compute, number, &in, sizeof in);
    rn_queue_call(compute, write_item, &j, 2);
    rn_queue_note(compute, note_item, &j, 3);
    fake->hold(false);
    assert_fails(RN_DEVICE, rn_queue_finish(compute));
    assert_non_null(strstr(rn_last_error()->message, "copying to the device"));
    assert_int_equal(2, j.count);
    assert_int_equal(1, j.items[0]);
    assert_int_equal(3, j.items[1]);
    assert_int_equal(1, j.noted_poisoned);
}

static void tensors_of_the_host_are_refused_by_name(void **state) {
    (void)state;
    uint64_t here = 3, *number = numbers();
    const add_attrs one = {1, false};
    rn_tensor mine = tensor_of(number), foreign = tensor_of(&here);
    submit_add(compute, &foreign, &one);
    submit_add(compute, &mine, &one);
    assert_fails(RN_INVALID, rn_queue_finish(compute));
    assert_string_equal("argument 0 of add does not lie in the memory of cuda:0",
                        rn_last_error()->message);
    assert_int_equal(0, fake->launch_count); // neither it nor what followed
    assert_int_equal(3, here);
    rn_queue_reset(compute);
    rn_queue_copy_out(compute, &here, &here, sizeof here);
    assert_fails(RN_INVALID, rn_queue_finish(compute));
    assert_non_null(strstr(rn_last_error()->message, "a copy of 8 bytes"));
    rn_queue_reset(compute);
    rn_call call = {.op = RN_OP_ADD, .outputs = &mine, .output_count = 1, .workspace = &here};
    rn_queue_launch(compute, &add, &call);
    assert_fails(RN_INVALID, rn_queue_finish(compute));
    rn_queue_reset(compute);
    const rn_kernel none = {NULL, NULL};
    call.workspace = NULL;
    rn_queue_launch(compute, &none, &call);
    assert_fails(RN_UNSUPPORTED, rn_queue_finish(compute));
}

// ---- fences -------------------------------------------------------------------------------------

static void streams_wait_for_each_other_both_ways(void **state) {
    (void)state;
    uint64_t *number = numbers();
    rn_tensor tensor = tensor_of(number);
    const add_attrs one = {1, false};
    uint64_t in[20], out[20];
    rn_fence arrived, computed;
    rn_fence_init(&arrived), rn_fence_init(&computed);
    for (uint64_t i = 0; i < 20; i++) {
        in[i] = i * 10;
        rn_queue_wait(copy, &computed); // of the round before; at first there is none
        rn_queue_copy_in(copy, number, &in[i], sizeof in[i]);
        rn_queue_signal(copy, &arrived);
        rn_queue_wait(compute, &arrived);
        submit_add(compute, &tensor, &one);
        rn_queue_copy_out(compute, &out[i], number, sizeof out[i]);
        rn_queue_signal(compute, &computed);
    }
    assert_ok(rn_queue_finish(compute));
    assert_ok(rn_queue_finish(copy));
    for (uint64_t i = 0; i < 20; i++)
        assert_int_equal(i * 10 + 1, out[i]);
    assert_int_equal(0, fake->word_count); // events are enough
    rn_fence_free(&arrived), rn_fence_free(&computed);
}

typedef struct relay {
    uint64_t stage[2], next;
} relay;

static rn_status fill_stage(void *self, uint32_t index) {
    relay *r = self;
    r->stage[index] = r->next++;
    return RN_OK;
}

// The host fills two stages in turn, the copy queue empties them: as weights are streamed.
static void relay_through(rn_queue *read) {
    uint64_t *number = numbers(), out[40];
    relay r = {.next = 100};
    rn_fence full[2], empty[2];
    for (int i = 0; i < 2; i++) {
        rn_fence_init(&full[i]), rn_fence_init(&empty[i]);
        empty[i].for_host = true;
    }
    for (uint32_t i = 0; i < 40; i++) {
        uint32_t s = i % 2;
        rn_queue_wait(read, &empty[s]);
        rn_queue_call(read, fill_stage, &r, s);
        rn_queue_signal(read, &full[s]);
        rn_queue_wait(copy, &full[s]);
        rn_queue_copy_in(copy, number, &r.stage[s], sizeof r.stage[s]);
        rn_queue_signal(copy, &empty[s]);
        rn_queue_copy_out(copy, &out[i], number, sizeof out[i]);
    }
    assert_ok(rn_queue_finish(read));
    assert_ok(rn_queue_finish(copy));
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(100 + i, out[i]);
    rn_queue_destroy(read);
    for (int i = 0; i < 2; i++)
        rn_fence_free(&full[i]), rn_fence_free(&empty[i]);
}

static void stream_and_host_wait_for_each_other_by_words(void **state) {
    (void)state;
    rn_queue *read;
    uint64_t before = fake->word_count;
    assert_ok(rn_queue_thread_create(rn_host_executor, NULL, &read));
    relay_through(read);
    assert_true(fake->word_count > before);
}

static void without_words_they_wait_all_the_same(void **state) {
    (void)state;
    rn_queue *read;
    uint64_t before = fake->word_count;
    rn_gpu_of(device)->has_words = false;
    assert_ok(rn_queue_thread_create(rn_host_executor, NULL, &read));
    relay_through(read);
    assert_int_equal(before, fake->word_count);
}

// More than a slab of words and than the first list of waits.
static void many_fences_are_waited_for_at_once(void **state) {
    (void)state;
    enum { COUNT = 150 };
    static rn_fence fences[COUNT];
    uint64_t *number = numbers(), in = 3;
    for (int i = 0; i < COUNT; i++) {
        rn_fence_init(&fences[i]);
        (void)rn_fence_ask(&fences[i]);
        rn_queue_wait(copy, &fences[i]);
        rn_queue_wait(copy, &fences[i]); // the same again is no other
    }
    rn_queue_copy_in(copy, number, &in, sizeof in);
    assert_int_equal(COUNT, rn_cuda_queue_of(copy)->wait_count);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(0, *number); // nothing has begun
        rn_fence_reach(&fences[i], 1, NULL);
    }
    assert_ok(rn_queue_finish(copy));
    assert_int_equal(3, *number);
    for (int i = 0; i < COUNT; i++)
        rn_fence_free(&fences[i]);
}

static void fence_that_was_reached_before_holds_nobody_up(void **state) {
    (void)state;
    rn_fence fence;
    rn_fence_init(&fence);
    rn_queue_wait(compute, &fence); // never signalled
    rn_fence_reach(&fence, rn_fence_ask(&fence), NULL);
    rn_queue_wait(compute, &fence);
    assert_ok(rn_queue_finish(compute));
    assert_null(fence.event); // nothing had to be made for it
    rn_fence_free(&fence);
}

static void poison_goes_along_fences_of_streams(void **state) {
    (void)state;
    uint64_t *number = numbers(), here = 1;
    rn_tensor tensor = tensor_of(number);
    const add_attrs one = {1, false};
    rn_fence fence;
    rn_fence_init(&fence);
    rn_queue_copy_in(copy, &here, &here, sizeof here); // not the device's
    rn_queue_signal(copy, &fence);
    rn_queue_wait(compute, &fence);
    submit_add(compute, &tensor, &one);
    uint64_t launched = fake->launch_count;
    assert_fails(RN_INVALID, rn_queue_finish(compute));
    assert_int_equal(launched, fake->launch_count);
    assert_fails(RN_INVALID, rn_queue_finish(copy));
    rn_fence_free(&fence);
}

// read (host) fails late -> copy -> compute, which is finished alone: it must hear of it.
static void poison_that_shows_late_goes_along_all_fences(void **state) {
    (void)state;
    static journal j;
    j = (journal){.fail_at = 7};
    rn_queue *read;
    rn_fence full, loaded, freed;
    rn_fence_init(&full), rn_fence_init(&loaded), rn_fence_init(&freed);
    assert_ok(rn_queue_thread_create(rn_host_executor, NULL, &read));
    fake->hold(true);
    rn_queue_wait(copy, &freed);
    rn_queue_call(compute, write_item, &j, 1);
    rn_queue_signal(compute, &freed);
    rn_queue_wait(copy, &freed); // a circle: copy waits for compute, which waits for copy
    (void)rn_fence_ask(&full);   // the host owes a signal ...
    rn_queue_wait(copy, &full);
    rn_queue_signal(copy, &loaded);
    rn_queue_wait(compute, &loaded);
    fake->hold(false);
    rn_queue_call(read, write_item, &j, 7);
    rn_command owed = {RN_COMMAND_SIGNAL, .as.fence = {&full, 1}};
    read->submit(read, &owed); // ... and gives it, poisoned
    assert_fails(RN_IO, rn_queue_finish(compute));
    assert_string_equal("item 7 is to fail", rn_last_error()->message);
    assert_fails(RN_IO, rn_queue_finish(copy));
    assert_fails(RN_IO, rn_queue_finish(read));
    rn_queue_destroy(read);
    rn_fence_free(&full), rn_fence_free(&loaded), rn_fence_free(&freed);
}

static void host_that_waits_hears_of_a_call_that_failed(void **state) {
    (void)state;
    static journal j;
    j = (journal){.fail_at = 1};
    rn_fence fence;
    rn_fence_init(&fence);
    fence.for_host = true;
    rn_queue_call(compute, write_item, &j, 1);
    rn_queue_signal(compute, &fence);
    const rn_error_info *story = rn_fence_await(&fence, 1);
    assert_non_null(story);
    assert_int_equal(RN_IO, story->status);
    assert_fails(RN_IO, rn_queue_finish(compute));
    rn_fence_free(&fence);
}

static void signal_that_cannot_be_submitted_is_reached_by_the_host(void **state) {
    (void)state;
    for (uint64_t n = 1; n <= 4; n++) { // create the event, pin a slab, record, write
        rn_fence fence;
        rn_fence_init(&fence);
        fence.for_host = true;
        fake->fail_at = n;
        rn_queue_signal(compute, &fence);
        fake->fail_at = 0;
        const rn_error_info *story = rn_fence_await(&fence, 1);
        if (n <= 3 || story) {
            assert_non_null(story);
            assert_int_equal(RN_DEVICE, story->status);
            assert_fails(RN_DEVICE, rn_queue_finish(compute));
        }
        rn_queue_reset(compute);
        rn_fence_free(&fence);
    }
}

// ---- small copies -------------------------------------------------------------------------------

static void on_port(void *self, const fake_launch *launch) {
    rn_port_args args;
    if (strcmp(launch->name, "rn_port") != 0) {
        on_launch(self, launch);
        return;
    }
    memcpy(&args, launch->args, sizeof args);
    uint64_t threads = (uint64_t)launch->grid[0] * launch->threads;
    if (threads >= args.bytes / 16 + args.bytes % 16) memcpy(args.to, args.from, args.bytes);
}

// What a copy of so many bytes became: a launch (1) or a copy of the driver's (0).
static uint64_t copy_there_and_back(uint64_t bytes, uint64_t offset) {
    static _Alignas(16) uint8_t in[2 * MIB], out[2 * MIB];
    uint64_t before = fake->launch_count;
    for (uint64_t i = 0; i < bytes; i++)
        in[offset + i] = (uint8_t)(i * 7 + bytes);
    memset(out, 0, sizeof out);
    rn_queue_copy_in(compute, memory.base, in + offset, bytes);
    uint64_t launched = fake->launch_count - before;
    rn_queue_copy_out(compute, out + offset, memory.base, bytes);
    assert_ok(rn_queue_finish(compute));
    assert_memory_equal(in + offset, out + offset, bytes);
    assert_int_equal(0, out[offset + bytes]);
    return launched;
}

static void small_copies_of_mapped_memory_are_made_by_threads(void **state) {
    (void)state;
    fake->args_bytes = sizeof(rn_port_args);
    fake->on_launch = on_port;
    assert_int_equal(0, copy_there_and_back(64, 0)); // the device does not see it
    fake->maps_host = true;
    assert_int_equal(1, copy_there_and_back(1, 0));
    assert_int_equal(1, copy_there_and_back(47, 16));
    assert_int_equal(1, copy_there_and_back(64 << 10, 0));
    assert_int_equal(0, copy_there_and_back((64 << 10) + 1, 0));
    assert_int_equal(0, copy_there_and_back(64, 4)); // not aligned
}

static void nothing_but_another_copy_begins_before_a_small_copy_ends(void **state) {
    (void)state;
    static _Alignas(16) uint64_t in[2] = {3, 4};
    uint64_t *number = numbers();
    rn_tensor tensor = tensor_of(number);
    const add_attrs early = {1, true};
    fake->args_bytes = sizeof(rn_port_args);
    fake->on_launch = on_port;
    fake->maps_host = true;
    rn_queue_copy_in(compute, number, in, 16);
    assert_int_equal(0, fake->early_count);
    rn_queue_copy_in(compute, number, in, 16);
    assert_int_equal(1, fake->early_count);
    submit_add(compute, &tensor, &early);
    assert_int_equal(1, fake->early_count);
    submit_add(compute, &tensor, &early);
    assert_int_equal(2, fake->early_count);
    assert_ok(rn_queue_finish(compute));
    assert_int_equal(5, number[0]);
}

// ---- early launches and recordings --------------------------------------------------------------

static void launches_begin_early_only_behind_launches(void **state) {
    (void)state;
    uint64_t *number = numbers(), out;
    rn_tensor tensor = tensor_of(number);
    const add_attrs early = {1, true}, late = {1, false};
    rn_fence fence;
    rn_fence_init(&fence);
    fake->early_count = 0;
    rn_queue_zero(compute, number, 8);
    submit_add(compute, &tensor, &early); // behind zeros
    assert_int_equal(0, fake->early_count);
    submit_add(compute, &tensor, &early);
    submit_add(compute, &tensor, &late);
    submit_add(compute, &tensor, &early);
    assert_int_equal(2, fake->early_count);
    rn_queue_copy_out(compute, &out, number, 8);
    submit_add(compute, &tensor, &early);
    rn_queue_signal(compute, &fence);
    submit_add(compute, &tensor, &early);
    assert_int_equal(2, fake->early_count);
    assert_ok(rn_queue_finish(compute));
    submit_add(compute, &tensor, &early);
    assert_int_equal(2, fake->early_count);
    rn_gpu_of(device)->starts_early = false;
    submit_add(compute, &tensor, &early);
    assert_int_equal(2, fake->early_count);
    assert_ok(rn_queue_finish(compute));
    assert_int_equal(8, *number);
    rn_fence_free(&fence);
}

static void recording_is_replayed_as_a_whole(void **state) {
    (void)state;
    uint64_t *number = numbers(), in = 10, out = 0;
    rn_tensor tensor = tensor_of(number);
    const add_attrs one = {1, true};
    rn_recording *recording;
    fake->early_count = 0;
    *number = 77;
    assert_ok(compute->record(compute));
    rn_queue_copy_in(compute, number, &in, sizeof in);
    submit_add(compute, &tensor, &one);
    submit_add(compute, &tensor, &one);
    rn_queue_copy_out(compute, &out, number, sizeof out);
    assert_fails(RN_INVALID, compute->record(compute)); // it is at it
    assert_ok(compute->keep(compute, &recording));
    assert_ok(rn_queue_finish(compute));
    assert_int_equal(77, *number); // nothing was carried out
    assert_int_equal(1, fake->early_count);
    compute->replay(compute, recording);
    assert_ok(rn_queue_finish(compute));
    assert_int_equal(12, out);
    in = 20;
    compute->replay(compute, recording);
    compute->replay(compute, recording);
    assert_ok(rn_queue_finish(compute));
    assert_int_equal(22, out);
    compute->forget(compute, recording);
    compute->forget(compute, NULL);
    assert_int_equal(0, fake->graph_count);
}

// Neither made nor brought to a full device: then launches one by one have to do.
static void recording_without_room_is_not_kept(void **state) {
    (void)state;
    uint64_t *number = numbers();
    rn_tensor tensor = tensor_of(number);
    const add_attrs one = {1, true};
    rn_recording *recording;
    *number = 5;
    for (uint64_t call = 2; call <= 3; call++) { // after the end of capturing
        assert_ok(compute->record(compute));
        submit_add(compute, &tensor, &one);
        fake->fail_code = 2; // out of memory
        fake->fail_at = call;
        assert_fails(RN_NO_MEMORY, compute->keep(compute, &recording));
        assert_int_equal(0, fake->fail_at);
        assert_null(recording);
        assert_int_equal(0, fake->graph_count);
    }
    submit_add(compute, &tensor, &one);
    assert_ok(rn_queue_finish(compute));
    assert_int_equal(6, *number);
}

static void what_cannot_be_recorded_ends_the_recording(void **state) {
    (void)state;
    static journal j;
    j = (journal){0};
    uint64_t here = 0;
    rn_recording *recording;
    rn_fence fence;
    rn_fence_init(&fence);
    assert_fails(RN_INVALID, compute->keep(compute, &recording)); // not begun
    assert_ok(compute->record(compute));
    rn_queue_signal(compute, &fence);
    assert_non_null(rn_fence_await(&fence, 1)); // nobody waits for ever
    rn_queue_note(compute, note_item, &j, 1);
    assert_int_equal(1, j.noted_poisoned);
    assert_fails(RN_INVALID, compute->keep(compute, &recording));
    assert_null(recording);
    assert_fails(RN_INVALID, compute->record(compute)); // poisoned
    rn_queue_reset(compute);
    assert_ok(compute->record(compute));
    rn_queue_copy_in(compute, &here, &here, sizeof here);
    assert_fails(RN_INVALID, rn_queue_finish(compute)); // finish ends it, too
    rn_queue_reset(compute);
    assert_ok(rn_queue_finish(compute));
    rn_fence_free(&fence);
}

// ---- cancelling ---------------------------------------------------------------------------------

static void cancelled_run_waits_for_copies_in_flight(void **state) {
    (void)state;
    _Atomic bool cancel = false;
    uint64_t *number = numbers(), in = 4, other = 9;
    rn_queue *queue;
    rn_recording *recording;
    assert_ok(device->open_queue(device, RN_QUEUE_COPY, &cancel, &queue));
    assert_ok(queue->record(queue));
    rn_queue_zero(queue, number, 8);
    assert_ok(queue->keep(queue, &recording));
    fake->hold(true);
    rn_queue_copy_in(queue, number, &in, sizeof in);
    cancel = true;
    rn_queue_copy_in(queue, number, &other, sizeof other);
    queue->replay(queue, recording);
    fake->hold(false);
    assert_fails(RN_CANCELLED, rn_queue_finish(queue));
    assert_int_equal(4, *number); // the first was under way
    cancel = false;
    rn_queue_reset(queue);
    rn_queue_copy_in(queue, number, &other, sizeof other);
    assert_ok(rn_queue_finish(queue));
    assert_int_equal(9, *number);
    cancel = true;
    queue->replay(queue, recording);
    assert_fails(RN_CANCELLED, rn_queue_finish(queue));
    queue->forget(queue, recording);
    rn_queue_destroy(queue);
}

// ---- a device that disappears -------------------------------------------------------------------

static void lost_device_poisons_and_closes_all_books(void **state) {
    (void)state;
    static journal j;
    j = (journal){0};
    uint64_t *number = numbers(), in = 1;
    rn_recording *recording;
    rn_queue *read;
    rn_fence for_host, later;
    rn_fence_init(&for_host), rn_fence_init(&later);
    for_host.for_host = later.for_host = true;
    assert_ok(compute->record(compute));
    rn_queue_zero(compute, number, 8);
    assert_ok(compute->keep(compute, &recording));
    assert_ok(rn_queue_thread_create(rn_host_executor, NULL, &read));
    fake->hold(true);
    rn_queue_copy_in(compute, number, &in, sizeof in);
    rn_queue_call(compute, write_item, &j, 1);
    rn_queue_note(compute, note_item, &j, 2);
    rn_queue_signal(compute, &for_host);
    rn_queue_wait(read, &for_host); // a thread that would wait for ever
    fake->die(719);
    fake->hold(false);
    assert_fails(RN_DEVICE, rn_queue_finish(read)); // it asks by itself, after a second
    rn_queue_note(compute, note_item, &j, 3);
    rn_queue_signal(compute, &later);
    compute->replay(compute, recording);
    const rn_error_info *story = rn_fence_await(&later, 1);
    assert_non_null(story);
    assert_int_equal(RN_DEVICE, story->status);
    assert_fails(RN_DEVICE, rn_queue_finish(compute));
    assert_int_equal(2, j.count); // both notes, not the call
    assert_int_equal(2, j.items[0]);
    assert_int_equal(3, j.items[1]);
    assert_int_equal(2, j.noted_poisoned);
    rn_queue_reset(compute);
    rn_queue_zero(compute, number, 8);
    assert_fails(RN_DEVICE, rn_queue_finish(compute)); // it is still lost
    assert_fails(RN_DEVICE, compute->record(compute));
    compute->forget(compute, recording);
    rn_queue_destroy(read);
    rn_fence_free(&for_host), rn_fence_free(&later);
}

// ---- failures at every place --------------------------------------------------------------------

static rn_status live(void) {
    uint64_t *number = numbers(), in = 1, out = 0;
    rn_tensor tensor = tensor_of(number);
    const add_attrs one = {1, false};
    rn_queue *queue;
    rn_recording *recording = NULL;
    rn_fence fence;
    RN_TRY(device->open_queue(device, RN_QUEUE_COMPUTE, NULL, &queue));
    rn_fence_init(&fence);
    fence.for_host = true;
    rn_queue_copy_in(queue, number, &in, sizeof in);
    rn_queue_signal(queue, &fence);
    rn_queue_wait(copy, &fence);
    rn_queue_copy_out(copy, &out, number, sizeof out);
    rn_status status = rn_queue_finish(copy), other = rn_queue_finish(queue);
    if (status == RN_OK) status = other;
    if (status == RN_OK) status = queue->record(queue);
    if (status == RN_OK) {
        submit_add(queue, &tensor, &one);
        status = queue->keep(queue, &recording);
    }
    if (status == RN_OK) queue->replay(queue, recording);
    if (status == RN_OK) status = rn_queue_finish(queue);
    queue->forget(queue, recording);
    rn_queue_reset(copy);
    rn_queue_destroy(queue);
    rn_fence_free(&fence);
    return status;
}

static void no_allocation_that_fails_leaves_anything(void **state) {
    (void)state;
    uint64_t n = 0, before = 0;
    rn_status status;
    do {
        rn_fault_arm(RN_FAULT_ALLOC, ++n);
        status = live();
        bool fired = rn_fault_fired(RN_FAULT_ALLOC);
        rn_fault_arm(RN_FAULT_ALLOC, 0);
        assert_int_equal(fired ? RN_NO_MEMORY : RN_OK, status);
    } while (status != RN_OK);
    assert_true(n > 4);
    // What stays is a slab of words and room for waits: the same whatever is done again.
    before = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    assert_ok(live());
    assert_int_equal(before, rn_ledger_total(RN_DEVICE_HOST).now_bytes);
}

static void no_call_that_fails_leaves_anything(void **state) {
    (void)state;
    uint64_t n = 0;
    rn_status status;
    do {
        fake->fail_at = ++n;
        status = live();
        if (status != RN_OK) assert_int_equal(RN_DEVICE, status);
        assert_int_equal(2, fake->stream_count);
        assert_int_equal(0, fake->graph_count);
        assert_int_equal(0, fake->event_count);
    } while (status != RN_OK || fake->fail_at == 0);
    assert_true(n > 8);
    fake->fail_at = 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, each, clean)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(commands_run_in_order),
        TEST(functions_of_the_host_run_in_order_and_in_any_number),
        TEST(call_that_fails_shows_at_finish_and_what_follows_is_skipped),
        TEST(submission_that_fails_poisons_but_what_was_before_it_runs),
        TEST(tensors_of_the_host_are_refused_by_name),
        TEST(streams_wait_for_each_other_both_ways),
        TEST(stream_and_host_wait_for_each_other_by_words),
        TEST(without_words_they_wait_all_the_same),
        TEST(many_fences_are_waited_for_at_once),
        TEST(fence_that_was_reached_before_holds_nobody_up),
        TEST(poison_goes_along_fences_of_streams),
        TEST(poison_that_shows_late_goes_along_all_fences),
        TEST(host_that_waits_hears_of_a_call_that_failed),
        TEST(signal_that_cannot_be_submitted_is_reached_by_the_host),
        TEST(small_copies_of_mapped_memory_are_made_by_threads),
        TEST(nothing_but_another_copy_begins_before_a_small_copy_ends),
        TEST(launches_begin_early_only_behind_launches),
        TEST(recording_is_replayed_as_a_whole),
        TEST(recording_without_room_is_not_kept),
        TEST(what_cannot_be_recorded_ends_the_recording),
        TEST(cancelled_run_waits_for_copies_in_flight),
        TEST(lost_device_poisons_and_closes_all_books),
        TEST(no_allocation_that_fails_leaves_anything),
        TEST(no_call_that_fails_leaves_anything),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
