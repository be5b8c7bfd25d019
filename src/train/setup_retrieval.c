/* SPDX-License-Identifier: Apache-2.0 */
/* The data of a retrieval: queries that are judged, then all documents, each text one sequence. */
#include <stdlib.h>
#include <string.h>

#include "data/used_rows.h"
#include "model/sentence.h"
#include "train/setup_impl.h"

/* As encode_query() and encode_document(): the model's prompt of this name, not its default. Their other names of a
   document's prompt, passage and corpus, are never reached, because every model has the name document. */
static const char *prompt_of(const struct snug_setup *setup, const char *given, const char *name) {
    const json_t *prompts = json_object_get(setup->config.sentence->settings, "prompts");
    const char *prompt = given ? given : json_string_value(json_object_get(prompts, name));
    return prompt ? prompt : "";
}

/* rows: of the file, when its identifiers were read. */
static snug_status open_texts(struct snug_setup *setup, const char *path, const char *columns, const char *prompt,
                              int64_t rows, struct snug_dataset **out) {
    struct snug_dataset_options options = snug_setup_texts(setup);
    options.path = path;
    options.text_columns = columns;
    options.text_column = options.text_pair_column = options.label_column = NULL;
    options.text_delimiter = " ";
    options.joins_texts = strchr(columns, ',') != NULL;
    options.prompt = prompt;
    options.overwrite_cache = setup->args->overwrite_cache;
    options.threads = setup->threads;
    RETURN_IF_ERROR(snug_dataset_open(setup->ctx, setup->tokenizer, &options, out));
    if (snug_dataset_rows(*out) == rows) return SNUG_OK;
    return snug_fail(setup->ctx, SNUG_E_INPUT,
                     "%s: of its %lld rows %lld have tokens: give each row a text, or start again if the file changed "
                     "while it was read",
                     path, (long long)rows, (long long)snug_dataset_rows(*out));
}

static snug_status open_queries(struct snug_setup *setup, const char *prompt) {
    const struct snug_judgements *judgements = &setup->judgements;
    struct snug_data_source *source = &setup->eval;
    const char *path = setup->args->queries_file;
    RETURN_IF_ERROR(open_texts(setup, path, "text", prompt, judgements->query_rows, &source->dataset));
    RETURN_IF_ERROR(snug_dataset_use_rows(setup->ctx, source->dataset, judgements->rows, judgements->queries));
    return snug_setup_take_source(setup, path, source);
}

static snug_status open_documents(struct snug_setup *setup, const char *prompt) {
    const struct snug_judgements *judgements = &setup->judgements;
    struct snug_data_source source = {.rows = 0};
    const char *path = setup->args->corpus_file;
    snug_status status = open_texts(setup, path, judgements->titled ? "title,text" : "text", prompt,
                                    judgements->corpus_rows, &source.dataset);
    if (status == SNUG_OK) status = snug_setup_take_source(setup, path, &source);
    if (status != SNUG_OK) {
        snug_dataset_close(source.dataset);
        return status;
    }
    RETURN_IF_ERROR(snug_dataset_append(setup->ctx, setup->eval.dataset, source.dataset));
    setup->eval.rows += source.rows;
    return SNUG_OK;
}

static void tell(const struct snug_setup *setup, const char *query, const char *document) {
    const struct snug_judgements *judgements = &setup->judgements;
    char prompts[256] = "";
    if (*query || *document)
        snprintf(prompts, sizeof prompts, "; after the prompts \"%s\" and \"%s\"", query, document);
    snug_log(setup->ctx, SNUG_LOG_INFO, "retrieval: %lld queries that are judged, of %lld, and %lld documents%s",
             (long long)judgements->queries, (long long)judgements->query_rows, (long long)judgements->corpus_rows,
             prompts);
}

snug_status snug_setup_open_retrieval(struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    const struct snug_retrieval_files files = {.queries = args->queries_file,
                                               .corpus = args->corpus_file,
                                               .relevance = args->relevance_file,
                                               .strict = args->strict};
    const char *query = prompt_of(setup, args->query_prompt, "query");
    const char *document = prompt_of(setup, args->corpus_prompt, "document");
    RETURN_IF_ERROR(snug_judgements_read(setup->ctx, &files, args->max_eval_samples, &setup->judgements));
    RETURN_IF_ERROR(open_queries(setup, query));
    RETURN_IF_ERROR(open_documents(setup, document));
    setup->eval.bytes = -1;
    tell(setup, query, document);
    return SNUG_OK;
}
