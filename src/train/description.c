/* SPDX-License-Identifier: Apache-2.0 */
#include "train/description.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/wrap.h"
#include "data/dataset_impl.h"
#include "data/label_names.h"
#include "data/loss_mask.h"
#include "io/json.h"
#include "model/family.h"
#include "model/weights.h"
#include "train/group.h"

enum { CLASSES_SHOWN = 10 };

/* ---- the figures ------------------------------------------------------------------------------------------------ */

static const struct snug_planned_program *main_program(const struct snug_session *s) {
    return s->training ? s->training : s->evaluation;
}

static const struct snug_data_source *main_data(const struct snug_session *s) {
    return s->training ? &s->job.setup.train : &s->job.setup.eval;
}

static void count_parameters(const struct snug_program *program, int64_t *all, int64_t *trained) {
    *all = *trained = 0;
    for (size_t i = 0; i < program->parameter_count; i++) {
        const int64_t count = snug_parameter_count(&program->parameters[i]);
        *all += count;
        if (program->tensors[program->parameters[i].tensor].trainable) *trained += count;
    }
}

/* On average: an epoch's last step may have fewer. */
static double samples_per_step(const struct snug_session *s) {
    return (double)s->job.setup.train.rows / (double)s->steps_per_epoch;
}

static const char *problem_text(const struct snug_setup *setup) {
    static const char *const texts[] = {
        [SNUG_PROBLEM_SINGLE_LABEL] = "one label per text",
        [SNUG_PROBLEM_MULTI_LABEL] = "several labels per text",
        [SNUG_PROBLEM_REGRESSION] = "regression: a number per text",
    };
    return snug_setup_task(setup)->problems ? texts[setup->config.labels.problem] : NULL;
}

static const char *device_name(const struct snug_session *s) {
    const char *gpu = s->job.limits.device.usage.gpu.name;
    return *gpu ? gpu : "CPU";
}

/* ---- as JSON ---------------------------------------------------------------------------------------------------- */

static json_t *text_or_null(const char *text) { return text ? snug_json_from_text(text) : json_null(); }

static json_t *columns_json(const struct snug_used_columns *columns) {
    json_t *o = json_object(), *texts = json_array();
    for (size_t i = 0; i < columns->texts; i++) snug_json_append(&texts, snug_json_from_text(columns->text[i]));
    snug_json_add(&o, "text", texts);
    snug_json_add(&o, "pair", json_boolean(columns->pair));
    snug_json_add(&o, "label", text_or_null(columns->label));
    snug_json_add(&o, "unused", text_or_null(columns->unused));
    return o;
}

static json_t *data_json(const struct snug_session *s, const struct snug_data_source *source) {
    if (!source->dataset) return json_null();
    json_t *o = json_object();
    snug_json_add(&o, "file", snug_json_from_text(snug_dataset_path(source->dataset)));
    snug_json_add(&o, "columns", columns_json(snug_dataset_columns(source->dataset)));
    snug_json_add(&o, "rows", json_integer(source->rows));
    snug_json_add(&o, "tokens", json_integer(snug_dataset_tokens(source->dataset)));
    snug_json_add(&o, "truncated", json_integer(snug_dataset_truncated(source->dataset)));
    snug_json_add(&o, "max_seq_length", json_integer(s->job.setup.max_length));
    return o;
}

static json_t *model_json(const struct snug_session *s) {
    const struct snug_setup *setup = &s->job.setup;
    json_t *o = json_object();
    int64_t all, trained;
    count_parameters(&main_program(s)->program, &all, &trained);
    snug_json_add(&o, "name", text_or_null(setup->args->model_name_or_path));
    snug_json_add(&o, "family", json_string(setup->config.family->name));
    snug_json_add(&o, "parameters", json_integer(all));
    snug_json_add(&o, "trainable", json_integer(s->training ? trained : 0));
    return o;
}

static json_t *seconds_json(double seconds) { return seconds > 0 ? snug_json_number(seconds) : json_null(); }

static void add_training(const struct snug_session *s, json_t **o) {
    const struct snug_duration *duration = &s->duration;
    const struct snug_args *args = s->job.setup.args;
    const struct snug_loader_options *options = &s->training->pipeline.options;
    const int ranks = snug_group_size(args->group);
    json_t *batch = json_object();
    const int64_t rows = options->batch_size;
    snug_json_add(&batch, options->packs ? "tokens" : "rows",
                  json_integer(options->packs ? args->per_device_train_tokens : rows));
    snug_json_add(&batch, "accumulation", json_integer(options->accumulation / ranks));
    snug_json_add(&batch, "ranks", json_integer(ranks));
    if (!options->packs) snug_json_add(&batch, "rows_per_step", json_integer(rows * options->accumulation));
    snug_json_add(o, "batch", batch);
    snug_json_add(o, "steps", json_integer(s->max_steps));
    snug_json_add(o, "epochs", snug_json_number((double)s->max_steps / (double)s->steps_per_epoch));
    snug_json_add(o, "optimizer", text_or_null(args->optim));
    snug_json_add(o, "learning_rate", snug_json_number(args->learning_rate));
    snug_json_add(o, "lr_scheduler_type", text_or_null(args->lr_scheduler_type));
    snug_json_add(o, "warmup_steps", snug_json_number(s->schedule.warmup_steps));
    snug_json_add(o, "evaluations", json_integer(duration->evaluations));
    snug_json_add(o, "seconds_per_step", seconds_json(duration->step));
    snug_json_add(o, "seconds_per_evaluation", seconds_json(duration->evaluation));
    snug_json_add(o, "seconds", seconds_json(duration->run));
    snug_json_add(o, "seconds_from", text_or_null(snug_duration_source(duration)));
}

static json_t *describe(const struct snug_session *s) {
    const struct snug_setup *setup = &s->job.setup;
    const struct snug_labels *labels = &setup->config.labels;
    const struct snug_planned_program *program = main_program(s);
    json_t *o = json_object(), *classes = json_array(), *memory = json_object();
    const bool labelled = snug_setup_task(setup)->labelled;
    for (int64_t i = 0; labelled && i < labels->count; i++)
        snug_json_append(&classes, snug_json_from_text(labels->names[i]));
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++)
        snug_json_add(&memory, snug_memory_class_name((snug_memory_class)i), json_integer(s->job.plan.bytes[i]));
    snug_json_add(&memory, "total", json_integer(s->job.plan.total));
    snug_json_add(&o, "model", model_json(s));
    snug_json_add(&o, "columns", columns_json(snug_dataset_columns(main_data(s)->dataset)));
    snug_json_add(&o, "task", json_string(snug_task_name(setup->config.task)));
    snug_json_add(&o, "problem", text_or_null(problem_text(setup)));
    snug_json_add(&o, "classes", classes);
    snug_json_add(&o, "class_weights", snug_setup_class_weights_json(setup));
    snug_json_add(&o, "train", data_json(s, &setup->train));
    snug_json_add(&o, setup->command == SNUG_COMMAND_PREDICT ? "predict" : "evaluate", data_json(s, &setup->eval));
    snug_json_add(&o, "device", snug_json_from_text(device_name(s)));
    snug_json_add(&o, "threads", json_integer(setup->threads));
    snug_json_add(
        &o, "precision",
        json_string(snug_precision_text(program->program.compute, program->program.tf32, s->job.plan.weights)));
    const struct snug_quantized *form = &setup->config.quantized;
    snug_json_add(&o, "quantized", form->type ? json_string(snug_code_type_name(form->type)) : json_null());
    snug_json_add(&o, "memory", memory);
    if (s->training) add_training(s, &o);
    return o;
}

/* ---- as lines --------------------------------------------------------------------------------------------------- */

/* A line that is being written, truncated at its end. */
struct line {
    char text[CLASSES_SHOWN * SNUG_NAME_SHOWN + 512];
    size_t length;
};

static void add(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct line *line, const char *format, ...) {
    va_list values;
    va_start(values, format);
    const int length = vsnprintf(line->text + line->length, sizeof line->text - line->length, format, values);
    va_end(values);
    line->length += (size_t)length;
    if (line->length >= sizeof line->text) line->length = sizeof line->text - 1;
}

static void say(const struct snug_session *s, const char *name, const struct line *line) {
    const char *text = line->text;
    do {
        const size_t length = snug_wrap(text);
        snug_log(s->ctx, SNUG_LOG_INFO, "%-*s%.*s", SNUG_WRAP_INDENT, name, (int)length, text);
        text += length + (text[length] == ' ');
        name = "";
    } while (*text);
}

/* After a number: nothing after 1. */
static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

static void say_model(const struct snug_session *s) {
    const struct snug_setup *setup = &s->job.setup;
    struct line line = {"", 0};
    int64_t all, trained;
    count_parameters(&main_program(s)->program, &all, &trained);
    if (setup->args->model_name_or_path) add(&line, "%s: ", setup->args->model_name_or_path);
    add(&line, "%s, %.1f M parameters", setup->config.family->name, (double)all * 1e-6);
    if (s->training && trained < all)
        add(&line, ", %.1f M of them trained", (double)trained * 1e-6);
    else if (s->training)
        add(&line, ", all trained%s", setup->args->model_name_or_path ? "" : " from random weights");
    say(s, "Model", &line);
}

static void add_texts(const struct snug_used_columns *columns, struct line *line) {
    char name[SNUG_NAME_SHOWN];
    for (size_t i = 0; i < columns->texts; i++)
        add(line, "%s%s", !i ? "" : columns->pair ? " + " : ", ", snug_column_show(name, columns->text[i]));
}

static void say_columns(const struct snug_session *s) {
    const struct snug_setup *setup = &s->job.setup;
    const struct snug_used_columns *columns = snug_dataset_columns(main_data(s)->dataset);
    struct line line = {"", 0};
    char name[SNUG_NAME_SHOWN];
    add_texts(columns, &line);
    if (columns->pair) add(&line, snug_setup_task(setup)->causal ? ", which it completes" : ", as a pair");
    if (columns->chat) add(&line, ", by the chat template");
    if (columns->delimiter) add(&line, ", joined by \"%s\"", columns->delimiter);
    if (columns->texts && *columns->unused) add(&line, "; not used: %s", columns->unused);
    if (!columns->texts) add(&line, "synthetic tokens");
    say(s, "Text", &line);
    const bool predicts = setup->command == SNUG_COMMAND_PREDICT; /* whose labels are for metrics */
    if (!columns->label || (predicts && !snug_dataset_all_labelled(main_data(s)->dataset))) return;
    line = (struct line){"", 0};
    if (columns->flags)
        add(&line, "%zu columns of zeros and ones: %s", columns->flags, columns->label);
    else
        add(&line, "%s", snug_column_show(name, columns->label));
    say(s, "Label", &line);
}

static void say_task(const struct snug_session *s) {
    const struct snug_setup *setup = &s->job.setup;
    const struct snug_labels *labels = &setup->config.labels;
    const char *problem = problem_text(setup);
    struct line line = {"", 0};
    char name[SNUG_NAME_SHOWN];
    add(&line, "%s%s%s", snug_setup_task(setup)->title, problem ? ", " : "", problem ? problem : "");
    say(s, "Task", &line);
    if (!snug_setup_task(setup)->labelled || labels->problem == SNUG_PROBLEM_REGRESSION) return;
    line = (struct line){"", 0};
    add(&line, "%" PRId64 ": ", labels->count);
    for (int64_t i = 0; i < labels->count && i < CLASSES_SHOWN; i++)
        add(&line, "%s%s", i ? ", " : "", snug_name_show(name, labels->names[i]));
    if (labels->count > CLASSES_SHOWN) add(&line, ", …");
    say(s, "Classes", &line);
    if (!setup->class_weights) return;
    line = (struct line){"", 0};
    for (int64_t i = 0; i < labels->count && i < CLASSES_SHOWN; i++)
        add(&line, "%s%s=%g", i ? ", " : "", snug_name_show(name, labels->names[i]), (double)setup->class_weights[i]);
    if (labels->count > CLASSES_SHOWN) add(&line, ", …");
    if (labels->problem == SNUG_PROBLEM_MULTI_LABEL) add(&line, ", of the positives in the loss");
    say(s, "Weights", &line);
}

/* The texts of another file than the one that say_columns() is about, where their names differ. */
static void add_other_texts(const struct snug_session *s, const struct snug_data_source *source, struct line *line) {
    const struct snug_used_columns *here = snug_dataset_columns(source->dataset),
                                   *main = snug_dataset_columns(main_data(s)->dataset);
    bool same = true;
    if (here->texts != main->texts) return; /* synthetic data has no columns */
    for (size_t i = 0; i < here->texts; i++) same &= strcmp(here->text[i], main->text[i]) == 0;
    if (same) return;
    add(line, "; text: ");
    add_texts(here, line);
}

static void say_data(const struct snug_session *s, const char *name, const struct snug_data_source *source) {
    struct line line = {"", 0};
    if (!source->dataset) return;
    const int64_t cut = snug_dataset_truncated(source->dataset);
    add(&line, "%s: %" PRId64 " row%s", snug_dataset_path(source->dataset), source->rows, plural(source->rows));
    if (cut) add(&line, ", %" PRId64 " of them cut at %" PRId64 " tokens", cut, s->job.setup.max_length);
    add_other_texts(s, source, &line);
    say(s, name, &line);
}

static void say_steps(const struct snug_session *s) {
    const struct snug_args *args = s->job.setup.args;
    const struct snug_loader_options *options = &s->training->pipeline.options;
    const int ranks = snug_group_size(args->group);
    struct line batch = {"", 0}, steps = {"", 0}, optimizer = {"", 0};
    const int64_t most = options->packs ? args->per_device_train_tokens : options->batch_size;
    add(&batch, options->packs ? "up to %" PRId64 " token%s" : "%" PRId64 " row%s", most, plural(most));
    if (options->accumulation > ranks) add(&batch, " x %" PRId64 " accumulated", options->accumulation / ranks);
    if (ranks > 1) add(&batch, " x %d ranks", ranks);
    if (options->accumulation > 1) add(&batch, " = %" PRId64 " a step", most * options->accumulation);
    if (options->packs) /* in the mean */
        add(&batch, "; %.4g rows and %.4g tokens in a micro-batch",
            (double)s->job.setup.train.rows / (double)options->pack_count,
            (double)snug_dataset_tokens(s->job.setup.train.dataset) / (double)options->pack_count);
    say(s, "Batch", &batch);
    add(&steps, "%" PRId64 " in %.4g epoch%s", s->max_steps, (double)s->max_steps / (double)s->steps_per_epoch,
        plural(s->max_steps == s->steps_per_epoch));
    say(s, "Steps", &steps);
    add(&optimizer, "%s", args->optim);
    if (s->job.plan.optimizer.relative_step)
        add(&optimizer, ", with its own learning rate");
    else
        add(&optimizer, ", learning rate %g, %s schedule, %g warm-up step%s", args->learning_rate,
            args->lr_scheduler_type, s->schedule.warmup_steps, plural(s->schedule.warmup_steps == 1));
    say(s, "Optimizer", &optimizer);
}

static void say_memory(const struct snug_session *s) {
    const struct snug_run_plan *plan = &s->job.plan;
    struct line line = {"", 0};
    add(&line, "%.1f MiB:", (double)plan->total / 0x1p20);
    const char *separator = " ";
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++) {
        if (plan->bytes[i] <= 0) continue;
        add(&line, "%s%s %.1f", separator, snug_memory_class_name((snug_memory_class)i),
            (double)plan->bytes[i] / 0x1p20);
        separator = ", ";
    }
    if (plan->layout.offload_bytes) add(&line, "; %.1f MiB offloaded", (double)plan->layout.offload_bytes / 0x1p20);
    if (plan->offload.on_host > 0)
        add(&line, ", %g %% of their weights updated on the host", 100 * plan->offload.on_host);
    say(s, "Memory", &line);
}

static void say_device(const struct snug_session *s) {
    const struct snug_program *program = &main_program(s)->program;
    struct line line = {"", 0};
    add(&line, "%s, %d thread%s, %s", device_name(s), s->job.setup.threads, plural(s->job.setup.threads),
        snug_precision_text(program->compute, program->tf32, s->job.plan.weights));
    say(s, "Device", &line);
}

static void say_quantized(const struct snug_session *s) {
    const struct snug_quantized_sum sum = snug_quantized_sum_of(&main_program(s)->program);
    struct line line = {"", 0};
    char text[192];
    snug_quantized_text(&sum, text);
    add(&line, "%s", text);
    if (sum.parameters) say(s, "Quantized", &line);
}

/* By which rates. */
static void add_source(const struct snug_duration *duration, struct line *line) {
    switch (duration->source) {
    case SNUG_SECONDS_MEASURED: add(line, " (by measured rates)"); break;
    case SNUG_SECONDS_PROBED: add(line, " (by a measurement of %.2f s just now)", duration->probed); break;
    case SNUG_SECONDS_ASSUMED: add(line, " (by assumed rates of a CPU)"); break;
    case SNUG_SECONDS_SCALED: add(line, " (by snug's table: rates of an %s, scaled)", duration->scaled_from); break;
    case SNUG_SECONDS_UNKNOWN: break;
    }
}

static void say_time(const struct snug_session *s) {
    const struct snug_duration *duration = &s->duration;
    struct line line = {"", 0};
    const double step = duration->step, run = duration->run;
    const long long minutes = llround(run / 60);
    if (step <= 0)
        add(&line, "unknown: snug bench rates, or snug plan, measures it once on this machine");
    else if (minutes < 2)
        add(&line, "about %.3g s", run);
    else if (minutes < 100)
        add(&line, "about %lld minutes", minutes);
    else
        add(&line, "about %lld h %02lld min", minutes / 60, minutes % 60);
    if (step > 0) add(&line, ": %.3g s a step, %.4g samples/s", step, samples_per_step(s) / step);
    if (step > 0 && duration->evaluations)
        add(&line, ", %" PRId64 " evaluation%s of %.3g s", duration->evaluations, plural(duration->evaluations),
            duration->evaluation);
    add_source(duration, &line);
    say(s, "Time", &line);
}

/* ---- the first row of causal LM --------------------------------------------------------------------------------- */

enum { TOKENS_SHOWN = 48 }; /* at each end of the row */

/* Appends a text on one line. */
static void add_text(struct line *line, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        const char *escaped = text[i] == '\n' ? "\\n" : text[i] == '\r' ? "\\r" : text[i] == '\t' ? "\\t" : NULL;
        if (escaped)
            add(line, "%s", escaped);
        else
            add(line, "%c", text[i]);
    }
}

/* Whether token i of a row has a loss; of preferences those of the completions of both sequences have one. */
static bool has_loss(const struct snug_session *s, const struct snug_dataset_row *row, int64_t i) {
    struct snug_row_texts texts;
    if (!snug_setup_task(&s->job.setup)->preferences) return i && snug_loss_mask_has(row->labels, row->label_count, i);
    snug_dataset_row_texts(row, &texts);
    const int64_t place = i < (int64_t)texts.tokens[0] ? i : i - (int64_t)texts.tokens[0];
    return place && (double)place >= (double)texts.score;
}

/* Tokens first … end - 1 of a row, as ids and as text, those with a loss within marks. */
static snug_status add_tokens(const struct snug_session *s, const struct snug_dataset_row *row, int64_t first,
                              int64_t end, struct line *ids, struct line *text) {
    struct snug_decode_stream stream = {.tokenizer = s->job.setup.tokenizer};
    const char *part;
    size_t length;
    bool marked = false;
    snug_status status = SNUG_OK;
    for (int64_t i = first; i < end && status == SNUG_OK; i++) {
        const bool loss = has_loss(s, row, i);
        const char *mark = loss == marked ? "" : loss ? "«" : "»";
        add(ids, "%s%s%s%" PRId32, loss ? "" : mark, i > first ? " " : "", loss ? mark : "", row->ids[i]);
        status = snug_decode_stream_push(s->ctx, &stream, row->ids[i], &part, &length);
        add(text, "%s", mark);
        if (status == SNUG_OK) add_text(text, part, length);
        marked = loss;
    }
    if (status == SNUG_OK) status = snug_decode_stream_end(s->ctx, &stream, &part, &length);
    if (status == SNUG_OK) add_text(text, part, length);
    snug_decode_stream_free(&stream);
    add(ids, "%s", marked ? "»" : "");
    add(text, "%s", marked ? "»" : "");
    return status;
}

/* As the model sees it. */
static snug_status say_first_row(const struct snug_session *s) {
    const struct snug_dataset *data = s->job.setup.train.dataset;
    struct snug_row_buffer buffer = {0};
    struct snug_dataset_row row;
    struct line line = {"", 0}, ids = {"", 0}, text = {"", 0};
    int64_t losses = 0;
    snug_status status = snug_dataset_read(s->ctx, data, 0, &buffer, &row);
    for (int64_t i = 0; status == SNUG_OK && i < row.count; i++) losses += has_loss(s, &row, i);
    if (status == SNUG_OK) {
        const bool whole = row.count <= 2 * TOKENS_SHOWN;
        add(&line, "line %" PRId64 ": %" PRId64 " tokens, %" PRId64 " with a loss (« »)", row.line, row.count, losses);
        status = add_tokens(s, &row, 0, whole ? row.count : TOKENS_SHOWN, &ids, &text);
        if (status == SNUG_OK && !whole) {
            add(&ids, " … ");
            add(&text, " … ");
            status = add_tokens(s, &row, row.count - TOKENS_SHOWN, row.count, &ids, &text);
        }
    }
    free(buffer.data);
    RETURN_IF_ERROR(status);
    say(s, "First row", &line);
    say(s, "", &text);
    say(s, "", &ids);
    return SNUG_OK;
}

static bool shows_row(const struct snug_session *s) {
    return s->training && snug_setup_task(&s->job.setup)->causal && s->job.setup.tokenizer;
}

static void say_all(const struct snug_session *s) {
    const bool predicts = s->job.setup.command == SNUG_COMMAND_PREDICT;
    say_model(s);
    say_columns(s);
    say_task(s);
    say_data(s, "Train", &s->job.setup.train);
    say_data(s, predicts ? "Predict" : "Evaluate", &s->job.setup.eval);
    if (s->training) say_steps(s);
    say_device(s);
    say_quantized(s);
    say_memory(s);
    if (s->training) say_time(s);
}

snug_status snug_description_tell(const struct snug_session *s, const snug_callbacks *callbacks) {
    char *text;
    if (snug_group_rank(s->job.setup.args->group) != 0) return SNUG_OK;
    say_all(s);
    if (shows_row(s)) RETURN_IF_ERROR(say_first_row(s));
    if (!callbacks || !callbacks->on_event) return SNUG_OK;
    json_t *description = describe(s);
    if (!description) return snug_fail(s->ctx, SNUG_E_MEMORY, "out of memory while describing the run");
    const snug_status status = snug_json_text(s->ctx, description, JSON_COMPACT, &text);
    json_decref(description);
    RETURN_IF_ERROR(status);
    callbacks->on_event(callbacks->user, &(snug_event){.kind = SNUG_EVENT_RUN, .max_steps = s->max_steps, .run = text});
    free(text);
    return SNUG_OK;
}
