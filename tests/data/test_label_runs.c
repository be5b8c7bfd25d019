/* SPDX-License-Identifier: Apache-2.0 */
/* What a run says about its labels before the first step, and which rows it uses. */
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

/* Opens the job of a training, or of the evaluation or prediction of a model; returns the log, or the error. */
static const char *open_job(struct fixture *f, enum snug_command command, const char *words, struct snug_job *job) {
    snug_args *args = command == SNUG_COMMAND_TRAIN ? training_args(f, words) : plain_args(f, words);
    f->log[0] = '\0';
    snug_clear_error(f->ctx);
    const snug_status status = snug_job_open(args, command, job);
    return status == SNUG_OK ? f->log : snug_error_message(f->ctx);
}

static void close_job(struct snug_job *job) {
    snug_args *args = job->setup.args;
    snug_job_close(job);
    snug_args_destroy(args);
}

static void write_rows(const struct fixture *f, const char *name, const char *head, int rows,
                       const char *(*label)(int row)) {
    FILE *file = fopen(path_of(f, "%s", name), "w");
    assert_non_null(file);
    fprintf(file, "%s\n", head);
    for (int row = 0; row < rows; row++) fprintf(file, "w%d good w%d,%s\n", row % WORDS, row % 7, label(row));
    assert_int_equal(fclose(file), 0);
}

static const char *sorted(int row) { return row < 20 ? "a" : row < 40 ? "b" : "c"; }
static const char *sorted_numbers(int row) { return row < 20 ? "0" : row < 40 ? "1" : "2"; }
static const char *rare(int row) { return row == 59 ? "rare" : row % 2 ? "a" : "b"; }
static const char *floats(int row) { return row % 2 ? "1.0" : "0.0"; }
static const char *ones(int row) { return row % 2 ? "1" : "1.0"; }
static const char *alternating(int row) { return row % 2 ? "1" : "0"; }
static const char *unlabelled(int row) { return row % 3 == 0 ? "-1" : row % 3 == 1 ? "1" : "0"; }
static const char *strange(int row) { return row % 4 == 0 ? "skip" : row % 2 ? "yes" : "no"; }

static const struct {
    const char *words, *says, *silent; /* a part of the log, and one that is not in it */
} warned_runs[] = {
    {"train_file=@sorted.csv validation_split_percentage=20",
     "48 rows are trained on, 12 of 12 rows are evaluated on, drawn", "warning:"},
    {"train_file=@numbers.csv validation_split_percentage=40", "36 rows are trained on, 24 of 24 rows", "warning:"},
    {"train_file=@sorted.csv validation_split_percentage=99", "2 of 3 classes have no row to train on", NULL},
    {"train_file=@rare.csv validation_split_percentage=10", "54 rows are trained on", "warning:"},
    {"train_file=@sorted.csv validation_split_percentage=20 max_train_samples=8",
     "sorted.csv: 2 of 3 classes have no row to train on and cannot be learnt: \"b\", \"c\"", NULL},
    {"train_file=@sorted.csv validation_split_percentage=20 max_eval_samples=3",
     "sorted.csv: all that is evaluated on has the class \"a\"", "cannot be learnt"},
    {"train_file=@sorted.csv max_train_samples=30", "1 of 3 classes has no row to train on and cannot be learnt: \"c\"",
     NULL},
    {"train_file=@sorted.csv max_train_samples=60", NULL, "warning:"},
    {"train_file=@sorted.csv max_train_samples=61", NULL, "warning:"},
    {"train_file=@rare.csv validation_file=@sorted.csv max_train_samples=20",
     "2 of 4 classes have no row to train on and cannot be learnt: \"c\", \"rare\"", NULL},
    {"train_file=@floats.csv validation_file=@ones.csv", "ones.csv: all that is evaluated on has the class \"1\"",
     "cannot be learnt"},
    {"train_file=@ints.csv validation_file=@floats.csv", NULL, "warning:"},
    {"train_file=@floats.csv validation_file=@ints.csv", "floats.csv: all labels are whole numbers", NULL},
    {"train_file=@ints.csv validation_file=@unlabelled.csv",
     "unlabelled.csv: 20 of 60 rows are left out: the label \"-1\"", NULL},
    {"train_file=@strange.csv missing_label_values=skip", "strange.csv: 15 of 60 rows are left out: the label \"skip\"",
     NULL},
    {"train_file=@strange.csv missing_label_values=skip validation_split_percentage=20",
     "36 rows are trained on, 9 of 9 rows", NULL},
    {"task=ner train_file=@tags.jsonl", NULL, "warning:"},
    {"task=ner train_file=@tags.jsonl max_train_samples=1",
     "1 of 3 classes has no row to train on and cannot be learnt: \"B-Y\"", NULL},
    {"task=ner train_file=@tags.jsonl validation_file=@o.jsonl",
     "o.jsonl: all that is evaluated on has the class \"O\"", NULL},
    {"task=ner train_file=@tags.jsonl validation_split_percentage=50",
     "1 row is trained on, 1 of 1 row is evaluated on, drawn with seed 42 (--data_seed)", NULL},
    {"train_file=@several.jsonl max_train_samples=1",
     "1 of 2 classes has no row to train on and cannot be learnt: \"b\"", NULL},
    {"train_file=@several.jsonl validation_split_percentage=50", "evaluated on, drawn", "all that is evaluated"},
    {"train_file=@real.jsonl validation_split_percentage=50", "evaluated on, drawn", "warning:"},
    {"task=mlm line_by_line=True train_file=@train.txt validation_split_percentage=20",
     "15 of the first 15 rows are evaluated on", "drawn"},
    {"train_file=@train.csv max_seq_length=8",
     "texts are longer than 8 tokens and were truncated: give a larger --max_seq_length, at most 64,", NULL},
    {"train_file=@train.csv max_seq_length=23", "texts are longer than 23 tokens and were truncated\n", "warning:"},
    {"train_file=@long.csv max_seq_length=64",
     "warning: @/long.csv: 4 of 4 texts are longer than 64 tokens and were truncated: this model takes no larger "
     "--max_seq_length",
     NULL},
};

FIXTURE_TEST(test_warnings) {
    write_rows(f, "sorted.csv", "text,label", 60, sorted);
    write_rows(f, "numbers.csv", "text,label", 60, sorted_numbers);
    write_rows(f, "rare.csv", "text,label", 60, rare);
    write_rows(f, "floats.csv", "text,label", 60, floats);
    write_rows(f, "ones.csv", "text,label", 60, ones);
    write_rows(f, "ints.csv", "text,label", 60, alternating);
    write_rows(f, "unlabelled.csv", "text,label", 60, unlabelled);
    write_rows(f, "strange.csv", "text,label", 60, strange);
    write_text(f, "tags.jsonl",
               "{\"tokens\": [\"w1\", \"w2\"], \"ner_tags\": [\"O\", \"B-X\"]}\n"
               "{\"tokens\": [\"w1\", \"w2\"], \"ner_tags\": [\"O\", \"B-Y\"]}\n");
    write_text(f, "o.jsonl", "{\"tokens\": [\"w1\", \"w2\"], \"ner_tags\": [\"O\", \"O\"]}\n");
    write_text(f, "several.jsonl",
               "{\"text\": \"w1\", \"label\": [\"a\"]}\n{\"text\": \"w2\", \"label\": [\"b\"]}\n"
               "{\"text\": \"w3\", \"label\": []}\n{\"text\": \"w2\", \"label\": [\"a\", \"b\"]}\n");
    write_text(f, "real.jsonl", "{\"text\": \"w1\", \"label\": 0.5}\n{\"text\": \"w2\", \"label\": 1}\n");
    FILE *file = fopen(path_of(f, "long.csv"), "w");
    assert_non_null(file);
    fputs("text,label\n", file);
    for (int row = 0; row < 4; row++) {
        for (int i = 0; i < 100; i++) fprintf(file, "w%d ", i);
        fprintf(file, ",%d\n", row % 2);
    }
    assert_int_equal(fclose(file), 0);
    for (size_t i = 0; i < sizeof warned_runs / sizeof *warned_runs; i++) {
        struct snug_job job;
        char words[512], expected[512] = "";
        snprintf(words, sizeof words, "max_seq_length=64 %s", warned_runs[i].words);
        const char *log = open_job(f, SNUG_COMMAND_TRAIN, words, &job), *says = warned_runs[i].says, *at;
        if (says && (at = strchr(says, '@')))
            snprintf(expected, sizeof expected, "%.*s%s%s", (int)(at - says), says, f->folder, at + 1);
        else if (says)
            snprintf(expected, sizeof expected, "%s", says);
        if (!strstr(log, expected)) fail_msg("%s: %s", warned_runs[i].words, log);
        if (warned_runs[i].silent && strstr(log, warned_runs[i].silent)) fail_msg("%s: %s", warned_runs[i].words, log);
        close_job(&job);
    }
}

/* What a model folder remembers is used in evaluations, and the split's rows are those of the seed, also in a run that
   is resumed. */
FIXTURE_TEST(test_remembered) {
    struct snug_job job;
    write_rows(f, "sorted.csv", "text,label", 60, sorted);
    write_rows(f, "strange.csv", "text,label", 60, strange);
    write_rows(f, "floats.csv", "text,label", 60, floats);
    train(f, "skipped", "train_file=@strange.csv missing_label_values=skip max_steps=1");
    assert_contains(open_job(f, SNUG_COMMAND_EVAL, "model_name_or_path=@skipped validation_file=@strange.csv", &job),
                    "15 of 60 rows are left out");
    assert_int_equal(job.setup.eval.rows, 45);
    close_job(&job);
    assert_contains(open_job(f, SNUG_COMMAND_EVAL,
                             "model_name_or_path=@skipped validation_file=@strange.csv missing_label_values=none",
                             &job),
                    "the label \"skip\" is not one of the model's 2 classes");
    close_job(&job);
    /* A file to predict keeps its rows, and has no metrics. */
    write_rows(f, "unlabelled.csv", "text,label", 60, unlabelled);
    train(f, "floats", "train_file=@floats.csv max_steps=1");
    assert_contains(open_job(f, SNUG_COMMAND_PREDICT, "model_name_or_path=@floats test_file=@unlabelled.csv", &job),
                    "no metrics: ");
    assert_int_equal(job.setup.eval.rows, 60);
    close_job(&job);
    assert_contains(open_job(f, SNUG_COMMAND_EVAL, "model_name_or_path=@floats validation_file=@unlabelled.csv", &job),
                    "20 of 60 rows are left out");
    close_job(&job);

#define SPLIT "train_file=@sorted.csv validation_split_percentage=20 eval_strategy=epoch max_steps=6 save_steps=3 "
    train(f, "whole", SPLIT "save_strategy=steps");
    train(f, "again", SPLIT "save_strategy=steps");
    assert_same_file(f, path_of(f, "whole/model.safetensors"), path_of(f, "again/model.safetensors"));
    assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "again/checkpoint-6")), SNUG_OK);
    train(f, "again", SPLIT "save_strategy=steps resume_from_checkpoint=@again/checkpoint-3");
    assert_same_file(f, path_of(f, "whole/model.safetensors"), path_of(f, "again/model.safetensors"));
    json_t *saved = read_json(f, path_of(f, "whole/training_args.json"));
    const json_t *split = json_object_get(json_object_get(saved, "data"), "validation_split");
    assert_int_equal(json_integer_value(json_object_get(split, "seed")), 42);
    assert_int_equal(json_integer_value(json_object_get(split, "train_rows")), 48);
    assert_int_equal(json_integer_value(json_object_get(split, "eval_rows")), 12);
    char digest[2][17];
    snprintf(digest[0], sizeof digest[0], "%s", json_string_value(json_object_get(split, "xxh3_64")));
    json_decref(saved);
    /* Other rows: of another seed, or of a training without the split. */
    assert_int_equal(try_train(f, "again", SPLIT "data_seed=7 resume_from_checkpoint=@again/checkpoint-3", 0, NULL),
                     SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), "cannot be resumed by this run");
    snug_clear_error(f->ctx);
    assert_int_equal(
        try_train(f, "again",
                  "train_file=@sorted.csv max_train_samples=48 max_steps=6 resume_from_checkpoint=@again/checkpoint-3",
                  0, NULL),
        SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), "different train_file");
    snug_clear_error(f->ctx);
    train(f, "other", SPLIT "data_seed=7");
    saved = read_json(f, path_of(f, "other/training_args.json"));
    split = json_object_get(json_object_get(saved, "data"), "validation_split");
    snprintf(digest[1], sizeof digest[1], "%s", json_string_value(json_object_get(split, "xxh3_64")));
    assert_int_equal(json_integer_value(json_object_get(split, "seed")), 7);
    json_decref(saved);
    assert_string_not_equal(digest[0], digest[1]);
}

/* Columns of zeros and ones: in evaluation and prediction as in the training, without being named again. */
FIXTURE_TEST(test_columns_of_classes) {
    struct snug_job job;
    write_text(f, "flags.csv", "text,toxic,insult\ngood w1,1,0\nbad w2,0,0\nw3 good,1,1\nw4 bad,0,1\n");
    write_text(f, "lists.jsonl", "{\"text\": \"w1\", \"label\": [\"insult\"]}\n{\"text\": \"w2\", \"label\": []}\n");
    write_text(f, "half.jsonl", "{\"text\": \"w1\", \"label\": [\"insult\"]}\n{\"text\": \"w2\", \"label\": null}\n");
    write_text(f, "other.csv", "text,toxic,insult\nw1,0,1\nw2,-1,-1\n");
    train(f, "out", "train_file=@flags.csv validation_file=@flags.csv label_column_name=toxic,insult max_steps=2");
    assert_contains(f->log, "Label      2 columns of zeros and ones: toxic,insult\n");
    assert_contains(f->log, "Classes    2: toxic, insult\n");
    json_t *config = read_json(f, path_of(f, "out/config.json"));
    assert_string_equal(json_string_value(json_object_get(config, "problem_type")), "multi_label_classification");
    json_decref(config);
    static const struct {
        enum snug_command command;
        const char *words, *says;
    } cases[] = {
        {SNUG_COMMAND_EVAL, "validation_file=@flags.csv", "flags.csv: 4 rows"},
        {SNUG_COMMAND_EVAL, "validation_file=@lists.jsonl label_column_name=label", "lists.jsonl: 2 rows"},
        {SNUG_COMMAND_EVAL, "validation_file=@other.csv", "the column \"toxic\" holds \"-1\", not 0 or 1"},
        {SNUG_COMMAND_PREDICT, "test_file=@flags.csv", "flags.csv: 4 rows"},
        {SNUG_COMMAND_PREDICT, "test_file=@other.csv", "no metrics: @/other.csv: some rows have no list of labels"},
        {SNUG_COMMAND_PREDICT, "test_file=@half.jsonl", "no metrics: @/half.jsonl: some rows have no list of labels"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[256], expected[256];
        const char *at = strchr(cases[i].says, '@');
        snprintf(words, sizeof words, "model_name_or_path=@out %s", cases[i].words);
        const char *log = open_job(f, cases[i].command, words, &job);
        snprintf(expected, sizeof expected, "%.*s%s%s", at ? (int)(at - cases[i].says) : 0, cases[i].says,
                 at ? f->folder : "", at ? at + 1 : cases[i].says);
        assert_contains(log, expected);
        assert_int_equal(strstr(log, "no metrics") != NULL, strstr(expected, "no metrics") != NULL);
        if (strstr(cases[i].says, "4 rows")) assert_true(snug_dataset_all_labelled(job.setup.eval.dataset));
        close_job(&job);
    }
}

TEST_MAIN(NULL, NULL)
