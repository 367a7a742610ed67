/* charts.js -- a line at the mouse, with the step and the number of each curve there. */
const invert = (axis, at) => {
    const [log, low, high, from, to] = axis.split(' ').map(Number), share = (at - from) / (to - from);
    return log ? low * (high / low) ** share : low + (high - low) * share;
};
const text = number => Math.abs(number) >= 1e4 ? Math.round(number).toLocaleString('en') : String(Number(number.toPrecision(4)));
const points = path => path.points ||= [...path.getAttribute('d').matchAll(/[ML]([-0-9.]+),([-0-9.]+)/g)]
    .map(point => [Number(point[1]), Number(point[2])]);
for (const chart of document.querySelectorAll('.charts svg')) {
    const cursor = chart.querySelector('.cursor'), label = cursor.querySelector('text');
    chart.addEventListener('mouseleave', () => { cursor.style.visibility = 'hidden'; });
    chart.addEventListener('mousemove', event => {
        const box = chart.getBoundingClientRect(), view = chart.viewBox.baseVal;
        const x = (event.clientX - box.left) * view.width / box.width;
        const shown = [...chart.querySelectorAll('g[data-x]')].find(g => getComputedStyle(g).display !== 'none');
        const [, , , left, right] = shown.dataset.x.split(' ').map(Number);
        cursor.style.visibility = x < left || x > right ? 'hidden' : 'visible';
        cursor.setAttribute('transform', `translate(${x} 0)`);
        const found = [...shown.querySelectorAll('.smooth')].map(path => points(path).reduce(
            (best, point) => Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best, [Infinity, NaN]));
        const numbers = found.filter(point => Math.abs(point[0] - x) < 8)
            .map(point => text(invert(shown.dataset.y, point[1])));
        label.textContent = `step ${text(Math.round(invert(shown.dataset.x, x)))}: ${numbers.join(', ')}`;
        label.setAttribute('text-anchor', x > (left + right) / 2 ? 'end' : 'start');
        label.setAttribute('dx', x > (left + right) / 2 ? -6 : 6);
    });
}
