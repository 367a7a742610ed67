/* timeline_style.c -- the style sheets of the page and of the picture, and the page's script.
 *
 * A micro-batch is a hue; F, B and W are lightnesses, W is hatched: so each can be told without the others. */
#include "timeline.h"

/* Light unless the reader's screen is dark; print is always light. */
const char timeline_root[] =
    ":root{--font:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'DejaVu Sans',sans-serif}\n"
    ":root{color-scheme:light;--page:#fff;--card:#f6f7f9;--text:#1b2026;--faint:#5d6672;--line:#dfe3e8;\n"
    "--idle:#e6e8eb;--fixed:#8c96a3;--flight:#4a86c8;--over:#d4351c;--hides:#3aa394;--c0:#9cc3ee;--c1:#4a7fc0;\n"
    "--c2:#a98bd0;--c3:#d9a441}\n"
    "@media screen and (prefers-color-scheme:dark){:root{color-scheme:dark;--page:#11151a;--card:#1a2027;\n"
    "--text:#e8ecf0;--faint:#98a3af;--line:#2b333d;--idle:#262d36;--fixed:#66717e;--flight:#5a9bdc;--over:#ff6b52;\n"
    "--hides:#37a898;--c0:#8fb9e8;--c1:#4678b8;--c2:#a486cf;--c3:#d6a13d}}\n";

const char timeline_drawing_style[] =
    ".z2,.z4,.z8,.z16,.fine{display:none}\n"
    ".bars{shape-rendering:crispEdges}\n"
    ".axis line{stroke:var(--line)}\n"
    ".axis text,.cursor text{font-size:11px;fill:var(--faint);font-variant-numeric:tabular-nums}\n"
    ".idle{fill:var(--idle)}\n"
    ".c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}\n"
    ".c4{fill:var(--c0);opacity:.6}.c5{fill:var(--c1);opacity:.6}.c6{fill:var(--c2);opacity:.6}\n"
    ".c7{fill:var(--c3);opacity:.6}\n"
    ".reduction path{fill:var(--text)}\n"
    ".a rect{stroke:var(--page);stroke-width:1}\n"
    ".narrow .a rect{stroke:none}\n"
    ".F rect{fill:oklch(.86 .075 var(--h))}\n"
    ".B rect{fill:oklch(.56 .125 var(--h))}\n"
    ".W rect{fill:oklch(.73 .105 var(--h))}\n"
    ".a rect.hatch{fill:url(#hatch);stroke:none;pointer-events:none}\n"
    "svg rect[class^=u]{fill:var(--hides);stroke:none}\n"
    "svg rect[class^=w]{fill:var(--over);stroke:none}\n"
    ".ink{fill:#000;fill-opacity:.28}\n"
    ".a text{font-size:11px;text-anchor:middle;fill:#16181c;pointer-events:none;font-variant-numeric:tabular-nums}\n"
    ".a.B text{fill:#fff}\n"
    ".a.W text{font-size:9.5px;font-weight:650;paint-order:stroke;stroke:oklch(.73 .105 var(--h));stroke-width:3px}\n"
    ".a text.small{font-size:8.5px;opacity:.85}\n"
    ".s{fill:none;stroke:oklch(.62 .14 var(--h));stroke-width:1.2}\n"
    ".s.B{stroke-dasharray:3 2}\n"
    ".narrow .s{stroke-width:.6;stroke-dasharray:none}\n"
    ".lane{fill:var(--card);fill-opacity:.85}\n"
    ".strip{fill:var(--card)}\n"
    ".fixed{fill:var(--fixed)}\n"
    ".flight{fill:var(--flight)}\n"
    ".over{fill:var(--over)}\n"
    ".memory .peak{fill:var(--text);stroke:var(--page)}\n"
    ".capacity{stroke:var(--over);stroke-width:1.4;stroke-dasharray:6 3}\n"
    ".cursor{pointer-events:none;visibility:hidden}\n"
    ".cursor line{stroke:var(--text);stroke-opacity:.5}\n"
    ".cursor text{fill:var(--text);paint-order:stroke;stroke:var(--page);stroke-width:5px}\n";

/* With what surrounds the drawing in a page. */
const char *const timeline_style[] = {
    timeline_root,
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;padding:28px 32px;max-width:1800px;background:var(--page);color:var(--text);\n"
    "font:14px/1.45 var(--font)}\n"
    "h1{margin:0;font-size:22px;font-weight:650;overflow-wrap:anywhere}\n"
    "p{margin:2px 0;color:var(--faint)}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:12px;margin:18px 0 20px}\n"
    ".tile{padding:10px 16px 11px;border:1px solid var(--line);border-radius:8px;\n"
    "background:var(--card)}\n"
    ".tile b{display:block;font-size:24px;font-weight:650;line-height:1.3;font-variant-numeric:tabular-nums}\n"
    ".tile b.over{color:var(--over)}\n"
    ".tile span{font-size:12px;color:var(--faint)}\n"
    ".zoom{position:absolute;opacity:0}\n"
    ".zooms{display:inline-block;margin:0 0 10px;font-size:12px;color:var(--faint)}\n"
    ".zoom+label{display:inline-block;margin:0 0 10px 4px;padding:1px 9px;border:1px solid var(--line);\n"
    "border-radius:6px;font-size:12px;cursor:pointer}\n"
    ".zoom:checked+label{background:var(--text);color:var(--page);border-color:var(--text)}\n"
    ".zoom:focus-visible+label{outline:2px solid var(--flight)}\n",
    /* The drawing, and beside it the ranks. */
    ".frame{display:flex}\n"
    ".names{position:relative;flex:0 0 230px;font-size:12px}\n"
    ".names div{position:absolute;left:0;right:14px;display:flex;flex-direction:column;justify-content:center;\n"
    "line-height:1.3}\n"
    ".names.low span{flex:0 1 auto}\n"
    ".names.low div{flex-direction:row;justify-content:flex-start;align-items:center;gap:8px}\n"
    ".names b{font-weight:600;white-space:nowrap;font-variant-numeric:tabular-nums}\n"
    ".names span{flex:none;color:var(--faint);white-space:nowrap;overflow:hidden;text-overflow:ellipsis}\n"
    ".names .over{color:var(--over)}\n"
    ".names .lane{align-items:flex-end;font-size:10px;line-height:1}\n"
    ".names .head{justify-content:flex-end;padding-bottom:12px}\n"
    ".plot{flex:1 1 0;min-width:960px;overflow-x:auto;overflow-y:hidden}\n"
    ".plot>svg{display:block;width:100%;overflow:visible}\n"
    "#zoom2:checked~.frame .plot>svg{width:200%}\n"
    "#zoom4:checked~.frame .plot>svg{width:400%}\n"
    "#zoom8:checked~.frame .plot>svg{width:800%}\n"
    "#zoom16:checked~.frame .plot>svg{width:1600%}\n"
    "#zoom2:checked~.frame .z2,#zoom4:checked~.frame :is(.z2,.z4),#zoom8:checked~.frame :is(.z2,.z4,.z8),\n"
    "#zoom16:checked~.frame :is(.z2,.z4,.z8,.z16){display:inline}\n"
    ":is(#zoom8,#zoom16):checked~.frame .fine{display:inline}\n"
    ":is(#zoom8,#zoom16):checked~.frame .coarse{display:none}\n"
    ":is(#zoom8,#zoom16):checked~.frame .narrow .a>rect:first-of-type{stroke:var(--page);stroke-width:.5}\n",
    timeline_drawing_style,
    /* Legend, table, print. */
    ".legend{display:flex;flex-wrap:wrap;gap:6px 22px;align-items:center;margin:16px 0 22px 230px;font-size:12px}\n"
    ".legend span{display:inline-flex;align-items:center;gap:7px}\n"
    ".legend svg{flex:none}\n"
    "table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:4px 18px 4px 0;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}\n"
    "th{font-weight:600;color:var(--faint)}\n"
    "th:first-child,td:first-child,th:last-child,td:last-child{text-align:left}\n"
    ".lanes :is(th,td):last-child{text-align:right}.lanes{margin-bottom:22px}\n"
    "td:last-child{white-space:normal}\n"
    "td.over{color:var(--over);font-weight:650}\n"
    ".table{overflow-x:auto}\n"
    "@media print{*{print-color-adjust:exact;-webkit-print-color-adjust:exact}body{padding:0}\n"
    ".zoom,.zooms,.zoom+label{display:none}.plot{overflow:visible}.frame,.table{break-inside:avoid}}\n",
    NULL
};

/* A line at the mouse with its time; under the mouse, a micro-batch is marked by fading all others, a click keeps it.
 */
const char timeline_script[] =
    "const plot = document.querySelector('.plot > svg'), cursor = plot.querySelector('.cursor');\n"
    "const line = cursor.querySelector('line'), when = cursor.querySelector('text');\n"
    "const marks = document.head.appendChild(document.createElement('style'));\n"
    "let kept = false;\n"
    "const micro = target => (/ (m[0-9]+)$/.exec((target.closest('.a,.s') || plot).getAttribute('class')) || [])[1];\n"
    "const mark = name => { marks.textContent = name ? `.plot :is(.a,.s):not(.${name}){opacity:.15}` : ''; };\n"
    "plot.addEventListener('mouseover', event => { if (!kept) mark(micro(event.target)); });\n"
    "plot.addEventListener('mouseleave', () => { if (!kept) mark(); cursor.style.visibility = 'hidden'; });\n"
    "plot.addEventListener('click', event => { const name = micro(event.target); kept = Boolean(name); mark(name); "
    "});\n"
    "plot.addEventListener('mousemove', event => {\n"
    "    const box = plot.getBoundingClientRect(), x = event.clientX - box.left, share = x / box.width;\n"
    "    line.setAttribute('x1', x);\n"
    "    line.setAttribute('x2', x);\n"
    "    when.setAttribute('x', x);\n"
    "    when.setAttribute('text-anchor', share > 0.5 ? 'end' : 'start');\n"
    "    when.textContent = (share * plot.dataset.end).toPrecision(4) + ' ' + plot.dataset.unit;\n"
    "    cursor.style.visibility = 'visible';\n"
    "});\n";
