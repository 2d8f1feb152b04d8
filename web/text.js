// SPDX-License-Identifier: MIT
// A text of tokens that stays fast when it is long: blocks of a few hundred tokens, of which only those near the screen
// have an element for each token. The others are one text node, which takes the same room.

import { visible } from './dom.js';

const BLOCK = 200,
    LONGEST = 1000,
    IDS_BLOCK = 240;
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g; // would turn or hide what follows
export function shownText(text) {
    return text.replace(HIDDEN, c => visible(c));
}

export class TokenText {
    // look(i): { className, text, note, noteClass } of token i. choose(i) hears clicks and keys.
    constructor(host, { look, choose, chosen }) {
        Object.assign(this, { host, look, choose, chosen, blocks: [], count: 0, ids: false, texts: [] });
        this.observer = new IntersectionObserver(
            entries => {
                for (const e of entries) this.#live(this.blocks[Number(e.target.dataset.block)], e.isIntersecting);
            },
            { root: host, rootMargin: '700px 0px' },
        );
        host.addEventListener('click', e => {
            const t = e.target.closest('.t');
            if (t) this.choose(Number(t.dataset.i));
        });
        host.addEventListener('keydown', e => {
            const now = this.chosen() ?? -1,
                step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -10, ArrowDown: 10 }[e.key];
            const to =
                e.key === 'Home'
                    ? 0
                    : e.key === 'End'
                      ? this.count - 1
                      : step === undefined || (now < 0 && step < 0)
                        ? NaN
                        : now < 0
                          ? 0
                          : now + step;
            if (Number.isNaN(to) || !this.count) return;
            e.preventDefault();
            this.choose(Math.min(Math.max(to, 0), this.count - 1));
            this.show(this.chosen());
        });
    }

    clear(ids = false) {
        this.observer.disconnect();
        this.host.replaceChildren();
        Object.assign(this, { blocks: [], count: 0, ids });
    }

    // Shows texts[0 .. length); what is there already stays.
    sync(texts, keep = texts.length) {
        this.texts = texts;
        if (keep < this.count) this.#cut(keep);
        if (texts.length <= this.count) return;
        const atEnd = this.host.scrollHeight - this.host.scrollTop - this.host.clientHeight < 60;
        let open = null;
        for (; this.count < texts.length; this.count++) {
            let b = this.blocks[this.blocks.length - 1];
            if (!b || this.#full(b)) {
                if (open) this.#text(open);
                b = this.#newBlock();
            }
            b.to = this.count + 1;
            if (b.live) b.element.append(this.#span(this.count));
            else open = b;
        }
        if (open) this.#text(open);
        if (atEnd) this.host.scrollTop = this.host.scrollHeight;
    }

    #full(b) {
        const n = b.to - b.from;
        return this.ids ? n >= IDS_BLOCK : n >= LONGEST || (n >= BLOCK && this.texts[b.to - 1].endsWith('\n'));
    }

    #newBlock() {
        const element = document.createElement('div'),
            first = this.blocks.length < 2;
        element.className = this.ids ? 'block ids' : 'block';
        element.dir = this.ids ? 'ltr' : 'auto';
        element.dataset.block = this.blocks.length;
        const b = { from: this.count, to: this.count, element, live: first };
        this.blocks.push(b);
        this.host.append(element);
        this.observer.observe(element);
        return b;
    }

    #cut(count) {
        while (this.blocks.length && this.blocks[this.blocks.length - 1].from >= count) {
            const b = this.blocks.pop();
            this.observer.unobserve(b.element);
            b.element.remove();
        }
        const last = this.blocks[this.blocks.length - 1];
        if (last && last.to > count) {
            last.to = count;
            if (last.live) this.#spans(last);
            else this.#text(last);
        }
        this.count = count;
    }

    #span(i) {
        const s = document.createElement('span');
        s.dataset.i = i;
        this.#dress(s, i);
        return s;
    }

    #dress(s, i) {
        const l = this.look(i);
        if (s.className !== l.className) s.className = l.className;
        const key = `${l.text}\u0000${l.note ?? ''}\u0000${l.noteClass ?? ''}`;
        if (s.shown === key) return;
        s.shown = key;
        s.textContent = l.text;
        if (l.note) {
            const n = document.createElement('small');
            n.textContent = l.note;
            s.append(n);
            if (l.mark) {
                const m = document.createElement('span');
                m.className = l.noteClass;
                m.textContent = l.mark;
                s.append(m);
            }
        }
    }

    #spans(b) {
        const all = document.createDocumentFragment();
        for (let i = b.from; i < b.to; i++) all.append(this.#span(i));
        b.element.style.height = '';
        b.element.replaceChildren(all);
    }

    #text(b) {
        if (this.ids) {
            if (b.element.childElementCount) b.element.style.height = `${b.element.offsetHeight}px`;
            else b.element.style.height = `${Math.ceil((b.to - b.from) / 12) * 31}px`;
            b.element.replaceChildren();
        } else b.element.textContent = this.texts.slice(b.from, b.to).map(shownText).join('');
    }

    #live(b, live) {
        if (!b || b.live === live) return;
        b.live = live;
        if (live) this.#spans(b);
        else this.#text(b);
    }

    // Colours and notes again, of what is on the screen.
    restyle() {
        for (const b of this.blocks)
            if (b.live) for (const s of b.element.children) this.#dress(s, Number(s.dataset.i));
    }

    show(i) {
        const b = this.blocks.find(one => i >= one.from && i < one.to);
        if (!b) return;
        this.#live(b, true);
        b.element.children[i - b.from]?.scrollIntoView({ block: 'nearest' });
    }
}

// ---- levels of tints

// Surprise in bits: none up to one bit, the deepest tint from ten bits.
export function surpriseLevel(logprob) {
    if (!Number.isFinite(logprob)) return 0;
    return Math.min(7, Math.max(0, Math.floor((-logprob / Math.LN2 + 0.35) / 1.35)));
}
export function shareLevel(value, top) {
    if (!Number.isFinite(value) || !(top > 0)) return 0;
    return Math.min(7, Math.max(0, Math.floor((8 * value) / top)));
}
