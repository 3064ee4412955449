// architectures.c — the text architectures that are known: one row each. A new one is a file with
// an rn_text_architecture (decoder.h) and its row here.
#include "model/text/decoder.h"

#include "base/checked.h"

#include <stdio.h>

#define ARCHITECTURES(row)                                                                         \
    row(llama) row(mistral) row(ministral3) row(qwen2) row(qwen3) row(phi3) row(gpt2) row(gemma2)  \
        row(gemma3) row(smollm3) row(granite) row(olmo2) row(olmo3) row(starcoder2) row(cohere2)   \
            row(gptneox) row(falcon) row(lfm2) row(qwen35) row(qwen35_seeing) row(bert) row(mpnet) \
                row(nomic_bert) row(modernbert) row(qwen3_next) row(roberta) row(xlm_roberta)      \
                    row(mistral3) row(gemma3_seeing) row(gemma_embedding) row(gemma4)              \
                        row(gemma4_seeing) row(mixtral) row(qwen2moe) row(qwen3moe) row(olmoe)     \
                            row(glm4moe) row(qwen35moe) row(qwen35moe_seeing) row(gpt_oss)         \
                                row(deepseek_v2) row(deepseek_v3) row(glm4_moe_lite)

#define DECLARE(name) extern const rn_text_architecture rn_text_##name;
#define LIST(name)    &rn_text_##name,
ARCHITECTURES(DECLARE)
static const rn_text_architecture *const architectures[] = {ARCHITECTURES(LIST)};
enum { COUNT = sizeof architectures / sizeof *architectures, LONGEST = 32 };

static const char *name_of(const rn_text_architecture *a, rn_naming naming) {
    return naming == RN_NAMES_HUGGING_FACE && a->model_type ? a->model_type : a->name;
}

// ---- what is not known --------------------------------------------------------------------------

// How many letters must be put in, left out or changed (Levenshtein); names are cut at LONGEST.
static uint32_t count_edits(rn_str a, rn_str b) {
    uint32_t line[LONGEST + 1]; // edits from the letters of a so far to the first j of b
    size_t a_end = rn_min_u64(a.bytes, LONGEST), b_end = rn_min_u64(b.bytes, LONGEST);
    for (uint32_t j = 0; j <= b_end; j++)
        line[j] = j;
    for (uint32_t i = 0; i < a_end; i++) {
        uint32_t corner = line[0];
        line[0] = i + 1;
        for (uint32_t j = 0; j < b_end; j++) {
            uint32_t change = corner + (a.data[i] != b.data[j]);
            corner = line[j + 1];
            line[j + 1] = (uint32_t)rn_min_u64(change, rn_min_u64(line[j], corner) + 1);
        }
    }
    return line[b_end];
}

static uint32_t count_equal(rn_str a, rn_str b) {
    uint32_t count = 0;
    while (count < rn_min_u64(a.bytes, b.bytes) && a.data[count] == b.data[count])
        count++;
    return count;
}

// The one that begins alike for longest ("gemma" is nearer to "gemma3_text" than to "llama"); of
// several, that of the fewest edits.
static const char *find_nearest(rn_str name, rn_naming naming) {
    const char *nearest = NULL;
    uint32_t most_equal = 0, fewest = UINT32_MAX;
    for (size_t i = 0; i < COUNT; i++) {
        const char *known = name_of(architectures[i], naming);
        uint32_t equal = count_equal(name, rn_str_from(known));
        uint32_t edits = count_edits(name, rn_str_from(known));
        if (equal < most_equal || (equal == most_equal && edits >= fewest)) continue;
        nearest = known;
        most_equal = equal;
        fewest = edits;
    }
    return nearest;
}

// Rows that differ under the other naming only are listed once.
static bool is_listed(size_t index, rn_naming naming) {
    for (size_t i = 0; i < index; i++)
        if (strcmp(name_of(architectures[i], naming), name_of(architectures[index], naming)) == 0)
            return true;
    return false;
}

// "llama (TinyLlama, SmolLM), mistral, ..."; what has no room is "...".
static void list_known(rn_naming naming, char *out, size_t capacity) {
    static const char more[] = ", ...";
    size_t length = 0;
    for (size_t i = 0; i < COUNT; i++) {
        const rn_text_architecture *a = architectures[i];
        if (is_listed(i, naming)) continue;
        char text[128];
        int n = snprintf(text, sizeof text, "%s%s%s%s%s", i ? ", " : "", name_of(a, naming),
                         a->also ? " (" : "", a->also ? a->also : "", a->also ? ")" : "");
        bool fits = n > 0 && length + (size_t)n + sizeof more <= capacity;
        length += (size_t)snprintf(out + length, capacity - length, "%s", fits ? text : more);
        if (!fits) return;
    }
}

static rn_status refuse(rn_str name, rn_naming naming) {
    char known[sizeof(((rn_error_info *)NULL)->hint) - 64]; // beside the nearest
    list_known(naming, known, sizeof known);
    return rn_hint(
        rn_fail(RN_UNSUPPORTED, "the architecture '%.*s' is not known", RN_STR_ARG(name)),
        "the nearest is %s; known are %s", find_nearest(name, naming), known);
}

// ---- finding ------------------------------------------------------------------------------------

bool rn_text_architecture_with_experts(const rn_text_architecture **architecture) {
    for (size_t i = 0; i < COUNT && !(*architecture)->experts; i++)
        if (architectures[i]->experts && strcmp(architectures[i]->name, (*architecture)->name) == 0)
            *architecture = architectures[i];
    return (*architecture)->experts;
}

rn_status rn_text_architecture_find(rn_str name, rn_naming naming,
                                    const rn_text_architecture **out) {
    for (size_t i = 0; i < COUNT; i++) {
        if (!rn_str_equal(name, rn_str_from(name_of(architectures[i], naming)))) continue;
        *out = architectures[i];
        return RN_OK;
    }
    return refuse(name, naming);
}

const rn_text_architecture *rn_text_architecture_of(const rn_llama_config *config) {
    return config->architecture ? config->architecture : &rn_text_llama;
}

const rn_text_architecture *rn_text_architecture_with_window(const rn_llama_config *config) {
    const rn_text_architecture *own = rn_text_architecture_of(config);
    for (size_t i = 0; config->window && !own->window && i < COUNT; i++) {
        const rn_text_architecture *a = architectures[i];
        if (a->window && a->gguf_name && strcmp(a->gguf_name, own->name) == 0) return a;
    }
    return own;
}
