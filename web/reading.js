// SPDX-License-Identifier: MIT
// Where each layer reads from at the chosen token: the whole stack in one picture, a strip of the text for every layer that
// remembers or attends. Memories and attention are shown alike, because both read a weighted sum of what tokens wrote.

import * as api from './api.js';
import { app, choose, emit, modelNamed, on, setLayer, setPosition, theme, usesIds } from './app.js';
import { drawHeat, percentText } from './chart.js';
import { $, fill, guard, h, perFrame, visible } from './dom.js';
import { layerName } from './recording.js';

const FREE = 2e9, // parameters times tokens that are worked out without being asked
    MOST = 4096; // tokens

const found = new WeakMap(); // by recording: { token, layers }
export const readingOf = r => found.get(r) ?? null;
let asking = null; // { recording, token }

async function work(c, token) {
    const r = c.recording;
    if (asking) return;
    asking = { recording: r, token };
    drawReading();
    try {
        const answer = await api.attribution({ model: c.model, prompt: r.ids.slice(0, token + 1) });
        found.set(r, { token, layers: answer.layers });
    } finally {
        asking = null;
        emit('reading');
    }
}

// Of all heads together, the size of each token's share; of one head, its share with its sign.
export function strip(layer, head = null) {
    if (head !== null) return Float32Array.from(layer.shares[head] ?? []);
    const out = new Float32Array(layer.shares[0].length);
    for (const shares of layer.shares) shares.forEach((s, t) => (out[t] += Math.abs(s) / layer.shares.length));
    return out;
}

export function strongest(values, count) {
    return Array.from(values, (share, token) => ({ share, token }))
        .sort((a, b) => Math.abs(b.share) - Math.abs(a.share) || a.token - b.token)
        .slice(0, count);
}

function pieceOf(c, i) {
    const r = c.recording;
    if (usesIds(c.model)) return String(r.ids[i]);
    const short = r.texts[i].length < 3; // letters say little alone
    return visible(short ? r.texts.slice(Math.max(0, i - 3), i + 1).join('') : r.texts[i]);
}

const drawReading = perFrame(() => {
    const c = app.current,
        card = $('reading');
    if (!c || app.view !== 'talk') return;
    const r = c.recording,
        i = app.chosen;
    $('memory-scroll').classList.toggle('empty', !r.layers.length);
    const say = text => fill(card, h('p', { class: 'muted', text }));
    if (!r.ids.length) return say('Nothing is read yet.');
    if (i === null || i >= r.ids.length) return say('Choose a token in the text: here you will see which tokens each layer reads there.');
    if (c.base) return say('This text continues from a kept memory, whose tokens are not known here.');
    if (i >= MOST) return say(`Only the first ${MOST} tokens of a text can be worked out.`);
    const now = readingOf(r);
    if (now?.token !== i) {
        const cost = (modelNamed(c.model)?.parameters ?? 0) * (i + 1);
        if (asking) return say('Working out which tokens are read …');
        if (app.busy) return say('When the text is read, this shows which tokens are read here.');
        if (cost > FREE) return fill(card, h('button', { type: 'button', class: 'button', text: 'Work out which tokens are read here', onclick: guard(() => work(c, i)) }));
        guard(work)(c, i);
        return undefined;
    }
    const t = theme(),
        open = now.layers.find(l => l.layer === app.layer),
        head = open && app.head < open.shares.length ? app.head : 0;
    const rows = now.layers.map(l => {
        const one = l === open,
            values = strip(l, one ? head : null),
            most = Math.max(...values.map(Math.abs), 1e-9),
            canvas = h('canvas', { class: 'strip-map' });
        drawHeat(canvas, values, 1, values.length, { lo: -most, hi: most, log: false }, 'signed', t);
        const top = strongest(values, 1)[0];
        return h(
            'button',
            {
                type: 'button',
                class: `stack-row ${l.rule === 'attention' ? 'attends' : 'remembers'}`,
                'aria-pressed': String(one),
                'aria-label': `layer ${l.layer}, ${l.rule}: reads most from “${pieceOf(c, top.token)}”, ${percentText(Math.abs(top.share))}`,
                onclick: guard(() => setLayer(l.layer)),
            },
            h('span', { class: 'num', text: `${l.layer}` }),
            h('span', { class: 'kind', text: r.layers[l.layer] ? layerName(r.layers[l.layer]) : l.rule }),
            canvas,
        );
    });
    fill(
        card,
        h('div', { class: 'stack-rows', role: 'group', 'aria-label': 'Layers' }, ...rows),
        h('div', { class: 'stack-ends muted', 'aria-hidden': 'true' }, h('span', { text: 'first token' }), h('span', { text: `“${pieceOf(c, i)}”` })),
        open
            ? h(
                  'div',
                  { class: 'read-list' },
                  h('p', { class: 'muted', text: `Layer ${open.layer}, head ${head}: the shares of all ${i + 1} tokens add up to 100%${open.error < 1e-6 ? '' : ` within ${open.error.toExponential(0)}`}.` }),
                  h(
                      'ol',
                      { class: 'writers' },
                      ...strongest(strip(open, head), 6).map(s =>
                          h('li', {}, h('button', { type: 'button', onclick: () => (choose(s.token), setPosition(r.start + s.token + 1)) }, h('bdi', { class: 'piece', text: pieceOf(c, s.token) })), h('span', { class: 'num', text: percentText(s.share) })),
                      ),
                  ),
              )
            : null,
    );
    return undefined;
});

export function initReading() {
    on('element conversation', () => $('history-card').classList.toggle('no-element', !app.element));
    on('chosen conversation layer busy theme view tokens reading', drawReading);
}
