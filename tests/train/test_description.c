/* SPDX-License-Identifier: Apache-2.0 */
/* What a run reports before its first step, and what a model remembers of its training. */
#include <glob.h>
#include <sys/stat.h>

#include "program.h"

#define FIXTURE struct fixture *f, set_up, tear_down

#define TRAIN                                                                                                          \
    "train --config_name model --tokenizer_name model --max_steps 2 --threads 2 --device cpu --save_strategy no "

/* Writes a header, and rows of a number, the cells, and a label. */
static void write_rows(const struct fixture *f, const char *name, const char *head, const char *cells) {
    FILE *file = fopen(path_of(f, "%s", name), "w");
    assert_non_null(file);
    fprintf(file, "%s\n", head);
    for (int row = 0; row < 12; row++) fprintf(file, "%d,%s,%s\n", row, cells, row % 3 ? "good" : "bad");
    assert_int_equal(fclose(file), 0);
}

static void assert_order(const char *text, const char *const *parts, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const char *at = strstr(text, parts[i]);
        if (!at) fail_msg("\"%s\" is not in its place in:\n%s", parts[i], text);
        text = at;
    }
}

static void assert_narrow(const char *text) {
    for (const char *line = strstr(text, "Model "); line && strncmp(line, "Time ", 5) != 0;) {
        const size_t length = strcspn(line, "\n");
        if (length > 80) fail_msg("%zu columns: %.*s", length, (int)length, line);
        line += length + (line[length] == '\n');
    }
}

FIXTURE_TEST(test_train) {
    static const char *const parts[] = {
        "\nModel      BERT, ",
        " all trained from random weights\n",
        "\nText       question + sentence, as a pair; not used: id\n",
        "\nLabel      label\n",
        "\nTask       sequence classification, one label per text\n",
        "\nClasses    2: bad, good\n",
        "\nTrain      pairs.csv: 12 rows, 12 of them cut at 6 tokens\n",
        "\nEvaluate   pairs.csv: 3 rows, 3 of them cut at 6 tokens\n",
        "\nBatch      2 rows x 2 accumulated = 4 a step\n",
        "\nSteps      2 in 0.6667 epochs\n",
        "\nOptimizer  adamw_torch_fused, learning rate 0.001, cosine schedule, 1 warm-up\n           step\n",
        "\nDevice     CPU, 2 threads, fp32\n",
        "\nMemory     ",
        " MiB: weights ",
        ", optimizer ",
        "\nTime       about ",
        " s a step, ",
        ", 1 evaluation",
    };
    write_rows(f, "pairs.csv", "id,question,sentence,label", "w1 w2 w3,w4 w5 w6");
#define PAIRS                                                                                                          \
    TRAIN "--train_file pairs.csv --validation_file pairs.csv --max_eval_samples 3 --max_seq_length 6 "                \
          "--per_device_train_batch_size 2 --gradient_accumulation_steps 2 --learning_rate 1e-3 "                      \
          "--lr_scheduler_type cosine --warmup_steps 0.5 --output_dir pairs "
    json_t *result = run_json(f, PAIRS "--json");
    char *text = output_of(f, "stderr");
    assert_order(text, parts, sizeof parts / sizeof *parts);
    assert_narrow(text);
    free(text);

    const json_t *about = json_object_get(result, "run");
    json_t *expected = json_pack("{s:[s, s], s:b, s:s, s:s}", "text", "question", "sentence", "pair", 1, "label",
                                 "label", "unused", "id");
    assert_true(json_equal(json_object_get(about, "columns"), expected));
    json_decref(expected);
    expected = json_pack("{s:i, s:i, s:i, s:i}", "rows", 2, "accumulation", 2, "ranks", 1, "rows_per_step", 4);
    assert_true(json_equal(json_object_get(about, "batch"), expected));
    json_decref(expected);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(about, "train"), "truncated")), 12);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(about, "train"), "max_seq_length")), 6);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(about, "evaluate"), "rows")), 3);
    assert_int_equal(json_integer_value(json_object_get(about, "steps")), 2);
    const double step = json_number_value(json_object_get(about, "seconds_per_step"));
    const double evaluation = json_number_value(json_object_get(about, "seconds_per_evaluation"));
    assert_true(step > 0 && evaluation > 0);
    assert_int_equal(json_integer_value(json_object_get(about, "evaluations")), 1);
    assert_float_equal(json_number_value(json_object_get(about, "seconds")), 2 * step + evaluation, 1e-9);
    assert_string_equal(json_string_value(json_object_get(about, "seconds_from")), "measured");
    /* The plan's bytes, before the run, are those of the result. */
    json_t *classes = json_object_get(about, "memory"), *bytes;
    const char *name;
    json_object_foreach(classes, name, bytes) {
        const json_t *line = json_object_get(json_object_get(result, "memory"), name);
        assert_int_equal(json_integer_value(bytes), json_integer_value(json_object_get(line, "planned")));
    }
    json_decref(result);

    free(run_well(f, PAIRS "--log_level warning --disable_tqdm"));
    text = output_of(f, "stderr");
    if (strstr(text, "Classes ") || strstr(text, "Optimizer ")) fail_msg("%s", text);
    free(text);
}

/* The evaluations that are announced are those that are done. */
FIXTURE_TEST(test_evaluations) {
    static const char *const strategies[] = {
        "", /* one after the training */
        "--eval_strategy steps --eval_steps 2",
        "--eval_strategy steps --eval_steps 2 --max_steps 8",
        "--eval_strategy steps --eval_steps 3 --eval_delay 4 --eval_on_start",
        "--eval_strategy steps --eval_steps 3 --eval_delay 6 --max_steps 6",
        "--eval_strategy steps --eval_steps 2 --eval_delay 100",
        "--eval_strategy epoch",
        "--eval_strategy epoch --num_train_epochs 3 --max_steps -1 --eval_delay 1.5",
        "--eval_strategy epoch --num_train_epochs 2.5 --max_steps -1",
        "--eval_strategy epoch --save_strategy epoch --load_best_model_at_end",
    };
    write_rows(f, "few.csv", "id,text,label", "w1 w2");
    write_text(f, "one.csv", "text,label\nw1,good\n");
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        char words[1024], folder[16];
        snprintf(folder, sizeof folder, "run%zu", i);
        snprintf(words, sizeof words,
                 "train --config_name model --tokenizer_name model --max_steps 7 --threads 1 --device cpu --json "
                 "--save_strategy no --train_file few.csv --validation_file one.csv --per_device_train_batch_size 4 "
                 "--output_dir %s %s",
                 folder, strategies[i]);
        json_t *result = run_json(f, words), *history = history_of(f, folder), *entry;
        const json_int_t announced = json_integer_value(json_object_get(json_object_get(result, "run"), "evaluations"));
        json_int_t done = 0;
        size_t k;
        json_array_foreach(history, k, entry) done += json_object_get(entry, "eval_loss") != NULL;
        if (announced != done) fail_msg("%s: announced %d, done %d", strategies[i], (int)announced, (int)done);
        json_decref(result);
        json_decref(history);
    }
    char *text = output_of(f, "stderr");
    assert_contains(text, "Evaluate   one.csv: 1 row\n");
    assert_contains(text, "Batch      4 rows\n");
    assert_contains(text, "Device     CPU, 1 thread, fp32\n");
    free(text);
}

FIXTURE_TEST(test_other_runs) {
    static const char *const multi[] = {"Text       a, b, joined by \" \"; not used: id", "several labels per text",
                                        "Classes    2: bad, good\n"},
                             *const value[] = {"Task       sequence classification, regression: a number per text\n",
                                               "Optimizer  adafactor, with its own learning rate\n"},
                             *const dummy[] = {", 0.0 M of them trained\n", "Text       synthetic tokens\n",
                                               "Time       "};
    write_rows(f, "both.csv", "id,a,b,label", "w1,w2");
    free(run_well(f, TRAIN "--train_file both.csv --text_column_names a,b --label_separator | --output_dir single"));
    FILE *file = fopen(path_of(f, "several.csv"), "w");
    assert_non_null(file);
    fputs("id,a,b,label\n1,w1,w2,good|bad\n2,w1,w2,\n", file);
    assert_int_equal(fclose(file), 0);
    free(run_well(f, TRAIN "--train_file several.csv --text_column_names a,b --label_separator | --output_dir many"));
    char *text = output_of(f, "stderr");
    assert_order(text, multi, 3);
    free(text);
    free(run_well(f, TRAIN "--train_file both.csv --text_column_name a --label_column_name id --do_regression "
                           "--optim adafactor --optim_args relative_step=True --output_dir value"));
    text = output_of(f, "stderr");
    assert_order(text, value, 2);
    free(text);
    free(run_well(f, "train --config_name model --train_file dummy:8x4 --freeze base_model --max_steps 1 --threads 2 "
                     "--output_dir frozen"));
    text = output_of(f, "stderr");
    assert_order(text, dummy, 3);
    free(text);
}

/* Long times, many classes, long names, offload, and a task without labels. */
FIXTURE_TEST(test_long_runs) {
    char name[100], words[512];
    memset(name, 'n', sizeof name);
    strcpy(name + 90, ".csv");
    write_rows(f, name, "id,a,b,label", "w1,w2");
    /* These end before the first step: their checkpoints have no room. */
    for (int hours = 0; hours < 2; hours++) {
        snprintf(words, sizeof words,
                 "train --config_name model --tokenizer_name model --train_file %s --text_column_name a --threads 2 "
                 "--label_column_name id --save_steps 1 --max_steps %s --output_dir long",
                 name, hours ? "1000000000" : "1000000");
        assert_int_equal(run(f, words), 1);
        char *text = output_of(f, "stderr");
        assert_contains(text, hours ? " h " : " minutes: ");
        assert_contains(text, "\nClasses    12: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …\n");
        assert_contains(text, "are free");
        assert_contains(text, name);
        free(text);
    }
    free(run_well(f, TRAIN "--task mlm --line_by_line --train_file train.csv --offload optimizer --output_dir masked"));
    char *text = output_of(f, "stderr");
    assert_contains(text, "\nTask       masked");
    assert_contains(text, " MiB offloaded\n");
    free(text);
}

/* eval and predict name columns, task and classes. */
FIXTURE_TEST(test_eval_and_predict) {
    static const char *const evaluated[] = {"Model      out: BERT", "Text       sentence\n",
                                            "Label      label\n",   "Classes    2: negative, positive\n",
                                            "Evaluate   dev.csv: ", "Device     CPU",
                                            "Memory     "},
                             *const predicted[] = {"Text       sentence\n", "Classes    2: negative, positive\n",
                                                   "Predict    dev.csv: "};
    free(run_well(f, TRAIN "--train_file train.csv --output_dir out"));
    json_t *result = run_json(f, "eval --model_name_or_path out --validation_file dev.csv --threads 2 --json");
    char *text = output_of(f, "stderr");
    assert_order(text, evaluated, sizeof evaluated / sizeof *evaluated);
    free(text);
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(json_object_get(result, "run"), "classes"), 1)), "positive");
    json_decref(result);
    char *rows = run_well(f, "predict --model_name_or_path out --test_file dev.csv --threads 2 --json"),
         *rest = strchr(rows, '\n');
    json_t *row = json_loads(rows, JSON_DISABLE_EOF_CHECK, NULL); /* the first one holds the run */
    assert_int_equal(json_integer_value(json_object_get(row, "index")), 0);
    const json_t *about = json_object_get(row, "run");
    assert_string_equal(json_string_value(json_object_get(about, "task")), "classification");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(about, "predict"), "rows")), EVAL_ROWS);
    assert_null(strstr(rest, "\"run\""));
    json_decref(row);
    free(rows);
    text = output_of(f, "stderr");
    assert_order(text, predicted, sizeof predicted / sizeof *predicted);
    free(text);
}

/* Files that do not exist are named before a missing tokenizer or model, and before another file is tokenized. */
FIXTURE_TEST(test_missing_files) {
    static const char *const commands[][2] = {
        {"train --config_name model --train_file none.csv --output_dir out", "none.csv"},
        {"train --model_name_or_path nowhere --train_file none.csv --output_dir out", "none.csv"},
        {TRAIN "--train_file train.csv --validation_file none.csv --output_dir out", "none.csv"},
        {"plan --config_name model --train_file dummy:4x4 --validation_file none.csv", "none.csv"},
        {"eval --model_name_or_path nowhere --validation_file none.csv", "none.csv"},
        {"predict --model_name_or_path nowhere --test_file none.csv", "none.csv"},
        {"predict --model_name_or_path nowhere --text words", "model nowhere"},
        {"train --config_name model --train_file https://host/none.csv --output_dir out", "download it"},
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        assert_int_equal(run(f, commands[i][0]) == 0, 0);
        char *text = output_of(f, "stderr");
        assert_contains(text, commands[i][1]);
        assert_null(strstr(text, "tokenizer"));
        assert_null(strstr(text, "train.csv: "));
        free(text);
    }
}

/* Without rates the time of a short run is estimated by assumed ones. */
FIXTURE_TEST(test_assumed_time) {
    char *rates = strdup(getenv("SNUG_RATES"));
    assert_non_null(rates);
    unsetenv("SNUG_RATES");
    json_t *result = run_json(f, TRAIN "--train_file train.csv --output_dir out --json");
    const json_t *about = json_object_get(result, "run");
    assert_true(json_number_value(json_object_get(about, "seconds")) > 0);
    assert_string_equal(json_string_value(json_object_get(about, "seconds_from")), "assumed");
    json_decref(result);
    char *text = output_of(f, "stderr");
    assert_contains(text, "\nTime       about ");
    assert_contains(text, "assumed rates");
    free(text);
    free(run_well(f, TRAIN "--train_file train.csv --output_dir out --zero_stage 1 --ddp_timeout 9"));
    text = output_of(f, "stderr");
    assert_contains(text, "--zero_stage has no effect: this run has one rank\n");
    assert_contains(text, "--ddp_timeout has no effect: this run has one rank\n");
    free(text);
    setenv("SNUG_RATES", "none.json", 1); /* a run that does not need them is not refused */
    free(run_well(f, TRAIN "--train_file train.csv --output_dir out"));
    text = output_of(f, "stderr");
    assert_contains(text, "warning: ");
    assert_contains(text, "none.json");
    assert_contains(text, "\nTime       about ");
    free(text);
    setenv("SNUG_RATES", rates, 1);
    free(rates);
}

/* ---- what a model remembers ---------------------------------------------------------------------------------------
 */

#define MADE                                                                                                           \
    TRAIN "--train_file many.csv --text_column_name b --text_pair_column_name a --max_seq_length 9 --seed 7 "          \
          "--learning_rate 1e-3 --warmup_ratio 0.5 --save_steps 1 --save_strategy steps "

/* training_args.json repeats a run, to the bit; flags have precedence, and changed data is reported. */
FIXTURE_TEST(test_repeated) {
    write_rows(f, "many.csv", "id,a,b,label", "w1 w2,w3 w4");
    free(run_well(f, MADE "--output_dir made"));
    json_t *made = read_json(f, path_of(f, "made/training_args.json"));
    const json_t *arguments = json_object_get(made, "arguments");
    assert_int_equal(json_integer_value(json_object_get(made, "seed")), 7);
    assert_true(json_number_value(json_object_get(arguments, "learning_rate")) == 1e-3);
    assert_true(json_is_true(json_object_get(arguments, "logging_nan_inf_filter")));
    assert_string_equal(json_string_value(json_object_get(arguments, "save_strategy")), "steps");
    assert_true(json_is_null(json_object_get(arguments, "gpu")));
    assert_null(json_object_get(arguments, "resume_from_checkpoint"));
    const json_t *file = json_object_get(json_object_get(made, "files"), "train_file");
    assert_int_equal(strlen(json_string_value(json_object_get(file, "xxh3_64"))), 16);
    assert_int_equal(*json_string_value(json_object_get(file, "path")), '/');
    assert_true(json_is_null(json_object_get(json_object_get(made, "files"), "validation_file")));
    json_t *data = json_pack("{s:[s, s], s:b, s:b, s:n, s:b, s:b, s:n, s:s, s:n, s:n, s:n, s:i, s:n}", "text", "b", "a",
                             "pair", 1, "chat", 0, "chat_template_date", "completion_only_loss", 1,
                             "assistant_only_loss", 0, "delimiter", "label", "label", "label_separator",
                             "missing_label_values", "validation_split", "max_seq_length", 9, "class_weights");
    assert_true(json_equal(json_object_get(made, "data"), data));
    json_decref(data);
    json_decref(made);

    free(run_well(f, "train --args_from made/training_args.json --output_dir again"));
    assert_same_file(f, path_of(f, "made/model.safetensors"), path_of(f, "again/model.safetensors"));
    assert_same_file(f, path_of(f, "made/training_args.json"), path_of(f, "made/checkpoint-1/training_args.json"));
    free(run_well(f, "train --output_dir third --seed=8 --args_from=made/training_args.json"));
    assert_false(same_file(f, path_of(f, "made/model.safetensors"), path_of(f, "third/model.safetensors")));
    char *text = output_of(f, "stderr");
    if (strstr(text, "another content")) fail_msg("%s", text);
    free(text);
    /* From another folder its data is found by the recorded path; a folder stands for its file. */
    assert_int_equal(mkdir(path_of(f, "else"), 0777), 0);
    assert_int_equal(rename(path_of(f, "many.csv"), path_of(f, "moved.csv")), 0);
    json_t *args = read_json(f, path_of(f, "made/training_args.json"));
    json_object_set_new(json_object_get(json_object_get(args, "files"), "train_file"), "path",
                        json_string(path_of(f, "moved.csv")));
    assert_int_equal(json_dump_file(args, path_of(f, "else/training_args.json"), 0), 0);
    json_decref(args);
    assert_int_equal(run(f, "train --args_from made --output_dir again"), 1); /* neither path exists */
    free(run_well(f, "train --args_from else --output_dir again"));
    text = output_of(f, "stderr");
    assert_contains(text, "--args_from: there is no many.csv here: --train_file is /");
    free(text);
    assert_same_file(f, path_of(f, "made/model.safetensors"), path_of(f, "again/model.safetensors"));
    /* What asks for a training is left out of an evaluation, and refused where it is given. */
    free(run_well(f, "eval --args_from else --model_name_or_path made --validation_file moved.csv --output_dir="));
    assert_int_equal(
        run(f, "eval --args_from else --model_name_or_path made --validation_file moved.csv --train_file x"), 2);
    text = output_of(f, "stderr");
    assert_contains(text, "--train_file: snug eval does not train");
    free(text);
    assert_int_equal(rename(path_of(f, "moved.csv"), path_of(f, "many.csv")), 0);
    /* A resumed run has the same file. */
    free(run_well(f, MADE "--output_dir made --resume_from_checkpoint made/checkpoint-1"));
    json_t *resumed = read_json(f, path_of(f, "made/training_args.json"));
    json_t *first = read_json(f, path_of(f, "made/checkpoint-1/training_args.json"));
    assert_true(json_equal(resumed, first));
    json_decref(first);
    json_decref(resumed);

    write_rows(f, "many.csv", "id,a,b,label", "w1 w2,w5 w6");
    free(run_well(f, "train --args_from made/training_args.json --output_dir again"));
    text = output_of(f, "stderr");
    assert_contains(text, "warning: --args_from made/training_args.json: many.csv has another content");
    free(text);
}

/* A file of arguments as the scripts read it. */
FIXTURE_TEST(test_json_file) {
    static const struct {
        const char *json, *words;
        int code;
        const char *says;
    } cases[] = {
        {"{\"lr\": 1}", "train args.json", 2, "--lr: unknown argument; give --learning_rate (in args.json)"},
        {"[1]", "train args.json", 1, "args.json"},
        {"{\"train_file\": \"none.csv\"}", "train args.json --config_name model --tokenizer_name model", 1, "none.csv"},
        {"{}", "train args.json more.json", 2, "more.json: an argument must begin with --"},
        {"{\"report_to\": [\"none\", \"all\"]}", "train args.json", 2, "--report_to none,all: must be one of"},
        {"{\"max_steps\": true}", "train args.json", 2, "--max_steps True: must be a whole number"},
        {"{}", "train none.json", 1, "none.json"},
        {"{}", "train --args_from", 2, "--args_from needs a value"},
        {"{\"arguments\": {}}", "train args.json", 2, "--arguments: unknown argument"},
        {"{\"arguments\": {\"nonesuch\": 1}, \"given\": []}", "train args.json", 2, "--nonesuch: unknown argument"},
    };
    write_text(f, "args.json",
               "{\"config_name\": \"model\", \"tokenizer_name\": \"model\", \"train_file\": \"train.csv\", "
               "\"max_steps\": 3, \"learning_rate\": 1e-3, \"do_train\": true, \"report_to\": [\"tensorboard\"], "
               "\"lr_scheduler_type\": \"cosine_with_min_lr\", \"lr_scheduler_kwargs\": {\"min_lr\": 1e-4}, "
               "\"save_strategy\": \"no\", \"output_dir\": \"out\", \"max_seq_length\": 32, \"run_name\": null}");
    json_t *result = run_json(f, "train args.json --max_steps 2 --json");
    assert_int_equal(json_integer_value(json_object_get(result, "steps")), 2);
    assert_true(exists(path_of(f, "out/runs")));
    json_decref(result);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(f, "args.json", cases[i].json);
        const int code = run(f, cases[i].words);
        char *text = output_of(f, "stderr");
        if (code != cases[i].code) fail_msg("snug %s: exit code %d: %s", cases[i].words, code, text);
        assert_contains(text, cases[i].says);
        free(text);
    }
}

/* Each kind of text against each other. */
FIXTURE_TEST(test_other_kind_of_text) {
    write_rows(f, "many.csv", "id,a,b,label", "w1 w2 w3 w4 w5 w6,w3 w4");
    static const struct {
        const char *training, *evaluation, *says;
    } kinds[] = {
        {"--text_column_names a,b", "--text_column_name a", "single columns, and the model was trained on joined"},
        {"--text_column_name a", "--text_column_names a,b", "joined columns, and the model was trained on single"},
        {"--text_column_name a", "--text_column_name a --text_pair_column_name b",
         "pairs, and the model was trained on single columns"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char words[512];
        snprintf(words, sizeof words, TRAIN "--train_file many.csv %s --output_dir kind", kinds[i].training);
        free(run_well(f, words));
        snprintf(words, sizeof words, "eval --model_name_or_path kind --validation_file many.csv %s",
                 kinds[i].evaluation);
        free(run_well(f, words));
        char *text = output_of(f, "stderr");
        assert_contains(text, kinds[i].says);
        free(text);
    }
}

/* The validation file of a training has its texts, by other names at most. */
FIXTURE_TEST(test_other_validation_file) {
    write_rows(f, "pair.csv", "id,question,sentence,label", "w1 w2,w3");
    write_rows(f, "one.csv", "id,sentence,label", "w1 w2");
    write_rows(f, "body.csv", "id,body,label", "w1 w2");
    static const struct {
        const char *training, *validation, *says;
    } refused[] = {
        {"pair.csv", "one.csv", "one.csv: the model is trained on the pair question, sentence, and the file's columns"},
        {"body.csv", "pair.csv",
         "pair.csv: the model is trained on the column body, and the file's columns are: id, question, sentence"},
    };
    char words[512];
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        snprintf(words, sizeof words, TRAIN "--train_file %s --validation_file %s --output_dir refused",
                 refused[i].training, refused[i].validation);
        assert_int_equal(run(f, words), 1);
        char *text = output_of(f, "stderr");
        assert_contains(text, refused[i].says);
        free(text);
    }
    free(run_well(f,
                  TRAIN "--task mlm --line_by_line --train_file one.csv --validation_file dummy:4x4 --output_dir mlm"));
    char *text = output_of(f, "stderr");
    assert_contains(text, "Evaluate   dummy:4x4: 4 rows\n");
    free(text);
    json_t *result = run_json(f, TRAIN "--train_file one.csv --validation_file body.csv --output_dir named --json");
    text = output_of(f, "stderr");
    assert_contains(text, "body.csv: the model is trained on the text column sentence, which it lacks: using body");
    assert_contains(text, "Evaluate   body.csv: 12 rows; text: body\n");
    free(text);
    const json_t *data = json_object_get(json_object_get(result, "run"), "evaluate");
    json_t *expected = json_pack("{s:[s], s:b, s:s, s:s}", "text", "body", "pair", 0, "label", "label", "unused", "id");
    assert_true(json_equal(json_object_get(data, "columns"), expected));
    json_decref(expected);
    json_decref(result);
}

/* Columns and length of the training count in eval and predict; what contradicts them is reported. */
FIXTURE_TEST(test_used_again) {
    write_rows(f, "many.csv", "id,a,b,label", "w1 w2 w3 w4 w5 w6,w3 w4");
    write_rows(f, "other.csv", "id,sentence,label", "w1 w2 w3 w4 w5 w6");
    free(run_well(f, MADE "--output_dir made"));
    free(run_well(f, "eval --model_name_or_path made --validation_file many.csv"));
    char *text = output_of(f, "stderr");
    assert_contains(text, "Text       b + a, as a pair; not used: id");
    assert_contains(text, "12 of them cut at 9 tokens");
    free(text);
    free(run_well(f, "predict --model_name_or_path made/checkpoint-1 --test_file many.csv"));
    text = output_of(f, "stderr");
    assert_contains(text, "Text       b + a, as a pair");
    free(text);
    free(run_well(f, "eval --model_name_or_path made --validation_file many.csv --max_seq_length 20"));
    text = output_of(f, "stderr");
    assert_contains(text, "warning: --max_seq_length 20: the model was trained with 9");
    free(text);
    free(run_well(f, "eval --model_name_or_path made --validation_file many.csv --text_column_name a"));
    text = output_of(f, "stderr");
    assert_contains(text, "warning: many.csv: its texts are single columns, and the model was trained on pairs");
    free(text);
    assert_int_equal(run(f, "predict --model_name_or_path made --test_file other.csv"), 1);
    text = output_of(f, "stderr");
    assert_contains(text, "other.csv: the model is trained on the pair b, a");
    free(text);

    assert_int_equal(run(f, "eval --model_name_or_path made --validation_file dummy:4x4"), 1);
    text = output_of(f, "stderr");
    if (strstr(text, "its texts are")) fail_msg("%s", text); /* synthetic data has no columns to compare */
    free(text);

    /* The separator of labels: given, of data with lists, and none. */
    write_text(f, "split.csv", "sentence,label\nw1,good;bad\nw2,bad\nw3,good\n");
    free(run_well(f, TRAIN "--train_file split.csv --label_separator ; --output_dir split"));
    free(run_well(f, "eval --model_name_or_path split --validation_file split.csv"));
    text = output_of(f, "stderr");
    assert_contains(text, "several labels per text");
    free(text);
    write_text(
        f, "lists.jsonl",
        "{\"sentence\": \"w1\", \"label\": [\"good\", \"bad\"]}\n{\"sentence\": \"w2\", \"label\": [\"bad\"]}\n");
    write_text(f, "joined.csv", "sentence,label\nw1,good|bad\nw2,bad\n");
    free(run_well(f, TRAIN "--train_file lists.jsonl --validation_file joined.csv --output_dir lists"));
    free(run_well(f, "eval --model_name_or_path lists --validation_file joined.csv"));
    text = output_of(f, "stderr");
    assert_contains(text, "several labels per text");
    free(text);
    free(run_well(f, TRAIN "--train_file joined.csv --label_separator none --output_dir whole"));
    text = output_of(f, "stderr");
    assert_contains(text, "Classes    2: bad, \"good|bad\"");
    free(text);

    static const struct {
        const char *json, *says; /* NULL: it is another program's, or says nothing of the data */
    } cases[] = {
        {"{\"learning_rate\": 1}", NULL},
        {"{\"program\": \"snug\"}", NULL},
        {"{\"program\": \"snug\", \"data\": {\"text\": null}}", NULL},
        {"{\"program\": \"snug\", \"data\": {\"text\": [\"a\"], \"pair\": true}}", "\"data\" is not what"},
        {"{\"program\": \"snug\", \"data\": {\"max_seq_length\": -1}}", "\"data\" is not what"},
        {"{\"program\": \"snug\", \"data\": {\"text\": [1]}}", "\"text\" must be a list of names"},
        {"{\"program\": \"snug\", \"data\": {\"text\": \"a\"}}", "\"data\" is not what a training writes"},
        {"{\"program\": \"snug\", ", "training_args.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(f, "made/training_args.json", cases[i].json);
        const int code = run(f, "eval --model_name_or_path made --validation_file many.csv --text_column_name a");
        text = output_of(f, "stderr");
        if (code != (cases[i].says ? 1 : 0)) fail_msg("%s: exit code %d: %s", cases[i].json, code, text);
        if (cases[i].says) assert_contains(text, cases[i].says);
        free(text);
    }
}

/* ---- the model card and the log ------------------------------------------------------------------------------------
 */

#define CARD                                                                                                           \
    "train --config_name model --tokenizer_name model --train_file train.csv --validation_file dev.csv --threads 2 "   \
    "--eval_strategy epoch --num_train_epochs 2 --logging_steps 5 --save_strategy no --learning_rate 1e-3 "            \
    "--report_to tensorboard --output_dir card "

/* TensorBoard's file has the arguments as text, and the epoch of each entry. */
static void check_events(const struct fixture *f) {
    static const char *const parts[] = {"args/text_summary", "\"learning_rate\": 0.001", "train/epoch", "train/loss",
                                        "eval/accuracy",     "train/train_runtime"};
    glob_t found;
    size_t size;
    assert_int_equal(glob(path_of(f, "card/runs/*/events.out.tfevents.*"), 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    char *bytes = read_text(f, found.gl_pathv[0], &size);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!memmem(bytes, size, parts[i], strlen(parts[i]))) fail_msg("the events lack %s", parts[i]);
    free(bytes);
    globfree(&found);
}

FIXTURE_TEST(test_card) {
    static const char *const parts[] = {
        "---\nlibrary_name: transformers\n",
        "- generated_from_trainer\n",
        "metrics:\n- accuracy\n",
        "- name: \"card\"\n",
        "\n# card\n",
        "trained from scratch on train.csv.\n",
        "\n- Loss: ",
        "\n- Accuracy: ",
        "\n- Matthews Correlation: ",
        "AutoModelForSequenceClassification.from_pretrained(\"card\")",
        "\n- learning_rate: 0.001\n- train_batch_size: 8\n- eval_batch_size: 8\n- seed: 42\n",
        "\n- num_epochs: 2\n",
        "\n| Training Loss | Epoch | Step | Validation Loss | Accuracy | F1 | Matthews Correlation |\n",
        " | 1 | 10 | ",
        " | 2 | 20 | ",
        "\n- snug 0."};
    free(run_well(f, CARD));
    char *text = read_text(f, path_of(f, "card/README.md"), NULL);
    assert_order(text, parts, sizeof parts / sizeof *parts);
    free(text);

    /* Trainer's last entry, after which only the evaluation of the end may follow. */
    json_t *trained = read_json(f, path_of(f, "card/trainer_state.json"));
    const json_t *history = json_object_get(trained, "log_history"), *last = NULL;
    for (size_t i = 0; i < json_array_size(history); i++) {
        const json_t *entry = json_array_get(history, i);
        assert_null(json_object_get(entry, "eval_samples"));
        if (json_object_get(entry, "train_runtime")) last = entry;
    }
    static const char *const totals[] = {
        "train_samples_per_second", "train_steps_per_second", "total_flos", "train_loss", "epoch", "step"};
    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++) assert_non_null(json_object_get(last, totals[i]));
    check_events(f);
    assert_ptr_equal(last, json_array_get(history, json_array_size(history) - 1));
    json_decref(trained);

    /* snug's own card is replaced; one that was changed, or is another's, stays. */
    free(run_well(f, CARD "--seed 3 --gradient_accumulation_steps 2 --warmup_ratio 0.1 --label_smoothing_factor 0.1"));
    text = read_text(f, path_of(f, "card/README.md"), NULL);
    assert_contains(text, "- seed: 3\n- gradient_accumulation_steps: 2\n- total_train_batch_size: 16\n");
    assert_contains(text, "- lr_scheduler_warmup_steps: 0.1\n");
    assert_contains(text, "- label_smoothing_factor: 0.1\n");
    free(text);
    write_text(f, "card/README.md", "# Mine\n");
    for (int times = 0; times < 2; times++) {
        free(run_well(f, times ? CARD "--overwrite_output_dir" : CARD));
        text = output_of(f, "stderr");
        assert_contains(text, "card/README.md is not as snug wrote it and stays as it is");
        free(text);
        text = read_text(f, path_of(f, "card/README.md"), NULL);
        assert_string_equal(text, "# Mine\n");
        free(text);
    }
}

/* Of a model from a folder or the hub, of odd names, without evaluations. */
FIXTURE_TEST(test_plain_card) {
    free(run_well(f,
                  "train --config_name model --tokenizer_name model --train_file train.csv --max_steps 1 --threads 2 "
                  "--save_strategy no --output_dir base"));
    /* A name of the hub, which is in the cache. */
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "hf")), SNUG_OK);
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "hf/models--org--base")), SNUG_OK);
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "hf/models--org--base/refs")), SNUG_OK);
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "hf/models--org--base/snapshots")), SNUG_OK);
    write_text(f, "hf/models--org--base/refs/main", "0123456789abcdef0123456789abcdef01234567");
    assert_int_equal(
        symlink("../../../base", path_of(f, "hf/models--org--base/snapshots/0123456789abcdef0123456789abcdef01234567")),
        0);
    free(run_well(f,
                  "train --model_name_or_path org/base --cache_dir hf --train_file train.csv --max_steps 1 --threads 2 "
                  "--save_strategy no --output_dir base/tuned"));
    char *hub = read_text(f, path_of(f, "base/tuned/README.md"), NULL);
    assert_contains(hub, "base_model: \"org/base\"\n");
    assert_contains(hub, "- name: \"tuned\"\n");
    assert_contains(hub, "fine-tuned version of [org/base](https://huggingface.co/org/base) on train.csv");
    free(hub);
    free(run_well(f,
                  "train --model_name_or_path org/base --cache_dir hf --train_file train.csv --max_steps 1 --threads 2 "
                  "--save_strategy no --use_peft --output_dir adapter"));
    json_t *config = read_json(f, path_of(f, "adapter/adapter_config.json"));
    assert_string_equal(json_string_value(json_object_get(config, "base_model_name_or_path")), "org/base");
    json_decref(config);
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "named")), SNUG_OK);
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "named/README.md")), SNUG_OK); /* a folder stays, too */
    free(run_well(f, "train --model_name_or_path base --train_file train.csv --max_steps 1 --threads 2 --save_strategy "
                     "no --output_dir named"));
    free(run_well(f, "train --model_name_or_path base --train_file train.csv --max_steps 1 --threads 2 --save_strategy "
                     "no --output_dir a_\"b\\"));
    char *text = read_text(f, path_of(f, "a_\"b\\/README.md"), NULL);
    assert_contains(text, "- name: \"a_\\\"b\\\\\"\n");
    assert_contains(text, "\n# a\\_\"b\\\\\n");
    assert_contains(text, "is a fine-tuned version of base on train.csv");
    assert_contains(text, "- training_steps: 1\n");
    if (strstr(text, "Training results") || strstr(text, "evaluation set") || strstr(text, "base_model"))
        fail_msg("%s", text);
    free(text);
}

TEST_MAIN(NULL, NULL)
