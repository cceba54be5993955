// How does an answer's text become elements? A small part of Markdown, built node by node: text can never become markup.

const FENCE = /^\s*(```|~~~)/;
const HEADING = /^#{1,6}\s+(.*)$/;
const BULLET = /^\s*[-*+]\s+(.*)$/;
const NUMBER = /^\s*(\d+)[.)]\s+(.*)$/;

/** Cuts text into blocks: {kind: "p"|"h"|"ul"|"ol"|"code", lines, start?}. */
export function blocks(text) {
  const found = [];
  let open = null;
  const begin = (kind, line, extra = {}) => found.push((open = { kind, lines: [line], ...extra }));
  for (const line of text.split("\n")) {
    if (open?.kind === "code" && !open.closed) {
      if (FENCE.test(line)) open.closed = true;
      else open.lines.push(line);
      continue;
    }
    const [heading, bullet, number] = [HEADING.exec(line), BULLET.exec(line), NUMBER.exec(line)];
    if (FENCE.test(line)) {
      begin("code", "");
      open.lines = [];
    } else if (line.trim() === "") {
      // A list goes on over an empty line if another item follows.
      if (open?.kind !== "ul" && open?.kind !== "ol") open = null;
      else open.gap = true;
    } else if (heading) {
      begin("h", heading[1]);
      open = null;
    } else if (bullet) {
      if (open?.kind === "ul") open.lines.push(bullet[1]);
      else begin("ul", bullet[1]);
      open.gap = false;
    } else if (number) {
      if (open?.kind === "ol") open.lines.push(number[2]);
      else begin("ol", number[2], { start: Number(number[1]) });
      open.gap = false;
    } else if (open && !open.gap && open.kind !== "code") {
      open.lines[open.lines.length - 1] += `\n${line.trim()}`;
    } else {
      begin("p", line);
    }
  }
  return found;
}

const INLINE = /(`+)([\s\S]*?[^`])\1(?!`)|\*\*([^*]+(?:\*[^*]+)*)\*\*|(?<![\w*])\*([^*\s][^*]*)\*(?![\w*])|\[(\d+(?:\s*,\s*\d+)*)\]/g;

/** Appends a line's content to `parent`. `cite(number)` makes the element for a citation, or gives null. */
export function inline(parent, text, cite) {
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    const before = text.slice(end, match.index);
    // A citation keeps to the word before it.
    parent.append(match[5] ? before.replace(/[ \t]+$/, "\u202f") : before);
    end = match.index + match[0].length;
    if (match[1]) parent.append(element("code", match[2].trim()));
    else if (match[3]) nested(parent, "strong", match[3], cite);
    else if (match[4]) nested(parent, "em", match[4], cite);
    else end += citations(parent, match[0], match[5], cite, text.slice(end));
  }
  parent.append(text.slice(end));
}

function nested(parent, name, text, cite) {
  const child = document.createElement(name);
  inline(child, text, cite);
  parent.append(child);
}

/** Appends citations, and the mark that follows them, so that no line begins with a full stop; gives its length. */
function citations(parent, raw, numbers, cite, rest) {
  const made = numbers.split(",").map((number) => cite(Number(number)));
  const mark = /^[.,;:!?)]*/.exec(rest)[0];
  const tied = document.createElement("span");
  tied.className = "tied";
  if (made.some((one) => one === null)) tied.append(raw);
  else tied.append(...made);
  tied.append(mark);
  parent.append(tied);
  return mark.length;
}

function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

function build(block, cite) {
  if (block.kind === "code") {
    const pre = document.createElement("pre");
    pre.tabIndex = 0;
    pre.append(element("code", block.lines.join("\n")));
    return pre;
  }
  if (block.kind === "ul" || block.kind === "ol") {
    const list = document.createElement(block.kind);
    if (block.start > 1) list.start = block.start;
    for (const line of block.lines) nested(list, "li", line, cite);
    return list;
  }
  const made = document.createElement(block.kind === "h" ? "h3" : "p");
  inline(made, block.lines[0], cite);
  return made;
}

/**
 * Brings `target` to the state of `text`. Blocks that did not change keep their elements, so that a focused or hovered
 * citation survives while the rest streams in.
 */
export function render(target, text, cite) {
  const wanted = blocks(text);
  wanted.forEach((block, at) => {
    const key = JSON.stringify(block);
    const present = target.children[at];
    if (present?.dataset.key === key) return;
    const made = build(block, cite);
    made.dataset.key = key;
    if (present) present.replaceWith(made);
    else target.append(made);
  });
  while (target.children.length > wanted.length) target.lastElementChild.remove();
}
