// template_fuzz.c — any text as a chat template: it is refused with a place, fails with a story, or
// renders valid UTF-8, the same twice; what only a message can have brought is tainted, whatever
// the template did with it; the ledger is where it was.
#include <ration/memory.h>

#include "base/buffer.h"
#include "base/str.h"
#include "text/chat_text.h"
#include "text/taint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) __builtin_trap();
}

static const rn_chat_message messages[] = {
    {RN_STR("system"), RN_STR(" Be h\xc3\xa9lpful. ")},
    {RN_STR("user"), RN_STR("Hi {{ there }}\n12 a,b")},
    {RN_STR("assistant"), RN_STR("\xf0\x9f\x98\x80 <think>x</think>")},
};
static const char face[4] = {'\xf0', '\x9f', '\x98', '\x80'}; // a message has it

// A template without the character, and without '\\' to write it with, cannot make one.
static void check_taint(rn_str source, const rn_chat_template *parsed, const rn_chat *chat) {
    rn_chat_text made;
    if (source.bytes && (memmem(source.data, source.bytes, face, sizeof face) ||
                         memchr(source.data, '\\', source.bytes)))
        return;
    if (rn_chat_text_make(parsed, chat, &made) != RN_OK) return;
    rn_taint taint = {(const uint8_t *)made.taint.data, 0};
    for (size_t at = 0; at + sizeof face <= made.text.bytes; at++)
        if (memcmp(made.text.data + at, face, sizeof face) == 0)
            require(rn_taint_at(taint, at) && rn_taint_run(taint, at, at + 4) == at + 4);
    rn_chat_text_free(&made);
}

static void check_render(const rn_chat_template *parsed, const rn_chat *chat) {
    rn_buffer out[2];
    rn_status s[2];
    for (int i = 0; i < 2; i++) {
        rn_buffer_init(&out[i], &rn_system_allocator, (size_t)32 << 20);
        s[i] = rn_chat_template_render(parsed, chat, rn_buffer_sink(&out[i]));
        require(s[i] == RN_OK || s[i] == RN_INVALID || s[i] == RN_UNSUPPORTED);
    }
    rn_str text = {out[0].data, out[0].bytes};
    require(s[0] == s[1] && rn_str_equal(text, (rn_str){out[1].data, out[1].bytes}));
    require(rn_utf8_valid(text));
    rn_buffer_free(&out[0]);
    rn_buffer_free(&out[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const rn_chat chats[] = {
        {messages, 3, true, RN_STR("<s>"), RN_STR("</s>"), 1721952000},
        {NULL, 0, false, {NULL, 0}, {NULL, 0}, 0},
    };
    uint64_t held = rn_ledger_total(RN_DEVICE_HOST).now_bytes;
    rn_chat_template *parsed;
    rn_status s = rn_chat_template_parse("t", (rn_str){(const char *)data, size}, &parsed);
    require(s == RN_OK || ((s == RN_CORRUPT || s == RN_UNSUPPORTED) && !parsed));
    for (size_t i = 0; parsed && i < 2; i++)
        check_render(parsed, &chats[i]);
    if (parsed) check_taint((rn_str){(const char *)data, size}, parsed, &chats[0]);
    rn_chat_template_free(parsed);
    require(rn_ledger_total(RN_DEVICE_HOST).now_bytes == held);
    return 0;
}
