// page_assets.c — the assembler includes the files where they lie in the source tree
// (RATION_PROFILE_PAGE, from CMake), so that nothing is generated or compiled.
#include "profile/page/page_assets.h"

// A symbol at the file's first byte and one behind its last.
#define INCLUDE_FILE(symbol, file)                                                                 \
    __asm__(".pushsection .rodata\n" #symbol ":\n"                                                 \
            ".incbin \"" RATION_PROFILE_PAGE "/" file "\"\n" #symbol "_end:\n"                     \
            ".byte 0\n"                                                                            \
            ".popsection\n");                                                                      \
    extern const char symbol[], symbol##_end[]

INCLUDE_FILE(rn_page_html_file, "page.html");
INCLUDE_FILE(rn_page_css_file, "page.css");
INCLUDE_FILE(rn_page_text_file, "text.js");
INCLUDE_FILE(rn_page_data_file, "data.js");
INCLUDE_FILE(rn_page_series_file, "series.js");
INCLUDE_FILE(rn_page_rows_file, "rows.js");
INCLUDE_FILE(rn_page_query_file, "query.js");
INCLUDE_FILE(rn_page_view_file, "view.js");
INCLUDE_FILE(rn_page_memory_file, "memory.js");
INCLUDE_FILE(rn_page_addresses_file, "addresses.js");
INCLUDE_FILE(rn_page_lanes_file, "lanes.js");
INCLUDE_FILE(rn_page_minimap_file, "minimap.js");
INCLUDE_FILE(rn_page_facts_file, "facts.js");
INCLUDE_FILE(rn_page_stacks_file, "stacks.js");
INCLUDE_FILE(rn_page_panel_file, "panel.js");
INCLUDE_FILE(rn_page_header_file, "header.js");
INCLUDE_FILE(rn_page_search_file, "search.js");
INCLUDE_FILE(rn_page_input_file, "input.js");
INCLUDE_FILE(rn_page_main_file, "main.js");

#define FILE_OF(symbol)                                                                            \
    { symbol, symbol##_end }

static const struct {
    const char *begin, *end;
} scripts[] = {
    FILE_OF(rn_page_text_file),  FILE_OF(rn_page_data_file),    FILE_OF(rn_page_series_file),
    FILE_OF(rn_page_rows_file),  FILE_OF(rn_page_query_file),   FILE_OF(rn_page_view_file),
    FILE_OF(rn_page_facts_file), FILE_OF(rn_page_memory_file),  FILE_OF(rn_page_addresses_file),
    FILE_OF(rn_page_lanes_file), FILE_OF(rn_page_minimap_file), FILE_OF(rn_page_stacks_file),
    FILE_OF(rn_page_panel_file), FILE_OF(rn_page_header_file),  FILE_OF(rn_page_search_file),
    FILE_OF(rn_page_input_file), FILE_OF(rn_page_main_file),
};

static rn_str between(const char *begin, const char *end) {
    return (rn_str){begin, (size_t)(end - begin)};
}

rn_str rn_page_html(void) {
    return between(rn_page_html_file, rn_page_html_file_end);
}

rn_str rn_page_css(void) {
    return between(rn_page_css_file, rn_page_css_file_end);
}

rn_str rn_page_script(size_t index) {
    if (index >= sizeof scripts / sizeof *scripts) return (rn_str){"", 0};
    return between(scripts[index].begin, scripts[index].end);
}
