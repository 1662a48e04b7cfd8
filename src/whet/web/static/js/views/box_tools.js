// What can be said about the selected box: beside the box on large screens, as large buttons on small ones.

import * as actions from "../actions.js";
import { classNameOf, shownBoxes, undecided } from "../boxes.js";
import { ago, number, probability } from "../format.js";
import { authorOf } from "../authors.js";
import { clamp } from "../geometry.js";
import { classes, html } from "../html.js";
import { Icon } from "../icons.js";
import * as session from "../session.js";
import { set, useStore } from "../store.js";

const WIDTH = 264; // CSS pixels, as in stage.css

/** The card beside the selected box. */
export function BoxTools({ box, view, size }) {
  const blame = useStore((state) => (state.blame?.key === box.key ? state.blame : null));
  const left = (box.box[0] - view.x) * view.scale;
  const right = (box.box[2] - view.x) * view.scale;
  const top = (box.box[1] - view.y) * view.scale;
  const x = right + 10 + WIDTH <= size.width ? right + 10 : left - 10 - WIDTH >= 0 ? left - 10 - WIDTH : left;
  const [below, above] = [clamp(top, 8, size.height - 8), clamp((box.box[3] - view.y) * view.scale, 8, size.height - 8)];
  const isLow = below > size.height / 2; // a long card grows into the picture, not out of it
  const place = {
    left: `${clamp(x, 8, Math.max(8, size.width - WIDTH - 8))}px`,
    ...(isLow ? { top: `${above}px`, transform: "translateY(-100%)", maxHeight: `${above - 8}px` } : { top: `${below}px`, maxHeight: `${size.height - below - 8}px` }),
  };
  return html`
    <aside class="tools" style=${place} aria-label="Selected box">
      <${Summary} box=${box} />
      <${Judge} box=${box} />
      ${box.state === "disputed" && html`<${Dispute} labels=${box.labels} />`}
      ${box.state === "unsatisfied" && html`<p class="hint is-bad">This correction does not hold: another one contradicts it.</p>`}
      ${blame ? html`<${Blame} blame=${blame} />` : html`<${Why} box=${box} />`}
    </aside>
  `;
}

function Summary({ box }) {
  const className = useStore((state) => classNameOf(state.server));
  const word = {
    detection: box.class_name ?? className,
    suppressed: "Not detected any more",
    object: "Object, not detected",
  }[box.kind];
  return html`
    <p class="tools-title">
      <strong>${box.kind === "object" && box.is_pending ? "Learning…" : word}</strong>
      ${box.probability != null && html`<span>${probability(box.probability)}</span>`}
      ${box.score != null && html`<span class="faint">score ${number(box.score, 1)}</span>`}
    </p>
  `;
}

/** Whether the user drew the box: then it is neither right nor wrong, and can be removed. */
const isOwn = (box) => actions.isDrawn(box) && box.labels.every((label) => authorOf(label.author) === "you");

/** Right and wrong: two buttons that also show what was said. */
export function Judge({ box, isLarge = false }) {
  const reason = useStore((state) => actions.cannotLearnReason(state.server));
  const button = (is_object, icon, text) => html`
    <button
      class=${classes("judge", is_object ? "is-right" : "is-wrong", box?.judgement === is_object && "is-on")}
      disabled=${!box || reason}
      aria-pressed=${box?.judgement === is_object ? "true" : "false"}
      title=${reason ?? (is_object ? "Right (Enter)" : "Wrong (Delete)")}
      onClick=${() => decide(box, is_object, isLarge)}
    >
      <${Icon} name=${icon} />${text}
    </button>
  `;
  if (box && isOwn(box)) {
    return html`
      <div class=${classes("judges", isLarge && "is-large")}>
        <button class="judge is-wrong" title=${reason ?? "Remove this box (Delete)"} disabled=${reason} onClick=${() => actions.takeBack(box)}><${Icon} name="trash" />Remove this box</button>
      </div>
    `;
  }
  return html`<div class=${classes("judges", isLarge && "is-large")}>${button(true, "right", "Right")}${button(false, "wrong", "Wrong")}</div>`;
}

function decide(box, is_object, isLarge) {
  actions.judge(box, is_object);
  if (isLarge) actions.selectUndecided(); // the next one, so that a phone needs no aiming
  else set({ has_card: false }); // it would cover the next box
}

function Dispute({ labels }) {
  return html`
    <div class="dispute" role="alert">
      <p><${Icon} name="warning" /> Two labels disagree about this box. Remove one.</p>
      ${labels.map((label) => html`
        <div class="row" key=${label.record_id}>
          <span class=${label.is_object ? "is-right" : "is-wrong"}>${label.is_object ? "Right" : "Wrong"}</span>
          <span class="faint grow">${[authorOf(label.author), ago(label.time)].filter(Boolean).join(" · ")}</span>
          <button class="quiet" onClick=${() => actions.unlearn(label.record_id)}>Remove</button>
        </div>
      `)}
    </div>
  `;
}

function Why({ box }) {
  const hasCorrections = useStore((state) => Boolean(state.server?.model && state.server.n_corrections));
  const isLabelled = box.judgement !== null && box.record_id != null;
  return html`
    <div class="tools-more">
      ${hasCorrections && html`
        <button class="quiet" onClick=${() => actions.blame(box)} title="Which correction made this box appear or go? (B)">
          <${Icon} name="why" />Why?
        </button>
      `}
      ${isLabelled && !isOwn(box) && html`
        <button class="quiet" onClick=${() => actions.takeBack(box)} title="As if nobody had judged this box">
          <${Icon} name="undo" />Take back
        </button>
      `}
    </div>
  `;
}

/** Which corrections made the box appear, found by unlearning each of them. */
function Blame({ blame }) {
  if (blame.is_loading) return html`<p class="hint" role="status">Unlearning each correction in turn…</p>`;
  if (!blame.causes.length) return html`<p class="hint">No correction decides this box. It comes from the detector as trained.</p>`;
  const isDecided = blame.causes.some((cause) => (cause.score_without == null) !== (blame.box_score == null));
  const found = isDecided ? "Decided by exact unlearning:" : "The detector as trained finds this box. Corrections that change its score:";
  return html`
    <div class="blame">
      <p class="hint">${blame.together ? "Only together do these corrections decide this box:" : found}</p>
      ${blame.causes.slice(0, 5).map((cause) => html`<${Cause} cause=${cause} key=${cause.record_id} />`)}
    </div>
  `;
}

function Cause({ cause }) {
  const words = cause.is_object ? "Object" : "False positive";
  const without = cause.score_without == null ? "not detected" : `score ${number(cause.score_without, 1)}`;
  return html`
    <div class="row">
      <button class="link grow" onClick=${() => session.openImage(cause.image, cause.box)}>
        ${words} in ${cause.name}<br /><span class="faint">without it: ${without}</span>
      </button>
      <button class="quiet" onClick=${() => actions.unlearn(cause.record_id)} title="Unlearn this correction">Unlearn</button>
    </div>
  `;
}

/** Large buttons under the image on small screens: the selected detection, or the next that nobody has judged. */
export function TouchBar() {
  const { selected, image, outbox, mode, reason } = useStore(({ selected, image, outbox, mode, server }) => ({
    selected,
    image,
    outbox,
    mode,
    reason: actions.cannotLearnReason(server),
  }));
  const boxes = shownBoxes(image, outbox);
  const box = boxes.find((one) => one.key === selected) ?? null;
  const open = undecided(boxes).length;
  const begin = () => actions.selectUndecided();
  if (mode === "draw") {
    return html`
      <div class="touch-bar">
        <p>Draw a box around the missed object.</p>
        <button class="large" onClick=${() => set({ mode: "select" })}>Done</button>
      </div>
    `;
  }
  return html`
    <div class="touch-bar">
      ${box
        ? html`<${Judge} box=${box} isLarge />`
        : html`
            <div class="judges is-large of-three">
              <button class="judge" disabled=${!open} onClick=${begin}>
                ${open ? `Judge ${open}` : "All judged"}
              </button>
              <button class="judge is-wrong" disabled=${!open || reason} onClick=${actions.rejectRest}><${Icon} name="wrong" />Reject</button>
              <button class="judge is-right" disabled=${!image || reason} onClick=${actions.confirmImage}><${Icon} name="right" />Confirm</button>
            </div>
          `}
    </div>
  `;
}
