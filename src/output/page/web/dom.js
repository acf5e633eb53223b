/** Elements. Foreign text becomes a text node and never markup. */

/**
 * Makes an element. Attributes with a value of `null` or `false` are left out.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, string|number|boolean|null|undefined|((event: any) => void)>} [attributes]
 *   Functions are listeners: `click`, `keydown`.
 * @param {...(Node|string)} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children);
  return made;
}

/**
 * The element of the page with this id.
 * @param {string} id
 * @returns {any}
 */
export function byId(id) {
  return document.getElementById(id);
}

/**
 * A square with the colour of a kind of frame.
 * @param {string} colour
 * @returns {HTMLElement}
 */
export function swatch(colour) {
  const square = element("span", { class: "kind", "aria-hidden": "true" });
  square.style.background = colour;
  return square;
}

/**
 * A number of samples with its share.
 * @param {string} count
 * @param {string} share
 * @returns {Node[]}
 */
export function countCell(count, share) {
  return [document.createTextNode(count), element("span", { class: "share" }, share)];
}

/**
 * A canvas that is as sharp as the screen. Returns its context, in units of CSS pixels.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 * @returns {CanvasRenderingContext2D}
 */
export function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [across, down] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
    canvas.style.height = `${height}px`;
  }
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/**
 * The value of a colour of the style sheet.
 * @param {string} name
 * @returns {string}
 */
export function themed(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
