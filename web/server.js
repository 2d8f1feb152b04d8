// SPDX-License-Identifier: MIT
// The server as a carrier of the page (api.js): requests with the key, streams of events, and the endpoints that are used.

import { ServerError, eventReader } from './events.js';

let key = sessionStorage.getItem('key') ?? '';
let onKey = async () => false; // asks a person for the key

export function setKey(text) {
    key = text;
    if (text) sessionStorage.setItem('key', text);
    else sessionStorage.removeItem('key');
}
export function hasKey() {
    return key !== '';
}
export function whenKeyIsNeeded(f) {
    onKey = f;
}

async function failure(answer) {
    let message = `the server answered ${answer.status}`,
        param = null;
    try {
        const { error } = await answer.json();
        message = error.message ?? message;
        param = error.param ?? null;
    } catch {
        /* not ours: the status has to do */
    }
    return new ServerError(answer.status, message, param);
}

export async function request(method, path, { body, raw, signal, type } = {}) {
    const headers = {};
    if (key) headers.Authorization = `Bearer ${key}`;
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    if (raw !== undefined) headers['Content-Type'] = type ?? 'application/octet-stream';
    let answer;
    try {
        answer = await fetch(path, { method, headers, body: body === undefined ? raw : JSON.stringify(body), signal });
    } catch (e) {
        if (e.name === 'AbortError') throw e;
        throw new ServerError(0, 'the server does not answer; is it still running?', null);
    }
    if (answer.status === 401 && (await onKey())) return request(method, path, { body, raw, signal, type });
    if (!answer.ok) throw await failure(answer);
    return answer;
}

export async function get(path, options) {
    return (await request('GET', path, options)).json();
}
export async function post(path, body, options = {}) {
    return (await request('POST', path, { ...options, body })).json();
}
export async function remove(path) {
    return (await request('DELETE', path)).json();
}

// One stream of events: onEvent gets every object. Resolves when the stream is over.
async function stream(path, body, onEvent, signal) {
    const answer = await request('POST', path, { body, signal });
    const events = eventReader(onEvent);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    try {
        for (;;) {
            const { done, value } = await reader.read();
            if (done) break;
            events.feed(value);
        }
    } catch (e) {
        if (e.name !== 'TypeError') throw e; // a connection that broke
    }
    events.feed('\n\n');
    if (events.wrong) throw events.wrong;
    if (!events.whole) throw new ServerError(0, 'the server broke off in the middle of a text; is it still running?', null);
}

export const observe = (body, onEvent, signal) => stream('/v1/observe', body, onEvent, signal);
export const chat = (body, onEvent, signal) =>
    stream('/v1/chat/completions', { ...body, stream: true }, onEvent, signal);

export const models = async () => (await get('/v1/models')).data;
export const memories = async () => (await get('/v1/memories')).data;
export const tokenize = (body, options) => post('/tokenize', body, options);
export const attribution = (body, options) => post('/v1/attribution', body, options);
export const view = (id, change) => post(`/v1/observe/${encodeURIComponent(id)}`, change);
export const recall = query => get(`/v1/recall?${new URLSearchParams(query)}`);
export const runs = async () => (await get('/v1/runs')).data;
export const runRows = (run, from) => get(`/v1/runs/metrics?${new URLSearchParams({ run, from })}`);
const place = id => `/v1/memories/${encodeURIComponent(id)}`;
export const memory = {
    make: body => post('/v1/memories', body),
    rename: (id, name) => post(place(id), { name }),
    mark: (id, name) => post(`${place(id)}/marks`, { name }),
    rollBack: (id, mark) => post(`${place(id)}/rollback`, { mark }),
    remove: id => remove(place(id)),
    file: async id => (await request('GET', `${place(id)}/file`)).blob(),
    upload: async (file, query) =>
        (await request('POST', `/v1/memories?${new URLSearchParams(query)}`, { raw: file })).json(),
    readOn: (id, model, ids) =>
        post('/v1/completions', { model, memory: id, prompt: ids, max_tokens: 0, update_memory: true }),
};
