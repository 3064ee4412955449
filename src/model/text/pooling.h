// pooling.h — what a model's files say about embeddings: how rows become one, whether that is
// normed, or whether it is a score.
#ifndef RN_MODEL_TEXT_POOLING_H
#define RN_MODEL_TEXT_POOLING_H

#include <ration/model.h>

#include "base/buffer.h"
#include "model/text/text_config.h"

// As Sentence Transformers writes it beside a folder's config.json: modules.json, the Pooling
// module's config.json, sentence_bert_config.json (max_seq_length). *out stays where there is none
// of them. *out_dense is the width between two products behind pooling ("2_Dense", "3_Dense"); 0:
// there are none. RN_UNSUPPORTED names a module or a kind of pooling that is not built.
RN_MUST_USE rn_status rn_pooling_from_folder(const char *folder, rn_embedding_info *out,
                                             uint32_t *out_dense);
// GGUF's "<architecture>.pooling_type". *out_ranks: it is a reranker's.
RN_MUST_USE rn_status rn_pooling_from_gguf(const rn_fields *fields, const char *architecture,
                                           rn_embedding_info *out, bool *out_ranks);
// Whether config.json is a reranker's: one of an encoder's "...ForSequenceClassification" with one
// label. RN_UNSUPPORTED: another classifier.
RN_MUST_USE rn_status rn_ranking_from_json(const rn_fields *fields, rn_text_config *config);

// The first as files: modules.json, and the Pooling module's config.json, which modules.json says
// is in "1_Pooling". `dense`: with two products behind it.
RN_MUST_USE rn_status rn_pooling_to_json(const rn_embedding_info *info, uint32_t dimensions,
                                         bool dense, rn_buffer *out_modules,
                                         rn_buffer *out_pooling);
// The config.json of such a product.
RN_MUST_USE rn_status rn_dense_to_json(uint32_t in, uint32_t out, rn_buffer *out_config);

#endif
