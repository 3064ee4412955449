// manual.c — man pages and completions of shells, made of what --help is made of: the table of
// commands and the table of options.
#include "command.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

// ---- man pages ----------------------------------------------------------------------------------

// A line that begins with '.' or ''' would be a request; '\' and '-' have meanings of their own.
static void put_roff(FILE *out, const char *text) {
    bool begins = true;
    for (; *text; text++) {
        if (begins && (*text == '.' || *text == '\'')) fputs("\\&", out);
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
        begins = *text == '\n';
    }
}

static void put_section(FILE *out, const char *name, const char *text) {
    fprintf(out, ".SH %s\n", name);
    put_roff(out, text);
    fputc('\n', out);
}

static void put_option(void *self, const rn_option *option) {
    FILE *out = self;
    bool optional = option->type == RN_OPTION_FILE;
    fputs(".TP\n.B ", out);
    if (option->letter) fprintf(out, "\\-%c, ", option->letter);
    fputs("\\-\\-", out);
    put_roff(out, option->name);
    if (option->value)
        fprintf(out, "%s\\fI%s\\fR%s", optional ? "[=" : " ", option->value, optional ? "]" : "");
    fputc('\n', out);
    put_roff(out, option->help);
    if (option->choices) {
        fputs(" (", out);
        put_roff(out, option->choices);
        fputs(")", out);
    }
    if (option->standard && strcmp(option->standard, "false") != 0) {
        fputs(" [", out);
        put_roff(out, option->standard);
        fputs("]", out);
    }
    fputc('\n', out);
}

static void put_status(FILE *out) {
    put_section(out, "EXIT STATUS",
                "0 done, 2 usage, 3 bad input, 4 over budget, 5 device, 6 cancelled, 7 slower or "
                "larger than ration bench may be.");
}

static void write_page(FILE *out, const command *c) {
    fputs(".TH \"RATION\\-", out);
    for (const char *letter = c->name; *letter; letter++)
        fputc(toupper((unsigned char)*letter), out);
    fprintf(out, "\" 1 \"\" \"ration %s\" \"ration\"\n", rn_version());
    fprintf(out, ".SH NAME\nration\\-%s \\- ", c->name);
    put_roff(out, c->summary);
    fputs("\n.SH SYNOPSIS\n.B ration ", out);
    put_roff(out, c->usage);
    fputc('\n', out);
    put_section(out, "DESCRIPTION", c->about);
    fputs(".SH OPTIONS\n", out);
    each_option(c, true, put_option, out);
    fputs(".SH MORE OPTIONS\n", out);
    each_option(c, false, put_option, out);
    fputs(".TP\n.B \\-h, \\-\\-help\nthis text, shorter\n.SH EXAMPLE\n.nf\n", out);
    put_roff(out, c->example);
    fputs("\n.fi\n", out);
    put_section(
        out, "ENVIRONMENT",
        "Every option may also be set as RATION_NAME, and those that ration config list shows "
        "in ration.toml or ~/.config/ration/config.toml.");
    put_status(out);
    fputs(".SH SEE ALSO\n.BR ration (1)\n", out);
}

static void write_overview(FILE *out) {
    fprintf(out, ".TH RATION 1 \"\" \"ration %s\" \"ration\"\n", rn_version());
    fputs(
        ".SH NAME\nration \\- models inside a memory budget\n.SH SYNOPSIS\n.B ration\n.I COMMAND\n"
        "[options]\n.SH DESCRIPTION\nPlans, runs, serves, trains, measures and profiles models "
        "within a number of bytes that you give. Before anything is loaded, a planner decides what "
        "is held where and when; a ledger counts every byte.\n.SH COMMANDS\n",
        out);
    for (size_t i = 0; i < all_command_count; i++) {
        const command *c = all_commands[i];
        if (!c->summary) continue;
        fprintf(out, ".TP\n.BR ration\\-%s (1)\n", c->name);
        put_roff(out, c->summary);
        fputc('\n', out);
    }
    put_status(out);
}

// ---- completions --------------------------------------------------------------------------------

static void put_names(FILE *out, const char *between) {
    bool first = true;
    for (size_t i = 0; i < all_command_count; i++) {
        if (!all_commands[i]->summary) continue;
        fprintf(out, "%s%s", first ? "" : between, all_commands[i]->name);
        first = false;
    }
}

static void put_flags(FILE *out, const command *c) {
    for (size_t i = 0; i < rn_option_count(); i++)
        if (rn_option_is_for(rn_option_at(i), c->name))
            fprintf(out, "--%s ", rn_option_at(i)->name);
    fputs("--help", out);
}

static void put_choices(FILE *out, const rn_option *option) {
    for (const char *at = option->choices; *at; at++)
        fputc(*at == '|' ? ' ' : *at, out);
}

// A list of what `ration models` prints, a name a line.
#define MODEL_NAMES "ration models 2> /dev/null | awk 'NR > 1 && !/ models, / {print $1}'"
#define FISH_NAMES  "ration models 2> /dev/null | awk 'NR > 1 && !/ models, / {print \\$1}'"

// Flags of the command, choices of a flag, names of models where a model is wanted; else files.
// bash makes words of their own of what stands around a ':', so the word is read from the line
// itself, and what of it stands before the last ':' is not given back.
static void write_bash(FILE *out) {
    fputs("# bash completion for ration; made by `ration completions bash`\n"
          "_ration() {\n"
          "    local line=${COMP_LINE:0:COMP_POINT} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    local word=${line##*[[:space:]]} command=${COMP_WORDS[1]}\n"
          "    if [ \"$COMP_CWORD\" = 1 ]; then\n        COMPREPLY=($(compgen -W '",
          out);
    put_names(out, " ");
    fputs("' -- \"$word\"))\n        return\n    fi\n    case $before in\n", out);
    for (size_t i = 0; i < rn_option_count(); i++) {
        const rn_option *option = rn_option_at(i);
        if (!option->choices) continue;
        fprintf(out, "    --%s) COMPREPLY=($(compgen -W '", option->name);
        put_choices(out, option);
        fputs("' -- \"$word\")); return ;;\n", out);
    }
    fputs("    esac\n    case $command in\n", out);
    for (size_t i = 0; i < all_command_count; i++) {
        const command *c = all_commands[i];
        if (!c->summary) continue;
        fprintf(out, "    %s)\n        [[ $word == -* ]] && { COMPREPLY=($(compgen -W '", c->name);
        put_flags(out, c);
        fputs("' -- \"$word\")); return; }\n", out);
        if (c->takes_model)
            fputs(
                "        COMPREPLY=($(compgen -W \"$(" MODEL_NAMES ")\" -- \"$word\"))\n"
                "        [[ $word == *:* ]] && COMPREPLY=(\"${COMPREPLY[@]#\"${word%:*}:\"}\")\n"
                "        [ -n \"$COMPREPLY\" ] && { compopt +o filenames 2> /dev/null; return; }\n",
                out);
        fputs("        ;;\n", out);
    }
    fputs("    esac\n    COMPREPLY=($(compgen -f -- \"$word\"))\n}\ncomplete -o filenames -F "
          "_ration ration\n",
          out);
}

static void put_quoted(FILE *out, const char *text, const char *escaped) {
    for (; *text; text++) {
        if (*text == '\'')
            fputs(escaped, out);
        else if (*text == '[' || *text == ']' || *text == ':')
            fputc(' ', out);
        else
            fputc(*text == '\n' ? ' ' : *text, out);
    }
}

static void write_zsh(FILE *out) {
    fputs("#compdef ration\n# made by `ration completions zsh`\n_ration_models() {\n"
          "    local -a names=(${(f)\"$(" MODEL_NAMES ")\"})\n    compadd -a names\n    _files\n}\n"
          "_ration() {\n    local -a commands\n    commands=(\n",
          out);
    for (size_t i = 0; i < all_command_count; i++) {
        if (!all_commands[i]->summary) continue;
        fprintf(out, "        '%s:", all_commands[i]->name);
        put_quoted(out, all_commands[i]->summary, "'\\''");
        fputs("'\n", out);
    }
    fputs("    )\n    if (( CURRENT == 2 )); then _describe command commands; return; fi\n    case "
          "$words[2] in\n",
          out);
    for (size_t i = 0; i < all_command_count; i++) {
        const command *c = all_commands[i];
        if (!c->summary) continue;
        fprintf(out, "    %s) _arguments -s", c->name);
        for (size_t k = 0; k < rn_option_count(); k++) {
            const rn_option *option = rn_option_at(k);
            if (!rn_option_is_for(option, c->name)) continue;
            fprintf(out, " '--%s[", option->name);
            put_quoted(out, option->help, "'\\''");
            fputc(']', out);
            if (option->choices) {
                fputs(":value:(", out);
                put_choices(out, option);
                fputs(")'", out);
            } else {
                fputs(option->value ? ":value:_files'" : "'", out);
            }
        }
        fputs(c->takes_model ? " '*:model:_ration_models' ;;\n" : " '*:file:_files' ;;\n", out);
    }
    fputs("    esac\n}\n_ration \"$@\"\n", out);
}

static void write_fish(FILE *out) {
    fputs("# made by `ration completions fish`\n", out);
    for (size_t i = 0; i < all_command_count; i++) {
        const command *c = all_commands[i];
        if (!c->summary) continue;
        fprintf(out, "complete -c ration -n __fish_use_subcommand -f -a %s -d '", c->name);
        put_quoted(out, c->summary, "\\'");
        fputs("'\n", out);
        if (c->takes_model)
            fprintf(out, "complete -c ration -n '__fish_seen_subcommand_from %s' -a \"(%s)\"\n",
                    c->name, FISH_NAMES);
        for (size_t k = 0; k < rn_option_count(); k++) {
            const rn_option *option = rn_option_at(k);
            if (!rn_option_is_for(option, c->name)) continue;
            fprintf(out, "complete -c ration -n '__fish_seen_subcommand_from %s' -l %s%s -d '",
                    c->name, option->name, option->value ? " -r" : "");
            put_quoted(out, option->help, "\\'");
            fputs("'", out);
            if (option->choices) {
                fputs(" -x -a '", out);
                put_choices(out, option);
                fputs("'", out);
            }
            fputs("\n", out);
        }
    }
}

static const struct {
    const char *name, *path; // below the folder of `man-page`
    void (*write)(FILE *out);
} shells[] = {{"bash", "bash-completion/completions/ration", write_bash},
              {"zsh", "zsh/site-functions/_ration", write_zsh},
              {"fish", "fish/vendor_completions.d/ration.fish", write_fish}};
enum { SHELLS = sizeof shells / sizeof *shells };

static rn_status print_completions(const invocation *in) {
    for (int i = 0; i < SHELLS; i++)
        if (strcmp(in->words[0], shells[i].name) == 0) {
            shells[i].write(stdout);
            return RN_OK;
        }
    return rn_hint(rn_fail(RN_INVALID, "there are no completions for '%s'", in->words[0]),
                   "bash, zsh or fish");
}

// ---- all of them, for `make install` ------------------------------------------------------------

// The file below the folder, whose own folders are made.
static rn_status open_file(const char *folder, const char *path, FILE **out) {
    char whole[4096];
    if (snprintf(whole, sizeof whole, "%s/%s", folder, path) >= (int)sizeof whole)
        return rn_fail(RN_INVALID, "the path of %s is too long", path);
    for (char *slash = strchr(whole + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        bool failed = mkdir(whole, 0755) != 0 && errno != EEXIST;
        if (failed) return rn_fail(RN_IO, "%s: %s", whole, strerror(errno));
        *slash = '/';
    }
    *out = fopen(whole, "w");
    return *out ? RN_OK : rn_fail(RN_IO, "%s: %s", whole, strerror(errno));
}

static rn_status close_file(FILE *file, const char *path) {
    bool bad = ferror(file) != 0;
    if (fclose(file) != 0 || bad) return rn_fail(RN_IO, "%s cannot be written", path);
    return RN_OK;
}

static rn_status write_all(const invocation *in) {
    const char *folder = in->words[0];
    char path[128];
    FILE *file = NULL;
    RN_TRY(open_file(folder, "man/man1/ration.1", &file));
    write_overview(file);
    RN_TRY(close_file(file, "ration.1"));
    for (size_t i = 0; i < all_command_count; i++) {
        if (!all_commands[i]->summary) continue;
        snprintf(path, sizeof path, "man/man1/ration-%s.1", all_commands[i]->name);
        RN_TRY(open_file(folder, path, &file));
        write_page(file, all_commands[i]);
        RN_TRY(close_file(file, path));
    }
    for (int i = 0; i < SHELLS; i++) {
        RN_TRY(open_file(folder, shells[i].path, &file));
        shells[i].write(file);
        RN_TRY(close_file(file, shells[i].path));
    }
    return RN_OK;
}

const command completions_command = {
    .name = "completions",
    .usage = "completions bash|zsh|fish",
    .summary = "completions of commands, flags and models for a shell",
    .about =
        "Prints a script. `make install` puts all three where shells look for them; otherwise\n"
        "source it, or write it there.",
    .example = "ration completions bash > ~/.local/share/bash-completion/completions/ration",
    .min_words = 1,
    .max_words = 1,
    .run = print_completions,
};

const command man_page_command = {
    .name = "man-page",
    .usage = "man-page FOLDER",
    .about = "Writes man pages and completions below FOLDER, as they lie below share/.",
    .example = "ration man-page build/share",
    .min_words = 1,
    .max_words = 1,
    .run = write_all,
};
