// @ts-check
/** When the page turns light or dark, or goes to paper: what is painted on a sheet does not follow by itself. */

/** Have `look` called at such turns. Nothing holds it that outlives its panel: a cleared output is nowhere disposed of.
 * @param {()=>void} look of a panel, which keeps it @returns {()=>void} ends it */
export function atTurns(look) {
  const weak = new WeakRef(look),
    queries = [matchMedia("(prefers-color-scheme: dark)"), matchMedia("print")];
  const heard = () => (weak.deref() ?? end)();
  const marks = new MutationObserver(heard); // hosts write their theme on one of the two
  const end = () => {
    marks.disconnect();
    queries.map((query) => (query.onchange = null));
  };
  for (const root of [document.documentElement, document.body]) marks.observe(root, { attributes: true });
  queries.map((query) => (query.onchange = heard));
  return end;
}
