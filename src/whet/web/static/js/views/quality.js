// Threshold, operating points, precision and recall, and the scores of both classes.

import * as actions from "../actions.js";
import { classNameOf } from "../boxes.js";
import { number, percent } from "../format.js";
import { classes, html } from "../html.js";
import { useStore } from "../store.js";
import { Curve, Histogram } from "./charts.js";

export function Quality() {
  const { server, curves, moving } = useStore((state) => ({ server: state.server, curves: state.curves, moving: state.min_score }));
  const model = server?.model;
  if (!model) return html`<p class="empty">Thresholds and curves appear here once a detector is trained.</p>`;
  const minScore = moving ?? server.min_score;
  const points = pointsOf(model.operating_points);
  return html`
    <${Points} points=${points} minScore=${minScore} />
    <${Threshold} curves=${curves} points=${points} minScore=${minScore} />
    ${curves && html`<${Charts} curves=${curves} minScore=${minScore} />`}
    <${Facts} server=${server} />
    <${TrainAgain} server=${server} />
  `;
}

/** Operating points by score; names of one score share an entry, the default first. */
function pointsOf(byName) {
  const byScore = new Map();
  for (const [name, score] of Object.entries(byName ?? {})) byScore.set(score, [...(byScore.get(score) ?? []), name]);
  const isDefault = (name) => name === "default";
  return [...byScore]
    .map(([min_score, names]) => ({ min_score, names: names.sort((one, other) => isDefault(other) - isDefault(one)) }))
    .sort((one, other) => one.min_score - other.min_score);
}

function Points({ points, minScore }) {
  return html`
    <h3>Operating point</h3>
    <div class="points" role="group" aria-label="Operating points">
      ${points.map((point) => html`
        <button
          key=${point.min_score}
          class=${classes("point", point.min_score === minScore && "is-on")}
          aria-pressed=${String(point.min_score === minScore)}
          onClick=${() => actions.setMinScore(point.names[0])}
        >
          <b>${point.names[0]}</b>
          <span class="faint">${[...point.names.slice(1), `score ${number(point.min_score, 1)}`].join(" · ")}</span>
        </button>
      `)}
    </div>
  `;
}

/** The range of the slider: that of the histogram and of the operating points, so that all have the same axis. */
function rangeOf(curves, points, minScore) {
  const scores = [0, minScore, ...points.map((point) => point.min_score), ...(curves?.histogram.edges ?? [])];
  return [Math.min(...scores), 1.02 * Math.max(...scores)];
}

function Threshold({ curves, points, minScore }) {
  const [low, high] = rangeOf(curves, points, minScore);
  const step = (high - low) / 400 || 0.01;
  return html`
    <h3 id="threshold">Minimum score <output>${number(minScore, 2)}</output></h3>
    ${curves?.histogram.edges.length > 1 && html`<${Histogram} histogram=${curves.histogram} minScore=${minScore} range=${[low, high]} points=${points} />`}
    <input
      type="range"
      class="threshold"
      aria-labelledby="threshold"
      min=${low}
      max=${high}
      step=${step}
      value=${minScore}
      onInput=${(event) => actions.setMinScore(Number(event.target.value))}
    />
    <p class="legend"><i class="key-objects"></i>objects <i class="key-others"></i>others <i class="key-unjudged"></i>not judged <span class="faint">${curves ? `${curves.n_labelled} judged` : ""}</span></p>
  `;
}

function Charts({ curves, minScore }) {
  const points = curves.pr;
  const now = nearest(points, minScore);
  return html`
    <h3>Precision and recall ${now && html`<output>${percent(now.precision)} / ${percent(now.recall)}</output>`}</h3>
    ${points.length > 1 ? html`<${Curve} points=${points} now=${now} />` : html`<p class="empty">Judge boxes to see the curve.</p>`}
  `;
}

const nearest = (points, minScore) =>
  points.reduce((best, point) => (best && Math.abs(best.score - minScore) <= Math.abs(point.score - minScore) ? best : point), null);

/** Corrections put right single mistakes; a training on all labels also changes what looks different. */
function TrainAgain({ server }) {
  const isRunning = server.job?.state === "running";
  const missing = server.objects_to_train - server.n_objects;
  const begin = () => actions.train(classNameOf(server));
  return html`
    <h3>Train again</h3>
    ${missing > 0 && html`<p class="hint">Label ${missing} more ${missing === 1 ? "object" : "objects"} first.</p>`}
    <p class="hint">Train a new detector on the ${server.n_objects} objects that were drawn or confirmed, and on what is beside them in reviewed images. It becomes a state of the history: undo gives this one back.</p>
    <button class="labelled" disabled=${isRunning || missing > 0} onClick=${begin}>${isRunning ? "Training…" : "Train again"}</button>
    ${server.job?.state === "failed" && html`<p class="is-bad" role="alert">${server.job.error}</p>`}
  `;
}

function Facts({ server }) {
  const { model } = server;
  const facts = [
    ["Class", model.class_name ?? model.name],
    ["Window", Array.isArray(model.window) ? model.window.join(" × ") : model.window],
    ["Weak learners", model.n_weak],
    ["Corrections", server.n_corrections],
    ["Held-out recall", model.estimate ? percent(model.estimate.recall, 1) : null],
    ["False positives per image", model.estimate ? number(model.estimate.false_positives_per_image, 2) : null],
  ].filter(([, value]) => value != null);
  return html`<h3>Detector</h3><dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}
