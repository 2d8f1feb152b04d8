// SPDX-License-Identifier: MIT
// Elements from JavaScript. Every text goes through textContent or an attribute: nothing that people or models wrote is
// ever read as HTML.

import { ServerError } from './api.js';

export function h(name, props = {}, ...children) {
    const e = document.createElement(name);
    for (const [key, value] of Object.entries(props)) {
        if (value === null || value === undefined || value === false) continue;
        if (key.startsWith('on')) e.addEventListener(key.slice(2), value);
        else if (key === 'class') e.className = value;
        else if (key === 'text') e.textContent = value;
        else if (key in e && key !== 'list' && key !== 'form') e[key] = value;
        else e.setAttribute(key, value === true ? '' : value);
    }
    e.append(...children.filter(c => c !== null && c !== undefined && c !== false));
    return e;
}

export const $ = id => document.getElementById(id);

export function fill(node, ...children) {
    node.replaceChildren(...children.filter(c => c !== null && c !== undefined && c !== false));
    return node;
}

// Said by a screen reader, and shown for a moment.
let noticeTimer = 0;
export function notice(text, bad = false) {
    const n = $('notice');
    n.textContent = text;
    n.className = bad ? 'notice bad shown' : 'notice shown';
    clearTimeout(noticeTimer);
    noticeTimer = setTimeout(
        () => {
            n.className = 'notice';
        },
        bad ? 9000 : 3500,
    );
}

// A small window with fields; resolves to their values, or null when it was closed.
export function ask(title, fields, does, danger = false) {
    return new Promise(resolve => {
        const inputs = fields.map(f =>
            h('input', {
                type: f.type ?? 'text',
                value: f.value ?? '',
                maxLength: f.max ?? 200,
                required: f.required ?? false,
                autocomplete: 'off',
                name: f.name,
            }),
        );
        const form = h(
            'form',
            { method: 'dialog' },
            h('h2', { text: title }),
            ...fields.map((f, i) => h('label', { class: 'field' }, h('span', { text: f.label }), inputs[i])),
            h(
                'div',
                { class: 'row end' },
                h('button', { type: 'button', class: 'button', text: 'Cancel', onclick: () => dialog.close() }),
                h('button', { class: danger ? 'button danger' : 'button primary', value: 'yes', text: does }),
            ),
        );
        const dialog = h(
            'dialog',
            {
                class: 'dialog',
                'aria-label': title,
                onclose: () => {
                    resolve(
                        dialog.returnValue === 'yes'
                            ? Object.fromEntries(fields.map((f, i) => [f.name, inputs[i].value]))
                            : null,
                    );
                    dialog.remove();
                },
            },
            form,
        );
        document.body.append(dialog);
        dialog.showModal();
        inputs[0]?.select();
    });
}

// Calls a function at most once per frame.
export function perFrame(f) {
    let asked = false;
    return () => {
        if (asked) return;
        asked = true;
        requestAnimationFrame(() => {
            asked = false;
            f();
        });
    };
}

// Texts of tokens as one sees them: what would be invisible gets a sign.
export function visible(text) {
    return text
        .replace(/\n/g, '⏎')
        .replace(/\t/g, '⇥')
        .replace(/ /g, '␣')
        .replace(
            /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g,
            c => `‹${c.codePointAt(0).toString(16)}›`,
        );
}

// A function for a listener: what goes wrong is said on the page.
export function guard(f) {
    return async (...args) => {
        try {
            return await f(...args);
        } catch (e) {
            notice(e.message, true);
            if (!(e instanceof ServerError)) console.error(e);
            return undefined;
        }
    };
}

export function saveBlob(blob, name) {
    const a = h('a', { href: URL.createObjectURL(blob), download: name });
    document.body.append(a);
    a.click();
    a.remove();
    setTimeout(() => URL.revokeObjectURL(a.href), 10000);
}

// Rows of { label, share, of, here } as bars; without `of` the longest bar is the largest share.
export function bars(rows, toText) {
    const top = Math.max(...rows.map(r => r.share).filter(Number.isFinite), 1e-12);
    return h(
        'div',
        { class: 'bars' },
        ...rows.flatMap(r => {
            const bar = h('i');
            bar.style.width = `${100 * Math.max(0, Math.min(1, Number.isFinite(r.share) ? r.share / (r.of ?? top) : 0))}%`;
            return [
                h('bdi', { class: 'piece', text: r.label, title: r.label }),
                h('div', { class: r.here ? 'track here' : 'track' }, bar),
                h('span', { class: 'value', text: toText(r) }),
            ];
        }),
    );
}
