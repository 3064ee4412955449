// line_edit.c — keys in, a line out. The whole line is drawn anew after each batch of keys: the
// cursor goes to where the mark began, everything below is cleared, mark and text are written, and
// the cursor goes to its place. Rows are counted as the terminal wraps them. Of a text with more
// rows than the terminal those around the cursor are shown, and all of it once it is finished.
#include "line_edit.h"

#include "support/columns.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

typedef struct editing {
    line_editor *editor;
    const char *mark;
    text_buffer *line;
    size_t cursor;    // a byte of the line, at the beginning of a character
    size_t shown;     // the line of the history that is shown; history_count: the new one
    unsigned top;     // the first row that is shown; 0: the mark's
    unsigned row;     // of the cursor as it was drawn last, from `top`
    unsigned columns; // of the terminal then
    bool pasting;     // between the marks of a bracketed paste
    bool ended, finished;
} editing;

// ---- the terminal -------------------------------------------------------------------------------

bool can_edit_lines(void) {
    const char *term = getenv("TERM");
    return isatty(STDIN_FILENO) && isatty(STDERR_FILENO) && term && *term &&
           strcmp(term, "dumb") != 0;
}

unsigned terminal_columns(void) {
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col) return size.ws_col;
    return 80;
}

static unsigned terminal_rows(void) {
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row) return size.ws_row;
    return 24;
}

static rn_status put(const char *text, size_t bytes) {
    while (bytes) {
        ssize_t wrote = write(STDERR_FILENO, text, bytes);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return rn_fail(RN_IO, "cannot write to the terminal: %s", strerror(errno));
        text += wrote;
        bytes -= (size_t)wrote;
    }
    return RN_OK;
}

// Single keys, unseen, Ctrl-C among them; other signals as ever.
static bool enter_raw(struct termios *before) {
    if (tcgetattr(STDIN_FILENO, before) != 0) return false;
    struct termios raw = *before;
    raw.c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IXON);
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    raw.c_cc[VINTR] = _POSIX_VDISABLE;
    return tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

void hide_typing(line_editor *editor) {
    if (editor->hidden || tcgetattr(STDIN_FILENO, &editor->shown) != 0) return;
    struct termios silent = editor->shown;
    silent.c_lflag &= ~(tcflag_t)ECHO;
    editor->hidden = tcsetattr(STDIN_FILENO, TCSADRAIN, &silent) == 0;
}

void show_typing(line_editor *editor) {
    if (editor->hidden) (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &editor->shown);
    editor->hidden = false;
}

// ---- characters ---------------------------------------------------------------------------------

static uint32_t decode(const char *text, size_t bytes) {
    const unsigned char *b = (const unsigned char *)text;
    if (bytes == 2) return (uint32_t)(b[0] & 0x1F) << 6 | (b[1] & 0x3Fu);
    if (bytes == 3)
        return (uint32_t)(b[0] & 0x0F) << 12 | (uint32_t)(b[1] & 0x3F) << 6 | (b[2] & 0x3Fu);
    if (bytes == 4)
        return (uint32_t)(b[0] & 7) << 18 | (uint32_t)(b[1] & 0x3F) << 12 |
               (uint32_t)(b[2] & 0x3F) << 6 | (b[3] & 0x3Fu);
    return b[0];
}

static size_t next_letter(const text_buffer *line, size_t at) {
    if (at < line->bytes) at++;
    while (at < line->bytes && ((unsigned char)line->data[at] & 0xC0) == 0x80)
        at++;
    return at;
}

static size_t letter_before(const text_buffer *line, size_t at) {
    if (at) at--;
    while (at && ((unsigned char)line->data[at] & 0xC0) == 0x80)
        at--;
    return at;
}

// An accent and the like: it belongs to the letter before.
static bool is_mark(const text_buffer *line, size_t at) {
    if (at >= line->bytes || (unsigned char)line->data[at] < 0x80) return false;
    return rn_letter_columns(decode(line->data + at, next_letter(line, at) - at)) == 0;
}

static size_t next_character(const text_buffer *line, size_t at) {
    at = next_letter(line, at);
    while (is_mark(line, at))
        at = next_letter(line, at);
    return at;
}

static size_t character_before(const text_buffer *line, size_t at) {
    at = letter_before(line, at);
    while (at && is_mark(line, at))
        at = letter_before(line, at);
    return at;
}

// To where the word begins that is before, or ends that is behind.
static size_t word_before(const text_buffer *line, size_t at) {
    while (at && strchr(" \n", line->data[at - 1]))
        at--;
    while (at && !strchr(" \n", line->data[at - 1]))
        at--;
    return at;
}

static size_t word_behind(const text_buffer *line, size_t at) {
    while (at < line->bytes && strchr(" \n", line->data[at]))
        at++;
    while (at < line->bytes && !strchr(" \n", line->data[at]))
        at++;
    return at;
}

// ---- drawing ------------------------------------------------------------------------------------

typedef struct spot {
    unsigned row, column, columns;
} spot;

// Where the next character goes once this one of so many columns is written.
static void advance(spot *s, unsigned width) {
    if (s->column + width > s->columns) {
        s->row++;
        s->column = 0;
    }
    s->column += width;
}

// Text is added where its row is one of those that are shown; `out` NULL: only where it ends
// counts.
typedef struct canvas {
    text_buffer *out;
    spot at, cursor;
    unsigned first, last; // rows
} canvas;

static rn_status add(canvas *c, const char *text, size_t bytes, unsigned width) {
    advance(&c->at, width);
    bool shown = c->out && c->at.row >= c->first && c->at.row <= c->last;
    return shown ? append_text(c->out, text, bytes) : RN_OK;
}

static rn_status break_line(canvas *c) {
    bool shown = c->out && c->at.row >= c->first && c->at.row < c->last;
    c->at = (spot){c->at.row + 1, 0, c->at.columns};
    return shown ? append_text(c->out, "\r\n", 2) : RN_OK;
}

// The mark, and the line's characters, newlines as such.
static rn_status paint(const editing *e, canvas *c) {
    const text_buffer *line = e->line;
    for (const char *at = e->mark; *at; at++)
        RN_TRY(add(c, at, 1, 1));
    c->cursor = c->at;
    for (size_t i = 0, next; i < line->bytes; i = next) {
        next = next_letter(line, i);
        unsigned char first = (unsigned char)line->data[i];
        if (i == e->cursor) c->cursor = c->at;
        if (first == '\n')
            RN_TRY(break_line(c));
        else if (first < ' ' || first == 127) // a tab, or what a paste brought
            RN_TRY(add(c, " ", 1, 1));
        else
            RN_TRY(add(c, line->data + i, next - i,
                       rn_letter_columns(decode(line->data + i, next - i))));
    }
    if (e->cursor >= line->bytes) c->cursor = c->at;
    // A cursor behind the last column is at the beginning of the next row.
    if (c->cursor.column == c->cursor.columns)
        c->cursor = (spot){c->cursor.row + 1, 0, c->cursor.columns};
    return c->at.column == c->at.columns ? break_line(c) : RN_OK;
}

static rn_status move(text_buffer *out, unsigned count, char direction) {
    char text[32];
    if (count == 0) return RN_OK;
    return append_text(out, text,
                       (size_t)snprintf(text, sizeof text, "\x1b[%u%c", count, direction));
}

// Which rows are shown: those around the cursor, as few of them anew as can be.
static void choose_rows(editing *e, const canvas *measured) {
    unsigned rows = terminal_rows(), count = measured->at.row + 1, row = measured->cursor.row;
    if (count <= rows || e->finished || e->ended) {
        e->top = 0;
        return;
    }
    if (e->top > row) e->top = row;
    if (e->top + rows <= row) e->top = row - rows + 1;
    if (e->top + rows > count) e->top = count - rows;
}

static rn_status draw(editing *e) {
    text_buffer *out = &e->editor->draw;
    spot begin = {0, 0, terminal_columns()};
    canvas measured = {.at = begin}, drawn = {.out = out, .at = begin};
    unsigned before = e->top;
    RN_TRY(paint(e, &measured));
    // A terminal that has become wider or narrower has wrapped what stands there anew.
    if (e->columns && e->columns != begin.columns && measured.cursor.row >= before)
        e->row = measured.cursor.row - before;
    e->columns = begin.columns;
    choose_rows(e, &measured);
    bool whole = e->finished || e->ended;
    drawn.first = e->top;
    drawn.last = whole ? measured.at.row : e->top + terminal_rows() - 1;
    out->bytes = 0;
    RN_TRY(move(out, e->row, 'A'));
    RN_TRY(append_text(out, "\r\x1b[J", 4));
    RN_TRY(paint(e, &drawn));
    unsigned last = drawn.at.row < drawn.last ? drawn.at.row : drawn.last;
    if (memcmp(&drawn.cursor, &drawn.at, sizeof drawn.at) != 0) {
        RN_TRY(move(out, last - drawn.cursor.row, 'A'));
        RN_TRY(append_text(out, "\r", 1));
        RN_TRY(move(out, drawn.cursor.column, 'C'));
    }
    e->row = drawn.cursor.row - e->top;
    return put(out->data, out->bytes);
}

// ---- changing -----------------------------------------------------------------------------------

static rn_status insert(editing *e, const char *text, size_t bytes) {
    text_buffer *line = e->line;
    size_t behind = line->bytes - e->cursor;
    RN_TRY(append_text(line, text, bytes));
    memmove(line->data + e->cursor + bytes, line->data + e->cursor, behind);
    memcpy(line->data + e->cursor, text, bytes);
    e->cursor += bytes;
    return RN_OK;
}

static void delete_range(editing *e, size_t from, size_t to) {
    text_buffer *line = e->line;
    if (from >= to) return;
    memmove(line->data + from, line->data + to, line->bytes - to);
    line->bytes -= to - from;
    line->data[line->bytes] = 0;
    e->cursor = from;
}

static rn_status replace(text_buffer *line, const text_buffer *by) {
    line->bytes = 0;
    return append_text(line, by->data ? by->data : "", by->bytes);
}

// Up and down: what was being typed is kept behind the newest.
static rn_status recall(editing *e, int step) {
    line_editor *editor = e->editor;
    if (step < 0 ? e->shown == 0 : e->shown == editor->history_count) return RN_OK;
    if (e->shown == editor->history_count) RN_TRY(replace(&editor->kept, e->line));
    e->shown = step < 0 ? e->shown - 1 : e->shown + 1;
    RN_TRY(replace(e->line,
                   e->shown == editor->history_count ? &editor->kept : &editor->history[e->shown]));
    e->cursor = e->line->bytes;
    return RN_OK;
}

// ---- keys ---------------------------------------------------------------------------------------

static void press_end(editing *e) {
    if (e->line->bytes == 0)
        e->ended = true;
    else
        delete_range(e, e->cursor, next_character(e->line, e->cursor));
}

// Ctrl-C: what was typed goes. On an empty line it may have been meant for an answer that had just
// ended, so only the second one ends the conversation.
static rn_status press_break(editing *e) {
    static const char told[] = "\r\n(Ctrl-C again, Ctrl-D or /bye ends)\r\n";
    line_editor *editor = e->editor;
    if (editor->nested) {
        e->ended = editor->broken = true;
        return RN_OK;
    }
    if (e->line->bytes) {
        delete_range(e, 0, e->line->bytes);
        e->shown = editor->history_count;
        return RN_OK;
    }
    e->ended = editor->warned;
    if (editor->warned) return RN_OK;
    editor->warned = true;
    e->row = 0;
    return put(told, sizeof told - 1);
}

// One byte below 32, or 127.
static rn_status press_control(editing *e, char key) {
    switch (key) {
    case 3:
        return press_break(e);
    case '\r':
    case '\n':
        e->finished = true;
        break;
    case 1:
        e->cursor = 0;
        break;
    case 2:
        e->cursor = character_before(e->line, e->cursor);
        break;
    case 4:
        press_end(e);
        break;
    case 5:
        e->cursor = e->line->bytes;
        break;
    case 6:
        e->cursor = next_character(e->line, e->cursor);
        break;
    case 8:
    case 127:
        delete_range(e, character_before(e->line, e->cursor), e->cursor);
        break;
    case 11:
        delete_range(e, e->cursor, e->line->bytes);
        break;
    case 12: // as shells do: a clear screen
        e->row = 0;
        return put("\x1b[H\x1b[2J", 7);
    case 14:
        return recall(e, 1);
    case 16:
        return recall(e, -1);
    case 21:
        delete_range(e, 0, e->cursor);
        break;
    case 23:
        delete_range(e, word_before(e->line, e->cursor), e->cursor);
        break;
    case '\t':
        return insert(e, "    ", 4);
    default:
        break;
    }
    return RN_OK;
}

// Alt and a letter, as shells have it.
static rn_status press_alt(editing *e, char key) {
    if (key == '\r' || key == '\n') return insert(e, "\n", 1);
    if (key == 'b') e->cursor = word_before(e->line, e->cursor);
    if (key == 'f') e->cursor = word_behind(e->line, e->cursor);
    if (key == 'd') delete_range(e, e->cursor, word_behind(e->line, e->cursor));
    if (key == 127 || key == 8) delete_range(e, word_before(e->line, e->cursor), e->cursor);
    return RN_OK;
}

// The letter or number of an escape sequence. `by_word`: with Ctrl or Alt.
static rn_status press_escape(editing *e, char final, unsigned number, bool by_word) {
    if (by_word && final == 'C') return press_alt(e, 'f');
    if (by_word && final == 'D') return press_alt(e, 'b');
    switch (final == '~' ? (number == 1 || number == 7   ? 'H'
                            : number == 4 || number == 8 ? 'F'
                                                         : 0)
                         : final) {
    case 'A':
        return recall(e, -1);
    case 'B':
        return recall(e, 1);
    case 'C':
        e->cursor = next_character(e->line, e->cursor);
        break;
    case 'D':
        e->cursor = character_before(e->line, e->cursor);
        break;
    case 'H':
        e->cursor = 0;
        break;
    case 'F':
        e->cursor = e->line->bytes;
        break;
    default:
        break;
    }
    if (final != '~') return RN_OK;
    if (number == 3) delete_range(e, e->cursor, next_character(e->line, e->cursor));
    if (number == 200) e->pasting = true;
    if (number == 201) e->pasting = false;
    return RN_OK;
}

// An escape sequence from keys[0] == ESC on; *out_used 0: its end is not there yet.
static rn_status read_escape(editing *e, const char *keys, size_t bytes, size_t *out_used) {
    unsigned numbers[2] = {0}, at = 0; // a key, and what is held down with it
    *out_used = 0;
    if (bytes < 2) return RN_OK;
    if (keys[1] == 27) { // an Escape key that was followed by something
        *out_used = 1;
        return RN_OK;
    }
    if (keys[1] != '[' && keys[1] != 'O') {
        *out_used = 2;
        return press_alt(e, keys[1]);
    }
    for (size_t i = 2; i < bytes; i++) {
        if (keys[i] >= '0' && keys[i] <= '9' && numbers[at] < 10000)
            numbers[at] = numbers[at] * 10 + (unsigned)(keys[i] - '0');
        else if (keys[i] == ';')
            at = 1;
        if (keys[i] < '@' || keys[i] > '~') continue;
        *out_used = i + 1;
        return press_escape(e, keys[i], numbers[0], numbers[1] && ((numbers[1] - 1) & 6));
    }
    if (bytes > 32) *out_used = bytes; // none that there is
    return RN_OK;
}

static bool is_control(const editing *e, char key) {
    unsigned char k = (unsigned char)key;
    if (e->pasting && (key == '\r' || key == '\n' || key == '\t')) return false;
    return k < 32 || k == 127;
}

// Bytes up to the next key that is more than its text.
static rn_status type(editing *e, const char *keys, size_t bytes, size_t *out_used) {
    size_t end = 0;
    while (end < bytes && !is_control(e, keys[end]))
        end++;
    *out_used = end;
    for (size_t i = 0; i < end; i++) {
        bool crlf = keys[i] == '\r' && i + 1 < end && keys[i + 1] == '\n';
        if (!crlf) RN_TRY(insert(e, keys[i] == '\r' ? "\n" : &keys[i], 1));
    }
    return RN_OK;
}

// Takes keys until the line is finished or none is left; what is left waits.
static rn_status take_keys(editing *e) {
    line_editor *editor = e->editor;
    size_t at = 0, used = 1;
    rn_status s = RN_OK;
    while (s == RN_OK && used && at < editor->ahead_bytes && !e->finished && !e->ended) {
        const char *keys = editor->ahead + at;
        size_t bytes = editor->ahead_bytes - at;
        if (keys[0] != 3) editor->warned = false;
        if (keys[0] == 27) {
            s = read_escape(e, keys, bytes, &used);
        } else if (is_control(e, keys[0])) {
            used = 1;
            s = press_control(e, keys[0]);
        } else {
            s = type(e, keys, bytes, &used);
        }
        at += used;
    }
    editor->ahead_bytes -= at;
    memmove(editor->ahead, editor->ahead + at, editor->ahead_bytes);
    return s;
}

// An Escape key alone is followed by nothing.
static void drop_lone_escape(line_editor *editor) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    if (editor->ahead_bytes == 1 && editor->ahead[0] == 27 && poll(&in, 1, 50) == 0)
        editor->ahead_bytes = 0;
}

static rn_status edit(editing *e) {
    line_editor *editor = e->editor;
    for (;;) {
        RN_TRY(take_keys(e));
        if (e->finished || e->ended) break;
        if (!e->pasting) RN_TRY(draw(e));
        drop_lone_escape(editor);
        ssize_t got = read(STDIN_FILENO, editor->ahead + editor->ahead_bytes,
                           sizeof editor->ahead - editor->ahead_bytes);
        if (got < 0 && errno == EINTR && !interrupted) continue; // the window's size
        if (got <= 0) {
            e->ended = !interrupted;
            break;
        }
        editor->ahead_bytes += (size_t)got;
    }
    editor->warned = false;
    e->finished = true;
    e->cursor = e->line->bytes;
    RN_TRY(draw(e));
    return put("\r\n", 2);
}

// ---- a line -------------------------------------------------------------------------------------

rn_status edit_line(line_editor *editor, const char *mark, text_buffer *out, bool *out_more) {
    struct termios before;
    editing e = {.editor = editor, .mark = mark, .line = out, .shown = editor->history_count};
    out->bytes = 0;
    *out_more = true;
    editor->broken = false;
    RN_TRY(append_text(out, "", 0));
    if (!enter_raw(&before))
        return rn_fail(RN_IO, "the terminal cannot be set: %s", strerror(errno));
    rn_status s = put("\x1b[?2004h", 8);
    if (s == RN_OK) s = edit(&e);
    if (s == RN_OK) s = put("\x1b[?2004l", 8);
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    *out_more = !e.ended;
    return s;
}

rn_status remember_line(line_editor *editor, const text_buffer *line) {
    size_t count = editor->history_count;
    const text_buffer *last = count ? &editor->history[count - 1] : NULL;
    if (last && last->bytes == line->bytes && memcmp(last->data, line->data, line->bytes) == 0)
        return RN_OK;
    if (count == LINE_HISTORY) {
        free_text(&editor->history[0]);
        memmove(editor->history, editor->history + 1, (count - 1) * sizeof *editor->history);
        editor->history[--editor->history_count] = (text_buffer){0};
    }
    RN_TRY(append_text(&editor->history[editor->history_count], line->data, line->bytes));
    editor->history_count++;
    return RN_OK;
}

void free_line_editor(line_editor *editor) {
    for (size_t i = 0; i < LINE_HISTORY; i++)
        free_text(&editor->history[i]);
    free_text(&editor->kept);
    free_text(&editor->draw);
}
