// SPDX-License-Identifier: MIT
// What the page does with what the server says, without a browser: recordings, links, tables, runs, events.
import assert from 'node:assert/strict';
import test from 'node:test';

// Modules that touch the page when they are loaded find a small one.
const store = { getItem: () => null, setItem: () => {}, removeItem: () => {} };
Object.assign(globalThis, { sessionStorage: store, localStorage: store });

const { Peaks, Recording, Rows, unpackMap } = await import('../../web/recording.js');
const { eventCutter } = await import('../../web/api.js');
const { surpriseLevel, shareLevel, shownText } = await import('../../web/text.js');
const { csvOf, packNumbers, unpackNumbers, queriesOf } = await import('../../web/take.js');
const { addRows, meanOf, modelOfRun } = await import('../../web/training.js');
const { addDelta, openCalls, shownArguments, toolsOf } = await import('../../web/chat.js');
const { differences } = await import('../../web/compare.js');
const { markBefore, treeOf } = await import('../../web/keep.js');
const { visible } = await import('../../web/dom.js');

const f32 = numbers => Buffer.from(new Float32Array(numbers).buffer).toString('base64');
const FIELDS = ['i_min', 'i_max', 'window', 'ratio', 'write'];
const start = (prompt, position = 0) => ({
    type: 'start',
    id: 'obs-1',
    model: 'm',
    position,
    prompt,
    layers: [
        { rule: 'palimpsa', heads: 2, parts: ['mu', 'I'] },
        { rule: 'gla', heads: 2, parts: ['S'] },
    ],
    tile_fields: FIELDS,
});
const token = (index, id, prompt, logprob, more = {}) => ({
    type: 'token',
    index,
    id,
    text: `t${id}`,
    prompt,
    logprob,
    top: [[id, `t${id}`, logprob ?? 0]],
    variance: 0.1,
    ...more,
});
const tiles = (from, position, write) => ({
    type: 'tiles',
    from,
    position,
    tiles: f32([1, 2, 100 + position, 3, write, NaN, NaN, 50, NaN, write / 2]),
    write: f32([write, 2 * write, 3 * write, 4 * write]),
    window: f32(Array.from({ length: 2 * (position - from) }, (_, i) => from + i)),
    variance: f32(Array.from({ length: 2 * (position - from) }, () => 0.25)),
});

function example() {
    const r = new Recording('m');
    r.apply(start([5, 6, 7].map(id => [id, `t${id}`])));
    r.apply(token(0, 5, true, null, { top: [] }));
    r.apply(token(1, 6, true, -1));
    r.apply(token(2, 7, true, -2));
    r.apply(tiles(0, 2, 0.5));
    r.apply(tiles(2, 3, 0.75));
    r.apply(token(3, 8, false, -3));
    r.apply(tiles(3, 4, 0.25));
    r.apply(token(4, 9, false, -4));
    return r;
}

test('importance has one range for a whole recording', () => {
    const r = example(),
        frame = (from, lo, hi) => ({ ...tiles(from, from + 1, 1), tiles: f32([lo, hi, 100, 3, 1, NaN, NaN, 50, NaN, 1]) });
    r.apply(frame(2, 0.5, 7));
    r.apply(frame(3, 3, 4));
    assert.deepEqual([r.importanceRange(0).lo, r.importanceRange(0).hi], [0.5, 7]);
    r.apply(frame(4, 0.25, 4));
    assert.deepEqual([r.importanceRange(0).lo, r.importanceRange(0).hi], [0.25, 7]);
    r.cut(2); // the first frame is left
    assert.deepEqual([r.importanceRange(0).lo, r.importanceRange(0).hi], [1, 2]);
    assert.equal(r.importanceRange(1).hi, -Infinity); // no importance
});

test('a recording holds tokens and frames at their places', () => {
    const r = example();
    assert.deepEqual(r.ids, [5, 6, 7, 8, 9]);
    assert.deepEqual(r.texts, ['t5', 't6', 't7', 't8', 't9']);
    assert.deepEqual(r.logprobs, [null, -1, -2, -3, -4]);
    assert.deepEqual(r.written, [false, false, false, true, true]);
    assert.equal(r.position, 4);
    assert.equal(r.end, 5);
    assert.deepEqual(
        [0, 1, 2, 3, 4, 9].map(p => r.frameIndex(p)),
        [-1, -1, 0, 1, 2, 2],
    );
    const f = r.frames[1];
    assert.equal(r.tile(f, 0, 'window'), 103);
    assert.equal(r.tile(f, 1, 'write'), 0.375);
    assert.ok(Number.isNaN(r.tile(f, 1, 'i_min')));
    assert.equal(r.write(f, 1, 1), 3);
    assert.deepEqual([r.windows.at(0, 1), r.windows.at(2, 0), r.windows.at(3, 0)], [1, 2, 3]);
    assert.deepEqual(r.variancesOf(1), [0.25, 0.25]);
    assert.equal(r.variancesOf(0), null);
    assert.deepEqual(
        r.writers(0, 0).map(w => [w.from, w.to, w.strength]),
        [
            [2, 3, 0.75],
            [0, 2, 0.5],
            [3, 4, 0.25],
        ],
    );
    assert.deepEqual([...r.writeByToken(0, 0)].slice(0, 4), [0.5, 0.5, 0.75, 0.25]);
});

test('a curve of any length stays short and keeps its peaks', () => {
    const p = new Peaks();
    for (let i = 0; i < 100000; i++) p.push(i === 77777 ? 5 : i % 2 ? NaN : 1 + (i % 3));
    assert.deepEqual([p.count, p.size, p.top], [100000, 128, 5]);
    assert.equal(p.values.length, Math.ceil(100000 / 128));
    assert.equal(p.values.indexOf(5), Math.floor(77777 / 128));
    assert.ok(p.values.every(v => v >= 3));
    const few = new Peaks();
    for (const v of [NaN, 2, 1]) few.push(v);
    assert.deepEqual([few.size, ...few.values], [1, NaN, 2, 1]);
});

test('curves follow what is added, cut and replaced', () => {
    const r = example();
    assert.deepEqual(r.writeCurve(1).values, [0.25, 0.375, 0.125]);
    r.apply(tiles(4, 5, 8));
    assert.deepEqual([...r.writeCurve(1).values, r.writeCurve(1).top], [0.25, 0.375, 0.125, 4, 4]);
    r.cut(3);
    assert.deepEqual([...r.writeCurve(1).values, r.writeCurve(1).top], [0.25, 0.375, 0.375]);
    r.apply(tiles(0, 2, 2));
    assert.deepEqual(r.writeCurve(1).values, [1, 0.375]);
});

test('of equal writers the earlier stands first', () => {
    const r = example();
    for (const f of r.frames) f.write.fill(0.5);
    assert.deepEqual(
        r.writers(0, 0, 2).map(w => w.from),
        [0, 2],
    );
});

test('the same tokens again keep their numbers', () => {
    const r = example(),
        prompt = r.ids.map((id, i) => [id, r.texts[i]]);
    r.apply(start([...prompt, [10, 't10']], 4)); // the server begins at a snapshot
    assert.equal(r.logprobs[2], -2);
    assert.deepEqual(r.written, [false, false, false, true, true, false]);
    r.apply(token(4, 9, true, null));
    assert.equal(r.logprobs[4], -4);
    assert.equal(r.written[4], true);
});

test('cut and fork', () => {
    const r = example(),
        copy = r.fork(3);
    r.cut(2);
    assert.deepEqual([r.ids.length, r.position, r.windows.length], [2, 2, 2]);
    assert.deepEqual([copy.ids.length, copy.position, copy.windows.at(2, 0)], [3, 3, 2]);
    copy.apply(token(3, 1, false, -1));
    assert.equal(r.ids.length, 2);
});

test('after a kept memory places count from its tokens', () => {
    const r = new Recording('m', 100);
    r.apply(start([[5, 't5']], 100));
    r.apply(token(100, 5, true, -1));
    r.apply(tiles(100, 101, 0.5));
    assert.deepEqual([r.ids, r.end, r.position, r.windows.at(0, 0)], [[5], 101, 101, 100]);
});

test('frames that come late or twice find their place', () => {
    const r = example();
    r.apply(tiles(2, 3, 0.125));
    assert.deepEqual(
        r.frames.map(f => f.position),
        [2, 3, 4],
    );
    assert.equal(r.write(r.frames[1], 0, 0), 0.125);
});

test('rows grow and are empty where nothing was put', () => {
    const rows = new Rows(2);
    rows.put(100, [1, 2, 3, 4]);
    assert.deepEqual([rows.length, rows.at(101, 1), rows.at(102, 0)], [102, 4, NaN]);
    assert.ok(Number.isNaN(rows.at(5, 0)));
});

test('maps are scaled by head', () => {
    const halves = Buffer.from(new Uint16Array([0x3c00, 0x3800, 0xbc00, 0]).buffer).toString('base64'); // 1, 0.5, -1, 0
    const m = unpackMap({
        position: 3,
        layer: 0,
        heads: [0, 3],
        shape: [2, 1],
        shown: [2, 1],
        block: [1, 1],
        reduce: 'none',
        mean: { scale: [4, 2], data: halves },
        importance: null,
    });
    assert.deepEqual(
        m.mean.map(v => [...v]),
        [
            [4, 2],
            [-2, 0],
        ],
    );
    assert.equal(m.importance, null);
});

test('events are cut wherever the pieces end', () => {
    const stream = 'data: {"a":1}\n\ndata: {"b":"x y"}\n\n: comment\n\ndata: [DONE]\n\n';
    for (const size of [1, 2, 7, 1000]) {
        const out = [],
            feed = eventCutter(d => out.push(d));
        for (let i = 0; i < stream.length; i += size) feed(stream.slice(i, i + size));
        assert.deepEqual(out, ['{"a":1}', '{"b":"x y"}', '[DONE]']);
    }
});

test('tints rise with surprise and share', () => {
    assert.deepEqual([0, -0.1, -1, -3, -7, -100, null].map(surpriseLevel), [0, 0, 1, 3, 7, 7, 0]);
    assert.deepEqual(
        [0, 0.5, 1, 2, NaN].map(v => shareLevel(v, 1)),
        [0, 4, 7, 7, 0],
    );
    assert.equal(shareLevel(1, 0), 0);
});

test('characters that hide or turn text are shown', () => {
    assert.equal(shownText('a\u202eb\u0000c'), 'a‹202e›b‹0›c');
    assert.equal(shownText('line\nשלום'), 'line\nשלום');
    assert.equal(visible(' a\n'), '␣a⏎');
    assert.equal(visible('<b>'), '<b>');
});

test('numbers in links come back', () => {
    for (const list of [
        [],
        [0],
        [127, 128, 129],
        [50256, 2 ** 31, 2 ** 40],
        Array.from({ length: 5000 }, (_, i) => i * i),
    ])
        assert.deepEqual(unpackNumbers(packNumbers(list)), list);
    assert.match(packNumbers([255, 254, 253, 1000000]), /^[\w-]+$/);
    assert.deepEqual(queriesOf([3, 7, 300]).get(3), { position: 3, key: 7, value: 300 });
});

test('csv quotes what people wrote', () => {
    assert.equal(
        csvOf({
            columns: ['a', 'b'],
            rows: [
                ['x,"y"\n', null],
                [1.5, true],
            ],
        }),
        '"a","b"\r\n"x,""y""\n",\r\n1.5,true\r\n',
    );
});

test('rows of a resumed run replace those after its checkpoint', () => {
    const rows = addRows([], [{ step: 1 }, { step: 2, loss: 9 }, { step: 3 }, { nothing: 1 }, null]);
    addRows(rows, [{ step: 2, loss: 1, tokens: 100, tokens_per_s: 50 }]);
    assert.deepEqual(
        rows.map(r => [r.step, r.loss]),
        [
            [1, undefined],
            [2, 1],
        ],
    );
    assert.equal(rows[1].seconds, 2);
    assert.equal(meanOf([1, null, 3, [5]]), 3);
    assert.equal(meanOf([null]), null);
    assert.equal(modelOfRun({ name: 'a/b', settings: { model: { name: 'palimpsa-m' } } }), 'palimpsa-m');
    assert.equal(modelOfRun({ name: 'a/b', settings: null }), 'a/b');
});

test('what differs most comes first', () => {
    const a = example(),
        b = example();
    b.logprobs[2] = -0.1;
    b.logprobs[4] = -3.9;
    const rows = differences([a, b], null);
    assert.equal(rows[0].i, 2);
    assert.ok(Math.abs(rows[0].a - Math.exp(-2)) < 1e-12 && Math.abs(rows[0].b - Math.exp(-0.1)) < 1e-12);
    b.ids[3] = 77; // from here on they read different texts
    assert.deepEqual(
        differences([a, b], null)
            .map(r => r.i)
            .sort(),
        [1, 2],
    );
});

test('memories form a tree, and a mark before a place is found', () => {
    const list = [
        { id: 'a', parent: null },
        { id: 'b', parent: 'a' },
        { id: 'c', parent: 'gone' },
        { id: 'd', parent: 'd' },
    ];
    const top = treeOf(
        list,
        m => m.parent,
        m => m.id,
    );
    assert.deepEqual(
        top.map(n => [n.item.id, n.children.length]),
        [
            ['a', 1],
            ['c', 0],
            ['d', 0],
        ],
    );
    assert.equal(markBefore({ marks: [4, 10, 7] }, 9), 7);
    assert.equal(markBefore({ marks: [4] }, 3), null);
});

test('deltas of a chat make a message, and calls wait for their results', () => {
    const message = { role: 'assistant', content: '' };
    for (const delta of [
        { role: 'assistant', reasoning_content: 'so ' },
        { reasoning_content: 'what' },
        { content: 'Hi' },
        { content: '!' },
        { tool_calls: [{ index: 0, id: 'a', type: 'function', function: { name: 'f', arguments: '{"x"' } }] },
        { tool_calls: [{ index: 0, function: { arguments: ': 1}' } }, { index: 1, id: 'b', function: { name: 'g', arguments: '{}' } }] },
        {},
    ])
        addDelta(message, delta);
    assert.equal(message.content, 'Hi!');
    assert.equal(message.reasoning_content, 'so what');
    assert.deepEqual(
        message.tool_calls.map(c => [c.id, c.function.name, c.function.arguments]),
        [
            ['a', 'f', '{"x": 1}'],
            ['b', 'g', '{}'],
        ],
    );
    const talk = [{ role: 'user', content: 'x' }, message];
    assert.deepEqual(openCalls([]), []);
    assert.deepEqual(openCalls(talk).map(c => c.id), ['a', 'b']);
    talk.push({ role: 'tool', tool_call_id: 'b', content: '' });
    assert.deepEqual(openCalls(talk).map(c => c.id), ['a']);
    talk.push({ role: 'tool', tool_call_id: 'a', content: '' });
    assert.deepEqual(openCalls(talk), []);
    assert.equal(shownArguments('{"a":1}'), '{\n  "a": 1\n}');
    assert.equal(shownArguments('{"a'), '{"a');
    assert.deepEqual(toolsOf(' '), []);
    assert.throws(() => toolsOf('{'), /not JSON/);
    assert.throws(() => toolsOf('{}'), /list/);
});
