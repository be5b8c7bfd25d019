/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints python/snug/_arguments.py: the arguments of the library's table as types of Python, by the commands on which
 * they have an effect (src/cli/help.c).
 * Usage: cmake --build BUILD --target argument_types, which replaces the file; its test says when that is needed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args/table.h"
#include "cli/help.h"

/* The classes, arguments that their functions have as parameters of their own, or not at all, and those that they have
   beside the command's. */
static const struct {
    const char *command, *class, *function, *without, *also;
} classes[] = {
    {"train", "TrainArguments", "train()", " disable_tqdm json log_level ", ""},
    {"plan", "PlanArguments", "plan()", " disable_tqdm json log_level ", ""},
    {"eval", "EvaluateArguments", "evaluate()", " disable_tqdm json log_level model_name_or_path validation_file ", ""},
    {"predict", "LoadArguments", "load()",
     " disable_tqdm json log_level model_name_or_path test_file text text_pair keep_columns csv_escape_formulas "
     "max_predict_samples return_all_scores output_dir overwrite_cache task ",
     " prompt prompt_name normalize_embeddings truncate_dim "},
    {"pull", "PullArguments", "pull()", " disable_tqdm json log_level model_name_or_path ", ""},
};
enum { TRAIN, PLAN, CLASSES = sizeof classes / sizeof *classes, WIDTH = 125 };

#define PATH "PathLike"
#define TEXTS "Union[str, list[str], tuple[str, ...]]"
/* Types of texts, by value_name. */
static const struct {
    const char *value, *type;
} types[] = {
    {"DIR", PATH},
    {"FILE", PATH},
    {"FILE|DIR", PATH},
    {"NAME|FILE", PATH},
    {"DIR|True|auto", "Union[bool, " PATH "]"},
    {"FILE|JSON", "Union[" PATH ", Mapping[str, Any]]"},
    {"IDS|FILE|JSON", "Union[str, list[int], tuple[int, ...], Mapping[str, list[int]]]"},
    {"JSON", "Union[str, Mapping[str, Any]]"},
    {"KEY=VALUE", "Union[str, Mapping[str, Any]]"},
    {"A=W,B=W", "Union[str, Mapping[str, float], list[float], tuple[float, ...]]"},
    {"NAME", "str"},
    {"TEXT", "str"},
    {"TEXT|JSON", "str"},
    {"NAME|A,B", TEXTS},
    {"A,B", TEXTS},
    {"PARTS", TEXTS},
    {"LEVELS", TEXTS},
    {"N|all", "Union[int, Literal[\"all\"]]"},
};

static const char *type_of_text(const snug_arg_info *info) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].value, info->value_name) == 0) return types[i].type;
    fprintf(stderr, "%s: tools/tables/argument_types.c has no type for %s\n", info->name, info->value_name);
    exit(1);
}

/* Literal["a", "b"], on lines of their own where they are long. */
static void print_choices(const char *choices) {
    const bool list = strlen(choices) > 60;
    printf(list ? "\n        Literal[" : "Literal[");
    for (const char *at = choices; *at; at += strcspn(at, "|"), at += *at == '|') {
        const int length = (int)strcspn(at, "|");
        printf("%s\"%.*s\"%s", list ? "\n            " : "", length, at, at[length] ? list ? "," : ", " : "");
    }
    printf(list ? ",\n        ]\n    " : "]");
}

static void print_type(const struct snug_argument *argument) {
    printf("Optional[");
    switch (argument->type) {
    case SNUG_ARG_BOOL:
    case SNUG_ARG_TRISTATE: printf("bool"); break;
    case SNUG_ARG_INT: printf("int"); break;
    case SNUG_ARG_REAL: printf("float"); break;
    case SNUG_ARG_BYTES: printf("Union[int, str]"); break;
    case SNUG_ARG_CHOICE:
    case SNUG_ARG_INTERVAL: print_choices(argument->info.value_name); break;
    case SNUG_ARG_STRING: printf("%s", type_of_text(&argument->info));
    }
    printf("]\n");
}

/* A comment of the item before, which editors show: help and default, broken at spaces. */
static void print_help(const snug_arg_info *info) {
    char text[2048];
    snprintf(text, sizeof text, *info->default_value ? "%s [%s]" : "%s", info->help, info->default_value);
    size_t column = (size_t)printf("    \"\"\"");
    for (const char *at = text; *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        if (column + 1 + length > WIDTH) column = (size_t)printf("\n    ") - 1;
        for (size_t i = 0; i < length; i++) printf("%s%c", at[i] == '\\' ? "\\" : "", at[i]);
        at += length;
        column += length + (*at == ' ');
        if (*at && column + 1 + strcspn(at + 1, " ") <= WIDTH) putchar(' ');
    }
    printf("\"\"\"\n");
}

static void print_aliases(const struct snug_argument *argument) {
    for (const char *at = argument->info.aliases; *at; at += strcspn(at, " "), at += *at == ' ') {
        printf("    %.*s: ", (int)strcspn(at, " "), at);
        print_type(argument);
        printf("    \"\"\"Another name of %s.\"\"\"\n", argument->info.name);
    }
    for (size_t i = 0; i < snug_converted_count; i++) {
        static const char *const of[SNUG_CONVERSIONS] = {
            [SNUG_CONVERT_GROUP_BY_LENGTH] = "bool",
            [SNUG_CONVERT_WARMUP_RATIO] = "float",
            [SNUG_CONVERT_FSDP] = "Union[bool, str]",
        };
        const struct snug_converted *other = &snug_converted_arguments[i];
        if (strcmp(other->target, argument->info.name) == 0)
            printf("    %s: Optional[%s]\n    \"\"\"Sets %s.\"\"\"\n", other->name, of[other->conversion],
                   other->target);
    }
}

static const struct cli_help *help_of(const char *command) {
    for (size_t i = 0; i < cli_help_count; i++)
        if (strcmp(cli_helps[i].command, command) == 0) return &cli_helps[i];
    fprintf(stderr, "src/cli/help.c has no command %s\n", command);
    exit(1);
}

/* The classes that have an argument, as bits. */
static unsigned classes_of(const snug_arg_info *info) {
    char name[64];
    unsigned bits = 0;
    snprintf(name, sizeof name, " %s ", info->name);
    for (unsigned c = 0; c < CLASSES; c++) {
        const bool own = cli_help_concerns(help_of(classes[c].command), info) && !strstr(classes[c].without, name);
        if (own || strstr(classes[c].also, name)) bits |= 1U << c;
    }
    return bits & 1 << TRAIN ? bits | 1 << PLAN : bits; /* a training's arguments are those of its plan, too */
}

/* A class for the arguments that belong to the same ones. */
static void print_part(unsigned bits) {
    printf("\n\nclass _Of%u(TypedDict, total=False):\n", bits);
    for (size_t i = 0; i < snug_argument_count; i++) {
        const struct snug_argument *argument = &snug_arguments[i];
        if (classes_of(&argument->info) != bits) continue;
        printf("    %s: ", argument->info.name);
        print_type(argument);
        print_help(&argument->info);
        print_aliases(argument);
    }
}

int main(void) {
    bool printed[1U << CLASSES] = {true}; /* 0: of no class */
    printf("# SPDX-License-Identifier: Apache-2.0\n"
           "# Made from the library's table of arguments: cmake --build BUILD --target argument_types\n"
           "\"\"\"The arguments of the package's functions, with their types, and defaults in brackets.\"\"\"\n\n"
           "from __future__ import annotations\n\n"
           "from collections.abc import Mapping\n"
           "from typing import Any, Literal, Optional, TypedDict, Union\n\n"
           "from ._context import PathLike\n");
    for (size_t i = 0; i < snug_argument_count; i++) {
        const unsigned bits = classes_of(&snug_arguments[i].info);
        if (!printed[bits]) print_part(bits);
        printed[bits] = true;
    }
    for (unsigned c = 0; c < CLASSES; c++) {
        const char *separator = "";
        printf("\n\nclass %s(", classes[c].class);
        for (unsigned bits = 1; bits < 1U << CLASSES; bits++)
            if (printed[bits] && bits >> c & 1) {
                printf("%s_Of%u", separator, bits);
                separator = ", ";
            }
        printf(", total=False):\n    \"\"\"The arguments of %s.\"\"\"\n", classes[c].function);
    }
    return 0;
}
