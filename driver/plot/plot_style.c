/* plot_style.c -- the style sheets of the page and the picture of mpc plot, and the script of the page. */
#include "plot/plot.h"

/* Colours that stay apart for readers who see fewer of them: after Okabe and Ito, darker where lines on white need it.
 */
const char plot_root[] =
    ":root{--font:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'DejaVu Sans',sans-serif}\n"
    ":root{color-scheme:light;--page:#fff;--card:#fff;--text:#1b2026;--faint:#5d6672;--line:#e3e7eb;\n"
    "--c0:#0067b1;--c1:#d1500a;--c2:#00845f;--c3:#b5518f;--c4:#c98a00;--c5:#3a9fd6;--c6:#6b4fb0;--c7:#4b535c}\n"
    "@media screen and (prefers-color-scheme:dark){:root{color-scheme:dark;--page:#11151a;--card:#161b21;\n"
    "--text:#e8ecf0;--faint:#98a3af;--line:#2b333d;--c0:#5aa9e6;--c1:#f08a4b;--c2:#2fc08f;--c3:#e08cc0;\n"
    "--c4:#e6b53c;--c5:#8fd0f2;--c6:#a992ea;--c7:#a4adb8}}\n";

const char plot_chart_style[] =
    "svg text{fill:var(--text);font-size:12px;font-variant-numeric:tabular-nums}\n"
    "svg .title{font-size:16px;font-weight:650}\n"
    "svg .unit,svg .tick{fill:var(--faint)}\n"
    ".grid{stroke:var(--line)}.axis{stroke:var(--faint);fill:none}\n"
    ".smooth,.raw,.between{fill:none;stroke-linejoin:round;stroke-linecap:round}\n"
    ".smooth{stroke-width:2}.raw{stroke-width:1;stroke-opacity:.28}.between{stroke-width:1.2;stroke-opacity:.7}\n"
    ".dashed{stroke-dasharray:6 4}.eval{stroke:var(--card);stroke-width:1.2}.skip{fill:none;stroke-width:2}\n"
    ".c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}\n"
    ".c4{stroke:var(--c4)}.c5{stroke:var(--c5)}.c6{stroke:var(--c6)}.c7{stroke:var(--c7)}\n"
    ".eval.c0{fill:var(--c0)}.eval.c1{fill:var(--c1)}.eval.c2{fill:var(--c2)}.eval.c3{fill:var(--c3)}\n"
    ".eval.c4{fill:var(--c4)}.eval.c5{fill:var(--c5)}.eval.c6{fill:var(--c6)}.eval.c7{fill:var(--c7)}\n"
    "circle.eval{stroke:var(--card)}\n";

/* With what surrounds the charts. */
const char *const plot_style[] = {
    plot_root,
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;padding:28px 32px;max-width:1700px;background:var(--page);color:var(--text);\n"
    "font:14px/1.45 var(--font)}\n"
    "h1{margin:0;font-size:22px;font-weight:650;overflow-wrap:anywhere}\n"
    "p{margin:2px 0 14px;color:var(--faint)}\n"
    "input{position:absolute;opacity:0}\n"
    "input+label{display:inline-block;margin:0 6px 14px 0;padding:2px 11px;border:1px solid var(--line);\n"
    "border-radius:6px;font-size:12px;cursor:pointer}\n"
    "input:checked+label{background:var(--text);color:var(--page);border-color:var(--text)}\n"
    "input:focus-visible+label{outline:2px solid var(--c0)}\n",
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(560px,100%),1fr));gap:16px}\n"
    ".charts div{padding:6px 4px 0;border:1px solid var(--line);border-radius:8px;background:var(--card)}\n"
    "svg{display:block;width:100%}\n",
    plot_chart_style,
    /* Which of the four drawings of a chart is shown. */
    "#logx:checked~.charts .x0,#logx:not(:checked)~.charts .x1,#logy:checked~.charts .y0,\n"
    "#logy:not(:checked)~.charts .y1,#raw:not(:checked)~.charts .raw{display:none}\n"
    ".cursor{visibility:hidden;pointer-events:none}.cursor path{stroke:var(--text);stroke-opacity:.45}\n"
    ".cursor text{paint-order:stroke;stroke:var(--card);stroke-width:5px}\n"
    ".table{overflow-x:auto;margin-top:20px}\n"
    "table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:4px 22px 4px 0;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}\n"
    "th{font-weight:600;color:var(--faint)}th:first-child,td:first-child{text-align:left}\n"
    "td svg{display:inline-block;width:24px;height:10px;margin-right:8px}\n"
    "@page{size:A4 landscape;margin:10mm}\n"
    "@media print{*{print-color-adjust:exact;-webkit-print-color-adjust:exact}body{padding:0}\n"
    "input,input+label{display:none}.charts{grid-template-columns:1fr 1fr}.charts div{break-inside:avoid}}\n",
    NULL
};

/* A line at the mouse, with the step and the number of each curve there. */
const char plot_script[] =
    "const invert = (axis, at) => {\n"
    "    const [log, low, high, from, to] = axis.split(' ').map(Number), share = (at - from) / (to - from);\n"
    "    return log ? low * (high / low) ** share : low + (high - low) * share;\n"
    "};\n"
    "const text = number => Math.abs(number) >= 1e4 ? Math.round(number).toLocaleString('en') : "
    "String(Number(number.toPrecision(4)));\n"
    "const points = path => path.points ||= [...path.getAttribute('d').matchAll(/[ML]([-0-9.]+),([-0-9.]+)/g)]\n"
    "    .map(point => [Number(point[1]), Number(point[2])]);\n"
    "for (const chart of document.querySelectorAll('.charts svg')) {\n"
    "    const cursor = chart.querySelector('.cursor'), label = cursor.querySelector('text');\n"
    "    chart.addEventListener('mouseleave', () => { cursor.style.visibility = 'hidden'; });\n"
    "    chart.addEventListener('mousemove', event => {\n"
    "        const box = chart.getBoundingClientRect(), view = chart.viewBox.baseVal;\n"
    "        const x = (event.clientX - box.left) * view.width / box.width;\n"
    "        const shown = [...chart.querySelectorAll('g[data-x]')].find(g => getComputedStyle(g).display !== "
    "'none');\n"
    "        const [, , , left, right] = shown.dataset.x.split(' ').map(Number);\n"
    "        cursor.style.visibility = x < left || x > right ? 'hidden' : 'visible';\n"
    "        cursor.setAttribute('transform', `translate(${x} 0)`);\n"
    "        const found = [...shown.querySelectorAll('.smooth')].map(path => points(path).reduce(\n"
    "            (best, point) => Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best, [Infinity, NaN]));\n"
    "        const numbers = found.filter(point => Math.abs(point[0] - x) < 8)\n"
    "            .map(point => text(invert(shown.dataset.y, point[1])));\n"
    "        label.textContent = `step ${text(Math.round(invert(shown.dataset.x, x)))}: ${numbers.join(', ')}`;\n"
    "        label.setAttribute('text-anchor', x > (left + right) / 2 ? 'end' : 'start');\n"
    "        label.setAttribute('dx', x > (left + right) / 2 ? -6 : 6);\n"
    "    });\n"
    "}\n";
