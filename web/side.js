// SPDX-License-Identifier: MIT
// The lists next to the text: conversations, and memories that the server keeps, each as a tree.

import * as api from './api.js';
import { app, colourOf, dropConversation, emit, newConversation, on, openConversation } from './app.js';
import { bytesText, numberText } from './chart.js';
import { $, ask, fill, guard, h, notice, perFrame, saveBlob } from './dom.js';
import { keep, load, refreshMemories, treeOf } from './keep.js';

function tree(nodes, makeRow) {
    return nodes.map(n =>
        h(
            'li',
            {},
            makeRow(n.item),
            n.children.length ? h('ul', { class: 'tree' }, ...tree(n.children, makeRow)) : null,
        ),
    );
}

function row(item, { name, note, colour, current, open, actions }) {
    const dot = h('span', { class: 'dot' }),
        menu = h(
            'div',
            { class: 'node-menu', hidden: true },
            ...actions.map(([label, f]) => h('button', { class: 'button small', text: label, onclick: guard(f) })),
        );
    dot.style.background = colour;
    const more = h('button', {
        class: 'more',
        text: '⋯',
        'aria-label': `Actions of ${name}`,
        'aria-expanded': 'false',
        onclick: () => {
            menu.hidden = !menu.hidden;
            more.setAttribute('aria-expanded', String(!menu.hidden));
        },
    });
    return h(
        'div',
        {},
        h(
            'div',
            { class: 'node', 'aria-current': current ? 'true' : null },
            dot,
            h(
                'button',
                { class: 'open', onclick: open, title: name },
                h('bdi', { text: name }),
                h('small', { text: note }),
            ),
            more,
        ),
        menu,
    );
}

const drawConversations = perFrame(() => {
    fill(
        $('conversations'),
        ...tree(
            treeOf(
                app.conversations,
                c => c.parent,
                c => c,
            ),
            c =>
                row(c, {
                    name: c.name,
                    colour: colourOf(c.model),
                    current: c === app.current,
                    open: () => {
                        openConversation(c);
                        emit('conversations');
                    },
                    note: `${numberText(c.recording.end)} tokens · ${c.model}`,
                    actions: [
                        [
                            'Rename',
                            async () => {
                                const a = await ask(
                                    'Rename the conversation',
                                    [{ name: 'name', label: 'Name', value: c.name, required: true }],
                                    'Rename',
                                );
                                if (a) c.name = a.name;
                                emit('conversations');
                            },
                        ],
                        ...(api.hasServer()
                            ? [
                                  [
                                      'Keep memory',
                                      async () => {
                                          await keep(c, c.recording.ids.length);
                                          notice('The memory is kept');
                                      },
                                  ],
                              ]
                            : []),
                        ['Close', () => dropConversation(c)],
                    ],
                }),
        ),
    );
});

const drawMemories = perFrame(() => {
    $('no-memories').hidden = app.memories.length > 0;
    fill(
        $('memories'),
        ...tree(
            treeOf(
                app.memories,
                m => m.parent,
                m => m.id,
            ),
            m =>
                row(m, {
                    name: m.name || m.id,
                    colour: colourOf(m.model),
                    current: app.current?.kept?.id === m.id || app.current?.base?.id === m.id,
                    note: `${numberText(m.tokens)} tokens · ${bytesText(m.bytes)}${m.marks.length ? ` · ${m.marks.length} mark${m.marks.length > 1 ? 's' : ''}` : ''}`,
                    open: () => load(m),
                    actions: [
                        ['Talk on', () => load(m)],
                        [
                            'Fork',
                            async () => {
                                await api.memory.make({ from: m.id, name: `${m.name || m.id}, fork` });
                                await refreshMemories();
                            },
                        ],
                        [
                            'Mark',
                            async () => {
                                const a = await ask(
                                    'Mark this place',
                                    [
                                        {
                                            name: 'name',
                                            label: 'Name of the mark (letters, digits, . - _)',
                                            max: 64,
                                            required: true,
                                        },
                                    ],
                                    'Mark',
                                );
                                if (a) {
                                    await api.memory.mark(m.id, a.name);
                                    await refreshMemories();
                                }
                            },
                        ],
                        ...m.marks.map(k => [
                            `Back to ${k.name}`,
                            async () => {
                                await api.memory.rollBack(m.id, k.name);
                                await refreshMemories();
                                notice(`Rolled back to ${k.name}`);
                            },
                        ]),
                        [
                            'Rename',
                            async () => {
                                const a = await ask(
                                    'Rename the memory',
                                    [{ name: 'name', label: 'Name', value: m.name ?? '' }],
                                    'Rename',
                                );
                                if (a) {
                                    await api.memory.rename(m.id, a.name);
                                    await refreshMemories();
                                }
                            },
                        ],
                        [
                            'Download',
                            async () => {
                                saveBlob(
                                    await api.memory.file(m.id),
                                    `${(m.name || m.id).replace(/[^\w.-]+/g, '-')}.memory`,
                                );
                            },
                        ],
                        [
                            'Delete',
                            async () => {
                                if (await ask(`Delete “${m.name || m.id}”?`, [], 'Delete', true)) {
                                    await api.memory.remove(m.id);
                                    for (const c of app.conversations) if (c.kept?.id === m.id) c.kept = null;
                                    await refreshMemories();
                                }
                            },
                        ],
                    ],
                }),
        ),
    );
});

export function initSide() {
    $('new').addEventListener('click', () => {
        openConversation(newConversation(app.current?.model ?? app.models[0]?.id));
        emit('conversations');
        $('prompt').focus();
    });
    $('upload').addEventListener(
        'change',
        guard(async e => {
            const file = e.target.files[0];
            e.target.value = '';
            if (!file) return;
            const name = file.name.replace(/\.memory$/, '');
            const m = await api.memory.upload(file, { name, model: app.current.model });
            await refreshMemories();
            load(m);
        }),
    );
    on('conversations conversation memories theme', drawConversations);
    on('memories conversation theme', drawMemories);
    on('tokens', () => {
        if (!app.busy) drawConversations();
    });
}
