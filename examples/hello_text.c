// hello_text.c — text from a model, within a memory budget, in one call.
//
//     hello_text [PROMPT [MODEL [BUDGET_MIB]]]
//
// MODEL: a Hugging Face folder or a GGUF file; without one, the story teller that is part of the
// library.
#include <ration/ration.h>

#include <stdio.h>
#include <stdlib.h>

static bool print(void *user, const char *text, size_t bytes) {
    return fwrite(text, 1, bytes, user) == bytes && fflush(user) == 0;
}

int main(int argc, char **argv) {
    const char *prompt = argc > 1 ? argv[1] : "Once upon a time";
    uint64_t mib = argc > 3 ? strtoull(argv[3], NULL, 10) : 0; // 0: what the machine has
    rn_easy_options options = {.budget_bytes = mib << 20, .new_tokens = 64};
    fputs(prompt, stdout);
    if (rn_generate_text(argc > 2 ? argv[2] : NULL, &options, prompt, print, stdout) != RN_OK) {
        fprintf(stderr, "\n%s\n%s\n", rn_last_error()->message, rn_last_error()->hint);
        return 1;
    }
    return puts("") < 0;
}
