// page_view.c — the page at /: three files, from this server and nowhere else. The assembler
// includes them where they lie in the source tree (RATION_SERVER_PAGE, from CMake); the scripts,
// one behind the other, are one file to a browser.
#include "server/server.h"

#include <string.h>

#define BEGIN_FILE(symbol) ".pushsection .rodata\n" symbol ":\n"
#define INCLUDE(file)      ".incbin \"" RATION_SERVER_PAGE "/" file "\"\n"
#define END_FILE(symbol)   symbol "_end:\n.byte 0\n.popsection\n"

__asm__(BEGIN_FILE("rn_serve_html") INCLUDE("page.html") END_FILE("rn_serve_html"));
__asm__(BEGIN_FILE("rn_serve_css") INCLUDE("page.css") END_FILE("rn_serve_css"));
__asm__(BEGIN_FILE("rn_serve_js") INCLUDE("text.js") INCLUDE("server.js") INCLUDE("picture.js")
            INCLUDE("numbers.js") INCLUDE("watch.js") INCLUDE("settings.js") INCLUDE("markdown.js")
                INCLUDE("chat.js") INCLUDE("draw.js") INCLUDE("main.js") END_FILE("rn_serve_js"));
extern const char rn_serve_html[], rn_serve_html_end[];
extern const char rn_serve_css[], rn_serve_css_end[];
extern const char rn_serve_js[], rn_serve_js_end[];

// Nothing but these files and this server's answers; no script and no style within the markup, so
// that no text which slips into it could be one.
static const char policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src "
                             "'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                             "frame-ancestors 'none'";

static const struct {
    const char *path, *type, *begin, *end;
} files[] = {
    {"/", "text/html; charset=utf-8", rn_serve_html, rn_serve_html_end},
    {"/page.css", "text/css; charset=utf-8", rn_serve_css, rn_serve_css_end},
    {"/page.js", "text/javascript; charset=utf-8", rn_serve_js, rn_serve_js_end},
};

rn_status rn_handle_page(rn_server *server, const rn_http_request *request,
                         rn_http_answer *answer) {
    (void)server;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (strcmp(request->path, files[i].path) != 0) continue;
        answer->borrowed = (rn_str){files[i].begin, (size_t)(files[i].end - files[i].begin)};
        answer->type = files[i].type;
        answer->policy = policy;
        return RN_OK;
    }
    return rn_fail(RN_INTERNAL, "a route of the page has no file: %s", request->path);
}
