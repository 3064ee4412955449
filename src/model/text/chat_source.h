// chat_source.h — where a model's folder keeps the text of its chat template.
#ifndef RN_MODEL_CHAT_SOURCE_H
#define RN_MODEL_CHAT_SOURCE_H

#include "base/buffer.h"

// Appends chat_template.jinja, or else "chat_template" of tokenizer_config.json: a text, or the one
// called "default" of a list. Nothing where the folder has neither.
RN_MUST_USE rn_status rn_chat_source_read(const char *folder, rn_buffer *out);

#endif
