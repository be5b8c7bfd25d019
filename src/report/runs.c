/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings as one HTML page: results, curves, memory and time, settings. */
#include "inspect/runs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/html.h"
#include "report/run_page.h"

enum { COLUMNS = 1200 }; /* of the memory picture: more operations show the largest of each group */

/* The order of the memory classes in the picture, from below: what lives longest first. */
static const int stack[] = {SNUG_MEMORY_WEIGHTS,     SNUG_MEMORY_OPTIMIZER, SNUG_MEMORY_GRADIENTS,
                            SNUG_MEMORY_BATCH,       SNUG_MEMORY_WORKSPACE, SNUG_MEMORY_FUNCTION,
                            SNUG_MEMORY_ACTIVATIONS, SNUG_MEMORY_TEMPORARY};
enum { CLASSES = sizeof stack / sizeof *stack };

static double mib(int64_t bytes) { return (double)bytes / 0x1p20; }

void snug_page_line_sample(FILE *out, size_t run) {
    fprintf(out, "<svg viewBox=\"0 0 24 10\" aria-hidden=\"true\"><path class=\"r%zu d%zu\" d=\"M0 5H24\"/></svg>",
            run % SNUG_COLOURS, run / SNUG_COLOURS);
}

/* ---- the memory of a step ------------------------------------------------------------------------------------- */

/* The operation that column shows: the one with most bytes of its group. */
static size_t op_of_column(const struct snug_step_memory *m, size_t column, size_t columns) {
    const size_t first = column * m->ops / columns, last = (column + 1) * m->ops / columns;
    int64_t most = -1;
    size_t best = first;
    for (size_t op = first; op < last; op++) {
        int64_t sum = 0;
        for (int c = 0; c < CLASSES; c++) sum += snug_step_memory_bytes(m, stack[c], op);
        if (sum <= most) continue;
        most = sum;
        best = op;
    }
    return best;
}

static double height_of(const struct snug_step_memory *m, const struct snug_axis *y, size_t op, int classes) {
    int64_t sum = 0;
    for (int c = 0; c < classes; c++) sum += snug_step_memory_bytes(m, stack[c], op);
    return 1000 - snug_axis_place(y, mib(sum));
}

/* The upper edge of the lowest classes, from left to right or back; columns of the same height are one line. */
static void print_edge(FILE *out, const struct snug_step_memory *m, const struct snug_axis *y, int classes, bool back) {
    const size_t columns = m->ops < COLUMNS ? m->ops : COLUMNS;
    double last = NAN;
    for (size_t i = 0; i < columns; i++) {
        const size_t column = back ? columns - 1 - i : i;
        const double height = height_of(m, y, op_of_column(m, column, columns), classes);
        if (height == last) continue;
        fprintf(out, "H%.1fV%.1f", 1000.0 * (double)(column + back) / (double)columns, height);
        last = height;
    }
    fprintf(out, "H%d", back ? 0 : 1000);
}

/* The area of class number `which` of the stack. */
static void print_area(FILE *out, const struct snug_step_memory *m, const struct snug_axis *y, int which) {
    fprintf(out, "<path class=\"m%d\" d=\"M0 1000", stack[which]);
    print_edge(out, m, y, which + 1, false);
    print_edge(out, m, y, which, true);
    fprintf(out, "Z\"><title>%s</title></path>\n", snug_memory_class_name((snug_memory_class)stack[which]));
}

static double place_of_op(const struct snug_step_memory *m, size_t op) { return 1000 * (double)op / (double)m->ops; }

/* Where a phase begins, a line; and its name: short phases are between long ones, so the names of every second one are
   in a lower line. */
static void print_phase_edges(FILE *out, const struct snug_step_memory *m) {
    fputs("<path class=\"edge\" d=\"M0 0", out);
    for (size_t op = 1; op < m->ops; op++)
        if (strcmp(m->items[op].phase, m->items[op - 1].phase) != 0) fprintf(out, "M%.1f 0V1000", place_of_op(m, op));
    fputs("\"/>\n", out);
}

static void print_phase_names(FILE *out, const struct snug_step_memory *m) {
    bool low = false;
    for (size_t first = 0, last; first < m->ops; first = last, low = !low) {
        for (last = first + 1; last < m->ops && strcmp(m->items[last].phase, m->items[first].phase) == 0;) last++;
        fprintf(out, "<span class=\"x%s\" style=\"left:%.2f%%\">", low ? " low" : "",
                place_of_op(m, first + last) / 20);
        snug_html_text(out, m->items[first].phase);
        fputs("</span>", out);
    }
}

static void print_op(FILE *out, const struct snug_step_op *op) {
    snug_html_text(out, op->kind);
    fputs(" in ", out);
    snug_html_text(out, op->phase);
    if (op->part == SNUG_PART_LAYER)
        fprintf(out, ", layer %lld", (long long)op->layer);
    else
        fputs(op->part == SNUG_PART_EMBEDDINGS ? ", embeddings" : ", head", out);
}

static void print_classes(FILE *out, const struct snug_step_memory *m) {
    fputs(
        "<div class=\"wide\"><table><tr><th>class</th><th class=\"n\">at the peak, MiB</th><th class=\"n\">during the "
        "whole step, MiB</th></tr>\n",
        out);
    for (int c = CLASSES; c-- > 0;) {
        const int64_t bytes = snug_step_memory_bytes(m, stack[c], m->peak);
        if (!bytes && !m->live[stack[c]]) continue;
        fprintf(out,
                "<tr><td class=\"key\"><svg viewBox=\"0 0 24 10\" aria-hidden=\"true\"><path class=\"m%d\" "
                "d=\"M0 0H24V10H0Z\"/></svg>%s</td><td class=\"n\">%.2f</td><td class=\"n\">%.2f</td></tr>\n",
                stack[c], snug_memory_class_name((snug_memory_class)stack[c]), mib(bytes), mib(m->resident[stack[c]]));
    }
    fputs("</table></div>\n", out);
}

static void print_step_memory(FILE *out, const struct snug_step_memory *m) {
    fputs("<h3>Memory of a step</h3>\n", out);
    if (!m->ops) {
        fputs(
            "<p class=\"soft\">Unknown: the folder has no run_report.json, which snug train writes when it ends.</p>\n",
            out);
        return;
    }
    const struct snug_axis y = snug_axis_of(0, mib(m->peak_bytes), false);
    const double peak = place_of_op(m, m->peak) + 500.0 / (double)m->ops;
    fprintf(out, "<figure><figcaption>Memory, MiB, during each of %zu operations</figcaption>", m->ops);
    snug_chart_begin(out, "memory by class over the operations of a step", NULL, &y);
    for (int c = 0; c < CLASSES; c++) print_area(out, m, &y, c);
    print_phase_edges(out, m);
    fprintf(out, "<path class=\"peak\" d=\"M%.1f %.1fV-30\"><title>peak</title></path>\n", peak,
            height_of(m, &y, m->peak, CLASSES));
    snug_chart_labels(out, NULL, &y, " MiB");
    print_phase_names(out, m);
    fputs("</div><p class=\"axis-name below\">operation of the step, in its phases</p>\n", out);
    fputs("<p><strong>Peak: ", out);
    fprintf(out, "%.2f MiB</strong> at operation %zu, ", mib(m->peak_bytes), m->peak + 1);
    print_op(out, &m->items[m->peak]);
    fprintf(out, ". Allocated for the run: %.2f MiB.</p>\n", mib(m->arena));
    print_classes(out, m);
    fputs("</figure>\n", out);
}

/* ---- time ------------------------------------------------------------------------------------------------------ */

static void print_bar(FILE *out, const char *name, double seconds, double whole) {
    const double share = whole > 0 ? 100 * seconds / whole : 0;
    fputs("<span>", out);
    snug_html_text(out, name);
    fprintf(out, "</span><i style=\"width:%.2f%%\"></i><span class=\"n\">%.2f s, %.1f %%</span>\n", fmin(share, 100),
            seconds, share);
}

static void print_time(FILE *out, const struct snug_history *run) {
    fputs("<h3>Where the time went</h3>\n", out);
    if (run->training < 0) {
        fputs("<p class=\"soft\">Unknown: the run has not ended, or another program trained it.</p>\n", out);
        return;
    }
    const double start = fmax(run->start, 0), rest = fmax(run->evaluating_and_saving, 0);
    const double whole = start + run->training + rest;
    double operations = 0;
    fprintf(out, "<p>%.2f s in this process, up to the end of the last evaluation.</p>\n<div class=\"bars\">\n", whole);
    print_bar(out, "start", start, whole);
    print_bar(out, "training", run->training, whole);
    print_bar(out, "evaluating and saving", rest, whole);
    fputs("</div>\n", out);
    if (!run->operation_count) {
        fputs(
            "<p class=\"soft\">The operations were not timed: on a GPU they run on their own; snug bench anatomy times "
            "them.</p>\n",
            out);
        return;
    }
    fputs("<p>Of training, by kind of operation:</p>\n<div class=\"bars\">\n", out);
    for (size_t i = 0; i < run->operation_count; i++) {
        operations += run->operations[i].seconds;
        print_bar(out, run->operations[i].name, run->operations[i].seconds, run->training);
    }
    print_bar(out, "between operations", fmax(run->training - operations, 0), run->training);
    fputs("</div>\n", out);
}

/* ---- tables ---------------------------------------------------------------------------------------------------- */

static void print_bytes(FILE *out, int64_t bytes) {
    if (bytes < 0)
        fputs("<td class=\"n\">-</td>", out);
    else
        fprintf(out, "<td class=\"n\">%.1f</td>", mib(bytes));
}

static void print_planned(FILE *out, const struct snug_history *run) {
    fputs("<h3>Memory, planned and measured</h3>\n", out);
    if (!run->figure_count) {
        fputs("<p class=\"soft\">Unknown: the folder has no all_results.json of snug train.</p>\n", out);
        return;
    }
    fputs("<div class=\"wide\"><table><tr><th>MiB</th><th class=\"n\">planned</th><th class=\"n\">measured</th>"
          "<th class=\"n\">difference</th></tr>\n",
          out);
    for (size_t i = 0; i < run->figure_count; i++) {
        const struct snug_memory_figure *figure = &run->figures[i];
        fputs("<tr><td>", out);
        snug_html_text(out, figure->name);
        fputs("</td>", out);
        print_bytes(out, figure->planned);
        print_bytes(out, figure->measured);
        if (figure->planned > 0 && figure->measured >= 0)
            fprintf(out, "<td class=\"n\">%+.2f %%</td></tr>\n",
                    100 * ((double)figure->measured / (double)figure->planned - 1));
        else
            fputs("<td></td></tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

const char *snug_page_value(const struct snug_entries *entries, const char *name) {
    for (size_t i = 0; i < entries->count; i++)
        if (strcmp(entries->items[i].name, name) == 0) return entries->items[i].value;
    return NULL;
}

typedef const struct snug_entries *entries_of(const struct snug_history *run);
static const struct snug_entries *results_of(const struct snug_history *run) { return &run->results; }
static const struct snug_entries *settings_of(const struct snug_history *run) { return &run->settings; }

static bool differs(const snug_runs *runs, entries_of *of, const char *name) {
    const char *first = snug_page_value(of(&runs->items[0]), name);
    for (size_t i = 1; i < runs->count; i++) {
        const char *other = snug_page_value(of(&runs->items[i]), name);
        if (!first || !other || strcmp(first, other) != 0) return true;
    }
    return false;
}

static bool is_listed_before(const snug_runs *runs, entries_of *of, size_t run, const char *name) {
    for (size_t i = 0; i < run; i++)
        if (snug_page_value(of(&runs->items[i]), name)) return true;
    return false;
}

static void print_row(FILE *out, const snug_runs *runs, entries_of *of, const char *name, const char *class) {
    fprintf(out, "<tr class=\"%s\"><td class=\"name\">", class);
    snug_html_name(out, name);
    fputs("</td>", out);
    for (size_t i = 0; i < runs->count; i++) {
        const char *value = snug_page_value(of(&runs->items[i]), name);
        fputs("<td>", out);
        snug_html_text(out, value ? value : "-");
        fputs("</td>", out);
    }
    fputs("</tr>\n", out);
}

void snug_page_table_begin(FILE *out, const snug_runs *runs) {
    fputs("<div class=\"wide\"><table><tr><th></th>", out);
    for (size_t i = 0; i < runs->count; i++) {
        fputs("<th>", out);
        snug_page_line_sample(out, i);
        snug_html_text(out, runs->items[i].folder);
        fputs("</th>", out);
    }
    fputs("</tr>\n", out);
}

/* The rows that differ between the runs, or those that do not; their number. */
static size_t print_rows(FILE *out, const snug_runs *runs, entries_of *of, bool different) {
    size_t count = 0;
    for (size_t run = 0; run < runs->count; run++)
        for (size_t i = 0; i < of(&runs->items[run])->count; i++) {
            const char *name = of(&runs->items[run])->items[i].name;
            if (is_listed_before(runs, of, run, name) || differs(runs, of, name) != different) continue;
            if (count++ == 0) snug_page_table_begin(out, runs);
            print_row(out, runs, of, name, different ? "differs" : "same");
        }
    if (count) fputs("</table></div>\n", out);
    return count;
}

/* First the rows in which the runs differ. */
static void print_table(FILE *out, const snug_runs *runs, const char *title, entries_of *of, const char *missing) {
    fprintf(out, "<h2>%s</h2>\n", title);
    size_t count = print_rows(out, runs, of, true);
    if (count) fputs("<details><summary>The same in all runs</summary>\n", out);
    const size_t same = print_rows(out, runs, of, false);
    if (count && !same) fputs("<p class=\"soft\">Nothing.</p>\n", out);
    if (count) fputs("</details>\n", out);
    count += same;
    if (!count) fprintf(out, "<p class=\"soft\">%s</p>\n", missing);
}

/* ---- the page -------------------------------------------------------------------------------------------------- */

static void print_page(FILE *out, const snug_runs *runs) {
    snug_html_begin(out, runs->count == 1 ? runs->items[0].folder : "training runs");
    fprintf(out, "<h1>%zu training run%s</h1>\n", runs->count, runs->count == 1 ? "" : "s");
    snug_page_results(out, runs);
    snug_page_curves(out, runs);
    for (size_t i = 0; i < runs->count; i++) {
        fputs("<section>\n<h2>", out);
        snug_html_text(out, runs->items[i].folder);
        fputs("</h2>\n", out);
        print_step_memory(out, &runs->items[i].memory);
        print_planned(out, &runs->items[i]);
        print_time(out, &runs->items[i]);
        fputs("</section>\n", out);
    }
    print_table(out, runs, "All figures", results_of,
                "The folder has no all_results.json, which is written when a run ends.");
    print_table(out, runs, "Settings", settings_of, "The folder has no training_args.json.");
    snug_html_end(out);
}

snug_status snug_runs_html(const snug_runs *runs, char **html) {
    size_t size;
    SNUG_REQUIRE_OUT(html);
    SNUG_REQUIRE(runs);
    FILE *out = open_memstream(html, &size);
    if (out) print_page(out, runs);
    if (out && fclose(out) == 0) return SNUG_OK;
    free(*html);
    *html = NULL;
    return snug_fail(runs->ctx, SNUG_E_MEMORY, "out of memory while writing the report");
}
