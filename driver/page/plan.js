/* plan.js -- shows the reasons of a layout, which are the title of its point for readers without a script. */
const about = document.querySelector('.about'); /* none where no layout was compiled: then there are no points */
for (const point of document.querySelectorAll('.point')) {
    const text = point.querySelector('title').textContent;
    point.addEventListener('mouseenter', () => { about.textContent = text; });
    point.addEventListener('click', () => {
        const block = document.getElementById('layout' + point.dataset.place);
        if (block) { block.open = true; block.scrollIntoView({ block: 'center' }); }
    });
}
