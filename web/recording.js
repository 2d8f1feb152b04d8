// SPDX-License-Identifier: MIT
// What was seen of one text in one model: its tokens, and the memory's numbers at every position. `apply` takes the
// events of /v1/observe one by one. A position counts tokens that the memory has read; token i was predicted by the
// memory at position i, and reading it leads to position i + 1. Places in the lists here count from `start`: what a kept
// memory had read before has no tokens here.

import { bytesOfBase64, floatsOfBytes, floatsOfHalves } from './chart.js';

const floats = text => floatsOfBytes(bytesOfBase64(text));

// What a layer is called: its rule, or what it is without one, and attention where that reads the same input.
export function layerName(layer) {
    const mixers = layer.mixers ?? [];
    if (layer.rule === 'none') return mixers.length ? 'convolution' : 'MLP';
    return mixers.length > 1 ? `${layer.rule} + attention` : layer.rule;
}

// Rows of equal width that grow at the end; what was never written is NaN.
export class Rows {
    constructor(width) {
        this.width = width;
        this.data = new Float32Array(64 * width).fill(NaN);
        this.length = 0;
        this.first = Infinity; // row that was written
    }
    put(row, values) {
        const end = row * this.width + values.length;
        if (end > this.data.length) {
            const larger = new Float32Array(Math.max(end, 2 * this.data.length)).fill(NaN);
            larger.set(this.data.subarray(0, this.length * this.width));
            this.data = larger;
        }
        this.data.set(values, row * this.width);
        this.length = Math.max(this.length, Math.ceil(end / this.width));
        this.first = Math.min(this.first, row);
    }
    at(row, column) {
        return row >= 0 && row < this.length ? this.data[row * this.width + column] : NaN;
    }
    cut(length) {
        if (length >= this.length) return;
        this.data.fill(NaN, length * this.width, this.length * this.width);
        this.length = length;
    }
}

// A curve of any length in at most 1,024 numbers: the largest of every `size` values that came.
export class Peaks {
    constructor() {
        Object.assign(this, { size: 1, count: 0, values: [], top: 0 });
    }
    push(value) {
        const at = Math.floor(this.count++ / this.size);
        if (at === this.values.length) this.values.push(value);
        else this.values[at] = larger(this.values[at], value);
        if (value > this.top) this.top = value;
        if (this.values.length <= 1024) return;
        this.size *= 2;
        this.values = Array.from({ length: Math.ceil(this.values.length / 2) }, (_, i) =>
            larger(this.values[2 * i], this.values[2 * i + 1]),
        );
    }
}
const larger = (a, b) => (b === undefined || Number.isNaN(b) || a >= b ? a : b);

export class Recording {
    constructor(model, start = 0) {
        Object.assign(this, { model, start, ids: [], texts: [], logprobs: [], tops: [], uncertainty: [], written: [] });
        Object.assign(this, {
            layers : [],
            fields : [],
            frames : [],
            map : null,
            next : null,
            id : null,
            followed : null,
            peaks : null,
            ranges : null,
            version : 0,
        });
    }

    get end() {
        return this.start + this.ids.length;
    } // of the text
    get position() {
        return this.frames.length ? this.frames[this.frames.length - 1].position : this.start;
    } // of the memory
    get maxHeads() {
        return Math.max(1, ...this.layers.map(l => l.heads));
    }

    apply(e) {
        this.version++;
        if (e.type === 'start') this.#begin(e);
        else if (e.type === 'token') this.#token(e);
        else if (e.type === 'tiles') this.#tiles(e);
        else if (e.type === 'map') this.map = unpackMap(e);
    }

    #begin(e) {
        this.id = e.id;
        if (!this.layers.length) {
            this.layers = e.layers;
            this.fields = e.tile_fields;
            this.windows = new Rows(e.layers.length);
            this.variances = new Rows(e.layers.length);
        }
        // e.position is where reading begins, perhaps at a snapshot; the list is the whole prompt.
        (e.prompt ?? []).forEach(([id, text], i) => this.#set(i, id, text, false));
    }

    #set(i, id, text, written) {
        if (i < 0) return;
        if (this.ids[i] === id && this.texts[i] === text) return; // known already: its numbers stay
        this.ids[i] = id;
        this.texts[i] = text;
        this.logprobs[i] = null;
        this.tops[i] = null;
        this.uncertainty[i] = null;
        this.written[i] = written;
    }

    #token(e) {
        const i = e.index - this.start;
        if (i < 0) return;
        this.next = null;
        if (i >= this.ids.length || this.ids[i] !== e.id) this.#set(i, e.id, e.text, !e.prompt);
        if (e.logprob !== null && e.logprob !== undefined) this.logprobs[i] = e.logprob;
        if (e.top?.length) this.tops[i] = e.top;
        if (e.variance !== null && e.variance !== undefined) this.uncertainty[i] = e.variance;
        if (!e.prompt) this.written[i] = true;
    }

    #tiles(e) {
        const frame = { from: e.from, position: e.position, tiles: floats(e.tiles), write: floats(e.write) };
        this.windows.put(e.from - this.start, floats(e.window));
        this.variances.put(e.from - this.start, floats(e.variance));
        if (e.elements && this.followed) this.followed.put(e.from - this.start, floats(e.elements));
        const last = this.frames[this.frames.length - 1];
        if (!last || last.position < frame.position) this.frames.push(frame);
        else {
            const at = this.frameIndex(frame.position);
            this.peaks = this.ranges = null;
            if (this.frames[at]?.position === frame.position) this.frames[at] = frame;
            else this.frames.splice(at + 1, 0, frame);
        }
    }

    // The last frame at or before a position; -1: none.
    frameIndex(position) {
        let lo = 0,
            hi = this.frames.length;
        while (lo < hi) {
            const mid = (lo + hi) >> 1;
            if (this.frames[mid].position <= position) lo = mid + 1;
            else hi = mid;
        }
        return lo - 1;
    }

    tile(frame, layer, field) {
        const at = this.fields.indexOf(field);
        return frame && at >= 0 ? frame.tiles[layer * this.fields.length + at] : NaN;
    }
    write(frame, layer, head = null) {
        if (!frame) return NaN;
        return head === null
            ? this.tile(frame, layer, 'write')
            : frame.write[layer * (frame.write.length / this.layers.length) + head];
    }

    // How strongly each frame wrote into a layer, as a curve. What came since the last call is added.
    writeCurve(layer) {
        this.peaks ??= this.layers.map(() => new Peaks());
        const p = this.peaks[layer];
        while (p.count < this.frames.length) p.push(this.tile(this.frames[p.count], layer, 'write'));
        return p;
    }

    // Least and largest importance of a layer in all frames, so that a replay has one scale of colours. What came since
    // the last call is added.
    importanceRange(layer) {
        this.ranges ??= this.layers.map(() => ({ count : 0, lo : Infinity, hi : -Infinity }));
        const range = this.ranges[layer];
        for (; range.count < this.frames.length; range.count++) {
            const lo = this.tile(this.frames[range.count], layer, 'i_min'),
                  hi = this.tile(this.frames[range.count], layer, 'i_max');
            if (Number.isFinite(lo)) range.lo = Math.min(range.lo, lo);
            if (Number.isFinite(hi)) range.hi = Math.max(range.hi, hi);
        }
        return range;
    }

    // Variance by layer of what was said at token i; null when no layer has one.
    variancesOf(i) {
        if (i < 1 || !this.variances) return null;
        const row = this.layers.map((_, l) => this.variances.at(i - 1, l));
        return row.some(Number.isFinite) ? row : null;
    }

    // Forgets everything after `length` tokens.
    cut(length) {
        this.version++;
        for (const list of [this.ids, this.texts, this.logprobs, this.tops, this.uncertainty, this.written])
            list.length = Math.min(list.length, length);
        this.windows?.cut(length);
        this.variances?.cut(length);
        this.followed?.cut(length);
        while (this.frames.length && this.frames[this.frames.length - 1].position > this.start + length)
            this.frames.pop();
        this.map = this.next = this.peaks = this.ranges = null;
    }

    fork(length) {
        const r = new Recording(this.model, this.start);
        for (const name of ['ids', 'texts', 'logprobs', 'tops', 'uncertainty', 'written'])
            r[name] = this[name].slice(0, length);
        Object.assign(r, {
            layers: this.layers,
            fields: this.fields,
            frames: this.frames.filter(f => f.position <= this.start + length),
        });
        if (this.windows) {
            r.windows = new Rows(this.windows.width);
            r.variances = new Rows(this.windows.width);
            r.windows.put(0, this.windows.data.slice(0, Math.min(length, this.windows.length) * this.windows.width));
            r.variances.put(
                0,
                this.variances.data.slice(0, Math.min(length, this.variances.length) * this.windows.width),
            );
        }
        return r;
    }

    // Tokens by how strongly they wrote into a layer (or one head of it): [{ from, to, strength }], strongest first. A frame
    // of several tokens stands for all of them.
    writers(layer, head, count = 10) {
        const best = [];
        for (const f of this.frames) {
            const strength = this.write(f, layer, head);
            if (!Number.isFinite(strength) || (best.length === count && strength <= best[count - 1].strength)) continue;
            const at = best.findIndex(w => w.strength < strength);
            best.splice(at < 0 ? best.length : at, 0, {
                from: f.from - this.start,
                to: f.position - this.start,
                strength,
            });
            best.length = Math.min(best.length, count);
        }
        return best;
    }

    // Write strength of each token, for colours; NaN where no frame covers it.
    writeByToken(layer, head) {
        const out = new Float32Array(this.ids.length).fill(NaN);
        for (const f of this.frames)
            out.fill(this.write(f, layer, head), Math.max(0, f.from - this.start), f.position - this.start);
        return out;
    }
}

// A map event as numbers: { position, layer, heads, rows, columns, block, reduce, mean: [Float32Array per head], importance }
export function unpackMap(e) {
    const [rows, columns] = e.shown,
        size = rows * columns;
    const part = p => {
        if (!p) return null;
        const all = floatsOfHalves(bytesOfBase64(p.data));
        return e.heads.map((_, k) => all.slice(k * size, (k + 1) * size).map(v => v * p.scale[k]));
    };
    return {
        position: e.position,
        layer: e.layer,
        heads: e.heads,
        shape: e.shape,
        rows,
        columns,
        block: e.block,
        reduce: e.reduce,
        mean: part(e.mean),
        importance: part(e.importance),
    };
}
