/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of reranking, as sentence-transformers' CrossEncoder takes them: a query with a document, or with several. */
#ifndef SNUG_DATA_RANKINGS_H
#define SNUG_DATA_RANKINGS_H

#include "data/object_rows.h"

extern const struct snug_object_rows snug_ranking_rows;

#endif
