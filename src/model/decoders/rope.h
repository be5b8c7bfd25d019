/* SPDX-License-Identifier: Apache-2.0 */
/* The rotary position embeddings of config.json: its rope_parameters, and the keys of older files. */
#ifndef SNUG_MODEL_DECODERS_ROPE_H
#define SNUG_MODEL_DECODERS_ROPE_H

#include "model/family.h"

/* A dynamic rotation depends on the longest text of a program; base and factor are those of snug_rotation_dynamic(). */
struct snug_rope {
    struct snug_rotation rotation;
    struct snug_rotation longer; /* for programs whose longest text has more than longer_from tokens */
    int64_t longer_from;         /* 0: none */
    double theta, factor;        /* factor 0: not dynamic */
};

/* What a dictionary may leave out. */
struct snug_rope_defaults {
    int64_t head_dim;
    double theta, partial;
    int64_t trained;     /* original_max_position_embeddings, which counts in place of the dictionary's; 0: none */
    bool older_longrope; /* "su" and "yarn" are older names of longrope */
};

/* The dictionary of all layers, and its key: rope_scaling (of older files) or rope_parameters; NULL: none. */
const json_t *snug_rope_dictionary(struct snug_reading *r, const char **name);
/* The rotation that the dictionary rope (NULL: none) describes; name: its key, for messages. */
void snug_read_rope(struct snug_reading *r, const json_t *rope, const char *name,
                    const struct snug_rope_defaults *defaults, struct snug_rope *out);
/* The rotation of a program whose longest text has so many tokens. */
struct snug_rotation snug_rope_rotation(const struct snug_rope *rope, int64_t longest);

#endif
