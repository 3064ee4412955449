// export.c — the forms by number: one row, one file.
#include "profile/export/export.h"

#include "profile/page/page.h"

static const struct {
    const char *name;
    rn_status (*write)(const rn_timeline *t, rn_sink sink);
} forms[RN_EXPORT_COUNT] = {
    [RN_EXPORT_HTML] = {"html", rn_page_write},
    [RN_EXPORT_JSON] = {"json", rn_export_json},
    [RN_EXPORT_CHROME] = {"chrome", rn_export_chrome},
    [RN_EXPORT_TORCH] = {"torch", rn_export_torch},
    [RN_EXPORT_CSV] = {"csv", rn_export_csv},
    [RN_EXPORT_PROMETHEUS] = {"prometheus", rn_export_prometheus},
    [RN_EXPORT_PPROF] = {"pprof", rn_export_pprof},
};

const char *rn_export_name(rn_export form) {
    return (size_t)form < RN_EXPORT_COUNT ? forms[form].name : "";
}

rn_status rn_timeline_export(const rn_timeline *timeline, rn_export form, rn_sink sink) {
    if ((size_t)form >= RN_EXPORT_COUNT)
        return rn_fail(RN_INVALID, "there is no export form %d", (int)form);
    return forms[form].write(timeline, sink);
}
