// Runs code that came packed, as a script of the page; a browser too old to unpack leaves the panel as it stands.
const runPacked = (text) => typeof DecompressionStream === "undefined" || unpacked(text).then((source) => {
  const element = document.createElement("script");
  element.textContent = source;
  document.head.append(element);
  element.remove();
});
