// SPDX-License-Identifier: MIT
// Talking: prompt, sampling, recall examples, stop and regenerate.

import * as api from './api.js';
import {
    app,
    colourOf,
    emit,
    firstValue,
    forgetMaps,
    newConversation,
    on,
    openConversation,
    run,
    usesIds,
} from './app.js';
import { $, fill, guard, h } from './dom.js';
import { rollBack } from './keep.js';
import { setColour } from './tokens.js';

const SAMPLING = [
    ['max_tokens', 'Tokens to write', 60, 0, 100000, 1],
    ['temperature', 'Temperature', 0.8, 0, 100, 0.1],
    ['top_p', 'Top p', 1, 0, 1, 0.05],
    ['top_k', 'Top k (0: all)', 0, 0, 1e6, 1],
    ['min_p', 'Min p', 0, 0, 1, 0.01],
    ['repetition_penalty', 'Repetition penalty', 1, 0.05, 100, 0.05],
    ['seed', 'Seed (empty: any)', '', 0, 2 ** 31, 1],
];
function sampling() {
    const out = {};
    for (const [name, , standard] of SAMPLING) {
        const text = $(`option-${name}`).value.trim();
        if (text === '') {
            if (standard !== '') out[name] = standard;
        } else if (Number.isFinite(Number(text))) out[name] = Number(text);
    }
    return out;
}

async function talk(prompt, options) {
    const c = app.current,
        r = c.recording;
    if (app.busy || !c.model) return false;
    const started = performance.now();
    const before = r.ids.length;
    const done = await run(c, prompt, options);
    const count = r.ids.length - before;
    app.speed = done && count > 1 ? count / ((performance.now() - started) / 1000) : null;
    // Where the answer begins: after the prompt that was read.
    const firstWritten = r.written.findIndex((w, i) => i >= before && w);
    c.last = done && firstWritten >= 0 ? { from: firstWritten, options } : (c.last ?? null);
    emit('busy', 'tokens');
    return done;
}

function promptValue() {
    const text = $('prompt').value;
    if (!usesIds(app.current.model) || text.trim() === '') return text;
    const ids = text
        .trim()
        .split(/[\s,]+/)
        .map(Number);
    if (!ids.every(n => Number.isInteger(n) && n >= 0))
        throw new api.ServerError(400, 'This model reads numbers: write ids with blanks between them.');
    return ids;
}

async function send(only) {
    const value = promptValue(),
        options = sampling();
    if (only) options.max_tokens = 0;
    if (only && value.length === 0) return;
    const typed = $('prompt').value,
        before = app.current.recording.ids.length;
    $('prompt').value = '';
    try {
        await talk(value, only ? { ...options, max_tokens: 1, probe: true } : options);
    } catch (e) {
        if (app.current.recording.ids.length === before && !$('prompt').value) $('prompt').value = typed; // not lost
        throw e;
    }
}

export async function readRecall(c, query = {}) {
    const example = await api.recall({
        model: c.model.replace(/@plain$/, ''),
        seed: 1 + Math.floor(Math.random() * 1e6),
        ...query,
    });
    if (c.recording.ids.length) {
        c = newConversation(c.model);
        openConversation(c);
    }
    if (/^Text \d+$/.test(c.name)) c.name = `Recall ${example.pairs.length} pairs`;
    if (!app.colourChosen && app.colourBy === 'probability') setColour('write'); // a key is not a surprise worth a colour
    c.queries = new Map(example.queries.map(q => [q.position, q]));
    emit('conversations');
    await talk(example.ids, { max_tokens: 1, temperature: 0, probe: true });
    return c;
}

async function regenerate() {
    const c = app.current;
    if (!c.last || app.busy) return;
    const { from, options } = c.last;
    c.recording.cut(from);
    forgetMaps(c.recording);
    if (c.kept && c.kept.at > from) await rollBack(c, from);
    await talk([], { ...options, seed: undefined });
}

function drawButtons() {
    const c = app.current,
        busy = !!app.busy,
        none = !c?.model;
    for (const id of ['send', 'read', 'recall']) $(id).disabled = busy || none;
    $('send').style.visibility = busy ? 'hidden' : '';
    $('stop').style.visibility = busy ? '' : 'hidden';
    $('regenerate').disabled = busy || !c?.last;
    $('recall').hidden = !usesIds(c?.model) || !firstValue(c?.model);
    $('prompt').placeholder = usesIds(c?.model)
        ? 'Ids, for example: 5 300 7 301 5'
        : 'Write here; the model reads it and continues';
    const dot = $('model-dot');
    dot.style.background = c?.model ? colourOf(c.model) : '';
    if (c && $('model').value !== c.model) $('model').value = c.model;
}

export function initTalk(readDone) {
    fill(
        $('options'),
        ...SAMPLING.map(([name, label, value, min, max, step]) =>
            h(
                'label',
                { class: 'field' },
                h('span', { text: label }),
                h('input', { id: `option-${name}`, type: 'number', value, min, max, step }),
            ),
        ),
    );
    $('options-toggle').addEventListener('click', () => {
        const now = $('options').hidden;
        $('options').hidden = !now;
        $('options-toggle').setAttribute('aria-expanded', String(now));
    });
    $('composer').addEventListener('submit', e => {
        e.preventDefault();
        guard(send)(false);
    });
    $('prompt').addEventListener('keydown', e => {
        if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) {
            e.preventDefault();
            guard(send)(false);
        }
    });
    $('read').addEventListener('click', () => guard(send)(true));
    $('recall').addEventListener(
        'click',
        guard(async () => {
            await readRecall(app.current);
            readDone();
        }),
    );
    $('regenerate').addEventListener('click', guard(regenerate));
    $('stop').addEventListener('click', () => app.busy?.abort());
    $('model').addEventListener('change', e => {
        const c = app.current;
        if (c.recording.ids.length || c.base) openConversation(newConversation(e.target.value));
        else {
            c.model = e.target.value;
            c.recording.model = c.model;
            openConversation(c);
        }
        emit('conversations');
    });
    on('busy conversation models theme', drawButtons);
}
