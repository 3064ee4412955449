// log.h — what the library has to say, to a sink that the program sets. Without one it is silent.
//
//     rn_log_set(rn_sink_file(stderr), RN_LOG_TEXT, RN_LOG_INFO);
//
// Text for people ("12:03:04.123 warning reader: ..."), the same with a symbol in front, or one
// JSON object a line for machines. Lines are whole: concurrent threads never mix within one. The
// sink must outlive its use.
#ifndef RATION_LOG_H
#define RATION_LOG_H

#include <ration/text.h>

RN_BEGIN_DECLS

typedef enum rn_log_level {
    RN_LOG_DEBUG,
    RN_LOG_INFO,
    RN_LOG_WARNING,
    RN_LOG_ERROR,
    RN_LOG_OFF
} rn_log_level;
typedef enum rn_log_form { RN_LOG_TEXT, RN_LOG_JSON, RN_LOG_SYMBOLS } rn_log_form;

// Sets (or, with a sink whose write is NULL, removes) the process's log. Thread-safe.
RN_API void rn_log_set(rn_sink sink, rn_log_form form, rn_log_level least);
// Whether a message of this level would be written; one relaxed load.
RN_API bool rn_log_wants(rn_log_level level);
RN_API rn_log_form rn_log_form_get(void);
// "warning"; the symbol of RN_LOG_SYMBOLS for it. Not for RN_LOG_OFF.
RN_API const char *rn_log_level_name(rn_log_level level);
RN_API const char *rn_log_symbol(rn_log_level level);
// `part` is the layer that speaks: "reader", "convert".
RN_API void rn_log(rn_log_level level, const char *part, const char *format, ...) RN_PRINTF(3, 4);
// One line already formed (a stage line, a JSON object), written whole.
RN_API void rn_log_line(rn_log_level level, rn_str line);

RN_END_DECLS

#endif
