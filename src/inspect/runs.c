/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the files of finished and unfinished trainings. trainer_state.json is needed, and is found in the newest
   checkpoint while a run has not ended; the others (run_report.json, all_results.json, training_args.json) may be
   missing, as in a folder of transformers' Trainer. The files may be anyone's: what has another form is an error. */
#include "inspect/runs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/folder.h"
#include "io/json.h"
#include "model/adapters.h"
#include "model/weight_files.h"
#include "train/output.h"

/* More than a step of any model has, so that sums of bytes fit 64 bits. */
enum { OPS_MOST = 1 << 20 };
#define BYTES_MOST (INT64_C(1) << 50)

struct reading {
    snug_context *ctx;
    const struct snug_folder *folder;
    struct snug_history *run;
};

static snug_status fail_form(const struct reading *r, const char *file, const char *what) {
    return snug_fail(r->ctx, SNUG_E_INPUT, "%s/%s: %s: it is damaged, or of another program", r->folder->path, file,
                     what);
}

/* ---- trainer_state.json --------------------------------------------------------------------------------------- */

static snug_status find_series(const struct reading *r, const char *name, struct snug_series **out) {
    struct snug_history *run = r->run;
    for (size_t i = 0; i < run->series_count; i++)
        if (strcmp(run->series[i].name, name) == 0) {
            *out = &run->series[i];
            return SNUG_OK;
        }
    RETURN_IF_ERROR(
        snug_grow(r->ctx, (void **)&run->series, &run->series_capacity, run->series_count + 1, sizeof *run->series));
    *out = &run->series[run->series_count];
    **out = (struct snug_series){0};
    RETURN_IF_ERROR(snug_strdup(r->ctx, name, &(*out)->name));
    run->series_count++;
    return SNUG_OK;
}

/* Curves are of what changes from step to step: not of a run's totals, nor of how fast an evaluation was. */
static bool is_curve(const char *name) {
    static const char *const others[] = {"step", "epoch", "total_flos", "train_loss", "eval_samples"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0) return false;
    const bool timing = strstr(name, "_runtime") || strstr(name, "_per_second");
    return !timing || strcmp(name, "samples_per_second") == 0;
}

static snug_status take_log(const struct reading *r, const json_t *entry) {
    const char *name;
    json_t *value;
    const json_t *step = json_object_get(entry, "step");
    if (!json_is_number(step)) return fail_form(r, "trainer_state.json", "an entry of log_history has no step");
    json_object_foreach((json_t *)entry, name, value) {
        if (!is_curve(name) || !(json_is_number(value) || json_is_null(value))) continue;
        struct snug_series *series;
        RETURN_IF_ERROR(find_series(r, name, &series));
        RETURN_IF_ERROR(snug_grow(r->ctx, (void **)&series->samples, &series->capacity, series->count + 1,
                                  sizeof *series->samples));
        series->samples[series->count++] =
            (struct snug_sample){json_number_value(step), json_is_null(value) ? NAN : json_number_value(value)};
    }
    return SNUG_OK;
}

static double number_or_nan(const json_t *value) { return json_is_number(value) ? json_number_value(value) : NAN; }

static snug_status take_state(const struct reading *r, const json_t *state) {
    size_t i;
    json_t *entry;
    const json_t *history = json_object_get(state, "log_history");
    if (!json_is_array(history)) return fail_form(r, "trainer_state.json", "log_history is not a list");
    r->run->step = json_number_value(json_object_get(state, "global_step"));
    r->run->max_steps = json_number_value(json_object_get(state, "max_steps"));
    r->run->epoch = number_or_nan(json_object_get(state, "epoch"));
    r->run->best = number_or_nan(json_object_get(state, "best_metric"));
    r->run->best_step = number_or_nan(json_object_get(state, "best_global_step"));
    const char *best = json_string_value(json_object_get(state, "best_model_checkpoint"));
    if (best) RETURN_IF_ERROR(snug_strdup(r->ctx, best, &r->run->best_checkpoint));
    json_array_foreach(history, i, entry) RETURN_IF_ERROR(take_log(r, entry));
    return SNUG_OK;
}

/* ---- run_report.json ------------------------------------------------------------------------------------------ */

static bool take_bytes(const json_t *value, int64_t *bytes) {
    *bytes = json_integer_value(value);
    return json_is_integer(value) && *bytes >= 0 && *bytes <= BYTES_MOST;
}

/* A list in which [value, times] is a value that is repeated, as a list of single values, of which `out` has at most
   one more than OPS_MOST. NULL: out of memory. */
static json_t *expand(const json_t *list) {
    json_t *out = json_array(), *value;
    size_t i;
    json_array_foreach(list, i, value) {
        const json_int_t times = json_is_array(value) ? json_integer_value(json_array_get(value, 1)) : 1;
        json_t *single = json_is_array(value) ? json_array_get(value, 0) : value;
        for (json_int_t k = 0; k < times && json_array_size(out) <= OPS_MOST; k++)
            snug_json_append(&out, json_incref(single));
    }
    return out;
}

static snug_status take_live(const struct reading *r, const json_t *live, struct snug_step_memory *memory) {
    for (int c = 0; c <= SNUG_MEMORY_BATCH; c++) {
        size_t i;
        json_t *value;
        const json_t *stored = json_object_get(live, snug_memory_class_name((snug_memory_class)c));
        if (!stored) continue;
        RETURN_IF_ERROR(snug_alloc(r->ctx, memory->ops, sizeof **memory->live, (void **)&memory->live[c]));
        json_t *list = expand(stored);
        const bool fits = json_array_size(list) == memory->ops;
        bool valid = fits;
        for (i = 0; fits && i < memory->ops; i++) {
            value = json_array_get(list, i);
            valid &= take_bytes(value, &memory->live[c][i]);
        }
        json_decref(list);
        if (!fits)
            return fail_form(r, SNUG_RUN_REPORT, "a class does not have as many figures as there are operations");
        if (!valid) return fail_form(r, SNUG_RUN_REPORT, "a figure is not a number of bytes");
    }
    return SNUG_OK;
}

static void find_peak(struct snug_step_memory *memory) {
    for (size_t op = 0; op < memory->ops; op++) {
        int64_t sum = 0;
        for (int c = 0; c <= SNUG_MEMORY_BATCH; c++) sum += snug_step_memory_bytes(memory, c, op);
        if (op && sum <= memory->peak_bytes) continue;
        memory->peak = op;
        memory->peak_bytes = sum;
    }
}

/* What each operation is; kinds: names, of which operations are numbers; absent where they are names themselves. */
static snug_status take_operations(const struct reading *r, const json_t *kinds, const json_t *operations,
                                   const json_t *phases, const json_t *layers) {
    struct snug_step_memory *memory = &r->run->memory;
    const size_t ops = json_array_size(operations);
    if (ops == 0 || ops > OPS_MOST || json_array_size(phases) != ops || json_array_size(layers) != ops)
        return fail_form(r, SNUG_RUN_REPORT, "the lists of operations, phases and layers do not match");
    RETURN_IF_ERROR(snug_alloc(r->ctx, ops, sizeof *memory->items, (void **)&memory->items));
    for (size_t i = 0; i < ops; i++) {
        const json_t *of = json_array_get(operations, i);
        const json_int_t number = json_integer_value(of);
        const char *kind = json_string_value(json_is_integer(of) && number >= 0 ? json_array_get(kinds, (size_t)number)
                                                                                : of),
                   *phase = json_string_value(json_array_get(phases, i));
        if (!kind || !phase) return fail_form(r, SNUG_RUN_REPORT, "an operation has no name");
        RETURN_IF_ERROR(snug_keep_text(r->ctx, kind, &memory->items[i].kind));
        RETURN_IF_ERROR(snug_keep_text(r->ctx, phase, &memory->items[i].phase));
        const json_int_t layer = json_integer_value(json_array_get(layers, i)); /* docs/file-formats.md */
        memory->items[i].part = layer >= 0 ? SNUG_PART_LAYER : layer == -1 ? SNUG_PART_EMBEDDINGS : SNUG_PART_HEAD;
        memory->items[i].layer = layer;
    }
    return SNUG_OK;
}

static snug_status take_memory(const struct reading *r, const json_t *object) {
    struct snug_step_memory *memory = &r->run->memory;
    const json_t *resident = json_object_get(object, "resident");
    json_t *operations = expand(json_object_get(object, "operations")),
           *phases = expand(json_object_get(object, "phases")), *layers = expand(json_object_get(object, "layers"));
    const snug_status status = take_operations(r, json_object_get(object, "kinds"), operations, phases, layers);
    const size_t ops = json_array_size(operations);
    json_decref(operations);
    json_decref(phases);
    json_decref(layers);
    RETURN_IF_ERROR(status);
    for (int c = 0; c <= SNUG_MEMORY_BATCH; c++)
        if (!take_bytes(json_object_get(resident, snug_memory_class_name((snug_memory_class)c)), &memory->resident[c]))
            return fail_form(r, SNUG_RUN_REPORT, "a class is missing, or is not a number of bytes");
    if (!take_bytes(json_object_get(object, "arena"), &memory->arena))
        return fail_form(r, SNUG_RUN_REPORT, "arena is not a number of bytes");
    memory->ops = ops;
    RETURN_IF_ERROR(take_live(r, json_object_get(object, "live"), memory));
    find_peak(memory);
    return SNUG_OK;
}

static int longest_first(const void *a, const void *b) {
    const struct snug_time_part *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds < y->seconds ? 1 : -1;
    return strcmp(x->name, y->name);
}

/* -1 where the file has no such number. */
static double seconds_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) && json_number_value(value) >= 0 ? json_number_value(value) : -1;
}

static snug_status take_seconds(const struct reading *r, const json_t *object) {
    struct snug_history *run = r->run;
    const char *name;
    json_t *value;
    run->start = seconds_of(object, "start");
    run->training = seconds_of(object, "training");
    run->evaluating_and_saving = seconds_of(object, "evaluating_and_saving");
    json_object_foreach(json_object_get(object, "operations"), name, value) {
        if (!json_is_number(value) || !(json_number_value(value) >= 0))
            return fail_form(r, SNUG_RUN_REPORT, "an operation's time is not a number of seconds");
        RETURN_IF_ERROR(snug_grow(r->ctx, (void **)&run->operations, &run->operation_capacity, run->operation_count + 1,
                                  sizeof *run->operations));
        struct snug_time_part *part = &run->operations[run->operation_count];
        RETURN_IF_ERROR(snug_strdup(r->ctx, name, &part->name));
        part->seconds = json_number_value(value);
        run->operation_count++;
    }
    if (run->operation_count) qsort(run->operations, run->operation_count, sizeof *run->operations, longest_first);
    return SNUG_OK;
}

/* More than trainer_state.json has, where snug trained to the end. */
static snug_status take_best(const struct reading *r, const json_t *best) {
    const char *metric = json_string_value(json_object_get(best, "metric"));
    if (!metric) return SNUG_OK;
    r->run->best = number_or_nan(json_object_get(best, "value"));
    r->run->best_step = number_or_nan(json_object_get(best, "step"));
    r->run->best_is_model = json_is_true(json_object_get(best, "is_model"));
    return snug_strdup(r->ctx, metric, &r->run->best_metric);
}

static snug_status take_report(const struct reading *r, const json_t *report) {
    RETURN_IF_ERROR(take_best(r, json_object_get(report, "best")));
    RETURN_IF_ERROR(take_seconds(r, json_object_get(report, "seconds")));
    return take_memory(r, json_object_get(report, "memory"));
}

/* ---- tables --------------------------------------------------------------------------------------------------- */

/* Takes value over. */
static snug_status add_entry(const struct reading *r, struct snug_entries *entries, const char *name, char *value) {
    struct snug_entry entry = {.value = value};
    snug_status status =
        snug_grow(r->ctx, (void **)&entries->items, &entries->capacity, entries->count + 1, sizeof *entries->items);
    if (status == SNUG_OK) status = snug_strdup(r->ctx, name, &entry.name);
    if (status == SNUG_OK)
        entries->items[entries->count++] = entry;
    else
        free(value);
    return status;
}

/* A value as text: a string without its quotes, anything else as JSON. */
static snug_status add_value(const struct reading *r, struct snug_entries *entries, const char *name,
                             const json_t *value) {
    char *text;
    RETURN_IF_ERROR(json_is_string(value) ? snug_strdup(r->ctx, json_string_value(value), &text)
                                          : snug_json_text(r->ctx, value, JSON_COMPACT | JSON_ENCODE_ANY, &text));
    return add_entry(r, entries, name, text);
}

/* The members of an object, those of inner objects as "outer.inner". */
static snug_status take_settings(const struct reading *r, const char *prefix, const json_t *object) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        char *name;
        RETURN_IF_ERROR(snug_format(r->ctx, &name, "%s%s%s", prefix, *prefix ? "." : "", key));
        const snug_status status = json_is_object(value) && json_object_size(value)
                                       ? take_settings(r, name, value)
                                       : add_value(r, &r->run->settings, name, value);
        free(name);
        RETURN_IF_ERROR(status);
    }
    return SNUG_OK;
}

static snug_status take_arguments(const struct reading *r, const json_t *arguments) {
    return take_settings(r, "", arguments);
}

static int64_t bytes_or_unknown(const json_t *value) {
    int64_t bytes;
    return take_bytes(value, &bytes) ? bytes : -1;
}

/* Bytes in MiB, whole numbers in full. */
static snug_status result_text(const struct reading *r, const char *name, double value, char **out) {
    const char *end = strrchr(name, '_');
    if (end && strcmp(end, "_bytes") == 0) return snug_format(r->ctx, out, "%.1f MiB", value / 0x1p20);
    return snug_format(r->ctx, out, value == floor(value) ? "%.15g" : "%.6g", value);
}

/* Whether there is a list of as many counts as classes for each class. */
static bool is_square(const json_t *counts, size_t classes) {
    bool square = json_array_size(counts) == classes;
    for (size_t i = 0; i < classes; i++) square &= json_array_size(json_array_get(counts, i)) == classes;
    return square;
}

static snug_status take_labels(const struct reading *r, const json_t *labels, struct snug_confusion *confusion) {
    const size_t classes = json_array_size(labels);
    RETURN_IF_ERROR(snug_alloc(r->ctx, classes, sizeof *confusion->labels, (void **)&confusion->labels));
    confusion->classes = (int64_t)classes;
    for (size_t i = 0; i < classes; i++) {
        const char *label = json_string_value(json_array_get(labels, i));
        if (!label) return fail_form(r, "all_results.json", "confusion_matrix has a label that is not a text");
        RETURN_IF_ERROR(snug_strdup(r->ctx, label, &confusion->labels[i]));
    }
    return SNUG_OK;
}

/* Another program's may have another form. */
static snug_status take_confusion(const struct reading *r, const json_t *matrix) {
    struct snug_confusion *confusion = &r->run->confusion;
    const json_t *labels = json_object_get(matrix, "labels"), *counts = json_object_get(matrix, "counts");
    const size_t classes = json_array_size(labels);
    if (!json_is_array(counts) || !classes) return SNUG_OK;
    if (!is_square(counts, classes))
        return fail_form(r, "all_results.json", "confusion_matrix does not have a count for each pair of classes");
    RETURN_IF_ERROR(take_labels(r, labels, confusion));
    RETURN_IF_ERROR(snug_alloc(r->ctx, classes * classes, sizeof *confusion->counts, (void **)&confusion->counts));
    for (size_t i = 0; i < classes * classes; i++)
        if (!take_bytes(json_array_get(json_array_get(counts, i / classes), i % classes), &confusion->counts[i]))
            return fail_form(r, "all_results.json", "confusion_matrix has a count that is not a number of rows");
    return SNUG_OK;
}

static snug_status take_results(const struct reading *r, const json_t *results) {
    struct snug_history *run = r->run;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)results, key, value) {
        if (!json_is_number(value)) continue;
        char *text;
        RETURN_IF_ERROR(result_text(r, key, json_number_value(value), &text));
        RETURN_IF_ERROR(add_entry(r, &run->results, key, text));
    }
    json_object_foreach(json_object_get(results, "memory"), key, value) {
        RETURN_IF_ERROR(snug_grow(r->ctx, (void **)&run->figures, &run->figure_capacity, run->figure_count + 1,
                                  sizeof *run->figures));
        struct snug_memory_figure *figure = &run->figures[run->figure_count];
        figure->planned = bytes_or_unknown(json_object_get(value, "planned"));
        figure->measured = bytes_or_unknown(json_object_get(value, "measured"));
        RETURN_IF_ERROR(snug_strdup(r->ctx, key, &figure->name));
        run->figure_count++;
    }
    return take_confusion(r, json_object_get(results, "confusion_matrix"));
}

/* ---- folders -------------------------------------------------------------------------------------------------- */

static snug_status read_file(const struct reading *r, const char *file,
                             snug_status (*take)(const struct reading *r, const json_t *value)) {
    json_t *value;
    if (!snug_file_exists(r->folder, file)) return SNUG_OK;
    RETURN_IF_ERROR(snug_json_read(r->ctx, r->folder, file, &value));
    const snug_status status = take(r, value);
    json_decref(value);
    return status;
}

/* The name of the newest checkpoint in the folder; "" if there is none. */
static snug_status find_checkpoint(snug_context *ctx, const struct snug_folder *folder,
                                   char name[sizeof((struct snug_history *)0)->checkpoint]) {
    static const char prefix[] = "checkpoint-";
    int64_t newest = -1;
    DIR *entries = snug_folder_entries(folder);
    if (!entries)
        return snug_fail(ctx, SNUG_E_IO, "the checkpoints in %s cannot be listed: %s", folder->path, strerror(errno));
    *name = '\0';
    for (struct dirent *entry; (entry = readdir(entries));) {
        const char *digits = entry->d_name + sizeof prefix - 1;
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) != 0) continue;
        const size_t length = strspn(digits, "0123456789");
        if (!length || length > 18 || digits[length] || strtoll(digits, NULL, 10) <= newest) continue;
        newest = strtoll(digits, NULL, 10);
        snprintf(name, sizeof((struct snug_history *)0)->checkpoint, "%s%lld", prefix, (long long)newest);
    }
    closedir(entries);
    return SNUG_OK;
}

static snug_status read_state(const struct reading *r) {
    static const char file[] = "trainer_state.json";
    char *name = r->run->checkpoint;
    if (snug_file_exists(r->folder, file)) {
        r->run->has_model = snug_file_exists(r->folder, SNUG_WEIGHTS) ||
                            snug_file_exists(r->folder, SNUG_WEIGHTS_INDEX) ||
                            snug_file_exists(r->folder, SNUG_ADAPTER_WEIGHTS);
        return read_file(r, file, take_state);
    }
    RETURN_IF_ERROR(find_checkpoint(r->ctx, r->folder, name));
    struct snug_folder checkpoint = {0};
    if (*name) RETURN_IF_ERROR(snug_folder_open(r->ctx, r->folder, name, &checkpoint));
    if (!*name || !snug_file_exists(&checkpoint, file)) {
        snug_folder_close(&checkpoint);
        return snug_fail(r->ctx, SNUG_E_INPUT,
                         "%s has no trainer_state.json, and no checkpoint with one: it is not the --output_dir of a "
                         "training",
                         r->folder->path);
    }
    const struct reading inner = {r->ctx, &checkpoint, r->run};
    const snug_status status = read_file(&inner, file, take_state);
    snug_folder_close(&checkpoint);
    return status;
}

static snug_status read_run(snug_context *ctx, const char *path, struct snug_history *run) {
    struct snug_folder folder;
    run->start = run->training = run->evaluating_and_saving = -1;
    run->epoch = run->best = run->best_step = NAN;
    RETURN_IF_ERROR(snug_strdup(ctx, path, &run->folder));
    RETURN_IF_ERROR(snug_folder_open(ctx, NULL, path, &folder));
    const struct reading r = {ctx, &folder, run};
    snug_status status = read_state(&r);
    if (status == SNUG_OK) status = read_file(&r, SNUG_RUN_REPORT, take_report);
    if (status == SNUG_OK) status = read_file(&r, "all_results.json", take_results);
    if (status == SNUG_OK) status = read_file(&r, "training_args.json", take_arguments);
    snug_folder_close(&folder);
    return status;
}

static snug_status create_runs(snug_context *ctx, const char *const *folders, size_t count, snug_runs **out) {
    void *memory;
    if (count == 0 || count > SNUG_RUNS_MOST)
        return snug_fail(ctx, SNUG_E_USAGE, "a report is of 1 to %d runs, not of %zu", SNUG_RUNS_MOST, count);
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof **out, &memory));
    snug_runs *runs = memory;
    runs->ctx = ctx;
    snug_status status = snug_alloc(ctx, count, sizeof *runs->items, &memory);
    runs->items = memory;
    for (; runs->count < count && status == SNUG_OK; runs->count++)
        status = read_run(ctx, folders[runs->count], &runs->items[runs->count]);
    if (status == SNUG_OK)
        *out = runs;
    else
        snug_runs_destroy(runs);
    return status;
}

snug_status snug_runs_create(snug_context *ctx, const char *const *folders, size_t count, snug_runs **out) {
    SNUG_REQUIRE_OUT(out);
    SNUG_REQUIRE(ctx);
    SNUG_REQUIRE_ITEMS(folders, count);
    RETURN_IF_ERROR(snug_enter(ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(ctx, create_runs(ctx, folders, count, out));
}

static void free_entries(struct snug_entries *entries) {
    for (size_t i = 0; i < entries->count; i++) {
        free(entries->items[i].name);
        free(entries->items[i].value);
    }
    free(entries->items);
}

static void free_confusion(struct snug_confusion *confusion) {
    for (int64_t i = 0; i < confusion->classes; i++) free(confusion->labels[i]);
    free(confusion->labels);
    free(confusion->counts);
}

static void free_run(struct snug_history *run) {
    free(run->folder);
    free(run->best_metric);
    free(run->best_checkpoint);
    free_confusion(&run->confusion);
    for (size_t i = 0; i < run->series_count; i++) {
        free(run->series[i].name);
        free(run->series[i].samples);
    }
    free(run->series);
    free(run->memory.items);
    for (int c = 0; c < SNUG_MEMORY_CLASS_COUNT; c++) free(run->memory.live[c]);
    for (size_t i = 0; i < run->operation_count; i++) free(run->operations[i].name);
    free(run->operations);
    for (size_t i = 0; i < run->figure_count; i++) free(run->figures[i].name);
    free(run->figures);
    free_entries(&run->results);
    free_entries(&run->settings);
}

void snug_runs_destroy(snug_runs *runs) {
    if (!runs) return;
    for (size_t i = 0; i < runs->count; i++) free_run(&runs->items[i]);
    free(runs->items);
    free(runs);
}
