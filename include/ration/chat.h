// chat.h — conversations as the text that a model was trained on.
//
//     rn_chat_template *template;
//     RN_TRY(rn_chat_template_parse("model", source, &template));
//     RN_TRY(rn_chat_encode(template, tokenizer, &chat, &tokens));
//
// Messages are not trusted. What they say stays text: rn_chat_encode follows every byte of theirs
// through the template and the tokenizer's normaliser, and a special token is one only where the
// template wrote all of it. That holds for texts that spell one ("<|im_end|>"), for those that do
// so once the template has deleted something from them, or the normaliser has rewritten them, and
// for halves that a neighbour completes. Rendering to text and encoding that with RN_ENCODE_SPECIAL
// has no such protection: afterwards nobody can tell who wrote what.
//
// A template is a program in a small part of Jinja, from a file that is not trusted: it can reach
// nothing but the conversation, and its steps, its depth and its output are limited. It is rendered
// as transformers' apply_chat_template renders it (trim_blocks, lstrip_blocks, loop controls,
// tojson, raise_exception, namespace). What is not known is refused by name (RN_UNSUPPORTED with
// line and column), never rendered wrongly.
#ifndef RATION_CHAT_H
#define RATION_CHAT_H

#include <ration/tokenizer.h>

RN_BEGIN_DECLS

typedef struct rn_chat_template rn_chat_template;

// What a message has beside its content, as OpenAI's API writes it: JSON, in UTF-8.
typedef struct rn_chat_tool_use {
    rn_str calls;   // of an assistant: [{"id", "type", "function": {"name", "arguments"}}, ...]
    rn_str call_id; // of a tool: whose result this is; no JSON
} rn_chat_tool_use;

// UTF-8; anything else is RN_INVALID.
typedef struct rn_chat_message {
    // "system", "user", "assistant", "tool", "developer", "function": templates make special tokens
    // of them ("<|user|>"). Of another role they cannot: it is text like the content.
    rn_str role;
    rn_str content;
    const rn_chat_tool_use *tools; // or NULL
} rn_chat_message;

typedef struct rn_chat {
    const rn_chat_message *messages; // (count)
    size_t count;
    bool add_generation_prompt; // end with the beginning of an answer
    // As the tokenizer spells them. Without data (not even ""): undefined in the template, as
    // where a tokenizer has no such token. rn_chat_encode asks its tokenizer instead.
    rn_str bos_token, eos_token;
    // Seconds since 1970, for strftime_now; read as UTC, so add the zone's offset for local time.
    // 0: strftime_now is undefined, and templates that ask first take their default date.
    int64_t now;
    size_t most_bytes; // of memory while rendering, beside the text's own; 0: the library's limits
    rn_str tools;      // JSON, a list: what the model may call; {0}: nothing
} rn_chat;

// `name` is for messages. RN_CORRUPT: what Jinja does not take either; RN_UNSUPPORTED: what is not
// known here. Both say line and column.
RN_API RN_MUST_USE rn_status rn_chat_template_parse(const char *name, rn_str source,
                                                    rn_chat_template **out);
RN_API void rn_chat_template_free(rn_chat_template *chat_template);
// Writes all of the text at once, or nothing. RN_INVALID: what the template itself raises (roles
// must alternate, ...; its words are the error's message), what fails in Jinja as well (an
// operation on something undefined), or a limit. Any number of threads may render one template.
RN_API RN_MUST_USE rn_status rn_chat_template_render(const rn_chat_template *chat_template,
                                                     const rn_chat *chat, rn_sink sink);
// Appends the tokens of the conversation: what encoding its rendering with RN_ENCODE_SPECIAL gives,
// but that text of messages is never a special token. RN_INVALID: also an empty text.
RN_API RN_MUST_USE rn_status rn_chat_encode(const rn_chat_template *chat_template,
                                            const rn_tokenizer *tokenizer, const rn_chat *chat,
                                            rn_tokens *out);

RN_END_DECLS

#endif
