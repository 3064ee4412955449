// tool_calls.h — calls of tools in what a model says, read back from its text.
//
// How a call is written depends on the model; its chat template tells which way:
//
//     HERMES   <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>     Qwen, Hermes;
//              or the object alone as the whole answer, also between ``` fences: small models
//     LLAMA    {"name": "f", "parameters": {...}}      the whole answer         Llama 3.1
//     MISTRAL  [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...]             Mistral, Ministral
//
// Text goes through as it comes, but for what is, or may become, a call: that is held until it is
// complete. What then is not a call after all (no JSON, no name) is text like any other.
#ifndef RN_TEXT_TOOL_CALLS_H
#define RN_TEXT_TOOL_CALLS_H

#include "base/buffer.h"

#include <ration/text.h>

typedef enum rn_tool_form {
    RN_TOOLS_NONE, // the template knows no tools
    RN_TOOLS_HERMES,
    RN_TOOLS_LLAMA,
    RN_TOOLS_MISTRAL
} rn_tool_form;
rn_tool_form rn_tool_form_of(rn_str chat_template);

enum { RN_TOOL_CALLS = 64, RN_TOOL_HELD_BYTES = 32 << 10 }; // of one answer; of text that is held

// Where it goes, in order.
typedef struct rn_tool_sink {
    void *self;
    rn_status (*put_text)(void *self, rn_str text);
    // arguments: JSON, an object.
    rn_status (*put_call)(void *self, rn_str name, rn_str arguments);
} rn_tool_sink;

typedef struct rn_tool_reader {
    rn_tool_form form;
    bool inside;  // of a call; else what is held may be the beginning of one
    bool decided; // LLAMA, MISTRAL: whether the answer is one; HERMES: whether it is a bare one
    bool bare;    // HERMES: the whole answer seems to be a call without its marks
    uint32_t calls;
    rn_buffer held; // up to RN_TOOL_HELD_BYTES, taken at once
} rn_tool_reader;

// `inside`: the prompt has begun a call already.
RN_MUST_USE rn_status rn_tool_reader_init(rn_tool_reader *reader, rn_tool_form form, bool inside);
void rn_tool_reader_free(rn_tool_reader *reader);
RN_MUST_USE rn_status rn_tool_reader_put(rn_tool_reader *reader, rn_str text, rn_tool_sink sink);
// The answer has ended.
RN_MUST_USE rn_status rn_tool_reader_end(rn_tool_reader *reader, rn_tool_sink sink);

#endif
