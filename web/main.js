// SPDX-License-Identifier: MIT
// The beginning: views, theme, key, menu, and what a link asks for.

import * as api from './api.js';
import {
    app,
    choose,
    chooseElement,
    emit,
    hasElement,
    newConversation,
    on,
    openConversation,
    run,
    setLayer,
    setPosition,
} from './app.js';
import { initChat } from './chat.js';
import { compare, initCompare, readBoth, setCompareModel, setCompareSame } from './compare.js';
import { $, ask, fill, guard, h, notice, saveBlob } from './dom.js';
import { refreshMemories } from './keep.js';
import { initMemory, play, stopPlaying } from './memory.js';
import { LONGEST_LINK, csvOf, jsonOf, linkOf, pictureOf, queriesOf, tableOf, unpackNumbers } from './take.js';
import { initReading } from './reading.js';
import { initTalk } from './talk.js';
import { initTokens, setColour } from './tokens.js';
import { initSide } from './side.js';
import { chapterNow, hasStory, initStory, showChapter } from './story.js';
import { drawTraining, initTraining, syncTrainingControls, training } from './training.js';

const VIEWS = ['story', 'talk', 'chat', 'compare', 'training'],
    open = () => VIEWS.filter(name => !$(`tab-${name}`).hidden);

function show(view, focus = false) {
    app.view = VIEWS.includes(view) ? view : 'talk';
    for (const name of VIEWS) {
        const tab = $(`tab-${name}`),
            on = name === app.view;
        tab.setAttribute('aria-selected', String(on));
        tab.tabIndex = on ? 0 : -1;
        $(`view-${name}`).hidden = !on;
        if (on && focus) tab.focus();
    }
    $('take').hidden = app.view === 'chat'; // which is not a picture, nor numbers
    emit('view', 'position', 'theme');
}

// ---- theme: as the system, light, dark

const dark = matchMedia('(prefers-color-scheme: dark)'),
    NEXT = { system: 'light', light: 'dark', dark: 'system' },
    SIGN = { system: '◐', light: '☀', dark: '☾' };
let wish = localStorage.getItem('theme') ?? 'system';
if (!(wish in NEXT)) wish = 'system';
function applyTheme() {
    document.documentElement.dataset.theme = wish === 'system' ? (dark.matches ? 'dark' : 'light') : wish;
    const button = $('theme'),
        name = wish === 'system' ? 'as the system' : wish;
    button.textContent = SIGN[wish];
    button.title = `Theme: ${name}`;
    button.setAttribute('aria-label', `Theme: ${name}`);
    emit('theme');
}

// ---- take along

function closeMenu() {
    $('take-menu')?.remove();
    $('take').setAttribute('aria-expanded', 'false');
}
function openMenu() {
    if ($('take-menu')) {
        closeMenu();
        return;
    }
    const stem = () => `palimpsa-${app.view}`,
        item = (label, f) =>
            h('button', {
                role: 'menuitem',
                text: label,
                onclick: () => {
                    closeMenu();
                    $('take').focus();
                    guard(f)();
                },
            });
    const menu = h(
        'div',
        { class: 'menu', role: 'menu', id: 'take-menu', 'aria-label': 'Share' },
        ...(app.view === 'story' ? [] : [
        item('Picture of this view (PNG)', async () => saveBlob(await pictureOf(app.view), `${stem()}.png`)),
        item('Numbers (CSV)', () =>
            saveBlob(new Blob([csvOf(tableOf(app.view))], { type: 'text/csv' }), `${stem()}.csv`),
        ),
        item('Numbers (JSON)', () =>
            saveBlob(new Blob([jsonOf(app.view)], { type: 'application/json' }), `${stem()}.json`),
        ),
        ]),
        item('Link to this view', async () => {
            const link = linkOf(app.view);
            if (link.length > LONGEST_LINK)
                throw new api.ServerError(0, 'This text is too long for a link: keep its memory instead.');
            history.replaceState(null, '', link);
            try {
                await navigator.clipboard.writeText(link);
                notice('The link is in the clipboard and in the address bar');
            } catch {
                notice('The link is in the address bar');
            }
        }),
    );
    $('take').after(menu);
    $('take').setAttribute('aria-expanded', 'true');
    menu.firstChild.focus();
    menu.addEventListener('keydown', e => {
        const items = [...menu.children],
            step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
        if (e.key === 'Escape') {
            closeMenu();
            $('take').focus();
        }
        if (step) {
            e.preventDefault();
            items[(items.indexOf(document.activeElement) + step + items.length) % items.length].focus();
        }
    });
}

// ---- key

async function askKey() {
    const a = await ask(
        'This server wants a key',
        [{ name: 'key', label: 'Key', type: 'password', max: 4096, required: true }],
        'Use it',
    );
    if (!a?.key) return false;
    api.setKey(a.key);
    $('key').hidden = false;
    return true;
}
let asking = null;
api.whenKeyIsNeeded(
    () =>
        (asking ??= askKey().finally(() => {
            asking = null;
        })),
);

// ---- links

async function restore(q) {
    const number = name => (q.has(name) && q.get(name) !== '' ? Number(q.get(name)) : null);
    const view = q.get('view');
    if (view === 'talk' && q.get('model')) {
        if (!app.models.some(m => m.id === q.get('model')))
            throw new api.ServerError(404, `This server has no model “${q.get('model')}”, which the link asks for.`);
        const memory = q.get('memory') ? app.memories.find(m => m.id === q.get('memory')) : null;
        if (q.get('memory') && !memory)
            throw new api.ServerError(404, 'The memory of this link is no longer kept by the server.');
        const c = newConversation(q.get('model'), {
            name: q.get('name') ?? undefined,
            base: memory ? { id: memory.id, tokens: memory.tokens } : null,
            baseName: memory?.name,
        });
        if (q.get('queries')) c.queries = queriesOf(unpackNumbers(q.get('queries')));
        if (q.get('colour')) app.colourBy = $('colour-by').value = q.get('colour');
        if (!$('colour-by').value) app.colourBy = $('colour-by').value = 'probability';
        setColour(app.colourBy);
        if (q.get('reduce') === 'mean') app.reduce = 'mean';
        if (number('layer') !== null) app.layer = number('layer');
        openConversation(c);
        show('talk');
        if (q.get('ids')) {
            await run(c, unpackNumbers(q.get('ids')), { max_tokens: 1, temperature: 0, probe: true });
            const flips = q.get('written') ? unpackNumbers(q.get('written')) : [];
            flips.forEach((at, k) => {
                if (k % 2 === 0) c.recording.written.fill(true, at, flips[k + 1] ?? c.recording.written.length);
            });
            c.recording.version++;
        }
        if (number('layer') !== null && number('layer') < c.recording.layers.length) await setLayer(number('layer'));
        app.head = number('head') ?? 0;
        if (number('position') !== null) setPosition(number('position'));
        const i = app.position - c.recording.start - 1;
        if (i >= 0 && i < c.recording.ids.length && app.position < c.recording.position) choose(i);
        if (q.get('element')) {
            const [head, key, value] = q.get('element').split('.').map(Number),
                element = { layer: app.layer, head, key, value };
            if (hasElement(c.recording.layers, element)) await chooseElement(element);
        }
        emit('tokens', 'layer', 'conversations');
    } else if (view === 'chat') {
        show('chat');
    } else if (view === 'story') {
        show('story');
        if (q.get('chapter')) await showChapter(q.get('chapter'));
    } else if (view === 'compare') {
        show('compare');
        if (q.get('a')) setCompareModel(compare.sides[0], q.get('a'));
        if (q.get('b')) setCompareModel(compare.sides[1], q.get('b'));
        compare.sides[0].prompt.value = q.get('text') ?? '';
        if (q.has('other')) {
            setCompareSame(false);
            compare.sides[1].prompt.value = q.get('other');
        }
        if (q.get('queries')) compare.queries = queriesOf(unpackNumbers(q.get('queries')));
        if (q.get('text')) {
            await readBoth();
            compare.chosen = number('chosen');
            emit('view');
        }
    } else if (view === 'training') {
        training.selected = new Set(q.getAll('run'));
        training.touched = true;
        training.x = ['step', 'tokens', 'seconds'].includes(q.get('x')) ? q.get('x') : 'step';
        training.logX = q.has('logx');
        training.logY = q.has('logy');
        training.more = q.has('more');
        training.smooth = Math.min(51, Math.max(1, number('smooth') ?? 1));
        syncTrainingControls();
        show('training');
        drawTraining();
    }
}

// ---- start

function initFrame() {
    for (const name of VIEWS) $(`tab-${name}`).addEventListener('click', () => show(name));
    document.querySelector('.tabs').addEventListener('keydown', e => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key],
            views = open();
        if (step) show(views[(views.indexOf(app.view) + step + views.length) % views.length], true);
    });
    $('theme').addEventListener('click', () => {
        wish = NEXT[wish];
        localStorage.setItem('theme', wish);
        applyTheme();
    });
    dark.addEventListener('change', applyTheme);
    $('take').addEventListener('click', openMenu);
    document.addEventListener('click', e => {
        if (!e.target.closest('.tools')) closeMenu();
    });
    $('key').addEventListener('click', askKey);
    $('key').hidden = !api.hasKey();
    const talk = $('view-talk'),
        panes = { list: 'show-list', text: null, memory: 'show-memory' };
    const pane = name => {
        for (const [key, cls] of Object.entries(panes)) {
            $(`pane-${key}`).setAttribute('aria-pressed', String(key === name));
            if (cls) talk.classList.toggle(cls, key === name);
        }
        emit('theme', 'position');
    };
    for (const name of Object.keys(panes)) $(`pane-${name}`).addEventListener('click', () => pane(name));
    on('conversation', () => {
        if (talk.classList.contains('show-list')) pane('text');
    });
}

async function start() {
    applyTheme();
    initFrame();
    initTokens();
    initSide();
    initTalk(() => play(true));
    initMemory();
    initChat();
    initReading();
    initCompare();
    initTraining();
    initStory();
    const waiting = setTimeout(() => ($('loading').hidden = false), 150);
    try {
        await api.connect(share => ($('loaded').value = share));
        app.models = await api.models();
        $('loading').hidden = true;
    } catch (e) {
        if (api.hasServer() && !document.querySelector('meta[name="palimpsa-engine"]')) $('loading').hidden = true;
        else {
            $('view-talk').hidden = true;
            $('loading').hidden = false;
            fill($('loading'), h('p', { role: 'alert', text: `The models cannot run here: ${e.message}` }), h('p', { class: 'muted', text: 'The page needs WebAssembly with 128-bit vectors: a browser of 2023 or later.' }));
        }
        throw e;
    } finally {
        clearTimeout(waiting);
    }
    $('tab-story').hidden = !hasStory(app.models);
    if (!api.hasServer()) document.documentElement.dataset.carrier = 'local';
    $('tab-training').hidden = !api.hasServer();
    $('tab-chat').hidden = !api.hasServer() || !app.models.length;
    fill($('model'), ...app.models.map(m => h('option', { value: m.id, text: m.id })));
    const first = app.models[0];
    emit('models');
    await refreshMemories().catch(e => {
        if (e.status !== 404) throw e;
    });
    const q = new URLSearchParams(location.hash.slice(1));
    if (q.get('view') === 'talk' && q.get('model')) await guard(restore)(q);
    if (!app.current) {
        openConversation(newConversation(first?.id ?? ''));
        show(!first ? 'training' : api.hasServer() ? 'talk' : 'story');
        if (q.get('view')) await guard(restore)(q);
    }
    emit('conversations', 'memories');
    document.documentElement.dataset.ready = 'yes';
}

guard(start)();
window.addEventListener('hashchange', () => {
    stopPlaying();
    app.busy?.abort();
    const q = new URLSearchParams(location.hash.slice(1));
    if (q.get('view')) guard(restore)(q);
});
