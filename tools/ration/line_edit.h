// line_edit.h — a line typed on a terminal: the cursor moves, older lines come back, texts of
// several lines can be pasted. Where standard input is no terminal there is read_line.
//
//     line_editor editor = {0};
//     while (edit_line(&editor, "> ", &line, &more) == RN_OK && more) ...
//     free_line_editor(&editor);
#ifndef RATION_TOOL_LINE_EDIT_H
#define RATION_TOOL_LINE_EDIT_H

#include "run.h"

#include <termios.h>

enum { LINE_HISTORY = 500, LINE_AHEAD = 4096 };

typedef struct line_editor {
    text_buffer history[LINE_HISTORY]; // the oldest first; of this conversation only
    size_t history_count;
    char ahead[LINE_AHEAD]; // typed behind the last line already
    size_t ahead_bytes;
    text_buffer kept; // what was being typed, while an older line is shown
    text_buffer draw; // what goes to the terminal in one write
    bool warned;      // Ctrl-C was pressed on an empty line
    bool nested;      // the line is one of a text's several: Ctrl-C ends all of it ...
    bool broken;      // ... and has
    bool hidden;      // see hide_typing
    struct termios shown;
} line_editor;

// Whether lines can be edited: both ends are a terminal that knows how to move its cursor.
bool can_edit_lines(void);
// Shows `mark` and reads a line into `out`, without its end; it may hold newlines (pasted, or
// Alt-Enter). *out_more is false where the input has ended (Ctrl-D on an empty line, or Ctrl-C
// twice). Ctrl-C is a key here, which empties the line; a signal ends it with what was typed so
// far, and `interrupted` tells.
rn_status edit_line(line_editor *editor, const char *mark, text_buffer *out, bool *out_more);
// A line to come back to with the arrow keys; the same one twice is kept once.
rn_status remember_line(line_editor *editor, const text_buffer *line);
// What is typed from here on is not shown among what others write; the next line begins with it.
void hide_typing(line_editor *editor);
void show_typing(line_editor *editor);
void free_line_editor(line_editor *editor);
// Columns of the terminal; 80 where nobody knows.
unsigned terminal_columns(void);

#endif
