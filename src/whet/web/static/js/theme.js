// Light or dark: as the system says, unless the user chose.

const KEY = "whet.theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");

function chosen() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

export const current = () => chosen() ?? (system.matches ? "dark" : "light");

const apply = () => {
  document.documentElement.dataset.theme = current();
};

/** Choose a theme; the choice that equals the system's follows the system again. */
export function choose(theme) {
  try {
    if (theme === (system.matches ? "dark" : "light")) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    document.documentElement.dataset.theme = theme;
    return theme;
  }
  apply();
  return current();
}

export function start() {
  apply();
  system.addEventListener("change", apply);
}
