// SPDX-License-Identifier: MIT
// What both carriers of the page share: errors with a sentence for people, and streams of server-sent events.

export class ServerError extends Error {
    constructor(status, message, param) {
        super(message);
        this.status = status;
        this.param = param;
    }
}

// Cuts a stream of server-sent events into the texts of their data. Feed it pieces of text as they come.
export function eventCutter(onData) {
    let rest = '';
    return piece => {
        rest += piece;
        let at = 0;
        for (;;) {
            const end = rest.indexOf('\n\n', at);
            if (end < 0) break;
            const data = rest
                .slice(at, end)
                .split('\n')
                .filter(l => l.startsWith('data:'))
                .map(l => l.slice(5).trimStart())
                .join('\n');
            if (data) onData(data);
            at = end + 2;
        }
        rest = rest.slice(at);
    };
}

// A cutter that hands on events as objects. `wrong` and `whole` say how the stream ended.
export function eventReader(onEvent) {
    const reader = { wrong: null, whole: false };
    reader.feed = eventCutter(data => {
        if (data === '[DONE]') {
            reader.whole = true;
            return;
        }
        const event = JSON.parse(data);
        if (event.error) reader.wrong = new ServerError(500, event.error.message, event.error.param);
        else onEvent(event);
    });
    return reader;
}
