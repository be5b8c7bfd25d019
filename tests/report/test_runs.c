/* SPDX-License-Identifier: Apache-2.0 */
/* snug report: what a training wrote becomes one well-formed page that loads nothing, whatever the folders' names and
   files contain. */
#include <limits.h>
#include <math.h>

#include "inspect/runs.h"
#include "program.h"

#define FIXTURE struct fixture *f, set_up, tear_down

/* The page of these folders of the fixture, checked as XML: every tag is closed, every name escaped. */
static char *page_of(const struct fixture *f, const char *words) {
    char command[1024], line[256];
    snprintf(command, sizeof command, "report %s", words);
    char *html = run_well(f, command);
    snprintf(command, sizeof command,
             "python3 -c 'import sys, xml.etree.ElementTree as e; e.parse(sys.argv[1])' '%s' 2>&1",
             path_of(f, "stdout"));
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    *line = '\0';
    for (char last[256]; fgets(last, sizeof last, pipe);) memcpy(line, last, sizeof line);
    if (pclose(pipe) != 0) fail_msg("snug report %s: %s", words, line);
    return html;
}

static void expect_refused(const struct fixture *f, const char *words, int code, const char *says) {
    char command[1024];
    snprintf(command, sizeof command, "report %s", words);
    const int found = run(f, command);
    char *error = output_of(f, "stderr"), *out = output_of(f, "stdout");
    if (found != code || !strstr(error, says)) fail_msg("snug %s: exit code %d: %s", command, found, error);
    assert_string_equal(out, "");
    free(error);
    free(out);
}

static void make_folder(const struct fixture *f, const char *name, const char *file, const char *text) {
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "%s", name)), SNUG_OK);
    write_bytes(path_of(f, "%s/%s", name, file), text, strlen(text));
}

/* ---- a training ------------------------------------------------------------------------------------------------ */

#define TRAIN                                                                                                          \
    "train --config_name model --tokenizer_name model --train_file train.csv --validation_file dev.csv "               \
    "--eval_strategy steps --eval_steps 4 --logging_steps 1 --max_steps 8 --threads 1 --log_level error "

static void expect(const char *html, const char *part) {
    if (!strstr(html, part)) fail_msg("the page does not contain %s", part);
}

static void expect_none(const char *html, const char *part) {
    const char *at = strstr(html, part);
    if (at) fail_msg("the page contains %.60s", at);
}

/* The figures of run_report.json are the plan's: the classes of a step at its peak fit the arena, and the resident ones
   are those that train_results.json has. */
static void check_memory(struct fixture *f) {
    snug_runs *runs;
    const char *folder = path_of(f, "a");
    if (snug_runs_create(f->ctx, &folder, 1, &runs) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    const struct snug_history *run = &runs->items[0];
    const struct snug_step_memory *memory = &run->memory;
    assert_true(memory->ops > 20);
    assert_true(memory->peak_bytes > 0 && memory->peak_bytes <= memory->arena);
    assert_true(memory->peak_bytes > memory->arena * 9 / 10);
    for (size_t i = 0; i < run->figure_count; i++)
        for (int c = SNUG_MEMORY_WEIGHTS; c <= SNUG_MEMORY_OPTIMIZER; c++)
            if (strcmp(run->figures[i].name, snug_memory_class_name((snug_memory_class)c)) == 0)
                assert_int_equal(run->figures[i].planned, memory->resident[c]);
    assert_non_null(memory->live[SNUG_MEMORY_ACTIVATIONS]);
    double operations = 0;
    for (size_t i = 0; i < run->operation_count; i++) operations += run->operations[i].seconds;
    assert_true(operations > 0 && operations <= run->training);
    for (size_t i = 1; i < run->operation_count; i++)
        assert_true(run->operations[i].seconds <= run->operations[i - 1].seconds);
    snug_runs_destroy(runs);
}

FIXTURE_TEST(test_page_of_a_training) {
    free(run_well(f, TRAIN "--output_dir a --save_strategy no"));
    free(run_well(f, TRAIN "--output_dir b --save_strategy no --learning_rate 1e-3"));
    char *html = page_of(f, "a b");
    static const char *const parts[] = {
        "<h1>2 training runs</h1>",
        "<figcaption>loss</figcaption>",
        "<figcaption>eval_loss</figcaption>",
        "<figcaption>learning_rate</figcaption>",
        "<figcaption>grad_norm<span class=\"soft\">, L2 norm before clipping</span></figcaption>",
        "<figcaption>samples_per_second<span class=\"soft\">, samples/s</span></figcaption>",
        "<p class=\"axis-name\">optimizer step</p>",
        "<td>in <strong>a</strong></td><td>in <strong>b</strong></td>",
        "<td>8 of 8, ",
        "<td class=\"name\">eval_<wbr/>accuracy</td><td>",
        "<td class=\"name\">best evaluation</td><td>eval_<wbr/>accuracy ",
        "<td class=\"name\">train_<wbr/>loss</td><td>0.",
        " samples/s</td>",
        "<h3>Confusion matrix, in rows of the last evaluation</h3>",
        "<th class=\"predicted\">positive</th>",
        ", predicted as such: ",
        "class=\"curve r0 d0\"",
        "class=\"curve r1 d0\"",
        "<strong>Peak: ",
        "<title>activations</title>",
        "<span class=\"x\" style=\"left:",
        ">forward</span><span class=\"x low\" style=\"left:",
        ">head</span><span class=\"x\" style=\"left:",
        ">backward</span><span class=\"x low\" style=\"left:",
        ">clip</span><span class=\"x\" style=\"left:",
        ">update</span>",
        "evaluating and saving",
        "linear_dw</span>",
        "between operations",
        "<td>optimizer</td>",
        "<tr class=\"differs\"><td class=\"name\">arguments.<wbr/>learning_<wbr/>rate</td><td>5e-5</td><td>0.001</td>",
        "<tr class=\"same\"><td class=\"name\">arguments.<wbr/>seed</td><td>42</td><td>42</td></tr>",
        "<tr class=\"differs\"><td class=\"name\">train_<wbr/>loss</td>",
        "<td class=\"name\">peak_<wbr/>rss_<wbr/>bytes</td><td>",
        "prefers-color-scheme:dark",
        "default-src &#39;none&#39;",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) expect(html, parts[i]);
    /* Nothing is loaded: the only addresses are the names of the two languages. */
    static const char *const loads[] = {
        "<script", "<link", "<img", "<iframe", "src=", "href=", "url(", "@import", "https:"};
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) expect_none(html, loads[i]);
    for (char *link = html; (link = strstr(link, "http://")); link++)
        assert_true(strncmp(link, "http://www.w3.org/", strlen("http://www.w3.org/")) == 0);
    /* Results, then curves, then memory, then settings. */
    static const char *const order[] = {"<h2>Results</h2>",          "<h3>Confusion matrix", "<h2>Over steps</h2>",
                                        "<h3>Memory of a step</h3>", "<h3>Where the time",   "<h2>All figures</h2>",
                                        "<h2>Settings</h2>"};
    const char *at = html;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (!(at = strstr(at, order[i]))) fail_msg("%s is not after what it follows", order[i]);
    free(html);
    check_memory(f);
}

/* Before its end a run has checkpoints alone; with --offload, buffers live across the end of a step. */
FIXTURE_TEST(test_unfinished_and_offloaded) {
    free(run_well(f, TRAIN "--output_dir c --save_steps 2 --offload optimizer --metric_for_best_model loss"));
    char *html = page_of(f, "c");
    expect(html, "<td>eval_<wbr/>loss 0.");
    expect(html, "<strong>Peak: ");
    free(html);
    unlink(path_of(f, "c/trainer_state.json"));
    unlink(path_of(f, "c/run_report.json"));
    unlink(path_of(f, "c/all_results.json"));
    unlink(path_of(f, "c/training_args.json"));
    static const char *const others[] = {"c/checkpoint-9x", "c/checkpoint-", "c/checkpoint-1234567890123456789"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(snug_folder_create(f->ctx, path_of(f, "%s", others[i])), SNUG_OK);
    html = page_of(f, "c");
    expect(html, "<td>8 of 8, ");
    expect(html, "<td>not trained to its end; the newest checkpoint is checkpoint-8</td>");
    expect(html, "<td class=\"name\">eval_<wbr/>loss</td><td>0."); /* the last one logged */
    expect(html, "<td class=\"name\">train_<wbr/>loss</td><td>-</td>");
    expect(html, "<td>best_<wbr/>metric 0.");
    expect(html, ", in c/checkpoint-");
    expect_none(html, "Confusion matrix");
    expect(html, "The folder has no training_args.json.");
    expect(html, "The folder has no all_results.json");
    expect(html, "which snug train writes when it ends");
    expect(html, "Unknown: the run has not ended");
    free(html);
    free(page_of(f, "c/checkpoint-4"));
}

/* ---- foreign files --------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_hostile_names) {
    char name[64]; /* with U+202E, in bytes, because the literal would mislead a reader */
    snprintf(name, sizeof name, "<script>alert('1')&\"\x1b[31m%c%c%c\xff", 0xe2, 0x80, 0xae);
    make_folder(f, name, "trainer_state.json",
                "{\"global_step\": 2, \"max_steps\": 2, \"log_history\": [{\"step\": 1, \"</style><b>\": 1}, "
                "{\"step\": 2, \"</style><b>\": 2}]}");
    make_folder(f, name, "training_args.json", "{\"<i>\": \"</td><script>\", \"empty\": {}}");
    make_folder(
        f, name, "all_results.json",
        "{\"x<y\": 1.5, \"memory\": {\"<u>\": {\"planned\": -7, \"measured\": \"no\"}, \"v\": {\"planned\": 1048576, "
        "\"measured\": \"no\"}}, \"epoch\": 2, \"text\": \"\"}");
    char *html = page_of(f, name);
    expect(html, "&lt;script&gt;alert(&#39;1&#39;)&amp;&quot;\\x1b[31m\\u202e\\xff");
    expect(html, "<figcaption>&lt;/style&gt;&lt;b&gt;</figcaption>");
    expect(html, "<td>&lt;/td&gt;&lt;script&gt;</td>");
    expect(html, "<td class=\"name\">empty</td><td>{}</td>");
    expect(html, "<td>&lt;u&gt;</td><td class=\"n\">-</td>");
    expect(html, "<td>v</td><td class=\"n\">1.0</td><td class=\"n\">-</td><td></td>");
    expect_none(html, "<script");
    expect_none(html, "<b>");
    free(html);
}

/* Values that are not finite, one value alone, all alike, very many, and many quantities. */
FIXTURE_TEST(test_curves) {
    make_folder(f, "odd", "trainer_state.json",
                "{\"log_history\": [{\"step\": 5, \"loss\": null, \"note\": \"text\"}, {\"step\": 6, \"once\": 3}, "
                "{\"step\": 7, \"same\": 0}, {\"step\": 8, \"same\": 0}, {\"step\": 8, \"gap\": 1}, {\"step\": 9, "
                "\"gap\": null}, {\"step\": 10, \"gap\": 1e300}, {\"step\": 8, \"eval_runtime\": 4, "
                "\"eval_samples_per_second\": 3, \"total_flos\": 9}]}");
    char *html = page_of(f, "odd");
    expect(html, "<h3>Logged once, or always the same</h3>");
    expect(html, "<td class=\"name\">loss</td><td>never finite, in 1 values</td>");
    expect(html, "<td class=\"name\">once</td><td>3, at step 6</td>");
    expect(html, "<td class=\"name\">same</td><td>0, in all of 2 values</td>");
    expect(html, "<figcaption>gap</figcaption>");
    expect(html, "step 8: 1, odd</title>");
    expect(html, "<td>not in this folder</td>");
    expect(html, "<td>0 of 0</td>");
    expect_none(html, "<figcaption>loss</figcaption>");
    expect_none(html, "<figcaption>once</figcaption>");
    expect_none(html, "<figcaption>same</figcaption>");
    expect_none(html, "eval_runtime");
    expect_none(html, "nan");
    expect_none(html, "inf");
    free(html);

    char *long_log = malloc(1 << 20), *end = long_log;
    end += sprintf(end, "{\"log_history\": [{\"step\": 0, \"loss\": 1}");
    for (int i = 1; i < 5000; i++)
        end += sprintf(end, ",{\"step\":%d,\"loss\":%g,\"gap\":null}", i, i == 2500 ? 9.5 : i == 4000 ? 0 : 1.0 / i);
    strcpy(end, "]}");
    make_folder(f, "long", "trainer_state.json", long_log);
    html = page_of(f, "long");
    assert_true(strlen(html) < 100000); /* 2 points for each of 1000 groups */
    expect(html, "L499");               /* the peak of one step is drawn */
    free(html);
    end = long_log + sprintf(long_log, "{\"log_history\": [{\"step\": 1");
    for (int i = 0; i < 60; i++) end += sprintf(end, ",\"eval_%d\":%d", i, i);
    end += sprintf(end, ", \"eval_constant\": 7}, {\"step\": 2, \"eval_constant\": 7");
    for (int i = 0; i < 60; i++) end += sprintf(end, ",\"eval_%d\":%d", i, i + 1);
    strcpy(end, "}]}");
    make_folder(f, "many", "trainer_state.json", long_log);
    free(long_log);
    html = page_of(f, "many");
    expect(html, "20 more metrics are in trainer_state.json");
    free(html);
    html = page_of(f, "odd many"); /* a quantity of one run alone */
    expect(html, "<td class=\"name\">once</td><td>3, at step 6</td><td>-</td>");
    expect(html, "<figcaption>eval_0</figcaption>");
    expect(html, "step 1: 0, many</title>");
    expect(html, "<td class=\"name\">eval_<wbr/>11</td>"); /* of the results */
    expect_none(html, "<td class=\"name\">eval_<wbr/>12</td>");
    free(html);
    make_folder(f, "none", "trainer_state.json", "{\"log_history\": []}");
    html = page_of(f, "none");
    expect(html, "Nothing was logged yet.");
    free(html);
}

#define MEMORY                                                                                                         \
    "\"resident\": {\"weights\": 4, \"gradients\": 0, \"optimizer\": 0, \"activations\": 0, \"temporary\": 0, "        \
    "\"workspace\": 0, \"function\": 0, \"batch\": 0}"
#define OPS "\"operations\": [\"a\", \"b\"], \"phases\": [\"forward\", \"update\"], \"layers\": [-1, -2]"

/* The better one of several runs is marked, by what is better in that metric. */
FIXTURE_TEST(test_best_of_several) {
    static const char *const runs[] = {
        "\"eval_loss\": 0.5, \"eval_accuracy\": 0.25, \"eval_f1\": 0.5, \"eval_mse\": null",
        "\"eval_loss\": 0.25, \"eval_accuracy\": 0.125, \"eval_f1\": 0.5, \"eval_mse\": 2",
        "\"eval_loss\": 0.75, \"eval_accuracy\": 0.75, \"perplexity\": 4"};
    for (int i = 0; i < 3; i++) {
        char name[8], text[256];
        snprintf(name, sizeof name, "best%d", i);
        snprintf(
            text, sizeof text,
            "{\"best_metric\": %d.5, \"best_global_step\": %s, \"epoch\": 1, \"log_history\": [{\"step\": 1, %s}]}", i,
            i ? "1" : "null", runs[i]);
        make_folder(f, name, "trainer_state.json", text);
    }
    make_folder(f, "best2", "model.safetensors.index.json", "{}");
    char *html = page_of(f, "best0 best1 best2");
    expect(html, "<td>not in this folder</td><td>in <strong>best2</strong></td>");
    expect(html, "eval_<wbr/>loss</td><td>0.5</td><td><strong>0.25</strong></td><td>0.75</td>");
    expect(html, "eval_<wbr/>accuracy</td><td>0.25</td><td>0.125</td><td><strong>0.75</strong></td>");
    expect(html, "eval_<wbr/>f1</td><td>0.5</td><td>0.5</td><td>-</td>");
    expect(html, "eval_<wbr/>mse</td><td>-</td><td>2</td><td>-</td>");
    expect(html, "perplexity</td><td>-</td><td>-</td><td>4</td>");
    expect(html, "<td>best_<wbr/>metric 0.5, not saved</td><td>best_<wbr/>metric 1.5 at step 1, not saved</td>");
    expect(html, "<td>0 of 0, 1 epoch</td>");
    free(html);
    /* run_report.json knows whether it is the model, settings which metric was chosen. */
    make_folder(
        f, "best0", "run_report.json",
        "{\"best\": {\"metric\": \"eval_f1\", \"value\": 0.25, \"step\": 3, \"is_model\": true}, \"memory\": {" OPS
        "," MEMORY ", \"arena\": 8}}");
    make_folder(f, "best1", "training_args.json", "{\"arguments\": {\"metric_for_best_model\": \"f1\"}}");
    html = page_of(f, "best0 best1");
    expect(html, "<td>eval_<wbr/>f1 0.25 at step 3, the model</td><td>f1 1.5 at step 1, not saved</td>");
    free(html);
}

/* A confusion matrix of so many classes, the last one without rows: class i has 100 + i rows that are right. */
static void make_matrix(const struct fixture *f, const char *name, int classes, int mistakes) {
    char *text = malloc(64 + (size_t)classes * (64 + 8 * (size_t)classes)), *end = text;
    end += sprintf(end, "{\"confusion_matrix\": {\"labels\": [");
    for (int i = 0; i < classes; i++) end += sprintf(end, "%s\"<c%d>\"", i ? "," : "", i);
    end += sprintf(end, "], \"counts\": [");
    for (int i = 0; i < classes; i++) {
        end += sprintf(end, "%s[", i ? "," : "");
        for (int k = 0; k < classes; k++)
            end += sprintf(end, "%s%d", k ? "," : "",
                           i == classes - 1                             ? 0
                           : i == k                                     ? 100 + i
                           : k == i + 1 && i < mistakes                 ? i + 1
                           : k == i + 2 && i < mistakes && classes > 50 ? 1
                                                                        : 0);
        end += sprintf(end, "]");
    }
    strcpy(end, "]}}");
    make_folder(f, name, "trainer_state.json", "{\"log_history\": []}");
    make_folder(f, name, "all_results.json", text);
    free(text);
}

FIXTURE_TEST(test_confusion) {
    make_matrix(f, "three", 3, 3);
    char *html = page_of(f, "three");
    expect(html, "<table class=\"matrix\"><tr><th></th><th class=\"soft\" colspan=\"3\">predicted class");
    expect(html, "<th class=\"predicted\">&lt;c1&gt;</th>");
    expect(html,
           "<td class=\"right\" style=\"--share:54%\" title=\"&lt;c0&gt;, predicted as such: 99.0 % of 101\">100</td>");
    expect(html, "title=\"&lt;c0&gt;, predicted as &lt;c1&gt;: 1.0 % of 101\">1</td>");
    expect(html, "<td class=\"n\">99.0 %</td>");
    expect(html, "<td class=\"n\">-</td>"); /* the class without rows */
    expect_none(html, "<c");
    free(html);
    make_matrix(f, "fifty", 50, 3);
    html = page_of(f, "fifty three");
    expect(html, "<table class=\"matrix many\">");
    free(html);
    make_matrix(f, "more", 60, 30); /* the 20 most frequent mistakes: of 30 down to 11 rows */
    html = page_of(f, "more");
    expect_none(html, "class=\"matrix");
    expect(html, "The most frequent mistakes among 60 classes.");
    expect(html, "<th class=\"n\">of the true class</th></tr>\n"
                 "<tr><td>&lt;c29&gt;</td><td>&lt;c30&gt;</td><td class=\"n\">30</td><td class=\"n\">18.8 %</td></tr>");
    expect(html, "<tr><td>&lt;c10&gt;</td><td>&lt;c11&gt;</td><td class=\"n\">11</td>");
    expect_none(html, "<tr><td>&lt;c9&gt;</td>");
    free(html);
    make_matrix(f, "good", 60, 0);
    html = page_of(f, "good");
    expect(html, "<p>There are none.</p>");
    free(html);
    /* What another program writes under this name. */
    static const char *const others[] = {"[[1, 2], [3, 4]]", "{\"labels\": [], \"counts\": []}",
                                         "{\"labels\": [\"a\"]}", "5"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"confusion_matrix\": %s}", others[i]);
        make_folder(f, "three", "all_results.json", text);
        html = page_of(f, "three");
        expect_none(html, "Confusion matrix");
        free(html);
    }
}

#define MATRIX(labels, counts) "{\"confusion_matrix\": {\"labels\": " labels ", \"counts\": " counts "}}"

FIXTURE_TEST(test_damaged_files) {
    static const struct {
        const char *file, *text, *says;
    } cases[] = {
        {"trainer_state.json", "[]", "trainer_state.json"},
        {"trainer_state.json", "{}", "trainer_state.json: log_history is not a list"},
        {"trainer_state.json", "{\"log_history\": [{}]}", "an entry of log_history has no step"},
        {"run_report.json", "{}", "do not match"},
        {"run_report.json", "{\"seconds\": {\"operations\": {\"a\": -1}}}", "not a number of seconds"},
        {"run_report.json", "{\"seconds\": {\"operations\": {\"a\": \"1\"}}}", "not a number of seconds"},
        {"run_report.json", "{\"memory\": {\"operations\": [1], \"phases\": [1], \"layers\": [1]}}", "has no name"},
        {"run_report.json", "{\"memory\": {\"operations\": [-1], \"phases\": [\"b\"], \"layers\": [1]}}",
         "has no name"},
        {"run_report.json", "{\"memory\": {\"operations\": [[\"a\", 9999999]], \"phases\": [\"b\"], \"layers\": [1]}}",
         "do not match"},
        {"run_report.json", "{\"memory\": {\"operations\": [\"a\"], \"phases\": [1], \"layers\": [1]}}", "has no name"},
        {"run_report.json", "{\"memory\": {\"operations\": [\"a\"], \"phases\": [\"b\"], \"layers\": []}}",
         "do not match"},
        {"run_report.json", "{\"memory\": {\"operations\": [\"a\"], \"phases\": [], \"layers\": []}}", "do not match"},
        {"run_report.json", "{\"memory\": {" OPS "}}", "a class is missing"},
        {"run_report.json", "{\"memory\": {" OPS "," MEMORY "}}", "arena is not"},
        {"run_report.json", "{\"memory\": {" OPS "," MEMORY ", \"arena\": 1e9}}", "arena is not"},
        {"run_report.json", "{\"memory\": {" OPS "," MEMORY ", \"arena\": 9000000000000000000}}", "arena is not"},
        {"run_report.json", "{\"memory\": {" OPS "," MEMORY ", \"arena\": 8, \"live\": {\"weights\": [1]}}}",
         "as many figures"},
        {"run_report.json", "{\"memory\": {" OPS "," MEMORY ", \"arena\": 8, \"live\": {\"weights\": [1, -1]}}}",
         "not a number of bytes"},
        {"all_results.json", "7", "all_results.json"},
        {"all_results.json", MATRIX("[\"a\", \"b\"]", "[[1, 2]]"), "a count for each pair of classes"},
        {"all_results.json", MATRIX("[\"a\", \"b\"]", "[[1, 2], [3]]"), "a count for each pair of classes"},
        {"all_results.json", MATRIX("[\"a\", \"b\"]", "[1, 2]"), "a count for each pair of classes"},
        {"all_results.json", MATRIX("[\"a\", \"b\"]", "[[1, 2], [3, -4]]"), "not a number of rows"},
        {"all_results.json", MATRIX("[\"a\", \"b\"]", "[[1, 2], [3, 0.5]]"), "not a number of rows"},
        {"all_results.json", MATRIX("[\"a\", 7]", "[[1, 2], [3, 4]]"), "a label that is not a text"},
        {"training_args.json", "{", "training_args.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[32];
        snprintf(name, sizeof name, "damaged%zu", i);
        make_folder(f, name, "trainer_state.json", "{\"log_history\": []}");
        make_folder(f, name, cases[i].file, cases[i].text);
        expect_refused(f, name, 1, cases[i].says);
    }
    /* The peak: the first of two operations, and a class that lives during the second one only. */
    make_folder(f, "whole", "trainer_state.json", "{\"log_history\": []}");
    make_folder(
        f, "whole", "run_report.json",
        "{\"seconds\": {\"start\": -1, \"training\": 2, \"operations\": {\"b\": 0.5, \"a\": 0.5}}, \"memory\": {" OPS
        "," MEMORY ", \"arena\": 1048576, \"live\": {\"temporary\": [1048572, 7], \"batch\": [0, 1]}}}");
    char *html = page_of(f, "whole");
    expect(html, "<strong>Peak: 1.00 MiB</strong> at operation 1, a in forward, embeddings");
    expect(html, "<span>a</span><i style=\"width:25.00%\"></i>");
    expect(html, "</svg>batch</td><td class=\"n\">0.00</td>");
    free(html);
    make_folder(f, "whole", "run_report.json", /* kinds by number, and values that are repeated */
                "{\"seconds\": {\"training\": 2}, \"memory\": {\"kinds\": [\"a\", \"b\"], \"operations\": [0, [1, 2]], "
                "\"phases\": [[\"forward\", 3]], \"layers\": [0, [-2, 2]], " MEMORY
                ", \"arena\": 1048576, \"live\": {\"temporary\": [1, 1048572, 7]}}}");
    char *short_page = page_of(f, "whole");
    expect(short_page, "<strong>Peak: 1.00 MiB</strong> at operation 2, b in forward, head");
    free(short_page);
    make_folder(f, "whole", "run_report.json",
                "{\"seconds\": {\"training\": 2}, \"memory\": {" OPS "," MEMORY ", \"arena\": 8}}");
    html = page_of(f, "whole");
    expect(html, "The operations were not timed");
    free(html);
}

/* More operations than the picture has columns: the peak of one of them is kept. */
FIXTURE_TEST(test_many_operations) {
    enum { OPERATIONS = 3000 };
    char *text = malloc(OPERATIONS * 48), *end = text;
    end += sprintf(end, "{\"seconds\": {\"training\": 0, \"operations\": {\"a\": 0}}, \"memory\": {" MEMORY
                        ", \"arena\": 1048576, \"operations\": [");
    for (int i = 0; i < OPERATIONS; i++) end += sprintf(end, "%s\"a\"", i ? "," : "");
    end += sprintf(end, "], \"phases\": [");
    for (int i = 0; i < OPERATIONS; i++) end += sprintf(end, "%s\"p\"", i ? "," : "");
    end += sprintf(end, "], \"layers\": [");
    for (int i = 0; i < OPERATIONS; i++) end += sprintf(end, "%s%d", i ? "," : "", i % 12);
    end += sprintf(end, "], \"live\": {\"temporary\": [");
    for (int i = 0; i < OPERATIONS; i++) end += sprintf(end, "%s%d", i ? "," : "", i == 1234 ? 1000000 : 1000);
    strcpy(end, "]}}}");
    make_folder(f, "large", "trainer_state.json", "{\"log_history\": []}");
    make_folder(f, "large", "run_report.json", text);
    free(text);
    char *html = page_of(f, "large");
    expect(html, "at operation 1235, a in p, layer 10");
    expect(html, "0.00 s, 0.0 %");
    assert_true(strlen(html) < 30000); /* operations of the same height are one line */
    free(html);

    const size_t too_many = (1 << 20) + 1; /* more than a report may have */
    text = malloc(2 * too_many + 64);
    end = text + sprintf(text, "{\"memory\": {\"operations\": [0");
    for (size_t i = 1; i < too_many; i++) end = (char *)memcpy(end, ",0", 2) + 2;
    strcpy(end, "]}}");
    make_folder(f, "large", "run_report.json", text);
    free(text);
    expect_refused(f, "large", 1, "do not match");
}

/* More runs than colours, with a setting that differs, and one that no other run has. */
FIXTURE_TEST(test_many_runs) {
    char words[64] = "";
    for (int i = 0; i < 9; i++) {
        char name[8], text[128];
        snprintf(name, sizeof name, "r%d", i);
        snprintf(text, sizeof text, "{\"log_history\": [{\"step\": %d, \"loss\": 1}, {\"step\": 9, \"loss\": 2}]}", i);
        make_folder(f, name, "trainer_state.json", text);
        snprintf(text, sizeof text, "{\"seed\": %d, \"only_%d\": 1}", i, i);
        make_folder(f, name, "training_args.json", text);
        strcat(strcat(words, name), " ");
    }
    char *html = page_of(f, words);
    expect(html, "class=\"curve r0 d1\"");
    expect(html, "<tr class=\"differs\"><td class=\"name\">seed</td><td>0</td><td>1</td>");
    expect(html, "<tr class=\"differs\"><td class=\"name\">only_<wbr/>0</td><td>1</td><td>-</td>");
    expect(html, "<tr class=\"differs\"><td class=\"name\">only_<wbr/>1</td><td>-</td><td>1</td>");
    expect(html, "<p class=\"soft\">Nothing.</p>");
    free(html);
}

FIXTURE_TEST(test_usage) {
    expect_refused(f, "", 2, "no run: name the --output_dir of a training");
    expect_refused(f, "--output x", 2, "--output is not a valid argument");
    expect_refused(f, "nowhere", 1, "nowhere");
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "bare/checkpoint-3")), SNUG_OK);
    expect_refused(f, "model", 1, "is not the --output_dir of a training");
    expect_refused(f, "bare", 1, "is not the --output_dir of a training");
    char words[256] = "";
    for (int i = 0; i < 33; i++) strcat(words, "none ");
    expect_refused(f, words, 1 + 1, "1 to 32 runs, not of 33");
    char *help = run_well(f, "report --help");
    assert_contains(help, "usage: snug report RUN");
    free(help);
    free(run_well(f, "report -h"));
    snug_runs *runs;
    assert_int_equal(snug_runs_create(f->ctx, NULL, 0, &runs), SNUG_E_USAGE);
    assert_int_equal(snug_runs_create(f->ctx, (const char *const[]){"a"}, 0, &runs), SNUG_E_USAGE);
    snug_runs_destroy(NULL);
}

TEST_MAIN(NULL, NULL)
