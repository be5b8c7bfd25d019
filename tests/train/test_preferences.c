/* SPDX-License-Identifier: Apache-2.0 */
/* Preference tuning: rows, losses, rewards and evaluations are those of TRL's DPOTrainer (tools/golden/dpo.py), with
   each loss, with adapters and with another reference; micro-batches, an interrupt and a resume; the file of the
   reference; what is refused. */
#include "data/data_file.h"
#include "data/dataset.h"
#include "data/row_texts.h"
#include "model/family.h"
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/dpo"
#define MODEL "task=dpo model_name_or_path=" GOLDEN " threads=1 use_cpu=True "
#define AS_THERE                                                                                                       \
    MODEL "max_seq_length=40 per_device_train_batch_size=4 per_device_eval_batch_size=16 max_steps=10 "                \
          "learning_rate=2e-3 lr_scheduler_type=constant weight_decay=0 train_sampling_strategy=sequential "           \
          "logging_steps=1 save_strategy=no "

static const char *const metrics[] = {"rewards/chosen",  "rewards/rejected", "rewards/accuracies",
                                      "rewards/margins", "logps/chosen",     "logps/rejected"};
enum { METRICS = sizeof metrics / sizeof *metrics };

static snug_status try_preferences(struct fixture *f, const char *output, const char *words, int stop) {
    snug_train_result result;
    snug_args *args = plain_args(f, words);
    struct stopper stopper = {stop, 0};
    const snug_callbacks callbacks = {.user = &stopper, .on_event = count_step, .should_stop = stop_after};
    assert_int_equal(snug_args_set(args, "output_dir", path_of(f, "%s", output)), SNUG_OK);
    const snug_status status = train_args(f, args, &callbacks, &result);
    snug_args_destroy(args);
    return status;
}

static void tune(struct fixture *f, const char *output, const char *words) {
    if (try_preferences(f, output, words, 0) != SNUG_OK) fail_msg("%s: %s", words, snug_error_message(f->ctx));
}

/* ---- rows ---------------------------------------------------------------------------------------------------------
 */

static struct snug_tokenizer *tokenizer_of(const struct fixture *f) {
    struct snug_tokenizer *tokenizer;
    ok(f, snug_tokenizer_load(f->ctx, GOLDEN, snug_family_tokenizer_class, &tokenizer));
    return tokenizer;
}

static struct snug_dataset_options options_of(const char *path) {
    return (struct snug_dataset_options){.path = path,
                                         .task = SNUG_TASK_DPO,
                                         .chats = true,
                                         .end = "</s>",
                                         .max_length = 40,
                                         .max_samples = -1,
                                         .threads = 1,
                                         .overwrite_cache = true};
}

/* A sequence is the prompt's tokens and those of a completion, cut at the limit. */
static void check_sequence(const int32_t *ids, int64_t count, const json_t *prompt, const json_t *completion) {
    const size_t before = json_array_size(prompt), all = before + json_array_size(completion);
    assert_int_equal(count, all < 40 ? all : 40);
    for (size_t i = 0; i < (size_t)count; i++)
        assert_int_equal(ids[i], json_integer_value(i < before ? json_array_get(prompt, i)
                                                               : json_array_get(completion, i - before)));
}

static void check_rows(struct fixture *f, const struct snug_tokenizer *tokenizer, const char *kind,
                       const json_t *rows) {
    struct snug_row_buffer buffer = {0};
    struct snug_dataset *dataset;
    char path[256];
    snprintf(path, sizeof path, GOLDEN "/%s.jsonl", kind);
    const struct snug_dataset_options options = options_of(path);
    ok(f, snug_dataset_open(f->ctx, tokenizer, &options, &dataset));
    assert_int_equal(snug_dataset_rows(dataset), json_array_size(rows));
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *prompt = json_array_get(row, 0);
        struct snug_dataset_row found;
        struct snug_row_texts texts;
        ok(f, snug_dataset_read(f->ctx, dataset, (int64_t)i, &buffer, &found));
        assert_true(snug_row_texts_of(found.labels, found.label_count, found.count, &texts));
        assert_int_equal(texts.count, 2);
        assert_int_equal((int64_t)texts.score, json_array_size(prompt));
        check_sequence(found.ids, texts.tokens[0], prompt, json_array_get(row, 1));
        check_sequence(found.ids + texts.tokens[0], texts.tokens[1], prompt, json_array_get(row, 2));
    }
    free(buffer.data);
    snug_dataset_close(dataset);
}

FIXTURE_TEST(test_rows) {
    struct snug_tokenizer *tokenizer = tokenizer_of(f);
    json_t *golden = read_json(f, GOLDEN "/expected.json"), *rows;
    const char *kind;
    json_object_foreach(json_object_get(golden, "rows"), kind, rows) check_rows(f, tokenizer, kind, rows);
    json_decref(golden);
    snug_tokenizer_free(tokenizer);
}

#define CHAT(text) "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"" text "\"}]"

FIXTURE_TEST(test_refused_rows) {
    static const struct {
        const char *name, *text, *says;
    } cases[] = {
        {"a.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n",
         "no rows of preference tuning: they have the columns \"chosen\""},
        {"a.jsonl", "{\"prompt\": \"a\", \"chosen\": \"b\"}\n",
         "no rows of preference tuning: they have the columns \"chosen\""},
        {"a.jsonl", "{\"chosen\":\"a\",\"rejected\":\"b\"}\n{\"chosen\":\"a\"}\n",
         "a.jsonl:2: \"rejected\" is missing"},
        {"a.jsonl", "{\"chosen\":\"a\",\"rejected\":\"b\"}\n{\"chosen\":\"a\",\"rejected\":" CHAT("b") "}\n",
         "a.jsonl:2: \"rejected\" is no text"},
        {"a.jsonl", "{\"chosen\":" CHAT("a") ",\"rejected\":\"b\"}\n", "a.jsonl:1: \"rejected\" has none"},
        {"a.jsonl", "{\"chosen\":" CHAT("a") ",\"rejected\":[]}\n", "a.jsonl:1: \"rejected\" has none"},
        {"a.jsonl", "{\"chosen\":" CHAT("a") ",\"rejected\":" CHAT("b") "}\n{\"chosen\":" CHAT("a") "}\n",
         "a.jsonl:2: \"rejected\" is missing"},
        {"a.jsonl", "{\"chosen\":[{\"role\":\"user\",\"content\":\"a\"}],\"rejected\":[{\"role\":\"user\"}]}\n",
         "begin with different messages, and there is no \"prompt\""},
        {"a.jsonl", "{\"chosen\":" CHAT("a") ",\"rejected\":[{\"role\":\"user\",\"content\":\"b\"},3]}\n",
         "begin with different messages, and there is no \"prompt\""},
        {"a.jsonl", "{\"prompt\":\"a\",\"chosen\":" CHAT("a") ",\"rejected\":" CHAT("b") "}\n",
         "a.jsonl:1: \"prompt\" has none"},
        {"a.jsonl", "{\"prompt\":" CHAT("a") ",\"chosen\":" CHAT("a") ",\"rejected\":[3,4]}\n", "must be an object"},
        {"a.jsonl", "{\"prompt\":[{\"role\":\"user\",\"content\":\"a\"}],\"chosen\":[{\"role\":3}],\"rejected\":[4]}\n",
         "a.jsonl"},
        {"a.jsonl", "{\"chosen\":true,\"rejected\":\"b\"}\n", "\"chosen\" of a preference must be"},
        {"a.jsonl",
         "{\"prompt\":\""
         "a b c d e f g h i j k l m n o p q r s t u v w x y z 1 2 3 4 5 6 7 8 9 0 1 2 3 4"
         "\",\"chosen\":\"a\",\"rejected\":\"b\"}\n",
         "no row has a token with a loss"},
    };
    struct snug_tokenizer *tokenizer = tokenizer_of(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_dataset *dataset;
        snug_clear_error(f->ctx);
        const struct snug_dataset_options options = options_of(write_text(f, cases[i].name, cases[i].text));
        assert_failed(f, cases[i].text, snug_dataset_open(f->ctx, tokenizer, &options, &dataset), SNUG_E_INPUT,
                      cases[i].says);
    }
    struct snug_dataset_options options = options_of(GOLDEN "/texts.jsonl");
    struct snug_dataset *dataset;
    options.text_column = "prompt";
    snug_clear_error(f->ctx);
    assert_failed(f, "a column", snug_dataset_open(f->ctx, tokenizer, &options, &dataset), SNUG_E_USAGE,
                  "not for preference tuning");
    snug_tokenizer_free(tokenizer);
}

#define LONG_PROMPT "1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2"

/* Lists of messages are their JSON texts in a table, where an empty text is a text, too. */
FIXTURE_TEST(test_tables) {
    static const struct {
        const char *text;
        int64_t rows, tokens;
    } cases[] = {{"prompt,chosen,rejected\n,a,b\n", 1, 4},
                 {"chosen,rejected\nab,ac\n", 1, 6},
                 {"chosen,rejected\na b,a c\n\"x\",\"x\"\n", 2, 4 + 4 + 4},
                 {"prompt,chosen,rejected\na,,b\n", 1, 5},
                 {"chosen,rejected\nx,x\ny,y\n", 2, 4 + 4},
                 {"chosen,rejected\n,b\n", 1, 3},                         /* the shorter one is empty */
                 {"chosen,rejected\n\"\303\251\",\"\303\250\"\n", 1, 6}}; /* characters are not divided */
    struct snug_tokenizer *tokenizer = tokenizer_of(f);
    struct snug_dataset *dataset;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct snug_dataset_options options = options_of(write_text(f, "a.csv", cases[i].text));
        ok(f, snug_dataset_open(f->ctx, tokenizer, &options, &dataset));
        assert_int_equal(snug_dataset_rows(dataset), cases[i].rows);
        if (snug_dataset_tokens(dataset) != cases[i].tokens)
            fail_msg("case %zu: %d tokens", i, (int)snug_dataset_tokens(dataset));
        snug_dataset_close(dataset);
    }
    assert_contains(f->log, "in 1 row, first in line 3, the chosen and the rejected text are the same tokens");
    assert_contains(f->log, "in 2 rows, first in line 2, the chosen and the rejected text are the same tokens");
    const struct snug_dataset_options options = options_of(
        write_text(f, "b.csv",
                   "chosen,rejected\n\"[{\"\"role\"\":\"\"user\"\",\"\"content\"\":\"\"a\"\"},{\"\"role\"\":"
                   "\"\"assistant\"\",\"\"content\"\":\"\"b\"\"}]\",\"[{\"\"role\"\":\"\"user\"\",\"\"content"
                   "\"\":\"\"a\"\"},{\"\"role\"\":\"\"gpt\"\",\"\"content\"\":\"\"c\"\"}]\"\n"));
    const struct snug_dataset_options longer = options_of(write_text(
        f, "c.jsonl",
        "{\"chosen\":" CHAT("b") ",\"rejected\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":"
                                 "\"assistant\",\"content\":\"c\"},{\"role\":\"user\",\"content\":\"d\"}]}\n"));
    const struct snug_dataset_options left =
        options_of(write_text(f, "d.csv", "prompt,chosen,rejected\n" LONG_PROMPT ",a,b\nx,a,b\n" LONG_PROMPT ",b,c\n"));
    ok(f, snug_dataset_open(f->ctx, tokenizer, &options, &dataset));
    assert_int_equal(snug_dataset_rows(dataset), 1);
    assert_contains(f->log, "the roles \"human\" and \"gpt\"");
    snug_dataset_close(dataset);
    ok(f, snug_dataset_open(f->ctx, tokenizer, &longer, &dataset)); /* a list is longer than the other */
    assert_int_equal(snug_dataset_rows(dataset), 1);
    snug_dataset_close(dataset);
    ok(f, snug_dataset_open(f->ctx, tokenizer, &left, &dataset));
    assert_int_equal(snug_dataset_rows(dataset), 1);
    assert_contains(f->log, "2 rows whose prompt alone has --max_seq_length tokens are left out");
    snug_dataset_close(dataset);
    snug_tokenizer_free(tokenizer);
}

/* ---- DPOTrainer ---------------------------------------------------------------------------------------------------
 */

static void check_value(const char *run, const char *name, double got, const json_t *value) {
    const double want = json_number_value(value);
    if (!(fabs(got - want) <= 1e-5 * fmax(1, fabs(want)))) fail_msg("%s: %s is %.9g, not %.9g", run, name, got, want);
}

static void check_run(struct fixture *f, const char *name, const json_t *expected) {
    json_t *history = history_of(f, "out"), *entry;
    const json_t *losses = json_object_get(expected, "losses"), *evaluation = json_object_get(expected, "evaluation");
    size_t i, seen = 0;
    json_array_foreach(history, i, entry) {
        const json_t *loss = json_object_get(entry, "loss"),
                     *values = json_array_get(json_object_get(expected, "metrics"), seen);
        const bool evaluates = json_object_get(entry, "eval_loss") && evaluation;
        char key[64];
        if (loss) check_value(name, "loss", json_number_value(loss), json_array_get(losses, seen++));
        if (evaluates)
            check_value(name, "eval_loss", json_number_value(json_object_get(entry, "eval_loss")),
                        json_array_get(evaluation, 0));
        for (size_t k = 0; k < METRICS && (loss || evaluates); k++) {
            snprintf(key, sizeof key, "%s%s", loss ? "" : "eval_", metrics[k]);
            check_value(name, key, json_number_value(json_object_get(entry, key)),
                        loss ? json_array_get(values, k) : json_array_get(evaluation, k + 1));
        }
    }
    assert_int_equal(seen, json_array_size(losses));
    json_decref(history);
}

FIXTURE_TEST(test_trl) {
#define EVALUATED "train_file=" GOLDEN "/texts.jsonl validation_file=" GOLDEN "/implicit.jsonl eval_strategy=epoch "
    static const char *const runs[][2] = {
        {"sigmoid", EVALUATED},
        {"hinge", EVALUATED "loss_type=hinge"},
        {"ipo", EVALUATED "loss_type=ipo"},
        {"robust", EVALUATED "loss_type=robust label_smoothing=0.1"},
        {"sigmoid_norm", EVALUATED "loss_type=sigmoid_norm beta=0.5"},
        {"reference", "train_file=" GOLDEN "/texts.jsonl ref_model_name_or_path=" GOLDEN "/reference"},
        {"adapter", "train_file=" GOLDEN "/texts.jsonl use_peft=True adapter_name_or_path=" GOLDEN "/adapter"},
        {"implicit", "train_file=" GOLDEN "/implicit.jsonl"},
        {"chats", "train_file=" GOLDEN "/chats.jsonl"},
        {"implicit_chats", "train_file=" GOLDEN "/implicit_chats.jsonl"},
    };
    json_t *golden = read_json(f, GOLDEN "/expected.json");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[1024];
        const json_t *expected = json_object_get(json_object_get(golden, "runs"), runs[i][0]);
        snprintf(words, sizeof words, AS_THERE "%s%s", runs[i][1],
                 strstr(runs[i][1], "eval") ? " eval_strategy=steps eval_steps=10" : " eval_strategy=no");
        tune(f, "out", words);
        check_run(f, runs[i][0], expected);
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "out")));
    }
    json_decref(golden);
}

/* ---- micro-batches, chunks and interrupts -------------------------------------------------------------------------
 */

/* The largest difference of the logs of two runs. */
static double difference(const struct fixture *f, const char *a, const char *b) {
    json_t *x = history_of(f, a), *y = history_of(f, b), *value;
    double most = 0;
    const char *key;
    assert_int_equal(json_array_size(x), json_array_size(y));
    for (size_t i = 0; i < json_array_size(x); i++)
        json_object_foreach(json_array_get(x, i), key, value) most =
            fmax(most, fabs(json_number_value(value) - json_number_value(json_object_get(json_array_get(y, i), key))));
    json_decref(x);
    json_decref(y);
    return most;
}

/* 8 rows of 120 tokens have more loss positions than a chunk of HEAD; the rows of a step are divided in any way. */
FIXTURE_TEST(test_splits) {
    static const char *const splits[] = {"per_device_train_batch_size=8",
                                         "per_device_train_batch_size=4 gradient_accumulation_steps=2",
                                         "per_device_train_batch_size=1 gradient_accumulation_steps=8",
                                         "per_device_train_tokens=240 gradient_accumulation_steps=4",
                                         "per_device_train_batch_size=8 gradient_checkpointing=True"};
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        char words[1024], name[16];
        snprintf(name, sizeof name, "run%zu", i);
        snprintf(words, sizeof words,
                 MODEL "train_file=dummy:24x120 max_steps=4 learning_rate=1e-3 train_sampling_strategy=sequential "
                       "logging_steps=1 save_strategy=no eval_strategy=no %s",
                 splits[i]);
        tune(f, name, words);
        const double most = i ? difference(f, "run0", name) : 0;
        if (most > 2e-4) fail_msg("%s: the logs differ by %g", splits[i], most);
    }
    assert_same_run(f, "run0", "run4");
}

FIXTURE_TEST(test_resumed_is_uninterrupted) {
    static const char *const more[] = {"", "use_peft=True lora_target_modules=all-linear ",
                                       "optim=adamw_8bit gradient_accumulation_steps=2 "};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        char words[1024];
        snprintf(words, sizeof words,
                 MODEL "train_file=" GOLDEN "/texts.jsonl validation_file=" GOLDEN
                       "/implicit.jsonl max_seq_length=40 per_device_train_batch_size=2 max_steps=9 learning_rate=2e-3 "
                       "logging_steps=4 eval_strategy=steps eval_steps=3 save_strategy=no seed=3 %s",
                 more[i]);
        tune(f, "whole", words);
        assert_int_equal(try_preferences(f, "cut", words, 5), SNUG_E_INTERRUPTED);
        f->log[0] = '\0';
        strcat(words, "resume_from_checkpoint=True");
        if (i) assert_int_equal(remove(path_of(f, "cut/reference_eval.bin")), 0);
        tune(f, "cut", words);
        assert_contains(f->log, "cut/reference_train.bin has the reference model's log-probabilities");
        assert_int_equal(!strstr(f->log, "cut/reference_eval.bin has the reference model's log-probabilities"), i > 0);
        assert_same_in_both(f, "whole", "cut", i == 1 ? "adapter_model.safetensors" : "model.safetensors");
        assert_same_history(f, "whole", "cut");
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "whole")));
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "cut")));
    }
}

/* ---- the reference's file ------------------------------------------------------------------------------------------
 */

#define SHORT MODEL "max_seq_length=40 per_device_train_batch_size=4 max_steps=1 save_strategy=no eval_strategy=no "

static void expect_log(struct fixture *f, const char *words, const char *part) {
    f->log[0] = '\0';
    tune(f, "out", words);
    assert_contains(f->log, part);
}

FIXTURE_TEST(test_reference_file) {
    static const char texts[] = SHORT "train_file=" GOLDEN "/texts.jsonl ";
    size_t size;
    expect_log(f, texts, "the reference model's log-probabilities of 11 rows took");
    expect_log(f, SHORT "beta=0.3 loss_type=hinge train_file=" GOLDEN "/texts.jsonl", "has the reference model's");
    expect_log(f, SHORT "train_file=" GOLDEN "/chats.jsonl", "is of another reference model, other data or another");
    expect_log(f, texts, "is of another reference model, other data or another precision: it is computed again");
    expect_log(f, texts, "has the reference model's");
    expect_log(f, SHORT "ref_model_name_or_path=" GOLDEN "/reference train_file=" GOLDEN "/texts.jsonl",
               "is of another reference model");
    char *file = read_text(f, path_of(f, "out/reference_train.bin"), &size);
    file[size - 1] ^= 1;
    write_bytes(path_of(f, "out/reference_train.bin"), file, size);
    expect_log(f,
               SHORT "ref_model_name_or_path=" GOLDEN "/reference overwrite_output_dir=True train_file=" GOLDEN
                     "/texts.jsonl",
               "reference_train.bin is damaged: it is computed again");
    file[0]++;
    file[size - 1] ^= 1;
    write_bytes(path_of(f, "out/reference_train.bin"), file, size);
    expect_log(f,
               SHORT "ref_model_name_or_path=" GOLDEN "/reference overwrite_output_dir=True train_file=" GOLDEN
                     "/texts.jsonl",
               "reference_train.bin is damaged: it is computed again");
    file[0]--;
    write_bytes(path_of(f, "out/reference_train.bin"), file, 40);
    expect_log(f,
               SHORT "ref_model_name_or_path=" GOLDEN "/reference overwrite_output_dir=True train_file=" GOLDEN
                     "/texts.jsonl",
               "reference_train.bin is damaged: it is computed again");
    write_bytes(path_of(f, "out/reference_train.bin"), file, 20);
    free(file);
    expect_log(f,
               SHORT "ref_model_name_or_path=" GOLDEN "/reference overwrite_output_dir=True train_file=" GOLDEN
                     "/texts.jsonl",
               "reference_train.bin is damaged: it is computed again");
}

FIXTURE_TEST(test_refused) {
    static const struct {
        const char *words, *says;
        snug_status status;
    } cases[] = {
        {SHORT "use_peft=True adapter_name_or_path=" GOLDEN "/adapter ref_model_name_or_path=" GOLDEN "/reference",
         "adapters that are trained further", SNUG_E_UNSUPPORTED},
        {"task=dpo threads=1 use_cpu=True max_steps=1 config_name=" GOLDEN " tokenizer_name=" GOLDEN
         " ref_model_name_or_path=" GOLDEN "/reference",
         "a model from scratch has no reference", SNUG_E_USAGE},
        {SHORT "ref_model_name_or_path=@other", "must be a model of the same form as the trained one: embedding_size",
         SNUG_E_INPUT},
        {SHORT "ref_model_name_or_path=@none", "none", SNUG_E_INPUT},
        {SHORT "assistant_only_loss=True", "--assistant_only_loss is for causal LM", SNUG_E_USAGE},
        {"task=clm threads=1 use_cpu=True beta=0.2 model_name_or_path=" GOLDEN, "--beta is for preference tuning",
         SNUG_E_USAGE},
        {"task=dpo threads=1 use_cpu=True config_name=@model tokenizer_name=@model", "has no head for it",
         SNUG_E_UNSUPPORTED},
    };
    json_t *config = read_json(f, GOLDEN "/config.json");
    json_object_set_new(config, "hidden_size", json_integer(64));
    assert_int_equal(mkdir(path_of(f, "other"), 0777), 0);
    assert_int_equal(json_dump_file(config, path_of(f, "other/config.json"), 0), 0);
    json_decref(config);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[1024];
        snprintf(words, sizeof words, "%s train_file=" GOLDEN "/texts.jsonl", cases[i].words);
        assert_failed(f, words, try_preferences(f, "out", words, 0), cases[i].status, cases[i].says);
        assert_false(exists(path_of(f, "out")));
    }
    snug_metrics *found;
    snug_args *args = plain_args(f, MODEL "validation_file=" GOLDEN "/texts.jsonl");
    assert_failed(f, "eval", snug_evaluate(args, NULL, &found), SNUG_E_UNSUPPORTED, "--task dpo is a training");
    snug_args_destroy(args);
}

/* After the description of the run the reference's are computed. */
static void note_description(void *user, const snug_event *event) { *(bool *)user |= event->kind == SNUG_EVENT_RUN; }
static bool is_described(void *user) { return *(bool *)user; }

FIXTURE_TEST(test_stopped) {
    bool described = false;
    snug_args *args = plain_args(f, SHORT "train_file=" GOLDEN "/texts.jsonl");
    const snug_callbacks callbacks = {.user = &described, .on_event = note_description, .should_stop = is_described};
    set_args(f, args, "output_dir=@out");
    assert_failed(f, "stopped", snug_train(args, &callbacks, NULL), SNUG_E_INTERRUPTED,
                  "batches of the reference model");
    assert_false(exists(path_of(f, "out")));
    snug_args_destroy(args);
}

/* ---- methods and types --------------------------------------------------------------------------------------------
 */

/* The model with so large weights of its last norm that its logits overflow. */
static void write_huge(const struct fixture *f) {
    size_t size;
    uint64_t header;
    char *file = read_text(f, GOLDEN "/model.safetensors", &size);
    memcpy(&header, file, sizeof header);
    json_t *tensors = json_loadb(file + sizeof header, header, 0, NULL);
    const json_t *place = json_object_get(json_object_get(tensors, "model.norm.weight"), "data_offsets");
    for (int64_t at = json_integer_value(json_array_get(place, 0)); at < json_integer_value(json_array_get(place, 1));
         at += (int64_t)sizeof(float))
        memcpy(file + sizeof header + header + at, &(float){3e38f}, sizeof(float));
    json_decref(tensors);
    assert_int_equal(mkdir(path_of(f, "huge"), 0777), 0);
    write_bytes(path_of(f, "huge/model.safetensors"), file, size);
    free(file);
    file = read_text(f, GOLDEN "/config.json", &size);
    write_bytes(path_of(f, "huge/config.json"), file, size);
    free(file);
}

/* From scratch the seed is the reference; values that overflow have none. A caller's loop has a reference, too. */
FIXTURE_TEST(test_other_models) {
#define SCRATCH                                                                                                        \
    "task=dpo threads=1 use_cpu=True tokenizer_name=" GOLDEN " max_seq_length=40 max_steps=2 save_strategy=no "        \
    "eval_strategy=no train_file=" GOLDEN "/texts.jsonl "
    tune(f, "out", SCRATCH "per_device_train_tokens=80 config_name=" GOLDEN);
    write_huge(f);
    assert_failed(f, "huge", try_preferences(f, "none", SCRATCH "model_name_or_path=@huge", 0), SNUG_E_NUMERIC,
                  "the reference model's log-probability is not finite");
    snug_clear_error(f->ctx);
    tune(f, "synthetic", MODEL "train_file=dummy:8x2-9 max_steps=2 save_strategy=no eval_strategy=no");
    snug_session *session;
    double loss;
    snug_args *args = plain_args(f, SHORT "train_file=" GOLDEN "/texts.jsonl");
    ok(f, snug_session_create(args, &session));
    ok(f, snug_session_begin_epoch(session, 0));
    ok(f, snug_next_batch(session, NULL));
    ok(f, snug_forward(session));
    ok(f, snug_loss(session, &loss));
    assert_true(fabs(loss - log(2)) < 1e-6);
    snug_session_destroy(session);
    snug_args_destroy(args);
    args = plain_args(f, SHORT "ref_model_name_or_path=@none train_file=" GOLDEN "/texts.jsonl");
    assert_failed(f, "loop", snug_session_create(args, &session), SNUG_E_INPUT, "none");
    snug_args_destroy(args);
    snug_clear_error(f->ctx);
    args = plain_args(f, SHORT "output_dir=@bare train_file=" GOLDEN "/texts.jsonl");
    ok(f, snug_train(args, &(snug_callbacks){0}, NULL));
    snug_args_destroy(args);
}

/* Without data all rows have the longest length. A row that is in no batch of the training is in one of the
   reference. */
FIXTURE_TEST(test_plan) {
    static const char *const data[] = {"", "train_file=@last.csv dataloader_drop_last=True"};
    write_text(f, "last.csv", "prompt,chosen,rejected\na,b,c\nb,c,d\n1 2 3 4 5 6 7 8 9,a b c d e,f g h i j\n");
    for (size_t i = 0; i < 2; i++) {
        char words[512];
        snug_plan *plan;
        snprintf(words, sizeof words,
                 MODEL "per_device_train_batch_size=2 max_seq_length=40 train_sampling_strategy=sequential %s",
                 data[i]);
        snug_args *args = plain_args(f, words);
        ok(f, snug_plan_create(args, &plan));
        snug_plan_destroy(plan);
        snug_args_destroy(args);
    }
    tune(f, "out",
         MODEL "per_device_train_batch_size=2 max_seq_length=40 train_sampling_strategy=sequential "
               "max_steps=1 save_strategy=no eval_strategy=no train_file=@last.csv "
               "dataloader_drop_last=True");
}

/* The model that is written is a causal language model; one that was trained is a reference, too. */
FIXTURE_TEST(test_model) {
    snug_metrics *found;
    tune(f, "out", SHORT "train_file=" GOLDEN "/chats.jsonl");
    snug_args *args = plain_args(f, "model_name_or_path=@out threads=1 use_cpu=True validation_file=@texts.jsonl");
    write_text(f, "texts.jsonl", "{\"text\": \"The quick brown fox\"}\n");
    ok(f, snug_evaluate(args, NULL, &found));
    assert_true(metric_of(found, "perplexity") > 0);
    snug_metrics_destroy(found);
    snug_args_destroy(args);
    assert_contains(f->log, "line 1: 62 tokens, 22 with a loss (« »)");
    assert_contains(f->log, "<s>assistant\\n« brown");
    tune(f, "again", SHORT "train_file=" GOLDEN "/chats.jsonl ref_model_name_or_path=@out");
}

FIXTURE_TEST(test_methods) {
    static const char *const cases[] = {
        "bf16=True",
        "bf16=True dtype=bfloat16",
        "load_in_4bit=True bf16=True use_peft=True lora_target_modules=all-linear",
        "load_in_4bit=True bnb_4bit_compute_dtype=float32 use_peft=True use_dora=True lora_target_modules=all-linear "
        "ref_model_name_or_path=" GOLDEN "/reference",
        "use_peft=True lora_dropout=0.5",
        "freeze=embeddings",
        "recompute=layer update_in_backward=True max_grad_norm=0",
        "offload=optimizer,gradients,weights,activations offload_dir=@disk",
        "group_by_length=True",
        "label_smoothing=0.1",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[1024];
        snprintf(words, sizeof words,
                 MODEL "train_file=" GOLDEN
                       "/texts.jsonl max_seq_length=40 per_device_train_batch_size=11 max_steps=12 "
                       "learning_rate=5e-3 logging_steps=1 save_strategy=no eval_strategy=no %s",
                 cases[i]);
        tune(f, "out", words);
        json_t *history = history_of(f, "out");
        const json_t *first = json_array_get(history, 0), *last = json_array_get(history, 11);
        const double begin = json_number_value(json_object_get(first, "loss")),
                     end = json_number_value(json_object_get(last, "loss"));
        const double margin = json_number_value(json_object_get(first, "rewards/margins"));
        const bool own = !strstr(cases[i], "ref_model");
        if (!(end < begin) || (own && fabs(margin) > 1e-6) || (own && fabs(begin - log(2)) > 1e-5))
            fail_msg("%s: the loss was %g and is %g, the margin was %g", cases[i], begin, end, margin);
        json_decref(history);
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "out")));
    }
}

TEST_MAIN(NULL, NULL)
