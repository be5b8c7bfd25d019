/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of an HTML page that is also well-formed XML: escaped text, and charts as inline SVG. */
#ifndef SNUG_REPORT_HTML_H
#define SNUG_REPORT_HTML_H

#include <stdbool.h>
#include <stdio.h>

/* Text that snug did not choose: escaped as for a terminal (snug_escape), then for HTML. */
void snug_html_text(FILE *out, const char *text);
/* As snug_html_text(), for a name, which may be broken after '_' and '.'. */
void snug_html_name(FILE *out, const char *text);
/* The beginning of a page, up to its body, and its end. The page names no address; its policy forbids to load any. */
void snug_html_begin(FILE *out, const char *title);
void snug_html_end(FILE *out);

/* The axis of a chart: its limits, and the distance of its ticks, which is 1, 2 or 5 times a power of ten. */
struct snug_axis {
    double low, high, tick;
};
/* An axis for values from low to high > low. whole: ticks are whole numbers. */
struct snug_axis snug_axis_of(double low, double high, bool whole);
/* The place of value in a chart of 1000 units. */
static inline double snug_axis_place(const struct snug_axis *axis, double value) {
    return 1000 * (value - axis->low) / (axis->high - axis->low);
}

enum { SNUG_COLOURS = 8 }; /* classes r0 … r7 of lines, m0 … m7 of areas; further lines are dashed: d1 … d3 */

/* A chart is stretched to its box: the drawing is an SVG of 1000 x 1000 units, y from its top; the ticks' labels are
   text on top of it, so that they keep their size on a phone. label: for readers of screens. */
void snug_chart_begin(FILE *out, const char *label, const struct snug_axis *x, const struct snug_axis *y);
/* After the drawing: labels. x may be NULL: none. unit is appended to y's labels. The caller closes the box. */
void snug_chart_labels(FILE *out, const struct snug_axis *x, const struct snug_axis *y, const char *unit);

#endif
