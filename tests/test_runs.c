/* SPDX-License-Identifier: Apache-2.0 */
/* snug report: what a training wrote becomes one well-formed page that loads nothing, whatever the folders' names and
   files contain. */
#include <limits.h>
#include <math.h>

#include "measure/runs.h"
#include "program.h"

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

static void test_page_of_a_training(void **state) {
    struct fixture *f = *state;
    free(run_well(f, TRAIN "--output_dir a --save_strategy no"));
    free(run_well(f, TRAIN "--output_dir b --save_strategy no --learning_rate 1e-3"));
    char *html = page_of(f, "a b");
    static const char *const parts[] = {
        "<h1>2 training runs</h1>",
        "<figcaption>loss</figcaption>",
        "<figcaption>eval_accuracy</figcaption>",
        "<figcaption>learning_rate</figcaption>",
        "<figcaption>grad_norm</figcaption>",
        "<figcaption>samples_per_second</figcaption>",
        ": step 8 of 8",
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
    for (char *at = html; (at = strstr(at, "http://")); at++)
        assert_true(strncmp(at, "http://www.w3.org/", strlen("http://www.w3.org/")) == 0);
    free(html);
    check_memory(f);
}

/* Before its end a run has checkpoints alone; with --offload, buffers live across the end of a step. */
static void test_unfinished_and_offloaded(void **state) {
    struct fixture *f = *state;
    free(run_well(f, TRAIN "--output_dir c --save_steps 2 --offload optimizer"));
    char *html = page_of(f, "c");
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
    expect(html, ": step 8 of 8");
    expect(html, "The folder has no training_args.json.");
    expect(html, "The folder has no all_results.json");
    expect(html, "which snug train writes when it ends");
    expect(html, "Unknown: the run has not ended");
    free(html);
    free(page_of(f, "c/checkpoint-4"));
}

/* ---- foreign files --------------------------------------------------------------------------------------------- */

static void test_hostile_names(void **state) {
    struct fixture *f = *state;
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
static void test_curves(void **state) {
    struct fixture *f = *state;
    make_folder(f, "odd", "trainer_state.json",
                "{\"log_history\": [{\"step\": 5, \"loss\": null, \"note\": \"text\"}, {\"step\": 6, \"once\": 3}, "
                "{\"step\": 7, \"same\": 0}, {\"step\": 8, \"same\": 0}, {\"step\": 8, \"gap\": 1}, {\"step\": 9, "
                "\"gap\": null}, {\"step\": 10, \"gap\": 1e300}, {\"step\": 8, \"eval_runtime\": 4, "
                "\"eval_samples_per_second\": 3, \"total_flos\": 9}]}");
    char *html = page_of(f, "odd");
    expect(html, "<figcaption>loss</figcaption><p>No value is finite.</p>");
    expect(html, "<figcaption>once</figcaption>");
    expect(html, "step 6: 3, odd</title>");
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
    strcpy(end, "}]}");
    make_folder(f, "many", "trainer_state.json", long_log);
    free(long_log);
    html = page_of(f, "many");
    expect(html, "20 more metrics are in trainer_state.json");
    free(html);
    html = page_of(f, "odd many"); /* a quantity of one run alone */
    expect(html, "<figcaption>once</figcaption>");
    expect(html, "<figcaption>eval_0</figcaption>");
    expect(html, "step 1: 0, many</title>");
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

static void test_damaged_files(void **state) {
    struct fixture *f = *state;
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
    make_folder(f, "whole", "run_report.json",
                "{\"seconds\": {\"training\": 2}, \"memory\": {" OPS "," MEMORY ", \"arena\": 8}}");
    html = page_of(f, "whole");
    expect(html, "The operations were not timed");
    free(html);
}

/* More operations than the picture has columns: the peak of one of them is kept. */
static void test_many_operations(void **state) {
    enum { OPERATIONS = 3000 };
    struct fixture *f = *state;
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
static void test_many_runs(void **state) {
    struct fixture *f = *state;
    char words[64] = "";
    for (int i = 0; i < 9; i++) {
        char name[8], text[64];
        snprintf(name, sizeof name, "r%d", i);
        snprintf(text, sizeof text, "{\"log_history\": [{\"step\": %d, \"loss\": 1}]}", i);
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

static void test_usage(void **state) {
    struct fixture *f = *state;
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

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_page_of_a_training), TEST(test_unfinished_and_offloaded), TEST(test_hostile_names), TEST(test_curves),
        TEST(test_damaged_files),      TEST(test_many_operations),          TEST(test_many_runs),     TEST(test_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
