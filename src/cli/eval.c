/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "cli.h"

/* As in eval_results.json. */
static json_t *confusion_json(const snug_metrics *metrics) {
    json_t *object = json_object(), *labels = json_array(), *counts = json_array();
    for (size_t i = 0; i < metrics->classes; i++) {
        json_t *row = json_array();
        for (size_t k = 0; k < metrics->classes; k++)
            cli_append(&row, json_integer(metrics->confusion[i * metrics->classes + k]));
        cli_append(&labels, cli_string(metrics->class_names[i]));
        cli_append(&counts, row);
    }
    cli_add(&object, "labels", labels);
    cli_add(&object, "counts", counts);
    return object;
}

static snug_status put_confusion(struct cli *cli, const snug_metrics *metrics) {
    enum { MOST = 20 };
    char count[32];
    snug_status status = SNUG_OK;
    cli_put(cli, "confusion matrix: a line for each class, a column for each predicted class");
    if (metrics->classes > MOST) return cli_put(cli, "; too many to print: see --json or --output_dir\n");
    cli_put(cli, "\n");
    for (size_t i = 0; i < metrics->classes; i++) {
        for (size_t k = 0; k < metrics->classes; k++) {
            snprintf(count, sizeof count, "%7lld ", (long long)metrics->confusion[i * metrics->classes + k]);
            cli_put(cli, count);
        }
        cli_put(cli, " ");
        cli_put_name(cli, metrics->class_names[i]);
        status = cli_put(cli, "\n");
    }
    return status;
}

/* Lines of figures are read by programs: it is asked for. */
static bool wants_confusion(const struct cli *cli, const snug_metrics *metrics) {
    return metrics->classes && cli_argument_is(cli, "class_metrics", "True");
}

static snug_status put_metrics(struct cli *cli, const snug_metrics *metrics) {
    if (cli->json) {
        json_t *object = json_object();
        cli_add_metrics(&object, metrics);
        if (metrics->classes) cli_add(&object, "confusion_matrix", confusion_json(metrics));
        return cli_put_result(cli, object, 15);
    }
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < metrics->count; i++) {
        char value[64];
        snprintf(value, sizeof value, " = %.10g\n", metrics->items[i].value);
        cli_put_name(cli, metrics->items[i].name);
        status = cli_put(cli, value);
    }
    return wants_confusion(cli, metrics) ? put_confusion(cli, metrics) : status;
}

static int evaluate(int argc, char **argv) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code) && !cli_launch(&cli, argc, argv, &code)) {
        cli_catch_signals(&cli);
        snug_metrics *metrics;
        snug_status status = snug_evaluate(cli.args, &cli.callbacks, &metrics);
        progress_end(&cli.progress);
        if (status == SNUG_OK && snug_args_rank(cli.args) == 0) status = put_metrics(&cli, metrics);
        snug_metrics_destroy(metrics);
        code = cli_finish(&cli, status);
        if (status != SNUG_OK) snug_end_ranks(cli.args, code);
    }
    cli_close(&cli);
    return code;
}

int command_eval(int argc, char **argv) { return cli_name_model(argc, argv, evaluate); }
