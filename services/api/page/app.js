// How does the page behave? One conversation: asking, stopping, starting afresh, and the keyboard.

import { call } from "./key.js";
import { ask, AskError, cancel } from "./stream.js";
import { Turn } from "./turn.js";

/** Earlier messages that are sent along; the server bounds them as well. */
const MESSAGES_MAX = 6;

const at = (id) => document.getElementById(id);
const [box, form, send, stop, fresh, welcome, turns] =
  ["question", "composer", "send", "stop", "fresh", "welcome", "turns"].map(at);

let conversation = [];
let running = null;
let last = null;

function announce(text) {
  at("announce").textContent = text;
}

function setRunning(next) {
  running = next;
  send.hidden = Boolean(next);
  stop.hidden = !next;
}

function grow() {
  box.style.height = "auto";
  box.style.height = `${Math.min(box.scrollHeight, 200)}px`;
}

/** Markers of old sources would read as new ones. */
function withoutCitations(text) {
  return text.replace(/\s?\[\d+(?:\s*,\s*\d+)*\]/g, "");
}

function remember(turn) {
  // A turn that "New conversation" has swept away belongs to no conversation.
  if (!turn.text || !turn.element.isConnected) return;
  conversation.push({ role: "user", content: turn.question }, { role: "assistant", content: withoutCitations(turn.text) });
  conversation = conversation.slice(-MESSAGES_MAX);
}

async function follow(turn, mine) {
  const body = { question: turn.question };
  if (conversation.length) body.conversation = conversation;
  for await (const { name, data } of ask(body, mine.abort.signal, (id) => { mine.id = id; })) {
    if (name === "sources") turn.showSources(data);
    if (name === "delta") turn.delta(data.text);
    if (name === "final") {
      turn.finish(data);
      announce(`Answer with ${turn.sourceCount} sources: ${withoutCitations(turn.text)}`);
    }
  }
}

async function start(question) {
  const text = question.trim();
  if (!text || running) return;
  const mine = { abort: new AbortController(), id: "" };
  setRunning(mine);
  welcome.hidden = true;
  fresh.hidden = false;
  const turn = new Turn(text);
  last = turn;
  turns.append(turn.element);
  turn.element.scrollIntoView({ behavior: "smooth", block: "start" });
  try {
    await follow(turn, mine);
    remember(turn);
  } catch (error) {
    if (mine.abort.signal.aborted) {
      turn.stopped();
      remember(turn);
      announce("Stopped.");
    } else {
      turn.failed(error instanceof AskError ? error : new AskError({ message: String(error) }), () => {
        turn.element.remove();
        start(text);
      });
    }
  } finally {
    if (running === mine) setRunning(null);
  }
}

function halt() {
  if (!running) return;
  running.abort.abort();
  cancel(running.id);
}

function startAfresh() {
  halt();
  conversation = [];
  last = null;
  turns.replaceChildren();
  welcome.hidden = false;
  fresh.hidden = true;
  history.replaceState(null, "", "/");
  box.focus();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (running || !box.value.trim()) return;
  const question = box.value;
  box.value = "";
  grow();
  start(question);
});
stop.addEventListener("click", () => {
  halt();
  box.focus();
});
fresh.addEventListener("click", startAfresh);
box.addEventListener("input", grow);
box.addEventListener("keydown", (event) => {
  // An Enter that picks a word from an input method is not a wish to send.
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    form.requestSubmit();
  }
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    box.focus();
  }
  if (event.key === "Escape") {
    if (running) halt();
    else last?.sources.close();
  }
});

async function describe() {
  const [models, samples] = await Promise.all(
    ["/v1/models", "/page/samples.json"].map((path) => call(path).then((response) => response.json())),
  );
  at("model").textContent = models.data.map((model) => model.id).join(", ");
  for (const question of samples) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = question;
    button.addEventListener("click", () => start(question));
    const item = document.createElement("li");
    item.append(button);
    at("samples").append(item);
  }
}

describe().catch(() => {});
grow();
const linked = new URLSearchParams(location.search).get("q");
if (linked) start(linked);
