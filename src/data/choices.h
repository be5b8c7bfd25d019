/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of multiple choice, in run_swag.py's columns or as a question with a list of choices. */
#ifndef SNUG_DATA_CHOICES_H
#define SNUG_DATA_CHOICES_H

#include "data/object_rows.h"

extern const struct snug_object_rows snug_choice_rows;

#endif
