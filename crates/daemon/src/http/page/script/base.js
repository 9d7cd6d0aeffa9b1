// The page that shows a cluster over time. It asks only the daemon that served it, and inserts answers as text.
// The files of this folder are one script, in the order of web_page.rs.

const AHEAD = 1 / 8; // length of the shown plan, in units of the shown past
const LEAST = 30; // seconds
const LONGEST = 42 * 3600;
const KINDS = [null, "main", "idle", "wanted", "refused", "down"];
const HIDDEN_JOB = 6;
const JOBS_FROM = 6;
const WORDS = {
  main: "main jobs", job: "malleable jobs", idle: "idle", wanted: "idle, but wanted back soon",
  refused: "idle, but refused by infill", down: "down", unknown: "unknown",
};
const PARTS = ["main", "job", "idle", "wanted", "refused", "down"];
const MOST_ROWS = 500;

const at = (id) => document.getElementById(id);
const seconds = () => Math.floor(Date.now() / 1000) + known.skew; // by the daemon's clock
const clamp = (value, least, most) => Math.min(most, Math.max(least, value));

/** `view` is what the page shows. A link has all of it. `span`: seconds of the past, or "fit". */
const view = { span: "fit", end: null, first: 0, count: null, days: 1, chosen: null, query: "" };

/** `known` has the data of the page. */
const known = {
  status: null, summary: null, map: null, lanes: null, profiles: null, nodes: 0, skew: 0, drawnAt: 0, allJobs: false, opener: null, done: {},
};

// Words.

const two = (n) => String(n).padStart(2, "0");
const dayOf = (date) => `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
const hourOf = (date) => `${two(date.getHours())}:${two(date.getMinutes())}`;
const secondOf = (date) => `${hourOf(date)}:${two(date.getSeconds())}`;

/** A moment on a clock of 24 hours, with its day unless it is today. */
function clock(secs) {
  const date = new Date(secs * 1000);
  const day = dayOf(date);
  return day === dayOf(new Date(seconds() * 1000)) ? secondOf(date) : `${day} ${hourOf(date)}`;
}

/** A number with its unit, which stay on one line. */
const unit = (value, name) => `${value}\u00a0${name}`;

/** A length of time: 41 s, 12 min, 3 h 20 min, 2 d 4 h. */
function long(secs) {
  const whole = Math.max(0, Math.round(secs));
  if (whole < 90) return unit(whole, "s");
  const minutes = Math.round(whole / 60);
  if (minutes < 90) return unit(minutes, "min");
  const [hours, rest] = [Math.floor(minutes / 60), minutes % 60];
  if (hours < 48) return rest ? `${unit(hours, "h")} ${unit(rest, "min")}` : unit(hours, "h");
  const days = Math.floor(hours / 24);
  return hours % 24 ? `${unit(days, "d")} ${unit(hours % 24, "h")}` : unit(days, "d");
}

/** A wait: 0.3 s, 12 s, 4 min. */
const wait = (secs) => (secs < 9.95 ? unit(secs.toFixed(1), "s") : long(secs));

/** A number with at most three significant digits, and commas between thousands. */
function brief(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size < 1) return value.toLocaleString("en", { maximumSignificantDigits: 2 });
  const digits = size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

const one = (n, what) => `${brief(n)} ${what}${n === 1 ? "" : "s"}`;
const share = (part, whole) => unit(Math.round((part / whole) * 100), "%");

function wordOf(code) {
  if (code === HIDDEN_JOB) return "a malleable job";
  return code > HIDDEN_JOB ? `job ${code - JOBS_FROM}` : WORDS[KINDS[code]] ?? WORDS.unknown;
}

// Elements.

/** An element with attributes and children. Texts are inserted as text. */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  dress(element, attributes, children);
  return element;
}

/** The same for a drawing. */
function draft(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  dress(element, attributes, children);
  return element;
}

function dress(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
}

/** Fills a table. Keeps the focus on the button that had it. */
function fill(table, heads, rows) {
  const cells = (kind, contents) => {
    const row = make("tr");
    for (const content of contents) {
      const cell = make(kind, kind === "th" ? { scope: "col" } : {});
      if (content?.kind === "cell") dress(cell, content.attributes, content.children);
      else cell.append(content instanceof Node ? content : document.createTextNode(content ?? ""));
      row.append(cell);
    }
    return row;
  };
  const active = document.activeElement;
  const key = table.contains(active) ? active.dataset.key : undefined;
  table.tHead.replaceChildren(...(heads.length ? [cells("th", heads)] : []));
  table.tBodies[0].replaceChildren(...rows.map((row) => cells("td", row)));
  table.hidden = rows.length === 0;
  if (key !== undefined) [...table.querySelectorAll("[data-key]")].find((found) => found.dataset.key === key)?.focus();
}

/** A cell with attributes, for [fill]. */
const cell = (attributes, ...children) => ({ kind: "cell", attributes, children });

/** Sets a text only if it is another one: screen readers speak a text again that is set again. */
function say(element, words) {
  if (element.textContent !== words) element.textContent = words;
}

/** Replaces what is in a box. Tables that were open stay open. */
function refill(box, ...children) {
  const open = [...box.querySelectorAll("details")].map((more) => more.open);
  box.replaceChildren(...children);
  box.querySelectorAll("details").forEach((more, i) => { more.open = open[i] ?? false; });
}

/** A button that chooses a job, a node or a profile. */
function chooser(kind, name, profile) {
  const button = make("button", { type: "button", class: "link" }, String(name));
  button.dataset.key = `${kind} ${name} ${profile ? JSON.stringify(keyOf(profile)) : ""}`;
  button.addEventListener("click", () => choose({ kind, name: String(name), profile: profile && keyOf(profile) }, true));
  return button;
}

// Colours.

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// Hues that differ from each other and from the other uses. The first jobs get the first ones.
const HUES = [205, 165, 325, 95, 235, 350, 185, 290, 130, 10];
const coloured = new Map();

/** The colour of a job: the same wherever the page shows it. */
function jobColour(job) {
  if (!coloured.has(job)) coloured.set(job, coloured.size);
  const turn = coloured.get(job);
  const light = parseFloat(style("job-light")) + [0, -12, 12][Math.floor(turn / HUES.length) % 3];
  return `hsl(${HUES[turn % HUES.length]} 58% ${light}%)`;
}

function colours() {
  const found = {};
  for (const name of ["paper", "ink", "quiet", "line", ...PARTS, "unknown"]) found[name] = style(name);
  return found;
}

function colourOf(code, paint) {
  if (code > HIDDEN_JOB) return paint.jobs?.get(code) ?? remember(paint, code);
  return code === HIDDEN_JOB ? paint.job : paint[KINDS[code]] ?? paint.unknown;
}

function remember(paint, code) {
  paint.jobs ??= new Map();
  const colour = jobColour(code - JOBS_FROM);
  paint.jobs.set(code, colour);
  return colour;
}

// A tip beside the pointer or the focused element.

/** Shows lines of text beside a point of the window; hides the tip without lines. */
function tip(lines, x = 0, y = 0) {
  const box = at("tip");
  box.hidden = !lines?.length;
  if (box.hidden) return;
  box.replaceChildren(...lines.map((line, i) => make("span", i ? {} : { class: "first" }, line)));
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${clamp(x + 12, 4, Math.max(4, document.documentElement.clientWidth - width - 4))}px`;
  box.style.top = `${y + height + 20 > window.innerHeight ? Math.max(4, y - height - 12) : y + 16}px`;
}
