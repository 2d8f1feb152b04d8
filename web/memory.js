// SPDX-License-Identifier: MIT
// The memory at the chosen position: a tile for each layer, the heads of the open layer as maps, one element's history, the
// tokens that wrote most, and windows by position; the slider over what was read.

import {
    app,
    chooseElement,
    choose,
    colourNumber,
    colourOf,
    emit,
    forgetMaps,
    mapAt,
    on,
    setLayer,
    setPosition,
    theme,
    usesIds,
    wantMap,
} from './app.js';
import {
    drawHeat,
    drawScaleBar,
    drawSpark,
    mountChart,
    placeOf,
    shortText,
    sized,
    steadyScale,
    importanceScale,
    scaleText,
    clamp,
} from './chart.js';
import { $, fill, guard, h, perFrame, visible } from './dom.js';
import { layerName } from './recording.js';

const scales = new WeakMap(); // by recording: colour scales that were in use, so that they do not jump
// The largest size that a recording's means had in a layer so far: what was strong once does not shrink the scale
// later.
function largest(r, layer, size) {
    const held = scales.get(r) ?? {};
    scales.set(r, held);
    return (held[`size${layer}`] = Math.max(held[`size${layer}`] ?? 0, Number.isFinite(size) ? size : 0));
}
function steady(r, name, lo, hi, log = false) {
    const held = scales.get(r) ?? {};
    scales.set(r, held);
    held[name] = (log ? importanceScale : steadyScale)(held[name] ?? null, lo, hi);
    return held[name];
}

const hasLayers = r => r && r.layers.length > 0;
const frameNow = r => r.frames[r.frameIndex(app.position)] ?? null;

// ---- tiles

let tileWidth = 0,
    tiles = [],
    tilesOf = null;

function makeTile(layer, l) {
    const value = () => h('dd', { text: '–' }),
        t = {
            window: value(),
            ratio: value(),
            wrote: value(),
            spread: h('canvas', { class: 'spread' }),
            spark: h('canvas', { class: 'spark' }),
        };
    t.element = h(
        'button',
        { class: 'tile', 'aria-pressed': 'false', onclick: guard(() => setLayer(l)), 'data-layer': l },
        h('span', { class: 'name' }, `Layer ${l}`, h('span', { text: layerName(layer) })),
        h(
            'dl',
            {},
            h('dt', {}, 'window Nₜ', h('span', { class: 'unit', text: ', tokens' })),
            t.window,
            h('dt', { text: 'ratio' }),
            t.ratio,
            h('dt', { text: 'wrote' }),
            t.wrote,
        ),
        t.spread,
        t.spark,
    );
    ((t.window.className = 'window'), (t.ratio.className = 'ratio'), (t.wrote.className = 'wrote'));
    t.window.title = 'Tokens after which this layer has forgotten, median over heads';
    t.ratio.title = 'How unevenly importance slows learning: (largest − smallest) / smallest, mean over heads';
    t.wrote.title = 'Change of the mean by what was read last, over its size';
    t.spread.title = 'Importance: from smallest to largest; box: the middle half; line: median';
    t.spark.title = 'Writing over the tokens';
    return t;
}

export function drawSpread(ctx, width, height, q, scale, colours) {
    ctx.clearRect(0, 0, width, height);
    ctx.fillStyle = colours.grid;
    ctx.fillRect(0, height / 2 - 0.5, width, 1);
    if (!q.every(Number.isFinite)) return;
    const x = v => clamp(placeOf(scale, Math.max(v, 1e-37)), 0, 1) * (width - 2) + 1;
    ctx.fillStyle = colours.muted;
    ctx.fillRect(x(q[0]), height / 2 - 0.5, Math.max(1, x(q[6]) - x(q[0])), 1);
    ctx.globalAlpha = 0.45;
    ctx.fillRect(x(q[1]), height / 2 - 2, Math.max(1, x(q[5]) - x(q[1])), 4);
    ctx.globalAlpha = 1;
    ctx.fillRect(x(q[2]), height / 2 - 4, Math.max(1, x(q[4]) - x(q[2])), 8);
    ctx.fillStyle = colours.ink;
    ctx.fillRect(x(q[3]) - 1, 0, 2, height);
}

const SPREAD = ['i_min', 'i_q05', 'i_q25', 'i_q50', 'i_q75', 'i_q95', 'i_max'];

function spreadScale(r) {
    const ranges = r.layers.map((_, l) => r.importanceRange(l)), lo = Math.min(...ranges.map(range => range.lo)),
          hi = Math.max(...ranges.map(range => range.hi));
    return steady(r, 'spread', lo, hi, true);
}

function drawTiles(r) {
    if (tilesOf !== r || tiles.length !== r.layers.length) {
        tilesOf = r;
        tiles = r.layers.map(makeTile);
        tileWidth = 0;
        fill($('tiles'), ...tiles.map(t => t.element));
    }
    const frame = frameNow(r),
        scale = spreadScale(r),
        colours = theme(),
        colour = colourOf(r.model),
        cursor = r.frameIndex(app.position);
    if (!tileWidth && tiles.length) tileWidth = tiles[0].spark.clientWidth; // asking makes the browser lay out: once
    const width = tileWidth;
    tiles.forEach((t, l) => {
        t.element.setAttribute('aria-pressed', String(l === app.layer));
        const window = r.tile(frame, l, 'window');
        t.window.textContent = window === Infinity ? '∞' : shortText(window);
        t.ratio.textContent = shortText(r.tile(frame, l, 'ratio'));
        t.wrote.textContent = shortText(r.tile(frame, l, 'write'));
        if (!width) return;
        drawSpread(
            sized(t.spread, width, 14),
            width,
            14,
            SPREAD.map(f => r.tile(frame, l, f)),
            scale,
            colours,
        );
        const curve = r.writeCurve(l);
        drawSpark(
            sized(t.spark, width, 26),
            width,
            26,
            curve.values,
            steady(r, `write${l}`, 0, Math.max(curve.top, 1e-9), false),
            colour,
            cursor / curve.size,
            colours,
        );
    });
}

// ---- maps

let maps = null; // { key, figures: { importance: [...], mean: [...] } }

function pickElement(e, m, head) {
    const box = e.currentTarget.getBoundingClientRect(),
        [keys, values] = m.shape,
        [bk, bv] = m.block;
    const row = clamp(Math.floor(((e.clientY - box.top) / box.height) * m.rows), 0, m.rows - 1),
        column = clamp(Math.floor(((e.clientX - box.left) / box.width) * m.columns), 0, m.columns - 1);
    return { layer: m.layer, head, key: Math.min(row * bk, keys - 1), value: Math.min(column * bv, values - 1) };
}

function moveElement(e, m, head) {
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[e.key];
    if (!by && e.key !== 'Enter') return;
    e.preventDefault();
    const now =
        app.element?.layer === m.layer && app.element?.head === head
            ? app.element
            : { layer: m.layer, head, key: 0, value: 0 };
    const [dk, dv] = by ?? [0, 0];
    guard(chooseElement)({
        ...now,
        key: clamp(now.key + dk * m.block[0], 0, m.shape[0] - 1),
        value: clamp(now.value + dv * m.block[1], 0, m.shape[1] - 1),
    });
    chooseHead(head);
}

function chooseHead(head) {
    app.head = head;
    emit('layer');
}

function makeMaps(r, m) {
    const figures = {},
        groups = [];
    for (const [part, title] of [
        ['importance', 'Importance I'],
        ['mean', r.layers[m.layer].parts[0] === 'mu' ? 'Mean μ' : `Memory ${r.layers[m.layer].parts[0]}`],
    ]) {
        if (!m[part]) continue;
        const bar = h('canvas'),
            low = h('span'),
            high = h('span');
        figures[part] = {
            bar,
            low,
            high,
            heads: m.heads.map(head => {
                const canvas = h('canvas', {
                    class: 'heat',
                    tabIndex: 0,
                    role: 'img',
                    'data-part': part,
                    'data-head': head,
                    onclick: e => {
                        chooseHead(head);
                        guard(chooseElement)(pickElement(e, maps.map, head));
                    },
                    onkeydown: e => moveElement(e, maps.map, head),
                });
                const cross = h('div', { class: 'cross', hidden: true }),
                    strength = h('span', { class: 'num' });
                const figure = h(
                    'figure',
                    {},
                    h('div', { class: 'frame' }, canvas, cross),
                    h(
                        'figcaption',
                        {},
                        part === 'importance' || !m.importance
                            ? h('button', { text: `head ${head}`, onclick: () => chooseHead(head) })
                            : null,
                        strength,
                    ),
                );
                canvas.style.aspectRatio = clamp(m.columns / m.rows, 0.4, 2.5);
                return { head, canvas, cross, strength, figure };
            }),
        };
        const grid = h('div', { class: 'maps' }, ...figures[part].heads.map(f => f.figure));
        if (m.heads.length <= 4) grid.style.gridTemplateColumns = `repeat(${m.heads.length}, minmax(0, 164px))`;
        groups.push(
            h(
                'div',
                {},
                h(
                    'div',
                    { class: 'title part' },
                    h('h3', { text: title }),
                    h('div', { class: 'scale' }, low, bar, high),
                ),
                grid,
            ),
        );
    }
    const layer = r.layers[m.layer],
        reduce = h(
            'select',
            {
                'aria-label': 'How blocks of elements become one',
                onchange: e => {
                    app.reduce = e.target.value;
                    forgetMaps(r);
                    emit('layer');
                },
            },
            h('option', { value: 'max', text: 'largest of each block' }),
            h('option', { value: 'mean', text: 'mean of each block' }),
        );
    reduce.value = app.reduce;
    const blocks =
        m.block[0] * m.block[1] > 1
            ? [h('span', { class: 'muted', text: `blocks of ${m.block[0]} × ${m.block[1]}:` }), reduce]
            : [];
    fill(
        $('layer'),
        h(
            'section',
            { class: 'card' },
            h(
                'div',
                { class: 'title' },
                h('h3', { text: `Layer ${m.layer}` }),
                h('span', {
                    class: 'muted',
                    text: `${layer.heads} heads; rows: ${m.shape[0]} keys, columns: ${m.shape[1]} values`,
                }),
                ...blocks,
                h('span', { class: 'muted num push', id: 'map-position' }),
            ),
            ...groups.map((g, i) => {
                if (i) g.style.marginTop = '14px';
                return g;
            }),
        ),
    );
    return figures;
}

function drawMaps(r) {
    if (app.layer === null || !r.layers[app.layer]) return;
    if (!r.layers[app.layer].parts.length) {
        maps = null;
        fill(
            $('layer'),
            h(
                'section',
                { class: 'card' },
                h('h3', { text: `Layer ${app.layer}` }),
                h('p', {
                    class: 'muted',
                    text:
                        r.layers[app.layer].rule === 'attention'
                            ? 'Attention keeps every token: its memory grows, so there is nothing of fixed size to show.'
                            : 'This layer keeps no memory of keys and values: there is nothing to show.',
                }),
            ),
        );
        return;
    }
    const exact = mapAt(r, app.position, app.layer),
        live = r.map?.layer === app.layer ? r.map : null;
    const m =
        exact ??
        (app.follow ? live : null) ??
        (maps?.recording === r && maps.map.layer === app.layer ? maps.map : live);
    if (!exact) guard(wantMap)();
    if (!m) {
        if (maps?.recording !== r) {
            maps = null;
            fill($('layer'));
        }
        return;
    }
    const key = `${m.layer}/${m.heads.length}/${m.rows}x${m.columns}/${m.block}/${!!m.importance}`;
    if (!maps || maps.key !== key || maps.recording !== r) maps = { key, recording: r, figures: makeMaps(r, m) };
    maps.map = m;
    const colours = theme(),
        frame = frameNow(r);
    for (const [part, group] of Object.entries(maps.figures)) {
        let lo = Infinity,
            hi = -Infinity;
        for (const values of m[part])
            for (const v of values) if (Number.isFinite(v)) ((lo = Math.min(lo, v)), (hi = Math.max(hi, v)));
        const signed = part === 'mean', range = r.importanceRange(m.layer),
              size = signed ? largest(r, m.layer, Math.max(Math.abs(lo), Math.abs(hi))) : 0;
        const scale = signed ? steady(r, `mean${m.layer}`, -size, size, false)
                             : steady(r, `importance${m.layer}`, Math.min(lo, range.lo), Math.max(hi, range.hi), true);
        group.low.textContent = scaleText(scale.lo);
        group.high.textContent = scaleText(scale.hi);
        if (group.theme !== colours) drawScaleBar(group.bar, signed ? 'signed' : 'heat', (group.theme = colours));
        group.heads.forEach((f, k) => {
            if (f.drawn !== m || f.scale !== scale || f.theme !== colours) {
                drawHeat(f.canvas, m[part][k], m.rows, m.columns, scale, signed ? 'signed' : 'heat', colours);
                Object.assign(f, { drawn: m, scale, theme: colours });
            }
            f.strength.textContent =
                signed || !maps.figures.importance ? `wrote ${shortText(r.write(frame, m.layer, f.head))}` : '';
            f.figure.className = f.head === app.head ? 'on' : '';
            f.canvas.setAttribute(
                'aria-label',
                `${signed ? 'mean' : 'importance'} of head ${f.head}; arrow keys choose an element`,
            );
            const e = app.element,
                on = e && e.layer === m.layer && e.head === f.head;
            f.cross.hidden = !on;
            if (on)
                Object.assign(f.cross.style, {
                    left: `${(100 * (Math.floor(e.value / m.block[1]) + 0.5)) / m.columns}%`,
                    top: `${(100 * (Math.floor(e.key / m.block[0]) + 0.5)) / m.rows}%`,
                    width: `${100 / m.columns}%`,
                    height: `${100 / m.rows}%`,
                });
        });
    }
    $('map-position').textContent = `after ${m.position} tokens`;
}

// ---- history, writers, windows

let historyImportance, historyMean, windows;

export function historyCharts(r) {
    const e = app.element,
        own = r.followed && r.followedElement === e ? r.followed : null,
        count = own?.length ?? 0,
        colour = colourNumber(r.model);
    const x = [],
        mean = [],
        importance = [];
    const first = own?.first ?? 0,
        step = Math.max(1, Math.ceil((count - first) / 2000)); // of long texts every step-th token
    for (let i = first; i < count; i += step) {
        if (!Number.isFinite(own.at(i, 0))) continue;
        x.push(r.start + i + 1);
        mean.push(own.at(i, 0));
        importance.push(own.at(i, 1));
    }
    const prior = e ? r.layers[e.layer]?.prior?.[e.head] : undefined,
        ends = x.length ? [x[0], x[x.length - 1]] : [];
    const axis = { label: 'tokens read' },
        nothing = 'choose an element in a map',
        cursor = x.length ? clamp(app.position, x[0], x[x.length - 1]) : null;
    const line = (label, y) => ({ label, x, y, colour });
    return {
        importance: {
            x: axis,
            y: { label: 'importance I' },
            nothing,
            cursor,
            series: importance.some(Number.isFinite)
                ? [
                      line('importance', importance),
                      ...(Number.isFinite(prior)
                          ? [{ label: 'prior', x: ends, y: ends.map(() => prior), colour: 6, dashed: true }]
                          : []),
                  ]
                : [],
        },
        mean: {
            x: axis,
            y: { label: 'mean μ' },
            nothing,
            cursor,
            series: x.length
                ? [
                      line('mean', mean),
                      { label: 'prior mean 0', x: ends, y: ends.map(() => 0), colour: 6, dashed: true },
                  ]
                : [],
        },
    };
}

function drawHistory(r) {
    const e = app.element,
        charts = historyCharts(r);
    $('history-note').textContent = e
        ? `layer ${e.layer}, head ${e.head}, key ${e.key}, value ${e.value}`
        : 'Choose an element in a map to see how its importance rose, its mean moved and its prior pulled it back.';
    historyImportance.set(charts.importance);
    historyMean.set(charts.mean);
}

export function tokenLabel(r, w) {
    if (w.to - w.from > 1) return `tokens ${r.start + w.from}–${r.start + w.to - 1}`;
    return usesIds(r.model) ? String(r.ids[w.from] ?? '') : visible(r.texts[w.from] ?? '');
}

function drawWriters(r) {
    if (app.layer === null || !hasLayers(r)) return;
    const list = r.writers(app.layer, app.head),
        top = list[0]?.strength ?? 1;
    $('writers-title').textContent = `Tokens that wrote most into layer ${app.layer}, head ${app.head}`;
    fill(
        $('writers'),
        ...list.map(w => {
            const bar = h('i');
            bar.style.width = `${(100 * w.strength) / top}%`;
            return h(
                'li',
                {},
                h('button', {
                    text: `at ${r.start + w.from}`,
                    onclick: () => {
                        choose(w.from);
                        setPosition(r.start + w.to);
                    },
                }),
                h('bdi', { class: 'piece', text: tokenLabel(r, w) }),
                h('div', { class: 'track' }, bar),
                h('span', { class: 'value', text: shortText(w.strength) }),
            );
        }),
    );
}

export function windowsChart(r) {
    const colour = colourNumber(r.model),
        n = r.windows?.length ?? 0,
        step = Math.ceil(n / 2000) || 1; // of long texts every step-th token
    const rows = Array.from({ length: Math.ceil(n / step) }, (_, i) => i * step),
        x = rows.map(i => r.start + i + 1);
    const series = r.layers
        .map((_, l) => ({
            label: `layer ${l}`,
            x,
            y: rows.map(i => r.windows.at(i, l)),
            colour,
            quiet: l !== app.layer,
        }))
        .filter(s => s.y.some(v => Number.isFinite(v) && v > 0));
    return {
        x: { label: 'tokens read' },
        y: { label: 'window Nₜ (tokens)', log: true },
        series,
        cursor: n ? app.position : null,
    };
}

// ---- slider and playing

let playing = null;
const playSign = on => {
    $('play').textContent = on ? '❚❚' : '▶';
    $('play').setAttribute('aria-label', on ? 'Pause' : 'Play from the beginning');
};
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

export function stopPlaying() {
    playing = null;
    playSign(false);
}

// Goes through the frames, one after another, as fast as maps come but at most `rate` a second.
export async function play(fromStart = false, rate = 9) {
    const r = app.current?.recording,
        mine = {};
    if (!r || !r.frames.length) return;
    playing = mine;
    playSign(true);
    let at = fromStart || app.position >= r.position ? -1 : r.frameIndex(app.position);
    const stride = Math.max(1, Math.ceil(r.frames.length / 400));
    while (playing === mine && app.current?.recording === r && at < r.frames.length - 1) {
        at = Math.min(at + stride, r.frames.length - 1);
        setPosition(r.frames[at].position);
        const until = performance.now() + 1000 / rate;
        await wantMap().catch(() => {});
        while (
            playing === mine &&
            app.layer !== null &&
            r.layers[app.layer]?.parts.length &&
            !mapAt(r, app.position, app.layer) &&
            performance.now() < until + 1500
        )
            await sleep(10);
        await sleep(Math.max(0, until - performance.now()));
    }
    if (playing === mine) stopPlaying();
}

function drawSlider(r) {
    const s = $('slider'),
        start = r.start,
        end = r.position;
    s.min = start;
    s.max = end;
    s.value = app.position;
    s.disabled = end <= start;
    $('play').disabled = end <= start;
    const text = `${app.position} / ${end}`;
    $('place').textContent = text;
    s.setAttribute('aria-valuetext', `after ${app.position} of ${end} tokens`);
}

// What need not follow every frame: five times a second while a text streams.
let slowAt = 0,
    slowTimer = 0;
function drawSlow(r) {
    clearTimeout(slowTimer);
    const wait = app.busy ? slowAt + 200 - performance.now() : 0;
    if (wait > 0) {
        slowTimer = setTimeout(() => drawSlow(r), wait);
        return;
    }
    slowAt = performance.now();
    if (app.current?.recording !== r) return;
    drawWriters(r);
    windows.set(windowsChart(r));
}

const draw = perFrame(() => {
    const r = app.current?.recording;
    if (!r) return;
    drawSlider(r);
    if (!hasLayers(r)) {
        tilesOf = null;
        maps = null;
        fill(
            $('tiles'),
            h('p', {
                class: 'muted wide',
                text: 'A tile for each layer appears here when the model has read something.',
            }),
        );
        fill($('layer'));
        fill($('writers'), h('li', { class: 'muted', text: 'nothing yet' }));
        historyImportance.set({ series: [], x: { label: 'tokens read' }, y: { label: 'importance I' } });
        historyMean.set({ series: [], x: { label: 'tokens read' }, y: { label: 'mean μ' } });
        windows.set({ series: [], x: { label: 'tokens read' }, y: { label: 'window Nₜ (tokens)', log: true } });
        return;
    }
    drawTiles(r);
    drawMaps(r);
    drawHistory(r);
    drawSlow(r);
});

export const currentMaps = () => maps;

export function initMemory() {
    const chart = (id, height) => mountChart($(id), { themeNow: theme, height, onPick: x => setPosition(x) });
    historyImportance = chart('history-importance', 190);
    historyMean = chart('history-mean', 190);
    windows = chart('windows', 236);
    playSign(false);
    $('slider').addEventListener('input', e => {
        stopPlaying();
        setPosition(Number(e.target.value));
        const r = app.current.recording,
            i = app.position - r.start - 1;
        choose(i >= 0 && i < r.ids.length ? i : null);
    });
    $('play').addEventListener('click', () => {
        if (playing) stopPlaying();
        else play();
    });
    on('conversation', () => {
        stopPlaying();
        if (app.element) guard(chooseElement)(app.element);
    });
    on('conversation frames position layer element theme tokens', draw);
    new ResizeObserver(() => {
        tileWidth = 0;
        draw();
    }).observe($('memory-scroll'));
}
