// constraint.h — texts that must be JSON, or JSON by a schema: every token that could not go on
// such a text is forbidden when the next one is drawn.
//
//     rn_vocabulary *vocabulary; // once, for all texts of a tokenizer
//     RN_TRY(rn_vocabulary_create(tokenizer, vocab_size, &vocabulary));
//     rn_constraint *json;       // one for each text
//     RN_TRY(rn_constraint_create(vocabulary, schema, &json));
//     rn_sampling sampling = {.constraint = json};
//
// The text is a value of the schema from its first byte on, and may only end where the value does.
// Of JSON Schema are obeyed: type, enum, const, properties, required, additionalProperties, items,
// prefixItems, minItems, maxItems, minLength, maxLength, minimum, maximum and their exclusive
// forms, anyOf, oneOf (as anyOf), allOf of one, and $ref into the schema. What would have to be
// obeyed and is not known (pattern, not, ...) is refused by name. Properties come in the schema's
// order.
#ifndef RATION_CONSTRAINT_H
#define RATION_CONSTRAINT_H

#include <ration/tokenizer.h>

RN_BEGIN_DECLS

// A tokenizer's tokens in order, and masks of them that were needed before. Any number of threads.
typedef struct rn_vocabulary rn_vocabulary;
// Borrows the tokenizer. vocab_size: of the model's logits.
RN_API RN_MUST_USE rn_status rn_vocabulary_create(const rn_tokenizer *tokenizer,
                                                  uint32_t vocab_size, rn_vocabulary **out);
RN_API void rn_vocabulary_destroy(rn_vocabulary *vocabulary);

typedef struct rn_constraint rn_constraint;
// schema: JSON; empty: any JSON object. Borrows the vocabulary. RN_INVALID: it is no schema, or no
// text satisfies it; RN_UNSUPPORTED: a keyword that is not known; both with the place.
RN_API RN_MUST_USE rn_status rn_constraint_create(rn_vocabulary *vocabulary, rn_str schema,
                                                  rn_constraint **out);
RN_API void rn_constraint_destroy(rn_constraint *constraint);
// What rn_constraint_create takes for a schema of so many bytes, at most.
RN_API size_t rn_constraint_bytes(const rn_vocabulary *vocabulary, size_t schema_bytes);
// For another text with the same schema.
RN_API RN_MUST_USE rn_status rn_constraint_clone(const rn_constraint *constraint,
                                                 rn_constraint **out);

// The tokens that may come next, a bit each (word i / 32, bit i % 32), until the next call. NULL:
// none may: the vocabulary cannot write what must come.
RN_API const uint32_t *rn_constraint_mask(rn_constraint *constraint);
// Goes on behind a token. RN_INVALID: it may not come.
RN_API RN_MUST_USE rn_status rn_constraint_advance(rn_constraint *constraint, uint32_t token);
// The text is a whole value: it may end here.
RN_API bool rn_constraint_may_end(const rn_constraint *constraint);

RN_END_DECLS

#endif
