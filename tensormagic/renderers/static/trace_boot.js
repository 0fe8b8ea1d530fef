// Unpacks the viewer and the document of the output it stands in, and mounts one on the other.
// Several outputs of one page share the module; it is loaded as an inline module script, which needs neither a request
// nor a blob, so that it runs in a notebook, in an exported page and in a file opened from disk.
async function boot(script, key, packedViewer, packedDocument) {
  const unmounted = ".tm-trace[data-tm-waiting]";
  const section = script?.closest?.(unmounted) ?? document.querySelector(unmounted);
  if (!section || typeof DecompressionStream === "undefined") return;
  section.tensormagicSource ??= section.outerHTML; // for a page of its own, before anything is changed
  section.removeAttribute("data-tm-waiting");
  const viewers = (globalThis.tensormagicViewers ??= {});
  const load = async () => {
    const source = await unpacked(packedViewer);
    await new Promise((resolve, reject) => {
      const element = document.createElement("script");
      viewers[key + " ready"] = resolve;
      element.type = "module";
      element.onerror = reject;
      element.textContent = `${source}\nglobalThis.tensormagicViewers[${JSON.stringify(key + " ready")}]([mount, viewerStyle]);`;
      document.head.append(element);
      element.remove();
    }).then((loaded) => {
      viewers[key + " mount"] = loaded;
    });
    return viewers[key + " mount"];
  };
  const [[mount, rules], text] = await Promise.all([(viewers[key] ??= load()), unpacked(packedDocument)]);
  const place = section.querySelector(".tm-static");
  if (!place) return;
  const drawn = document.createElement("div");
  shareStyle(section, key, rules);
  place.before(drawn); // in its place from the start: it asks there how the cell was looked at before
  mount(drawn, JSON.parse(text));
  place.remove();
}

// One style sheet for all outputs of a page, or of a shadow root: thirty copies would slow every change in the page.
function shareStyle(section, key, rules) {
  const [own, root] = [section.querySelector("style"), section.getRootNode()];
  if (!own) return;
  const whole = own.textContent + rules;
  try {
    const shared = (root.tensormagicSheets ??= {});
    if (!shared[key]) {
      shared[key] = new CSSStyleSheet();
      shared[key].replaceSync(whole);
      root.adoptedStyleSheets = [...root.adoptedStyleSheets, shared[key]];
    }
    own.remove();
  } catch {
    own.textContent = whole; // a browser without shared sheets
  }
}
