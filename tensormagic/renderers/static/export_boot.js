// Puts the line "Export" below the output it stands in. The code is shared by all outputs of a page; the output as it came
// is kept before a script touches it.
async function offerExport(script, key, packedCode, name, packedReport) {
  const section = script?.parentElement;
  if (!section) return;
  // JupyterLab asks what has the focus, and nothing around it: two d on a heading would delete the cell
  section.addEventListener("focusin", ({ target }) => { target.dataset.lmSuppressShortcuts = "true"; });
  section.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.defaultPrevented) section.closest(".jp-Cell")?.focus();
  });
  if (typeof DecompressionStream === "undefined") return;
  section.tensormagicSource ??= section.outerHTML;
  const shared = (globalThis.tensormagicExport ??= {});
  shared[key] ??= unpacked(packedCode).then((source) => {
    const element = document.createElement("script");
    element.textContent = `(() => {${source}\ntensormagicExport[${JSON.stringify(key + " offer")}] = offer})()`;
    document.head.append(element);
    element.remove();
    return shared[key + " offer"];
  });
  (await shared[key])(section, name, packedReport && (() => unpacked(packedReport)));
}
