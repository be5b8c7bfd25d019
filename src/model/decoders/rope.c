/* SPDX-License-Identifier: Apache-2.0 */
#include "model/decoders/rope.h"

#include <math.h>
#include <string.h>

#include "io/json.h"
#include "model/rotation.h"

/* A dictionary while it is read: own is a reading of it. */
struct dictionary {
    struct snug_reading own;
    const char *name, *kind;
    int64_t channels; /* that are rotated */
    double theta, trained;
};

static void refuse(struct snug_reading *r, const char *name, const char *why) {
    if (r->status == SNUG_OK) r->status = snug_fail(r->ctx, SNUG_E_UNSUPPORTED, "%s: %s %s", r->path, name, why);
}

const json_t *snug_rope_dictionary(struct snug_reading *r, const char **name) {
    static const char *const names[] = {"rope_scaling", "rope_parameters"};
    for (int i = 0; i < 2; i++) {
        const json_t *value = json_object_get(r->json, names[i]);
        if (value && !json_is_null(value) && !json_is_object(value)) refuse(r, names[i], "must be an object");
        *name = names[i];
        if (json_object_size(value)) return value;
    }
    return NULL;
}

/* A number that must be given. */
static double number(struct dictionary *d, const char *key, double least) {
    double value = 0;
    if (!json_object_get(d->own.json, key) && d->own.status == SNUG_OK)
        d->own.status = snug_fail(d->own.ctx, SNUG_E_UNSUPPORTED, "%s: %s lacks %s, which rope_type %s needs",
                                  d->own.path, d->name, key, d->kind);
    snug_read_real(&d->own, key, 0, least, 1e12, &value);
    return value;
}

static double optional(struct dictionary *d, const char *key, double otherwise) {
    double value = 0;
    snug_read_real(&d->own, key, otherwise, 0, 1e12, &value);
    return value;
}

static struct snug_rotation yarn(struct dictionary *d) {
    const double most = (double)d->own.config->max_position_embeddings;
    const double fast = optional(d, "beta_fast", 32), slow = optional(d, "beta_slow", 1);
    const struct snug_yarn y = {.factor = optional(d, "factor", most / d->trained),
                                .trained = d->trained,
                                .beta_fast = fast > 0 ? fast : 32,
                                .beta_slow = slow > 0 ? slow : 1,
                                .attention_factor = optional(d, "attention_factor", 0),
                                .mscale = optional(d, "mscale", 0),
                                .mscale_all_dim = optional(d, "mscale_all_dim", 0),
                                .truncate = snug_read_bool(&d->own, "truncate", true)};
    if (d->theta <= 1 || y.factor <= 0) refuse(&d->own, d->name, "has a theta or factor that yarn does not support");
    return d->own.status == SNUG_OK ? snug_rotation_yarn(d->channels, d->theta, &y) : (struct snug_rotation){0};
}

/* One factor for each pair of channels. */
static void read_factors(struct dictionary *d, const char *key, double factors[SNUG_ROTATION_PAIRS_MOST]) {
    const json_t *list = json_object_get(d->own.json, key), *value;
    size_t i;
    if ((int64_t)json_array_size(list) != d->channels / 2) {
        refuse(&d->own, key, "must have a factor for each pair of a head's rotated channels");
        return;
    }
    json_array_foreach((json_t *)(uintptr_t)list, i, value) {
        factors[i] = json_number_value(value);
        if (!(factors[i] > 0)) refuse(&d->own, key, "must hold numbers above 0");
    }
}

static void longrope(struct dictionary *d, struct snug_rope *out) {
    double shorter[SNUG_ROTATION_PAIRS_MOST], longer[SNUG_ROTATION_PAIRS_MOST];
    const double factor = optional(d, "factor", (double)d->own.config->max_position_embeddings / d->trained),
                 attention = optional(d, "attention_factor", 0);
    read_factors(d, "short_factor", shorter);
    read_factors(d, "long_factor", longer);
    if (d->own.status != SNUG_OK) return;
    out->rotation = snug_rotation_longrope(d->channels, d->theta, shorter, factor, d->trained, attention);
    out->longer = snug_rotation_longrope(d->channels, d->theta, longer, factor, d->trained, attention);
    out->longer_from = (int64_t)d->trained;
}

/* Texts may be as many times longer than the trained ones as the factor says. */
static void dynamic(struct dictionary *d, struct snug_rope *out) {
    struct snug_config *config = d->own.config;
    out->rotation = snug_rotation_default(d->channels, d->theta);
    out->longer_from = config->max_position_embeddings;
    out->factor = number(d, "factor", 1);
    if (d->channels < 4) refuse(&d->own, d->name, "rotates fewer than 4 channels, which rope_type dynamic needs");
    config->positions = (int64_t)fmin(out->factor * (double)out->longer_from, SNUG_DIMENSION_MOST);
}

struct snug_rotation snug_rope_rotation(const struct snug_rope *rope, int64_t longest) {
    if (!rope->longer_from || longest <= rope->longer_from) return rope->rotation;
    if (rope->factor == 0) return rope->longer;
    return snug_rotation_dynamic(2 * rope->rotation.pairs, rope->theta, rope->factor, (double)longest,
                                 (double)rope->longer_from);
}

static void read_kind(struct dictionary *d, struct snug_rope *out) {
    const char *kind = d->kind;
    if (strcmp(kind, "longrope") == 0) {
        longrope(d, out);
    } else if (strcmp(kind, "yarn") == 0) {
        out->rotation = yarn(d);
    } else if (strcmp(kind, "linear") == 0) {
        const double factor = number(d, "factor", 1e-6);
        out->rotation = snug_rotation_linear(d->channels, d->theta, factor);
    } else if (strcmp(kind, "llama3") == 0) {
        const double factor = number(d, "factor", 1e-6), low = number(d, "low_freq_factor", 0),
                     high = number(d, "high_freq_factor", 0);
        if (high <= low) refuse(&d->own, "high_freq_factor", "must be larger than low_freq_factor");
        out->rotation = snug_rotation_llama3(d->channels, d->theta, factor, low, high, d->trained);
    } else if (strcmp(kind, "dynamic") == 0) {
        dynamic(d, out);
    } else if (strcmp(kind, "default") == 0) {
        out->rotation = snug_rotation_default(d->channels, d->theta);
    } else {
        d->own.status = snug_fail(d->own.ctx, SNUG_E_UNSUPPORTED,
                                  "%s: rope_type %s of %s is not supported (default, linear, dynamic, llama3, yarn and "
                                  "longrope are)",
                                  d->own.path, kind, d->name);
    }
}

static void read_dictionary(struct dictionary *d, const struct snug_rope_defaults *defaults, struct snug_rope *out) {
    struct snug_reading *r = &d->own;
    const bool old = !json_object_get(r->json, "rope_type");
    double partial = 1;
    int64_t trained = r->config->max_position_embeddings;
    d->kind = "default";
    r->status = snug_json_string(r->ctx, r->path, r->json, old ? "type" : "rope_type", "default", &d->kind);
    if (defaults->older_longrope && (strcmp(d->kind, "su") == 0 || strcmp(d->kind, "yarn") == 0)) d->kind = "longrope";
    snug_read_real(r, "rope_theta", defaults->theta, 1, 1e12, &d->theta);
    snug_read_real(r, "partial_rotary_factor", defaults->partial, 0, 1, &partial);
    snug_read_size(r, "original_max_position_embeddings", trained, SNUG_DIMENSION_MOST, &trained);
    d->trained = (double)(defaults->trained ? defaults->trained : trained);
    d->channels = (int64_t)((double)defaults->head_dim * partial);
    if (d->channels < 2 || d->channels % 2) /* at most head_dim's 512 */
        refuse(r, d->name, "rotates a number of channels of a head that is not supported (even, 2 to 512 is)");
    out->theta = d->theta;
    if (r->status == SNUG_OK) read_kind(d, out);
}

void snug_read_rope(struct snug_reading *r, const json_t *rope, const char *name,
                    const struct snug_rope_defaults *defaults, struct snug_rope *out) {
    struct dictionary d = {.own = *r, .name = name};
    if (r->status != SNUG_OK) return;
    d.own.json = rope;
    read_dictionary(&d, defaults, out);
    r->status = d.own.status;
}
