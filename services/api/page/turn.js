// What does one question look like, from asking to the timing line?

import { render } from "./markdown.js";
import { Sources } from "./sources.js";

const KIND_WORDS = {
  queue_full: "Many questions are waiting right now. Please try again in a moment.",
  busy: "Many questions are being answered right now. Please try again in a moment.",
  shutting_down: "The server is shutting down. Please try again in a moment.",
  unreachable: "The server cannot be reached. Is it still running?",
  unknown_key: "This service wants a key that it knows. Ask again to enter one.",
  empty_query: "There is no question in there yet.",
  query_too_long: "That question is too long. Please shorten it.",
};

const STAGE_WORDS = {
  admit: "before work began", embed: "while searching", lexical: "while searching", vector: "while searching",
  fuse: "while searching", pack: "while preparing the sources", queue: "while waiting for the model",
  prefill: "while reading the sources", decode: "while writing", cite: "while checking the citations",
};

/** An error in words for a person. */
function kindly(error) {
  if (error.code === "deadline_exceeded") return `Time ran out ${STAGE_WORDS[error.stage] ?? "on the way"}.`;
  return KIND_WORDS[error.code] ?? `Something went wrong: ${error.message}`;
}

function seconds(ms) {
  if (ms < 10) return `${ms.toFixed(1)}\u00a0ms`;
  return ms < 1000 ? `${Math.round(ms)}\u00a0ms` : `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)}\u00a0s`;
}

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

let count = 0;

/** One question with its sources, answer and timing. */
export class Turn {
  #text = "";
  #frame = 0;
  #known = [];
  #over = false;

  constructor(question) {
    this.question = question;
    count += 1;
    this.element = element("article", "turn");
    this.element.setAttribute("aria-busy", "true");
    const title = element("h2", "question", question);
    title.id = `turn-${count}`;
    this.element.setAttribute("aria-labelledby", title.id);
    this.status = element("p", "status", "Searching the documents");
    const sources = element("section", "sources");
    this.answer = element("div", "answer");
    this.foot = element("div", "foot");
    this.element.append(title, sources, this.status, this.answer, this.foot);
    this.sources = new Sources(sources, title.id);
  }

  get text() {
    return this.#text;
  }

  /** How many sources were shown. */
  get sourceCount() {
    return this.#known.length;
  }

  showSources(event) {
    this.#known = event.sources;
    this.sources.show(event.sources);
    const many = event.sources.length === 1 ? "1 source" : `${event.sources.length} sources`;
    this.status.textContent = event.sources.length ? `Reading ${many}` : "Writing";
  }

  delta(text) {
    if (!this.#text) {
      this.status.hidden = true;
      this.answer.classList.add("writing");
    }
    this.#text += text;
    // At most one rendering a frame, however fast the pieces come.
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#render();
    });
  }

  #render() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    // A citation that is still half written would flash as plain text.
    const shown = this.#over ? this.#text : this.#text.replace(/\[[\d,\s]*$/, "");
    render(this.answer, shown, (number) => this.sources.citation(number));
  }

  #end() {
    this.#over = true;
    this.element.setAttribute("aria-busy", "false");
    this.status.hidden = true;
    this.answer.classList.remove("writing");
  }

  finish(event) {
    this.#end();
    this.#text = event.text;
    this.sources.report(event.sentences);
    const held = document.activeElement?.closest(".answer") === this.answer;
    // Everything is made anew, so that the citations say how well they are borne; not under someone's fingers, though.
    if (!held) this.answer.replaceChildren();
    this.#render();
    this.foot.append(this.#timing(event), ...this.#notes(event));
  }

  stopped() {
    this.#end();
    this.#render();
    this.foot.append(element("p", "note", "Stopped."));
  }

  failed(error, retry) {
    this.#end();
    this.#render();
    const box = element("div", "trouble");
    box.setAttribute("role", "alert");
    box.append(element("p", "", kindly(error)));
    const again = element("button", "quiet", "Try again");
    again.type = "button";
    again.addEventListener("click", retry);
    box.append(again);
    this.foot.append(box);
  }

  #notes(event) {
    const notes = [];
    const cut = { length: "The answer reached its length limit.", deadline: "Time ran out; this is what was written by then." };
    if (cut[event.finish_reason]) notes.push(cut[event.finish_reason]);
    if (event.degraded.length) notes.push(`Left out to keep the limits: ${event.degraded.join(", ")}.`);
    return notes.map((note) => element("p", "note", note));
  }

  #timing(event) {
    const { timing, usage } = event;
    const parts = [["sources", seconds(timing.time_to_sources_ms)]];
    if (timing.ttft_ms !== undefined) parts.push(["first words", seconds(timing.ttft_ms)]);
    if (timing.tpot_ms) parts.push(["speed", `${(1000 / timing.tpot_ms).toFixed(1)}\u00a0tokens/s`]);
    parts.push(["total", seconds(timing.total_ms)]);
    const more = element("details", "timing");
    const line = element("summary", "");
    for (const [name, value] of parts) {
      const part = element("span", "figure");
      part.append(element("span", "figure-name", name), " ", element("span", "figure-value", value));
      line.append(part);
    }
    more.append(line, this.#stages(timing.stages_ms));
    const { removed, added } = event.citations;
    const words = `${usage.prompt_tokens} tokens read, ${usage.completion_tokens} written by ${event.model}. `
      + `Citations: ${removed} removed, ${added} added by the check.`;
    more.append(element("p", "figure-name", words));
    return more;
  }

  #stages(stages) {
    const order = ["admit", "embed", "lexical", "vector", "fuse", "pack", "queue", "prefill", "decode", "cite"];
    const most = Math.max(...Object.values(stages), 1e-9);
    const list = element("dl", "stages");
    for (const name of order.filter((one) => stages[one] !== undefined)) {
      const bar = element("span", "stage-bar");
      bar.style.width = `${Math.max(0.5, (100 * stages[name]) / most)}%`;
      const value = element("dd", "");
      value.append(bar, element("span", "", seconds(stages[name])));
      list.append(element("dt", "", name), value);
    }
    return list;
  }
}
