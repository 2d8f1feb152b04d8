// SPDX-License-Identifier: MIT
// The worker of local.js: loads the WebAssembly and the models that stand next to it, and runs texts step by step, so that
// a stop or another view comes through between steps.

const BUSY = 12; // milliseconds of steps between two looks at the messages

let engine = null,
    running = null; // the text that runs: { id, stopped }
const queue = []; // texts that wait: { id, body }

const call = (name, types = [], args = []) => JSON.parse(engine.ccall(name, 'string', types, args));
function checked(answer) {
    if (answer.error) throw new Error(answer.error);
    return answer;
}

async function asked(url) {
    const answer = await fetch(url).catch(() => ({ ok: false, status: 'no answer' }));
    if (!answer.ok) throw new Error(`${url} cannot be loaded: ${answer.status}`);
    return answer;
}
async function fetched(url, onBytes) {
    const answer = await asked(url),
        parts = [],
        reader = answer.body.getReader();
    for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        parts.push(value);
        onBytes(value.length);
    }
    return new Uint8Array(await new Blob(parts).arrayBuffer());
}

// engine: where models.json, palimpsa.mjs and palimpsa.wasm lie, and the models that the first one lists.
async function open({ engine: base }) {
    const list = await (await asked(new URL('models.json', base))).json(),
        files = list.models.flatMap(m => m.files.map(f => ({ model: m, ...f })));
    let loaded = 0;
    const all = list.wasm_bytes + files.reduce((sum, f) => sum + f.bytes, 0),
        onBytes = n => {
            loaded += n;
            postMessage({ progress: loaded / all });
        };
    const [{ default: create }, wasm, ...contents] = await Promise.all([
        import(new URL('palimpsa.mjs', base)),
        fetched(new URL('palimpsa.wasm', base), onBytes),
        ...files.map(f => fetched(new URL(f.path, base), onBytes)),
    ]);
    engine = await create({ wasmBinary: wasm });
    files.forEach((f, i) => {
        const path = `/${f.path}`,
            folder = path.slice(0, path.lastIndexOf('/'));
        engine.FS.mkdirTree(folder);
        engine.FS.writeFile(path, contents[i]);
    });
    for (const m of list.models) checked(call('page_open', ['string', 'string'], [`/${m.path}`, m.name]));
    return {};
}

const text = value => JSON.stringify(value);
const calls = {
    open,
    models: () => checked(call('page_models')),
    tokenize: ({ model, prompt }) => checked(call('page_tokenize', ['string', 'string'], [model, prompt])),
    attribution: body => checked(call('page_attribution', ['string'], [text(body)])),
    recall: ({ model, pairs = 16, length, seed = 0 }) =>
        checked(
            call('page_recall', ['string', 'number', 'number', 'number'], [
                model,
                Number(pairs),
                Number(length ?? Math.max(64, 4 * pairs)),
                Number(seed),
            ]),
        ),
    view: change => {
        engine.ccall('page_view', null, ['string'], [text(change)]);
        return {};
    },
};

const { port1, port2 } = new MessageChannel();
port1.onmessage = () => work();
const later = () => port2.postMessage(null);

function finish(answer) {
    postMessage({ id: running.id, ...answer });
    running = null;
    if (queue.length) later();
}

function work() {
    if (!running) {
        const next = queue.shift();
        if (!next) return;
        running = { id: next.id, stopped: false };
        const first = engine.ccall('page_begin', 'string', ['string'], [text(next.body)]);
        if (first.startsWith('{')) {
            finish({ error: JSON.parse(first).error });
            return;
        }
        postMessage({ id: running.id, events: first });
    }
    const until = performance.now() + BUSY;
    let more = 1,
        events = '';
    while (more === 1 && !running.stopped && performance.now() < until) {
        more = engine.ccall('page_step', 'number', [], []);
        events += engine.ccall('page_events', 'string', [], []);
    }
    if (events) postMessage({ id: running.id, events });
    if (running.stopped) {
        engine.ccall('page_stop', null, [], []);
        finish({ error: 'stopped', aborted: true });
    } else if (more < 0) finish({ error: 'the model gave numbers that are not numbers, or memory ran out' });
    else if (!more) finish({ result: {} });
    else later();
}

onmessage = async ({ data: { id, what, args } }) => {
    if (what === 'observe') {
        queue.push({ id, body: args });
        if (!running && queue.length === 1) later();
    } else if (what === 'stop') {
        const at = queue.findIndex(q => q.id === id);
        if (at >= 0) {
            queue.splice(at, 1);
            postMessage({ id, error: 'stopped', aborted: true });
        } else if (running?.id === id) running.stopped = true;
    } else
        try {
            postMessage({ id, result: await calls[what](args) });
        } catch (e) {
            postMessage({ id, error: e.message });
        }
};
