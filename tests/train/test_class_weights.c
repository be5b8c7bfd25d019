/* SPDX-License-Identifier: Apache-2.0 */
/* --class_weights: the loss and its gradient are torch's (tools/golden/class_weights.py); a step's divisor is the same
   for any micro-batches; evaluation, description, resuming; what is refused. */
#include "ops_programs.h"
#include "program.h"

#define FIXTURE struct fixture *f, set_up, tear_down

/* ---- the loss ---------------------------------------------------------------------------------------------------- */

static double value_at(const json_t *object, const char *name, size_t i) {
    return json_number_value(json_array_get(json_object_get(object, name), i));
}

static void check_case(const json_t *one, const struct snug_backend *backend) {
    const bool several = json_is_true(json_object_get(one, "several"));
    const size_t classes = json_array_size(json_object_get(one, "weights"));
    const size_t rows = json_array_size(json_object_get(one, "logits")) / classes;
    const struct ops_shape shape = {{(int32_t)rows}, 1, 1, 1, 1, 1, (int64_t)classes, (int64_t)rows};
    struct ops f;
    double divisor = 0;
    ops_open(&f, &shape, SNUG_F32);
    f.run.first_row = 0;
    f.run.rows = f.program.capacity[SNUG_EXTENT_ROWS] = (int64_t)rows;
    build_loss(&f, LOSS_WEIGHTED + (several ? 1 : 0));
    struct snug_loss_op *loss = &f.ops[0].loss;
    loss->label_smoothing = (float)json_number_value(json_object_get(one, "smoothing"));
    float *weights = (float *)(uintptr_t)f.batch.class_weights;
    for (size_t i = 0; i < classes; i++) weights[i] = (float)value_at(one, "weights", i);
    for (size_t i = 0; i < rows * classes; i++) ops_set(&f, loss->logits, (int64_t)i, value_at(one, "logits", i));
    for (size_t i = 0; several && i < rows * classes; i++) f.batch.targets[i] = (float)value_at(one, "target", i);
    for (size_t i = 0; !several && i < rows; i++) {
        f.batch.labels[i] = (int32_t)value_at(one, "target", i);
        if (f.batch.labels[i] != SNUG_IGNORE_LABEL) divisor += (double)weights[f.batch.labels[i]];
    }
    if (several) divisor = (double)(rows * classes);
    f.run.loss_scale = (float)(1 / divisor);
    ops_run(&f, backend, &f.ops[0], 1);
    const double got = ops_get(&f, f.arena, loss->loss, 0) / divisor,
                 want = json_number_value(json_object_get(one, "loss"));
    if (!(fabs(got - want) <= 1e-6 * fabs(want))) fail_msg("%s: loss %.9g, expected %.9g", backend->name, got, want);
    for (size_t i = 0; i < rows * classes; i++) {
        const double d = ops_get(&f, f.arena, loss->d, (int64_t)i), expected = value_at(one, "gradient", i);
        if (!(fabs(d - expected) <= 1e-7 + 1e-5 * fabs(expected)))
            fail_msg("%s: gradient %zu is %.9g, expected %.9g", backend->name, i, d, expected);
    }
    ops_close(&f);
}

TEST(test_golden) {
    json_t *golden = json_load_file(SNUG_SOURCE_DIR "/tests/golden/class_weights.json", 0, NULL), *one;
    size_t i;
    assert_non_null(golden);
    assert_true(json_array_size(json_object_get(golden, "cases")) > 3);
    json_array_foreach(json_object_get(golden, "cases"), i, one) {
        check_case(one, snug_backend_reference());
        check_case(one, snug_backend_cpu());
    }
    json_decref(golden);
}

/* scikit-learn's weights for the same labels. */
FIXTURE_TEST(test_balanced) {
    json_t *golden = json_load_file(SNUG_SOURCE_DIR "/tests/golden/class_weights.json", 0, NULL), *label;
    char data[2048] = "sentence,label\n";
    size_t i;
    assert_non_null(golden);
    json_array_foreach(json_object_get(golden, "labels"), i, label) {
        snprintf(data + strlen(data), sizeof data - strlen(data), "w%zu,%s\n", i, json_string_value(label));
    }
    write_text(f, "three.csv", data);
    train(f, "three", "train_file=@three.csv class_weights=balanced max_steps=1");
    json_t *args = read_json(f, path_of(f, "three/training_args.json"));
    const json_t *weights = json_object_get(json_object_get(args, "data"), "class_weights"),
                 *expected = json_object_get(golden, "balanced");
    assert_int_equal(json_array_size(weights), 3);
    for (i = 0; i < 3; i++)
        assert_float_equal(json_number_value(json_array_get(weights, i)),
                           json_number_value(json_array_get(expected, i)), 1e-6);
    json_decref(args);
    json_decref(golden);
}

/* Of many classes the first ones are reported. */
FIXTURE_TEST(test_many_classes) {
    char data[512] = "sentence,label\n";
    for (int i = 0; i < 12; i++) snprintf(data + strlen(data), sizeof data - strlen(data), "w%d,c%d\n", i, 10 + i);
    write_text(f, "twelve.csv", data);
    free(run_well(f, "train --config_name model --tokenizer_name model --train_file twelve.csv --max_steps 1 "
                     "--class_weights c10=2 --output_dir twelve"));
    char *text = output_of(f, "stderr");
    assert_contains(text, "\nWeights    c10=2, c11=1, c12=1,");
    assert_contains(text, "c19=1, …\n");
    free(text);
}

/* ---- in a training ----------------------------------------------------------------------------------------------- */

#define MODEL "--model_name_or_path "
#define TRAIN                                                                                                          \
    "train --tokenizer_name model --per_device_train_batch_size 8 --learning_rate 1e-3 --max_steps 3 --threads 1 "     \
    "--device cpu --save_strategy no --logging_steps 1 --disable_tqdm "

/* The last run's text has this part. */
static void assert_said(const struct fixture *f, const char *part) {
    char *text = output_of(f, "stderr");
    assert_contains(text, part);
    free(text);
}

static double loss_in(const json_t *result, const char *name) {
    return json_number_value(json_object_get(result, name));
}

/* -log softmax of the label's logit, or of multi-label's targets with these weights, from what predict prints. */
static double loss_of(const json_t *row, size_t label) {
    const json_t *logits = json_object_get(row, "logits");
    double sum = exp(json_number_value(json_array_get(logits, 0)));
    for (size_t i = 1; i < json_array_size(logits); i++) sum += exp(json_number_value(json_array_get(logits, i)));
    return log(sum) - json_number_value(json_array_get(logits, label));
}

/* The mean loss of a file is its rows' losses times their weights, divided by the sum of the weights. */
FIXTURE_TEST(test_evaluation) {
    free(run_well(f, TRAIN "--config_name model --train_file train.csv --output_dir plain"));
    char *lines = run_well(f, "predict --json --threads 1 --log_level error " MODEL "plain --test_file dev.csv");
    char *data = read_text(f, path_of(f, "dev.csv"), NULL), *at = strchr(data, '\n');
    const double weights[] = {1, 4};
    double sum = 0, divisor = 0;
    int rows = 0;
    for (char *rest = lines, *line; (line = strsep(&rest, "\n")) && *line;) {
        json_t *row = json_loads(line, 0, NULL);
        const size_t length = strcspn(at + 1, "\n");
        const size_t label = memcmp(at + 1 + length - 4, "tive", 4) == 0 && at[length - 4] == 'i'; /* posi-tive */
        sum += weights[label] * loss_of(row, label);
        divisor += weights[label];
        at += 1 + length;
        rows++;
        json_decref(row);
    }
    assert_int_equal(rows, EVAL_ROWS);
    json_t *result = run_json(f, "eval --json --threads 1 --class_weights positive=4 " MODEL "plain "
                                 "--validation_file dev.csv --per_device_eval_batch_size 7");
    assert_float_equal(loss_in(result, "eval_loss"), sum / divisor, 1e-5);
    const json_t *said = json_object_get(json_object_get(result, "run"), "class_weights");
    json_t *expected = json_pack("[i, i]", 1, 4);
    assert_true(json_equal(said, expected));
    json_decref(expected);
    json_decref(result);
    free(lines);
    free(data);
}

/* All ways to write them; other micro-batches, and the model's own evaluation, have the same losses. */
FIXTURE_TEST(test_training) {
#define WEIGHTED                                                                                                       \
    TRAIN "--config_name model --train_file train.csv --validation_file dev.csv --eval_strategy steps --eval_steps 3 "
    json_t *result = run_json(f, WEIGHTED "--class_weights negative=3,positive=0.5 --output_dir named --json");
    assert_said(f, "\nWeights    negative=3, positive=0.5\n");
    const double loss = loss_in(result, "train_loss"), eval_loss = loss_in(result, "eval_loss");
    json_decref(result);
    free(run_well(f, WEIGHTED "--class_weights 3,0.5 --output_dir listed"));
    assert_same_run(f, "named", "listed");
    write_text(f, "args.json", "{\"class_weights\": {\"negative\": 3, \"positive\": 0.5}}");
    free(run_well(f, WEIGHTED "--args_from args.json --output_dir object"));
    assert_same_run(f, "named", "object");
    free(run_well(f, "train --args_from named/training_args.json --output_dir repeated"));
    assert_same_run(f, "named", "repeated");
    free(run_well(f, WEIGHTED "--output_dir even"));
    free(run_well(f, WEIGHTED "--class_weights none --output_dir none"));
    assert_same_run(f, "even", "none");
    assert_false(same_file(f, path_of(f, "even/model.safetensors"), path_of(f, "named/model.safetensors")));

    /* The divisor is the step's, not the micro-batch's. */
    result = run_json(f, WEIGHTED "--class_weights 3,0.5 --per_device_train_batch_size 1 "
                                  "--gradient_accumulation_steps 8 --output_dir small --json");
    assert_float_equal(loss_in(result, "train_loss"), loss, 1e-5);
    assert_float_equal(loss_in(result, "eval_loss"), eval_loss, 1e-4);
    json_decref(result);

    /* The model remembers its weights; they can be given, and left out. */
    result = run_json(f, "eval --json --threads 1 " MODEL "named --validation_file dev.csv");
    assert_said(f, "\nWeights    negative=3, positive=0.5\n");
    assert_float_equal(loss_in(result, "eval_loss"), eval_loss, 1e-6);
    json_decref(result);
    result = run_json(f, "eval --json --threads 1 --class_weights none " MODEL "named --validation_file dev.csv");
    assert_true(fabs(loss_in(result, "eval_loss") - eval_loss) > 1e-3);
    assert_true(json_is_null(json_object_get(json_object_get(result, "run"), "class_weights")));
    json_decref(result);

    char *card = read_text(f, path_of(f, "named/README.md"), NULL);
    assert_contains(card, "- class_weights: 3, 0.5\n");
    free(card);
    free(
        run_well(f, "plan --config_name model --tokenizer_name model --train_file train.csv --class_weights balanced"));
    free(run_well(f, "plan --config_name model --class_weights balanced --threads 1"));
}

FIXTURE_TEST(test_several_labels) {
    write_data(f, "multi.csv", FORM_MULTI, TRAIN_ROWS, 1);
    write_data(f, "multi_dev.csv", FORM_MULTI, EVAL_ROWS, 2);
#define SEVERAL TRAIN "--config_name model --train_file multi.csv --validation_file multi_dev.csv --label_separator | "
    free(run_well(f, SEVERAL "--class_weights keen=4,calm=2 --output_dir several"));
    assert_said(f, "\nWeights    calm=2, keen=4, of the positives in the loss\n");
    char *lines =
        run_well(f, "predict --json --threads 1 --log_level error " MODEL "several --test_file multi_dev.csv");
    json_t *result = run_json(f, "eval --json --threads 1 " MODEL "several --validation_file multi_dev.csv");
    char *data = read_text(f, path_of(f, "multi_dev.csv"), NULL), *at = strchr(data, '\n');
    const double weights[] = {2, 4};
    double sum = 0;
    int items = 0;
    for (char *rest = lines, *line; (line = strsep(&rest, "\n")) && *line;) {
        json_t *row = json_loads(line, 0, NULL);
        const size_t length = strcspn(at + 1, "\n");
        for (size_t i = 0; i < 2; i++, items++) {
            const bool has = i == 0 || memcmp(at + 1 + length - 4, "keen", 4) == 0; /* all rows are calm */
            const double x = json_number_value(json_array_get(json_object_get(row, "logits"), i));
            sum += has ? weights[i] * log1p(exp(-x)) : log1p(exp(x));
        }
        at += 1 + length;
        json_decref(row);
    }
    assert_int_equal(items, 2 * EVAL_ROWS);
    assert_float_equal(loss_in(result, "eval_loss"), sum / items, 1e-5);
    json_decref(result);
    free(lines);
    free(data);

    /* Every row is calm: no row without it gives its weight. */
    assert_int_equal(run(f, SEVERAL "--class_weights balanced --output_dir x"), 1);
    assert_said(f, "multi.csv has no row without class \"calm\", whose weight is then not defined");
    write_text(f, "hot.jsonl",
               "{\"text\": \"w1\", \"label\": [\"a\"]}\n{\"text\": \"w2\", \"label\": [\"a\", \"b\"]}\n"
               "{\"text\": \"w3\", \"label\": []}\n{\"text\": \"w4\", \"label\": [\"a\"]}\n");
    free(run_well(f, TRAIN "--config_name model --train_file hot.jsonl --class_weights balanced --output_dir hot"));
    assert_said(f, "\nWeights    a=0.333333, b=3, of the positives in the loss\n");
}

FIXTURE_TEST(test_tags) {
    write_words(f, "train.conll", TRAIN_ROWS, 1);
    write_words(f, "dev.conll", EVAL_ROWS, 2);
#define TAGS TRAIN "--task ner --config_name model --train_file train.conll --validation_file dev.conll "
    json_t *result = run_json(f, TAGS "--class_weights O=0.1 --eval_strategy steps --eval_steps 3 --output_dir tags "
                                      "--json");
    assert_said(f, "\nWeights    B-BAD=1, B-GOOD=1, I-BAD=1, I-GOOD=1, O=0.1\n");
    const double loss = loss_in(result, "train_loss"), eval_loss = loss_in(result, "eval_loss");
    json_decref(result);
    result = run_json(f, TAGS "--class_weights O=0.1 --per_device_train_batch_size 2 --gradient_accumulation_steps 4 "
                              "--output_dir parts --json");
    assert_float_equal(loss_in(result, "train_loss"), loss, 1e-5);
    json_decref(result);
    result = run_json(f, "eval --json --threads 1 " MODEL "tags --validation_file dev.conll");
    assert_float_equal(loss_in(result, "eval_loss"), eval_loss, 1e-6);
    json_decref(result);
    /* Tokens are counted as the loss has them. */
    result = run_json(f, TAGS "--class_weights balanced --output_dir first --json");
    json_t *first = json_incref(json_object_get(json_object_get(result, "run"), "class_weights"));
    json_decref(result);
    result = run_json(f, TAGS "--class_weights balanced --label_all_tokens --output_dir all --json");
    assert_false(json_equal(first, json_object_get(json_object_get(result, "run"), "class_weights")));
    for (size_t i = 0; i < 5; i++) assert_true(json_number_value(json_array_get(first, i)) > 0);
    json_decref(first);
    json_decref(result);
}

/* Resumed with other weights a run would not be the same one. */
FIXTURE_TEST(test_resume) {
#define SAVED                                                                                                          \
    "train --config_name model --tokenizer_name model --train_file train.csv --threads 1 --device cpu --save_steps 2 " \
    "--logging_steps 1 --disable_tqdm --per_device_train_batch_size 8 --max_steps 4 "
    free(run_well(f, SAVED "--class_weights balanced --output_dir whole"));
    free(run_well(f, SAVED "--class_weights balanced --output_dir again --resume_from_checkpoint whole/checkpoint-2"));
    assert_same_in_both(f, "whole", "again", "model.safetensors");
    assert_int_equal(run(f, SAVED "--class_weights 2,1 --output_dir x --resume_from_checkpoint whole/checkpoint-2"), 1);
    assert_said(f, "cannot be resumed by this run: class_weights was [");
    assert_int_equal(run(f, SAVED "--output_dir x --resume_from_checkpoint whole/checkpoint-2"), 1);
    assert_said(f, "cannot be resumed by this run: class_weights was [");
    free(run_well(f, SAVED "--output_dir even"));
    assert_int_equal(run(f, SAVED "--class_weights 2,1 --output_dir x --resume_from_checkpoint even/checkpoint-2"), 1);
    assert_said(f, "class_weights was null and is [2,1]");
}

FIXTURE_TEST(test_refused) {
    static const struct {
        const char *words, *part;
    } refused[] = {
        {"--class_weights neutral=2", "\"neutral\" is not one of the 2 classes: negative, positive; write "},
        {"--class_weights 1,2,3", "--class_weights 1,2,3: 3 weights, but there are 2 classes: negative, positive"},
        {"--class_weights negative=-1", "the weight of class \"negative\" must be a number of at least 0, not -1"},
        {"--class_weights negative=1e300", "the weight of class \"negative\" must be a number of at least 0"},
        {"--class_weights negative=", "the weight of class \"negative\" must be a number of at least 0\n"},
        {"--class_weights negative=0.0000000000000000000000000000000000000000000000000000000000000001",
         "the weight of class \"negative\" must be a number of at least 0\n"},
        {"--class_weights 1-2,1", "\"1-2\" must be CLASS=WEIGHT"},
        {"--class_weights negative=much", "the weight of class \"negative\" must be a number of at least 0\n"},
        {"--class_weights negative=1,negative=2", "class \"negative\" has two weights"},
        {"--class_weights 0,0", "all weights are 0, so nothing would be learnt"},
        {"--class_weights heavy", "\"heavy\" must be CLASS=WEIGHT; or give balanced, or a weight for each class"},
        {"--class_weights {\"negative\":", "not a valid JSON object"},
        {"--class_weights {\"neutral\":1}", "\"neutral\" is not one of the 2 classes"},
        {"--class_weights {\"negative\":\"1\"}", "the weight of class \"negative\" must be a number"},
        {"--class_weights balanced --task mlm", "--class_weights: --task mlm has no classes: leave it out"},
        {"--class_weights balanced --do_regression", "--class_weights: a regression has no classes: leave it out"},
        {"--class_weight balanced", "unknown argument; the nearest is --class_weights"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char words[1024];
        snprintf(words, sizeof words, TRAIN "--config_name model --train_file train.csv --output_dir x %s",
                 refused[i].words);
        if (run(f, words) != 2) fail_msg("%s: %s", refused[i].words, output_of(f, "stderr"));
        assert_said(f, refused[i].part);
        assert_false(exists(path_of(f, "x/model.safetensors")));
    }
    write_data(f, "value.csv", FORM_REGRESSION, TRAIN_ROWS, 1);
    assert_int_equal(run(f, TRAIN "--config_name model --train_file value.csv --class_weights 1 --output_dir x"), 2);
    assert_said(f, "--class_weights: a regression has no classes: leave it out");
    free(run_well(f, TRAIN "--config_name model --train_file train.txt --task mlm --line_by_line --output_dir words"));
    assert_int_equal(run(f, "eval --class_weights 1,2 " MODEL "words --validation_file train.txt"), 2);
    assert_said(f, "--class_weights: masked language model has no classes: leave it out");

    /* Classes of the model that no row of the data has. */
    write_text(f, "numbers.jsonl", "{\"tokens\": [\"w1\", \"w2\"], \"ner_tags\": [0, 2]}\n");
    assert_int_equal(run(f, TRAIN "--config_name model --task ner --train_file numbers.jsonl --class_weights balanced "
                                  "--output_dir x"),
                     1);
    assert_said(f,
                "numbers.jsonl has no item of class \"LABEL_1\", whose weight is then not defined: give the weights");
    free(run_well(f, TRAIN "--config_name model --task ner --train_file numbers.jsonl --class_weights 1=0,2=3 "
                           "--output_dir numbers"));
    assert_said(f, "\nWeights    LABEL_0=1, LABEL_1=0, LABEL_2=3\n");

    free(run_well(f, TRAIN "--config_name model --train_file train.csv --class_weights 1,2 --output_dir out"));
    assert_int_equal(run(f, "eval --class_weights balanced " MODEL "out --validation_file dev.csv"), 2);
    assert_said(f, "the weights follow from training rows, and there are none");
    char *text = read_text(f, path_of(f, "out/training_args.json"), NULL), *at = strstr(text, "\"class_weights\": [");
    assert_non_null(at);
    at = strchr(at, '[') + 1;
    at += strspn(at, " \n");
    at[-1] = '-';
    write_text(f, "out/training_args.json", text);
    free(text);
    assert_int_equal(run(f, "eval " MODEL "out --validation_file dev.csv"), 1);
    assert_said(f, "out/training_args.json: \"class_weights\" must be a list of numbers of at least 0");
}

TEST_MAIN(NULL, NULL)
