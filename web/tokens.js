// SPDX-License-Identifier: MIT
// The text in colours, and the card of a chosen token: its alternatives, variance by layer, and ways to continue from there.

import * as api from './api.js';
import { app, choose, firstValue, on, setPosition, usesIds } from './app.js';
import { numberText, percentText, shortText } from './chart.js';
import { $, bars, fill, guard, h, notice, perFrame, visible } from './dom.js';
import { fork, keep, rollBack } from './keep.js';
import { readingOf, strip } from './reading.js';
import { TokenText, shareLevel, shownText, surpriseLevel } from './text.js';

const COLOURS = [
    ['probability', 'by surprise', 'p'],
    ['uncertainty', 'by uncertainty', 'u'],
    ['write', 'by writing', 'w'],
    ['reading', 'by what is read', 'r'],
    ['none', 'none', ''],
];
const LEGEND = {
    probability: ['expected', 'surprising'],
    uncertainty: ['certain', 'uncertain'],
    write: ['little', 'much'],
    reading: ['not read', 'read'],
    none: ['', ''],
};

let view,
    tops = { uncertainty: 0, write: 0 },
    writes = null,
    reads = null,
    shownVersion = -1,
    shownStyle = '';

// ---- tokens

function answerOf(c, i) {
    // what the model says after token i
    const r = c.recording;
    return (i + 1 < r.ids.length ? r.tops[i + 1] : r.next?.top)?.[0] ?? null;
}

function queryAt(c, i) {
    return c.queries?.get(i + c.recording.start) ?? null;
}

function look(i) {
    const c = app.current,
        r = c.recording,
        kind = COLOURS.find(k => k[0] === app.colourBy)[2];
    let level = 0;
    if (kind === 'p') level = surpriseLevel(r.logprobs[i]);
    else if (kind === 'u') level = shareLevel(r.uncertainty[i], tops.uncertainty);
    else if (kind === 'w') level = shareLevel(writes?.[i], tops.write);
    else if (kind === 'r') level = shareLevel(reads?.[i], tops.read);
    let name = 't';
    if (r.written[i]) name += ' w';
    if (level) name += ` ${kind}${level}`;
    if (i === app.chosen) name += ' on';
    if (i + r.start >= app.position && app.position < r.position) name += ' ahead';
    if (!usesIds(c.model)) return { className: name, text: shownText(r.texts[i]) };
    const first = firstValue(c.model),
        id = r.ids[i],
        query = queryAt(c, i);
    if (first) name += id === 0 ? ' f' : id < first ? ' k' : ' v';
    if (!query || i + r.start >= app.position) return { className: name, text: first && id === 0 ? '·' : String(id) };
    const said = answerOf(c, i);
    if (!said) return { className: name, text: String(id) };
    const right = said[0] === query.value;
    return {
        className: name,
        text: String(id),
        note: `→ ${said[0]}`,
        mark: right ? '✓' : '✗',
        noteClass: right ? 'yes' : 'no',
    };
}

// Of at most 2,000 of the values, evenly chosen: a tint needs no more.
function quantile(values, q) {
    const step = Math.ceil(values.length / 2000),
        v = [];
    for (let i = 0; i < values.length; i += step) if (Number.isFinite(values[i])) v.push(values[i]);
    v.sort((a, b) => a - b);
    return v.length ? v[Math.min(v.length - 1, Math.floor(q * v.length))] : 0;
}

function measureTints(r) {
    if (app.colourBy === 'uncertainty') tops.uncertainty = quantile(r.uncertainty, 0.98);
    if (app.colourBy === 'write') {
        writes = app.layer === null ? null : r.writeByToken(app.layer, app.head);
        tops.write = writes ? quantile(writes, 0.95) : 0;
    }
    if (app.colourBy === 'reading') {
        const now = readingOf(r),
            layer = now?.token === app.chosen ? now.layers.find(l => l.layer === app.layer) : null;
        reads = layer ? strip(layer, Math.min(app.head, layer.shares.length - 1)).map(Math.abs) : null;
        tops.read = reads ? Math.max(...reads) : 0;
    }
}

const PASSAGE = 'But, soft! what light through yonder window breaks?\nIt is the east, and Juliet is the sun.\n';
function begin(c) {
    if (firstValue(c.model)) $('recall').click();
    else if (!usesIds(c.model)) {
        $('prompt').value = PASSAGE;
        $('read').click();
    } else $('prompt').focus();
}

function hint(c) {
    if (!c.model)
        return h(
            'div',
            { class: 'hint' },
            h('p', {
                text: 'No model is served. Training shows the runs; give `palimpsa serve` a model to talk to it.',
            }),
        );
    const first = usesIds(c.model)
        ? 'This model has no tokenizer: it reads numbers. Round ones are keys, square ones values, dots are filler. Press “Recall example”: pairs to remember, then every key is asked for its value.'
        : 'Write something below. The model reads it, continues, and you see its memory on the right while it does.';
    return h(
        'div',
        { class: 'hint' },
        h('p', { text: first }),
        c.base ? null : h('button', { type: 'button', class: 'button start', text: firstValue(c.model) ? 'Watch it remember 16 pairs' : 'Read a passage', onclick: () => begin(c) }),
        h('p', {
            text: 'Choose a token to see what else the model thought of, how uncertain its memory was, and to fork or roll back there.',
        }),
        c.base
            ? h('p', { text: `Continues from the kept memory “${c.baseName}”, which has read ${c.base.tokens} tokens.` })
            : null,
    );
}

const drawText = perFrame(() => {
    const c = app.current;
    if (!c) return;
    const r = c.recording;
    if (view.owner !== c) {
        view.clear(usesIds(c.model));
        view.owner = c;
        shownVersion = -1;
        shownStyle = '';
    }
    measureTints(r);
    if (!r.ids.length) {
        view.clear(usesIds(c.model));
        fill(view.host, hint(c));
        view.empty = true;
    } else {
        if (view.empty) {
            view.clear(usesIds(c.model));
            view.empty = false;
        }
        if (r.version !== shownVersion) view.sync(r.texts);
        // A token that was written came with its numbers; all others may have got theirs since.
        const round = v => Number(v.toPrecision(2)),
            ahead = app.position < r.position ? app.position : -1;
        const style = JSON.stringify([
            app.colourBy,
            app.chosen,
            round(tops.uncertainty),
            round(tops.write),
            ahead,
            app.layer,
            app.head,
            readingOf(r)?.token ?? -1,
            c.queries ? app.position : 0,
            app.busy ? r.written[r.written.length - 1] : r.version,
        ]);
        if (style !== shownStyle || !r.written[r.written.length - 1]) view.restyle();
        shownStyle = style;
    }
    shownVersion = r.version;
    drawSpeed();
});

function drawSpeed() {
    const r = app.current.recording,
        parts = [`${numberText(r.end)} tokens`];
    if (app.speed) parts.push(`${shortText(app.speed)} tokens/s`);
    const queries = app.current.queries;
    if (queries) {
        const asked = [...queries]
            .filter(([p]) => p < app.position)
            .map(([p, q]) => [answerOf(app.current, p - r.start), q])
            .filter(([a]) => a);
        const right = asked.filter(([a, q]) => a[0] === q.value).length;
        parts.splice(0, 9, asked.length ? `${right} of ${asked.length} right` : 'no question yet');
    }
    $('speed').textContent = r.ids.length ? parts.join(' · ') : '';
}
// ---- the chosen token

async function fetchTop(c, i) {
    const r = c.recording,
        body = {
            model: c.model,
            prompt: r.ids.slice(0, i),
            max_tokens: 1,
            temperature: 0,
            logprobs: 5,
            echo: false,
            observe: { tiles: false, from: r.start + i },
        };
    if (c.base) body.memory = c.base.id;
    await api.observe(body, e => {
        if (e.type === 'token' && e.top?.length) r.tops[i] = e.top;
    });
    if (app.current === c && app.chosen === i) drawCard();
}

const drawCard = perFrame(() => {
    const c = app.current,
        i = app.chosen,
        card = $('token-card');
    if (!c) return;
    const r = c.recording;
    if (i === null || i >= r.ids.length) {
        if (card.dataset.empty === String(r.ids.length > 0)) return;
        card.dataset.empty = String(r.ids.length > 0);
        fill(
            card,
            h('p', {
                class: 'muted',
                text: r.ids.length
                    ? 'Choose a token: its alternatives, how uncertain the memory was, and ways to continue from there.'
                    : '',
            }),
        );
        return;
    }
    delete card.dataset.empty;
    const text = usesIds(c.model) ? String(r.ids[i]) : visible(r.texts[i]),
        lp = r.logprobs[i],
        spread = r.variancesOf(i),
        n = i + 1;
    const top =
        r.tops[i]?.map(([id, t, l]) => ({
            label: usesIds(c.model) ? String(id) : visible(t),
            share: Math.exp(l),
            of: 1,
            here: id === r.ids[i],
        })) ?? null;
    if (top && !top.some(t => t.here) && Number.isFinite(lp))
        top.splice(4, top.length, { label: text, share: Math.exp(lp), of: 1, here: true });
    const act = (label, title, f) =>
        h('button', { class: 'button small', text: label, title, disabled: !!app.busy, onclick: guard(f) });
    fill(
        card,
        h(
            'div',
            { class: 'facts' },
            h('bdi', { class: 'piece', text }),
            h('span', { class: 'muted num', text: `token ${r.start + i}, id ${r.ids[i]}` }),
            h('span', {
                class: 'num',
                id: 'token-probability',
                text: Number.isFinite(lp)
                    ? `${percentText(Math.exp(lp))}, ${(-lp / Math.LN2).toFixed(1)} bits`
                    : 'nothing before it',
            }),
            h(
                'div',
                { class: 'row actions' },
                act('Fork here', 'A second conversation that continues after this token', () => fork(c, n)),
                act('Roll back here', 'Forgets what follows this token', async () => {
                    await rollBack(c, n);
                    notice(`Rolled back to ${n} tokens`);
                }),
                api.hasServer() && act('Keep memory here', 'The server keeps the memory as it is after this token', async () => {
                    await keep(c, n);
                    notice('The memory is kept');
                }),
            ),
        ),
        h(
            'div',
            { class: 'cols' },
            h(
                'div',
                {},
                h('h3', { text: 'Alternatives' }),
                top
                    ? bars(top, t => percentText(t.share))
                    : h('p', {
                          class: 'muted',
                          text: i + r.start === 0 ? 'The first token is not predicted.' : 'asking …',
                      }),
            ),
            h(
                'div',
                {},
                h('h3', { text: 'Variance by layer' }),
                spread
                    ? bars(
                          spread.map((v, l) => ({ label: `layer ${l}`, share: v })),
                          v => shortText(v.share),
                      )
                    : h('p', { class: 'muted', text: 'No layer of this model says how uncertain it is here.' }),
            ),
        ),
    );
    if (!top && i + r.start > 0 && !app.busy) guard(fetchTop)(c, i);
});
function drawLegend() {
    const [from, to] = LEGEND[app.colourBy],
        kind = COLOURS.find(k => k[0] === app.colourBy)[2];
    fill(
        $('legend'),
        ...(kind
            ? [
                  h('span', { text: from }),
                  h(
                      'div',
                      { class: 'ramp' },
                      ...Array.from({ length: 8 }, (_, i) => h('i', { class: i ? `${kind}${i}` : '' })),
                  ),
                  h('span', { text: to }),
              ]
            : []),
    );
}

export function setColour(name) {
    app.colourBy = $('colour-by').value = name;
    drawLegend();
    drawText();
}

export function initTokens() {
    view = new TokenText($('text'), {
        look,
        chosen: () => app.chosen,
        choose: i => {
            choose(i);
            setPosition(app.current.recording.start + i + 1);
        },
    });
    fill($('colour-by'), ...COLOURS.map(([value, text]) => h('option', { value, text })));
    $('colour-by').addEventListener('change', e => {
        app.colourChosen = true;
        setColour(e.target.value);
    });
    on('tokens conversation position chosen theme layer reading', drawText);
    on('tokens conversation chosen busy frames', drawCard);
    drawLegend();
}
