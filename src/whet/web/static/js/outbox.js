// Corrections on their way to the server.
//
// At most one request is on its way. What the user does meanwhile waits, in order; a newer judgement of the same box
// replaces the one that waits. Each entry has a request id and stays in the session storage until the server has
// acknowledged it: neither a reload nor a restart of the server loses it, and the server learns it once.

import { randomId, request, Refused, Unreachable } from "./api.js";
import { keyOf } from "./geometry.js";
import { get, set } from "./store.js";

let isSending = false;
let onAnswer = () => {};
let onRefusal = () => {};
let onFullDisk = () => {};

const DISK_FULL = 507; // the status of a change that the server could not write: it may be sent again

/** Set what happens with answers: `answered(entry, answer, rest)`, `refused(entry, error)` and `diskFull(error)`. */
export function listen({ answered, refused, diskFull }) {
  onAnswer = answered;
  onRefusal = refused;
  onFullDisk = diskFull;
}

/**
 * Queue a request that changes the state. `mark` says what to show until the answer comes:
 * {kind: "label", image, box, is_object, replaces}, {kind: "unlearn", image, record_id} or {kind: "confirm", image, is_object}.
 */
export function send(method, path, body, mark = null) {
  const entry = { method, path, body: { ...body, request_id: randomId() }, mark, is_sent: false };
  keep([...get().outbox.filter((other) => !isReplaced(other, entry)), entry]);
  flush();
}

function isReplaced(older, newer) {
  if (older.is_sent || older.mark?.kind !== "label" || newer.mark?.kind !== "label") return false;
  return older.mark.image === newer.mark.image && keyOf(older.mark.box) === keyOf(newer.mark.box);
}

/** Take back an entry that was not sent yet; returns whether there was one. */
export function withdraw(image, box) {
  const waiting = get().outbox.filter(
    ({ is_sent, mark }) => !is_sent && mark?.kind === "label" && mark.image === image && keyOf(mark.box) === keyOf(box),
  );
  if (waiting.length) keep(get().outbox.filter((entry) => !waiting.includes(entry)));
  return waiting.length > 0;
}

/**
 * Send what waits, one request at a time. Called after every change, and when the connection is back. A lost connection
 * or a full disk stops it; what waits stays.
 */
export async function flush() {
  if (isSending) return;
  isSending = true;
  try {
    while (get().outbox.length) {
      const entry = { ...get().outbox[0], is_sent: true };
      keep([entry, ...get().outbox.slice(1)]);
      await deliver(entry);
    }
  } catch (error) {
    if (isDiskFull(error)) onFullDisk(error);
    else if (!(error instanceof Unreachable)) throw error;
  } finally {
    isSending = false;
  }
}

async function deliver(entry) {
  let answer;
  try {
    const { request_id } = entry.body;
    answer =
      entry.method === "DELETE"
        ? await request("DELETE", `${entry.path}?request_id=${request_id}&effect=false`)
        : await request(entry.method, entry.path, entry.body);
  } catch (error) {
    if (!(error instanceof Refused) || isDiskFull(error)) throw error;
    keep(get().outbox.slice(1));
    onRefusal(entry, error);
    return;
  }
  const rest = get().outbox.slice(1);
  store(rest);
  onAnswer(entry, answer, rest);
}

const isDiskFull = (error) => error instanceof Refused && error.status === DISK_FULL;

// The project is part of the key: another project may be served at the same address later.
const storageKey = () => `whet.outbox.${get().server?.project ?? ""}`;

function keep(outbox) {
  set({ outbox });
  store(outbox);
}

function store(outbox) {
  try {
    if (outbox.length) sessionStorage.setItem(storageKey(), JSON.stringify(outbox));
    else sessionStorage.removeItem(storageKey());
  } catch {
    // Private windows may refuse storage; corrections are then kept in memory only.
  }
}

/** Read what an earlier load of this page could not deliver. */
export function restore() {
  try {
    const outbox = JSON.parse(sessionStorage.getItem(storageKey()) ?? "[]");
    if (outbox.length) set({ outbox });
  } catch {
    sessionStorage.removeItem(storageKey());
  }
}
