// The bar under the image: previous, next, confirm, draw, lock.

import * as actions from "../actions.js";
import { shownBoxes, undecided } from "../boxes.js";
import { classes, html } from "../html.js";
import { Icon } from "../icons.js";
import { set, useStore } from "../store.js";

export function ActionBar() {
  const { image, mode, rows, server, outbox, order, visited } = useStore(({ image, mode, rows, server, outbox, order, visited }) => ({ image, mode, rows, server, outbox, order, visited }));
  const video = server?.video;
  const reason = actions.cannotLearnReason(server);
  const present = rows.filter((row) => !row.is_missing);
  const at = present.findIndex((row) => row.id === image?.id);
  const open = undecided(shownBoxes(image, outbox)).length;
  const isFrame = video?.image && video.image === image?.id;
  return html`
    <div class="action-bar" role="toolbar" aria-label="Image">
      <button class="icon-button" aria-label="Previous image" title="Previous image (A)" disabled=${!actions.hasPrevious({ rows, order, visited, image })} onClick=${() => actions.step(-1)}><${Icon} name="previous" /></button>
      <span class="image-name" title=${image?.name}><span class="name">${image?.name ?? ""}</span><span class="faint">${at >= 0 ? `${at + 1} of ${present.length}` : ""}</span></span>
      <button class="icon-button" aria-label="Next image" title="Next image (D)" disabled=${at < 0 || at + 1 >= present.length} onClick=${() => actions.step(1)}><${Icon} name="next" /></button>
      <span class="grow"></span>
      <button class="icon-button wide" aria-label="Fit image" title="Fit the image (0)" onClick=${() => set((state) => ({ fit: (state.fit ?? 0) + 1 }))}><${Icon} name="fit" /></button>
      <button
        class=${classes("icon-button", image?.is_locked && "is-gold")}
        aria-pressed=${String(Boolean(image?.is_locked))}
        aria-label="Gold set"
        title="Lock into the gold set (G): its recall and false positives are watched"
        disabled=${!image}
        onClick=${() => actions.setLocked(image.id, !image.is_locked)}
      ><${Icon} name="lock" /></button>
      <button class=${classes("labelled", mode === "draw" && "is-on")} aria-pressed=${String(mode === "draw")} title=${reason ?? "Draw a box over a missed object (W)"} disabled=${!image || reason} onClick=${actions.toggleDrawing}>
        <${Icon} name="draw" />Draw
      </button>
      ${isFrame && html`<button class="labelled" onClick=${() => actions.controlVideo("play")} title="Continue the video (P)"><${Icon} name="play" />Continue</button>`}
      <button class="labelled rest" title=${reason ?? "All boxes that nobody judged are wrong: confirm, then next (N)"} disabled=${!open || reason} onClick=${actions.rejectRest}>
        <${Icon} name="wrong" />Reject
      </button>
      <button class="primary labelled" title=${reason ?? "All boxes are right: confirm, then next (Space)"} disabled=${!image || reason} onClick=${actions.confirmImage}>
        <${Icon} name="right" />${image?.is_reviewed ? "Confirmed" : "Confirm"}
      </button>
    </div>
  `;
}
