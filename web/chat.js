// SPDX-License-Identifier: MIT
// Chats: messages over /v1/chat/completions. Thinking is folded, calls of tools are cards, and a person plays the tools.

import * as api from './api.js';
import { app, on } from './app.js';
import { $, fill, guard, h, perFrame } from './dom.js';

const EXAMPLE = [
    {
        type: 'function',
        function: {
            name: 'get_weather',
            description: 'The weather of a city',
            parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
        },
    },
];

// What a delta of a stream adds to the message so far.
export function addDelta(message, delta) {
    message.content += delta.content ?? '';
    if (delta.reasoning_content) message.reasoning_content = (message.reasoning_content ?? '') + delta.reasoning_content;
    for (const { index, id, function: f } of delta.tool_calls ?? []) {
        message.tool_calls ??= [];
        const call = (message.tool_calls[index] ??= { id, type: 'function', function: { name: '', arguments: '' } });
        call.function.name += f.name ?? '';
        call.function.arguments += f.arguments ?? '';
    }
    return message;
}

// The calls of the newest answer that wait for their result.
export function openCalls(messages) {
    const last = messages.findLastIndex(m => m.role === 'assistant'),
        done = new Set(messages.slice(last + 1).map(m => m.tool_call_id));
    return last < 0 ? [] : (messages[last].tool_calls ?? []).filter(c => !done.has(c.id));
}

// Arguments as people read them; as they are where they are not JSON.
export function shownArguments(text) {
    try {
        return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
        return text;
    }
}

// The tools of the field; empty: none.
export function toolsOf(text) {
    if (!text.trim()) return [];
    let tools;
    try {
        tools = JSON.parse(text);
    } catch (e) {
        throw new api.ServerError(400, `The tools are not JSON: ${e.message}`);
    }
    if (!Array.isArray(tools)) throw new api.ServerError(400, 'The tools are a list: [{"type": "function", ...}]');
    return tools;
}

const chat = { messages: [], writing: null, abort: null };

function thinkingCard(message) {
    if (!message.reasoning_content) return null;
    const words = message.reasoning_content.trim().split(/\s+/).length;
    return h(
        'details',
        { class: 'thinking' },
        h('summary', { text: message === chat.writing && !message.content ? 'Thinking …' : `Thought, ${words} words` }),
        h('p', { text: message.reasoning_content }),
    );
}

// A call; while it waits for its result, with a form for a person to give one.
function callCard(call) {
    const waits = !chat.writing && openCalls(chat.messages).includes(call),
        result = h('textarea', { rows: 2, 'aria-label': `Result of ${call.function.name}` });
    const form =
        waits &&
        h(
            'form',
            {
                class: 'result',
                onsubmit: e => {
                    e.preventDefault();
                    guard(answerCall)(call, result.value);
                },
            },
            result,
            h('button', { class: 'button small', text: 'Give this result' }),
        );
    return h(
        'div',
        { class: 'call' },
        h('h4', {}, h('bdi', { text: call.function.name })),
        h('pre', { text: shownArguments(call.function.arguments) }),
        form,
    );
}

const WHO = { system: 'System', user: 'You', assistant: 'Model', tool: 'Result' };
function messageCard(message) {
    return h(
        'article',
        { class: `message ${message.role}` },
        h('h3', { text: WHO[message.role] }),
        thinkingCard(message),
        message.content ? h('p', { class: 'said', text: message.content }) : null,
        ...(message.tool_calls ?? []).map(callCard),
    );
}

// While an answer comes only its card is made again; what a person has unfolded stays so.
function draw() {
    const list = $('chat-messages'),
        all = chat.writing ? [...chat.messages, chat.writing] : chat.messages,
        from = chat.writing && list.children.length === all.length ? all.length - 1 : 0,
        unfolded = list.children[from]?.querySelector('details')?.open;
    while (list.children.length > from) list.lastChild.remove();
    list.append(...all.slice(from).map(messageCard));
    const details = from ? list.lastChild.querySelector('details') : null;
    if (details && unfolded) details.open = true;
    list.scrollTop = list.scrollHeight;
    drawButtons();
}
const drawSoon = perFrame(draw);

function drawButtons() {
    const model = app.models.find(m => m.id === $('chat-model').value),
        waits = openCalls(chat.messages).length > 0;
    $('chat-send').disabled = !!chat.writing || waits || !model?.chat;
    $('chat-stop').disabled = !chat.writing;
    $('chat-tools-part').hidden = !model?.chat?.tools;
    $('chat-note').textContent = !model
        ? ''
        : !model.chat
          ? 'The chat template of this model is not known: see the server’s log.'
          : waits
            ? 'The model waits for the results of its calls.'
            : model.chat.tools
              ? `Calls: ${model.chat.calls ?? 'as text'}`
              : 'The chat template of this model takes no tools.';
}

// An answer to the messages so far. One that was stopped or broke off is kept as far as it came.
async function answer() {
    const model = app.models.find(m => m.id === $('chat-model').value),
        tools = model?.chat?.tools ? toolsOf($('chat-tools').value) : [],
        tokens = Number($('chat-tokens').value) || 512;
    chat.writing = { role: 'assistant', content: '' };
    chat.abort = new AbortController();
    draw();
    try {
        const body = { model: $('chat-model').value, messages: chat.messages, max_tokens: tokens };
        if (tools.length) body.tools = tools;
        await api.chat(
            body,
            event => {
                addDelta(chat.writing, event.choices?.[0]?.delta ?? {});
                drawSoon();
            },
            chat.abort.signal,
        );
    } catch (e) {
        if (e.name !== 'AbortError') throw e;
    } finally {
        const said = chat.writing;
        chat.writing = chat.abort = null;
        if (said.content || said.reasoning_content || said.tool_calls) chat.messages.push(said);
        draw();
    }
}

async function send() {
    const text = $('chat-prompt').value;
    if (chat.writing || !text.trim() || openCalls(chat.messages).length) return;
    const before = [...chat.messages];
    if (!chat.messages.length && $('chat-system').value.trim())
        chat.messages.push({ role: 'system', content: $('chat-system').value });
    chat.messages.push({ role: 'user', content: text });
    $('chat-prompt').value = '';
    try {
        await answer();
    } catch (e) {
        if (chat.messages.at(-1).role === 'user') {
            chat.messages = before; // nothing came: what was typed is not lost
            $('chat-prompt').value = text;
            draw();
        }
        throw e;
    }
}

async function answerCall(call, result) {
    chat.messages.push({ role: 'tool', tool_call_id: call.id, content: result });
    if (openCalls(chat.messages).length) draw();
    else await answer();
}

export function initChat() {
    $('chat-tools-example').addEventListener('click', () => {
        $('chat-tools').value = JSON.stringify(EXAMPLE, null, 1);
    });
    $('chat-composer').addEventListener('submit', e => {
        e.preventDefault();
        guard(send)();
    });
    $('chat-prompt').addEventListener('keydown', e => {
        if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
            e.preventDefault();
            guard(send)();
        }
    });
    $('chat-stop').addEventListener('click', () => chat.abort?.abort());
    $('chat-new').addEventListener('click', () => {
        chat.abort?.abort();
        chat.messages = [];
        draw();
        $('chat-prompt').focus();
    });
    $('chat-model').addEventListener('change', drawButtons);
    on('models', () => {
        fill($('chat-model'), ...app.models.map(m => h('option', { value: m.id, text: m.id })));
        drawButtons();
    });
}
