/* SPDX-License-Identifier: Apache-2.0 */
/* How names of classes and columns look to a person. */
#ifndef SNUG_DATA_LABEL_NAMES_H
#define SNUG_DATA_LABEL_NAMES_H

#include "core/context.h"

enum { SNUG_NAME_SHOWN = 160 }; /* bytes, the end of a longer name is "…" */

/* A name in quotes. Blanks other than a space, and what cannot be seen, become \u00a0 and the like; with ascii all that
   is not ASCII does. Returns out. */
const char *snug_name_quote(char out[SNUG_NAME_SHOWN], const char *name, bool ascii);
/* As snug_name_quote(), but a class's name that consists of letters, digits and _-.+/ is shown without quotes; a
   column's name may also have single blanks and :()# in it. */
const char *snug_name_show(char out[SNUG_NAME_SHOWN], const char *name);
const char *snug_column_show(char out[SNUG_NAME_SHOWN], const char *name);

/* In what two names differ that a person hardly tells apart: "in blanks", "in upper and lower case", "in the form of
   their characters" (also in those that cannot be seen), or in several of these; or that they are one number ("in how
   a number is written"). NULL if they are equal, or differ in anything else. */
snug_status snug_names_differ(snug_context *ctx, const char *a, const char *b, const char **out);
/* What all names have in common that differ only so. Freed by the caller. */
snug_status snug_name_fold(snug_context *ctx, const char *name, char **out);

#endif
