// gguf_pre.c — GGUF names a pre-tokenizer, and llama.cpp knows what the name means. These are the
// same expressions, in the form of the models' own tokenizer.json where llama.cpp had to write them
// otherwise for its engine. Characters beyond ASCII are written by their numbers.
#include "text/gguf_pre.h"

#include "text/scan.h"

#define JAIS2                                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}"         \
    "\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64"       \
    "}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s"       \
    "{1}"
#define DEEPSEEK_LLM_WORDS                                                                         \
    "\\s?[A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"            \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}"         \
    "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}"                  \
    "\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"                       \
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"                 \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"                 \
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}"        \
    "\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}"         \
    "\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}"                 \
    "\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"                  \
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}"                   \
    "\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}"        \
    "\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}"         \
    "\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"                  \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"                 \
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"               \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"         \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}]+"
#define DEEPSEEK_LLM_MARKS                                                                         \
    "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}"                         \
    "\\x{3000}-\\x{3002}]+"
#define DEEPSEEK_ASIAN "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?["            \
    "\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
#define YOUTU_ASIAN                                                                                \
    "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}"              \
    "\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}"                    \
    "\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}"         \
    "\\x{30A0}-\\x{30FF}]+"
#define YOUTU                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}"            \
    "\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}"           \
    "\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}| ?[^"       \
    "\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define TEKKEN                                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}"            \
    "\\p{M}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}"          \
    "\\p{Lo}\\p{M}]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT4O                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}"            \
    "\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}"           \
    "\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}"       \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN35                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s"            \
    "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define MINICPM5                                                                                   \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+| ?[^\\s\\p{L}\\p{N}"       \
    "]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SEED_CODER                                                                                 \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}"           \
    "\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define BAILING                                                                                    \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r"       \
    "\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define EXAONE_MOE                                                                                 \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*"       \
    ")+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"

static const rn_gguf_pre known[] = {
    {.names = " default ",
     .expressions = {"[\\p{P}\\$\\+<=>\\^~\\|]+", RN_EXPRESSION_GPT2, "\\p{N}+",
                     "[0-9][0-9][0-9]"}},
    {.names = " llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ",
     .expressions = {RN_EXPRESSION_LLAMA3},
     .ignore_merges = true,
     .add_begin = true},
    {.names = " dbrx smaug-bpe glm4 chatglm-bpe ", .expressions = {RN_EXPRESSION_LLAMA3}},
    {.names = " gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum "
              "modern-bert mpt "
              "olmo "
              "jais trillion granite-docling exaone4 ",
     .expressions = {RN_EXPRESSION_GPT2}},
    {.names = " qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 hunyuan solar-open megrez grok-2 ",
     .expressions = {RN_EXPRESSION_QWEN2}},
    {.names = " starcoder refact command-r smollm codeshell exaone minerva-7b mellum2 ",
     .expressions = {"\\p{N}", RN_EXPRESSION_GPT2}},
    {.names = " falcon ",
     .expressions = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", RN_EXPRESSION_GPT2, "[0-9][0-9][0-9]"}},
    {.names = " deepseek-llm ",
     .expressions = {"[\r\n]", DEEPSEEK_LLM_WORDS, DEEPSEEK_LLM_MARKS, "\\s+$", DEEPSEEK_ASIAN,
                     "\\p{N}+"}},
    {.names = " deepseek-coder ",
     .expressions = {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DEEPSEEK_ASIAN, "\\p{N}"}},
    {.names = " deepseek-v3 hunyuan-dense joyai-llm ",
     .expressions = {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
                     DEEPSEEK3}},
    {.names = " youtu ", .expressions = {YOUTU_ASIAN, YOUTU}, .ignore_merges = true},
    {.names = " tekken ", .expressions = {TEKKEN}, .ignore_merges = true, .add_begin = true},
    {.names = " gpt-4o llama4 kanana2 talkie minimax-m2 ", .expressions = {GPT4O}},
    {.names = " granite-embed-multi-97m ", .expressions = {GPT4O}, .ignore_merges = true},
    {.names = " tiny_aya cohere2moe ", .expressions = {"\\d{1,3}(?=(?:\\d{3})*\\b)", GPT4O}},
    {.names = " qwen35 ", .expressions = {QWEN35}},
    {.names = " minicpm5 ", .expressions = {"\\p{N}{1,3}", MINICPM5}, .ignore_merges = true},
    {.names = " seed-coder ", .expressions = {SEED_CODER}},
    {.names = " bailingmoe bailingmoe2 llada-moe ", .expressions = {BAILING}},
    {.names = " exaone-moe ", .expressions = {EXAONE_MOE}},
    {.names = " laguna ", .expressions = {"[^\\n]+|[\\n]+", RN_EXPRESSION_QWEN2}},
    {.names = " jais-2 ", .expressions = {JAIS2}},
    {.names = " poro-chat bloom gpt3-finnish ", .expressions = {BLOOM}},
    {.names = " viking ", .expressions = {BLOOM, "\\p{N}"}},
    {.names = " superbpe ", .expressions = {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}},
};

const rn_gguf_pre *rn_gguf_pre_find(rn_str name) {
    char padded[64] = " ";
    if (name.bytes == 0 || name.bytes > sizeof padded - 3 || memchr(name.data, ' ', name.bytes))
        return NULL;
    memcpy(padded + 1, name.data, name.bytes);
    padded[name.bytes + 1] = ' ';
    padded[name.bytes + 2] = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(known[i].names, padded)) return &known[i];
    return NULL;
}

const rn_gguf_pre *rn_gguf_pre_at(size_t index) {
    return index < sizeof known / sizeof *known ? &known[index] : NULL;
}
