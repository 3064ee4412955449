// openapi.c — the description of the server's HTTP interface: the assembler includes the file where
// it lies in the source tree (RATION_SERVER_ASSETS, from CMake).
#include "server/server.h"

__asm__(".pushsection .rodata\n"
        "rn_openapi_file:\n"
        ".incbin \"" RATION_SERVER_ASSETS "/openapi.json\"\n"
        "rn_openapi_file_end:\n"
        ".byte 0\n"
        ".popsection\n");
extern const char rn_openapi_file[], rn_openapi_file_end[];

rn_status rn_handle_openapi(rn_server *server, const rn_http_request *request,
                            rn_http_answer *answer) {
    (void)server, (void)request;
    const char *begin = rn_openapi_file, *end = rn_openapi_file_end;
    answer->borrowed = (rn_str){begin, (size_t)(end - begin)};
    return RN_OK;
}
