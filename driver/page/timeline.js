/* timeline.js -- the timeline in the page of `mpc report --html`: what each rank computes when, its messages, its waits,
 * its memory, over one axis of time.  Only what is in sight is drawn, so a page may have any number of bars. */
const COMPUTES = 0, UNDER_WAY = 1, PHASES = 4; /* kinds of bars; classes from PHASES on are other kernels */
const LETTERS = 'FBW', DONE = ['forward', 'backward', 'weight gradients'];
const AXIS = 22, MEMORY_HEAD = 40, STAGGER = 6, FINE_ZOOM = 8;

/* How high things are, for so many ranks. */
function layout_of(t) {
    const sizes = [[1, 44, 16, 19, 44], [8, 34, 12, 19, 44], [32, 24, 6, 9, 26], [Infinity, 16, 4, 5, 14]];
    const [, row, lane, gap, strip] = sizes.find(([ranks]) => t.ranks.length <= ranks);
    const lanes = (t.lanes || []).length, each = row + (lanes ? 2 + lanes * lane : 0) + gap, rows = AXIS + 8;
    const strips = rows + t.ranks.length * each - gap + MEMORY_HEAD;
    const end = t.micro_batches ? strips + t.ranks.length * (strip + gap) - gap : strips - MEMORY_HEAD;
    return { row, lane, gap, strip, strips, height: end + 6 + AXIS, row_at: rank => rows + rank * each,
        lane_at: (rank, i) => rows + rank * each + row + 2 + i * lane, strip_at: rank => strips + rank * (strip + gap) };
}

const peak_of = rank => most(rank.memory.map(level => level[1]));
const in_units = (t, time) => (time - t.from) / t.unit_seconds;
const told = (t, time) => `${Number(in_units(t, time).toPrecision(5))} ${t.unit}`;

class TimelineView {
    constructor(t, plot) {
        Object.assign(this, { t, plot, zoom: 1, l: layout_of(t), pipeline: t.micro_batches > 0, kept: null });
        this.svg = plot.appendChild(draw('svg', { role: 'img', 'aria-label': t.subject }));
        this.scale = 1.08 * most(t.ranks.map(peak_of));
        const room = (report.pipeline || {}).capacity_bytes;
        this.room = room && room < 3 * this.scale ? room : 0;
        this.scale = Math.max(this.scale, 1.08 * this.room) || 1;
        plot.addEventListener('scroll', () => this.draw());
        window.addEventListener('resize', () => this.draw());
        this.svg.addEventListener('mousemove', event => this.show_cursor(event));
        this.svg.addEventListener('mouseleave', () => this.cursor.replaceChildren());
        this.svg.addEventListener('click', event => this.keep(event.target.closest('.a')));
    }

    x(time) { return Math.round(10 * (time - this.t.from) / (this.t.to - this.t.from || 1) * this.width) / 10; }

    /* Adds a box over a time, and its text under the mouse; null where it is out of sight. */
    box(style, from, to, y, height, text) {
        const x = this.x(from), width = Math.max(.4, this.x(to) - x);
        if (x > this.right || x + width < this.left)
            return null;
        return draw('rect', { class: style, x, width, y, height: Math.max(1, height) }, text && draw('title', {}, text));
    }

    /* --- Rows ------------------------------------------------------------------------------------------------ */

    bars(rank, list, from) {
        const { t, l } = this, boxes = [];
        for (const [kind, lane, start, end, taken, number] of list || []) {
            const works = kind === COMPUTES, room = works ? l.row : l.lane - 1;
            const height = room * Math.min(1, taken / (end - start || 1)), top = works ? l.row_at(rank) : l.lane_at(rank, lane);
            const text = `${kind > UNDER_WAY ? 'waits for ' : ''}${t.texts[number]}; ${seconds(taken)} from ${told(t, from + start)} on`;
            const bar = this.box(`${'cuw'[kind]}${lane}`, from + start, from + end, works && lane >= PHASES ? top : top + room - height, height, text);
            const line = line_of(t.texts[number]);
            if (bar && line)
                bar.dataset.line = line;
            if (bar)
                boxes.push([kind, bar]);
        }
        return boxes.sort((a, b) => a[0] - b[0]).map(([, bar]) => bar); /* waits lie on what they wait for */
    }

    /* Where an action is a few pixels wide, its messages are one bar a lane. */
    bars_of_action(rank, level, kind, stage, start, end) {
        const list = (level.action[kind] || [])[stage] || [];
        if (this.x(end) - this.x(start) >= 12)
            return this.bars(rank, list, start);
        const lanes = new Map();
        for (const [what, lane, , , taken] of list)
            if (what > UNDER_WAY)
                lanes.set(lane, (lanes.get(lane) || 0) + taken);
        return [...lanes].map(([lane, taken]) => {
            const room = this.l.lane - 1, height = room * Math.min(1, taken / (end - start));
            return this.box(`w${lane}`, start, end, this.l.lane_at(rank, lane) + room - height, height);
        });
    }

    action(rank, level, [kind, stage, micro, start, end]) {
        const { t, l } = this, chunk = Math.floor(stage / t.ranks.length), stagger = t.chunks > 1 ? STAGGER : 0;
        const y = l.row_at(rank) + (stagger ? chunk * stagger / (t.chunks - 1) : 0), height = l.row - stagger;
        const name = `${LETTERS[kind]}${micro}`, width = this.x(end) - this.x(start);
        const text = `${DONE[kind]} of micro-batch ${micro}, stage ${stage}, on rank ${rank}: ${told(t, start)} to ${told(t, end)}`;
        const box = this.box('', start, end, y, height, text);
        if (!box)
            return null;
        const middle = (this.x(start) + this.x(end)) / 2, two = t.chunks > 1 && l.row >= 30, fits = width >= 7.6 * name.length + 2;
        return draw('g', { class: `a ${LETTERS[kind]} m${micro}`, 'data-m': micro }, box,
            kind === 2 && this.box('hatch', start, end, y, height),
            fits && draw('text', { x: middle, y: y + height / 2 + (two ? -1 : 4) }, name),
            fits && two && draw('text', { class: 'small', x: middle, y: y + height / 2 + 9 }, `s${stage}`),
            level && this.bars_of_action(rank, level, kind, stage, start, end));
    }

    /* Between its own work before the pipeline, its actions, and its work after them. */
    idle(rank, level) {
        const { t, l } = this, gaps = [], actions = t.ranks[rank].actions;
        const busy = (list, from) => most((list || []).filter(bar => bar[0] !== UNDER_WAY).map(bar => bar[3] + from - t.from)) + t.from;
        let free = level ? busy(level.before[rank], t.from) : t.from;
        const gap = (from, to) => to > from && gaps.push(this.box('idle', from, to, l.row_at(rank), l.row, `rank ${rank} idle: ${told(t, from)} to ${told(t, to)}`));
        for (const [, , , start, end] of actions) {
            gap(free, start);
            free = end;
        }
        gap(level ? Math.max(free, busy(level.after[rank], 0)) : free, t.to);
        return gaps;
    }

    /* From the edge of the sender's row to that of the receiver's. */
    sends() {
        const { t, l } = this, holder = new Map(), lines = [];
        t.ranks.forEach((rank, number) => rank.actions.forEach(action => holder.set(action[1], number)));
        t.ranks.forEach((rank, from) => {
            for (const [kind, stage, micro, , end] of rank.actions) {
                const to = holder.get(stage + (kind ? -1 : 1)), there = end + t.message;
                if (kind > 1 || to === undefined || to === from || this.x(there) < this.left || this.x(end) > this.right)
                    continue;
                lines.push(draw('line', { class: `s ${LETTERS[kind]} m${micro}`, x1: this.x(end), x2: this.x(there),
                    y1: l.row_at(from) + (to > from ? l.row : 0), y2: l.row_at(to) + (to > from ? 0 : l.row) }));
            }
        });
        return lines;
    }

    /* Where the gradients of a stage begin to be reduced. */
    reductions(rank) {
        const last = new Map();
        for (const [, stage, , , end] of this.t.reduces ? this.t.ranks[rank].actions : [])
            last.set(stage, Math.max(end, last.get(stage) || 0));
        return [...last].map(([stage, end]) => draw('svg', { class: 'reduction', x: this.x(end), y: this.l.row_at(rank) + this.l.row, overflow: 'visible' },
            draw('title', {}, `the gradients of stage ${stage} are reduced from ${told(this.t, end)} on`), draw('path', { d: 'M0 0L-5 5L5 5Z' })));
    }

    row(rank) {
        const { t, l } = this, level = t.levels && t.levels[this.zoom >= FINE_ZOOM ? t.levels.length - 1 : 0], group = draw('g');
        (t.lanes || []).forEach((name, i) => group.append(draw('rect', { class: 'lane', x: 0, width: this.width, y: l.lane_at(rank, i), height: l.lane - 1 })));
        const parts = [this.pipeline && this.idle(rank, level), t.ranks[rank].actions.map(action => this.action(rank, level, action)),
            level && draw('g', { class: 'bars' }, this.bars(rank, level.before[rank], t.from)),
            level && draw('g', { class: 'bars' }, this.bars(rank, level.after[rank], 0)), this.reductions(rank)];
        return fill(group, {}, parts.flat().filter(Boolean));
    }

    /* --- Memory, axis ------------------------------------------------------------------------------------------ */

    strip(rank) {
        const { t, l, scale } = this, top = l.strip_at(rank), { memory, fixed_bytes: fixed } = t.ranks[rank];
        const y = held => Math.round(10 * (top + l.strip * (1 - held / scale))) / 10;
        const path = floor => `M0 ${y(floor)}${memory.map(([time, held]) => `H${this.x(Math.max(time, t.from))}V${y(Math.max(floor, held))}`).join('')}H${this.width}V${y(floor)}Z`;
        const peak = peak_of(t.ranks[rank]), when = memory.find(level => level[1] === peak)[0];
        return draw('g', { class: 'memory' }, draw('title', {}, `rank ${rank}: peak ${bytes(peak)} at ${told(t, when)}, ${bytes(fixed)} of these fixed`),
            draw('rect', { class: 'strip', x: 0, width: this.width, y: top, height: l.strip }),
            draw('rect', { class: 'fixed', x: 0, width: this.width, y: y(fixed), height: top + l.strip - y(fixed) }),
            draw('path', { class: 'flight', d: path(fixed) }),
            this.room > 0 && peak > this.room > 0 && draw('path', { class: 'over', d: path(Math.max(fixed, this.room)) }),
            this.room > 0 && draw('line', { class: 'capacity', x1: 0, x2: this.width, y1: y(this.room), y2: y(this.room) }),
            draw('circle', { class: 'peak', cx: this.x(when), cy: y(peak), r: 2.5 }));
    }

    axis() {
        const { t, l } = this, span = in_units(t, t.to), parts = Math.max(2, Math.floor(this.width / 80)), step = tick_step(span, parts);
        const group = draw('g', { class: 'axis' });
        for (let tick = 0; tick * step <= span * (1 + 1e-9); tick++) {
            const x = this.width * tick * step / (span || 1), anchor = !tick ? 'start' : x > this.width - 20 ? 'end' : 'middle';
            if (x < this.left || x > this.right)
                continue;
            const number = Number((tick * step).toPrecision(6));
            group.append(draw('line', { x1: x, x2: x, y1: AXIS - 4, y2: l.height - AXIS + 2 }),
                draw('text', { x, y: AXIS - 9, 'text-anchor': anchor }, number), draw('text', { x, y: l.height - 6, 'text-anchor': anchor }, number));
        }
        return group;
    }

    /* --- All, and what the reader does --------------------------------------------------------------------------- */

    draw() {
        const { plot, svg, t, l } = this, seen = plot.clientWidth, ranks = t.ranks.map((rank, i) => i);
        const pattern = draw('pattern', { id: 'hatch', width: 5, height: 5, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
            draw('rect', { class: 'ink', width: 1.6, height: 5 }));
        this.width = seen * this.zoom;
        this.left = plot.scrollLeft - seen / 2;
        this.right = plot.scrollLeft + 1.5 * seen;
        this.cursor = draw('g', { class: 'cursor' });
        const shortest = Math.min(Infinity, ...t.ranks.flatMap(rank => rank.actions.map(action => action[4] - action[3])));
        svg.setAttribute('class', this.x(t.from + shortest) < 5 ? 'narrow' : 'wide');
        svg.setAttribute('width', this.width);
        svg.setAttribute('height', l.height);
        svg.replaceChildren(draw('defs', {}, pattern), this.axis(), ...this.pipeline ? this.sends() : [], ...ranks.map(rank => this.row(rank)),
            ...this.pipeline ? ranks.map(rank => this.strip(rank)) : [], this.cursor);
        this.mark(this.kept);
    }

    mark(micro) {
        for (const element of this.svg.querySelectorAll('.a, .s'))
            element.style.opacity = micro === null || element.classList.contains(`m${micro}`) ? '' : .15;
    }

    keep(action) {
        this.kept = action && action.dataset.m !== this.kept ? action.dataset.m : null;
        this.mark(this.kept);
    }

    show_cursor(event) {
        const x = event.clientX - this.svg.getBoundingClientRect().left, right = x - this.plot.scrollLeft > this.plot.clientWidth / 2;
        const time = this.t.from + (this.t.to - this.t.from) * x / this.width;
        this.cursor.replaceChildren(draw('line', { x1: x, x2: x, y1: AXIS - 4, y2: this.l.height - AXIS }),
            draw('text', { x: x + (right ? -3 : 3), y: AXIS - 9, 'text-anchor': right ? 'end' : 'start' }, told(this.t, time)));
    }
}

/* --- What is around it --------------------------------------------------------------------------------------------- */

/* Each micro-batch has a hue, beginning at blue. */
function hues(micros) {
    let rules = '';
    for (let micro = 0; micro < micros; micro++)
        rules += `.m${micro}{--h:${(250 + 360 * micro / micros).toFixed(1)}}`;
    document.head.append(tag('style', {}, rules));
}

function names_of(view) {
    const { t, l } = view, names = tag('div', { class: `names ${l.row < 30 ? 'low' : ''}` });
    const name = (top, height, title, ...children) =>
        names.append(tag('div', { style: `top:${top}px;height:${height}px`, title }, ...children));
    name(0, AXIS, '', tag('span', {}, `time in ${t.unit}`));
    t.ranks.forEach((rank, i) => {
        name(l.row_at(i), l.row, rank.holds, tag('b', {}, rank.name), tag('span', {}, rank.holds));
        (l.lane >= 9 ? t.lanes || [] : []).forEach((lane, number) => {
            name(l.lane_at(i, number), l.lane, lane, tag('span', {}, lane));
            names.lastChild.classList.add('lane');
        });
        if (view.pipeline)
            name(l.strip_at(i), l.strip, '', tag('b', {}, rank.name), tag('span', { class: view.room && peak_of(rank) > view.room ? 'over' : '' }, bytes(peak_of(rank))));
    });
    if (view.pipeline)
        name(l.strips - 36, 32, '', tag('b', {}, 'memory'), tag('span', {}, `to ${bytes(view.scale)}`));
    return names;
}

const swatch = (meaning, ...drawing) => tag('span', {}, draw('svg', { width: 26, height: 16 }, ...drawing), meaning);
const box_of = style => draw('rect', { class: style, width: 26, height: 16 });
const action_of = kind => draw('g', { class: `a ${LETTERS[kind]} m0` }, draw('rect', { width: 26, height: 16 }),
    kind === 2 && draw('rect', { class: 'hatch', width: 26, height: 16 }), draw('text', { x: 13, y: 12 }, LETTERS[kind]));

function pipeline_legend(t, view) {
    const strip = draw('svg', { width: 128, height: 16 });
    for (let micro = 0; micro < t.micro_batches; micro++)
        strip.append(draw('g', { class: `B m${micro}` }, draw('rect', { x: 128 * micro / t.micro_batches, width: 128 / t.micro_batches, height: 16 })));
    const line = kind => draw('line', { class: `s ${kind} m0`, x1: 0, x2: 26, y1: 8, y2: 8 });
    return [swatch('forward', action_of(0)), swatch(t.splits_backward ? 'backward, to activations' : 'backward', action_of(1)),
        t.splits_backward && swatch('backward, to weights', action_of(2)), swatch('idle', box_of('idle')),
        t.reduces && swatch('from there on, gradients are reduced', draw('g', { class: 'reduction' }, draw('path', { d: 'M13 5L8 10L18 10Z' }))),
        t.chunks > 1 && tag('span', {}, 'lower boxes: later stages of the rank'),
        tag('span', {}, 'micro-batch 0', strip, t.micro_batches - 1),
        t.ranks.length > 1 && swatch('sends activations', line('F')), t.ranks.length > 1 && swatch('sends gradients', line('B')),
        swatch('memory held all the step', box_of('fixed')), swatch('activations in flight', box_of('flight')),
        view.room > 0 && swatch(`capacity, ${bytes(view.room)}`, draw('line', { class: 'capacity', x1: 0, x2: 26, y1: 8, y2: 8 }))];
}

function step_legend(t) {
    const half = style => draw('rect', { class: style, y: 4, width: 26, height: 8 });
    return [...t.classes.map((name, i) => name && swatch(name, box_of(`c${i}`))),
        t.lanes.length > 0 && swatch(`a message is under way beside computation (${t.lanes.join('; ')}${t.lanes.length > 1 ? ', from above' : ''})`, half('u0')),
        t.lanes.length > 0 && swatch('the rank waits for it', half('w0')), tag('span', {}, 'short ones are one bar: its height is their share of its time')];
}

function ranks_table(t) {
    const { ranks, capacity_bytes: room } = report.pipeline;
    const cell = (text, style) => tag('td', { class: style }, text);
    return tag('div', { class: 'table' }, tag('table', {}, tag('tr', {}, ['rank', 'idle', 'in flight', 'fixed', 'peak'].map(name => tag('th', {}, name)),
        room && tag('th', {}, 'of capacity'), tag('th', { class: 'text' }, 'stages')),
    ranks.map((rank, i) => tag('tr', {}, cell(i), cell(percent(rank.idle, 1)), cell(rank.in_flight), cell(bytes(rank.fixed_bytes)), cell(bytes(rank.peak_bytes)),
        room && cell(percent(rank.peak_bytes, room), rank.peak_bytes > room ? 'over' : ''), cell(t.ranks[i].holds, 'text')))));
}

function show_timeline() {
    const t = report.timeline, section = at('timeline');
    if (!t) {
        section.append(tag('p', {}, `${report.no_timeline ? `${report.no_timeline}: there is no picture of its schedule. ` : ''}With --machine NAME|FILE, this page has the timeline of the step: computation, messages, waits.`));
        return;
    }
    hues(t.micro_batches || 0);
    const plot = tag('div', { class: 'plot' }), view = new TimelineView(t, plot);
    const zooms = tag('div', { class: 'zooms' }, 'zoom', [1, 2, 4, 8, 16, 64].map(zoom => tag('button', { type: 'button', value: zoom, 'aria-pressed': zoom === 1 }, zoom === 1 ? 'all' : `${zoom}\u00d7`)));
    zooms.addEventListener('click', event => {
        if (!event.target.value)
            return;
        const share = plot.scrollLeft / view.width;
        view.zoom = Number(event.target.value);
        for (const button of zooms.children)
            button.setAttribute('aria-pressed', button === event.target);
        view.draw();
        plot.scrollLeft = share * view.width;
    });
    section.append(tag('p', {}, t.rate || 'Messages over other axes are drawn with --machine NAME|FILE.'), zooms, tag('div', { class: 'frame' }, names_of(view), plot),
        tag('div', { class: 'legend' }, view.pipeline ? pipeline_legend(t, view) : [], t.levels ? step_legend(t) : []),
        report.pipeline ? ranks_table(t) : '');
    view.draw();
}
