// SPDX-License-Identifier: MIT
// One interface, two carriers: `palimpsa serve` over HTTP (server.js), or the library as WebAssembly in a worker of this
// page (local.js), where index.html names one. Both answer with the same objects and events.

import * as server from './server.js';

export { ServerError, eventCutter } from './events.js';
export { hasKey, setKey, whenKeyIsNeeded, request, get, post, remove } from './server.js';

let carrier = server;

// Finds the carrier; onProgress gets a share of 0 .. 1 while a local one is loaded.
export async function connect(onProgress) {
    const engine = document.querySelector('meta[name="palimpsa-engine"]')?.content;
    if (engine) carrier = await (await import('./local.js')).start(engine, onProgress);
}
export const hasServer = () => carrier === server;

export const models = () => carrier.models();
export const tokenize = (body, options) => carrier.tokenize(body, options);
export const observe = (body, onEvent, signal) => carrier.observe(body, onEvent, signal);
export const view = (id, change) => carrier.view(id, change); // what a running text shows from now on
export const attribution = (body, options) => carrier.attribution(body, options);
export const recall = query => carrier.recall(query);

// What only a server has: memories that are kept, runs, and chats.
export const memories = async () => (carrier.memories ? carrier.memories() : []);
export const runs = async () => (carrier.runs ? carrier.runs() : []);
export const { runRows, memory, chat } = server;
