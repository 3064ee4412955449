// command.h — what every command of the program shares.
#ifndef RATION_TOOL_COMMAND_H
#define RATION_TOOL_COMMAND_H

#include "support/json.h"
#include "support/options.h"

#include <ration/ration.h>

enum { MAX_WORDS = 256 };

// A --budget for the host, and what of it is not for a plan.
typedef struct host_budget {
    uint64_t total_bytes;
    uint64_t process_bytes;     // what is not on the ledger: see rn_budget_split
    uint64_t unaccounted_bytes; // with what is: a model's description, a tokenizer, what a
                                // recording takes, and room for texts
    uint64_t reserve_bytes;     // for its growth
    uint64_t least_bytes;       // what opening the model took: no smaller budget works
    uint64_t free_bytes;        // nine tenths of what was free at the start
    bool planned_only;          // "+SIZE": all of it is the plan's
    bool measured;              // none was given: nine tenths of what is free
    bool own_memory;            // there is a device beside the host, and the plan is for that
    rn_device_budget device;
    uint8_t device_number;      // on the ledger
    uint64_t device_held_bytes; // there, by now: the driver's context
} host_budget;

// A command with its settings loaded and its words (arguments that are no flags) collected.
typedef struct invocation {
    const struct command *command;
    rn_settings *settings;
    const char *words[MAX_WORDS];
    size_t word_count;
    const char *config_word; // the file of settings that stood among them; or NULL
    char **rest;             // (rest_count) what stands behind "--", where a command takes it apart
    int rest_count;
    bool json;
    char model_label[520]; // words[0] was a name: its short form; "": it was a path
    int *exit_code; // 0; of a command that succeeds: profile run sets the recorded program's own
    rn_stage_name reached; // the last stage, where the command has ended
    host_budget budget;    // at the start: begin_budget
} invocation;

typedef struct command {
    const char *name;
    const char *usage;   // after "ration ": "inspect PATH [options]"
    const char *summary; // one line; NULL: it is not for people
    const char *about;   // a paragraph or two for --help
    const char *example;
    size_t min_words, max_words;
    bool limits_memory; // begin_budget is its first act
    bool takes_model;   // the first word is a model: a path, a recipe, or a name (model_names.h)
    bool takes_config;  // a word that ends in .toml is --config
    // Variables of other programs that it heeds, below RATION_*; or NULL.
    rn_status (*load_variables)(invocation *in);
    // Prints results to standard output. NULL: see `own_arguments`.
    rn_status (*run)(const invocation *in);
    // How many of the arguments are its own, where others follow; NULL: all of them.
    int (*count_own)(int argc, char **argv);
    // A command that reads its own flags gets what stands after its name.
    rn_status (*own_arguments)(invocation *in, int argc, char **argv);
} command;

extern const command bench_command, bench_worker_command; // the second is bench's own
extern const command run_command, embed_command, inspect_command, convert_command, place_command,
    plan_command, calibrate_command, config_command, profile_command, serve_command,
    compile_command, train_command, image_command, models_command, pull_command,
    completions_command, man_page_command, launch_command;
extern const command *const all_commands[]; // in the order of --help
extern const size_t all_command_count;
// A command's options: those that most people look for, in that order, or all others.
void each_option(const command *c, bool usual, void (*each)(void *self, const rn_option *option),
                 void *self);

// The file that argv[*at] names as --config FILE, --config=FILE, -c FILE or -cFILE, and *at on its
// last word; NULL for anything else.
const char *take_config_flag(int argc, char **argv, int *at);

// Set by Ctrl-C and SIGTERM.
extern volatile bool interrupted;
// The same, for the library's own calls.
extern rn_flag interrupt_flag;
// The next Ctrl-C is caught, too: it stops an answer, not the program.
void forget_interrupt(void);

// Recording as --profile and the configuration ask for it (profiling.c). SIGUSR2 begins a recording
// and ends it, from catch_profile_signal on; each one has a file of its own.
void catch_profile_signal(void);
// RN_IO: the file cannot be made.
rn_status begin_profiling(const invocation *in);
// Ends the file and says where it is. A failure here is a warning; the last error stays.
void end_profiling(const invocation *in);
// What a recording holds, and may yet come to hold in a run, of the host's budget; 0 without one.
uint64_t profiling_bytes(void);

// The host's ledger is limited to --budget before anything is read (rn_budget_set_process).
rn_status begin_budget(invocation *in);
// The model's files and the prompt have been read: what that took at most is known. Before a ladder
// is started, whose attempts have scopes of their own.
void end_opening(void);
// The command that is planned for holds so many bytes more while it opens the model.
void raise_opening(uint64_t bytes);
// A size without a name is for the device's own memory, where it has some, and otherwise for the
// process. `room_bytes`: of the host, for texts to come.
rn_status read_budget(const invocation *in, rn_device *device, uint64_t room_bytes,
                      host_budget *out);
// The same for a server, in two acts: what the process holds is counted before it accepts
// connections, whose bytes are the server's own; for each device that is tried, the budget is read.
rn_status begin_server_budget(const invocation *in, host_budget *out);
rn_status read_server_budget(const invocation *in, rn_device *device, const host_budget *begun,
                             host_budget *out);
// For what uses the host alone: its total, `otherwise` where none is given.
rn_status read_host_budget(const invocation *in, uint64_t otherwise, host_budget *out);
// For a plan, as far as the host goes.
void use_budget(const host_budget *budget, rn_plan_options *out);

// Lets plans count with kept rates, as --rates says. Whether a short measurement is to take the
// place of guesses (rn_rates_measure_quick).
bool use_rates(const invocation *in, uint32_t threads);

// What --device names; where it names nothing the CPU, to serve "auto".
const char *device_targets(const invocation *in);
// The ladder is to be destroyed.
rn_status parse_devices(const invocation *in, rn_ladder **out);

// Text from a file, made safe for a terminal: control characters and bad UTF-8 become '?'. Cut with
// "..." at 255 bytes.
typedef struct safe_text {
    char text[256];
} safe_text;
safe_text make_safe(rn_str text);

// "1.5", "1.5s", "200ms", "30us", "2min": seconds. `option` is for the message.
rn_status parse_time(const char *option, const char *text, double *out);

// "[4096, 1024]"
safe_text format_shape(const rn_tensor_info *tensor);

// The phases of a training whose settings are in in->config_word (train.c).
rn_status plan_training(const invocation *in);

// --for image: the phases of a drawing (image.c).
rn_status plan_image(const invocation *in);
rn_status plan_server(const invocation *in);

// ration profile: see profile.c. A page in a browser; another program, recorded.
rn_status profile_view(const invocation *in);
rn_status profile_run(const invocation *in);
// Writes one form of a timeline to a file, "-" for standard output.
rn_status write_export(const rn_timeline *timeline, rn_export form, const char *path);
// "ration_20261115_120000.rntrace": `begin`, the local time, `ending`.
void default_profile_name(const char *begin, const char *ending, char out[4096]);

// The table of ration bench, its other forms, and what changed since --compare; exit code 7 where a
// variant is beyond --fail-if-slower or --fail-if-larger.
rn_status report_bench(const invocation *in, const rn_bench_results *other,
                       const rn_bench_results *results);
// --against or --against-program.
bool bench_has_other(const invocation *in);
// These two, checked before anything is measured.
rn_status check_bench_limits(const invocation *in, rn_bench_limits *out);

#endif
