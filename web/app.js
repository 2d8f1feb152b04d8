// SPDX-License-Identifier: MIT
// The state of the page: models, conversations, and where one is looking. Views listen to names of what changed.

import * as api from './api.js';
import { THEMES, modelColours, seriesColour } from './chart.js';
import { Recording, Rows, unpackMap } from './recording.js';

const listeners = new Map();
export function on(names, f) {
    for (const name of names.split(' ')) listeners.set(name, [...(listeners.get(name) ?? []), f]);
}
export function emit(...names) {
    for (const f of new Set(names.flatMap(n => listeners.get(n) ?? []))) f();
}

export const app = {
    models: [],
    view: 'talk',
    conversations: [],
    current: null,
    busy: null, // busy: { abort, conversation }
    position: 0,
    follow: true,
    chosen: null, // chosen: place of a token in the recording, or null
    layer: null,
    head: 0,
    element: null, // element: { layer, head, key, value }
    reduce: 'max',
    colourBy: 'probability',
    memories: [],
};

export function theme() {
    return THEMES[document.documentElement.dataset.theme === 'dark' ? 'dark' : 'light'];
}
export function modelNamed(name) {
    return app.models.find(m => m.id === name) ?? null;
}
// A model under another name has the colour of its kind: "Palimpsa-D without metaplasticity, MQAR" is Palimpsa-D w/o Meta.
export function colourName(m) {
    if (modelColours([m.id.replace(/@plain$/, '')])[0] !== 3 || !m.kind) return m.id;
    const kind = m.plain_of ? (modelNamed(m.plain_of)?.kind ?? m.kind) : m.kind;
    return kind.split(',')[0].replace(' without metaplasticity', ' w/o Meta') + (m.plain_of ? '@plain' : '');
}
export function colourNumber(name) {
    const i = app.models.findIndex(m => m.id === name);
    return modelColours(i < 0 ? [name] : app.models.map(colourName))[Math.max(i, 0)];
}
export function colourOf(name) {
    return seriesColour(theme(), colourNumber(name));
}
export function usesIds(name) {
    return modelNamed(name)?.tokenizer === 'ids';
}
// The first id that is a value, for models that recall; 0: the ids of this model are just numbers.
export function firstValue(name) {
    const m = modelNamed(name);
    return m?.recall ? m.vocabulary / 2 : 0;
}

// ---- conversations

let counter = 0;
export function newConversation(model, { name, parent = null, recording = null, base = null, baseName = null } = {}) {
    const c = {
        key: ++counter,
        name: name ?? `Text ${counter}`,
        model,
        parent,
        base,
        baseName,
        kept: null,
        queries: null,
        turn: null,
        recording: recording ?? new Recording(model, base?.tokens ?? 0),
    };
    app.conversations.push(c);
    return c;
}

export function hasElement(layers, e) {
    const layer = layers[e.layer],
        below = (n, end) => Number.isInteger(n) && n >= 0 && n < end;
    return !!layer && below(e.head, layer.heads) && below(e.key, layer.keys) && below(e.value, layer.values);
}

// Attention and layers without a memory have nothing of keys by values to show.
const keepsMemory = rule => rule !== 'attention' && rule !== 'none';

// The open layer and the followed element are of one model; another may not have them.
function fitView(c) {
    const rules = modelNamed(c.model)?.rules ?? [];
    if (app.layer === null || app.layer >= rules.length) {
        const importance = rules.indexOf('palimpsa'),
            some = rules.findIndex(keepsMemory);
        app.layer = Math.max(0, importance < 0 ? some : importance);
        app.head = 0;
    }
    if (app.element && app.current?.model !== c.model && !hasElement(c.recording.layers, app.element))
        app.element = null;
}

export function openConversation(c) {
    fitView(c);
    app.current = c;
    app.chosen = null;
    app.follow = true;
    app.position = c.recording.position;
    emit('conversation', 'position', 'chosen');
}

export function dropConversation(c) {
    if (app.busy?.conversation === c) app.busy.abort();
    app.conversations = app.conversations.filter(x => x !== c);
    for (const x of app.conversations) if (x.parent === c) x.parent = c.parent;
    if (app.current === c)
        openConversation(app.conversations[app.conversations.length - 1] ?? newConversation(c.model));
    emit('conversations');
}

// ---- reading and writing

// A frame per token while that costs little; the server's own pieces for large models and long texts.
export function frameEvery(model, tokens) {
    const size = modelNamed(model)?.parameters ?? 0;
    const every = size < 3e6 ? 1 : size < 3e7 ? 8 : 32;
    return tokens > 4096 ? 256 : tokens > 1024 ? Math.max(every, 32) : every;
}

export function mapRequest(c) {
    const rule = modelNamed(c.model)?.rules?.[app.layer];
    if (!rule || !keepsMemory(rule)) return null;
    return { layer: app.layer, heads: 'all', size: 64, reduce: app.reduce };
}

const elementList = e => (e ? [[e.layer, e.head, e.key, e.value]] : []);

// Reads `prompt` (a text or ids) after the conversation's text, then writes max_tokens. Events go to the recording.
export async function run(c, prompt, options) {
    const r = c.recording,
        before = r.ids.slice(),
        abort = new AbortController();
    let ids = prompt;
    app.busy = { abort: () => abort.abort(), conversation: c };
    app.follow = true;
    c.turn = before.length;
    emit('busy');
    try {
        // Tokens of a text depend on what stands before it only through its beginning, so the new words are cut alone.
        if (typeof prompt === 'string')
            ids =
                prompt === ''
                    ? []
                    : (
                          await api.tokenize(
                              { model: c.model, prompt, add_special_tokens: before.length === 0 && !c.base },
                              { signal: abort.signal },
                          )
                      ).tokens;
        const all = before.concat(ids),
            { probe = false, ...sampling } = options;
        const body = {
            ...sampling,
            model: c.model,
            prompt: all.length ? all : '',
            observe: {
                tiles: true,
                every: frameEvery(c.model, ids.length),
                from: Math.max(r.position, r.start),
                map: mapRequest(c),
                elements: elementList(app.element),
            },
        };
        if (all.length > 20000) body.logprobs = 0;
        if (c.base) body.memory = c.base.id;
        if (app.element) followElement(r);
        await api.observe(
            body,
            e => {
                if (probe && e.type === 'token' && !e.prompt) {
                    r.next = e;
                    r.version++;
                } // what would come next is not text
                else r.apply(e);
                if (e.type === 'map') rememberMap(r, r.map);
                if (app.current === c && app.follow && r.position !== app.position) {
                    app.position = r.position;
                    emit('position');
                }
                emit(e.type === 'token' || e.type === 'start' ? 'tokens' : 'frames');
            },
            abort.signal,
        );
        return true;
    } catch (e) {
        if (e.name === 'AbortError') return false;
        throw e;
    } finally {
        app.busy = null;
        r.id = null;
        emit('busy', 'tokens', 'frames', 'conversations');
    }
}

// ---- looking at a position

// Maps that were seen, by recording: Map from place and view to the map. The oldest go.
const seen = new WeakMap(),
    KEEP = 16e6; // numbers in them
const mapKey = (position, layer, reduce) => `${position}/${layer}/${reduce}`;
function rememberMap(r, map) {
    const maps = seen.get(r) ?? new Map();
    seen.set(r, maps);
    maps.set(mapKey(map.position, map.layer, app.reduce), map);
    const numbers = map.heads.length * map.rows * map.columns * (map.importance ? 2 : 1);
    if (maps.size * numbers > KEEP) maps.delete(maps.keys().next().value);
}
export function forgetMaps(r) {
    seen.delete(r);
}
export function mapAt(r, position, layer) {
    return seen.get(r)?.get(mapKey(position, layer, app.reduce)) ?? null;
}

// The memory at `position` is the one that predicts token `position`: that token is in the request and is not read.
function upTo(r, position) {
    const ids = r.ids.slice(0, position - r.start + 1);
    if (ids.length < position - r.start + 1) ids.push(r.next?.id ?? 0);
    return ids;
}

async function replay(c, position, observe, onEvent, signal) {
    const body = { model: c.model, prompt: upTo(c.recording, position), max_tokens: 0, echo: false, observe };
    if (c.base) body.memory = c.base.id;
    await api.observe(body, onEvent, signal);
}

// Fetches the map that the view wants, one request at a time; a newer wish replaces one that waits.
let wanted = null,
    fetching = false;
export async function wantMap() {
    const c = app.current,
        r = c?.recording;
    if (!r || app.layer === null || !r.layers[app.layer]?.parts.length || app.position <= r.start) return;
    if (mapAt(r, app.position, app.layer) || (app.busy?.conversation === c && app.follow)) return;
    wanted = { c, position: app.position, layer: app.layer, reduce: app.reduce };
    if (fetching) return;
    fetching = true;
    try {
        while (wanted) {
            const w = wanted;
            wanted = null;
            await replay(
                w.c,
                w.position,
                {
                    tiles: false,
                    from: w.position - 1,
                    map: { layer: w.layer, heads: 'all', size: 64, reduce: w.reduce },
                },
                e => {
                    if (e.type === 'map' && e.position === w.position && app.reduce === w.reduce)
                        rememberMap(w.c.recording, unpackMap(e));
                },
            );
            emit('frames');
        }
    } finally {
        fetching = false;
    }
}

// ---- one element's history

// { element, from, rows } of the recording's element that is followed; filled by replay and by what streams.
export function followElement(r) {
    if (r.followedElement && sameElement(r.followedElement, app.element)) return;
    r.followedElement = app.element;
    r.followed = new Rows(2);
}
const sameElement = (a, b) =>
    a && b && a.layer === b.layer && a.head === b.head && a.key === b.key && a.value === b.value;

const HISTORY = 512; // tokens of an element's past that are read again at once
export async function chooseElement(element) {
    app.element = element;
    const c = app.current,
        r = c?.recording;
    emit('element');
    if (!element || !r) return;
    followElement(r);
    if (r.id)
        await api.view(r.id, { elements: elementList(element) }).catch(() => {});
    const end = r.position,
        from = Math.max(r.start, end - HISTORY);
    const known = p => Number.isFinite(r.followed.at(p - r.start, 0));
    if (end <= r.start || (known(from) && known(end - 1))) {
        emit('element');
        return;
    }
    const rows = r.followed;
    await replay(c, end, { tiles: true, every: 0, from, elements: elementList(element) }, e => {
        if (e.type === 'tiles' && e.elements) rows.put(e.from - r.start, elementRows(e));
    });
    emit('element');
}
function elementRows(e) {
    const raw = atob(e.elements),
        bytes = Uint8Array.from(raw, ch => ch.charCodeAt(0));
    return new Float32Array(bytes.buffer);
}

export async function setLayer(layer) {
    app.layer = layer;
    app.head = 0;
    if (app.element && app.element.layer !== layer) app.element = null;
    const r = app.current?.recording;
    emit('layer', 'element');
    if (r?.id)
        await api.view(r.id, { map: mapRequest(app.current) }).catch(() => {});
}

export function setPosition(position, follow = false) {
    const r = app.current?.recording;
    if (!r) return;
    const end = r.position;
    app.position = Math.min(Math.max(position, r.start), end);
    app.follow = follow || (app.position === end && app.busy !== null);
    emit('position');
}

// The token whose reading led to this position is the one that is chosen, and the other way round.
export function choose(i) {
    app.chosen = i;
    emit('chosen');
}
