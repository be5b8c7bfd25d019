/* SPDX-License-Identifier: Apache-2.0 */
/* Values as text: str(), repr(), json.dumps(), format() and % of Python. */
#ifndef SNUG_JINJA_REPR_H
#define SNUG_JINJA_REPR_H

#include "jinja/text.h"

/* Room for a number's text. */
enum { SNUG_JINJA_NUMBER_SIZE = 64 };
/* repr() of a float: the fewest digits that read back the same. */
void snug_jinja_real_text(double real, char out[SNUG_JINJA_NUMBER_SIZE]);
/* str(); a string stays as it is. */
snug_status snug_jinja_to_text(struct snug_jinja_heap *heap, struct snug_jinja_value value,
                               struct snug_jinja_value *out);
snug_status snug_jinja_repr(struct snug_jinja_heap *heap, struct snug_jinja_value value,
                            struct snug_jinja_builder *builder);

struct snug_jinja_json_form {
    bool ascii, sort_keys;
    bool lines;                        /* each item on a line of its own */
    struct snug_jinja_value indent;    /* a string, for each level */
    struct snug_jinja_value item, key; /* separators: ", " and ": " */
};
snug_status snug_jinja_to_json(struct snug_jinja_heap *heap, struct snug_jinja_value value,
                               const struct snug_jinja_json_form *form, struct snug_jinja_value *out);

#endif
