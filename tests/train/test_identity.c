/* SPDX-License-Identifier: Apache-2.0 */
/* A run that is resumed with one change: it is refused, or the change is logged, or the bits are the same. */
#include <fcntl.h>
#include <sys/stat.h>

#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

enum outcome { REFUSED, LOGGED, SAME };

struct change {
    const char *words; /* of the resumed run */
    enum outcome outcome;
    const char *named; /* in the error message or the log */
};

/* ---- other files ---------------------------------------------------------------------------------------------- */

static char *edited(const struct fixture *f, const char *name, const char *from, const char *to) {
    char *text = read_text(f, path_of(f, "%s", name), NULL), *at = strstr(text, from);
    assert_non_null(at);
    char *out = calloc(strlen(text) + strlen(to) + 1, 1);
    assert_non_null(out);
    memcpy(out, text, (size_t)(at - text));
    strcat(out, to);
    strcat(out, at + strlen(from));
    free(text);
    return out;
}

/* A copy of the model's folder with a text of one file replaced. */
static void vary_model(const struct fixture *f, const char *name, const char *file, const char *from, const char *to) {
    static const char *const files[] = {"config.json", "vocab.txt", "tokenizer_config.json"};
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "%s", name)), SNUG_OK);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char source[64];
        snprintf(source, sizeof source, "model/%s", files[i]);
        char *text =
            strcmp(files[i], file) == 0 ? edited(f, source, from, to) : read_text(f, path_of(f, "%s", source), NULL);
        const char *path = path_of(f, "%s/%s", name, files[i]);
        write_bytes(path, text, strlen(text));
        free(text);
    }
}

static void vary_data(const struct fixture *f, const char *name, const char *from, const char *to) {
    char *text = edited(f, "train.csv", from, to);
    write_text(f, name, text);
    free(text);
}

/* Labels of all rows swapped: the same size, the same tokens. */
static void swap_labels(const struct fixture *f) {
    char *text = read_text(f, path_of(f, "train.csv"), NULL);
    for (char *at = text; (at = strstr(at, "tive\n")); at++)
        memcpy(at - 4, memcmp(at - 4, "nega", 4) ? "nega" : "posi", 4);
    write_text(f, "swapped.csv", text);
    free(text);
}

static void write_variants(const struct fixture *f) {
    vary_model(f, "same", "config.json", "bert", "bert");
    vary_model(f, "hidden", "config.json", "\"hidden_dropout_prob\": 0.1", "\"hidden_dropout_prob\": 0.2");
    vary_model(f, "attention", "config.json", "\"attention_probs_dropout_prob\": 0.1",
               "\"attention_probs_dropout_prob\": 0");
    vary_model(f, "activation", "config.json", "{", "{\"hidden_act\": \"relu\", ");
    vary_model(f, "classifier", "config.json", "{", "{\"classifier_dropout\": 0.3, ");
    vary_model(f, "epsilon", "config.json", "{", "{\"layer_norm_eps\": 1e-5, ");
    vary_model(f, "pad", "config.json", "{", "{\"pad_token_id\": 3, ");
    vary_model(f, "heads", "config.json", "\"num_attention_heads\": 4", "\"num_attention_heads\": 2");
    vary_model(f, "order", "vocab.txt", "good\nbad\n", "bad\ngood\n");
    vary_model(f, "word", "vocab.txt", "w30\n", "v30\n");
    vary_model(f, "cased", "tokenizer_config.json", "true", "false");
    vary_data(f, "copied.csv", "sentence", "sentence");
    vary_data(f, "text.csv", "good", "bad");
    vary_data(f, "column.csv", "sentence,label", "sentence,class");
    vary_data(f, "row.csv", "sentence,label\n", "sentence,label\nw1 good,positive\n");
    vary_data(f, "renamed.csv", "positive\n", "positiv\n");
    swap_labels(f);
}

/* ---- the changes ---------------------------------------------------------------------------------------------- */

static const struct change changes[] = {
    /* the model */
    {"config_name=@hidden", REFUSED, "hidden_dropout_prob was 0.1 and is 0.2"},
    {"config_name=@attention", REFUSED, "attention_probs_dropout_prob was 0.1 and is 0"},
    {"config_name=@activation", REFUSED, "hidden_act was \"gelu\" and is \"relu\""},
    {"config_name=@classifier", REFUSED, "classifier_dropout"},
    {"config_name=@epsilon", REFUSED, "layer_norm_eps"},
    {"config_name=@pad", REFUSED, "pad_token_id"},
    {"config_name=@heads", REFUSED, "num_attention_heads was 4 and is 2"},
    {"dtype=bfloat16", REFUSED, "dtype"},
    /* the tokenizer */
    {"tokenizer_name=@order", REFUSED, "different vocabulary"},
    {"tokenizer_name=@word", REFUSED, "different vocabulary"},
    {"tokenizer_name=@cased", REFUSED, "different vocabulary"},
    /* the data */
    {"train_file=@swapped.csv", REFUSED, "different train_file"},
    {"train_file=@renamed.csv", REFUSED, "different labels"},
    {"train_file=@text.csv", REFUSED, "different train_file"},
    {"train_file=@row.csv", REFUSED, "different train_file"},
    {"train_file=@dev.csv", REFUSED, "different train_file"},
    {"max_seq_length=10", REFUSED, "different train_file"},
    {"max_train_samples=64", REFUSED, "different train_file"},
    {"text_column_names=label label_column_name=label", REFUSED, ""},
    {"per_device_train_batch_size=4", REFUSED, "rows_per_step was 8 and is 4"},
    {"gradient_accumulation_steps=2", REFUSED, "rows_per_step was 8 and is 16"},
    {"per_device_train_tokens=80", REFUSED, "rows_per_step was 8 and is 1"},
    {"dataloader_drop_last=True", REFUSED, "dataloader_drop_last"},
    {"train_sampling_strategy=sequential", REFUSED, "train_sampling_strategy"},
    {"train_sampling_strategy=group_by_length", REFUSED, "train_sampling_strategy"},
    {"data_seed=7", REFUSED, "data_seed"},
    {"seed=7", REFUSED, "data_seed was 42 and is 7"},
    /* the optimizer */
    {"optim=sgd", REFUSED, "optim was"},
    {"optim=adamw_8bit", REFUSED, "optim was"},
    {"optim=adafactor", REFUSED, "optim was"},
    {"optim=lion_32bit", REFUSED, "optim was"},
    /* what a user may want to change */
    {"seed=7 data_seed=42", LOGGED, "seed was 42 and is 7"},
    {"class_weights=1,2", REFUSED, "class_weights was null and is [1,2]"},
    {"learning_rate=2e-3", LOGGED, "learning_rate was 0.001 and is 0.002"},
    {"lr_scheduler_type=cosine", LOGGED, "lr_scheduler_type was \"linear\" and is \"cosine\""},
    {"lr_scheduler_type=constant", LOGGED, "lr_scheduler_type"},
    {"warmup_steps=3", LOGGED, "warmup_steps was 0 and is 3"},
    {"num_train_epochs=3", LOGGED, "max_steps was 20 and is 30"},
    {"max_steps=12", LOGGED, "max_steps was 20 and is 12"},
    {"weight_decay=0.1", LOGGED, "weight_decay"},
    {"adam_beta1=0.8", LOGGED, "adam_beta1"},
    {"adam_beta2=0.99", LOGGED, "adam_beta2"},
    {"adam_epsilon=1e-6", LOGGED, "adam_epsilon"},
    {"max_grad_norm=0.5", LOGGED, "max_grad_norm"},
    {"label_smoothing_factor=0.1", LOGGED, "label_smoothing_factor"},
    {"per_device_train_batch_size=4 gradient_accumulation_steps=2", LOGGED,
     "per_device_train_batch_size was 8 and is 4"},
    {"metric_for_best_model=loss eval_strategy=epoch validation_file=@dev.csv", LOGGED, "metric_for_best_model"},
    /* what changes no bit */
    {"", SAME, NULL},
    {"config_name=@same tokenizer_name=@same", SAME, NULL},
    {"train_file=@copied.csv", SAME, NULL},
    {"threads=2", SAME, NULL},
    {"threads=3", SAME, NULL},
    {"dataloader_num_workers=2", SAME, NULL},
    {"dataloader_num_workers=1 dataloader_prefetch_factor=4", SAME, NULL},
    {"gradient_checkpointing=True", SAME, NULL},
    {"recompute=none", SAME, NULL},
    {"offload=optimizer,gradients,weights,activations", SAME, NULL},
    {"offload=optimizer offload_ratio=0.5", SAME, NULL},
    {"update_in_backward=True", SAME, NULL},
    {"save_strategy=steps save_steps=3 save_total_limit=1", SAME, NULL},
    {"logging_steps=5", SAME, NULL},
    {"validation_file=@dev.csv per_device_eval_batch_size=3", SAME, NULL},
    {"overwrite_cache=True", SAME, NULL},
    {"report_to=tensorboard", SAME, NULL},
};
enum { CHANGES = sizeof changes / sizeof *changes };
_Static_assert(CHANGES >= 40, "enough single changes");

static void check(struct fixture *f, const struct change *change) {
    char words[512];
    snprintf(words, sizeof words, "resume_from_checkpoint=@cut/checkpoint-6 %s", change->words);
    f->log[0] = '\0';
    const snug_status status = try_train(f, "again", words, 0, NULL);
    if (change->outcome == REFUSED) {
        if (status == SNUG_OK) fail_msg("%s: it was resumed", change->words);
        assert_contains(snug_error_message(f->ctx), change->named);
        assert_false(exists(path_of(f, "again")));
        return;
    }
    if (status != SNUG_OK) fail_msg("%s: %s", change->words, snug_error_message(f->ctx));
    if (change->outcome == LOGGED) {
        char named[128];
        snprintf(named, sizeof named, "trainer_state.json: %s", change->named);
        assert_contains(f->log, named);
    } else {
        if (strstr(f->log, "but differs from an uninterrupted one")) fail_msg("%s: %s", change->words, f->log);
        if (!same_file(f, path_of(f, "again/model.safetensors"), path_of(f, "whole/model.safetensors")))
            fail_msg("%s: nothing was logged, but the bits differ", change->words);
    }
    assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "again")), SNUG_OK);
}

FIXTURE_TEST(test_single_changes) {
    write_variants(f);
    train(f, "whole", "");
    assert_int_equal(try_train(f, "cut", "", 6, NULL), SNUG_E_INTERRUPTED);
    for (int i = 0; i < CHANGES; i++) check(f, &changes[i]);
}

/* A data file with other labels, of the same size and time, is read again. */
FIXTURE_TEST(test_data_of_the_same_time) {
    struct stat info;
    write_variants(f);
    train(f, "whole", "");
    assert_int_equal(stat(path_of(f, "train.csv"), &info), 0);
    char *text = read_text(f, path_of(f, "swapped.csv"), NULL);
    write_text(f, "train.csv", text);
    free(text);
    const struct timespec times[] = {info.st_atim, info.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, path_of(f, "train.csv"), times, 0), 0);
    train(f, "after", "");
    train(f, "swapped", "train_file=@swapped.csv");
    assert_same_in_both(f, "after", "swapped", "model.safetensors");
}

FIXTURE_TEST(test_changes_of_tagged_words) {
#define TAGS "task=ner train_file=@train.conll "
    static const struct change changes_of_tags[] = {
        {TAGS, SAME, NULL},
        {TAGS "return_entity_level_metrics=True", SAME, NULL},
        {TAGS "label_all_tokens=True", LOGGED, "label_all_tokens was false and is true"},
        {"task=ner train_file=@other.conll", REFUSED, "different train_file"},
        {"task=ner train_file=@named.conll", REFUSED, "different labels"},
        {"task=classification", REFUSED, "task was \"token_classification\" and is \"classification\""},
    };
    write_words(f, "train.conll", TRAIN_ROWS, 1);
    char *text = read_text(f, path_of(f, "train.conll"), NULL), *at = strstr(text, "I-");
    assert_non_null(at);
    *at = 'B'; /* another tag of the model */
    write_text(f, "other.conll", text);
    for (*at = 'I', at = text; (at = strstr(at, "-GOOD")); at++) memcpy(at, "-BEST", 5);
    write_text(f, "named.conll", text);
    free(text);
    train(f, "whole", TAGS);
    assert_int_equal(try_train(f, "cut", TAGS, 6, NULL), SNUG_E_INTERRUPTED);
    for (size_t i = 0; i < sizeof changes_of_tags / sizeof *changes_of_tags; i++) check(f, &changes_of_tags[i]);
}

TEST_MAIN(NULL, NULL)
