// The table of failures: a text that was really seen for every row, and no row without one.
#include "support.h"
#include "json_check.h"
#include "base/buffer.h"
#include "base/str.h"

#include "base/error_class.h"

typedef struct sample {
    const char *class;
    rn_status status;
    const char *message;
} sample;

// As runtimes, compilers and drivers write them, timestamps and all.
static const sample samples[] = {
    {"injected_fault", RN_NO_MEMORY, "sim: this allocation is to fail"},
    {"injected_fault", RN_DEVICE, "sim: this launch is to fail"},
    {"injected_fault", RN_DEVICE, "sim: this copy is to fail"},
    {"device_memory_full", RN_DEVICE,
     "2024-Nov-08 09:45:31.043523 4:4 ERROR TDRV:log_dev_mem Failed to allocate 64.000MB (usage: "
     "tensors) on ND 0:NC 0, current utilization: * total: 15.938GB"},
    {"device_memory_full", RN_DEVICE,
     "RESOURCE_EXHAUSTED: TDRV:log_dev_mem Failed to allocate 1.500KB (usage: dma rings io) on ND "
     "3:NC 1"},
    {"compile_over_memory", RN_DEVICE,
     "[XCG815] Estimated peak HBM usage (19.0) exceeds 16GB. Neff won't be able to load on chip"},
    {"compile_over_memory", RN_DEVICE,
     "NCC_EOOM001: combined memory needed for the model's activation tensors exceeds the limit"},
    {"device_memory_full", RN_DEVICE,
     "TDRV:dmem_alloc_internal Failed to alloc DEVICE memory: 4697620480"},
    {"device_memory_full", RN_DEVICE,
     "TDRV:tensor_allocate Failed to allocate 4697620480 bytes on DEVICE for tensor input3"},
    {"device_memory_full", RN_DEVICE,
     "neuron:mc_alloc: device mempool [0:0] total 17179869184 occupied 17000000000 needed 1"},
    {"compiler_missing", RN_DEVICE,
     "RunNeuronCCImpl: FileNotFoundError: [Errno 2] No such file or directory: 'neuronx-cc'"},
    {"op_not_compiled", RN_DEVICE, "[NCC_EVRF029] Operation sort is not supported"},
    {"compile_failed", RN_DEVICE,
     "INTERNAL: RunNeuronCCImpl: error condition error != 0: <class "
     "'subprocess.CalledProcessError'>: Command 'neuronx-cc compile' returned non-zero exit "
     "status 70."},
    {"exec_timeout", RN_DEVICE, "TDRV:exec_request_process_errors execution timeout (30000 ms)"},
    {"neuron_no_driver", RN_DEVICE, "Unable to determine Neuron Driver version. Please check"},
    {"nrt_resource", RN_DEVICE, "nrt_tensor_allocate status=4 message=\"Allocation Failure\""},
    {"nrt_resource", RN_DEVICE, "NRT:nrt_infodump Failure: NRT_RESOURCE in nrt_load()"},
    {"nrt_failure", RN_DEVICE, "Nrt::Load failed on NeuronCores 0-0(2): nrt_load status=1"},
    {"core_not_available", RN_DEVICE,
     "NRT:nrt_allocate_neuron_cores NeuronCore(s) not available - Requested:nc1-nc1 Available:0"},
    {"plugin_failed", RN_DEVICE, "the plugin hangs: it did nothing for 20000 ms"},
    {"plugin_failed", RN_DEVICE, "the plugin ends its process by signal 6 (Aborted): Check failed"},
    {"plugin_failed", RN_DEVICE, "the plugin ends its process with exit code 1"},
    {"compiler_killed", RN_DEVICE, "neuronx-cc failed with -9"},
    {"compiler_killed", RN_DEVICE, "subprocess neuronx-cc compile --target trn1: Killed"},
    {"compiler_killed", RN_DEVICE,
     "[F137] neuronx-cc was forcibly killed - This most commonly occurs due to insufficient system "
     "memory."},
    {"graph_too_large", RN_DEVICE,
     "[TEN404] Too many instructions after unroll for function sg0000"},
    {"mixed_devices", RN_DEVICE, "torch_xla/csrc/aten_xla_bridge.cpp:84 : Check failed: xtensor"},
    {"mixed_devices", RN_DEVICE, "Input tensor is not an XLA tensor: CPUBFloat16Type"},
    {"core_not_available", RN_DEVICE,
     "NRT:nrt_allocate_neuron_cores NeuronCore(s) not available - Requested:nc1-nc1 Available:0"},
    {"neff_version_mismatch", RN_DEVICE, "NEFF version mismatch supported: 1.1 received: 2.0"},
    {"nrt_failure", RN_DEVICE, "nrt_load: status=1, error message=\"Non specific failure\""},
    {"nrt_invalid", RN_DEVICE, "nrt_init returned NRT_INVALID"},
    {"nrt_invalid_handle", RN_DEVICE, "nrt_unload: NRT_INVALID_HANDLE"},
    {"nrt_resource", RN_DEVICE, "nrt_tensor_allocate status=4 message=\"Allocation Failure\""},
    {"nrt_timeout", RN_DEVICE, "nrt_execute status=5 message=\"Timeout\""},
    {"nrt_hw_error", RN_DEVICE, "nrt_execute status_code=6"},
    {"nrt_queue_full", RN_DEVICE, "nrt_execute status=7"},
    {"nrt_load_not_enough_nc", RN_DEVICE, "nrt_load failed: NRT_LOAD_NOT_ENOUGH_NC"},
    {"nrt_unsupported_neff_version", RN_DEVICE, "nrt_load status=10 message=\"Unsupported NEFF\""},
    {"nrt_fail_host_mem_alloc", RN_DEVICE, "nrt_tensor_allocate status=11"},
    {"nrt_uninitialized", RN_DEVICE, "nrt_get_version: NRT_UNINITIALIZED (13)"},
    {"nrt_closed", RN_DEVICE, "nrt_execute status=14"},
    {"nrt_queue_empty", RN_DEVICE, "NRT_QUEUE_EMPTY"},
    {"nrt_exec_unit_unrecoverable", RN_DEVICE,
     "accelerator device unrecoverable (NRT_EXEC_UNIT_UNRECOVERABLE status_code=101)"},
    {"nrt_exec_bad_input", RN_DEVICE, "nrt_execute: status=1002, error message=\"Bad input\""},
    {"nrt_exec_completed_with_num_err", RN_DEVICE,
     "Failed to execute the model status=1003 message=Numerical Error"},
    {"nrt_exec_completed_with_err", RN_DEVICE,
     "adaptor.cc:446:Execute failed: nrt_execute: status=1004, error message=\"Execution was "
     "completed with other errors\"."},
    {"nrt_exec_completed_with_err", RN_DEVICE,
     "nrt::infer_wait failed with grpc status code 0, error message \"\"; nrt status code 1004"},
    {"nrt_exec_nc_busy", RN_DEVICE, "nrt_execute status=1005"},
    {"nrt_exec_oob", RN_DEVICE, "nrt_execute status=1006 message=\"Out of bound access\""},
    {"nrt_coll_pending", RN_DEVICE, "NRT_COLL_PENDING"},
    {"nrt_exec_hw_err_collectives", RN_DEVICE, "nrt_execute status=1200"},
    {"nrt_exec_hw_err_hbm_ue", RN_DEVICE, "nrt_execute: NRT_EXEC_HW_ERR_HBM_UE"},
    {"nrt_exec_hw_err_nc_ue", RN_DEVICE, "nrt_execute status_code=1202"},
    {"nrt_exec_hw_err_dma_abort", RN_DEVICE, "nrt_execute status_code=1203"},
    {"nrt_exec_sw_nq_overflow", RN_DEVICE, "nrt_execute status_code=1204"},
    {"nrt_exec_hw_err_repairable_hbm_ue", RN_DEVICE, "NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE"},
    {"nrt_network_proxy_failure", RN_DEVICE, "nrt_execute status=1206"},
    {"xla_failed", RN_DEVICE, "Bad StatusOr access: INTERNAL: during context [pre-optimization]"},
    {"resource_exhausted", RN_DEVICE,
     "Bad StatusOr access: RESOURCE_EXHAUSTED: Error loading program: Attempting to allocate "
     "9.12G. "
     "That was not possible. There are 4.40G free."},
    {"resource_exhausted", RN_DEVICE, "Bad StatusOr access"},
    {"resource_exhausted", RN_DEVICE, "AllocBuffer failed on NeuronDevice"},
    {"cuda_out_of_memory", RN_NO_MEMORY,
     "allocating a chunk: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"},
    {"cuda_out_of_memory", RN_DEVICE,
     "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 15.77 GiB"},
    {"cuda_driver_insufficient", RN_UNSUPPORTED,
     "CUDA driver version is insufficient for CUDA runtime version"},
    {"cuda_driver_insufficient", RN_UNSUPPORTED, "the CUDA driver libcuda.so.1 has no cuMemCreate"},
    {"cuda_no_device", RN_UNSUPPORTED,
     "starting the CUDA driver: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected"},
    {"cuda_no_device", RN_NOT_FOUND, "there is no cuda:1: the driver counts 1"},
    {"ort_absent", RN_NOT_FOUND,
     "there is no ONNX Runtime: libonnxruntime.so.1: cannot open shared object file: No such file "
     "or directory"},
    {"ort_version", RN_UNSUPPORTED, "ONNX Runtime 1.9.0 is not known; 1.17 and later are"},
    {"ort_memory", RN_NO_MEMORY,
     "ONNX Runtime, running (FAIL): Non-zero status code returned while running MatMul node. "
     "Name:'m' Status Message: std::bad_alloc"},
    {"ort_no_kernel", RN_UNSUPPORTED,
     "ONNX Runtime, making a session (NOT_IMPLEMENTED): Could not find an implementation for "
     "DFT(20) node with name 'dft.1'"},
    {"ort_unknown_op", RN_UNSUPPORTED,
     "ONNX Runtime, making a session (INVALID_GRAPH): This is an invalid model. In Node, (\"a\", "
     "Rexu, \"\", -1), Error No Op registered for Rexu with domain_version of 21"},
    {"ort_model_version", RN_UNSUPPORTED,
     "ONNX Runtime, making a session (FAIL): Unsupported model IR version: 99, max supported IR "
     "version: 13"},
    {"ort_index", RN_DEVICE,
     "ONNX Runtime, running (INVALID_ARGUMENT): Non-zero status code returned while running Gather "
     "node. Name:'e' Status Message: indices element out of data bounds, idx=8 must be within the "
     "inclusive range [-2,1]"},
    {"ort_shape", RN_DEVICE,
     "ONNX Runtime, making a tensor (INVALID_ARGUMENT): not enough space: expected 16, got 8"},
    {"ort_fail", RN_DEVICE, "ONNX Runtime, running (FAIL): Exception caught"},
    {"ort_invalid_argument", RN_DEVICE,
     "ONNX Runtime, running (INVALID_ARGUMENT): Invalid input name: y"},
    {"ort_no_such_file", RN_DEVICE,
     "ONNX Runtime, running (NO_SUCHFILE): Load model from m.onnx failed"},
    {"ort_no_model", RN_DEVICE, "ONNX Runtime, running (NO_MODEL): no model"},
    {"ort_engine_error", RN_DEVICE, "ONNX Runtime, running (ENGINE_ERROR): the engine failed"},
    {"ort_runtime_exception", RN_DEVICE,
     "ONNX Runtime, running (RUNTIME_EXCEPTION): Non-zero status code returned while running Conv "
     "node"},
    {"ort_invalid_protobuf", RN_DEVICE,
     "ONNX Runtime, running (INVALID_PROTOBUF): Failed to load model because protobuf parsing "
     "failed"},
    {"ort_model_loaded", RN_DEVICE, "ONNX Runtime, running (MODEL_LOADED): the model was loaded"},
    {"ort_not_implemented", RN_DEVICE, "ONNX Runtime, running (NOT_IMPLEMENTED): not here"},
    {"ort_invalid_graph", RN_DEVICE,
     "ONNX Runtime, running (INVALID_GRAPH): This is an invalid model. Error: the graph is not "
     "acyclic"},
    {"ort_ep_fail", RN_DEVICE, "ONNX Runtime, running (EP_FAIL): a provider failed"},
    {"ort_load_cancelled", RN_DEVICE,
     "ONNX Runtime, running (MODEL_LOAD_CANCELED): loading was cancelled"},
    {"ort_requires_compilation", RN_DEVICE,
     "ONNX Runtime, running (MODEL_REQUIRES_COMPILATION): the node is not assigned"},
    {"ort_not_found", RN_DEVICE, "ONNX Runtime, running (NOT_FOUND): no such name"},
    {"ort_device_reset", RN_DEVICE, "ONNX Runtime, running (DEVICE_RESET): the device was reset"},
    {"cuda_no_driver", RN_UNSUPPORTED,
     "no CUDA driver: libcuda.so.1: cannot open shared object file: No such file or directory"},
    {"cuda_failed", RN_DEVICE,
     "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered"},
    {"library_missing", RN_NOT_FOUND,
     "no PJRT plugin: libnrt.so.1: cannot open shared object file: No such file or "
     "directory"},
    {"library_unusable", RN_UNSUPPORTED, "no PJRT plugin: /opt/plugin.so: invalid ELF header"},
    {"library_unusable", RN_UNSUPPORTED,
     "/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by plugin.so)"},
    {"too_few_threads", RN_IO,
     "cannot start a thread for computing: Resource temporarily unavailable"},
    {"over_budget", RN_OVER_BUDGET,
     "40.0 MiB for weights on host does not fit: 12.0 MiB of the budget of 64.0 MiB is free"},
    {"host_memory_full", RN_NO_MEMORY, "the system has no memory for 4096 bytes"},
    {"not_found", RN_NOT_FOUND, "cannot open model.gguf: No such file or directory"},
    {"damaged_file", RN_CORRUPT, "header is 9 bytes, file has 8"},
    {"io_failed", RN_IO, "read failed: Input/output error"},
    {"unsupported", RN_UNSUPPORTED, "cuda:0 is there, but this build has no kernels for it"},
    {"device_failed", RN_DEVICE, "the device went away"},
    {"cancelled", RN_CANCELLED, "asked to stop"},
    {"invalid", RN_INVALID, "threads is 0"},
    {"internal", RN_INTERNAL, "a plan without steps"},
    {"unknown", (rn_status)99, "something else"},
};
enum { SAMPLES = sizeof samples / sizeof *samples };

static rn_error_info story_of(const sample *seen) {
    rn_error_info story = {.status = seen->status};
    snprintf(story.message, sizeof story.message, "%s", seen->message);
    return story;
}

static void every_text_is_known(void **state) {
    (void)state;
    for (size_t i = 0; i < SAMPLES; i++) {
        rn_error_info story = story_of(&samples[i]);
        const char *name = rn_error_classify(&story)->name;
        if (strcmp(samples[i].class, name) != 0) fail_msg("%s: %s", name, samples[i].message);
    }
}

static void every_row_has_a_text_here(void **state) {
    (void)state;
    const rn_error_class *row;
    for (size_t r = 0; (row = rn_error_class_at(r)); r++) {
        bool seen = false;
        for (size_t i = 0; i < SAMPLES && !seen; i++)
            seen = strcmp(samples[i].class, row->name) == 0;
        if (!seen) fail_msg("no text for %s", row->name);
    }
}

static void rows_have_a_name_of_their_own_and_something_to_say(void **state) {
    (void)state;
    const rn_error_class *row, *other;
    for (size_t r = 0; (row = rn_error_class_at(r)); r++) {
        assert_true(strspn(row->name, "abcdefghijklmnopqrstuvwxyz_") == strlen(row->name));
        assert_true(strlen(row->meaning) > 8 && strlen(row->hint) > 8);
        assert_true(strlen(row->hint) < sizeof((rn_error_info){0}.hint));
        for (size_t o = 0; o < r && (other = rn_error_class_at(o)); o++)
            assert_string_not_equal(row->name, other->name);
    }
}

// The message of a model is no message of a device.
static void numbers_count_only_where_neuron_speaks(void **state) {
    (void)state;
    rn_error_info story = story_of(&(sample){"", RN_DEVICE, "the other side answered status=4"});
    assert_string_equal("device_failed", rn_error_classify(&story)->name);
    story = story_of(&(sample){"", RN_DEVICE, "nrt_execute status=40"});
    assert_string_equal("device_failed", rn_error_classify(&story)->name);
    story = story_of(&(sample){"", RN_DEVICE, "nrt_execute status=99999999999999999999"});
    assert_string_equal("device_failed", rn_error_classify(&story)->name);
}

static void message_of_any_length_is_read_to_its_end_only(void **state) {
    (void)state;
    rn_error_info story = {.status = RN_DEVICE};
    memset(story.message, 's', sizeof story.message); // not even terminated
    assert_string_equal("device_failed", rn_error_classify(&story)->name);
    story.message[0] = '\0';
    assert_string_equal("device_failed", rn_error_classify(&story)->name);
}

static void own_hint_of_a_story_comes_first(void **state) {
    (void)state;
    (void)rn_fail(RN_OVER_BUDGET, "no room");
    assert_non_null(strstr(rn_error_hint(rn_last_error()), "--budget"));
    (void)rn_hint(RN_OVER_BUDGET, "the smallest budget that works is 3 MiB");
    assert_string_equal("the smallest budget that works is 3 MiB", rn_error_hint(rn_last_error()));
}

static void full_core_is_read_from_the_text(void **state) {
    (void)state;
    rn_device_full full;
    (void)rn_fail(RN_IO, "before");
    assert_true(rn_device_full_read(rn_str_from(samples[3].message), &full));
    assert_int_equal((uint64_t)64 << 20, full.bytes);
    assert_string_equal("tensors", full.usage);
    assert_int_equal(0, full.device);
    assert_int_equal(0, full.core);
    assert_true(rn_device_full_read(rn_str_from(samples[4].message), &full));
    assert_int_equal(1536, full.bytes);
    assert_string_equal("dma rings io", full.usage);
    assert_int_equal(3, full.device);
    assert_int_equal(1, full.core);
    static const char *const others[] = {"",
                                         "Failed to allocate",
                                         "Failed to allocate many (usage: x) on ND 0:NC 0",
                                         "Failed to allocate 1MB on ND 0:NC 0",
                                         "Failed to allocate 1MB (usage: tensors",
                                         "Failed to allocate 1MB (usage: tensors) on ND :NC 0",
                                         "Failed to allocate 1MB (usage: tensors) on ND 0"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(rn_device_full_read(rn_str_from(others[i]), &full));
    assert_string_equal("before", rn_last_error()->message);
}

static void json_has_class_meaning_message_and_hint(void **state) {
    (void)state;
    char text[256];
    rn_buffer out;
    rn_json json;
    rn_error_info story = story_of(&samples[3]);
    rn_buffer_init(&out, &rn_system_allocator, 4096);
    rn_json_begin(&json, rn_buffer_sink(&out), false);
    rn_json_object(&json, NULL);
    rn_error_json(&story, &json);
    rn_json_end(&json);
    assert_ok(rn_json_finish(&json));
    assert_true(test_json_valid(out.data, out.bytes));
    assert_true(test_json_get(out.data, out.bytes, "class", text, sizeof text));
    assert_string_equal("device_memory_full", text);
    assert_true(test_json_get(out.data, out.bytes, "meaning", text, sizeof text));
    assert_true(test_json_get(out.data, out.bytes, "message", text, sizeof text));
    assert_string_equal(story.message, text);
    assert_true(test_json_get(out.data, out.bytes, "hint", text, sizeof text));
    assert_int_equal((uint64_t)64 << 20, test_json_u64(out.data, out.bytes, "device_full/bytes"));
    assert_int_equal(0, test_json_u64(out.data, out.bytes, "device_full/core"));
    rn_buffer_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_text_is_known),
        cmocka_unit_test(every_row_has_a_text_here),
        cmocka_unit_test(rows_have_a_name_of_their_own_and_something_to_say),
        cmocka_unit_test(numbers_count_only_where_neuron_speaks),
        cmocka_unit_test(message_of_any_length_is_read_to_its_end_only),
        cmocka_unit_test(own_hint_of_a_story_comes_first),
        cmocka_unit_test(full_core_is_read_from_the_text),
        cmocka_unit_test(json_has_class_meaning_message_and_hint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
