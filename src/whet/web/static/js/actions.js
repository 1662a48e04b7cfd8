// What the user can do. Buttons, keys and touch call these functions.

import * as api from "./api.js";
import { shownBoxes, undecided } from "./boxes.js";
import { keyOf, isLargeEnough, moved, resized, rounded } from "./geometry.js";
import * as outbox from "./outbox.js";
import * as session from "./session.js";
import { get, set } from "./store.js";

const UNLIKELY = 0.1; // detections below this probability are mostly mistakes
const MOVE_PAUSE = 450; // milliseconds after the last arrow key until a moved box is learned

/** Why the detector cannot be corrected; null if it can. Without a detector, boxes are drawn to train one. */
export const cannotLearnReason = (server) => server?.model?.cannot_learn_reason ?? null;

function canLearn() {
  const reason = cannotLearnReason(get().server);
  if (reason) session.notify(`Corrections are disabled: ${reason}.`, "error");
  return !reason;
}

// Boxes.

export const boxes = () => shownBoxes(get().image, get().outbox);

export const selectedBox = () => boxes().find((box) => box.key === get().selected) ?? null;

export const select = (key) => set({ selected: key, has_card: true, blame: null });

/** Select the next (or former) box of the image. */
export function selectNext(step = 1) {
  const all = boxes();
  if (!all.length) return;
  const at = all.findIndex((box) => box.key === get().selected);
  select(all[at < 0 ? (step > 0 ? 0 : all.length - 1) : (at + step + all.length) % all.length].key);
}

/** Select the next detection that nobody has judged, so that right and wrong need no aiming. */
export function selectUndecided() {
  const { selected } = get();
  const [next] = undecided(boxes()).filter((box) => box.key !== selected);
  select(next?.key ?? null);
}

/** Label a box right or wrong; the same label again takes it back. */
export function judge(box, is_object) {
  const { image } = get();
  if (!image || !canLearn()) return;
  if (box.judgement === is_object && !box.is_pending) {
    takeBack(box);
    return;
  }
  label(image.id, box.box, is_object);
}

function label(image, box, is_object, replaces) {
  const mark = { kind: "label", image, box, is_object, replaces };
  outbox.send("POST", `/api/images/${image}/labels`, { boxes: [box], is_object, effect: false, ...(replaces && { replaces }) }, mark);
}

/** Unlearn the judgement of a box. */
export function takeBack(box) {
  const { image } = get();
  if (box.record_id != null) unlearn(box.record_id);
  else outbox.withdraw(image.id, box.box);
}

export function unlearn(record_id) {
  const mark = { kind: "unlearn", image: get().image?.id, record_id };
  outbox.send("DELETE", `/api/labels/${encodeURIComponent(record_id)}`, {}, mark);
}

/** Delete key: a detection is wrong, a drawn box is removed. */
export function removeSelected() {
  const { draft } = get();
  if (draft) return cancelDraft();
  const box = selectedBox();
  if (!box) return;
  if (box.kind === "detection" && box.judgement !== false && !isDrawn(box)) judge(box, false);
  else takeBack(box);
}

/** Whether a user drew the box, rather than judged a detection. */
export const isDrawn = (box) =>
  box.judgement === true && (box.kind === "object" || box.labels.some((label) => keyOf(label.box) !== box.key));

// Drawing.

export function toggleDrawing() {
  if (canLearn()) set((state) => ({ mode: state.mode === "draw" ? "select" : "draw", draft: null }));
}

/** A box in the middle of the view, to be moved by arrow keys and learned with Enter. */
export function draftInMiddle() {
  const { image } = get();
  if (!image || !canLearn()) return;
  const side = Math.round(Math.min(image.width, image.height) / 4);
  const [x, y] = [Math.round((image.width - side) / 2), Math.round((image.height - side) / 2)];
  set({ draft: { box: [x, y, x + side, y + side] }, mode: "draw", selected: null });
}

export const cancelDraft = () => set({ draft: null, mode: "select" });

/** Learn a drawn box as an object that was missed. */
export function addObject(box) {
  const { image, server, mode } = get();
  // Who starts from nothing draws one box after the other.
  set({ draft: null, mode: server.model ? "select" : mode });
  if (!image || !isLargeEnough(box) || !canLearn()) return;
  const drawn = rounded(box);
  label(image.id, drawn, true);
  set({ selected: keyOf(drawn), has_card: false, blame: null }); // a card would cover what is drawn next
}

let moving = null; // {box, timer}: a user's box that arrow keys move

/** Move (or resize) the draft or the selected user's box. Returns false if there is none. */
export function nudge(dx, dy, isResize) {
  const { image, draft } = get();
  if (!image) return false;
  const change = isResize ? resized : moved;
  if (draft) {
    set({ draft: { box: change(draft.box, dx, dy, image) } });
    return true;
  }
  const box = moving?.box ?? selectedBox();
  if (!box || !isMovable(box)) return false;
  clearTimeout(moving?.timer);
  const to = change(moving?.to ?? box.labels[0].box, dx, dy, image);
  moving = { box, to, image, timer: setTimeout(finishMoving, MOVE_PAUSE) };
  set({ moved: { key: box.key, box: to } });
  return true;
}

/** Whether one user labelled this an object: then its box may be moved. */
export const isMovable = (box) => box.judgement === true && box.labels.length === 1;

/** Show where the mouse moves a user's box to; `finishMoving` learns it. */
export function moveTo(box, to, image) {
  clearTimeout(moving?.timer);
  moving = { box, to, image, timer: null };
  set({ moved: { key: box.key, box: to } });
}

/** Leave the box where it was. */
export function cancelMoving() {
  clearTimeout(moving?.timer);
  moving = null;
  set({ moved: null });
}

/** Learn the moved box in place of the former one. */
export function finishMoving() {
  if (!moving) return;
  const { box, to, image, timer } = moving;
  clearTimeout(timer);
  moving = null;
  set({ moved: null });
  const [former] = box.labels;
  if (keyOf(to) === keyOf(former.box)) return;
  label(image.id, rounded(to), true, [former.record_id]);
  if (get().image?.id === image.id) set({ selected: keyOf(rounded(to)) });
}

// Images.

const position = () => get().rows.findIndex((row) => row.id === (get().opening ?? get().image?.id));

/** Whether an image comes before the open one: in the queue, the one that was open before it. */
export const hasPrevious = ({ rows, order, visited, image }) =>
  order === "queue" ? visited.length > 0 : rows.filter((row) => !row.is_missing).findIndex((row) => row.id === image?.id) > 0;

/** Open the next (or former) image of the filmstrip. In the queue, whose order changes, back is where one came from. */
export function step(by) {
  finishMoving();
  const { rows, order, visited } = get();
  if (by < 0 && order === "queue") {
    const former = visited.at(-1);
    if (former) session.openImage(former, null, visited.slice(0, -1));
    return;
  }
  let at = position() + by;
  while (rows[at]?.is_missing) at += by;
  const next = rows[at];
  if (next) session.openImage(next.id);
}

/**
 * Say that all shown detections are right, and go on to the next image that nobody has reviewed. Where some are very
 * unlikely, the first such image of a session is confirmed by saying so twice.
 */
export function confirmImage() {
  const unlikely = undecided(boxes()).filter((box) => box.probability != null && box.probability < UNLIKELY);
  if (unlikely.length && !get().knows_unlikely && canLearn()) set({ dialog: "unlikely", knows_unlikely: true });
  else finishImage(true);
}

/** Say that all shown detections that nobody has judged are wrong, and go on. */
export const rejectRest = () => finishImage(false);

function finishImage(is_object) {
  finishMoving();
  const { image, rows } = get();
  if (!image || !canLearn()) return;
  const mark = { kind: "confirm", image: image.id, is_object };
  outbox.send("POST", `/api/images/${image.id}/confirm`, { is_object, effect: false }, mark);
  set({ rows: rows.map((row) => (row.id === image.id ? { ...row, is_reviewed: true } : row)) });
  openNextUnreviewed();
}

function openNextUnreviewed() {
  const { rows, order } = get();
  const at = position();
  const rest = order === "queue" ? rows : [...rows.slice(at + 1), ...rows.slice(0, at)];
  const open = rest.filter((row) => !row.is_reviewed && !row.is_missing && row.id !== get().image?.id);
  const reviewed = new Set(order === "queue" ? rows.filter((row) => row.is_reviewed).map((row) => row.group) : []);
  const next = open.find((row) => !reviewed.has(row.group)) ?? open[0]; // near-duplicates of reviewed images come later
  if (next) session.openImage(next.id);
  else session.notify("All images are reviewed.");
}

/** The same for several images. */
export function finishImages(ids, is_object) {
  if (!canLearn()) return;
  outbox.send("POST", "/api/confirm", { images: ids, is_object, effect: false });
  set((state) => ({
    marked: new Set(),
    rows: state.rows.map((row) => (ids.includes(row.id) ? { ...row, is_reviewed: true } : row)),
  }));
  session.notify(`${ids.length} images confirmed.`);
}

export function setOrder(order) {
  set({ order });
  session.attempt(session.refreshRows);
}

export function toggleMarked(id) {
  const marked = new Set(get().marked);
  if (!marked.delete(id)) marked.add(id);
  set({ marked });
}

export function toggleGroup(group) {
  const expanded = new Set(get().expanded);
  if (!expanded.delete(group)) expanded.add(group);
  set({ expanded });
}

export function setLocked(id, is_locked) {
  outbox.send("POST", `/api/images/${id}/lock`, { is_locked });
  set((state) => ({
    image: state.image?.id === id ? { ...state.image, is_locked } : state.image,
    rows: state.rows.map((row) => (row.id === id ? { ...row, is_locked } : row)),
  }));
}

// History.

export const undo = () => outbox.send("POST", "/api/undo", {});
export const redo = () => outbox.send("POST", "/api/redo", {});
export const checkout = (target) => outbox.send("POST", "/api/checkout", target);
export const createBranch = (name, node) => outbox.send("POST", "/api/branches", { name, ...(node != null && { node }) });
export const deleteBranch = (name) => outbox.send("DELETE", `/api/branches/${encodeURIComponent(name)}`, {});

/** Ask which corrections made a box appear. */
export async function blame(box) {
  const { image } = get();
  set({ has_card: true, blame: { key: box.key, is_loading: true, causes: [] } });
  const body = { image: image.id, box: box.box };
  const found = await session.attempt(() => api.request("POST", "/api/blame", body));
  if (get().blame?.key === box.key) set({ blame: found ? { key: box.key, ...found } : null });
}

// Panels, threshold, model.

export function openPanel(panel) {
  set({ panel, sheet: true });
  session.refreshPanel();
}

export function setCompare(compare) {
  set({ compare });
  session.attempt(session.refreshEffect);
}

const putMinScore = api.newestOnly((signal, min_score) =>
  api.request("PUT", "/api/min_score", { min_score, request_id: api.randomId() }, { signal }),
);

/** Change the minimum score: a number, or the name of an operating point. The newest value wins. */
export async function setMinScore(min_score) {
  if (typeof min_score === "number") set({ min_score });
  await session.attempt(async () => {
    if ((await putMinScore(min_score)) === undefined) return;
    await Promise.all([session.refreshState(), session.refreshImage(), session.refreshPanel()]);
    session.attempt(session.refreshRows);
  });
}

export async function saveModel() {
  const saved = await session.attempt(() => api.request("POST", "/api/save", { request_id: api.randomId() }));
  if (!saved) return;
  session.notify(`Saved ${saved.name}`);
  session.attempt(session.refreshState);
}

/** Download a file of the server; a refusal is shown instead of a page that fails to load. */
export async function download(path) {
  await session.attempt(async () => {
    const answer = await fetch(path, { headers: { "X-Whet-Client": api.client() } }).catch((error) => {
      throw new api.Unreachable("The server does not answer.", { cause: error });
    });
    if (!answer.ok) throw new api.Refused(answer.status, await refusal(answer));
    const named = /filename\*=UTF-8''([^;]+)/.exec(answer.headers.get("Content-Disposition") ?? "");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = named ? decodeURIComponent(named[1]) : path.split("/").pop().split("?")[0];
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  });
}

const refusal = async (answer) => api.describe(await answer.text()) || answer.statusText;

// Training and video.

export async function train(class_name) {
  const body = { class_name, request_id: api.randomId() };
  const job = await session.attempt(() => api.request("POST", "/api/train", body));
  if (job) session.attempt(session.refreshState);
}

export async function cancelTraining() {
  await session.attempt(() => api.request("DELETE", "/api/train", { request_id: api.randomId() }));
  session.attempt(session.refreshState);
}

/** Play, pause or seek. Pausing opens the frame as an image, which can be corrected like any other. */
export async function controlVideo(action, more = {}) {
  const body = { action, ...more, request_id: api.randomId() };
  const video = await session.attempt(() => api.request("POST", "/api/video", body));
  if (!video) return;
  set((state) => ({ server: { ...state.server, video } }));
  if (video.image && video.state !== "playing") {
    await session.openImage(video.image);
    session.attempt(session.refreshRows);
  } else set({ view: "video" });
}
