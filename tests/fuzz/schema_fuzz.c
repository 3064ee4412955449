// schema_fuzz.c — any text as a JSON schema, and bytes walked through it: refused with a reason, or
// every text that may end is JSON.
#include "base/alloc.h"
#include "io/json_read.h"
#include "text/constraint/json_machine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) __builtin_trap();
}

static void check_json(rn_str text) {
    rn_json_reader reader;
    rn_json_item item;
    rn_json_reader_init(&reader, text, &rn_system_allocator);
    do
        require(rn_json_next(&reader, &item) == RN_OK);
    while (item.kind != RN_JSON_END);
    rn_json_reader_free(&reader);
}

// The bytes choose among those that are allowed.
static void walk(const rn_json_rules *rules, const uint8_t *choices, size_t count) {
    static rn_json_machine machine;
    rn_json_state state, next;
    char text[256];
    size_t bytes = 0;
    rn_json_machine_begin(&machine, rules, &state);
    for (size_t i = 0; i < count && bytes < sizeof text; i++) {
        uint8_t byte = choices[i];
        int tries = 0;
        while (tries < 256 && !rn_json_machine_step(&machine, &state, byte, &next)) {
            byte++;
            tries++;
        }
        if (tries == 256) { // only a whole value goes on with nothing
            require(rn_json_machine_may_end(&machine, &state));
            break;
        }
        state = next;
        rn_json_machine_tidy(&machine, &state);
        text[bytes++] = (char)byte;
        if (rn_json_machine_may_end(&machine, &state)) check_json((rn_str){text, bytes});
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rn_json_rules rules;
    size_t cut = size;
    for (size_t i = 0; i < size; i++)
        if (data[i] == 0) {
            cut = i;
            break;
        }
    rn_status s = rn_json_rules_compile((rn_str){(const char *)data, cut}, &rules);
    if (s == RN_OK) {
        walk(&rules, data, size);
        if (cut < size) walk(&rules, data + cut, size - cut);
        rn_json_rules_free(&rules);
    } else {
        require(s == RN_INVALID || s == RN_UNSUPPORTED || s == RN_NO_MEMORY);
        require(rn_last_error()->message[0] != 0);
    }
    return 0;
}
