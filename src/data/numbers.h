/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as data files write them. */
#ifndef SNUG_DATA_NUMBERS_H
#define SNUG_DATA_NUMBERS_H

#include <locale.h>

#include "core/context.h"

enum { SNUG_WHOLE_DIGITS = 15, SNUG_WHOLE_SIZE = SNUG_WHOLE_DIGITS + 2 };

/* Whether a text is a decimal number as a whole: no hexadecimal, "nan" or "inf". Only digits, and what
   snug_whole_number() accepts, is an integer. */
enum snug_number_kind { SNUG_NUMBER_NONE, SNUG_NUMBER_INTEGER, SNUG_NUMBER_REAL };
enum snug_number_kind snug_number_kind(const char *text);
/* Whether a text is a whole number of at most 15 digits, which a double holds exactly: "1", "1.0", "1.", "1e0". Writes
   it as an integer. */
bool snug_whole_number(const char *text, char out[SNUG_WHOLE_SIZE]);
/* Whether a text is a number with a comma: "3,5", "-1.234,5", "1 234,5", "1,234.5"; or several numbers, "1,2,3". */
bool snug_has_number_comma(const char *text);

/* The C locale, in which numbers are read: a program around the library may have set one with decimal commas. */
snug_status snug_plain_locale(snug_context *ctx, locale_t *out);

#endif
