/* SPDX-License-Identifier: Apache-2.0 */
/* The table of all arguments, from which parsing, defaults, --help and checks are derived. */
#ifndef SNUG_ARGS_TABLE_H
#define SNUG_ARGS_TABLE_H

#include <jansson.h>

#include "args/args.h"
#include "core/list.h"

enum snug_arg_type {
    SNUG_ARG_STRING,
    SNUG_ARG_CHOICE,   /* one of the strings in value_name */
    SNUG_ARG_BOOL,     /* bool */
    SNUG_ARG_TRISTATE, /* char *: "True", "False" or NULL */
    SNUG_ARG_INT,      /* int64_t */
    SNUG_ARG_REAL,     /* double */
    SNUG_ARG_INTERVAL, /* enum snug_interval, one of value_name */
    SNUG_ARG_BYTES,    /* char *: a size with its unit */
};

struct snug_argument {
    snug_arg_info info;
    enum snug_arg_type type;
    size_t offset;     /* in struct snug_args */
    const char *range; /* of a number, as an interval: "[0,1)"; NULL: no limits */
    const char *known; /* values of Hugging Face that snug does not support yet, separated by '|'; NULL if none */
};

extern const struct snug_argument snug_arguments[];
extern const size_t snug_argument_count;

struct snug_converted {
    const char *name, *target;
    enum snug_conversion conversion;
};
extern const struct snug_converted snug_converted_arguments[];
extern const size_t snug_converted_count;

/* Hugging Face's arguments that snug does not have. */
enum snug_foreign_kind {
    SNUG_FOREIGN_FLAG_IGNORED,  /* a boolean without effect in snug */
    SNUG_FOREIGN_FLAG_OFF,      /* only False is accepted */
    SNUG_FOREIGN_FLAG_ON,       /* only True is accepted */
    SNUG_FOREIGN_COMMAND,       /* a boolean that asks for what is a command of snug */
    SNUG_FOREIGN_VALUE_IGNORED, /* a value without effect in snug */
    SNUG_FOREIGN_VALUE,         /* not supported with any value */
};
struct snug_foreign {
    enum snug_foreign_kind kind;
    const char *names;  /* separated by spaces */
    const char *advice; /* of refused ones: what to do instead; of ignored ones: why, or NULL */
};
extern const struct snug_foreign snug_foreign_arguments[];
extern const size_t snug_foreign_count;
/* Whether the value is one that transformers writes by default, and asks for nothing. Of an object with another member
   than that, the error names the member. */
snug_status snug_foreign_is_default(const struct snug_args *args, const struct snug_foreign *foreign, const char *name,
                                    const char *text, bool *out);

/* Values that an argument does not take, by their first letters, and what to do instead. */
struct snug_foreign_value {
    const char *argument, *begins, *advice;
};
extern const struct snug_foreign_value snug_foreign_values[];
extern const size_t snug_foreign_value_count;

/* What snug has, or does not have, of what an unknown argument's name means; NULL: not known. */
const char *snug_foreign_meaning(const char *name);

/* Names that are often tried, separated by spaces, and the argument that is meant. */
struct snug_short_name {
    const char *names, *meant;
};
extern const struct snug_short_name snug_short_names[];
extern const size_t snug_short_count;

/* Sets an argument's value as a default: it does not count as set. */
snug_status snug_args_restore(struct snug_args *args, const char *name, const char *text);
/* Whether there is an argument of this name, here or in transformers; else the error has the nearest. */
snug_status snug_args_check_name(struct snug_args *args, const char *name);
/* Whether both are names of one argument. */
bool snug_args_is_alias(const char *name, const char *other);
/* Whether the argument has its default now. */
bool snug_args_has_default(const struct snug_args *args, const char *name);
/* Counts an argument as set, with the value that it has. */
snug_status snug_args_mark(struct snug_args *args, const char *name);
/* Sets the arguments of a JSON file: of an object {"name": value, …}, as the scripts read it, or of the "arguments" of
   a training_args.json. Those that the command refuses are left out: eval can take a training's. */
snug_status snug_args_read(struct snug_args *args, const char *path);
/* The file that --args_from names: of a folder the training_args.json of its last training, which is in a checkpoint as
   long as the training has not ended. *folder: path is a training's --output_dir. */
snug_status snug_args_find_file(snug_context *ctx, const char *path, char **out, bool *folder);
/* All arguments as an object, and the list of the names that were set. NULL: out of memory. */
json_t *snug_args_json(const struct snug_args *args);
json_t *snug_args_given_json(const struct snug_args *args);

#endif
