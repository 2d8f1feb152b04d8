// SPDX-License-Identifier: MIT
// Rules side by side: two to four models read one text, and the memory of one head of each is shown after the same token,
// with one scale of colours; where sizes agree, also as a difference from the first.

import { app, colourOf, firstValue, on, usesIds } from './app.js';
import { $, fill, guard, h } from './dom.js';
import { MapView, Strip, answersOf, largestOf, mapAfter, read, recallText, rightOf, signedScale, wordOf } from './stage.js';

const MOST = 4,
    SAMPLE = 'ROMEO:\nBut, soft! what light through yonder window breaks?';
const state = { models: [], layer: 0, head: 0, position: 0, ids: [], readings: [], example: null };
let parts = null,
    abort = null;

const modelsLike = first => app.models.filter(m => usesIds(m.id) === usesIds(first) && (!usesIds(first) || m.vocabulary === app.models.find(x => x.id === first).vocabulary));

function startModels() {
    const recall = app.models.find(m => m.recall && !m.plain_of),
        first = recall ?? app.models.find(m => !m.plain_of) ?? app.models[0];
    return first ? modelsLike(first.id).slice(0, 3).map(m => m.id) : [];
}

function drawPicks() {
    const like = modelsLike(state.models[0]);
    fill(
        parts.picks,
        ...state.models.map((id, i) => {
            const select = h(
                'select',
                {
                    'aria-label': `Model ${i + 1}`,
                    onchange: e => {
                        state.models[i] = e.target.value;
                        if (i === 0) state.models = state.models.filter(m => modelsLike(e.target.value).some(x => x.id === m));
                        guard(readAll)();
                    },
                },
                ...(i ? like : app.models).map(m => h('option', { value: m.id, text: m.id })),
            );
            select.value = id;
            return h('span', { class: 'pick' }, select, state.models.length > 2 && i ? h('button', { type: 'button', class: 'button small', text: '×', 'aria-label': `Without ${id}`, onclick: () => (state.models.splice(i, 1), guard(readAll)()) }) : null);
        }),
        state.models.length < Math.min(MOST, like.length)
            ? h('button', { type: 'button', class: 'button small', text: 'Add a model', onclick: () => (state.models.push(like.find(m => !state.models.includes(m.id)).id), guard(readAll)()) })
            : null,
    );
}

async function readAll() {
    abort?.abort();
    abort = new AbortController();
    const { signal } = abort,
        first = state.models[0];
    if (!first) return;
    drawPicks();
    parts.columns.setAttribute('aria-busy', 'true');
    const ids = usesIds(first);
    parts.text.hidden = ids && firstValue(first) > 0;
    try {
        if (ids && firstValue(first)) state.example = await recallText({ model: first.replace(/@plain$/, ''), pairs: 16, length: 64, seed: 3 });
        else state.example = null;
        const prompt = state.example ? state.example.ids : ids ? parts.text.value.trim().split(/[\s,]+/).map(Number) : parts.text.value || SAMPLE;
        state.readings = [];
        for (const model of state.models) state.readings.push({ model, recording: await read(model, prompt, signal) });
        state.ids = state.readings[0].recording.ids;
        state.position = state.ids.length;
        parts.slider.max = state.ids.length;
        const layers = Math.min(...state.readings.map(x => x.recording.layers.length));
        state.layer = Math.min(state.layer, layers - 1);
        fill(parts.layer, ...Array.from({ length: layers }, (_, l) => h('option', { value: l, text: `layer ${l}` })));
        parts.layer.value = state.layer = Math.max(state.layer, layers - 1);
        await drawAll();
    } catch (e) {
        if (e.name !== 'AbortError') throw e;
    }
}

async function drawAll() {
    const { signal } = abort,
        at = state.position,
        shown = [];
    for (const x of state.readings) {
        const about = x.recording.layers[state.layer];
        shown.push({ ...x, about, map: about?.parts.length && at ? await mapAfter(x.model, state.ids, at, state.layer, signal) : null });
        if (signal.aborted || at !== state.position) return;
    }
    const heads = Math.min(...shown.map(s => s.about?.heads || 1));
    state.head = Math.min(state.head, heads - 1);
    fill(parts.head, ...Array.from({ length: heads }, (_, k) => h('option', { value: k, text: `head ${k}` })));
    parts.head.value = state.head;
    parts.slider.value = at;
    parts.place.textContent = `${at} / ${state.ids.length}`;
    const first = firstValue(state.models[0]);
    parts.strip.set(state.ids.length, i => ({ text: first ? wordOf(state.ids[i], first) : shownLetter(state.readings[0].recording.texts[i], state.ids[i]), kind: first ? (state.ids[i] === 0 ? 'filler' : state.ids[i] < first ? 'key' : 'value') : 'letter', pale: i >= at, on: i === at - 1 }));
    const values = shown.map(s => s.map?.mean[state.head] ?? null),
        most = Math.max(1e-6, ...values.filter(Boolean).map(largestOf)),
        scale = signedScale(most);
    fill(
        parts.columns,
        ...shown.map((s, k) => {
            const dot = h('span', { class: 'dot' }),
                right = state.example ? rightOf(answersOf(s.recording, state.example.queries)) : null,
                scored = s.recording.logprobs.filter(Number.isFinite),
                view = new MapView(`${s.about?.parts[0] === 'mu' ? 'mean μ' : `memory ${s.about?.parts[0] ?? ''}`}`);
            dot.style.background = colourOf(s.model);
            const column = h('div', { class: 'rule' }, h('h4', {}, dot, ' ', h('bdi', { text: s.model })), h('p', { class: 'muted', text: `rule ${s.about?.rule ?? '–'}` }));
            if (values[k]) {
                view.set(values[k], s.map.rows, s.map.columns, scale);
                column.append(view.element);
            } else column.append(h('p', { class: 'muted', text: 'This layer keeps tokens, not a table.' }));
            if (k && values[k] && values[0] && values[k].length === values[0].length) {
                const difference = new MapView('minus the first');
                difference.set(values[k].map((v, i) => v - values[0][i]), s.map.rows, s.map.columns, scale);
                column.append(difference.element);
            }
            column.append(h('p', { class: 'say' }, right === null ? `${(-scored.reduce((a, b) => a + b, 0) / Math.max(1, scored.length) / Math.LN2).toFixed(2)} bits a token` : `${right} of ${state.example.queries.length} right`));
            return column;
        }),
    );
    parts.columns.setAttribute('aria-busy', 'false');
}
const shownLetter = (text, id) => (text === ' ' ? '␣' : text === '\n' ? '⏎' : (text ?? String(id)));

export function initRules(host) {
    parts = {
        picks: h('div', { class: 'row' }),
        text: h('textarea', { rows: 2, value: SAMPLE, 'aria-label': 'Text for all models' }),
        slider: h('input', { type: 'range', min: 1, max: 1, value: 1, 'aria-label': 'Tokens that were read' }),
        place: h('output', { class: 'num' }),
        layer: h('select', { 'aria-label': 'Layer' }),
        head: h('select', { 'aria-label': 'Head' }),
        strip: new Strip({ label: 'The text', onChoose: i => ((state.position = i + 1), guard(drawAll)()) }),
        columns: h('div', { class: 'rules' }),
    };
    const go = h('button', { type: 'button', class: 'button primary', id: 'rules-go', text: 'Read', onclick: guard(readAll) });
    host.append(
        h('section', { class: 'card', id: 'rules' }, h('h3', { text: 'Memories side by side' }), h('p', { class: 'muted', text: 'One text, the same token, the same scale of colours.' }), parts.picks, parts.text, h('div', { class: 'row walk' }, go, parts.layer, parts.head, parts.slider, parts.place), parts.strip.element, parts.columns),
    );
    parts.layer.addEventListener('change', () => ((state.layer = Number(parts.layer.value)), guard(drawAll)()));
    parts.head.addEventListener('change', () => ((state.head = Number(parts.head.value)), guard(drawAll)()));
    parts.slider.addEventListener('input', () => ((state.position = Number(parts.slider.value)), guard(drawAll)()));
    on('models', () => {
        state.models = startModels();
        if (state.models.length) drawPicks();
    });
    on('theme', () => state.readings.length && app.view === 'compare' && guard(drawAll)());
}
