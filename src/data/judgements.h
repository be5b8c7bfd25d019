/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The relevance judgements of a retrieval: which documents of a corpus are relevant to which queries, in files as
 * BEIR's, of any format with columns: queries and corpus have identifiers in "_id" (or "id"), judgements the columns
 * query-id, corpus-id and score. A score above 0 is relevant; without the column every judgement is.
 */
#ifndef SNUG_DATA_JUDGEMENTS_H
#define SNUG_DATA_JUDGEMENTS_H

#include "core/context.h"

struct snug_retrieval_files {
    const char *queries, *corpus, *relevance;
    bool strict; /* as snug_reader_options */
};

struct snug_judgements {
    int64_t queries;                 /* that have a relevant document */
    int64_t *rows;                   /* [queries] of the file of queries, ascending */
    int64_t *begin;                  /* [queries + 1] of documents */
    int64_t *documents;              /* rows of the corpus, of each query ascending */
    int64_t query_rows, corpus_rows; /* of the files */
    bool titled;                     /* the corpus has a column "title" */
};

/* At most `most` queries, the first ones; -1: all. Identifiers that are in no file or in two rows, and judgements
   without a relevant document, are SNUG_E_INPUT. Of documents that no judgement names identifiers are not compared.
   Freed in any case. */
snug_status snug_judgements_read(snug_context *ctx, const struct snug_retrieval_files *files, int64_t most,
                                 struct snug_judgements *out);
void snug_judgements_free(struct snug_judgements *judgements);
/* Whether a document is relevant to a query, by their numbers. */
bool snug_judgements_has(const struct snug_judgements *judgements, int64_t query, int64_t document);

/* A checksum of all of them. */
uint64_t snug_judgements_digest(const struct snug_judgements *judgements);

#endif
