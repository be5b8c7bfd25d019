/* SPDX-License-Identifier: Apache-2.0 */
#include "model/rotation.h"

#include <math.h>

static const double turn = 6.283185307179586;

struct snug_rotation snug_rotation_default(int64_t channels, double theta) {
    struct snug_rotation r = {.pairs = (int32_t)(channels / 2), .factor = 1};
    for (int32_t c = 0; c < r.pairs; c++) r.frequencies[c] = pow(theta, -2.0 * c / (double)channels);
    return r;
}

struct snug_rotation snug_rotation_linear(int64_t channels, double theta, double factor) {
    struct snug_rotation r = snug_rotation_default(channels, theta);
    for (int32_t c = 0; c < r.pairs; c++) r.frequencies[c] /= factor;
    return r;
}

struct snug_rotation snug_rotation_dynamic(int64_t channels, double theta, double factor, double length,
                                           double trained) {
    const double stretch = factor * fmax(length, trained) / trained - (factor - 1);
    return snug_rotation_default(channels, theta * pow(stretch, (double)channels / (double)(channels - 2)));
}

struct snug_rotation snug_rotation_llama3(int64_t channels, double theta, double factor, double low_freq_factor,
                                          double high_freq_factor, double trained) {
    struct snug_rotation r = snug_rotation_default(channels, theta);
    for (int32_t c = 0; c < r.pairs; c++) {
        const double turns = trained * r.frequencies[c] / turn; /* over the trained positions */
        const double share = fmin(fmax((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0), 1);
        r.frequencies[c] *= (1 - share) / factor + share;
    }
    return r;
}

static double yarn_scale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1; }

struct snug_rotation snug_rotation_yarn(int64_t channels, double theta, const struct snug_yarn *yarn) {
    struct snug_rotation r = snug_rotation_default(channels, theta);
    double end[2]; /* the pairs that turn beta_fast and beta_slow times over the trained positions */
    const double betas[2] = {yarn->beta_fast, yarn->beta_slow};
    for (int i = 0; i < 2; i++) end[i] = (double)channels * log(yarn->trained / (betas[i] * turn)) / (2 * log(theta));
    if (yarn->truncate) end[0] = floor(end[0]), end[1] = ceil(end[1]);
    end[0] = fmax(end[0], 0);
    end[1] = fmin(end[1], (double)channels - 1);
    if (end[0] == end[1]) end[1] += 0.001;
    for (int32_t c = 0; c < r.pairs; c++) {
        const double share = fmin(fmax((c - end[0]) / (end[1] - end[0]), 0), 1);
        r.frequencies[c] *= share / yarn->factor + (1 - share);
    }
    if (yarn->attention_factor > 0)
        r.factor = yarn->attention_factor;
    else if (yarn->mscale != 0 && yarn->mscale_all_dim != 0)
        r.factor = yarn_scale(yarn->factor, yarn->mscale) / yarn_scale(yarn->factor, yarn->mscale_all_dim);
    else
        r.factor = yarn_scale(yarn->factor, 1);
    return r;
}

struct snug_rotation snug_rotation_longrope(int64_t channels, double theta, const double factors[], double factor,
                                            double trained, double attention_factor) {
    struct snug_rotation r = snug_rotation_default(channels, theta);
    for (int32_t c = 0; c < r.pairs; c++) r.frequencies[c] /= factors[c];
    r.factor = attention_factor > 0 ? attention_factor : factor <= 1 ? 1 : sqrt(1 + log(factor) / log(trained));
    return r;
}
