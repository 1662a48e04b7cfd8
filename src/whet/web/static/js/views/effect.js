// What a correction changed in all images: boxes gained and lost, the estimate, and the gold set.

import * as actions from "../actions.js";
import { number, percent, plural, signed } from "../format.js";
import { classes, html } from "../html.js";
import { Icon } from "../icons.js";
import * as session from "../session.js";
import { useStore } from "../store.js";

const COMPARISONS = [
  ["last", "Last change", "Compare with the state before"],
  ["opened", "This session", "Compare with the state when this page was opened"],
  ["trained", "All", "Compare with the detector as trained"],
];
const LISTED = 200;

export function Effect() {
  const { effect, compare, hasModel } = useStore(({ effect, compare, server }) => ({ effect, compare, hasModel: Boolean(server?.model) }));
  if (!hasModel) return html`<p class="empty">The effect of corrections appears here once a detector is trained.</p>`;
  return html`
    <div class="segments is-full" role="group" aria-label="Compare with">
      ${COMPARISONS.map(([name, text, title]) => html`
        <button key=${name} class=${classes(compare === name && "is-on")} aria-pressed=${String(compare === name)} title=${title} onClick=${() => actions.setCompare(name)}>${text}</button>
      `)}
    </div>
    ${effect && html`
      ${effect.from_node === effect.to_node
        ? html`<p class="empty">Judge a box: what changes in all images appears here.</p>`
        : html`<${Totals} effect=${effect} /><${Changes} changes=${effect.changes} />`}
      <${Gold} locked=${effect.locked} />
    `}
  `;
}

function Totals({ effect }) {
  const { gained, lost, images, wrong_gained, objects_lost, estimate_before, estimate_after } = effect.summary;
  const isSure = (kind) => effect.changes.some((change) => change.kind === kind && change.harm > 1); // by a label
  return html`
    <div class="totals" data-node=${effect.to_node}>
      <${Figure} value=${signed(gained)} text="new" harm=${wrong_gained} among=${gained} isSure=${isSure("gained")} one="wrong" many="wrong" />
      <${Figure} value=${signed(-lost)} text="gone" harm=${objects_lost} among=${lost} isSure=${isSure("lost")} one="object" many="objects" />
      <${Figure} value=${images} text=${images === 1 ? "image changed" : "images changed"} />
    </div>
    ${estimate_before && estimate_after && html`<${Estimate} before=${estimate_before} after=${estimate_after} />`}
    ${!effect.is_complete && html`<p class="estimate" role="status">Some images are not scanned yet; the list will grow.</p>`}
  `;
}

/** A number of boxes, and how many of them are expected to be a loss: red if most are, or one for sure. */
function Figure({ value, text, harm = null, among = 0, isSure = false, one, many }) {
  const n = Math.round(harm ?? 0);
  const isBad = isSure || harm > among / 2;
  return html`
    <div class=${classes("figure", isBad ? "is-bad" : harm != null && among > 0 && "is-good")} title=${among && harm != null ? `Of ${among}, ${number(harm, 1)} expected to be ${many}, by labels and probabilities` : undefined}>
      <b>${value}</b><span>${text}${n > 0 && html`, about ${n}\u00a0${n === 1 ? one : many}`}</span>
    </div>
  `;
}

/** Held-out samples, before and after. */
function Estimate({ before, after }) {
  const falls = after.recall < before.recall - 1e-9 || after.false_positives_per_image > before.false_positives_per_image + 1e-9;
  return html`
    <p class=${classes("estimate", falls && "is-bad")} title="Estimated on the held-out samples in the detector">
      Held-out recall ${percent(before.recall, 1)} → ${percent(after.recall, 1)},
      false positives per image ${number(before.false_positives_per_image, 2)} → ${number(after.false_positives_per_image, 2)}
    </p>
  `;
}

/** The list, sorted by harm by the server; a click opens the image at the box. */
function Changes({ changes }) {
  const current = useStore((state) => state.image?.id);
  const others = changes.filter((change) => change.image !== current).length;
  if (!changes.length) return html`<p class="empty">No box of any image changed.</p>`;
  return html`
    <h3>Changed boxes <span class="faint">${others ? `${plural(others, "box", "boxes")} in other images` : "only in this image"}</span></h3>
    <ol class="changes" aria-label="Changed boxes, most harmful first">
      ${changes.slice(0, LISTED).map((change, index) => html`<${Change} key=${`${change.image} ${index}`} change=${change} isHere=${change.image === current} />`)}
    </ol>
    ${changes.length > LISTED && html`<p class="faint">… and ${changes.length - LISTED} more.</p>`}
  `;
}

const KINDS = { gained: ["+", "new"], lost: ["−", "gone"], moved: ["↔", "moved"] };

function Change({ change, isHere }) {
  const [sign, word] = KINDS[change.kind];
  const isHarm = change.kind !== "moved" && change.harm > 0.5; // more likely than not a loss
  return html`
    <li>
      <button class=${classes("change", `is-${change.kind}`, isHarm && "is-harm", isHere && "is-here")} onClick=${() => session.openImage(change.image, change.box)} data-kind=${change.kind} data-image=${change.image}>
        <img src=${`/api/images/${change.image}/thumbnail`} alt="" loading="lazy" />
        <span class="sign" aria-hidden="true">${sign}</span>
        <span class="grow">
          <span class="name">${isHere ? "This image" : change.name}</span>
          <span class="faint">
            ${word}
            ${change.is_labelled && html`<span title="Somebody judged this box"> ✓</span>`}
          </span>
        </span>
        <span class="scores">${score(change.score_before)} → ${score(change.score_after)}</span>
      </button>
    </li>
  `;
}

const score = (value) => (value == null ? "none" : number(value, 1));

/** The gold set: recall and false positives of every locked image, before and now. */
function Gold({ locked }) {
  const images = locked?.images ?? [];
  if (!images.length) {
    return html`
      <h3><${Icon} name="lock" /> Gold set</h3>
      <p class="empty">Confirm images that must stay right, and lock them (G). Their recall and false positives are watched here.</p>
    `;
  }
  return html`
    <h3><${Icon} name="lock" /> Gold set <span class="faint">${plural(images.length, "image")}</span></h3>
    ${locked.n_judged < locked.n_boxes && html`<p class="hint">${locked.n_judged} of ${locked.n_boxes} boxes judged. Only these count: confirm the locked images to watch all boxes.</p>`}
    <table class="gold">
      <thead><tr><th scope="col">Image</th><th scope="col">Recall</th><th scope="col"></th><th scope="col" title="False positives">FP</th></tr></thead>
      <tbody>
        <${GoldRow} row=${{ ...locked, name: "All" }} isTotal />
        ${images.map((row) => html`<${GoldRow} key=${row.id} row=${row} />`)}
      </tbody>
    </table>
  `;
}

function GoldRow({ row, isTotal }) {
  const falls = row.recall_now < row.recall_before || row.false_positives_now > row.false_positives_before;
  const recall = row.recall_now == null ? "–" : `${percent(row.recall_before)} → ${percent(row.recall_now)}`;
  const isPart = row.n_judged < row.n_boxes;
  return html`
    <tr class=${classes(isTotal && "is-total", falls && "is-worse")} aria-label=${falls ? `${row.name}: worse than before` : undefined}>
      <th scope="row">${isTotal ? row.name : html`<button class="link" onClick=${() => session.openImage(row.id)}>${row.name}</button>`}
        ${isPart && !isTotal && html`<span class="faint judged" title=${`${row.n_judged} of ${row.n_boxes} boxes judged`}>${row.n_judged} of ${row.n_boxes} judged</span>`}
      </th>
      <td>${recall}</td>
      <td><${Slope} before=${row.recall_before} now=${row.recall_now} isWorse=${falls} /></td>
      <td>${number(row.false_positives_before, 0)} → ${number(row.false_positives_now, 0)}</td>
    </tr>
  `;
}

/** A line from the recall before to the recall now; red if the image got worse. */
function Slope({ before, now, isWorse }) {
  if (before == null || now == null) return null;
  const y = (value) => 13 - 11 * value;
  return html`
    <svg class=${classes("slope", isWorse && "is-worse")} viewBox="0 0 40 15" aria-hidden="true">
      <line x1="3" x2="37" y1=${y(before)} y2=${y(now)} />
      <circle cx="3" cy=${y(before)} r="2" /><circle cx="37" cy=${y(now)} r="2" />
    </svg>
  `;
}
