// preview.h — pictures while they are drawn: on a terminal that can show them, else as a PNG file
// that is replaced each time.
#ifndef RATION_TOOLS_PREVIEW_H
#define RATION_TOOLS_PREVIEW_H

#include "command.h"

#include <ration/image.h>

enum { PREVIEW_SIDE = 256 }; // pixels, at most

typedef enum preview_form { PREVIEW_NONE, PREVIEW_KITTY, PREVIEW_SIXEL, PREVIEW_PNG } preview_form;

typedef struct preview {
    preview_form form;
    uint32_t every; // steps
    uint32_t rows;  // of the terminal, that the last picture has; 0: none was shown
    char path[4200];
} preview;

// By --preview, --preview-every and --preview-as; `output` is the picture's own file. A terminal is
// asked what it can show.
rn_status preview_begin(const invocation *in, const char *output, preview *out);
bool preview_is_due(const preview *p, uint32_t step, uint32_t steps);
rn_status preview_show(preview *p, const rn_image *image);
// What follows stands below the picture.
void preview_end(preview *p);

#endif
