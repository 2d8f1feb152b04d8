// SPDX-License-Identifier: MIT
// Memories that the server keeps, and conversations: fork, roll back, keep, load. A conversation may have a kept memory that
// follows it (`kept`: { id, at, marks }): `at` tokens of its text are in that memory, and marks are places to go back to.

import * as api from './api.js';
import { app, emit, forgetMaps, newConversation, openConversation } from './app.js';

const markAt = n => `t${n}`;

// What others did to a memory (another tab, or its mark) parts it from the conversation that it followed.
export async function refreshMemories() {
    app.memories = await api.memories();
    for (const c of app.conversations) {
        const m = c.kept && app.memories.find(one => one.id === c.kept.id);
        if (c.kept && m?.tokens !== (c.base?.tokens ?? 0) + c.kept.at) c.kept = null;
    }
    emit('memories');
}

// The largest mark of a kept memory at or before `n`, or null.
export function markBefore(kept, n) {
    const fit = kept.marks.filter(m => m <= n);
    return fit.length ? Math.max(...fit) : null;
}

async function readOn(c, from, to) {
    if (to > from) await api.memory.readOn(c.kept.id, c.model, c.recording.ids.slice(from, to));
    c.kept.at = to;
}

function fresh(c, n, name) {
    const ids = c.recording.ids.slice(0, n);
    return api.memory.make({
        model: c.model,
        name,
        ...(ids.length ? { tokens: ids } : {}),
        ...(c.base ? { from: c.base.id } : {}),
    });
}

// The memory of the first n tokens, with a mark there.
export async function keep(c, n, name = c.name) {
    if (c.kept) await refreshMemories();
    if (!c.kept) {
        const m = await fresh(c, n, name);
        c.kept = { id: m.id, at: n, marks: [] };
    } else if (c.kept.at < n) await readOn(c, c.kept.at, n);
    else if (c.kept.at > n && !c.kept.marks.includes(n)) {
        // a place in the past: its own memory
        const m = await fresh(c, n, name);
        await refreshMemories();
        return m.id;
    }
    if (!c.kept.marks.includes(n)) {
        await api.memory.mark(c.kept.id, markAt(n));
        c.kept.marks.push(n);
    }
    await refreshMemories();
    return c.kept.id;
}

// A second conversation with the first n tokens, and a memory that is a fork of this one's.
export async function fork(c, n) {
    const name = `${c.name}, fork at ${n}`;
    if (!api.hasServer()) {
        const copy = newConversation(c.model, { name, parent: c, recording: c.recording.fork(n) });
        copy.queries = c.queries;
        openConversation(copy);
        emit('conversations');
        return copy;
    }
    if (c.kept) await refreshMemories();
    if (!c.kept || c.kept.at < n || c.kept.marks.includes(n)) await keep(c, n);
    const mark = markBefore(c.kept, n),
        between = mark === null ? null : c.recording.ids.slice(mark, n);
    const m =
        mark === null
            ? await fresh(c, n, name)
            : await api.memory.make({
                  from: c.kept.id,
                  mark: markAt(mark),
                  name,
                  ...(between.length ? { tokens: between } : {}),
              });
    const copy = newConversation(c.model, {
        name,
        parent: c,
        recording: c.recording.fork(n),
        base: c.base,
        baseName: c.baseName,
    });
    copy.kept = { id: m.id, at: n, marks: [] };
    copy.queries = c.queries;
    openConversation(copy);
    emit('conversations');
    await refreshMemories();
    return copy;
}

// The conversation ends after token n again, and so does its kept memory.
export async function rollBack(c, n) {
    if (c.kept) await refreshMemories();
    if (c.kept && c.kept.at > n) {
        const mark = markBefore(c.kept, n);
        if (mark === null) {
            c.kept = null; // it has no place to go back to, and nothing that is kept is dropped
        } else {
            await api.memory.rollBack(c.kept.id, markAt(mark));
            c.kept.at = mark;
            c.kept.marks = c.kept.marks.filter(m => m <= n);
            await readOn(c, mark, n);
        }
        await refreshMemories();
    }
    c.recording.cut(n);
    forgetMaps(c.recording);
    c.last = null;
    app.position = c.recording.position;
    app.chosen = null;
    emit('tokens', 'frames', 'position', 'chosen', 'conversations', 'busy');
}

// A new conversation that continues from a kept memory. What the memory read is not known here, only how much.
export function load(m) {
    const c = newConversation(m.model, {
        name: m.name || m.id,
        base: { id: m.id, tokens: m.tokens },
        baseName: m.name || m.id,
    });
    openConversation(c);
    emit('conversations');
    return c;
}

// Memories as a tree: children under their parents, everything else at the top.
export function treeOf(list, parentOf, keyOf) {
    const byKey = new Map(list.map(m => [keyOf(m), { item: m, children: [] }])),
        top = [];
    for (const node of byKey.values()) {
        const parent = byKey.get(parentOf(node.item));
        (parent && parent !== node ? parent.children : top).push(node);
    }
    return top;
}
