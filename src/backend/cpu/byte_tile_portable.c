// byte_tile_portable.c — products of bytes in plain C, and which level's tiles are used.
#include "backend/cpu/byte_tile.h"

#include "base/cpu.h"

#define BYTE(name) portable_##name
#include "backend/cpu/byte_row_body.h"

static void run(const rn_byte_tile *t) {
    for (uint32_t i = 0; i < t->rows; i++) {
        const uint8_t *a = t->a + i * t->a_row;
        const int8_t *b = (const int8_t *)t->b;
        uint32_t sums[16] = {0};
        for (size_t k = 0; k < t->depth; k += 4, b += 64)
            for (int j = 0; j < 16; j++)
                sums[j] += (uint32_t)(a[k] * b[4 * j] + a[k + 1] * b[4 * j + 1] +
                                      a[k + 2] * b[4 * j + 2] + a[k + 3] * b[4 * j + 3]);
        memcpy(t->sums + i * RN_BYTE_COLUMNS, sums, sizeof sums);
    }
}

const rn_byte_set rn_byte_portable = {.rows = 4,
                                      .panels = 1,
                                      .row_unit = 1,
                                      .run = run,
                                      .finish = portable_finish,
                                      .pack_row = portable_pack_row};

const rn_byte_set *rn_byte_set_get(uint64_t rows) {
#if defined(__x86_64__)
    enum { FEW = 8 }; // rows for which loading a matrix unit's tiles does not pay
    if (rows > FEW && rn_cpu_has_amx()) return &rn_byte_amx;
    if (rn_cpu_has_vnni()) return &rn_byte_vnni;
    if (rn_cpu_has_avxvnni()) return &rn_byte_avxvnni;
    if (rn_cpu_level_get() != RN_CPU_PORTABLE) return &rn_byte_avx2;
#endif
    (void)rows;
    return &rn_byte_portable;
}
