// SPDX-License-Identifier: MIT
// The story's arithmetic without a browser: words of ids, who plays in a chapter, answers, shares, and the worker as a carrier.
import assert from 'node:assert/strict';
import test from 'node:test';

const store = { getItem: () => null, setItem: () => {}, removeItem: () => {} };
Object.assign(globalThis, { sessionStorage: store, localStorage: store });

const { wordOf, answersOf, rightOf, largestOf, signedScale } = await import('../../web/stage.js');
const { casting, missingFor, hasStory } = await import('../../web/story.js');
const { CHAPTERS } = await import('../../web/chapters.js');
const { strip, strongest } = await import('../../web/reading.js');
const { eventReader, ServerError } = await import('../../web/events.js');
const { start } = await import('../../web/local.js');

test('every key has its own word, and values are numbers', () => {
    const words = Array.from({ length: 127 }, (_, i) => wordOf(i + 1, 128));
    assert.equal(new Set(words).size, 127);
    assert.ok(words.every(w => /^[a-z]{2,3}$/.test(w)));
    assert.equal(wordOf(0, 128), '·');
    assert.equal(wordOf(128, 128), '0');
    assert.equal(wordOf(255, 128), '127');
});

const model = (id, more) => ({ id, recall: false, rules: ['palimpsa'], tokenizer: 'bpe', vocabulary: 256, plain_of: null, ...more });
const ALL = [
    model('text', {}),
    model('r', { recall: true, tokenizer: 'ids' }),
    model('r@plain', { recall: true, tokenizer: 'ids', rules: ['gla'], plain_of: 'r' }),
    model('bare', { recall: true, tokenizer: 'ids', rules: ['gla'] }),
];

test('chapters find their models by what these can do', () => {
    const found = casting(ALL);
    assert.deepEqual(
        Object.fromEntries(Object.entries(found).map(([k, m]) => [k, m.id])),
        { recall: 'r', without: 'bare', plain: 'r@plain', text: 'text' },
    );
    for (const c of CHAPTERS) assert.deepEqual(missingFor(c, found), []);
});

test('a chapter without its model says so, and a server without any has no story', () => {
    const found = casting([ALL[0]]);
    assert.deepEqual(missingFor(CHAPTERS.find(c => c.id === 'importance'), found), ['recall', 'without']);
    assert.deepEqual(missingFor(CHAPTERS.find(c => c.id === 'yours'), found), []);
    assert.equal(hasStory([ALL[0]]), true);
    assert.equal(hasStory([]), false);
    const hybrid = model('h', { recall: true, tokenizer: 'ids', rules: ['palimpsa', 'attention'] });
    assert.equal(casting([hybrid]).recall, null); // chapters look into a memory in every layer
    assert.equal(casting([hybrid, ...ALL]).recall.id, 'r');
    assert.equal(casting([ALL[1], { ...ALL[3], vocabulary: 999 }]).without, null);
});

test('chapters have what a reader needs', () => {
    assert.equal(new Set(CHAPTERS.map(c => c.id)).size, CHAPTERS.length);
    for (const c of CHAPTERS) {
        assert.ok(c.title && c.title.length < 40, c.id);
        assert.ok(c.text.length >= 1 && c.text.length <= 3 && c.text.every(t => t.length < 320), c.id);
        assert.equal(typeof c.stage, 'function');
    }
});

test('answers are what the model says after the question, the last one from what would come next', () => {
    const recording = { ids: [1, 2, 3], tops: [null, [[7, 'a', 0]], [[8, 'b', 0]]], next: { top: [[9, 'c', 0]] } };
    const answers = answersOf(recording, [{ position: 0, value: 7 }, { position: 1, value: 5 }, { position: 2, value: 9 }]);
    assert.deepEqual(answers.map(a => a.said), [7, 8, 9]);
    assert.equal(rightOf(answers), 2);
});

test('a strip is one head with its sign, or the size of all heads', () => {
    const layer = { shares: [[0.5, -0.25, 0.75], [0.1, 0.75, 0.15]] };
    assert.deepEqual([...strip(layer, 0)], [0.5, -0.25, 0.75]);
    assert.ok(Math.abs(strip(layer)[1] - 0.5) < 1e-6);
    assert.deepEqual(strongest([0.1, -0.9, 0.4, 0.4], 3).map(s => s.token), [1, 2, 3]);
});

test('scales reach as far on both sides', () => {
    assert.equal(largestOf([0.1, -3, 2]), 3);
    assert.equal(largestOf([0, 0]), 1e-6);
    assert.deepEqual(signedScale(3), { lo: -3, hi: 3, log: false });
});

test('an error in a stream of events is kept for its end', () => {
    const seen = [],
        reader = eventReader(e => seen.push(e.type));
    reader.feed('data: {"type":"start"}\n\ndata: {"err');
    reader.feed('or":{"message":"no"}}\n\ndata: [DONE]\n\n');
    assert.deepEqual(seen, ['start']);
    assert.ok(reader.wrong instanceof ServerError && reader.wrong.message === 'no');
    assert.equal(reader.whole, true);
});

test('the worker is asked and answers by number; a stop becomes an AbortError', async () => {
    const sent = [];
    let worker;
    globalThis.document = { baseURI: 'http://here/' };
    globalThis.Worker = class {
        constructor() {
            worker = this;
        }
        postMessage(m) {
            sent.push(m);
            if (m.what === 'open') queueMicrotask(() => this.onmessage({ data: { id: m.id, result: {} } }));
        }
    };
    const carrier = await start('engine/');
    assert.equal(sent[0].args.engine, 'http://here/engine/');
    const events = [],
        abort = new AbortController(),
        reading = carrier.observe({ model: 'm' }, e => events.push(e.type), abort.signal);
    const { id } = sent.at(-1);
    worker.onmessage({ data: { id, events: 'data: {"type":"token"}\n\n' } });
    abort.abort();
    assert.deepEqual(sent.at(-1), { id, what: 'stop' });
    worker.onmessage({ data: { id, error: 'stopped', aborted: true } });
    await assert.rejects(reading, { name: 'AbortError' });
    assert.deepEqual(events, ['token']);
    const failing = carrier.tokenize({ model: 'm', prompt: '<' });
    worker.onmessage({ data: { id: sent.at(-1).id, error: 'not in the vocabulary' } });
    await assert.rejects(failing, { message: 'not in the vocabulary' });
    delete globalThis.Worker;
});
