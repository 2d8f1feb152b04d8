// SPDX-License-Identifier: MIT
// Two readings side by side: two models on one text (among them a model with its plasticity off), or two texts.

import * as api from './api.js';
import { app, colourNumber, colourOf, firstValue, on, theme, usesIds } from './app.js';
import { mountChart, numberText, percentText, runningPerplexity } from './chart.js';
import { $, bars, fill, guard, h, perFrame, visible } from './dom.js';
import { Recording } from './recording.js';
import { TokenText, shownText, surpriseLevel } from './text.js';
import { initRules } from './rules.js';

export const compare = { sides: [], queries: null, example: null, same: true, chosen: null, busy: false, abort: null };
let chart, parts;

const modelOptions = () => app.models.map(m => h('option', { value: m.id, text: m.id }));
const otherModel = first =>
    app.models.find(m => m.id === `${first}@plain`)?.id ?? app.models.find(m => m.id !== first)?.id ?? first;
const says = (r, i) => (i + 1 < r.ids.length ? r.tops[i + 1] : r.next?.top) ?? null; // what it expects after token i

function makeSide(n) {
    const s = { n, model: '', recording: new Recording('') };
    s.dot = h('span', { class: 'dot' });
    s.select = h('select', {
        'aria-label': `Model ${'AB'[n]}`,
        id: `compare-model-${n}`,
        onchange: e => {
            setModel(s, e.target.value);
        },
    });
    s.prompt = h('textarea', {
        rows: 3,
        'aria-label': n ? 'Second text' : 'Text',
        id: `compare-prompt-${n}`,
        placeholder: 'A text for both models to read',
    });
    s.host = h('div', {
        class: 'text',
        tabIndex: 0,
        role: 'group',
        'aria-roledescription': 'text of tokens',
        'aria-label': `Text ${'AB'[n]}: arrow keys choose a token`,
        id: `compare-text-${n}`,
    });
    s.summary = h('span', { class: 'muted num', id: `compare-summary-${n}` });
    s.element = h(
        'div',
        {},
        h(
            'div',
            { class: 'row' },
            h('label', { class: 'pick' }, s.dot, h('span', { class: 'sr', text: `Model ${'AB'[n]}` }), s.select),
            s.summary,
        ),
        s.host,
    );
    s.view = new TokenText(s.host, {
        look: i => look(s, i),
        chosen: () => compare.chosen,
        choose: i => {
            compare.chosen = i;
            draw();
        },
    });
    return s;
}

function setModel(s, model) {
    s.model = model;
    s.recording = new Recording(model);
    s.select.value = model;
    if (compare.example && compare.example.model !== model.replace(/@plain$/, ''))
        compare.example = compare.queries = null;
    draw();
}

function look(s, i) {
    const r = s.recording,
        level = surpriseLevel(r.logprobs[i]),
        query = compare.queries?.get(i);
    let name = 't';
    if (r.written[i]) name += ' w';
    if (i === compare.chosen) name += ' on';
    if (!usesIds(s.model)) return { className: level ? `${name} p${level}` : name, text: shownText(r.texts[i]) };
    const first = firstValue(s.model),
        id = r.ids[i];
    if (first) name += id === 0 ? ' f' : id < first ? ' k' : ' v';
    const said = query ? says(r, i)?.[0] : null;
    if (!said) return { className: name, text: first && id === 0 ? '·' : String(id) };
    const right = said[0] === query.value;
    return {
        className: name,
        text: String(id),
        note: `→ ${said[0]}`,
        mark: right ? '✓' : '✗',
        noteClass: right ? 'yes' : 'no',
    };
}

async function read(s, prompt, write) {
    s.recording = new Recording(s.model);
    s.view.clear(usesIds(s.model));
    const body = {
        model: s.model,
        prompt,
        max_tokens: write || 1,
        temperature: 0,
        logprobs: 10,
        observe: { tiles: false },
    };
    await api.observe(
        body,
        e => {
            if (!write && e.type === 'token' && !e.prompt) ((s.recording.next = e), s.recording.version++);
            else s.recording.apply(e);
            drawSoon();
        },
        compare.abort.signal,
    );
}

// While texts are read: five times a second.
let soon = 0;
function drawSoon() {
    soon ||= setTimeout(() => {
        soon = 0;
        draw();
    }, 200);
}

function idsOf(text, model) {
    if (!usesIds(model)) return text;
    const ids = text
        .trim()
        .split(/[\s,]+/)
        .map(Number);
    if (!ids.every(n => Number.isInteger(n) && n >= 0))
        throw new api.ServerError(400, 'A model without tokenizer reads numbers: write ids with blanks between them.');
    return ids;
}

export async function readBoth() {
    if (compare.busy) return;
    const [a, b] = compare.sides,
        textA = a.prompt.value,
        textB = compare.same ? textA : b.prompt.value;
    if (!textA.trim() || !textB.trim()) throw new api.ServerError(400, 'Write a text first.');
    if (compare.example && textA !== compare.example.ids.join(' ')) compare.queries = compare.example = null;
    const write = Math.max(0, Math.floor(Number(parts.write.value) || 0)); // 0: reads, and looks at what would come next
    const prompts = [idsOf(textA, a.model), idsOf(textB, b.model)];
    compare.busy = true;
    compare.abort = new AbortController();
    compare.chosen = null;
    drawBusy();
    try {
        await Promise.all([read(a, prompts[0], write), read(b, prompts[1], write)]);
    } catch (e) {
        compare.abort.abort(); // one reading that failed ends the other
        if (e.name !== 'AbortError') throw e;
    } finally {
        compare.busy = false;
        drawBusy();
        draw();
    }
}

async function recallBoth() {
    const e = await api.recall({
        model: compare.sides[0].model.replace(/@plain$/, ''),
        seed: 1 + Math.floor(Math.random() * 1e6),
    });
    setExample(e);
    await readBoth();
}
export function setExample(e) {
    compare.example = e;
    compare.queries = new Map(e.queries.map(q => [q.position, q]));
    compare.sides[0].prompt.value = e.ids.join(' ');
    setSame(true);
}

function setSame(same) {
    compare.same = same;
    parts.same.checked = same;
    compare.sides[1].prompt.hidden = same;
    compare.sides[0].prompt.placeholder = same ? 'A text for both to read' : 'The first text';
}

function drawBusy() {
    parts.go.disabled = parts.recall.disabled = compare.busy;
    parts.go.style.visibility = compare.busy ? 'hidden' : '';
    parts.stop.style.visibility = compare.busy ? '' : 'hidden';
}

// Where the two differ, most first: [{ i, what, a, b, size }]. Of a recall example its questions; else each token that both read.
export function differences([a, b], queries, count = 12) {
    const rows = [],
        probability = (top, id) => {
            const hit = top?.find(t => t[0] === id);
            return hit ? Math.exp(hit[2]) : 0;
        };
    if (queries)
        for (const [i, q] of queries) {
            const A = says(a, i),
                B = says(b, i);
            if (A && B)
                rows.push({
                    i,
                    id: q.value,
                    a: probability(A, q.value),
                    b: probability(B, q.value),
                    saysA: A[0],
                    saysB: B[0],
                });
        }
    else
        for (let i = 1; i < Math.min(a.ids.length, b.ids.length) && a.ids[i] === b.ids[i]; i++) {
            const [la, lb] = [a.logprobs[i], b.logprobs[i]];
            if (Number.isFinite(la) && Number.isFinite(lb))
                rows.push({
                    i,
                    id: a.ids[i],
                    a: Math.exp(la),
                    b: Math.exp(lb),
                    saysA: a.tops[i]?.[0],
                    saysB: b.tops[i]?.[0],
                });
        }
    const size = r => Math.abs(r.a - r.b);
    return rows.sort((x, y) => size(y) - size(x) || x.i - y.i).slice(0, count);
}

// Of a recall example: how likely each takes the right value to be, question by question.
function answersChart() {
    const rows = differences(
        compare.sides.map(s => s.recording),
        compare.queries,
        Infinity,
    ).sort((a, b) => a.i - b.i);
    const x = rows.map(r => r.i + 1),
        curve = (s, y) => ({ label: s.model, colour: colourNumber(s.model), x, y, points: true });
    return {
        x: { label: 'tokens read' },
        y: { label: 'probability of the right value', min: 0, max: 1 },
        series: rows.length
            ? [
                  curve(
                      compare.sides[0],
                      rows.map(r => r.a),
                  ),
                  curve(
                      compare.sides[1],
                      rows.map(r => r.b),
                  ),
              ]
            : [],
        cursor: compare.chosen === null ? null : compare.chosen + 1,
    };
}

export function comparisonChart() {
    return compare.queries ? answersChart() : perplexityChart();
}

function perplexityChart() {
    const series = compare.sides.map((s, n) => ({
        label: s.model === compare.sides[1 - n].model ? `${s.model}, text ${'AB'[n]}` : s.model,
        colour: colourNumber(s.model) + (n && s.model === compare.sides[0].model ? 7 : 0),
        x: s.recording.ids.map((_, i) => i + 1),
        y: runningPerplexity(s.recording.logprobs),
    }));
    return {
        x: { label: 'tokens' },
        y: { label: 'perplexity so far', log: true },
        series: series.filter(s => s.x.length),
        cursor: compare.chosen === null ? null : compare.chosen + 1,
    };
}

function summaryOf(s) {
    const r = s.recording,
        ppl = runningPerplexity(r.logprobs).pop();
    if (!r.ids.length) return '';
    if (compare.queries) {
        const asked = [...compare.queries].map(([i, q]) => [says(r, i)?.[0], q]).filter(([said]) => said);
        return `${asked.filter(([said, q]) => said[0] === q.value).length} of ${asked.length} right`;
    }
    return `${numberText(r.ids.length)} tokens, perplexity ${ppl ? ppl.toFixed(3) : '–'}`;
}

const draw = perFrame(() => {
    if (app.view !== 'compare' || !parts) return;
    const [a, b] = compare.sides;
    for (const s of compare.sides) {
        s.dot.style.background = colourOf(s.model);
        s.summary.textContent = summaryOf(s);
        s.view.ids = usesIds(s.model);
        s.view.sync(s.recording.texts);
        s.view.restyle();
    }
    parts.recall.hidden = !usesIds(a.model) || !firstValue(a.model);
    chart.set(comparisonChart());
    parts.chartTitle.textContent = compare.queries ? 'Answers' : 'Perplexity so far';
    const rows = differences([a.recording, b.recording], compare.queries),
        show = t => (t ? (usesIds(a.model) ? String(t[0]) : visible(t[1])) : '–');
    const label = i => (usesIds(a.model) ? String(a.recording.ids[i]) : visible(a.recording.texts[i]));
    parts.title.textContent = compare.queries
        ? 'Questions whose answers differ most'
        : 'Tokens whose probabilities differ most';
    fill(
        parts.table,
        h(
            'thead',
            {},
            h(
                'tr',
                {},
                h('th', { text: 'at' }),
                h('th', { text: compare.queries ? 'key asked' : 'token' }),
                compare.queries ? h('th', { text: 'right value' }) : null,
                h('th', { class: 'n', text: 'probability A' }),
                h('th', { class: 'n', text: 'B' }),
                h('th', { text: 'A expects' }),
                h('th', { text: 'B expects' }),
            ),
        ),
        h(
            'tbody',
            {},
            ...rows.map(r =>
                h(
                    'tr',
                    { class: r.i === compare.chosen ? 'on' : '' },
                    h(
                        'td',
                        {},
                        h('button', {
                            class: 'num',
                            text: String(r.i),
                            onclick: () => {
                                compare.chosen = r.i;
                                draw();
                                a.view.show(r.i);
                                b.view.show(r.i);
                            },
                        }),
                    ),
                    h('td', {}, h('bdi', { class: 'piece', text: label(r.i) })),
                    compare.queries ? h('td', { class: 'num', text: String(r.id) }) : null,
                    h('td', { class: 'n', text: percentText(r.a) }),
                    h('td', { class: 'n', text: percentText(r.b) }),
                    h('td', {}, h('bdi', { class: 'piece', text: show(r.saysA) })),
                    h('td', {}, h('bdi', { class: 'piece', text: show(r.saysB) })),
                ),
            ),
        ),
    );
    const i = compare.chosen;
    fill(
        parts.next,
        ...compare.sides.map(s => {
            const top =
                    i === null
                        ? null
                        : (s.recording.tops[compare.queries?.has(i) ? i + 1 : i] ??
                          (compare.queries?.has(i) ? s.recording.next?.top : null)),
                id = compare.queries?.get(i)?.value ?? s.recording.ids[i];
            const dot = h('span', { class: 'dot' });
            dot.style.background = colourOf(s.model);
            return h(
                'div',
                {},
                h('h3', {}, dot, ' ', h('bdi', { text: s.model })),
                top
                    ? bars(
                          top.slice(0, 6).map(([k, t, l]) => ({
                              label: usesIds(s.model) ? String(k) : visible(t),
                              share: Math.exp(l),
                              of: 1,
                              here: k === id,
                          })),
                          t => percentText(t.share),
                      )
                    : h('p', { class: 'muted', text: 'Choose a token to see what each expects there.' }),
            );
        }),
    );
});

export const drawCompare = draw;

export function initCompare() {
    compare.sides = [makeSide(0), makeSide(1)];
    parts = {
        go: h('button', { class: 'button primary', text: 'Read both', id: 'compare-go', onclick: guard(readBoth) }),
        stop: h('button', {
            class: 'button primary',
            text: 'Stop',
            id: 'compare-stop',
            onclick: () => compare.abort.abort(),
        }),
        recall: h('button', {
            class: 'button',
            text: 'Recall example',
            id: 'compare-recall',
            onclick: guard(recallBoth),
        }),
        same: h('input', {
            type: 'checkbox',
            checked: true,
            id: 'compare-same',
            onchange: e => {
                setSame(e.target.checked);
            },
        }),
        write: h('input', { type: 'number', min: 0, max: 4096, value: 0, id: 'compare-write' }),
        title: h('h3'),
        chartTitle: h('h3', { text: 'Perplexity so far' }),
        table: h('table', { class: 'diff', id: 'differences' }),
        next: h('div', { class: 'two' }),
    };
    const host = h('div');
    fill(
        $('view-compare'),
        h('h2', { class: 'sr', text: 'Compare' }),
        h(
            'div',
            { class: 'controls' },
            h('span', { class: 'stack' }, parts.go, parts.stop),
            parts.recall,
            h('label', {}, parts.same, 'one text for both'),
            h('label', {}, 'then write', parts.write, 'tokens'),
        ),
        h('div', { class: 'prompts' }, ...compare.sides.map(s => s.prompt)),
        h('div', { class: 'sides' }, ...compare.sides.map(s => s.element)),
        h(
            'div',
            { class: 'two' },
            h('section', { class: 'card' }, parts.chartTitle, host),
            h('section', { class: 'card' }, h('h3', { text: 'Expected next' }), parts.next),
        ),
        h('section', { class: 'card scroll-x' }, parts.title, parts.table),
    );
    initRules($('view-compare'));
    chart = mountChart(host, {
        themeNow: theme,
        height: 240,
        onPick: x => {
            compare.chosen = x - 1;
            draw();
        },
    });
    setSame(true);
    drawBusy();
    on('models', () => {
        for (const s of compare.sides) fill(s.select, ...modelOptions());
        if (!app.models.length) return;
        const first = app.models[0].id;
        if (!compare.sides[0].model) (setModel(compare.sides[0], first), setModel(compare.sides[1], otherModel(first)));
    });
    on('theme view', draw);
}
export { setModel as setCompareModel, setSame as setCompareSame };
