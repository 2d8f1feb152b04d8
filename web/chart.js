// SPDX-License-Identifier: MIT
// Drawing: colours, numbers, axes, curves and heat maps on a canvas. Nothing here asks a server or keeps state of the
// page, and there are no imports: a report of a run has this file inside, without its `export` words.
// Colours, ticks, smoothing and number texts are those of the SVG figures (src/plot/).

// ---- colours

export const COLOURS = 7;
export const THEMES = {
    light: {
        paper: '#ffffff',
        ink: '#1d2129',
        muted: '#5b6370',
        grid: '#e4e7ec',
        series: ['#0072b2', '#d55e00', '#009e73', '#c4609a', '#4aa8de', '#db9600', '#6b7280'],
        middle: [247, 247, 248],
        empty: '#eceef1',
    },
    dark: {
        paper: '#14171c',
        ink: '#eceff4',
        muted: '#a3acba',
        grid: '#2c323b',
        series: ['#4da6e0', '#ff8a3c', '#2cc498', '#e590c0', '#8fd0f5', '#f2bb4b', '#a8b0bd'],
        middle: [30, 34, 41],
        empty: '#22272f',
    },
};

const HEAT = [
    [13, 17, 54],
    [33, 55, 118],
    [30, 104, 143],
    [39, 150, 137],
    [112, 190, 110],
    [205, 219, 94],
    [253, 245, 176],
];
const NEGATIVE = [118, 62, 171],
    POSITIVE = [214, 140, 20]; // of means: neither is a model's colour

export function clamp(x, lo, hi) {
    return x < lo ? lo : x > hi ? hi : x;
}

// 0 .. 1: importance, from dark to light.
export function heatColour(u) {
    const last = HEAT.length - 1,
        at = clamp(u, 0, 1) * last,
        i = at >= last ? last - 1 : Math.floor(at);
    return HEAT[i].map((c, k) => Math.round(c + (at - i) * (HEAT[i + 1][k] - c)));
}

// -1 .. 1: signed values, from violet over the paper to amber. The root lets small values be seen.
export function signedColour(u, theme) {
    const end = u < 0 ? NEGATIVE : POSITIVE,
        t = Math.sqrt(Math.min(Math.abs(u), 1));
    return theme.middle.map((c, k) => Math.round(c + t * (end[k] - c)));
}

export function cssColour(rgb) {
    return `rgb(${rgb[0]},${rgb[1]},${rgb[2]})`;
}

// An ablation is a lighter shade of its model's hue.
const MODELS = [
    ['palimpsa-d', 'Palimpsa-D', 0],
    ['palimpsa-d-wo-meta', 'Palimpsa-D w/o Meta', 4],
    ['palimpsa-m', 'Palimpsa-M', 1],
    ['palimpsa-m-wo-meta', 'Palimpsa-M w/o Meta', 5],
    ['gated-deltanet', 'Gated DeltaNet', 2],
    ['transformer', 'Transformer++', 6],
];
const PLAIN = [4, 5, 6, 6, 6, 6, 6]; // NAME@plain: the shade of the ablation

function begins(text, start) {
    return text.startsWith(start) && !/^[0-9A-Za-z]/.test(text.slice(start.length)) ? start.length : 0;
}

export function modelColour(name) {
    let longest = 0,
        colour = -1;
    for (const [id, label, own] of MODELS) {
        const n = Math.max(begins(name, id), begins(name, label)),
            rest = name.slice(n);
        if (rest[0] === ':' || /^ \([A-Za-z]/.test(rest)) continue; // another rule on its backbone
        if (n > longest) ((longest = n), (colour = own));
    }
    return colour;
}

// One colour number for each name; numbers from COLOURS on repeat the hues with other dashes.
export function modelColours(names) {
    const used = new Array(COLOURS).fill(0),
        bare = names.map(n => n.replace(/@plain$/, ''));
    const out = names.map((name, i) => {
        const own = modelColour(bare[i]);
        if (own < 0) return -1;
        const c = bare[i] === name ? own : PLAIN[own];
        return c + COLOURS * used[c]++;
    });
    return out.map(c => {
        if (c >= 0) return c;
        let least = 3; // the one hue that no model owns
        for (let k = 0; k < COLOURS; k++) if (used[k] < used[least]) least = k;
        return least + COLOURS * used[least]++;
    });
}

export function seriesColour(theme, number) {
    return theme.series[number % COLOURS];
}
export function seriesDashes(number, dashed) {
    if (dashed) return [5, 3.5];
    const round = Math.floor(number / COLOURS);
    return round === 0 ? [] : round % 2 ? [1.5, 2.5] : [7, 2.5, 1.5, 2.5];
}

// ---- numbers as people read them

const SUPERSCRIPT = { '-': '⁻', 0: '⁰', 1: '¹', 2: '²', 3: '³', 4: '⁴', 5: '⁵', 6: '⁶', 7: '⁷', 8: '⁸', 9: '⁹' };
export function powerText(exponent) {
    return '10' + [...String(exponent)].map(c => SUPERSCRIPT[c]).join('');
}

function fixed(value, decimals, suffix = '') {
    const digits = Math.abs(value).toFixed(clamp(decimals, 0, 20));
    return /^[0.]*$/.test(digits) ? '0' : (value < 0 ? '−' : '') + digits + suffix;
}
function scientific(mantissa, decimals, exponent) {
    return mantissa === 0 ? '0' : fixed(mantissa, decimals) + '×' + powerText(exponent);
}

export function numberText(value) {
    if (value === null || value === undefined || Number.isNaN(value)) return '–';
    if (!Number.isFinite(value)) return value < 0 ? '−∞' : '∞';
    const size = Math.abs(value);
    if (size === 0) return '0';
    if (size < 1e-3 || size >= 1e15) {
        let exponent = Math.floor(Math.log10(size)),
            mantissa = value / 10 ** exponent;
        if (Math.abs(mantissa) > 9.9949) ((mantissa /= 10), exponent++);
        return scientific(mantissa, Math.abs(mantissa - Math.round(mantissa)) < 5e-3 ? 0 : 2, exponent);
    }
    if (size >= 1e12) return fixed(value / 1e12, 2, 'T');
    if (size >= 1e9) return fixed(value / 1e9, 2, 'B');
    if (size >= 1e6) return fixed(value / 1e6, 2, 'M');
    if (size >= 1e4) return fixed(value / 1e3, 1, 'k');
    if (value === Math.round(value)) return fixed(value, 0);
    return fixed(value, clamp(3 - Math.floor(Math.log10(size)), 1, 6));
}

// Short, for tiles: three digits.
export function shortText(value) {
    if (!Number.isFinite(value)) return numberText(value);
    value = Number(value.toPrecision(Math.abs(value) >= 1000 && Math.abs(value) < 10000 ? 4 : 3));
    const size = Math.abs(value);
    if (size === 0 || size < 1e-3 || size >= 1e15) return numberText(value);
    if (size >= 1e6) return numberText(value).replace(/(\.\d)\d/, '$1');
    if (size >= 1e4) return fixed(value / 1e3, size < 1e5 ? 1 : 0, 'k');
    return fixed(value, clamp(2 - Math.floor(Math.log10(size)), 0, 5));
}

export function percentText(p) {
    if (!Number.isFinite(p)) return '–';
    const x = 100 * p;
    return x >= 99.95 && p < 1 ? '>99.9 %' : x > 0 && x < 0.1 ? '<0.1 %' : `${x.toFixed(1)} %`;
}

export function bytesText(n) {
    return n >= 1 << 30
        ? `${(n / (1 << 30)).toFixed(1)} GiB`
        : n >= 1 << 20
          ? `${(n / (1 << 20)).toFixed(1)} MiB`
          : n >= 1024
            ? `${Math.round(n / 1024)} KiB`
            : `${n} B`;
}

// ---- axes

export function widen(lo, hi, log) {
    if (log) return hi / lo > 1 + 1e-9 ? [lo, hi] : [Math.max(lo / 2, 1e-300), hi * 2];
    const size = Math.max(Math.abs(lo), Math.abs(hi)),
        room = size > 0 ? 0.1 * size : 1;
    return hi - lo > 1e-9 * size ? [lo, hi] : [lo - room, hi + room];
}

const TICKS_MAX = 12;

// All labels of an axis get the same number of decimals and the same unit.
function labels(at, step) {
    const size = at.reduce((m, x) => Math.max(m, Math.abs(x)), 0) * (1 + 1e-12);
    if (size >= 1e15 || (size > 0 && size < 1e-3)) {
        const exponent = Math.floor(Math.log10(size)),
            unit = 10 ** exponent;
        const decimals = clamp(Math.ceil(-Math.log10(step / unit) - 1e-9), 0, 15);
        return at.map(x => scientific(x / unit, decimals, exponent));
    }
    const [unit, suffix] =
        size >= 1e12
            ? [1e12, 'T']
            : size >= 1e9
              ? [1e9, 'B']
              : size >= 1e6
                ? [1e6, 'M']
                : size >= 1e4
                  ? [1e3, 'k']
                  : [1, ''];
    const decimals = clamp(Math.ceil(-Math.log10(step / unit) - 1e-9), 0, 17);
    return at.map(x => fixed(x / unit, decimals, suffix));
}

function place(lo, hi, step) {
    const at = [],
        slack = 1e-9 * (hi - lo),
        first = Math.ceil((lo - slack) / step);
    for (let i = 0; at.length < TICKS_MAX; i++) {
        const x = (first + i) * step;
        if (x > hi + slack) break;
        at.push(Math.abs(x) < 1e-9 * step ? 0 : clamp(x, lo, hi));
    }
    return at;
}

// { at, text, minor }: places, their labels, and places between them.
export function ticksLinear(lo, hi, wanted) {
    wanted = clamp(wanted, 2, TICKS_MAX - 2);
    const exponent = Math.floor(Math.log10((hi - lo) / wanted));
    let bestStep = 0,
        best = Infinity;
    for (let e = exponent - 1; e <= exponent + 1; e++)
        for (const nice of [1, 2, 5]) {
            const step = nice * 10 ** e,
                count = step > 0 ? place(lo, hi, step).length : 0;
            if (count < 2 || count >= TICKS_MAX) continue;
            const cost = (count > wanted ? 1.25 : 1) * Math.abs(count - wanted) + (count < 3 ? 1.5 : 0);
            if (cost < best) ((best = cost), (bestStep = step));
        }
    const at = bestStep > 0 ? place(lo, hi, bestStep) : [lo, hi];
    return { at, text: labels(at, bestStep || hi - lo), minor: [] };
}

export function ticksLog(lo, hi, wanted) {
    wanted = clamp(wanted, 2, TICKS_MAX - 2);
    const slack = 1 + 1e-9,
        first = Math.ceil(Math.log10(lo / slack)),
        last = Math.floor(Math.log10(hi * slack));
    const decades = last - first + 1,
        inside = x => x >= lo && x <= hi;
    if (decades >= 3 || (decades === 2 && wanted < 4)) {
        let stride = 1;
        while (Math.ceil(decades / stride) > wanted + 1) stride++;
        const plain = first >= -3 && last <= 3,
            t = { at: [], text: [], minor: [] };
        for (let e = first; e <= last; e++) {
            // Every stride-th power, counted from 10^0 so that ticks do not jump when the range grows.
            if (((e % stride) + stride) % stride === 0) {
                t.at.push(clamp(10 ** e, lo, hi));
                t.text.push(plain ? fixed(10 ** e, e < 0 ? -e : 0) : powerText(e));
            } else if (inside(10 ** e)) t.minor.push(10 ** e);
        }
        if (t.at.length >= 2) {
            for (let e = first - 1; e <= last && stride === 1; e++)
                for (let m = 2; m <= 9; m++) if (inside(m * 10 ** e)) t.minor.push(m * 10 ** e);
            return t;
        }
    }
    const t = { at: [], text: [], minor: [] };
    for (let e = first - 1; e <= last; e++)
        for (let m = 1; m <= 9; m++) {
            const x = m * 10 ** e,
                labelled = m === 1 || m === 2 || m === 5;
            if (!(x >= lo / slack && x <= hi * slack)) continue;
            if (!labelled) t.minor.push(x);
            else
                (t.at.push(clamp(x, lo, hi)),
                    t.text.push(e >= 4 || e <= -4 ? scientific(m, 0, e) : fixed(x, e < 0 ? -e : 0)));
        }
    return t.at.length < 3 || t.at.length > wanted + 4 ? ticksLinear(lo, hi, wanted) : t;
}

// Where a value lies between 0 and 1.
export function placeOf(axis, value) {
    return axis.log ? Math.log(value / axis.lo) / Math.log(axis.hi / axis.lo) : (value - axis.lo) / (axis.hi - axis.lo);
}

// A colour scale that does not jump: it grows at once when values leave it and shrinks only when they fill less than a
// quarter of it. Ends are rounded to 1, 2, 5 times powers of ten, so small changes change nothing. `held` is the scale before,
// or null; `log` asks for a logarithmic one.
export function steadyScale(held, lo, hi, log = false) {
    const up = x => {
        const e = 10 ** Math.floor(Math.log10(x)),
            m = x / e;
        return e * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
    };
    const down = x => {
        const e = 10 ** Math.floor(Math.log10(x)),
            m = x / e;
        return e * (m < 2 ? 1 : m < 5 ? 2 : 5);
    };
    if (!(Number.isFinite(lo) && Number.isFinite(hi))) return held ?? { lo: log ? 1e-3 : 0, hi: 1, log };
    if (log) {
        ((hi = Math.max(hi, 1e-30)), (lo = clamp(lo, hi * 1e-6, hi)));
        const next = { lo: down(lo), hi: up(hi), log };
        if (next.lo === next.hi) next.hi = up(next.hi * 1.01);
        if (!held || held.log !== log) return next;
        if (lo >= held.lo && hi <= held.hi && Math.log(next.hi / next.lo) > 0.25 * Math.log(held.hi / held.lo))
            return held;
        return {
            lo: Math.min(next.lo, hi < held.lo ? next.lo : held.lo),
            hi: Math.max(next.hi, lo > held.hi ? next.hi : held.hi),
            log,
        };
    }
    const size = up(Math.max(Math.abs(lo), Math.abs(hi), 1e-30)),
        next = { lo: lo < 0 ? -size : 0, hi: size, log };
    if (!held || held.log !== log) return next;
    if (next.hi <= held.hi && next.hi > 0.25 * held.hi && held.lo <= next.lo) return held;
    return { lo: Math.min(next.lo, lo < 0 ? -size : 0), hi: size, log };
}

// The same for importance: logarithmic, but linear between round ends while all values lie close together, as those of a
// young memory do.
export function importanceScale(held, lo, hi) {
    if (!(lo > 0 && hi / lo < 1.5)) return steadyScale(held?.log ? held : null, lo, hi, true);
    if (held && !held.log && lo >= held.lo && hi <= held.hi && hi - lo > 0.25 * (held.hi - held.lo)) return held;
    const rough = Math.max((hi - lo) / 3, 1e-6 * hi),
        unit = 10 ** Math.ceil(Math.log10(rough)),
        step = rough <= 0.2 * unit ? 0.2 * unit : rough <= 0.5 * unit ? 0.5 * unit : unit;
    const near = v => Number(v.toPrecision(12));
    return { lo: near(Math.floor(lo / step) * step), hi: near((Math.floor(hi / step) + 1) * step), log: false };
}

// Ends of a scale: they are round, so as few digits as they have.
export function scaleText(value) {
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e4)) return numberText(value);
    return String(Number(value.toPrecision(6))).replace('-', '−');
}

// ---- arithmetic of curves

// Mean of the finite values among `count` present ones around each; null where a value is missing or not finite.
export function smooth(values, count) {
    if (count < 2) return values.slice();
    const present = [],
        before = Math.floor((count - 1) / 2),
        behind = Math.floor(count / 2);
    values.forEach((v, i) => {
        if (v !== null && v !== undefined) present.push(i);
    });
    const out = values.slice();
    present.forEach((row, at) => {
        if (!Number.isFinite(values[row])) return;
        let sum = 0,
            finite = 0;
        for (let i = Math.max(0, at - before); i <= Math.min(present.length - 1, at + behind); i++) {
            const v = values[present[i]];
            if (Number.isFinite(v)) ((sum += v), finite++);
        }
        out[row] = sum / finite;
    });
    return out;
}

// Index of the entry of ascending xs nearest to x; -1 of none.
export function nearest(xs, x) {
    let lo = 0,
        hi = xs.length - 1;
    if (hi < 0) return -1;
    while (lo < hi) {
        const mid = (lo + hi) >> 1;
        if (xs[mid] < x) lo = mid + 1;
        else hi = mid;
    }
    return lo > 0 && Math.abs(xs[lo - 1] - x) <= Math.abs(xs[lo] - x) ? lo - 1 : lo;
}

// exp of the mean of -log p up to each position: the perplexity so far. Positions without a number (null) repeat the last.
export function runningPerplexity(logprobs) {
    let sum = 0,
        count = 0;
    return logprobs.map(l => {
        if (Number.isFinite(l)) ((sum -= l), count++);
        return count ? Math.exp(sum / count) : null;
    });
}

// ---- packed numbers

export function bytesOfBase64(text) {
    const raw = atob(text),
        out = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
    return out;
}

export function halfToNumber(h) {
    const sign = h & 0x8000 ? -1 : 1,
        exponent = (h >> 10) & 31,
        fraction = h & 1023;
    if (exponent === 0) return sign * fraction * 2 ** -24;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

let halves = null; // of all 65,536, made at first use
export function floatsOfHalves(bytes) {
    if (!halves) {
        halves = new Float32Array(65536);
        for (let i = 0; i < 65536; i++) halves[i] = halfToNumber(i);
    }
    const out = new Float32Array(bytes.length >> 1);
    for (let i = 0; i < out.length; i++) out[i] = halves[bytes[2 * i] | (bytes[2 * i + 1] << 8)];
    return out;
}

export function floatsOfBytes(bytes) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength),
        out = new Float32Array(bytes.length >> 2);
    for (let i = 0; i < out.length; i++) out[i] = view.getFloat32(4 * i, true);
    return out;
}

// ---- heat maps

const tables = new Map();
// 256 colours as 0xAABBGGRR, the order of a canvas' bytes.
function colourTable(kind, theme) {
    const key = kind + theme.paper;
    if (!tables.has(key)) {
        const table = new Uint32Array(256);
        for (let i = 0; i < 256; i++) {
            const [r, g, b] = kind === 'signed' ? signedColour((i - 127.5) / 127.5, theme) : heatColour(i / 255);
            table[i] = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
        }
        tables.set(key, table);
    }
    return tables.get(key);
}

// Levels 0 .. 255 of values on a scale { lo, hi, log }; what is not a number becomes 0.
export function levelsOf(values, scale, out = new Uint8Array(values.length)) {
    if (scale.log) {
        const log = Math.log(scale.lo),
            factor = 255.999 / (Math.log(scale.hi) - log);
        for (let i = 0; i < values.length; i++)
            out[i] = clamp((Math.log(Math.max(values[i], 1e-37)) - log) * factor, 0, 255);
    } else {
        const factor = 255.999 / (scale.hi - scale.lo);
        for (let i = 0; i < values.length; i++) out[i] = clamp((values[i] - scale.lo) * factor, 0, 255);
    }
    return out;
}

// Values [rows][columns] into the whole of a canvas, one pixel each: the style sheet enlarges it without smoothing.
export function drawHeat(canvas, values, rows, columns, scale, kind, theme) {
    if (canvas.width !== columns || canvas.height !== rows) ((canvas.width = columns), (canvas.height = rows));
    const ctx = canvas.getContext('2d'),
        image = ctx.createImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer),
        table = colourTable(kind, theme),
        levels = levelsOf(values, scale);
    for (let i = 0; i < levels.length; i++) pixels[i] = table[levels[i]];
    ctx.putImageData(image, 0, 0);
}

export function drawScaleBar(canvas, kind, theme) {
    ((canvas.width = 256), (canvas.height = 1));
    const ctx = canvas.getContext('2d'),
        image = ctx.createImageData(256, 1);
    new Uint32Array(image.data.buffer).set(colourTable(kind, theme));
    ctx.putImageData(image, 0, 0);
}

// ---- curves
// A chart is { title, x: { label, log }, y: { label, log, min, max }, series: [{ label, x, y, colour, dashed, points,
// faint, quiet, unnamed, low, high }], cursor, legend }. x of a series ascends; y may hold null or NaN, where the line is
// interrupted. Faint series are neither named nor read; quiet ones are read only, unnamed ones are missing in the legend.
// Where a series has low and high, intervals between them are drawn.

const FONT = '"DejaVu Sans", system-ui, sans-serif';
export const FONT_TICK = `11px ${FONT}`,
    FONT_LABEL = `12px ${FONT}`,
    FONT_TITLE = `600 13px ${FONT}`;

function usable(v, log) {
    return v !== null && Number.isFinite(v) && (!log || v > 0);
}

export function axisOf(given, columns) {
    let lo = Infinity,
        hi = -Infinity;
    for (const values of columns)
        for (let i = 0; i < values.length; i++)
            if (usable(values[i], given.log)) ((lo = Math.min(lo, values[i])), (hi = Math.max(hi, values[i])));
    if (given.min !== undefined && usable(given.min, given.log)) lo = given.min;
    if (given.max !== undefined && usable(given.max, given.log)) hi = given.max;
    if (!(lo <= hi)) [lo, hi] = given.log ? [1, 10] : [0, 1];
    [lo, hi] = widen(lo, hi, given.log);
    return { lo, hi, log: !!given.log, label: given.label };
}

// Where everything lies: margins from the widest tick label, ticks from the room.
export function layoutChart(ctx, chart, width, height) {
    const x = axisOf(
            chart.x ?? {},
            chart.series.map(s => s.x),
        ),
        y = axisOf(
            chart.y ?? {},
            chart.series.flatMap(s => [s.y, s.low ?? [], s.high ?? []]),
        );
    const top = chart.title ? 26 : 10,
        bottom = (chart.x?.label ? 36 : 20) + 4;
    const inner = Math.max(height - top - bottom, 10);
    if (chart.y?.min === undefined && !y.log) {
        const room = 0.04 * (y.hi - y.lo);
        if (y.lo !== 0) y.lo -= room;
        y.hi += chart.y?.max === undefined ? room : 0;
    }
    y.ticks = (y.log ? ticksLog : ticksLinear)(y.lo, y.hi, Math.max(2, Math.floor(inner / 42)));
    ctx.font = FONT_TICK;
    const widest = Math.max(...y.ticks.text.map(t => ctx.measureText(t).width), 30);
    const left = Math.ceil(widest) + 10 + (chart.y?.label ? 18 : 0);
    x.ticks = (x.log ? ticksLog : ticksLinear)(x.lo, x.hi, clamp(Math.floor((width - left - 24) / 80), 2, 10));
    const right = Math.max(12, Math.ceil(ctx.measureText(x.ticks.text[x.ticks.text.length - 1]).width / 2) + 2);
    return { x, y, left, top, width: Math.max(width - left - right, 10), height: inner };
}

export function xOf(f, value) {
    return f.left + f.width * placeOf(f.x, value);
}
export function yOf(f, value) {
    return f.top + f.height * (1 - placeOf(f.y, value));
}
export function valueAt(f, px) {
    const u = clamp((px - f.left) / f.width, 0, 1);
    return f.x.log ? f.x.lo * (f.x.hi / f.x.lo) ** u : f.x.lo + u * (f.x.hi - f.x.lo);
}

function line(ctx, x0, y0, x1, y1) {
    ctx.beginPath();
    ctx.moveTo(x0, y0);
    ctx.lineTo(x1, y1);
    ctx.stroke();
}

function drawAxes(ctx, chart, f, theme) {
    const bottom = f.top + f.height,
        right = f.left + f.width,
        crisp = v => Math.round(v) + 0.5;
    ctx.lineWidth = 1;
    ctx.font = FONT_TICK;
    ctx.textBaseline = 'middle';
    ctx.textAlign = 'right';
    f.y.ticks.at.forEach((v, i) => {
        const y = crisp(yOf(f, v));
        ctx.strokeStyle = theme.grid;
        line(ctx, f.left, y, right, y);
        ctx.fillStyle = theme.muted;
        ctx.fillText(f.y.ticks.text[i], f.left - 7, y);
    });
    ctx.textAlign = 'center';
    ctx.textBaseline = 'top';
    f.x.ticks.at.forEach((v, i) => {
        const x = crisp(xOf(f, v));
        ctx.strokeStyle = theme.grid;
        line(ctx, x, f.top, x, bottom);
        ctx.fillStyle = theme.muted;
        ctx.fillText(f.x.ticks.text[i], x, bottom + 6);
    });
    ctx.strokeStyle = theme.muted;
    for (const v of f.x.ticks.minor) line(ctx, crisp(xOf(f, v)), bottom, crisp(xOf(f, v)), bottom + 3);
    for (const v of f.y.ticks.minor) line(ctx, f.left - 3, crisp(yOf(f, v)), f.left, crisp(yOf(f, v)));
    ctx.beginPath();
    ctx.moveTo(crisp(f.left - 1), f.top);
    ctx.lineTo(crisp(f.left - 1), crisp(bottom - 1));
    ctx.lineTo(right, crisp(bottom - 1));
    ctx.stroke();
    ctx.fillStyle = theme.ink;
    if (chart.title) {
        ctx.font = FONT_TITLE;
        ctx.textAlign = 'left';
        ctx.textBaseline = 'alphabetic';
        ctx.fillText(chart.title, f.left, f.top - 10, f.width);
    }
    ctx.font = FONT_LABEL;
    ctx.textAlign = 'center';
    ctx.fillStyle = theme.muted;
    if (f.x.label) {
        ctx.textBaseline = 'top';
        ctx.fillText(f.x.label, f.left + f.width / 2, bottom + 22, f.width);
    }
    if (f.y.label) {
        ctx.save();
        ctx.translate(12, f.top + f.height / 2);
        ctx.rotate(-Math.PI / 2);
        ctx.textBaseline = 'middle';
        ctx.fillText(f.y.label, 0, 0, f.height + 20);
        ctx.restore();
    }
}

// At most four points per pixel column: long runs draw fast and look the same.
export function thinned(xs, ys, log, xPixel) {
    const out = []; // indices; -1 lifts the pen
    let column = null,
        first = -1,
        low = -1,
        high = -1,
        last = -1;
    const flush = () => {
        if (first < 0) return;
        const [near, far] = low < high ? [low, high] : [high, low];
        out.push(first);
        if (near !== first && near !== last) out.push(near);
        if (far !== near && far !== first && far !== last) out.push(far);
        if (last !== first) out.push(last);
        first = -1;
    };
    for (let i = 0; i < xs.length; i++) {
        if (!usable(ys[i], log) || !Number.isFinite(xPixel(xs[i]))) {
            flush();
            if (out.length && out[out.length - 1] !== -1) out.push(-1);
            continue;
        }
        const at = Math.floor(xPixel(xs[i]));
        if (first >= 0 && at !== column) flush();
        if (first < 0) ((column = at), (first = low = high = i));
        if (ys[i] < ys[low]) low = i;
        if (ys[i] > ys[high]) high = i;
        last = i;
    }
    flush();
    return out;
}

// A vertical line from low to high at a few places, which differ from series to series; at each point of a short series.
function drawIntervals(ctx, f, s, theme, place) {
    const places = 12,
        cap = 3,
        step = s.points ? 0 : f.width / places;
    let next = f.left + step * place;
    ctx.strokeStyle = seriesColour(theme, s.colour);
    ctx.lineWidth = 1.1;
    for (let i = 0; i < s.x.length; i++) {
        const x = xOf(f, s.x[i]);
        if (x < next || !usable(s.low[i], f.y.log) || !usable(s.high[i], f.y.log)) continue;
        const low = yOf(f, s.low[i]),
            high = yOf(f, s.high[i]);
        line(ctx, x, low, x, high);
        line(ctx, x - cap, low, x + cap, low);
        line(ctx, x - cap, high, x + cap, high);
        while (step > 0 && next <= x) next += step;
    }
}

function drawSeries(ctx, f, s, theme) {
    ctx.strokeStyle = ctx.fillStyle = seriesColour(theme, s.colour);
    ctx.globalAlpha = s.faint ? 0.28 : s.quiet ? 0.45 : 1;
    ctx.lineWidth = s.faint || s.quiet ? 1.1 : 1.8;
    ctx.lineJoin = 'round';
    ctx.setLineDash(seriesDashes(s.colour, s.dashed));
    ctx.beginPath();
    let up = true,
        count = 0,
        lone = -1;
    const loners = [];
    for (const i of [...thinned(s.x, s.y, f.y.log, v => xOf(f, v)), -1]) {
        if (i < 0) {
            if (count === 1) loners.push(lone);
            up = true;
            count = 0;
            continue;
        }
        const x = xOf(f, s.x[i]),
            y = yOf(f, s.y[i]);
        if (up) ctx.moveTo(x, y);
        else ctx.lineTo(x, y);
        ((up = false), (lone = i), count++);
    }
    ctx.stroke();
    ctx.setLineDash([]);
    const dots = s.points ? s.x.map((_, i) => i).filter(i => usable(s.y[i], f.y.log)) : loners;
    for (const i of dots) {
        ctx.beginPath();
        ctx.arc(xOf(f, s.x[i]), yOf(f, s.y[i]), 2.4, 0, 2 * Math.PI);
        ctx.fill();
    }
    ctx.globalAlpha = 1;
}

// Draws into a context whose unit is a CSS pixel and returns the layout, which hover needs.
export function drawChart(ctx, chart, width, height, theme) {
    ctx.fillStyle = theme.paper;
    ctx.fillRect(0, 0, width, height);
    const f = layoutChart(ctx, chart, width, height);
    drawAxes(ctx, chart, f, theme);
    ctx.save();
    ctx.beginPath();
    ctx.rect(f.left - 3, f.top - 4, f.width + 6, f.height + 8);
    ctx.clip();
    if (chart.cursor !== undefined && chart.cursor !== null) {
        ctx.strokeStyle = theme.ink;
        ctx.lineWidth = 1;
        line(
            ctx,
            Math.round(xOf(f, chart.cursor)) + 0.5,
            f.top,
            Math.round(xOf(f, chart.cursor)) + 0.5,
            f.top + f.height,
        );
    }
    const withIntervals = chart.series.filter(s => s.low && s.high);
    withIntervals.forEach((s, i) => drawIntervals(ctx, f, s, theme, (i + 0.5) / withIntervals.length));
    for (const s of chart.series) if (s.faint) drawSeries(ctx, f, s, theme);
    for (const s of chart.series) if (!s.faint) drawSeries(ctx, f, s, theme);
    ctx.restore();
    if (!chart.series.some(s => s.x.length)) {
        ctx.fillStyle = theme.muted;
        ctx.font = FONT_LABEL;
        ctx.textAlign = 'center';
        ctx.textBaseline = 'middle';
        ctx.fillText(chart.nothing ?? 'nothing yet', f.left + f.width / 2, f.top + f.height / 2);
    }
    return f;
}

// What is nearest to pixel px: { x, rows: [{ label, value, colour, dashed }] }, or null.
export function valuesAt(chart, f, px) {
    const wanted = valueAt(f, px),
        shown = chart.series.filter(s => !s.faint && s.x.length);
    let x = null;
    for (const s of shown) {
        const at = s.x[nearest(s.x, wanted)];
        if (x === null || Math.abs(at - wanted) < Math.abs(x - wanted)) x = at;
    }
    if (x === null) return null;
    const rows = shown.map(s => {
        const i = nearest(s.x, x);
        return s.x[i] === x && usable(s.y[i], false)
            ? { label: s.label, value: s.y[i], colour: s.colour, dashed: s.dashed }
            : null;
    });
    return { x, rows: rows.filter(r => r) };
}

// Curves of numbers without axes, for tiles.
export function drawSpark(ctx, width, height, values, scale, colour, cursor, theme) {
    ctx.clearRect(0, 0, width, height);
    ctx.strokeStyle = theme.grid;
    line(ctx, 0, height - 0.5, width, height - 0.5);
    const n = values.length,
        step = n > 1 ? (width - 1) / (n - 1) : 0;
    ctx.strokeStyle = colour;
    ctx.lineWidth = 1.3;
    ctx.lineJoin = 'round';
    ctx.beginPath();
    const xs = Array.from({ length: n }, (_, i) => i);
    let up = true;
    for (const i of thinned(xs, values, scale.log, v => v * step)) {
        if (i < 0) {
            up = true;
            continue;
        }
        const y = 1 + (height - 3) * (1 - clamp(placeOf(scale, values[i]), 0, 1));
        if (up) ctx.moveTo(i * step, y);
        else ctx.lineTo(i * step, y);
        up = false;
    }
    ctx.stroke();
    if (cursor !== null && cursor !== undefined && n > 1) {
        ctx.strokeStyle = theme.ink;
        ctx.lineWidth = 1;
        line(ctx, Math.round(cursor * step) + 0.5, 0, Math.round(cursor * step) + 0.5, height);
    }
}

// A canvas of width x height CSS pixels, sharp on dense screens; its context.
export function sized(canvas, width, height, density = globalThis.devicePixelRatio || 1) {
    const w = Math.round(width * density),
        h = Math.round(height * density);
    if (canvas.width !== w || canvas.height !== h) ((canvas.width = w), (canvas.height = h));
    const ctx = canvas.getContext('2d');
    ctx.setTransform(density, 0, 0, density, 0, 0);
    return ctx;
}

const inLegend = s => !s.faint && !s.quiet && !s.unnamed;
// Changes whenever the legend or the spoken description does.
export function legendKey(chart) {
    return JSON.stringify([
        chart.legend,
        chart.series.filter(s => !s.faint).map(s => [s.label, s.colour, s.dashed, inLegend(s)]),
    ]);
}

// A chart inside `host`, with a legend, values under the pointer, and the arrow keys for those without one. Returns
// { set(chart), redraw(), canvas, close() }. `themeNow()` says which colours; `onPick(x)` hears clicks.
export function mountChart(host, { themeNow, height = 240, onPick = null, describe = null }) {
    const make = (name, style = {}, to = host) => {
        const e = document.createElement(name);
        Object.assign(e.style, style);
        to.append(e);
        return e;
    };
    host.style.position = 'relative';
    const legend = make('div', {
        display: 'flex',
        flexWrap: 'wrap',
        gap: '2px 14px',
        font: FONT_LABEL,
        minHeight: '18px',
    });
    const canvas = make('canvas', { width: '100%', height: `${height}px`, display: 'block', touchAction: 'pan-y' });
    const tip = make('div', {
        position: 'absolute',
        pointerEvents: 'none',
        visibility: 'hidden',
        padding: '6px 9px',
        borderRadius: '6px',
        font: FONT_LABEL,
        lineHeight: '1.5',
        whiteSpace: 'nowrap',
        zIndex: 5,
        maxWidth: '90%',
        overflow: 'hidden',
    });
    const spoken = make('div', {
        position: 'absolute',
        width: '1px',
        height: '1px',
        overflow: 'hidden',
        clipPath: 'inset(50%)',
    });
    spoken.setAttribute('role', 'status');
    canvas.tabIndex = 0;
    canvas.setAttribute('role', 'img');
    let chart = { series: [] },
        frame = null,
        asked = false,
        seen = false,
        keyed = null,
        pointed = null;

    const swatch = (s, to, theme) => {
        const c = make('canvas', { width: '18px', height: '10px', verticalAlign: 'middle', marginRight: '6px' }, to),
            ctx = sized(c, 18, 10);
        ctx.strokeStyle = seriesColour(theme, s.colour);
        ctx.lineWidth = 2.2;
        ctx.setLineDash(seriesDashes(s.colour, s.dashed));
        line(ctx, 0, 5, 18, 5);
    };
    const hover = px => {
        const theme = themeNow(),
            found = px === null || !frame ? null : valuesAt(chart, frame, px);
        if (!found || !found.rows.length) {
            tip.style.visibility = 'hidden';
            return;
        }
        const ctx = canvas.getContext('2d'),
            x = xOf(frame, found.x);
        ctx.strokeStyle = theme.muted;
        ctx.setLineDash([2, 3]);
        line(ctx, Math.round(x) + 0.5, frame.top, Math.round(x) + 0.5, frame.top + frame.height);
        ctx.setLineDash([]);
        tip.textContent = '';
        make('div', { color: theme.muted }, tip).textContent = `${chart.x?.label ?? 'x'} ${numberText(found.x)}`;
        for (const r of found.rows) {
            const y = yOf(frame, r.value),
                row = make('div', {}, tip);
            swatch(r, row, theme);
            make('bdi', {}, row).textContent = r.label;
            make('b', { marginLeft: '8px', fontVariantNumeric: 'tabular-nums' }, row).textContent = numberText(r.value);
            ctx.fillStyle = seriesColour(theme, r.colour);
            ctx.beginPath();
            ctx.arc(x, y, 3.4, 0, 2 * Math.PI);
            ctx.fill();
        }
        Object.assign(tip.style, {
            visibility: 'visible',
            background: theme.paper,
            color: theme.ink,
            border: `1px solid ${theme.muted}`,
            top: `${canvas.offsetTop + frame.top + 4}px`,
            left: '',
            right: '',
        });
        if (x > canvas.clientWidth / 2) tip.style.right = `${canvas.clientWidth - x + 12}px`;
        else tip.style.left = `${x + 12}px`;
        if (keyed !== null)
            spoken.textContent = `${numberText(found.x)}: ${found.rows.map(r => `${r.label} ${numberText(r.value)}`).join(', ')}`;
    };
    const draw = () => {
        asked = false;
        const width = canvas.clientWidth;
        if (!width) return;
        const theme = themeNow();
        frame = drawChart(sized(canvas, width, height), chart, width, height, theme);
        hover(pointed ?? (keyed === null ? null : xOf(frame, keyed)));
    };
    const redraw = () => {
        if (asked || !seen) return;
        asked = true;
        requestAnimationFrame(draw);
    };
    const set = next => {
        const theme = themeNow(), key = theme.paper + legendKey(next);
        chart = next;
        if (key !== set.key) {
            set.key = key;
            legend.textContent = '';
            if (next.legend !== false)
                for (const s of next.series.filter(inLegend)) {
                    const entry = make(
                        'span',
                        {
                            color: theme.ink,
                            whiteSpace: 'nowrap',
                            maxWidth: '100%',
                            overflow: 'hidden',
                            textOverflow: 'ellipsis',
                        },
                        legend,
                    );
                    swatch(s, entry, theme);
                    make('bdi', {}, entry).textContent = s.label;
                }
            canvas.setAttribute(
                'aria-label',
                describe
                    ? describe(next)
                    : `${next.title ?? next.y?.label ?? 'chart'}; curves: ${
                          next.series
                              .filter(s => !s.faint)
                              .map(s => s.label)
                              .join(', ') || 'none'
                      }; arrow keys read values`,
            );
        }
        redraw();
    };
    const at = e => e.clientX - canvas.getBoundingClientRect().left;
    canvas.addEventListener('pointermove', e => {
        pointed = at(e);
        keyed = null;
        redraw();
    });
    canvas.addEventListener('pointerleave', () => {
        pointed = null;
        redraw();
    });
    canvas.addEventListener('blur', () => {
        keyed = null;
        redraw();
    });
    canvas.addEventListener('click', e => {
        if (onPick && frame) {
            const v = valuesAt(chart, frame, at(e));
            if (v) onPick(v.x);
        }
    });
    canvas.addEventListener('keydown', e => {
        const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[e.key];
        const longest = chart.series
            .filter(s => !s.faint)
            .reduce((a, s) => (a && a.x.length >= s.x.length ? a : s), null);
        if (!longest || !longest.x.length) return;
        if (step) {
            const i = keyed === null ? (step > 0 ? -1 : longest.x.length) : nearest(longest.x, keyed);
            keyed = longest.x[clamp(i + step, 0, longest.x.length - 1)];
        } else if (e.key === 'Home') keyed = longest.x[0];
        else if (e.key === 'End') keyed = longest.x[longest.x.length - 1];
        else if (e.key === 'Enter' && keyed !== null && onPick) onPick(keyed);
        else return;
        e.preventDefault();
        redraw();
    });
    const observer = new ResizeObserver(redraw),
        viewer = new IntersectionObserver(entries => {
            seen = entries[entries.length - 1].isIntersecting; // what is out of sight is not drawn
            redraw();
        });
    observer.observe(canvas);
    viewer.observe(canvas);
    return {
        set,
        redraw,
        canvas,
        close() {
            observer.disconnect();
            viewer.disconnect();
            host.textContent = '';
        },
    };
}
