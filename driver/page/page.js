/* page.js -- draws the page of `mpc report --html` from the report's JSON: tiles, memory over the step, what the peak is
 * made of, layers, messages, and the text of the model, which every bar leads to.  timeline.js draws the timeline. */
'use strict';
const report = JSON.parse(document.getElementById('report').textContent);
const at = id => document.getElementById(id);

/* --- Elements, amounts ---------------------------------------------------------------------------------- */

function fill(element, attributes, children) {
    for (const [key, value] of Object.entries(attributes || {}))
        if (value !== undefined && value !== null && value !== false)
            element.setAttribute(key, value);
    element.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
    return element;
}
const tag = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const draw = (name, attributes, ...children) =>
    fill(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);

function amount(number, unit) { /* as ir/amount.c */
    const prefixes = ['', 'k', 'M', 'G', 'T', 'P', 'E'];
    let i = 0;
    for (; number >= 999.5 && i < prefixes.length - 1; i++)
        number /= 1000;
    return `${number.toFixed(i ? 2 : 0)} ${prefixes[i]}${unit}`;
}
const bytes = number => amount(number, 'B');
const seconds = number => number >= 1 ? `${number.toFixed(3)} s` : number >= 1e-3 ? `${(1e3 * number).toFixed(3)} ms`
    : `${(1e6 * number).toFixed(1)} us`;
const grouped = number => Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, ',');
const counted = (number, noun) => `${grouped(number)} ${noun}${number === 1 ? '' : 's'}`;
const percent = (part, all) => `${(all > 0 ? 100 * part / all : 0).toFixed(1)} %`;
const sum = list => list.reduce((all, one) => all + one, 0);
const most = list => list.reduce((a, b) => b > a ? b : a, 0);

function tick_step(span, parts) {
    if (!(span > 0))
        return 1;
    for (let power = 10 ** Math.floor(Math.log10(span / parts)); ; power *= 10)
        for (const step of [1, 2, 5])
            if (span <= step * power * parts)
                return step * power;
}

/* --- The text of the model -------------------------------------------------------------------------------- */

const file = report.source.split('/').pop();
const text_lines = report.text.replace(/\n$/, '').split('\n');

/* "chars.mdl:33:12" -> 33; null: it is in no line of this file. */
function line_of(where) {
    const found = /([^ ]+):(\d+):\d+$/.exec(where || '');
    const line = found && found[1] === file ? Number(found[2]) : 0;
    return line >= 1 && line <= text_lines.length ? line : null;
}

function choose(line, scrolls) {
    document.querySelectorAll('.chosen').forEach(element => element.classList.remove('chosen'));
    if (!line)
        return;
    document.querySelectorAll(`[data-line="${line}"]`).forEach(element => element.classList.add('chosen'));
    const source = at('source'), shown = source.children[line - 1];
    shown.classList.add('chosen');
    if (scrolls)
        source.scrollTop = shown.offsetTop - source.offsetTop - source.clientHeight / 2;
}

/* Marks all that is of a line of the model, and shows that; from the text: the first figure of the line. */
document.addEventListener('click', event => {
    const figure = event.target.closest('[data-line]'), line = event.target.closest('#source li.used');
    if (figure)
        choose(figure.dataset.line, true);
    if (line) {
        const number = [...at('source').children].indexOf(line) + 1;
        choose(number, false);
        document.querySelector(`.row[data-line="${number}"], [data-line="${number}"]`).scrollIntoView({ block: 'center' });
    }
});
document.addEventListener('keydown', event => {
    if (event.key === 'Enter' && event.target.closest && event.target.closest('[data-line]'))
        choose(event.target.closest('[data-line]').dataset.line, true);
});

function show_source() {
    at('file').textContent = file;
    at('source').append(...text_lines.map(line => tag('li', {}, line || ' ')));
}

function mark_used_lines() {
    for (const element of document.querySelectorAll('[data-line]'))
        at('source').children[element.dataset.line - 1].classList.add('used');
}

/* A row that leads to a line, if it has one. */
const row = (where, attributes, ...children) =>
    tag('div', { ...attributes, class: `row ${attributes.class || ''}`, 'data-line': line_of(where), tabindex: line_of(where) && 0 }, ...children);
const place = where => where ? ` ${where.replace(`${file}:`, 'line ').replace(/:\d+$/, '')}` : '';

/* The axes that split a type are what one looks for in it. */
function type_of(text) {
    const parts = text.split(/(\/[a-z_0-9+]+|partial\([^)]*\))/);
    return parts.map((part, i) => i % 2 ? tag('span', { class: 'axis-name' }, part.replace(/^\//, '')) : part);
}

/* --- Tiles ---------------------------------------------------------------------------------------------------- */

const tile = (name, figure, more, over) =>
    tag('div', { class: 'tile' }, tag('span', {}, name), tag('b', { class: over ? 'over' : undefined }, figure), tag('span', {}, more));

function memory_tile() {
    const lack = report.does_not_fit, room = lack ? lack.room_bytes : report.time && report.time.memory_room_bytes;
    const kind = report.memory_over_step.rank_kind;
    const whose = kind === 'all' ? (report.mesh.ranks > 1 ? 'of each rank' : 'of the rank') : `of the ranks with ${kind}`;
    const needed = lack ? lack.needed_bytes : report.time ? report.time.memory_bytes : report.memory.arena;
    return tile('Memory', bytes(needed), room ? `${whose}: ${percent(needed, room)} of ${bytes(room)}` : whose, Boolean(lack));
}

function show_tiles() {
    const { time, pipeline, communication, work, mesh } = report, tiles = [];
    if (time) {
        const rate = time.tokens_per_second || time.records_per_second;
        const unit = time.tokens_per_second ? 'tokens/s' : 'records/s';
        tiles.push(tile(`Step on ${time.machine}`, seconds(time.seconds),
            `${grouped(Math.floor(rate))} ${unit}, MFU ${percent(time.mfu, 1)} in ${time.mfu_precision}`));
        if (time.axes.length)
            tiles.push(tile('Waits for messages', percent(time.parts.messages, time.seconds),
                `${seconds(time.parts.messages)}; they take ${seconds(sum(time.axes.map(row => row.seconds)))}`));
    }
    if (pipeline)
        tiles.push(tile('Bubble', `${(100 * pipeline.bubble).toFixed(2)} %`, pipeline.published_bubble === undefined
            ? 'share of the makespan that the busiest rank idles'
            : `by the published formula ${(100 * pipeline.published_bubble).toFixed(2)} %, if stages cost the same and messages nothing`));
    tiles.push(memory_tile());
    tiles.push(tile('Parameters', amount(report.parameters, ''), `${counted(report.tokens, 'token')} in ${counted(report.micro_batches, 'micro-batch').replace('batchs', 'batches')}`));
    tiles.push(tile('Work of a rank', amount(work.rank, 'FLOP'), `a step; ${percent(work.alike, work.rank)} is done by other ranks, too`));
    if (mesh.ranks > 1)
        tiles.push(tile('Sent by a rank', bytes(communication.sent), 'a step'));
    at('tiles').append(...tiles);
}

/* --- Memory over the step --------------------------------------------------------------------------------------- */

const classes = report.memory_over_step.classes;

function legend_of_classes(shown) {
    return tag('div', { class: 'legend' }, shown.map(i => tag('span', {}, tag('i', { class: `k${i}` }), classes[i])));
}

/* Gradients and states without a line of their own have that of their weight. */
const where_of_weight = new Map(report.weights.map(weight => [weight.name.replaceAll('.*', ''), weight.where]));
const where_of = op => op.where || where_of_weight.get(op.op.replace(/^(grad|norm)\./, '')) || '';

function memory_text(op) {
    const parts = op.bytes.map((held, i) => held ? `${classes[i]} ${bytes(held)}` : '').filter(Boolean);
    const runs = op.times > 1 ? `, ${grouped(op.times)} times a step` : '';
    return `${bytes(sum(op.bytes))} while ${op.op}${place(where_of(op))} runs, in ${op.function}${runs}: ${parts.join(', ')}`;
}

/* Neighbours in one function: a loop's body is there once. */
function bands_of(ops) {
    const bands = [];
    ops.forEach((op, i) => {
        if (!bands.length || bands.at(-1).name !== op.function)
            bands.push({ name: op.function, from: i, times: op.times });
        bands.at(-1).to = i + 1;
    });
    return bands;
}

function area(heights, floors, x, y) {
    let path = '';
    heights.forEach((height, i) => { path += `${i ? 'L' : 'M'}${x(i)} ${y(height)}H${x(i + 1)}`; });
    for (let i = heights.length - 1; i >= 0; i--)
        path += `L${x(i + 1)} ${y(floors[i])}H${x(i)}`;
    return `${path}Z`;
}

function draw_memory(chart, note) {
    const LEFT = 64, TOP = 30, HEIGHT = 250, ops = report.memory_over_step.ops, width = Math.max(chart.clientWidth, 260);
    const top = most(ops.map(op => sum(op.bytes))), step = tick_step(top, 5);
    const room = report.time ? report.time.memory_room_bytes : (report.does_not_fit || {}).room_bytes;
    const scale = room && room < 2 * top ? Math.max(room, top) : top;
    const round = number => Math.round(10 * number) / 10;
    const x = i => round(LEFT + (width - LEFT) * i / ops.length), y = value => round(TOP + HEIGHT * (1 - value / scale));
    chart.replaceChildren();
    fill(chart, { viewBox: `0 0 ${width} ${TOP + HEIGHT + 6}`, height: TOP + HEIGHT + 6 }, []);
    bands_of(ops).forEach((band, i) => {
        const label = band.times > 1 ? `${band.name} \u00d7${grouped(band.times)}` : band.name;
        if (i % 2)
            chart.append(draw('rect', { class: 'band', x: x(band.from), width: x(band.to) - x(band.from), y: TOP - 22, height: HEIGHT + 22 }));
        if (6.6 * label.length < x(band.to) - x(band.from))
            chart.append(draw('text', { x: (x(band.from) + x(band.to)) / 2, y: TOP - 9, 'text-anchor': 'middle' }, label));
    });
    for (let tick = 0; tick <= scale; tick += step)
        chart.append(draw('line', { class: 'grid', x1: LEFT, x2: width, y1: y(tick), y2: y(tick) }),
            draw('text', { x: LEFT - 6, y: y(tick) + 4, 'text-anchor': 'end' }, tick ? bytes(tick) : '0'));
    let floors = ops.map(() => 0);
    classes.forEach((name, i) => {
        const heights = ops.map((op, number) => floors[number] + op.bytes[i]);
        if (heights.some((height, number) => height > floors[number]))
            chart.append(draw('path', { class: `k${i}`, d: area(heights, floors, x, y) }));
        floors = heights;
    });
    if (room && room <= scale)
        chart.append(draw('line', { class: 'capacity', x1: LEFT, x2: width, y1: y(room), y2: y(room) }));
    ops.forEach((op, i) => {
        const bar = draw('rect', { class: 'bar', x: x(i), width: Math.max(.5, x(i + 1) - x(i)), y: TOP, height: HEIGHT,
            'data-line': line_of(where_of(op)) }, draw('title', {}, memory_text(op)));
        bar.addEventListener('mouseenter', () => { note.textContent = memory_text(op); });
        bar.addEventListener('click', () => { note.textContent = memory_text(op); });
        chart.append(bar);
    });
    const peak = ops.findIndex(op => sum(op.bytes) === top);
    chart.append(draw('circle', { class: 'top', cx: (x(peak) + x(peak + 1)) / 2, cy: y(top), r: 3.5 }));
    note.textContent = `Peak: ${memory_text(ops[peak])}`;
}

function show_memory() {
    const ops = report.memory_over_step.ops, used = classes.map((name, i) => i).filter(i => ops.some(op => op.bytes[i]));
    if (!ops.length)
        return;
    const chart = draw('svg', { class: 'chart', role: 'img', 'aria-label': 'memory over the step' }), note = tag('div', { class: 'note' });
    const kind = report.memory_over_step.rank_kind === 'all' ? '' : `, on the ranks with ${report.memory_over_step.rank_kind}`;
    at('memory').append(tag('p', {}, `What is in use while each line runs, in the order of the program${kind}. The body of a loop is there once.`),
        chart, note, legend_of_classes(used));
    const redraw = () => draw_memory(chart, note);
    redraw();
    window.addEventListener('resize', redraw);
}

/* --- What the peak is made of ------------------------------------------------------------------------------------ */

function stack(parts, all) { /* [class, bytes, name] */
    return tag('div', { class: 'stack' }, parts.filter(part => part[1] > 0).map(([style, held, name]) =>
        tag('span', { class: style, style: `width:${(100 * held / all).toFixed(3)}%`, title: `${name}: ${bytes(held)}` })));
}

function meter(value, all, text, style) {
    return tag('div', { class: `meter ${style || ''}` }, text, tag('u', { style: `width:${all > 0 ? (100 * value / all).toFixed(2) : 0}%` }));
}

/* A row for each list, of those that make most of it; the others are one. */
function show_tensors() {
    const MOST = 16, held = [...report.memory.tensors].sort((a, b) => b.bytes - a.bytes), rest = held.slice(MOST);
    const rows = held.slice(0, MOST).map(one => row(one.where, {},
        tag('div', { class: 'name' }, tag('b', {}, one.name), tag('span', {}, place(one.where)), tag('br'), type_of(one.type || one.value)),
        tag('div', { class: 'meters' }, tag('div', { class: 'meter' }, `${bytes(one.bytes)}, ${one.class}`,
            tag('u', { class: `k${classes.indexOf(one.class)}`, style: `width:${(100 * one.bytes / held[0].bytes).toFixed(2)}%` })))));
    at('peak').append(tag('h3', {}, 'The largest tensors at the peak'), tag('div', { class: 'rows' }, rows));
    if (rest.length)
        at('peak').append(tag('p', {}, `and ${counted(rest.length, 'other')}, with ${bytes(sum(rest.map(one => one.bytes)))}`));
}

const KIND_PARTS = [['weights', 'k1'], ['gradients', 'k2'], ['optimizer', 'k3'], ['slots', 'k5'], ['rest', 'k6']];
const KIND_NAMES = { weights: 'weights', gradients: 'gradients', optimizer: 'optimizer state', slots: 'slots of micro-batches', rest: 'other' };

function show_kinds() {
    const kinds = report.memory.kinds, largest = most(kinds.map(kind => kind.arena));
    if (kinds.length < 2)
        return;
    at('peak').append(tag('h3', {}, 'Each kind of rank at its peak'), tag('div', { class: 'kinds' }, kinds.map(kind => [
        tag('b', {}, kind.name), stack(KIND_PARTS.map(([key, style]) => [style, kind[key], KIND_NAMES[key]]), largest), tag('span', {}, bytes(kind.arena))])),
        tag('div', { class: 'legend' }, KIND_PARTS.map(([key, style]) => tag('span', {}, tag('i', { class: style }), KIND_NAMES[key]))));
}

function show_peak() {
    const { memory } = report, line = line_of(memory.peak.where);
    const parts = classes.map((name, i) => [`k${i}`, memory.classes[name], name]);
    parts.push(['k7', memory.unused, 'not in use at the peak']);
    const beside = [['messages', memory.messages], ['products', memory.products || 0]].filter(part => part[1] > 0);
    const all = memory.arena + sum(beside.map(part => part[1]));
    parts.push(...beside.map(([name, held]) => ['k8', held, `beside it, for ${name}`]));
    at('peak').append(tag('p', { 'data-line': line }, `${bytes(memory.arena)}, while ${memory.peak.op}${place(memory.peak.where)} runs, in ${memory.peak.function}`),
        stack(parts, all), tag('div', { class: 'legend' }, parts.filter(part => part[1] > 0).map(([style, held, name]) =>
            tag('span', {}, tag('i', { class: style }), `${name} ${bytes(held)}`))));
    if (memory.offloaded)
        at('peak').append(tag('p', {}, `${bytes(memory.offloaded.bytes)} more are on the ${memory.offloaded.tier}; a step reads ${bytes(memory.offloaded.read)} of them and writes ${bytes(memory.offloaded.written)}`));
    show_remedies();
    show_faster();
    show_kinds();
    show_tensors();
}

function show_remedies() {
    const lack = report.does_not_fit;
    if (!lack)
        return;
    at('peak').append(tag('h3', {}, `It does not fit: ${bytes(lack.needed_bytes)} of ${bytes(lack.room_bytes)}`),
        tag('div', { class: 'rows' }, lack.remedies.map(one => row('', {}, tag('div', { class: 'name' }, tag('b', {}, one.options)),
            meter(one.memory_bytes, lack.needed_bytes, bytes(one.memory_bytes))))));
}

function show_faster() {
    const all = report.faster || [];
    if (all.length)
        at('peak').append(tag('h3', {}, `The step of ${seconds(report.time.seconds)} waits for offloaded tensors; faster`),
            tag('div', { class: 'rows', id: 'faster' }, all.map(one => row('', {}, tag('div', { class: 'name' }, tag('b', {}, one.options)),
                meter(one.seconds, report.time.seconds, `${seconds(one.seconds)}, ${bytes(one.memory_bytes)}`)))));
}

/* --- Layers --------------------------------------------------------------------------------------------------------- */

/* Where weights stand: before the first line of what they are in. */
function with_weights(lines) {
    const waiting = report.weights.map(weight => ({ ...weight, name: weight.name.replaceAll('.*', '') })), rows = [];
    for (const line of lines) {
        for (let i = 0; i < waiting.length; i++) {
            const parent = waiting[i].name.replace(/\.?[^.]*$/, '');
            if (line.op === parent || line.op.startsWith(`${parent}.`) || (!parent && line.where === waiting[i].where)) {
                rows.push({ weight: waiting[i] });
                waiting.splice(i--, 1);
            }
        }
        rows.push({ line });
    }
    return [...waiting.map(weight => ({ weight })), ...rows];
}

/* What one line does for one value is one row, with the type that is made last. */
function joined_lines() {
    const joined = new Map();
    for (const line of report.lines.filter(one => one.forward)) {
        const key = `${line.op} ${line.where.replace(/:\d+$/, '')}`, before = joined.get(key);
        const messages = [before && before.messages, line.messages].filter(Boolean).join(', ').split(', ');
        joined.set(key, { ...line, parts: [...before ? before.parts : [], line], messages: [...new Set(messages)].join(', '),
            flops: line.flops + (before ? before.flops : 0), sent: line.sent + (before ? before.sent : 0) });
    }
    return [...joined.values()];
}

function show_layers() {
    const lines = joined_lines(), time = new Map();
    for (const one of report.time ? report.time.lines : [])
        time.set(`${one.op} ${one.where}`, sum(Object.entries(one).filter(([key]) => key !== 'op' && key !== 'where').map(([, value]) => value)));
    const of_time = line => sum(line.parts.map(part => time.get(`${part.op} ${part.where}`) || 0));
    const columns = [['FLOPs', '', line => line.flops, number => amount(number, '')]];
    if (report.mesh.ranks > 1)
        columns.push(['bytes sent', 'sent', line => line.sent, bytes]);
    if (report.time)
        columns.push(['time', 'time', of_time, seconds]);
    const tops = columns.map(([, , value]) => most(lines.map(value)));
    const head = row('', { class: 'head' }, tag('div', {}, 'value, or weight, with its type on a rank'),
        tag('div', { class: 'meters' }, columns.map(([name]) => tag('div', { class: 'meter' }, name))));
    const rows = with_weights(lines).map(({ weight, line }) => weight
        ? row(weight.where, { class: 'weight' }, tag('div', { class: 'name' }, tag('b', {}, weight.name), tag('span', {}, place(weight.where)),
            weight.trained ? '' : ' not trained', tag('br'), type_of(weight.type)))
        : row(line.where, {}, tag('div', { class: 'name' }, tag('b', {}, line.op), tag('span', {}, place(line.where)),
            line.times > 1 ? tag('span', {}, ` \u00d7${grouped(line.times)}`) : '', tag('br'), type_of(line.type),
            line.messages ? [tag('br'), tag('span', {}, line.messages)] : ''),
        tag('div', { class: 'meters' }, columns.map(([, style, value, text], i) => value(line) > 0
            ? meter(value(line), tops[i], text(value(line)), style) : tag('div', {})))));
    at('layers').append(tag('p', {}, 'In the order of the forward pass. FLOPs, bytes and seconds are those of a rank in a whole step: of the backward pass and the update, too.'),
        tag('div', { class: 'rows' }, head, rows));
}

/* --- Messages ---------------------------------------------------------------------------------------------------------- */

function axis_text(axes) {
    const time = ((report.time || {}).axes || []).find(one => one.axes === axes);
    return time ? `; they take ${seconds(time.seconds)}, of which ${seconds(time.exposed)} are waited for` : '';
}

function show_messages() {
    const rows = report.communication.collectives, top = most(rows.map(one => one.sent));
    if (!rows.length)
        return;
    at('messages').append(tag('p', {}, `${bytes(report.communication.sent)} a step`));
    for (const axes of new Set(rows.map(one => one.axes))) {
        const own = rows.filter(one => one.axes === axes);
        at('messages').append(tag('h3', {}, tag('span', { class: 'axis-name' }, axes || 'all'), ` ${counted(own[0].group, 'rank')}: ${bytes(sum(own.map(one => one.sent)))}${axis_text(axes)}`),
            tag('div', { class: 'rows' }, own.map(one => row(one.first.where, {},
                tag('div', { class: 'name' }, tag('b', {}, one.collective), ` of ${one.class}, ${one.dtype}, by ${one.cause}`, tag('br'),
                    tag('span', {}, `first: ${one.first.op || one.collective}${place(one.first.where)}, `), type_of(one.first.from), ' \u2192 ', type_of(one.first.to)),
                meter(one.sent, top, `${bytes(one.sent)} in ${grouped(one.messages)} messages, ${grouped(one.tensors)} tensors`, 'sent')))));
    }
}

/* --- All of it --------------------------------------------------------------------------------------------------------------- */

function show_all() {
    document.title = at('title').textContent = report.title;
    at('subject').textContent = report.timeline ? report.timeline.subject : counted(report.mesh.ranks, 'rank');
    show_source();
    show_tiles();
    show_timeline();
    show_memory();
    show_peak();
    show_layers();
    show_messages();
    mark_used_lines();
    choose(line_of(report.memory.peak.where), true);
}
window.addEventListener('DOMContentLoaded', show_all);
