// preview.c — see preview.h: kitty's graphics protocol, sixels, or a file.
//
// On a terminal the picture keeps its place: rows are made free below the cursor first, and the
// cursor goes back to the line of the steps after each picture.
#include "preview.h"

#include "run.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

// ---- what the terminal can ----------------------------------------------------------------------

// Asks which features it has (DA1): "ESC [ ? 62 ; 4 ; ... c", of which 4 is sixels. Terminals that
// do not know the question say nothing: a fifth of a second is waited.
static bool has_sixels(void) {
    struct termios before, raw;
    char answer[128];
    size_t bytes = 0;
    int tty = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (tty < 0) return false;
    if (tcgetattr(tty, &before) != 0) {
        close(tty);
        return false;
    }
    raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(tty, TCSANOW, &raw);
    struct pollfd ready = {.fd = tty, .events = POLLIN};
    bool ended = write(tty, "\033[c", 3) != 3;
    while (!ended && bytes < sizeof answer - 1 && poll(&ready, 1, 200) == 1) {
        ended = read(tty, answer + bytes, 1) != 1 || answer[bytes] == 'c';
        bytes++;
    }
    tcsetattr(tty, TCSANOW, &before);
    close(tty);
    answer[bytes] = '\0';
    for (const char *at = strstr(answer, "[?"); at; at = strchr(at + 1, ';'))
        if (at[0] == ';' && at[1] == '4' && (at[2] == ';' || at[2] == 'c')) return true;
    return false;
}

static bool names(const char *variable, const char *what) {
    const char *value = getenv(variable);
    return value && strstr(value, what);
}

static bool is_kitty(void) {
    return getenv("KITTY_WINDOW_ID") || names("TERM", "kitty") || names("TERM", "ghostty") ||
           names("TERM_PROGRAM", "WezTerm") || names("TERM_PROGRAM", "ghostty");
}

static preview_form choose(const char *wanted) {
    if (strcmp(wanted, "kitty") == 0) return PREVIEW_KITTY;
    if (strcmp(wanted, "sixel") == 0) return PREVIEW_SIXEL;
    if (strcmp(wanted, "png") == 0 || !isatty(STDERR_FILENO)) return PREVIEW_PNG;
    if (is_kitty()) return PREVIEW_KITTY;
    return has_sixels() ? PREVIEW_SIXEL : PREVIEW_PNG;
}

rn_status preview_begin(const invocation *in, const char *output, preview *out) {
    const char *decoder = rn_settings_text(in->settings, "preview");
    size_t stem = strlen(output) - strlen(".png");
    *out = (preview){.form = PREVIEW_NONE};
    if (!decoder || !decoder[0]) return RN_OK;
    out->every = (uint32_t)rn_settings_count(in->settings, "preview-every");
    if (out->every == 0) return rn_fail(RN_INVALID, "--preview-every 0: at least 1");
    out->form = choose(rn_settings_text(in->settings, "preview-as"));
    snprintf(out->path, sizeof out->path, "%.*s-preview.png", (int)stem, output);
    if (out->form == PREVIEW_PNG && !rn_settings_bool(in->settings, "quiet") && !in->json)
        fprintf(stderr, "previews go to %s\n", out->path);
    return RN_OK;
}

bool preview_is_due(const preview *p, uint32_t step, uint32_t steps) {
    return p->form != PREVIEW_NONE && step < steps && step % p->every == 0;
}

// ---- kitty --------------------------------------------------------------------------------------

static void put_base64(const uint8_t *data, size_t bytes) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < bytes; i += 3) {
        uint32_t left = (uint32_t)(bytes - i), word = (uint32_t)data[i] << 16;
        if (left > 1) word |= (uint32_t)data[i + 1] << 8;
        if (left > 2) word |= data[i + 2];
        char text[4] = {letters[word >> 18], letters[word >> 12 & 63],
                        left > 1 ? letters[word >> 6 & 63] : '=',
                        left > 2 ? letters[word & 63] : '='};
        fwrite(text, 1, sizeof text, stderr);
    }
}

// Pixels as they are (f=24), in chunks of at most 4096 characters; the same image and placement
// each time (i=1, p=1), the cursor stays (C=1), nothing is answered (q=2).
static void put_kitty(const rn_image *image) {
    const size_t most = 3072;
    size_t bytes = (size_t)image->width * image->height * 3;
    for (size_t at = 0; at < bytes; at += most) {
        size_t count = bytes - at < most ? bytes - at : most;
        int more = at + count < bytes;
        if (at == 0)
            fprintf(stderr, "\033_Ga=T,f=24,s=%u,v=%u,i=1,p=1,C=1,q=2,m=%d;", image->width,
                    image->height, more);
        else
            fprintf(stderr, "\033_Gm=%d;", more);
        put_base64(image->pixels + at, count);
        fputs("\033\\", stderr);
    }
}

// ---- sixels -------------------------------------------------------------------------------------

enum { LEVELS = 6, COLOURS = LEVELS * LEVELS * LEVELS, BAND = 6 };

// One of 216 colours; what lies between two of them is spread over neighbours by a pattern.
static uint8_t colour_at(const rn_image *image, uint32_t x, uint32_t y) {
    static const uint8_t pattern[4][4] = {
        {0, 8, 2, 10}, {12, 4, 14, 6}, {3, 11, 1, 9}, {15, 7, 13, 5}};
    const uint8_t *pixel = image->pixels + ((size_t)y * image->width + x) * 3;
    uint32_t colour = 0;
    for (int c = 0; c < 3; c++) {
        uint32_t scaled = pixel[c] * (LEVELS - 1) * 16u + 255u * pattern[y % 4][x % 4];
        colour = colour * LEVELS + scaled / (255u * 16u);
    }
    return (uint8_t)colour;
}

static void put_run(uint8_t bits, uint32_t count) {
    char letter = (char)('?' + bits);
    if (count > 3)
        fprintf(stderr, "!%u%c", count, letter);
    else
        for (uint32_t i = 0; i < count; i++)
            fputc(letter, stderr);
}

// The dots of one colour in a band of six lines.
static void put_colour(const rn_image *image, uint32_t top, uint8_t colour) {
    uint8_t last = 0;
    uint32_t run = 0;
    fprintf(stderr, "#%u", colour);
    for (uint32_t x = 0; x < image->width; x++) {
        uint8_t bits = 0;
        for (uint32_t i = 0; i < BAND && top + i < image->height; i++)
            if (colour_at(image, x, top + i) == colour) bits |= (uint8_t)(1u << i);
        if (bits != last) {
            put_run(last, run);
            run = 0;
        }
        last = bits;
        run++;
    }
    put_run(last, run);
}

static void put_band(const rn_image *image, uint32_t top) {
    bool used[COLOURS] = {false}, first = true;
    for (uint32_t i = 0; i < BAND && top + i < image->height; i++)
        for (uint32_t x = 0; x < image->width; x++)
            used[colour_at(image, x, top + i)] = true;
    for (uint32_t c = 0; c < COLOURS; c++) {
        if (!used[c]) continue;
        if (!first) fputc('$', stderr);
        first = false;
        put_colour(image, top, (uint8_t)c);
    }
    fputc('-', stderr);
}

static void put_sixel(const rn_image *image) {
    fprintf(stderr, "\0337\033P0;1q\"1;1;%u;%u", image->width, image->height);
    for (uint32_t c = 0; c < COLOURS; c++)
        fprintf(stderr, "#%u;2;%u;%u;%u", c, c / (LEVELS * LEVELS) * 100 / (LEVELS - 1),
                c / LEVELS % LEVELS * 100 / (LEVELS - 1), c % LEVELS * 100 / (LEVELS - 1));
    for (uint32_t top = 0; top < image->height; top += BAND)
        put_band(image, top);
    fputs("\033\\\0338", stderr);
}

// ---- showing ------------------------------------------------------------------------------------

static uint32_t count_rows(uint32_t pixels) {
    struct winsize size = {0};
    uint32_t line = 20;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_ypixel)
        line = size.ws_ypixel / size.ws_row;
    return line ? (pixels + line - 1) / line : 1;
}

// Below the line of the steps, whose beginning the cursor returns to.
static void show_on_terminal(preview *p, const rn_image *image) {
    if (p->rows == 0) {
        p->rows = count_rows(image->height);
        for (uint32_t i = 0; i <= p->rows; i++)
            fputc('\n', stderr);
        fprintf(stderr, "\033[%uA", p->rows + 1);
    }
    fputs("\r\033[1B", stderr);
    if (p->form == PREVIEW_KITTY)
        put_kitty(image);
    else
        put_sixel(image);
    fputs("\033[1A", stderr);
    fflush(stderr);
}

// Who looks at the file sees the last picture or the next one, never a part.
static rn_status replace_file(const preview *p, const rn_image *image) {
    char next[sizeof p->path + 8];
    snprintf(next, sizeof next, "%s.part", p->path);
    RN_TRY(rn_image_write(next, image));
    if (rename(next, p->path) == 0) return RN_OK;
    (void)remove(next);
    return rn_fail(RN_IO, "cannot write %s", p->path);
}

rn_status preview_show(preview *p, const rn_image *image) {
    if (p->form == PREVIEW_PNG) return replace_file(p, image);
    show_on_terminal(p, image);
    return RN_OK;
}

void preview_end(preview *p) {
    if (p->rows) fprintf(stderr, "\033[%uB\n", p->rows);
    p->rows = 0;
}
