/* SPDX-License-Identifier: Apache-2.0 */
/* Text to arguments and back, by the table in args_table.c. */
#include "args/args.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "args/table.h"
#include "core/edit_distance.h"
#include "io/folder.h"

enum {
    name_size = SNUG_EDIT_SIZE, /* longer than every known name, its NUL included */
    PRINTED = 64                /* room for a number as text */
};

static bool lists(const char *list, const char *word) { return snug_list_has(list, ' ', word, strlen(word)); }

/* ---- names --------------------------------------------------------------------------------------------------- */

/* The name without leading dashes and with '-' as '_'; a name that is too long for any argument is truncated. */
static void plain_name(char out[name_size], const char *name, size_t length) {
    while (length && *name == '-') name++, length--;
    if (length >= name_size) length = name_size - 1;
    for (size_t i = 0; i < length; i++) out[i] = name[i] == '-' ? '_' : name[i];
    out[length] = '\0';
}

static const struct snug_argument *find_argument(const char *name) {
    for (size_t i = 0; i < snug_argument_count; i++) {
        const snug_arg_info *info = &snug_arguments[i].info;
        if (strcmp(info->name, name) == 0 || lists(info->aliases, name)) return &snug_arguments[i];
    }
    return NULL;
}

static const struct snug_converted *find_converted(const char *name) {
    for (size_t i = 0; i < snug_converted_count; i++)
        if (strcmp(snug_converted_arguments[i].name, name) == 0) return &snug_converted_arguments[i];
    return NULL;
}

/* The other name of an argument's value. */
static const struct snug_converted *find_pair(const char *target) {
    for (size_t i = 0; i < snug_converted_count; i++)
        if (strcmp(snug_converted_arguments[i].target, target) == 0) return &snug_converted_arguments[i];
    return NULL;
}

static const struct snug_foreign *find_foreign(const char *name) {
    for (size_t i = 0; i < snug_foreign_count; i++)
        if (lists(snug_foreign_arguments[i].names, name)) return &snug_foreign_arguments[i];
    return NULL;
}

static bool is_known(const char *name) { return find_argument(name) || find_converted(name) || find_foreign(name); }

static bool is_ignored(enum snug_foreign_kind kind) {
    return kind == SNUG_FOREIGN_FLAG_IGNORED || kind == SNUG_FOREIGN_VALUE_IGNORED;
}

static bool is_foreign_flag(enum snug_foreign_kind kind) {
    return kind != SNUG_FOREIGN_VALUE_IGNORED && kind != SNUG_FOREIGN_VALUE;
}

static bool is_flag(const char *name) {
    const struct snug_argument *argument = find_argument(name);
    if (argument) return argument->type == SNUG_ARG_BOOL || argument->type == SNUG_ARG_TRISTATE;
    const struct snug_converted *converted = find_converted(name);
    if (converted) return converted->conversion == SNUG_CONVERT_GROUP_BY_LENGTH;
    const struct snug_foreign *foreign = find_foreign(name);
    return foreign && is_foreign_flag(foreign->kind);
}

static const char *find_short(const char *name) {
    for (size_t i = 0; i < snug_short_count; i++)
        if (lists(snug_short_names[i].names, name)) return snug_short_names[i].meant;
    return NULL;
}

static bool asks_version(const char *name) { return strcmp(name, "V") == 0 || strcmp(name, "version") == 0; }

static snug_status fail_unknown(snug_context *ctx, const char *name) {
    if (asks_version(name)) return snug_fail(ctx, SNUG_E_USAGE, "snug --version prints the version");
    const char *nearest = NULL, *meant = find_short(name);
    if (meant) return snug_fail(ctx, SNUG_E_USAGE, "--%s: unknown argument; give --%s", name, meant);
    size_t least = strlen(name) / 3 + 2; /* a name of which more than a third of the letters differ is not similar */
    for (size_t i = 0; i < snug_argument_count + snug_converted_count; i++) {
        const char *candidate = i < snug_argument_count ? snug_arguments[i].info.name
                                                        : snug_converted_arguments[i - snug_argument_count].name;
        const size_t a = strlen(name), b = strlen(candidate);
        if ((a > b ? a - b : b - a) >= least) continue; /* the distance is at least limit */
        const size_t distance = snug_edit_distance(name, candidate, least);
        if (distance < least) {
            least = distance;
            nearest = candidate;
        }
    }
    /* One or two letters are a slip; a name that differs more may mean something else. */
    const char *advice = nearest && least <= 1 + strlen(name) / 8 ? NULL : snug_foreign_meaning(name);
    if (advice) return snug_fail(ctx, SNUG_E_USAGE, "--%s: unknown argument: %s", name, advice);
    if (!nearest) return snug_fail(ctx, SNUG_E_USAGE, "--%s: unknown argument; --help all lists all", name);
    return snug_fail(ctx, SNUG_E_USAGE, "--%s: unknown argument; the nearest is --%s", name, nearest);
}

/* ---- values -------------------------------------------------------------------------------------------------- */

static bool parse_bool(const char *text, bool *out) {
    static const char *const yes[] = {"true", "1", "yes", "y", "t", "on"}, *const no[] = {"false", "0", "no",
                                                                                          "n",     "f", "off"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        *out = strcasecmp(text, yes[i]) == 0;
        if (*out || strcasecmp(text, no[i]) == 0) return true;
    }
    return false;
}

/* Decimal digits only: strtod also takes hexadecimal, "nan" and "infinity". */
static bool parse_real(const char *text, double *out) {
    char *end;
    if (!*text || text[strspn(text, "+-.0123456789eE")]) return false;
    *out = strtod(text, &end);
    return *end == '\0' && isfinite(*out);
}

static bool parse_int(const char *text, int64_t *out) {
    char *end;
    if (!*text || text[strspn(text, "+-0123456789")]) return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return *end == '\0' && errno == 0;
}

/* Of "6GiB", "600 MB", "1.5g" or "123456"; false if it is none of these or does not fit 63 bits. */
static bool parse_bytes(const char *text, int64_t *bytes) {
    static const struct {
        const char *unit;
        double factor;
    } units[] = {
        {"", 1},     {"B", 1},    {"K", 0x1p10}, {"M", 0x1p20},   {"G", 0x1p30},   {"T", 0x1p40},   {"KB", 1e3},
        {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},  {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
    };
    size_t length = strspn(text, ".0123456789");
    char digits[32];
    double number;
    if (length >= sizeof digits) return false;
    memcpy(digits, text, length);
    digits[length] = '\0';
    if (!parse_real(digits, &number)) return false;
    const char *unit = text + length;
    while (*unit == ' ') unit++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcasecmp(unit, units[i].unit) != 0) continue;
        if (number * units[i].factor >= 0x1p63) return false;
        *bytes = (int64_t)(number * units[i].factor);
        return true;
    }
    return false;
}

struct interval {
    double low, high;
    bool low_open, high_open;
};

static struct interval interval_of(const char *range) {
    struct interval interval = {-INFINITY, INFINITY, false, true};
    if (!range) return interval;
    char *end;
    interval.low_open = *range == '(';
    interval.low = strtod(range + 1, &end);
    const char *high = end + 1;
    if (*high != ')')
        interval.high = strtod(high, &end);
    else
        end = (char *)high;
    interval.high_open = *end == ')';
    return interval;
}

static bool in_interval(struct interval interval, double value) {
    return (interval.low_open ? value > interval.low : value >= interval.low) &&
           (interval.high_open ? value < interval.high : value <= interval.high);
}

/* " of at least 1", " above 0 and of at most 1": the text after "a number". */
static void describe_interval(char *out, size_t size, struct interval interval) {
    char low[48] = "", high[48] = "";
    if (interval.low > -INFINITY)
        snprintf(low, sizeof low, interval.low_open ? " above %g" : " of at least %g", interval.low);
    if (interval.high < INFINITY)
        snprintf(high, sizeof high, interval.high_open ? " below %g" : " of at most %g", interval.high);
    snprintf(out, size, "%s%s%s", low, *low && *high ? " and" : "", high);
}

static const char *find_value_advice(const struct snug_argument *argument, const char *text) {
    for (size_t i = 0; i < snug_foreign_value_count; i++) {
        const struct snug_foreign_value *value = &snug_foreign_values[i];
        if (strcmp(value->argument, argument->info.name) == 0 &&
            strncmp(value->begins, text, strlen(value->begins)) == 0)
            return value->advice;
    }
    return NULL;
}

static snug_status fail_value(struct snug_args *args, const struct snug_argument *argument, const char *name,
                              const char *text) {
    char range[128];
    const char *advice = find_value_advice(argument, text);
    const bool known = argument->known && snug_list_has(argument->known, '|', text, strlen(text));
    if (advice)
        return snug_fail(args->ctx, known ? SNUG_E_UNSUPPORTED : SNUG_E_USAGE,
                         "--%s %s: snug does not have this value: %s", name, text, advice);
    describe_interval(range, sizeof range, interval_of(argument->range));
    switch (argument->type) {
    case SNUG_ARG_BOOL:
    case SNUG_ARG_TRISTATE: return snug_fail(args->ctx, SNUG_E_USAGE, "--%s %s: must be True or False", name, text);
    case SNUG_ARG_INT:
        return snug_fail(args->ctx, SNUG_E_USAGE, "--%s %s: must be a whole number%s", name, text, range);
    case SNUG_ARG_REAL: return snug_fail(args->ctx, SNUG_E_USAGE, "--%s %s: must be a number%s", name, text, range);
    case SNUG_ARG_BYTES:
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--%s %s: must be a size of at least 1 byte, such as 600MiB, 6GiB, 6GB or 123456", name, text);
    default: break;
    }
    if (known)
        return snug_fail(args->ctx, SNUG_E_UNSUPPORTED,
                         "--%s %s: a known Hugging Face value, not supported by snug yet; it takes %s", name, text,
                         argument->info.value_name);
    return snug_fail(args->ctx, SNUG_E_USAGE, "--%s %s: must be one of %s", name, text, argument->info.value_name);
}

static snug_status replace_string(struct snug_args *args, char **field, const char *text) {
    char *copy = NULL;
    if (text) RETURN_IF_ERROR(snug_strdup(args->ctx, text, &copy));
    free(*field);
    *field = copy;
    return SNUG_OK;
}

static snug_status store(struct snug_args *args, const struct snug_argument *argument, const char *name,
                         const char *text) {
    void *field = (char *)args + argument->offset;
    struct interval interval = interval_of(argument->range);
    int64_t whole;
    double real;
    bool truth;
    switch (argument->type) {
    case SNUG_ARG_BOOL:
        if (!parse_bool(text, field)) return fail_value(args, argument, name, text);
        return SNUG_OK;
    case SNUG_ARG_INT:
        if (!parse_int(text, &whole) || !in_interval(interval, (double)whole))
            return fail_value(args, argument, name, text);
        *(int64_t *)field = whole;
        return SNUG_OK;
    case SNUG_ARG_REAL:
        if (!parse_real(text, &real) || !in_interval(interval, real)) return fail_value(args, argument, name, text);
        *(double *)field = real;
        return SNUG_OK;
    case SNUG_ARG_INTERVAL:
        if (!snug_list_has(argument->info.value_name, '|', text, strlen(text)))
            return fail_value(args, argument, name, text);
        *(enum snug_interval *)field = strcmp(text, "no") == 0      ? SNUG_INTERVAL_NO
                                       : strcmp(text, "steps") == 0 ? SNUG_INTERVAL_STEPS
                                       : strcmp(text, "epoch") == 0 ? SNUG_INTERVAL_EPOCH
                                                                    : SNUG_INTERVAL_BEST;
        return SNUG_OK;
    case SNUG_ARG_TRISTATE:
        if (*text && !parse_bool(text, &truth)) return fail_value(args, argument, name, text);
        return replace_string(args, field, !*text ? NULL : truth ? "True" : "False");
    case SNUG_ARG_CHOICE:
        if (*text && !snug_list_has(argument->info.value_name, '|', text, strlen(text)))
            return fail_value(args, argument, name, text);
        break;
    case SNUG_ARG_BYTES:
        if (*text && (!parse_bytes(text, &whole) || whole < 1)) return fail_value(args, argument, name, text);
        break;
    case SNUG_ARG_STRING: break;
    }
    /* An empty string unsets. */
    return replace_string(args, field,
                          *text                           ? text
                          : *argument->info.default_value ? argument->info.default_value
                                                          : NULL);
}

/* Writes the fewest digits that read back as the same number. */
static void print_real(char *out, size_t size, double value) {
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, size, "%.*g", digits, value);
        if (strtod(out, NULL) == value) return;
    }
}

static void print_value(const struct snug_args *args, const struct snug_argument *argument, char *number, size_t size,
                        const char **text) {
    static const char *const intervals[] = {"no", "steps", "epoch", "best"};
    const void *field = (const char *)args + argument->offset;
    *text = number;
    switch (argument->type) {
    case SNUG_ARG_BOOL: *text = *(const bool *)field ? "True" : "False"; return;
    case SNUG_ARG_INT: snprintf(number, size, "%lld", (long long)*(const int64_t *)field); return;
    case SNUG_ARG_REAL: print_real(number, size, *(const double *)field); return;
    case SNUG_ARG_INTERVAL: *text = intervals[*(const enum snug_interval *)field]; return;
    default: *text = *(char *const *)field ? *(char *const *)field : ""; return;
    }
}

/* Whether it has its default. */
static bool has_default(const struct snug_args *args, const struct snug_argument *argument) {
    const char *text = argument->info.default_value, *value;
    char number[PRINTED];
    print_value(args, argument, number, sizeof number, &value);
    if (argument->type == SNUG_ARG_REAL) return strtod(text, NULL) == strtod(value, NULL); /* 5e-5 and 5e-05 */
    return strcmp(value, text) == 0;
}

/* ---- setting ------------------------------------------------------------------------------------------------- */

static snug_status note_set(struct snug_args *args, const char *name) {
    if (lists(args->set_names, name)) return SNUG_OK;
    char *names;
    const char *before = args->set_names;
    RETURN_IF_ERROR(snug_format(args->ctx, &names, "%s%s%s", before ? before : "", before ? " " : "", name));
    free(args->set_names);
    args->set_names = names;
    return SNUG_OK;
}

/* The ZeRO stage of a list of FSDP's options. snug gathers weights one by one, so it needs no list of what to wrap. */
static snug_status find_fsdp_stage(snug_context *ctx, const char *text, const char **stage) {
    static const char *const words[][2] = {{"full_shard", "3"}, {"shard_grad_op", "2"}, {"no_shard", "0"},
                                           {"True", "3"},       {"False", "0"},         {"None", "0"},
                                           {"auto_wrap", NULL}};
    const size_t count = sizeof words / sizeof *words;
    *stage = "0";
    for (const char *word = text; *(word += strspn(word, " ,"));) {
        const size_t length = strcspn(word, " ,");
        size_t i = 0;
        while (i < count && (strlen(words[i][0]) != length || strncasecmp(words[i][0], word, length) != 0)) i++;
        if (i == count)
            return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                             "--fsdp %s: snug supports full_shard (--zero_stage 3), shard_grad_op (--zero_stage 2) and "
                             "no_shard, also with auto_wrap; leave the rest out",
                             text);
        if (words[i][1]) *stage = words[i][1];
        word += length;
    }
    return SNUG_OK;
}

/* The value that the target gets. */
static snug_status convert(struct snug_args *args, const struct snug_converted *converted, const char *text,
                           const char **value) {
    bool on;
    double ratio;
    *value = text;
    switch (converted->conversion) {
    case SNUG_CONVERT_FSDP: return find_fsdp_stage(args->ctx, text, value);
    case SNUG_CONVERT_GROUP_BY_LENGTH:
        if (!parse_bool(text, &on))
            return snug_fail(args->ctx, SNUG_E_USAGE, "--%s %s: must be True or False", converted->name, text);
        *value = on ? "group_by_length" : "random";
        return SNUG_OK;
    case SNUG_CONVERT_WARMUP_RATIO:
        if (!parse_real(text, &ratio) || ratio < 0 || ratio >= 1)
            return snug_fail(args->ctx, SNUG_E_USAGE, "--%s %s: must be a number of at least 0 and below 1",
                             converted->name, text);
        return SNUG_OK;
    }
    return snug_fail(args->ctx, SNUG_E_INTERNAL, "--%s has no conversion", converted->name);
}

/* Two names set one value. If both are given, that which asks for nothing does not count, and others must agree: the
   last one would win silently. What a file says does not count beside the command line. */
static snug_status set_one_of_pair(struct snug_args *args, const struct snug_converted *converted, bool by_other_name,
                                   const char *text) {
    const struct snug_argument *target = find_argument(converted->target);
    struct snug_pair *pair = &args->pairs[converted->conversion];
    const char *name = by_other_name ? converted->name : converted->target, *value = text;
    char before[PRINTED], number[PRINTED];
    const char *printed;
    if (pair->of_file != (args->file != NULL)) *pair = (struct snug_pair){.of_file = args->file};
    if (by_other_name) RETURN_IF_ERROR(convert(args, converted, text, &value));
    print_value(args, target, number, sizeof number, &printed);
    snprintf(before, sizeof before, "%s", printed);
    RETURN_IF_ERROR(store(args, target, name, value));
    print_value(args, target, number, sizeof number, &printed);
    pair->given[by_other_name] = true;
    pair->off[by_other_name] = has_default(args, target);
    if (!pair->given[!by_other_name] || pair->off[!by_other_name] || strcmp(before, printed) == 0) return SNUG_OK;
    if (pair->off[by_other_name]) return store(args, target, name, before);
    return snug_fail(args->ctx, SNUG_E_USAGE, "--%s and --%s are both given: leave one out", converted->name,
                     converted->target);
}

/* torch.distributed.launch passes the rank also as an argument, which cannot start other ranks. */
static snug_status check_local_rank(const struct snug_args *args, const char *text) {
    struct snug_ranks ranks;
    int64_t number;
    RETURN_IF_ERROR(snug_ranks_find(args->ctx, &ranks));
    if (!parse_int(text, &number) || number < -1)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--local_rank %s: must be a whole number of at least -1", text);
    if (number <= 0 && ranks.size == 1) return SNUG_OK;
    if (number == -1 || number == ranks.local_rank) return SNUG_OK;
    return snug_fail(
        args->ctx, SNUG_E_USAGE,
        "--local_rank %s: by the environment this is rank %d of %d, with local rank %d: leave the argument "
        "out, and start several ranks with mpirun or srun",
        text, ranks.rank, ranks.size, ranks.local_rank);
}

/* Arguments of a file that change nothing by any value are named together, if they ask for something or have no other
   meaning; others have their default there. */
static snug_status note_without_effect(struct snug_args *args, const struct snug_foreign *foreign, const char *name,
                                       bool asks) {
    char *longer;
    const char *names = args->without_effect;
    const char *why = is_ignored(foreign->kind) ? foreign->advice : NULL;
    if (!args->file) {
        snug_log(args->ctx, SNUG_LOG_INFO, "--%s: a Hugging Face argument without effect in snug%s%s", name,
                 why ? ": " : "", why ? why : "");
        return SNUG_OK;
    }
    if (!is_ignored(foreign->kind) || (why && !asks)) return SNUG_OK;
    RETURN_IF_ERROR(snug_format(args->ctx, &longer, "%s%s%s", names ? names : "", names ? ", " : "", name));
    free(args->without_effect);
    args->without_effect = longer;
    return SNUG_OK;
}

static snug_status set_foreign(struct snug_args *args, const struct snug_foreign *foreign, const char *name,
                               const char *text) {
    const enum snug_foreign_kind kind = foreign->kind;
    bool on = false, flag = is_foreign_flag(kind);
    bool unset;
    RETURN_IF_ERROR(snug_foreign_is_default(args, foreign, name, text, &unset));
    const bool is_bool = !flag || unset || parse_bool(text, &on);
    if (!is_bool && !foreign->advice)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--%s %s: must be True or False", name, text);
    if (strcmp(name, "local_rank") == 0 && !unset) RETURN_IF_ERROR(check_local_rank(args, text));
    if (kind == SNUG_FOREIGN_COMMAND && on) return note_set(args, name); /* snug_args_check() compares it */
    const bool takes = is_bool && on == (kind == SNUG_FOREIGN_FLAG_ON);
    if (is_ignored(kind) || kind == SNUG_FOREIGN_COMMAND || unset || (flag && takes))
        return note_without_effect(args, foreign, name, !unset && (on || !flag || !is_bool));
    return snug_fail(args->ctx, SNUG_E_UNSUPPORTED, "--%s %s: %s", name, text, foreign->advice);
}

static snug_status set_from_file(struct snug_args *args, const struct snug_argument *argument, const char *text) {
    char *path;
    bool folder;
    RETURN_IF_ERROR(snug_args_find_file(args->ctx, text, &path, &folder));
    snug_status status = snug_args_read(args, path);
    if (status == SNUG_OK) status = store(args, argument, argument->info.name, path);
    if (status == SNUG_OK) status = replace_string(args, &args->run_folder, folder ? text : NULL);
    free(path);
    return status == SNUG_OK ? note_set(args, argument->info.name) : status;
}

/* name: as plain_name() writes it. */
static snug_status set_plain(struct snug_args *args, const char *name, const char *text) {
    const struct snug_argument *argument = find_argument(name);
    const struct snug_converted *converted = find_converted(name);
    const struct snug_foreign *foreign = find_foreign(name);
    if (argument && argument->offset == offsetof(struct snug_args, args_from) && *text)
        return set_from_file(args, argument, text);
    if (argument && argument->offset == offsetof(struct snug_args, output_dir))
        RETURN_IF_ERROR(replace_string(args, &args->run_folder, NULL));
    if (argument || converted) {
        const struct snug_converted *pair = converted ? converted : find_pair(argument->info.name);
        RETURN_IF_ERROR(pair ? set_one_of_pair(args, pair, converted, text) : store(args, argument, name, text));
        return note_set(args, argument ? argument->info.name : name);
    }
    return foreign ? set_foreign(args, foreign, name, text) : fail_unknown(args->ctx, name);
}

snug_status snug_args_restore(struct snug_args *args, const char *name, const char *text) {
    const struct snug_argument *argument = find_argument(name);
    return argument ? store(args, argument, name, text) : fail_unknown(args->ctx, name);
}

snug_status snug_args_check_name(struct snug_args *args, const char *name) {
    char plain[name_size];
    plain_name(plain, name, strlen(name));
    return is_known(plain) ? SNUG_OK : fail_unknown(args->ctx, plain);
}

bool snug_args_is_alias(const char *name, const char *other) {
    const struct snug_argument *argument = find_argument(name);
    return argument && find_argument(other) == argument;
}

bool snug_args_has_default(const struct snug_args *args, const char *name) {
    const struct snug_argument *argument = find_argument(name);
    return argument && has_default(args, argument);
}

snug_status snug_args_mark(struct snug_args *args, const char *name) {
    return find_argument(name) || find_converted(name) ? note_set(args, name) : SNUG_OK;
}

snug_status snug_args_assign(snug_args *args, const char *name, const char *value) {
    char plain[name_size];
    plain_name(plain, name, strlen(name));
    return set_plain(args, plain, value);
}

snug_status snug_args_value(const snug_args *args, const char *name, char *buffer, size_t size) {
    char plain[name_size], number[64];
    const char *text;
    plain_name(plain, name, strlen(name));
    const struct snug_argument *argument = find_argument(plain);
    const struct snug_converted *converted = argument ? NULL : find_converted(plain);
    if (converted) argument = find_argument(converted->target);
    if (!argument) return fail_unknown(args->ctx, plain);
    print_value(args, argument, number, sizeof number, &text);
    if (converted && converted->conversion == SNUG_CONVERT_GROUP_BY_LENGTH)
        text = strcmp(text, "group_by_length") == 0 ? "True" : "False";
    if (strlen(text) >= size)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--%s: its value needs %zu bytes, the buffer has %zu", plain,
                         strlen(text) + 1, size);
    memcpy(buffer, text, strlen(text) + 1);
    return SNUG_OK;
}

/* A word that is no argument: a file, or a name with a single dash; or a second value of the argument before it, which
   is "" if that has none. */
static snug_status fail_word(snug_context *ctx, const char *word, const char *before) {
    char name[name_size];
    plain_name(name, word, strlen(word));
    const char *meant = find_short(name);
    if (*word == '-' && asks_version(name)) return fail_unknown(ctx, name);
    if (*word == '-' && (meant || is_known(name)))
        return snug_fail(ctx, SNUG_E_USAGE, "%s: an argument must begin with --: give --%s", word,
                         meant ? meant : name);
    if (*before)
        return snug_fail(ctx, SNUG_E_USAGE,
                         "%s: an argument must begin with --, and --%s has one value: put one with spaces into quotes, "
                         "and join a list by commas",
                         word, before);
    return snug_fail(ctx, SNUG_E_USAGE, "%s: an argument must begin with --, as in --%s %s", word,
                     snug_folder_exists(word) ? "model_name_or_path" : "train_file", word);
}

/* The file of arguments that argv[i] names, alone in the first place or after --args_from, and how many words that
 * takes; else NULL. */
static const char *args_file(int argc, char *const argv[], int i, int *words) {
    char name[name_size];
    const char *word = argv[i], *equals = strchr(word, '=');
    const size_t length = strlen(word);
    *words = 1;
    if (i == 1 && *word != '-' && length > 5 && strcmp(word + length - 5, ".json") == 0) return word;
    if (strncmp(word, "--", 2) != 0) return NULL;
    plain_name(name, word, equals ? (size_t)(equals - word) : length);
    if (strcmp(name, "args_from") != 0) return NULL;
    if (equals) return equals + 1;
    *words = 2;
    return i + 1 < argc ? argv[i + 1] : NULL;
}

/* First the files of arguments, then the others, which have precedence. */
static snug_status read_files(struct snug_args *args, int argc, char *const argv[]) {
    int words;
    for (int i = 1; i < argc; i += words) {
        const char *path = args_file(argc, argv, i, &words);
        if (path) RETURN_IF_ERROR(set_plain(args, "args_from", path));
        if (!path) words = 1;
    }
    return SNUG_OK;
}

snug_status snug_args_read_words(snug_args *args, int argc, char *const argv[]) {
    int words;
    char before[name_size] = ""; /* the last argument that took the word after it */
    args->command = argv[0];
    const snug_status read = read_files(args, argc, argv);
    args->command = NULL;
    RETURN_IF_ERROR(read);
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (args_file(argc, argv, i, &words)) {
            i += words - 1;
            continue;
        }
        if (strncmp(word, "--", 2) != 0 || !word[2]) return fail_word(args->ctx, word, before);
        const char *equals = strchr(word, '='), *value = equals ? equals + 1 : NULL;
        char name[name_size];
        plain_name(name, word, equals ? (size_t)(equals - word) : strlen(word));
        const bool known = is_known(name), negated = !known && strncmp(name, "no_", 3) == 0 && is_flag(name + 3);
        if (negated && value)
            return snug_fail(args->ctx, SNUG_E_USAGE, "--%s takes no value; write --%s %s", name, name + 3, value);
        if (!known && !negated) return fail_unknown(args->ctx, name);
        bool next = i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0;
        const bool takes = !negated && !value && next;
        snprintf(before, sizeof before, "%s", takes ? name : "");
        if (takes) value = argv[++i];
        if (!value && !negated && !is_flag(name)) return snug_fail(args->ctx, SNUG_E_USAGE, "--%s needs a value", name);
        RETURN_IF_ERROR(set_plain(args, negated ? name + 3 : name, negated ? "False" : value ? value : "True"));
    }
    return SNUG_OK;
}

/* ---- create, copy, destroy --------------------------------------------------------------------------------------- */

static bool owns_string(enum snug_arg_type type) {
    return type == SNUG_ARG_STRING || type == SNUG_ARG_CHOICE || type == SNUG_ARG_TRISTATE || type == SNUG_ARG_BYTES;
}

snug_status snug_args_make(snug_context *ctx, snug_args **out) {
    void *args;
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof **out, &args));
    ((snug_args *)args)->ctx = ctx;
    for (size_t i = 0; i < snug_argument_count; i++) {
        const struct snug_argument *argument = &snug_arguments[i];
        snug_status status = store(args, argument, argument->info.name, argument->info.default_value);
        if (status != SNUG_OK) {
            snug_args_free(args);
            return status;
        }
    }
    *out = args;
    return SNUG_OK;
}

snug_status snug_args_copy(snug_context *ctx, const struct snug_args *args, struct snug_args **out) {
    snug_args *copy;
    *out = NULL;
    RETURN_IF_ERROR(snug_args_make(ctx, &copy));
    copy->to_host = args->to_host;
    copy->deepspeed_told = args->deepspeed_told;
    snug_status status = args->set_names ? snug_strdup(ctx, args->set_names, &copy->set_names) : SNUG_OK;
    for (size_t i = 0; i < snug_argument_count && status == SNUG_OK; i++) {
        const struct snug_argument *argument = &snug_arguments[i];
        char number[64];
        const char *text;
        print_value(args, argument, number, sizeof number, &text);
        status = store(copy, argument, argument->info.name, text);
    }
    copy->train_rows = args->train_rows;
    copy->validation_rows = args->validation_rows;
    copy->test_rows = args->test_rows;
    if (status != SNUG_OK)
        snug_args_free(copy);
    else
        *out = copy;
    return status;
}

void snug_args_free(snug_args *args) {
    if (!args) return;
    for (size_t i = 0; i < snug_argument_count; i++)
        if (owns_string(snug_arguments[i].type)) free(*(char **)((char *)args + snug_arguments[i].offset));
    free(args->set_names);
    free(args->run_folder);
    snug_process_group_close(args->group);
    free(args);
}

bool snug_args_is_set(const struct snug_args *args, const char *name) {
    const struct snug_argument *argument = find_argument(name);
    if (lists(args->set_names, argument ? argument->info.name : name)) return true;
    for (size_t i = 0; argument && i < snug_converted_count; i++)
        if (strcmp(snug_converted_arguments[i].target, argument->info.name) == 0 &&
            lists(args->set_names, snug_converted_arguments[i].name))
            return true;
    return false;
}

bool snug_args_is_chosen(const struct snug_args *args, const char *name) {
    return snug_args_is_set(args, name) && !snug_args_has_default(args, name);
}

uint64_t snug_args_data_seed(const struct snug_args *args) {
    return (uint64_t)(args->data_seed >= 0 ? args->data_seed : args->seed);
}

enum snug_regression snug_args_regression(const struct snug_args *args) {
    if (!args->do_regression) return SNUG_REGRESSION_AUTO;
    return strcmp(args->do_regression, "True") == 0 ? SNUG_REGRESSION_YES : SNUG_REGRESSION_NO;
}

enum snug_ranking_loss snug_args_ranking_loss(const struct snug_args *args) {
    if (strcmp(args->ranking_loss, "listnet") == 0) return SNUG_RANKING_LISTNET;
    return strcmp(args->ranking_loss, "margin") == 0 ? SNUG_RANKING_MARGIN : SNUG_RANKING_BINARY;
}

/* A size that was parsed before; -1 if it is unset. */
static snug_status read_size(const struct snug_args *args, const char *name, const char *text, int64_t *bytes) {
    *bytes = -1;
    if (text && !parse_bytes(text, bytes)) return snug_fail(args->ctx, SNUG_E_USAGE, "--%s %s: not a size", name, text);
    return SNUG_OK;
}

snug_status snug_args_budget(const struct snug_args *args, int64_t *bytes) {
    return read_size(args, "memory_budget", args->memory_budget, bytes);
}

snug_status snug_args_shard_size(const struct snug_args *args, int64_t *bytes) {
    return read_size(args, "max_shard_size", args->max_shard_size, bytes);
}
