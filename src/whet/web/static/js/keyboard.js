// Keys. One table decides what a key does and what the help shows.

import * as actions from "./actions.js";
import { get, set } from "./store.js";

const FINE = 1; // pixels per arrow key
const COARSE = 10; // with Shift

const hasModel = () => Boolean(get().server?.model);

function draw() {
  if (get().mode === "draw" && !get().draft) actions.draftInMiddle();
  else actions.toggleDrawing();
}

function finish() {
  const { draft } = get();
  if (draft) actions.addObject(draft.box);
  else judgeSelected(true);
}

function judgeSelected(is_object) {
  const box = actions.selectedBox();
  if (!box) return false;
  if (box.judgement !== is_object) actions.judge(box, is_object); // the same key twice says the same, not the contrary
  return true;
}

function escape() {
  const { dialog, menu, draft, mode, sheet } = get();
  if (dialog || menu) set({ dialog: null, menu: null });
  else if (draft || mode === "draw") actions.cancelDraft();
  else if (get().selected) actions.select(null);
  else if (sheet) set({ sheet: false });
}

function blame() {
  const box = actions.selectedBox();
  if (box && hasModel()) actions.blame(box);
}

function lock() {
  const { image } = get();
  if (image) actions.setLocked(image.id, !image.is_locked);
}

function playOrPause() {
  const { server } = get();
  if (server?.video) actions.controlVideo(server.video.state === "playing" ? "pause" : "play");
}

// `keys` are values of KeyboardEvent.key in lower case; "ctrl+" also means the command key of a Mac.
export const KEYS = [
  { group: "Images", keys: ["d", "pagedown"], show: ["D"], text: "Next image", run: () => actions.step(1) },
  { group: "Images", keys: ["a", "pageup"], show: ["A"], text: "Previous image", run: () => actions.step(-1) },
  { group: "Images", keys: [" "], show: ["Space"], text: "All boxes are right: confirm, then next", run: actions.confirmImage },
  { group: "Images", keys: ["n"], show: ["N"], text: "All boxes that nobody judged are wrong: confirm, then next", run: actions.rejectRest },
  { group: "Images", keys: ["g"], show: ["G"], text: "Lock into the gold set, or unlock", run: lock },
  { group: "Images", keys: ["p"], show: ["P"], text: "Play or pause the video", run: playOrPause },
  { group: "Boxes", keys: ["s"], show: ["S"], text: "Select the next box", run: () => actions.selectNext(1) },
  { group: "Boxes", keys: ["shift+s"], show: ["Shift", "S"], text: "Select the previous box", run: () => actions.selectNext(-1) },
  { group: "Boxes", keys: ["enter", "r"], show: ["Enter"], text: "The box is right; learn a drawn box", run: finish },
  { group: "Boxes", keys: ["delete", "backspace", "x"], show: ["Delete"], text: "The box is wrong; remove a drawn box", run: actions.removeSelected },
  { group: "Boxes", keys: ["b"], show: ["B"], text: "Why is this box here? (blame)", run: blame },
  { group: "Draw", keys: ["w"], show: ["W"], text: "Draw a box; W again places one to move by keys", run: draw },
  { group: "Draw", keys: ["arrows"], show: ["←", "↑", "→", "↓"], text: "Move the box by 1 px, with Shift by 10 px" },
  { group: "Draw", keys: ["alt+arrows"], show: ["Alt", "→"], text: "Resize the box" },
  { group: "Draw", keys: ["escape"], show: ["Esc"], text: "Cancel, or close", run: escape },
  { group: "History", keys: ["ctrl+z"], show: ["Ctrl", "Z"], text: "Undo", run: actions.undo },
  { group: "History", keys: ["ctrl+shift+z", "ctrl+y"], show: ["Ctrl", "Shift", "Z"], text: "Redo", run: actions.redo },
  { group: "History", keys: ["ctrl+s"], show: ["Ctrl", "S"], text: "Save the detector", run: actions.saveModel },
  { group: "View", keys: ["1"], show: ["1"], text: "Panel: effect", run: () => actions.openPanel("effect") },
  { group: "View", keys: ["2"], show: ["2"], text: "Panel: history", run: () => actions.openPanel("history") },
  { group: "View", keys: ["3"], show: ["3"], text: "Panel: quality", run: () => actions.openPanel("quality") },
  { group: "View", keys: ["0"], show: ["0"], text: "Fit the image to the screen", run: () => set((state) => ({ fit: (state.fit ?? 0) + 1 })) },
  { group: "View", keys: ["?"], show: ["?"], text: "Show these keys", run: () => set({ dialog: "help" }) },
];

const ACTIONS = new Map(KEYS.flatMap(({ keys, run }) => (run ? keys.map((key) => [key, run]) : [])));
const ARROWS = { arrowleft: [-1, 0], arrowright: [1, 0], arrowup: [0, -1], arrowdown: [0, 1] };

export function listen() {
  window.addEventListener("keydown", onKey);
  window.addEventListener("click", releaseKeys);
}

/** After a click of the mouse on a button beside the image, Space confirms the image instead of clicking once more. */
function releaseKeys(event) {
  if (event.detail > 0) event.target.closest?.(".filmstrip button, .tabs button, .panel button, .action-bar button")?.blur();
}

function onKey(event) {
  if (event.isComposing || isTyping(event.target)) return;
  if (get().dialog && event.key !== "Escape") return;
  const key = event.key.toLowerCase();
  if (key in ARROWS) {
    const [x, y] = ARROWS[key];
    const by = event.shiftKey ? COARSE : FINE;
    if (!event.ctrlKey && actions.nudge(x * by, y * by, event.altKey)) event.preventDefault();
    return;
  }
  // A focused button keeps its own keys; boxes are no buttons of the browser and use ours.
  const isButton = event.target.closest?.("button, a, select, summary, [role=slider]");
  if (isButton && (key === "enter" || key === " ")) return;
  const run = ACTIONS.get(nameOf(event, key));
  if (!run) return;
  event.preventDefault();
  run();
}

function nameOf(event, key) {
  if (event.altKey) return "";
  const isNamed = key.length > 1 || /[a-z]/.test(key); // "?" already contains its Shift
  return (event.ctrlKey || event.metaKey ? "ctrl+" : "") + (event.shiftKey && isNamed ? "shift+" : "") + key;
}

const isTyping = (target) => target.closest?.("input:not([type=range]):not([type=checkbox]), textarea") != null;
