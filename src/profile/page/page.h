// page.h — a timeline as one HTML file that needs nothing else: no network, no server, no library.
//
//     page/page.html with its style and scripts, as they lie in the source tree
//       + the timeline: texts as JSON, numbers as base64 columns (page_columns.h)
//
// Everything that is drawn is computed in the page from these columns; see page/README.md.
#ifndef RN_PROFILE_PAGE_H
#define RN_PROFILE_PAGE_H

#include "profile/timeline.h"

// `t` is finished. Texts of the recording, whatever they hold, arrive as text and never as markup.
RN_MUST_USE rn_status rn_page_write(const rn_timeline *t, rn_sink sink);

#endif
