// SPDX-License-Identifier: MIT
// What a report adds to web/chart.js, which stands before it in the same script: curves that show their values take the
// place of the pictures. Where scripts do not run, and on paper, the pictures stay.

const darkness = matchMedia('(prefers-color-scheme: dark)'),
    themeNow = () => (darkness.matches ? THEMES.dark : THEMES.light),
    redrawn = [];

for (const data of document.querySelectorAll('.panels script')) {
    const panel = data.parentElement,
        chart = JSON.parse(data.textContent),
        host = document.createElement('div');
    host.className = 'chart';
    panel.append(host);
    panel.classList.add('live');
    panel.removeAttribute('role');
    panel.removeAttribute('aria-label');
    const mounted = mountChart(host, { themeNow, height: 300 });
    mounted.set(chart);
    redrawn.push(() => mounted.set({ ...chart }));
}
darkness.addEventListener('change', () => redrawn.forEach(redraw => redraw()));
