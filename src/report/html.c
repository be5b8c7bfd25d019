/* SPDX-License-Identifier: Apache-2.0 */
#include "report/html.h"

#include <math.h>
#include <string.h>

#include "snug.h"

static void put_text(FILE *out, const char *text, bool breaks) {
    for (size_t length = strlen(text); length;) {
        char shown[256];
        const size_t used = snug_escape(shown, sizeof shown, text, length);
        text += used;
        length -= used;
        for (const char *at = shown; *at; at++) {
            switch (*at) {
            case '&': fputs("&amp;", out); break;
            case '<': fputs("&lt;", out); break;
            case '>': fputs("&gt;", out); break;
            case '"': fputs("&quot;", out); break;
            case '\'': fputs("&#39;", out); break;
            default: fputc(*at, out);
            }
            if (breaks && (*at == '_' || *at == '.')) fputs("<wbr/>", out);
        }
    }
}

void snug_html_text(FILE *out, const char *text) { put_text(out, text, false); }

void snug_html_name(FILE *out, const char *text) { put_text(out, text, true); }

/* Colours: Okabe and Ito's, which the colour-blind can tell apart (their yellow replaced by an olive, which is visible
   on white), lighter where the page is dark. */
static const char style[] =
    ":root{color-scheme:light dark;--page:#fff;--text:#1b1f24;--soft:#59636e;--line:#d8dde3;--card:#f6f8fa;"
    "--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#a8508a;--c4:#b07800;--c5:#3a9bd9;--c6:#7a7a29;--c7:#6e7781;"
    "--m0:#0072b2;--m1:#d55e00;--m2:#009e73;--m3:#e69f00;--m4:#cc79a7;--m5:#56b4e9;--m6:#999933;--m7:#8b949e}"
    "@media(prefers-color-scheme:dark){:root{--page:#14171b;--text:#e6e9ed;--soft:#9aa5b1;--line:#343b44;--card:#"
    "1b2026;"
    "--c0:#4ba9e8;--c1:#ff8a3d;--c2:#2ecc9f;--c3:#e29cc6;--c4:#f2b630;--c5:#8fd0f7;--c6:#c9c95a;--c7:#b3bcc7;"
    "--m0:#1b86c7;--m1:#e06a10;--m2:#0ea87c;--m3:#d99a08;--m4:#c877a3;--m5:#57a9da;--m6:#8f8f35;--m7:#7c8590}}"
    "*{box-sizing:border-box}"
    "body{margin:0 auto;max-width:75rem;padding:1rem;background:var(--page);color:var(--text);"
    "font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}"
    "h1{font-size:1.4rem;margin:.2rem 0}h2{font-size:1.1rem;margin:2rem 0 .5rem}h3{font-size:1rem;margin:1.2rem 0 "
    ".3rem}"
    "p{margin:.3rem 0}.soft,figcaption,th{color:var(--soft)}"
    ".grid{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,21rem),1fr))}"
    "figure{margin:0;padding:.7rem;background:var(--card);border:1px solid var(--line);border-radius:6px;min-width:0}"
    "figcaption{font-weight:600;color:var(--text)}"
    ".plot{position:relative;height:13rem;margin:.6rem .8rem 1.6rem 3.4rem}"
    ".plot svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}"
    ".plot span{position:absolute;font-size:.75rem;color:var(--soft);white-space:nowrap;line-height:1}"
    ".plot .y{right:100%;padding-right:.4rem;transform:translateY(50%)}"
    ".plot .x{top:100%;padding-top:.4rem;transform:translateX(-50%)}.plot "
    ".low{padding-top:1.3rem}.below{padding-top:1rem}"
    ".plot path{vector-effect:non-scaling-stroke;fill:none}"
    ".axis{stroke:var(--line);stroke-width:1}.curve{stroke-width:1.8;stroke-linejoin:round}"
    ".dot{stroke-width:6;stroke-linecap:round}.edge{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 3}"
    ".peak{stroke:var(--text);stroke-width:1.5}"
    ".d1{stroke-dasharray:7 4}.d2{stroke-dasharray:2 4}.d3{stroke-dasharray:9 3 2 3}"
    ".legend{list-style:none;margin:.3rem 0 0;padding:0;display:flex;flex-wrap:wrap;gap:.1rem "
    "1rem;font-size:.85rem}"
    ".legend svg,table svg{width:1.6rem;height:.7rem;margin-right:.4rem;vertical-align:baseline}.legend "
    "path{fill:none;stroke-width:3}"
    ".bars{display:grid;grid-template-columns:minmax(6rem,max-content) 1fr max-content;gap:.15rem "
    ".6rem;font-size:.85rem;"
    "align-items:center}.bars i{display:block;height:.8rem;background:var(--c0);min-width:1px}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem}"
    "th,td{text-align:left;padding:.15rem .9rem .15rem 0;border-bottom:1px solid var(--line);vertical-align:top;"
    "min-width:5rem}th{font-weight:600}"
    ".n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}th.n{white-space:normal}.key{white-space:"
    "nowrap}.name{overflow-wrap:break-word}.differs td:first-child{font-weight:600}"
    ".axis-name{margin:-.2rem .8rem .5rem 0;text-align:right;font-size:.75rem;color:var(--soft);line-height:1}"
    ".matrices{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,28rem),1fr))}"
    ".matrix td{min-width:2.6rem;padding:.3rem;text-align:center;font-variant-numeric:tabular-nums;border:1px solid "
    "var(--page)}.matrix "
    "th{min-width:0;max-width:12rem;border:0;padding:.3rem;color:var(--text);overflow-wrap:anywhere}"
    ".matrix th.soft{color:var(--soft);white-space:nowrap;vertical-align:bottom}.matrix "
    "th.predicted{text-align:center;vertical-align:bottom;overflow-wrap:normal}"
    ".many th.predicted{writing-mode:vertical-rl;transform:rotate(180deg);text-align:left}"
    ".right{background:color-mix(in srgb,var(--c2) var(--share),var(--page))}"
    ".wrong{background:color-mix(in srgb,var(--c1) var(--share),var(--page))}"
    "summary{cursor:pointer;color:var(--soft)}";

void snug_html_begin(FILE *out, const char *title) {
    fputs("<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n"
          "<meta charset=\"utf-8\"/>\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src &#39;none&#39;; style-src "
          "&#39;unsafe-inline&#39;\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>",
          out);
    snug_html_text(out, title);
    fputs("</title>\n<style>", out);
    fputs(style, out);
    for (int i = 0; i < SNUG_COLOURS; i++)
        fprintf(out, ".r%d{stroke:var(--c%d)}path.m%d{fill:var(--m%d);stroke:var(--page);stroke-width:.7}", i, i, i, i);
    fputs("</style>\n</head>\n<body>\n", out);
}

void snug_html_end(FILE *out) { fputs("</body>\n</html>\n", out); }

/* ---- charts --------------------------------------------------------------------------------------------------- */

struct snug_axis snug_axis_of(double low, double high, bool whole) {
    const double rough = (high - low) / 4, power = pow(10, floor(log10(rough))), digit = rough / power;
    struct snug_axis axis = {.tick = (digit > 5 ? 10 : digit > 2 ? 5 : digit > 1 ? 2 : 1) * power};
    if (whole) axis.tick = fmax(axis.tick, 1);
    axis.low = whole ? low : floor(low / axis.tick) * axis.tick;
    axis.high = whole ? high : ceil(high / axis.tick) * axis.tick;
    return axis;
}

/* The ticks of an axis: at most ten, whatever rounding does. */
static int tick_count(const struct snug_axis *axis, double *first) {
    *first = ceil(axis->low / axis->tick - 1e-9) * axis->tick;
    const double count = floor((axis->high - *first) / axis->tick + 1e-9) + 1;
    return (int)fmin(fmax(count, 0), 10);
}

void snug_chart_begin(FILE *out, const char *label, const struct snug_axis *x, const struct snug_axis *y) {
    double first;
    fputs("<div class=\"plot\"><svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\" "
          "xmlns=\"http://www.w3.org/2000/svg\" aria-label=\"",
          out);
    snug_html_text(out, label);
    fputs("\"><path class=\"axis\" d=\"M0 0V1000H1000", out);
    const int rows = tick_count(y, &first);
    for (int i = 0; i < rows; i++) fprintf(out, "M0 %.1fH1000", 1000 - snug_axis_place(y, first + i * y->tick));
    const int columns = x ? tick_count(x, &first) : 0;
    for (int i = 0; i < columns; i++) fprintf(out, "M%.1f 1000V1012", snug_axis_place(x, first + i * x->tick));
    fputs("\"/>\n", out);
}

/* Zero where adding ticks has left a rest of it. */
static double tidy(double value, double tick) { return fabs(value) < tick * 1e-6 ? 0 : value; }

void snug_chart_labels(FILE *out, const struct snug_axis *x, const struct snug_axis *y, const char *unit) {
    double first;
    fputs("</svg>", out);
    const int rows = tick_count(y, &first);
    for (int i = 0; i < rows; i++)
        fprintf(out, "<span class=\"y\" style=\"bottom:%.2f%%\">%.4g%s</span>",
                snug_axis_place(y, first + i * y->tick) / 10, tidy(first + i * y->tick, y->tick), unit);
    const int columns = x ? tick_count(x, &first) : 0;
    for (int i = 0; i < columns; i++)
        fprintf(out, "<span class=\"x\" style=\"left:%.2f%%\">%.10g</span>",
                snug_axis_place(x, first + i * x->tick) / 10, tidy(first + i * x->tick, x->tick));
}
