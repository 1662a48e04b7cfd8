// The bar at the top: project and branch, undo and redo, connection, menus.

import * as actions from "../actions.js";
import { plural } from "../format.js";
import { classes, html, useEffect, useRef, useState } from "../html.js";
import { Icon } from "../icons.js";
import { refreshHistory, attempt } from "../session.js";
import { set, useStore } from "../store.js";
import * as theme from "../theme.js";

export function TopBar() {
  const server = useStore((state) => state.server);
  const view = useStore((state) => state.view);
  return html`
    <header class="topbar">
      <a class="brand" href="/" aria-label="whet studio"><${Mark} /><span>whet</span></a>
      <${Project} server=${server} />
      ${server?.video && html`
        <div class="segments" role="group" aria-label="View">
          <button class=${classes(view === "images" && "is-on")} aria-pressed=${String(view === "images")} onClick=${() => set({ view: "images" })}><${Icon} name="images" /><span class="wide">Images</span></button>
          <button class=${classes(view === "video" && "is-on")} aria-pressed=${String(view === "video")} onClick=${() => set({ view: "video" })}><${Icon} name="video" /><span class="wide">Video</span></button>
        </div>
      `}
      <span class="grow"></span>
      <${Status} server=${server} />
      <button class="icon-button" aria-label="Undo" title="Undo (Ctrl+Z)" disabled=${!server?.can_undo} onClick=${actions.undo}><${Icon} name="undo" /></button>
      <button class="icon-button" aria-label="Redo" title="Redo (Ctrl+Shift+Z)" disabled=${!server?.can_redo} onClick=${actions.redo}><${Icon} name="redo" /></button>
      <${ExportMenu} server=${server} />
      <${ThemeButton} />
      <button class="icon-button wide" aria-label="You" title="Your name: others see it beside your labels" onClick=${() => set({ dialog: "person" })}><${Icon} name="person" /></button>
      <button class="icon-button wide" aria-label="Keyboard" title="Keys (?)" onClick=${() => set({ dialog: "help" })}><${Icon} name="help" /></button>
    </header>
  `;
}

/** A blade with its edge: the mark of whet. */
function Mark() {
  return html`<svg class="mark" viewBox="0 0 24 24" aria-hidden="true"><path class="mark-box" d="M3 8V3h5M16 3h5v5M21 16v5h-5M8 21H3v-5" /><path class="mark-edge" d="M6.5 15.5 17.5 6.5 12 17z" /></svg>`;
}

function Project({ server }) {
  if (!server) return null;
  const name = server.model?.name ?? "New detector";
  return html`
    <div class="project">
      <strong title=${server.project}>${name}</strong>
      ${server.model && html`<${BranchMenu} server=${server} />`}
    </div>
  `;
}

/** The branch with a menu of all branches. */
function BranchMenu({ server }) {
  const { menu, history } = useStore(({ menu, history }) => ({ menu, history }));
  const open = () => {
    set({ menu: menu === "branch" ? null : "branch" });
    attempt(refreshHistory);
  };
  const names = Object.keys(history?.branches ?? {}).sort();
  return html`
    <${Menu} name="branch" isOpen=${menu === "branch"}>
      <button class="chip" aria-haspopup="menu" aria-expanded=${String(menu === "branch")} onClick=${open} title="Branches"><${Icon} name="branch" />${server.branch ?? "earlier state"}</button>
      ${menu === "branch" && html`
        <div class="menu" role="menu">
          ${names.map((name) => html`
            <button role="menuitemradio" aria-checked=${String(name === server.branch)} key=${name} onClick=${() => { set({ menu: null }); actions.checkout({ branch: name }); }}>
              <span class="check">${name === server.branch && html`<${Icon} name="right" />`}</span>${name}
            </button>
          `)}
          <hr />
          <button role="menuitem" onClick=${() => set({ menu: null, dialog: "branch" })}><span class="check"></span>New branch…</button>
        </div>
      `}
    <//>
  `;
}

function Status({ server }) {
  const { connection, outbox } = useStore(({ connection, outbox }) => ({ connection, outbox: outbox.length }));
  if (connection !== "online") {
    return html`<span class="status is-bad" role="status"><${Icon} name="offline" /><span class="wide">${connection === "lost" ? "Not connected" : "Connecting…"}</span></span>`;
  }
  const rescan = server?.rescan;
  const isRescanning = server?.model && rescan && rescan.total > 0 && rescan.done + rescan.unreadable < rescan.total;
  const amount = server?.model ? plural(server.n_corrections, "correction") : "";
  const checking = isRescanning && `checking ${rescan.done} / ${rescan.total}`;
  const missing = server?.n_missing > 0 && `${plural(server.n_missing, "image")} missing`;
  const text = outbox ? "Learning…" : [amount, checking, missing].filter(Boolean).join(" · ");
  return html`<span class=${classes("status", outbox > 0 && "is-busy")} data-waiting=${outbox} role="status" title="Connected. Everything acknowledged is stored."><i class="dot"></i><span class="wide">${text}</span></span>`;
}

const FORMATS = [
  ["format=coco&images=true", "COCO, with the images (.zip)"],
  ["format=yolo", "YOLO, with the images (.zip)"],
  ["format=voc&images=true", "Pascal VOC, with the images (.zip)"],
  ["format=coco", "COCO, boxes only (.json)"],
  ["format=csv", "Numbers of objects per image (.csv)"],
  ["format=corrections", "Corrections (.json)"],
];

function ExportMenu({ server }) {
  const isOpen = useStore((state) => state.menu === "export");
  const run = (work) => () => {
    set({ menu: null });
    work();
  };
  const model = server?.model;
  return html`
    <${Menu} name="export" isOpen=${isOpen}>
      <button class="icon-button" aria-label="Save and export" title="Save and export" aria-haspopup="menu" aria-expanded=${String(isOpen)} onClick=${() => set({ menu: isOpen ? null : "export" })}><${Icon} name="download" /></button>
      ${isOpen && html`
        <div class="menu is-right" role="menu">
          <button role="menuitem" disabled=${!model} onClick=${run(actions.saveModel)}>Save the detector <kbd>Ctrl S</kbd></button>
          <button role="menuitem" disabled=${!model} onClick=${run(() => actions.download("/api/model.whet"))}>Download detector (.whet)</button>
          <button role="menuitem" disabled=${!model?.can_export_opencv} title=${model?.can_export_opencv ? "" : "OpenCV's format cannot represent this detector"} onClick=${run(() => actions.download("/api/model.xml"))}>Download for OpenCV (.xml)</button>
          <hr />
          <p class="menu-title">Boxes of reviewed images</p>
          ${FORMATS.map(([query, text]) => html`<button role="menuitem" key=${query} onClick=${run(() => actions.download(`/api/export?${query}`))}>${text}</button>`)}
          <hr />
          <a role="menuitem" href="/api/docs" target="_blank" rel="noopener">HTTP API</a>
        </div>
      `}
    <//>
  `;
}

/** A button with a menu, which a click elsewhere closes. */
function Menu({ isOpen, children }) {
  const box = useRef();
  useEffect(() => {
    if (!isOpen) return undefined;
    box.current.querySelector(".menu button:not([disabled])")?.focus();
    const close = (event) => box.current?.contains(event.target) || set({ menu: null });
    window.addEventListener("pointerdown", close);
    return () => window.removeEventListener("pointerdown", close);
  }, [isOpen]);
  const onKeyDown = (event) => {
    if (!isOpen || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    const items = [...box.current.querySelectorAll(".menu :is(button, a):not([disabled])")];
    const at = items.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
    items[(at + items.length) % items.length]?.focus();
  };
  return html`<div class="menu-box" ref=${box} onKeyDown=${onKeyDown}>${children}</div>`;
}

function ThemeButton() {
  const [current, setCurrent] = useState(theme.current());
  const next = current === "dark" ? "light" : "dark";
  return html`
    <button class="icon-button" aria-label=${`Switch to ${next} colours`} title=${`Switch to ${next} colours`} onClick=${() => setCurrent(theme.choose(next))}>
      <${Icon} name=${next === "dark" ? "moon" : "sun"} />
    </button>
  `;
}
