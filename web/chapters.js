// SPDX-License-Identifier: MIT
// The chapters of the story, in order. Each says one thing: `title`, `text` (a paragraph each, at most three), what it
// needs (`recall`: a model that recalls pairs; `without`: one without importance; `text`: one that writes), and
// `stage(host, { models, signal })`, which puts the live model next to the words. To add a chapter, add an object here.

import { seriesColour, mountChart, bytesText, percentText } from './chart.js';
import { colourNumber, theme } from './app.js';
import { fill, h, visible } from './dom.js';
import {
    Arcs,
    MapView,
    Player,
    Strip,
    answersOf,
    attributionOf,
    calm,
    facts,
    largestOf,
    mapAfter,
    read,
    recallText,
    rightOf,
    readingHead,
    signedScale,
    wordOf,
} from './stage.js';

const SEED = 7;
const kindOf = (id, first) => (!id ? 'filler' : id < first ? 'key' : 'value');

// ---- a recall text with a place that moves: chapters one and two

async function walk(host, { models, signal }, { pairs, length, tokens, start, drawn, controls = true }) {
    const model = models.recall.id,
        example = await recallText({ model, pairs, length, seed: SEED }),
        ids = example.ids.slice(0, tokens ?? example.ids.length),
        first = example.first_value;
    const where = await readingHead(model, example, signal),
        maps = new Map();
    let most = 0;
    async function mapAt(p) {
        if (p < 1) return null;
        if (!maps.has(p)) maps.set(p, (await mapAfter(model, ids, p, where.layer, signal)).mean[where.head]);
        return maps.get(p);
    }
    const end = await mapAfter(model, ids, ids.length, where.layer, signal);
    most = largestOf(end.mean[where.head]);
    const strip = new Strip({ label: 'The text, token by token' }),
        slider = h('input', { type: 'range', min: 0, max: ids.length, value: start, 'aria-label': 'Tokens that were read' }),
        button = h('button', { class: 'button primary', type: 'button', text: 'Play' });
    let position = start;
    async function go(p) {
        position = p;
        slider.value = p;
        const [now, before] = [await mapAt(p), await mapAt(p - 1)];
        if (signal.aborted || p !== position) return;
        strip.set(ids.length, i => ({
            text: wordOf(ids[i], first),
            kind: kindOf(ids[i], first),
            pale: i >= p,
            on: i === p - 1,
        }));
        drawn({ p, now, before, rows: end.rows, columns: end.columns, most, ids, first, where });
    }
    const player = new Player(go, { onState: on => (button.textContent = on ? 'Pause' : 'Play') });
    button.addEventListener('click', () => {
        if (player.running) player.stop();
        else player.play(position >= ids.length ? 1 : position + 1, ids.length, signal);
    });
    slider.addEventListener('input', () => {
        player.stop();
        go(Number(slider.value));
    });
    const step = by => () => {
        player.stop();
        go(Math.min(ids.length, Math.max(1, position + by)));
    };
    host.append(
        strip.element,
        h(
            'div',
            { class: 'row walk' },
            button,
            controls ? h('button', { class: 'button', type: 'button', text: 'Back', onclick: step(-1) }) : null,
            controls ? h('button', { class: 'button', type: 'button', text: 'Next token', onclick: step(1) }) : null,
            slider,
        ),
    );
    signal.addEventListener('abort', () => player.stop());
    return { go, player, where, example, ids };
}

async function fixedStage(host, context) {
    const memory = new MapView('The memory', { note: 'one head of it' }),
        m = context.models.recall,
        tokensRead = h('span'),
        grows = h('span'),
        bar = name => h('div', { class: `meter ${name}` }, h('i'));
    const own = bar('own'),
        other = bar('other'),
        perToken = 4 * m.layers * m.heads * (m.keys + m.values);
    let widest = 1;
    const { go, player, ids } = await walk(host, context, {
        pairs: 16,
        length: 64,
        start: 0,
        controls: false,
        drawn({ p, now, rows, columns, most }) {
            memory.set(now ?? new Float32Array(rows * columns), rows, columns, signedScale(most), `After ${p} tokens.`);
            tokensRead.textContent = String(p);
            grows.textContent = bytesText(p * perToken);
            own.firstChild.style.width = `${(100 * m.memory_bytes) / widest}%`;
            other.firstChild.style.width = `${(100 * p * perToken) / widest}%`;
        },
    });
    widest = Math.max(m.memory_bytes, ids.length * perToken);
    host.append(
        memory.element,
        facts([
            ['tokens read', tokensRead],
            ['this memory, all layers', h('div', {}, h('span', { text: bytesText(m.memory_bytes) }), own)],
            ['keeping every token instead', h('div', {}, grows, other)],
        ]),
    );
    await go(0);
    if (calm()) await go(ids.length);
    else player.play(1, ids.length, context.signal);
}

async function writeStage(host, context) {
    const change = new MapView('What this token added'),
        memory = new MapView('The memory after it'),
        words = h('p', { class: 'say', 'aria-live': 'polite' });
    const { go } = await walk(host, context, {
        pairs: 4,
        length: 16,
        tokens: 8,
        start: 4,
        drawn({ p, now, before, rows, columns, most, ids, first }) {
            const old = before ?? new Float32Array(rows * columns),
                seen = now ?? new Float32Array(rows * columns),
                added = seen.map((v, i) => v - old[i]);
            memory.set(seen, rows, columns, signedScale(most));
            change.set(added, rows, columns, signedScale(most));
            const word = p ? wordOf(ids[p - 1], first) : '',
                strong = largestOf(added) / most;
            words.textContent = !p
                ? 'Nothing is read yet: the memory is empty.'
                : ids[p - 1] >= first
                  ? `“${word}” comes after “${wordOf(ids[p - 2], first)}”: the pair is written. Down, the pattern of the key; across, that of the value.`
                  : strong < 0.25
                    ? `“${word}” is a key: this head waits for its value, and writes almost nothing.`
                    : `“${word}” is a key, and leaves its own trace.`;
        },
    });
    host.append(words, h('div', { class: 'side-by-side' }, change.element, memory.element));
    await go(4);
}

// ---- reading back

async function readStage(host, { models, signal }) {
    const model = models.recall.id,
        example = await recallText({ model, pairs: 8, length: 32, seed: SEED }),
        first = example.first_value,
        ids = example.ids,
        recording = await read(model, ids, signal),
        where = await readingHead(model, example, signal),
        answers = new Map(answersOf(recording, example.queries).map(a => [a.position, a]));
    const strip = new Strip({ label: 'The text; a question can be chosen', onChoose: i => choose(i) }),
        arcs = new Arcs(strip),
        words = h('p', { class: 'say', 'aria-live': 'polite' }),
        list = h('ol', { class: 'shares' }),
        heads = h('div', { class: 'row', role: 'group', 'aria-label': 'Head' });
    let chosen = null;
    async function choose(i, wanted = null) {
        if (!answers.has(i)) {
            const at = [...answers.keys()].reduce((a, b) => (Math.abs(b - i) < Math.abs(a - i) ? b : a));
            if (chosen === at) return;
            i = at;
        }
        chosen = i;
        const found = await attributionOf(model, ids.slice(0, i + 1), signal),
            all = found.layers.find(l => l.layer === where.layer).shares,
            a = answers.get(i),
            pair = ids.indexOf(a.key) + 1, // the place of its value
            fits = all.map(s => Math.max(s[pair], s[pair + 1] ?? 0)),
            head = wanted ?? fits.indexOf(Math.max(...fits)),
            shares = all[head];
        fill(
            heads,
            h('span', { class: 'muted', text: `layer ${where.layer}` }),
            ...all.map((_, k) => h('button', { type: 'button', class: 'button small', text: `head ${k}`, 'aria-pressed': String(k === head), onclick: () => choose(i, k) })),
        );
        strip.set(ids.length, k => ({
            text: wordOf(ids[k], first),
            kind: kindOf(ids[k], first),
            on: k === i,
            pale: k > i && !answers.has(k),
            note: answers.has(k) ? `→ ${wordOf(answers.get(k).said, first)}` : '',
            good: answers.has(k) ? answers.get(k).said === answers.get(k).value : undefined,
            share: shares[k] ?? 0,
        }));
        arcs.draw(i, shares);
        const order = shares.map((s, k) => [s, k]).sort((x, y) => Math.abs(y[0]) - Math.abs(x[0]));
        const top = order[0][1],
            who = `“${wordOf(ids[top], first)}”`,
            after = top === pair + 1 ? `${who}, the token right after “${wordOf(a.value, first)}”` : who;
        words.textContent = `“${wordOf(ids[i], first)}” is asked, and the model answers “${wordOf(a.said, first)}”. Of what this head reads, ${percentText(order[0][0])} was written by ${after}.`;
        fill(
            list,
            ...order.slice(0, 4).map(([s, k]) =>
                h('li', {}, h('b', { text: wordOf(ids[k], first) }), h('span', { class: 'muted', text: ` token ${k}` }), h('span', { class: 'num push', text: percentText(s) })),
            ),
        );
    }
    host.append(arcs.element, heads, words, list);
    let start = { share: -1 }; // the question that is read most clearly
    for (const q of example.queries) {
        const found = await attributionOf(model, ids.slice(0, q.position + 1), signal),
            share = found.layers.find(l => l.layer === where.layer).shares[where.head][ids.indexOf(q.key) + 1];
        if (share > start.share) start = { share, position: q.position };
    }
    await choose(start.position);
}

// ---- how many pairs fit, and what importance changes

const SIZES = [8, 16, 32, 64, 127],
    lengthFor = pairs => Math.max(64, 4 * pairs + (pairs === 127 ? 4 : 0));

async function countRight(model, source, pairs, signal) {
    const example = await recallText({ model: source, pairs, length: lengthFor(pairs), seed: SEED + pairs });
    const recording = await read(model, example.ids, signal, { tiles: false });
    return { example, answers: answersOf(recording, example.queries) };
}

function capacityStage(names) {
    return async (host, context) => {
        const { models, signal } = context,
            shown = names.map(([key, label]) => ({ model: models[key].id, label, found: new Map(), strip: new Strip({ label: `Answers ${label}` }), words: h('p', { class: 'say' }) }));
        const buttons = SIZES.map(n => h('button', { type: 'button', class: 'button', text: String(n), onclick: () => choose(n) })),
            chartHost = h('div');
        let chosen = 16;
        const chart = mountChart(chartHost, { themeNow: theme, height: 190 });
        function draw() {
            buttons.forEach((b, i) => b.setAttribute('aria-pressed', String(SIZES[i] === chosen)));
            for (const s of shown) {
                const now = s.found.get(chosen);
                if (!now) {
                    s.words.textContent = `${s.label}: reading …`;
                    s.strip.set(0, () => ({}));
                    continue;
                }
                const first = now.example.first_value,
                    right = rightOf(now.answers);
                s.words.replaceChildren(h('b', { text: `${right} of ${now.answers.length}` }), ` right${names.length > 1 ? ` ${s.label}` : ''}`);
                const dense = now.answers.length > 32;
                s.strip.element.classList.toggle('dense', dense);
                s.strip.set(now.answers.length, i => {
                    const a = now.answers[i];
                    if (dense) return { text: '', kind: 'cell', good: a.said === a.value, title: `${wordOf(a.key, first)}: ${wordOf(a.said, first)}${a.said === a.value ? '' : `, right would be ${wordOf(a.value, first)}`}` };
                    return { text: wordOf(a.key, first), note: wordOf(a.said, first), kind: 'answer', good: a.said === a.value, title: a.said === a.value ? 'right' : `right would be ${wordOf(a.value, first)}` };
                });
            }
            chart.set({
                x: { label: 'pairs in the text', log: true },
                y: { label: 'answered right', min: 0, max: 1 },
                legend: names.length > 1,
                cursor: chosen,
                series: shown.map((s, k) => ({
                    label: s.label,
                    colour: k ? 6 : colourNumber(s.model),
                    points: true,
                    x: [...s.found.keys()].sort((a, b) => a - b),
                    y: [...s.found.keys()].sort((a, b) => a - b).map(n => rightOf(s.found.get(n).answers) / n),
                })).filter(s => s.x.length),
            });
        }
        async function choose(n) {
            chosen = n;
            draw();
            for (const s of shown) {
                if (!s.found.has(n)) s.found.set(n, await countRight(s.model, models.recall.id, n, signal));
                draw();
            }
        }
        host.append(
            h('div', { class: 'row', role: 'group', 'aria-label': 'Pairs in the text' }, h('span', { class: 'muted', text: 'pairs in the text' }), ...buttons),
            h('div', { class: names.length > 1 ? 'side-by-side' : '' }, ...shown.map(s => h('div', { class: 'answers' }, s.words, s.strip.element))),
            chartHost,
        );
        const start = names.length > 1 ? 64 : 16;
        await choose(start);
        for (const n of SIZES) {
            for (const s of shown) if (!s.found.has(n)) s.found.set(n, await countRight(s.model, models.recall.id, n, signal));
            draw();
        }
        signal.addEventListener('abort', () => chart.close());
    };
}

// ---- forgetting

const PASSAGE =
    'To be, or not to be, that is the question:\nWhether \'tis nobler in the mind to suffer\nThe slings and arrows of outrageous fortune,\nOr to take arms against a sea of troubles\nAnd by opposing end them.';

async function forgetStage(host, { models, signal }) {
    const m = models.text,
        recording = await read(m.id, PASSAGE, signal),
        layers = recording.layers.map((l, i) => ({ ...l, i })).filter(l => l.window),
        n = recording.windows.length;
    const median = list => [...list].sort((a, b) => a - b)[list.length >> 1];
    const windows = layers.map(l => median(Array.from({ length: n }, (_, t) => recording.windows.at(t, l.i)).filter(Number.isFinite)));
    const order = windows.map((w, k) => k).sort((a, b) => windows[a] - windows[b]);
    const words = h('p', { class: 'say', 'aria-live': 'polite' }),
        passage = h('p', { class: 'passage', 'aria-label': 'The passage: what the chosen layer has forgotten is pale' });
    const spans = recording.texts.map(text => h('span', { text }));
    passage.append(...spans);
    const top = Math.max(...windows);
    const rows = order.map(k => {
        const bar = h('i');
        bar.style.width = `${Math.max(3, (100 * windows[k]) / top)}%`;
        return h('button', { type: 'button', class: 'window-row', onclick: () => choose(k) }, h('span', { text: `layer ${layers[k].i}` }), h('span', { class: 'meter' }, bar), h('b', { class: 'num', text: windows[k] < 10 ? windows[k].toFixed(1) : String(Math.round(windows[k])) }));
    });
    function choose(k) {
        let left = 1;
        for (let t = spans.length - 1; t >= 0; t--) {
            spans[t].style.opacity = String(0.16 + 0.84 * left);
            const w = recording.windows.at(t, layers[k].i);
            if (Number.isFinite(w)) left *= 1 - 1 / Math.max(w, 1);
        }
        rows.forEach((r, i) => r.setAttribute('aria-pressed', String(order[i] === k)));
        words.textContent = `After the last letter, this is what is left of each one in layer ${layers[k].i}: its window N is about ${windows[k] < 10 ? windows[k].toFixed(1) : Math.round(windows[k])} letters.`;
    }
    host.append(passage, words, h('div', { class: 'windows', role: 'group', 'aria-label': 'Window of each layer, in letters' }, ...rows));
    choose(order[Math.floor(order.length / 2)]);
}

// ---- the limit

async function limitStage(host, { models, signal }) {
    const m = models.recall,
        pairs = 64,
        example = await recallText({ model: m.id, pairs, length: lengthFor(pairs), seed: SEED + pairs }),
        where = await readingHead(m.id, example, signal),
        at = 2 * pairs;
    const sides = await Promise.all(
        [m.id, models.plain.id].map(async model => ({
            model,
            map: await mapAfter(model, example.ids, at, where.layer, signal),
            right: rightOf(answersOf(await read(model, example.ids, signal, { tiles: false }), example.queries)),
        })),
    );
    const grown = sides[0].map.importance[where.head],
        scale = { lo: Math.min(...grown), hi: Math.max(...grown), log: true },
        views = [new MapView('Importance, as trained', { kind: 'heat' }), new MapView('Held at its start: Mamba2', { kind: 'heat' })];
    views[0].set(grown, sides[0].map.rows, sides[0].map.columns, scale);
    views[1].set(grown.map(() => scale.lo), sides[0].map.rows, sides[0].map.columns, scale);
    host.append(
        h(
            'div',
            { class: 'side-by-side' },
            ...sides.map((s, k) => h('div', {}, views[k].element, h('p', { class: 'say' }, h('b', { text: `${s.right} of ${pairs}` }), ' right'))),
        ),
        h('p', { class: 'muted', text: `The same weights read the same ${pairs} pairs; only importance is switched off on the right.` }),
    );
}

// ---- one's own text

const nameOf = text => (text === ' ' ? 'a space' : text === '\n' ? 'a new line' : `“${visible(text)}”`);

async function ownStage(host, { models, signal, openText }) {
    const m = models.text,
        input = h('textarea', { rows: 3, maxLength: 600, 'aria-label': 'Your text', value: 'KING RICHARD:\nMy crown is in my heart, not on my head;\nMy crown is called content, and crowns' }),
        button = h('button', { class: 'button primary', type: 'button', text: 'Read it' }),
        open = h('button', { class: 'button', type: 'button', text: 'Open in the inspector' }),
        words = h('p', { class: 'say', 'aria-live': 'polite' }),
        passage = h('p', { class: 'passage choose', tabIndex: 0, role: 'group', 'aria-label': 'Your text as it was read: click a letter, or use arrow keys' }),
        layer = h('select', { 'aria-label': 'Layer' });
    let recording = null,
        spans = [],
        chosen = 0,
        turn = 0;
    async function choose(i) {
        chosen = Math.min(spans.length - 1, Math.max(0, i));
        const mine = ++turn,
            found = await attributionOf(m.id, recording.ids.slice(0, chosen + 1), signal);
        if (mine !== turn) return;
        if (!layer.options.length) {
            fill(layer, ...found.layers.map(l => h('option', { value: l.layer, text: `layer ${l.layer}` })));
            layer.value = found.layers[found.layers.length - 1].layer;
        }
        const l = found.layers.find(x => x.layer === Number(layer.value)),
            mean = recording.ids.map((_, t) => l.shares.reduce((sum, head) => sum + Math.abs(head[t] ?? 0), 0) / l.shares.length),
            most = Math.max(...mean);
        spans.forEach((s, t) => {
            s.className = t === chosen ? 'on' : '';
            s.style.setProperty('--share', t <= chosen ? mean[t] / most : 0);
        });
        const best = mean.indexOf(most),
            next = (chosen + 1 < recording.ids.length ? recording.tops[chosen + 1] : recording.next?.top)?.[0];
        const part = recording.texts.slice(Math.max(0, best - 4), best + 1).join('').trim();
        words.textContent = `At ${nameOf(recording.texts[chosen])}, layer ${layer.value} reads most from ${best === chosen ? 'that letter itself' : `the end of “${part}”`} (${percentText(most)}).${next ? ` Next, the model expects ${nameOf(next[1])} (${percentText(Math.exp(next[2]))}).` : ''}`;
    }
    async function readIt() {
        if (!input.value.trim()) {
            words.textContent = 'Write a few words first.';
            return;
        }
        button.disabled = true;
        try {
            recording = await read(m.id, input.value, signal);
            spans = recording.texts.map((text, i) => h('span', { text, onclick: () => choose(i) }));
            fill(passage, ...spans);
            await choose(spans.length - 1);
        } catch (e) {
            if (e.name !== 'AbortError') words.textContent = e.message;
        } finally {
            button.disabled = false;
        }
    }
    button.addEventListener('click', readIt);
    open.addEventListener('click', () => openText(m.id, input.value));
    layer.addEventListener('change', () => choose(chosen));
    passage.addEventListener('keydown', e => {
        const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e6, End: 1e6 }[e.key];
        if (!step || !spans.length) return;
        e.preventDefault();
        choose(chosen + step);
    });
    host.append(input, h('div', { class: 'row' }, button, layer, open), passage, words);
    await readIt();
}

export const CHAPTERS = [
    {
        id: 'fixed',
        title: 'A memory that never grows',
        text: [
            'A language model reads a text one token at a time. A transformer keeps every token it has read, so its memory grows with the text.',
            'The model on this page keeps a table of numbers instead. Reading changes the numbers; the table stays the same size after ten tokens or ten million.',
        ],
        hint: 'The tokens are made up: a syllable is a key, a number its value. Further on the keys come again, and the model is asked for their values.',
        needs: ['recall'],
        stage: fixedStage,
    },
    {
        id: 'write',
        title: 'Writing a pair',
        text: [
            'Each token turns into two lists of numbers: a key and a value. Multiplied with each other they make a pattern that is added to the table.',
            'Step through the text: when a number follows a syllable, the pair is written in one stroke.',
        ],
        needs: ['recall'],
        stage: writeStage,
    },
    {
        id: 'read',
        title: 'Reading it back',
        text: [
            'Later a key comes again. Its pattern picks from the table what was written under it, and the model answers.',
            'What is read can be divided exactly among the tokens that wrote it. The arcs show who did; the shares add up to 100%.',
        ],
        hint: 'Choose another question: the chips with an arrow. Each head reads for itself, and sees every token mixed with the three before it, so the token after a value writes its pair, too.',
        needs: ['recall'],
        stage: readStage,
    },
    {
        id: 'interference',
        title: 'When it gets crowded',
        text: [
            'A table of this size holds a few pairs cleanly. Beyond that, patterns share the same numbers and blur each other: interference.',
            'Ask for more pairs and watch where answers begin to go wrong.',
        ],
        needs: ['recall'],
        stage: capacityStage([['recall', 'Palimpsa']]),
    },
    {
        id: 'importance',
        title: 'What importance changes',
        text: [
            'Palimpsa keeps a second number next to every number of the table: how important it has become. Important numbers change little, so what was written stays, and new pairs go where there is room.',
            'Here the same text is read by two models of one size, trained alike: one with importance, one without. It is one pair of models. Over many runs the difference depends on the backbone and the training, and is not settled.',
        ],
        needs: ['recall', 'without'],
        stage: capacityStage([
            ['recall', 'with importance'],
            ['without', 'without importance'],
        ]),
    },
    {
        id: 'forget',
        title: 'Forgetting, on purpose',
        text: [
            'A memory that kept everything would fill up. So every number fades a little with each token, back towards where it began.',
            'How fast is learned. The window N says after how many tokens a trace has faded to about a third. Some layers look back only a few letters, others much further.',
        ],
        needs: ['text'],
        stage: forgetStage,
    },
    {
        id: 'limit',
        title: 'Mamba2 is the limit',
        text: [
            'Hold importance at its starting value, and what is left of the rule is exactly Mamba2.',
            'It works the other way, too: a trained Mamba2 can be given importance without changing its answers, and then learn to use it.',
        ],
        needs: ['recall', 'plain'],
        stage: limitStage,
    },
    {
        id: 'yours',
        title: 'Now your own text',
        text: [
            'This model has read Shakespeare, letter by letter, and runs on your machine: nothing you write leaves this page.',
            'Click any letter to see which earlier ones it reads.',
        ],
        needs: ['text'],
        stage: ownStage,
    },
];
