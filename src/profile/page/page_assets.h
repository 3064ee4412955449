// page_assets.h — the files of page/ as bytes of the library.
#ifndef RN_PROFILE_PAGE_ASSETS_H
#define RN_PROFILE_PAGE_ASSETS_H

#include <ration/text.h>

// Has the lines "<!-- style -->", "<!-- data -->" and "<!-- scripts -->", once each, in this order.
rn_str rn_page_html(void);
rn_str rn_page_css(void);
// The scripts in the order in which they build on each other; an empty text is behind the last.
rn_str rn_page_script(size_t index);

#endif
