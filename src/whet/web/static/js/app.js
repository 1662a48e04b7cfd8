// The page: layout and start.

import * as actions from "./actions.js";
import * as events from "./events.js";
import { classes, html, render } from "./html.js";
import { Icon } from "./icons.js";
import * as keyboard from "./keyboard.js";
import * as session from "./session.js";
import { set, useStore } from "./store.js";
import * as theme from "./theme.js";
import { ActionBar } from "./views/action_bar.js";
import { TouchBar } from "./views/box_tools.js";
import { Dialogs, Fixed, Notices, Offline } from "./views/dialogs.js";
import { Effect } from "./views/effect.js";
import { Filmstrip } from "./views/filmstrip.js";
import { History } from "./views/history.js";
import { Quality } from "./views/quality.js";
import { Stage } from "./views/stage.js";
import { TopBar } from "./views/topbar.js";
import { Training } from "./views/training.js";
import { Video } from "./views/video.js";

const PANELS = { effect: ["Effect", Effect], history: ["History", History], quality: ["Quality", Quality] };

function Panel() {
  const { panel, sheet } = useStore(({ panel, sheet }) => ({ panel, sheet }));
  const [, Content] = PANELS[panel];
  return html`
    <aside class=${classes("panel", sheet && "is-open")} aria-label="Panels">
      <div class="tabs" role="tablist">
        ${Object.entries(PANELS).map(([name, [title]]) => html`
          <button key=${name} role="tab" id=${`tab-${name}`} aria-selected=${String(panel === name)} aria-controls="panel" onClick=${() => actions.openPanel(name)}>
            <${Icon} name=${name} />${title}
          </button>
        `)}
        <button class="icon-button sheet-close" aria-label="Close panel" onClick=${() => set({ sheet: false })}><${Icon} name="close" /></button>
      </div>
      <div class="panel-content" role="tabpanel" id="panel" aria-labelledby=${`tab-${panel}`} tabindex="-1"><${Content} /></div>
    </aside>
  `;
}

function App() {
  const view = useStore((state) => state.view);
  return html`
    <${TopBar} />
    <${Offline} />
    <main class="workspace">
      <${Filmstrip} />
      <section class="work" aria-label="Image">
        <${Fixed} />
        ${view === "video" ? html`<${Video} />` : html`<${Training} /><${Stage} /><${TouchBar} /><${ActionBar} />`}
      </section>
      <${Panel} />
    </main>
    <${Notices} />
    <${Dialogs} />
  `;
}

theme.start();
render(html`<${App} />`, document.getElementById("app"));
keyboard.listen();
window.addEventListener("hashchange", () => {
  const id = session.imageOfAddress();
  if (id) session.openImage(id);
});
session.start(events.connect);
