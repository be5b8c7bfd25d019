/* SPDX-License-Identifier: Apache-2.0 */
/* Brings the files of a model that snug reads from a Hugging Face hub into the local cache. */
#ifndef SNUG_HUB_FETCH_PULL_H
#define SNUG_HUB_FETCH_PULL_H

#include "hub/cache.h"

/* The files that a model of a kind must have. */
struct snug_pull_kind {
    const char *config;
    const char *weights; /* in one file, */
    const char *index;   /* or else its index: JSON with "weight_map"; NULL: no index */
};

struct snug_pull_options {
    const char *name; /* of the model: NAME or ORG/NAME */
    struct snug_hub_place place;
    const struct snug_pull_kind *kinds; /* the first one whose files the hub has; its messages name the first kind */
    size_t kind_count;
    const char *const *others; /* files that are fetched where the model has them */
    size_t other_count;
    double retry_seconds; /* before the first repetition of a request */
    double slow_seconds;  /* over which the rate of a file is measured, see hub/fetch/http.h */
    double file_seconds;  /* that a file may take, and 1 s more for each 4 KiB */
    /* Bytes of all files so far, of those known so far, and per second; may be NULL. */
    void (*on_progress)(void *user, int64_t bytes, int64_t total, double bytes_per_second);
    void *user;
};

struct snug_pulled { /* see snug_pull_result */
    char *folder;    /* freed by the caller; NULL after a failure */
    char commit[48];
    int64_t files, bytes, fetched;
};
/* See snug_pull() in snug.h. */
snug_status snug_hub_pull(snug_context *ctx, const struct snug_pull_options *options, struct snug_pulled *result);

#endif
