/* SPDX-License-Identifier: Apache-2.0 */
/* The form is that of transformers' TrainingSummary. */
#include "train/model_card.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "core/utf8.h"
#include "hub/cache.h"
#include "io/json.h"
#include "model/adapters.h"
#include "train/group.h"

enum { COLUMNS = 32 }; /* of the table of results, at most */

struct card {
    FILE *out;
    const struct snug_job *job;
    const char *folder; /* output_dir */
    const json_t *log_history;
    bool evaluated;               /* the last evaluation is that of the model */
    const char *columns[COLUMNS]; /* metrics of the evaluations, without eval_loss */
    size_t count;
};

/* ---- the log ------------------------------------------------------------------------------------------------------
 */

static bool is_metric(const char *key) {
    static const char *const others[] = {"eval_loss", "eval_runtime", "eval_samples", "eval_samples_per_second",
                                         "eval_steps_per_second"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(key, others[i]) == 0) return false;
    return strncmp(key, "eval_", 5) == 0;
}

static const json_t *last_evaluation(const json_t *log_history) {
    for (size_t i = json_array_size(log_history); i-- > 0;)
        if (json_object_get(json_array_get(log_history, i), "eval_loss")) return json_array_get(log_history, i);
    return NULL;
}

static void find_columns(struct card *card) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)last_evaluation(card->log_history), key, value) {
        if (is_metric(key) && card->count < COLUMNS) card->columns[card->count++] = key;
    }
}

static void put_number(FILE *out, const json_t *value) {
    if (json_is_integer(value))
        fprintf(out, "%lld", (long long)json_integer_value(value));
    else if (json_is_number(value))
        fprintf(out, "%.4f", json_number_value(value));
    else
        fputs(json_is_null(value) ? "nan" : "", out);
}

/* ---- text ----------------------------------------------------------------------------------------------------------
 */

/* Names of classes and files may have any characters. A character, escaped as on a terminal; returns its bytes. */
static size_t show(char piece[16], const char *text) {
    bool well_formed;
    const size_t step = snug_utf8_sequence((const unsigned char *)text, strnlen(text, 4), &well_formed);
    snug_escape(piece, 16, text, step);
    return step;
}

/* A string of YAML, and of Python. */
static void put_string(FILE *out, const char *text) {
    static const char *const refused[] = {"\xef\xbb\xbf", "\xef\xbf\xbe", "\xef\xbf\xbf"}; /* by YAML */
    static const char *const shown[] = {"\\ufeff", "\\ufffe", "\\uffff"};
    char piece[16];
    fputc('"', out);
    for (; *text; text += show(piece, text)) {
        show(piece, text);
        for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
            if (strcmp(piece, refused[i]) == 0) snprintf(piece, sizeof piece, "%s", shown[i]);
        fprintf(out, "%s%s", *text == '"' || *text == '\\' ? "\\" : "", piece);
    }
    fputc('"', out);
}

/* A character of a text within Markdown, in one line. */
static void put_character(FILE *out, const char *text, const char *piece) {
    const bool escaped = *piece == '\\' && *text != '\\';
    fprintf(out, "%s%s", escaped || strchr("\\`*_{}[]<>|#~&@!$:", *text) ? "\\" : "", piece);
}

static void put_plain(FILE *out, const char *text) {
    char piece[16];
    for (size_t step; *text; text += step) {
        step = show(piece, text);
        put_character(out, text, piece);
    }
}

/* "eval_matthews_correlation" as "Matthews Correlation". */
static void put_name(FILE *out, const char *key) {
    char piece[16];
    bool begins = true;
    const char *text = key + strlen("eval_");
    for (size_t step; *text; text += step) {
        step = show(piece, text);
        if (begins && step == 1 && *piece == *text) *piece = (char)toupper((unsigned char)*piece);
        begins = *text == '_';
        if (begins)
            fputc(' ', out);
        else
            put_character(out, text, piece);
    }
}

/* A name that YAML reads as a text without quotes. */
static bool is_simple(const char *name) {
    for (const char *at = name; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '_' && *at != '-') return false;
    return isalpha((unsigned char)*name);
}

/* An item of a list in YAML. */
static void put_item(FILE *out, const char *name) {
    fputs("- ", out);
    if (is_simple(name))
        fputs(name, out);
    else
        put_string(out, name);
    fputc('\n', out);
}

static const char *name_of(const char *folder) {
    const char *slash = strrchr(folder, '/');
    return slash && slash[1] ? slash + 1 : folder;
}

/* A name on the hub, and not a folder here. */
static bool is_hub_name(const char *name) { return name && !snug_folder_exists(name) && snug_hub_is_name(name); }

static void put_head(const struct card *card) {
    const char *base = card->job->setup.args->model_name_or_path;
    fprintf(card->out, "---\nlibrary_name: %s\n", card->job->setup.lora ? "peft" : "transformers");
    if (is_hub_name(base)) {
        fputs("base_model: ", card->out);
        put_string(card->out, base);
        fputc('\n', card->out);
    }
    fputs("tags:\n- generated_from_trainer\n- snug\n", card->out);
    if (card->count) fputs("metrics:\n", card->out);
    for (size_t i = 0; i < card->count; i++) put_item(card->out, card->columns[i] + strlen("eval_"));
    fputs("model-index:\n- name: ", card->out);
    put_string(card->out, name_of(card->folder));
    fputs("\n  results: []\n---\n\n", card->out);
    fputs("<!-- This model card has been generated automatically according to the information the Trainer had access "
          "to. You\nshould probably proofread and complete it, then remove this comment. -->\n\n# ",
          card->out);
    put_plain(card->out, name_of(card->folder));
    fputs("\n\n", card->out);
}

static void put_results(const struct card *card) {
    const struct snug_args *args = card->job->setup.args;
    const json_t *last = card->evaluated ? last_evaluation(card->log_history) : NULL;
    if (!args->model_name_or_path)
        fputs("This model was trained from scratch on ", card->out);
    else if (is_hub_name(args->model_name_or_path))
        fprintf(card->out, "This model is a fine-tuned version of [%s](https://huggingface.co/%s) on ",
                args->model_name_or_path, args->model_name_or_path);
    else {
        fputs("This model is a fine-tuned version of ", card->out);
        put_plain(card->out, args->model_name_or_path);
        fputs(" on ", card->out);
    }
    put_plain(card->out, name_of(args->train_file));
    fputs(".\n", card->out);
    if (last) {
        fputs("It achieves the following results on the evaluation set:\n- Loss: ", card->out);
        put_number(card->out, json_object_get(last, "eval_loss"));
        for (size_t i = 0; i < card->count; i++) {
            fputs("\n- ", card->out);
            put_name(card->out, card->columns[i]);
            fputs(": ", card->out);
            put_number(card->out, json_object_get(last, card->columns[i]));
        }
        fputc('\n', card->out);
    }
    fputs("\n## Model description\n\nMore information needed\n\n## Intended uses & limitations\n\nMore information "
          "needed\n\n## Training and evaluation data\n\nMore information needed\n\n",
          card->out);
}

/* The base model first, for as many classes as the adapters have. */
static void put_base(const struct card *card, const char *class) {
    const struct snug_setup *setup = &card->job->setup;
    const json_t *base = json_object_get(snug_adapter_json(setup->lora), "base_model_name_or_path");
    fprintf(card->out, "base = AutoModel%s.from_pretrained(", class);
    put_string(card->out, json_is_string(base) ? json_string_value(base) : "");
    if (snug_setup_task(setup)->labelled)
        fprintf(card->out, ", num_labels=%lld", (long long)setup->config.labels.count);
    fputs(")\nmodel = PeftModel.from_pretrained(base, ", card->out);
}

static void put_use(const struct card *card) {
    const struct snug_setup *setup = &card->job->setup;
    const char *name = name_of(card->folder);
    fprintf(card->out, "## How to use\n\n```python\n%sfrom transformers import AutoTokenizer, ",
            setup->lora ? "from peft import PeftModel\n" : "");
    const char *class = snug_setup_task(setup)->model_class;
    fprintf(card->out, "AutoModel%s\n\n", class);
    if (setup->lora)
        put_base(card, class);
    else
        fprintf(card->out, "model = AutoModel%s.from_pretrained(", class);
    put_string(card->out, name);
    fputs(")\ntokenizer = AutoTokenizer.from_pretrained(", card->out);
    put_string(card->out, name);
    fputs(")\n```\n\nIn a shell: `snug predict --model_name_or_path OUTPUT_DIR --test_file FILE`.\n\n", card->out);
}

static void put_training(const struct card *card) {
    const struct snug_args *args = card->job->setup.args;
    const struct snug_planned_program *training = snug_run_plan_find(&card->job->plan, SNUG_ROLE_TRAINING);
    const struct snug_loader_options *options = &training->pipeline.options;
    const int ranks = snug_group_size(args->group);
    FILE *out = card->out;
    fputs("## Training procedure\n\n### Training hyperparameters\n\nThe following hyperparameters were used during "
          "training:\n",
          out);
    const int64_t most = options->packs ? args->per_device_train_tokens : options->batch_size;
    fprintf(out, "- learning_rate: %g\n- train_%s: %lld\n- eval_batch_size: %lld\n- seed: %lld\n", args->learning_rate,
            options->packs ? "tokens" : "batch_size", (long long)most, (long long)args->per_device_eval_batch_size,
            (long long)args->seed);
    if (ranks > 1) fprintf(out, "- distributed_type: multi-CPU\n- num_devices: %d\n", ranks);
    if (options->accumulation > ranks)
        fprintf(out, "- gradient_accumulation_steps: %lld\n", (long long)options->accumulation / ranks);
    if (options->accumulation > 1)
        fprintf(out, "- total_train_%s: %lld\n", options->packs ? "tokens" : "batch_size",
                (long long)(most * options->accumulation));
    fprintf(out, "- optimizer: Use %s with betas=(%g,%g) and epsilon=%g and optimizer_args=", args->optim,
            args->adam_beta1, args->adam_beta2, args->adam_epsilon);
    put_plain(out, args->optim_args ? args->optim_args : "No additional optimizer arguments");
    fprintf(out, "\n- lr_scheduler_type: %s\n", args->lr_scheduler_type);
    if (args->warmup_steps > 0) fprintf(out, "- lr_scheduler_warmup_steps: %g\n", args->warmup_steps);
    if (args->max_steps > 0)
        fprintf(out, "- training_steps: %lld\n", (long long)args->max_steps);
    else
        fprintf(out, "- num_epochs: %g\n", args->num_train_epochs);
    if (args->bf16 || args->fp16) fputs("- mixed_precision_training: Native AMP\n", out);
    if (args->label_smoothing_factor > 0) fprintf(out, "- label_smoothing_factor: %g\n", args->label_smoothing_factor);
    const struct snug_setup *setup = &card->job->setup;
    for (int64_t i = 0; setup->class_weights && i < setup->config.labels.count; i++)
        fprintf(out, "%s%g%s", i ? ", " : "- class_weights: ", (double)setup->class_weights[i],
                i + 1 < setup->config.labels.count ? "" : "\n");
    fputc('\n', out);
}

/* Whether there was an evaluation within the training. */
static bool was_evaluated(const json_t *log_history) {
    json_t *entry;
    size_t i;
    json_array_foreach(log_history, i, entry) {
        if (json_object_get(entry, "eval_loss")) return true;
        if (json_object_get(entry, "train_runtime")) return false;
    }
    return false;
}

/* As transformers.modelcard.parse_log_history(): a line for each evaluation, with the last logged training loss. */
static void put_table(const struct card *card) {
    const json_t *loss = NULL;
    json_t *entry;
    size_t i;
    FILE *out = card->out;
    if (!was_evaluated(card->log_history)) return;
    fputs("### Training results\n\n| Training Loss | Epoch | Step | Validation Loss |", out);
    for (size_t k = 0; k < card->count; k++) {
        fputc(' ', out);
        put_name(out, card->columns[k]);
        fputs(" |", out);
    }
    fputs("\n|:---:|:---:|:---:|:---:|", out);
    for (size_t k = 0; k < card->count; k++) fputs(":---:|", out);
    fputc('\n', out);
    json_array_foreach(card->log_history, i, entry) {
        if (json_object_get(entry, "train_runtime")) break; /* what follows is the evaluation after the training */
        if (json_object_get(entry, "loss")) loss = json_object_get(entry, "loss");
        if (!json_object_get(entry, "eval_loss")) continue;
        fputs("| ", out);
        if (loss)
            put_number(out, loss);
        else
            fputs("No log", out);
        fputs(" | ", out);
        put_number(out, json_object_get(entry, "epoch"));
        fputs(" | ", out);
        put_number(out, json_object_get(entry, "step"));
        fputs(" | ", out);
        put_number(out, json_object_get(entry, "eval_loss"));
        for (size_t k = 0; k < card->count; k++) {
            fputs(" | ", out);
            put_number(out, json_object_get(entry, card->columns[k]));
        }
        fputs(" |\n", out);
    }
    fputc('\n', out);
}

static void put_versions(const struct card *card) {
    struct utsname system = {0};
    const char *gpu = card->job->limits.device.usage.gpu.name;
    uname(&system);
    fprintf(card->out, "### Framework versions\n\n- snug %s\n- %s %s, %s, ", SNUG_VERSION, system.sysname,
            system.release, system.machine);
    put_plain(card->out, *gpu ? gpu : "CPU");
    fputc('\n', card->out);
}

/* ---- the file ------------------------------------------------------------------------------------------------------
 */

static snug_status make_text(struct card *card, char **text, size_t *size) {
    *text = NULL;
    card->out = open_memstream(text, size);
    if (card->out) {
        find_columns(card);
        put_head(card);
        put_results(card);
        put_use(card);
        put_training(card);
        put_table(card);
        put_versions(card);
        if (fclose(card->out) == 0) return SNUG_OK;
    }
    free(*text);
    return snug_fail(card->job->ctx, SNUG_E_MEMORY, "out of memory while writing README.md");
}

snug_status snug_model_card_write(const struct snug_job *job, struct snug_output *output, const json_t *log_history,
                                  bool evaluated) {
    struct card card = {.job = job, .folder = output->folder.path, .log_history = log_history, .evaluated = evaluated};
    char *text;
    size_t size;
    if (!snug_output_is_as_written(output, "README.md")) {
        snug_log(job->ctx, SNUG_LOG_WARNING,
                 "%s/README.md is not as snug wrote it and stays as it is: there is no model card of this training",
                 output->folder.path);
        return SNUG_OK;
    }
    RETURN_IF_ERROR(make_text(&card, &text, &size));
    snug_status status = snug_output_begin(output, (const char *const[]){"README.md", NULL});
    if (status == SNUG_OK) status = snug_file_replace(job->ctx, &output->folder, "README.md", text, size);
    free(text);
    return status;
}
