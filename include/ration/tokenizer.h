// tokenizer.h — text to token ids and back.
//
//     rn_tokenizer *tokenizer;
//     RN_TRY(rn_tokenizer_open("models/llama-1b", &tokenizer));
//     rn_tokens tokens = {0};
//     RN_TRY(rn_tokenizer_encode(tokenizer, text, RN_ENCODE_BEGIN, &tokens));
//     ...
//     rn_tokens_free(&tokens);
//     rn_tokenizer_close(tokenizer);
//
// Reads SentencePiece models (BPE, unigram), tokenizer.json, tiktoken files, vocab.json with
// merges.txt, BERT's vocab.txt, and the vocabularies of GGUF files. Files are not trusted:
// RN_CORRUPT names the file and the rule that was broken, RN_UNSUPPORTED the part that is not
// known. An open tokenizer does not change and may be used from several threads.
#ifndef RATION_TOKENIZER_H
#define RATION_TOKENIZER_H

#include <ration/checkpoint.h>

RN_BEGIN_DECLS

typedef struct rn_tokenizer rn_tokenizer;

#define RN_NO_TOKEN UINT32_MAX

// A growing list; {0} is empty. Freed by rn_tokens_free.
typedef struct rn_tokens {
    uint32_t *ids; // (count)
    size_t count, capacity;
} rn_tokens;
RN_API RN_MUST_USE rn_status rn_tokens_push(rn_tokens *tokens, uint32_t id);
RN_API void rn_tokens_free(rn_tokens *tokens);

// `path`: a tokenizer's file, or a folder that holds one (tokenizer.json is preferred, then
// tokenizer.model, then vocab.json with merges.txt, then vocab.txt); tokenizer_config.json beside
// it is heeded.
RN_API RN_MUST_USE rn_status rn_tokenizer_open(const char *path, rn_tokenizer **out);
// From the metadata of an open GGUF file. RN_NOT_FOUND: it has no vocabulary.
RN_API RN_MUST_USE rn_status rn_tokenizer_from_gguf(const rn_checkpoint *checkpoint,
                                                    rn_tokenizer **out);
// From the bytes of a tokenizer.json; `name` is for messages.
RN_API RN_MUST_USE rn_status rn_tokenizer_from_json(const char *name, rn_str json,
                                                    rn_tokenizer **out);
RN_API void rn_tokenizer_close(rn_tokenizer *tokenizer);

typedef enum rn_encode_flags {
    RN_ENCODE_PLAIN = 0,
    RN_ENCODE_BEGIN = 1,   // what the tokenizer puts around a text: begin (and end) tokens
    RN_ENCODE_SPECIAL = 2, // special tokens that stand in the text ("<|eot_id|>") are themselves;
                           // without it they are spelled out, which is right for untrusted text
    RN_ENCODE_FIRST = 4,   // the first of two texts: what stands before a text and between two
    RN_ENCODE_SECOND = 8   // the second, appended to the first: what stands behind a text
} rn_encode_flags;

// Appends. Bytes that are not UTF-8 are encoded as the tokenizer can (byte tokens, or unknown).
RN_API RN_MUST_USE rn_status rn_tokenizer_encode(const rn_tokenizer *tokenizer, rn_str text,
                                                 uint32_t flags, rn_tokens *out);

typedef struct rn_tokenizer_info {
    const char *kind; // "byte-level BPE", "SentencePiece BPE", "SentencePiece unigram",
                      // "WordPiece"
    uint32_t vocab_size;
    uint32_t begin, end, unknown, pad; // or RN_NO_TOKEN
    bool adds_begin, adds_end;         // RN_ENCODE_BEGIN puts them there
    bool joins_pairs; // it says what stands between two texts: RN_ENCODE_FIRST, RN_ENCODE_SECOND
} rn_tokenizer_info;
RN_API const rn_tokenizer_info *rn_tokenizer_get_info(const rn_tokenizer *tokenizer);

// The id whose text (as the vocabulary spells it) this is, or RN_NO_TOKEN.
RN_API uint32_t rn_tokenizer_find(const rn_tokenizer *tokenizer, rn_str text);
// The bytes that a token adds to a text that stands before it; special tokens have none unless
// `special`. Empty for ids that do not exist.
RN_API rn_str rn_tokenizer_bytes(const rn_tokenizer *tokenizer, uint32_t id, bool special);
RN_API bool rn_tokenizer_is_special(const rn_tokenizer *tokenizer, uint32_t id);
// Whether generation ends here: the end token, and what models use for the end of a turn
// ("<|eot_id|>", "<|im_end|>", "<|end|>", ...).
RN_API bool rn_tokenizer_is_end(const rn_tokenizer *tokenizer, uint32_t id);

// ---- decoding -----------------------------------------------------------------------------------

// Tokens come one by one; whole UTF-8 sequences go out. Bytes that can never become valid are
// U+FFFD. The first token of a text loses the blank that SentencePiece puts in front.
typedef struct rn_decoder {
    const rn_tokenizer *tokenizer;
    bool special; // special tokens are written, too
    bool started;
    uint8_t held_count;
    char held[8]; // the beginning of a sequence
} rn_decoder;
RN_API void rn_decoder_begin(rn_decoder *decoder, const rn_tokenizer *tokenizer, bool special);
RN_API RN_MUST_USE rn_status rn_decoder_put(rn_decoder *decoder, uint32_t id, rn_sink sink);
RN_API RN_MUST_USE rn_status rn_decoder_end(rn_decoder *decoder, rn_sink sink);

RN_END_DECLS

#endif
