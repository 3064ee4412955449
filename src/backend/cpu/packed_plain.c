// packed_plain.c — panels of a plain weight, made by the task that multiplies them.
#include "backend/cpu/packed.h"
#include "backend/cpu/packed_product.h"

#include "base/checked.h"

bool rn_packed_plain_works(const rn_tensor *w) {
    rn_plain_components parts;
    rn_panels panels;
    return w->layout == RN_LAYOUT_PLAIN && w->shape.rank == 2 &&
           rn_panels_of(w->dtype, w->shape.dims[0], w->shape.dims[1], &panels) &&
           rn_plain_components_of(w->dtype, w->shape.dims[0], w->shape.dims[1], &parts) &&
           parts.bytes[RN_COMPONENT_SCALE] == 0;
}

uint64_t rn_packed_room(const rn_packed_product *p, uint64_t panels) {
    return p->plain ? panels * p->panels.panel_bytes : 0;
}

const uint8_t *rn_packed_panels(const rn_packed_product *p, uint64_t panel, uint64_t panels,
                                void *room) {
    if (!p->plain) return p->weights + panel * p->panels.panel_bytes;
    uint64_t row = panel * RN_PANEL_ROWS, rows = rn_min_u64(panels * RN_PANEL_ROWS, p->n - row);
    uint64_t row_bytes = 0;
    rn_packer packer;
    rn_status s = rn_packer_begin(&packer, p->panels.dtype, rows, p->k, room);
    if (s == RN_OK && rn_dtype_bytes(p->panels.dtype, p->k, &row_bytes))
        s = rn_packer_take(&packer, RN_COMPONENT_DATA, 0, p->weights + row * row_bytes,
                           rows * row_bytes);
    (void)s; // some rows of a weight that has panels have panels
    return room;
}
