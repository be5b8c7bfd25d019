/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of UTF-8: files and names may be malformed. snug_escape() of snug.h is implemented here too. */
#ifndef SNUG_CORE_UTF8_H
#define SNUG_CORE_UTF8_H

#include "snug.h"

/* Offset of the first byte that is not well-formed UTF-8 (surrogates, overlong forms and > U+10FFFF included); length
 * if all is well-formed. */
size_t snug_utf8_invalid(const char *text, size_t length);
/* Bytes of the sequence at text (length > 0 bytes left): a well-formed character, or the longest prefix of one, at
   least a byte, which is what one U+FFFD replaces (Unicode 15, section 3.9, "maximal subparts"). */
size_t snug_utf8_sequence(const unsigned char *text, size_t length, bool *well_formed);

/* The length of text without an incomplete character at its end. */
size_t snug_utf8_cut(const char *text, size_t length);

#endif
