// The one way in which pages are drawn: a page makes the elements that it should have now, and `draw` changes those on the screen where
// they differ. So the focus, the selection of text and the scroll position stay. Texts of data become text nodes and nothing else.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = ["onclick", "onchange", "oninput", "onsubmit"];
const NOTHING = [null, undefined, false, ""];
const listed = (children) => children.flat(Infinity).filter((child) => !NOTHING.includes(child));

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue; // an empty value is a value
    if (HANDLERS.includes(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...listed(children));
  return element;
}

// Return an element. Attributes that are null or false are left out; children are elements, texts and lists of them.
export const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
export const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

// Return a text whose commands, which stand between backticks, are code.
export const withCode = (text) => text && text.split("`").map((part, place) => (place % 2 ? h("code", null, part) : part));

// Give `element` these children. Children with the attribute `data-key` are found again by it, all others by their position.
export function draw(element, ...children) {
  update(element, listed(children).map((child) => (typeof child === "object" ? child : document.createTextNode(child))));
}

const keyOf = (node) => node.dataset?.key;
const fits = (known, fresh) => known.nodeName === fresh.nodeName && keyOf(known) === keyOf(fresh);

function update(element, fresh) {
  const byKey = new Map([...element.children].filter(keyOf).map((child) => [keyOf(child), child]));
  let place = element.firstChild;
  for (const child of fresh) {
    const known = keyOf(child) === undefined ? place : byKey.get(keyOf(child));
    if (known && fits(known, child)) {
      change(known, child);
      if (known === place) place = place.nextSibling;
      else element.insertBefore(known, place);
    } else {
      element.insertBefore(child, place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function change(known, fresh) {
  if (known.nodeType === Node.TEXT_NODE) {
    if (known.data !== fresh.data) known.data = fresh.data;
    return;
  }
  for (const name of HANDLERS) known[name] = fresh[name];
  // What `data-own` marks keeps its contents by itself: logs, plots and maps.
  if (known.hasAttribute("data-own")) return;
  for (const name of known.getAttributeNames()) {
    // Whether details are open is for the person to decide.
    if (!fresh.hasAttribute(name) && name !== "open") known.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (known.getAttribute(name) !== value) known.setAttribute(name, value);
  }
  update(known, [...fresh.childNodes]);
  if (known.nodeName === "INPUT" && known.type === "checkbox") known.checked = fresh.checked;
  else if ("value" in known && "value" in fresh && known !== document.activeElement && known.value !== fresh.value) {
    known.value = fresh.value;
  }
}

// Return a table. Each column has a label and `cell(row)`, the content of its cell; `isNumber` puts it at the right. `key` names a row.
export function table(caption, columns, rows, key, { rowClass = () => null, id = null } = {}) {
  return h(
    "div",
    { class: "scrolls", tabindex: 0, role: "region", "aria-label": caption },
    h(
      "table",
      { id },
      h("caption", null, caption),
      h(
        "thead",
        null,
        h("tr", null, columns.map((each) => h("th", { scope: "col", class: each.isNumber ? "number" : null, "aria-sort": each.sorted }, each.label))),
      ),
      h(
        "tbody",
        null,
        rows.map((row) =>
          h(
            "tr",
            { "data-key": key(row), class: rowClass(row) },
            columns.map((each) => h(each.isHeading ? "th" : "td", { scope: each.isHeading ? "row" : null, class: each.isNumber ? "number" : each.class }, each.cell(row))),
          ),
        ),
      ),
    ),
  );
}

// Return a list of facts: pairs of a label and its content. Pairs without content are left out.
export const facts = (...pairs) =>
  h("dl", null, pairs.filter(([, content]) => !NOTHING.includes(content)).map(([label, content]) => [h("dt", null, label), h("dd", null, content)]));

// Return a link to a page of the console.
export const link = (address, ...children) => h("a", { href: String(address) }, children);
