// tokenizer_parts.h — a tokenizer from the inside, for its loaders.
//
//     text ─▶ added tokens ─▶ normalizer ─▶ cutter ─▶ BPE ─▶ ids      tokenizer.json, GGUF,
//     tiktoken text ─▶ added tokens ─────────────────────────▶ spm ─▶ ids      SentencePiece
//
// A loader fills the parts in any order it likes and ends with rn_tokenizer_finish.
#ifndef RN_TEXT_TOKENIZER_PARTS_H
#define RN_TEXT_TOKENIZER_PARTS_H

#include "base/arena.h"
#include "io/json_read.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/cutter.h"
#include "text/normalizer.h"
#include "text/spm.h"
#include "text/wordpiece.h"

#define RN_AROUND_MOST 8
// Unicode's punctuation, and all of ASCII that is neither letter, digit nor blank.
#define RN_EXPRESSION_PUNCTUATION "[\\p{P}!-/:-@\\[-`{-~]"
#define RN_BLANK                  "\xE2\x96\x81" // U+2581, which stands for ' '

struct rn_tokenizer {
    const rn_allocator *from;
    rn_arena arena; // texts that the parts borrow
    rn_tokenizer_info info;
    rn_vocab vocab;
    rn_added added;            // found in the text as it is
    rn_added added_normalized; // found behind the normalizer
    rn_normalizer normalizer;
    rn_cutter cutter;
    rn_bpe bpe;
    rn_spm *spm;            // or NULL: wordpiece or bpe
    rn_wordpiece wordpiece; // where it has a vocabulary; else bpe it is
    rn_prefix spm_prefix;   // which stretches of text get SentencePiece's blank in front
    // What RN_ENCODE_BEGIN puts around a text.
    uint32_t before[RN_AROUND_MOST], after[RN_AROUND_MOST];
    size_t before_count, after_count;
    uint32_t between[RN_AROUND_MOST]; // two texts
    size_t between_count;
    bool show_blank;    // U+2581 is decoded as a blank
    bool show_bytes;    // <0x0A> is decoded as a byte
    bool strip_first;   // decoding drops the blank that a text begins with
    bool strip_last;    // ... and the one at its end
    rn_str show_suffix; // is decoded as a blank ("</w>"); borrowed
};

RN_MUST_USE rn_status rn_tokenizer_create(rn_tokenizer **out);
// A token of the vocabulary as its file spells it: in letters where bpe.by_bytes.
RN_MUST_USE rn_status rn_tokenizer_put(rn_tokenizer *tokenizer, uint64_t id, rn_str spelling);
// The tokens of {"text": id, ...}.
RN_MUST_USE rn_status rn_tokenizer_read_vocab(rn_tokenizer *tokenizer, rn_json_reader *reader);
// A merge as its file spells it, once the vocabulary is sealed. RN_CORRUPT: it names something that
// the vocabulary has not.
RN_MUST_USE rn_status rn_tokenizer_merge(rn_tokenizer *tokenizer, rn_str left, rn_str right,
                                         uint32_t rank);
// The same from "left right".
RN_MUST_USE rn_status rn_tokenizer_merge_line(rn_tokenizer *tokenizer, rn_str line, uint32_t rank);
// Adds a token that is found in the text, once the vocabulary is there; what it has not is added to
// it. RN_CORRUPT: the id has another text, the text another id. Added again, nothing changes.
// `content` is copied.
RN_MUST_USE rn_status rn_tokenizer_add_token(rn_tokenizer *tokenizer, rn_added_token token);
// Everything is there: bytes to show, ends, what is put around a text.
RN_MUST_USE rn_status rn_tokenizer_finish(rn_tokenizer *tokenizer);
// Fills the vocabulary from tokenizer->spm.
RN_MUST_USE rn_status rn_tokenizer_take_spm(rn_tokenizer *tokenizer);
// Adds the id to `before` or `after` (rn_tokenizer::before_count ...). RN_UNSUPPORTED: too many.
RN_MUST_USE rn_status rn_tokenizer_put_around(uint32_t *ids, size_t *count, uint32_t id);
// A step that splits at an expression, isolating what it matches.
RN_MUST_USE rn_status rn_tokenizer_split(rn_tokenizer *tokenizer, rn_str expression);

// What BERT's normalizer does, in this order.
typedef struct rn_bert_steps {
    bool clean;         // no control characters, every white space a blank
    bool split_chinese; // Chinese characters are words of their own
    bool strip_accents;
    bool lowercase;
} rn_bert_steps;
enum { RN_BERT_WORD_CHARACTERS = 100 }; // a longer word is unknown, where a file does not say
RN_MUST_USE rn_status rn_tokenizer_normalize_bert(rn_tokenizer *tokenizer, rn_bert_steps steps);
// Cuts at white space and around each punctuation mark.
RN_MUST_USE rn_status rn_tokenizer_cut_bert(rn_tokenizer *tokenizer);
// WordPiece, with the spelling of tokens that begin a word and of those that go on (borrowed).
void rn_tokenizer_be_wordpiece(rn_tokenizer *tokenizer, rn_str begin, rn_str next);

// rn_tokenizer_encode with RN_ENCODE_SPECIAL, but for special tokens of which a byte is tainted
// (taint.h): they are spelled out. The text is judged as it is where it is looked through, which
// for tokens that are `normalized` is behind the normaliser.
RN_MUST_USE rn_status rn_tokenizer_encode_tainted(const rn_tokenizer *tokenizer, rn_str text,
                                                  rn_taint taint, rn_tokens *out);

// ---- loaders: each leaves a tokenizer without rn_tokenizer_finish, so that what stands beside the
// file (tokenizer_config.json) can still be heeded ----------------------------------------

RN_MUST_USE rn_status rn_load_tokenizer_json(rn_tokenizer *tokenizer, rn_str json);
RN_MUST_USE rn_status rn_load_sentencepiece(rn_tokenizer *tokenizer, rn_str file);
// `is_model`: it is called something.model, as Llama 3's is. *out_ranks: how many there are.
RN_MUST_USE rn_status rn_load_tiktoken(rn_tokenizer *tokenizer, rn_str file, bool is_model,
                                       size_t *out_ranks);
// Behind what tokenizer_config.json says: the special tokens that files of so many ranks go with.
RN_MUST_USE rn_status rn_add_tiktoken_specials(rn_tokenizer *tokenizer, size_t ranks);
// Whether a file's beginning looks like "IQ== 0\n".
bool rn_is_tiktoken(rn_str file);
// vocab.json, then merges.txt. `class_name`: of tokenizer_config.json, or empty.
RN_MUST_USE rn_status rn_load_vocab(rn_tokenizer *tokenizer, rn_str vocab);
RN_MUST_USE rn_status rn_load_merges(rn_tokenizer *tokenizer, rn_str merges, rn_str class_name);
RN_MUST_USE rn_status rn_load_gguf_vocab(rn_tokenizer *tokenizer, const rn_checkpoint *checkpoint);

// What tokenizer_config.json and special_tokens_map.json say.
typedef struct rn_tokenizer_settings {
    rn_str class_name;
    rn_str begin, end, unknown, pad; // in the tokenizer's arena; empty: not said
    int add_begin, add_end;          // -1: not said
    int legacy;                      // -1: not said
    // BERT's:
    rn_str classify, separate;
    int lowercase, strip_accents, split_chinese; // -1: not said
} rn_tokenizer_settings;
#define RN_TOKENIZER_SETTINGS_UNSAID                                                               \
    {                                                                                              \
        .add_begin = -1, .add_end = -1, .legacy = -1, .lowercase = -1, .strip_accents = -1,        \
        .split_chinese = -1                                                                        \
    }
// vocab.txt of BERT and its relatives.
RN_MUST_USE rn_status rn_load_vocab_txt(rn_tokenizer *tokenizer, rn_str text,
                                        const rn_tokenizer_settings *settings);
// Later calls override earlier ones. `with_tokens`: added tokens go to the tokenizer, whose
// vocabulary is there.
RN_MUST_USE rn_status rn_read_tokenizer_settings(rn_tokenizer *tokenizer, rn_str json,
                                                 bool with_tokens, rn_tokenizer_settings *settings);
RN_MUST_USE rn_status rn_apply_tokenizer_settings(rn_tokenizer *tokenizer,
                                                  const rn_tokenizer_settings *settings);

#endif
