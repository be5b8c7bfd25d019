/* SPDX-License-Identifier: Apache-2.0 */
/* Scores of generated texts against those of rouge_score and evaluate: tools/golden/text_scores.py. */
#include "metrics/text_scores.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

TEST(test_scores_are_those_of_evaluate) {
    snug_context *ctx;
    json_error_t error;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    const char *other = getenv("SNUG_TEXT_SCORES"); /* of tools/compare/check_text_scores.py */
    json_t *cases = json_load_file(other ? other : SNUG_SOURCE_DIR "/tests/golden/text_scores.json", 0, &error);
    json_t *one, *pair;
    size_t i, k;
    assert_true(json_array_size(cases) > 1);
    json_array_foreach(cases, i, one) {
        struct snug_text_scores scores = {0};
        assert_true(isnan(snug_text_score(&scores, SNUG_BLEU)));
        json_array_foreach(json_object_get(one, "pairs"), k, pair) {
            const char *text = json_string_value(json_array_get(pair, 0)),
                       *reference = json_string_value(json_array_get(pair, 1));
            assert_int_equal(snug_text_scores_add(ctx, text, reference, &scores), SNUG_OK);
        }
        for (int s = 0; s < SNUG_TEXT_SCORE_COUNT; s++) {
            const char *name = snug_text_score_name((enum snug_text_score)s) + strlen("eval_");
            const double expected = json_number_value(json_object_get(json_object_get(one, "scores"), name));
            const double value = snug_text_score(&scores, (enum snug_text_score)s);
            if (!(fabs(value - expected) < 1e-12))
                fail_msg("case %zu, %s: %.15g, expected %.15g", i, name, value, expected);
        }
    }
    json_decref(cases);
    snug_context_destroy(ctx);
}

TEST_MAIN(NULL, NULL)
