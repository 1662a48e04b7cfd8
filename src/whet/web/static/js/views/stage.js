// The large image with its boxes: one SVG in pixels of the image. Its view box is the visible part.

import * as actions from "../actions.js";
import { classNameOf, describeBox, nearestBox, shownBoxes } from "../boxes.js";
import { area, between, clamp, height, isLargeEnough, moved, overlap, stretched, width } from "../geometry.js";
import { classes, html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { probability } from "../format.js";
import { get, set, useStore } from "../store.js";
import { BoxTools } from "./box_tools.js";

const DRAG = 4; // screen pixels that tell a drag from a click
const SHORT = 8; // screen pixels of a side: shorter boxes are clicks of an unsteady hand
const GRIP = 7; // screen pixels around the edge of a drawn box where it is resized
const MAX_ZOOM = 16; // screen pixels per pixel of the image
const FOCUS_OVERLAP = 0.4; // a box of a list means the shown box that overlaps it at least so much

export function Stage() {
  const { image, opening } = useStore(({ image, opening }) => ({ image, opening }));
  const stage = useRef();
  const size = useSize(stage);
  const [view, setView] = useView(image, size);
  return html`
    <div class="stage" ref=${stage} data-opening=${opening ?? ""} aria-busy=${String(Boolean(opening))}>
      ${image && view
        ? html`<${Picture} image=${image} size=${size} view=${view} setView=${setView} />`
        : html`<${Placeholder} />`}
    </div>
  `;
}

function Placeholder() {
  const { total, is_loading } = useStore((state) => ({ total: state.total, is_loading: !state.server }));
  if (is_loading) return html`<p class="placeholder">Loading…</p>`;
  return html`<p class="placeholder">${total ? "Choose an image." : "No images. Start whet serve with a directory of images or a video."}</p>`;
}

/** The size of an element in CSS pixels, or null before the first layout. */
function useSize(ref) {
  const [size, setSize] = useState(null);
  useLayoutEffect(() => {
    const measure = () => {
      const { clientWidth, clientHeight } = ref.current;
      setSize({ width: clientWidth, height: clientHeight });
    };
    const observer = new ResizeObserver(measure);
    observer.observe(ref.current);
    measure();
    return () => observer.disconnect();
  }, []);
  return size;
}

/** The visible part {x, y, scale}: fitted when another image is opened, then moved by the user. */
function useView(image, size) {
  const fitCount = useStore((state) => state.fit);
  const [view, setView] = useState(null);
  useLayoutEffect(() => {
    if (image && size?.width) setView(fitted(image, size));
  }, [image?.id, size?.width, size?.height, fitCount]);
  return [view, setView];
}

function fitted(image, size) {
  const scale = Math.min((size.width - 16) / image.width, (size.height - 16) / image.height, MAX_ZOOM);
  return { scale, x: (image.width - size.width / scale) / 2, y: (image.height - size.height / scale) / 2, is_fit: true };
}

function Picture({ image, size, view, setView }) {
  const svg = useRef();
  const pointers = usePointers(svg, image, size, view, setView, () => boxes);
  const state = useStore(({ selected, has_card, draft, mode, moved, outbox, effect, server, focus }) => ({ selected, has_card, draft, mode, moved, outbox, effect, server, focus }));
  // Small boxes lie above large ones, so that each can be clicked.
  const boxes = shownBoxes(image, state.outbox).sort((one, other) => area(other.box) - area(one.box));
  useFocus(image, boxes, state.focus);
  const chosen = boxes.find((box) => box.key === state.selected);
  const className = classNameOf(state.server);
  const parts = [size.width / view.scale, size.height / view.scale];
  return html`
    <svg
      ref=${svg}
      class=${classes("picture", state.mode === "draw" && "is-drawing", view.scale > 3 && "is-enlarged")}
      viewBox=${[view.x, view.y, ...parts].join(" ")}
      width=${size.width}
      height=${size.height}
      role="group"
      aria-label=${`${image.name}: ${boxes.length} boxes`}
      ...${pointers.handlers}
    >
      <image href=${`/api/images/${image.id}/file`} width=${image.width} height=${image.height} preserveAspectRatio="none" />
      <${Ghosts} effect=${state.effect} image=${image} />
      ${boxes.map((box) => html`
        <${Box}
          key=${box.key}
          box=${box}
          at=${state.moved?.key === box.key ? state.moved.box : box.box}
          scale=${view.scale}
          className=${className}
          isSelected=${box.key === state.selected}
          canMove=${canMove(box, state.selected)}
        />
      `)}
      ${(pointers.drawn || state.draft) && html`<${Draft} box=${pointers.drawn ?? state.draft.box} scale=${view.scale} />`}
    </svg>
    ${chosen && state.has_card && !pointers.drawn && html`<${BoxTools} box=${chosen} view=${view} size=${size} />`}
  `;
}

/** Select the box that a list pointed to, once its image is shown. */
function useFocus(image, boxes, focus) {
  useEffect(() => {
    if (!focus || get().opening) return;
    set({ focus: null, has_card: false, selected: nearestBox(boxes, focus, FOCUS_OVERLAP)?.key ?? null });
  }, [image.id, focus]);
}

function Box({ box, at, scale, className, isSelected, canMove }) {
  const group = useRef();
  const name = classes(
    "box",
    `is-${box.kind}`,
    box.judgement === true && "is-right",
    box.judgement === false && "is-wrong",
    box.state !== "holds" && `is-${box.state}`,
    box.is_pending && "is-pending",
    isSelected && "is-selected",
  );
  const choose = () => get().selected !== box.key && actions.select(box.key);
  return html`
    <g
      ref=${group}
      class=${name}
      role="button"
      tabindex="0"
      aria-pressed=${isSelected ? "true" : "false"}
      aria-label=${describeBox(box, className)}
      data-key=${box.key}
      data-kind=${box.kind}
      onFocus=${choose}
    >
      <rect class="shade" x=${at[0]} y=${at[1]} width=${width(at)} height=${height(at)} />
      <rect class="edge" x=${at[0]} y=${at[1]} width=${width(at)} height=${height(at)} rx=${2 / scale} />
      <${Tag} box=${box} at=${at} scale=${scale} />
      ${isSelected && canMove && html`<${Corners} box=${at} scale=${scale} />`}
    </g>
  `;
}

/** Whether the mouse moves a box: what a user drew, or a confirmed detection that is selected. */
const canMove = (box, selected) => actions.isMovable(box) && !box.is_pending && (actions.isDrawn(box) || box.key === selected);

function Corners({ box, scale }) {
  const corners = [[box[0], box[1]], [box[2], box[1]], [box[0], box[3]], [box[2], box[3]]];
  return corners.map(([x, y]) => html`<circle class="corner" cx=${x} cy=${y} r=${4 / scale} />`);
}

const GLYPHS = { true: "✓", false: "✗", null: "" };

/** Probability and judgement above the box, in the same size at every zoom. */
function Tag({ box, at, scale }) {
  const text = [GLYPHS[box.judgement], box.probability == null ? "" : probability(box.probability), box.state === "disputed" ? "⚠" : ""];
  const label = text.filter(Boolean).join(" ");
  if (!label) return null;
  const unit = 1 / scale;
  const wide = (label.length * 7.5 + 9) * unit;
  const y = at[1] >= 20 * unit ? at[1] - 19 * unit : at[1] + 2 * unit;
  return html`
    <g class="tag" transform=${`translate(${at[0]} ${y})`}>
      <rect width=${wide} height=${17 * unit} rx=${4 * unit} />
      <text x=${5 * unit} y=${12.4 * unit} font-size=${11.5 * unit}>${label}</text>
    </g>
  `;
}

function Draft({ box, scale }) {
  return html`
    <g class=${classes("draft", !isLargeEnough(box) && "is-too-small")}>
      <rect class="edge" x=${box[0]} y=${box[1]} width=${width(box)} height=${height(box)} />
      <${Corners} box=${box} scale=${scale} />
    </g>
  `;
}

/** Boxes of this image that the compared change took away. */
function Ghosts({ effect, image }) {
  const lost = (effect?.changes ?? []).filter((change) => change.image === image.id && change.kind === "lost");
  const labelled = (box) => image.labels.some((label) => overlap(label.box, box) > 0.5);
  return lost
    .filter(({ box }) => !labelled(box))
    .map(({ box }) => html`
      <rect class="ghost" x=${box[0]} y=${box[1]} width=${width(box)} height=${height(box)}>
        <title>Detected before the last change</title>
      </rect>
    `);
}

/**
 * Mouse, pen and touch: a click selects, a drag draws (with touch only in drawing mode), or moves or resizes a box that
 * a user drew; the wheel and two fingers zoom, the middle button or one finger move the enlarged image.
 */
function usePointers(svg, image, size, view, setView, shown) {
  const [drawn, setDrawn] = useState(null);
  const live = useRef({ active: new Map() });
  Object.assign(live.current, { image, size, view, setView });

  useEffect(() => {
    const onWheel = (event) => {
      event.preventDefault();
      zoomAt(live.current, at(svg, event), Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)));
    };
    // Preact listens passively to wheels; only an active listener may prevent scrolling.
    svg.current.addEventListener("wheel", onWheel, { passive: false });
    return () => svg.current?.removeEventListener("wheel", onWheel);
  }, []);

  const inImage = (point) => {
    const { view } = live.current;
    return [view.x + point[0] / view.scale, view.y + point[1] / view.scale];
  };

  const handlers = {
    onPointerDown(event) {
      const state = live.current;
      state.active.set(event.pointerId, at(svg, event));
      if (state.active.size > 1) {
        if (state.gesture === "edit") actions.cancelMoving();
        state.gesture = "pinch";
        setDrawn(null);
        return;
      }
      if (event.button > 1) return;
      svg.current.setPointerCapture(event.pointerId);
      const canDraw = event.pointerType !== "touch" || get().mode === "draw";
      state.start = at(svg, event);
      state.grip = event.button === 0 && get().mode !== "draw" ? gripAt(shown(), inImage(state.start), state.view.scale) : null;
      state.gesture = event.button === 1 ? "move" : canDraw || state.grip ? "press" : "touch";
      state.target = event.target.closest("[data-key]")?.dataset.key ?? null;
      if (event.button === 1) event.preventDefault();
    },
    onPointerMove(event) {
      const state = live.current;
      const former = state.active.get(event.pointerId);
      const point = at(svg, event);
      if (!former) {
        svg.current.style.cursor = get().mode === "draw" ? "" : cursorOf(gripAt(shown(), inImage(point), state.view.scale));
        return;
      }
      state.active.set(event.pointerId, point);
      if (state.gesture === "pinch") return pinch(state, event.pointerId, former, point);
      const far = Math.hypot(point[0] - state.start[0], point[1] - state.start[1]) > DRAG;
      if (state.gesture === "press" && far) state.gesture = state.grip ? "edit" : "draw";
      if (state.gesture === "touch" && far) state.gesture = "move";
      if (state.gesture === "draw") setDrawn(between(inImage(state.start), inImage(point), image));
      if (state.gesture === "edit" && !isStillThere(state.grip)) state.gesture = null; // a key opened another image
      if (state.gesture === "edit") {
        const [dx, dy] = [0, 1].map((axis) => (point[axis] - state.start[axis]) / state.view.scale);
        actions.moveTo(state.grip.box, edited(state.grip, dx, dy, state.image), state.image);
      }
      if (state.gesture === "move") shift(state, point[0] - former[0], point[1] - former[1]);
    },
    onPointerUp(event) {
      const state = live.current;
      const point = at(svg, event);
      state.active.delete(event.pointerId);
      if (state.active.size) return;
      const { gesture } = state;
      state.gesture = null;
      if (gesture === "draw") {
        setDrawn(null);
        const box = between(inImage(state.start), inImage(point), image);
        if (Math.max(width(box), height(box)) * state.view.scale >= SHORT) actions.addObject(box);
        else actions.select(state.target);
      } else if (gesture === "edit") {
        actions.finishMoving();
      } else if (gesture === "press" || gesture === "touch") {
        actions.finishMoving();
        actions.select(state.target && nextBelow(event, state.target));
      }
    },
    onPointerCancel(event) {
      live.current.active.delete(event.pointerId);
      if (live.current.gesture === "edit") actions.cancelMoving();
      live.current.gesture = null;
      setDrawn(null);
    },
  };
  return { handlers, drawn };
}

/**
 * What a press at a point would change: {box, from, sides}, with the sides that move by dx and dy; null for nothing.
 * Small boxes come first.
 */
function gripAt(boxes, [x, y], scale) {
  const { selected } = get();
  const near = GRIP / scale;
  const movable = boxes.filter((box) => canMove(box, selected)).sort((one, other) => area(one.box) - area(other.box));
  for (const box of movable) {
    const from = box.labels[0].box;
    if (x < from[0] - near || x > from[2] + near || y < from[1] - near || y > from[3] + near) continue;
    const isNear = [x - from[0], y - from[1], x - from[2], y - from[3]].map((distance) => Math.abs(distance) <= near);
    if (isNear[0] && isNear[2]) isNear[x < (from[0] + from[2]) / 2 ? 2 : 0] = false;
    if (isNear[1] && isNear[3]) isNear[y < (from[1] + from[3]) / 2 ? 3 : 1] = false;
    return { box, from, sides: isNear.map(Number) };
  }
  return null;
}

/** Whether the label that is moved is one of the open image. */
const isStillThere = ({ box }) => get().image?.labels.some((label) => label.record_id === box.labels[0].record_id) ?? false;

const edited = ({ from, sides }, dx, dy, image) =>
  sides.some(Boolean) ? stretched(from, sides, dx, dy, image) : moved(from, dx, dy, image);

function cursorOf(grip) {
  if (!grip) return "";
  const [left, up, right, down] = grip.sides;
  if ((left && up) || (right && down)) return "nwse-resize";
  if ((right && up) || (left && down)) return "nesw-resize";
  if (left || right) return "ew-resize";
  return up || down ? "ns-resize" : "move";
}

/** The box that a click means: a further click at a selected box goes on to the one below it. */
function nextBelow(event, target) {
  const { selected } = get();
  if (selected !== target) return target;
  const keys = document
    .elementsFromPoint(event.clientX, event.clientY)
    .map((element) => element.closest("[data-key]")?.dataset.key)
    .filter(Boolean);
  const below = [...new Set(keys)];
  return below[(below.indexOf(selected) + 1) % below.length] ?? target;
}

function at(svg, event) {
  const frame = svg.current.getBoundingClientRect();
  return [event.clientX - frame.left, event.clientY - frame.top];
}

function zoomAt({ image, size, view, setView }, [px, py], factor) {
  const least = fitted(image, size).scale;
  const scale = clamp(view.scale * factor, Math.min(least, view.scale), Math.max(MAX_ZOOM, least));
  if (scale <= least * 1.001) return setView(fitted(image, size));
  const next = { scale, x: view.x + px / view.scale - px / scale, y: view.y + py / view.scale - py / scale };
  setView(kept(next, image, size));
}

function shift({ image, size, view, setView }, dx, dy) {
  if (view.is_fit) return;
  setView(kept({ ...view, x: view.x - dx / view.scale, y: view.y - dy / view.scale }, image, size));
}

function pinch(state, id, former, point) {
  const [other] = [...state.active].filter(([key]) => key !== id).map(([, position]) => position);
  if (!other) return;
  const distance = (one) => Math.hypot(one[0] - other[0], one[1] - other[1]) || 1;
  zoomAt(state, [(point[0] + other[0]) / 2, (point[1] + other[1]) / 2], distance(point) / distance(former));
}

/** Keep a part of the image in the middle of the screen. */
function kept(view, image, size) {
  const half = [size.width / view.scale / 2, size.height / view.scale / 2];
  return {
    scale: view.scale,
    x: clamp(view.x, -half[0], image.width - half[0]),
    y: clamp(view.y, -half[1], image.height - half[1]),
  };
}

