// conform_compare.h — whether two tensors are the same, or near enough.
#ifndef RN_TEST_CONFORM_COMPARE_H
#define RN_TEST_CONFORM_COMPARE_H

#include "conform.h"

// |is - must| <= tolerance * (|must| + the mean of |must|) + absolute: a sum's rounding error is of
// the size of its terms, so an element that came out small may be off by a little of the others.
// Whole numbers, quantised blocks and tolerance 0 ask for the same bytes. NaN equals nothing.
bool conform_near(const rn_tensor *must, const void *is, conform_fact near, conform_why *why);

#endif
