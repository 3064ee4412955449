// training.h — parts of ration train, for its own files.
#ifndef RATION_TOOL_TRAINING_H
#define RATION_TOOL_TRAINING_H

#include "command.h"
#include "run.h"

#include <stdio.h>

enum {
    TRAIN_PATH_BYTES = 4096,
    TRAIN_MOST_CHECKPOINTS = 256,
    TRAIN_MOST_PATTERNS = 64,
    TRAIN_NAME_BYTES = 128,
    TRAIN_RECORD_BYTES = 512 << 10 // of the log and its page
};

// What a phase held at most, by the ledger.
typedef struct phase_fact {
    uint64_t runs;
    uint64_t peaks[RN_PURPOSE_COUNT]; // of the memory that the device computes in
    uint64_t tables_bytes;            // of the host: descriptions
    uint64_t total_bytes;             // of the memory that the device computes in
    uint64_t host_bytes;              // of the process, where that is another memory
    double seconds;                   // of all runs
} phase_fact;

typedef struct training {
    const invocation *in;
    rn_comm *comm;        // NULL: one rank
    uint32_t rank, ranks; // 0 of 1 without
    rn_model *model;
    rn_train_data *data;
    rn_ladder *ladder;
    rn_device *device; // of the target in use
    bool plans_only;
    bool measures; // rates that are guessed
    rn_trainer *trainer;
    rn_program *program; // of a plan alone
    host_budget budget;
    rn_lora_pattern patterns[TRAIN_MOST_PATTERNS]; // (pattern_count)
    char pattern_names[TRAIN_MOST_PATTERNS][TRAIN_NAME_BYTES];
    size_t pattern_count;
    constraint_texts constraints;
    uint32_t batch, tokens;
    uint64_t steps, warmup;
    int32_t *rows;    // (3, batch, tokens): tokens, targets, documents
    uint64_t targets; // of the batch in `rows`
    rn_train_log *log;
    char out[TRAIN_PATH_BYTES], base[TRAIN_PATH_BYTES]; // --out; what is opened, "": the built-in
    uint64_t held_bytes;                                // descriptions, before loading
    phase_fact facts[RN_TRAIN_PHASE_COUNT];
    rn_train_phase phase; // that runs, or ran last
    double phase_begin;
    uint64_t saved_step;   // of the last checkpoint; RN_NO_STEP: none yet
    uint64_t skipped;      // steps without effect, in this run
    uint64_t merge_bytes;  // of --merge
    uint64_t budget_bytes; // of the memory that the device computes in
    float loss;
} training;
#define NO_STEP UINT64_MAX

bool is_method(const training *t, const char *name);
uint64_t train_count(const training *t, const char *name);
double train_number(const training *t, const char *name);
const char *train_text(const training *t, const char *name);
bool train_bool(const training *t, const char *name);
rn_status train_path(const training *t, const char *name, char out[TRAIN_PATH_BYTES]);
double train_clock(void);

// Nothing is to be printed: --quiet, or a rank other than 0.
bool is_quiet(const training *t);

// ---- ranks (train_ranks.c) ----------------------------------------------------------------------
// Without ranks each of these does what it says for one.

rn_status open_train_ranks(training *t);
// A goodbye, or what went wrong. Returns `status`.
rn_status close_train_ranks(training *t, rn_status status);
// `act` on rank 0, then on the others: what it makes on a disk that they share is there by then.
rn_status take_turns(training *t, rn_status (*act)(training *t));
// `act` on rank 0 alone; all fail where it does.
rn_status only_first(training *t, rn_status (*act)(training *t));
// Before planning: the same data and options on all ranks. The model is for the trainer to compare.
rn_status compare_ranks(training *t);
// Whether any rank was interrupted.
rn_status agree_to_stop(training *t, bool *out);
// Bytes that rank 0 has.
rn_status from_first(training *t, void *data, uint64_t bytes);

// What each rank plans; with a trainer what it held. Called by all.
typedef struct rank_row {
    char host[48];
    uint64_t planned_bytes, held_bytes, budget_bytes, states_bytes;
    uint64_t fact_bytes;     // of what is planned; 0: nothing ran yet
    uint64_t smallest_bytes; // that works; 0: it fits
    uint32_t sequences;
    bool refused;
} rank_row;
rn_status gather_rows(training *t, const rank_row *own, rank_row **out); // to be freed
void print_rank_rows(const training *t, const rank_row *rows, FILE *to);
void write_rank_rows(const training *t, const rank_row *rows, rn_json *json);
// Rows of ranks whose trainer is there.
rank_row rank_row_of(const training *t);
// Where a rank's plan was refused: the table, on rank 0, and the error as it was.
rn_status refuse_ranks(training *t, const rn_trainer_options *options, const rn_lora_options *lora);

// ---- phases (train_phases.c) --------------------------------------------------------------------

// Peaks of the ledger belong to a phase between these two.
void begin_phase(training *t, rn_train_phase phase);
void end_phase(training *t);
// What the plan decides of a phase; what the process holds of the host beside it.
uint64_t planned_bytes(const uint64_t bytes[RN_PURPOSE_COUNT]);
uint64_t host_bytes(const training *t, const rn_train_phase_info *p);
// Bytes on the ledger now, of the memory that the device computes in.
uint64_t train_held(const training *t);
// Descriptions on the host's ledger now.
uint64_t read_tables(void);
// The phases before any of them runs, and how long all of it takes.
void print_phases(const training *t, const rn_program *program, FILE *to);
// Plan beside fact.
void print_facts(const training *t);
// run.html, as far as the training has come.
rn_status write_page(const training *t);
// The same for programs: members of the object that is open.
void write_phases(const training *t, const rn_program *program, rn_json *json);

// What --merge holds at its peak, in all: the adapter's matrices and pieces of the model's files.
uint64_t merge_bytes(const training *t, const rn_program *program);

// ---- image models (train_images.c) --------------------------------------------------------------

// --objective diffusion or autoencoder.
bool is_image_training(const invocation *in);
rn_status train_images(const invocation *in);
rn_status plan_image_training(const invocation *in);

// ---- the base of QLoRA (train_base.c) -----------------------------------------------------------

// What is quantised, and how.
typedef struct quantised_base {
    const invocation *in;
    const char *model;          // a folder of safetensors, or one file
    const char *out;            // --out
    const char *part;           // of an image model, for the folder's name: "unet"; or ""
    bool of_images;             // graphs take rows out of matrices: nf4's scales stay f32
    const char *const *exclude; // names that keep their type; NULL: embeddings and norms
    size_t exclude_count;
} quantised_base;
// What --method qlora quantises to: --base-dtype, and --double-quant of nf4.
rn_dtype quantised_base_dtype(const invocation *in);
// Quantises the model to --base-dtype within --out, unless that is done. `out_path` is its folder,
// or, of one file, the new file.
rn_status make_quantised_base(const quantised_base *base, char out_path[TRAIN_PATH_BYTES]);

// ---- checkpoints (train_save.c) -----------------------------------------------------------------

// Whether there is room for what will be written; RN_IO names what is missing.
rn_status check_space(training *t);
// Whether --out has a training.
bool has_checkpoint(const training *t);
// Goes on from the newest checkpoint that is whole; says which are not.
rn_status resume_training(training *t);
// A checkpoint, verified, then the adapter; then checkpoints beyond --keep go.
rn_status save_training(training *t);
// The model's files with the adapter in their matrices, once the trainer is gone.
rn_status merge_model(const training *t, const char *model);

#endif
