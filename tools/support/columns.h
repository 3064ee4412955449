// columns.h — how many columns of a terminal a character takes.
#ifndef RN_SUPPORT_COLUMNS_H
#define RN_SUPPORT_COLUMNS_H

#include <stdint.h>

// 0 for marks that sit on the character before, 2 for East Asian wide ones and most emoji.
unsigned rn_letter_columns(uint32_t letter);

#endif
