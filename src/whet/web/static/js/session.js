// Loading from the server, and keeping what is shown up to date.

import * as api from "./api.js";
import { followed } from "./boxes.js";
import * as outbox from "./outbox.js";
import { get, set } from "./store.js";

const ROOT = 0; // the first state of the history
const PAGE = 500; // rows of the filmstrip in one request

/** Show a message for some seconds; errors stay until they are closed. `retry` is what a button "Try again" calls. */
export function notify(text, kind = "info", retry = null) {
  const notice = { id: api.randomId(), text, kind, retry };
  set((state) => ({ notices: [...state.notices.filter((other) => other.text !== text).slice(-2), notice] }));
  if (kind === "info") setTimeout(() => dismiss(notice.id), 4000);
  return notice.id;
}

export const dismiss = (id) => set((state) => ({ notices: state.notices.filter((notice) => notice.id !== id) }));

/** Run a request of the user; a refusal is shown, a lost connection is handled by the event stream. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (error instanceof api.Refused) notify(error.message, "error");
    else if (!(error instanceof api.Unreachable)) throw error;
  }
}

const loadState = api.newestOnly((signal) => api.get("/api/state", { signal }));
const loadImage = api.newestOnly((signal, id) => api.get(`/api/images/${encodeURIComponent(id)}`, { signal }));
const loadEffect = api.newestOnly((signal, query) => api.get(`/api/effect?${query}`, { signal }));
const loadHistory = api.newestOnly((signal) => api.get("/api/history", { signal }));
const loadCurves = api.newestOnly((signal) => api.get("/api/curves", { signal }));
const loadRows = api.newestOnly(async (signal, order) => {
  const rows = [];
  let total;
  do {
    const page = await api.get(`/api/images?order=${order}&offset=${rows.length}&limit=${PAGE}`, { signal });
    if (!page.images.length) break;
    rows.push(...page.images);
    total = page.total;
  } while (rows.length < total);
  return rows;
});

export async function refreshState() {
  const server = await loadState();
  if (server) acceptState(server);
}

export function acceptState(server) {
  const isFirst = !get().server; // it names the project, and so what an earlier load of the page kept
  set({ server, opened_at: get().opened_at ?? server.node, min_score: null });
  if (isFirst) outbox.restore();
}

export async function refreshRows() {
  const { order } = get();
  const rows = await loadRows(order);
  if (rows) set({ rows, total: rows.length });
}

/** Load the open image again. */
export async function refreshImage() {
  const { image, opening } = get();
  const id = opening ?? image?.id;
  if (!id) return;
  const next = await loadImage(id);
  if (next) acceptImage(next);
}

/** Show an image of an answer, unless another one was opened meanwhile; its row in the filmstrip follows. */
function acceptImage(image) {
  set((state) => ({
    image: (state.opening ?? state.image?.id ?? image.id) === image.id ? image : state.image,
    selected: state.image?.id === image.id ? followed(state.selected, image, state.outbox) : state.selected,
    opening: state.opening === image.id ? null : state.opening,
    rows: state.rows.map((row) => (row.id === image.id ? updatedRow(row, image) : row)),
  }));
}

const updatedRow = (row, image) => ({
  ...row,
  n_detections: image.detections.length,
  is_reviewed: image.is_reviewed,
  is_locked: image.is_locked,
  n_disputed: image.labels.filter((label) => label.state === "disputed").length,
});

const MOST_VISITED = 100;

/** Open an image; `focus` is a box to select there. `visited` are the images that *Previous* leads to. */
export async function openImage(id, focus = null, visited = null) {
  const { image, opening } = get();
  const from = image && ![image.id, opening].includes(id) ? [image.id] : [];
  set({ visited: visited ?? [...get().visited, ...from].slice(-MOST_VISITED) });
  location.replace(`#${encodeURIComponent(id)}`);
  set({ view: "images", opening: id, selected: null, draft: null, blame: null, mode: "select", focus });
  if (image?.id === id) set({ opening: null });
  else await attempt(refreshImage);
  const { rows } = get();
  const at = rows.findIndex((row) => row.id === id);
  prefetch(rows.slice(at + 1, at + 3).map((row) => row.id));
}

const prefetched = new Map(); // images of the browser's cache, the newest last
const MOST_PREFETCHED = 8;

/** Load the pixels of the next images ahead, so that stepping shows them at once. */
export function prefetch(ids) {
  for (const id of ids) {
    if (prefetched.has(id)) continue;
    const image = new Image();
    image.src = `/api/images/${id}/file`;
    prefetched.set(id, image);
    if (prefetched.size > MOST_PREFETCHED) prefetched.delete(prefetched.keys().next().value);
  }
}

export const imageOfAddress = () => decodeURIComponent(location.hash.slice(1)) || null;

export async function refreshEffect() {
  const { server, compare, opened_at } = get();
  if (!server?.model) return;
  const query = new URLSearchParams();
  if (compare === "opened" && opened_at != null) query.set("from", opened_at);
  if (compare === "trained") query.set("from", ROOT);
  const effect = await loadEffect(query);
  if (effect) set({ effect });
}

export async function refreshHistory() {
  const history = await loadHistory();
  if (history) set({ history });
}

export async function refreshCurves() {
  if (!get().server?.model) return;
  const curves = await loadCurves();
  if (curves) set({ curves });
}

/** Load what the open panel shows. */
export function refreshPanel() {
  const { panel } = get();
  const load = { effect: refreshEffect, history: refreshHistory, quality: refreshCurves }[panel];
  return attempt(load);
}

/** Load everything that may have changed on the server. */
export async function refreshAll() {
  await attempt(async () => {
    await Promise.all([refreshState(), refreshImage(), refreshRows(), refreshPanel()]);
    const { image, opening } = get();
    if (!image && !opening) await openFirst();
  });
  outbox.flush();
}

/** Open the image that the address names, or the first one. */
async function openFirst() {
  const { rows, view } = get();
  const wanted = rows.find((row) => row.id === imageOfAddress()) ?? rows[0];
  if (wanted && view === "images") await openImage(wanted.id);
}

/** First load: the state first, because it names the project; then the images. A server that hangs is noticed by `connect`. */
export async function start(connect) {
  const state = attempt(refreshState);
  connect();
  await state;
  if (!get().server) return; // the server did not answer: everything is loaded when it does
  await attempt(async () => {
    if (get().server.video && !imageOfAddress()) set({ view: "video" });
    await refreshRows();
    await openFirst();
    await refreshPanel();
  });
  outbox.flush();
}

let isRefreshDue = false;

/** After a change: load the numbers around the image, once for several changes in a row. */
function refreshSoon() {
  if (isRefreshDue) return;
  isRefreshDue = true;
  setTimeout(() => {
    isRefreshDue = false;
    attempt(() => Promise.all([refreshState(), refreshPanel()]));
  }, 30);
}

let fullDisk = null; // the notice of a full disk, until a change is written again

outbox.listen({
  answered(entry, answer, rest) {
    dismiss(fullDisk);
    set({ outbox: rest });
    if (answer?.hint) notify(answer.hint);
    if (answer?.project) acceptState(answer);
    if (answer?.branches) set({ history: answer });
    const image = answer?.detections ? answer : answer?.image;
    if (image) acceptImage(image);
    else if (!rest.length) attempt(() => Promise.all([refreshImage(), refreshRows()]));
    if (image && entry.mark?.kind === "confirm" && get().order === "queue") attempt(refreshRows); // not before it is known
    set((state) => ({ revision: answer?.revision ?? state.revision }));
    refreshSoon();
  },
  refused(entry, error) {
    notify(error.message, "error");
    refreshAll();
  },
  diskFull(error) {
    fullDisk = notify(`${error.message}. Your changes wait in this page.`, "error", outbox.flush);
  },
});
