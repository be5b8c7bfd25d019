/* SPDX-License-Identifier: Apache-2.0 */
/* The rotations of rope types are transformers' (tools/golden/rotations.py). */
#include <math.h>
#include <string.h>

#include <jansson.h>

#include "model/rotation.h"
#include "test.h"

static double number_of(const json_t *json, const char *key, double otherwise) {
    const json_t *value = json_object_get(json, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static struct snug_rotation yarn_of(int64_t channels, double theta, const json_t *rope, double trained) {
    const json_t *truncate = json_object_get(rope, "truncate");
    const struct snug_yarn yarn = {.factor = number_of(rope, "factor", 0),
                                   .trained = trained,
                                   .beta_fast = number_of(rope, "beta_fast", 32),
                                   .beta_slow = number_of(rope, "beta_slow", 1),
                                   .attention_factor = number_of(rope, "attention_factor", 0),
                                   .mscale = number_of(rope, "mscale", 0),
                                   .mscale_all_dim = number_of(rope, "mscale_all_dim", 0),
                                   .truncate = !truncate || json_is_true(truncate)};
    return snug_rotation_yarn(channels, theta, &yarn);
}

static struct snug_rotation rotation_of(const json_t *json) {
    const json_t *rope = json_object_get(json, "rope");
    const int64_t channels = json_integer_value(json_object_get(json, "channels"));
    const double theta = number_of(json, "theta", 0), factor = number_of(rope, "factor", 0);
    const double positions = number_of(json, "positions", 0), length = number_of(json, "length", 0);
    const double trained = number_of(rope, "original_max_position_embeddings", positions);
    const char *kind = json_string_value(json_object_get(rope, "rope_type"));
    if (strcmp(kind, "linear") == 0) return snug_rotation_linear(channels, theta, factor);
    if (strcmp(kind, "dynamic") == 0) return snug_rotation_dynamic(channels, theta, factor, length, positions);
    if (strcmp(kind, "llama3") == 0)
        return snug_rotation_llama3(channels, theta, factor, number_of(rope, "low_freq_factor", 0),
                                    number_of(rope, "high_freq_factor", 0), trained);
    if (strcmp(kind, "yarn") == 0) return yarn_of(channels, theta, rope, trained);
    if (strcmp(kind, "longrope") == 0) {
        const json_t *list = json_object_get(rope, length > trained ? "long_factor" : "short_factor");
        double factors[SNUG_ROTATION_PAIRS_MOST];
        for (size_t i = 0; i < json_array_size(list); i++) factors[i] = json_number_value(json_array_get(list, i));
        return snug_rotation_longrope(channels, theta, factors, factor, trained,
                                      number_of(rope, "attention_factor", 0));
    }
    return snug_rotation_default(channels, theta);
}

/* transformers computes in fp32. */
TEST(test_rope_types) {
    json_t *cases = json_load_file(SNUG_SOURCE_DIR "/tests/golden/rotations.json", 0, NULL);
    assert_true(json_array_size(cases) > 0);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *json = json_array_get(cases, i), *expected = json_object_get(json, "frequencies");
        const struct snug_rotation r = rotation_of(json);
        assert_int_equal(r.pairs, json_array_size(expected));
        assert_false(r.neighbours);
        assert_float_equal(r.factor, number_of(json, "factor", 0), 1e-9);
        for (int32_t c = 0; c < r.pairs; c++) {
            const double want = json_number_value(json_array_get(expected, (size_t)c));
            if (fabs(r.frequencies[c] - want) > 2e-6 * want)
                fail_msg("case %zu, pair %d: %.9g, expected %.9g", i, (int)c, r.frequencies[c], want);
        }
    }
    json_decref(cases);
}

TEST_MAIN(NULL, NULL)
