// Dialogs and messages: keys, a new branch, notices, the lost connection.

import * as actions from "../actions.js";
import { nameOfPerson, setNameOfPerson } from "../api.js";
import { plural } from "../format.js";
import { classes, html, useEffect, useRef, useState } from "../html.js";
import { Icon } from "../icons.js";
import { KEYS } from "../keyboard.js";
import { dismiss } from "../session.js";
import { set, useStore } from "../store.js";

export function Dialogs() {
  const dialog = useStore((state) => state.dialog);
  if (dialog === "help") return html`<${Help} />`;
  if (dialog === "branch") return html`<${NewBranch} />`;
  if (dialog === "unlikely") return html`<${Unlikely} />`;
  if (dialog === "person") return html`<${Person} />`;
  return null;
}

/** A modal dialog of the browser, which keeps the focus and closes with Escape. */
function Dialog({ title, children }) {
  const element = useRef();
  useEffect(() => {
    element.current.showModal();
    return () => element.current?.close();
  }, []);
  const close = () => set({ dialog: null });
  return html`
    <dialog ref=${element} aria-label=${title} onClose=${close} onClick=${(event) => event.target === element.current && close()}>
      <header><h2>${title}</h2><button class="icon-button" aria-label="Close" onClick=${close}><${Icon} name="close" /></button></header>
      ${children}
    </dialog>
  `;
}

function Help() {
  const groups = [...new Set(KEYS.map((key) => key.group))];
  return html`
    <${Dialog} title="Keys">
      <div class="keys">
        ${groups.map((group) => html`
          <section key=${group}>
            <h3>${group}</h3>
            <dl>
              ${KEYS.filter((key) => key.group === group).map((key) => html`
                <div key=${key.text}><dt>${key.show.map((cap) => html`<kbd>${cap}</kbd>`)}</dt><dd>${key.text}</dd></div>
              `)}
            </dl>
          </section>
        `)}
      </div>
      <p class="faint">Click a box to judge it. Drag on the image to draw a missed object; drag a drawn box, or its corners, to move or resize it. The wheel zooms, the middle button moves.</p>
    <//>
  `;
}

function NewBranch() {
  const [name, setName] = useState("");
  const taken = useStore((state) => Object.keys(state.history?.branches ?? {}));
  const isTaken = taken.includes(name.trim());
  const create = (event) => {
    event.preventDefault();
    if (!name.trim() || isTaken) return;
    actions.createBranch(name.trim());
    set({ dialog: null });
  };
  return html`
    <${Dialog} title="New branch">
      <form onSubmit=${create}>
        <p>Try corrections without changing the other branches. You can switch at any time.</p>
        <label>Name<input autofocus value=${name} maxlength="60" placeholder="night-images" onInput=${(event) => setName(event.target.value)} /></label>
        ${isTaken && html`<p class="is-bad" role="alert">A branch of this name exists; choose another name.</p>`}
        <footer>
          <button type="button" onClick=${() => set({ dialog: null })}>Cancel</button>
          <button class="primary" disabled=${!name.trim() || isTaken}>Create and switch</button>
        </footer>
      </form>
    <//>
  `;
}

/** Confirming says that every box is an object: asked once where some hardly can be. */
function Unlikely() {
  const answer = (finish) => () => {
    set({ dialog: null });
    finish?.();
  };
  return html`
    <${Dialog} title="Are all boxes objects?">
      <p>Some boxes of this image are very unlikely to be objects. <em>Confirm</em> says that every box is right, and the detector learns it. You are asked once.</p>
      <footer>
        <button type="button" autofocus onClick=${answer()}>Look again</button>
        <button type="button" onClick=${answer(actions.rejectRest)}>All others are wrong</button>
        <button type="button" class="primary" onClick=${answer(actions.confirmImage)}>All are right</button>
      </footer>
    <//>
  `;
}

/** Under which name one's labels are shown to others. */
function Person() {
  const [name, setName] = useState(nameOfPerson());
  const save = (event) => {
    event.preventDefault();
    setNameOfPerson(name);
    set({ dialog: null });
  };
  return html`
    <${Dialog} title="Your name">
      <form onSubmit=${save}>
        <p>Others see it beside your labels. Without one, they see “another person”.</p>
        <label>Name<input autofocus value=${name} maxlength="20" autocomplete="name" onInput=${(event) => setName(event.target.value)} /></label>
        <footer>
          <button type="button" onClick=${() => set({ dialog: null })}>Cancel</button>
          <button class="primary">Save</button>
        </footer>
      </form>
    <//>
  `;
}

function retry(notice) {
  dismiss(notice.id);
  notice.retry();
}

export function Notices() {
  const notices = useStore((state) => state.notices);
  return html`
    <div class="notices" role="status" aria-live="polite">
      ${notices.map((notice) => html`
        <div key=${notice.id} class=${classes("notice", notice.kind === "error" && "is-error")}>
          <span>${notice.text}</span>
          ${notice.retry && html`<button onClick=${() => retry(notice)}>Try again</button>`}
          <button class="icon-button" aria-label="Close" onClick=${() => dismiss(notice.id)}><${Icon} name="close" /></button>
        </div>
      `)}
    </div>
  `;
}

/** Shown as long as the detector cannot be corrected: its controls are disabled. */
export function Fixed() {
  const reason = useStore((state) => actions.cannotLearnReason(state.server));
  return reason && html`<div class="banner" role="alert"><${Icon} name="warning" /><span>Corrections are disabled: ${reason}.</span></div>`;
}

/** Shown while the server cannot be reached. What was corrected meanwhile is kept and sent later. */
export function Offline() {
  const { connection, waiting } = useStore((state) => ({ connection: state.connection, waiting: state.outbox.length }));
  if (connection !== "lost") return null;
  const kept = waiting ? ` ${plural(waiting, "change")} ${waiting === 1 ? "waits" : "wait"} here and will be sent once.` : "";
  return html`<div class="offline" role="alert"><${Icon} name="offline" /><span>The server does not answer. Trying again…${kept}</span></div>`;
}
