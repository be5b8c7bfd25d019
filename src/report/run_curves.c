/* SPDX-License-Identifier: Apache-2.0 */
/* What changed from step to step, as curves with the runs overlaid. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "report/html.h"
#include "report/run_page.h"

enum {
    POINTS = 1000,   /* of a curve: longer ones show the least and the greatest value of groups of steps */
    DOTS = 60,       /* curves of at most so many points show each */
    CURVES_MOST = 40 /* charts: a task with many classes has metrics of each */
};

const struct snug_series *snug_page_series(const struct snug_history *run, const char *name) {
    for (size_t i = 0; i < run->series_count; i++)
        if (strcmp(run->series[i].name, name) == 0) return &run->series[i];
    return NULL;
}

struct range {
    double low, high;
};

static void extend(struct range *range, double value) {
    if (!isfinite(value)) return;
    range->low = fmin(range->low, value);
    range->high = fmax(range->high, value);
}

/* The index of the least or the greatest finite value of samples first … last - 1; last if there is none. */
static size_t extreme(const struct snug_series *series, size_t first, size_t last, double sign) {
    size_t best = last;
    for (size_t i = first; i < last; i++)
        if (isfinite(series->samples[i].value) &&
            (best == last || sign * series->samples[i].value > sign * series->samples[best].value))
            best = i;
    return best;
}

struct view {
    struct snug_axis x, y;
    size_t run;
};

static void print_point(FILE *out, const struct view *v, const struct snug_sample *sample, char command) {
    fprintf(out, "%c%.1f %.1f", command, snug_axis_place(&v->x, sample->step),
            1000 - snug_axis_place(&v->y, sample->value));
}

static void print_curve(FILE *out, const struct view *v, const struct snug_series *series) {
    const size_t group = (series->count + POINTS - 1) / POINTS;
    char command = 'M'; /* a value that is not finite interrupts the curve */
    fprintf(out, "<path class=\"curve r%zu d%zu\" d=\"", v->run % SNUG_COLOURS, v->run / SNUG_COLOURS);
    for (size_t first = 0; first < series->count; first += group) {
        const size_t last = first + group < series->count ? first + group : series->count;
        const size_t low = extreme(series, first, last, -1), high = extreme(series, first, last, 1);
        if (low == last) {
            command = 'M';
            continue;
        }
        print_point(out, v, &series->samples[low < high ? low : high], command);
        command = 'L';
        if (low != high) print_point(out, v, &series->samples[low < high ? high : low], command);
    }
    fputs("\"/>\n", out);
}

static void print_dots(FILE *out, const struct view *v, const struct snug_series *series, const char *folder) {
    for (size_t i = 0; i < series->count && series->count <= DOTS; i++) {
        const struct snug_sample *sample = &series->samples[i];
        if (!isfinite(sample->value)) continue;
        fprintf(out, "<path class=\"dot r%zu\" d=\"", v->run % SNUG_COLOURS);
        print_point(out, v, sample, 'M');
        fprintf(out, "h0\"><title>step %.10g: %.6g, ", sample->step, sample->value);
        snug_html_text(out, folder);
        fputs("</title></path>\n", out);
    }
}

static void print_last_values(FILE *out, const snug_runs *runs, const char *name) {
    fputs("<ul class=\"legend\">", out);
    for (size_t i = 0; i < runs->count; i++) {
        const struct snug_series *series = snug_page_series(&runs->items[i], name);
        if (!series) continue;
        fputs("<li>", out);
        snug_page_line_sample(out, i);
        snug_html_text(out, runs->items[i].folder);
        fprintf(out, ": %.4g at the end</li>", series->samples[series->count - 1].value);
    }
    fputs("</ul>", out);
}

/* What the y axis has, in addition to the name; "" where that says it. */
static const char *unit_of(const char *name) {
    static const struct {
        const char *end, *unit;
    } units[] = {
        {"accuracy", "fraction"},
        {"f1", "0 to 1"},
        {"precision", "0 to 1"},
        {"recall", "0 to 1"},
        {"auc", "0 to 1"},
        {"matthews_correlation", "-1 to 1"},
        {"pearson", "-1 to 1"},
        {"spearmanr", "-1 to 1"},
        {"grad_norm", "L2 norm before clipping"},
        {"samples_per_second", "samples/s"},
        {"_number", "rows"},
    };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        const size_t length = strlen(name), end = strlen(units[i].end);
        if (length >= end && strcmp(name + length - end, units[i].end) == 0) return units[i].unit;
    }
    return "";
}

/* One quantity of all runs. */
static void print_chart(FILE *out, const snug_runs *runs, const char *name) {
    struct range steps = {DBL_MAX, -DBL_MAX}, values = steps;
    for (size_t i = 0; i < runs->count; i++) {
        const struct snug_series *series = snug_page_series(&runs->items[i], name);
        for (size_t k = 0; series && k < series->count; k++) {
            extend(&steps, series->samples[k].step);
            extend(&values, series->samples[k].value);
        }
    }
    struct view v = {.x = snug_axis_of(steps.low, steps.high, true), .y = snug_axis_of(values.low, values.high, false)};
    fputs("<figure><figcaption>", out);
    snug_html_text(out, name);
    if (*unit_of(name)) fprintf(out, "<span class=\"soft\">, %s</span>", unit_of(name));
    fputs("</figcaption>", out);
    snug_chart_begin(out, name, &v.x, &v.y);
    for (v.run = 0; v.run < runs->count; v.run++) {
        const struct snug_series *series = snug_page_series(&runs->items[v.run], name);
        if (!series) continue;
        print_curve(out, &v, series);
        print_dots(out, &v, series, runs->items[v.run].folder);
    }
    snug_chart_labels(out, &v.x, &v.y, "");
    fputs("</div><p class=\"axis-name\">optimizer step</p>\n", out);
    print_last_values(out, runs, name);
    fputs("</figure>\n", out);
}

/* ---- which quantities ------------------------------------------------------------------------------------------ */

/* Whether a run has different finite values. */
static bool varies(const struct snug_series *series) {
    struct range range = {DBL_MAX, -DBL_MAX};
    for (size_t i = 0; i < series->count; i++) extend(&range, series->samples[i].value);
    return range.low < range.high;
}

static bool has_curve(const snug_runs *runs, const char *name) {
    for (size_t i = 0; i < runs->count; i++) {
        const struct snug_series *series = snug_page_series(&runs->items[i], name);
        if (series && varies(series)) return true;
    }
    return false;
}

/* A quantity without a curve, in words. */
static void print_constant(FILE *out, const struct snug_series *series) {
    size_t finite = 0, last = 0;
    for (size_t i = 0; series && i < series->count; i++) {
        if (!isfinite(series->samples[i].value)) continue;
        finite++;
        last = i;
    }
    if (!series)
        fputs("<td>-</td>", out);
    else if (!finite)
        fprintf(out, "<td>never finite, in %zu values</td>", series->count);
    else if (finite == 1)
        fprintf(out, "<td>%.6g, at step %.10g</td>", series->samples[last].value, series->samples[last].step);
    else
        fprintf(out, "<td>%.6g, in all of %zu values</td>", series->samples[last].value, finite);
}

static void print_constant_row(FILE *out, const snug_runs *runs, const char *name) {
    fputs("<tr><td class=\"name\">", out);
    snug_html_name(out, name);
    fputs("</td>", out);
    for (size_t i = 0; i < runs->count; i++) print_constant(out, snug_page_series(&runs->items[i], name));
    fputs("</tr>\n", out);
}

/* 0 is first; names of the same rank are in the order of the files. */
static int rank_of(const char *name) {
    static const char *const order[] = {"loss",      "eval_loss",         "eval_", "", "learning_rate",
                                        "grad_norm", "samples_per_second"};
    static const int any = 3;
    for (int i = 0; i < (int)(sizeof order / sizeof *order); i++)
        if (i != any && (i == 2 ? strncmp(name, order[i], strlen(order[i])) : strcmp(name, order[i])) == 0) return i;
    return any;
}

/* Whether an earlier run has the quantity too. */
static bool is_repeated(const snug_runs *runs, size_t run, const char *name) {
    for (size_t i = 0; i < run; i++)
        if (snug_page_series(&runs->items[i], name)) return true;
    return false;
}

/* Prints the quantities with a curve, or those without one, up to a number of metrics; *printed and *left count them.
 */
static void print_each(FILE *out, const snug_runs *runs, bool curves,
                       void (*print)(FILE *out, const snug_runs *runs, const char *name), int *printed, int *left) {
    *printed = *left = 0;
    for (int rank = 0; rank < 7; rank++)
        for (size_t run = 0; run < runs->count; run++)
            for (size_t i = 0; i < runs->items[run].series_count; i++) {
                const char *name = runs->items[run].series[i].name;
                if (rank_of(name) != rank || is_repeated(runs, run, name) || has_curve(runs, name) != curves) continue;
                if (rank == 2 && *printed >= CURVES_MOST) {
                    ++*left;
                    continue;
                }
                if (!curves && !*printed) {
                    fputs("<h3>Logged once, or always the same</h3>\n", out);
                    snug_page_table_begin(out, runs);
                }
                print(out, runs, name);
                ++*printed;
            }
    if (!curves && *printed) fputs("</table></div>\n", out);
}

void snug_page_curves(FILE *out, const snug_runs *runs) {
    int drawn, told, left, left_of_told;
    fputs("<h2>Over steps</h2>\n<div class=\"grid\">\n", out);
    print_each(out, runs, true, print_chart, &drawn, &left);
    fputs("</div>\n", out);
    print_each(out, runs, false, print_constant_row, &told, &left_of_told);
    left += left_of_told;
    if (!drawn && !told) fputs("<p>Nothing was logged yet.</p>\n", out);
    if (left) fprintf(out, "<p class=\"soft\">%d more metrics are in trainer_state.json.</p>\n", left);
}
