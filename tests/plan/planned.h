/* SPDX-License-Identifier: Apache-2.0 */
/* Plans in tests, by words of arguments. */
#ifndef SNUG_TESTS_PLANNED_H
#define SNUG_TESTS_PLANNED_H

#include "inspect/plan.h"
#include "training_fixture.h"

#define SMALL "config_name=@model train_file=dummy:1024x64 max_seq_length=64 "
/* A batch that no small GPU holds, of a small model, for searches: a prime number of samples has no micro-batches to
 * try. */
#define LARGE "config_name=@large train_file=dummy:20011x64 max_seq_length=64 per_device_train_batch_size=20011 "
#define BERT "config_name=bert-base-uncased train_file=dummy:256x128 max_seq_length=128 "

static inline snug_plan *plan_of(struct fixture *f, const char *words, snug_status wanted) {
    snug_plan *plan;
    snug_args *args = plain_args(f, words);
    const snug_status status = snug_plan_create(args, &plan);
    if (status != wanted) fail_msg("%s: status %d: %s", words, status, snug_error_message(f->ctx));
    snug_args_destroy(args);
    return plan;
}

/* The model of LARGE. */
static inline void write_large(const struct fixture *f) { write_model(f, "large", 0.1, 256, 2, VOCABULARY); }

static inline void assert_says(const snug_plan *plan, const char *part) {
    char *text;
    assert_int_equal(snug_plan_text(plan, &text), SNUG_OK);
    assert_contains(text, part);
    free(text);
}

#endif
