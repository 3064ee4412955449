// request.h — what a client asks for, read from JSON and checked.
//
// Every field that is understood is honoured; one that is known but cannot be honoured is refused
// by name unless it has the value that changes nothing ("best_of": 1, "tools": []); one that nobody
// knows is passed over, and its name kept.
#ifndef RN_SERVER_REQUEST_H
#define RN_SERVER_REQUEST_H

#include "base/arena.h"
#include "base/buffer.h"
#include "server/problem.h"

#include <ration/chat.h>
#include <ration/diffuse.h>
#include <ration/model.h>
#include <ration/sampler.h>

#define RN_REQUEST_STOPS   16
#define RN_REQUEST_PROMPTS 32
#define RN_REQUEST_BIASES  300
#define RN_REQUEST_INPUTS  2048 // texts to embed

typedef enum rn_request_kind {
    RN_REQUEST_GENERATE,   // POST /generate: the seed's
    RN_REQUEST_COMPLETION, // POST /v1/completions
    RN_REQUEST_CHAT,       // POST /v1/chat/completions
    RN_REQUEST_EMBED,      // POST /v1/embeddings
    RN_REQUEST_IMAGE,      // POST /v1/images/generations
    // Read as one of those above, with another dialect:
    RN_REQUEST_OLLAMA_CHAT,       // POST /api/chat
    RN_REQUEST_OLLAMA_GENERATE,   // POST /api/generate
    RN_REQUEST_OLLAMA_EMBED,      // POST /api/embed
    RN_REQUEST_OLLAMA_EMBEDDINGS, // POST /api/embeddings: one text
    RN_REQUEST_RERANK,            // POST /v1/rerank: texts to embed, with a query
    RN_REQUEST_RESPONSE           // POST /v1/responses: a chat
} rn_request_kind;

// Text, or tokens where ids is not NULL.
typedef struct rn_request_prompt {
    rn_str text; // UTF-8
    const uint32_t *ids;
    size_t id_count;
} rn_request_prompt;

// How the answer is written.
typedef enum rn_request_dialect {
    RN_DIALECT_OPENAI,
    RN_DIALECT_OLLAMA_CHAT,
    RN_DIALECT_OLLAMA_GENERATE,
    RN_DIALECT_OLLAMA_EMBED,
    RN_DIALECT_OLLAMA_EMBEDDINGS,
    RN_DIALECT_RERANK,
    RN_DIALECT_RESPONSES
} rn_request_dialect;

typedef enum rn_tool_choice {
    RN_TOOL_CHOICE_AUTO, // as the model likes
    RN_TOOL_CHOICE_NONE,
    RN_TOOL_CHOICE_REQUIRED
} rn_tool_choice;

// What is to be drawn; texts end with a zero. 0: as the model likes.
typedef struct rn_request_image {
    const char *prompt, *negative; // negative may be NULL
    uint32_t width, height, steps;
    double guidance;
    rn_scheduler scheduler;
    bool url; // pictures as data: URLs
} rn_request_image;

typedef struct rn_request {
    rn_request_kind kind;
    rn_request_dialect dialect;
    rn_str model;               // as asked; {0}: not given
    uint32_t adapter;           // that the name stands for, as rn_sequence_set_adapter
    char unknown[61];           // the first field that nobody knows, "": none
    rn_request_prompt *prompts; // (prompt_count); a chat has one place for what its template makes
    size_t prompt_count;
    rn_chat_message *messages; // (message_count), of a chat
    size_t message_count;
    uint32_t n;           // choices of each prompt
    uint32_t max_tokens;  // 0: not given
    rn_sampling sampling; // defaults of the kind filled in; bias points to `memory`; logprobs: tops
    bool has_seed;        // else the server draws one
    bool logprobs;        // wanted at all; sampling.logprobs says how many besides
    bool stream, stream_usage;
    bool echo;    // completions: the prompt's text in front
    rn_str tools; // of a chat: what may be called, as it was written; {0}: nothing
    rn_tool_choice tool_choice;
    rn_str tool_name; // REQUIRED: which; {0}: any
    bool json;        // the answer must be JSON ...
    rn_str schema;    // ... by this schema; {0}: any object
    rn_str stops[RN_REQUEST_STOPS];
    size_t stop_count;
    uint32_t dimensions;                // of embeddings: the first so many; 0: all
    bool base64;                        // ... as little-endian f32 in base64
    bool truncates;                     // ... of texts that are too long, the beginning
    rn_str query;                       // of RN_DIALECT_RERANK, whose prompts are the documents
    uint32_t top_n;                     // ... the best so many are told; 0: all
    bool returns_documents, raw_scores; // ... with their texts; as the model says it
    rn_str instructions;                // of a response, which says them again
    rn_str asked_tools;                 // ... and its tools, as they were written
    bool keeps_pieces;                  // of a stream: they are read again at its end
    rn_request_image image;             // of RN_REQUEST_IMAGE
    rn_arena memory;                    // all that is pointed to
} rn_request;

typedef struct rn_request_limits {
    uint32_t vocab_size;
    uint32_t choices;                 // prompts times n, at most: sequences of the plan
    rn_str model;                     // the name served
    const rn_model *adapters;         // whose adapters' names are names of models, too; NULL: none
    const rn_sampling_advice *advice; // for what a client does not say; NULL: none
    uint32_t dimensions;              // of an embedding
    bool has_chat;                    // there is a template for conversations
    uint32_t image_multiple;          // of which sides of pictures must be
    bool strict_model; // a name of another model is 404 "model_not_found"; else it is the model
                       // served
} rn_request_limits;

// A request for embeddings or scores, whoever's API it is of.
static inline bool rn_request_embeds(rn_request_kind kind) {
    return kind == RN_REQUEST_EMBED || kind == RN_REQUEST_OLLAMA_EMBED ||
           kind == RN_REQUEST_OLLAMA_EMBEDDINGS || kind == RN_REQUEST_RERANK;
}

// False: *out_problem (400, 404; 503: no memory), and *out is freed. `body` need not outlive the
// call; what *out takes is at most 2 * body.bytes + RN_REQUEST_FIXED_BYTES and what its kind needs
// besides (for embeddings a list of texts, for responses calls that are written anew), and reading
// it takes nothing beside.
#define RN_REQUEST_FIXED_BYTES (16u << 10)
#define RN_REQUEST_INPUT_BYTES (RN_REQUEST_INPUTS * sizeof(rn_request_prompt) + 4096)
static inline uint64_t rn_request_extra_bytes(rn_request_kind kind) {
    return rn_request_embeds(kind) || kind == RN_REQUEST_RESPONSE ? RN_REQUEST_INPUT_BYTES : 0;
}
// What a request takes of the request memory before it may begin: its body, what is read from it,
// its tokens.
static inline uint64_t rn_request_memory_bytes(uint64_t body_bytes) {
    return 3 * body_bytes + RN_REQUEST_FIXED_BYTES;
}
bool rn_request_read(rn_request_kind kind, rn_str body, const rn_request_limits *limits,
                     rn_request *out, rn_problem *out_problem);
void rn_request_free(rn_request *request);
// The value of "model", where the body is JSON so far and has one of fewer bytes; Ollama's tag
// ":latest" is left out. Takes memory for a while, no more than the body has.
bool rn_request_find_model(rn_str body, char *out, size_t bytes);
// Whether a name that is not `served` itself means it all the same, whatever its case: without what
// is behind ':' or with ":latest", without "-instruct", "-it" or "-chat", behind "organisation/".
bool rn_model_name_answers(rn_str served, rn_str wanted);

// The schema of a call of one of the tools (of `name`, where it is given), or of a list of calls,
// appended to *out; `arguments` is what the model calls them. RN_INVALID: there is none of that
// name.
RN_MUST_USE rn_status rn_request_tool_schema(rn_str tools, rn_str name, const char *arguments,
                                             bool list, rn_buffer *out);

#endif
