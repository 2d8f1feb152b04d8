// SPDX-License-Identifier: MIT
// The story: chapters one after the other, words on one side and the live model on the other (chapters.js).

import { app, emit, newConversation, on, openConversation, run, theme } from './app.js';
import { CHAPTERS } from './chapters.js';
import { $, fill, guard, h } from './dom.js';

let at = -1, // index of the chapter that is shown
    stopping = null, // ends what the last chapter still does
    drawnIn = null; // its theme

// Models by what chapters need them for.
export function casting(models) {
    const rules = m => m.rules ?? [],
        remembers = m => rules(m).every(r => r !== 'attention' && r !== 'none'), // in every layer
        recalls = m => m.recall && !m.plain_of && remembers(m);
    const recall = models.find(m => recalls(m) && rules(m).every(r => r === 'palimpsa')) ?? null;
    return {
        recall,
        without: models.find(m => recalls(m) && !rules(m).includes('palimpsa') && (!recall || m.vocabulary === recall.vocabulary)) ?? null,
        plain: (recall && models.find(m => m.plain_of === recall.id)) ?? null,
        text: models.find(m => !m.recall && m.tokenizer !== 'ids' && !m.plain_of && remembers(m)) ?? null,
    };
}
const WANTED = {
    recall: 'a model that recalls pairs, such as models/recall',
    without: 'a model that recalls pairs without importance, such as models/recall-without',
    plain: 'a model with importance, such as models/recall',
    text: 'a model that writes text, such as models/shakespeare.gguf',
};
export const missingFor = (chapter, models) => chapter.needs.filter(n => !models[n]);
export const hasStory = models => CHAPTERS.some(c => !missingFor(c, casting(models)).length);

function openText(model, text) {
    openConversation(newConversation(model));
    emit('conversations');
    $('tab-talk').click();
    guard(run)(app.current, text, { max_tokens: 1, temperature: 0, probe: true });
}

function drawList() {
    fill(
        $('story-list'),
        ...CHAPTERS.map((c, i) =>
            h(
                'li',
                {},
                h('button', {
                    type: 'button',
                    'aria-current': i === at ? 'step' : null,
                    onclick: () => show(i, true),
                    text: c.title,
                }),
            ),
        ),
    );
}

export async function show(i, focus = false) {
    const index = Math.min(CHAPTERS.length - 1, Math.max(0, i));
    if (index === at && !focus) return;
    at = index;
    drawnIn = theme();
    stopping?.abort();
    const own = (stopping = new AbortController()),
        c = CHAPTERS[at],
        models = casting(app.models),
        missing = missingFor(c, models),
        stage = h('div', { class: 'stage', 'aria-busy': 'true' }, h('p', { class: 'muted waiting', text: 'The model is reading …' })),
        title = h('h2', { text: c.title, tabIndex: -1 });
    drawList();
    fill(
        $('chapter'),
        h(
            'div',
            { class: 'words' },
            h('p', { class: 'step num', text: `${at + 1} of ${CHAPTERS.length}` }),
            title,
            ...c.text.map(text => h('p', { text })),
            c.hint ? h('p', { class: 'muted hint', text: c.hint }) : null,
            h(
                'div',
                { class: 'row turn' },
                at > 0 ? h('button', { type: 'button', class: 'button', text: 'Back', onclick: () => show(at - 1, true) }) : null,
                at + 1 < CHAPTERS.length
                    ? h('button', { type: 'button', class: 'button primary', text: `Next: ${CHAPTERS[at + 1].title}`, onclick: () => show(at + 1, true) })
                    : h('button', { type: 'button', class: 'button primary', text: 'Look around in the inspector', onclick: () => $('tab-talk').click() }),
            ),
        ),
        stage,
    );
    $('chapter').scrollTop = 0;
    if (focus) title.focus({ preventScroll: matchMedia('(min-width: 761px)').matches });
    if (missing.length) {
        fill(stage, h('p', { class: 'muted', text: `This chapter needs ${missing.map(n => WANTED[n]).join(', and ')}: start palimpsa serve with it.` }));
        stage.setAttribute('aria-busy', 'false');
        return;
    }
    const inner = h('div', { class: 'inner' });
    try {
        const ready = c.stage(inner, { models, signal: own.signal, openText });
        setTimeout(() => !own.signal.aborted && inner.childElementCount && fill(stage, inner), 120);
        await ready;
    } catch (e) {
        if (own.signal.aborted || e.name === 'AbortError') return;
        fill(inner, h('p', { class: 'bad', role: 'alert', text: e.message }));
    }
    if (own.signal.aborted) return;
    if (inner.parentElement !== stage) fill(stage, inner);
    stage.setAttribute('aria-busy', 'false');
    stage.dataset.ready = c.id;
}

export const chapterNow = () => CHAPTERS[at]?.id ?? CHAPTERS[0].id;
export const showChapter = id => show(Math.max(0, CHAPTERS.findIndex(c => c.id === id)));

export function initStory() {
    fill(
        $('view-story'),
        h('nav', { class: 'story-list', 'aria-label': 'Chapters' }, h('ol', { id: 'story-list' })),
        h('article', { id: 'chapter', class: 'chapter' }),
    );
    $('view-story').addEventListener('keydown', e => {
        if (e.target.closest('input, textarea, select, .heat, canvas, .passage, [role=tablist]') || e.altKey || e.ctrlKey || e.metaKey) return;
        if (e.key === 'PageDown') (e.preventDefault(), show(at + 1, true));
        if (e.key === 'PageUp') (e.preventDefault(), show(at - 1, true));
    });
    drawList();
    on('view', () => {
        if (app.view !== 'story') {
            stopping?.abort();
            at = -1;
        } else if (at < 0) show(0);
    });
    on('theme', () => {
        if (app.view === 'story' && at >= 0 && theme() !== drawnIn) {
            const now = at;
            at = -1;
            show(now);
        }
    });
}
