// SPDX-License-Identifier: MIT
// What chapters are built of: a text that a model reads, its memory at any place, what it answers, and who wrote what is
// read. Everything comes from the live model (api.js); nothing is recorded.

import * as api from './api.js';
import { theme } from './app.js';
import { drawHeat, drawScaleBar, shortText } from './chart.js';
import { h } from './dom.js';
import { Recording, unpackMap } from './recording.js';

// ---- words: keys of a recall model are syllables, values numbers, and the rest is filler

const CONSONANTS = ['b', 'd', 'f', 'g', 'h', 'j', 'k', 'l', 'm', 'n', 'p', 'r', 's', 't', 'v', 'w', 'z', 'br', 'dr', 'kl', 'sh', 'st', 'tr', 'pl', 'gr', 'fl'];
const VOWELS = ['a', 'e', 'i', 'o', 'u'];
export function wordOf(id, first) {
    if (!id) return '·';
    if (id >= first) return String(id - first);
    const i = id - 1;
    return CONSONANTS[i % CONSONANTS.length] + VOWELS[Math.floor(i / CONSONANTS.length) % VOWELS.length];
}

// ---- a text in a model

// Reads a whole text; the recording has tokens, alternatives and tiles of every token.
export async function read(model, prompt, signal, observe = {}) {
    const recording = new Recording(model);
    await api.observe(
        { model, prompt, max_tokens: 1, temperature: 0, logprobs: 5, observe: { tiles: true, every: 1, ...observe } },
        e => {
            if (e.type === 'token' && !e.prompt) recording.next = e;
            else recording.apply(e);
        },
        signal,
    );
    return recording;
}

// The memory of one layer after `position` tokens of a text.
export async function mapAfter(model, ids, position, layer, signal) {
    let map = null;
    const prompt = ids.slice(0, position + 1);
    if (prompt.length <= position) prompt.push(0); // that token is named, and not read
    await api.observe(
        {
            model,
            prompt,
            max_tokens: 0,
            echo: false,
            observe: { tiles: false, from: position - 1, map: { layer, heads: 'all', size: 64 } },
        },
        e => {
            if (e.type === 'map') map = unpackMap(e);
        },
        signal,
    );
    return map;
}

export const recallText = query => api.recall(query);
export const attributionOf = (model, ids, signal) => api.attribution({ model, prompt: ids }, { signal });

// What the model says at each question: [{ position, key, value, said }].
export function answersOf(recording, queries) {
    return queries.map(q => {
        const i = q.position + 1,
            top = i < recording.ids.length ? recording.tops[i] : recording.next?.top;
        return { ...q, said: top?.[0]?.[0] ?? null };
    });
}
export const rightOf = answers => answers.filter(a => a.said === a.value).length;

// The head that reads pairs: the one that takes the largest share from the value that was written with the key, over the
// first questions of an example.
export async function readingHead(model, example, signal) {
    const sums = new Map();
    for (const q of example.queries.slice(0, 4)) {
        const found = await attributionOf(model, example.ids.slice(0, q.position + 1), signal),
            written = example.ids.indexOf(q.key) + 1;
        for (const l of found.layers)
            l.shares.forEach((shares, head) => {
                const at = `${l.layer} ${head}`;
                sums.set(at, (sums.get(at) ?? 0) + shares[written]);
            });
    }
    const [layer, head] = [...sums].reduce((a, b) => (b[1] > a[1] ? b : a))[0].split(' ').map(Number);
    return { layer, head };
}

// ---- parts of a stage

// Tokens in a row that wraps. look(i) -> { text, kind, note, good, on, pale, title }
export class Strip {
    constructor({ label, onChoose = null }) {
        this.onChoose = onChoose;
        this.items = [];
        this.element = h('ol', { class: 'strip', 'aria-label': label });
    }
    set(count, look) {
        while (this.items.length > count) this.items.pop().remove();
        while (this.items.length < count) {
            const i = this.items.length,
                item = h('li', {}, this.onChoose ? h('button', { type: 'button', onclick: () => this.onChoose(i) }) : h('span'));
            this.items.push(item);
            this.element.append(item);
        }
        this.items.forEach((item, i) => {
            const l = look(i),
                inner = item.firstChild;
            const name = ['chip', l.kind, l.on ? 'on' : '', l.pale ? 'pale' : '', l.good === true ? 'good' : l.good === false ? 'bad' : ''].filter(Boolean).join(' ');
            if (inner.className !== name) inner.className = name;
            const note = l.note ?? '';
            if (inner.dataset.text !== `${l.text}|${note}`) {
                inner.dataset.text = `${l.text}|${note}`;
                inner.replaceChildren(l.text, ...(note ? [h('small', { text: note })] : []));
            }
            if (l.title !== undefined) inner.title = l.title;
            inner.style.setProperty('--share', l.share ?? 0);
            if (this.onChoose) inner.setAttribute('aria-pressed', String(!!l.on));
        });
    }
    place(i) {
        const item = this.items[i],
            box = this.element.getBoundingClientRect(),
            own = item.getBoundingClientRect();
        return { x: own.left - box.left + own.width / 2, top: own.top - box.top, bottom: own.bottom - box.top };
    }
}

// One head of a memory, large, with its scale. part: 'mean', 'importance', or values of one's own.
export class MapView {
    constructor(title, { kind = 'signed', note = '' } = {}) {
        this.kind = kind;
        this.canvas = h('canvas', { class: 'heat', role: 'img' });
        this.bar = h('canvas', { class: 'ramp', 'aria-hidden': 'true' });
        this.low = h('span', { class: 'num' });
        this.high = h('span', { class: 'num' });
        this.note = h('span', { class: 'muted', text: note });
        this.title = title;
        this.element = h(
            'figure',
            { class: 'map' },
            h('figcaption', {}, h('b', { text: title }), this.note),
            h('div', { class: 'frame' }, this.canvas),
            h('div', { class: 'axis' }, h('span', { class: 'muted', text: `rows: keys · columns: values · ${kind === 'heat' ? 'bright: important' : 'amber: above zero, violet: below'}` }), h('span', { class: 'scale' }, this.low, this.bar, this.high)),
        );
    }
    set(values, rows, columns, scale, words = '') {
        const t = theme();
        drawHeat(this.canvas, values, rows, columns, scale, this.kind, t);
        drawScaleBar(this.bar, this.kind, t);
        this.canvas.style.aspectRatio = `${columns} / ${rows}`;
        this.low.textContent = shortText(scale.lo);
        this.high.textContent = shortText(scale.hi);
        this.canvas.setAttribute('aria-label', `${this.title}: ${rows} keys by ${columns} values, from ${shortText(scale.lo)} to ${shortText(scale.hi)}. ${words}`);
    }
}

export function largestOf(values) {
    let most = 0;
    for (const v of values) if (Math.abs(v) > most) most = Math.abs(v);
    return most || 1e-6;
}
export const signedScale = most => ({ lo: -most, hi: most, log: false });

// Arcs from one token of a strip to others, as wide as their shares.
export class Arcs {
    constructor(strip) {
        this.strip = strip;
        this.svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
        this.svg.setAttribute('class', 'arcs');
        this.svg.setAttribute('aria-hidden', 'true');
        this.element = h('div', { class: 'with-arcs' }, strip.element);
        this.element.append(this.svg);
        this.last = null;
        new ResizeObserver(() => this.last && this.draw(...this.last)).observe(this.element);
    }
    draw(to, shares, least = 0.03) {
        this.last = [to, shares, least];
        this.svg.replaceChildren();
        if (to === null || !this.strip.items[to]) return;
        const end = this.strip.place(to);
        shares.forEach((share, i) => {
            if (Math.abs(share) < least || i === to) return;
            const start = this.strip.place(i),
                path = document.createElementNS('http://www.w3.org/2000/svg', 'path'),
                same = Math.abs(start.top - end.top) < 4,
                lift = same ? Math.min(46, 14 + Math.abs(end.x - start.x) / 9) : 0;
            const d = same
                ? `M ${start.x} ${start.top} C ${start.x} ${start.top - lift} ${end.x} ${end.top - lift} ${end.x} ${end.top}`
                : `M ${start.x} ${start.bottom} C ${start.x} ${start.bottom + 26} ${end.x} ${end.top - 26} ${end.x} ${end.top}`;
            path.setAttribute('d', d);
            path.setAttribute('class', share < 0 ? 'against' : 'with');
            path.setAttribute('stroke-width', Math.max(1, 7 * Math.min(1, Math.abs(share))));
            this.svg.append(path);
        });
    }
}

// A row of numbers with labels.
export function facts(list) {
    return h('dl', { class: 'facts' }, ...list.flatMap(([label, node]) => [h('div', {}, h('dt', { text: label }), h('dd', {}, node))]));
}

export const calm = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

// Calls step(i) for first .. last, one every so many milliseconds, until stop() or the signal.
export class Player {
    constructor(step, { pace = 170, onState = () => {} } = {}) {
        Object.assign(this, { step, pace, onState, timer: 0, running: false });
    }
    async play(from, to, signal) {
        this.stop();
        const run = (this.current = {});
        this.running = true;
        this.onState(true);
        for (let i = from; i <= to && this.current === run && !signal?.aborted; i++) {
            await this.step(i);
            if (i < to) await new Promise(done => (this.timer = setTimeout(done, this.pace)));
        }
        if (this.current === run) this.stop();
    }
    stop() {
        clearTimeout(this.timer);
        this.current = null;
        if (this.running) this.onState(false);
        this.running = false;
    }
}
