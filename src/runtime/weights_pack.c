// weights_pack.c — one weight from the bytes of a file to the layout that the plan chose.
#include "runtime/weights_internal.h"

#include <string.h>

void rn_matrix_of(const rn_value_info *info, uint64_t *rows, uint64_t *cols) {
    *rows = info->shape.rank >= 2 ? info->shape.dims[0] : 1;
    *cols = *rows ? rn_shape_elements(info->shape, 1) / *rows : 0;
}

rn_status rn_weight_components(const rn_value_info *info, rn_plain_components *out) {
    uint64_t rows, cols;
    rn_matrix_of(info, &rows, &cols);
    if (rn_plain_components_of(info->dtype, rows, cols, out)) return RN_OK;
    return rn_fail(RN_INVALID, "weight '%s': %s has no %s form", info->name,
                   rn_shape_format(info->shape).text, rn_dtype_get(info->dtype)->name);
}

rn_status rn_packing_begin(const rn_plan *plan, rn_value value, uint8_t *target,
                           rn_workers *workers, rn_packing *out) {
    const rn_value_info *info = rn_graph_value(plan->graph, value);
    *out = (rn_packing){.value = value, .target = target, .layout = plan->places[value].layout};
    RN_TRY(rn_weight_components(info, &out->components));
    if (!out->layout) return RN_OK;
    return out->layout->begin(&out->packer, info->dtype, info->shape.dims, info->shape.rank,
                              workers, target);
}

// Pieces are of whole elements: they are cut at even places.
static rn_status widen(const rn_packing *p, uint64_t offset, const void *data, uint64_t bytes) {
    float *target = (float *)(void *)p->target + offset / sizeof(uint16_t);
    return rn_dtype_to_f32(p->narrow, data, target, bytes / sizeof(uint16_t));
}

rn_status rn_packing_take(rn_packing *p, rn_component component, uint64_t offset, const void *data,
                          uint64_t bytes) {
    if (p->layout) return p->layout->take(&p->packer, component, offset, data, bytes);
    if (p->narrow != RN_DTYPE_NONE) return widen(p, offset, data, bytes);
    memcpy(p->target + p->components.offset[component] + offset, data, bytes);
    return RN_OK;
}

rn_status rn_weights_pack(const rn_plan *plan, rn_value value, const void *plain, uint8_t *target) {
    rn_packing p;
    RN_TRY(rn_packing_begin(plan, value, target, NULL, &p));
    for (rn_component component = 0; component < RN_COMPONENT_COUNT; component++)
        if (p.components.bytes[component])
            RN_TRY(rn_packing_take(&p, component, 0,
                                   (const uint8_t *)plain + p.components.offset[component],
                                   p.components.bytes[component]));
    return RN_OK;
}
