// The event stream of the server: what others change appears by itself, and a lost connection is noticed and restored.

import { abandon, client, isOwn, whenUnreachable } from "./api.js";
import * as session from "./session.js";
import { get, set } from "./store.js";

const FIRST_RETRY = 500; // milliseconds
const LONGEST_RETRY = 5000;
const LONGEST_SILENCE = 30_000; // the server is heard of more often, however long its answers take
const CHECKED_EVERY = 1000;

let stream = null;
let delay = FIRST_RETRY;
let heard = 0; // when the server was last heard of, or asked for its stream

/** Connect, and connect again whenever the stream ends or a request is not answered. */
export function connect() {
  heard = performance.now();
  stream = new EventSource(`/api/events?client=${encodeURIComponent(client())}`);
  stream.onopen = () => {
    heard = performance.now();
    delay = FIRST_RETRY;
    const wasLost = get().connection === "lost";
    set({ connection: "online" });
    // The first load is under way already; after an interruption everything may have changed, and what was sent
    // before may never be answered.
    if (!wasLost) return;
    abandon();
    session.refreshAll();
  };
  stream.onmessage = (message) => {
    heard = performance.now();
    receive(JSON.parse(message.data));
  };
  stream.onerror = lose;
}

function lose() {
  set({ connection: "lost" });
  if (!stream) return; // not connected yet, or about to be again
  stream.close();
  stream = null;
  setTimeout(connect, delay);
  delay = Math.min(2 * delay, LONGEST_RETRY);
}

whenUnreachable(lose);

setInterval(() => {
  if (!stream || performance.now() - heard < LONGEST_SILENCE) return;
  lose();
  abandon();
}, CHECKED_EVERY);

function receive({ type, ...event }) {
  const { server } = get();
  const update = (entries) => server && set({ server: { ...get().server, ...entries } });
  switch (type) {
    case "state":
      // Without a state, the first load is under way.
      if (server && !isOwn(event.client) && ![server.revision, get().revision].includes(event.revision)) session.refreshAll();
      break;
    case "images":
      if (!isOwn(event.client)) session.attempt(() => Promise.all([session.refreshRows(), session.refreshState()]));
      break;
    case "rescan":
      update({ rescan: event });
      break;
    case "train":
      update({ job: { ...server?.job, ...event } });
      if (event.state !== "running") session.refreshAll();
      break;
    case "video":
      update({ video: { ...server?.video, ...event } });
      break;
  }
}
