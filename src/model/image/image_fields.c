// image_fields.c — lists in the configurations of image networks: one number a level.
#include "model/image/image_networks.h"

rn_status rn_image_read_levels(const rn_fields *f, const char *name, uint32_t *out,
                               uint32_t *out_count) {
    const rn_field *list = rn_fields_find(f, name);
    if (!list || list->kind != RN_FIELD_LIST || list->count == 0 || list->count > RN_IMAGE_LEVELS)
        return rn_fail(RN_CORRUPT, "%s: %s must be a list of 1 to %d numbers", f->source, name,
                       (int)RN_IMAGE_LEVELS);
    *out_count = (uint32_t)list->count;
    for (uint32_t i = 0; i < *out_count; i++)
        RN_TRY(rn_fields_need_u32(f, rn_image_named("%s.%u", name, i).text, &out[i]));
    return RN_OK;
}

rn_status rn_image_read_each(const rn_fields *f, const char *name, uint32_t count,
                             uint32_t otherwise, uint32_t *out) {
    const rn_field *field = rn_fields_find(f, name);
    uint32_t all = otherwise, given = 0;
    if (field && field->kind == RN_FIELD_LIST) {
        RN_TRY(rn_image_read_levels(f, name, out, &given));
        if (given < count)
            return rn_fail(RN_CORRUPT, "%s: %s has %u numbers, there are %u levels", f->source,
                           name, given, count);
        return RN_OK;
    }
    RN_TRY(rn_fields_u32(f, name, &all));
    for (uint32_t i = 0; i < count; i++)
        out[i] = all;
    return RN_OK;
}
