// The state of the page: one object, replaced as a whole at every change. Components read it with `useStore`.

import { useLayoutEffect, useRef, useState } from "./html.js";

let state = {
  connection: "connecting", // or "online", or "lost" until the server answers again
  server: null, // GET /api/state
  revision: null, // of the newest answer to a change of this page
  rows: [], // GET /api/images, in the order of the server
  total: 0,
  order: "queue",
  expanded: new Set(), // groups of near-duplicates that are unfolded
  marked: new Set(), // ids of images chosen for a batch
  image: null, // GET /api/images/{id} of the open image
  opening: null, // id of the image that is being opened
  selected: null, // key of the selected box
  has_card: false, // whether the card of the selected box is shown
  draft: null, // a box that is being drawn: {box}
  mode: "select", // or "draw"
  outbox: [], // corrections that the server has not acknowledged
  effect: null, // GET /api/effect
  compare: "last", // "last" change, "opened" (since the page was opened) or "trained"
  opened_at: null, // node at the time when the page was opened
  moved: null, // a box that the arrow keys move: {key, box}
  history: null, // GET /api/history
  curves: null, // GET /api/curves
  min_score: null, // while the slider moves
  blame: null, // {key, is_loading, causes}
  panel: "effect", // "effect", "history" or "quality"
  sheet: false, // whether the panel is open on a small screen
  view: "images", // or "video"
  dialog: null,
  visited: [], // ids of images that were open before, the newest last
  knows_unlikely: false, // whether the user was asked about confirming very unlikely boxes
  menu: null,
  notices: [],
};

const listeners = new Set();

export const get = () => state;

/** Change some entries; `change` is an object, or a function from the state to one. */
export function set(change) {
  const entries = typeof change === "function" ? change(state) : change;
  state = { ...state, ...entries };
  for (const listener of [...listeners]) listener();
}

export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Read a part of the state in a component, which renders again only if that part changes. */
export function useStore(select) {
  const [, render] = useState(0);
  const latest = useRef();
  latest.current = { select, value: select(state) };
  useLayoutEffect(() => {
    const check = () => {
      if (!isSame(latest.current.value, latest.current.select(state))) render((n) => n + 1);
    };
    check();
    return subscribe(check);
  }, []);
  return latest.current.value;
}

/** Equal, or objects whose entries are identical: selectors may return small objects. */
function isSame(one, other) {
  if (Object.is(one, other)) return true;
  if (!isPlain(one) || !isPlain(other)) return false;
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => Object.is(one[name], other[name]));
}

const isPlain = (value) => value !== null && typeof value === "object" && Object.getPrototypeOf(value) === Object.prototype;
