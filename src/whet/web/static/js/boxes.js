// The boxes that the page shows for an image: detections and labels of the server, changed by what is on its way.

import { probability } from "./format.js";
import { boxOf, keyOf, overlap } from "./geometry.js";

const SAME = 0.9; // intersection over union of two boxes that mean the same place
const FOLLOWED = 0.5; // intersection over union of a box and the same box after a correction

/**
 * Returns [{key, box, score, probability, judgement, record_id, state, labels, kind, is_pending}].
 *
 * `kind` is "detection", "suppressed" (judged wrong and gone), or "object" (a user's box that is not detected);
 * `judgement` is true, false or null; `labels` are all labels of that place, two of them with different judgements in
 * a dispute.
 */
export function shownBoxes(image, outbox) {
  if (!image) return [];
  const shown = image.detections.map((detection) => fromDetection(detection, image.labels));
  const taken = new Set(shown.flatMap((box) => box.labels.map((label) => label.record_id)));
  for (const label of image.labels) {
    if (taken.has(label.record_id)) continue;
    const alike = image.labels.filter((other) => !taken.has(other.record_id) && isSamePlace(label.box, other.box));
    alike.forEach((other) => taken.add(other.record_id));
    shown.push(fromLabels(alike));
  }
  for (const { mark } of outbox) if (mark?.image === image.id) apply(mark, shown);
  return shown;
}

function fromDetection(detection, labels) {
  const near = labels.filter(
    (label) => label.record_id === detection.record_id || isSamePlace(label.box, detection.box),
  );
  // A correction may move the detection away from its own label: labels of that place stay together.
  const own = labels.filter((label) => near.some((other) => isSamePlace(label.box, other.box)));
  return {
    key: keyOf(detection.box),
    kind: "detection",
    box: detection.box,
    score: detection.score,
    probability: detection.probability,
    class_name: detection.class_name,
    judgement: detection.label ?? null,
    record_id: detection.record_id ?? null,
    state: stateOf(own),
    labels: own,
    is_pending: false,
  };
}

function fromLabels(labels) {
  const [label] = labels;
  return {
    key: keyOf(label.box),
    kind: label.is_object ? "object" : "suppressed",
    box: label.box,
    score: label.score ?? null,
    probability: null,
    judgement: label.is_object,
    record_id: label.record_id,
    state: stateOf(labels),
    labels,
    is_pending: false,
  };
}

function stateOf(labels) {
  if (labels.some((label) => label.state === "disputed")) return "disputed";
  return labels.some((label) => label.state === "unsatisfied") ? "unsatisfied" : "holds";
}

/** Show a change that the server has not acknowledged yet. */
function apply(mark, shown) {
  if (mark.kind === "confirm") {
    for (const box of undecided(shown)) {
      box.judgement = mark.is_object;
      if (!mark.is_object) box.kind = "suppressed";
    }
  }
  if (mark.kind === "unlearn") {
    const at = shown.findIndex((box) => box.record_id === mark.record_id);
    if (at >= 0 && shown[at].kind === "object") shown.splice(at, 1);
    else if (at >= 0) Object.assign(shown[at], { judgement: null, kind: "detection", is_pending: true });
  }
  if (mark.kind === "label") applyLabel(mark, shown);
}

function applyLabel({ box, is_object, replaces }, shown) {
  for (const id of replaces ?? []) {
    const at = shown.findIndex((other) => other.record_id === id);
    if (at >= 0) shown.splice(at, 1);
  }
  const same = shown.find((other) => other.key === keyOf(box));
  const kind = is_object ? "object" : "suppressed";
  if (same) {
    same.judgement = is_object;
    same.kind = is_object ? same.kind : kind;
    same.is_pending = true;
  } else {
    const unknown = { score: null, probability: null, record_id: null, state: "holds", labels: [] };
    shown.push({ ...unknown, key: keyOf(box), kind, box, judgement: is_object, is_pending: true });
  }
}

const isSamePlace = (one, other) => overlap(one, other) >= SAME;

/** The key of a selected box after a change of the image: a correction may move the box a little. */
export function followed(key, image, outbox) {
  if (key === null) return null;
  const boxes = shownBoxes(image, outbox);
  if (boxes.some((box) => box.key === key)) return key;
  return nearestBox(boxes, boxOf(key), FOLLOWED)?.key ?? null;
}

/** The shown box that overlaps another one most, at least by `least`. */
export function nearestBox(boxes, box, least) {
  const [best] = boxes
    .map((shown) => ({ shown, overlap: overlap(shown.box, box) }))
    .sort((one, other) => other.overlap - one.overlap);
  return best && best.overlap >= least ? best.shown : null;
}

/** The name of what is detected: a detector of one class may have none but its own. */
export const classNameOf = (server) => server?.model?.class_name ?? server?.model?.name ?? "object";

/** What a screen reader says of a box. */
export function describeBox(box, className) {
  const name = box.class_name ?? className;
  const score = box.probability == null ? "" : `, ${probability(box.probability)}`;
  const words = {
    detection: { true: "confirmed", false: "marked wrong", null: "not judged" }[box.judgement],
    suppressed: "marked wrong, no longer detected",
    object: "marked as object, not detected",
  };
  const dispute = box.state === "disputed" ? ", disputed" : "";
  return `${name}${score}, ${words[box.kind]}${dispute}${box.is_pending ? ", saving" : ""}`;
}

/** Order of judging: what nobody has judged, from left to right. */
export const undecided = (boxes) =>
  boxes.filter((box) => box.kind === "detection" && box.judgement === null).sort((one, other) => one.box[0] - other.box[0]);
