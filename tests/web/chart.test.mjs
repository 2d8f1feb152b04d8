// SPDX-License-Identifier: MIT
// The drawing's arithmetic: colours, numbers, axes, smoothing, packed numbers. Run by `node --test tests/web/*.test.mjs`.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import * as chart from '../../web/chart.js';

const root = new URL('../../', import.meta.url);
const near = (a, b, tolerance = 1e-12) =>
    assert.ok(Math.abs(a - b) <= tolerance * Math.max(1, Math.abs(b)), `${a} is not ${b}`);

test('a legend is made anew when another curve is the loud one', () => {
    const layers = open => ({ series: [0, 1].map(l => ({ label: `layer ${l}`, colour: 0, x: [], y: [], quiet: l !== open })) });
    assert.notEqual(chart.legendKey(layers(0)), chart.legendKey(layers(1)));
    assert.equal(chart.legendKey(layers(1)), chart.legendKey(layers(1)));
});

test('colours are those of the SVG figures', () => {
    const source = readFileSync(new URL('src/plot/theme.c', root), 'utf8');
    const lists = [
        ...source.matchAll(
            /\{ 0x([0-9a-f]{6}),\s*0x([0-9a-f]{6}),\s*0x([0-9a-f]{6}),\s*0x([0-9a-f]{6}),\s*\{([^}]*)\}/g,
        ),
    ];
    assert.equal(lists.length, 2);
    ['light', 'dark'].forEach((name, i) => {
        const [, paper, ink, muted, grid, series] = lists[i],
            theme = chart.THEMES[name];
        assert.deepEqual(
            [theme.paper, theme.ink, theme.muted, theme.grid],
            [paper, ink, muted, grid].map(c => `#${c}`),
        );
        assert.deepEqual(
            theme.series,
            series.split(',').map(c => c.trim().replace('0x', '#')),
        );
    });
    const stops = source
        .match(/stops\[\]\[3\] = \{([^;]*)\};/)[1]
        .match(/\d+/g)
        .map(Number);
    for (let i = 0; i < stops.length / 3; i++)
        assert.deepEqual(chart.heatColour(i / (stops.length / 3 - 1)), stops.slice(3 * i, 3 * i + 3));
});

test('a model has the same colour everywhere', () => {
    const source = readFileSync(new URL('src/plot/runs.c', root), 'utf8');
    const rows = [...source.matchAll(/\{ "([a-z0-9-]+)", "([^"]+)", (\d) \}/g)];
    assert.equal(rows.length, 6);
    for (const [, name, label, colour] of rows) {
        assert.equal(chart.modelColour(name), Number(colour));
        assert.equal(chart.modelColour(label), Number(colour));
    }
    assert.equal(chart.modelColour('palimpsa-d lr 1e-3'), 0);
    assert.equal(chart.modelColour('palimpsa-d:mesa'), -1);
    assert.equal(chart.modelColour('palimpsa-dx'), -1);
    assert.deepEqual(chart.modelColours(['palimpsa-d', 'palimpsa-d-wo-meta']), [0, 4]);
    assert.deepEqual(chart.modelColours(['palimpsa-d', 'palimpsa-d@plain']), [0, 4]);
    assert.deepEqual(chart.modelColours(['palimpsa-d', 'palimpsa-d', 'mine']), [0, 7, 3]);
    assert.deepEqual(chart.modelColours(['x', 'x@plain', '<b>']), [3, 0, 1]);
});

test('signed colours meet in the middle and differ at the ends', () => {
    const { light } = chart.THEMES;
    assert.deepEqual(chart.signedColour(0, light), light.middle);
    assert.notDeepEqual(chart.signedColour(1, light), chart.signedColour(-1, light));
    assert.deepEqual(chart.signedColour(5, light), chart.signedColour(1, light));
});

test('numbers read as in the figures', () => {
    const cases = [
        [0, '0'],
        [NaN, '–'],
        [null, '–'],
        [-Infinity, '−∞'],
        [3, '3'],
        [-3, '−3'],
        [0.25, '0.2500'],
        [12345, '12.3k'],
        [1234567, '1.23M'],
        [0.0001234, '1.23×10⁻⁴'],
        [2e-7, '2×10⁻⁷'],
        [9.996e-4, '1×10⁻³'],
        [2.5e9, '2.50B'],
    ];
    for (const [value, text] of cases) assert.equal(chart.numberText(value), text);
    assert.deepEqual([3181.4, 12.345, 0.5, 123456, 8].map(chart.shortText), ['3181', '12.3', '0.500', '123k', '8.00']);
    assert.deepEqual([0, 0.5, 1, 0.99999, 1e-5, NaN].map(chart.percentText), [
        '0.0 %',
        '50.0 %',
        '100.0 %',
        '>99.9 %',
        '<0.1 %',
        '–',
    ]);
    assert.deepEqual([12, 2048, 19 << 20].map(chart.bytesText), ['12 B', '2 KiB', '19.0 MiB']);
});

test('ticks lie inside the axis, ascend and have labels', () => {
    assert.deepEqual(chart.ticksLinear(0, 1, 5).text, ['0', '0.2', '0.4', '0.6', '0.8', '1.0']);
    assert.deepEqual(
        chart.ticksLog(0.01, 100, 6).text,
        ['0.01', '0.10', '1', '10', '100'].map(t => (t === '0.10' ? '0.1' : t)),
    );
    let seed = 1;
    const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
    for (let i = 0; i < 2000; i++) {
        const log = i % 2 === 1,
            size = 10 ** (24 * random() - 12),
            lo = log ? size : size * (random() - 0.5);
        const hi = log ? lo * 10 ** (0.01 + 8 * random()) : lo + size * (0.01 + random());
        const t = (log ? chart.ticksLog : chart.ticksLinear)(lo, hi, 2 + Math.floor(8 * random()));
        assert.ok(t.at.length >= 2 && t.at.length <= 14 && t.at.length === t.text.length, `${lo} ${hi}: ${t.text}`);
        t.at.forEach((x, k) => assert.ok(x >= lo && x <= hi && (k === 0 || x > t.at[k - 1]), `${lo} ${hi}: ${t.at}`));
        assert.equal(new Set(t.text).size, t.text.length, `${lo} ${hi}: ${t.text}`);
    }
});

test('a steady scale grows at once and shrinks late', () => {
    let s = chart.steadyScale(null, 0, 0.9);
    assert.deepEqual([s.lo, s.hi], [0, 1]);
    assert.equal(chart.steadyScale(s, 0, 0.4), s);
    s = chart.steadyScale(s, 0, 1.1);
    assert.equal(s.hi, 2);
    assert.equal(chart.steadyScale(s, 0, 0.1).hi, 0.1);
    const signed = chart.steadyScale(null, -0.3, 0.1);
    assert.deepEqual([signed.lo, signed.hi], [-0.5, 0.5]);
    let l = chart.steadyScale(null, 0.1, 3, true);
    assert.deepEqual([l.lo, l.hi], [0.1, 5]);
    assert.equal(chart.steadyScale(l, 0.2, 4, true), l);
    l = chart.steadyScale(l, 0.2, 400, true);
    assert.deepEqual([l.lo, l.hi], [0.1, 500]);
    for (const bad of [
        chart.steadyScale(null, NaN, 1),
        chart.steadyScale(null, 0, 0),
        chart.steadyScale(null, 0, 0, true),
    ])
        assert.ok(bad.hi > bad.lo);
});

test('smoothing is the mean of what is there', () => {
    assert.deepEqual(chart.smooth([1, 2, 3, 4, 5], 3), [1.5, 2, 3, 4, 4.5]);
    assert.deepEqual(chart.smooth([1, null, 3, NaN, 5], 3), [2, null, 2, NaN, 5]);
    assert.deepEqual(chart.smooth([1, 2], 1), [1, 2]);
    assert.deepEqual(chart.smooth([1e300, 1, 1, 1], 1), [1e300, 1, 1, 1]);
});

test('nearest, perplexity so far', () => {
    assert.deepEqual(
        [0, 1.4, 1.6, 9].map(x => chart.nearest([1, 2, 3], x)),
        [0, 0, 1, 2],
    );
    assert.equal(chart.nearest([], 1), -1);
    const p = chart.runningPerplexity([null, Math.log(0.5), Math.log(0.125)]);
    assert.equal(p[0], null);
    near(p[1], 2);
    near(p[2], 4);
});

test('packed numbers come out as they went in', () => {
    assert.deepEqual([0, 0x3c00, 0xc000, 0x3555, 0x7bff, 0x0001, 0x8000].map(chart.halfToNumber), [
        0,
        1,
        -2,
        0.333251953125,
        65504,
        2 ** -24,
        -0,
    ]);
    assert.ok(Number.isNaN(chart.halfToNumber(0x7e00)));
    assert.equal(chart.halfToNumber(0xfc00), -Infinity);
    const bytes = chart.bytesOfBase64(Buffer.from([0x00, 0x3c, 0x00, 0xc0]).toString('base64'));
    assert.deepEqual([...chart.floatsOfHalves(bytes)], [1, -2]);
    const floats = Buffer.alloc(8);
    floats.writeFloatLE(1.5, 0);
    floats.writeFloatLE(-3e-8, 4);
    assert.deepEqual(
        [...chart.floatsOfBytes(chart.bytesOfBase64(floats.toString('base64')))],
        [1.5, Math.fround(-3e-8)],
    );
});

test('levels fill the scale', () => {
    assert.deepEqual([...chart.levelsOf([0, 0.5, 1, 2, -1], { lo: 0, hi: 1 })], [0, 127, 255, 255, 0]);
    assert.deepEqual([...chart.levelsOf([1, 10, 100, 0], { lo: 1, hi: 100, log: true })], [0, 127, 255, 0]);
});

test('a thinned curve keeps first, last, lowest and highest of a pixel', () => {
    const xs = Array.from({ length: 1000 }, (_, i) => i),
        ys = xs.map(x => (Math.sin(x * 12.9898) * 43758.5453) % 1);
    const kept = chart.thinned(xs, ys, false, x => x / 100);
    assert.ok(kept.length <= 40);
    for (let c = 0; c < 10; c++) {
        const part = ys.slice(100 * c, 100 * c + 100),
            mine = kept.filter(i => Math.floor(i / 100) === c).map(i => ys[i]);
        assert.equal(Math.max(...mine), Math.max(...part));
        assert.equal(Math.min(...mine), Math.min(...part));
    }
    assert.deepEqual(
        chart.thinned([0, 1, 2], [1, null, 1], false, x => x),
        [0, -1, 2],
    );
    assert.deepEqual(
        chart.thinned([0, 1, 2], [1, 0, 1], true, x => x),
        [0, -1, 2],
    );
});

test('hover finds the values of one place', () => {
    const series = [
        { label: 'a', x: [0, 10, 20], y: [1, 2, 3], colour: 0 },
        { label: 'b', x: [0, 20], y: [5, null], colour: 1 },
    ];
    const c = { series },
        f = { left: 0, width: 200, x: { lo: 0, hi: 20 }, y: { lo: 0, hi: 5 } };
    assert.deepEqual(chart.valuesAt(c, f, 104), {
        x: 10,
        rows: [{ label: 'a', value: 2, colour: 0, dashed: undefined }],
    });
    assert.equal(chart.valuesAt(c, f, 3).rows.length, 2);
    assert.equal(chart.valuesAt({ series: [] }, f, 3), null);
});

test('without its export words the file is a plain script', () => {
    const source = readFileSync(new URL('web/chart.js', root), 'utf8');
    assert.ok(!/^import /m.test(source));
    const plain = source.replace(/^export /gm, '');
    assert.equal(new Function(`${plain}\nreturn numberText(0.25);`)(), '0.2500');
});

test('importance has round, steady ends even when it hardly varies', () => {
    const narrow = chart.importanceScale(null, 1.00001, 1.0062);
    assert.ok(
        !narrow.log && narrow.lo <= 1.00001 && narrow.hi >= 1.0062 && narrow.hi - narrow.lo < 0.013,
        JSON.stringify(narrow),
    );
    assert.equal(chart.importanceScale(narrow, 1.0001, 1.005), narrow);
    const wide = chart.importanceScale(narrow, 1, 30);
    assert.deepEqual([wide.lo, wide.hi, wide.log], [1, 50, true]);
    assert.equal(chart.importanceScale(wide, 1.5, 25), wide);
    const flat = chart.importanceScale(null, 1, 1);
    assert.ok(flat.hi > flat.lo);
    assert.deepEqual([0.002, -0.5, 1.008, 20000, 1e-5, 0].map(chart.scaleText), [
        '0.002',
        '−0.5',
        '1.008',
        '20.0k',
        '1×10⁻⁵',
        '0',
    ]);
});
