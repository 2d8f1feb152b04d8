// SPDX-License-Identifier: MIT
// Runs of a directory: curves that grow while training runs, several runs in one plot.

import * as api from './api.js';
import { app, on, theme } from './app.js';
import { modelColours, mountChart, numberText, seriesColour, smooth } from './chart.js';
import { $, fill, h, perFrame } from './dom.js';

// title, keys (the second is dashed), label of y, logarithmic by nature, noisy
const PANELS = [
    ['Loss', ['loss', 'valid_loss'], 'loss (nats)', false, true],
    ['Accuracy', ['accuracy', 'valid_accuracy'], 'accuracy', false, true],
    ['Perplexity', ['token_perplexity'], 'perplexity', false, false],
    ['Memory window', ['n_t'], 'mean window Nₜ (tokens)', true, true],
    ['Metaplasticity ratio', ['ratio'], '(Imax − Imin) / Imin', false, true],
    ['Scale of importance', ['b_scale'], 'b scale', false, true],
    ['Learning rate', ['lr'], 'learning rate', false, false],
    ['Gradient', ['grad_norm'], 'norm of the gradient', false, true],
    ['Speed', ['tokens_per_s'], 'tokens/s', false, true],
];
const FIRST = 6; // the rest is shown on demand

export const training = {
    runs: [],
    rows: new Map(),
    selected: new Set(),
    x: 'step',
    logX: false,
    logY: false,
    smooth: 1,
    more: false,
    missing: false,
};
let charts = [],
    parts,
    timer = 0;

const isNumber = v => typeof v === 'number' && Number.isFinite(v);
export function meanOf(v) {
    if (!Array.isArray(v)) return isNumber(v) ? v : null;
    const finite = v.flat(Infinity).filter(isNumber);
    return finite.length ? finite.reduce((a, b) => a + b, 0) / finite.length : null;
}

// Rows that come later win when steps go back, as after resuming from an older checkpoint.
export function addRows(rows, more) {
    for (const row of more) {
        if (!isNumber(row?.step)) continue;
        while (rows.length && rows[rows.length - 1].step >= row.step) rows.pop();
        let seconds = row.seconds;
        if (!isNumber(seconds)) {
            // added up from tokens and speed, as the figures do
            const last = rows[rows.length - 1],
                tokens = (row.tokens ?? 0) - (last?.tokens ?? 0);
            seconds =
                (last?.seconds ?? 0) +
                (isNumber(row.tokens_per_s) && row.tokens_per_s > 0 ? tokens / row.tokens_per_s : 0);
        }
        rows.push({ ...row, seconds });
    }
    return rows;
}

export function modelOfRun(run) {
    const m = run.settings?.model;
    return typeof m === 'string' ? m : (m?.name ?? m?.model_type ?? run.settings?.model_type ?? run.name);
}

function curve(rows, key, layer = null) {
    const x = [],
        y = [];
    for (const row of rows) {
        if (!(key in row)) continue;
        const at = row[training.x];
        if (!isNumber(at) || (training.logX && at <= 0)) continue;
        x.push(at);
        y.push(layer === null ? meanOf(row[key]) : isNumber(row[key]?.[layer]) ? row[key][layer] : null);
    }
    return { x, y };
}

export function panelChart([title, keys, label, log, noisy]) {
    const shown = training.runs.filter(r => training.selected.has(r.name)),
        colours = modelColours(training.runs.map(modelOfRun)),
        series = [];
    for (const run of shown) {
        const rows = training.rows.get(run.name)?.rows ?? [],
            colour = colours[training.runs.indexOf(run)];
        keys.forEach((key, k) => {
            const c = curve(rows, key);
            if (!c.y.some(isNumber)) return;
            const name = keys.length > 1 && k ? `${run.name}, validation` : run.name;
            if (noisy && training.smooth > 1 && k === 0)
                series.push({ label: name, x: c.x, y: c.y, colour, faint: true });
            series.push({
                label: name,
                x: c.x,
                y: noisy && k === 0 ? smooth(c.y, training.smooth) : c.y,
                colour,
                dashed: k > 0,
                unnamed: k > 0,
                points: c.x.length <= 30,
            });
            const lists = shown.length === 1 && rows.findLast(r => Array.isArray(r[key]))?.[key];
            if (lists && !k)
                lists.forEach((v, l) => {
                    if (!Array.isArray(v))
                        series.push({ ...curve(rows, key, l), label: `layer ${l}`, colour, quiet: true });
                });
        });
    }
    const xLabel = { step: 'step', tokens: 'tokens', seconds: 'seconds' }[training.x];
    return {
        title,
        x: { label: xLabel, log: training.logX },
        y: {
            label: series.some(s => s.dashed) ? `${label}; dashed: validation` : label,
            log: log || training.logY,
            ...(title === 'Accuracy' && !training.logY ? { max: 1 } : {}),
        },
        series,
    };
}

const draw = perFrame(() => {
    if (app.view !== 'training' || !parts) return;
    const colours = modelColours(training.runs.map(modelOfRun));
    const key = JSON.stringify([
        training.runs.map(r => [r.name, r.step, r.running]),
        [...training.selected],
        theme().paper,
    ]);
    if (parts.key !== key) {
        parts.key = key;
        const focus = document.activeElement?.dataset?.run;
        fill(
            parts.list,
            ...training.runs.map((r, i) => {
                const dot = h('span', { class: 'dot' }),
                    steps = r.settings?.steps;
                dot.style.background = seriesColour(theme(), colours[i]);
                return h(
                    'li',
                    {},
                    h(
                        'label',
                        { title: r.name },
                        h('input', {
                            type: 'checkbox',
                            checked: training.selected.has(r.name),
                            'data-run': r.name,
                            onchange: e => {
                                if (e.target.checked) training.selected.add(r.name);
                                else training.selected.delete(r.name);
                                follow();
                                draw();
                            },
                        }),
                        dot,
                        h('bdi', { text: r.name }),
                        h('small', {
                            text: r.running
                                ? `running, ${numberText(r.step)}${steps ? ` / ${numberText(steps)}` : ''}`
                                : r.step === null
                                  ? 'no steps'
                                  : `${numberText(r.step)} steps`,
                        }),
                    ),
                );
            }),
        );
        if (focus) parts.list.querySelector(`[data-run="${CSS.escape(focus)}"]`)?.focus();
    }
    parts.none.hidden = training.runs.length > 0;
    parts.none.textContent = training.missing
        ? 'This server has no directory of runs. Start it with: palimpsa serve MODEL --runs runs'
        : 'No run is here yet.';
    const panels = PANELS.map(panelChart);
    charts.forEach((c, i) => {
        const has = panels[i].series.length > 0 && (i < FIRST || training.more);
        c.card.hidden = !has;
        if (has) c.chart.set(panels[i]);
    });
});
export const drawTraining = draw;

async function follow() {
    for (const name of training.selected) {
        const entry = training.rows.get(name) ?? { rows: [], next: 0, asking: false };
        training.rows.set(name, entry);
        if (entry.asking) continue;
        entry.asking = true;
        try {
            for (let more = true; more;) {
                const a = await api.runRows(name, entry.next);
                if (a.reset) entry.rows = [];
                addRows(entry.rows, a.rows);
                more = a.more && a.next !== entry.next;
                entry.next = a.next;
            }
        } catch (e) {
            if (!(e instanceof api.ServerError)) throw e;
        } finally {
            entry.asking = false;
        }
        draw();
    }
}

async function refresh() {
    clearTimeout(timer);
    if (app.view !== 'training') return;
    try {
        training.runs = await api.runs();
        training.missing = false;
        if (!training.selected.size && !training.touched) {
            training.touched = true;
            for (const r of training.runs.slice(0, 4)) training.selected.add(r.name);
        }
        await follow();
    } catch (e) {
        if (!(e instanceof api.ServerError)) throw e;
        training.missing = e.status === 404;
    }
    draw();
    if (!document.hidden && !training.missing) timer = setTimeout(refresh, 2000);
}

export function initTraining() {
    const box = (label, get, set, id) =>
        h(
            'label',
            {},
            h('input', {
                type: 'checkbox',
                id,
                checked: get(),
                onchange: e => {
                    set(e.target.checked);
                    draw();
                },
            }),
            label,
        );
    const amount = h('output', { class: 'num muted', text: 'off' });
    parts = { list: h('ul', { class: 'runs' }), none: h('p', { class: 'muted' }) };
    charts = PANELS.map(([title]) => {
        const host = h('div'),
            card = h('section', { class: 'card', 'aria-label': title, hidden: true }, host);
        return { card, chart: mountChart(host, { themeNow: theme, height: 260 }) };
    });
    fill(
        $('view-training'),
        h('h2', { class: 'sr', text: 'Training' }),
        h(
            'div',
            { class: 'controls' },
            h(
                'label',
                {},
                'Over',
                h(
                    'select',
                    {
                        id: 'training-x',
                        onchange: e => {
                            training.x = e.target.value;
                            draw();
                        },
                    },
                    ...[
                        ['step', 'steps'],
                        ['tokens', 'tokens'],
                        ['seconds', 'time'],
                    ].map(([value, text]) => h('option', { value, text })),
                ),
            ),
            box(
                'log x',
                () => training.logX,
                v => {
                    training.logX = v;
                },
                'training-log-x',
            ),
            box(
                'log y',
                () => training.logY,
                v => {
                    training.logY = v;
                },
                'training-log-y',
            ),
            h(
                'label',
                {},
                'Smoothing',
                h('input', {
                    type: 'range',
                    id: 'training-smooth',
                    min: 1,
                    max: 51,
                    step: 2,
                    value: 1,
                    oninput: e => {
                        training.smooth = Number(e.target.value);
                        amount.textContent = training.smooth > 1 ? `${training.smooth} points` : 'off';
                        draw();
                    },
                }),
                amount,
            ),
            box(
                'all numbers',
                () => training.more,
                v => {
                    training.more = v;
                },
                'training-more',
            ),
        ),
        h(
            'div',
            { class: 'training' },
            h('section', { class: 'card', 'aria-label': 'Runs' }, h('h3', { text: 'Runs' }), parts.none, parts.list),
            h('div', { class: 'plots' }, ...charts.map(c => c.card)),
        ),
    );
    on('view', refresh);
    on('theme', draw);
    document.addEventListener('visibilitychange', () => {
        if (!document.hidden) refresh();
    });
}
export function syncTrainingControls() {
    $('training-x').value = training.x;
    $('training-log-x').checked = training.logX;
    $('training-log-y').checked = training.logY;
    $('training-smooth').value = training.smooth;
}
export const PANEL_LIST = PANELS,
    PANELS_FIRST = FIRST;
