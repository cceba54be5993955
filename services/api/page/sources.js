// Where does an answer come from? The row of source cards, the passage that is open, and the citations that point there.

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Where in its file a source stands, in words. */
function place(source) {
  const { page, start_line: first, end_line: last } = source.span;
  if (page) return `page ${page}`;
  if (!first) return "";
  return first === last ? `line ${first}` : `lines ${first}\u2013${last}`;
}

/** The sources of one turn. */
export class Sources {
  #cards = new Map();
  #open = null;
  #support = new Map();
  #used = new Map();

  /** @param {HTMLElement} root an empty section @param {string} prefix makes ids unique in the page */
  constructor(root, prefix) {
    this.root = root;
    this.prefix = prefix;
  }

  /** Shows the row. */
  show(sources) {
    this.root.replaceChildren();
    this.#cards.clear();
    if (!sources.length) {
      this.root.append(element("p", "nothing", "No passage in the documents speaks of this."));
      return;
    }
    this.row = element("ol", "row");
    this.row.setAttribute("aria-label", "Sources");
    this.passage = element("article", "passage");
    this.passage.id = `${this.prefix}-passage`;
    this.passage.tabIndex = -1;
    this.passage.hidden = true;
    for (const source of sources) this.row.append(this.#card(source));
    this.root.append(this.row, this.passage);
  }

  #card(source) {
    const item = document.createElement("li");
    const card = element("button", "card");
    card.type = "button";
    card.dataset.number = source.number;
    card.setAttribute("aria-expanded", "false");
    card.setAttribute("aria-controls", this.passage.id);
    const head = element("span", "card-head");
    head.append(element("span", "number", source.number), element("span", "card-title", source.title || source.document_id));
    card.append(head);
    const heading = source.headings.at(-1);
    if (heading && heading !== source.title) card.append(element("span", "card-heading", heading));
    card.append(element("span", "card-snippet", source.text.slice(0, 220)));
    card.addEventListener("click", () => this.toggle(source.number));
    this.#cards.set(source.number, { card, source });
    item.append(card);
    return item;
  }

  /** Opens the full passage, or closes it when it is open. */
  toggle(number) {
    if (this.#open === number) return this.close();
    const { card, source } = this.#cards.get(number);
    this.close();
    this.#open = number;
    card.setAttribute("aria-expanded", "true");
    const head = element("header", "passage-head");
    const words = [source.title, ...source.headings].filter((word, at, all) => word && word !== all[at - 1]);
    head.append(element("span", "number", number), element("strong", "", words.join(" \u203a ") || source.document_id));
    const shut = element("button", "quiet", "Close");
    shut.type = "button";
    shut.addEventListener("click", () => {
      this.close();
      card.focus();
    });
    head.append(shut);
    const from = [source.document_id, place(source)].filter(Boolean).join(", ");
    this.passage.replaceChildren(head, element("p", "passage-text", source.text), element("p", "passage-from", from));
    this.passage.hidden = false;
  }

  /** Closes the open passage; false when none was open. */
  close() {
    if (this.#open === null) return false;
    this.#cards.get(this.#open).card.setAttribute("aria-expanded", "false");
    this.passage.hidden = true;
    this.#open = null;
    return true;
  }

  #light(number, on) {
    const { card } = this.#cards.get(number);
    card.classList.toggle("lit", on);
    if (on) this.#reveal(card);
  }

  /** Scrolls the row, not the page: pointing at a citation must not move the text that is being read. */
  #reveal(card) {
    const item = card.parentElement;
    const [left, right] = [item.offsetLeft - this.row.offsetLeft, item.offsetLeft - this.row.offsetLeft + item.offsetWidth];
    if (left < this.row.scrollLeft) this.row.scrollTo({ left: left - 8, behavior: "smooth" });
    else if (right > this.row.scrollLeft + this.row.clientWidth) {
      this.row.scrollTo({ left: right - this.row.clientWidth + 8, behavior: "smooth" });
    }
  }

  /** A citation for source `number`, or null when there is no such source. */
  citation(number) {
    const known = this.#cards.get(number);
    if (!known) return null;
    const cite = element("button", "cite", number);
    cite.type = "button";
    const support = this.#next(number);
    const bears = support === undefined ? "" : `, bears this to ${Math.round(support * 100)} %`;
    cite.setAttribute("aria-label", `Source ${number}: ${known.source.title}${bears}`);
    cite.title = `${known.source.title}${bears}`;
    for (const name of ["mouseenter", "focus"]) cite.addEventListener(name, () => this.#light(number, true));
    for (const name of ["mouseleave", "blur"]) cite.addEventListener(name, () => this.#light(number, false));
    cite.addEventListener("click", () => {
      if (this.#open !== number) this.toggle(number);
      this.passage.scrollIntoView({ behavior: "smooth", block: "nearest" });
      this.#cards.get(number).card.classList.add("lit");
    });
    return cite;
  }

  #next(number) {
    const at = this.#used.get(number) ?? 0;
    this.#used.set(number, at + 1);
    return this.#support.get(number)?.[at];
  }

  /** Takes the report on the sentences; citations that are made from now on say how well their source bears them. */
  report(sentences) {
    this.#support.clear();
    this.#used.clear();
    for (const sentence of sentences) {
      for (const [, numbers] of sentence.text.matchAll(/\[(\d+(?:\s*,\s*\d+)*)\]/g)) {
        for (const number of numbers.split(",").map(Number)) {
          const support = sentence.citations.find((citation) => citation.number === number)?.support;
          this.#support.set(number, [...(this.#support.get(number) ?? []), support]);
        }
      }
    }
  }
}
