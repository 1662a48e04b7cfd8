// Icons: strokes on a 16 x 16 grid, drawn in the colour of the text.

import { html } from "./html.js";

const PATHS = {
  right: "M3 8.6 6.4 12 13 4.6",
  wrong: "M4 4l8 8M12 4l-8 8",
  draw: "M2.5 5.5v-3h3M10.5 2.5h3v3M13.5 10.5v3h-3M5.5 13.5h-3v-3M8 5.6v4.8M5.6 8h4.8",
  undo: "M5.5 3 2.5 6l3 3M2.8 6H9a4 4 0 0 1 0 8H6.5",
  redo: "M10.5 3l3 3-3 3M13.2 6H7a4 4 0 0 0 0 8h2.5",
  previous: "M10 3 5 8l5 5",
  next: "M6 3l5 5-5 5",
  lock: "M4 7.5h8v6H4zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5",
  branch: "M4.5 5v6M4.5 11.2a1.6 1.6 0 1 0 .01 0M4.5 1.8a1.6 1.6 0 1 0 .01 0M11.5 3.3a1.6 1.6 0 1 0 .01 0M11.5 6.5c0 2.8-7 1.7-7 4.5",
  download: "M8 2v8M4.8 7 8 10.2 11.2 7M2.5 13.5h11",
  help: "M5.6 6a2.4 2.4 0 1 1 3.4 2.2c-.7.3-1 .8-1 1.6M8 12.6v.1",
  sun: "M8 5.2a2.8 2.8 0 1 0 .01 0M8 1.2v1.5M8 13.3v1.5M1.2 8h1.5M13.3 8h1.5M3.2 3.2l1 1M11.8 11.8l1 1M3.2 12.8l1-1M11.8 4.2l1-1",
  moon: "M13 9.6A5.6 5.6 0 0 1 6.4 3 5.6 5.6 0 1 0 13 9.6z",
  play: "M5 3.2v9.6L12.5 8z",
  pause: "M5.2 3.2v9.6M10.8 3.2v9.6",
  why: "M7 2.8a4.2 4.2 0 1 0 .01 0M10.2 10.2l3.4 3.4",
  stack: "M2.5 6 8 3l5.5 3L8 9zM2.5 9.3 8 12.3l5.5-3",
  effect: "M2.5 12.5h11M4 10V6M8 10V3M12 10V7.5",
  history: "M8 4.6V8l2.4 1.6M2.6 6.2A5.7 5.7 0 1 1 2.4 9M2.4 3.2v3.2h3.2",
  quality: "M2.5 2.5v11h11M4.5 5c4 0 5 1 8.5 6",
  images: "M2.5 3.5h11v9h-11zM2.5 10.5l3-3 2.5 2.5 2-2 3.5 3.5",
  video: "M2 4.5h8v7H2zM10 7.2l4-2.2v6l-4-2.2z",
  close: "M4 4l8 8M12 4l-8 8",
  warning: "M8 2.5 14 13H2zM8 6.4v3.2M8 11.4v.1",
  person: "M8 2.5a2.6 2.6 0 1 0 .01 0M2.8 13.5c.5-3 2.5-4.6 5.2-4.6s4.7 1.6 5.2 4.6",
  trash: "M3 4.5h10M6.2 4.5v-2h3.6v2M4.3 4.5l.6 9h6.2l.6-9",
  fit: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  offline: "M2 2l12 12M4.4 8.4a5 5 0 0 1 2-1.2M9.7 7.2a5 5 0 0 1 1.9 1.2M6.3 10.6a2.4 2.4 0 0 1 3.4 0M8 13v.1",
};

export function Icon({ name, label }) {
  const about = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return html`<svg class="icon" viewBox="0 0 16 16" ...${about}><path d=${PATHS[name]} /></svg>`;
}
