// How do bytes become events? Reads server-sent events from a fetch, which EventSource cannot POST for.

import { call } from "./key.js";

/** A failure that the server told of, or that kept it from telling anything. */
export class AskError extends Error {
  /** @param {{message: string, code?: string, stage?: string}} detail */
  constructor(detail) {
    super(detail.message);
    this.code = detail.code ?? "unknown";
    this.stage = detail.stage;
  }
}

/** Cuts a text stream into events; pieces may end anywhere, inside a line ending too. */
export class EventReader {
  #rest = "";
  #name = "message";
  #data = [];

  /** @param {string} piece @returns {{name: string, data: string}[]} the events that the piece completes */
  push(piece) {
    const text = this.#rest + piece;
    // A trailing CR may be half of CR LF: it waits for the next piece.
    const lines = text.split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    const events = [];
    for (const line of lines) {
      if (line === "") {
        if (this.#data.length) events.push({ name: this.#name, data: this.#data.join("\n") });
        this.#name = "message";
        this.#data = [];
      } else {
        this.#field(line);
      }
    }
    return events;
  }

  #field(line) {
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#name = value;
    if (field === "data") this.#data.push(value);
  }
}

async function refusal(response) {
  try {
    return new AskError((await response.json()).error);
  } catch {
    return new AskError({ message: `The server answered with status ${response.status}.` });
  }
}

/**
 * Asks, and gives the answer's events as they come: {name, data} with data read.
 * @param {object} body @param {AbortSignal} signal @param {(id: string) => void} named called with the request's id
 */
export async function* ask(body, signal, named) {
  let response;
  try {
    response = await call("/v1/answer", {
      method: "POST",
      headers: { "content-type": "application/json", accept: "text/event-stream" },
      body: JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new AskError({ message: "The server cannot be reached.", code: "unreachable" });
  }
  named(response.headers.get("x-request-id") ?? "");
  if (!response.ok) throw await refusal(response);
  const reader = new EventReader();
  const bytes = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let ended = false;
  try {
    for (;;) {
      const { value, done } = await bytes.read();
      if (done) break;
      for (const event of reader.push(value)) {
        const data = JSON.parse(event.data);
        if (event.name === "error") throw new AskError(data.error);
        ended = event.name === "final";
        yield { name: event.name, data };
      }
    }
  } catch (error) {
    if (signal.aborted || error instanceof AskError) throw error;
    throw new AskError({ message: "The connection broke off.", code: "unreachable" });
  }
  if (!ended) throw new AskError({ message: "The connection broke off.", code: "unreachable" });
}

/** Tells the server to stop, for proxies that do not pass on a closed connection. */
export function cancel(id) {
  if (id) call(`/v1/cancel/${encodeURIComponent(id)}`, { method: "POST", keepalive: true }).catch(() => {});
}
