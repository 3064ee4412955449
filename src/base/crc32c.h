// crc32c.h — CRC-32C (Castagnoli): a checksum against damage, not against intent.
#ifndef RN_BASE_CRC32C_H
#define RN_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

// Of all bytes up to these; before: what the bytes before them gave, 0 for the first.
uint32_t rn_crc32c(uint32_t before, const void *data, size_t bytes);

#endif
