/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings of adapters. */
#ifndef SNUG_TESTS_ADAPTED_H
#define SNUG_TESTS_ADAPTED_H

#include "model/adapters.h"
#include "training_fixture.h"

static inline const char *adapter_of(const struct fixture *f, const char *run) {
    return path_of(f, "%s/" SNUG_ADAPTER_WEIGHTS, run);
}

/* Trains "plain" with these words, then "other" with each method beside them: the adapters have the same bits. */
static inline void assert_methods_keep_bits(struct fixture *f, const char *words) {
    static const char *const methods[] = {"threads=2", "gradient_checkpointing=True",
                                          "offload=optimizer,weights,activations offload_dir=@.", "recompute=none"};
    train(f, "plain", words);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        char with[1280];
        snprintf(with, sizeof with, "%s %s", words, methods[i]);
        train(f, "other", with);
        assert_same_file(f, adapter_of(f, "plain"), adapter_of(f, "other"));
    }
}

#endif
