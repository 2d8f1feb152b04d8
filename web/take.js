// SPDX-License-Identifier: MIT
// What one sees, to take along: a picture, the numbers, or a link that shows the same again.

import { chapterNow } from './story.js';
import { app, colourOf, theme } from './app.js';
import {
    FONT_LABEL,
    FONT_TICK,
    FONT_TITLE,
    drawChart,
    drawSpark,
    drawScaleBar,
    numberText,
    runningPerplexity,
    seriesColour,
    shortText,
    steadyScale,
    importanceScale,
} from './chart.js';
import { compare, differences, comparisonChart } from './compare.js';
import { layerName } from './recording.js';
import { drawSpread, currentMaps, historyCharts, windowsChart } from './memory.js';
import { PANEL_LIST, PANELS_FIRST, panelChart, training } from './training.js';

// ---- numbers

const plain = v => (v === undefined || (typeof v === 'number' && !Number.isFinite(v)) ? null : v);

// { name, columns, rows } of what the view shows.
export function tableOf(view) {
    if (view === 'training') {
        const keys = ['step', ...new Set(PANEL_LIST.flatMap(p => p[1])), 'tokens', 'seconds'],
            rows = [];
        for (const name of training.selected)
            for (const row of training.rows.get(name)?.rows ?? [])
                rows.push([
                    name,
                    ...keys.map(k => {
                        const v = row[k];
                        return Array.isArray(v) ? v.map(plain).join(' ') : plain(v);
                    }),
                ]);
        return { name: 'runs', columns: ['run', ...keys], rows };
    }
    if (view === 'compare') {
        const [a, b] = compare.sides.map(s => s.recording),
            pa = runningPerplexity(a.logprobs),
            pb = runningPerplexity(b.logprobs);
        const rows = Array.from({ length: Math.max(a.ids.length, b.ids.length) }, (_, i) =>
            [i, a.ids[i], a.texts[i], b.ids[i], b.texts[i], a.logprobs[i], b.logprobs[i], pa[i], pb[i]].map(v =>
                plain(v ?? null),
            ),
        );
        return {
            name: 'comparison',
            columns: [
                'index',
                'id_a',
                'text_a',
                'id_b',
                'text_b',
                'logprob_a',
                'logprob_b',
                'perplexity_a',
                'perplexity_b',
            ],
            rows,
        };
    }
    const r = app.current.recording,
        layers = r.layers.map((_, l) => l),
        wrote = layers.map(l => r.writeByToken(l, null));
    const columns = [
        'index',
        'id',
        'text',
        'written',
        'logprob',
        'variance',
        ...layers.flatMap(l => [`window_${l}`, `variance_${l}`, `write_${l}`]),
    ];
    const rows = r.ids.map((id, i) => [
        r.start + i,
        id,
        r.texts[i],
        r.written[i],
        plain(r.logprobs[i]),
        plain(r.uncertainty[i]),
        ...layers.flatMap(l => [plain(r.windows.at(i, l)), plain(r.variances.at(i - 1, l)), plain(wrote[l][i])]),
    ]);
    return { name: 'tokens', columns, rows };
}

export function csvOf({ columns, rows }) {
    const cell = v => (v === null ? '' : typeof v === 'string' ? `"${v.replace(/"/g, '""')}"` : String(v));
    return `${[columns, ...rows].map(row => row.map(cell).join(',')).join('\r\n')}\r\n`;
}

export function jsonOf(view) {
    const table = tableOf(view),
        out = {
            view,
            [table.name]: table.rows.map(row => Object.fromEntries(row.map((v, i) => [table.columns[i], v]))),
        };
    if (view === 'compare') {
        out.models = compare.sides.map(s => s.model);
        out.differences = differences(
            compare.sides.map(s => s.recording),
            compare.queries,
            1000,
        );
    } else if (view === 'talk') {
        const r = app.current.recording,
            m = currentMaps()?.map;
        Object.assign(out, { model: r.model, position: app.position, layers: r.layers, tile_fields: r.fields });
        out.frames = r.frames.map(f => ({
            from: f.from,
            position: f.position,
            tiles: r.layers.map((_, l) => Object.fromEntries(r.fields.map(n => [n, plain(r.tile(f, l, n))]))),
            write: Array.from(f.write, plain),
        }));
        if (m)
            out.map = {
                ...m,
                mean: m.mean?.map(v => Array.from(v)),
                importance: m.importance?.map(v => Array.from(v)) ?? null,
            };
        if (app.element && r.followed)
            out.element = {
                ...app.element,
                history: Array.from({ length: r.followed.length }, (_, i) => ({
                    position: r.start + i + 1,
                    mean: plain(r.followed.at(i, 0)),
                    importance: plain(r.followed.at(i, 1)),
                })),
            };
    }
    return `${JSON.stringify(out, null, 1)}\n`;
}

// ---- picture

const WIDTH = 1200,
    EDGE = 24,
    DENSITY = 2;

function own(ctx, x, y, w, hgt, draw, pixelated = false) {
    const c = document.createElement('canvas');
    if (pixelated) draw(c);
    else {
        ((c.width = w * DENSITY), (c.height = hgt * DENSITY));
        const inner = c.getContext('2d');
        inner.scale(DENSITY, DENSITY);
        draw(inner, w, hgt);
    }
    ctx.imageSmoothingEnabled = !pixelated;
    ctx.drawImage(c, x, y, w, hgt);
}

function words(ctx, text, x, y, font, colour, room) {
    ctx.font = font;
    ctx.fillStyle = colour;
    ctx.textAlign = 'left';
    ctx.textBaseline = 'alphabetic';
    ctx.fillText(text, x, y, room);
    return ctx.measureText(text).width;
}

function chartBlock(chart, height = 280) {
    return {
        height: height + 26,
        draw(ctx, x, y, w) {
            const t = theme();
            let at = x;
            for (const s of chart.series.filter(one => !one.faint && !one.quiet && !one.unnamed)) {
                ctx.fillStyle = seriesColour(t, s.colour);
                ctx.fillRect(at, y + 8, 18, 3);
                at += 24 + words(ctx, s.label, at + 24, y + 14, FONT_LABEL, t.ink, 300) + 18;
            }
            own(ctx, x, y + 24, w, height, (inner, iw, ih) => drawChart(inner, chart, iw, ih, t));
        },
    };
}

function tilesBlock(r) {
    const columns = Math.min(6, r.layers.length),
        rows = Math.ceil(r.layers.length / columns),
        frame = r.frames[r.frameIndex(app.position)];
    return {
        height: rows * 132,
        draw(ctx, x, y, w) {
            const t = theme(),
                width = (w - (columns - 1) * 12) / columns,
                spreads = r.layers
                    .map((_, l) => [r.tile(frame, l, 'i_min'), r.tile(frame, l, 'i_max')])
                    .filter(v => v.every(Number.isFinite));
            const scale = importanceScale(
                null,
                Math.min(...spreads.map(v => v[0])),
                Math.max(...spreads.map(v => v[1])),
            );
            r.layers.forEach((layer, l) => {
                const tx = x + (l % columns) * (width + 12),
                    ty = y + Math.floor(l / columns) * 132;
                ctx.strokeStyle = t.grid;
                ctx.strokeRect(tx + 0.5, ty + 0.5, width, 120);
                words(ctx, `Layer ${l}  ${layerName(layer)}`, tx + 10, ty + 20, FONT_TITLE, t.ink, width - 20);
                words(
                    ctx,
                    `window ${shortText(r.tile(frame, l, 'window'))}   ratio ${shortText(r.tile(frame, l, 'ratio'))}   wrote ${shortText(r.tile(frame, l, 'write'))}`,
                    tx + 10,
                    ty + 42,
                    FONT_TICK,
                    t.muted,
                    width - 20,
                );
                own(ctx, tx + 10, ty + 52, width - 20, 14, (c, cw, ch) =>
                    drawSpread(
                        c,
                        cw,
                        ch,
                        ['i_min', 'i_q05', 'i_q25', 'i_q50', 'i_q75', 'i_q95', 'i_max'].map(f => r.tile(frame, l, f)),
                        scale,
                        t,
                    ),
                );
                const curve = r.writeCurve(l);
                own(ctx, tx + 10, ty + 74, width - 20, 36, (c, cw, ch) =>
                    drawSpark(
                        c,
                        cw,
                        ch,
                        curve.values,
                        steadyScale(null, 0, Math.max(curve.top, 1e-9)),
                        colourOf(r.model),
                        r.frameIndex(app.position) / curve.size,
                        t,
                    ),
                );
            });
        },
    };
}

function mapsBlock(shown, part, title) {
    const m = shown.map,
        columns = Math.min(8, m.heads.length),
        size = Math.min(220, (WIDTH - 2 * EDGE - (columns - 1) * 12) / columns),
        rows = Math.ceil(m.heads.length / columns);
    return {
        height: 34 + rows * (size + 24),
        draw(ctx, x, y) {
            const t = theme(),
                group = shown.figures[part],
                signed = part === 'mean';
            const after = words(ctx, `${title}, layer ${m.layer}`, x, y + 14, FONT_TITLE, t.ink, 400);
            words(ctx, group.low.textContent, x + after + 24, y + 14, FONT_TICK, t.muted, 80);
            own(ctx, x + after + 76, y + 5, 120, 9, c => drawScaleBar(c, signed ? 'signed' : 'heat', t), true);
            words(ctx, group.high.textContent, x + after + 204, y + 14, FONT_TICK, t.muted, 80);
            group.heads.forEach((f, k) => {
                const px = x + (k % columns) * (size + 12),
                    py = y + 26 + Math.floor(k / columns) * (size + 24);
                ctx.imageSmoothingEnabled = false;
                ctx.drawImage(f.canvas, px, py, size, size);
                words(ctx, `head ${f.head}`, px, py + size + 14, FONT_TICK, t.muted, size);
            });
        },
    };
}

function blocksOf(view) {
    if (view === 'training')
        return {
            title: 'Training',
            blocks: PANEL_LIST.map(panelChart)
                .filter((c, i) => c.series.length && (i < PANELS_FIRST || training.more))
                .map(c => chartBlock(c)),
        };
    if (view === 'compare')
        return {
            title: compare.sides.map(s => `${s.model}: ${s.summary.textContent}`).join('   |   '),
            blocks: [chartBlock(comparisonChart(), 420)],
        };
    const r = app.current.recording,
        shown = currentMaps(),
        blocks = [];
    if (r.layers.length) blocks.push(tilesBlock(r));
    if (shown?.figures.importance) blocks.push(mapsBlock(shown, 'importance', 'Importance I'));
    if (shown?.figures.mean) blocks.push(mapsBlock(shown, 'mean', 'Mean'));
    if (app.element) {
        const h = historyCharts(r);
        blocks.push(chartBlock(h.importance, 220), chartBlock(h.mean, 220));
    }
    if (r.layers.length) blocks.push(chartBlock(windowsChart(r), 240));
    return { title: `${r.model}, after ${numberText(app.position)} of ${numberText(r.position)} tokens`, blocks };
}

export function pictureOf(view) {
    const { title, blocks } = blocksOf(view),
        height = 60 + blocks.reduce((sum, b) => sum + b.height + 18, 0) + 10,
        t = theme();
    const canvas = document.createElement('canvas');
    ((canvas.width = WIDTH * DENSITY), (canvas.height = height * DENSITY));
    const ctx = canvas.getContext('2d');
    ctx.scale(DENSITY, DENSITY);
    ctx.fillStyle = t.paper;
    ctx.fillRect(0, 0, WIDTH, height);
    words(ctx, title, EDGE, 36, FONT_TITLE.replace('13px', '17px'), t.ink, WIDTH - 2 * EDGE);
    let y = 60;
    for (const b of blocks) {
        b.draw(ctx, EDGE, y, WIDTH - 2 * EDGE);
        y += b.height + 18;
    }
    return new Promise(resolve => canvas.toBlob(resolve, 'image/png'));
}

// ---- links

// Numbers of at least 0 as letters of an address: 7 bits a byte, small ones in one.
export function packNumbers(numbers) {
    const bytes = [];
    for (let n of numbers) {
        while (n >= 128) (bytes.push((n % 128) | 128), (n = Math.floor(n / 128)));
        bytes.push(n);
    }
    return btoa(bytes.map(b => String.fromCharCode(b)).join(''))
        .replace(/\+/g, '-')
        .replace(/\//g, '_')
        .replace(/=+$/, '');
}
export function unpackNumbers(text) {
    const raw = atob(text.replace(/-/g, '+').replace(/_/g, '/')),
        out = [];
    let value = 0,
        unit = 1;
    for (let i = 0; i < raw.length; i++) {
        const b = raw.charCodeAt(i);
        value += (b & 127) * unit;
        unit *= 128;
        if (b < 128) {
            out.push(value);
            value = 0;
            unit = 1;
        }
    }
    return out;
}

const flatQueries = queries => [...queries.values()].flatMap(q => [q.position, q.key, q.value]);
export function queriesOf(flat) {
    const out = new Map();
    for (let i = 0; i + 2 < flat.length; i += 3)
        out.set(flat[i], { position: flat[i], key: flat[i + 1], value: flat[i + 2] });
    return out;
}

export const LONGEST_LINK = 500000;

export function linkOf(view) {
    const q = new URLSearchParams({ view });
    const set = (name, v) => {
        if (v !== null && v !== undefined && v !== '' && v !== false) q.set(name, v);
    };
    if (view === 'talk') {
        const c = app.current,
            r = c.recording;
        set('model', c.model);
        set('name', c.name);
        if (c.base) set('memory', c.base.id);
        if (r.ids.length) set('ids', packNumbers(r.ids));
        if (r.written.includes(true))
            set('written', packNumbers(r.written.flatMap((w, i) => (w !== (r.written[i - 1] ?? false) ? [i] : []))));
        if (c.queries) set('queries', packNumbers(flatQueries(c.queries)));
        set('layer', app.layer);
        set('head', app.head || null);
        set('position', app.position);
        set('colour', app.colourBy);
        set('reduce', app.reduce === 'max' ? null : app.reduce);
        if (app.element) set('element', `${app.element.head}.${app.element.key}.${app.element.value}`);
    } else if (view === 'story') {
        set('chapter', chapterNow());
    } else if (view === 'compare') {
        const [a, b] = compare.sides;
        set('a', a.model);
        set('b', b.model);
        set('text', a.prompt.value);
        if (!compare.same) set('other', b.prompt.value);
        if (compare.queries) set('queries', packNumbers(flatQueries(compare.queries)));
        set('chosen', compare.chosen);
    } else {
        for (const name of training.selected) q.append('run', name);
        set('x', training.x);
        set('logx', training.logX);
        set('logy', training.logY);
        set('smooth', training.smooth > 1 ? training.smooth : null);
        set('more', training.more);
    }
    return `${location.origin}${location.pathname}#${q}`;
}
