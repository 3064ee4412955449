// adapter_file.c — what a fine-tuning learned, as files: a PEFT folder, or llama.cpp's GGUF
// adapter.
//
//     adapter_config.json           rank, alpha, targets
//     adapter_model.safetensors     base_model.model.<module>.lora_A.weight (rank, in), .lora_B; of
//                                   DoRA .lora_magnitude_vector (out)
//     <name>.gguf                   <weight>.lora_a (rank, in), <weight>.lora_b (out, rank)
//
// GGUF files of the llama family hold the rows of q and k in another order: where the model and the
// adapter's file differ in that, the rows of B change places. llama.cpp knows no rsLoRA: there
// alpha is what gives the same scale; nor DoRA, which is refused there.
#include "train/trainer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "io/writer.h"
#include "memory/account.h"
#include "model/text/adapters.h"
#include "model/text/decoder.h"

enum { NAME_BYTES = 256, CONFIG_BYTES = 16 << 20 };

typedef struct export_job {
    rn_trainer *trainer;
    const rn_lora *lora;
    bool gguf;
    char (*names)[NAME_BYTES]; // (tensor_count)
    uint64_t (*dims)[2];
    rn_write_tensor *tensors; // (tensor_count): down and up of each part, and its magnitude
    uint32_t tensor_count;
} export_job;

static uint32_t tensors_of(const rn_lora *lora) { // a part
    return lora->dora ? 3 : 2;
}

static const rn_text_architecture *architecture_of(const export_job *e) {
    return rn_text_architecture_of(&e->lora->config);
}

// ---- rows ---------------------------------------------------------------------------------------

// Row `row` of the file's B is this row of the trained one.
static uint64_t row_of(const export_job *e, const rn_lora_part *part, uint64_t row) {
    bool own_gguf = e->lora->config.naming == RN_NAMES_GGUF;
    uint64_t dims = e->lora->config.head_dim;
    if (!part->turned || own_gguf == e->gguf || dims == 0 ||
        architecture_of(e)->gguf_rope != RN_ROPE_NEIGHBOURS)
        return row;
    if (!e->gguf) return rn_adapters_gguf_row(dims, row);
    uint64_t in_head = row % dims;
    return row - in_head + in_head % 2 * (dims / 2) + in_head / 2;
}

// A GGUF file has one alpha for all, and none of the root: what differs is multiplied into B.
static double gguf_alpha(const rn_lora *lora) {
    return (double)lora->alpha * (lora->by_root ? sqrt((double)lora->rank) : 1);
}

static float factor_of(const export_job *e, const rn_lora_part *part) {
    double rank = part->low_rank.rank, own = (double)part->alpha;
    if (!e->gguf) return 1;
    if (e->lora->by_root) own *= sqrt(rank);
    return (float)(own / gguf_alpha(e->lora));
}

static rn_status write_part(const export_job *e, const rn_lora_part *part, rn_writer *writer,
                            float *values) {
    rn_session *s = e->trainer->session;
    uint64_t rank = part->low_rank.rank;
    float factor = factor_of(e, part);
    RN_TRY(rn_session_get(s, part->low_rank.down, values, rank * part->in * sizeof *values));
    RN_TRY(rn_writer_append(writer, values, rank * part->in * sizeof *values));
    RN_TRY(rn_session_get(s, part->low_rank.up, values, part->out * rank * sizeof *values));
    for (uint64_t i = 0; factor != 1 && i < part->out * rank; i++)
        values[i] *= factor;
    for (uint64_t row = 0; row < part->out; row++)
        RN_TRY(
            rn_writer_append(writer, values + row_of(e, part, row) * rank, rank * sizeof *values));
    if (!part->low_rank.magnitude) return RN_OK;
    RN_TRY(rn_session_get(s, part->low_rank.magnitude, values, part->out * sizeof *values));
    for (uint64_t row = 0; row < part->out; row++)
        RN_TRY(rn_writer_append(writer, values + row_of(e, part, row), sizeof *values));
    return RN_OK;
}

// ---- the tensors' file --------------------------------------------------------------------------

static rn_status name_tensor(const export_job *e, const rn_lora_part *p, uint32_t role,
                             char out[NAME_BYTES]) {
    static const char *const peft[] = {"lora_A.weight", "lora_B.weight", "lora_magnitude_vector"};
    rn_llama_config named = e->lora->config;
    char weight[NAME_BYTES - 40];
    bool transposed;
    if (!e->gguf) {
        snprintf(out, NAME_BYTES, "base_model.model.%s.%s", p->module, peft[role]);
        return RN_OK;
    }
    named.naming = RN_NAMES_GGUF;
    if (!rn_llama_weight_name(&named, rn_str_from(p->module), weight, sizeof weight, &transposed))
        return rn_fail(RN_UNSUPPORTED, "'%s' has no name in GGUF files", p->module);
    snprintf(out, NAME_BYTES, "%s.lora_%c", weight, role ? 'b' : 'a');
    return RN_OK;
}

static rn_status name_tensors(export_job *e, rn_arena *memory) {
    const rn_lora *lora = e->lora;
    uint32_t each = tensors_of(lora), count = each * lora->count;
    void *names = NULL, *dims = NULL, *tensors = NULL;
    RN_TRY(rn_arena_array(memory, count, sizeof *e->names, &names));
    RN_TRY(rn_arena_array(memory, count, sizeof *e->dims, &dims));
    RN_TRY(rn_arena_array(memory, count, sizeof *e->tensors, &tensors));
    e->names = names;
    e->dims = dims;
    e->tensors = tensors;
    e->tensor_count = count;
    for (uint32_t i = 0; i < count; i++) {
        const rn_lora_part *p = &lora->parts[i / each];
        uint32_t role = i % each;
        RN_TRY(name_tensor(e, p, role, e->names[i]));
        e->dims[i][0] = role ? p->out : p->low_rank.rank;
        e->dims[i][1] = role ? p->low_rank.rank : p->in;
        e->tensors[i] = (rn_write_tensor){.name = rn_str_from(e->names[i]),
                                          .dtype = RN_DTYPE_F32,
                                          .rank = role == 2 ? 1 : 2,
                                          .dims = e->dims[i]};
    }
    return RN_OK;
}

static rn_metadata text_pair(const char *key, const char *value) {
    return (rn_metadata){.key = rn_str_from(key),
                         .kind = RN_METADATA_TEXT,
                         .gguf_type = 8,
                         .text = rn_str_from(value)};
}

static rn_status write_tensors(export_job *e, const char *path) {
    const rn_lora *lora = e->lora;
    const rn_text_architecture *a = architecture_of(e);
    rn_metadata peft[] = {text_pair("format", "pt")};
    rn_metadata gguf[] = {text_pair("general.type", "adapter"),
                          text_pair("general.architecture", a->gguf_name ? a->gguf_name : a->name),
                          text_pair("adapter.type", "lora"),
                          {.key = RN_STR("adapter.lora.alpha"),
                           .kind = RN_METADATA_F64,
                           .gguf_type = 6,
                           .value.f64 = gguf_alpha(lora)}};
    rn_writer_options options = {.metadata = e->gguf ? gguf : peft,
                                 .metadata_count = e->gguf ? 4 : 1,
                                 .buffer_bytes = rn_trainer_buffer_bytes(e->trainer->most)};
    rn_trainer_scratch scratch = {0};
    rn_writer *writer = NULL;
    rn_arena memory;
    rn_arena_init(&memory, RN_HOST_IO, 0);
    rn_status s = name_tensors(e, &memory);
    if (s == RN_OK) s = rn_trainer_scratch_take(e->trainer, &scratch);
    if (s == RN_OK)
        s = rn_writer_create_in(path, e->tensors, e->tensor_count, &options, &scratch.from,
                                &writer);
    for (uint32_t i = 0; s == RN_OK && i < lora->count; i++)
        s = write_part(e, &lora->parts[i], writer, scratch.values);
    if (s == RN_OK) s = rn_writer_commit(writer);
    rn_writer_destroy(writer);
    rn_trainer_scratch_free(&scratch);
    rn_arena_free_all(&memory);
    return s;
}

// ---- adapter_config.json ------------------------------------------------------------------------

static const char *last_word(const char *module) {
    const char *dot = strrchr(module, '.');
    return dot ? dot + 1 : module;
}

// Last words, each once, where targets were chosen by them; whole names otherwise.
static void write_targets(const rn_lora *lora, rn_json *json) {
    rn_json_array(json, "target_modules");
    for (uint32_t i = 0; i < lora->count; i++) {
        const char *module = lora->parts[i].module;
        bool known = false;
        for (uint32_t j = 0; lora->by_word && j < i && !known; j++)
            known = strcmp(last_word(lora->parts[j].module), last_word(module)) == 0;
        if (!known) rn_json_string(json, NULL, lora->by_word ? last_word(module) : module);
    }
    rn_json_end(json);
}

// The expression that PEFT reads: our marks are `*` and `?`, a dot is a dot.
static void write_expression(const char *pattern, char out[2 * NAME_BYTES]) {
    size_t at = 0;
    for (; *pattern && at + 3 < 2 * NAME_BYTES; pattern++) {
        if (*pattern == '.') out[at++] = '\\';
        if (*pattern == '*') out[at++] = '.';
        out[at++] = *pattern == '?' ? '.' : *pattern;
    }
    out[at] = 0;
}

static void write_patterns(const rn_lora *lora, bool ranks, rn_json *json) {
    rn_json_object(json, ranks ? "rank_pattern" : "alpha_pattern");
    for (size_t i = 0; i < lora->pattern_count; i++) {
        const rn_lora_pattern *p = &lora->patterns[i];
        char expression[2 * NAME_BYTES];
        write_expression(p->module, expression);
        if (ranks && p->rank) rn_json_u64(json, expression, p->rank);
        if (!ranks && p->alpha != 0) rn_json_f64(json, expression, (double)p->alpha);
    }
    rn_json_end(json);
}

static rn_status write_config(const rn_lora *lora, const char *base, const char *path) {
    rn_buffer text;
    rn_json json;
    rn_buffer_init(&text, RN_HOST_IO, CONFIG_BYTES);
    rn_json_begin(&json, rn_buffer_sink(&text), true);
    rn_json_object(&json, NULL);
    write_patterns(lora, false, &json);
    rn_json_string(&json, "base_model_name_or_path", base);
    rn_json_string(&json, "bias", "none");
    rn_json_bool(&json, "fan_in_fan_out", false);
    rn_json_bool(&json, "inference_mode", true);
    if (lora->gaussian)
        rn_json_string(&json, "init_lora_weights", "gaussian");
    else
        rn_json_bool(&json, "init_lora_weights", true);
    rn_json_f64(&json, "lora_alpha", (double)lora->alpha);
    rn_json_f64(&json, "lora_dropout", 0);
    rn_json_string(&json, "peft_type", "LORA");
    rn_json_u64(&json, "r", lora->rank);
    write_patterns(lora, true, &json);
    write_targets(lora, &json);
    rn_json_string(&json, "task_type", "CAUSAL_LM");
    rn_json_bool(&json, "use_dora", lora->dora);
    rn_json_bool(&json, "use_rslora", lora->by_root);
    rn_json_end(&json);
    rn_status s = rn_json_finish(&json);
    if (s == RN_OK) s = rn_file_replace(path, text.data, text.bytes);
    rn_buffer_free(&text);
    return s;
}

// The tensors first: a folder with a configuration is whole.
static rn_status write_folder(export_job *e, const char *base, const char *path) {
    char file[PATH_MAX];
    if (mkdir(path, 0777) != 0 && errno != EEXIST) return rn_file_fail("cannot make", path);
    RN_TRY(rn_path_join(path, "adapter_model.safetensors", file, sizeof file));
    RN_TRY(write_tensors(e, file));
    RN_TRY(rn_path_join(path, "adapter_config.json", file, sizeof file));
    return write_config(e->lora, base, file);
}

rn_status rn_trainer_export_adapter(rn_trainer *trainer, const char *base, const char *path) {
    if (!trainer->lora)
        return rn_hint(rn_fail(RN_INVALID, "this trainer has no adapter: it trains all weights"),
                       "rn_trainer_export writes them");
    export_job e = {.trainer = trainer,
                    .lora = trainer->lora,
                    .gguf = rn_str_ends(rn_str_from(path), RN_STR(".gguf"))};
    if (e.gguf && e.lora->dora)
        return rn_hint(rn_fail(RN_UNSUPPORTED, "GGUF adapters cannot have DoRA's magnitudes"),
                       "merge the PEFT folder: ration convert MODEL OUT --lora ADAPTER");
    if (!base) base = trainer->lora->network->title;
    return e.gguf ? write_tensors(&e, path) : write_folder(&e, base, path);
}
