// Start from nothing: draw some boxes, train, watch the progress.

import * as actions from "../actions.js";
import { timeLeft } from "../format.js";
import { html, useState } from "../html.js";
import { useStore } from "../store.js";

export function Training() {
  const server = useStore((state) => state.server);
  if (!server) return null;
  const { job, model } = server;
  if (job?.state === "running") return html`<${Running} job=${job} />`;
  if (model) return null;
  return html`<${Beginning} server=${server} failure=${job?.state === "failed" ? job.error : null} />`;
}

// Below this number of objects, a first detector is often weak.
const GOOD_START = 20;

const nameKey = (server) => `whet.class.${server.project}`;

/** The name of the class that was typed before a reload. */
function keptName(server) {
  try {
    return localStorage.getItem(nameKey(server)) ?? "object";
  } catch {
    return "object"; // private windows may refuse storage
  }
}

function keepName(server, name) {
  try {
    localStorage.setItem(nameKey(server), name);
  } catch {
    // typed again after a reload
  }
  return name;
}

function Beginning({ server, failure }) {
  const [name, setName] = useState(keptName(server));
  const drawn = server.n_objects;
  const needed = server.objects_to_train;
  const isReady = drawn >= needed;
  const begin = (event) => {
    event.preventDefault();
    if (isReady) actions.train(name.trim() || "object");
  };
  return html`
    <form class="training" onSubmit=${begin} aria-label="Train a new detector">
      <${Ring} share=${Math.min(1, drawn / needed)} text=${drawn} />
      <div class="grow">
        <strong>${isReady ? "Enough boxes to train" : `Draw ${needed - drawn} more ${needed - drawn === 1 ? "box" : "boxes"}`}</strong>
        <p class="faint">${isReady ? `${drawn < GOOD_START ? "With so few boxes, accuracy may be low. " : ""}More boxes make a better detector.` : "Draw a box around every object of an image, confirm the image, go on."}</p>
        ${failure && html`<p class="is-bad" role="alert">${failure}</p>`}
      </div>
      <label>Name of the class<input value=${name} maxlength="60" onInput=${(event) => setName(keepName(server, event.target.value))} /></label>
      <button class="primary large" disabled=${!isReady}>Train</button>
    </form>
  `;
}

function Running({ job }) {
  const share = job.progress ?? 0;
  return html`
    <section class="training" aria-label="Training">
      <${Ring} share=${share} text=${`${Math.round(100 * share)}%`} />
      <div class="grow">
        <strong>${job.text || "Training"}</strong>
        <p class="faint" role="status">${timeLeft(job.seconds_left)}</p>
        <progress value=${share} max="1" aria-label="Progress of the training"></progress>
      </div>
      <button onClick=${actions.cancelTraining}>Cancel</button>
    </section>
  `;
}

function Ring({ share, text }) {
  const around = 2 * Math.PI * 18;
  return html`
    <svg class="ring" viewBox="0 0 44 44" aria-hidden="true">
      <circle class="track" cx="22" cy="22" r="18" />
      <circle class="done" cx="22" cy="22" r="18" stroke-dasharray=${`${share * around} ${around}`} transform="rotate(-90 22 22)" />
      <text x="22" y="26" text-anchor="middle">${text}</text>
    </svg>
  `;
}
