// The panels in the executed notebooks follow the page's switch between light and dark: they ask for the attribute by
// which JupyterLab tells its theme. Without scripts they follow the system, as the page does.
"use strict";

(() => {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const follow = () => {
    const chosen = document.body.dataset.theme;
    const dark = chosen === "dark" || (chosen !== "light" && system.matches);
    document.body.dataset.jpThemeLight = String(!dark);
  };
  document.addEventListener("DOMContentLoaded", () => {
    follow();
    system.addEventListener("change", follow);
    new MutationObserver(follow).observe(document.body, { attributeFilter: ["data-theme"] });
  });
})();
