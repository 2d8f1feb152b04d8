// SPDX-License-Identifier: MIT
// The library in a worker of this page as a carrier (api.js): no server, and nothing leaves the browser. The worker runs
// one text at a time; texts that come meanwhile wait there.

import { ServerError, eventReader } from './events.js';

export async function start(engine, onProgress = () => {}) {
    const worker = new Worker(new URL('worker.js', import.meta.url), { type: 'module' }),
        waiting = new Map();
    let next = 0;

    worker.onmessage = ({ data }) => {
        if (data.progress !== undefined) onProgress(data.progress);
        const call = waiting.get(data.id);
        if (!call) return;
        if (data.events !== undefined) {
            call.onText?.(data.events);
            return;
        }
        waiting.delete(data.id);
        if (data.error) call.reject(data.aborted ? new DOMException(data.error, 'AbortError') : new ServerError(400, data.error, null));
        else call.resolve(data.result);
    };
    worker.onerror = e => {
        for (const call of waiting.values()) call.reject(new ServerError(0, `the model's worker failed: ${e.message ?? 'it cannot be loaded'}`, null));
        waiting.clear();
    };

    function ask(what, args, { onText, signal } = {}) {
        return new Promise((resolve, reject) => {
            const id = ++next;
            if (signal?.aborted) {
                reject(new DOMException('stopped', 'AbortError'));
                return;
            }
            waiting.set(id, { resolve, reject, onText });
            signal?.addEventListener('abort', () => worker.postMessage({ id, what: 'stop' }));
            worker.postMessage({ id, what, args });
        });
    }

    await ask('open', { engine: new URL(engine, document.baseURI).href });
    return {
        models: async () => (await ask('models')).data,
        tokenize: (body, { signal } = {}) => ask('tokenize', body, { signal }),
        attribution: (body, { signal } = {}) => ask('attribution', body, { signal }),
        recall: query => ask('recall', query),
        view: async (_, change) => ask('view', change),
        async observe(body, onEvent, signal) {
            const events = eventReader(onEvent);
            await ask('observe', body, { onText: events.feed, signal });
            if (events.wrong) throw events.wrong;
        },
    };
}
