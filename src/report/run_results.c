/* SPDX-License-Identifier: Apache-2.0 */
/* The results of trainings: where their models are, how good they are, and which classes they mistake. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "metrics/metrics.h"
#include "report/html.h"
#include "report/run_page.h"

enum {
    METRICS_MOST = 12, /* a task with many classes has metrics of each, which are among all figures */
    CLASSES_MOST = 50, /* of a matrix: of more classes the most frequent mistakes are listed */
    UPRIGHT_MOST = 8,  /* classes: of more the columns have their names turned */
    MISTAKES_MOST = 20
};

/* ---- the table ------------------------------------------------------------------------------------------------- */

static void begin_row(FILE *out, const char *name) {
    fputs("<tr><td class=\"name\">", out);
    snug_html_name(out, name);
    fputs("</td>", out);
}

static void print_model(FILE *out, const struct snug_history *run) {
    if (run->has_model) {
        fputs("in <strong>", out);
        snug_html_name(out, run->folder);
        fputs("</strong>", out);
    } else if (*run->checkpoint) {
        fprintf(out, "not trained to its end; the newest checkpoint is %s", run->checkpoint);
    } else {
        fputs("not in this folder", out);
    }
}

static void print_steps(FILE *out, const struct snug_history *run) {
    fprintf(out, "%.10g of %.10g", run->step, run->max_steps);
    if (isfinite(run->epoch)) fprintf(out, ", %.4g epoch%s", run->epoch, run->epoch == 1 ? "" : "s");
}

static void print_best(FILE *out, const struct snug_history *run) {
    const char *chosen = snug_page_value(&run->settings, "arguments.metric_for_best_model");
    if (!isfinite(run->best)) {
        fputs("-", out);
        return;
    }
    snug_html_name(out, run->best_metric ? run->best_metric : chosen ? chosen : "best_metric");
    fprintf(out, " %.4g", run->best);
    if (isfinite(run->best_step)) fprintf(out, " at step %.10g", run->best_step);
    fputs(run->best_is_model ? ", the model" : run->best_checkpoint ? ", in " : ", not saved", out);
    if (!run->best_is_model && run->best_checkpoint) snug_html_name(out, run->best_checkpoint);
}

static void print_figure(FILE *out, const struct snug_history *run, const char *name, const char *format) {
    const char *value = snug_page_value(&run->results, name);
    if (value)
        fprintf(out, format, strtod(value, NULL));
    else
        fputs("-", out);
}

static void print_loss(FILE *out, const struct snug_history *run) { print_figure(out, run, "train_loss", "%.4g"); }
static void print_seconds(FILE *out, const struct snug_history *run) {
    print_figure(out, run, "train_runtime", "%.1f s");
}
static void print_rate(FILE *out, const struct snug_history *run) {
    print_figure(out, run, "train_samples_per_second", "%.1f samples/s");
}
static void print_memory(FILE *out, const struct snug_history *run) {
    print_figure(out, run, "peak_rss_bytes", "%.1f MiB"); /* inspect/runs.c has converted it */
}

static void print_row(FILE *out, const snug_runs *runs, const char *name,
                      void (*print)(FILE *out, const struct snug_history *run)) {
    begin_row(out, name);
    for (size_t i = 0; i < runs->count; i++) {
        fputs("<td>", out);
        print(out, &runs->items[i]);
        fputs("</td>", out);
    }
    fputs("</tr>\n", out);
}

/* A metric of the last evaluation: in the results, or the last one logged of a run that has not ended. NaN: none. */
static double metric_of(const struct snug_history *run, const char *name) {
    const char *value = snug_page_value(&run->results, name);
    const struct snug_series *series = snug_page_series(run, name);
    return value ? strtod(value, NULL) : series ? series->samples[series->count - 1].value : NAN;
}

/* The best of several runs that do not all have the same value; NaN: none. */
static double best_of(const snug_runs *runs, const char *name) {
    double best = NAN;
    bool differ = false;
    for (size_t i = 0; i < runs->count; i++) {
        const double value = metric_of(&runs->items[i], name);
        if (!isfinite(value)) continue;
        differ |= isfinite(best) && value != best;
        const bool better = snug_metric_is_smaller_better(name) ? value < best : value > best;
        if (isnan(best) || better) best = value;
    }
    return differ ? best : NAN;
}

static void print_metric(FILE *out, const snug_runs *runs, const char *name) {
    const double best = best_of(runs, name);
    begin_row(out, name);
    for (size_t i = 0; i < runs->count; i++) {
        const double value = metric_of(&runs->items[i], name);
        if (isnan(value))
            fputs("<td>-</td>", out);
        else
            fprintf(out, value == best ? "<td><strong>%.4g</strong></td>" : "<td>%.4g</td>", value);
    }
    fputs("</tr>\n", out);
}

/* Those of log_history, without figures of time (inspect/runs.c). */
static bool is_metric(const char *name) { return strncmp(name, "eval_", 5) == 0 || strcmp(name, "perplexity") == 0; }

static void print_metrics(FILE *out, const snug_runs *runs) {
    int printed = 0;
    for (size_t run = 0; run < runs->count; run++)
        for (size_t i = 0; i < runs->items[run].series_count && printed < METRICS_MOST; i++) {
            const char *name = runs->items[run].series[i].name;
            bool repeated = false;
            for (size_t k = 0; k < run; k++) repeated |= snug_page_series(&runs->items[k], name) != NULL;
            if (repeated || !is_metric(name)) continue;
            print_metric(out, runs, name);
            printed++;
        }
}

/* ---- mistakes -------------------------------------------------------------------------------------------------- */

static int64_t count_of(const struct snug_confusion *c, int64_t class, int64_t predicted) {
    return c->counts[class * c->classes + predicted];
}

static int64_t rows_of(const struct snug_confusion *c, int64_t class) {
    int64_t rows = 0;
    for (int64_t k = 0; k < c->classes; k++) rows += count_of(c, class, k);
    return rows;
}

static double share_of(int64_t count, int64_t rows) { return rows ? (double)count / (double)rows : 0; }

static void print_count(FILE *out, const struct snug_confusion *c, int64_t class, int64_t predicted, int64_t rows) {
    const int64_t count = count_of(c, class, predicted);
    fprintf(out, "<td class=\"%s\" style=\"--share:%.0f%%\" title=\"", class == predicted ? "right" : "wrong",
            55 * share_of(count, rows)); /* darker, its number could not be read */
    snug_html_text(out, c->labels[class]);
    fputs(class == predicted ? ", predicted as such" : ", predicted as ", out);
    if (class != predicted) snug_html_text(out, c->labels[predicted]);
    fprintf(out, ": %.1f %% of %lld\">%lld</td>", 100 * share_of(count, rows), (long long)rows, (long long)count);
}

static void print_matrix(FILE *out, const struct snug_confusion *c) {
    fprintf(out, "<div class=\"wide\"><table class=\"matrix%s\"><tr><th></th><th class=\"soft\" colspan=\"",
            c->classes > UPRIGHT_MOST ? " many" : "");
    fprintf(out, "%lld\">predicted class →</th><th></th></tr>\n<tr><th class=\"soft\">true class ↓</th>",
            (long long)c->classes);
    for (int64_t k = 0; k < c->classes; k++) {
        fputs("<th class=\"predicted\">", out);
        snug_html_text(out, c->labels[k]);
        fputs("</th>", out);
    }
    fputs("<th class=\"n soft\">recall</th></tr>\n", out);
    for (int64_t i = 0; i < c->classes; i++) {
        const int64_t rows = rows_of(c, i);
        fputs("<tr><th>", out);
        snug_html_text(out, c->labels[i]);
        fputs("</th>", out);
        for (int64_t k = 0; k < c->classes; k++) print_count(out, c, i, k, rows);
        if (rows)
            fprintf(out, "<td class=\"n\">%.1f %%</td></tr>\n", 100 * share_of(count_of(c, i, i), rows));
        else
            fputs("<td class=\"n\">-</td></tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

struct mistake {
    int64_t class, predicted, count;
};

/* The most frequent mistakes, the first of equal ones; their number. */
static int find_mistakes(const struct snug_confusion *c, struct mistake found[static MISTAKES_MOST]) {
    int kept = 0;
    for (int64_t i = 0; i < c->classes; i++)
        for (int64_t k = 0; k < c->classes; k++) {
            const int64_t count = count_of(c, i, k);
            if (i == k || !count || (kept == MISTAKES_MOST && count <= found[kept - 1].count)) continue;
            int at = kept < MISTAKES_MOST ? kept++ : kept - 1;
            for (; at > 0 && found[at - 1].count < count; at--) found[at] = found[at - 1];
            found[at] = (struct mistake){i, k, count};
        }
    return kept;
}

static void print_mistakes(FILE *out, const struct snug_confusion *c) {
    struct mistake found[MISTAKES_MOST];
    const int count = find_mistakes(c, found);
    fprintf(out, "<p class=\"soft\">The most frequent mistakes among %lld classes.</p>\n", (long long)c->classes);
    if (!count) {
        fputs("<p>There are none.</p>\n", out);
        return;
    }
    fputs("<div class=\"wide\"><table><tr><th>true class</th><th>predicted class</th><th class=\"n\">rows</th>"
          "<th class=\"n\">of the true class</th></tr>\n",
          out);
    for (int i = 0; i < count; i++) {
        fputs("<tr><td>", out);
        snug_html_text(out, c->labels[found[i].class]);
        fputs("</td><td>", out);
        snug_html_text(out, c->labels[found[i].predicted]);
        fprintf(out, "</td><td class=\"n\">%lld</td><td class=\"n\">%.1f %%</td></tr>\n", (long long)found[i].count,
                100 * share_of(found[i].count, rows_of(c, found[i].class)));
    }
    fputs("</table></div>\n", out);
}

static void print_confusion(FILE *out, const snug_runs *runs) {
    bool any = false;
    for (size_t i = 0; i < runs->count; i++) {
        const struct snug_history *run = &runs->items[i];
        if (!run->confusion.classes) continue;
        if (!any) fputs("<h3>Confusion matrix, in rows of the last evaluation</h3>\n<div class=\"matrices\">\n", out);
        any = true;
        fputs("<figure><figcaption>", out);
        snug_html_name(out, run->folder);
        fputs("</figcaption>\n", out);
        (run->confusion.classes <= CLASSES_MOST ? print_matrix : print_mistakes)(out, &run->confusion);
        fputs("</figure>\n", out);
    }
    if (any) fputs("</div>\n", out);
}

void snug_page_results(FILE *out, const snug_runs *runs) {
    static const struct {
        const char *name;
        void (*print)(FILE *out, const struct snug_history *run);
    } rows[] = {
        {"best evaluation", print_best},         {"train_loss", print_loss},
        {"time of the training", print_seconds}, {"speed of the training", print_rate},
        {"peak host memory", print_memory},
    };
    fputs("<h2>Results</h2>\n", out);
    snug_page_table_begin(out, runs);
    print_row(out, runs, "model", print_model);
    print_row(out, runs, "steps", print_steps);
    print_metrics(out, runs);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) print_row(out, runs, rows[i].name, rows[i].print);
    fputs("</table></div>\n", out);
    print_confusion(out, runs);
}
