// SPDX-License-Identifier: Apache-2.0 OR MIT
"use strict";
// Server-sent events by fetch: EventSource cannot send a header, and the token must not be in a URL.

// The controller sends every second.
const SILENCE_MS = 15000;
const RETRY_MS = [500, 1000, 2000, 5000, 10000];
const FULL_MS = 30000;

async function readEvents(body, onText, onEvent) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    onText();
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const [, kind, data] = /^event: (\w+)\ndata: (.*)$/.exec(part);
      onEvent(kind, JSON.parse(data));
    }
  }
}

// Calls onEvent(kind, document), and onState("connected" | "lost" | "full" | "refused", text); connects again until
// refused. Returns a function that ends it.
function follow(path, token, onEvent, onState) {
  let isOver = false;
  let abort = new AbortController();
  // Since it was last connected.
  let failures = 0;

  async function once() {
    let timer = 0;
    const alive = () => { clearTimeout(timer); timer = setTimeout(() => abort.abort(), SILENCE_MS); };
    abort = new AbortController();
    alive();
    try {
      const headers = { Authorization: `Bearer ${token}` };
      const response = await fetch(path, { headers, cache: "no-store", credentials: "omit", signal: abort.signal });
      if (response.ok) {
        failures = 0;
        onState("connected", "");
        await readEvents(response.body, alive, onEvent);
        return ["lost", "it has ended"];
      }
      const said = (await response.json()).error;
      return [{ 401: "refused", 403: "refused", 503: "full" }[response.status] || "lost", said];
    } finally {
      clearTimeout(timer);
    }
  }

  (async () => {
    while (!isOver) {
      let outcome;
      try {
        outcome = await once();
      } catch (error) {
        outcome = ["lost", error.name === "AbortError" ? "it is silent" : String(error.message)];
      }
      if (isOver) return;
      const [state, said] = outcome;
      onState(state, said);
      if (state === "refused") return;
      const wait = state === "full" ? FULL_MS : RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)];
      // Many pages shall not come back at the same moment.
      await new Promise((next) => setTimeout(next, wait * (0.75 + Math.random() / 2)));
    }
  })();
  return () => { isOver = true; abort.abort(); };
}
