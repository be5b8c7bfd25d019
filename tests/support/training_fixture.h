/* SPDX-License-Identifier: Apache-2.0 */
/* A temporary folder for a test, with a tiny BERT, small data files for every task, and short forms of training calls.
 */
#ifndef SNUG_TESTS_TRAINING_FIXTURE_H
#define SNUG_TESTS_TRAINING_FIXTURE_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "arguments.h"
#include "core/philox.h"
#include "folders.h"
#include "sanitized.h"
#include "temporary.h"
#include "test.h"
#include "train/session.h"

/* w0 … w199 mean nothing; "good" and "bad" decide the label. */
enum { WORDS = 200, VOCABULARY = 5 + WORDS + 2 };
/* For a model with so many more rows, which no text has, that its word embedding is updated lazily. The rows that both
   models have begin with the same weights. */
enum { WIDE_VOCABULARY = 20 * VOCABULARY };
/* 76 rows: at 32 a step the epoch's last step has 12, at 8 x 4 a batch of 4 ends it. */
enum { TRAIN_ROWS = 76, EVAL_ROWS = 30 };

struct fixture {
    snug_context *ctx;
    char folder[64], log[1 << 15];
    struct given { /* results of the library, whose values tests keep */
        snug_train_result *result;
        snug_metrics *metrics;
    } * given;
    size_t given_count;
};

/* ---- files ---------------------------------------------------------------------------------------------------- */

/* A path in the test's folder; valid for the next seven calls. */
static inline const char *path_of(const struct fixture *f, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline const char *path_of(const struct fixture *f, const char *format, ...) {
    static char paths[8][512];
    static int next;
    va_list values;
    next = (next + 1) % 8;
    const int used = snprintf(paths[next], sizeof paths[next], "%s/", f->folder);
    va_start(values, format);
    vsnprintf(paths[next] + used, sizeof paths[next] - (size_t)used, format, values);
    va_end(values);
    return paths[next];
}

static inline void write_bytes(const char *path, const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    if (!file) fail_msg("cannot write %s", path);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static inline const char *write_text(const struct fixture *f, const char *name, const char *text) {
    const char *path = path_of(f, "%s", name);
    write_bytes(path, text, strlen(text));
    return path;
}

/* Without noinline, gcc 12 takes the pointer that strchr() finds in its result for one to a local variable. */
__attribute__((noinline)) static char *read_text(const struct fixture *f, const char *path, size_t *size) {
    (void)f;
    FILE *file = fopen(path, "rb");
    struct stat about;
    if (!file || fstat(fileno(file), &about) != 0) fail_msg("%s: %s", path, strerror(errno));
    char *data = malloc((size_t)about.st_size + 1);
    assert_non_null(data);
    const size_t length = fread(data, 1, (size_t)about.st_size, file);
    data[length] = '\0';
    fclose(file);
    if (size) *size = length;
    return data;
}

static inline json_t *read_json(const struct fixture *f, const char *path) {
    char *text = read_text(f, path, NULL);
    json_t *json = json_loads(text, 0, NULL);
    if (!json) fail_msg("%s is not JSON", path);
    free(text);
    return json;
}

static inline void assert_same_file(const struct fixture *f, const char *a, const char *b) {
    size_t size_a, size_b;
    char *x = read_text(f, a, &size_a), *y = read_text(f, b, &size_b);
    if (size_a != size_b || memcmp(x, y, size_a) != 0) fail_msg("%s and %s differ", a, b);
    free(x);
    free(y);
}

static inline bool same_file(const struct fixture *f, const char *a, const char *b) {
    size_t size_a, size_b;
    char *x = read_text(f, a, &size_a), *y = read_text(f, b, &size_b);
    const bool same = size_a == size_b && memcmp(x, y, size_a) == 0;
    free(x);
    free(y);
    return same;
}

/* The rows that predict --json printed, without the run, which is at the end of the first row's object. */
static inline char *without_run(char *text) {
    char *run = strstr(text, ",\"run\":{"), *end = run ? strchr(run, '\n') : NULL;
    if (end) memmove(run, end - 1, strlen(end - 1) + 1);
    return text;
}

static inline void assert_contains(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("\"%s\" does not contain \"%s\"", text, part);
}

/* ---- data ----------------------------------------------------------------------------------------------------- */

enum data_form { FORM_SINGLE, FORM_MULTI, FORM_REGRESSION, FORM_PAIRS, FORM_TEXT };

static inline uint32_t random_word(uint32_t row, uint32_t place, uint32_t file) {
    return snug_philox(row, place, file, 0, 7, 7).word[0];
}

/* Few words are frequent and most are rare, as in any language. */
static inline uint32_t frequent_word(uint32_t row, uint32_t place, uint32_t file) {
    const float u = snug_philox_uniform(random_word(row, place, file));
    return (uint32_t)(u * u * u * WORDS);
}

/* Texts of 3 to 22 words, one of which decides the label; kind is a seed for files of the same form. */
static inline void write_data(const struct fixture *f, const char *name, enum data_form form, uint32_t rows,
                              uint32_t kind) {
    static const char *const heads[] = {"sentence,label", "sentence,label", "sentence,label", "anchor,positive", NULL};
    static const char *const labels[][2] = {
        {"negative", "positive"}, {"calm", "calm|keen"}, {"-0.5", "1.25"}, {"bad w1", "good w2 w3"}};
    FILE *file = fopen(path_of(f, "%s", name), "w");
    assert_non_null(file);
    if (heads[form]) fprintf(file, "%s\n", heads[form]);
    for (uint32_t row = 0; row < rows; row++) {
        const uint32_t length = 3 + random_word(row, 0, kind) % 20, at = random_word(row, 1, kind) % length;
        const bool good = random_word(row, 2, kind) & 1;
        for (uint32_t i = 0; i < length; i++)
            if (i == at)
                fprintf(file, "%s%s", i ? " " : "", good ? "good" : "bad");
            else
                fprintf(file, "%sw%u", i ? " " : "", frequent_word(row, 3 + i, kind));
        if (form == FORM_TEXT)
            fputc('\n', file);
        else
            fprintf(file, ",%s\n", labels[form][good]);
    }
    assert_int_equal(fclose(file), 0);
}

/* The same texts word by word, with tags: "good" and "bad" begin an entity, of which the word after it is a part. Some
   words have three tokens. */
static inline void write_words(const struct fixture *f, const char *name, uint32_t rows, uint32_t kind) {
    FILE *file = fopen(path_of(f, "%s", name), "w");
    assert_non_null(file);
    for (uint32_t row = 0; row < rows; row++) {
        const uint32_t length = 3 + random_word(row, 0, kind) % 20, at = random_word(row, 1, kind) % length;
        const bool good = random_word(row, 2, kind) & 1;
        for (uint32_t i = 0; i < length; i++) {
            const uint32_t word = frequent_word(row, 3 + i, kind);
            if (i == at)
                fprintf(file, good ? "good B-GOOD\n" : "bad B-BAD\n");
            else
                fprintf(file, word % 5 ? "w%u %s\n" : "w%u.w7 %s\n", word,
                        i != at + 1 ? "O"
                        : good      ? "I-GOOD"
                                    : "I-BAD");
        }
        fputc('\n', file);
    }
    assert_int_equal(fclose(file), 0);
}

/* A tiny BERT's folder without weights: training begins from scratch with it. */
static inline void write_model(const struct fixture *f, const char *name, double dropout, int hidden, int layers,
                               int vocabulary) {
    char config[1024], vocab[4096];
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "%s", name)), SNUG_OK);
    snprintf(config, sizeof config,
             "{\"model_type\": \"bert\", \"vocab_size\": %d, \"hidden_size\": %d, \"num_hidden_layers\": %d,"
             " \"num_attention_heads\": 4, \"intermediate_size\": %d, \"max_position_embeddings\": 64,"
             " \"hidden_dropout_prob\": %g, \"attention_probs_dropout_prob\": %g}",
             vocabulary, hidden, layers, 4 * hidden, dropout, dropout);
    size_t used = (size_t)snprintf(vocab, sizeof vocab, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\n");
    for (int i = 0; i < WORDS; i++) used += (size_t)snprintf(vocab + used, sizeof vocab - used, "w%d\n", i);
    const char *const files[][2] = {
        {"config.json", config}, {"vocab.txt", vocab}, {"tokenizer_config.json", "{\"do_lower_case\": true}"}};
    for (size_t i = 0; i < 3; i++) {
        const char *path = path_of(f, "%s/%s", name, files[i][0]);
        write_bytes(path, files[i][1], strlen(files[i][1]));
    }
}

/* Folders of other families with config.json alone, for training from scratch with the model's tokenizer. */
static inline void write_other_families(const struct fixture *f, int hidden) {
    static const char *const configs[][2] = {
        {"roberta", "{\"model_type\": \"roberta\", \"vocab_size\": %d, \"hidden_size\": %d, \"num_hidden_layers\": 2,"
                    " \"num_attention_heads\": 4, \"intermediate_size\": %d, \"max_position_embeddings\": 66,"
                    " \"type_vocab_size\": 1, \"pad_token_id\": 0}"},
        {"modern",
         "{\"model_type\": \"modernbert\", \"vocab_size\": %d, \"hidden_size\": %d, \"num_hidden_layers\": 2,"
         " \"num_attention_heads\": 4, \"intermediate_size\": %d, \"max_position_embeddings\": 64,"
         " \"local_attention\": 8, \"embedding_dropout\": 0.1, \"attention_dropout\": 0.1, \"mlp_dropout\": 0.1,"
         " \"classifier_pooling\": \"mean\", \"pad_token_id\": 0}"},
        {"mpnet", "{\"model_type\": \"mpnet\", \"vocab_size\": %d, \"hidden_size\": %d, \"num_hidden_layers\": 2,"
                  " \"num_attention_heads\": 4, \"intermediate_size\": %d, \"max_position_embeddings\": 66}"},
        {"llama", "{\"model_type\": \"llama\", \"vocab_size\": %d, \"hidden_size\": %d, \"num_hidden_layers\": 2,"
                  " \"num_attention_heads\": 4, \"intermediate_size\": %d, \"max_position_embeddings\": 64,"
                  " \"num_key_value_heads\": 2, \"attention_dropout\": 0.1, \"tie_word_embeddings\": true}"},
        {"gemma", "{\"model_type\": \"gemma2\", \"vocab_size\": %d, \"hidden_size\": %d, \"num_hidden_layers\": 2,"
                  " \"num_attention_heads\": 4, \"intermediate_size\": %d, \"max_position_embeddings\": 64,"
                  " \"num_key_value_heads\": 2, \"head_dim\": 64, \"sliding_window\": 6, \"attention_dropout\": 0.1,"
                  " \"attn_logit_softcapping\": 5.0, \"final_logit_softcapping\": 3.0}"},
        {"qwen", "{\"model_type\": \"qwen3\", \"vocab_size\": %d, \"hidden_size\": %d, \"num_hidden_layers\": 2,"
                 " \"num_attention_heads\": 4, \"intermediate_size\": %d, \"max_position_embeddings\": 64,"
                 " \"num_key_value_heads\": 1, \"head_dim\": 64, \"attention_dropout\": 0.1}"},
        {"gpt", "{\"model_type\": \"gpt2\", \"vocab_size\": %d, \"n_embd\": %d, \"n_layer\": 2, \"n_head\": 4,"
                " \"n_inner\": %d, \"n_positions\": 64, \"bos_token_id\": 2, \"eos_token_id\": 3}"},
        {"phi", "{\"model_type\": \"phi3\", \"vocab_size\": %d, \"hidden_size\": %d, \"num_hidden_layers\": 2,"
                " \"num_attention_heads\": 4, \"intermediate_size\": %d, \"max_position_embeddings\": 64,"
                " \"num_key_value_heads\": 2, \"pad_token_id\": 0, \"resid_pdrop\": 0.1, \"attention_dropout\": 0.1}"},
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        char text[1024];
        const int length =
            snprintf(text, sizeof text, configs[i][1], VOCABULARY, hidden, i == 1 ? hidden * 5 / 4 : 2 * hidden);
        assert_int_equal(snug_folder_create(f->ctx, path_of(f, "%s", configs[i][0])), SNUG_OK);
        write_bytes(path_of(f, "%s/config.json", configs[i][0]), text, (size_t)length);
    }
}

/* ---- set-up --------------------------------------------------------------------------------------------------- */

static void keep_log(void *user, snug_log_level level, const char *message) {
    struct fixture *f = user;
    const size_t used = strlen(f->log);
    snprintf(f->log + used, sizeof f->log - used, "%s%s\n", level == SNUG_LOG_WARNING ? "warning: " : "", message);
}

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_non_null(temporary_folder(f->folder, sizeof f->folder));
    setenv("SNUG_CACHE", path_of(f, "cache"), 1);
    setenv("SNUG_RATES", SNUG_SOURCE_DIR "/tests/golden/rates.json", 1);
    setenv("OMP_WAIT_POLICY", "passive", 0); /* for the programs that a test starts */
    for (const int *number = (const int[]){SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU, 0}; *number; number++)
        signal(*number, SIG_DFL); /* nohup or a shell may have this process ignore some */
    assert_int_equal(snug_context_create(&f->ctx), SNUG_OK);
    snug_context_set_log(f->ctx, keep_log, f, SNUG_LOG_DEBUG);
    write_model(f, "model", 0.1, 32, 2, VOCABULARY);
    write_model(f, "wide", 0.1, 32, 2, WIDE_VOCABULARY);
    write_data(f, "train.csv", FORM_SINGLE, TRAIN_ROWS, 1);
    write_data(f, "dev.csv", FORM_SINGLE, EVAL_ROWS, 2);
    write_data(f, "train.txt", FORM_TEXT, TRAIN_ROWS, 1);
    write_data(f, "dev.txt", FORM_TEXT, EVAL_ROWS, 2);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    assert_int_equal(snug_folder_remove(f->ctx, NULL, f->folder), SNUG_OK);
    for (size_t i = 0; i < f->given_count; i++) {
        snug_train_result_destroy(f->given[i].result);
        snug_metrics_destroy(f->given[i].metrics);
    }
    free(f->given);
    snug_context_destroy(f->ctx);
    free(f);
    return 0;
}

static inline void ok(const struct fixture *f, snug_status status) {
    if (status != SNUG_OK) fail_msg("status %d: %s", status, snug_error_message(f->ctx));
}

/* A call that got these words failed with this status, and a message that contains part. */
static inline void assert_failed(const struct fixture *f, const char *words, snug_status found, snug_status expected,
                                 const char *part) {
    if (found != expected || !strstr(snug_error_message(f->ctx), part))
        fail_msg("%s: %d: %s", words, (int)found, snug_error_message(f->ctx));
}

/* ---- arguments ------------------------------------------------------------------------------------------------ */

/* The common arguments of the trainings: the tiny model from scratch on train.csv, fast steps. */
#define TINY_TRAINING                                                                                                  \
    "config_name=@model tokenizer_name=@model train_file=@train.csv per_device_train_batch_size=8 num_train_epochs=2 " \
    "learning_rate=1e-3 threads=1 save_strategy=no logging_steps=2"

static inline void set_args(struct fixture *f, snug_args *args, const char *words) {
    set_words(f->ctx, args, f->folder, words);
}

/* TINY_TRAINING, then words, which may be NULL. */
static inline snug_args *training_args(struct fixture *f, const char *words) {
    snug_args *args;
    assert_int_equal(snug_args_create(f->ctx, &args), SNUG_OK);
    set_args(f, args, TINY_TRAINING);
    if (words) set_args(f, args, words);
    return args;
}

static inline snug_args *plain_args(struct fixture *f, const char *words) {
    snug_args *args;
    assert_int_equal(snug_args_create(f->ctx, &args), SNUG_OK);
    set_args(f, args, words);
    return args;
}

/* Stops the run once it has done this many steps; 0: never. As with a signal, the request is permanent. */
struct stopper {
    int64_t after, step;
};
/* The words of a training on a GPU that lacks bf16: in fp16, or in fp32 where weights are in bf16, which fp16 does not
   take. */
static inline void without_bf16(char *words) {
    const bool weights = strstr(words, "dtype=bfloat16");
    for (char *at; (at = strstr(words, "bf16="));) memcpy(at, weights ? "tf32=" : "fp16=", 5);
    for (char *at; (at = strstr(words, "tf32="));) memset(at, ' ', strcspn(at, " "));
}

static void count_step(void *user, const snug_event *event) {
    struct stopper *stopper = user;
    if (event->kind == SNUG_EVENT_STEP) stopper->step = event->step;
}
static bool stop_after(void *user) {
    const struct stopper *stopper = user;
    return stopper->after > 0 && stopper->step >= stopper->after;
}

/* Remembers a result until the fixture is closed. */
static inline void keep(struct fixture *f, snug_train_result *result, snug_metrics *metrics) {
    f->given = realloc(f->given, (f->given_count + 1) * sizeof *f->given);
    assert_non_null(f->given);
    f->given[f->given_count++] = (struct given){result, metrics};
}

/* snug_train() and snug_evaluate() with the result as a value; out may be NULL. */
static inline snug_status train_args(struct fixture *f, snug_args *args, const snug_callbacks *callbacks,
                                     snug_train_result *out) {
    snug_train_result *result;
    if (!out) return snug_train(args, callbacks, NULL);
    const snug_status status = snug_train(args, callbacks, &result);
    assert_int_equal(status == SNUG_OK, result != NULL);
    *out = result ? *result : (snug_train_result){0};
    keep(f, result, NULL);
    return status;
}
static inline snug_status evaluate_args(struct fixture *f, snug_args *args, const snug_callbacks *callbacks,
                                        snug_metrics *out) {
    snug_metrics *metrics;
    const snug_status status = snug_evaluate(args, callbacks, &metrics);
    assert_int_equal(status == SNUG_OK, metrics != NULL);
    *out = metrics ? *metrics : (snug_metrics){0};
    keep(f, NULL, metrics);
    return status;
}

/* Trains TINY_TRAINING with words into output; stops after this many steps if stop is not 0. */
static inline snug_status try_train(struct fixture *f, const char *output, const char *words, int stop,
                                    snug_train_result *result) {
    snug_args *args = training_args(f, words);
    struct stopper stopper = {stop, 0};
    const snug_callbacks callbacks = {.user = &stopper, .on_event = count_step, .should_stop = stop_after};
    assert_int_equal(snug_args_set(args, "output_dir", path_of(f, "%s", output)), SNUG_OK);
    const snug_status status = train_args(f, args, &callbacks, result);
    snug_args_destroy(args);
    return status;
}

static inline snug_train_result train(struct fixture *f, const char *output, const char *words) {
    snug_train_result result;
    if (try_train(f, output, words, 0, &result) != SNUG_OK) fail_msg("%s: %s", output, snug_error_message(f->ctx));
    return result;
}

/* ---- a disk that fails ------------------------------------------------------------------------------------------- */

enum { BROKEN_STEP = 2 };
struct breaker {
    const struct fixture *f;
    bool reads;
    int64_t steps;
};

/* From the end of step BROKEN_STEP on, the offload file in folder `disk` cannot be read, or not be written. */
static inline void break_disk(void *user, const snug_event *event) {
    struct breaker *breaker = user;
    if (event->kind != SNUG_EVENT_STEP) return;
    breaker->steps = event->step;
    if (event->step != BROKEN_STEP) return;
    const char *folder = path_of(breaker->f, "disk/");
    const int broken = breaker->reads ? open("/dev/null", O_WRONLY) : open("/dev/full", O_RDWR);
    int found = 0;
    assert_true(broken >= 0);
    for (int fd = 0; fd < broken; fd++) {
        char link[64], path[PATH_MAX] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, path, sizeof path - 1) < 0 || strncmp(path, folder, strlen(folder)) != 0) continue;
        assert_int_equal(dup2(broken, fd), fd);
        found++;
    }
    assert_int_equal(found, 1);
    close(broken);
}

/* No step follows one whose copies failed, and the error names the file. */
static inline void expect_broken_disk(struct fixture *f, const char *words) {
    for (int reads = 0; reads < 2; reads++) {
        snug_args *args = training_args(f, words);
        struct breaker breaker = {f, reads, 0};
        const snug_callbacks callbacks = {.user = &breaker, .on_event = break_disk};
        set_args(f, args, "offload_dir=@disk output_dir=@broken");
        assert_int_equal(snug_train(args, &callbacks, NULL), SNUG_E_IO);
        assert_contains(snug_error_message(f->ctx), reads ? "disk cannot be read back: " : "disk cannot be written: ");
        if (breaker.steps != BROKEN_STEP) fail_msg("%s: step %d was done", words, (int)breaker.steps);
        snug_args_destroy(args);
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "broken")), SNUG_OK);
    }
}

/* Runs build/snug with these arguments; returns its peak resident bytes, from the system's accounting. */
static inline int64_t peak_of(const struct fixture *f, const char *output, char *const arguments[]) {
    int status;
    struct rusage usage;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen(output, "w", stdout) || !freopen(path_of(f, "stderr"), "w", stderr)) _exit(126);
        execv(SNUG_BINARY_DIR "/snug", arguments);
        _exit(127);
    }
    while (wait4(child, &status, 0, &usage) < 0) assert_int_equal(errno, EINTR);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("%s", read_text(f, path_of(f, "stderr"), NULL));
    return (int64_t)usage.ru_maxrss * 1024;
}

struct trained {
    int64_t planned, measured, peak; /* total bytes; measured by the program, peak by the system */
};

/* Trains 29 M parameters (write_medium()) with evaluation and checkpoints; more: further arguments, then NULL. */
static inline struct trained train_medium(const struct fixture *f, const char *const more[]) {
    char model[512], train_file[512], dev_file[512], out[512];
    const char *arguments[40] = {
        "snug", "train",           "--json",   "--config_name",     model,    "--tokenizer_name",
        model,  "--train_file",    train_file, "--validation_file", dev_file, "--output_dir",
        out,    "--eval_strategy", "steps",    "--eval_steps",      "2",      "--save_steps",
        "2",    "--threads",       "2"};
    int count = 0;
    while (arguments[count]) count++;
    for (int i = 0; more[i]; i++) {
        assert_true(count < 39);
        arguments[count++] = more[i];
    }
    snprintf(model, sizeof model, "%s", path_of(f, "medium"));
    snprintf(train_file, sizeof train_file, "%s", path_of(f, "train.csv"));
    snprintf(dev_file, sizeof dev_file, "%s", path_of(f, "dev.csv"));
    snprintf(out, sizeof out, "%s", path_of(f, "out"));
    struct trained t = {.peak = peak_of(f, path_of(f, "result.json"), (char *const *)(uintptr_t)arguments)};
    json_t *result = read_json(f, path_of(f, "result.json"));
    const json_t *total = json_object_get(json_object_get(result, "memory"), "total");
    t.planned = json_integer_value(json_object_get(total, "planned"));
    t.measured = json_integer_value(json_object_get(total, "measured"));
    print_message("%s %s: predicted %.1f MiB, peak %.1f MiB (%+.2f %%)\n", more[0], more[1] ? more[1] : "",
                  (double)t.planned / 0x1p20, (double)t.peak / 0x1p20, 100 * ((double)t.peak / (double)t.planned - 1));
    json_decref(result);
    return t;
}

/* Weights of more than a chunk, which ranks divide, and not at the end of a row. */
static inline void write_cut(const struct fixture *f, int layers) {
    write_model(f, "cut", 0.1, 160, layers, VOCABULARY);
}

static inline void write_medium(const struct fixture *f) { write_model(f, "medium", 0.1, 512, 4, 30522); }

static inline double metric_of(const snug_metrics *metrics, const char *name) {
    for (size_t i = 0; i < metrics->count; i++)
        if (strcmp(metrics->items[i].name, name) == 0) return metrics->items[i].value;
    fail_msg("there is no metric %s", name);
    return 0;
}

/* The loss of an evaluation. */
static inline double eval_loss_of(struct fixture *f, const char *words) {
    snug_args *args = plain_args(f, words);
    snug_metrics metrics;
    if (evaluate_args(f, args, NULL, &metrics) != SNUG_OK) fail_msg("%s: %s", words, snug_error_message(f->ctx));
    snug_args_destroy(args);
    return metric_of(&metrics, "eval_loss");
}

static inline void run_merge(struct fixture *f, const char *words) {
    snug_args *args = plain_args(f, words);
    if (snug_merge(args) != SNUG_OK) fail_msg("%s: %s", words, snug_error_message(f->ctx));
    snug_args_destroy(args);
}

static inline bool exists(const char *path) { return snug_file_exists(NULL, path) || snug_folder_exists(path); }

/* ---- comparing trainings -------------------------------------------------------------------------------------- */

static inline bool is_clock(const char *key) { return strstr(key, "_runtime") || strstr(key, "_per_second"); }

/* log_history without the values that depend on a clock. */
static inline json_t *history_of(const struct fixture *f, const char *output) {
    json_t *state = read_json(f, path_of(f, "%s/trainer_state.json", output)),
           *history = json_incref(json_object_get(state, "log_history")), *entry, *value;
    const char *key;
    size_t i;
    void *next;
    assert_true(json_is_array(history) && json_array_size(history) > 0);
    /* The estimated work is that of the program, which on several ranks is another one. */
    json_array_foreach(history, i, entry)
        json_object_foreach_safe(entry, next, key, value) if (is_clock(key) || strcmp(key, "total_flos") == 0)
            json_object_del(entry, key);
    json_decref(state);
    return history;
}

/* The losses of a run in out/ are these, within a part `most` of them. */
static inline void check_losses(const struct fixture *f, const json_t *losses, double most) {
    json_t *history = history_of(f, "out"), *entry;
    size_t i, seen = 0;
    json_array_foreach(history, i, entry) {
        const json_t *loss = json_object_get(entry, "loss");
        if (!loss) continue;
        const double want = json_number_value(json_array_get(losses, seen++)), got = json_number_value(loss);
        if (fabs(got / want - 1) > most) fail_msg("step %zu: the loss is %.9g, not %.9g", seen, got, want);
    }
    assert_int_equal(seen, json_array_size(losses));
    json_decref(history);
}

static inline void assert_same_history(const struct fixture *f, const char *a, const char *b) {
    json_t *x = history_of(f, a), *y = history_of(f, b);
    assert_int_equal(json_array_size(x), json_array_size(y));
    for (size_t i = 0; i < json_array_size(x); i++) {
        const json_t *p = json_array_get(x, i), *q = json_array_get(y, i);
        if (json_equal(p, q)) continue;
        char *one = json_dumps(p, JSON_COMPACT), *two = json_dumps(q, JSON_COMPACT);
        fail_msg("%s logged %s, %s logged %s", a, one, b, two);
    }
    json_decref(x);
    json_decref(y);
}

static inline void assert_same_in_both(const struct fixture *f, const char *a, const char *b, const char *file) {
    assert_same_file(f, path_of(f, "%s/%s", a, file), path_of(f, "%s/%s", b, file));
}

/* Two trainings ended with the same bits and the same log. */
static inline void assert_same_run(const struct fixture *f, const char *a, const char *b) {
    assert_same_in_both(f, a, b, "model.safetensors");
    assert_same_history(f, a, b);
}

#endif
