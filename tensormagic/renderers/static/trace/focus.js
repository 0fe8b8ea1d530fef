// @ts-check
/** Where the keyboard goes on, where what had the focus is exchanged or hidden: never to the top of the page. */

const STOPS = "button,select,[tabindex]";

/** Exchange what is in an element; the focus stays at the same place in the order of Tab.
 * @param {Element} element @param {()=>void} exchange */
export function keepingFocus(element, exchange) {
  const stops = () => /** @type {any[]} */ ([...element.querySelectorAll(STOPS)]),
    at = stops().indexOf(document.activeElement);
  exchange();
  stops()[at]?.focus({ preventScroll: true });
}

/** Show or hide; the focus goes to the first of some others that is there.
 * @param {HTMLElement} element @param {boolean} hidden @param {...(HTMLElement|undefined)} others */
export function hide(element, hidden, ...others) {
  const inside = hidden && element.contains(document.activeElement);
  element.hidden = hidden;
  if (inside) others.find((one) => one?.getClientRects().length)?.focus({ preventScroll: true });
}
