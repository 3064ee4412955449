// template_builtin.h — filters, tests, functions and methods: tables of rows, found by name.
#ifndef RN_TEXT_TEMPLATE_BUILTIN_H
#define RN_TEXT_TEMPLATE_BUILTIN_H

#include "text/template/template_run.h"

// Arguments as they stand in a call.
typedef struct rn_jinja_args {
    const rn_jinja_value *items; // (count)
    size_t count;
    const rn_str *names;         // (named_count)
    const rn_jinja_value *named; // (named_count)
    size_t named_count;
} rn_jinja_args;

enum { RN_JINJA_MAX_PARAMS = 5 };

struct rn_jinja_builtin {
    const char *name;
    // With one value for each parameter, MISSING where it was not given.
    rn_status (*call)(rn_jinja_run *run, rn_jinja_value self, const rn_jinja_value *args,
                      rn_jinja_value *out);
    const char *params[RN_JINJA_MAX_PARAMS + 1]; // NULL ends them
    size_t required;                             // the first so many must be given
    // Or, instead of `call`, with the arguments as they are.
    rn_status (*call_raw)(rn_jinja_run *run, rn_jinja_value self, const rn_jinja_args *args,
                          rn_jinja_value *out);
    bool no_names;  // Python takes these parameters by position only
    bool forbidden; // Jinja's sandbox makes it undefined: it would change its object
    // With neither call: Python or Jinja has it, this interpreter does not.
};

// NULL where there is none of that name.
const rn_jinja_builtin *rn_jinja_filter_find(rn_str name);
const rn_jinja_builtin *rn_jinja_test_find(rn_str name);
const rn_jinja_builtin *rn_jinja_function_find(rn_str name);
const rn_jinja_builtin *rn_jinja_method_find(rn_jinja_type type, rn_str name);
// In a table that ends with a row without a name.
const rn_jinja_builtin *rn_jinja_row_find(const rn_jinja_builtin *rows, rn_str name);

RN_MUST_USE rn_status rn_jinja_builtin_call(rn_jinja_run *run, const rn_jinja_builtin *row,
                                            rn_jinja_value self, const rn_jinja_args *args,
                                            rn_jinja_value *out);
// A test's answer for a value.
RN_MUST_USE rn_status rn_jinja_test_ask(rn_jinja_run *run, const rn_jinja_builtin *row,
                                        rn_jinja_value self, const rn_jinja_args *args, bool *out);

// ---- taking arguments --------------------------------------------------------------------

// TEXT that is not markup, or a failure that names `what`.
RN_MUST_USE rn_status rn_jinja_need_text(rn_jinja_run *run, const char *what, rn_jinja_value value,
                                         rn_str *out);
RN_MUST_USE rn_status rn_jinja_need_int(rn_jinja_run *run, const char *what, rn_jinja_value value,
                                        int64_t *out);
// Where Python takes no other truth than a number's; MISSING is false.
RN_MUST_USE rn_status rn_jinja_need_flag(rn_jinja_run *run, const char *what, rn_jinja_value value,
                                         bool *out);

// ---- shared by methods and filters -------------------------------------------------------

// The first `most` (negative: all) of `old` in the text become `new`.
RN_MUST_USE rn_status rn_jinja_replace(rn_jinja_run *run, rn_str text, rn_str old, rn_str new,
                                       int64_t most, rn_jinja_value *out);
// The filters' two tables: of text and numbers; of sequences.
extern const rn_jinja_builtin rn_jinja_text_filters[];
extern const rn_jinja_builtin rn_jinja_sequence_filters[];

#endif
