// The tokens of the person: list, make, revoke. The text of a new token is on the screen once, and in no storage.

import { h, table } from "./draw.js";
import { ask, path, send } from "./session.js";
import { clock, count } from "./words.js";

const WANTED = { name: "", expires: "30d", read_only: true };

// Return the command that makes the token which the form describes.
function commandFor({ name, expires, read_only: readOnly }) {
  const quoted = /^[\w.-]*$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`;
  return ["headrace token create", name && `--name ${quoted}`, readOnly && "--read-only", `--expires ${expires || "30d"}`].filter(Boolean).join(" ");
}

export class Tokens {
  constructor(view) {
    this.view = view;
    this.known = [];
    this.refused = "";
    this.wanted = { ...WANTED };
    this.made = null;
    this.toRevoke = null;
    this.said = "";
    this.isBusy = false;
  }

  // A refusal is an answer, too: the page shows it with the commands to type.
  async load(signal) {
    try {
      this.known = (await ask(path`/tokens`, { signal })).tokens;
      this.refused = "";
    } catch (error) {
      if (![403, 404, 409].includes(error.status)) throw error;
      this.refused = error.message;
    }
  }

  paint() {
    return [
      h("h2", { id: "tokens" }, "Tokens for programs"),
      h("p", null, "A program sends a token to the HTTP API and acts under your name. Only your own credential can make, list and revoke tokens; a token cannot."),
      this.refused ? this.refusal() : [this.made && this.secret(), this.list(), this.form()],
      h("p", { role: "status", class: this.isRefusal ? "bad" : null }, this.said),
    ];
  }

  refusal() {
    return [
      h("p", null, `This console cannot manage your tokens: ${this.refused}.`),
      h("p", null, "Where tokens exist, type these commands on a machine where you are logged in:"),
      h("pre", { tabindex: 0, role: "region", "aria-label": "commands" }, `${commandFor({ ...WANTED, name: "NAME" })}\nheadrace token list\nheadrace token revoke NAME`),
    ];
  }

  secret() {
    const { token, text } = this.made;
    return h(
      "div",
      { class: "staged", "data-key": "secret" },
      h("h3", null, `The new token${token.name ? ` ${token.name}` : ""}`),
      h("p", null, "It is shown once. Keep it like a password: everybody who has it can use it."),
      h("pre", { id: "secret", tabindex: 0, role: "region", "aria-label": "text of the new token" }, text),
      h("p", { class: "pages" }, h("button", { type: "button", class: "main", onclick: () => this.copy() }, "Copy"), h("button", { type: "button", onclick: () => this.forget() }, "I have kept it")),
    );
  }

  list() {
    if (!this.known.length) return h("p", { class: "faint" }, "No token.");
    return table(
      `${count(this.known.length, "token")}, the first made first`,
      [
        { label: "name", isHeading: true, cell: (each) => each.name || "–" },
        { label: "may", cell: (each) => (each.read_only ? "read" : "read and change") },
        { label: "made", cell: (each) => clock(each.created_at_ms) },
        { label: "ends", cell: (each) => clock(each.expires_at_ms) },
        { label: "key", cell: (each) => `${each.key.slice(0, 8)}…` },
        { label: "revoke", cell: (each) => this.revocation(each) },
      ],
      this.known,
      (each) => each.key,
    );
  }

  // A token that is revoked cannot come back, so the button asks for a second click.
  revocation(token) {
    const name = token.name || token.key.slice(0, 8);
    const isAsked = this.toRevoke === token.key;
    const turn = (key) => {
      this.toRevoke = key;
      this.view.paint();
    };
    if (!isAsked) return h("button", { type: "button", disabled: this.isBusy, "aria-label": `revoke ${name}`, onclick: () => turn(token.key) }, "Revoke");
    return [
      h("button", { type: "button", class: "grave", disabled: this.isBusy, "aria-label": `revoke ${name} for good`, onclick: () => this.revoke(token, name) }, "Revoke for good"),
      " ",
      h("button", { type: "button", "aria-label": `keep ${name}`, onclick: () => turn(null) }, "Keep"),
    ];
  }

  form() {
    const set = (name, value) => {
      this.wanted[name] = value;
      this.view.paint();
    };
    const text = (name, label, more) => h("label", null, `${label} `, h("input", { name, value: this.wanted[name], ...more, oninput: (event) => set(name, event.target.value.trim()) }));
    return [
      h("h3", null, "Make a token"),
      h(
        "form",
        {
          onsubmit: (event) => {
            event.preventDefault();
            this.create();
          },
        },
        text("name", "name", { size: 16, maxlength: 60, autocomplete: "off" }),
        text("expires", "ends after", { size: 6, required: true, autocomplete: "off" }),
        h("label", null, h("input", { type: "checkbox", name: "read_only", checked: this.wanted.read_only, onchange: (event) => set("read_only", event.target.checked) }), " may only read"),
        h("button", { class: "main", disabled: this.isBusy }, "Make the token"),
      ),
      h("p", { class: "faint" }, "The same on the command line: ", h("code", null, commandFor(this.wanted))),
    ];
  }

  async create() {
    await this.change(async () => {
      this.made = await send("POST", path`/tokens`, this.wanted);
      this.wanted = { ...WANTED };
      return "The token is made.";
    });
    document.getElementById("secret")?.focus();
  }

  revoke(token, name) {
    return this.change(async () => {
      await send("DELETE", path`/tokens/${token.key}`);
      this.toRevoke = null;
      return `${name} is revoked, and its connections are closed.`;
    });
  }

  async change(work) {
    this.isBusy = true;
    this.view.paint();
    try {
      this.said = await work();
      this.isRefusal = false;
    } catch (error) {
      this.said = error.message;
      this.isRefusal = true;
    }
    this.isBusy = false;
    this.view.reload();
    this.view.paint();
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(this.made.text);
      this.said = "The token is copied.";
    } catch {
      // The browser refuses the clipboard: the text is selected, to be copied by the keyboard.
      getSelection().selectAllChildren(document.getElementById("secret"));
      this.said = "The browser does not allow this page to copy. The token is selected: copy it with the keyboard.";
    }
    this.view.paint();
  }

  forget() {
    this.made = null;
    this.said = "";
    this.view.paint();
  }
}
